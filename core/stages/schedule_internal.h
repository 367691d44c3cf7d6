/* SPDX-License-Identifier: MIT
 *
 * schedule_internal.h: what schedule.c and schedule_place.c share. Not for others.
 */
#ifndef TANDEM_CORE_SCHEDULE_INTERNAL_H
#define TANDEM_CORE_SCHEDULE_INTERNAL_H

#include "core/stages/queue_adapter.h"
#include "core/device/runtime_internal.h"
#include "core/stages/schedule.h"

struct tdm_scratch {
    tdm_runtime *rt;
    int32_t n_dev;
    tdm_open_device *devs[TDM_MAX_SCHEDULE_DEVICES];
    tdm_queue_adapter *queues[TDM_MAX_SCHEDULE_DEVICES];
    uint64_t align[TDM_MAX_SCHEDULE_DEVICES];
    bool holds_temps[TDM_MAX_SCHEDULE_DEVICES]; /* TDM_DEVICE_HOLDS_TEMPS */
    tdm_mem mem[TDM_MAX_SCHEDULE_DEVICES];
    uint32_t generation[TDM_MAX_SCHEDULE_DEVICES]; /* grows with each reallocation of mem */
    void *staging;                                 /* for copies that cross the host */
    uint64_t staging_size;
    tdm_semaphore *semaphore;
    uint64_t semaphore_value; /* last value promised */
};

/* As tdm_schedule_place; slot_dev[n_slot] holds the device of a WEIGHT or STATE that has one and
 * -1 for the others, and receives those found. */
tdm_status tdm_schedule_place_slots(tdm_scratch *s, const tdm_graph *graph, int32_t *slot_dev,
                                    int32_t *dev_out, tdm_error *err);

#endif
