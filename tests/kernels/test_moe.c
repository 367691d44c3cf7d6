/* SPDX-License-Identifier: MIT
 *
 * test_moe.c: the MOE_FFN op, and the same of MOE_MATMUL nodes, against sums in double made here:
 * the reference path to its rounding, the fast kernels to what 15-bit and 8-bit activations add;
 * foreign experts, repeated choices, an expert without tokens, more tokens than a chunk; and the
 * same bits for any number of threads.
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

enum { N_FAST = 11 };

/* Rounding to 15 bits adds (largest / 16256)^2 / 12 to each square; h = act(gate) * up has heavy
 * tails, its largest of 32 some 8 times its RMS: 2e-8, and as much again for what comes before and
 * after. */
#define MAX_NMSE_15 5e-8
#define MAX_NMSE_8  8e-4 /* the same, codes of 127 for those of 16256 */

typedef struct rigs {
    op_rig *reference;
    op_rig *fast[N_FAST];
} rigs;

static const struct {
    const char *isa;
    int n_thread;
    const char *bits;
    double max_nmse;
} fast_rigs[N_FAST] = {{"plain", 2, "15", MAX_NMSE_15},  {"avx2", 2, "15", MAX_NMSE_15},
                       {"avx512", 1, "15", MAX_NMSE_15}, {"avx512", 2, "15", MAX_NMSE_15},
                       {"avx512", 3, "15", MAX_NMSE_15}, {"plain", 1, "8", MAX_NMSE_8},
                       {"avx2", 2, "8", MAX_NMSE_8},     {"avx512", 3, "8", MAX_NMSE_8},
                       {"neon", 1, "15", MAX_NMSE_15},   {"neon", 3, "15", MAX_NMSE_15},
                       {"neon", 2, "8", MAX_NMSE_8}};

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

typedef struct layer {
    tdm_type type[3]; /* gate, up, down */
    tdm_act act;
    int64_t n, n_ff, n_expert, n_tok, n_used, first_expert;
    uint8_t *w[3];
    float *x, *weight, *want;
    int32_t *id;
    bool is_products; /* of MOE_MATMUL nodes */
} layer;

static double act_apply(tdm_act act, double x) {
    switch ((int)act) {
    case TDM_ACT_SILU: return x / (1 + exp(-x));
    case TDM_ACT_RELU: return x > 0 ? x : 0;
    case TDM_ACT_GELU_ERF: return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    default: fail_msg("this test has no act %d", (int)act); return 0;
    }
}

static double dot(const float *w, const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)w[i] * x[i];
    return sum;
}

/* Adds weight * expert(x) to y[n]. */
static void expert_add(const layer *l, int64_t e, const float *x, double weight, double *y) {
    float *row = made_alloc((size_t)(l->n + l->n_ff) * sizeof *row);
    double *xd = made_alloc((size_t)l->n * sizeof *xd),
           *h = made_alloc((size_t)l->n_ff * sizeof *h);
    for (int64_t i = 0; i < l->n; i++) xd[i] = (double)x[i];
    for (int64_t j = 0; j < l->n_ff; j++) {
        made_weight_row(l->type[0], l->w[0], l->n, e * l->n_ff + j, row);
        double gate = dot(row, xd, l->n);
        made_weight_row(l->type[1], l->w[1], l->n, e * l->n_ff + j, row);
        h[j] = act_apply(l->act, gate) * dot(row, xd, l->n);
    }
    for (int64_t j = 0; j < l->n; j++) {
        made_weight_row(l->type[2], l->w[2], l->n_ff, e * l->n + j, row);
        y[j] += weight * dot(row, h, l->n_ff);
    }
    free(row);
    free(xd);
    free(h);
}

/* Choices run over all experts of the whole layer, two of them (the last two) never chosen. */
static layer layer_create(uint64_t *seed, layer l) {
    int64_t n_all = l.first_expert + l.n_expert + 1;
    size_t n_pair = (size_t)(l.n_used * l.n_tok), x_len = (size_t)(l.n * l.n_tok);
    for (int i = 0; i < 3; i++) {
        int64_t k = i == 2 ? l.n_ff : l.n, rows = (i == 2 ? l.n : l.n_ff) * l.n_expert;
        l.w[i] = made_weight_create(seed, l.type[i], MADE_RANDOM, k, rows);
    }
    l.x = made_alloc(x_len * sizeof *l.x);
    l.want = made_alloc(x_len * sizeof *l.want);
    l.weight = made_alloc(n_pair * sizeof *l.weight);
    l.id = made_alloc(n_pair * sizeof *l.id);
    op_random_fill(seed, l.x, x_len, 1.0f);
    op_random_fill(seed, l.weight, n_pair, 1.0f);
    for (size_t i = 0; i < n_pair; i++) {
        l.id[i] = (int32_t)(op_random_next(seed) % (uint64_t)n_all) - (i % 7 == 0 ? 1 : 0);
        if (l.id[i] == l.first_expert + l.n_expert - 1) l.id[i] = (int32_t)l.first_expert;
    }
    double *y = made_alloc((size_t)l.n * sizeof *y);
    for (int64_t t = 0; t < l.n_tok; t++) {
        for (int64_t j = 0; j < l.n; j++) y[j] = 0;
        for (int64_t u = 0; u < l.n_used; u++) {
            int64_t e = l.id[t * l.n_used + u] - l.first_expert;
            if (e < 0 || e >= l.n_expert) continue;
            expert_add(&l, e, l.x + t * l.n, (double)l.weight[t * l.n_used + u], y);
        }
        for (int64_t j = 0; j < l.n; j++) l.want[t * l.n + j] = (float)y[j];
    }
    free(y);
    return l;
}

static void layer_destroy(layer *l) {
    for (int i = 0; i < 3; i++) free(l->w[i]);
    free(l->x);
    free(l->want);
    free(l->weight);
    free(l->id);
}

/* y of a layer from MOE_MATMUL nodes. */
static int32_t products_build(tdm_builder *b, const layer *l, int32_t x, int32_t id, int32_t weight,
                              const int32_t matrix[3]) {
    const int32_t first = (int32_t)l->first_expert, all = (int32_t)(first + l->n_expert + 1);
    int32_t row = tdm_build_reshape(b, x, l->n, 1, l->n_tok, 1), y = -1;
    int32_t gate = tdm_build_moe_matmul(b, matrix[0], row, id, first, all);
    int32_t up = tdm_build_moe_matmul(b, matrix[1], row, id, first, all);
    int32_t h = tdm_build_glu(b, gate, up, l->act);
    h = tdm_build_moe_matmul(b, matrix[2], h, id, first, all);
    h = tdm_build_mul(b, h, tdm_build_reshape(b, weight, 1, l->n_used, l->n_tok, 1));
    for (int64_t u = 0; u < l->n_used; u++) {
        const int64_t at[] = {0, u, 0, 0}, ne[] = {l->n, 1, l->n_tok, 1};
        int32_t one = tdm_build_copy(b, tdm_build_slice(b, h, at, ne), TDM_TYPE_F32);
        one = tdm_build_reshape(b, one, l->n, l->n_tok, 1, 1);
        y = y < 0 ? one : tdm_build_add(b, y, one);
    }
    return y;
}

/* `roles` NULL: tokens have none. */
static void layer_run_as(op_rig *rig, const layer *l, const int32_t *roles, float *y) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    int64_t x_ne[] = {l->n, l->n_tok, 1, 1}, pair_ne[] = {l->n_used, l->n_tok, 1, 1};
    int64_t in_ne[] = {l->n, l->n_ff, l->n_expert, 1}, down_ne[] = {l->n_ff, l->n, l->n_expert, 1};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    int32_t id = tdm_build_input(b, "id", TDM_TYPE_I32, pair_ne);
    int32_t weight = tdm_build_input(b, "weight", TDM_TYPE_F32, pair_ne);
    int32_t gate = tdm_build_weight(b, "gate", l->type[0], in_ne, TDM_USAGE_EXPERT);
    int32_t up = tdm_build_weight(b, "up", l->type[1], in_ne, TDM_USAGE_EXPERT);
    int32_t down = tdm_build_weight(b, "down", l->type[2], down_ne, TDM_USAGE_EXPERT);
    int32_t role = -1;
    int64_t role_ne[] = {l->n_tok, 1, 1, 1};
    if (roles != NULL) role = tdm_build_input(b, "role", TDM_TYPE_I32, role_ne);
    tdm_build_set_role(b, role);
    const int32_t matrix[3] = {gate, up, down};
    int32_t out = l->is_products ? products_build(b, l, x, id, weight, matrix)
                                 : tdm_build_moe_ffn(b, x, id, weight, gate, up, down, l->act,
                                                     (int32_t)l->first_expert,
                                                     (int32_t)(l->first_expert + l->n_expert + 1));
    tdm_build_output(b, out, "y");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    op_arg args[] = {{.value = x, .data = l->x},
                     {.value = id, .data = l->id},
                     {.value = weight, .data = l->weight},
                     {.value = gate, .data = l->w[0]},
                     {.value = up, .data = l->w[1]},
                     {.value = down, .data = l->w[2]},
                     {.value = out, .data = y},
                     {.value = role, .data = (void *)(uintptr_t)roles}};
    op_rig_run(rig, graph, args, roles != NULL ? 8 : 7);
    tdm_graph_free(graph);
}

static void layer_run(op_rig *rig, const layer *l, float *y) {
    layer_run_as(rig, l, NULL, y);
}

static void layer_compare(rigs *r, const layer *shape) {
    layer l = *shape;
    size_t len = (size_t)(l.n * l.n_tok);
    float *y = made_alloc(len * sizeof *y), *one = made_alloc(len * sizeof *one);
    bool has_one = false;
    layer_run(r->reference, &l, y);
    double nmse = op_nmse(y, l.want, len);
    if (!(nmse <= 1e-12)) fail_msg("reference: nmse %g", nmse);
    for (int i = 0; i < N_FAST; i++) {
        if (r->fast[i] == NULL) continue;
        layer_run(r->fast[i], &l, y);
        nmse = op_nmse(y, l.want, len);
        if (!(nmse <= fast_rigs[i].max_nmse)) {
            fail_msg("%s, %s bits, %s %s %s, %lld tokens: nmse %g", fast_rigs[i].isa,
                     fast_rigs[i].bits, tdm_type_name(l.type[0]), tdm_type_name(l.type[1]),
                     tdm_type_name(l.type[2]), (long long)l.n_tok, nmse);
        }
        if (strcmp(fast_rigs[i].isa, "avx512") != 0 || strcmp(fast_rigs[i].bits, "15") != 0)
            continue;
        if (has_one) assert_memory_equal(y, one, len * sizeof *y);
        memcpy(one, y, len * sizeof *y);
        has_one = true;
    }
    free(y);
    free(one);
}

static void layer_test(rigs *r, uint64_t *seed, layer shape) {
    layer l = layer_create(seed, shape);
    layer_compare(r, &l);
    l.is_products = true;
    layer_compare(r, &l);
    layer_destroy(&l);
}

static void test_types(void **state) {
    uint64_t seed = 41;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int t = 0; t < MADE_TYPES; t++) {
        /* The next two types for up and down: kernels that take activations in unlike forms. */
        layer l = {
            {made_types[t], made_types[(t + 1) % MADE_TYPES], made_types[(t + 2) % MADE_TYPES]},
            TDM_ACT_SILU,
            256,
            256,
            3,
            5,
            2,
            2,
            {0},
            NULL,
            NULL,
            NULL,
            NULL,
            false};
        layer_test(*state, &seed, l);
        l.type[1] = l.type[0];
        layer_test(*state, &seed, l);
    }
}

static void test_shapes(void **state) {
    static const int64_t n_tok[] = {0, 1, 8, 9, 300};
    uint64_t seed = 42;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 5; i++) {
        for (int e = 0; e < 3; e++) { /* e experts: none is an ordinary share */
            layer l = {{TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0},
                       TDM_ACT_GELU_ERF,
                       32,
                       96,
                       e,
                       n_tok[i],
                       3,
                       1,
                       {0},
                       NULL,
                       NULL,
                       NULL,
                       NULL,
                       false};
            layer_test(*state, &seed, l);
            l.type[0] = l.type[1] = l.type[2] = TDM_TYPE_F32; /* sizes that no block limits */
            l.n = 21, l.n_ff = 19, l.act = TDM_ACT_RELU;
            layer_test(*state, &seed, l);
        }
    }
}

/* Tokens of both roles and padding in one step: each has the bits that its role gives alone. */
static void test_roles(void **state) {
    enum { N_TOK = 270 };
    static const char *const isas[] = {"plain", "avx2", "avx512", "neon"};
    static const char *const bits[] = {"15", "8", "auto"};
    uint64_t seed = 43;
    int32_t roles[N_TOK];
    (void)state;
    for (int t = 0; t < N_TOK; t++)
        roles[t] = t % 7 == 3 ? -1 : t % 3 == 0 ? TDM_ROLE_GENERATED : TDM_ROLE_PROMPT;
    for (int run = 0; run < 8; run++) {
        const int i = run % 4;
        layer l = {{TDM_TYPE_Q4_0, TDM_TYPE_Q5_1, TDM_TYPE_Q8_0},
                   TDM_ACT_SILU,
                   64,
                   96,
                   3,
                   N_TOK,
                   2,
                   1,
                   {0},
                   NULL,
                   NULL,
                   NULL,
                   NULL,
                   run >= 4};
        if (i == 1) l.type[0] = TDM_TYPE_F16; /* one whose kernels do not differ by role */
        l = layer_create(&seed, l);
        size_t len = (size_t)(l.n * l.n_tok);
        float *y[3];
        op_rig *rigs[3];
        for (int r = 0; r < 3; r++) {
            y[r] = made_alloc(len * sizeof(float));
            rigs[r] = op_rig_open_bits(isas[i], bits[r], 2);
            if (rigs[r] != NULL) layer_run_as(rigs[r], &l, r < 2 ? NULL : roles, y[r]);
        }
        if (rigs[0] != NULL) assert_memory_not_equal(y[0], y[1], len * sizeof(float));
        for (size_t o = 0; o < len && rigs[0] != NULL; o++) {
            int32_t role = roles[o / (size_t)l.n];
            if (role >= 0) assert_true(y[2][o] == y[role == TDM_ROLE_PROMPT][o]);
        }
        for (int r = 0; r < 3; r++) {
            op_rig_close(rigs[r]);
            free(y[r]);
        }
        layer_destroy(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_roles)};
    return cmocka_run_group_tests_name("moe", tests, setup, teardown);
}
