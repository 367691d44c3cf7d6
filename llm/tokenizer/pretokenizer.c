/* SPDX-License-Identifier: MIT
 *
 * pretokenizer.c: the table of pre-tokenizers, and cutting text with PCRE2. The expressions are
 * those of the models' tokenizer.json files, with one difference taken from llama.cpp: contractions
 * fold case in ASCII only. White space is listed here (Unicode's White_Space), because PCRE2's \s
 * also matches U+180E.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "llm/tokenizer/pretokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define SPACE     "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"

/* White space; if a word follows, without its last character. */
#define SPACE_BEFORE_WORD SPACE "+(?!" NOT_SPACE ")"

#define ANY_CASE_CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"

#define GPT2                                                                                       \
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE_BEFORE_WORD

/* cl100k and its relatives. `letters`: the characters of words. `not_word`: the characters that do
 * not count as signs. `digits`: how numbers are cut. */
#define CL100K(letters, not_word, digits)                                                          \
    ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits "| ?[^" SPACES not_word     \
                         "]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD "|" SPACE "+"

#define LLAMA3 CL100K("\\p{L}", "\\p{L}\\p{N}", "\\p{N}{1,3}")
#define QWEN2  CL100K("\\p{L}", "\\p{L}\\p{N}", "\\p{N}")
#define QWEN35 CL100K("[\\p{L}\\p{M}]", "\\p{L}\\p{M}\\p{N}", "\\p{N}")

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD       \
    "|" SPACE "+"

#define FALCON_SIGNS "[\\p{P}$+<=>^~|`]+"
#define BASIC_SIGNS  "[\\p{P}$+<=>^~|]+"
#define THREE_DIGITS "[0-9][0-9][0-9]"

/* Upper, lower and title case letters of an older Unicode version, as in DeepSeek's expression. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"         \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                       \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                 \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                 \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"        \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"         \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"                 \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"                  \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"        \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"         \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                  \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                 \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"               \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"         \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
#define DEEPSEEK_CJK "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK_SIGNS                                                                             \
    SPACE "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"
#define DEEPSEEK3                                                                                  \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                      \
    "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE_BEFORE_WORD "|" SPACE "+"

enum { MAX_PASSES = 6 };

typedef struct pre_kind {
    const char *names; /* separated by spaces */
    bool ignore_merges;
    bool add_bos;
    const char *passes[MAX_PASSES];
} pre_kind;

static const pre_kind pre_kinds[] = {
    {"default", false, false, {BASIC_SIGNS, GPT2, "\\p{N}+", THREE_DIGITS}},
    {"gpt-2 phi-2 mpt olmo jais", false, false, {GPT2}},
    {"llama-bpe llama3 llama-v3 falcon3 pixtral", true, true, {LLAMA3}},
    {"dbrx smaug-bpe", false, false, {LLAMA3}},
    {"qwen2 deepseek-r1-qwen stablelm2", false, false, {QWEN2}},
    {"qwen35", false, false, {QWEN35}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]", SPACE "?[" DEEPSEEK_LETTERS "]+", DEEPSEEK_SIGNS, SPACE "+$", DEEPSEEK_CJK,
      "\\p{N}+"}},
    {"deepseek-coder",
     false,
     false,
     {"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-v3 hunyuan-dense",
     false,
     false,
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+", DEEPSEEK3}},
    {"falcon", false, false, {FALCON_SIGNS, GPT2, THREE_DIGITS}},
    {"starcoder refact command-r smollm codeshell", false, false, {"\\p{N}", GPT2}},
    {"tekken", true, true, {TEKKEN}},
};

struct llm_pretokenizer {
    const pre_kind *kind;
    size_t n_pass;
    pcre2_code *passes[MAX_PASSES];
};

static bool pre_kind_has_name(const pre_kind *kind, const char *name, size_t len) {
    if (len == 0 || memchr(name, ' ', len) != NULL) return false;
    for (const char *at = kind->names; (at = strstr(at, name)) != NULL; ++at) {
        const bool begins = at == kind->names || at[-1] == ' ';
        if (begins && (at[len] == ' ' || at[len] == '\0')) return true;
    }
    return false;
}

tdm_status llm_pretokenizer_create(const char *name, llm_pretokenizer **out, tdm_error *err) {
    *out = NULL;
    const pre_kind *kind = NULL;
    for (size_t i = 0; i < sizeof pre_kinds / sizeof *pre_kinds && kind == NULL; ++i) {
        if (pre_kind_has_name(&pre_kinds[i], name, strlen(name))) kind = &pre_kinds[i];
    }
    if (kind == NULL) {
        char known[400] = "";
        size_t n = 0;
        for (size_t i = 0; i < sizeof pre_kinds / sizeof *pre_kinds; ++i) {
            const int w =
                snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? " " : "", pre_kinds[i].names);
            if (w < 0 || (size_t)w >= sizeof known - n) break;
            n += (size_t)w;
        }
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "pre-tokenizer '%.60s' (tokenizer.ggml.pre) is not supported; supported are "
            "%s; the model still takes token ids",
            name, known);
    }
    llm_pretokenizer *pre = calloc(1, sizeof *pre);
    if (pre == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "pre-tokenizer %s: no memory", name);
    pre->kind = kind;
    for (; pre->n_pass < MAX_PASSES && kind->passes[pre->n_pass] != NULL; ++pre->n_pass) {
        int code;
        PCRE2_SIZE at;
        pcre2_code *pass =
            pcre2_compile((PCRE2_SPTR)kind->passes[pre->n_pass], PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
        if (pass == NULL) {
            char text[128] = "";
            pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
            const size_t n_pass = pre->n_pass;
            llm_pretokenizer_destroy(pre);
            return tdm_fail(err,
                            code == PCRE2_ERROR_HEAP_FAILED ? TDM_RESOURCE_EXHAUSTED : TDM_INTERNAL,
                            "pre-tokenizer %s: PCRE2 refuses pass %zu at %zu: %s", name, n_pass,
                            (size_t)at, text);
        }
        /* Without JIT (or executable memory) matching is slower, with the same results. */
        (void)pcre2_jit_compile(pass, PCRE2_JIT_COMPLETE);
        pre->passes[pre->n_pass] = pass;
    }
    *out = pre;
    return TDM_OK;
}

void llm_pretokenizer_destroy(llm_pretokenizer *pre) {
    if (pre == NULL) return;
    for (size_t i = 0; i < pre->n_pass; ++i) pcre2_code_free(pre->passes[i]);
    free(pre);
}

bool llm_pretokenizer_ignores_merges(const llm_pretokenizer *pre) {
    return pre->kind->ignore_merges;
}

bool llm_pretokenizer_adds_bos(const llm_pretokenizer *pre) {
    return pre->kind->add_bos;
}

typedef struct end_list {
    uint32_t *ends;
    size_t n, capacity;
} end_list;

static bool end_list_add(end_list *list, size_t end) {
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity != 0 ? list->capacity * 2 : 64;
        size_t size;
        if (__builtin_mul_overflow(capacity, sizeof *list->ends, &size)) return false;
        uint32_t *ends = realloc(list->ends, size);
        if (ends == NULL) return false;
        list->ends = ends;
        list->capacity = capacity;
    }
    list->ends[list->n++] = (uint32_t)end;
    return true;
}

/* Cuts text[begin, end) into matches and the text between them. For the expression, `end` is the
 * end of the text. */
static tdm_status word_cut(pcre2_code *pass, pcre2_match_data *match, pcre2_match_context *context,
                           const char *text, size_t begin, size_t end, end_list *out,
                           tdm_error *err) {
    PCRE2_SPTR word = (PCRE2_SPTR)(text + begin);
    const size_t n = end - begin;
    size_t cut = 0; /* the words before it are in `out` */
    size_t from = 0;
    while (from < n) {
        /* UTF-8 was checked before; checking it at each match would take quadratic time. */
        uint32_t options = PCRE2_NO_UTF_CHECK;
        int rc = pcre2_match(pass, word, n, from, options, match, context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
            options |= PCRE2_NO_JIT;
            rc = pcre2_match(pass, word, n, from, options, match, context);
        }
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            char message[128] = "";
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                            "pre-tokenizer: matching %zu bytes of text failed: %s; give the text "
                            "in smaller parts",
                            n, message);
        }
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(match);
        if (span[1] <= from) break; /* expressions have no empty matches; do not loop if one had */
        if ((span[0] > cut && !end_list_add(out, begin + span[0])) ||
            !end_list_add(out, begin + span[1]))
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "pre-tokenizer: no memory for words");
        cut = from = span[1];
    }
    if (cut < n && !end_list_add(out, end))
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "pre-tokenizer: no memory for words");
    return TDM_OK;
}

tdm_status llm_pretokenizer_split(const llm_pretokenizer *pre, const char *text, size_t len,
                                  uint32_t **ends, size_t *n_ends, tdm_error *err) {
    *ends = NULL;
    *n_ends = 0;
    if (len == 0) return TDM_OK;
    if (len > INT32_MAX)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "pre-tokenizer: %zu bytes of text are too many",
                        len);

    tdm_status status = TDM_OK;
    end_list words = {0}, cut = {0};
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (match == NULL || context == NULL || !end_list_add(&words, len)) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "pre-tokenizer: no memory");
    } else {
        /* An expression of the table backtracks at most once over each character. The limit stops a
         * wrong one. */
        pcre2_set_match_limit(context, (uint32_t)(len < (1u << 27) ? 16 * len + 65536 : INT32_MAX));
    }
    for (size_t p = 0; status == TDM_OK && p < pre->n_pass; ++p) {
        cut.n = 0;
        size_t begin = 0;
        for (size_t i = 0; status == TDM_OK && i < words.n; ++i) {
            status =
                word_cut(pre->passes[p], match, context, text, begin, words.ends[i], &cut, err);
            begin = words.ends[i];
        }
        const end_list swap = words;
        words = cut;
        cut = swap;
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
    free(cut.ends);
    if (status != TDM_OK) {
        free(words.ends);
        return status;
    }
    *ends = words.ends;
    *n_ends = words.n;
    return TDM_OK;
}
