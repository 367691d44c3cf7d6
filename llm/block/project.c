/* SPDX-License-Identifier: MIT
 *
 * project.c: products, norms and slices that all blocks use (block.h).
 */
#include "llm/block/block.h"

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

int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, llm_role bias,
                          int32_t x, const char *name) {
    const int32_t *w = weights_of(g, layer);
    int32_t y = tdm_build_matmul(g->b, llm_graph_weight(g, w[role]), x);
    const llm_role scale = layer < 0 ? LLM_ROLE_NONE : scale_role(role);
    if (scale != LLM_ROLE_NONE && w[scale] >= 0)
        y = tdm_build_mul(g->b, y, llm_graph_weight(g, w[scale]));
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
