/* SPDX-License-Identifier: MIT
 *
 * excerpt.h: a few nodes of a graph as a small graph of their own, with made-up inputs, so that a
 * plugin can run the same kernels on little data and compare the result with another device's. Owns
 * the small graph; what runs it, and what counts as equal, is the plugin's.
 */
#ifndef TANDEM_GPU_EXCERPT_H
#define TANDEM_GPU_EXCERPT_H

#include "tandem/graph.h"

typedef struct gpu_excerpt {
    tdm_graph graph; /* its arrays belong to the excerpt */
    tdm_value *values;
    tdm_node *nodes;
    tdm_kv_desc kv;     /* of its STATE, where it has a cache */
    int32_t *step;      /* the words of its step block; NULL = it has none */
    int32_t step_value; /* the INPUT that they are of */
} gpu_excerpt;

/* The node `last` of a verified graph, the nodes that were fused into it and the views that it
 * reads. has_step[n_node]: nodes with a kernel of their own; their results are inputs of the
 * excerpt. is_small: dimensions above 256 become smaller ones with the same remainder by 256, equal
 * ones alike. The result must be verified before use, since a smaller shape may break a rule of its
 * op. NULL where a node works on a cache or an arena, of which scene.h and arena_scene.h make
 * excerpts, where the excerpt has too many nodes, or where small ones would break a view. NULL
 * without memory too: only then is *lacks_memory set. Released with gpu_excerpt_free.
 * [any-thread] */
gpu_excerpt *gpu_excerpt_make(const tdm_graph *graph, const uint8_t *has_step, int32_t last,
                              bool is_small, bool *lacks_memory);

/* An excerpt with room for n_value values and n_node nodes, and for a product (gpu_excerpt_multiply). Its
 * graph has none yet; it has no cache and no step block. NULL without memory. For those that fill
 * excerpts. [any-thread] */
gpu_excerpt *gpu_excerpt_alloc(size_t n_value, size_t n_node);

/* Has a product multiply what the last node gives as rows of k elements, by a weight of `type` or, where
 * rows are not whole blocks of it, of q8_0. Tokens have roles of both kinds. The outputs are the product
 * and a copy of what the node gives, which is a temporary now. At most once. [any-thread] */
void gpu_excerpt_multiply(gpu_excerpt *excerpt, int64_t k, tdm_type type);

/* NULL is a no-op. [any-thread] */
void gpu_excerpt_free(gpu_excerpt *excerpt);

/* Elements of all its values, and the most multiply-adds of a node: what running it costs. */
int64_t gpu_excerpt_count(const gpu_excerpt *excerpt);
int64_t gpu_excerpt_work(const gpu_excerpt *excerpt);

/* Fills the canonical bytes of a WEIGHT or INPUT: the step block with its words, others with numbers
 * that their ops take: floats around 0, positive ones where a root or a quotient is taken of them,
 * ids and positions in range. Equal calls give equal bytes. False where there is no memory or the
 * type is not converted. [any-thread] */
bool gpu_excerpt_fill(const gpu_excerpt *excerpt, int32_t value, void *bytes);

#endif
