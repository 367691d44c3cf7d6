/* SPDX-License-Identifier: MIT
 *
 * stages.h: runs the stages of a placed graph, for schedules (schedule.h) and for adapted devices
 * (adapter.h).
 *
 * Memory of the stages on one device, in order: values that cross, laid out so that those that live
 * at once share no byte; copies of weights that live on another device; temporaries, where the
 * stages overlap one another. The owner of the stages allocates need[d] bytes for device d, and
 * need_in[d] and need_out[d] bytes of INPUT and OUTPUT memory: for what the owner writes and reads
 * itself where the device separates_io, and for values that cross where it separates_borders. It
 * may reallocate them, and then calls tdm_stages_bind again. Everything else (weights, caches, what
 * the caller provides) lies where the owner's tdm_stage_locate_fn says.
 *
 * A value that crosses lies in OUTPUT memory of the device that makes it, and in INPUT memory of
 * the device that reads it, so that the host copies it without a call of a plugin. It does so only
 * where the device need not read that memory again and again over its bus: no node of the device
 * that makes it reads it, and where it arrives one node reads each element once.
 *
 * The host waits between two stages, because it copies what crosses between them. It submits a
 * stage behind that copy, not before with a semaphore to wait for: a plugin's queue keeps waiting
 * work to itself and gives it to the driver when the semaphore is reached, so nothing would begin
 * earlier.
 *
 * Order of calls: tdm_stages_create, memory, tdm_stages_plan, then tdm_stages_bind whenever memory
 * has moved, and tdm_stages_run any number of times. Running allocates, builds, plans and binds
 * nothing. One thread at a time.
 */
#ifndef TANDEM_CORE_STAGES_H
#define TANDEM_CORE_STAGES_H

#include "core/device/runtime_internal.h"
#include "core/stages/cut.h"
#include "core/stages/queue_adapter.h"

#define TDM_NO_PLACE UINT64_MAX /* an offset: not in the memory of the stages */

/* ---- What stages run on ---- */

typedef struct tdm_stage_device {
    tdm_open_device *dev;
    uint64_t align;    /* of offsets, bytes */
    bool places_temps; /* temporaries lie in the memory of the stages; else where the owner says */
    bool separates_io; /* INPUTs and OUTPUTs of the whole graph lie in INPUT and OUTPUT memory */
    bool separates_borders; /* so do values that cross (tdm_stage_separates_borders) */
} tdm_stage_device;

/* Whether values that cross may lie in INPUT and OUTPUT memory of the device: it gives addresses,
 * and its memory is not the host's anyway. [any-thread] */
bool tdm_stage_separates_borders(tdm_open_device *dev, const tdm_device_info *info);

/* Fills *out for a device of a schedule. [any-thread] */
void tdm_stage_device_init(tdm_stage_device *out, tdm_open_device *dev,
                           const tdm_device_info *info);

/* A queue for each device, and the semaphore that each stage signals. */
typedef struct tdm_stage_queues {
    tdm_queue_adapter *queues[TDM_MAX_STAGE_DEVICES];
    tdm_semaphore *semaphore;
    uint64_t semaphore_value; /* last value promised */
} tdm_stage_queues;

/* Runs one plan of a queue of these and waits for it. After a failure the queues may be used again.
 * [queue-serial] */
tdm_status tdm_stage_queues_run(tdm_stage_queues *queues, tdm_device_plan *plan, tdm_error *err);
/* Destroys the queues and the semaphore; those that are NULL are skipped. [setup] */
void tdm_stage_queues_destroy(tdm_stage_queues *queues);

/* Memory of the stages, and host memory for copies between devices that pass through the host. */
typedef struct tdm_stage_memory {
    tdm_mem mem[TDM_MAX_STAGE_DEVICES]; /* need[d] bytes or more */
    tdm_mem in[TDM_MAX_STAGE_DEVICES];  /* need_in[d]; TDM_BUFFER_INPUT */
    tdm_mem out[TDM_MAX_STAGE_DEVICES]; /* need_out[d]; TDM_BUFFER_OUTPUT */
    void *staging;
    uint64_t staging_size;
} tdm_stage_memory;

/* Grows the staging memory to at least `size` bytes. */
tdm_status tdm_stage_memory_grow_staging(tdm_stage_memory *memory, uint64_t size, tdm_error *err);
/* Frees all of it. */
void tdm_stage_memory_free(tdm_stage_memory *memory);

/* ---- Stages ---- */

/* Where slot `slot` of the whole graph lies on device `dev`, in memory that is not the stages'.
 * out->mem.dev NULL: the slot is bound to nothing. */
typedef tdm_status (*tdm_stage_locate_fn)(void *owner, int32_t slot, int32_t dev, tdm_slot_mem *out,
                                          tdm_error *err);

/* One copy with both of its ends. */
typedef struct tdm_bound_copy {
    tdm_slot_mem src, dst; /* sizes are those of the slot */
} tdm_bound_copy;

/* What a stage needs to run, beside its cut. */
typedef struct tdm_stage_exec {
    tdm_device_plan *plan;
    tdm_binding *bindings;  /* [graph->n_slot] */
    uint64_t *temp_off;     /* [graph->n_slot] bytes behind border_size of the stage's device, of
                               temporaries that the stages place; else TDM_NO_PLACE */
    tdm_bound_copy *copies; /* as tdm_stage.copies */
} tdm_stage_exec;

typedef struct tdm_stage_weight {
    tdm_tensor_desc desc;
    uint64_t size; /* bytes in the layout of the device that reads it */
    tdm_bound_copy copy;
} tdm_stage_weight;

typedef struct tdm_stages {
    tdm_cut cut;
    int32_t n_dev;
    tdm_stage_device devs[TDM_MAX_STAGE_DEVICES];
    tdm_stage_exec *execs;                /* [cut.n_stage] */
    tdm_stage_weight *weights;            /* [cut.n_weight] */
    uint64_t *off[TDM_MAX_STAGE_DEVICES]; /* [n_slot] in the memory of the stages, TDM_NO_PLACE */
    uint8_t *area[TDM_MAX_STAGE_DEVICES]; /* [n_slot] which memory that is (stages.c) */
    uint64_t border_size[TDM_MAX_STAGE_DEVICES]; /* bytes in front of the temporaries: values that
                                                    cross and copies of weights */
    uint64_t need[TDM_MAX_STAGE_DEVICES], need_in[TDM_MAX_STAGE_DEVICES],
        need_out[TDM_MAX_STAGE_DEVICES];
    uint64_t staging_size; /* bytes that copies need; 0 = there are none */
} tdm_stages;

/* Cuts the graph and lays out its memory; `devs` has params->n_dev entries. Released with
 * tdm_stages_free; on failure there is nothing to release. [setup] */
tdm_status tdm_stages_create(const tdm_cut_params *params, const tdm_stage_device *devs,
                             tdm_stages *stages_out, tdm_error *err);
/* Frees and clears *stages; a cleared one is a no-op. [setup] */
void tdm_stages_free(tdm_stages *stages);
/* Where slot `slot` of the whole graph lies in the memory of the stages on device d; out->mem.dev
 * is NULL where it does not lie there. [any-thread] */
void tdm_stages_place(const tdm_stages *stages, const tdm_stage_memory *memory, int32_t slot,
                      int32_t d, tdm_slot_mem *out);
/* Makes the plan of each stage, on the queue of its device. The plans are destroyed with the
 * stages, before the queues. [queue-serial] */
tdm_status tdm_stages_plan(tdm_stages *stages, const tdm_stage_queues *queues, tdm_error *err);
/* Adds to *sum what the plans of device `dev` hold, -1 = of all devices; of the scratch, what the
 * largest plan of each device needs. A plan that was not made, or fails to answer, counts as
 * nothing; the last such failure is returned. [any-thread] */
tdm_status tdm_stages_add_plan_info(const tdm_stages *stages, int32_t dev, tdm_plan_info *sum,
                                    tdm_error *err);
/* Computes every address that a run uses and binds the plans. None of them is running.
 * [queue-serial] */
tdm_status tdm_stages_bind(tdm_stages *stages, const tdm_stage_memory *memory,
                           tdm_stage_locate_fn locate, void *owner, tdm_error *err);
/* Copies weight i of the cut to the device that reads it, in that device's layout. Owners call it
 * before a run where the copy is not up to date. [queue-serial] */
tdm_status tdm_stages_copy_weight(const tdm_stages *stages, int32_t i,
                                  const tdm_stage_memory *memory, tdm_error *err);
/* Runs all stages in order and waits for each. Stops at the first failure; nothing is left running,
 * and the stages may be run again. [queue-serial] */
tdm_status tdm_stages_run(const tdm_stages *stages, tdm_stage_queues *queues,
                          const tdm_stage_memory *memory, tdm_error *err);

#endif
