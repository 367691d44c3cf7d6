/* SPDX-License-Identifier: MIT
 *
 * test_products.c: the inputs of products that a context gives (llm_context_params.product), from
 * which importance matrices are made. Their sums of squares over 64 tokens of the demo model, and
 * of experts, are llama.cpp's; on groups and in short steps they agree with themselves.
 */
#include "tests/model/rig.h"

#include <math.h>

#include "tests/model/group_device.h"
#include "tests/model/preset.h"

enum { N_TOK = 64, N_MATRIX_MAX = 128, N_EXPERT_MAX = 8 };

/* From llama.cpp's own evaluation of models/stories-3m-q8_0.gguf with an f32 cache, which rounds
 * activations to 8 bits: the sum of squares over all inputs of a matrix, and their centre: the mean
 * index of an input, from 1, weighed by its squares. attn_k and attn_v have the inputs of attn_q,
 * and ffn_up those of ffn_gate. Token i is (i * 7919 + i * i * 31 + 13) % n_vocab. */
static const struct {
    const char *name;
    double squares, centre;
} expected[] = {
    {"blk.0.attn_q.weight", 11924.6, 128.029},   {"blk.0.attn_output.weight", 64340.7, 256.462},
    {"blk.0.ffn_gate.weight", 13319.1, 126.978}, {"blk.0.ffn_down.weight", 537091, 263.4},
    {"blk.1.attn_q.weight", 12900.9, 129.052},   {"blk.1.attn_output.weight", 31986.4, 266.843},
    {"blk.1.ffn_gate.weight", 15707.9, 128.954}, {"blk.1.ffn_down.weight", 111998, 246.44},
    {"blk.2.attn_q.weight", 13605, 129.693},     {"blk.2.attn_output.weight", 50727.1, 256.085},
    {"blk.2.ffn_gate.weight", 17198.1, 129.072}, {"blk.2.ffn_down.weight", 94229.3, 242.317},
    {"blk.3.attn_q.weight", 14044.6, 130.591},   {"blk.3.attn_output.weight", 81468.7, 271.827},
    {"blk.3.ffn_gate.weight", 21643.5, 129.265}, {"blk.3.ffn_down.weight", 314871, 258.052},
};
enum { N_EXPECTED = sizeof expected / sizeof *expected };

typedef struct sums {
    char name[64];
    int n_matrix, n_row[N_EXPERT_MAX]; /* inputs of each matrix */
    double squares, weighed;
} sums;

typedef struct found {
    sums items[N_MATRIX_MAX];
    int n;
} found;

static void take(void *user, const llm_product *p) {
    found *f = user;
    int at = 0;
    while (at < f->n && strcmp(f->items[at].name, p->name) != 0) at++;
    if (at == f->n) {
        assert_true(f->n < N_MATRIX_MAX && p->n_matrix <= N_EXPERT_MAX);
        snprintf(f->items[at].name, sizeof f->items[at].name, "%s", p->name);
        f->items[at].n_matrix = p->n_matrix;
        f->n++;
    }
    sums *s = &f->items[at];
    const int n_used = p->ids != NULL ? p->n_used : p->n_each;
    for (int t = 0; t < p->n_tok; t++)
        for (int u = 0; u < n_used; u++) {
            const int matrix = p->ids != NULL ? p->ids[t * n_used + u] : u;
            const float *row = p->rows + (t * p->n_each + (p->n_each > 1 ? u : 0)) * p->n;
            assert_true(matrix >= 0 && matrix < p->n_matrix);
            s->n_row[matrix]++;
            for (int i = 0; i < p->n; i++) {
                s->squares += (double)row[i] * (double)row[i];
                s->weighed += (double)row[i] * (double)row[i] * (i + 1);
            }
        }
}

static found model_run(const char *path, tdm_open_device *dev, int n_ubatch) {
    static float rows[N_TOK * 1024];
    found f = {.n = 0};
    int32_t tokens[N_TOK];
    llm_model *model = rig_model(path, dev);
    const int n_vocab = model->hparams.n_vocab;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_TOK,
                                       .n_ubatch = n_ubatch,
                                       .product = take,
                                       .product_user = &f};
    llm_context *ctx = rig_context(model, &params);
    assert_true(n_vocab <= 1024);
    for (int i = 0; i < N_TOK; i++) tokens[i] = (i * 7919 + i * i * 31 + 13) % n_vocab;
    rig_decode(ctx, tokens, N_TOK, N_TOK, rows);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return f;
}

static const sums *sums_find(const found *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0) return &f->items[i];
    fail_msg("no products with %s", name);
    return NULL;
}

static char *demo_path(void) {
    char *path = rig_source_file("models/stories-3m-q8_0.gguf");
    assert_non_null(path);
    return path;
}

static void test_beside_llama(void **state) {
    (void)state;
    char *path = demo_path();
    const found f = model_run(path, rig_device(NULL, "fast", 1), 0);
    double worst = 0;
    free(path);
    assert_int_equal(f.n, 28);
    for (int i = 0; i < N_EXPECTED; i++) {
        const sums *s = sums_find(&f, expected[i].name);
        const double off = fabs(s->squares / expected[i].squares - 1);
        const double off_centre = fabs(s->weighed / s->squares / expected[i].centre - 1);
        assert_int_equal(s->n_row[0], N_TOK);
        if (off > 2e-3 || off_centre > 2e-3)
            fail_msg("%s: %g around %g, not %g around %g", s->name, s->squares,
                     s->weighed / s->squares, expected[i].squares, expected[i].centre);
        if (off > worst) worst = off;
    }
    printf("sums of squares: at most %.1e from llama.cpp's\n", worst);
}

static void found_compare(const found *a, const found *b, double bound, const char *what) {
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        const sums *s = &a->items[i], *t = sums_find(b, s->name);
        assert_memory_equal(s->n_row, t->n_row, sizeof s->n_row);
        if (!(fabs(s->squares - t->squares) <= bound * s->squares) ||
            !(fabs(s->weighed - t->weighed) <= bound * s->weighed))
            fail_msg("%s: %s: %g and %g", what, s->name, s->squares, t->squares);
    }
}

static void test_steps_and_groups(void **state) {
    (void)state;
    static const group_config groups[] = {
        {.n_member = 2, .shares = "3,1", .attention = "heads"},
        {.n_member = 3, .attention = "sequence"},
        {.n_member = 2, .split = "layer"},
    };
    char *path = demo_path();
    const found one = model_run(path, rig_device(NULL, "fast", 1), 0);
    const found steps = model_run(path, rig_device(NULL, "fast", 1), 7);
    found_compare(&one, &steps, 1e-12, "steps of 7");
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        const found many = model_run(path, group_device(&groups[g]), 0);
        found_compare(&one, &many, 1e-4, group_words(&groups[g]));
    }
    free(path);
}

/* The same of preset tiny-mixtral in f32. */
static const struct {
    const char *name;
    double squares, centre;
} expected_down[] = {{"blk.0.ffn_down_exps.weight", 11787.3, 131.287},
                     {"blk.1.ffn_down_exps.weight", 11671.4, 127.832}};

/* gate and up of experts get the router's input, each token two of four; down has inputs of its
 * own. */
static void test_experts(void **state) {
    (void)state;
    const random_model_spec spec = preset_find("tiny-mixtral");
    const found f = model_run(preset_file("mixtral.gguf", &spec), rig_device(NULL, "fast", 1), 20);
    for (int l = 0; l < 2; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
        const sums *router = sums_find(&f, name);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "blk.%d.ffn_%s_exps.weight", l, k == 0 ? "gate" : "up");
            const sums *s = sums_find(&f, name);
            int n_row = 0;
            assert_int_equal(s->n_matrix, 4);
            for (int e = 0; e < 4; e++) n_row += s->n_row[e];
            assert_int_equal(n_row, 2 * N_TOK);
            assert_true(s->n_row[0] != N_TOK || s->n_row[1] != N_TOK);
            assert_true(fabs(s->squares / router->squares - 2) < 1e-9);
        }
        const sums *gate =
            sums_find(&f, l == 0 ? "blk.0.ffn_gate_exps.weight" : "blk.1.ffn_gate_exps.weight");
        const sums *down = sums_find(&f, expected_down[l].name);
        assert_memory_equal(down->n_row, gate->n_row, sizeof down->n_row);
        if (fabs(down->squares / expected_down[l].squares - 1) > 1e-5 ||
            fabs(down->weighed / down->squares / expected_down[l].centre - 1) > 1e-5)
            fail_msg("%s: %g around %g", down->name, down->squares, down->weighed / down->squares);
    }
    const group_config cut = {.n_member = 2, .shares = "3,1", .attention = "heads"};
    const found many = model_run(preset_file("mixtral.gguf", &spec), group_device(&cut), 0);
    found_compare(&f, &many, 1e-4, group_words(&cut));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_llama),
        cmocka_unit_test(test_steps_and_groups),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
