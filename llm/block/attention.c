/* SPDX-License-Identifier: MIT
 *
 * attention.c: rotary attention with shared KV heads (block.h).
 *
 *   q, k, v = Wq x, Wk x, Wv x            apart, or rows of one matrix; biases are optional
 *   o = attention(rope(nq(q)), rope(nk(k)), v)     norms of queries and keys where there are any
 *   y = Wo (gate(x) * o)
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

static bool is_row_norm(llm_role role) {
    return role == LLM_ROLE_ATTN_Q_NORM_ROW || role == LLM_ROLE_ATTN_K_NORM_ROW;
}

/* The role of the layer's gate; LLM_ROLE_NONE = it has none that is a matrix of its own. */
static llm_role gate_role(const llm_declarer *d) {
    const llm_layer_spec *s = &d->model->specs[d->layer];
    const llm_gate gate = d->model->arch->gate;
    if (gate == LLM_GATE_ELEMENT) return LLM_ROLE_ATTN_GATE;
    if (gate == LLM_GATE_HEAD) return LLM_ROLE_ATTN_GATE_HEAD;
    if (gate != LLM_GATE_WIDTH) return LLM_ROLE_NONE;
    const llm_gguf_tensor *t = llm_role_tensor(d->model->gguf, LLM_ROLE_ATTN_GATE, d->layer);
    const bool is_wide = t != NULL && t->ne[1] == (int64_t)s->n_head * s->o_len;
    return is_wide ? LLM_ROLE_ATTN_GATE : LLM_ROLE_ATTN_GATE_HEAD;
}

void llm_declare_attention(llm_declarer *d) {
    const llm_arch *arch = d->model->arch;
    const bool has_keys = d->model->specs[d->layer].kv_from_layer < 0;
    /* A layer that reads the cache of another one may have keys and values in this matrix, too. */
    if (has_keys || !llm_layer_has(d->model->gguf, LLM_ROLE_ATTN_Q, d->layer))
        llm_declare(d, LLM_ROLE_ATTN_QKV, false);
    if (llm_declared(d, LLM_ROLE_ATTN_QKV) >= 0) {
        llm_declare(d, LLM_ROLE_ATTN_QKV_BIAS, false);
    } else {
        llm_declare(d, LLM_ROLE_ATTN_Q, true);
        llm_declare(d, LLM_ROLE_ATTN_Q_BIAS, false);
    }
    if (has_keys && llm_declared(d, LLM_ROLE_ATTN_QKV) < 0) {
        llm_declare(d, LLM_ROLE_ATTN_K, true);
        const bool has_v = llm_layer_has(d->model->gguf, LLM_ROLE_ATTN_V, d->layer);
        llm_declare(d, LLM_ROLE_ATTN_V, has_v || !arch->has_optional_v);
        llm_declare(d, LLM_ROLE_ATTN_K_BIAS, false);
        llm_declare(d, LLM_ROLE_ATTN_V_BIAS, false);
    }
    llm_declare_norm(d, d->model->specs[d->layer].norm_q);
    if (has_keys) llm_declare_norm(d, d->model->specs[d->layer].norm_k);
    if (d->model->specs[d->layer].index == LLM_INDEX_OWN) {
        if (d->model->specs[d->layer].index_run > 0)
            llm_declare_run_index(d);
        else
            llm_declare_block_index(d);
    }
    const llm_role gate = gate_role(d);
    if (gate != LLM_ROLE_NONE) llm_declare(d, gate, true);
    llm_declare(d, LLM_ROLE_ATTN_SINKS, false);
    if (d->model->hparams.n_distance_bucket > 0) llm_declare_distance_bias(d);
    llm_declare(d, LLM_ROLE_ATTN_OUT, true);
    if (arch->has_sub_norms) llm_declare_norm(d, LLM_ROLE_ATTN_SUB_NORM);
    llm_declare(d, LLM_ROLE_ATTN_OUT_BIAS, false);
}

/* The weight with factors of the layer's frequencies, for contexts of n_ctx tokens; -1 = none. */
static int32_t factor_weight(const llm_model *m, int32_t layer, int32_t n_ctx) {
    if (!m->specs[layer].has_rope_factors || m->specs[layer].rope.n_rot == 0) return -1;
    if (m->global[LLM_ROLE_ROPE_FREQS] >= 0) return m->global[LLM_ROLE_ROPE_FREQS];
    bool is_long = n_ctx > m->hparams.rope.n_ctx_orig;
    return m->global[is_long ? LLM_ROLE_ROPE_FACTORS_LONG : LLM_ROLE_ROPE_FACTORS_SHORT];
}

int32_t llm_build_rope_factors(llm_graph_builder *g, int32_t layer) {
    const int32_t n = g->model->specs[layer].rope.n_rot / 2;
    int32_t factor = llm_graph_weight(g, factor_weight(g->model, layer, g->cache->n_ctx));
    const int64_t *shape = factor >= 0 ? tdm_build_shape(g->b, factor) : NULL;
    return shape != NULL && shape[0] > n ? llm_build_columns(g, factor, 0, n) : factor;
}

int32_t llm_build_rotated(llm_graph_builder *g, int32_t layer, const tdm_rope_params *rope,
                          int32_t x, int32_t pos) {
    if (rope->n_rot == 0) return x;
    return tdm_build_rope(g->b, x, pos, llm_build_rope_factors(g, layer), rope);
}

typedef struct heads {
    int32_t q, k, v; /* [len, n_head, n_tok]; q -1 = not needed */
    int32_t gate;    /* of LLM_GATE_QUERY, like q; else -1 */
} heads;

static int32_t clamp(llm_graph_builder *g, int32_t x) {
    float most = g->model->hparams.clamp_qkv;
    return most > 0 ? tdm_build_clamp(g->b, x, -most, most) : x;
}

/* The norm of x [len * n, n_tok] or [len, n, n_tok], over rows or heads as the role says. */
static int32_t build_head_norm(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x) {
    const llm_norm norm = g->model->arch->norm_qk;
    if (role == LLM_ROLE_NONE || x < 0) return x;
    if (role != LLM_ROLE_ATTN_Q_NORM_EACH && role != LLM_ROLE_ATTN_K_NORM_EACH &&
        role != LLM_ROLE_ATTN_Q_GAIN)
        return llm_build_norm(g, layer, role, norm, x);
    int32_t weight = llm_graph_weight(g, g->model->layer[layer][role]);
    return tdm_build_mul(g->b, llm_build_norm(g, layer, LLM_ROLE_NONE, norm, x), weight);
}

/* n heads of len elements, the first at element `first` of rows [*, n_tok], normed over all of
 * them together if `role` is a norm of rows. */
static int32_t heads_taken(llm_graph_builder *g, int32_t layer, llm_role role, int32_t rows,
                           int64_t first, int32_t len, int64_t n, int64_t n_tok) {
    int32_t x = llm_build_columns(g, rows, first, n * len);
    x = is_row_norm(role) ? build_head_norm(g, layer, role, x)
                          : tdm_build_copy(g->b, x, TDM_TYPE_F32);
    return tdm_build_reshape(g->b, x, len, n, n_tok, 1);
}

/* One product for all three. Heads of one length are not copied. */
static heads build_fused(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const bool is_even = s->q_len == s->k_len && s->k_len == s->v_len;
    const int64_t n_q = s->n_head, n_kv = s->n_head_kv, n_tok = in->n_tok;
    const int64_t k_first = n_q * s->q_len, v_first = k_first + n_kv * s->k_len;
    int32_t rows =
        llm_build_project(g, layer, LLM_ROLE_ATTN_QKV, LLM_ROLE_ATTN_QKV_BIAS, in->x, "qkv");
    rows = clamp(g, rows);
    int32_t qkv = is_even ? tdm_build_reshape(g->b, rows, s->k_len, n_q + 2 * n_kv, n_tok, 1) : -1;
    heads h = {-1, -1, -1, -1};
    if (in->is_needed)
        h.q = is_even && !is_row_norm(s->norm_q)
                  ? llm_build_heads(g, qkv, 0, n_q)
                  : heads_taken(g, layer, s->norm_q, rows, 0, s->q_len, n_q, n_tok);
    if (s->kv_from_layer >= 0) return h;
    h.k = is_even && !is_row_norm(s->norm_k)
              ? llm_build_heads(g, qkv, n_q, n_kv)
              : heads_taken(g, layer, s->norm_k, rows, k_first, s->k_len, n_kv, n_tok);
    h.v = is_even ? llm_build_heads(g, qkv, n_q + n_kv, n_kv)
                  : heads_taken(g, layer, LLM_ROLE_NONE, rows, v_first, s->v_len, n_kv, n_tok);
    return h;
}

/* The products come first and the cache last. Their results are all live at once, so that they
 * share no memory and threads compute them without waiting for each other. */
static heads build_apart(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_layer_spec *s = &g->model->specs[layer];
    heads h = {-1, -1, -1, -1};
    const bool has_keys = s->kv_from_layer < 0;
    if (has_keys)
        h.k = clamp(g,
                    llm_build_project(g, layer, LLM_ROLE_ATTN_K, LLM_ROLE_ATTN_K_BIAS, in->x, "k"));
    if (has_keys && g->model->layer[layer][LLM_ROLE_ATTN_V] < 0)
        h.v = h.k;
    else if (has_keys)
        h.v = clamp(g,
                    llm_build_project(g, layer, LLM_ROLE_ATTN_V, LLM_ROLE_ATTN_V_BIAS, in->x, "v"));
    if (in->is_needed)
        h.q = clamp(g,
                    llm_build_project(g, layer, LLM_ROLE_ATTN_Q, LLM_ROLE_ATTN_Q_BIAS, in->x, "q"));
    if (is_row_norm(s->norm_k)) h.k = build_head_norm(g, layer, s->norm_k, h.k);
    if (is_row_norm(s->norm_q)) h.q = build_head_norm(g, layer, s->norm_q, h.q);
    if (has_keys) {
        h.k = tdm_build_reshape(g->b, h.k, s->k_len, s->n_head_kv, in->n_tok, 1);
        h.v = tdm_build_reshape(g->b, h.v, s->v_len, s->n_head_kv, in->n_tok, 1);
    }
    if (in->is_needed) h.q = tdm_build_reshape(g->b, h.q, s->q_len, s->n_head, in->n_tok, 1);
    return h;
}

/* Takes the gate out of the heads of Q. */
static void gate_take(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in, heads *h) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const int64_t first[TDM_MAX_DIMS] = {0}, second[TDM_MAX_DIMS] = {s->k_len};
    const int64_t ne[TDM_MAX_DIMS] = {s->k_len, s->n_head, in->n_tok, 1};
    h->gate = tdm_build_slice(g->b, h->q, second, ne);
    h->q = tdm_build_slice(g->b, h->q, first, ne);
}

/* Norms of heads and their rotation, in the order of the architecture. */
static int32_t build_turned(llm_graph_builder *g, int32_t layer, llm_role norm, int32_t x,
                            int32_t pos) {
    const llm_arch *arch = g->model->arch;
    if (is_row_norm(norm)) norm = LLM_ROLE_NONE; /* done before the split into heads */
    if (!arch->is_norm_qk_late) x = build_head_norm(g, layer, norm, x);
    x = llm_build_rotated(g, layer, &g->model->specs[layer].rope, x, pos);
    return arch->is_norm_qk_late ? build_head_norm(g, layer, norm, x) : x;
}

int32_t llm_build_gate(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                       int32_t query_gate, int32_t o) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const llm_arch *arch = g->model->arch;
    int64_t n = (int64_t)s->n_head * s->o_len;
    const tdm_act act = arch->gate_act != TDM_ACT_NONE ? arch->gate_act : TDM_ACT_SIGMOID;
    if (g->model->layer[layer][LLM_ROLE_ATTN_GATE_HEAD] >= 0) {
        int32_t gate =
            llm_build_project(g, layer, LLM_ROLE_ATTN_GATE_HEAD, LLM_ROLE_NONE, in->x, "attn_gate");
        gate = tdm_build_act(g->b, gate, act);
        if (arch->gate_scale != 0) gate = tdm_build_scale(g->b, gate, arch->gate_scale, 0);
        gate = tdm_build_reshape(g->b, gate, 1, s->n_head, in->n_tok, 1);
        o = tdm_build_mul(g->b, o, gate);
    }
    if (arch->gate == LLM_GATE_QUERY)
        o = tdm_build_mul(g->b, o, tdm_build_act(g->b, query_gate, TDM_ACT_SIGMOID));
    o = tdm_build_reshape(g->b, o, n, in->n_tok, 1, 1);
    if (g->model->layer[layer][LLM_ROLE_ATTN_GATE] < 0) return o;
    int32_t gate =
        llm_build_project(g, layer, LLM_ROLE_ATTN_GATE, LLM_ROLE_NONE, in->x, "attn_gate");
    return tdm_build_glu(g->b, gate, o, act);
}

tdm_attention_params llm_attention_params(const llm_graph_builder *g, int32_t layer) {
    const llm_model *m = g->model;
    const llm_hparams *h = &m->hparams;
    const llm_layer_spec *s = &m->specs[layer];
    tdm_attention_params params = {
        .kv = g->state_kv[llm_layer_cache(s, layer)],
        .heads_per_kv = s->n_head / s->n_head_kv,
        .n_head_all = s->n_head,
        .is_causal = s->is_causal,
        .window = s->window,
        .window_kind = s->window > 0 ? (int32_t)s->window_kind : 0,
        .scale = h->attention_scale,
        .softcap = h->attention_softcap,
        .alibi_max_bias = h->alibi_max_bias,
    };
    if (!s->has_temperature) return params;
    params.temperature_scale = h->temperature_scale;
    params.temperature_length = h->temperature_length;
    params.temperature_offset = h->temperature_offset;
    return params;
}

/* The index of the layer selects runs of tokens, or blocks. */
static void index_write(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    if (g->model->specs[layer].index_run > 0)
        llm_build_run_index_write(g, layer, in);
    else
        llm_build_block_index_write(g, layer, in);
}

static int32_t index_select(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    return g->model->specs[layer].index_run > 0 ? llm_build_run_index_select(g, layer, in)
                                                : llm_build_block_index_select(g, layer, in);
}

int32_t llm_build_attention(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_model *m = g->model;
    const llm_layer_spec *s = &m->specs[layer];
    const bool has_keys = s->kv_from_layer < 0;
    if (!has_keys && !in->is_needed) return -1;
    int32_t state = llm_graph_state(g, llm_layer_cache(s, layer));
    bool is_fused = m->layer[layer][LLM_ROLE_ATTN_QKV] >= 0;
    heads h = is_fused ? build_fused(g, layer, in) : build_apart(g, layer, in);
    if (in->is_needed && m->arch->gate == LLM_GATE_QUERY) gate_take(g, layer, in, &h);
    if (has_keys) h.k = build_turned(g, layer, s->norm_k, h.k, in->pos);
    if (has_keys && s->has_bare_norm_v)
        h.v = llm_build_norm(g, layer, LLM_ROLE_NONE, m->arch->norm_qk, h.v);
    if (has_keys && s->has_bare_norm_k)
        h.k = llm_build_norm(g, layer, LLM_ROLE_NONE, m->arch->norm_qk, h.k);
    if (in->is_needed) h.q = build_turned(g, layer, s->norm_q, h.q, in->pos);
    if (in->is_needed && s->has_bare_norm_q)
        h.q = llm_build_norm(g, layer, LLM_ROLE_NONE, m->arch->norm_qk, h.q);
    if (has_keys) tdm_build_kv_write(g->b, h.k, h.v, g->step, state, g->state_kv[layer]);
    const bool is_sparse = (g->cache->desc.flags & TDM_KV_SPARSE) != 0 && s->index == LLM_INDEX_OWN;
    if (is_sparse) index_write(g, layer, in);
    if (!in->is_needed) return -1;
    const tdm_attention_params params = llm_attention_params(g, layer);
    const tdm_attention_sources sources = {
        .sink = llm_graph_weight(g, m->layer[layer][LLM_ROLE_ATTN_SINKS]),
        .select = is_sparse ? index_select(g, layer, in) : -1,
        .bias = llm_graph_weight(g, m->layer[layer][LLM_ROLE_ATTN_DISTANCE_BIAS])};
    int32_t o = tdm_build_attention_of(g->b, h.q, g->step, state, &sources, &params, NULL);
    o = llm_build_gate(g, layer, in, h.gate, o);
    if (m->hparams.value_scale != 0) o = tdm_build_scale(g->b, o, m->hparams.value_scale, 0);
    if (m->arch->has_sub_norms)
        o = llm_build_norm(g, layer, LLM_ROLE_ATTN_SUB_NORM, m->hparams.norm, o);
    return llm_build_project(g, layer, LLM_ROLE_ATTN_OUT, LLM_ROLE_ATTN_OUT_BIAS, o, "attn_out");
}
