/* SPDX-License-Identifier: MIT
 *
 * t5.c: T5 (Raffel et al., arXiv:1910.10683): no rotation, but a bias of attention for each
 * distance between tokens (block/distance_bias.c), and scores that are not scaled. Whole models
 * have an encoder and a decoder that reads what it gives (block/cross.c); others are the encoder
 * alone.
 */
#include "llm/arch/families.h"

/* At least 4 ranges: half are for later tokens, and half of each half hold one distance each
 * (block/distance_bias.c). */
static void buckets_read(llm_key_reader *r, llm_hparams *h) {
    h->attention_scale = 1;
    llm_key_int(r, "attention.relative_buckets_count", LLM_GGUF_REQUIRED, 4, LLM_FAR_DISTANCE,
                &h->n_distance_bucket);
}

/* The layers of the decoder are behind those of the encoder; without a key there are as many. */
static void t5_read(llm_key_reader *r, llm_hparams *h) {
    const int32_t n_encoder = h->n_layer;
    int32_t n_decoder = n_encoder;
    buckets_read(r, h);
    llm_key_int(r, "decoder_block_count", LLM_GGUF_OPTIONAL, 1, LLM_MAX_LAYERS, &n_decoder);
    llm_key_int(r, "decoder_start_token_id", LLM_GGUF_REQUIRED, 0, LLM_MAX_VOCAB - 1,
                &h->decoder_start);
    if (r->status == TDM_OK && n_encoder + n_decoder > LLM_MAX_LAYERS)
        r->status = tdm_fail(
            r->err, TDM_DATA_LOSS,
            "%s: keys '%s.block_count' = %d and '%s.decoder_block_count' = %d make "
            "more than %d layers",
            llm_gguf_name(r->gguf), r->arch, n_encoder, r->arch, n_decoder, LLM_MAX_LAYERS);
    h->n_layer_encoder = n_encoder;
    h->n_layer = n_encoder + n_decoder;
}

/* The first models have no gate. */
static void t5_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                     llm_layer_spec *spec) {
    (void)h;
    if (llm_layer_has(gguf, LLM_ROLE_FFN_GATE, layer)) return;
    spec->ffn = LLM_FFN_PLAIN;
    spec->act = TDM_ACT_RELU;
}

const llm_arch llm_arch_t5 = {
    .name = "t5",
    .families = "T5, Flan-T5",
    LLM_PRE_NORMS,
    .norm_out = LLM_ROLE_DEC_OUTPUT_NORM,
    .has_no_rope = true,
    .act = TDM_ACT_GELU,
    .harmless = " attn_rel_b.weight cross_attn_rel_b.weight ",
    .read = t5_read,
    .layer = t5_layer,
};

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
    .read = buckets_read,
    .layer = t5_layer,
};
