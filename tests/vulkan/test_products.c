/* SPDX-License-Identifier: MIT
 *
 * test_products.c: MATMUL, GET_ROWS and MOE_FFN of a GPU plugin for every type of weights, beside
 * the CPU's reference path: odd sizes, strided activations, few and many tokens. Every kernel is
 * met on any driver: the rigs lower limits so that each of them has to be used.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "tests/kernels/made_weight.h"
#include "tests/kernels/op_run.h"

#define SEED 77003u
/* Kernels multiply in f32: sums of products, in another order than the reference. */
#define BOUND 1e-10

enum { DOTS = 3, N_RIG = 5, MATRICES = N_RIG, N_ALL };
/* Small subgroups, whole workgroups and tiles, workgroups alone; the last two again with integer
 * dot products. Behind them the kernel of matrix hardware without such hardware, which takes a
 * short k: its tests alone use it. OP_CASE_MATRIX is another limit for it: with matrix_driver.c it
 * has the hardware's instructions. */
static const char *limits[N_ALL] = {"fuse=no",
                                    "lanes=no",
                                    "lanes=no shared=8192",
                                    "dot=any",
                                    "dot=any shared=8192",
                                    "lanes=no matrix=plain"};
/* x has 15 bits there, with a scale for 32 elements: of each half a step of error at most. */
#define DOT_BOUND 1e-8
/* Weights and x have 11 bits, rounded to nearest: rounded towards 0 they would be smaller by about
 * 2e-4 on average. */
#define MATRIX_BOUND       1e-6
#define MATRIX_SCALE_BOUND 1e-4
static op_rig *reference, *rigs[N_ALL];

static int setup(void **state) {
    (void)state;
    reference = op_rig_open("plain", "reference", 2);
    if (getenv("OP_CASE_MATRIX") != NULL) limits[MATRICES] = getenv("OP_CASE_MATRIX");
    for (int i = 0; i < N_ALL; i++) {
        const tdm_option options[] = {{"allow-cpu", "yes"},
                                      {"test-limits", limits[i]},
                                      {"matrix", i == MATRICES ? "yes" : "no"}};
        rigs[i] = op_rig_open_plugin("vulkan", options, 3);
    }
    print_message("seed %u\n", SEED);
    return reference == NULL;
}

static int teardown(void **state) {
    (void)state;
    op_rig_close(reference);
    for (int i = 0; i < N_ALL; i++) op_rig_close(rigs[i]);
    return 0;
}

/* ---- One graph ------------------------------------------------------------------------------- */

enum { MAX_ARG = 10 };

typedef struct scene {
    tdm_builder *b;
    op_arg args[MAX_ARG];
    int n_arg;
} scene;

static scene scene_begin(void) {
    scene s = {.n_arg = 0};
    if (tdm_builder_create(&s.b, NULL) != TDM_OK) fail_msg("no memory");
    return s;
}

static int32_t add(scene *s, int32_t value, void *data) {
    s->args[s->n_arg++] = (op_arg){.value = value, .data = data};
    return value;
}

static int32_t weight_add(scene *s, uint64_t *seed, tdm_type type, const int64_t *ne,
                          uint32_t usage) {
    return add(s, tdm_build_weight(s->b, "w", type, ne, usage),
               made_weight_create(seed, type, MADE_RANDOM, ne[0], ne[1] * ne[2]));
}

static int32_t floats_add(scene *s, uint64_t *seed, const int64_t *ne) {
    size_t n = (size_t)tdm_shape_count(ne);
    float *x = made_alloc(n * sizeof *x + 1);
    op_random_fill(seed, x, n, 1);
    return add(s, tdm_build_input(s->b, "x", TDM_TYPE_F32, ne), x);
}

/* Ids lo .. hi - 1, and some of -1. */
static int32_t ids_add(scene *s, uint64_t *seed, const int64_t *ne, int lo, int hi) {
    size_t n = (size_t)tdm_shape_count(ne);
    int32_t *id = made_alloc(n * sizeof *id + 1);
    for (size_t i = 0; i < n; i++) {
        uint64_t r = op_random_next(seed) >> 20;
        id[i] = r % 7 == 0 ? -1 : lo + (int32_t)(r / 7 % (uint64_t)(hi - lo));
    }
    return add(s, tdm_build_input(s->b, "id", TDM_TYPE_I32, ne), id);
}

/* The factor by which `got` is larger than `want` on the whole, less 1. */
static double scale_error(const float *got, const float *want, size_t n) {
    double both = 0, own = 0;
    for (size_t i = 0; i < n; i++) {
        both += (double)got[i] * want[i];
        own += (double)want[i] * want[i];
    }
    return both / own - 1;
}

/* Runs on rigs first .. last - 1 and compares; bound 0 = equal bits. Frees the scene. */
static void scene_check_on(int first, int last, scene *s, int32_t y, double bound,
                           const char *label) {
    tdm_graph *graph = NULL;
    tdm_error err = {.struct_size = sizeof err};
    size_t n = (size_t)tdm_shape_count(tdm_build_shape(s->b, y));
    float *want = made_alloc(n * sizeof *want), *got = made_alloc(n * sizeof *got);
    tdm_build_output(s->b, y, "y");
    if (tdm_builder_finish(s->b, &graph, &err) != TDM_OK) fail_msg("%s: %s", label, err.message);
    s->args[s->n_arg] = (op_arg){.value = y, .data = want};
    op_rig_run(reference, graph, s->args, s->n_arg + 1);
    for (int i = first; i < last; i++) {
        if (rigs[i] == NULL) continue;
        s->args[s->n_arg].data = got;
        op_rig_run(rigs[i], graph, s->args, s->n_arg + 1);
        double nmse = bound == 0 ? 0 : op_nmse(got, want, n);
        double most = i >= DOTS && bound < DOT_BOUND ? DOT_BOUND : bound;
        if (i == MATRICES) most = MATRIX_BOUND;
        if (bound == 0 ? memcmp(got, want, n * sizeof *got) != 0 : !(nmse <= most))
            fail_msg("%s, limits '%s': NMSE %g", label, limits[i], nmse);
        double scale = i == MATRICES ? scale_error(got, want, n) : 0;
        if (!(fabs(scale) <= MATRIX_SCALE_BOUND))
            fail_msg("%s, limits '%s': larger by a factor of 1 + %g", label, limits[i], scale);
    }
    for (int i = 0; i < s->n_arg; i++) free(s->args[i].data);
    free(want);
    free(got);
    tdm_graph_free(graph);
    tdm_builder_destroy(s->b);
}

static void scene_check(scene *s, int32_t y, double bound, const char *label) {
    scene_check_on(0, N_RIG, s, y, bound, label);
}

/* ---- Products -------------------------------------------------------------------------------- */

/* x is dense, or rows of a wider value, or its elements lie apart. */
typedef enum x_view { X_DENSE, X_ROWS, X_TURNED, N_X_VIEW } x_view;

static int32_t x_add(scene *s, uint64_t *seed, x_view view, int64_t k, int64_t n_tok) {
    if (view == X_TURNED) {
        int32_t x = floats_add(s, seed, (const int64_t[]){n_tok, k, 1, 1});
        return tdm_build_permute(s->b, x, 1, 0, 2, 3);
    }
    if (view == X_DENSE) return floats_add(s, seed, (const int64_t[]){k, n_tok, 1, 1});
    int32_t x = floats_add(s, seed, (const int64_t[]){k + 3, n_tok + 1, 1, 1});
    const int64_t ne[] = {k, n_tok, 1, 1}, offset[] = {3, 1, 0, 0};
    return tdm_build_slice(s->b, x, offset, ne);
}

static void product_on(int first, int last, uint64_t *seed, tdm_type type, uint32_t usage,
                       x_view view, int64_t k, int64_t n, int64_t n_tok) {
    char label[128];
    scene s = scene_begin();
    snprintf(label, sizeof label, "%s, usage %u, view %d, [%d, %d] x %d", tdm_type_name(type),
             (unsigned)usage, (int)view, (int)k, (int)n, (int)n_tok);
    int32_t w = weight_add(&s, seed, type, (const int64_t[]){k, n, 1, 1}, usage);
    int32_t x = x_add(&s, seed, view, k, n_tok);
    scene_check_on(first, last, &s, tdm_build_matmul(s.b, w, x), BOUND, label);
}

static void product(uint64_t *seed, tdm_type type, uint32_t usage, x_view view, int64_t k,
                    int64_t n, int64_t n_tok) {
    /* For types without blocks, and canonical ones, the last rigs have the others' kernels. */
    bool has_bytes = tdm_type_get_info(type).is_quantized && usage != 0;
    product_on(0, has_bytes ? N_RIG : DOTS, seed, type, usage, view, k, n, n_tok);
}

/* Kernels read every type by the same functions, and compiling them takes the time. So each type is
 * on one kernel with floats and one with bytes; kernels with tiles have one type of each form: with
 * offsets or not, with a scale for 16 elements or for 32. */
static bool is_of_tiles(tdm_type type) {
    static const tdm_type types[] = {TDM_TYPE_F32,  TDM_TYPE_F16,  TDM_TYPE_BF16, TDM_TYPE_Q4_0,
                                     TDM_TYPE_Q4_1, TDM_TYPE_Q2_K, TDM_TYPE_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i] == type) return true;
    return false;
}

/* k of one block, or an odd length. */
static void every_type(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int i = 0; i < MADE_TYPES; i++) {
        tdm_type type = made_types[i];
        int64_t len = tdm_type_get_info(type).block_len;
        bool has_blocks = len > 1;
        product_on(0, 1, &seed, type, TDM_USAGE_MATMUL, X_DENSE, has_blocks ? len : 75, 37, 1);
        /* Canonical bytes of every type are read by `rows`. */
        if (i % 3 == 0) product_on(0, 1, &seed, type, 0, X_DENSE, has_blocks ? 2 * len : 33, 5, 2);
        if (has_blocks)
            product_on(DOTS, DOTS + 1, &seed, type, TDM_USAGE_MATMUL, X_DENSE, 3 * len, 37, 2);
        /* A codebook for float kernels of whole workgroups. */
        if (type == TDM_TYPE_IQ4_NL)
            for (int64_t n_tok = 1; n_tok < 10; n_tok += 8)
                product_on(1, 2, &seed, type, TDM_USAGE_MATMUL, X_DENSE, 3 * len, 131, n_tok);
        if (!is_of_tiles(type)) continue;
        product_on(0, 2, &seed, type, TDM_USAGE_MATMUL, X_DENSE, has_blocks ? 3 * len : 96, 131, 9);
        if (has_blocks)
            product_on(DOTS, DOTS + 1, &seed, type, TDM_USAGE_MATMUL, X_DENSE, 3 * len, 131, 9);
    }
}

static void every_number_of_tokens(void **state) {
    (void)state;
    uint64_t seed = SEED;
    static const int64_t counts[] = {1, 7, 8, 9, 64};
    static const tdm_type types[] = {TDM_TYPE_Q4_0, TDM_TYPE_F16};
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            product(&seed, types[t], TDM_USAGE_MATMUL, X_DENSE, 320, 67, counts[i]);
}

static void every_view(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (x_view view = X_ROWS; view < N_X_VIEW; view++) { /* other tests have dense ones */
        product(&seed, TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, view, 64, 35, 3);
        product(&seed, TDM_TYPE_F32, view == X_ROWS ? 0 : TDM_USAGE_MATMUL, view, 45, 35, 11);
    }
}

/* Many rows, so that tiles of every size are in use; a long k; one for which the loops of a thread
 * that has all of k are longer than some drivers allow: they would end there unnoticed. */
static void long_matrices(void **state) {
    (void)state;
    uint64_t seed = SEED;
    product(&seed, TDM_TYPE_Q4_0, TDM_USAGE_MATMUL, X_DENSE, 64, 70001, 1);
    product_on(DOTS, DOTS + 1, &seed, TDM_TYPE_Q4_K, TDM_USAGE_MATMUL, X_DENSE, 2048, 37, 1);
    product(&seed, TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, X_DENSE, 51200, 33, 1);
    product(&seed, TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, X_DENSE, 51200, 33, 10);
    product_on(0, 1, &seed, TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, X_DENSE, 192000, 33, 1);
    product_on(0, 1, &seed, TDM_TYPE_F32, TDM_USAGE_MATMUL, X_DENSE, 262400, 9, 1);
}

static void every_head(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int64_t n_tok = 1; n_tok < 20; n_tok += 9) {
        scene s = scene_begin();
        int32_t w =
            weight_add(&s, &seed, TDM_TYPE_Q4_0, (const int64_t[]){64, 19, 5, 1}, TDM_USAGE_MATMUL);
        int32_t x = floats_add(&s, &seed, (const int64_t[]){64, n_tok, 5, 1});
        x = tdm_build_permute(s.b, x, 0, 2, 1, 3);
        scene_check(&s, tdm_build_matmul(s.b, w, x), BOUND, "a matrix for each head");
    }
}

/* y of n_tok tokens whose roles are given; NULL: without roles. */
static void roles_run(op_rig *rig, uint64_t seed, tdm_type type, const int64_t *w_ne, int n_tok,
                      const int32_t *roles, float *y) {
    scene s = scene_begin();
    tdm_graph *graph = NULL;
    const int64_t role_ne[] = {n_tok, 1, 1, 1}, many[] = {w_ne[0], w_ne[2], n_tok, 1};
    const int64_t one[] = {w_ne[0], n_tok, 1, 1};
    int32_t w = weight_add(&s, &seed, type, w_ne, TDM_USAGE_MATMUL);
    int32_t x = floats_add(&s, &seed, w_ne[2] > 1 ? many : one);
    int n_own = s.n_arg;
    if (roles != NULL)
        tdm_build_set_role(s.b, add(&s, tdm_build_input(s.b, "role", TDM_TYPE_I32, role_ne),
                                    (void *)(uintptr_t)roles));
    int32_t out = add(&s, tdm_build_matmul(s.b, w, x), y);
    tdm_build_output(s.b, out, "y");
    if (tdm_builder_finish(s.b, &graph, NULL) != TDM_OK) fail_msg("a graph with roles");
    op_rig_run(rig, graph, s.args, s.n_arg);
    for (int i = 0; i < n_own; i++) free(s.args[i].data);
    tdm_graph_free(graph);
    tdm_builder_destroy(s.b);
}

/* A token of a prompt has 8 bits, others 15, whatever else is in the step. */
static void roles_check(op_rig *rig, tdm_type type, int64_t n_head, int n_tok) {
    const int64_t w_ne[] = {512, 21, n_head, 1};
    const size_t n = 21 * (size_t)n_head, size = n * (size_t)n_tok * sizeof(float);
    float *want = made_alloc(size), *mixed = made_alloc(size), *prompt = made_alloc(size);
    int32_t roles[64], prompts[64];
    for (int t = 0; t < n_tok; t++) {
        roles[t] = t % 3 == 0 ? TDM_ROLE_PROMPT : t % 3 == 1 ? TDM_ROLE_GENERATED : -1;
        prompts[t] = TDM_ROLE_PROMPT;
    }
    roles_run(reference, SEED, type, w_ne, n_tok, NULL, want);
    roles_run(rig, SEED, type, w_ne, n_tok, roles, mixed);
    roles_run(rig, SEED, type, w_ne, n_tok, prompts, prompt);
    for (int t = 0; t < n_tok; t++) {
        double of_mixed = op_nmse(mixed + n * (size_t)t, want + n * (size_t)t, n);
        double of_prompt = op_nmse(prompt + n * (size_t)t, want + n * (size_t)t, n);
        if (!(of_prompt > 1e-7 && of_prompt < 1e-3))
            fail_msg("%s: token %d of a prompt: NMSE %g", tdm_type_name(type), t, of_prompt);
        if (t % 3 == 0)
            assert_memory_equal(mixed + n * (size_t)t, prompt + n * (size_t)t, n * sizeof(float));
        else if (!(of_mixed < DOT_BOUND))
            fail_msg("%s: generated token %d: NMSE %g", tdm_type_name(type), t, of_mixed);
    }
    free(want);
    free(mixed);
    free(prompt);
}

static void every_role(void **state) {
    (void)state;
    if (rigs[DOTS] == NULL) skip();
    roles_check(rigs[DOTS], TDM_TYPE_Q4_0, 1, 2);
    roles_check(rigs[DOTS], TDM_TYPE_Q4_K, 1, 40);
    roles_check(rigs[DOTS], TDM_TYPE_Q4_0, 3, 10);
    roles_check(rigs[DOTS + 1], TDM_TYPE_Q4_0, 1, 10);
}

/* Rows that bytes cannot hold: of NaN, infinities, zeros and numbers near the ends of f32. Other
 * rows of the step are as without them. */
static void extreme_rows_check(op_rig *rig, double bound) {
    enum { K = 64, N = 19, N_TOK = 9 };
    uint64_t seed = SEED;
    void *w_data = made_weight_create(&seed, TDM_TYPE_Q8_0, MADE_RANDOM, K, N);
    float x[N_TOK * K], want[N_TOK * N], got[N_TOK * N];
    op_random_fill(&seed, x, N_TOK * K, 1);
    x[K + 3] = NAN;
    x[2 * K + 40] = INFINITY;
    for (int i = 0; i < K; i++) {
        x[3 * K + i] *= 1e35f;
        x[4 * K + i] *= 1e-30f;
        x[5 * K + i] = 0;
    }
    op_rig *both[] = {reference, rig};
    float *results[] = {want, got};
    for (int i = 0; i < 2; i++) {
        scene s = scene_begin();
        tdm_graph *graph = NULL;
        const int64_t w_ne[] = {K, N, 1, 1}, x_ne[] = {K, N_TOK, 1, 1};
        int32_t w =
            add(&s, tdm_build_weight(s.b, "w", TDM_TYPE_Q8_0, w_ne, TDM_USAGE_MATMUL), w_data);
        int32_t out =
            tdm_build_matmul(s.b, w, add(&s, tdm_build_input(s.b, "x", TDM_TYPE_F32, x_ne), x));
        tdm_build_output(s.b, add(&s, out, results[i]), "y");
        if (tdm_builder_finish(s.b, &graph, NULL) != TDM_OK) fail_msg("a graph");
        op_rig_run(both[i], graph, s.args, s.n_arg);
        tdm_graph_free(graph);
        tdm_builder_destroy(s.b);
    }
    for (int t = 0; t < N_TOK; t++)
        for (int i = 0; i < N && (t == 1 || t == 2); i++)
            if (isfinite(got[t * N + i])) fail_msg("row %d: y %d is %g", t, i, got[t * N + i]);
    for (int i = 0; i < N; i++) assert_true(got[5 * N + i] == 0);
    for (int t = 0; t < N_TOK; t++) {
        if (t == 5) continue;
        double scale = t == 3 ? 1e-35 : t == 4 ? 1e30 : 1;
        for (int i = 0; i < N; i++) {
            got[t * N + i] = (float)(got[t * N + i] * scale);
            want[t * N + i] = (float)(want[t * N + i] * scale);
        }
        double nmse = t == 1 || t == 2 ? 0 : op_nmse(got + t * N, want + t * N, N);
        if (!(nmse < bound)) fail_msg("row %d: NMSE %g", t, nmse);
    }
    free(w_data);
}

static void extreme_rows(void **state) {
    (void)state;
    if (rigs[DOTS] == NULL) skip();
    extreme_rows_check(rigs[DOTS], DOT_BOUND);
    extreme_rows_check(rigs[MATRICES], MATRIX_BOUND);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Rows are read by one kernel, whatever the limits. */
static void rows(void **state) {
    (void)state;
    uint64_t seed = SEED;
    static const uint32_t usages[] = {TDM_USAGE_ROWS, TDM_USAGE_ROWS | TDM_USAGE_MATMUL, 0};
    for (int i = 0; i < MADE_TYPES; i++)
        for (int u = 0; u < 3; u++) {
            int64_t len = tdm_type_get_info(made_types[i]).block_len;
            scene s = scene_begin();
            int64_t k = len == 1 ? 77 : 3 * len;
            int32_t table =
                weight_add(&s, &seed, made_types[i], (const int64_t[]){k, 11, 1, 1}, usages[u]);
            int32_t id = ids_add(&s, &seed, (const int64_t[]){9, 1, 1, 1}, 3, 17);
            scene_check_on(0, 1, &s, tdm_build_get_rows(s.b, table, id, 4), 0,
                           tdm_type_name(made_types[i]));
        }
}

/* ---- Experts --------------------------------------------------------------------------------- */

static void experts_on(int first, int last, uint64_t *seed, tdm_type type, int64_t n_tok,
                       int n_used) {
    char label[64];
    scene s = scene_begin();
    const int64_t up_ne[] = {64, 96, 5, 1}, down_ne[] = {96, 64, 5, 1};
    const int64_t pair_ne[] = {n_used, n_tok, 1, 1};
    snprintf(label, sizeof label, "%d of 5 experts of %s, %d tokens", n_used, tdm_type_name(type),
             (int)n_tok);
    int32_t x = floats_add(&s, seed, (const int64_t[]){64, n_tok, 1, 1});
    int32_t id = ids_add(&s, seed, pair_ne, 2, 11); /* some of them foreign: 4 .. 8 are here */
    int32_t weight = floats_add(&s, seed, pair_ne);
    int32_t gate = weight_add(&s, seed, type, up_ne, TDM_USAGE_EXPERT);
    int32_t up = weight_add(&s, seed, type, up_ne, TDM_USAGE_EXPERT);
    int32_t down = weight_add(&s, seed, type, down_ne, TDM_USAGE_EXPERT);
    int32_t y = tdm_build_moe_ffn(s.b, x, id, weight, gate, up, down, TDM_ACT_SILU, 4, 12);
    scene_check_on(first, last, &s, y, 1e-9, label);
}

static void experts(uint64_t *seed, tdm_type type, int64_t n_tok, int n_used) {
    experts_on(0, N_RIG, seed, type, n_tok, n_used);
}

/* Experts with biases of the matrices in mask `biases`, and with what changes h. */
static void formed(uint64_t *seed, const tdm_moe_params *p, int biases, int64_t n_tok) {
    char label[96];
    scene s = scene_begin();
    const int64_t up_ne[] = {64, 96, 5, 1}, down_ne[] = {96, 64, 5, 1},
                  pair_ne[] = {3, n_tok, 1, 1};
    snprintf(label, sizeof label, "experts, %d tokens, limit %g, weights first %d, biases %d",
             (int)n_tok, (double)p->limit, (int)p->is_weighted_first, biases);
    int32_t x = floats_add(&s, seed, (const int64_t[]){64, n_tok, 1, 1});
    int32_t id = ids_add(&s, seed, pair_ne, 2, 11);
    int32_t weight = floats_add(&s, seed, pair_ne);
    int32_t matrix[3], bias[3] = {-1, -1, -1};
    for (int i = 0; i < 3; i++) {
        const int64_t *ne = i == 2 ? down_ne : up_ne;
        matrix[i] = weight_add(&s, seed, TDM_TYPE_Q4_0, ne, TDM_USAGE_EXPERT);
        if ((biases >> i & 1) != 0)
            bias[i] = floats_add(&s, seed, (const int64_t[]){ne[1], 5, 1, 1});
    }
    scene_check(&s, tdm_build_moe_ffn_biased(s.b, x, id, weight, matrix, bias, p), 1e-9, label);
}

static void every_form(void **state) {
    (void)state;
    uint64_t seed = SEED;
    const tdm_moe_params plain = {.act = TDM_ACT_SILU, .first_expert = 4, .n_expert_all = 12};
    tdm_moe_params oai = plain, first = plain, act = plain, soft = plain;
    act.limit = -0.5f;
    oai.limit = 2;
    oai.alpha = 1.702f;
    oai.up_offset = 1;
    first.is_weighted_first = 1;
    soft.act = TDM_ACT_SIGMOID;
    soft.alpha = 0.25f;
    soft.limit = 3;
    soft.is_soft = 1;
    for (int64_t n_tok = 1; n_tok < 20; n_tok += 11) { /* by pairs, and sorted */
        formed(&seed, &oai, 7, n_tok);
        formed(&seed, &first, 6, n_tok);
        formed(&seed, &plain, 5, n_tok);
        formed(&seed, &act, 7, n_tok);
        formed(&seed, &soft, 7, n_tok);
    }
}

/* Products of each choice, of one row of x for a token or of one for each choice. */
static void choices(uint64_t *seed, tdm_type type, int64_t n_row, int64_t n_tok) {
    char label[96];
    scene s = scene_begin();
    snprintf(label, sizeof label, "products of experts, %s, %d tokens of %d rows",
             tdm_type_name(type), (int)n_tok, (int)n_row);
    int32_t w = weight_add(&s, seed, type, (const int64_t[]){64, 37, 5, 1}, TDM_USAGE_EXPERT);
    int32_t x = floats_add(&s, seed, (const int64_t[]){64, n_row, n_tok, 1});
    int32_t id = ids_add(&s, seed, (const int64_t[]){3, n_tok, 1, 1}, 2, 11);
    scene_check(&s, tdm_build_moe_matmul(s.b, w, x, id, 4, 12), 1e-9, label);
}

static void every_choice(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int64_t n_row = 1; n_row < 4; n_row += 2) {
        choices(&seed, TDM_TYPE_Q4_0, n_row, 1);
        choices(&seed, TDM_TYPE_Q4_0, n_row, 8);
        choices(&seed, TDM_TYPE_Q4_0, n_row, 9); /* sorted from here on */
        choices(&seed, TDM_TYPE_F32, n_row, 20);
        choices(&seed, TDM_TYPE_F16, n_row, 3);
    }
}

static void every_number_of_experts(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int n_used = 1; n_used < 5; n_used += 3) {
        experts(&seed, TDM_TYPE_Q4_0, 1, n_used);
        experts(&seed, TDM_TYPE_Q4_0, 8, n_used);
        experts(&seed, TDM_TYPE_Q4_0, 9, n_used);
        experts(&seed, TDM_TYPE_Q4_0, 70, n_used);
    }
    experts(&seed, TDM_TYPE_F32, 3, 2);
    experts(&seed, TDM_TYPE_F32, 33, 2);
}

/* ---- Matrix hardware ------------------------------------------------------------------------- */

/* Types of each form, and f16; part of a tile, several of them, an odd k; a view; heads; sorted
 * pairs of experts, with gate and up in one step and by themselves. */
static void matrices(void **state) {
    (void)state;
    uint64_t seed = SEED;
    const int m = MATRICES;
    if (rigs[m] == NULL) skip();
    static const tdm_type types[] = {TDM_TYPE_Q8_0, TDM_TYPE_Q4_K, TDM_TYPE_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        product_on(m, m + 1, &seed, types[i], TDM_USAGE_MATMUL, X_DENSE, 256, 67, 11);
    product_on(m, m + 1, &seed, TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, X_DENSE, 96, 131, 130);
    product_on(m, m + 1, &seed, TDM_TYPE_Q8_0, TDM_USAGE_MATMUL, X_TURNED, 64, 35, 9);
    product_on(m, m + 1, &seed, TDM_TYPE_F16, TDM_USAGE_MATMUL, X_ROWS, 75, 37, 66);
    scene s = scene_begin();
    int32_t w =
        weight_add(&s, &seed, TDM_TYPE_Q8_0, (const int64_t[]){64, 19, 5, 1}, TDM_USAGE_MATMUL);
    int32_t x = floats_add(&s, &seed, (const int64_t[]){64, 12, 5, 1});
    x = tdm_build_permute(s.b, x, 0, 2, 1, 3);
    scene_check_on(m, m + 1, &s, tdm_build_matmul(s.b, w, x), BOUND, "a matrix for each head");
    experts_on(m, m + 1, &seed, TDM_TYPE_Q8_0, 21, 2);
}

/* test_products [PATTERN]: those whose names match alone. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),
        cmocka_unit_test(every_choice),
        cmocka_unit_test(every_number_of_experts),
        cmocka_unit_test(rows),
        cmocka_unit_test(every_number_of_tokens),
        cmocka_unit_test(every_view),
        cmocka_unit_test(long_matrices),
        cmocka_unit_test(every_head),
        cmocka_unit_test(every_role),
        cmocka_unit_test(extreme_rows),
        cmocka_unit_test(matrices),
        cmocka_unit_test(every_type),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, setup, teardown);
}
