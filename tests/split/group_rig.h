/* SPDX-License-Identifier: MIT
 *
 * group_rig.h: one CPU device, and a group of several, under one runtime; graphs with their weights
 * and caches on either, to be run on the same numbers. It judges nothing: the tests do. Every
 * function reports failure by status, so that a test can go on to make the failing case smaller.
 *
 * Plugins are found as users' are, through TANDEM_PLUGIN_PATH, which meson sets.
 */
#ifndef TANDEM_TESTS_GROUP_RIG_H
#define TANDEM_TESTS_GROUP_RIG_H

#include "core/graph/builder.h"
#include "core/stages/schedule.h"
#include "tests/split/choices.h"

/* How a group is configured. Words are those of its section in an INI file. */
typedef struct group_topology {
    int32_t n_member; /* 0: no group, only the one device */
    int32_t shares[TDM_MAX_MEMBERS];
    const char *path; /* of every device: "reference" or "fast" */
    /* of every second member; NULL and 0: as the others */
    const char *odd_path, *odd_isa;
    int32_t odd_threads;
    const char *split, *attention, *experts, *reduce_type, *check;
    int32_t n_thread;  /* of the one device; 0 = 1 */
    bool is_nested;    /* the first two members are a group of their own */
    bool is_scattered; /* sums cross in two exchanges wherever that is possible */
    /* Two plain devices to be compared instead: group_rig_single and group_rig_group. NULL = the
     * CPU and the group. Their names are not read. `path` gives their precision. */
    const tdm_device_spec *one, *other;
    int32_t n_declared; /* values whose layouts trials declare at random, at most; not of nested */
} group_topology;

/* A random one; 0s are one member. */
void group_topology_draw(choices *c, group_topology *out);
/* As it would stand in an INI file, on one line. */
void group_topology_print(const group_topology *t, char *text, size_t text_size);

typedef struct group_rig group_rig;
/* Opens runtime, devices and group. */
tdm_status group_rig_open(const group_topology *t, group_rig **rig_out, tdm_error *err);
void group_rig_close(group_rig *rig); /* NULL is a no-op */
tdm_open_device *group_rig_single(const group_rig *rig);
/* NULL where there is no group. */
tdm_open_device *group_rig_group(const group_rig *rig);
/* Warnings and errors that the plugins have logged, the last of them. */
int group_rig_n_warning(const group_rig *rig);
const char *group_rig_warning(const group_rig *rig);

/* Weights and caches of one model, so to speak, on one device. */
typedef struct group_load group_load;

/* Canonical bytes of a WEIGHT, to be freed by the rig. */
typedef void *(*group_weight_fn)(void *context, const tdm_graph *graph, int32_t value);

/* Prepares a group for the graph (made with any page sizes). Does nothing on a plain device. */
tdm_status group_load_prepare(group_rig *rig, tdm_open_device *dev, const tdm_graph *graph,
                              tdm_error *err);
/* Gives every WEIGHT and STATE of the graph memory and uploads the weights. */
tdm_status group_load_create(group_rig *rig, tdm_open_device *dev, const tdm_graph *graph,
                             group_weight_fn weight, void *context, group_load **load_out,
                             tdm_error *err);
/* NULL is a no-op. Its schedules have been destroyed. */
void group_load_destroy(group_load *load);

/* A schedule for a graph whose weights and states are (by name) those of the load; takes the graph,
 * on failure too. */
tdm_status group_load_schedule(group_load *load, tdm_graph *graph, tdm_schedule **schedule_out,
                               tdm_error *err);
/* Reads back every weight and compares it with what was uploaded. */
tdm_status group_load_verify(group_load *load, const tdm_graph *graph, group_weight_fn weight,
                             void *context, tdm_error *err);

#endif
