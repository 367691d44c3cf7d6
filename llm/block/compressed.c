/* SPDX-License-Identifier: MIT
 *
 * compressed.c: attention over the last tokens and over rows that stand for runs of earlier ones
 * (block.h), DeepSeek V4's compressed attention. One head is key and value of all query heads.
 *
 *   k = rope(norm(Wkv x))                  cached, read within a window
 *   c_b = rope(norm(sum softmax(Ws x + bias) Wp x))     of the tokens of run b, cached; softmax for
 *                                          each channel; position: that of the run's first token
 *   q_h = rope(norm(Wq_b norm(Wq_a x)))
 *   o_h = attention(q_h over k and c, with a sink)
 *   y = Wo_b [Wo_a,g [rope^-1(o_h)]_g]     a matrix for each group of heads
 *
 * Runs of one of the two lengths overlap: their rows pool the tokens of the run before, too, by
 * channels of their own. Layers with such runs have an index of rows that are pooled likewise; it
 * selects the rows that a token attends to.
 *
 * Values are keys, so they are rotated; the result is rotated back by the position of the token.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* What pools rows: projections, bias and norm. */
typedef struct pool_roles {
    llm_role row, score, bias, norm;
    llm_state_kind pool;
} pool_roles;

static const pool_roles run_roles = {LLM_ROLE_POOL_KV, LLM_ROLE_POOL_SCORE, LLM_ROLE_POOL_BIAS,
                                     LLM_ROLE_POOL_NORM, LLM_RECURRENT_POOL};
static const pool_roles index_roles = {LLM_ROLE_INDEX_POOL_KV, LLM_ROLE_INDEX_POOL_SCORE,
                                       LLM_ROLE_INDEX_POOL_BIAS, LLM_ROLE_INDEX_POOL_NORM,
                                       LLM_RECURRENT_INDEX_POOL};

static void pool_declare(llm_declarer *d, const pool_roles *roles) {
    llm_declare(d, roles->row, true);
    llm_declare(d, roles->score, true);
    llm_declare(d, roles->bias, true);
    llm_declare_norm(d, roles->norm);
}

void llm_declare_compressed(llm_declarer *d) {
    const llm_layer_spec *s = &d->model->specs[d->layer];
    llm_declare(d, LLM_ROLE_ATTN_Q_A, true);
    llm_declare_norm(d, LLM_ROLE_ATTN_Q_A_NORM);
    llm_declare(d, LLM_ROLE_ATTN_Q_B, true);
    llm_declare(d, LLM_ROLE_ATTN_KV, true);
    llm_declare_norm(d, LLM_ROLE_ATTN_KV_NORM);
    llm_declare(d, LLM_ROLE_ATTN_SINKS, true);
    llm_declare_shaped(d, LLM_ROLE_ATTN_OUT_A);
    llm_declare(d, LLM_ROLE_ATTN_OUT_B, true);
    if (s->run_len > 0) pool_declare(d, &run_roles);
    if (s->index != LLM_INDEX_OWN) return;
    pool_declare(d, &index_roles);
    llm_declare(d, LLM_ROLE_INDEX_Q, true);
    llm_declare(d, LLM_ROLE_INDEX_WEIGHT, true);
}

/* Heads x [*, *, n_tok] rotated by their positions + pos_add, or rotated back (is_inverse). */
static int32_t turn(llm_graph_builder *g, int32_t layer, const tdm_rope_params *params, int32_t x,
                    int32_t pos, int32_t pos_add, bool is_inverse) {
    tdm_rope_params rope = *params;
    rope.pos_add = pos_add;
    rope.is_inverse = is_inverse;
    return llm_build_rotated(g, layer, &rope, x, pos);
}

/* Pools the rows of runs and writes those that are complete to `state`. */
static void build_runs(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                       const pool_roles *roles, const tdm_rope_params *rope, int64_t len,
                       int32_t state, int32_t kv) {
    const llm_layer_spec *s = &g->model->specs[layer];
    tdm_pool_params params = {.n_part = llm_pool_parts(s)};
    int32_t slots = llm_graph_recurrent_state(g, layer, roles->pool, &params.kv);
    int32_t row = llm_build_project(g, layer, roles->row, LLM_ROLE_NONE, in->x, "pool_row");
    int32_t score = llm_build_project(g, layer, roles->score, LLM_ROLE_NONE, in->x, "pool_score");
    int32_t bias = llm_graph_weight(g, g->model->layer[layer][roles->bias]);
    row = tdm_build_block_pool(g->b, row, score, bias, g->step, slots, &params);
    row = llm_build_norm(g, layer, roles->norm, LLM_NORM_RMS, row);
    row = tdm_build_reshape(g->b, row, len, 1, in->n_tok, 1);
    row = turn(g, layer, rope, row, in->pos, 1 - s->run_len, false);
    tdm_build_kv_write(g->b, row, -1, g->step, state, kv);
}

/* The rows of runs that a token attends to, by the index. */
static int32_t build_select(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                            int32_t query_row, int32_t state, int32_t kv) {
    const llm_hparams *h = &g->model->hparams;
    const tdm_rope_params rope = llm_index_rope(g->model, layer);
    int32_t q = llm_build_project(g, layer, LLM_ROLE_INDEX_Q, LLM_ROLE_NONE, query_row, "index_q");
    q = tdm_build_reshape(g->b, q, h->index_len, h->n_index_head, in->n_tok, 1);
    q = turn(g, layer, &rope, q, in->pos, 0, false);
    int32_t w = llm_build_project(g, layer, LLM_ROLE_INDEX_WEIGHT, LLM_ROLE_NONE, in->x, "index_w");
    w = tdm_build_scale(g->b, w, 1 / sqrtf((float)h->index_len * (float)h->n_index_head), 0);
    const tdm_select_params params = {.kv = kv, .n_top = h->n_select};
    int32_t select = tdm_build_kv_select(g->b, q, w, g->step, state, &params);
    tdm_build_name(g->b, select, "select", layer);
    return select;
}

/* The states of a layer other than the rows of its window; -1 where it has none. */
typedef struct run_states {
    int32_t runs, runs_kv, index, index_kv;
} run_states;

static run_states build_writes(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_layer_spec *s = &g->model->specs[layer];
    run_states out = {-1, -1, -1, -1};
    int32_t state = llm_graph_state(g, layer);
    int32_t kv = llm_build_project(g, layer, LLM_ROLE_ATTN_KV, LLM_ROLE_NONE, in->x, "kv");
    kv = llm_build_norm(g, layer, LLM_ROLE_ATTN_KV_NORM, LLM_NORM_RMS, kv);
    kv = tdm_build_reshape(g->b, kv, s->k_len, 1, in->n_tok, 1);
    kv = turn(g, layer, &s->rope, kv, in->pos, 0, false);
    tdm_build_kv_write(g->b, kv, -1, g->step, state, g->state_kv[layer]);
    if (s->run_len == 0) return out;
    out.runs = llm_graph_runs_state(g, layer, &out.runs_kv);
    build_runs(g, layer, in, &run_roles, &s->rope, s->k_len, out.runs, out.runs_kv);
    if (s->index != LLM_INDEX_OWN || (g->cache->desc.flags & TDM_KV_SPARSE) == 0) return out;
    const tdm_rope_params rope = llm_index_rope(g->model, layer);
    out.index = llm_graph_index_state(g, layer, &out.index_kv);
    build_runs(g, layer, in, &index_roles, &rope, g->model->hparams.index_len, out.index,
               out.index_kv);
    return out;
}

int32_t llm_build_compressed(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_model *m = g->model;
    const llm_hparams *h = &m->hparams;
    const llm_layer_spec *s = &m->specs[layer];
    const run_states states = build_writes(g, layer, in);
    if (!in->is_needed) return -1;
    int32_t row = llm_build_project(g, layer, LLM_ROLE_ATTN_Q_A, LLM_ROLE_NONE, in->x, "q_a");
    row = llm_build_norm(g, layer, LLM_ROLE_ATTN_Q_A_NORM, LLM_NORM_RMS, row);
    int32_t q = llm_build_project(g, layer, LLM_ROLE_ATTN_Q_B, LLM_ROLE_NONE, row, "q");
    q = tdm_build_reshape(g->b, q, s->q_len, s->n_head, in->n_tok, 1);
    q = tdm_build_rms_norm(g->b, q, -1, h->norm_eps);
    q = turn(g, layer, &s->rope, q, in->pos, 0, false);

    tdm_attention_params params = llm_attention_params(g, layer);
    int32_t sink = llm_graph_weight(g, m->layer[layer][LLM_ROLE_ATTN_SINKS]), ml[2];
    int32_t o = tdm_build_attention(g->b, q, g->step, llm_graph_state(g, layer), sink, &params,
                                    s->run_len > 0 ? &ml[0] : NULL);
    if (s->run_len > 0) {
        int32_t select = -1;
        if (states.index >= 0)
            select = build_select(g, layer, in, row, states.index, states.index_kv);
        params.kv = states.runs_kv;
        params.window = params.window_kind = 0;
        int32_t of_runs =
            tdm_build_attention_sparse(g->b, q, g->step, states.runs, -1, select, &params, &ml[1]);
        o = tdm_build_concat(g->b, o, of_runs, 3);
        o = tdm_build_lse_merge(g->b, o, tdm_build_concat(g->b, ml[0], ml[1], 3));
    }
    o = turn(g, layer, &s->rope, o, in->pos, 0, true);
    o = tdm_build_reshape(g->b, o, (int64_t)s->n_head / s->n_out_group * s->o_len, s->n_out_group,
                          in->n_tok, 1);
    o = llm_build_product(g, m->layer[layer][LLM_ROLE_ATTN_OUT_A], o);
    tdm_build_name(g->b, o, "attn_groups", layer);
    o = tdm_build_reshape(g->b, o, (int64_t)s->n_out_group * h->n_lora_out, in->n_tok, 1, 1);
    return llm_build_project(g, layer, LLM_ROLE_ATTN_OUT_B, LLM_ROLE_NONE, o, "attn_out");
}
