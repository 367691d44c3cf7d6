/* SPDX-License-Identifier: MIT
 *
 * attention.c: ATTENTION on the fast path: walks the pages of a sequence, chunk by chunk, with an
 * online softmax. Knows pages, positions, heads and threads; types and instruction sets are behind
 * attention_kernel.h.
 *
 * Mental model. An item of work is (block of tokens, KV head, split): the query rows of the
 * block's tokens and of the heads that share the KV head, over a share of the cached tokens. Rows
 * keep (m, l, o) and fold one chunk of up to 64 slots after the other into it:
 *     s = q K, m' = max s, p = exp(s - m'), l' = sum p, then with M = max(m, m'):
 *     o = exp(m - M) o + exp(m' - M) p V, l = exp(m - M) l + exp(m' - M) l', m = M
 * Few rows over a long cache are split, and the splits' (m, l, o) are merged at the end. How many
 * splits, and which tokens are in each, follows from the graph and the step alone, so that results
 * do not depend on the number of threads.
 */
#include <math.h>
#include <string.h>

#include "plugins/cpu/attention_kernel.h"

enum { SRC_Q, SRC_STEP, SRC_STATE, SRC_SINK };

enum {
    BLOCK_ROWS = 64, /* query rows of an item: their state then stays in the second-level cache */
    PREFETCH_SIZE = 256, /* bytes of the next page's region: what follows the machine guesses */
    MAX_ITEMS = 256,     /* splits are made until there are so many items */
    MIN_SPLIT = 512      /* tokens of a split, in full pages: else preparing and merging shows */
};

/* Arrays of a worker with an element for each query row: see walk. */
enum { POINTER_ARRAYS = 3, WORD_ARRAYS = 9 };

/* What follows from the graph alone. */
typedef struct shape {
    cpu_kv_layout layout;
    tdm_attention_params params;
    int32_t n_tok, n_head;
    int32_t first_kv, n_kv; /* KV heads of the state that the node's query heads read */
    int32_t max_rows;       /* query rows of an item */
    int32_t block_len;      /* tokens of an item */
    int32_t n_split;
    int32_t n_dim;     /* elements of o inside, a multiple of 16 */
    size_t query_size; /* bytes of a prepared query row */
    size_t part_size;  /* bytes of a split's (m, l, o) */
    size_t worker_size;
    float scale;
} shape;

typedef struct row_state {
    int64_t first_pos, last_pos; /* visible positions */
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

    int64_t items = (int64_t)out->n_kv * ((out->n_tok + out->block_len - 1) / out->block_len);
    int64_t tokens = (int64_t)graph->step_caps.n_entry * out->layout.page_len;
    int64_t n_split = MAX_ITEMS / items;
    if (out->n_tok > out->block_len) n_split = 1;
    if (n_split > (tokens + MIN_SPLIT - 1) / MIN_SPLIT)
        n_split = (tokens + MIN_SPLIT - 1) / MIN_SPLIT;
    out->n_split = n_split > 1 ? (int32_t)n_split : 1;

    size_t rows = (size_t)out->max_rows;
    out->query_size = cpu_kv_round((size_t)k->padded * 4) +
                      cpu_kv_round((size_t)k->n_block * sizeof(cpu_query_block));
    out->part_size = cpu_kv_round(64 + (size_t)out->n_dim * sizeof(float));
    out->worker_size = cpu_kv_round((size_t)k->padded * sizeof(float)) + rows * out->query_size +
                       rows * CPU_CHUNK * sizeof(float) +
                       rows * cpu_kv_round((size_t)out->n_dim * sizeof(float)) +
                       cpu_kv_round(rows * sizeof(row_state)) +
                       POINTER_ARRAYS * cpu_kv_round(rows * sizeof(void *)) +
                       WORD_ARRAYS * cpu_kv_round(rows * sizeof(float));
    out->scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)k->head_dim);
    return true;
}

static size_t parts_size(const shape *s) {
    if (s->n_split <= 1) return 0;
    return (size_t)s->n_tok * (size_t)s->n_head * (size_t)s->n_split * s->part_size;
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

/* ---- one worker's work ----------------------------------------------------------------------- */

typedef struct walk {
    const cpu_node *n;
    const shape *s;
    cpu_step step;
    cpu_attention_kernels kernels;
    float *x;         /* [padded_k] */
    uint8_t *queries; /* [max_rows] of query_size */
    float *scores;    /* [max_rows, CPU_CHUNK] */
    float *outs;      /* [max_rows] of out_stride floats */
    size_t out_stride;
    int32_t n_row;
    row_state *rows;                   /* [max_rows], like all from here on */
    float *m, *l;                      /* running maximum and sum */
    int64_t common_first, common_last; /* positions that every row sees */
    /* Where all rows see the same slots of a chunk, those; the arrays below then stay as they are
     * from chunk to chunk. uniform_last 0: not so. */
    int32_t uniform_first, uniform_last;
    /* Of the rows that see some of the present chunk: which ones, and what the kernels take. */
    int32_t *active;
    const uint8_t **q;
    float **score;
    float **out;
    int32_t *first, *last; /* slots, counted from the chunk's first */
    float *keep, *gain, *active_m, *active_l;
} walk;

static walk walk_begin(const cpu_node *n, const shape *s, uint8_t *at) {
    walk k = {.n = n, .s = s};
    size_t rows = (size_t)s->max_rows;
    k.step = cpu_step_get(n->graph, &n->src[SRC_STEP], tdm_graph_kv(n->graph, s->params.kv)->cls);
    k.kernels = cpu_attention_choose(n->device->isa, &s->layout);
    k.out_stride = cpu_kv_round((size_t)s->n_dim * sizeof(float)) / sizeof(float);
    k.x = (float *)(void *)at, at += cpu_kv_round((size_t)s->layout.k.padded * sizeof(float));
    k.queries = at, at += rows * s->query_size;
    k.scores = (float *)(void *)at, at += rows * CPU_CHUNK * sizeof(float);
    k.outs = (float *)(void *)at, at += rows * k.out_stride * sizeof(float);
    k.rows = (row_state *)(void *)at, at += cpu_kv_round(rows * sizeof(row_state));
    size_t pointers = cpu_kv_round(rows * sizeof(void *)), words = cpu_kv_round(rows * 4);
    k.q = (const uint8_t **)(void *)at, at += pointers;
    k.score = (float **)(void *)at, at += pointers;
    k.out = (float **)(void *)at, at += pointers;
    k.m = (float *)(void *)at, at += words;
    k.l = (float *)(void *)at, at += words;
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
    *first = p->window > 0 && pos - p->window + 1 > 0 ? pos - p->window + 1 : 0;
    *last = p->is_causal ? pos : INT32_MAX;
}

static void query_begin(walk *k, int32_t token, int32_t head) {
    const shape *s = k->s;
    const cpu_kv_side *side = &s->layout.k;
    int32_t row = k->n_row++;
    row_state *state = &k->rows[row];
    uint8_t *q = k->queries + (size_t)row * s->query_size;
    float *x = k->kernels.query != NULL ? k->x : (float *)(void *)q;
    k->m[row] = -INFINITY;
    k->l[row] = 0;
    visible_range(&s->params, k->step.pos[token], &state->first_pos, &state->last_pos);
    if (state->first_pos > k->common_first) k->common_first = state->first_pos;
    if (state->last_pos < k->common_last) k->common_last = state->last_pos;
    cpu_kv_read_row(&k->n->src[SRC_Q], head, token, x);
    for (int32_t i = 0; i < side->head_dim; i++) x[i] *= s->scale;
    memset(x + side->head_dim, 0, (size_t)(side->padded - side->head_dim) * sizeof *x);
    k->kernels.rotate(x, side->padded, side->rotation);
    if (k->kernels.query != NULL) k->kernels.query(side, x, q);
    memset(k->outs + (size_t)row * k->out_stride, 0, (size_t)s->n_dim * sizeof(float));
}

static cpu_kv_span span_get(const cpu_kv_side *side, const uint8_t *region, int32_t start,
                            int32_t first, int32_t last) {
    size_t tile = (size_t)(start / CPU_KV_TILE);
    return (cpu_kv_span){.side = side,
                         .data = region + side->data_off + tile * side->data_size,
                         .scale = region + side->scale_off + tile * side->scale_size,
                         .first = first,
                         .last = last};
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

/* Finds the rows that see some of the chunk whose first slot holds position `pos`; slots
 * valid_first .. valid_last-1 hold tokens. Returns how many. */
static int32_t activate_rows(walk *k, int64_t pos, int32_t valid_first, int32_t valid_last) {
    int32_t n = 0;
    bool is_uniform =
        k->common_first <= pos + valid_first && k->common_last >= pos + valid_last - 1;
    if (is_uniform && k->uniform_first == valid_first && k->uniform_last == valid_last)
        return k->n_row;
    k->uniform_first = valid_first;
    k->uniform_last = is_uniform ? valid_last : 0;
    for (int32_t r = 0; r < k->n_row; r++) {
        int64_t lo = k->rows[r].first_pos - pos, hi = k->rows[r].last_pos - pos + 1;
        if (lo < valid_first) lo = valid_first;
        if (hi > valid_last) hi = valid_last;
        if (lo < hi) activate(k, r, n++, (int32_t)lo, (int32_t)hi);
    }
    return n;
}

/* Folds the chunk that begins at slot `start` of `region` into the rows that see some of it. */
static void fold_chunk(walk *k, const uint8_t *region, int32_t start, int64_t pos,
                       int32_t valid_first, int32_t valid_last) {
    const shape *s = k->s;
    int32_t n = activate_rows(k, pos, valid_first, valid_last), first = CPU_CHUNK, last = 0;
    if (n == 0) return;
    if (k->uniform_last > 0) first = valid_first, last = valid_last;
    for (int32_t a = 0; a < n && k->uniform_last == 0; a++) {
        if (k->first[a] < first) first = k->first[a];
        if (k->last[a] > last) last = k->last[a];
    }
    cpu_kv_span keys = span_get(&s->layout.k, region, start, first, last);
    k->kernels.score(&keys, n, k->q, k->score);

    bool is_whole = n == k->n_row; /* then active[a] = a */
    float *m = is_whole ? k->m : k->active_m, *l = is_whole ? k->l : k->active_l;
    for (int32_t a = 0; a < n && !is_whole; a++) {
        m[a] = k->m[k->active[a]];
        l[a] = k->l[k->active[a]];
    }
    k->kernels.soften(n, k->score, first / CPU_KV_TILE * CPU_KV_TILE,
                      (last + CPU_KV_TILE - 1) / CPU_KV_TILE * CPU_KV_TILE, k->first, k->last,
                      s->params.softcap, m, l, k->keep, k->gain);
    for (int32_t a = 0; a < n && !is_whole; a++) {
        k->m[k->active[a]] = m[a];
        k->l[k->active[a]] = l[a];
    }
    cpu_kv_span values = span_get(&s->layout.v, region, start, first, last);
    k->kernels.add(&values, s->n_dim, n, (const float *const *)k->score, k->out, k->keep, k->gain);
}

/* Asks for the first lines of an entry's region before it is walked: pages lie anywhere, and no
 * prefetcher of the machine guesses where. Asking for more is slower than leaving the rest to it. */
static void prefetch_entry(const walk *k, const tdm_page_entry *entry, int32_t head_kv) {
#if defined(__GNUC__)
    const cpu_kv_layout *layout = &k->s->layout;
    const cpu_view *state = &k->n->src[SRC_STATE];
    size_t size = layout->head_size < PREFETCH_SIZE ? layout->head_size : PREFETCH_SIZE;
    if (entry->page < 0 || entry->page >= state->ne[1]) return;
    const uint8_t *region = cpu_kv_head(layout, state->data, entry->page, head_kv);
    for (size_t i = 0; i < size; i += 64) __builtin_prefetch(region + i, 0, 2);
#else
    (void)k, (void)entry, (void)head_kv;
#endif
}

/* Entries of a sequence, without those at either end that hold nothing of first_pos .. last_pos. */
static const tdm_page_entry *visible_entries(const walk *k, int32_t seq, int64_t first_pos,
                                             int64_t last_pos, int32_t *n_out) {
    int32_t n;
    const tdm_page_entry *e = cpu_step_entries(&k->step, seq, &n);
    while (n > 0 && (int64_t)e->base_pos + e->count <= first_pos) e++, n--;
    while (n > 0 && e[n - 1].base_pos > last_pos) n--;
    *n_out = n;
    return e;
}

/* Folds the tokens of some entries that any of positions first_pos .. last_pos lies in. */
static void walk_entries(walk *k, const tdm_page_entry *entries, int32_t n_entry, int32_t head_kv,
                         int64_t first_pos, int64_t last_pos) {
    const cpu_kv_layout *layout = &k->s->layout;
    const cpu_view *state = &k->n->src[SRC_STATE];
    for (int32_t e = 0; e < n_entry; e++) {
        tdm_page_entry entry = entries[e];
        if (!cpu_kv_entry_clip(layout, state->ne[1], &entry) || entry.base_pos > last_pos ||
            (int64_t)entry.base_pos + entry.count <= first_pos)
            continue;
        int64_t lo = first_pos > entry.base_pos ? first_pos - entry.base_pos : 0;
        int64_t hi = last_pos - entry.base_pos + 1;
        int32_t first = entry.first + (int32_t)lo;
        int32_t last = entry.first + (hi < entry.count ? (int32_t)hi : entry.count);
        const uint8_t *region = cpu_kv_head(layout, state->data, entry.page, head_kv);
        if (e + 1 < n_entry) prefetch_entry(k, &entries[e + 1], head_kv);
        for (int32_t start = first / CPU_CHUNK * CPU_CHUNK; start < last; start += CPU_CHUNK) {
            int32_t valid_first = entry.first > start ? entry.first - start : 0;
            int32_t valid_last = entry.first + entry.count - start;
            fold_chunk(k, region, start, (int64_t)entry.base_pos + start - entry.first, valid_first,
                       valid_last < CPU_CHUNK ? valid_last : CPU_CHUNK);
        }
    }
}

/* o / l, with the sink's share, out of the rotation, to the destinations. `o` is changed. */
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

static float *part_at(const cpu_node *n, const shape *s, int32_t token, int32_t head,
                      int32_t split) {
    size_t row = (size_t)token * (size_t)s->n_head + (size_t)head;
    return (float *)(void *)(n->scratch +
                             (row * (size_t)s->n_split + (size_t)split) * s->part_size);
}

static void keep_row(const walk *k, int32_t token, int32_t head, int32_t split, float m, float l,
                     float *o) {
    const shape *s = k->s;
    if (s->n_split <= 1) {
        finish_row(k->n, s, k->kernels.rotate, token, head, m, l, o);
        return;
    }
    float *part = part_at(k->n, s, token, head, split);
    part[0] = m;
    part[1] = l;
    if (l != 0) memcpy(part + 16, o, (size_t)s->n_dim * sizeof *o);
}

/* Tokens first .. last-1 are of one sequence, or one padding token. */
static void run_tokens(walk *k, int32_t first, int32_t last, int32_t kv, int32_t split) {
    const shape *s = k->s;
    const tdm_attention_params *p = &s->params;
    int32_t kv_all = p->first_head_kv + s->first_kv + kv;
    int32_t head_first = kv_all * p->heads_per_kv - p->first_head;
    int32_t head_last = head_first + p->heads_per_kv;
    k->n_row = 0;
    k->common_first = 0;
    k->common_last = INT32_MAX;
    k->uniform_first = k->uniform_last = 0;
    if (head_first < 0) head_first = 0;
    if (head_last > s->n_head) head_last = s->n_head;
    int64_t first_pos = INT32_MAX, last_pos = -1;
    int32_t seq = first < k->step.n_tok ? k->step.seq[first] : -1;
    if (seq >= 0 && k->step.pos[first] >= 0) {
        for (int32_t t = first; t < last; t++) {
            int64_t lo, hi;
            visible_range(p, k->step.pos[t], &lo, &hi);
            first_pos = lo < first_pos ? lo : first_pos;
            last_pos = hi > last_pos ? hi : last_pos;
        }
        int32_t n_entry, at = 0;
        const tdm_page_entry *entries = visible_entries(k, seq, first_pos, last_pos, &n_entry);
        if (s->n_split > 1) {
            int32_t least = (MIN_SPLIT + s->layout.page_len - 1) / s->layout.page_len;
            int32_t share = (n_entry + s->n_split - 1) / s->n_split;
            if (share < least) share = least;
            at = (int64_t)share * split < n_entry ? share * split : n_entry;
            n_entry = n_entry - at < share ? n_entry - at : share;
        }
        if (n_entry > 0) {
            prefetch_entry(k, &entries[at], s->first_kv + kv);
            for (int32_t t = first; t < last; t++)
                for (int32_t h = head_first; h < head_last; h++) query_begin(k, t, h);
            walk_entries(k, entries + at, n_entry, s->first_kv + kv, first_pos, last_pos);
        }
    }
    int32_t r = 0;
    for (int32_t t = first; t < last; t++) {
        for (int32_t h = head_first; h < head_last; h++, r++) {
            if (r < k->n_row)
                keep_row(k, t, h, split, k->m[r], k->l[r], k->outs + (size_t)r * k->out_stride);
            else
                keep_row(k, t, h, split, -INFINITY, 0, NULL);
        }
    }
}

static void run_block(walk *k, int32_t first, int32_t last, int32_t kv, int32_t split) {
    const cpu_step *step = &k->step;
    while (first < last) {
        int32_t end = first + 1;
        bool is_padding = first >= step->n_tok || step->pos[first] < 0;
        while (end < last && !is_padding && end < step->n_tok && step->pos[end] >= 0 &&
               step->seq[end] == step->seq[first])
            end++;
        run_tokens(k, first, end, kv, split);
        first = end;
    }
}

static void merge_splits(const cpu_node *n, const shape *s, cpu_hadamard_fn rotate, cpu_worker *w) {
    int64_t first, last;
    cpu_worker_share(w, (int64_t)s->n_tok * s->n_head, 1, &first, &last);
    for (int64_t row = first; row < last; row++) {
        int32_t token = (int32_t)(row / s->n_head), head = (int32_t)(row % s->n_head);
        float *sum = part_at(n, s, token, head, 0), m = -INFINITY, l = 0;
        for (int32_t split = 0; split < s->n_split; split++) {
            const float *part = part_at(n, s, token, head, split);
            m = part[0] > m ? part[0] : m;
        }
        for (int32_t split = 0; split < s->n_split; split++) {
            const float *part = part_at(n, s, token, head, split);
            if (part[1] == 0) {
                if (split == 0) memset(sum + 16, 0, (size_t)s->n_dim * sizeof *sum);
                continue;
            }
            float factor = expf(part[0] - m);
            l += part[1] * factor;
            for (int32_t i = 16; i < 16 + s->n_dim; i++)
                sum[i] = (split == 0 ? 0 : sum[i]) + part[i] * factor;
        }
        finish_row(n, s, rotate, token, head, m, l, sum + 16);
    }
}

static void run(const cpu_node *n, cpu_worker *w) {
    shape s;
    if (!shape_get(n->graph, n->node, &s) || s.n_tok == 0 || s.n_head == 0) return;
    walk k = walk_begin(n, &s, n->scratch + parts_size(&s) + s.worker_size * (size_t)w->ith);
    int64_t n_block = (s.n_tok + s.block_len - 1) / s.block_len;
    int64_t n_item = n_block * s.n_split * s.n_kv;
    for (int64_t item = w->ith; item < n_item; item += w->nth) {
        int32_t kv = (int32_t)(item % s.n_kv), split = (int32_t)(item / s.n_kv % s.n_split);
        int32_t first = (int32_t)(item / s.n_kv / s.n_split) * s.block_len;
        int32_t last = first + s.block_len < s.n_tok ? first + s.block_len : s.n_tok;
        run_block(&k, first, last, kv, split);
    }
    if (s.n_split > 1) {
        cpu_worker_barrier(w);
        merge_splits(n, &s, k.kernels.rotate, w);
    }
}

const cpu_op_impl cpu_op_attention = {.op = TDM_OP_ATTENTION,
                                      .supports = supports,
                                      .scratch_size = scratch_size,
                                      .run = run,
                                      .run_reference = cpu_attention_reference};
