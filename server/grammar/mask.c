/* SPDX-License-Identifier: MIT
 *
 * mask.c: see mask.h. A walk goes through a trie depth first, and leaves a subtree where the grammar
 * takes none of its bytes. Where all plain text up to some length is allowed, as in a string, plain
 * tokens are not walked: there are masks of them by length.
 */
#include "server/grammar/mask.h"

#include <string.h>

static void bit_set(uint64_t *mask, int32_t i) {
    mask[i / 64] |= (uint64_t)1 << (i % 64);
}

static void mask_add(uint64_t *mask, const uint64_t *other, size_t n) {
    for (size_t i = 0; i < n; i++) mask[i] |= other[i];
}

static bool walk(grammar_matcher *m, const grammar_vocab *v, const grammar_trie *trie,
                 int32_t state, int32_t *path, uint64_t *mask) {
    path[0] = state;
    for (int32_t i = 0; i < trie->n;) {
        const grammar_trie_node *node = &trie->nodes[i];
        const int32_t next = grammar_matcher_step(m, path[node->depth], node->byte);
        if (next == GRAMMAR_DEAD) {
            i += node->skip;
            continue;
        }
        if (next < 0) return false;
        path[node->depth + 1] = next;
        for (int32_t t = node->token; t >= 0; t = v->twin[t]) bit_set(mask, t);
        i++;
    }
    return true;
}

/* The nodes TOKEN of a state. */
static void tokens_add(const grammar_matcher *m, const grammar_vocab *v, int32_t state,
                       uint64_t *mask) {
    const grammar_set *set = &m->sets[state];
    for (int32_t i = 0; i < set->n; i++) {
        const grammar_node *node = &m->program->nodes[m->places[set->first + i].node];
        if (node->op != GRAMMAR_TOKEN) continue;
        if (!node->is_negated) {
            if (node->first < v->n_token) bit_set(mask, node->first);
            continue;
        }
        for (size_t w = 0; w < v->n_word; w++) {
            const bool has_it = (size_t)node->first / 64 == w;
            const uint64_t barred = has_it ? (uint64_t)1 << (node->first % 64) : 0;
            mask[w] |= v->known[w] & ~v->ends[w] & ~barred;
        }
    }
}

/* Adds the plain tokens, by their lengths where that says it all. */
static bool plain_add(grammar_matcher *m, const grammar_vocab *v, int32_t state, int32_t *path,
                      uint64_t *mask) {
    int32_t n = 0; /* any plain text of n code points is allowed, and no longer one */
    for (int32_t at = state; n < v->plain_max; n++) {
        bool is_mixed;
        const int32_t next = grammar_matcher_plain(m, at, &is_mixed);
        if (next < 0) return false;
        if (is_mixed) return walk(m, v, &v->plain, state, path, mask);
        if (next == GRAMMAR_DEAD) break;
        if (next == at) n = v->plain_max - 1;
        at = next;
    }
    if (n == 0) return true;
    const int32_t row = n >= v->plain_max       ? GRAMMAR_PLAIN_MAX
                        : n > GRAMMAR_PLAIN_MAX ? GRAMMAR_PLAIN_MAX - 1
                                                : n - 1;
    mask_add(mask, v->plain_up + (size_t)row * v->n_word, v->n_word);
    for (int32_t i = 0; i < v->n_long && n < v->plain_max; i++)
        if (v->long_plain[i].count <= n) bit_set(mask, v->long_plain[i].token);
    return true;
}

bool grammar_mask_compute(grammar_matcher *m, const grammar_vocab *v, int32_t state, int32_t *path,
                          uint64_t *mask) {
    memset(mask, 0, v->n_word * sizeof *mask);
    tokens_add(m, v, state, mask);
    if (m->sets[state].can_end) mask_add(mask, v->ends, v->n_word);
    return m->sets[state].n == 0 ||
           (plain_add(m, v, state, path, mask) && walk(m, v, &v->other, state, path, mask));
}
