/* SPDX-License-Identifier: MIT
 *
 * experts.c: a mixture of experts: the weighted sum of those that a router chooses for each token,
 * and a feed-forward block of those that serve every token (block.h).
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* Experts of the form down act(up x), which MOE_FFN does not have: they are computed as single
 * products. */
static bool is_plain(const llm_arch *arch) {
    return arch->ffn == LLM_FFN_PLAIN;
}

/* Experts of the form down relu(up x)^2 have no gate either. The op gets `up` as the gate: with act
 * relu it computes relu(up x) * (up x), which is the square. */
static bool has_gate(const llm_arch *arch) {
    return arch->ffn != LLM_FFN_SQUARED && !is_plain(arch);
}

static void declare_matrices(llm_declarer *d) {
    if (!has_gate(d->model->arch)) {
        llm_declare(d, LLM_ROLE_FFN_UP_EXPS, true);
    } else if (!llm_declare_halves(d, LLM_ROLE_FFN_GATE_UP_EXPS, LLM_ROLE_FFN_GATE_EXPS,
                                   LLM_ROLE_FFN_UP_EXPS)) {
        llm_declare(d, LLM_ROLE_FFN_GATE_EXPS, true);
        llm_declare(d, LLM_ROLE_FFN_UP_EXPS, true);
    }
    llm_declare(d, LLM_ROLE_FFN_DOWN_EXPS, true);
    if (d->model->hparams.n_expert_row == 0) return;
    if (llm_layer_has(d->model->gguf, LLM_ROLE_FFN_ROUTED_DOWN, d->layer)) {
        llm_declare(d, LLM_ROLE_FFN_ROUTED_DOWN, true);
        llm_declare(d, LLM_ROLE_FFN_ROUTED_NORM, false);
        llm_declare(d, LLM_ROLE_FFN_ROUTED_UP, true);
        return;
    }
    llm_declare(d, LLM_ROLE_FFN_LATENT_DOWN, true);
    llm_declare(d, LLM_ROLE_FFN_LATENT_UP, true);
}

void llm_declare_experts(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_FFN_ROUTER, true);
    declare_matrices(d);
    if (d->model->arch->has_expert_bias) {
        llm_declare(d, LLM_ROLE_FFN_LOGIT_BIAS, false);
        llm_declare(d, LLM_ROLE_FFN_GATE_EXPS_BIAS, false);
        llm_declare(d, LLM_ROLE_FFN_UP_EXPS_BIAS, false);
        llm_declare(d, LLM_ROLE_FFN_DOWN_EXPS_BIAS, false);
    }
    if (d->model->arch->has_chunk_experts) {
        llm_declare(d, LLM_ROLE_FFN_GATE_CHUNK, true);
        llm_declare(d, LLM_ROLE_FFN_UP_CHUNK, true);
        llm_declare(d, LLM_ROLE_FFN_DOWN_CHUNK, true);
    }
    llm_declare(d, LLM_ROLE_FFN_ROUTER_BIAS, false);
    if (llm_declared(d, LLM_ROLE_FFN_ROUTER_BIAS) < 0)
        llm_declare(d, LLM_ROLE_FFN_ROUTER_BIAS_2, false);
    if (d->model->specs[d->layer].n_ff_shared == 0) return;
    if (has_gate(d->model->arch)) llm_declare(d, LLM_ROLE_FFN_GATE_SHARED, true);
    llm_declare(d, LLM_ROLE_FFN_UP_SHARED, true);
    llm_declare(d, LLM_ROLE_FFN_DOWN_SHARED, true);
    if (d->model->arch->has_shared_gate) llm_declare(d, LLM_ROLE_FFN_SHARED_GATE, true);
}

static int32_t build_shared(llm_graph_builder *g, int32_t layer, int32_t x) {
    int32_t gate = -1;
    if (has_gate(g->model->arch))
        gate = llm_build_project(g, layer, LLM_ROLE_FFN_GATE_SHARED, LLM_ROLE_NONE, x, "ffn_gate");
    int32_t up = llm_build_project(g, layer, LLM_ROLE_FFN_UP_SHARED, LLM_ROLE_NONE, x, "ffn_up");
    int32_t y = llm_build_ffn_act(g, layer, gate, up);
    y = llm_build_project(g, layer, LLM_ROLE_FFN_DOWN_SHARED, LLM_ROLE_NONE, y, "ffn_shared");
    if (!g->model->arch->has_shared_gate) return y;
    int32_t weight =
        llm_build_project(g, layer, LLM_ROLE_FFN_SHARED_GATE, LLM_ROLE_NONE, x, "shared_gate");
    return tdm_build_mul(g->b, y, tdm_build_act(g->b, weight, TDM_ACT_SIGMOID));
}

int32_t llm_build_router(llm_graph_builder *g, int32_t layer, int32_t x) {
    return llm_build_project(g, layer, LLM_ROLE_FFN_ROUTER, LLM_ROLE_FFN_LOGIT_BIAS, x, "router");
}

static tdm_moe_params moe_params(const llm_model *m, int32_t layer, int32_t n_expert) {
    const llm_glu *glu = &m->specs[layer].glu;
    return (tdm_moe_params){
        .act = (int32_t)m->arch->act,
        .n_expert_all = n_expert,
        .is_weighted_first = m->arch->is_expert_weighted_first,
        .limit = glu->limit,
        .alpha = glu->alpha,
        .up_offset = glu->up_offset,
        .is_soft = glu->is_soft,
    };
}

/* Rows `id` i32 [n_used, n_tok] of a table [n, n_expert] as [n, n_used, n_tok]. */
static int32_t rows_of(llm_graph_builder *g, int32_t table, int32_t id) {
    const int64_t *ids = tdm_build_shape(g->b, id), *shape = tdm_build_shape(g->b, table);
    if (ids == NULL || shape == NULL) return -1;
    const int64_t n = shape[0], n_used = ids[0], n_tok = ids[1];
    int32_t each = tdm_build_reshape(g->b, id, n_used * n_tok, 1, 1, 1);
    return tdm_build_reshape(g->b, tdm_build_get_rows(g->b, table, each, 0), n, n_used, n_tok, 1);
}

/* The matrices and biases of experts, as numbers of weights; -1 = none. */
typedef struct expert_weights {
    int32_t matrix[3]; /* gate, up, down */
    int32_t bias[3];
    int32_t n_expert;
} expert_weights;

static bool is_adapted(const llm_graph_builder *g, const expert_weights *w) {
    return llm_is_adapted(g, w->matrix[0]) || llm_is_adapted(g, w->matrix[1]) ||
           llm_is_adapted(g, w->matrix[2]);
}

/* Whether the products of a matrix are multiplied by a scale of each expert. */
static bool has_scales(const llm_graph_builder *g, int32_t matrix) {
    return g->model->weights[matrix].scale != 0;
}

/* The scales of the experts `id` [1, n_used, n_tok]; -1 = the matrix has none. */
static int32_t build_scales(llm_graph_builder *g, const expert_weights *w, int32_t matrix,
                            int32_t id) {
    if (!has_scales(g, matrix)) return -1;
    int32_t scale = llm_graph_weight(g, g->model->weights[matrix].scale - 1);
    return rows_of(g, tdm_build_reshape(g->b, scale, 1, w->n_expert, 1, 1), id);
}

/* A product of the experts `id` with their matrix number `i`, times its scales. */
static int32_t build_product(llm_graph_builder *g, const expert_weights *w, int i, int32_t x,
                             int32_t id) {
    return llm_build_expert_product(g, w->matrix[i], build_scales(g, w, w->matrix[i], id), x, id);
}

/* A product with the biases of the experts, times `weight` (-1 = 1) before those are added. */
static int32_t build_biased(llm_graph_builder *g, int32_t y, int32_t weight, int32_t bias,
                            int32_t id) {
    if (weight >= 0) y = tdm_build_mul(g->b, y, weight);
    return bias >= 0 ? tdm_build_add(g->b, y, rows_of(g, llm_graph_weight(g, bias), id)) : y;
}

/* MOE_FFN from single products, between which stands what adapters add. */
static int32_t build_products(llm_graph_builder *g, int32_t layer, int32_t x, int32_t id,
                              int32_t weight, const expert_weights *w) {
    const int64_t *shape = tdm_build_shape(g->b, x), *ids = tdm_build_shape(g->b, id);
    if (shape == NULL || ids == NULL) return -1;
    const int64_t n = shape[0], n_used = ids[0], n_tok = ids[1];
    const bool is_first = g->model->arch->is_expert_weighted_first;
    const int32_t each = tdm_build_reshape(g->b, weight, 1, n_used, n_tok, 1);
    const int32_t before = is_first ? each : -1;
    int32_t row = tdm_build_reshape(g->b, x, n, 1, n_tok, 1), sum = -1;
    int32_t gate = build_product(g, w, 0, row, id), up = gate;
    if (w->matrix[1] != w->matrix[0]) up = build_product(g, w, 1, row, id);
    gate = build_biased(g, gate, before, w->bias[0], id);
    up = build_biased(g, up, before, w->bias[1], id);
    int32_t y = is_plain(g->model->arch) ? tdm_build_act(g->b, up, g->model->arch->act)
                                         : llm_build_glu(g, &g->model->specs[layer].glu, gate, up);
    y = build_product(g, w, 2, y, id);
    y = build_biased(g, y, -1, w->bias[2], id);
    if (!is_first) y = tdm_build_mul(g->b, y, each);
    for (int64_t u = 0; u < n_used; u++) { /* in the order of MOE_FFN */
        const int64_t at[TDM_MAX_DIMS] = {0, u, 0, 0}, ne[TDM_MAX_DIMS] = {n, 1, n_tok, 1};
        int32_t one = tdm_build_slice(g->b, y, at, ne);
        sum = sum < 0 ? one : tdm_build_add(g->b, sum, one);
    }
    return tdm_build_reshape(g->b, sum, n, n_tok, 1, 1);
}

/* The weights [n_used, n_tok] of experts `id`, times the scale of each expert's last product where
 * there is one. */
static int32_t scale_weights(llm_graph_builder *g, int32_t id, int32_t weight,
                             const expert_weights *w) {
    const int64_t *shape = tdm_build_shape(g->b, weight);
    if (!has_scales(g, w->matrix[2]) || shape == NULL) return weight;
    const int64_t n_used = shape[0], n_tok = shape[1];
    int32_t each =
        tdm_build_reshape(g->b, build_scales(g, w, w->matrix[2], id), n_used, n_tok, 1, 1);
    return tdm_build_mul(g->b, weight, each);
}

/* The weighted sum of what the experts `id` make of x. */
static int32_t build_sum(llm_graph_builder *g, int32_t layer, int32_t x, int32_t id, int32_t weight,
                         const expert_weights *w) {
    int32_t matrix[3], bias[3];
    /* MOE_FFN has no scales between its products, and adds the bias of down unscaled. */
    const bool has_inner = has_scales(g, w->matrix[0]) || has_scales(g, w->matrix[1]) ||
                           (has_scales(g, w->matrix[2]) && w->bias[2] >= 0);
    if (g->has_single_experts || is_plain(g->model->arch) || is_adapted(g, w) || has_inner)
        return build_products(g, layer, x, id, weight, w);
    weight = scale_weights(g, id, weight, w);
    for (int i = 0; i < 3; i++) matrix[i] = llm_graph_weight(g, w->matrix[i]);
    for (int i = 0; i < 3; i++) bias[i] = llm_graph_weight(g, w->bias[i]);
    const tdm_moe_params params = moe_params(g->model, layer, w->n_expert);
    return tdm_build_moe_ffn_biased(g->b, x, id, weight, matrix, bias, &params);
}

/* y plus the result of the smaller experts that neighbouring experts share; these read y, the
 * result of the routed experts. */
static int32_t build_chunks(llm_graph_builder *g, int32_t layer, int32_t logit, int32_t y) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *role = g->model->layer[layer];
    const expert_weights w = {.matrix = {role[LLM_ROLE_FFN_GATE_CHUNK], role[LLM_ROLE_FFN_UP_CHUNK],
                                         role[LLM_ROLE_FFN_DOWN_CHUNK]},
                              .bias = {-1, -1, -1},
                              .n_expert = h->n_expert / h->n_expert_chunk};
    tdm_route_params route = h->route;
    int32_t weight = -1;
    if (route.n_used > w.n_expert) route.n_used = w.n_expert;
    route.id_divisor = h->n_expert_chunk;
    int32_t id = tdm_build_moe_route(g->b, logit, -1, &route, &weight);
    int32_t c = build_sum(g, layer, y, id, weight, &w);
    tdm_build_name(g->b, c, "ffn_chunks", layer);
    return tdm_build_add(g->b, y, tdm_build_scale(g->b, c, h->chunk_scale, 0));
}

/* The experts that a table gives for each token id; their weights follow from the router's
 * logits. */
static int32_t build_given(llm_graph_builder *g, int32_t layer, int32_t logit,
                           int32_t *weight_out) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t offset[TDM_MAX_DIMS] = {0, layer, 0, 0};
    const int64_t ne[TDM_MAX_DIMS] = {h->n_expert_used, 1, g->n_tok, 1};
    int32_t id =
        tdm_build_copy(g->b, tdm_build_slice(g->b, g->expert_ids, offset, ne), TDM_TYPE_I32);
    id = tdm_build_reshape(g->b, id, h->n_expert_used, g->n_tok, 1, 1);
    return tdm_build_moe_route_given(g->b, logit, id, &h->route, weight_out);
}

int32_t llm_build_experts(llm_graph_builder *g, int32_t layer, int32_t logit, int32_t x) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *w = g->model->layer[layer];
    bool has_shared = g->model->specs[layer].n_ff_shared > 0;
    int32_t bias = w[LLM_ROLE_FFN_ROUTER_BIAS];
    if (bias < 0) bias = w[LLM_ROLE_FFN_ROUTER_BIAS_2];
    bias = llm_graph_weight(g, bias);
    tdm_route_params route = h->route;
    route.n_used = g->model->specs[layer].n_expert_used;
    int32_t weight = -1;
    int32_t id = g->model->specs[layer].expert_table != NULL
                     ? build_given(g, layer, logit, &weight)
                     : tdm_build_moe_route(g->b, logit, bias, &route, &weight);
    const llm_role gate = has_gate(g->model->arch) ? LLM_ROLE_FFN_GATE_EXPS : LLM_ROLE_FFN_UP_EXPS;
    const expert_weights experts = {
        .matrix = {w[gate], w[LLM_ROLE_FFN_UP_EXPS], w[LLM_ROLE_FFN_DOWN_EXPS]},
        .bias = {w[LLM_ROLE_FFN_GATE_EXPS_BIAS], w[LLM_ROLE_FFN_UP_EXPS_BIAS],
                 w[LLM_ROLE_FFN_DOWN_EXPS_BIAS]},
        .n_expert = h->n_expert};
    const bool is_routed = w[LLM_ROLE_FFN_ROUTED_DOWN] >= 0;
    int32_t row = x;
    if (h->n_expert_row > 0)
        row = llm_build_project(g, layer,
                                is_routed ? LLM_ROLE_FFN_ROUTED_DOWN : LLM_ROLE_FFN_LATENT_DOWN,
                                LLM_ROLE_NONE, x, "ffn_latent");
    int32_t y = build_sum(g, layer, row, id, weight, &experts);
    if (w[LLM_ROLE_FFN_ROUTED_NORM] >= 0)
        y = llm_build_norm(g, layer, LLM_ROLE_FFN_ROUTED_NORM, h->norm, y);
    if (h->n_expert_row > 0)
        y = llm_build_project(g, layer, is_routed ? LLM_ROLE_FFN_ROUTED_UP : LLM_ROLE_FFN_LATENT_UP,
                              LLM_ROLE_NONE, y, "ffn_latent_up");
    if (g->model->arch->has_chunk_experts) y = build_chunks(g, layer, logit, y);
    tdm_build_name(g->b, y, has_shared ? "ffn_routed" : "ffn_out", layer);
    if (!has_shared) return y;
    const float scale = g->model->arch->shared_scale;
    y = tdm_build_add(g->b, y, build_shared(g, layer, x));
    return scale != 0 ? tdm_build_scale(g->b, y, scale, 0) : y;
}
