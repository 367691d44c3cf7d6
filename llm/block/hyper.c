/* SPDX-License-Identifier: MIT
 *
 * hyper.c: a residual stream of several parallel ones, from which each block reads a weighted sum
 * and to which it adds its result with other weights (block.h). Independent hyper-connections, after
 * arXiv:2409.19606:
 *
 *   [p, q] = Wf norm(x_1 .. x_n)             of all streams as one row
 *   y = block(n(sum_i (sigmoid(s p_i + b_i) + eps) x_i))
 *   x_i += (m sigmoid(t q_i + c_i) + eps) y
 *
 * The head of the model reads such a sum, too.
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

/* The weights of a sum: matrix, base and scale. */
typedef struct hyper_roles {
    llm_role matrix, base, scale;
} hyper_roles;

static const hyper_roles mixer_roles = {LLM_ROLE_HYPER_MIXER, LLM_ROLE_HYPER_MIXER_BASE,
                                        LLM_ROLE_HYPER_MIXER_SCALE};
static const hyper_roles channel_roles = {LLM_ROLE_HYPER_CHANNEL, LLM_ROLE_HYPER_CHANNEL_BASE,
                                          LLM_ROLE_HYPER_CHANNEL_SCALE};
static const hyper_roles head_roles = {LLM_ROLE_HYPER_HEAD, LLM_ROLE_HYPER_HEAD_BASE,
                                       LLM_ROLE_HYPER_HEAD_SCALE};

static void roles_declare(llm_declarer *d, const hyper_roles *roles) {
    llm_declare(d, roles->matrix, true);
    llm_declare(d, roles->base, true);
    llm_declare(d, roles->scale, true);
}

void llm_declare_hyper(llm_declarer *d) {
    if (d->layer < 0) {
        roles_declare(d, &head_roles);
        return;
    }
    roles_declare(d, &mixer_roles);
    roles_declare(d, &channel_roles);
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

static int32_t weight_of(llm_graph_builder *g, int32_t layer, llm_role role) {
    const llm_model *m = g->model;
    return llm_graph_weight(g, layer < 0 ? m->global[role] : m->layer[layer][role]);
}

/* magnitude * sigmoid(scale * mix + base) + eps for part `part` of the mixes, [1, n_stream,
 * n_tok]. */
static int32_t build_factors(llm_graph_builder *g, int32_t layer, const hyper_roles *roles,
                             int32_t mix, int32_t part, float magnitude) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t n = h->n_stream, *ne = tdm_build_shape(g->b, mix);
    if (ne == NULL) return -1;
    const int64_t n_tok = ne[1];
    int32_t scale = llm_build_columns(g, weight_of(g, layer, roles->scale), part, 1);
    int32_t base = llm_build_columns(g, weight_of(g, layer, roles->base), part * n, n);
    int32_t f = tdm_build_mul(g->b, llm_build_columns(g, mix, part * n, n), scale);
    f = tdm_build_act(g->b, tdm_build_add(g->b, f, base), TDM_ACT_SIGMOID);
    f = tdm_build_scale(g->b, f, magnitude, h->stream_eps);
    return tdm_build_reshape(g->b, f, 1, n, n_tok, 1);
}

/* What the factors of a block follow from, of streams x [n_embd, n_stream, n_tok]. */
static int32_t build_mixes(llm_graph_builder *g, int32_t layer, const hyper_roles *roles, int32_t x,
                           int64_t n_tok) {
    int32_t flat = tdm_build_rms_norm(g->b, flat_of(g, x, n_tok), -1, g->model->hparams.norm_eps);
    return tdm_build_matmul(g->b, weight_of(g, layer, roles->matrix), flat);
}

/* The sum of the streams x times their factors, [n_embd, n_tok]. */
static int32_t build_sum(llm_graph_builder *g, int32_t x, int32_t factor, int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    int32_t each = tdm_build_mul(g->b, x, factor), sum = -1;
    for (int64_t i = 0; i < h->n_stream; i++) {
        const int64_t offset[TDM_MAX_DIMS] = {0, i, 0, 0};
        const int64_t ne[TDM_MAX_DIMS] = {h->n_embd, 1, n_tok, 1};
        int32_t one = tdm_build_slice(g->b, each, offset, ne);
        sum = i == 0 ? one : tdm_build_add(g->b, sum, one);
    }
    return tdm_build_reshape(g->b, sum, h->n_embd, n_tok, 1, 1);
}

/* The streams x plus y [n_embd, n_tok] times their factors. */
static int32_t build_spread(llm_graph_builder *g, int32_t x, int32_t y, int32_t factor,
                            int64_t n_tok) {
    const llm_hparams *h = &g->model->hparams;
    const int64_t ne[TDM_MAX_DIMS] = {h->n_embd, h->n_stream, n_tok, 1};
    y = tdm_build_reshape(g->b, y, h->n_embd, 1, n_tok, 1);
    y = tdm_build_mul(g->b, tdm_build_repeat(g->b, y, ne), factor);
    return tdm_build_add(g->b, x, y);
}

/* One layer; *n_tok becomes the rows that have logits where the layer gives only those. -1 if
 * nothing after its cache is needed. */
static int32_t build_layer(llm_graph_builder *g, int32_t layer, const llm_layer_input *input,
                           int32_t x, int64_t *n_tok) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const float magnitude = g->model->hparams.stream_magnitude;
    llm_mixer_input in = {-1, input->pos, *n_tok, llm_layer_is_needed(g, input->shape, layer)};
    int32_t mix = build_mixes(g, layer, &mixer_roles, x, *n_tok);
    int32_t factor = build_factors(g, layer, &mixer_roles, mix, 0, 1);
    in.x = build_sum(g, x, factor, *n_tok);
    in.x = llm_build_norm(g, layer, s->norm_mixer, g->model->hparams.norm, in.x);
    int32_t y = llm_build_mixer(g, layer, &in);
    if (y < 0) return -1;
    x = build_spread(g, x, y, build_factors(g, layer, &mixer_roles, mix, 1, magnitude), *n_tok);
    if (llm_layer_is_short(g, input->shape, layer)) {
        x = llm_build_out_rows(g, flat_of(g, x, *n_tok));
        *n_tok = input->shape->n_out;
        x = streams_of(g, x, *n_tok);
        tdm_build_set_role(g->b, tdm_build_step_field(g->b, TDM_STEP_OUT_ROLE));
    }
    mix = build_mixes(g, layer, &channel_roles, x, *n_tok);
    y = build_sum(g, x, build_factors(g, layer, &channel_roles, mix, 0, 1), *n_tok);
    y = llm_build_norm(g, layer, s->norm_channel, g->model->hparams.norm, y);
    y = llm_build_channel(g, layer, y);
    factor = build_factors(g, layer, &channel_roles, mix, 1, magnitude);
    return build_spread(g, x, y, factor, *n_tok);
}

int32_t llm_build_hyper(llm_graph_builder *g, const llm_layer_input *in, int32_t embd) {
    const llm_hparams *h = &g->model->hparams;
    int64_t n_tok = in->shape->n_tok;
    const int64_t ne[TDM_MAX_DIMS] = {h->n_embd, h->n_stream, n_tok, 1};
    int32_t x = tdm_build_reshape(g->b, embd, h->n_embd, 1, n_tok, 1);
    x = tdm_build_repeat(g->b, x, ne);
    for (int32_t layer = 0; layer < h->n_layer; layer++) {
        x = build_layer(g, layer, in, x, &n_tok);
        if (x < 0) return -1;
        tdm_build_name(g->b, x, "out", layer);
    }
    int32_t mix = build_mixes(g, -1, &head_roles, x, n_tok);
    return build_sum(g, x, build_factors(g, -1, &head_roles, mix, 0, 1), n_tok);
}
