/* SPDX-License-Identifier: MIT
 *
 * test_attention.c: ATTENTION of all cached tokens, and LSE_MERGE. Every kernel (type of K, type of
 * V, ISA) against sums in double over the rows that the cache holds, over odd shapes, shared and
 * partial pages, windows, sinks, softcap, ALiBi, biases by distance, temperatures, padding; the
 * same bits for any number of threads, whatever tokens attend beside one, and whatever a token that
 * is not seen holds.
 *
 * Bounds. The reference path computes in double: 1e-12. The fast path rounds queries and weights to
 * 15 bits where a type is quantised: 1e-6, and sums in f32 elsewhere: 1e-11. With activation-bits =
 * 8 queries have 8 bits where K is quantised: 2e-4 (4.1e-5 was seen), m and l 8e-2. That a bound
 * can fail is shown by test_bound_is_sharp, that there are such queries by test_query_bits.
 */
#include <fnmatch.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/attention_rigs.h"
#include "tests/kernels/kv_scene.h"

/* A case: all that varies. */
typedef struct attention_case {
    tdm_type type_k, type_v;
    int32_t dim_k, dim_v, n_head_kv, heads_per_kv, n_tok, page_len;
    uint32_t flags;
    int32_t rope_offset, n_rot;
    int32_t n_seq, len[SCENE_MAX_SEQ], shared;
    int32_t behind; /* slots that the first page of a sequence leaves out */
    int32_t window, window_kind, temperature_length;
    int32_t n_distance; /* of the bias; 0 = none */
    bool is_causal, has_sink, has_padding, has_ml;
    bool
        needs_matrix; /* a rig with matrices of f16 must compute it with them, not as one without */
    float softcap, alibi, scale, q_scale;
} attention_case;

static double worst_q8; /* of what rigs with queries of 8 bits computed */

static bool is_exact(const attention_case *c) {
    return !tdm_type_get_info(c->type_k).is_quantized && !tdm_type_get_info(c->type_v).is_quantized;
}

/* Whether a rig takes scores of the case from queries of 8 bits. */
static bool is_q8(const attention_case *c, int rig) {
    return strcmp(attention_rig_rows[rig].bits, "8") == 0 &&
           tdm_type_get_info(c->type_k).is_quantized;
}

/* Whether the rig rounds queries, K, p and V of the case to f16. */
static bool is_matrix(const attention_case *c, int rig) {
    return attention_rig_is_matrix(rig, c->n_tok);
}

static void check(const char *what, int rig, const attention_case *c, double got, double bound) {
    if (got <= bound) return;
    fail_msg(
        "%s: %g > %g: isa %s, path %s, %s bits, %d threads, k %s, v %s, dim %d %d, heads %d x %d, "
        "%d tokens, pages of %d, window %d of kind %d, softcap %g, ALiBi %g, "
        "temperature by %d, bias of %d, sink %d, flags %u, lengths %d %d %d",
        what, got, bound, attention_rig_rows[rig].isa, attention_rig_rows[rig].path,
        attention_rig_rows[rig].bits, attention_rig_rows[rig].n_thread, tdm_type_name(c->type_k),
        tdm_type_name(c->type_v), c->dim_k, c->dim_v, c->n_head_kv, c->heads_per_kv, c->n_tok,
        c->page_len, c->window, c->window_kind, (double)c->softcap, (double)c->alibi,
        c->temperature_length, c->n_distance, c->has_sink, c->flags, c->len[0], c->len[1],
        c->len[2]);
}

/* The largest difference of (m, l) from `want`: absolute in m, relative in l. */
static double ml_error(const float *got, const float *want, int32_t n) {
    double worst = 0;
    for (int32_t i = 0; i < n; i++) {
        double m = want[2 * i] == got[2 * i] ? 0 : fabs((double)got[2 * i] - want[2 * i]);
        double l = fabs((double)got[2 * i + 1] - want[2 * i + 1]) /
                   (want[2 * i + 1] != 0 ? want[2 * i + 1] : 1);
        if (want[2 * i + 1] == got[2 * i + 1]) l = 0;
        worst = fmax(worst, fmax(isnan(m) ? INFINITY : m, isnan(l) ? INFINITY : l));
    }
    return worst;
}

/* Tokens of a batch on their own, the first, one in the middle and the last: the same bits. */
static void check_alone(const attention_case *c, int rig, const kv_scene *scene, op_state *cache,
                        const tdm_attention_params *params, const float *q, const float *sink,
                        const kv_bias *bias, const kv_query *queries, const float *o,
                        const float *ml) {
    int32_t n_head = c->n_head_kv * c->heads_per_kv, last = c->n_tok - 1;
    const int32_t tokens[] = {0, last / 2, last};
    size_t n_o = (size_t)(c->dim_v * n_head), n_ml = 2 * (size_t)n_head;
    float *alone = calloc(n_o, sizeof *alone), *ml_alone = calloc(n_ml, sizeof *ml_alone);
    for (int i = 0; i < 3 && c->n_tok > 1; i++) {
        size_t t = (size_t)tokens[i];
        kv_scene_run_biased(scene, attention_rigs[rig], cache, params, n_head,
                            q + t * (size_t)(c->dim_k * n_head), sink, bias, i == 1, queries + t, 1,
                            alone, c->has_ml ? ml_alone : NULL);
        if (memcmp(alone, o + t * n_o, n_o * sizeof *o) != 0 ||
            (c->has_ml && memcmp(ml_alone, ml + t * n_ml, n_ml * sizeof *ml) != 0))
            check("other tokens of the batch change a result", rig, c, 1, 0);
    }
    free(alone), free(ml_alone);
}

static void run_case(const attention_case *c, uint64_t *seed, double bound_fast, double bound_ml) {
    const double bound_q8 = bound_fast > 2e-4 ? bound_fast : 2e-4, bound_ml_q8 = 8e-2;
    kv_scene scene;
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = c->type_k,
                        .type_v = c->type_v,
                        .head_dim_k = c->dim_k,
                        .head_dim_v = c->dim_v,
                        .n_head_kv = c->n_head_kv,
                        .page_len = c->page_len,
                        .rope_offset = c->rope_offset,
                        .n_rot = c->n_rot,
                        .flags = c->flags | (c->n_distance > 0 ? TDM_KV_BIASED : 0)};
    kv_scene_init_behind(&scene, &desc, c->n_seq, c->len, c->shared, c->behind, seed);
    /* A node that begins inside the heads of a whole model: KV heads from 2 on. */
    int32_t n_head = c->n_head_kv * c->heads_per_kv, first_kv = 2;
    tdm_attention_params params = {.first_head = first_kv * c->heads_per_kv,
                                   .first_head_kv = first_kv,
                                   .heads_per_kv = c->heads_per_kv,
                                   .n_head_all = (first_kv + c->n_head_kv + 1) * c->heads_per_kv,
                                   .is_causal = c->is_causal,
                                   .window = c->window,
                                   .window_kind = c->window_kind,
                                   .alibi_max_bias = c->alibi,
                                   .temperature_scale = c->temperature_length > 0 ? 0.3f : 0,
                                   .temperature_length = c->temperature_length,
                                   .temperature_offset = c->temperature_length / 3,
                                   .scale = c->scale,
                                   .softcap = c->softcap};
    size_t n_o = (size_t)c->dim_v * (size_t)n_head * (size_t)c->n_tok;
    size_t n_q = (size_t)c->dim_k * (size_t)n_head * (size_t)c->n_tok;
    size_t n_ml = 2 * (size_t)n_head * (size_t)c->n_tok;
    float *q = calloc(n_q, sizeof *q), *want = calloc(n_o, sizeof *want);
    float *got = calloc(n_o, sizeof *got), *first = calloc(n_o, sizeof *first);
    float *ml = calloc(n_ml, sizeof *ml), *ml_want = calloc(n_ml, sizeof *ml_want);
    float *sink = calloc((size_t)n_head, sizeof *sink);
    kv_query *queries = calloc((size_t)c->n_tok, sizeof *queries);
    op_random_fill(seed, q, n_q, c->q_scale);
    op_random_fill(seed, sink, (size_t)n_head, 4);
    if (c->has_sink) sink[0] = -INFINITY;
    const size_t n_bias = (size_t)(n_head * c->n_distance);
    float *numbers = calloc(n_bias + 1, sizeof *numbers);
    if (n_bias > 0) op_random_fill(seed, numbers, n_bias, 3);
    const kv_bias bias = {c->n_distance, numbers};
    for (int32_t t = 0; t < c->n_tok; t++) {
        int32_t s = (int32_t)(op_random_next(seed) % (uint64_t)c->n_seq);
        if (c->n_tok > 4) s = t * c->n_seq / c->n_tok; /* runs of one sequence, as in a prefill */
        int32_t back = (int32_t)(op_random_next(seed) % 3) == 0
                           ? (int32_t)(op_random_next(seed) % (uint64_t)scene.len[s])
                           : t % scene.len[s];
        queries[t] = (kv_query){scene.len[s] - 1 - back, s};
        if (c->has_padding && t % 3 == 1) queries[t].pos = -1;
    }
    const char *previous_isa = "";
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        if (attention_rigs[i] == NULL || attention_rig_repeats(i, c->n_tok)) continue;
        op_state *cache = kv_scene_write(&scene, attention_rigs[i], 7);
        if (i == 0) {
            kv_scene_learn(&scene, attention_rigs[i], cache);
            kv_scene_attend_biased(&scene, &params, n_head, q, c->has_sink ? sink : NULL, &bias,
                                   queries, c->n_tok, want, ml_want);
        }
        kv_scene_run_biased(&scene, attention_rigs[i], cache, &params, n_head, q,
                            c->has_sink ? sink : NULL, &bias, i % 2 == 1, queries, c->n_tok, got,
                            c->has_ml ? ml : NULL);
        bool is_plain = i <= 1;
        double bound = i == 0 ? 1e-12 : is_plain && bound_fast < 1e-5 ? 1e-10 : bound_fast;
        double bound_m = bound_ml;
        if (is_q8(c, i)) bound = bound_q8, bound_m = bound_ml_q8;
        if (is_matrix(c, i)) bound = fmax(bound, 1e-6);
        check("output", i, c, op_nmse(got, want, n_o), bound);
        if (c->has_ml) check("m and l", i, c, ml_error(ml, ml_want, (int32_t)n_ml / 2), bound_m);
        if (is_q8(c, i)) worst_q8 = fmax(worst_q8, op_nmse(got, want, n_o));
        if (strcmp(previous_isa, attention_rig_rows[i].isa) == 0 && i > 1 &&
            strcmp(attention_rig_rows[i].bits, attention_rig_rows[i - 1].bits) == 0 &&
            memcmp(first, got, n_o * sizeof *got) != 0)
            check("threads change the result", i, c, 1, 0);
        if (c->needs_matrix && is_matrix(c, i) && memcmp(first, got, n_o * sizeof *got) == 0)
            check("matrices of f16 give the bits of other kernels", i, c, 1, 0);
        memcpy(first, got, n_o * sizeof *got);
        previous_isa = attention_rig_rows[i].isa;
        if (!is_matrix(c, i))
            check_alone(c, i, &scene, cache, &params, q, c->has_sink ? sink : NULL, &bias, queries,
                        got, ml);
        op_state_destroy(cache);
    }
    free(q), free(want), free(got), free(first), free(ml), free(ml_want), free(sink);
    free(queries), free(numbers);
    kv_scene_free(&scene);
}

static void run_default(const attention_case *c, uint64_t *seed) {
    run_case(c, seed, is_exact(c) ? 1e-11 : 1e-6, 2e-3);
}

static int32_t pick(uint64_t *seed, const int32_t *list, int n) {
    return list[op_random_next(seed) % (uint64_t)n];
}
#define PICK(seed, ...)                                                                            \
    pick(seed, (const int32_t[]){__VA_ARGS__}, (int)(sizeof((const int32_t[]){__VA_ARGS__}) / 4))

static attention_case random_case(uint64_t *seed, tdm_type type_k, tdm_type type_v) {
    attention_case c = {.type_k = type_k, .type_v = type_v, .q_scale = 1};
    c.dim_k = PICK(seed, 8, 32, 64, 80, 96, 128);
    c.dim_v = PICK(seed, 0, 0, 0, 8, 64, 96);
    if (c.dim_v == 0) c.dim_v = c.dim_k;
    c.n_head_kv = PICK(seed, 1, 2, 3);
    c.heads_per_kv = PICK(seed, 1, 2, 4, 7);
    c.n_tok = PICK(seed, 1, 1, 2, 3, 17);
    c.page_len = PICK(seed, 1, 8, 16, 0, 64, 256);
    c.flags = (uint32_t)PICK(seed, 0, TDM_KV_ROTATE_K, TDM_KV_ROTATE_V,
                             TDM_KV_ROTATE_K | TDM_KV_ROTATE_V);
    c.n_rot = PICK(seed, 0, 1, 2) * c.dim_k / 4 / 2 * 2;
    c.rope_offset = PICK(seed, 0, 1) * (c.dim_k - c.n_rot) / 2;
    c.n_seq = PICK(seed, 1, 2, 3);
    for (int32_t s = 0; s < c.n_seq; s++) c.len[s] = PICK(seed, 1, 5, 16, 63, 64, 65, 150);
    c.shared = PICK(seed, 0, 3, 16, 64, 100);
    c.window = PICK(seed, 0, 0, 1, 7, 64);
    c.is_causal = PICK(seed, 0, 1, 1, 1) != 0;
    c.has_sink = PICK(seed, 0, 0, 1) != 0;
    c.has_padding = PICK(seed, 0, 1) != 0;
    c.has_ml = PICK(seed, 0, 1, 1) != 0;
    c.softcap = PICK(seed, 0, 0, 1) != 0 ? 5 : 0;
    c.scale = PICK(seed, 0, 0, 1) != 0 ? 0.2f : 0;
    c.window_kind = c.window > 0 ? PICK(seed, TDM_WINDOW_SLIDING, TDM_WINDOW_CHUNKED) : 0;
    c.alibi = c.softcap == 0 && PICK(seed, 0, 1) != 0 ? 8 : 0;
    c.temperature_length = PICK(seed, 0, 0, 1, 20);
    return c;
}

/* All pairs of types, each with shapes of its own. On a GPU a ninth of them, in which every type is
 * K once and V once: the kernels load K and V by functions of their own. */
static void test_pairs(void **state) {
    uint64_t seed = 20260101;
    int step = op_n_case(1, TDM_KV_TYPE_COUNT);
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int k = 0; k < TDM_KV_TYPE_COUNT; k++) {
        for (int v = 0; v < TDM_KV_TYPE_COUNT; v++) {
            attention_case c = random_case(&seed, kv_types[k], kv_types[v]);
            if ((k + v) % step == 0) run_default(&c, &seed);
        }
    }
}

/* Each type with itself, over more shapes. On a GPU a few: test_pairs has shapes, too. */
static void test_shapes(void **state) {
    uint64_t seed = 77;
    int n_case = op_n_case(72, 2);
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < n_case; i++) {
        attention_case c =
            random_case(&seed, kv_types[i % TDM_KV_TYPE_COUNT], kv_types[i % TDM_KV_TYPE_COUNT]);
        run_default(&c, &seed);
    }
}

/* Long enough for several parts, over entries of several sizes: assigned to workers for few tokens,
 * folded by one for many. */
static void test_splits(void **state) {
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 8; i += op_n_case(1, 3)) {
        attention_case c = random_case(&seed, kv_types[3 * i % TDM_KV_TYPE_COUNT],
                                       kv_types[(2 * i + 1) % TDM_KV_TYPE_COUNT]);
        c.page_len = i % 2 == 0 ? 64 : 1024;
        c.n_tok = i < 4 ? i + 1 : 20 + i; /* blocks are of 21 tokens here */
        c.n_head_kv = 1;
        c.heads_per_kv = 3;
        c.n_seq = 2;
        c.len[0] = 2500;
        c.len[1] = 3100;
        c.shared = 1500;
        c.window = i % 4 == 3 ? 2000 : 0;
        c.window_kind = TDM_WINDOW_SLIDING;
        c.is_causal = true;
        c.dim_k = c.dim_v = 32;
        c.n_rot = c.rope_offset = 0;
        run_default(&c, &seed);
    }
}

/* Rows of one length after the other: a kernel that has begun with less shared memory gets more. */
static void test_lengths(void **state) {
    uint64_t seed = 271;
    (void)state;
    for (int i = 0; i < 3; i++) {
        attention_case c = {.type_k = TDM_TYPE_F16,
                            .type_v = TDM_TYPE_F16,
                            .dim_k = i == 0 ? 72 : 128 * i,
                            .dim_v = i == 0 ? 72 : 128,
                            .n_head_kv = 1,
                            .heads_per_kv = 2,
                            .n_tok = 11,
                            .page_len = 64,
                            .n_seq = 1,
                            .len = {70},
                            .is_causal = true,
                            .q_scale = 1};
        run_default(&c, &seed);
    }
}

/* Tokens on both sides, as encoders see them: windows of odd and even lengths and of length 1,
 * causal ones too; and a bias for each distance, of fewer distances than there are and of more. On
 * a GPU for the kernel of few tokens and for that of many. */
static void test_both_sides(void **state) {
    uint64_t seed = 314;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < op_n_case(18, 4); i++) {
        attention_case c = random_case(&seed, kv_types[i % TDM_KV_TYPE_COUNT],
                                       kv_types[(2 * i + 1) % TDM_KV_TYPE_COUNT]);
        c.softcap = 0;
        c.is_causal = i % 4 == 3;
        c.window = i % 3 == 2 ? 0 : PICK(&seed, 1, 2, 7, 8, 33, 128);
        c.window_kind = c.window > 0 ? TDM_WINDOW_SYMMETRIC : 0;
        if (i % 2 == 0) c.n_distance = PICK(&seed, 1, 3, 17, 65, 257);
        if (getenv("OP_CASE_PLUGIN") != NULL) c.n_tok = 2 + 15 * (i / 2);
        run_default(&c, &seed);
    }
    /* Many tokens over several parts: a run of tokens sees neither its first nor its last. */
    for (int i = 0; i < op_n_case(2, 0); i++) {
        attention_case c = {.type_k = kv_types[i],
                            .type_v = kv_types[i],
                            .dim_k = 32,
                            .dim_v = 32,
                            .n_head_kv = 1,
                            .heads_per_kv = 3,
                            .n_tok = i == 0 ? 3 : 40,
                            .page_len = 64,
                            .n_seq = 2,
                            .len = {2500, 3100},
                            .shared = 1500,
                            .window = 1001 + i,
                            .window_kind = TDM_WINDOW_SYMMETRIC,
                            .n_distance = i % 2 == 1 ? 255 : 0,
                            .has_ml = true,
                            .q_scale = 1};
        run_default(&c, &seed);
    }
}

/* V is the first part of K's row. */
static void test_latent(void **state) {
    uint64_t seed = 99;
    (void)state;
    for (int i = 0; i < op_n_case(TDM_KV_TYPE_COUNT, attention_rigs_compile() ? 1 : 3); i++) {
        attention_case c = random_case(&seed, kv_types[i], kv_types[i]);
        c.dim_k = 96;
        c.dim_v = i % 2 == 0 ? 64 : 40;
        c.rope_offset = 64;
        c.n_rot = 32;
        c.n_head_kv = 1;
        c.heads_per_kv = 7;
        c.flags = TDM_KV_V_FROM_K | (i % 3 != 0 ? TDM_KV_ROTATE_K | TDM_KV_ROTATE_V : 0);
        run_default(&c, &seed);
    }
    /* V of any width, all of K included, for fewer and more heads than kernels take at once. */
    static const int dims[][2] = {{576, 512}, {33, 33}, {48, 17}, {21, 1}, {160, 144}, {64, 64}};
    for (int i = 0; i < op_n_case(2 * TDM_KV_TYPE_COUNT, 4); i++) {
        attention_case c =
            random_case(&seed, kv_types[i % TDM_KV_TYPE_COUNT], kv_types[i % TDM_KV_TYPE_COUNT]);
        const int *dim = dims[(i + i / TDM_KV_TYPE_COUNT) % 6];
        c.dim_k = dim[0];
        c.dim_v = dim[1];
        c.rope_offset = c.n_rot = 0;
        c.n_head_kv = 1;
        c.heads_per_kv = 1 + 5 * i % 17;
        c.flags = TDM_KV_V_FROM_K | (i % 2 == 0 ? TDM_KV_ROTATE_K | TDM_KV_ROTATE_V : 0);
        run_default(&c, &seed);
    }
    /* Rows of V that are longer than what a workgroup of a GPU keeps in registers. */
    uint64_t own_seed = 17;
    for (int i = 0; i < 2; i++) {
        tdm_type type = i == 0 ? TDM_TYPE_F16 : TDM_TYPE_Q4_0;
        attention_case c = random_case(&own_seed, type, type);
        c.dim_k = 32;
        c.dim_v = 608 + 64 * i;
        c.rope_offset = c.n_rot = 0;
        c.n_head_kv = 1;
        c.heads_per_kv = 3 + 4 * i;
        c.flags = 0;
        run_default(&c, &own_seed);
    }
}

/* What a scene writes for position `pos` of sequence 0: [head_dim, n_head_kv] of scene->k or v. */
static float *scene_row(const kv_scene *scene, float *rows, int32_t head_dim, int32_t pos) {
    const tdm_page_entry *e = scene->entries;
    while (pos >= e->base_pos + e->count) e++;
    size_t cell = (size_t)(e->page * scene->page_len + e->first + pos - e->base_pos);
    return rows + cell * (size_t)scene->desc.n_head_kv * (size_t)head_dim;
}

/* One batch of a sequence, with a query at each position. K and V of one token are NaN and Inf.
 * Queries that do not attend to it (earlier ones, and later ones whose window excludes it) get the
 * same bits as without it. */
static void check_poison(const attention_case *c, int32_t at, uint64_t *seed) {
    kv_scene scene;
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = c->type_k,
                        .type_v = c->type_v,
                        .head_dim_k = c->dim_k,
                        .head_dim_v = c->dim_v,
                        .n_head_kv = c->n_head_kv,
                        .page_len = c->page_len,
                        .flags = c->flags};
    int32_t len = c->len[0], n_head = c->n_head_kv * c->heads_per_kv;
    kv_scene_init(&scene, &desc, 1, &len, 0, seed);
    tdm_attention_params params = {
        .heads_per_kv = c->heads_per_kv, .n_head_all = n_head, .is_causal = 1, .window = c->window};
    size_t row = (size_t)c->dim_v * (size_t)n_head, n_q = (size_t)c->dim_k * (size_t)n_head;
    float *q = calloc(n_q * (size_t)len, sizeof *q);
    float *clean = calloc(row * (size_t)len, sizeof *clean);
    float *poisoned = calloc(row * (size_t)len, sizeof *poisoned);
    kv_query *queries = calloc((size_t)len, sizeof *queries);
    op_random_fill(seed, q, n_q * (size_t)len, 1);
    for (int32_t t = 0; t < len; t++) queries[t] = (kv_query){t, 0};
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        if (attention_rigs[i] == NULL) continue;
        op_state *cache = kv_scene_write(&scene, attention_rigs[i], 7);
        kv_scene_run(&scene, attention_rigs[i], cache, &params, n_head, q, NULL, queries, len,
                     clean, NULL);
        op_state_destroy(cache);
        float *k = scene_row(&scene, scene.k, c->dim_k, at);
        float *v = scene.v != NULL ? scene_row(&scene, scene.v, c->dim_v, at) : k;
        float k_old = k[0], v_old = v[1];
        k[0] = NAN;
        v[1] = INFINITY;
        cache = kv_scene_write(&scene, attention_rigs[i], 7);
        kv_scene_run(&scene, attention_rigs[i], cache, &params, n_head, q, NULL, queries, len,
                     poisoned, NULL);
        op_state_destroy(cache);
        k[0] = k_old;
        v[1] = v_old;
        bool is_reached = false;
        for (int32_t t = 0; t < len; t++) {
            bool sees = t >= at && (c->window == 0 || t - at < c->window);
            const float *a = clean + row * (size_t)t, *b = poisoned + row * (size_t)t;
            if (!sees && memcmp(a, b, row * sizeof *a) != 0)
                check("what a token does not see changes its result", i, c, 1, 0);
            for (size_t e = 0; e < row && sees; e++) is_reached = is_reached || !isfinite(b[e]);
        }
        if (!is_reached) check("NaN and Inf are lost on who sees them", i, c, 1, 0);
    }
    free(q), free(clean), free(poisoned), free(queries);
    kv_scene_free(&scene);
}

static void test_unseen_nan(void **state) {
    static const tdm_type plain[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16};
    uint64_t seed = 2024;
    (void)state;
    for (int i = 0; i < op_n_case(24, 4); i++) {
        attention_case c = {.type_k = plain[i % 3], .type_v = plain[i / 3 % 3]};
        bool is_latent = i % 4 == 3;
        if (is_latent) c.type_v = c.type_k;
        c.dim_k = is_latent ? 40 : PICK(&seed, 8, 33, 64, 96);
        c.dim_v = is_latent ? 24 : PICK(&seed, 8, 33, 64, 96);
        c.flags = is_latent ? TDM_KV_V_FROM_K : 0;
        c.n_head_kv = is_latent ? 1 : PICK(&seed, 1, 2);
        c.heads_per_kv = PICK(&seed, 1, 2, 3, 4, 7);
        c.page_len = PICK(&seed, 8, 16, 64, 256);
        c.len[0] = PICK(&seed, 17, 64, 100);
        c.n_tok = c.len[0];
        c.window = PICK(&seed, 0, 1, 5);
        check_poison(&c, (int32_t)(op_random_next(&seed) % (uint64_t)c.len[0]), &seed);
    }
}

/* Pages whose first slot would be before position 0, with and without an end of what a token sees;
 * a tile has tokens of two sequences, and padding. Where drivers compile, each type has one of
 * these, since each is another kernel. */
static void test_behind(void **state) {
    static const tdm_type types[] = {TDM_TYPE_F16, TDM_TYPE_Q8_0, TDM_TYPE_F32};
    uint64_t seed = 5;
    (void)state;
    static const int compiled[] = {0, 3, 5};
    const int n_case = attention_rigs_compile() ? 3 : 6;
    for (int number = 0; number < n_case; number++) {
        const int i = n_case == 6 ? number : compiled[number];
        const attention_case c = {.type_k = types[i / 2],
                                  .type_v = types[i / 2],
                                  .dim_k = 64,
                                  .dim_v = 64,
                                  .n_head_kv = 2,
                                  .heads_per_kv = 4,
                                  .n_tok = 23,
                                  .page_len = 32,
                                  .n_seq = 2,
                                  .len = {40, 27},
                                  .behind = 5,
                                  .is_causal = i % 2 == 0,
                                  .has_padding = i % 4 == 1,
                                  .has_ml = true,
                                  .scale = 0.125f,
                                  .q_scale = 1};
        run_default(&c, &seed);
    }
}

/* V as part of K on matrix hardware: tiles of 32 and of 64 rows, whole and odd numbers of tokens,
 * runs of several sequences, types that are decoded in different ways, rows that fill tiles and
 * rows that do not. The largest rows take more shared memory than HIP's emulated device has. */
static void test_latent_matrix(void **state) {
    static const struct {
        tdm_type type;
        int32_t dim_k, dim_v, heads, n_tok, page_len;
    } shapes[] = {{TDM_TYPE_F16, 576, 512, 16, 9, 64},   {TDM_TYPE_Q8_0, 96, 64, 7, 10, 16},
                  {TDM_TYPE_Q5_1, 128, 112, 5, 20, 256}, {TDM_TYPE_Q4_0, 576, 512, 3, 11, 8},
                  {TDM_TYPE_F16, 72, 40, 40, 9, 64},     {TDM_TYPE_IQ4_NL, 64, 64, 1, 70, 64}};
    const char *plugin = getenv("OP_CASE_PLUGIN");
    uint64_t seed = 1917;
    (void)state;
    if (attention_rigs[2] == NULL || !attention_rig_is_matrix(2, 9)) skip();
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        const bool is_large = shapes[i].dim_k > 128;
        /* Kernels of long rows take a driver longest to compile: there one type has them. */
        const bool is_cut = is_large && attention_rigs_compile() && shapes[i].type != TDM_TYPE_F16;
        attention_case c = {.type_k = shapes[i].type,
                            .type_v = shapes[i].type,
                            .dim_k = is_cut ? 96 : shapes[i].dim_k,
                            .dim_v = is_cut ? 64 : shapes[i].dim_v,
                            .n_head_kv = 1,
                            .heads_per_kv = shapes[i].heads,
                            .n_tok = shapes[i].n_tok,
                            .page_len = shapes[i].page_len,
                            .flags = TDM_KV_V_FROM_K |
                                     (i % 2 == 1 ? TDM_KV_ROTATE_K | TDM_KV_ROTATE_V : 0),
                            .n_seq = 1 + i % 3,
                            .len = {150, 65, 33},
                            .shared = 16,
                            .window = i == 2 ? 40 : 0,
                            .is_causal = i != 4,
                            .has_padding = i == 1,
                            .has_ml = true,
                            .needs_matrix = !is_large || strcmp(plugin, "hip") != 0,
                            .softcap = i == 5 ? 5 : 0,
                            .q_scale = 1};
        run_default(&c, &seed);
        if (is_large || shapes[i].type != TDM_TYPE_F16) continue;
        c.len[0] = c.n_tok = 40;
        c.window = 5;
        c.is_causal = true;
        check_poison(&c, 17, &seed);
    }
}

/* Scores around 1e4 must neither overflow nor lose the maximum; equal scores give the average. */
static void test_extremes(void **state) {
    uint64_t seed = 3;
    (void)state;
    /* On a GPU two of each half. */
    for (int i = 0; i < 2 * TDM_KV_TYPE_COUNT; i += op_n_case(1, 5)) {
        attention_case c =
            random_case(&seed, kv_types[i % TDM_KV_TYPE_COUNT], kv_types[i % TDM_KV_TYPE_COUNT]);
        bool is_large = i < TDM_KV_TYPE_COUNT;
        c.q_scale = is_large ? 1e4f : 0;
        c.scale = 1;
        c.softcap = 0;
        c.has_ml = !is_large;
        c.has_sink = false;
        run_case(&c, &seed, is_large ? 1e-2 : is_exact(&c) ? 1e-11 : 1e-6, 1e-3);
    }
}

/* A cache written as q4_0 misses an f32 cache's bound by far: the comparison can fail. */
static void test_bound_is_sharp(void **state) {
    uint64_t seed = 11;
    (void)state;
    attention_case c = random_case(&seed, TDM_TYPE_Q4_0, TDM_TYPE_Q4_0);
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = c.type_k,
                        .type_v = c.type_v,
                        .head_dim_k = 64,
                        .head_dim_v = 64,
                        .n_head_kv = 1};
    int32_t len = 40;
    kv_scene scene;
    kv_scene_init(&scene, &desc, 1, &len, 0, &seed);
    op_state *cache = kv_scene_write(&scene, attention_rigs[0], 7);
    float q[64], got[64], want[64], ml[2];
    op_random_fill(&seed, q, 64, 1);
    for (size_t i = 0; i < 64 * (size_t)scene.n_cell; i++) {
        scene.k_row[i] = (double)scene.k[i];
        scene.v_row[i] = (double)scene.v[i];
    }
    tdm_attention_params params = {.heads_per_kv = 1, .n_head_all = 1, .is_causal = 1};
    kv_query query = {39, 0};
    kv_scene_attend(&scene, &params, 1, q, NULL, &query, 1, want, ml);
    kv_scene_run(&scene, attention_rigs[0], cache, &params, 1, q, NULL, &query, 1, got, NULL);
    assert_true(op_nmse(got, want, 64) > 1e-4);
    op_state_destroy(cache);
    kv_scene_free(&scene);
}

/* What was computed so far with 8 bits would not pass for 15. */
static void test_query_bits(void **state) {
    (void)state;
    bool has_q8 = false;
    for (int i = 0; i < N_ATTENTION_RIG; i++)
        has_q8 =
            has_q8 || (attention_rigs[i] != NULL && strcmp(attention_rig_rows[i].bits, "8") == 0);
    if (!has_q8) skip();
    print_message("with 8 bits at most %.2g\n", worst_q8);
    assert_true(worst_q8 > 1e-6);
}

/* Parts of a sequence, merged, are the whole; a part over nothing changes nothing. */
static void test_lse_merge(void **state) {
    enum { DIM = 20, HEADS = 3, TOKENS = 5, PARTS = 4, ROWS = HEADS * TOKENS };
    uint64_t seed = 41;
    float o[PARTS][ROWS][DIM], ml[PARTS][ROWS][2], got[ROWS][DIM], want[ROWS][DIM];
    (void)state;
    op_random_fill(&seed, &o[0][0][0], sizeof o / sizeof(float), 1);
    for (int p = 0; p < PARTS; p++) {
        for (int r = 0; r < ROWS; r++) {
            ml[p][r][0] = (float)(op_random_next(&seed) % 2001) / 10 - 100;
            ml[p][r][1] = 1 + (float)(op_random_next(&seed) % 100);
            if ((p == 1 && r % 2 == 0) || r == 7) {
                ml[p][r][0] = -INFINITY;
                ml[p][r][1] = 0;
                memset(o[p][r], 0, sizeof o[p][r]);
            }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < DIM; i++) {
            double sum = 0, total = 0, max = -INFINITY;
            for (int p = 0; p < PARTS; p++) max = fmax(max, (double)ml[p][r][0]);
            for (int p = 0; p < PARTS && max != -INFINITY; p++) {
                double w = (double)ml[p][r][1] * exp((double)ml[p][r][0] - max);
                sum += w * (double)o[p][r][i];
                total += w;
            }
            want[r][i] = max != -INFINITY ? (float)(sum / total) : 0;
        }
    }
    tdm_builder *b;
    tdm_graph *graph;
    tdm_error err = {0};
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int64_t o_ne[4] = {DIM, HEADS, TOKENS, PARTS}, ml_ne[4] = {2, HEADS, TOKENS, PARTS};
    int32_t o_value = tdm_build_input(b, "o", TDM_TYPE_F32, o_ne);
    int32_t ml_value = tdm_build_input(b, "ml", TDM_TYPE_F32, ml_ne);
    int32_t out = tdm_build_lse_merge(b, o_value, ml_value);
    tdm_build_output(b, out, "out");
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        if (attention_rigs[i] == NULL) continue;
        op_arg args[] = {{.value = o_value, .data = o},
                         {.value = ml_value, .data = ml},
                         {.value = out, .data = got}};
        op_rig_run(attention_rigs[i], graph, args, 3);
        assert_true(op_nmse(&got[0][0], &want[0][0], ROWS * DIM) < 1e-12);
    }
    tdm_graph_free(graph);
}

/* Whether a test is wanted: all are, without patterns. */
static bool is_wanted(const char *name, int n_pattern, char **patterns) {
    for (int i = 0; i < n_pattern; i++)
        if (fnmatch(patterns[i], name, 0) == 0) return true;
    return n_pattern == 0;
}

/* test_attention [PATTERN...]: those whose names match a pattern alone. */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),          cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_lengths),        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_both_sides),     cmocka_unit_test(test_latent),
        cmocka_unit_test(test_latent_matrix),  cmocka_unit_test(test_unseen_nan),
        cmocka_unit_test(test_behind),         cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_bound_is_sharp), cmocka_unit_test(test_query_bits),
        cmocka_unit_test(test_lse_merge),
    };
    enum { N_TEST = sizeof tests / sizeof *tests };
    struct CMUnitTest wanted[N_TEST];
    size_t n = 0;
    for (size_t i = 0; i < N_TEST; i++)
        if (is_wanted(tests[i].name, argc - 1, argv + 1)) wanted[n++] = tests[i];
    if (n == 0) {
        fprintf(stderr, "test_attention: no test of that name\n");
        return 1;
    }
    return _cmocka_run_group_tests("attention", wanted, n, attention_rigs_open,
                                   attention_rigs_close);
}
