/* SPDX-License-Identifier: MIT
 *
 * excerpt.h: excerpts: a few nodes of a graph as a small graph of their own, with random inputs, so
 * that a plugin can run the same kernels on little data and compare the result with another
 * device's. Owns the small graph and its inputs. The plugin runs it and decides what counts as
 * equal.
 */
#ifndef TANDEM_GPU_EXCERPT_H
#define TANDEM_GPU_EXCERPT_H

#include "tandem/graph.h"

typedef struct gpu_excerpt {
    tdm_graph graph;    /* its arrays belong to the excerpt */
    tdm_value *values;  /* graph.values */
    tdm_node *nodes;    /* graph.nodes */
    tdm_kv_desc kv;     /* of its STATE, where it has a cache */
    int32_t *step;      /* the words of its step block; NULL = it has none */
    int32_t step_value; /* the INPUT that holds the step block */
} gpu_excerpt;

/* An excerpt of the node `last` of a verified graph, the nodes that were fused into it and the
 * views that these read. has_step[n_node]: 1 = the node has a step of its own, so that its result
 * is an input of the excerpt. is_small: dimensions above 256 become 256 + their remainder by 256.
 * The result must be verified before use, since a smaller shape may break a rule of its op. NULL
 * where a node works on a cache or an arena (scene.h and arena_scene.h make excerpts of these),
 * where there are more than 128 nodes, and with is_small where a shape follows from others by more
 * than equality (RESHAPE, SLICE, CONCAT, REPEAT). NULL without memory, too: only then *lacks_memory
 * is set to true. Released with gpu_excerpt_free. [any-thread] */
gpu_excerpt *gpu_excerpt_make(const tdm_graph *graph, const uint8_t *has_step, int32_t last,
                              bool is_small, bool *lacks_memory);

/* An empty excerpt for scene.c and arena_scene.c, with room for n_value values and n_node nodes,
 * and for those of gpu_excerpt_multiply. It has no cache and no step block. NULL without memory.
 * [any-thread] */
gpu_excerpt *gpu_excerpt_alloc(size_t n_value, size_t n_node);

/* Appends a product of the last node's first result, as rows of k elements (which divides it), with
 * a weight of `type`, or of q8_0 where k is not a multiple of the type's block length. Rows have
 * roles of both kinds. The result becomes a TEMP value; the outputs are the product and a copy of
 * the result. So a step that stores its result as bytes, too, is checked in both forms
 * (ops/quantize.h). At most once. [any-thread] */
void gpu_excerpt_multiply(gpu_excerpt *excerpt, int64_t k, tdm_type type);

/* NULL is a no-op. [any-thread] */
void gpu_excerpt_free(gpu_excerpt *excerpt);

/* The cost of running it: elements of all values; multiply-adds of the product that has most, 0 =
 * there are no products. [any-thread] */
int64_t gpu_excerpt_count(const gpu_excerpt *excerpt);
int64_t gpu_excerpt_work(const gpu_excerpt *excerpt);

/* Fills the canonical bytes of a WEIGHT or INPUT: the step block with its words, others with random
 * numbers in the range of their ops: floats from -1 to 1, from 0.5 to 1.5 where they are divided by
 * or a root is taken; ids and positions that exist. Equal calls give equal bytes. False where there
 * is no memory or no conversion to the type. [any-thread] */
bool gpu_excerpt_fill(const gpu_excerpt *excerpt, int32_t value, void *bytes);

#endif
