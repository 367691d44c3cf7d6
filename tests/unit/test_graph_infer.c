/* SPDX-License-Identifier: MIT
 *
 * test_graph_infer.c: the inference rule of each op through the builder: the shapes of its
 * results, and a message that names the fault for each kind of invalid input. Recurrent states,
 * strided caches and descriptions: test_graph_infer_state.c.
 */
#include <math.h>

#include "infer_fixture.h"

static void test_reshape(void **state) {
    (void)state;
    GOOD(F32, 16, 4, 5, 1, tdm_build_reshape(f.b, f.x, 16, 4, 5, 1));
    GOOD(TDM_TYPE_Q8_0, 32, 64, 1, 1, tdm_build_reshape(f.b, f.plain, 32, 64, 1, 1));
    GOOD(F32, 0, 7, 1, 1, tdm_build_reshape(f.b, INPUT(3, 0, 1, 1), 0, 7, 1, 1));
    /* outer slices are contiguous, and so is a permutation of axes of length 1 */
    GOOD(F32, 128, 1, 1, 1,
         tdm_build_reshape(f.b, tdm_build_slice(f.b, f.x, NE(0, 2, 0, 0), NE(64, 2, 1, 1)), 128, 1,
                           1, 1));
    GOOD(F32, 320, 1, 1, 1,
         tdm_build_reshape(f.b, tdm_build_permute(f.b, f.x, 0, 2, 1, 3), 320, 1, 1, 1));
    BAD("elements", tdm_build_reshape(f.b, f.x, 16, 4, 4, 1));
    BAD("axis 1 has -4", tdm_build_reshape(f.b, f.x, 16, -4, 5, -1));
    BAD("2^48", tdm_build_reshape(f.b, f.x, INT64_MAX, INT64_MAX, 0, 0));
    BAD("whole blocks", tdm_build_reshape(f.b, f.plain, 16, 128, 1, 1));
    BAD("COPY", tdm_build_reshape(f.b, tdm_build_permute(f.b, f.x, 1, 0, 2, 3), 320, 1, 1, 1));
    BAD("COPY", tdm_build_reshape(f.b, tdm_build_slice(f.b, f.x, NE(0, 0, 0, 0), NE(32, 5, 1, 1)),
                                  160, 1, 1, 1));
    BAD("private", tdm_build_reshape(f.b, f.w, 64, 8, 4, 1));
    BAD("STATE", tdm_build_reshape(f.b, f.state, 7000, 1, 1, 1));
    BAD("value -3", tdm_build_reshape(f.b, -3, 7000, 1, 1, 1));
    BAD("absent", tdm_build_reshape(f.b, -1, 7000, 1, 1, 1));
    BAD("value 99", tdm_build_reshape(f.b, 99, 7000, 1, 1, 1));
}

static void test_permute(void **state) {
    (void)state;
    GOOD(F32, 4, 16, 1, 5, tdm_build_permute(f.b, f.q, 1, 0, 3, 2));
    GOOD(F32, 5, 16, 4, 1, tdm_build_permute(f.b, f.q, 1, 2, 0, 3));
    GOOD(TDM_TYPE_Q8_0, 64, 1, 1, 32, tdm_build_permute(f.b, f.plain, 0, 3, 2, 1));
    BAD("permutation", tdm_build_permute(f.b, f.q, 0, 1, 2, 2));
    BAD("permutation", tdm_build_permute(f.b, f.q, 0, 1, 2, 4));
    BAD("permutation", tdm_build_permute(f.b, f.q, -1, 1, 2, 3));
    BAD("blocks", tdm_build_permute(f.b, f.plain, 1, 0, 2, 3));
    BAD("private", tdm_build_permute(f.b, f.w, 0, 1, 2, 3));
}

static void test_slice(void **state) {
    (void)state;
    GOOD(F32, 3, 2, 1, 1, tdm_build_slice(f.b, f.x, NE(61, 3, 0, 0), NE(3, 2, 1, 1)));
    GOOD(F32, 0, 5, 1, 1, tdm_build_slice(f.b, f.x, NE(64, 0, 0, 0), NE(0, 5, 1, 1)));
    GOOD(TDM_TYPE_Q8_0, 32, 3, 1, 1,
         tdm_build_slice(f.b, f.plain, NE(32, 7, 0, 0), NE(32, 3, 1, 1)));
    BAD("outside", tdm_build_slice(f.b, f.x, NE(62, 3, 0, 0), NE(3, 2, 1, 1)));
    BAD("outside", tdm_build_slice(f.b, f.x, NE(-1, 0, 0, 0), NE(3, 2, 1, 1)));
    BAD("outside", tdm_build_slice(f.b, f.x, NE(0, 0, 0, 0), NE(3, -2, 1, 1)));
    BAD("outside", tdm_build_slice(f.b, f.x, NE(0, INT64_MAX, 0, 0), NE(3, INT64_MAX, 1, 1)));
    BAD("block of 32", tdm_build_slice(f.b, f.plain, NE(16, 0, 0, 0), NE(32, 1, 1, 1)));
    BAD("block of 32", tdm_build_slice(f.b, f.plain, NE(32, 0, 0, 0), NE(16, 1, 1, 1)));
    BAD("private", tdm_build_slice(f.b, f.w, NE(0, 0, 0, 0), NE(64, 1, 1, 1)));
}

static void test_movement(void **state) {
    (void)state;
    GOOD(TDM_TYPE_F16, 64, 5, 1, 1, tdm_build_copy(f.b, f.x, TDM_TYPE_F16));
    GOOD(I32, 5, 1, 1, 1, tdm_build_copy(f.b, tdm_build_step_field(f.b, TDM_STEP_POS), I32));
    GOOD(F32, 128, 5, 3, 1, tdm_build_repeat(f.b, f.x, NE(128, 5, 3, 1)));
    GOOD(F32, 64, 0, 1, 1, tdm_build_repeat(f.b, f.x, NE(64, 0, 1, 1)));
    BAD("axis 0 of the result is no multiple", tdm_build_repeat(f.b, f.x, NE(65, 5, 1, 1)));
    BAD("axis 1 of the result is no multiple", tdm_build_repeat(f.b, f.x, NE(64, -5, 1, 1)));
    BAD("axis 1 of the result is no multiple",
        tdm_build_repeat(f.b, INPUT(64, 0, 1, 1), NE(64, 5, 1, 1)));
    BAD("x must be f32", tdm_build_repeat(f.b, f.plain, NE(64, 32, 1, 1)));
    BAD("f16", tdm_build_copy(f.b, f.plain, F32));
    BAD("q8_0", tdm_build_copy(f.b, f.x, TDM_TYPE_Q8_0));
    BAD("ids", tdm_build_copy(f.b, f.x, I32));
    BAD("ids", tdm_build_copy(f.b, f.step, F32));
    BAD("to ?", tdm_build_copy(f.b, f.x, (tdm_type)5));

    GOOD(F32, 64, 10, 1, 1, tdm_build_concat(f.b, f.x, f.x, 1));
    GOOD(F32, 64, 5, 1, 2, tdm_build_concat(f.b, f.x, f.x, 3));
    BAD("axis 1 differs", tdm_build_concat(f.b, f.x, INPUT(64, 4, 1, 1), 0));
    BAD("axis = 4", tdm_build_concat(f.b, f.x, f.x, 4));
    BAD("axis = -1", tdm_build_concat(f.b, f.x, f.x, -1));
    BAD("one type", tdm_build_concat(f.b, f.x, f.step, 0));
    BAD("one type", tdm_build_concat(f.b, f.plain, f.plain, 1));
    BAD("2^48", int32_t big = INPUT((int64_t)1 << 47, 1, 1, 1); tdm_build_concat(f.b, big, big, 0));

    GOOD(F32, 64, 5, 1, 1,
         tdm_build_get_rows(f.b, f.table, tdm_build_step_field(f.b, TDM_STEP_TOKEN), 10));
    GOOD(F32, 64, 2, 1, 1,
         tdm_build_get_rows(f.b, f.x, tdm_build_step_field(f.b, TDM_STEP_OUT_ROW), 0));
    BAD("private", tdm_build_get_rows(f.b, f.w, INPUT_I(3, 1, 1, 1), 0));
    BAD("id must be i32", tdm_build_get_rows(f.b, f.table, INPUT(3, 1, 1, 1), 0));
    BAD("id must have shape [*]", tdm_build_get_rows(f.b, f.table, INPUT_I(3, 2, 1, 1), 0));
    BAD("the table must have shape [*, *]", tdm_build_get_rows(f.b, f.q, INPUT_I(3, 1, 1, 1), 0));
    BAD("first_row = -1", tdm_build_get_rows(f.b, f.table, INPUT_I(3, 1, 1, 1), -1));
    BAD("quantised", tdm_build_get_rows(f.b, f.step, INPUT_I(3, 1, 1, 1), 0));
}

static void test_arithmetic(void **state) {
    (void)state;
    GOOD(F32, 32, 5, 1, 1, tdm_build_matmul(f.b, f.w, f.x));
    GOOD(F32, 32, 5, 2, 3, tdm_build_matmul(f.b, f.plain, INPUT(64, 5, 2, 3)));
    GOOD(F32, 0, 5, 1, 1,
         tdm_build_matmul(
             f.b, tdm_build_weight(f.b, "none", TDM_TYPE_Q8_0, NE(64, 0, 1, 1), TDM_USAGE_MATMUL),
             f.x));
    BAD("w and x differ", tdm_build_matmul(f.b, f.w, INPUT(32, 5, 1, 1)));
    BAD("x must be f32", tdm_build_matmul(f.b, f.w, f.step));
    BAD("private", tdm_build_matmul(f.b, f.table, f.x));
    BAD("private", tdm_build_matmul(f.b, f.w, f.w));
    BAD("w must have shape", tdm_build_matmul(f.b, INPUT(64, 2, 2, 2), f.x));
    GOOD(F32, 7, 5, 2, 3, tdm_build_matmul(f.b, INPUT(64, 7, 5, 1), INPUT(64, 5, 2, 3)));
    GOOD(F32, 7, 0, 2, 1, tdm_build_matmul(f.b, INPUT(64, 7, 0, 1), INPUT(64, 0, 2, 1)));
    BAD("heads (axis 1) differ", tdm_build_matmul(f.b, INPUT(64, 7, 5, 1), INPUT(64, 4, 5, 1)));
    BAD("heads (axis 1) differ", tdm_build_matmul(f.b, INPUT(64, 7, 0, 1), INPUT(64, 4, 5, 1)));
    BAD("STATE", tdm_build_matmul(f.b, f.state, f.x));
#define BY_ROLE(role, w, x) (tdm_build_set_role(f.b, role), tdm_build_matmul(f.b, w, x))
    GOOD(F32, 32, 5, 1, 1, BY_ROLE(tdm_build_step_field(f.b, TDM_STEP_ROLE), f.w, f.x));
    GOOD(F32, 32, 2, 1, 1,
         BY_ROLE(tdm_build_step_field(f.b, TDM_STEP_OUT_ROLE), f.w, INPUT(64, 2, 1, 1)));
    GOOD(F32, 32, 5, 2, 3, BY_ROLE(INPUT_I(3, 1, 1, 1), f.plain, INPUT(64, 5, 2, 3)));
    GOOD(F32, 32, 5, 2, 3, BY_ROLE(INPUT_I(6, 1, 1, 1), f.plain, INPUT(64, 5, 2, 3)));
    GOOD(F32, 32, 5, 2, 3, BY_ROLE(INPUT_I(30, 1, 1, 1), f.plain, INPUT(64, 5, 2, 3)));
    GOOD(F32, 7, 5, 2, 1, BY_ROLE(INPUT_I(2, 1, 1, 1), INPUT(64, 7, 5, 1), INPUT(64, 5, 2, 1)));
    BAD("role must have an element for each token",
        BY_ROLE(INPUT_I(10, 1, 1, 1), INPUT(64, 7, 5, 1), INPUT(64, 5, 2, 1)));
    BAD("role must have an element for each token",
        BY_ROLE(INPUT_I(15, 1, 1, 1), f.plain, INPUT(64, 5, 2, 3)));
    BAD("role must be i32", BY_ROLE(INPUT(5, 1, 1, 1), f.w, f.x));
    BAD("role must have shape", BY_ROLE(INPUT_I(1, 5, 1, 1), f.w, f.x));
    BAD("2^48", tdm_build_matmul(f.b,
                                 tdm_build_weight(f.b, "w2", TDM_TYPE_F16,
                                                  NE(1, (int64_t)1 << 40, 1, 1), TDM_USAGE_MATMUL),
                                 INPUT(1, (int64_t)1 << 40, 1, 1)));

    GOOD(F32, 64, 5, 1, 1, tdm_build_add(f.b, f.x, f.norm));
    GOOD(F32, 64, 5, 1, 1, tdm_build_mul(f.b, f.x, INPUT(1, 5, 1, 1)));
    BAD("axis 1 of b", tdm_build_add(f.b, f.norm, f.x));
    BAD("b must be f32", tdm_build_mul(f.b, f.x, f.step));

    GOOD(F32, 64, 5, 1, 1, tdm_build_scale(f.b, f.x, -2, 0));
    BAD("scale = nan", tdm_build_scale(f.b, f.x, NAN, 0));
    BAD("bias = inf", tdm_build_scale(f.b, f.x, 1, INFINITY));
    GOOD(F32, 64, 5, 1, 1, tdm_build_act(f.b, f.x, TDM_ACT_TANH));
    BAD("act = 99", tdm_build_act(f.b, f.x, (tdm_act)99));
    GOOD(F32, 64, 5, 1, 1, tdm_build_glu(f.b, f.x, f.x, TDM_ACT_SILU));
    BAD("up must have shape", tdm_build_glu(f.b, f.x, INPUT(64, 4, 1, 1), TDM_ACT_SILU));
    GOOD(F32, 64, 5, 1, 1, tdm_build_div(f.b, f.x, INPUT(1, 5, 1, 1)));
    BAD("axis 1 of b", tdm_build_div(f.b, f.x, INPUT(64, 4, 1, 1)));
    GOOD(F32, 64, 5, 1, 1, tdm_build_sqrt(f.b, f.x));
    BAD("x must be f32", tdm_build_sqrt(f.b, f.step));
    GOOD(F32, 64, 5, 1, 1, tdm_build_clamp(f.b, f.x, -INFINITY, 8));
    BAD("min = 2 is not at most max = 1", tdm_build_clamp(f.b, f.x, 2, 1));
    BAD("min = 2 is not at most max = nan", tdm_build_clamp(f.b, f.x, 2, NAN));
    BAD("x must be f32", tdm_build_clamp(f.b, f.step, 0, 1));
    GOOD(F32, 64, 5, 1, 1, tdm_build_softmax(f.b, f.x));
    BAD("x must be f32", tdm_build_softmax(f.b, f.step));
}

static void test_norms(void **state) {
    (void)state;
    GOOD(F32, 64, 5, 1, 1, tdm_build_rms_norm(f.b, f.x, f.norm, 1e-5f));
    GOOD(F32, 64, 5, 1, 1, tdm_build_rms_norm(f.b, f.x, -1, 0));
    BAD("weight must have shape [64]", tdm_build_rms_norm(f.b, f.x, INPUT(32, 1, 1, 1), 0));
    BAD("eps = -1", tdm_build_rms_norm(f.b, f.x, f.norm, -1));
    BAD("eps = nan", tdm_build_rms_norm(f.b, f.x, f.norm, NAN));
    GOOD(F32, 64, 5, 1, 1, tdm_build_layer_norm(f.b, f.x, f.norm, f.norm, 1e-5f));
    GOOD(F32, 64, 5, 1, 1, tdm_build_layer_norm(f.b, f.x, -1, f.norm, 0));
    BAD("bias must have shape [64]", tdm_build_layer_norm(f.b, f.x, -1, INPUT(64, 2, 1, 1), 0));
    BAD("bias must be f32", tdm_build_layer_norm(f.b, f.x, -1, INPUT_I(64, 1, 1, 1), 0));
    BAD("eps = -1", tdm_build_layer_norm(f.b, f.x, f.norm, -1, -1));
    GOOD(F32, 1, 5, 1, 1, tdm_build_sum_sq(f.b, f.x));
    GOOD(F32, 64, 5, 1, 1,
         tdm_build_rms_apply(f.b, f.x, tdm_build_sum_sq(f.b, f.x), f.norm, 1e-5f, 128));
    BAD("sum must have shape [1, 5]", tdm_build_rms_apply(f.b, f.x, f.x, -1, 0, 0));
    BAD("n = 63", tdm_build_rms_apply(f.b, f.x, tdm_build_sum_sq(f.b, f.x), -1, 0, 63));
}

static void rope_with(fixture *f, tdm_rope_params p, int32_t factor) {
    tdm_build_rope(f->b, f->q, tdm_build_step_field(f->b, TDM_STEP_POS), factor, &p);
}

static void test_rope(void **state) {
    tdm_rope_params p = fixture_rope();
    (void)state;
    GOOD(F32, 16, 4, 5, 1,
         tdm_build_rope(f.b, f.q, tdm_build_step_field(f.b, TDM_STEP_POS), INPUT(8, 1, 1, 1), &p));
    BAD("pos must have shape [5]", tdm_build_rope(f.b, f.q, INPUT_I(4, 1, 1, 1), -1, &p));
    BAD("pos must be i32", tdm_build_rope(f.b, f.q, INPUT(5, 1, 1, 1), -1, &p));
    BAD("factor must have shape [8]", rope_with(&f, p, INPUT(16, 1, 1, 1)));
    p.pos_add = -TDM_MAX_POS_ADD;
    p.is_inverse = 1;
    GOOD(F32, 16, 4, 5, 1,
         tdm_build_rope(f.b, f.q, tdm_build_step_field(f.b, TDM_STEP_POS), -1, &p));
#define ROPE_BAD(text, ...)                                                                        \
    do {                                                                                           \
        tdm_rope_params bad = fixture_rope();                                                      \
        __VA_ARGS__;                                                                               \
        BAD(text, rope_with(&f, bad, -1));                                                         \
    } while (0)
    ROPE_BAD("n_rot = 18", bad.n_rot = 18);
    ROPE_BAD("odd", bad.n_rot = 7);
    ROPE_BAD("n_rot = -2", bad.n_rot = -2);
    ROPE_BAD("rope_offset = 1", bad.rope_offset = 1);
    ROPE_BAD("rope_offset = -2147483648", bad.rope_offset = INT32_MIN);
    ROPE_BAD("mode = 2", bad.mode = 2);
    ROPE_BAD("n_ctx_orig", bad.n_ctx_orig = -1);
    ROPE_BAD("freq_base", bad.freq_base = -1);
    ROPE_BAD("freq_scale", bad.freq_scale = INFINITY);
    ROPE_BAD("ext_factor", bad.ext_factor = NAN);
    ROPE_BAD("attn_factor", bad.attn_factor = -1);
    ROPE_BAD("beta_fast", bad.beta_fast = -1);
    ROPE_BAD("beta_slow", bad.beta_slow = -1);
    ROPE_BAD("pos_add = 65537", bad.pos_add = TDM_MAX_POS_ADD + 1);
    ROPE_BAD("pos_add = -65537", bad.pos_add = -TDM_MAX_POS_ADD - 1);
    ROPE_BAD("is_inverse = 2", bad.is_inverse = 2);
    ROPE_BAD("is_inverse = -1", bad.is_inverse = -1);
    ROPE_BAD("YaRN", bad.ext_factor = 1);
    ROPE_BAD("not above 1", bad.ext_factor = 1, bad.n_ctx_orig = 4096, bad.freq_base = 1);
}

static void test_sinkhorn(void **state) {
    (void)state;
    GOOD(F32, 4, 4, 5, 1, tdm_build_sinkhorn(f.b, INPUT(4, 4, 5, 1), 20, 1e-6f));
    GOOD(F32, 16, 16, 0, 1, tdm_build_sinkhorn(f.b, INPUT(16, 16, 0, 1), 1, 0));
    BAD("x must be f32", tdm_build_sinkhorn(f.b, INPUT_I(4, 4, 5, 1), 1, 0));
    BAD("x must have shape [*, 4", tdm_build_sinkhorn(f.b, INPUT(4, 5, 5, 1), 1, 0));
    BAD("x must have shape", tdm_build_sinkhorn(f.b, INPUT(4, 4, 5, 2), 1, 0));
    BAD("rows of x = 17", tdm_build_sinkhorn(f.b, INPUT(17, 17, 5, 1), 1, 0));
    BAD("rows of x = 0", tdm_build_sinkhorn(f.b, INPUT(0, 0, 5, 1), 1, 0));
    BAD("n_iter = 0", tdm_build_sinkhorn(f.b, INPUT(4, 4, 5, 1), 0, 0));
    BAD("eps = -1", tdm_build_sinkhorn(f.b, INPUT(4, 4, 5, 1), 1, -1));
    BAD("eps = nan", tdm_build_sinkhorn(f.b, INPUT(4, 4, 5, 1), 1, NAN));
}

static void test_selection(void **state) {
    int32_t id;
    (void)state;
    GOOD(F32, 3, 5, 1, 1, tdm_build_top_k(f.b, f.x, 3, 100, &id));
    GOOD(I32, 3, 5, 1, 1, (tdm_build_top_k(f.b, f.x, 3, 100, &id), id));
    BAD("k = 65", tdm_build_top_k(f.b, f.x, 65, 0, &id));
    BAD("k = -1", tdm_build_top_k(f.b, f.x, -1, 0, &id));
    BAD("index_base", tdm_build_top_k(f.b, f.x, 1, INT32_MAX, &id));
    BAD("x must have shape", tdm_build_top_k(f.b, f.q, 1, 0, &id));
}

static void route_with(fixture *f, tdm_route_params p) {
    int32_t weight, logit = tdm_build_input(f->b, "logit", F32, NE(8, 5, 1, 1));
    tdm_build_moe_route(f->b, logit, -1, &p, &weight);
}

static void test_experts(void **state) {
    tdm_route_params p = {.n_used = 2, .score = TDM_ROUTE_SIGMOID, .n_group = 4, .n_group_used = 2};
    int32_t weight;
    (void)state;
    GOOD(I32, 2, 5, 1, 1,
         tdm_build_moe_route(f.b, INPUT(8, 5, 1, 1), INPUT(8, 1, 1, 1), &p, &weight));
    GOOD(F32, 2, 5, 1, 1, (tdm_build_moe_route(f.b, INPUT(8, 5, 1, 1), -1, &p, &weight), weight));
    BAD("bias", tdm_build_moe_route(f.b, INPUT(8, 5, 1, 1), INPUT(7, 1, 1, 1), &p, &weight));
#define ROUTE_BAD(text, ...) BAD(text, tdm_route_params bad = p; __VA_ARGS__; route_with(&f, bad))
    ROUTE_BAD("n_used = 0", bad.n_used = 0);
    ROUTE_BAD("n_used = 5", bad.n_used = 5);
    ROUTE_BAD("score = 4", bad.score = 4);
    ROUTE_BAD("normalize = 2", bad.normalize = 2);
    ROUTE_BAD("divide", bad.n_group = 3);
    ROUTE_BAD("n_group = -1", bad.n_group = -1);
    ROUTE_BAD("n_group_used = 5", bad.n_group_used = 5);
    ROUTE_BAD("n_group_used = 2", bad.n_group = 0);
    ROUTE_BAD("scale", bad.scale = NAN);
    ROUTE_BAD("id_divisor = -1", bad.id_divisor = -1);

    p = (tdm_route_params){.n_used = 2, .score = TDM_ROUTE_SQRT_SOFTPLUS, .normalize = 1};
#define GIVEN(id) tdm_build_moe_route_given(f.b, INPUT(8, 5, 1, 1), id, &p, &weight)
    GOOD(I32, 2, 5, 1, 1, GIVEN(INPUT_I(2, 5, 1, 1)));
    GOOD(F32, 2, 5, 1, 1, (GIVEN(INPUT_I(2, 5, 1, 1)), weight));
    BAD("id must be i32", GIVEN(INPUT(2, 5, 1, 1)));
    BAD("id must have shape [2, 5", GIVEN(INPUT_I(3, 5, 1, 1)));
    BAD("id must have shape [2, 5", GIVEN(INPUT_I(2, 4, 1, 1)));
    p.id_divisor = 2;
    BAD("id excludes a bias, groups and an id_divisor", GIVEN(INPUT_I(2, 5, 1, 1)));
    p.id_divisor = 0, p.n_group = 4, p.n_group_used = 2;
    BAD("id excludes a bias, groups and an id_divisor", GIVEN(INPUT_I(2, 5, 1, 1)));
    p.n_group = p.n_group_used = 0;
    BAD("id excludes a bias, groups and an id_divisor",
        tdm_node_spec r = tdm_node_spec_of(TDM_OP_MOE_ROUTE, INPUT(8, 5, 1, 1), INPUT(8, 1, 1, 1),
                                           INPUT_I(2, 5, 1, 1), -1);
        r.params.route = p; tdm_build_node(f.b, &r, NULL));

#define MOE(x, id, weight, gate, up, down, act, first, all)                                        \
    tdm_build_moe_ffn(f.b, x, id, weight, gate, up, down, act, first, all)
#define ID     INPUT_I(2, 5, 1, 1)
#define WEIGHT INPUT(2, 5, 1, 1)
    GOOD(F32, 64, 5, 1, 1, MOE(f.x, ID, WEIGHT, f.gate, f.up, f.down, TDM_ACT_SILU, 0, 0));
    GOOD(F32, 64, 5, 1, 1, MOE(f.x, ID, WEIGHT, f.gate, f.up, f.down, TDM_ACT_SILU, 4, 8));
    BAD("id must be i32", MOE(f.x, WEIGHT, WEIGHT, f.gate, f.up, f.down, TDM_ACT_SILU, 0, 0));
    BAD("weight must have shape",
        MOE(f.x, ID, INPUT(3, 5, 1, 1), f.gate, f.up, f.down, TDM_ACT_SILU, 0, 0));
    BAD("down must have shape", MOE(f.x, ID, WEIGHT, f.gate, f.up, f.gate, TDM_ACT_SILU, 0, 0));
    BAD("up must have shape", MOE(f.x, ID, WEIGHT, f.gate, f.down, f.down, TDM_ACT_SILU, 0, 0));
    BAD("private", MOE(f.x, ID, WEIGHT, f.w, f.up, f.down, TDM_ACT_SILU, 0, 0));
    BAD("act", MOE(f.x, ID, WEIGHT, f.gate, f.up, f.down, (tdm_act)-1, 0, 0));
    BAD("n_expert_all = 7", MOE(f.x, ID, WEIGHT, f.gate, f.up, f.down, TDM_ACT_SILU, 4, 7));
    BAD("first_expert = -1", MOE(f.x, ID, WEIGHT, f.gate, f.up, f.down, TDM_ACT_SILU, -1, 7));
#define MOE_BY_ROLE(n)                                                                             \
    (tdm_build_set_role(f.b, INPUT_I(n, 1, 1, 1)),                                                 \
     MOE(f.x, ID, WEIGHT, f.gate, f.up, f.down, TDM_ACT_SILU, 0, 0))
    GOOD(F32, 64, 5, 1, 1, MOE_BY_ROLE(5));
    BAD("role must have an element for each token", MOE_BY_ROLE(4));
}

static void test_expert_products(void **state) {
    (void)state;
#define PRODUCT(w, x, id, first, all) tdm_build_moe_matmul(f.b, w, x, id, first, all)
    GOOD(F32, 32, 2, 5, 1, PRODUCT(f.gate, INPUT(64, 1, 5, 1), ID, 0, 0));
    GOOD(F32, 32, 2, 5, 1, PRODUCT(f.gate, INPUT(64, 2, 5, 1), ID, 4, 8));
    GOOD(F32, 64, 2, 5, 1, PRODUCT(f.down, INPUT(32, 2, 5, 1), ID, 0, 4));
    BAD("x must have shape", PRODUCT(f.gate, INPUT(64, 3, 5, 1), ID, 0, 0));
    BAD("x must have shape", PRODUCT(f.gate, INPUT(32, 1, 5, 1), ID, 0, 0));
    BAD("id must have shape", PRODUCT(f.gate, INPUT(64, 1, 4, 1), ID, 0, 0));
    BAD("id must be i32", PRODUCT(f.gate, INPUT(64, 1, 5, 1), WEIGHT, 0, 0));
    BAD("private", PRODUCT(f.w, INPUT(64, 1, 5, 1), ID, 0, 0));
    BAD("n_expert_all = 7", PRODUCT(f.gate, INPUT(64, 1, 5, 1), ID, 4, 7));
    BAD("first_expert = -1", PRODUCT(f.gate, INPUT(64, 1, 5, 1), ID, -1, 7));
#define PRODUCT_BY_ROLE(n)                                                                         \
    (tdm_build_set_role(f.b, INPUT_I(n, 1, 1, 1)), PRODUCT(f.gate, INPUT(64, 2, 5, 1), ID, 0, 0))
    GOOD(F32, 32, 2, 5, 1, PRODUCT_BY_ROLE(5));
    BAD("role must have an element for each token", PRODUCT_BY_ROLE(10));
}

/* The experts of the fixture with biases. */
static int32_t moe_biased(fixture *f, tdm_moe_params p, int32_t gate_bias, int32_t up_bias,
                          int32_t down_bias) {
    const int32_t matrix[3] = {f->gate, f->up, f->down}, bias[3] = {gate_bias, up_bias, down_bias};
    int32_t id = tdm_build_input(f->b, "id", I32, NE(2, 5, 1, 1));
    int32_t weight = tdm_build_input(f->b, "weight", F32, NE(2, 5, 1, 1));
    return tdm_build_moe_ffn_biased(f->b, f->x, id, weight, matrix, bias, &p);
}

static void test_expert_forms(void **state) {
    const tdm_moe_params p = {
        .act = TDM_ACT_SILU, .is_weighted_first = 1, .limit = 7, .alpha = 1.7f, .up_offset = 1};
    (void)state;
    const int64_t n_ff = 32, n_expert = 4;
#define MOE_BAD(text, ...)                                                                         \
    BAD(text, tdm_moe_params bad = p; __VA_ARGS__; moe_biased(&f, bad, -1, -1, -1))
    GOOD(F32, 64, 5, 1, 1,
         moe_biased(&f, p, INPUT(n_ff, n_expert, 1, 1), INPUT(n_ff, n_expert, 1, 1),
                    INPUT(64, n_expert, 1, 1)));
    BAD("gate_bias must have shape", moe_biased(&f, p, INPUT(n_ff + 1, n_expert, 1, 1), -1, -1));
    BAD("up_bias must have shape", moe_biased(&f, p, -1, INPUT(n_ff, n_expert + 1, 1, 1), -1));
    BAD("down_bias must have shape", moe_biased(&f, p, -1, -1, INPUT(n_ff, n_expert, 1, 1)));
    BAD("down_bias must be f32", moe_biased(&f, p, -1, -1, INPUT_I(64, n_expert, 1, 1)));
    MOE_BAD("is_weighted_first = 2", bad.is_weighted_first = 2);
    MOE_BAD("limit", bad.limit = -INFINITY);
    MOE_BAD("limit", bad.limit = -1, bad.is_soft = 1);
    MOE_BAD("is_soft = 2", bad.is_soft = 2);
    MOE_BAD("alpha", bad.alpha = NAN);
    MOE_BAD("up_offset", bad.up_offset = INFINITY);
}

static int32_t attend(fixture *f, tdm_attention_params p, int32_t q) {
    return tdm_build_attention(f->b, q, f->step, f->state, -1, &p, NULL);
}

static int32_t attend_ml(fixture *f) {
    tdm_attention_params p = fixture_attention(f);
    int32_t ml, sink = tdm_build_input(f->b, "sink", F32, NE(FIX_HEADS, 1, 1, 1));
    tdm_build_attention(f->b, f->q, f->step, f->state, sink, &p, &ml);
    return ml;
}

static int32_t attend_latent(fixture *f) {
    tdm_attention_params p = fixture_attention(f);
    p.kv = f->latent_kv;
    return tdm_build_attention(f->b, f->q, f->step, f->latent, -1, &p, NULL);
}

/* An index of 16 elements, 5 tokens, 3 heads; n_w -1: without w. */
static int32_t choose(fixture *f, uint32_t flags, int32_t n_head_kv, tdm_select_params p,
                      int64_t n_q, int64_t n_w) {
    tdm_kv_desc d = fixture_kv_desc();
    d.type_v = d.type_k;
    d.n_head_kv = n_head_kv;
    d.flags |= flags;
    if ((flags & TDM_KV_STRIDED) != 0) d.stride = 4;
    if ((flags & TDM_KV_V_FROM_K) != 0) d.head_dim_v = 16;
    int32_t state = tdm_build_state(f->b, "index", &d, 500, 7, &p.kv);
    int32_t w = n_w >= 0 ? tdm_build_input(f->b, NULL, F32, NE(n_w, 5, 1, 1)) : -1;
    return tdm_build_kv_select(f->b, tdm_build_input(f->b, NULL, F32, NE(16, n_q, 5, 1)), w,
                               f->step, state, &p);
}

static int32_t attend_sparse(fixture *f, uint32_t flags, float softcap, tdm_type type,
                             int64_t n_tok, int64_t n_list) {
    tdm_attention_params p = fixture_attention(f);
    tdm_kv_desc d = fixture_kv_desc();
    d.flags |= flags;
    p.softcap = softcap;
    int32_t state = tdm_build_state(f->b, "sparse", &d, 500, 7, &p.kv);
    int32_t list = tdm_build_input(f->b, NULL, type, NE(9, n_tok, n_list, 1));
    return tdm_build_attention_sparse(f->b, f->q, f->step, state, -1, list, &p, NULL);
}

static void test_sparse(void **state) {
    const uint32_t index = TDM_KV_V_FROM_K | TDM_KV_SPARSE;
    const tdm_select_params top = {.n_top = 7}, none = {.n_top = 0};
    tdm_select_params blocks = {.n_top = 12, .block_len = 4, .n_local = 3};
    tdm_select_params tokens = {.n_top = 11, .is_of_tokens = 1};
    (void)state;
    GOOD(TDM_TYPE_I32, 7, 5, 1, 1, choose(&f, index, 1, top, 3, 3));
    BAD("no TDM_KV_SPARSE", choose(&f, TDM_KV_V_FROM_K, 1, top, 3, 3));
    BAD("is no index", choose(&f, TDM_KV_SPARSE, 1, top, 3, 3));
    BAD("is no index", choose(&f, index, 2, top, 3, 3));
    BAD("n_top = 0", choose(&f, index, 1, none, 3, 3));
    BAD("w must have shape", choose(&f, index, 1, top, 3, 4));
    GOOD(TDM_TYPE_I32, 7, 5, 1, 1, choose(&f, index, 1, top, 3, 1));
    GOOD(TDM_TYPE_I32, 7, 5, 3, 1, choose(&f, index, 1, top, 3, -1));
    GOOD(TDM_TYPE_I32, 12, 5, 3, 1, choose(&f, index, 1, blocks, 3, -1));
    GOOD(TDM_TYPE_I32, 12, 5, 1, 1, choose(&f, index, 1, blocks, 3, 3));
    BAD("needs a cache with TDM_KV_STRIDED", choose(&f, index, 1, tokens, 3, 3));
    GOOD(TDM_TYPE_I32, 11, 5, 1, 1, choose(&f, index | TDM_KV_STRIDED, 1, tokens, 3, 3));
    tokens.n_top = 12;
    BAD("n_top = 12 is no multiple", choose(&f, index | TDM_KV_STRIDED, 1, tokens, 3, 3));
    tokens.n_top = 3;
    BAD("n_top = 3 is no multiple", choose(&f, index | TDM_KV_STRIDED, 1, tokens, 3, 3));
    tokens.n_top = 11, tokens.n_local = 1;
    BAD("excludes blocks", choose(&f, index | TDM_KV_STRIDED, 1, tokens, 3, 3));
    tokens.n_local = 0, tokens.is_of_tokens = 2;
    BAD("is_of_tokens = 2", choose(&f, index | TDM_KV_STRIDED, 1, tokens, 3, 3));
    blocks.n_local = 4;
    BAD("n_local = 4", choose(&f, index, 1, blocks, 3, -1));
    blocks.n_local = 0, blocks.n_top = 13;
    BAD("n_top = 13 is no multiple of block_len = 4", choose(&f, index, 1, blocks, 3, -1));
    blocks.block_len = -1;
    BAD("block_len = -1", choose(&f, index, 1, blocks, 3, -1));
    BAD("heads of q", choose(&f, index, 1, top, 0, 0));
    GOOD(F32, 16, 4, 5, 1, attend_sparse(&f, TDM_KV_SPARSE, 0, TDM_TYPE_I32, 5, 1));
    BAD("no TDM_KV_SPARSE", attend_sparse(&f, 0, 0, TDM_TYPE_I32, 5, 1));
    BAD("exclude one another", attend_sparse(&f, TDM_KV_SPARSE, 30, TDM_TYPE_I32, 5, 1));
    BAD("select must be i32", attend_sparse(&f, TDM_KV_SPARSE, 0, F32, 5, 1));
    BAD("select must have shape", attend_sparse(&f, TDM_KV_SPARSE, 0, TDM_TYPE_I32, 4, 1));
    GOOD(F32, 16, 4, 5, 1, attend_sparse(&f, TDM_KV_SPARSE, 0, TDM_TYPE_I32, 5, FIX_HEADS_KV));
    BAD("select has 3 lists", attend_sparse(&f, TDM_KV_SPARSE, 0, TDM_TYPE_I32, 5, 3));
}

static int32_t attend_biased(fixture *f, uint32_t flags, float softcap, tdm_type type,
                             int64_t n_distance, int64_t n_head) {
    tdm_attention_params p = fixture_attention(f);
    tdm_kv_desc d = fixture_kv_desc();
    d.flags |= flags;
    p.softcap = softcap;
    int32_t state = tdm_build_state(f->b, "biased", &d, 500, 7, &p.kv);
    int32_t bias = tdm_build_input(f->b, NULL, type, NE(n_distance, n_head, 1, 1));
    const tdm_attention_sources sources = {-1, -1, bias};
    return tdm_build_attention_of(f->b, f->q, f->step, state, &sources, &p, NULL);
}

static void test_biased(void **state) {
    (void)state;
    GOOD(F32, 16, 4, 5, 1, attend_biased(&f, TDM_KV_BIASED, 0, F32, 9, 4));
    BAD("no TDM_KV_BIASED", attend_biased(&f, 0, 0, F32, 9, 4));
    BAD("bias must be f32", attend_biased(&f, TDM_KV_BIASED, 0, TDM_TYPE_I32, 9, 4));
    BAD("bias must have shape", attend_biased(&f, TDM_KV_BIASED, 0, F32, 9, 3));
    BAD("distances of bias", attend_biased(&f, TDM_KV_BIASED, 0, F32, 0, 4));
    BAD("an odd number", attend_biased(&f, TDM_KV_BIASED, 0, F32, 8, 4));
    BAD("exclude one another", attend_biased(&f, TDM_KV_BIASED, 30, F32, 9, 4));
}

static void test_attention(void **state) {
    (void)state;
    GOOD(F32, 16, 4, 5, 1, attend(&f, fixture_attention(&f), f.q));
    GOOD(F32, 2, 4, 5, 1, attend_ml(&f));
    GOOD(F32, 8, 4, 5, 1, attend_latent(&f));
    GOOD(F32, 16, 0, 5, 1, attend(&f, fixture_attention(&f), INPUT(16, 0, 5, 1)));
#define ATTEND_BAD(text, ...)                                                                      \
    BAD(text, tdm_attention_params p = fixture_attention(&f); int32_t q = f.q; __VA_ARGS__;        \
        attend(&f, p, q))
    ATTEND_BAD("kv = 2", p.kv = 2);
    ATTEND_BAD("kv = -1", p.kv = -1);
    ATTEND_BAD("heads_per_kv = 0", p.heads_per_kv = 0);
    ATTEND_BAD("KV heads 0 .. 3", p.heads_per_kv = 1);
    ATTEND_BAD("KV heads -1 .. 0", p.first_head_kv = 1);
    ATTEND_BAD("n_head_all = 4", p.first_head = 1);
    ATTEND_BAD("n_head_all", p.first_head = INT32_MAX, p.heads_per_kv = INT32_MAX);
    ATTEND_BAD("first_head = -1", p.first_head = -1);
    ATTEND_BAD("is_causal = 2", p.is_causal = 2);
    ATTEND_BAD("window = -1", p.window = -1);
    ATTEND_BAD("scale = inf", p.scale = INFINITY);
    ATTEND_BAD("softcap = -1", p.softcap = -1);
    ATTEND_BAD("window_kind = 3", p.window = 4, p.window_kind = 3);
    ATTEND_BAD("window_kind = 2", p.window_kind = 2);
    ATTEND_BAD("window_kind = 1", p.window_kind = 1);
    ATTEND_BAD("alibi_max_bias = -1", p.alibi_max_bias = -1);
    ATTEND_BAD("exclude one another", p.alibi_max_bias = 8, p.softcap = 30);
    ATTEND_BAD("temperature_scale", p.temperature_scale = NAN, p.temperature_length = 4);
    ATTEND_BAD("temperature_length = 0", p.temperature_scale = 0.1f);
    ATTEND_BAD("temperature_length = 4", p.temperature_length = 4);
    ATTEND_BAD("temperature_offset = 1", p.temperature_offset = 1);
    ATTEND_BAD("q must have shape [16, *, 5]", q = INPUT(16, 4, 4, 1));
    ATTEND_BAD("q must have shape", q = INPUT(8, 4, 5, 1));
    BAD("sink", tdm_attention_params p = fixture_attention(&f);
        tdm_build_attention(f.b, f.q, f.step, f.state, INPUT(5, 1, 1, 1), &p, NULL));
    BAD("step block", tdm_attention_params p = fixture_attention(&f);
        tdm_build_attention(f.b, f.q, INPUT_I(5, 1, 1, 1), f.state, -1, &p, NULL));
    BAD("must be a STATE", tdm_attention_params p = fixture_attention(&f);
        tdm_build_attention(f.b, f.q, f.step, f.x, -1, &p, NULL));
    BAD("cache description 1, an earlier node with 0", attend(&f, fixture_attention(&f), f.q);
        tdm_attention_params p = fixture_attention(&f); p.kv = 1; attend(&f, p, f.q));

    GOOD(F32, 16, 4, 5, 1, tdm_build_lse_merge(f.b, INPUT(16, 4, 5, 3), INPUT(2, 4, 5, 3)));
    BAD("ml must have shape [2, 4, 5, 3]",
        tdm_build_lse_merge(f.b, INPUT(16, 4, 5, 3), INPUT(2, 4, 5, 2)));
}

static void test_cache(void **state) {
    tdm_rope_params rope = fixture_rope();
    int32_t v;
    (void)state;
    GOOD(F32, 16, 2, 5, 1, (tdm_build_kv_write(f.b, f.k, f.k, f.step, f.state, f.kv), f.k));
    GOOD(F32, 16, 2, 5, 1, (tdm_build_kv_write(f.b, f.k, -1, f.step, f.latent, f.latent_kv), f.k));
    BAD("v is absent", tdm_build_kv_write(f.b, f.k, -1, f.step, f.state, f.kv));
    BAD("v must be absent", tdm_build_kv_write(f.b, f.k, f.k, f.step, f.latent, f.latent_kv));
    BAD("k must have shape", tdm_build_kv_write(f.b, f.q, f.k, f.step, f.state, f.kv));
    BAD("v must have shape", tdm_build_kv_write(f.b, f.k, f.q, f.step, f.state, f.kv));
    BAD("kv = 9", tdm_build_kv_write(f.b, f.k, f.k, f.step, f.state, 9));

    GOOD(F32, 16, 2, 5, 1, (tdm_build_kv_shift(f.b, f.step, f.state, -1, f.kv, &rope), f.k));
    BAD("factor", tdm_build_kv_shift(f.b, f.step, f.state, INPUT(16, 1, 1, 1), f.kv, &rope));
    BAD("cache description 0 says 16", tdm_rope_params other = rope; other.n_rot = 8;
        tdm_build_kv_shift(f.b, f.step, f.state, -1, f.kv, &other));
    BAD("pos_add = 1", tdm_rope_params other = rope; other.pos_add = 1;
        tdm_build_kv_shift(f.b, f.step, f.state, -1, f.kv, &other));
    BAD("is_inverse = 1", tdm_rope_params other = rope; other.is_inverse = 1;
        tdm_build_kv_shift(f.b, f.step, f.state, -1, f.kv, &other));
    GOOD(F32, 16, 2, 5, 1, (tdm_build_kv_copy(f.b, f.step, f.state, f.kv), f.k));

    /* heads of 16 are padded to blocks of 32 */
    GOOD(TDM_TYPE_Q8_0, 32, 2, 9, 1, tdm_build_kv_export(f.b, f.step, f.state, f.kv, 9, &v));
    GOOD(TDM_TYPE_Q4_0, 32, 2, 9, 1, (tdm_build_kv_export(f.b, f.step, f.state, f.kv, 9, &v), v));
    GOOD(TDM_TYPE_Q8_0, 32, 2, 9, 1,
         tdm_build_kv_export(f.b, f.step, f.latent, f.latent_kv, 9, &v));
    BAD("rows = -1", tdm_build_kv_export(f.b, f.step, f.state, f.kv, -1, &v));
#define ROWS(type) tdm_build_input(f.b, NULL, type, NE(32, 2, 9, 1))
    GOOD(F32, 16, 2, 5, 1,
         (tdm_build_kv_import(f.b, ROWS(TDM_TYPE_Q8_0), ROWS(TDM_TYPE_Q4_0), f.step, f.state, f.kv),
          f.k));
    BAD("k must be q8_0",
        tdm_build_kv_import(f.b, ROWS(TDM_TYPE_Q4_0), ROWS(TDM_TYPE_Q4_0), f.step, f.state, f.kv));
    BAD("v is absent", tdm_build_kv_import(f.b, ROWS(TDM_TYPE_Q8_0), -1, f.step, f.state, f.kv));
}

static void test_values(void **state) {
    const tdm_step_caps caps = {1, 1, 1, 1, 1, 1}, bad_caps = {-1, 1, 1, 1, 1, 1};
    (void)state;
    BAD("type 4", tdm_build_input(f.b, "a", (tdm_type)4, NE(1, 1, 1, 1)));
    BAD("'a'", tdm_build_input(f.b, "a", F32, NE(1, -1, 1, 1)));
    BAD("2^48", tdm_build_input(f.b, "a", F32, NE(0, INT64_MAX, INT64_MAX, 2)));
    BAD("whole blocks", tdm_build_weight(f.b, "a", TDM_TYPE_Q4_K, NE(128, 1, 1, 1), 0));
    BAD("usage flags 0x10", tdm_build_weight(f.b, "a", F32, NE(1, 1, 1, 1), 16));
    BAD("usage flags 0x5", tdm_build_weight(f.b, "a", F32, NE(1, 1, 1, 1), 5));
    BAD("more axes", tdm_build_weight(f.b, "a", F32, NE(1, 1, 1, 2), TDM_USAGE_MATMUL));
    BAD("more axes", tdm_build_weight(f.b, "a", F32, NE(1, 1, 2, 1), TDM_USAGE_ROWS));
    BAD("second step block", tdm_build_step(f.b, &caps));
    BAD("a page of", int32_t kv; tdm_kv_desc d = fixture_kv_desc();
        tdm_build_state(f.b, "s", &d, UINT64_MAX, 1, &kv));
    BAD("is a view", tdm_build_output(f.b, tdm_build_reshape(f.b, f.x, 320, 1, 1, 1), "o"));
    BAD("not a temporary", tdm_build_output(f.b, f.x, "o"));
    BAD("output of value -1", tdm_build_output(f.b, -1, "o"));
    BAD("my own", tdm_build_fail(f.b, TDM_UNSUPPORTED, "my own %d", 7);
        tdm_build_scale(f.b, 99, 1, 1));
    { /* the first failure stays, everything afterwards does nothing */
        fixture f = fixture_make();
        tdm_graph *graph = NULL;
        tdm_error err = {0};
        tdm_build_fail(f.b, TDM_UNSUPPORTED, "first");
        assert_int_equal(tdm_build_scale(f.b, f.x, 1, 1), -1);
        assert_null(tdm_build_shape(f.b, f.x));
        tdm_build_fail(f.b, TDM_IO, "second");
        assert_int_equal(tdm_builder_finish(f.b, &graph, &err), TDM_UNSUPPORTED);
        assert_string_equal(err.message, "first");
        /* and the builder may be used anew */
        assert_int_equal(tdm_build_step(f.b, &bad_caps), -1);
        assert_int_equal(tdm_builder_finish(f.b, &graph, &err), TDM_INVALID_ARGUMENT);
        assert_int_equal(tdm_build_input(f.b, "a", F32, NE(1, 1, 1, 1)), 0);
        assert_int_equal(tdm_builder_finish(f.b, &graph, &err), TDM_OK);
        assert_int_equal(graph->n_value, 1);
        tdm_graph_free(graph);
        assert_int_equal(tdm_builder_finish(f.b, &graph, &err), TDM_OK);
        assert_int_equal(graph->n_value, 0);
        tdm_graph_free(graph);
        tdm_builder_destroy(f.b);
    }
}

static void test_names(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    int32_t y = tdm_build_matmul(f.b, f.w, f.x), z = tdm_build_scale(f.b, y, 1, 0);
    (void)state;
    tdm_build_name(f.b, z, "scaled", 3);
    tdm_build_name(f.b, y, "line\nbreak", -1);
    assert_int_equal(tdm_build_step_field(f.b, TDM_STEP_POS),
                     tdm_build_step_field(f.b, TDM_STEP_POS));
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    assert_string_equal(tdm_graph_value_name(graph, z), "blk.3.scaled");
    assert_string_equal(tdm_graph_value_name(graph, y), "line?break");
    assert_string_equal(tdm_graph_value_name(graph, f.w), "w");
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

static void test_partitions(void **state) {
    const tdm_partition p = {.id = 7, .layer = 1, .n_unit = 16, .n_segment = 1, .unit_len = {2}};
    tdm_partition two = p, more = p;
    (void)state;
    two.n_segment = 2, two.unit_len[0] = 1, two.unit_len[1] = 1;
    more.n_unit = 17;
    {
        fixture f = fixture_make();
        tdm_graph *graph = NULL;
        assert_int_equal(tdm_build_partition(f.b, &p), 1);
        assert_int_equal(tdm_build_partition(f.b, &p), 1);
        assert_int_equal(tdm_build_partition(f.b, &two), 2);
        tdm_build_set_partition(f.b, f.w, 1, 1);
        assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
        assert_int_equal(graph->n_partition, 3);
        assert_int_equal(tdm_graph_partition(graph, tdm_graph_value(graph, f.w)->partition)->id, 7);
        tdm_graph_free(graph);
        tdm_builder_destroy(f.b);
    }
    BAD("partition id 7", tdm_build_partition(f.b, &p); tdm_build_partition(f.b, &more));
    BAD("16 units of 2 elements, axis 0 has 64",
        tdm_build_set_partition(f.b, f.w, tdm_build_partition(f.b, &p), 0));
    BAD("partition 5 of", tdm_build_set_partition(f.b, f.w, 5, 0));
    BAD("9 segments", two.n_segment = 9; tdm_build_partition(f.b, &two));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_permute),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_sinkhorn),
        cmocka_unit_test(test_selection),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_expert_products),
        cmocka_unit_test(test_expert_forms),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_biased),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_partitions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
