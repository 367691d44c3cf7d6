/* SPDX-License-Identifier: MIT
 *
 * project.c: products, norms and slices that all blocks use (block.h).
 */
#include "llm/block/block.h"

#include "llm/adapter.h"
#include "llm/arch/arch.h"

static const int32_t *weights_of(const llm_graph_builder *g, int32_t layer) {
    return layer < 0 ? g->model->global : g->model->layer[layer];
}

/* The scale of a matrix; NONE = such a matrix has none. */
static llm_role scale_role(llm_role role) {
    switch (role) {
    case LLM_ROLE_ATTN_Q: return LLM_ROLE_ATTN_Q_SCALE;
    case LLM_ROLE_ATTN_K: return LLM_ROLE_ATTN_K_SCALE;
    case LLM_ROLE_ATTN_V: return LLM_ROLE_ATTN_V_SCALE;
    case LLM_ROLE_ATTN_OUT: return LLM_ROLE_ATTN_OUT_SCALE;
    case LLM_ROLE_FFN_GATE: return LLM_ROLE_FFN_GATE_SCALE;
    case LLM_ROLE_FFN_UP: return LLM_ROLE_FFN_UP_SCALE;
    case LLM_ROLE_FFN_DOWN: return LLM_ROLE_FFN_DOWN_SCALE;
    default: return LLM_ROLE_NONE;
    }
}

void llm_declare_scale(llm_declarer *d, llm_role role) {
    llm_declare(d, scale_role(role), false);
}

/* The input of an adapter's scales, created on first use. */
static int32_t scale_input(llm_graph_builder *g, int32_t adapter) {
    const int64_t ne[TDM_MAX_DIMS] = {1, g->n_tok, 1, 1};
    if (g->lora[adapter] < 0)
        g->lora[adapter] = tdm_build_input(g->b, "lora.scale", TDM_TYPE_F32, ne);
    return g->lora[adapter];
}

/* The scales of an adapter for the rows of x, of which each token, or each with logits, has one: f32
 * of x's shape but for its first axis, which is 1. */
static int32_t build_scales(llm_graph_builder *g, int32_t adapter, int32_t weight, int32_t x) {
    const int64_t *shape = tdm_build_shape(g->b, x);
    if (shape == NULL) return -1;
    const int64_t ne[TDM_MAX_DIMS] = {1, shape[1], shape[2], shape[3]};
    const int64_t n_row = ne[1] * ne[2] * ne[3];
    const bool is_one_axis = ne[1] == n_row || ne[2] == n_row || ne[3] == n_row;
    int32_t scales = -1;
    if (is_one_axis && n_row == g->n_tok) {
        scales = scale_input(g, adapter);
    } else if (is_one_axis && n_row == g->n_out) {
        if (g->lora_out[adapter] < 0)
            g->lora_out[adapter] = llm_build_out_rows(g, scale_input(g, adapter));
        scales = g->lora_out[adapter];
    } else {
        tdm_build_fail(g->b, TDM_UNSUPPORTED,
                       "the adapter changes '%s', of which a token has several products; that is "
                       "not supported: merge the adapter into the model, or train one without it",
                       g->model->weights[weight].file->name);
    }
    return ne[1] == n_row ? scales : tdm_build_reshape(g->b, scales, 1, ne[1], ne[2], ne[3]);
}

/* y plus what an adapter adds to the product of a weight and x: s * (alpha / rank) * B (A x). The
 * input of scales has s * alpha / rank for the adapter's first rank. */
static int32_t build_low_rank(llm_graph_builder *g, int32_t adapter, int32_t weight, int32_t x,
                              int32_t y) {
    const llm_adapter *a = &g->model->adapters[adapter];
    const int32_t pair = a->pair[weight];
    const int32_t scales = build_scales(g, adapter, weight, x);
    int32_t t = tdm_build_matmul(g->b, llm_graph_weight(g, pair), x);
    const int32_t rank = (int32_t)g->model->weights[pair].file->ne[1];
    if (rank != a->rank && a->alpha != 0)
        t = tdm_build_scale(g->b, t, (float)a->rank / (float)rank, 0);
    t = tdm_build_mul(g->b, t, scales);
    return tdm_build_add(g->b, y, tdm_build_matmul(g->b, llm_graph_weight(g, pair + 1), t));
}

int32_t llm_build_product(llm_graph_builder *g, int32_t weight, int32_t scale, int32_t x) {
    const llm_model *m = g->model;
    int32_t y = tdm_build_matmul(g->b, llm_graph_weight(g, weight), x);
    if (scale >= 0) y = tdm_build_mul(g->b, y, llm_graph_weight(g, scale));
    for (int32_t a = 0; a < m->n_adapter && weight < m->n_base; a++)
        if ((g->adapters >> a & 1) != 0 && m->adapters[a].pair[weight] >= 0)
            y = build_low_rank(g, a, weight, x, y);
    return y;
}

int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, llm_role bias,
                          int32_t x, const char *name) {
    const int32_t *w = weights_of(g, layer);
    const llm_role scale = layer < 0 ? LLM_ROLE_NONE : scale_role(role);
    int32_t y = llm_build_product(g, w[role], scale != LLM_ROLE_NONE ? w[scale] : -1, x);
    if (w[bias] >= 0) y = tdm_build_add(g->b, y, llm_graph_weight(g, w[bias]));
    tdm_build_name(g->b, y, name, layer);
    return y;
}

int32_t llm_build_norm(llm_graph_builder *g, int32_t layer, llm_role role, llm_norm norm,
                       int32_t x) {
    const int32_t *w = weights_of(g, layer);
    const float eps = g->model->hparams.norm_eps;
    int32_t weight = llm_graph_weight(g, w[role]), bias = -1;
    if (role != LLM_ROLE_NONE) bias = llm_graph_weight(g, w[role + 1]);
    if (norm == LLM_NORM_LAYER) return tdm_build_layer_norm(g->b, x, weight, bias, eps);
    int32_t y = tdm_build_rms_norm(g->b, x, weight, eps);
    return bias >= 0 ? tdm_build_add(g->b, y, bias) : y;
}

int32_t llm_build_columns(llm_graph_builder *g, int32_t x, int64_t first, int64_t n) {
    const int64_t *shape = tdm_build_shape(g->b, x);
    if (shape == NULL) return -1;
    const int64_t offset[TDM_MAX_DIMS] = {first, 0, 0, 0};
    const int64_t ne[TDM_MAX_DIMS] = {n, shape[1], shape[2], shape[3]};
    return tdm_build_slice(g->b, x, offset, ne);
}
