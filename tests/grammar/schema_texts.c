/* SPDX-License-Identifier: MIT
 *
 * schema_texts.c: writes random texts that the grammars of JSON Schemas allow, for test_schema.py
 * to check.
 *
 * Usage: schema_texts SEED COUNT. Reads schemas, one in a line. For each it prints "error MESSAGE",
 * or COUNT texts, each as "text BYTES", the bytes, and a line end. Texts are sampled by tokens,
 * with masks; one that does not end soon is ended by tokens that close things.
 */
#include "tests/grammar/grammar_fixture.h"
#include "tests/support/random.h"

enum { WORDS = (FIXTURE_COUNT + 5 + 63) / 64, STEPS_FREE = 60, STEPS_MAX = 4000 };

static bool has(const uint64_t *mask, int32_t t) {
    return mask[t / 64] >> (t % 64) & 1;
}

static int32_t token_pick(const uint64_t *mask, int step, uint64_t *seed) {
    if (step >= STEPS_FREE) {
        /* In a string, brackets close nothing. */
        const char *closers = has(mask, 'a') && has(mask, '}') ? "\"" : "}]\"n0";
        if (has(mask, FIXTURE_END)) return FIXTURE_END;
        for (const char *c = closers; *c != '\0'; c++)
            if (has(mask, (uint8_t)*c)) return (uint8_t)*c;
    }
    int32_t allowed[FIXTURE_COUNT], n = 0;
    for (int32_t t = 0; t < FIXTURE_COUNT; t++)
        if (has(mask, t) && t != FIXTURE_END) allowed[n++] = t;
    if (n == 0 || (has(mask, FIXTURE_END) && random_u32_below(seed, 4) == 0)) return FIXTURE_END;
    return allowed[random_u32_below(seed, (uint32_t)n)];
}

static bool text_write(const grammar_fixture *f, grammar *g, uint64_t *seed) {
    static char text[1 << 20];
    tdm_error err = {0};
    grammar_state *s = NULL;
    uint64_t mask[WORDS];
    size_t len = 0;
    tdm_status status = grammar_state_create(g, &s, &err);
    int step = 0;
    for (; status == TDM_OK && step < STEPS_MAX; step++) {
        status = grammar_state_mask(s, mask, &err);
        if (status != TDM_OK) break;
        const int32_t t = token_pick(mask, step, seed);
        status = grammar_state_accept(s, t, &err);
        if (status != TDM_OK || t == FIXTURE_END) break;
        const llm_vocab_str bytes = llm_vocab_token_bytes(f->tokens, t);
        if (len + bytes.len > sizeof text) break;
        memcpy(text + len, bytes.ptr, bytes.len);
        len += bytes.len;
    }
    grammar_state_destroy(s);
    if (status != TDM_OK || step == STEPS_MAX) {
        printf("error no text: %s\n", status != TDM_OK ? err.message : "it does not end");
        return false;
    }
    printf("text %zu\n", len);
    fwrite(text, 1, len, stdout);
    putchar('\n');
    return true;
}

int main(int argc, char **argv) {
    grammar_fixture f = {0};
    if (argc != 3) return 2;
    uint64_t seed = strtoull(argv[1], NULL, 10);
    const int count = atoi(argv[2]);
    fixture_open(&f);
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t n; (n = getline(&line, &capacity, stdin)) > 0;) {
        tdm_error err = {0};
        grammar *g = NULL;
        if (grammar_compile_schema(f.vocab, line, (size_t)n, &g, &err) != TDM_OK) {
            printf("error %s\n", err.message);
            continue;
        }
        for (int i = 0; i < count && text_write(&f, g, &seed); i++)
            ;
        grammar_release(g);
    }
    free(line);
    fixture_close(&f);
    return 0;
}
