/* SPDX-License-Identifier: MIT
 *
 * short_conv.c: a gated short convolution (block.h), the operator of LFM2 (arXiv:2511.23404).
 *
 *   b, c, u = Win x,  y = Wout (c * conv(b * u))
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_short_conv(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_SHORT_CONV_IN, true);
    llm_declare(d, LLM_ROLE_SHORT_CONV, true);
    llm_declare(d, LLM_ROLE_SHORT_CONV_OUT, true);
}

int32_t llm_build_short_conv(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_model *m = g->model;
    const int64_t n = m->hparams.n_embd;
    const tdm_partition partition = llm_recurrent_partition(m, layer);
    tdm_conv_params p = {.n_segment = 1, .unit_len = {partition.unit_len[0]}};
    int32_t all =
        llm_build_project(g, layer, LLM_ROLE_SHORT_CONV_IN, LLM_ROLE_NONE, in->x, "conv_in");
    int32_t b = llm_build_columns(g, all, 0, n), c = llm_build_columns(g, all, n, n),
            u = llm_build_columns(g, all, 2 * n, n);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_CONV, &p.kv);
    int32_t y = tdm_build_conv1d(g->b, tdm_build_mul(g->b, b, u),
                                 llm_graph_weight(g, m->layer[layer][LLM_ROLE_SHORT_CONV]), -1,
                                 g->step, state, &p);
    if (!in->is_needed) return -1;
    y = tdm_build_mul(g->b, c, y);
    return llm_build_project(g, layer, LLM_ROLE_SHORT_CONV_OUT, LLM_ROLE_NONE, y, "conv_out");
}
