/* SPDX-License-Identifier: MIT
 *
 * schedule_internal.h: what schedule.c and schedule_place.c share, and what tests read.
 */
#ifndef TANDEM_CORE_SCHEDULE_INTERNAL_H
#define TANDEM_CORE_SCHEDULE_INTERNAL_H

#include "core/stages/schedule.h"
#include "core/stages/stages.h"

struct tdm_scratch {
    tdm_runtime *rt;
    int32_t n_dev;
    tdm_stage_device devs[TDM_MAX_STAGE_DEVICES];
    tdm_stage_queues queues;
    tdm_stage_memory memory;
    uint8_t *in_host[TDM_MAX_STAGE_DEVICES];  /* where the host writes memory.in; NULL = uploads */
    uint8_t *out_host[TDM_MAX_STAGE_DEVICES]; /* where it reads memory.out; NULL = downloads */
    uint32_t generation[TDM_MAX_STAGE_DEVICES]; /* grows with each reallocation of memory */
};

struct tdm_schedule {
    tdm_scratch *scratch;
    tdm_graph *graph;
    tdm_slot_mem *outside; /* [n_slot] where weights and states live */
    tdm_stages stages;
    uint32_t generation[TDM_MAX_STAGE_DEVICES]; /* of the scratch when the stages were bound */
};

/* As tdm_schedule_place; slot_dev[n_slot] holds the device of a WEIGHT or STATE that has one and
 * -1 for the others, and receives those found. */
tdm_status tdm_schedule_place_slots(tdm_scratch *s, const tdm_graph *graph, int32_t *slot_dev,
                                    int32_t *dev_out, tdm_error *err);
/* [n_slot] the scratch's device of each slot in fixed[n_slot], NULL = none; -1 = it has none. Owned
 * by the caller; NULL without memory. */
int32_t *tdm_schedule_slot_devs(const tdm_scratch *scratch, const tdm_graph *graph,
                                const tdm_slot_mem *fixed, tdm_error *err);

#endif
