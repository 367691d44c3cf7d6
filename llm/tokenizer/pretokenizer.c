/* SPDX-License-Identifier: MIT
 *
 * pretokenizer.c: cuts text with PCRE2 by the expressions of pretokenizer_table.c.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "llm/tokenizer/pretokenizer.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/pretokenizer_table.h"

struct llm_pretokenizer {
    const llm_pre_kind *kind;
    size_t n_pass;
    pcre2_code *passes[LLM_PRE_MAX_PASSES];
};

tdm_status llm_pretokenizer_create(const char *name, llm_pretokenizer **out, tdm_error *err) {
    *out = NULL;
    const llm_pre_kind *kind = llm_pre_kind_find(name);
    if (kind == NULL) {
        char known[400] = "";
        size_t n = 0;
        const llm_pre_kind *other;
        for (size_t i = 0; (other = llm_pre_kind_at(i)) != NULL; ++i) {
            const int n_first = (int)strcspn(other->names, " ");
            const int w = snprintf(known + n, sizeof known - n, "%s%.*s", i > 0 ? " " : "", n_first,
                                   other->names);
            if (w < 0 || (size_t)w >= sizeof known - n) break;
            n += (size_t)w;
        }
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "pre-tokenizer '%.60s' (tokenizer.ggml.pre) is not supported; supported "
                        "are %s and other names for these; the model still takes token ids",
                        name, known);
    }
    llm_pretokenizer *pre = calloc(1, sizeof *pre);
    if (pre == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "pre-tokenizer %s: no memory", name);
    pre->kind = kind;
    for (; pre->n_pass < LLM_PRE_MAX_PASSES && kind->passes[pre->n_pass].expression != NULL;
         ++pre->n_pass) {
        int code;
        PCRE2_SIZE at;
        pcre2_code *pass =
            pcre2_compile((PCRE2_SPTR)kind->passes[pre->n_pass].expression, PCRE2_ZERO_TERMINATED,
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
    return pre->kind->ignores_merges;
}

bool llm_pretokenizer_is_raw(const llm_pretokenizer *pre) {
    return pre->kind->is_raw;
}

bool llm_pretokenizer_marks_space(const llm_pretokenizer *pre) {
    return pre->kind->marks_space;
}

bool llm_pretokenizer_keeps_lines(const llm_pretokenizer *pre) {
    return pre->kind->keeps_lines;
}

bool llm_pretokenizer_adds_bos(const llm_pretokenizer *pre) {
    return pre->kind->adds_bos;
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

/* Adds the ends of the groups of three in text[begin, end), a number; see llm_pre_cut. `*last` is
 * the last end so far. */
static bool threes_cut(const char *text, size_t begin, size_t end, llm_pre_cut kind, end_list *out,
                       size_t *last) {
    size_t n = 0; /* characters from `at` to the end */
    for (size_t at = begin; at < end; ++at) n += (text[at] & 0xC0) != 0x80;
    for (size_t at = begin;; --n) {
        const bool is_end = kind == LLM_PRE_THREES_JOINED ? at > begin : n > 0;
        if (is_end && n % 3 == 0 && at > *last) {
            if (!end_list_add(out, at)) return false;
            *last = at;
        }
        if (at == end) return true;
        do ++at;
        while (at < end && (text[at] & 0xC0) == 0x80);
    }
}

/* Cuts text[begin, end) into matches and the text between them. For the expression, `end` is the
 * end of the text. */
static tdm_status word_cut(const pcre2_code *pass, llm_pre_cut kind, pcre2_match_data *match,
                           pcre2_match_context *context, const char *text, size_t begin, size_t end,
                           end_list *out, tdm_error *err) {
    PCRE2_SPTR word = (PCRE2_SPTR)(text + begin);
    const size_t n = end - begin;
    size_t last = begin; /* the words before it are in `out` */
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
        bool has_room;
        if (kind == LLM_PRE_WORD) {
            has_room = (begin + span[0] <= last || end_list_add(out, begin + span[0])) &&
                       end_list_add(out, begin + span[1]);
            last = begin + span[1];
        } else {
            has_room = threes_cut(text, begin + span[0], begin + span[1], kind, out, &last);
        }
        if (!has_room)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "pre-tokenizer: no memory for words");
        from = span[1];
    }
    if (last < end && !end_list_add(out, end))
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
            status = word_cut(pre->passes[p], pre->kind->passes[p].cut, match, context, text, begin,
                              words.ends[i], &cut, err);
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
