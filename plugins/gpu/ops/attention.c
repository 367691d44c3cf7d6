/* SPDX-License-Identifier: MIT
 *
 * attention.c: steps of ATTENTION: prepares queries, computes records of parts of each sequence,
 * and merges the records. The kernel of the parts depends on the number of tokens and on the
 * device. shaders/attention.glsl says how the result of a token is made independent of the rest of
 * its step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/position.h"
#include "plugins/gpu/ops/attention.h"
#include "plugins/gpu/ops/ops.h"

enum { SRC_Q, SRC_STEP, SRC_STATE, SRC_SINK, SRC_SELECT, SRC_BIAS };

enum {
    GROUP_SIZE = 64, /* threads of ATTENTION_QUERY and ATTENTION_MERGE */
    /* The next four as in attention.glsl and kernels/attention.h */
    CHUNK = 64,     /* slots that are folded at a time */
    PART_LEN = 128, /* positions of each of the first PARTS parts; of the next PARTS twice as
                       many, and so on */
    PARTS = 64,
    PART_HEAD = 4,        /* floats of a record before o */
    MAX_ROWS = 8,         /* query heads of a workgroup of ATTENTION_PART */
    MAX_SUMS = 64,        /* elements of o that a thread of it owns */
    LANES = 8,            /* threads of ATTENTION_LANE, all of one subgroup, and slots of each */
    LANE_ROWS = 4,        /* its query heads: o of them takes at most 16 KiB of shared memory */
    SHARED_LEAST = 16384, /* bytes of shared memory that every device has */
    /* The next five as in attention_tile.comp */
    TILE_ROWS = 32,
    TILE_GROUP = 128,
    SLICE_K = 32,
    SLICE_V = 64,
    SLOTS_V = 16,
    TILE_MAX_DIM = 512, /* elements of o: what 128 threads hold in registers */
    TILE_UNIT = 32,     /* elements of K of 4 or 5 bits that a thread decodes at a time */
    /* Tiles of CUDA and HIP on matrix hardware */
    MATRIX_MAX_DIM = 256,   /* elements of K and of o: attention_tile_matrix.cu */
    MATRIX_MAX_TALL = 128,  /* the same for tiles of twice as many rows */
    LATENT_MAX_DIM = 512,   /* elements of o: ATTENTION_LATENT_MATRIX, of Vulkan too */
    MATRIX_ROW_THREADS = 4, /* threads that share a row */
    LATENT_ROW_THREADS = 8,
    MATRIX_TILES_OF_UNIT = 2, /* workgroups for each compute unit, to which few tiles are divided */
    MATRIX_PARTS_OF_UNIT = 4, /* the same with few tokens: what fits its shared memory */
    MERGE_ROWS = 8,           /* rows that a workgroup merges, in up to two turns */
    MERGE_UNIT = 32,          /* so that elements of o are whole groups of bytes */
    TILE_LEAST_TOK = 9        /* tokens; with fewer ATTENTION_PART has more threads at work */
};

/* Most bytes of the records of all parts. Beyond it each workgroup folds all parts into one
 * record. */
static const uint64_t records_most = (uint64_t)64 << 20;

/* A node that is being planned: what follows from the node, then what its steps have made. A query
 * row is a token and one of its query heads. */
typedef struct shape {
    gpu_cache cache;
    const tdm_attention_params *params;
    int32_t n_tok, n_head;
    int32_t first_kv, n_kv; /* KV heads of the state that the node's query heads read */
    int32_t head_base; /* first query head of KV head first_kv, counted from the node's first one:
                          negative where the node does not have it */
    int32_t n_part;    /* most parts that a sequence may fall into */
    int32_t n_dim;     /* elements of o in records: whole units and whole blocks of V's rotation */
    int32_t rows;      /* query heads of a workgroup of ATTENTION_PART or ATTENTION_LANE */
    bool is_lane;      /* ATTENTION_LANE is used instead of ATTENTION_PART */
    bool has_bias;
    int32_t n_far;     /* of the bias */
    gpu_operand bias;  /* contiguous */
    int32_t n_list;    /* lists of a token: none, one, or one for each KV head of the state */
    gpu_operand slots; /* the lists as SELECT_SLOTS writes them */
    gpu_operand query; /* as ATTENTION_QUERY writes it */
    gpu_operand records;
    int32_t n_record;     /* records of each query row */
    int32_t record_parts; /* parts of a record; 0 = one */
    bool merges;          /* the step of the parts merges the records, too */
} shape;

static int32_t round_up(int32_t n, int32_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* The part in which a position lies. */
static int32_t part_number(int64_t pos) {
    int64_t len = PART_LEN, first = 0;
    int32_t number = 0;
    for (; pos >= first + PARTS * len; number += PARTS) {
        first += PARTS * len;
        len *= 2;
    }
    return number + (int32_t)((pos - first) / len);
}

/* Most parts that the positions of n_entry pages fall into, if they have no gaps (the last part
 * takes all that follow). One more than with positions from 0 on, since a window may begin inside a
 * part. */
static int32_t part_most(int32_t n_entry, const gpu_page *page) {
    int32_t n = part_number((int64_t)n_entry * page->page_len / page->stride) + 2;
    if (n > n_entry) n = n_entry;
    return n > 1 ? n : 1;
}

/* Elements of o that a thread owns for each query head. */
static int32_t sums_of(const shape *s) {
    const gpu_page_side *v = &s->cache.page.v;
    int32_t n_column = v->n_block > 0 && v->type != TDM_TYPE_Q8_0 ? s->n_dim / 2 : s->n_dim;
    return (n_column + CHUNK - 1) / CHUNK * (s->n_dim / n_column);
}

/* True where the device has subgroups of 8, ATTENTION_LANE exists and is allowed, and node and
 * cache suit it. */
static bool uses_lanes(const shape *s, const gpu_target *target) {
    const gpu_page *page = &s->cache.page;
    bool has_kernel = target->has_kernel == NULL || target->has_kernel[GPU_KERNEL_ATTENTION_LANE];
    return has_kernel && !target->attention.has_no_lanes &&
           target->product.lane_max_subgroup >= 0 && s->params->alibi_max_bias == 0 &&
           !s->has_bias && s->n_list == 0 && target->subgroup_min == LANES &&
           target->subgroup_max == LANES && !page->v_from_k && page->n_slot % LANES == 0 &&
           page->k.stored % 8 == 0;
}

/* Query heads of a workgroup: as many as shared memory and registers hold, in blocks of equal
 * size. */
static int32_t rows_choose(const shape *s, const gpu_target *target) {
    int32_t size =
        target->shared_size > 2 * SHARED_LEAST ? 2 * SHARED_LEAST : (int32_t)target->shared_size;
    int32_t row_size = 4 * (s->cache.page.k.stored + 2 * CHUNK + 8 + 4);
    int32_t heads = s->params->heads_per_kv < s->n_head ? s->params->heads_per_kv : s->n_head;
    int32_t most = MAX_ROWS;
    if (most > size / row_size) most = size / row_size;
    const int32_t tuned = target->attention.part_sums;
    const int32_t sums = tuned > 0 && tuned < MAX_SUMS ? tuned : MAX_SUMS;
    if (most > sums / sums_of(s)) most = sums / sums_of(s);
    if (s->is_lane) most = LANE_ROWS;
    if (most < 1) most = 1;
    int32_t n_block = (heads + most - 1) / most;
    return (heads + n_block - 1) / n_block;
}

/* Sets n_list, has_bias, n_far and bias. */
static tdm_status extras_get(const gpu_emit *e, shape *s, tdm_error *err) {
    const gpu_value *bias = &e->src[SRC_BIAS], *list = &e->src[SRC_SELECT];
    s->has_bias = bias->is_present;
    s->n_list = list->is_present ? (int32_t)list->ne[2] : 0;
    if (!s->has_bias) return TDM_OK;
    if (s->params->alibi_max_bias > 0)
        return gpu_refuse(e, err, "a bias for each distance and ALiBi's slopes");
    s->bias = bias->place;
    return gpu_word(e, &s->n_far, bias->ne[0] / 2, err);
}

static tdm_status shape_get(gpu_emit *e, shape *s, tdm_error *err) {
    const tdm_attention_params *p = &e->node->params.attention;
    *s = (shape){.params = p};
    tdm_status status = gpu_cache_get(e, p->kv, SRC_STEP, SRC_STATE, &s->cache, err);
    if (status == TDM_OK) status = extras_get(e, s, err);
    if (status != TDM_OK) return status;
    const gpu_page *page = &s->cache.page;
    s->n_head = (int32_t)e->src[SRC_Q].ne[1];
    s->n_tok = (int32_t)e->src[SRC_Q].ne[2];
    if (p->heads_per_kv < 1 || p->first_head < 0 || p->first_head_kv < 0)
        return gpu_refuse(e, err, "heads from %d, KV heads from %d, %d to each", (int)p->first_head,
                          (int)p->first_head_kv, (int)p->heads_per_kv);
    if (s->n_head == 0 || s->n_tok == 0) return TDM_OK;
    s->first_kv = p->first_head / p->heads_per_kv - p->first_head_kv;
    s->n_kv =
        (p->first_head + s->n_head - 1) / p->heads_per_kv - p->first_head_kv + 1 - s->first_kv;
    if (s->first_kv < 0 || s->first_kv + s->n_kv > page->n_head_kv)
        return gpu_refuse(
            e, err, "heads %d .. +%d, %d of them to a KV head: the cache holds KV heads %d .. +%d",
            (int)p->first_head, (int)s->n_head, (int)p->heads_per_kv, (int)p->first_head_kv,
            (int)page->n_head_kv);
    s->head_base = (p->first_head_kv + s->first_kv) * p->heads_per_kv - p->first_head;
    s->n_part = part_most(e->graph->step_caps.n_entry, page);
    s->n_dim = page->v.stored;
    if (page->v_from_k) {
        int32_t unit = page->k.n_block > 0 ? 32 : page->k.stored / page->k.n_unit;
        s->n_dim = round_up(page->v.head_dim, page->k.rotation > unit ? page->k.rotation : unit);
    }
    s->is_lane = uses_lanes(s, e->target);
    s->rows = rows_choose(s, e->target);
    return TDM_OK;
}

static uint64_t record_size(const shape *s) {
    return (uint64_t)(PART_HEAD + s->n_dim) * sizeof(float);
}

static int32_t float_word(float x) {
    int32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

tdm_status gpu_attention_query(gpu_emit *e, const gpu_cache *cache, const tdm_attention_params *p,
                               const gpu_value *q, const gpu_rope *rope, gpu_operand *query_out,
                               tdm_error *err) {
    const gpu_page_side *k = &cache->page.k;
    const int64_t n_row = q->ne[1] * q->ne[2];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_ATTENTION_QUERY, GROUP_SIZE);
    int32_t strides[TDM_MAX_DIMS];
    float scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)k->head_dim);
    *query_out = gpu_emit_scratch(e, (uint64_t)n_row * (uint64_t)k->stored * sizeof(float));
    tdm_status status = gpu_words_strides(e, strides, q, q->ne, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, n_row, err);
    if (status != TDM_OK) return status;
    step.spec[0] = k->head_dim;
    step.spec[1] = k->stored;
    step.spec[2] = k->rotation;
    step.word[0] = (int32_t)q->ne[2];
    step.word[1] = (int32_t)q->ne[1];
    memcpy(&step.word[2], strides, 3 * sizeof strides[0]);
    step.word[5] = float_word(scale);
    step.operand[0] = *query_out;
    step.operand[1] = q->place;
    if (p->temperature_scale != 0) {
        const uint64_t skipped = (uint64_t)cache->at.pos_off * sizeof(int32_t);
        step.word[10] = float_word(p->temperature_scale);
        step.word[11] = p->temperature_length;
        step.word[12] = p->temperature_offset;
        step.operand[4] = cache->step;
        step.operand[4].off += skipped;
        step.operand[4].size -= skipped;
    }
    if (rope != NULL) {
        memcpy(&step.word[6], rope->word, sizeof rope->word);
        step.operand[2] = rope->angles;
        step.operand[3] = rope->pos;
    }
    return gpu_emit_step(e, &step, err);
}

/* Where the bias is not contiguous, appends a copy. */
static tdm_status bias_emit(gpu_emit *e, shape *s, tdm_error *err) {
    const gpu_value *bias = &e->src[SRC_BIAS];
    gpu_value to = *bias;
    if (gpu_value_is_contiguous(bias)) return TDM_OK;
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        to.nb[i] = i == 0 ? (int64_t)sizeof(float) : to.nb[i - 1] * to.ne[i - 1];
    s->bias = to.place = gpu_emit_scratch(e, (uint64_t)tdm_shape_count(to.ne) * sizeof(float));
    return gpu_emit_copy(e, &to, bias, err);
}

/* Appends SELECT_SLOTS, which turns lists of positions into bits of slots. */
static tdm_status slots_emit(gpu_emit *e, shape *s, tdm_error *err) {
    const gpu_value *list = &e->src[SRC_SELECT];
    const gpu_cache *cache = &s->cache;
    const int32_t n_entry = e->graph->step_caps.n_entry, n_word = (cache->page.n_row + 31) / 32;
    const int64_t n = (int64_t)n_word * n_entry * s->n_tok * s->n_list;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_SELECT_SLOTS, GROUP_SIZE);
    int32_t strides[TDM_MAX_DIMS];
    tdm_status status = gpu_cache_words(e, cache, step.word, err);
    if (status == TDM_OK) status = gpu_words_strides(e, strides, list, list->ne, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[12], n, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (n + GROUP_SIZE - 1) / GROUP_SIZE, err);
    if (status != TDM_OK) return status;
    s->slots = gpu_emit_scratch(e, (uint64_t)n * sizeof(uint32_t));
    step.spec[0] = (int32_t)list->ne[0];
    step.spec[5] = gpu_cache_stride(cache);
    step.word[7] = s->n_tok;
    memcpy(&step.word[9], strides, 3 * sizeof strides[0]);
    gpu_cache_step_words(e, cache, step.word);
    step.operand[0] = s->slots;
    step.operand[1] = list->place;
    step.operand[2] = cache->step;
    step.trips = 64; /* a binary search, and the 32 slots of a word */
    return gpu_emit_step(e, &step, err);
}

/* *slopes_out: ALiBi's slopes of the node's heads, a constant of the plan. */
static tdm_status slopes_take(gpu_emit *e, const shape *s, gpu_operand *slopes_out,
                              tdm_error *err) {
    float *slope = malloc((size_t)s->n_head * sizeof *slope);
    if (slope == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", e->target->name);
    for (int32_t h = 0; h < s->n_head; h++)
        slope[h] = tdm_alibi_slope(s->params, s->params->first_head + h);
    *slopes_out = gpu_emit_constant(e, slope, (uint64_t)s->n_head * sizeof *slope);
    free(slope);
    return TDM_OK;
}

static int32_t flags_get(const shape *s) {
    const tdm_attention_params *p = s->params;
    const int32_t kind = p->window > 0 ? p->window_kind : 0;
    return (p->is_causal != 0 ? GPU_ATTENTION_CAUSAL : 0) |
           (s->cache.page.v_from_k ? GPU_ATTENTION_V_FROM_K : 0) |
           (kind == TDM_WINDOW_CHUNKED ? GPU_ATTENTION_CHUNKED : 0) |
           (kind == TDM_WINDOW_SYMMETRIC ? GPU_ATTENTION_SYMMETRIC : 0) |
           (p->alibi_max_bias > 0 ? GPU_ATTENTION_SLOPES : 0) |
           (s->has_bias ? GPU_ATTENTION_BIAS : 0) | (s->n_list > 0 ? GPU_ATTENTION_LIST : 0) |
           (s->n_list > 1 ? GPU_ATTENTION_LISTS : 0);
}

/* *step_out: a step of a kernel that reads the cache, with what all of these kernels have in
 * common. */
static tdm_status walk_step(gpu_emit *e, const shape *s, gpu_kernel kernel, int32_t group,
                            gpu_step *step_out, tdm_error *err) {
    const gpu_cache *cache = &s->cache;
    const tdm_attention_params *p = s->params;
    gpu_step step = gpu_step_make(e, kernel, group);
    tdm_status status = gpu_cache_words(e, cache, step.word, err);
    step.spec[0] = (int32_t)cache->page.k.type;
    step.spec[1] = (int32_t)cache->page.v.type;
    step.spec[2] = cache->page.k.stored;
    step.spec[3] = s->n_dim;
    step.spec[5] = flags_get(s) | gpu_cache_stride(cache);
    step.spec[6] = p->window > 0 ? p->window : 0;
    step.spec[7] = s->has_bias ? s->n_far : float_word(p->softcap > 0 ? p->softcap : 0);
    step.word[7] = s->n_tok;
    step.word[8] = s->n_head;
    step.word[10] = s->first_kv;
    step.word[11] = p->heads_per_kv;
    step.word[12] = cache->at.pos_off;
    gpu_cache_step_words(e, cache, step.word);
    step.word[18] = s->head_base;
    step.word[19] = s->n_kv;
    step.operand[0] = s->records;
    step.operand[1] = s->query;
    step.operand[2] = cache->state;
    step.operand[3] = cache->step;
    if (status == TDM_OK && p->alibi_max_bias > 0)
        status = slopes_take(e, s, &step.operand[4], err);
    if (s->has_bias) step.operand[4] = s->bias;
    if (s->n_list > 0) step.operand[5] = s->slots;
    *step_out = step;
    return status;
}

/* Takes scratch for `n` records of each query row. */
static tdm_status records_take(gpu_emit *e, shape *s, int32_t n, tdm_error *err) {
    uint64_t n_record = (uint64_t)s->n_tok * (uint64_t)s->n_head * (uint64_t)n;
    if (n_record > UINT32_MAX)
        return gpu_refuse(e, err, "%llu parts of rows; the kernels count up to 2^32 - 1",
                          (unsigned long long)n_record);
    s->n_record = n;
    s->records = gpu_emit_scratch(e, n_record * record_size(s));
    return TDM_OK;
}

/* Lets the last workgroup that ends with parts of some rows merge the records of these rows, which
 * saves the step ATTENTION_MERGE: sets the step's flag, counters (one for each of n_tile tiles) and
 * memory: records lie behind o. Only for few rows (n_row of a tile), since a wave merges a row at a
 * time. False, with nothing changed, where the device or the node does not allow it. */
static bool merge_take(gpu_emit *e, const shape *s, int32_t n_row, int64_t n_tile, gpu_step *step) {
    const gpu_page *page = &s->cache.page;
    const uint64_t n_all = (uint64_t)s->n_tok * (uint64_t)s->n_head;
    const uint64_t size = n_all * (uint64_t)s->n_record * record_size(s);
    gpu_operand o = e->dst[0].place;
    int32_t shift = 0;
    while (1 << shift < page->v.rotation) shift++;
    if (!e->target->counts_groups || e->target->is_unfused || n_row > MERGE_ROWS ||
        e->src[SRC_SINK].is_present || e->dst[1].is_present || page->v_from_k || s->has_bias ||
        s->n_list > 0 || s->params->alibi_max_bias > 0 || s->n_dim != page->v.head_dim ||
        s->n_dim % MERGE_UNIT != 0 || shift > 15 || !gpu_emit_grow(e, &o, size))
        return false;
    step->operand[0] = o;
    step->operand[5] = gpu_emit_counters(e, n_tile);
    step->spec[5] |= GPU_ATTENTION_MERGES | shift << GPU_ATTENTION_ROTATION_SHIFT;
    step->inner = size;
    return true;
}

/* Teams of CHUNK threads of a workgroup, which divide its heads. */
static int32_t teams_choose(const shape *s, const gpu_target *target) {
    int32_t n = 1;
    while (2 * n <= s->rows && 2 * n <= target->attention.part_teams &&
           2 * n * CHUNK <= target->max_group_size)
        n *= 2;
    return n;
}

static tdm_status part_emit(gpu_emit *e, shape *s, tdm_error *err) {
    gpu_step step = {0};
    int32_t n_block = (s->params->heads_per_kv + s->rows - 1) / s->rows;
    tdm_status status = records_take(e, s, s->n_part, err);
    if (status == TDM_OK)
        status = walk_step(e, s, s->is_lane ? GPU_KERNEL_ATTENTION_LANE : GPU_KERNEL_ATTENTION_PART,
                           s->is_lane ? LANES : CHUNK * teams_choose(s, e->target), &step, err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step, (int64_t)s->n_tok * s->n_kv * n_block * s->n_part, err);
    if (status != TDM_OK) return status;
    step.spec[4] = s->rows;
    step.word[9] = s->n_part;
    return gpu_emit_step(e, &step, err);
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* Threads of ATTENTION_TILE. */
static int32_t tile_group(const shape *s, const gpu_target *target) {
    const gpu_attention_tuning *tuning = &target->attention;
    const gpu_page_side *k = &s->cache.page.k;
    const int32_t n_held = TILE_ROWS * (CHUNK + round_up(s->n_dim, SLICE_V));
    const int32_t n_unit = k->n_block > 0 && k->type != TDM_TYPE_Q8_0 ? TILE_UNIT : 0;
    int32_t n = TILE_GROUP;
    while (n_held / n + n_unit > tuning->tile_registers && 2 * n <= tuning->tile_group &&
           2 * n <= target->max_group_size)
        n *= 2;
    return n;
}

/* Loop iterations of an invocation of ATTENTION_TILE for one chunk of slots, at most. */
static int64_t tile_trips(const shape *s) {
    const gpu_page_side *k = &s->cache.page.k;
    int64_t n_slice_k = (k->stored + SLICE_K - 1) / SLICE_K;
    int64_t n_slice_v = (s->n_dim + SLICE_V - 1) / SLICE_V;
    int64_t slice = 1 + 2 + SLICE_K * CHUNK / 4 / TILE_GROUP + SLICE_K / 4;
    int64_t fold = 1 + SLICE_V * SLOTS_V / 4 / TILE_GROUP + SLOTS_V / 4;
    return 16 + n_slice_k * slice + CHUNK / SLOTS_V * n_slice_v * fold;
}

/* The end of the parts, from `first` on, that one step may compute where a driver limits loop
 * iterations (gpu_target.max_trips). The tokens of a tile may belong to up to n_token sequences,
 * each of which is read from its first part on. */
static int32_t tile_parts_end(const gpu_emit *e, const shape *s, int32_t n_token, int32_t first) {
    const gpu_page *page = &s->cache.page;
    int64_t n_seq = e->graph->step_caps.n_seq, chunk_len = page->page_len / page->stride;
    if (e->target->max_trips == 0) return s->n_part;
    if (chunk_len > CHUNK) chunk_len = CHUNK;
    if (chunk_len < 1) chunk_len = 1;
    if (n_seq > n_token) n_seq = n_token;
    /* A quarter is left for searching, and for entries that are not full. */
    int64_t budget =
        (int64_t)e->target->max_trips / 4 * 3 / tile_trips(s) / (n_seq > 1 ? n_seq : 1);
    int64_t n_chunk = 0;
    int32_t part = first;
    do n_chunk += ((int64_t)PART_LEN << part / PARTS) / chunk_len + 1;
    while (++part < s->n_part && n_chunk < budget);
    return part;
}

/* How query rows are divided into tiles. */
typedef struct tiling {
    int32_t heads, n_token; /* of a tile: query heads that share a KV head, tokens */
    int64_t n_tile;         /* of all tokens and heads */
} tiling;

static tiling tiling_get(const shape *s, int32_t rows) {
    const int32_t heads_per_kv = s->params->heads_per_kv;
    const int32_t heads = heads_per_kv < rows ? heads_per_kv : rows;
    const int32_t n_block = (heads_per_kv + heads - 1) / heads, n_token = rows / heads;
    return (tiling){heads, n_token,
                    (int64_t)(s->n_tok + n_token - 1) / n_token * n_block * s->n_kv};
}

static tdm_status tile_emit(gpu_emit *e, shape *s, tdm_error *err) {
    const tiling t = tiling_get(s, TILE_ROWS);
    uint64_t n_row = (uint64_t)s->n_tok * (uint64_t)s->n_head;
    bool is_split = n_row * (uint64_t)s->n_part * record_size(s) <= records_most;
    gpu_step step = {0};
    tdm_status status = records_take(e, s, is_split ? s->n_part : 1, err);
    if (status == TDM_OK)
        status = walk_step(e, s, GPU_KERNEL_ATTENTION_TILE, tile_group(s, e->target), &step, err);
    step.spec[4] = t.heads;
    if (is_split && status == TDM_OK) { /* a workgroup for each part */
        step.spec[5] |= GPU_ATTENTION_SPLIT;
        step.word[9] = s->n_part;
        step.word[19] = s->n_kv | 1 << 17;
        status = gpu_step_grid(e, &step, t.n_tile * s->n_part, err);
        return status == TDM_OK ? gpu_emit_step(e, &step, err) : status;
    }
    if (status == TDM_OK) status = gpu_step_grid(e, &step, t.n_tile, err);
    for (int32_t first = 0, end; first < s->n_part && status == TDM_OK; first = end) {
        end = tile_parts_end(e, s, t.n_token, first);
        step.word[9] = s->n_part | first << 16;
        step.word[19] = s->n_kv | (end - first) << 17;
        status = gpu_emit_step(e, &step, err);
    }
    return status;
}

/* ---- Tiles on matrix hardware
 * ----------------------------------------------------------------- */

/* True for types of K and V that f16 can hold: not bf16, for its range, nor f32, for its
 * precision. */
static bool is_half_type(tdm_type type) {
    return type == TDM_TYPE_F16 || tdm_type_get_info(type).is_quantized;
}

/* Bytes of the codes and scales of 64 rows of a side, which are copied to shared memory before they
 * are decoded; 0 for plain types. */
static uint32_t raw_size(const gpu_page_side *side) {
    const uint32_t dim = (uint32_t)side->stored;
    if (side->n_block == 0) return 0;
    return CHUNK * (side->type == TDM_TYPE_Q8_0 ? dim + dim / 16 : dim / 2 + dim / 4);
}

/* Bytes of shared memory of a tile on matrix hardware: at least those of attention_matrix_size in
 * rt/shared.c. Tiles of Q, K, V and p; scores; numbers of rows; raw bytes of K or V. */
static uint32_t matrix_shared(const shape *s, uint32_t rows) {
    const gpu_page *page = &s->cache.page;
    const uint32_t n_k = (uint32_t)round_up(page->k.stored, 32);
    const uint32_t n_v = page->v_from_k ? 0 : (uint32_t)round_up(s->n_dim, 16);
    const uint32_t raw_k = raw_size(&page->k), raw_v = page->v_from_k ? 0 : raw_size(&page->v);
    return 2 * (rows * (n_k + CHUNK) + CHUNK * (n_k + n_v)) + rows * 4 * (CHUNK + 4) + 64 * rows +
           64 + (raw_k > raw_v ? raw_k : raw_v);
}

/* Rows of a tile on the matrix hardware of CUDA and HIP: 64 where there are so many, since they
 * share the work of decoding K and V; else 32. 0 where other kernels compute the node. */
static int32_t matrix_rows(const shape *s, const gpu_target *target) {
    const int32_t least = target->attention.matrix_least_tok;
    const gpu_page *page = &s->cache.page;
    const bool is_latent = page->v_from_k;
    const int32_t of_row = is_latent ? LATENT_ROW_THREADS : MATRIX_ROW_THREADS;
    const uint32_t most =
        target->shared_most > target->shared_size ? target->shared_most : target->shared_size;
    if (!target->attention.has_matrices || s->n_tok < (least > 0 ? least : TILE_LEAST_TOK) ||
        !is_half_type(page->k.type) || !is_half_type(page->v.type) || s->has_bias || s->n_list > 0)
        return 0;
    if (is_latent ? s->n_dim > LATENT_MAX_DIM || s->params->alibi_max_bias > 0
                  : page->k.stored > MATRIX_MAX_DIM || s->n_dim > MATRIX_MAX_DIM)
        return 0;
    const bool is_tall =
        is_latent || (page->k.stored <= MATRIX_MAX_TALL && s->n_dim <= MATRIX_MAX_TALL);
    for (int32_t rows = 2 * TILE_ROWS; rows >= TILE_ROWS; rows /= 2) {
        if (rows > TILE_ROWS && (!is_tall || s->n_tok * s->params->heads_per_kv < rows)) continue;
        if (target->max_group_size >= rows * of_row && matrix_shared(s, (uint32_t)rows) <= most)
            return rows;
    }
    return 0;
}

/* Appends the step of tiles. n_split workgroups divide the parts of a tile, and each writes a
 * record of its own. `sums` is added to spec 4: rows and columns of a matrix of sums, at their
 * bits. */
static tdm_status shared_tiles_emit(gpu_emit *e, shape *s, gpu_kernel kernel, int32_t group,
                                    const tiling *t, int64_t n_split, int32_t sums,
                                    tdm_error *err) {
    if (n_split > s->n_part) n_split = s->n_part;
    if (n_split < 1) n_split = 1;
    const int32_t count = (int32_t)((s->n_part + n_split - 1) / n_split);
    const int32_t n_record = (s->n_part + count - 1) / count;
    gpu_step step = {0};
    tdm_status status = records_take(e, s, n_record, err);
    if (status == TDM_OK) status = walk_step(e, s, kernel, group, &step, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, t->n_tile * n_record, err);
    if (status != TDM_OK) return status;
    step.spec[4] = t->heads | sums;
    step.spec[5] |= GPU_ATTENTION_SPLIT;
    step.word[9] = s->n_part;
    step.word[19] = s->n_kv | count << 17;
    s->record_parts = count;
    const int32_t n_token = s->n_tok < t->n_token ? s->n_tok : t->n_token;
    s->merges = kernel == GPU_KERNEL_ATTENTION_TILE_MATRIX &&
                merge_take(e, s, n_token * t->heads, t->n_tile, &step);
    return gpu_emit_step(e, &step, err);
}

/* Tiles on the matrix hardware of CUDA and HIP. A workgroup computes all parts of a tile, unless
 * there are few tiles for the compute units. */
static tdm_status matrix_emit(gpu_emit *e, shape *s, int32_t rows, tdm_error *err) {
    const bool is_latent = s->cache.page.v_from_k;
    const tiling t = tiling_get(s, rows);
    /* Shared memory holds fewer of the larger tiles. */
    int64_t of_unit = is_latent                                        ? 1
                      : s->n_tok < TILE_LEAST_TOK && rows == TILE_ROWS ? MATRIX_PARTS_OF_UNIT
                                                                       : MATRIX_TILES_OF_UNIT;
    int64_t n_slot = of_unit * e->target->n_unit;
    /* Dividing a tile of many rows is a gain only where all workgroups run at once: rounded
     * down. */
    int64_t n_split = rows > TILE_ROWS ? n_slot / t.n_tile : (n_slot + t.n_tile - 1) / t.n_tile;
    return shared_tiles_emit(
        e, s, is_latent ? GPU_KERNEL_ATTENTION_LATENT_MATRIX : GPU_KERNEL_ATTENTION_TILE_MATRIX,
        rows * (is_latent ? LATENT_ROW_THREADS : MATRIX_ROW_THREADS), &t, n_split, 0, err);
}

/* ---- Tiles on matrices of a subgroup
 * ---------------------------------------------------------- */

/* As in attention_matrix.glsl. */
enum {
    SUBGROUPS = 4,                       /* of a workgroup */
    LATENT_SUBGROUPS = 8,                /* the same where V is part of K */
    SUB_MAX_DIM = 256,                   /* elements of K and of o where V is not part of K */
    SUB_SLICE = 64,                      /* elements that are in shared memory at a time */
    SUB_PITCH = 4 * (SUB_SLICE / 2 + 4), /* bytes of a row of a tile */
    SUB_ROW_SIZE = 8 + 4 * 5,            /* bytes of shared memory for the numbers of a row */
    SUB_UNITS = 64 /* compute units that are assumed where their number is unknown */
};

/* Bytes of shared memory: tiles of Q, of K or V, and of p; scores; numbers of rows. Where V is part
 * of K there is one slice of Q at a time, whose place p takes. */
static uint32_t subgroup_shared(const shape *s) {
    const uint32_t n_slice = (uint32_t)(s->cache.page.k.stored + SUB_SLICE - 1) / SUB_SLICE;
    const uint32_t q_and_p = s->cache.page.v_from_k
                                 ? TILE_ROWS * SUB_PITCH
                                 : TILE_ROWS * (n_slice * SUB_SLICE * 2 + 16 + SUB_PITCH);
    return q_and_p + SUB_SLICE * SUB_PITCH + TILE_ROWS * CHUNK * 4 + TILE_ROWS * SUB_ROW_SIZE + 16;
}

/* Subgroups of a workgroup. */
static int32_t subgroups_of(const shape *s) {
    return s->cache.page.v_from_k ? LATENT_SUBGROUPS : SUBGROUPS;
}

/* Whether the tiles hold rows of K and o of this many elements. */
static bool suits_subgroup_tiles(const shape *s, const gpu_target *target) {
    if (s->cache.page.v_from_k)
        return !target->attention.has_no_latent_matrices && s->n_dim <= LATENT_MAX_DIM;
    return !target->attention.has_no_matrices && s->cache.page.k.stored <= SUB_MAX_DIM &&
           s->n_dim <= SUB_MAX_DIM;
}

/* True where ATTENTION_TILE_MATRIX or ATTENTION_LATENT_MATRIX of Vulkan computes the node. A
 * workgroup is some subgroups of a known size, with at least a thread for each row of a tile. The
 * subgroups share the matrices of a tile of scores evenly, and those of a slice of o, which are as
 * many. */
static bool uses_subgroup_matrices(const shape *s, const gpu_target *target) {
    const gpu_page *page = &s->cache.page;
    const int32_t rows = target->matrix_rows, columns = target->matrix_columns;
    const int32_t n_sub = subgroups_of(s), group = n_sub * target->subgroup_max;
    return rows > 0 && TILE_ROWS % rows == 0 && CHUNK % columns == 0 &&
           TILE_ROWS / rows <= SUBGROUPS && TILE_ROWS / rows * (CHUNK / columns) % n_sub == 0 &&
           rows * columns <= 256 && target->subgroup_min == target->subgroup_max &&
           group % TILE_ROWS == 0 && group <= target->max_group_size &&
           s->n_tok >= TILE_LEAST_TOK && is_half_type(page->k.type) && is_half_type(page->v.type) &&
           !s->has_bias && (s->n_list == 0 || page->v_from_k) && suits_subgroup_tiles(s, target) &&
           subgroup_shared(s) <= target->shared_size;
}

/* The kernel of these tiles. */
static gpu_kernel subgroup_kernel(const shape *s, const gpu_target *target) {
    if (s->cache.page.v_from_k)
        return target->is_matrix_plain ? GPU_KERNEL_ATTENTION_LATENT_HALF
                                       : GPU_KERNEL_ATTENTION_LATENT_MATRIX;
    return target->is_matrix_plain ? GPU_KERNEL_ATTENTION_TILE_HALF
                                   : GPU_KERNEL_ATTENTION_TILE_MATRIX;
}

/* Tiles on matrices of a subgroup. A workgroup computes all parts of a tile, unless there are few
 * tiles for the compute units; one part where the driver limits loop iterations. */
static tdm_status subgroup_matrix_emit(gpu_emit *e, shape *s, tdm_error *err) {
    const gpu_target *target = e->target;
    const tiling t = tiling_get(s, TILE_ROWS);
    const int64_t n_unit = target->n_unit > 0 ? target->n_unit : SUB_UNITS;
    int64_t n_split = (MATRIX_TILES_OF_UNIT * n_unit + t.n_tile - 1) / t.n_tile;
    if (target->max_trips > 0) n_split = s->n_part;
    return shared_tiles_emit(e, s, subgroup_kernel(s, target),
                             subgroups_of(s) * target->subgroup_max, &t, n_split,
                             target->matrix_rows << 8 | target->matrix_columns << 16, err);
}

/* ---- The node -------------------------------------------------------------------------------- */

static tdm_status merge_emit(gpu_emit *e, const shape *s, tdm_error *err) {
    const gpu_value *sink = &e->src[SRC_SINK];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_ATTENTION_MERGE, GROUP_SIZE);
    tdm_status status = gpu_step_grid(e, &step, (int64_t)s->n_tok * s->n_head, err);
    if (status == TDM_OK && sink->is_present)
        status = gpu_word(e, &step.word[3], sink->nb[0] / (int64_t)sizeof(float), err);
    if (status != TDM_OK) return status;
    step.spec[0] = s->n_dim;
    step.spec[1] = s->cache.page.v.head_dim;
    step.spec[2] = s->cache.page.v.rotation;
    step.spec[3] = s->record_parts;
    step.spec[5] = gpu_cache_stride(&s->cache);
    step.word[0] = s->n_tok;
    step.word[1] = s->n_head;
    step.word[2] = s->n_record;
    step.operand[0] = e->dst[0].place;
    if (e->dst[1].is_present) step.operand[1] = e->dst[1].place;
    step.operand[2] = s->records;
    if (sink->is_present) step.operand[3] = sink->place;
    step.operand[4] = s->cache.step;
    return gpu_emit_step(e, &step, err);
}

static tdm_status attention_emit(gpu_emit *e, const gpu_value *q, const gpu_rope *rope,
                                 tdm_error *err) {
    shape s;
    tdm_status status = shape_get(e, &s, err);
    if (status != TDM_OK || s.n_head == 0 || s.n_tok == 0) return status;
    const gpu_attention_tuning *tuning = &e->target->attention;
    bool has_parts = s.is_lane || !tuning->has_no_parts;
    bool is_tiled = s.n_dim <= TILE_MAX_DIM && e->target->max_group_size >= TILE_GROUP &&
                    !tuning->has_no_tiles && (s.n_tok >= TILE_LEAST_TOK || !has_parts);
    const int32_t n_row = matrix_rows(&s, e->target);
    status = gpu_attention_query(e, &s.cache, s.params, q, rope, &s.query, err);
    if (status == TDM_OK && s.has_bias) status = bias_emit(e, &s, err);
    if (status == TDM_OK && s.n_list > 0) status = slots_emit(e, &s, err);
    if (status == TDM_OK)
        status = n_row > 0                               ? matrix_emit(e, &s, n_row, err)
                 : uses_subgroup_matrices(&s, e->target) ? subgroup_matrix_emit(e, &s, err)
                 : is_tiled                              ? tile_emit(e, &s, err)
                                                         : part_emit(e, &s, err);
    if (status == TDM_OK && !s.merges) status = merge_emit(e, &s, err);
    return status;
}

tdm_status gpu_op_attention(gpu_emit *e, tdm_error *err) {
    return attention_emit(e, &e->src[SRC_Q], NULL, err);
}

/* nodes: ROPE, ATTENTION with its result as queries. */
tdm_status gpu_fused_rope_attention(gpu_emit *nodes, tdm_error *err) {
    gpu_rope rope;
    tdm_status status = gpu_rope_get(&nodes[0], &rope, err);
    return status != TDM_OK ? status : attention_emit(&nodes[1], &nodes[0].src[0], &rope, err);
}
