/* SPDX-License-Identifier: MIT
 *
 * hparams.h: a model's hyperparameters, read from the keys of a GGUF file. They are checked so that
 * later code neither divides by zero nor overflows. Which of them an architecture uses: arch.h.
 * Tensors: model.h.
 */
#ifndef LLM_HPARAMS_H
#define LLM_HPARAMS_H

#include <stdbool.h>

#include "llm/arch/layer_spec.h"
#include "llm/gguf/gguf.h"
#include "tandem/op.h"

#define LLM_MAX_LAYERS 1024
/* Most tokens of a context, in a file or in a request. */
#define LLM_MAX_CTX (1 << 28)

/* Most residual streams (llm_hparams.n_stream). */
#define LLM_MAX_STREAMS 64
/* The most tokens that a row of a cache stands for: they are saved together. */
#define LLM_MAX_RUN 128
/* Most saved streams of LLM_STREAM_DEPTH (block/depth.c): every block reads all of them. */
#define LLM_MAX_DEPTH 64

#define LLM_MAX_NGRAM      8
#define LLM_MAX_NGRAM_ROWS 64

/* Rows of a table that a token selects together with the tokens before it (block/ngram.c). Each run
 * of 2 .. n_gram tokens that ends with the token selects n_head rows: (t_0 factor_0 xor t_1
 * factor_1 xor ..) mod size + first, in arithmetic of 64 bits, where t_0 is the token itself and
 * t_1 the one before it. An end of text, all tokens before it, and tokens before the sequence count
 * as `eos`. */
typedef struct llm_ngram {
    int32_t n_gram; /* 2 .. LLM_MAX_NGRAM; 0 = the model has no such rows */
    int32_t layer;  /* the layer that reads them */
    int32_t n_head;
    int32_t len;    /* elements of a row */
    int32_t n_conv; /* tokens that the convolution reads, each n_gram before the next */
    int32_t eos;
    uint64_t factor[LLM_MAX_NGRAM];
    int32_t first[LLM_MAX_NGRAM_ROWS], size[LLM_MAX_NGRAM_ROWS]; /* of each row of a token */
    const llm_gguf_tensor *table; /* [len, rows] of the file; contexts read its rows there */
} llm_ngram;

/* Rows that a token has. */
static inline int32_t llm_ngram_row_count(const llm_ngram *n) {
    return n->n_gram > 0 ? (n->n_gram - 1) * n->n_head : 0;
}

/* Tokens from the oldest that the convolution reads to the newest, both included. */
static inline int32_t llm_ngram_span(const llm_ngram *n) {
    return n->n_gram > 0 ? (n->n_conv - 1) * n->n_gram + 1 : 0;
}

struct llm_arch; /* arch.h */

typedef enum llm_rope_scaling {
    LLM_ROPE_SCALING_NONE = 0,
    LLM_ROPE_SCALING_LINEAR,
    LLM_ROPE_SCALING_YARN
} llm_rope_scaling;

typedef struct llm_hparams {
    char arch[32];         /* general.architecture */
    char name[128];        /* general.name, cut to fit; "" if there is none */
    int32_t n_layer;       /* 1 .. LLM_MAX_LAYERS */
    int32_t n_layer_draft; /* layers behind them that only draft tokens */
    /* The encoder's layers, which come first; the others are those of its decoder (block/cross.c).
     * 0 = there is no encoder. */
    int32_t n_layer_encoder;
    int32_t decoder_start; /* id of the token with which the decoder's text begins */
    int32_t layer_first;   /* not 0: the model is the layer of this number alone, which drafts
                              tokens (llm_model_open_draft); the others are empty */
    int32_t n_embd;
    int32_t n_vocab;       /* rows of the token embedding */
    int32_t n_token_type;  /* rows of the embedding of token types; 0 = no key */
    bool is_bidirectional; /* tokens see later ones of their batch, too */
    /* With LLM_KEY_PER_LAYER n_head, n_head_kv and n_ff are the largest of any layer, and
     * layer_spec.h has those of each layer. */
    int32_t n_head; /* else a multiple of n_head_kv */
    int32_t n_head_kv;
    int32_t head_dim_k; /* of queries and keys, as in the cache */
    int32_t head_dim_v;
    /* Latent attention: the cache has one row for all heads: n_lora_kv elements, from which keys
     * and values are computed, then rope.n_rot rotated elements. */
    int32_t n_lora_kv;   /* 0 = there is no such row. LLM_MIXER_LATENT_WIDE: its width, although the
                          cache has K and V */
    int32_t n_out_group; /* groups of heads, each with an output matrix; 0 = one for all */
    int32_t n_lora_out;  /* width of the row that a group of heads gives; 0 = there are no groups */
    int32_t n_lora_q;    /* width of the row that queries are computed from; 0 = from the residual
                          stream */
    int32_t head_dim_q;  /* of projected queries: plain elements, then rope.n_rot rotated ones */
    int32_t head_dim_o;  /* of a head's values */
    int32_t n_ff;
    int32_t n_expert; /* 0 = a dense feed-forward */
    int32_t n_expert_used;  /* as n_ff_expert, the most of any layer */
    int32_t n_layer_given;  /* first layers, whose experts a table gives for each token id */
    int32_t n_expert_row;   /* width of the row that experts read and give; 0 = n_embd */
    int32_t n_ff_expert;    /* columns of one expert */
    int32_t n_ff_shared;    /* columns of all experts together that serve every token */
    int32_t n_layer_dense;  /* first layers, which have no experts */
    int32_t n_expert_chunk; /* neighbouring experts that share a smaller one; 0 = none do */
    int32_t n_ff_chunk;     /* columns of such a smaller one */
    float chunk_scale;      /* of what the shared smaller experts add */
    tdm_route_params route; /* how tokens choose experts */
    int32_t n_ctx_train;
    llm_norm norm; /* of all norms but those of queries and keys */
    float norm_eps;
    float attention_scale;     /* 0 = 1 / sqrt(head_dim_k) */
    float attention_softcap;   /* 0 = none */
    float value_scale;         /* of what attention gives; 0 = 1 */
    float alibi_max_bias;      /* 0 = none */
    int32_t n_distance_bucket; /* of the bias of attention by distance (T5); 0 = none */
    float temperature_scale;   /* of attention, grows with (position + offset) / length; 0 = none */
    int32_t temperature_length, temperature_offset;
    /* Tokens that sparse attention selects, all of them in contexts up to that length. 0 =
     * attention is not sparse. Longer contexts are refused where there is no index. */
    int32_t n_select;
    int32_t n_index_head, index_len; /* of the index that selects (block/index.c); 0 = none */
    int32_t select_block;            /* tokens that are selected together (block/block_index.c); 0 =
                                        each alone */
    int32_t n_select_local;          /* last blocks that are always selected */
    tdm_rope_mode index_rope;        /* of its keys and queries */
    int32_t index_rope_offset;       /* their first rotated element */
    float index_norm_eps;
    float clamp_qkv;         /* projections are clamped to this on both sides; 0 = they are not */
    float embd_scale;        /* of embeddings; 0 = 1 */
    float residual_scale;    /* of what a block adds to the residual stream; 0 = 1 */
    float logit_scale;       /* 0 = 1 */
    float logit_softcap;     /* 0 = none */
    bool is_parallel;        /* mixer and channel block read the same stream */
    int32_t window;          /* tokens that layers with a window see; 0 = no layer has one */
    float run_freq_base;     /* LLM_MIXER_COMPRESSED: of RoPE in layers with runs */
    float window_freq_base;  /* of RoPE in layers with a window; 0 = rope.freq_base */
    int32_t window_head_dim; /* of their keys, queries and values; 0 = as in the others */
    int32_t window_n_rot;    /* rotated elements of their heads; 0 = as in the others */
    int32_t n_layer_shared;  /* last layers, which read the caches of earlier ones */
    int32_t n_per_layer;     /* width of what each layer reads of a token; block/per_layer.c */
    /* [n_per_layer * n_layer, n_vocab] of the file; contexts read its rows there. */
    const llm_gguf_tensor *per_layer_table;
    int32_t n_laurel; /* width of the low-rank residual of block/altup.c */
    int32_t n_stack_layer, n_cycle_high, n_cycle_low; /* block/stacks.c; 0 = there are none */
    /* First layers, whose weights the file has: the others have the weights of these
     * (llm_layer_spec.weight_layer) and caches of their own. 0 = all layers. */
    int32_t n_layer_stored;
    bool has_round_norm; /* between rounds of these layers stands the norm before the head */
    /* Recurrent layers: state space and delta rule, short convolutions. 0 = the file has no key. */
    int32_t n_conv; /* tokens that a convolution reads */
    int32_t ssm_inner, ssm_state, ssm_rank, ssm_group;
    int32_t ssm_step_row;           /* LLM_MIXER_MAMBA_HEADS: width of the row of time steps */
    int32_t n_mix_row, n_decay_row; /* LLM_MIXER_RWKV: widths of rows between small matrices */
    int32_t n_rate_row, n_value_row, n_gate_row; /* LLM_MIXER_RWKV7: likewise; 0 = no gate */
    int32_t halving_period; /* behind every so many layers the stream is halved; 0 = never */
    float decay_floor;      /* LLM_MIXER_KDA: bound of the logarithm of a decay, < 0; 0 = none */
    bool is_decay_negative; /* with a bound: the file has the factors of decays negated */
    int32_t
        n_depth_layer; /* LLM_STREAM_DEPTH: layers after which the stream is saved and set to 0 */
    int32_t n_stream;  /* LLM_STREAM_HYPER, _ALTUP: residual streams */
    float stream_eps, stream_magnitude; /* LLM_STREAM_HYPER: eps and m of block/hyper.c */
    /* LLM_STREAM_HYPER: rounds in which the matrix that mixes the streams is made doubly
     * stochastic; 0 = streams are not mixed. */
    int32_t n_sinkhorn;
    int32_t n_stream_rank; /* LLM_STREAM_HYPER: of matrices of low rank; 0 = the other form */
    llm_ngram ngram;
    float stream_scale; /* of the normed stream: llm_arch.has_normed_stream */
    bool has_ssm_norms; /* norms of time steps, B and C, without weights where the file has none */
    llm_rope_scaling rope_scaling;
    tdm_rope_params rope;
} llm_hparams;

/* Tokens of the longest context whose attention does not select, where selecting is not supported:
 * there is no index, or tokens see later ones. 0 = there is no such limit. */
static inline int32_t llm_hparams_n_unselected(const llm_hparams *h) {
    return h->n_index_head == 0 || h->is_bidirectional ? h->n_select : 0;
}

/* Tokens of the longest context that the model is made for: as trained, or as many as its attention
 * can see. */
static inline int32_t llm_hparams_n_ctx(const llm_hparams *h) {
    const int32_t most = llm_hparams_n_unselected(h);
    return most > 0 && most < h->n_ctx_train ? most : h->n_ctx_train;
}

/* The table that stays in the file, from which a context reads *n_row rows for each token
 * (context_rows.c). NULL = the model has none. */
static inline const llm_gguf_tensor *llm_hparams_file_table(const llm_hparams *h, int32_t *n_row) {
    *n_row = h->ngram.n_gram > 0 ? llm_ngram_row_count(&h->ngram) : 1;
    return h->ngram.n_gram > 0 ? h->ngram.table : h->per_layer_table;
}

/* Reads the keys "ARCH.*" that all architectures share, those that this one honours, and those that
 * only it has. Messages about a missing key, a wrong type or a number out of range name file, key
 * and value. [any-thread] */
tdm_status llm_hparams_read(const llm_gguf *gguf, const struct llm_arch *arch,
                            llm_hparams *hparams_out, tdm_error *err);

#endif
