/* SPDX-License-Identifier: MIT
 *
 * call.c: see call.h.
 */
#include "server/reply/call.h"

#include <string.h>

/* Moves *at past `mark` where the text there begins with it. REPLY_SCAN_MORE: the text ends within
 * the mark. */
static reply_scan mark_read(const char *text, size_t len, size_t *at, const char *mark) {
    const size_t n = strlen(mark), have = len - *at < n ? len - *at : n;
    if (memcmp(text + *at, mark, have) != 0) return REPLY_SCAN_FAIL;
    if (have < n) return REPLY_SCAN_MORE;
    *at += n;
    return REPLY_SCAN_OK;
}

/* The first place of `mark` at or behind `from`; len = there is none. */
static size_t mark_find(const char *text, size_t len, size_t from, const char *mark) {
    const char *found = from < len ? memmem(text + from, len - from, mark, strlen(mark)) : NULL;
    return found != NULL ? (size_t)(found - text) : len;
}

static bool is_text(const char *text, size_t n, const char *word) {
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

/* Reads {"name": N, "arguments": or "parameters": ...}, in any order, with other members. Where the
 * name comes first, the head ends at the arguments' value; else it is the whole object. */
static reply_scan object_read(const char *text, size_t len, size_t at, reply_call_head *head) {
    bool has_name = false, has_arguments = false;
    json_scan_space(text, len, &at);
    if (at == len) return REPLY_SCAN_MORE;
    if (text[at++] != '{') return REPLY_SCAN_FAIL;
    for (;;) {
        size_t key = 0, n_key = 0;
        json_scan_space(text, len, &at);
        if (at < len && text[at] == ',') at++;
        json_scan_space(text, len, &at);
        if (at == len) return REPLY_SCAN_MORE;
        if (text[at] == '}') break;
        reply_scan result = json_scan_string(text, len, &at, &key, &n_key);
        if (result != REPLY_SCAN_OK) return result;
        json_scan_space(text, len, &at);
        if (at == len) return REPLY_SCAN_MORE;
        if (text[at++] != ':') return REPLY_SCAN_FAIL;
        json_scan_space(text, len, &at);
        if (at == len) return REPLY_SCAN_MORE;
        if (is_text(text + key, n_key, "name")) {
            result = json_scan_string(text, len, &at, &head->name_at, &head->name_len);
            if (result != REPLY_SCAN_OK) return result;
            has_name = true;
            continue;
        }
        const bool is_arguments =
            is_text(text + key, n_key, "arguments") || is_text(text + key, n_key, "parameters");
        if (is_arguments && has_name) {
            head->form = REPLY_FORM_VALUE;
            head->is_in_object = true;
            head->end = at;
            break;
        }
        const size_t from = at;
        result = json_scan_skip(text, len, &at);
        if (result != REPLY_SCAN_OK) return result;
        if (!is_arguments) continue;
        has_arguments = true;
        head->arguments_at = from;
        head->arguments_len = at - from;
    }
    if (!has_name || head->name_len == 0 ||
        memchr(text + head->name_at, '\\', head->name_len) != NULL)
        return REPLY_SCAN_FAIL;
    if (head->form != REPLY_FORM_VALUE) {
        head->form = REPLY_FORM_WHOLE;
        if (!has_arguments) head->arguments_len = 0;
        head->end = at + 1;
    }
    return REPLY_SCAN_OK;
}

/* <tool_call>, then the JSON of Hermes, <function=NAME> of Qwen3-Coder, or the name of GLM. Models
 * of the other two families write the JSON of Hermes at times, so it is read in all three. */
static reply_scan tagged_read(reply_family family, const char *text, size_t len, bool is_ended,
                              reply_call_head *head) {
    size_t at = 0;
    reply_scan result = mark_read(text, len, &at, "<tool_call>");
    if (result == REPLY_SCAN_MORE) return result;
    json_scan_space(text, len, &at);
    if (at == len) return REPLY_SCAN_MORE;
    if (text[at] == '{' || family == REPLY_HERMES) return object_read(text, len, at, head);
    if (result == REPLY_SCAN_FAIL) return result;
    if (family == REPLY_QWEN_XML) {
        result = mark_read(text, len, &at, "<function=");
        if (result != REPLY_SCAN_OK) return result;
        const size_t end = mark_find(text, len, at, ">");
        if (end == len) return REPLY_SCAN_MORE;
        head->name_at = at;
        head->name_len = end - at;
        head->end = end + 1;
    } else {
        size_t end = at;
        while (end < len && strchr("\r\n<", text[end]) == NULL) end++;
        if (end == len && !is_ended) return REPLY_SCAN_MORE;
        head->name_at = at;
        head->end = end;
        while (end > at && text[end - 1] == ' ') end--;
        head->name_len = end - at;
    }
    head->form = REPLY_FORM_PARAMETERS;
    return head->name_len > 0 ? REPLY_SCAN_OK : REPLY_SCAN_FAIL;
}

/* <|python_tag|> or nothing, then the object. */
static reply_scan llama_read(const char *text, size_t len, reply_call_head *head) {
    size_t at = 0;
    if (mark_read(text, len, &at, "<|python_tag|>") == REPLY_SCAN_MORE && len > 0 && text[0] == '<')
        return REPLY_SCAN_MORE;
    return object_read(text, len, at, head);
}

/* [TOOL_CALLS], then an array of objects, or NAME[CALL_ID]ID[ARGS]{...}. The second object of an
 * array and those after it have no mark. */
static reply_scan mistral_read(const char *text, size_t len, reply_call_head *head) {
    size_t at = 0;
    if (mark_read(text, len, &at, "[TOOL_CALLS]") == REPLY_SCAN_FAIL)
        return object_read(text, len, 0, head);
    json_scan_space(text, len, &at);
    if (at >= len) return REPLY_SCAN_MORE;
    if (text[at] == '[' || text[at] == '{')
        return object_read(text, len, at + (text[at] == '['), head);
    const size_t brace = mark_find(text, len, at, "{"), mark = mark_find(text, len, at, "[");
    if (brace == len) return REPLY_SCAN_MORE;
    size_t end = mark < brace ? mark : brace;
    head->end = brace;
    head->name_at = at;
    while (end > at && strchr(" \r\n", text[end - 1]) != NULL) end--;
    head->name_len = end - at;
    head->form = REPLY_FORM_VALUE;
    return end > at ? REPLY_SCAN_OK : REPLY_SCAN_FAIL;
}

/* V3 and R1: function<sep>NAME, a line end, and the object in a code fence. V3.1:
 * NAME<sep>{...}. */
static reply_scan deepseek_read(const char *text, size_t len, reply_call_head *head) {
    const size_t sep = mark_find(text, len, 0, REPLY_DEEPSEEK_SEP);
    if (sep == len) return REPLY_SCAN_MORE;
    size_t at = mark_find(text, sep, 1, ">"); /* of the mark that opens the call */
    if (at == sep) return REPLY_SCAN_FAIL;
    at++;
    const size_t behind = sep + strlen(REPLY_DEEPSEEK_SEP);
    const size_t brace = mark_find(text, len, behind, "{");
    if (mark_find(text, len, behind, REPLY_DEEPSEEK_CALL_CLOSE) < brace)
        return REPLY_SCAN_FAIL; /* no arguments */
    if (brace == len) return REPLY_SCAN_MORE;
    size_t end = sep;
    if (is_text(text + at, sep - at, "function")) {
        at = behind;
        end = mark_find(text, brace, at, "\n");
    }
    while (end > at && strchr(" \r\n`", text[end - 1]) != NULL) end--;
    head->name_at = at;
    head->name_len = end - at;
    head->end = brace;
    head->form = REPLY_FORM_VALUE;
    return end > at ? REPLY_SCAN_OK : REPLY_SCAN_FAIL;
}

reply_scan reply_call_head_read(reply_family family, const char *text, size_t len, bool is_ended,
                                reply_call_head *head) {
    switch (family) {
    case REPLY_HERMES:
    case REPLY_QWEN_XML:
    case REPLY_GLM: return tagged_read(family, text, len, is_ended, head);
    case REPLY_LLAMA: return llama_read(text, len, head);
    case REPLY_MISTRAL: return mistral_read(text, len, head);
    case REPLY_DEEPSEEK: return deepseek_read(text, len, head);
    default: return REPLY_SCAN_FAIL;
    }
}

/* ---- Parameters ---- */

/* Reads `open`, a name and `close` at *at, and moves *at past them. */
static reply_scan name_read(const char *text, size_t len, size_t *at, const char *open,
                            const char *close, reply_parameter *out) {
    reply_scan result = mark_read(text, len, at, open);
    if (result != REPLY_SCAN_OK) return result;
    const size_t end = mark_find(text, len, *at, close);
    if (end == len) return REPLY_SCAN_MORE;
    out->name_at = *at;
    out->name_len = end - *at;
    *at = end + strlen(close);
    return REPLY_SCAN_OK;
}

reply_scan reply_parameter_read(reply_family family, const char *text, size_t len, size_t from,
                                bool is_ended, reply_parameter *out) {
    const bool is_glm = family == REPLY_GLM;
    const char *close = is_glm ? "</arg_value>" : "</parameter>";
    size_t at = 0;
    json_scan_space(text, len, &at);
    reply_scan result = is_glm ? name_read(text, len, &at, "<arg_key>", "</arg_key>", out)
                               : name_read(text, len, &at, "<parameter=", ">", out);
    if (is_glm && result == REPLY_SCAN_OK) {
        json_scan_space(text, len, &at);
        result = mark_read(text, len, &at, "<arg_value>");
    }
    if (result == REPLY_SCAN_OK) {
        const size_t end = mark_find(text, len, from > at ? from : at, close);
        if (end == len) {
            const size_t n_close = strlen(close);
            out->n_scanned = len > n_close ? len - n_close : 0;
            result = REPLY_SCAN_MORE;
        } else {
            out->value_at = at;
            out->value_len = end - at;
            out->end = end + strlen(close);
        }
    }
    if (result == REPLY_SCAN_MORE) return is_ended ? REPLY_SCAN_FAIL : REPLY_SCAN_MORE;
    if (result == REPLY_SCAN_FAIL || is_glm) return result;
    /* one line end after the opening mark and one before the closing mark are no part of the
     * value */
    if (out->value_len > 0 && text[out->value_at] == '\n') {
        out->value_at++;
        out->value_len--;
    }
    if (out->value_len > 0 && text[out->value_at + out->value_len - 1] == '\n') out->value_len--;
    return REPLY_SCAN_OK;
}
