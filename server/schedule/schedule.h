/* SPDX-License-Identifier: MIT
 *
 * schedule.h: decides which requests are computed in the next step, and how much of each. It has no
 * clock, no thread and no model, and counts no pages: the caller gives times, says what was
 * computed, and asks which request is next when it has room, or goes when it has none.
 *
 * A request is an entry: known tokens (its prompt, later its answer, too), of which some are done
 * (in the cache). An entry waits until it is admitted, then reads (more than the last known token
 * is not done), then generates (one known token is computed in each step, and one is drawn). One
 * that is preempted waits again with all it knows.
 *
 *     admit    server_schedule_next, server_schedule_admit    while there is room
 *     plan     server_schedule_plan                           what the next step computes
 *     after    server_schedule_computed, server_schedule_drawn
 *
 * Rules:
 *  - Each entry that generates is in every step. What is left of the step's tokens goes to those
 *    that read: half to those with the least left to read, the rest in even parts. Where entries
 *    generate, prompts get at most n_prompt_step tokens of a step, so that its time is bounded; so
 *    too where a prompt ends in such a step and others do not, for its first token's sake.
 *    So prompts of together at most n_prompt_step / 2 tokens are whole in the first step after
 *    their admission, whatever else is read: a first token comes with the step that follows the
 *    one in progress, and no step is longer than n_step (with splits_end, one step later).
 *  - Preempted entries are admitted before all that have not begun, the oldest first. The youngest
 *    running entry is preempted first. So the oldest always ends, and every other becomes the
 *    oldest.
 *  - Keys take turns: the key that has been served the fewest tokens is admitted next. A key that
 *    comes anew begins with what the least served present one has. Of one key the oldest is first;
 *    each unit of priority puts an entry before SERVER_PRIORITY_STEP others that came earlier.
 *
 * Not thread-safe. Every call takes time in proportion to the entries at most, and
 * server_schedule_plan in proportion to the square of those that run.
 */
#ifndef SERVER_SCHEDULE_H
#define SERVER_SCHEDULE_H

#include <stdbool.h>

#include "tandem/status.h"

#define SERVER_PRIORITY_STEP 16

typedef struct server_schedule server_schedule;

typedef enum server_entry_state {
    SERVER_ENTRY_FREE, /* it has been removed */
    SERVER_ENTRY_QUEUED,
    SERVER_ENTRY_READING,
    SERVER_ENTRY_GENERATING,
    SERVER_ENTRY_PREEMPTED
} server_entry_state;

typedef struct server_schedule_params {
    int32_t n_running;    /* most entries that read or generate */
    int32_t n_queued;     /* most entries that have not begun */
    int32_t n_queued_key; /* of them, most of one key */
    int32_t n_step;       /* most tokens of a step, above n_running */
    /* Of them, most of those that read, in a step that gives tokens to others; at least 1. */
    int32_t n_prompt_step;
    /* The last known token of one that reads is in a step after the others, so that the state
     * before it can be kept (recurrent models). */
    bool splits_end;
} server_schedule_params;

/* TDM_INVALID_ARGUMENT names the parameter. The caller destroys the schedule. */
tdm_status server_schedule_create(const server_schedule_params *params, server_schedule **out,
                                  tdm_error *err);
/* NULL is a no-op. */
void server_schedule_destroy(server_schedule *s);

typedef struct server_entry_params {
    int32_t n_known; /* tokens of the prompt, at least 1 */
    uint64_t key;
    int32_t priority;
    /* Times in the caller's unit. 0 = none. */
    uint64_t queue_deadline; /* until it is admitted for the first time */
    uint64_t first_deadline; /* until a token is drawn for it */
    uint64_t total_deadline;
} server_entry_params;

/* Adds an entry that waits. *entry_out >= 0 names it until it is removed. TDM_RESOURCE_EXHAUSTED:
 * the queue, or the key's part of it, is full, or no memory. */
tdm_status server_schedule_add(server_schedule *s, const server_entry_params *params,
                               int32_t *entry_out, tdm_error *err);
/* Removes an entry in any state. */
void server_schedule_remove(server_schedule *s, int32_t entry);

/* The entry to admit next; -1 = none waits, or n_running are running. */
int32_t server_schedule_next(const server_schedule *s);
/* Leaves an entry that has not begun out of server_schedule_next until server_schedule_defer_end:
 * it waits for something that others compute. */
void server_schedule_defer(server_schedule *s, int32_t entry);
void server_schedule_defer_end(server_schedule *s);
/* The entry runs from now on; n_done of its known tokens, not all, are in the cache. */
void server_schedule_admit(server_schedule *s, int32_t entry, int32_t n_done);

/* A part of a step: the next n_tok known tokens of an entry. */
typedef struct server_schedule_item {
    int32_t entry;
    int32_t n_tok;
    bool is_last; /* the last known token is among them: a token is drawn behind it */
} server_schedule_item;

/* The next step: items[n_running] those that generate first, else the oldest first; returns how
 * many. Changes nothing. */
int32_t server_schedule_plan(const server_schedule *s, server_schedule_item *items);
/* After the step: n_tok more known tokens are done. */
void server_schedule_computed(server_schedule *s, int32_t entry, int32_t n_tok);
/* A token was drawn for an entry whose known tokens are all done. */
void server_schedule_drawn(server_schedule *s, int32_t entry);

/* The running entry that gives its pages back when they run out: the youngest. -1 = one or none
 * runs. */
int32_t server_schedule_victim(const server_schedule *s);
/* A running entry waits again; none of its tokens is done. */
void server_schedule_preempt(server_schedule *s, int32_t entry);
/* A paused entry is neither admitted nor in steps. */
void server_schedule_pause(server_schedule *s, int32_t entry, bool is_paused);

/* An entry that is over one of its deadlines at time `now`; -1 = none. */
int32_t server_schedule_expired(server_schedule *s, uint64_t now);
/* No entry is over a deadline before this time; 0 = none has any. It may be early. */
uint64_t server_schedule_next_deadline(const server_schedule *s);

/* Entries that have not begun; that run; that were preempted and wait; of all these, paused. */
typedef struct server_schedule_counts {
    int32_t n_queued, n_running, n_preempted, n_paused;
} server_schedule_counts;
server_schedule_counts server_schedule_count(const server_schedule *s);
/* What an entry does, whether it is paused or not; its done tokens. */
server_entry_state server_schedule_state(const server_schedule *s, int32_t entry);
int32_t server_schedule_done(const server_schedule *s, int32_t entry);

#endif
