/* SPDX-License-Identifier: MIT
 *
 * random_model.h: Llama, Mistral, Mixtral and DeepSeek-2 models with random weights, as GGUF files
 * that any reader of the format loads: for benchmarks, which depend on shapes and not on sense, and
 * for tests, which compare one implementation's numbers with another's. Models with a sharpness
 * recall what stood behind a key in their context (retrieval.h).
 *
 * The weights depend on seed, tensor name, row and column alone: not on the machine, the number of
 * threads or the other options, so that a test may keep expected results instead of models.
 */
#ifndef BENCH_RANDOM_MODEL_H
#define BENCH_RANDOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"
#include "tandem/type.h"

/* Key of models with a sharpness: u32, how many keys there are (ids from 3 on), how many values
 * (ids behind them) and how many fillers (ids behind those). llm/needle.h reads it. */
#define RANDOM_MODEL_CLASS_KEY "tandem.retrieval.class_size"

typedef enum random_model_rope {
    RANDOM_MODEL_ROPE_NONE = 0,
    RANDOM_MODEL_ROPE_LINEAR, /* positions divided by rope_factor */
    RANDOM_MODEL_ROPE_YARN,
    RANDOM_MODEL_ROPE_LLAMA3, /* factors per frequency, in a tensor rope_freqs.weight */
    RANDOM_MODEL_ROPE_COUNT_
} random_model_rope;

/* What a DeepSeek-2 has beyond the others: one latent row a token in the cache, experts that serve
 * every token beside those that are chosen. The spec's head_dim is that of queries. */
typedef struct random_model_latent {
    int64_t n_lora_kv;       /* of the latent row before its turned elements; 0: no such model */
    int64_t n_lora_q;        /* 0: queries are made from the stream */
    int64_t n_rot;           /* turned elements of a query head, its last */
    int64_t head_dim_v;      /* of a head's output */
    int64_t n_ff_expert;     /* columns of one expert */
    int64_t n_expert_shared; /* 0 and up */
    int64_t n_layer_dense;   /* first layers, without experts */
    int64_t n_group;         /* of experts; 0: none */
    int64_t n_group_used;
    float expert_scale; /* of the chosen experts' weights */
    bool is_sigmoid;    /* chosen by sigmoid and bias, weights normalised; else by softmax */
} random_model_latent;

typedef struct random_model_spec {
    const char *name;       /* general.name */
    int64_t n_layer;        /* 1 to 1024 */
    int64_t n_embd;         /* width of the residual stream */
    int64_t n_head;         /* a multiple of n_head_kv */
    int64_t n_head_kv;      /* 1 and up */
    int64_t head_dim;       /* even; need not be n_embd / n_head */
    int64_t n_ff;           /* of one expert where there are experts */
    int64_t n_vocab;        /* 259 and up: three special tokens and the bytes come first */
    int64_t n_ctx;          /* what the model says it was trained for */
    int64_t n_expert;       /* 0: a plain feed-forward block */
    int64_t n_expert_used;  /* 1 to n_expert; 0 without experts */
    int64_t seed;           /* 0 and up */
    int64_t n_thread;       /* 1 and up; changes the time it takes, nothing else */
    tdm_type type;          /* of every matrix whose rows are whole blocks; norms are f32 */
    tdm_type round_type;    /* values first go through this type and back (F32: they do not):
                             * the f32 model that a quantised one stands for */
    float rope_base;        /* rope.freq_base */
    float rope_factor;      /* of the scaling */
    random_model_rope rope; /* n_ctx is stretched from n_ctx / rope_factor */
    random_model_latent latent;
    /* Constructed weights (retrieval.h): the score in nats of the induction head at the key that it
     * looks for; others' are near 0. With rope = LLAMA3, the upper half of each head does not
     * rotate. 0: random weights. */
    float sharpness;
    int64_t n_window; /* tokens that 3 of 4 layers see, as in Cohere 2; 0: no such model. Only with
                       * a sharpness and tied */
    bool is_tied;     /* the output head is the token embedding */
    bool has_same_layers; /* every layer has the numbers of layer 0, which takes a fraction of the
                           * time to make and no less to compute. Random weights only */
    bool has_biases;      /* of q, k, v, o and, without experts, of gate, up, down; not with latent
                      * attention */
} random_model_spec;

/* A spec by name, or NULL after the last: "1.1b", "100m", "tiny-llama", ... [any-thread] */
const random_model_spec *random_model_preset_at(int i, const char **name);

/* Facts about the model, of no use but to be printed. */
typedef struct random_model_facts {
    int64_t n_param;
    int64_t size;              /* bytes of tensor data */
    int64_t n_fallback;        /* matrices whose rows are not whole blocks of the asked type */
    const char *fallback_name; /* the first of them, without its layer ("ffn_down.weight"); a
                                 * literal; NULL where there is none */
    tdm_type fallback_type;    /* what it has instead */
    int64_t fallback_row;      /* elements of its rows */
} random_model_facts;

/* Called now and then while a model is written, with bytes done and bytes in all. */
typedef void (*random_model_progress)(int64_t done, int64_t all, void *user);

/* Writes the model to `path`, which appears only when complete. *facts (nullable) is filled before
 * any data is written. TDM_INVALID_ARGUMENT names the parameter that is out of range; else as
 * llm_gguf_writer_. [setup] */
tdm_status random_model_write(const random_model_spec *spec, const char *path,
                              random_model_facts *facts, random_model_progress progress, void *user,
                              tdm_error *err);

#endif
