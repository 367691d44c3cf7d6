/* SPDX-License-Identifier: MIT
 *
 * test_state.c: a sequence that is saved to a file and loaded again continues with the same
 * results, in the same context or in one with other pages, threads or instruction sets. A
 * truncated, changed or foreign file is refused and leaves the sequence empty. A failed write
 * leaves no file. One model has another number of KV heads in each layer, and none in some.
 */
#include "tests/model/rig.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llm/cache/state.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/preset.h"

enum { N_TOK = 150, N_NEXT = 12 };

static int32_t tokens[N_TOK + N_NEXT];
static const char *model_path, *other_path, *layers_path;
static const tdm_type cache_types[] = {
#define KV_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
};

static int begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("tiny-llama");
    spec.type = TDM_TYPE_F32;
    model_path = rig_file("model.gguf");
    other_path = rig_file("other.gguf");
    RIG_OK(random_model_write(&spec, model_path, NULL, NULL, NULL, &err));
    spec.seed = 2;
    RIG_OK(random_model_write(&spec, other_path, NULL, NULL, NULL, &err));
    for (int i = 0; i < N_TOK + N_NEXT; i++) tokens[i] = (i * 7919 + i * i * 31 + 13) % 128;
    layers_path = rig_file("layers.gguf");
    char *head = rig_source_file("tests/model/archs/deci-layers.head");
    const bool is_made = head != NULL && arch_fixture_write(head, "deci-layers", 1, layers_path);
    free(head);
    return is_made ? 0 : -1;
}

static llm_context *context_make(llm_model *model, tdm_type k, tdm_type v, int page_len) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 400,
                                       .n_seq = 2,
                                       .page_len = page_len,
                                       .type_k = &k,
                                       .type_v = &v};
    return rig_context(model, &params);
}

/* Logits of the tokens behind the saved ones, of sequence `seq`; freed by the caller. */
static float *next_rows(llm_context *ctx, int seq) {
    tdm_error err = {0};
    size_t n = (size_t)N_NEXT * (size_t)llm_context_model(ctx)->hparams.n_vocab;
    float *rows = malloc(n * sizeof *rows);
    int32_t seqs[N_NEXT];
    bool wanted[N_NEXT];
    assert_non_null(rows);
    for (int i = 0; i < N_NEXT; i++) {
        seqs[i] = seq;
        wanted[i] = true;
    }
    const llm_batch batch = {tokens + N_TOK, seqs, wanted, N_NEXT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    memcpy(rows, llm_context_logits(ctx, 0), n * sizeof *rows);
    RIG_OK(llm_context_truncate(ctx, seq, llm_context_length(ctx, seq) - N_NEXT, &err));
    return rows;
}

static void fill(llm_context *ctx) {
    tdm_error err = {0};
    const llm_batch batch = {tokens, NULL, NULL, N_TOK};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
}

/* Loads into sequence 1 and checks the ids; logits behind it are the caller's to free. */
static float *load_and_go_on(llm_context *ctx, const char *path) {
    tdm_error err = {0};
    int32_t *ids = NULL, n = 0;
    RIG_OK(llm_state_load(ctx, 1, path, &ids, &n, &err));
    assert_int_equal(n, N_TOK);
    assert_int_equal(llm_context_length(ctx, 1), N_TOK);
    assert_memory_equal(ids, tokens, N_TOK * sizeof *ids);
    free(ids);
    return next_rows(ctx, 1);
}

static void save_and_load(const char *of) {
    tdm_error err = {0};
    const char *path = rig_file("again.state");
    llm_model *model = rig_model(of, rig_device(NULL, "fast", 2));
    size_t n = (size_t)N_NEXT * (size_t)model->hparams.n_vocab;
    for (size_t k = 0; k < sizeof cache_types / sizeof *cache_types; k++) {
        size_t v = (k * 2 + 1) % (sizeof cache_types / sizeof *cache_types);
        llm_context *ctx = context_make(model, cache_types[k], cache_types[v], 16);
        fill(ctx);
        float *expected = next_rows(ctx, 0);
        RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
        float *rows = load_and_go_on(ctx, path);
        if (memcmp(rows, expected, n * sizeof *rows) != 0)
            fail_msg("cache %s %s: the loaded sequence goes on differently: NMSE %.1e",
                     tdm_type_name(cache_types[k]), tdm_type_name(cache_types[v]),
                     rig_nmse(expected, rows, n));
        free(rows);
        free(expected);
        llm_context_destroy(ctx);
    }
    llm_model_close(model);
}

static void test_again(void **state) {
    (void)state;
    save_and_load(model_path);
    save_and_load(layers_path);
}

/* ---- Sparse attention ---- */

enum { SPARSE_TOK = 60, SPARSE_KEEP = 4, SPARSE_DISCARD = 9, SPARSE_ROWS = 24 };

/* Tokens first .. SPARSE_TOK - 1 to sequence `seq`. */
static void sparse_append(llm_context *ctx, int seq, int first) {
    tdm_error err = {0};
    int32_t seqs[SPARSE_TOK];
    for (int i = 0; i < SPARSE_TOK; i++) seqs[i] = seq;
    const llm_batch batch = {tokens + first, seqs, NULL, SPARSE_TOK - first};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
}

static void sparse_same(const char *what, llm_context *ctx, int seq, const float *expected) {
    float *rows = next_rows(ctx, seq);
    double nmse =
        rig_nmse(expected, rows, (size_t)N_NEXT * (size_t)llm_context_model(ctx)->hparams.n_vocab);
    free(rows);
    if (!(nmse <= 1e-10)) fail_msg("%s: NMSE %.1e", what, nmse);
}

/* The rows of layer 0 follow from token and position alone: after a shift they are those of the
 * remaining tokens at their new positions, the keys of the index behind K, where it has any. */
static void sparse_shift(llm_model *model, llm_context *ctx) {
    const llm_hparams *h = &model->hparams;
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 100};
    const int32_t n_index = model->specs[0].index == LLM_INDEX_OWN ? h->index_len : 0;
    const size_t n = (size_t)SPARSE_ROWS * (size_t)(h->head_dim_k * h->n_head_kv + n_index);
    tdm_error err = {0};
    int32_t left[SPARSE_ROWS];
    float *shifted = malloc(llm_context_rows_size(ctx, SPARSE_ROWS));
    float *fresh = malloc(llm_context_rows_size(ctx, SPARSE_ROWS));
    llm_context *other = rig_context(model, &params);
    assert_true(shifted != NULL && fresh != NULL);
    assert_int_equal(llm_context_rows_size(ctx, 1) % sizeof(float), 0);
    assert_true(llm_context_rows_size(ctx, SPARSE_ROWS) > n * sizeof(float));
    RIG_OK(llm_context_shift(ctx, 0, SPARSE_KEEP, SPARSE_DISCARD, &err));
    for (int i = 0; i < SPARSE_ROWS; i++)
        left[i] = tokens[i < SPARSE_KEEP ? i : i + SPARSE_DISCARD];
    const llm_batch batch = {left, NULL, NULL, SPARSE_ROWS};
    RIG_OK(llm_context_decode(other, &batch, &err));
    RIG_OK(llm_context_export_rows(ctx, 0, 0, SPARSE_ROWS, shifted, &err));
    RIG_OK(llm_context_export_rows(other, 0, 0, SPARSE_ROWS, fresh, &err));
    assert_true(rig_nmse(fresh, shifted, n) <= 1e-10);
    llm_context_destroy(other);
    free(shifted);
    free(fresh);
}

/* The keys of the index go with the cache: into a fork, through a rollback, into a file and back,
 * and through a shift. Contexts that select nothing have none, and refuse such a file. */
static void sparse_index_run(const char *fixture) {
    tdm_error err = {0};
    char name[96];
    const char *path = rig_file("sparse.state"), *file = rig_file("sparse.gguf");
    snprintf(name, sizeof name, "tests/model/archs/%s.head", fixture);
    char *head = rig_source_file(name);
    assert_non_null(head);
    unlink(file);
    assert_true(arch_fixture_write(head, fixture, 1, file));
    free(head);
    llm_model *model = rig_model(file, rig_device(NULL, "fast", 2));
    llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 256, .n_seq = 3, .page_len = 16};
    llm_context *ctx = rig_context(model, &params);
    int32_t *ids = NULL, n = 0;
    sparse_append(ctx, 0, 0);
    float *expected = next_rows(ctx, 0);
    RIG_OK(llm_context_fork(ctx, 1, 0, 37, &err));
    sparse_append(ctx, 1, 37);
    sparse_same("a fork", ctx, 1, expected);
    RIG_OK(llm_context_truncate(ctx, 0, 21, &err));
    sparse_append(ctx, 0, 21);
    sparse_same("a rollback", ctx, 0, expected);
    RIG_OK(llm_state_save(ctx, 0, tokens, SPARSE_TOK, path, &err));
    RIG_OK(llm_state_load(ctx, 2, path, &ids, &n, &err));
    assert_int_equal(n, SPARSE_TOK);
    free(ids);
    sparse_same("a state file", ctx, 2, expected);
    sparse_shift(model, ctx);
    sparse_same("another sequence's shift", ctx, 1, expected);
    llm_context_destroy(ctx);

    params.n_ctx = model->hparams.n_select;
    params.n_seq = 1;
    ctx = rig_context(model, &params);
    assert_int_equal(llm_state_load(ctx, 0, path, &ids, &n, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "ctx-size"));
    llm_context_destroy(ctx);
    free(expected);
    llm_model_close(model);
}

static void test_sparse_index(void **state) {
    (void)state;
    sparse_index_run("deepseek32-select");
    sparse_index_run("minimax-m3-select");
}

/* Saved by one device, loaded by each of the others, with other pages. */
static void test_elsewhere(void **state) {
    (void)state;
    tdm_error err = {0};
    const char *path = rig_file("elsewhere.state");
    static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0};
    for (int t = 0; t < 3; t++) {
        llm_model *model = rig_model(model_path, rig_device("plain", "reference", 1));
        size_t n = (size_t)N_NEXT * (size_t)model->hparams.n_vocab;
        llm_context *ctx = context_make(model, types[t], types[t], 64);
        fill(ctx);
        float *expected = next_rows(ctx, 0);
        RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
        llm_context_destroy(ctx);
        llm_model_close(model);
        for (int i = 0; rig_isas[i] != NULL; i++) {
            static const int page_lens[] = {8, 1, 128, 32};
            if (!rig_has_isa(rig_isas[i])) continue;
            model = rig_model(model_path, rig_device(rig_isas[i], "fast", 1 + i % 2));
            ctx = context_make(model, types[t], types[t], page_lens[i]);
            float *rows = load_and_go_on(ctx, path);
            double nmse = rig_nmse(expected, rows, n);
            printf("%s saved by the reference path, loaded by %s into pages of %d: NMSE %.1e\n",
                   tdm_type_name(types[t]), rig_isas[i], page_lens[i], nmse);
            assert_true(nmse <= 1e-8);
            free(rows);
            llm_context_destroy(ctx);
            llm_model_close(model);
        }
        free(expected);
    }
}

/* Of a file and a prompt, what they have in common at the beginning is loaded, whatever its length,
 * also where the rest of the file would not fit the context. */
static void load_prefixes(const char *of) {
    tdm_error err = {0};
    const char *path = rig_file("prefix.state");
    llm_model *model = rig_model(of, rig_device(NULL, "fast", 2));
    size_t n_vocab = (size_t)model->hparams.n_vocab;
    llm_context *ctx = context_make(model, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 16);
    fill(ctx);
    RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
    static const int lengths[] = {0, 1, 63, 64, 65, 100, 128, N_TOK - 1, N_TOK};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        static const tdm_type q8_0 = TDM_TYPE_Q8_0, q4_0 = TDM_TYPE_Q4_0;
        int32_t prompt[N_TOK + 1], n = -7, n_same = lengths[i];
        const llm_context_params params = {.struct_size = sizeof params,
                                           .n_ctx = n_same + 1,
                                           .n_seq = 2,
                                           .page_len = 16,
                                           .type_k = &q8_0,
                                           .type_v = &q4_0};
        llm_context *small = rig_context(model, &params);
        memcpy(prompt, tokens, sizeof prompt);
        prompt[n_same] = (prompt[n_same] + 1) % 128;
        RIG_OK(llm_state_load_prefix(small, 1, path, prompt, n_same + 1, &n, &err));
        assert_int_equal(n, n_same);
        assert_int_equal(llm_context_length(small, 1), n_same);
        /* The next logits are those behind the tokens that were computed. */
        int32_t seqs[2] = {1, 0};
        const llm_batch loaded = {prompt + n_same, seqs, NULL, 1};
        RIG_OK(llm_context_decode(small, &loaded, &err));
        float *row = malloc(n_vocab * sizeof *row);
        assert_non_null(row);
        memcpy(row, llm_context_logits(small, 0), n_vocab * sizeof *row);
        const llm_batch computed = {prompt + n_same, seqs + 1, NULL, 1};
        RIG_OK(llm_context_truncate(ctx, 0, n_same, &err));
        RIG_OK(llm_context_decode(ctx, &computed, &err));
        const double nmse = rig_nmse(llm_context_logits(ctx, 0), row, n_vocab);
        if (!(nmse <= 1e-8)) fail_msg("%d tokens loaded: NMSE %.1e", n_same, nmse);
        RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
        fill(ctx);
        free(row);
        llm_context_destroy(small);
    }
    /* A prompt shorter than the file; one that differs and is the same again behind it. */
    int32_t prompt[N_TOK], n = -7;
    RIG_OK(llm_state_load_prefix(ctx, 1, path, tokens, 70, &n, &err));
    assert_int_equal(n, 70);
    RIG_OK(llm_context_truncate(ctx, 1, 0, &err));
    memcpy(prompt, tokens, sizeof prompt);
    prompt[5]++;
    RIG_OK(llm_state_load_prefix(ctx, 1, path, prompt, N_TOK, &n, &err));
    assert_int_equal(n, 5);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static void test_prefix(void **state) {
    (void)state;
    load_prefixes(model_path);
    load_prefixes(layers_path);
}

/* ---- Files that are refused ---- */

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static bytes file_read(const char *path) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    bytes b = {NULL, (size_t)ftell(f)};
    b.data = malloc(b.size);
    assert_non_null(b.data);
    rewind(f);
    assert_int_equal(fread(b.data, 1, b.size, f), b.size);
    fclose(f);
    return b;
}

static void file_write(const char *path, const uint8_t *data, size_t size) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* The file must be refused with a message that names it and contains `word`, also when only
 * the part before the fault is loaded. */
static void refuse(llm_context *ctx, const char *path, const char *word) {
    tdm_error err = {0};
    int32_t *ids = NULL, n = -7;
    tdm_status status = llm_state_load(ctx, 1, path, &ids, &n, &err);
    if (status == TDM_OK) fail_msg("%s was loaded; '%s' should be wrong with it", path, word);
    assert_null(ids);
    assert_int_equal(n, -7);
    assert_int_equal(llm_context_length(ctx, 1), 0);
    if (status != TDM_OUT_OF_RANGE) {
        assert_int_equal(llm_state_load_prefix(ctx, 1, path, tokens, 9, &n, NULL), status);
        assert_int_equal(n, -7);
        assert_int_equal(llm_context_length(ctx, 1), 0);
    }
    if (strncmp(err.message, path, strlen(path)) != 0 || strstr(err.message, word) == NULL ||
        strchr(err.message, '\n') != NULL)
        fail_msg("the message should name the file and '%s': %s", word, err.message);
}

static void test_damaged(void **state) {
    (void)state;
    tdm_error err = {0};
    const char *path = rig_file("good.state"), *bad = rig_file("bad.state");
    llm_model *model = rig_model(model_path, rig_device(NULL, "fast", 2));
    llm_context *ctx = context_make(model, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 16);
    fill(ctx);
    RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
    bytes good = file_read(path);
    for (size_t size = 0; size < good.size; size += size < 900 ? 1 : 1013) {
        file_write(bad, good.data, size);
        refuse(ctx, bad, "truncated");
    }
    file_write(bad, good.data, good.size - 1);
    refuse(ctx, bad, "truncated");
    for (size_t at = 0; at < good.size; at += at < 900 ? 1 : 997) {
        good.data[at] ^= (uint8_t)(1 << at % 8);
        file_write(bad, good.data, good.size);
        refuse(ctx, bad, "");
        good.data[at] ^= (uint8_t)(1 << at % 8);
    }
    uint8_t *longer = malloc(good.size + 1);
    assert_non_null(longer);
    memcpy(longer, good.data, good.size);
    longer[good.size] = 0;
    file_write(bad, longer, good.size + 1);
    refuse(ctx, bad, "damaged");
    refuse(ctx, rig_file("missing.state"), "cannot be read");
    assert_int_equal(llm_state_load(ctx, 0, path, NULL, NULL, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "not empty"));
    /* After all that, the good one still loads. */
    float *rows = load_and_go_on(ctx, path);
    free(rows);
    free(longer);
    free(good.data);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* A cache whose types differ between layers, and between their K and V. */
static llm_context *layered_make(llm_model *model, const llm_layer_types *layers) {
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 400, .n_seq = 2, .layer_types = layers};
    return rig_context(model, &params);
}

static void test_layers(void **state) {
    (void)state;
    tdm_error err = {0};
    const char *path = rig_file("layered.state");
    llm_model *model = rig_model(model_path, rig_device(NULL, "fast", 2));
    const size_t n = (size_t)N_NEXT * (size_t)model->hparams.n_vocab;
    llm_layer_types layers[] = {{TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, true, false},
                                {TDM_TYPE_Q5_1, TDM_TYPE_F16, false, true}};
    assert_int_equal(model->hparams.n_layer, 2);
    llm_context *ctx = layered_make(model, layers);
    assert_true(llm_context_has_layer_types(ctx));
    fill(ctx);
    float *expected = next_rows(ctx, 0);
    RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
    float *rows = load_and_go_on(ctx, path);
    assert_memory_equal(rows, expected, n * sizeof *rows);
    free(rows);
    llm_context_destroy(ctx);

    /* Each of the fields counts, and so does whether there are any. */
    for (int i = 0; i < 4; i++) {
        llm_layer_types other[2];
        memcpy(other, layers, sizeof other);
        if (i == 0) other[1].k = TDM_TYPE_Q5_0;
        if (i == 1) other[1].v = TDM_TYPE_BF16;
        if (i == 2) other[1].rotates_k = true;
        if (i == 3) other[1].rotates_v = false;
        ctx = layered_make(model, other);
        refuse(ctx, path, "cache types of layer 1");
        llm_context_destroy(ctx);
    }
    ctx = context_make(model, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 64);
    refuse(ctx, path, "types for each layer");
    llm_context_destroy(ctx);

    /* The same types in all layers are a cache, and a file, like any other. */
    layers[0] = layers[1] = (llm_layer_types){TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, true, true};
    ctx = layered_make(model, layers);
    assert_false(llm_context_has_layer_types(ctx));
    fill(ctx);
    free(expected);
    expected = next_rows(ctx, 0);
    RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
    llm_context_destroy(ctx);
    ctx = context_make(model, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 64);
    rows = load_and_go_on(ctx, path);
    assert_memory_equal(rows, expected, n * sizeof *rows);
    free(rows);
    free(expected);
    llm_context_destroy(ctx);
    layers[0].k = TDM_TYPE_Q4_K;
    const llm_context_params bad = {.struct_size = sizeof bad, .layer_types = layers};
    assert_int_equal(llm_context_create(model, &bad, &ctx, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "layer 0"));
    llm_model_close(model);
}

/* Whole files, of something else. */
static void test_foreign(void **state) {
    (void)state;
    tdm_error err = {0};
    const char *path = rig_file("foreign.state");
    tdm_open_device *dev = rig_device(NULL, "fast", 2);
    llm_model *model = rig_model(model_path, dev), *other = rig_model(other_path, dev);
    llm_context *ctx = context_make(model, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, 16);
    fill(ctx);
    RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
    llm_context_destroy(ctx);

    ctx = context_make(other, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, 16);
    refuse(ctx, path, "another model");
    llm_context_destroy(ctx);
    ctx = context_make(model, TDM_TYPE_Q8_0, TDM_TYPE_F16, 16);
    refuse(ctx, path, "cache-type-v");
    llm_context_destroy(ctx);
    static const tdm_type q8_0 = TDM_TYPE_Q8_0;
    llm_context_params params = {.struct_size = sizeof params,
                                 .n_ctx = 256,
                                 .n_seq = 2,
                                 .type_k = &q8_0,
                                 .type_v = &q8_0,
                                 .is_unrotated = true};
    ctx = rig_context(model, &params);
    refuse(ctx, path, "kv-rotate");
    llm_context_destroy(ctx);
    params.is_unrotated = false;
    params.n_ctx = N_TOK - 1;
    ctx = rig_context(model, &params);
    refuse(ctx, path, "ctx-size");
    llm_context_destroy(ctx);
    llm_model_close(model);
    llm_model_close(other);

    /* The same weights with other keys for RoPE. */
    random_model_spec spec = preset_find("tiny-llama");
    const char *scaled_path = rig_file("scaled.gguf");
    spec.type = TDM_TYPE_F32;
    spec.rope = RANDOM_MODEL_ROPE_LINEAR;
    RIG_OK(random_model_write(&spec, scaled_path, NULL, NULL, NULL, &err));
    model = rig_model(scaled_path, dev);
    ctx = context_make(model, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, 16);
    refuse(ctx, path, "RoPE");
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* ---- Files that cannot be written ---- */

static bool is_there(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

static void test_unwritable(void **state) {
    (void)state;
    tdm_error err = {0};
    char temporary[600];
    const char *path = rig_file("full.state");
    struct rlimit before, small;
    llm_model *model = rig_model(model_path, rig_device(NULL, "fast", 2));
    llm_context *ctx = context_make(model, TDM_TYPE_F32, TDM_TYPE_F32, 16);
    fill(ctx);
    /* A wrong length, a folder that is not there. */
    assert_int_equal(llm_state_save(ctx, 0, tokens, N_TOK - 1, path, &err), TDM_INVALID_ARGUMENT);
    snprintf(temporary, sizeof temporary, "%s/no/folder", path);
    assert_int_equal(llm_state_save(ctx, 0, tokens, N_TOK, temporary, &err), TDM_IO);
    assert_non_null(strstr(err.message, "cannot be written"));
    assert_false(is_there(path));
    /* A disk that is full after so many bytes, with an older file there: that one stays. */
    RIG_OK(llm_state_save(ctx, 0, tokens, N_TOK, path, &err));
    bytes old = file_read(path);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t size = 0; size < old.size; size += old.size / 7 + 1) {
        small = before;
        small.rlim_cur = size;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        tdm_status status = llm_state_save(ctx, 0, tokens, N_TOK, path, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(status, TDM_IO);
        assert_non_null(strstr(err.message, path));
        assert_false(is_there(temporary));
        bytes now = file_read(path);
        assert_int_equal(now.size, old.size);
        assert_memory_equal(now.data, old.data, old.size);
        free(now.data);
    }
    signal(SIGXFSZ, SIG_DFL);
    free(old.data);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),      cmocka_unit_test(test_sparse_index),
        cmocka_unit_test(test_elsewhere),  cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_damaged),    cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_unwritable), cmocka_unit_test(test_layers),
    };
    return cmocka_run_group_tests(tests, begin, rig_end);
}
