/* SPDX-License-Identifier: MIT
 *
 * short_conv.c: a gated short convolution (block.h), the operator of LFM2 (arXiv:2511.23404).
 *
 *   b, c, u = Win x,  y = Wout (c * conv(b * u))
 *
 * The convolution reads a token and those before it. Where tokens see later ones it is centred: of
 * three factors the last is that of the next token of the sequence.
 */
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* The factors of the token before and of the token itself become those of a convolution that ends
 * with the token, and the last one a weight of its own. */
static void declare_centred(llm_declarer *d) {
    const llm_gguf_tensor *t = llm_declare_in_file(d, LLM_ROLE_SHORT_CONV);
    float *conv = llm_declare_made(d, LLM_ROLE_SHORT_CONV);
    float *next = llm_declare_made(d, LLM_ROLE_SHORT_CONV_NEXT);
    for (int32_t i = 0; next != NULL && i < d->model->hparams.n_embd; i++) {
        const float *from = (const float *)t->data + 3 * i;
        conv[3 * i] = 0;
        memcpy(conv + 3 * i + 1, from, 2 * sizeof *conv);
        next[i] = from[2];
    }
}

void llm_declare_short_conv(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_SHORT_CONV_IN, true);
    if (d->model->hparams.is_bidirectional)
        declare_centred(d);
    else
        llm_declare(d, LLM_ROLE_SHORT_CONV, true);
    llm_declare(d, LLM_ROLE_SHORT_CONV_OUT, true);
}

/* Of each token x [n, n_tok] of the next token of its sequence; 0 behind the last. */
static int32_t build_next(llm_graph_builder *g, int32_t x) {
    const int64_t row[TDM_MAX_DIMS] = {g->n_tok, 1, 1, 1}, has[TDM_MAX_DIMS] = {1, g->n_tok, 1, 1};
    if (g->next_row < 0) {
        g->next_row = tdm_build_input(g->b, "next.row", TDM_TYPE_I32, row);
        g->has_next = tdm_build_input(g->b, "next.has", TDM_TYPE_F32, has);
    }
    return tdm_build_mul(g->b, tdm_build_get_rows(g->b, x, g->next_row, 0), g->has_next);
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
    int32_t x = tdm_build_mul(g->b, b, u);
    int32_t y = tdm_build_conv1d(g->b, x, llm_build_weight(g, layer, LLM_ROLE_SHORT_CONV), -1,
                                 g->step, state, &p);
    if (!in->is_needed) return -1;
    const int32_t next = llm_build_weight(g, layer, LLM_ROLE_SHORT_CONV_NEXT);
    if (next >= 0) y = tdm_build_add(g->b, y, tdm_build_mul(g->b, build_next(g, x), next));
    y = tdm_build_mul(g->b, c, y);
    return llm_build_project(g, layer, LLM_ROLE_SHORT_CONV_OUT, LLM_ROLE_NONE, y, "conv_out");
}
