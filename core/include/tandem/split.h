/* SPDX-License-Identifier: MIT
 *
 * split.h: how a value is laid out over the members of a group, and the hooks that say so.
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

/* Optional table of a plugin. split_unit serves every device; the others a group. */
typedef struct tdm_split_ops {
    size_t struct_size;

    /* The smallest slice of `axis` of a value that the device's kernels take without loss: the
     * count of elements that every cut should be a multiple of. 1 where the device does not care.
     * Absent: the type's block length along axis 0, 1 elsewhere. [any-thread] */
    tdm_status (*split_unit)(tdm_device *device, const tdm_graph *graph, int32_t value,
                             int32_t axis, int64_t *unit_out, tdm_error *err);

    /* Declares how a value must be laid out over the group, overriding what it would infer.
     * TDM_UNSUPPORTED names the op that could not take it. Before graph_prepare. [setup] */
    tdm_status (*split_set)(tdm_device *group, const tdm_graph *graph, int32_t value,
                            const tdm_layout *layout, tdm_error *err);

    /* How a value of a prepared plan is laid out. [any-thread] */
    tdm_status (*split_get)(tdm_device *group, const tdm_plan *plan, int32_t value,
                            tdm_layout *layout_out, tdm_error *err);
} tdm_split_ops;

#ifdef __cplusplus
}
#endif

#endif
