/* SPDX-License-Identifier: MIT
 *
 * plm.c: PLM, with latent rows of keys and values (arXiv:2503.12167), and BitNet, with norms before
 * the last matrix of each block (arXiv:2402.17764).
 */
#include "llm/arch/families.h"

static void plm_read(llm_key_reader *r, llm_hparams *h) {
    llm_key_int(r, "attention.kv_lora_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH, &h->n_lora_kv);
    h->head_dim_q = h->head_dim_k;
    h->head_dim_o = h->head_dim_v;
    h->rope.rope_offset = h->head_dim_k - h->rope.n_rot;
}

const llm_arch llm_arch_plm = {
    .name = "plm",
    .families = "PLM",
    LLM_PRE_NORMS,
    .mixer = LLM_MIXER_LATENT_WIDE,
    .rope = TDM_ROPE_ADJACENT,
    .ffn = LLM_FFN_SQUARED,
    .act = TDM_ACT_RELU,
    .read = plm_read,
};

const llm_arch llm_arch_bitnet = {
    .name = "bitnet",
    .families = "BitNet b1.58",
    LLM_PRE_NORMS,
    .has_sub_norms = true,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};
