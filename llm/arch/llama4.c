/* SPDX-License-Identifier: MIT
 *
 * llama4.c: Llama 4: windows in chunks, every fourth layer without rotation and with a temperature
 * that grows with the position, experts whose inputs are weighted.
 */
#include "llm/arch/families.h"

enum { CHUNK = 8192, PERIOD = 4, EXPERTS_WITHOUT_NORM = 128 };

/* Files say whether there are windows, not how long they are. */
static void llama4_read(llm_key_reader *r, llm_hparams *h) {
    char name[96];
    llm_key_name(r, "attention.sliding_window", name);
    bool has_none = h->window == 0 && llm_gguf_key_find(r->gguf, name) != NULL;
    if (has_none) return;
    h->window = CHUNK;
    h->temperature_scale = 0.1f;
    h->temperature_length = CHUNK;
    h->temperature_offset = 1;
}

static void llama4_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                         llm_layer_spec *spec) {
    const int32_t period = h->window > 0 ? PERIOD : h->n_layer;
    const bool is_rotated = (layer + 1) % period != 0;
    (void)gguf;
    if (!is_rotated) spec->rope.n_rot = 0;
    if (is_rotated) spec->has_temperature = false;
    spec->has_bare_norm_q = spec->has_bare_norm_k =
        is_rotated && h->n_expert != EXPERTS_WITHOUT_NORM;
}

const llm_arch llm_arch_llama4 = {
    .name = "llama4",
    .families = "Llama 4",
    .keys = LLM_KEY_ATTN_SCALE | LLM_KEY_EXPERT_FF | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    LLM_PRE_NORMS,
    .window_period = PERIOD,
    .window_kind = TDM_WINDOW_CHUNKED,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .is_expert_weighted_first = true,
    .read = llama4_read,
    .layer = llama4_layer,
};
