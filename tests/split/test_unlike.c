/* SPDX-License-Identifier: MIT
 *
 * test_unlike.c: members that round differently: the CPU's reference path beside its fast one,
 * plain kernels beside vector ones. The error of such a group against the reference path is at
 * most twice that of its worst member alone; `check = replicas` compares replicated values
 * meanwhile. Only members with the same kernels count as alike.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/split/group_rig.h"
#include "core/stages/schedule_internal.h"

/* A small Llama: grouped heads, a quantised cache, a head cut by vocabulary. */
enum {
    N_LAYER = 4,
    N_EMBD = 256,
    N_HEAD = 8,
    N_HEAD_KV = 2,
    HEAD_DIM = 32,
    N_FF = 512,
    N_VOCAB = 320,
    PAGE_LEN = 8,
    N_PAGE = 6,
    PROMPT = 12,
    N_STEP = 8, /* tokens after the prompt */
    SUBS = N_HEAD / N_HEAD_KV
};

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error ok_err = {0}, *err = &ok_err;                                                    \
        if ((call) != TDM_OK) fail_msg("%s", ok_err.message);                                      \
    } while (0)

/* ---- The network ---- */

static const tdm_kv_desc cache = {.struct_size = sizeof cache,
                                  .type_k = TDM_TYPE_Q8_0,
                                  .type_v = TDM_TYPE_Q8_0,
                                  .head_dim_k = HEAD_DIM,
                                  .head_dim_v = HEAD_DIM,
                                  .n_head_kv = N_HEAD_KV,
                                  .page_len = PAGE_LEN,
                                  .n_rot = HEAD_DIM};

static int32_t weight(tdm_builder *b, const char *name, int32_t layer, int64_t k, int64_t n,
                      const tdm_partition *cut, int32_t axis) {
    char text[24];
    snprintf(text, sizeof text, "%s.%d", name, (int)layer);
    int32_t w =
        tdm_build_weight(b, text, TDM_TYPE_Q8_0, (const int64_t[]){k, n, 1, 1}, TDM_USAGE_MATMUL);
    if (cut != NULL) tdm_build_set_partition(b, w, tdm_build_partition(b, cut), axis);
    return w;
}

static int32_t norm(tdm_builder *b, const char *name, int32_t layer, int32_t x) {
    char text[24];
    snprintf(text, sizeof text, "%s.%d", name, (int)layer);
    int32_t w = tdm_build_weight(b, text, TDM_TYPE_F32, (const int64_t[]){N_EMBD, 1, 1, 1}, 0);
    return tdm_build_rms_norm(b, x, w, 1e-5f);
}

/* whole: K and V are in every member's cache, computed from weights that are not cut. */
static int32_t attention(tdm_builder *b, int32_t x, int32_t l, int32_t n_tok, int32_t step,
                         uint64_t page_size, bool is_whole) {
    const tdm_rope_params turn = {.n_rot = HEAD_DIM};
    tdm_partition heads = {.id = 10 + l,
                           .layer = l,
                           .n_unit = N_HEAD_KV,
                           .n_segment = 1,
                           .unit_len = {SUBS * HEAD_DIM},
                           .n_sub = SUBS};
    tdm_partition kv_heads = heads;
    char name[16];
    int32_t kv = 0, pos = tdm_build_step_field(b, TDM_STEP_POS);
    const tdm_partition *cut = is_whole ? NULL : &kv_heads;
    kv_heads.unit_len[0] = HEAD_DIM;
    kv_heads.whole_segments = 1;
    snprintf(name, sizeof name, "cache.%d", (int)l);
    int32_t state = tdm_build_state(b, name, &cache, page_size, N_PAGE, &kv);
    if (cut != NULL) tdm_build_set_partition(b, state, tdm_build_partition(b, cut), 0);
    x = norm(b, "norm", l, x);
    int32_t q = tdm_build_matmul(b, weight(b, "q", l, N_EMBD, N_EMBD, &heads, 1), x);
    int32_t k = tdm_build_matmul(b, weight(b, "k", l, N_EMBD, N_HEAD_KV * HEAD_DIM, cut, 1), x);
    int32_t v = tdm_build_matmul(b, weight(b, "v", l, N_EMBD, N_HEAD_KV * HEAD_DIM, cut, 1), x);
    q = tdm_build_rope(b, tdm_build_reshape(b, q, HEAD_DIM, N_HEAD, n_tok, 1), pos, -1, &turn);
    k = tdm_build_rope(b, tdm_build_reshape(b, k, HEAD_DIM, N_HEAD_KV, n_tok, 1), pos, -1, &turn);
    tdm_build_kv_write(b, k, tdm_build_reshape(b, v, HEAD_DIM, N_HEAD_KV, n_tok, 1), step, state,
                       kv);
    const tdm_attention_params params = {
        .kv = kv, .heads_per_kv = SUBS, .n_head_all = N_HEAD, .is_causal = 1};
    int32_t o = tdm_build_attention(b, q, step, state, -1, &params, NULL);
    return tdm_build_matmul(b, weight(b, "o", l, N_EMBD, N_EMBD, &heads, 0),
                            tdm_build_reshape(b, o, N_EMBD, n_tok, 1, 1));
}

static int32_t feed_forward(tdm_builder *b, int32_t x, int32_t l) {
    const tdm_partition cut = {
        .id = 30 + l, .layer = l, .n_unit = N_FF, .n_segment = 1, .unit_len = {1}};
    x = norm(b, "ffn_norm", l, x);
    int32_t gate = tdm_build_matmul(b, weight(b, "gate", l, N_EMBD, N_FF, &cut, 1), x);
    int32_t up = tdm_build_matmul(b, weight(b, "up", l, N_EMBD, N_FF, &cut, 1), x);
    return tdm_build_matmul(b, weight(b, "down", l, N_FF, N_EMBD, &cut, 0),
                            tdm_build_glu(b, gate, up, TDM_ACT_SILU));
}

static tdm_graph *network_make(int32_t n_tok, uint64_t page_size, bool is_whole) {
    const tdm_partition vocab = {
        .id = 50, .layer = -1, .n_unit = N_VOCAB, .n_segment = 1, .unit_len = {1}};
    const tdm_step_caps caps = {
        .n_tok = n_tok, .n_seq = 1, .n_out = n_tok, .n_entry = N_PAGE, .n_class = 1};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(tdm_builder_create(&b, err));
    int32_t step = tdm_build_step(b, &caps);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){N_EMBD, n_tok, 1, 1});
    for (int32_t l = 0; l < N_LAYER; l++) {
        x = tdm_build_add(b, x, attention(b, x, l, n_tok, step, page_size, is_whole));
        x = tdm_build_add(b, x, feed_forward(b, x, l));
    }
    x = norm(b, "last", 0, x);
    x = tdm_build_matmul(b, weight(b, "head", 0, N_EMBD, N_VOCAB, &vocab, 1), x);
    tdm_build_output(b, x, "logits");
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    return graph;
}

/* ---- Numbers ---- */

static float number(uint64_t *random) { /* -1 .. 1 */
    return (float)((double)(int64_t)random_u64(random) / 9.3e18);
}

static void *weight_bytes(void *context, const tdm_graph *graph, int32_t value) {
    const tdm_value *v = tdm_graph_value(graph, value);
    int64_t n = tdm_shape_count(v->ne);
    const char *name = tdm_graph_value_name(graph, value);
    uint64_t random = 1;
    (void)context;
    while (*name != '\0') random = random * 131 + (uint64_t)*name++;
    float *x = malloc((size_t)n * sizeof *x);
    if (x == NULL || v->type == TDM_TYPE_F32) {
        for (int64_t i = 0; x != NULL && i < n; i++) x[i] = 1 + number(&random) / 4;
        return x;
    }
    for (int64_t i = 0; i < n; i++) x[i] = number(&random) * sqrtf(3.0f / (float)v->ne[0]);
    void *bytes = malloc(tdm_tensor_canonical_size((tdm_type)v->type, v->ne));
    if (bytes != NULL) tdm_row_quantize((tdm_type)v->type, x, bytes, n, NULL);
    free(x);
    return bytes;
}

/* Tokens at positions first .. first+n-1 of the one sequence, in the pages from the last down. */
static int32_t *step_make(int32_t first, int32_t n) {
    const tdm_step_caps caps = {
        .n_tok = n, .n_seq = 1, .n_out = n, .n_entry = N_PAGE, .n_class = 1};
    tdm_step_header h = {0};
    assert_int_equal(tdm_step_layout(&caps, &h, NULL), TDM_OK);
    int32_t *step = calloc((size_t)h.size, sizeof *step), n_page = 0;
    assert_non_null(step);
    h.n_tok = n;
    h.n_seq = 1;
    memcpy(step, &h, sizeof h);
    for (int32_t t = 0; t < n; t++) {
        int32_t pos = first + t;
        step[h.pos_off + t] = pos;
        step[h.cls[0].write_off + t] = (N_PAGE - 1 - pos / PAGE_LEN) * PAGE_LEN + pos % PAGE_LEN;
    }
    for (int32_t at = 0; at < first + n; at += PAGE_LEN, n_page++) {
        int32_t left = first + n - at;
        tdm_page_entry entry = {N_PAGE - 1 - n_page, 0, left < PAGE_LEN ? left : PAGE_LEN, at};
        memcpy(&step[h.cls[0].entry_off + 4 * n_page], &entry, sizeof entry);
    }
    step[h.cls[0].first_entry_off + 1] = n_page;
    return step;
}

/* ---- Running ---- */

enum { N_RUN_TOKEN = PROMPT + N_STEP };
typedef float logits[N_RUN_TOKEN * N_VOCAB];

static void shape_run(group_load *load, tdm_open_device *dev, int32_t first, int32_t n,
                      int32_t n_time, bool is_whole, float *out) {
    uint64_t page_size = 0;
    tdm_schedule *schedule = NULL;
    OK(tdm_open_device_kv_page_size(dev, &cache, &page_size, err));
    OK(group_load_schedule(load, network_make(n, page_size, is_whole), &schedule, err));
    const tdm_graph *graph = schedule->graph;
    int32_t x_value = -1, y_value = -1;
    for (int32_t i = 0; i < graph->n_value; i++) {
        if (strcmp(tdm_graph_value_name(graph, i), "x") == 0) x_value = i;
        if (strcmp(tdm_graph_value_name(graph, i), "logits") == 0) y_value = i;
    }
    for (int32_t time = 0; time < n_time; time++, first += n) {
        static float x[PROMPT * N_EMBD];
        int32_t *step = step_make(first, n);
        for (int32_t t = 0; t < n; t++) {
            uint64_t random = 1000u + (uint64_t)(first + t);
            for (int32_t i = 0; i < N_EMBD; i++) x[t * N_EMBD + i] = number(&random);
        }
        const tdm_io in[2] = {
            {graph->step, step, (uint64_t)((const tdm_step_header *)(void *)step)->size * 4},
            {x_value, x, (uint64_t)n * N_EMBD * sizeof *x}};
        const tdm_io y = {y_value, out, (uint64_t)n * N_VOCAB * sizeof *out};
        OK(tdm_schedule_run(schedule, in, 2, &y, 1, err));
        out += n * N_VOCAB;
        free(step);
    }
    tdm_schedule_destroy(schedule);
}

static void device_run(group_rig *rig, tdm_open_device *dev, bool is_whole, float *out) {
    group_load *load = NULL;
    uint64_t page_size = 64;
    tdm_graph *graph = network_make(1, page_size, is_whole);
    OK(group_load_prepare(rig, dev, graph, err));
    tdm_graph_free(graph);
    OK(tdm_open_device_kv_page_size(dev, &cache, &page_size, err));
    graph = network_make(1, page_size, is_whole);
    OK(group_load_create(rig, dev, graph, weight_bytes, NULL, &load, err));
    tdm_graph_free(graph);
    shape_run(load, dev, 0, PROMPT, 1, is_whole, out);
    shape_run(load, dev, PROMPT, 1, N_STEP, is_whole, out + PROMPT * N_VOCAB);
    group_load_destroy(load);
}

static double rms_error(const float *a, const float *b) {
    double error = 0, power = 0;
    for (int32_t i = 0; i < N_RUN_TOKEN * N_VOCAB; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        power += (double)b[i] * b[i];
    }
    return sqrt(error / power);
}

static group_topology topology(const char *attention, const char *path, const char *odd_path) {
    return (group_topology){.n_member = 3,
                            .shares = {2, 1, 1},
                            .path = path,
                            .odd_path = odd_path,
                            .split = "tensor",
                            .attention = attention,
                            .experts = "hidden",
                            .reduce_type = "f32",
                            .check = "replicas"};
}

static void group_run(const group_topology *t, bool is_whole, float *out, float *single) {
    group_rig *rig = NULL;
    OK(group_rig_open(t, &rig, err));
    if (single != NULL) device_run(rig, group_rig_single(rig), is_whole, single);
    device_run(rig, group_rig_group(rig), is_whole, out);
    if (group_rig_n_warning(rig) != 0) fail_msg("%s", group_rig_warning(rig));
    group_rig_close(rig);
}

/* Errors against the reference path. */
static void test_error(void **state) {
    static const char *const ways[] = {"heads", "replicate", "sequence"};
    static logits truth, fast, group;
    (void)state;
    group_topology t = topology("replicate", "reference", NULL);
    group_run(&t, false, group, truth);
    assert_true(rms_error(group, truth) < 1e-4);
    t = topology("replicate", "fast", NULL);
    group_run(&t, false, group, fast);
    double worst = rms_error(fast, truth);
    assert_true(worst > 1e-4); /* the paths do differ, or nothing is tested */
    for (int i = 0; i < 3; i++)
        for (int turn = 0; turn < 2; turn++)
            for (int is_whole = 0; is_whole < 2; is_whole++) {
                t = turn == 0 ? topology(ways[i], "reference", "fast")
                              : topology(ways[i], "fast", "reference");
                group_run(&t, is_whole, group, NULL);
                double error = rms_error(group, truth);
                printf("attention = %s, %s first, cache %s: error %.2e, of the fast path %.2e\n",
                       ways[i], t.path, is_whole ? "whole" : "cut", error, worst);
                if (!(error <= 2 * worst)) fail_msg("%.3e is more than twice %.3e", error, worst);
            }
}

/* ---- Who is alike ---- */

static int32_t exchanges(group_topology t, bool *has_isa_out) {
    group_rig *rig = NULL;
    tdm_error why = {0};
    tdm_split_report report = {.struct_size = sizeof report, .is_brief = 1};
    if (group_rig_open(&t, &rig, &why) != TDM_OK) {
        *has_isa_out = false;
        return 0;
    }
    tdm_graph *graph = network_make(1, 64, true);
    OK(group_load_prepare(rig, group_rig_group(rig), graph, err));
    OK(tdm_open_device_split_report(group_rig_group(rig), graph, &report, err));
    tdm_graph_free(graph);
    group_rig_close(rig);
    *has_isa_out = true;
    return report.n_exchange;
}

/* Rows that every member keeps are computed by every member where all compute the same bits, and by
 * one for all where not: that takes an exchange for K and V of a layer. */
static void test_alike(void **state) {
    (void)state;
    bool has_isa;
    group_topology t = topology("heads", "fast", NULL);
    int32_t alike = exchanges(t, &has_isa);
    assert_int_equal(alike, 2 * N_LAYER);
    t.odd_threads = 3;
    assert_int_equal(exchanges(t, &has_isa), alike);
    t = topology("heads", "fast", "reference");
    assert_int_equal(exchanges(t, &has_isa), alike + N_LAYER);
    t = topology("heads", "fast", NULL);
    t.odd_isa = "plain";
    int32_t mixed = exchanges(t, &has_isa);
    if (mixed == alike) { /* the best that this machine has is plain */
        t.odd_isa = "avx2";
        (void)exchanges(t, &has_isa);
        assert_false(has_isa);
        printf("skipped: no instruction sets to mix\n");
        return;
    }
    assert_int_equal(mixed, alike + N_LAYER);
}

/* Members of one kind compute equal bits, however many threads they have. */
static void test_threads(void **state) {
    static logits more, one;
    (void)state;
    for (int is_whole = 0; is_whole < 2; is_whole++) {
        group_topology t = topology("replicate", "fast", NULL);
        group_run(&t, is_whole, one, NULL);
        t.odd_threads = 3;
        group_run(&t, is_whole, more, NULL);
        assert_memory_equal(more, one, sizeof one);
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
