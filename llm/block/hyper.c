/* SPDX-License-Identifier: MIT
 *
 * hyper.c: several parallel residual streams. Each block reads a weighted sum of them, and adds its
 * result to each with other weights (block.h). Independent hyper-connections, after
 * arXiv:2409.19606:
 *
 *   [p, q] = Wf norm(x_1 .. x_n)             of all streams as one row
 *   y = block(n(sum_i (sigmoid(s p_i + b_i) + eps) x_i))
 *   x_i += (m sigmoid(t q_i + c_i) + eps) y
 *
 * The head of the model reads such a sum, too. Manifold-constrained ones, after arXiv:2512.24880,
 * also mix the streams by a matrix that is nearly doubly stochastic:
 *
 *   [p, q, r] = Wf norm(x_1 .. x_n)
 *   x_i = sum_j sinkhorn(u r + d)_ij x_j + m sigmoid(t q_i + c_i) y
 *
 * With matrices of low rank, and no norm of the block:
 *
 *   h_i = norm(x_i)
 *   y = block(mean_i (sigmoid(Wup silu(Wdown [h_1 .. h_n] / n))_i h_i))
 *   x_i += 2 sigmoid((Wwrite [h_1 .. h_n])_i / n) y
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* The weights of a block's sums. */
typedef struct hyper_roles {
    llm_role matrix, base, scale;   /* of full rank: Wf, b and c and d, s and t and u */
    llm_role norm, down, up, write; /* of low rank: of h, Wdown, Wup, Wwrite */
} hyper_roles;

static const hyper_roles mixer_roles = {LLM_ROLE_HYPER_MIXER,        LLM_ROLE_HYPER_MIXER_BASE,
                                        LLM_ROLE_HYPER_MIXER_SCALE,  LLM_ROLE_STREAMS_MIXER_NORM,
                                        LLM_ROLE_STREAMS_MIXER_DOWN, LLM_ROLE_STREAMS_MIXER_UP,
                                        LLM_ROLE_STREAMS_MIXER_WRITE};
static const hyper_roles channel_roles = {
    LLM_ROLE_HYPER_CHANNEL,        LLM_ROLE_HYPER_CHANNEL_BASE,   LLM_ROLE_HYPER_CHANNEL_SCALE,
    LLM_ROLE_STREAMS_CHANNEL_NORM, LLM_ROLE_STREAMS_CHANNEL_DOWN, LLM_ROLE_STREAMS_CHANNEL_UP,
    LLM_ROLE_STREAMS_CHANNEL_WRITE};
static const hyper_roles head_roles = {LLM_ROLE_HYPER_HEAD,
                                       LLM_ROLE_HYPER_HEAD_BASE,
                                       LLM_ROLE_HYPER_HEAD_SCALE,
                                       LLM_ROLE_STREAMS_HEAD_NORM,
                                       LLM_ROLE_STREAMS_HEAD_DOWN,
                                       LLM_ROLE_STREAMS_HEAD_UP,
                                       LLM_ROLE_NONE};

/* The head of a layer that drafts, where it has one of its own. */
static const hyper_roles draft_roles = {
    LLM_ROLE_NONE,           LLM_ROLE_NONE,         LLM_ROLE_NONE, LLM_ROLE_NEXTN_MIX_NORM,
    LLM_ROLE_NEXTN_MIX_DOWN, LLM_ROLE_NEXTN_MIX_UP, LLM_ROLE_NONE};

static void roles_declare(llm_declarer *d, const hyper_roles *roles) {
    if (d->model->hparams.n_stream_rank > 0) {
        llm_declare_shaped(d, roles->norm);
        llm_declare(d, roles->down, true);
        llm_declare(d, roles->up, true);
        llm_declare(d, roles->write, true);
        return;
    }
    llm_declare(d, roles->matrix, true);
    llm_declare(d, roles->base, true);
    llm_declare(d, roles->scale, true);
}

void llm_declare_hyper(llm_declarer *d) {
    if (d->layer < 0) {
        roles_declare(d, &head_roles);
        return;
    }
    if (d->model->specs[d->layer].has_ngram) llm_declare_ngram(d);
    roles_declare(d, &mixer_roles);
    roles_declare(d, &channel_roles);
    const bool is_draft =
        d->model->hparams.layer_first > 0 && d->layer == d->model->hparams.layer_first;
    if (is_draft && llm_layer_has(d->model->gguf, LLM_ROLE_NEXTN_MIX_DOWN, d->layer))
        roles_declare(d, &draft_roles);
}

/* [n_stream * n_embd, n_tok] */
static int32_t flat_of(llm_graph_builder *g, int32_t x, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    return tdm_build_reshape(g->b, x, (int64_t)h->n_stream * h->n_embd, n_tok, 1, 1);
}

/* [n_embd, n_stream, n_tok] */
static int32_t streams_of(llm_graph_builder *g, int32_t x, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    return tdm_build_reshape(g->b, x, h->n_embd, h->n_stream, n_tok, 1);
}

/* magnitude * sigmoid(scale * mix + base) + eps for part `part` of the mixes, [1, n_stream,
 * n_tok]. */
static int32_t build_factors(llm_graph_builder *g, int32_t layer, const hyper_roles *roles,
                             int32_t mix, int32_t part, float magnitude, float eps) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t n = h->n_stream, *ne = tdm_build_shape(g->b, mix);
    if (ne == NULL) return -1;
    const int64_t n_tok = ne[1];
    int32_t scale = llm_build_columns(g, llm_build_weight(g, layer, roles->scale), part, 1);
    int32_t base = llm_build_columns(g, llm_build_weight(g, layer, roles->base), part * n, n);
    int32_t f = tdm_build_mul(g->b, llm_build_columns(g, mix, part * n, n), scale);
    f = tdm_build_act(g->b, tdm_build_add(g->b, f, base), TDM_ACT_SIGMOID);
    f = tdm_build_scale(g->b, f, magnitude, eps);
    return tdm_build_reshape(g->b, f, 1, n, n_tok, 1);
}

/* The numbers from which the factors of a block are computed (p, q, r in the formulas above), of
 * streams x [n_embd, n_stream, n_tok]. */
static int32_t build_mixes(llm_graph_builder *g, int32_t layer, const hyper_roles *roles, int32_t x,
                           int64_t n_tok) {
    int32_t flat = tdm_build_rms_norm(g->b, flat_of(g, x, n_tok), -1, g->model->hparams.norm_eps);
    const int32_t *w = layer < 0 ? g->model->global : g->model->layer[layer];
    return llm_build_product(g, w[roles->matrix], flat);
}

/* The sum of streams, [n_embd, n_tok], or their mean. */
static int32_t build_sum(llm_graph_builder *g, int32_t each, int64_t n_tok, bool is_mean) {
    const llm_hparams *h = &g->model->hparams;
    int32_t sum = -1;
    for (int64_t i = 0; i < h->n_stream; i++) {
        const int64_t offset[TDM_MAX_DIMS] = {0, i, 0, 0};
        const int64_t ne[TDM_MAX_DIMS] = {h->n_embd, 1, n_tok, 1};
        int32_t one = tdm_build_slice(g->b, each, offset, ne);
        sum = i == 0 ? one : tdm_build_add(g->b, sum, one);
    }
    if (is_mean) sum = tdm_build_scale(g->b, sum, 1.0f / (float)h->n_stream, 0);
    return tdm_build_reshape(g->b, sum, h->n_embd, n_tok, 1, 1);
}

/* What a block or the head reads of the streams x, [n_embd, n_tok]. *mix_out: the numbers from
 * which build_write computes the factors of its result. */
static int32_t build_read(llm_graph_builder *g, int32_t layer, const hyper_roles *roles, int32_t x,
                          int64_t n_tok, int32_t *mix_out) {
    const llm_hparams *h = &g->model->hparams;
    const float part = 1.0f / (float)h->n_stream;
    if (h->n_stream_rank == 0) {
        *mix_out = build_mixes(g, layer, roles, x, n_tok);
        const int32_t factor = build_factors(g, layer, roles, *mix_out, 0, 1, h->stream_eps);
        return build_sum(g, tdm_build_mul(g->b, x, factor), n_tok, false);
    }
    x = tdm_build_rms_norm(g->b, x, -1, h->norm_eps);
    x = flat_of(g, tdm_build_mul(g->b, x, llm_build_weight(g, layer, roles->norm)), n_tok);
    *mix_out = x;
    int32_t low = llm_build_project(g, layer, roles->down, LLM_ROLE_NONE, x, "streams_low");
    low = tdm_build_act(g->b, tdm_build_scale(g->b, low, part, 0), TDM_ACT_SILU);
    int32_t gate = llm_build_project(g, layer, roles->up, LLM_ROLE_NONE, low, "streams_gate");
    x = streams_of(g, tdm_build_glu(g->b, gate, x, TDM_ACT_SIGMOID), n_tok);
    return build_sum(g, x, n_tok, true);
}

/* The factors of a block's result for each stream, [1, n_stream, n_tok]. */
static int32_t build_write(llm_graph_builder *g, int32_t layer, const hyper_roles *roles,
                           int32_t mix, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    if (h->n_stream_rank == 0)
        return build_factors(g, layer, roles, mix, 1, h->stream_magnitude,
                             h->n_sinkhorn > 0 ? 0 : h->stream_eps);
    int32_t f = llm_build_project(g, layer, roles->write, LLM_ROLE_NONE, mix, "streams_write");
    f = tdm_build_scale(g->b, f, 1.0f / (float)h->n_stream, 0);
    f = tdm_build_scale(g->b, tdm_build_act(g->b, f, TDM_ACT_SIGMOID), 2, 0);
    return tdm_build_reshape(g->b, f, 1, h->n_stream, n_tok, 1);
}

/* The streams x [n_embd, n_stream, n_tok] mixed with one another. */
static int32_t build_mixed(llm_graph_builder *g, int32_t layer, const hyper_roles *roles, int32_t x,
                           int32_t mix, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t n = h->n_stream, ne[TDM_MAX_DIMS] = {h->n_embd, n, n_tok, 1};
    int32_t scale = llm_build_columns(g, llm_build_weight(g, layer, roles->scale), 2, 1);
    int32_t base = llm_build_columns(g, llm_build_weight(g, layer, roles->base), 2 * n, n * n);
    int32_t f = tdm_build_mul(g->b, llm_build_columns(g, mix, 2 * n, n * n), scale), sum = -1;
    f = tdm_build_reshape(g->b, tdm_build_add(g->b, f, base), n, n, n_tok, 1);
    f = tdm_build_sinkhorn(g->b, f, h->n_sinkhorn, h->stream_eps);
    for (int64_t j = 0; j < n; j++) {
        const int64_t offset[TDM_MAX_DIMS] = {0, j, 0, 0};
        const int64_t one[TDM_MAX_DIMS] = {h->n_embd, 1, n_tok, 1}, each[] = {n, 1, n_tok, 1};
        int32_t from = tdm_build_repeat(g->b, tdm_build_slice(g->b, x, offset, one), ne);
        int32_t factor =
            tdm_build_permute(g->b, tdm_build_slice(g->b, f, offset, each), 1, 0, 2, 3);
        from = tdm_build_mul(g->b, from, factor);
        sum = j == 0 ? from : tdm_build_add(g->b, sum, from);
    }
    return sum;
}

/* The streams x, mixed where the model does that, plus y [n_embd, n_tok] times their factors. */
static int32_t build_spread(llm_graph_builder *g, int32_t layer, const hyper_roles *roles,
                            int32_t x, int32_t y, int32_t mix, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t ne[TDM_MAX_DIMS] = {h->n_embd, h->n_stream, n_tok, 1};
    const int32_t factor = build_write(g, layer, roles, mix, n_tok);
    if (h->n_sinkhorn > 0) x = build_mixed(g, layer, roles, x, mix, n_tok);
    y = tdm_build_reshape(g->b, y, h->n_embd, 1, n_tok, 1);
    y = tdm_build_mul(g->b, tdm_build_repeat(g->b, y, ne), factor);
    return tdm_build_add(g->b, x, y);
}

/* One layer; *n_tok becomes the rows that have logits where the layer gives only those. -1 if
 * nothing after its cache is needed. */
static int32_t build_layer(llm_graph_builder *g, int32_t layer, const llm_layer_input *input,
                           int32_t x, int64_t *n_tok) {
    const llm_layer_spec *s = &g->model->specs[layer];
    int32_t mix;
    llm_mixer_input in = {-1, input->pos, *n_tok, llm_layer_is_needed(g, input->shape, layer)};
    if (s->has_ngram) x = llm_build_ngram(g, layer, x, *n_tok);
    in.x = build_read(g, layer, &mixer_roles, x, *n_tok, &mix);
    in.x = llm_build_norm_if(g, layer, s->norm_mixer, in.x);
    int32_t y = llm_build_mixer(g, layer, &in);
    if (y < 0) return -1;
    x = build_spread(g, layer, &mixer_roles, x, y, mix, *n_tok);
    if (llm_layer_is_short(g, input->shape, layer)) {
        x = llm_build_out_rows(g, flat_of(g, x, *n_tok));
        *n_tok = input->shape->n_out;
        x = streams_of(g, x, *n_tok);
        tdm_build_set_role(g->b, tdm_build_step_field(g->b, TDM_STEP_OUT_ROLE));
    }
    y = build_read(g, layer, &channel_roles, x, *n_tok, &mix);
    y = llm_build_channel(g, layer, llm_build_norm_if(g, layer, s->norm_channel, y));
    return build_spread(g, layer, &channel_roles, x, y, mix, *n_tok);
}

int32_t llm_build_hyper(llm_graph_builder *g, const llm_layer_input *in, int32_t embd) {
    const llm_hparams *h = &g->model->hparams;
    const int32_t first = h->layer_first;
    int64_t n_tok = in->shape->n_tok;
    const int64_t ne[TDM_MAX_DIMS] = {h->n_embd, h->n_stream, n_tok, 1};
    int32_t x = embd; /* a layer that drafts begins with streams */
    if (first == 0)
        x = tdm_build_repeat(g->b, tdm_build_reshape(g->b, embd, h->n_embd, 1, n_tok, 1), ne);
    for (int32_t layer = first; layer < h->n_layer; layer++) {
        x = build_layer(g, layer, in, x, &n_tok);
        if (x < 0) return -1;
        tdm_build_name(g->b, x, "out", layer);
    }
    int32_t mix;
    g->streams = x;
    if (first > 0 && g->model->layer[first][LLM_ROLE_NEXTN_MIX_DOWN] >= 0)
        return build_read(g, first, &draft_roles, x, n_tok, &mix);
    return build_read(g, -1, &head_roles, x, n_tok, &mix);
}
