/* SPDX-License-Identifier: MIT
 *
 * sampling.c: see sampling.h.
 */
#include "runner/sampling.h"

#include <float.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed_find(runner_config *config) {
    int64_t seed = runner_config_get_int(config, "seed");
    if (seed >= 0) return (uint64_t)seed;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mix =
        (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u + (uint64_t)now.tv_sec + (uint64_t)getpid();
    return (mix ^ mix >> 32) & 0xffffffffu; /* what --seed takes */
}

llm_sampler_params runner_sampling_read(runner_config *config) {
    return (llm_sampler_params){
        .struct_size = sizeof(llm_sampler_params),
        .temp = (float)runner_config_get_float(config, "temp"),
        .top_k = (int32_t)runner_config_get_int(config, "top-k"),
        /* 0 keeps the most likely token; for the sampler it would mean no limit. */
        .top_p = fmaxf((float)runner_config_get_float(config, "top-p"), FLT_MIN),
        .min_p = (float)runner_config_get_float(config, "min-p"),
        .repeat_penalty = (float)runner_config_get_float(config, "repeat-penalty"),
        .repeat_last_n = (int32_t)runner_config_get_int(config, "repeat-last-n"),
        .seed = seed_find(config),
    };
}
