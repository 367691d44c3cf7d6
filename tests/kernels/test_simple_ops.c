/* SPDX-License-Identifier: MIT
 *
 * test_simple_ops.c: the CPU plugin's copies, rows, arithmetic and norms. An op that rounds is
 * compared with the reference path; an exact op with results that this file lists.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/kernels/op_case.h"

/* ---- Copies ---------------------------------------------------------------------------------- */

static void copy_types(void **state) {
    (void)state;
    const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16};
    uint64_t seed = OP_SEED;
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
                int64_t n = op_lengths[l];
                op_case c = op_case_begin("copy");
                float *x = op_random_floats(&seed, (size_t)n * 3, 100.0f);
                for (size_t i = 0; i < OP_COUNT_OF(op_extremes) && i < (size_t)n * 3; i++)
                    x[i] = op_extremes[i];
                uint8_t *from = op_memory((size_t)n * 3 * 4), *want = op_memory((size_t)n * 3 * 4);
                float *through = op_memory((size_t)n * 3 * 4);
                tdm_row_quantize(types[a], x, from, n * 3, NULL);
                tdm_row_dequantize(types[a], from, through, n * 3);
                tdm_row_quantize(types[b], through, want, n * 3, NULL);
                int32_t v = op_case_input(&c, types[a], OP_SHAPE(n, 3, 1, 1), from);
                /* Back to f32, so that every output has 4-byte elements; what that loses was
                 * lost before. */
                int32_t y = tdm_build_copy(c.b, v, types[b]);
                if (types[b] != TDM_TYPE_F32) y = tdm_build_copy(c.b, y, TDM_TYPE_F32);
                op_case_output(&c, y);
                tdm_row_dequantize(types[b], want, through, n * 3);
                op_case_check(&c, 0, through);
                free(x);
                free(want);
                free(through);
            }
        }
    }
}

/* Element i of a permuted, sliced i32 tensor, written out. */
static void copy_views(void **state) {
    (void)state;
    const int perms[][4] = {{0, 1, 2, 3}, {1, 0, 2, 3}, {2, 0, 1, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}};
    const int64_t ne[4] = {5, 4, 3, 2}, off[4] = {1, 0, 1, 0}, part[4] = {3, 4, 2, 1};
    for (size_t p = 0; p < OP_COUNT_OF(perms); p++) {
        op_case c = op_case_begin("copy of a view");
        int32_t *x = op_memory(120 * 4), *want = op_memory(24 * 4);
        for (int32_t i = 0; i < 120; i++) x[i] = i;
        int32_t v = op_case_input(&c, TDM_TYPE_I32, ne, x);
        int32_t s = tdm_build_slice(c.b, v, off, part);
        int32_t t = tdm_build_permute(c.b, s, perms[p][0], perms[p][1], perms[p][2], perms[p][3]);
        int64_t out_ne[4], at[4];
        for (int i = 0; i < 4; i++) out_ne[perms[p][i]] = part[i];
        size_t k = 0;
        for (int64_t i3 = 0; i3 < out_ne[3]; i3++)
            for (int64_t i2 = 0; i2 < out_ne[2]; i2++)
                for (int64_t i1 = 0; i1 < out_ne[1]; i1++)
                    for (int64_t i0 = 0; i0 < out_ne[0]; i0++) {
                        const int64_t out_at[4] = {i0, i1, i2, i3};
                        for (int i = 0; i < 4; i++) at[i] = out_at[perms[p][i]] + off[i];
                        want[k++] =
                            (int32_t)(at[0] + ne[0] * (at[1] + ne[1] * (at[2] + ne[2] * at[3])));
                    }
        op_case_output(&c, tdm_build_copy(c.b, t, TDM_TYPE_I32));
        op_case_check(&c, 0, want);
        free(want);
    }
}

static void concat_axes(void **state) {
    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        int64_t a_ne[4] = {3, 2, 4, 2}, b_ne[4] = {3, 2, 4, 2};
        b_ne[axis] += 1;
        op_case c = op_case_begin("concat");
        int64_t n_a = tdm_shape_count(a_ne), n_b = tdm_shape_count(b_ne);
        int32_t *a = op_memory((size_t)n_a * 4), *b = op_memory((size_t)n_b * 4);
        int32_t *want = op_memory((size_t)(n_a + n_b) * 4);
        for (int32_t i = 0; i < n_a; i++) a[i] = i;
        for (int32_t i = 0; i < n_b; i++) b[i] = 1000 + i;
        /* Along an axis both are runs of (product of the axes up to it), taken in turns. */
        int64_t run_a = 1, run_b = 1, k = 0;
        for (int i = 0; i <= axis; i++) run_a *= a_ne[i], run_b *= b_ne[i];
        for (int64_t i = 0; i < n_a / run_a; i++) {
            memcpy(want + k, a + i * run_a, (size_t)run_a * 4);
            memcpy(want + k + run_a, b + i * run_b, (size_t)run_b * 4);
            k += run_a + run_b;
        }
        int32_t va = op_case_input(&c, TDM_TYPE_I32, a_ne, a);
        int32_t vb = op_case_input(&c, TDM_TYPE_I32, b_ne, b);
        op_case_output(&c, tdm_build_concat(c.b, va, vb, axis));
        op_case_check(&c, 0, want);
        free(want);
    }
}

static void repeat_shapes(void **state) {
    (void)state;
    for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
        for (int bits = 0; bits < 32; bits++) { /* which axes are repeated; 16: a permuted x */
            const int64_t ne[4] = {op_lengths[l], 3, 2, 1};
            int64_t to[4];
            for (int i = 0; i < 4; i++) to[i] = bits >> i & 1 ? ne[i] * (2 + i) : ne[i];
            op_case c = op_case_begin("repeat");
            snprintf(c.label, sizeof c.label, "repeat, n %d, axes %d", (int)ne[0], bits);
            const int64_t n = tdm_shape_count(ne), count = tdm_shape_count(to);
            float *x = op_memory((size_t)n * sizeof *x),
                  *want = op_memory((size_t)count * sizeof *want);
            for (int64_t i = 0; i < n; i++) x[i] = (float)i;
            for (int64_t i = 0; i < count; i++)
                want[i] = (float)(i % to[0] % ne[0] +
                                  ne[0] * (i / to[0] % to[1] % ne[1] +
                                           ne[1] * (i / to[0] / to[1] % to[2] % ne[2])));
            int32_t v = op_case_input(&c, TDM_TYPE_F32, ne, x);
            if (bits >= 16) {
                v = tdm_build_copy(c.b, tdm_build_permute(c.b, v, 1, 0, 2, 3), TDM_TYPE_F32);
                v = tdm_build_permute(c.b, v, 1, 0, 2, 3);
            }
            op_case_output(&c, tdm_build_repeat(c.b, v, to));
            op_case_check(&c, 0, want);
            free(want);
        }
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void rows_of_type(tdm_type type, uint32_t usage) {
    enum { N = 256, N_ROW = 37, N_ID = 9 };
    uint64_t seed = OP_SEED + (uint64_t)type;
    const int32_t ids[N_ID] = {36 + 100, 100, -1, 117, 99, 137, 117, 2147483647, 101};
    size_t row_size = tdm_type_row_size(type, N);
    op_case c = op_case_begin("get_rows");
    snprintf(c.label, sizeof c.label, "get_rows of %s, usage %u", tdm_type_name(type),
             (unsigned)usage);
    float *x = op_random_floats(&seed, N * N_ROW, 1.0f), *want = op_memory(N * N_ID * sizeof *want);
    uint8_t *table = op_memory(row_size * N_ROW);
    for (int r = 0; r < N_ROW; r++)
        tdm_row_quantize(type, x + r * N, table + (size_t)r * row_size, N, NULL);
    for (int i = 0; i < N_ID; i++)
        if (ids[i] >= 100 && ids[i] < 100 + N_ROW)
            tdm_row_dequantize(type, table + (size_t)(ids[i] - 100) * row_size, want + i * N, N);
    int32_t *id = op_memory(sizeof ids);
    memcpy(id, ids, sizeof ids);
    int32_t w = tdm_build_weight(c.b, "table", type, OP_SHAPE(N, N_ROW, 1, 1), usage);
    c.args[c.n_arg++] = (op_arg){.value = w, .data = table};
    int32_t v = op_case_input(&c, TDM_TYPE_I32, OP_SHAPE(N_ID, 1, 1, 1), id);
    op_case_output(&c, tdm_build_get_rows(c.b, w, v, 100));
    op_case_check(&c, 0, want);
    free(x);
    free(want);
}

static void rows_types(void **state) {
    (void)state;
    for (int type = 0; type < TDM_TYPE_LIMIT_; type++) {
        if (tdm_row_codec_get((tdm_type)type).dequantize == NULL) continue;
        rows_of_type((tdm_type)type, 0);
        rows_of_type((tdm_type)type, TDM_USAGE_ROWS);
        rows_of_type((tdm_type)type, TDM_USAGE_ROWS | TDM_USAGE_MATMUL);
    }
}

/* ---- Arithmetic ------------------------------------------------------------------------------ */

static const tdm_op pair_ops[] = {TDM_OP_ADD, TDM_OP_MUL, TDM_OP_DIV};

static float pair_of(tdm_op op, float a, float b) {
    return op == TDM_OP_ADD ? a + b : op == TDM_OP_MUL ? a * b : a / b;
}

/* Every number that breaks kernels by every other, 0 / 0 among them. */
static void pair_extremes(void **state) {
    (void)state;
    enum { N = OP_N_EXTREME };
    for (size_t k = 0; k < OP_COUNT_OF(pair_ops); k++) {
        op_case c = op_case_begin(tdm_op_name(pair_ops[k]));
        float *a = op_memory(N * N * sizeof *a), *b = op_memory(N * sizeof *b);
        for (int i = 0; i < N * N; i++) a[i] = op_extremes[i / N];
        memcpy(b, op_extremes, N * sizeof *b);
        int32_t va = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(N, N, 1, 1), a);
        int32_t vb = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(N, 1, 1, 1), b);
        tdm_node_spec spec = tdm_node_spec_of(pair_ops[k], va, vb, -1, -1);
        tdm_graph *graph = NULL;
        float got[N * N];
        void *out[1] = {got};
        op_case_output(&c, tdm_build_node(c.b, &spec, NULL));
        graph = op_case_finish(&c);
        for (size_t isa = 0; isa < OP_N_ISA; isa++) {
            if (op_fast[isa][0] == NULL) continue;
            op_case_run(&c, op_fast[isa][0], graph, out);
            for (int i = 0; i < N * N; i++) {
                float want = pair_of(pair_ops[k], op_extremes[i / N], op_extremes[i % N]);
                if (memcmp(&got[i], &want, sizeof want) != 0 && !(isnan(got[i]) && isnan(want)))
                    fail_msg("%s of %g and %g on %s: %g, not %g", c.label,
                             (double)op_extremes[i / N], (double)op_extremes[i % N],
                             op_isa_names[isa], (double)got[i], (double)want);
            }
        }
        op_case_end(&c, graph);
    }
}

static void pair_shapes(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
        int64_t n = op_lengths[l];
        const int64_t b_shapes[][4] = {
            {n, 3, 2, 1}, {n, 1, 1, 1}, {1, 3, 1, 1}, {1, 1, 1, 1}, {n, 1, 2, 1}};
        for (size_t s = 0; s < OP_COUNT_OF(b_shapes); s++) {
            for (size_t k = 0; k < 2 * OP_COUNT_OF(pair_ops); k++) {
                tdm_op op = pair_ops[k / 2];
                op_case c = op_case_begin("pair");
                snprintf(c.label, sizeof c.label, "%s, n %d, shape %d", tdm_op_name(op), (int)n,
                         (int)s);
                int32_t a = op_case_floats(&c, &seed, OP_SHAPE(n, 3, 2, 1), 10.0f);
                int32_t b = op_case_floats(&c, &seed, b_shapes[s], 10.0f);
                /* Views: the middle axes of a exchanged, and back by the copy of a copy. */
                if (k % 2 == 1) {
                    int32_t t =
                        tdm_build_copy(c.b, tdm_build_permute(c.b, a, 2, 1, 0, 3), TDM_TYPE_F32);
                    a = tdm_build_permute(c.b, t, 2, 1, 0, 3);
                }
                tdm_node_spec spec = tdm_node_spec_of(op, a, b, -1, -1);
                int32_t y = tdm_build_node(c.b, &spec, NULL);
                const float *pa = c.args[0].data, *pb = c.args[1].data;
                float *want = op_memory((size_t)n * 6 * sizeof *want);
                for (int64_t i = 0; i < n * 6; i++) {
                    int64_t i0 = i % n, i1 = i / n % 3, i2 = i / n / 3;
                    const int64_t *ne = b_shapes[s];
                    int64_t at = i0 % ne[0] + ne[0] * (i1 % ne[1] + ne[1] * (i2 % ne[2]));
                    want[i] = pair_of(op, pa[i], pb[at]);
                }
                op_case_output(&c, y);
                op_case_check(&c, 0, want);
                free(want);
            }
        }
    }
}

static void scale_lengths(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
        op_case c = op_case_begin("scale");
        int32_t x = op_case_floats(&c, &seed, OP_SHAPE(op_lengths[l], 3, 1, 1), 10.0f);
        op_case_output(&c, tdm_build_scale(c.b, x, -1.75f, 0.3f));
        op_case_check(&c, 1e-13, NULL);
        c = op_case_begin("scale by 0");
        x = op_case_floats(&c, &seed, OP_SHAPE(op_lengths[l], 3, 1, 1), 10.0f);
        float *want = op_memory((size_t)op_lengths[l] * 3 * sizeof *want);
        for (int64_t i = 0; i < op_lengths[l] * 3; i++) want[i] = 2.0f;
        op_case_output(&c, tdm_build_scale(c.b, x, 0.0f, 2.0f));
        op_case_check(&c, 0, want);
        free(want);
    }
}

static void clamp_lengths(void **state) {
    (void)state;
    const float ranges[][2] = {{-0.6f, 10.0f}, {0.0f, INFINITY}, {-INFINITY, -0.0f}, {2.0f, 2.0f}};
    for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
        for (size_t k = 0; k < 2 * OP_COUNT_OF(ranges); k++) {
            const int64_t n = op_lengths[l];
            const float lo = ranges[k / 2][0], hi = ranges[k / 2][1];
            op_case c = op_case_begin("clamp");
            snprintf(c.label, sizeof c.label, "clamp, n %d, range %d", (int)n, (int)k);
            float *x = op_memory((size_t)n * 3 * sizeof *x);
            float *want = op_memory((size_t)n * 3 * sizeof *want);
            for (int64_t i = 0; i < n * 3; i++) x[i] = op_extremes[i % OP_N_EXTREME];
            int32_t v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(n, 3, 1, 1), x);
            if (k % 2 == 1) { /* columns as rows */
                v = tdm_build_copy(c.b, tdm_build_permute(c.b, v, 1, 0, 2, 3), TDM_TYPE_F32);
                v = tdm_build_permute(c.b, v, 1, 0, 2, 3);
            }
            for (int64_t i = 0; i < n * 3; i++) {
                want[i] = x[i];
                if (x[i] < lo) want[i] = lo;
                if (x[i] > hi) want[i] = hi;
            }
            op_case_output(&c, tdm_build_clamp(c.b, v, lo, hi));
            op_case_check(&c, 0, want);
            free(want);
        }
    }
}

/* Every way of computing it rounds correctly; below 0 there is no number. */
static void sqrt_lengths(void **state) {
    (void)state;
    for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
        for (int is_column = 0; is_column < 2; is_column++) {
            const int64_t n = op_lengths[l];
            op_case c = op_case_begin("sqrt");
            float *x = op_memory((size_t)n * 3 * sizeof *x);
            float *want = op_memory((size_t)n * 3 * sizeof *want);
            for (int64_t i = 0; i < n * 3; i++) x[i] = op_extremes[i % OP_N_EXTREME];
            for (int64_t i = 0; i < n * 3; i++) {
                if (x[i] < 0 || x[i] != x[i]) x[i] = (float)i;
                want[i] = (float)sqrt((double)x[i]);
            }
            int32_t v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(n, 3, 1, 1), x);
            if (is_column) {
                v = tdm_build_copy(c.b, tdm_build_permute(c.b, v, 1, 0, 2, 3), TDM_TYPE_F32);
                v = tdm_build_permute(c.b, v, 1, 0, 2, 3);
            }
            op_case_output(&c, tdm_build_sqrt(c.b, v));
            op_case_check(&c, 0, want);
            free(want);
        }
    }
    op_case c = op_case_begin("sqrt below 0");
    float *x = op_memory(4 * sizeof *x), got[4];
    x[0] = -1, x[1] = NAN, x[2] = -INFINITY, x[3] = 4;
    void *out[1] = {got};
    int32_t v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(4, 1, 1, 1), x);
    op_case_output(&c, tdm_build_sqrt(c.b, v));
    tdm_graph *graph = op_case_finish(&c);
    for (size_t isa = 0; isa < OP_N_ISA; isa++) {
        if (op_fast[isa][0] == NULL) continue;
        op_case_run(&c, op_fast[isa][0], graph, out);
        assert_true(isnan(got[0]) && isnan(got[1]) && isnan(got[2]) && got[3] == 2);
    }
    op_case_end(&c, graph);
}

static void act_lengths(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (int act = TDM_ACT_NONE; act < TDM_ACT_COUNT_; act++) {
        for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
            int64_t n = op_lengths[l];
            for (int kind = 0; kind < 4; kind++) {
                op_case c = op_case_begin("act");
                snprintf(c.label, sizeof c.label, "act %d, n %d, kind %d", act, (int)n, kind);
                bool is_column = kind == 3; /* columns as rows */
                int32_t x = op_case_floats(&c, &seed,
                                           is_column ? OP_SHAPE(3, n, 1, 1) : OP_SHAPE(n, 3, 1, 1),
                                           kind == 0 ? 1.0f : 12.0f);
                if (is_column) x = tdm_build_permute(c.b, x, 1, 0, 2, 3);
                int32_t y = -1;
                if (kind < 2)
                    y = tdm_build_act(c.b, x, (tdm_act)act);
                else
                    y = tdm_build_glu(c.b, x, op_case_floats(&c, &seed, OP_SHAPE(n, 3, 1, 1), 3.0f),
                                      (tdm_act)act);
                op_case_output(&c, y);
                op_case_check(&c, 1e-12, NULL);
            }
        }
    }
}

/* Each extreme number by itself: NMSE would hide small ones among large ones. Results agree to
 * 3e-6 of their size, or 1e-36 where they are nearly nothing. */
static void act_extremes(void **state) {
    (void)state;
    enum { N = OP_COUNT_OF(op_extremes) };
    for (int act = TDM_ACT_NONE; act < TDM_ACT_COUNT_; act++) {
        tdm_builder *b = NULL;
        tdm_graph *graph = NULL;
        tdm_error err = {0};
        float in[N], want[N], got[N];
        memcpy(in, op_extremes, sizeof in);
        assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
        int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, OP_SHAPE(N, 1, 1, 1));
        int32_t y = tdm_build_act(b, x, (tdm_act)act);
        tdm_build_output(b, y, "y");
        if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
        op_rig_run(op_reference, graph,
                   (op_arg[]){{.value = x, .data = in}, {.value = y, .data = want}}, 2);
        for (size_t isa = 0; isa < OP_COUNT_OF(op_isa_names); isa++) {
            if (op_fast[isa][0] == NULL) continue;
            op_rig_run(op_fast[isa][0], graph,
                       (op_arg[]){{.value = x, .data = in}, {.value = y, .data = got}}, 2);
            for (int i = 0; i < N; i++) {
                if (op_max_abs(&got[i], &want[i], 1) > 1e-36 + 3e-6 * fabs((double)want[i]))
                    fail_msg("act %d of %g on %s: %.9g, not %.9g", act, (double)in[i],
                             op_isa_names[isa], (double)got[i], (double)want[i]);
            }
        }
        tdm_graph_free(graph);
        tdm_builder_destroy(b);
    }
}

/* The oracle itself, at points known from elsewhere (to f32). */
static void act_oracle(void **state) {
    (void)state;
    static const struct {
        tdm_act act;
        float x, y;
    } points[] = {
        {TDM_ACT_SILU, 1.0f, 0.731058578630f},      {TDM_ACT_SILU, -2.0f, -0.238405844044f},
        {TDM_ACT_GELU, 1.0f, 0.841191990608f},      {TDM_ACT_GELU_ERF, 1.0f, 0.841344746069f},
        {TDM_ACT_GELU_ERF, -1.0f, -0.15865525393f}, {TDM_ACT_RELU, -3.0f, 0.0f},
        {TDM_ACT_SIGMOID, 2.0f, 0.880797077978f},   {TDM_ACT_TANH, 0.5f, 0.462117157260f},
        {TDM_ACT_SOFTPLUS, 0.0f, 0.693147180560f},  {TDM_ACT_SOFTPLUS, -20.0f, 2.06115362031e-9f},
        {TDM_ACT_SOFTPLUS, 3e38f, 3e38f},           {TDM_ACT_NONE, -7.25f, -7.25f},
    };
    for (size_t i = 0; i < OP_COUNT_OF(points); i++) {
        op_case c = op_case_begin("oracle");
        float *x = op_memory(sizeof *x), want = points[i].y;
        *x = points[i].x;
        int32_t v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(1, 1, 1, 1), x);
        op_case_output(&c, tdm_build_act(c.b, v, points[i].act));
        op_case_check(&c, 1e-12, &want);
    }
}

/* ---- Norms and softmax ----------------------------------------------------------------------- */

static void norm_lengths(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    const float scales[] = {1.0f, 1e18f, 1e-18f};
    for (size_t l = 1; l < OP_COUNT_OF(op_lengths); l++) {
        int64_t n = op_lengths[l];
        for (int kind = 0; kind < 5; kind++) {
            for (size_t s = 0; s < OP_COUNT_OF(scales); s++) {
                for (int64_t n_row = 1; n_row <= 7; n_row += 3) {
                    op_case c = op_case_begin("norm");
                    snprintf(c.label, sizeof c.label, "norm %d, n %d, scale %g, rows %d", kind,
                             (int)n, (double)scales[s], (int)n_row);
                    float eps = s == 2 ? 1e-38f : 1e-5f;
                    int32_t x, y = -1, weight = -1;
                    if (kind == 4) {
                        x = tdm_build_permute(
                            c.b, op_case_floats(&c, &seed, OP_SHAPE(n_row, n, 1, 1), scales[s]), 1,
                            0, 2, 3);
                    } else {
                        x = op_case_floats(&c, &seed, OP_SHAPE(n, n_row, 1, 1), scales[s]);
                    }
                    if (kind != 1 && kind != 2)
                        weight = op_case_floats(&c, &seed, OP_SHAPE(n, 1, 1, 1), 1.0f);
                    if (kind == 0 || kind == 1 || kind == 4)
                        y = tdm_build_rms_norm(c.b, x, weight, eps);
                    else if (kind == 2)
                        y = tdm_build_sum_sq(c.b, x);
                    else
                        y = tdm_build_rms_apply(c.b, x, tdm_build_sum_sq(c.b, x), weight, eps,
                                                2 * n);
                    op_case_output(&c, y);
                    op_case_check(&c, 1e-12, NULL);
                }
            }
        }
    }
}

/* The formula on known numbers: 3 and 4 have a mean square of 12.5. */
static void norm_oracle(void **state) {
    (void)state;
    op_case c = op_case_begin("norm by hand");
    float *x = op_memory(2 * sizeof *x), *w = op_memory(2 * sizeof *w);
    x[0] = 3, x[1] = 4, w[0] = 2, w[1] = -1;
    const float want[2] = {(float)(3 / sqrt(12.5 + 0.5) * 2), (float)(4 / sqrt(12.5 + 0.5) * -1)};
    int32_t vx = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(2, 1, 1, 1), x);
    int32_t vw = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(2, 1, 1, 1), w);
    op_case_output(&c, tdm_build_rms_norm(c.b, vx, vw, 0.5f));
    op_case_check(&c, 1e-12, want);
}

static void layer_norm_lengths(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (size_t l = 0; l < OP_COUNT_OF(op_lengths); l++) {
        int64_t n = op_lengths[l];
        for (int kind = 0; kind < 5; kind++) { /* weight, bias, a permuted x */
            for (int64_t n_row = 1; n_row <= 7; n_row += 3) {
                op_case c = op_case_begin("layer norm");
                snprintf(c.label, sizeof c.label, "layer norm %d, n %d, rows %d", kind, (int)n,
                         (int)n_row);
                bool is_column = kind == 4;
                int32_t weight = -1, bias = -1;
                int32_t x = op_case_floats(
                    &c, &seed, is_column ? OP_SHAPE(n_row, n, 1, 1) : OP_SHAPE(n, n_row, 1, 1),
                    3.0f);
                if (is_column) x = tdm_build_permute(c.b, x, 1, 0, 2, 3);
                if (kind & 1) weight = op_case_floats(&c, &seed, OP_SHAPE(n, 1, 1, 1), 1.0f);
                if (kind & 2) bias = op_case_floats(&c, &seed, OP_SHAPE(n, 1, 1, 1), 1.0f);
                op_case_output(&c, tdm_build_layer_norm(c.b, x, weight, bias, 1e-3f));
                op_case_check(&c, 1e-11, NULL);
            }
        }
    }
}

/* Known rows: far from 0, and with values that are not finite. */
static void layer_norm_oracle(void **state) {
    (void)state;
    op_case c = op_case_begin("layer norm by hand");
    float *x = op_memory(2 * sizeof *x), *w = op_memory(2 * sizeof *w),
          *b = op_memory(2 * sizeof *b);
    x[0] = 1, x[1] = 5, w[0] = 2, w[1] = -1, b[0] = 0.5f, b[1] = 3;
    const float want[2] = {(float)(-2 / sqrt(4.5) * 2 + 0.5), (float)(2 / sqrt(4.5) * -1 + 3)};
    int32_t vx = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(2, 1, 1, 1), x);
    int32_t vw = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(2, 1, 1, 1), w);
    int32_t vb = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(2, 1, 1, 1), b);
    op_case_output(&c, tdm_build_layer_norm(c.b, vx, vw, vb, 0.5f));
    op_case_check(&c, 1e-12, want);
    enum { N = 100 };
    uint64_t seed = OP_SEED;
    c = op_case_begin("layer norm of rows far from 0");
    vx = op_case_floats(&c, &seed, OP_SHAPE(N, 4, 1, 1), 1.0f);
    x = c.args[0].data;
    for (int i = 0; i < N; i++) x[i] += 1e4f, x[N + i] -= 3e5f;
    op_case_output(&c, tdm_build_layer_norm(c.b, vx, -1, -1, 0));
    op_case_check(&c, 1e-11, NULL);
    c = op_case_begin("layer norm of NaN and infinity");
    vx = op_case_floats(&c, &seed, OP_SHAPE(N, 3, 1, 1), 1.0f);
    x = c.args[0].data;
    x[97] = NAN;
    x[N + 3] = INFINITY;
    op_case_output(&c, tdm_build_layer_norm(c.b, vx, -1, -1, 1e-5f));
    op_case_check(&c, 1e-11, NULL);
}

static void softmax_rows(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (size_t l = 1; l < OP_COUNT_OF(op_lengths); l++) {
        int64_t n = op_lengths[l];
        op_case c = op_case_begin("softmax");
        snprintf(c.label, sizeof c.label, "softmax, n %d", (int)n);
        int32_t v = op_case_floats(&c, &seed, OP_SHAPE(n, 6, 1, 1), 30.0f);
        float *x = c.args[0].data;
        for (int64_t i = 0; i < n; i++) {
            x[i] = -INFINITY;                            /* nothing: zeros */
            if (i % 3 == 1) x[n + i] = -INFINITY;        /* some of nothing */
            x[2 * n + i] = i == n / 2 ? NAN : -INFINITY; /* NaN is not hidden */
            x[3 * n + i] *= 1e36f;                       /* differences overflow */
        }
        op_case_output(&c, tdm_build_softmax(c.b, v));
        op_case_check(&c, 1e-12, NULL);
    }
    op_case c = op_case_begin("softmax of nothing");
    float *x = op_memory(3 * sizeof *x);
    const float want[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++) x[i] = -INFINITY;
    int32_t v = op_case_input(&c, TDM_TYPE_F32, OP_SHAPE(3, 1, 1, 1), x);
    op_case_output(&c, tdm_build_softmax(c.b, v));
    op_case_check(&c, 0, want);
}

/* ---- Proof that a difference is seen --------------------------------------------------------- */

static void comparisons_can_fail(void **state) {
    (void)state;
    const float a[4] = {1, 2, NAN, INFINITY}, b[4] = {1, 2.5f, NAN, INFINITY};
    const float c[4] = {1, 2, 3, INFINITY}, d[4] = {1, 2, NAN, -INFINITY};
    assert_true(op_nmse(a, a, 4) == 0 && op_max_abs(a, a, 4) == 0);
    assert_true(op_nmse(a, b, 4) > 0.01 && op_max_abs(a, b, 4) == 0.5);
    assert_true(isinf(op_nmse(a, c, 4)) && isinf(op_max_abs(a, c, 4)));
    assert_true(isinf(op_nmse(a, d, 4)) && isinf(op_max_abs(a, d, 4)));
}

/* Columns add up to 1 where eps is small, and rows nearly; the numbers are certify's. */
static void sinkhorn_sizes(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    const int64_t sizes[] = {1, 2, 4, 5, TDM_MAX_SINKHORN}, toks[] = {1, 7, 33};
    for (size_t s = 0; s < OP_COUNT_OF(sizes); s++)
        for (size_t t = 0; t < OP_COUNT_OF(toks); t++) {
            const int64_t n = sizes[s], count = n * n * toks[t];
            op_case c = op_case_begin("sinkhorn");
            snprintf(c.label, sizeof c.label, "sinkhorn, %d tokens of %d", (int)toks[t], (int)n);
            int32_t x = op_case_floats(&c, &seed, OP_SHAPE(n, n, toks[t], 1), 2.0f);
            if (t == 1) x = tdm_build_permute(c.b, x, 1, 0, 2, 3);
            op_case_output(&c, tdm_build_sinkhorn(c.b, x, 40, 1e-7f));
            tdm_graph *graph = op_case_finish(&c);
            float *want = op_memory((size_t)count * sizeof *want);
            float *got = op_memory((size_t)count * sizeof *got);
            op_case_run(&c, op_reference, graph, (void *[]){want});
            for (int64_t i = 0; i < count / n; i++) {
                double row = 0, column = 0;
                for (int64_t j = 0; j < n; j++) {
                    row += (double)want[i * n + j];
                    column += (double)want[i / n * n * n + j * n + i % n];
                }
                if (!(fabs(column - 1) < 1e-5) || !(fabs(row - 1) < 1e-2))
                    fail_msg("%s: a row adds up to %g, a column to %g", c.label, row, column);
            }
            for (int isa = 0; isa < OP_N_ISA; isa++)
                for (int i = 0; i < OP_N_COUNT; i++) {
                    if (op_fast[isa][i] == NULL) continue;
                    op_case_run(&c, op_fast[isa][i], graph, (void *[]){got});
                    if (!(op_nmse(got, want, (size_t)count) < 1e-11))
                        fail_msg("%s: %s differs", c.label, op_isa_names[isa]);
                }
            free(want);
            free(got);
            op_case_end(&c, graph);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparisons_can_fail), cmocka_unit_test(copy_types),
        cmocka_unit_test(copy_views),           cmocka_unit_test(concat_axes),
        cmocka_unit_test(rows_types),           cmocka_unit_test(pair_shapes),
        cmocka_unit_test(scale_lengths),        cmocka_unit_test(act_lengths),
        cmocka_unit_test(act_extremes),         cmocka_unit_test(act_oracle),
        cmocka_unit_test(norm_lengths),         cmocka_unit_test(norm_oracle),
        cmocka_unit_test(repeat_shapes),        cmocka_unit_test(sqrt_lengths),
        cmocka_unit_test(pair_extremes),        cmocka_unit_test(clamp_lengths),
        cmocka_unit_test(layer_norm_lengths),   cmocka_unit_test(layer_norm_oracle),
        cmocka_unit_test(softmax_rows),         cmocka_unit_test(sinkhorn_sizes),
    };
    return cmocka_run_group_tests(tests, op_rigs_open, op_rigs_close);
}
