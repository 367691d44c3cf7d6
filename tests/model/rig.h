/* SPDX-License-Identifier: MIT
 *
 * rig.h: whole models on the CPU plugin for the tests of this folder: one runtime for the program,
 * a device for each combination of ISA, path and threads, models from files or from the specs of
 * random ones, and the numbers that are compared. It judges nothing: the tests do.
 *
 * A failure of the harness itself (no plugin, a model that does not load) fails the running cmocka
 * test with the message of the call that failed. Plugins are found as users' are, through
 * TANDEM_PLUGIN_PATH, which meson sets; TANDEM_SOURCE_ROOT is the source tree.
 */
#ifndef TANDEM_TESTS_MODEL_RIG_H
#define TANDEM_TESTS_MODEL_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/context.h"

/* Fails the running test with the call's message where it does not give TDM_OK. `err` is the
 * tdm_error of the caller. */
#define RIG_OK(call)                                                                               \
    do {                                                                                           \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, err.message);                              \
    } while (0)

/* Makes the runtime and a folder for files. Call both from the group's set-up and tear-down:
 * cmocka_run_group_tests(tests, rig_begin, rig_end). */
int rig_begin(void **state);
int rig_end(void **state);

/* The instruction sets of this kind of processor, NULL after the last. rig_begin prints which of
 * them are skipped because the machine lacks them. */
extern const char *const rig_isas[];
bool rig_has_isa(const char *isa);

/* The device with these options, open until rig_end. `path` is "reference", "fast" (activations of
 * 15 bits), RIG_FAST_8 (8 bits) or RIG_FAST_AUTO (8 bits for prompts, 15 for generated tokens); isa
 * NULL = the best there is. */
#define RIG_FAST_8    "fast-8"
#define RIG_FAST_AUTO "fast-auto"
tdm_open_device *rig_device(const char *isa, const char *path, int n_thread);
/* The runtime itself, for what this header does not offer. */
tdm_runtime *rig_runtime(void);
/* Lines that the runtime has logged as warnings or worse. */
int rig_n_warning(void);

/* A file's path in the folder of the program's own, which rig_end empties; "%s/name". Valid for the
 * program's life; at most 96 of them. */
const char *rig_file(const char *name);
/* A file of the source tree, or of the material beside it ("../shared/..."); NULL where it is not
 * there. The caller frees it. */
char *rig_source_file(const char *name);

/* A loaded model; closed with llm_model_close. */
llm_model *rig_model(const char *path, tdm_open_device *dev);
/* A context, with f32 caches unless `params` (nullable) sets others; destroyed with
 * llm_context_destroy. */
llm_context *rig_context(llm_model *model, const llm_context_params *params);
/* Appends tokens to sequence 0 and gives the logits of the last n_row of them, n_vocab to a row. */
void rig_decode(llm_context *ctx, const int32_t *tokens, int n_tok, int n_row, float *logits_out);
/* The same for tokens of a prompt. With 8 bits for all tokens a device may compute these on another
 * unit; otherwise the role changes nothing there. */
void rig_decode_prompt(llm_context *ctx, const int32_t *tokens, int n_tok, int n_row,
                       float *logits_out);
/* The same for tokens of these roles (tdm_role), NULL = all are generated. */
void rig_decode_as(llm_context *ctx, const int32_t *tokens, const uint8_t *roles, int n_tok,
                   int n_row, float *logits_out);

/* Runs a program to its end with its standard error discarded; its exit code, -1 if it was killed.
 * argv ends with NULL. */
int rig_spawn(const char *const *argv);
/* Fails the running test where the message of a failure is not one line. `what` failed. */
void rig_line_check(const char *what, const char *message);

/* Logits to probabilities, in place. */
void rig_softmax(float *rows, int n_row, int n_vocab);
/* Sum of squared differences over the sum of the expected values' squares; NaN and infinities give
 * infinity. */
double rig_nmse(const float *expected, const float *found, size_t n);
/* Mean over rows of the Kullback-Leibler divergence of `found` from `expected`, both logits. */
double rig_kl(const float *expected, const float *found, int n_row, int n_vocab);

#endif
