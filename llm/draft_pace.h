/* SPDX-License-Identifier: MIT
 *
 * draft_pace.h: how many drafted tokens a text gets in its next step, depending on how many were
 * accepted before. The number is halved after a step in which none was accepted, and doubled after
 * a step in which all were. If none was accepted and the number was the least already, the text
 * gets no drafts for 1 step, the next time for 2, then 4, 8 and at most 16. So drafts that are of
 * no use cost little.
 */
#ifndef LLM_DRAFT_PACE_H
#define LLM_DRAFT_PACE_H

#include <stdint.h>

/* The pace of one text. A cleared struct is that of a text without drafts so far. */
typedef struct llm_draft_pace {
    int32_t wait, pause; /* steps without drafts: still to come; of the last pause as a whole, 0 =
                            drafts were accepted since */
    int32_t limit;       /* most drafts of a step; 0 = no limit */
} llm_draft_pace;

/* The most drafts of the next step, at most `most`. 0 in a pause; each call counts one step of
 * it. */
int32_t llm_draft_pace_next(llm_draft_pace *pace, int32_t most);
/* Call it after a step with n_draft drafts, n_accepted of which were accepted. `least`: the caller
 * uses no fewer drafts in a step, so they are not halved below it; 0 counts as 1. A step without
 * drafts changes nothing. */
void llm_draft_pace_note(llm_draft_pace *pace, int32_t n_draft, int32_t n_accepted, int32_t least);

#endif
