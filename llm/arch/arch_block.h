/* SPDX-License-Identifier: MIT
 *
 * arch_block.h: the parts that architectures share: declarations of weights with their partitions,
 * and pieces of the forward graph. For the arch_*.c files only.
 */
#ifndef LLM_ARCH_BLOCK_H
#define LLM_ARCH_BLOCK_H

#include "llm/arch/declare.h"
#include "llm/arch/forward_graph.h"

/* A partition of one segment: n_unit units of unit_len elements. */
tdm_partition llm_partition_make(int32_t id, int32_t layer, int32_t n_unit, int32_t unit_len);

/* Declares several weights and keeps the first failure; later calls then do nothing. */
typedef struct llm_declarer {
    llm_model *model;
    tdm_error *err;
    tdm_status status;
    int32_t layer; /* -1 = none */
} llm_declarer;

/* Declares a weight (llm_model_need) of the shape [ne0, ne1, ne2]. */
void llm_declare(llm_declarer *d, llm_role role, bool is_required, int64_t ne0, int64_t ne1,
                 int64_t ne2, const tdm_partition *partition, int32_t axis);
/* Token embedding, output norm and output head; the head is tied to the embedding if the file has
 * no tensor for it. */
void llm_declare_ends(llm_declarer *d, int32_t vocab_id);
/* Norm, gate, up and down of a dense feed-forward of n_ff columns, cut by the partition `id`. */
void llm_declare_dense_ffn(llm_declarer *d, int32_t id, int32_t n_ff);
/* The optional biases of the same block. Those of gate and up are cut with their matrices. That of
 * down is not cut: it is added once, to the sum of the members' addends. */
void llm_declare_ffn_biases(llm_declarer *d, int32_t id, int32_t n_ff);
/* Router and matrices of a layer's experts, each n_ff columns wide; norm included. */
void llm_declare_expert_ffn(llm_declarer *d, int32_t id, int32_t n_ff);

/* W x, plus the bias if the model has one; bias_role -1 = none. */
int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, int bias_role,
                          int32_t x, const char *name);
/* The matrices of a dense feed-forward block and their biases. A bias role of -1 = none; a bias
 * that the file does not have is left out. */
typedef struct llm_ffn_roles {
    llm_role gate, up, down;
    int gate_bias, up_bias, down_bias;
} llm_ffn_roles;

/* down (silu(gate x + gate_bias) * (up x + up_bias)) + down_bias */
int32_t llm_build_swiglu(llm_graph_builder *g, int32_t layer, const llm_ffn_roles *roles, int32_t x,
                         const char *name);
/* The weighted sum of a token's experts; `bias` of the router, -1 = none. */
int32_t llm_build_experts(llm_graph_builder *g, int32_t layer, int32_t bias, int32_t x,
                          const char *name);
/* The RMS norm of x with a layer's weight. */
int32_t llm_build_norm(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x);

/* The two branches of a layer, whose results are added to the residual stream. `attention` returns
 * -1 if is_needed is false: it then only fills the cache. */
typedef struct llm_layer_blocks {
    int32_t (*attention)(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos, int64_t n_tok,
                         bool is_needed);
    int32_t (*ffn)(llm_graph_builder *g, int32_t layer, int32_t x);
} llm_layer_blocks;

/* Builds tokens to logits, with layers x += attention(norm(x)), x += ffn(norm(x)). */
int32_t llm_build_layers(llm_graph_builder *g, const llm_step_shape *shape,
                         const llm_layer_blocks *blocks);

#endif
