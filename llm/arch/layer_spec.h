/* SPDX-License-Identifier: MIT
 *
 * layer_spec.h: what one layer of a model consists of, resolved when the file is opened. Blocks
 * read it to declare weights and to build graphs. What all layers share: hparams.h.
 */
#ifndef LLM_LAYER_SPEC_H
#define LLM_LAYER_SPEC_H

#include <stdbool.h>

#include "llm/arch/role.h"
#include "tandem/op.h"

typedef enum llm_norm {
    LLM_NORM_RMS = 0,
    LLM_NORM_LAYER /* mean and variance */
} llm_norm;

/* ATTENTION to COMPRESSED have a cache of keys and values: llm_layer_has_cache compares with the
 * last of them. */
typedef enum llm_mixer {
    LLM_MIXER_ATTENTION = 0,
    LLM_MIXER_LATENT,      /* attention over one latent row per token */
    LLM_MIXER_LATENT_WIDE, /* the same, but the cache has the keys and values of every head */
    LLM_MIXER_COMPRESSED,  /* attention over a window and over rows that stand for runs of tokens */
    LLM_MIXER_DELTA,       /* gated delta rule: a matrix for each head */
    LLM_MIXER_SHORT_CONV,  /* a gated short convolution */
    LLM_MIXER_MAMBA,       /* state space of channels */
    LLM_MIXER_MAMBA2,      /* state space of heads */
    LLM_MIXER_MAMBA_HEADS, /* the same; B, C and time steps follow from the convolution's result */
    LLM_MIXER_KDA,         /* the delta rule with a decay for each element of a key */
    LLM_MIXER_LIGHTNING,   /* linear attention with a fixed decay for each head */
    LLM_MIXER_RWKV,        /* linear attention with a decay for each element of a key */
    LLM_MIXER_RWKV7,       /* the same with a delta rule */
    LLM_MIXER_LINEAR,      /* one matrix, in place of attention */
    LLM_MIXER_NONE         /* the layer is a channel block alone */
} llm_mixer;

typedef enum llm_ffn_form {
    LLM_FFN_GATED = 0, /* down (act(gate x) * up x) */
    LLM_FFN_FUSED,     /* the same, with gate and up in one matrix, gate first */
    LLM_FFN_PLAIN,     /* down act(up x) */
    LLM_FFN_SQUARED,   /* down act(up x)^2 */
    LLM_FFN_SHIFTED    /* block/rwkv.c: of each token and the one before */
} llm_ffn_form;

/* What a gated unit does beyond act(gate) * up: tdm_moe_params. All 0 = nothing. */
typedef struct llm_glu {
    float limit, alpha, up_offset;
    bool is_soft;
} llm_glu;

/* The sizes of a mixer with a recurrent state; all 0 in other layers. */
typedef struct llm_recurrent_spec {
    llm_mixer kind;   /* the mixer, or one added to attention; ATTENTION = the layer has none */
    int32_t n_conv;   /* tokens that the convolution reads, the newest included */
    int32_t n_head_k; /* heads of q and k; of a state space: groups, heads of C and B */
    int32_t n_head_v; /* a multiple of n_head_k */
    int32_t k_len, v_len;
    int32_t rank;  /* width of the row of time steps of a state space; 0 = it has none */
    bool is_tiled; /* head h of v reads head h % n_head_k of q and k, else h / heads per k */
    /* LLM_MIXER_DELTA: one matrix has for each head of k its rows of q, k, v and gate. Then heads
     * are not tiled. */
    bool is_interleaved;
} llm_recurrent_spec;

/* Which tokens sparse attention of a layer sees (block/index.c). */
typedef enum llm_index_kind {
    LLM_INDEX_NONE = 0, /* all of them */
    LLM_INDEX_OWN,      /* those that an index of its own selects */
    LLM_INDEX_SHARED    /* those of the last layer before it that has an index */
} llm_index_kind;

/* An activation: alpha_p x^2 + beta x above 0, alpha_n (exp(x) - 1 - x) + beta x below. */
typedef struct llm_xielu {
    float alpha_n, alpha_p, beta;
} llm_xielu;

typedef struct llm_layer_spec {
    llm_mixer mixer;
    llm_role norm_mixer, norm_mixer_post; /* LLM_ROLE_NONE = no such norm */
    llm_role norm_channel, norm_channel_post;
    llm_role norm_q, norm_k; /* of queries and keys; their roles give the shape */
    bool is_parallel;        /* mixer and channel block read the same stream */
    int32_t n_head;          /* a multiple of n_head_kv */
    int32_t n_head_kv;
    int32_t q_len;        /* elements of a projected query head */
    int32_t k_len;        /* of a head of keys, as in the cache */
    int32_t v_len;        /* of a head of values, as in the cache */
    int32_t o_len;        /* of a head's result before the output projection */
    bool has_bare_norm_q; /* queries are normed without a weight, after RoPE */
    bool has_bare_norm_k; /* keys likewise */
    bool has_bare_norm_v; /* values likewise */
    bool has_temperature; /* of attention, by position: hparams.temperature_* */
    bool is_causal;       /* attention sees no later tokens */
    int32_t window;       /* tokens that attention sees; 0 = all */
    tdm_window_kind window_kind;
    tdm_rope_params rope;  /* n_rot 0 = heads are not rotated */
    bool has_rope_factors; /* the file's factors of frequencies apply */
    int32_t n_ff;          /* columns of the dense block; 0 = the layer has none */
    llm_ffn_form ffn;      /* its form */
    tdm_act act;           /* of the dense block; of experts: the architecture's */
    int32_t n_ff_expert;   /* columns of an expert; 0 = the layer has none */
    int32_t n_expert_used; /* experts that each token chooses */
    llm_recurrent_spec recurrent;
    int32_t n_ff_shared; /* of all experts together that serve every token */
    int32_t n_ff_chunk;  /* of an expert that neighbouring experts share; 0 = there are none */
    llm_glu glu;         /* of experts, and with has_dense_glu of all gated units */
    llm_glu glu_dense;   /* of dense blocks and shared experts without has_dense_glu */
    float gate_sparsity; /* of a dense block: gates that are not this many standard deviations above
                            the mean of their token count as 0; 0 = all count */
    llm_index_kind index;  /* NONE where hparams.n_index_head is 0 */
    int32_t index_run;     /* tokens that a row of the layer's index stands for; 0 = one */
    int32_t kv_from_layer; /* attention reads the cache of this lower layer and writes none; -1 = it
                              has its own */
    bool has_ngram;        /* rows for runs of tokens count before the mixer: block/ngram.c */
    int32_t run_len; /* LLM_MIXER_COMPRESSED: tokens that a row of its cache stands for; 0 = the
                              layer has its window alone */
    bool has_run_overlap; /* a row takes in the tokens of the run before, too */
    int32_t n_out_group;  /* groups of heads, each with an output matrix; 0 = one for all */
    /* [n_vocab, n_expert_used] experts by token id, in the file: hparams.n_layer_given. NULL = a
     * router selects them. */
    const int32_t *expert_table;
    llm_xielu xielu;      /* of a dense block without a gate; alpha_p 0 = the architecture's */
    int32_t weight_layer; /* the layer whose weights it has: its own number or a lower one */
} llm_layer_spec;

/* Parts of the rows that compressed attention pools. Where runs overlap, the first part of a
 * token's row counts for the next run; the last part counts for the token's own run. */
static inline int32_t llm_pool_parts(const llm_layer_spec *s) {
    return s->has_run_overlap ? 2 : 1;
}

/* Whether the layer has a dense block or experts. */
static inline bool llm_layer_has_channel(const llm_layer_spec *s) {
    return s->n_ff > 0 || s->n_ff_expert > 0;
}

/* Whether the layer keeps keys and values of tokens. */
static inline bool llm_layer_has_cache(const llm_layer_spec *s) {
    return s->mixer <= LLM_MIXER_COMPRESSED && s->kv_from_layer < 0;
}

/* The layer whose cache the attention of `layer` reads. */
static inline int32_t llm_layer_cache(const llm_layer_spec *s, int32_t layer) {
    return s->kv_from_layer >= 0 ? s->kv_from_layer : layer;
}

/* Whether the layer keeps keys and values that only tokens within a window read. */
static inline bool llm_layer_has_window(const llm_layer_spec *s) {
    return llm_layer_has_cache(s) && s->window > 0;
}

#endif
