/* SPDX-License-Identifier: MIT
 *
 * json_scan.c: see json_scan.h.
 */
#include "server/reply/json_scan.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "server/json/json_load.h"

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

size_t json_scan_push(json_scan *scan, const char *text, size_t len) {
    size_t i = 0;
    for (; i < len && !scan->is_done; i++) {
        const char c = text[i];
        if (scan->is_string) {
            if (scan->is_escape)
                scan->is_escape = false;
            else if (c == '\\')
                scan->is_escape = true;
            else if (c == '"')
                scan->is_string = false;
            scan->is_done = !scan->is_string && scan->depth == 0;
        } else if (scan->is_scalar) {
            if (is_space(c) || strchr(",}]<", c) != NULL) {
                scan->is_done = true;
                return i;
            }
        } else if (c == '"') {
            scan->is_string = scan->has_begun = true;
        } else if (c == '{' || c == '[') {
            scan->depth++;
            scan->has_begun = true;
        } else if (c == '}' || c == ']') {
            if (scan->depth > 0) scan->depth--;
            scan->is_done = scan->depth == 0;
            if (!scan->has_begun) return i; /* there is no value */
        } else if (!scan->has_begun && !is_space(c)) {
            scan->is_scalar = scan->has_begun = true;
        }
    }
    return i;
}

void json_scan_space(const char *text, size_t len, size_t *at) {
    while (*at < len && is_space(text[*at])) ++*at;
}

reply_scan json_scan_skip(const char *text, size_t len, size_t *at) {
    json_scan scan = {0};
    const size_t n = json_scan_push(&scan, text + *at, len - *at);
    if (!scan.is_done) return REPLY_SCAN_MORE;
    if (!scan.has_begun) return REPLY_SCAN_FAIL;
    *at += n;
    return REPLY_SCAN_OK;
}

reply_scan json_scan_string(const char *text, size_t len, size_t *at, size_t *from, size_t *n) {
    if (*at >= len) return REPLY_SCAN_MORE;
    if (text[*at] != '"') return REPLY_SCAN_FAIL;
    const size_t begin = *at + 1;
    const reply_scan result = json_scan_skip(text, len, at);
    if (result != REPLY_SCAN_OK) return result;
    *from = begin;
    *n = *at - 1 - begin;
    return REPLY_SCAN_OK;
}

bool json_scan_is_value(const char *text, size_t len) {
    json_t *value =
        len < (size_t)1 << 20 ? server_json_load(text, len, JSON_DECODE_ANY, NULL) : NULL;
    const bool is_value = value != NULL;
    json_decref(value);
    return is_value;
}

void json_scan_quote(reply_piece_fn take, void *user, const char *text, size_t len) {
    size_t from = 0;
    take(user, REPLY_ARGUMENTS, "\"", 1);
    for (size_t i = 0; i <= len; i++) {
        char escape[8];
        if (i < len && (unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\')
            continue;
        if (i > from) take(user, REPLY_ARGUMENTS, text + from, i - from);
        from = i + 1;
        if (i == len) break;
        const int n = snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)text[i]);
        take(user, REPLY_ARGUMENTS, escape, (size_t)n);
    }
    take(user, REPLY_ARGUMENTS, "\"", 1);
}
