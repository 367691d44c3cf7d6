/* SPDX-License-Identifier: MIT
 *
 * hparams.c: reading and checking a model's numbers. Key names are those of the GGUF
 * specification (ggml-org/ggml, docs/gguf.md).
 */
#include "llm/hparams.h"

#include <math.h>
#include <string.h>

/* Limits beyond any model there is; they keep every product of two of them inside 64 bits. */
#define MAX_WIDTH (1 << 20)
#define MAX_VOCAB (1 << 24)

typedef struct key_reader {
    const llm_gguf *gguf;
    const char *arch;
    tdm_error *err;
    tdm_status status; /* the first failure; later reads do nothing */
} key_reader;

static void key_name(const key_reader *r, const char *suffix, char name[96]) {
    snprintf(name, 96, "%s.%s", r->arch, suffix);
}

static void read_int(key_reader *r, const char *suffix, llm_gguf_need need, int32_t min,
                     int32_t max, int32_t *value) {
    char name[96];
    int64_t wide = *value;
    if (r->status != TDM_OK) return;
    key_name(r, suffix, name);
    r->status = llm_gguf_get_i64(r->gguf, name, need, &wide, r->err);
    if (r->status == TDM_OK && (wide < min || wide > max))
        r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: key '%s' is %lld; %d to %d is possible",
                             llm_gguf_name(r->gguf), name, (long long)wide, min, max);
    if (r->status == TDM_OK) *value = (int32_t)wide;
}

/* A count that files write once for all layers or once per layer; layers that differ are another
 * architecture than those supported. */
static void read_each(key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                      int32_t *value) {
    char name[96];
    uint32_t each[LLM_MAX_LAYERS];
    if (r->status != TDM_OK) return;
    key_name(r, suffix, name);
    for (int32_t i = 0; i < n_layer; i++) each[i] = (uint32_t)*value;
    r->status =
        llm_gguf_get_u32_each(r->gguf, name, *value > 0 ? LLM_GGUF_OPTIONAL : LLM_GGUF_REQUIRED,
                              (uint32_t)n_layer, each, r->err);
    for (int32_t i = 0; i < n_layer && r->status == TDM_OK; i++) {
        if (each[i] != each[0])
            r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                                 "%s: key '%s' differs from layer to layer; such models are not "
                                 "supported yet",
                                 llm_gguf_name(r->gguf), name);
        else if (each[i] < 1 || each[i] > (uint32_t)max)
            r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: key '%s' is %u; 1 to %d is possible",
                                 llm_gguf_name(r->gguf), name, each[i], max);
    }
    if (r->status == TDM_OK) *value = (int32_t)each[0];
}

static void read_float(key_reader *r, const char *suffix, llm_gguf_need need, float min, float max,
                       float *value) {
    char name[96];
    float found = *value;
    if (r->status != TDM_OK) return;
    key_name(r, suffix, name);
    r->status = llm_gguf_get_f32(r->gguf, name, need, &found, r->err);
    if (r->status == TDM_OK && !(found >= min && found <= max))
        r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: key '%s' is %g; %g to %g is possible",
                             llm_gguf_name(r->gguf), name, (double)found, (double)min, (double)max);
    if (r->status == TDM_OK) *value = found;
}

static void copy_text(char *dst, size_t dst_size, llm_gguf_str text) {
    size_t len = text.len < dst_size - 1 ? text.len : dst_size - 1;
    memcpy(dst, text.ptr, len);
    dst[len] = 0;
}

static void read_rope_scaling(key_reader *r, llm_hparams *h) {
    char name[96];
    llm_gguf_str type = {"linear", 6};
    float factor = 0;
    if (r->status != TDM_OK) return;
    /* A file without the type but with a factor means linear scaling; `scale_linear` is the key's
     * older name. */
    read_float(r, "rope.scale_linear", LLM_GGUF_OPTIONAL, 0, 1e6f, &factor);
    read_float(r, "rope.scaling.factor", LLM_GGUF_OPTIONAL, 0, 1e6f, &factor);
    key_name(r, "rope.scaling.type", name);
    if (r->status == TDM_OK)
        r->status = llm_gguf_get_str(r->gguf, name, LLM_GGUF_OPTIONAL, &type, r->err);
    read_int(r, "rope.scaling.original_context_length", LLM_GGUF_OPTIONAL, 1, LLM_MAX_CTX,
             &h->rope.n_ctx_orig);
    read_float(r, "rope.scaling.attn_factor", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.attn_factor);
    read_float(r, "rope.scaling.yarn_attn_factor", LLM_GGUF_OPTIONAL, 0, 1e6f,
               &h->rope.attn_factor);
    read_float(r, "rope.scaling.yarn_beta_fast", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.beta_fast);
    read_float(r, "rope.scaling.yarn_beta_slow", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.beta_slow);
    if (r->status != TDM_OK) return;
    if (llm_gguf_str_equals(type, "none")) {
        h->rope_scaling = LLM_ROPE_SCALING_NONE;
    } else if (llm_gguf_str_equals(type, "linear") || llm_gguf_str_equals(type, "yarn")) {
        bool is_yarn = llm_gguf_str_equals(type, "yarn");
        if (factor == 0 && !is_yarn) return; /* the default type without a factor: no scaling */
        h->rope_scaling = is_yarn ? LLM_ROPE_SCALING_YARN : LLM_ROPE_SCALING_LINEAR;
        h->rope.freq_scale = factor == 0 ? 1.0f : 1.0f / factor;
        h->rope.ext_factor = is_yarn ? 1.0f : 0.0f;
        if (is_yarn)
            read_float(r, "rope.scaling.yarn_ext_factor", LLM_GGUF_OPTIONAL, 0, 1,
                       &h->rope.ext_factor);
    } else {
        r->status =
            tdm_fail(r->err, TDM_UNSUPPORTED,
                     "%s: RoPE scaling '%.*s' is not supported; none, linear and yarn are",
                     llm_gguf_name(r->gguf), (int)(type.len < 40 ? type.len : 40), type.ptr);
    }
}

static void read_heads(key_reader *r, llm_hparams *h) {
    read_each(r, "attention.head_count", h->n_layer, MAX_WIDTH, &h->n_head);
    h->n_head_kv = h->n_head;
    read_each(r, "attention.head_count_kv", h->n_layer, MAX_WIDTH, &h->n_head_kv);
    if (r->status != TDM_OK) return;
    if (h->n_head % h->n_head_kv != 0) {
        r->status =
            tdm_fail(r->err, TDM_DATA_LOSS, "%s: %d heads cannot share %d key/value heads evenly",
                     llm_gguf_name(r->gguf), h->n_head, h->n_head_kv);
        return;
    }
    h->head_dim_k = h->n_embd / h->n_head;
    h->head_dim_v = h->head_dim_k;
    read_int(r, "attention.key_length", LLM_GGUF_OPTIONAL, 1, 65536, &h->head_dim_k);
    read_int(r, "attention.value_length", LLM_GGUF_OPTIONAL, 1, 65536, &h->head_dim_v);
    if (r->status == TDM_OK && h->head_dim_k < 1)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS, "%s: %d heads do not fit a width of %d",
                             llm_gguf_name(r->gguf), h->n_head, h->n_embd);
    int64_t width =
        (int64_t)h->n_head * (h->head_dim_k > h->head_dim_v ? h->head_dim_k : h->head_dim_v);
    if (r->status == TDM_OK && width > INT32_MAX)
        r->status = tdm_fail(
            r->err, TDM_DATA_LOSS, "%s: %d heads of %d are %lld wide; fewer than 2^31 is possible",
            llm_gguf_name(r->gguf), h->n_head, (int32_t)(width / h->n_head), (long long)width);
    read_float(r, "attention.scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->attention_scale);
}

static void read_rope(key_reader *r, llm_hparams *h) {
    h->rope.freq_base = 10000.0f;
    h->rope.freq_scale = 1.0f;
    h->rope.attn_factor = 1.0f;
    h->rope.beta_fast = 32.0f;
    h->rope.beta_slow = 1.0f;
    h->rope.n_ctx_orig = h->n_ctx_train;
    h->rope.n_rot = h->head_dim_k;
    read_float(r, "rope.freq_base", LLM_GGUF_OPTIONAL, 1e-3f, 1e12f, &h->rope.freq_base);
    read_int(r, "rope.dimension_count", LLM_GGUF_OPTIONAL, 0, h->head_dim_k, &h->rope.n_rot);
    if (r->status == TDM_OK && h->rope.n_rot % 2 != 0)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.rope.dimension_count' is %d; it must be even",
                             llm_gguf_name(r->gguf), r->arch, h->rope.n_rot);
    read_rope_scaling(r, h);
}

tdm_status llm_hparams_read(const llm_gguf *gguf, llm_hparams *hparams_out, tdm_error *err) {
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

    key_reader r = {gguf, h.arch, err, TDM_OK};
    read_int(&r, "block_count", LLM_GGUF_REQUIRED, 1, LLM_MAX_LAYERS, &h.n_layer);
    read_int(&r, "embedding_length", LLM_GGUF_REQUIRED, 1, MAX_WIDTH, &h.n_embd);
    read_int(&r, "context_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_CTX, &h.n_ctx_train);
    if (r.status == TDM_OK) read_each(&r, "feed_forward_length", h.n_layer, MAX_WIDTH, &h.n_ff);
    if (r.status == TDM_OK) read_heads(&r, &h);
    read_float(&r, "attention.layer_norm_rms_epsilon", LLM_GGUF_REQUIRED, 0, 1, &h.norm_eps);
    read_int(&r, "expert_count", LLM_GGUF_OPTIONAL, 0, 65536, &h.n_expert);
    if (h.n_expert > 0)
        read_int(&r, "expert_used_count", LLM_GGUF_REQUIRED, 1, h.n_expert, &h.n_expert_used);
    if (r.status == TDM_OK) read_rope(&r, &h);
    if (r.status != TDM_OK) return r.status;

    const llm_gguf_tensor *embd = llm_gguf_tensor_find(gguf, "token_embd.weight");
    if (embd == NULL)
        return tdm_fail(err, TDM_NOT_FOUND,
                        "%s: tensor 'token_embd.weight' is missing; this file holds no whole model",
                        llm_gguf_name(gguf));
    if (embd->ne[1] < 1 || embd->ne[1] > MAX_VOCAB)
        return tdm_fail(err, TDM_DATA_LOSS, "%s: tensor 'token_embd.weight' has %lld rows",
                        llm_gguf_name(gguf), (long long)embd->ne[1]);
    h.n_vocab = (int32_t)embd->ne[1];
    *hparams_out = h;
    return TDM_OK;
}
