/* SPDX-License-Identifier: MIT
 *
 * test_candidates.c: the best tokens of a row, selected on the device, equal those of the whole
 * row bit for bit, for batches of several sequences in any order.
 */
#include "tests/model/rig.h"

#include "tests/model/preset.h"

enum { N_TOK = 30, N_SEQ = 3 };

static llm_model *model;

static int begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("tiny-mixtral");
    const char *path = rig_file("candidates.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    model = rig_model(path, rig_device(NULL, "fast", 2));
    return 0;
}

static int end(void **state) {
    llm_model_close(model);
    return rig_end(state);
}

/* Every third token is not wanted, and sequences alternate. */
static void decode(llm_context *ctx) {
    tdm_error err = {0};
    int32_t tokens[N_TOK], seqs[N_TOK];
    bool wanted[N_TOK];
    for (int i = 0; i < N_TOK; i++) {
        tokens[i] = i * 97 % 384;
        seqs[i] = (i + i / 5) % N_SEQ;
        wanted[i] = i % 3 != 1;
    }
    const llm_batch batch = {tokens, seqs, wanted, N_TOK};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
}

/* Is token a before token b? */
static bool is_before(const float *row, int32_t a, int32_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
}

static void test_candidates(void **state) {
    (void)state;
    static const int counts[] = {1, 7, 40, 200};
    const llm_context_params params = {.struct_size = sizeof params, .n_seq = N_SEQ, .n_ctx = 64};
    tdm_error err = {0};
    llm_context *whole = rig_context(model, &params);
    decode(whole);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        llm_context *ctx = rig_context(model, &params);
        RIG_OK(llm_context_set_candidates(ctx, counts[k], &err));
        decode(ctx);
        assert_null(llm_context_logits(ctx, 0));
        for (int i = 0; i < 20; i++) {
            llm_row all = llm_context_row(whole, i), best = llm_context_row(ctx, i);
            assert_int_equal(best.n, counts[k]);
            assert_null(all.tokens);
            int n_above = 0;
            for (int j = 0; j < best.n; j++) {
                assert_true(best.tokens[j] >= 0 && best.tokens[j] < all.n);
                assert_true(best.logits[j] == all.logits[best.tokens[j]]);
                if (j > 0) assert_true(is_before(all.logits, best.tokens[j - 1], best.tokens[j]));
            }
            for (int32_t t = 0; t < all.n; t++)
                n_above += is_before(all.logits, t, best.tokens[best.n - 1]);
            assert_int_equal(n_above, best.n - 1);
        }
        assert_int_equal(llm_context_row(ctx, 20).n, 0);
        /* And back to whole rows. */
        RIG_OK(llm_context_set_candidates(ctx, 0, &err));
        assert_int_equal(llm_context_row(ctx, 0).n, 0);
        for (int s = 0; s < N_SEQ; s++) RIG_OK(llm_context_truncate(ctx, s, 0, &err));
        decode(ctx);
        assert_memory_equal(llm_context_logits(ctx, 3), llm_context_logits(whole, 3),
                            sizeof(float) * 384);
        llm_context_destroy(ctx);
    }
    llm_context_destroy(whole);
}

static void test_refused(void **state) {
    (void)state;
    static const int bad[] = {-1, LLM_MAX_CANDIDATES + 1, 385};
    llm_context *ctx = rig_context(model, NULL);
    for (int i = 0; i < 3; i++) {
        tdm_error err = {0};
        assert_int_equal(llm_context_set_candidates(ctx, bad[i], &err), TDM_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "candidates"));
    }
    llm_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
