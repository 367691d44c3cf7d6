/* SPDX-License-Identifier: MIT
 *
 * context_products.c: gives the inputs with which the matrices of layers are multiplied to a
 * function of the caller (llm_context_params.product). A plan of such a context has an output for
 * each product's inputs, and one for its experts.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/context_internal.h"

/* The weight whose value is `value`; NULL = it is not a weight of a layer in the model's file. */
static const llm_weight *weight_of(const llm_graph_builder *g, int32_t value) {
    for (int32_t w = 0; value >= 0 && w < g->model->n_weight; w++) {
        const llm_weight *weight = &g->model->weights[w];
        if (g->weight_value[w] == value)
            return weight->layer >= 0 && !weight->is_made && weight->adapter == 0 ? weight : NULL;
    }
    return NULL;
}

/* Adds outputs for x, the inputs of a product with a weight, and for the experts in `id` (-1 = not
 * a product of experts). x is [n, n_tok], or, with several matrices, [n, n_each, n_tok]
 * (llm_product). A product of another form is left out. */
static void product_add(llm_graph_builder *g, llm_plan *plan, const llm_weight *weight, int32_t x,
                        int32_t id) {
    const char *name = weight->source->name;
    const int64_t *shape = tdm_build_shape(g->b, x);
    llm_plan_product *p = &plan->products[plan->n_product];
    for (int32_t i = 0; i < plan->n_product; i++)
        if (strcmp(plan->products[i].name, name) == 0) return; /* another part was added */
    if (shape == NULL) return;
    const int64_t n_matrix = weight->source->ne[2];
    const bool is_each = id >= 0 || n_matrix > 1;
    const int64_t n_each = is_each ? shape[1] : 1, n_tok = is_each ? shape[2] : shape[1];
    *p = (llm_plan_product){.name = name,
                            .n = (int32_t)shape[0],
                            .n_each = (int32_t)n_each,
                            .n_matrix = (int32_t)n_matrix,
                            .n_tok = (int32_t)n_tok};
    /* Other forms do not have the inputs that llm_product describes. */
    if (shape[3] != 1 || (id < 0 && is_each ? n_each != n_matrix : !is_each && shape[2] != 1))
        return;
    p->x = tdm_build_scale(g->b, x, 1, 0);
    tdm_build_output(g->b, p->x, "product.x");
    p->id = -1;
    if (id >= 0) {
        const int64_t *ids = tdm_build_shape(g->b, id);
        if (ids == NULL) return;
        p->n_used = (int32_t)ids[0];
        p->id = tdm_build_copy(g->b, id, TDM_TYPE_I32);
        tdm_build_output(g->b, p->id, "product.id");
    }
    plan->n_product++;
}

tdm_status llm_products_build(const llm_context *ctx, llm_graph_builder *g, llm_plan *plan,
                              tdm_error *err) {
    const tdm_graph *graph = tdm_build_graph(g->b);
    if (ctx->product == NULL || graph == NULL) return TDM_OK;
    const int32_t n_node = graph->n_node;
    plan->products = calloc(2 * (size_t)n_node + 1, sizeof *plan->products);
    if (plan->products == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the products of a step");
    for (int32_t i = 0; i < n_node; i++) {
        graph = tdm_build_graph(g->b);
        if (graph == NULL) break;
        const tdm_node node = *tdm_graph_node(graph, i);
        const bool is_moe = node.op == TDM_OP_MOE_MATMUL;
        if (!is_moe && node.op != TDM_OP_MATMUL) continue;
        const llm_weight *weight = weight_of(g, node.src[0]);
        if (weight != NULL) product_add(g, plan, weight, node.src[1], is_moe ? node.src[3] : -1);
    }
    size_t n_float = 0, n_id = 0;
    for (int32_t i = 0; i < plan->n_product; i++) {
        const llm_plan_product *p = &plan->products[i];
        n_float += (size_t)p->n * (size_t)p->n_each * (size_t)p->n_tok;
        n_id += (size_t)p->n_used * (size_t)p->n_tok;
    }
    plan->product_rows = malloc((n_float + n_id + 1) * sizeof *plan->product_rows);
    plan->product_ids = (int32_t *)(void *)(plan->product_rows + n_float);
    return plan->product_rows != NULL
               ? TDM_OK
               : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the inputs of %d products",
                          plan->n_product);
}

void llm_products_free(llm_plan *plan) {
    free(plan->products);
    free(plan->product_rows);
}

/* Rows of a product's inputs that belong to tokens, in a step of n tokens: n, or n_wanted after the
 * node that keeps only the rows with logits. */
static int32_t row_count(const llm_plan *plan, const llm_plan_product *p, int32_t n,
                         int32_t n_wanted) {
    const int32_t n_row = p->n_tok == plan->shape.n_tok ? n : n_wanted;
    return n_row < p->n_tok ? n_row : p->n_tok;
}

int32_t llm_products_outputs(const llm_plan *plan, int32_t n, int32_t n_wanted, tdm_io *outputs) {
    float *rows = plan->product_rows;
    int32_t *ids = plan->product_ids, n_out = 0;
    for (int32_t i = 0; i < plan->n_product; i++) {
        const llm_plan_product *p = &plan->products[i];
        const size_t each = (size_t)p->n * (size_t)p->n_each, n_tok = (size_t)p->n_tok;
        const size_t n_now = (size_t)row_count(plan, p, n, n_wanted);
        outputs[n_out++] = (tdm_io){p->x, rows, each * n_now * sizeof *rows};
        rows += each * n_tok;
        if (p->id < 0) continue;
        outputs[n_out++] = (tdm_io){p->id, ids, (size_t)p->n_used * n_now * sizeof *ids};
        ids += (size_t)p->n_used * n_tok;
    }
    return n_out;
}

void llm_products_give(const llm_context *ctx, const llm_plan *plan, int32_t n, int32_t n_wanted) {
    const float *rows = plan->product_rows;
    const int32_t *ids = plan->product_ids;
    for (int32_t i = 0; i < plan->n_product; i++) {
        const llm_plan_product *p = &plan->products[i];
        const llm_product given = {.name = p->name,
                                   .n = p->n,
                                   .n_matrix = p->n_matrix,
                                   .n_each = p->n_each,
                                   .n_used = p->n_used,
                                   .n_tok = row_count(plan, p, n, n_wanted),
                                   .rows = rows,
                                   .ids = p->id >= 0 ? ids : NULL};
        ctx->product(ctx->product_user, &given);
        rows += (size_t)p->n * (size_t)p->n_each * (size_t)p->n_tok;
        ids += (size_t)p->n_used * (size_t)p->n_tok;
    }
}
