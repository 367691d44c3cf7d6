/* SPDX-License-Identifier: MIT
 *
 * test_attention_strided.c: ATTENTION over a strided cache against what kv_scene.h computes over an
 * ordinary cache with a token for each row. All devices of attention_rigs.h, strides and pages of
 * several lengths, entries that begin anywhere in a run and in a page.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/attention_rigs.h"
#include "tests/kernels/kv_scene.h"

typedef struct strided_case {
    int32_t stride, page_len;
    int32_t n_row[2]; /* of each sequence */
    int32_t n_tok;
    tdm_type type_k, type_v;
    int32_t dim_k, dim_v, n_head_kv, heads_per_kv;
    uint32_t flags;
    bool has_sink, has_ml;
} strided_case;

/* The tokens of the strided cache: `rows` has a token for each of its rows. */
typedef struct scenes {
    kv_scene rows, tokens;
} scenes;

static void entries_add(kv_scene *s, int32_t seq, int32_t n_tok) {
    s->first_entry[seq + 1] = s->first_entry[seq];
    for (int32_t at = 0; at < n_tok; s->n_page++) {
        const int32_t first = s->n_page % 3 == 1 ? s->page_len / 4 : 0;
        int32_t count = s->page_len - first - (s->n_page % 4 == 3 && s->page_len > 1);
        if (count > n_tok - at) count = n_tok - at;
        assert_in_range(s->first_entry[seq + 1], 0, SCENE_MAX_ENTRY - 1);
        /* Pages in falling order of the first, then in rising order. */
        s->entries[s->first_entry[seq + 1]++] = (tdm_page_entry){s->n_page ^ 1, first, count, at};
        at += count;
    }
}

static void scenes_init(scenes *s, const strided_case *c, uint64_t *seed) {
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = c->type_k,
                        .type_v = c->type_v,
                        .head_dim_k = c->dim_k,
                        .head_dim_v = c->dim_v,
                        .n_head_kv = c->n_head_kv,
                        .page_len = 16,
                        .flags = c->flags};
    kv_scene_init(&s->rows, &desc, 2, c->n_row, 0, seed);
    s->tokens = (kv_scene){.desc = desc, .page_len = c->page_len, .n_seq = 2};
    s->tokens.desc.page_len = c->page_len;
    s->tokens.desc.stride = c->stride;
    s->tokens.desc.flags |= TDM_KV_STRIDED;
    for (int32_t q = 0; q < 2; q++) {
        s->tokens.len[q] = c->n_row[q] * c->stride + c->stride - 1;
        entries_add(&s->tokens, q, s->tokens.len[q]);
    }
    s->tokens.n_page += s->tokens.n_page % 2;
}

static int32_t cell_of(const kv_scene *s, int32_t seq, int32_t pos) {
    int32_t e = s->first_entry[seq];
    while (pos >= s->entries[e].base_pos + s->entries[e].count) e++;
    return s->entries[e].page * s->page_len + s->entries[e].first + pos - s->entries[e].base_pos;
}

/* Three tokens for each row: the one before the last of its run and the one behind it have other
 * numbers, which KV_WRITE skips. */
static op_state *tokens_write(const scenes *s, op_rig *rig) {
    enum { BATCH = 12 };
    const kv_scene *t = &s->tokens;
    const tdm_kv_desc *d = &t->desc;
    const uint64_t page_size = op_rig_page_size(rig, d);
    const bool has_v = (d->flags & TDM_KV_V_FROM_K) == 0;
    const tdm_step_caps caps = kv_scene_caps(t, BATCH, 0);
    const size_t k_len = (size_t)(d->head_dim_k * d->n_head_kv),
                 v_len = (size_t)(d->head_dim_v * d->n_head_kv);
    op_state *state = op_state_create(rig, page_size * (uint64_t)t->n_page);
    tdm_builder *b;
    tdm_graph *graph;
    tdm_error err = {0};
    int32_t kv;
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    const int32_t step_value = tdm_build_step(b, &caps);
    const int32_t state_value = tdm_build_state(b, "cache", d, page_size, t->n_page, &kv);
    const int64_t k_ne[4] = {d->head_dim_k, d->n_head_kv, BATCH, 1},
                  v_ne[4] = {d->head_dim_v, d->n_head_kv, BATCH, 1};
    const int32_t k = tdm_build_input(b, "k", TDM_TYPE_F32, k_ne);
    const int32_t v = has_v ? tdm_build_input(b, "v", TDM_TYPE_F32, v_ne) : -1;
    tdm_build_kv_write(b, k, v, step_value, state_value, kv);
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("builder: %s", err.message);
    tdm_builder_destroy(b);
    int32_t *step = kv_step_create(t, &caps);
    float *k_in = calloc(k_len * BATCH, sizeof *k_in), *v_in = calloc(v_len * BATCH, sizeof *v_in);
    const int32_t n_row[2] = {s->rows.len[0], s->rows.len[1]};
    for (int32_t i = 0; i < 3 * (n_row[0] + n_row[1]);) {
        int32_t n = 0;
        for (; n < BATCH && i < 3 * (n_row[0] + n_row[1]); n++, i++) {
            const int32_t seq = i / 3 >= n_row[0], row = i / 3 - seq * n_row[0];
            /* The last of the run first, so that a later one would overwrite its row. */
            const int32_t pos = (row + 1) * t->desc.stride - 1 + (i % 3 == 1 ? -1 : i % 3 == 2);
            const size_t from = (size_t)cell_of(&s->rows, seq, row);
            for (size_t x = 0; x < k_len; x++)
                k_in[(size_t)n * k_len + x] = i % 3 == 0 ? s->rows.k[from * k_len + x] : 99;
            for (size_t x = 0; x < v_len; x++)
                v_in[(size_t)n * v_len + x] = i % 3 == 0 ? s->rows.v[from * v_len + x] : 99;
            kv_step_set_token(step, n, pos, seq, pos < t->len[seq] ? cell_of(t, seq, pos) : -1);
        }
        for (; n < BATCH; n++) kv_step_set_token(step, n, -1, 0, -1);
        const op_arg args[] = {{.value = step_value, .data = step},
                               {.value = state_value, .state = state},
                               {.value = k, .data = k_in},
                               {.value = v, .data = v_in}};
        op_rig_run(rig, graph, args, has_v ? 4 : 3);
    }
    free(step), free(k_in), free(v_in);
    tdm_graph_free(graph);
    return state;
}

static double bound_of(const strided_case *c, int rig) {
    const bool is_quantized =
        tdm_type_get_info(c->type_k).is_quantized || tdm_type_get_info(c->type_v).is_quantized;
    if (rig == 0) return 1e-12;
    if (attention_rig_is_matrix(rig, c->n_tok)) return 1e-6;
    if (!is_quantized) return rig == 1 ? 1e-10 : 1e-11;
    return strcmp(attention_rig_rows[rig].bits, "8") == 0 ? 2e-4 : 1e-6;
}

static bool is_half(tdm_type type) {
    return type == TDM_TYPE_F16 || tdm_type_get_info(type).is_quantized;
}

/* Compares m + log(l), and what there is nothing of. */
static double ml_error(const float *got, const float *want, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double g = (double)got[2 * i] + log((double)got[2 * i + 1]);
        const double w = (double)want[2 * i] + log((double)want[2 * i + 1]);
        if (want[2 * i] == -INFINITY && (got[2 * i] != -INFINITY || got[2 * i + 1] != 0))
            return INFINITY;
        if (want[2 * i] != -INFINITY) worst = fmax(worst, isnan(g) ? INFINITY : fabs(g - w));
    }
    return worst;
}

/* Tokens at all kinds of places of a run: kv_query of the tokens, and of the rows that they see. */
static void queries_make(const strided_case *c, const scenes *s, kv_query *tokens, kv_query *rows) {
    const int32_t stride = c->stride;
    for (int32_t t = 0; t < c->n_tok; t++) {
        const int32_t seq = c->n_tok > 1 && t >= c->n_tok / 2, len = s->tokens.len[seq];
        const int32_t some[] = {len - 1,    len - stride, len - stride - 1, 0,
                                stride - 1, stride,       len / 2,          2 * stride - 2};
        int32_t pos = some[t % 8];
        if (c->n_tok > 8 && t % 8 == 7) pos = -1;
        tokens[t] = (kv_query){pos, seq};
        rows[t] = (kv_query){pos < 0 ? -1 : (pos + 1) / stride - 1, seq};
    }
}

static void run_case(const strided_case *c, uint64_t *seed) {
    scenes s;
    scenes_init(&s, c, seed);
    const int32_t n_head = c->n_head_kv * c->heads_per_kv;
    const tdm_attention_params params = {
        .heads_per_kv = c->heads_per_kv, .n_head_all = n_head, .is_causal = 1};
    const size_t n_row = (size_t)(n_head * c->n_tok), n_o = n_row * (size_t)c->dim_v;
    float *q = calloc(n_row * (size_t)c->dim_k, sizeof *q),
          *sink = calloc((size_t)n_head, sizeof *q);
    float *got = calloc(n_o, sizeof *got), *want = calloc(n_o, sizeof *want);
    float *first = calloc(n_o, sizeof *first); /* of the rig before */
    float *ml = calloc(2 * n_row, sizeof *ml), *ml_want = calloc(2 * n_row, sizeof *ml);
    kv_query *tokens = calloc((size_t)c->n_tok, sizeof *tokens),
             *rows = calloc((size_t)c->n_tok, sizeof *rows);
    op_random_fill(seed, q, n_row * (size_t)c->dim_k, 1);
    op_random_fill(seed, sink, (size_t)n_head, 4);
    queries_make(c, &s, tokens, rows);
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        op_rig *rig = attention_rigs[i];
        if (rig == NULL || attention_rig_repeats(i, c->n_tok)) continue;
        if (i == 0) {
            op_state *plain = kv_scene_write(&s.rows, rig, 7);
            kv_scene_learn(&s.rows, rig, plain);
            kv_scene_attend(&s.rows, &params, n_head, q, c->has_sink ? sink : NULL, rows, c->n_tok,
                            want, ml_want);
            op_state_destroy(plain);
        }
        op_state *state = tokens_write(&s, rig);
        kv_scene_run(&s.tokens, rig, state, &params, n_head, q, c->has_sink ? sink : NULL, tokens,
                     c->n_tok, got, c->has_ml ? ml : NULL);
        const double error = op_nmse(got, want, n_o),
                     m = c->has_ml ? ml_error(ml, ml_want, n_row) : 0;
        if (!(error <= bound_of(c, i)) || !(m <= 0.08))
            fail_msg("stride %d, pages of %d, %d tokens, k %s, isa %s, path %s, %s bits: NMSE %g, "
                     "(m, l) %g",
                     (int)c->stride, (int)c->page_len, (int)c->n_tok, tdm_type_name(c->type_k),
                     attention_rig_rows[i].isa, attention_rig_rows[i].path,
                     attention_rig_rows[i].bits, error, m);
        /* Emulated cards compute only some of the cases with matrices. */
        const bool has_all = getenv("OP_CASE_MATRIX") != NULL;
        if (has_all && attention_rig_is_matrix(i, c->n_tok) && is_half(c->type_k) &&
            is_half(c->type_v) && memcmp(first, got, n_o * sizeof *got) == 0)
            fail_msg("stride %d: matrices of f16 give the bits of other kernels", (int)c->stride);
        memcpy(first, got, n_o * sizeof *got);
        op_state_destroy(state);
    }
    free(first), free(q), free(sink), free(got), free(want), free(ml), free(ml_want), free(tokens),
        free(rows);
    kv_scene_free(&s.rows);
}

static void test_strides(void **state) {
    static const tdm_type f32 = TDM_TYPE_F32, f16 = TDM_TYPE_F16, q8 = TDM_TYPE_Q8_0;
    const uint32_t latent = TDM_KV_V_FROM_K;
    /* Kernels of long rows take a software driver seconds to compile; test_attention has some. */
    const bool is_short = attention_rigs_compile();
    const int32_t long_k = is_short ? 96 : 576, long_v = is_short ? 64 : 512;
    const strided_case cases[] = {
        {2, 16, {37, 5}, 17, f32, f32, 64, 64, 2, 3, 0, false, true},
        {4, 16, {70, 33}, 17, f16, f16, 64, 48, 1, 4, 0, true, true},
        {4, 64, {150, 3}, 1, f16, f16, 128, 128, 2, 2, 0, false, false},
        {3, 32, {40, 21}, 8, q8, q8, 64, 64, 2, 2, 0, true, true},
        {16, 8, {19, 6}, 9, q8, TDM_TYPE_Q4_0, 96, 64, 1, 2, 0, false, true},
        {128, 64, {9, 4}, 9, f32, f32, 80, 80, 1, 3, latent, true, true},
        {128, 256, {20, 2}, 17, f16, f16, 96, 64, 1, 8, latent, true, false},
        {4, 256, {200, 64}, 33, q8, q8, long_k, long_v, 1, 16, latent, false, true},
        {5, 1, {3, 2}, 8, f32, f32, 8, 8, 2, 1, 0, false, true},
    };
    uint64_t seed = 20261128;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i], &seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_strides)};
    return cmocka_run_group_tests(tests, attention_rigs_open, attention_rigs_close);
}
