/* SPDX-License-Identifier: MIT
 *
 * schedule.c: entries, keys and the rules of schedule.h.
 */
#include "server/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    server_entry_state state;
    bool is_paused, is_deferred, has_begun, has_drawn;
    int32_t n_known, n_done;
    int32_t key;     /* index of its account */
    uint64_t serial; /* the order in which entries were added */
    int32_t priority;
    uint64_t queue_deadline, first_deadline, total_deadline;
} entry;

/* The account of a key that has entries. */
typedef struct account {
    uint64_t key;
    uint64_t served; /* tokens charged to it so far, added to what it began with */
    int32_t n_entry; /* 0 = the account is free */
    int32_t n_queued;
} account;

struct server_schedule {
    server_schedule_params params;
    entry *entries;    /* [n_room] */
    account *accounts; /* [n_room] */
    int32_t n_room;
    server_schedule_counts counts; /* n_paused stays 0 here */
    uint64_t next_serial;
    uint64_t served_floor;  /* what a new account begins with; it only grows */
    uint64_t next_deadline; /* with has_deadline: no deadline is before it */
    bool has_deadline;
};

tdm_status server_schedule_create(const server_schedule_params *p, server_schedule **out,
                                  tdm_error *err) {
    *out = NULL;
    if (p->n_running < 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "n_running %d: expected 1 or more",
                        p->n_running);
    if (p->n_queued < 1 || p->n_queued_key < 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "n_queued %d, n_queued_key %d: expected 1 or "
                        "more",
                        p->n_queued, p->n_queued_key);
    if (p->n_step <= p->n_running)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "a step of %d tokens, the smaller of ubatch-size and ctx-size, leaves %d "
                        "running requests no room for prompts; raise it or lower parallel",
                        p->n_step, p->n_running);
    if (p->n_prompt_step < 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "n_prompt_step %d: expected 1 or more",
                        p->n_prompt_step);
    server_schedule *s = calloc(1, sizeof *s);
    if (s == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
    s->params = *p;
    *out = s;
    return TDM_OK;
}

void server_schedule_destroy(server_schedule *s) {
    if (s == NULL) return;
    free(s->entries);
    free(s->accounts);
    free(s);
}

/* ---- Entries and accounts ---- */

/* Makes room for one more entry and account. */
static tdm_status room_make(server_schedule *s, tdm_error *err) {
    const server_schedule_counts *c = &s->counts;
    if (c->n_queued + c->n_running + c->n_preempted < s->n_room) return TDM_OK;
    const int32_t n = s->n_room == 0 ? 64 : s->n_room * 2;
    entry *entries = realloc(s->entries, (size_t)n * sizeof *entries);
    if (entries != NULL) s->entries = entries;
    account *accounts = realloc(s->accounts, (size_t)n * sizeof *accounts);
    if (accounts != NULL) s->accounts = accounts;
    if (entries == NULL || accounts == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
    memset(s->entries + s->n_room, 0, (size_t)(n - s->n_room) * sizeof *entries);
    memset(s->accounts + s->n_room, 0, (size_t)(n - s->n_room) * sizeof *accounts);
    s->n_room = n;
    return TDM_OK;
}

/* The account of a key; -1 = it has none. */
static int32_t account_find(const server_schedule *s, uint64_t key) {
    for (int32_t a = 0; a < s->n_room; a++)
        if (s->accounts[a].n_entry > 0 && s->accounts[a].key == key) return a;
    return -1;
}

/* Opens an account for a key that has none; there is room (room_make). */
static int32_t account_open(server_schedule *s, uint64_t key) {
    uint64_t least = UINT64_MAX;
    int32_t free_one = -1;
    for (int32_t a = 0; a < s->n_room; a++) {
        const account *at = &s->accounts[a];
        if (at->n_entry == 0)
            free_one = a;
        else if (at->served < least)
            least = at->served;
    }
    if (least < UINT64_MAX && least > s->served_floor) s->served_floor = least;
    s->accounts[free_one] = (account){.key = key, .served = s->served_floor};
    return free_one;
}

/* Lowers next_deadline to a deadline; 0 = none. */
static void deadline_note(server_schedule *s, uint64_t deadline) {
    if (deadline == 0 || (s->has_deadline && deadline >= s->next_deadline)) return;
    s->has_deadline = true;
    s->next_deadline = deadline;
}

tdm_status server_schedule_add(server_schedule *s, const server_entry_params *p, int32_t *entry_out,
                               tdm_error *err) {
    *entry_out = -1;
    if (s->counts.n_queued >= s->params.n_queued)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%d requests wait, the most there may be",
                        s->counts.n_queued);
    int32_t a = account_find(s, p->key);
    if (a >= 0 && s->accounts[a].n_queued >= s->params.n_queued_key)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%d requests of this client wait, the most there may be",
                        s->accounts[a].n_queued);
    const tdm_status status = room_make(s, err);
    if (status != TDM_OK) return status;
    if (a < 0) a = account_open(s, p->key);
    int32_t e = 0;
    while (s->entries[e].state != SERVER_ENTRY_FREE) e++;
    s->entries[e] = (entry){.state = SERVER_ENTRY_QUEUED,
                            .n_known = p->n_known,
                            .key = a,
                            .serial = s->next_serial++,
                            .priority = p->priority,
                            .queue_deadline = p->queue_deadline,
                            .first_deadline = p->first_deadline,
                            .total_deadline = p->total_deadline};
    deadline_note(s, p->queue_deadline);
    deadline_note(s, p->first_deadline);
    deadline_note(s, p->total_deadline);
    s->accounts[a].n_entry++;
    s->accounts[a].n_queued++;
    s->counts.n_queued++;
    *entry_out = e;
    return TDM_OK;
}

static bool is_running(const entry *e) {
    return e->state == SERVER_ENTRY_READING || e->state == SERVER_ENTRY_GENERATING;
}

void server_schedule_remove(server_schedule *s, int32_t index) {
    entry *e = &s->entries[index];
    account *a = &s->accounts[e->key];
    if (e->state == SERVER_ENTRY_QUEUED) s->counts.n_queued--, a->n_queued--;
    if (e->state == SERVER_ENTRY_PREEMPTED) s->counts.n_preempted--;
    if (is_running(e)) s->counts.n_running--;
    e->state = SERVER_ENTRY_FREE;
    if (--a->n_entry == 0 && a->served > s->served_floor && s->counts.n_queued == 0 &&
        s->counts.n_running == 0 && s->counts.n_preempted == 0)
        s->served_floor = a->served;
}

/* ---- Admission ---- */

/* Whether a comes before b of the same key. */
static bool is_before(const entry *a, const entry *b) {
    const int64_t at_a = (int64_t)a->serial - (int64_t)a->priority * SERVER_PRIORITY_STEP;
    const int64_t at_b = (int64_t)b->serial - (int64_t)b->priority * SERVER_PRIORITY_STEP;
    return at_a != at_b ? at_a < at_b : a->serial < b->serial;
}

/* Whether queued entry a is admitted before queued entry b. */
static bool is_admitted_before(const server_schedule *s, const entry *a, const entry *b) {
    if (a->key == b->key) return is_before(a, b);
    const uint64_t of_a = s->accounts[a->key].served, of_b = s->accounts[b->key].served;
    return of_a != of_b ? of_a < of_b : a->serial < b->serial;
}

int32_t server_schedule_next(const server_schedule *s) {
    int32_t preempted = -1, queued = -1;
    if (s->counts.n_running >= s->params.n_running) return -1;
    for (int32_t i = 0; i < s->n_room; i++) {
        const entry *e = &s->entries[i];
        if (e->is_paused || e->is_deferred) continue;
        if (e->state == SERVER_ENTRY_PREEMPTED &&
            (preempted < 0 || e->serial < s->entries[preempted].serial))
            preempted = i;
        if (e->state == SERVER_ENTRY_QUEUED &&
            (queued < 0 || is_admitted_before(s, e, &s->entries[queued])))
            queued = i;
    }
    return preempted >= 0 ? preempted : queued;
}

void server_schedule_defer(server_schedule *s, int32_t index) {
    if (s->entries[index].state == SERVER_ENTRY_QUEUED) s->entries[index].is_deferred = true;
}

void server_schedule_defer_end(server_schedule *s) {
    for (int32_t i = 0; i < s->n_room; i++) s->entries[i].is_deferred = false;
}

void server_schedule_admit(server_schedule *s, int32_t index, int32_t n_done) {
    entry *e = &s->entries[index];
    account *a = &s->accounts[e->key];
    if (e->state == SERVER_ENTRY_QUEUED) {
        s->counts.n_queued--;
        a->n_queued--;
        /* The whole prompt at once, so that a key cannot take all places before it is charged.
         * Nothing is charged for what is computed again after preemption: the client did not cause
         * it. */
        a->served += (uint64_t)(e->n_known - n_done);
    } else {
        s->counts.n_preempted--;
    }
    s->counts.n_running++;
    e->has_begun = true;
    e->n_done = n_done;
    e->state = n_done + 1 < e->n_known ? SERVER_ENTRY_READING : SERVER_ENTRY_GENERATING;
}

/* ---- Steps ---- */

/* The most tokens that a reading entry may have in the next step. */
static int32_t entry_most(const server_schedule *s, const entry *e) {
    const int32_t n = e->n_known - e->n_done;
    return s->params.splits_end && n > 1 ? n - 1 : n;
}

/* Sorts items by the age of their entries, the oldest first. */
static void items_sort(const server_schedule *s, server_schedule_item *items, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        const server_schedule_item item = items[i];
        int32_t at = i;
        for (; at > 0 && s->entries[items[at - 1].entry].serial > s->entries[item.entry].serial;
             at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

/* Gives those of n items that have the least left to read all of it, the oldest of equal ones
 * first, while the budget lasts. Returns how many tokens it gave. Items with n_tok 0 have got
 * nothing. */
static int32_t shortest_serve(const server_schedule *s, server_schedule_item *items, int32_t n,
                              int32_t budget) {
    int32_t n_given = 0;
    for (;;) {
        int32_t shortest = -1, least = budget - n_given + 1;
        for (int32_t i = 0; i < n; i++) {
            const int32_t most = entry_most(s, &s->entries[items[i].entry]);
            if (items[i].n_tok > 0 || most >= least) continue;
            least = most;
            shortest = i;
        }
        if (shortest < 0) return n_given;
        items[shortest].n_tok = least;
        n_given += least;
    }
}

/* Divides the budget among n items that read, the oldest first. Half of it is for the shortest, so
 * that a short prompt ends at once however many long ones are read. The rest is given in even
 * parts, and what the short ones leave goes to the others. Items that get nothing are dropped;
 * returns how many are left. */
static int32_t budget_divide(const server_schedule *s, server_schedule_item *items, int32_t n,
                             int32_t budget) {
    for (int32_t i = 0; i < n; i++) items[i].n_tok = 0;
    budget -= shortest_serve(s, items, n, budget / 2);
    for (int32_t n_open = n; budget > 0 && n_open > 0;) {
        const int32_t part = budget / n_open > 0 ? budget / n_open : 1;
        n_open = 0;
        for (int32_t i = 0; i < n && budget > 0; i++) {
            int32_t more = entry_most(s, &s->entries[items[i].entry]) - items[i].n_tok;
            if (more > part) {
                more = part;
                n_open++;
            }
            if (more > budget) more = budget;
            items[i].n_tok += more;
            budget -= more;
        }
    }
    int32_t n_left = 0;
    for (int32_t i = 0; i < n; i++)
        if (items[i].n_tok > 0) items[n_left++] = items[i];
    return n_left;
}

/* The items of those that read, the oldest first; returns how many. */
static int32_t reading_find(const server_schedule *s, server_schedule_item *items) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_room; i++)
        if (s->entries[i].state == SERVER_ENTRY_READING && !s->entries[i].is_paused)
            items[n++] = (server_schedule_item){.entry = i};
    items_sort(s, items, n);
    return n;
}

/* Sets is_last of the items that reach the last known token of their entry. Returns how many items
 * have all that entry_most allows, so that their prompt ends in this step or, with splits_end, in
 * the next one. */
static int32_t ends_mark(const server_schedule *s, server_schedule_item *items, int32_t n) {
    int32_t n_end = 0;
    for (int32_t i = 0; i < n; i++) {
        const entry *e = &s->entries[items[i].entry];
        items[i].is_last = e->n_done + items[i].n_tok == e->n_known;
        n_end += items[i].n_tok == entry_most(s, e);
    }
    return n_end;
}

int32_t server_schedule_plan(const server_schedule *s, server_schedule_item *items) {
    int32_t n = 0, n_reading;
    for (int32_t i = 0; i < s->n_room; i++)
        if (s->entries[i].state == SERVER_ENTRY_GENERATING && !s->entries[i].is_paused)
            items[n++] = (server_schedule_item){i, 1, true};
    items_sort(s, items, n);
    n_reading = reading_find(s, items + n);
    const int32_t room = s->params.n_step - n, n_due = n_reading;
    const int32_t little = room < s->params.n_prompt_step ? room : s->params.n_prompt_step;
    n_reading = budget_divide(s, items + n, n_due, little);
    const int32_t n_end = ends_mark(s, items + n, n_reading);
    /* None generates. The step stays small where some prompts end in it and others do not: the
     * first tokens of those that end come earlier. Else it is as large as it may be. */
    if (n > 0 || (n_end > 0 && n_end < n_due)) return n + n_reading;
    n_reading = budget_divide(s, items, reading_find(s, items), room);
    (void)ends_mark(s, items, n_reading);
    return n_reading;
}

void server_schedule_computed(server_schedule *s, int32_t index, int32_t n_tok) {
    entry *e = &s->entries[index];
    e->n_done += n_tok;
    if (e->n_done + 1 >= e->n_known) e->state = SERVER_ENTRY_GENERATING;
}

void server_schedule_drawn(server_schedule *s, int32_t index) {
    entry *e = &s->entries[index];
    e->n_known++;
    e->has_drawn = true;
    s->accounts[e->key].served++;
}

/* ---- Preemption and time ---- */

int32_t server_schedule_victim(const server_schedule *s) {
    int32_t youngest = -1;
    if (s->counts.n_running < 2) return -1;
    for (int32_t i = 0; i < s->n_room; i++)
        if (is_running(&s->entries[i]) &&
            (youngest < 0 || s->entries[i].serial > s->entries[youngest].serial))
            youngest = i;
    return youngest;
}

void server_schedule_preempt(server_schedule *s, int32_t index) {
    entry *e = &s->entries[index];
    s->counts.n_running--;
    s->counts.n_preempted++;
    e->state = SERVER_ENTRY_PREEMPTED;
    e->n_done = 0;
}

void server_schedule_pause(server_schedule *s, int32_t index, bool is_paused) {
    s->entries[index].is_paused = is_paused;
}

/* The earliest deadline that counts for an entry now; 0 = none. */
static uint64_t entry_deadline(const entry *e) {
    uint64_t at = e->total_deadline;
    if (!e->has_drawn && e->first_deadline != 0 && (at == 0 || e->first_deadline < at))
        at = e->first_deadline;
    if (!e->has_begun && e->queue_deadline != 0 && (at == 0 || e->queue_deadline < at))
        at = e->queue_deadline;
    return at;
}

int32_t server_schedule_expired(server_schedule *s, uint64_t now) {
    if (!s->has_deadline || now < s->next_deadline) return -1;
    s->has_deadline = false;
    for (int32_t i = 0; i < s->n_room; i++) {
        if (s->entries[i].state == SERVER_ENTRY_FREE) continue;
        const uint64_t at = entry_deadline(&s->entries[i]);
        deadline_note(s, at);
        if (at != 0 && at <= now) return i; /* the next call goes on from the beginning */
    }
    return -1;
}

uint64_t server_schedule_next_deadline(const server_schedule *s) {
    return s->has_deadline ? s->next_deadline : 0;
}

server_schedule_counts server_schedule_count(const server_schedule *s) {
    server_schedule_counts counts = s->counts;
    for (int32_t i = 0; i < s->n_room; i++)
        counts.n_paused += s->entries[i].state != SERVER_ENTRY_FREE && s->entries[i].is_paused;
    return counts;
}

server_entry_state server_schedule_state(const server_schedule *s, int32_t index) {
    return s->entries[index].state;
}

int32_t server_schedule_done(const server_schedule *s, int32_t index) {
    return s->entries[index].n_done;
}
