/* SPDX-License-Identifier: MIT
 *
 * json.c: see json.h.
 */
#include "runner/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Length of the UTF-8 sequence at `text`; 0 where it is invalid: overlong, a surrogate, or above
 * U+10FFFF (RFC 3629). */
static size_t utf8_length(const unsigned char *text) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = text[0] < 0x80             ? 1
               : (text[0] & 0xE0) == 0xC0 ? 2
               : (text[0] & 0xF0) == 0xE0 ? 3
               : (text[0] & 0xF8) == 0xF0 ? 4
                                          : 0;
    if (n < 2) return n;
    uint32_t code = text[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xC0) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3Fu);
    }
    return code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0 : n;
}

static void text_write(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        size_t n = utf8_length(at);
        if (n == 0) {
            fputs("\xEF\xBF\xBD", out);
            at++;
            continue;
        }
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7F)
            fprintf(out, "\\u%04x", *at);
        else
            fwrite(at, 1, n, out);
        at += n;
    }
    fputc('"', out);
}

static void line_begin(runner_json_writer *w) {
    fputc('\n', w->out);
    for (int i = 0; i < w->depth; i++) fputs("  ", w->out);
}

static void value_begin(runner_json_writer *w, const char *key) {
    if (w->has_more) fputc(',', w->out);
    if (w->depth > 0) line_begin(w);
    if (key != NULL) {
        text_write(w->out, key);
        fputs(": ", w->out);
    }
    w->has_more = true;
}

static void open_bracket(runner_json_writer *w, const char *key, char bracket) {
    value_begin(w, key);
    fputc(bracket, w->out);
    w->depth++;
    w->has_more = false;
}

static void close_bracket(runner_json_writer *w, char bracket) {
    w->depth--;
    if (w->has_more) line_begin(w);
    fputc(bracket, w->out);
    w->has_more = true;
    if (w->depth == 0) fputc('\n', w->out);
}

void runner_json_begin_object(runner_json_writer *w, const char *key) {
    open_bracket(w, key, '{');
}

void runner_json_begin_array(runner_json_writer *w, const char *key) {
    open_bracket(w, key, '[');
}

void runner_json_end_object(runner_json_writer *w) {
    close_bracket(w, '}');
}

void runner_json_end_array(runner_json_writer *w) {
    close_bracket(w, ']');
}

void runner_json_string(runner_json_writer *w, const char *key, const char *text) {
    value_begin(w, key);
    text_write(w->out, text);
}

void runner_json_uint(runner_json_writer *w, const char *key, uint64_t value) {
    value_begin(w, key);
    fprintf(w->out, "%" PRIu64, value);
}

void runner_json_int(runner_json_writer *w, const char *key, int64_t value) {
    value_begin(w, key);
    fprintf(w->out, "%" PRId64, value);
}

void runner_json_number(runner_json_writer *w, const char *key, double value) {
    value_begin(w, key);
    if (isfinite(value))
        fprintf(w->out, "%.9g", value);
    else
        fputs("null", w->out);
}

void runner_json_bool(runner_json_writer *w, const char *key, bool value) {
    value_begin(w, key);
    fputs(value ? "true" : "false", w->out);
}

void runner_json_null(runner_json_writer *w, const char *key) {
    value_begin(w, key);
    fputs("null", w->out);
}
