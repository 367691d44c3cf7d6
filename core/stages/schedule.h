/* SPDX-License-Identifier: MIT
 *
 * schedule.h: runs a graph on a device with fallbacks.
 *
 * Each node is placed on the first of the devices that supports it, except that a node which reads
 * a WEIGHT or STATE goes where that lives; one that lives nowhere yet goes to the first device that
 * supports every node which reads it. Neighbouring nodes of one device form a stage, a graph
 * and plan of their own; values that cross between stages are copied through the host. An op that
 * the first device refuses is reported once for a device, by name and reason, in the runtime's log.
 *
 * A schedule is made once for each shape and then run any number of times: running builds, plans
 * and allocates nothing. Temporaries of all schedules that share a tdm_scratch overlap, since only
 * one of them runs at a time.
 */
#ifndef TANDEM_CORE_SCHEDULE_H
#define TANDEM_CORE_SCHEDULE_H

#include "core/device/runtime.h"
#include "core/graph/builder.h"
#include "core/stages/cut.h"

/* A compute buffer and a queue for each device. Buffers grow to the need of the largest
 * schedule. */
typedef struct tdm_scratch tdm_scratch;

/* `devs[0]` is the main device. A node that it refuses runs on the first of the others that
 * supports it. [setup] */
tdm_status tdm_scratch_create(tdm_runtime *rt, tdm_open_device *const *devs, int32_t n_dev,
                              tdm_scratch **scratch_out, tdm_error *err);
void tdm_scratch_destroy(tdm_scratch *scratch);
/* Bytes of the buffers that are held now on device i of devs; plans are not counted. */
uint64_t tdm_scratch_size(const tdm_scratch *scratch, int32_t i);

/* Decides which device each node would run on, without preparing anything; dev_out[n_node] gets an
 * index into the scratch's devices. `fixed` is NULL or [n_slot] and says where weights and states
 * live that have been placed before. slot_dev_out (nullable) [n_slot] gets the device of each
 * weight and state that its first reader runs on, through views too; -1 = no node reads it. Used at
 * load time to place weights. TDM_UNSUPPORTED when no device takes a node: names the op, the value
 * and every device's reason. [queue-serial] */
tdm_status tdm_schedule_place(tdm_scratch *scratch, const tdm_graph *graph,
                              const tdm_slot_mem *fixed, int32_t *dev_out, int32_t *slot_dev_out,
                              tdm_error *err);

/* Bytes that a schedule of `graph` would hold on each device, if the scratch had no other: buffers
 * for what crosses and for temporaries, and what the plans and their queues hold. sizes_out[n_dev]
 * as the scratch's devices; weights and states are not counted. `fixed` as above. It makes the
 * plans and keeps nothing. A plan that cannot be made, and those behind it, are left out:
 * tdm_schedule_create gives the reason. [queue-serial] */
tdm_status tdm_schedule_measure(tdm_scratch *scratch, const tdm_graph *graph,
                                const tdm_slot_mem *fixed, uint64_t *sizes_out, tdm_error *err);

typedef struct tdm_schedule tdm_schedule;

/* bindings[n_slot] of the graph: where each WEIGHT and STATE lives (mem.dev is one of the scratch's
 * devices); ignored for the other slots, and copied. Takes ownership of `graph` on success and
 * failure alike. Allocates all memory that running needs, growing the scratch where it must.
 * [setup] */
tdm_status tdm_schedule_create(tdm_scratch *scratch, tdm_graph *graph, const tdm_slot_mem *bindings,
                               tdm_schedule **schedule_out, tdm_error *err);
/* NULL is a no-op. */
void tdm_schedule_destroy(tdm_schedule *schedule);
/* Bytes that its plans hold, on devices and host together. *scratch_out receives what they need of
 * the scratch of the queues: schedules of one tdm_scratch together take the most. */
uint64_t tdm_schedule_plan_size(const tdm_schedule *schedule, uint64_t *scratch_out);

typedef struct tdm_io {
    int32_t value; /* index of an INPUT or OUTPUT value of the graph */
    void *data;    /* read for an INPUT, written for an OUTPUT */
    uint64_t size; /* bytes; at most the value's; a prefix where smaller */
} tdm_io;
/* Uploads inputs (host bytes for each INPUT value named), runs every stage, downloads outputs.
 * Blocks until done. On failure nothing is left running and the schedule may be run again, unless a
 * device was given up (tdm_open_device_is_stuck). [queue-serial] for all schedules of one scratch
 */
tdm_status tdm_schedule_run(tdm_schedule *schedule, const tdm_io *inputs, int32_t n_input,
                            const tdm_io *outputs, int32_t n_output, tdm_error *err);

#endif
