/* SPDX-License-Identifier: MIT
 *
 * hparams.c: see hparams.h. Key names are those of the GGUF specification (ggml-org/ggml,
 * docs/gguf.md).
 */
#include "llm/arch/hparams.h"

#include <math.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/arch/key_reader.h"

static void copy_text(char *dst, size_t dst_size, llm_gguf_str text) {
    size_t len = text.len < dst_size - 1 ? text.len : dst_size - 1;
    memcpy(dst, text.ptr, len);
    dst[len] = 0;
}

static void read_rope_scaling(llm_key_reader *r, llm_hparams *h) {
    char name[96];
    llm_gguf_str type = {"linear", 6};
    float factor = 0, yarn_factor = 1, ext_factor = 0;
    if (r->status != TDM_OK) return;
    /* A factor without a type means linear scaling. `scale_linear` is an older name of the
     * factor. */
    llm_key_float(r, "rope.scale_linear", LLM_GGUF_OPTIONAL, 0, 1e6f, &factor);
    llm_key_float(r, "rope.scaling.factor", LLM_GGUF_OPTIONAL, 0, 1e6f, &factor);
    llm_key_name(r, "rope.scaling.type", name);
    if (r->status == TDM_OK)
        r->status = llm_gguf_get_str(r->gguf, name, LLM_GGUF_OPTIONAL, &type, r->err);
    llm_key_int(r, "rope.scaling.original_context_length", LLM_GGUF_OPTIONAL, 1, LLM_MAX_CTX,
                &h->rope.n_ctx_orig);
    llm_key_float(r, "rope.scaling.attn_factor", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.attn_factor);
    llm_key_float(r, "rope.scaling.yarn_attn_factor", LLM_GGUF_OPTIONAL, 0, 1e6f, &yarn_factor);
    llm_key_float(r, "rope.scaling.yarn_beta_fast", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.beta_fast);
    llm_key_float(r, "rope.scaling.yarn_beta_slow", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.beta_slow);
    const bool is_yarn = llm_gguf_str_equals(type, "yarn");
    if (is_yarn) {
        ext_factor = -1;
        llm_key_float(r, "rope.scaling.yarn_ext_factor", LLM_GGUF_OPTIONAL, -1, 1, &ext_factor);
        if (ext_factor < 0) ext_factor = 1; /* negative means not set */
    }
    if (r->status != TDM_OK) return;
    /* Extrapolation multiplies by 1 + 0.1 ln(factor) itself. There the key holds that product in
     * files of some models, and 1 in those of others: in neither is it one factor more. */
    if (ext_factor == 0) h->rope.attn_factor *= yarn_factor;
    if (llm_gguf_str_equals(type, "none")) {
        h->rope_scaling = LLM_ROPE_SCALING_NONE;
    } else if (llm_gguf_str_equals(type, "linear") || is_yarn ||
               llm_gguf_str_equals(type, "longrope")) {
        /* "longrope": a factor for each frequency, which is a tensor (block/attention.c). */
        if (factor == 0 && !is_yarn) return; /* neither type nor factor: no scaling */
        h->rope_scaling = is_yarn ? LLM_ROPE_SCALING_YARN : LLM_ROPE_SCALING_LINEAR;
        h->rope.freq_scale = factor == 0 ? 1.0f : 1.0f / factor;
        h->rope.ext_factor = ext_factor;
    } else {
        r->status =
            tdm_fail(r->err, TDM_UNSUPPORTED,
                     "%s: RoPE scaling '%.*s' is not supported; none, linear, yarn and longrope "
                     "are",
                     llm_gguf_name(r->gguf), (int)(type.len < 40 ? type.len : 40), type.ptr);
    }
}

/* Blocks of the file, for each of which an array has an element. */
static int32_t n_block(const llm_hparams *h) {
    return h->n_layer + h->n_layer_draft;
}

/* block_count includes the layers that draft tokens. A file without such layers may still have the
 * key nextn_predict_layers: then the last layers are ordinary ones, with attn_norm and without
 * nextn.eh_proj. */
static void read_layers(llm_key_reader *r, llm_hparams *h) {
    char name[64];
    int32_t n_draft = 0;
    llm_key_int(r, "block_count", LLM_GGUF_REQUIRED, 1, LLM_MAX_LAYERS, &h->n_layer);
    llm_key_int(r, "nextn_predict_layers", LLM_GGUF_OPTIONAL, 0, h->n_layer - 1, &n_draft);
    if (r->status != TDM_OK || n_draft == 0) return;
    const int32_t first = h->n_layer - n_draft;
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", first);
    if (llm_layer_has(r->gguf, LLM_ROLE_ATTN_NORM, first) &&
        llm_gguf_tensor_find(r->gguf, name) == NULL)
        return;
    h->n_layer = first;
    h->n_layer_draft = n_draft;
}

static void read_heads(llm_key_reader *r, const llm_arch *arch, llm_hparams *h) {
    bool has_none = (arch->keys & LLM_KEY_RECURRENT) != 0; /* layers without attention */
    const bool is_per_layer = (arch->keys & LLM_KEY_PER_LAYER) != 0;
    void (*read)(llm_key_reader *, const char *, int32_t, int32_t, int32_t *) =
        is_per_layer ? llm_key_each_most
        : has_none   ? llm_key_each_or_none
                     : llm_key_each;
    read(r, "attention.head_count", n_block(h), LLM_MAX_WIDTH, &h->n_head);
    const bool has_attention = h->n_head > 0;
    if (has_none && !has_attention) h->n_head = 1;
    h->n_head_kv = h->n_head;
    read(r, "attention.head_count_kv", n_block(h), LLM_MAX_WIDTH, &h->n_head_kv);
    if (r->status != TDM_OK) return;
    if (has_none && !has_attention) h->n_head = h->n_head_kv;
    if (!is_per_layer && h->n_head % h->n_head_kv != 0) { /* else layer_spec.c checks each */
        r->status =
            tdm_fail(r->err, TDM_DATA_LOSS, "%s: %d heads are not a multiple of %d key/value heads",
                     llm_gguf_name(r->gguf), h->n_head, h->n_head_kv);
        return;
    }
    h->head_dim_k = h->n_embd / h->n_head;
    h->head_dim_v = h->head_dim_k;
    llm_key_int(r, "attention.key_length", LLM_GGUF_OPTIONAL, 1, LLM_MAX_HEAD_DIM, &h->head_dim_k);
    llm_key_int(r, "attention.value_length", LLM_GGUF_OPTIONAL, 1, LLM_MAX_HEAD_DIM,
                &h->head_dim_v);
    if (r->status == TDM_OK && h->head_dim_k < 1)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: %d heads do not fit a width of %d",
                             llm_gguf_name(r->gguf), h->n_head, h->n_embd);
    int64_t width =
        (int64_t)h->n_head * (h->head_dim_k > h->head_dim_v ? h->head_dim_k : h->head_dim_v);
    if (r->status == TDM_OK && width > INT32_MAX)
        r->status = tdm_fail(
            r->err, TDM_DATA_LOSS, "%s: %d heads of %d are %lld wide, at least 2^31",
            llm_gguf_name(r->gguf), h->n_head, (int32_t)(width / h->n_head), (long long)width);
}

static void read_rope(llm_key_reader *r, const llm_arch *arch, llm_hparams *h) {
    h->rope.mode = (int32_t)arch->rope;
    h->rope.freq_base = 10000.0f;
    h->rope.freq_scale = 1.0f;
    h->rope.attn_factor = 1.0f;
    h->rope.beta_fast = 32.0f;
    h->rope.beta_slow = 1.0f;
    h->rope.n_ctx_orig = h->n_ctx_train;
    h->rope.n_rot = h->head_dim_k;
    llm_key_float(r, "rope.freq_base", LLM_GGUF_OPTIONAL, 1e-3f, 1e12f, &h->rope.freq_base);
    llm_key_int(r, "rope.dimension_count", LLM_GGUF_OPTIONAL, 0, h->head_dim_k, &h->rope.n_rot);
    if (r->status == TDM_OK && h->rope.n_rot % 2 != 0)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.rope.dimension_count' is %d; it must be even",
                             llm_gguf_name(r->gguf), r->arch, h->rope.n_rot);
    if (arch->has_no_rope) h->rope.n_rot = 0;
    read_rope_scaling(r, h);
}

/* A number that only some architectures honour. */
static void read_optional(llm_key_reader *r, const llm_arch *arch, uint32_t key, const char *suffix,
                          float *value) {
    if ((arch->keys & key) != 0) llm_key_float(r, suffix, LLM_GGUF_OPTIONAL, 0, 1e6f, value);
}

/* The numbers are `llama_expert_gating_func_type` (ggml-org/llama.cpp, src/llama-hparams.h). */
static void read_gating(llm_key_reader *r, llm_hparams *h) {
    static const tdm_route_score scores[] = {TDM_ROUTE_SOFTMAX, TDM_ROUTE_SOFTMAX,
                                             TDM_ROUTE_SIGMOID, TDM_ROUTE_TOP_SOFTMAX,
                                             TDM_ROUTE_SQRT_SOFTPLUS};
    enum { NONE = 0, N_SCORE = sizeof scores / sizeof *scores };
    int32_t gating = NONE;
    llm_key_int(r, "expert_gating_func", LLM_GGUF_OPTIONAL, NONE, N_SCORE - 1, &gating);
    if (gating != NONE) h->route.score = (int32_t)scores[gating];
}

static void read_groups(llm_key_reader *r, llm_hparams *h) {
    int32_t n_group = 0, n_group_used = 0;
    llm_key_int(r, "expert_group_count", LLM_GGUF_OPTIONAL, 0, h->n_expert, &n_group);
    llm_key_int(r, "expert_group_used_count", LLM_GGUF_OPTIONAL, 0, h->n_expert, &n_group_used);
    if (r->status != TDM_OK || n_group <= 1) return;
    h->route.n_group = n_group;
    h->route.n_group_used = n_group_used;
    if (h->n_expert % n_group != 0 || n_group_used < 1 || n_group_used > n_group ||
        h->n_expert / n_group * n_group_used < h->n_expert_used)
        r->status = tdm_fail(
            r->err, TDM_DATA_LOSS,
            "%s: keys '%s.expert_group_count' = %d and 'expert_group_used_count' = %d do not allow "
            "a choice of %d out of %d experts",
            llm_gguf_name(r->gguf), r->arch, n_group, n_group_used, h->n_expert_used, h->n_expert);
}

/* How many experts a token chooses, and their columns. A file may have numbers of each layer; then
 * these are the most of any. */
static void read_expert_sizes(llm_key_reader *r, const llm_arch *arch, llm_hparams *h) {
    int32_t n_ff = 0; /* also where the key is 0: absent */
    if (llm_key_is_each(r, "expert_used_count"))
        llm_key_each_most(r, "expert_used_count", n_block(h), h->n_expert, &h->n_expert_used);
    else
        llm_key_int(r, "expert_used_count", LLM_GGUF_REQUIRED, 1, h->n_expert, &h->n_expert_used);
    if ((arch->keys & LLM_KEY_EXPERT_FF) != 0) {
        if (llm_key_is_each(r, "expert_feed_forward_length"))
            llm_key_each_most(r, "expert_feed_forward_length", n_block(h), LLM_MAX_WIDTH, &n_ff);
        else
            llm_key_int(r, "expert_feed_forward_length", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH,
                        &n_ff);
    }
    h->n_ff_expert = n_ff > 0 ? n_ff : h->n_ff;
}

static void read_experts(llm_key_reader *r, const llm_arch *arch, llm_hparams *h) {
    bool is_normalized = arch->is_route_normalized;
    int32_t n_shared = 0;
    llm_key_int(r, "expert_count", LLM_GGUF_OPTIONAL, 0, 65536, &h->n_expert);
    /* Files whose layers are all dense have this key without the others. */
    if ((arch->keys & LLM_KEY_DENSE_FIRST) != 0)
        llm_key_int(r, "leading_dense_block_count", LLM_GGUF_OPTIONAL, 0, h->n_layer,
                    &h->n_layer_dense);
    if (h->n_expert == 0) return;
    read_expert_sizes(r, arch, h);
    h->route.n_used = h->n_expert_used;
    h->route.score = (int32_t)arch->route_score;
    llm_key_int(r, "expert_shared_count", LLM_GGUF_OPTIONAL, 0, 1024, &n_shared);
    llm_key_int(r, "expert_shared_feed_forward_length", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH,
                &h->n_ff_shared);
    if (r->status == TDM_OK && h->n_ff_shared == 0) {
        int64_t n = (int64_t)h->n_ff_expert * (n_shared > 0 ? n_shared : 1);
        if (n > LLM_MAX_WIDTH)
            r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                                 "%s: key '%s.expert_shared_count' is %d, which makes %lld columns",
                                 llm_gguf_name(r->gguf), r->arch, n_shared, (long long)n);
        h->n_ff_shared = (int32_t)n;
    }
    read_optional(r, arch, LLM_KEY_EXPERT_SCALE, "expert_weights_scale", &h->route.scale);
    if ((arch->keys & LLM_KEY_EXPERT_NORM) != 0)
        llm_key_bool(r, "expert_weights_norm", LLM_GGUF_OPTIONAL, &is_normalized);
    h->route.normalize = is_normalized;
    if ((arch->keys & LLM_KEY_EXPERT_GATING) != 0) read_gating(r, h);
    if (r->status == TDM_OK) read_groups(r, h);
}

/* Without a key for the length, the temperature grows with each context of the original model. */
static void read_temperature(llm_key_reader *r, llm_hparams *h) {
    h->temperature_length = h->rope.n_ctx_orig;
    llm_key_float(r, "attention.temperature_scale", LLM_GGUF_OPTIONAL, 0, 1e6f,
                  &h->temperature_scale);
    int32_t length = 0;
    llm_key_int(r, "attention.temperature_length", LLM_GGUF_OPTIONAL, 0, LLM_MAX_CTX, &length);
    if (length > 0) h->temperature_length = length;
    if (h->temperature_scale == 0) h->temperature_length = 0;
}

static void read_recurrent(llm_key_reader *r, const llm_arch *arch, llm_hparams *h) {
    if ((arch->keys & LLM_KEY_RECURRENT) == 0) return;
    llm_key_int(r, "ssm.conv_kernel", LLM_GGUF_OPTIONAL, 0, 64, &h->n_conv);
    if (h->n_conv == 0) llm_key_int(r, "shortconv.l_cache", LLM_GGUF_OPTIONAL, 0, 64, &h->n_conv);
    llm_key_int(r, "ssm.inner_size", LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH, &h->ssm_inner);
    llm_key_int(r, "ssm.state_size", LLM_GGUF_OPTIONAL, 0, LLM_MAX_HEAD_DIM, &h->ssm_state);
    llm_key_int(r, "ssm.time_step_rank", LLM_GGUF_OPTIONAL, 0, LLM_MAX_HEAD_DIM, &h->ssm_rank);
    llm_key_int(r, "ssm.group_count", LLM_GGUF_OPTIONAL, 0, LLM_MAX_HEAD_DIM, &h->ssm_group);
    llm_key_bool(r, "ssm.dt_b_c_rms", LLM_GGUF_OPTIONAL, &h->has_ssm_norms);
    if (arch->recurrent_mixer == LLM_MIXER_LIGHTNING || arch->recurrent_mixer == LLM_MIXER_RWKV ||
        arch->recurrent_mixer == LLM_MIXER_RWKV7)
        return; /* no convolution */
    if (r->status == TDM_OK && h->n_conv < 2)
        r->status =
            tdm_fail(r->err, TDM_DATA_LOSS,
                     "%s: neither key '%s.ssm.conv_kernel' nor '%s.shortconv.l_cache' is at "
                     "least 2",
                     llm_gguf_name(r->gguf), r->arch, r->arch);
}

/* The key can make a decoder bidirectional, too. An encoder, and a model that fills in masked
 * tokens, is bidirectional whatever the key says. */
static void read_direction(llm_key_reader *r, const llm_arch *arch, llm_hparams *h) {
    bool is_causal = !arch->is_bidirectional;
    llm_key_bool(r, "attention.causal", LLM_GGUF_OPTIONAL, &is_causal);
    h->is_bidirectional = !is_causal || arch->is_bidirectional;
}

/* Layers with a window may have shorter heads than the others, and other rotated elements. */
static void read_window_heads(llm_key_reader *r, llm_hparams *h) {
    int32_t value_length = h->head_dim_v;
    h->window_head_dim = h->head_dim_k;
    h->window_n_rot = h->rope.n_rot;
    llm_key_int(r, "attention.key_length_swa", LLM_GGUF_OPTIONAL, 1, h->head_dim_k,
                &h->window_head_dim);
    llm_key_int(r, "attention.value_length_swa", LLM_GGUF_OPTIONAL, 1, LLM_MAX_HEAD_DIM,
                &value_length);
    llm_key_int(r, "rope.dimension_count_swa", LLM_GGUF_OPTIONAL, 2, h->window_head_dim,
                &h->window_n_rot);
    if (r->status == TDM_OK && (value_length != h->window_head_dim ||
                                h->head_dim_v != h->head_dim_k || h->window_n_rot % 2 != 0))
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: keys '%s.attention.*_length*' and 'rope.dimension_count_swa': "
                             "heads of %d and %d elements, with a window %d and %d, of which %d "
                             "turn; such models are not supported",
                             llm_gguf_name(r->gguf), r->arch, h->head_dim_k, h->head_dim_v,
                             h->window_head_dim, value_length, h->window_n_rot);
}

static void read_own(llm_key_reader *r, const llm_arch *arch, llm_hparams *h) {
    h->norm = arch->norm;
    read_direction(r, arch, h);
    if (arch->is_norm_by_key) {
        llm_key_float(r, "attention.layer_norm_rms_epsilon", LLM_GGUF_OPTIONAL, 0, 1, &h->norm_eps);
        if (h->norm_eps != 0) h->norm = LLM_NORM_RMS;
    }
    if (h->norm == LLM_NORM_RMS && arch->has_either_eps)
        llm_key_float(r, "attention.layer_norm_epsilon", LLM_GGUF_OPTIONAL, 0, 1, &h->norm_eps);
    if (h->norm == LLM_NORM_RMS)
        llm_key_float(r, "attention.layer_norm_rms_epsilon",
                      h->norm_eps != 0 ? LLM_GGUF_OPTIONAL : LLM_GGUF_REQUIRED, 0, 1, &h->norm_eps);
    else
        llm_key_float(r, "attention.layer_norm_epsilon", LLM_GGUF_REQUIRED, 0, 1, &h->norm_eps);
    if (r->status == TDM_OK) read_experts(r, arch, h);
    if (r->status == TDM_OK) read_recurrent(r, arch, h);
    read_optional(r, arch, LLM_KEY_ATTN_SCALE, "attention.scale", &h->attention_scale);
    read_optional(r, arch, LLM_KEY_ATTN_SOFTCAP, "attn_logit_softcapping", &h->attention_softcap);
    read_optional(r, arch, LLM_KEY_FINAL_SOFTCAP, "final_logit_softcapping", &h->logit_softcap);
    read_optional(r, arch, LLM_KEY_LOGIT_SCALE | LLM_KEY_LOGIT_DIVISOR, "logit_scale",
                  &h->logit_scale);
    if ((arch->keys & LLM_KEY_LOGIT_DIVISOR) != 0 && h->logit_scale != 0)
        h->logit_scale = 1.0f / h->logit_scale;
    if (arch->has_embd_sqrt) h->embd_scale = sqrtf((float)h->n_embd);
    read_optional(r, arch, LLM_KEY_EMBD_SCALE, "embedding_scale", &h->embd_scale);
    read_optional(r, arch, LLM_KEY_RESIDUAL_SCALE, "residual_scale", &h->residual_scale);
    read_optional(r, arch, LLM_KEY_CLAMP_QKV, "attention.clamp_kqv", &h->clamp_qkv);
    h->alibi_max_bias = arch->alibi;
    read_optional(r, arch, LLM_KEY_ALIBI, "attention.max_alibi_bias", &h->alibi_max_bias);
    if ((arch->keys & LLM_KEY_SELECT) != 0)
        llm_key_int(r, "attention.indexer.top_k", LLM_GGUF_REQUIRED, 1, LLM_MAX_CTX, &h->n_select);
    if ((arch->keys & LLM_KEY_TEMPERATURE) != 0) read_temperature(r, h);
    h->is_parallel = arch->form == LLM_FORM_PARALLEL;
    if ((arch->keys & LLM_KEY_PARALLEL) != 0)
        llm_key_bool(r, "use_parallel_residual", LLM_GGUF_OPTIONAL, &h->is_parallel);
    if ((arch->keys & LLM_KEY_WINDOW) != 0)
        llm_key_int(r, "attention.sliding_window", LLM_GGUF_OPTIONAL, 0, LLM_MAX_CTX, &h->window);
    if ((arch->keys & LLM_KEY_SHARED_CACHE) != 0)
        llm_key_int(r, "attention.shared_kv_layers", LLM_GGUF_OPTIONAL, 0, h->n_layer - 1,
                    &h->n_layer_shared);
    if (r->status == TDM_OK && (arch->keys & LLM_KEY_WINDOW_HEADS) != 0) read_window_heads(r, h);
    if ((arch->keys & LLM_KEY_WINDOW_ROPE) != 0)
        llm_key_float(r, "rope.freq_base_swa", LLM_GGUF_OPTIONAL, 0, 1e12f, &h->window_freq_base);
}

/* Layers with a window rotate as many elements of a head as the others. */
static void check_window_rope(llm_key_reader *r, const llm_hparams *h) {
    int32_t n_rot = h->rope.n_rot;
    if (h->window == 0) return;
    llm_key_int(r, "rope.dimension_count_swa", LLM_GGUF_OPTIONAL, 0, LLM_MAX_HEAD_DIM, &n_rot);
    if (r->status == TDM_OK && n_rot != h->rope.n_rot)
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key '%s.rope.dimension_count_swa' is %d, but layers without a "
                             "window rotate %d elements; such models are not supported",
                             llm_gguf_name(r->gguf), r->arch, n_rot, h->rope.n_rot);
}

static void read_token_types(llm_key_reader *r, llm_hparams *h) {
    const char *key = "tokenizer.ggml.token_type_count";
    uint32_t n = 0;
    if (r->status == TDM_OK)
        r->status = llm_gguf_get_u32(r->gguf, key, LLM_GGUF_OPTIONAL, &n, r->err);
    if (r->status != TDM_OK) return;
    if (n > LLM_MAX_WIDTH)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: key '%s' is %u; at most %d is expected",
                             llm_gguf_name(r->gguf), key, n, LLM_MAX_WIDTH);
    else
        h->n_token_type = (int32_t)n;
}

/* Whether to read feed_forward_length. A file whose layers all have experts may have
 * expert_feed_forward_length alone. */
static bool has_dense_width(const llm_key_reader *r, const llm_arch *arch) {
    char dense[96], experts[96];
    llm_key_name(r, "feed_forward_length", dense);
    llm_key_name(r, "expert_feed_forward_length", experts);
    return (arch->keys & LLM_KEY_EXPERT_FF) == 0 || llm_gguf_key_find(r->gguf, dense) != NULL ||
           llm_gguf_key_find(r->gguf, experts) == NULL;
}

tdm_status llm_hparams_read(const llm_gguf *gguf, const llm_arch *arch, llm_hparams *hparams_out,
                            tdm_error *err) {
    llm_hparams h = {0};
    llm_gguf_str text = {"", 0};
    tdm_status status =
        llm_gguf_get_str(gguf, "general.architecture", LLM_GGUF_REQUIRED, &text, err);
    if (status != TDM_OK) return status;
    copy_text(h.arch, sizeof h.arch, text);
    text = (llm_gguf_str){"", 0};
    status = llm_gguf_get_str(gguf, "general.name", LLM_GGUF_OPTIONAL, &text, err);
    if (status != TDM_OK) return status;
    copy_text(h.name, sizeof h.name, text);

    llm_key_reader r = {gguf, h.arch, err, TDM_OK};
    read_layers(&r, &h);
    read_token_types(&r, &h);
    llm_key_int(&r, "embedding_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH, &h.n_embd);
    llm_key_int(&r, "context_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_CTX, &h.n_ctx_train);
    if (!has_dense_width(&r, arch))
        h.n_ff = 0;
    else if (r.status == TDM_OK && (arch->keys & (LLM_KEY_PER_LAYER | LLM_KEY_EACH_WIDTH)) != 0)
        llm_key_each_most(&r, "feed_forward_length", n_block(&h), LLM_MAX_WIDTH, &h.n_ff);
    else if (r.status == TDM_OK && (arch->keys & LLM_KEY_RECURRENT) != 0)
        llm_key_each_or_none(&r, "feed_forward_length", n_block(&h), LLM_MAX_WIDTH, &h.n_ff);
    else if (r.status == TDM_OK)
        llm_key_each(&r, "feed_forward_length", n_block(&h), LLM_MAX_WIDTH, &h.n_ff);
    if (r.status == TDM_OK) read_heads(&r, arch, &h);
    if (r.status == TDM_OK) read_rope(&r, arch, &h);
    if (r.status == TDM_OK) read_own(&r, arch, &h);
    if (r.status == TDM_OK && arch->read != NULL) arch->read(&r, &h);
    const bool has_window_heads = (arch->keys & LLM_KEY_WINDOW_HEADS) != 0;
    if (r.status == TDM_OK && !has_window_heads) check_window_rope(&r, &h);
    if (r.status != TDM_OK) return r.status;

    const llm_gguf_tensor *embd = llm_gguf_tensor_find(gguf, "token_embd.weight");
    if (embd == NULL)
        return tdm_fail(err, TDM_NOT_FOUND,
                        "%s: tensor 'token_embd.weight' is missing; the file is not a whole model",
                        llm_gguf_name(gguf));
    if (embd->ne[1] < 1 || embd->ne[1] > LLM_MAX_VOCAB)
        return tdm_fail(err, TDM_DATA_LOSS, "%s: tensor 'token_embd.weight' has %lld rows",
                        llm_gguf_name(gguf), (long long)embd->ne[1]);
    h.n_vocab = (int32_t)embd->ne[1];
    if (h.decoder_start >= h.n_vocab)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: key '%s.decoder_start_token_id' is %d; the vocabulary ends at %d",
                        llm_gguf_name(gguf), h.arch, h.decoder_start, h.n_vocab - 1);
    *hparams_out = h;
    return TDM_OK;
}
