/* SPDX-License-Identifier: MIT
 *
 * lfm.c: LFM2 (arXiv:2511.23404): gated short convolutions, and attention in some layers. Files
 * name the norm before the output head token_embd_norm. In models for embeddings tokens see later
 * ones, also in convolutions. ColBERT has a matrix behind the norm (llm/projection.h).
 */
#include "llm/arch/families.h"

/* A convolution of three tokens reads one later token, where it reads any (block/short_conv.c). */
static void lfm2_read(llm_key_reader *r, llm_hparams *h) {
    if (r->status == TDM_OK && h->is_bidirectional && h->n_conv != 3)
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key '%s.attention.causal' is false and 'shortconv.l_cache' is "
                             "%d; then only 3 is supported",
                             llm_gguf_name(r->gguf), r->arch, h->n_conv);
}

#define LFM2                                                                                       \
    LLM_PRE_NORMS, LLM_HEAD_NORMS,                                                                 \
        .norm_out = LLM_ROLE_TOKEN_EMBD_NORM, .rope = TDM_ROPE_HALVES,                             \
        .recurrent_mixer = LLM_MIXER_SHORT_CONV, .act = TDM_ACT_SILU,                              \
        .harmless = " shortconv.conv.weight dense_2.weight dense_2.bias ", .read = lfm2_read

const llm_arch llm_arch_lfm2 = {
    .name = "lfm2", .families = "LFM2", .keys = LLM_KEY_RECURRENT | LLM_KEY_WINDOW, LFM2};

const llm_arch llm_arch_lfm2moe = {
    .name = "lfm2moe",
    .families = "LFM2 MoE",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EXPERT_GATING |
            LLM_KEY_DENSE_FIRST,
    LFM2,
    .is_route_normalized = true,
};
