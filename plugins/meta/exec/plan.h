/* SPDX-License-Identifier: MIT
 *
 * plan.h: a graph cut over a group: a part for each member, its memory and its plans. This is
 * the tdm_plan of the plugin. compile.c makes the parts, plan.c memory, stages and plans,
 * queue.c runs it.
 */
#ifndef TANDEM_META_PLAN_H
#define TANDEM_META_PLAN_H

#include "plugins/meta/buffer.h"
#include "plugins/meta/layout/layout.h"
#include "plugins/meta/rules/part.h"

/* Several variants of one value may exist: as it was computed, merged, sliced. */
typedef struct meta_variant {
    int32_t value;  /* of the group's graph */
    int32_t layout; /* id in the plan's layouts */
    int32_t
        residual; /* PARTIAL_SUM: the variant (replicated) to be added when it is merged; _LSE: the
                         variant of (m, l); -1 = none */
    int32_t next; /* next variant of the same value; -1 = last */
    int32_t local[TDM_MAX_MEMBERS]; /* value in each member's part; -1 = holds nothing */
} meta_variant;

/* Something that the caller reads: where its pieces are after a run. */
typedef struct meta_output {
    int32_t value; /* OUTPUT of the group's graph */
    int32_t variant;
    bool is_by_page; /* rows of a cache cut by sequence: each member has those of its own pages */
} meta_output;

/* A run of nodes between two exchanges that the host does; one for a member that does them in its
 * plan. */
typedef struct meta_stage {
    const tdm_graph *graph;
    tdm_graph *own_graph;  /* NULL where the stage is the whole part */
    int32_t *slot_map;     /* slot of graph -> slot of the part; NULL where own_graph is */
    tdm_plan *plan;        /* of the member's device; NULL where the stage has no nodes */
    tdm_binding *bindings; /* [graph->n_slot] */
    int32_t exchange;      /* node of the part that follows, done by the host; -1 = none */
} meta_stage;

typedef struct meta_member_plan {
    meta_part part;
    /* [n_slot] bytes in the scratch; of INPUT slots too where the member cannot read the caller's
     * memory; UINT64_MAX for other slots */
    uint64_t *temp_off;
    uint64_t temp_size;           /* bytes of scratch */
    uint64_t epoch_off, step_off; /* EPOCH and STEP in the scratch; UINT64_MAX = nowhere */
    meta_stage *stages;
    int32_t n_stage, cap_stage;
    bool is_direct;   /* no exchange of it is the host's: one stage */
    uint8_t *staging; /* host memory for what crosses between the member and the host */
    uint64_t staging_size;
    tdm_binding *slot_bindings; /* [n_slot of the part] by `generation` and the caller's bindings */
} meta_member_plan;

typedef struct meta_exchange_facts {
    int32_t n_exchange;
    int32_t n_relayout; /* of them, for a rule that could not take its sources as they were */
    uint64_t size;      /* bytes that members send, all together */
} meta_exchange_facts;

struct tdm_plan {
    meta_device *device;
    int32_t division; /* the device's when it was cut */
    const tdm_graph *graph;
    meta_layout_set layouts;
    meta_variant *variants;
    int32_t n_variant, cap_variant;
    int32_t *value_variant; /* [n_value] first variant, the one it was computed in; -1 = none */
    meta_output *outputs;
    int32_t n_output;
    int32_t *checks; /* variants of which members hold the same, to be compared (replicas.h) */
    int32_t n_check, cap_check;
    meta_exchange_facts facts;
    uint64_t data_size;  /* bytes of arena that hold data */
    uint64_t arena_size; /* bytes of arena that the exchanges need */
    int32_t n_exchange;  /* exchanges, by the flags they use */
    bool rewrites_step;  /* members see the step block each in their own way */
    meta_page *pages;    /* [n_page] whose the pages of caches are, where rewrites_step */
    int64_t n_page;
    meta_member_plan members[TDM_MAX_MEMBERS]; /* inactive ones are empty */
    tdm_binding *bindings; /* [graph->n_slot] of the last run; what slot_bindings were made for */
    bool is_bound;
    uint32_t generation; /* of the device when bound */
    size_t host_size;    /* bytes of host memory held */
    /* Of the graph, which may be gone when a plan that was left to a member is destroyed. */
    int32_t n_value, n_slot;
    char *names;
    size_t names_size;
};
typedef tdm_plan meta_plan;

/* Cuts a verified graph over the group: parts, variants, outputs, facts, arena_size; no plans and no
 * memory on any device. A node that cannot be done is TDM_UNSUPPORTED with op, value and reason.
 * compile.c. Under device->mutex. */
tdm_status meta_compile(meta_device *device, const tdm_graph *graph, meta_plan **out,
                        tdm_error *err);
/* Stretches of the parts, and where their values lie (temp_off, temp_size, zeros_size); allocates
 * nothing on any device. Part of meta_plan_prepare. Under device->mutex. */
tdm_status meta_plan_lay_out(meta_plan *plan, tdm_error *err);
/* Grows scratch and zeros to what the plan needs: all of them or none. Under device->mutex. */
tdm_status meta_plan_grow(meta_plan *plan, tdm_error *err);
/* Gives the parts memory and plans: grows scratch, zeros and arena. plan.c. Under
 * device->mutex. */
tdm_status meta_plan_prepare(meta_plan *plan, tdm_error *err);
/* Points every stage's bindings at the caller's buffers; nothing where they are as last time.
 * [queue-serial], under device->mutex */
tdm_status meta_plan_bind(meta_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                          tdm_error *err);
/* NULL is a no-op. [any-thread] */
void meta_plan_destroy(meta_plan *plan);

#endif
