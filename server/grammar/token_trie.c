/* SPDX-License-Identifier: MIT
 *
 * token_trie.c: see token_trie.h.
 */
#include "server/grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/utf8.h"
#include "server/grammar/array.h"

/* Bytes of a token. Longer ones are never allowed; no vocabulary in use has any. */
#define DEPTH_MAX 4096

typedef struct entry {
    const char *bytes;
    int32_t len, token;
} entry;

llm_vocab_str grammar_token_bytes(const grammar_vocab *v, int32_t token) {
    const llm_vocab_str none = {NULL, 0};
    switch (llm_vocab_token_type(v->vocab, token)) {
    case LLM_TOKEN_CONTROL:
    case LLM_TOKEN_UNKNOWN:
    case LLM_TOKEN_UNUSED:
    case LLM_TOKEN_UNDEFINED: return none;
    case LLM_TOKEN_NORMAL:
    case LLM_TOKEN_USER_DEFINED:
    case LLM_TOKEN_BYTE: break;
    }
    const llm_vocab_str bytes = llm_vocab_token_bytes(v->vocab, token);
    return bytes.len <= DEPTH_MAX ? bytes : none;
}

/* How many whole plain code points a text begins with; *len_out is how many bytes these have. */
static int32_t plain_count(llm_vocab_str text, size_t *len_out) {
    int32_t n = 0;
    size_t at = 0;
    for (size_t size; at < text.len; at += size, n++)
        if (!grammar_is_plain((uint8_t)text.ptr[at]) ||
            llm_utf8_begin(text.ptr + at, text.len - at, &size) != LLM_UTF8_WHOLE)
            break;
    *len_out = at;
    return n;
}

static int entry_order(const void *a, const void *b) {
    const entry *x = a, *y = b;
    const int32_t n = x->len < y->len ? x->len : y->len;
    const int order = memcmp(x->bytes, y->bytes, (size_t)n);
    if (order != 0) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

/* How many bytes two tokens share at the beginning. */
static int32_t shared_prefix(const entry *a, const entry *b) {
    const int32_t n = a->len < b->len ? a->len : b->len;
    int32_t i = 0;
    while (i < n && a->bytes[i] == b->bytes[i]) i++;
    return i;
}

/* Builds the trie of entries[0..n), which it sorts; tokens with the same bytes are linked in
 * `twin`. `path` [DEPTH_MAX] is scratch. False without memory. */
static bool trie_build(grammar_vocab *v, grammar_trie *trie, entry *entries, int32_t n,
                       int32_t *twin, int32_t *path) {
    trie->twin = twin;
    if (n > 0) qsort(entries, (size_t)n, sizeof *entries, entry_order);
    int64_t n_node = 0;
    for (int32_t i = 0; i < n; i++)
        n_node += entries[i].len - (i > 0 ? shared_prefix(&entries[i - 1], &entries[i]) : 0);
    if (n_node > INT32_MAX) return false;
    trie->nodes = malloc((size_t)(n_node + 1) * sizeof *trie->nodes);
    if (trie->nodes == NULL) return false;
    int32_t depth = 0; /* path[0..depth) are the nodes of the last token: their subtrees may grow */
    for (int32_t i = 0; i < n; i++) {
        const entry *e = &entries[i];
        const int32_t shared = i > 0 ? shared_prefix(&entries[i - 1], e) : 0;
        for (; depth > shared; depth--)
            trie->nodes[path[depth - 1]].skip = trie->n - path[depth - 1];
        for (; depth < e->len; depth++) {
            trie->nodes[trie->n] = (grammar_trie_node){
                .token = -1, .depth = (int16_t)depth, .byte = (uint8_t)e->bytes[depth]};
            path[depth] = trie->n++;
        }
        int32_t *place = &trie->nodes[path[depth - 1]].token;
        while (*place >= 0) place = &twin[*place];
        *place = e->token;
        if (e->len > v->depth_max) v->depth_max = (int16_t)e->len;
    }
    for (; depth > 0; depth--) trie->nodes[path[depth - 1]].skip = trie->n - path[depth - 1];
    return true;
}

static void bit_set(uint64_t *mask, int32_t i) {
    mask[i / 64] |= (uint64_t)1 << (i % 64);
}

static bool long_add(grammar_vocab *v, int32_t count, int32_t token) {
    if (!grammar_reserve((void **)&v->long_plain, &v->long_capacity, (int64_t)v->n_long + 1,
                         sizeof *v->long_plain))
        return false;
    v->long_plain[v->n_long].count = count;
    v->long_plain[v->n_long++].token = token;
    return true;
}

/* Builds rest[k], or, for k = GRAMMAR_PLAIN_MAX + 1, `late`, from others[0..n), the tokens of
 * `other`. count_of [n_token]: plain code points at the beginning. `scratch` [n] and `path` are
 * scratch. */
static bool rest_build(grammar_vocab *v, int32_t k, entry *scratch, const entry *others, int32_t n,
                       const uint16_t *count_of, int32_t *path) {
    const bool is_late = k > GRAMMAR_PLAIN_MAX;
    int32_t n_rest = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t count = count_of[others[i].token];
        entry e = others[i];
        if (is_late ? count < k : count != k) continue;
        for (int32_t c = 0; c < k && !is_late; c++) {
            size_t size;
            llm_utf8_begin(e.bytes, (size_t)e.len, &size);
            e.bytes += size;
            e.len -= (int32_t)size;
        }
        scratch[n_rest++] = e;
    }
    return trie_build(v, is_late ? &v->late : &v->rest[k], scratch, n_rest, v->twin + v->n_token,
                      path);
}

static bool vocab_fill(grammar_vocab *v) {
    const size_t n = (size_t)v->n_token;
    entry *entries = malloc(2 * n * sizeof *entries);
    uint16_t *count_of = malloc(n * sizeof *count_of); /* of plain code points at the beginning */
    int32_t *path = malloc(DEPTH_MAX * sizeof *path);
    bool is_complete = entries != NULL && path != NULL && count_of != NULL;
    int32_t n_plain = 0, n_other = 0;
    for (int32_t t = 0; t < v->n_token && is_complete; t++) {
        v->twin[t] = v->twin[n + (size_t)t] = -1;
        if (t >= llm_vocab_n_token(v->vocab)) continue;
        bit_set(v->known, t);
        if (llm_vocab_ends_generation(v->vocab, t)) {
            bit_set(v->ends, t);
            continue;
        }
        const llm_vocab_str bytes = grammar_token_bytes(v, t);
        if (bytes.len == 0) continue;
        const entry e = {bytes.ptr, (int32_t)bytes.len, t};
        size_t plain_len;
        const int32_t count = plain_count(bytes, &plain_len);
        count_of[t] = (uint16_t)count;
        if (count > v->plain_max) v->plain_max = count;
        if (plain_len < bytes.len) {
            entries[n + (size_t)n_other++] = e;
            continue;
        }
        entries[n_plain++] = e;
        if (count > GRAMMAR_PLAIN_MAX && !long_add(v, count, t)) is_complete = false;
        for (int32_t i = count - 1 < GRAMMAR_PLAIN_MAX ? count - 1 : GRAMMAR_PLAIN_MAX;
             i <= GRAMMAR_PLAIN_MAX; i++)
            bit_set(v->plain_up + (size_t)i * v->n_word, t);
    }
    is_complete = is_complete && trie_build(v, &v->plain, entries, n_plain, v->twin, path) &&
                  trie_build(v, &v->other, entries + n, n_other, v->twin, path);
    for (int32_t k = 0; k <= GRAMMAR_PLAIN_MAX + 1 && is_complete; k++)
        is_complete = rest_build(v, k, entries, entries + n, n_other, count_of, path);
    free(count_of);
    free(entries);
    free(path);
    return is_complete;
}

tdm_status grammar_vocab_create(const llm_vocab *vocab, int32_t n_token, grammar_vocab **out,
                                tdm_error *err) {
    *out = NULL;
    if (n_token < 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "grammar: a vocabulary of %d tokens", n_token);
    const size_t n_word = ((size_t)n_token + 63) / 64;
    grammar_vocab *v = calloc(1, sizeof *v);
    bool is_complete = v != NULL;
    if (is_complete) {
        v->vocab = vocab;
        v->n_token = n_token;
        v->n_word = n_word;
        v->twin = malloc(2 * (size_t)n_token * sizeof *v->twin);
        v->plain_up = calloc((GRAMMAR_PLAIN_MAX + 1) * n_word, sizeof *v->plain_up);
        v->ends = calloc(n_word, sizeof *v->ends);
        v->known = calloc(n_word, sizeof *v->known);
        is_complete = v->twin != NULL && v->plain_up != NULL && v->ends != NULL &&
                      v->known != NULL && vocab_fill(v);
    }
    if (!is_complete) {
        grammar_vocab_destroy(v);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "grammar: no memory for a vocabulary of %d tokens", n_token);
    }
    *out = v;
    return TDM_OK;
}

void grammar_vocab_destroy(grammar_vocab *v) {
    if (v == NULL) return;
    free(v->plain.nodes);
    free(v->other.nodes);
    free(v->late.nodes);
    for (int32_t k = 0; k <= GRAMMAR_PLAIN_MAX; k++) free(v->rest[k].nodes);
    free(v->twin);
    free(v->plain_up);
    free(v->long_plain);
    free(v->ends);
    free(v->known);
    free(v);
}

size_t grammar_vocab_mask_words(const grammar_vocab *v) {
    return v->n_word;
}
