/* SPDX-License-Identifier: MIT
 *
 * layer_spec.c: resolves what each layer of a model consists of (layer_spec.h).
 */
#include "llm/arch/layer_spec.h"

#include <string.h>

#include "llm/arch/arch.h"
#include "llm/arch/key_reader.h"

bool llm_layer_has(const llm_gguf *gguf, llm_role role, int32_t layer) {
    return llm_role_tensor(gguf, role, layer) != NULL;
}

/* Whether the file has any of these tensors. Where it has some of them only, declaring the layer
 * fails. */
static bool has_any(const llm_gguf *gguf, const llm_role *roles, int32_t layer) {
    for (int32_t i = 0; roles[i] != LLM_ROLE_NONE; i++)
        if (llm_layer_has(gguf, roles[i], layer)) return true;
    return false;
}

static void channel_fill(const llm_gguf *gguf, const llm_arch *arch, const llm_hparams *h,
                         int32_t layer, llm_layer_spec *spec) {
    static const llm_role routed[] = {LLM_ROLE_FFN_ROUTER,       LLM_ROLE_FFN_GATE_EXPS,
                                      LLM_ROLE_FFN_UP_EXPS,      LLM_ROLE_FFN_DOWN_EXPS,
                                      LLM_ROLE_FFN_GATE_UP_EXPS, LLM_ROLE_NONE};
    static const llm_role shared[] = {LLM_ROLE_FFN_GATE_SHARED, LLM_ROLE_FFN_UP_SHARED,
                                      LLM_ROLE_FFN_DOWN_SHARED, LLM_ROLE_NONE};
    bool has_experts = h->n_expert > 0 && layer >= h->n_layer_dense && has_any(gguf, routed, layer);
    bool has_dense =
        !has_experts || (arch->both_scale != 0 && llm_layer_has(gguf, LLM_ROLE_FFN_UP, layer));
    /* Layers of an architecture with recurrent layers may have no channel block. */
    if ((arch->keys & LLM_KEY_RECURRENT) != 0 && arch->ffn != LLM_FFN_SHIFTED &&
        !llm_layer_has(gguf, LLM_ROLE_FFN_UP, layer) &&
        !llm_layer_has(gguf, LLM_ROLE_FFN_DOWN, layer))
        has_dense = false;
    spec->n_ff = has_dense ? h->n_ff : 0;
    spec->n_ff_expert = has_experts ? h->n_ff_expert : 0;
    spec->n_ff_shared = has_experts && has_any(gguf, shared, layer) ? h->n_ff_shared : 0;
    spec->glu = arch->glu;
}

/* Layers without a channel block are in architectures with recurrent layers, and in those with
 * counts of each layer. Blocks of the other forms of a stream, and parallel ones, always have both. */
static tdm_status channel_check(const llm_gguf *gguf, const llm_arch *arch, int32_t layer,
                                const llm_layer_spec *s, tdm_error *err) {
    const bool may_lack = (arch->keys & (LLM_KEY_RECURRENT | LLM_KEY_PER_LAYER)) != 0 &&
                          arch->stream == LLM_STREAM_ONE && !s->is_parallel;
    if (may_lack || llm_layer_has_channel(s)) return TDM_OK;
    return tdm_fail(err, TDM_NOT_FOUND,
                    "%s: layer %d has no feed-forward block: its tensors 'blk.%d.ffn_*' are "
                    "missing; the file is incomplete or of another architecture",
                    llm_gguf_name(gguf), layer, layer);
}

/* Whether a layer has a window, where one of every `period` layers has none; period 0: all have
 * one. */
static bool is_in_window(const llm_arch *arch, int32_t period, int32_t layer) {
    if (period == 0) return true;
    return arch->is_window_last ? layer % period != 0 : layer % period < period - 1;
}

static bool has_window(const llm_arch *arch, const llm_hparams *h, const uint32_t *pattern,
                       int32_t layer) {
    if (h->window == 0) return false;
    if (pattern != NULL) return pattern[layer] != 0;
    return is_in_window(arch, arch->window_period, layer);
}

/* The pattern of the file: a flag for each layer, or the period. Sets *pattern_out to NULL if the
 * file has none. */
static tdm_status pattern_read(const llm_gguf *gguf, const llm_arch *arch, const llm_hparams *h,
                               uint32_t *flags, const uint32_t **pattern_out, tdm_error *err) {
    char name[96];
    llm_key_reader r = {gguf, h->arch, err, TDM_OK};
    *pattern_out = NULL;
    llm_key_name(&r, "attention.sliding_window_pattern", name);
    const llm_gguf_key *key = llm_gguf_key_find(gguf, name);
    if ((arch->keys & LLM_KEY_WINDOW) == 0 || key == NULL) return TDM_OK;
    *pattern_out = flags;
    if (key->type == LLM_GGUF_ARRAY) {
        /* Files with layers that draft tokens may have elements for them, too. */
        const int32_t n_block = h->n_layer + h->n_layer_draft;
        const int32_t n_main = h->layer_first > 0 ? h->layer_first : h->n_layer;
        const int32_t n = key->array.n == (uint64_t)n_block ? n_block : n_main;
        if (key->array.type != LLM_GGUF_BOOL)
            return llm_gguf_get_u32_each(gguf, name, LLM_GGUF_REQUIRED, (uint32_t)n, flags, err);
        if (key->array.n != (uint64_t)n)
            return tdm_fail(err, TDM_DATA_LOSS, "%s: key '%s' has %llu elements for %d layers",
                            llm_gguf_name(gguf), name, (unsigned long long)key->array.n, n_main);
        for (int32_t i = 0; i < n; i++)
            flags[i] = llm_gguf_array_i64(&key->array, (uint64_t)i) != 0;
        return TDM_OK;
    }
    int32_t period = 0;
    llm_key_int(&r, "attention.sliding_window_pattern", LLM_GGUF_REQUIRED, 0, LLM_MAX_LAYERS,
                &period);
    for (int32_t i = 0; i < h->n_layer; i++) flags[i] = is_in_window(arch, period, i);
    return r.status;
}

/* Which layers have an index of sparse attention, by the key of the file: a flag for all or for
 * each that does not draft. Without the key all have one. */
static tdm_status index_read(const llm_gguf *gguf, const llm_arch *arch, const llm_hparams *h,
                             uint32_t *flags, tdm_error *err) {
    char name[96];
    llm_key_reader r = {gguf, h->arch, err, TDM_OK};
    const int32_t n_main = h->layer_first > 0 ? h->layer_first : h->n_layer;
    llm_key_name(&r, "attention.indexer.types", name);
    for (int32_t i = 0; i < h->n_layer; i++) flags[i] = 1;
    if ((arch->keys & LLM_KEY_INDEX_TYPES) == 0) return TDM_OK;
    for (int32_t i = n_main; i < h->n_layer; i++) flags[i] = 0;
    return llm_gguf_get_u32_each(gguf, name, LLM_GGUF_OPTIONAL, (uint32_t)n_main, flags, err);
}

/* Layers with a window attend to all tokens in it. A layer that drafts without an index of its own
 * attends to all tokens before it. */
static llm_index_kind index_of(const llm_hparams *h, const uint32_t *flags, int32_t layer,
                               const llm_layer_spec *s) {
    const llm_mixer mixer = h->select_block > 0 ? LLM_MIXER_ATTENTION : LLM_MIXER_LATENT;
    if (h->n_index_head == 0 || s->mixer != mixer || s->window > 0) return LLM_INDEX_NONE;
    if (flags[layer] != 0) return LLM_INDEX_OWN;
    const bool is_draft = h->layer_first > 0 && layer >= h->layer_first;
    return is_draft ? LLM_INDEX_NONE : LLM_INDEX_SHARED;
}

/* The sizes of a layer with recurrent states. */
static tdm_status recurrent_fill(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                                 llm_layer_spec *s, tdm_error *err) {
    llm_recurrent_spec *r = &s->recurrent;
    bool is_sound = h->ssm_state > 0 && h->ssm_rank > 0 && h->ssm_inner > 0;
    if (r->kind == LLM_MIXER_ATTENTION || r->kind == LLM_MIXER_COMPRESSED) return TDM_OK;
    r->n_conv = h->n_conv;
    if (r->kind == LLM_MIXER_SHORT_CONV) return TDM_OK;
    r->k_len = h->ssm_state;
    if (r->kind == LLM_MIXER_MAMBA) {
        r->n_head_k = r->v_len = 1;
        r->n_head_v = h->ssm_inner;
        r->rank = h->ssm_rank;
    } else if (is_sound) {
        r->n_head_k = r->kind == LLM_MIXER_MAMBA_HEADS ? 1 : h->ssm_group;
        r->rank = h->ssm_step_row;
        r->n_head_v = h->ssm_rank;
        r->v_len = h->ssm_inner / h->ssm_rank;
        is_sound = r->n_head_k > 0 && r->n_head_v % r->n_head_k == 0 &&
                   h->ssm_inner % h->ssm_rank == 0 &&
                   (r->kind == LLM_MIXER_MAMBA2 || r->kind == LLM_MIXER_MAMBA_HEADS ||
                    r->v_len == r->k_len);
    }
    if (is_sound && (int64_t)r->k_len * r->v_len <= LLM_MAX_HEAD_DIM) return TDM_OK;
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: layer %d: keys '%s.ssm.*' say %d elements, %d heads, %d groups, states of "
                    "%d, which do not fit together",
                    llm_gguf_name(gguf), layer, h->arch, h->ssm_inner, h->ssm_rank, h->ssm_group,
                    h->ssm_state);
}

/* Counts of each layer. */
typedef struct layer_counts {
    uint32_t n_head[LLM_MAX_LAYERS], n_head_kv[LLM_MAX_LAYERS], n_ff[LLM_MAX_LAYERS];
} layer_counts;

typedef struct expert_counts {
    uint32_t n_used[LLM_MAX_LAYERS], n_ff[LLM_MAX_LAYERS];
} expert_counts;

static tdm_status counts_read(const llm_gguf *gguf, const llm_hparams *h, layer_counts *out,
                              tdm_error *err) {
    static const char *const suffixes[3] = {"attention.head_count", "attention.head_count_kv",
                                            "feed_forward_length"};
    uint32_t *const each[3] = {out->n_head, out->n_head_kv, out->n_ff};
    llm_key_reader r = {gguf, h->arch, err, TDM_OK};
    const uint32_t n = (uint32_t)(h->n_layer + h->n_layer_draft);
    for (int i = 0; i < 3 && r.status == TDM_OK; i++) {
        char name[96];
        llm_key_name(&r, suffixes[i], name);
        if (i == 1) memcpy(out->n_head_kv, out->n_head, sizeof out->n_head);
        r.status = llm_gguf_get_u32_each(gguf, name, i == 1 ? LLM_GGUF_OPTIONAL : LLM_GGUF_REQUIRED,
                                         n, each[i], err);
    }
    return r.status;
}

/* Layers with experts may have them in other numbers and widths. */
static tdm_status experts_read(const llm_gguf *gguf, const llm_arch *arch, const llm_hparams *h,
                               expert_counts *out, tdm_error *err) {
    static const char *const suffixes[2] = {"expert_used_count", "expert_feed_forward_length"};
    uint32_t *const each[2] = {out->n_used, out->n_ff};
    llm_key_reader r = {gguf, h->arch, err, TDM_OK};
    const uint32_t n = (uint32_t)(h->n_layer + h->n_layer_draft);
    for (uint32_t l = 0; l < n; l++) {
        out->n_used[l] = (uint32_t)h->n_expert_used;
        out->n_ff[l] = (uint32_t)h->n_ff_expert;
    }
    for (int i = 0; i < 2 && r.status == TDM_OK; i++) {
        char name[96];
        llm_key_name(&r, suffixes[i], name);
        if (i == 1 && (arch->keys & LLM_KEY_EXPERT_FF) == 0) continue;
        if (llm_key_is_each(&r, suffixes[i]))
            r.status = llm_gguf_get_u32_each(gguf, name, LLM_GGUF_REQUIRED, n, each[i], err);
    }
    return r.status;
}

static tdm_status experts_apply(const llm_gguf *gguf, const llm_hparams *h, const expert_counts *c,
                                int32_t layer, llm_layer_spec *s, tdm_error *err) {
    if (s->n_ff_expert == 0) return TDM_OK;
    s->n_expert_used = (int32_t)c->n_used[layer];
    s->n_ff_expert = (int32_t)c->n_ff[layer];
    if (s->n_expert_used > 0 && s->n_ff_expert > 0) return TDM_OK;
    return tdm_fail(
        err, TDM_DATA_LOSS,
        "%s: layer %d has a router, but keys '%s.expert_used_count' and "
        "'expert_feed_forward_length' say %d experts of %d columns; the file is damaged",
        llm_gguf_name(gguf), layer, h->arch, s->n_expert_used, s->n_ff_expert);
}

/* A layer with 0 heads of queries has no mixer. One with 0 heads of keys has a matrix instead of
 * attention. */
static tdm_status counts_apply(const llm_gguf *gguf, const llm_hparams *h, const layer_counts *c,
                               int32_t layer, llm_layer_spec *s, tdm_error *err) {
    s->n_head = (int32_t)c->n_head[layer];
    s->n_head_kv = (int32_t)c->n_head_kv[layer];
    if (s->n_ff > 0) s->n_ff = (int32_t)c->n_ff[layer];
    if (s->n_head == 0) {
        s->mixer = LLM_MIXER_NONE;
        s->norm_mixer = LLM_ROLE_NONE;
    } else if (s->n_head_kv == 0) {
        s->mixer = LLM_MIXER_LINEAR;
    } else if (s->n_head % s->n_head_kv != 0) {
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: layer %d: %d heads are not a multiple of %d key/value heads (keys "
                        "'%s.attention.head_count' and 'head_count_kv')",
                        llm_gguf_name(gguf), layer, s->n_head, s->n_head_kv, h->arch);
    }
    return TDM_OK;
}

/* The last layers read the cache of the last one before them that has the same window. */
static tdm_status share_fill(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                             llm_layer_spec *specs, tdm_error *err) {
    llm_layer_spec *s = &specs[layer];
    const int32_t first = h->n_layer - h->n_layer_shared;
    int32_t from = first - 1;
    if (layer < first) return TDM_OK;
    while (from >= 0 && (specs[from].window > 0) != (s->window > 0)) from--;
    const llm_layer_spec *other = from >= 0 ? &specs[from] : NULL;
    s->kv_from_layer = from;
    if (other != NULL && other->n_head == s->n_head && other->n_head_kv == s->n_head_kv &&
        other->k_len == s->k_len && other->v_len == s->v_len)
        return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: key '%s.attention.shared_kv_layers' is %d, but layer %d has no layer "
                    "before those with the same window and heads, whose cache it could read",
                    llm_gguf_name(gguf), h->arch, h->n_layer_shared, layer);
}

/* What an architecture gives all its layers. */
static llm_layer_spec spec_initial(const llm_arch *arch, const llm_hparams *h, int32_t layer) {
    const bool is_latent = arch->mixer == LLM_MIXER_LATENT;
    return (llm_layer_spec){
        .mixer = arch->mixer,
        .norm_mixer = arch->norm_mixer,
        .norm_mixer_post = arch->norm_mixer_post,
        .norm_channel = arch->norm_channel,
        .norm_channel_post = arch->norm_channel_post,
        .norm_q = arch->norm_q,
        .norm_k = arch->norm_k,
        .is_parallel = h->is_parallel,
        .ffn = arch->ffn,
        .act = arch->act,
        .n_head = h->n_head,
        .n_head_kv = h->n_head_kv,
        .q_len = is_latent ? h->head_dim_q : h->head_dim_k,
        .k_len = h->head_dim_k,
        .v_len = h->head_dim_v,
        .o_len = is_latent ? h->head_dim_o : h->head_dim_v,
        .rope = h->rope,
        .n_expert_used = h->n_expert_used,
        .has_rope_factors = true,
        .has_bare_norm_k = arch->has_bare_norm_k,
        .has_temperature = h->temperature_scale != 0,
        .is_causal = !h->is_bidirectional && layer >= h->n_layer_encoder,
        .has_bare_norm_v = arch->has_bare_norm_v,
        .kv_from_layer = -1,
        .weight_layer = layer,
    };
}

/* The window of a layer that has one, with the heads and the rotation of such layers. */
static void window_fill(const llm_arch *arch, const llm_hparams *h, llm_layer_spec *s) {
    s->window = h->window;
    s->window_kind = arch->window_kind;
    if (h->window_freq_base > 0) s->rope.freq_base = h->window_freq_base;
    if (arch->is_window_unscaled) {
        s->rope.freq_scale = 1;
        s->rope.ext_factor = 0;
        s->rope.attn_factor = 1;
    }
    if (h->window_head_dim > 0) s->q_len = s->k_len = s->v_len = s->o_len = h->window_head_dim;
    if (h->window_n_rot > 0) s->rope.n_rot = h->window_n_rot;
}

/* Whether the layer has the architecture's recurrent mixer: by its tensors in the file. */
static bool is_recurrent(const llm_gguf *gguf, const llm_arch *arch, int32_t layer) {
    return arch->recurrent_mixer != LLM_MIXER_ATTENTION &&
           (llm_layer_has(gguf, LLM_ROLE_DELTA_CONV, layer) ||
            llm_layer_has(gguf, LLM_ROLE_SHORT_CONV, layer) ||
            llm_layer_has(gguf, LLM_ROLE_KDA_CONV_Q, layer) ||
            llm_layer_has(gguf, LLM_ROLE_RWKV_LERP, layer) ||
            llm_layer_has(gguf, LLM_ROLE_RWKV_LERP_X, layer) ||
            (arch->recurrent_mixer == LLM_MIXER_LIGHTNING &&
             llm_layer_has(gguf, LLM_ROLE_LIGHTNING_NORM, layer)));
}

tdm_status llm_layer_specs_read(const llm_gguf *gguf, const llm_arch *arch, const llm_hparams *h,
                                llm_layer_spec *specs_out, tdm_error *err) {
    uint32_t flags[LLM_MAX_LAYERS] = {0}, has_index[LLM_MAX_LAYERS] = {0};
    const uint32_t *pattern;
    layer_counts counts;
    expert_counts experts;
    const bool is_per_layer = (arch->keys & LLM_KEY_PER_LAYER) != 0;
    const llm_key_reader keys = {gguf, h->arch, err, TDM_OK};
    const bool has_each = h->n_expert > 0 && (llm_key_is_each(&keys, "expert_used_count") ||
                                              llm_key_is_each(&keys, "expert_feed_forward_length"));
    bool is_indexed = false;
    tdm_status status = pattern_read(gguf, arch, h, flags, &pattern, err);
    if (status == TDM_OK && is_per_layer) status = counts_read(gguf, h, &counts, err);
    if (status == TDM_OK && has_each) status = experts_read(gguf, arch, h, &experts, err);
    if (status == TDM_OK && h->n_index_head > 0) status = index_read(gguf, arch, h, has_index, err);
    if (status != TDM_OK) return status;
    for (int32_t layer = 0; layer < h->layer_first; layer++)
        specs_out[layer] = (llm_layer_spec){.mixer = LLM_MIXER_NONE, .weight_layer = layer};
    for (int32_t layer = h->layer_first; layer < h->n_layer; layer++) {
        llm_layer_spec *s = &specs_out[layer];
        *s = spec_initial(arch, h, layer);
        channel_fill(gguf, arch, h, layer, s);
        if (is_per_layer) status = counts_apply(gguf, h, &counts, layer, s, err);
        if (status == TDM_OK && has_each) status = experts_apply(gguf, h, &experts, layer, s, err);
        if (status != TDM_OK) return status;
        if (has_window(arch, h, pattern, layer)) window_fill(arch, h, s);
        if (is_recurrent(gguf, arch, layer)) {
            s->recurrent.kind = arch->recurrent_mixer;
            if (!arch->is_recurrent_beside) s->mixer = arch->recurrent_mixer;
        }
        s->index = index_of(h, has_index, layer, s);
        if (arch->layer != NULL) arch->layer(gguf, h, layer, s);
        if (s->index == LLM_INDEX_SHARED && !is_indexed)
            return tdm_fail(err, TDM_DATA_LOSS,
                            "%s: key '%s.attention.indexer.types' says that layer %d shares an "
                            "index, but no layer before it has one",
                            llm_gguf_name(gguf), h->arch, layer);
        is_indexed = is_indexed || s->index == LLM_INDEX_OWN;
        status = channel_check(gguf, arch, layer, s, err);
        if (status == TDM_OK) status = recurrent_fill(gguf, h, layer, s, err);
        if (status == TDM_OK && h->n_layer_shared > 0)
            status = share_fill(gguf, h, layer, specs_out, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}
