/* SPDX-License-Identifier: MIT
 *
 * exchange_scene.h: members of a group without the group: CPU devices in one process, each with a
 * plan of EXCHANGE nodes over one arena. For tandem-exchange-speed and for the tests of the op,
 * which provide the inputs and check the results; this file only runs the plans.
 */
#ifndef TANDEM_BENCH_EXCHANGE_SCENE_H
#define TANDEM_BENCH_EXCHANGE_SCENE_H

#include "core/device/runtime.h"

enum { SCENE_MAX_MEMBER = 4, SCENE_MAX_NODE = 64 };

typedef struct scene scene;

typedef struct scene_params {
    const char *plugin_path;             /* folder of the CPU plugin */
    int32_t n_member;                    /* 1 .. SCENE_MAX_MEMBER */
    int32_t threads[SCENE_MAX_MEMBER];   /* 0 = 1 */
    const char *isa[SCENE_MAX_MEMBER];   /* NULL = auto */
    const char *cores[SCENE_MAX_MEMBER]; /* NULL = anywhere */
    const char *timeout_ms;              /* milliseconds; NULL = the default */
    uint64_t arena_size;                 /* bytes */
} scene_params;

/* How x and residual lie in memory. */
typedef enum scene_lie {
    SCENE_DENSE = 0,
    SCENE_SLICED,    /* a slice of a larger tensor: gaps between rows */
    SCENE_TRANSPOSED /* axes 0 and 1 swapped in memory: elements apart; no quantised type */
} scene_lie;

/* One exchange as the group sees it. */
typedef struct scene_node {
    tdm_exchange_params params; /* without member, first, whole, first2 and whole2, which are filled
                                   in for each member */
    tdm_type type;              /* of the result */
    int64_t ne[TDM_MAX_DIMS];   /* of the addends; of a GATHER's result */
    int32_t cut[SCENE_MAX_MEMBER + 1];  /* member m has cut[m] .. cut[m + 1] - 1 of params.axis */
    int64_t ne2[TDM_MAX_DIMS];          /* of the second payload, i32, where params.data_off2 > 0 */
    int32_t cut2[SCENE_MAX_MEMBER + 1]; /* of params.axis2 */
    bool has_residual;
    scene_lie lie;
    bool in_chain; /* x comes from a COPY and the result goes through one; no quantised type */
} scene_node;

/* Opens the members, without plans. The caller closes *scene_out. */
tdm_status scene_open(const scene_params *params, scene **scene_out, tdm_error *err);
/* Frees everything; no run may be in progress. NULL is a no-op. */
void scene_close(scene *s);

/* Replaces the plan of every member by one of n_node (1 .. SCENE_MAX_NODE) exchanges. Fails as
 * tdm_graph_verify for a graph that it refuses. */
tdm_status scene_prepare(scene *s, const scene_node *nodes, int32_t n_node, tdm_error *err);

/* The arena: arena_size bytes, zero after scene_open. */
uint8_t *scene_arena(scene *s);
/* Shape of what a member holds of a node: its x (a GATHER's part), or its result and residual. */
void scene_shape_x(const scene *s, int32_t node, int32_t member, int64_t ne_out[TDM_MAX_DIMS]);
void scene_shape_result(const scene *s, int32_t node, int32_t member, int64_t ne_out[TDM_MAX_DIMS]);
/* Sets the x, x2 or residual of a member from canonical bytes; a no-op where it has none. */
void scene_put_x(scene *s, int32_t node, int32_t member, const void *bytes);
void scene_put_x2(scene *s, int32_t node, int32_t member, const int32_t *x2);
void scene_put_residual(scene *s, int32_t node, int32_t member, const float *residual);
/* The result of a member, dense; NULL where it has none. */
void *scene_result(scene *s, int32_t node, int32_t member);
void *scene_result2(scene *s, int32_t node, int32_t member);
/* The exchange_base of runs that start from now on; 0 at first. */
void scene_set_base(scene *s, uint32_t base);

/* Start a run of a member's plan, and wait for its end. One run of a member at a time. */
tdm_status scene_start(scene *s, int32_t member, uint32_t epoch, tdm_error *err);
tdm_status scene_wait(scene *s, int32_t member, tdm_error *err);

#endif
