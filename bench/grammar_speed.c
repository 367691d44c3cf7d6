/* SPDX-License-Identifier: MIT
 *
 * grammar_speed.c: the command tandem-grammar-speed, which times a grammar for each token: making
 * its mask and accepting the token.
 *
 *   tandem-grammar-speed [--vocab FILE.gguf] [--runs N]
 *
 * Without a file, the vocabulary is a synthetic one of 128,000 tokens: bytes, numbers, words with
 * and without a space before, punctuation, and words with quotes. Each case makes texts that its
 * grammar allows, and cuts them into the longest tokens that the mask allows, as a trained model
 * would write them. "first" is the first text of a new grammar; "later" are further texts with
 * other strings. As a measure of the machine, it prints the time to copy a mask and count its bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llm/tokenizer/vocab_table.h"
#include "server/grammar/grammar.h"
#include "tests/support/random.h"

enum { SYNTHETIC = 128000, TEXT_MAX = 1 << 16, STEP_MAX = 1 << 16 };

/* Processor time of the thread: other programs do not count. */
static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int fail(const char *message) {
    fprintf(stderr, "tandem-grammar-speed: %s\n", message);
    return 1;
}

/* ---- The vocabulary ---- */

typedef struct token_list {
    llm_vocab_str *tokens;
    int32_t *types;
    size_t n;
} token_list;

static void token_add(token_list *list, const char *bytes, size_t len) {
    char *letters = malloc(2 * len + 1);
    size_t n = 0;
    if (letters == NULL) exit(fail("no memory"));
    for (size_t i = 0; i < len; i++) n += llm_byte_letter_write((uint8_t)bytes[i], letters + n);
    list->types[list->n] = LLM_TOKEN_NORMAL;
    list->tokens[list->n++] = (llm_vocab_str){letters, n};
}

/* A word of two to five syllables of two or three letters. */
static size_t word_write(uint64_t *seed, char *out) {
    static const char consonants[] = "bcdfghjklmnpqrstvwxyz", vowels[] = "aeiou";
    size_t n = 0;
    for (uint32_t k = 1 + random_u32_below(seed, 5); k > 0; k--) {
        out[n++] = consonants[random_u32_below(seed, 21)];
        out[n++] = vowels[random_u32_below(seed, 5)];
        if (random_u32_below(seed, 3) == 0) out[n++] = consonants[random_u32_below(seed, 21)];
    }
    return n;
}

static llm_vocab *vocab_make(void) {
    static const char *const joints[] = {
        "\"",     "\":",  "\": ",  "\": \"",   "\",",   "\", \"",    "\"}", "{\"", "{\n",
        "},",     "}",    "],",    "]",        "[\"",   ",\n",       ", ",  "\n",  "\n  ",
        "\n    ", "  ",   "    ",  "        ", "\",\n", "\",\n  \"", " \"", ": ",  "\\n",
        "\\\"",   "true", "false", "null",     ".",     "...",       " (",  ")"};
    uint64_t seed = 128;
    token_list list = {.tokens = calloc(SYNTHETIC, sizeof *list.tokens),
                       .types = calloc(SYNTHETIC, sizeof *list.types)};
    char text[64];
    llm_vocab *vocab = NULL;
    tdm_error err = {0};
    if (list.tokens == NULL || list.types == NULL) exit(fail("no memory"));
    for (int b = 0; b < 256; b++) token_add(&list, (const char[]){(char)b}, 1);
    for (size_t i = 0; i < sizeof joints / sizeof *joints; i++)
        token_add(&list, joints[i], strlen(joints[i]));
    for (int i = 10; i < 1000; i++) token_add(&list, text, (size_t)sprintf(text, "%d", i));
    while (list.n < SYNTHETIC - 1) {
        size_t n = 0;
        const uint32_t kind = random_u32_below(&seed, 100);
        if (kind < 55) text[n++] = ' ';
        if (kind >= 96) text[n++] = "\"_(/<"[random_u32_below(&seed, 5)];
        n += word_write(&seed, text + n);
        if (kind >= 92 && kind < 96) text[n++] = "\"):;"[random_u32_below(&seed, 4)];
        if (kind >= 88 && kind < 92) /* other scripts: code points of two bytes */
            for (size_t i = 0; i + 1 < n; i += 2) {
                text[i] = (char)(0xD0 + (text[i] & 1));
                text[i + 1] = (char)(0x80 + (text[i + 1] & 0x3F));
            }
        if (kind >= 88 && kind < 92) n &= ~(size_t)1;
        token_add(&list, text, n);
    }
    list.types[list.n] = LLM_TOKEN_CONTROL;
    list.tokens[list.n++] = (llm_vocab_str){"<|end|>", 7};
    llm_vocab_params params = llm_vocab_params_default();
    params.model = "gpt2";
    params.pre = "default";
    params.tokens = list.tokens;
    params.types = list.types;
    params.n_token = list.n;
    params.eos_id = SYNTHETIC - 1;
    if (llm_vocab_create(&params, &vocab, &err) != TDM_OK) exit(fail(err.message));
    for (size_t i = 0; i + 1 < list.n; i++) free((char *)list.tokens[i].ptr);
    free(list.tokens);
    free(list.types);
    return vocab;
}

static llm_vocab *vocab_read(const char *path) {
    llm_gguf *gguf = NULL;
    llm_vocab *vocab = NULL;
    tdm_error err = {0};
    if (llm_gguf_open(path, &gguf, &err) != TDM_OK ||
        llm_vocab_from_gguf(gguf, &vocab, &err) != TDM_OK)
        exit(fail(err.message));
    llm_gguf_close(gguf);
    return vocab;
}

/* ---- Cases ---- */

static void sentence_write(uint64_t *seed, FILE *out) {
    char text[64];
    const uint32_t n = 4 + random_u32_below(seed, 12);
    for (uint32_t i = 0; i < n; i++)
        fprintf(out, "%s%.*s", i > 0 ? " " : "", (int)word_write(seed, text), text);
}

/* A person with a list of addresses. */
static void person_write(uint64_t *seed, FILE *out) {
    static const char *const kinds[] = {"home", "work", "other"};
    fprintf(out, "{\"name\": \"");
    sentence_write(seed, out);
    fprintf(out, "\", \"age\": %u, \"about\": \"", random_u32_below(seed, 100));
    for (int i = 0; i < 3; i++) {
        sentence_write(seed, out);
        fprintf(out, ". ");
    }
    fprintf(out, "\", \"addresses\": [");
    for (int i = 0; i < 3; i++) {
        fprintf(out, "%s{\"kind\": \"%s\", \"street\": \"", i > 0 ? ", " : "",
                kinds[random_u32_below(seed, 3)]);
        sentence_write(seed, out);
        fprintf(out, "\", \"zip\": \"%05u\", \"point\": [%u.5, -%u.25]}",
                random_u32_below(seed, 100000), random_u32_below(seed, 90),
                1 + random_u32_below(seed, 90));
    }
    fprintf(out, "]}");
}

/* Lines of text in brackets within each other. */
static void nested_write(uint64_t *seed, FILE *out) {
    const int depth = 6 + (int)random_u32_below(seed, 6);
    for (int i = 0; i < depth; i++) {
        fprintf(out, "(");
        sentence_write(seed, out);
    }
    for (int i = 0; i < depth; i++) fprintf(out, ")");
}

static const struct {
    const char *name;
    bool is_schema;
    const char *grammar;
    void (*write)(uint64_t *seed, FILE *out);
} cases[] = {
    {"schema", true,
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":"
     "\"integer\",\"minimum\":0,\"maximum\":150},\"about\":{\"type\":\"string\",\"maxLength\":2000}"
     ","
     "\"addresses\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"kind\":{"
     "\"enum\":[\"home\",\"work\",\"other\"]},\"street\":{\"type\":\"string\",\"maxLength\":300},"
     "\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"},\"point\":{\"type\":\"array\","
     "\"items\":{\"type\":\"number\"},\"minItems\":2,\"maxItems\":2}},\"required\":[\"kind\","
     "\"street\"]},\"maxItems\":20}},\"required\":[\"name\",\"age\"]}",
     person_write},
    {"any JSON", true, "{}", person_write},
    {"nested text", false, "root ::= \"(\" [a-z ]* root* \")\"", nested_write},
};

/* ---- Measuring ---- */

static int double_order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Runs the grammar over one text, token by token; appends the microseconds of each token to
 * times[*n]. */
static void text_run(const llm_vocab *vocab, grammar *g, uint64_t *mask, const char *text,
                     size_t len, double *times, int *n) {
    grammar_state *s = NULL;
    tdm_error err = {0};
    if (grammar_state_create(g, &s, &err) != TDM_OK) exit(fail(err.message));
    for (size_t at = 0; at < len;) {
        const double begin = now_us();
        if (grammar_state_mask(s, mask, &err) != TDM_OK) exit(fail(err.message));
        const double masked = now_us();
        int32_t best = -1;
        size_t best_len = 0;
        for (int32_t t = 0; t < llm_vocab_n_token(vocab); t++) {
            if ((mask[t / 64] >> (t % 64) & 1) == 0) continue;
            const llm_vocab_str bytes = llm_vocab_token_bytes(vocab, t);
            if (bytes.len > best_len && bytes.len <= len - at &&
                memcmp(bytes.ptr, text + at, bytes.len) == 0 &&
                llm_vocab_token_type(vocab, t) != LLM_TOKEN_CONTROL) {
                best = t;
                best_len = bytes.len;
            }
        }
        if (best < 0) exit(fail("the grammar does not allow the text of a case"));
        const double picked = now_us();
        if (grammar_state_accept(s, best, &err) != TDM_OK) exit(fail(err.message));
        if (*n < STEP_MAX) times[(*n)++] = masked - begin + (now_us() - picked);
        at += best_len;
    }
    if (!grammar_state_can_end(s)) exit(fail("the grammar does not end with the text of a case"));
    grammar_state_destroy(s);
}

static void times_print(const char *name, const char *which, double *times, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += times[i];
    qsort(times, (size_t)n, sizeof *times, double_order);
    printf("%-12s %-6s %6d tokens   mean %7.1f   median %7.1f   p99 %7.1f   max %8.1f us\n", name,
           which, n, sum / n, times[n / 2], times[(int)((double)n * 0.99)], times[n - 1]);
}

static void case_run(size_t c, const llm_vocab *vocab, const grammar_vocab *tries, int runs,
                     uint64_t *mask, double *times) {
    static char text[TEXT_MAX];
    uint64_t seed = 7 + c;
    grammar *g = NULL;
    tdm_error err = {0};
    const char *source = cases[c].grammar;
    const double begin = now_us();
    const tdm_status status = (cases[c].is_schema ? grammar_compile_schema : grammar_compile)(
        tries, source, strlen(source), &g, &err);
    if (status == TDM_UNSUPPORTED) {
        printf("%-12s %s\n", cases[c].name, err.message);
        return;
    }
    if (status != TDM_OK) exit(fail(err.message));
    printf("%-12s compiled in %.0f us\n", cases[c].name, now_us() - begin);
    int n = 0;
    for (int r = 0; r <= runs; r++) {
        FILE *out = fmemopen(text, sizeof text, "w");
        if (out == NULL) exit(fail("no memory"));
        cases[c].write(&seed, out);
        fclose(out);
        text_run(vocab, g, mask, text, strlen(text), times, &n);
        if (r == 0) times_print(cases[c].name, "first", times, n);
        if (r == 0) n = 0;
    }
    if (n > 0) times_print(cases[c].name, "later", times, n);
    grammar_release(g);
}

int main(int argc, char **argv) {
    const char *path = NULL;
    int runs = 5;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--vocab") == 0 && i + 1 < argc)
            path = argv[++i];
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            runs = atoi(argv[++i]);
        else
            return fail("usage: tandem-grammar-speed [--vocab FILE.gguf] [--runs N]");
    }
    llm_vocab *vocab = path != NULL ? vocab_read(path) : vocab_make();
    const int32_t n_token = llm_vocab_n_token(vocab);
    grammar_vocab *tries = NULL;
    tdm_error err = {0};
    const double begin = now_us();
    if (grammar_vocab_create(vocab, n_token, &tries, &err) != TDM_OK) return fail(err.message);
    printf("vocabulary   %d tokens, tries in %.1f ms\n", n_token, (now_us() - begin) / 1e3);
    const size_t n_word = grammar_vocab_mask_words(tries);
    uint64_t *mask = calloc(n_word, sizeof *mask), *copy = calloc(n_word, sizeof *copy);
    double *times = calloc(STEP_MAX, sizeof *times);
    if (mask == NULL || copy == NULL || times == NULL) return fail("no memory");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        case_run(c, vocab, tries, runs, mask, times);
    int64_t n_bit = 0;
    const double machine = now_us();
    for (int i = 0; i < 1000; i++) {
        memcpy(copy, mask, n_word * sizeof *mask);
        for (size_t w = 0; w < n_word; w++) n_bit += __builtin_popcountll(copy[w]);
        mask[(size_t)i % n_word] ^= 1;
    }
    printf("machine      a mask is copied and counted in %.2f us (%lld bits)\n",
           (now_us() - machine) / 1e3, (long long)n_bit);
    free(mask);
    free(copy);
    free(times);
    grammar_vocab_destroy(tries);
    llm_vocab_destroy(vocab);
    return 0;
}
