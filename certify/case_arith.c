/* SPDX-License-Identifier: MIT
 *
 * case_arith.c: products and elementwise arithmetic: test graphs and references.
 */
#include <math.h>

#include "certify/trial.h"

static int32_t input(certify_trial *t, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return tdm_build_input(t->b, "x", TDM_TYPE_F32, (const int64_t[]){n0, n1, n2, n3});
}

static const int64_t shapes[][4] = {{1, 1, 1, 1},   {64, 1, 1, 1}, {37, 5, 1, 1},
                                    {130, 3, 2, 1}, {3, 2, 5, 4},  {8, 0, 1, 1}};
enum { N_SHAPE = sizeof shapes / sizeof shapes[0] };

static void matmul(certify_trial *t, tdm_type type, uint32_t usage, int64_t k, int64_t n,
                   int64_t m) {
    if (!certify_trial_begin(t, certify_trial_bound(type), "matmul %s%s [%d, %d] x [%d, %d]",
                             tdm_type_name(type), usage ? " (private)" : "", (int)k, (int)n, (int)k,
                             (int)m))
        return;
    t->rms = t->scale * t->scale / 3 * sqrt((double)k); /* of sums of k products */
    int32_t w = tdm_build_weight(t->b, "w", type, (const int64_t[]){k, n, 1, 1}, usage);
    certify_trial_end(t, tdm_build_matmul(t->b, w, input(t, k, m, 1, 1)));
}

static void per_head(certify_trial *t, tdm_type type, uint32_t usage, int64_t k, int64_t n,
                     int64_t n_head, int64_t n_tok) {
    if (!certify_trial_begin(t, certify_trial_bound(type),
                             "matmul %s%s [%d, %d, %d] x [%d, %d, %d]", tdm_type_name(type),
                             usage ? " (private)" : "", (int)k, (int)n, (int)n_head, (int)k,
                             (int)n_head, (int)n_tok))
        return;
    t->rms = t->scale * t->scale / 3 * sqrt((double)k);
    int32_t w = tdm_build_weight(t->b, "w", type, (const int64_t[]){k, n, n_head, 1}, usage);
    certify_trial_end(t, tdm_build_matmul(t->b, w, input(t, k, n_head, n_tok, 1)));
}

static void matmul_cases(certify_trial *t) {
    static const int64_t sizes[][2] = {{1, 1}, {7, 1}, {33, 5}, {64, 17}};
    for (size_t i = 0; i < n_certify_weight_types; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (int usage = 0; usage < 2; usage++) {
                tdm_type type = certify_weight_types[i];
                int64_t len = tdm_type_get_info(type).block_len;
                int64_t k = len == 1 ? 19 + 64 * (int64_t)s : len * (1 + (int64_t)s % 3);
                matmul(t, type, usage ? TDM_USAGE_MATMUL : 0, k, sizes[s][0], sizes[s][1]);
            }
    /* larger than the tiles of any kernel, and no multiple of them */
    static const tdm_type large[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_Q8_0, TDM_TYPE_Q4_K};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        matmul(t, large[i], TDM_USAGE_MATMUL, 1024, 301, 1);
        matmul(t, large[i], TDM_USAGE_MATMUL, 768, 147, 75);
    }
    matmul(t, TDM_TYPE_F32, TDM_USAGE_MATMUL, 16, 0, 3);
    matmul(t, TDM_TYPE_F32, TDM_USAGE_MATMUL, 16, 5, 0);
    matmul(t, TDM_TYPE_F32, TDM_USAGE_MATMUL, 0, 5, 3);
    /* a matrix for each head */
    for (size_t i = 0; i < n_certify_weight_types; i++) {
        int64_t len = tdm_type_get_info(certify_weight_types[i]).block_len;
        for (int usage = 0; usage < 2; usage++)
            per_head(t, certify_weight_types[i], usage ? TDM_USAGE_MATMUL : 0,
                     len == 1 ? 23 : 2 * len, 18, 3, usage ? 5 : 1);
    }
    per_head(t, TDM_TYPE_F32, TDM_USAGE_MATMUL, 8, 5, 0, 3);
    per_head(t, TDM_TYPE_F32, TDM_USAGE_MATMUL, 8, 5, 3, 0);
    if (certify_trial_begin(t, CERTIFY_NMSE_MATMUL, "matmul of a permuted x")) {
        int32_t w = tdm_build_weight(t->b, "w", TDM_TYPE_F32, (const int64_t[]){12, 6, 1, 1},
                                     TDM_USAGE_MATMUL);
        int32_t x = tdm_build_permute(t->b, input(t, 5, 12, 3, 1), 1, 0, 2, 3);
        certify_trial_end(t, tdm_build_matmul(t->b, w, x));
    }
    if (certify_trial_begin(t, CERTIFY_NMSE_QUANT, "matmul q8_0 of tokens of both roles")) {
        t->id_lo = TDM_ROLE_GENERATED;
        t->id_hi = TDM_ROLE_PROMPT;
        int32_t w = tdm_build_weight(t->b, "w", TDM_TYPE_Q8_0, (const int64_t[]){64, 9, 3, 1},
                                     TDM_USAGE_MATMUL);
        int32_t x = input(t, 64, 3, 17, 1);
        tdm_build_set_role(
            t->b, tdm_build_input(t->b, "role", TDM_TYPE_I32, (const int64_t[]){17, 1, 1, 1}));
        certify_trial_end(t, tdm_build_matmul(t->b, w, x));
    }
    if (certify_trial_begin(t, CERTIFY_NMSE_QUANT, "matmul of a tied q8_0 table")) {
        int32_t w = tdm_build_weight(t->b, "w", TDM_TYPE_Q8_0, (const int64_t[]){64, 40, 1, 1},
                                     TDM_USAGE_MATMUL | TDM_USAGE_ROWS);
        certify_trial_end(t, tdm_build_matmul(t->b, w, input(t, 64, 2, 1, 1)));
    }
}

static void matmul_reference(const certify_operands *o) {
    CERTIFY_EACH(i, &o->dst[0]) {
        double sum = 0;
        int64_t head = o->src[0].ne[2] == 1 ? 0 : i[1];
        for (int64_t k = 0; k < o->src[0].ne[0]; k++)
            sum += *certify_array_at(&o->src[0], k, i[0], head, 0) *
                   *certify_array_at(&o->src[1], k, i[1], i[2], i[3]);
        certify_array_set(&o->dst[0], i, sum);
    }
}

CERTIFY_OP(matmul, "op.matmul", matmul_cases, matmul_reference,
           "op.h: MATMUL: \"y[j] = sum_i w[i, j] * x[i]\"")

/* Divisors of both signs, none of them near 0. */
static void divisor_fill(certify_trial *t, certify_rig *rig) {
    float *y = (float *)(void *)rig->bytes[1];
    (void)t;
    for (size_t i = 0; i < rig->sizes[1] / sizeof *y; i++) y[i] += y[i] < 0 ? -0.5f : 0.5f;
}

static void pair(certify_trial *t, tdm_op op) {
    const char *name = tdm_op_name(op);
    for (int s = 0; s < N_SHAPE; s++)
        for (int bits = 0; bits < 16; bits++) { /* which axes of b are 1 */
            int64_t ne[4];
            bool is_new = true;
            for (int a = 0; a < 4; a++) {
                ne[a] = bits >> a & 1 ? 1 : shapes[s][a];
                if ((bits >> a & 1) && shapes[s][a] == 1) is_new = false;
            }
            if (!is_new) continue;
            if (!certify_trial_begin(t, CERTIFY_NMSE_F32, "%s [%d, %d, %d, %d], [%d, %d, %d, %d]",
                                     name, (int)shapes[s][0], (int)shapes[s][1], (int)shapes[s][2],
                                     (int)shapes[s][3], (int)ne[0], (int)ne[1], (int)ne[2],
                                     (int)ne[3]))
                return;
            if (op == TDM_OP_DIV) t->fill = divisor_fill;
            int32_t x = tdm_build_input(t->b, "a", TDM_TYPE_F32, shapes[s]);
            int32_t y = tdm_build_input(t->b, "b", TDM_TYPE_F32, ne);
            tdm_node_spec spec = tdm_node_spec_of(op, x, y, -1, -1);
            certify_trial_end(t, tdm_build_node(t->b, &spec, NULL));
        }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "%s of views", name)) {
        int32_t x = tdm_build_permute(t->b, input(t, 6, 4, 3, 1), 1, 0, 2, 3);
        int32_t y = tdm_build_slice(t->b, input(t, 9, 8, 5, 1), (const int64_t[]){3, 1, 2, 0},
                                    (const int64_t[]){4, 6, 3, 1});
        tdm_node_spec spec = tdm_node_spec_of(op, x, y, -1, -1);
        certify_trial_end(t, tdm_build_node(t->b, &spec, NULL));
    }
}

static double pair_of(int32_t op, double x, double y) {
    switch (op) {
    case TDM_OP_ADD: return x + y;
    case TDM_OP_MUL: return x * y;
    case TDM_OP_DIV: return x / y;
    default: return NAN;
    }
}

static void pair_reference(const certify_operands *o) {
    CERTIFY_EACH(i, &o->dst[0]) {
        int64_t k[4];
        for (int a = 0; a < 4; a++) k[a] = o->src[1].ne[a] == 1 ? 0 : i[a];
        double x = certify_array_get(&o->src[0], i), y = certify_array_get(&o->src[1], k);
        certify_array_set(&o->dst[0], i, pair_of(o->node->op, x, y));
    }
}

static void add_cases(certify_trial *t) {
    pair(t, TDM_OP_ADD);
}

CERTIFY_OP(
    add, "op.add", add_cases, pair_reference,
    "op.h: ADD: \"a, b -> a + b; each ne of b equals a's or is 1 (repeated)\"; \"No op reads "
    "outside its sources or writes outside its destinations\"")

static void mul_cases(certify_trial *t) {
    pair(t, TDM_OP_MUL);
}

CERTIFY_OP(mul, "op.mul", mul_cases, pair_reference,
           "op.h: MUL: \"a, b -> a * b; shapes as in ADD\"")

/* Elements one by one. */
static void map_reference(const certify_operands *o) {
    const tdm_op_params *p = &o->node->params;
    for (int64_t i = 0; i < certify_array_count(&o->dst[0]); i++) {
        double x = o->src[0].x[i];
        switch (o->node->op) {
        case TDM_OP_SCALE: x = x * (double)p->scale.scale + (double)p->scale.bias; break;
        case TDM_OP_CLAMP: x = fmax((double)p->clamp.min, fmin((double)p->clamp.max, x)); break;
        case TDM_OP_SQRT: x = sqrt(x); break;
        case TDM_OP_ACT: x = certify_act(p->act.act, x); break;
        case TDM_OP_GLU: x = certify_act(p->act.act, x) * o->src[1].x[i]; break;
        default: x = NAN; break;
        }
        o->dst[0].x[i] = x;
    }
}

static void div_cases(certify_trial *t) {
    pair(t, TDM_OP_DIV);
}

CERTIFY_OP(div, "op.div", div_cases, pair_reference,
           "op.h: DIV: \"a, b -> a / b; shapes as in ADD\"")

static void scale_cases(certify_trial *t) {
    static const float params[][2] = {{2.5f, 0}, {0, 1.5f}, {-1, -3}, {0, 0}};
    for (int s = 0; s < N_SHAPE; s++)
        for (size_t p = 0; p < sizeof params / sizeof params[0]; p++)
            if (certify_trial_begin(t, CERTIFY_NMSE_F32, "scale by %g, bias %g of [%d, %d, %d, %d]",
                                    (double)params[p][0], (double)params[p][1], (int)shapes[s][0],
                                    (int)shapes[s][1], (int)shapes[s][2], (int)shapes[s][3])) {
                int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]);
                certify_trial_end(t, tdm_build_scale(t->b, x, params[p][0], params[p][1]));
            }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "scale of a permuted x")) {
        int32_t x = tdm_build_permute(t->b, input(t, 6, 4, 3, 1), 2, 1, 0, 3);
        certify_trial_end(t, tdm_build_scale(t->b, x, 3, 1));
    }
}

CERTIFY_OP(
    scale, "op.scale", scale_cases, map_reference,
    "op.h: SCALE: \"x -> x * scale + bias\"; \"No op reads outside its sources or writes outside "
    "its destinations\"")

static void clamp_cases(certify_trial *t) {
    static const float params[][2] = {
        {-0.5f, 0.75f}, {-INFINITY, 0}, {1, INFINITY}, {0.25f, 0.25f}};
    for (int s = 0; s < N_SHAPE; s++)
        for (size_t p = 0; p < sizeof params / sizeof params[0]; p++)
            if (certify_trial_begin(t, 0, "clamp to %g .. %g of [%d, %d, %d, %d]",
                                    (double)params[p][0], (double)params[p][1], (int)shapes[s][0],
                                    (int)shapes[s][1], (int)shapes[s][2], (int)shapes[s][3])) {
                int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]);
                certify_trial_end(t, tdm_build_clamp(t->b, x, params[p][0], params[p][1]));
            }
    if (certify_trial_begin(t, 0, "clamp of a permuted x")) {
        int32_t x = tdm_build_permute(t->b, input(t, 6, 4, 3, 1), 2, 1, 0, 3);
        certify_trial_end(t, tdm_build_clamp(t->b, x, -1, 0.5f));
    }
}

CERTIFY_OP(clamp, "op.clamp", clamp_cases, map_reference,
           "op.h: CLAMP: \"x -> min(max(x, min), max)\"")

/* Numbers >= 0, some of them 0. */
static void size_fill(certify_trial *t, certify_rig *rig) {
    float *x = (float *)(void *)rig->bytes[0];
    (void)t;
    for (size_t i = 0; i < rig->sizes[0] / sizeof *x; i++) x[i] = i % 5 == 4 ? 0 : fabsf(x[i]) * 9;
}

static void sqrt_cases(certify_trial *t) {
    for (int s = 0; s < N_SHAPE; s++)
        if (certify_trial_begin(t, CERTIFY_NMSE_F32, "sqrt of [%d, %d, %d, %d]", (int)shapes[s][0],
                                (int)shapes[s][1], (int)shapes[s][2], (int)shapes[s][3])) {
            t->fill = size_fill;
            int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]);
            certify_trial_end(t, tdm_build_sqrt(t->b, x));
        }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "sqrt of a permuted x")) {
        t->fill = size_fill;
        int32_t x = tdm_build_permute(t->b, input(t, 6, 4, 3, 1), 2, 1, 0, 3);
        certify_trial_end(t, tdm_build_sqrt(t->b, x));
    }
}

CERTIFY_OP(sqrt, "op.sqrt", sqrt_cases, map_reference, "op.h: SQRT: \"x -> sqrt(x)\"")

/* Large numbers, where an exponential overflows and the function does not. */
static void large_fill(certify_trial *t, certify_rig *rig) {
    static const float large[] = {-1e4f, -90, -30, 0, 30, 90, 1e4f};
    (void)t;
    for (int32_t i = 0; i < rig->graph->n_value; i++) {
        float *x = (float *)(void *)rig->bytes[i];
        if (tdm_graph_value(rig->graph, i)->kind != TDM_VALUE_INPUT) continue;
        for (size_t k = 0; k < rig->sizes[i] / sizeof *x; k++)
            x[k] = large[k % (sizeof large / sizeof large[0])];
    }
}

double certify_act(int32_t act, double x) {
    const double pi = 3.14159265358979323846;
    switch (act) {
    case TDM_ACT_SILU: return x / (1 + exp(-x));
    case TDM_ACT_GELU: return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
    case TDM_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case TDM_ACT_RELU: return x > 0 ? x : 0;
    case TDM_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case TDM_ACT_TANH: return tanh(x);
    case TDM_ACT_SOFTPLUS: return x > 30 ? x : log1p(exp(x));
    default: return x;
    }
}

static void act_cases(certify_trial *t) {
    for (int act = TDM_ACT_NONE; act < TDM_ACT_COUNT_; act++) {
        for (int s = 0; s < N_SHAPE; s++)
            if (certify_trial_begin(t, CERTIFY_NMSE_F32, "act %d of [%d, %d, %d, %d]", act,
                                    (int)shapes[s][0], (int)shapes[s][1], (int)shapes[s][2],
                                    (int)shapes[s][3])) {
                t->scale = 6;
                int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]);
                certify_trial_end(t, tdm_build_act(t->b, x, (tdm_act)act));
            }
        if (certify_trial_begin(t, CERTIFY_NMSE_F32, "act %d of large numbers", act)) {
            t->fill = large_fill;
            certify_trial_end(t, tdm_build_act(t->b, input(t, 35, 1, 1, 1), (tdm_act)act));
        }
    }
}

CERTIFY_OP(act, "op.act", act_cases, map_reference, "op.h: ACT: \"x -> act(x)\", tdm_act")

static void glu_cases(certify_trial *t) {
    for (int act = TDM_ACT_NONE; act < TDM_ACT_COUNT_; act++)
        for (int s = 0; s < N_SHAPE; s++)
            if (certify_trial_begin(t, CERTIFY_NMSE_F32, "glu %d of [%d, %d, %d, %d]", act,
                                    (int)shapes[s][0], (int)shapes[s][1], (int)shapes[s][2],
                                    (int)shapes[s][3])) {
                t->scale = 6;
                int32_t x = tdm_build_input(t->b, "gate", TDM_TYPE_F32, shapes[s]);
                int32_t y = tdm_build_input(t->b, "up", TDM_TYPE_F32, shapes[s]);
                certify_trial_end(t, tdm_build_glu(t->b, x, y, (tdm_act)act));
            }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "glu of the halves of a fused row")) {
        int32_t x = input(t, 24, 5, 1, 1);
        int32_t gate =
            tdm_build_slice(t->b, x, (const int64_t[]){0, 0, 0, 0}, (const int64_t[]){12, 5, 1, 1});
        int32_t up = tdm_build_slice(t->b, x, (const int64_t[]){12, 0, 0, 0},
                                     (const int64_t[]){12, 5, 1, 1});
        certify_trial_end(t, tdm_build_glu(t->b, gate, up, TDM_ACT_SILU));
    }
}

CERTIFY_OP(glu, "op.glu", glu_cases, map_reference, "op.h: GLU: \"gate, up -> act(gate) * up\"")
