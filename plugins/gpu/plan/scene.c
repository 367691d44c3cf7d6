/* SPDX-License-Identifier: MIT
 *
 * scene.c: see scene.h.
 */
#include "plugins/gpu/plan/scene.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_PAGE_LEN = 64,
    MAX_HEAD_KV = 3,
    FIRST_POS = 70,
    GAP = 600,            /* positions between pages, so that attention has several parts */
    MAX_WINDOW = 1 << 28, /* larger windows leave out no position of a scene */
    FEW_TOK = 7,
    SLOT_TOK = 6, /* tokens of ops on recurrent states */
    N_SLOT = 4,
    TILE_ROWS = 32, /* as in ops/attention.c */
    MAX_TOK = 600,
    LONG_ENTRY = 2048,     /* pages of 64 tokens: at least 256 parts (part_most there) */
    LONG_RECORD = 64 << 20 /* bytes of records above which parts have none: records_most there */
};

/* ---- Planning -------------------------------------------------------------------------------- */

/* Places sequence q on pages *page, *page - 1, ..; *page is then the next free one. */
static void sequence_place(gpu_scene *s, int32_t q, int32_t *page) {
    int32_t n = s->first_entry[q], first = q > 0 && s->page_len > 4 ? 3 : 0, pos = s->base[q];
    for (int32_t at = 0; at < s->len[q]; first = 0) {
        int32_t count = s->page_len - first;
        if (count > s->len[q] - at) count = s->len[q] - at;
        s->entries[n++] = (tdm_page_entry){(*page)--, first, count, pos};
        at += count;
        pos += count + GAP;
    }
    s->first_entry[q + 1] = n;
}

/* The position of token `index` of a sequence. */
static int32_t pos_of(const gpu_scene *s, int32_t q, int32_t index) {
    int32_t e = s->first_entry[q];
    for (; index >= s->entries[e].count; e++) index -= s->entries[e].count;
    return s->entries[e].base_pos + index;
}

/* The first position of a sequence. A window in chunks ends in the middle of it. */
static int32_t base_choose(const gpu_scene *s, int32_t q) {
    if (s->is_chunked && s->window > s->len[q]) return s->window - s->len[q] / 2;
    return FIRST_POS + 11 * q;
}

static void pages_place(gpu_scene *s) {
    s->len[0] = s->page_len + s->page_len / 2 + 3;
    s->len[1] = s->page_len / 4 + 5;
    s->n_page = 1; /* page 0 is of no sequence */
    for (int32_t q = 0; q < GPU_SCENE_SEQS; q++)
        s->n_page += (s->len[q] + 3 + s->page_len - 1) / s->page_len;
    int32_t page = s->n_page - 1;
    for (int32_t q = 0; q < GPU_SCENE_SEQS; q++) {
        s->base[q] = base_choose(s, q);
        sequence_place(s, q, &page);
    }
    s->n_cell = s->n_page * s->pitch;
    s->room_entry = s->first_entry[GPU_SCENE_SEQS] + 1;
}

/* Heads as in the node, but of two KV heads; the first one may be a part of them. */
static void heads_choose(gpu_scene *s, const tdm_attention_params *p, int64_t n_head) {
    s->first_head = p->first_head % p->heads_per_kv;
    int64_t most = 2 * (int64_t)p->heads_per_kv - s->first_head;
    s->n_head = (int32_t)(n_head < most ? n_head : most);
    s->desc.n_head_kv = (s->first_head + s->n_head - 1) / p->heads_per_kv + 1;
}

static void tokens_choose(gpu_scene *s, const tdm_attention_params *p, gpu_scene_size size) {
    int32_t heads = p->heads_per_kv < TILE_ROWS ? p->heads_per_kv : TILE_ROWS;
    s->n_tok = FEW_TOK;
    if (size == GPU_SCENE_FEW) return;
    s->n_tok = TILE_ROWS / heads + 9;
    if (size == GPU_SCENE_MANY) return;
    /* So many rows that their records for 256 parts exceed the limit. */
    int64_t row_size = (int64_t)(4 + s->desc.head_dim_v) * (int64_t)sizeof(float) * 256;
    int64_t n_row = LONG_RECORD / row_size + 1, n_tok = (n_row + s->n_head - 1) / s->n_head;
    if (n_tok > s->n_tok) s->n_tok = n_tok < MAX_TOK ? (int32_t)n_tok : MAX_TOK;
    s->room_entry = LONG_ENTRY * (MAX_PAGE_LEN / s->page_len);
}

static bool is_recurrent_op(int32_t op) {
    return op == TDM_OP_CONV1D || op == TDM_OP_LINEAR_SCAN || op == TDM_OP_BLOCK_POOL;
}

/* The ops on caches of K and V other than ATTENTION. */
static bool is_page_op(int32_t op) {
    return op == TDM_OP_KV_WRITE || op == TDM_OP_KV_SHIFT || op == TDM_OP_KV_COPY ||
           op == TDM_OP_KV_EXPORT || op == TDM_OP_KV_IMPORT || op == TDM_OP_KV_SELECT;
}

/* An empty scene whose cache has the formats of `desc`, in pages of the scene's length. */
static gpu_scene scene_make(const tdm_kv_desc *desc) {
    gpu_scene s = {.page_len = desc->page_len, .n_tok = FEW_TOK};
    memcpy(&s.desc, desc, sizeof s.desc);
    s.desc.struct_size = sizeof s.desc;
    s.desc.flags &= ~(uint32_t)TDM_KV_IN_HOST;
    if (s.page_len == 0 || s.page_len > MAX_PAGE_LEN) s.page_len = MAX_PAGE_LEN;
    s.desc.page_len = s.pitch = s.page_len;
    if (s.desc.stride > 1)
        s.pitch = (s.page_len + s.desc.stride - 1) / s.desc.stride * s.desc.stride;
    return s;
}

/* The node's sources have the units of its state, so the scene has all of them. */
static void slots_place(gpu_scene *s) {
    s->n_tok = SLOT_TOK;
    s->n_page = s->n_cell = N_SLOT;
    s->room_entry = 1;
}

static void window_choose(gpu_scene *s, const tdm_attention_params *p) {
    s->window = p->window < MAX_WINDOW ? p->window : 0;
    if (p->window_kind == TDM_WINDOW_SYMMETRIC) s->window = s->window / 2 + 1;
    s->is_chunked = s->window > 0 && p->window_kind == TDM_WINDOW_CHUNKED;
}

bool gpu_scene_plan(const tdm_graph *graph, int32_t node, gpu_scene_size size, gpu_scene *out) {
    const tdm_node *n = tdm_graph_node(graph, node);
    const tdm_attention_params *p = &n->params.attention;
    if (n->op != TDM_OP_ATTENTION && !is_page_op(n->op) && !is_recurrent_op(n->op)) return false;
    const tdm_kv_desc *desc = tdm_graph_kv(graph, n->params.kv.kv);
    if (desc->n_head_kv < 1) return false;
    *out = scene_make(desc);
    if (is_recurrent_op(n->op)) {
        slots_place(out);
        return size == GPU_SCENE_FEW;
    }
    if (out->desc.n_head_kv > MAX_HEAD_KV) out->desc.n_head_kv = MAX_HEAD_KV;
    if (n->op == TDM_OP_ATTENTION) window_choose(out, p);
    pages_place(out);
    if (n->op != TDM_OP_ATTENTION) return size == GPU_SCENE_FEW;
    heads_choose(out, p, tdm_graph_value(graph, n->src[0])->ne[1]);
    if (out->n_head < 1) return false;
    tokens_choose(out, p, size);
    return true;
}

/* ---- Step blocks ----------------------------------------------------------------------------- */

/* The job that moves the rows of all cells of a page. */
static tdm_page_job whole_job(const gpu_scene *s, int32_t page) {
    return (tdm_page_job){page, 0, s->page_len, (page + 1) * s->pitch - s->page_len};
}

/* Job i of three of a node, on a part of page i; job 1 is padding. */
static tdm_page_job node_job(const gpu_scene *s, int32_t op, int32_t i) {
    int32_t first = i == 0 && s->page_len > 2 ? 1 : 0, count = s->page_len - first - (i == 0);
    if (count < 1) count = 1;
    if (i == 1) return (tdm_page_job){.page = -1};
    switch (op) {
    case TDM_OP_KV_SHIFT: return (tdm_page_job){i, first, count, i == 0 ? 37 : -11};
    case TDM_OP_KV_COPY: return (tdm_page_job){i, first, count, s->n_page - 1};
    default: return (tdm_page_job){i, first, count, i == 0 ? s->page_len + 2 : 0};
    }
}

/* A position for token i of sequence q at which an ATTENTION sees only a part of the sequence; the
 * step's last token sees the sequence up to its end. */
static int32_t pos_choose(const gpu_scene *s, int32_t q, int32_t i) {
    int32_t last = pos_of(s, q, s->len[q] - 1), back = i == s->n_tok - 1 ? 0 : 5 * i % s->len[q];
    if (s->window > last - s->base[q] && !s->is_chunked) return s->base[q] + s->window + back;
    return pos_of(s, q, s->len[q] - 1 - back);
}

static void tokens_fill(const gpu_scene *s, int32_t op, const tdm_step_header *at, int32_t *step) {
    const bool has_rows = op == TDM_OP_KV_WRITE && s->desc.stride > 1;
    const int32_t n_cell = s->n_page * s->page_len;
    for (int32_t i = 0; i < at->n_tok; i++) {
        int32_t q = i / 3 % GPU_SCENE_SEQS, cell = i % 2 == 0 ? i + 1 : n_cell - i;
        bool is_padding = i == 2;
        if (i == at->n_tok - 1) q = 0;
        /* In a cache with a stride, cells that follow each other share a row, which only one token
         * may write: the position, equal to the cell, decides which one does. */
        int32_t pos = has_rows ? cell : pos_choose(s, q, i);
        step[at->pos_off + i] = is_padding ? -1 : pos;
        step[at->seq_off + i] = is_padding ? 0 : q;
        for (int32_t c = 0; c < at->n_class; c++)
            step[at->cls[c].write_off + i] = is_padding || i + 1 >= n_cell / 2 ? -1 : cell;
    }
}

/* Three tokens of a sequence that starts from slot 1, two of one that starts from zeros, one that
 * belongs to no sequence. The states after the last token of each sequence are stored. */
static void slots_fill(const tdm_step_header *at, int32_t *step) {
    static const int32_t first[GPU_SCENE_SEQS + 1] = {0, 3, 5}, start[GPU_SCENE_SEQS] = {1, -1};
    static const int32_t write[SLOT_TOK] = {-1, -1, 2, -1, 3, -1};
    memcpy(step + at->first_tok_off, first, sizeof first);
    memcpy(step + at->rs_read_off, start, sizeof start);
    memcpy(step + at->rs_write_off, write, sizeof write);
    for (int32_t i = 0; i < SLOT_TOK; i++) step[at->pos_off + i] = FIRST_POS + i;
}

/* Makes the excerpt's step block, with the jobs of `op`; op 0: jobs for whole pages. False without
 * memory. */
static bool step_make(gpu_excerpt *x, const gpu_scene *s, int32_t op) {
    const bool is_recurrent = is_recurrent_op(op);
    const bool has_tokens =
        op == TDM_OP_ATTENTION || op == TDM_OP_KV_WRITE || op == TDM_OP_KV_SELECT || is_recurrent;
    tdm_step_header at;
    tdm_step_caps caps = {.n_tok = has_tokens ? s->n_tok : 0,
                          .n_seq = GPU_SCENE_SEQS,
                          .n_entry = s->room_entry,
                          .n_job = op == 0      ? s->n_page
                                   : has_tokens ? 0
                                                : 3,
                          .n_class = s->desc.cls + 1,
                          .has_rs = is_recurrent};
    if (tdm_step_layout(&caps, &at, NULL) != TDM_OK) return false;
    at.epoch = 1;
    at.n_tok = caps.n_tok;
    at.n_seq = GPU_SCENE_SEQS;
    at.n_job = caps.n_job;
    x->graph.step_caps = caps;
    x->step = calloc((size_t)at.size, sizeof *x->step);
    if (x->step == NULL) return false;
    memcpy(x->step, &at, sizeof at);
    if (is_recurrent) {
        slots_fill(&at, x->step);
        return true;
    }
    x->step[at.first_tok_off] = -1; /* tokens are not sorted */
    tokens_fill(s, op, &at, x->step);
    for (int32_t i = 0; i < caps.n_job; i++) {
        tdm_page_job job = op == 0 ? whole_job(s, i) : node_job(s, op, i);
        memcpy(x->step + at.job_off + 4 * i, &job, sizeof job);
    }
    const tdm_step_class *cls = &at.cls[s->desc.cls];
    memcpy(x->step + cls->first_entry_off, s->first_entry, sizeof s->first_entry);
    memcpy(x->step + cls->entry_off, s->entries,
           (size_t)s->first_entry[GPU_SCENE_SEQS] * sizeof s->entries[0]);
    return true;
}

/* ---- Excerpts -------------------------------------------------------------------------------- */

enum { MAX_VALUE = 12, MAX_NODE = 2 };

static int32_t value_add(gpu_excerpt *x, int32_t kind, int32_t type, int64_t n0, int64_t n1,
                         int64_t n2) {
    int32_t index = x->graph.n_value++;
    x->values[index] =
        (tdm_value){.kind = kind, .type = type, .ne = {n0, n1, n2, 1}, .slot = x->graph.n_slot++};
    return index;
}

static tdm_node *node_add(gpu_excerpt *x, int32_t op, int32_t n_src, int32_t n_dst) {
    tdm_node *node = &x->nodes[x->graph.n_node++];
    *node = (tdm_node){.op = op, .n_src = n_src, .n_dst = n_dst};
    for (int k = 0; k < TDM_MAX_SRC; k++) node->src[k] = -1;
    for (int k = 0; k < TDM_MAX_DST; k++) node->dst[k] = -1;
    return node;
}

/* An excerpt with step block and state. */
static gpu_excerpt *excerpt_begin(const gpu_scene *s, int32_t op, uint64_t page_size) {
    gpu_excerpt *x = gpu_excerpt_alloc(MAX_VALUE, MAX_NODE);
    if (x == NULL || !step_make(x, s, op)) {
        gpu_excerpt_free(x);
        return NULL;
    }
    x->kv = s->desc;
    x->graph.kv = &x->kv;
    x->graph.n_kv = 1;
    const tdm_step_header *at = (const tdm_step_header *)(const void *)x->step;
    x->graph.step = x->step_value = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_I32, at->size, 1, 1);
    value_add(x, TDM_VALUE_STATE, TDM_TYPE_I8, (int64_t)page_size, s->n_page, 1);
    return x;
}

static bool has_v(const gpu_scene *s) {
    return (s->desc.flags & TDM_KV_V_FROM_K) == 0;
}

/* Canonical rows of K and V; of V -1 where it is part of K. */
static void rows_add(gpu_excerpt *x, const gpu_scene *s, int32_t kind, int32_t *k, int32_t *v) {
    const tdm_kv_desc *d = &s->desc;
    *k = value_add(x, kind, (int32_t)d->type_k, tdm_kv_padded(d->type_k, d->head_dim_k),
                   d->n_head_kv, s->n_cell);
    *v = -1;
    if (has_v(s))
        *v = value_add(x, kind, (int32_t)d->type_v, tdm_kv_padded(d->type_v, d->head_dim_v),
                       d->n_head_kv, s->n_cell);
}

static void import_add(gpu_excerpt *x, const gpu_scene *s) {
    int32_t k, v;
    rows_add(x, s, TDM_VALUE_INPUT, &k, &v);
    tdm_node *node = node_add(x, TDM_OP_KV_IMPORT, 4, 0);
    node->src[0] = k;
    node->src[1] = v;
    node->src[2] = GPU_SCENE_STEP;
    node->src[3] = GPU_SCENE_STATE;
}

static void export_add(gpu_excerpt *x, const gpu_scene *s) {
    tdm_node *node = node_add(x, TDM_OP_KV_EXPORT, 2, 2);
    node->src[0] = GPU_SCENE_STEP;
    node->src[1] = GPU_SCENE_STATE;
    rows_add(x, s, TDM_VALUE_OUTPUT, &node->dst[0], &node->dst[1]);
}

gpu_excerpt *gpu_scene_rows(const gpu_scene *scene, bool is_import, uint64_t page_size) {
    gpu_excerpt *x = excerpt_begin(scene, 0, page_size);
    if (x == NULL) return NULL;
    if (is_import)
        import_add(x, scene);
    else
        export_add(x, scene);
    return x;
}

/* Adds an INPUT [dim, n_head, n_tok] of f32 and, unless `rope` is -1, a ROPE like that node which
 * turns it. Returns the value that results. */
static int32_t floats_add(gpu_excerpt *x, const gpu_scene *s, const tdm_graph *graph, int32_t rope,
                          int32_t dim, int32_t n_head) {
    int32_t in = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32, dim, n_head, s->n_tok);
    if (rope < 0) return in;
    const tdm_node *theirs = tdm_graph_node(graph, rope);
    int32_t pos = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_I32, s->n_tok, 1, 1), factor = -1;
    if (theirs->src[2] >= 0)
        factor = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32, theirs->params.rope.n_rot / 2, 1, 1);
    int32_t out = value_add(x, TDM_VALUE_TEMP, TDM_TYPE_F32, dim, n_head, s->n_tok);
    tdm_node *node = node_add(x, TDM_OP_ROPE, theirs->n_src, 1);
    node->params = theirs->params;
    node->src[0] = in;
    node->src[1] = pos;
    node->src[2] = factor;
    node->dst[0] = out;
    return out;
}

static void write_add(gpu_excerpt *x, const gpu_scene *s, const tdm_graph *graph, int32_t rope) {
    const tdm_kv_desc *d = &s->desc;
    int32_t k = floats_add(x, s, graph, rope, d->head_dim_k, d->n_head_kv), v = -1;
    if (has_v(s)) v = floats_add(x, s, graph, -1, d->head_dim_v, d->n_head_kv);
    tdm_node *node = node_add(x, TDM_OP_KV_WRITE, 4, 0);
    node->src[0] = k;
    node->src[1] = v;
    node->src[2] = GPU_SCENE_STEP;
    node->src[3] = GPU_SCENE_STATE;
}

/* A list of positions for each token, or one for each KV head where theirs has several. */
static int32_t list_add(gpu_excerpt *x, const gpu_scene *s, const tdm_value *theirs) {
    return value_add(x, TDM_VALUE_INPUT, TDM_TYPE_I32, theirs->ne[0], s->n_tok,
                     theirs->ne[2] > 1 ? s->desc.n_head_kv : 1);
}

/* Adds an ATTENTION with sinks, and with `ml` where has_ml, whatever `theirs` has: the same kernels
 * compute it with and without them. */
static void attention_add(gpu_excerpt *x, const gpu_scene *s, const tdm_graph *graph,
                          const tdm_node *theirs, int32_t rope, bool has_ml) {
    int32_t q = floats_add(x, s, graph, rope, s->desc.head_dim_k, s->n_head);
    int32_t sink = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32, s->n_head, 1, 1);
    int32_t list = -1, bias = -1;
    if (theirs->src[4] >= 0) list = list_add(x, s, tdm_graph_value(graph, theirs->src[4]));
    if (theirs->src[5] >= 0)
        bias = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32,
                         tdm_graph_value(graph, theirs->src[5])->ne[0], s->n_head, 1);
    tdm_node *node = node_add(x, TDM_OP_ATTENTION, 6, 2);
    node->params = theirs->params;
    node->params.attention.first_head = s->first_head;
    node->params.attention.first_head_kv = 0;
    node->src[0] = q;
    node->src[1] = GPU_SCENE_STEP;
    node->src[2] = GPU_SCENE_STATE;
    node->src[3] = sink;
    node->src[4] = list;
    node->src[5] = bias;
    node->dst[0] =
        value_add(x, TDM_VALUE_OUTPUT, TDM_TYPE_F32, s->desc.head_dim_v, s->n_head, s->n_tok);
    if (has_ml) node->dst[1] = value_add(x, TDM_VALUE_OUTPUT, TDM_TYPE_F32, 2, s->n_head, s->n_tok);
}

static void select_add(gpu_excerpt *x, const gpu_scene *s, const tdm_graph *graph,
                       const tdm_node *theirs) {
    const int64_t n_head = tdm_graph_value(graph, theirs->src[0])->ne[1];
    const int32_t q = floats_add(x, s, graph, -1, s->desc.head_dim_k, (int32_t)n_head);
    int32_t w = -1;
    if (theirs->src[1] >= 0) w = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32, n_head, s->n_tok, 1);
    tdm_node *node = node_add(x, TDM_OP_KV_SELECT, 4, 1);
    node->params = theirs->params;
    node->src[0] = q;
    node->src[1] = w;
    node->src[2] = GPU_SCENE_STEP;
    node->src[3] = GPU_SCENE_STATE;
    node->dst[0] = value_add(x, TDM_VALUE_OUTPUT, TDM_TYPE_I32, theirs->params.select.n_top,
                             s->n_tok, w >= 0 ? 1 : n_head);
}

static void shift_add(gpu_excerpt *x, const tdm_node *theirs) {
    int32_t factor = -1;
    if (theirs->src[2] >= 0)
        factor =
            value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32, theirs->params.shift.rope.n_rot / 2, 1, 1);
    tdm_node *node = node_add(x, TDM_OP_KV_SHIFT, 3, 0);
    node->params = theirs->params;
    node->src[0] = GPU_SCENE_STEP;
    node->src[1] = GPU_SCENE_STATE;
    node->src[2] = factor;
}

/* Adds a value like `value` of a node on recurrent states, with the scene's tokens along `axis`.
 * may_be_constant: an axis of one element in a graph of one token may stand for all tokens; it
 * stays as it is. */
static int32_t slot_value_add(gpu_excerpt *x, const gpu_scene *s, const tdm_graph *graph,
                              int32_t value, int32_t kind, int axis, bool may_be_constant) {
    const tdm_value *theirs = tdm_graph_value(graph, value);
    int64_t ne[TDM_MAX_DIMS];
    memcpy(ne, theirs->ne, sizeof ne);
    if (ne[axis] == graph->step_caps.n_tok && (ne[axis] > 1 || !may_be_constant))
        ne[axis] = s->n_tok;
    return value_add(x, kind, theirs->type, ne[0], ne[1], ne[2]);
}

static void recurrent_add(gpu_excerpt *x, const gpu_scene *s, const tdm_graph *graph,
                          const tdm_node *theirs) {
    enum { X = 0, SCORE = 1, G = 3, A = 4 };
    const bool is_scan = theirs->op == TDM_OP_LINEAR_SCAN;
    const bool is_pool = theirs->op == TDM_OP_BLOCK_POOL;
    tdm_node *node = node_add(x, theirs->op, theirs->n_src, 1);
    node->params = theirs->params;
    for (int k = 0; k < theirs->n_src; k++) {
        const int32_t value = theirs->src[k];
        if (value < 0) continue;
        bool has_tokens = is_scan ? k != A : k == X || (is_pool && k == SCORE);
        if (value == graph->step)
            node->src[k] = GPU_SCENE_STEP;
        else if (tdm_graph_value(graph, value)->kind == TDM_VALUE_STATE)
            node->src[k] = GPU_SCENE_STATE;
        else
            node->src[k] = slot_value_add(x, s, graph, value, TDM_VALUE_INPUT,
                                          !has_tokens ? TDM_MAX_DIMS - 1
                                          : is_scan   ? 2
                                                      : 1,
                                          !has_tokens || (is_scan && k == G));
    }
    node->dst[0] =
        slot_value_add(x, s, graph, theirs->dst[0], TDM_VALUE_OUTPUT, is_scan ? 2 : 1, false);
}

static void copy_add(gpu_excerpt *x) {
    tdm_node *node = node_add(x, TDM_OP_KV_COPY, 2, 0);
    node->src[0] = GPU_SCENE_STEP;
    node->src[1] = GPU_SCENE_STATE;
}

gpu_excerpt *gpu_scene_node(const gpu_scene *scene, const tdm_graph *graph, int32_t node,
                            int32_t rope, int32_t product, uint64_t page_size) {
    const tdm_node *theirs = tdm_graph_node(graph, node);
    gpu_excerpt *x = excerpt_begin(scene, theirs->op, page_size);
    if (x == NULL) return NULL;
    switch (theirs->op) {
    case TDM_OP_KV_WRITE: write_add(x, scene, graph, rope); break;
    case TDM_OP_ATTENTION: attention_add(x, scene, graph, theirs, rope, product < 0); break;
    case TDM_OP_KV_SHIFT: shift_add(x, theirs); break;
    case TDM_OP_KV_SELECT: select_add(x, scene, graph, theirs); break;
    case TDM_OP_CONV1D:
    case TDM_OP_LINEAR_SCAN:
    case TDM_OP_BLOCK_POOL: recurrent_add(x, scene, graph, theirs); break;
    case TDM_OP_KV_COPY: copy_add(x); break;
    case TDM_OP_KV_EXPORT: export_add(x, scene); break;
    default: import_add(x, scene); break;
    }
    /* The excerpt has one cache. */
    x->nodes[x->graph.n_node - 1].params.kv.kv = 0;
    if (product >= 0)
        gpu_excerpt_multiply(x, (int64_t)scene->desc.head_dim_v * scene->n_head, (tdm_type)product);
    return x;
}
