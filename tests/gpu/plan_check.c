/* SPDX-License-Identifier: MIT
 *
 * plan_check.c: see plan_check.h. It uses nothing that order.c and lay_out.c computed: it finds
 * rounds and lifetimes in the list of steps.
 */
#include "tests/gpu/plan_check.h"

#include <stdlib.h>
#include <string.h>

/* ---- Ranges ---------------------------------------------------------------------------------- */

/* Bytes of an operand's memory; false where the operand is in none of a finished plan. */
static bool memory_size(const gpu_plan *plan, const gpu_operand *o, uint64_t *size_out) {
    switch (o->space) {
    case GPU_SPACE_SLOT:
        *size_out = o->index >= 0 && o->index < plan->n_slot ? plan->slot_sizes[o->index] : 0;
        return o->index >= 0 && o->index < plan->n_slot;
    case GPU_SPACE_SCRATCH: *size_out = plan->scratch_size; return o->index >= 0;
    case GPU_SPACE_CONSTANT: *size_out = plan->constants_size; return true;
    case GPU_SPACE_COUNTER: *size_out = plan->counters_size; return true;
    default: return false;
    }
}

static tdm_status range_check(const gpu_plan *plan, int32_t i, int k, tdm_error *err) {
    const gpu_operand *o = &plan->steps[i].operand[k];
    const char *kernel = gpu_kernel_name(plan->steps[i].kernel);
    uint64_t size;
    if (o->space == GPU_SPACE_NONE) return TDM_OK;
    if (!memory_size(plan, o, &size))
        return tdm_fail(err, TDM_INTERNAL, "step %d (%s): operand %d is in no memory of the plan",
                        (int)i, kernel, k);
    if (o->space == GPU_SPACE_CONSTANT && gpu_kernel_writes(plan->steps[i].kernel, k))
        return tdm_fail(err, TDM_INTERNAL, "step %d (%s): operand %d writes constants", (int)i,
                        kernel, k);
    if (o->off <= size && o->size <= size - o->off) return TDM_OK;
    return tdm_fail(err, TDM_INTERNAL,
                    "step %d (%s): operand %d ends at byte %llu of memory of %llu bytes", (int)i,
                    kernel, k, (unsigned long long)(o->off + o->size), (unsigned long long)size);
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* True where one of two steps writes bytes that the other touches, so that a barrier must stand
 * between them. With of_one_area, only where they do so in one slot or one area: bytes that two
 * areas share in turn do not count. */
static bool steps_conflict(const gpu_step *a, const gpu_step *b, bool of_one_area) {
    for (int i = 0; i < GPU_MAX_OPERAND; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++)
            if ((gpu_kernel_writes(a->kernel, i) || gpu_kernel_writes(b->kernel, k)) &&
                (!of_one_area || a->operand[i].index == b->operand[k].index) &&
                gpu_operands_overlap(&a->operand[i], &b->operand[k]))
                return true;
    return false;
}

/* Steps of a round may run at the same time, and each counts by itself. */
static bool counters_are_shared(const gpu_step *a, const gpu_step *b) {
    for (int i = 0; i < GPU_MAX_OPERAND; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++)
            if (a->operand[i].space == GPU_SPACE_COUNTER &&
                gpu_operands_overlap(&a->operand[i], &b->operand[k]))
                return true;
    return false;
}

/* Step i against every earlier step; `first` is the first step since the last barrier. */
static tdm_status order_check(const gpu_plan *plan, int32_t i, int32_t first, tdm_error *err) {
    const gpu_step *step = &plan->steps[i];
    for (int32_t k = 0; k < i; k++) {
        const gpu_step *before = &plan->steps[k];
        if (k >= first && steps_conflict(before, step, false))
            return tdm_fail(err, TDM_INTERNAL,
                            "steps %d (%s) and %d (%s) conflict, and no barrier is between them",
                            (int)k, gpu_kernel_name(before->kernel), (int)i,
                            gpu_kernel_name(step->kernel));
        if (counters_are_shared(before, step))
            return tdm_fail(err, TDM_INTERNAL, "steps %d (%s) and %d (%s) have the same counters",
                            (int)k, gpu_kernel_name(before->kernel), (int)i,
                            gpu_kernel_name(step->kernel));
        if (before->order >= step->order && steps_conflict(before, step, true))
            return tdm_fail(err, TDM_INTERNAL,
                            "steps %d (%s) and %d (%s) conflict, and are not in emission order",
                            (int)k, gpu_kernel_name(before->kernel), (int)i,
                            gpu_kernel_name(step->kernel));
    }
    return TDM_OK;
}

/* ---- Owners of scratch ----------------------------------------------------------------------- */

/* Bytes [off, end) of the scratch, last written as a part of `area`. */
typedef struct span {
    uint64_t off, end;
    int32_t area;
} span;

typedef struct owners {
    span *spans; /* in no order; they do not overlap */
    int32_t n, room;
} owners;

static bool owners_add(owners *own, span s) {
    if (s.off >= s.end) return true;
    if (own->n == own->room) {
        int32_t room = own->room == 0 ? 64 : own->room * 2;
        span *grown = realloc(own->spans, (size_t)room * sizeof *grown);
        if (grown == NULL) return false;
        own->spans = grown;
        own->room = room;
    }
    own->spans[own->n++] = s;
    return true;
}

/* The bytes belong to `area` from here on. */
static bool owners_write(owners *own, uint64_t off, uint64_t end, int32_t area) {
    bool has_memory = true;
    for (int32_t i = own->n - 1; i >= 0 && has_memory; i--) {
        span s = own->spans[i];
        if (s.end <= off || end <= s.off) continue;
        own->spans[i] = own->spans[--own->n];
        has_memory = owners_add(own, (span){s.off, s.off < off ? off : s.off, s.area}) &&
                     owners_add(own, (span){s.end > end ? end : s.end, s.end, s.area});
    }
    return has_memory && owners_add(own, (span){off, end, area});
}

/* True where all of the bytes belong to `area`. */
static bool owners_have(const owners *own, uint64_t off, uint64_t end, int32_t area) {
    uint64_t n = 0;
    for (int32_t i = 0; i < own->n; i++) {
        const span *s = &own->spans[i];
        uint64_t from = s->off > off ? s->off : off, to = s->end < end ? s->end : end;
        if (s->area == area && from < to) n += to - from;
    }
    return n == end - off;
}

static tdm_status scratch_check(const gpu_plan *plan, int32_t i, owners *own, tdm_error *err) {
    const gpu_step *step = &plan->steps[i];
    for (int k = 0; k < GPU_MAX_OPERAND; k++) {
        const gpu_operand *o = &step->operand[k];
        if (o->space != GPU_SPACE_SCRATCH || gpu_kernel_writes(step->kernel, k)) continue;
        if (!owners_have(own, o->off, o->off + o->size, o->index))
            return tdm_fail(err, TDM_INTERNAL,
                            "step %d (%s): operand %d reads bytes of temporary %d that no step has "
                            "written, or that another temporary has taken",
                            (int)i, gpu_kernel_name(step->kernel), k, (int)o->index);
    }
    for (int k = 0; k < GPU_MAX_OPERAND; k++) {
        const gpu_operand *o = &step->operand[k];
        if (o->space == GPU_SPACE_SCRATCH && gpu_kernel_writes(step->kernel, k) &&
            !owners_write(own, o->off, o->off + o->size, o->index))
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory to check a plan");
    }
    return TDM_OK;
}

tdm_status gpu_plan_check(const gpu_plan *plan, tdm_error *err) {
    tdm_status status = TDM_OK;
    owners own = {0};
    int32_t first = 0;
    for (int32_t i = 0; i < plan->n_step && status == TDM_OK; i++) {
        if (plan->steps[i].has_barrier) first = i;
        for (int k = 0; k < GPU_MAX_OPERAND && status == TDM_OK; k++)
            status = range_check(plan, i, k, err);
        if (status == TDM_OK) status = order_check(plan, i, first, err);
        if (status == TDM_OK) status = scratch_check(plan, i, &own, err);
    }
    free(own.spans);
    return status;
}
