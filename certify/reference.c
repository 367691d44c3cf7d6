/* SPDX-License-Identifier: MIT
 *
 * reference.c: views, data movement, arithmetic, norms, RoPE and LSE_MERGE in double
 * precision, after op.h.
 */
#include "certify/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certify/rig.h"

static int64_t array_count(const certify_array *a) {
    return a->ne[0] * a->ne[1] * a->ne[2] * a->ne[3];
}

static double *array_at(const certify_array *a, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    return &a->x[((i3 * a->ne[2] + i2) * a->ne[1] + i1) * a->ne[0] + i0];
}

/* Calls for every index of an array; i[] is the loop's. */
#define EACH(i, a)                                                                                 \
    for (int64_t i[4] = {0}; i[3] < (a)->ne[3]; i[3]++)                                            \
        for (i[2] = 0; i[2] < (a)->ne[2]; i[2]++)                                                  \
            for (i[1] = 0; i[1] < (a)->ne[1]; i[1]++)                                              \
                for (i[0] = 0; i[0] < (a)->ne[0]; i[0]++)

static double get(const certify_array *a, const int64_t i[4]) {
    return *array_at(a, i[0], i[1], i[2], i[3]);
}

static void set(const certify_array *a, const int64_t i[4], double x) {
    *array_at(a, i[0], i[1], i[2], i[3]) = x;
}

/* ---- Views and data movement ---- */

static void permute(const certify_operands *o) {
    const int32_t *axis = o->node->params.permute.axis;
    EACH(i, &o->src[0]) {
        int64_t to[4];
        for (int k = 0; k < 4; k++) to[axis[k]] = i[k];
        set(&o->dst[0], to, get(&o->src[0], i));
    }
}

static void slice(const certify_operands *o) {
    const int64_t *offset = o->node->params.slice.offset;
    EACH(i, &o->dst[0]) {
        int64_t from[4];
        for (int k = 0; k < 4; k++) from[k] = offset[k] + i[k];
        set(&o->dst[0], i, get(&o->src[0], from));
    }
}

static void concat(const certify_operands *o) {
    int axis = o->node->params.concat.axis;
    EACH(i, &o->dst[0]) {
        int64_t from[4] = {i[0], i[1], i[2], i[3]};
        bool is_first = i[axis] < o->src[0].ne[axis];
        if (!is_first) from[axis] -= o->src[0].ne[axis];
        set(&o->dst[0], i, get(&o->src[is_first ? 0 : 1], from));
    }
}

static void get_rows(const certify_operands *o) {
    EACH(i, &o->dst[0]) {
        double row = o->src[1].x[i[1]] - (double)o->node->params.rows.first_row;
        bool is_foreign = row < 0 || row >= (double)o->src[0].ne[1];
        set(&o->dst[0], i, is_foreign ? 0 : *array_at(&o->src[0], i[0], (int64_t)row, 0, 0));
    }
}

/* ---- Arithmetic ---- */

double certify_act(int32_t act, double x) {
    const double pi = 3.14159265358979323846;
    switch (act) {
    case TDM_ACT_SILU: return x / (1 + exp(-x));
    case TDM_ACT_GELU: return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
    case TDM_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case TDM_ACT_RELU: return x > 0 ? x : 0;
    case TDM_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case TDM_ACT_TANH: return tanh(x);
    default: return x;
    }
}

static void matmul(const certify_operands *o) {
    EACH(i, &o->dst[0]) {
        double sum = 0;
        int64_t head = o->src[0].ne[2] == 1 ? 0 : i[1];
        for (int64_t k = 0; k < o->src[0].ne[0]; k++)
            sum += *array_at(&o->src[0], k, i[0], head, 0) *
                   *array_at(&o->src[1], k, i[1], i[2], i[3]);
        set(&o->dst[0], i, sum);
    }
}

static void pair(const certify_operands *o) {
    EACH(i, &o->dst[0]) {
        int64_t k[4];
        for (int a = 0; a < 4; a++) k[a] = o->src[1].ne[a] == 1 ? 0 : i[a];
        double x = get(&o->src[0], i), y = get(&o->src[1], k);
        set(&o->dst[0], i, o->node->op == TDM_OP_ADD ? x + y : x * y);
    }
}

static void elementwise(const certify_operands *o) {
    const tdm_op_params *p = &o->node->params;
    for (int64_t i = 0; i < array_count(&o->dst[0]); i++) {
        double x = o->src[0].x[i];
        switch (o->node->op) {
        case TDM_OP_SCALE: x = x * (double)p->scale.scale + (double)p->scale.bias; break;
        case TDM_OP_ACT: x = certify_act(p->act.act, x); break;
        case TDM_OP_GLU: x = certify_act(p->act.act, x) * o->src[1].x[i]; break;
        default: break; /* RESHAPE and COPY: as it is */
        }
        o->dst[0].x[i] = x;
    }
}

/* ---- Rows ---- */

static void softmax_row(const double *x, double *y, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > max) max = x[i];
    for (int64_t i = 0; i < n; i++) sum += y[i] = max == -INFINITY ? 0 : exp(x[i] - max);
    for (int64_t i = 0; i < n; i++) y[i] = sum > 0 ? y[i] / sum : 0;
}

static double sum_sq(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

static void rows(const certify_operands *o) {
    const tdm_op_params *p = &o->node->params;
    int64_t n = o->src[0].ne[0], n_row = n > 0 ? array_count(&o->src[0]) / n : 0;
    const double *weight = NULL;
    if (o->node->op == TDM_OP_SUM_SQ) n_row = array_count(&o->dst[0]);
    if (o->node->op == TDM_OP_RMS_NORM) weight = o->src[1].x;
    if (o->node->op == TDM_OP_RMS_APPLY) weight = o->src[2].x;
    for (int64_t r = 0; r < n_row; r++) {
        const double *x = o->src[0].x + r * n;
        double *y = o->dst[0].x + r * n, sum, whole = (double)n;
        if (o->node->op == TDM_OP_SOFTMAX) {
            softmax_row(x, y, n);
            continue;
        }
        sum = sum_sq(x, n);
        if (o->node->op == TDM_OP_SUM_SQ) {
            o->dst[0].x[r] = sum;
            continue;
        }
        if (o->node->op == TDM_OP_RMS_APPLY) {
            sum = o->src[1].x[r];
            if (p->norm.n != 0) whole = (double)p->norm.n;
        }
        for (int64_t i = 0; i < n; i++)
            y[i] =
                x[i] / sqrt(sum / whole + (double)p->norm.eps) * (weight != NULL ? weight[i] : 1);
    }
}

/* ---- RoPE ---- */

static double or_default(float value, double fallback) {
    return value != 0 ? (double)value : fallback;
}

static double yarn_dim(const tdm_rope_params *p, double beta) {
    const double pi = 3.14159265358979323846;
    return p->n_rot * log(p->n_ctx_orig / (beta * 2 * pi)) /
           (2 * log(or_default(p->freq_base, 10000)));
}

void certify_rope_angle(const tdm_rope_params *p, double pos, int32_t i, double factor,
                        bool has_mscale, double *cos_out, double *sin_out) {
    double base = or_default(p->freq_base, 10000), scale = or_default(p->freq_scale, 1);
    double theta = pos * pow(base, -2.0 * i / p->n_rot) / factor, angle = theta * scale;
    double mscale = or_default(p->attn_factor, 1);
    if (p->ext_factor != 0) {
        double low = fmax(0, floor(yarn_dim(p, or_default(p->beta_fast, 32))));
        double high = fmin(p->n_rot - 1, ceil(yarn_dim(p, or_default(p->beta_slow, 1))));
        double r = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
        double ramp = (1 - r) * (double)p->ext_factor;
        angle = theta * scale * (1 - ramp) + theta * ramp;
        mscale *= 1 + 0.1 * log(1 / scale);
    }
    if (!has_mscale) mscale = 1;
    *cos_out = cos(angle) * mscale;
    *sin_out = sin(angle) * mscale;
}

static void rope(const certify_operands *o) {
    const tdm_rope_params *p = &o->node->params.rope;
    memcpy(o->dst[0].x, o->src[0].x, (size_t)array_count(&o->dst[0]) * sizeof(double));
    for (int64_t t = 0; t < o->src[0].ne[2]; t++)
        for (int64_t h = 0; h < o->src[0].ne[1]; h++)
            for (int32_t i = 0; i < p->n_rot / 2; i++) {
                double pos = o->src[1].x[t], c, s;
                bool is_adjacent = p->mode == TDM_ROPE_ADJACENT;
                int64_t a = p->rope_offset + (is_adjacent ? 2 * i : i);
                int64_t b = a + (is_adjacent ? 1 : p->n_rot / 2);
                if (pos == -1) continue;
                certify_rope_angle(p, pos, i, o->src[2].x != NULL ? o->src[2].x[i] : 1, true, &c,
                                   &s);
                double x = *array_at(&o->src[0], a, h, t, 0), y = *array_at(&o->src[0], b, h, t, 0);
                *array_at(&o->dst[0], a, h, t, 0) = x * c - y * s;
                *array_at(&o->dst[0], b, h, t, 0) = x * s + y * c;
            }
}

/* Each part weighs with its l * exp(m - max m); a part over nothing has l = 0 and no weight. */
static void lse_merge(const certify_operands *o) {
    const certify_array *ml = &o->src[1];
    for (int64_t t = 0; t < o->dst[0].ne[2]; t++)
        for (int64_t h = 0; h < o->dst[0].ne[1]; h++) {
            double max = -INFINITY, sum = 0;
            for (int64_t p = 0; p < ml->ne[3]; p++) max = fmax(max, *array_at(ml, 0, h, t, p));
            for (int64_t p = 0; p < ml->ne[3]; p++)
                if (*array_at(ml, 1, h, t, p) > 0)
                    sum += *array_at(ml, 1, h, t, p) * exp(*array_at(ml, 0, h, t, p) - max);
            for (int64_t i = 0; i < o->dst[0].ne[0]; i++) {
                double y = 0;
                for (int64_t p = 0; p < ml->ne[3]; p++)
                    if (*array_at(ml, 1, h, t, p) > 0)
                        y += *array_at(ml, 1, h, t, p) * exp(*array_at(ml, 0, h, t, p) - max) /
                             sum * *array_at(&o->src[0], i, h, t, p);
                *array_at(&o->dst[0], i, h, t, 0) = y;
            }
        }
}

/* ---- Graphs ---- */

static void node_run(const certify_operands *o) {
    switch (o->node->op) {
    case TDM_OP_PERMUTE: permute(o); break;
    case TDM_OP_SLICE: slice(o); break;
    case TDM_OP_CONCAT: concat(o); break;
    case TDM_OP_GET_ROWS: get_rows(o); break;
    case TDM_OP_MATMUL: matmul(o); break;
    case TDM_OP_ADD:
    case TDM_OP_MUL: pair(o); break;
    case TDM_OP_SOFTMAX:
    case TDM_OP_RMS_NORM:
    case TDM_OP_SUM_SQ:
    case TDM_OP_RMS_APPLY: rows(o); break;
    case TDM_OP_ROPE: rope(o); break;
    case TDM_OP_TOP_K: certify_reference_top_k(o); break;
    case TDM_OP_MOE_ROUTE: certify_reference_route(o); break;
    case TDM_OP_MOE_FFN: certify_reference_experts(o); break;
    case TDM_OP_LSE_MERGE: lse_merge(o); break;
    default: elementwise(o); break;
    }
}

static certify_array operand(const tdm_graph *graph, double **want, int32_t index) {
    certify_array a = {NULL, {0}};
    if (index < 0) return a;
    a.x = want[index];
    memcpy(a.ne, tdm_graph_value(graph, index)->ne, sizeof a.ne);
    return a;
}

bool certify_reference_run(const tdm_graph *graph, uint8_t *const *bytes, double **want) {
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        size_t n = (size_t)tdm_shape_count(v->ne);
        bool is_given = v->kind == TDM_VALUE_WEIGHT || v->kind == TDM_VALUE_INPUT;
        free(want[i]);
        want[i] = is_given && bytes[i] != NULL ? certify_numbers(v->type, bytes[i], n)
                                               : calloc(n + 1, sizeof(double));
        if (want[i] == NULL) return false;
    }
    for (int32_t i = 0; i < graph->n_node; i++) {
        certify_operands o = {.node = tdm_graph_node(graph, i)};
        for (int k = 0; k < o.node->n_src; k++) o.src[k] = operand(graph, want, o.node->src[k]);
        for (int k = 0; k < o.node->n_dst; k++) o.dst[k] = operand(graph, want, o.node->dst[k]);
        node_run(&o);
    }
    return true;
}
