/* SPDX-License-Identifier: MIT
 *
 * lightning.c: linear attention with a fixed decay for each head (block.h). Lightning attention:
 * Qin et al., arXiv:2401.04658; MiniMax-01: arXiv:2501.08313.
 *
 *   q, k, v = silu(Wqkv x)                    rows of a head: its q, then k, then v
 *   S = exp(-slope_h) S + k v,  o = q S
 *   y = Wo (norm(o) * sigmoid(Wz x))          the norm is over all heads together
 *
 * Slopes follow from the number of heads and the layer; files do not have them.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* Minus the slopes, as the op reads them. That of head h of n is 2^(-8 (h + 1) / n), times a factor
 * that falls from 1 in the first layer to 1e-5 in the last. */
static void slopes_fill(const llm_model *m, int32_t layer, float *out) {
    const int32_t n_head = m->specs[layer].recurrent.n_head_v;
    const float first = powf(2, -powf(2, -(log2f((float)n_head) - 3)));
    const float part = m->hparams.n_layer > 1 ? (float)layer / (float)(m->hparams.n_layer - 1) : 0;
    const float scale = 1.0f - part + 1e-5f;
    for (int32_t h = 0; h < n_head; h++) out[h] = -scale * first * powf(first, (float)h);
}

void llm_declare_lightning(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_LIGHTNING_QKV, true);
    llm_declare(d, LLM_ROLE_DELTA_GATE, true);
    llm_declare(d, LLM_ROLE_LIGHTNING_NORM, true);
    llm_declare(d, LLM_ROLE_DELTA_ATTN_OUT, true);
    float *slopes = llm_declare_made(d, LLM_ROLE_LIGHTNING_DECAY);
    if (slopes != NULL) slopes_fill(d->model, d->layer, slopes);
}

/* Elements first .. first + k_len - 1 of each head. */
static int32_t part_of(llm_graph_builder *g, const llm_recurrent_spec *r, int32_t x, int64_t first,
                       int64_t n_tok) {
    const int64_t offset[TDM_MAX_DIMS] = {first};
    const int64_t ne[TDM_MAX_DIMS] = {r->k_len, r->n_head_v, n_tok, 1};
    return tdm_build_slice(g->b, x, offset, ne);
}

int32_t llm_build_lightning(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n_tok = in->n_tok, len = r->k_len;
    tdm_scan_params p = {.heads_per_k = 1};
    int32_t x =
        llm_build_project(g, layer, LLM_ROLE_LIGHTNING_QKV, LLM_ROLE_NONE, in->x, "linear_qkv");
    x = tdm_build_act(g->b, x, TDM_ACT_SILU);
    x = tdm_build_reshape(g->b, x, 3 * len, r->n_head_v, n_tok, 1);
    const tdm_scan_sources src = {.q = part_of(g, r, x, 0, n_tok),
                                  .k = part_of(g, r, x, len, n_tok),
                                  .v = part_of(g, r, x, 2 * len, n_tok),
                                  .g = llm_build_weight(g, layer, LLM_ROLE_LIGHTNING_DECAY),
                                  .a = -1,
                                  .beta = -1};
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_MATRIX, &p.kv);
    int32_t o = tdm_build_linear_scan(g->b, &src, g->step, state, &p);
    if (!in->is_needed) return -1;
    o = tdm_build_reshape(g->b, o, len * r->n_head_v, n_tok, 1, 1);
    o = tdm_build_rms_norm(g->b, o, llm_build_weight(g, layer, LLM_ROLE_LIGHTNING_NORM),
                           g->model->hparams.norm_eps);
    int32_t gate =
        llm_build_project(g, layer, LLM_ROLE_DELTA_GATE, LLM_ROLE_NONE, in->x, "linear_gate");
    o = tdm_build_glu(g->b, gate, o, TDM_ACT_SIGMOID);
    return llm_build_project(g, layer, LLM_ROLE_DELTA_ATTN_OUT, LLM_ROLE_NONE, o, "linear_out");
}
