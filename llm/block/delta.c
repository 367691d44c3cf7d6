/* SPDX-License-Identifier: MIT
 *
 * delta.c: the gated delta rule (block.h). Gated delta networks: Yang et al., arXiv:2412.06464.
 *
 *   q, k, v = silu(conv(Wqkv x))                    a short convolution over the tokens
 *   beta = sigmoid(Wb x),  g = a * softplus(Wa x + dt)        a number for each head of v
 *   o = scan(l2(q), l2(k), v, g, beta) / sqrt(k_len)
 *   y = Wo (norm(o) * silu(Wz x))                   or with another activation
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_delta(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_DELTA_QKV, true);
    llm_declare(d, LLM_ROLE_DELTA_GATE, true);
    llm_declare(d, LLM_ROLE_DELTA_CONV, true);
    llm_declare(d, LLM_ROLE_DELTA_BETA_ALPHA, false);
    if (llm_declared(d, LLM_ROLE_DELTA_BETA_ALPHA) < 0) {
        llm_declare(d, LLM_ROLE_DELTA_BETA, true);
        llm_declare(d, LLM_ROLE_DELTA_ALPHA, true);
    }
    llm_declare(d, LLM_ROLE_DELTA_DT_BIAS, true);
    llm_declare(d, LLM_ROLE_DELTA_A, true);
    llm_declare(d, LLM_ROLE_DELTA_NORM, true);
    llm_declare(d, LLM_ROLE_DELTA_OUT, true);
}

/* q, k and v of all heads, [k_len, 2 n_head_k + n_head_v, n_tok]: k_len is v_len. */
static int32_t build_qkv(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int32_t per_k = r->n_head_v / r->n_head_k, n_tile = r->is_tiled ? per_k : 1;
    int32_t x = llm_build_project(g, layer, LLM_ROLE_DELTA_QKV, LLM_ROLE_NONE, in->x, "delta_qkv");
    tdm_conv_params p = {.n_segment = 2 + n_tile, .unit_len = {r->k_len, r->k_len}};
    if (p.n_segment > TDM_MAX_SEGMENTS) { /* not cut: one unit */
        p = (tdm_conv_params){.n_segment = 1};
        p.unit_len[0] = 2 * r->n_head_k * r->k_len + r->n_head_v * r->v_len;
    }
    for (int32_t i = 2; i < p.n_segment; i++) p.unit_len[i] = r->v_len * per_k / n_tile;
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_CONV, &p.kv);
    x = tdm_build_conv1d(g->b, x, llm_build_weight(g, layer, LLM_ROLE_DELTA_CONV), -1, g->step,
                         state, &p);
    x = tdm_build_act(g->b, x, TDM_ACT_SILU);
    return tdm_build_reshape(g->b, x, r->k_len, 2 * r->n_head_k + r->n_head_v, in->n_tok, 1);
}

/* Each head divided by its length: x / sqrt(sum x^2 + eps). */
int32_t llm_build_unit(llm_graph_builder *g, int32_t x, int32_t len) {
    x = tdm_build_rms_norm(g->b, x, -1, g->model->hparams.norm_eps / (float)len);
    return tdm_build_scale(g->b, x, 1.0f / sqrtf((float)len), 0);
}

/* beta and the decay, [1, n_head_v, n_tok] each. */
static void build_rates(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                        tdm_scan_sources *src) {
    const llm_model *m = g->model;
    const llm_recurrent_spec *r = &m->specs[layer].recurrent;
    const int64_t per_k = r->n_head_v / r->n_head_k;
    int32_t dt = llm_build_weight(g, layer, LLM_ROLE_DELTA_DT_BIAS),
            a = llm_build_weight(g, layer, LLM_ROLE_DELTA_A);
    int32_t beta, alpha;
    if (m->layer[layer][LLM_ROLE_DELTA_BETA_ALPHA] >= 0) {
        const int64_t offset[TDM_MAX_DIMS] = {per_k, 0, 0, 0}, none[TDM_MAX_DIMS] = {0};
        const int64_t ne[TDM_MAX_DIMS] = {per_k, r->n_head_k, in->n_tok, 1};
        int32_t both = llm_build_project(g, layer, LLM_ROLE_DELTA_BETA_ALPHA, LLM_ROLE_NONE, in->x,
                                         "delta_ba");
        both = tdm_build_reshape(g->b, both, 2 * per_k, r->n_head_k, in->n_tok, 1);
        beta = tdm_build_slice(g->b, both, none, ne);
        alpha = tdm_build_slice(g->b, both, offset, ne);
        dt = tdm_build_reshape(g->b, dt, per_k, r->n_head_k, 1, 1);
        a = tdm_build_reshape(g->b, a, per_k, r->n_head_k, 1, 1);
    } else {
        beta = llm_build_project(g, layer, LLM_ROLE_DELTA_BETA, LLM_ROLE_NONE, in->x, "delta_beta");
        alpha =
            llm_build_project(g, layer, LLM_ROLE_DELTA_ALPHA, LLM_ROLE_NONE, in->x, "delta_alpha");
    }
    beta = tdm_build_act(g->b, beta, TDM_ACT_SIGMOID);
    alpha = tdm_build_act(g->b, tdm_build_add(g->b, alpha, dt), TDM_ACT_SOFTPLUS);
    alpha = tdm_build_mul(g->b, alpha, a);
    src->beta = tdm_build_reshape(g->b, beta, 1, r->n_head_v, in->n_tok, 1);
    src->g = tdm_build_reshape(g->b, alpha, 1, r->n_head_v, in->n_tok, 1);
}

int32_t llm_build_delta(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    int32_t qkv = build_qkv(g, layer, in);
    tdm_scan_sources src = {.a = -1};
    tdm_scan_params p = {.heads_per_k = r->n_head_v / r->n_head_k,
                         .is_tiled = r->is_tiled,
                         .scale = 1.0f / sqrtf((float)r->k_len)};
    src.q = llm_build_unit(g, llm_build_heads(g, qkv, 0, r->n_head_k), r->k_len);
    src.k = llm_build_unit(g, llm_build_heads(g, qkv, r->n_head_k, r->n_head_k), r->k_len);
    src.v = llm_build_heads(g, qkv, 2 * (int64_t)r->n_head_k, r->n_head_v);
    build_rates(g, layer, in, &src);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_MATRIX, &p.kv);
    int32_t o = tdm_build_linear_scan(g->b, &src, g->step, state, &p);
    if (!in->is_needed) return -1;
    o = tdm_build_rms_norm(g->b, o, llm_build_weight(g, layer, LLM_ROLE_DELTA_NORM),
                           g->model->hparams.norm_eps);
    o = tdm_build_reshape(g->b, o, (int64_t)r->v_len * r->n_head_v, in->n_tok, 1, 1);
    int32_t gate =
        llm_build_project(g, layer, LLM_ROLE_DELTA_GATE, LLM_ROLE_NONE, in->x, "delta_gate");
    const tdm_act act = g->model->arch->delta_act;
    o = tdm_build_glu(g->b, gate, o, act != TDM_ACT_NONE ? act : TDM_ACT_SILU);
    return llm_build_project(g, layer, LLM_ROLE_DELTA_OUT, LLM_ROLE_NONE, o, "delta_out");
}
