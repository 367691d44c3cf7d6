/* SPDX-License-Identifier: MIT
 *
 * replay.c: see replay.h.
 */
#include "tests/gpu/replay.h"

#include <string.h>

#include "tests/support/random.h"

typedef struct memory {
    const gpu_plan *plan;
    uint8_t **slots;  /* [n_slot] */
    uint8_t *scratch; /* all areas in their places, or one after the other */
    /* [n_area] what is added to an operand's offset in the plan to give its offset in `scratch`, so
     * that areas lie one after the other; NULL = 0, areas are in their places */
    uint64_t *area_at;
} memory;

static void *room(uint64_t size) {
    void *bytes = malloc((size_t)size + 1);
    if (bytes == NULL) abort();
    return bytes;
}

static uint8_t *bytes_of(const memory *m, const gpu_operand *o) {
    switch (o->space) {
    case GPU_SPACE_SLOT: return m->slots[o->index] + o->off;
    case GPU_SPACE_CONSTANT: return m->plan->constants + o->off;
    case GPU_SPACE_SCRATCH:
        return m->scratch + (uint64_t)(o->off + (m->area_at == NULL ? 0 : m->area_at[o->index]));
    default: return NULL;
    }
}

static uint64_t hash_bytes(uint64_t h, const uint8_t *bytes, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

static void garbage(uint8_t *bytes, uint64_t n, uint64_t seed) {
    for (uint64_t i = 0; i < n; i++) {
        if (i % 8 == 0) random_u64(&seed);
        bytes[i] = (uint8_t)(seed >> i % 8 * 8);
    }
}

static void step_run(const memory *m, const gpu_step *step) {
    uint64_t h = UINT64_C(0xcbf29ce484222325) + (uint64_t)step->order;
    for (int k = 0; k < GPU_MAX_OPERAND; k++) {
        const gpu_operand *o = &step->operand[k];
        if (o->space != GPU_SPACE_NONE && !gpu_kernel_writes(step->kernel, k))
            h = hash_bytes(h + (uint64_t)k, bytes_of(m, o), o->size);
    }
    for (int k = 0; k < GPU_MAX_OPERAND; k++) {
        const gpu_operand *o = &step->operand[k];
        if (o->space != GPU_SPACE_NONE && gpu_kernel_writes(step->kernel, k))
            garbage(bytes_of(m, o), o->size, h + (uint64_t)k);
    }
}

/* The range of an area's bytes that steps name; *end_out is 0 where no step names any. */
static void area_range(const gpu_plan *plan, int32_t area, uint64_t *first_out, uint64_t *end_out) {
    *first_out = UINT64_MAX;
    *end_out = 0;
    for (int32_t i = 0; i < plan->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            const gpu_operand *o = &plan->steps[i].operand[k];
            if (o->space != GPU_SPACE_SCRATCH || o->index != area) continue;
            if (o->off < *first_out) *first_out = o->off;
            if (o->off + o->size > *end_out) *end_out = o->off + o->size;
        }
}

/* Gives every area bytes of its own. Returns the sum of their sizes. */
static uint64_t areas_part(memory *m) {
    int32_t n_area = 0;
    uint64_t size = 0, first, end;
    for (int32_t i = 0; i < m->plan->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            const gpu_operand *o = &m->plan->steps[i].operand[k];
            if (o->space == GPU_SPACE_SCRATCH && o->index >= n_area) n_area = o->index + 1;
        }
    m->area_at = room((uint64_t)n_area * sizeof *m->area_at);
    for (int32_t a = 0; a < n_area; a++) {
        area_range(m->plan, a, &first, &end);
        m->area_at[a] = size - first; /* may wrap; an operand's offset is added to it */
        if (end > 0) size += end - first;
    }
    return size;
}

/* The steps' numbers in the order in which they run. */
static int32_t *order_make(const gpu_plan *plan, replay_way way, uint64_t seed) {
    int32_t *order = room((uint64_t)plan->n_step * sizeof *order), first = 0;
    for (int32_t i = 0; i < plan->n_step; i++) {
        if (way == REPLAY_EMITTED) {
            order[plan->steps[i].order] = i;
            continue;
        }
        if (plan->steps[i].has_barrier) first = i;
        int32_t at = first + (int32_t)random_u32_below(&seed, (uint32_t)(i - first + 1));
        order[i] = order[at];
        order[at] = i;
    }
    return order;
}

uint64_t replay(const gpu_plan *plan, replay_way way, uint64_t seed) {
    memory m = {.plan = plan, .slots = room((uint64_t)plan->n_slot * sizeof *m.slots)};
    uint64_t size = way == REPLAY_EMITTED ? areas_part(&m) : plan->scratch_size, h = 0;
    int32_t *order = order_make(plan, way, seed);
    m.scratch = room(size);
    garbage(m.scratch, size, seed);
    for (int32_t s = 0; s < plan->n_slot; s++) {
        m.slots[s] = room(plan->slot_sizes[s]);
        garbage(m.slots[s], plan->slot_sizes[s], (uint64_t)s * 31);
    }
    for (int32_t i = 0; i < plan->n_step; i++) step_run(&m, &plan->steps[order[i]]);
    for (int32_t s = 0; s < plan->n_slot; s++) {
        h = hash_bytes(h, m.slots[s], plan->slot_sizes[s]);
        free(m.slots[s]);
    }
    free(m.slots);
    free(m.scratch);
    free(m.area_at);
    free(order);
    return h;
}
