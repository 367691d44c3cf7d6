/* SPDX-License-Identifier: MIT
 *
 * symbol_merge.h: the merge loop of the SentencePiece and BPE encoders. In a chain of symbols it
 * merges the best pair of neighbours, the leftmost of equal ones first, until no pair can be
 * merged.
 *
 * The caller says which neighbours may merge and in which order. Takes O(n log n) for n symbols.
 */
#ifndef LLM_SYMBOL_MERGE_H
#define LLM_SYMBOL_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct llm_symbol {
    uint32_t off;  /* bytes from the start of the caller's text */
    uint32_t size; /* bytes; 0 = merged into a symbol to its left */
    int32_t prev;  /* neighbours' indices, -1 at the ends */
    int32_t next;
    uint32_t piece; /* the caller's number of the symbol's text */
} llm_symbol;

/* Whether two neighbours may merge. If so, sets the order (lower merges first) and the piece. */
typedef bool llm_symbol_join(const void *context, const llm_symbol *left, const llm_symbol *right,
                             uint32_t *order, uint32_t *piece);

typedef struct llm_symbol_pair {
    uint64_t priority; /* order << 32 | left symbol's index; the lowest is merged first */
    uint32_t size; /* of both symbols when the pair was found; differs if one has changed since */
    uint32_t piece;
} llm_symbol_pair;

/* Memory for symbols and for the queue of pairs, reused between texts. Zeroed = empty. */
typedef struct llm_symbol_chain {
    llm_symbol *symbols;
    size_t n_symbol, symbol_capacity;
    llm_symbol_pair *heap;
    size_t n_pair, pair_capacity;
} llm_symbol_chain;

/* Empties the chain and makes room for `n` symbols, at most INT32_MAX. TDM_RESOURCE_EXHAUSTED. */
tdm_status llm_symbol_chain_begin(llm_symbol_chain *chain, size_t n, tdm_error *err);

/* Appends a symbol of size > 0; llm_symbol_chain_begin has made room. */
void llm_symbol_chain_add(llm_symbol_chain *chain, uint32_t off, uint32_t size, uint32_t piece);

/* Merges until no pair can be merged. Afterwards the chain of `next` from symbol 0, which stays the
 * first, has the result. TDM_RESOURCE_EXHAUSTED. */
tdm_status llm_symbol_chain_merge(llm_symbol_chain *chain, llm_symbol_join *join,
                                  const void *context, tdm_error *err);

/* Frees the memory and leaves an empty chain. */
void llm_symbol_chain_free(llm_symbol_chain *chain);

#endif
