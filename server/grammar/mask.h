/* SPDX-License-Identifier: MIT
 *
 * mask.h: which tokens of a vocabulary may follow a state.
 */
#ifndef TANDEM_SERVER_GRAMMAR_MASK_H
#define TANDEM_SERVER_GRAMMAR_MASK_H

#include "server/grammar/matcher.h"
#include "server/grammar/token_trie.h"

/* Writes the mask of a state of `matcher`: n_word words of `vocab`. `path` [depth_max + 1 of
 * `vocab`] is scratch. False where the matcher fails (grammar_matcher_compute); the mask is then
 * undefined. */
bool grammar_mask_compute(grammar_matcher *matcher, const grammar_vocab *vocab, int32_t state,
                          int32_t *path, uint64_t *mask);

#endif
