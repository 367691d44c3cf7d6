/* SPDX-License-Identifier: MIT
 *
 * certify.h: the conformance suite for backends: `tandem certify PLUGIN.so`.
 *
 * It loads a plugin, ours or a third party's, and checks it against the sentences of the headers in
 * core/include/tandem. Every check runs in a process of its own, or in a batch, where checks follow
 * each other on one open device until one fails: a crash or a hang fails only that check.
 * docs/abi.md describes the levels and how close results must be.
 */
#ifndef TANDEM_CERTIFY_H
#define TANDEM_CERTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tandem/device.h"

#define CERTIFY_LEVEL_MAX 6

typedef struct certify_params {
    const char *file;          /* path of the plugin's shared object */
    int32_t level;             /* checks above it are not run; < 0 = all */
    int32_t device;            /* which of the plugin's devices, as enumerated */
    const tdm_option *options; /* given to the device whenever it is opened */
    int32_t n_option;
    const char *only; /* run the checks whose id begins so; NULL or "" = all */
    uint64_t seed;    /* of data, printed; 0 = a fixed one */
    int32_t limit_s;  /* seconds after which a check has hung; 0 = 120. Time in which a busy machine
                         runs other processes does not count */
    bool is_batch;    /* checks that can share an open device run in one process while none fails:
                         faster where loading a driver and opening a device is slow */
} certify_params;

typedef struct certify_result {
    int32_t n_passed;
    int32_t n_failed;
    int32_t n_skipped;
    int32_t level; /* the highest that the plugin reaches; -1 = none */
} certify_result;

/* Runs the checks. Writes a line for each check, with the broken sentence where it failed, and a
 * summary. A plugin that fails is no failure of this call: see result_out->n_failed. Fails where a
 * check cannot be run (no process, no memory) or `out` cannot be written; *result_out is set on
 * TDM_OK only. [setup], and only from a process with one thread, because it forks. */
tdm_status certify_run(const certify_params *params, FILE *out, certify_result *result_out,
                       tdm_error *err);

/* Writes id, level and sentence of every check. [any-thread] */
tdm_status certify_list(FILE *out, tdm_error *err);

#endif
