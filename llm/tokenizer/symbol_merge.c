/* SPDX-License-Identifier: MIT
 *
 * symbol_merge.c: see symbol_merge.h. Candidate pairs are in a binary heap. A merge leaves outdated
 * pairs in the heap; they are skipped when they are taken out.
 */
#include "llm/tokenizer/symbol_merge.h"

#include <stdlib.h>

static tdm_status chain_no_memory(tdm_error *err, size_t n) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                    "tokenizer: no memory for %zu symbols; give the text in smaller parts", n);
}

tdm_status llm_symbol_chain_begin(llm_symbol_chain *chain, size_t n, tdm_error *err) {
    chain->n_symbol = 0;
    chain->n_pair = 0;
    if (n <= chain->symbol_capacity) return TDM_OK;
    size_t size;
    if (n > INT32_MAX || __builtin_mul_overflow(n, sizeof *chain->symbols, &size))
        return chain_no_memory(err, n);
    llm_symbol *symbols = realloc(chain->symbols, size);
    if (symbols == NULL) return chain_no_memory(err, n);
    chain->symbols = symbols;
    chain->symbol_capacity = n;
    return TDM_OK;
}

void llm_symbol_chain_add(llm_symbol_chain *chain, uint32_t off, uint32_t size, uint32_t piece) {
    const int32_t i = (int32_t)chain->n_symbol++;
    chain->symbols[i] =
        (llm_symbol){.off = off, .size = size, .prev = i - 1, .next = -1, .piece = piece};
    if (i > 0) chain->symbols[i - 1].next = i;
}

static tdm_status pair_push(llm_symbol_chain *chain, llm_symbol_pair pair, tdm_error *err) {
    if (chain->n_pair == chain->pair_capacity) {
        const size_t capacity = chain->pair_capacity != 0 ? chain->pair_capacity * 2 : 64;
        size_t size;
        if (__builtin_mul_overflow(capacity, sizeof pair, &size))
            return chain_no_memory(err, chain->n_symbol);
        llm_symbol_pair *heap = realloc(chain->heap, size);
        if (heap == NULL) return chain_no_memory(err, chain->n_symbol);
        chain->heap = heap;
        chain->pair_capacity = capacity;
    }
    size_t i = chain->n_pair++;
    while (i > 0) {
        const size_t parent = (i - 1) / 2;
        if (chain->heap[parent].priority <= pair.priority) break;
        chain->heap[i] = chain->heap[parent];
        i = parent;
    }
    chain->heap[i] = pair;
    return TDM_OK;
}

static llm_symbol_pair pair_pop(llm_symbol_chain *chain) {
    llm_symbol_pair *heap = chain->heap;
    const llm_symbol_pair best = heap[0];
    const llm_symbol_pair last = heap[--chain->n_pair];
    const size_t n = chain->n_pair;
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && heap[child + 1].priority < heap[child].priority) ++child;
        if (last.priority <= heap[child].priority) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return best;
}

static tdm_status pair_offer(llm_symbol_chain *chain, int32_t left, llm_symbol_join *join,
                             const void *context, tdm_error *err) {
    if (left < 0) return TDM_OK;
    const llm_symbol *l = &chain->symbols[left];
    if (l->next < 0) return TDM_OK;
    const llm_symbol *r = &chain->symbols[l->next];
    uint32_t order, piece;
    if (!join(context, l, r, &order, &piece)) return TDM_OK;
    return pair_push(chain,
                     (llm_symbol_pair){.priority = (uint64_t)order << 32 | (uint32_t)left,
                                       .size = l->size + r->size,
                                       .piece = piece},
                     err);
}

tdm_status llm_symbol_chain_merge(llm_symbol_chain *chain, llm_symbol_join *join,
                                  const void *context, tdm_error *err) {
    chain->n_pair = 0;
    for (size_t i = 0; i + 1 < chain->n_symbol; ++i) {
        const tdm_status status = pair_offer(chain, (int32_t)i, join, context, err);
        if (status != TDM_OK) return status;
    }
    while (chain->n_pair > 0) {
        const llm_symbol_pair pair = pair_pop(chain);
        const int32_t left = (int32_t)(uint32_t)pair.priority;
        llm_symbol *l = &chain->symbols[left];
        /* A symbol only grows, and a merged one has size 0. So an equal size means that neither
         * symbol has changed since the pair was found. */
        if (l->size == 0 || l->next < 0) continue;
        llm_symbol *r = &chain->symbols[l->next];
        if (l->size + r->size != pair.size) continue;

        l->size = pair.size;
        l->piece = pair.piece;
        l->next = r->next;
        if (l->next >= 0) chain->symbols[l->next].prev = left;
        r->size = 0;

        tdm_status status = pair_offer(chain, l->prev, join, context, err);
        if (status == TDM_OK) status = pair_offer(chain, left, join, context, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

void llm_symbol_chain_free(llm_symbol_chain *chain) {
    free(chain->symbols);
    free(chain->heap);
    *chain = (llm_symbol_chain){0};
}
