/* SPDX-License-Identifier: MIT
 *
 * rwkv.c: architectures whose layers mix each token with the one before (RWKV-6: Peng et al.,
 * arXiv:2404.05892): QRWKV6, which has RWKV's time mixing in place of attention in Qwen 2. RWKV-6
 * and RWKV-7 themselves are not supported.
 */
#include "llm/arch/families.h"

/* Heads follow from the width: the key for heads of queries is 0 in files. */
static void rwkv6qwen2_read(llm_key_reader *r, llm_hparams *h) {
    int32_t len = 1, n_shift = 1;
    llm_key_int(r, "wkv.head_size", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &len);
    llm_key_int(r, "time_mix_extra_dim", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &h->n_mix_row);
    llm_key_int(r, "time_decay_extra_dim", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &h->n_decay_row);
    llm_key_int(r, "token_shift_count", LLM_GGUF_OPTIONAL, 1, 1, &n_shift);
    if (r->status != TDM_OK) return;
    h->n_conv = 2;
    h->ssm_inner = h->n_embd;
    h->ssm_state = len;
    h->ssm_rank = h->n_embd / len;
    /* Without the key there are as many heads of k and v as of r. */
    char name[96];
    llm_key_name(r, "attention.head_count_kv", name);
    h->ssm_group = llm_gguf_key_find(r->gguf, name) != NULL ? h->n_head_kv : h->ssm_rank;
    if (r->status == TDM_OK && (h->n_embd % len != 0 || h->ssm_rank % h->ssm_group != 0))
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: keys '%s.wkv.head_size' = %d and 'attention.head_count_kv' = %d "
                             "do not fit a width of %d",
                             llm_gguf_name(r->gguf), r->arch, len, h->ssm_group, h->n_embd);
}

const llm_arch llm_arch_rwkv6qwen2 = {
    .name = "rwkv6qwen2",
    .families = "QRWKV6",
    .keys = LLM_KEY_RECURRENT,
    LLM_PRE_NORMS,
    .has_no_rope = true,
    .recurrent_mixer = LLM_MIXER_RWKV,
    .act = TDM_ACT_SILU,
    .read = rwkv6qwen2_read,
};
