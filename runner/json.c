/* SPDX-License-Identifier: MIT
 *
 * json.c: see json.h.
 */
#include "runner/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "llm/tokenizer/utf8.h"

void runner_json_text(FILE *out, const char *text) {
    const char *end = text + strlen(text);
    fputc('"', out);
    for (const char *at = text; at < end;) {
        const unsigned char c = (unsigned char)*at;
        size_t n;
        if (llm_utf8_begin(at, (size_t)(end - at), &n) != LLM_UTF8_WHOLE) {
            fputs("\xEF\xBF\xBD", out);
            at++;
            continue;
        }
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            fprintf(out, "\\u%04x", c);
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
        runner_json_text(w->out, key);
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
    runner_json_text(w->out, text);
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
