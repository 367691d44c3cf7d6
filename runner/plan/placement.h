/* SPDX-License-Identifier: MIT
 *
 * placement.h: `override-tensor`: weights that are to live elsewhere than on the device that runs
 * the model; what reads them then runs where they are. And who helps with `kv-offload = no`: where
 * the device does not work on a cache in the host's memory itself, or through its members, a CPU.
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
    int32_t n_tensor; /* of the model that it applies to */
} runner_override;

typedef struct runner_placement {
    tdm_open_device
        *devs[TDM_MAX_SCHEDULE_DEVICES]; /* [0] runs the model; the others are the overrides' */
    int32_t n_dev;
    runner_override *overrides; /* [n_override] in the order given: the first that matches counts */
    int32_t n_override;
    int32_t cache_dev; /* the CPU that has the cache; 0 = whatever runs the model sees to it */
} runner_placement;

/* Reads both keys and opens the devices that they name; "cpu" is the machine's CPU, under whatever
 * name, `dev` where that is one. `dev` is what the model runs on. Fails with TDM_INVALID_ARGUMENT
 * (no '=', a pattern that is no regular expression) or TDM_NOT_FOUND (no such device), naming flag
 * or line; a pattern that applies to no tensor is warned of. *placement is cleared first;
 * runner_placement_clear is due whatever comes of it. [setup] */
tdm_status runner_placement_read(runner_placement *placement, runner_roster *roster,
                                 tdm_open_device *dev, const llm_model *model, tdm_error *err);

/* The device for a tensor: an index into devs, 0 where no pattern applies. [any-thread] */
int32_t runner_placement_find(const runner_placement *placement, const char *tensor);

/* The wishes for a model's weights, valid as long as *placement. [any-thread] */
llm_placement runner_placement_wishes(runner_placement *placement);

/* Tells the model. [setup] */
void runner_placement_apply(runner_placement *placement, llm_model *model);

/* Releases what it holds, not the devices; a cleared one is a no-op. [setup] */
void runner_placement_clear(runner_placement *placement);

#endif
