/* SPDX-License-Identifier: MIT
 *
 * test_encode.c: models with an encoder and a decoder (T5), on texts longer than those of
 * test_archs: the decoder's last logits beside llama.cpp's (NAME.long.f32 in tests/model/archs),
 * and that each part of the model shows in them; several sequences at a time, forks and truncation
 * beside each sequence alone; groups that cut the cache by sequence; all that is refused.
 */
#include "llm/arch/arch.h"
#include "llm/needs.h"
#include "llm/prompt.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_device.h"
#include "tests/unit/tiny_kinds.h"

/* Both longer than the farthest distance of a bias. */
enum { N_TEXT = 200, N_ANSWER = 150, N_ROW = 8, N_VOCAB = 128, START = 6 };

/* llama.cpp rounds the results of GELU to 16 bits. */
#define BOUND 1e-5
/* What is left out shows. */
#define SHOWS 1e-3
/* Only the order of additions differs. */
#define SAME 1e-10

static const char *const names[] = {"t5-dense", "t5-plain"};

typedef enum fault {
    NO_FAULT,
    NO_ENCODER_BIAS,
    NO_DECODER_BIAS,
    TURNED_BIAS,   /* in the encoder tokens before count as behind */
    SWAPPED_CROSS, /* keys and values of encoded tokens change places */
    OTHER_TEXT,    /* one token of the encoder's is another */
    N_FAULT
} fault;

/* Ids other than START. */
static int32_t token_at(int32_t i) {
    return 7 + (37 * i + i / 7) % 121;
}

/* Zeros the bias of layers first .. end-1 of a model that is not loaded, or turns it around. */
static void bias_change(llm_model *model, int32_t first, int32_t end, bool is_turned) {
    for (int32_t layer = first; layer < end; layer++) {
        const int32_t w = model->layer[layer][LLM_ROLE_ATTN_DISTANCE_BIAS];
        assert_true(w >= 0);
        float *bias = (float *)(uintptr_t)model->weights[w].file->data;
        const size_t n_head = (size_t)model->specs[layer].n_head;
        if (!is_turned) memset(bias, 0, n_head * LLM_N_DISTANCE * sizeof *bias);
        for (size_t h = 0; is_turned && h < n_head; h++)
            for (size_t i = 0; i < LLM_FAR_DISTANCE; i++) {
                float *a = &bias[h * LLM_N_DISTANCE + i];
                float *b = &bias[(h + 1) * LLM_N_DISTANCE - 1 - i], other = *a;
                *a = *b;
                *b = other;
            }
    }
}

static void fault_make(llm_model *model, fault f) {
    const int32_t n_encoder = model->hparams.n_layer_encoder, n_layer = model->hparams.n_layer;
    if (f == NO_ENCODER_BIAS || f == TURNED_BIAS)
        bias_change(model, 0, n_encoder, f == TURNED_BIAS);
    if (f == NO_DECODER_BIAS) bias_change(model, n_encoder, n_layer, false);
    for (int32_t l = n_encoder; f == SWAPPED_CROSS && l < n_layer; l++) {
        const int32_t k = model->layer[l][LLM_ROLE_CROSS_K];
        model->layer[l][LLM_ROLE_CROSS_K] = model->layer[l][LLM_ROLE_CROSS_V];
        model->layer[l][LLM_ROLE_CROSS_V] = k;
    }
}

static llm_model *model_open(const char *name, fault f, tdm_open_device *dev) {
    char head[128];
    const char *path = rig_file("encode.gguf");
    tdm_error err = {0};
    llm_model *model = NULL;
    snprintf(head, sizeof head, "tests/model/archs/%s.head", name);
    char *source = rig_source_file(head);
    assert_non_null(source);
    assert_true(arch_fixture_write(source, name, 1, path));
    free(source);
    RIG_OK(llm_model_open(path, &model, &err));
    if (model->hparams.n_layer_encoder > 0) assert_int_equal(model->hparams.decoder_start, START);
    fault_make(model, f);
    RIG_OK(llm_model_load(model, rig_runtime(), &dev, 1, NULL, NULL, &err));
    return model;
}

static llm_model *model_on_cpu(const char *name) {
    return model_open(name, NO_FAULT, rig_device(NULL, "reference", 2));
}

static llm_context *context_make(llm_model *model, int32_t n_seq, int32_t n_ubatch) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 512,
                                       .n_ubatch = n_ubatch,
                                       .n_seq = n_seq,
                                       .page_len = 8,
                                       .begins_decoder = true};
    return rig_context(model, &params);
}

/* ---- Long texts ------------------------------------------------------------------------------ */

static void long_compute(llm_model *model, fault f, float *rows) {
    int32_t tokens[N_TEXT + N_ANSWER];
    llm_context *ctx = context_make(model, 1, 256);
    for (int32_t i = 0; i < N_TEXT + N_ANSWER; i++) tokens[i] = token_at(i);
    tokens[N_TEXT] = START;
    if (f == OTHER_TEXT) tokens[17] = tokens[17] == 7 ? 8 : 7;
    rig_decode(ctx, tokens, N_TEXT + N_ANSWER, N_ROW, rows);
    assert_int_equal(llm_context_length(ctx, 0), N_TEXT + N_ANSWER);
    llm_context_destroy(ctx);
}

static double long_nmse(const char *name, fault f, tdm_open_device *dev) {
    char file[128];
    float expected[N_ROW * N_VOCAB + 1], found[N_ROW * N_VOCAB];
    snprintf(file, sizeof file, "tests/model/archs/%s.long.f32", name);
    char *path = rig_source_file(file);
    assert_non_null(path);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(expected, sizeof *expected, N_ROW * N_VOCAB + 1, in), N_ROW * N_VOCAB);
    fclose(in);
    free(path);
    llm_model *model = model_open(name, f, dev);
    long_compute(model, f, found);
    llm_model_close(model);
    const double nmse = rig_nmse(expected, found, N_ROW * N_VOCAB);
    print_message("%s, fault %d: %.1e\n", name, (int)f, nmse);
    return nmse;
}

static void test_long_texts(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_true(long_nmse(names[i], NO_FAULT, rig_device(NULL, "reference", 2)) <= BOUND);
}

static void test_faults_show(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++)
        for (fault f = NO_FAULT + 1; f < N_FAULT; f++)
            assert_true(long_nmse(names[i], f, rig_device(NULL, "reference", 2)) >= SHOWS);
}

/* Members that have the cache of some tokens each, of both parts of a sequence. */
static void test_cut_by_sequence(void **state) {
    static const group_config groups[] = {
        {.n_member = 2, .path = "reference", .attention = "sequence"},
        {.n_member = 3, .path = "reference", .shares = "5,2,1", .attention = "sequence"}};
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_true(long_nmse(names[i], NO_FAULT, group_device(&groups[i])) <= BOUND);
}

/* ---- Sequences ------------------------------------------------------------------------------- */

enum { N_SEQ = 3, N_STEP = 12 };

/* Tokens of sequence s: a text, START, and an answer. */
typedef struct text {
    int32_t n_text, tokens[64];
} text;

static text text_make(int32_t s) {
    static const int32_t lengths[N_SEQ] = {12, 5, 15};
    text t = {.n_text = lengths[s]};
    for (int32_t i = 0; i < 64; i++) t.tokens[i] = token_at(100 * s + i);
    t.tokens[t.n_text] = START;
    return t;
}

/* The logits of N_STEP tokens from START on, of the sequence alone. */
static void alone_compute(llm_model *model, const text *t, float *rows) {
    llm_context *ctx = context_make(model, 1, 20);
    rig_decode(ctx, t->tokens, t->n_text + N_STEP, N_STEP, rows);
    llm_context_destroy(ctx);
}

/* Appends token `at` of each sequence's answer, and what comes before the first. */
static void together_step(llm_context *ctx, const text *texts, int32_t at,
                          float rows[N_SEQ][N_STEP][N_VOCAB]) {
    int32_t tokens[N_SEQ * 32], seqs[N_SEQ * 32], n = 0;
    bool wanted[N_SEQ * 32] = {false};
    tdm_error err = {0};
    /* The tokens of sequences alternate. */
    for (int32_t i = at == 0 ? 0 : 31; i < 32; i++)
        for (int32_t s = 0; s < N_SEQ; s++) {
            const int32_t from = texts[s].n_text + at - 31 + i;
            if (from < 0) continue;
            tokens[n] = texts[s].tokens[from];
            wanted[n] = i == 31;
            seqs[n++] = s;
        }
    const llm_batch batch = {.tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = n};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    for (int32_t s = 0; s < N_SEQ; s++)
        memcpy(rows[s][at], llm_context_logits(ctx, s), sizeof rows[s][at]);
}

/* Texts of 12, 5 and 15 tokens take two steps of 20 of the encoder. */
static void test_sequences(void **state) {
    static float expected[N_SEQ][N_STEP][N_VOCAB], found[N_SEQ][N_STEP][N_VOCAB];
    text texts[N_SEQ];
    (void)state;
    llm_model *model = model_on_cpu(names[0]);
    for (int32_t s = 0; s < N_SEQ; s++) {
        texts[s] = text_make(s);
        alone_compute(model, &texts[s], expected[s][0]);
    }
    llm_context *ctx = context_make(model, N_SEQ, 20);
    for (int turn = 0; turn < 2; turn++) { /* in emptied sequences again */
        tdm_error err = {0};
        for (int32_t at = 0; at < N_STEP; at++) together_step(ctx, texts, at, found);
        for (int32_t s = 0; s < N_SEQ; s++) {
            assert_true(rig_nmse(expected[s][0], found[s][0], N_STEP * N_VOCAB) <= SAME);
            assert_int_equal(llm_context_length(ctx, s), texts[s].n_text + N_STEP);
            RIG_OK(llm_context_truncate(ctx, s, 0, &err));
        }
        for (int32_t s = 0; turn == 0 && s < N_SEQ; s++)
            texts[s].tokens[texts[s].n_text + 1] = token_at(7 * s);
        for (int32_t s = 0; turn == 0 && s < N_SEQ; s++)
            alone_compute(model, &texts[s], expected[s][0]);
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* A sequence that shares the text and a part of the answer of another, and goes on otherwise. */
static void fork_compare(tdm_open_device *dev, int32_t n_shared) {
    static float expected[2][N_STEP * N_VOCAB], found[N_STEP * N_VOCAB];
    text texts[2] = {text_make(0), text_make(0)};
    tdm_error err = {0};
    const int32_t n = texts[0].n_text + n_shared, n_left = N_STEP - n_shared;
    llm_model *model = model_open(names[0], NO_FAULT, dev);
    texts[1].tokens[n] = token_at(77);
    for (int i = 0; i < 2; i++) alone_compute(model, &texts[i], expected[i]);
    llm_context *ctx = context_make(model, 2, 20);
    rig_decode(ctx, texts[0].tokens, n, n_shared, found);
    RIG_OK(llm_context_fork(ctx, 1, 0, n, &err));
    for (int32_t s = 1; s >= 0; s--) { /* the copy first */
        int32_t seqs[N_STEP];
        bool wanted[N_STEP];
        for (int32_t i = 0; i < n_left; i++) seqs[i] = s, wanted[i] = true;
        const llm_batch batch = {
            .tokens = texts[s].tokens + n, .seqs = seqs, .wanted = wanted, .n_tok = n_left};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        for (int32_t i = 0; i < n_left; i++)
            memcpy(found + (n_shared + i) * N_VOCAB, llm_context_logits(ctx, i),
                   N_VOCAB * sizeof *found);
        assert_true(rig_nmse(expected[s], found, N_STEP * N_VOCAB) <= SAME);
    }
    /* Back to what they share, and on as the other one. */
    RIG_OK(llm_context_truncate(ctx, 0, n, &err));
    rig_decode(ctx, texts[1].tokens + n, n_left, n_left, found + n_shared * N_VOCAB);
    assert_true(rig_nmse(expected[1], found, N_STEP * N_VOCAB) <= SAME);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static void test_fork(void **state) {
    static const group_config group = {.n_member = 2, .path = "reference", .shares = "5,2"};
    (void)state;
    fork_compare(rig_device(NULL, "reference", 2), 1);
    fork_compare(rig_device(NULL, "reference", 2), 5);
    fork_compare(group_device(&group), 5);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void batch_refused(llm_context *ctx, const llm_batch *batch, tdm_status status,
                          const char *word) {
    tdm_error err = {0};
    const int32_t before = llm_context_length(ctx, 0);
    assert_int_equal(llm_context_decode(ctx, batch, &err), status);
    if (strstr(err.message, word) == NULL) fail_msg("'%s' has no '%s'", err.message, word);
    assert_int_equal(llm_context_length(ctx, 0), before);
}

#define REFUSED(call, word)                                                                        \
    do {                                                                                           \
        tdm_error err_ = {0}, *const err = &err_;                                                  \
        assert_int_equal(call, TDM_UNSUPPORTED);                                                   \
        assert_non_null(strstr(err_.message, "t5"));                                               \
        assert_non_null(strstr(err_.message, word));                                               \
    } while (0)

static void test_bad_batches(void **state) {
    int32_t tokens[48], no_text[] = {START, 9};
    bool wanted[48] = {false};
    static float rows[N_VOCAB];
    (void)state;
    for (int32_t i = 0; i < 48; i++) tokens[i] = token_at(i);
    llm_model *model = model_on_cpu(names[1]);
    llm_context *ctx = context_make(model, 1, 20);
    llm_batch batch = {.tokens = tokens, .n_tok = 10};
    batch_refused(ctx, &batch, TDM_INVALID_ARGUMENT, "t5.decoder_start_token_id");
    batch = (llm_batch){.tokens = no_text, .n_tok = 2};
    batch_refused(ctx, &batch, TDM_INVALID_ARGUMENT, "no text");
    tokens[20] = START;
    wanted[3] = true;
    batch = (llm_batch){.tokens = tokens, .n_tok = 22, .wanted = wanted};
    batch_refused(ctx, &batch, TDM_UNSUPPORTED, "token 3");
    tokens[21] = START;
    tokens[20] = 9;
    batch = (llm_batch){.tokens = tokens, .n_tok = 22};
    batch_refused(ctx, &batch, TDM_UNSUPPORTED, "ubatch-size");
    tokens[20] = START;
    rig_decode(ctx, tokens, 21, 1, rows); /* as many as fit; then START is a token like others */
    rig_decode(ctx, no_text, 2, 1, rows);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static void test_refusals(void **state) {
    int32_t tokens[16];
    static float rows[N_VOCAB];
    char *bytes = calloc(1, 1 << 20);
    (void)state;
    assert_non_null(bytes);
    for (int32_t i = 0; i < 16; i++) tokens[i] = i == 10 ? START : token_at(i);
    llm_model *model = model_on_cpu(names[1]);
    llm_context *ctx = context_make(model, 2, 20);
    rig_decode(ctx, tokens, 16, 1, rows);
    assert_false(llm_context_can_shift(ctx));
    REFUSED(llm_context_shift(ctx, 0, 11, 2, err), "ctx-size");
    for (int32_t n = 9; n <= 10; n++) { /* a part of the encoder's text; the text without START */
        REFUSED(llm_context_truncate(ctx, 0, n, err), "empty");
        REFUSED(llm_context_fork(ctx, 1, 0, n, err), "all of it");
    }
    REFUSED(llm_context_export_rows(ctx, 0, 0, 4, bytes, err), "compute the prompt again");
    REFUSED(llm_context_import_rows(ctx, 1, 4, bytes, err), "compute the prompt again");
    assert_int_equal(llm_context_length(ctx, 0), 16);
    assert_int_equal(llm_context_length(ctx, 1), 0);
    /* Of a text that has another token next, the same encoder's text cannot be told. */
    assert_int_equal(llm_context_reach(ctx, 0, 10), 0);
    assert_int_equal(llm_context_reach(ctx, 0, 4), 0);
    assert_int_equal(llm_context_reach(ctx, 0, 11), 11);
    assert_int_equal(llm_context_reach(ctx, 0, 99), 16);
    tdm_error err = {0};
    RIG_OK(llm_context_fork(ctx, 1, 0, 11, &err));
    RIG_OK(llm_context_truncate(ctx, 0, 11, &err));
    llm_context_destroy(ctx);
    llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
    REFUSED(llm_context_create(model, &params, &ctx, err), "tandem run");
    params.begins_decoder = params.gives_embeddings = true;
    REFUSED(llm_context_create(model, &params, &ctx, err), "embeddings");
    params.gives_embeddings = false;
    params.gives_hidden = true;
    REFUSED(llm_context_create(model, &params, &ctx, err), "encoder");
    llm_model_close(model);
    free(bytes);
}

/* ---- Prompts --------------------------------------------------------------------------------- */

enum { EOS = -2 }; /* of the vocabulary */

/* Ends a prompt of two tokens, the second one `last`; the result must be expected[n_expected]. */
static void prompt_is(const llm_model *model, int32_t add_eos, int32_t last,
                      const int32_t *expected, size_t n_expected) {
    tiny_vocab v = {0};
    llm_vocab *vocab = NULL;
    tdm_error err = {0};
    tiny_ugm(&v);
    v.params.add_eos = add_eos;
    RIG_OK(llm_vocab_create(&v.params, &vocab, &err));
    size_t n = 2;
    int32_t *ids = malloc(n * sizeof *ids);
    assert_non_null(ids);
    ids[0] = 9;
    ids[1] = last;
    RIG_OK(llm_prompt_end(model, vocab, &ids, &n, &err));
    assert_int_equal(n, n_expected);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids[i], expected[i] == EOS ? llm_vocab_eos(vocab) : expected[i]);
    free(ids);
    llm_vocab_destroy(vocab);
}

static void test_prompt(void **state) {
    static const int32_t with_eos[] = {9, 10, EOS, START}, without[] = {9, 10, START};
    (void)state;
    llm_model *model = model_on_cpu(names[0]);
    prompt_is(model, 1, 10, with_eos, 4);
    prompt_is(model, 0, 10, without, 3);
    prompt_is(model, 1, START, (const int32_t[]){9, START}, 2); /* whole */
    assert_int_equal(llm_prompt_encoded(model, with_eos, 4), 3);
    assert_int_equal(llm_prompt_encoded(model, with_eos, 2), 2);
    model->hparams.n_layer_encoder = 0; /* as in other models */
    prompt_is(model, 1, 10, with_eos, 2);
    assert_int_equal(llm_prompt_encoded(model, with_eos, 4), 0);
    llm_model_close(model);
}

/* ---- What is missing to run a file ----------------------------------------------------------- */

static void needs_check(const char *name) {
    llm_gguf *gguf = NULL;
    llm_needs needs = {0};
    tdm_error err = {0};
    llm_model_close(model_open(name, NO_FAULT, rig_device(NULL, "reference", 2)));
    RIG_OK(llm_gguf_open(rig_file("encode.gguf"), &gguf, &err));
    RIG_OK(llm_needs_find(gguf, rig_file("encode.gguf"), &needs, &err));
    if (!needs.can_run) fail_msg("%s: %s", name, needs.needs[0].reason);
    llm_needs_free(&needs);
    llm_gguf_close(gguf);
}

/* Tensors of T5 have names of their own, of which `tandem convert-info` knows the roles. */
static void test_needs(void **state) {
    (void)state;
    needs_check("t5encoder-dense");
    for (int i = 0; i < 2; i++) needs_check(names[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_texts),
                                       cmocka_unit_test(test_faults_show),
                                       cmocka_unit_test(test_cut_by_sequence),
                                       cmocka_unit_test(test_sequences),
                                       cmocka_unit_test(test_fork),
                                       cmocka_unit_test(test_bad_batches),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_prompt),
                                       cmocka_unit_test(test_needs)};
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
