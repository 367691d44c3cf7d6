/* SPDX-License-Identifier: MIT
 *
 * split.h: how a value is laid out over the members of a group, and the functions for it.
 *
 * A split value is described in linear element order, not by axis: a pattern of segments, cut into
 * units of `inner` consecutive elements, that repeats `outer` times:
 *
 *     outer x [ segment 0 | segment 1 | ... ] x inner      member d holds units lo .. hi-1 of each
 *
 * so that a reshape of contiguous data leaves the description as it is. Ranges may be empty and
 * may overlap (a KV head held by two members); together they cover every unit; the lowest holder
 * of a unit owns it: it saves and sends.
 */
#ifndef TANDEM_SPLIT_H
#define TANDEM_SPLIT_H

#include "tandem/graph.h"
#include "tandem/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TDM_MAX_MEMBERS 64

typedef enum tdm_layout_kind {
    TDM_LAYOUT_UNSET = 0,
    TDM_LAYOUT_REPLICATED,  /* all of it everywhere */
    TDM_LAYOUT_PARTIAL_SUM, /* each member holds an addend of the full shape */
    TDM_LAYOUT_PARTIAL_LSE, /* each member holds attention over part of the sequence, with (m, l) */
    TDM_LAYOUT_SPLIT
} tdm_layout_kind;

/* Of a REPLICATED value. */
typedef enum tdm_replica {
    TDM_REPLICA_EQUIVALENT = 0, /* members computed it: equal but for rounding */
    TDM_REPLICA_EXACT           /* uploaded or delivered: equal by bits */
} tdm_replica;

typedef struct tdm_layout_segment {
    int64_t n_unit;
    int64_t lo[TDM_MAX_MEMBERS]; /* first unit member d holds */
    int64_t hi[TDM_MAX_MEMBERS]; /* one past the last; lo == hi = none */
} tdm_layout_segment;

typedef struct tdm_layout {
    size_t struct_size;
    int32_t kind;    /* tdm_layout_kind */
    int32_t replica; /* tdm_replica */
    int32_t n_member;
    int32_t n_segment; /* 1 .. TDM_MAX_SEGMENTS where kind is SPLIT, else 0 */
    int64_t outer;
    int64_t inner; /* elements of a unit */
    tdm_layout_segment segments[TDM_MAX_SEGMENTS];
} tdm_layout;

/* What running a graph takes of one member of a group, and the predicted time. */
typedef struct tdm_split_member {
    char name[32];            /* as the configuration calls it */
    char plugin[32];          /* of the device */
    double share;             /* of the work, 0 .. 1; 0 = the member is left out */
    uint64_t weight_size;     /* bytes of WEIGHT values on this member */
    uint64_t replicated_size; /* of them, bytes that every member holds */
    uint64_t state_size;      /* bytes of STATE values */
    uint64_t compute_size;    /* temporaries, inputs, plan, staging, its part of the arena */
    uint64_t memory_total;    /* bytes; 0 = unknown */
    uint64_t memory_free;     /* before anything is allocated; 0 = unknown */
    double bandwidth;         /* bytes per second as measured; 0 = not measured */
    double arithmetic;        /* multiply-adds per second as measured; 0 = not measured */
    double seconds;           /* expected for its own nodes in one run; 0 = not measured */
    uint64_t run_ns;          /* since open: in nodes of its own */
    uint64_t exchange_ns;     /* since open: in exchanges, waiting for others included */
    char transport[64];       /* how it exchanges, for people */
    uint64_t whole_size;      /* bytes of compute_size, at most, that do not shrink with the share:
                                 values that every member holds whole, at the moment when most of
                                 them live, plan, staging, its part of the arena */
    uint64_t host_state_size; /* bytes of state_size in the host's memory instead of its own
                                 (TDM_KV_IN_HOST) */
    uint64_t crossing_size;   /* bytes that cross in one run between its device and the CPU, where
                                 that runs nodes that the device refuses, or those on a cache in
                                 the host's memory */
} tdm_split_member;

typedef struct tdm_split_report {
    size_t struct_size;
    size_t member_size;        /* sizeof(tdm_split_member) of the caller: the stride of members */
    tdm_split_member *members; /* [capacity], the caller's; NULL = none wanted */
    int32_t capacity;
    int32_t n_member;
    int32_t n_exchange;      /* in one run */
    int32_t n_relayout;      /* of them, gathers of split values that an op needs whole */
    uint64_t exchange_size;  /* bytes that cross between members in one run, all of them together */
    double exchange_seconds; /* expected for the exchanges of one run */
    double seconds;          /* expected for one run as the group would run it; 0 = unknown */
    double layer_seconds;    /* expected if whole layers were assigned instead; 0 = unknown */
    uint64_t n_run;          /* since open */
    int32_t is_brief; /* the caller's: 1 = counts and bytes are enough: nothing is measured for
                                the answer, and times are 0 where nothing was measured before */
    int32_t reserved; /* 0 */
} tdm_split_report;

/* Optional table of a plugin. split_unit serves every device; the others a group. */
typedef struct tdm_split_ops {
    size_t struct_size;

    /* The smallest slice of `axis` of a value that the device's kernels take without loss: the
     * count of elements that every cut should be a multiple of. 1 where any cut is possible.
     * Absent: the type's block length along axis 0, 1 elsewhere. [any-thread] */
    tdm_status (*split_unit)(tdm_device *device, const tdm_graph *graph, int32_t value,
                             int32_t axis, int64_t *unit_out, tdm_error *err);

    /* Declares how a value must be laid out over the group, overriding what it would infer.
     * TDM_UNSUPPORTED names the op that could not take it, and leaves what was declared before.
     * Holds for this graph, known by address and hash, until declared anew. Before graph_prepare.
     * [setup] */
    tdm_status (*split_set)(tdm_device *group, const tdm_graph *graph, int32_t value,
                            const tdm_layout *layout, tdm_error *err);

    /* How a value of a prepared plan is laid out. [any-thread] */
    tdm_status (*split_get)(tdm_device *group, const tdm_plan *plan, int32_t value,
                            tdm_layout *layout_out, tdm_error *err);

    /* Shows the group a graph that holds every weight and state of a model, before any of them is
     * given memory: the group assigns the units of every partition in it, once, for all graphs and
     * descriptions that name its id. Ids assigned before keep their shares. The graph
     * is read during the call only. Required before tensor_size, alloc and graph_prepare see a
     * partition. [setup] */
    tdm_status (*split_prepare)(tdm_device *group, const tdm_graph *graph, tdm_error *err);

    /* Reports what running `graph` takes, without allocating any of it; after split_prepare. Fills
     * *report as far as its struct_size goes and up to `capacity` members. [setup] */
    tdm_status (*split_report)(tdm_device *group, const tdm_graph *graph, tdm_split_report *report,
                               tdm_error *err);
} tdm_split_ops;

#ifdef __cplusplus
}
#endif

#endif
