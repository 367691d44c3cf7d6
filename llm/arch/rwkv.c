/* SPDX-License-Identifier: MIT
 *
 * rwkv.c: architectures whose layers mix each token with the one before: RWKV-6 (Peng et al.,
 * arXiv:2404.05892), and QRWKV6, which has its time mixing in place of attention in Qwen 2. RWKV-7
 * is not supported.
 */
#include "llm/arch/families.h"

/* Heads follow from the width: the key for heads of queries is 0 in files. Without the key for
 * heads of k and v there are as many of those as of r. */
static void heads_read(llm_key_reader *r, llm_hparams *h, int32_t n_shift) {
    int32_t len = 1, found = n_shift;
    llm_key_int(r, "wkv.head_size", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &len);
    llm_key_int(r, "token_shift_count", LLM_GGUF_OPTIONAL, n_shift, n_shift, &found);
    if (r->status != TDM_OK) return;
    h->n_conv = 2;
    h->ssm_inner = h->n_embd;
    h->ssm_state = len;
    h->ssm_rank = h->ssm_group = h->n_embd / len;
    if (h->n_embd % len != 0)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.wkv.head_size' = %d does not fit a width of %d",
                             llm_gguf_name(r->gguf), r->arch, len, h->n_embd);
}

static void rows_read(llm_key_reader *r, llm_hparams *h) {
    llm_key_int(r, "time_mix_extra_dim", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &h->n_mix_row);
    llm_key_int(r, "time_decay_extra_dim", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &h->n_decay_row);
}

static void rwkv6qwen2_read(llm_key_reader *r, llm_hparams *h) {
    char name[96];
    rows_read(r, h);
    heads_read(r, h, 1);
    llm_key_name(r, "attention.head_count_kv", name);
    if (r->status != TDM_OK || llm_gguf_key_find(r->gguf, name) == NULL) return;
    h->ssm_group = h->n_head_kv;
    if (h->ssm_group == 0 || h->ssm_rank % h->ssm_group != 0)
        r->status =
            tdm_fail(r->err, TDM_DATA_LOSS,
                     "%s: keys '%s.wkv.head_size' = %d and 'attention.head_count_kv' = %d "
                     "do not fit a width of %d",
                     llm_gguf_name(r->gguf), r->arch, h->ssm_state, h->ssm_group, h->n_embd);
}

static void rwkv6_read(llm_key_reader *r, llm_hparams *h) {
    rows_read(r, h);
    heads_read(r, h, 2);
    llm_key_int(r, "rescale_every_n_layers", LLM_GGUF_OPTIONAL, 0, LLM_MAX_LAYERS,
                &h->halving_period);
}

#define RWKV                                                                                       \
    .keys = LLM_KEY_RECURRENT, .norm = LLM_NORM_LAYER, .norm_mixer = LLM_ROLE_ATTN_NORM,           \
    .norm_channel = LLM_ROLE_ATTN_NORM_2, .has_embd_norm = true, .has_no_rope = true,              \
    .ffn = LLM_FFN_SHIFTED

const llm_arch llm_arch_rwkv6 = {
    .name = "rwkv6",
    .families = "RWKV-6",
    RWKV,
    .mixer = LLM_MIXER_RWKV,
    .recurrent_mixer = LLM_MIXER_RWKV,
    .read = rwkv6_read,
};

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
