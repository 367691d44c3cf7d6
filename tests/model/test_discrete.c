/* SPDX-License-Identifier: MIT
 *
 * test_discrete.c: models on a device whose memory the host cannot touch (tests/plugins/discretes),
 * alone and in groups: the same bits as on the CPU behind it, a step without copies, limits.
 */
#include "tests/model/card_rig.h"

#include "core/counters.h"
#include "core/runtime.h"
#include "llm/report.h"
#include "plugins/meta/meta.h"
#include "tests/model/malloc_count.h"
#include "tests/model/preset.h"

static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_Q4_0};

/* Under a sanitizer a token takes a hundred times as long. The vocabulary is then smaller: the
 * bytes are still exact multiples of it. Each group and each kind of split meet every way of
 * exchanging, but not every pair of them. */
#ifdef TANDEM_SANITIZED
enum { WIDE_VOCAB = 8016, IS_SANITIZED = 1 };
#else
enum { WIDE_VOCAB = 128256, IS_SANITIZED = 0 };
#endif

/* ---- Tests ---- */

static void test_same_bits(void **state) {
    (void)state;
    static const tdm_option options[][3] = {
        {{0}},
        {{"attach", "no"}},
        {{"latency-us", "300"}, {"completion-us", "200"}},
        {{"launch-bound", "1"}},
    };
    tdm_error err = {0};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (size_t t = 0; t < 2; t++) {
            tdm_runtime *rt = card_runtime(options[i]);
            card_rows want, got;
            RIG_OK(card_run(rt, card_device(rt, "c0"), &types[t], want, &err));
            RIG_OK(card_run(rt, card_device(rt, "d0"), &types[t], got, &err));
            assert_memory_equal(got, want, sizeof want);
            assert_int_equal(card_get("c0", "memory"), 0);
            tdm_runtime_destroy(rt);
        }
}

/* Weights and caches are spread over buffers of the size that the device allows, on one device and
 * on members. Bytes and results are the same. */
static void test_many_buffers(void **state) {
    (void)state;
    tdm_error err = {0};
    card_rows want, got;
    uint64_t largest = 0, sum = 0;
    tdm_runtime *rt = card_runtime(NULL);
    llm_model *model = NULL;
    RIG_OK(card_run(rt, card_device(rt, "c0"), &types[0], want, &err));
    RIG_OK(llm_model_open(card_model, &model, &err));
    tdm_open_device *dev = card_device(rt, "d0");
    RIG_OK(llm_model_load(model, rt, &dev, 1, NULL, NULL, &err));
    assert_int_equal(model->store.n_mem, 1);
    for (int32_t i = 0; i < model->n_weight; i++) {
        if (model->weights[i].size > largest) largest = model->weights[i].size;
        sum += model->weights[i].size;
    }
    assert_true(largest < sum / 2);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
    /* Room for the scratch of a step too, which is one buffer. */
    const uint64_t limit = largest > 400000 ? largest : 400000;
    assert_true(limit < sum);
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
    for (int is_group = 0; is_group < 2; is_group++) {
        rt = card_runtime((const tdm_option[]){{"max-buffer", text}, {0}});
        dev = card_device(rt, "d0");
        if (is_group) RIG_OK(card_group(rt, "d0,d1", "2,1", NULL, &dev, &err));
        RIG_OK(llm_model_open(card_model, &model, &err));
        RIG_OK(llm_model_load(model, rt, &dev, 1, NULL, NULL, &err));
        assert_true(model->store.n_mem > 1);
        for (int32_t i = 0; i < model->store.n_mem; i++)
            assert_in_range(model->store.mems[i].size, 1, limit);
        llm_model_close(model);
        RIG_OK(card_run(rt, dev, &types[0], got, &err));
        if (!is_group) assert_memory_equal(got, want, sizeof want);
        tdm_runtime_destroy(rt);
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)largest - 1);
    rt = card_runtime((const tdm_option[]){{"max-buffer", text}, {0}});
    assert_int_equal(card_run(rt, card_device(rt, "d0"), &types[0], got, &err),
                     TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "tensor '"));
    assert_non_null(strstr(err.message, "device 'd0' has buffers of at most"));
    tdm_runtime_destroy(rt);
}

/* A generated token: one submission, one wait, nothing copied, bound, planned or allocated. */
static void test_steady_step(void **state) {
    (void)state;
    static const struct {
        const char *key;
        int64_t per_step;
    } device_counts[] = {{"submissions", 1}, {"uploads", 0}, {"downloads", 0},
                         {"binds", 0},       {"plans", 0},   {"memory", 0}};
    static const struct {
        tdm_counter counter;
        uint64_t per_step;
    } counts[] = {{TDM_COUNTER_GRAPHS_PLANNED, 0}, {TDM_COUNTER_BINDS, 0},
                  {TDM_COUNTER_ALLOCATIONS, 0},    {TDM_COUNTER_SUBMISSIONS, 1},
                  {TDM_COUNTER_HOST_WAITS, 1},     {TDM_COUNTER_UPLOADS, 0},
                  {TDM_COUNTER_DOWNLOADS, 0}};
    enum { N_DEVICE = 6, N_COUNT = 7 };
    tdm_error err = {0};
    tdm_runtime *rt = card_runtime(NULL);
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
    card_rows ignored;
    RIG_OK(llm_model_open(card_model, &model, &err));
    tdm_open_device *dev = card_device(rt, "d0");
    RIG_OK(llm_model_load(model, rt, &dev, 1, NULL, NULL, &err));
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    RIG_OK(card_decode(ctx, ignored, &err));
    int64_t before[N_DEVICE];
    uint64_t core[N_COUNT], mallocs = malloc_count_get();
    for (int i = 0; i < N_DEVICE; i++) before[i] = card_get("c0", device_counts[i].key);
    for (int i = 0; i < N_COUNT; i++) core[i] = tdm_counter_get(counts[i].counter);
    enum { N = 10 };
    for (int i = 0; i < N; i++) {
        const int32_t token = i;
        const llm_batch batch = {.tokens = &token, .n_tok = 1};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
    }
    assert_int_equal(malloc_count_get(), mallocs);
    for (int i = 0; i < N_DEVICE; i++)
        if (card_get("c0", device_counts[i].key) - before[i] != N * device_counts[i].per_step)
            fail_msg("%s: %lld in %d steps", device_counts[i].key,
                     (long long)(card_get("c0", device_counts[i].key) - before[i]), N);
    for (int i = 0; i < N_COUNT; i++)
        if (tdm_counter_get(counts[i].counter) - core[i] != N * counts[i].per_step)
            fail_msg("%s: %llu in %d steps", tdm_counter_name(counts[i].counter),
                     (unsigned long long)(tdm_counter_get(counts[i].counter) - core[i]), N);
    llm_context_destroy(ctx);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
}

/* A small step, a large one, whose plan takes more scratch, and the small one again: the plans
 * share the queue's scratch, and the small plan still finds its own. Each is compared with the
 * CPU. */
static void test_small_large_small(void **state) {
    (void)state;
    static const int counts[] = {1, 60, 1, 1, 61, 1};
    enum { N_TURN = sizeof counts / sizeof *counts };
    static float last[2][N_TURN][CARD_VOCAB];
    tdm_error err = {0};
    tdm_runtime *rt = card_runtime(NULL);
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 256, .n_ubatch = 64, .page_len = 16};
    for (int is_card = 0; is_card < 2; is_card++) {
        llm_model *model = NULL;
        llm_context *ctx = NULL;
        tdm_open_device *dev = card_device(rt, is_card ? "d0" : "c0");
        RIG_OK(llm_model_open(card_model, &model, &err));
        RIG_OK(llm_model_load(model, rt, &dev, 1, NULL, NULL, &err));
        RIG_OK(llm_context_create(model, &params, &ctx, &err));
        int64_t plans = 0;
        for (int turn = 0, at = 0; turn < N_TURN; at += counts[turn++]) {
            int32_t tokens[64];
            for (int i = 0; i < counts[turn]; i++) tokens[i] = (at + i) * 53 % CARD_VOCAB;
            const llm_batch batch = {.tokens = tokens, .n_tok = counts[turn]};
            if (is_card && turn == 2) plans = card_get("c0", "plans");
            RIG_OK(llm_context_decode(ctx, &batch, &err));
            if (is_card && turn == 2) assert_int_equal(card_get("c0", "plans"), plans);
            memcpy(last[is_card][turn], llm_context_logits(ctx, 0), sizeof last[0][0]);
        }
        llm_context_destroy(ctx);
        llm_model_close(model);
    }
    for (int turn = 0; turn < N_TURN; turn++)
        assert_memory_equal(last[1][turn], last[0][turn], sizeof last[0][0]);
    tdm_runtime_destroy(rt);
}

/* Bytes that come down in a step of 64 sequences with a wide vocabulary: whole logits, the best
 * 40 of each and the greedy token of each, which are the same tokens. */
static void test_bytes_down(void **state) {
    (void)state;
    enum { N_SEQ = 64 };
    static const int counts[] = {0, 40, 1};
    static int32_t best[N_SEQ];
    tdm_error err = {0};
    random_model_spec spec = preset_find("tiny-llama");
    spec.n_vocab = WIDE_VOCAB;
    spec.n_layer = 1;
    spec.type = TDM_TYPE_Q8_0;
    const char *wide = rig_file("wide.gguf");
    RIG_OK(random_model_write(&spec, wide, NULL, NULL, NULL, &err));
    tdm_runtime *rt = card_runtime(NULL);
    tdm_open_device *dev = card_device(rt, "d0");
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 32, .n_seq = N_SEQ, .n_ubatch = N_SEQ};
    int32_t tokens[N_SEQ], seqs[N_SEQ];
    bool wanted[N_SEQ];
    for (int i = 0; i < N_SEQ; i++)
        tokens[i] = i * 1999 % WIDE_VOCAB, seqs[i] = i, wanted[i] = true;
    const llm_batch batch = {.tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = N_SEQ};
    RIG_OK(llm_model_open(wide, &model, &err));
    assert_int_equal(model->hparams.n_vocab, WIDE_VOCAB);
    RIG_OK(llm_model_load(model, rt, &dev, 1, NULL, NULL, &err));
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    for (int k = 0; k < 3; k++) {
        RIG_OK(llm_context_set_candidates(ctx, counts[k], &err));
        const uint64_t before = tdm_counter_get(TDM_COUNTER_OUTPUT_BYTES);
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        const uint64_t down = tdm_counter_get(TDM_COUNTER_OUTPUT_BYTES) - before;
        printf("64 sequences, %d candidates: %llu bytes down\n", counts[k],
               (unsigned long long)down);
        /* A logit is 4 bytes, a candidate 8: its logit and its token. */
        const uint64_t per_row = counts[k] > 0 ? (uint64_t)counts[k] * 8 : WIDE_VOCAB * 4;
        assert_int_equal(down, N_SEQ * per_row);
        for (int i = 0; i < N_SEQ; i++) {
            llm_row row = llm_context_row(ctx, i);
            if (k == 0) {
                best[i] = 0;
                for (int32_t t = 1; t < row.n; t++)
                    if (row.logits[t] > row.logits[best[i]]) best[i] = t;
            } else {
                assert_int_equal(row.tokens[0], best[i]);
            }
        }
        for (int i = 0; i < N_SEQ; i++) RIG_OK(llm_context_truncate(ctx, i, 0, &err));
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
}

/* Experts on the CPU, everything else on a card. In each of the two layers the input of the experts
 * comes down in a call, because the card reads it itself, too; ids, weights and the result of the
 * experts cross in INPUT and OUTPUT memory, without a call. */
static int32_t experts_on_second(void *user, const char *name) {
    (void)user;
    return strstr(name, "_exps") != NULL ? 1 : -1;
}

static void test_experts_on_host(void **state) {
    (void)state;
    const llm_placement placement = {experts_on_second, NULL};
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
    const int32_t token = 7, seq = 0;
    const bool wanted = true;
    const llm_batch batch = {.tokens = &token, .seqs = &seq, .wanted = &wanted, .n_tok = 1};
    tdm_error err = {0};
    card_rows want, got;
    tdm_runtime *rt = card_runtime(NULL);
    tdm_open_device *devs[2] = {card_device(rt, "d0"), card_device(rt, "c1")};
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    RIG_OK(card_run(rt, card_device(rt, "c1"), &types[0], want, &err));
    RIG_OK(llm_model_open(card_model, &model, &err));
    llm_model_place(model, &placement);
    RIG_OK(llm_model_load(model, rt, devs, 2, NULL, NULL, &err));
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    RIG_OK(card_decode(ctx, got, &err));
    assert_true(rig_nmse(want, got, CARD_ROW * CARD_VOCAB) <= 1e-6);
    for (int i = 0; i < 3; i++) {
        const int64_t submissions = card_get("c0", "submissions"), up = card_get("c0", "uploads"),
                      down = card_get("c0", "downloads");
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        assert_int_equal(card_get("c0", "submissions") - submissions, CARD_LAYER + 1);
        assert_int_equal(card_get("c0", "uploads") - up, 0);
        assert_int_equal(card_get("c0", "downloads") - down, CARD_LAYER);
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
    assert_int_equal(card_live(), 0);
}

/* A member refuses the op of a weight that it keeps: the CPU computes it from a copy in its own
 * layout. */
static void test_refused_weights(void **state) {
    (void)state;
    static const struct {
        const char *members, *share, *op;
    } cases[] = {
        {"d0,d1", "2,1", "moe_ffn"}, {"d0,c1", "1,2", "moe_ffn"}, {"d0,d1", "2,1", "matmul"}};
    tdm_error err = {0};
    card_rows want, got;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tdm_open_device *group = NULL;
        tdm_runtime *rt = card_runtime((const tdm_option[]){{"refuse", cases[i].op}, {0}});
        RIG_OK(card_run(rt, card_device(rt, "c2"), &types[0], want, &err));
        RIG_OK(card_group(rt, cases[i].members, cases[i].share, NULL, &group, &err));
        RIG_OK(card_run(rt, group, &types[0], got, &err));
        assert_true(rig_nmse(want, got, CARD_ROW * CARD_VOCAB) <= 1e-6);
        tdm_runtime_destroy(rt);
    }
    assert_int_equal(card_live(), 0);
}

/* Is token a before token b? */
static bool is_before(const float *row, int32_t a, int32_t b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
}

enum { MERGE_TOK = 9 };

static void merge_decode(llm_context *ctx) {
    tdm_error err = {0};
    int32_t tokens[MERGE_TOK], seqs[MERGE_TOK] = {0};
    bool wanted[MERGE_TOK];
    for (int i = 0; i < MERGE_TOK; i++) tokens[i] = i * 37 % CARD_VOCAB, wanted[i] = i % 4 != 1;
    const llm_batch batch = {.tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = MERGE_TOK};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
}

/* Candidates of a group: the best numbers of its own whole rows, in order. */
static void merge_check(const char *members, const char *share, const tdm_option *exchange,
                        const tdm_option *extra) {
    static const int counts[] = {40, 1, 200};
    const size_t n_count = IS_SANITIZED ? 1 : sizeof counts / sizeof *counts;
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 32};
    tdm_error err = {0};
    tdm_open_device *group = NULL;
    llm_model *model = NULL;
    llm_context *whole = NULL, *ctx = NULL;
    tdm_runtime *rt = card_runtime(exchange);
    RIG_OK(card_group(rt, members, share, extra, &group, &err));
    RIG_OK(llm_model_open(card_model, &model, &err));
    RIG_OK(llm_model_load(model, rt, &group, 1, NULL, NULL, &err));
    RIG_OK(llm_context_create(model, &params, &whole, &err));
    merge_decode(whole);
    for (size_t k = 0; k < n_count; k++) {
        RIG_OK(llm_context_create(model, &params, &ctx, &err));
        RIG_OK(llm_context_set_candidates(ctx, counts[k], &err));
        merge_decode(ctx);
        for (int i = 0; llm_context_row(whole, i).n > 0; i++) {
            llm_row all = llm_context_row(whole, i), best = llm_context_row(ctx, i);
            int n_above = 0;
            assert_int_equal(best.n, counts[k]);
            for (int j = 0; j < best.n; j++) {
                assert_in_range(best.tokens[j], 0, CARD_VOCAB - 1);
                if (best.logits[j] != all.logits[best.tokens[j]] ||
                    (j > 0 && !is_before(all.logits, best.tokens[j - 1], best.tokens[j])))
                    fail_msg("%s, share %s: candidate %d of row %d is token %d", members, share, j,
                             i, best.tokens[j]);
            }
            for (int32_t t = 0; t < all.n; t++)
                n_above += is_before(all.logits, t, best.tokens[best.n - 1]);
            assert_int_equal(n_above, best.n - 1);
        }
        llm_context_destroy(ctx);
    }
    llm_context_destroy(whole);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
}

static void test_merged_candidates(void **state) {
    (void)state;
    static const tdm_option yes[] = {{"exchange", "yes"}, {NULL, NULL}};
    static const tdm_option mixed[] = {{"exchange", "phases,no,yes"}, {NULL, NULL}};
    merge_check("d0,d1", "1,1", yes, NULL);
    merge_check("c0,d1,d2", "30,1,1", mixed, NULL); /* a part with fewer tokens than candidates */
    if (IS_SANITIZED) return;
    merge_check("d0,d1,c2", "3,0,2", yes, NULL);
    merge_check("d0,d1", "1,1", yes, &(const tdm_option){"split", "layer"});
    merge_check("d0,c1", "2,1", yes, &(const tdm_option){"check", "replicas"});
}

/* The same 64 sequences on a group of two cards: whole rows lie in the cards' output memory, half
 * of each on each card, or 40 candidates of each row on each card. */
static void test_candidates_down(void **state) {
    (void)state;
    enum { N_SEQ = 64 };
    static const int counts[] = {40, 0};
    tdm_error err = {0};
    tdm_open_device *group = NULL;
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = N_SEQ, .n_seq = N_SEQ, .n_ubatch = N_SEQ};
    int32_t tokens[N_SEQ], seqs[N_SEQ];
    bool wanted[N_SEQ];
    tdm_runtime *rt = card_runtime((const tdm_option[]){{"exchange", "yes"}, {NULL, NULL}});
    for (int i = 0; i < N_SEQ; i++) tokens[i] = i * 5, seqs[i] = i, wanted[i] = true;
    const llm_batch batch = {.tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = N_SEQ};
    RIG_OK(card_group(rt, "d0,d1", "1,1", NULL, &group, &err));
    RIG_OK(llm_model_open(card_model, &model, &err));
    RIG_OK(llm_model_load(model, rt, &group, 1, NULL, NULL, &err));
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    const meta_device *meta = tdm_open_device_handle(group);
    for (int k = 0; k < 2; k++) {
        RIG_OK(llm_context_set_candidates(ctx, counts[k], &err));
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        for (int d = 0; d < 2; d++)
            assert_int_equal(meta->members[d].memory_size[META_MEMORY_OUTPUT],
                             counts[k] > 0 ? N_SEQ * 40 * 8 : N_SEQ * CARD_VOCAB / 2 * 4);
        for (int i = 0; i < N_SEQ; i++) RIG_OK(llm_context_truncate(ctx, i, 0, &err));
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
}

/* A generated token on a group of two cards and a CPU: a card that waits in its kernels gets one
 * submission, one whose plan is cut one more for each exchange; nothing is copied, bound, planned
 * or allocated, on the cards or in the group. The CPU rounds unlike the cards, so that a layer of
 * experts has three exchanges. */
static void test_steady_group(void **state) {
    (void)state;
    static const struct {
        tdm_option exchange;
        bool is_cut[2]; /* the plans of the cards */
        int n_exchange;
    } cases[] = {
        {{"exchange", "yes"}, {false, false}, 1 + 3 * CARD_LAYER},
        {{"exchange", "phases"}, {true, true}, 1 + 3 * CARD_LAYER},
        {{"exchange", "phases,yes"}, {true, false}, 1 + 3 * CARD_LAYER},
        {{"exchange", "yes,phases"}, {false, true}, 1 + 3 * CARD_LAYER},
    };
    static const char *const zeros[] = {"uploads", "downloads", "binds", "plans", "memory"};
    static const tdm_counter core_zeros[] = {TDM_COUNTER_GRAPHS_BUILT, TDM_COUNTER_GRAPHS_PLANNED,
                                             TDM_COUNTER_BINDS,        TDM_COUNTER_ALLOCATIONS,
                                             TDM_COUNTER_UPLOADS,      TDM_COUNTER_DOWNLOADS};
    enum { N_ZERO = 5, N_CORE = 6, N = 10 };
    /* Only the number of exchanges is read of the report, so nothing need be measured for it. */
    setenv("TANDEM_TEST_RATES", "4e10,4e11", 1);
    setenv("TANDEM_TEST_LINKS", "50e-6,20e-6", 1);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tdm_error err = {0};
        tdm_runtime *rt = card_runtime((const tdm_option[]){cases[c].exchange, {0}});
        tdm_open_device *group = NULL;
        llm_model *model = NULL;
        llm_context *ctx = NULL;
        const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
        tdm_split_report report = {.struct_size = sizeof report,
                                   .member_size = sizeof(tdm_split_member)};
        card_rows ignored;
        RIG_OK(card_group(rt, "d0,d1,c2", "2,1,1", NULL, &group, &err));
        RIG_OK(llm_model_open(card_model, &model, &err));
        RIG_OK(llm_model_report(model, group, &params, 1, 1, &report, &err));
        assert_int_equal(model->hparams.n_layer, CARD_LAYER);
        assert_int_equal(report.n_exchange, cases[c].n_exchange);
        RIG_OK(llm_model_load(model, rt, &group, 1, NULL, NULL, &err));
        RIG_OK(llm_context_create(model, &params, &ctx, &err));
        RIG_OK(card_decode(ctx, ignored, &err));
        int64_t before[2][N_ZERO], submissions[2];
        uint64_t core[N_CORE], mallocs = malloc_count_get();
        static const char *const cards[] = {"c0", "c1"};
        for (int d = 0; d < 2; d++) {
            submissions[d] = card_get(cards[d], "submissions");
            for (int i = 0; i < N_ZERO; i++) before[d][i] = card_get(cards[d], zeros[i]);
        }
        for (int i = 0; i < N_CORE; i++) core[i] = tdm_counter_get(core_zeros[i]);
        for (int i = 0; i < N; i++) {
            const int32_t token = i;
            const llm_batch batch = {.tokens = &token, .n_tok = 1};
            RIG_OK(llm_context_decode(ctx, &batch, &err));
        }
        assert_int_equal(malloc_count_get(), mallocs);
        for (int i = 0; i < N_CORE; i++)
            if (tdm_counter_get(core_zeros[i]) != core[i])
                fail_msg("case %d: %s in steady work", (int)c, tdm_counter_name(core_zeros[i]));
        for (int d = 0; d < 2; d++) {
            for (int i = 0; i < N_ZERO; i++)
                if (card_get(cards[d], zeros[i]) != before[d][i])
                    fail_msg("case %d, card %d: %lld %s", (int)c, d,
                             (long long)(card_get(cards[d], zeros[i]) - before[d][i]), zeros[i]);
            int per_step = cases[c].is_cut[d] ? 1 + cases[c].n_exchange : 1;
            assert_int_equal(card_get(cards[d], "submissions") - submissions[d], N * per_step);
        }
        llm_context_destroy(ctx);
        llm_model_close(model);
        tdm_runtime_destroy(rt);
    }
    unsetenv("TANDEM_TEST_RATES");
    unsetenv("TANDEM_TEST_LINKS");
}

/* Too little memory is a status with the sizes; what was allocated is free again. */
static void test_limits(void **state) {
    (void)state;
    static const tdm_option small[] = {{"memory", "100000"}, {NULL, NULL}};
    card_rows ignored;
    tdm_error err = {0};
    tdm_runtime *rt = card_runtime(small);
    assert_int_equal(card_run(rt, card_device(rt, "d0"), &types[0], ignored, &err),
                     TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "free"));
    assert_int_equal(card_get("c0", "memory"), 0);
    tdm_runtime_destroy(rt);
}

/* What a group measures of its links: a submission of each member, an exchange of each pair that
 * exchanges in its plans. One card takes 3 ms for a submission. */
static void test_links(void **state) {
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: measuring takes long, and test_lost_when_measured does it\n");
        skip();
    }
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        tdm_error err = {0};
        tdm_runtime *rt =
            card_runtime((const tdm_option[]){{"exchange", is_cut ? "yes,phases" : "yes"},
                                              {"latency-us", "0,3000"},
                                              {"import-align", "65536"},
                                              {NULL, NULL}});
        tdm_open_device *group = NULL;
        llm_model *model = NULL;
        tdm_split_report report = {.struct_size = sizeof report,
                                   .member_size = sizeof(tdm_split_member)};
        RIG_OK(card_group(rt, "d0,d1,c2", "1,1,1", NULL, &group, &err));
        RIG_OK(llm_model_open(card_model, &model, &err));
        RIG_OK(llm_model_report(model, group, NULL, 1, 1, &report, &err));
        const meta_device *meta = tdm_open_device_handle(group);
        for (int d = 0; d < 3; d++) {
            assert_true(meta->members[d].submit_seconds > 0);
            assert_int_equal(meta->members[d].crossing_seconds > 0, d != 1 || !is_cut);
        }
        assert_true(meta->members[1].submit_seconds >= 3e-3);
        assert_int_equal(meta->members[1].exchange,
                         is_cut ? META_EXCHANGE_IN_PHASES : META_EXCHANGE_IN_PLAN);
        /* Each submission of a cut plan is part of the prediction, before and after each
         * exchange. */
        assert_true(report.seconds > (is_cut ? report.n_exchange + 1 : 1) * 3e-3);
        llm_model_close(model);
        tdm_runtime_destroy(rt);
        assert_int_equal(card_live(), 0);
    }
}

/* A card that reads the usual weight in less than a millisecond is measured with a larger one,
 * which no cache holds, if it has the memory: an eighth of it. One run that the system interrupts
 * takes longer, so that there are several tries. */
static void test_measured_weight(void **state) {
    enum { N_TRY = 8 };
    const int64_t usual = 60 << 20, large = 500 << 20; /* whole rows of 64 and of 512 MiB */
    int64_t largest = 0;
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: half a GiB takes several times that with a sanitizer\n");
        skip();
    }
    unsetenv("TANDEM_TEST_RATES");
    setenv("TANDEM_TEST_LINKS", "50e-6,20e-6", 1);
    for (int i = 0; i < N_TRY && largest < large; i++) {
        tdm_error err = {0};
        tdm_runtime *rt = card_runtime(
            (const tdm_option[]){{"idle", "yes"}, {"memory", "8000000000,1000000000"}, {0}});
        tdm_open_device *group = NULL;
        llm_model *model = NULL;
        tdm_split_report report = {.struct_size = sizeof report,
                                   .member_size = sizeof(tdm_split_member)};
        RIG_OK(card_group(rt, "d0,d1", "1,1", NULL, &group, &err));
        RIG_OK(llm_model_open(card_model, &model, &err));
        RIG_OK(llm_model_report(model, group, NULL, 1, 1, &report, &err));
        largest = card_get("c0", "largest");
        assert_in_range(card_get("c1", "largest"), usual, 2 * usual);
        llm_model_close(model);
        tdm_runtime_destroy(rt);
    }
    assert_in_range(largest, large, 2 * large);
    unsetenv("TANDEM_TEST_LINKS");
}

/* Sum of squared differences over that of the expected values. */
static void near_check(const char *what, const float *want, const float *got, double most) {
    double nmse = rig_nmse(want, got, CARD_ROW * CARD_VOCAB);
    if (!(nmse <= most)) fail_msg("%s: NMSE %.1e, at most %.1e", what, nmse, most);
}

static void test_groups(void **state) {
    (void)state;
    static const struct {
        const char *members, *share;
    } groups[] = {
        {"d0,d1", "1,1"}, {"d0,d1", "2,1"}, {"d0,d1,c2", "1,1,1"}, {"c0,d1", "1,3"}, {"d0", "1"}};
    /* The first is what the others are compared with, by bits. */
    static const tdm_option exchange[][3] = {
        {{"exchange", "no"}},        {{"exchange", "yes"}},
        {{"exchange", "phases"}},    {{"exchange", "phases,yes,no"}},
        {{"exchange", "no,phases"}}, {{"exchange", "yes,phases"}, {"import-align", "65536"}}};
    enum { N_EXCHANGE = sizeof exchange / sizeof *exchange };
    static const tdm_option extras[] = {
        {"split", "tensor"}, {"split", "layer"}, {"attention", "sequence"}};
    tdm_error err = {0};
    card_rows want, got, first;
    tdm_runtime *rt = card_runtime(NULL);
    RIG_OK(card_run(rt, card_device(rt, "c0"), &types[0], want, &err));
    tdm_runtime_destroy(rt);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (size_t x = 0; x < sizeof extras / sizeof *extras; x++)
            for (size_t e = 0; e < N_EXCHANGE; e++) {
                char what[96];
                if (IS_SANITIZED && e > 0 && (e + g + 2 * x) % 5 > 1) continue;
                /* One member exchanges nothing. */
                if (strchr(groups[g].members, ',') == NULL && e > 0 && (e != 2 || x > 0)) continue;
                rt = card_runtime(exchange[e]);
                tdm_open_device *group = NULL;
                snprintf(what, sizeof what, "%s, %s, exchange %s, %s = %s", groups[g].members,
                         groups[g].share, exchange[e]->value, extras[x].key, extras[x].value);
                if (card_group(rt, groups[g].members, groups[g].share, &extras[x], &group, &err) !=
                        TDM_OK ||
                    card_run(rt, group, &types[0], got, &err) != TDM_OK)
                    fail_msg("%s: %s", what, err.message);
                near_check(what, want, got, 1e-6);
                if (e == 0) memcpy(first, got, sizeof first);
                if (memcmp(got, first, sizeof got) != 0)
                    fail_msg("%s: not the bits of exchanges by the host", what);
                tdm_runtime_destroy(rt);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_buffers),
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_steady_step),
        cmocka_unit_test(test_steady_group),
        cmocka_unit_test(test_small_large_small),
        cmocka_unit_test(test_bytes_down),
        cmocka_unit_test(test_experts_on_host),
        cmocka_unit_test(test_refused_weights),
        cmocka_unit_test(test_merged_candidates),
        cmocka_unit_test(test_candidates_down),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_measured_weight),
    };
    return cmocka_run_group_tests(tests, card_begin, rig_end);
}
