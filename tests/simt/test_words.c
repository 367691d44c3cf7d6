/* SPDX-License-Identifier: MIT
 *
 * test_words.c: products with the words of plugins/cuda and plugins/hip on emulated instructions
 * (matrix.h, cuda/, hip/): dot products, picks of bytes, exchanges between lanes, products of
 * matrices with the vendors' registers. Every type of weights, odd sizes, columns of bytes with and
 * without a low part; beside the CPU's reference path. Sums of tiles have the same bits with all
 * words, since each is one lane's.
 *
 *     test_words PLUGINS NAME WAVE DRIVER [NAME WAVE DRIVER ...]
 *
 * PLUGINS is the folder of the plugins' folders. The first driver has the emulated driver's own
 * words.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "tests/kernels/made_weight.h"
#include "tests/kernels/op_run.h"
#include "tests/simt/matrix.h"

#define SEED 41009u
/* x has 15 bits, or 8 in prompts. */
#define BOUND        1e-8
#define PROMPT_BOUND 1e-3
/* x and the weight are rounded to f16. */
#define MATRIX_BOUND 1e-6

enum { MAX_RIG = 16 };
static struct {
    const char *driver;
    op_rig *rig;
} rigs[2 * MAX_RIG]; /* the first n_rig without matrices of f16, then n_matrix with them */
static int n_rig, n_matrix;
static op_rig *reference;
static char **given; /* main's arguments after PLUGINS */
static const char *plugins;

static int setup(void **state) {
    (void)state;
    reference = op_rig_open("plain", "reference", 2);
    for (; n_rig < MAX_RIG && given[3 * n_rig] != NULL; n_rig++) {
        char folder[4096];
        const char *name = given[3 * n_rig], *driver = given[3 * n_rig + 2];
        const tdm_option options[] = {{"driver", driver}, {"matrix", "no"}};
        snprintf(folder, sizeof folder, "%s/%s", plugins, name);
        setenv("TANDEM_GPU_PLUGIN_DIR", folder, 1);
        /* Each driver is a library of its own, which reads it once. */
        setenv("TANDEM_SIMT_WAVE", given[3 * n_rig + 1], 1);
        rigs[n_rig].driver = driver;
        rigs[n_rig].rig = op_rig_open_plugin(name, options, 2);
        if (rigs[n_rig].rig == NULL) return 1;
        /* gfx906 has none. */
        if (strstr(driver, "gfx906") != NULL) continue;
        rigs[MAX_RIG + n_matrix].driver = driver;
        rigs[MAX_RIG + n_matrix].rig = op_rig_open_plugin(name, options, 1);
        if (rigs[MAX_RIG + n_matrix++].rig == NULL) return 1;
    }
    print_message("seed %u, %d drivers, %d with matrices of f16\n", SEED, n_rig, n_matrix);
    return reference == NULL || n_rig < 2 || n_matrix < 2;
}

static int teardown(void **state) {
    (void)state;
    op_rig_close(reference);
    for (int i = 0; i < n_rig; i++) op_rig_close(rigs[i].rig);
    for (int i = 0; i < n_matrix; i++) op_rig_close(rigs[MAX_RIG + i].rig);
    return 0;
}

/* ---- Products -------------------------------------------------------------------------------- */

typedef struct product {
    tdm_graph *graph;
    op_arg args[4]; /* weight, x, y, roles */
    size_t n_y;
    int n_tok;
} product;

static product product_make(uint64_t *seed, tdm_type type, int64_t k, int64_t n, int n_tok,
                            bool is_prompt) {
    tdm_builder *b = NULL;
    tdm_error err = {0};
    const int64_t w_ne[] = {k, n, 1, 1}, x_ne[] = {k, n_tok, 1, 1}, role_ne[] = {n_tok, 1, 1, 1};
    product p = {.n_y = (size_t)(n * n_tok), .n_tok = n_tok};
    if (tdm_builder_create(&b, &err) != TDM_OK) fail_msg("%s", err.message);
    float *x = made_alloc((size_t)(k * n_tok) * sizeof *x);
    int32_t *roles = made_alloc((size_t)n_tok * sizeof *roles);
    op_random_fill(seed, x, (size_t)(k * n_tok), 1);
    for (int i = 0; i < n_tok; i++) roles[i] = is_prompt ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED;
    p.args[0] = (op_arg){.value = tdm_build_weight(b, "w", type, w_ne, TDM_USAGE_MATMUL),
                         .data = made_weight_create(seed, type, MADE_RANDOM, k, n)};
    p.args[1] = (op_arg){.value = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne), .data = x};
    p.args[3] = (op_arg){.value = tdm_build_input(b, "role", TDM_TYPE_I32, role_ne), .data = roles};
    tdm_build_set_role(b, p.args[3].value);
    p.args[2].value = tdm_build_matmul(b, p.args[0].value, p.args[1].value);
    tdm_build_output(b, p.args[2].value, "y");
    if (tdm_builder_finish(b, &p.graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    return p;
}

static void product_free(product *p) {
    tdm_graph_free(p->graph);
    for (int i = 0; i < 4; i++)
        if (i != 2) free(p->args[i].data);
}

/* On the rigs first .. first + count - 1. */
static void rigs_check(product p, int first_rig, int count, double bound, const char *what) {
    const size_t size = p.n_y * sizeof(float);
    float *want = made_alloc(size), *first = made_alloc(size), *got = made_alloc(size);
    p.args[2].data = want;
    op_rig_run(reference, p.graph, p.args, 4);
    for (int i = 0; i < count; i++) {
        p.args[2].data = i == 0 ? first : got;
        op_rig_run(rigs[first_rig + i].rig, p.graph, p.args, 4);
        const double nmse = op_nmse(p.args[2].data, want, p.n_y);
        if (!(nmse < bound)) fail_msg("%s: %s: NMSE %g", rigs[first_rig + i].driver, what, nmse);
        if (i > 0 && p.n_tok > 8 && memcmp(first, got, size) != 0)
            fail_msg("%s: %s: other bits than %s", rigs[first_rig + i].driver, what,
                     rigs[first_rig].driver);
    }
    free(want);
    free(first);
    free(got);
}

static void product_check(uint64_t *seed, tdm_type type, int64_t k, int64_t n, int n_tok,
                          bool is_prompt, bool is_matrix) {
    product p = product_make(seed, type, k, n, n_tok, is_prompt);
    char what[96];
    snprintf(what, sizeof what, "%s, [%d, %d] x %d, prompt %d", tdm_type_name(type), (int)k, (int)n,
             n_tok, (int)is_prompt);
    if (is_matrix)
        rigs_check(p, MAX_RIG, n_matrix, MATRIX_BOUND, what);
    else
        rigs_check(p, 0, n_rig, is_prompt ? PROMPT_BOUND : BOUND, what);
    product_free(&p);
}

/* Rows of one tile and a few of the next; k of an odd number of groups of 32 where blocks are as
 * short. */
static void every_type(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int i = 0; i < MADE_TYPES; i++) {
        const tdm_type_info info = tdm_type_get_info(made_types[i]);
        if (info.block_len == 1) continue;
        const int64_t k = info.block_len == 32 ? 96 : info.block_len;
        product_check(&seed, made_types[i], k, 67, 11, i % 2 == 0, false);
        product_check(&seed, made_types[i], k, 19, 3, i % 2 == 1, false);
    }
}

/* Types with scales for 16 and 32 elements, with and without offsets; tiles of 32 and of 64
 * columns, and one more; both kinds of columns. */
static void every_tile(void **state) {
    (void)state;
    uint64_t seed = SEED;
    static const tdm_type types[] = {TDM_TYPE_Q8_0, TDM_TYPE_Q4_1, TDM_TYPE_Q6_K, TDM_TYPE_Q2_K};
    static const int counts[] = {9, 32, 65};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            product_check(&seed, types[t], 256, 5, counts[i], i % 2 == 0, false);
            product_check(&seed, types[t], 256, 33, counts[i], i % 2 == 1, false);
        }
}

/* Matrices of f16: every type, with a group of k or several, a number that three tiles in turn do
 * not divide. */
static void every_matrix_type(void **state) {
    (void)state;
    uint64_t seed = SEED;
    for (int i = 0; i < MADE_TYPES; i++) {
        const tdm_type_info info = tdm_type_get_info(made_types[i]);
        if (info.block_len == 1 && made_types[i] != TDM_TYPE_F16) continue;
        const int64_t k = info.block_len <= 32 ? 32 * (1 + i % 5) : info.block_len;
        product_check(&seed, made_types[i], k, 67, 11, true, true);
    }
}

/* Tiles of 32, 64, 128 and 256 columns, the last with one column; rows of one tile, and of the
 * next. The emulated device has 4 compute units, which choose the columns. */
static void every_matrix_tile(void **state) {
    (void)state;
    uint64_t seed = SEED;
    static const tdm_type types[] = {TDM_TYPE_F16, TDM_TYPE_Q8_0, TDM_TYPE_Q4_K};
    static const struct {
        int64_t n;
        int n_tok;
    } sizes[] = {{5, 9}, {130, 65}, {130, 129}, {258, 257}};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            product_check(&seed, types[t], types[t] == TDM_TYPE_Q4_K ? 512 : 160, sizes[i].n,
                          sizes[i].n_tok, i % 2 == 0, true);
}

/* ---- The emulated instructions --------------------------------------------------------------- */

/* Each element lies in one place, or of a and b of gfx11 in two. */
static void places_check(const simt_matrix *m, simt_place (*at)(uint32_t lane, uint32_t i),
                         uint32_t n, uint32_t n_row, uint32_t n_column, int n_copy) {
    int n_found[32][32] = {{0}};
    for (uint32_t lane = 0; lane < m->base.n_lane; lane++)
        for (uint32_t i = 0; i < n; i++) {
            simt_place place = at(lane, i);
            if (place.row >= n_row || place.column >= n_column)
                fail_msg("%s: lane %u, %u is at [%u][%u]", m->base.name, (unsigned)lane,
                         (unsigned)i, (unsigned)place.row, (unsigned)place.column);
            n_found[place.row][place.column]++;
        }
    for (uint32_t r = 0; r < n_row; r++)
        for (uint32_t c = 0; c < n_column; c++)
            if (n_found[r][c] != n_copy)
                fail_msg("%s: element [%u][%u] is in %d places", m->base.name, (unsigned)r,
                         (unsigned)c, n_found[r][c]);
}

static void every_instruction(void **state) {
    (void)state;
    for (const simt_matrix *const *m = simt_matrices; *m != NULL; m++) {
        const simt_matrix *w = *m;
        const int n_copy = w == &simt_wmma_gfx11 || w == &simt_wmma_gfx11_f16 ? 2 : 1;
        const uint32_t in_word = w->is_f16 ? 2 : 4;
        places_check(w, w->a, in_word * w->a_words, w->n_row, w->n_depth, n_copy);
        places_check(w, w->b, in_word * w->b_words, w->n_depth, w->n_column, n_copy);
        places_check(w, w->c, w->c_words, w->n_row, w->n_column, 1);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction), cmocka_unit_test(every_type),
        cmocka_unit_test(every_tile),        cmocka_unit_test(every_matrix_type),
        cmocka_unit_test(every_matrix_tile),
    };
    if (argc < 8 || argc % 3 != 2) return 2;
    plugins = argv[1];
    given = argv + 2;
    return cmocka_run_group_tests(tests, setup, teardown);
}
