/* SPDX-License-Identifier: MIT
 *
 * step.c: Step 3.5: windows in layers with more heads, which rotate all of a head; the others
 * rotate half; a gate for each head; limits of the gated units of a layer. StepFun.
 */
#include <math.h>

#include "llm/arch/families.h"

static const char *const limit_keys[2] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};

static void step35_read(llm_key_reader *r, llm_hparams *h) {
    for (int32_t i = 0; i < 2 * h->n_layer && r->status == TDM_OK; i++) {
        float limit = 0;
        if (!llm_key_layer_float(r, limit_keys[i % 2], i / 2, &limit) || !(limit >= 0) ||
            !isfinite(limit))
            r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                                 "%s: key '%s.%s' has no finite limit of at least 0 for layer %d",
                                 llm_gguf_name(r->gguf), r->arch, limit_keys[i % 2], i / 2);
    }
    if (h->window_freq_base == 0) h->window_freq_base = 10000.0f;
    if (r->status == TDM_OK && h->rope.n_rot % 4 != 0)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.rope.dimension_count' is %d, expected a multiple of 4",
                             llm_gguf_name(r->gguf), r->arch, h->rope.n_rot);
}

/* Limits hold for the result of the activation, so they are negative in tdm_moe_params. A layer
 * that drafts may have none. */
static float limit_of(const llm_gguf *gguf, const llm_hparams *h, int which, int32_t layer) {
    const llm_key_reader r = {.gguf = gguf, .arch = h->arch};
    float limit = 0;
    llm_key_layer_float(&r, limit_keys[which], layer, &limit);
    return limit > 0 && isfinite(limit) ? -limit : 0;
}

static void step35_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                         llm_layer_spec *spec) {
    spec->glu.limit = limit_of(gguf, h, 0, layer);
    spec->glu_dense.limit = limit_of(gguf, h, 1, layer);
    /* Scaled RoPE and factors of frequencies are those of layers without a window. */
    spec->has_rope_factors = spec->window == 0;
    if (spec->window == 0)
        spec->rope.n_rot /= 2;
    else
        spec->rope.freq_scale = 1.0f;
}

const llm_arch llm_arch_step35 = {
    .name = "step35",
    .is_hidden_raw = true,
    .families = "Step 3.5",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_WINDOW_HEADS |
            LLM_KEY_PER_LAYER,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .gate = LLM_GATE_HEAD,
    .gate_act = TDM_ACT_SIGMOID,
    .act = TDM_ACT_SILU,
    .route_score = TDM_ROUTE_SIGMOID,
    .read = step35_read,
    .layer = step35_layer,
};
