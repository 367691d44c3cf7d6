/* SPDX-License-Identifier: MIT
 *
 * test_select_ops.c: the CPU plugin's ROPE, TOP_K and MOE_ROUTE against the formulas of op.h,
 * implemented here in double and without optimisation.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/op_case.h"

/* ---- RoPE ------------------------------------------------------------------------------------ */

/* op.h's formulas once more, written independently of the plugin. */
static void rope_want(const tdm_rope_params *p, const float *factor, int32_t pos, const float *x,
                      float *y, int64_t head_dim) {
    double base = p->freq_base != 0 ? (double)p->freq_base : 10000;
    double scale = p->freq_scale != 0 ? (double)p->freq_scale : 1;
    double attn = p->attn_factor != 0 ? (double)p->attn_factor : 1;
    double fast_beta = p->beta_fast != 0 ? (double)p->beta_fast : 32;
    double slow_beta = p->beta_slow != 0 ? (double)p->beta_slow : 1;
    double pi = acos(-1.0);
    memcpy(y, x, (size_t)head_dim * sizeof *y);
    if (pos == -1) return;
    for (int i = 0; i < p->n_rot / 2; i++) {
        double theta = ((double)pos + p->pos_add) * pow(base, -2.0 * i / p->n_rot);
        if (factor != NULL) theta /= (double)factor[i];
        double angle = theta * scale, mscale = attn;
        if (p->ext_factor != 0) {
            double low =
                floor(p->n_rot * log(p->n_ctx_orig / (fast_beta * 2 * pi)) / (2 * log(base)));
            double high =
                ceil(p->n_rot * log(p->n_ctx_orig / (slow_beta * 2 * pi)) / (2 * log(base)));
            if (low < 0) low = 0;
            if (high > p->n_rot - 1) high = p->n_rot - 1;
            double width = high - low > 0.001 ? high - low : 0.001;
            double r = (i - low) / width;
            r = r < 0 ? 0 : r > 1 ? 1 : r;
            double ramp = (1 - r) * (double)p->ext_factor;
            angle = theta * scale * (1 - ramp) + theta * ramp;
            mscale = attn * (1 + 0.1 * log(1 / scale));
        }
        if (p->is_inverse) angle = -angle;
        int first = p->rope_offset + (p->mode == TDM_ROPE_ADJACENT ? 2 * i : i);
        int second = first + (p->mode == TDM_ROPE_ADJACENT ? 1 : p->n_rot / 2);
        double a = (double)x[first], b = (double)x[second];
        y[first] = (float)((a * cos(angle) - b * sin(angle)) * mscale);
        y[second] = (float)((a * sin(angle) + b * cos(angle)) * mscale);
    }
}

static void rope_case(uint64_t *seed, const tdm_rope_params *p, int64_t head_dim, int64_t n_head,
                      int64_t n_tok, bool has_factor, bool is_permuted) {
    op_case c = op_case_begin("rope");
    snprintf(c.label, sizeof c.label, "rope: dim %d, n_rot %d at %d, mode %d, heads %d, tok %d%s%s",
             (int)head_dim, p->n_rot, p->rope_offset, p->mode, (int)n_head, (int)n_tok,
             has_factor ? ", factors" : "", p->ext_factor != 0 ? ", YaRN" : "");
    size_t n = (size_t)(head_dim * n_head * n_tok);
    float *x = op_random_floats(seed, n, 2.0f), *want = op_memory(n * sizeof *want), *factor = NULL;
    int32_t *pos = op_memory((size_t)n_tok * sizeof *pos);
    const int32_t some[] = {0, 1, -1, 17, 4095, 131071, 1000000};
    for (int64_t t = 0; t < n_tok; t++) pos[t] = some[(size_t)t % OP_COUNT_OF(some)];
    /* Laid out [head_dim, n_tok, n_head] and seen through a permutation, or as it is. */
    const int64_t *ne =
        is_permuted ? OP_SHAPE(head_dim, n_tok, n_head, 1) : OP_SHAPE(head_dim, n_head, n_tok, 1);
    int32_t vx = op_case_input(&c, TDM_TYPE_F32, ne, x);
    if (is_permuted) vx = tdm_build_permute(c.b, vx, 0, 2, 1, 3);
    int32_t vp = op_case_input(&c, TDM_TYPE_I32, OP_SHAPE(n_tok, 1, 1, 1), pos), vf = -1;
    if (has_factor) {
        factor = op_random_floats(seed, (size_t)p->n_rot / 2, 1.0f);
        for (int i = 0; i < p->n_rot / 2; i++) factor[i] = 1.0f + fabsf(factor[i]) * 8;
        vf = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(p->n_rot / 2, 1, 1, 1), factor);
    }
    for (int64_t t = 0; t < n_tok; t++)
        for (int64_t h = 0; h < n_head; h++)
            rope_want(p, factor, pos[t],
                      x + (is_permuted ? h * n_tok + t : t * n_head + h) * head_dim,
                      want + (t * n_head + h) * head_dim, head_dim);
    int32_t y = tdm_build_rope(c.b, vx, vp, vf, p);
    op_case_output(&c, y);
    /* The oracle's own oracle: angles of 1e6 radians to 1e-9, results to f32. */
    tdm_graph *graph = op_case_finish(&c);
    float *got = op_memory(n * sizeof *got);
    op_case_run(&c, op_reference, graph, (void *[]){got});
    double nmse = op_nmse(got, want, n);
    if (!(nmse < 1e-12)) fail_msg("%s: reference is off by NMSE %g", c.label, nmse);
    float *first = op_memory(n * sizeof *first);
    for (size_t isa = 0; isa < OP_COUNT_OF(op_isa_names); isa++)
        for (size_t t = 0; t < OP_COUNT_OF(op_thread_counts); t++) {
            if (op_fast[isa][t] == NULL) continue;
            op_case_run(&c, op_fast[isa][t], graph, (void *[]){got});
            nmse = op_nmse(got, want, n);
            if (!(nmse < 1e-12))
                fail_msg("%s: %s is off by NMSE %g", c.label, op_isa_names[isa], nmse);
            if (t == 0) memcpy(first, got, n * sizeof *got);
            assert_memory_equal(got, first, n * sizeof *got);
        }
    free(got);
    free(first);
    free(want);
    op_case_end(&c, graph);
}

static void rope_modes(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    const int64_t heads[] = {1, 3, 8};
    const int64_t toks[] = {1, 2, 7};
    const int32_t rots[][3] = {{64, 64, 0}, {64, 32, 0}, {80, 80, 0},   {96, 64, 32},   {6, 6, 0},
                               {2, 2, 0},   {10, 0, 0},  {128, 126, 2}, {1040, 1040, 0}};
    for (size_t r = 0; r < OP_COUNT_OF(rots); r++)
        for (int mode = 0; mode <= 1; mode++)
            for (size_t h = 0; h < OP_COUNT_OF(heads); h++)
                for (size_t t = 0; t < OP_COUNT_OF(toks); t++) {
                    tdm_rope_params p = {
                        .n_rot = rots[r][1], .rope_offset = rots[r][2], .mode = mode};
                    rope_case(&seed, &p, rots[r][0], heads[h], toks[t], false, (h + t) % 2 == 1);
                    p.is_inverse = 1;
                    rope_case(&seed, &p, rots[r][0], heads[h], toks[t], false, h == 1);
                    p.pos_add = t == 1 ? 5 : -127;
                    p.is_inverse = h == 1;
                    rope_case(&seed, &p, rots[r][0], heads[h], toks[t], false, h == 0);
                    if (h != 0 || p.n_rot < 4) continue;
                    p.freq_base = 500000.0f;
                    p.freq_scale = 0.25f;
                    rope_case(&seed, &p, rots[r][0], heads[h], toks[t], true, false);
                    p.ext_factor = 1.0f;
                    p.attn_factor = 1.1f;
                    p.n_ctx_orig = 4096;
                    rope_case(&seed, &p, rots[r][0], heads[h], toks[t], false, true);
                }
}

/* ---- Selection ------------------------------------------------------------------------------- */

/* Sorting by repeated search: slow and plain. */
static void top_k_want(const float *x, int64_t n, int64_t k, float *value, int32_t *id) {
    bool *is_taken = op_memory((size_t)n);
    for (int64_t j = 0; j < k; j++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            if (is_taken[i]) continue;
            if (best < 0 || x[i] > x[best] || (isnan(x[best]) && !isnan(x[i]))) best = i;
        }
        is_taken[best] = true;
        value[j] = x[best];
        id[j] = (int32_t)best;
    }
    free(is_taken);
}

static void top_k_rows(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    const int64_t ks[] = {0, 1, 2, 5, 40};
    for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
        for (size_t j = 0; j < OP_COUNT_OF(ks) + 1; j++) {
            int64_t n = op_lengths[l], k = j < OP_COUNT_OF(ks) ? ks[j] : n, n_row = 4;
            if (k > n) continue;
            op_case c = op_case_begin("top_k");
            snprintf(c.label, sizeof c.label, "top_k: %d of %d", (int)k, (int)n);
            int32_t v = op_case_floats(&c, &seed, OP_SHAPE(n, n_row, 1, 1), 4.0f), id = -1;
            float *x = c.args[0].data;
            for (int64_t i = 0; i < n; i++) {
                x[n + i] = floorf(x[n + i]); /* ties */
                if (i % 3 == 0) x[2 * n + i] = NAN;
                x[3 * n + i] = op_extremes[(size_t)i % OP_COUNT_OF(op_extremes)];
            }
            float *value = op_memory((size_t)(k * n_row) * 4);
            int32_t *ids = op_memory((size_t)(k * n_row) * 4);
            for (int64_t r = 0; r < n_row; r++)
                top_k_want(x + r * n, n, k, value + r * k, ids + r * k);
            int32_t y = tdm_build_top_k(c.b, v, (int32_t)k, 1000, &id);
            for (int64_t i = 0; i < k * n_row; i++) ids[i] += 1000;
            /* Ids first, since op_case_check compares output 0 with what it must be. */
            op_case_output(&c, id);
            op_case_output(&c, y);
            op_case_check(&c, 0, ids);
            free(value);
            free(ids);
        }
    }
}

/* op.h's rule, with a repeated search in place of sorting. Rounding could decide between close
 * choices, so logits are multiples of 1/8. */
static void route_want(const tdm_route_params *p, const float *logit, const float *bias,
                       const int32_t *given, int64_t n, int32_t *id, float *weight) {
    double score[64], choice[64], sum = 0;
    bool is_out[64] = {false};
    double max = -INFINITY;
    for (int64_t e = 0; e < n; e++) max = fmax(max, (double)logit[e]);
    for (int64_t e = 0; e < n; e++) sum += exp((double)logit[e] - max);
    for (int64_t e = 0; e < n; e++) {
        double x = (double)logit[e];
        score[e] = p->score == TDM_ROUTE_SOFTMAX         ? exp(x - max) / sum
                   : p->score == TDM_ROUTE_SIGMOID       ? 1 / (1 + exp(-x))
                   : p->score == TDM_ROUTE_SQRT_SOFTPLUS ? sqrt(log1p(exp(x)))
                                                         : x;
        choice[e] = score[e] + (bias != NULL ? (double)bias[e] : 0);
    }
    if (p->n_group > 1) {
        int64_t len = n / p->n_group;
        double rank[64];
        const bool has_two = p->score == TDM_ROUTE_SIGMOID || p->score == TDM_ROUTE_SQRT_SOFTPLUS;
        for (int g = 0; g < p->n_group; g++) {
            double best = -INFINITY, second = -INFINITY;
            for (int64_t e = g * len; e < (g + 1) * len; e++) {
                if (choice[e] > best)
                    second = best, best = choice[e];
                else if (choice[e] > second)
                    second = choice[e];
            }
            rank[g] = has_two && len > 1 ? best + second : best;
        }
        for (int64_t e = 0; e < n; e++) is_out[e] = true;
        for (int u = 0; u < p->n_group_used; u++) {
            int best = 0;
            for (int g = 0; g < p->n_group; g++)
                if (rank[g] > rank[best]) best = g;
            for (int64_t e = best * len; e < (best + 1) * len; e++) is_out[e] = false;
            rank[best] = -INFINITY;
        }
    }
    double total = 0;
    for (int u = 0; u < p->n_used; u++) {
        int64_t best = -1;
        if (given != NULL) {
            const bool is_there = given[u] >= 0 && given[u] < n;
            id[u] = is_there ? given[u] : -1;
            weight[u] = is_there ? (float)score[given[u]] : 0;
            continue;
        }
        for (int64_t e = 0; e < n; e++)
            if (!is_out[e] && (best < 0 || choice[e] > choice[best])) best = e;
        is_out[best] = true;
        id[u] = (int32_t)best;
        weight[u] = (float)score[best];
    }
    if (p->score == TDM_ROUTE_TOP_SOFTMAX) {
        double top = 0; /* logits are small */
        for (int u = 0; u < p->n_used; u++) top += id[u] >= 0 ? exp((double)logit[id[u]]) : 0;
        for (int u = 0; u < p->n_used; u++)
            weight[u] = id[u] >= 0 ? (float)(exp((double)logit[id[u]]) / top) : 0;
    }
    for (int u = 0; u < p->n_used; u++) total += (double)weight[u];
    for (int u = 0; u < p->n_used; u++)
        weight[u] = (float)((double)weight[u] / (p->normalize && total != 0 ? total : 1) *
                            (p->scale != 0 ? (double)p->scale : 1));
}

static void route_scorings(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (int score = 0; score <= TDM_ROUTE_SQRT_SOFTPLUS; score++) {
        for (int variant = 0; variant < 18; variant++) {
            const int64_t n = variant % 3 == 0 ? 8 : variant % 3 == 1 ? 60 : 5, n_tok = 9;
            const bool is_given = variant >= 12;
            bool has_bias = variant % 2 == 1 && !is_given && score != TDM_ROUTE_TOP_SOFTMAX;
            tdm_route_params p = {.n_used = variant % 3 == 2 ? 5 : 3,
                                  .score = score,
                                  .normalize = variant / 2 % 2,
                                  .scale = variant >= 6 ? 2.5f : 0};
            if (variant >= 3 && !is_given && n % 4 == 0) {
                p.n_group = 4;
                p.n_group_used = 2;
            }
            op_case c = op_case_begin("route");
            snprintf(c.label, sizeof c.label, "route: score %d, variant %d", score, variant);
            int32_t v = op_case_floats(&c, &seed, OP_SHAPE(n, n_tok, 1, 1), 4.0f), vb = -1,
                    weight = -1;
            float *x = c.args[0].data, *bias = NULL;
            for (int64_t i = 0; i < n * n_tok; i++) x[i] = floorf(x[i] * 8) / 8;
            if (has_bias) {
                bias = op_random_floats(&seed, (size_t)n, 1.0f);
                vb = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(n, 1, 1, 1), bias);
            }
            int32_t *given = NULL, vg = -1;
            if (is_given) { /* one token has none that there is */
                given = op_memory((size_t)(p.n_used * n_tok) * sizeof *given);
                for (int64_t i = 0; i < p.n_used * n_tok; i++) {
                    given[i] = (int32_t)(op_random_next(&seed) % (uint64_t)(n + 2)) - 1;
                    if (i / p.n_used == 2) given[i] = (int32_t)n;
                }
                vg = op_case_input(&c, TDM_TYPE_I32, OP_SHAPE(p.n_used, n_tok, 1, 1), given);
            }
            int32_t *ids = op_memory((size_t)(p.n_used * n_tok) * 4);
            float *weights = op_memory((size_t)(p.n_used * n_tok) * 4);
            for (int64_t t = 0; t < n_tok; t++)
                route_want(&p, x + t * n, bias, given != NULL ? given + t * p.n_used : NULL, n,
                           ids + t * p.n_used, weights + t * p.n_used);
            int32_t id = is_given ? tdm_build_moe_route_given(c.b, v, vg, &p, &weight)
                                  : tdm_build_moe_route(c.b, v, vb, &p, &weight);
            op_case_output(&c, id);
            op_case_output(&c, weight);
            tdm_graph *graph = op_case_finish(&c);
            int32_t *got_id = op_memory((size_t)(p.n_used * n_tok) * 4);
            float *got = op_memory((size_t)(p.n_used * n_tok) * 4);
            for (size_t isa = 0; isa < OP_COUNT_OF(op_isa_names); isa++)
                for (size_t t = 0; t < OP_COUNT_OF(op_thread_counts); t++) {
                    if (op_fast[isa][t] == NULL) continue;
                    op_case_run(&c, op_fast[isa][t], graph, (void *[]){got_id, got});
                    for (int64_t i = 0; i < p.n_used * n_tok; i++)
                        if (got_id[i] != ids[i])
                            fail_msg("%s: %s chooses %d at %d, not %d", c.label, op_isa_names[isa],
                                     got_id[i], (int)i, ids[i]);
                    double nmse = op_nmse(got, weights, (size_t)(p.n_used * n_tok));
                    if (!(nmse < 1e-12)) fail_msg("%s: weights off by NMSE %g", c.label, nmse);
                }
            free(ids);
            free(weights);
            free(got_id);
            free(got);
            op_case_end(&c, graph);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rope_modes),
        cmocka_unit_test(top_k_rows),
        cmocka_unit_test(route_scorings),
    };
    return cmocka_run_group_tests(tests, op_rigs_open, op_rigs_close);
}
