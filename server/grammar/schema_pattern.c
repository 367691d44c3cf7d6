/* SPDX-License-Identifier: MIT
 *
 * schema_pattern.c: writes the regular expressions of `pattern` as GBNF. They are a subset of
 * ECMA-262: characters, . [...] \d \w \s and their opposites, groups, |, * + ? {m,n}, and ^ and $
 * at the ends of the whole or of its alternatives. See schema.h.
 *
 * The rules match the string as JSON writes it: a quote in the pattern is \" in the text. Control
 * characters are matched only where JSON has a short escape for them. Lazy repetitions are read as
 * others, since they match the same strings.
 */
#include <string.h>

#include "llm/tokenizer/utf8.h"
#include "server/grammar/code_points.h"
#include "server/grammar/schema.h"

enum { RANGE_MAX = 256 };

typedef struct pattern {
    schema_writer *writer;
    const char *at, *end;
    FILE *out;
    int depth;
    grammar_range ranges[RANGE_MAX]; /* [n_range] of the present set */
    int32_t n_range;
} pattern;

static bool refuse(pattern *p, const char *what) {
    return schema_fail(p->writer, TDM_UNSUPPORTED,
                       "'pattern': %s is not supported; there are characters, sets, groups, | and "
                       "repetitions, ^ at the beginning and $ at the end",
                       what);
}

static bool at_char(const pattern *p, char c) {
    return p->at < p->end && *p->at == c;
}

static bool range_add(pattern *p, uint32_t lo, uint32_t hi) {
    if (p->n_range == RANGE_MAX) return refuse(p, "a set of more than 256 ranges");
    p->ranges[p->n_range++] = (grammar_range){lo, hi};
    return true;
}

/* ---- Sets ---- */

/* Adds the ranges of \d, \w or \s, or of \D, \W or \S. The latter have ASCII only: whether other
 * characters are in them differs between libraries. */
static bool escape_ranges(pattern *p, char c) {
    switch (c) {
    case 'd': return range_add(p, '0', '9');
    case 'w':
        return range_add(p, '0', '9') && range_add(p, 'A', 'Z') && range_add(p, '_', '_') &&
               range_add(p, 'a', 'z');
    case 's': return range_add(p, '\t', '\r') && range_add(p, ' ', ' ');
    case 'D': return range_add(p, 0x20, '0' - 1) && range_add(p, '9' + 1, 0x7E);
    case 'W':
        return range_add(p, 0x20, '0' - 1) && range_add(p, '9' + 1, 'A' - 1) &&
               range_add(p, 'Z' + 1, '_' - 1) && range_add(p, '`', '`') &&
               range_add(p, 'z' + 1, 0x7E);
    default: return range_add(p, '!', 0x7E); /* S */
    }
}

static bool hex_read(pattern *p, int n, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < n; i++, p->at++) {
        const char c = p->at < p->end ? *p->at : '\0';
        const char small = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            *code = *code << 4 | (uint32_t)(c - '0');
        else if (small >= 'a' && small <= 'f')
            *code = *code << 4 | (uint32_t)(small - 'a' + 10);
        else
            return refuse(p, "an escape without its hexadecimal digits");
    }
    return (*code < 0xD800 || *code > 0xDFFF) || refuse(p, "a surrogate");
}

/* Reads the character of an escape, behind its backslash. */
static bool escape_read(pattern *p, uint32_t *code) {
    const char c = p->at < p->end ? *p->at++ : '\0';
    switch (c) {
    case 'n': *code = '\n'; return true;
    case 'r': *code = '\r'; return true;
    case 't': *code = '\t'; return true;
    case 'f': *code = '\f'; return true;
    case 'v': *code = '\v'; return true;
    case 'x': return hex_read(p, 2, code);
    case 'u': return hex_read(p, 4, code);
    default:
        if (c != '\0' && strchr("^$\\.*+?()[]{}|/-\"'#&,:;<=>@!%~` _", c) != NULL) {
            *code = (uint8_t)c;
            return true;
        }
        return refuse(p, c == 'b' || c == 'B'   ? "\\b"
                         : c >= '0' && c <= '9' ? "a reference to a group"
                         : c == 'p' || c == 'P' ? "\\p"
                                                : "this escape");
    }
}

static bool code_read(pattern *p, uint32_t *code) {
    size_t size;
    if (llm_utf8_begin(p->at, (size_t)(p->end - p->at), &size) != LLM_UTF8_WHOLE)
        return refuse(p, "text that is not UTF-8");
    const uint8_t first = (uint8_t)*p->at;
    *code = size == 1 ? first : first & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) *code = *code << 6 | ((uint8_t)p->at[i] & 0x3Fu);
    p->at += size;
    return true;
}

static bool set_has(const pattern *p, uint32_t code, bool is_negated) {
    bool is_in = false;
    for (int32_t i = 0; i < p->n_range; i++)
        is_in = is_in || (code >= p->ranges[i].lo && code <= p->ranges[i].hi);
    return is_in != is_negated;
}

static void code_write(FILE *out, uint32_t code) {
    fprintf(out, "\\U%08X", code);
}

/* Writes the set as JSON writes its characters: most as they are, some as escapes. Fails where JSON
 * writes none of them. */
static bool set_write(pattern *p, bool is_negated) {
    static const struct {
        char code;
        const char *escape;
    } escapes[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                   {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
    bool has_any = false;
    fprintf(p->out, "(");
    if (is_negated) {
        fprintf(p->out, "[^\"\\\\\\x00-\\x1F\\x7F");
        for (int32_t i = 0; i < p->n_range; i++) {
            code_write(p->out, p->ranges[i].lo);
            fprintf(p->out, "-");
            code_write(p->out, p->ranges[i].hi);
        }
        fprintf(p->out, "]");
        has_any = true;
    } else {
        /* The parts of each range that JSON writes as they are. */
        static const uint32_t plain[][2] = {
            {0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}, {0x80, 0x10FFFF}};
        for (int32_t i = 0; i < p->n_range; i++)
            for (size_t k = 0; k < sizeof plain / sizeof *plain; k++) {
                uint32_t lo = p->ranges[i].lo, hi = p->ranges[i].hi;
                if (lo < plain[k][0]) lo = plain[k][0];
                if (hi > plain[k][1]) hi = plain[k][1];
                if (lo >= 0xD800 && lo <= 0xDFFF) lo = 0xE000;
                if (hi >= 0xD800 && hi <= 0xDFFF) hi = 0xD7FF;
                if (lo > hi) continue;
                fprintf(p->out, has_any ? "" : "[");
                code_write(p->out, lo);
                fprintf(p->out, "-");
                code_write(p->out, hi);
                has_any = true;
            }
        if (has_any) fprintf(p->out, "]");
    }
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        if (!set_has(p, (uint8_t)escapes[i].code, is_negated)) continue;
        if (has_any) fprintf(p->out, " | ");
        schema_literal_write(p->out, escapes[i].escape, 2);
        has_any = true;
    }
    fprintf(p->out, ")");
    return has_any || refuse(p, "a set without a character that JSON can write");
}

/* Reads [...], behind the opening bracket. */
static bool set_read(pattern *p) {
    const bool is_negated = at_char(p, '^');
    p->at += is_negated;
    p->n_range = 0;
    while (!at_char(p, ']')) {
        uint32_t lo, hi;
        if (p->at >= p->end) return refuse(p, "a set without ]");
        if (p->at + 1 < p->end && *p->at == '\\' && strchr("dwsDWS", p->at[1]) != NULL) {
            if (is_negated && strchr("DWS", p->at[1]) != NULL)
                return refuse(p, "\\D, \\W or \\S in a negated set");
            if (!escape_ranges(p, p->at[1])) return false;
            /* Some libraries count other characters as digits, letters or spaces, too: these are
             * left out of the negated set. */
            if (is_negated && !range_add(p, 0x80, 0x10FFFF)) return false;
            p->at += 2;
            continue;
        }
        bool is_good = *p->at == '\\' ? (p->at++, escape_read(p, &lo)) : code_read(p, &lo);
        if (!is_good) return false;
        hi = lo;
        if (at_char(p, '-') && p->at + 1 < p->end && p->at[1] != ']') {
            p->at++;
            if (p->at + 1 < p->end && *p->at == '\\' && strchr("dwsDWS", p->at[1]) != NULL)
                return refuse(p, "a range that ends with a class");
            is_good = *p->at == '\\' ? (p->at++, escape_read(p, &hi)) : code_read(p, &hi);
            if (!is_good) return false;
            if (hi < lo) return refuse(p, "a range that ends before it begins");
        }
        if (!range_add(p, lo, hi)) return false;
    }
    p->at++;
    return set_write(p, is_negated);
}

/* ---- Expressions ---- */

static bool choice_read(pattern *p);

static bool group_read(pattern *p) {
    if (p->at + 1 < p->end && p->at[0] == '?') {
        if (p->at[1] != ':') return refuse(p, "a group that begins with (?");
        p->at += 2;
    }
    if (++p->depth > SCHEMA_DEPTH_MAX) return refuse(p, "so many groups in each other");
    if (!choice_read(p)) return false;
    if (!at_char(p, ')')) return refuse(p, "a group without )");
    p->at++;
    p->depth--;
    return true;
}

static bool count_read(pattern *p, int32_t *count) {
    if (p->at >= p->end || *p->at < '0' || *p->at > '9') return refuse(p, "this repetition");
    for (*count = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if ((*count = *count * 10 + (*p->at - '0')) > 1000000)
            return refuse(p, "a repetition of more than 1000000 times");
    return true;
}

/* Reads the repetition behind an element, if there is one. */
static bool repeat_read(pattern *p) {
    int32_t lo, hi;
    if (at_char(p, '*') || at_char(p, '+') || at_char(p, '?')) {
        fputc(*p->at++, p->out);
    } else if (at_char(p, '{')) {
        p->at++;
        if (!count_read(p, &lo)) return false;
        fprintf(p->out, "{%d", lo);
        if (at_char(p, ',')) {
            p->at++;
            fputc(',', p->out);
            if (!at_char(p, '}')) {
                if (!count_read(p, &hi)) return false;
                if (hi < lo) return refuse(p, "a repetition whose larger number comes first");
                fprintf(p->out, "%d", hi);
            }
        }
        if (!at_char(p, '}')) return refuse(p, "a repetition without }");
        p->at++;
        fputc('}', p->out);
    } else {
        return true;
    }
    if (at_char(p, '?')) p->at++;
    return p->at >= p->end || strchr("*+?{", *p->at) == NULL ||
           refuse(p, "a repetition of a repetition");
}

static bool element_read(pattern *p) {
    uint32_t code;
    const char c = *p->at;
    if (c == '(') {
        p->at++;
        return group_read(p);
    }
    if (c == '[') {
        p->at++;
        return set_read(p);
    }
    p->n_range = 0;
    if (c == '.') { /* any character but line ends */
        p->at++;
        return range_add(p, '\n', '\n') && range_add(p, '\r', '\r') &&
               range_add(p, 0x2028, 0x2029) && set_write(p, true);
    }
    if (strchr("*+?{}])^$", c) != NULL) {
        const char what[] = {c, '\0'};
        return refuse(p, c == '^' || c == '$' ? "^ or $ in the middle" : what);
    }
    if (c == '\\' && p->at + 1 < p->end && strchr("dwsDWS", p->at[1]) != NULL) {
        p->at += 2;
        return escape_ranges(p, p->at[-1]) && set_write(p, false);
    }
    const bool is_good = c == '\\' ? (p->at++, escape_read(p, &code)) : code_read(p, &code);
    return is_good && range_add(p, code, code) && set_write(p, false);
}

/* Reads alternatives, of a group or of the whole (depth 0). Only those of the whole may have ^ and
 * $; where they are missing, any characters may come before or after. */
static bool choice_read(pattern *p) {
    fprintf(p->out, "(");
    for (;;) {
        const bool is_whole = p->depth == 0;
        if (is_whole && at_char(p, '^'))
            p->at++;
        else if (is_whole)
            fprintf(p->out, "char* ");
        bool has_end = false;
        fprintf(p->out, "\"\"");
        while (p->at < p->end && *p->at != '|' && *p->at != ')') {
            if (is_whole && *p->at == '$' && (p->at + 1 == p->end || p->at[1] == '|')) {
                p->at++;
                has_end = true;
                break;
            }
            fputc(' ', p->out);
            if (!element_read(p) || !repeat_read(p)) return false;
        }
        if (is_whole && !has_end) fprintf(p->out, " char*");
        if (!at_char(p, '|')) break;
        p->at++;
        fprintf(p->out, " | ");
    }
    fprintf(p->out, ")");
    return p->depth > 0 || p->at == p->end || refuse(p, ") without (");
}

bool schema_pattern_write(schema_writer *w, const char *text, size_t len, FILE *out) {
    pattern p = {.writer = w, .at = text, .end = text + len, .out = out};
    return choice_read(&p);
}
