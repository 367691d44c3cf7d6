/* SPDX-License-Identifier: MIT
 *
 * test_sequence.c: the result of a sequence does not depend on how its tokens were submitted: in
 * ubatches of any size, with any logits requested, beside other sequences, after a truncation or in
 * a fork (bit for bit), or in a truncated fork (nearly). This holds for tokens of a prompt and
 * generated ones, in any mixture. The expectation is the sequence computed afresh, one token at a
 * time. test_shift.c tests shifts, test_state.c state files.
 */
#include "llm/context_internal.h"
#include "tests/model/rig.h"

#include "tests/model/preset.h"
#include "tests/support/random.h"

enum { N_TOK = 150 };

/* A model, a cache and a path. Whatever batch a token is computed in, its logits are the same bits.
 * Where a fork is truncated inside a page that it shares they are not: it goes on in another page,
 * so that attention adds in another order. Where activations are rounded to 8 bits, one bit of
 * difference before the rounding is 2^-8 of an element behind it.
 *
 * A sanitizer takes each model once with each kind of activations that its code distinguishes (a
 * model with experts has all that one without has), a float cache and quantised ones. It leaves out
 * those that differ from these in the kernels of their types and instruction sets alone, which
 * tests/kernels runs, and all in plain C, which takes it as long as all others together:
 * what becomes of tokens is the same code above any kernel, and test_golden_tiny.c runs the
 * paths. */
static const struct {
    const char *preset, *isa, *path;
    tdm_type weights, cache;
    int page_len;
    double fork_bound; /* NMSE of logits out of a fork */
    bool is_sanitized;
} setups[] = {
    {"tiny-llama", NULL, "reference", TDM_TYPE_F32, TDM_TYPE_F32, 64, 0, false},
    {"tiny-llama", NULL, "fast", TDM_TYPE_F32, TDM_TYPE_F32, 64, 1e-9, false},
    {"tiny-llama", NULL, "fast", TDM_TYPE_F32, TDM_TYPE_F16, 32, 1e-6, false},
    {"tiny-llama", NULL, "fast", TDM_TYPE_Q8_0, TDM_TYPE_F32, 64, 1e-4, false},
    {"tiny-llama", NULL, "fast", TDM_TYPE_Q4_K, TDM_TYPE_Q4_0, 8, 1e-3, true},
    {"tiny-llama", "avx2", "fast", TDM_TYPE_Q6_K, TDM_TYPE_Q5_1, 64, 1e-3, false},
    {"tiny-llama", "avx2", RIG_FAST_8, TDM_TYPE_Q4_0, TDM_TYPE_Q4_0, 64, 1e-2, false},
    {"tiny-mixtral", NULL, RIG_FAST_8, TDM_TYPE_Q4_K, TDM_TYPE_Q8_0, 64, 1e-2, true},
    {"tiny-mixtral", "avx2", "fast", TDM_TYPE_F16, TDM_TYPE_BF16, 64, 1e-4, false},
    {"tiny-llama", "plain", "fast", TDM_TYPE_Q5_K, TDM_TYPE_Q4_1, 64, 1e-3, false},
    {"tiny-llama", NULL, RIG_FAST_AUTO, TDM_TYPE_Q4_K, TDM_TYPE_Q8_0, 64, 1e-2, false},
    {"tiny-llama", "avx2", RIG_FAST_AUTO, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 8, 1e-2, false},
    {"tiny-llama", "plain", RIG_FAST_AUTO, TDM_TYPE_Q4_0, TDM_TYPE_Q4_1, 64, 1e-2, false},
    {"tiny-mixtral", NULL, RIG_FAST_AUTO, TDM_TYPE_Q5_1, TDM_TYPE_Q5_0, 32, 1e-2, true},
    {"tiny-mixtral", "avx2", RIG_FAST_AUTO, TDM_TYPE_Q6_K, TDM_TYPE_F16, 64, 1e-2, false},
    {"tiny-mixtral", "plain", RIG_FAST_AUTO, TDM_TYPE_Q4_K, TDM_TYPE_Q8_0, 64, 1e-2, false},
    {"tiny-deepseek2-lite", NULL, RIG_FAST_AUTO, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, 8, 1e-2, true},
    {"tiny-deepseek2", NULL, "fast", TDM_TYPE_F32, TDM_TYPE_F32, 32, 1e-9, true},
    {"tiny-deepseek2-lite", NULL, "fast", TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, 8, 1e-3, false},
};
enum { N_SETUP = sizeof setups / sizeof *setups };

/* The setup under test. */
typedef struct bench {
    int setup;
    int n_vocab;
    bool is_forked; /* what is compared now comes out of a fork */
    double worst;   /* NMSE seen out of forks */
    llm_model *model;
    int32_t tokens[3][N_TOK]; /* of three sequences */
    uint8_t roles[N_TOK];     /* of the tokens of each: tdm_role */
    float *fresh[3];          /* [N_TOK, n_vocab] logits of each, computed alone, one at a time */
    float *rows;              /* [3 * N_TOK, n_vocab] for a test's own use */
} bench;

static llm_context *context_make(bench *b, int n_ubatch, int n_seq) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 512,
                                       .n_ubatch = n_ubatch,
                                       .n_seq = n_seq,
                                       .page_len = setups[b->setup].page_len,
                                       .type_k = &setups[b->setup].cache,
                                       .type_v = &setups[b->setup].cache};
    return rig_context(b->model, &params);
}

static bench *bench_make(int setup) {
    tdm_error err = {0};
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    random_model_spec spec = preset_find(setups[setup].preset);
    spec.type = setups[setup].weights;
    const char *path = rig_file("sequence.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    b->setup = setup;
    b->model = rig_model(path, rig_device(setups[setup].isa, setups[setup].path, 2));
    b->n_vocab = b->model->hparams.n_vocab;
    b->rows = malloc(3 * N_TOK * (size_t)b->n_vocab * sizeof *b->rows);
    assert_non_null(b->rows);
    /* Two turns of a chat: a prompt, an answer, another prompt, another answer. */
    for (int i = 0; i < N_TOK; i++)
        b->roles[i] = i < 70 || (i >= 91 && i < 123) ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED;
    for (int s = 0; s < 3; s++) {
        b->fresh[s] = malloc(N_TOK * (size_t)b->n_vocab * sizeof *b->rows);
        assert_non_null(b->fresh[s]);
        llm_context *ctx = context_make(b, 1, 1);
        for (int i = 0; i < N_TOK; i++)
            b->tokens[s][i] = (i * 7919 + s * 104729 + i * i * 31 + 13) % b->n_vocab;
        rig_decode_as(ctx, b->tokens[s], b->roles, N_TOK, N_TOK, b->fresh[s]);
        llm_context_destroy(ctx);
    }
    return b;
}

static void bench_free(bench *b) {
    llm_model_close(b->model);
    for (int s = 0; s < 3; s++) free(b->fresh[s]);
    free(b->rows);
    free(b);
}

/* Fails unless the rows are those of sequence s from token `first` on. */
static void rows_check(bench *b, const char *what, int s, int first, int n_row, const float *rows) {
    const float *fresh = b->fresh[s] + (size_t)first * (size_t)b->n_vocab;
    size_t n = (size_t)n_row * (size_t)b->n_vocab;
    if (memcmp(fresh, rows, n * sizeof *rows) == 0) return;
    double nmse = rig_nmse(fresh, rows, n);
    if (nmse > b->worst) b->worst = nmse;
    if (!b->is_forked || nmse > setups[b->setup].fork_bound)
        fail_msg("%s: %s path, %s weights, %s cache: %s: NMSE %.1e of sequence %d, tokens %d to %d",
                 setups[b->setup].preset, setups[b->setup].path,
                 tdm_type_name(setups[b->setup].weights), tdm_type_name(setups[b->setup].cache),
                 what, nmse, s, first, first + n_row - 1);
}

/* Appends tokens first .. first+n-1 of story `s` to sequence `seq` and checks their logits. */
static void append_check(bench *b, llm_context *ctx, const char *what, int seq, int s, int first,
                         int n) {
    tdm_error err = {0};
    int32_t seqs[N_TOK];
    bool wanted[N_TOK];
    for (int i = 0; i < n; i++) {
        seqs[i] = seq;
        wanted[i] = true;
    }
    const llm_batch batch = {&b->tokens[s][first], seqs, wanted, n, .roles = &b->roles[first]};
    assert_int_equal(llm_context_length(ctx, seq), first);
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    rows_check(b, what, s, first, n, llm_context_logits(ctx, 0));
    assert_null(llm_context_logits(ctx, n));
}

static void check_ubatches(bench *b) {
    static const int sizes[] = {1, 3, 64, 512};
    for (int i = 0; i < 4; i++) {
        char what[32];
        llm_context *ctx = context_make(b, sizes[i], 1);
        snprintf(what, sizeof what, "ubatch of %d", sizes[i]);
        append_check(b, ctx, what, 0, 0, 0, N_TOK);
        llm_context_destroy(ctx);
    }
}

/* Which logits are wanted must not change them: all, none, the last, every third, and numbers just
 * below the bucket of tokens. */
static void check_outputs(bench *b) {
    static const int lengths[] = {1, 5, 9, 30, 65, 97};
    tdm_error err = {0};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        int n = lengths[k];
        llm_context *ctx = context_make(b, 96, 1);
        for (int pattern = 0; pattern < 5; pattern++) {
            bool wanted[N_TOK];
            int at = 0;
            for (int i = 0; i < n; i++)
                wanted[i] = pattern == 0   ? true
                            : pattern == 1 ? false
                            : pattern == 2 ? i % 3 == 1
                            : pattern == 3 ? i >= 2 /* 28 of 30 */
                                           : i % 2 == 0 || i < n / 2;
            const llm_batch batch = {b->tokens[0], NULL, wanted, n, .roles = b->roles};
            RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
            RIG_OK(llm_context_decode(ctx, &batch, &err));
            for (int i = 0; i < n; i++)
                if (wanted[i]) rows_check(b, "wanted", 0, i, 1, llm_context_logits(ctx, at++));
            assert_null(llm_context_logits(ctx, at));
            assert_null(llm_context_logits(ctx, -1));
        }
        llm_context_destroy(ctx);
    }
}

/* The step block that was computed last: tokens sorted by sequence, where each sequence's are, and
 * the longest sequence. */
static void step_check(const llm_context *ctx) {
    const int32_t *step = ctx->step;
    tdm_step_header h;
    int32_t longest = 0;
    memcpy(&h, step, sizeof h);
    const int32_t *first = step + h.first_tok_off;
    assert_int_equal(first[0], 0);
    assert_int_equal(first[h.n_seq], h.n_tok);
    for (int32_t s = 0; s < h.n_seq; s++) {
        assert_true(first[s] <= first[s + 1]);
        for (int32_t t = first[s]; t < first[s + 1]; t++) {
            assert_int_equal(step[h.seq_off + t], s);
            if (t > first[s]) assert_int_equal(step[h.pos_off + t], step[h.pos_off + t - 1] + 1);
            if (step[h.pos_off + t] >= longest) longest = step[h.pos_off + t] + 1;
        }
    }
    assert_int_equal(h.longest, longest);
    assert_int_equal(h.rs_read_off, h.rs_write_off); /* empty: there are no recurrent states */
    assert_int_equal(h.rs_write_off, h.job_off);
}

/* Three sequences, their tokens in random order. */
static void check_several(bench *b) {
    tdm_error err = {0};
    int32_t tokens[3 * N_TOK], seqs[3 * N_TOK];
    uint8_t roles[3 * N_TOK];
    bool wanted[3 * N_TOK];
    int at[3] = {0}, n = 0;
    uint64_t state = 12345;
    while (n < 3 * N_TOK) {
        const uint32_t dice = random_u32_below(&state, UINT32_MAX);
        int s = (int)(dice >> 16) % 3;
        if (at[s] == N_TOK) continue;
        roles[n] = b->roles[at[s]];
        tokens[n] = b->tokens[s][at[s]++];
        wanted[n] = (dice >> 24) % 4 != 0;
        seqs[n++] = s;
    }
    for (int size = 7; size <= 512; size = size * 4 + 5) {
        llm_context *ctx = context_make(b, size, 3);
        const llm_batch batch = {tokens, seqs, wanted, n, .roles = roles};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        step_check(ctx);
        memset(at, 0, sizeof at);
        for (int i = 0, row = 0; i < n; i++) {
            int s = seqs[i], first = at[s]++;
            if (wanted[i]) rows_check(b, "together", s, first, 1, llm_context_logits(ctx, row++));
        }
        llm_context_destroy(ctx);
    }
}

static void check_truncate(bench *b) {
    static const int cuts[] = {149, 128, 127, 65, 64, 63, 9, 8, 1, 0};
    tdm_error err = {0};
    llm_context *ctx = context_make(b, 64, 1);
    append_check(b, ctx, "before truncation", 0, 0, 0, N_TOK);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        RIG_OK(llm_context_truncate(ctx, 0, cuts[i], &err));
        append_check(b, ctx, "truncated", 0, 0, cuts[i], N_TOK - cuts[i]);
    }
    /* Something else in between must leave no trace. */
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    append_check(b, ctx, "another story", 0, 1, 0, 100);
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    append_check(b, ctx, "the first again", 0, 0, 0, N_TOK);
    /* Longer than it is: nothing happens. */
    RIG_OK(llm_context_truncate(ctx, 0, 1000, &err));
    assert_int_equal(llm_context_length(ctx, 0), N_TOK);
    assert_int_equal(llm_context_truncate(ctx, 1, 0, &err), TDM_INVALID_ARGUMENT);
    llm_context_destroy(ctx);
}

/* All three share a prefix, then go their own ways, in turns. */
static void check_fork(bench *b, int n_shared) {
    tdm_error err = {0};
    llm_context *ctx = context_make(b, 64, 4);
    int32_t saved[3][N_TOK];
    memcpy(saved, b->tokens, sizeof saved);
    append_check(b, ctx, "before the fork", 0, 0, 0, n_shared + 20);
    RIG_OK(llm_context_fork(ctx, 3, 0, n_shared, &err));
    assert_int_equal(llm_context_length(ctx, 3), n_shared);
    /* A sequence of its own tokens behind the shared ones: compared with itself alone. */
    memcpy(&b->tokens[1][0], &b->tokens[0][0], (size_t)n_shared * sizeof(int32_t));
    llm_context *alone = context_make(b, 1, 1);
    float *kept = b->fresh[1];
    b->fresh[1] = b->rows;
    rig_decode_as(alone, b->tokens[1], b->roles, N_TOK, N_TOK, b->fresh[1]);
    llm_context_destroy(alone);
    for (int step = 0; step < 3; step++) {
        append_check(b, ctx, "the forked", 3, 1, n_shared + 7 * step, 7);
        append_check(b, ctx, "the original", 0, 0, n_shared + 20 + 5 * step, 5);
    }
    /* A fork of the fork outlives both. */
    RIG_OK(llm_context_fork(ctx, 2, 3, n_shared + 21, &err));
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    RIG_OK(llm_context_truncate(ctx, 3, n_shared / 2, &err));
    append_check(b, ctx, "the fork's fork", 2, 1, n_shared + 21, N_TOK - n_shared - 21);
    b->is_forked = true;
    append_check(b, ctx, "the truncated fork", 3, 1, n_shared / 2, 30);
    b->is_forked = false;
    append_check(b, ctx, "the original, begun again", 0, 0, 0, 50);
    assert_int_not_equal(llm_context_fork(ctx, 2, 3, 5, &err), TDM_OK); /* not empty */
    assert_int_not_equal(llm_context_fork(ctx, 1, 3, N_TOK + 1, &err), TDM_OK);
    assert_int_not_equal(llm_context_fork(ctx, 4, 3, 5, &err), TDM_OK);
    b->fresh[1] = kept;
    memcpy(b->tokens, saved, sizeof saved);
    llm_context_destroy(ctx);
}

/* Refused batches leave the sequences as they were. */
static void check_refusals(bench *b) {
    tdm_error err = {0};
    llm_context *ctx = context_make(b, 32, 2);
    static const int32_t bad_seqs[3] = {0, 2, 0};
    static const uint8_t bad_roles[3] = {0, 1, 2};
    int32_t tokens[600] = {0};
    append_check(b, ctx, "before a refusal", 0, 0, 0, 100);
    llm_batch batch = {tokens, NULL, NULL, 600};
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_OUT_OF_RANGE);
    assert_non_null(strstr(err.message, "ctx-size"));
    batch.n_tok = 3;
    batch.seqs = bad_seqs;
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_INVALID_ARGUMENT);
    batch.seqs = NULL;
    tokens[1] = b->n_vocab;
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "vocabulary"));
    tokens[1] = -1;
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_INVALID_ARGUMENT);
    tokens[1] = 0;
    batch.roles = bad_roles;
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "role 2"));
    assert_int_equal(llm_context_length(ctx, 0), 100);
    assert_int_equal(llm_context_length(ctx, 1), 0);
    append_check(b, ctx, "after refusals", 0, 0, 100, 50);
    llm_context_destroy(ctx);
}

static bool stop_after_two(void *context, uint64_t done, uint64_t total) {
    int *n_call = context;
    assert_true(done <= total);
    return ++*n_call < 2;
}

/* A cancelled batch is taken back whole. */
static void check_cancelled(bench *b) {
    tdm_error err = {0};
    int n_call = 0;
    llm_context *ctx = context_make(b, 32, 1);
    append_check(b, ctx, "before cancelling", 0, 0, 0, 20);
    const llm_batch batch = {b->tokens[1], NULL, NULL, N_TOK};
    llm_context_set_progress(ctx, stop_after_two, &n_call);
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_CANCELLED);
    llm_context_set_progress(ctx, NULL, NULL);
    assert_int_equal(n_call, 2);
    assert_int_equal(llm_context_length(ctx, 0), 20);
    assert_null(llm_context_logits(ctx, 0));
    append_check(b, ctx, "after cancelling", 0, 0, 20, N_TOK - 20);
    llm_context_destroy(ctx);
}

/* Devices and roles that compute the same: with `auto` a prompt is what 8 bits give and generated
 * tokens are what 15 bits give, and with 8 or 15 roles change nothing; but a matrix unit takes none
 * but prompts of 8 bits. */
static void test_roles(void **state) {
    (void)state;
    enum { N = 40, N_RUN = 6 };
    static const struct {
        const char *path;
        tdm_role role;
        bool is_8;
    } runs[N_RUN] = {
        {RIG_FAST_8, TDM_ROLE_PROMPT, true},    {"fast", TDM_ROLE_GENERATED, false},
        {RIG_FAST_8, TDM_ROLE_GENERATED, true}, {"fast", TDM_ROLE_PROMPT, false},
        {RIG_FAST_AUTO, TDM_ROLE_PROMPT, true}, {RIG_FAST_AUTO, TDM_ROLE_GENERATED, false}};
    static const char *const presets[] = {"tiny-llama", "tiny-mixtral", "tiny-deepseek2-lite"};
    const tdm_type cache = TDM_TYPE_Q4_0;
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 64, .type_k = &cache, .type_v = &cache};
#ifdef TANDEM_SANITIZED /* roles are read above any kernel, and plain C takes long */
    static const char *const isas[] = {"auto"};
#else
    static const char *const isas[] = {"plain", "avx2", "avx512", "amx", "neon"};
#endif
    for (int i = 0; i < 3 * (int)(sizeof isas / sizeof *isas); i++) {
        const char *isa = isas[i / 3];
        random_model_spec spec = preset_find(presets[i % 3]);
        const char *file = rig_file("roles.gguf");
        tdm_error err = {0};
        float *rows[N_RUN];
        size_t n = 0;
        if (!rig_has_isa(isa)) continue;
        bool has_matrices =
            strcmp(isa, "amx") == 0 || (strcmp(isa, "auto") == 0 && rig_has_isa("amx"));
        spec.type = TDM_TYPE_Q4_0;
        RIG_OK(random_model_write(&spec, file, NULL, NULL, NULL, &err));
        for (int r = 0; r < N_RUN; r++) {
            int32_t tokens[N];
            uint8_t roles[N];
            llm_model *model = rig_model(file, rig_device(isa, runs[r].path, 2));
            llm_context *ctx = rig_context(model, &params);
            n = N * (size_t)model->hparams.n_vocab;
            rows[r] = malloc(n * sizeof *rows[r]);
            assert_non_null(rows[r]);
            for (int t = 0; t < N; t++) {
                tokens[t] = (t * 7919 + 13) % model->hparams.n_vocab;
                roles[t] = (uint8_t)runs[r].role;
            }
            rig_decode_as(ctx, tokens, roles, N, N, rows[r]);
            bool is_other = has_matrices && runs[r].is_8 && runs[r].role == TDM_ROLE_GENERATED;
            if (!is_other)
                assert_memory_equal(rows[r], rows[runs[r].is_8 ? 0 : 1], n * sizeof *rows[r]);
            llm_context_destroy(ctx);
            llm_model_close(model);
        }
        double nmse = rig_nmse(rows[1], rows[0], n);
        printf("%-19s %-6s 8 bits beside 15: NMSE %.1e\n", presets[i % 3], isa, nmse);
        assert_true(nmse > 1e-6 && nmse < 1e-2); /* they do differ */
        for (int r = 0; r < N_RUN; r++) free(rows[r]);
    }
}

static bool is_left_out(int setup) {
#ifdef TANDEM_SANITIZED
    if (!setups[setup].is_sanitized) return true;
#endif
    return setups[setup].isa != NULL && !rig_has_isa(setups[setup].isa);
}

static void test_sequences(void **state) {
    (void)state;
    for (int i = 0; i < N_SETUP; i++) {
        if (is_left_out(i)) continue;
        bench *b = bench_make(i);
        check_ubatches(b);
        check_outputs(b);
        check_several(b);
        check_truncate(b);
#ifndef TANDEM_SANITIZED /* a fork at a page's edge shows what these could */
        for (int n = 63; n <= 65; n += 2) check_fork(b, n);
#endif
        check_fork(b, 64);
        check_fork(b, 1);
        check_refusals(b);
        check_cancelled(b);
        printf("%-19s %-9s path, %-4s weights, %-4s cache, pages of %2d: out of forks NMSE %.1e\n",
               setups[i].preset, setups[i].path, tdm_type_name(setups[i].weights),
               tdm_type_name(setups[i].cache), setups[i].page_len, b->worst);
        bench_free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_roles),
                                       cmocka_unit_test(test_sequences)};
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
