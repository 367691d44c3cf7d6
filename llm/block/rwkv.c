/* SPDX-License-Identifier: MIT
 *
 * rwkv.c: linear attention whose inputs are mixed with the token before (block.h): the time mixing
 * of RWKV-6 (Peng et al., arXiv:2404.05892), and of QRWKV6.
 *
 *   d = x of the token before - x                            before the first token: 0
 *   m_i = x + d * (lerp_i + B_i tanh(A (x + d * lerp_x))_i)  i: decay, k, v, r, gate
 *   s = exp(W2 tanh(W1 m_decay) + w)
 *   RWKV-6:  o = r (S + first k v),  S = exp(-s) S + k v,  y = Wo (norm(o) * silu(Wg m_gate))
 *   QRWKV6:  S = exp(-s) S + (1 - exp(-s)) k v,  o = r S / sqrt(k_len),
 *            y = Wo (o * sigmoid(Wg m_gate))
 *
 * Neighbouring heads of r read one head of k and v. The channel block of RWKV-6:
 *   y = sigmoid(Wr (x + d lerp_r)) * Wv relu(Wk (x + d lerp_k))^2       RWKV-7: without the gate
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

enum { MIX_DECAY, MIX_K, MIX_V, MIX_R, MIX_GATE, N_MIX };

/* d is a convolution with these weights. */
void llm_declare_shift(llm_declarer *d) {
    float *out = llm_declare_made(d, LLM_ROLE_RWKV_SHIFT);
    for (int32_t i = 0; out != NULL && i < d->model->hparams.n_embd; i++)
        out[2 * i] = 1, out[2 * i + 1] = -1;
}

/* LERP, which older files of RWKV-6 have as a tensor for each input. */
static void declare_lerp(llm_declarer *d) {
    static const char letters[N_MIX] = {'w', 'k', 'v', 'r', 'g'};
    const llm_model *m = d->model;
    const int64_t n = m->hparams.n_embd;
    const llm_gguf_tensor *each[N_MIX];
    char name[LLM_TENSOR_NAME_SIZE];
    for (int32_t i = 0; i < N_MIX; i++) {
        snprintf(name, sizeof name, "blk.%d.time_mix_lerp_%c.weight", d->layer, letters[i]);
        each[i] = llm_gguf_tensor_find(m->gguf, name);
        if (each[i] == NULL || each[i]->type != TDM_TYPE_F32 || tdm_shape_count(each[i]->ne) != n) {
            llm_declare(d, LLM_ROLE_RWKV_LERP, true);
            return;
        }
    }
    float *lerp = llm_declare_made(d, LLM_ROLE_RWKV_LERP);
    for (int32_t i = 0; lerp != NULL && i < N_MIX; i++)
        memcpy(lerp + i * n, each[i]->data, (size_t)n * sizeof *lerp);
}

void llm_declare_rwkv(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_RWKV_LERP_X, true);
    declare_lerp(d);
    llm_declare(d, LLM_ROLE_RWKV_MIX_A, true);
    llm_declare(d, LLM_ROLE_RWKV_MIX_B, true);
    llm_declare(d, LLM_ROLE_RWKV_DECAY, true);
    llm_declare(d, LLM_ROLE_RWKV_DECAY_A, true);
    llm_declare(d, LLM_ROLE_RWKV_DECAY_B, true);
    llm_declare(d, LLM_ROLE_RWKV_R, true);
    llm_declare(d, LLM_ROLE_RWKV_K, true);
    llm_declare(d, LLM_ROLE_RWKV_V, true);
    llm_declare(d, LLM_ROLE_RWKV_R_BIAS, false);
    llm_declare(d, LLM_ROLE_RWKV_K_BIAS, false);
    llm_declare(d, LLM_ROLE_RWKV_V_BIAS, false);
    llm_declare(d, LLM_ROLE_RWKV_GATE, true);
    llm_declare(d, LLM_ROLE_RWKV_OUT, true);
    llm_declare_shift(d);
    if (d->model->arch->ffn != LLM_FFN_SHIFTED) return; /* QRWKV6 */
    llm_declare(d, LLM_ROLE_RWKV_FIRST, true);
    llm_declare_norm(d, LLM_ROLE_RWKV_NORM);
    float *delay = llm_declare_made(d, LLM_ROLE_RWKV_DELAY);
    for (int32_t i = 0; delay != NULL && i < 3 * d->model->hparams.n_embd; i++)
        delay[2 * i] = 1, delay[2 * i + 1] = 0;
}

/* exp(x), from the activations that ops have: sigmoid(x) = exp(x) sigmoid(-x). */
static int32_t build_exp(llm_graph_builder *g, int32_t x) {
    int32_t minus = tdm_build_scale(g->b, x, -1, 0);
    return tdm_build_div(g->b, tdm_build_act(g->b, x, TDM_ACT_SIGMOID),
                         tdm_build_act(g->b, minus, TDM_ACT_SIGMOID));
}

int32_t llm_build_shift(llm_graph_builder *g, int32_t layer, llm_state_kind kind, int32_t x) {
    tdm_conv_params p = {.n_segment = 1, .unit_len = {g->model->hparams.n_embd}};
    int32_t state = llm_graph_recurrent_state(g, layer, kind, &p.kv);
    return tdm_build_conv1d(g->b, x, llm_build_weight(g, layer, LLM_ROLE_RWKV_SHIFT), -1, g->step,
                            state, &p);
}

int32_t llm_build_heads_norm(llm_graph_builder *g, int32_t layer, int32_t o, int64_t n_tok) {
    const float eps = 64e-5f; /* the same in all models; files have no key for it */
    const bool has_norm = g->model->layer[layer][LLM_ROLE_RWKV_NORM] >= 0;
    const int64_t *shape = tdm_build_shape(g->b, o);
    if (shape == NULL) return -1;
    const int64_t n = shape[0] * shape[1];
    if (has_norm) o = tdm_build_layer_norm(g->b, o, -1, -1, eps);
    o = tdm_build_reshape(g->b, o, n, n_tok, 1, 1);
    if (!has_norm) return o;
    o = tdm_build_mul(g->b, o, llm_build_weight(g, layer, LLM_ROLE_RWKV_NORM));
    int32_t bias = llm_build_weight(g, layer, LLM_ROLE_RWKV_NORM_BIAS);
    return bias >= 0 ? tdm_build_add(g->b, o, bias) : o;
}

void llm_declare_shifted(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_CHANNEL_LERP_K, true);
    llm_declare(d, LLM_ROLE_CHANNEL_KEY, true);
    llm_declare(d, LLM_ROLE_CHANNEL_VALUE, true);
    if (d->model->specs[d->layer].mixer == LLM_MIXER_RWKV7) return; /* no gate */
    llm_declare(d, LLM_ROLE_CHANNEL_GATE, true);
    llm_declare(d, LLM_ROLE_CHANNEL_LERP_R, true);
}

int32_t llm_build_shifted(llm_graph_builder *g, int32_t layer, int32_t x) {
    int32_t d = llm_build_shift(g, layer, LLM_RECURRENT_SHIFT, x);
    int32_t y = tdm_build_mul(g->b, d, llm_build_weight(g, layer, LLM_ROLE_CHANNEL_LERP_K));
    y = llm_build_project(g, layer, LLM_ROLE_CHANNEL_KEY, LLM_ROLE_NONE, tdm_build_add(g->b, y, x),
                          "channel_key");
    y = tdm_build_act(g->b, y, TDM_ACT_RELU);
    y = llm_build_project(g, layer, LLM_ROLE_CHANNEL_VALUE, LLM_ROLE_NONE,
                          tdm_build_mul(g->b, y, y), "channel_value");
    if (g->model->layer[layer][LLM_ROLE_CHANNEL_GATE] < 0) return y;
    int32_t r = tdm_build_mul(g->b, d, llm_build_weight(g, layer, LLM_ROLE_CHANNEL_LERP_R));
    r = llm_build_project(g, layer, LLM_ROLE_CHANNEL_GATE, LLM_ROLE_NONE, tdm_build_add(g->b, r, x),
                          "channel_gate");
    return tdm_build_mul(g->b, y, tdm_build_act(g->b, r, TDM_ACT_SIGMOID));
}

/* x mixed with the token before, for each input: [n_embd, N_MIX, n_tok]. */
static int32_t build_mixes(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const int64_t n = g->model->hparams.n_embd, n_tok = in->n_tok;
    int32_t d = llm_build_shift(g, layer, LLM_RECURRENT_CONV, in->x);
    int32_t lerp =
        tdm_build_reshape(g->b, llm_build_weight(g, layer, LLM_ROLE_RWKV_LERP), n, N_MIX, 1, 1);
    int32_t y = tdm_build_mul(g->b, d, llm_build_weight(g, layer, LLM_ROLE_RWKV_LERP_X));
    y = tdm_build_add(g->b, y, in->x);
    y = llm_build_project(g, layer, LLM_ROLE_RWKV_MIX_A, LLM_ROLE_NONE, y, "mix_a");
    y = tdm_build_act(g->b, y, TDM_ACT_TANH);
    y = tdm_build_reshape(g->b, y, g->model->hparams.n_mix_row, N_MIX, n_tok, 1);
    y = llm_build_project(g, layer, LLM_ROLE_RWKV_MIX_B, LLM_ROLE_NONE, y, "mix_b");
    y = tdm_build_add(g->b, y, lerp);
    y = tdm_build_mul(g->b, y, tdm_build_reshape(g->b, d, n, 1, n_tok, 1));
    return tdm_build_add(g->b, y, tdm_build_reshape(g->b, in->x, n, 1, n_tok, 1));
}

/* Input i of build_mixes, [n_embd, n_tok]. */
static int32_t mix_of(llm_graph_builder *g, int32_t mixes, int32_t i, int64_t n_tok) {
    const int64_t n = g->model->hparams.n_embd;
    const int64_t offset[TDM_MAX_DIMS] = {0, i}, ne[TDM_MAX_DIMS] = {n, 1, n_tok, 1};
    int32_t x = tdm_build_copy(g->b, tdm_build_slice(g->b, mixes, offset, ne), TDM_TYPE_F32);
    return tdm_build_reshape(g->b, x, n, n_tok, 1, 1);
}

/* s, [n_embd, n_tok]. */
static int32_t build_rate(llm_graph_builder *g, int32_t layer, int32_t x) {
    x = llm_build_project(g, layer, LLM_ROLE_RWKV_DECAY_A, LLM_ROLE_NONE, x, "decay_a");
    x = tdm_build_act(g->b, x, TDM_ACT_TANH);
    x = llm_build_project(g, layer, LLM_ROLE_RWKV_DECAY_B, LLM_ROLE_RWKV_DECAY, x, "decay_b");
    return build_exp(g, x);
}

/* RWKV-6 reads S before the token's own k, v and decay change it. So the scan gets them one token
 * later: in the step of a token it applies those of the token before, and then S is read. */
static void build_delayed(llm_graph_builder *g, int32_t layer, const int32_t kv[2], int32_t rate,
                          int64_t n_tok, tdm_scan_sources *src) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int32_t len = r->k_len;
    const int64_t n = r->n_head_v, ne[TDM_MAX_DIMS] = {len, n, n_tok, 1};
    tdm_conv_params p = {.n_segment = 3, .unit_len = {len, len, len}};
    int32_t *const to[3] = {&src->k, &src->v, &src->g};
    int32_t x = tdm_build_concat(g->b, tdm_build_concat(g->b, kv[0], kv[1], 0),
                                 tdm_build_scale(g->b, rate, -1, 0), 0);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_DELAY, &p.kv);
    x = tdm_build_conv1d(g->b, x, llm_build_weight(g, layer, LLM_ROLE_RWKV_DELAY), -1, g->step,
                         state, &p);
    x = tdm_build_reshape(g->b, x, len, 3 * n, n_tok, 1);
    for (int i = 0; i < 3; i++) {
        const int64_t offset[TDM_MAX_DIMS] = {0, i * n};
        *to[i] = tdm_build_slice(g->b, x, offset, ne);
    }
}

/* What a token reads of its own k and v: (r first k) v, a number for each head times v. */
static int32_t build_first(llm_graph_builder *g, int32_t layer, const int32_t kv[2], int32_t q,
                           int64_t n_tok) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t len = r->k_len, n = r->n_head_v;
    int32_t w =
        tdm_build_reshape(g->b, llm_build_weight(g, layer, LLM_ROLE_RWKV_FIRST), len, 1, n, 1);
    int32_t k = tdm_build_reshape(g->b, kv[0], len, n, n_tok, 1);
    int32_t v = tdm_build_reshape(g->b, kv[1], len, n, n_tok, 1);
    return tdm_build_mul(g->b, v, tdm_build_matmul(g->b, w, tdm_build_mul(g->b, k, q)));
}

/* k (1 - exp(-s)) and v for each head of r. 1 - exp(-s) = tanh(s / 2) / sigmoid(s). */
static void build_kv(llm_graph_builder *g, int32_t layer, const int32_t kv[2], int32_t rate,
                     tdm_scan_sources *src) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t len = r->k_len, n_kv = r->n_head_k, per = r->n_head_v / n_kv;
    const int64_t n_tok = tdm_build_shape(g->b, rate) != NULL ? tdm_build_shape(g->b, rate)[1] : 0;
    const int64_t all[TDM_MAX_DIMS] = {len, per, n_kv, n_tok};
    int32_t part = tdm_build_act(g->b, tdm_build_scale(g->b, rate, 0.5f, 0), TDM_ACT_TANH);
    part = tdm_build_div(g->b, part, tdm_build_act(g->b, rate, TDM_ACT_SIGMOID));
    part = tdm_build_reshape(g->b, part, len, per, n_kv, n_tok);
    int32_t k = tdm_build_reshape(g->b, kv[0], len, 1, n_kv, n_tok);
    int32_t v = tdm_build_reshape(g->b, kv[1], len, 1, n_kv, n_tok);
    k = tdm_build_mul(g->b, part, k);
    if (per > 1) v = tdm_build_repeat(g->b, v, all);
    src->k = tdm_build_reshape(g->b, k, len, r->n_head_v, n_tok, 1);
    src->v = tdm_build_reshape(g->b, v, len, r->n_head_v, n_tok, 1);
}

int32_t llm_build_rwkv(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_recurrent_spec *r = &g->model->specs[layer].recurrent;
    const int64_t n_tok = in->n_tok, len = r->k_len, n = r->n_head_v;
    const bool is_plain = g->model->layer[layer][LLM_ROLE_RWKV_FIRST] >= 0; /* RWKV-6 */
    tdm_scan_params p = {.heads_per_k = 1, .scale = is_plain ? 1 : 1.0f / sqrtf((float)len)};
    tdm_scan_sources src = {.a = -1, .beta = -1};
    int32_t mixes = build_mixes(g, layer, in), kv[2];
    int32_t q = llm_build_project(g, layer, LLM_ROLE_RWKV_R, LLM_ROLE_RWKV_R_BIAS,
                                  mix_of(g, mixes, MIX_R, n_tok), "rwkv_r");
    kv[0] = llm_build_project(g, layer, LLM_ROLE_RWKV_K, LLM_ROLE_RWKV_K_BIAS,
                              mix_of(g, mixes, MIX_K, n_tok), "rwkv_k");
    kv[1] = llm_build_project(g, layer, LLM_ROLE_RWKV_V, LLM_ROLE_RWKV_V_BIAS,
                              mix_of(g, mixes, MIX_V, n_tok), "rwkv_v");
    int32_t rate = build_rate(g, layer, mix_of(g, mixes, MIX_DECAY, n_tok));
    src.q = tdm_build_reshape(g->b, q, len, n, n_tok, 1);
    if (is_plain) {
        build_delayed(g, layer, kv, rate, n_tok, &src);
    } else {
        build_kv(g, layer, kv, rate, &src);
        src.g = tdm_build_reshape(g->b, tdm_build_scale(g->b, rate, -1, 0), len, n, n_tok, 1);
    }
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_MATRIX, &p.kv);
    int32_t o = tdm_build_linear_scan(g->b, &src, g->step, state, &p);
    if (!in->is_needed) return -1;
    if (is_plain) o = tdm_build_add(g->b, o, build_first(g, layer, kv, src.q, n_tok));
    o = llm_build_heads_norm(g, layer, o, n_tok);
    int32_t gate = llm_build_project(g, layer, LLM_ROLE_RWKV_GATE, LLM_ROLE_NONE,
                                     mix_of(g, mixes, MIX_GATE, n_tok), "rwkv_gate");
    o = tdm_build_glu(g->b, gate, o, is_plain ? TDM_ACT_SILU : TDM_ACT_SIGMOID);
    return llm_build_project(g, layer, LLM_ROLE_RWKV_OUT, LLM_ROLE_NONE, o, "rwkv_out");
}
