/* SPDX-License-Identifier: MIT
 *
 * adapter.h: low-rank adapters (LoRA) of a model, each from a GGUF file of its own, as llama.cpp's
 * convert_lora_to_gguf.py writes them.
 *
 * For a matrix W [k, n] of the model an adapter may have two matrices: A [k, rank] and B [rank, n].
 * For a token with scale s, a product with W becomes
 *
 *     y = W x + s * (alpha / rank) * B (A x)
 *
 * where alpha is a key of the file (0 or absent = the factor alpha / rank is left out). Where W has
 * a scale of its own (role.h), that applies to W x alone.
 *
 * Experts W [k, n, n_expert] have A [k, rank, n_expert] and B [rank, n, n_expert]: each expert has
 * a pair of its own. Where gate and up are one matrix, both use A, and B is cut into their halves.
 *
 * The token embedding W [n_embd, n_vocab] has A [rank, n_vocab], a row a for each token, and
 * B [rank, n_embd]; a token's row w becomes w + s * (alpha / rank) * B a. An output head that is
 * tied to the embedding stays unchanged: PEFT trains adapters of embeddings this way. llama.cpp
 * ends with an error in this case.
 *
 * A and B are weights of the model like others (model.h). They are placed where W is. A group cuts
 * them as it cuts W: where it cuts W by rows, B by rows; where it cuts W by columns, A by columns.
 * Of the embedding: where W by rows, A by rows; where W by columns, B by rows. Scales belong to the
 * sequences of a context (context.h), so that tokens of one step may have different scales. Where
 * an adapter of the step changes the experts of a layer, they are computed with single products
 * (MOE_MATMUL) instead of MOE_FFN.
 *
 * An adapter is refused, with the name of the tensor, if it changes another table of rows, a matrix
 * that each head has for itself, or any other tensor that is not the matrix of a plain product.
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
    float alpha;             /* of the file; 0 = products are not multiplied by alpha / rank */
    int32_t rank;            /* of its first pair; others may have another */
    int32_t n_pair;          /* pairs of A and B */
    uint64_t size;           /* bytes of its tensors in the file */
    uint64_t fingerprint;    /* hash of names, types, shapes and first bytes of its tensors, and of
                             alpha */
    llm_adapter_pair *pair;  /* [n_base] for each weight of the model; -1, -1 = not changed */
    llm_gguf_tensor *halves; /* [n_half] parts of B where gate and up are one matrix */
    int32_t n_half;
} llm_adapter;

/* Adds the adapter of a file to an open model that is not loaded. The adapter's number is the value
 * of n_adapter before the call. `scale` is that of new sequences. On failure the model is as
 * before:
 * TDM_UNSUPPORTED   the file is no adapter or one of another kind, it changes a tensor that cannot
 *                   be changed, or the model is a layer that drafts
 * TDM_DATA_LOSS     a tensor's shape does not fit the model, or A or B of a pair is missing
 * TDM_NOT_FOUND     there is no such file, or the model lacks a matrix that the adapter changes
 * TDM_OUT_OF_RANGE  the model has LLM_MAX_ADAPTERS already
 * TDM_INVALID_ARGUMENT     `scale` is not finite
 * TDM_FAILED_PRECONDITION  the model is loaded
 * Messages name the file and, where it is about one, the tensor. [setup] */
tdm_status llm_model_add_adapter(llm_model *model, const char *path, float scale, tdm_error *err);

/* The set of all adapters of the model: bit i = adapter i. [any-thread] */
uint32_t llm_adapters_all(const llm_model *model);

/* The factor alpha / rank of the adapter's first pair; 1 where alpha is 0. Pairs of another rank
 * are scaled from it (block/project.c). [any-thread] */
float llm_adapter_factor(const llm_adapter *adapter);

/* Frees the adapters of a model. [setup] */
void llm_adapters_free(llm_model *model);

#endif
