/* SPDX-License-Identifier: MIT
 *
 * test_flatten.c: where other systems lose the cut of the heads. A rotation matrix that every
 * member holds is multiplied by each head. One way to write that keeps the axes [head_dim, n_head,
 * n_tok]; another flattens heads and tokens, [head_dim, n_head * n_tok], because a matrix product
 * is of two dimensions, and unfolds again. Both must keep the head cut from the projection to the
 * sum: no gather in between, one exchange in all, and the numbers of one device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/op_run.h"
#include "tests/split/group_rig.h"
#include "tests/split/random_data.h"

enum { N_EMBD = 48, HEAD_DIM = 16, N_HEAD_KV = 6, PER_KV = 2, N_TOK = 5 };
enum { N_HEAD = N_HEAD_KV * PER_KV };

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, err.message);                              \
    } while (0)

/* The parts of the graph that a test checks. */
typedef struct marks {
    int32_t q, rotated, o, out;
} marks;

typedef enum flattening {
    KEPT,    /* [head_dim, n_head, n_tok] throughout */
    FLAT,    /* [head_dim, n_head * n_tok] for the product */
    FLATTER, /* all in one row and back on the way */
    FLATTENINGS_
} flattening;

static const char *const words[] = {"four dimensions kept", "heads and tokens flattened",
                                    "everything flattened"};

static tdm_partition heads(int32_t id, int32_t len) {
    return (tdm_partition){.id = id,
                           .layer = 0,
                           .n_unit = N_HEAD_KV,
                           .n_segment = 1,
                           .unit_len = {len},
                           .n_sub = PER_KV};
}

/* out = x + Wo attention-like(R (Wq x)); an elementwise op replaces attention. */
static tdm_graph *graph_make(flattening how, tdm_type weights, int32_t id, marks *m) {
    tdm_error err = {0};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(tdm_builder_create(&b, &err));
    const int64_t x_ne[] = {N_EMBD, N_TOK, 1, 1}, r_ne[] = {HEAD_DIM, HEAD_DIM, 1, 1};
    const int64_t q_ne[] = {N_EMBD, HEAD_DIM * N_HEAD, 1, 1};
    const int64_t o_ne[] = {HEAD_DIM * N_HEAD, N_EMBD, 1, 1};
    tdm_partition cut = heads(id, HEAD_DIM * PER_KV);
    int32_t partition = tdm_build_partition(b, &cut);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    int32_t rotation = tdm_build_weight(b, "w_rotation", TDM_TYPE_F32, r_ne, TDM_USAGE_MATMUL);
    int32_t wq = tdm_build_weight(b, "wq", TDM_TYPE_F32, q_ne, TDM_USAGE_MATMUL);
    int32_t wo = tdm_build_weight(b, "wo", weights, o_ne, TDM_USAGE_MATMUL);
    tdm_build_set_partition(b, wq, partition, 1);
    tdm_build_set_partition(b, wo, partition, 0);
    int32_t q = tdm_build_matmul(b, wq, x);
    m->q = q;
    if (how == FLATTER) q = tdm_build_reshape(b, q, HEAD_DIM * N_HEAD * N_TOK, 1, 1, 1);
    q = how == KEPT ? tdm_build_reshape(b, q, HEAD_DIM, N_HEAD, N_TOK, 1)
                    : tdm_build_reshape(b, q, HEAD_DIM, N_HEAD * N_TOK, 1, 1);
    q = tdm_build_matmul(b, rotation, q);
    m->rotated = q;
    if (how == FLATTER) q = tdm_build_reshape(b, q, HEAD_DIM * N_HEAD * N_TOK, 1, 1, 1);
    q = tdm_build_reshape(b, q, HEAD_DIM, N_HEAD, N_TOK, 1);
    q = tdm_build_act(b, q, TDM_ACT_TANH);
    q = tdm_build_rms_norm(b, q, -1, 1e-5f);
    int32_t o = tdm_build_reshape(b, q, HEAD_DIM * N_HEAD, N_TOK, 1, 1);
    m->o = o;
    m->out = tdm_build_add(b, x, tdm_build_matmul(b, wo, o));
    tdm_build_output(b, m->out, "out");
    OK(tdm_builder_finish(b, &graph, &err));
    tdm_builder_destroy(b);
    return graph;
}

static void *weight_make(void *context, const tdm_graph *graph, int32_t value) {
    (void)context;
    return random_weight(graph, value, 5, 0);
}

/* Output of the graph on a device; the caller frees it. */
static float *run(group_rig *rig, tdm_open_device *dev, tdm_graph *graph, const marks *m) {
    tdm_error err = {0};
    group_load *load = NULL;
    tdm_schedule *schedule = NULL;
    float *out = malloc(sizeof(float) * N_EMBD * N_TOK);
    void *x = random_input(graph, 0, 5, 0, 1, 0);
    assert_non_null(out);
    assert_non_null(x);
    OK(group_load_create(rig, dev, graph, weight_make, NULL, &load, &err));
    OK(group_load_schedule(load, graph, &schedule, &err));
    const tdm_io in = {0, x, sizeof(float) * N_EMBD * N_TOK};
    const tdm_io result = {m->out, out, sizeof(float) * N_EMBD * N_TOK};
    OK(tdm_schedule_run(schedule, &in, 1, &result, 1, &err));
    tdm_schedule_destroy(schedule);
    group_load_destroy(load);
    free(x);
    return out;
}

/* How the group lays a value of the graph out. */
static tdm_layout layout_of(tdm_open_device *group, const tdm_graph *graph, int32_t value) {
    tdm_error err = {0};
    tdm_plan *plan = NULL;
    const tdm_plugin *plugin = tdm_open_device_plugin(group);
    const tdm_plan_params params = {.struct_size = sizeof params};
    tdm_layout layout = {.struct_size = sizeof layout};
    tdm_queue *queue = NULL;
    OK(plugin->queue->create(tdm_open_device_handle(group), &queue, &err));
    OK(plugin->queue->graph_prepare(queue, graph, &params, &plan, &err));
    OK(plugin->split->split_get(tdm_open_device_handle(group), plan, value, &layout, &err));
    plugin->queue->plan_destroy(plan);
    plugin->queue->destroy(queue);
    return layout;
}

/* Elements of a value that member d holds. */
static int64_t held(const tdm_layout *l, int32_t d) {
    int64_t n = 0;
    for (int32_t s = 0; s < l->n_segment; s++) n += l->segments[s].hi[d] - l->segments[s].lo[d];
    return n * l->inner * l->outer;
}

/* Every member holds its heads of every token, no more. */
static void heads_check(const tdm_layout *l, const group_topology *t, const int32_t *n_kv,
                        const char *what) {
    if (l->kind != TDM_LAYOUT_SPLIT) fail_msg("%s: not split (kind %d)", what, (int)l->kind);
    for (int32_t d = 0; d < t->n_member; d++)
        if (held(l, d) != (int64_t)n_kv[d] * PER_KV * HEAD_DIM * N_TOK)
            fail_msg("%s: member %d holds %lld elements, %d groups of heads are %d", what, (int)d,
                     (long long)held(l, d), (int)n_kv[d],
                     (int)(n_kv[d] * PER_KV * HEAD_DIM * N_TOK));
}

/* Gathers and exchanges of one run. */
static void report_check(group_rig *rig, const tdm_graph *graph, flattening how) {
    tdm_error err = {0};
    tdm_split_report report = {
        .struct_size = sizeof report, .member_size = sizeof(tdm_split_member), .is_brief = 1};
    OK(tdm_open_device_split_report(group_rig_group(rig), graph, &report, &err));
    if (report.n_relayout != 0)
        fail_msg("%s: %d gathers were inserted", words[how], (int)report.n_relayout);
    assert_int_equal(report.n_exchange, 1);
}

static void case_check(group_rig *rig, flattening how, const group_topology *t, const int32_t *n_kv,
                       bool is_reported) {
    tdm_error err = {0};
    marks m;
    tdm_type weights = strcmp(t->path, "fast") == 0 ? TDM_TYPE_Q8_0 : TDM_TYPE_F32;
    tdm_open_device *group = group_rig_group(rig);
    tdm_graph *graph = graph_make(how, weights, 1 + (int32_t)how, &m);
    OK(group_load_prepare(rig, group, graph, &err));
    if (is_reported) report_check(rig, graph, how);
    if (t->n_member > 1) { /* a single member's share is everything */
        tdm_layout q = layout_of(group, graph, m.q), rotated = layout_of(group, graph, m.rotated);
        tdm_layout o = layout_of(group, graph, m.o);
        heads_check(&q, t, n_kv, "projected");
        heads_check(&rotated, t, n_kv, "rotated");
        heads_check(&o, t, n_kv, "flat again");
        /* Reshapes leave a layout as it is, and so does what works on each head. */
        assert_memory_equal(&q, &rotated, sizeof q);
        assert_memory_equal(&q, &o, sizeof q);
    }
    float *many = run(rig, group, graph, &m);
    float *one = run(rig, group_rig_single(rig), graph_make(how, weights, 1, &m), &m);
    double nmse = op_nmse(many, one, N_EMBD * N_TOK);
    if (nmse > 1e-6) fail_msg("%s: NMSE %.1e", words[how], nmse);
    free(many);
    free(one);
}

static void test_heads_stay_cut(void **state) {
    (void)state;
    static const struct {
        group_topology t;
        int32_t n_kv[4];
    } cases[] = {
        {{.n_member = 1, .shares = {1}}, {6}},
        {{.n_member = 2, .shares = {1, 1}}, {3, 3}},
        {{.n_member = 2, .shares = {2, 1}}, {4, 2}},
        {{.n_member = 3, .shares = {3, 2, 1}}, {3, 2, 1}},
        {{.n_member = 4, .shares = {1, 0, 1, 1}}, {2, 0, 2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int path = 0; path < 2; path++) {
            tdm_error err = {0};
            group_rig *rig = NULL;
            group_topology t = cases[i].t;
            t.path = path == 0 ? "reference" : "fast";
            t.split = "tensor";
            t.attention = "replicate";
            t.experts = "hidden";
            t.reduce_type = "f32";
            t.check = "replicas";
            OK(group_rig_open(&t, &rig, &err));
            /* The counts of a report follow from the layouts: those of one group are enough. */
            for (int how = 0; how < FLATTENINGS_; how++)
                case_check(rig, (flattening)how, &t, cases[i].n_kv, path == 1 && i == 2);
            group_rig_close(rig);
        }
}

/* The test finds a gather where there must be one: a matrix that mixes heads cannot be applied to a
 * part of them. */
static void test_gather_is_seen(void **state) {
    (void)state;
    tdm_error err = {0};
    group_rig *rig = NULL;
    const group_topology t = {.n_member = 2,
                              .shares = {1, 1},
                              .path = "fast",
                              .split = "tensor",
                              .attention = "heads",
                              .experts = "hidden",
                              .reduce_type = "f32",
                              .check = "off"};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(group_rig_open(&t, &rig, &err));
    OK(tdm_builder_create(&b, &err));
    tdm_partition cut = heads(1, HEAD_DIM * PER_KV);
    const int64_t x_ne[] = {N_EMBD, N_TOK, 1, 1}, q_ne[] = {N_EMBD, HEAD_DIM * N_HEAD, 1, 1};
    const int64_t m_ne[] = {HEAD_DIM * N_HEAD, 8, 1, 1};
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    int32_t wq = tdm_build_weight(b, "wq", TDM_TYPE_F32, q_ne, TDM_USAGE_MATMUL);
    int32_t mix = tdm_build_weight(b, "wm", TDM_TYPE_F32, m_ne, TDM_USAGE_MATMUL);
    tdm_build_set_partition(b, wq, tdm_build_partition(b, &cut), 1);
    int32_t y = tdm_build_matmul(b, mix, tdm_build_matmul(b, wq, x));
    tdm_build_output(b, y, "out");
    OK(tdm_builder_finish(b, &graph, &err));
    tdm_builder_destroy(b);
    OK(group_load_prepare(rig, group_rig_group(rig), graph, &err));
    tdm_split_report report = {
        .struct_size = sizeof report, .member_size = sizeof(tdm_split_member), .is_brief = 1};
    OK(tdm_open_device_split_report(group_rig_group(rig), graph, &report, &err));
    assert_int_equal(report.n_relayout, 1);
    tdm_graph_free(graph);
    group_rig_close(rig);
}

/* A fused Q, K and V with one KV head over two members. The query heads are cut one by one, K and V
 * stay whole on both, so that their weight is not gathered and one sum is all that crosses. */
static void test_fused_heads_stay_cut(void **state) {
    enum { N_Q = 8 * HEAD_DIM };
    (void)state;
    tdm_error err = {0};
    group_rig *rig = NULL;
    const group_topology t = {.n_member = 2,
                              .shares = {1, 1},
                              .path = "fast",
                              .split = "tensor",
                              .attention = "replicate",
                              .experts = "hidden",
                              .reduce_type = "f32",
                              .check = "off"};
    const tdm_partition fused = {.id = 1,
                                 .n_unit = 1,
                                 .n_segment = 3,
                                 .unit_len = {N_Q, HEAD_DIM, HEAD_DIM},
                                 .n_sub = 8,
                                 .whole_segments = 6};
    const tdm_partition out = {.id = 1, .n_unit = 1, .n_segment = 1, .unit_len = {N_Q}, .n_sub = 8};
    const int64_t x_ne[] = {N_EMBD, N_TOK, 1, 1}, qkv_ne[] = {N_EMBD, N_Q + 2 * HEAD_DIM, 1, 1},
                  o_ne[] = {N_Q, N_EMBD, 1, 1};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(group_rig_open(&t, &rig, &err));
    OK(tdm_builder_create(&b, &err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    int32_t wqkv = tdm_build_weight(b, "wqkv", TDM_TYPE_F32, qkv_ne, TDM_USAGE_MATMUL);
    int32_t wo = tdm_build_weight(b, "wo", TDM_TYPE_F32, o_ne, TDM_USAGE_MATMUL);
    tdm_build_set_partition(b, wqkv, tdm_build_partition(b, &fused), 1);
    tdm_build_set_partition(b, wo, tdm_build_partition(b, &out), 0);
    int32_t qkv = tdm_build_matmul(b, wqkv, x);
    const int64_t q_ne[] = {N_Q, N_TOK, 1, 1}, kv_ne[] = {2 * HEAD_DIM, N_TOK, 1, 1},
                  q_off[] = {0, 0, 0, 0}, kv_off[] = {N_Q, 0, 0, 0};
    int32_t q = tdm_build_slice(b, qkv, q_off, q_ne);
    int32_t kv = tdm_build_slice(b, qkv, kv_off, kv_ne);
    tdm_build_output(b, tdm_build_scale(b, kv, 1, 0), "kv");
    tdm_build_output(b, tdm_build_matmul(b, wo, tdm_build_act(b, q, TDM_ACT_SILU)), "y");
    OK(tdm_builder_finish(b, &graph, &err));
    tdm_builder_destroy(b);
    OK(group_load_prepare(rig, group_rig_group(rig), graph, &err));
    tdm_split_report report = {
        .struct_size = sizeof report, .member_size = sizeof(tdm_split_member), .is_brief = 1};
    OK(tdm_open_device_split_report(group_rig_group(rig), graph, &report, &err));
    assert_int_equal(report.n_relayout, 0);
    assert_int_equal(report.n_exchange, 1);
    tdm_graph_free(graph);
    group_rig_close(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads_stay_cut),
        cmocka_unit_test(test_gather_is_seen),
        cmocka_unit_test(test_fused_heads_stay_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
