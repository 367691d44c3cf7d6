/* SPDX-License-Identifier: MIT
 *
 * lay_out.c: gives the temporaries of a plan their places in the scratch, by lifetime over rounds.
 */
#include <stdlib.h>

#include "core/base/packing.h"
#include "plugins/gpu/plan/maker.h"

/* Areas begin at multiples of it, bytes, so that kernels read whole cache lines and 16-byte
 * vectors. */
enum { AREA_ALIGN = 256 };

static void lives_find(gpu_maker *maker, const int32_t *round_of) {
    for (int32_t i = 0; i < maker->plan->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            const gpu_operand *o = &maker->plan->steps[i].operand[k];
            if (o->space != GPU_SPACE_AREA) continue;
            gpu_area *area = &maker->areas[o->index];
            if (area->last_round < 0) area->first_round = round_of[i];
            area->last_round = round_of[i];
        }
}

static bool areas_place(gpu_maker *maker) {
    tdm_packed *things = malloc(((size_t)maker->n_area + 1) * sizeof *things);
    int32_t n = 0;
    if (things == NULL) return false;
    for (int32_t i = 0; i < maker->n_area; i++) {
        const gpu_area *area = &maker->areas[i];
        uint64_t size = (area->size + AREA_ALIGN - 1) / AREA_ALIGN * AREA_ALIGN;
        if (area->last_round < 0 || size == 0) continue;
        things[n++] = (tdm_packed){
            .id = i, .first = area->first_round, .last = area->last_round, .size = size};
    }
    bool is_packed = tdm_pack(things, n, &maker->plan->scratch_size);
    for (int32_t i = 0; i < n && is_packed; i++) maker->areas[things[i].id].off = things[i].off;
    free(things);
    return is_packed;
}

static void operands_place(gpu_maker *maker) {
    for (int32_t i = 0; i < maker->plan->n_step; i++)
        for (int k = 0; k < GPU_MAX_OPERAND; k++) {
            gpu_operand *o = &maker->plan->steps[i].operand[k];
            if (o->space != GPU_SPACE_AREA) continue;
            o->space = GPU_SPACE_SCRATCH;
            o->off += maker->areas[o->index].off;
        }
}

bool gpu_maker_lay_out(gpu_maker *maker, const int32_t *round_of) {
    lives_find(maker, round_of);
    if (!areas_place(maker)) return false;
    operands_place(maker);
    return true;
}
