/* SPDX-License-Identifier: MIT
 *
 * cache_costs.h: what it costs to keep K or V of a layer in a quantised type, as measured on a
 * text, and the cache types of all layers that follow from it: within a number of bits, or rotated
 * where that costs less. It computes no tokens and reads no files.
 *
 * A cost is the KL divergence, in nats for each token, between the model with a cache of f16 and
 * the model with only that K or V quantised. Errors of different layers are hardly correlated, so
 * the cost of a cache is the sum of the costs of its parts.
 */
#ifndef LLM_CACHE_COSTS_H
#define LLM_CACHE_COSTS_H

#include "llm/cache/layer_types.h"
#include "llm/model.h"

typedef enum llm_cache_side { LLM_CACHE_K = 0, LLM_CACHE_V, LLM_CACHE_SIDES } llm_cache_side;

typedef enum llm_rotation {
    LLM_ROTATION_NO = 0,
    LLM_ROTATION_YES,
    LLM_ROTATION_AUTO /* for each K and V the one of both that costs less */
} llm_rotation;

typedef struct llm_cache_costs llm_cache_costs;

/* Makes the table of costs of n_layer layers; all are "not measured". TDM_RESOURCE_EXHAUSTED.
 * [setup] */
tdm_status llm_cache_costs_create(int32_t n_layer, llm_cache_costs **costs_out, tdm_error *err);
/* NULL is a no-op. [setup] */
void llm_cache_costs_destroy(llm_cache_costs *costs);

/* Sets a cost, at least 0. The layer and the type (TDM_KV_BLOCK_TYPE_LIST) must exist: false else.
 * [setup] */
bool llm_cache_costs_set(llm_cache_costs *costs, int32_t layer, llm_cache_side side, tdm_type type,
                         bool is_rotated, double cost);
/* A cost of a layer that exists; negative = not measured. 0 for types of floats. [any-thread] */
double llm_cache_costs_get(const llm_cache_costs *costs, int32_t layer, llm_cache_side side,
                           tdm_type type, bool is_rotated);

/* Whether a layer has a K, or a V, in the cache: a latent cache has no V, and some layers have no
 * cache. [any-thread] */
bool llm_cache_has_side(const llm_model *model, int32_t layer, llm_cache_side side);

/* The cost of a cache in which layer l has the types layers[l]: the sum of the costs; negative =
 * one of them is not measured. [any-thread] */
double llm_cache_costs_sum(const llm_cache_costs *costs, const llm_model *model,
                           const llm_layer_types *layers);

/* Bits of an element of the cache, the mean over the elements of a token in all layers: exactly the
 * stored bytes, padding included. A layer that keeps its window only counts like the others.
 * [any-thread] */
double llm_layer_types_bits(const llm_model *model, const llm_layer_types *layers);

/* Chooses among f16 and the measured types those with the least sum of costs for which
 * llm_layer_types_bits is at most `bits`. layers_out[n_layer]. TDM_OUT_OF_RANGE if no choice is so
 * small; the message has the size of the smallest. [setup] */
tdm_status llm_cache_costs_choose(const llm_cache_costs *costs, const llm_model *model, double bits,
                                  llm_rotation rotation, llm_layer_types *layers_out,
                                  tdm_error *err);

/* Gives all layers the types k and v, and each K and V the rotation that costs less.
 * layers_out[n_layer]. TDM_FAILED_PRECONDITION if a type was not measured with and without
 * rotation. [setup] */
tdm_status llm_cache_costs_rotate(const llm_cache_costs *costs, const llm_model *model, tdm_type k,
                                  tdm_type v, llm_layer_types *layers_out, tdm_error *err);

#endif
