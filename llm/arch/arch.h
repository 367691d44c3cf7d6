/* SPDX-License-Identifier: MIT
 *
 * arch.h: what an architecture is: its weights, how a group may cut them, and its forward pass as a
 * graph. There is one table of architectures; no other code depends on an architecture's name.
 *
 * model.h is built on this file. Rows of the table use models: an arch_*.c file declares weights
 * (declare.h), with their roles and partitions, and builds a graph (forward_graph.h). How a weight
 * is cut follows from its role, never from the tensor's name.
 */
#ifndef LLM_ARCH_H
#define LLM_ARCH_H

#include "llm/arch/hparams.h"

typedef struct llm_model llm_model;                 /* model.h */
typedef struct llm_graph_builder llm_graph_builder; /* forward_graph.h */

/* Shapes of one step. A forward graph depends on them and on the cache's description only. */
typedef struct llm_step_shape {
    int32_t n_tok;
    int32_t n_out; /* rows of logits; 0 = none: the graph only fills the cache */
    int32_t n_seq;
    int32_t n_entry;
    int32_t n_candidate; /* the best tokens of each row instead of all logits; 0 = all logits */
} llm_step_shape;

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

extern const llm_arch llm_arch_llama, llm_arch_deepseek2;

#endif
