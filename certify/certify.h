/* SPDX-License-Identifier: MIT
 *
 * certify.h: the conformance suite for backends: `tandem certify PLUGIN.so`.
 *
 * Loads a plugin, ours or a third party's, and checks it sentence by sentence against the headers
 * in core/include/tandem. Every check runs in a process of its own, so that one that crashes or
 * hangs is a failed check and the next one starts afresh. What the levels mean and how close
 * results must be is written in docs/abi.md.
 */
#ifndef TANDEM_RUNNER_CERTIFY_H
#define TANDEM_RUNNER_CERTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tandem/device.h"

#define CERTIFY_LEVEL_MAX 6

typedef struct certify_params {
    const char *file;          /* the plugin */
    int32_t level;             /* checks above it are not run; < 0 = all */
    int32_t device;            /* which of the plugin's devices, as enumerated */
    const tdm_option *options; /* given to the device whenever it is opened */
    int32_t n_option;
    const char *only; /* run the checks whose id begins so; NULL or "" = all */
    uint64_t seed;    /* of data, printed; 0 = a fixed one */
    int32_t limit_s;  /* seconds after which a check has hung; 0 = 120 */
} certify_params;

typedef struct certify_result {
    int32_t n_passed;
    int32_t n_failed;
    int32_t n_skipped;
    int32_t level; /* the highest that the plugin reaches; -1 = none */
} certify_result;

/* Runs the checks and writes a line for each, what failed with the sentence it rests on, and a
 * summary. A plugin that fails is not a failure of the call: look at result_out->n_failed. Fails
 * where a check cannot be run at all (no process, no memory) or `out` cannot be written.
 * [setup], and from a process with one thread: it forks. */
tdm_status certify_run(const certify_params *params, FILE *out, certify_result *result_out,
                       tdm_error *err);

/* Writes id, level and sentence of every check. [any-thread] */
tdm_status certify_list(FILE *out, tdm_error *err);

#endif
