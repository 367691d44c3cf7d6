/* SPDX-License-Identifier: MIT
 *
 * test_cache.c: attention of a GPU plugin over contexts that tests/kernels does not reach: 15,000
 * tokens, where drivers that bound the loops of an invocation would end them unnoticed; prompts
 * whose parts are folded in place and over several dispatches; batches of several sequences. What a
 * token gets must be the sums in double over the rows that the cache holds, and the same bits
 * alone, in a prompt, and in a batch.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/kv_scene.h"

#define BOUND 1e-10 /* as of plain kernels in test_attention.c */

/* A device as it is, and one whose loops are bounded to a seventh and which has the kernels of
 * devices with large subgroups. */
enum { N_RIG = 2 };
static op_rig *rigs[N_RIG];

static int open_rigs(void **state) {
    const tdm_option options[] = {{"allow-cpu", "yes"}, {"test-limits", "trips=9000 lanes=no"}};
    const char *plugin = getenv("OP_CASE_PLUGIN");
    (void)state;
    for (int i = 0; i < N_RIG; i++)
        rigs[i] = op_rig_open_plugin(plugin != NULL ? plugin : "vulkan", options, i + 1);
    return 0;
}

static int close_rigs(void **state) {
    (void)state;
    for (int i = 0; i < N_RIG; i++) op_rig_close(rigs[i]);
    return 0;
}

static void *take(size_t n, size_t size) {
    void *memory = calloc(n, size);
    if (memory == NULL) fail_msg("no memory");
    return memory;
}

/* A scene on a device, and what attention over it needs. */
typedef struct stage {
    kv_scene scene;
    op_rig *rig;
    op_state *cache;
    tdm_attention_params params;
    int32_t n_head;
} stage;

static void stage_open(stage *s, op_rig *rig, const tdm_kv_desc *desc, int32_t heads_per_kv,
                       int32_t n_seq, const int32_t *len, int32_t shared) {
    uint64_t seed = 4711;
    *s = (stage){.rig = rig, .n_head = heads_per_kv * desc->n_head_kv};
    s->params = (tdm_attention_params){
        .heads_per_kv = heads_per_kv, .n_head_all = s->n_head, .is_causal = 1};
    kv_scene_init(&s->scene, desc, n_seq, len, shared, &seed);
    s->cache = kv_scene_write(&s->scene, rig, 512);
    kv_scene_learn(&s->scene, rig, s->cache);
}

static void stage_close(stage *s) {
    op_state_destroy(s->cache);
    kv_scene_free(&s->scene);
}

/* Attends for all queries at once; then tokens `alone`, in double and each by itself: near, and the
 * same bits. The step block gives `longest` in the first case alone: by itself a token has parts
 * that no sequence reaches. */
static void attend(stage *s, const kv_query *queries, int32_t n_tok, const int32_t *alone,
                   int n_alone, const char *what) {
    uint64_t seed = 99;
    size_t n_q = (size_t)(s->n_head * s->scene.desc.head_dim_k);
    size_t n_o = (size_t)(s->n_head * s->scene.desc.head_dim_v), n_ml = 2 * (size_t)s->n_head;
    float *q = take(n_q * (size_t)n_tok, sizeof *q), *o = take(n_o * (size_t)n_tok, sizeof *o);
    float *ml = take(n_ml * (size_t)n_tok, sizeof *ml);
    float *want = take(n_o, sizeof *want), *want_ml = take(n_ml, sizeof *want_ml);
    float *single = take(n_o, sizeof *single), *single_ml = take(n_ml, sizeof *single_ml);
    op_random_fill(&seed, q, n_q * (size_t)n_tok, 1);
    kv_scene_run(&s->scene, s->rig, s->cache, &s->params, s->n_head, q, NULL, queries, n_tok, o,
                 ml);
    for (int i = 0; i < n_alone; i++) {
        size_t t = (size_t)alone[i];
        kv_scene_attend(&s->scene, &s->params, s->n_head, q + t * n_q, NULL, queries + t, 1, want,
                        want_ml);
        double error = op_nmse(o + t * n_o, want, n_o);
        if (!(error <= BOUND)) fail_msg("%s: token %d: NMSE %g", what, (int)alone[i], error);
        for (int32_t h = 0; h < s->n_head; h++) {
            float l = ml[t * n_ml + 2 * (size_t)h + 1], l_want = want_ml[2 * h + 1];
            if (!(fabsf(l - l_want) <= 1e-4f * l_want))
                fail_msg("%s: token %d: l = %g, not %g", what, (int)alone[i], (double)l,
                         (double)l_want);
        }
        s->scene.hides_longest = true;
        kv_scene_run(&s->scene, s->rig, s->cache, &s->params, s->n_head, q + t * n_q, NULL,
                     queries + t, 1, single, single_ml);
        s->scene.hides_longest = false;
        if (memcmp(single, o + t * n_o, n_o * sizeof *o) != 0 ||
            memcmp(single_ml, ml + t * n_ml, n_ml * sizeof *ml) != 0)
            fail_msg("%s: token %d alone has other bits", what, (int)alone[i]);
    }
    free(q), free(o), free(ml), free(want), free(want_ml), free(single), free(single_ml);
}

static tdm_kv_desc desc_make(tdm_type type_k, tdm_type type_v, int32_t head_dim,
                             int32_t n_head_kv) {
    return (tdm_kv_desc){.struct_size = sizeof(tdm_kv_desc),
                         .type_k = type_k,
                         .type_v = type_v,
                         .head_dim_k = head_dim,
                         .head_dim_v = head_dim,
                         .n_head_kv = n_head_kv,
                         .flags = TDM_KV_ROTATE_K | TDM_KV_ROTATE_V};
}

static void long_generation(void **state) {
    static const tdm_type pairs[][2] = {{TDM_TYPE_F16, TDM_TYPE_F16},
                                        {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0}};
    const int32_t len = 15000, alone[] = {0, 2};
    (void)state;
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < N_RIG; i++) {
            if (rigs[i] == NULL) continue;
            tdm_kv_desc desc = desc_make(pairs[p][0], pairs[p][1], 64, 2);
            const kv_query queries[] = {{len - 1, 0}, {-1, 0}, {len / 2, 0}};
            stage s;
            stage_open(&s, rigs[i], &desc, 4, 1, &len, 0);
            attend(&s, queries, 3, alone, 2, "generation");
            stage_close(&s);
        }
}

/* More records than are kept: each tile folds its parts in place; on the second device by several
 * dispatches, each of which goes on where the one before ended. */
static void long_prompt(void **state) {
    enum { N_TOK = 320 };
    const int32_t len = 15000, alone[] = {0, 7, N_TOK / 2, N_TOK - 1};
    kv_query queries[N_TOK];
    (void)state;
    for (int32_t t = 0; t < N_TOK; t++) queries[t] = (kv_query){len - N_TOK + t, 0};
    for (int i = 0; i < N_RIG; i++) {
        if (rigs[i] == NULL) continue;
        tdm_kv_desc desc = desc_make(TDM_TYPE_Q8_0, TDM_TYPE_F16, 32, 1);
        stage s;
        stage_open(&s, rigs[i], &desc, 16, 1, &len, 0);
        attend(&s, queries, N_TOK, alone, 4, "prompt");
        if (i == N_RIG - 1) { /* a window is another kernel */
            s.params.window = 4000;
            attend(&s, queries, N_TOK, alone, 4, "prompt with a window");
        }
        stage_close(&s);
    }
}

/* Runs of four sequences, with a prefix in common, in one tile and over its border. */
static void several_sequences(void **state) {
    enum { N_TOK = 60 };
    const int32_t len[] = {700, 640, 333, 1500}, alone[] = {0, 10, 11, 33, 40, N_TOK - 1};
    kv_query queries[N_TOK];
    (void)state;
    for (int32_t t = 0; t < N_TOK; t++) {
        int32_t seq = t < 11 ? 0 : t < 13 ? 1 : t < 40 ? 2 : 3;
        queries[t] = (kv_query){len[seq] - 1 - (t % 5) * 7, seq};
        if (t == 12 || t == 30) queries[t].pos = -1;
    }
    for (int i = 0; i < N_RIG; i++) {
        if (rigs[i] == NULL) continue;
        tdm_kv_desc desc = desc_make(TDM_TYPE_Q5_1, TDM_TYPE_IQ4_NL, 96, 2);
        desc.page_len = i == 0 ? 64 : 16;
        stage s;
        stage_open(&s, rigs[i], &desc, 3, 4, len, 200);
        attend(&s, queries, N_TOK, alone, 6, "several sequences");
        stage_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_generation),
        cmocka_unit_test(long_prompt),
        cmocka_unit_test(several_sequences),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
