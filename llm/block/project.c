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

int32_t llm_build_weight(llm_graph_builder *g, int32_t layer, llm_role role) {
    return llm_graph_weight(g, weights_of(g, layer)[role]);
}

/* The input of an adapter's scales, created on first use. */
static int32_t scale_input(llm_graph_builder *g, int32_t adapter) {
    const int64_t ne[TDM_MAX_DIMS] = {1, g->n_tok, 1, 1};
    if (g->lora[adapter] < 0)
        g->lora[adapter] = tdm_build_input(g->b, "lora.scale", TDM_TYPE_F32, ne);
    return g->lora[adapter];
}

/* The scales [1, n_row] of an adapter for rows of which each token, or each with logits, has
 * one. */
static int32_t row_scales(llm_graph_builder *g, int32_t adapter, int64_t n_row) {
    if (n_row == g->n_tok) return scale_input(g, adapter);
    if (g->lora_out[adapter] < 0)
        g->lora_out[adapter] = llm_build_out_rows(g, scale_input(g, adapter));
    return g->lora_out[adapter];
}

/* The scales for the rows of x: f32 of x's shape with a first axis of 1. Of experts, whose x has a
 * row for each expert of a token, the second axis is 1, too. */
static int32_t build_scales(llm_graph_builder *g, int32_t adapter, int32_t weight, int32_t x,
                            bool is_expert) {
    const int64_t *shape = tdm_build_shape(g->b, x);
    if (shape == NULL) return -1;
    const int64_t ne[TDM_MAX_DIMS] = {1, is_expert ? 1 : shape[1], shape[2], shape[3]};
    const int64_t n_row = ne[1] * ne[2] * ne[3];
    const bool is_one_axis = ne[1] == n_row || ne[2] == n_row || ne[3] == n_row;
    if (!is_one_axis || (n_row != g->n_tok && n_row != g->n_out)) {
        tdm_build_fail(g->b, TDM_UNSUPPORTED,
                       "the adapter changes '%s', of which a token has several products; that is "
                       "not supported: merge the adapter into the model, or train one without it",
                       g->model->weights[weight].file->name);
        return -1;
    }
    int32_t scales = row_scales(g, adapter, n_row);
    return ne[1] == n_row ? scales : tdm_build_reshape(g->b, scales, 1, ne[1], ne[2], ne[3]);
}

/* Whether an adapter of the step changes the weight. */
static bool changes(const llm_graph_builder *g, int32_t adapter, int32_t weight) {
    return weight >= 0 && weight < g->model->n_base && (g->adapters >> adapter & 1) != 0 &&
           g->model->adapters[adapter].pair[weight].a >= 0;
}

bool llm_is_adapted(const llm_graph_builder *g, int32_t weight) {
    for (int32_t a = 0; a < g->model->n_adapter; a++)
        if (changes(g, a, weight)) return true;
    return false;
}

/* t = A x of a pair times s * (alpha / rank). The input of scales has s * alpha / rank for the
 * adapter's first rank. */
static int32_t scale_low(llm_graph_builder *g, int32_t adapter, int32_t weight, int32_t t,
                         int32_t scales) {
    const llm_adapter *a = &g->model->adapters[adapter];
    const int32_t rank = (int32_t)g->model->weights[a->pair[weight].b].file->ne[0];
    if (rank != a->rank && a->alpha != 0)
        t = tdm_build_scale(g->b, t, (float)a->rank / (float)rank, 0);
    return tdm_build_mul(g->b, t, scales);
}

/* The product of a weight and x; of the experts that `id` names where it is not -1. */
static int32_t build_plain(llm_graph_builder *g, int32_t weight, int32_t x, int32_t id) {
    const int32_t w = llm_graph_weight(g, weight);
    return id < 0 ? tdm_build_matmul(g->b, w, x) : tdm_build_moe_matmul(g->b, w, x, id, 0, 0);
}

/* y plus what the step's adapters add to the product of a weight and x: s * (alpha / rank) * B (A
 * x) of each. */
static int32_t build_adapted(llm_graph_builder *g, int32_t weight, int32_t x, int32_t id,
                             int32_t y) {
    for (int32_t a = 0; a < g->model->n_adapter; a++) {
        if (!changes(g, a, weight)) continue;
        const llm_adapter_pair *pair = &g->model->adapters[a].pair[weight];
        const int32_t scales = build_scales(g, a, weight, x, id >= 0);
        int32_t t = scale_low(g, a, weight, build_plain(g, pair->a, x, id), scales);
        y = tdm_build_add(g->b, y, build_plain(g, pair->b, t, id));
    }
    return y;
}

int32_t llm_build_product(llm_graph_builder *g, int32_t weight, int32_t x) {
    const int32_t scale = g->model->weights[weight].scale - 1;
    int32_t y = build_plain(g, weight, x, -1);
    if (scale >= 0) y = tdm_build_mul(g->b, y, llm_graph_weight(g, scale));
    /* An adapter of the embedding changes its rows (llm_build_token_rows), not the tied head. */
    if ((g->model->weights[weight].usage & TDM_USAGE_ROWS) != 0) return y;
    return build_adapted(g, weight, x, -1, y);
}

int32_t llm_build_expert_product(llm_graph_builder *g, int32_t weight, int32_t scale, int32_t x,
                                 int32_t id) {
    int32_t y = build_plain(g, weight, x, id);
    if (scale >= 0) y = tdm_build_mul(g->b, y, scale);
    return build_adapted(g, weight, x, id, y);
}

int32_t llm_build_token_rows(llm_graph_builder *g, int32_t weight, int32_t id) {
    int32_t y = tdm_build_get_rows(g->b, llm_graph_weight(g, weight), id, 0);
    for (int32_t a = 0; a < g->model->n_adapter; a++) {
        if (!changes(g, a, weight)) continue;
        const llm_adapter_pair *pair = &g->model->adapters[a].pair[weight];
        int32_t t = tdm_build_get_rows(g->b, llm_graph_weight(g, pair->a), id, 0);
        t = scale_low(g, a, weight, t, scale_input(g, a));
        y = tdm_build_add(g->b, y, build_plain(g, pair->b, t, -1));
    }
    return y;
}

/* Declaring a layer finds most tensors that are missing. It does not require a channel block, which
 * some layers are without. */
static int32_t absent_fail(llm_graph_builder *g, int32_t layer, llm_role role) {
    char name[LLM_TENSOR_NAME_SIZE];
    llm_role_name(role, layer, name);
    tdm_build_fail(g->b, TDM_NOT_FOUND,
                   "%s: tensor '%s' is missing; the file is incomplete or of another architecture",
                   g->model->path, name);
    return -1;
}

int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, llm_role bias,
                          int32_t x, const char *name) {
    const int32_t *w = weights_of(g, layer);
    if (w[role] < 0) return absent_fail(g, layer, role);
    int32_t y = llm_build_product(g, w[role], x);
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

int32_t llm_build_norm_if(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x) {
    return role == LLM_ROLE_NONE ? x : llm_build_norm(g, layer, role, g->model->hparams.norm, x);
}

int32_t llm_build_columns(llm_graph_builder *g, int32_t x, int64_t first, int64_t n) {
    const int64_t *shape = tdm_build_shape(g->b, x);
    if (shape == NULL) return -1;
    const int64_t offset[TDM_MAX_DIMS] = {first, 0, 0, 0};
    const int64_t ne[TDM_MAX_DIMS] = {n, shape[1], shape[2], shape[3]};
    return tdm_build_slice(g->b, x, offset, ne);
}

int32_t llm_build_heads(llm_graph_builder *g, int32_t x, int64_t first, int64_t n) {
    const int64_t *shape = tdm_build_shape(g->b, x);
    if (shape == NULL) return -1;
    const int64_t offset[TDM_MAX_DIMS] = {0, first, 0, 0};
    const int64_t ne[TDM_MAX_DIMS] = {shape[0], n, shape[2], shape[3]};
    return tdm_build_slice(g->b, x, offset, ne);
}
