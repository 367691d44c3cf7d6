/* SPDX-License-Identifier: MIT
 *
 * trial.h: one random case on one device and on a group, and whether they agree. What they must
 * agree on is every output of every step, the rows of every cache where the case exports them, and
 * the weights as they were uploaded; on the group, a step that is run twice gives equal bits.
 */
#ifndef TANDEM_TESTS_TRIAL_H
#define TANDEM_TESTS_TRIAL_H

#include "tests/split/group_rig.h"
#include "tests/split/random_graph.h"

typedef struct trial_result {
    char why[600];     /* what is wrong; empty = nothing */
    double worst;      /* largest NMSE of an output */
    bool is_ill_posed; /* results differ, and would on one device too, from noise in its inputs */
    bool is_refused;   /* the group refused with a documented reason: nothing was compared */
    int32_t n_node, n_output;
    int32_t n_declared; /* layouts that the group took (group_topology.n_declared) */
} trial_result;

/* Runs the case of `c`. partition_base must be new to the rig's group: it takes TRIAL_PARTITIONS
 * ids. */
enum { TRIAL_PARTITIONS = 128 };
void trial_run(group_rig *rig, const group_topology *t, choices *c, int32_t partition_base,
               trial_result *out);

/* The graph as text; the caller frees it. NULL where it cannot be made. */
char *trial_print(choices *c);

#endif
