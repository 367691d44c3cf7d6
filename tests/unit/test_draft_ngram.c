/* SPDX-License-Identifier: MIT
 *
 * test_draft_ngram.c: n-grams of a sequence against a plain search of all its places, while tokens
 * are appended and taken back; and the pace of drafts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "llm/draft_ngram.h"
#include "llm/draft_pace.h"
#include "tests/support/random.h"

enum { N_TOK = 1500, MATCH_MOST = 32, PLACES_MOST = 32 };

/* As llm_ngrams_find, which compares the PLACES_MOST latest places of a chain. A chain may have
 * places of other tokens with the same hash, so with many places the result may differ:
 * *is_sure_out = there are so few that all are compared. */
static int32_t plain_find(const int32_t *tokens, int32_t n_tok, int32_t n, bool *is_sure_out) {
    int32_t best = -1, longest = n - 1, n_place = 0;
    for (int32_t at = n_tok - 1; at >= n; at--) {
        int32_t length = 0;
        while (length < MATCH_MOST && length < at &&
               tokens[at - 1 - length] == tokens[n_tok - 1 - length])
            length++;
        n_place += length >= n;
        if (length <= longest) continue;
        longest = length;
        best = at;
    }
    *is_sure_out = n_place <= PLACES_MOST / 2;
    return best;
}

static void test_find(void **state) {
    static int32_t tokens[N_TOK];
    uint64_t random = 5;
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        llm_ngrams g = {0};
        int32_t n_tok = 0, n_found = 0, n_compared = 0;
        tdm_error err = {0};
        static const uint32_t ids[5] = {0, 100, 20, 8, 5};
        for (int step = 0; step < 4000 && n_tok < N_TOK; step++) {
            if (random_u32_below(&random, 20) == 0) {
                n_tok -= (int32_t)random_u32_below(&random, (uint32_t)n_tok + 1) / 16;
                llm_ngrams_truncate(&g, n, n_tok);
            }
            tokens[n_tok] = 70000 + (int32_t)random_u32_below(&random, ids[n]);
            assert_int_equal(llm_ngrams_append(&g, n, tokens[n_tok++], &err), TDM_OK);
            assert_int_equal(g.n_tok, n_tok);
            bool is_sure;
            const int32_t expected = plain_find(tokens, n_tok, n, &is_sure);
            if (!is_sure) continue;
            n_compared++;
            n_found += expected >= 0;
            assert_int_equal(llm_ngrams_find(&g, n), expected);
        }
        assert_true(n_compared > 500 && n_found > 100);
        llm_ngrams_truncate(&g, n, 0);
        assert_int_equal(llm_ngrams_find(&g, n), -1);
        for (int32_t i = 0; i < (int32_t)1 << g.bits; i++) assert_int_equal(g.heads[i], -1);
        llm_ngrams_free(&g);
    }
}

static void test_pace(void **state) {
    llm_draft_pace pace = {0};
    (void)state;
    assert_int_equal(llm_draft_pace_next(&pace, 8), 8);
    llm_draft_pace_note(&pace, 8, 0, 0);
    assert_int_equal(llm_draft_pace_next(&pace, 8), 4);
    llm_draft_pace_note(&pace, 4, 4, 0);
    assert_int_equal(llm_draft_pace_next(&pace, 8), 8);
    for (int32_t n = 8; n >= 1; n /= 2) llm_draft_pace_note(&pace, n, 0, 0);
    for (int32_t pause = 1; pause <= 64; pause *= 2) {
        for (int32_t i = 0; i < (pause < 16 ? pause : 16); i++)
            assert_int_equal(llm_draft_pace_next(&pace, 8), 0);
        assert_int_equal(llm_draft_pace_next(&pace, 8), 1);
        llm_draft_pace_note(&pace, 0, 0, 0); /* nothing was drafted */
        assert_int_equal(llm_draft_pace_next(&pace, 8), 1);
        llm_draft_pace_note(&pace, 1, 0, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_find), cmocka_unit_test(test_pace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
