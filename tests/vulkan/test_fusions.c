/* SPDX-License-Identifier: MIT
 *
 * test_fusions.c: each row of the fusion table (plugins/gpu/ops/fusions.c) on a GPU but those of
 * products (test_fused_products.c): the graph is fused, and gives what the CPU's reference path
 * gives. Single nodes give the same where the kernel depends on whether they are fused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/gpu/layout/page.h"
#include "tests/kernels/kv_scene.h"
#include "tests/vulkan/fusion_case.h"

/* ---- ADD, RMS_NORM --------------------------------------------------------------------------- */

static void add_norm(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    static const int64_t shapes[][3] = {{1, 1, 1},   {3, 2, 1},    {4, 1, 1},   {64, 5, 1},
                                        {127, 3, 2}, {2048, 1, 1}, {4099, 4, 1}};
    for (size_t s = 0; s < OP_COUNT_OF(shapes); s++)
        for (int kind = 0; kind < 4; kind++) {
            const int64_t *ne = OP_SHAPE(shapes[s][0], shapes[s][1], shapes[s][2], 1);
            op_case c = op_case_begin("add, rms_norm");
            snprintf(c.label, sizeof c.label, "add, rms_norm of [%d, %d, %d], kind %d", (int)ne[0],
                     (int)ne[1], (int)ne[2], kind);
            int32_t a = op_case_floats(&c, &seed, ne, 3), weight = -1;
            /* kind 1: b is repeated along the rows, which is not fused where there are several */
            bool is_repeated = kind == 1 && ne[1] * ne[2] > 1;
            int32_t b = op_case_floats(&c, &seed, is_repeated ? OP_SHAPE(ne[0], 1, 1, 1) : ne, 5);
            if (kind != 2) weight = op_case_floats(&c, &seed, OP_SHAPE(ne[0], 1, 1, 1), 2);
            int32_t sum = tdm_build_add(c.b, a, b);
            op_case_output(&c, tdm_build_rms_norm(c.b, sum, weight, 1e-5f));
            if (kind == 3) op_case_output(&c, sum);
            fusion_check_fused(&c, is_repeated ? 0 : 1, 1e-10);
        }
}

/* ---- RMS_NORM with rows of weights, or a factor ---------------------------------------------- */

static void norm_rows(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    static const int64_t shapes[][3] = {{127, 3, 2}, {2052, 4, 2}};
    for (size_t s = 0; s < OP_COUNT_OF(shapes); s++)
        for (int kind = 0; kind < 6; kind++) {
            const int64_t n = shapes[s][0], n_row = shapes[s][1], n_tok = shapes[s][2];
            const int64_t *ne = OP_SHAPE(n, n_row, n_tok, 1);
            op_case c = op_case_begin("");
            snprintf(c.label, sizeof c.label, "rms_norm of [%d, %d, %d], kind %d", (int)n,
                     (int)n_row, (int)n_tok, kind);
            int32_t x = op_case_floats(&c, &seed, ne, 3), saved = 1;
            int32_t w = op_case_floats(&c, &seed, OP_SHAPE(n, n_row, 1, 1), 2);
            switch (kind) {
            case 0: /* a row of weights for each stream */
                x = tdm_build_mul(c.b, tdm_build_rms_norm(c.b, x, -1, 1e-5f), w);
                break;
            case 1: /* the same after a sum */
                x = tdm_build_add(c.b, x, op_case_floats(&c, &seed, ne, 1));
                x = tdm_build_mul(c.b, tdm_build_rms_norm(c.b, x, -1, 1e-5f), w);
                saved = 2;
                break;
            case 2: /* strided weights, of which there are as many as elements */
                w = op_case_floats(&c, &seed, OP_SHAPE(n_row, n, 1, 1), 2);
                w = tdm_build_permute(c.b, w, 1, 0, 2, 3);
                x = tdm_build_mul(c.b, tdm_build_rms_norm(c.b, x, -1, 1e-5f), w);
                break;
            case 3: /* a factor */
                w = op_case_floats(&c, &seed, OP_SHAPE(n, 1, 1, 1), 2);
                x = tdm_build_scale(c.b, tdm_build_rms_norm(c.b, x, w, 1e-5f), 0.25f, 0);
                break;
            case 4: /* no pattern: two weights, and a number that is added */
                x = tdm_build_rms_norm(c.b, x, op_case_floats(&c, &seed, OP_SHAPE(n, 1, 1, 1), 1),
                                       1e-5f);
                x = tdm_build_scale(c.b, tdm_build_mul(c.b, x, w), 2, 1);
                saved = 0;
                break;
            default: /* no pattern: a weight of one element */
                w = op_case_floats(&c, &seed, OP_SHAPE(1, n_row, 1, 1), 2);
                x = tdm_build_mul(c.b, tdm_build_rms_norm(c.b, x, -1, 1e-5f), w);
                saved = 0;
            }
            op_case_output(&c, x);
            fusion_check_fused(&c, saved, 1e-10);
        }
}

/* ---- Elementwise ops ------------------------------------------------------------------------- */

/* ACT with a SCALE or a MUL before it or after it. */
static void acts(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    static const int64_t shapes[][3] = {{129, 3, 1}, {256, 4, 2}};
    for (size_t s = 0; s < OP_COUNT_OF(shapes); s++)
        for (int kind = 0; kind < 7; kind++) {
            const int64_t *ne = OP_SHAPE(shapes[s][0], shapes[s][1], shapes[s][2], 1);
            const tdm_act act = kind % 2 ? TDM_ACT_SIGMOID : TDM_ACT_SOFTPLUS;
            op_case c = op_case_begin("");
            snprintf(c.label, sizeof c.label, "act of [%d, %d, %d], kind %d", (int)ne[0],
                     (int)ne[1], (int)ne[2], kind);
            int32_t x = op_case_floats(&c, &seed, ne, 6), saved = 1;
            switch (kind) {
            case 0: x = tdm_build_act(c.b, tdm_build_scale(c.b, x, 0.25f, 0.5f), act); break;
            case 1: x = tdm_build_scale(c.b, tdm_build_act(c.b, x, act), 2, -1); break;
            case 2:
                x = tdm_build_act(c.b, tdm_build_scale(c.b, x, -0.5f, 1), act);
                x = tdm_build_scale(c.b, x, 3, 0.5f);
                saved = 2;
                break;
            case 3: /* by a value that is repeated */
                x = tdm_build_mul(c.b, tdm_build_act(c.b, x, act),
                                  op_case_floats(&c, &seed, OP_SHAPE(ne[0], 1, 1, 1), 1));
                break;
            case 4: /* by an act that is repeated */
            case 5: {
                int32_t f = op_case_floats(&c, &seed, OP_SHAPE(1, ne[1], ne[2], 1), 4);
                x = tdm_build_mul(c.b, x, tdm_build_act(c.b, f, act));
                break;
            }
            default: /* another node reads the act */
                x = tdm_build_act(c.b, x, act);
                op_case_output(&c, tdm_build_clamp(c.b, x, 0.25f, 1));
                x = tdm_build_scale(c.b, x, 2, 0);
                saved = 0;
            }
            op_case_output(&c, x);
            fusion_check_fused(&c, saved, 1e-10);
        }
}

/* The streams of [n, n_stream, n_tok]: summed, and one of them repeated and multiplied. */
static void streams(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    static const int64_t shapes[][2] = {{127, 2}, {2560, 3}};
    for (size_t s = 0; s < OP_COUNT_OF(shapes); s++)
        for (int kind = 0; kind < 7; kind++) {
            enum { N_STREAM = 6 };
            static const int32_t n_summed[] = {2, 3, 4, 4, 6};
            const int64_t n = shapes[s][0], n_tok = shapes[s][1];
            const int64_t one[TDM_MAX_DIMS] = {n, 1, n_tok, 1};
            const int64_t *all = OP_SHAPE(n, N_STREAM, n_tok, 1);
            op_case c = op_case_begin("");
            snprintf(c.label, sizeof c.label, "streams of %d, %d tokens, kind %d", (int)n,
                     (int)n_tok, kind);
            int32_t x = op_case_floats(&c, &seed, all, 1), y = -1, saved = 1;
            for (int64_t i = 0; kind < 5 && i < n_summed[kind]; i++) {
                int32_t each = tdm_build_slice(c.b, x, OP_SHAPE(0, i, 0, 0), one);
                y = i == 0 ? each : tdm_build_add(c.b, y, each);
            }
            if (kind < 5) saved = n_summed[kind] == 6 ? 3 : n_summed[kind] - 2;
            if (kind == 3) {
                y = tdm_build_scale(c.b, y, 0.25f, 1);
                saved = 3;
            }
            if (kind == 5) { /* to all streams, with a factor for each */
                y = tdm_build_repeat(c.b, tdm_build_slice(c.b, x, OP_SHAPE(0, 1, 0, 0), one), all);
                y = tdm_build_mul(c.b, y,
                                  op_case_floats(&c, &seed, OP_SHAPE(1, N_STREAM, n_tok, 1), 1));
            }
            if (kind == 6) { /* no pattern: what is repeated has two rows */
                const int64_t two[TDM_MAX_DIMS] = {n, 2, n_tok, 1};
                y = tdm_build_repeat(c.b, tdm_build_slice(c.b, x, OP_SHAPE(0, 1, 0, 0), two), all);
                y = tdm_build_mul(c.b, y, x);
                saved = 0;
            }
            op_case_output(&c, y);
            fusion_check_fused(&c, saved, 1e-10);
        }
}

/* Streams x [n, n_stream, n_tok] that are read as one, and written: plugins/gpu/ops/streams.h. */
static int32_t streams_read(op_case *c, uint64_t *seed, int32_t x, const int64_t ne[3]) {
    const int64_t one[TDM_MAX_DIMS] = {ne[0], 1, ne[2], 1};
    int32_t sum = -1;
    x = tdm_build_mul(c->b, x, op_case_floats(c, seed, OP_SHAPE(1, ne[1], ne[2], 1), 1));
    for (int64_t i = 0; i < ne[1]; i++) {
        int32_t each = tdm_build_slice(c->b, x, OP_SHAPE(0, i, 0, 0), one);
        sum = i == 0 ? each : tdm_build_add(c->b, sum, each);
    }
    return sum;
}

static int32_t streams_mix(op_case *c, uint64_t *seed, int32_t x, const int64_t ne[3]) {
    const int64_t n = ne[1], all[TDM_MAX_DIMS] = {ne[0], n, ne[2], 1};
    const int64_t one[TDM_MAX_DIMS] = {ne[0], 1, ne[2], 1}, each[TDM_MAX_DIMS] = {n, 1, ne[2], 1};
    int32_t f = op_case_floats(c, seed, OP_SHAPE(n, n, ne[2], 1), 1), sum = -1;
    for (int64_t j = 0; j < n; j++) {
        int32_t from = tdm_build_slice(c->b, x, OP_SHAPE(0, j, 0, 0), one);
        int32_t factor = tdm_build_slice(c->b, f, OP_SHAPE(0, j, 0, 0), each);
        from = tdm_build_mul(c->b, tdm_build_repeat(c->b, from, all),
                             tdm_build_permute(c->b, factor, 1, 0, 2, 3));
        sum = j == 0 ? from : tdm_build_add(c->b, sum, from);
    }
    return sum;
}

static int32_t streams_write(op_case *c, uint64_t *seed, int32_t x, const int64_t ne[3]) {
    int32_t y = op_case_floats(c, seed, OP_SHAPE(ne[0], ne[2], 1, 1), 1);
    y = tdm_build_reshape(c->b, y, ne[0], 1, ne[2], 1);
    y = tdm_build_repeat(c->b, y, OP_SHAPE(ne[0], ne[1], ne[2], 1));
    y = tdm_build_mul(c->b, y, op_case_floats(c, seed, OP_SHAPE(1, ne[1], ne[2], 1), 1));
    return tdm_build_add(c->b, x, y);
}

static void stream_sums(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    static const int64_t shapes[][3] = {{256, 4, 3}, {1028, 2, 1}, {127, 4, 2}};
    /* Of the last shape rows are not aligned, and smaller patterns apply. */
    static const int32_t saved[][6] = {
        {3, 4, 2, 4, 13, 14}, {1, 2, 2, 4, 7, 8}, {2, 2, 1, 3, 7, 7}};
    for (size_t s = 0; s < OP_COUNT_OF(shapes); s++)
        for (int kind = 0; kind < 6; kind++) {
            const int64_t *ne = shapes[s];
            op_case c = op_case_begin("");
            snprintf(c.label, sizeof c.label, "sums of %d streams of %d, %d tokens, kind %d",
                     (int)ne[1], (int)ne[0], (int)ne[2], kind);
            int32_t x = op_case_floats(&c, &seed, OP_SHAPE(ne[0], ne[1], ne[2], 1), 1);
            switch (kind) {
            case 0:
            case 1:
                x = streams_read(&c, &seed, x, ne);
                if (kind == 0) break;
                x = tdm_build_rms_norm(c.b, tdm_build_reshape(c.b, x, ne[0], ne[2], 1, 1),
                                       op_case_floats(&c, &seed, OP_SHAPE(ne[0], 1, 1, 1), 1),
                                       1e-5f);
                break;
            case 2:
            case 3:
                x = streams_write(&c, &seed, x, ne);
                if (kind == 2) break;
                op_case_output(&c, x);
                x = tdm_build_rms_norm(c.b, x, -1, 1e-5f);
                x = tdm_build_mul(c.b, x,
                                  op_case_floats(&c, &seed, OP_SHAPE(ne[0], ne[1], 1, 1), 1));
                break;
            default:
                x = streams_write(&c, &seed, streams_mix(&c, &seed, x, ne), ne);
                if (kind == 4) break;
                op_case_output(&c, x);
                x = tdm_build_reshape(c.b, x, ne[0] * ne[1], ne[2], 1, 1);
                x = tdm_build_rms_norm(c.b, x, -1, 1e-5f);
            }
            op_case_output(&c, x);
            fusion_check_fused(&c, saved[s][kind], 1e-10);
        }
}

/* act(x * a + b), scaled, of columns of x; and matrices of such numbers. */
static void affine(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (int kind = 0; kind < 5; kind++)
        for (int64_t n_tok = 1; n_tok < 9; n_tok += 4) {
            const int64_t n = kind == 4 ? 7 : 16, part[TDM_MAX_DIMS] = {n, n_tok, 1, 1};
            const int64_t *one = OP_SHAPE(1, 1, 1, 1), *row = OP_SHAPE(n, 1, 1, 1);
            op_case c = op_case_begin("");
            snprintf(c.label, sizeof c.label, "mul and add, %d tokens, kind %d", (int)n_tok, kind);
            int32_t x = op_case_floats(&c, &seed, OP_SHAPE(24, n_tok, 1, 1), 3), saved = 2;
            x = tdm_build_slice(c.b, x, OP_SHAPE(4, 0, 0, 0), part);
            x = tdm_build_mul(c.b, x, op_case_floats(&c, &seed, kind == 1 ? row : one, 1));
            x = tdm_build_add(c.b, x, op_case_floats(&c, &seed, row, 1));
            if (kind == 0) saved = 1;
            if (kind == 1) x = tdm_build_act(c.b, x, TDM_ACT_TANH);
            if (kind == 2 || kind == 4) {
                x = tdm_build_act(c.b, x, TDM_ACT_SIGMOID);
                x = tdm_build_scale(c.b, x, 2, 0.25f);
                saved = 3;
            }
            if (kind == 3)
                x = tdm_build_sinkhorn(c.b, tdm_build_reshape(c.b, x, 4, 4, n_tok, 1), 3, 1e-6f);
            op_case_output(&c, x);
            fusion_check_fused(&c, saved, 1e-10);
        }
}

/* ---- ROPE, KV_WRITE and ROPE, ATTENTION ------------------------------------------------------ */

typedef struct rope_case {
    tdm_type type_k, type_v;
    int32_t dim, n_rot, rope_offset, mode;
    int32_t n_tok;
    bool has_factor, has_shared_rope; /* another node reads the turned keys */
    double bound;
} rope_case;

enum { N_HEAD = 4, N_HEAD_KV = 2, MAX_TOK = 8, HISTORY = 70 };

typedef struct rope_graph {
    tdm_graph *graph;
    int32_t step, state, qkv, factor;
    int32_t o, turned;
} rope_graph;

static rope_graph rope_graph_make(const rope_case *c, const kv_scene *scene, uint64_t page_size) {
    rope_graph g = {.factor = -1};
    tdm_error err = {0};
    tdm_builder *b = NULL;
    int32_t kv, n_row = N_HEAD + 2 * N_HEAD_KV;
    tdm_step_caps caps = kv_scene_caps(scene, c->n_tok, 0);
    const tdm_rope_params rope = {.n_rot = c->n_rot,
                                  .rope_offset = c->rope_offset,
                                  .mode = c->mode,
                                  .freq_base = 10000,
                                  .freq_scale = 1,
                                  .attn_factor = 1};
    const tdm_attention_params attention = {
        .heads_per_kv = N_HEAD / N_HEAD_KV, .n_head_all = N_HEAD, .is_causal = 1};
    if (tdm_builder_create(&b, &err) != TDM_OK) fail_msg("%s", err.message);
    g.step = tdm_build_step(b, &caps);
    g.state = tdm_build_state(b, "cache", &scene->desc, page_size, scene->n_page, &kv);
    g.qkv = tdm_build_input(b, "qkv", TDM_TYPE_F32, OP_SHAPE(c->dim, n_row, c->n_tok, 1));
    if (c->has_factor)
        g.factor = tdm_build_input(b, "factor", TDM_TYPE_F32, OP_SHAPE(c->n_rot / 2, 1, 1, 1));
    int32_t pos = tdm_build_step_field(b, TDM_STEP_POS);
    int32_t q =
        tdm_build_slice(b, g.qkv, OP_SHAPE(0, 0, 0, 0), OP_SHAPE(c->dim, N_HEAD, c->n_tok, 1));
    int32_t k = tdm_build_slice(b, g.qkv, OP_SHAPE(0, N_HEAD, 0, 0),
                                OP_SHAPE(c->dim, N_HEAD_KV, c->n_tok, 1));
    int32_t v = tdm_build_slice(b, g.qkv, OP_SHAPE(0, N_HEAD + N_HEAD_KV, 0, 0),
                                OP_SHAPE(c->dim, N_HEAD_KV, c->n_tok, 1));
    k = tdm_build_rope(b, k, pos, g.factor, &rope);
    q = tdm_build_rope(b, q, pos, g.factor, &rope);
    tdm_build_kv_write(b, k, v, g.step, g.state, kv);
    g.o = tdm_build_attention(b, q, g.step, g.state, -1, &attention, NULL);
    tdm_build_output(b, g.o, "o");
    g.turned = tdm_build_scale(b, c->has_shared_rope ? k : v, 1, 0);
    tdm_build_output(b, g.turned, "turned");
    if (tdm_builder_finish(b, &g.graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    return g;
}

/* The cell of a position of sequence 0. */
static int32_t cell_of(const kv_scene *scene, int32_t pos) {
    for (int32_t i = 0; i < scene->first_entry[1]; i++) {
        const tdm_page_entry *e = &scene->entries[i];
        if (pos >= e->base_pos && pos < e->base_pos + e->count)
            return e->page * scene->page_len + e->first + pos - e->base_pos;
    }
    fail_msg("position %d is in no page", (int)pos);
    return -1;
}

/* The last tokens of the sequence are written and attend; one of several is padding. */
static void rope_run(const rope_case *c, kv_scene *scene, op_rig *rig, float *qkv, float *factor,
                     float *o, float *k_row) {
    rope_graph g = rope_graph_make(c, scene, op_rig_page_size(rig, &scene->desc));
    op_state *state = kv_scene_write(scene, rig, 5);
    tdm_step_caps caps = kv_scene_caps(scene, c->n_tok, 0);
    int32_t *step = kv_step_create(scene, &caps);
    uint8_t *k = NULL, *v = NULL;
    for (int32_t t = 0; t < c->n_tok; t++) {
        int32_t pos = scene->len[0] - c->n_tok + t;
        if (t == 1 && c->n_tok > 2) continue;
        kv_step_set_token(step, t, pos, 0, cell_of(scene, pos));
    }
    op_arg args[] = {{.value = g.step, .data = step},
                     {.value = g.state, .state = state},
                     {.value = g.qkv, .data = qkv},
                     {.value = g.o, .data = o},
                     {.value = g.factor, .data = factor}};
    op_rig_run(rig, g.graph, args, c->has_factor ? 5 : 4);
    kv_scene_export(scene, rig, state, &k, &v);
    kv_scene_decode(scene, k, v);
    for (int32_t t = 0; t < c->n_tok; t++) {
        size_t n = (size_t)(c->dim * N_HEAD_KV);
        int32_t cell = cell_of(scene, scene->len[0] - c->n_tok + t);
        for (size_t i = 0; i < n; i++)
            k_row[(size_t)t * n + i] = (float)scene->k_row[(size_t)cell * n + i];
    }
    free(k);
    free(v);
    free(step);
    op_state_destroy(state);
    tdm_graph_free(g.graph);
}

static void rope_check(const rope_case *c, uint64_t *seed) {
    op_rig *rigs[] = {fusion_rigs.reference, fusion_rigs.single, fusion_rigs.fused};
    char label[160];
    kv_scene scene;
    int32_t len = HISTORY;
    size_t n_o = (size_t)(c->dim * N_HEAD * c->n_tok),
           n_k = (size_t)(c->dim * N_HEAD_KV * c->n_tok);
    float *o[3], *k_row[3];
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = c->type_k,
                        .type_v = c->type_v,
                        .head_dim_k = c->dim,
                        .head_dim_v = c->dim,
                        .n_head_kv = N_HEAD_KV,
                        .page_len = 16,
                        .rope_offset = c->rope_offset,
                        .n_rot = c->n_rot,
                        .flags = TDM_KV_ROTATE_K | TDM_KV_ROTATE_V};
    snprintf(label, sizeof label,
             "rope into a cache of %s and %s: heads of %d, %d turned from %d, mode %d, %d tokens, "
             "factor %d, shared %d",
             tdm_type_name(c->type_k), tdm_type_name(c->type_v), (int)c->dim, (int)c->n_rot,
             (int)c->rope_offset, (int)c->mode, (int)c->n_tok, c->has_factor, c->has_shared_rope);
    kv_scene_init(&scene, &desc, 1, &len, 0, seed);
    float *qkv = op_random_floats(seed, (size_t)(c->dim * (N_HEAD + 2 * N_HEAD_KV) * c->n_tok), 1);
    float *factor = op_random_floats(seed, (size_t)c->n_rot / 2 + 1, 0.5f);
    for (int32_t i = 0; i < c->n_rot / 2; i++) factor[i] += 1;
    uint64_t page_size = 0;
    gpu_target target = fusion_target(false);
    tdm_error err = {0};
    if (gpu_page_size(&target, &desc, &page_size, &err) != TDM_OK) fail_msg("%s", err.message);
    rope_graph g = rope_graph_make(c, &scene, page_size);
    fusion_check_saved(label, g.graph, c->has_shared_rope ? 1 : 2);
    tdm_graph_free(g.graph);
    for (int r = 0; r < 3 && fusion_rigs.fused != NULL; r++) {
        o[r] = op_memory(n_o * sizeof **o);
        k_row[r] = op_memory(n_k * sizeof **k_row);
        rope_run(c, &scene, rigs[r], qkv, factor, o[r], k_row[r]);
    }
    if (fusion_rigs.fused != NULL) {
        fusion_check_near(label, "rows against the CPU", k_row[1], k_row[0], n_k, c->bound);
        fusion_check_near(label, "rows, fused", k_row[2], k_row[1], n_k, c->bound);
        fusion_check_near(label, "o against the CPU", o[1], o[0], n_o, c->bound);
        fusion_check_near(label, "o, fused", o[2], o[1], n_o, c->bound);
    }
    for (int r = 0; r < 3 && fusion_rigs.fused != NULL; r++) {
        free(o[r]);
        free(k_row[r]);
    }
    free(qkv);
    free(factor);
    kv_scene_free(&scene);
}

static void ropes(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    /* A code of a quantised row may fall to the other side of a step. */
    static const rope_case cases[] = {
        {TDM_TYPE_F32, TDM_TYPE_F32, 64, 64, 0, 0, 1, false, false, 1e-10},
        {TDM_TYPE_F32, TDM_TYPE_F32, 64, 64, 0, 1, 5, false, false, 1e-10},
        {TDM_TYPE_F32, TDM_TYPE_F32, 66, 34, 20, 0, 3, true, false, 1e-10},
        {TDM_TYPE_F32, TDM_TYPE_F16, 96, 32, 64, 1, 8, true, false, 1e-6},
        {TDM_TYPE_F16, TDM_TYPE_F16, 128, 128, 0, 0, 4, false, false, 1e-6},
        {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 64, 64, 0, 1, 2, false, false, 1e-4},
        {TDM_TYPE_IQ4_NL, TDM_TYPE_Q8_0, 80, 40, 0, 0, 1, false, false, 1e-2},
        {TDM_TYPE_F32, TDM_TYPE_F32, 64, 64, 0, 0, 2, false, true, 1e-10},
    };
    for (size_t i = 0; i < OP_COUNT_OF(cases); i++) rope_check(&cases[i], &seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_norm), cmocka_unit_test(ropes),   cmocka_unit_test(norm_rows),
        cmocka_unit_test(acts),     cmocka_unit_test(streams), cmocka_unit_test(stream_sums),
        cmocka_unit_test(affine),
    };
    return cmocka_run_group_tests(tests, fusion_rigs_open, fusion_rigs_close);
}
