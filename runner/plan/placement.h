/* SPDX-License-Identifier: MIT
 *
 * placement.h: `override-tensor`: weights that live on another device than the model's; the nodes
 * that read them run there. Also `kv-offload = no`: where neither the device nor its members work
 * on a cache in host memory, a CPU device holds the cache.
 */
#ifndef TANDEM_RUNNER_PLACEMENT_H
#define TANDEM_RUNNER_PLACEMENT_H

#include "core/stages/schedule.h"
#include "llm/model.h"
#include "runner/roster.h"

/* One REGEX=DEVICE. */
typedef struct runner_override {
    const char *key;  /* where it comes from: override-tensor, cpu-moe or n-cpu-moe */
    char *pattern;    /* owned */
    void *code;       /* compiled; owned */
    int32_t dev;      /* index into runner_placement.devs */
    int32_t n_tensor; /* number of the model's tensors that it applies to */
} runner_override;

typedef struct runner_placement {
    /* [0] runs the model; the others are the overrides' */
    tdm_open_device *devs[TDM_MAX_STAGE_DEVICES];
    int32_t n_dev;
    runner_override *overrides; /* [n_override] in the order given: the first that matches counts */
    int32_t n_override;
    int32_t cache_dev; /* the CPU that has the cache; 0 = whatever runs the model sees to it */
} runner_placement;

/* Reads both keys and opens the devices that they name. `dev` runs the model. "cpu" is a CPU
 * device: `dev` where that is one. TDM_INVALID_ARGUMENT (no '=', not a regular expression) and
 * TDM_NOT_FOUND (no such device) name the flag or line. A pattern that applies to no tensor is a
 * warning. *placement is cleared first; call runner_placement_clear in any case, also on failure.
 * [setup] */
tdm_status runner_placement_read(runner_placement *placement, runner_roster *roster,
                                 tdm_open_device *dev, const llm_model *model, tdm_error *err);

/* The device for a tensor: an index into devs, 0 where no pattern applies. [any-thread] */
int32_t runner_placement_find(const runner_placement *placement, const char *tensor);

/* The overrides as llm_placement, valid as long as *placement. [any-thread] */
llm_placement runner_placement_wishes(runner_placement *placement);

/* Tells the model. [setup] */
void runner_placement_apply(runner_placement *placement, llm_model *model);

/* Releases what it holds, not the devices; a cleared one is a no-op. [setup] */
void runner_placement_clear(runner_placement *placement);

#endif
