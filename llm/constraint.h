/* SPDX-License-Identifier: MIT
 *
 * constraint.h: the interface of a constraint: which tokens may follow next in one text. Code that
 * samples or drafts tokens calls it; grammars implement it (server/grammar/grammar.h). This header
 * does not depend on how a constraint is written.
 */
#ifndef LLM_CONSTRAINT_H
#define LLM_CONSTRAINT_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"

/* The state of one text's constraint. One thread at a time calls it. */
typedef struct llm_constraint {
    void *state;
    /* Writes which tokens may follow now: bit t % 64 of word t / 64 is token t, (n_vocab + 63) / 64
     * words. *is_limited_out = false: every token may follow, and the caller does not read the
     * words. A failure ends the text. */
    tdm_status (*mask)(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err);
    /* Moves the state over a token that was drawn. Called for tokens that end the text, too. */
    tdm_status (*accept)(void *state, int32_t token, tdm_error *err);
    /* Whether the text is complete and nothing may follow. NULL = never. */
    bool (*is_done)(const void *state);
    /* Frees the state. NULL = nothing to free. */
    void (*destroy)(void *state);
    /* Makes a second state at the same place, which `destroy` frees. NULL = it cannot be copied:
     * drafts are made without the constraint. */
    tdm_status (*clone)(const void *state, void **state_out, tdm_error *err);
    /* Moves the state to the place of `other`, a state of the same text. NULL where clone is
     * NULL. */
    void (*assign)(void *state, const void *other);
} llm_constraint;

#endif
