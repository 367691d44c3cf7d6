/* SPDX-License-Identifier: MIT
 *
 * altup.c: a model of several streams. Each layer predicts all streams, computes its blocks on the
 * first, and corrects all by the result (block.h). AltUp (arXiv:2301.13310) with Gemma 3n's
 * low-rank residual:
 *
 *   s_0 = embeddings, s_i = P_i s_0 with the length of s_0
 *   in each layer, with m(x) = tanh(Wr norm(x) / n_embd):
 *     p_i = s_i + sum_j (Wp m(s_0))[j, i] s_j
 *     n = norm(p_0)
 *     h = (p_0 + norm(attention(n)) + n + norm(R L n)) / sqrt(2)
 *     y = h + norm(channel(norm(h)))
 *     s_i = p_i + (1 + (Wc m(y))[i]) (y - p_0)
 *     s_i += what the layer reads of the token, of s_0 * scale (per_layer.c), for all but s_0
 *   result: the mean of s_0 and of U_i s_i with the length of s_0
 *
 * Streams are one value [n_embd, n_stream, n_tok].
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_altup(llm_declarer *d) {
    llm_declare(d, LLM_ROLE_ALTUP_ROUTER, true);
    llm_declare_norm(d, LLM_ROLE_ALTUP_ROUTER_NORM);
    llm_declare(d, LLM_ROLE_ALTUP_PREDICT, true);
    llm_declare(d, LLM_ROLE_ALTUP_CORRECT, true);
    llm_declare(d, LLM_ROLE_ALTUP_CORRECT_SCALE, true);
    llm_declare(d, LLM_ROLE_LAUREL_L, true);
    llm_declare(d, LLM_ROLE_LAUREL_R, true);
    llm_declare_norm(d, LLM_ROLE_LAUREL_NORM);
}

/* Streams first .. first + n - 1. */
static int32_t streams(llm_graph_builder *g, int32_t s, int64_t first, int64_t n, int64_t n_tok) {
    const int64_t offset[TDM_MAX_DIMS] = {0, first, 0, 0};
    const int64_t ne[TDM_MAX_DIMS] = {g->model->hparams.n_embd, n, n_tok, 1};
    return tdm_build_slice(g->b, s, offset, ne);
}

/* Stream 0 as [n_embd, n_tok]. */
static int32_t stream_first(llm_graph_builder *g, int32_t s, int64_t n_tok) {
    int32_t x = tdm_build_copy(g->b, streams(g, s, 0, 1, n_tok), TDM_TYPE_F32);
    return tdm_build_reshape(g->b, x, g->model->hparams.n_embd, n_tok, 1, 1);
}

/* x [n_embd, n_tok] n times, as streams. */
static int32_t repeated(llm_graph_builder *g, int32_t x, int64_t n, int64_t n_tok) {
    const int64_t ne[TDM_MAX_DIMS] = {g->model->hparams.n_embd, n, n_tok, 1};
    return tdm_build_repeat(g->b, tdm_build_reshape(g->b, x, ne[0], 1, n_tok, 1), ne);
}

/* W times all streams but the first, each scaled to the Euclidean length of x [n_embd, n_tok]. */
static int32_t build_others(llm_graph_builder *g, llm_role role, int32_t others, int32_t x,
                            int64_t n_tok) {
    const float n_embd = (float)g->model->hparams.n_embd;
    int32_t y = llm_build_project(g, -1, role, LLM_ROLE_NONE, others, "streams");
    int32_t length = tdm_build_sqrt(g->b, tdm_build_sum_sq(g->b, x));
    length = tdm_build_scale(g->b, length, 1.0f / sqrtf(n_embd), 0);
    y = tdm_build_rms_norm(g->b, y, -1, 1e-30f);
    return tdm_build_mul(g->b, y, tdm_build_reshape(g->b, length, 1, 1, n_tok, 1));
}

/* m(x) of the head comment, times a matrix. */
static int32_t build_mix(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x) {
    const llm_hparams *h = &g->model->hparams;
    int32_t m = llm_build_norm(g, layer, LLM_ROLE_ALTUP_ROUTER_NORM, h->norm, x);
    m = tdm_build_scale(g->b, m, 1.0f / (float)h->n_embd, 0);
    m = llm_build_project(g, layer, LLM_ROLE_ALTUP_ROUTER, LLM_ROLE_NONE, m, "streams_router");
    m = tdm_build_act(g->b, m, TDM_ACT_TANH);
    return llm_build_project(g, layer, role, LLM_ROLE_NONE, m, "streams_mix");
}

static int32_t build_predict(llm_graph_builder *g, int32_t layer, int32_t s, int64_t n_tok) {
    const int32_t n = g->model->hparams.n_stream;
    int32_t mix = build_mix(g, layer, LLM_ROLE_ALTUP_PREDICT, stream_first(g, s, n_tok)), p = s;
    mix = tdm_build_reshape(g->b, mix, n, n, n_tok, 1);
    for (int32_t j = 0; j < n; j++) {
        const int64_t offset[TDM_MAX_DIMS] = {j}, ne[TDM_MAX_DIMS] = {1, n, n_tok, 1};
        int32_t all = tdm_build_copy(g->b, streams(g, s, j, 1, n_tok), TDM_TYPE_F32);
        all = repeated(g, all, n, n_tok);
        p = tdm_build_add(g->b, p,
                          tdm_build_mul(g->b, all, tdm_build_slice(g->b, mix, offset, ne)));
    }
    return p;
}

static int32_t build_correct(llm_graph_builder *g, int32_t layer, int32_t p, int32_t first,
                             int32_t y, int64_t n_tok) {
    const int32_t n = g->model->hparams.n_stream;
    int32_t mix = build_mix(g, layer, LLM_ROLE_ALTUP_CORRECT, y);
    mix = tdm_build_reshape(g->b, tdm_build_scale(g->b, mix, 1, 1), 1, n, n_tok, 1);
    int32_t news = tdm_build_add(g->b, y, tdm_build_scale(g->b, first, -1, 0));
    return tdm_build_add(g->b, p, tdm_build_mul(g->b, repeated(g, news, n, n_tok), mix));
}

/* n plus its low-rank part. */
static int32_t build_laurel(llm_graph_builder *g, int32_t layer, int32_t n) {
    int32_t l = llm_build_project(g, layer, LLM_ROLE_LAUREL_L, LLM_ROLE_NONE, n, "laurel_l");
    l = llm_build_project(g, layer, LLM_ROLE_LAUREL_R, LLM_ROLE_NONE, l, "laurel_r");
    l = llm_build_norm(g, layer, LLM_ROLE_LAUREL_NORM, g->model->hparams.norm, l);
    return tdm_build_add(g->b, n, l);
}

/* One layer; -1 if nothing behind its cache is needed. */
static int32_t build_layer(llm_graph_builder *g, int32_t layer, const llm_layer_input *in,
                           int32_t s) {
    const llm_norm norm = g->model->hparams.norm;
    const llm_layer_spec *spec = &g->model->specs[layer];
    const int64_t n_tok = in->shape->n_tok;
    const int32_t n = g->model->hparams.n_stream;
    int32_t p = build_predict(g, layer, s, n_tok), first = stream_first(g, p, n_tok);
    llm_mixer_input mixer = {-1, in->pos, n_tok, llm_layer_is_needed(g, in->shape, layer)};
    mixer.x = llm_build_norm(g, layer, spec->norm_mixer, norm, first);
    int32_t h = llm_build_attention(g, layer, &mixer);
    if (h < 0) return -1;
    h = tdm_build_add(g->b, llm_build_norm(g, layer, spec->norm_mixer_post, norm, h), first);
    h = tdm_build_add(g->b, h, build_laurel(g, layer, mixer.x));
    h = tdm_build_scale(g->b, h, sqrtf(0.5f), 0);
    int32_t y = llm_build_norm(g, layer, spec->norm_channel, norm, h);
    y = llm_build_ffn(g, layer, y, "ffn_out");
    y = tdm_build_add(g->b, llm_build_norm(g, layer, spec->norm_channel_post, norm, y), h);
    s = build_correct(g, layer, p, first, y, n_tok);
    first = stream_first(g, s, n_tok);
    int32_t scale = llm_graph_weight(g, g->model->layer[layer][LLM_ROLE_ALTUP_CORRECT_SCALE]);
    int32_t own = llm_build_per_layer(g, layer, in->per_layer, tdm_build_mul(g->b, first, scale));
    int32_t rest =
        tdm_build_add(g->b, streams(g, s, 1, n - 1, n_tok), repeated(g, own, n - 1, n_tok));
    return tdm_build_concat(g->b, streams(g, s, 0, 1, n_tok), rest, 1);
}

int32_t llm_build_altup(llm_graph_builder *g, const llm_layer_input *in, int32_t embd) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t n_tok = in->shape->n_tok;
    const int32_t n_other = h->n_stream - 1;
    int32_t others =
        build_others(g, LLM_ROLE_ALTUP_PROJ, repeated(g, embd, n_other, n_tok), embd, n_tok);
    int32_t s =
        tdm_build_concat(g->b, tdm_build_reshape(g->b, embd, h->n_embd, 1, n_tok, 1), others, 1);
    for (int32_t layer = 0; layer < h->n_layer; layer++) {
        s = build_layer(g, layer, in, s);
        if (s < 0) return -1;
        tdm_build_name(g->b, s, "out", layer);
    }
    int32_t x = stream_first(g, s, n_tok), sum = x;
    others = tdm_build_copy(g->b, streams(g, s, 1, n_other, n_tok), TDM_TYPE_F32);
    others = build_others(g, LLM_ROLE_ALTUP_UNEMBD, others, x, n_tok);
    for (int32_t i = 0; i < n_other; i++) {
        int32_t one = tdm_build_copy(g->b, streams(g, others, i, 1, n_tok), TDM_TYPE_F32);
        sum = tdm_build_add(g->b, sum, tdm_build_reshape(g->b, one, h->n_embd, n_tok, 1, 1));
    }
    return tdm_build_scale(g->b, sum, 1.0f / (float)h->n_stream, 0);
}
