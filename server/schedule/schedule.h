/* SPDX-License-Identifier: MIT
 *
 * schedule.h: decides which requests are computed in the next step, and how many tokens of each. It
 * has no clock, no thread and no model, and counts no pages. The caller passes times and reports
 * what was computed. Where it has room, it gets the request to admit next; where it has none, the
 * one to preempt.
 *
 * A request is an entry. It has known tokens (its prompt, later its answer, too), of which some are
 * done (in the cache). An entry waits until it is admitted. Then it reads, while more than its last
 * known token is not done. Then it generates: each step computes one known token and draws one. An
 * entry that is preempted waits again and keeps its known tokens.
 *
 *     admit    server_schedule_next, server_schedule_admit    while there is room
 *     plan     server_schedule_plan                           what the next step computes
 *     after    server_schedule_computed, server_schedule_drawn
 *
 * Rules:
 *  - Each entry that generates is in every step. What is left of the step's tokens goes to entries
 *    that read: half of it to those with the least left to read, the rest in even parts. Where
 *    entries generate, prompts get at most n_prompt_step tokens of a step, so that its time is
 *    bounded. The same limit holds where none generates but it lets some prompts end and others
 *    not: the first tokens of those that end then come earlier.
 *    So prompts of together at most n_prompt_step / 2 tokens are whole in the first step after
 *    their admission, whatever else is read: a first token comes with the step that follows the
 *    one in progress, and no step is longer than n_step (with splits_end, one step later).
 *  - Preempted entries are admitted before all that have not begun, the oldest first. The youngest
 *    running entry is preempted first. So the oldest always ends, and every other becomes the
 *    oldest.
 *  - Keys take turns: the key that has been served the fewest tokens is admitted next. A key
 *    without entries has no count: when it gets one, its count begins at the lowest count among the
 *    keys that have entries. Among entries of one key the oldest is first; each unit of priority
 *    puts an entry before SERVER_PRIORITY_STEP others that came earlier.
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
    SERVER_ENTRY_FREE, /* no entry: it has been removed */
    SERVER_ENTRY_QUEUED,
    SERVER_ENTRY_READING,
    SERVER_ENTRY_GENERATING,
    SERVER_ENTRY_PREEMPTED
} server_entry_state;

typedef struct server_schedule_params {
    int32_t n_running;    /* most entries that read or generate */
    int32_t n_queued;     /* most entries that have not begun */
    int32_t n_queued_key; /* of them, most of one key */
    int32_t n_step;       /* most tokens of a step; more than n_running */
    /* Most tokens of entries that read, in a step in which others generate; at least 1. */
    int32_t n_prompt_step;
    /* The last known token of an entry that reads is computed in a later step than the token before
     * it, so that the state between the two can be kept (recurrent models). */
    bool splits_end;
} server_schedule_params;

/* TDM_INVALID_ARGUMENT names the parameter. The caller destroys the schedule. */
tdm_status server_schedule_create(const server_schedule_params *params, server_schedule **out,
                                  tdm_error *err);
/* NULL is a no-op. */
void server_schedule_destroy(server_schedule *s);

typedef struct server_entry_params {
    int32_t n_known; /* tokens of the prompt, at least 1 */
    uint64_t key;    /* server_request.key */
    int32_t priority; /* larger ones of a key first; 0 is usual */
    /* Times in the caller's unit. 0 = none. */
    uint64_t queue_deadline; /* until it is admitted for the first time */
    uint64_t first_deadline; /* until a token is drawn for it */
    uint64_t total_deadline;
} server_entry_params;

/* Adds an entry that waits. *entry_out >= 0 names it until it is removed; later entries may get the
 * same number. TDM_RESOURCE_EXHAUSTED: the queue, or the key's part of it, is full, or no
 * memory. */
tdm_status server_schedule_add(server_schedule *s, const server_entry_params *params,
                               int32_t *entry_out, tdm_error *err);
/* Removes an entry in any state. */
void server_schedule_remove(server_schedule *s, int32_t entry);

/* The entry to admit next; -1 = none waits, or n_running are running. */
int32_t server_schedule_next(const server_schedule *s);
/* Leaves an entry out of server_schedule_next until server_schedule_defer_end, which applies to all
 * entries: it waits for something that others compute. No-op for an entry that has begun. */
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

/* Writes the next step to items[n_running]: first the entries that generate, then those that read,
 * each the oldest first. Returns how many items there are. Changes nothing. */
int32_t server_schedule_plan(const server_schedule *s, server_schedule_item *items);
/* After the step: n_tok more tokens of an entry are done. Where they are drafts that were accepted,
 * server_schedule_drawn follows for each. */
void server_schedule_computed(server_schedule *s, int32_t entry, int32_t n_tok);
/* A token was drawn for an entry: it is known from now on, and not done. */
void server_schedule_drawn(server_schedule *s, int32_t entry);

/* The running entry to preempt when pages run out: the youngest. -1 = fewer than two run. */
int32_t server_schedule_victim(const server_schedule *s);
/* A running entry waits again; none of its tokens is done. */
void server_schedule_preempt(server_schedule *s, int32_t entry);
/* A paused entry is neither admitted nor in steps. */
void server_schedule_pause(server_schedule *s, int32_t entry, bool is_paused);

/* An entry one of whose deadlines is at or before `now`; -1 = there is none. The caller removes it
 * before the next call, which gives another one. */
int32_t server_schedule_expired(server_schedule *s, uint64_t now);
/* No deadline of an entry passes before this time; 0 = none has any. It may be earlier than the
 * first deadline. */
uint64_t server_schedule_next_deadline(const server_schedule *s);

/* Entries that have not begun; that run; that were preempted and wait; paused ones of these
 * three. */
typedef struct server_schedule_counts {
    int32_t n_queued, n_running, n_preempted, n_paused;
} server_schedule_counts;
server_schedule_counts server_schedule_count(const server_schedule *s);
/* What an entry does, whether it is paused or not; its done tokens. */
server_entry_state server_schedule_state(const server_schedule *s, int32_t entry);
int32_t server_schedule_done(const server_schedule *s, int32_t entry);

#endif
