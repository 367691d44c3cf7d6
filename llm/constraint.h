/* SPDX-License-Identifier: MIT
 *
 * constraint.h: which tokens may follow in one text, for what samples or drafts tokens. A grammar is
 * one (server/grammar/grammar.h); this header does not depend on how a constraint is written.
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
     * words. *is_limited_out = false where every token may follow; the words are not read then. A
     * failure ends the text. */
    tdm_status (*mask)(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err);
    /* Moves the state over a token that was drawn. Tokens that end the text are passed, too. */
    tdm_status (*accept)(void *state, int32_t token, tdm_error *err);
    /* Whether the text is complete and nothing may follow. NULL = never. */
    bool (*is_done)(const void *state);
    /* Frees the state. NULL = nothing to free. */
    void (*destroy)(void *state);
    /* Makes another state at the same place, which `destroy` frees. NULL = it cannot be copied:
     * drafts do not follow the constraint. */
    tdm_status (*clone)(const void *state, void **state_out, tdm_error *err);
    /* Moves the state to the place of `other`, of the same text. Not NULL where clone is not. */
    void (*assign)(void *state, const void *other);
} llm_constraint;

#endif
