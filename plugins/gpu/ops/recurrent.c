/* SPDX-License-Identifier: MIT
 *
 * recurrent.c: steps of CONV1D, LINEAR_SCAN and BLOCK_POOL. KV_COPY, KV_EXPORT and KV_IMPORT of
 * their slots are in cache.c.
 */
#include <stddef.h>
#include <string.h>

#include "plugins/gpu/ops/axes.h"
#include "plugins/gpu/ops/cache.h"
#include "plugins/gpu/ops/ops.h"

enum { GROUP_SIZE = 64 };

/* As gpu_cache_get, for a state that has slots (TDM_KV_RECURRENT). */
static tdm_status slots_get(const gpu_emit *e, int step, int state, gpu_cache *cache_out,
                            tdm_error *err) {
    const int32_t kv = e->node->params.kv.kv;
    tdm_status status = gpu_cache_get(e, kv, step, state, cache_out, err);
    if (status == TDM_OK && (tdm_graph_kv(e->graph, kv)->flags & TDM_KV_RECURRENT) == 0)
        status = gpu_refuse(e, err, "the cache has tokens, not slots of recurrent states");
    return status;
}

/* Refuses a node whose parameters behind the first `size` bytes are not 0: such parameters do not
 * exist yet, and these kernels would ignore them. */
static tdm_status form_check(const gpu_emit *e, size_t size, tdm_error *err) {
    for (size_t i = size; i < sizeof e->node->params.bytes; i++)
        if (e->node->params.bytes[i] != 0)
            return gpu_refuse(e, err, "there is no kernel for this form of the op");
    return TDM_OK;
}

/* Strides along the first n axes of a value, in elements; 0 where it is absent. Refuses a value of
 * more elements than the kernels count. */
static tdm_status strides_get(const gpu_emit *e, int32_t *word, int n, const gpu_value *v,
                              tdm_error *err) {
    int32_t all[TDM_MAX_DIMS] = {0}, extent;
    tdm_status status = TDM_OK;
    if (v->is_present) status = gpu_word(e, &extent, (int64_t)(v->place.size / sizeof(float)), err);
    if (status == TDM_OK && v->is_present) status = gpu_words_strides(e, all, v, v->ne, err);
    memcpy(word, all, (size_t)n * sizeof *word);
    return status;
}

/* ---- CONV1D ---------------------------------------------------------------------------------- */

/* dst = act(CONV1D of e). */
static tdm_status conv1d_emit(gpu_emit *e, tdm_act act, const gpu_value *dst, tdm_error *err) {
    enum { X, W, BIAS, STEP, STATE };
    const tdm_conv_params *p = &e->node->params.conv;
    const tdm_step_caps *caps = &e->graph->step_caps;
    const int64_t n_ch = e->dst[0].ne[0], n_tok = e->dst[0].ne[1], n = n_ch * n_tok,
                  k = e->src[W].ne[0];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_CONV1D, GROUP_SIZE);
    gpu_cache cache = {.n_page = 0};
    int32_t extent;
    tdm_status status = slots_get(e, STEP, STATE, &cache, err);
    if (status == TDM_OK) status = form_check(e, sizeof *p, err);
    if (status != TDM_OK || n == 0) return status;
    status = gpu_word(e, &extent, n, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], n_ch, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], n_tok, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[3], cache.n_page, err);
    if (status == TDM_OK) status = strides_get(e, &step.word[4], 2, &e->src[X], err);
    if (status == TDM_OK) status = strides_get(e, &step.word[6], 2, &e->src[W], err);
    if (status == TDM_OK) status = strides_get(e, &step.word[8], 1, &e->src[BIAS], err);
    if (status == TDM_OK) status = gpu_word(e, &step.spec[0], k, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (n + GROUP_SIZE - 1) / GROUP_SIZE, err);
    if (status != TDM_OK) return status;
    step.word[2] = caps->n_seq;
    step.word[9] = cache.at.first_tok_off;
    step.word[10] = cache.at.rs_read_off;
    step.word[11] = cache.at.rs_write_off;
    memcpy(&step.word[12], p->unit_len, sizeof p->unit_len);
    step.spec[1] = e->src[BIAS].is_present;
    step.spec[2] = p->n_segment;
    step.spec[3] = act;
    step.operand[0] = dst->place;
    step.operand[1] = e->src[X].place;
    step.operand[2] = e->src[W].place;
    if (e->src[BIAS].is_present) step.operand[3] = e->src[BIAS].place;
    step.operand[4] = cache.step;
    step.operand[5] = cache.state;
    step.trips = caps->n_seq + n_tok + 2 * k + 2 * (int64_t)p->n_segment;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_conv1d(gpu_emit *e, tdm_error *err) {
    return conv1d_emit(e, TDM_ACT_NONE, &e->dst[0], err);
}

/* nodes: CONV1D, ACT of its result. */
tdm_status gpu_fused_conv_act(gpu_emit *nodes, tdm_error *err) {
    return conv1d_emit(&nodes[0], (tdm_act)nodes[1].node->params.act.act, &nodes[1].dst[0], err);
}

/* ---- LINEAR_SCAN ----------------------------------------------------------------------------- */

enum { Q, K, V, G, A, BETA, STEP, STATE, ERASE, WRITE };

/* How the threads of a scan divide its matrices. */
typedef struct scan_shape {
    int64_t dk, dv, n_k, n_v, n_tok;
    int32_t lanes, steps, rows; /* of GPU_KERNEL_LINEAR_SCAN: spec 1, 2, 3 */
    int32_t group_size;
} scan_shape;

/* Chooses lanes, steps and rows. A thread has one step of 4 elements for keys of up to 16 elements,
 * else 4 steps. Devices with small subgroups need more steps for long keys, which leaves registers
 * for one row only. */
static tdm_status shape_get(const gpu_emit *e, scan_shape *s, tdm_error *err) {
    enum { SHORT = 16, STEPS = 4, MAX_STEPS = 16, ROWS = 4 };
    const int32_t subgroup = e->target->subgroup_min;
    s->dk = e->src[Q].ne[0];
    s->n_k = e->src[Q].ne[1];
    s->dv = e->src[V].ne[0];
    s->n_v = e->src[V].ne[1];
    s->n_tok = e->src[V].ne[2];
    s->lanes = 1;
    s->steps = s->dk <= SHORT && subgroup >= SHORT / 4 ? 1 : STEPS;
    while (s->lanes < subgroup && (int64_t)s->lanes * s->steps * 4 < s->dk) s->lanes *= 2;
    while (s->steps < MAX_STEPS && (int64_t)s->lanes * s->steps * 4 < s->dk) s->steps *= 2;
    /* The entries of CUDA and HIP have up to 4 steps; their subgroups have at least 32 threads. */
    const int64_t most = (int64_t)subgroup * 4 * (subgroup >= 32 ? STEPS : MAX_STEPS);
    if (s->dk > most)
        return gpu_refuse(e, err, "scans of keys of %lld elements; the kernels have up to %lld",
                          (long long)s->dk, (long long)most);
    s->rows = s->dv >= ROWS && s->steps <= STEPS ? ROWS : 1;
    s->group_size = e->target->subgroup_max > GROUP_SIZE ? e->target->subgroup_max : GROUP_SIZE;
    return TDM_OK;
}

/* The table of GPU_KERNEL_LINEAR_SCAN_TABLE. */
typedef struct scan_table {
    gpu_operand place;
    int32_t decay; /* gpu_scan_decay */
    int32_t first; /* words before its f32 */
} scan_table;

/* Sets words, spec and operands of the table's step for beta, or for erase and write, which a node
 * has instead. */
static tdm_status rows_get(const gpu_emit *e, gpu_step *step, tdm_error *err) {
    const bool has_erase = e->src[ERASE].is_present;
    int32_t first[3], second[3];
    tdm_status status = strides_get(e, first, 3, &e->src[has_erase ? ERASE : BETA], err);
    if (status == TDM_OK) status = strides_get(e, second, 3, &e->src[WRITE], err);
    if (status != TDM_OK) return status;
    step->word[11] = first[1];
    step->word[12] = first[2];
    step->spec[1] = e->src[BETA].is_present;
    if (e->src[BETA].is_present) step->operand[3] = e->src[BETA].place;
    if (!has_erase) return TDM_OK;
    step->word[18] = second[1];
    step->word[19] = second[2];
    step->spec[1] = 2;
    step->spec[2] = (int32_t)e->src[Q].ne[0];
    step->spec[3] = (int32_t)e->src[Q].ne[1];
    step->spec[4] = first[0];
    step->spec[5] = second[0];
    step->operand[3] = e->src[ERASE].place;
    step->operand[5] = e->src[WRITE].place;
    return TDM_OK;
}

static tdm_status table_emit(gpu_emit *e, const scan_shape *s, const gpu_cache *cache,
                             scan_table *table_out, tdm_error *err) {
    const tdm_step_caps *caps = &e->graph->step_caps;
    const gpu_value *g = &e->src[G], *a = &e->src[A];
    const int64_t n_rate_tok = g->ne[2] == 1 ? 1 : s->n_tok;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_LINEAR_SCAN_TABLE, GROUP_SIZE);
    scan_table table = {.decay = g->ne[0] > 1                    ? GPU_SCAN_DECAY_EACH
                                 : a->is_present && a->ne[0] > 1 ? GPU_SCAN_DECAY_FACTOR
                                                                 : GPU_SCAN_DECAY_ONE};
    const int64_t n_factor = table.decay == GPU_SCAN_DECAY_FACTOR ? a->ne[0] : 0;
    const int64_t first = (3 * (int64_t)caps->n_seq + 2 * s->n_tok + 3) / 4 * 4;
    const int64_t n_number = (e->src[BETA].is_present ? s->n_v * s->n_tok : 0) +
                             (e->src[ERASE].is_present ? 2 * s->dk * s->n_k * s->n_tok : 0) +
                             g->ne[0] * s->n_v * n_rate_tok + n_factor * s->n_v;
    int64_t n = n_number > s->n_tok ? n_number : s->n_tok;
    if (n < caps->n_seq) n = caps->n_seq;
    tdm_status status = gpu_word(e, &table.first, first + n_number, err); /* checked alone */
    if (status == TDM_OK) status = gpu_word(e, &table.first, first, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], s->n_tok, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[2], s->n_v, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[3], g->ne[0], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[4], n_factor, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[5], n_rate_tok, err);
    if (status == TDM_OK) status = strides_get(e, &step.word[6], 3, g, err);
    if (status == TDM_OK) status = strides_get(e, &step.word[9], 2, a, err);
    if (status == TDM_OK) status = rows_get(e, &step, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[13], cache->n_page, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (n + GROUP_SIZE - 1) / GROUP_SIZE, err);
    if (status != TDM_OK) return status;
    step.word[0] = caps->n_seq;
    step.word[14] = cache->at.first_tok_off;
    step.word[15] = cache->at.rs_read_off;
    step.word[16] = cache->at.rs_write_off;
    step.word[17] = table.first;
    step.spec[0] = table.decay;
    table.place = gpu_emit_scratch(e, (uint64_t)(first + n_number) * sizeof(float));
    step.operand[0] = table.place;
    step.operand[1] = g->place;
    if (a->is_present) step.operand[2] = a->place;
    step.operand[4] = cache->step;
    step.trips = caps->n_seq + s->n_tok;
    *table_out = table;
    return gpu_emit_step(e, &step, err);
}

static bool is_aligned(const gpu_value *v) {
    return gpu_value_lane(v) == GPU_LANE_ALIGNED && v->ne[0] % 4 == 0;
}

static int32_t flags_get(const gpu_emit *e) {
    int32_t flags = 0;
    if (e->src[BETA].is_present) flags |= GPU_SCAN_BETA;
    if (e->src[ERASE].is_present) flags |= GPU_SCAN_ERASE;
    if (e->node->params.scan.is_tiled != 0) flags |= GPU_SCAN_TILED;
    if (e->src[G].ne[2] == 1) flags |= GPU_SCAN_CONSTANT;
    if (e->src[Q].ne[0] % 4 == 0) flags |= GPU_SCAN_ALIGNED_STATE;
    if (is_aligned(&e->src[Q])) flags |= GPU_SCAN_ALIGNED_Q;
    if (is_aligned(&e->src[K])) flags |= GPU_SCAN_ALIGNED_K;
    return flags;
}

static tdm_status scan_emit(gpu_emit *e, const scan_shape *s, const gpu_cache *cache,
                            const scan_table *table, tdm_error *err) {
    const tdm_scan_params *p = &e->node->params.scan;
    const tdm_step_caps *caps = &e->graph->step_caps;
    const int64_t n_row = s->n_v * ((s->dv + s->rows - 1) / s->rows),
                  per_group = s->group_size / s->lanes;
    const float scale = p->scale != 0 ? p->scale : 1;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_LINEAR_SCAN, s->group_size);
    int32_t extent;
    tdm_status status = gpu_word(e, &extent, s->dv * s->n_v * s->n_tok, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], s->n_tok, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[2], s->n_v, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[3], s->dv, err);
    if (status == TDM_OK)
        status = gpu_word(e, &step.word[5],
                          (int64_t)p->first_head - (int64_t)p->first_head_k * p->heads_per_k, err);
    if (status == TDM_OK) status = strides_get(e, &step.word[10], 3, &e->src[Q], err);
    if (status == TDM_OK) status = strides_get(e, &step.word[13], 3, &e->src[K], err);
    if (status == TDM_OK) status = strides_get(e, &step.word[16], 3, &e->src[V], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[19], s->n_k, err);
    if (status == TDM_OK)
        status = gpu_step_grid(
            e, &step, (n_row + per_group - 1) / per_group * ((int64_t)caps->n_seq + 1), err);
    if (status != TDM_OK) return status;
    step.word[1] = caps->n_seq;
    step.word[4] = p->heads_per_k;
    step.word[6] = (int32_t)(s->n_v / cache->page.n_head_kv);
    step.word[7] = cache->page.page_size;
    step.word[8] = cache->page.head_size;
    step.word[9] = table->first;
    step.spec[0] = (int32_t)s->dk;
    step.spec[1] = s->lanes;
    step.spec[2] = s->steps;
    step.spec[3] = s->rows;
    step.spec[4] = table->decay;
    step.spec[5] = flags_get(e);
    memcpy(&step.spec[6], &scale, sizeof scale);
    step.operand[0] = e->dst[0].place;
    step.operand[1] = e->src[Q].place;
    step.operand[2] = e->src[K].place;
    step.operand[3] = e->src[V].place;
    step.operand[4] = table->place;
    step.operand[5] = cache->state;
    step.trips = s->n_tok;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_linear_scan(gpu_emit *e, tdm_error *err) {
    gpu_cache cache = {.n_page = 0};
    scan_shape shape = {0};
    scan_table table = {.first = 0};
    tdm_status status = slots_get(e, STEP, STATE, &cache, err);
    if (status == TDM_OK) status = form_check(e, sizeof e->node->params.scan, err);
    if (status == TDM_OK) status = shape_get(e, &shape, err);
    if (status != TDM_OK || tdm_shape_count(e->dst[0].ne) == 0) return status;
    status = table_emit(e, &shape, &cache, &table, err);
    return status == TDM_OK ? scan_emit(e, &shape, &cache, &table, err) : status;
}

/* ---- BLOCK_POOL ------------------------------------------------------------------------------ */

/* Loop iterations of an invocation for a chunk of `chunk` tokens: back to the token where it begins
 * and forward to the chunk's end; for each token the search for its sequence, and for a later token
 * with the same slot. */
static int64_t pool_trips(const tdm_step_caps *caps, int64_t n_tok, int64_t chunk) {
    return 2 * n_tok + chunk * (1 + caps->n_seq + n_tok);
}

tdm_status gpu_op_block_pool(gpu_emit *e, tdm_error *err) {
    enum { X, SCORE, BIAS, STEP, STATE };
    /* Tokens of a chunk. An invocation begins at the start of a block, which for blocks of 128
     * tokens is 64 tokens before its chunk on average: smaller chunks would mostly repeat work. */
    enum { CHUNK = 64 };
    const tdm_pool_params *p = &e->node->params.pool;
    const tdm_step_caps *caps = &e->graph->step_caps;
    const int64_t n_ch = e->dst[0].ne[0], n_tok = e->dst[0].ne[1];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_BLOCK_POOL, GROUP_SIZE);
    gpu_cache cache = {.n_page = 0};
    int32_t extent;
    tdm_status status = slots_get(e, STEP, STATE, &cache, err);
    if (status == TDM_OK) status = form_check(e, sizeof *p, err);
    if (status != TDM_OK || n_ch * n_tok == 0) return status;
    int64_t chunk = CHUNK < n_tok ? CHUNK : n_tok;
    while (chunk > 1 && e->target->max_trips != 0 &&
           pool_trips(caps, n_tok, chunk) > e->target->max_trips)
        chunk = (chunk + 1) / 2;
    const int64_t n_chunk = (n_tok + chunk - 1) / chunk;
    status = gpu_word(e, &extent, n_ch * n_tok, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], n_ch, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], n_tok, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[3], cache.n_page, err);
    if (status == TDM_OK) status = strides_get(e, &step.word[4], 2, &e->src[X], err);
    if (status == TDM_OK) status = strides_get(e, &step.word[6], 2, &e->src[SCORE], err);
    if (status == TDM_OK) status = strides_get(e, &step.word[8], 2, &e->src[BIAS], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[14], e->src[BIAS].ne[1], err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step, (n_ch * n_chunk + GROUP_SIZE - 1) / GROUP_SIZE, err);
    if (status != TDM_OK) return status;
    step.word[2] = caps->n_seq;
    step.word[10] = cache.at.first_tok_off;
    step.word[11] = cache.at.rs_read_off;
    step.word[12] = cache.at.rs_write_off;
    step.word[13] = cache.at.pos_off;
    step.word[15] = (int32_t)chunk;
    step.word[16] = (int32_t)n_chunk;
    step.word[17] = cache.page.page_size;
    step.spec[0] = p->n_part;
    step.operand[0] = e->dst[0].place;
    step.operand[1] = e->src[X].place;
    step.operand[2] = e->src[SCORE].place;
    step.operand[3] = e->src[BIAS].place;
    step.operand[4] = cache.step;
    step.operand[5] = cache.state;
    step.trips = pool_trips(caps, n_tok, chunk);
    return gpu_emit_step(e, &step, err);
}
