/* SPDX-License-Identifier: MIT
 *
 * kv_write.c: KV_WRITE: rows of K and V, rotated where the cache says so, quantised and put into
 * the pages. Owns the table of row quantisers; the faster ones are in x86/.
 */
#include <string.h>

#include "plugins/cpu/kv/hadamard.h"
#include "plugins/cpu/kv/kv_page.h"
#include "plugins/cpu/kv/kv_row.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

typedef struct quantizer_row {
    uint32_t isa;
    int32_t type;
    tdm_row_quantize_fn fn;
    const char *name;
} quantizer_row;

/* First match wins; types without a match are converted by quant/convert.h. AVX-512 is faster only
 * for the search of iq4_nl: a block has just 32 elements. */
static const quantizer_row quantizers[] = {
#if defined(__x86_64__)
    {CPU_ISA_AVX512, TDM_TYPE_IQ4_NL, cpu_quantize_iq4_nl_avx512, "quantize_iq4_nl_avx512"},
    {CPU_ISA_AVX2, TDM_TYPE_F16, cpu_quantize_f16_avx2, "quantize_f16_avx2"},
    {CPU_ISA_AVX2, TDM_TYPE_Q8_0, cpu_quantize_q8_0_avx2, "quantize_q8_0_avx2"},
    {CPU_ISA_AVX2, TDM_TYPE_Q5_1, cpu_quantize_q5_1_avx2, "quantize_q5_1_avx2"},
    {CPU_ISA_AVX2, TDM_TYPE_Q5_0, cpu_quantize_q5_0_avx2, "quantize_q5_0_avx2"},
    {CPU_ISA_AVX2, TDM_TYPE_Q4_1, cpu_quantize_q4_1_avx2, "quantize_q4_1_avx2"},
    {CPU_ISA_AVX2, TDM_TYPE_Q4_0, cpu_quantize_q4_0_avx2, "quantize_q4_0_avx2"},
    {CPU_ISA_AVX2, TDM_TYPE_IQ4_NL, cpu_quantize_iq4_nl_avx2, "quantize_iq4_nl_avx2"},
#endif
    {0, -1, NULL, ""}, /* the end */
};

tdm_row_quantize_fn cpu_kv_quantizer(const cpu_device *device, tdm_type type) {
    for (const quantizer_row *row = quantizers; row->fn != NULL && !device->is_reference; row++)
        if (row->type == (int32_t)type && (row->isa & ~device->isa) == 0) return row->fn;
    return tdm_row_codec_get(type).quantize;
}

enum { SRC_K, SRC_V, SRC_STEP, SRC_STATE };

/* V is absent exactly where it is part of K; the places of step and state stay. */
static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    cpu_kv_layout layout;
    (void)device;
    return cpu_kv_supports(graph, node, node->params.kv.kv, SRC_STEP, SRC_STATE, &layout, err);
}

static size_t worker_size(const cpu_kv_layout *layout) {
    size_t floats =
        (size_t)(layout->k.padded > layout->v.padded ? layout->k.padded : layout->v.padded);
    return cpu_kv_round(floats * sizeof(float)) * 2; /* floats, then their canonical bytes */
}

static size_t scratch_size(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    cpu_kv_layout layout;
    if (cpu_kv_layout_get(tdm_graph_kv(graph, node->params.kv.kv), &layout, NULL) != TDM_OK)
        return 0;
    return worker_size(&layout) * (size_t)device->n_thread;
}

/* What the plan holds for the op. */
typedef struct write_facts {
    cpu_kv_layout layout;
    tdm_row_quantize_fn quantize_k, quantize_v;
    cpu_hadamard_fn rotate;
} write_facts;

static void facts_make(const cpu_node *n, void *facts_out) {
    write_facts *f = facts_out;
    const tdm_kv_desc *desc = tdm_graph_kv(n->graph, n->node->params.kv.kv);
    if (cpu_kv_layout_get(desc, &f->layout, NULL) != TDM_OK) return;
    f->quantize_k = cpu_kv_quantizer(n->device, f->layout.k.type);
    f->quantize_v = cpu_kv_quantizer(n->device, f->layout.v.type);
    f->rotate = cpu_hadamard_choose(n->device->isa);
}

/* How a worker converts the rows of one side. */
typedef struct writer {
    const cpu_kv_side *side;
    const cpu_view *src;
    tdm_row_quantize_fn quantize;
    cpu_hadamard_fn rotate;
    float *x;     /* [padded] */
    uint8_t *row; /* the same, canonical */
} writer;

static void write_row(const writer *w, int32_t head, int32_t token, uint8_t *region, int32_t slot) {
    const cpu_kv_side *side = w->side;
    cpu_kv_read_row(w->src, head, token, w->x);
    memset(w->x + side->head_dim, 0, (size_t)(side->padded - side->head_dim) * sizeof *w->x);
    w->rotate(w->x, side->padded, side->rotation);
    w->quantize(w->x, w->row, side->padded, NULL);
    cpu_kv_store(side, region, slot, w->row, 0, cpu_kv_units(side));
}

/* With one token the heads are divided: a worker writes those that it computed itself, where the
 * nodes before divided their work by heads too. */
static int64_t share_unit(const cpu_node *n, int32_t arg) {
    bool is_row = arg == SRC_K || arg == SRC_V;
    return is_row && n->src[SRC_K].ne[2] == 1 && cpu_view_is_dense(&n->src[arg]) ? n->src[arg].ne[0]
                                                                                 : 0;
}

/* A tile of slots of one head's K or V belongs to one worker, whichever tokens are written to it:
 * tokens that share a cell are written in order, and no other worker writes the words that they
 * share. */
static void run(const cpu_node *n, cpu_worker *w) {
    const write_facts *f = n->facts;
    const cpu_kv_layout *layout = &f->layout;
    const tdm_kv_desc *desc = tdm_graph_kv(n->graph, n->node->params.kv.kv);
    const cpu_view *state = &n->src[SRC_STATE];
    cpu_step step = cpu_step_get(n->graph, &n->src[SRC_STEP], desc->cls);
    float *x = (float *)(void *)(n->scratch + (size_t)w->ith * worker_size(layout));
    uint8_t *row = (uint8_t *)x + worker_size(layout) / 2;
    writer k = {&layout->k, &n->src[SRC_K], f->quantize_k, f->rotate, x, row};
    writer v = {&layout->v, &n->src[SRC_V], f->quantize_v, f->rotate, x, row};
    int64_t n_cell = state->ne[1] * layout->page_len, n_tok = n->src[SRC_K].ne[2];
    int32_t n_side = layout->v_from_k ? 1 : 2;
    bool is_by_head = n_tok == 1;
    int64_t head_first, head_last;
    cpu_worker_share(w, layout->n_head_kv, 1, &head_first, &head_last);
    if (n_tok > step.n_tok) n_tok = step.n_tok;
    for (int32_t t = 0; t < n_tok; t++) {
        int64_t cell = step.cell[t];
        if (cell < 0 || cell >= n_cell) continue;
        if (layout->stride > 1 && step.pos[t] % layout->stride != layout->stride - 1) continue;
        int64_t page = cell / layout->page_len;
        int32_t slot = (int32_t)(cell % layout->page_len) / layout->stride;
        int64_t tile = page * layout->n_tile + slot / CPU_KV_TILE;
        for (int32_t unit = 0; unit < layout->n_head_kv * n_side; unit++) {
            int32_t head = unit / n_side;
            bool is_mine = is_by_head ? head >= head_first && head < head_last
                                      : (tile + unit) % w->nth == w->ith;
            if (!is_mine) continue;
            uint8_t *region = cpu_kv_head(layout, state->data, page, head);
            write_row(unit % n_side == 0 ? &k : &v, head, t, region, slot);
        }
    }
}

const cpu_op_impl cpu_op_kv_write = {.supports = supports,
                                     .scratch_size = scratch_size,
                                     .facts_size = sizeof(write_facts),
                                     .facts_make = facts_make,
                                     .share_unit = share_unit,
                                     .run = run};
