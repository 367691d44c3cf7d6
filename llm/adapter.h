/* SPDX-License-Identifier: MIT
 *
 * adapter.h: low-rank adapters (LoRA) of a model, each from a GGUF file of its own, as llama.cpp's
 * convert_lora_to_gguf.py writes them.
 *
 * For a matrix W [k, n] of the model an adapter may have two: A [k, rank] and B [rank, n]. With
 * scale s of a token, a product with W becomes
 *
 *     y = W x + s * (alpha / rank) * B (A x)
 *
 * where alpha is a key of the file (0 or absent = the factor alpha / rank is left out). Where W has
 * a scale of its own (role.h), that applies to W x alone.
 *
 * Experts W [k, n, n_expert] have A [k, rank, n_expert] and B [rank, n, n_expert]: each expert has a
 * pair of its own. Of gate and up in one matrix, B is cut in two like it.
 *
 * The token embedding W [n_embd, n_vocab] has A [rank, n_vocab], a row for each token, and
 * B [rank, n_embd]; a token's row becomes w + s * (alpha / rank) * B a. A head that is tied to the
 * embedding stays as it is: PEFT trains embeddings so, and llama.cpp stops with an error there.
 *
 * A and B are weights of the model like others (model.h): they are placed where W is, and a group
 * cuts them as W: B by rows where W is, and A by columns where W is; of the embedding A by rows where
 * W is. Scales belong to the sequences of a context (context.h), so that one step may have tokens of
 * several scales. The experts of a layer that an adapter of the step changes are computed with single
 * products (MOE_MATMUL) instead of MOE_FFN.
 *
 * Refused by name: other tables of rows, matrices of single heads, and all else that no plain product
 * reads.
 */
#ifndef LLM_ADAPTER_H
#define LLM_ADAPTER_H

#include "llm/model.h"

/* Most adapters of a model. */
#define LLM_MAX_ADAPTERS 16

/* The numbers of the weights A and B. Halves of one matrix share A. */
typedef struct llm_adapter_pair {
    int32_t a, b; /* -1 = none */
} llm_adapter_pair;

typedef struct llm_adapter {
    llm_gguf *gguf;          /* owned */
    float scale;             /* of sequences for which no other is set; finite */
    float alpha;             /* of the file; 0 = none */
    int32_t rank;            /* of its first pair; others may have another */
    int32_t n_pair;          /* pairs of A and B */
    uint64_t size;           /* bytes of its tensors in the file */
    uint64_t fingerprint;    /* hash of names, types, shapes and first bytes of its tensors, and of
                             alpha */
    llm_adapter_pair *pair;  /* [n_base] for each weight of the model */
    llm_gguf_tensor *halves; /* [n_half] parts of B where gate and up are one matrix */
    int32_t n_half;
} llm_adapter;

/* Adds the adapter of a file to an open model that is not loaded. Its number is n_adapter before
 * the call. `scale` is what contexts begin with. On failure the model is as before:
 * TDM_UNSUPPORTED   no adapter, another kind, or one that changes what cannot be changed
 * TDM_DATA_LOSS     a shape that does not fit the model, or half of a pair
 * TDM_NOT_FOUND     no such file; or a matrix that the model lacks
 * TDM_OUT_OF_RANGE  more than LLM_MAX_ADAPTERS
 * TDM_FAILED_PRECONDITION  the model is loaded
 * Messages name the file and the tensor. [setup] */
tdm_status llm_model_add_adapter(llm_model *model, const char *path, float scale, tdm_error *err);

/* A bit for each adapter of the model. [any-thread] */
uint32_t llm_adapters_all(const llm_model *model);

/* The number by which scales of an adapter are multiplied for its first pair: alpha / rank. */
float llm_adapter_factor(const llm_adapter *adapter);

/* Frees the adapters of a model. [setup] */
void llm_adapters_free(llm_model *model);

#endif
