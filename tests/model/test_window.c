/* SPDX-License-Identifier: MIT
 *
 * test_window.c: layers with a window keep the tokens that they may see again, and nothing else
 * changes: logits equal those of a context that keeps all tokens, far behind the window, in several
 * sequences, after truncation, forks, shifts, failures and state files, on one device and in
 * groups. Memory and pages are counted. The models are fixtures of tests/model/archs.
 */
#include <unistd.h>

#include "llm/cache/state.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_device.h"
#include "tests/model/rig.h"

enum { N_TOK = 240, N_SEQ = 3, N_CTX = 1024, PAGE_LEN = 8 };

/* Chunks are computed in another order than single tokens, and nothing else. */
#define BOUND 1e-10

static const char *const names[] = {"gemma3-dense", "gpt-oss-moe"};
enum { N_MODEL = sizeof names / sizeof *names };

typedef struct bench {
    llm_model *model;
    size_t n_vocab;
    int32_t tokens[N_TOK];
    float *whole; /* [N_TOK, n_vocab] logits of a context that keeps all tokens */
    float *row;   /* [n_vocab] */
    double bound;
} bench;

static llm_context *context_make(const bench *b, int n_ubatch, bool is_whole) {
    const tdm_type f32 = TDM_TYPE_F32;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_CTX,
                                       .n_ubatch = n_ubatch,
                                       .n_seq = N_SEQ,
                                       .page_len = PAGE_LEN,
                                       .type_k = &f32,
                                       .type_v = &f32,
                                       .is_window_whole = is_whole};
    return rig_context(b->model, &params);
}

/* Appends tokens first .. last-1 to a sequence; logits of the last to b->row. */
static void append(const bench *b, llm_context *ctx, int32_t seq, int first, int last,
                   tdm_role role) {
    tdm_error err = {0};
    int32_t seqs[N_TOK];
    for (int i = 0; i < last - first; i++) seqs[i] = seq;
    const llm_batch batch = {
        .tokens = b->tokens + first, .seqs = seqs, .n_tok = last - first, .role = role};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    memcpy(b->row, llm_context_logits(ctx, 0), b->n_vocab * sizeof *b->row);
}

/* Compares b->row with the logits of token `at`. */
static void judge(const bench *b, const char *what, int at) {
    double error = rig_nmse(b->whole + (size_t)at * b->n_vocab, b->row, b->n_vocab);
    if (!(error <= b->bound))
        fail_msg("%s, %s: token %d: NMSE %g", b->model->hparams.arch, what, at, error);
}

static void bench_begin(bench *b, const char *name, tdm_open_device *dev) {
    char head[128], file[96];
    uint32_t state = 4321;
    snprintf(head, sizeof head, "tests/model/archs/%s.head", name);
    snprintf(file, sizeof file, "%s.gguf", name);
    char *from = rig_source_file(head);
    assert_non_null(from);
    const char *path = rig_file(file);
    assert_true(access(path, R_OK) == 0 || arch_fixture_write(from, name, 1, path));
    free(from);
    b->bound = BOUND;
    b->model = rig_model(path, dev);
    b->n_vocab = (size_t)b->model->hparams.n_vocab;
    assert_in_range(b->model->hparams.window, 2, 48);
    for (int i = 0; i < N_TOK; i++) {
        state = state * 1664525u + 1013904223u;
        b->tokens[i] = (int32_t)((state >> 8) % 100);
    }
    b->whole = malloc(N_TOK * b->n_vocab * sizeof(float));
    b->row = malloc(b->n_vocab * sizeof(float));
    assert_true(b->whole != NULL && b->row != NULL);
    llm_context *ctx = context_make(b, N_TOK, true);
    assert_false(llm_context_has_window(ctx));
    assert_int_equal(llm_context_get_memory(ctx).window, 0);
    rig_decode(ctx, b->tokens, N_TOK, N_TOK, b->whole);
    llm_context_destroy(ctx);
}

static void bench_end(bench *b) {
    free(b->whole);
    free(b->row);
    llm_model_close(b->model);
}

static void empty(llm_context *ctx, int32_t n_free) {
    tdm_error err = {0};
    for (int32_t s = 0; s < N_SEQ; s++) RIG_OK(llm_context_truncate(ctx, s, 0, &err));
    assert_int_equal(llm_context_free_pages(ctx), n_free);
}

/* Past many windows, in odd chunks and one by one, in two sequences that take turns. The pages in
 * use do not grow with the tokens of a window's layers. */
static void check_long(const bench *b, int n_ubatch) {
    llm_context *ctx = context_make(b, n_ubatch, false);
    const int32_t n_free = llm_context_free_pages(ctx);
    const int n_held = b->model->hparams.window + 64 + 3 * PAGE_LEN;
    assert_true(llm_context_has_window(ctx));
    append(b, ctx, 0, 0, 150, TDM_ROLE_PROMPT);
    judge(b, "prompt", 149);
    append(b, ctx, 2, 0, 33, TDM_ROLE_PROMPT);
    judge(b, "a second sequence", 32);
    append(b, ctx, 0, 150, 151, TDM_ROLE_GENERATED);
    judge(b, "behind the prompt", 150);
    append(b, ctx, 2, 33, 172, TDM_ROLE_PROMPT);
    judge(b, "the second sequence", 171);
    for (int i = 151; i < N_TOK; i += 1 + i % 2) {
        const int end = i + 1 + i % 2 < N_TOK ? i + 1 + i % 2 : N_TOK;
        append(b, ctx, 0, i, end, TDM_ROLE_GENERATED);
        if (i % 16 < 2) judge(b, "answer", end - 1);
    }
    judge(b, "end", N_TOK - 1);
    /* Sequence 0: all tokens, and the windows before the end and before its mark. */
    tdm_error err = {0};
    RIG_OK(llm_context_truncate(ctx, 2, 0, &err));
    const int32_t n_used = n_free - llm_context_free_pages(ctx);
    const int32_t n_window = 2 * n_held / PAGE_LEN;
    assert_in_range(n_used, N_TOK / PAGE_LEN + 1, N_TOK / PAGE_LEN + n_window);
    empty(ctx, n_free);
    llm_context_destroy(ctx);
}

static bool never_goes_on(void *context, uint64_t done, uint64_t total) {
    (void)context, (void)done, (void)total;
    return false;
}

/* Drafts that are taken back, truncation to before what windows hold, and cancelled batches. */
static void check_truncation(const bench *b) {
    static const int places[] = {215, 190, 120, 60, 0};
    llm_context *ctx = context_make(b, 16, false);
    const int32_t n_free = llm_context_free_pages(ctx);
    tdm_error err = {0};
    append(b, ctx, 0, 0, 120, TDM_ROLE_PROMPT);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int length = llm_context_length(ctx, 0), at = places[i];
        append(b, ctx, 0, length, 220, TDM_ROLE_GENERATED);
        judge(b, "before a truncation", 219);
        RIG_OK(llm_context_truncate(ctx, 0, at, &err));
        assert_int_equal(llm_context_length(ctx, 0), at);
        append(b, ctx, 0, at, at + 3, TDM_ROLE_GENERATED);
        judge(b, "truncation", at + 2);
    }
    empty(ctx, n_free);
    append(b, ctx, 0, 0, 90, TDM_ROLE_PROMPT);
    const llm_batch batch = {.tokens = b->tokens + 90, .n_tok = 140};
    llm_context_set_progress(ctx, never_goes_on, NULL);
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_CANCELLED);
    llm_context_set_progress(ctx, NULL, NULL);
    assert_int_equal(llm_context_length(ctx, 0), 90);
    append(b, ctx, 0, 90, 92, TDM_ROLE_GENERATED);
    judge(b, "cancelled", 91);
    empty(ctx, n_free);
    llm_context_destroy(ctx);
}

/* Sequences that share tokens: at the end, in the middle; and too many for the cache. */
static void check_forks(const bench *b) {
    llm_context *ctx = context_make(b, 32, false);
    const int32_t n_free = llm_context_free_pages(ctx);
    tdm_error err = {0};
    append(b, ctx, 0, 0, 200, TDM_ROLE_PROMPT);
    RIG_OK(llm_context_fork(ctx, 1, 0, 200, &err));
    RIG_OK(llm_context_fork(ctx, 2, 0, 100, &err)); /* computed again */
    for (int i = 0; i < 30; i += 10) {
        append(b, ctx, 1, 200 + i, 210 + i, TDM_ROLE_GENERATED);
        judge(b, "fork of the end", 209 + i);
        append(b, ctx, 2, 100 + i, 110 + i, TDM_ROLE_GENERATED);
        judge(b, "fork of the middle", 109 + i);
        append(b, ctx, 0, 200 + i, 210 + i, TDM_ROLE_GENERATED);
        judge(b, "behind forks", 209 + i);
    }
    assert_int_equal(llm_context_fork(ctx, 1, 0, 5, &err), TDM_FAILED_PRECONDITION);
    const int32_t n_before = llm_context_free_pages(ctx);
    int32_t length[N_SEQ];
    for (int s = 0; s < N_SEQ; s++) length[s] = llm_context_length(ctx, s);
    tdm_status status = TDM_OK;
    while (status == TDM_OK && llm_context_length(ctx, 0) + 80 <= N_CTX) {
        const llm_batch batch = {.tokens = b->tokens, .n_tok = 80};
        const int before = llm_context_length(ctx, 0);
        status = llm_context_decode(ctx, &batch, &err);
        if (status == TDM_OK) length[0] = llm_context_length(ctx, 0);
        assert_int_equal(llm_context_length(ctx, 0), status == TDM_OK ? before + 80 : before);
    }
    assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "ctx-size"));
    for (int s = 0; s < N_SEQ; s++) assert_int_equal(llm_context_length(ctx, s), length[s]);
    assert_true(llm_context_free_pages(ctx) < n_before);
    append(b, ctx, 2, 130, 131, TDM_ROLE_GENERATED);
    judge(b, "behind a full cache", 130);
    empty(ctx, n_free);
    llm_context_destroy(ctx);
}

/* A shift equals that of a context which keeps all tokens. Where kept tokens come into a window,
 * the sequence equals one that is computed afresh. */
static void check_shift(const bench *b) {
    const int n_keep = 150, n_new = 9;
    tdm_error err = {0};
    float *expected = malloc(b->n_vocab * sizeof *expected);
    assert_non_null(expected);
    for (int is_whole = 1; is_whole >= 0; is_whole--) {
        llm_context *ctx = context_make(b, 16, is_whole != 0);
        const int32_t n_free = llm_context_free_pages(ctx);
        append(b, ctx, 0, 0, 200, TDM_ROLE_PROMPT);
        RIG_OK(llm_context_shift(ctx, 0, 5, 90, &err));
        append(b, ctx, 0, 200, 203, TDM_ROLE_GENERATED);
        RIG_OK(llm_context_shift(ctx, 0, 5, 21, &err));
        append(b, ctx, 0, 203, 230, TDM_ROLE_GENERATED);
        if (is_whole != 0) memcpy(expected, b->row, b->n_vocab * sizeof *expected);
        assert_true(rig_nmse(expected, b->row, b->n_vocab) <= b->bound);
        empty(ctx, n_free);
        llm_context_destroy(ctx);
    }
    llm_context *ctx = context_make(b, 16, true);
    append(b, ctx, 0, 0, n_keep, TDM_ROLE_PROMPT);
    append(b, ctx, 0, 231, 231 + n_new, TDM_ROLE_PROMPT);
    memcpy(expected, b->row, b->n_vocab * sizeof *expected);
    llm_context_destroy(ctx);
    ctx = context_make(b, 16, false);
    append(b, ctx, 0, 0, 233, TDM_ROLE_PROMPT);
    RIG_OK(llm_context_shift(ctx, 0, n_keep, 81, &err));
    assert_int_equal(llm_context_length(ctx, 0), n_keep + 2);
    append(b, ctx, 0, 233, 231 + n_new, TDM_ROLE_PROMPT);
    assert_true(rig_nmse(expected, b->row, b->n_vocab) <= b->bound);
    assert_true(llm_context_shift(ctx, 0, 0, N_TOK, &err) != TDM_OK);
    llm_context_destroy(ctx);
    free(expected);
}

/* A shift that has to compute tokens again, for which pages are missing since another sequence uses
 * those of the sequence too, is refused and changes nothing. */
static void check_refused_shift(const bench *b) {
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 360, .n_ubatch = 16, .n_seq = 2, .page_len = 4};
    tdm_error err = {0};
    llm_context *ctx = rig_context(b->model, &params);
    assert_true(llm_context_has_window(ctx));
    append(b, ctx, 0, 0, 233, TDM_ROLE_PROMPT);
    RIG_OK(llm_context_fork(ctx, 1, 0, 233, &err));
    const int32_t n_free = llm_context_free_pages(ctx);
    assert_int_equal(llm_context_shift(ctx, 0, 150, 81, &err), TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "ctx-size"));
    assert_int_equal(llm_context_length(ctx, 0), 233);
    assert_int_equal(llm_context_free_pages(ctx), n_free);
    append(b, ctx, 0, 233, 235, TDM_ROLE_GENERATED);
    judge(b, "behind a refused shift", 234);
    /* Without the other sequence there are enough. */
    RIG_OK(llm_context_truncate(ctx, 1, 0, &err));
    RIG_OK(llm_context_shift(ctx, 0, 150, 81, &err));
    assert_int_equal(llm_context_length(ctx, 0), 154);
    llm_context_destroy(ctx);
}

/* A file holds the windows alone. It goes on where it was saved, and a prefix of it where it has
 * what that needs; a context that keeps all tokens refuses it, and one with windows reads the files
 * of such a context. */
static void check_file(const bench *b) {
    const char *path = rig_file("window.state");
    llm_context *ctx = context_make(b, 16, false), *whole = context_make(b, 16, true);
    const int32_t n_free = llm_context_free_pages(ctx);
    int32_t *tokens = NULL, n = 0;
    tdm_error err = {0};
    append(b, ctx, 1, 0, 200, TDM_ROLE_PROMPT);
    RIG_OK(llm_state_save(ctx, 1, b->tokens, 200, path, &err));
    assert_int_equal(llm_state_load(whole, 0, path, &tokens, &n, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "swa-full"));
    assert_int_equal(llm_context_length(whole, 0), 0);
    empty(ctx, n_free);
    RIG_OK(llm_state_load(ctx, 0, path, &tokens, &n, &err));
    assert_int_equal(n, 200);
    free(tokens);
    append(b, ctx, 0, 200, 203, TDM_ROLE_GENERATED);
    judge(b, "loaded", 202);
    RIG_OK(llm_context_truncate(ctx, 0, 50, &err));
    append(b, ctx, 0, 50, 52, TDM_ROLE_GENERATED);
    judge(b, "loaded and truncated", 51);
    RIG_OK(llm_state_load_prefix(ctx, 1, path, b->tokens, 180, &n, &err));
    assert_int_equal(n, 180);
    append(b, ctx, 1, 180, 182, TDM_ROLE_GENERATED);
    judge(b, "loaded as a prefix", 181);
    RIG_OK(llm_state_load_prefix(ctx, 2, path, b->tokens, 100, &n, &err));
    assert_int_equal(n, 0);
    append(b, whole, 0, 0, 200, TDM_ROLE_PROMPT);
    RIG_OK(llm_state_save(whole, 0, b->tokens, 200, path, &err));
    RIG_OK(llm_state_load_prefix(ctx, 2, path, b->tokens, 100, &n, &err));
    assert_int_equal(n, 100);
    append(b, ctx, 2, 100, 102, TDM_ROLE_GENERATED);
    judge(b, "of all tokens", 101);
    empty(ctx, n_free);
    llm_context_destroy(ctx);
    llm_context_destroy(whole);
}

/* The bytes of the class do not depend on the context; those of the other layers do. */
static void check_memory(const bench *b) {
    uint64_t window[2], rest[2];
    tdm_error err = {0};
    for (int i = 0; i < 2; i++) {
        const llm_context_params params = {
            .struct_size = sizeof params, .n_ctx = 4096 << 3 * i, .n_ubatch = 64, .page_len = 8};
        llm_context *ctx = NULL;
        RIG_OK(llm_context_create(b->model, &params, &ctx, &err));
        window[i] = llm_context_get_memory(ctx).window;
        rest[i] = llm_context_get_memory(ctx).cache - window[i];
        llm_context_destroy(ctx);
    }
    assert_true(window[0] > 0 && window[0] == window[1]);
    assert_true(rest[1] > 7 * rest[0] && rest[1] < 9 * rest[0]);
    assert_true(window[1] < rest[1] / 8);
}

static void test_one_device(void **state) {
    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        bench b = {0};
        bench_begin(&b, names[i], rig_device(NULL, "fast", 2));
        check_long(&b, 7);
        check_long(&b, 64);
        check_truncation(&b);
        check_forks(&b);
        check_shift(&b);
        check_refused_shift(&b);
        check_file(&b);
        check_memory(&b);
        bench_end(&b);
    }
}

static void test_groups(void **state) {
    static const group_config configs[] = {
        {.n_member = 2, .path = "fast", .attention = "heads", .shares = "3,1"},
        {.n_member = 3, .path = "fast", .attention = "sequence", .shares = "5,2,1"},
        {.n_member = 2, .path = "fast", .attention = "replicate", .is_away = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        bench b = {0};
        print_message("%s\n", group_words(&configs[i]));
        bench_begin(&b, names[i % 2], group_device(&configs[i]));
        check_long(&b, 13);
        check_shift(&b);
        check_file(&b);
        bench_end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
