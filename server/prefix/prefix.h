/* SPDX-License-Identifier: MIT
 *
 * prefix.h: which sequence of a context holds which tokens, to find the sequences that begin with
 * the same tokens as a prompt. A radix tree over token ids: sequences that share a prefix share a
 * path. It holds no pages: those belong to the sequences, and llm_context_fork shares them.
 *
 * Sequences that run are pinned. The others are held: kept for their prefixes until memory or
 * sequences run out. Then the least recently used one is evicted first (server_prefix_oldest).
 *
 * Only sequences of one scope share a path (server_request.scope).
 *
 * Not thread-safe.
 */
#ifndef SERVER_PREFIX_H
#define SERVER_PREFIX_H

#include <stdbool.h>

#include "tandem/status.h"

typedef struct server_prefix server_prefix;

/* An empty tree for sequences 0 .. n_seq-1. TDM_RESOURCE_EXHAUSTED. */
tdm_status server_prefix_create(int32_t n_seq, server_prefix **out, tdm_error *err);
/* NULL is a no-op. */
void server_prefix_destroy(server_prefix *tree);

/* Enters that sequence seq holds tokens[n_tok], which are copied, instead of what it held, and that
 * it was used now. It stays pinned or not. n_tok = 0: it holds nothing. TDM_RESOURCE_EXHAUSTED: it
 * holds nothing then. */
tdm_status server_prefix_set(server_prefix *tree, int32_t seq, uint64_t scope,
                             const int32_t *tokens, int32_t n_tok, tdm_error *err);
/* Enters that a sequence holds nothing, and unpins it. */
void server_prefix_remove(server_prefix *tree, int32_t seq);
/* Tokens that a sequence holds. */
int32_t server_prefix_length(const server_prefix *tree, int32_t seq);

/* Called with a sequence and the number of tokens, at least 1, that it has in common with the
 * prompt at the beginning. Returns false to end the search. */
typedef bool (*server_prefix_fn)(void *user, int32_t seq, int32_t n_common);
/* Calls `found` for every sequence of the scope, pinned or not, that begins with tokens[0], those
 * with the most common tokens first. `found` does not change the tree. O(n_tok + sequences). */
void server_prefix_find(const server_prefix *tree, uint64_t scope, const int32_t *tokens,
                        int32_t n_tok, server_prefix_fn found, void *user);

/* Pins or unpins a sequence: server_prefix_oldest never gives a pinned one. */
void server_prefix_pin(server_prefix *tree, int32_t seq, bool is_pinned);
/* Marks a sequence as used now. */
void server_prefix_use(server_prefix *tree, int32_t seq);
/* The sequence that holds tokens, is not pinned, is not `but`, and was used least recently; -1 =
 * there is none. */
int32_t server_prefix_oldest(const server_prefix *tree, int32_t but);
/* How many sequences hold tokens and are not pinned. */
int32_t server_prefix_held(const server_prefix *tree);

#endif
