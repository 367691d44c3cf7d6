/* SPDX-License-Identifier: MIT
 *
 * model.h: a model: its numbers, its weights and where they live.
 *
 * Opening reads the file's header, finds the architecture (arch.h) and checks that every tensor it
 * needs is there with the right shape; no weights move. Loading places each weight on a device and
 * uploads it in that device's own layout (weight_upload.h). After loading a model is immutable and
 * shared by any number of contexts (context.h), which must be destroyed before it.
 */
#ifndef LLM_MODEL_H
#define LLM_MODEL_H

#include "core/stages/schedule.h"
#include "llm/arch/hparams.h"
#include "llm/tokenizer/vocab.h"

typedef struct llm_model llm_model;
struct llm_arch;

/* What a weight is to the model. Names, shapes and usage of each role are one table (arch.c). */
typedef enum llm_role {
    LLM_ROLE_TOKEN_EMBD,
    LLM_ROLE_OUTPUT_NORM,
    LLM_ROLE_OUTPUT, /* absent: tied to the token embedding */
    LLM_ROLE_ROPE_FREQS,
    LLM_ROLE_GLOBAL_COUNT_,
    LLM_ROLE_ATTN_NORM = LLM_ROLE_GLOBAL_COUNT_,
    LLM_ROLE_ATTN_Q,
    LLM_ROLE_ATTN_K,
    LLM_ROLE_ATTN_V,
    LLM_ROLE_ATTN_Q_BIAS,
    LLM_ROLE_ATTN_K_BIAS,
    LLM_ROLE_ATTN_V_BIAS,
    LLM_ROLE_ATTN_OUT,
    LLM_ROLE_ATTN_OUT_BIAS,
    LLM_ROLE_ATTN_Q_A, /* latent attention: to the queries' latent row, and out of it */
    LLM_ROLE_ATTN_Q_A_NORM,
    LLM_ROLE_ATTN_Q_B,
    LLM_ROLE_ATTN_KV_A, /* to the cached row: latent part, turned part */
    LLM_ROLE_ATTN_KV_A_NORM,
    LLM_ROLE_ATTN_K_B, /* a matrix for each head: absorbed into its query */
    LLM_ROLE_ATTN_V_B, /* a matrix for each head: out of the latent row */
    LLM_ROLE_FFN_NORM,
    LLM_ROLE_FFN_GATE,
    LLM_ROLE_FFN_UP,
    LLM_ROLE_FFN_DOWN,
    LLM_ROLE_FFN_GATE_BIAS,
    LLM_ROLE_FFN_UP_BIAS,
    LLM_ROLE_FFN_DOWN_BIAS,
    LLM_ROLE_FFN_ROUTER,
    LLM_ROLE_FFN_GATE_EXPS,
    LLM_ROLE_FFN_UP_EXPS,
    LLM_ROLE_FFN_DOWN_EXPS,
    LLM_ROLE_FFN_ROUTER_BIAS, /* added for the choice of experts, not for their weights */
    LLM_ROLE_FFN_GATE_SHARED, /* experts that every token goes through */
    LLM_ROLE_FFN_UP_SHARED,
    LLM_ROLE_FFN_DOWN_SHARED,
    LLM_ROLE_COUNT_
} llm_role;

typedef struct llm_weight {
    const llm_gguf_tensor *file;
    llm_role role;
    int32_t layer;           /* -1 = none */
    uint32_t usage;          /* TDM_USAGE_* */
    int32_t axis;            /* which axis `partition` cuts */
    tdm_partition partition; /* id 0 = not cut */
    int32_t wish;            /* 1 + index of the device it is to live on; 0 = none in particular */
    int32_t dev;             /* index into the model's devices */
    uint64_t off;            /* in that device's weight buffer */
    uint64_t size;           /* bytes as kept there */
} llm_weight;

struct llm_model {
    char *path;
    llm_gguf *gguf;
    llm_hparams hparams;
    const struct llm_arch *arch;
    llm_vocab *vocab; /* NULL where vocab_error says why */
    tdm_error vocab_error;
    llm_weight *weights;
    int32_t n_weight;
    int32_t global[LLM_ROLE_GLOBAL_COUNT_]; /* role -> weight, -1 = absent */
    int32_t (*layer)[LLM_ROLE_COUNT_];      /* [n_layer] role -> weight, -1 = absent */
    int32_t partition_base; /* added to the architecture's partition ids: unique in a process */
    uint64_t fingerprint; /* of numbers, tensor names, types and shapes: tells state files apart */
    uint64_t n_param;     /* elements of all weights */
    uint64_t file_size;   /* bytes of all weights in the file */
    tdm_runtime *rt;
    int32_t n_dev; /* 0 = not loaded */
    tdm_open_device *devs[TDM_MAX_SCHEDULE_DEVICES];
    tdm_mem mem[TDM_MAX_SCHEDULE_DEVICES]; /* weight buffers */
};

/* Opens and checks a file. A tokenizer that this build does not know is no failure: vocab is NULL
 * and vocab_error holds the reason. Every other defect of the file is one. [setup] */
tdm_status llm_model_open(const char *path, llm_model **model_out, tdm_error *err);

/* Where weights are to live, where that is not wherever their first reader runs. */
typedef struct llm_placement {
    /* The device for the tensor of that name: an index into llm_model_load's devs, -1 = whatever
     * suits. NULL: no wishes. */
    int32_t (*weight)(void *user, const char *name);
    void *user;
} llm_placement;

/* Says so, before loading: what reads a weight runs where it lives. Wishes that cannot be met fail
 * the loading by name. [setup] */
void llm_model_place(llm_model *model, const llm_placement *placement);

/* Called now and then while loading, with bytes done and in all; returning false cancels. */
typedef bool (*llm_progress_fn)(void *context, uint64_t done, uint64_t total);

/* Places the weights on devs[0], what it refuses on the next, and uploads them. On failure the
 * model is as it was after opening. The runtime must outlive the model. [setup] */
tdm_status llm_model_load(llm_model *model, tdm_runtime *rt, tdm_open_device *const *devs,
                          int32_t n_dev, llm_progress_fn progress, void *progress_context,
                          tdm_error *err);

/* NULL is a no-op. [setup] */
void llm_model_close(llm_model *model);

/* The vocabulary, or the reason why there is none. [any-thread] */
tdm_status llm_model_vocab(const llm_model *model, const llm_vocab **vocab_out, tdm_error *err);

/* A few words for tables: "llama 1.1B Q4_0". Writes at most text_size bytes. [any-thread] */
void llm_model_describe(const llm_model *model, char *text, size_t text_size);

/* The type that holds most of the weights' bytes. [any-thread] */
tdm_type llm_model_main_type(const llm_model *model);

#endif
