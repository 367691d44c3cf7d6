/* SPDX-License-Identifier: MIT
 *
 * test_attention_blocks.c: KV_SELECT of whole blocks of positions, with a list for each head or one
 * for all, and ATTENTION whose KV heads have lists of their own, against sums in double over the
 * rows that the caches hold; and the same bits for a token alone. Single positions:
 * test_attention_sparse.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/attention_rigs.h"
#include "tests/kernels/kv_scene.h"

enum {
    N_KV = 3,
    PER_KV = 2,
    N_HEAD = N_KV * PER_KV,
    N_TOK = 8,
    MOST_DIM = 96,
    MOST_TOP = 48,
    MOST_LEN = 150
};

static const kv_query queries[N_TOK] = {{149, 0}, {19, 0}, {20, 0},  {-1, 0},
                                        {0, 1},   {36, 1}, {143, 0}, {144, 0}};

/* A form of the op, and the cache it reads. */
typedef struct block_case {
    tdm_type type;
    int32_t dim_index, dim_k, dim_v, page_len;
    int32_t n_block, block_len, n_local;
    bool has_w; /* one list for all heads */
} block_case;

static int32_t n_top_of(const block_case *c) {
    return c->n_block * c->block_len;
}

static int32_t n_list_of(const block_case *c) {
    return c->has_w ? 1 : N_KV;
}

/* The heads of the index: one for each KV head, or more where all share a list. */
enum { N_INDEX = N_KV };

typedef struct inputs {
    float index_q[N_TOK * N_INDEX * MOST_DIM], w[N_TOK * N_INDEX], q[N_TOK * N_HEAD * MOST_DIM];
} inputs;

typedef struct results {
    int32_t list[N_KV * N_TOK * MOST_TOP]; /* [n_top, n_tok, n_list] */
    float o[N_TOK * N_HEAD * MOST_DIM];
} results;

/* Both caches have the pages of one scene. */
typedef struct scenes {
    kv_scene index, rows;
} scenes;

/* Tokens first .. first + n_tok - 1. */
static void block_run(const block_case *c, const scenes *s, op_rig *rig, op_state *keys,
                      op_state *cache, inputs *in, int32_t first, int32_t n_tok, results *out) {
    const tdm_step_caps caps = kv_scene_caps(&s->rows, n_tok, 0);
    tdm_select_params select = {
        .n_top = n_top_of(c), .block_len = c->block_len, .n_local = c->n_local};
    tdm_attention_params params = {.heads_per_kv = PER_KV, .n_head_all = N_HEAD, .is_causal = 1};
    const int64_t index_ne[] = {c->dim_index, N_INDEX, n_tok, 1}, w_ne[] = {N_INDEX, n_tok, 1, 1},
                  q_ne[] = {c->dim_k, N_HEAD, n_tok, 1};
    tdm_builder *b;
    tdm_graph *graph;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t step = tdm_build_step(b, &caps);
    int32_t index =
        tdm_build_state(b, "index", &s->index.desc, op_rig_page_size(rig, &s->index.desc),
                        s->index.n_page, &select.kv);
    int32_t state = tdm_build_state(b, "cache", &s->rows.desc, op_rig_page_size(rig, &s->rows.desc),
                                    s->rows.n_page, &params.kv);
    int32_t index_q = tdm_build_input(b, "index_q", TDM_TYPE_F32, index_ne);
    int32_t w = c->has_w ? tdm_build_input(b, "w", TDM_TYPE_F32, w_ne) : -1;
    int32_t q = tdm_build_input(b, "q", TDM_TYPE_F32, q_ne);
    int32_t list = tdm_build_kv_select(b, index_q, w, step, index, &select);
    int32_t o = tdm_build_attention_sparse(b, q, step, state, -1, list, &params, NULL);
    tdm_build_output(b, list, "list");
    tdm_build_output(b, o, "o");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    int32_t *block = kv_step_create(&s->rows, &caps);
    for (int32_t t = 0; t < n_tok; t++)
        kv_step_set_token(block, t, queries[first + t].pos, queries[first + t].seq, -1);
    const op_arg args[] = {{.value = step, .data = block},
                           {.value = index, .state = keys},
                           {.value = state, .state = cache},
                           {.value = index_q, .data = in->index_q + first * N_INDEX * c->dim_index},
                           {.value = q, .data = in->q + first * N_HEAD * c->dim_k},
                           {.value = list, .data = out->list},
                           {.value = o, .data = out->o},
                           {.value = w, .data = in->w + first * N_INDEX}};
    op_rig_run(rig, graph, args, c->has_w ? 8 : 7);
    free(block);
    tdm_graph_free(graph);
}

static size_t cell_of(const kv_scene *s, kv_query query, int32_t pos) {
    int32_t e = s->first_entry[query.seq];
    while (pos >= s->entries[e].base_pos + s->entries[e].count) e++;
    return (size_t)(s->entries[e].page * s->page_len + s->entries[e].first + pos -
                    s->entries[e].base_pos);
}

static double dot_of(const float *q, const double *k, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)q[i] * k[i];
    return sum;
}

/* The score of position `pos` in list `list` of token t. */
static double score_of(const block_case *c, const scenes *s, const inputs *in, int32_t t,
                       int32_t list, int32_t pos) {
    const double *k = s->index.k_row + cell_of(&s->index, queries[t], pos) * (size_t)c->dim_index;
    const float *q = in->index_q + t * N_INDEX * c->dim_index;
    double sum = 0;
    if (!c->has_w) return dot_of(q + list * c->dim_index, k, c->dim_index);
    for (int32_t h = 0; h < N_INDEX; h++)
        sum +=
            (double)in->w[t * N_INDEX + h] * fmax(dot_of(q + h * c->dim_index, k, c->dim_index), 0);
    return sum;
}

/* A list: whole blocks as far as the token sees, the local ones and the best others within
 * `margin`, as many as there may be. */
static void list_judge(const block_case *c, const scenes *s, const inputs *in, int32_t t,
                       int32_t list, const int32_t *positions, double margin) {
    const int32_t pos = queries[t].pos, last_block = pos < 0 ? -1 : pos / c->block_len;
    double worst = INFINITY, best = -INFINITY;
    int32_t at = 0, n_listed = 0;
    for (int32_t b = 0; b <= last_block; b++) {
        const bool is_listed = at < n_top_of(c) && positions[at] == b * c->block_len;
        double score = -INFINITY;
        for (int32_t p = b * c->block_len; p < (b + 1) * c->block_len && p <= pos; p++) {
            score = fmax(score, score_of(c, s, in, t, list, p));
            if (is_listed) assert_int_equal(positions[at++], p);
        }
        n_listed += is_listed;
        if (b > last_block - c->n_local)
            assert_true(is_listed);
        else if (is_listed)
            worst = fmin(worst, score);
        else
            best = fmax(best, score);
    }
    assert_int_equal(n_listed, last_block + 1 < c->n_block ? last_block + 1 : c->n_block);
    for (; at < n_top_of(c); at++) assert_int_equal(positions[at], -1);
    if (best > worst + margin)
        fail_msg("token %d, list %d: a block of %g is left out, one of %g is listed", t, list, best,
                 worst);
}

/* Attention of a head over the list of its KV head, in double. */
static void attend(const block_case *c, const scenes *s, const inputs *in, int32_t t, int32_t head,
                   const int32_t *positions, float *o) {
    const int32_t kv = head / PER_KV;
    double sum[MOST_DIM] = {0}, a[MOST_TOP], m = -INFINITY, l = 0;
    int32_t n = 0;
    for (; n < n_top_of(c) && positions[n] >= 0; n++) {
        const size_t row = cell_of(&s->rows, queries[t], positions[n]) * N_KV + (size_t)kv;
        a[n] = dot_of(in->q + (t * N_HEAD + head) * c->dim_k,
                      s->rows.k_row + row * (size_t)c->dim_k, c->dim_k) /
               sqrt(c->dim_k);
        m = fmax(m, a[n]);
    }
    for (int32_t i = 0; i < n; i++) {
        const size_t row = cell_of(&s->rows, queries[t], positions[i]) * N_KV + (size_t)kv;
        const double p = exp(a[i] - m);
        l += p;
        for (int32_t d = 0; d < c->dim_v; d++)
            sum[d] += p * s->rows.v_row[row * (size_t)c->dim_v + (size_t)d];
    }
    for (int32_t d = 0; d < c->dim_v; d++) o[d] = n > 0 ? (float)(sum[d] / l) : 0;
}

static void rig_judge(const block_case *c, scenes *s, int i, inputs *in) {
    static results got, alone;
    static float want[N_TOK * N_HEAD * MOST_DIM];
    const attention_rig_row *row = &attention_rig_rows[i];
    const bool is_quantized = tdm_type_get_info(c->type).is_quantized;
    const int32_t n_top = n_top_of(c), n_list = n_list_of(c);
    const size_t n_o = (size_t)(N_HEAD * c->dim_v);
    op_state *keys = kv_scene_write(&s->index, attention_rigs[i], 7);
    op_state *cache = kv_scene_write(&s->rows, attention_rigs[i], 7);
    if (i == 0) kv_scene_learn(&s->index, attention_rigs[i], keys);
    if (i == 0) kv_scene_learn(&s->rows, attention_rigs[i], cache);
    block_run(c, s, attention_rigs[i], keys, cache, in, 0, N_TOK, &got);
    for (int32_t t = 0; t < N_TOK; t++) {
        for (int32_t l = 0; l < n_list; l++)
            list_judge(c, s, in, t, l, got.list + (l * N_TOK + t) * n_top,
                       is_quantized && i > 0 ? 1e-2 : 1e-4);
        for (int32_t h = 0; h < N_HEAD; h++)
            attend(c, s, in, t, h, got.list + ((n_list > 1 ? h / PER_KV : 0) * N_TOK + t) * n_top,
                   want + (size_t)t * n_o + h * c->dim_v);
    }
    double bound = i == 0 ? 1e-12 : strcmp(row->bits, "8") == 0 ? 2e-4 : 1e-6;
    double error = op_nmse(got.o, want, N_TOK * n_o);
    if (!is_quantized && bound > 1e-10) bound = 1e-10;
    if (!(error <= bound))
        fail_msg("blocks of %d: %g > %g: isa %s, %s, %s bits, %s", c->block_len, error, bound,
                 row->isa, row->path, row->bits, tdm_type_name(c->type));
    for (int32_t t = 0; t < N_TOK; t += 3) {
        block_run(c, s, attention_rigs[i], keys, cache, in, t, 1, &alone);
        for (int32_t l = 0; l < n_list; l++)
            assert_memory_equal(alone.list + l * n_top, got.list + (l * N_TOK + t) * n_top,
                                (size_t)n_top * sizeof *alone.list);
        assert_memory_equal(alone.o, got.o + (size_t)t * n_o, n_o * sizeof *alone.o);
    }
    op_state_destroy(cache);
    op_state_destroy(keys);
}

static void case_run(const block_case *c, uint64_t seed) {
    static const int32_t len[] = {MOST_LEN, 37};
    static inputs in;
    const uint32_t rotated = TDM_KV_SPARSE | TDM_KV_ROTATE_K | TDM_KV_ROTATE_V;
    const tdm_kv_desc index = {.struct_size = sizeof index,
                               .type_k = c->type,
                               .type_v = c->type,
                               .head_dim_k = c->dim_index,
                               .head_dim_v = c->dim_index,
                               .n_head_kv = 1,
                               .page_len = c->page_len,
                               .flags = rotated | TDM_KV_V_FROM_K};
    const tdm_kv_desc rows = {.struct_size = sizeof rows,
                              .type_k = c->type,
                              .type_v = c->type,
                              .head_dim_k = c->dim_k,
                              .head_dim_v = c->dim_v,
                              .n_head_kv = N_KV,
                              .page_len = c->page_len,
                              .flags = rotated};
    uint64_t other = seed; /* the pages are drawn first, so both scenes have the same */
    scenes s;
    kv_scene_init(&s.index, &index, 2, len, 11, &other);
    kv_scene_init(&s.rows, &rows, 2, len, 11, &seed);
    assert_memory_equal(s.index.entries, s.rows.entries, sizeof s.rows.entries);
    op_random_fill(&seed, in.index_q, sizeof in.index_q / sizeof *in.index_q, 1);
    op_random_fill(&seed, in.w, sizeof in.w / sizeof *in.w, 1);
    op_random_fill(&seed, in.q, sizeof in.q / sizeof *in.q, 1);
    for (int i = 0; i < N_ATTENTION_RIG; i++)
        if (attention_rigs[i] != NULL) rig_judge(c, &s, i, &in);
    kv_scene_free(&s.index);
    kv_scene_free(&s.rows);
}

/* Blocks shorter and longer than a page, that end inside one, of one position; local ones: none,
 * some, all. */
static void test_blocks(void **state) {
    static const block_case cases[] = {
        {TDM_TYPE_F32, 40, 40, 24, 16, 5, 4, 1, false},
        {TDM_TYPE_F16, 64, 96, 64, 64, 2, 24, 2, false},
        {TDM_TYPE_Q8_0, 96, 64, 96, 8, 3, 16, 0, false},
        {TDM_TYPE_Q4_0, 64, 64, 32, 16, 6, 7, 2, false},
        {TDM_TYPE_F32, 33, 40, 24, 64, 4, 5, 1, true},
        {TDM_TYPE_Q8_0, 32, 64, 32, 16, 48, 1, 3, true},
        {TDM_TYPE_F32, 40, 40, 24, 16, 9, 1, 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) case_run(&cases[i], 4100 + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks)};
    return cmocka_run_group_tests(tests, attention_rigs_open, attention_rigs_close);
}
