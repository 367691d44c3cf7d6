/* SPDX-License-Identifier: MIT
 *
 * kda.c: Kimi delta attention (block.h): the gated delta rule with a decay for each element of a
 * key. Kimi Team, arXiv:2510.26692.
 *
 *   q, k, v = silu(conv(Wq x)), silu(conv(Wk x)), silu(conv(Wv x))
 *   g = a * softplus(Wf x + dt), or floor * sigmoid(a * (Wf x + dt)) where the file has a floor,
 *       and -a in place of a where it has the factors negated
 *   o = scan(l2(q), l2(k), v, g, sigmoid(Wb x)) / sqrt(k_len)
 *   y = Wo (norm(o) * sigmoid(Wz x))
 *
 * Wf and Wz are one matrix each, or two of low rank. The factors a are [1, n_head] or [n_head].
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* A product with one matrix, or with two where the file has the second one. */
static void declare_pair(llm_declarer *d, llm_role whole, llm_role first, llm_role second) {
    if (!llm_layer_has(d->model->gguf, second, d->layer)) {
        llm_declare(d, whole, true);
        return;
    }
    llm_declare(d, first, true);
    llm_declare(d, second, true);
}

static int32_t build_pair(llm_graph_builder *g, int32_t layer, llm_role whole, llm_role first,
                          llm_role second, int32_t x, const char *name) {
    if (g->model->layer[layer][whole] >= 0)
        return llm_build_project(g, layer, whole, LLM_ROLE_NONE, x, name);
    x = llm_build_project(g, layer, first, LLM_ROLE_NONE, x, name);
    return llm_build_project(g, layer, second, LLM_ROLE_NONE, x, name);
}

/* The role of the factors of decays, by their shape in the file. */
static llm_role factors_role(const llm_declarer *d) {
    const llm_gguf_tensor *t = llm_role_tensor(d->model->gguf, LLM_ROLE_KDA_A, d->layer);
    return t != NULL && t->n_dims == 1 ? LLM_ROLE_DELTA_A : LLM_ROLE_KDA_A;
}

void llm_declare_kda(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_KDA_Q, true);
    llm_declare(d, LLM_ROLE_KDA_K, true);
    llm_declare(d, LLM_ROLE_KDA_V, true);
    llm_declare(d, LLM_ROLE_KDA_CONV_Q, true);
    llm_declare(d, LLM_ROLE_KDA_CONV_K, true);
    llm_declare(d, LLM_ROLE_KDA_CONV_V, true);
    declare_pair(d, LLM_ROLE_KDA_F, LLM_ROLE_KDA_F_A, LLM_ROLE_KDA_F_B);
    if (llm_layer_has(d->model->gguf, LLM_ROLE_KDA_GATE_WIDE, d->layer))
        llm_declare(d, LLM_ROLE_KDA_GATE_WIDE, true);
    else
        declare_pair(d, LLM_ROLE_KDA_GATE, LLM_ROLE_KDA_GATE_A, LLM_ROLE_KDA_GATE_B);
    llm_declare(d, LLM_ROLE_DELTA_BETA, true);
    llm_declare(d, LLM_ROLE_KDA_DT_BIAS, true);
    llm_declare(d, factors_role(d), true);
    llm_declare(d, LLM_ROLE_DELTA_NORM, true);
    llm_declare(d, LLM_ROLE_DELTA_ATTN_OUT, true);
}

/* The rows of three values one behind the other, along `axis`. */
static int32_t join(llm_graph_builder *g, const int32_t part[3], int32_t axis) {
    int32_t two = tdm_build_concat(g->b, part[0], part[1], axis);
    return tdm_build_concat(g->b, two, part[2], axis);
}

/* q, k and v of all heads, [k_len, 3 n_head, n_tok]: one convolution, so that a layer has one state
 * of inputs. */
static int32_t build_qkv(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n_ch = (int64_t)r->k_len * r->n_head_k;
    static const llm_role matrix[3] = {LLM_ROLE_KDA_Q, LLM_ROLE_KDA_K, LLM_ROLE_KDA_V};
    static const llm_role conv[3] = {LLM_ROLE_KDA_CONV_Q, LLM_ROLE_KDA_CONV_K, LLM_ROLE_KDA_CONV_V};
    static const char *const names[3] = {"kda_q", "kda_k", "kda_v"};
    tdm_conv_params p = {.n_segment = 3, .unit_len = {r->k_len, r->k_len, r->v_len}};
    int32_t x[3], w[3];
    for (int i = 0; i < 3; i++) {
        x[i] = llm_build_project(g, layer, matrix[i], LLM_ROLE_NONE, in->x, names[i]);
        w[i] = tdm_build_reshape(g->b, llm_build_weight(g, layer, conv[i]), r->n_conv, n_ch, 1, 1);
    }
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_CONV, &p.kv);
    int32_t y = tdm_build_conv1d(g->b, join(g, x, 0), join(g, w, 1), -1, g->step, state, &p);
    y = tdm_build_act(g->b, y, TDM_ACT_SILU);
    return tdm_build_reshape(g->b, y, r->k_len, 3 * (int64_t)r->n_head_k, in->n_tok, 1);
}

/* The decay, [k_len, n_head, n_tok]; the op multiplies it by src->a where there is one. */
static void build_decay(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                        tdm_scan_sources *src) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const float floor = g->model->hparams.decay_floor;
    const bool is_row = g->model->layer[layer][LLM_ROLE_DELTA_A] >= 0;
    int32_t a = llm_build_weight(g, layer, is_row ? LLM_ROLE_DELTA_A : LLM_ROLE_KDA_A);
    a = tdm_build_reshape(g->b, a, 1, r->n_head_v, 1, 1);
    int32_t f = build_pair(g, layer, LLM_ROLE_KDA_F, LLM_ROLE_KDA_F_A, LLM_ROLE_KDA_F_B, in->x,
                           "kda_decay");
    f = tdm_build_add(g->b, f, llm_build_weight(g, layer, LLM_ROLE_KDA_DT_BIAS));
    if (floor == 0) f = tdm_build_act(g->b, f, TDM_ACT_SOFTPLUS);
    src->g = tdm_build_reshape(g->b, f, r->k_len, r->n_head_k, in->n_tok, 1);
    src->a = a;
    if (floor == 0) return;
    f = tdm_build_mul(g->b, src->g, a);
    if (g->model->hparams.is_decay_negative) f = tdm_build_scale(g->b, f, -1, 0);
    f = tdm_build_act(g->b, f, TDM_ACT_SIGMOID);
    src->g = tdm_build_scale(g->b, f, floor, 0);
    src->a = -1;
}

int32_t llm_build_kda(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n = r->n_head_k, n_tok = in->n_tok;
    tdm_scan_params p = {.heads_per_k = 1, .scale = 1.0f / sqrtf((float)r->k_len)};
    tdm_scan_sources src = {.a = -1};
    int32_t qkv = build_qkv(g, layer, in);
    src.q = llm_build_unit(g, llm_build_heads(g, qkv, 0, n), r->k_len);
    src.k = llm_build_unit(g, llm_build_heads(g, qkv, n, n), r->k_len);
    src.v = llm_build_heads(g, qkv, 2 * n, n);
    build_decay(g, layer, in, &src);
    int32_t beta =
        llm_build_project(g, layer, LLM_ROLE_DELTA_BETA, LLM_ROLE_NONE, in->x, "kda_beta");
    beta = tdm_build_act(g->b, beta, TDM_ACT_SIGMOID);
    src.beta = tdm_build_reshape(g->b, beta, 1, r->n_head_v, n_tok, 1);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_MATRIX, &p.kv);
    int32_t o = tdm_build_linear_scan(g->b, &src, g->step, state, &p);
    if (!in->is_needed) return -1;
    o = tdm_build_rms_norm(g->b, o, llm_build_weight(g, layer, LLM_ROLE_DELTA_NORM),
                           g->model->hparams.norm_eps);
    o = tdm_build_reshape(g->b, o, (int64_t)r->v_len * r->n_head_v, n_tok, 1, 1);
    const bool is_wide = g->model->layer[layer][LLM_ROLE_KDA_GATE_WIDE] >= 0;
    int32_t gate = build_pair(g, layer, is_wide ? LLM_ROLE_KDA_GATE_WIDE : LLM_ROLE_KDA_GATE,
                              LLM_ROLE_KDA_GATE_A, LLM_ROLE_KDA_GATE_B, in->x, "kda_gate");
    o = tdm_build_glu(g->b, gate, o, TDM_ACT_SIGMOID);
    return llm_build_project(g, layer, LLM_ROLE_DELTA_ATTN_OUT, LLM_ROLE_NONE, o, "kda_out");
}
