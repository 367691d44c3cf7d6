/* SPDX-License-Identifier: MIT
 *
 * slots.h: which slot holds the recurrent state of which sequence. It moves no bytes and uses no
 * device.
 *
 * A slot holds the state of a sequence after one of its tokens. A step reads the slot of a sequence
 * and writes another, so a slot never changes while anything names it: sequences that share a
 * prefix share its slot, and a step that fails leaves the sequence with the slot that it had. A
 * snapshot is a slot that is kept with its position, to go back to. Snapshots of drafts are wanted
 * for one step, those behind prompts for the whole conversation. When slots run out, the oldest
 * snapshot of a draft is given up, and without any the oldest of all; but drafts leave a third of
 * the slots to the other snapshots.
 *
 * Not thread-safe; belongs to one context.
 */
#ifndef LLM_SLOTS_H
#define LLM_SLOTS_H

#include <stdbool.h>

#include "tandem/status.h"

typedef struct llm_slots llm_slots;

/* n_slot slots for sequences 0 .. n_seq-1, all of which start from zeros. TDM_RESOURCE_EXHAUSTED.
 * [setup] */
tdm_status llm_slots_create(int32_t n_slot, int32_t n_seq, llm_slots **slots_out, tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_slots_destroy(llm_slots *slots);

/* The slot of a sequence's state; -1 = zeros, the state of an empty sequence. */
int32_t llm_slots_current(const llm_slots *slots, int32_t seq);
/* A slot that nothing names, held once by the caller; gives up snapshots for it. is_draft: for the
 * snapshot of a draft. -1 = none; where is_draft is false, only if every slot is held. */
int32_t llm_slots_take(llm_slots *slots, bool is_draft);
/* Holds a slot once more, or once less. -1 is a no-op. */
void llm_slots_hold(llm_slots *slots, int32_t slot);
void llm_slots_release(llm_slots *slots, int32_t slot);
/* Makes `slot` the state of a sequence. The caller's hold passes to the sequence. */
void llm_slots_set(llm_slots *slots, int32_t seq, int32_t slot);

/* Keeps `slot` as the state of a sequence after n_tok tokens. -1 is a no-op. */
void llm_slots_snapshot(llm_slots *slots, int32_t seq, int32_t n_tok, int32_t slot, bool is_draft);
/* The snapshot with the most tokens, at most n_tok. Returns its tokens and its slot; without one 0
 * and -1. */
int32_t llm_slots_find(llm_slots *slots, int32_t seq, int32_t n_tok, int32_t *slot_out);
/* Gives up the snapshots of a sequence with more than n_tok tokens. */
void llm_slots_drop(llm_slots *slots, int32_t seq, int32_t n_tok);

#endif
