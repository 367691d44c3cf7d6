/* SPDX-License-Identifier: MIT
 *
 * fuzz_gbnf.c: the input is a grammar and, after a zero byte, a text. A grammar that compiles must
 * give the same places for the text at once and by single bytes, and masks whose tokens it accepts.
 */
#include <string.h>

#include "server/grammar/grammar.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/tiny_vocab.h"

enum { TEXT_MAX = 200 }; /* bytes: each may need many places */

static llm_vocab *tokens;
static grammar_vocab *vocab;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static tiny_vocab parts;
    tdm_error err = {0};
    (void)argc;
    (void)argv;
    tiny_bpe(&parts, "default");
    FUZZ_DEMAND(llm_vocab_create(&parts.params, &tokens, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(grammar_vocab_create(tokens, BPE_COUNT, &vocab, &err) == TDM_OK, "%s", err.message);
    return 0;
}

static void failure_check(const tdm_error *err, tdm_status status) {
    FUZZ_DEMAND(err->status == status && err->message[0] != '\0' &&
                    strchr(err->message, '\n') == NULL,
                "a message must be one line: '%s'", err->message);
}

/* Some tokens of the mask, and some others. */
static void mask_check(grammar_state *state, uint32_t number) {
    uint64_t mask[(BPE_COUNT + 63) / 64];
    grammar_state *next = NULL;
    tdm_error err = {0};
    const tdm_status status = grammar_state_mask(state, mask, &err);
    if (status != TDM_OK) {
        failure_check(&err, status);
        return;
    }
    for (int i = 0; i < 12; i++) {
        const int32_t t = (int32_t)((number + (uint32_t)i * 37) % BPE_COUNT);
        FUZZ_DEMAND(grammar_state_clone(state, &next, &err) == TDM_OK, "no clone");
        const tdm_status taken = grammar_state_accept(next, t, &err);
        FUZZ_DEMAND(taken == TDM_RESOURCE_EXHAUSTED ||
                        (taken == TDM_OK) == (mask[t / 64] >> (t % 64) & 1),
                    "token %d: the mask and its acceptance differ", t);
        grammar_state_destroy(next);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tdm_error err = {0};
    grammar *g;
    grammar_state *whole = NULL, *single = NULL;
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t len = zero != NULL ? (size_t)(zero - data) : size;
    const char *text = zero != NULL ? (const char *)zero + 1 : "";
    const size_t given = zero != NULL ? size - len - 1 : 0;
    const size_t text_len = given < TEXT_MAX ? given : TEXT_MAX;
    tdm_status status = grammar_compile(vocab, (const char *)data, len, &g, &err);
    if (status != TDM_OK) {
        failure_check(&err, status);
        FUZZ_DEMAND(g == NULL, "a failed grammar is there");
        return 0;
    }
    FUZZ_DEMAND(grammar_state_create(g, &whole, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(grammar_state_create(g, &single, &err) == TDM_OK, "%s", err.message);
    mask_check(whole, (uint32_t)len);
    status = grammar_state_accept_text(whole, text, text_len, &err);
    tdm_status by_byte = TDM_OK;
    for (size_t i = 0; i < text_len && by_byte == TDM_OK; i++)
        by_byte = grammar_state_accept_text(single, text + i, 1, &err);
    FUZZ_DEMAND(status == by_byte || status == TDM_RESOURCE_EXHAUSTED ||
                    by_byte == TDM_RESOURCE_EXHAUSTED,
                "the text at once: %d, by bytes: %d", status, by_byte);
    if (status == TDM_OK && by_byte == TDM_OK) {
        FUZZ_DEMAND(grammar_state_can_end(whole) == grammar_state_can_end(single), "ends differ");
        mask_check(whole, (uint32_t)text_len);
    }
    grammar_state_destroy(whole);
    grammar_state_destroy(single);
    grammar_release(g);
    return 0;
}
