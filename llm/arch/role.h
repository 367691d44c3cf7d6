/* SPDX-License-Identifier: MIT
 *
 * role.h: the functions of weights in a model, and one table that says for each its tensor's name,
 * its usage and its shape in symbols. How a group cuts a weight follows from those symbols: a
 * dimension of heads or of columns is cut with the block that it belongs to. Checking the tensors
 * of a file against the table: declare.h.
 */
#ifndef LLM_ROLE_H
#define LLM_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "llm/gguf/gguf.h"

/* A role that names a norm is followed by that of the norm's bias: role + 1 is used. Roles of one
 * tensor name differ in shape; an architecture uses one of them. "made": no file has the tensor,
 * llm_declare_made (declare.h) adds it. */
typedef enum llm_role {
    LLM_ROLE_NONE = 0,
    LLM_ROLE_TOKEN_EMBD,
    LLM_ROLE_TOKEN_EMBD_NORM,
    LLM_ROLE_TOKEN_EMBD_NORM_BIAS,
    LLM_ROLE_POSITION_EMBD,
    LLM_ROLE_TOKEN_TYPES, /* a row for each type */
    LLM_ROLE_OUTPUT_NORM,
    LLM_ROLE_OUTPUT_NORM_BIAS,
    LLM_ROLE_ENC_OUTPUT_NORM, /* the same under the name of encoders */
    LLM_ROLE_ENC_OUTPUT_NORM_BIAS,
    LLM_ROLE_DEC_OUTPUT_NORM, /* and under that of decoders behind an encoder */
    LLM_ROLE_DEC_OUTPUT_NORM_BIAS,
    LLM_ROLE_OUTPUT, /* absent: tied to the token embedding */
    LLM_ROLE_OUTPUT_BIAS,
    LLM_ROLE_GLOBAL_SCALE, /* llm_weight.scale of the output head, the only such matrix */
    LLM_ROLE_ROPE_FREQS,
    LLM_ROLE_ROPE_FACTORS_LONG, /* beyond the context of the original model */
    LLM_ROLE_ROPE_FACTORS_SHORT,
    LLM_ROLE_STACK_START, /* hrm.z_l_init: what the low stack begins with */
    LLM_ROLE_HYPER_HEAD,  /* block/hyper.c: of the sum that the output head reads */
    LLM_ROLE_HYPER_HEAD_BASE,
    LLM_ROLE_HYPER_HEAD_SCALE,
    LLM_ROLE_STREAMS_HEAD_NORM, /* the same with matrices of low rank */
    LLM_ROLE_STREAMS_HEAD_DOWN,
    LLM_ROLE_STREAMS_HEAD_UP,
    LLM_ROLE_DEPTH_HEAD,     /* block/depth.c: scores of what the output head reads */
    LLM_ROLE_PER_LAYER_EMBD, /* per-layer embeddings: block/per_layer.c */
    LLM_ROLE_PER_LAYER_MODEL_PROJ,
    LLM_ROLE_PER_LAYER_PROJ_NORM,
    LLM_ROLE_PER_LAYER_PROJ_NORM_BIAS,
    LLM_ROLE_ALTUP_PROJ, /* several streams: block/altup.c */
    LLM_ROLE_ALTUP_UNEMBD,
    LLM_ROLE_GLOBAL_COUNT_,
    LLM_ROLE_ATTN_NORM = LLM_ROLE_GLOBAL_COUNT_,
    LLM_ROLE_ATTN_NORM_BIAS,
    LLM_ROLE_ATTN_NORM_2,
    LLM_ROLE_ATTN_NORM_2_BIAS,
    LLM_ROLE_ATTN_POST_NORM, /* post_attention_norm */
    LLM_ROLE_ATTN_POST_NORM_BIAS,
    LLM_ROLE_ATTN_OUT_NORM, /* attn_output_norm */
    LLM_ROLE_ATTN_OUT_NORM_BIAS,
    LLM_ROLE_ATTN_Q,
    LLM_ROLE_ATTN_K,
    LLM_ROLE_ATTN_V,
    LLM_ROLE_ATTN_Q_BIAS,
    LLM_ROLE_ATTN_K_BIAS,
    LLM_ROLE_ATTN_V_BIAS,
    LLM_ROLE_ATTN_QKV, /* rows of Q, then K, then V */
    LLM_ROLE_ATTN_QKV_BIAS,
    LLM_ROLE_ATTN_Q_NORM, /* one weight for all heads */
    LLM_ROLE_ATTN_Q_NORM_BIAS,
    LLM_ROLE_ATTN_K_NORM,
    LLM_ROLE_ATTN_K_NORM_BIAS,
    LLM_ROLE_ATTN_Q_NORM_ROW, /* over all heads together */
    LLM_ROLE_ATTN_Q_NORM_ROW_BIAS,
    LLM_ROLE_ATTN_K_NORM_ROW,
    LLM_ROLE_ATTN_K_NORM_ROW_BIAS,
    LLM_ROLE_ATTN_Q_NORM_EACH, /* a weight for each head, no bias */
    LLM_ROLE_ATTN_K_NORM_EACH,
    LLM_ROLE_ATTN_Q_GAIN,    /* a number for each head, behind a norm without weights; no bias */
    LLM_ROLE_LAYER_SCALE,    /* layer_output_scale, one number */
    LLM_ROLE_ATTN_GATE,      /* an element of each head's result */
    LLM_ROLE_ATTN_GATE_HEAD, /* a number for each head */
    LLM_ROLE_ATTN_SINKS,
    LLM_ROLE_ATTN_DISTANCE_BIAS, /* made of attn_rel_b: block/distance_bias.c */
    LLM_ROLE_ATTN_OUT,
    LLM_ROLE_ATTN_OUT_BIAS,
    LLM_ROLE_CROSS_NORM, /* of a decoder over what its encoder gives: block/cross.c */
    LLM_ROLE_CROSS_NORM_BIAS,
    LLM_ROLE_CROSS_Q,
    LLM_ROLE_CROSS_K,
    LLM_ROLE_CROSS_V,
    LLM_ROLE_CROSS_OUT,
    LLM_ROLE_LINEAR_OUT, /* attn_output of a layer that is this matrix alone */
    LLM_ROLE_ATTN_Q_A,   /* latent attention: to the latent row of queries; Q_B: from it */
    LLM_ROLE_ATTN_Q_A_NORM,
    LLM_ROLE_ATTN_Q_A_NORM_BIAS,
    LLM_ROLE_ATTN_Q_B,
    LLM_ROLE_ATTN_KV, /* to a head that is key and value at once */
    LLM_ROLE_ATTN_KV_NORM,
    LLM_ROLE_ATTN_KV_NORM_BIAS,
    LLM_ROLE_ATTN_OUT_A, /* of each group of heads: from their results to a short row */
    LLM_ROLE_ATTN_OUT_B, /* from these rows to the stream */
    LLM_ROLE_POOL_KV,    /* of compressed attention: rows that are pooled, their scores */
    LLM_ROLE_POOL_SCORE,
    LLM_ROLE_POOL_BIAS, /* of scores by the place in a run */
    LLM_ROLE_POOL_NORM,
    LLM_ROLE_POOL_NORM_BIAS,
    LLM_ROLE_INDEX_POOL_KV, /* the same of its index */
    LLM_ROLE_INDEX_POOL_SCORE,
    LLM_ROLE_INDEX_POOL_BIAS,
    LLM_ROLE_INDEX_POOL_NORM,
    LLM_ROLE_INDEX_POOL_NORM_BIAS,
    LLM_ROLE_INDEX_ONE,  /* made: the weight of each head of an index of runs */
    LLM_ROLE_INDEX_EACH, /* made: of each token of a run */
    LLM_ROLE_ATTN_KV_A,  /* to the cached row: latent part, rotated part */
    LLM_ROLE_ATTN_KV_A_NORM,
    LLM_ROLE_ATTN_KV_A_NORM_BIAS,
    LLM_ROLE_ATTN_KV_A_WHOLE, /* the same for caches with every head's keys: on every member */
    LLM_ROLE_ATTN_KV_A_NORM_WHOLE,
    LLM_ROLE_ATTN_KV_A_NORM_WHOLE_BIAS,
    LLM_ROLE_ATTN_KV_B, /* from the latent row to each head's keys without rotation and values */
    LLM_ROLE_ATTN_K_ROPE_NORM, /* attn_k_norm, of rotated elements */
    LLM_ROLE_ATTN_K_ROPE_NORM_BIAS,
    LLM_ROLE_INDEX_Q, /* sparse attention: from the latent row of queries to those of the index */
    LLM_ROLE_INDEX_K, /* to the cached row of the index */
    LLM_ROLE_INDEX_K_NORM,
    LLM_ROLE_INDEX_K_NORM_BIAS,
    LLM_ROLE_INDEX_WEIGHT,  /* to the weight of each head of the index */
    LLM_ROLE_INDEX_Q_HEADS, /* of an index of blocks: to its queries */
    LLM_ROLE_INDEX_Q_NORM,
    LLM_ROLE_INDEX_Q_NORM_BIAS,
    LLM_ROLE_INDEX_K_ROW, /* to its cached row */
    LLM_ROLE_ATTN_K_B,    /* a matrix per head, applied to its query */
    LLM_ROLE_ATTN_V_B,    /* a matrix per head, from the latent row to its values */
    LLM_ROLE_DELTA_QKV,   /* delta rule: rows of q, then k, then v */
    LLM_ROLE_DELTA_IN,    /* or for each head of k its rows of q, k, v and gate */
    LLM_ROLE_DELTA_GATE,
    LLM_ROLE_DELTA_CONV,
    LLM_ROLE_DELTA_BETA_ALPHA, /* of each head of k: beta of its heads of v, then alpha */
    LLM_ROLE_DELTA_BETA,
    LLM_ROLE_DELTA_ALPHA,
    LLM_ROLE_DELTA_DT_BIAS,
    LLM_ROLE_DELTA_A,
    LLM_ROLE_DELTA_NORM,
    LLM_ROLE_DELTA_OUT,
    LLM_ROLE_DELTA_ATTN_OUT, /* the same under the name of attention's */
    LLM_ROLE_KDA_Q,          /* Kimi delta attention */
    LLM_ROLE_KDA_K,
    LLM_ROLE_KDA_V,
    LLM_ROLE_KDA_CONV_Q,
    LLM_ROLE_KDA_CONV_K,
    LLM_ROLE_KDA_CONV_V,
    LLM_ROLE_KDA_F, /* to the decay, as one matrix or two */
    LLM_ROLE_KDA_F_A,
    LLM_ROLE_KDA_F_B,
    LLM_ROLE_KDA_DT_BIAS,
    LLM_ROLE_KDA_A,
    LLM_ROLE_KDA_GATE, /* to the gate of the result, as one matrix or two */
    LLM_ROLE_KDA_GATE_A,
    LLM_ROLE_KDA_GATE_B,
    LLM_ROLE_KDA_GATE_WIDE, /* the one matrix under another name */
    LLM_ROLE_LIGHTNING_QKV, /* lightning attention: of each head rows of q, then k, then v */
    LLM_ROLE_LIGHTNING_NORM,
    LLM_ROLE_LIGHTNING_DECAY, /* made */
    LLM_ROLE_MAMBA_IN,        /* state space of channels: rows of x, then the gate */
    LLM_ROLE_MAMBA2_IN,       /* of heads: rows of the gate, then x, B, C, then time steps */
    LLM_ROLE_MAMBA_CONV,
    LLM_ROLE_MAMBA_CONV_BIAS,
    LLM_ROLE_MAMBA2_CONV,
    LLM_ROLE_MAMBA2_CONV_BIAS,
    LLM_ROLE_MAMBA_X,  /* to a row of time steps, then B and C */
    LLM_ROLE_MAMBA_DT, /* from that row to a time step for each channel */
    LLM_ROLE_MAMBA_DT_BIAS,
    LLM_ROLE_MAMBA_DT_NORM,
    LLM_ROLE_MAMBA_B_NORM,
    LLM_ROLE_MAMBA_C_NORM,
    LLM_ROLE_MAMBA_A,
    LLM_ROLE_MAMBA_D,
    LLM_ROLE_MAMBA2_A,
    LLM_ROLE_MAMBA2_D,
    LLM_ROLE_MAMBA2_DT_BIAS,
    LLM_ROLE_MAMBA2_NORM,    /* a row for each group */
    LLM_ROLE_MAMBA_HEADS_DT, /* from the row of time steps to one for each head */
    LLM_ROLE_MAMBA_HEADS_A,
    LLM_ROLE_MAMBA_HEADS_D,
    LLM_ROLE_MAMBA_OUT,
    LLM_ROLE_RWKV_LERP_X, /* RWKV: how much of the token before is in the input of MIX_A */
    LLM_ROLE_RWKV_LERP,   /* how much of it is in the inputs of decay, k, v, r and gate */
    LLM_ROLE_RWKV_MIX_A,
    LLM_ROLE_RWKV_MIX_B, /* a matrix for each of these five inputs, which adds to LERP */
    LLM_ROLE_RWKV_DECAY,
    LLM_ROLE_RWKV_DECAY_A,
    LLM_ROLE_RWKV_DECAY_B,
    LLM_ROLE_RWKV_R,
    LLM_ROLE_RWKV_K,
    LLM_ROLE_RWKV_V,
    LLM_ROLE_RWKV_R_BIAS,
    LLM_ROLE_RWKV_K_BIAS,
    LLM_ROLE_RWKV_V_BIAS,
    LLM_ROLE_RWKV_GATE,
    LLM_ROLE_RWKV_OUT,
    LLM_ROLE_RWKV_SHIFT, /* made: a filter whose result is the token before minus the token */
    LLM_ROLE_RWKV_DELAY, /* made: a filter that delays k, v and decay by one token (RWKV-6) */
    LLM_ROLE_RWKV_FIRST, /* RWKV-6: how much of its own key a token reads */
    LLM_ROLE_RWKV_NORM,  /* behind the norm of heads */
    LLM_ROLE_RWKV_NORM_BIAS,
    LLM_ROLE_RWKV7_LERP,  /* RWKV-7: likewise for the inputs of r, decay, k, v, rate and gate */
    LLM_ROLE_RWKV7_DECAY, /* a bias; role + 1 and + 2 are its matrices, as for RATE and VALUE */
    LLM_ROLE_RWKV7_DECAY_A,
    LLM_ROLE_RWKV7_DECAY_B,
    LLM_ROLE_RWKV7_RATE, /* of what is written */
    LLM_ROLE_RWKV7_RATE_A,
    LLM_ROLE_RWKV7_RATE_B,
    LLM_ROLE_RWKV7_VALUE, /* part of the first layer's v in v */
    LLM_ROLE_RWKV7_VALUE_A,
    LLM_ROLE_RWKV7_VALUE_B,
    LLM_ROLE_RWKV7_GATE_A,
    LLM_ROLE_RWKV7_GATE_B,
    LLM_ROLE_RWKV7_ERASED,   /* how much of a key is erased */
    LLM_ROLE_RWKV7_KEPT,     /* how the rate changes a key */
    LLM_ROLE_RWKV7_OWN,      /* how much of its own key a token reads */
    LLM_ROLE_CHANNEL_LERP_K, /* RWKV's channel block */
    LLM_ROLE_CHANNEL_LERP_R,
    LLM_ROLE_CHANNEL_KEY,
    LLM_ROLE_CHANNEL_VALUE,
    LLM_ROLE_CHANNEL_GATE,  /* channel_mix_receptance */
    LLM_ROLE_SHORT_CONV_IN, /* short convolution: rows of b, then c, then x */
    LLM_ROLE_SHORT_CONV,
    LLM_ROLE_SHORT_CONV_NEXT, /* made: the factor of the next token of a centred convolution */
    LLM_ROLE_SHORT_CONV_OUT,
    LLM_ROLE_FFN_NORM,
    LLM_ROLE_FFN_NORM_BIAS,
    LLM_ROLE_FFN_POST_NORM, /* post_ffw_norm */
    LLM_ROLE_FFN_POST_NORM_BIAS,
    LLM_ROLE_LAYER_OUT_NORM, /* layer_output_norm */
    LLM_ROLE_LAYER_OUT_NORM_BIAS,
    LLM_ROLE_FFN_EXPERT_NORM, /* ffn_norm_exps */
    LLM_ROLE_FFN_EXPERT_NORM_BIAS,
    LLM_ROLE_FFN_GATE,
    LLM_ROLE_FFN_UP,
    LLM_ROLE_FFN_DOWN,
    LLM_ROLE_FFN_GATE_UP, /* ffn_up with the gate's columns first */
    LLM_ROLE_FFN_GATE_BIAS,
    LLM_ROLE_FFN_UP_BIAS,
    LLM_ROLE_FFN_DOWN_BIAS,
    LLM_ROLE_FFN_ACT_SCALES, /* the result of the activation is divided by it */
    LLM_ROLE_FFN_ROUTER,
    LLM_ROLE_FFN_GATE_EXPS,
    LLM_ROLE_FFN_UP_EXPS,
    LLM_ROLE_FFN_DOWN_EXPS,
    LLM_ROLE_FFN_GATE_UP_EXPS, /* rows of gate, then of up, in each matrix */
    LLM_ROLE_FFN_LATENT_DOWN,  /* to a narrower row, which experts read and give */
    LLM_ROLE_FFN_LATENT_UP,    /* and back */
    LLM_ROLE_FFN_ROUTED_DOWN,  /* the same under another name, with a norm before the way back */
    LLM_ROLE_FFN_ROUTED_UP,
    LLM_ROLE_FFN_ROUTED_NORM,
    LLM_ROLE_FFN_ROUTED_NORM_BIAS,
    LLM_ROLE_FFN_ROUTER_BIAS,   /* added for the choice of experts, not for their weights */
    LLM_ROLE_FFN_ROUTER_BIAS_2, /* the same under another name */
    LLM_ROLE_FFN_LOGIT_BIAS,    /* added to the router's logits */
    LLM_ROLE_FFN_GATE_EXPS_BIAS,
    LLM_ROLE_FFN_UP_EXPS_BIAS,
    LLM_ROLE_FFN_DOWN_EXPS_BIAS,
    LLM_ROLE_FFN_GATE_CHUNK, /* experts that neighbouring experts share */
    LLM_ROLE_FFN_UP_CHUNK,
    LLM_ROLE_FFN_DOWN_CHUNK,
    LLM_ROLE_FFN_GATE_SHARED, /* experts that serve every token */
    LLM_ROLE_FFN_UP_SHARED,
    LLM_ROLE_FFN_DOWN_SHARED,
    LLM_ROLE_FFN_SHARED_GATE, /* a number for each token, for the shared experts */
    LLM_ROLE_HYPER_MIXER,     /* block/hyper.c: of the sums before and behind a block */
    LLM_ROLE_HYPER_MIXER_BASE,
    LLM_ROLE_HYPER_MIXER_SCALE,
    LLM_ROLE_HYPER_CHANNEL,
    LLM_ROLE_HYPER_CHANNEL_BASE,
    LLM_ROLE_HYPER_CHANNEL_SCALE,
    LLM_ROLE_STREAMS_MIXER_NORM, /* the same with matrices of low rank: before a block */
    LLM_ROLE_STREAMS_MIXER_DOWN,
    LLM_ROLE_STREAMS_MIXER_UP,
    LLM_ROLE_STREAMS_MIXER_WRITE, /* and behind it */
    LLM_ROLE_STREAMS_CHANNEL_NORM,
    LLM_ROLE_STREAMS_CHANNEL_DOWN,
    LLM_ROLE_STREAMS_CHANNEL_UP,
    LLM_ROLE_STREAMS_CHANNEL_WRITE,
    LLM_ROLE_NGRAM_KEY, /* block/ngram.c */
    LLM_ROLE_NGRAM_VALUE,
    LLM_ROLE_NGRAM_KEY_NORM,
    LLM_ROLE_NGRAM_QUERY_NORM,
    LLM_ROLE_NGRAM_CONV_NORM,
    LLM_ROLE_NGRAM_CONV,  /* made of the file's, with the tokens between */
    LLM_ROLE_NGRAM_SUM,   /* made: ones; the product is the sum of a row's elements */
    LLM_ROLE_DEPTH_MIXER, /* block/depth.c: scores of what a block reads */
    LLM_ROLE_DEPTH_CHANNEL,
    LLM_ROLE_ATTN_SUB_NORM, /* of llm_arch.has_sub_norms */
    LLM_ROLE_ATTN_SUB_NORM_BIAS,
    LLM_ROLE_FFN_SUB_NORM,
    LLM_ROLE_FFN_SUB_NORM_BIAS,
    LLM_ROLE_MATRIX_SCALE,   /* llm_weight.scale of any matrix of a layer */
    LLM_ROLE_FFN_PRE_NORM_2, /* of the channel blocks of llm_arch.has_twin_channel */
    LLM_ROLE_FFN_PRE_NORM_2_BIAS,
    LLM_ROLE_FFN_POST_NORM_1,
    LLM_ROLE_FFN_POST_NORM_1_BIAS,
    LLM_ROLE_FFN_POST_NORM_2,
    LLM_ROLE_FFN_POST_NORM_2_BIAS,
    LLM_ROLE_FFN_ROUTER_NORM, /* ffn_gate_inp.scale; no bias */
    LLM_ROLE_FFN_SUM,         /* made: ones; the product is the sum of a dense block's columns */
    LLM_ROLE_PER_LAYER_GATE,
    LLM_ROLE_PER_LAYER_PROJ,
    LLM_ROLE_PER_LAYER_POST_NORM,
    LLM_ROLE_PER_LAYER_POST_NORM_BIAS,
    LLM_ROLE_ALTUP_ROUTER,
    LLM_ROLE_ALTUP_ROUTER_NORM,
    LLM_ROLE_ALTUP_ROUTER_NORM_BIAS,
    LLM_ROLE_ALTUP_PREDICT,
    LLM_ROLE_ALTUP_CORRECT,
    LLM_ROLE_ALTUP_CORRECT_SCALE,
    LLM_ROLE_LAUREL_L,
    LLM_ROLE_LAUREL_R,
    LLM_ROLE_LAUREL_NORM,
    LLM_ROLE_LAUREL_NORM_BIAS,
    LLM_ROLE_NEXTN_PROJ, /* of a layer that drafts: from embedding and hidden state together */
    LLM_ROLE_NEXTN_EMBD_NORM,
    LLM_ROLE_NEXTN_EMBD_NORM_BIAS,
    LLM_ROLE_NEXTN_HIDDEN_NORM,
    LLM_ROLE_NEXTN_HIDDEN_NORM_BIAS,
    LLM_ROLE_NEXTN_STREAMS_NORM, /* of each of several residual streams */
    LLM_ROLE_NEXTN_MIX_NORM,     /* what its head reads of them; absent: as the model's */
    LLM_ROLE_NEXTN_MIX_DOWN,
    LLM_ROLE_NEXTN_MIX_UP,
    LLM_ROLE_NEXTN_EMBD, /* absent: the model's token embedding */
    LLM_ROLE_NEXTN_HEAD, /* absent: the model's output head */
    LLM_ROLE_NEXTN_HEAD_NORM,
    LLM_ROLE_NEXTN_HEAD_NORM_BIAS,
    LLM_ROLE_COUNT_
} llm_role;

/* A dimension of a weight, as a symbol. A group cuts those from LLM_DIM_FIRST_CUT_ on
 * (declare.c). */
typedef enum llm_dim {
    LLM_DIM_ONE = 0,
    LLM_DIM_EMBD, /* width of the residual stream */
    LLM_DIM_EMBD_TWICE,
    LLM_DIM_EMBD_THRICE,
    LLM_DIM_STREAMS,       /* residual streams */
    LLM_DIM_STREAM_MIXES,  /* numbers from which the factors of a block follow (block/hyper.c) */
    LLM_DIM_STREAM_SCALES, /* scales of these numbers */
    LLM_DIM_STREAMS_EMBD,  /* all streams as one row */
    LLM_DIM_CTX,           /* positions that the model was trained for */
    LLM_DIM_TYPES,         /* token types */
    LLM_DIM_PAIRS,         /* rotated pairs of a head */
    LLM_DIM_HEAD_K,        /* elements of a head of keys */
    LLM_DIM_HEAD_O,        /* of a head's result */
    LLM_DIM_NOPE,          /* of a query head before its rotated ones */
    LLM_DIM_LORA_Q,        /* of the latent row of queries */
    LLM_DIM_LORA_KV,       /* of the latent row, as the inner dimension of a head's matrix */
    LLM_DIM_ROT,           /* rotated elements of a head */
    LLM_DIM_DISTANCES,     /* between tokens, of which attention's bias has a number each */
    LLM_DIM_POOL,          /* rows that compressed attention pools, parts of a run together */
    LLM_DIM_INDEX_POOL,    /* of its index */
    LLM_DIM_RUN,           /* tokens of a run */
    LLM_DIM_INDEX_RUN,     /* tokens of a run of an index */
    LLM_DIM_GROUP_O,       /* of the results of a group of heads */
    LLM_DIM_LORA_OUT,      /* of the row that such a group gives */
    LLM_DIM_INDEX,         /* elements of a row of the index of sparse attention */
    LLM_DIM_INDEX_HEADS,
    LLM_DIM_INDEX_Q, /* elements of all heads of the index */
    LLM_DIM_KV_ROW,  /* of the latent row with its rotated elements, on every member */
    LLM_DIM_EXPERTS,
    LLM_DIM_EXPERT_ROW, /* of the row that experts read and give */
    LLM_DIM_CHUNKS,     /* experts that neighbouring experts share */
    LLM_DIM_FF_WHOLE,   /* columns of an expert, on every member */
    LLM_DIM_CONV,       /* tokens that a convolution reads */
    LLM_DIM_HEAD_RV,    /* elements of a head of v of a recurrent layer */
    LLM_DIM_SSM_STATE,
    LLM_DIM_SSM_RANK,
    LLM_DIM_SSM_ROW,   /* of time steps, B and C */
    LLM_DIM_SSM_GROUP, /* elements of a group of heads */
    LLM_DIM_MIX_ROW,   /* of the row between RWKV's matrices MIX_A and MIX_B, for one input */
    LLM_DIM_MIX_ROWS,  /* the same for all five inputs */
    LLM_DIM_DECAY_ROW, /* of the row between the two matrices of the decay */
    LLM_DIM_FIVE,
    LLM_DIM_RATE_ROW,
    LLM_DIM_VALUE_ROW,
    LLM_DIM_GATE_ROW,
    LLM_DIM_MIXES,     /* inputs that are mixed with the token before: six, five without a gate */
    LLM_DIM_PER_LAYER, /* of what one layer reads of a token */
    LLM_DIM_PER_LAYER_ALL,
    LLM_DIM_STREAMS_SQUARED,
    LLM_DIM_OTHER_STREAMS,
    LLM_DIM_LAUREL,
    LLM_DIM_STREAMS_RANK, /* of streams with matrices of low rank */
    LLM_DIM_NGRAM_CONV,   /* tokens that its convolution spans */
    LLM_DIM_FIRST_CUT_,
    LLM_DIM_VOCAB = LLM_DIM_FIRST_CUT_,
    LLM_DIM_Q,          /* elements of all query heads */
    LLM_DIM_K,          /* of all key heads */
    LLM_DIM_V,          /* of all value heads */
    LLM_DIM_O,          /* of the results of all query heads */
    LLM_DIM_QKV,        /* Q, K, V one after the other */
    LLM_DIM_OUT_GROUPS, /* of heads, each with an output matrix */
    LLM_DIM_OUT_ROWS,   /* of what all of these give */
    LLM_DIM_HEADS,      /* query heads */
    LLM_DIM_HEADS_KV,   /* key heads */
    LLM_DIM_KV,         /* elements of all key heads without rotation and of all value heads */
    LLM_DIM_LATENT,     /* of the latent row, held whole by every member that has a head */
    LLM_DIM_LATENT_ROW, /* the same with its rotated elements */
    LLM_DIM_DELTA_QKV,  /* of a recurrent layer: q, then k, then v of all heads */
    LLM_DIM_DELTA_IN,   /* or of each head q, k, v and gate */
    LLM_DIM_DELTA_V,    /* elements of all heads of v */
    LLM_DIM_DELTA_KV,   /* elements of as many heads of v as there are of k */
    LLM_DIM_DELTA_EACH, /* of each head its q, k and v */
    LLM_DIM_DELTA_HEADS,
    LLM_DIM_DELTA_HEADS_TWICE, /* two numbers for each head of v, by heads of k */
    LLM_DIM_SSM_INNER,         /* of a state space: all channels, by groups */
    LLM_DIM_SSM_INNER_TWICE,   /* x, then the gate */
    LLM_DIM_SSM_ALL,           /* gate, x, B, C, time steps */
    LLM_DIM_SSM_XBC,           /* x, B, C */
    LLM_DIM_SSM_HEADS,
    LLM_DIM_SSM_GROUPS,
    LLM_DIM_CHANNELS, /* of a short convolution, as wide as the stream */
    LLM_DIM_CHANNELS_THRICE,
    LLM_DIM_FF,
    LLM_DIM_FF_TWICE, /* columns of the gate, then of up */
    LLM_DIM_FF_EXPERT,
    LLM_DIM_FF_EXPERT_TWICE,
    LLM_DIM_FF_CHUNK,
    LLM_DIM_FF_SHARED
} llm_dim;

typedef struct llm_role_info {
    const char *suffix; /* of the tensor's name, "blk.N." before it where the role has layers */
    uint32_t usage;     /* TDM_USAGE_* */
    llm_dim dim[4];
} llm_role_info;

/* Never NULL. [any-thread] */
const llm_role_info *llm_role_get(llm_role role);

enum { LLM_TENSOR_NAME_SIZE = 96 };

/* The name of a role's tensor in files; `layer` is -1 outside layers. [any-thread] */
void llm_role_name(llm_role role, int32_t layer, char name[LLM_TENSOR_NAME_SIZE]);

/* The layer N in the name "blk.N.SUFFIX" of a tensor; *suffix_out = SUFFIX. -1 for other names, and
 * if N has more than 9 digits; *suffix_out = the name then. [any-thread] */
int32_t llm_tensor_layer(const char *name, const char **suffix_out);

/* The name of a role's tensor in this file: layers of encoders of T5 have names of their own.
 * [any-thread] */
void llm_role_name_in(const llm_gguf *gguf, llm_role role, int32_t layer,
                      char name[LLM_TENSOR_NAME_SIZE]);

/* The tensor `suffix` (".scale") beside a matrix "NAME.weight", called "NAME.scale"; NULL if there
 * is none, and for other names. [any-thread] */
const llm_gguf_tensor *llm_tensor_beside(const llm_gguf *gguf, const char *matrix,
                                         const char *suffix);

/* Whether a tensor is the scale of a matrix ("NAME.scale") or of what the matrix is multiplied with
 * ("NAME.input_scale"), for a tensor "NAME.weight" of the file. [any-thread] */
bool llm_tensor_is_scale(const llm_gguf *gguf, const char *name, const char *suffix);

/* The tensor of a role, also where the file leaves out ".weight"; NULL if there is none.
 * [any-thread] */
const llm_gguf_tensor *llm_role_tensor(const llm_gguf *gguf, llm_role role, int32_t layer);

#endif
