/* SPDX-License-Identifier: MIT
 *
 * sampling.h: the parameters of the sampler (llm/sampler.h), from the configuration.
 */
#ifndef TANDEM_RUNNER_SAMPLING_H
#define TANDEM_RUNNER_SAMPLING_H

#include "llm/sampler.h"
#include "llm/tokenizer/vocab.h"
#include "runner/config/config.h"

/* The keys of runner_sampling_read. */
#define RUNNER_KEYS_SAMPLING                                                                       \
    " seed samplers temp dynatemp-range dynatemp-exp top-k top-p min-p min-keep typical"           \
    " top-n-sigma"                                                                                 \
    " xtc-probability xtc-threshold repeat-penalty repeat-last-n presence-penalty"                 \
    " frequency-penalty dry-multiplier dry-base dry-allowed-length dry-penalty-last-n"             \
    " dry-sequence-breaker adaptive-target adaptive-decay mirostat mirostat-lr mirostat-ent"       \
    " logit-bias"

/* Cleared = nothing is owned. */
typedef struct runner_sampling {
    llm_sampler_params params;      /* points to what is below */
    llm_logit_bias *bias;           /* owned */
    llm_sampler_breakers *breakers; /* owned */
} runner_sampling;

/* Reads RUNNER_KEYS_SAMPLING. `seed = -1` gives another seed at each call. `vocab` outlives the
 * result. TDM_INVALID_ARGUMENT names the key. Call runner_sampling_free in any case, also on
 * failure. [setup] */
tdm_status runner_sampling_read(runner_config *config, const llm_vocab *vocab,
                                runner_sampling *sampling, tdm_error *err);
/* Frees what it owns and clears *sampling. [setup] */
void runner_sampling_free(runner_sampling *sampling);

#endif
