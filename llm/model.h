/* SPDX-License-Identifier: MIT
 *
 * model.h: a model: its hyperparameters, its weights, and their devices.
 *
 * Opening reads the header of the file, finds the architecture (arch.h) and checks that every
 * tensor is there and has the right shape; it moves no weights. Loading places each weight on a
 * device and uploads it in that device's layout (weight_upload.h). A loaded model is immutable. Any
 * number of contexts (context.h) may share it; destroy them before the model is closed.
 *
 * A layer of the file that only drafts tokens can be opened as a model of its own
 * (llm_model_open_draft). It borrows the file, the vocabulary and some weights from the model that
 * it drafts for, which is called its lender.
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
    /* The tensor as the model uses it: a tensor of the file, a part of one, or (is_made) one that
     * was computed when the model was opened. It gives name, type and shape. */
    const llm_gguf_tensor *file;
    /* The tensor of the file that has the bytes. It is `file`, or, where that is a part, the whole
     * tensor, which has more rows in each of its matrices. */
    const llm_gguf_tensor *source;
    int64_t source_row; /* the first row of `file` in each matrix of `source` */
    bool is_made;       /* the elements are in memory (file->data), not in the file */
    int32_t scale;      /* of a matrix: 1 + number of the weight by which its products are
                           multiplied, a number, or one for each expert; 0 = none */
    int32_t adapter;    /* 1 + number of the adapter whose file has it; 0 = the model's file */
    llm_role role;
    int32_t layer;           /* -1 = it belongs to no layer */
    uint32_t usage;          /* TDM_USAGE_* */
    int32_t axis;            /* that `partition` cuts */
    tdm_partition partition; /* how a group cuts it; id 0 = not cut */
    int32_t pinned_dev;      /* 1 + index of the device that it must be on; 0 = any */
    /* Set by llm_model_load: */
    int32_t dev;   /* index into the model's devices */
    int32_t mem;   /* index into the buffers of the model's store */
    uint64_t off;  /* in that buffer */
    uint64_t size; /* bytes in the device's layout */
} llm_weight;

/* Most tensors of a layer in llm_model.parts. */
enum { LLM_MAX_PARTS = 12 };

struct llm_model {
    char *path;
    /* Of a layer that drafts tokens: the model that it drafts for, whose file, vocabulary and
     * weights without a layer it uses. NULL = the model is not such a layer. */
    const llm_model *lender;
    llm_gguf *gguf; /* owned unless there is a lender, as is vocab */
    llm_hparams hparams;
    const struct llm_arch *arch;
    llm_layer_spec *specs; /* [n_layer] */
    llm_vocab *vocab;      /* NULL = there is none; vocab_error has the reason */
    tdm_error vocab_error;
    llm_weight *weights; /* [n_weight] */
    int32_t n_weight;
    int32_t n_own; /* the first n_own weights are the model's own (with adapters: and theirs), the
                      others are the lender's */
    struct llm_adapter *adapters; /* [n_adapter] */
    int32_t n_adapter;
    int32_t n_base; /* with adapters: the first n_base weights are those of the model's file, the
                       others those of the adapters' files. Not set without adapters */
    /* [LLM_MAX_PARTS * n_layer], n_part used: parts of tensors, reshaped and made tensors. Their
     * names are owned. */
    llm_gguf_tensor *parts;
    int32_t n_part;
    int32_t global[LLM_ROLE_GLOBAL_COUNT_]; /* role -> weight, -1 = absent */
    int32_t (*layer)[LLM_ROLE_COUNT_];      /* [n_layer] role -> weight, -1 = absent */
    int32_t partition_base; /* added to the architecture's partition ids, so that they are unique
                               in the process */
    uint64_t fingerprint; /* hash of the architecture and of names, types, shapes and first bytes of
                               its own tensors, without adapters; state files contain it */
    uint64_t n_param;     /* elements of its own weights, without adapters */
    uint64_t file_size;   /* bytes of its own weights in the file, without adapters */
    uint64_t adapter_size; /* bytes of the tensors of adapters in their files */
    tdm_runtime *rt;       /* not owned; NULL before loading */
    int32_t n_dev;         /* 0 = not loaded */
    tdm_open_device *devs[TDM_MAX_STAGE_DEVICES]; /* [n_dev] not owned */
    llm_store store;                              /* buffers of its own weights */
};

/* Alignment of weights in a buffer, bytes: the largest that a device requires. */
#define LLM_WEIGHT_ALIGN ((uint64_t)256)

/* The description of a weight for devices: of the whole weight, before a group cuts it. */
tdm_tensor_desc llm_weight_desc(const llm_weight *w);

/* The name of a weight; for a weight of an adapter, the name of the weight that it changes. */
const char *llm_weight_base_name(const llm_model *model, const llm_weight *w);

/* The file that has the weight: the model's, or an adapter's. */
const llm_gguf *llm_weight_gguf(const llm_model *model, const llm_weight *w);

/* Copies columns col .. col + n_col - 1 of rows row .. row + n_row - 1 of a weight, in the file's
 * type, to `out`. If n_row is not 1, the rows must be whole. col and n_col are multiples of the
 * type's block. Fails as llm_gguf_read. [any-thread] */
tdm_status llm_weight_read(const llm_model *model, const llm_weight *w, int64_t row, int64_t n_row,
                           int64_t col, int64_t n_col, void *out, tdm_error *err);

/* Opens and checks a file. An unknown tokenizer is not a failure: vocab is NULL then, and
 * vocab_error has the reason. Every other defect of the file is a failure. [setup] */
tdm_status llm_model_open(const char *path, llm_model **model_out, tdm_error *err);

/* Floats of a token's hidden state, as a layer that drafts reads and gives it: n_embd, or n_embd
 * times the number of residual streams. [any-thread] */
int32_t llm_model_hidden_len(const llm_model *model);

/* Opens the first layer of the file that only drafts tokens, as a model of its own. Its batches
 * contain the hidden states of `model` (llm_batch.hidden). `model` has been opened by
 * llm_model_open and outlives it. TDM_UNSUPPORTED, with the name of the file, if it has no such
 * layer or one that is not supported: with recurrent states, without attention, or of an
 * architecture with several residual streams that cannot be drafted for. [setup] */
tdm_status llm_model_open_draft(const llm_model *model, llm_model **draft_out, tdm_error *err);

/* The devices on which weights must be. A weight without one is placed where the first node that
 * reads it runs. */
typedef struct llm_placement {
    /* Returns the device for the tensor of that name: an index into llm_model_load's devs; -1 = any
     * device. NULL = any device for all weights. */
    int32_t (*weight)(void *user, const char *name);
    void *user;
} llm_placement;

/* Sets the devices on which weights must be; called before loading. Adapters' weights follow those
 * that they change, if the adapters have been added before. Nodes that read such a weight run on
 * its device. If a device cannot take a weight, loading fails and names the weight. [setup] */
void llm_model_place(llm_model *model, const llm_placement *placement);

/* Called repeatedly by a long call, on the calling thread, with what is done and the total (bytes
 * while loading, tokens while decoding). If it returns false, the call ends with TDM_CANCELLED. */
typedef bool (*llm_progress_fn)(void *context, uint64_t done, uint64_t total);

/* Places the weights and uploads them. A weight without a device of its own (llm_model_place) is on
 * devs[0] if that device supports the node that reads it, else on the first later device that does.
 * On failure the model stays open and not loaded. The runtime and the devices outlive the model. A
 * model of llm_model_open_draft is loaded after the model that it drafts for, on the same devices,
 * else TDM_FAILED_PRECONDITION. [setup] */
tdm_status llm_model_load(llm_model *model, tdm_runtime *rt, tdm_open_device *const *devs,
                          int32_t n_dev, llm_progress_fn progress, void *progress_context,
                          tdm_error *err);

/* Frees the model and its weights on the devices. NULL is a no-op. [setup] */
void llm_model_close(llm_model *model);

/* The buffer in which a loaded weight lies, at w->off; it stays owned by the model or its
 * lender. */
tdm_mem llm_model_weight_mem(const llm_model *model, const llm_weight *w);

/* The vocabulary; fails with the reason if there is none. [any-thread] */
tdm_status llm_model_vocab(const llm_model *model, const llm_vocab **vocab_out, tdm_error *err);

/* A short description for tables: "llama 1.1B Q4_0". Writes at most text_size bytes.
 * [any-thread] */
void llm_model_describe(const llm_model *model, char *text, size_t text_size);

#endif
