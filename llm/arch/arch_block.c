/* SPDX-License-Identifier: MIT
 *
 * arch_block.c: see arch_block.h.
 */
#include "llm/arch/arch_block.h"

/* ---- Declaring ---- */

tdm_partition llm_partition_make(int32_t id, int32_t layer, int32_t n_unit, int32_t unit_len) {
    tdm_partition p = {0};
    p.id = id;
    p.layer = layer;
    p.n_unit = n_unit;
    p.n_segment = 1;
    p.unit_len[0] = unit_len;
    return p;
}

void llm_declare(llm_declarer *d, llm_role role, bool is_required, int64_t ne0, int64_t ne1,
                 int64_t ne2, const tdm_partition *partition, int32_t axis) {
    const int64_t ne[TDM_MAX_DIMS] = {ne0, ne1, ne2, 1};
    if (d->status == TDM_OK)
        d->status =
            llm_model_need(d->model, role, d->layer, is_required, ne, partition, axis, d->err);
}

void llm_declare_ends(llm_declarer *d, int32_t vocab_id) {
    const llm_hparams *h = &d->model->hparams;
    const int32_t *global = d->model->global, embd_id = llm_partition_limit(h) - 1;
    tdm_partition vocab = llm_partition_make(vocab_id, -1, h->n_vocab, 1);
    llm_declare(d, LLM_ROLE_OUTPUT_NORM, true, h->n_embd, 1, 1, NULL, 0);
    llm_declare(d, LLM_ROLE_OUTPUT, false, h->n_embd, h->n_vocab, 1, &vocab, 1);
    /* The embedding belongs to the first layer, so that a group that is split by layers has it
     * where its rows are read. A tied head is a matrix product with the embedding. */
    bool is_tied = global[LLM_ROLE_OUTPUT] < 0;
    tdm_partition rows = is_tied ? vocab : llm_partition_make(embd_id, 0, h->n_vocab, 1);
    llm_declare(d, LLM_ROLE_TOKEN_EMBD, true, h->n_embd, h->n_vocab, 1, &rows, 1);
    if (d->status == TDM_OK && is_tied)
        d->model->weights[global[LLM_ROLE_TOKEN_EMBD]].usage |= TDM_USAGE_MATMUL;
}

void llm_declare_dense_ffn(llm_declarer *d, int32_t id, int32_t n_ff) {
    int32_t n_embd = d->model->hparams.n_embd;
    tdm_partition p = llm_partition_make(id, d->layer, n_ff, 1);
    llm_declare(d, LLM_ROLE_FFN_NORM, true, n_embd, 1, 1, NULL, 0);
    llm_declare(d, LLM_ROLE_FFN_GATE, true, n_embd, n_ff, 1, &p, 1);
    llm_declare(d, LLM_ROLE_FFN_UP, true, n_embd, n_ff, 1, &p, 1);
    llm_declare(d, LLM_ROLE_FFN_DOWN, true, n_ff, n_embd, 1, &p, 0);
}

void llm_declare_ffn_biases(llm_declarer *d, int32_t id, int32_t n_ff) {
    tdm_partition p = llm_partition_make(id, d->layer, n_ff, 1);
    llm_declare(d, LLM_ROLE_FFN_GATE_BIAS, false, n_ff, 1, 1, &p, 0);
    llm_declare(d, LLM_ROLE_FFN_UP_BIAS, false, n_ff, 1, 1, &p, 0);
    llm_declare(d, LLM_ROLE_FFN_DOWN_BIAS, false, d->model->hparams.n_embd, 1, 1, NULL, 0);
}

void llm_declare_expert_ffn(llm_declarer *d, int32_t id, int32_t n_ff) {
    int32_t n_embd = d->model->hparams.n_embd, n_expert = d->model->hparams.n_expert;
    tdm_partition p = llm_partition_make(id, d->layer, n_ff, 1);
    llm_declare(d, LLM_ROLE_FFN_NORM, true, n_embd, 1, 1, NULL, 0);
    llm_declare(d, LLM_ROLE_FFN_ROUTER, true, n_embd, n_expert, 1, NULL, 0);
    llm_declare(d, LLM_ROLE_FFN_GATE_EXPS, true, n_embd, n_ff, n_expert, &p, 1);
    llm_declare(d, LLM_ROLE_FFN_UP_EXPS, true, n_embd, n_ff, n_expert, &p, 1);
    llm_declare(d, LLM_ROLE_FFN_DOWN_EXPS, true, n_ff, n_embd, n_expert, &p, 0);
}

/* ---- Building ---- */

int32_t llm_build_project(llm_graph_builder *g, int32_t layer, llm_role role, int bias_role,
                          int32_t x, const char *name) {
    const int32_t *w = g->model->layer[layer];
    int32_t y = tdm_build_matmul(g->b, llm_graph_weight(g, w[role]), x);
    if (bias_role >= 0 && w[bias_role] >= 0)
        y = tdm_build_add(g->b, y, llm_graph_weight(g, w[bias_role]));
    tdm_build_name(g->b, y, name, layer);
    return y;
}

int32_t llm_build_swiglu(llm_graph_builder *g, int32_t layer, const llm_ffn_roles *roles, int32_t x,
                         const char *name) {
    int32_t a = llm_build_project(g, layer, roles->gate, roles->gate_bias, x, "ffn_gate");
    int32_t b = llm_build_project(g, layer, roles->up, roles->up_bias, x, "ffn_up");
    int32_t y = tdm_build_glu(g->b, a, b, TDM_ACT_SILU);
    return llm_build_project(g, layer, roles->down, roles->down_bias, y, name);
}

int32_t llm_build_experts(llm_graph_builder *g, int32_t layer, int32_t bias, int32_t x,
                          const char *name) {
    const int32_t *w = g->model->layer[layer];
    int32_t weight = -1;
    int32_t logit = llm_build_project(g, layer, LLM_ROLE_FFN_ROUTER, -1, x, "router");
    int32_t id = tdm_build_moe_route(g->b, logit, bias, &g->model->hparams.route, &weight);
    int32_t y =
        tdm_build_moe_ffn(g->b, x, id, weight, llm_graph_weight(g, w[LLM_ROLE_FFN_GATE_EXPS]),
                          llm_graph_weight(g, w[LLM_ROLE_FFN_UP_EXPS]),
                          llm_graph_weight(g, w[LLM_ROLE_FFN_DOWN_EXPS]), TDM_ACT_SILU, 0,
                          g->model->hparams.n_expert);
    tdm_build_name(g->b, y, name, layer);
    return y;
}

int32_t llm_build_norm(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x) {
    return tdm_build_rms_norm(g->b, x, llm_graph_weight(g, g->model->layer[layer][role]),
                              g->model->hparams.norm_eps);
}

int32_t llm_build_layers(llm_graph_builder *g, const llm_step_shape *shape,
                         const llm_layer_blocks *blocks) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t *global = g->model->global;
    tdm_builder *b = g->b;
    int32_t pos = tdm_build_step_field(b, TDM_STEP_POS);
    int32_t embd = llm_graph_weight(g, global[LLM_ROLE_TOKEN_EMBD]);
    int32_t x = tdm_build_get_rows(b, embd, tdm_build_step_field(b, TDM_STEP_TOKEN), 0);
    tdm_build_name(b, x, "embd", -1);
    tdm_build_set_role(b, tdm_build_step_field(b, TDM_STEP_ROLE));
    for (int32_t layer = 0; layer < h->n_layer; layer++) {
        bool is_last = layer == h->n_layer - 1;
        int32_t n = llm_build_norm(g, layer, LLM_ROLE_ATTN_NORM, x);
        int32_t o = blocks->attention(g, layer, n, pos, shape->n_tok, !is_last || shape->n_out > 0);
        if (o < 0) return -1;
        x = tdm_build_add(b, x, o);
        /* After the last attention only the rows that give logits are computed. */
        if (is_last && shape->n_out < shape->n_tok) {
            x = tdm_build_get_rows(b, x, tdm_build_step_field(b, TDM_STEP_OUT_ROW), 0);
            tdm_build_set_role(b, tdm_build_step_field(b, TDM_STEP_OUT_ROLE));
        }
        n = llm_build_norm(g, layer, LLM_ROLE_FFN_NORM, x);
        x = tdm_build_add(b, x, blocks->ffn(g, layer, n));
        tdm_build_name(b, x, "out", layer);
    }
    x = tdm_build_rms_norm(b, x, llm_graph_weight(g, global[LLM_ROLE_OUTPUT_NORM]), h->norm_eps);
    int32_t head =
        global[LLM_ROLE_OUTPUT] >= 0 ? global[LLM_ROLE_OUTPUT] : global[LLM_ROLE_TOKEN_EMBD];
    int32_t logits = tdm_build_matmul(b, llm_graph_weight(g, head), x);
    g->tokens = -1;
    if (shape->n_candidate > 0) {
        logits = tdm_build_top_k(b, logits, shape->n_candidate, 0, &g->tokens);
        tdm_build_output(b, g->tokens, "candidates");
    }
    tdm_build_output(b, logits, "logits");
    return logits;
}
