/* SPDX-License-Identifier: MIT
 *
 * lora.h: the adapters of the keys `lora` and `lora-scaled`.
 */
#ifndef TANDEM_RUNNER_LORA_H
#define TANDEM_RUNNER_LORA_H

#include "llm/model.h"
#include "runner/app.h"

/* The keys, for commands that compute with the configured model. */
#define RUNNER_KEYS_LORA " lora lora-scaled"

/* Adds the configured adapters to an open model whose weights are not loaded yet, those of `lora`
 * before those of `lora-scaled`. A no-op for commands without these keys. TDM_INVALID_ARGUMENT for
 * a `lora-scaled` that is not FILE:X; else fails as llm_model_add_adapter. [setup] */
tdm_status runner_lora_add(runner_app *app, llm_model *model, tdm_error *err);

#endif
