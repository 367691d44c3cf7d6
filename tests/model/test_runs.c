/* SPDX-License-Identifier: MIT
 *
 * test_runs.c: models whose caches have a row for each run of tokens, over 300 tokens: DeepSeek V4,
 * of which the long runs of 128 tokens are complete twice and the index selects 8 of 75 short ones,
 * and QSA, of which the index selects 3 of 75 runs. Against llama.cpp's logits of every 13th token
 * (cache of f32), in one batch, token by token and in ubatches of 7; in groups; with a quantised
 * cache in a group beside one device. A sequence that is saved, shared and taken back behind a
 * complete run goes on as computed afresh. The same of few tokens: test_archs.c,
 * test_recurrent_model.c.
 *
 * llama.cpp selects up to 3 tokens more of the next best run for QSA (llm/block/run_index.c). Of
 * each token, run_index_llama.f32 has the logits of a run of it whose top_k is less by as many.
 */
#include "llm/arch/forward_graph.h"
#include "llm/cache/state.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_device.h"
#include "tests/model/rig.h"

enum { N_TOK = 300, N_VOCAB = 128, EACH = 13, FIRST = 12 };
enum { N_ROW = (N_TOK - FIRST + EACH - 1) / EACH };

#define BOUND 1e-5
/* Of a group beside one device with a quantised cache: where an element rounds to the next code,
 * the index may select another run. */
#define BOUND_QUANTISED 1e-4

static int32_t tokens[N_TOK];

typedef struct fixture {
    const char *name, *logits;       /* files of the source tree */
    const char *path;                /* of the model */
    float expected[N_ROW * N_VOCAB]; /* [N_ROW, N_VOCAB] */
} fixture;

static fixture fixtures[] = {{.name = "deepseek4-long", .logits = "compressed_llama"},
                             {.name = "qwen4exp-select", .logits = "run_index_llama"}};
enum { N_FIXTURE = sizeof fixtures / sizeof *fixtures };

static void fixture_read(fixture *x) {
    char name[80];
    snprintf(name, sizeof name, "tests/model/archs/%s.head", x->name);
    char *head = rig_source_file(name);
    snprintf(name, sizeof name, "tests/model/%s.f32", x->logits);
    char *logits = rig_source_file(name);
    assert_non_null(head);
    assert_non_null(logits);
    snprintf(name, sizeof name, "%s.gguf", x->name);
    x->path = rig_file(name);
    assert_true(arch_fixture_write(head, x->name, 1, x->path));
    FILE *f = fopen(logits, "rb");
    assert_non_null(f);
    assert_int_equal(fread(x->expected, sizeof(float), N_ROW * N_VOCAB, f), N_ROW * N_VOCAB);
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    free(head);
    free(logits);
}

static int begin(void **state) {
    if (rig_begin(state) != 0) return -1;
    for (int i = 0; i < N_FIXTURE; i++) fixture_read(&fixtures[i]);
    for (int32_t i = 0; i < N_TOK; i++) tokens[i] = (i * i * 7 + i * 3 + 11 + i / 5 * 13) % N_VOCAB;
    return 0;
}

/* Logits [N_TOK, N_VOCAB], n_each tokens in a batch; the caller frees them. */
static float *logits_of(llm_model *model, const tdm_type *type, int n_ubatch, int n_each) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 320,
                                       .n_ubatch = n_ubatch,
                                       .page_len = 16,
                                       .type_k = type,
                                       .type_v = type};
    llm_context *ctx = rig_context(model, &params);
    float *rows = malloc(sizeof(float) * N_TOK * N_VOCAB);
    assert_non_null(rows);
    for (int i = 0; i < N_TOK; i += n_each)
        rig_decode(ctx, tokens + i, n_each, n_each, rows + (size_t)i * N_VOCAB);
    llm_context_destroy(ctx);
    return rows;
}

static double nmse_of(const fixture *x, llm_model *model, int n_ubatch, int n_each) {
    float *rows = logits_of(model, NULL, n_ubatch, n_each), *found = rows;
    for (int i = 0; i < N_ROW; i++)
        memmove(found + (size_t)i * N_VOCAB, rows + (size_t)(FIRST + i * EACH) * N_VOCAB,
                N_VOCAB * sizeof *found);
    const double nmse = rig_nmse(x->expected, found, (size_t)N_ROW * N_VOCAB);
    free(rows);
    return nmse;
}

static void judge(const fixture *x, const char *what, double nmse, double bound) {
    if (!(nmse <= bound)) fail_msg("%s, %s: NMSE %g", x->name, what, nmse);
}

static void check_one_device(const fixture *x) {
    llm_model *model = rig_model(x->path, rig_device(NULL, "reference", 2));
#ifndef TANDEM_SANITIZED /* ubatches have the code of both */
    judge(x, "one batch", nmse_of(x, model, N_TOK, N_TOK), BOUND);
    judge(x, "token by token", nmse_of(x, model, N_TOK, 1), BOUND);
#endif
    judge(x, "ubatches of 7", nmse_of(x, model, 7, N_TOK), BOUND);
    llm_model_close(model);
    model = rig_model(x->path, rig_device(NULL, "fast", 2));
    judge(x, "fast path", nmse_of(x, model, 64, N_TOK), BOUND);
    llm_model_close(model);
}

static void test_one_device(void **state) {
    (void)state;
    for (int i = 0; i < N_FIXTURE; i++) check_one_device(&fixtures[i]);
}

static void check_groups(const fixture *x) {
    static const group_config configs[] = {
        {.n_member = 2, .path = "reference", .shares = "3,1"},
        {.n_member = 3, .path = "reference", .shares = "2,0,1"},
        {.n_member = 2, .path = "reference", .split = "layer"},
    };
    static const tdm_type q8_0 = TDM_TYPE_Q8_0;
    llm_model *one = rig_model(x->path, rig_device(NULL, "reference", 2));
    float *alone = logits_of(one, &q8_0, 64, N_TOK);
    llm_model_close(one);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
#ifdef TANDEM_SANITIZED /* the code of a group is the same for each */
        if (i != 1) continue;
#endif
        llm_model *model = rig_model(x->path, group_device(&configs[i]));
        judge(x, group_words(&configs[i]), nmse_of(x, model, 64, N_TOK), BOUND);
        float *found = logits_of(model, &q8_0, 64, N_TOK);
        judge(x, "q8_0 cache", rig_nmse(alone, found, (size_t)N_TOK * N_VOCAB), BOUND_QUANTISED);
        free(found);
        llm_model_close(model);
    }
    free(alone);
}

static void test_groups(void **state) {
    (void)state;
    for (int i = 0; i < N_FIXTURE; i++) check_groups(&fixtures[i]);
}

/* Appends tokens first .. last-1 to a sequence; the logits of the last to out[N_VOCAB]
 * (nullable). */
static void append(llm_context *ctx, int32_t seq, int first, int last, float *out) {
    int32_t seqs[N_TOK];
    tdm_error err = {0};
    for (int i = 0; i < last - first; i++) seqs[i] = seq;
    const llm_batch batch = {.tokens = tokens + first, .seqs = seqs, .n_tok = last - first};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    if (out != NULL) memcpy(out, llm_context_logits(ctx, 0), N_VOCAB * sizeof *out);
}

static llm_context *context_of(llm_model *model, int page_len) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 3 * (N_TOK + 20),
                                       .n_ubatch = 32,
                                       .n_seq = 3,
                                       .page_len = page_len};
    return rig_context(model, &params);
}

/* Ends in the middle of a page, of a short run and of the second long one. */
enum { N_SAVED = 203 };

/* `what`: tokens N_SAVED .. 299 behind a sequence of N_SAVED. The rows of expected[] are those of
 * tokens FIRST, FIRST + EACH, ... */
static void check_end(const fixture *x, llm_context *ctx, int32_t seq, const char *what) {
    enum { LAST = FIRST + (N_ROW - 1) * EACH };
    float row[N_VOCAB];
    append(ctx, seq, N_SAVED, LAST + 1, row);
    judge(x, what, rig_nmse(x->expected + (size_t)(N_ROW - 1) * N_VOCAB, row, N_VOCAB), BOUND);
}

static void check_sequences(const fixture *x, llm_model *model) {
    const char *file = rig_file("compressed.state");
    int32_t *ids = NULL, n = 0;
    tdm_error err = {0};
    llm_context *ctx = context_of(model, 16);
    append(ctx, 1, 0, N_SAVED, NULL);
    RIG_OK(llm_state_save(ctx, 1, tokens, N_SAVED, file, &err));
    RIG_OK(llm_context_fork(ctx, 0, 1, N_SAVED, &err));
    check_end(x, ctx, 1, "behind a saved sequence");
    check_end(x, ctx, 0, "fork");
    RIG_OK(llm_context_truncate(ctx, 0, N_SAVED, &err));
    check_end(x, ctx, 0, "tokens taken back");
    llm_context_destroy(ctx);
    ctx = context_of(model, 64);
    append(ctx, 0, 0, 41, NULL); /* so that the pages are others */
    RIG_OK(llm_state_load(ctx, 2, file, &ids, &n, &err));
    assert_int_equal(n, N_SAVED);
    assert_memory_equal(ids, tokens, N_SAVED * sizeof *ids);
    check_end(x, ctx, 2, "loaded from a file");
    free(ids);
    llm_context_destroy(ctx);
}

static void test_sequences(void **state) {
    static const group_config config = {.n_member = 2, .path = "reference", .shares = "3,1"};
    (void)state;
    for (int i = 0; i < N_FIXTURE; i++) {
        const fixture *x = &fixtures[i];
        llm_model *model = rig_model(x->path, rig_device(NULL, "fast", 2));
        check_sequences(x, model);
        llm_model_close(model);
        model = rig_model(x->path, group_device(&config));
        check_sequences(x, model);
        llm_model_close(model);
    }
}

/* In a context that the selection takes whole no index is kept, so a group may cut the cache by
 * sequence. A fork copies its last page to that of another member: through the host. */
static void test_fork_without_index(void **state) {
    enum { N_SHARED = 11, N_SEQ = 4 };
    static const group_config config = {
        .n_member = 2, .path = "reference", .attention = "sequence"};
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 16, .n_ubatch = 16, .n_seq = N_SEQ, .page_len = 8};
    const fixture x = {.name = "qwen4exp-heads", .path = rig_file("heads.gguf")};
    float rows[N_SEQ][N_VOCAB];
    tdm_error err = {0};
    (void)state;
    char *head = rig_source_file("tests/model/archs/qwen4exp-heads.head");
    assert_non_null(head);
    assert_true(arch_fixture_write(head, x.name, 1, x.path));
    free(head);
    llm_model *model = rig_model(x.path, group_device(&config));
    assert_int_equal(model->hparams.n_vocab, N_VOCAB);
    llm_context *ctx = rig_context(model, &params);
    append(ctx, 0, 0, N_SHARED, NULL);
    for (int seq = 1; seq < N_SEQ; seq++) RIG_OK(llm_context_fork(ctx, seq, 0, N_SHARED, &err));
    for (int seq = 0; seq < N_SEQ; seq++) append(ctx, seq, N_SHARED, N_SHARED + 1, rows[seq]);
    for (int seq = 1; seq < N_SEQ; seq++)
        judge(&x, "fork in a group that cuts by sequence", rig_nmse(rows[0], rows[seq], N_VOCAB),
              BOUND);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* A layer that drafts tokens is not used in models with several residual streams; the message says
 * so. */
static void test_draft_layer(void **state) {
    llm_model *model = rig_model(fixtures[0].path, rig_device(NULL, "reference", 2)), *draft = NULL;
    tdm_error err = {0};
    (void)state;
    model->hparams.n_layer_draft = 1;
    assert_int_equal(llm_model_open_draft(model, &draft, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "has residual streams for which"));
    assert_non_null(strstr(err.message, "deepseek4"));
    assert_null(draft);
    llm_model_close(model);
}

/* Pages have a row for each run: of 16 tokens 4 rows of short runs, one of a long run. */
static void test_page_size(void **state) {
    static const tdm_type f32 = TDM_TYPE_F32;
    (void)state;
    tdm_open_device *dev = rig_device(NULL, "reference", 2);
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = f32,
                        .type_v = f32,
                        .head_dim_k = 64,
                        .head_dim_v = 64,
                        .n_head_kv = 1,
                        .page_len = 1024,
                        .flags = TDM_KV_V_FROM_K};
    uint64_t whole = 0, size = 0;
    tdm_error err = {0};
    RIG_OK(tdm_open_device_kv_page_size(dev, &desc, &whole, &err));
    desc.flags |= TDM_KV_STRIDED;
    desc.stride = 4;
    RIG_OK(tdm_open_device_kv_page_size(dev, &desc, &size, &err));
    assert_int_equal(size, whole / 4);
    desc.stride = 64;
    RIG_OK(tdm_open_device_kv_page_size(dev, &desc, &size, &err));
    assert_int_equal(size, whole / 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),  cmocka_unit_test(test_groups),
        cmocka_unit_test(test_sequences),   cmocka_unit_test(test_fork_without_index),
        cmocka_unit_test(test_draft_layer), cmocka_unit_test(test_page_size),
    };
    return cmocka_run_group_tests(tests, begin, rig_end);
}
