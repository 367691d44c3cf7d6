/* SPDX-License-Identifier: MIT
 *
 * hparams.c: see hparams.h. Key names are those of the GGUF specification (ggml-org/ggml,
 * docs/gguf.md).
 */
#include "llm/arch/hparams.h"

#include <math.h>
#include <string.h>

#include "llm/arch/key_reader.h"

static void copy_text(char *dst, size_t dst_size, llm_gguf_str text) {
    size_t len = text.len < dst_size - 1 ? text.len : dst_size - 1;
    memcpy(dst, text.ptr, len);
    dst[len] = 0;
}

static void read_rope_scaling(llm_key_reader *r, llm_hparams *h) {
    char name[96];
    llm_gguf_str type = {"linear", 6};
    float factor = 0;
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
    llm_key_float(r, "rope.scaling.yarn_attn_factor", LLM_GGUF_OPTIONAL, 0, 1e6f,
                  &h->rope.attn_factor);
    llm_key_float(r, "rope.scaling.yarn_beta_fast", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.beta_fast);
    llm_key_float(r, "rope.scaling.yarn_beta_slow", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->rope.beta_slow);
    if (r->status != TDM_OK) return;
    if (llm_gguf_str_equals(type, "none")) {
        h->rope_scaling = LLM_ROPE_SCALING_NONE;
    } else if (llm_gguf_str_equals(type, "linear") || llm_gguf_str_equals(type, "yarn")) {
        bool is_yarn = llm_gguf_str_equals(type, "yarn");
        if (factor == 0 && !is_yarn) return; /* neither type nor factor: no scaling */
        h->rope_scaling = is_yarn ? LLM_ROPE_SCALING_YARN : LLM_ROPE_SCALING_LINEAR;
        h->rope.freq_scale = factor == 0 ? 1.0f : 1.0f / factor;
        h->rope.ext_factor = is_yarn ? 1.0f : 0.0f;
        float ext_factor = -1;
        if (is_yarn)
            llm_key_float(r, "rope.scaling.yarn_ext_factor", LLM_GGUF_OPTIONAL, -1, 1, &ext_factor);
        if (ext_factor >= 0) h->rope.ext_factor = ext_factor; /* negative means not set */
    } else {
        r->status =
            tdm_fail(r->err, TDM_UNSUPPORTED,
                     "%s: RoPE scaling '%.*s' is not supported; none, linear and yarn are",
                     llm_gguf_name(r->gguf), (int)(type.len < 40 ? type.len : 40), type.ptr);
    }
}

static void read_heads(llm_key_reader *r, llm_hparams *h) {
    llm_key_each(r, "attention.head_count", h->n_layer, LLM_MAX_WIDTH, &h->n_head);
    h->n_head_kv = h->n_head;
    llm_key_each(r, "attention.head_count_kv", h->n_layer, LLM_MAX_WIDTH, &h->n_head_kv);
    if (r->status != TDM_OK) return;
    if (h->n_head % h->n_head_kv != 0) {
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
    llm_key_float(r, "attention.scale", LLM_GGUF_OPTIONAL, 0, 1e6f, &h->attention_scale);
}

static void read_rope(llm_key_reader *r, llm_hparams *h) {
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

    llm_key_reader r = {gguf, h.arch, err, TDM_OK};
    llm_key_int(&r, "block_count", LLM_GGUF_REQUIRED, 1, LLM_MAX_LAYERS, &h.n_layer);
    llm_key_int(&r, "embedding_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH, &h.n_embd);
    llm_key_int(&r, "context_length", LLM_GGUF_REQUIRED, 1, LLM_MAX_CTX, &h.n_ctx_train);
    if (r.status == TDM_OK)
        llm_key_each(&r, "feed_forward_length", h.n_layer, LLM_MAX_WIDTH, &h.n_ff);
    if (r.status == TDM_OK) read_heads(&r, &h);
    llm_key_float(&r, "attention.layer_norm_rms_epsilon", LLM_GGUF_REQUIRED, 0, 1, &h.norm_eps);
    llm_key_int(&r, "expert_count", LLM_GGUF_OPTIONAL, 0, 65536, &h.n_expert);
    if (h.n_expert > 0)
        llm_key_int(&r, "expert_used_count", LLM_GGUF_REQUIRED, 1, h.n_expert, &h.n_expert_used);
    h.route.n_used = h.n_expert_used;
    h.route.score = TDM_ROUTE_SOFTMAX;
    h.route.normalize = 1;
    if (r.status == TDM_OK) read_rope(&r, &h);
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
    *hparams_out = h;
    return TDM_OK;
}
