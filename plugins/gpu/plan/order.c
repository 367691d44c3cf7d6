/* SPDX-License-Identifier: MIT
 *
 * order.c: sorts the steps of a plan into rounds, and sets a barrier before each round but the
 * first.
 *
 * Two steps conflict where one writes bytes that the other touches. A step must run in a later
 * round than every earlier step that it conflicts with. It gets the first such round, so that the
 * number of rounds is the length of the longest chain of conflicts: no order needs fewer barriers.
 * Inside a round, steps keep the order in which they were emitted.
 *
 * At this point each area still has memory of its own, so that areas cause no conflicts between
 * steps of different values. Later lay_out.c lets two areas share bytes only where they live in
 * different rounds, which needs no further barriers.
 */
#include <stdlib.h>

#include "plugins/gpu/plan/maker.h"

/* ---- Conflicts ------------------------------------------------------------------------------- */

bool gpu_operands_overlap(const gpu_operand *a, const gpu_operand *b) {
    if (a->space == GPU_SPACE_NONE || a->space != b->space || a->size == 0 || b->size == 0 ||
        (a->space != GPU_SPACE_SCRATCH && a->index != b->index))
        return false;
    return a->off < b->off + b->size && b->off < a->off + a->size;
}

/* ---- Earlier steps that a step conflicts with ------------------------------------------------ */

/* An operand of an earlier step, in the list of its memory. */
typedef struct touch {
    int32_t step;
    int32_t operand;
    int32_t next; /* earlier touch of the same memory; -1 = none */
} touch;

/* The touches of each slot and area, so that only operands of the same memory are compared. */
typedef struct touches {
    touch *all;
    int32_t *last;    /* n_slot + n_area: latest touch; -1 = none */
    bool *is_written; /* likewise; memory that no step writes causes no conflict */
    int32_t n;
} touches;

/* The number of an operand's memory: slots first, then areas; -1 for an empty operand, and for
 * constants and counters, which cause no conflicts (each counter belongs to one step). */
static int32_t memory_of(const gpu_maker *maker, const gpu_operand *o) {
    if (o->size == 0) return -1;
    return o->space == GPU_SPACE_SLOT   ? o->index
           : o->space == GPU_SPACE_AREA ? maker->plan->n_slot + o->index
                                        : -1;
}

static bool touches_make(const gpu_maker *maker, touches *t) {
    size_t n_memory = (size_t)maker->plan->n_slot + (size_t)maker->n_area;
    size_t n_touch = (size_t)maker->plan->n_step * GPU_MAX_OPERAND;
    *t = (touches){.all = malloc((n_touch + 1) * sizeof *t->all),
                   .last = malloc((n_memory + 1) * sizeof *t->last),
                   .is_written = calloc(n_memory + 1, sizeof *t->is_written)};
    if (t->all == NULL || t->last == NULL || t->is_written == NULL) return false;
    for (int32_t i = 0; i < maker->plan->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            const gpu_step *step = &maker->plan->steps[i];
            int32_t memory = memory_of(maker, &step->operand[k]);
            if (memory >= 0 && gpu_kernel_writes(step->kernel, k)) t->is_written[memory] = true;
        }
    return true;
}

static void touches_free(touches *t) {
    free(t->all);
    free(t->last);
    free(t->is_written);
}

static void touches_clear(const gpu_maker *maker, touches *t) {
    for (int32_t i = 0; i < maker->plan->n_slot + maker->n_area; i++) t->last[i] = -1;
    t->n = 0;
}

/* Called for a step that conflicts with the earlier step `before`. */
typedef void (*conflict_fn)(int32_t before, int32_t step, int32_t *rounds, int32_t *limits);

/* Calls `found` for each conflict, in ascending order of the later step. A pair that conflicts in
 * several operands is found several times. */
static void conflicts_find(const gpu_maker *maker, touches *t, conflict_fn found, int32_t *rounds,
                           int32_t *limits) {
    const gpu_step *steps = maker->plan->steps;
    touches_clear(maker, t);
    for (int32_t i = 0; i < maker->plan->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            const gpu_operand *o = &steps[i].operand[k];
            int32_t memory = memory_of(maker, o);
            bool writes = gpu_kernel_writes(steps[i].kernel, k);
            if (memory < 0 || !t->is_written[memory]) continue;
            for (int32_t at = t->last[memory]; at >= 0; at = t->all[at].next) {
                const touch *other = &t->all[at];
                const gpu_step *before = &steps[other->step];
                if (other->step != i &&
                    (writes || gpu_kernel_writes(before->kernel, other->operand)) &&
                    gpu_operands_overlap(&before->operand[other->operand], o))
                    found(other->step, i, rounds, limits);
            }
            t->all[t->n] = (touch){i, k, t->last[memory]};
            t->last[memory] = t->n++;
        }
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static void round_raise(int32_t before, int32_t step, int32_t *rounds, int32_t *limits) {
    (void)limits;
    if (rounds[step] <= rounds[before]) rounds[step] = rounds[before] + 1;
}

/* limits[i]: the earliest round of a step that conflicts with step i and comes after it. */
static void limit_lower(int32_t before, int32_t step, int32_t *rounds, int32_t *limits) {
    if (limits[before] > rounds[step]) limits[before] = rounds[step];
}

/* A step that conflicts with no earlier step is in round 0, perhaps long before its first reader:
 * its result would take scratch in every round in between. Moves it to the round before the first
 * step that conflicts with it. Round 0 is not emptied: a step of round 1 follows a step that
 * stays. */
static void rounds_delay(const gpu_maker *maker, int32_t *rounds, const int32_t *limits) {
    for (int32_t i = 0; i < maker->plan->n_step; i++)
        if (rounds[i] == 0 && limits[i] != INT32_MAX) rounds[i] = limits[i] - 1;
}

/* Sorts the steps by round, in emission order inside a round. `rounds` is by emission order on
 * entry, by the new order on return. */
static bool steps_sort(gpu_plan *plan, int32_t *rounds) {
    size_t n = (size_t)plan->n_step;
    gpu_step *sorted = malloc((n + 1) * sizeof *sorted);
    int32_t *first = calloc(n + 2, sizeof *first); /* first step of each round */
    bool has_memory = sorted != NULL && first != NULL;
    if (has_memory) {
        for (size_t i = 0; i < n; i++) first[rounds[i] + 1]++;
        for (size_t r = 0; r < n; r++) first[r + 1] += first[r];
        for (size_t i = 0; i < n; i++) sorted[first[rounds[i]]++] = plan->steps[i];
        /* first[r] is now the end of round r. */
        for (int32_t r = 0, i = 0; i < plan->n_step; r++) {
            sorted[i].has_barrier = r > 0;
            for (; i < first[r]; i++) rounds[i] = r;
        }
        free(plan->steps);
        plan->steps = sorted;
        sorted = NULL;
    }
    free(sorted);
    free(first);
    return has_memory;
}

bool gpu_maker_order(gpu_maker *maker, int32_t *round_of) {
    size_t n = (size_t)maker->plan->n_step;
    int32_t *limits = malloc((n + 1) * sizeof *limits);
    touches t = {0};
    bool has_memory = limits != NULL && touches_make(maker, &t);
    if (has_memory) {
        for (size_t i = 0; i < n; i++) round_of[i] = 0, limits[i] = INT32_MAX;
        conflicts_find(maker, &t, round_raise, round_of, limits);
        conflicts_find(maker, &t, limit_lower, round_of, limits);
        rounds_delay(maker, round_of, limits);
        has_memory = steps_sort(maker->plan, round_of);
    }
    touches_free(&t);
    free(limits);
    return has_memory;
}
