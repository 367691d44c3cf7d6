/* SPDX-License-Identifier: MIT
 *
 * kimi.c: linear attention beside attention: Kimi Linear (arXiv:2510.26692), Kimi K3 and Ling 3,
 * whose layers are of the same kinds, and MiniMax-01 (arXiv:2501.08313).
 */
#include <math.h>

#include "llm/arch/families.h"

/* Layers of linear attention have as many heads as the others. */
static void heads_read(llm_hparams *h, int64_t len) {
    h->ssm_state = (int32_t)len;
    h->ssm_inner = (int32_t)(len * h->n_head < LLM_MAX_WIDTH ? len * h->n_head : 0);
    h->ssm_rank = h->ssm_group = h->n_head;
}

static void kda_read(llm_key_reader *r, llm_hparams *h) {
    int32_t len = 0;
    llm_latent_read(r, h);
    llm_key_int(r, "kda.head_dim", LLM_GGUF_REQUIRED, 1, LLM_MAX_HEAD_DIM, &len);
    heads_read(h, len);
}

/* No head is rotated: positions follow from linear attention, and keys of RoPE's scaling do not
 * count. */
static void kimi_linear_read(llm_key_reader *r, llm_hparams *h) {
    kda_read(r, h);
    h->attention_scale = 1 / sqrtf((float)h->head_dim_q);
}

static void kimi_linear_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                              llm_layer_spec *spec) {
    (void)gguf, (void)h, (void)layer;
    spec->rope.n_rot = 0;
}

/* Biases of linear attention in a file do not apply. */
#define KDA_LAYERS                                                                                 \
    LLM_PRE_NORMS, .mixer = LLM_MIXER_LATENT, .recurrent_mixer = LLM_MIXER_KDA,                    \
                   .harmless = " attn_q.bias attn_k.bias attn_v.bias "
#define KDA KDA_LAYERS, .act = TDM_ACT_SILU

const llm_arch llm_arch_kimi_linear = {
    .name = "kimi-linear",
    .families = "Kimi Linear",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EXPERT_GATING |
            LLM_KEY_DENSE_FIRST,
    KDA,
    .is_route_normalized = true,
    .read = kimi_linear_read,
    .layer = kimi_linear_layer,
};

/* The number of a layer from a key with one number for all layers or one for each; 0 without the
 * key, NaN if the key has no number for this layer. */
static float layer_number(const llm_gguf *gguf, const char *arch, const char *suffix,
                          int32_t layer) {
    char name[96];
    tdm_error unused;
    llm_key_reader r = {gguf, arch, &unused, TDM_OK};
    float number = 0;
    llm_key_name(&r, suffix, name);
    const llm_gguf_key *key = llm_gguf_key_find(gguf, name);
    if (key == NULL) return 0;
    if (key->type == LLM_GGUF_ARRAY)
        return key->array.type == LLM_GGUF_F32 && key->array.n > (uint64_t)layer
                   ? llm_gguf_array_f32(&key->array, (uint64_t)layer)
                   : NAN;
    return llm_gguf_get_f32(gguf, name, LLM_GGUF_REQUIRED, &number, &unused) == TDM_OK ? number
                                                                                       : NAN;
}

static const char *const limit_keys[2] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};

void llm_limits_check(llm_key_reader *r, const llm_hparams *h, const char *suffix) {
    for (int32_t i = 0; i < h->n_layer && r->status == TDM_OK; i++) {
        const float limit = layer_number(r->gguf, r->arch, suffix, i);
        if (!(limit >= 0 && isfinite(limit)))
            r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                                 "%s: key '%s.%s' has no finite limit of at least 0 for layer %d",
                                 llm_gguf_name(r->gguf), r->arch, suffix, i);
    }
}

float llm_limit_of(const llm_gguf *gguf, const char *arch, const char *suffix, int32_t layer) {
    const float limit = layer_number(gguf, arch, suffix, layer);
    return limit > 0 && isfinite(limit) ? limit : 0;
}

static const char *const soft_keys[2] = {"activation.situ_beta", "activation.situ_linear_beta"};

static void kimi_k3_read(llm_key_reader *r, llm_hparams *h) {
    float beta = 0, floor = -INFINITY; /* there is none */
    kimi_linear_read(r, h);
    h->is_decay_negative = true;
    llm_key_float(r, "kda.gate_lower_bound", LLM_GGUF_OPTIONAL, -INFINITY, -1e-3f, &floor);
    if (isfinite(floor)) h->decay_floor = floor;
    llm_key_int(r, "expert_latent_length", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH, &h->n_expert_row);
    llm_key_int(r, "attn_res.block_size", LLM_GGUF_REQUIRED, (h->n_layer - 1) / LLM_MAX_DEPTH + 1,
                LLM_MAX_LAYERS, &h->n_depth_layer);
    llm_key_float(r, soft_keys[0], LLM_GGUF_REQUIRED, 1e-3f, 1e6f, &beta);
    llm_key_float(r, soft_keys[1], LLM_GGUF_REQUIRED, 0, 1e6f, &beta);
}

/* Gated units are sigmoid(g) * b tanh(g / b) * c tanh(p / c). */
static void kimi_k3_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                          llm_layer_spec *spec) {
    kimi_linear_layer(gguf, h, layer, spec);
    spec->glu.is_soft = true;
    spec->glu.alpha = 1 / layer_number(gguf, h->arch, soft_keys[0], layer);
    spec->glu.limit = layer_number(gguf, h->arch, soft_keys[1], layer);
}

const llm_arch llm_arch_kimi_k3 = {
    .name = "kimi-k3",
    .families = "Kimi K3",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_EXPERT_NORM |
            LLM_KEY_EXPERT_GATING | LLM_KEY_DENSE_FIRST,
    KDA_LAYERS,
    .stream = LLM_STREAM_DEPTH,
    .gate = LLM_GATE_ELEMENT,
    .act = TDM_ACT_SIGMOID,
    .has_dense_glu = true,
    .read = kimi_k3_read,
    .layer = kimi_k3_layer,
};

static void bailingmoe3_read(llm_key_reader *r, llm_hparams *h) {
    bool is_bounded = true;
    kda_read(r, h);
    llm_key_bool(r, "kda.safe_gate", LLM_GGUF_OPTIONAL, &is_bounded);
    if (r->status == TDM_OK && !is_bounded)
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key '%s.kda.safe_gate' is false: decays without a bound are not "
                             "supported for this architecture; use a model with bounded ones",
                             llm_gguf_name(r->gguf), r->arch);
    llm_key_float(r, "kda.gate_lower_bound", LLM_GGUF_REQUIRED, -1e3f, -1e-3f, &h->decay_floor);
    llm_limits_check(r, h, limit_keys[0]);
    llm_limits_check(r, h, limit_keys[1]);
}

/* Limits hold for the result of the activation, so they are negative in tdm_moe_params. */
static void bailingmoe3_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                              llm_layer_spec *spec) {
    spec->glu.limit = -llm_limit_of(gguf, h->arch, limit_keys[0], layer);
    spec->glu_dense.limit = -llm_limit_of(gguf, h->arch, limit_keys[1], layer);
}

const llm_arch llm_arch_bailingmoe3 = {
    .name = "bailingmoe3",
    .families = "Ling 3",
    .keys = LLM_KEY_RECURRENT | LLM_KEYS_EXPERTS,
    KDA,
    .gate = LLM_GATE_HEAD,
    .gate_act = TDM_ACT_SIGMOID,
    .read = bailingmoe3_read,
    .layer = bailingmoe3_layer,
};

static void minimax_01_read(llm_key_reader *r, llm_hparams *h) {
    llm_key_float(r, "residual_scale", LLM_GGUF_REQUIRED, 1e-6f, 1e6f, &h->stream_scale);
    heads_read(h, h->head_dim_k);
}

const llm_arch llm_arch_minimax_01 = {
    .name = "minimax-01",
    .families = "MiniMax-01, MiniMax-M1",
    .keys = LLM_KEY_RECURRENT,
    LLM_PRE_NORMS,
    .has_normed_stream = true,
    .rope = TDM_ROPE_HALVES,
    .recurrent_mixer = LLM_MIXER_LIGHTNING,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .read = minimax_01_read,
};
