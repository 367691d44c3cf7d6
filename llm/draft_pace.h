/* SPDX-License-Identifier: MIT
 *
 * draft_pace.h: how many drafts a text has in its next step, by how many were right before. Drafts
 * are halved after a step in which none was right, and doubled after one in which all were. Where a
 * single one was wrong, the text has none for 1, 2, 4 ... 16 steps. So a draft that is of no use
 * costs little.
 */
#ifndef LLM_DRAFT_PACE_H
#define LLM_DRAFT_PACE_H

#include <stdint.h>

/* Cleared, nothing is known of the drafts of a text. */
typedef struct llm_draft_pace {
    int32_t wait, pause; /* steps without drafts: left now; the last time */
    int32_t limit;       /* most drafts; 0 = none is known */
} llm_draft_pace;

/* The most drafts of the next step, at most `most`. 0 is a step of the pause. */
int32_t llm_draft_pace_next(llm_draft_pace *pace, int32_t most);
/* After a step with n_draft drafts, n_accepted of them right. least: fewer are never checked; 0 and 1
 * are the same. A step without drafts changes nothing. */
void llm_draft_pace_note(llm_draft_pace *pace, int32_t n_draft, int32_t n_accepted, int32_t least);

#endif
