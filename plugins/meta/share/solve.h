/* SPDX-License-Identifier: MIT
 *
 * solve.h: share = auto: the shares that fit the members' memory and give the shortest time.
 */
#ifndef TANDEM_META_SOLVE_H
#define TANDEM_META_SOLVE_H

#include "plugins/meta/meta.h"

/* Sizes of a model, for the solver. */
typedef struct meta_load {
    tdm_type type;       /* of most bytes of weights */
    uint64_t cut_size;   /* bytes of weights that are cut */
    uint64_t whole_size; /* bytes of weights that every member holds */
    uint64_t read_size;  /* bytes of cut weights that one token reads */
    uint64_t state_size; /* bytes of all caches */
    uint64_t host_size;  /* of these, bytes in host memory */
    double n_mac;        /* multiply-adds of one token in cut weights */
} meta_load;

/* Adds up the sizes of the weights and caches of a graph. [any-thread] */
tdm_status meta_load_weigh(const meta_device *device, const tdm_graph *graph, meta_load *out,
                           tdm_error *err);

/* Memory of a member, in bytes. */
typedef struct meta_room {
    double free;      /* that the member may use; < 0 = unknown, so no limit */
    double whole;     /* that it needs whatever its share */
    double divisible; /* of which it needs its share */
    bool is_shared;   /* it is the host's RAM, which all such members share */
} meta_room;

/* The largest share for which each member has memory; 1 or more = no limit. Members in RAM together
 * get no more than the RAM has: it is divided by their rates, and members with the rate 0 get at
 * most the rest. [any-thread] */
void meta_share_caps(int32_t n, const meta_room *room, const double *rate, double *cap_out);

/* The parts of the work, together 1, with which all members end at the same time: member d takes
 * seconds[d] for the whole work and extra[d] besides, whatever its part. A member whose extra is
 * more than the others need without it gets 0, and so does one whose seconds are 0 (it cannot
 * work). [any-thread] */
void meta_share_balance(int32_t n, const double *seconds, const double *extra, double *part_out);

/* Seconds of a member. `answer`, `prompt`: for all of the work of an answer, and of its prompt;
 * answer 0: the member cannot work. `extra`: what an answer takes besides, whatever the member's
 * part: submissions and exchanges. */
typedef struct meta_pace {
    double answer, extra, prompt;
} meta_pace;

/* The parts, together 1, with which a prompt and its answer take the shortest time together. Each
 * of the two takes as long as the slowest member needs for it, and a member has the same part in
 * both: weights are cut once. [any-thread] */
void meta_share_pace(int32_t n, const meta_pace *pace, double *part_out);

/* Computes shares with the sum 1, proportional to rate[n] and none above cap[n] (1 or more = no
 * limit). A member whose share would be below `least` gets 0. TDM_RESOURCE_EXHAUSTED where the caps
 * add up to less than 1. [any-thread] */
tdm_status meta_share_divide(int32_t n, const double *rate, const double *cap, double least,
                             double *share_out, tdm_error *err);

/* Chooses device->attention where the option is auto, from the first graph with partitions; later
 * calls change nothing. Caches with at least as many units as members are cut by heads. A cache
 * with fewer is held by several members, so that all of them compute (REPLICATE). Each of them then
 * reads it whole; where that is more than its part of the weights (of which a token reads read_size
 * in all), the caches are cut by pages (SEQUENCE), at the price of two more exchanges a layer; not
 * where the graph has KV_SELECT, which reads every page of a sequence.
 * Under device->mutex, after meta_share_solve and before any partition is assigned. attention.c. */
tdm_status meta_attention_solve(meta_device *device, const tdm_graph *graph, tdm_error *err);

/* Computes the group's shares from the first graph, where they are auto; later calls change
 * nothing. Measures the members if that was not done. Under device->mutex, before any partition is
 * assigned. */
tdm_status meta_share_solve(meta_device *device, const tdm_graph *graph, tdm_error *err);

#endif
