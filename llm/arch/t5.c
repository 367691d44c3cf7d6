/* SPDX-License-Identifier: MIT
 *
 * t5.c: encoders of T5 (Raffel et al., arXiv:1910.10683): no rotation, but a bias of attention for
 * each distance between tokens (block/distance_bias.c), and scores that are not scaled.
 */
#include "llm/arch/families.h"

/* Half of the ranges are for later tokens, and half of those hold one distance. */
static void t5encoder_read(llm_key_reader *r, llm_hparams *h) {
    h->attention_scale = 1;
    llm_key_int(r, "attention.relative_buckets_count", LLM_GGUF_REQUIRED, 4, LLM_FAR_DISTANCE,
                &h->n_distance_bucket);
}

/* The first models have no gate. */
static void t5encoder_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                            llm_layer_spec *spec) {
    (void)h;
    if (llm_layer_has(gguf, LLM_ROLE_FFN_GATE, layer)) return;
    spec->ffn = LLM_FFN_PLAIN;
    spec->act = TDM_ACT_RELU;
}

const llm_arch llm_arch_t5encoder = {
    .name = "t5encoder",
    .families = "Encoders of T5, Flan-T5",
    LLM_PRE_NORMS,
    .norm_out = LLM_ROLE_ENC_OUTPUT_NORM,
    .has_no_rope = true,
    .is_bidirectional = true,
    .is_encoder = true,
    .act = TDM_ACT_GELU,
    .harmless = " attn_rel_b.weight output.weight ",
    .read = t5encoder_read,
    .layer = t5encoder_layer,
};
