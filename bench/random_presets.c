/* SPDX-License-Identifier: MIT
 *
 * random_presets.c: the presets of random_model.h, specs of models by name.
 */
#include <stddef.h>

#include "bench/random_model.h"

/* Fields that the presets of a size have in common. */
#define LARGE                                                                                      \
    .n_vocab = 32000, .n_ctx = 8192, .seed = 1, .n_thread = 2, .type = TDM_TYPE_F16,               \
    .rope_base = 10000, .rope_factor = 1
#define TINY .n_embd = 256, .n_vocab = 384, .n_ctx = 512, .seed = 1, .n_thread = 2, .rope_factor = 4

/* Fields of the retrieval models (retrieval.h). With a low rope base, neighbouring positions differ
 * in all rotating pairs of a head, so that a cache of 4 bits still tells them apart. If half of a
 * head does not rotate, the base is squared. */
#define RETRIEVAL(width, base)                                                                     \
    .n_embd = (width), .n_vocab = 1539, .n_ctx = 65536, .seed = 1, .n_thread = 2,                  \
    .type = TDM_TYPE_F16, .n_ff = 64, .head_dim = 128, .rope_base = (base), .rope_factor = 1,      \
    .sharpness = 14

/* Widths are multiples of 256, the block length of K-quants, so that every type applies. tiny-odd
 * is for rows of other lengths, and for numbers of heads, columns and tokens that are not
 * divisible. */
static const struct {
    const char *name;
    random_model_spec spec;
} presets[] = {
    {"1.1b",
     {.name = "random 1.1B",
      .n_layer = 16,
      .n_embd = 2048,
      .n_head = 32,
      .n_head_kv = 8,
      .head_dim = 64,
      .n_ff = 8192,
      LARGE}},
    {"100m",
     {.name = "random 100M",
      .n_layer = 12,
      .n_embd = 768,
      .n_head = 12,
      .n_head_kv = 4,
      .head_dim = 64,
      .n_ff = 2048,
      .is_tied = true,
      LARGE}},
    {"0.6b-deepseek2", /* heads and latent row of DeepSeek-V2-Lite, fewer and smaller experts */
     {.name = "random DeepSeek 2 0.6B",
      .n_layer = 27,
      .n_embd = 1024,
      .n_head = 16,
      .n_head_kv = 1,
      .head_dim = 192,
      .n_ff = 4096,
      .n_expert = 8,
      .n_expert_used = 2,
      .latent = {.n_lora_kv = 512,
                 .n_rot = 64,
                 .head_dim_v = 128,
                 .n_ff_expert = 512,
                 .n_expert_shared = 2,
                 .n_layer_dense = 1,
                 .expert_scale = 1},
      LARGE}},
    {"tiny-llama",
     {.name = "tiny llama",
      .n_layer = 2,
      .n_head = 4,
      .n_head_kv = 2,
      .head_dim = 64,
      .n_ff = 256,
      .rope_base = 10000,
      TINY}},
    {"tiny-llama-bias", /* every bias that the architecture may have; units that 3 and 7 do not
                         * divide */
     {.name = "tiny llama with biases",
      .n_layer = 2,
      .n_head = 8,
      .n_head_kv = 4,
      .head_dim = 32,
      .n_ff = 288,
      .rope_base = 10000,
      .has_biases = true,
      TINY}},
    {"tiny-mistral", /* heads wider than n_embd / n_head, as in Mistral Nemo */
     {.name = "tiny mistral",
      .n_layer = 2,
      .n_head = 8,
      .n_head_kv = 2,
      .head_dim = 64,
      .n_ff = 512,
      .rope_base = 1000000,
      TINY}},
    {"tiny-mixtral",
     {.name = "tiny mixtral",
      .n_layer = 2,
      .n_head = 4,
      .n_head_kv = 2,
      .head_dim = 64,
      .n_ff = 256,
      .n_expert = 4,
      .n_expert_used = 2,
      .rope_base = 1000000,
      TINY}},
    {"tiny-one-kv-head",
     {.name = "tiny one KV head",
      .n_layer = 2,
      .n_head = 4,
      .n_head_kv = 1,
      .head_dim = 64,
      .n_ff = 256,
      .rope_base = 10000,
      .is_tied = true,
      TINY}},
    {"tiny-deepseek2-lite", /* as DeepSeek-V2-Lite: queries straight from the stream, softmax */
     {.name = "tiny DeepSeek 2 lite",
      .n_layer = 3,
      .n_head = 4,
      .n_head_kv = 1,
      .head_dim = 96,
      .n_ff = 512,
      .n_expert = 4,
      .n_expert_used = 2,
      .latent = {.n_lora_kv = 256,
                 .n_rot = 32,
                 .head_dim_v = 64,
                 .n_ff_expert = 256,
                 .n_expert_shared = 2,
                 .n_layer_dense = 1,
                 .expert_scale = 1},
      .rope_base = 10000,
      TINY}},
    {"tiny-deepseek2", /* as DeepSeek-V3: groups of experts, chosen with a bias */
     {.name = "tiny DeepSeek 2",
      .n_layer = 3,
      .n_head = 4,
      .n_head_kv = 1,
      .head_dim = 96,
      .n_ff = 512,
      .n_expert = 8,
      .n_expert_used = 3,
      .latent = {.n_lora_kv = 256,
                 .n_lora_q = 256,
                 .n_rot = 32,
                 .head_dim_v = 64,
                 .n_ff_expert = 256,
                 .n_expert_shared = 1,
                 .n_layer_dense = 1,
                 .n_group = 4,
                 .n_group_used = 2,
                 .expert_scale = 2.5f,
                 .is_sigmoid = true},
      .rope_base = 10000,
      TINY}},
    {"tiny-odd",
     {.name = "tiny odd",
      .n_layer = 3,
      .n_embd = 96,
      .n_head = 3,
      .n_head_kv = 3,
      .head_dim = 24,
      .n_ff = 116,
      .n_vocab = 291,
      .n_ctx = 512,
      .seed = 1,
      .n_thread = 2,
      .rope_base = 10000,
      .rope_factor = 4}},
    {"retrieval", /* --heads-kv 4: every head its own K and V; 1: all heads the same */
     {.name = "retrieval",
      .n_layer = 2,
      .n_head = 4,
      .n_head_kv = 2,
      .rope = RANDOM_MODEL_ROPE_LLAMA3,
      RETRIEVAL(256, 100)}},
    {"retrieval-latent",
     {.name = "retrieval, latent",
      .n_layer = 2,
      .n_head = 4,
      .n_head_kv = 1,
      .n_expert = 2,
      .n_expert_used = 1,
      .latent = {.n_lora_kv = 128,
                 .n_rot = 64,
                 .head_dim_v = 64,
                 .n_ff_expert = 64,
                 .n_expert_shared = 1,
                 .n_layer_dense = 2,
                 .expert_scale = 1},
      RETRIEVAL(256, 10)}},
    {"retrieval-window", /* windows in all layers but the last */
     {.name = "retrieval, windows",
      .n_layer = 4,
      .n_head = 4,
      .n_head_kv = 2,
      .n_window = 256,
      .is_tied = true,
      RETRIEVAL(512, 10)}},
};

const random_model_spec *random_model_preset_at(int i, const char **name) {
    if (i < 0 || (size_t)i >= sizeof presets / sizeof *presets) return NULL;
    *name = presets[i].name;
    return &presets[i].spec;
}
