/* SPDX-License-Identifier: MIT
 *
 * test_group_counters.c: on a group, too, steady work builds, hashes, plans and allocates nothing:
 * token after token, with alternating shapes of drafting and verifying, and when contexts repeat a
 * shift or fork. The counters are those of the process (core/counters.h). Also counts every malloc
 * of core and language layer; plugins allocate through the host table, which counts.
 */
#include "tests/model/rig.h"

#include "core/counters.h"
#include "tests/model/group_device.h"
#include "tests/model/malloc_count.h"
#include "tests/model/preset.h"

static const group_config groups[] = {
    {.n_member = 2, .shares = "3,1"},
    {.n_member = 3, .attention = "sequence", .experts = "whole"},
    {.n_member = 2, .attention = "replicate", .check = "replicas", .reduce_type = "q8_0"},
    {.n_member = 2, .split = "layer"},
    {.n_member = 1},
    {.n_member = 2, .shares = "3,1", .is_away = true}, /* caches in the host's memory */
};

static const char *const presets[] = {"tiny-mixtral", "tiny-one-kv-head", "tiny-deepseek2"};

/* Every counter is exact: a repeated step shows what it shows the first time. Under a sanitizer
 * there are fewer of them, through two pages of 16 positions still. */
#ifdef TANDEM_SANITIZED
enum { N_TOKEN = 36, N_DRAFT = 4, N_ROUND = 1 };
#else
enum { N_TOKEN = 100, N_DRAFT = 20, N_ROUND = 3 };
#endif
enum { N_COUNTER = TDM_COUNTER_STEADY_COUNT_ + 1 }; /* mallocs come last */

static void counters_read(uint64_t *counters_out) {
    for (int i = 0; i < TDM_COUNTER_STEADY_COUNT_; i++)
        counters_out[i] = tdm_counter_get((tdm_counter)i);
    counters_out[TDM_COUNTER_STEADY_COUNT_] = malloc_count_get();
}

static void counters_check(const uint64_t *before, const group_config *config, const char *what) {
    uint64_t now[N_COUNTER];
    counters_read(now);
    for (int i = 0; i < N_COUNTER; i++)
        if (now[i] != before[i])
            fail_msg("%s: %s: %llu %s", group_words(config), what,
                     (unsigned long long)(now[i] - before[i]),
                     i < TDM_COUNTER_STEADY_COUNT_ ? tdm_counter_name((tdm_counter)i) : "mallocs");
}

static void decode(llm_context *ctx, int seq, int n_tok, int n_wanted) {
    tdm_error err = {0};
    int32_t tokens[256], seqs[256];
    bool wanted[256];
    for (int i = 0; i < n_tok; i++) {
        tokens[i] = (i * 7919 + n_tok) % 384;
        seqs[i] = seq;
        wanted[i] = i >= n_tok - n_wanted;
    }
    const llm_batch batch = {tokens, seqs, wanted, n_tok};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
}

static llm_context *context_make(llm_model *model, bool is_in_host) {
    static const tdm_type q8_0 = TDM_TYPE_Q8_0;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 400,
                                       .n_ubatch = 64,
                                       .n_seq = 3,
                                       .page_len = 16,
                                       .type_k = &q8_0,
                                       .type_v = &q8_0,
                                       .is_cache_in_host = is_in_host};
    return rig_context(model, &params);
}

/* Draft a few, verify them in one batch, truncate what is refused. */
static void draft_and_verify(llm_context *ctx) {
    tdm_error err = {0};
    for (int i = 0; i < 4; i++) decode(ctx, 0, 1, 1);
    RIG_OK(llm_context_truncate(ctx, 0, llm_context_length(ctx, 0) - 4, &err));
    decode(ctx, 0, 5, 5);
    RIG_OK(llm_context_truncate(ctx, 0, llm_context_length(ctx, 0) - 2, &err));
}

static void everything(llm_context *ctx, bool is_by_page) {
    static const int shapes[][2] = {{1, 1}, {5, 5}, {1, 0}, {30, 28}, {64, 0}, {100, 1}, {1, 1}};
    tdm_error err = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        decode(ctx, (int)i % 2, shapes[i][0], shapes[i][1]);
    RIG_OK(llm_context_shift(ctx, 1, 2, 9, &err));
    decode(ctx, 1, 1, 1);
    RIG_OK(llm_context_fork(ctx, 2, 0, llm_context_length(ctx, 0) - 3, &err));
    /* Pages that are shared are copied first, from member to member through the host. */
    if (!is_by_page) RIG_OK(llm_context_shift(ctx, 2, 2, 9, &err));
    decode(ctx, 2, 1, 1);
    for (int s = 0; s < 3; s++) RIG_OK(llm_context_truncate(ctx, s, 0, &err));
}

static void config_check(const char *path, const group_config *config) {
    bool is_by_page = config->attention != NULL && strcmp(config->attention, "sequence") == 0;
    uint64_t before[N_COUNTER];
    llm_model *model = rig_model(path, group_device(config));
    llm_context *ctx = context_make(model, config->is_away);
    decode(ctx, 0, 30, 1);
    decode(ctx, 0, 1, 1);
    counters_read(before);
    for (int i = 0; i < N_TOKEN; i++) decode(ctx, 0, 1, 1); /* through many pages */
    counters_check(before, config, "a token at a time");
    /* Plans of a new shape move memory; the second time, the older ones are bound to it again. */
    for (int i = 0; i < 2; i++) draft_and_verify(ctx);
    counters_read(before);
    for (int i = 0; i < N_DRAFT; i++) draft_and_verify(ctx);
    counters_check(before, config, "draft and verify");
    tdm_error err = {0};
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    for (int i = 0; i < 2; i++) everything(ctx, is_by_page);
    counters_read(before);
    for (int i = 0; i < N_ROUND; i++) everything(ctx, is_by_page);
    counters_check(before, config, "shapes that have been there before");
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static void test_steady(void **state) {
    (void)state;
    tdm_error err = {0};
    for (size_t m = 0; m < sizeof presets / sizeof *presets; m++) {
        random_model_spec spec = preset_find(presets[m]);
        spec.type = TDM_TYPE_Q8_0;
        const char *path = rig_file("counters.gguf");
        RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
#ifdef TANDEM_SANITIZED
            if (g % (sizeof presets / sizeof *presets) != m) continue; /* each group once */
#endif
            config_check(path, &groups[g]);
        }
    }
}

/* The counters do count a group's work: otherwise the test above proves nothing. */
static void test_counting(void **state) {
    (void)state;
    uint64_t before[N_COUNTER], after[N_COUNTER];
    tdm_error err = {0};
    random_model_spec spec = preset_find("tiny-mixtral");
    const char *path = rig_file("counting.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    llm_model *model = rig_model(path, group_device(&groups[0]));
    llm_context *ctx = context_make(model, false);
    decode(ctx, 0, 1, 1);
    counters_read(before);
    decode(ctx, 0, 7, 1);
    counters_read(after);
    assert_true(after[TDM_COUNTER_GRAPHS_BUILT] > before[TDM_COUNTER_GRAPHS_BUILT]);
    assert_true(after[TDM_COUNTER_GRAPHS_PLANNED] > before[TDM_COUNTER_GRAPHS_PLANNED]);
    /* The members' plans are their plugins' business, but what they are made of is counted. */
    assert_true(after[TDM_COUNTER_ALLOCATIONS] > before[TDM_COUNTER_ALLOCATIONS]);
    assert_true(after[TDM_COUNTER_STEADY_COUNT_] > before[TDM_COUNTER_STEADY_COUNT_]);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counting),
        cmocka_unit_test(test_steady),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
