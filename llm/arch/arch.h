/* SPDX-License-Identifier: MIT
 *
 * arch.h: an architecture as a table: which norms stand where, which mixer and which channel block
 * its layers have, which keys of the file it honours, how its heads are rotated. There is one list
 * of architectures (LLM_ARCH_LIST, families.h). Outside the files of families only the names of
 * T5's tensors (role.c) and the mixtures of types (llm/quantize) depend on the name of an
 * architecture.
 *
 * The blocks (llm/block) declare weights and build graphs from this table and from the spec of each
 * layer (layer_spec.h). How a weight is cut follows from its role (role.h), never from the tensor's
 * name.
 */
#ifndef LLM_ARCH_H
#define LLM_ARCH_H

#include "llm/arch/hparams.h"
#include "llm/arch/layer_spec.h"
#include "llm/arch/role.h"

struct llm_key_reader;    /* key_reader.h */
struct llm_model;         /* model.h */
struct llm_graph_builder; /* forward_graph.h */
struct llm_step_shape;    /* forward_graph.h */

/* Makes a model from the table of its architecture (llm/block/layers.c). */
typedef struct llm_model_maker {
    /* Declares every weight of a model whose specs are filled in. Fails where a tensor is missing
     * or has another shape or type. */
    tdm_status (*declare)(struct llm_model *model, tdm_error *err);
    /* Builds the graph from tokens to logits. Returns the value of the logits, [n_vocab, n_out] or,
     * with candidates, [n_candidate, n_out]; -1 where the step gives no logits (n_out 0, an
     * encoder). */
    int32_t (*build)(struct llm_graph_builder *g, const struct llm_step_shape *shape);
} llm_model_maker;

extern const llm_model_maker llm_layers_maker;

/* Keys that an architecture honours. The others of a file are not read: converters write them with
 * values that the architecture never uses. */
enum {
    LLM_KEY_ATTN_SCALE = 1u << 0,     /* attention.scale */
    LLM_KEY_ATTN_SOFTCAP = 1u << 1,   /* attn_logit_softcapping */
    LLM_KEY_FINAL_SOFTCAP = 1u << 2,  /* final_logit_softcapping */
    LLM_KEY_LOGIT_SCALE = 1u << 3,    /* logit_scale: logits are multiplied by it */
    LLM_KEY_LOGIT_DIVISOR = 1u << 4,  /* logit_scale: logits are divided by it */
    LLM_KEY_EMBD_SCALE = 1u << 5,     /* embedding_scale */
    LLM_KEY_RESIDUAL_SCALE = 1u << 6, /* residual_scale: of what each block adds */
    LLM_KEY_CLAMP_QKV = 1u << 7,      /* attention.clamp_kqv */
    LLM_KEY_PARALLEL = 1u << 8,       /* use_parallel_residual */
    LLM_KEY_WINDOW = 1u << 9,         /* attention.sliding_window and its pattern */
    LLM_KEY_WINDOW_ROPE = 1u << 10,   /* rope.freq_base_swa: of layers with a window */
    LLM_KEY_EXPERT_FF = 1u << 11,     /* expert_feed_forward_length; without: feed_forward_length */
    LLM_KEY_EXPERT_SCALE = 1u << 12,  /* expert_weights_scale */
    LLM_KEY_EXPERT_NORM = 1u << 13,   /* expert_weights_norm */
    LLM_KEY_EXPERT_GATING = 1u << 14, /* expert_gating_func */
    LLM_KEY_EACH_WIDTH = 1u << 15,    /* feed_forward_length differs between layers of experts */
    LLM_KEY_DENSE_FIRST = 1u << 16,   /* leading_dense_block_count: layers without experts */
    LLM_KEY_ALIBI = 1u << 17,         /* attention.max_alibi_bias */
    LLM_KEY_SELECT = 1u << 18,        /* attention.indexer.top_k: sparse attention */
    LLM_KEY_TEMPERATURE = 1u << 19,   /* attention.temperature_scale, .temperature_length */
    LLM_KEY_RECURRENT = 1u << 20,     /* ssm.*, shortconv.l_cache; counts of heads may be 0 */
    LLM_KEY_PER_LAYER = 1u << 21,     /* counts of heads and columns differ between layers */
    LLM_KEY_WINDOW_HEADS = 1u << 22,  /* attention.key_length_swa, rope.dimension_count_swa */
    LLM_KEY_SHARED_CACHE = 1u << 23,  /* attention.shared_kv_layers */
    LLM_KEY_INDEX_TYPES = 1u << 24    /* attention.indexer.types: layers that have an index */
};

typedef enum llm_form {
    LLM_FORM_SEQUENTIAL = 0, /* x += mixer(n1(x)); x += channel(n2(x)) */
    LLM_FORM_PARALLEL        /* x += mixer(n1(x)) + channel(n2(x)); without n2: of n1(x) */
} llm_form;

/* What joins the blocks of layers. */
typedef enum llm_stream {
    LLM_STREAM_ONE = 0, /* a residual stream, in the form of llm_form */
    LLM_STREAM_HYPER,   /* several; blocks read a weighted sum of them: block/hyper.c */
    LLM_STREAM_ALTUP,   /* several; blocks read the first: block/altup.c */
    LLM_STREAM_DEPTH,   /* one that is saved and set to 0 every few layers: block/depth.c */
    LLM_STREAM_STACKS   /* layers form stacks that run in cycles: block/stacks.c */
} llm_stream;

/* How attention is gated before its output projection, by a projection of its input. */
typedef enum llm_gate {
    LLM_GATE_NONE = 0,
    LLM_GATE_ELEMENT, /* for each element */
    LLM_GATE_HEAD,    /* for each head */
    LLM_GATE_WIDTH,   /* one of these two, by the width of the layer's tensor */
    LLM_GATE_QUERY    /* as ELEMENT; in attn_q the rows of a head's gate follow those of the head */
} llm_gate;

typedef struct llm_arch {
    const char *name;     /* general.architecture */
    const char *families; /* for messages and lists: "Llama, Mistral" */
    uint32_t keys;        /* LLM_KEY_* */

    /* The residual stream. */
    llm_norm norm;       /* of all norms but those of queries and keys */
    bool is_norm_by_key; /* RMS where the file has attention.layer_norm_rms_epsilon, else `norm` */
    bool has_either_eps; /* RMS norms have attention.layer_norm_epsilon where that key is missing */
    llm_form form;
    llm_stream stream;
    bool has_normed_stream; /* x = stream_scale n(x) + block(n(x)), not x + block(n(x)) */
    bool has_bare_norms;    /* norms have no weights */
    llm_role norm_mixer, norm_mixer_post; /* LLM_ROLE_NONE = no such norm */
    llm_role norm_channel, norm_channel_post;
    llm_role norm_mixer_sum;         /* of the sum of the stream and the mixer's result */
    llm_role norm_mixer_sum_2;       /* of the sum of that and the stream, in layers that have it */
    llm_role norm_channel_sum;       /* of the sum of the stream and the channel block's result */
    llm_role norm_out;               /* before the output head; NONE = LLM_ROLE_OUTPUT_NORM */
    bool has_no_norm_out;            /* there is no such norm */
    bool has_token_types;            /* token_types: its first row is added to the embeddings */
    bool has_embd_sqrt;              /* embeddings are multiplied by sqrt(n_embd) */
    bool has_embd_norm;              /* token_embd_norm */
    bool has_embd_skip;              /* each layer adds the embeddings, times layer_output_scale */
    bool has_bare_embd_norm;         /* embeddings are normed without a weight */
    float post_norm_eps;             /* epsilon of norm_*_post; 0 = that of the other norms */
    bool has_position_embd;          /* position_embd, added to the embeddings */
    bool has_optional_position_embd; /* the same where the file has it */

    /* Attention. */
    llm_mixer mixer;
    bool is_recurrent_beside; /* recurrent layers have attention, too; the results are added */
    tdm_act delta_act;        /* of the gate of LLM_MIXER_DELTA; NONE = SILU */
    /* Of recurrent layers, which their tensors tell apart (layer_spec.c); ATTENTION = there are
     * none. */
    llm_mixer recurrent_mixer;
    tdm_rope_mode rope;
    bool has_no_rope;
    bool is_bidirectional;   /* tokens see later ones of their batch, too */
    bool is_encoder;         /* there is no output head: hidden states are the result */
    llm_role norm_q, norm_k; /* of queries and keys; their roles give the shape */
    bool has_bare_norm_k;    /* keys are normed without a weight, after RoPE */
    bool has_bare_norm_v;    /* values are normed without a weight */
    bool has_optional_v;     /* without attn_v values are the keys before their norm */
    bool has_rope_norm_k;    /* of latent attention: the rotated elements of keys are normed */
    float alibi;             /* alibi_max_bias of files without the key */
    llm_norm norm_qk;        /* of norm_q and norm_k */
    bool is_norm_qk_late;    /* after RoPE */
    llm_gate gate;
    tdm_act gate_act; /* of a gate that is a matrix of its own; NONE = sigmoid */
    float gate_scale; /* of a gate of heads; 0 = 1 */
    /* If the file gives a window: one of every window_period layers has none, the last of them, or
     * with is_window_last the first; 0 = all layers have one. A pattern in the file counts instead
     * of this. */
    int32_t window_period;
    bool is_window_unscaled; /* RoPE is scaled in layers without a window only */
    bool is_window_last;
    tdm_window_kind window_kind;

    /* Channel blocks. */
    llm_ffn_form ffn;
    tdm_act act;
    tdm_route_score route_score; /* hparams.route.score without a key that is honoured */
    bool is_route_normalized;    /* hparams.route.normalize, likewise */
    bool is_router_first;        /* the router reads the stream before the mixer, without a norm */
    /* Factor of the sum of experts and dense block; 0 = layers with experts have no dense block. */
    float both_scale;
    llm_role norm_experts; /* of the stream before the mixer, which the experts then read; only with
                              both_scale */
    bool has_twin_channel; /* layers with experts have a dense block beside them, each between norms
                              of its own; the router has a norm, too (layers.c) */
    float shared_scale;    /* of the sum of chosen and shared experts; 0 = 1 */
    bool has_shared_gate;  /* the shared expert is multiplied by a sigmoid of x */
    bool has_expert_bias;  /* the router and the matrices of experts have biases */
    bool has_chunk_experts;        /* neighbouring experts share a smaller one */
    bool is_expert_weighted_first; /* x of an expert is multiplied by its weight, not its result */
    llm_glu glu;                   /* of experts */
    bool has_dense_glu;            /* and of dense blocks and shared experts */
    bool has_sub_norms;            /* norms before the last matrix of mixer and channel block */
    bool has_layer_scale;          /* a layer's stream is multiplied by layer_output_scale */

    /* Layers that draft tokens read the stream before the norm of the output head, not behind
     * it. */
    bool is_hidden_raw;

    /* The head of models that score texts (llm/score.h). */
    tdm_act score_act;      /* NONE = tanh */
    bool is_score_mean;     /* it reads the mean of all tokens, else one token */
    bool has_score_softmax; /* scores are the softmax of its result */

    const char *harmless; /* suffixes of tensors that the forward pass does not read, each with a
                             space before and behind it; NULL = none */
    /* Reads keys that only this architecture has, and corrects the shared ones. NULL = none. */
    void (*read)(struct llm_key_reader *r, llm_hparams *hparams);
    /* Corrects the spec of a layer. NULL = none. */
    void (*layer)(const llm_gguf *gguf, const llm_hparams *hparams, int32_t layer,
                  llm_layer_spec *spec);
} llm_arch;

/* Distances between tokens for which T5's bias of attention has a number each: -LLM_FAR_DISTANCE ..
 * LLM_FAR_DISTANCE. A larger distance has the number of the largest. */
enum { LLM_FAR_DISTANCE = 128, LLM_N_DISTANCE = 2 * LLM_FAR_DISTANCE + 1 };

/* Finds an architecture by name. The message of TDM_UNSUPPORTED names some of them. [any-thread] */
tdm_status llm_arch_find(const char *name, const llm_arch **arch_out, tdm_error *err);
/* Whether the architecture names this tensor as one that the forward pass does not read.
 * [any-thread] */
bool llm_arch_is_harmless(const llm_arch *arch, const char *tensor);

/* Fills in specs_out[n_layer] from the table, the keys and the tensors of a file: a layer has
 * experts if the file has a router for it. */
tdm_status llm_layer_specs_read(const llm_gguf *gguf, const llm_arch *arch,
                                const llm_hparams *hparams, llm_layer_spec *specs_out,
                                tdm_error *err);

/* Whether the file has the tensor of a role in a layer. */
bool llm_layer_has(const llm_gguf *gguf, llm_role role, int32_t layer);

/* The partitions of a model and of its layers that draft have ids from 1 to this - 1 (declare.c).
 * The last two are those of token embeddings that are not the output head, too. A group reads these
 * ids plus the model's partition_base, so that no two models of a process share an id. */
static inline int32_t llm_partition_limit(const llm_hparams *h) {
    return 16 * (h->n_layer + h->n_layer_draft + 1);
}

#endif
