/* SPDX-License-Identifier: MIT
 *
 * test_bad_call.c: calls on a good model that must be refused: contexts that cannot be made, batches
 * that do not fit, and calls before a model is loaded. Each gives one line that names what is wrong,
 * and leaves what it was called on usable. Files that are no valid models: test_bad_model.c.
 */
#include "tests/model/rig.h"

#include "tests/model/preset.h"

static const char *good_path;

static int begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("tiny-llama");
    spec.n_layer = 1;
    spec.n_vocab = 300;
    good_path = rig_file("good.gguf");
    RIG_OK(random_model_write(&spec, good_path, NULL, NULL, NULL, &err));
    return 0;
}

static void test_contexts(void **state) {
    (void)state;
    static const tdm_type f32 = TDM_TYPE_F32, q4_K = TDM_TYPE_Q4_K;
    static const struct {
        int32_t n_ctx, n_ubatch, n_seq, page_len;
        const tdm_type *type;
        const char *word;
    } bad[] = {
        {1 << 28, 0, 0, 0, &f32, "ctx-size"},     {-1, 0, 0, 0, &f32, "ctx-size"},
        {INT32_MAX, 0, 0, 0, &f32, "ctx-size"},   {64, -1, 0, 0, &f32, "ubatch-size"},
        {64, 1 << 20, 0, 0, &f32, "ubatch-size"}, {64, 0, 1000, 0, &f32, "parallel"},
        {64, 0, -1, 0, &f32, "parallel"},         {64, 0, 0, 48, &f32, "page"},
        {64, 0, 0, 4096, &f32, "page"},           {64, 0, 0, 0, &q4_K, "q4_K"},
    };
    llm_model *model = rig_model(good_path, rig_device(NULL, "fast", 1));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const llm_context_params params = {.struct_size = sizeof params,
                                           .n_ctx = bad[i].n_ctx,
                                           .n_ubatch = bad[i].n_ubatch,
                                           .n_seq = bad[i].n_seq,
                                           .page_len = bad[i].page_len,
                                           .type_k = bad[i].type,
                                           .type_v = bad[i].type};
        tdm_error err = {0};
        llm_context *ctx = NULL;
        if (llm_context_create(model, &params, &ctx, &err) == TDM_OK)
            fail_msg("a context with a wrong '%s' was made", bad[i].word);
        assert_null(ctx);
        rig_line_check(bad[i].word, err.message);
        if (strstr(err.message, bad[i].word) == NULL)
            fail_msg("the message should name '%s': %s", bad[i].word, err.message);
    }
    llm_model_close(model);
}

static void test_prompts(void **state) {
    (void)state;
    static const int32_t n_ctx = 64;
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = n_ctx};
    int32_t tokens[65] = {0};
    tdm_error err = {0};
    llm_model *model = rig_model(good_path, rig_device(NULL, "fast", 1));
    llm_context *ctx = rig_context(model, &params);
    llm_batch batch = {tokens, NULL, NULL, 65};
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_OUT_OF_RANGE);
    rig_line_check("a long prompt", err.message);
    assert_true(strstr(err.message, "65") != NULL && strstr(err.message, "ctx-size") != NULL);
    batch.n_tok = 3;
    static const int32_t bad[] = {300, -1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        tokens[2] = bad[i];
        assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_INVALID_ARGUMENT);
        rig_line_check("a wrong id", err.message);
        assert_non_null(strstr(err.message, "299"));
    }
    tokens[2] = 299;
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    batch.n_tok = 0;
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    assert_int_equal(llm_context_length(ctx, 0), 3);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static bool stop(void *context, uint64_t done, uint64_t total) {
    (void)context;
    return done > total / 2 ? false : true;
}

/* A load that is cancelled leaves a model that can be loaded. */
static void test_cancelled(void **state) {
    (void)state;
    tdm_error err = {0};
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    tdm_open_device *dev = rig_device(NULL, "fast", 1);
    RIG_OK(llm_model_open(good_path, &model, &err));
    assert_int_equal(llm_context_create(model, NULL, &ctx, &err), TDM_FAILED_PRECONDITION);
    assert_int_equal(llm_model_load(model, rig_runtime(), &dev, 1, stop, NULL, &err),
                     TDM_CANCELLED);
    assert_int_equal(llm_context_create(model, NULL, &ctx, &err), TDM_FAILED_PRECONDITION);
    RIG_OK(llm_model_load(model, rig_runtime(), &dev, 1, NULL, NULL, &err));
    assert_int_equal(llm_model_load(model, rig_runtime(), &dev, 1, NULL, NULL, &err),
                     TDM_FAILED_PRECONDITION);
    llm_model_close(model);
    assert_int_equal(llm_model_open("/nowhere/model.gguf", &model, &err), TDM_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nowhere/model.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, begin, rig_end);
}
