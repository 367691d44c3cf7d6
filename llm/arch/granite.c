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

const llm_arch llm_arch_granite_swa = {
    .name = "granite_swa",
    .families = "Granite with windows",
    .keys = SCALES | LLM_KEY_WINDOW,
    LLM_PRE_NORMS,
    .act = TDM_ACT_SILU,
};

/* What files without the keys mean. */
static void minicpm_read(llm_key_reader *r, llm_hparams *h) {
    float unset = -1;
    h->embd_scale = 12.0f;
    h->residual_scale = 1.4f / sqrtf((float)h->n_layer);
    h->logit_scale = 256.0f / (float)h->n_embd;
    llm_key_float(r, "embedding_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->embd_scale);
    llm_key_float(r, "residual_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->residual_scale);
    llm_key_float(r, "logit_scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &unset);
    if (unset > 0) h->logit_scale = 1.0f / unset;
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
