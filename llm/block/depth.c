/* SPDX-License-Identifier: MIT
 *
 * depth.c: a residual stream x that is saved and set to 0 every n_depth_layer layers. Blocks read a
 * mix of x and of all saved streams b_1, b_2, .. (block.h).
 *
 *   mix(x) = sum_k p_k b_k + p x          p_1 .., p = softmax(w . norm(b_1) .., w . norm(x))
 *   y = mixer(n1(mix(x)));  every n_depth_layer layers: b = x joins the others, and x = 0
 *   x += y;  x += channel(n2(mix(x)))
 *
 * Each block and the head of the model have a w of their own. The norm has no weight.
 */
#include "llm/arch/arch.h"
#include "llm/block/block.h"

void llm_declare_depth(llm_declarer *d) {
    if (d->layer < 0) {
        llm_declare(d, LLM_ROLE_DEPTH_HEAD, true);
        return;
    }
    llm_declare(d, LLM_ROLE_DEPTH_MIXER, true);
    llm_declare(d, LLM_ROLE_DEPTH_CHANNEL, true);
}

/* The saved streams, [n_embd, n_tok], and their norms, which every block reads. */
typedef struct beginnings {
    int32_t x[LLM_MAX_DEPTH], norm[LLM_MAX_DEPTH];
    int32_t n;
} beginnings;

static int32_t bare_norm(llm_graph_builder *g, int32_t x) {
    return tdm_build_rms_norm(g->b, x, -1, g->model->hparams.norm_eps);
}

/* Column i of p [*, n_tok]. */
static int32_t part_of(llm_graph_builder *g, int32_t p, int32_t i) {
    return llm_build_columns(g, p, i, 1);
}

static int32_t build_mix(llm_graph_builder *g, int32_t layer, llm_role role, const beginnings *b,
                         int32_t x) {
    if (b->n == 0) return x;
    int32_t p = -1;
    for (int32_t i = 0; i <= b->n; i++) {
        const int32_t norm = i < b->n ? b->norm[i] : bare_norm(g, x);
        int32_t score = llm_build_project(g, layer, role, LLM_ROLE_NONE, norm, "depth_score");
        p = i == 0 ? score : tdm_build_concat(g->b, p, score, 0);
    }
    p = tdm_build_softmax(g->b, p);
    int32_t sum = tdm_build_mul(g->b, x, part_of(g, p, b->n));
    for (int32_t i = 0; i < b->n; i++)
        sum = tdm_build_add(g->b, sum, tdm_build_mul(g->b, b->x[i], part_of(g, p, i)));
    return sum;
}

/* From here on the graph has only the rows that have logits. */
static int32_t shorten(llm_graph_builder *g, beginnings *b, int32_t x) {
    for (int32_t i = 0; i < b->n; i++) {
        b->x[i] = llm_build_out_rows(g, b->x[i]);
        b->norm[i] = bare_norm(g, b->x[i]);
    }
    x = llm_build_out_rows(g, x);
    tdm_build_set_role(g->b, tdm_build_step_field(g->b, TDM_STEP_OUT_ROLE));
    return x;
}

/* One layer; -1 if nothing after its cache is needed. */
static int32_t build_layer(llm_graph_builder *g, int32_t layer, const llm_layer_input *input,
                           beginnings *b, int32_t x) {
    const llm_layer_spec *s = &g->model->specs[layer];
    const llm_norm norm = g->model->hparams.norm;
    llm_mixer_input in = {-1, input->pos, input->shape->n_tok,
                          llm_layer_is_needed(g, input->shape, layer)};
    in.x = build_mix(g, layer, LLM_ROLE_DEPTH_MIXER, b, x);
    in.x = llm_build_norm(g, layer, s->norm_mixer, norm, in.x);
    int32_t y = llm_build_mixer(g, layer, &in);
    if (y < 0) return -1;
    if (layer % g->model->hparams.n_depth_layer == 0) {
        b->norm[b->n] = bare_norm(g, x);
        b->x[b->n++] = x;
        x = y;
    } else {
        x = tdm_build_add(g->b, x, y);
    }
    if (llm_layer_is_short(g, input->shape, layer)) x = shorten(g, b, x);
    y = build_mix(g, layer, LLM_ROLE_DEPTH_CHANNEL, b, x);
    y = llm_build_channel(g, layer, llm_build_norm(g, layer, s->norm_channel, norm, y));
    return tdm_build_add(g->b, x, y);
}

int32_t llm_build_depth(llm_graph_builder *g, const llm_layer_input *in, int32_t embd) {
    beginnings b = {.n = 0};
    int32_t x = embd;
    for (int32_t layer = 0; layer < g->model->hparams.n_layer; layer++) {
        x = build_layer(g, layer, in, &b, x);
        if (x < 0) return -1;
        tdm_build_name(g->b, x, "out", layer);
    }
    return build_mix(g, -1, LLM_ROLE_DEPTH_HEAD, &b, x);
}
