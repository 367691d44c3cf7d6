/* SPDX-License-Identifier: MIT
 *
 * mask.c: see mask.h. A walk goes through a trie depth first, and skips a subtree where the grammar
 * does not allow its byte. Where any plain text up to some length is allowed and no longer one, as
 * in a string, plain text is not walked: there are masks of plain tokens by length, and tries of
 * what follows plain text in other tokens (token_trie.h).
 */
#include "server/grammar/mask.h"

#include <string.h>

static void bit_set(uint64_t *mask, int32_t i) {
    mask[i / 64] |= (uint64_t)1 << (i % 64);
}

static void mask_add(uint64_t *mask, const uint64_t *other, size_t n) {
    for (size_t i = 0; i < n; i++) mask[i] |= other[i];
}

/* Adds the tokens of a trie that are allowed behind a state. False where the matcher fails. */
static bool walk(grammar_matcher *m, const grammar_trie *trie, int32_t state, int32_t *path,
                 uint64_t *mask) {
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
        for (int32_t t = node->token; t >= 0; t = trie->twin[t]) bit_set(mask, t);
        i++;
    }
    return true;
}

/* Adds the tokens that the nodes TOKEN of a state allow. */
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

/* The states behind any 0, 1, 2, ... plain code points. */
typedef struct plain_chain {
    int32_t states[GRAMMAR_PLAIN_MAX + 1];
    int32_t n;     /* any plain text of up to n code points is allowed, and no longer one; plain_max
                    * of the vocabulary = without limit, since no token has more */
    bool is_mixed; /* there is no such n: of plain texts of one length, some are allowed and some
                      are not */
} plain_chain;

static bool chain_find(grammar_matcher *m, const grammar_vocab *v, int32_t state,
                       plain_chain *chain) {
    int32_t at = state;
    *chain = (plain_chain){.n = 0};
    while (chain->n < v->plain_max) {
        if (chain->n <= GRAMMAR_PLAIN_MAX) chain->states[chain->n] = at;
        const int32_t next = grammar_matcher_plain(m, at, &chain->is_mixed);
        if (next < 0) return false;
        if (chain->is_mixed || next == GRAMMAR_DEAD) return true;
        chain->n++;
        if (next == at && chain->n > GRAMMAR_PLAIN_MAX) chain->n = v->plain_max;
        at = next;
    }
    if (chain->n <= GRAMMAR_PLAIN_MAX) chain->states[chain->n] = at;
    return true;
}

/* Adds the plain tokens of up to n code points. */
static void plain_add(const grammar_vocab *v, int32_t n, uint64_t *mask) {
    if (n == 0) return;
    const int32_t row = n >= v->plain_max       ? GRAMMAR_PLAIN_MAX
                        : n > GRAMMAR_PLAIN_MAX ? GRAMMAR_PLAIN_MAX - 1
                                                : n - 1;
    mask_add(mask, v->plain_up + (size_t)row * v->n_word, v->n_word);
    for (int32_t i = 0; i < v->n_long && n < v->plain_max; i++)
        if (v->long_plain[i].count <= n) bit_set(mask, v->long_plain[i].token);
}

/* Adds the tokens whose bytes are allowed behind a state. False where the matcher fails. */
static bool text_add(grammar_matcher *m, const grammar_vocab *v, int32_t state, int32_t *path,
                     uint64_t *mask) {
    plain_chain chain;
    if (!chain_find(m, v, state, &chain)) return false;
    if (chain.is_mixed)
        return walk(m, &v->plain, state, path, mask) && walk(m, &v->other, state, path, mask);
    plain_add(v, chain.n, mask);
    /* The state behind k code points is known: only what follows them is walked. */
    for (int32_t k = 0; k <= chain.n && k <= GRAMMAR_PLAIN_MAX; k++)
        if (!walk(m, &v->rest[k], chain.states[k], path, mask)) return false;
    return chain.n <= GRAMMAR_PLAIN_MAX || walk(m, &v->late, state, path, mask);
}

bool grammar_mask_compute(grammar_matcher *m, const grammar_vocab *v, int32_t state, int32_t *path,
                          uint64_t *mask) {
    memset(mask, 0, v->n_word * sizeof *mask);
    tokens_add(m, v, state, mask);
    if (m->sets[state].can_end) mask_add(mask, v->ends, v->n_word);
    return m->sets[state].n == 0 || text_add(m, v, state, path, mask);
}
