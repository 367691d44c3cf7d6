/* SPDX-License-Identifier: MIT
 *
 * stacks.c: two stacks of layers that run in cycles over the same tokens, each pass with a cache of
 * its own (block.h). HRM-Text (arXiv:2506.21734):
 *
 *   high = embeddings, low = a learned row
 *   in each of n_cycle_high cycles:
 *     n_cycle_low times: low = norm(low stack(high + low))
 *     high = norm(high stack(high + low))
 *
 * A pass is n_stack_layer layers of the model; all passes of a stack have the weights of its first.
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

static int32_t build_pass(llm_graph_builder *g, const llm_layer_input *in, int32_t first,
                          int32_t x) {
    const llm_hparams *h = &g->model->hparams;
    for (int32_t i = 0; i < h->n_stack_layer; i++) {
        x = llm_build_layer(g, first + i, in, x);
        if (x < 0) return -1;
        tdm_build_name(g->b, x, "out", first + i);
    }
    return llm_build_norm(g, -1, LLM_ROLE_NONE, h->norm, x);
}

int32_t llm_build_stacks(llm_graph_builder *g, const llm_layer_input *in, int32_t embd) {
    const llm_hparams *h = &g->model->hparams;
    int32_t high = embd, low = llm_graph_weight(g, g->model->global[LLM_ROLE_STACK_START]);
    int32_t first = 0;
    for (int32_t c = 0; c < h->n_cycle_high && high >= 0; c++) {
        for (int32_t i = 0; i < h->n_cycle_low; i++, first += h->n_stack_layer)
            low = build_pass(g, in, first, tdm_build_add(g->b, high, low));
        high = build_pass(g, in, first, tdm_build_add(g->b, high, low));
        first += h->n_stack_layer;
    }
    return high;
}
