/* SPDX-License-Identifier: MIT
 *
 * test_shift.c: context shift. With one layer, what is cached of a token depends on the token and
 * its position alone, so that a shifted sequence must go on as one that never had the discarded
 * tokens: for every kind of RoPE and every cache type. With more layers it may not (the values of
 * deeper layers remember what they have seen), so there the cached keys themselves are compared
 * with what turning them in double gives, after one shift and after a hundred. Prints the drift
 * table that docs/accuracy.md shows.
 */
#include "tests/model/rig.h"

#include <math.h>

#include "quant/convert.h"
#include "llm/tokenizer/tokenizer.h"
#include "tests/model/preset.h"
#include "tests/model/story.h"

/* What a type may cost: NMSE of logits after a shift in one layer; NMSE of keys after one shift and
 * after a hundred, about three times what was found. Every shift of a quantised key quantises it
 * again, and the errors add up. */
static const struct {
    tdm_type type;
    double logits, one, hundred;
} types[] = {
    {TDM_TYPE_F32, 1e-12, 1e-12, 1e-10}, {TDM_TYPE_F16, 1e-8, 1e-7, 2e-4},
    {TDM_TYPE_BF16, 1e-6, 1e-5, 1e-2},   {TDM_TYPE_Q8_0, 1e-5, 1e-4, 1e-2},
    {TDM_TYPE_Q5_1, 5e-4, 5e-3, 5e-1},   {TDM_TYPE_Q5_0, 5e-4, 5e-3, 6e-1},
    {TDM_TYPE_Q4_1, 2e-3, 2e-2, 2},      {TDM_TYPE_Q4_0, 2e-3, 2e-2, 2},
    {TDM_TYPE_IQ4_NL, 2e-3, 2e-2, 2},
};
enum { N_TYPE = sizeof types / sizeof *types };

static llm_context *context_make(llm_model *model, tdm_type type, int n_ctx, int n_seq) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = n_ctx,
                                       .n_seq = n_seq,
                                       .type_k = &type,
                                       .type_v = &type,
                                       .page_len = 16};
    return rig_context(model, &params);
}

/* ---- One layer ---- */

enum { N_BEFORE = 120, N_KEEP = 10, N_DISCARD = 43, N_AFTER = 9 };

/* NMSE of the logits behind a shift against those of a sequence without the discarded tokens. */
static double one_layer(llm_model *model, tdm_type type) {
    tdm_error err = {0};
    int32_t tokens[N_BEFORE + N_AFTER];
    int n_vocab = model->hparams.n_vocab, n_left = N_BEFORE - N_DISCARD;
    size_t n = (size_t)N_AFTER * (size_t)n_vocab;
    float *rows = malloc(2 * n * sizeof *rows), dropped[1024];
    assert_true(rows != NULL && n_vocab <= 1024);
    for (int i = 0; i < N_BEFORE + N_AFTER; i++) tokens[i] = (i * 7919 + i * i * 31 + 13) % n_vocab;
    llm_context *ctx = context_make(model, type, 256, 1);
    rig_decode(ctx, tokens, N_BEFORE, 1, dropped);
    RIG_OK(llm_context_shift(ctx, 0, N_KEEP, N_DISCARD, &err));
    assert_int_equal(llm_context_length(ctx, 0), n_left);
    rig_decode(ctx, tokens + N_BEFORE, N_AFTER, N_AFTER, rows);
    llm_context_destroy(ctx);
    ctx = context_make(model, type, 256, 1);
    rig_decode(ctx, tokens, N_KEEP, 1, dropped);
    rig_decode(ctx, tokens + N_KEEP + N_DISCARD, n_left - N_KEEP, 1, dropped);
    rig_decode(ctx, tokens + N_BEFORE, N_AFTER, N_AFTER, rows + n);
    llm_context_destroy(ctx);
    double nmse = rig_nmse(rows + n, rows, n);
    free(rows);
    return nmse;
}

static void test_one_layer(void **state) {
    (void)state;
    static const char *const ropes[] = {"none", "linear", "yarn", "llama3"};
    static const char *const paths[] = {"reference", "fast"};
    int n_bad = 0;
    printf("NMSE of logits behind a shift, one layer, against never having had the tokens\n%-16s",
           "");
    for (int t = 0; t < N_TYPE; t++) printf(" %-8s", tdm_type_name(types[t].type));
    printf("\n");
    for (int r = 0; r < RANDOM_MODEL_ROPE_COUNT_; r++) {
        tdm_error err = {0};
        random_model_spec spec = preset_find("tiny-llama");
        spec.n_layer = 1;
        spec.rope = (random_model_rope)r;
        const char *file = rig_file("layer.gguf");
        RIG_OK(random_model_write(&spec, file, NULL, NULL, NULL, &err));
        for (int p = 0; p < 2; p++) {
#ifdef TANDEM_SANITIZED /* plain C turns by whatever angles it is given: once is enough */
            if (p == 0 && r > 0) continue;
#endif
            llm_model *model = rig_model(file, rig_device(NULL, paths[p], 2));
            printf("%-6s %-9s", ropes[r], paths[p]);
            for (int t = 0; t < N_TYPE; t++) {
                double nmse = one_layer(model, types[t].type);
                printf(" %.1e%s", nmse, nmse > types[t].logits ? "!" : " ");
                n_bad += nmse > types[t].logits;
            }
            printf("\n");
            llm_model_close(model);
        }
    }
    assert_int_equal(n_bad, 0); /* marked '!' above */
}

/* ---- Keys ---- */

enum { N_STORY = 180, N_FIXED = 4, N_SHIFT = 100, N_MOVED = N_STORY - N_FIXED - N_SHIFT };

/* Canonical rows of n_row tokens, in chunks as llm_context_export_rows gives them; freed by the
 * caller. */
static uint8_t *rows_export(llm_context *ctx, int seq, int first, int n_row) {
    tdm_error err = {0};
    uint8_t *rows = malloc(llm_context_rows_size(ctx, n_row)), *at = rows;
    assert_non_null(rows);
    for (int i = 0; i < n_row; i += LLM_STATE_CHUNK) {
        int n = n_row - i < LLM_STATE_CHUNK ? n_row - i : LLM_STATE_CHUNK;
        RIG_OK(llm_context_export_rows(ctx, seq, first + i, n, at, &err));
        at += llm_context_rows_size(ctx, n);
    }
    return rows;
}

/* K (or V) bytes of one token in one layer within exported rows. */
static const uint8_t *row_find(const llm_context *ctx, const uint8_t *rows, int n_row, int i,
                               int layer, bool is_v, size_t *size_out) {
    const tdm_kv_desc *d = llm_context_kv_desc(ctx);
    size_t heads = (size_t)d->n_head_kv;
    size_t k = heads * tdm_type_row_size(d->type_k, tdm_kv_padded(d->type_k, d->head_dim_k));
    size_t v = heads * tdm_type_row_size(d->type_v, tdm_kv_padded(d->type_v, d->head_dim_v));
    int chunk = i / LLM_STATE_CHUNK * LLM_STATE_CHUNK, at = i - chunk;
    size_t n = (size_t)(n_row - chunk < LLM_STATE_CHUNK ? n_row - chunk : LLM_STATE_CHUNK);
    rows += llm_context_rows_size(ctx, chunk) + (size_t)layer * n * (k + v);
    *size_out = is_v ? v : k;
    return is_v ? rows + n * k + (size_t)at * v : rows + (size_t)at * k;
}

/* The transform that a rotated cache stores heads in; it is its own inverse. */
static void hadamard(double *x, int n, int block) {
    for (int b = 0; b < n && block > 1; b += block)
        for (int half = 1; half < block; half *= 2)
            for (int i = b; i < b + block; i += 2 * half)
                for (int j = i; j < i + half; j++) {
                    double sum = x[j] + x[j + half], difference = x[j] - x[j + half];
                    x[j] = sum * sqrt(0.5);
                    x[j + half] = difference * sqrt(0.5);
                }
}

/* Keys of one token in one layer as the model meant them, heads one after the other. */
static void key_read(const llm_context *ctx, const uint8_t *row, double *key_out) {
    const tdm_kv_desc *d = llm_context_kv_desc(ctx);
    int padded = tdm_kv_padded(d->type_k, d->head_dim_k);
    bool is_quantised = tdm_type_get_info(d->type_k).block_len > 1;
    size_t head_size = tdm_type_row_size(d->type_k, padded);
    for (int h = 0; h < d->n_head_kv; h++, key_out += d->head_dim_k) {
        float x[256];
        double wide[256];
        assert_true(padded <= 256);
        tdm_row_codec_get(d->type_k).dequantize(row + (size_t)h * head_size, x, padded);
        for (int i = 0; i < padded; i++) wide[i] = (double)x[i];
        if (is_quantised && (d->flags & TDM_KV_ROTATE_K) != 0)
            hadamard(wide, padded, tdm_kv_rotation_block(padded, d->rope_offset, d->n_rot));
        memcpy(key_out, wide, (size_t)d->head_dim_k * sizeof *key_out);
    }
}

/* Turns a key by some positions: neighbours are pairs, no scaling. */
static void key_turn(const llm_model *model, double *key, int n_pos) {
    const llm_hparams *h = &model->hparams;
    for (int head = 0; head < h->n_head_kv; head++, key += h->head_dim_k)
        for (int i = 0; i < h->rope.n_rot; i += 2) {
            double angle = n_pos * pow((double)h->rope.freq_base, -(double)i / h->rope.n_rot);
            double a = key[i], b = key[i + 1];
            key[i] = a * cos(angle) - b * sin(angle);
            key[i + 1] = a * sin(angle) + b * cos(angle);
        }
}

/* NMSE of the keys of n_row tokens after a shift against those from before, turned in double; the
 * values must be the same bytes. */
static double keys_compare(const llm_context *ctx, const uint8_t *before, const uint8_t *after,
                           int n_row, int n_pos) {
    const llm_model *model = llm_context_model(ctx);
    int n = model->hparams.n_head_kv * model->hparams.head_dim_k;
    double expected[1024], found[1024], difference = 0, energy = 0;
    assert_true(n <= 1024);
    for (int l = 0; l < model->hparams.n_layer; l++)
        for (int i = 0; i < n_row; i++) {
            size_t size;
            const uint8_t *b = row_find(ctx, before, n_row, i, l, true, &size);
            const uint8_t *a = row_find(ctx, after, n_row, i, l, true, &size);
            assert_memory_equal(a, b, size);
            b = row_find(ctx, before, n_row, i, l, false, &size);
            a = row_find(ctx, after, n_row, i, l, false, &size);
            key_read(ctx, b, expected);
            key_read(ctx, a, found);
            key_turn(model, expected, n_pos);
            for (int k = 0; k < n; k++) {
                difference += (found[k] - expected[k]) * (found[k] - expected[k]);
                energy += expected[k] * expected[k];
            }
        }
    return difference / energy;
}

static llm_model *story_load(const char *path, int32_t *tokens_out, int n) {
    tdm_error err = {0};
    const llm_vocab *vocab;
    int32_t *ids;
    size_t n_id;
    char *file = rig_source_file("models/stories-3m-q8_0.gguf");
    assert_non_null(file);
    llm_model *model = rig_model(file, rig_device(NULL, path, 2));
    free(file);
    RIG_OK(llm_model_vocab(model, &vocab, &err));
    RIG_OK(llm_tokenize(vocab, story_text, strlen(story_text), LLM_TOKENIZE_ADD_SPECIAL, &ids,
                        &n_id, &err));
    assert_true(n_id >= (size_t)n);
    memcpy(tokens_out, ids, (size_t)n * sizeof *ids);
    free(ids);
    return model;
}

/* The last N_MOVED tokens' keys after one shift by `step`, and after as many more as make
 * N_SHIFT positions. */
static void drift_measure(llm_model *model, const int32_t *tokens, int t, int step, double *one_out,
                          double *all_out) {
    tdm_error err = {0};
    float logits[1024];
    llm_context *ctx = context_make(model, types[t].type, N_STORY, 1);
    rig_decode(ctx, tokens, N_STORY, 1, logits);
    uint8_t *fixed = rows_export(ctx, 0, 0, N_FIXED);
    uint8_t *before = rows_export(ctx, 0, N_FIXED + N_SHIFT, N_MOVED);
    for (int done = step; done <= N_SHIFT; done += step) {
        RIG_OK(llm_context_shift(ctx, 0, N_FIXED, step, &err));
        assert_int_equal(llm_context_length(ctx, 0), N_STORY - done);
        if (done > step && done < N_SHIFT) continue;
        uint8_t *after = rows_export(ctx, 0, N_FIXED + N_SHIFT - done, N_MOVED);
        *all_out = keys_compare(ctx, before, after, N_MOVED, -done);
        if (done == step) *one_out = *all_out;
        free(after);
    }
    uint8_t *still = rows_export(ctx, 0, 0, N_FIXED);
    assert_memory_equal(still, fixed, llm_context_rows_size(ctx, N_FIXED));
    free(still);
    free(fixed);
    free(before);
    llm_context_destroy(ctx);
}

static void test_drift(void **state) {
    (void)state;
    int32_t tokens[N_STORY];
    int n_bad = 0;
    llm_model *model = story_load("fast", tokens, N_STORY);
    printf("NMSE of keys against those from before the shifts, turned in double\n"
           "%-7s %-12s %-16s %s\n",
           "cache", "1 shift of 1", "1 shift of 100", "100 shifts of 1");
    for (int t = 0; t < N_TYPE; t++) {
        double one = 0, hundred = 0, at_once = 0, unused = 0;
        drift_measure(model, tokens, t, 1, &one, &hundred);
        drift_measure(model, tokens, t, N_SHIFT, &at_once, &unused);
        bool is_bad = one > types[t].one || at_once > types[t].one || hundred > types[t].hundred;
        printf("%-7s %-12.1e %-16.1e %.1e%s\n", tdm_type_name(types[t].type), one, at_once, hundred,
               is_bad ? " !" : "");
        n_bad += is_bad;
    }
    llm_model_close(model);
    assert_int_equal(n_bad, 0);
}

/* Shared pages are copied before they are shifted: the other sequences do not change. */
static void test_shared(void **state) {
    (void)state;
    tdm_error err = {0};
    int32_t tokens[N_STORY];
    float logits[1024];
    llm_model *model = story_load("fast", tokens, N_STORY);
    for (int t = 0; t < N_TYPE; t += 3) {
        for (int n_shared = 95; n_shared <= 97; n_shared++) {
            llm_context *ctx = context_make(model, types[t].type, 256, 3);
            rig_decode(ctx, tokens, N_STORY, 1, logits);
            uint8_t *before = rows_export(ctx, 0, 0, N_STORY);
            RIG_OK(llm_context_fork(ctx, 1, 0, n_shared, &err));
            RIG_OK(llm_context_fork(ctx, 2, 1, n_shared, &err));
            RIG_OK(llm_context_shift(ctx, 1, 3, 21, &err));
            assert_int_equal(llm_context_length(ctx, 1), n_shared - 21);
            for (int s = 0; s <= 2; s += 2) {
                int n = s == 0 ? N_STORY : n_shared;
                uint8_t *again = rows_export(ctx, s, 0, n);
                uint8_t *own = rows_export(ctx, 0, 0, n);
                assert_memory_equal(again, own, llm_context_rows_size(ctx, n));
                if (s == 0) assert_memory_equal(again, before, llm_context_rows_size(ctx, n));
                free(again);
                free(own);
            }
            int n_moved = n_shared - 24;
            uint8_t *expected = rows_export(ctx, 0, 24, n_moved);
            uint8_t *found = rows_export(ctx, 1, 3, n_moved);
            assert_true(keys_compare(ctx, expected, found, n_moved, -21) <= types[t].one);
            free(expected);
            free(found);
            free(before);
            llm_context_destroy(ctx);
        }
    }
    llm_model_close(model);
}

/* A context that is full is shifted by about a third again and again, with the same tokens kept: it
 * never runs out of pages. */
static void go_on_and_on(llm_context *ctx, const int32_t *tokens, int n_keep) {
    tdm_error err = {0};
    float logits[1024];
    const llm_batch one = {tokens, NULL, NULL, 1};
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    for (int i = 0; i < 500; i++) {
        if (llm_context_length(ctx, 0) == 100) {
            assert_int_equal(llm_context_decode(ctx, &one, &err), TDM_OUT_OF_RANGE);
            RIG_OK(llm_context_shift(ctx, 0, n_keep, 27 + i % 11, &err));
        }
        rig_decode(ctx, &tokens[i % N_STORY], 1, 1, logits);
    }
}

static void test_endless(void **state) {
    (void)state;
    static const int keeps[] = {0, 1, 5, 16, 23};
    tdm_error err = {0};
    int32_t tokens[N_STORY];
    llm_model *model = story_load("fast", tokens, N_STORY);
    llm_context *ctx = context_make(model, TDM_TYPE_Q8_0, 100, 1);
    for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) go_on_and_on(ctx, tokens, keeps[i]);
    /* What cannot be shifted is refused and leaves the sequence alone. */
    int n = llm_context_length(ctx, 0);
    static const int32_t bad[][2] = {{-1, 5}, {5, -1}, {0, 1000}, {90, 20}, {INT32_MAX, INT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(llm_context_shift(ctx, 0, bad[i][0], bad[i][1], &err), TDM_OK);
        assert_true(strlen(err.message) > 0);
    }
    assert_int_equal(llm_context_shift(ctx, 1, 0, 1, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(llm_context_length(ctx, 0), n);
    RIG_OK(llm_context_shift(ctx, 0, 0, n, &err));
    assert_int_equal(llm_context_length(ctx, 0), 0);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_layer),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_endless),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
