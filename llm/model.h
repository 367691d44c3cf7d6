/* SPDX-License-Identifier: MIT
 *
 * model.h: a model: its hyperparameters, its weights, and their devices.
 *
 * Opening reads the header of the file, finds the architecture (arch.h) and checks that every
 * tensor is there and has the right shape; it moves no weights. Loading places each weight on a
 * device and uploads it in that device's layout (weight_upload.h). A loaded model is immutable. Any
 * number of contexts (context.h) may share it; destroy them before the model.
 */
#ifndef LLM_MODEL_H
#define LLM_MODEL_H

#include "core/stages/schedule.h"
#include "llm/arch/hparams.h"
#include "llm/arch/layer_spec.h"
#include "llm/arch/role.h"
#include "llm/store.h"
#include "llm/tokenizer/vocab.h"

typedef struct llm_model llm_model;
struct llm_arch;    /* arch.h */
struct llm_adapter; /* adapter.h */

typedef struct llm_weight {
    const llm_gguf_tensor *file; /* as it is used: a tensor of the file, or a part of one */
    /* The tensor whose bytes it has: `file`, or one with more rows in each of its matrices. */
    const llm_gguf_tensor *source;
    int64_t source_row; /* the first row of each matrix of `source` that it has */
    bool is_made;       /* `file` is no tensor of the file: its elements are in memory */
    int32_t adapter;    /* 1 + number of the adapter whose file has it; 0 = the model's */
    llm_role role;
    int32_t layer;           /* -1 = none */
    uint32_t usage;          /* TDM_USAGE_* */
    int32_t axis;            /* that `partition` cuts */
    tdm_partition partition; /* id 0 = not cut */
    int32_t pinned_dev;      /* 1 + index of the device that it must be on; 0 = any */
    int32_t dev;             /* index into the model's devices */
    int32_t mem;             /* index into the buffers of the model's store */
    uint64_t off;            /* in that buffer */
    uint64_t size;           /* bytes as kept there */
} llm_weight;

/* Most parts, reshaped and made tensors of a layer. */
enum { LLM_MAX_PARTS = 12 };

struct llm_model {
    char *path;
    /* Of a layer that drafts tokens: the model that it drafts for, whose file, vocabulary and
     * weights without a layer it uses. NULL = the model has all of its own. */
    const llm_model *lender;
    llm_gguf *gguf;
    llm_hparams hparams;
    const struct llm_arch *arch;
    llm_layer_spec *specs; /* [n_layer] */
    llm_vocab *vocab;      /* NULL = none; vocab_error has the reason */
    tdm_error vocab_error;
    llm_weight *weights;
    int32_t n_weight;
    int32_t n_own; /* the first so many are the model's own, the others those of the lender */
    struct llm_adapter *adapters; /* [n_adapter] */
    int32_t n_adapter;
    int32_t n_base; /* with adapters: the first so many weights are the model's, then come theirs */
    llm_gguf_tensor
        *parts; /* [LLM_MAX_PARTS * n_layer] parts of tensors of the file, and made ones */
    int32_t n_part;
    int32_t global[LLM_ROLE_GLOBAL_COUNT_]; /* role -> weight, -1 = absent */
    int32_t (*layer)[LLM_ROLE_COUNT_];      /* [n_layer] role -> weight, -1 = absent */
    int32_t partition_base; /* added to the architecture's partition ids; unique in the process */
    uint64_t fingerprint; /* hash of the architecture and of names, types, shapes and first bytes of
                               the tensors; state files contain it */
    uint64_t n_param;     /* elements of its own weights */
    uint64_t file_size;   /* bytes of its own weights in the file, without adapters */
    uint64_t adapter_size; /* bytes of the tensors of adapters in their files */
    tdm_runtime *rt;
    int32_t n_dev; /* 0 = not loaded */
    tdm_open_device *devs[TDM_MAX_STAGE_DEVICES];
    llm_store store; /* weight buffers */
};

/* Alignment of weights in a buffer, bytes: the largest that a device requires. */
#define LLM_WEIGHT_ALIGN ((uint64_t)256)

/* The description of a weight for devices. */
tdm_tensor_desc llm_weight_desc(const llm_weight *w);

/* The name of a weight; of one of an adapter, that of the model's weight that it changes. */
const char *llm_weight_base_name(const llm_model *model, const llm_weight *w);

/* The file that has a weight. */
const llm_gguf *llm_weight_gguf(const llm_model *model, const llm_weight *w);

/* Reads columns col .. col + n_col - 1 of rows row .. row + n_row - 1 of a weight from the file;
 * n_col is the whole row where n_row is not 1. [any-thread] */
tdm_status llm_weight_read(const llm_model *model, const llm_weight *w, int64_t row, int64_t n_row,
                           int64_t col, int64_t n_col, void *out, tdm_error *err);

/* Opens and checks a file. An unknown tokenizer is not a failure: vocab is NULL then, and
 * vocab_error has the reason. Every other defect of the file is a failure. [setup] */
tdm_status llm_model_open(const char *path, llm_model **model_out, tdm_error *err);

/* Floats of the hidden state of a token that a layer that drafts reads and gives: n_embd, or those of
 * all residual streams. [any-thread] */
int32_t llm_model_hidden_len(const llm_model *model);

/* Opens the first layer behind the others that only drafts tokens, as a model of its own. Its
 * batches have the hidden states of `model` (llm_batch.hidden), and `model` has been opened by
 * llm_model_open and outlives it. TDM_UNSUPPORTED names the file if it has no such layer, or one with
 * recurrent states. [setup] */
tdm_status llm_model_open_draft(const llm_model *model, llm_model **draft_out, tdm_error *err);

/* Devices for weights. A weight without one is placed where the first node that reads it runs. */
typedef struct llm_placement {
    /* The device for the tensor of that name: an index into llm_model_load's devs, -1 = any.
     * NULL = any for all weights. */
    int32_t (*weight)(void *user, const char *name);
    void *user;
} llm_placement;

/* Sets the devices of weights, before loading. Nodes that read a weight run on its device. If a
 * device cannot take a weight, loading fails with a message that names the weight. [setup] */
void llm_model_place(llm_model *model, const llm_placement *placement);

/* Called repeatedly while loading, with bytes done and bytes in total; returning false cancels. */
typedef bool (*llm_progress_fn)(void *context, uint64_t done, uint64_t total);

/* Places the weights on devs[0], or on the next device that supports what devs[0] does not, and
 * uploads them. On failure the model stays open and not loaded. The runtime outlives the model. A
 * model of llm_model_open_draft is loaded after the model that it drafts for, on the same devices,
 * else TDM_FAILED_PRECONDITION. [setup] */
tdm_status llm_model_load(llm_model *model, tdm_runtime *rt, tdm_open_device *const *devs,
                          int32_t n_dev, llm_progress_fn progress, void *progress_context,
                          tdm_error *err);

/* NULL is a no-op. [setup] */
void llm_model_close(llm_model *model);

/* The memory of a loaded weight. */
tdm_mem llm_model_weight_mem(const llm_model *model, const llm_weight *w);

/* The vocabulary; fails with the reason if there is none. [any-thread] */
tdm_status llm_model_vocab(const llm_model *model, const llm_vocab **vocab_out, tdm_error *err);

/* A short description for tables: "llama 1.1B Q4_0". Writes at most text_size bytes.
 * [any-thread] */
void llm_model_describe(const llm_model *model, char *text, size_t text_size);

#endif
