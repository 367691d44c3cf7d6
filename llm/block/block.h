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

/* W x for the weight of that number, times the weight `scale` (-1 = none), and with what the step's
 * adapters add. */
int32_t llm_build_product(llm_graph_builder *g, int32_t weight, int32_t scale, int32_t x);
/* The same of the matrices of experts: x [k, 1 or n_used, n_tok], id i32 [n_used, n_tok] ->
 * [n, n_used, n_tok]. `scale` is a value [1, n_used, n_tok]; -1 = none. */
int32_t llm_build_expert_product(llm_graph_builder *g, int32_t weight, int32_t scale, int32_t x,
                                 int32_t id);
/* The rows `id` of the token embedding, with what the step's adapters add. */
int32_t llm_build_token_rows(llm_graph_builder *g, int32_t weight, int32_t id);
/* Whether the step has an adapter that changes the weight; false for weight -1. */
bool llm_is_adapted(const llm_graph_builder *g, int32_t weight);
/* W x, plus the bias if the model has one; bias LLM_ROLE_NONE = none. `layer` -1 = a global
 * role. */
int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, llm_role bias,
                          int32_t x, const char *name);
/* The scale of a role's matrix, of those that the file has; the product is multiplied by it. */
void llm_declare_scale(llm_declarer *d, llm_role role);
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
/* The weight [LLM_N_DISTANCE, n_head] with what attention adds for each distance (T5). */
void llm_declare_distance_bias(llm_declarer *d);
/* Of a layer of a decoder: attention over what its encoder gives. The encoder's step writes the keys
 * and values of its result x [n_embd, n_tok]; steps of the decoder read them: what a layer adds to
 * its stream x. */
void llm_declare_cross(llm_declarer *d);
void llm_build_cross_write(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok);
int32_t llm_build_cross(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok);
/* The weight with factors of the layer's frequencies, -1 = none. */
int32_t llm_rope_factor_weight(const llm_model *model, int32_t layer, int32_t n_ctx);

/* Its value, as many as the layer has frequencies; -1 = none. */
int32_t llm_build_rope_factors(llm_graph_builder *g, int32_t layer);

/* The parameters of a layer's attention over its cache; the state exists. */
tdm_attention_params llm_attention_params(const llm_graph_builder *g, int32_t layer);

/* o [o_len, n_head, n_tok] times the gate of the architecture, of x or query_gate (-1 = there is
 * none; like o) -> [o_len * n_head, n_tok] */
int32_t llm_build_gate(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                       int32_t query_gate, int32_t o);

/* Attention over one latent row per token, as it is or as keys and values of every head. */
void llm_declare_latent(llm_declarer *d);
int32_t llm_build_latent(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* The index of sparse attention: caches its keys, and selects tokens by them and by `row`, the
 * latent row of queries -> select i32 [n_select, n_tok] of ATTENTION. */
void llm_declare_index(llm_declarer *d);
void llm_build_index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
int32_t llm_build_index_select(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                               int32_t row);

/* The index of sparse attention that selects blocks of tokens -> select i32 [n_select, n_tok,
 * n_head_kv] of ATTENTION. */
void llm_declare_block_index(llm_declarer *d);
void llm_build_block_index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
int32_t llm_build_block_index_select(llm_graph_builder *g, int32_t layer,
                                     const llm_mixer_input *in);

/* The index of sparse attention that selects runs of tokens (llm_layer_spec.index_run) -> select i32
 * [n_select + index_run - 1, n_tok] of ATTENTION. */
void llm_declare_run_index(llm_declarer *d);
void llm_build_run_index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
int32_t llm_build_run_index_select(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* Attention over a window and over rows that stand for runs of tokens. */
void llm_declare_compressed(llm_declarer *d);
int32_t llm_build_compressed(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

void llm_declare_latent_wide(llm_declarer *d);
int32_t llm_build_latent_wide(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* The shape of a step, and what layers read beside the stream. */
typedef struct llm_layer_input {
    const llm_step_shape *shape;
    int32_t pos;       /* i32 [n_tok] */
    int32_t per_layer; /* [n_per_layer * n_layer, n_tok] of per_layer.c; -1 = none */
} llm_layer_input;

/* One layer of the residual stream x [n_embd, n_tok]; the last one gives only the rows that have
 * logits. -1 if nothing after its cache is needed. */
int32_t llm_build_layer(llm_graph_builder *g, int32_t layer, const llm_layer_input *in, int32_t x);

/* Layers in stacks that run in cycles, from embeddings to what the output matrix reads. -1 as
 * above. */
void llm_declare_stacks(llm_declarer *d, void (*declare_layer)(llm_declarer *d));
int32_t llm_build_stacks(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* The same with several residual streams. Declares the weights of the declarer's layer, or of the
 * head. */
void llm_declare_hyper(llm_declarer *d);
int32_t llm_build_hyper(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* The streams x [n_embd, n_stream, n_tok] of a layer with what it adds for runs of tokens. Declares
 * the table of the model where the declarer is in no layer. */
void llm_declare_ngram(llm_declarer *d);
int32_t llm_build_ngram(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok);

/* Layers whose blocks read a mix of the stream now and at earlier layers. As above. */
void llm_declare_depth(llm_declarer *d);
int32_t llm_build_depth(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* Parts of a layer, for those: what its mixer adds to the stream, -1 if it only fills the
 * cache; what its channel block adds; whether anything after its cache is needed; whether it gives
 * only the rows that have logits; those rows of x [*, n_tok]. */
int32_t llm_build_mixer(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
int32_t llm_build_channel(llm_graph_builder *g, int32_t layer, int32_t x);
bool llm_layer_is_needed(const llm_graph_builder *g, const llm_step_shape *shape, int32_t layer);
bool llm_layer_is_short(const llm_graph_builder *g, const llm_step_shape *shape, int32_t layer);
int32_t llm_build_out_rows(llm_graph_builder *g, int32_t x);

/* What each layer reads of a token beside the stream: of all layers, from rows of a table of the file
 * and the embeddings; and what a layer adds, from those rows and its stream x. */
void llm_declare_per_layer(llm_declarer *d);
int32_t llm_build_per_layer_rows(llm_graph_builder *g, int32_t embd, int64_t n_tok);
int32_t llm_build_per_layer(llm_graph_builder *g, int32_t layer, int32_t rows, int32_t x);

/* Layers of several streams, from embeddings to what the norm of the output reads. -1 as above. */
void llm_declare_altup(llm_declarer *d);
int32_t llm_build_altup(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* A layer that drafts tokens: what it begins with, from tokens and hidden states. */
void llm_declare_draft(llm_declarer *d);
int32_t llm_build_draft_input(llm_graph_builder *g, const llm_step_shape *shape);
/* The norm of its output head; LLM_ROLE_NONE = the model's. */
llm_role llm_draft_norm(const llm_model *model);

/* The gated delta rule: a matrix for each head, behind a short convolution. */
void llm_declare_delta(llm_declarer *d);
int32_t llm_build_delta(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* Heads of k_len elements, each divided by its length. */
int32_t llm_build_unit(llm_graph_builder *g, int32_t x, int32_t k_len);

/* The same with a decay for each element of a key. */
void llm_declare_kda(llm_declarer *d);
int32_t llm_build_kda(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* Linear attention with a fixed decay for each head. */
void llm_declare_lightning(llm_declarer *d);
int32_t llm_build_lightning(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* Linear attention whose inputs are mixed with the token before (RWKV). */
void llm_declare_rwkv(llm_declarer *d);
int32_t llm_build_rwkv(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
/* The same with a delta rule that erases with one vector and writes with another (RWKV-7). */
void llm_declare_rwkv7(llm_declarer *d);
int32_t llm_build_rwkv7(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
/* The token before minus x, [n_embd, n_tok]; kind: whose state has the token before. */
void llm_declare_shift(llm_declarer *d);
int32_t llm_build_shift(llm_graph_builder *g, int32_t layer, llm_state_kind kind, int32_t x);
/* Heads o [len, n_head, n_tok] as rows, each head normed where the layer has LLM_ROLE_RWKV_NORM. */
int32_t llm_build_heads_norm(llm_graph_builder *g, int32_t layer, int32_t o, int64_t n_tok);
/* The channel block of both, which reads the token before, too. */
void llm_declare_shifted(llm_declarer *d);
int32_t llm_build_shifted(llm_graph_builder *g, int32_t layer, int32_t x);

/* State spaces: of channels, and of heads. */
void llm_declare_mamba(llm_declarer *d);
int32_t llm_build_mamba(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
void llm_declare_mamba2(llm_declarer *d);
int32_t llm_build_mamba2(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

void llm_declare_mamba_heads(llm_declarer *d);
int32_t llm_build_mamba_heads(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* A gated short convolution. */
void llm_declare_short_conv(llm_declarer *d);
int32_t llm_build_short_conv(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* A dense feed-forward block. */
void llm_declare_ffn(llm_declarer *d);
int32_t llm_build_ffn(llm_graph_builder *g, int32_t layer, int32_t x, const char *name);
/* act(gate) * up, or what the form of the architecture's blocks is instead. gate -1 = none. */
int32_t llm_build_ffn_act(llm_graph_builder *g, int32_t layer, int32_t gate, int32_t up);

/* act(gate) * up as `glu` changes it: tdm_moe_params. */
int32_t llm_build_glu(llm_graph_builder *g, const llm_glu *glu, int32_t gate, int32_t up);

/* Experts chosen for each token, and those that serve every token. */
void llm_declare_experts(llm_declarer *d);
int32_t llm_build_router(llm_graph_builder *g, int32_t layer, int32_t x);
int32_t llm_build_experts(llm_graph_builder *g, int32_t layer, int32_t logit, int32_t x);

#endif
