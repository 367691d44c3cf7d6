/* SPDX-License-Identifier: MIT
 *
 * deepseek4.c: DeepSeek V4: compressed attention, several residual streams that a doubly stochastic
 * matrix mixes, and experts that the first layers choose by the token alone. Earlier DeepSeek
 * models: deepseek.c.
 */
#include <math.h>

#include "llm/arch/families.h"

static const char *const limit_keys[2] = {"swiglu_clamp_exp", "swiglu_clamp_shexp"};

/* Runs of this length overlap, and have an index. */
enum { SHORT_RUN = 4, LONG_RUN = 128 };

static tdm_status damaged(const llm_key_reader *r, const char *what) {
    return tdm_fail(r->err, TDM_DATA_LOSS, "%s: %s", llm_gguf_name(r->gguf), what);
}

/* Tokens of a run of each layer; -1 = the key has no number for it. */
static int64_t run_of(const llm_gguf *gguf, const char *arch, int32_t layer) {
    char name[96];
    const llm_key_reader r = {.gguf = gguf, .arch = arch};
    llm_key_name(&r, "attention.compress_ratios", name);
    const llm_gguf_key *key = llm_gguf_key_find(gguf, name);
    if (key == NULL || key->type != LLM_GGUF_ARRAY || key->array.n <= (uint64_t)layer) return -1;
    return llm_gguf_array_i64(&key->array, (uint64_t)layer);
}

static tdm_status runs_check(const llm_key_reader *r, const llm_hparams *h) {
    for (int32_t i = 0; i < h->n_layer; i++) {
        const int64_t run = run_of(r->gguf, r->arch, i);
        if (run == 0 || run == SHORT_RUN || run == LONG_RUN) continue;
        return run < 0
                   ? tdm_fail(r->err, TDM_DATA_LOSS,
                              "%s: key '%s.attention.compress_ratios' has no number for layer %d",
                              llm_gguf_name(r->gguf), r->arch, i)
                   : tdm_fail(r->err, TDM_UNSUPPORTED,
                              "%s: key '%s.attention.compress_ratios' is %lld for layer %d; 0, "
                              "%d and %d are supported",
                              llm_gguf_name(r->gguf), r->arch, (long long)run, i, (int)SHORT_RUN,
                              (int)LONG_RUN);
    }
    return TDM_OK;
}

/* The experts of each token id in a layer, i32 [n_expert_used, n_vocab]; NULL = the file has no
 * such table. */
static const llm_gguf_tensor *table_of(const llm_gguf *gguf, int32_t layer) {
    char name[LLM_TENSOR_NAME_SIZE];
    snprintf(name, sizeof name, "blk.%d.ffn_gate_tid2eid.weight", layer);
    return llm_gguf_tensor_find(gguf, name);
}

/* The tables of experts by token id are in the file; contexts read them there. */
static tdm_status tables_check(const llm_key_reader *r, const llm_hparams *h) {
    const llm_gguf_tensor *embd = llm_role_tensor(r->gguf, LLM_ROLE_TOKEN_EMBD, -1);
    const int64_t n_vocab = embd != NULL ? embd->ne[1] : 0;
    for (int32_t layer = 0; layer < h->n_layer_given; layer++) {
        const llm_gguf_tensor *t = table_of(r->gguf, layer);
        if (t == NULL)
            return tdm_fail(r->err, TDM_NOT_FOUND,
                            "%s: tensor 'blk.%d.ffn_gate_tid2eid.weight' is missing: key "
                            "'%s.hash_layer_count' is %d",
                            llm_gguf_name(r->gguf), layer, r->arch, h->n_layer_given);
        if (t->type != TDM_TYPE_I32 || t->ne[0] != h->n_expert_used || t->ne[1] != n_vocab ||
            t->ne[2] != 1)
            return tdm_fail(r->err, TDM_DATA_LOSS,
                            "%s: tensor '%s' is %s [%lld, %lld], expected i32 [%d, %lld]",
                            llm_gguf_name(r->gguf), t->name, tdm_type_name(t->type),
                            (long long)t->ne[0], (long long)t->ne[1], h->n_expert_used,
                            (long long)n_vocab);
        const int32_t *ids = t->data;
        for (int64_t i = 0; i < t->ne[0] * t->ne[1]; i++)
            if (ids[i] < 0 || ids[i] >= h->n_expert)
                return tdm_fail(r->err, TDM_DATA_LOSS,
                                "%s: tensor '%s' names expert %d of %d for token %lld",
                                llm_gguf_name(r->gguf), t->name, ids[i], h->n_expert,
                                (long long)(i / t->ne[0]));
    }
    return TDM_OK;
}

static void deepseek4_read(llm_key_reader *r, llm_hparams *h) {
    int32_t n_group = 0;
    if (r->status == TDM_OK && h->is_bidirectional)
        r->status = tdm_fail(r->err, TDM_UNSUPPORTED,
                             "%s: key '%s.attention.causal' is false: rows that stand for runs of "
                             "tokens are not supported where tokens see later ones; use a model "
                             "that is causal",
                             llm_gguf_name(r->gguf), r->arch);
    llm_key_int(r, "attention.q_lora_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH, &h->n_lora_q);
    llm_key_int(r, "attention.output_group_count", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH, &n_group);
    llm_key_int(r, "attention.output_lora_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH,
                &h->n_lora_out);
    llm_key_int(r, "attention.sliding_window", LLM_GGUF_REQUIRED, 1, LLM_MAX_CTX, &h->window);
    llm_key_float(r, "attention.compress_rope_freq_base", LLM_GGUF_REQUIRED, 1e-3f, 1e12f,
                  &h->run_freq_base);
    llm_key_int(r, "hyper_connection.count", LLM_GGUF_REQUIRED, 2, TDM_MAX_SINKHORN, &h->n_stream);
    llm_key_int(r, "hyper_connection.sinkhorn_iterations", LLM_GGUF_REQUIRED, 1, 1 << 16,
                &h->n_sinkhorn);
    llm_key_float(r, "hyper_connection.epsilon", LLM_GGUF_REQUIRED, 0, 1, &h->stream_eps);
    llm_key_int(r, "hash_layer_count", LLM_GGUF_OPTIONAL, 0, h->n_layer - 1, &h->n_layer_given);
    h->stream_magnitude = 2;
    llm_index_read(r, h);
    for (int i = 0; i < 2; i++) llm_limits_check(r, h, limit_keys[i]);
    if (r->status == TDM_OK) r->status = runs_check(r, h);
    if (r->status == TDM_OK) r->status = tables_check(r, h);
    if (r->status != TDM_OK) return;
    h->n_out_group = n_group;
    h->rope.rope_offset = h->head_dim_k - h->rope.n_rot;
    h->index_rope_offset = h->index_len - h->rope.n_rot;
    if (h->n_head_kv != 1 || h->head_dim_k != h->head_dim_v)
        r->status = damaged(r, "keys 'attention.head_count_kv', 'key_length' and 'value_length': "
                               "one head must be key and value of all query heads");
    else if (h->n_head % n_group != 0)
        r->status = damaged(r, "key 'attention.output_group_count' does not divide "
                               "'attention.head_count'");
}

/* RoPE is scaled in layers with runs alone, and there without YaRN's factor of lengths. */
static void deepseek4_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                            llm_layer_spec *spec) {
    const int32_t run = (int32_t)run_of(gguf, h->arch, layer);
    spec->run_len = run;
    spec->has_run_overlap = run == SHORT_RUN;
    spec->index = run == SHORT_RUN ? LLM_INDEX_OWN : LLM_INDEX_NONE;
    spec->index_run = run == SHORT_RUN ? run : 0;
    spec->n_out_group = h->n_out_group;
    spec->window = h->window;
    spec->window_kind = TDM_WINDOW_SLIDING;
    if (layer < h->n_layer_given) spec->expert_table = table_of(gguf, layer)->data; /* checked */
    spec->glu.limit = llm_limit_of(gguf, h->arch, limit_keys[0], layer);
    /* Files may have one limit for both. */
    const bool has_own = llm_gguf_key_find(gguf, "deepseek4.swiglu_clamp_shexp") != NULL;
    spec->glu_dense.limit = llm_limit_of(gguf, h->arch, limit_keys[has_own ? 1 : 0], layer);
    spec->rope.attn_factor = 1;
    if (run == 0) {
        spec->rope.freq_scale = 1;
        spec->rope.ext_factor = 0;
        return;
    }
    spec->recurrent.kind = LLM_MIXER_COMPRESSED;
    spec->rope.freq_base = h->run_freq_base;
    if (spec->rope.ext_factor != 0)
        spec->rope.attn_factor = 1 / (1 + 0.1f * logf(1 / spec->rope.freq_scale));
}

const llm_arch llm_arch_deepseek4 = {
    .name = "deepseek4",
    .families = "DeepSeek V4",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_SELECT,
    LLM_PRE_NORMS,
    .mixer = LLM_MIXER_COMPRESSED,
    .stream = LLM_STREAM_HYPER,
    .act = TDM_ACT_SILU,
    .harmless = " ffn_gate_tid2eid.weight exp_probs_b_vl.bias ",
    .read = deepseek4_read,
    .layer = deepseek4_layer,
};
