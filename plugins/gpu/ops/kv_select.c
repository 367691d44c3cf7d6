/* SPDX-License-Identifier: MIT
 *
 * kv_select.c: steps of KV_SELECT: prepares queries; then, for a batch of tokens at a time,
 * computes scores as keys, and chooses the lists from the keys. ATTENTION over lists is in
 * attention.c.
 */
#include "plugins/gpu/ops/attention.h"
#include "plugins/gpu/ops/ops.h"

enum { SRC_Q, SRC_W, SRC_STEP, SRC_STATE };

enum {
    CHUNK = 64,        /* slots of a workgroup; threads of a team */
    MAX_ROWS = 8,      /* heads that a thread computes at a time: SELECT_SCORE */
    CHOOSE_GROUP = 256 /* most threads of SELECT_CHOOSE */
};

/* The keys of a batch of tokens take at most so many bytes, if a token alone takes no more. */
static const uint64_t keys_most = (uint64_t)32 << 20;

typedef struct selection {
    gpu_cache cache;
    int32_t n_head, n_tok, n_list;
    int32_t batch;   /* tokens whose keys exist at the same time */
    int32_t n_chunk; /* workgroups of SELECT_SCORE for an entry */
    int32_t n_key;   /* keys of a token and list */
    gpu_operand query, keys;
} selection;

/* Heads that a workgroup of n_team teams computes at a time: as many as its threads hold and as
 * half of the shared memory has room for, at least 1. */
static int32_t rows_choose(const gpu_emit *e, const selection *s, int32_t n_team) {
    const int32_t stored = s->cache.page.k.stored, most = n_team * MAX_ROWS;
    const int32_t row_size = (int32_t)sizeof(float) * (stored + 8 + 4);
    const int32_t size = (int32_t)(e->target->shared_size / 2) - n_team * CHUNK * 4 - 64;
    int32_t rows = s->n_head < most ? s->n_head : most;
    if (rows > size / row_size) rows = size / row_size;
    return rows > 1 ? rows : 1;
}

/* Sets the words that both kernels have, for tokens `first` .. first + n - 1. */
static tdm_status step_begin(gpu_emit *e, const selection *s, gpu_kernel kernel, int32_t group,
                             int32_t first, int32_t n, gpu_step *step_out, tdm_error *err) {
    gpu_step step = gpu_step_make(e, kernel, group);
    tdm_status status = gpu_cache_words(e, &s->cache, step.word, err);
    gpu_cache_step_words(e, &s->cache, step.word);
    step.spec[5] = gpu_cache_stride(&s->cache);
    step.word[9] = first;
    step.word[10] = n;
    step.word[11] = s->n_chunk;
    step.word[12] = s->cache.at.pos_off;
    *step_out = step;
    return status;
}

static tdm_status score_emit(gpu_emit *e, const selection *s, int32_t first, int32_t n,
                             tdm_error *err) {
    const gpu_page_side *k = &s->cache.page.k;
    const gpu_value *w = &e->src[SRC_W];
    const int64_t n_group = (int64_t)n * e->graph->step_caps.n_entry * s->n_chunk;
    int32_t n_team = 1;
    while (2 * n_team <= e->target->attention.part_teams && n_team * MAX_ROWS < s->n_head &&
           2 * n_team * CHUNK <= e->target->max_group_size)
        n_team *= 2;
    gpu_step step;
    tdm_status status =
        step_begin(e, s, GPU_KERNEL_SELECT_SCORE, n_team * CHUNK, first, n, &step, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, n_group, err);
    step.word[8] = s->n_head;
    for (int i = 0; i < 2 && w->is_present && status == TDM_OK; i++)
        if (w->ne[i] > 1)
            status = gpu_word(e, &step.word[18 + i], w->nb[i] / (int64_t)sizeof(float), err);
    if (status != TDM_OK) return status;
    step.spec[0] = (int32_t)k->type;
    step.spec[1] = w->is_present;
    step.spec[2] = k->stored;
    step.spec[4] = rows_choose(e, s, n_team);
    step.operand[0] = s->keys;
    step.operand[1] = s->query;
    step.operand[2] = s->cache.state;
    step.operand[3] = s->cache.step;
    if (w->is_present) step.operand[4] = w->place;
    step.trips = ((int64_t)s->n_head / step.spec[4] + 1) *
                 (k->stored / 4 + step.spec[4] * k->stored / 4 / CHUNK + 2);
    return gpu_emit_step(e, &step, err);
}

static tdm_status choose_emit(gpu_emit *e, const selection *s, int32_t first, int32_t n,
                              tdm_error *err) {
    const tdm_select_params *p = &e->node->params.select;
    int32_t group = CHUNK;
    while (2 * group <= e->target->max_group_size && group < CHOOSE_GROUP) group *= 2;
    gpu_step step;
    tdm_status status = step_begin(e, s, GPU_KERNEL_SELECT_CHOOSE, group, first, n, &step, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (int64_t)n * s->n_list, err);
    if (status != TDM_OK) return status;
    step.word[7] = s->n_tok;
    step.word[8] = s->n_list;
    step.spec[0] = p->n_top;
    step.spec[1] = p->block_len > 1 ? p->block_len : 1;
    step.spec[2] = p->n_local;
    step.spec[3] = p->is_of_tokens;
    step.operand[0] = e->dst[0].place;
    step.operand[1] = s->keys;
    step.operand[2] = s->cache.step;
    /* Each thread passes several times over its share of the keys; a block may exceed the
     * share. */
    step.trips =
        ((int64_t)s->n_key / group + 1) * (12 + (p->is_of_tokens != 0 ? s->cache.page.stride : 0)) +
        3 * (int64_t)step.spec[1] + p->n_top / group + 256;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_op_kv_select(gpu_emit *e, tdm_error *err) {
    static const tdm_attention_params unscaled = {.scale = 1};
    const gpu_value *q = &e->src[SRC_Q];
    selection s = {.n_head = (int32_t)q->ne[1], .n_tok = (int32_t)q->ne[2]};
    tdm_status status =
        gpu_cache_get(e, e->node->params.select.kv, SRC_STEP, SRC_STATE, &s.cache, err);
    if (status == TDM_OK)
        status =
            gpu_word(e, &s.n_key, (int64_t)e->graph->step_caps.n_entry * s.cache.page.n_row, err);
    if (status != TDM_OK || s.n_tok == 0) return status;
    s.n_list = e->src[SRC_W].is_present ? 1 : s.n_head;
    s.n_chunk = (s.cache.page.n_row + CHUNK - 1) / CHUNK;
    const uint64_t token_size = (uint64_t)s.n_list * (uint64_t)s.n_key * sizeof(uint32_t);
    s.batch = token_size < keys_most ? (int32_t)(keys_most / (token_size + 1)) : 1;
    if (s.batch > s.n_tok) s.batch = s.n_tok;
    s.keys = gpu_emit_scratch(e, token_size * (uint64_t)s.batch);
    status = gpu_attention_query(e, &s.cache, &unscaled, q, NULL, &s.query, err);
    for (int32_t first = 0; first < s.n_tok && status == TDM_OK; first += s.batch) {
        const int32_t n = s.n_tok - first < s.batch ? s.n_tok - first : s.batch;
        status = score_emit(e, &s, first, n, err);
        if (status == TDM_OK) status = choose_emit(e, &s, first, n, err);
    }
    return status;
}
