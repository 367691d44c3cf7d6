/* SPDX-License-Identifier: MIT
 *
 * declare.h: finds and checks the weights that an architecture has.
 */
#ifndef LLM_DECLARE_H
#define LLM_DECLARE_H

#include "llm/model.h"

/* Declares a weight of the model: finds the role's tensor, compares its shape with ne (unused
 * dimensions 1) and checks that the ops can read its type. `layer` is -1 for a global role. If
 * there is no such tensor, this is an error if it is required, else the role stays -1. `partition`
 * NULL = not cut; its id is 1 .. llm_partition_limit - 1. */
tdm_status llm_model_need(llm_model *model, llm_role role, int32_t layer, bool is_required,
                          const int64_t ne[TDM_MAX_DIMS], const tdm_partition *partition,
                          int32_t axis, tdm_error *err);

/* The name of a role's tensor in files. */
void llm_role_tensor_name(llm_role role, int32_t layer, char *name, size_t name_size);

#endif
