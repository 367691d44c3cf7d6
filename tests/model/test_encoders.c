/* SPDX-License-Identifier: MIT
 *
 * test_encoders.c: encoders whose attention has windows on both sides, or a bias by distance, on
 * texts longer than those of test_archs: the mean of the hidden states, behind the matrices that a
 * model has there, beside llama.cpp's (NAME.mean.f32 in tests/model/archs). Each comparison fails
 * where the windows, the bias or the matrices are left out. And the vectors of single tokens of a
 * ColBERT model, beside llama.cpp's (tests/model/ranks).
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/embedding.h"
#include "llm/projection.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/changed_model.h"
#include "tests/model/rig.h"

/* Longer than the farthest distance of a bias. */
enum { N_TOK = 200, MAX_EMBD = 64 };

/* llama.cpp rounds the results of GELU to 16 bits. */
#define BOUND 1e-5
/* What is left out shows. */
#define SHOWS 1e-3

typedef enum fault {
    NO_FAULT,
    NO_WINDOW,
    WINDOW_BEFORE, /* windows without the tokens behind */
    NO_BIAS,
    BIAS_TURNED, /* tokens before count as behind */
    NO_MATRICES
} fault;

typedef struct encoder_case {
    const char *name;
    fault faults[4]; /* NO_FAULT = the end */
} encoder_case;

static const encoder_case cases[] = {
    {"gemma-embedding-dense", {NO_WINDOW, WINDOW_BEFORE, NO_MATRICES}},
    {"modern-bert-dense", {NO_WINDOW, WINDOW_BEFORE}},
    {"t5encoder-dense", {NO_BIAS, BIAS_TURNED}},
    {"t5encoder-plain", {NO_BIAS, BIAS_TURNED}},
};
enum { N_CASE = sizeof cases / sizeof *cases };

static const char colbert[] = "lfm2-colbert";

/* Changes the bias of a model that is not loaded. */
static void bias_change(llm_model *model, fault f) {
    for (int32_t layer = 0; layer < model->hparams.n_layer; layer++) {
        const int32_t w = model->layer[layer][LLM_ROLE_ATTN_DISTANCE_BIAS];
        assert_true(w >= 0);
        float *bias = (float *)(uintptr_t)model->weights[w].file->data;
        const size_t n_head = (size_t)model->specs[layer].n_head;
        if (f == NO_BIAS) memset(bias, 0, n_head * LLM_N_DISTANCE * sizeof *bias);
        for (size_t h = 0; f == BIAS_TURNED && h < n_head; h++)
            for (size_t i = 0; i < LLM_FAR_DISTANCE; i++) {
                float *a = &bias[h * LLM_N_DISTANCE + i];
                float *b = &bias[(h + 1) * LLM_N_DISTANCE - 1 - i], other = *a;
                *a = *b;
                *b = other;
            }
    }
}

static void windows_change(llm_model *model, fault f) {
    int n_window = 0;
    for (int32_t layer = 0; layer < model->hparams.n_layer; layer++) {
        llm_layer_spec *s = &model->specs[layer];
        if (s->window == 0) continue;
        n_window++;
        if (f == WINDOW_BEFORE) s->window_kind = TDM_WINDOW_SLIDING, s->window = s->window / 2 + 1;
        if (f == NO_WINDOW) s->window = 0;
    }
    assert_in_range(n_window, 1, model->hparams.n_layer - 1); /* and layers without */
}

static llm_model *model_open(const char *name, fault f) {
    char head[128];
    const char *path = rig_file("encoder.gguf");
    tdm_open_device *dev = rig_device(NULL, RIG_FAST_AUTO, 2);
    tdm_error err = {0};
    llm_model *model = NULL;
    snprintf(head, sizeof head, "tests/model/%s/%s.head",
             strcmp(name, colbert) == 0 ? "ranks" : "archs", name);
    char *source = rig_source_file(head);
    assert_non_null(source);
    assert_true(arch_fixture_write(source, name, 1, path));
    free(source);
    RIG_OK(llm_model_open(path, &model, &err));
    if (f == NO_BIAS || f == BIAS_TURNED) bias_change(model, f);
    if (f == NO_WINDOW || f == WINDOW_BEFORE) windows_change(model, f);
    RIG_OK(llm_model_load(model, rig_runtime(), &dev, 1, NULL, NULL, &err));
    return model;
}

/* The hidden states of N_TOK tokens, which the caller frees. */
static float *rows_compute(llm_model *model) {
    const size_t n_embd = (size_t)model->hparams.n_embd;
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 256, .n_ubatch = 256, .gives_embeddings = true};
    llm_context *ctx = rig_context(model, &params);
    int32_t tokens[N_TOK];
    tdm_error err = {0};
    for (int i = 0; i < N_TOK; i++) tokens[i] = (37 * i + i / 7) % 128;
    const llm_batch batch = {.tokens = tokens, .n_tok = N_TOK, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    float *rows = malloc(N_TOK * n_embd * sizeof *rows);
    assert_non_null(rows);
    for (int32_t i = 0; i < N_TOK; i++)
        memcpy(rows + (size_t)i * n_embd, llm_context_hidden(ctx, i), n_embd * sizeof *rows);
    llm_context_destroy(ctx);
    return rows;
}

/* The mean of the hidden states of N_TOK tokens, behind the model's matrices. */
static void mean_compute(llm_model *model, bool has_matrices, float *vector) {
    const size_t n_embd = (size_t)model->hparams.n_embd;
    float *rows = rows_compute(model);
    tdm_error err = {0};
    llm_pool(LLM_POOLING_MEAN, rows, N_TOK, (int32_t)n_embd, vector);
    free(rows);
    llm_projection *projection = NULL;
    RIG_OK(llm_projection_read(model, &projection, &err));
    assert_int_equal(projection != NULL, strcmp(model->hparams.arch, "gemma-embedding") == 0);
    if (has_matrices) llm_project(projection, vector);
    llm_projection_free(projection);
}

/* Reads up to `room` numbers that llama.cpp gave; returns how many there are. */
static size_t expected_read(const char *file, float *numbers, size_t room) {
    char *path = rig_source_file(file);
    assert_non_null(path);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    const size_t n = fread(numbers, sizeof *numbers, room, in);
    fclose(in);
    free(path);
    return n;
}

static double nmse_of(const char *name, fault f) {
    char file[128];
    float expected[MAX_EMBD + 1], found[MAX_EMBD];
    snprintf(file, sizeof file, "tests/model/archs/%s.mean.f32", name);
    const size_t n = expected_read(file, expected, MAX_EMBD + 1);
    llm_model *model = model_open(name, f);
    assert_int_equal(n, model->hparams.n_embd);
    mean_compute(model, f != NO_MATRICES, found);
    llm_model_close(model);
    const double nmse = rig_nmse(expected, found, n);
    print_message("%s, fault %d: %.1e\n", name, (int)f, nmse);
    return nmse;
}

static void test_long_texts(void **state) {
    (void)state;
    for (int i = 0; i < N_CASE; i++) assert_true(nmse_of(cases[i].name, NO_FAULT) <= BOUND);
}

/* Each token has a vector of 24 numbers, of a model of 64. */
static void test_token_vectors(void **state) {
    enum { WIDTH = 24 };
    static float expected[N_TOK * WIDTH + 1], found[N_TOK * WIDTH];
    float vector[MAX_EMBD];
    llm_projection *projection = NULL;
    llm_pooling pooling = LLM_POOLING_RANK;
    bool is_given = true;
    tdm_error err = {0};
    (void)state;
    assert_int_equal(
        expected_read("tests/model/ranks/lfm2-colbert.f32", expected, N_TOK * WIDTH + 1),
        N_TOK * WIDTH);
    llm_model *model = model_open(colbert, NO_FAULT);
    RIG_OK(llm_pooling_read(model, &pooling, &is_given, &err));
    assert_true(is_given && pooling == LLM_POOLING_NONE);
    RIG_OK(llm_projection_read(model, &projection, &err));
    assert_int_equal(llm_projection_width(projection, MAX_EMBD), WIDTH);
    assert_int_equal(llm_projection_width(NULL, MAX_EMBD), MAX_EMBD);
    float *rows = rows_compute(model);
    for (int t = 0; t < N_TOK; t++) {
        memcpy(vector, rows + (size_t)t * MAX_EMBD, sizeof vector);
        llm_project(projection, vector);
        memcpy(found + (size_t)t * WIDTH, vector, WIDTH * sizeof *vector);
    }
    const double nmse = rig_nmse(expected, found, N_TOK * WIDTH);
    print_message("%s: %.1e\n", colbert, nmse);
    assert_true(nmse <= BOUND);
    free(rows);
    llm_projection_free(projection);
    /* The same without the key, which ColBERT's files lack. */
    changed_model_write(model->gguf, rig_file("no-key.gguf"), "pooling_type", CHANGED_ABSENT);
    llm_model *other = NULL;
    RIG_OK(llm_model_open(rig_file("no-key.gguf"), &other, &err));
    RIG_OK(llm_pooling_read(other, &pooling, &is_given, &err));
    assert_true(!is_given && pooling == LLM_POOLING_NONE);
    llm_model_close(other);
    /* A bias of another width. */
    llm_gguf_tensor *t =
        (llm_gguf_tensor *)(uintptr_t)llm_gguf_tensor_find(model->gguf, "dense_2.bias");
    assert_non_null(t);
    t->ne[0]--;
    assert_int_equal(llm_projection_read(model, &projection, &err), TDM_DATA_LOSS);
    t->ne[0]++;
    llm_model_close(model);
}

/* The matrices must lead back to the model's width. */
static void test_bad_matrices(void **state) {
    (void)state;
    llm_model *model = model_open(cases[0].name, NO_FAULT);
    llm_projection *projection = NULL;
    tdm_error err = {0};
    llm_gguf_tensor *t =
        (llm_gguf_tensor *)(uintptr_t)llm_gguf_tensor_find(model->gguf, "dense_2.weight");
    assert_non_null(t);
    t->ne[1]--;
    assert_int_equal(llm_projection_read(model, &projection, &err), TDM_DATA_LOSS);
    assert_non_null(strstr(err.message, "dense_2.weight"));
    assert_null(projection);
    t->ne[1]++;
    t->ne[2] = 2;
    assert_int_equal(llm_projection_read(model, &projection, &err), TDM_DATA_LOSS);
    assert_non_null(strstr(err.message, "no matrix"));
    t->ne[2] = 1;
    llm_model_close(model);
}

static void test_faults_show(void **state) {
    (void)state;
    for (int i = 0; i < N_CASE; i++)
        for (const fault *f = cases[i].faults; *f != NO_FAULT; f++)
            assert_true(nmse_of(cases[i].name, *f) >= SHOWS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_texts), cmocka_unit_test(test_faults_show),
        cmocka_unit_test(test_token_vectors), cmocka_unit_test(test_bad_matrices)};
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
