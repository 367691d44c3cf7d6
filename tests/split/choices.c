/* SPDX-License-Identifier: MIT
 *
 * choices.c: see choices.h.
 */
#include "tests/split/choices.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void choices_begin(choices *c, uint64_t seed) {
    c->random = seed;
    c->is_replay = false;
    c->n_kept = c->n = 0;
    memset(c->is_mark, 0, sizeof c->is_mark);
}

void choices_replay(choices *c, const uint32_t *drawn, int n) {
    memmove(c->kept, drawn, (size_t)n * sizeof *drawn);
    c->n_kept = n;
    c->is_replay = true;
    c->n = 0;
    memset(c->is_mark, 0, sizeof c->is_mark);
}

uint32_t choice_below(choices *c, uint32_t n) {
    uint32_t value = 0;
    if (c->n == CHOICES_MAX) return 0;
    if (!c->is_replay)
        value = (uint32_t)(random_u64(&c->random) >> 32) % n;
    else if (c->n < c->n_kept)
        value = c->kept[c->n] % n;
    c->drawn[c->n++] = value;
    return value;
}

bool choice_rarely(choices *c, uint32_t n) {
    return choice_below(c, n) == n - 1;
}

void choice_mark(choices *c) {
    c->is_mark[c->n] = true;
}

/* ---- Shrinking ---- */

typedef struct shrinker {
    bool (*fails)(choices *c, void *context);
    void *context;
    choices *best; /* the smallest that fails */
    choices *trial;
    double deadline;
    int n_trial;
} shrinker;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_smaller(const choices *a, const choices *b) {
    if (a->n != b->n) return a->n < b->n;
    for (int i = 0; i < a->n; i++)
        if (a->drawn[i] != b->drawn[i]) return a->drawn[i] < b->drawn[i];
    return false;
}

static bool try_sequence(shrinker *s, const uint32_t *drawn, int n) {
    if (now() > s->deadline) return false;
    s->n_trial++;
    choices_replay(s->trial, drawn, n);
    if (!s->fails(s->trial, s->context) || !is_smaller(s->trial, s->best)) return false;
    choices *best = s->trial;
    s->trial = s->best;
    s->best = best;
    return true;
}

/* Leaves out numbers first .. last-1. */
static bool try_without(shrinker *s, int first, int last) {
    uint32_t *drawn = malloc(CHOICES_MAX * sizeof *drawn);
    if (drawn == NULL) return false;
    int n = s->best->n - (last - first);
    memcpy(drawn, s->best->drawn, (size_t)first * sizeof *drawn);
    memcpy(drawn + first, s->best->drawn + last, (size_t)(n - first) * sizeof *drawn);
    bool is_good = try_sequence(s, drawn, n);
    free(drawn);
    return is_good;
}

static bool try_number(shrinker *s, int i, uint32_t value) {
    uint32_t old = s->best->drawn[i];
    if (value >= old) return false;
    uint32_t *drawn = malloc(CHOICES_MAX * sizeof *drawn);
    if (drawn == NULL) return false;
    memcpy(drawn, s->best->drawn, (size_t)s->best->n * sizeof *drawn);
    drawn[i] = value;
    bool is_good = try_sequence(s, drawn, s->best->n);
    free(drawn);
    return is_good;
}

static int next_mark(const choices *c, int i) {
    for (i++; i < c->n && !c->is_mark[i]; i++) continue;
    return i < c->n ? i : c->n;
}

/* Leaves out whole things, the later ones first: nothing behind them misses them. */
static bool shrink_things(shrinker *s) {
    bool is_smaller_now = false;
    for (int i = s->best->n - 1; i >= 0; i--)
        if (i < s->best->n && s->best->is_mark[i])
            is_smaller_now |= try_without(s, i, next_mark(s->best, i));
    return is_smaller_now;
}

static bool shrink_numbers(shrinker *s) {
    bool is_smaller_now = false;
    for (int i = 0; i < s->best->n; i++) {
        if (try_number(s, i, 0)) {
            is_smaller_now = true;
            continue;
        }
        /* The least that still fails, by halving the distance. */
        while (i < s->best->n && s->best->drawn[i] > 1 &&
               (try_number(s, i, s->best->drawn[i] / 2) || try_number(s, i, s->best->drawn[i] - 1)))
            is_smaller_now = true;
    }
    return is_smaller_now;
}

int choices_shrink(choices *c, bool (*fails)(choices *c, void *context), void *context,
                   double seconds) {
    choices *pair = malloc(2 * sizeof *pair);
    if (pair == NULL) return 0;
    pair[0] = *c;
    shrinker s = {.fails = fails, .context = context, .best = &pair[0], .trial = &pair[1]};
    s.deadline = now() + seconds;
    bool is_smaller_now = true;
    while (is_smaller_now && now() < s.deadline) {
        is_smaller_now = shrink_things(&s);
        is_smaller_now |= shrink_numbers(&s);
        for (int i = s.best->n - 1; i >= 0; i--)
            if (i < s.best->n) is_smaller_now |= try_without(&s, i, i + 1);
    }
    *c = *s.best;
    int n = s.n_trial;
    free(pair);
    return n;
}
