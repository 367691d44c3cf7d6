/* SPDX-License-Identifier: MIT
 *
 * llama_flags.h: flags that users of llama.cpp type and that mean something else here, or nothing.
 */
#ifndef TANDEM_RUNNER_LLAMA_FLAGS_H
#define TANDEM_RUNNER_LLAMA_FLAGS_H

#include "llm/model.h"
#include "runner/app.h"

/* Prints a line for each such key that was given: what Tandem does instead. [setup] */
void runner_llama_flags_note(runner_app *app);

/* Prints "--flash-attn has no effect: INSTEAD" of a key that was given, with the flag as the user
 * wrote it, or the key and where it stands in the file. [setup] */
void runner_key_note(runner_app *app, const char *key, const char *instead);

/* `gpu-layers = 0`: whether the command is to run on the CPU. [setup] */
bool runner_wants_cpu(runner_app *app);

/* `mlock`: locks the weights of a loaded model in memory; does nothing where it was not given.
 * Memory that is not the host's needs no lock. Fails with TDM_RESOURCE_EXHAUSTED where the limit
 * (RLIMIT_MEMLOCK) is too low. The lock ends with the memory. [setup] */
tdm_status runner_weights_lock(runner_app *app, llm_model *model, tdm_error *err);

#endif
