/* SPDX-License-Identifier: MIT
 *
 * granite.c: Granite and MiniCPM, whose tables scale embeddings, residuals, attention and logits.
 */
#include <math.h>

#include "llm/arch/families.h"

#define SCALES                                                                                     \
    (LLM_KEY_EMBD_SCALE | LLM_KEY_RESIDUAL_SCALE | LLM_KEY_LOGIT_DIVISOR | LLM_KEY_ATTN_SCALE)

/* The key says whether heads are rotated. */
static void granite_read(llm_key_reader *r, llm_hparams *h) {
    bool is_rotated = true;
    llm_key_bool(r, "rope.scaling.finetuned", LLM_GGUF_OPTIONAL, &is_rotated);
    if (!is_rotated) h->rope.n_rot = 0;
}

const llm_arch llm_arch_granite = {
    .name = "granite",
    .families = "Granite 3",
    .keys = SCALES,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .read = granite_read,
};

/* Some layers have a state space instead of attention. */
const llm_arch llm_arch_granitehybrid = {
    .name = "granitehybrid",
    .families = "Granite 4",
    .keys = SCALES | LLM_KEY_RECURRENT,
    LLM_PRE_NORMS,
    .recurrent_mixer = LLM_MIXER_MAMBA2,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .read = granite_read,
};

const llm_arch llm_arch_granitemoe = {
    .name = "granitemoe",
    .families = "Granite 3 MoE",
    .keys = SCALES,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
};

/* The key that says in which layers heads are rotated: a flag for each layer, or a number for all.
 * NULL = in all. */
static const llm_gguf_key *rope_pattern_find(const llm_gguf *gguf, const char *arch) {
    char name[96];
    const llm_key_reader r = {.gguf = gguf, .arch = arch};
    llm_key_name(&r, "attention.rope_pattern", name);
    return llm_gguf_key_find(gguf, name);
}

static bool is_flag(llm_gguf_type type) {
    return type != LLM_GGUF_F32 && type != LLM_GGUF_F64 && type != LLM_GGUF_STRING &&
           type != LLM_GGUF_ARRAY;
}

static void granite_swa_read(llm_key_reader *r, llm_hparams *h) {
    const llm_gguf_key *key = rope_pattern_find(r->gguf, h->arch);
    int32_t all = 1;
    if (key == NULL || r->status != TDM_OK) return;
    if (key->type != LLM_GGUF_ARRAY) {
        llm_key_int(r, "attention.rope_pattern", LLM_GGUF_REQUIRED, 0, 1, &all);
        if (all == 0) h->rope.n_rot = 0;
    } else if (!is_flag(key->array.type) || key->array.n != (uint64_t)h->n_layer) {
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.attention.rope_pattern' is no list of %d flags, one for "
                             "each layer; the file is damaged",
                             llm_gguf_name(r->gguf), h->arch, h->n_layer);
    }
}

static void granite_swa_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                              llm_layer_spec *spec) {
    const llm_gguf_key *key = rope_pattern_find(gguf, h->arch);
    if (key != NULL && key->type == LLM_GGUF_ARRAY &&
        llm_gguf_array_i64(&key->array, (uint64_t)layer) == 0)
        spec->rope.n_rot = 0;
}

const llm_arch llm_arch_granite_swa = {
    .name = "granite_swa",
    .families = "Granite with windows",
    .keys = SCALES | LLM_KEY_WINDOW,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .read = granite_swa_read,
    .layer = granite_swa_layer,
};

/* What files without the keys mean. */
static void minicpm_read(llm_key_reader *r, llm_hparams *h) {
    float divisor = 0; /* absent */
    h->embd_scale = 12.0f;
    h->residual_scale = 1.4f / sqrtf((float)h->n_layer);
    h->logit_scale = 256.0f / (float)h->n_embd;
    llm_key_float(r, "embedding_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->embd_scale);
    llm_key_float(r, "residual_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->residual_scale);
    llm_key_float(r, "logit_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &divisor);
    if (divisor > 0) h->logit_scale = 1.0f / divisor;
}

const llm_arch llm_arch_minicpm = {
    .name = "minicpm",
    .families = "MiniCPM",
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .read = minicpm_read,
};

static void minicpm3_read(llm_key_reader *r, llm_hparams *h) {
    h->embd_scale = 12.0f;
    h->residual_scale = 1.4f / sqrtf((float)h->n_layer);
    h->logit_scale = 256.0f / (float)h->n_embd;
    llm_key_int(r, "attention.q_lora_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH, &h->n_lora_q);
    llm_key_int(r, "attention.kv_lora_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH, &h->n_lora_kv);
    h->head_dim_q = h->head_dim_k;
    h->head_dim_o = h->head_dim_v;
    h->rope.rope_offset = h->head_dim_k - h->rope.n_rot;
}

const llm_arch llm_arch_minicpm3 = {
    .name = "minicpm3",
    .families = "MiniCPM 3",
    LLM_PRE_NORMS,
    .mixer = LLM_MIXER_LATENT_WIDE,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .read = minicpm3_read,
};
