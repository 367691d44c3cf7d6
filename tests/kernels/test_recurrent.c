/* SPDX-License-Identifier: MIT
 *
 * test_recurrent.c: CONV1D, LINEAR_SCAN and BLOCK_POOL against a model in double, on the reference
 * path and on every instruction set. Two steps of three sequences: the second begins from slots
 * that the first wrote: its own last token, an earlier token (a rollback), and another sequence's
 * (a fork).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/op_case.h"

enum { N_TOK = 12, N_SEQ = 3, N_SLOT = 9, ROLLED_BACK = 3, SPARE = 5, FIRST_POS = 2 };

static const int32_t step_len[2][N_SEQ] = {{5, 2, 0}, {3, 4, 2}};
/* Slots that the second step reads, and those that both write behind the last tokens. */
static const int32_t second_read[N_SEQ] = {SPARE, 1, 0};
static const int32_t last_write[2][N_SEQ] = {{0, 1, -1}, {6, 7, 8}};

/* Tokens of the first step that sequence s of the second one continues: n of sequence `of`. */
static int32_t history(int32_t s, int32_t *of) {
    *of = s == 2 ? 0 : s;
    return s == 0 ? ROLLED_BACK : step_len[0][*of];
}

static int32_t first_token(int32_t step, int32_t seq) {
    int32_t first = 0;
    for (int32_t s = 0; s < seq; s++) first += step_len[step][s];
    return first;
}

static void block_fill(const tdm_step_caps *caps, int32_t step, int32_t *block) {
    tdm_step_header h;
    int32_t n = 0, of;
    assert_int_equal(tdm_step_layout(caps, &h, NULL), TDM_OK);
    memset(block, 0xff, (size_t)h.size * sizeof *block);
    for (int32_t s = 0; s < N_SEQ; s++) {
        const int32_t base = FIRST_POS + (step == 1 ? history(s, &of) : 0);
        block[h.first_tok_off + s] = n;
        for (int32_t i = 0; i < step_len[step][s]; i++) block[h.pos_off + n + i] = base + i;
        n += step_len[step][s];
        block[h.rs_read_off + s] = step == 0 ? -1 : second_read[s];
        if (step_len[step][s] > 0) block[h.rs_write_off + n - 1] = last_write[step][s];
    }
    block[h.first_tok_off + N_SEQ] = n;
    if (step == 0) block[h.rs_write_off + ROLLED_BACK - 1] = SPARE;
    h.n_tok = n;
    h.n_seq = N_SEQ;
    memcpy(block, &h, sizeof h);
}

/* ---- A graph with one op, on one rig ---- */

typedef struct trial {
    tdm_step_caps caps;
    tdm_kv_desc desc;
    tdm_builder *b;
    int32_t step, state, kv;
    op_arg args[9];
    float *data[2][9]; /* of both steps, in the order of args; NULL = the same in both */
    int n_arg;
    size_t n_out;
} trial;

/* dk: of a scan; 0 for other ops. */
static void trial_begin(trial *t, int32_t n_unit, int32_t unit_len, int32_t dk, uint32_t flags,
                        op_rig *rig) {
    tdm_error err = {0};
    memset(t, 0, sizeof *t);
    t->caps = (tdm_step_caps){.n_tok = N_TOK, .n_seq = N_SEQ, .n_class = 1, .has_rs = 1};
    t->desc = (tdm_kv_desc){.struct_size = sizeof t->desc,
                            .type_k = TDM_TYPE_F32,
                            .type_v = TDM_TYPE_F32,
                            .head_dim_k = unit_len,
                            .head_dim_v = unit_len,
                            .n_head_kv = n_unit,
                            .page_len = 1,
                            .rope_offset = dk,
                            .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | flags};
    assert_int_equal(tdm_builder_create(&t->b, &err), TDM_OK);
    t->step = tdm_build_step(t->b, &t->caps);
    t->state =
        tdm_build_state(t->b, "state", &t->desc, op_rig_page_size(rig, &t->desc), N_SLOT, &t->kv);
}

/* A random input, which both steps share or not. */
static int32_t trial_input(trial *t, uint64_t *seed, const int64_t *ne, float scale, bool is_same) {
    int32_t value = tdm_build_input(t->b, "x", TDM_TYPE_F32, ne);
    size_t n = (size_t)tdm_shape_count(ne);
    t->data[0][t->n_arg] = op_random_floats(seed, n, scale);
    t->data[1][t->n_arg] = is_same ? NULL : op_random_floats(seed, n, scale);
    t->args[t->n_arg++].value = value;
    return value;
}

static const float *trial_data(const trial *t, int32_t step, int i) {
    return t->data[step][i] != NULL ? t->data[step][i] : t->data[0][i];
}

/* Runs both steps; out[2][n_out]. */
static void trial_run(trial *t, op_rig *rig, int32_t y, float *out[2]) {
    tdm_graph *graph;
    tdm_error err = {0};
    int32_t block[256];
    tdm_build_output(t->b, y, "y");
    if (tdm_builder_finish(t->b, &graph, &err) != TDM_OK) fail_msg("builder: %s", err.message);
    tdm_builder_destroy(t->b);
    op_state *state = op_state_create(rig, op_rig_page_size(rig, &t->desc) * (uint64_t)N_SLOT);
    t->n_out = (size_t)tdm_shape_count(tdm_graph_value(graph, y)->ne);
    for (int32_t step = 0; step < 2; step++) {
        op_arg args[12];
        int n = t->n_arg;
        for (int i = 0; i < n; i++)
            args[i] = (op_arg){.value = t->args[i].value,
                               .data = (void *)(uintptr_t)trial_data(t, step, i)};
        block_fill(&t->caps, step, block);
        out[step] = op_memory(t->n_out * sizeof(float));
        args[n++] = (op_arg){.value = t->step, .data = block};
        args[n++] = (op_arg){.value = t->state, .state = state};
        args[n++] = (op_arg){.value = y, .data = out[step]};
        op_rig_run(rig, graph, args, n);
    }
    op_state_destroy(state);
    tdm_graph_free(graph);
}

static void trial_end(trial *t, float *out[2]) {
    for (int i = 0; i < t->n_arg; i++) {
        free(t->data[0][i]);
        free(t->data[1][i]);
    }
    free(out[0]);
    free(out[1]);
}

/* Compares the tokens in use, and that the others are zeros. */
static void judge(const char *what, const trial *t, float *const out[2], float *const want[2]) {
    for (int step = 0; step < 2; step++) {
        double error = op_nmse(out[step], want[step], t->n_out);
        if (!(error <= 1e-11)) fail_msg("%s, step %d: NMSE %g", what, step, error);
        size_t width = t->n_out / N_TOK, n = (size_t)first_token(step, N_SEQ);
        for (size_t i = n * width; i < t->n_out; i++)
            if (out[step][i] != 0) fail_msg("%s: padding is not zero", what);
    }
}

/* ---- CONV1D ---- */

typedef struct conv_shape {
    int32_t k, n_unit, n_segment, unit_len[3];
    bool has_bias;
    tdm_act act; /* of the sums; devices may fuse it */
} conv_shape;

/* Input of channel c, `back` tokens before token t of a sequence of a step. */
static double conv_input(const trial *t, int32_t n_ch, int32_t step, int32_t seq, int32_t at,
                         int32_t c) {
    if (at >= 0) return (double)trial_data(t, step, 0)[(first_token(step, seq) + at) * n_ch + c];
    int32_t of, n;
    if (step == 0) return 0;
    n = history(seq, &of);
    return n + at < 0 ? 0 : conv_input(t, n_ch, 0, of, n + at, c);
}

static void conv_want(const trial *t, const conv_shape *s, int32_t n_ch, float *want[2]) {
    const float *w = trial_data(t, 0, 1), *bias = s->has_bias ? trial_data(t, 0, 2) : NULL;
    for (int32_t step = 0; step < 2; step++) {
        want[step] = op_memory((size_t)(N_TOK * n_ch) * sizeof(float));
        for (int32_t seq = 0; seq < N_SEQ; seq++)
            for (int32_t at = 0; at < step_len[step][seq]; at++)
                for (int32_t c = 0; c < n_ch; c++) {
                    double sum = bias != NULL ? (double)bias[c] : 0;
                    for (int32_t i = 0; i < s->k; i++)
                        sum += (double)w[c * s->k + i] *
                               conv_input(t, n_ch, step, seq, at - s->k + 1 + i, c);
                    want[step][(first_token(step, seq) + at) * n_ch + c] =
                        (float)(s->act == TDM_ACT_SILU ? sum / (1 + exp(-sum)) : sum);
                }
    }
}

static void conv_check(op_rig *rig, const char *what, const conv_shape *s) {
    trial t;
    uint64_t seed = OP_SEED;
    float *out[2], *want[2];
    tdm_conv_params p = {.n_segment = s->n_segment};
    int32_t unit = 0;
    for (int i = 0; i < s->n_segment; i++) unit += p.unit_len[i] = s->unit_len[i];
    int32_t n_ch = unit * s->n_unit;
    trial_begin(&t, s->n_unit, unit * (s->k - 1), 0, 0, rig);
    p.kv = t.kv;
    int32_t x = trial_input(&t, &seed, OP_SHAPE(n_ch, N_TOK, 1, 1), 1, false);
    int32_t w = trial_input(&t, &seed, OP_SHAPE(s->k, n_ch, 1, 1), 1, true);
    int32_t bias = s->has_bias ? trial_input(&t, &seed, OP_SHAPE(n_ch, 1, 1, 1), 1, true) : -1;
    int32_t y = tdm_build_conv1d(t.b, x, w, bias, t.step, t.state, &p);
    if (s->act != TDM_ACT_NONE) y = tdm_build_act(t.b, y, s->act);
    trial_run(&t, rig, y, out);
    conv_want(&t, s, n_ch, want);
    judge(what, &t, out, want);
    free(want[0]);
    free(want[1]);
    trial_end(&t, out);
}

/* Calls check for the reference and each instruction set with one and three threads. */
static void each_rig(void (*check)(op_rig *rig, const char *what)) {
    check(op_reference, "reference");
    for (int i = 0; i < OP_N_ISA; i++)
        for (int n = 0; n < OP_N_COUNT; n++)
            if (op_fast[i][n] != NULL) check(op_fast[i][n], op_isa_names[i]);
}

static void conv_all(op_rig *rig, const char *what) {
    static const conv_shape shapes[] = {
        {4, 3, 3, {5, 5, 10}, false, TDM_ACT_SILU}, /* q, k and v of heads */
        {2, 7, 1, {1}, true, TDM_ACT_NONE},         /* a token back */
        {3, 5, 2, {33, 2}, true, TDM_ACT_SILU},     /* more than a block */
        {6, 1, 1, {140}, false, TDM_ACT_NONE},      /* more inputs than tokens of a step */
    };
    for (size_t i = 0; i < OP_COUNT_OF(shapes); i++) conv_check(rig, what, &shapes[i]);
}

static void test_conv1d(void **state) {
    (void)state;
    each_rig(conv_all);
}

/* ---- LINEAR_SCAN ---- */

typedef struct scan_shape {
    int32_t dk, dv, n_k, per_k, in_unit; /* heads of v for each of k, and in a unit of the state */
    bool is_tiled, has_vector_g, has_a, has_beta, is_g_constant;
    float scale;
    bool has_erase;
} scan_shape;

enum { Q, K, V, G, A, BETA };

/* One token of head h: S [dv][dk] and its result. */
static void scan_token(const trial *t, const scan_shape *s, int32_t step, int32_t token, int32_t h,
                       double *matrix, float *o) {
    const int32_t n_v = s->n_k * s->per_k, hk = s->is_tiled ? h % s->n_k : h / s->per_k;
    const int32_t a_at = A, beta_at = s->has_a ? BETA : A, erase_at = beta_at,
                  ng = s->has_vector_g ? s->dk : 1;
    const float *q = trial_data(t, step, Q) + (token * s->n_k + hk) * s->dk;
    const float *k = trial_data(t, step, K) + (token * s->n_k + hk) * s->dk;
    const float *v = trial_data(t, step, V) + (token * n_v + h) * s->dv;
    const float *g = trial_data(t, step, G) + ((s->is_g_constant ? 0 : token) * n_v + h) * ng;
    const float *a = s->has_a ? trial_data(t, step, a_at) + h * s->dk : NULL;
    double beta = s->has_beta ? (double)trial_data(t, step, beta_at)[token * n_v + h] : 0;
    const float *pair[2] = {NULL};
    for (int i = 0; i < 2 && s->has_erase; i++)
        pair[i] = trial_data(t, step, erase_at + i) + (token * s->n_k + hk) * s->dk;
    for (int32_t j = 0; j < s->dv; j++) {
        double *row = matrix + j * s->dk, held = 0, erased = 0, sum = 0;
        for (int32_t i = 0; i < s->dk; i++) {
            if (s->has_erase) erased += (double)pair[0][i] * row[i];
            row[i] *= exp((double)g[ng > 1 ? i : 0] * (a != NULL ? (double)a[i] : 1));
            held += (double)k[i] * row[i];
        }
        double u = s->has_beta ? beta * ((double)v[j] - held) : (double)v[j];
        for (int32_t i = 0; i < s->dk; i++) {
            row[i] += (double)k[i] * u;
            if (s->has_erase) row[i] += (double)pair[1][i] * erased;
            sum += (double)q[i] * row[i];
        }
        if (o != NULL) o[j] = (float)(sum * (s->scale != 0 ? (double)s->scale : 1));
    }
}

static void scan_want(const trial *t, const scan_shape *s, float *want[2]) {
    const int32_t n_v = s->n_k * s->per_k;
    double *matrix = op_memory((size_t)(s->dk * s->dv) * sizeof *matrix);
    for (int32_t step = 0; step < 2; step++) {
        want[step] = op_memory((size_t)(N_TOK * n_v * s->dv) * sizeof(float));
        for (int32_t seq = 0; seq < N_SEQ; seq++)
            for (int32_t h = 0; h < n_v; h++) {
                int32_t of, n = step == 1 ? history(seq, &of) : 0;
                memset(matrix, 0, (size_t)(s->dk * s->dv) * sizeof *matrix);
                for (int32_t i = 0; i < n; i++)
                    scan_token(t, s, 0, first_token(0, of) + i, h, matrix, NULL);
                for (int32_t i = 0; i < step_len[step][seq]; i++) {
                    int32_t token = first_token(step, seq) + i;
                    scan_token(t, s, step, token, h, matrix,
                               want[step] + (token * n_v + h) * s->dv);
                }
            }
    }
    free(matrix);
}

static void scan_check(op_rig *rig, const char *what, const scan_shape *s) {
    trial t;
    uint64_t seed = OP_SEED;
    float *out[2], *want[2];
    const int32_t n_v = s->n_k * s->per_k, ng = s->has_vector_g ? s->dk : 1;
    const int32_t n_unit = s->is_tiled ? s->n_k : n_v / s->in_unit;
    tdm_scan_sources src = {-1, -1, -1, -1, -1, -1};
    trial_begin(&t, n_unit, n_v / n_unit * s->dk * s->dv, s->dk, s->has_erase ? TDM_KV_ERASED : 0,
                rig);
    tdm_scan_params p = {
        .kv = t.kv, .heads_per_k = s->per_k, .is_tiled = s->is_tiled, .scale = s->scale};
    src.q = trial_input(&t, &seed, OP_SHAPE(s->dk, s->n_k, N_TOK, 1), 1, false);
    src.k = trial_input(&t, &seed, OP_SHAPE(s->dk, s->n_k, N_TOK, 1), 0.5f, false);
    src.v = trial_input(&t, &seed, OP_SHAPE(s->dv, n_v, N_TOK, 1), 1, false);
    src.g = trial_input(&t, &seed, OP_SHAPE(ng, n_v, s->is_g_constant ? 1 : N_TOK, 1), 0.7f,
                        s->is_g_constant);
    if (s->has_a) src.a = trial_input(&t, &seed, OP_SHAPE(s->dk, n_v, 1, 1), 0.8f, true);
    if (s->has_beta) src.beta = trial_input(&t, &seed, OP_SHAPE(1, n_v, N_TOK, 1), 1, false);
    int32_t pair[2], o;
    for (int i = 0; i < 2 && s->has_erase; i++)
        pair[i] = trial_input(&t, &seed, OP_SHAPE(s->dk, s->n_k, N_TOK, 1), 0.3f, false);
    o = s->has_erase
            ? tdm_build_linear_scan_erased(t.b, &src, pair[0], pair[1], t.step, t.state, &p)
            : tdm_build_linear_scan(t.b, &src, t.step, t.state, &p);
    trial_run(&t, rig, o, out);
    scan_want(&t, s, want);
    judge(what, &t, out, want);
    free(want[0]);
    free(want[1]);
    trial_end(&t, out);
}

static void scan_all(op_rig *rig, const char *what) {
    static const scan_shape shapes[] = {
        {16, 16, 2, 3, 1, false, false, false, true, false, 0.25f, false}, /* gated delta rule */
        {24, 40, 3, 2, 0, true, false, false, true, false, 0.2f, false},   /* the same, tiled */
        {16, 19, 2, 2, 2, false, true, false, true, false, 0, false},    /* a decay for each key */
        {33, 5, 1, 6, 2, false, false, false, false, false, 0, false},   /* state space, a group */
        {5, 1, 1, 12, 4, false, false, true, false, false, 0, false},    /* state space, channels */
        {8, 70, 2, 1, 1, false, false, false, false, true, 0, false},    /* a constant decay */
        {16, 16, 3, 1, 1, false, true, false, false, false, 0, true},    /* erase and write */
        {33, 37, 2, 2, 4, false, true, false, false, false, 0.5f, true}, /* heads share them */
        {5, 1, 2, 3, 0, true, false, true, false, false, 0, true},       /* tiled, factors */
        {64, 6, 1, 1, 1, false, false, false, false, true, 0, true},     /* a constant decay */
    };
    for (size_t i = 0; i < OP_COUNT_OF(shapes); i++) scan_check(rig, what, &shapes[i]);
}

static void test_linear_scan(void **state) {
    (void)state;
    each_rig(scan_all);
}

/* ---- BLOCK_POOL ---- */

typedef struct pool_shape {
    int32_t n, n_part, block_len;
    float scale;  /* of the scores */
    bool is_mean; /* one score for all, and one row of bias */
} pool_shape;

/* Where the numbers of a token are: in the block of x of its step. */
typedef struct pool_token {
    int32_t step, token;
} pool_token;

/* The tokens that a sequence of the step has up to token `at`, the first of them at FIRST_POS. */
static int32_t pool_tokens(int32_t step, int32_t seq, int32_t at, pool_token *out) {
    int32_t n = 0, of = seq, earlier = step == 1 ? history(seq, &of) : 0;
    for (; n < earlier; n++) out[n] = (pool_token){0, first_token(0, of) + n};
    for (int32_t i = 0; i <= at; i++) out[n++] = (pool_token){step, first_token(step, seq) + i};
    return n;
}

static double pool_mean(const trial *t, const pool_shape *s, const pool_token *tokens, int32_t n,
                        int32_t c) {
    enum { X, SCORE, BIAS };
    const int32_t n_row = s->n * s->n_part, block = (FIRST_POS + n - 1) / s->block_len;
    double weight = 0, sum = 0, highest = -INFINITY;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n; i++) {
            const int32_t pos = FIRST_POS + i, behind = block - pos / s->block_len;
            const int32_t row = behind == 0 ? n_row - s->n + c : c;
            const int32_t at = tokens[i].token * n_row + row, at_score = s->is_mean ? 0 : at;
            const int32_t at_bias =
                pos % s->block_len * (s->is_mean ? 1 : n_row) + (s->is_mean ? 0 : row);
            if (behind >= s->n_part) continue;
            const double e = (double)trial_data(t, tokens[i].step, SCORE)[at_score] +
                             (double)trial_data(t, 0, BIAS)[at_bias];
            if (pass == 0) highest = fmax(highest, e);
            if (pass == 0) continue;
            weight += exp(e - highest);
            sum += exp(e - highest) * (double)trial_data(t, tokens[i].step, X)[at];
        }
    return sum / weight;
}

static void pool_check(op_rig *rig, const char *what, const pool_shape *s) {
    trial t;
    uint64_t seed = OP_SEED;
    float *out[2], *want[2];
    pool_token tokens[2 * N_TOK];
    const int32_t n_row = s->n * s->n_part;
    tdm_pool_params p = {.n_part = s->n_part};
    trial_begin(&t, 1, 3 * n_row, 0, TDM_KV_POOLED, rig);
    p.kv = t.kv;
    int32_t x = trial_input(&t, &seed, OP_SHAPE(n_row, N_TOK, 1, 1), 1, false);
    const int64_t n_each = s->is_mean ? 1 : n_row;
    int32_t score =
        trial_input(&t, &seed, OP_SHAPE(n_each, s->is_mean ? 1 : N_TOK, 1, 1), s->scale, false);
    int32_t bias = trial_input(&t, &seed, OP_SHAPE(n_each, s->block_len, 1, 1), 1, true);
    trial_run(&t, rig, tdm_build_block_pool(t.b, x, score, bias, t.step, t.state, &p), out);
    for (int32_t step = 0; step < 2; step++) {
        want[step] = op_memory((size_t)(N_TOK * s->n) * sizeof(float));
        for (int32_t seq = 0; seq < N_SEQ; seq++)
            for (int32_t at = 0; at < step_len[step][seq]; at++) {
                const int32_t n = pool_tokens(step, seq, at, tokens);
                for (int32_t c = 0; c < s->n; c++)
                    want[step][(first_token(step, seq) + at) * s->n + c] =
                        (float)pool_mean(&t, s, tokens, n, c);
            }
    }
    judge(what, &t, out, want);
    free(want[0]);
    free(want[1]);
    trial_end(&t, out);
}

static void pool_all(op_rig *rig, const char *what) {
    static const pool_shape shapes[] = {
        {.n = 5, .n_part = 1, .block_len = 4, .scale = 1},
        {.n = 16, .n_part = 2, .block_len = 4, .scale = 2},
        {.n = 130, .n_part = 2, .block_len = 3, .scale = 9},
        {.n = 70, .n_part = 1, .block_len = 128, .scale = 3},
        {.n = 64, .n_part = 2, .block_len = 1, .scale = 1},
        {.n = 33, .n_part = 2, .block_len = 2, .scale = 70},
        {.n = 36, .n_part = 1, .block_len = 4, .is_mean = true},
        {.n = 9, .n_part = 2, .block_len = 3, .scale = 1, .is_mean = true},
    };
    for (size_t i = 0; i < OP_COUNT_OF(shapes); i++) pool_check(rig, what, &shapes[i]);
}

static void test_block_pool(void **state) {
    (void)state;
    each_rig(pool_all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv1d),
        cmocka_unit_test(test_linear_scan),
        cmocka_unit_test(test_block_pool),
    };
    return cmocka_run_group_tests(tests, op_rigs_open, op_rigs_close);
}
