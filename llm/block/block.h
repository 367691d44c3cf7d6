/* SPDX-License-Identifier: MIT
 *
 * block.h: the blocks that layers consist of. Each declares its weights (declare.h) and builds its
 * part of the forward graph, from the table of the architecture (arch.h) and the spec of the layer
 * (layer_spec.h). How blocks form layers and a model: layers.c.
 */
#ifndef LLM_BLOCK_H
#define LLM_BLOCK_H

#include "llm/arch/declare.h"
#include "llm/arch/forward_graph.h"

/* W x, plus the bias if the model has one; bias LLM_ROLE_NONE = none. `layer` -1 = a global
 * role. */
int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, llm_role bias,
                          int32_t x, const char *name);
/* The norm of x with the weight and bias of a role, of those that the model has; LLM_ROLE_NONE:
 * without weights. */
int32_t llm_build_norm(llm_graph_builder *g, int32_t layer, llm_role role, llm_norm norm,
                       int32_t x);
/* Elements first .. first + n - 1 of each row of x [*, ne1, ne2]. */
int32_t llm_build_columns(llm_graph_builder *g, int32_t x, int64_t first, int64_t n);

/* What a mixer is built from. */
typedef struct llm_mixer_input {
    int32_t x;   /* [n_embd, n_tok] normed residual stream */
    int32_t pos; /* i32 [n_tok] */
    int64_t n_tok;
    bool is_needed; /* false: the mixer only fills the cache, and building it returns -1 */
} llm_mixer_input;

/* Attention over cached keys and values. */
void llm_declare_attention(llm_declarer *d);
int32_t llm_build_attention(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
/* The weight with factors of the layer's frequencies, -1 = none. */
int32_t llm_rope_factor_weight(const llm_model *model, int32_t layer, int32_t n_ctx);

/* Attention over one latent row per token. */
void llm_declare_latent(llm_declarer *d);
int32_t llm_build_latent(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* A dense feed-forward block. */
void llm_declare_ffn(llm_declarer *d);
int32_t llm_build_ffn(llm_graph_builder *g, int32_t layer, int32_t x, const char *name);
/* act(gate) * up, or what the form of the architecture's blocks is instead. gate -1 = none. */
int32_t llm_build_ffn_act(llm_graph_builder *g, int32_t gate, int32_t up);

/* Experts chosen for each token, and those that serve every token. */
void llm_declare_experts(llm_declarer *d);
int32_t llm_build_router(llm_graph_builder *g, int32_t layer, int32_t x);
int32_t llm_build_experts(llm_graph_builder *g, int32_t layer, int32_t logit, int32_t x);

#endif
