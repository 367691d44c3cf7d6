/* SPDX-License-Identifier: MIT
 *
 * solve.h: share = auto: shares that fit the members' memory and finish soonest.
 */
#ifndef TANDEM_META_SOLVE_H
#define TANDEM_META_SOLVE_H

#include "plugins/meta/meta.h"

/* What a model weighs, for the solver. */
typedef struct meta_load {
    tdm_type type;       /* of most bytes of weights */
    uint64_t cut_size;   /* bytes of weights that are cut */
    uint64_t whole_size; /* bytes of weights that every member holds */
    uint64_t read_size;  /* bytes of cut weights that one token reads */
    uint64_t state_size; /* bytes of caches, all together */
    uint64_t host_size;  /* of them, those that no member keeps in memory of its own */
    double n_mac;        /* multiply-adds of one token in cut weights */
} meta_load;

/* Weighs the weights and caches of a graph. [any-thread] */
tdm_status meta_load_weigh(const meta_device *device, const tdm_graph *graph, meta_load *out,
                           tdm_error *err);

/* Gives shares in proportion to `rate`, none above `cap` (both [n]; a cap of 1 or more does not
 * bind), together 1; a member below `least` gets none. TDM_RESOURCE_EXHAUSTED where the caps do not
 * add up to 1. [any-thread] */
tdm_status meta_share_divide(int32_t n, const double *rate, const double *cap, double least,
                             double *share_out, tdm_error *err);

/* Solves for the group's shares by the first graph it is shown, where they are auto; later calls
 * change nothing. Measures if need be. Under device->mutex, before any partition is assigned. */
tdm_status meta_share_solve(meta_device *device, const tdm_graph *graph, tdm_error *err);

#endif
