/* SPDX-License-Identifier: MIT
 *
 * delta.c: the gated delta rule (block.h). Gated delta networks: Yang et al., arXiv:2412.06464.
 *
 *   q, k, v = silu(conv(Wqkv x))                    a short convolution over the tokens
 *   beta = sigmoid(Wb x),  g = a * softplus(Wa x + dt)        a number for each head of v
 *   o = scan(l2(q), l2(k), v, g, beta) / sqrt(k_len)
 *   y = Wo (norm(o) * silu(Wz x))                   or with another activation
 */
#include <math.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* Channels of q, k and v of a head of k, interleaved. */
static int32_t head_channels(const llm_recurrent_spec *r) {
    return 2 * r->k_len + r->n_head_v / r->n_head_k * r->v_len;
}

/* The filters, in the order of interleaved channels. Files have them in the order q, k, v. */
static void declare_interleaved_conv(llm_declarer *d) {
    const llm_recurrent_spec *r = &d->model->specs[d->layer].recurrent;
    const int32_t n_k = r->n_head_k, k_len = r->k_len, n_each = head_channels(r);
    const llm_gguf_tensor *t = llm_declare_in_file(d, LLM_ROLE_DELTA_CONV);
    float *out = llm_declare_made(d, LLM_ROLE_DELTA_CONV);
    for (int32_t i = 0; out != NULL && i < n_k * n_each; i++) {
        const int32_t head = i / n_each, at = i % n_each, n_v = n_each - 2 * k_len;
        const int32_t from = at < k_len       ? head * k_len + at
                             : at < 2 * k_len ? (n_k + head - 1) * k_len + at
                                              : (2 * n_k - 2) * k_len + head * n_v + at;
        memcpy(out + (size_t)i * r->n_conv, (const float *)t->data + (size_t)from * r->n_conv,
               (size_t)r->n_conv * sizeof *out);
    }
}

void llm_declare_delta(llm_declarer *d) {
    if (d->model->specs[d->layer].recurrent.is_interleaved) {
        llm_declare(d, LLM_ROLE_DELTA_IN, true);
        declare_interleaved_conv(d);
    } else {
        llm_declare(d, LLM_ROLE_DELTA_QKV, true);
        llm_declare(d, LLM_ROLE_DELTA_GATE, true);
        llm_declare(d, LLM_ROLE_DELTA_CONV, true);
    }
    llm_declare(d, LLM_ROLE_DELTA_BETA_ALPHA, false);
    if (llm_declared(d, LLM_ROLE_DELTA_BETA_ALPHA) < 0) {
        llm_declare(d, LLM_ROLE_DELTA_BETA, true);
        llm_declare(d, LLM_ROLE_DELTA_ALPHA, true);
    }
    llm_declare(d, LLM_ROLE_DELTA_DT_BIAS, true);
    llm_declare(d, LLM_ROLE_DELTA_A, true);
    llm_declare(d, LLM_ROLE_DELTA_NORM, true);
    llm_declare(d, LLM_ROLE_DELTA_OUT, true);
}

/* Each head divided by its length: x / sqrt(sum x^2 + eps). */
int32_t llm_build_unit(llm_graph_builder *g, int32_t x, int32_t len) {
    x = tdm_build_rms_norm(g->b, x, -1, g->model->hparams.norm_eps / (float)len);
    return tdm_build_scale(g->b, x, 1.0f / sqrtf((float)len), 0);
}

/* Elements first .. first + n - 1 of the row that each head of k has in x [*, n_head_k, n_tok]. */
static int32_t head_part(llm_graph_builder *g, int32_t x, int64_t first, int64_t n) {
    const int64_t *shape = tdm_build_shape(g->b, x);
    if (shape == NULL) return -1;
    const int64_t offset[TDM_MAX_DIMS] = {first}, ne[TDM_MAX_DIMS] = {n, shape[1], shape[2], 1};
    return tdm_build_copy(g->b, tdm_build_slice(g->b, x, offset, ne), TDM_TYPE_F32);
}

/* q, k, v of all heads, and where one matrix has it the gate, which is -1 else. */
static void build_interleaved(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                              tdm_scan_sources *src, int32_t *gate_out) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n_each = head_channels(r), n_v = n_each - 2 * (int64_t)r->k_len;
    tdm_conv_params p = {.n_segment = 1, .unit_len = {(int32_t)n_each}};
    int32_t x = llm_build_project(g, layer, LLM_ROLE_DELTA_IN, LLM_ROLE_NONE, in->x, "delta_in");
    x = tdm_build_reshape(g->b, x, n_each + n_v, r->n_head_k, in->n_tok, 1);
    *gate_out =
        tdm_build_reshape(g->b, head_part(g, x, n_each, n_v), n_v * r->n_head_k, in->n_tok, 1, 1);
    x = tdm_build_reshape(g->b, head_part(g, x, 0, n_each), n_each * r->n_head_k, in->n_tok, 1, 1);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_CONV, &p.kv);
    x = tdm_build_conv1d(g->b, x, llm_build_weight(g, layer, LLM_ROLE_DELTA_CONV), -1, g->step,
                         state, &p);
    x = tdm_build_act(g->b, x, TDM_ACT_SILU);
    x = tdm_build_reshape(g->b, x, n_each, r->n_head_k, in->n_tok, 1);
    src->q = llm_build_unit(g, head_part(g, x, 0, r->k_len), r->k_len);
    src->k = llm_build_unit(g, head_part(g, x, r->k_len, r->k_len), r->k_len);
    src->v = tdm_build_reshape(g->b, head_part(g, x, 2 * (int64_t)r->k_len, n_v), r->v_len,
                               r->n_head_v, in->n_tok, 1);
}

/* q, k and v of all heads. k_len is v_len. */
static void build_apart(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                        tdm_scan_sources *src) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int32_t per_k = r->n_head_v / r->n_head_k, n_tile = r->is_tiled ? per_k : 1;
    int32_t x = llm_build_project(g, layer, LLM_ROLE_DELTA_QKV, LLM_ROLE_NONE, in->x, "delta_qkv");
    tdm_conv_params p = {.n_segment = 2 + n_tile, .unit_len = {r->k_len, r->k_len}};
    if (p.n_segment > TDM_MAX_SEGMENTS) { /* not cut: one unit */
        p = (tdm_conv_params){.n_segment = 1};
        p.unit_len[0] = 2 * r->n_head_k * r->k_len + r->n_head_v * r->v_len;
    }
    for (int32_t i = 2; i < p.n_segment; i++) p.unit_len[i] = r->v_len * per_k / n_tile;
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_CONV, &p.kv);
    x = tdm_build_conv1d(g->b, x, llm_build_weight(g, layer, LLM_ROLE_DELTA_CONV), -1, g->step,
                         state, &p);
    x = tdm_build_act(g->b, x, TDM_ACT_SILU);
    x = tdm_build_reshape(g->b, x, r->k_len, 2 * r->n_head_k + r->n_head_v, in->n_tok, 1);
    src->q = llm_build_unit(g, llm_build_heads(g, x, 0, r->n_head_k), r->k_len);
    src->k = llm_build_unit(g, llm_build_heads(g, x, r->n_head_k, r->n_head_k), r->k_len);
    src->v = llm_build_heads(g, x, 2 * (int64_t)r->n_head_k, r->n_head_v);
}

/* beta and the decay, [1, n_head_v, n_tok] each. */
static void build_rates(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in,
                        tdm_scan_sources *src) {
    const llm_model *m = g->model;
    const llm_recurrent_spec *r = &m->specs[layer].recurrent;
    const int64_t per_k = r->n_head_v / r->n_head_k;
    int32_t dt = llm_build_weight(g, layer, LLM_ROLE_DELTA_DT_BIAS),
            a = llm_build_weight(g, layer, LLM_ROLE_DELTA_A);
    int32_t beta, alpha;
    if (m->layer[layer][LLM_ROLE_DELTA_BETA_ALPHA] >= 0) {
        const int64_t offset[TDM_MAX_DIMS] = {per_k, 0, 0, 0}, none[TDM_MAX_DIMS] = {0};
        const int64_t ne[TDM_MAX_DIMS] = {per_k, r->n_head_k, in->n_tok, 1};
        int32_t both = llm_build_project(g, layer, LLM_ROLE_DELTA_BETA_ALPHA, LLM_ROLE_NONE, in->x,
                                         "delta_ba");
        both = tdm_build_reshape(g->b, both, 2 * per_k, r->n_head_k, in->n_tok, 1);
        beta = tdm_build_slice(g->b, both, none, ne);
        alpha = tdm_build_slice(g->b, both, offset, ne);
        dt = tdm_build_reshape(g->b, dt, per_k, r->n_head_k, 1, 1);
        a = tdm_build_reshape(g->b, a, per_k, r->n_head_k, 1, 1);
    } else {
        beta = llm_build_project(g, layer, LLM_ROLE_DELTA_BETA, LLM_ROLE_NONE, in->x, "delta_beta");
        alpha =
            llm_build_project(g, layer, LLM_ROLE_DELTA_ALPHA, LLM_ROLE_NONE, in->x, "delta_alpha");
    }
    beta = tdm_build_act(g->b, beta, TDM_ACT_SIGMOID);
    alpha = tdm_build_act(g->b, tdm_build_add(g->b, alpha, dt), TDM_ACT_SOFTPLUS);
    alpha = tdm_build_mul(g->b, alpha, a);
    src->beta = tdm_build_reshape(g->b, beta, 1, r->n_head_v, in->n_tok, 1);
    src->g = tdm_build_reshape(g->b, alpha, 1, r->n_head_v, in->n_tok, 1);
}

int32_t llm_build_delta(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    tdm_scan_sources src = {.a = -1};
    int32_t gate = -1;
    tdm_scan_params p = {.heads_per_k = r->n_head_v / r->n_head_k,
                         .is_tiled = r->is_tiled,
                         .scale = 1.0f / sqrtf((float)r->k_len)};
    if (r->is_interleaved)
        build_interleaved(g, layer, in, &src, &gate);
    else
        build_apart(g, layer, in, &src);
    build_rates(g, layer, in, &src);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_MATRIX, &p.kv);
    int32_t o = tdm_build_linear_scan(g->b, &src, g->step, state, &p);
    if (!in->is_needed) return -1;
    o = tdm_build_rms_norm(g->b, o, llm_build_weight(g, layer, LLM_ROLE_DELTA_NORM),
                           g->model->hparams.norm_eps);
    o = tdm_build_reshape(g->b, o, (int64_t)r->v_len * r->n_head_v, in->n_tok, 1, 1);
    if (gate < 0)
        gate = llm_build_project(g, layer, LLM_ROLE_DELTA_GATE, LLM_ROLE_NONE, in->x, "delta_gate");
    const tdm_act act = g->model->arch->delta_act;
    o = tdm_build_glu(g->b, gate, o, act != TDM_ACT_NONE ? act : TDM_ACT_SILU);
    return llm_build_project(g, layer, LLM_ROLE_DELTA_OUT, LLM_ROLE_NONE, o, "delta_out");
}
