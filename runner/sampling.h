/* SPDX-License-Identifier: MIT
 *
 * sampling.h: how the next token is chosen, from the configuration.
 */
#ifndef TANDEM_RUNNER_SAMPLING_H
#define TANDEM_RUNNER_SAMPLING_H

#include "llm/sampler.h"
#include "llm/tokenizer/vocab.h"
#include "runner/config/config.h"

/* The keys of runner_sampling_read. */
#define RUNNER_KEYS_SAMPLING                                                                       \
    " seed samplers temp dynatemp-range dynatemp-exp top-k top-p min-p typical top-n-sigma"        \
    " xtc-probability xtc-threshold repeat-penalty repeat-last-n presence-penalty"                 \
    " frequency-penalty dry-multiplier dry-base dry-allowed-length dry-penalty-last-n"             \
    " dry-sequence-breaker mirostat mirostat-lr mirostat-ent logit-bias"

/* Cleared is empty. */
typedef struct runner_sampling {
    llm_sampler_params params; /* refers to what follows */
    llm_logit_bias *bias;
    int32_t *breakers;
} runner_sampling;

/* Reads RUNNER_KEYS_SAMPLING. A negative seed gives another one at each call. Messages name the
 * key. Call runner_sampling_free in any case. */
tdm_status runner_sampling_read(runner_config *config, const llm_vocab *vocab,
                                runner_sampling *sampling, tdm_error *err);
/* Finds the tokens of dry-sequence-breaker where runner_sampling_read did not, because DRY is off: for
 * a server, whose requests may turn it on. */
tdm_status runner_sampling_breakers(runner_config *config, const llm_vocab *vocab,
                                    runner_sampling *sampling, tdm_error *err);
void runner_sampling_free(runner_sampling *sampling);

#endif
