/* SPDX-License-Identifier: MIT
 *
 * plan.h: the tdm_plan of this plugin: a graph that was cut over a group. It owns a part for each
 * member, the part's memory, and its plans on the member's device. compile.c makes the parts,
 * plan.c their stages, memory and plans, plan_bind.c binds them, queue.c runs them.
 */
#ifndef TANDEM_META_PLAN_H
#define TANDEM_META_PLAN_H

#include "plugins/meta/buffer.h"
#include "plugins/meta/layout/layout.h"
#include "plugins/meta/rules/part.h"

#define META_NOWHERE UINT64_MAX /* the offset of a slot without a place in the plan's memory */

/* One way in which the members hold a value. A value may have several: as it was computed, merged,
 * sliced. */
typedef struct meta_variant {
    int32_t value;  /* of the group's graph */
    int32_t layout; /* id in the plan's layouts */
    /* Of a PARTIAL_SUM: the variant (replicated) to be added when the addends are merged. Of a
     * PARTIAL_LSE: the variant of (m, l). -1 = none */
    int32_t residual;
    int32_t next;                   /* next variant of the same value; -1 = last */
    int32_t local[TDM_MAX_MEMBERS]; /* value in each member's part; -1 = holds nothing */
    bool is_candidates;             /* what TOP_K selected from each member's part of the rows */
} meta_variant;

/* An OUTPUT: where its pieces are after a run. */
typedef struct meta_output {
    int32_t value; /* OUTPUT of the group's graph */
    int32_t variant; /* its pieces */
    bool is_by_page; /* rows of a cache cut by sequence; each member holds the rows of its pages */
    /* The two outputs of a TOP_K with candidates are delivered together. In the output of the
     * values `ids` is the index of the output of the ids, which has is_ids. In every other output:
     * -1. */
    int32_t ids;
    bool is_ids;
} meta_output;

/* The nodes between two exchanges of a member that does not wait for exchanges in its plans. A
 * member that does has one stage. With exchanges by the host, a stage ends before the EXCHANGE node
 * and the next begins behind it. With phases, PUBLISH is the last node of a stage and COLLECT the
 * first of the next. */
typedef struct meta_stage {
    const tdm_graph *graph;
    tdm_graph *own_graph;  /* NULL where the stage is the whole part */
    int32_t *slot_map;     /* slot of graph -> slot of the part; NULL where own_graph is */
    tdm_plan *plan;        /* of the member's device; NULL where the stage has no nodes */
    tdm_binding *bindings; /* [graph->n_slot] */
    /* EXCHANGE node after it that the host performs, or whose flags the host passes (COLLECT);
     * -1 = none */
    int32_t exchange;
} meta_stage;

typedef struct meta_member_plan {
    meta_part part;
    tdm_queue *queue; /* the member's, of the group's queue that the plan belongs to */
    /* [n_slot] offset in the memory of the slot's source (meta_slot_memory); of INPUT slots only
     * where the member does not read the caller's memory; META_NOWHERE for other slots */
    uint64_t *temp_off;
    uint64_t memory_size[META_N_MEMORY]; /* bytes that the plan needs of each */
    meta_stage *stages;
    int32_t n_stage, cap_stage;
    bool is_direct;   /* one stage: it has no exchanges, or performs them in its plan */
    uint8_t *staging; /* host memory for transfers between the member and the host */
    uint64_t staging_size;
    /* [n_slot of the part]; valid for `generation` and `bindings` of the plan */
    tdm_binding *slot_bindings;
} meta_member_plan;

typedef struct meta_exchange_facts {
    int32_t n_exchange;
    int32_t n_relayout; /* of these, gathers for rules that needed another layout */
    uint64_t size;      /* bytes that all members send */
    double moved;       /* bytes that one member reads and writes in exchanges, on average */
} meta_exchange_facts;

struct tdm_plan {
    meta_device *device;
    tdm_queue *queue; /* that it belongs to */
    int32_t division; /* the device's when the graph was cut */
    const tdm_graph *graph;
    meta_layout_set layouts;
    meta_variant *variants;
    int32_t n_variant, cap_variant;
    int32_t *value_variant; /* [n_value] first variant, the one it was computed in; -1 = none */
    meta_output *outputs;
    int32_t n_output;
    uint8_t *candidates; /* room for those of all members, values and ids */
    uint64_t candidates_size;
    int32_t *checks; /* variants that several members hold, to be compared (replicas.h) */
    int32_t n_check, cap_check;
    meta_exchange_facts facts;
    uint64_t data_size;  /* bytes of arena that hold data */
    uint64_t arena_size; /* bytes of arena that the exchanges need */
    uint64_t peer_size;  /* and of peer memory; 0 = none */
    int32_t n_exchange;  /* flag lines in use, per member */
    bool rewrites_step;  /* each member gets its own version of the step block */
    meta_page *pages;    /* [n_page] the member that holds each page, where rewrites_step */
    int64_t n_page;
    meta_member_plan members[TDM_MAX_MEMBERS]; /* inactive ones are empty */
    tdm_binding *bindings; /* [graph->n_slot] as last bound; slot_bindings follow from them */
    bool has_bindings;     /* `bindings` were accepted */
    bool is_bound;         /* the members' plans are bound to them, as of `generation` */
    uint32_t generation;   /* of the device when bound */
    size_t host_size;    /* bytes of host memory held */
    /* Copied from the graph, which may be freed before a plan that a stuck member keeps: numbers
     * when the plan is destroyed, names when it is prepared, since the parts refer to them and
     * there may be no memory later. names_size: bytes allocated */
    int32_t n_value, n_slot;
    char *names;
    size_t names_size;
    meta_pending_release later;
};
typedef tdm_plan meta_plan;

/* Divides the parts into stages and places their values (temp_off, memory_size).
 * Allocates nothing on any device. A step of meta_plan_prepare, which report.c calls alone. Under
 * device->mutex. */
tdm_status meta_plan_lay_out(meta_plan *plan, tdm_error *err);
/* The memory in which a member keeps values of slots with this source (meta_slot_source). */
static inline meta_memory meta_slot_memory(int32_t source) {
    switch (source) {
    case META_SLOT_EPOCH:
    case META_SLOT_STEP:
    case META_SLOT_INPUT: return META_MEMORY_INPUT;
    case META_SLOT_OUTPUT: return META_MEMORY_OUTPUT;
    case META_SLOT_ZEROS: return META_MEMORY_ZEROS;
    default: return META_MEMORY_SCRATCH;
    }
}
/* Grows the members' memory to what the plan needs. After a failure none has changed.
 * Under device->mutex. */
tdm_status meta_plan_grow(meta_plan *plan, tdm_error *err);
/* Makes the parts ready to run: grows the members' memory and the arena, and prepares a member plan
 * for each stage. plan.c. Under device->mutex. */
tdm_status meta_plan_prepare(meta_plan *plan, tdm_error *err);
/* Points every stage's bindings at the caller's buffers and binds the members' plans.
 * [queue-serial], under device->mutex */
tdm_status meta_plan_bind(meta_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                          tdm_error *err);
/* The same with the bindings of the last meta_plan_bind, where memory of the group has moved since;
 * else does nothing. TDM_FAILED_PRECONDITION where the plan is not bound. Under device->mutex */
tdm_status meta_plan_rebind(meta_plan *plan, tdm_error *err);
/* NULL is a no-op. [any-thread] */
void meta_plan_destroy(meta_plan *plan);
/* Frees the members' scratch, input, output and zeros where the group has no plan, so that a closed
 * model leaves nothing on the members. A member that is stuck keeps them. Takes device->mutex. */
void meta_plan_memory_release(meta_device *device);

#endif
