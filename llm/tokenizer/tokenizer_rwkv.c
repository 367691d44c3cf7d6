/* SPDX-License-Identifier: MIT
 *
 * tokenizer_rwkv.c: RWKV's tokenizer: from the left, the longest token each time. Tokens are bytes,
 * written in the file with escapes. A byte with which no token begins becomes the unknown token;
 * without one, nothing.
 */
#include "llm/tokenizer/tokenizer_kind.h"

tdm_status llm_rwkv_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                           tdm_error *err) {
    tdm_status status = TDM_OK;
    for (size_t at = 0; at < len && status == TDM_OK;) {
        size_t size;
        int32_t id = llm_piece_longest(&vocab->index, text + at, len - at, &size);
        if (id < 0) {
            id = vocab->unk_id;
            size = 1;
        }
        if (id != LLM_TOKEN_NONE) status = llm_id_list_add(ids, id, err);
        at += size;
    }
    return status;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

size_t llm_rwkv_unescape(const char *text, size_t size, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < size; ++i) {
        if (text[i] != '\\' || i + 1 == size) {
            out[n++] = text[i];
            continue;
        }
        const char c = text[++i];
        if (c == 'x' && i + 2 < size && hex_value(text[i + 1]) >= 0 &&
            hex_value(text[i + 2]) >= 0) {
            out[n++] = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        } else {
            out[n++] = c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
        }
    }
    return n;
}
