/* SPDX-License-Identifier: MIT
 *
 * cut.h: a placed graph, cut into stages.
 *
 * A stage is a run of neighbouring nodes of one device, as a graph of its own. It has no weights
 * and states that only views read: they may live on another device. A value crosses when it is an
 * INPUT or OUTPUT of a stage: one stage makes it and another reads it, or the caller writes or
 * reads it. A plain WEIGHT (without usage flags) that lives on another device becomes an INPUT of
 * the stage too, but does not cross: its copy outlasts a run. The cut says which values cross, on
 * which devices and for how long they need memory, and which of them are copied from one device to
 * another, and when. It allocates no device memory and makes no plans: stages.h does. The report of
 * llm/report.c uses the cut alone.
 *
 * plugins/meta has a cut of its own: it cuts at collectives, not between devices, and a plugin
 * links nothing of the core but core/base.
 */
#ifndef TANDEM_CORE_CUT_H
#define TANDEM_CORE_CUT_H

#include "tandem/graph.h"
#include "tandem/status.h"

#define TDM_MAX_STAGE_DEVICES 8

/* The bytes of one slot, copied from device `from` to device `to`. */
typedef struct tdm_stage_copy {
    int32_t slot; /* of the whole graph */
    int32_t from, to;
} tdm_stage_copy;

typedef struct tdm_stage {
    int32_t dev;
    const tdm_graph *graph; /* own_graph, or the whole graph where that is one stage, has nothing
                               that is not read and reads no weights of another device */
    tdm_graph *own_graph;
    int32_t *slot_map;      /* [graph->n_slot] slot of the stage -> slot of the whole graph */
    tdm_stage_copy *copies; /* [n_before + n_after] first those made before the stage runs, then
                               those made after it */
    int32_t n_before, n_after;
} tdm_stage;

/* A slot of the whole graph. */
typedef struct tdm_cut_slot {
    int32_t value;       /* that has the slot */
    uint64_t size;       /* canonical bytes */
    int32_t home;        /* device whose stage makes it; -1 = none does */
    int32_t first, last; /* stages, both included, between which it needs memory; first -1 = it
                            does not cross */
    uint32_t devs;       /* bit d: it needs memory on device d */
} tdm_cut_slot;

typedef struct tdm_cut_params {
    const tdm_graph *graph;  /* must outlive the cut */
    const int32_t *node_dev; /* [n_node] device of each node */
    int32_t n_dev;           /* 1 .. TDM_MAX_STAGE_DEVICES */
    const int32_t *slot_dev; /* [n_slot] device of each WEIGHT and STATE, -1 = unknown; NULL = all
                                unknown */
    /* Device whose memory the caller provides for every INPUT and OUTPUT of the graph; an OUTPUT
     * that is made elsewhere is copied there. -1 = none: the stages have memory for an INPUT on
     * each device that reads it, which the caller fills, and for an OUTPUT where it is made. */
    int32_t caller_dev;
} tdm_cut_params;

typedef struct tdm_cut {
    const tdm_graph *graph;
    tdm_stage *stages;
    int32_t n_stage;         /* 0 for a graph without nodes */
    tdm_cut_slot *slots;     /* [graph->n_slot] */
    tdm_stage_copy *weights; /* [n_weight] WEIGHTs that a stage reads on another device than the one
                                they live on; one entry for each slot and reading device */
    int32_t n_weight;
    uint64_t copied_size; /* bytes of all copies of one run, without those of weights */
    uint64_t max_copy;    /* bytes of the largest of them */
} tdm_cut;

/* Fills *cut_out. Released with tdm_cut_free; on failure there is nothing to release.
 * [any-thread] */
tdm_status tdm_cut_make(const tdm_cut_params *params, tdm_cut *cut_out, tdm_error *err);
/* Frees and clears *cut; a cleared one is a no-op. [any-thread] */
void tdm_cut_free(tdm_cut *cut);

/* Name of the value that has the slot, for messages. Lives as long as the graph. [any-thread] */
const char *tdm_cut_slot_name(const tdm_cut *cut, int32_t slot);
/* The description of a weight of a graph, without its partition. [any-thread] */
tdm_tensor_desc tdm_weight_desc(const tdm_value *value);

#endif
