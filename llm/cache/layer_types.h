/* SPDX-License-Identifier: MIT
 *
 * layer_types.h: the types of K and V in the cache of one layer, and whether their heads are
 * rotated, for caches whose layers differ.
 */
#ifndef LLM_LAYER_TYPES_H
#define LLM_LAYER_TYPES_H

#include <stdbool.h>

#include "tandem/kv.h"

/* Of one layer. A latent cache has one row for K and V: both types and both rotations are equal. */
typedef struct llm_layer_types {
    tdm_type k, v; /* of TDM_KV_TYPE_LIST */
    bool rotates_k, rotates_v;
} llm_layer_types;

/* Sets types and rotation of a description. [any-thread] */
static inline void llm_layer_types_apply(const llm_layer_types *t, tdm_kv_desc *desc) {
    desc->type_k = t->k;
    desc->type_v = t->v;
    desc->flags &= ~(uint32_t)(TDM_KV_ROTATE_K | TDM_KV_ROTATE_V);
    if (t->rotates_k) desc->flags |= TDM_KV_ROTATE_K;
    if (t->rotates_v) desc->flags |= TDM_KV_ROTATE_V;
}

/* The types and rotation of a description. [any-thread] */
static inline llm_layer_types llm_layer_types_of(const tdm_kv_desc *desc) {
    return (llm_layer_types){desc->type_k, desc->type_v, (desc->flags & TDM_KV_ROTATE_K) != 0,
                             (desc->flags & TDM_KV_ROTATE_V) != 0};
}

#endif
