/* SPDX-License-Identifier: MIT
 *
 * exaone.c: EXAONE 3 to 4. LG AI Research (arXiv:2408.03541, arXiv:2507.11407).
 */
#include "llm/arch/families.h"

const llm_arch llm_arch_exaone = {
    .name = "exaone",
    .families = "EXAONE 3",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

/* Only the model of 64 layers has windows, also where its file lacks the key. */
static void exaone4_read(llm_key_reader *r, llm_hparams *h) {
    (void)r;
    if (h->n_layer != 64)
        h->window = 0;
    else if (h->window == 0)
        h->window = 4096;
}

/* Where some layers have a window, the others do not rotate their heads. */
static void exaone4_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    (void)gguf, (void)layer;
    if (h->window > 0 && spec->window == 0) spec->rope.n_rot = 0;
}

const llm_arch llm_arch_exaone4 = {
    .name = "exaone4",
    .families = "EXAONE 4",
    .keys = LLM_KEY_WINDOW,
    .norm_mixer_post = LLM_ROLE_ATTN_POST_NORM,
    .norm_channel_post = LLM_ROLE_FFN_POST_NORM,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .window_period = 4,
    .act = TDM_ACT_SILU,
    .read = exaone4_read,
    .layer = exaone4_layer,
};

const llm_arch llm_arch_exaone_moe = {
    .name = "exaone-moe",
    .families = "EXAONE MoE",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_WINDOW,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .window_period = 4,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .layer = exaone4_layer,
};
