/* SPDX-License-Identifier: MIT
 *
 * placement.h: `override-tensor`, cpu-moe and n-cpu-moe: weights on another device than the
 * model's, where the nodes that read them run. Also `kv-offload = no`: if the device and its
 * members cannot work on a cache in host memory, a CPU device holds the cache.
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
    void *code;       /* the compiled pattern (pcre2_code); owned */
    int32_t dev;      /* index into runner_placement.devs */
    int32_t n_tensor; /* tensors of the model for which it is the first match */
} runner_override;

/* A tensor to which an override applies. */
typedef struct runner_override_match {
    const char *tensor; /* its name in the model; borrowed */
    int32_t override;   /* index into runner_placement.overrides */
} runner_override_match;

typedef struct runner_placement {
    /* [n_dev] [0] runs the model; the others hold what the overrides and cache_dev put there */
    tdm_open_device *devs[TDM_MAX_STAGE_DEVICES];
    int32_t n_dev;
    runner_override *overrides; /* [n_override] in the order given: the first that matches counts */
    int32_t n_override;
    runner_override_match *matches; /* [n_match] sorted by name; owned */
    int32_t n_match;
    int32_t cache_dev; /* index of the CPU device that holds the cache; 0 = the device that runs the
                          model keeps it, in its own memory or in the host's */
} runner_placement;

/* Reads these keys and opens the devices that they name. `dev` runs the model. The name "cpu" means
 * a CPU device: `dev`, if that is one, else one without a section. TDM_INVALID_ARGUMENT (no '=',
 * not a regular expression, one that takes too many steps to match) and TDM_NOT_FOUND (no such
 * device) name the flag or line. A pattern that applies to no tensor gives a warning. *placement is
 * cleared first and points to names of `model`; call runner_placement_clear in any case, also on
 * failure. [setup] */
tdm_status runner_placement_read(runner_placement *placement, runner_roster *roster,
                                 tdm_open_device *dev, const llm_model *model, tdm_error *err);

/* The device for a tensor of the model, by its base name (llm_weight_base_name): an index into
 * devs, 0 where no pattern applies. [any-thread] */
int32_t runner_placement_find(const runner_placement *placement, const char *tensor);

/* The overrides in the form of llm_placement; it points to *placement. [any-thread] */
llm_placement runner_placement_wishes(runner_placement *placement);

/* Sets the overrides in the model, before its weights are loaded. [setup] */
void runner_placement_apply(runner_placement *placement, llm_model *model);

/* Releases what it owns, not the devices; a cleared one is a no-op. [setup] */
void runner_placement_clear(runner_placement *placement);

#endif
