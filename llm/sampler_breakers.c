/* SPDX-License-Identifier: MIT
 *
 * sampler_breakers.c: see sampler_breakers.h. The texts are a trie, in which each node also has the
 * node of its longest proper end that is a beginning of a text. So all texts are found in one pass
 * over the bytes (Aho and Corasick, "Efficient String Matching", 1975).
 */
#include "llm/sampler_breakers.h"

#include <stdlib.h>
#include <string.h>

/* A node is a beginning of a text; a state is the number of one. */
typedef struct breaker_node {
    int32_t child;   /* the first; 0 = none: the root is no child of a node */
    int32_t sibling; /* the next child of the same parent; 0 = none */
    int32_t shorter; /* the longest proper end of this node that is a node too */
    int32_t ended;   /* bytes of the shortest text that ends here; 0 = none */
    unsigned char byte;
} breaker_node;

struct llm_sampler_breakers {
    const llm_vocab *vocab;
    int32_t first[256]; /* the root's children by byte; 0 = none */
    int32_t n_node;     /* at least 1: the root, which is 0 */
    breaker_node nodes[];
};

/* The child of a node by that byte; 0 = none. */
static int32_t child_find(const llm_sampler_breakers *b, int32_t node, unsigned char byte) {
    if (node == 0) return b->first[byte];
    int32_t child = b->nodes[node].child;
    while (child != 0 && b->nodes[child].byte != byte) child = b->nodes[child].sibling;
    return child;
}

static int32_t state_next(const llm_sampler_breakers *b, int32_t state, unsigned char byte) {
    int32_t next = child_find(b, state, byte);
    while (next == 0 && state != 0) {
        state = b->nodes[state].shorter;
        next = child_find(b, state, byte);
    }
    return next;
}

static void text_add(llm_sampler_breakers *b, const char *text) {
    int32_t node = 0, len = 0;
    for (; text[len] != '\0'; len++) {
        const unsigned char byte = (unsigned char)text[len];
        int32_t child = child_find(b, node, byte);
        if (child == 0) {
            child = b->n_node++;
            b->nodes[child] = (breaker_node){.sibling = b->nodes[node].child, .byte = byte};
            b->nodes[node].child = child;
            if (node == 0) b->first[byte] = child;
        }
        node = child;
    }
    b->nodes[node].ended = len;
}

/* Sets `shorter`, and `ended` where a shorter text ends in a node. Shorter nodes come first, since
 * a node needs those of its ends. queue: [n_node] scratch. */
static void ends_link(llm_sampler_breakers *b, int32_t *queue) {
    int32_t n = 1;
    queue[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t parent = queue[i];
        for (int32_t child = b->nodes[parent].child; child != 0; child = b->nodes[child].sibling) {
            breaker_node *node = &b->nodes[child];
            if (parent != 0) node->shorter = state_next(b, b->nodes[parent].shorter, node->byte);
            if (b->nodes[node->shorter].ended != 0) node->ended = b->nodes[node->shorter].ended;
            queue[n++] = child;
        }
    }
}

static size_t size_of(int32_t n_node) {
    return sizeof(llm_sampler_breakers) + (size_t)n_node * sizeof(breaker_node);
}

tdm_status llm_sampler_breakers_create(const llm_vocab *vocab, const char *const *texts,
                                       size_t n_text, llm_sampler_breakers **out, tdm_error *err) {
    int32_t n_most = 1;
    *out = NULL;
    if (n_text > LLM_BREAKER_MAX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%zu breakers of DRY: there may be at most %d",
                        n_text, LLM_BREAKER_MAX);
    for (size_t i = 0; i < n_text; i++) {
        const size_t len = strlen(texts[i]);
        if (len > LLM_BREAKER_LEN_MAX)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "a breaker of DRY has %zu bytes: it may have at most %d", len,
                            LLM_BREAKER_LEN_MAX);
        n_most += (int32_t)len;
    }
    llm_sampler_breakers *b = calloc(1, size_of(n_most));
    int32_t *queue = calloc((size_t)n_most, sizeof *queue);
    if (b == NULL || queue == NULL) {
        free(b);
        free(queue);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the breakers of DRY");
    }
    b->vocab = vocab;
    b->n_node = 1;
    for (size_t i = 0; i < n_text; i++)
        if (texts[i][0] != '\0') text_add(b, texts[i]);
    ends_link(b, queue);
    free(queue);
    *out = b;
    return TDM_OK;
}

llm_sampler_breakers *llm_sampler_breakers_copy(const llm_sampler_breakers *b) {
    llm_sampler_breakers *copy = calloc(1, size_of(b->n_node));
    if (copy != NULL) memcpy(copy, b, size_of(b->n_node));
    return copy;
}

void llm_sampler_breakers_destroy(llm_sampler_breakers *b) {
    free(b);
}

llm_breaker_step llm_sampler_breakers_read(const llm_sampler_breakers *b, int32_t state,
                                           int32_t token) {
    const llm_vocab_str text = llm_vocab_token_bytes(b->vocab, token);
    llm_breaker_step step = {.state = state};
    for (size_t i = 0; i < text.len; i++) {
        step.state = state_next(b, step.state, (unsigned char)text.ptr[i]);
        const size_t ended = (size_t)b->nodes[step.state].ended;
        step.ends = step.ends || ended > 0;
        step.is_whole = step.is_whole || (ended > 0 && ended <= i + 1);
    }
    return step;
}
