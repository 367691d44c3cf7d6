/* SPDX-License-Identifier: MIT
 *
 * ffn.c: a dense feed-forward block (block.h).
 *
 *   y = Wdown (act(Wgate x) * Wup x)      gate and up apart or in one matrix
 *   y = Wdown act(Wup x), or Wdown act(Wup x)^2
 *
 * Biases are optional. Those of gate and up are cut with their matrices. That of down is not cut:
 * it is added once, to the sum of the members' addends.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* A matrix of ones, which adds columns up, also where they are cut. */
static void declare_sum(llm_declarer *d) {
    float *ones = llm_declare_made(d, LLM_ROLE_FFN_SUM);
    for (int32_t i = 0; ones != NULL && i < d->model->specs[d->layer].n_ff; i++) ones[i] = 1;
}

void llm_declare_ffn(llm_declarer *d) {
    llm_ffn_form form = d->model->specs[d->layer].ffn;
    if (form == LLM_FFN_SHIFTED) {
        llm_declare_shifted(d);
        return;
    }
    if (form == LLM_FFN_FUSED) {
        llm_declare(d, LLM_ROLE_FFN_GATE_UP, true);
    } else {
        if (form == LLM_FFN_GATED) llm_declare(d, LLM_ROLE_FFN_GATE, true);
        llm_declare(d, LLM_ROLE_FFN_UP, true);
    }
    llm_declare(d, LLM_ROLE_FFN_DOWN, true);
    if (d->model->arch->has_sub_norms) llm_declare_norm(d, LLM_ROLE_FFN_SUB_NORM);
    if (d->model->specs[d->layer].gate_sparsity > 0) declare_sum(d);
    if (form == LLM_FFN_GATED) llm_declare(d, LLM_ROLE_FFN_GATE_BIAS, false);
    if (form != LLM_FFN_FUSED) llm_declare(d, LLM_ROLE_FFN_UP_BIAS, false);
    llm_declare(d, LLM_ROLE_FFN_DOWN_BIAS, false);
    if (form == LLM_FFN_PLAIN) llm_declare(d, LLM_ROLE_FFN_ACT_SCALES, false);
}

/* With soft limits: act(gate) * tanh(alpha * gate) / alpha * (limit * tanh(up / limit) + offset).
 */
static int32_t build_soft(llm_graph_builder *g, const llm_glu *glu, float alpha, int32_t gate,
                          int32_t up) {
    int32_t t = tdm_build_act(g->b, tdm_build_scale(g->b, gate, alpha, 0), TDM_ACT_TANH);
    float scale = 1 / alpha;
    if (glu->limit > 0) {
        up = tdm_build_act(g->b, tdm_build_scale(g->b, up, 1 / glu->limit, 0), TDM_ACT_TANH);
        scale *= glu->limit;
    }
    if (glu->up_offset != 0) {
        up = tdm_build_scale(g->b, up, scale * alpha, glu->up_offset);
        scale = 1 / alpha;
    }
    t = tdm_build_scale(g->b, tdm_build_mul(g->b, t, up), scale, 0);
    return tdm_build_glu(g->b, gate, t, g->model->arch->act);
}

int32_t llm_build_glu(llm_graph_builder *g, const llm_glu *glu, int32_t gate, int32_t up) {
    const float alpha = glu->alpha > 0 ? glu->alpha : 1;
    if (glu->is_soft) return build_soft(g, glu, alpha, gate, up);
    if (glu->limit > 0) {
        gate = tdm_build_clamp(g->b, gate, -INFINITY, glu->limit);
        up = tdm_build_clamp(g->b, up, -glu->limit, glu->limit);
    }
    if (glu->limit < 0) { /* of act(gate), not of gate */
        gate = tdm_build_act(g->b, gate, g->model->arch->act);
        gate = tdm_build_clamp(g->b, gate, -INFINITY, -glu->limit);
        return tdm_build_mul(g->b, gate, tdm_build_clamp(g->b, up, glu->limit, -glu->limit));
    }
    if (alpha != 1) gate = tdm_build_scale(g->b, gate, alpha, 0);
    if (alpha != 1 || glu->up_offset != 0)
        up = tdm_build_scale(g->b, up, 1 / alpha, glu->up_offset / alpha);
    return tdm_build_glu(g->b, gate, up, g->model->arch->act);
}

/* With p = max(x, 0) and n = min(x, 0). exp(n) - 1 is 2 t / (1 - t), t = tanh(n / 2). */
static int32_t build_xielu(llm_graph_builder *g, const llm_xielu *f, int32_t x) {
    int32_t p = tdm_build_act(g->b, x, TDM_ACT_RELU);
    int32_t n = tdm_build_clamp(g->b, x, -INFINITY, 0);
    int32_t t = tdm_build_act(g->b, tdm_build_scale(g->b, n, 0.5f, 0), TDM_ACT_TANH);
    int32_t e = tdm_build_div(g->b, t, tdm_build_scale(g->b, t, -1, 1));
    e = tdm_build_scale(g->b, e, 2 * f->alpha_n, 0);
    e = tdm_build_add(g->b, e, tdm_build_scale(g->b, n, -f->alpha_n, 0));
    p = tdm_build_scale(g->b, tdm_build_mul(g->b, p, p), f->alpha_p, 0);
    p = tdm_build_add(g->b, p, tdm_build_scale(g->b, x, f->beta, 0));
    return tdm_build_add(g->b, p, e);
}

int32_t llm_build_ffn_act(llm_graph_builder *g, int32_t layer, int32_t gate, int32_t up) {
    const llm_arch *arch = g->model->arch;
    if (gate >= 0 && arch->has_dense_glu)
        return llm_build_glu(g, &g->model->specs[layer].glu, gate, up);
    if (gate >= 0 && g->model->specs[layer].glu_dense.limit != 0)
        return llm_build_glu(g, &g->model->specs[layer].glu_dense, gate, up);
    const tdm_act act = g->model->specs[layer].act;
    if (gate >= 0) return tdm_build_glu(g->b, gate, up, act);
    if (g->model->specs[layer].xielu.alpha_p != 0)
        return build_xielu(g, &g->model->specs[layer].xielu, up);
    int32_t y = tdm_build_act(g->b, up, act);
    return g->model->specs[layer].ffn == LLM_FFN_SQUARED ? tdm_build_mul(g->b, y, y) : y;
}

/* Gates x [n_ff, n_tok] less mean and n standard deviations of their token, and 0 where that is
 * negative. */
static int32_t build_sparse(llm_graph_builder *g, int32_t layer, int32_t x) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const float n_ff = (float)s->n_ff;
    int32_t mean = llm_build_project(g, layer, LLM_ROLE_FFN_SUM, LLM_ROLE_NONE, x, "gate_mean");
    x = tdm_build_add(g->b, x, tdm_build_scale(g->b, mean, -1.0f / n_ff, 0));
    int32_t dev = tdm_build_scale(g->b, tdm_build_sum_sq(g->b, x), 1.0f / (n_ff - 1), 0);
    dev = tdm_build_scale(g->b, tdm_build_sqrt(g->b, dev), -s->gate_sparsity, 0);
    return tdm_build_act(g->b, tdm_build_add(g->b, x, dev), TDM_ACT_RELU);
}

int32_t llm_build_ffn(llm_graph_builder *g, int32_t layer, int32_t x, const char *name) {
    const int32_t n_ff = g->model->specs[layer].n_ff;
    llm_ffn_form form = g->model->specs[layer].ffn;
    int32_t gate = -1, up;
    if (form == LLM_FFN_SHIFTED) return llm_build_shifted(g, layer, x);
    if (form == LLM_FFN_FUSED) {
        int32_t both =
            llm_build_project(g, layer, LLM_ROLE_FFN_GATE_UP, LLM_ROLE_NONE, x, "ffn_gate_up");
        gate = llm_build_columns(g, both, 0, n_ff);
        up = llm_build_columns(g, both, n_ff, n_ff);
    } else {
        if (form == LLM_FFN_GATED)
            gate = llm_build_project(g, layer, LLM_ROLE_FFN_GATE, LLM_ROLE_FFN_GATE_BIAS, x,
                                     "ffn_gate");
        if (g->model->specs[layer].gate_sparsity > 0) gate = build_sparse(g, layer, gate);
        up = llm_build_project(g, layer, LLM_ROLE_FFN_UP, LLM_ROLE_FFN_UP_BIAS, x, "ffn_up");
    }
    int32_t y = llm_build_ffn_act(g, layer, gate, up);
    if (g->model->arch->has_sub_norms)
        y = llm_build_norm(g, layer, LLM_ROLE_FFN_SUB_NORM, g->model->hparams.norm, y);
    int32_t scales = llm_graph_weight(g, g->model->layer[layer][LLM_ROLE_FFN_ACT_SCALES]);
    if (scales >= 0) y = tdm_build_div(g->b, y, scales);
    return llm_build_project(g, layer, LLM_ROLE_FFN_DOWN, LLM_ROLE_FFN_DOWN_BIAS, y, name);
}
