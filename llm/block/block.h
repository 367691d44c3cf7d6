/* SPDX-License-Identifier: MIT
 *
 * block.h: the blocks that layers consist of. Each declares its weights (declare.h) and builds its
 * part of the forward graph, from the table of the architecture (arch.h) and the spec of the layer
 * (layer_spec.h). How blocks form layers and a model: layers.c.
 *
 * Functions that declare add weights of the declarer's layer, or with layer -1 of the model; the
 * declarer keeps the first failure. Functions that build take and return numbers of values of the
 * graph. A failure makes them return -1, and tdm_builder_finish reports it.
 */
#ifndef LLM_BLOCK_H
#define LLM_BLOCK_H

#include "llm/arch/declare.h"
#include "llm/arch/forward_graph.h"

/* W x for the weight with the number `weight`, times its scale (llm_weight.scale), plus what the
 * step's adapters add. */
int32_t llm_build_product(llm_graph_builder *g, int32_t weight, int32_t x);
/* The same of the matrices of experts: x [k, 1 or n_used, n_tok], id i32 [n_used, n_tok] ->
 * [n, n_used, n_tok]. `scale` is a value [1, n_used, n_tok], the scales of the experts `id`; -1 =
 * the weight has none. */
int32_t llm_build_expert_product(llm_graph_builder *g, int32_t weight, int32_t scale, int32_t x,
                                 int32_t id);
/* The rows `id` of the token embedding, plus what the step's adapters add. */
int32_t llm_build_token_rows(llm_graph_builder *g, int32_t weight, int32_t id);
/* Whether the step has an adapter that changes the weight; false for weight -1. */
bool llm_is_adapted(const llm_graph_builder *g, int32_t weight);
/* The value of a role's weight, of a layer or with layer -1 of the model; -1 where the model has no
 * such weight. */
int32_t llm_build_weight(llm_graph_builder *g, int32_t layer, llm_role role);
/* W x, plus the bias if the model has one; bias LLM_ROLE_NONE = none. `layer` -1 = a global
 * role. The builder fails if the model has no W. */
int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, llm_role bias,
                          int32_t x, const char *name);
/* The norm of x with the weight and the bias of a role, as far as the model has them;
 * LLM_ROLE_NONE: without both. */
int32_t llm_build_norm(llm_graph_builder *g, int32_t layer, llm_role role, llm_norm norm,
                       int32_t x);
/* The norm of x in the model's form (hparams.norm) with the weight and the bias of a role; x itself
 * for LLM_ROLE_NONE: the layer has no such norm. */
int32_t llm_build_norm_if(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x);
/* Elements first .. first + n - 1 of each row of x [*, ne1, ne2]. */
int32_t llm_build_columns(llm_graph_builder *g, int32_t x, int64_t first, int64_t n);
/* Heads first .. first + n - 1 of x [*, n_head, n_tok]. */
int32_t llm_build_heads(llm_graph_builder *g, int32_t x, int64_t first, int64_t n);

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
/* Makes the weight [LLM_N_DISTANCE, n_head] of what attention adds for each distance (T5). */
void llm_declare_distance_bias(llm_declarer *d);
/* Attention of a decoder's layer over what its encoder gives. */
void llm_declare_cross(llm_declarer *d);
/* In the encoder's step: writes the keys and values of its result x [n_embd, n_tok] for a layer of
 * the decoder. */
void llm_build_cross_write(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok);
/* In the decoder's steps: what the layer adds to its stream x [n_embd, n_tok]. */
int32_t llm_build_cross(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok);

/* The factors of the layer's frequencies for a context of this length, [n_rot / 2]; -1 = the model
 * has none, or the layer does not use them. */
int32_t llm_build_rope_factors(llm_graph_builder *g, int32_t layer);
/* Heads x [*, *, n_tok] rotated by `pos` with the layer's factors; x itself where rope->n_rot is
 * 0. */
int32_t llm_build_rotated(llm_graph_builder *g, int32_t layer, const tdm_rope_params *rope,
                          int32_t x, int32_t pos);
/* The same with the layer's parameters for heads that have the rotated elements alone, so that the
 * first has offset 0. In the cache of latent.c they follow the latent part. */
int32_t llm_build_rotated_alone(llm_graph_builder *g, int32_t layer, int32_t x, int32_t pos);

/* The parameters of a layer's attention over its cache. llm_graph_state has created the state. */
tdm_attention_params llm_attention_params(const llm_graph_builder *g, int32_t layer);

/* o [o_len, n_head, n_tok] times the gate of the architecture, which is computed from in->x or, for
 * LLM_GATE_QUERY, from query_gate (shaped like o; else -1) -> [o_len * n_head, n_tok] */
int32_t llm_build_gate(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                       int32_t query_gate, int32_t o);

/* Attention over one latent row per token, which all heads share. */
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

/* The index of sparse attention that selects runs of tokens (llm_layer_spec.index_run) -> select
 * i32 [n_select + index_run - 1, n_tok] of ATTENTION. */
void llm_declare_run_index(llm_declarer *d);
void llm_build_run_index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
int32_t llm_build_run_index_select(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* Attention over a window and over rows that stand for runs of tokens. */
void llm_declare_compressed(llm_declarer *d);
int32_t llm_build_compressed(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* Attention with a cache of the keys and values of every head, which follow from a latent row. */
void llm_declare_latent_wide(llm_declarer *d);
int32_t llm_build_latent_wide(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* The shape of a step, and what layers read beside the stream. */
typedef struct llm_layer_input {
    const llm_step_shape *shape;
    int32_t pos;       /* i32 [n_tok] */
    int32_t per_layer; /* [n_per_layer * n_layer, n_tok] of per_layer.c; -1 = none */
} llm_layer_input;

/* Builds one layer on the residual stream x [n_embd, n_tok]; the last layer gives only the rows
 * that have logits (llm_layer_is_short). -1 if nothing after its cache is needed. */
int32_t llm_build_layer(llm_graph_builder *g, int32_t layer, const llm_layer_input *in, int32_t x);

/* Layers in stacks that run in cycles, from embeddings to what the output matrix reads. -1 as
 * above. */
int32_t llm_build_stacks(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* Layers with several residual streams, from embeddings to what the norm of the output reads. -1 as
 * above. Declares the weights of the declarer's layer, or of the head. */
void llm_declare_hyper(llm_declarer *d);
int32_t llm_build_hyper(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* The streams x [n_embd, n_stream, n_tok] plus what a layer adds for runs of tokens
 * (llm_layer_spec.has_ngram). */
void llm_declare_ngram(llm_declarer *d);
int32_t llm_build_ngram(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok);

/* Layers whose blocks read a mix of the stream and of its states at earlier layers. The rest as for
 * llm_build_hyper. */
void llm_declare_depth(llm_declarer *d);
int32_t llm_build_depth(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* Parts of a layer, for the files that form layers in another way than llm_build_layer.
 * What the mixer adds to the stream; -1 if it only fills the cache. */
int32_t llm_build_mixer(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);
/* What the channel block adds to the stream. */
int32_t llm_build_channel(llm_graph_builder *g, int32_t layer, int32_t x);
/* Whether anything after the layer's cache is needed. */
bool llm_layer_is_needed(const llm_graph_builder *g, const llm_step_shape *shape, int32_t layer);
/* Whether the layer gives only the rows that have logits. */
bool llm_layer_is_short(const llm_graph_builder *g, const llm_step_shape *shape, int32_t layer);
/* The rows of x [*, n_tok] that have logits: [*, n_out]. */
int32_t llm_build_out_rows(llm_graph_builder *g, int32_t x);

/* Rows that each layer reads of a token beside the stream. Declares the weights of the declarer's
 * layer. */
void llm_declare_per_layer(llm_declarer *d);
/* The rows of all layers [n_per_layer * n_layer, n_tok], from rows of a table of the file and the
 * embeddings. */
int32_t llm_build_per_layer_rows(llm_graph_builder *g, int32_t embd, int64_t n_tok);
/* What a layer adds to its stream x, from these rows and x. */
int32_t llm_build_per_layer(llm_graph_builder *g, int32_t layer, int32_t rows, int32_t x);

/* Layers of several streams, from embeddings to what the norm of the output reads. -1 as above. */
void llm_declare_altup(llm_declarer *d);
int32_t llm_build_altup(llm_graph_builder *g, const llm_layer_input *in, int32_t embd);

/* A layer that drafts tokens: its stream at the beginning, from tokens and hidden states. */
void llm_declare_draft(llm_declarer *d);
int32_t llm_build_draft_input(llm_graph_builder *g, const llm_step_shape *shape);
/* The norm of its output head; LLM_ROLE_NONE = the model's. */
llm_role llm_draft_norm(const llm_model *model);

/* The gated delta rule: a matrix for each head, behind a short convolution. */
void llm_declare_delta(llm_declarer *d);
int32_t llm_build_delta(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in);

/* Heads of k_len elements, each divided by its Euclidean length. */
int32_t llm_build_unit(llm_graph_builder *g, int32_t x, int32_t k_len);

/* Kimi delta attention: the gated delta rule with a decay for each element of a key. */
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
/* The x of the token before minus x, [n_embd, n_tok]; the state `kind` keeps it between steps. */
void llm_declare_shift(llm_declarer *d);
int32_t llm_build_shift(llm_graph_builder *g, int32_t layer, llm_state_kind kind, int32_t x);
/* Heads o [len, n_head, n_tok] as rows, each head normed where the layer has LLM_ROLE_RWKV_NORM. */
int32_t llm_build_heads_norm(llm_graph_builder *g, int32_t layer, int32_t o, int64_t n_tok);
/* The channel block of RWKV-6 and RWKV-7, which reads the token before, too. */
void llm_declare_shifted(llm_declarer *d);
int32_t llm_build_shifted(llm_graph_builder *g, int32_t layer, int32_t x);

/* State spaces: of channels; of heads; of heads that share B and C. */
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
/* The activation of the layer's dense block: act(gate) * up, or the form that llm_layer_spec.ffn
 * names. gate -1 = the form has no gate. */
int32_t llm_build_ffn_act(llm_graph_builder *g, int32_t layer, int32_t gate, int32_t up);

/* act(gate) * up as `glu` changes it: tdm_moe_params. */
int32_t llm_build_glu(llm_graph_builder *g, const llm_glu *glu, int32_t gate, int32_t up);

/* Experts chosen for each token, and those that serve every token. */
void llm_declare_experts(llm_declarer *d);
int32_t llm_build_router(llm_graph_builder *g, int32_t layer, int32_t x);
int32_t llm_build_experts(llm_graph_builder *g, int32_t layer, int32_t logit, int32_t x);

#endif
