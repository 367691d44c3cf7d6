/* SPDX-License-Identifier: MIT
 *
 * test_latent.c: the latent cache of DeepSeek-2: one row per token, of which a shift changes only
 * the rotated elements; one type for K and V; saved and loaded without V. test_golden_tiny.c
 * compares its numbers with llama.cpp, test_sequence.c tests batches.
 */
#include "tests/model/rig.h"

#include <math.h>

#include "quant/convert.h"
#include "llm/cache/state.h"
#include "tests/model/preset.h"

/* What a type may cost behind a shift: NMSE of logits with one layer, about three times what was
 * found. */
static const struct {
    tdm_type type;
    double shifted;
} types[] = {
    {TDM_TYPE_F32, 1e-12}, {TDM_TYPE_F16, 1e-8},  {TDM_TYPE_BF16, 1e-6},
    {TDM_TYPE_Q8_0, 3e-6}, {TDM_TYPE_Q5_1, 2e-4}, {TDM_TYPE_Q5_0, 2e-4},
    {TDM_TYPE_Q4_1, 1e-3}, {TDM_TYPE_Q4_0, 1e-3}, {TDM_TYPE_IQ4_NL, 1e-3},
};
enum { N_TYPE = sizeof types / sizeof *types };

enum { N_BEFORE = 120, N_KEEP = 10, N_DISCARD = 43, N_AFTER = 9, N_ALL = N_BEFORE + N_AFTER };

static int32_t tokens[N_ALL];

static void tokens_fill(int n_vocab) {
    for (int i = 0; i < N_ALL; i++) tokens[i] = (i * 7919 + i * i * 31 + 13) % n_vocab;
}

/* One layer without experts: logits depend smoothly on what is cached. */
static llm_model *model_make(const char *preset, int n_layer, random_model_rope rope,
                             const char *path) {
    tdm_error err = {0};
    random_model_spec spec = preset_find(preset);
    spec.n_layer = n_layer;
    spec.rope = rope;
    const char *file = rig_file("latent.gguf");
    RIG_OK(random_model_write(&spec, file, NULL, NULL, NULL, &err));
    llm_model *model = rig_model(file, rig_device(NULL, path, 2));
    tokens_fill(model->hparams.n_vocab);
    return model;
}

static llm_context *context_make(llm_model *model, tdm_type type, bool is_unrotated) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 256,
                                       .n_seq = 2,
                                       .type_k = &type,
                                       .type_v = &type,
                                       .is_unrotated = is_unrotated,
                                       .page_len = 16};
    return rig_context(model, &params);
}

/* ---- Shift ---- */

/* NMSE of the logits behind a shift against those of a sequence without the discarded tokens. */
static double shift_compare(llm_model *model, tdm_type type, bool is_unrotated) {
    tdm_error err = {0};
    int n_vocab = model->hparams.n_vocab;
    size_t n = (size_t)N_AFTER * (size_t)n_vocab;
    float *rows = malloc(2 * n * sizeof *rows), dropped[1024];
    assert_true(rows != NULL && n_vocab <= 1024);
    llm_context *ctx = context_make(model, type, is_unrotated);
    rig_decode(ctx, tokens, N_BEFORE, 1, dropped);
    RIG_OK(llm_context_shift(ctx, 0, N_KEEP, N_DISCARD, &err));
    assert_int_equal(llm_context_length(ctx, 0), N_BEFORE - N_DISCARD);
    rig_decode(ctx, tokens + N_BEFORE, N_AFTER, N_AFTER, rows);
    llm_context_destroy(ctx);
    ctx = context_make(model, type, is_unrotated);
    rig_decode(ctx, tokens, N_KEEP, 1, dropped);
    rig_decode(ctx, tokens + N_KEEP + N_DISCARD, N_BEFORE - N_DISCARD - N_KEEP, 1, dropped);
    rig_decode(ctx, tokens + N_BEFORE, N_AFTER, N_AFTER, rows + n);
    llm_context_destroy(ctx);
    double nmse = rig_nmse(rows + n, rows, n);
    free(rows);
    return nmse;
}

static void test_shift(void **state) {
    (void)state;
    static const random_model_rope ropes[] = {RANDOM_MODEL_ROPE_NONE, RANDOM_MODEL_ROPE_LINEAR,
                                              RANDOM_MODEL_ROPE_YARN};
    static const char *const paths[] = {"fast", "reference"};
#ifdef TANDEM_SANITIZED
    enum { N_PATH = 1 };
#else
    enum { N_PATH = 2 };
#endif
    int n_bad = 0;
    printf("NMSE of logits behind a shift, one layer, against never having had the tokens\n%-12s",
           "");
    for (int t = 0; t < N_TYPE; t++) printf(" %-8s", tdm_type_name(types[t].type));
    printf("\n");
    for (int r = 0; r < 3; r++)
        for (int p = 0; p < N_PATH; p++) {
            llm_model *model = model_make("tiny-deepseek2", 1, ropes[r], paths[p]);
            printf("%d %-10s", (int)ropes[r], paths[p]);
            for (int t = 0; t < N_TYPE; t++) {
                double nmse = shift_compare(model, types[t].type, t % 2 != r % 2);
                printf(" %.1e%s", nmse, nmse > types[t].shifted ? "!" : " ");
                n_bad += nmse > types[t].shifted;
            }
            printf("\n");
            llm_model_close(model);
        }
    assert_int_equal(n_bad, 0); /* marked '!' above */
}

/* The rows of the last `n` tokens, all layers. */
static uint8_t *rows_export(llm_context *ctx, int n) {
    tdm_error err = {0};
    uint8_t *rows = malloc(llm_context_rows_size(ctx, n));
    assert_non_null(rows);
    assert_true(n <= LLM_STATE_CHUNK);
    RIG_OK(llm_context_export_rows(ctx, 0, llm_context_length(ctx, 0) - n, n, rows, &err));
    return rows;
}

/* A shift leaves the latent elements' bytes alone, whatever the type and the rotation, and turns
 * the others by as many positions as their tokens moved. */
static void test_parts(void **state) {
    (void)state;
    enum { N_ROW = 30 };
    tdm_error err = {0};
    llm_model *model = model_make("tiny-deepseek2-lite", 2, RANDOM_MODEL_ROPE_NONE, "fast");
    const llm_hparams *h = &model->hparams;
    float *dropped = malloc((size_t)h->n_vocab * sizeof *dropped);
    assert_non_null(dropped);
    for (int t = 0; t < 2 * N_TYPE; t++) {
        tdm_type type = types[t / 2].type;
        llm_context *ctx = context_make(model, type, t % 2 != 0);
        const tdm_kv_desc *d = llm_context_kv_desc(ctx);
        size_t row_size = tdm_type_row_size(type, tdm_kv_padded(type, d->head_dim_k));
        size_t latent_size = tdm_type_row_size(type, h->n_lora_kv);
        assert_int_equal(d->flags & TDM_KV_V_FROM_K, TDM_KV_V_FROM_K);
        assert_int_equal(llm_context_rows_size(ctx, N_ROW), row_size * N_ROW * (size_t)h->n_layer);
        rig_decode(ctx, tokens, N_BEFORE, 1, dropped);
        uint8_t *before = rows_export(ctx, N_ROW);
        RIG_OK(llm_context_shift(ctx, 0, N_KEEP, N_DISCARD, &err));
        uint8_t *after = rows_export(ctx, N_ROW);
        for (int i = 0; i < N_ROW * h->n_layer; i++) {
            const uint8_t *a = after + (size_t)i * row_size, *b = before + (size_t)i * row_size;
            assert_memory_equal(a, b, latent_size);
            assert_memory_not_equal(a + latent_size, b + latent_size, row_size - latent_size);
            for (int k = 0; type == TDM_TYPE_F32 && k < h->rope.n_rot; k += 2) {
                const float *was = (const float *)(const void *)b + h->n_lora_kv + k;
                const float *is = (const float *)(const void *)a + h->n_lora_kv + k;
                double angle =
                    -N_DISCARD * pow((double)h->rope.freq_base, -(double)k / h->rope.n_rot);
                double c = cos(angle), s = sin(angle), x = (double)was[0], y = (double)was[1];
                assert_true(fabs((double)is[0] - (x * c - y * s)) < 1e-4);
                assert_true(fabs((double)is[1] - (x * s + y * c)) < 1e-4);
            }
        }
        free(before);
        free(after);
        llm_context_destroy(ctx);
    }
    free(dropped);
    llm_model_close(model);
}

/* ---- State ---- */

/* Logits of the tokens behind the first N_BEFORE, of sequence `seq`; freed by the caller. */
static float *next_rows(llm_context *ctx, int32_t seq) {
    tdm_error err = {0};
    size_t n = (size_t)N_AFTER * (size_t)llm_context_model(ctx)->hparams.n_vocab;
    float *rows = malloc(n * sizeof *rows);
    int32_t seqs[N_AFTER];
    bool wanted[N_AFTER];
    assert_non_null(rows);
    for (int i = 0; i < N_AFTER; i++) {
        seqs[i] = seq;
        wanted[i] = true;
    }
    const llm_batch batch = {tokens + N_BEFORE, seqs, wanted, N_AFTER};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    memcpy(rows, llm_context_logits(ctx, 0), n * sizeof *rows);
    RIG_OK(llm_context_truncate(ctx, seq, N_BEFORE, &err));
    return rows;
}

static void state_check(llm_model *model, tdm_type type, bool is_unrotated) {
    tdm_error err = {0};
    const char *path = rig_file("latent.state");
    size_t n = (size_t)N_AFTER * (size_t)model->hparams.n_vocab;
    int32_t *ids = NULL, n_id = 0;
    llm_context *ctx = context_make(model, type, is_unrotated);
    const llm_batch batch = {tokens, NULL, NULL, N_BEFORE};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    float *expected = next_rows(ctx, 0);
    RIG_OK(llm_state_save(ctx, 0, tokens, N_BEFORE, path, &err));
    RIG_OK(llm_state_load(ctx, 1, path, &ids, &n_id, &err));
    assert_int_equal(n_id, N_BEFORE);
    assert_memory_equal(ids, tokens, N_BEFORE * sizeof *ids);
    float *found = next_rows(ctx, 1);
    if (memcmp(found, expected, n * sizeof *found) != 0)
        fail_msg("cache %s: the loaded sequence goes on differently: NMSE %.1e",
                 tdm_type_name(type), rig_nmse(expected, found, n));
    free(ids);
    free(found);
    free(expected);
    llm_context_destroy(ctx);
    /* Into a context of another type: refused. */
    ctx = context_make(model, type == TDM_TYPE_F32 ? TDM_TYPE_F16 : TDM_TYPE_F32, is_unrotated);
    assert_int_equal(llm_state_load(ctx, 1, path, &ids, &n_id, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "cache-type-k"));
    assert_int_equal(llm_context_length(ctx, 1), 0);
    llm_context_destroy(ctx);
}

static void test_state(void **state) {
    (void)state;
    llm_model *model = model_make("tiny-deepseek2", 3, RANDOM_MODEL_ROPE_YARN, "fast");
    for (int t = 0; t < N_TYPE; t++) state_check(model, types[t].type, t % 2 == 0);
    state_check(model, TDM_TYPE_Q8_0, false);
    state_check(model, TDM_TYPE_Q8_0, true);
    llm_model_close(model);
}

/* ---- Types ---- */

static void test_one_type(void **state) {
    (void)state;
    static const tdm_type k = TDM_TYPE_Q8_0, v = TDM_TYPE_F16;
    llm_context_params params = {.struct_size = sizeof params, .type_k = &k, .type_v = &v};
    tdm_error err = {0};
    llm_context *ctx = NULL;
    llm_model *model = model_make("tiny-deepseek2", 2, RANDOM_MODEL_ROPE_NONE, "fast");
    assert_int_equal(llm_context_create(model, &params, &ctx, &err), TDM_INVALID_ARGUMENT);
    assert_null(ctx);
    if (strstr(err.message, "cache-type-v") == NULL || strstr(err.message, "q8_0") == NULL ||
        strstr(err.message, "latent") == NULL)
        fail_msg("the message should name the key, the type and the reason: %s", err.message);
    /* Without a type for V, V has that of K. */
    params.type_v = NULL;
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    assert_int_equal(llm_context_kv_desc(ctx)->type_v, TDM_TYPE_Q8_0);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* What a type costs, against an f32 cache: bounds are about three times what was found. */
static void test_types(void **state) {
    (void)state;
    static const double bounds[] = {0, 5e-8, 3e-6, 3e-5, 2e-3, 2e-3, 7e-3, 7e-3, 7e-3};
    llm_model *model = model_make("tiny-deepseek2-lite", 1, RANDOM_MODEL_ROPE_YARN, "fast");
    size_t n = (size_t)N_ALL * (size_t)model->hparams.n_vocab;
    float *exact = malloc(2 * n * sizeof *exact);
    int n_bad = 0;
    assert_non_null(exact);
    for (int t = 0; t < N_TYPE; t++)
        for (int is_unrotated = 0; is_unrotated < 2; is_unrotated++) {
            llm_context *ctx = context_make(model, types[t].type, is_unrotated != 0);
            float *rows = t + is_unrotated == 0 ? exact : exact + n;
            rig_decode(ctx, tokens, N_ALL, N_ALL, rows);
            double nmse = rig_nmse(exact, rows, n);
            printf("%-7s %-9s NMSE %.1e\n", tdm_type_name(types[t].type),
                   is_unrotated ? "unrotated" : "rotated", nmse);
            n_bad += nmse > bounds[t];
            llm_context_destroy(ctx);
        }
    free(exact);
    llm_model_close(model);
    assert_int_equal(n_bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shift),    cmocka_unit_test(test_parts), cmocka_unit_test(test_state),
        cmocka_unit_test(test_one_type), cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
