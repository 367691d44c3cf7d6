/* SPDX-License-Identifier: MIT
 *
 * draft_pace.c: see draft_pace.h.
 */
#include "llm/draft_pace.h"

#define PAUSE_MOST 16 /* steps of the longest pause */

int32_t llm_draft_pace_next(llm_draft_pace *pace, int32_t most) {
    if (pace->wait > 0) {
        pace->wait--;
        return 0;
    }
    return pace->limit > 0 && pace->limit < most ? pace->limit : most;
}

void llm_draft_pace_note(llm_draft_pace *pace, int32_t n_draft, int32_t n_accepted, int32_t least) {
    const int32_t half = n_draft / 2, twice = 2 * n_draft;
    if (n_draft == 0) return;
    if (least < 1) least = 1;
    if (n_accepted > 0) pace->pause = 0;
    if (n_accepted == 0 && n_draft <= least) {
        pace->pause = pace->pause == 0 ? 1 : 2 * pace->pause;
        if (pace->pause > PAUSE_MOST) pace->pause = PAUSE_MOST;
        pace->wait = pace->pause;
    }
    if (n_accepted == 0)
        pace->limit = half > least ? half : least;
    else if (n_accepted == n_draft && pace->limit > 0 && pace->limit < twice)
        pace->limit = twice;
}
