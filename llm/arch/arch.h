/* SPDX-License-Identifier: MIT
 *
 * arch.h: what makes an architecture: which weights it has, how they may be cut over a group, and
 * its forward pass as a graph. One table of architectures; nothing else asks for a model's name.
 *
 * Roles and partitions of weights are assigned here and in the architecture's own file: nothing
 * ever looks at a tensor's name to decide how it is split.
 */
#ifndef LLM_ARCH_H
#define LLM_ARCH_H

#include "llm/model.h"

/* Shapes of one step; with the cache's description, all that a forward graph depends on. */
typedef struct llm_step_shape {
    int32_t n_tok;
    int32_t n_out; /* rows of logits; 0 = none: the graph only fills the cache */
    int32_t n_seq;
    int32_t n_entry;
} llm_step_shape;

/* The cache as a context set it up. */
typedef struct llm_cache_shape {
    tdm_kv_desc desc;
    int64_t n_page;
    const uint64_t *page_size; /* [n_layer] bytes, as the layer's device wants it */
} llm_cache_shape;

/* Bytes of a page on the device where caches are wished, or else the first of the model's that keeps
 * such a cache: attention will not run on one before it. TDM_UNSUPPORTED gives the reason of the
 * last. */
tdm_status llm_cache_page_size(const llm_model *model, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err);

/* Fills in what the model says of its cache; types are f16, pages of the default length, nothing is
 * rotated. */
void llm_cache_desc_fill(const llm_model *model, tdm_kv_desc *desc);

/* A graph under construction and what its values stand for. */
typedef struct llm_graph_builder {
    tdm_builder *b;
    const llm_model *model;
    const llm_cache_shape *cache;
    int32_t *weight_value; /* [n_weight] value index, -1 = not used so far */
    int32_t *state_value;  /* [n_layer] */
    int32_t *state_kv;     /* [n_layer] index into graph->kv */
    int32_t step;
} llm_graph_builder;

/* The value of a weight; made on first use. -1 for weight -1. */
int32_t llm_graph_weight(llm_graph_builder *g, int32_t weight);
/* The cache state of a layer; made on first use, its kv index in state_kv. */
int32_t llm_graph_state(llm_graph_builder *g, int32_t layer);

/* The forward graph of a model, which need not be loaded; cache->page_size is not read, pages of
 * every layer have `page_size` bytes, 0 = what canonical rows would take. weight_value[n_weight]
 * (nullable) receives the value of each weight, -1 where the graph has none. Released with
 * tdm_graph_free. */
tdm_status llm_forward_graph(const llm_model *model, const llm_cache_shape *cache,
                             uint64_t page_size, const llm_step_shape *shape, int32_t *weight_value,
                             tdm_graph **graph_out, tdm_error *err);

typedef struct llm_arch {
    const char *name;   /* general.architecture */
    const char *people; /* what people call the models */
    /* Reads the numbers that only this architecture has; the shared ones are there. NULL: none. */
    tdm_status (*read)(const llm_gguf *gguf, llm_hparams *hparams, tdm_error *err);
    /* Declares every weight: calls llm_model_need for each role; reports what is missing. */
    tdm_status (*declare)(llm_model *model, tdm_error *err);
    /* Builds tokens -> logits; returns the logits value [n_vocab, n_out], -1 where n_out is 0. */
    int32_t (*build)(llm_graph_builder *g, const llm_step_shape *shape);
} llm_arch;

/* The architecture called `name`; TDM_UNSUPPORTED lists those there are. [any-thread] */
tdm_status llm_arch_find(const char *name, const llm_arch **arch_out, tdm_error *err);

/* Architectures number the partitions of a model from 1 on, below this; what a group sees is moved
 * by the model's partition_base, so that no two models in a process share an id. */
static inline int32_t llm_partition_limit(const llm_hparams *h) {
    return 16 * (h->n_layer + 1);
}

/* How a group cuts the cache of a layer; id 0 = it does not. */
tdm_partition llm_cache_partition(const llm_model *model, int32_t layer);

/* Declares a weight of the model: finds the role's tensor, checks its shape against ne (unused
 * dimensions 1) and that the ops can read its type. `layer` -1 for a global role. A missing tensor
 * is an error where it is required, else the role stays -1. `partition` NULL: not cut; its id is
 * the architecture's, 1 .. llm_partition_limit - 1. */
tdm_status llm_model_need(llm_model *model, llm_role role, int32_t layer, bool is_required,
                          const int64_t ne[TDM_MAX_DIMS], const tdm_partition *partition,
                          int32_t axis, tdm_error *err);

/* Distance of weights in a buffer, bytes: what every device asks for at most so far. */
#define LLM_WEIGHT_ALIGN ((uint64_t)256)

/* A weight as devices are told of it. */
tdm_tensor_desc llm_weight_desc(const llm_weight *w);

/* The name that files use for a role's tensor. */
void llm_role_tensor_name(llm_role role, int32_t layer, char *name, size_t name_size);

extern const llm_arch llm_arch_llama, llm_arch_deepseek2;

#endif
