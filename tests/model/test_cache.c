/* SPDX-License-Identifier: MIT
 *
 * test_cache.c: the cost of each pair of cache types: the Kullback-Leibler divergence of the demo
 * model's predictions from those with an f32 cache, with and without rotation. Prints the tables
 * of docs/accuracy.md.
 */
#include "tests/model/rig.h"

#include "llm/tokenizer/tokenizer.h"
#include "tests/model/story.h"

/* The largest divergence of a type as K and as V: about twice what is measured (docs/accuracy.md).
 * A pair may have the sum. */
static const struct {
    tdm_type type;
    double bound_k, bound_v;
} types[] = {
    {TDM_TYPE_F32, 0, 0},          {TDM_TYPE_F16, 2e-7, 1e-7},    {TDM_TYPE_BF16, 6e-6, 2e-6},
    {TDM_TYPE_Q8_0, 5e-5, 1.5e-5}, {TDM_TYPE_Q5_1, 2.2e-3, 6e-4}, {TDM_TYPE_Q5_0, 2.7e-3, 7e-4},
    {TDM_TYPE_Q4_1, 8e-3, 2e-3},   {TDM_TYPE_Q4_0, 1e-2, 2.5e-3}, {TDM_TYPE_IQ4_NL, 6e-3, 1.5e-3}};
enum { N_TYPE = sizeof types / sizeof *types, F32 = 0, Q8_0 = 3, Q4_0 = 7, N_WINDOW = 4 };

/* Tokens of a run: fewer under a sanitizer, where each takes long. Of few tokens rotated q4_0 may
 * be worse than unrotated by chance, by ROTATION_CHANCE, and bounds are BOUND_CHANCE times as
 * large. */
#ifdef TANDEM_SANITIZED
enum { N_TOK = 48 };
#define ROTATION_CHANCE 1.5
#define BOUND_CHANCE    2
#else
enum { N_TOK = 256 };
#define ROTATION_CHANCE 1
#define BOUND_CHANCE    1
#endif

static double bound(int k, int v) {
    return BOUND_CHANCE * (types[k].bound_k + types[v].bound_v);
}

static int32_t *tokens; /* [n_token] of the story */
static size_t n_token;

static llm_model *model_load(const char *path) {
    tdm_error err = {0};
    const llm_vocab *vocab;
    char *file = rig_source_file("models/stories-3m-q8_0.gguf");
    assert_non_null(file);
    llm_model *model = rig_model(file, rig_device(NULL, path, 2));
    free(file);
    RIG_OK(llm_model_vocab(model, &vocab, &err));
    free(tokens);
    RIG_OK(llm_tokenize(vocab, story_text, strlen(story_text), LLM_TOKENIZE_ADD_SPECIAL, &tokens,
                        &n_token, &err));
    assert_true(n_token >= N_TOK);
    return model;
}

/* Logits of N_TOK tokens from the given one on, with a cache of these types. */
static void run(llm_model *model, int k, int v, bool is_rotated, size_t first, float *logits_out) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_TOK,
                                       .type_k = &types[k].type,
                                       .type_v = &types[v].type,
                                       .is_unrotated = !is_rotated};
    llm_context *ctx = rig_context(model, &params);
    rig_decode(ctx, tokens + first, N_TOK, N_TOK, logits_out);
    llm_context_destroy(ctx);
}

/* Under a sanitizer, unrotated pairs of two types: a row is rotated before it is quantised,
 * whatever the other one is kept in, and the rotated pairs are all there. */
static bool is_left_out(int k, int v, bool is_rotated) {
#ifdef TANDEM_SANITIZED
    return !is_rotated && k != v;
#else
    (void)k;
    (void)v;
    (void)is_rotated;
    return false;
#endif
}

/* A row of the table; the number of pairs that cost too much. */
static int row_print(llm_model *model, int k, bool is_rotated, const float *expected,
                     float *found) {
    int n_bad = 0;
    printf("%-6s", tdm_type_name(types[k].type));
    for (int v = 0; v < N_TYPE; v++) {
        if (is_left_out(k, v, is_rotated)) {
            printf(" %-8s", "-");
            continue;
        }
        run(model, k, v, is_rotated, 0, found);
        double kl = rig_kl(expected, found, N_TOK, model->hparams.n_vocab);
        bool is_bad = kl > bound(k, v) || kl < 0 || (kl == 0) != (k == F32 && v == F32);
        printf(" %.1e%s", kl, is_bad ? "!" : " ");
        n_bad += is_bad;
    }
    printf("\n");
    return n_bad;
}

static void test_pairs(void **state) {
    (void)state;
    int n_bad = 0;
    llm_model *model = model_load("fast");
    size_t size = (size_t)N_TOK * (size_t)model->hparams.n_vocab;
    float *expected = malloc(2 * size * sizeof *expected);
    assert_non_null(expected);
    run(model, F32, F32, true, 0, expected);
    for (int r = 1; r >= 0; r--) {
        printf("mean KL divergence from an f32 cache, %d tokens, fast path, %s rotation\n%-6s",
               N_TOK, r != 0 ? "with" : "without", "K\\V");
        for (int v = 0; v < N_TYPE; v++) printf(" %-8s", tdm_type_name(types[v].type));
        printf("\n");
        for (int k = 0; k < N_TYPE; k++)
            n_bad += row_print(model, k, r != 0, expected, expected + size);
    }
    free(expected);
    llm_model_close(model);
    assert_int_equal(n_bad, 0); /* marked '!' above */
}

/* K and V of one type, averaged over windows of the text: what a type does to one context is half
 * chance. */
static void one_type(llm_model *model, int t, size_t n_window, float *expected, double *kl_out) {
    size_t size = (size_t)N_TOK * (size_t)model->hparams.n_vocab;
    size_t step = (n_token - N_TOK) / N_WINDOW;
    for (size_t w = 0; w < n_window; w++) {
        run(model, F32, F32, true, w * step, expected);
        for (int r = 0; r < 2; r++) {
            run(model, t, t, r != 0, w * step, expected + size);
            kl_out[r] +=
                rig_kl(expected, expected + size, N_TOK, model->hparams.n_vocab) / (double)n_window;
        }
    }
}

/* Short, for the slow reference path: q8_0 and q4_0 alone. */
static void test_path(const char *path, bool is_short) {
    int n_bad = 0;
    llm_model *model = model_load(path);
    size_t size = (size_t)N_TOK * (size_t)model->hparams.n_vocab;
    float *expected = malloc(2 * size * sizeof *expected);
    assert_non_null(expected);
    int n_window = is_short ? N_WINDOW / 2 : N_WINDOW;
    printf("mean KL divergence from an f32 cache, %d times %d tokens, %s path\n", n_window, N_TOK,
           path);
    for (int t = 0; t < N_TYPE; t++) {
        double kl[2] = {0};
        if (is_short && t != Q8_0 && t != Q4_0) continue;
        one_type(model, t, (size_t)n_window, expected, kl);
        bool is_bad = (t == Q4_0 && kl[1] > kl[0] * ROTATION_CHANCE) || kl[0] > bound(t, t) ||
                      kl[1] > bound(t, t) || (t != F32 && kl[0] == 0);
        n_bad += is_bad;
        printf("%-6s without rotation %.1e, with %.1e%s\n", tdm_type_name(types[t].type), kl[0],
               kl[1], is_bad ? " !" : "");
    }
    free(expected);
    llm_model_close(model);
    assert_int_equal(n_bad, 0);
}

static void test_fast(void **state) {
    (void)state;
    test_path("fast", false);
}

static void test_reference(void **state) {
    (void)state;
    test_path("reference", true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_reference),
    };
    const int n_failed = cmocka_run_group_tests(tests, rig_begin, rig_end);
    free(tokens);
    return n_failed;
}
