/* SPDX-License-Identifier: MIT
 *
 * plan_internal.h: the parts of a plan, for its own files: plan.c makes, binds and runs it,
 * plan_memory.c lays out its memory, plan_assign.c divides the work and places the barriers.
 */
#ifndef TANDEM_CPU_PLAN_INTERNAL_H
#define TANDEM_CPU_PLAN_INTERNAL_H

#include "plugins/cpu/exec/claims.h"
#include "plugins/cpu/ops/exchange.h"
#include "plugins/cpu/exec/plan.h"

/* Where a source or destination lies: base address of `slot` plus `off`. */
typedef struct plan_place {
    int32_t slot;  /* -1: absent */
    bool is_state; /* memory that ops may write although it is a source */
    int64_t off;
} plan_place;

typedef struct plan_node {
    cpu_node node; /* data pointers as last bound */
    plan_place src[TDM_MAX_SRC];
    plan_place dst[TDM_MAX_DST];
    int64_t units[TDM_MAX_SRC + TDM_MAX_DST]; /* how each is divided: cpu_op_impl.share_unit */
    cpu_prepared prepared;                    /* size 0: none */
    size_t scratch_size;                      /* bytes; 0 = none */
    /* Areas of plan_memory.c, used only while the plan is made; -1 = none. */
    int32_t scratch_area;
    int32_t prepared_area;
    size_t scratch_off, prepared_off; /* bytes in the plan's scratch, where the node has them */
    int32_t prepared_before; /* of a node that prepares sources: index of the last node before it
                                        that prepares the same ones; -1 = none */
    bool makes_prepared;     /* true: prepares sources; false: the op, which may read them */
    bool writes_state;       /* changes its STATE sources in place */
    bool needs_barrier;      /* before it; as last bound */
    bool is_idle;            /* prepares what is prepared already, and is skipped; as last bound */
} plan_node;

struct tdm_plan {
    cpu_device *device;
    const tdm_graph *graph;
    uint8_t *facts; /* of all nodes */
    size_t facts_used;
    cpu_exchange *exchange_of; /* [n_exchange] */
    cpu_exchanges exchanges;
    cpu_claims *claims_of; /* [n_claims] */
    uint32_t round;        /* counts runs */
    plan_node *nodes;     /* [n_node] the graph's nodes but views, and those that prepare sources */
    uint64_t *slot_sizes; /* [n_slot] bytes that a slot needs; 0 = no node uses it */
    uint8_t **bases;      /* [n_slot] addresses, as last bound; NULL = no node uses the slot */
    cpu_scratch *scratch; /* of the queue */
    cpu_chunk *chunk;     /* chunk of the scratch, as last bound; NULL where scratch_size is 0 */
    size_t scratch_size;  /* bytes for scratch and prepared sources of all nodes */
    size_t plan_size;     /* of this allocation, arrays included */
    int32_t n_node;
    int32_t n_slot;
    int32_t n_exchange;
    int32_t n_claims;
    bool is_bound;
    _Atomic uint64_t *progress; /* of the queue, while a run is under way */
};

/* Lays out the scratch and the prepared sources of every node, and reserves the queue's scratch.
 * [setup] */
tdm_status cpu_plan_memory_make(tdm_plan *plan, tdm_error *err);

/* Chooses the units in which every node divides what it touches among the workers. [setup] */
tdm_status cpu_plan_units_choose(tdm_plan *plan, tdm_error *err);

/* Finds which nodes need a barrier and which sources are prepared already, given the addresses. */
void cpu_plan_barriers_place(tdm_plan *plan);

/* The i-th of a node's sources and, from TDM_MAX_SRC on, destinations. */
static inline const plan_place *cpu_plan_place(const plan_node *p, int32_t i) {
    return i < TDM_MAX_SRC ? &p->src[i] : &p->dst[i - TDM_MAX_SRC];
}

static inline const cpu_view *cpu_plan_view(const plan_node *p, int32_t i) {
    return i < TDM_MAX_SRC ? &p->node.src[i] : &p->node.dst[i - TDM_MAX_SRC];
}

#endif
