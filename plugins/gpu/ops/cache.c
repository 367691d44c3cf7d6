/* SPDX-License-Identifier: MIT
 *
 * cache.c: steps of KV_WRITE, KV_SHIFT, KV_COPY, KV_EXPORT and KV_IMPORT. ATTENTION is in
 * attention.c.
 */
#include "plugins/gpu/ops/cache.h"

#include <string.h>

#include "plugins/gpu/ops/angle.h"
#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/rope.h"

enum { GROUP_SIZE = 64 };

/* ---- A node's cache -------------------------------------------------------------------------- */

tdm_status gpu_cache_get(const gpu_emit *e, int32_t kv, int step, int state, gpu_cache *cache_out,
                         tdm_error *err) {
    tdm_error inner = {.struct_size = sizeof inner};
    gpu_cache cache = {.state = e->src[state].place,
                       .step = e->src[step].place,
                       .n_tok = e->graph->step_caps.n_tok,
                       .n_page = e->src[state].ne[1]};
    if (kv < 0 || kv >= e->graph->n_kv)
        return gpu_refuse(e, err, "the graph has no cache %d", (int)kv);
    const tdm_kv_desc *desc = tdm_graph_kv(e->graph, kv);
    if (gpu_page_get(e->target, desc, &cache.page, &inner) != TDM_OK ||
        tdm_step_layout(&e->graph->step_caps, &cache.at, &inner) != TDM_OK)
        return gpu_refuse(e, err, "%.400s", inner.message);
    cache.cls = desc->cls;
    if (cache.cls < 0 || cache.cls >= cache.at.n_class || e->src[step].ne[0] < cache.at.size)
        return gpu_refuse(e, err, "class %d is not in the step block of %d classes", (int)cache.cls,
                          (int)cache.at.n_class);
    if (e->src[state].ne[0] != cache.page.page_size)
        return gpu_refuse(e, err, "pages of %lld bytes, but this device's kv_page_size is %d",
                          (long long)e->src[state].ne[0], (int)cache.page.page_size);
    if (cache.n_page > INT32_MAX / cache.page.page_len)
        return gpu_refuse(e, err, "%lld pages; cells are counted up to 2^31 - 1",
                          (long long)cache.n_page);
    *cache_out = cache;
    return TDM_OK;
}

tdm_status gpu_cache_words(const gpu_emit *e, const gpu_cache *cache, int32_t *word,
                           tdm_error *err) {
    const gpu_page *page = &cache->page;
    word[1] = page->page_size;
    word[2] = page->head_size;
    word[3] = page->n_row + (page->n_slot < 4 ? 1 << 16 : 0);
    word[4] = page->k.scale_off;
    word[5] = page->v.code_off;
    word[6] = page->v.scale_off;
    return gpu_word(e, &word[0], cache->n_page, err);
}

void gpu_cache_step_words(const gpu_emit *e, const gpu_cache *cache, int32_t *word) {
    word[13] = cache->at.seq_off;
    word[14] = cache->at.cls[cache->cls].first_entry_off;
    word[15] = cache->at.cls[cache->cls].entry_off;
    word[16] = e->graph->step_caps.n_seq;
    word[17] = e->graph->step_caps.n_entry;
}

/* Strides along the first three axes, in elements or blocks, of a value that may be absent. */
static tdm_status words_strides3(const gpu_emit *e, int32_t word[3], const gpu_value *v,
                                 tdm_error *err) {
    int32_t all[TDM_MAX_DIMS] = {0};
    tdm_status status = TDM_OK;
    if (v->is_present) status = gpu_words_strides(e, all, v, v->ne, err);
    for (int i = 0; i < 3; i++) word[i] = all[i];
    return status;
}

static void side_specs(gpu_step *step, const gpu_page *page) {
    step->spec[0] = (int32_t)page->k.type;
    step->spec[1] = (int32_t)page->v.type;
    step->spec[2] = page->k.head_dim;
    step->spec[3] = page->v.head_dim;
}

/* True where the state has no pages: then no step is emitted. */
static bool is_without_state(const gpu_cache *cache) {
    return cache->n_page == 0;
}

/* ---- KV_WRITE -------------------------------------------------------------------------------- */

static int32_t row_len(const gpu_page *page) {
    return page->k.stored > page->v.stored ? page->k.stored : page->v.stored;
}

/* `k` has the rows of K, which `rope` (nullable) turns before they are stored. */
static tdm_status write_emit(gpu_emit *e, const gpu_value *k, const gpu_rope *rope,
                             tdm_error *err) {
    enum { K, V, STEP, STATE };
    gpu_step step = gpu_step_make(e, GPU_KERNEL_KV_WRITE, GROUP_SIZE);
    gpu_cache cache = {.n_page = 0};
    tdm_status status = gpu_cache_get(e, e->node->params.kv.kv, STEP, STATE, &cache, err);
    if (status != TDM_OK) return status;
    int32_t n_side = cache.page.v_from_k ? 1 : 2;
    int64_t n_tok = k->ne[2] < cache.n_tok ? k->ne[2] : cache.n_tok;
    if (rope != NULL && cache.page.stride > 1)
        return gpu_refuse(e, err, "keys that are turned on the way into a cache with a stride");
    if (n_tok == 0 || is_without_state(&cache)) return TDM_OK;
    side_specs(&step, &cache.page);
    step.spec[4] = cache.page.k.rotation;
    step.spec[5] = cache.page.v.rotation;
    step.spec[6] = n_side | (cache.page.stride > 1 ? GPU_WRITE_STRIDED : 0);
    step.spec[7] = row_len(&cache.page);
    step.word[8] = cache.page.n_head_kv;
    step.word[9] = cache.at.cls[cache.cls].write_off;
    status = gpu_cache_words(e, &cache, step.word, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[7], n_tok, err);
    if (status == TDM_OK) status = words_strides3(e, &step.word[10], k, err);
    if (status == TDM_OK) status = words_strides3(e, &step.word[13], &e->src[V], err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step, n_tok * cache.page.n_head_kv * n_side, err);
    if (status != TDM_OK) return status;
    step.operand[0] = cache.state;
    step.operand[1] = k->place;
    if (n_side > 1) step.operand[2] = e->src[V].place;
    step.operand[3] = cache.step;
    if (rope != NULL) {
        memcpy(&step.word[16], rope->word, sizeof rope->word);
        step.operand[4] = rope->angles;
        step.operand[5] = rope->pos;
    } else if (cache.page.stride > 1) {
        step.word[17] = cache.page.stride;
        step.word[18] = cache.page.page_len;
        step.word[19] = cache.at.pos_off;
    }
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_kv_write(gpu_emit *e, tdm_error *err) {
    return write_emit(e, &e->src[0], NULL, err);
}

/* nodes: ROPE, KV_WRITE of its result as K. */
tdm_status gpu_fused_rope_write(gpu_emit *nodes, tdm_error *err) {
    gpu_rope rope;
    tdm_status status = gpu_rope_get(&nodes[0], &rope, err);
    return status != TDM_OK ? status : write_emit(&nodes[1], &nodes[0].src[0], &rope, err);
}

/* ---- KV_SHIFT -------------------------------------------------------------------------------- */

/* The elements of a row that a shift stores again: those that turn, extended to whole blocks of the
 * type and of the rotation, or to whole units of plain types. */
static void shift_range(const gpu_page_side *k, const tdm_rope_params *rope, int32_t *first_out,
                        int32_t *n_out) {
    int32_t unit = k->n_block > 0 ? k->padded / k->n_block : k->stored / k->n_unit;
    if (k->rotation > unit) unit = k->rotation;
    int32_t end = (rope->rope_offset + rope->n_rot + unit - 1) / unit * unit;
    *first_out = rope->rope_offset / unit * unit;
    *n_out = end - *first_out;
}

tdm_status gpu_op_kv_shift(gpu_emit *e, tdm_error *err) {
    enum { STEP, STATE, FACTOR };
    const tdm_rope_params *rope = &e->node->params.shift.rope;
    int32_t kv = e->node->params.shift.kv, n_job = e->graph->step_caps.n_job;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_KV_SHIFT, GROUP_SIZE);
    gpu_cache cache = {.n_page = 0};
    tdm_status status = gpu_cache_get(e, kv, STEP, STATE, &cache, err);
    if (status != TDM_OK) return status;
    if (cache.page.stride > 1) return gpu_refuse(e, err, "shift of a cache with a stride");
    const gpu_page_side *k = &cache.page.k;
    if (rope->n_rot < 0 || rope->n_rot % 2 != 0 || rope->rope_offset < 0 ||
        (int64_t)rope->rope_offset + rope->n_rot > k->head_dim)
        return gpu_refuse(e, err, "shift of elements %d .. +%d of heads of %d",
                          (int)rope->rope_offset, (int)rope->n_rot, (int)k->head_dim);
    if (rope->n_rot == 0 || tdm_graph_kv(e->graph, kv)->n_rot == 0 || n_job == 0 ||
        is_without_state(&cache))
        return TDM_OK;
    bool has_factor = e->src[FACTOR].is_present;
    status = gpu_angle_constant(e, rope, has_factor, &step.operand[2], err);
    if (status != TDM_OK) return status;
    step.spec[0] = (int32_t)k->type;
    step.spec[1] = k->head_dim;
    step.spec[2] = k->rotation;
    step.spec[3] = has_factor;
    step.spec[4] = rope->mode;
    step.spec[5] = rope->rope_offset;
    step.spec[6] = rope->n_rot / 2;
    step.spec[7] = k->stored;
    step.word[7] = cache.page.n_head_kv;
    step.word[8] = cache.at.job_off;
    step.word[9] = n_job;
    shift_range(k, rope, &step.word[10], &step.word[11]);
    status = gpu_cache_words(e, &cache, step.word, err);
    if (status == TDM_OK && has_factor)
        status = gpu_word(e, &step.word[12], e->src[FACTOR].nb[0] / (int64_t)sizeof(float), err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step,
                               (int64_t)n_job * cache.page.n_head_kv * cache.page.page_len, err);
    if (status != TDM_OK) return status;
    step.operand[0] = cache.state;
    step.operand[1] = cache.step;
    if (has_factor) step.operand[3] = e->src[FACTOR].place;
    return gpu_emit_step(e, &step, err);
}

/* ---- KV_COPY --------------------------------------------------------------------------------- */

tdm_status gpu_op_kv_copy(gpu_emit *e, tdm_error *err) {
    enum { STEP, STATE };
    int32_t n_job = e->graph->step_caps.n_job;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_KV_COPY, GROUP_SIZE);
    gpu_cache cache = {.n_page = 0};
    tdm_status status = gpu_cache_get(e, e->node->params.kv.kv, STEP, STATE, &cache, err);
    if (status != TDM_OK) return status;
    if (n_job == 0 || is_without_state(&cache)) return TDM_OK;
    side_specs(&step, &cache.page);
    step.spec[4] = cache.page.v_from_k;
    step.word[7] = cache.page.n_head_kv;
    step.word[8] = cache.at.job_off;
    step.word[9] = n_job;
    step.word[10] = cache.page.page_len;
    step.spec[5] = cache.page.stride;
    status = gpu_cache_words(e, &cache, step.word, err);
    if (status == TDM_OK)
        status =
            gpu_step_grid(e, &step, (cache.page.page_size / 4 + GROUP_SIZE - 1) / GROUP_SIZE, err);
    if (status != TDM_OK) return status;
    step.operand[0] = cache.state;
    step.operand[1] = cache.step;
    return gpu_emit_step(e, &step, err);
}

/* ---- KV_EXPORT and KV_IMPORT ----------------------------------------------------------------- */

/* Pieces of a row, each copied by one invocation: blocks, or elements of a plain type. */
static int64_t side_pieces(const gpu_page_side *side) {
    return side->n_block > 0 ? side->n_block : side->stored;
}

static tdm_status move_emit(gpu_emit *e, gpu_kernel kernel, const gpu_cache *cache,
                            const gpu_value *k, const gpu_value *v, tdm_error *err) {
    gpu_step step = gpu_step_make(e, kernel, GROUP_SIZE);
    const gpu_page *page = &cache->page;
    bool has_v = !page->v_from_k && v->is_present;
    int64_t n_row = has_v && v->ne[2] < k->ne[2] ? v->ne[2] : k->ne[2];
    int64_t n_job = e->graph->step_caps.n_job, n_piece = side_pieces(&page->k);
    if (n_row == 0 || n_job == 0 || is_without_state(cache)) return TDM_OK;
    if (has_v) n_piece += side_pieces(&page->v);
    int64_t n = n_job * page->page_len * page->n_head_kv * n_piece;
    side_specs(&step, page);
    step.spec[4] = has_v ? 2 : 1;
    step.spec[5] = page->stride;
    step.word[18] = page->page_len;
    step.word[8] = page->n_head_kv;
    step.word[9] = cache->at.job_off;
    tdm_status status = gpu_cache_words(e, cache, step.word, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[7], n_row, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[10], n_job, err);
    if (status == TDM_OK) status = words_strides3(e, &step.word[11], k, err);
    if (status == TDM_OK) status = words_strides3(e, &step.word[14], v, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[17], n, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (n + GROUP_SIZE - 1) / GROUP_SIZE, err);
    if (status != TDM_OK) return status;
    step.operand[0] = cache->state;
    step.operand[1] = k->place;
    if (has_v) step.operand[2] = v->place;
    step.operand[3] = cache->step;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_kv_export(gpu_emit *e, tdm_error *err) {
    enum { STEP, STATE };
    gpu_cache cache = {.n_page = 0};
    tdm_status status = gpu_cache_get(e, e->node->params.kv.kv, STEP, STATE, &cache, err);
    if (status != TDM_OK) return status;
    return move_emit(e, GPU_KERNEL_KV_EXPORT, &cache, &e->dst[0], &e->dst[1], err);
}

tdm_status gpu_op_kv_import(gpu_emit *e, tdm_error *err) {
    enum { K, V, STEP, STATE };
    gpu_cache cache = {.n_page = 0};
    tdm_status status = gpu_cache_get(e, e->node->params.kv.kv, STEP, STATE, &cache, err);
    if (status != TDM_OK) return status;
    return move_emit(e, GPU_KERNEL_KV_IMPORT, &cache, &e->src[K], &e->src[V], err);
}
