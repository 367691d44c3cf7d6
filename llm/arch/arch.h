/* SPDX-License-Identifier: MIT
 *
 * arch.h: an architecture: its weights, how a group may cut them, and its forward pass as a graph.
 * There is one table of architectures; no other code depends on an architecture's name.
 *
 * The architecture's file assigns the roles and partitions of weights. How a weight is cut follows
 * from its role, never from the tensor's name.
 */
#ifndef LLM_ARCH_H
#define LLM_ARCH_H

#include "llm/model.h"

/* Shapes of one step. A forward graph depends on them and on the cache's description only. */
typedef struct llm_step_shape {
    int32_t n_tok;
    int32_t n_out; /* rows of logits; 0 = none: the graph only fills the cache */
    int32_t n_seq;
    int32_t n_entry;
    int32_t n_candidate; /* the best tokens of each row instead of all logits; 0 = all logits */
} llm_step_shape;

/* The cache of a context. */
typedef struct llm_cache_shape {
    tdm_kv_desc desc;
    int64_t n_page;
    const uint64_t *page_size; /* [n_layer] bytes, in the layout of the layer's device */
} llm_cache_shape;

/* Bytes of a page on the first of the model's devices that keeps such a cache; attention does not
 * run on a device before that one. TDM_UNSUPPORTED if none does, with the reason of the last. */
tdm_status llm_cache_page_size(const llm_model *model, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err);

/* Fills in the description of the model's cache with defaults: types f16, pages of the default
 * length, no rotation. */
void llm_cache_desc_fill(const llm_model *model, tdm_kv_desc *desc);

/* A graph under construction, and the values of its weights and states. */
typedef struct llm_graph_builder {
    tdm_builder *b;
    const llm_model *model;
    const llm_cache_shape *cache;
    int32_t *weight_value; /* [n_weight] value index, -1 = not used yet */
    int32_t *state_value;  /* [n_layer] */
    int32_t *state_kv;     /* [n_layer] index into graph->kv */
    int32_t step;
    int32_t tokens; /* value of the candidates' tokens [n_candidate, n_out]; -1 = none. Set by the
                       forward graph */
} llm_graph_builder;

/* The value of a weight, created on first use. -1 for weight -1. */
int32_t llm_graph_weight(llm_graph_builder *g, int32_t weight);
/* The cache state of a layer, created on first use; its kv index is in state_kv. */
int32_t llm_graph_state(llm_graph_builder *g, int32_t layer);

/* The forward graph of a model, loaded or not. cache->page_size is not read: pages of every layer
 * have `page_size` bytes, 0 = the size of their canonical rows. weight_value[n_weight] (nullable)
 * receives the value of each weight, -1 if the graph does not read it. The caller frees the graph
 * with tdm_graph_free. */
tdm_status llm_forward_graph(const llm_model *model, const llm_cache_shape *cache,
                             uint64_t page_size, const llm_step_shape *shape, int32_t *weight_value,
                             tdm_graph **graph_out, tdm_error *err);

typedef struct llm_arch {
    const char *name;     /* general.architecture */
    const char *families; /* for messages: "Llama, Mistral" */
    /* Reads the keys that only this architecture has, after the shared ones. NULL = none. */
    tdm_status (*read)(const llm_gguf *gguf, llm_hparams *hparams, tdm_error *err);
    /* Declares every weight: calls llm_model_need for each role. Fails where one is missing. */
    tdm_status (*declare)(llm_model *model, tdm_error *err);
    /* Builds tokens -> logits; returns the logits value [n_vocab, n_out], of candidates
     * [n_candidate, n_out], -1 if n_out is 0. */
    int32_t (*build)(llm_graph_builder *g, const llm_step_shape *shape);
} llm_arch;

/* Finds an architecture by name. The message of TDM_UNSUPPORTED lists all of them. [any-thread] */
tdm_status llm_arch_find(const char *name, const llm_arch **arch_out, tdm_error *err);

/* Architectures number the partitions of a model from 1 to this - 1. The ids that a group sees are
 * these plus the model's partition_base, so that no two models of a process share an id. */
static inline int32_t llm_partition_limit(const llm_hparams *h) {
    return 16 * (h->n_layer + 1);
}

/* How a group cuts the cache of a layer; id 0 = not at all. */
tdm_partition llm_cache_partition(const llm_model *model, int32_t layer);

/* Declares a weight of the model: finds the role's tensor, compares its shape with ne (unused
 * dimensions 1) and checks that the ops can read its type. `layer` is -1 for a global role. If
 * there is no such tensor, this is an error if it is required, else the role stays -1. `partition`
 * NULL = not cut; its id is 1 .. llm_partition_limit - 1. */
tdm_status llm_model_need(llm_model *model, llm_role role, int32_t layer, bool is_required,
                          const int64_t ne[TDM_MAX_DIMS], const tdm_partition *partition,
                          int32_t axis, tdm_error *err);

/* Alignment of weights in a buffer, bytes: the largest that a device requires. */
#define LLM_WEIGHT_ALIGN ((uint64_t)256)

/* The description of a weight for devices. */
tdm_tensor_desc llm_weight_desc(const llm_weight *w);

/* The name of a role's tensor in files. */
void llm_role_tensor_name(llm_role role, int32_t layer, char *name, size_t name_size);

extern const llm_arch llm_arch_llama, llm_arch_deepseek2;

#endif
