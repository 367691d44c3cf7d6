/* SPDX-License-Identifier: MIT
 *
 * rwkv7.c: the time mixing of RWKV-7 (Peng et al., arXiv:2503.14456), and of ARWKV: a delta rule
 * that erases with one vector and writes with another (block.h).
 *
 *   d = x of the token before - x,  m_i = x + d * lerp_i     i: r, decay, k, v, rate, gate
 *   g = -exp(-1/2) sigmoid(w0 + W2 tanh(W1 m_decay)),  a = sigmoid(a0 + A2 A1 m_rate)
 *   v = Wv m_v, in layers behind the first:
 *       v += (v of the first layer - v) sigmoid(v0 + V2 V1 m_v)
 *   e = l2(k * k_k) for each head,  k *= 1 + (a - 1) k_a
 *   S = exp(g) S - (e a) (e S) + k v,  o = r S
 *   y = Wo ((norm(o) + (r k r_k) v) * G2 sigmoid(G1 m_gate))
 *
 * ARWKV may be without the norm and without the gate.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

enum { MIX_R, MIX_DECAY, MIX_K, MIX_V, MIX_RATE, MIX_GATE };

void llm_declare_rwkv7(llm_declarer *d) {
    const llm_model *m = d->model;
    llm_declare(d, LLM_ROLE_RWKV7_LERP, true);
    llm_declare(d, LLM_ROLE_RWKV7_DECAY, true);
    llm_declare(d, LLM_ROLE_RWKV7_DECAY_A, true);
    llm_declare(d, LLM_ROLE_RWKV7_DECAY_B, true);
    llm_declare(d, LLM_ROLE_RWKV7_RATE, true);
    llm_declare(d, LLM_ROLE_RWKV7_RATE_A, true);
    llm_declare(d, LLM_ROLE_RWKV7_RATE_B, true);
    if (d->layer > 0) { /* the first layer does not read its own */
        llm_declare(d, LLM_ROLE_RWKV7_VALUE, true);
        llm_declare(d, LLM_ROLE_RWKV7_VALUE_A, true);
        llm_declare(d, LLM_ROLE_RWKV7_VALUE_B, true);
    }
    if (m->hparams.n_gate_row > 0) {
        llm_declare(d, LLM_ROLE_RWKV7_GATE_A, true);
        llm_declare(d, LLM_ROLE_RWKV7_GATE_B, true);
    }
    llm_declare(d, LLM_ROLE_RWKV7_ERASED, true);
    llm_declare(d, LLM_ROLE_RWKV7_KEPT, true);
    llm_declare(d, LLM_ROLE_RWKV7_OWN, true);
    llm_declare(d, LLM_ROLE_RWKV_R, true);
    llm_declare(d, LLM_ROLE_RWKV_K, true);
    llm_declare(d, LLM_ROLE_RWKV_V, true);
    llm_declare(d, LLM_ROLE_RWKV_OUT, true);
    if (m->arch->ffn == LLM_FFN_SHIFTED || llm_layer_has(m->gguf, LLM_ROLE_RWKV_NORM, d->layer))
        llm_declare_norm(d, LLM_ROLE_RWKV_NORM);
    llm_declare_shift(d);
}

/* What the layer reads of a token and the one before. */
typedef struct shifted {
    int32_t x, d; /* [n_embd, n_tok] */
    int32_t lerp; /* [n_embd, mixes] */
} shifted;

/* x + d * lerp_i. */
static int32_t build_mix(llm_graph_builder *g, const shifted *s, int32_t i) {
    const int64_t offset[TDM_MAX_DIMS] = {0, i};
    const int64_t ne[TDM_MAX_DIMS] = {g->model->hparams.n_embd, 1, 1, 1};
    int32_t lerp = tdm_build_slice(g->b, s->lerp, offset, ne);
    return tdm_build_add(g->b, s->x, tdm_build_mul(g->b, s->d, lerp));
}

/* sigmoid(bias + B act(A x)); the roles are those of bias, A and B. */
static int32_t build_small(llm_graph_builder *g, int32_t layer, llm_role bias, tdm_act act,
                           int32_t x, const char *name) {
    x = llm_build_project(g, layer, (llm_role)(bias + 1), LLM_ROLE_NONE, x, name);
    if (act != TDM_ACT_NONE) x = tdm_build_act(g->b, x, act);
    x = llm_build_project(g, layer, (llm_role)(bias + 2), bias, x, name);
    return tdm_build_act(g->b, x, TDM_ACT_SIGMOID);
}

/* v, which layers behind the first mix with that of the first. */
static int32_t build_value(llm_graph_builder *g, int32_t layer, int32_t x) {
    int32_t v = llm_build_project(g, layer, LLM_ROLE_RWKV_V, LLM_ROLE_NONE, x, "rwkv_v");
    if (layer == 0) return g->value_first = v;
    int32_t part = build_small(g, layer, LLM_ROLE_RWKV7_VALUE, TDM_ACT_NONE, x, "value_part");
    int32_t other = tdm_build_add(g->b, g->value_first, tdm_build_scale(g->b, v, -1, 0));
    return tdm_build_add(g->b, v, tdm_build_mul(g->b, other, part));
}

/* Heads of k * k_k, each divided by its length. */
static int32_t build_erased(llm_graph_builder *g, int32_t layer, int32_t k, int64_t n_tok) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const float eps = 1e-24f / (float)r->k_len; /* a length below 1e-12 counts as 1e-12 */
    int32_t e = tdm_build_mul(g->b, k, llm_build_weight(g, layer, LLM_ROLE_RWKV7_ERASED));
    e = tdm_build_reshape(g->b, e, r->k_len, r->n_head_v, n_tok, 1);
    e = tdm_build_rms_norm(g->b, e, -1, eps);
    return tdm_build_scale(g->b, e, 1.0f / sqrtf((float)r->k_len), 0);
}

/* k (1 + (a - 1) k_a). */
static int32_t build_key(llm_graph_builder *g, int32_t layer, int32_t k, int32_t rate) {
    int32_t part = tdm_build_scale(g->b, rate, 1, -1);
    part = tdm_build_mul(g->b, part, llm_build_weight(g, layer, LLM_ROLE_RWKV7_KEPT));
    return tdm_build_mul(g->b, k, tdm_build_scale(g->b, part, 1, 1));
}

/* What a token reads of its own k and v, whatever the state: (r k r_k) v, as rows. */
static int32_t build_own(llm_graph_builder *g, int32_t layer, const tdm_scan_sources *src,
                         int64_t n_tok) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t len = r->k_len, n = r->n_head_v;
    int32_t w =
        tdm_build_reshape(g->b, llm_build_weight(g, layer, LLM_ROLE_RWKV7_OWN), len, 1, n, 1);
    int32_t sum = tdm_build_matmul(g->b, w, tdm_build_mul(g->b, src->k, src->q));
    return tdm_build_reshape(g->b, tdm_build_mul(g->b, src->v, sum), len * n, n_tok, 1, 1);
}

static int32_t build_gate(llm_graph_builder *g, int32_t layer, int32_t x) {
    x = llm_build_project(g, layer, LLM_ROLE_RWKV7_GATE_A, LLM_ROLE_NONE, x, "gate_a");
    x = tdm_build_act(g->b, x, TDM_ACT_SIGMOID);
    return llm_build_project(g, layer, LLM_ROLE_RWKV7_GATE_B, LLM_ROLE_NONE, x, "gate_b");
}

int32_t llm_build_rwkv7(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_model *m = g->model;
    const llm_recurrent_spec *r = &m->specs[layer].recurrent;
    const int64_t n_tok = in->n_tok, len = r->k_len, n = r->n_head_v;
    const bool has_gate = m->hparams.n_gate_row > 0;
    tdm_scan_params p = {.heads_per_k = 1};
    tdm_scan_sources src = {.a = -1, .beta = -1};
    const shifted s = {
        .x = in->x,
        .d = llm_build_shift(g, layer, LLM_RECURRENT_CONV, in->x),
        .lerp = tdm_build_reshape(g->b, llm_build_weight(g, layer, LLM_ROLE_RWKV7_LERP),
                                  m->hparams.n_embd, MIX_GATE + has_gate, 1, 1),
    };
    int32_t q = llm_build_project(g, layer, LLM_ROLE_RWKV_R, LLM_ROLE_NONE, build_mix(g, &s, MIX_R),
                                  "rwkv_r");
    int32_t k = llm_build_project(g, layer, LLM_ROLE_RWKV_K, LLM_ROLE_NONE, build_mix(g, &s, MIX_K),
                                  "rwkv_k");
    int32_t v = build_value(g, layer, build_mix(g, &s, MIX_V));
    int32_t decay = build_small(g, layer, LLM_ROLE_RWKV7_DECAY, TDM_ACT_TANH,
                                build_mix(g, &s, MIX_DECAY), "decay");
    int32_t rate = build_small(g, layer, LLM_ROLE_RWKV7_RATE, TDM_ACT_NONE,
                               build_mix(g, &s, MIX_RATE), "rate");
    int32_t e = build_erased(g, layer, k, n_tok);
    int32_t write = tdm_build_mul(g->b, e, tdm_build_reshape(g->b, rate, len, n, n_tok, 1));
    decay = tdm_build_scale(g->b, decay, -0.606531f, 0); /* as RWKV-7 rounds exp(-1/2) */
    src.q = tdm_build_reshape(g->b, q, len, n, n_tok, 1);
    src.k = tdm_build_reshape(g->b, build_key(g, layer, k, rate), len, n, n_tok, 1);
    src.v = tdm_build_reshape(g->b, v, len, n, n_tok, 1);
    src.g = tdm_build_reshape(g->b, decay, len, n, n_tok, 1);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_MATRIX, &p.kv);
    int32_t o = tdm_build_linear_scan_erased(g->b, &src, tdm_build_scale(g->b, e, -1, 0), write,
                                             g->step, state, &p);
    if (!in->is_needed) return -1;
    o = llm_build_heads_norm(g, layer, o, n_tok);
    o = tdm_build_add(g->b, o, build_own(g, layer, &src, n_tok));
    if (has_gate) o = tdm_build_mul(g->b, o, build_gate(g, layer, build_mix(g, &s, MIX_GATE)));
    return llm_build_project(g, layer, LLM_ROLE_RWKV_OUT, LLM_ROLE_NONE, o, "rwkv_out");
}
