/* SPDX-License-Identifier: MIT
 *
 * sampling.h: how the next token is chosen, from the configuration.
 */
#ifndef TANDEM_RUNNER_SAMPLING_H
#define TANDEM_RUNNER_SAMPLING_H

#include "llm/sampler.h"
#include "runner/config/config.h"

/* Reads temp, top-k, top-p, min-p, repeat-penalty, repeat-last-n and seed. A negative seed gives
 * another one at each call. */
llm_sampler_params runner_sampling_read(runner_config *config);

#endif
