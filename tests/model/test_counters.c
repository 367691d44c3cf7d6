/* SPDX-License-Identifier: MIT
 *
 * test_counters.c: steady work builds, hashes, plans and allocates nothing: token after token,
 * with alternating shapes, and when a context repeats a shift, fork or truncation. The counters
 * are those of the process, as `--profile` prints them. Also counts every malloc of core and
 * language layer (--wrap).
 */
#include "tests/model/rig.h"

#include "core/counters.h"
#include "tests/model/malloc_count.h"
#include "tests/model/preset.h"

static llm_model *model;

/* A reading of the counters; mallocs come last. */
enum { N_COUNTER = TDM_COUNTER_STEADY_COUNT_ + 1 };

static int begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("tiny-mixtral");
    spec.type = TDM_TYPE_Q8_0;
    const char *path = rig_file("counters.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    model = rig_model(path, rig_device(NULL, "fast", 2));
    return 0;
}

static int end(void **state) {
    llm_model_close(model);
    return rig_end(state);
}

static llm_context *context_make(void) {
    static const tdm_type q8_0 = TDM_TYPE_Q8_0;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 400,
                                       .n_ubatch = 64,
                                       .n_seq = 3,
                                       .page_len = 16,
                                       .type_k = &q8_0,
                                       .type_v = &q8_0};
    return rig_context(model, &params);
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

static void counters_read(uint64_t *counters_out) {
    for (int i = 0; i < TDM_COUNTER_STEADY_COUNT_; i++)
        counters_out[i] = tdm_counter_get((tdm_counter)i);
    counters_out[TDM_COUNTER_STEADY_COUNT_] = malloc_count_get();
}

/* Fails where a counter has moved since `before`. */
static void counters_check(const uint64_t *before, const char *what) {
    uint64_t now[N_COUNTER];
    counters_read(now);
    for (int i = 0; i < N_COUNTER; i++)
        if (now[i] != before[i])
            fail_msg("%s: %llu %s", what, (unsigned long long)(now[i] - before[i]),
                     i < TDM_COUNTER_STEADY_COUNT_ ? tdm_counter_name((tdm_counter)i) : "mallocs");
}

/* The counters do count: otherwise the tests below prove nothing. */
static void test_counting(void **state) {
    (void)state;
    uint64_t before[N_COUNTER], after[N_COUNTER];
    counters_read(before);
    llm_context *ctx = context_make();
    decode(ctx, 0, 5, 1);
    counters_read(after);
    assert_true(after[TDM_COUNTER_GRAPHS_BUILT] > before[TDM_COUNTER_GRAPHS_BUILT]);
    assert_true(after[TDM_COUNTER_GRAPHS_PLANNED] > before[TDM_COUNTER_GRAPHS_PLANNED]);
    assert_true(after[TDM_COUNTER_ALLOCATIONS] > before[TDM_COUNTER_ALLOCATIONS]);
    assert_true(after[TDM_COUNTER_STEADY_COUNT_] > before[TDM_COUNTER_STEADY_COUNT_]);
    assert_true(after[TDM_COUNTER_BYTES_ALLOCATED] > before[TDM_COUNTER_BYTES_ALLOCATED]);
    llm_context_destroy(ctx);
}

/* Nothing moves while the page tables fit the plan's capacity (16 pages of 16 tokens, then 64), and
 * a sequence that outgrows it is planned for once. */
static void test_decoding(void **state) {
    (void)state;
    uint64_t before[N_COUNTER], after[N_COUNTER];
    llm_context *ctx = context_make();
    decode(ctx, 0, 30, 1);
    decode(ctx, 0, 1, 1);
    counters_read(before);
    uint64_t step[TDM_COUNTER_COUNT_], n_token = 0;
    for (int i = 0; i < TDM_COUNTER_COUNT_; i++) step[i] = tdm_counter_get((tdm_counter)i);
    for (; llm_context_length(ctx, 0) < 16 * 16; n_token++) decode(ctx, 0, 1, 1);
    counters_check(before, "decoding a token at a time");
    /* A token is one submission and one wait; its inputs and outputs lie where both sides reach. */
    for (int i = 0; i < TDM_COUNTER_COUNT_; i++)
        step[i] = tdm_counter_get((tdm_counter)i) - step[i];
    assert_true(n_token > 100);
    assert_int_equal(step[TDM_COUNTER_SUBMISSIONS], n_token);
    assert_int_equal(step[TDM_COUNTER_HOST_WAITS], n_token);
    assert_int_equal(step[TDM_COUNTER_UPLOADS], 0);
    assert_int_equal(step[TDM_COUNTER_DOWNLOADS], 0);
    decode(ctx, 0, 1, 1);
    counters_read(after);
    assert_int_equal(after[TDM_COUNTER_GRAPHS_BUILT] - before[TDM_COUNTER_GRAPHS_BUILT], 1);
    while (llm_context_length(ctx, 0) < 400) decode(ctx, 0, 1, 1);
    counters_check(after, "decoding a token at a time, behind many pages");
    llm_context_destroy(ctx);
}

/* One round of everything that shapes can do. */
static void round_run(llm_context *ctx) {
    static const int32_t shapes[][2] = {{1, 1},   {5, 5},  {1, 1},   {5, 1}, {1, 0},
                                        {30, 28}, {64, 0}, {100, 1}, {1, 1}};
    tdm_error err = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        decode(ctx, (int)i % 2, shapes[i][0], shapes[i][1]);
    RIG_OK(llm_context_fork(ctx, 2, 0, llm_context_length(ctx, 0) - 3, &err));
    RIG_OK(llm_context_shift(ctx, 2, 2, 9, &err));
    decode(ctx, 2, 1, 1);
    for (int s = 0; s < 3; s++) RIG_OK(llm_context_truncate(ctx, s, 0, &err));
}

static void test_alternating(void **state) {
    (void)state;
    uint64_t before[N_COUNTER];
    llm_context *ctx = context_make();
    /* The second round binds plans again that were made before memory moved for a larger one. */
    for (int i = 0; i < 2; i++) round_run(ctx);
    counters_read(before);
    for (int i = 0; i < 10; i++) {
        round_run(ctx);
        counters_check(before, "shapes that have been there before");
    }
    llm_context_destroy(ctx);
}

/* The sizes that a context reports do not grow either, and are those of its allocations. */
static void test_memory_told(void **state) {
    (void)state;
    llm_context *ctx = context_make();
    round_run(ctx);
    llm_context_memory first = llm_context_get_memory(ctx);
    assert_true(first.cache > 0 && first.compute > 0 && first.output > 0);
    for (int i = 0; i < 3; i++) round_run(ctx);
    llm_context_memory last = llm_context_get_memory(ctx);
    assert_true(last.cache == first.cache && last.compute == first.compute &&
                last.output == first.output);
    llm_context_destroy(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counting),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_alternating),
        cmocka_unit_test(test_memory_told),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
