/* SPDX-License-Identifier: MIT
 *
 * ngram.c: what a layer adds to its streams for runs of tokens (block.h): for each token the rows
 * of llm_ngram (hparams.h) as one row e, of which each stream takes a share. The context reads the
 * rows in the file (context_rows.c).
 *
 *   s_i = n_k(Wk e)_i . n_q(x)_i / sqrt(n_embd)     of each stream x_i; norms of a stream alone
 *   v_i = sigmoid(sign(s_i) sqrt(|s_i|)) Wv e
 *   x_i += v_i + silu(conv(n_c(v)_i))      a filter for each channel, over tokens n_gram apart
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "quant/convert.h"
#include "llm/arch/arch.h"
#include "llm/block/block.h"

#define SMALLEST_SCORE 1e-6f /* a smaller |s| counts as this under the root */

/* The filters of the file, with zeros for the tokens between those that they read. */
static void declare_conv(llm_declarer *d) {
    static const char name[] = "ple_conv1d.weight";
    const llm_model *m = d->model;
    const llm_ngram *n = &m->hparams.ngram;
    const int64_t n_ch = (int64_t)m->hparams.n_stream * m->hparams.n_embd;
    const int64_t span = llm_ngram_span(n);
    const llm_gguf_tensor *t = llm_role_tensor(m->gguf, LLM_ROLE_NGRAM_CONV, d->layer);
    if (d->status != TDM_OK) return;
    if (t == NULL || t->ne[0] != n->n_conv || t->ne[1] != n_ch || t->ne[2] != 1 || t->ne[3] != 1 ||
        tdm_row_codec_get(t->type).dequantize == NULL) {
        d->status = tdm_fail(d->err, t == NULL ? TDM_NOT_FOUND : TDM_DATA_LOSS,
                             "%s: tensor 'blk.%d.%s' is missing, or is no matrix of numbers of "
                             "shape [%d, %lld]; the file is damaged or of another architecture",
                             llm_gguf_name(m->gguf), d->layer, name, n->n_conv, (long long)n_ch);
        return;
    }
    float *wide = llm_declare_made(d, LLM_ROLE_NGRAM_CONV);
    float *row = malloc((size_t)n->n_conv * sizeof *row);
    if (wide != NULL && row == NULL)
        d->status = tdm_fail(d->err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    for (int64_t c = 0; wide != NULL && row != NULL && c < n_ch; c++) {
        const size_t row_size = tdm_type_row_size(t->type, t->ne[0]);
        tdm_row_dequantize(t->type, (const uint8_t *)t->data + (size_t)c * row_size, row,
                           n->n_conv);
        for (int32_t i = 0; i < n->n_conv; i++) wide[c * span + i * n->n_gram] = row[i];
    }
    free(row);
}

void llm_declare_ngram(llm_declarer *d) {
    /* Only a context with recurrent states keeps the tokens from which the rows follow
     * (context_rows.c). */
    if (d->status == TDM_OK && d->model->specs[d->layer].recurrent.kind == LLM_MIXER_ATTENTION)
        d->status =
            tdm_fail(d->err, TDM_UNSUPPORTED,
                     "%s: layer %d reads rows for runs of tokens (key '%s.ple.layers'), but "
                     "has attention; such models are not supported",
                     llm_gguf_name(d->model->gguf), d->layer, d->model->hparams.arch);
    llm_declare(d, LLM_ROLE_NGRAM_KEY, true);
    llm_declare(d, LLM_ROLE_NGRAM_VALUE, true);
    llm_declare_shaped(d, LLM_ROLE_NGRAM_KEY_NORM);
    llm_declare_shaped(d, LLM_ROLE_NGRAM_QUERY_NORM);
    llm_declare_shaped(d, LLM_ROLE_NGRAM_CONV_NORM);
    declare_conv(d);
    float *ones = llm_declare_made(d, LLM_ROLE_NGRAM_SUM);
    for (int32_t i = 0; ones != NULL && i < d->model->hparams.n_embd; i++) ones[i] = 1;
}

/* Each stream of x [n_embd, n_stream, n_tok] normed. */
static int32_t build_norm(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x) {
    x = tdm_build_rms_norm(g->b, x, -1, g->model->hparams.norm_eps);
    return tdm_build_mul(g->b, x, llm_build_weight(g, layer, role));
}

/* sigmoid(sign(s) sqrt(|s|)) */
static int32_t build_gate(llm_graph_builder *g, int32_t s) {
    int32_t size = tdm_build_act(g->b, tdm_build_scale(g->b, s, -1, 0), TDM_ACT_RELU);
    size = tdm_build_add(g->b, size, tdm_build_act(g->b, s, TDM_ACT_RELU));
    int32_t sign = tdm_build_div(g->b, s, tdm_build_clamp(g->b, size, FLT_MIN, INFINITY));
    int32_t root = tdm_build_sqrt(g->b, tdm_build_clamp(g->b, size, SMALLEST_SCORE, INFINITY));
    return tdm_build_act(g->b, tdm_build_mul(g->b, sign, root), TDM_ACT_SIGMOID);
}

int32_t llm_build_ngram(llm_graph_builder *g, int32_t layer, int32_t x, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t n = h->n_stream, n_embd = h->n_embd, n_ch = n * n_embd;
    const int64_t ne[TDM_MAX_DIMS] = {n_embd, n, n_tok, 1};
    tdm_conv_params p = {.n_segment = 1, .unit_len = {h->n_embd}}; /* a unit is a stream */
    int32_t k =
        llm_build_project(g, layer, LLM_ROLE_NGRAM_KEY, LLM_ROLE_NONE, g->token_rows, "ngram_key");
    int32_t v = llm_build_project(g, layer, LLM_ROLE_NGRAM_VALUE, LLM_ROLE_NONE, g->token_rows,
                                  "ngram_value");
    k = tdm_build_reshape(g->b, k, n_embd, n, n_tok, 1);
    k = build_norm(g, layer, LLM_ROLE_NGRAM_KEY_NORM, k);
    k = tdm_build_mul(g->b, k, build_norm(g, layer, LLM_ROLE_NGRAM_QUERY_NORM, x));
    int32_t s = tdm_build_matmul(g->b, llm_build_weight(g, layer, LLM_ROLE_NGRAM_SUM), k);
    s = build_gate(g, tdm_build_scale(g->b, s, 1.0f / sqrtf((float)n_embd), 0));
    v = tdm_build_repeat(g->b, tdm_build_reshape(g->b, v, n_embd, 1, n_tok, 1), ne);
    v = tdm_build_mul(g->b, v, s);
    int32_t c = build_norm(g, layer, LLM_ROLE_NGRAM_CONV_NORM, v);
    c = tdm_build_reshape(g->b, c, n_ch, n_tok, 1, 1);
    int32_t state = llm_graph_recurrent_state(g, layer, LLM_RECURRENT_NGRAM, &p.kv);
    c = tdm_build_conv1d(g->b, c, llm_build_weight(g, layer, LLM_ROLE_NGRAM_CONV), -1, g->step,
                         state, &p);
    c = tdm_build_reshape(g->b, tdm_build_act(g->b, c, TDM_ACT_SILU), n_embd, n, n_tok, 1);
    return tdm_build_add(g->b, x, tdm_build_add(g->b, v, c));
}
