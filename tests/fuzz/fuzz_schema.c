/* SPDX-License-Identifier: MIT
 *
 * fuzz_schema.c: the input is a JSON Schema and, after a zero byte, numbers that choose tokens. A
 * schema that is accepted gives a grammar that compiles, or has no text that ends; what is written
 * by it is JSON.
 */
#include <string.h>

#include <jansson.h>

#include "server/grammar/grammar.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/tiny_vocab.h"

enum { TEXT_MAX = 400 };

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

/* Writes a text by the numbers; where they end, by tokens that close things. It is checked if it
 * ends. */
static void text_check(grammar *g, const uint8_t *numbers, size_t n) {
    uint64_t mask[(BPE_COUNT + 63) / 64];
    char text[TEXT_MAX];
    size_t len = 0;
    grammar_state *state = NULL;
    tdm_error err = {0};
    FUZZ_DEMAND(grammar_state_create(g, &state, &err) == TDM_OK, "%s", err.message);
    while (len < TEXT_MAX && !grammar_state_must_end(state) &&
           grammar_state_mask(state, mask, &err) == TDM_OK) {
        static const char closers[] = "\"}]0ntf:,";
        int32_t t = len < n ? numbers[len] : (uint8_t)closers[(len - n) % (sizeof closers - 1)];
        for (int i = 0; i < 256 && (mask[t / 64] >> (t % 64) & 1) == 0; i++) t = (t + 1) % 256;
        if (grammar_state_accept(state, t, &err) != TDM_OK) break;
        text[len++] = (char)t;
    }
    if (len < TEXT_MAX && grammar_state_must_end(state)) {
        json_error_t problem;
        json_t *value = json_loadb(text, len, JSON_DECODE_ANY, &problem);
        FUZZ_DEMAND(value != NULL || strstr(problem.text, "too big") != NULL ||
                        strstr(problem.text, "overflow") != NULL ||
                        strstr(problem.text, "\\u0000") != NULL ||
                        strstr(problem.text, "NUL byte") != NULL,
                    "no JSON: %s: %.*s", problem.text, (int)len, text);
        json_decref(value);
    }
    grammar_state_destroy(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tdm_error err = {0};
    char *text;
    grammar *g;
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t len = zero != NULL ? (size_t)(zero - data) : size;
    tdm_status status = grammar_schema_to_gbnf((const char *)data, len, "root", &text, &err);
    if (status != TDM_OK) {
        FUZZ_DEMAND(text == NULL && err.message[0] != '\0' && strchr(err.message, '\n') == NULL,
                    "a message must be one line: '%s'", err.message);
        return 0;
    }
    status = grammar_compile(vocab, text, strlen(text), &g, &err);
    FUZZ_DEMAND(status == TDM_OK || status != TDM_INVALID_ARGUMENT ||
                    strstr(err.message, "has an end") != NULL ||
                    strstr(err.message, "begins with itself") != NULL,
                "%s\n%s", err.message, text);
    if (status == TDM_OK)
        text_check(g, zero != NULL ? zero + 1 : data, size - (zero != NULL ? len + 1 : 0));
    grammar_release(g);
    free(text);
    return 0;
}
