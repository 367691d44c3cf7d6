/* SPDX-License-Identifier: MIT
 *
 * test_simple_ops.c: every op of the CPU plugin that is neither a matrix product nor about the
 * cache, for each instruction set and several thread counts, over odd sizes and views: against the
 * reference path where it rounds, against results written out here where it must be exact.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/convert.h"
#include "core/builder.h"
#include "tests/kernels/op_run.h"

#define SEED 20260u

static const char *const isa_names[] = {"plain", "avx2", "avx512"};
static const int thread_counts[] = {1, 2, 3, 5};
static const int64_t lengths[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257};
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* Rigs are opened once: the reference, and one for each ISA and thread count (NULL: not here). */
static op_rig *reference;
static op_rig *fast[COUNT_OF(isa_names)][COUNT_OF(thread_counts)];

static int rigs_open(void **state) {
    (void)state;
    print_message("seed %u\n", SEED);
    reference = op_rig_open("plain", "reference", 2);
    for (size_t i = 0; i < COUNT_OF(isa_names); i++)
        for (size_t t = 0; t < COUNT_OF(thread_counts); t++)
            fast[i][t] = op_rig_open(isa_names[i], "fast", thread_counts[t]);
    return reference == NULL;
}

static int rigs_close(void **state) {
    (void)state;
    op_rig_close(reference);
    for (size_t i = 0; i < COUNT_OF(isa_names); i++)
        for (size_t t = 0; t < COUNT_OF(thread_counts); t++) op_rig_close(fast[i][t]);
    return 0;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* One graph under test: its arguments, and up to two outputs of 4-byte elements. */
enum { MAX_ARGS = 6 };
typedef struct op_case {
    tdm_builder *b;
    op_arg args[MAX_ARGS];
    int n_arg;
    int32_t out[2];
    size_t out_count[2];
    int n_out;
    char label[128];
} op_case;

static op_case case_begin(const char *label) {
    op_case c = {.n_arg = 0};
    tdm_error err = {0};
    if (tdm_builder_create(&c.b, &err) != TDM_OK) fail_msg("%s", err.message);
    snprintf(c.label, sizeof c.label, "%s", label);
    return c;
}

static void *memory(size_t size) {
    void *p = calloc(1, size + 1);
    if (p == NULL) fail_msg("no memory");
    return p;
}

#define SHAPE(...) ((const int64_t[TDM_MAX_DIMS]){__VA_ARGS__})

/* An input whose bytes the case owns from now on. */
static int32_t case_input(op_case *c, tdm_type type, const int64_t *ne, void *data) {
    int32_t v = tdm_build_input(c->b, "in", type, ne);
    c->args[c->n_arg++] = (op_arg){.value = v, .data = data};
    return v;
}

static float *random_floats(uint64_t *seed, size_t n, float scale) {
    float *x = memory(n * sizeof *x);
    op_random_fill(seed, x, n, scale);
    return x;
}

static int32_t case_floats(op_case *c, uint64_t *seed, const int64_t *ne, float scale) {
    return case_input(c, TDM_TYPE_F32, ne, random_floats(seed, (size_t)tdm_shape_count(ne), scale));
}

static void case_output(op_case *c, int32_t value) {
    const int64_t *ne = tdm_build_shape(c->b, value);
    c->out_count[c->n_out] = ne != NULL ? (size_t)tdm_shape_count(ne) : 0;
    c->out[c->n_out++] = value;
    tdm_build_output(c->b, value, "out");
}

/* Runs on one rig; outputs go to out[0 .. n_out). */
static void case_run_on(op_case *c, op_rig *rig, const tdm_graph *graph, void **out) {
    op_arg args[MAX_ARGS + 2];
    memcpy(args, c->args, sizeof c->args);
    for (int i = 0; i < c->n_out; i++)
        args[c->n_arg + i] = (op_arg){.value = c->out[i], .data = out[i]};
    op_rig_run(rig, graph, args, c->n_arg + c->n_out);
}

/* Runs everywhere. `want`: NULL, or what output 0 must be, bit for bit, on the reference path.
 * bound: largest NMSE of any fast path against the reference; 0 = equal bits. Thread counts must
 * give equal bits always. Frees the case. */
static void case_check(op_case *c, double bound, const void *want) {
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    if (tdm_builder_finish(c->b, &graph, &err) != TDM_OK) fail_msg("%s: %s", c->label, err.message);
    void *oracle[2] = {NULL}, *got[2] = {NULL}, *first[2] = {NULL};
    for (int i = 0; i < c->n_out; i++) {
        oracle[i] = memory(c->out_count[i] * 4);
        got[i] = memory(c->out_count[i] * 4);
        first[i] = memory(c->out_count[i] * 4);
    }
    case_run_on(c, reference, graph, oracle);
    if (want != NULL && memcmp(oracle[0], want, c->out_count[0] * 4) != 0)
        fail_msg("%s: the reference is not what it must be", c->label);
    for (size_t isa = 0; isa < COUNT_OF(isa_names); isa++) {
        for (size_t t = 0; t < COUNT_OF(thread_counts); t++) {
            if (fast[isa][t] == NULL) continue;
            case_run_on(c, fast[isa][t], graph, got);
            for (int i = 0; i < c->n_out; i++) {
                size_t size = c->out_count[i] * 4;
                double nmse = memcmp(got[i], oracle[i], size) == 0
                                  ? 0
                                  : op_nmse(got[i], oracle[i], c->out_count[i]);
                if (bound == 0 ? memcmp(got[i], oracle[i], size) != 0 : !(nmse <= bound))
                    fail_msg("%s: %s, %d threads, output %d: NMSE %g", c->label, isa_names[isa],
                             thread_counts[t], i, nmse);
                if (t == 0) memcpy(first[i], got[i], size);
                if (memcmp(got[i], first[i], size) != 0)
                    fail_msg("%s: %s, %d threads differ from 1", c->label, isa_names[isa],
                             thread_counts[t]);
            }
        }
    }
    for (int i = 0; i < c->n_out; i++) {
        free(oracle[i]);
        free(got[i]);
        free(first[i]);
    }
    for (int i = 0; i < c->n_arg; i++) free(c->args[i].data);
    tdm_graph_free(graph);
    tdm_builder_destroy(c->b);
}

/* Numbers that break kernels: the largest, the smallest, zeros of both signs. */
static const float extremes[] = {
    0.0f,  -0.0f,  1.0f,  -1.0f,  FLT_MAX,  -FLT_MAX,  FLT_MIN, -FLT_MIN, 1e-44f, -1e-44f,
    88.0f, -88.0f, 89.5f, -89.5f, -103.9f,  -104.5f,   1e-6f,   -1e-6f,   0.6f,   -0.6f,
    0.63f, -0.63f, 10.0f, -10.0f, INFINITY, -INFINITY, NAN,     20.0f,    -20.0f, 3e38f};

/* ---- Copies ---------------------------------------------------------------------------------- */

static void copy_types(void **state) {
    (void)state;
    const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16};
    uint64_t seed = SEED;
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            for (size_t l = 0; l < COUNT_OF(lengths); l++) {
                int64_t n = lengths[l];
                op_case c = case_begin("copy");
                float *x = random_floats(&seed, (size_t)n * 3, 100.0f);
                for (size_t i = 0; i < COUNT_OF(extremes) && i < (size_t)n * 3; i++)
                    x[i] = extremes[i];
                uint8_t *from = memory((size_t)n * 3 * 4), *want = memory((size_t)n * 3 * 4);
                float *through = memory((size_t)n * 3 * 4);
                tdm_row_quantize(types[a], x, from, n * 3, NULL);
                tdm_row_dequantize(types[a], from, through, n * 3);
                tdm_row_quantize(types[b], through, want, n * 3, NULL);
                int32_t v = case_input(&c, types[a], SHAPE(n, 3, 1, 1), from);
                /* Back to f32, so that every output has 4-byte elements; what that loses was
                 * lost before. */
                int32_t y = tdm_build_copy(c.b, v, types[b]);
                if (types[b] != TDM_TYPE_F32) y = tdm_build_copy(c.b, y, TDM_TYPE_F32);
                case_output(&c, y);
                tdm_row_dequantize(types[b], want, through, n * 3);
                case_check(&c, 0, through);
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
    for (size_t p = 0; p < COUNT_OF(perms); p++) {
        op_case c = case_begin("copy of a view");
        int32_t *x = memory(120 * 4), *want = memory(24 * 4);
        for (int32_t i = 0; i < 120; i++) x[i] = i;
        int32_t v = case_input(&c, TDM_TYPE_I32, ne, x);
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
        case_output(&c, tdm_build_copy(c.b, t, TDM_TYPE_I32));
        case_check(&c, 0, want);
        free(want);
    }
}

static void concat_axes(void **state) {
    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        int64_t a_ne[4] = {3, 2, 4, 2}, b_ne[4] = {3, 2, 4, 2};
        b_ne[axis] += 1;
        op_case c = case_begin("concat");
        int64_t n_a = tdm_shape_count(a_ne), n_b = tdm_shape_count(b_ne);
        int32_t *a = memory((size_t)n_a * 4), *b = memory((size_t)n_b * 4);
        int32_t *want = memory((size_t)(n_a + n_b) * 4);
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
        int32_t va = case_input(&c, TDM_TYPE_I32, a_ne, a);
        int32_t vb = case_input(&c, TDM_TYPE_I32, b_ne, b);
        case_output(&c, tdm_build_concat(c.b, va, vb, axis));
        case_check(&c, 0, want);
        free(want);
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void rows_of_type(tdm_type type, uint32_t usage) {
    enum { N = 256, N_ROW = 37, N_ID = 9 };
    uint64_t seed = SEED + (uint64_t)type;
    const int32_t ids[N_ID] = {36 + 100, 100, -1, 117, 99, 137, 117, 2147483647, 101};
    size_t row_size = tdm_type_row_size(type, N);
    op_case c = case_begin("get_rows");
    snprintf(c.label, sizeof c.label, "get_rows of %s, usage %u", tdm_type_name(type),
             (unsigned)usage);
    float *x = random_floats(&seed, N * N_ROW, 1.0f), *want = memory(N * N_ID * sizeof *want);
    uint8_t *table = memory(row_size * N_ROW);
    for (int r = 0; r < N_ROW; r++)
        tdm_row_quantize(type, x + r * N, table + (size_t)r * row_size, N, NULL);
    for (int i = 0; i < N_ID; i++)
        if (ids[i] >= 100 && ids[i] < 100 + N_ROW)
            tdm_row_dequantize(type, table + (size_t)(ids[i] - 100) * row_size, want + i * N, N);
    int32_t *id = memory(sizeof ids);
    memcpy(id, ids, sizeof ids);
    int32_t w = tdm_build_weight(c.b, "table", type, SHAPE(N, N_ROW, 1, 1), usage);
    c.args[c.n_arg++] = (op_arg){.value = w, .data = table};
    int32_t v = case_input(&c, TDM_TYPE_I32, SHAPE(N_ID, 1, 1, 1), id);
    case_output(&c, tdm_build_get_rows(c.b, w, v, 100));
    case_check(&c, 0, want);
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

static void pair_shapes(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        int64_t n = lengths[l];
        const int64_t b_shapes[][4] = {
            {n, 3, 2, 1}, {n, 1, 1, 1}, {1, 3, 1, 1}, {1, 1, 1, 1}, {n, 1, 2, 1}};
        for (size_t s = 0; s < COUNT_OF(b_shapes); s++) {
            for (int op = 0; op < 4; op++) {
                op_case c = case_begin("pair");
                snprintf(c.label, sizeof c.label, "pair %d, n %d, shape %d", op, (int)n, (int)s);
                int32_t a = case_floats(&c, &seed, SHAPE(n, 3, 2, 1), 10.0f);
                int32_t b = case_floats(&c, &seed, b_shapes[s], 10.0f);
                /* Views: the middle axes of a exchanged, and back by the copy of a copy. */
                if (op >= 2) {
                    int32_t t =
                        tdm_build_copy(c.b, tdm_build_permute(c.b, a, 2, 1, 0, 3), TDM_TYPE_F32);
                    a = tdm_build_permute(c.b, t, 2, 1, 0, 3);
                }
                int32_t y = op % 2 == 0 ? tdm_build_add(c.b, a, b) : tdm_build_mul(c.b, a, b);
                const float *pa = c.args[0].data, *pb = c.args[1].data;
                float *want = memory((size_t)n * 6 * sizeof *want);
                for (int64_t i = 0; i < n * 6; i++) {
                    int64_t i0 = i % n, i1 = i / n % 3, i2 = i / n / 3;
                    const int64_t *ne = b_shapes[s];
                    int64_t k = i0 % ne[0] + ne[0] * (i1 % ne[1] + ne[1] * (i2 % ne[2]));
                    want[i] = op % 2 == 0 ? pa[i] + pb[k] : pa[i] * pb[k];
                }
                case_output(&c, y);
                case_check(&c, 0, want);
                free(want);
            }
        }
    }
}

static void scale_lengths(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        op_case c = case_begin("scale");
        int32_t x = case_floats(&c, &seed, SHAPE(lengths[l], 3, 1, 1), 10.0f);
        case_output(&c, tdm_build_scale(c.b, x, -1.75f, 0.3f));
        case_check(&c, 1e-13, NULL);
        c = case_begin("scale by 0");
        x = case_floats(&c, &seed, SHAPE(lengths[l], 3, 1, 1), 10.0f);
        float *want = memory((size_t)lengths[l] * 3 * sizeof *want);
        for (int64_t i = 0; i < lengths[l] * 3; i++) want[i] = 2.0f;
        case_output(&c, tdm_build_scale(c.b, x, 0.0f, 2.0f));
        case_check(&c, 0, want);
        free(want);
    }
}

static void act_lengths(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int act = TDM_ACT_NONE; act <= TDM_ACT_TANH; act++) {
        for (size_t l = 0; l < COUNT_OF(lengths); l++) {
            int64_t n = lengths[l];
            for (int kind = 0; kind < 4; kind++) {
                op_case c = case_begin("act");
                snprintf(c.label, sizeof c.label, "act %d, n %d, kind %d", act, (int)n, kind);
                bool is_column = kind == 3; /* columns as rows */
                int32_t x =
                    case_floats(&c, &seed, is_column ? SHAPE(3, n, 1, 1) : SHAPE(n, 3, 1, 1),
                                kind == 0 ? 1.0f : 12.0f);
                if (is_column) x = tdm_build_permute(c.b, x, 1, 0, 2, 3);
                int32_t y = -1;
                if (kind < 2)
                    y = tdm_build_act(c.b, x, (tdm_act)act);
                else
                    y = tdm_build_glu(c.b, x, case_floats(&c, &seed, SHAPE(n, 3, 1, 1), 3.0f),
                                      (tdm_act)act);
                case_output(&c, y);
                case_check(&c, 1e-12, NULL);
            }
        }
    }
}

/* Each extreme number by itself: NMSE would hide small ones among large ones. Results agree to
 * 3e-6 of their size, or 1e-36 where they are nearly nothing. */
static void act_extremes(void **state) {
    (void)state;
    enum { N = COUNT_OF(extremes) };
    for (int act = TDM_ACT_NONE; act <= TDM_ACT_TANH; act++) {
        tdm_builder *b = NULL;
        tdm_graph *graph = NULL;
        tdm_error err = {0};
        float in[N], want[N], got[N];
        memcpy(in, extremes, sizeof in);
        assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
        int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, SHAPE(N, 1, 1, 1));
        int32_t y = tdm_build_act(b, x, (tdm_act)act);
        tdm_build_output(b, y, "y");
        if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
        op_rig_run(reference, graph,
                   (op_arg[]){{.value = x, .data = in}, {.value = y, .data = want}}, 2);
        for (size_t isa = 0; isa < COUNT_OF(isa_names); isa++) {
            if (fast[isa][0] == NULL) continue;
            op_rig_run(fast[isa][0], graph,
                       (op_arg[]){{.value = x, .data = in}, {.value = y, .data = got}}, 2);
            for (int i = 0; i < N; i++) {
                if (op_max_abs(&got[i], &want[i], 1) > 1e-36 + 3e-6 * fabs((double)want[i]))
                    fail_msg("act %d of %g on %s: %.9g, not %.9g", act, (double)in[i],
                             isa_names[isa], (double)got[i], (double)want[i]);
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
        {TDM_ACT_SILU, 1.0f, 0.731058578630f},
        {TDM_ACT_SILU, -2.0f, -0.238405844044f},
        {TDM_ACT_GELU, 1.0f, 0.841191990608f},
        {TDM_ACT_GELU_ERF, 1.0f, 0.841344746069f},
        {TDM_ACT_GELU_ERF, -1.0f, -0.15865525393f},
        {TDM_ACT_RELU, -3.0f, 0.0f},
        {TDM_ACT_SIGMOID, 2.0f, 0.880797077978f},
        {TDM_ACT_TANH, 0.5f, 0.462117157260f},
        {TDM_ACT_NONE, -7.25f, -7.25f},
    };
    for (size_t i = 0; i < COUNT_OF(points); i++) {
        op_case c = case_begin("oracle");
        float *x = memory(sizeof *x), want = points[i].y;
        *x = points[i].x;
        int32_t v = case_input(&c, TDM_TYPE_F32, SHAPE(1, 1, 1, 1), x);
        case_output(&c, tdm_build_act(c.b, v, points[i].act));
        case_check(&c, 1e-12, &want);
    }
}

/* ---- Norms and softmax ----------------------------------------------------------------------- */

static void norm_lengths(void **state) {
    (void)state;
    uint64_t seed = SEED;
    const float scales[] = {1.0f, 1e18f, 1e-18f};
    for (size_t l = 1; l < COUNT_OF(lengths); l++) {
        int64_t n = lengths[l];
        for (int kind = 0; kind < 5; kind++) {
            for (size_t s = 0; s < COUNT_OF(scales); s++) {
                for (int64_t n_row = 1; n_row <= 7; n_row += 3) {
                    op_case c = case_begin("norm");
                    snprintf(c.label, sizeof c.label, "norm %d, n %d, scale %g, rows %d", kind,
                             (int)n, (double)scales[s], (int)n_row);
                    float eps = s == 2 ? 1e-38f : 1e-5f;
                    int32_t x, y = -1, weight = -1;
                    if (kind == 4) {
                        x = tdm_build_permute(
                            c.b, case_floats(&c, &seed, SHAPE(n_row, n, 1, 1), scales[s]), 1, 0, 2,
                            3);
                    } else {
                        x = case_floats(&c, &seed, SHAPE(n, n_row, 1, 1), scales[s]);
                    }
                    if (kind != 1 && kind != 2)
                        weight = case_floats(&c, &seed, SHAPE(n, 1, 1, 1), 1.0f);
                    if (kind == 0 || kind == 1 || kind == 4)
                        y = tdm_build_rms_norm(c.b, x, weight, eps);
                    else if (kind == 2)
                        y = tdm_build_sum_sq(c.b, x);
                    else
                        y = tdm_build_rms_apply(c.b, x, tdm_build_sum_sq(c.b, x), weight, eps,
                                                2 * n);
                    case_output(&c, y);
                    case_check(&c, 1e-12, NULL);
                }
            }
        }
    }
}

/* The formula on numbers done by hand: 3 and 4 have a mean square of 12.5. */
static void norm_oracle(void **state) {
    (void)state;
    op_case c = case_begin("norm by hand");
    float *x = memory(2 * sizeof *x), *w = memory(2 * sizeof *w);
    x[0] = 3, x[1] = 4, w[0] = 2, w[1] = -1;
    const float want[2] = {(float)(3 / sqrt(12.5 + 0.5) * 2), (float)(4 / sqrt(12.5 + 0.5) * -1)};
    int32_t vx = case_input(&c, TDM_TYPE_F32, SHAPE(2, 1, 1, 1), x);
    int32_t vw = case_input(&c, TDM_TYPE_F32, SHAPE(2, 1, 1, 1), w);
    case_output(&c, tdm_build_rms_norm(c.b, vx, vw, 0.5f));
    case_check(&c, 1e-12, want);
}

static void softmax_rows(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (size_t l = 1; l < COUNT_OF(lengths); l++) {
        int64_t n = lengths[l];
        op_case c = case_begin("softmax");
        snprintf(c.label, sizeof c.label, "softmax, n %d", (int)n);
        int32_t v = case_floats(&c, &seed, SHAPE(n, 6, 1, 1), 30.0f);
        float *x = c.args[0].data;
        for (int64_t i = 0; i < n; i++) {
            x[i] = -INFINITY;                            /* nothing: zeros */
            if (i % 3 == 1) x[n + i] = -INFINITY;        /* some of nothing */
            x[2 * n + i] = i == n / 2 ? NAN : -INFINITY; /* NaN is not hidden */
            x[3 * n + i] *= 1e36f;                       /* differences overflow */
        }
        case_output(&c, tdm_build_softmax(c.b, v));
        case_check(&c, 1e-12, NULL);
    }
    op_case c = case_begin("softmax of nothing");
    float *x = memory(3 * sizeof *x);
    const float want[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++) x[i] = -INFINITY;
    int32_t v = case_input(&c, TDM_TYPE_F32, SHAPE(3, 1, 1, 1), x);
    case_output(&c, tdm_build_softmax(c.b, v));
    case_check(&c, 0, want);
}

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
        double theta = pos * pow(base, -2.0 * i / p->n_rot);
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
        int first = p->rope_offset + (p->mode == TDM_ROPE_ADJACENT ? 2 * i : i);
        int second = first + (p->mode == TDM_ROPE_ADJACENT ? 1 : p->n_rot / 2);
        double a = (double)x[first], b = (double)x[second];
        y[first] = (float)((a * cos(angle) - b * sin(angle)) * mscale);
        y[second] = (float)((a * sin(angle) + b * cos(angle)) * mscale);
    }
}

static void rope_case(uint64_t *seed, const tdm_rope_params *p, int64_t head_dim, int64_t n_head,
                      int64_t n_tok, bool has_factor, bool is_permuted) {
    op_case c = case_begin("rope");
    snprintf(c.label, sizeof c.label, "rope: dim %d, n_rot %d at %d, mode %d, heads %d, tok %d%s%s",
             (int)head_dim, p->n_rot, p->rope_offset, p->mode, (int)n_head, (int)n_tok,
             has_factor ? ", factors" : "", p->ext_factor != 0 ? ", YaRN" : "");
    size_t n = (size_t)(head_dim * n_head * n_tok);
    float *x = random_floats(seed, n, 2.0f), *want = memory(n * sizeof *want), *factor = NULL;
    int32_t *pos = memory((size_t)n_tok * sizeof *pos);
    const int32_t some[] = {0, 1, -1, 17, 4095, 131071, 1000000};
    for (int64_t t = 0; t < n_tok; t++) pos[t] = some[(size_t)t % COUNT_OF(some)];
    /* Laid out [head_dim, n_tok, n_head] and seen through a permutation, or as it is. */
    const int64_t *ne =
        is_permuted ? SHAPE(head_dim, n_tok, n_head, 1) : SHAPE(head_dim, n_head, n_tok, 1);
    int32_t vx = case_input(&c, TDM_TYPE_F32, ne, x);
    if (is_permuted) vx = tdm_build_permute(c.b, vx, 0, 2, 1, 3);
    int32_t vp = case_input(&c, TDM_TYPE_I32, SHAPE(n_tok, 1, 1, 1), pos), vf = -1;
    if (has_factor) {
        factor = random_floats(seed, (size_t)p->n_rot / 2, 1.0f);
        for (int i = 0; i < p->n_rot / 2; i++) factor[i] = 1.0f + fabsf(factor[i]) * 8;
        vf = case_input(&c, TDM_TYPE_F32, SHAPE(p->n_rot / 2, 1, 1, 1), factor);
    }
    for (int64_t t = 0; t < n_tok; t++)
        for (int64_t h = 0; h < n_head; h++)
            rope_want(p, factor, pos[t],
                      x + (is_permuted ? h * n_tok + t : t * n_head + h) * head_dim,
                      want + (t * n_head + h) * head_dim, head_dim);
    int32_t y = tdm_build_rope(c.b, vx, vp, vf, p);
    case_output(&c, y);
    /* The oracle's own oracle: angles of 1e6 radians to 1e-9, results to f32. */
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    float *got = memory(n * sizeof *got);
    tdm_builder *again = c.b;
    if (tdm_builder_finish(again, &graph, &err) != TDM_OK) fail_msg("%s: %s", c.label, err.message);
    case_run_on(&c, reference, graph, (void *[]){got});
    double nmse = op_nmse(got, want, n);
    if (!(nmse < 1e-12)) fail_msg("%s: reference is off by NMSE %g", c.label, nmse);
    float *first = memory(n * sizeof *first);
    for (size_t isa = 0; isa < COUNT_OF(isa_names); isa++)
        for (size_t t = 0; t < COUNT_OF(thread_counts); t++) {
            if (fast[isa][t] == NULL) continue;
            case_run_on(&c, fast[isa][t], graph, (void *[]){got});
            nmse = op_nmse(got, want, n);
            if (!(nmse < 1e-12))
                fail_msg("%s: %s is off by NMSE %g", c.label, isa_names[isa], nmse);
            if (t == 0) memcpy(first, got, n * sizeof *got);
            assert_memory_equal(got, first, n * sizeof *got);
        }
    for (int i = 0; i < c.n_arg; i++) free(c.args[i].data);
    free(got);
    free(first);
    free(want);
    tdm_graph_free(graph);
    tdm_builder_destroy(c.b);
}

static void rope_modes(void **state) {
    (void)state;
    uint64_t seed = SEED;
    const int64_t heads[] = {1, 3, 8};
    const int64_t toks[] = {1, 2, 7};
    const int32_t rots[][3] = {{64, 64, 0}, {64, 32, 0}, {80, 80, 0},   {96, 64, 32},   {6, 6, 0},
                               {2, 2, 0},   {10, 0, 0},  {128, 126, 2}, {1040, 1040, 0}};
    for (size_t r = 0; r < COUNT_OF(rots); r++)
        for (int mode = 0; mode <= 1; mode++)
            for (size_t h = 0; h < COUNT_OF(heads); h++)
                for (size_t t = 0; t < COUNT_OF(toks); t++) {
                    tdm_rope_params p = {
                        .n_rot = rots[r][1], .rope_offset = rots[r][2], .mode = mode};
                    rope_case(&seed, &p, rots[r][0], heads[h], toks[t], false, (h + t) % 2 == 1);
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
    bool *is_taken = memory((size_t)n);
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
    uint64_t seed = SEED;
    const int64_t ks[] = {0, 1, 2, 5, 40};
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
        for (size_t j = 0; j < COUNT_OF(ks) + 1; j++) {
            int64_t n = lengths[l], k = j < COUNT_OF(ks) ? ks[j] : n, n_row = 4;
            if (k > n) continue;
            op_case c = case_begin("top_k");
            snprintf(c.label, sizeof c.label, "top_k: %d of %d", (int)k, (int)n);
            int32_t v = case_floats(&c, &seed, SHAPE(n, n_row, 1, 1), 4.0f), id = -1;
            float *x = c.args[0].data;
            for (int64_t i = 0; i < n; i++) {
                x[n + i] = floorf(x[n + i]); /* ties */
                if (i % 3 == 0) x[2 * n + i] = NAN;
                x[3 * n + i] = extremes[(size_t)i % COUNT_OF(extremes)];
            }
            float *value = memory((size_t)(k * n_row) * 4);
            int32_t *ids = memory((size_t)(k * n_row) * 4);
            for (int64_t r = 0; r < n_row; r++)
                top_k_want(x + r * n, n, k, value + r * k, ids + r * k);
            int32_t y = tdm_build_top_k(c.b, v, (int32_t)k, 1000, &id);
            for (int64_t i = 0; i < k * n_row; i++) ids[i] += 1000;
            /* Ids first, since case_check compares output 0 with what it must be. */
            case_output(&c, id);
            case_output(&c, y);
            case_check(&c, 0, ids);
            free(value);
            free(ids);
        }
    }
}

/* op.h's rule, done with sorting by repeated search. Close choices could fall either way by
 * rounding, so logits are multiples of 1/8 and biases of 1/16 where sigmoid or sums blur them. */
static void route_want(const tdm_route_params *p, const float *logit, const float *bias, int64_t n,
                       int32_t *id, float *weight) {
    double score[64], choice[64], sum = 0;
    bool is_out[64] = {false};
    double max = -INFINITY;
    for (int64_t e = 0; e < n; e++) max = fmax(max, (double)logit[e]);
    for (int64_t e = 0; e < n; e++) sum += exp((double)logit[e] - max);
    for (int64_t e = 0; e < n; e++) {
        double x = (double)logit[e];
        score[e] = p->score == TDM_ROUTE_SOFTMAX   ? exp(x - max) / sum
                   : p->score == TDM_ROUTE_SIGMOID ? 1 / (1 + exp(-x))
                                                   : x;
        choice[e] = score[e] + (bias != NULL ? (double)bias[e] : 0);
    }
    if (p->n_group > 1) {
        int64_t len = n / p->n_group;
        double rank[64];
        for (int g = 0; g < p->n_group; g++) {
            double best = -INFINITY, second = -INFINITY;
            for (int64_t e = g * len; e < (g + 1) * len; e++) {
                if (choice[e] > best)
                    second = best, best = choice[e];
                else if (choice[e] > second)
                    second = choice[e];
            }
            rank[g] = p->score == TDM_ROUTE_SIGMOID && len > 1 ? best + second : best;
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
        for (int64_t e = 0; e < n; e++)
            if (!is_out[e] && (best < 0 || choice[e] > choice[best])) best = e;
        is_out[best] = true;
        id[u] = (int32_t)best;
        weight[u] = (float)score[best];
    }
    if (p->score == TDM_ROUTE_TOP_SOFTMAX) {
        double top = 0;
        for (int u = 0; u < p->n_used; u++) top += exp((double)logit[id[u]] - (double)logit[id[0]]);
        for (int u = 0; u < p->n_used; u++)
            weight[u] = (float)(exp((double)logit[id[u]] - (double)logit[id[0]]) / top);
    }
    for (int u = 0; u < p->n_used; u++) total += (double)weight[u];
    for (int u = 0; u < p->n_used; u++)
        weight[u] = (float)((double)weight[u] / (p->normalize ? total : 1) *
                            (p->scale != 0 ? (double)p->scale : 1));
}

static void route_scorings(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int score = 0; score <= 2; score++) {
        for (int variant = 0; variant < 12; variant++) {
            const int64_t n = variant % 3 == 0 ? 8 : variant % 3 == 1 ? 60 : 5, n_tok = 9;
            bool has_bias = variant % 2 == 1 && score != TDM_ROUTE_TOP_SOFTMAX;
            tdm_route_params p = {.n_used = variant % 3 == 2 ? 5 : 3,
                                  .score = score,
                                  .normalize = variant / 2 % 2,
                                  .scale = variant >= 6 ? 2.5f : 0};
            if (variant >= 3 && n % 4 == 0) {
                p.n_group = 4;
                p.n_group_used = 2;
            }
            op_case c = case_begin("route");
            snprintf(c.label, sizeof c.label, "route: score %d, variant %d", score, variant);
            int32_t v = case_floats(&c, &seed, SHAPE(n, n_tok, 1, 1), 4.0f), vb = -1, weight = -1;
            float *x = c.args[0].data, *bias = NULL;
            for (int64_t i = 0; i < n * n_tok; i++) x[i] = floorf(x[i] * 8) / 8;
            if (has_bias) {
                bias = random_floats(&seed, (size_t)n, 1.0f);
                vb = case_input(&c, TDM_TYPE_F32, SHAPE(n, 1, 1, 1), bias);
            }
            int32_t *ids = memory((size_t)(p.n_used * n_tok) * 4);
            float *weights = memory((size_t)(p.n_used * n_tok) * 4);
            for (int64_t t = 0; t < n_tok; t++)
                route_want(&p, x + t * n, bias, n, ids + t * p.n_used, weights + t * p.n_used);
            int32_t id = tdm_build_moe_route(c.b, v, vb, &p, &weight);
            case_output(&c, id);
            case_output(&c, weight);
            /* Weights against the double ones, ids and equality of all paths in case_check. */
            tdm_graph *graph = NULL;
            tdm_error err = {0};
            if (tdm_builder_finish(c.b, &graph, &err) != TDM_OK)
                fail_msg("%s: %s", c.label, err.message);
            int32_t *got_id = memory((size_t)(p.n_used * n_tok) * 4);
            float *got = memory((size_t)(p.n_used * n_tok) * 4);
            for (size_t isa = 0; isa < COUNT_OF(isa_names); isa++)
                for (size_t t = 0; t < COUNT_OF(thread_counts); t++) {
                    if (fast[isa][t] == NULL) continue;
                    case_run_on(&c, fast[isa][t], graph, (void *[]){got_id, got});
                    for (int64_t i = 0; i < p.n_used * n_tok; i++)
                        if (got_id[i] != ids[i])
                            fail_msg("%s: %s chooses %d at %d, not %d", c.label, isa_names[isa],
                                     got_id[i], (int)i, ids[i]);
                    double nmse = op_nmse(got, weights, (size_t)(p.n_used * n_tok));
                    if (!(nmse < 1e-12)) fail_msg("%s: weights off by NMSE %g", c.label, nmse);
                }
            for (int i = 0; i < c.n_arg; i++) free(c.args[i].data);
            free(ids);
            free(weights);
            free(got_id);
            free(got);
            tdm_graph_free(graph);
            tdm_builder_destroy(c.b);
        }
    }
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comparisons_can_fail), cmocka_unit_test(copy_types),
        cmocka_unit_test(copy_views),           cmocka_unit_test(concat_axes),
        cmocka_unit_test(rows_types),           cmocka_unit_test(pair_shapes),
        cmocka_unit_test(scale_lengths),        cmocka_unit_test(act_lengths),
        cmocka_unit_test(act_extremes),         cmocka_unit_test(act_oracle),
        cmocka_unit_test(norm_lengths),         cmocka_unit_test(norm_oracle),
        cmocka_unit_test(softmax_rows),         cmocka_unit_test(rope_modes),
        cmocka_unit_test(top_k_rows),           cmocka_unit_test(route_scorings),
    };
    return cmocka_run_group_tests(tests, rigs_open, rigs_close);
}
