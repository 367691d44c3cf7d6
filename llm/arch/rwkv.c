/* SPDX-License-Identifier: MIT
 *
 * rwkv.c: architectures whose layers mix each token with the one before: RWKV-6 (Peng et al.,
 * arXiv:2404.05892) and RWKV-7 (Peng et al., arXiv:2503.14456), and QRWKV6 and ARWKV, which have
 * their time mixing in place of attention in Qwen 2.
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

static void ranks_read(llm_key_reader *r, llm_hparams *h, bool needs_gate) {
    const struct {
        const char *suffix;
        int32_t *rank;
        bool is_required;
    } keys[] = {
        {"attention.decay_lora_rank", &h->n_decay_row, true},
        {"attention.iclr_lora_rank", &h->n_rate_row, true},
        {"attention.value_residual_mix_lora_rank", &h->n_value_row, true},
        {"attention.gate_lora_rank", &h->n_gate_row, needs_gate},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        llm_key_int(r, keys[i].suffix, keys[i].is_required ? LLM_GGUF_REQUIRED : LLM_GGUF_OPTIONAL,
                    keys[i].is_required, LLM_MAX_HEAD_DIM, keys[i].rank);
}

static void rwkv7_read(llm_key_reader *r, llm_hparams *h) {
    ranks_read(r, h, true);
    heads_read(r, h, 2);
}

/* Without a gate its rank is 0, or the key is not there. */
static void arwkv7_read(llm_key_reader *r, llm_hparams *h) {
    ranks_read(r, h, false);
    heads_read(r, h, 1);
}

/* These become one weight (block/rwkv.c). */
#define SPLIT_LERP                                                                                 \
    " time_mix_lerp_w.weight time_mix_lerp_k.weight time_mix_lerp_v.weight "                       \
    "time_mix_lerp_r.weight time_mix_lerp_g.weight "

/* The first layer does not mix v, so it does not read these. */
#define UNREAD_VALUE " time_mix_v0.weight time_mix_v1.weight time_mix_v2.weight "

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
    .harmless = SPLIT_LERP,
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

const llm_arch llm_arch_rwkv7 = {
    .name = "rwkv7",
    .families = "RWKV-7",
    RWKV,
    .mixer = LLM_MIXER_RWKV7,
    .recurrent_mixer = LLM_MIXER_RWKV7,
    .harmless = UNREAD_VALUE,
    .read = rwkv7_read,
};

const llm_arch llm_arch_arwkv7 = {
    .name = "arwkv7",
    .families = "ARWKV",
    .keys = LLM_KEY_RECURRENT,
    LLM_PRE_NORMS,
    .has_no_rope = true,
    .mixer = LLM_MIXER_RWKV7,
    .recurrent_mixer = LLM_MIXER_RWKV7,
    .act = TDM_ACT_SILU,
    .harmless = UNREAD_VALUE,
    .read = arwkv7_read,
};
