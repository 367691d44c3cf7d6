/* SPDX-License-Identifier: MIT
 *
 * attention_reference.c: ATTENTION as the textbook has it, in plain C: all scores of a token, their
 * maximum, softmax, the weighted sum of V, in double precision, from rows dequantised by
 * quant/convert.h. The reference of the fast path, which shares only the reading of pages with it.
 */
#include <math.h>
#include <string.h>

#include "core/base/position.h"
#include "quant/convert.h"
#include "plugins/cpu/ops/attention_kernel.h"
#include "plugins/cpu/kv/hadamard.h"
#include "plugins/cpu/ops/position_list.h"

enum { SRC_Q, SRC_STEP, SRC_STATE, SRC_SINK, SRC_SELECT, SRC_BIAS };

/* A worker's scratch. */
typedef struct frame {
    float *x;      /* [padded] a row of K, V or the output */
    float *q;      /* [padded_k] */
    double *o;     /* [padded_v] */
    double *score; /* [n_cached] */
    uint8_t *row;
    size_t size;
} frame;

/* The frame of worker `ith`; with base NULL only its size is meant. */
static frame frame_get(const cpu_kv_layout *layout, const tdm_graph *graph, uint8_t *base,
                       int32_t ith) {
    frame f = {0};
    size_t padded =
        (size_t)(layout->k.padded > layout->v.padded ? layout->k.padded : layout->v.padded);
    size_t n_cached = (size_t)graph->step_caps.n_entry * (size_t)layout->page_len;
    size_t floats = cpu_kv_round(padded * sizeof *f.x),
           doubles = cpu_kv_round(padded * sizeof *f.o);
    f.size = 3 * floats + doubles + cpu_kv_round(n_cached * sizeof *f.score);
    if (base == NULL) return f;
    base += f.size * (size_t)ith;
    f.x = (float *)(void *)base;
    f.q = (float *)(void *)(base + floats);
    f.row = base + 2 * floats;
    f.o = (double *)(void *)(base + 3 * floats);
    f.score = (double *)(void *)(base + 3 * floats + doubles);
    return f;
}

size_t cpu_attention_reference_scratch(const cpu_device *device, const tdm_graph *graph,
                                       const tdm_node *node) {
    cpu_kv_layout layout;
    if (cpu_kv_layout_get(tdm_graph_kv(graph, node->params.attention.kv), &layout, NULL) != TDM_OK)
        return 0;
    return frame_get(&layout, graph, NULL, 0).size * (size_t)device->n_thread;
}

static void read_row(const cpu_kv_side *side, const uint8_t *region, int32_t slot, frame *f) {
    cpu_kv_load(side, region, slot, f->row, 0, cpu_kv_units(side));
    tdm_row_codec_get(side->type).dequantize(f->row, f->x, side->padded);
    cpu_hadamard_plain(f->x, side->padded, side->rotation);
}

static bool is_visible(const tdm_attention_params *params, const cpu_position_list *select,
                       int64_t pos, int64_t cached) {
    if (select->at != NULL && !cpu_position_list_has(select, cached)) return false;
    return cached >= tdm_window_first(params, pos) && cached <= tdm_window_last(params, pos);
}

/* What `bias` adds to the score of a head for a cached token `distance` positions after the token
 * (< 0: before it); 0 without a bias. */
static double bias_of(const cpu_view *bias, int64_t distance, int32_t head) {
    if (bias->data == NULL) return 0;
    const int64_t n_far = bias->ne[0] / 2;
    if (distance < -n_far) distance = -n_far;
    if (distance > n_far) distance = n_far;
    return (double)*(const float *)(const void *)(bias->data + (n_far + distance) * bias->nb[0] +
                                                  head * bias->nb[1]);
}

/* op.h, ATTENTION, for one token and head. */
static void attend(const cpu_node *n, const cpu_kv_layout *layout, const cpu_step *step,
                   int32_t token, int32_t head, frame *f) {
    const tdm_attention_params *params = &n->node->params.attention;
    const cpu_view *state = &n->src[SRC_STATE], *sink = &n->src[SRC_SINK];
    int32_t head_kv = (params->first_head + head) / params->heads_per_kv - params->first_head_kv;
    float scale = params->scale != 0 ? params->scale : 1 / sqrtf((float)layout->k.head_dim);
    int32_t n_entry = 0, dim_v = layout->v.head_dim;
    const tdm_page_entry *entries = NULL;
    int64_t pos = token < step->n_tok ? cpu_step_row(step, layout, token) : -1;
    if (pos >= 0) entries = cpu_step_entries(step, step->seq[token], &n_entry);
    const double slope = (double)tdm_alibi_slope(params, params->first_head + head);
    const cpu_position_list select = cpu_position_list_get(&n->src[SRC_SELECT], token, head_kv);
    scale *= tdm_attention_temperature(params, pos);

    cpu_kv_read_row(&n->src[SRC_Q], head, token, f->q);
    double m = -INFINITY, l = 0;
    int64_t at = 0;
    for (int32_t e = 0; e < n_entry; e++) {
        tdm_page_entry entry = entries[e];
        if (!cpu_kv_entry_clip(layout, state->ne[1], &entry)) continue;
        const uint8_t *region = cpu_kv_head(layout, state->data, entry.page, head_kv);
        for (int32_t i = 0; i < entry.count; i++) {
            if (!is_visible(params, &select, pos, (int64_t)entry.base_pos + i)) continue;
            double dot = 0;
            read_row(&layout->k, region, entry.first + i, f);
            for (int32_t j = 0; j < layout->k.head_dim; j++) dot += (double)f->q[j] * f->x[j];
            dot *= scale;
            if (params->softcap > 0) dot = params->softcap * tanh(dot / params->softcap);
            dot -= slope * fabs((double)(pos - entry.base_pos - i));
            dot += bias_of(&n->src[SRC_BIAS], (int64_t)entry.base_pos + i - pos, head);
            f->score[at++] = dot;
            if (!(dot <= m)) m = dot;
        }
    }

    memset(f->o, 0, (size_t)dim_v * sizeof *f->o);
    int64_t n_visible = m == -INFINITY ? 0 : at;
    at = 0;
    for (int32_t e = 0; e < n_entry && n_visible > 0; e++) {
        tdm_page_entry entry = entries[e];
        if (!cpu_kv_entry_clip(layout, state->ne[1], &entry)) continue;
        const uint8_t *region = cpu_kv_head(layout, state->data, entry.page, head_kv);
        for (int32_t i = 0; i < entry.count; i++) {
            if (!is_visible(params, &select, pos, (int64_t)entry.base_pos + i)) continue;
            double p = exp(f->score[at++] - m);
            l += p;
            read_row(layout->v_from_k ? &layout->k : &layout->v, region, entry.first + i, f);
            for (int32_t j = 0; j < dim_v; j++) f->o[j] += p * f->x[j];
        }
    }
    if (n_visible > 0 && sink->data != NULL)
        l += exp(*(const float *)(const void *)(sink->data + head * sink->nb[0]) - m);

    const cpu_view *o = &n->dst[0], *ml = &n->dst[1];
    for (int32_t j = 0; j < dim_v; j++)
        *(float *)(void *)(o->data + j * o->nb[0] + head * o->nb[1] + token * o->nb[2]) =
            n_visible > 0 ? (float)(f->o[j] / l) : 0;
    if (ml->data != NULL) {
        uint8_t *out = ml->data + head * ml->nb[1] + token * ml->nb[2];
        *(float *)(void *)out = (float)m;
        *(float *)(void *)(out + ml->nb[0]) = (float)l;
    }
}

void cpu_attention_reference(const cpu_node *n, cpu_worker *w) {
    cpu_kv_layout layout;
    const tdm_kv_desc *desc = tdm_graph_kv(n->graph, n->node->params.attention.kv);
    if (cpu_kv_layout_get(desc, &layout, NULL) != TDM_OK) return;
    cpu_step step = cpu_step_get(n->graph, &n->src[SRC_STEP], desc->cls);
    frame f = frame_get(&layout, n->graph, n->scratch, w->ith);
    int64_t n_head = n->src[SRC_Q].ne[1], n_row = n_head * n->src[SRC_Q].ne[2];
    for (int64_t row = w->ith; row < n_row; row += w->nth)
        attend(n, &layout, &step, (int32_t)(row / n_head), (int32_t)(row % n_head), &f);
}
