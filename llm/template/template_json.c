/* SPDX-License-Identifier: MIT
 *
 * template_json.c: see template_json.h.
 */
#include "llm/template/template_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NESTED_MAX 200

/* ---- Reading ---- */

typedef struct reader {
    llm_tpl_job *job;
    llm_tpl_str text;
    size_t at;
    int depth;
} reader;

static bool read_fail(reader *r, const char *reason) {
    return llm_tpl_fail(r->job, TDM_DATA_LOSS, "JSON, byte %zu: %s", r->at, reason);
}

static int peek(const reader *r) {
    return r->at < r->text.len ? (unsigned char)r->text.ptr[r->at] : -1;
}

static void space_skip(reader *r) {
    while (peek(r) == ' ' || peek(r) == '\t' || peek(r) == '\n' || peek(r) == '\r') r->at++;
}

static bool value_read(reader *r, llm_tpl_value *out);

static bool hex_read(reader *r, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int c = peek(r);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return read_fail(r, "four hexadecimal digits are missing after \\u");
        *code = *code * 16 + (uint32_t)digit;
    }
    return true;
}

static bool escape_read(reader *r, llm_tpl_buffer *buffer) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = peek(r);
    r->at++;
    if (c == 'u') {
        uint32_t code, low;
        if (!hex_read(r, &code)) return false;
        if (code >= 0xD800 && code < 0xDC00 && r->at + 1 < r->text.len &&
            r->text.ptr[r->at] == '\\' && r->text.ptr[r->at + 1] == 'u') {
            size_t before = r->at;
            r->at += 2;
            if (!hex_read(r, &low)) return false;
            if (low >= 0xDC00 && low < 0xE000)
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            else
                r->at = before;
        }
        return llm_tpl_put_code(r->job, buffer, code);
    }
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (found == NULL) return read_fail(r, "unknown escape");
    return llm_tpl_put(r->job, buffer, (llm_tpl_str){&to[found - from], 1});
}

static bool string_read(reader *r, llm_tpl_value *out) {
    llm_tpl_buffer buffer = {0};
    r->at++;
    for (;;) {
        size_t start = r->at;
        while (peek(r) >= 0x20 && peek(r) != '"' && peek(r) != '\\') r->at++;
        llm_tpl_str plain = {r->text.ptr + start, r->at - start};
        if (!llm_tpl_put(r->job, &buffer, plain)) return false;
        int c = peek(r);
        if (c != '"' && c != '\\')
            return read_fail(r,
                             c < 0 ? "a string does not end" : "a control character in a string");
        r->at++;
        if (c == '"') break;
        if (!escape_read(r, &buffer)) return false;
    }
    *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    return true;
}

static bool number_read(reader *r, llm_tpl_value *out) {
    char text[400];
    size_t start = r->at, n;
    bool is_real = false;
    if (peek(r) == '-') r->at++;
    if (peek(r) < '0' || peek(r) > '9') return read_fail(r, "no value");
    if (peek(r) == '0' && r->at + 1 < r->text.len && r->text.ptr[r->at + 1] >= '0' &&
        r->text.ptr[r->at + 1] <= '9')
        return read_fail(r, "a number begins with 0");
    while (peek(r) >= '0' && peek(r) <= '9') r->at++;
    if (peek(r) == '.') {
        is_real = true;
        r->at++;
        if (peek(r) < '0' || peek(r) > '9') return read_fail(r, "no digit after the point");
        while (peek(r) >= '0' && peek(r) <= '9') r->at++;
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        is_real = true;
        r->at++;
        if (peek(r) == '+' || peek(r) == '-') r->at++;
        if (peek(r) < '0' || peek(r) > '9') return read_fail(r, "no digit in the exponent");
        while (peek(r) >= '0' && peek(r) <= '9') r->at++;
    }
    n = r->at - start;
    if (n >= sizeof text) return read_fail(r, "a number with too many digits");
    memcpy(text, r->text.ptr + start, n);
    text[n] = '\0';
    errno = 0;
    if (is_real)
        *out = llm_tpl_float(strtod(text, NULL));
    else
        *out = llm_tpl_int(strtoll(text, NULL, 10));
    if (!is_real && errno == ERANGE) return read_fail(r, "a whole number of more than 64 bits");
    return true;
}

static bool array_read(reader *r, llm_tpl_value *out) {
    llm_tpl_value item;
    if (!llm_tpl_list_make(r->job, LLM_TPL_PLAIN, out)) return false;
    r->at++;
    space_skip(r);
    while (peek(r) != ']') {
        if (out->as.list->n > 0) {
            if (peek(r) != ',') return read_fail(r, "',' or ']' is missing");
            r->at++;
        }
        if (!value_read(r, &item) || !llm_tpl_list_push(r->job, out->as.list, item)) return false;
        space_skip(r);
    }
    r->at++;
    return true;
}

static bool object_read(reader *r, llm_tpl_value *out) {
    llm_tpl_value key, value;
    if (!llm_tpl_dict_make(r->job, out)) return false;
    r->at++;
    space_skip(r);
    for (bool is_first = true; peek(r) != '}'; is_first = false) {
        if (!is_first) {
            if (peek(r) != ',') return read_fail(r, "',' or '}' is missing");
            r->at++;
            space_skip(r);
        }
        if (peek(r) != '"') return read_fail(r, "a key is missing");
        if (!string_read(r, &key)) return false;
        space_skip(r);
        if (peek(r) != ':') return read_fail(r, "':' is missing");
        r->at++;
        if (!value_read(r, &value) || !llm_tpl_dict_set(r->job, out->as.dict, key, value))
            return false;
        space_skip(r);
    }
    r->at++;
    return true;
}

static bool word_read(reader *r, const char *word, llm_tpl_value value, llm_tpl_value *out) {
    size_t n = strlen(word);
    if (r->text.len - r->at < n || memcmp(r->text.ptr + r->at, word, n) != 0)
        return read_fail(r, "no value");
    r->at += n;
    *out = value;
    return true;
}

static bool value_read(reader *r, llm_tpl_value *out) {
    bool ok;
    space_skip(r);
    if (r->depth >= NESTED_MAX) return read_fail(r, "nested too deeply");
    r->depth++;
    switch (peek(r)) {
    case '{': ok = object_read(r, out); break;
    case '[': ok = array_read(r, out); break;
    case '"': ok = string_read(r, out); break;
    case 't': ok = word_read(r, "true", llm_tpl_bool(true), out); break;
    case 'f': ok = word_read(r, "false", llm_tpl_bool(false), out); break;
    case 'n': ok = word_read(r, "null", llm_tpl_none(), out); break;
    default: ok = number_read(r, out);
    }
    r->depth--;
    return ok;
}

bool llm_tpl_json_read(llm_tpl_job *job, llm_tpl_str text, llm_tpl_value *out) {
    reader r = {.job = job, .text = text};
    if (!llm_tpl_step(job, 1 + text.len / 64)) return false;
    if (!value_read(&r, out)) return false;
    space_skip(&r);
    return r.at == text.len || read_fail(&r, "something follows the value");
}

/* ---- Writing ---- */

typedef struct writer {
    llm_tpl_job *job;
    const llm_tpl_json_style *style;
    llm_tpl_buffer buffer;
    int depth;
} writer;

static bool value_write(writer *w, const llm_tpl_value *value);

static bool chars_write(writer *w, const char *text) {
    return llm_tpl_put_chars(w->job, &w->buffer, text);
}

static bool code_escape(writer *w, uint32_t code) {
    char text[16];
    if (code >= 0x10000)
        snprintf(text, sizeof text, "\\u%04" PRIx32 "\\u%04" PRIx32,
                 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
    else
        snprintf(text, sizeof text, "\\u%04" PRIx32, code);
    return chars_write(w, text);
}

static bool string_write(writer *w, llm_tpl_str text) {
    static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
    bool ok = chars_write(w, "\"");
    for (size_t at = 0; at < text.len && ok;) {
        uint32_t code;
        size_t n = llm_tpl_char_read(text, at, &code);
        const char *found = code > 0 && code < 0x80 ? strchr(from, (int)code) : NULL;
        if (found != NULL) {
            char escaped[3] = {'\\', to[found - from], '\0'};
            ok = chars_write(w, escaped);
        } else if (code < 0x20 || (code >= 0x80 && w->style->is_ascii)) {
            ok = code_escape(w, code);
        } else {
            ok = llm_tpl_put(w->job, &w->buffer, (llm_tpl_str){text.ptr + at, n});
        }
        at += n;
    }
    return ok && chars_write(w, "\"");
}

static bool line_begin(writer *w) {
    if (w->style->indent.ptr == NULL) return true;
    bool ok = chars_write(w, "\n");
    for (int i = 0; i < w->depth && ok; i++) ok = llm_tpl_put(w->job, &w->buffer, w->style->indent);
    return ok;
}

static bool item_begin(writer *w, size_t i) {
    return (i == 0 || llm_tpl_put(w->job, &w->buffer, w->style->item)) && line_begin(w);
}

static bool array_write(writer *w, const llm_tpl_list *list) {
    if (list->n == 0) return chars_write(w, "[]");
    bool ok = chars_write(w, "[");
    w->depth++;
    for (size_t i = 0; i < list->n && ok; i++)
        ok = item_begin(w, i) && value_write(w, &list->items[i]);
    w->depth--;
    return ok && line_begin(w) && chars_write(w, "]");
}

/* A key that is not a string is written as the text of its value. */
static bool key_write(writer *w, const llm_tpl_value *key) {
    if (key->kind == LLM_TPL_STRING) return string_write(w, key->as.text);
    return chars_write(w, "\"") && value_write(w, key) && chars_write(w, "\"");
}

static int pair_order(const void *a, const void *b) {
    const llm_tpl_value *x = &((const llm_tpl_pair *)a)->key, *y = &((const llm_tpl_pair *)b)->key;
    if (x->kind != LLM_TPL_STRING || y->kind != LLM_TPL_STRING) {
        double p = llm_tpl_as_real(x), q = llm_tpl_as_real(y);
        return (p > q) - (p < q);
    }
    size_t n = x->as.text.len < y->as.text.len ? x->as.text.len : y->as.text.len;
    int order = n > 0 ? memcmp(x->as.text.ptr, y->as.text.ptr, n) : 0;
    return order != 0 ? order
                      : (x->as.text.len > y->as.text.len) - (x->as.text.len < y->as.text.len);
}

static bool pairs_sort(writer *w, const llm_tpl_dict *dict, llm_tpl_pair **out) {
    llm_tpl_pair *pairs = llm_tpl_alloc(w->job, dict->n, sizeof *pairs);
    if (pairs == NULL) return false;
    memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
    for (size_t i = 0; i < dict->n; i++) {
        bool is_text = pairs[i].key.kind == LLM_TPL_STRING;
        if (is_text != (pairs[0].key.kind == LLM_TPL_STRING) ||
            (!is_text && !llm_tpl_is_number(&pairs[i].key)))
            return llm_tpl_fail(w->job, TDM_INVALID_ARGUMENT,
                                "tojson: keys of unlike kinds have no order");
    }
    qsort(pairs, dict->n, sizeof *pairs, pair_order);
    *out = pairs;
    return true;
}

static bool object_write(writer *w, const llm_tpl_dict *dict) {
    llm_tpl_pair *pairs = dict->pairs;
    if (dict->n == 0) return chars_write(w, "{}");
    if (w->style->is_sorted && !pairs_sort(w, dict, &pairs)) return false;
    bool ok = chars_write(w, "{");
    w->depth++;
    for (size_t i = 0; i < dict->n && ok; i++)
        ok = item_begin(w, i) && key_write(w, &pairs[i].key) &&
             llm_tpl_put(w->job, &w->buffer, w->style->key) && value_write(w, &pairs[i].value);
    w->depth--;
    return ok && line_begin(w) && chars_write(w, "}");
}

static bool float_write(writer *w, double real) {
    if (isnan(real)) return chars_write(w, "NaN");
    if (isinf(real)) return chars_write(w, real > 0 ? "Infinity" : "-Infinity");
    return llm_tpl_put_float(w->job, &w->buffer, real);
}

static bool value_write(writer *w, const llm_tpl_value *value) {
    if (w->depth >= NESTED_MAX)
        return llm_tpl_fail(w->job, TDM_OUT_OF_RANGE, "tojson: nested too deeply");
    switch (value->kind) {
    case LLM_TPL_NONE: return chars_write(w, "null");
    case LLM_TPL_BOOL: return chars_write(w, value->as.truth ? "true" : "false");
    case LLM_TPL_INT: return llm_tpl_put_value(w->job, &w->buffer, value);
    case LLM_TPL_FLOAT: return float_write(w, value->as.real);
    case LLM_TPL_STRING: return string_write(w, value->as.text);
    case LLM_TPL_DICT: return object_write(w, value->as.dict);
    case LLM_TPL_LIST:
        if (value->as.list->flavor != LLM_TPL_LAZY) return array_write(w, value->as.list);
        break;
    default: break;
    }
    return llm_tpl_fail(w->job, TDM_INVALID_ARGUMENT,
                        "tojson: a value of kind %s cannot be written", llm_tpl_kind_name(value));
}

bool llm_tpl_json_write(llm_tpl_job *job, const llm_tpl_json_style *style,
                        const llm_tpl_value *value, llm_tpl_str *out) {
    writer w = {.job = job, .style = style};
    if (!value_write(&w, value)) return false;
    *out = llm_tpl_buffer_str(&w.buffer);
    return true;
}
