/* SPDX-License-Identifier: MIT
 *
 * attention.c: ATTENTION on the fast path: walks the pages of a sequence, chunk by chunk, with an
 * online softmax. Pages, positions, heads and threads are handled here; attention_kernel.h hides
 * types and instruction sets, and attention_part.h says how a sequence is cut into parts.
 *
 * Mental model. A run of tokens of one sequence attends to that sequence's cached tokens in parts.
 * For each part its query rows (those of its tokens and of the heads that share a KV head) keep
 * (m, l, o) and fold one chunk of up to 64 slots after the other into it:
 *     s = q K, m' = max s, p = exp(s - m'), l' = sum p, then with M = max(m, m'):
 *     o = exp(m - M) o + exp(m' - M) p V, l = exp(m - M) l + exp(m' - M) l', m = M
 * and parts are folded into one another in the same way. With few rows over a long cache the
 * workers divide the parts, keep each part's (m, l, o) in the scratch, and merge them behind a
 * barrier; else a worker has a block of tokens and folds part after part itself. Where a part ends
 * follows from positions alone, so that a row's bits depend neither on the number of threads nor on
 * the tokens that are computed beside it.
 */
#include <math.h>
#include <string.h>

#include "core/base/position.h"
#include "plugins/cpu/ops/attention_kernel.h"
#include "plugins/cpu/ops/attention_part.h"
#include "plugins/cpu/ops/position_list.h"
#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/exec/pool.h"

enum { SRC_Q, SRC_STEP, SRC_STATE, SRC_SINK, SRC_SELECT, SRC_BIAS };

enum {
    BLOCK_ROWS = 64, /* query rows of an item: their state then stays in the second-level cache */
    PREFETCH_SIZE = 512, /* bytes of an item's first codes that are prefetched before its queries */
    PART_HEAD = 16       /* floats of a part's row before its elements, so that these are aligned */
};

/* Arrays of a worker with an element for each query row: see walk. */
enum { POINTER_ARRAYS = 3, WORD_ARRAYS = 11 };

/* What follows from the graph alone. */
typedef struct shape {
    cpu_kv_layout layout;
    tdm_attention_params params;
    int32_t n_tok, n_head;
    int32_t first_kv, n_kv; /* KV heads of the state that the node's query heads read */
    int32_t max_rows;       /* query rows of an item */
    int32_t block_len;      /* tokens of an item */
    int32_t n_part;         /* most parts that a run has */
    bool is_split;          /* workers divide the parts; else blocks of tokens */
    int32_t n_dim;          /* elements of o inside, a multiple of 16 */
    size_t query_size;      /* bytes of a prepared query row */
    size_t part_size;       /* bytes of a part's (m, l, o) */
    size_t n_saved;         /* rows whose o is kept while a chunk is added */
    size_t worker_size;
    float scale;
} shape;

typedef struct row_state {
    int64_t first_pos, last_pos; /* visible positions */
    int64_t pos;
    float slope;              /* of ALiBi */
    const uint8_t *bias;      /* the head's numbers for each distance; NULL = none */
    cpu_position_list select; /* the positions that count; `at` NULL = no sparse attention */
} row_state;

static size_t align_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

static bool shape_get(const tdm_graph *graph, const tdm_node *node, shape *out) {
    const tdm_value *q = tdm_graph_value(graph, node->src[SRC_Q]);
    memset(out, 0, sizeof *out);
    out->params = node->params.attention;
    const tdm_attention_params *p = &out->params;
    if (cpu_kv_layout_get(tdm_graph_kv(graph, p->kv), &out->layout, NULL) != TDM_OK) return false;
    const cpu_kv_side *k = &out->layout.k, *v = &out->layout.v;
    out->n_head = (int32_t)q->ne[1];
    out->n_tok = (int32_t)q->ne[2];
    if (out->n_head == 0 || out->n_tok == 0) return true;
    out->first_kv = p->first_head / p->heads_per_kv - p->first_head_kv;
    out->n_kv =
        (p->first_head + out->n_head - 1) / p->heads_per_kv - p->first_head_kv + 1 - out->first_kv;
    out->block_len = p->heads_per_kv < BLOCK_ROWS ? BLOCK_ROWS / p->heads_per_kv : 1;
    if (out->block_len > out->n_tok) out->block_len = out->n_tok;
    int32_t heads = p->heads_per_kv < out->n_head ? p->heads_per_kv : out->n_head;
    out->max_rows = out->block_len * heads;

    /* Where V is the first part of K, its last rotated block has to be complete. */
    size_t unit = v->n_block == 0 ? 16 : (size_t)(v->rotation > 32 ? v->rotation : 32);
    out->n_dim = (int32_t)align_up((size_t)v->head_dim, unit);

    out->n_part = cpu_attention_part_most(graph->step_caps.n_entry, out->layout.page_len);
    out->is_split = out->n_part > 1 && out->n_tok <= out->block_len;

    size_t rows = (size_t)out->max_rows;
    out->n_saved = node->src[SRC_SELECT] >= 0 ? rows : 0;
    out->query_size = cpu_kv_round((size_t)k->padded * 4) +
                      cpu_kv_round((size_t)k->n_block * sizeof(cpu_query_block));
    out->part_size = cpu_kv_round((PART_HEAD + (size_t)out->n_dim) * sizeof(float));
    out->worker_size =
        cpu_kv_round((size_t)k->padded * sizeof(float)) + rows * out->query_size +
        rows * CPU_CHUNK * sizeof(float) +
        (2 * rows + out->n_saved) * cpu_kv_round((size_t)out->n_dim * sizeof(float)) +
        cpu_kv_round(rows * sizeof(row_state)) +
        POINTER_ARRAYS * cpu_kv_round(rows * sizeof(void *)) +
        WORD_ARRAYS * cpu_kv_round(rows * sizeof(float));
    out->scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)k->head_dim);
    return true;
}

static size_t parts_size(const shape *s) {
    if (!s->is_split) return 0;
    return (size_t)s->n_tok * (size_t)s->n_head * (size_t)s->n_part * s->part_size;
}

static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    shape s;
    cpu_kv_layout layout;
    const tdm_attention_params *p = &node->params.attention;
    (void)device;
    tdm_status status = cpu_kv_supports(graph, node, p->kv, SRC_STEP, SRC_STATE, &layout, err);
    if (status != TDM_OK) return status;
    if (p->heads_per_kv < 1 || p->first_head < 0 || p->first_head_kv < 0 ||
        !shape_get(graph, node, &s) || s.first_kv < 0 || s.first_kv + s.n_kv > layout.n_head_kv)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "attention of heads %d .. +%lld, %d of them to a KV head: the cache holds "
                        "KV heads %d .. +%d",
                        p->first_head, (long long)tdm_graph_value(graph, node->src[SRC_Q])->ne[1],
                        p->heads_per_kv, p->first_head_kv, layout.n_head_kv);
    return TDM_OK;
}

static size_t scratch_size(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    shape s;
    if (device->is_reference) return cpu_attention_reference_scratch(device, graph, node);
    if (!shape_get(graph, node, &s)) return 0;
    return parts_size(&s) + s.worker_size * (size_t)device->n_thread;
}

/* What the plan holds for the op. */
typedef struct attention_facts {
    shape shape;
    cpu_attention_kernels kernels[CPU_N_ROLE]; /* by role of the tokens */
} attention_facts;

static void facts_make(const cpu_node *n, void *facts_out) {
    attention_facts *f = facts_out;
    if (!shape_get(n->graph, n->node, &f->shape)) return;
    for (int role = 0; role < CPU_N_ROLE; role++)
        f->kernels[role] =
            cpu_attention_choose(n->device->isa, n->device->has_q8[role], &f->shape.layout);
}

/* ---- one worker's work ----------------------------------------------------------------------- */

typedef struct walk {
    const cpu_node *n;
    const shape *s;
    cpu_step step;
    const cpu_attention_kernels *role_kernels; /* [CPU_N_ROLE] by role of the tokens */
    cpu_attention_kernels kernels;             /* of the run's tokens */
    float *x;                                  /* [padded_k] */
    uint8_t *queries;                          /* [max_rows] of query_size */
    float *scores;                             /* [max_rows, CPU_CHUNK] */
    float *outs;   /* [max_rows] of out_stride floats: o of the present part, */
    float *totals; /* and of all before it */
    float *saved;  /* [max_rows] outs before a chunk; only with lists of positions */
    size_t out_stride;
    int32_t n_row;
    row_state *rows;                   /* [max_rows], like all from here on */
    float *m, *l;                      /* running maximum and sum of the present part, */
    float *total_m, *total_l;          /* and of all before it */
    int64_t common_first, common_last; /* positions that every row sees */
    /* The valid slots of the last chunk, if every row sees all of them; else uniform_last is 0. If
     * every row sees the same slots of the next chunk too, the arrays below stay as they are. */
    int32_t uniform_first, uniform_last;
    /* Of the rows that see some of the present chunk: which ones, and what the kernels take. */
    int32_t *active;
    const uint8_t **q;
    float **score;
    float **out;
    int32_t *first, *last; /* slots, counted from the chunk's first */
    float *keep, *gain, *active_m, *active_l;
} walk;

static walk walk_begin(const cpu_node *n, uint8_t *at) {
    const attention_facts *facts = n->facts;
    const shape *s = &facts->shape;
    walk k = {.n = n, .s = s, .role_kernels = facts->kernels};
    size_t rows = (size_t)s->max_rows;
    k.step = cpu_step_get(n->graph, &n->src[SRC_STEP], tdm_graph_kv(n->graph, s->params.kv)->cls);
    if (n->device->has_q8[0] == n->device->has_q8[1]) k.step.role = NULL; /* they are the same */
    k.kernels = k.role_kernels[TDM_ROLE_GENERATED]; /* `rotate` is the same for every role */
    k.out_stride = cpu_kv_round((size_t)s->n_dim * sizeof(float)) / sizeof(float);
    k.x = (float *)(void *)at, at += cpu_kv_round((size_t)s->layout.k.padded * sizeof(float));
    k.queries = at, at += rows * s->query_size;
    k.scores = (float *)(void *)at, at += rows * CPU_CHUNK * sizeof(float);
    k.outs = (float *)(void *)at, at += rows * k.out_stride * sizeof(float);
    k.totals = (float *)(void *)at, at += rows * k.out_stride * sizeof(float);
    k.saved = (float *)(void *)at, at += s->n_saved * k.out_stride * sizeof(float);
    k.rows = (row_state *)(void *)at, at += cpu_kv_round(rows * sizeof(row_state));
    size_t pointers = cpu_kv_round(rows * sizeof(void *)), words = cpu_kv_round(rows * 4);
    k.q = (const uint8_t **)(void *)at, at += pointers;
    k.score = (float **)(void *)at, at += pointers;
    k.out = (float **)(void *)at, at += pointers;
    k.m = (float *)(void *)at, at += words;
    k.l = (float *)(void *)at, at += words;
    k.total_m = (float *)(void *)at, at += words;
    k.total_l = (float *)(void *)at, at += words;
    k.active = (int32_t *)(void *)at, at += words;
    k.first = (int32_t *)(void *)at, at += words;
    k.last = (int32_t *)(void *)at, at += words;
    k.keep = (float *)(void *)at, at += words;
    k.gain = (float *)(void *)at, at += words;
    k.active_m = (float *)(void *)at, at += words;
    k.active_l = (float *)(void *)at;
    return k;
}

/* The positions that a token at `pos` sees. */
static void visible_range(const tdm_attention_params *p, int64_t pos, int64_t *first,
                          int64_t *last) {
    *first = tdm_window_first(p, pos);
    *last = tdm_window_last(p, pos);
}

static void query_begin(walk *k, int32_t token, int32_t head) {
    const shape *s = k->s;
    const int32_t head_kv =
        (s->params.first_head + head) / s->params.heads_per_kv - s->params.first_head_kv;
    const cpu_kv_side *side = &s->layout.k;
    int32_t row = k->n_row++;
    row_state *state = &k->rows[row];
    uint8_t *q = k->queries + (size_t)row * s->query_size;
    float *x = k->kernels.query != NULL ? k->x : (float *)(void *)q;
    const int64_t pos = cpu_step_row(&k->step, &s->layout, token);
    visible_range(&s->params, pos, &state->first_pos, &state->last_pos);
    if (state->first_pos > k->common_first) k->common_first = state->first_pos;
    if (state->last_pos < k->common_last) k->common_last = state->last_pos;
    cpu_kv_read_row(&k->n->src[SRC_Q], head, token, x);
    state->pos = pos;
    state->select = cpu_position_list_get(&k->n->src[SRC_SELECT], token, head_kv);
    state->slope = tdm_alibi_slope(&s->params, s->params.first_head + head);
    const cpu_view *bias = &k->n->src[SRC_BIAS];
    state->bias = bias->data != NULL ? bias->data + head * bias->nb[1] : NULL;
    const float scale = s->scale * tdm_attention_temperature(&s->params, state->pos);
    for (int32_t i = 0; i < side->head_dim; i++) x[i] *= scale;
    memset(x + side->head_dim, 0, (size_t)(side->padded - side->head_dim) * sizeof *x);
    k->kernels.rotate(x, side->padded, side->rotation);
    if (k->kernels.query != NULL) k->kernels.query(side, x, q);
}

/* Up to 64 slots of a head's region: those from `start` on. */
typedef struct chunk {
    const uint8_t *region;
    int32_t start;
    int64_t pos;                     /* of the token that slot `start` holds, or would */
    int32_t valid_first, valid_last; /* slots that hold tokens, counted from `start` */
    int32_t entry;                   /* of the run */
} chunk;

static const uint8_t *chunk_codes(const chunk *c, const cpu_kv_side *side) {
    return c->region + side->data_off + (size_t)(c->start / CPU_KV_TILE) * side->data_size;
}

static const uint8_t *chunk_scales(const chunk *c, const cpu_kv_side *side) {
    return c->region + side->scale_off + (size_t)(c->start / CPU_KV_TILE) * side->scale_size;
}

/* Prefetches n bytes. Pages may lie anywhere, so the processor cannot predict their addresses. */
static void prefetch(const uint8_t *at, size_t n) {
#if defined(__GNUC__)
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch(at + i, 0, 2);
#else
    (void)at, (void)n;
#endif
}

/* Slots first .. last-1 of a chunk. The scales of the next chunk are few lines and prefetched at
 * once. The kernel prefetches its codes step by step, since so many at a time would queue up. */
static cpu_kv_span span_get(const cpu_kv_side *side, const chunk *c, const chunk *next,
                            int32_t first, int32_t last) {
    cpu_kv_span span = {.side = side,
                        .data = chunk_codes(c, side),
                        .scale = chunk_scales(c, side),
                        .first = first,
                        .last = last};
    if (next->region == NULL) return span;
    span.ahead = chunk_codes(next, side) - span.data;
    prefetch(chunk_scales(next, side), side->scale_size * (CPU_CHUNK / CPU_KV_TILE));
    return span;
}

/* Row r sees slots first .. last-1 of the present chunk. */
static void activate(walk *k, int32_t r, int32_t at, int32_t first, int32_t last) {
    k->active[at] = r;
    k->q[at] = k->queries + (size_t)r * k->s->query_size;
    k->score[at] = k->scores + (size_t)r * CPU_CHUNK;
    k->out[at] = k->outs + (size_t)r * k->out_stride;
    k->first[at] = first;
    k->last[at] = last;
}

/* Shortens slots *lo .. *hi-1 of the chunk whose first slot holds position `pos` to the first and
 * the last that are listed; leaves none where none is. */
static void narrow(const cpu_position_list *list, int64_t pos, int64_t *lo, int64_t *hi) {
    if (list->at == NULL || *lo >= *hi) return;
    int32_t first = cpu_position_list_find(list, pos + *lo);
    int32_t last = cpu_position_list_find(list, pos + *hi) - 1;
    if (last < first) {
        *hi = *lo;
        return;
    }
    int64_t from = cpu_position_at(list, first) - pos, to = cpu_position_at(list, last) - pos + 1;
    if (from > *lo) *lo = from;
    if (to < *hi) *hi = to;
}

/* Takes the slots that are not listed out of the active rows' softmax. */
static void hide_scores(const walk *k, int64_t pos, int32_t n) {
    for (int32_t a = 0; a < n; a++) {
        const cpu_position_list *list = &k->rows[k->active[a]].select;
        int32_t at = cpu_position_list_find(list, pos + k->first[a]);
        for (int32_t i = k->first[a]; i < k->last[a]; i++) {
            while (at < list->n && cpu_position_at(list, at) < pos + i) at++;
            if (at >= list->n || cpu_position_at(list, at) != pos + i) k->score[a][i] = -INFINITY;
        }
    }
}

/* Finds the rows that see some of the chunk whose first slot holds position `pos`; slots
 * valid_first .. valid_last-1 hold tokens. Returns how many. */
static int32_t activate_rows(walk *k, int64_t pos, int32_t valid_first, int32_t valid_last) {
    int32_t n = 0;
    bool is_uniform = k->n->src[SRC_SELECT].data == NULL && k->common_first <= pos + valid_first &&
                      k->common_last >= pos + valid_last - 1;
    if (is_uniform && k->uniform_first == valid_first && k->uniform_last == valid_last)
        return k->n_row;
    k->uniform_first = valid_first;
    k->uniform_last = is_uniform ? valid_last : 0;
    for (int32_t r = 0; r < k->n_row; r++) {
        int64_t lo = k->rows[r].first_pos - pos, hi = k->rows[r].last_pos - pos + 1;
        if (lo < valid_first) lo = valid_first;
        if (hi > valid_last) hi = valid_last;
        narrow(&k->rows[r].select, pos, &lo, &hi);
        if (lo < hi) activate(k, r, n++, (int32_t)lo, (int32_t)hi);
    }
    return n;
}

/* Subtracts ALiBi's part from the scores of the active rows in the chunk whose first slot holds
 * position `pos`. */
static void slope_scores(const walk *k, int64_t pos, int32_t n) {
    for (int32_t a = 0; a < n; a++) {
        const row_state *row = &k->rows[k->active[a]];
        float *score = k->score[a];
        const int32_t distance = (int32_t)(row->pos - pos);
        for (int32_t i = k->first[a]; i < k->last[a]; i++) {
            int32_t d = distance - i;
            score[i] -= row->slope * (float)(d < 0 ? -d : d);
        }
    }
}

/* Adds the bias of each distance to the same scores. */
static void bias_scores(const walk *k, int64_t pos, int32_t n) {
    const cpu_view *bias = &k->n->src[SRC_BIAS];
    const int64_t n_far = bias->ne[0] / 2, nb = bias->nb[0];
    for (int32_t a = 0; a < n; a++) {
        const row_state *row = &k->rows[k->active[a]];
        float *score = k->score[a];
        for (int32_t i = k->first[a]; i < k->last[a]; i++) {
            int64_t d = pos + i - row->pos;
            d = d < -n_far ? -n_far : d > n_far ? n_far : d;
            score[i] += *(const float *)(const void *)(row->bias + (n_far + d) * nb);
        }
    }
}

static bool are_finite(const float *x, int32_t n) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) sum += x[i] * 0;
    return sum == 0;
}

/* Adds the listed values to active row a, one run of neighbouring slots after the other. */
static void add_listed(const walk *k, const chunk *c, int32_t a) {
    const shape *s = k->s;
    const cpu_position_list *list = &k->rows[k->active[a]].select;
    const chunk none = {.region = NULL};
    float p[CPU_CHUNK], one = 1;
    const float *p_row = p;
    cpu_attention_rows row = {1, &p_row, k->out + a, k->keep + a, k->gain + a};
    for (int32_t lo = k->first[a], hi; lo < k->last[a]; lo = hi + 1) {
        for (hi = lo; hi < k->last[a] && cpu_position_list_has(list, c->pos + hi);) hi++;
        if (hi == lo) continue;
        memset(p, 0, sizeof p);
        memcpy(p + lo, k->score[a] + lo, (size_t)(hi - lo) * sizeof *p);
        cpu_kv_span values = span_get(&s->layout.v, c, &none, lo, hi);
        k->kernels.add(&values, s->n_dim, &row);
        row.keep = &one;
    }
}

/* Adds the values to active rows a .. end-1, which see the same slots. With lists of positions, a
 * slot that is not listed has the factor 0, and gives NaN where its value is NaN or infinite. Rows
 * that are not finite then are computed again, with the listed slots alone. */
static void add_values(const walk *k, const chunk *c, const chunk *next, int32_t a, int32_t end) {
    const shape *s = k->s;
    const size_t size = (size_t)s->n_dim * sizeof(float);
    const bool has_list = k->n->src[SRC_SELECT].data != NULL;
    cpu_kv_span values = span_get(&s->layout.v, c, next, k->first[a], k->last[a]);
    cpu_attention_rows rows = {end - a, (const float *const *)k->score + a, k->out + a, k->keep + a,
                               k->gain + a};
    for (int32_t r = a; r < end && has_list; r++)
        memcpy(k->saved + (size_t)r * k->out_stride, k->out[r], size);
    k->kernels.add(&values, s->n_dim, &rows);
    for (int32_t r = a; r < end && has_list; r++) {
        if (are_finite(k->out[r], s->n_dim)) continue;
        memcpy(k->out[r], k->saved + (size_t)r * k->out_stride, size);
        add_listed(k, c, r);
    }
}

/* Folds a chunk into the rows that see some of it: those that see the same slots together. */
static void fold_chunk(walk *k, const chunk *c, const chunk *next) {
    const shape *s = k->s;
    int32_t n = activate_rows(k, c->pos, c->valid_first, c->valid_last);
    int32_t first = CPU_CHUNK, last = 0;
    if (n == 0) return;
    if (k->uniform_last > 0) first = c->valid_first, last = c->valid_last;
    for (int32_t a = 0; a < n && k->uniform_last == 0; a++) {
        if (k->first[a] < first) first = k->first[a];
        if (k->last[a] > last) last = k->last[a];
    }
    cpu_kv_span keys = span_get(&s->layout.k, c, next, first, last);
    k->kernels.score(&keys, n, k->q, k->score);
    if (s->params.alibi_max_bias > 0) slope_scores(k, c->pos, n);
    if (k->n->src[SRC_BIAS].data != NULL) bias_scores(k, c->pos, n);
    if (k->n->src[SRC_SELECT].data != NULL) hide_scores(k, c->pos, n);

    bool is_whole = n == k->n_row; /* then active[a] = a */
    float *m = is_whole ? k->m : k->active_m, *l = is_whole ? k->l : k->active_l;
    for (int32_t a = 0; a < n && !is_whole; a++) {
        m[a] = k->m[k->active[a]];
        l[a] = k->l[k->active[a]];
    }
    cpu_softmax_rows softmax = {
        .n = n,
        .score = k->score,
        .first = k->first,
        .last = k->last,
        .m = m,
        .l = l,
        .keep = k->keep,
        .gain = k->gain,
    };
    k->kernels.softmax(&softmax, first / CPU_KV_TILE * CPU_KV_TILE,
                       (last + CPU_KV_TILE - 1) / CPU_KV_TILE * CPU_KV_TILE, s->params.softcap);
    for (int32_t a = 0; a < n && !is_whole; a++) {
        k->m[k->active[a]] = m[a];
        k->l[k->active[a]] = l[a];
    }
    for (int32_t a = 0, end; a < n; a = end) {
        end = k->uniform_last > 0 ? n : a + 1;
        while (end < n && k->first[end] == k->first[a] && k->last[end] == k->last[a]) end++;
        add_values(k, c, next, a, end);
    }
}

/* Neighbouring tokens that attend together: of one sequence and role, or one token of padding. */
typedef struct token_run {
    int32_t first, last; /* tokens first .. last-1 */
    tdm_role role;
    int64_t first_pos, last_pos;   /* positions that any of them sees */
    const tdm_page_entry *entries; /* without those at either end that hold none of these */
    int32_t n_entry;               /* 0 = nothing to see */
} token_run;

static tdm_role token_role(const cpu_step *step, int32_t token) {
    if (step->role == NULL) return TDM_ROLE_GENERATED;
    return step->role[token] == TDM_ROLE_PROMPT ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED;
}

/* The run that begins with token `first` and ends before `limit`. */
static token_run run_get(const cpu_step *step, const shape *s, int32_t first, int32_t limit) {
    token_run run = {.first = first, .last = first + 1, .first_pos = INT32_MAX, .last_pos = -1};
    if (first >= step->n_tok || step->pos[first] < 0) return run;
    run.role = token_role(step, first);
    while (run.last < limit && run.last < step->n_tok && step->pos[run.last] >= 0 &&
           step->seq[run.last] == step->seq[first] && token_role(step, run.last) == run.role)
        run.last++;
    for (int32_t t = first; t < run.last; t++) {
        int64_t lo, hi;
        visible_range(&s->params, cpu_step_row(step, &s->layout, t), &lo, &hi);
        run.first_pos = lo < run.first_pos ? lo : run.first_pos;
        run.last_pos = hi > run.last_pos ? hi : run.last_pos;
    }
    int32_t n;
    const tdm_page_entry *e = cpu_step_entries(step, step->seq[first], &n);
    const int32_t stride = s->layout.stride;
    while (n > 0 && ((int64_t)e->base_pos + e->count) / stride <= run.first_pos) e++, n--;
    while (n > 0 && e[n - 1].base_pos / stride > run.last_pos) n--;
    run.entries = e;
    run.n_entry = n;
    return run;
}

/* The end of part number `part`, which begins with entry `at` of the run. The last of the n_part
 * parts that there is room for takes all that is left. */
static int32_t part_end(const shape *s, const token_run *run, int32_t part, int32_t at) {
    if (part + 1 >= s->n_part || at >= run->n_entry) return run->n_entry;
    return cpu_attention_part_end(run->entries, at, run->n_entry);
}

/* Where a walk over the chunks of a run's entries is: those that hold positions it sees. */
typedef struct cursor {
    const token_run *run;
    int32_t at, end;      /* entries not yet begun: at .. end-1 */
    int32_t head_kv;      /* of the state */
    tdm_page_entry entry; /* the present one, clipped */
    int32_t start, last;  /* slots of it that are left: start, a chunk's first, .. last-1 */
} cursor;

/* The next chunk; region NULL behind the last. */
static chunk cursor_next(cursor *c, const walk *k) {
    const cpu_kv_layout *layout = &k->s->layout;
    const cpu_view *state = &k->n->src[SRC_STATE];
    while (c->start >= c->last) {
        if (c->at >= c->end) return (chunk){.region = NULL};
        const token_run *run = c->run;
        tdm_page_entry e = run->entries[c->at++];
        if (!cpu_kv_entry_clip(layout, state->ne[1], &e) || e.base_pos > run->last_pos ||
            (int64_t)e.base_pos + e.count <= run->first_pos)
            continue;
        int64_t lo = run->first_pos > e.base_pos ? run->first_pos - e.base_pos : 0;
        int64_t hi = run->last_pos - e.base_pos + 1;
        c->entry = e;
        c->start = (e.first + (int32_t)lo) / CPU_CHUNK * CPU_CHUNK;
        c->last = e.first + (hi < e.count ? (int32_t)hi : e.count);
    }
    const tdm_page_entry *e = &c->entry;
    int32_t start = c->start, valid_last = e->first + e->count - start;
    c->start += CPU_CHUNK;
    return (chunk){.region = cpu_kv_head(layout, state->data, e->page, c->head_kv),
                   .start = start,
                   .pos = (int64_t)e->base_pos + start - e->first,
                   .valid_first = e->first > start ? e->first - start : 0,
                   .valid_last = valid_last < CPU_CHUNK ? valid_last : CPU_CHUNK,
                   .entry = c->at - 1};
}

/* Writes a row to the destinations: o / l, with the sink in l, turned back from the rotation, and
 * (m, l). `o` is changed. */
static void finish_row(const cpu_node *n, const shape *s, cpu_hadamard_fn rotate, int32_t token,
                       int32_t head, float m, float l, float *o) {
    const cpu_view *out = &n->dst[0], *ml = &n->dst[1], *sink = &n->src[SRC_SINK];
    uint8_t *at = out->data + head * out->nb[1] + token * out->nb[2];
    int32_t n_out = s->layout.v.head_dim;
    float factor = 0, total = l;
    if (l != 0) {
        factor = 1 / l;
        if (sink->data != NULL) {
            float extra = *(const float *)(const void *)(sink->data + head * sink->nb[0]) - m;
            total = l + expf(extra);
            /* A sink far above m would overflow; relative to the sink nothing does. */
            factor = extra > 0 ? expf(-extra) / (l * expf(-extra) + 1) : 1 / total;
        }
        int32_t n_rotated = (int32_t)align_up((size_t)n_out, (size_t)s->layout.v.rotation);
        for (int32_t i = 0; i < n_rotated; i++) o[i] *= factor;
        rotate(o, n_rotated, s->layout.v.rotation);
    }
    if (l != 0 && out->nb[0] == (int64_t)sizeof *o) {
        memcpy(at, o, (size_t)n_out * sizeof *o);
    } else {
        for (int32_t i = 0; i < n_out; i++)
            *(float *)(void *)(at + i * out->nb[0]) = l == 0 ? 0 : o[i];
    }
    if (ml->data == NULL) return;
    at = ml->data + head * ml->nb[1] + token * ml->nb[2];
    *(float *)(void *)at = m;
    *(float *)(void *)(at + ml->nb[0]) = total;
}

/* A row's part in the scratch: m, l, then from PART_HEAD on n_dim elements of o. */
static float *part_at(const cpu_node *n, const shape *s, int32_t token, int32_t head,
                      int32_t part) {
    size_t row = (size_t)token * (size_t)s->n_head + (size_t)head;
    return (float *)(void *)(n->scratch + (row * (size_t)s->n_part + (size_t)part) * s->part_size);
}

/* Folds a part (m, l, o) into the sum of those before it. One that saw nothing (l 0) adds
 * nothing. */
static void fold_part(float *m_sum, float *l_sum, float *restrict o_sum, float m, float l,
                      const float *restrict o, int32_t n) {
    if (l == 0) return;
    if (*l_sum == 0) {
        memcpy(o_sum, o, (size_t)n * sizeof *o);
        *m_sum = m, *l_sum = l;
        return;
    }
    float top = m > *m_sum ? m : *m_sum, keep = expf(*m_sum - top), gain = expf(m - top);
    for (int32_t i = 0; i < n; i++) o_sum[i] = o_sum[i] * keep + o[i] * gain;
    *m_sum = top, *l_sum = *l_sum * keep + l * gain;
}

/* The query rows of a run's tokens and of the heads of one KV head. */
typedef struct row_block {
    const token_run *run;
    int32_t head_first, n_head;
    int32_t n_row; /* n_head for each token */
} row_block;

/* Copies a part's rows to the scratch, where they are merged with the parts of other workers. */
static void keep_part(const walk *k, const row_block *b, int32_t part) {
    const shape *s = k->s;
    for (int32_t r = 0; r < b->n_row; r++) {
        float *to =
            part_at(k->n, s, b->run->first + r / b->n_head, b->head_first + r % b->n_head, part);
        to[0] = k->m[r];
        to[1] = k->l[r];
        if (to[1] == 0) continue;
        memcpy(to + PART_HEAD, k->outs + (size_t)r * k->out_stride, (size_t)s->n_dim * sizeof *to);
    }
}

/* Folds the present part into those before it, or as the last one finishes the rows. */
static void finish_part(walk *k, const row_block *b, bool is_first, bool is_last) {
    for (int32_t r = 0; r < b->n_row; r++) {
        float *o = k->outs + (size_t)r * k->out_stride;
        float *total = k->totals + (size_t)r * k->out_stride;
        float *m = &k->m[r], *l = &k->l[r];
        if (is_first) k->total_m[r] = -INFINITY, k->total_l[r] = 0;
        if (!is_first || !is_last) {
            fold_part(&k->total_m[r], &k->total_l[r], total, *m, *l, o, k->s->n_dim);
            m = &k->total_m[r], l = &k->total_l[r], o = total;
        }
        if (is_last)
            finish_row(k->n, k->s, k->kernels.rotate, b->run->first + r / b->n_head,
                       b->head_first + r % b->n_head, *m, *l, o);
    }
}

/* Computes a run's tokens and the heads of one KV head over n_part parts: from number `part` on,
 * which begins with entry `at`, to the run's last one at most. A run that sees nothing has one
 * empty part. Queries are prepared once for all parts. */
static void attend(walk *k, const token_run *run, int32_t kv, int32_t part, int32_t at,
                   int32_t n_part) {
    const shape *s = k->s;
    const tdm_attention_params *p = &s->params;
    int32_t kv_all = p->first_head_kv + s->first_kv + kv;
    int32_t head_first = kv_all * p->heads_per_kv - p->first_head;
    int32_t head_last = head_first + p->heads_per_kv;
    if (head_first < 0) head_first = 0;
    if (head_last > s->n_head) head_last = s->n_head;
    row_block b = {run, head_first, head_last - head_first, 0};
    b.n_row = (run->last - run->first) * b.n_head;
    cursor c = {.run = run, .at = at, .end = run->n_entry, .head_kv = s->first_kv + kv};
    chunk present = cursor_next(&c, k);
    k->kernels = k->role_kernels[run->role];
    k->n_row = 0;
    k->common_first = 0;
    k->common_last = INT32_MAX;
    k->uniform_first = k->uniform_last = 0;
    if (present.region != NULL) {
        prefetch(chunk_codes(&present, &s->layout.k), PREFETCH_SIZE);
        for (int32_t t = run->first; t < run->last; t++)
            for (int32_t h = 0; h < b.n_head; h++) query_begin(k, t, head_first + h);
    }
    bool is_first = true, is_last = false;
    for (int32_t i = 0; i < n_part && !is_last; i++, part++) {
        at = part_end(s, run, part, at);
        for (int32_t r = 0; r < b.n_row; r++) k->m[r] = -INFINITY, k->l[r] = 0;
        memset(k->outs, 0, (size_t)k->n_row * k->out_stride * sizeof *k->outs);
        while (present.region != NULL && present.entry < at) {
            chunk next = cursor_next(&c, k);
            fold_chunk(k, &present, &next);
            present = next;
        }
        is_last = at >= run->n_entry;
        if (s->is_split)
            keep_part(k, &b, part);
        else
            finish_part(k, &b, is_first, is_last);
        is_first = false;
    }
}

static void attend_block(walk *k, int32_t first, int32_t last, int32_t kv) {
    while (first < last) {
        token_run run = run_get(&k->step, k->s, first, last);
        attend(k, &run, kv, 0, 0, k->s->n_part);
        first = run.last;
    }
}

/* Worker w's share of the parts of all runs and KV heads: neighbours, so that few queries are
 * prepared more than once. A part belongs to the worker whose share of all entries contains the
 * part's middle. */
static void attend_parts(walk *k, const cpu_worker *w) {
    const shape *s = k->s;
    int64_t n_all = 0, done = 0;
    for (int32_t t = 0; t < s->n_tok;) {
        token_run run = run_get(&k->step, s, t, s->n_tok);
        n_all += (int64_t)run.n_entry * s->n_kv;
        t = run.last;
    }
    int64_t first = 2 * n_all * w->ith / w->nth, last = 2 * n_all * (w->ith + 1) / w->nth;
    for (int32_t t = 0; t < s->n_tok && 2 * done < last;) {
        token_run run = run_get(&k->step, s, t, s->n_tok);
        for (int32_t kv = 0; kv < s->n_kv; kv++, done += run.n_entry) {
            int32_t n_mine = 0, part_mine = 0, at_mine = 0;
            for (int32_t at = 0, part = 0, end; at < run.n_entry; at = end, part++) {
                end = part_end(s, &run, part, at);
                int64_t middle = 2 * done + at + end;
                if (middle < first || middle >= last) continue;
                if (n_mine++ == 0) part_mine = part, at_mine = at;
            }
            if (n_mine > 0) attend(k, &run, kv, part_mine, at_mine, n_mine);
        }
        t = run.last;
    }
}

/* A row's parts, folded in their order in the first one's memory. */
static void merge_row(const walk *k, int32_t token, int32_t head, int32_t n_part) {
    const shape *s = k->s;
    float *sum = part_at(k->n, s, token, head, 0), m = -INFINITY, l = 0;
    if (n_part > 0) m = sum[0], l = sum[1];
    for (int32_t i = 1; i < n_part; i++) {
        const float *part = part_at(k->n, s, token, head, i);
        fold_part(&m, &l, sum + PART_HEAD, part[0], part[1], part + PART_HEAD, s->n_dim);
    }
    finish_row(k->n, s, k->kernels.rotate, token, head, m, l, sum + PART_HEAD);
}

static void merge_parts(const walk *k, const cpu_worker *w) {
    const shape *s = k->s;
    int64_t first, last;
    cpu_worker_share(w, (int64_t)s->n_tok * s->n_head, 1, &first, &last);
    for (int32_t t = 0; t < s->n_tok;) {
        token_run run = run_get(&k->step, s, t, s->n_tok);
        int32_t n_part = 0;
        for (int32_t at = 0; at < run.n_entry; n_part++) at = part_end(s, &run, n_part, at);
        for (; t < run.last; t++) {
            int64_t lo = first - (int64_t)t * s->n_head, hi = last - (int64_t)t * s->n_head;
            if (hi > s->n_head) hi = s->n_head;
            for (int32_t head = lo > 0 ? (int32_t)lo : 0; head < hi; head++)
                merge_row(k, t, head, n_part);
        }
    }
}

static void run(const cpu_node *n, cpu_worker *w) {
    const attention_facts *facts = n->facts;
    const shape *s = &facts->shape;
    if (s->n_tok == 0 || s->n_head == 0) return;
    walk k = walk_begin(n, n->scratch + parts_size(s) + s->worker_size * (size_t)w->ith);
    if (s->is_split) {
        attend_parts(&k, w);
        cpu_worker_barrier(w);
        merge_parts(&k, w);
        return;
    }
    int64_t n_block = (s->n_tok + s->block_len - 1) / s->block_len, n_item = n_block * s->n_kv;
    for (int64_t item = w->ith; item < n_item; item += w->nth) {
        int32_t first = (int32_t)(item / s->n_kv) * s->block_len;
        int32_t last = first + s->block_len < s->n_tok ? first + s->block_len : s->n_tok;
        attend_block(&k, first, last, (int32_t)(item % s->n_kv));
    }
}

const cpu_op_impl cpu_op_attention = {.supports = supports,
                                      .scratch_size = scratch_size,
                                      .facts_size = sizeof(attention_facts),
                                      .facts_make = facts_make,
                                      .run = run,
                                      .run_reference = cpu_attention_reference};
