/* SPDX-License-Identifier: MIT
 *
 * test_shapes.c: ops of a GPU plugin on shapes that the small cases of tests/kernels do not reach:
 * rows as long as a vocabulary, more rows than a grid is wide, selections of many, every half
 * float, several ops in one plan. The CPU's reference path is the oracle.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/op_case.h"

#define BOUND_F32 1e-10 /* as certify's, of elementwise and row ops */

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef enum row_op { SOFTMAX, RMS_NORM, LAYER_NORM, SUM_SQ, RMS_APPLY, N_ROW_OP } row_op;

static int32_t row_node(op_case *c, uint64_t *seed, row_op op, int32_t x, const int64_t *ne) {
    const int64_t *columns = OP_SHAPE(ne[0], 1, 1, 1);
    int32_t weight = op != SOFTMAX && op != SUM_SQ ? op_case_floats(c, seed, columns, 2) : -1;
    switch (op) {
    case SOFTMAX: return tdm_build_softmax(c->b, x);
    case RMS_NORM: return tdm_build_rms_norm(c->b, x, weight, 1e-5f);
    case LAYER_NORM:
        return tdm_build_layer_norm(c->b, x, weight, op_case_floats(c, seed, columns, 2), 1e-5f);
    case SUM_SQ: return tdm_build_sum_sq(c->b, x);
    default: {
        int32_t sum = op_case_floats(c, seed, OP_SHAPE(1, ne[1], ne[2], ne[3]), 1);
        float *sums = c->args[c->n_arg - 1].data;
        for (int64_t i = 0; i < tdm_shape_rows(ne); i++) sums[i] = fabsf(sums[i]) * (float)ne[0];
        return tdm_build_rms_apply(c->b, x, sum, weight, 1e-5f, 0);
    }
    }
}

static void rows_of_all_lengths(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    static const int64_t shapes[][2] = {{1, 3},    {2, 2},     {127, 3},   {128, 2},    {1023, 2},
                                        {4097, 2}, {16384, 3}, {65537, 1}, {300001, 2}, {3, 70001}};
    for (size_t s = 0; s < OP_COUNT_OF(shapes); s++)
        for (row_op op = SOFTMAX; op < N_ROW_OP; op++) {
            const int64_t *ne = OP_SHAPE(shapes[s][0], shapes[s][1], 1, 1);
            op_case c = op_case_begin("rows");
            snprintf(c.label, sizeof c.label, "row op %d of [%d, %d]", (int)op, (int)ne[0],
                     (int)ne[1]);
            int32_t x = op_case_floats(&c, &seed, ne, 6);
            op_case_output(&c, row_node(&c, &seed, op, x, ne));
            op_case_check(&c, BOUND_F32, NULL);
        }
}

/* Rows whose elements do not lie one after the other, or do not begin where the last row ends. */
static void rows_of_views(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (int view = 0; view < 3; view++)
        for (row_op op = SOFTMAX; op < N_ROW_OP; op++) {
            const int64_t *ne = OP_SHAPE(37, 5, 3, 2);
            op_case c = op_case_begin("rows of views");
            int32_t x = -1;
            snprintf(c.label, sizeof c.label, "row op %d of view %d", (int)op, view);
            if (view == 0) {
                x = op_case_floats(&c, &seed, OP_SHAPE(3, 37, 2, 5), 6);
                x = tdm_build_permute(c.b, x, 2, 0, 3, 1);
            } else if (view == 1) {
                x = op_case_floats(&c, &seed, OP_SHAPE(41, 7, 3, 3), 6);
                x = tdm_build_slice(c.b, x, OP_SHAPE(3, 1, 0, 1), ne);
            } else {
                x = op_case_floats(&c, &seed, OP_SHAPE(38, 3, 5, 2), 6);
                x = tdm_build_permute(c.b, x, 0, 2, 1, 3);
                x = tdm_build_slice(c.b, x, OP_SHAPE(1, 0, 0, 0), ne);
            }
            op_case_output(&c, row_node(&c, &seed, op, x, ne));
            op_case_check(&c, BOUND_F32, NULL);
        }
}

/* Rows of numbers that break softmax and norms. */
static void rows_of_extremes(void **state) {
    (void)state;
    const float kinds[][4] = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                              {-INFINITY, 3, -INFINITY, 2},
                              {NAN, 1, 2, 3},
                              {INFINITY, 1, 2, 3},
                              {1e4f, 1e4f, 1.0001e4f, 9990},
                              {-3e38f, -3e38f, -1e38f, -2e38f}};
    for (int64_t n = 4; n <= 2500; n = n * 5 - 1) {
        const int64_t n_kind = OP_COUNT_OF(kinds);
        op_case c = op_case_begin("softmax of extremes");
        float *x = op_memory((size_t)(n * n_kind) * sizeof *x);
        for (int64_t r = 0; r < n_kind; r++)
            for (int64_t i = 0; i < n; i++) x[r * n + i] = kinds[r][i % 4];
        int32_t v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(n, n_kind, 1, 1), x);
        op_case_output(&c, tdm_build_softmax(c.b, v));
        op_case_check(&c, BOUND_F32, NULL);
    }
}

/* Squares that f32 does not hold. */
static void norms_of_extreme_sizes(void **state) {
    (void)state;
    static const float sizes[] = {1e-25f, 1e-12f, 1, 1e15f, 1e25f, 3e37f};
    static const float epsilons[] = {0, 1e-30f, 1e-5f};
    uint64_t seed = OP_SEED;
    for (size_t e = 0; e < OP_COUNT_OF(epsilons); e++)
        for (size_t s = 0; s < OP_COUNT_OF(sizes); s++) {
            op_case c = op_case_begin("norm of extreme sizes");
            snprintf(c.label, sizeof c.label, "rms_norm of %g, eps %g", (double)sizes[s],
                     (double)epsilons[e]);
            int32_t x = op_case_floats(&c, &seed, OP_SHAPE(777, 2, 1, 1), sizes[s]);
            op_case_output(&c, tdm_build_rms_norm(c.b, x, -1, epsilons[e]));
            op_case_check(&c, BOUND_F32, NULL);
        }
}

/* ---- Selection ------------------------------------------------------------------------------- */

typedef enum fill_kind { RANDOM, TIES, SPECIALS, DESCENDING, ASCENDING, N_FILL } fill_kind;

static void selection_fill(float *x, int64_t n, fill_kind kind) {
    for (int64_t i = 0; i < n; i++) {
        if (kind == TIES) x[i] = (float)(i * 7 % 5);
        if (kind == SPECIALS) x[i] = op_extremes[(size_t)(i * 11) % OP_COUNT_OF(op_extremes)];
        if (kind == DESCENDING) x[i] = -(float)i;
        if (kind == ASCENDING) x[i] = (float)i;
    }
}

static void top_k_case(uint64_t *seed, int64_t n, int64_t n_row, int64_t k, fill_kind kind,
                       bool is_permuted) {
    op_case c = op_case_begin("top_k");
    int32_t id;
    snprintf(c.label, sizeof c.label, "top_k %d of [%d, %d], fill %d%s", (int)k, (int)n, (int)n_row,
             (int)kind, is_permuted ? ", permuted" : "");
    const int64_t *ne = is_permuted ? OP_SHAPE(n_row, n, 1, 1) : OP_SHAPE(n, n_row, 1, 1);
    int32_t x = op_case_floats(&c, seed, ne, 9);
    selection_fill(c.args[0].data, n * n_row, kind);
    if (is_permuted) x = tdm_build_permute(c.b, x, 1, 0, 2, 3);
    op_case_output(&c, tdm_build_top_k(c.b, x, (int32_t)k, 7, &id));
    op_case_output(&c, id);
    op_case_check(&c, 0, NULL);
}

static void top_k_of_long_rows(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    static const int64_t lengths[] = {1, 63, 1000, 1025, 8193, 100003};
    static const int64_t counts[] = {1, 2, 40, 63, 64, 255, 256, 257, 1000, 5000};
    for (size_t l = 0; l < OP_COUNT_OF(lengths); l++)
        for (size_t k = 0; k < OP_COUNT_OF(counts); k++) {
            fill_kind kind = (fill_kind)((l + k) % N_FILL);
            if (counts[k] <= lengths[l])
                top_k_case(&seed, lengths[l], 3, counts[k], kind, (l + k) % 4 == 3);
        }
    for (fill_kind kind = RANDOM; kind < N_FILL; kind++) {
        top_k_case(&seed, 1025, 2, 1025, kind, false); /* all of them */
        top_k_case(&seed, 128256, 1, 40, kind, false);
        top_k_case(&seed, 20000, 3, 1, kind, false);
    }
    top_k_case(&seed, 300001, 1, 300001, TIES, false);
    top_k_case(&seed, 9, 70001, 2, TIES, false); /* more rows than a grid is wide */
}

/* Logits are multiples of 1/8, so that rounding does not decide; some rows have NaN or -inf. */
static void routes_of_many_experts(void **state) {
    (void)state;
    static const int32_t experts[] = {1, 33, 64, 128, 256, 512, 1024};
    uint64_t seed = OP_SEED;
    for (size_t i = 0; i < OP_COUNT_OF(experts); i++)
        for (int32_t score = 0; score <= TDM_ROUTE_SQRT_SOFTPLUS; score++)
            for (int variant = 0; variant < 4; variant++) {
                int32_t n = experts[i], weight;
                tdm_route_params p = {.n_used = n < 8 ? n : 8, .score = score, .scale = 1.5f};
                p.normalize = variant & 1;
                if (variant >= 2 && n % 8 == 0) p.n_group = 8, p.n_group_used = 3;
                op_case c = op_case_begin("route");
                snprintf(c.label, sizeof c.label, "route of %d, score %d, variant %d", (int)n,
                         (int)score, variant);
                float *x = op_memory((size_t)n * 6 * sizeof *x);
                for (int64_t k = 0; k < n * 6; k++) {
                    x[k] = (float)((int64_t)(op_random_next(&seed) % 129) - 64) / 8;
                    if (k / n == 4 && k % 5 == 0) x[k] = -INFINITY;
                    if (k / n == 5) x[k] = k % 3 == 0 ? NAN : 1;
                }
                int32_t v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(n, 6, 1, 1), x);
                op_case_output(&c, tdm_build_moe_route(c.b, v, -1, &p, &weight));
                op_case_output(&c, weight);
                tdm_graph *graph = op_case_finish(&c);
                size_t count = c.out_count[0];
                int32_t *want_id = op_memory(count * 4), *id = op_memory(count * 4);
                float *want = op_memory(count * 4), *got = op_memory(count * 4);
                op_case_run(&c, op_reference, graph, (void *[]){want_id, want});
                if (op_fast[0][0] != NULL) {
                    op_case_run(&c, op_fast[0][0], graph, (void *[]){id, got});
                    for (size_t k = 0; k < count; k++)
                        if (id[k] != want_id[k])
                            fail_msg("%s: expert %d at %d, not %d", c.label, (int)id[k], (int)k,
                                     (int)want_id[k]);
                    if (!(op_nmse(got, want, count) <= BOUND_F32))
                        fail_msg("%s: weights differ by NMSE %g", c.label,
                                 op_nmse(got, want, count));
                }
                free(want_id), free(id), free(want), free(got);
                op_case_end(&c, graph);
            }
}

/* ---- Attention's parts ----------------------------------------------------------------------- */

static void merges_of_parts(void **state) {
    (void)state;
    static const int64_t sizes[][4] = {
        {64, 4, 3, 2}, {33, 2, 1, 5}, {128, 32, 1, 17}, {8, 3, 7, 300}, {5, 2, 3, 1}};
    uint64_t seed = OP_SEED;
    for (size_t s = 0; s < OP_COUNT_OF(sizes); s++) {
        const int64_t *ne = sizes[s];
        op_case c = op_case_begin("lse_merge");
        int32_t o = op_case_floats(&c, &seed, ne, 2);
        int32_t ml = op_case_floats(&c, &seed, OP_SHAPE(2, ne[1], ne[2], ne[3]), 9);
        float *x = c.args[1].data;
        int64_t n = ne[1] * ne[2], n_part = ne[3];
        snprintf(c.label, sizeof c.label, "lse_merge of %d parts", (int)n_part);
        for (int64_t i = 0; i < n * n_part; i++) {
            bool is_empty = i % n == 0 || (i * 5 + 3) % 7 == 0; /* row 0 is empty in all parts */
            x[2 * i] = is_empty ? -INFINITY : x[2 * i];
            x[2 * i + 1] = is_empty ? 0 : 1 + fabsf(x[2 * i + 1]);
            for (int64_t k = 0; is_empty && k < ne[0]; k++)
                ((float *)c.args[0].data)[i * ne[0] + k] = 0;
        }
        op_case_output(&c, tdm_build_lse_merge(c.b, o, ml));
        op_case_check(&c, BOUND_F32, NULL);
    }
}

/* ---- Conversions ----------------------------------------------------------------------------- */

/* Every f16 and bf16 to f32; f32 of random bits, and all that lie beside a half, to both. */
static void conversions_of_all_halves(void **state) {
    (void)state;
    enum { N = 65536 };
    const tdm_type halves[] = {TDM_TYPE_F16, TDM_TYPE_BF16};
    uint64_t seed = OP_SEED;
    for (int t = 0; t < 2; t++) {
        op_case c = op_case_begin(t == 0 ? "all f16" : "all bf16");
        uint16_t *all = op_memory(N * sizeof *all);
        for (int i = 0; i < N; i++) all[i] = (uint16_t)i;
        int32_t v = op_case_input(&c, halves[t], OP_SHAPE(N, 1, 1, 1), all);
        op_case_output(&c, tdm_build_copy(c.b, v, TDM_TYPE_F32));
        op_case_check(&c, 0, NULL);

        c = op_case_begin(t == 0 ? "f32 to f16" : "f32 to bf16");
        uint32_t *bits = op_memory(4 * N * sizeof *bits);
        for (uint32_t i = 0; i < 4 * N; i++) {
            bits[i] = (uint32_t)op_random_next(&seed);
            /* Around the middle between two halves, with an exponent that f16 has. */
            if (i % 2 == 0) bits[i] = (bits[i] & 0x80ffe000u) + (100u << 23) + 0xfffu + i / 2 % 3;
        }
        v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(4 * N, 1, 1, 1), bits);
        int32_t half = tdm_build_copy(c.b, v, halves[t]);
        op_case_output(&c, tdm_build_copy(c.b, half, TDM_TYPE_F32));
        op_case_check(&c, 0, NULL);
    }
}

/* ---- A plan of several ops ------------------------------------------------------------------- */

/* Two heads' worth of RoPE on the same positions, which share their angles, and one on others; a
 * residual; temporaries that take each other's place. */
static void plan_of_several(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    const int64_t *ne = OP_SHAPE(64, 3, 9, 1);
    const tdm_rope_params p = {.n_rot = 64, .mode = TDM_ROPE_HALVES};
    tdm_rope_params slow = p;
    slow.freq_base = 1e6f;
    op_case c = op_case_begin("several ops");
    int32_t *pos = op_memory(9 * 4), *other = op_memory(9 * 4);
    for (int32_t i = 0; i < 9; i++) pos[i] = i * 1000 - 1, other[i] = 77 * i;
    int32_t x = op_case_floats(&c, &seed, ne, 3);
    int32_t y = op_case_floats(&c, &seed, ne, 3);
    int32_t at = op_case_input(&c, TDM_TYPE_I32, OP_SHAPE(9, 1, 1, 1), pos);
    int32_t at_other = op_case_input(&c, TDM_TYPE_I32, OP_SHAPE(9, 1, 1, 1), other);
    for (int layer = 0; layer < 4; layer++) {
        int32_t q = tdm_build_rope(c.b, tdm_build_rms_norm(c.b, x, -1, 1e-6f), at, -1, &p);
        int32_t k = tdm_build_rope(c.b, tdm_build_rms_norm(c.b, y, -1, 1e-6f), at, -1, &p);
        int32_t s = tdm_build_rope(c.b, y, layer % 2 ? at : at_other, -1, layer % 3 ? &p : &slow);
        x = tdm_build_add(c.b, x, tdm_build_glu(c.b, q, s, TDM_ACT_SILU));
        y = tdm_build_softmax(c.b, tdm_build_concat(c.b, k, s, 0));
        y = tdm_build_add(c.b, tdm_build_slice(c.b, y, OP_SHAPE(32, 0, 0, 0), ne), x);
    }
    op_case_output(&c, x);
    op_case_output(&c, y);
    op_case_check(&c, BOUND_F32, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_all_lengths), cmocka_unit_test(rows_of_views),
        cmocka_unit_test(rows_of_extremes),    cmocka_unit_test(norms_of_extreme_sizes),
        cmocka_unit_test(top_k_of_long_rows),  cmocka_unit_test(routes_of_many_experts),
        cmocka_unit_test(merges_of_parts),     cmocka_unit_test(conversions_of_all_halves),
        cmocka_unit_test(plan_of_several),
    };
    return cmocka_run_group_tests(tests, op_rigs_open, op_rigs_close);
}
