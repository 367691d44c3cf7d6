/* SPDX-License-Identifier: MIT
 *
 * test_prefix.c: the tree of prefixes: small cases, failing memory, then random sets, removals and
 * searches against plain comparisons of all sequences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/prefix/prefix.h"
#include "tests/support/random.h"

/* The linker sends the tree's calls here (--wrap). */
static int malloc_fails_at, malloc_count;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) {
    return ++malloc_count == malloc_fails_at ? NULL : __real_malloc(size);
}
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) {
    return ++malloc_count == malloc_fails_at ? NULL : __real_realloc(old, size);
}

enum { N_SEQ = 12, MAX_TOK = 40 };

typedef struct finding {
    int32_t n;
    int32_t seqs[N_SEQ], n_common[N_SEQ];
    int32_t most; /* to ask for */
} finding;

static bool note(void *user, int32_t seq, int32_t n_common) {
    finding *f = user;
    assert_true(f->n < N_SEQ);
    f->seqs[f->n] = seq;
    f->n_common[f->n++] = n_common;
    return f->n < f->most;
}

static finding find(const server_prefix *tree, uint64_t scope, const int32_t *tokens, int32_t n) {
    finding f = {.most = N_SEQ};
    server_prefix_find(tree, scope, tokens, n, note, &f);
    return f;
}

static void test_small(void **state) {
    (void)state;
    static const int32_t a[] = {1, 2, 3, 4}, b[] = {1, 2, 5}, c[] = {1, 2}, d[] = {9};
    tdm_error err = {0};
    server_prefix *t = NULL;
    assert_int_equal(server_prefix_create(N_SEQ, &t, &err), TDM_OK);
    assert_int_equal(find(t, 0, a, 4).n, 0);
    assert_int_equal(server_prefix_oldest(t, -1), -1);
    assert_int_equal(server_prefix_set(t, 0, 0, a, 4, &err), TDM_OK);
    assert_int_equal(server_prefix_set(t, 1, 0, b, 3, &err), TDM_OK);
    assert_int_equal(server_prefix_set(t, 2, 0, c, 2, &err), TDM_OK);
    finding f = find(t, 0, a, 4);
    assert_int_equal(f.n, 3);
    assert_int_equal(f.seqs[0], 0);
    assert_int_equal(f.n_common[0], 4);
    assert_int_equal(f.n_common[1], 2);
    assert_int_equal(f.n_common[2], 2);
    f = find(t, 0, d, 1);
    assert_int_equal(f.n, 0);
    assert_int_equal(find(t, 1, a, 4).n, 0); /* another scope */
    assert_int_equal(find(t, UINT64_C(1) << 40, a, 4).n, 0);
    /* A search may end early. */
    f = (finding){.most = 1};
    server_prefix_find(t, 0, b, 3, note, &f);
    assert_int_equal(f.n, 1);
    assert_int_equal(f.seqs[0], 1);
    /* Age: 0 is the oldest until it is used; pinned ones are not given. */
    assert_int_equal(server_prefix_oldest(t, -1), 0);
    assert_int_equal(server_prefix_oldest(t, 0), 1);
    server_prefix_use(t, 0);
    assert_int_equal(server_prefix_oldest(t, -1), 1);
    server_prefix_pin(t, 1, true);
    assert_int_equal(server_prefix_oldest(t, -1), 2);
    assert_int_equal(server_prefix_held(t), 2);
    server_prefix_remove(t, 1);
    assert_int_equal(server_prefix_length(t, 1), 0);
    assert_int_equal(find(t, 0, b, 3).n, 2);
    server_prefix_remove(t, 1); /* again */
    server_prefix_remove(t, 0);
    server_prefix_remove(t, 2);
    server_prefix_destroy(t);
    server_prefix_destroy(NULL);
}

/* What the tree should hold. */
typedef struct shadow {
    int32_t n_tok[N_SEQ];
    uint64_t scope[N_SEQ];
    int32_t tokens[N_SEQ][MAX_TOK];
} shadow;

static int32_t common(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b) {
    int32_t i = 0;
    while (i < n_a && i < n_b && a[i] == b[i]) i++;
    return i;
}

static void search_check(const server_prefix *t, const shadow *w, uint64_t scope,
                         const int32_t *tokens, int32_t n) {
    const finding f = find(t, scope, tokens, n);
    int32_t n_due = 0;
    for (int32_t s = 0; s < N_SEQ; s++) {
        assert_int_equal(server_prefix_length(t, s), w->n_tok[s]);
        n_due += w->n_tok[s] > 0 && w->scope[s] == scope &&
                 common(tokens, n, w->tokens[s], w->n_tok[s]) > 0;
    }
    assert_int_equal(f.n, n_due);
    bool is_seen[N_SEQ] = {false};
    for (int32_t i = 0; i < f.n; i++) {
        const int32_t s = f.seqs[i];
        assert_false(is_seen[s]);
        is_seen[s] = true;
        assert_int_equal(f.n_common[i], common(tokens, n, w->tokens[s], w->n_tok[s]));
        if (i > 0) assert_true(f.n_common[i] <= f.n_common[i - 1]);
    }
}

static void test_random(void **state) {
    (void)state;
    uint64_t random = test_seed("prefix", 77);
    shadow w = {0};
    int n_failed = 0;
    server_prefix *t = NULL;
    assert_int_equal(server_prefix_create(N_SEQ, &t, NULL), TDM_OK);
    for (int round = 0; round < 40000; round++) {
        int32_t tokens[MAX_TOK], n = (int32_t)random_u32_below(&random, MAX_TOK + 1);
        const int32_t s = (int32_t)random_u32_below(&random, N_SEQ);
        const uint64_t scope = random_u32_below(&random, 2);
        /* Few ids, and often the begin of another sequence. */
        const int32_t like = (int32_t)random_u32_below(&random, N_SEQ);
        const int32_t n_like = (int32_t)random_u32_below(&random, MAX_TOK + 1);
        for (int32_t i = 0; i < n; i++)
            tokens[i] = i < n_like && i < w.n_tok[like] ? w.tokens[like][i]
                                                        : (int32_t)random_u32_below(&random, 3);
        if (random_u32_below(&random, 3) == 0) {
            search_check(t, &w, scope, tokens, n);
            continue;
        }
        malloc_count = 0;
        malloc_fails_at = random_u32_below(&random, 4) == 0 ? 1 + (int)round % 3 : 0;
        const tdm_status status = server_prefix_set(t, s, scope, tokens, n, NULL);
        const bool may_fail = malloc_fails_at != 0;
        malloc_fails_at = 0;
        assert_true(status == TDM_OK || may_fail);
        n_failed += status != TDM_OK;
        w.n_tok[s] = status == TDM_OK ? n : 0;
        w.scope[s] = scope;
        memcpy(w.tokens[s], tokens, (size_t)n * sizeof *tokens);
        int32_t n_held = 0;
        for (int32_t i = 0; i < N_SEQ; i++) n_held += w.n_tok[i] > 0;
        assert_int_equal(server_prefix_held(t), n_held);
    }
    for (int32_t s = 0; s < N_SEQ; s++) server_prefix_remove(t, s);
    assert_int_equal(find(t, 0, (const int32_t[]){0}, 1).n, 0);
    assert_true(n_failed > 0);
    server_prefix_destroy(t);
}

/* The tree has nodes for two of each sequence, and no call allocates more of them: a node that is not
 * given back makes a later set fail. */
static void test_nodes(void **state) {
    (void)state;
    uint64_t random = 3;
    server_prefix *t = NULL;
    assert_int_equal(server_prefix_create(N_SEQ, &t, NULL), TDM_OK);
    for (int round = 0; round < 20000; round++) {
        int32_t tokens[MAX_TOK];
        const int32_t s = (int32_t)random_u32_below(&random, N_SEQ);
        const int32_t n = (int32_t)random_u32_below(&random, MAX_TOK);
        for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)random_u32_below(&random, 2);
        assert_int_equal(server_prefix_set(t, s, 0, tokens, n, NULL), TDM_OK);
    }
    server_prefix_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
