/* SPDX-License-Identifier: MIT
 *
 * hunyuan.c: Hunyuan 4: latent attention with a gate, sinks and sparse selection, and several
 * residual streams. Earlier Hunyuan models: experts.c.
 */
#include "llm/arch/families.h"

static const char limit_key[] = "swiglu_clamp_exp";

/* Without a key for the selection, all layers attend to all tokens. */
static void hy_v4_read(llm_key_reader *r, llm_hparams *h) {
    llm_latent_read(r, h);
    llm_key_int(r, "attention.indexer.top_k", LLM_GGUF_OPTIONAL, 0, LLM_MAX_CTX, &h->n_select);
    if (h->n_select > 0) llm_index_read(r, h);
    h->index_rope_offset = h->n_select > 0 ? h->index_len - h->rope.n_rot : 0;
    h->index_norm_eps = h->norm_eps;
    llm_key_int(r, "hyper_connection.count", LLM_GGUF_REQUIRED, 1, LLM_MAX_STREAMS, &h->n_stream);
    llm_key_float(r, "hyper_connection.epsilon", LLM_GGUF_REQUIRED, 0, 1, &h->stream_eps);
    llm_key_float(r, "hyper_connection.magnitude", LLM_GGUF_REQUIRED, 0, 1e6f,
                  &h->stream_magnitude);
    llm_limits_check(r, h, limit_key);
}

/* Only experts that the router chooses have limits. */
static void hy_v4_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                        llm_layer_spec *spec) {
    spec->glu.limit = llm_limit_of(gguf, h->arch, limit_key, layer);
}

const llm_arch llm_arch_hy_v4 = {
    .name = "hy_v4",
    .families = "Hunyuan 4",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_INDEX_TYPES,
    LLM_PRE_NORMS,
    LLM_SPARSE_LATENT,
    .stream = LLM_STREAM_HYPER,
    .gate = LLM_GATE_ELEMENT,
    .act = TDM_ACT_SILU,
    .read = hy_v4_read,
    .layer = hy_v4_layer,
};
