/* SPDX-License-Identifier: MIT
 *
 * layers.c: a whole model from its blocks: its weights, and its forward graph from tokens to
 * logits. In a layer the residual stream x becomes, with the norms that the table of the
 * architecture has,
 *
 *   sequential: h = x + p1(mixer(n1(x))), y = h + p2(channel(n2(h)))
 *   parallel:   y = x + p1(mixer(n1(x))) + p2(channel(n2(x)))      n2 = n1 where there is no n2
 *   with norms of sums: h = s1(x + mixer(x)), y = s2(h + channel(h))
 *
 * A model may compute its layers in several rounds: then a round has the weights of the first one.
 *
 * A decoder behind an encoder adds attention over what that gives to h, before the channel block.
 * An encoder ends with its hidden states: it has no output head.
 */
#include <math.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* ---- Weights ---- */

/* What joins blocks, of a layer or of the head. */
static void stream_declare(llm_declarer *d) {
    if (d->model->arch->stream == LLM_STREAM_HYPER) llm_declare_hyper(d);
    if (d->model->arch->stream == LLM_STREAM_DEPTH) llm_declare_depth(d);
    if (d->model->arch->stream == LLM_STREAM_ALTUP && d->layer >= 0) llm_declare_altup(d);
}

/* Whether the layer is of a decoder that reads what an encoder gives. */
static bool reads_encoder(const llm_model *m, int32_t layer) {
    return m->hparams.n_layer_encoder > 0 && layer >= m->hparams.n_layer_encoder;
}

static void layer_declare(llm_declarer *d) {
    const llm_layer_spec *s = &d->model->specs[d->layer];
    llm_declare_norm(d, s->norm_mixer);
    llm_declare_norm(d, s->norm_mixer_post);
    if (llm_layer_has_channel(s)) llm_declare_norm(d, s->norm_channel);
    llm_declare_norm(d, s->norm_channel_post);
    llm_declare_norm(d, d->model->arch->norm_mixer_sum);
    if (llm_layer_has(d->model->gguf, d->model->arch->norm_mixer_sum_2, d->layer))
        llm_declare_norm(d, d->model->arch->norm_mixer_sum_2);
    llm_declare_norm(d, d->model->arch->norm_channel_sum);
    if (s->n_ff_expert > 0) llm_declare_norm(d, d->model->arch->norm_experts);
    if (d->model->arch->has_embd_skip) llm_declare(d, LLM_ROLE_LAYER_SCALE, true);
    if (d->model->arch->has_layer_scale) llm_declare(d, LLM_ROLE_LAYER_SCALE, false);
    if (d->model->arch->has_twin_channel && s->n_ff_expert > 0) {
        llm_declare_norm(d, LLM_ROLE_FFN_PRE_NORM_2);
        llm_declare_norm(d, LLM_ROLE_FFN_POST_NORM_1);
        llm_declare_norm(d, LLM_ROLE_FFN_POST_NORM_2);
        llm_declare(d, LLM_ROLE_FFN_ROUTER_NORM, true);
    }
    llm_declare_per_layer(d);
    stream_declare(d);
    switch (s->mixer) {
    case LLM_MIXER_LATENT: llm_declare_latent(d); break;
    case LLM_MIXER_LATENT_WIDE: llm_declare_latent_wide(d); break;
    case LLM_MIXER_COMPRESSED: llm_declare_compressed(d); break;
    case LLM_MIXER_ATTENTION: llm_declare_attention(d); break;
    case LLM_MIXER_DELTA: llm_declare_delta(d); break;
    case LLM_MIXER_KDA: llm_declare_kda(d); break;
    case LLM_MIXER_LIGHTNING: llm_declare_lightning(d); break;
    case LLM_MIXER_RWKV: llm_declare_rwkv(d); break;
    case LLM_MIXER_RWKV7: llm_declare_rwkv7(d); break;
    case LLM_MIXER_SHORT_CONV: llm_declare_short_conv(d); break;
    case LLM_MIXER_MAMBA: llm_declare_mamba(d); break;
    case LLM_MIXER_MAMBA2: llm_declare_mamba2(d); break;
    case LLM_MIXER_MAMBA_HEADS: llm_declare_mamba_heads(d); break;
    case LLM_MIXER_LINEAR: llm_declare(d, LLM_ROLE_LINEAR_OUT, true); break;
    case LLM_MIXER_NONE: break;
    }
    if (d->model->arch->is_recurrent_beside && s->recurrent.kind == LLM_MIXER_MAMBA2)
        llm_declare_mamba2(d);
    if (reads_encoder(d->model, d->layer)) llm_declare_cross(d);
    if (s->n_ff_expert > 0) llm_declare_experts(d);
    if (s->n_ff > 0) llm_declare_ffn(d);
}

static tdm_status model_declare(llm_model *model, tdm_error *err) {
    llm_declarer d = {model, err, TDM_OK, -1};
    if (model->lender != NULL) { /* its own weights first */
        d.layer = model->hparams.layer_first;
        layer_declare(&d);
        llm_declare_draft(&d);
        d.layer = -1;
        model->n_own = model->n_weight;
        llm_declare_ends(&d);
        stream_declare(&d);
        return d.status;
    }
    llm_declare_ends(&d);
    stream_declare(&d);
    const int32_t n_layer = model->hparams.n_layer, n_stored = model->hparams.n_layer_stored;
    for (d.layer = 0; d.layer < (n_stored > 0 ? n_stored : n_layer) && d.status == TDM_OK;
         d.layer++)
        layer_declare(&d);
    /* From the last layer down, so that a layer is read before it is written. */
    for (int32_t layer = n_layer - 1; layer >= 0 && d.status == TDM_OK; layer--) {
        const int32_t from = model->specs[layer].weight_layer;
        if (from != layer) memcpy(model->layer[layer], model->layer[from], sizeof *model->layer);
    }
    model->n_own = model->n_weight;
    return d.status;
}

/* ---- Graph ---- */

/* The norm behind a block. */
static int32_t norm_post(llm_graph_builder *g, int32_t layer, llm_role role, int32_t x) {
    const float eps = g->model->arch->post_norm_eps;
    if (eps == 0 || role == LLM_ROLE_NONE) return llm_build_norm_if(g, layer, role, x);
    return tdm_build_rms_norm(g->b, x, llm_graph_weight(g, g->model->layer[layer][role]), eps);
}

static int32_t scale_if(llm_graph_builder *g, int32_t x, float scale) {
    return scale == 0 || scale == 1 ? x : tdm_build_scale(g->b, x, scale, 0);
}

int32_t llm_build_mixer(llm_graph_builder *g, int32_t layer, const llm_mixer_input *in) {
    const llm_model *m = g->model;
    int32_t o = -1;
    switch (m->specs[layer].mixer) {
    case LLM_MIXER_LATENT: o = llm_build_latent(g, layer, in); break;
    case LLM_MIXER_LATENT_WIDE: o = llm_build_latent_wide(g, layer, in); break;
    case LLM_MIXER_COMPRESSED: o = llm_build_compressed(g, layer, in); break;
    case LLM_MIXER_ATTENTION: o = llm_build_attention(g, layer, in); break;
    case LLM_MIXER_DELTA: o = llm_build_delta(g, layer, in); break;
    case LLM_MIXER_KDA: o = llm_build_kda(g, layer, in); break;
    case LLM_MIXER_LIGHTNING: o = llm_build_lightning(g, layer, in); break;
    case LLM_MIXER_RWKV: o = llm_build_rwkv(g, layer, in); break;
    case LLM_MIXER_RWKV7: o = llm_build_rwkv7(g, layer, in); break;
    case LLM_MIXER_SHORT_CONV: o = llm_build_short_conv(g, layer, in); break;
    case LLM_MIXER_MAMBA: o = llm_build_mamba(g, layer, in); break;
    case LLM_MIXER_MAMBA2: o = llm_build_mamba2(g, layer, in); break;
    case LLM_MIXER_MAMBA_HEADS: o = llm_build_mamba_heads(g, layer, in); break;
    case LLM_MIXER_LINEAR:
        o = llm_build_project(g, layer, LLM_ROLE_LINEAR_OUT, LLM_ROLE_NONE, in->x, "linear");
        break;
    case LLM_MIXER_NONE: break;
    }
    if (m->arch->is_recurrent_beside && m->specs[layer].recurrent.kind == LLM_MIXER_MAMBA2) {
        int32_t beside = llm_build_mamba2(g, layer, in);
        if (o >= 0) o = tdm_build_add(g->b, o, beside);
    }
    if (o < 0) return -1;
    o = norm_post(g, layer, m->specs[layer].norm_mixer_post, o);
    return scale_if(g, o, m->hparams.residual_scale);
}

/* What the channel block of a layer reads. */
typedef struct channel_input {
    int32_t x;      /* [n_embd, n_row] normed residual stream */
    int32_t before; /* the stream before the mixer; -1 = nothing reads it */
    int32_t stream; /* the stream without the norm of x */
} channel_input;

/* The experts of a layer, and the dense block beside them where there is one. */
static int32_t build_routed(llm_graph_builder *g, int32_t layer, const channel_input *in) {
    const llm_arch *arch = g->model->arch;
    int32_t x = in->x;
    if (arch->norm_experts != LLM_ROLE_NONE)
        x = llm_build_norm_if(g, layer, arch->norm_experts, in->before);
    int32_t logit = llm_build_router(g, layer, arch->is_router_first ? in->before : x);
    int32_t y = llm_build_experts(g, layer, logit, x);
    if (g->model->specs[layer].n_ff == 0) return y;
    y = tdm_build_add(g->b, y, llm_build_ffn(g, layer, in->x, "ffn_dense"));
    return scale_if(g, y, arch->both_scale);
}

/* Experts and a dense block beside them: p1(dense(x)) + p2(experts(n2(stream))). The router reads
 * the stream with a norm of its own. */
static int32_t build_twin(llm_graph_builder *g, int32_t layer, const channel_input *in) {
    const llm_hparams *h = &g->model->hparams;
    int32_t weight = llm_graph_weight(g, g->model->layer[layer][LLM_ROLE_FFN_ROUTER_NORM]);
    int32_t r = tdm_build_rms_norm(g->b, in->stream, weight, h->norm_eps);
    r = tdm_build_scale(g->b, r, 1.0f / sqrtf((float)h->n_embd), 0);
    int32_t y = llm_build_norm(g, layer, LLM_ROLE_FFN_PRE_NORM_2, h->norm, in->stream);
    y = llm_build_experts(g, layer, llm_build_router(g, layer, r), y);
    y = llm_build_norm(g, layer, LLM_ROLE_FFN_POST_NORM_2, h->norm, y);
    int32_t dense = llm_build_ffn(g, layer, in->x, "ffn_dense");
    dense = llm_build_norm(g, layer, LLM_ROLE_FFN_POST_NORM_1, h->norm, dense);
    return tdm_build_add(g->b, dense, y);
}

static int32_t build_channel(llm_graph_builder *g, int32_t layer, const channel_input *in) {
    const llm_model *m = g->model;
    int32_t y;
    if (m->specs[layer].n_ff_expert == 0)
        y = llm_build_ffn(g, layer, in->x, "ffn_out");
    else
        y = m->arch->has_twin_channel ? build_twin(g, layer, in) : build_routed(g, layer, in);
    y = norm_post(g, layer, m->specs[layer].norm_channel_post, y);
    return scale_if(g, y, m->hparams.residual_scale);
}

/* After the last mixer only the rows that give logits are computed. */
int32_t llm_build_out_rows(llm_graph_builder *g, int32_t x) {
    return tdm_build_get_rows(g->b, x, tdm_build_step_field(g->b, TDM_STEP_OUT_ROW), 0);
}

/* Whether the last layer computes all tokens, not only those that give logits: their hidden states
 * are read by a layer that drafts, or are the result of an encoder. */
static bool gives_all_states(const llm_graph_builder *g, const llm_step_shape *shape) {
    if (g->model->arch->is_encoder) return true;
    return shape->has_hidden != LLM_HIDDEN_NONE && g->model->hparams.layer_first == 0;
}

bool llm_layer_is_short(const llm_graph_builder *g, const llm_step_shape *shape, int32_t layer) {
    return layer == g->model->hparams.n_layer - 1 && shape->n_out < shape->n_tok &&
           !gives_all_states(g, shape) && g->model->arch->ffn != LLM_FFN_SHIFTED;
}

bool llm_layer_is_needed(const llm_graph_builder *g, const llm_step_shape *shape, int32_t layer) {
    const llm_model *m = g->model;
    if (shape->n_out > 0 || gives_all_states(g, shape) || m->arch->ffn == LLM_FFN_SHIFTED)
        return true;
    for (int32_t l = layer + 1; l < m->hparams.n_layer; l++)
        if (m->specs[l].kv_from_layer < 0) return true;
    return false;
}

int32_t llm_build_channel(llm_graph_builder *g, int32_t layer, int32_t x) {
    const channel_input in = {x, -1, -1};
    return build_channel(g, layer, &in);
}

/* The stream x of a layer after its blocks: adds the per-layer rows, halves and scales it. */
static int32_t build_layer_end(llm_graph_builder *g, int32_t layer, const llm_layer_input *in,
                               int32_t x, bool is_short) {
    const llm_model *m = g->model;
    if (in->per_layer >= 0) {
        int32_t rows = is_short ? llm_build_out_rows(g, in->per_layer) : in->per_layer;
        x = tdm_build_add(g->b, x, llm_build_per_layer(g, layer, rows, x));
    }
    const int32_t halving = m->hparams.halving_period;
    if (halving > 0 && (layer + 1) % halving == 0) x = tdm_build_scale(g->b, x, 0.5f, 0);
    if (!m->arch->has_layer_scale || m->layer[layer][LLM_ROLE_LAYER_SCALE] < 0) return x;
    return tdm_build_mul(g->b, x, llm_graph_weight(g, m->layer[layer][LLM_ROLE_LAYER_SCALE]));
}

/* A layer whose channel block reads what its mixer reads: x + o + channel(normed x). `o` is the
 * mixer's result, `mixer_x` its input. */
static int32_t build_parallel(llm_graph_builder *g, int32_t layer, int32_t x, int32_t o,
                              int32_t mixer_x, bool is_short) {
    const llm_role norm = g->model->specs[layer].norm_channel;
    channel_input channel = {mixer_x, -1, -1};
    if (norm != LLM_ROLE_NONE) channel.x = llm_build_norm_if(g, layer, norm, x);
    if (is_short) {
        x = llm_build_out_rows(g, x);
        o = llm_build_out_rows(g, o);
        channel.x = llm_build_out_rows(g, channel.x);
        tdm_build_set_role(g->b, tdm_build_step_field(g->b, TDM_STEP_OUT_ROLE));
    }
    return tdm_build_add(g->b, x, tdm_build_add(g->b, o, build_channel(g, layer, &channel)));
}

int32_t llm_build_layer(llm_graph_builder *g, int32_t layer, const llm_layer_input *input,
                        int32_t x) {
    const llm_model *m = g->model;
    const llm_step_shape *shape = input->shape;
    const llm_layer_spec *s = &m->specs[layer];
    tdm_builder *b = g->b;
    bool is_short = llm_layer_is_short(g, shape, layer);
    llm_mixer_input in = {-1, input->pos, shape->n_tok, llm_layer_is_needed(g, shape, layer)};
    in.x = llm_build_norm_if(g, layer, s->norm_mixer, x);
    int32_t o = llm_build_mixer(g, layer, &in);
    if (o < 0 && (s->mixer != LLM_MIXER_NONE || !in.is_needed)) return -1;
    if (s->is_parallel) return build_parallel(g, layer, x, o, in.x, is_short);
    channel_input channel = {-1, -1, -1};
    int32_t before = x;
    bool is_kept = m->arch->is_router_first || m->arch->norm_experts != LLM_ROLE_NONE;
    if (is_kept) channel.before = is_short ? llm_build_out_rows(g, x) : x;
    if (m->arch->has_normed_stream) x = scale_if(g, in.x, m->hparams.stream_scale);
    if (o >= 0) x = tdm_build_add(b, x, o);
    if (reads_encoder(m, layer))
        x = tdm_build_add(b, x, llm_build_cross(g, layer, x, shape->n_tok));
    if (is_short) {
        x = llm_build_out_rows(g, x);
        tdm_build_set_role(b, tdm_build_step_field(b, TDM_STEP_OUT_ROLE));
    }
    x = llm_build_norm_if(g, layer, m->arch->norm_mixer_sum, x);
    if (m->layer[layer][m->arch->norm_mixer_sum_2] >= 0) /* encoders alone: no layer is short */
        x = llm_build_norm_if(g, layer, m->arch->norm_mixer_sum_2, tdm_build_add(b, x, before));
    if (!llm_layer_has_channel(s)) return x;
    channel.stream = x;
    channel.x = llm_build_norm_if(g, layer, s->norm_channel, x);
    if (m->arch->has_normed_stream) x = scale_if(g, channel.x, m->hparams.stream_scale);
    x = tdm_build_add(b, x, build_channel(g, layer, &channel));
    x = llm_build_norm_if(g, layer, m->arch->norm_channel_sum, x);
    return build_layer_end(g, layer, input, x, is_short);
}

/* x plus the embeddings times the layer's layer_output_scale. */
static int32_t add_embedding(llm_graph_builder *g, const llm_step_shape *shape, int32_t layer,
                             int32_t x, int32_t embd) {
    int32_t scale = llm_graph_weight(g, g->model->layer[layer][LLM_ROLE_LAYER_SCALE]);
    if (llm_layer_is_short(g, shape, layer)) embd = llm_build_out_rows(g, embd);
    return tdm_build_add(g->b, x, tdm_build_mul(g->b, embd, scale));
}

static int32_t build_embedding(llm_graph_builder *g, int32_t pos) {
    const llm_model *m = g->model;
    const int32_t *global = m->global;
    int32_t x = llm_build_token_rows(g, global[LLM_ROLE_TOKEN_EMBD],
                                     tdm_build_step_field(g->b, TDM_STEP_TOKEN));
    x = scale_if(g, x, m->hparams.embd_scale);
    if (global[LLM_ROLE_TOKEN_TYPES] >= 0) { /* all tokens are of type 0: of one text */
        const int64_t first[TDM_MAX_DIMS] = {0}, ne[TDM_MAX_DIMS] = {m->hparams.n_embd, 1, 1, 1};
        int32_t types = llm_graph_weight(g, global[LLM_ROLE_TOKEN_TYPES]);
        x = tdm_build_add(g->b, x, tdm_build_slice(g->b, types, first, ne));
    }
    if (global[LLM_ROLE_POSITION_EMBD] >= 0) {
        int32_t table = llm_graph_weight(g, global[LLM_ROLE_POSITION_EMBD]);
        x = tdm_build_add(g->b, x, tdm_build_get_rows(g->b, table, pos, 0));
    }
    if (m->arch->has_embd_norm)
        x = llm_build_norm(g, -1, LLM_ROLE_TOKEN_EMBD_NORM, m->hparams.norm, x);
    if (m->arch->has_bare_embd_norm) x = llm_build_norm(g, -1, LLM_ROLE_NONE, m->hparams.norm, x);
    tdm_build_name(g->b, x, "embd", -1);
    return x;
}

/* The norm before the output head. */
static int32_t build_norm_out(llm_graph_builder *g, int32_t x) {
    const llm_model *m = g->model;
    const llm_role norm = m->arch->norm_out;
    const llm_role own = m->hparams.layer_first > 0 ? llm_draft_norm(m) : LLM_ROLE_NONE;
    if (m->arch->stream == LLM_STREAM_STACKS || m->arch->has_no_norm_out) return x;
    if (own != LLM_ROLE_NONE)
        return llm_build_norm(g, m->hparams.layer_first, own, m->hparams.norm, x);
    return llm_build_norm(g, -1, norm != LLM_ROLE_NONE ? norm : LLM_ROLE_OUTPUT_NORM,
                          m->hparams.norm, x);
}

/* The matrix of the output head. */
static int32_t head_weight(const llm_model *m) {
    const int32_t own =
        m->hparams.layer_first > 0 ? m->layer[m->hparams.layer_first][LLM_ROLE_NEXTN_HEAD] : -1;
    if (own >= 0) return own;
    return m->global[m->global[LLM_ROLE_OUTPUT] >= 0 ? LLM_ROLE_OUTPUT : LLM_ROLE_TOKEN_EMBD];
}

static int32_t build_head(llm_graph_builder *g, int32_t x) {
    const llm_model *m = g->model;
    int32_t logits = llm_build_product(g, head_weight(m), x);
    if (m->global[LLM_ROLE_OUTPUT_BIAS] >= 0)
        logits = tdm_build_add(g->b, logits, llm_graph_weight(g, m->global[LLM_ROLE_OUTPUT_BIAS]));
    logits = scale_if(g, logits, m->hparams.logit_scale);
    if (m->hparams.logit_softcap > 0) {
        logits = tdm_build_scale(g->b, logits, 1.0f / m->hparams.logit_softcap, 0);
        logits = tdm_build_act(g->b, logits, TDM_ACT_TANH);
        logits = tdm_build_scale(g->b, logits, m->hparams.logit_softcap, 0);
    }
    return logits;
}

/* Makes the hidden states an output: the stream x, or its norm y, or all streams, as the
 * architecture's layers that draft read them. Returns the rows of y that have logits, -1 if there
 * are none. */
static int32_t build_hidden(llm_graph_builder *g, const llm_step_shape *shape, int32_t x,
                            int32_t y) {
    const bool is_short = gives_all_states(g, shape) && shape->n_out < shape->n_tok;
    const bool is_draft = shape->has_hidden == LLM_HIDDEN_DRAFT && !g->model->arch->is_encoder;
    g->hidden = is_draft && g->model->arch->is_hidden_raw ? x : y;
    if (is_draft && g->streams >= 0) g->hidden = g->streams;
    tdm_build_output(g->b, g->hidden, "hidden");
    if (shape->n_out == 0 || g->model->arch->is_encoder) return -1;
    if (!is_short) return y;
    y = llm_build_out_rows(g, y);
    tdm_build_set_role(g->b, tdm_build_step_field(g->b, TDM_STEP_OUT_ROLE));
    return y;
}

/* Layers of several streams; the rows that have logits. */
static int32_t build_streams(llm_graph_builder *g, const llm_layer_input *in, int32_t embd) {
    int32_t x = llm_build_altup(g, in, embd);
    if (x < 0 || in->shape->n_out == in->shape->n_tok || gives_all_states(g, in->shape)) return x;
    x = llm_build_out_rows(g, x);
    tdm_build_set_role(g->b, tdm_build_step_field(g->b, TDM_STEP_OUT_ROLE));
    return x;
}

/* The layers of an encoder: its result as keys and values of each layer of the decoder. */
static void build_encoder(llm_graph_builder *g, const llm_layer_input *in, int32_t x) {
    const llm_hparams *h = &g->model->hparams;
    for (int32_t layer = 0; layer < h->n_layer_encoder; layer++) {
        x = llm_build_layer(g, layer, in, x);
        tdm_build_name(g->b, x, "out", layer);
    }
    x = llm_build_norm(g, -1, LLM_ROLE_ENC_OUTPUT_NORM, h->norm, x);
    for (int32_t layer = h->n_layer_encoder; layer < h->n_layer; layer++)
        llm_build_cross_write(g, layer, x, in->shape->n_tok);
}

/* Rows are sent to the device in the file's type, which has fewer bytes than f32; the device
 * decodes them. */
static void file_rows_build(llm_graph_builder *g, const llm_gguf_tensor *table, int32_t n_row) {
    const int64_t n = (int64_t)n_row * g->n_tok;
    g->file_rows =
        tdm_build_input(g->b, "file_rows", table->type, (const int64_t[]){table->ne[0], n, 1, 1});
    g->file_row_ids =
        tdm_build_input(g->b, "file_row_ids", TDM_TYPE_I32, (const int64_t[]){n, 1, 1, 1});
    const int32_t rows = tdm_build_get_rows(g->b, g->file_rows, g->file_row_ids, 0);
    g->token_rows = tdm_build_reshape(g->b, rows, n_row * table->ne[0], g->n_tok, 1, 1);
}

/* Sets what a builder has before the first node of a step: no values yet. */
static void builder_begin(llm_graph_builder *g, const llm_step_shape *shape) {
    g->tokens = g->hidden = g->hidden_in = g->select = g->file_rows = g->value_first = -1;
    g->expert_ids = g->streams = g->file_row_ids = g->token_rows = -1;
    g->next_row = g->has_next = -1;
    g->adapters = shape->adapters;
    g->n_tok = shape->n_tok;
    g->n_out = shape->n_out;
    for (int32_t a = 0; a < LLM_MAX_ADAPTERS; a++) g->lora[a] = g->lora_out[a] = -1;
}

/* The layers, those of an encoder excepted, from the embeddings `embd`. -1 if the step needs
 * nothing behind them. */
static int32_t layers_build(llm_graph_builder *g, const llm_layer_input *in, int32_t embd) {
    const llm_hparams *h = &g->model->hparams;
    switch (g->model->arch->stream) {
    case LLM_STREAM_HYPER: return llm_build_hyper(g, in, embd);
    case LLM_STREAM_ALTUP: return build_streams(g, in, embd);
    case LLM_STREAM_DEPTH: return llm_build_depth(g, in, embd);
    case LLM_STREAM_STACKS: return llm_build_stacks(g, in, embd);
    case LLM_STREAM_ONE: break;
    }
    int32_t x = embd;
    for (int32_t layer = h->layer_first + h->n_layer_encoder; layer < h->n_layer && x >= 0;
         layer++) {
        x = llm_build_layer(g, layer, in, x);
        if (x >= 0 && g->model->arch->has_embd_skip)
            x = add_embedding(g, in->shape, layer, x, embd);
        if (x >= 0) tdm_build_name(g->b, x, "out", layer);
        if (h->has_round_norm && (layer + 1) % h->n_layer_stored == 0 && layer + 1 < h->n_layer)
            x = llm_build_norm(g, -1, LLM_ROLE_OUTPUT_NORM, h->norm, x);
    }
    return x;
}

static int32_t model_build(llm_graph_builder *g, const llm_step_shape *shape) {
    tdm_builder *b = g->b;
    int32_t n_row;
    const bool is_draft = g->model->hparams.layer_first > 0;
    const llm_gguf_tensor *table = llm_hparams_file_table(&g->model->hparams, &n_row);
    builder_begin(g, shape);
    if (table != NULL) file_rows_build(g, table, n_row);
    if (g->model->hparams.n_layer_given > 0) {
        const llm_hparams *h = &g->model->hparams;
        const int64_t ne[] = {h->n_expert_used, h->n_layer_given, shape->n_tok, 1};
        g->expert_ids = tdm_build_input(b, "expert_ids", TDM_TYPE_I32, ne);
    }
    int32_t pos = tdm_build_step_field(b, TDM_STEP_POS);
    int32_t embd = is_draft ? llm_build_draft_input(g, shape) : build_embedding(g, pos);
    tdm_build_set_role(b, tdm_build_step_field(b, TDM_STEP_ROLE));
    int32_t rows = -1;
    if (g->model->hparams.n_per_layer > 0) rows = llm_build_per_layer_rows(g, embd, shape->n_tok);
    const llm_layer_input in = {shape, pos, rows};
    const bool has_encoder = g->model->hparams.n_layer_encoder > 0;
    if (has_encoder && shape->part != LLM_PART_DECODER) build_encoder(g, &in, embd);
    if (shape->part == LLM_PART_ENCODER) return -1;
    int32_t x = layers_build(g, &in, embd);
    if (x < 0) return -1;
    /* A channel block with a state computes all tokens of the last layer. */
    if (g->model->arch->ffn == LLM_FFN_SHIFTED && !gives_all_states(g, shape)) {
        if (shape->n_out == 0) return -1;
        if (shape->n_out < shape->n_tok) {
            x = llm_build_out_rows(g, x);
            tdm_build_set_role(b, tdm_build_step_field(b, TDM_STEP_OUT_ROLE));
        }
    }
    int32_t y = build_norm_out(g, x);
    const bool has_hidden = shape->has_hidden != LLM_HIDDEN_NONE || g->model->arch->is_encoder;
    if (has_hidden && (y = build_hidden(g, shape, x, y)) < 0) return -1;
    int32_t logits = build_head(g, y);
    if (shape->n_candidate > 0) {
        logits = tdm_build_top_k(b, logits, shape->n_candidate, 0, &g->tokens);
        tdm_build_output(b, g->tokens, "candidates");
    }
    tdm_build_output(b, logits, "logits");
    return logits;
}

const llm_model_maker llm_layers_maker = {model_declare, model_build};
