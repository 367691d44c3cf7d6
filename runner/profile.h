/* SPDX-License-Identifier: MIT
 *
 * profile.h: where a group's time went: each member's own nodes and its exchanges, for the prompt
 * and for generation. Counted by the group; this reads the counts and subtracts.
 */
#ifndef TANDEM_RUNNER_PROFILE_H
#define TANDEM_RUNNER_PROFILE_H

#include "runner/session.h"

/* What a group had counted at some moment. */
typedef struct runner_profile_mark {
    uint64_t run_ns[TDM_MAX_MEMBERS];      /* in nodes of its own */
    uint64_t exchange_ns[TDM_MAX_MEMBERS]; /* in exchanges, waiting for others included */
    uint64_t n_run;
    int32_t n_member; /* 0 = no group, or one that does not count */
} runner_profile_mark;

/* Reads the counts of the session's device; what is no group gives an empty mark. [setup] */
void runner_profile_take(runner_session *session, runner_profile_mark *mark);

/* Prints a row for each member with what it did between `begin` and `middle` (the prompt) and
 * between `middle` and `end` (generation); nothing where the marks are empty. [setup] */
void runner_profile_print(runner_session *session, const runner_profile_mark *begin,
                          const runner_profile_mark *middle, const runner_profile_mark *end);

#endif
