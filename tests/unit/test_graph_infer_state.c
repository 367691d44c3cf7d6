/* SPDX-License-Identifier: MIT
 *
 * test_graph_infer_state.c: the inference rules of ops on recurrent states and strided caches, and
 * the checks of cache descriptions. Other ops: test_graph_infer.c.
 */
#include <math.h>

#include "core/base/op_state.h"
#include "core/graph/op_rules.h"
#include "infer_fixture.h"

#define INPUT_OF(...) tdm_build_input(f->b, NULL, F32, NE(__VA_ARGS__))

/* Units of two channels, or of one matrix of 4 x 8; dk of a scan, else 0. */
static int32_t slots_with(fixture *f, int32_t n_unit, int32_t len, int32_t dk, uint32_t flags,
                          int32_t *kv) {
    tdm_kv_desc d = {.struct_size = sizeof d,
                     .type_k = TDM_TYPE_F32,
                     .type_v = TDM_TYPE_F32,
                     .head_dim_k = len,
                     .head_dim_v = len,
                     .n_head_kv = n_unit,
                     .page_len = 1,
                     .rope_offset = dk,
                     .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | flags};
    return tdm_build_state(f->b, "slots", &d, 4096, 3, kv);
}

static int32_t slots(fixture *f, int32_t n_unit, int32_t len, int32_t *kv) {
    return slots_with(f, n_unit, len, 0, 0, kv);
}

static int32_t convolve(fixture *f, tdm_conv_params p, int64_t n_ch, int64_t k, int64_t n_w) {
    int32_t state = slots(f, 3, 6, &p.kv);
    return tdm_build_conv1d(f->b, INPUT_OF(n_ch, 5, 1, 1), INPUT_OF(k, n_w, 1, 1), -1, f->step,
                            state, &p);
}

static int32_t scan(fixture *f, tdm_scan_params p, int64_t dk, int64_t n_k, int64_t n_v,
                    int64_t ng) {
    int32_t state = slots_with(f, 4, 32, 4, 0, &p.kv);
    tdm_scan_sources s = {INPUT_OF(dk, n_k, 5, 1),
                          INPUT_OF(dk, n_k, 5, 1),
                          INPUT_OF(8, n_v, 5, 1),
                          INPUT_OF(ng, n_v, 5, 1),
                          -1,
                          INPUT_OF(1, n_v, 5, 1)};
    return tdm_build_linear_scan(f->b, &s, f->step, state, &p);
}

/* A scan with erase and write of ne[2] elements and types; 0 elements = absent. */
static int32_t scan_erased(fixture *f, uint32_t flags, tdm_type type, const int64_t ne[2],
                           bool has_beta) {
    tdm_scan_params p = {.heads_per_k = 2};
    int32_t state = slots_with(f, 4, 32, 4, flags, &p.kv), pair[2] = {-1, -1};
    const tdm_scan_sources s = {.q = INPUT_OF(4, 2, 5, 1),
                                .k = INPUT_OF(4, 2, 5, 1),
                                .v = INPUT_OF(8, 4, 5, 1),
                                .g = INPUT_OF(4, 4, 5, 1),
                                .a = -1,
                                .beta = has_beta ? INPUT_OF(1, 4, 5, 1) : -1};
    for (int i = 0; i < 2; i++)
        if (ne[i] > 0) pair[i] = tdm_build_input(f->b, NULL, type, NE(ne[i], 2, 5, 1));
    return tdm_build_linear_scan_erased(f->b, &s, pair[0], pair[1], f->step, state, &p);
}

static void test_recurrent_erased(void **state) {
    const uint32_t erased = TDM_KV_ERASED;
    (void)state;
#define PAIR(a, b) ((const int64_t[2]){a, b})
    GOOD(F32, 8, 4, 5, 1, scan_erased(&f, erased, F32, PAIR(4, 4), false));
    BAD("erase must have shape [4, 2, 5", scan_erased(&f, erased, F32, PAIR(1, 4), false));
    BAD("write must have shape [4, 2, 5", scan_erased(&f, erased, F32, PAIR(4, 3), false));
    BAD("erase must be f32", scan_erased(&f, erased, TDM_TYPE_I32, PAIR(4, 4), false));
    BAD("erase is absent, but", scan_erased(&f, erased, F32, PAIR(0, 4), false));
    BAD("write is absent, but", scan_erased(&f, erased, F32, PAIR(4, 0), false));
    BAD("erase is there, but", scan_erased(&f, 0, F32, PAIR(4, 4), false));
    BAD("write is there, but", scan_erased(&f, 0, F32, PAIR(0, 4), false));
    BAD("erase and beta exclude", scan_erased(&f, erased, F32, PAIR(4, 4), true));
#undef PAIR
    BAD("is TDM_KV_ERASED", tdm_conv_params p = {.n_segment = 1}; p.unit_len[0] = 2;
        int32_t s = slots_with(&f, 3, 6, 0, erased, &p.kv);
        tdm_build_conv1d(f.b, INPUT(6, 5, 1, 1), INPUT(4, 6, 1, 1), -1, f.step, s, &p));
}

static void test_recurrent(void **state) {
    const tdm_conv_params two = {.n_segment = 1, .unit_len = {2}};
    const tdm_scan_params grouped = {.heads_per_k = 2};
    (void)state;
    GOOD(F32, 6, 5, 1, 1, convolve(&f, two, 6, 4, 6));
#define CONV_BAD(text, change, ...)                                                                \
    BAD(text, tdm_conv_params p = two; change; convolve(&f, p, __VA_ARGS__))
    CONV_BAD("w must have shape [*, 6]", (void)0, 6, 4, 5);
    CONV_BAD("3 units of 2 channels, x has 7", (void)0, 7, 4, 7);
    CONV_BAD("a unit of the state has 6", (void)0, 6, 3, 6);
    CONV_BAD("k = 1", (void)0, 6, 1, 6);
    CONV_BAD("n_segment = 9", p.n_segment = 9, 6, 4, 6);
    CONV_BAD("unit_len = 1 is not in 0 .. 0", p.unit_len[1] = 1, 6, 4, 6);
    BAD("has rope_offset = 4, not 0", tdm_conv_params p = two;
        int32_t s = slots_with(&f, 3, 6, 4, 0, &p.kv);
        tdm_build_conv1d(f.b, INPUT(6, 5, 1, 1), INPUT(4, 6, 1, 1), -1, f.step, s, &p));
    BAD("has tokens, not slots", tdm_conv_params p = two; p.kv = f.kv;
        tdm_build_conv1d(f.b, INPUT(6, 5, 1, 1), INPUT(4, 6, 1, 1), -1, f.step, f.state, &p));

    GOOD(F32, 8, 4, 5, 1, scan(&f, grouped, 4, 2, 4, 1));
    GOOD(F32, 8, 4, 5, 1, scan(&f, grouped, 4, 2, 4, 4));
#define SCAN_BAD(text, change, ...)                                                                \
    BAD(text, tdm_scan_params p = grouped; change; scan(&f, p, __VA_ARGS__))
    SCAN_BAD("g must have shape [4, 4, 5]", (void)0, 4, 2, 4, 3);
    SCAN_BAD("5 heads of v in 4 units", (void)0, 4, 3, 5, 1);
    SCAN_BAD("a unit of the state has 32", (void)0, 5, 2, 4, 1);
    SCAN_BAD("a unit of the state has 32", (void)0, 1 << 20, 2, (int64_t)1 << 42, 1);
    SCAN_BAD("has rope_offset = 4, not dk = 2", (void)0, 2, 4, 8, 1);
    SCAN_BAD("read 0 .. 1 of 0 .. 0", (void)0, 4, 1, 4, 1);
    SCAN_BAD("read 1 .. 2 of", p.first_head = 2, 4, 2, 4, 1);
    SCAN_BAD("heads_per_k = 0", p.heads_per_k = 0, 4, 2, 4, 1);
    SCAN_BAD("is_tiled = 2", p.is_tiled = 2, 4, 2, 4, 1);
    SCAN_BAD("tiled: 4 heads of v", p.is_tiled = 1, 4, 2, 4, 1);
    SCAN_BAD("scale = nan", p.scale = NAN, 4, 2, 4, 1);
    BAD("slots of recurrent states, not tokens", int32_t kv; int32_t s = slots(&f, 2, 16, &kv);
        tdm_build_kv_write(f.b, f.k, -1, f.step, s, kv));
}

/* Two parts of three channels, or what `change` made of them. */
typedef struct pooling {
    tdm_pool_params params;
    uint32_t flags;
    int32_t n_unit, unit_len;
    int64_t n_x[2], n_score[2], n_bias[3];
    tdm_type type[3];
} pooling;

static const pooling two_parts = {.params = {.n_part = 2},
                                  .flags = TDM_KV_POOLED,
                                  .n_unit = 1,
                                  .unit_len = 18,
                                  .n_x = {6, 5},
                                  .n_score = {6, 5},
                                  .n_bias = {6, 4, 1},
                                  .type = {F32, F32, F32}};

static int32_t pool(fixture *f, pooling q) {
    int32_t state = slots_with(f, q.n_unit, q.unit_len, 0, q.flags, &q.params.kv);
    int32_t x = tdm_build_input(f->b, NULL, q.type[0], NE(q.n_x[0], q.n_x[1], 1, 1));
    int32_t score = tdm_build_input(f->b, NULL, q.type[1], NE(q.n_score[0], q.n_score[1], 1, 1));
    int32_t bias =
        tdm_build_input(f->b, NULL, q.type[2], NE(q.n_bias[0], q.n_bias[1], q.n_bias[2], 1));
    return tdm_build_block_pool(f->b, x, score, bias, f->step, state, &q.params);
}

static void test_block_pool(void **state) {
    pooling one = two_parts, alike = two_parts;
    (void)state;
    one.params.n_part = 1;
    alike.n_score[0] = alike.n_score[1] = alike.n_bias[0] = 1;
    GOOD(F32, 3, 5, 1, 1, pool(&f, two_parts));
    GOOD(F32, 6, 5, 1, 1, pool(&f, one));
#define POOL_BAD(text, ...) BAD(text, pooling q = two_parts; __VA_ARGS__; pool(&f, q))
    POOL_BAD("n_part = 0", q.params.n_part = 0);
    POOL_BAD("n_part = 3", q.params.n_part = 3);
    POOL_BAD("x must be f32", q.type[0] = I32);
    POOL_BAD("score must be f32", q.type[1] = I32);
    POOL_BAD("bias must be f32", q.type[2] = I32);
    POOL_BAD("x must have shape [6, 5", q.n_x[1] = 4);
    POOL_BAD("score must have shape [6, 5", q.n_score[0] = 3);
    POOL_BAD("score must have shape [6, 5", q.n_score[1] = 2);
    POOL_BAD("bias must have shape [6, *", q.n_bias[0] = 3);
    GOOD(F32, 3, 5, 1, 1, pool(&f, alike));
    POOL_BAD("bias must have shape [6, *", q.n_bias[2] = 2);
    POOL_BAD("block_len = 0", q.n_bias[1] = 0);
    POOL_BAD("5 rows of x are no 2 equal parts", q.n_x[0] = q.n_score[0] = q.n_bias[0] = 5,
             q.unit_len = 15);
    POOL_BAD("a slot of 1 x 17 floats, expected 1 x 18", q.unit_len = 17);
    POOL_BAD("a slot of 2 x 9 floats", q.n_unit = 2, q.unit_len = 9);
    POOL_BAD("is not TDM_KV_POOLED", q.flags = 0);
    POOL_BAD("is not TDM_KV_POOLED", q.flags = TDM_KV_ERASED);
    BAD("has tokens, not slots", tdm_pool_params p = two_parts.params; p.kv = f.kv;
        tdm_build_block_pool(f.b, INPUT(6, 5, 1, 1), INPUT(6, 5, 1, 1), INPUT(6, 4, 1, 1), f.step,
                             f.state, &p));
    BAD("is TDM_KV_POOLED", tdm_conv_params p = {.n_segment = 1}; p.unit_len[0] = 2;
        int32_t s = slots_with(&f, 3, 6, 0, TDM_KV_POOLED, &p.kv);
        tdm_build_conv1d(f.b, INPUT(6, 5, 1, 1), INPUT(4, 6, 1, 1), -1, f.step, s, &p));
    BAD("is TDM_KV_POOLED", const int64_t none[2] = {0};
        scan_erased(&f, TDM_KV_POOLED, F32, none, false));
}

static int32_t strided(fixture *f, uint32_t flags, int32_t *kv) {
    tdm_kv_desc d = fixture_kv_desc();
    d.flags |= TDM_KV_STRIDED | flags;
    d.stride = 4;
    if ((flags & TDM_KV_V_FROM_K) != 0) d.type_v = d.type_k, d.n_head_kv = 1;
    return tdm_build_state(f->b, "strided", &d, 500, 7, kv);
}

static int32_t attend_strided(fixture *f, const tdm_attention_params *params) {
    tdm_attention_params p = *params;
    int32_t state = strided(f, 0, &p.kv), sink = INPUT_OF(FIX_HEADS, 1, 1, 1);
    return tdm_build_attention(f->b, f->q, f->step, state, sink, &p, NULL);
}

static int32_t write_strided(fixture *f) {
    int32_t kv, state = strided(f, 0, &kv);
    tdm_build_kv_write(f->b, f->k, f->k, f->step, state, kv);
    tdm_build_kv_copy(f->b, f->step, state, kv);
    return f->k;
}

static int32_t export_strided(fixture *f) {
    int32_t kv, v, state = strided(f, 0, &kv);
    return tdm_build_kv_export(f->b, f->step, state, kv, 9, &v);
}

static int32_t choose_strided(fixture *f) {
    tdm_select_params top = {.n_top = 7};
    int32_t state = strided(f, TDM_KV_SPARSE | TDM_KV_V_FROM_K, &top.kv);
    return tdm_build_kv_select(f->b, f->q, INPUT_OF(FIX_HEADS, 5, 1, 1), f->step, state, &top);
}

static void shift_strided(fixture *f) {
    const tdm_rope_params rope = fixture_rope();
    int32_t kv, state = strided(f, 0, &kv);
    tdm_build_kv_shift(f->b, f->step, state, -1, kv, &rope);
}

static int32_t attend_plain(fixture *f) {
    const tdm_attention_params p = fixture_attention(f);
    return attend_strided(f, &p);
}

static void test_strided(void **state) {
    (void)state;
    GOOD(F32, 16, 4, 5, 1, attend_plain(&f));
    GOOD(F32, 16, 2, 5, 1, write_strided(&f));
    GOOD(TDM_TYPE_Q8_0, 32, 2, 9, 1, export_strided(&f));
    GOOD(I32, 7, 5, 1, 1, choose_strided(&f));
    BAD("is TDM_KV_STRIDED", shift_strided(&f));
#define STRIDED_BAD(...)                                                                           \
    BAD("is TDM_KV_STRIDED: attention is causal, without a window, slopes or a temperature",       \
        tdm_attention_params p = fixture_attention(&f);                                            \
        __VA_ARGS__; attend_strided(&f, &p))
    STRIDED_BAD(p.is_causal = 0);
    STRIDED_BAD(p.window = 3);
    STRIDED_BAD(p.alibi_max_bias = 8);
    STRIDED_BAD(p.temperature_scale = 0.5f, p.temperature_length = 4);
}

static void desc_with(fixture *f, tdm_kv_desc desc) {
    int32_t kv;
    tdm_build_state(f->b, "other", &desc, 64, 1, &kv);
}

static void test_descriptions(void **state) {
    (void)state;
#define DESC_BAD(text, ...)                                                                        \
    BAD(text, tdm_kv_desc d = fixture_kv_desc(); __VA_ARGS__; desc_with(&f, d))
    DESC_BAD("has recurrent states", d.flags |= TDM_KV_RECURRENT);
    DESC_BAD("type_k is q4_K", d.type_k = TDM_TYPE_Q4_K);
    DESC_BAD("type_v is ?", d.type_v = (tdm_type)4);
    DESC_BAD("page_len = 48", d.page_len = 48);
    DESC_BAD("page_len = -64", d.page_len = -64);
    DESC_BAD("head_dim_k = 0", d.head_dim_k = 0);
    DESC_BAD("head_dim_v", d.head_dim_v = INT32_MAX);
    DESC_BAD("n_head_kv", d.n_head_kv = -1);
    DESC_BAD("n_rot = 15 is odd", d.n_rot = 15);
    DESC_BAD("n_rot = 32", d.n_rot = 32);
    DESC_BAD("rope_offset", d.rope_offset = 8);
    DESC_BAD("flags", d.flags = 1024);
    DESC_BAD("is TDM_KV_ERASED, but has no", d.flags |= TDM_KV_ERASED);
    DESC_BAD("cannot be TDM_KV_BIASED",
             d.flags = TDM_KV_RECURRENT | TDM_KV_BIASED | TDM_KV_V_FROM_K,
             d.type_k = d.type_v = F32, d.page_len = 1, d.n_rot = 0, d.head_dim_v = d.head_dim_k);
    DESC_BAD("cannot be TDM_KV_STRIDED",
             d.flags = TDM_KV_RECURRENT | TDM_KV_STRIDED | TDM_KV_V_FROM_K,
             d.type_k = d.type_v = F32, d.page_len = 1, d.n_rot = 0, d.head_dim_v = d.head_dim_k,
             d.stride = 4);
    DESC_BAD("is TDM_KV_POOLED, but has no", d.flags |= TDM_KV_POOLED);
    DESC_BAD("TDM_KV_ERASED and TDM_KV_POOLED exclude",
             d.flags = TDM_KV_RECURRENT | TDM_KV_ERASED | TDM_KV_POOLED | TDM_KV_V_FROM_K,
             d.type_k = d.type_v = F32, d.page_len = 1, d.n_rot = 0, d.head_dim_v = d.head_dim_k);
    DESC_BAD("stride = 4, expected", d.stride = 4);
    DESC_BAD("stride = 1, expected", d.stride = 1);
    DESC_BAD("stride = 1, expected", d.stride = 1, d.flags |= TDM_KV_STRIDED);
    DESC_BAD("stride = 0, expected", d.flags |= TDM_KV_STRIDED);
    DESC_BAD("stride = -4 is not in", d.flags |= TDM_KV_STRIDED, d.stride = -4);
    DESC_BAD("stride = 1048577 is not in", d.flags |= TDM_KV_STRIDED, d.stride = 1048577);
    DESC_BAD("TDM_KV_STRIDED: it cannot be TDM_KV_BIASED",
             d.flags |= TDM_KV_STRIDED | TDM_KV_BIASED, d.stride = 4);
    DESC_BAD("reserved = 1", d.reserved = 1);
    DESC_BAD("cls = 4", d.cls = 4);
    DESC_BAD("type_v cannot be q4_0", d.flags = TDM_KV_V_FROM_K);
    DESC_BAD("head_dim_v = 17", d.flags = TDM_KV_V_FROM_K, d.type_v = d.type_k, d.head_dim_v = 17);
    DESC_BAD("both or none", d.flags = TDM_KV_V_FROM_K | TDM_KV_ROTATE_K, d.type_v = d.type_k);
    BAD("class 1; the step block has 1", tdm_kv_desc d = fixture_kv_desc(); int32_t kv; d.cls = 1;
        int32_t s = tdm_build_state(f.b, "s", &d, 64, 1, &kv);
        tdm_build_kv_copy(f.b, f.step, s, kv));
}

/* What follows from the rows of the ops: which use a STATE, where, and which change it. An op
 * without a destination has nothing else to change. */
static void test_state_ops(void **state) {
    static const int32_t readers[] = {TDM_OP_ATTENTION, TDM_OP_KV_SELECT, TDM_OP_KV_EXPORT};
    (void)state;
    for (int32_t op = -1; op <= TDM_OP_COUNT_; op++) {
        const tdm_op_rule *rule = tdm_op_rule_get(op);
        const bool has_state = rule != NULL && rule->state_src != 0;
        tdm_node node = {.op = op};
        bool only_reads = false;
        for (int i = 0; i < TDM_MAX_SRC; i++) node.src[i] = 100 + i;
        for (int i = 0; i < 3; i++) only_reads |= op == readers[i];
        assert_int_equal(tdm_op_writes_state(op), has_state && !only_reads);
        if (has_state && rule->n_dst == 0) assert_true(tdm_op_writes_state(op));
        assert_int_equal(tdm_op_uses_kv(op), has_state && op != TDM_OP_EXCHANGE);
        if (has_state)
            assert_int_equal(rule->state_src >> (tdm_op_state(&node) - 100) & 1, 1);
        else
            assert_int_equal(tdm_op_state(&node), -1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recurrent),    cmocka_unit_test(test_recurrent_erased),
        cmocka_unit_test(test_block_pool),   cmocka_unit_test(test_strided),
        cmocka_unit_test(test_descriptions), cmocka_unit_test(test_state_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
