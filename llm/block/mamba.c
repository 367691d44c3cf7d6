/* SPDX-License-Identifier: MIT
 *
 * mamba.c: state spaces (block.h). Of channels: Gu and Dao, arXiv:2312.00752. Of heads: Dao and Gu,
 * arXiv:2405.21060.
 *
 *   channels:  u, z = Win x,  u = silu(conv(u)),  t, B, C = Wx u,  dt = softplus(Wdt t + bias)
 *   heads:     z, u, B, C, t = Win x,  u, B, C = silu(conv(u, B, C)),  dt = softplus(t + bias)
 *   heads that share B and C, PLaMo 2 (arXiv:2509.04897): the form of channels, with rows of z and
 *   u by heads and the order B, C, t
 *   S = exp(dt a) S + dt u B,  y = S C + d u,  result = Wout (norm(y * silu(z)))
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* Elements first .. first + len * n - 1 of rows, as [len, n, n_tok]. */
static int32_t part_of(llm_graph_builder *g, int32_t rows, int64_t first, int64_t len, int64_t n,
                       int64_t n_tok) {
    int32_t x = tdm_build_copy(g->b, llm_build_columns(g, rows, first, len * n), TDM_TYPE_F32);
    return tdm_build_reshape(g->b, x, len, n, n_tok, 1);
}

/* What the scan of a layer and the end of its block read: the names of the formulas above. */
typedef struct space {
    int32_t u;    /* [v_len, n_head_v, n_tok] */
    int32_t b, c; /* [k_len, n_head_k, n_tok] */
    int32_t dt;   /* [1, n_head_v, n_tok] */
    int32_t a;    /* [1 or k_len, n_head_v] */
    int32_t d;    /* [1, n_head_v] */
    int32_t gate; /* [v_len * n_head_v, n_tok] */
} space;

/* y * silu(z), [v_len * n_head_v, n_tok]; -1 where only the state is needed. */
static int32_t build_scan(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                          const space *s) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    tdm_scan_params p = {.heads_per_k = r->n_head_v / r->n_head_k};
    const tdm_scan_sources src = {.q = s->c,
                                  .k = s->b,
                                  .v = tdm_build_mul(g->b, s->u, s->dt),
                                  .g = s->dt,
                                  .a = s->a,
                                  .beta = -1};
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_MATRIX, &p.kv);
    int32_t y = tdm_build_linear_scan(g->b, &src, g->step, state, &p);
    if (!in->is_needed) return -1;
    y = tdm_build_add(g->b, y, tdm_build_mul(g->b, s->u, s->d));
    y = tdm_build_reshape(g->b, y, (int64_t)r->v_len * r->n_head_v, in->n_tok, 1, 1);
    return tdm_build_glu(g->b, s->gate, y, TDM_ACT_SILU);
}

static int32_t convolve(llm_graph_builder *g, int32_t layer, int32_t x, int32_t w, int32_t bias,
                        tdm_conv_params *p) {
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_CONV, &p->kv);
    x = tdm_build_conv1d(g->b, x, w, bias, g->step, state, p);
    return tdm_build_act(g->b, x, TDM_ACT_SILU);
}

/* ---- Of channels ---- */

void llm_declare_mamba(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_MAMBA_IN, true);
    llm_declare(d, LLM_ROLE_MAMBA_CONV, true);
    llm_declare(d, LLM_ROLE_MAMBA_CONV_BIAS, false);
    llm_declare(d, LLM_ROLE_MAMBA_X, true);
    llm_declare(d, LLM_ROLE_MAMBA_DT, true);
    llm_declare(d, LLM_ROLE_MAMBA_DT_BIAS, true);
    llm_declare(d, LLM_ROLE_MAMBA_DT_NORM, false);
    llm_declare(d, LLM_ROLE_MAMBA_B_NORM, false);
    llm_declare(d, LLM_ROLE_MAMBA_C_NORM, false);
    llm_declare(d, LLM_ROLE_MAMBA_A, true);
    llm_declare(d, LLM_ROLE_MAMBA_D, true);
    llm_declare(d, LLM_ROLE_MAMBA_OUT, true);
}

/* A norm where the file has its weight, or where a key says so. */
static int32_t norm_maybe(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x) {
    const llm_model *m = g->model;
    if (m->layer[layer][role] < 0 && !m->hparams.has_ssm_norms) return x;
    return tdm_build_rms_norm(g->b, x, llm_build_weight(g, layer, role), m->hparams.norm_eps);
}

int32_t llm_build_mamba(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n = r->n_head_v, n_tok = in->n_tok;
    const tdm_partition partition = llm_recurrent_partition(g->model, layer);
    tdm_conv_params p = {.n_segment = 1, .unit_len = {partition.unit_len[0]}};
    int32_t all = llm_build_project(g, layer, LLM_ROLE_MAMBA_IN, LLM_ROLE_NONE, in->x, "ssm_in");
    int32_t u = convolve(g, layer, llm_build_columns(g, all, 0, n),
                         llm_build_weight(g, layer, LLM_ROLE_MAMBA_CONV),
                         llm_build_weight(g, layer, LLM_ROLE_MAMBA_CONV_BIAS), &p);
    int32_t row = llm_build_project(g, layer, LLM_ROLE_MAMBA_X, LLM_ROLE_NONE, u, "ssm_x");
    int32_t t = norm_maybe(g, layer, LLM_ROLE_MAMBA_DT_NORM, llm_build_columns(g, row, 0, r->rank));
    space s = {.gate = llm_build_columns(g, all, n, n)};
    s.b = norm_maybe(g, layer, LLM_ROLE_MAMBA_B_NORM, part_of(g, row, r->rank, r->k_len, 1, n_tok));
    s.c = norm_maybe(g, layer, LLM_ROLE_MAMBA_C_NORM,
                     part_of(g, row, r->rank + r->k_len, r->k_len, 1, n_tok));
    t = llm_build_project(g, layer, LLM_ROLE_MAMBA_DT, LLM_ROLE_MAMBA_DT_BIAS, t, "ssm_dt");
    t = tdm_build_act(g->b, t, TDM_ACT_SOFTPLUS);
    s.dt = tdm_build_reshape(g->b, t, 1, n, n_tok, 1);
    s.u = tdm_build_reshape(g->b, u, 1, n, n_tok, 1);
    s.a = llm_build_weight(g, layer, LLM_ROLE_MAMBA_A);
    s.d = tdm_build_reshape(g->b, llm_build_weight(g, layer, LLM_ROLE_MAMBA_D), 1, n, 1, 1);
    int32_t y = build_scan(g, layer, in, &s);
    if (y < 0) return -1;
    return llm_build_project(g, layer, LLM_ROLE_MAMBA_OUT, LLM_ROLE_NONE, y, "ssm_out");
}

/* ---- Of heads ---- */

void llm_declare_mamba2(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_MAMBA2_IN, true);
    llm_declare(d, LLM_ROLE_MAMBA2_CONV, true);
    llm_declare(d, LLM_ROLE_MAMBA2_CONV_BIAS, false);
    llm_declare(d, LLM_ROLE_MAMBA2_DT_BIAS, true);
    llm_declare(d, LLM_ROLE_MAMBA2_A, true);
    llm_declare(d, LLM_ROLE_MAMBA2_D, true);
    llm_declare(d, LLM_ROLE_MAMBA2_NORM, false);
    llm_declare(d, LLM_ROLE_MAMBA_OUT, true);
}

int32_t llm_build_mamba2(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n = (int64_t)r->v_len * r->n_head_v, n_bc = (int64_t)r->k_len * r->n_head_k;
    const int32_t inner = r->n_head_v / r->n_head_k * r->v_len;
    const int64_t n_group = r->n_head_k, n_tok = in->n_tok;
    tdm_conv_params p = {.n_segment = 3, .unit_len = {inner, r->k_len, r->k_len}};
    int32_t all = llm_build_project(g, layer, LLM_ROLE_MAMBA2_IN, LLM_ROLE_NONE, in->x, "ssm_in");
    int32_t xbc = convolve(g, layer, llm_build_columns(g, all, n, n + 2 * n_bc),
                           llm_build_weight(g, layer, LLM_ROLE_MAMBA2_CONV),
                           llm_build_weight(g, layer, LLM_ROLE_MAMBA2_CONV_BIAS), &p);
    space s = {.gate = llm_build_columns(g, all, 0, n)};
    s.u = part_of(g, xbc, 0, r->v_len, r->n_head_v, n_tok);
    s.b = part_of(g, xbc, n, r->k_len, n_group, n_tok);
    s.c = part_of(g, xbc, n + n_bc, r->k_len, n_group, n_tok);
    int32_t dt = llm_build_columns(g, all, 2 * n + 2 * n_bc, r->n_head_v);
    dt = tdm_build_add(g->b, dt, llm_build_weight(g, layer, LLM_ROLE_MAMBA2_DT_BIAS));
    dt = tdm_build_act(g->b, dt, TDM_ACT_SOFTPLUS);
    s.dt = tdm_build_reshape(g->b, dt, 1, r->n_head_v, n_tok, 1);
    s.a = llm_build_weight(g, layer, LLM_ROLE_MAMBA2_A);
    s.d = llm_build_weight(g, layer, LLM_ROLE_MAMBA2_D);
    int32_t y = build_scan(g, layer, in, &s);
    if (y < 0) return -1;
    if (g->model->layer[layer][LLM_ROLE_MAMBA2_NORM] >= 0) {
        y = tdm_build_reshape(g->b, y, n / n_group, n_group, n_tok, 1);
        y = tdm_build_rms_norm(g->b, y, -1, g->model->hparams.norm_eps);
        y = tdm_build_mul(g->b, y, llm_build_weight(g, layer, LLM_ROLE_MAMBA2_NORM));
        y = tdm_build_reshape(g->b, y, n, n_tok, 1, 1);
    }
    return llm_build_project(g, layer, LLM_ROLE_MAMBA_OUT, LLM_ROLE_NONE, y, "ssm_out");
}

/* ---- Of heads that share B and C ---- */

void llm_declare_mamba_heads(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_MAMBA_IN, true);
    llm_declare(d, LLM_ROLE_MAMBA_CONV, true);
    llm_declare(d, LLM_ROLE_MAMBA_CONV_BIAS, false);
    llm_declare(d, LLM_ROLE_MAMBA_X, true);
    llm_declare(d, LLM_ROLE_MAMBA_HEADS_DT, true);
    llm_declare(d, LLM_ROLE_MAMBA2_DT_BIAS, true);
    llm_declare(d, LLM_ROLE_MAMBA_DT_NORM, true);
    llm_declare(d, LLM_ROLE_MAMBA_B_NORM, true);
    llm_declare(d, LLM_ROLE_MAMBA_C_NORM, true);
    llm_declare(d, LLM_ROLE_MAMBA_HEADS_A, true);
    llm_declare(d, LLM_ROLE_MAMBA_HEADS_D, true);
    llm_declare(d, LLM_ROLE_MAMBA_OUT, true);
}

/* Elements first .. first + v_len - 1 of each head of `all` [2 v_len, n_head_v, n_tok], as
 * [v_len * n_head_v, n_tok]. */
static int32_t half_of(llm_graph_builder *g, const llm_recurrent_spec *r, int32_t all,
                       int64_t first, int64_t n_tok) {
    const int64_t offset[TDM_MAX_DIMS] = {first},
                  ne[TDM_MAX_DIMS] = {r->v_len, r->n_head_v, n_tok, 1};
    int32_t x = tdm_build_copy(g->b, tdm_build_slice(g->b, all, offset, ne), TDM_TYPE_F32);
    return tdm_build_reshape(g->b, x, (int64_t)r->v_len * r->n_head_v, n_tok, 1, 1);
}

int32_t llm_build_mamba_heads(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n_tok = in->n_tok, n_head = r->n_head_v;
    tdm_conv_params p = {.n_segment = 1, .unit_len = {r->v_len}};
    int32_t all = llm_build_project(g, layer, LLM_ROLE_MAMBA_IN, LLM_ROLE_NONE, in->x, "ssm_in");
    all = tdm_build_reshape(g->b, all, 2 * (int64_t)r->v_len, n_head, n_tok, 1);
    space s = {.gate = half_of(g, r, all, 0, n_tok)};
    int32_t u = convolve(g, layer, half_of(g, r, all, r->v_len, n_tok),
                         llm_build_weight(g, layer, LLM_ROLE_MAMBA_CONV),
                         llm_build_weight(g, layer, LLM_ROLE_MAMBA_CONV_BIAS), &p);
    int32_t row = llm_build_project(g, layer, LLM_ROLE_MAMBA_X, LLM_ROLE_NONE, u, "ssm_x");
    s.b = norm_maybe(g, layer, LLM_ROLE_MAMBA_B_NORM, part_of(g, row, 0, r->k_len, 1, n_tok));
    s.c =
        norm_maybe(g, layer, LLM_ROLE_MAMBA_C_NORM, part_of(g, row, r->k_len, r->k_len, 1, n_tok));
    int32_t t = norm_maybe(g, layer, LLM_ROLE_MAMBA_DT_NORM,
                           llm_build_columns(g, row, 2 * (int64_t)r->k_len, r->rank));
    t = llm_build_project(g, layer, LLM_ROLE_MAMBA_HEADS_DT, LLM_ROLE_MAMBA2_DT_BIAS, t, "ssm_dt");
    t = tdm_build_act(g->b, t, TDM_ACT_SOFTPLUS);
    s.dt = tdm_build_reshape(g->b, t, 1, n_head, n_tok, 1);
    s.u = tdm_build_reshape(g->b, u, r->v_len, n_head, n_tok, 1);
    s.a = tdm_build_reshape(g->b, llm_build_weight(g, layer, LLM_ROLE_MAMBA_HEADS_A), 1, n_head, 1,
                            1);
    s.d = tdm_build_reshape(g->b, llm_build_weight(g, layer, LLM_ROLE_MAMBA_HEADS_D), 1, n_head, 1,
                            1);
    int32_t y = build_scan(g, layer, in, &s);
    if (y < 0) return -1;
    return llm_build_project(g, layer, LLM_ROLE_MAMBA_OUT, LLM_ROLE_NONE, y, "ssm_out");
}
