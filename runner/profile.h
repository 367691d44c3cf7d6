/* SPDX-License-Identifier: MIT
 *
 * profile.h: the time that each member of a group spent in its own nodes and in exchanges, for the
 * prompt and for generation. The plugin `meta` counts; these functions take the differences.
 */
#ifndef TANDEM_RUNNER_PROFILE_H
#define TANDEM_RUNNER_PROFILE_H

#include "runner/session.h"

/* The counts of a group at one moment. */
typedef struct runner_profile_mark {
    uint64_t run_ns[TDM_MAX_MEMBERS];      /* ns in its own nodes */
    uint64_t exchange_ns[TDM_MAX_MEMBERS]; /* ns in exchanges, waiting included */
    uint64_t n_run;                        /* runs of the group's graphs, that is, steps */
    int32_t n_member; /* 0 = not a group, or one without counts */
} runner_profile_mark;

/* Reads the counts of the session's device; an empty mark where it is not a group. [setup] */
void runner_profile_take(runner_session *session, runner_profile_mark *mark);

/* Prints a row for each member with what it did between `begin` and `middle` (the prompt) and
 * between `middle` and `end` (generation); nothing where the marks are empty. [setup] */
void runner_profile_print(runner_session *session, const runner_profile_mark *begin,
                          const runner_profile_mark *middle, const runner_profile_mark *end);

#endif
