/* SPDX-License-Identifier: MIT
 *
 * rope.c: ROPE, and the angles and turns that KV_SHIFT shares with it. The formulas are at
 * tdm_rope_params in op.h; angles are computed in double, so that position 1000000 is as exact as
 * position 1.
 */
#include <math.h>

#include "plugins/cpu/ops/rope.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

/* What follows from a node's parameters, for all positions. */
typedef struct rope_plan {
    double freq_step; /* frequency of pair i + 1 by that of pair i */
    double freq_scale;
    double ext_factor;
    double low, width; /* of YaRN's ramp, in pairs */
    double mscale;
} rope_plan;

#define TWO_PI 6.28318530717958648

static double or_default(float value, double otherwise) {
    return value != 0.0f ? (double)value : otherwise;
}

/* The pair whose wave turns `beta` times over the context of training: d(beta). */
static double yarn_pair(const tdm_rope_params *p, double base, double beta) {
    return p->n_rot * log(p->n_ctx_orig / (beta * TWO_PI)) / (2.0 * log(base));
}

static rope_plan rope_plan_make(const tdm_rope_params *p) {
    double base = or_default(p->freq_base, 10000.0);
    rope_plan plan = {
        .freq_step = pow(base, -2.0 / p->n_rot),
        .freq_scale = or_default(p->freq_scale, 1.0),
        .ext_factor = (double)p->ext_factor,
        .mscale = or_default(p->attn_factor, 1.0),
    };
    if (plan.ext_factor != 0.0) {
        plan.low = fmax(0.0, floor(yarn_pair(p, base, or_default(p->beta_fast, 32.0))));
        double high = fmin(p->n_rot - 1, ceil(yarn_pair(p, base, or_default(p->beta_slow, 1.0))));
        plan.width = fmax(0.001, high - plan.low);
        plan.mscale *= 1.0 + 0.1 * log(1.0 / plan.freq_scale);
    }
    return plan;
}

/* Radians per position of pair i, given freq_step^i. */
static double pair_speed(const rope_plan *plan, const cpu_view *factor, int64_t i, double freq) {
    double theta = freq;
    if (factor->data != NULL) theta /= (double)cpu_f32_at(factor->data, i, factor->nb[0]);
    double turned = theta * plan->freq_scale;
    if (plan->ext_factor == 0.0) return turned;
    double r = fmin(fmax(((double)i - plan->low) / plan->width, 0.0), 1.0);
    double ramp = (1.0 - r) * plan->ext_factor;
    return turned * (1.0 - ramp) + theta * ramp;
}

void cpu_rope_angles(const tdm_rope_params *params, const cpu_view *factor, int32_t pos,
                     bool with_mscale, float *cos_out, float *sin_out) {
    if (params->n_rot == 0) return;
    rope_plan plan = rope_plan_make(params);
    double freq = 1.0, mscale = with_mscale ? plan.mscale : 1.0;
    for (int64_t i = 0; i < params->n_rot / 2; i++, freq *= plan.freq_step) {
        double angle = pos * pair_speed(&plan, factor, i, freq);
        cos_out[i] = (float)(cos(angle) * mscale);
        sin_out[i] = (float)(sin(angle) * mscale);
    }
}

/* ---- Plain kernels --------------------------------------------------------------------------- */

static void adjacent_plain(const float *x, float *y, const float *cos_row, const float *sin_row,
                           int64_t n_pair) {
    for (int64_t i = 0; i < n_pair; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * cos_row[i] - b * sin_row[i];
        y[2 * i + 1] = a * sin_row[i] + b * cos_row[i];
    }
}

static void halves_plain(const float *x, float *y, int64_t half, const float *cos_row,
                         const float *sin_row, int64_t n_pair) {
    for (int64_t i = 0; i < n_pair; i++) {
        float a = x[i], b = x[i + half];
        y[i] = a * cos_row[i] - b * sin_row[i];
        y[i + half] = a * sin_row[i] + b * cos_row[i];
    }
}

static const cpu_rope_kernels rope_plain = {0, "plain", adjacent_plain, halves_plain};

/* The best first. */
static const cpu_rope_kernels *const rope_table[] = {
#if defined(__x86_64__)
    &cpu_rope_avx512,
    &cpu_rope_avx2,
#elif defined(__aarch64__)
    &cpu_rope_neon,
#endif
    &rope_plain,
};

static const cpu_rope_kernels *rope_pick(uint32_t isa) {
    const cpu_rope_kernels *const *row = rope_table;
    while (((*row)->isa & ~isa) != 0) row++;
    return *row;
}

void cpu_rope_turn(const tdm_rope_params *params, const float *cos_row, const float *sin_row,
                   float *x) {
    float *first = x + params->rope_offset;
    if (params->mode == TDM_ROPE_ADJACENT)
        adjacent_plain(first, first, cos_row, sin_row, params->n_rot / 2);
    else
        halves_plain(first, first, params->n_rot / 2, cos_row, sin_row, params->n_rot / 2);
}

/* ---- Angles ---------------------------------------------------------------------------------- */

/* Prepared positions and factors: for each position a row of a flag (1; 0 for position -1, which is
 * not turned), then the cosines, then the sines of the angles of all pairs, times mscale. */
enum { FLAG_LEN = 16 /* floats: what follows is aligned */ };

static int64_t row_len(const tdm_rope_params *p) {
    return (FLAG_LEN + p->n_rot + 15) / 16 * 16;
}

static void angles_run(const cpu_node *n, cpu_worker *w) {
    const tdm_rope_params *p = &n->node->params.rope;
    const cpu_view *pos_view = &n->src[1], *factor = &n->src[2];
    int64_t n_pair = p->n_rot / 2;
    rope_plan plan = rope_plan_make(p);
    cpu_tile t = cpu_tile_share(n, w, n->src[0].ne[2], n_pair);
    if (t.col_first >= t.col_last) return;
    for (int64_t tok = t.row_first; tok < t.row_last; tok++) {
        float *row = (float *)(void *)n->prepared + tok * row_len(p);
        int32_t pos = cpu_i32_at(pos_view->data, tok, pos_view->nb[0]);
        double freq = 1.0, at = ((double)pos + p->pos_add) * (p->is_inverse ? -1 : 1);
        if (t.col_first == 0) row[0] = pos != -1;
        for (int64_t i = 0; i < t.col_last; i++, freq *= plan.freq_step) {
            if (i < t.col_first) continue;
            double angle = at * pair_speed(&plan, factor, i, freq);
            row[FLAG_LEN + i] = (float)(cos(angle) * plan.mscale);
            row[FLAG_LEN + n_pair + i] = (float)(sin(angle) * plan.mscale);
        }
    }
}

static const cpu_op_impl angles_make = {.run = angles_run};

static bool angles_are_same(const cpu_node *a, const cpu_node *b) {
    tdm_rope_params p = a->node->params.rope, q = b->node->params.rope;
    p.mode = q.mode = 0; /* how pairs are formed and where they lie does not change their angles */
    p.rope_offset = q.rope_offset = 0;
    return memcmp(&p, &q, sizeof p) == 0;
}

static cpu_prepared rope_prepared(const cpu_node *n) {
    const tdm_rope_params *p = &n->node->params.rope;
    int64_t n_row = p->n_rot > 0 ? n->src[0].ne[2] : 0;
    return (cpu_prepared){
        .maker = &angles_make,
        .made_of = 1u << 1 | 1u << 2,
        .is_same = angles_are_same,
        .size = (size_t)(n_row * row_len(p)) * sizeof(float),
    };
}

/* ---- Running --------------------------------------------------------------------------------- */

/* Turns the elements of one head. kernels NULL: in double. */
static void head_turn(const cpu_node *n, const cpu_rope_kernels *kernels, const float *cos_row,
                      const uint8_t *x, float *y) {
    const tdm_rope_params *p = &n->node->params.rope;
    int64_t nb = n->src[0].nb[0], half = p->n_rot / 2, at = p->rope_offset;
    const float *sin_row = cos_row + half;
    bool is_adjacent = p->mode == TDM_ROPE_ADJACENT;
    if (kernels != NULL && nb == sizeof(float)) {
        const float *from = (const float *)(const void *)x + at;
        if (is_adjacent)
            kernels->adjacent(from, y + at, cos_row, sin_row, half);
        else
            kernels->halves(from, y + at, half, cos_row, sin_row, half);
        return;
    }
    for (int64_t i = 0; i < half; i++) {
        int64_t first = at + (is_adjacent ? 2 * i : i);
        int64_t second = first + (is_adjacent ? 1 : half);
        double a = (double)cpu_f32_at(x, first, nb), b = (double)cpu_f32_at(x, second, nb);
        double c = (double)cos_row[i], s = (double)sin_row[i];
        y[first] = (float)(a * c - b * s);
        y[second] = (float)(a * s + b * c);
    }
}

/* Copies elements first .. last-1 of a head. */
static void head_copy(const cpu_view *x, const uint8_t *from, float *y, int64_t first,
                      int64_t last) {
    if (x->nb[0] == sizeof(float)) {
        if (last > first)
            memcpy(y + first, from + first * x->nb[0], (size_t)(last - first) * sizeof(float));
        return;
    }
    for (int64_t i = first; i < last; i++) y[i] = cpu_f32_at(from, i, x->nb[0]);
}

/* Heads head_first .. head_last-1 of one token. */
static void token_turn(const cpu_node *n, const cpu_rope_kernels *kernels, int64_t tok,
                       int64_t head_first, int64_t head_last) {
    const cpu_view *x = &n->src[0], *y = &n->dst[0];
    const tdm_rope_params *p = &n->node->params.rope;
    const float *row = NULL;
    if (n->prepared != NULL) row = (const float *)(void *)n->prepared + tok % x->ne[2] * row_len(p);
    bool is_turned = row != NULL && row[0] != 0.0f;
    const uint8_t *px = x->data + tok % x->ne[2] * x->nb[2] + tok / x->ne[2] * x->nb[3];
    uint8_t *py = y->data + tok % x->ne[2] * y->nb[2] + tok / x->ne[2] * y->nb[3];
    for (int64_t h = head_first; h < head_last; h++) {
        const uint8_t *from = px + h * x->nb[1];
        float *to = (void *)(py + h * y->nb[1]);
        head_copy(x, from, to, 0, is_turned ? p->rope_offset : x->ne[0]);
        if (!is_turned) continue;
        head_copy(x, from, to, p->rope_offset + p->n_rot, x->ne[0]);
        head_turn(n, kernels, row + FLAG_LEN, from, to);
    }
}

static void rope_tokens(const cpu_node *n, cpu_worker *w, const cpu_rope_kernels *kernels) {
    const cpu_view *x = &n->src[0];
    int64_t n_tok = x->ne[2] * x->ne[3];
    int64_t tok_first = 0, tok_last = n_tok, head_first = 0, head_last = x->ne[1];
    if (x->ne[0] == 0) return;
    if (n_tok >= w->nth)
        cpu_worker_share(w, n_tok, 1, &tok_first, &tok_last);
    else
        cpu_worker_share(w, x->ne[1], 1, &head_first, &head_last);
    for (int64_t tok = tok_first; tok < tok_last; tok++)
        token_turn(n, kernels, tok, head_first, head_last);
}

static int64_t rope_share_unit(const cpu_node *n, int32_t arg) {
    const cpu_view *x = &n->src[0];
    if (arg != TDM_MAX_SRC && (arg != 0 || !cpu_view_is_dense(x))) return 0;
    if (x->ne[2] * x->ne[3] >= n->device->n_thread) return x->ne[0] * x->ne[1];
    return x->ne[2] * x->ne[3] == 1 ? x->ne[0] : 0;
}

static void rope_run(const cpu_node *n, cpu_worker *w) {
    rope_tokens(n, w, rope_pick(n->device->isa));
}

static void rope_run_reference(const cpu_node *n, cpu_worker *w) {
    rope_tokens(n, w, NULL);
}

const cpu_op_impl cpu_op_rope = {.prepared = rope_prepared,
                                 .share_unit = rope_share_unit,
                                 .run = rope_run,
                                 .run_reference = rope_run_reference};
