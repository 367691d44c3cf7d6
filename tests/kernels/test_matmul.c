/* SPDX-License-Identifier: MIT
 *
 * test_matmul.c: the MATMUL op of every weight type, on the reference path and with the kernels of
 * every instruction set, against sums in double made here.
 *
 * The bounds. The reference rounds once: 1e-6 of the sum of magnitudes is generous. A fast kernel
 * uses the weights as they are and may round activations to 15 or 8 bits: each by at most half a
 * step of its block of 32, largest / 32512 or largest / 254; added up against |w| that is a strict
 * bound for each output, and `slack` is for the f32 sums. A matrix unit takes the tokens of
 * prompts, with activations and weights as bf16.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "tests/kernels/made_weight.h"
#include "tests/kernels/op_run.h"

enum { N_FAST = 16, MAX_TOK = 17, MAX_ROLE = 100 };

typedef struct rigs {
    op_rig *reference;
    op_rig *fast[N_FAST];
} rigs;

/* Rigs of one instruction set and form of activations stand together. */
static const struct {
    const char *isa;
    int n_thread;
    const char *bits;
    double limit; /* twice the largest code of an activation; 0 = bf16 */
} fast_rigs[N_FAST] = {
    {"plain", 2, "15", 32512},  {"avx2", 2, "15", 32512},   {"avx512", 1, "15", 32512},
    {"avx512", 2, "15", 32512}, {"avx512", 3, "15", 32512}, {"plain", 2, "8", 254},
    {"avx2", 1, "8", 254},      {"avx2", 3, "8", 254},      {"avx512", 1, "8", 254},
    {"avx512", 3, "8", 254},    {"neon", 1, "15", 32512},   {"neon", 3, "15", 32512},
    {"neon", 1, "8", 254},      {"neon", 3, "8", 254},      {"amx", 1, "8", 0},
    {"amx", 3, "8", 0}};

static int setup(void **state) {
    rigs *r = calloc(1, sizeof *r);
    if (r == NULL) return -1;
    *state = r;
    r->reference = op_rig_open("plain", "reference", 2);
    for (int i = 0; i < N_FAST; i++) {
        r->fast[i] = op_rig_open_bits(fast_rigs[i].isa, fast_rigs[i].bits, fast_rigs[i].n_thread);
    }
    return 0;
}

static int teardown(void **state) {
    rigs *r = *state;
    op_rig_close(r->reference);
    for (int i = 0; i < N_FAST; i++) op_rig_close(r->fast[i]);
    free(r);
    return 0;
}

/* ---- One product ----------------------------------------------------------------------------- */

typedef struct product {
    tdm_type type;
    int64_t k, n, n_tok;
    uint8_t *w;
    float *x;
    double *want;      /* [n, n_tok] */
    double *magnitude; /* sum of |w x| */
    double *rounding;  /* what activations add that are off by the largest of their block */
    double *slack;     /* what f32 sums may add */
} product;

static product product_create(uint64_t *seed, tdm_type type, made_kind kind, int64_t k, int64_t n,
                              int64_t n_tok) {
    size_t n_out = (size_t)(n * n_tok);
    product p = {.type = type, .k = k, .n = n, .n_tok = n_tok};
    p.w = made_weight_create(seed, type, kind, k, n);
    p.x = made_alloc((size_t)(k * n_tok) * sizeof *p.x);
    op_random_fill(seed, p.x, (size_t)(k * n_tok), 3.0f);
    if (kind == MADE_LARGEST ||
        kind == MADE_SMALLEST) { /* every code the largest or, in odd tokens, the smallest */
        for (int64_t i = 0; i < k * n_tok; i++) p.x[i] = i / k % 2 == 0 ? 3.0f : -3.0f;
    }
    p.want = made_alloc(4 * n_out * sizeof *p.want);
    p.magnitude = p.want + n_out;
    p.rounding = p.magnitude + n_out;
    p.slack = p.rounding + n_out;
    float *row = made_alloc((size_t)k * sizeof *row);
    for (int64_t j = 0; j < n; j++) {
        made_weight_row(type, p.w, k, j, row);
        double largest_w = 0;
        for (int64_t i = 0; i < k; i++) largest_w = fmax(largest_w, fabs((double)row[i]));
        for (int64_t t = 0; t < n_tok; t++) {
            const float *x = p.x + t * k;
            double sum = 0, magnitude = 0, rounding = 0, sum_x = 0;
            for (int64_t b = 0; b < k; b += 32) {
                double largest = 0, w_abs = 0;
                for (int64_t i = b; i < k && i < b + 32; i++) {
                    sum += (double)row[i] * (double)x[i];
                    magnitude += fabs((double)row[i] * (double)x[i]);
                    largest = fmax(largest, fabs((double)x[i]));
                    sum_x += fabs((double)x[i]);
                    w_abs += fabs((double)row[i]);
                }
                rounding += largest * w_abs;
            }
            int64_t o = t * n + j;
            p.want[o] = sum;
            p.magnitude[o] = magnitude;
            p.rounding[o] = rounding;
            /* A minimum and a scaled code may cancel to a small weight: hence the largest one. */
            p.slack[o] = 3e-6 * sum_x * largest_w;
        }
    }
    free(row);
    return p;
}

static void product_destroy(product *p) {
    free(p->w);
    free(p->x);
    free(p->want);
}

/* A role for each of n_token tokens: all are those of prompts. */
static op_arg prompt_roles(tdm_builder *b, int64_t n_token) {
    static int32_t roles[MAX_ROLE];
    int64_t ne[] = {n_token, 1, 1, 1};
    assert_true(n_token <= MAX_ROLE);
    for (int t = 0; t < MAX_ROLE; t++) roles[t] = TDM_ROLE_PROMPT;
    int32_t role = tdm_build_input(b, "role", TDM_TYPE_I32, ne);
    tdm_build_set_role(b, role);
    return (op_arg){.value = role, .data = roles};
}

/* A graph of one MATMUL of tokens of prompts, run on a rig. */
static void product_run(op_rig *rig, const product *p, uint32_t usage, float *y) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    int64_t w_ne[] = {p->k, p->n, 1, 1}, x_ne[] = {p->k, p->n_tok, 1, 1};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t w = tdm_build_weight(b, "w", p->type, w_ne, usage);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    op_arg roles = prompt_roles(b, p->n_tok);
    int32_t out = tdm_build_matmul(b, w, x);
    tdm_build_output(b, out, "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    op_arg args[] = {
        {.value = w, .data = p->w}, {.value = x, .data = p->x}, {.value = out, .data = y}, roles};
    op_rig_run(rig, graph, args, 4);
    tdm_graph_free(graph);
}

/* What output `o` may be off by on rig number `rig`, -1 being the reference. */
static double bound_of(const product *p, int rig, int64_t o) {
    if (rig < 0) return p->magnitude[o] * 1e-6 + 1e-37;
    if (fast_rigs[rig].limit == 0) /* numbers below 2^-126 count as zeros */
        return p->magnitude[o] * (0x1p-8 + 0x1p-17) + p->slack[o] + (double)p->k * 0x1p-123;
    return p->rounding[o] / fast_rigs[rig].limit * 1.0001 + p->slack[o];
}

static void product_check(const product *p, int rig, made_kind kind, const float *y) {
    for (int64_t o = 0; o < p->n * p->n_tok; o++) {
        double bound = bound_of(p, rig, o), off = fabs((double)y[o] - p->want[o]);
        if (!(off <= bound)) {
            fail_msg(
                "%s, %s bits, %s kind %d, [%lld, %lld] x %lld: y[%lld] = %g, want %g, off by %g, "
                "allowed %g",
                rig < 0 ? "reference" : fast_rigs[rig].isa, rig < 0 ? "32" : fast_rigs[rig].bits,
                tdm_type_name(p->type), (int)kind, (long long)p->k, (long long)p->n,
                (long long)p->n_tok, (long long)o, (double)y[o], p->want[o], off, bound);
        }
    }
}

/* Rigs that differ in their threads alone. */
static bool is_alike(int a, int b) {
    return strcmp(fast_rigs[a].isa, fast_rigs[b].isa) == 0 &&
           strcmp(fast_rigs[a].bits, fast_rigs[b].bits) == 0;
}

static void product_test(rigs *r, uint64_t *seed, tdm_type type, made_kind kind, int64_t k,
                         int64_t n, int64_t n_tok) {
    product p = product_create(seed, type, kind, k, n, n_tok);
    size_t size = (size_t)(n * n_tok) * sizeof(float);
    float *y = made_alloc(size), *one = made_alloc(size);
    product_run(r->reference, &p, TDM_USAGE_MATMUL, y);
    product_check(&p, -1, kind, y);
    for (int i = 0; i < N_FAST; i++) {
        if (r->fast[i] == NULL) continue;
        product_run(r->fast[i], &p, TDM_USAGE_MATMUL, y);
        product_check(&p, i, kind, y);
        if (i > 0 && is_alike(i, i - 1) && memcmp(y, one, size) != 0) {
            fail_msg("%s: %d threads give other bits than %d", tdm_type_name(type),
                     fast_rigs[i].n_thread, fast_rigs[i - 1].n_thread);
        }
        memcpy(one, y, size);
    }
    free(y);
    free(one);
    product_destroy(&p);
}

/* x's rows h of n_head heads of tokens with roles times matrices h; `roles` NULL: it has none. */
static void roles_run(op_rig *rig, const product *p, int64_t n_head, const int32_t *roles,
                      float *y) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    int64_t w_ne[] = {p->k, p->n / n_head, n_head, 1};
    int64_t x_ne[] = {p->k, n_head, p->n_tok / n_head, 1}, role_ne[] = {p->n_tok / n_head, 1, 1, 1};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t w = tdm_build_weight(b, "w", p->type, w_ne, TDM_USAGE_MATMUL);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    int32_t role = -1;
    if (roles != NULL) role = tdm_build_input(b, "role", TDM_TYPE_I32, role_ne);
    tdm_build_set_role(b, role);
    int32_t out = tdm_build_matmul(b, w, x);
    tdm_build_output(b, out, "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    op_arg args[] = {{.value = w, .data = p->w},
                     {.value = x, .data = p->x},
                     {.value = out, .data = y},
                     {.value = role, .data = (void *)(uintptr_t)roles}};
    op_rig_run(rig, graph, args, roles != NULL ? 4 : 3);
    tdm_graph_free(graph);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static int64_t k_of(tdm_type type, int64_t n_block) {
    tdm_type_info info = tdm_type_get_info(type);
    return info.block_len > 1 ? n_block * info.block_len : n_block * 32 + 5; /* odd for plain */
}

static void test_sizes(void **state) {
    static const int64_t n[] = {1, 7, 16, 17, 33}, n_tok[] = {1, 2, 3, 5, 8, 17};
    uint64_t seed = 20261120;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < MADE_TYPES; i++) {
        for (int a = 0; a < 5; a++) {
            for (int b = 0; b < 6; b++) {
                int64_t n_block = (a + b) % 2 == 0 ? 1 : 3;
                product_test(*state, &seed, made_types[i], MADE_RANDOM,
                             k_of(made_types[i], n_block), n[a], n_tok[b]);
            }
        }
    }
}

/* More elements than a panel has, more groups than are multiplied together, more than two tiles of
 * tokens. */
static void test_long_rows(void **state) {
    static const tdm_type types[] = {TDM_TYPE_Q8_0, TDM_TYPE_Q4_K, TDM_TYPE_Q3_K, TDM_TYPE_MXFP4};
    uint64_t seed = 20261130;
    for (int i = 0; i < 4; i++) {
        int64_t block_len = tdm_type_get_info(types[i]).block_len;
        product_test(*state, &seed, types[i], MADE_RANDOM, (4096 + 256) / block_len * block_len, 83,
                     32 + 32 + 6);
        product_test(*state, &seed, types[i], MADE_RANDOM, 2048, 16, 32 + 16);
    }
}

static void test_worst_values(void **state) {
    uint64_t seed = 7;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < MADE_TYPES; i++) {
        for (int kind = 0; kind < MADE_KINDS; kind++) {
            product_test(*state, &seed, made_types[i], (made_kind)kind, k_of(made_types[i], 4), 19,
                         7);
        }
    }
}

/* A token of NaN or infinity, or of zeros, changes nothing for its neighbours. */
static void test_bad_activations(void **state) {
    rigs *r = *state;
    uint64_t seed = 11;
    for (int i = 0; i < MADE_TYPES; i++) {
        product p =
            product_create(&seed, made_types[i], MADE_RANDOM, k_of(made_types[i], 2), 18, 4);
        float y[18 * 4];
        p.x[p.k + 1] = NAN;
        p.x[2 * p.k + 3] = INFINITY;
        memset(p.x + 3 * p.k, 0, (size_t)p.k * sizeof(float));
        for (int rig = -1; rig < N_FAST; rig++) {
            op_rig *at = rig < 0 ? r->reference : r->fast[rig];
            if (at == NULL) continue;
            product_run(at, &p, TDM_USAGE_MATMUL, y);
            for (int j = 0; j < 18; j++) {
                assert_true(fabs((double)y[j] - p.want[j]) <= bound_of(&p, rig, j));
                assert_true(isnan(y[18 + j]));
                assert_false(isfinite(y[36 + j]));
                assert_true(y[54 + j] == 0);
            }
        }
        product_destroy(&p);
    }
}

/* Weights without usage are canonical everywhere and multiplied with f32 activations. */
static void test_plain_weights(void **state) {
    rigs *r = *state;
    uint64_t seed = 12;
    for (int i = 0; i < MADE_TYPES; i++) {
        product p =
            product_create(&seed, made_types[i], MADE_RANDOM, k_of(made_types[i], 3), 18, 9);
        float *y = made_alloc(18 * 9 * sizeof *y);
        for (int rig = -1; rig < N_FAST; rig++) {
            op_rig *at = rig < 0 ? r->reference : r->fast[rig];
            if (at == NULL) continue;
            product_run(at, &p, 0, y);
            product_check(&p, -1, MADE_RANDOM, y); /* f32 activations on every device */
        }
        free(y);
        product_destroy(&p);
    }
}

/* Both sources as views whose elements are not neighbours. */
static void test_strided(void **state) {
    enum { K = 64, N = 19, TOK = 5 };
    rigs *r = *state;
    uint64_t seed = 13;
    float w[K * N], x[K * TOK], y[N * TOK];
    op_random_fill(&seed, w, K * N, 1.0f);
    op_random_fill(&seed, x, K * TOK, 1.0f);
    for (int is_private = 0; is_private < 2; is_private++) {
        tdm_builder *b = NULL;
        tdm_graph *graph = NULL;
        tdm_error err = {0};
        int64_t w_ne[] = {N, K, 1, 1}, x_ne[] = {TOK, K, 1, 1}, w_private_ne[] = {K, N, 1, 1};
        assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
        int32_t wv = tdm_build_weight(b, "w", TDM_TYPE_F32, is_private ? w_private_ne : w_ne,
                                      is_private ? TDM_USAGE_MATMUL : 0);
        int32_t xv = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
        int32_t wt = is_private ? wv : tdm_build_permute(b, wv, 1, 0, 2, 3);
        int32_t yv = tdm_build_matmul(b, wt, tdm_build_permute(b, xv, 1, 0, 2, 3));
        tdm_build_output(b, yv, "y");
        if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
        tdm_builder_destroy(b);
        op_arg args[] = {
            {.value = wv, .data = w}, {.value = xv, .data = x}, {.value = yv, .data = y}};
        for (int rig = -1; rig < N_FAST; rig++) {
            op_rig *at = rig < 0 ? r->reference : r->fast[rig];
            if (at == NULL) continue;
            op_rig_run(at, graph, args, 3);
            for (int t = 0; t < TOK; t++) {
                for (int j = 0; j < N; j++) {
                    double want = 0;
                    for (int i = 0; i < K; i++) {
                        double wi = is_private ? (double)w[j * K + i] : (double)w[i * N + j];
                        want += wi * (double)x[i * TOK + t];
                    }
                    assert_true(fabs((double)y[t * N + j] - want) < 1e-4);
                }
            }
        }
        tdm_graph_free(graph);
    }
}

/* Activations whose elements are not neighbours become the same codes as others. */
static void test_strided_codes(void **state) {
    enum { K = 2048 + 64, N = 19, TOK = 35 };
    rigs *r = *state;
    uint64_t seed = 19;
    product p = product_create(&seed, TDM_TYPE_Q8_0, MADE_RANDOM, K, N, TOK);
    float *x = made_alloc((size_t)K * TOK * sizeof *x), y[N * TOK], want[N * TOK];
    for (int t = 0; t < TOK; t++)
        for (int i = 0; i < K; i++) x[i * TOK + t] = p.x[t * K + i];
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    int64_t w_ne[] = {K, N, 1, 1}, x_ne[] = {TOK, K, 1, 1};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t wv = tdm_build_weight(b, "w", TDM_TYPE_Q8_0, w_ne, TDM_USAGE_MATMUL);
    int32_t xv = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    op_arg roles = prompt_roles(b, TOK);
    int32_t yv = tdm_build_matmul(b, wv, tdm_build_permute(b, xv, 1, 0, 2, 3));
    tdm_build_output(b, yv, "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    op_arg args[] = {
        {.value = wv, .data = p.w}, {.value = xv, .data = x}, {.value = yv, .data = y}, roles};
    for (int i = 0; i < N_FAST; i++) {
        if (r->fast[i] == NULL) continue;
        op_rig_run(r->fast[i], graph, args, 4);
        product_run(r->fast[i], &p, TDM_USAGE_MATMUL, want);
        assert_memory_equal(y, want, sizeof want);
    }
    tdm_graph_free(graph);
    product_destroy(&p);
    free(x);
}

/* Tokens in three dimensions, and none at all. */
static void test_shapes(void **state) {
    rigs *r = *state;
    uint64_t seed = 14;
    product p = product_create(&seed, TDM_TYPE_Q8_0, MADE_RANDOM, 64, 9, 12);
    float y[9 * 12];
    for (int64_t outer = 0; outer < 3; outer++) {
        tdm_builder *b = NULL;
        tdm_graph *graph = NULL;
        tdm_error err = {0};
        int64_t w_ne[] = {64, 9, 1, 1}, x_ne[] = {64, 3, 2, outer};
        assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
        int32_t w = tdm_build_weight(b, "w", TDM_TYPE_Q8_0, w_ne, TDM_USAGE_MATMUL);
        int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
        int32_t out = tdm_build_matmul(b, w, x);
        tdm_build_output(b, out, "y");
        if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
        tdm_builder_destroy(b);
        op_arg args[] = {
            {.value = w, .data = p.w}, {.value = x, .data = p.x}, {.value = out, .data = y}};
        for (int rig = -1; rig < N_FAST; rig++) {
            op_rig *at = rig < 0 ? r->reference : r->fast[rig];
            if (at == NULL) continue;
            op_rig_run(at, graph, args, 3);
            for (int64_t o = 0; o < 9 * 6 * outer; o++) {
                assert_true(fabs((double)y[o] - p.want[o]) <= bound_of(&p, rig, o));
            }
        }
        tdm_graph_free(graph);
    }
    product_destroy(&p);
}

/* A matrix for each head: the same bits as each head's product by itself. */
static void heads_test(rigs *r, uint64_t *seed, tdm_type type, uint32_t usage, int64_t n_block,
                       int64_t n, int64_t n_head, int64_t n_tok) {
    int64_t k = k_of(type, n_block);
    size_t matrix_size = tdm_type_row_size(type, k) * (size_t)n;
    size_t n_y = (size_t)(n * n_head * n_tok);
    uint8_t *w = made_weight_create(seed, type, MADE_RANDOM, k, n * n_head);
    float *x = made_alloc((size_t)(k * n_head * n_tok) * sizeof *x);
    float *y = made_alloc(n_y * sizeof *y);
    float *x_head = made_alloc((size_t)(k * n_tok) * sizeof *x);
    float *y_head = made_alloc((size_t)(n * n_tok) * sizeof *y);
    op_random_fill(seed, x, (size_t)(k * n_head * n_tok), 3.0f);
    for (int rig = -1; rig < N_FAST; rig++) {
        op_rig *at = rig < 0 ? r->reference : r->fast[rig];
        tdm_builder *b = NULL;
        tdm_graph *graph = NULL;
        tdm_error err = {0};
        int64_t w_ne[] = {k, n, n_head, 1}, x_ne[] = {k, n_head, n_tok, 1};
        if (at == NULL) continue;
        assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
        int32_t wv = tdm_build_weight(b, "w", type, w_ne, usage);
        int32_t xv = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
        op_arg roles = prompt_roles(b, n_tok);
        int32_t yv = tdm_build_matmul(b, wv, xv);
        tdm_build_output(b, yv, "y");
        if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
        tdm_builder_destroy(b);
        op_arg args[] = {
            {.value = wv, .data = w}, {.value = xv, .data = x}, {.value = yv, .data = y}, roles};
        op_rig_run(at, graph, args, 4);
        tdm_graph_free(graph);
        for (int64_t h = 0; h < n_head; h++) {
            product p = {.type = type, .k = k, .n = n, .n_tok = n_tok};
            p.w = w + (size_t)h * matrix_size;
            p.x = x_head;
            for (int64_t t = 0; t < n_tok; t++)
                memcpy(x_head + t * k, x + (t * n_head + h) * k, (size_t)k * sizeof *x);
            product_run(at, &p, usage, y_head);
            for (int64_t t = 0; t < n_tok; t++)
                if (memcmp(y + (t * n_head + h) * n, y_head + t * n, (size_t)n * sizeof *y) != 0)
                    fail_msg("%s, rig %d: head %lld of %lld, token %lld of %lld: not its product",
                             tdm_type_name(type), rig, (long long)h, (long long)n_head,
                             (long long)t, (long long)n_tok);
        }
    }
    free(w);
    free(x);
    free(y);
    free(x_head);
    free(y_head);
}

static void test_heads(void **state) {
    static const int64_t n[] = {1, 17, 33, 16}, n_head[] = {2, 3, 5, 8}, n_tok[] = {9, 1, 2, 1};
    uint64_t seed = 17;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < MADE_TYPES; i++) {
        for (int a = 0; a < 4; a++) {
            heads_test(*state, &seed, made_types[i], TDM_USAGE_MATMUL, 1 + a % 2, n[a], n_head[a],
                       n_tok[a]);
        }
        heads_test(*state, &seed, made_types[i], 0, 2, 5, 3, 2);
    }
    heads_test(*state, &seed, TDM_TYPE_F32, TDM_USAGE_MATMUL, 1, 0, 3, 2);
    heads_test(*state, &seed, TDM_TYPE_F32, TDM_USAGE_MATMUL, 1, 3, 2, 0);
    heads_test(*state, &seed, TDM_TYPE_F32, TDM_USAGE_MATMUL, 1, 3, 0, 2);
}

/* Heads of a permuted x and of plain matrices whose elements are not neighbours. */
static void test_heads_strided(void **state) {
    enum { K = 40, N = 7, HEADS = 3, TOK = 5 };
    rigs *r = *state;
    uint64_t seed = 18;
    float w[K * N * HEADS], x[K * HEADS * TOK], y[N * HEADS * TOK];
    op_random_fill(&seed, w, K * N * HEADS, 1.0f);
    op_random_fill(&seed, x, K * HEADS * TOK, 1.0f);
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    int64_t w_ne[] = {N, K, HEADS, 1}, x_ne[] = {HEADS, TOK, K, 1};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t wv = tdm_build_weight(b, "w", TDM_TYPE_F32, w_ne, 0);
    int32_t xv = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    int32_t yv = tdm_build_matmul(b, tdm_build_permute(b, wv, 1, 0, 2, 3),
                                  tdm_build_permute(b, xv, 1, 2, 0, 3));
    tdm_build_output(b, yv, "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    op_arg args[] = {{.value = wv, .data = w}, {.value = xv, .data = x}, {.value = yv, .data = y}};
    for (int rig = -1; rig < N_FAST; rig++) {
        op_rig *at = rig < 0 ? r->reference : r->fast[rig];
        if (at == NULL) continue;
        op_rig_run(at, graph, args, 3);
        for (int i = 0; i < TOK * HEADS * N; i++) {
            int t = i / (HEADS * N), h = i / N % HEADS, j = i % N;
            double want = 0;
            for (int k = 0; k < K; k++)
                want += (double)w[(h * K + k) * N + j] * (double)x[(k * TOK + t) * HEADS + h];
            assert_true(fabs((double)y[i] - want) < 1e-4);
        }
    }
    tdm_graph_free(graph);
}

/* A token's outputs are the same bits alone and among any number of others. */
static void test_company(void **state) {
    enum { N = 19, TOK = 15 };
    rigs *r = *state;
    uint64_t seed = 16;
    for (int i = 0; i < MADE_TYPES; i++) {
        product p =
            product_create(&seed, made_types[i], MADE_RANDOM, k_of(made_types[i], 3), N, TOK);
        float y[N * TOK], alone[N];
        for (int rig = -1; rig < N_FAST; rig++) {
            op_rig *at = rig < 0 ? r->reference : r->fast[rig];
            if (at == NULL) continue;
            product_run(at, &p, TDM_USAGE_MATMUL, y);
            for (int t = 0; t < TOK; t++) {
                product one = p;
                one.x = p.x + t * p.k;
                one.n_tok = 1;
                product_run(at, &one, TDM_USAGE_MATMUL, alone);
                assert_memory_equal(alone, y + t * N, sizeof alone);
            }
        }
        product_destroy(&p);
    }
}

/* The bounds are tight enough to see a wrong code: one changed weight fails the check. */
static void test_bounds_see_an_error(void **state) {
    rigs *r = *state;
    uint64_t seed = 15;
    product p = product_create(&seed, TDM_TYPE_Q8_0, MADE_RANDOM, 32, 1, 1);
    float y;
    ((int8_t *)p.w)[2] = (int8_t)(((int8_t *)p.w)[2] ^ 0x40);
    product_run(r->reference, &p, TDM_USAGE_MATMUL, &y);
    for (int rig = -1; rig < N_FAST; rig++)
        assert_true(fabs((double)y - p.want[0]) > bound_of(&p, rig, 0));
    product_destroy(&p);
}

/* Tokens of both roles and padding in one product: each has the bits that its role gives alone, on
 * devices that compute by role and on those that do not. On a matrix unit, tokens of prompts differ
 * from others of 8 bits. */
static void test_roles(void **state) {
    enum { N_ISA = 5, N_HEAD = 3, N_TOK = 23, ROWS = 17 };
    static const char *const isas[N_ISA] = {"plain", "avx2", "avx512", "neon", "amx"};
    static const char *const bits[] = {"15", "8", "auto"};
    static const tdm_type types[] = {TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, TDM_TYPE_Q4_K, TDM_TYPE_F16};
    uint64_t seed = 77;
    int32_t roles[N_TOK], prompts[N_TOK];
    (void)state;
    for (int t = 0; t < N_TOK; t++) {
        roles[t] = t % 7 == 3 ? -1 : t % 3 == 0 ? TDM_ROLE_GENERATED : TDM_ROLE_PROMPT;
        prompts[t] = TDM_ROLE_PROMPT;
    }
    for (int i = 0; i < N_ISA; i++) {
        op_rig *rigs[3];
        for (int r = 0; r < 3; r++) rigs[r] = op_rig_open_bits(isas[i], bits[r], 2);
        for (int c = 0; c < 8 && rigs[0] != NULL; c++) {
            tdm_type type = types[c / 2];
            int64_t n_head = c % 2 == 0 ? 1 : N_HEAD, n_y = ROWS * N_TOK * n_head;
            product p = product_create(&seed, type, MADE_RANDOM, k_of(type, 2), ROWS * n_head,
                                       N_TOK * n_head);
            float *y[4];
            for (int r = 0; r < 4; r++) y[r] = made_alloc((size_t)n_y * sizeof(float));
            const int32_t *given[3] = {NULL, prompts, roles};
            for (int r = 0; r < 3; r++) roles_run(rigs[r], &p, n_head, given[r], y[r]);
            bool is_rounded = memcmp(y[0], y[1], (size_t)n_y * sizeof(float)) != 0;
            assert_int_equal(is_rounded, type != TDM_TYPE_F16);
            for (int64_t o = 0; o < n_y; o++) {
                int32_t role = roles[o / (ROWS * n_head)];
                if (role >= 0) assert_true(y[2][o] == y[role == TDM_ROLE_PROMPT][o]);
            }
            roles_run(rigs[2], &p, n_head, NULL, y[3]); /* without roles: as generated tokens */
            assert_memory_equal(y[3], y[0], (size_t)n_y * sizeof(float));
            roles_run(rigs[0], &p, n_head, roles, y[3]);
            assert_memory_equal(y[3], y[0], (size_t)n_y * sizeof(float));
            roles_run(rigs[1], &p, n_head, roles, y[3]);
            for (int64_t o = 0; o < n_y; o++) {
                int32_t role = roles[o / (ROWS * n_head)];
                if (role == TDM_ROLE_PROMPT || (role >= 0 && strcmp(isas[i], "amx") != 0))
                    assert_true(y[3][o] == y[1][o]);
            }
            for (int r = 0; r < 4; r++) free(y[r]);
            product_destroy(&p);
        }
        for (int r = 0; r < 3; r++) op_rig_close(rigs[r]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_worst_values),
        cmocka_unit_test(test_bad_activations),
        cmocka_unit_test(test_plain_weights),
        cmocka_unit_test(test_strided),
        cmocka_unit_test(test_strided_codes),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_bounds_see_an_error),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_heads_strided),
    };
    return cmocka_run_group_tests_name("matmul", tests, setup, teardown);
}
