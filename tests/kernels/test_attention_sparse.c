/* SPDX-License-Identifier: MIT
 *
 * test_attention_sparse.c: KV_SELECT, and ATTENTION over the tokens of a list, against sums in
 * double over the rows that the cache holds; the same bits for a token alone; equal scores; and
 * what rows that are not listed hold does not reach the result.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/attention_rigs.h"
#include "tests/kernels/kv_scene.h"

enum { SPARSE_HEADS = 5, SPARSE_TOP = 20, SPARSE_TOK = 9 };

static const kv_query sparse_queries[SPARSE_TOK] = {{149, 0}, {148, 0}, {19, 0}, {20, 0}, {-1, 0},
                                                    {0, 1},   {36, 1},  {30, 1}, {99, 0}};

/* What a rig gives for tokens first .. first + n_tok - 1. */
typedef struct sparse_result {
    int32_t list[SPARSE_TOK * SPARSE_TOP];
    float o[SPARSE_TOK * SPARSE_HEADS * 160];
} sparse_result;

/* KV_SELECT, and ATTENTION of the same queries with its list, over one cache. room: entries of the
 * step block, where those of the scene are fewer. */
static void sparse_run(const kv_scene *scene, op_rig *rig, op_state *cache, int32_t room,
                       const float *q, const float *w, int32_t first, int32_t n_tok,
                       sparse_result *out) {
    const int32_t dim = scene->desc.head_dim_k;
    tdm_step_caps caps = kv_scene_caps(scene, n_tok, 0);
    tdm_builder *b;
    tdm_graph *graph;
    tdm_error err = {0};
    tdm_select_params select = {.n_top = SPARSE_TOP};
    tdm_attention_params params = {
        .heads_per_kv = SPARSE_HEADS, .n_head_all = SPARSE_HEADS, .is_causal = 1};
    if (caps.n_entry < room) caps.n_entry = room;
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t step = tdm_build_step(b, &caps);
    int32_t state = tdm_build_state(b, "cache", &scene->desc, op_rig_page_size(rig, &scene->desc),
                                    scene->n_page, &select.kv);
    params.kv = select.kv;
    const int64_t q_ne[] = {dim, SPARSE_HEADS, n_tok, 1}, w_ne[] = {SPARSE_HEADS, n_tok, 1, 1};
    int32_t q_value = tdm_build_input(b, "q", TDM_TYPE_F32, q_ne);
    int32_t w_value = tdm_build_input(b, "w", TDM_TYPE_F32, w_ne);
    int32_t list = tdm_build_kv_select(b, q_value, w_value, step, state, &select);
    int32_t o = tdm_build_attention_sparse(b, q_value, step, state, -1, list, &params, NULL);
    tdm_build_output(b, list, "list");
    tdm_build_output(b, o, "o");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    int32_t *block = kv_step_create(scene, &caps);
    for (int32_t t = 0; t < n_tok; t++)
        kv_step_set_token(block, t, sparse_queries[first + t].pos, sparse_queries[first + t].seq,
                          -1);
    const op_arg args[] = {
        {.value = step, .data = block},
        {.value = state, .state = cache},
        {.value = q_value, .data = (void *)(uintptr_t)(q + first * SPARSE_HEADS * dim)},
        {.value = w_value, .data = (void *)(uintptr_t)(w + first * SPARSE_HEADS)},
        {.value = list, .data = out->list},
        {.value = o, .data = out->o}};
    op_rig_run(rig, graph, args, 6);
    free(block);
    tdm_graph_free(graph);
}

static const double *sparse_row(const kv_scene *s, int32_t seq, int32_t pos) {
    int32_t e = s->first_entry[seq];
    while (pos >= s->entries[e].base_pos + s->entries[e].count) e++;
    int32_t slot = s->entries[e].first + pos - s->entries[e].base_pos;
    return s->k_row +
           (size_t)(s->entries[e].page * s->page_len + slot) * (size_t)s->desc.head_dim_k;
}

static double sparse_dot(const kv_scene *s, const float *q, kv_query query, int32_t pos) {
    const double *k = sparse_row(s, query.seq, pos);
    double sum = 0;
    for (int32_t i = 0; i < s->desc.head_dim_k; i++) sum += (double)q[i] * k[i];
    return sum;
}

/* The scores [160] of the positions that a token sees; returns how many there are. */
static int32_t sparse_scores(const kv_scene *s, const float *q, const float *w, kv_query query,
                             double *score_out) {
    for (int32_t c = 0; c <= query.pos; c++) {
        score_out[c] = 0;
        for (int32_t h = 0; h < SPARSE_HEADS; h++)
            score_out[c] +=
                (double)w[h] * fmax(sparse_dot(s, q + h * s->desc.head_dim_k, query, c), 0);
    }
    return query.pos + 1;
}

/* The list of a token: rising, complete, and of the best scores within `margin`. */
static void sparse_list_judge(const kv_scene *s, const float *q, const float *w, kv_query query,
                              const int32_t *list, double margin) {
    double score[160], worst = INFINITY, best = -INFINITY;
    const int32_t n_seen = sparse_scores(s, q, w, query, score);
    int32_t n = n_seen < SPARSE_TOP ? n_seen : SPARSE_TOP, at = 0;
    for (int32_t c = 0; c < n_seen; c++) {
        bool is_listed = at < n && list[at] == c;
        if (is_listed)
            worst = fmin(worst, score[c]), at++;
        else
            best = fmax(best, score[c]);
    }
    assert_int_equal(at, n);
    for (; at < SPARSE_TOP; at++) assert_int_equal(list[at], -1);
    if (best > worst + margin)
        fail_msg("position %d: %g is left out, %g is listed", query.pos, best, worst);
}

/* Attention over a list, in double. */
static void sparse_attend(const kv_scene *s, const float *q, kv_query query, const int32_t *list,
                          float *o) {
    const int32_t dim = s->desc.head_dim_k, dv = s->desc.head_dim_v;
    for (int32_t h = 0; h < SPARSE_HEADS; h++) {
        double sum[160] = {0}, a[SPARSE_TOP], m = -INFINITY, l = 0;
        int32_t n = 0;
        for (; n < SPARSE_TOP && list[n] >= 0; n++) {
            a[n] = sparse_dot(s, q + h * dim, query, list[n]) / sqrt(dim);
            m = fmax(m, a[n]);
        }
        for (int32_t i = 0; i < n; i++) {
            const double *row = sparse_row(s, query.seq, list[i]), p = exp(a[i] - m);
            l += p;
            for (int32_t d = 0; d < dv; d++) sum[d] += p * row[d];
        }
        for (int32_t d = 0; d < dv; d++) o[h * dv + d] = n > 0 ? (float)(sum[d] / l) : 0;
    }
}

static void sparse_case(tdm_type type, int32_t dim, int32_t dv, int32_t page_len, int32_t room,
                        uint64_t *seed) {
    static const int32_t len[] = {150, 37};
    static sparse_result got, alone, plain;
    static float q[SPARSE_TOK * SPARSE_HEADS * 160], w[SPARSE_TOK * SPARSE_HEADS],
        want[SPARSE_TOK * SPARSE_HEADS * 160];
    const bool is_quantized = tdm_type_get_info(type).is_quantized;
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = type,
                              .type_v = type,
                              .head_dim_k = dim,
                              .head_dim_v = dv,
                              .n_head_kv = 1,
                              .page_len = page_len,
                              .flags = TDM_KV_V_FROM_K | TDM_KV_SPARSE | TDM_KV_ROTATE_K |
                                       TDM_KV_ROTATE_V};
    const size_t n_q = (size_t)(SPARSE_HEADS * dim), n_o = (size_t)(SPARSE_HEADS * dv);
    kv_scene scene;
    kv_scene_init(&scene, &desc, 2, len, 11, seed);
    op_random_fill(seed, q, SPARSE_TOK * n_q, 1);
    op_random_fill(seed, w, SPARSE_TOK * SPARSE_HEADS, 1);
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        if (attention_rigs[i] == NULL) continue;
        op_state *cache = kv_scene_write(&scene, attention_rigs[i], 7);
        if (i == 0) kv_scene_learn(&scene, attention_rigs[i], cache);
        sparse_run(&scene, attention_rigs[i], cache, room, q, w, 0, SPARSE_TOK, &got);
        for (int32_t t = 0; t < SPARSE_TOK; t++) {
            sparse_list_judge(&scene, q + (size_t)t * n_q, w + t * SPARSE_HEADS, sparse_queries[t],
                              got.list + t * SPARSE_TOP, is_quantized && i > 0 ? 1e-2 : 1e-4);
            sparse_attend(&scene, q + (size_t)t * n_q, sparse_queries[t], got.list + t * SPARSE_TOP,
                          want + (size_t)t * n_o);
        }
        double bound = i == 0 ? 1e-12 : strcmp(attention_rig_rows[i].bits, "8") == 0 ? 2e-4 : 1e-6;
        double error = op_nmse(got.o, want, SPARSE_TOK * n_o);
        const bool is_matrix =
            type != TDM_TYPE_F32 && attention_rig_is_listed_matrix(i, SPARSE_TOK);
        if (!is_quantized && bound > 1e-10 && !is_matrix) bound = 1e-10;
        if (!(error <= bound))
            fail_msg("sparse attention: %g > %g: isa %s, %s, %s bits, %s, %d of %d", error, bound,
                     attention_rig_rows[i].isa, attention_rig_rows[i].path,
                     attention_rig_rows[i].bits, tdm_type_name(type), dim, dv);
        if (i == 1) plain = got;
        if (is_matrix && memcmp(plain.o, got.o, SPARSE_TOK * n_o * sizeof *got.o) == 0)
            fail_msg("sparse attention: matrices of f16 give the bits of other kernels");
        for (int32_t t = 0; t < SPARSE_TOK; t += 3) {
            sparse_run(&scene, attention_rigs[i], cache, room, q, w, t, 1, &alone);
            assert_memory_equal(alone.list, got.list + t * SPARSE_TOP,
                                SPARSE_TOP * sizeof *alone.list);
            if (is_matrix) continue;
            assert_memory_equal(alone.o, got.o + (size_t)t * n_o, n_o * sizeof *alone.o);
        }
        op_state_destroy(cache);
    }
    kv_scene_free(&scene);
}

/* KV_SELECT, and ATTENTION over its list: fewer tokens than the list has room for, more, and
 * padding; the same bits for a token alone. With room for a million positions a GPU selects for a
 * few tokens at a time. */
static void test_sparse(void **state) {
    uint64_t seed = 977;
    (void)state;
    sparse_case(TDM_TYPE_F32, 40, 24, 16, 0, &seed);
    sparse_case(TDM_TYPE_F16, 160, 128, 64, 0, &seed);
    sparse_case(TDM_TYPE_Q8_0, 96, 64, 128, 0, &seed);
    sparse_case(TDM_TYPE_Q4_0, 64, 32, 16, 0, &seed);
    sparse_case(TDM_TYPE_F16, 64, 32, 1024, 1024, &seed);
}

/* Of equal scores the lower position counts as the higher one: small integers, whose sums are exact
 * on every device. The kernels are those of a case of test_sparse, so that a driver compiles no
 * others. */
static void test_ties(void **state) {
    enum { DIM = 64, DV = 32, N_Q = SPARSE_HEADS * DIM };
    static const int32_t len[] = {150, 37};
    static float q[SPARSE_TOK * N_Q], w[SPARSE_TOK * SPARSE_HEADS];
    static sparse_result got;
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F16,
                              .type_v = TDM_TYPE_F16,
                              .head_dim_k = DIM,
                              .head_dim_v = DV,
                              .n_head_kv = 1,
                              .page_len = 16,
                              .flags = TDM_KV_V_FROM_K | TDM_KV_SPARSE};
    uint64_t seed = 981;
    kv_scene scene;
    (void)state;
    kv_scene_init(&scene, &desc, 2, len, 5, &seed);
    for (int32_t i = 0; i < scene.n_page * scene.page_len * DIM; i++)
        scene.k[i] = i % DIM < 2 ? (float)(i / DIM * 7 % 3) : 0;
    for (int32_t i = 0; i < SPARSE_TOK * N_Q; i++) q[i] = (float)(i / DIM % 3 - 1);
    for (int32_t i = 0; i < SPARSE_TOK * SPARSE_HEADS; i++) w[i] = (float)(i % 4);
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        if (attention_rigs[i] == NULL) continue;
        op_state *cache = kv_scene_write(&scene, attention_rigs[i], 7);
        if (i == 0) kv_scene_learn(&scene, attention_rigs[i], cache);
        sparse_run(&scene, attention_rigs[i], cache, 0, q, w, 0, SPARSE_TOK, &got);
        for (int32_t t = 0; t < SPARSE_TOK; t++) {
            double score[160];
            const int32_t n_seen =
                sparse_scores(&scene, q + t * N_Q, w + t * SPARSE_HEADS, sparse_queries[t], score);
            int32_t n = 0;
            for (int32_t c = 0; c < n_seen; c++) {
                int32_t n_better = 0;
                for (int32_t other = 0; other < n_seen; other++)
                    n_better += score[other] > score[c] || (score[other] == score[c] && other < c);
                if (n_better < SPARSE_TOP) assert_int_equal(got.list[t * SPARSE_TOP + n++], c);
            }
            for (; n < SPARSE_TOP; n++) assert_int_equal(got.list[t * SPARSE_TOP + n], -1);
        }
        op_state_destroy(cache);
    }
    kv_scene_free(&scene);
}

enum { UNLISTED_TOK = 12 /* at most */, UNLISTED_LISTS = 3, UNLISTED_POS = 149 };

/* ATTENTION of the last position with lists [n_tok] that the caller gives. */
static void listed_run(const kv_scene *scene, op_rig *rig, op_state *cache, int32_t n_tok,
                       const float *q, const int32_t *lists, float *o_out) {
    const int32_t dim = scene->desc.head_dim_k;
    const tdm_step_caps caps = kv_scene_caps(scene, n_tok, 0);
    const int64_t q_ne[] = {dim, SPARSE_HEADS, n_tok, 1}, list_ne[] = {SPARSE_TOP, n_tok, 1, 1};
    tdm_attention_params params = {
        .heads_per_kv = SPARSE_HEADS, .n_head_all = SPARSE_HEADS, .is_causal = 1};
    tdm_builder *b;
    tdm_graph *graph;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t step = tdm_build_step(b, &caps);
    int32_t state = tdm_build_state(b, "cache", &scene->desc, op_rig_page_size(rig, &scene->desc),
                                    scene->n_page, &params.kv);
    int32_t q_value = tdm_build_input(b, "q", TDM_TYPE_F32, q_ne);
    int32_t list = tdm_build_input(b, "list", TDM_TYPE_I32, list_ne);
    int32_t o = tdm_build_attention_sparse(b, q_value, step, state, -1, list, &params, NULL);
    tdm_build_output(b, o, "o");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    int32_t *block = kv_step_create(scene, &caps);
    for (int32_t t = 0; t < n_tok; t++) kv_step_set_token(block, t, UNLISTED_POS, 0, -1);
    const op_arg args[] = {{.value = step, .data = block},
                           {.value = state, .state = cache},
                           {.value = q_value, .data = (void *)(uintptr_t)q},
                           {.value = list, .data = (void *)(uintptr_t)lists},
                           {.value = o, .data = o_out}};
    op_rig_run(rig, graph, args, 5);
    free(block);
    tdm_graph_free(graph);
}

/* Rows at positions that are not listed hold NaN, infinity or too large a number; the listed ones
 * lie between them: neighbours, single ones, the first and the last of a chunk, and one chunk
 * without any. Tokens take the lists in turn. */
static void unlisted_case(tdm_type type, int32_t dim, int32_t dv, float bad, int32_t page_len,
                          int32_t n_tok, uint64_t *seed) {
    enum { MAX_DIM = 96, N_MAX = UNLISTED_TOK * SPARSE_HEADS * MAX_DIM };
    const int32_t n_q = SPARSE_HEADS * dim, n_o = SPARSE_HEADS * dv;
    static const int32_t len[] = {UNLISTED_POS + 1};
    static const int32_t some[UNLISTED_LISTS][SPARSE_TOP] = {
        {0, 2, 3, 4, 7, 15, 16, 18, 31, 33, 63, 64, 66, 127, 128, 130, 147, 149, -1, -1},
        {5, 6, 9, 149, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
        {0, 2, 3, 4, 7, 15, 16, 18, 31, 33, 63, 64, 66, 127, 128, 130, 147, 149, -1, -1}};
    static int32_t lists[UNLISTED_TOK][SPARSE_TOP];
    static float q[N_MAX], want[N_MAX], got[N_MAX];
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = type,
                              .type_v = type,
                              .head_dim_k = dim,
                              .head_dim_v = dv,
                              .n_head_kv = 1,
                              .page_len = page_len,
                              .flags = TDM_KV_V_FROM_K | TDM_KV_SPARSE};
    bool is_listed[UNLISTED_POS + 1] = {false};
    kv_scene scene;
    kv_scene_init(&scene, &desc, 1, len, 0, seed);
    op_random_fill(seed, q, (size_t)(n_tok * n_q), 1);
    for (int32_t t = 0; t < n_tok; t++) memcpy(lists[t], some[t % UNLISTED_LISTS], sizeof *lists);
    for (int32_t t = 0; t < n_tok; t++)
        for (int32_t i = 0; i < SPARSE_TOP && lists[t][i] >= 0; i++) is_listed[lists[t][i]] = true;
    for (int32_t e = 0; e < scene.first_entry[1]; e++) {
        const tdm_page_entry *entry = &scene.entries[e];
        for (int32_t i = 0; i < entry->count; i++) {
            if (is_listed[entry->base_pos + i]) continue;
            const size_t cell = (size_t)(entry->page * scene.page_len + entry->first + i);
            for (int32_t d = i % 3; d < dim; d += 3) scene.k[cell * (size_t)dim + (size_t)d] = bad;
        }
    }
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        if (attention_rigs[i] == NULL || attention_rig_repeats(i, n_tok)) continue;
        op_state *cache = kv_scene_write(&scene, attention_rigs[i], 7);
        if (i == 0) {
            kv_scene_learn(&scene, attention_rigs[i], cache);
            for (int32_t t = 0; t < n_tok; t++)
                sparse_attend(&scene, q + t * n_q, (kv_query){UNLISTED_POS, 0}, lists[t],
                              want + t * n_o);
        }
        listed_run(&scene, attention_rigs[i], cache, n_tok, q, lists[0], got);
        double bound = i == 0 ? 1e-12 : strcmp(attention_rig_rows[i].bits, "8") == 0 ? 2e-4 : 1e-6;
        double error = op_nmse(got, want, (size_t)(n_tok * n_o));
        if (!(error <= bound))
            fail_msg("unlisted rows of %g: %g > %g: isa %s, %s, %s bits, %s, %d tokens",
                     (double)bad, error, bound, attention_rig_rows[i].isa,
                     attention_rig_rows[i].path, attention_rig_rows[i].bits, tdm_type_name(type),
                     n_tok);
        op_state_destroy(cache);
    }
    kv_scene_free(&scene);
}

/* What a row that is not listed holds does not reach the result. Sizes are those of test_sparse. */
static void test_unlisted(void **state) {
    uint64_t seed = 978;
    (void)state;
    for (int32_t n_tok = UNLISTED_LISTS; n_tok <= UNLISTED_TOK; n_tok *= 4) {
        unlisted_case(TDM_TYPE_F32, 40, 24, NAN, 64, n_tok, &seed);
        unlisted_case(TDM_TYPE_F32, 40, 24, INFINITY, 16, n_tok, &seed);
        unlisted_case(TDM_TYPE_F16, 64, 32, NAN, 128, n_tok, &seed);
        unlisted_case(TDM_TYPE_F16, 64, 32, 1e30f, 64, n_tok, &seed);
        unlisted_case(TDM_TYPE_Q8_0, 96, 64, 1e30f, 64, n_tok, &seed);
        unlisted_case(TDM_TYPE_Q4_0, 64, 32, 1e30f, 128, n_tok, &seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_unlisted),
    };
    return cmocka_run_group_tests(tests, attention_rigs_open, attention_rigs_close);
}
