/* SPDX-License-Identifier: MIT
 *
 * template_lexer.c: see template_lexer.h. The rules are those of Jinja's documentation ("Whitespace
 * Control", "Escaping") with trim_blocks and lstrip_blocks: the first newline after a block or
 * comment is removed, and blanks before one that is first in its line.
 */
#include "llm/template/template_lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define BRACKETS_MAX 200 /* open at once */

typedef struct lexer {
    llm_tpl_job *job;
    llm_tpl_str text; /* with newlines \n, without the last one */
    size_t at;
    bool line_starts; /* at the beginning, or after a newline */
    llm_tpl_token *tokens;
    size_t n, capacity;
} lexer;

static bool token_add(lexer *l, llm_tpl_token_kind kind, int line, llm_tpl_str text,
                      llm_tpl_value value) {
    if (l->n == l->capacity) {
        size_t capacity = l->capacity * 2 + 64;
        llm_tpl_token *tokens = llm_tpl_alloc(l->job, capacity, sizeof *tokens);
        if (tokens == NULL) return false;
        if (l->n > 0) memcpy(tokens, l->tokens, l->n * sizeof *tokens);
        l->tokens = tokens;
        l->capacity = capacity;
    }
    l->tokens[l->n++] = (llm_tpl_token){kind, line, text, value};
    return true;
}

static bool lex_fail(lexer *l, const char *reason) {
    return llm_tpl_fail(l->job, TDM_INVALID_ARGUMENT, "%s", reason);
}

static bool starts(const lexer *l, size_t at, const char *what) {
    size_t n = strlen(what);
    return l->text.len - at >= n && memcmp(l->text.ptr + at, what, n) == 0;
}

static char char_at(const lexer *l, size_t at) {
    return at < l->text.len ? l->text.ptr[at] : '\0';
}

/* Advances to `end` and counts lines. */
static void advance(lexer *l, size_t end) {
    for (; l->at < end; l->at++) l->job->line += l->text.ptr[l->at] == '\n';
}

static size_t space_end(const lexer *l, size_t at) {
    while (at < l->text.len) {
        uint32_t code;
        size_t n = llm_tpl_char_read(l->text, at, &code);
        if (!llm_tpl_is_space(code)) break;
        at += n;
    }
    return at;
}

/* The position after the end of a tag at `at`, and after the white space that it removes: "-%}"
 * all, "%}" one newline if `trims`, "+%}" none. 0 = there is no end of a tag at `at`. */
static size_t tag_end(const lexer *l, size_t at, const char *end, bool trims) {
    char sign = char_at(l, at);
    size_t n = strlen(end);
    if (sign == '-' && starts(l, at + 1, end)) return space_end(l, at + 1 + n);
    if (sign == '+' && trims && starts(l, at + 1, end)) return at + 1 + n;
    if (!starts(l, at, end)) return 0;
    return at + n + (trims && char_at(l, at + n) == '\n' ? 1 : 0);
}

/* ---- Between tags ---- */

/* The text before a tag without the white space that the tag removes. `sign`: the character after
 * the tag's first two. A print removes no blanks unless its sign is '-'. */
static llm_tpl_str data_strip(const lexer *l, llm_tpl_str data, char sign, bool is_print) {
    if (sign == '-') return llm_tpl_text_strip(data, (llm_tpl_str){NULL, 0}, false, true);
    if (sign == '+' || is_print) return data;
    size_t line = data.len;
    while (line > 0 && data.ptr[line - 1] != '\n') line--;
    if (line == 0 && !l->line_starts) return data;
    llm_tpl_str rest = {data.ptr + line, data.len - line};
    if (rest.len > 0 && llm_tpl_text_strip(rest, (llm_tpl_str){NULL, 0}, true, false).len == 0)
        data.len = line;
    return data;
}

static bool data_add(lexer *l, llm_tpl_str data, int line) {
    return data.len == 0 || token_add(l, LLM_TPL_TOKEN_DATA, line, data, llm_tpl_string(data));
}

/* The position after `word` at `at`, with white space around it; 0 = it is not there. */
static size_t word_end(const lexer *l, size_t at, const char *word) {
    at = space_end(l, at);
    return starts(l, at, word) ? space_end(l, at + strlen(word)) : 0;
}

/* The position after a tag `{% raw %}` at `at`; 0 = there is none. */
static size_t raw_begin_end(const lexer *l, size_t at) {
    char sign = char_at(l, at + 2);
    at = word_end(l, at + (sign == '-' || sign == '+' ? 3 : 2), "raw");
    if (at == 0) return 0;
    if (starts(l, at, "-%}")) return space_end(l, at + 3);
    return starts(l, at, "%}") ? at + 2 : 0;
}

/* Reads the text up to {% endraw %} as data. A text that ends right behind {% raw %} is accepted,
 * as by Jinja. */
static bool raw_read(lexer *l) {
    int line = l->job->line;
    for (size_t at = l->at; at + 1 < l->text.len; at++) {
        if (!starts(l, at, "{%")) continue;
        char sign = char_at(l, at + 2);
        size_t end = word_end(l, at + (sign == '-' || sign == '+' ? 3 : 2), "endraw");
        if (end == 0 || (end = tag_end(l, end, "%}", true)) == 0) continue;
        llm_tpl_str data = {l->text.ptr + l->at, at - l->at};
        if (!data_add(l, data_strip(l, data, sign, false), line)) return false;
        advance(l, end);
        l->line_starts = l->text.ptr[end - 1] == '\n';
        return true;
    }
    return l->at == l->text.len || lex_fail(l, "{% raw %} does not end");
}

/* A text that ends right behind {# is accepted, as by Jinja. */
static bool comment_skip(lexer *l) {
    for (size_t at = l->at; at + 1 < l->text.len; at++) {
        size_t end = tag_end(l, at, "#}", true);
        if (end == 0) continue;
        advance(l, end);
        l->line_starts = l->text.ptr[end - 1] == '\n';
        return true;
    }
    return l->at == l->text.len || lex_fail(l, "a comment does not end");
}

/* ---- Inside tags ---- */

static bool is_name_start(uint32_t code) {
    if (code < 0x80)
        return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || code == '_';
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return code != 0xFFFD && c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool name_read(lexer *l) {
    size_t at = l->at;
    while (at < l->text.len) {
        uint32_t code;
        size_t n = llm_tpl_char_read(l->text, at, &code);
        if (!is_name_start(code) && !(code >= '0' && code <= '9')) break;
        at += n;
    }
    llm_tpl_str name = {l->text.ptr + l->at, at - l->at};
    l->at = at;
    return token_add(l, LLM_TPL_TOKEN_NAME, l->job->line, name, llm_tpl_string(name));
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Reads digits, with single underscores between them. */
static size_t digits_end(const lexer *l, size_t at) {
    while (is_digit(char_at(l, at)) ||
           (char_at(l, at) == '_' && is_digit(char_at(l, at - 1)) && is_digit(char_at(l, at + 1))))
        at++;
    return at;
}

static bool number_read(lexer *l) {
    char text[400];
    size_t end = digits_end(l, l->at), n = 0;
    int base = 10;
    bool is_real = false, is_part = l->at > 0 && l->text.ptr[l->at - 1] == '.';
    if (l->text.ptr[l->at] == '0' && char_at(l, l->at + 1) != '\0') {
        char mark = (char)(char_at(l, l->at + 1) | 0x20);
        base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    }
    if (base != 10) {
        size_t at = end = l->at + 2;
        while (end < l->text.len &&
               (is_name_start((unsigned char)char_at(l, end)) || is_digit(char_at(l, end))))
            end++;
        for (; at < end && n < sizeof text - 1; at++)
            if (l->text.ptr[at] != '_') text[n++] = l->text.ptr[at];
    } else {
        if (!is_part && char_at(l, end) == '.' && is_digit(char_at(l, end + 1))) {
            is_real = true;
            end = digits_end(l, end + 1);
        }
        char sign = char_at(l, end + 1);
        size_t exponent = end + 1 + (sign == '+' || sign == '-');
        if (!is_part && (char_at(l, end) | 0x20) == 'e' && is_digit(char_at(l, exponent))) {
            is_real = true;
            end = digits_end(l, exponent);
        }
        for (size_t at = l->at; at < end && n < sizeof text - 1; at++)
            if (l->text.ptr[at] != '_') text[n++] = l->text.ptr[at];
    }
    text[n] = '\0';
    char *stop = text;
    errno = 0;
    llm_tpl_value value =
        is_real ? llm_tpl_float(strtod(text, &stop)) : llm_tpl_int(strtoll(text, &stop, base));
    if (n == 0 || *stop != '\0') return lex_fail(l, "a number that cannot be read");
    if (!is_real && errno == ERANGE) return lex_fail(l, "a whole number of more than 64 bits");
    llm_tpl_str source = {l->text.ptr + l->at, end - l->at};
    l->at = end;
    return token_add(l, is_real ? LLM_TPL_TOKEN_FLOAT : LLM_TPL_TOKEN_INT, l->job->line, source,
                     value);
}

/* Reads \xHH, \uHHHH, \UHHHHHHHH or up to three octal digits. Returns the number of characters, 0
 * if digits are missing. */
static size_t code_read(const lexer *l, size_t at, uint32_t *code) {
    char kind = char_at(l, at);
    size_t n = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0, i = 0;
    *code = 0;
    if (n == 0) {
        for (; i < 3 && char_at(l, at + i) >= '0' && char_at(l, at + i) <= '7'; i++)
            *code = *code * 8 + (uint32_t)(char_at(l, at + i) - '0');
        return i;
    }
    for (; i < n; i++) {
        char c = char_at(l, at + 1 + i);
        char low = (char)(c | 0x20);
        if (!is_digit(c) && !(low >= 'a' && low <= 'f')) return 0;
        *code = *code * 16 + (uint32_t)(is_digit(c) ? c - '0' : low - 'a' + 10);
    }
    return n + 1;
}

static bool escape_read(lexer *l, llm_tpl_buffer *buffer, size_t *at) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = char_at(l, *at);
    const char *found = c != '\0' ? strchr(from, c) : NULL;
    uint32_t code;
    if (found != NULL) {
        ++*at;
        return llm_tpl_put(l->job, buffer, (llm_tpl_str){&to[found - from], 1});
    }
    if (c == '\n') {
        ++*at;
        return true;
    }
    if (c == 'N') return lex_fail(l, "\\N{...} in a string is not supported");
    if (c == 'x' || c == 'u' || c == 'U' || (c >= '0' && c <= '7')) {
        size_t n = code_read(l, *at, &code);
        if (n == 0) return lex_fail(l, "digits are missing in a string's escape");
        *at += n;
        return llm_tpl_put_code(l->job, buffer, code);
    }
    return llm_tpl_put_chars(l->job, buffer, "\\"); /* other backslashes stay */
}

static bool string_read(lexer *l) {
    llm_tpl_buffer buffer = {0};
    char quote = l->text.ptr[l->at];
    int line = l->job->line;
    size_t at = l->at + 1, plain = at;
    for (; at < l->text.len && l->text.ptr[at] != quote;) {
        if (l->text.ptr[at] != '\\') {
            at++;
            continue;
        }
        if (!llm_tpl_put(l->job, &buffer, (llm_tpl_str){l->text.ptr + plain, at - plain}))
            return false;
        plain = ++at;
        if (at >= l->text.len) break;
        if (!escape_read(l, &buffer, &at)) return false;
        /* the character of an unknown escape is plain text */
        if (plain == at)
            at += llm_tpl_char_len(l->text, at);
        else
            plain = at;
    }
    if (at >= l->text.len) return lex_fail(l, "a string does not end");
    if (!llm_tpl_put(l->job, &buffer, (llm_tpl_str){l->text.ptr + plain, at - plain})) return false;
    advance(l, at + 1);
    llm_tpl_str text = llm_tpl_buffer_str(&buffer);
    return token_add(l, LLM_TPL_TOKEN_STRING, line, text, llm_tpl_string(text));
}

static bool operator_read(lexer *l, char *brackets, int *n_bracket) {
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "**", "//"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (starts(l, l->at, pairs[i])) n = 2;
    char c = l->text.ptr[l->at];
    if (n == 0 && c != '\0' && strchr("+-*/%~[](){}<>=.:|,;", c) != NULL) n = 1;
    if (n == 0) {
        char reason[64];
        snprintf(reason, sizeof reason, "unexpected character 0x%02x", (unsigned char)c);
        return lex_fail(l, reason);
    }
    if (c == '(' || c == '[' || c == '{') {
        if (*n_bracket == BRACKETS_MAX) return lex_fail(l, "too many brackets inside one another");
        brackets[(*n_bracket)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if ((c == ')' || c == ']' || c == '}') &&
               (*n_bracket == 0 || brackets[--*n_bracket] != c)) {
        return lex_fail(l, "a bracket closes that was not opened");
    }
    llm_tpl_str text = {l->text.ptr + l->at, n};
    l->at += n;
    return token_add(l, LLM_TPL_TOKEN_OPERATOR, l->job->line, text, llm_tpl_none());
}

/* Reads the inside of {{ }} or {% %}, and its end. */
static bool tag_read(lexer *l, bool is_print) {
    char brackets[BRACKETS_MAX];
    int n_bracket = 0;
    while (l->at < l->text.len) {
        size_t end = n_bracket > 0 ? 0 : tag_end(l, l->at, is_print ? "}}" : "%}", !is_print);
        if (end > 0) {
            if (!token_add(l, is_print ? LLM_TPL_TOKEN_PRINT_END : LLM_TPL_TOKEN_BLOCK_END,
                           l->job->line, (llm_tpl_str){NULL, 0}, llm_tpl_none()))
                return false;
            advance(l, end);
            l->line_starts = l->text.ptr[end - 1] == '\n';
            return true;
        }
        uint32_t code;
        llm_tpl_char_read(l->text, l->at, &code);
        bool ok = true;
        if (llm_tpl_is_space(code))
            advance(l, space_end(l, l->at));
        else if (is_digit((char)code) && code < 0x80)
            ok = number_read(l);
        else if (is_name_start(code))
            ok = name_read(l);
        else if (code == '\'' || code == '"')
            ok = string_read(l);
        else
            ok = operator_read(l, brackets, &n_bracket);
        if (!ok) return false;
    }
    return lex_fail(l, is_print ? "'}}' is missing" : "'%}' is missing");
}

/* Reads data up to the next tag, and the tag. */
static bool part_read(lexer *l) {
    size_t at = l->at;
    int line = l->job->line;
    while (at < l->text.len && !(l->text.ptr[at] == '{' && char_at(l, at + 1) != '\0' &&
                                 strchr("{%#", char_at(l, at + 1)) != NULL))
        at++;
    llm_tpl_str data = {l->text.ptr + l->at, at - l->at};
    if (at >= l->text.len) {
        advance(l, at);
        return data_add(l, data, line);
    }
    char kind = l->text.ptr[at + 1], sign = char_at(l, at + 2);
    size_t raw = kind == '%' ? raw_begin_end(l, at) : 0;
    if (!data_add(l, data_strip(l, data, sign, kind == '{'), line)) return false;
    advance(l, raw > 0 ? raw : at + 2 + (sign == '-' || sign == '+'));
    l->line_starts = l->text.ptr[l->at - 1] == '\n';
    if (raw > 0) return raw_read(l);
    if (kind == '#') return comment_skip(l);
    return token_add(l, kind == '{' ? LLM_TPL_TOKEN_PRINT_BEGIN : LLM_TPL_TOKEN_BLOCK_BEGIN,
                     l->job->line, (llm_tpl_str){NULL, 0}, llm_tpl_none()) &&
           tag_read(l, kind == '{');
}

/* Converts all newlines to \n and removes one at the end. */
static bool newlines_normalize(lexer *l, llm_tpl_str text) {
    char *ptr = llm_tpl_alloc(l->job, text.len + 1, 1);
    size_t n = 0;
    if (ptr == NULL) return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\n' && i > 0 && text.ptr[i - 1] == '\r') continue;
        ptr[n++] = text.ptr[i] == '\r' ? '\n' : text.ptr[i];
    }
    if (n > 0 && ptr[n - 1] == '\n') n--;
    l->text = (llm_tpl_str){ptr, n};
    return true;
}

bool llm_tpl_lex(llm_tpl_job *job, llm_tpl_str text, llm_tpl_token **tokens_out) {
    lexer l = {.job = job, .line_starts = true};
    job->line = 1;
    if (!newlines_normalize(&l, text)) return false;
    while (l.at < l.text.len)
        if (!part_read(&l)) return false;
    if (!token_add(&l, LLM_TPL_TOKEN_END, job->line, (llm_tpl_str){NULL, 0}, llm_tpl_none()))
        return false;
    *tokens_out = l.tokens;
    return true;
}
