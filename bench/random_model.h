/* SPDX-License-Identifier: MIT
 *
 * random_model.h: makes Llama, Mistral, Mixtral and DeepSeek-2 models with random weights, as GGUF
 * files that any reader of the format loads: for benchmarks, for which only shapes matter, and for
 * tests, which compare the results of two implementations. Models with a sharpness recall what
 * stood behind a key in their context (retrieval.h).
 *
 * A weight depends only on the seed, the tensor's name, the row and column, and a scale that
 * follows from the shapes: not on the machine or the number of threads. So a test may store
 * expected results instead of models.
 */
#ifndef BENCH_RANDOM_MODEL_H
#define BENCH_RANDOM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tandem/status.h"
#include "tandem/type.h"

/* The GGUF key of models with a sharpness: a u32, the number of keys (ids from 3 on), which is also
 * the number of values (the ids behind the keys) and of fillers (the ids behind the values).
 * llm/needle.c reads it. */
#define RANDOM_MODEL_CLASS_KEY "tandem.retrieval.class_size"

typedef enum random_model_rope {
    RANDOM_MODEL_ROPE_NONE = 0,
    RANDOM_MODEL_ROPE_LINEAR, /* positions divided by rope_factor */
    RANDOM_MODEL_ROPE_YARN,
    RANDOM_MODEL_ROPE_LLAMA3, /* factors per frequency, in a tensor rope_freqs.weight */
    RANDOM_MODEL_ROPE_COUNT_
} random_model_rope;

/* What a DeepSeek-2 has beyond the others: the cache has one latent row for each token, and shared
 * experts serve every token beside the chosen ones. The spec's head_dim is that of queries. */
typedef struct random_model_latent {
    int64_t n_lora_kv;  /* elements of a latent row before its rotated ones; 0 = no DeepSeek-2 */
    int64_t n_lora_q;   /* rank of the query matrices; 0 = one full matrix */
    int64_t n_rot;      /* rotated elements of a query head, which are its last */
    int64_t head_dim_v; /* elements of a head's V and output */
    int64_t n_ff_expert;     /* columns of one expert */
    int64_t n_expert_shared; /* shared experts; 0 and up */
    int64_t n_layer_dense;   /* number of first layers without experts */
    int64_t n_group;         /* groups of experts; 0 = no groups */
    int64_t n_group_used;    /* groups from which a token's experts are chosen; 0 without groups */
    float expert_scale;      /* factor of the chosen experts' weights */
    /* Experts are chosen by sigmoid and bias, and their weights are normalised; else by softmax. */
    bool is_sigmoid;
} random_model_latent;

typedef struct random_model_spec {
    const char *name;       /* general.name */
    int64_t n_layer;        /* 1 to 1024 */
    int64_t n_embd;         /* width of the residual stream */
    int64_t n_head;         /* a multiple of n_head_kv */
    int64_t n_head_kv;      /* 1 and up */
    int64_t head_dim;       /* even; need not be n_embd / n_head */
    int64_t n_ff;           /* columns of the feed-forward block, or of one expert */
    int64_t n_vocab;        /* 259 and up: three special tokens and the bytes come first */
    int64_t n_ctx;          /* what the model says it was trained for */
    int64_t n_expert;       /* 0: a plain feed-forward block */
    int64_t n_expert_used;  /* 1 to n_expert; 0 without experts */
    int64_t seed;           /* 0 and up */
    int64_t n_thread;       /* 1 and up; changes the time it takes, nothing else */
    tdm_type type;          /* of every matrix whose rows are whole blocks; norms are f32 */
    tdm_type round_type;    /* weights are first rounded to this type (F32 = they are not): with
                             * type F32, the exact model that a quantised one stands for */
    float rope_base;        /* rope.freq_base */
    float rope_factor;      /* of the scaling */
    random_model_rope rope; /* scaling from n_ctx / rope_factor tokens to n_ctx */
    random_model_latent latent;
    /* Above 0: constructed weights (retrieval.h). It is the score, before the softmax, that the
     * induction head gives the token behind an earlier occurrence of the key; other tokens get
     * about 0. With rope = LLAMA3, the upper half of each head does not rotate. 0 = random
     * weights. */
    float sharpness;
    /* Tokens that three of four layers see, as in Cohere 2; 0 = all layers see all tokens. Only
     * with a sharpness and is_tied. */
    int64_t n_window;
    bool is_tied; /* the output head is the token embedding */
    /* All layers have the numbers of layer 0, so that making the model takes a fraction of the
     * time. Random weights only. */
    bool has_same_layers;
    /* Of q, k, v, o and, without experts, of gate, up, down; not with latent attention. */
    bool has_biases;
} random_model_spec;

/* Preset i, and its name ("1.1b", "100m", "tiny-llama", ...) in *name; NULL past the last.
 * [any-thread] */
const random_model_spec *random_model_preset_at(int i, const char **name);

/* Facts about the model, to be printed. */
typedef struct random_model_facts {
    int64_t n_param;
    int64_t size;              /* bytes of tensor data */
    int64_t n_fallback;        /* matrices of another type, as their rows are not whole blocks */
    const char *fallback_name; /* the first of them, without its layer ("ffn_down.weight"); a
                                 * literal; NULL where there is none */
    tdm_type fallback_type;    /* what it has instead */
    int64_t fallback_row;      /* elements of its rows */
} random_model_facts;

/* Called from time to time while a model is written: `done` of `all` bytes are written. */
typedef void (*random_model_progress)(int64_t done, int64_t all, void *user);

/* Writes the model to `path`; the file appears only when it is complete. *facts (nullable) is
 * filled before any data is written. `progress` may be NULL. TDM_INVALID_ARGUMENT names the
 * parameter that is out of range; other failures are those of llm/gguf/gguf_write.h. [setup] */
tdm_status random_model_write(const random_model_spec *spec, const char *path,
                              random_model_facts *facts, random_model_progress progress, void *user,
                              tdm_error *err);

#endif
