/* SPDX-License-Identifier: MIT
 *
 * forward_graph.h: the forward pass of a model as a graph, and the cache that it reads and writes.
 */
#ifndef LLM_FORWARD_GRAPH_H
#define LLM_FORWARD_GRAPH_H

#include "core/graph/builder.h"
#include "llm/adapter.h"
#include "llm/cache/layer_types.h"

/* Which hidden states a step gives. */
enum {
    LLM_HIDDEN_NONE = 0,
    LLM_HIDDEN_DRAFT, /* those that a layer that drafts reads */
    LLM_HIDDEN_OUTPUT /* those behind the norm before the output head: embeddings */
};

/* Which layers a step of a model with an encoder runs through. */
enum {
    LLM_PART_ALL = 0, /* the encoder's, then the decoder's; without an encoder all layers */
    LLM_PART_ENCODER, /* it fills the caches that the decoder reads, and gives nothing */
    LLM_PART_DECODER
};

/* Shapes of one step. A forward graph depends on them and on the cache's description only. Shapes
 * are compared as bytes: all fields have four bytes, so that there is no padding. */
typedef struct llm_step_shape {
    int32_t n_tok;       /* tokens, padding included */
    int32_t n_out;       /* rows of logits; 0 = none: the graph only fills the cache */
    int32_t n_seq;       /* sequences that the step names */
    int32_t n_entry;     /* page-table entries, of each class of caches */
    int32_t n_candidate; /* the best tokens of each row instead of all logits; 0 = all logits */
    int32_t has_hidden;  /* LLM_HIDDEN_*: of every token, or (a layer that drafts) of those with
                           logits. An encoder always gives those of every token, and no logits */
    int32_t cls;         /* of a plan that moves cached rows: of which class of caches */
    int32_t part;        /* LLM_PART_*: which layers of a model with an encoder */
    uint32_t adapters;   /* bits of the model's adapters that products have; llm_forward_graph takes
                           all */
    /* llm_forward_graph alone; 1: also the model's own weights that no node of this step reads,
     * which are in memory all the same */
    int32_t has_all_weights;
} llm_step_shape;

/* The states of a layer. Layers with attention have rows, the others what their mixer needs. State
 * i of layer l has number i * n_layer + l in the arrays of a context. The order counts: kinds up to
 * LLM_STATE_CROSS have rows in pages, those from LLM_RECURRENT_CONV on are in slots. */
typedef enum llm_state_kind {
    LLM_STATE_ROWS = 0, /* keys and values, in pages */
    LLM_STATE_INDEX,    /* keys of the index of sparse attention, in the same pages */
    LLM_STATE_RUNS,     /* rows that stand for runs of tokens, in the same pages */
    LLM_STATE_CROSS,    /* of a decoder's layer: keys and values of the encoded tokens, in pages */
    LLM_RECURRENT_CONV, /* inputs of a convolution, in slots */
    LLM_RECURRENT_MATRIX,     /* matrices of heads, in slots */
    LLM_RECURRENT_NGRAM,      /* inputs of the convolution of block/ngram.c, in slots */
    LLM_RECURRENT_SHIFT,      /* the token before, as the channel block reads it, in slots */
    LLM_RECURRENT_DELAY,      /* k, v and decay of the token before (RWKV-6), in slots */
    LLM_RECURRENT_POOL,       /* sums of the run that is being pooled, in slots */
    LLM_RECURRENT_INDEX_POOL, /* the same for the index */
    LLM_STATE_KINDS
} llm_state_kind;

/* Classes of caches: each has pages and page tables of its own (tandem/step.h). */
enum {
    LLM_CLASS_ALL = 0,     /* of layers that see all tokens; all layers where there is one class */
    LLM_CLASS_WINDOW = 1,  /* of layers with a window, which keep the last tokens only */
    LLM_CLASS_ENCODED = 2, /* of rows of the tokens that an encoder reads; those of its decoder are
                              in LLM_CLASS_ALL. Both number the same pages; no cell has a token of
                              both */
    LLM_CLASS_COUNT
};

/* Whether states of this kind are rows of tokens in pages; else they are slots. */
static inline bool llm_state_has_rows(llm_state_kind kind) {
    return kind <= LLM_STATE_CROSS;
}

/* Kinds of states in slots. State i of layer l has number LLM_SLOT_KINDS * l + i in the arrays of a
 * plan that moves slots. */
enum { LLM_SLOT_KINDS = LLM_STATE_KINDS - LLM_RECURRENT_CONV };

/* The rows that a layer may have for each token: K, V, the keys of an index, rows of runs. Those of
 * layer l begin at LLM_ROW_KINDS * l in the arrays of a plan. */
enum { LLM_ROW_K, LLM_ROW_V, LLM_ROW_INDEX, LLM_ROW_RUNS, LLM_ROW_KINDS };

/* The most values of a layer that a plan moves. */
enum {
    LLM_IO_KINDS =
        (int)LLM_SLOT_KINDS > (int)LLM_ROW_KINDS ? (int)LLM_SLOT_KINDS : (int)LLM_ROW_KINDS
};

/* The cache of a context. */
typedef struct llm_cache_shape {
    tdm_kv_desc desc; /* what the caches of all layers share; n_head_kv is the largest of any layer.
                         llm_cache_layer_desc has what differs between layers */
    const llm_layer_types *layers; /* [n_layer] types and rotation of each layer; NULL = those of
                                      desc */
    int64_t n_page;
    int64_t n_page_window;        /* of LLM_CLASS_WINDOW; 0 = there is no such class */
    tdm_open_device *const *devs; /* [n_dev] slots have the size that the first of these gives which
                                     supports them; NULL = slots have their canonical size */
    int32_t n_dev;
    int64_t n_slot;            /* of recurrent states; 0 = no layer has any */
    int32_t n_ctx;             /* tokens of a sequence at most; 0 = not known yet */
    const uint64_t *page_size; /* [LLM_STATE_KINDS * n_layer] bytes of a page or slot, in the layout
                                  of the state's device */
} llm_cache_shape;

/* Bytes of a page on the first of the model's devices that supports such a cache; attention does
 * not run on a device before that one. TDM_UNSUPPORTED if none does, with the reason of the
 * last. */
tdm_status llm_cache_page_size(const llm_model *model, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err);

/* Fills in the description of the model's cache with defaults: types f16, pages of the default
 * length, no rotation, sparse where the model has an index. A context so short that attention reads
 * all of its tokens clears TDM_KV_SPARSE; then no layer has an index. */
void llm_cache_desc_fill(const llm_model *model, tdm_kv_desc *desc);

/* The description of one layer's cache: the same, with the layer's own RoPE, heads and types. */
tdm_kv_desc llm_cache_layer_desc(const llm_model *model, const llm_cache_shape *cache,
                                 int32_t layer);

/* The class of a layer's cache, and the number of pages of that class. */
int32_t llm_cache_class(const llm_model *model, const llm_cache_shape *cache, int32_t layer);
int64_t llm_cache_page_count(const llm_model *model, const llm_cache_shape *cache, int32_t layer);
/* The number of classes in step blocks of the model. */
int32_t llm_cache_class_count(const llm_model *model, const llm_cache_shape *cache);
/* The number of pages or slots of a state of a layer. */
int64_t llm_state_count(const llm_model *model, const llm_cache_shape *cache, llm_state_kind kind,
                        int32_t layer);

/* Whether pages of two layers have the same size. */
static inline bool llm_cache_is_like(const tdm_kv_desc *a, const tdm_kv_desc *b) {
    return a->n_head_kv == b->n_head_kv && a->head_dim_k == b->head_dim_k &&
           a->head_dim_v == b->head_dim_v && a->type_k == b->type_k && a->type_v == b->type_v &&
           a->flags == b->flags;
}

/* How a group cuts the cache of a layer. */
tdm_partition llm_cache_partition(const llm_model *model, int32_t layer);

/* A graph under construction, and the values of its weights and states. */
typedef struct llm_graph_builder {
    tdm_builder *b;
    const llm_model *model;
    const llm_cache_shape *cache;
    int32_t *weight_value; /* [n_weight] value index, -1 = not used yet */
    int32_t *state_value;  /* [LLM_STATE_KINDS * n_layer] */
    int32_t *state_kv;     /* [LLM_STATE_KINDS * n_layer] index into graph->kv */
    int32_t step;
    /* Inputs: rows of llm_hparams_file_table [len, n_row * n_tok], of the table's type, and 0, 1,
     * .. i32 [n_row * n_tok]. From them: those of each token as f32 [n_row * len, n_tok]. -1 = the
     * model has no such table. */
    int32_t file_rows, file_row_ids, token_rows;
    /* Inputs: i32 [n_tok] the row of the next token of each token's sequence, and f32 [1, n_tok] 1
     * where there is one, else 0. -1 = no layer reads next tokens. */
    int32_t next_row, has_next;
    int32_t expert_ids;  /* input i32 [n_expert_used, n_layer_given, n_tok]; -1 = none */
    int32_t select;      /* the tokens that the last index selected; -1 = no layer had one */
    int32_t value_first; /* LLM_MIXER_RWKV7: v of the first layer [n_embd, n_tok]; -1 = none yet */
    /* Set by the forward graph; -1 = none. */
    int32_t tokens; /* value of the candidates' tokens [n_candidate, n_out] */
    int32_t hidden; /* value of hidden states [llm_model_hidden_len, n_tok], or for n_out */
    /* The streams [n_embd, n_stream, rows] behind the last layer; -1 = there is one stream. */
    int32_t streams;
    int32_t hidden_in; /* of a layer that drafts: the hidden states [n_embd, n_tok] that it reads */
    uint32_t adapters; /* of the step's shape, as are n_tok and n_out */
    int32_t n_tok, n_out;
    int32_t lora[LLM_MAX_ADAPTERS];     /* input f32 [1, n_tok]: the scale of each token */
    int32_t lora_out[LLM_MAX_ADAPTERS]; /* those of the rows that have logits, [1, n_out] */
    /* MOE_MATMUL instead of MOE_FFN: the inputs of all products are values */
    bool has_single_experts;
} llm_graph_builder;

/* The value of a weight, created on first use. -1 for weight -1. */
int32_t llm_graph_weight(llm_graph_builder *g, int32_t weight);
/* The cache state of a layer, created on first use; its kv index is in state_kv. */
int32_t llm_graph_state(llm_graph_builder *g, int32_t layer);

/* The states of a layer beside its cache, each created on first use. They return the value of the
 * state and set *kv_out to its index into graph->kv; both are -1 where the layer has no such state.
 *
 * The rows that stand for runs of tokens. */
int32_t llm_graph_runs_state(llm_graph_builder *g, int32_t layer, int32_t *kv_out);

/* The keys of the index of sparse attention, and how they are rotated. */
int32_t llm_graph_index_state(llm_graph_builder *g, int32_t layer, int32_t *kv_out);
tdm_rope_params llm_index_rope(const llm_model *model, int32_t layer);

/* Keys and values of the encoded tokens that a layer of a decoder reads. */
int32_t llm_graph_cross_state(llm_graph_builder *g, int32_t layer, int32_t *kv_out);

/* A state in slots: `kind` from LLM_RECURRENT_CONV on. */
int32_t llm_graph_recurrent_state(llm_graph_builder *g, int32_t layer, llm_state_kind kind,
                                  int32_t *kv_out);

/* The description of a state of a layer, and how a group cuts it; false where the layer has no such
 * state. */
bool llm_state_desc(const llm_model *model, const llm_cache_shape *cache, llm_state_kind kind,
                    int32_t layer, tdm_kv_desc *desc_out, tdm_partition *partition_out);
/* Whether any layer has recurrent states. */
bool llm_model_is_recurrent(const llm_model *model);

/* The forward graph of a model, loaded or not. cache->page_size is not read: pages of every layer
 * have `page_size` bytes, 0 = the size of their canonical rows. weight_value[n_weight] (nullable)
 * receives the value of each weight, -1 if the graph does not read it. The caller frees the graph
 * with tdm_graph_free. */
tdm_status llm_forward_graph(const llm_model *model, const llm_cache_shape *cache,
                             uint64_t page_size, const llm_step_shape *shape, int32_t *weight_value,
                             tdm_graph **graph_out, tdm_error *err);

#endif
