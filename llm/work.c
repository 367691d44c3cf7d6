/* SPDX-License-Identifier: MIT
 *
 * work.c: counts the work of a step (work.h) on its forward graph, so that only nodes which the
 * step has are counted: after the last attention, for example, the graph has only the rows with
 * logits.
 */
#include "llm/work.h"

#include "llm/context_internal.h"

static void product_add(llm_work *work, const tdm_value *w, double n_mac, double read_size) {
    double *n_op =
        tdm_type_get_info((tdm_type)w->type).is_quantized ? &work->n_op_int8 : &work->n_op_f32;
    *n_op += 2 * n_mac;
    work->read_size += read_size;
}

static void node_add(llm_work *work, const tdm_graph *graph, const tdm_node *node) {
    if (node->op == TDM_OP_MATMUL) {
        const tdm_value *w = tdm_graph_value(graph, node->src[0]);
        const tdm_value *y = tdm_graph_value(graph, node->dst[0]);
        product_add(work, w, (double)w->ne[0] * (double)tdm_shape_count(y->ne),
                    (double)tdm_tensor_canonical_size((tdm_type)w->type, w->ne));
    } else if (node->op == TDM_OP_MOE_FFN) {
        double n_choice = (double)tdm_shape_count(tdm_graph_value(graph, node->src[1])->ne);
        for (int32_t i = 3; i < 6; i++) { /* gate, up and down of all experts (op.h) */
            if (node->src[i] < 0) continue;
            const tdm_value *w = tdm_graph_value(graph, node->src[i]);
            double share = n_choice / (double)w->ne[2], read = share < 1 ? share : 1;
            product_add(work, w, (double)tdm_shape_count(w->ne) * share,
                        (double)tdm_tensor_canonical_size((tdm_type)w->type, w->ne) * read);
        }
    } else if (node->op == TDM_OP_MOE_MATMUL) {
        const tdm_value *w = tdm_graph_value(graph, node->src[0]);
        const tdm_value *y = tdm_graph_value(graph, node->dst[0]);
        const double share = (double)(y->ne[1] * y->ne[2]) / (double)w->ne[2];
        product_add(work, w, (double)w->ne[0] * (double)tdm_shape_count(y->ne),
                    (double)tdm_tensor_canonical_size((tdm_type)w->type, w->ne) *
                        (share < 1 ? share : 1));
    }
}

tdm_status llm_context_work(const llm_context *ctx, int32_t n_tok, int32_t n_out, int32_t n_past,
                            llm_work *work_out, tdm_error *err) {
    const llm_step_shape shape = {n_tok, n_out, 1, ctx->n_entry};
    tdm_graph *graph = NULL;
    llm_work work = {0};
    tdm_status status = llm_forward_graph(ctx->model, &ctx->cache, 0, &shape, NULL, &graph, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < graph->n_node; i++) node_add(&work, graph, tdm_graph_node(graph, i));
    tdm_graph_free(graph);
    work.read_size += llm_context_read_size(ctx, n_past, n_tok);
    *work_out = work;
    return TDM_OK;
}
