/* SPDX-License-Identifier: MIT
 *
 * declare.h: finds and checks the weights of a model. Which roles a model has: the blocks
 * (llm/block). Shapes and partitions follow from the role's symbols (role.h) and the layer's spec.
 */
#ifndef LLM_DECLARE_H
#define LLM_DECLARE_H

#include "llm/model.h"

/* Declares several weights and keeps the first failure; later calls then do nothing. */
typedef struct llm_declarer {
    llm_model *model;
    tdm_error *err;
    tdm_status status;
    int32_t layer; /* -1 = none */
} llm_declarer;

/* Declares a weight: finds the role's tensor, compares its shape with the role's dimensions and
 * checks that the ops can read its type. Of a matrix, also its scale. A missing tensor is a failure
 * if it is required; else llm_declared stays -1. An optional tensor that the architecture calls
 * harmless counts as missing. LLM_ROLE_NONE is a no-op. */
void llm_declare(llm_declarer *d, llm_role role, bool is_required);
/* The tensor of a required role, checked as by llm_declare, which stays in the file and is no
 * weight; NULL after a failure. */
const llm_gguf_tensor *llm_declare_in_file(llm_declarer *d, llm_role role);
/* The next three calls add to llm_model.parts, which has room for LLM_MAX_PARTS entries for each
 * layer and is not checked: halves take two entries, a shaped or made tensor one. */

/* Declares `first` and `second`, of the same shape, as the two halves of the rows of each matrix of
 * the tensor of `both`. False if there is no such tensor. */
bool llm_declare_halves(llm_declarer *d, llm_role both, llm_role first, llm_role second);
/* As llm_declare of a required tensor; files may have its last two dimensions as one. */
void llm_declare_shaped(llm_declarer *d, llm_role role);
/* Declares a weight of f32 that no file has. Returns its elements, which are zeros: the caller
 * fills them in, and the model owns them. NULL after a failure. */
float *llm_declare_made(llm_declarer *d, llm_role role);
/* The weight of a norm, and its bias if there is one. LLM_ROLE_NONE, and an architecture whose
 * norms have no weights, are no-ops. */
void llm_declare_norm(llm_declarer *d, llm_role role);
/* The weight of a role of the declarer's layer, or of the model; -1 = absent. */
int32_t llm_declared(const llm_declarer *d, llm_role role);

/* Token embedding, output norm and output head, and what else belongs to no layer. The head is tied
 * to the embedding if the file has no tensor for it. */
void llm_declare_ends(llm_declarer *d);

/* The partition of a block's rows of the cache: those of its KV heads. */
tdm_partition llm_cache_rows_partition(const llm_model *model, int32_t layer);

/* The partition of a layer's recurrent states: those of its units. id 0 = they are not cut. */
tdm_partition llm_recurrent_partition(const llm_model *model, int32_t layer);

#endif
