/* SPDX-License-Identifier: MIT
 *
 * test_schedule.c: the rules of server/schedule/schedule.h on small cases; the time to first tokens
 * on a simulated clock; then random requests on a simulated clock and a simulated pool of pages:
 * nothing is lost, the budget is kept, every request ends, keys get equal parts. It simulates
 * 20,000 requests, or TANDEM_CASES of them; TANDEM_SEED is the seed:
 *
 *     TANDEM_CASES=1000000 build-test/tests/server/test_schedule
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/schedule/schedule.h"
#include "tests/support/random.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error ok_err = {0}, *err = &ok_err;                                                    \
        if ((call) != TDM_OK) fail_msg("%s", ok_err.message);                                      \
    } while (0)

static const server_schedule_params usual = {
    .n_running = 4, .n_queued = 8, .n_queued_key = 8, .n_step = 64, .n_prompt_step = 32};

static server_schedule *make(const server_schedule_params *params) {
    server_schedule *s = NULL;
    OK(server_schedule_create(params, &s, err));
    return s;
}

static int32_t add(server_schedule *s, int32_t n_known, uint64_t key) {
    const server_entry_params params = {.n_known = n_known, .key = key};
    int32_t entry = -1;
    OK(server_schedule_add(s, &params, &entry, err));
    return entry;
}

static int32_t admit(server_schedule *s, int32_t n_done) {
    const int32_t entry = server_schedule_next(s);
    assert_true(entry >= 0);
    server_schedule_admit(s, entry, n_done);
    return entry;
}

/* ---- Single cases ---- */

static void test_parameters(void **state) {
    (void)state;
    server_schedule *s = NULL;
    tdm_error err = {0};
    server_schedule_params params = usual;
    params.n_running = 0;
    assert_int_equal(server_schedule_create(&params, &s, &err), TDM_INVALID_ARGUMENT);
    params = usual;
    params.n_step = params.n_running;
    assert_int_equal(server_schedule_create(&params, &s, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "ubatch-size"));
    params = usual;
    params.n_prompt_step = 0;
    assert_int_equal(server_schedule_create(&params, &s, &err), TDM_INVALID_ARGUMENT);
    params = usual;
    params.n_queued_key = 0;
    assert_int_equal(server_schedule_create(&params, &s, &err), TDM_INVALID_ARGUMENT);
    assert_null(s);
    server_schedule_destroy(NULL);
}

static void test_full_queue(void **state) {
    (void)state;
    server_schedule_params params = usual;
    params.n_queued_key = 3;
    server_schedule *s = make(&params);
    const server_entry_params one = {.n_known = 1, .key = 7};
    int32_t entry;
    tdm_error err = {0};
    for (int i = 0; i < 3; i++) add(s, 1, 7);
    assert_int_equal(server_schedule_add(s, &one, &entry, &err), TDM_RESOURCE_EXHAUSTED);
    assert_int_equal(entry, -1);
    for (int i = 0; i < 5; i++) add(s, 1, (uint64_t)i);
    const server_entry_params other = {.n_known = 1, .key = 9};
    assert_int_equal(server_schedule_add(s, &other, &entry, &err), TDM_RESOURCE_EXHAUSTED);
    /* What has been admitted is not in the queue. */
    admit(s, 0);
    OK(server_schedule_add(s, &other, &entry, err));
    server_schedule_destroy(s);
}

/* A short prompt is done in the first step beside a long one, and what generates is in each. */
static void test_plan(void **state) {
    (void)state;
    server_schedule_item items[4];
    server_schedule *s = make(&usual);
    const int32_t generating = add(s, 10, 0);
    admit(s, 9);
    assert_int_equal(server_schedule_plan(s, items), 1);
    assert_int_equal(items[0].entry, generating);
    assert_int_equal(items[0].n_tok, 1);
    assert_true(items[0].is_last);
    const int32_t long_one = add(s, 1000, 0), short_one = add(s, 12, 0);
    admit(s, 0);
    admit(s, 0);
    assert_int_equal(server_schedule_plan(s, items), 3);
    assert_int_equal(items[0].entry, generating);
    assert_int_equal(items[1].entry, long_one);
    assert_int_equal(items[1].n_tok, 20);
    assert_false(items[1].is_last);
    assert_int_equal(items[2].entry, short_one);
    assert_int_equal(items[2].n_tok, 12);
    assert_true(items[2].is_last);
    /* Without the one that generates, the step is small for the short prompt's sake. */
    server_schedule_remove(s, generating);
    assert_int_equal(server_schedule_plan(s, items), 2);
    assert_int_equal(items[0].n_tok, 20);
    assert_int_equal(items[1].n_tok, 12);
    /* A prompt alone has the whole step; so have several none of which would end in a small one. */
    const int32_t middle = add(s, 40, 0);
    server_schedule_remove(s, short_one);
    admit(s, 0);
    assert_int_equal(server_schedule_plan(s, items), 2);
    assert_int_equal(items[0].n_tok + items[1].n_tok, 64);
    server_schedule_remove(s, middle);
    assert_int_equal(server_schedule_plan(s, items), 1);
    assert_int_equal(items[0].n_tok, 64);
    server_schedule_computed(s, long_one, 64);
    assert_int_equal(server_schedule_done(s, long_one), 64);
    server_schedule_pause(s, long_one, true);
    assert_int_equal(server_schedule_plan(s, items), 0);
    server_schedule_destroy(s);
}

/* The last token of a prompt comes in a step after the others. */
static void test_split_end(void **state) {
    (void)state;
    server_schedule_item items[4];
    server_schedule_params params = usual;
    params.splits_end = true;
    server_schedule *s = make(&params);
    const int32_t entry = add(s, 10, 0);
    admit(s, 0);
    assert_int_equal(server_schedule_plan(s, items), 1);
    assert_int_equal(items[0].n_tok, 9);
    assert_false(items[0].is_last);
    server_schedule_computed(s, entry, 9);
    assert_int_equal(server_schedule_plan(s, items), 1);
    assert_int_equal(items[0].n_tok, 1);
    assert_true(items[0].is_last);
    server_schedule_destroy(s);
}

static void test_order(void **state) {
    (void)state;
    server_schedule *s = make(&usual);
    const int32_t first = add(s, 5, 1), second = add(s, 5, 1);
    const server_entry_params eager = {.n_known = 5, .key = 1, .priority = 1};
    int32_t third = -1;
    OK(server_schedule_add(s, &eager, &third, err));
    assert_int_equal(server_schedule_next(s), third);
    server_schedule_pause(s, third, true);
    assert_int_equal(server_schedule_next(s), first);
    server_schedule_defer(s, first);
    assert_int_equal(server_schedule_next(s), second);
    server_schedule_defer_end(s);
    server_schedule_pause(s, third, false);
    assert_int_equal(server_schedule_next(s), third);
    /* A key that has been served less comes first, though its entry is younger. */
    server_schedule_admit(s, third, 0);
    const int32_t other = add(s, 5, 2);
    /* but a key that is new begins at the count of the others */
    assert_int_equal(server_schedule_next(s), first);
    server_schedule_admit(s, first, 0);
    assert_int_equal(server_schedule_next(s), other);
    assert_int_equal(server_schedule_count(s).n_running, 2);
    assert_int_equal(server_schedule_count(s).n_queued, 2);
    server_schedule_destroy(s);
}

static void test_preemption(void **state) {
    (void)state;
    server_schedule *s = make(&usual);
    const int32_t old = add(s, 5, 1), young = add(s, 5, 1);
    admit(s, 0);
    assert_int_equal(server_schedule_victim(s), -1); /* the only one goes on */
    admit(s, 4);
    const int32_t new = add(s, 5, 2);
    server_schedule_computed(s, young, 1);
    server_schedule_drawn(s, young);
    assert_int_equal(server_schedule_victim(s), young);
    server_schedule_preempt(s, young);
    assert_int_equal(server_schedule_state(s, young), SERVER_ENTRY_PREEMPTED);
    /* Before what has not begun, with all that it knows. */
    assert_int_equal(server_schedule_next(s), young);
    server_schedule_admit(s, young, 0);
    server_schedule_item items[4];
    assert_int_equal(server_schedule_plan(s, items), 2);
    assert_int_equal(items[0].entry, old);
    assert_int_equal(items[1].n_tok, 6);
    assert_int_equal(server_schedule_next(s), new);
    server_schedule_destroy(s);
}

static void test_deadlines(void **state) {
    (void)state;
    server_schedule *s = make(&usual);
    server_entry_params params = {
        .n_known = 1, .queue_deadline = 10, .first_deadline = 20, .total_deadline = 30};
    int32_t a, b;
    OK(server_schedule_add(s, &params, &a, err));
    params.queue_deadline = 5;
    OK(server_schedule_add(s, &params, &b, err));
    assert_int_equal(server_schedule_next_deadline(s), 5);
    assert_int_equal(server_schedule_expired(s, 4), -1);
    assert_int_equal(server_schedule_expired(s, 5), b);
    server_schedule_remove(s, b);
    assert_int_equal(server_schedule_expired(s, 9), -1);
    assert_int_equal(server_schedule_next_deadline(s), 10);
    admit(s, 0); /* the queue's no longer counts */
    assert_int_equal(server_schedule_expired(s, 19), -1);
    assert_int_equal(server_schedule_expired(s, 20), a);
    server_schedule_computed(s, a, 1);
    server_schedule_drawn(s, a);
    assert_int_equal(server_schedule_expired(s, 29), -1);
    assert_int_equal(server_schedule_expired(s, 30), a);
    server_schedule_remove(s, a);
    assert_int_equal(server_schedule_expired(s, 1000), -1);
    assert_int_equal(server_schedule_next_deadline(s), 0);
    server_schedule_destroy(s);
}

/* ---- First tokens ---- */

/* Ticks of the simulated clock that a step takes besides one for each of its tokens. */
enum { STEP_TICKS = 20, N_LONG_PROMPT = 4096 };

/* Computes the next step; returns its ticks. Items whose first token is drawn are counted. */
static uint64_t step_compute(server_schedule *s, const bool *is_short, int32_t *n_first) {
    server_schedule_item items[16];
    uint64_t ticks = STEP_TICKS;
    const int32_t n = server_schedule_plan(s, items);
    for (int32_t i = 0; i < n; i++) {
        ticks += (uint64_t)items[i].n_tok;
        server_schedule_computed(s, items[i].entry, items[i].n_tok);
        if (!items[i].is_last) continue;
        server_schedule_drawn(s, items[i].entry);
        *n_first += is_short[items[i].entry];
    }
    return ticks;
}

/* Short prompts come at a random tick of a step while others read long prompts and generate. Each
 * has its first token before n_step steps have passed. */
static void first_tokens_run(bool splits_end, uint64_t n_step, uint64_t *random) {
    const server_schedule_params params = {.n_running = 16,
                                           .n_queued = 16,
                                           .n_queued_key = 16,
                                           .n_step = 512,
                                           .n_prompt_step = 128,
                                           .splits_end = splits_end};
    server_schedule *s = make(&params);
    bool is_short[64] = {false};
    int32_t n_first = 0, n_short = 0;
    const int32_t n_long = (int32_t)random_u32_below(random, 7),
                  n_generating = (int32_t)random_u32_below(random, 5);
    for (int32_t i = 0; i < n_long; i++) {
        add(s, N_LONG_PROMPT, 0);
        admit(s, 0);
    }
    for (int32_t i = 0; i < n_generating; i++) {
        add(s, 10, 0);
        admit(s, 9);
    }
    for (uint32_t i = random_u32_below(random, 20); i > 0; i--) step_compute(s, is_short, &n_first);
    /* the step in progress, and the ticks of it that are left when they come */
    const uint64_t begun = step_compute(s, is_short, &n_first);
    const uint64_t rest = begun - 1 - random_u32_below(random, (uint32_t)begun - 1);
    for (int32_t n_left = params.n_prompt_step / 2; n_left > 0 && n_short < 4; n_short++) {
        const int32_t n_tok = 1 + (int32_t)random_u32_below(random, (uint32_t)n_left);
        is_short[add(s, n_tok, 1)] = true;
        admit(s, 0);
        n_left -= n_tok;
    }
    /* what a step takes that reads long prompts beside the same generated tokens */
    const uint64_t usual_step =
        STEP_TICKS + (uint64_t)(n_generating > 0 ? params.n_prompt_step + n_generating + n_short
                                                 : params.n_step);
    const uint64_t longest = begun > usual_step ? begun : usual_step;
    uint64_t time = rest;
    for (uint64_t i = 1; i < n_step; i++) time += step_compute(s, is_short, &n_first);
    if (n_first < n_short || time >= n_step * longest)
        fail_msg("%d of %d first tokens after %llu ticks, steps of %llu; %d long prompts, %d "
                 "generate",
                 n_first, n_short, (unsigned long long)time, (unsigned long long)longest, n_long,
                 n_generating);
    server_schedule_destroy(s);
}

static void test_first_token(void **state) {
    (void)state;
    uint64_t random = test_seed("schedule", 1);
    for (int i = 0; i < 2000; i++) {
        first_tokens_run(false, 2, &random);
        first_tokens_run(true, 3, &random);
    }
}

/* ---- Random requests ---- */

enum { PAGE_LEN = 16, N_PAGE = 160, N_KEY = 6, MAX_LIVE = 128, MAX_KNOWN = 1500 };

/* A request of the simulation. */
typedef struct live {
    bool is_used, is_paused;
    uint64_t key, number; /* in the order of their coming */
    int32_t n_prompt, n_answer, n_drawn, n_done;
    int32_t n_page; /* that it has */
    uint64_t came;  /* tokens that all had computed then */
    uint64_t deadline;
} live;

typedef struct world {
    server_schedule *s;
    server_schedule_params params;
    live lives[MAX_LIVE];          /* by entry */
    uint64_t next_number[N_KEY];   /* of the next that comes */
    uint64_t admitted_next[N_KEY]; /* the least number that may be admitted next, in order */
    uint64_t random, now, n_computed;
    int32_t n_page_free;
    int64_t n_added, n_refused, n_finished, n_cancelled, n_late, n_preempted, n_step;
    uint64_t longest; /* wait, in tokens that all computed meanwhile */
} world;

static int32_t below(world *w, uint32_t n) {
    return (int32_t)random_u32_below(&w->random, n);
}

static int32_t pages_of(int32_t n_tok) {
    return (n_tok + PAGE_LEN - 1) / PAGE_LEN;
}

static void world_add(world *w) {
    const uint64_t key = (uint64_t)below(w, N_KEY);
    const int32_t n_prompt = below(w, 20) == 0 ? 1 + below(w, 1200) : 1 + below(w, 80);
    const server_entry_params params = {
        .n_known = n_prompt,
        .key = key,
        .queue_deadline = below(w, 50) == 0 ? w->now + (uint64_t)below(w, 20000) + 1 : 0,
        .total_deadline = below(w, 50) == 0 ? w->now + (uint64_t)below(w, 20000) + 1 : 0};
    int32_t entry;
    if (server_schedule_add(w->s, &params, &entry, NULL) != TDM_OK) {
        assert_int_equal(entry, -1);
        w->n_refused++;
        return;
    }
    assert_in_range(entry, 0, MAX_LIVE - 1);
    assert_false(w->lives[entry].is_used); /* no entry is given twice */
    uint64_t deadline = params.total_deadline;
    if (params.queue_deadline != 0 && (deadline == 0 || params.queue_deadline < deadline))
        deadline = params.queue_deadline;
    w->lives[entry] = (live){.is_used = true,
                             .key = key,
                             .number = w->next_number[key]++,
                             .n_prompt = n_prompt,
                             .n_answer = 1 + below(w, 60),
                             .came = w->n_computed,
                             .deadline = deadline};
    w->n_added++;
}

static void world_remove(world *w, int32_t entry) {
    live *l = &w->lives[entry];
    assert_true(l->is_used);
    server_schedule_remove(w->s, entry);
    assert_int_equal(server_schedule_state(w->s, entry), SERVER_ENTRY_FREE);
    w->n_page_free += l->n_page;
    l->is_used = false;
}

static void world_preempt(world *w, int32_t entry) {
    live *l = &w->lives[entry];
    w->n_page_free += l->n_page;
    l->n_page = l->n_done = 0;
    server_schedule_preempt(w->s, entry);
}

/* Requests leave, and pause, and go on, at random. */
static void world_disturb(world *w) {
    const int32_t entry = below(w, MAX_LIVE);
    live *l = &w->lives[entry];
    if (!l->is_used) return;
    const server_entry_state state = server_schedule_state(w->s, entry);
    const bool is_running = state == SERVER_ENTRY_READING || state == SERVER_ENTRY_GENERATING;
    switch (below(w, 40)) {
    case 0:
        world_remove(w, entry);
        w->n_cancelled++;
        break;
    case 1:
        l->is_paused = true;
        server_schedule_pause(w->s, entry, true);
        if (is_running) world_preempt(w, entry);
        break;
    default:
        if (!l->is_paused) break;
        l->is_paused = false;
        server_schedule_pause(w->s, entry, false);
    }
}

static void world_expire(world *w) {
    for (int32_t entry; (entry = server_schedule_expired(w->s, w->now)) >= 0;) {
        assert_true(w->lives[entry].deadline != 0 && w->lives[entry].deadline <= w->now);
        world_remove(w, entry);
        w->n_late++;
    }
}

static void world_admit(world *w) {
    int32_t entry;
    while ((entry = server_schedule_next(w->s)) >= 0) {
        live *l = &w->lives[entry];
        const server_schedule_counts counts = server_schedule_count(w->s);
        assert_true(counts.n_running < w->params.n_running);
        assert_false(l->is_paused);
        const bool is_new = server_schedule_state(w->s, entry) == SERVER_ENTRY_QUEUED;
        const int32_t n_known = l->n_prompt + l->n_drawn;
        if (pages_of(n_known) + counts.n_running > w->n_page_free) {
            assert_true(counts.n_running > 0); /* one alone always has room */
            break;
        }
        /* A prefix may be there already. */
        l->n_done = n_known > 1 && below(w, 4) == 0 ? below(w, (uint32_t)n_known) : 0;
        l->n_page = pages_of(l->n_done);
        w->n_page_free -= l->n_page;
        server_schedule_admit(w->s, entry, l->n_done);
        if (is_new && w->n_computed - l->came > w->longest) w->longest = w->n_computed - l->came;
        if (!is_new) continue;
        /* Those of a key are admitted in the order of their coming. */
        for (int32_t i = 0; i < MAX_LIVE; i++) {
            const live *o = &w->lives[i];
            if (o->is_used && o->key == l->key && !o->is_paused && i != entry &&
                server_schedule_state(w->s, i) == SERVER_ENTRY_QUEUED)
                assert_true(o->number > l->number);
        }
    }
}

/* Checks a plan, and makes room for it; returns its items, 0 = plan again. */
static int32_t world_plan(world *w, server_schedule_item *items) {
    const int32_t n = server_schedule_plan(w->s, items);
    int32_t n_tok = 0, n_read = 0, n_generating = 0, n_page = 0, n_due = 0, n_readers = 0;
    bool is_in[MAX_LIVE] = {false};
    for (int32_t i = 0; i < n; i++) {
        live *l = &w->lives[items[i].entry];
        const server_entry_state state = server_schedule_state(w->s, items[i].entry);
        const int32_t n_known = l->n_prompt + l->n_drawn;
        assert_true(l->is_used && !l->is_paused && !is_in[items[i].entry]);
        assert_in_range(items[i].n_tok, 1, n_known - l->n_done);
        assert_int_equal(items[i].is_last, l->n_done + items[i].n_tok == n_known);
        is_in[items[i].entry] = true;
        n_tok += items[i].n_tok;
        n_generating += state == SERVER_ENTRY_GENERATING;
        n_read += state == SERVER_ENTRY_READING ? items[i].n_tok : 0;
        n_page += pages_of(l->n_done + items[i].n_tok) - l->n_page;
    }
    assert_true(n_tok <= w->params.n_step);
    if (n_generating > 0) assert_true(n_read <= w->params.n_prompt_step);
    for (int32_t i = 0; i < MAX_LIVE; i++) {
        if (!w->lives[i].is_used || w->lives[i].is_paused) continue;
        n_due += server_schedule_state(w->s, i) == SERVER_ENTRY_GENERATING;
        n_readers += server_schedule_state(w->s, i) == SERVER_ENTRY_READING;
    }
    assert_int_equal(n_due, n_generating); /* each that generates is in each step */
    if (n_readers > 0) assert_true(n_read > 0);
    if (n_page <= w->n_page_free) return n;
    const int32_t victim = server_schedule_victim(w->s);
    assert_true(victim >= 0); /* one alone has room */
    world_preempt(w, victim);
    w->n_preempted++;
    return 0;
}

static void world_compute(world *w, const server_schedule_item *items, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        live *l = &w->lives[items[i].entry];
        l->n_done += items[i].n_tok;
        w->n_page_free -= pages_of(l->n_done) - l->n_page;
        l->n_page = pages_of(l->n_done);
        w->n_computed += (uint64_t)items[i].n_tok;
        w->now += (uint64_t)items[i].n_tok;
        server_schedule_computed(w->s, items[i].entry, items[i].n_tok);
        if (!items[i].is_last) continue;
        l->n_drawn++;
        server_schedule_drawn(w->s, items[i].entry);
        if (l->n_drawn < l->n_answer && l->n_prompt + l->n_drawn < MAX_KNOWN) continue;
        world_remove(w, items[i].entry);
        w->n_finished++;
    }
    assert_true(w->n_page_free >= 0);
    w->now += 10;
    w->n_step++;
}

static int64_t n_wanted = 20000;

static void test_random(void **state) {
    (void)state;
    static world w;
    w = (world){.params = {.n_running = 16,
                           .n_queued = 64,
                           .n_queued_key = 40,
                           .n_step = 96,
                           .n_prompt_step = 48},
                .random = test_seed("schedule", 1),
                .n_page_free = N_PAGE};
    server_schedule_item items[16];
    w.s = make(&w.params);
    while (w.n_added < n_wanted || w.n_finished + w.n_cancelled + w.n_late < w.n_added) {
        /* Busy times, in which the queue is full, and quiet ones. */
        const uint32_t rate = w.n_step / 4096 % 2 == 0 ? 3 : 1;
        for (uint32_t i = 0; i < rate && w.n_added < n_wanted; i++)
            if (below(&w, 3) == 0) world_add(&w);
        world_disturb(&w);
        world_expire(&w);
        world_admit(&w);
        int32_t n;
        while ((n = world_plan(&w, items)) == 0 && server_schedule_count(w.s).n_running > 0) {
        }
        world_compute(&w, items, n);
        const server_schedule_counts c = server_schedule_count(w.s);
        assert_int_equal(c.n_queued + c.n_running + c.n_preempted,
                         w.n_added - w.n_finished - w.n_cancelled - w.n_late);
    }
    const server_schedule_counts c = server_schedule_count(w.s);
    assert_int_equal(c.n_queued + c.n_running + c.n_preempted + c.n_paused, 0);
    assert_int_equal(w.n_page_free, N_PAGE);
    assert_true(w.n_preempted > 0 && w.n_refused > 0 && w.n_late > 0 && w.n_cancelled > 0);
    print_message("%lld requests in %lld steps: %lld finished, %lld cancelled, %lld late; %lld "
                  "refused, %lld preempted; longest wait %llu tokens\n",
                  (long long)w.n_added, (long long)w.n_step, (long long)w.n_finished,
                  (long long)w.n_cancelled, (long long)w.n_late, (long long)w.n_refused,
                  (long long)w.n_preempted, (unsigned long long)w.longest);
    /* A request waits at most for what those before it need: the queue and those that run, of the
     * mean length, computed again now and then, and younger ones of other keys. A request that
     * starves would wait for all that come later. */
    assert_true(w.longest < (uint64_t)(64 + 16) * 1300);
    server_schedule_destroy(w.s);
}

/* One key asks for all it can, another now and then: the second waits for a place, never for the
 * first one's queue; two that ask for all they can get equal parts. */
static void test_fairness(void **state) {
    (void)state;
    server_schedule_item items[4];
    uint64_t served[3] = {0}, random = 5;
    int32_t key_of[64] = {0}, left[64] = {0};
    server_schedule_params params = usual;
    params.n_queued = 24;
    params.n_queued_key = 10;
    server_schedule *s = make(&params);
    for (int step = 0; step < 20000; step++) {
        for (int32_t key = 1; key <= 2; key++) {
            /* Requests of the second are five times as long. */
            const server_entry_params p = {.n_known = key == 1 ? 8 : 40, .key = (uint64_t)key};
            int32_t entry;
            if (server_schedule_add(s, &p, &entry, NULL) != TDM_OK) continue;
            key_of[entry] = key;
            left[entry] = 1 + (int32_t)random_u32_below(&random, key == 1 ? 8 : 40);
        }
        while (server_schedule_next(s) >= 0) admit(s, 0);
        const int32_t n = server_schedule_plan(s, items);
        for (int32_t i = 0; i < n; i++) {
            const int32_t e = items[i].entry;
            server_schedule_computed(s, e, items[i].n_tok);
            served[key_of[e]] += (uint64_t)items[i].n_tok;
            if (!items[i].is_last) continue;
            server_schedule_drawn(s, e);
            if (--left[e] > 0) continue;
            served[key_of[e]]++; /* its last token is drawn and not computed */
            server_schedule_remove(s, e);
        }
    }
    const double ratio = (double)served[1] / (double)served[2];
    if (ratio < 0.95 || ratio > 1.05) fail_msg("parts of %g to 1", ratio);
    server_schedule_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_plan),       cmocka_unit_test(test_split_end),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_preemption),
        cmocka_unit_test(test_deadlines),  cmocka_unit_test(test_first_token),
        cmocka_unit_test(test_fairness),   cmocka_unit_test(test_random),
    };
    if (getenv("TANDEM_CASES") != NULL) n_wanted = atoll(getenv("TANDEM_CASES"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
