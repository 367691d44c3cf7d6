/* SPDX-License-Identifier: MIT
 *
 * lay_out.c: gives the temporaries of a plan their places in the scratch, by lifetime over the
 * steps, and marks the steps that need a barrier.
 */
#include <stdlib.h>

#include "plugins/gpu/plan/maker.h"

enum { AREA_ALIGN = 256 };

/* ---- Places ---------------------------------------------------------------------------------- */

static bool lives_with(const gpu_area *a, const gpu_area *b) {
    return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/* Each area in turn is put at the lowest offset that is free for its whole life. Quadratic in the
 * number of areas alive at a time; plans have tens. */
static void areas_place(gpu_maker *maker) {
    for (int32_t i = 0; i < maker->n_area; i++) {
        gpu_area *area = &maker->areas[i];
        uint64_t size = (area->size + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
        bool has_moved = true;
        area->off = 0;
        if (area->last_step < 0) continue;
        while (has_moved) {
            has_moved = false;
            for (int32_t j = 0; j < i; j++) {
                const gpu_area *other = &maker->areas[j];
                uint64_t end =
                    other->off + (other->size + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
                if (other->last_step < 0 || !lives_with(area, other) || area->off >= end ||
                    other->off >= area->off + size)
                    continue;
                area->off = end;
                has_moved = true;
            }
        }
        if (area->off + size > maker->plan->scratch_size)
            maker->plan->scratch_size = area->off + size;
    }
}

static void operands_place(gpu_maker *maker) {
    for (int32_t i = 0; i < maker->plan->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            gpu_operand *o = &maker->plan->steps[i].operand[k];
            if (o->space != GPU_SPACE_AREA) continue;
            o->space = GPU_SPACE_SCRATCH;
            o->off += maker->areas[o->index].off;
            o->index = 0;
        }
}

/* ---- Barriers -------------------------------------------------------------------------------- */

static bool overlaps(const gpu_operand *a, const gpu_operand *b) {
    return a->space != GPU_SPACE_NONE && a->space == b->space && a->index == b->index &&
           a->off < b->off + b->size && b->off < a->off + a->size;
}

bool gpu_steps_conflict(const gpu_step *a, const gpu_step *b) {
    for (int i = 0; i < GPU_MAX_OPERAND; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++)
            if ((gpu_kernel_writes(a->kernel, i) || gpu_kernel_writes(b->kernel, k)) &&
                overlaps(&a->operand[i], &b->operand[k]))
                return true;
    return false;
}

static void barriers_set(gpu_plan *plan) {
    int32_t since = 0; /* first step behind the last barrier */
    for (int32_t i = 0; i < plan->n_step; i++)
        for (int32_t k = since; k < i; k++)
            if (gpu_steps_conflict(&plan->steps[k], &plan->steps[i])) {
                plan->steps[i].has_barrier = true;
                since = i;
                break;
            }
}

tdm_status gpu_maker_lay_out(gpu_maker *maker, tdm_error *err) {
    (void)err;
    areas_place(maker);
    operands_place(maker);
    barriers_set(maker->plan);
    return TDM_OK;
}
