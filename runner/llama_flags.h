/* SPDX-License-Identifier: MIT
 *
 * llama_flags.h: flags that users of llama.cpp type and that mean something else here, or nothing.
 */
#ifndef TANDEM_RUNNER_LLAMA_FLAGS_H
#define TANDEM_RUNNER_LLAMA_FLAGS_H

#include "llm/model.h"
#include "runner/app.h"

/* Prints a note for each key that was given and has no effect: what Tandem does instead. [setup] */
void runner_llama_flags_note(runner_app *app);

/* Prints the note "--flash-attn has no effect: INSTEAD" for a key that was given. It begins with
 * the flag as the user wrote it, or with the place in the file and the key. [setup] */
void runner_key_note(runner_app *app, const char *key, const char *instead);

/* `gpu-layers = 0`: whether the command is to run on the CPU. [setup] */
bool runner_wants_cpu(runner_app *app);

/* `mlock`: locks the weights of a loaded model in memory; a no-op where the key is off. For weights
 * on a device with memory of its own, a note says that there is nothing to lock. Fails with
 * TDM_RESOURCE_EXHAUSTED where the limit (RLIMIT_MEMLOCK) is too low. The lock ends when the memory
 * is freed. [setup] */
tdm_status runner_weights_lock(runner_app *app, llm_model *model, tdm_error *err);

#endif
