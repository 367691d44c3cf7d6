/* SPDX-License-Identifier: MIT
 *
 * slots.h: which slot holds the recurrent state of which sequence. It moves no bytes and uses no
 * device.
 *
 * A slot holds the state of a sequence after one of its tokens. A step reads the slot of a sequence
 * and writes another, so a slot never changes while anything names it: sequences that share a
 * prefix share its slot, and a step that fails leaves the sequence with the slot that it had.
 *
 * A slot is free when no one holds it: no sequence, no snapshot and no caller. A snapshot is a slot
 * that is kept with a position of a sequence, so that the sequence can return to that position.
 * Snapshots of drafts are needed for one step, those behind prompts during the whole
 * conversation. When slots run out, the snapshot of a draft that was used the longest time ago is
 * removed; without any, the oldest other snapshot. A slot for a draft removes another snapshot only
 * while those hold more than a third of the slots.
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
/* A free slot, which the caller then holds; removes snapshots if none is free. is_draft: the slot
 * is for the snapshot of a draft. -1 = none; with is_draft false only if sequences and callers hold
 * all slots. */
int32_t llm_slots_take(llm_slots *slots, bool is_draft);
/* Adds or removes one holder of a slot. -1 is a no-op. */
void llm_slots_hold(llm_slots *slots, int32_t slot);
void llm_slots_release(llm_slots *slots, int32_t slot);
/* Makes `slot` the state of a sequence. The caller's hold passes to the sequence. */
void llm_slots_set(llm_slots *slots, int32_t seq, int32_t slot);

/* Keeps `slot` as the state of a sequence after n_tok tokens, instead of an older snapshot of the
 * same position. The snapshot is one more holder of the slot. slot -1 is a no-op. */
void llm_slots_snapshot(llm_slots *slots, int32_t seq, int32_t n_tok, int32_t slot, bool is_draft);
/* The snapshot of a sequence with the most tokens, at most n_tok. Returns its number of tokens, and
 * its slot in *slot_out, which the snapshot still holds; 0 and -1 if there is none. */
int32_t llm_slots_find(llm_slots *slots, int32_t seq, int32_t n_tok, int32_t *slot_out);
/* Removes the snapshots of a sequence with more than n_tok tokens. */
void llm_slots_drop(llm_slots *slots, int32_t seq, int32_t n_tok);

#endif
