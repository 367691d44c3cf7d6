/* SPDX-License-Identifier: MIT
 *
 * test_fused_products.c: what a product or experts may have at their end or share with others, as
 * the fusion table says (plugins/gpu/ops/fusions.c), and what is left apart. See test_fusions.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/kv_scene.h"
#include "tests/kernels/made_weight.h"
#include "tests/vulkan/fusion_case.h"

/* A weight of random blocks, private or plain. */
static int32_t case_weight(op_case *c, uint64_t *seed, tdm_type type, int64_t k, int64_t n,
                           int64_t n_matrix, uint32_t usage) {
    int32_t w = tdm_build_weight(c->b, "w", type, OP_SHAPE(k, n, n_matrix, 1), usage);
    c->args[c->n_arg++] =
        (op_arg){.value = w, .data = made_weight_create(seed, type, MADE_RANDOM, k, n * n_matrix)};
    return w;
}

/* A driver compiles a kernel for each combination, so they are few. */
static const tdm_type product_types[] = {TDM_TYPE_F32, TDM_TYPE_Q4_0, TDM_TYPE_IQ2_XS};
/* rows, tokens */
static const int64_t product_shapes[][2] = {{7, 1}, {130, 5}, {97, 33}};

static int64_t length_of(tdm_type type, size_t at) {
    return !tdm_type_get_info(type).is_quantized && at % 2 == 1 ? 45 : 256;
}

static void matmul_add(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (size_t t = 0; t < OP_COUNT_OF(product_types); t++)
        for (size_t s = 0; s < OP_COUNT_OF(product_shapes); s++)
            for (int kind = (int)s; kind < (t == 0 ? 3 : (int)s + 1); kind++) {
                const int64_t n = product_shapes[s][0], n_tok = product_shapes[s][1];
                const int64_t k = length_of(product_types[t], s);
                op_case c = op_case_begin("");
                snprintf(c.label, sizeof c.label, "matmul of %s, add: [%d, %d], %d tokens, kind %d",
                         tdm_type_name(product_types[t]), (int)k, (int)n, (int)n_tok, kind);
                int32_t w = case_weight(&c, &seed, product_types[t], k, n, 1,
                                        s == 1 ? 0 : TDM_USAGE_MATMUL);
                int32_t x = op_case_floats(&c, &seed, OP_SHAPE(k, n_tok, 1, 1), 1);
                int32_t other = op_case_floats(
                    &c, &seed, kind == 2 ? OP_SHAPE(n, 1, 1, 1) : OP_SHAPE(n, n_tok, 1, 1), 40);
                int32_t y = tdm_build_matmul(c.b, w, x);
                y = kind == 1 ? tdm_build_add(c.b, other, y) : tdm_build_add(c.b, y, other);
                op_case_output(&c, y);
                fusion_check(&c, 1, 1e-8);
            }
}

/* What is done with a product: kinds of matmul_ends. */
static int32_t ends_build(op_case *c, uint64_t *seed, int kind, int32_t y, const int64_t *ne) {
    const int64_t n = ne[0], n_tok = ne[1];
    const int64_t *rows = OP_SHAPE(n, 1, 1, 1), *columns = OP_SHAPE(1, n_tok, 1, 1);
    int32_t v = -1;
    switch (kind) {
    case 0: return tdm_build_act(c->b, y, TDM_ACT_SIGMOID);
    case 1: /* the decay of a gated delta rule */
        y = tdm_build_add(c->b, y, op_case_floats(c, seed, rows, 1));
        y = tdm_build_act(c->b, y, TDM_ACT_SOFTPLUS);
        return tdm_build_mul(c->b, y, op_case_floats(c, seed, rows, 1));
    case 2: /* factors of streams */
        y = tdm_build_act(c->b, tdm_build_scale(c->b, y, 0.25f, 0), TDM_ACT_SIGMOID);
        return tdm_build_scale(c->b, y, 2, 0);
    case 3: return tdm_build_glu(c->b, y, op_case_floats(c, seed, ne, 1), TDM_ACT_SIGMOID);
    case 4: /* an expert that serves every token */
        v = tdm_build_act(c->b, op_case_floats(c, seed, columns, 1), TDM_ACT_SIGMOID);
        y = tdm_build_mul(c->b, y, v);
        return tdm_build_add(c->b, op_case_floats(c, seed, ne, 1), y);
    case 5: return tdm_build_glu(c->b, op_case_floats(c, seed, ne, 1), y, TDM_ACT_SILU);
    case 6: /* no pattern: a number that is added */ return tdm_build_scale(c->b, y, 2, 1);
    default: /* no pattern: what it is multiplied by comes later than the product might */
        v = tdm_build_rms_norm(c->b, op_case_floats(c, seed, ne, 1), -1, 1e-5f);
        return tdm_build_mul(c->b, y, v);
    }
}

/* All kinds with one kernel, and others with one kind each. */
static void matmul_ends(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    enum {
        ROWS,
        LANES,
        OTHERS
    }; /* kernels: of OTHERS those that compile fast, for OP_CASE_PLUGIN */
    static const struct {
        int kind; /* of ends_build */
        tdm_type type;
        int64_t n_tok;
        int kernels;
    } cases[] = {
        {0, TDM_TYPE_F32, 2, ROWS},  {1, TDM_TYPE_F32, 2, ROWS},    {2, TDM_TYPE_F32, 2, ROWS},
        {3, TDM_TYPE_F32, 2, ROWS},  {4, TDM_TYPE_F32, 2, ROWS},    {5, TDM_TYPE_F32, 2, ROWS},
        {6, TDM_TYPE_F32, 2, ROWS},  {7, TDM_TYPE_F32, 2, ROWS},    {4, TDM_TYPE_F32, 33, ROWS},
        {1, TDM_TYPE_F32, 1, LANES}, {1, TDM_TYPE_Q4_0, 2, OTHERS}, {4, TDM_TYPE_Q4_0, 33, OTHERS},
    };
    static const int32_t saved[] = {1, 3, 3, 1, 3, 1, 0, 0};
    for (size_t i = 0; i < OP_COUNT_OF(cases); i++) {
        const int64_t k = 64, n = 70, n_tok = cases[i].n_tok;
        op_rig *rig = cases[i].kernels == ROWS && fusion_rigs.fused_rows != NULL
                          ? fusion_rigs.fused_rows
                          : fusion_rigs.fused;
        if (cases[i].kernels == OTHERS && fusion_rigs.fused_rows != NULL) continue;
        op_case c = op_case_begin("");
        snprintf(c.label, sizeof c.label, "matmul of %s with ends, %d tokens, kind %d",
                 tdm_type_name(cases[i].type), (int)n_tok, cases[i].kind);
        int32_t w = case_weight(&c, &seed, cases[i].type, k, n, 1, TDM_USAGE_MATMUL);
        int32_t x = op_case_floats(&c, &seed, OP_SHAPE(k, n_tok, 1, 1), 0.2f);
        int32_t y = tdm_build_matmul(c.b, w, x);
        op_case_output(&c, ends_build(&c, &seed, cases[i].kind, y, OP_SHAPE(n, n_tok, 1, 1)));
        fusion_check_on(rig, &c, saved[cases[i].kind], 1e-8);
    }
}

static void matmul_glu(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (size_t t = 0; t < OP_COUNT_OF(product_types); t++)
        for (size_t s = 0; s < OP_COUNT_OF(product_shapes); s++) {
            const int64_t n = product_shapes[s][0], n_tok = product_shapes[s][1];
            const int64_t k = length_of(product_types[t], s);
            op_case c = op_case_begin("");
            snprintf(c.label, sizeof c.label, "matmuls of %s, glu: [%d, %d], %d tokens",
                     tdm_type_name(product_types[t]), (int)k, (int)n, (int)n_tok);
            int32_t gate = case_weight(&c, &seed, product_types[t], k, n, 1, TDM_USAGE_MATMUL);
            int32_t up = case_weight(&c, &seed, product_types[t], k, n, 1, TDM_USAGE_MATMUL);
            int32_t x = op_case_floats(&c, &seed, OP_SHAPE(k, n_tok, 1, 1), 0.2f);
            gate = tdm_build_matmul(c.b, gate, x);
            up = tdm_build_matmul(c.b, up, x);
            op_case_output(&c, tdm_build_glu(c.b, gate, up, s % 2 ? TDM_ACT_GELU : TDM_ACT_SILU));
            fusion_check(&c, 2, 1e-8);
        }
}

/* Products that resemble a pattern but do not match. */
static void matmul_not_fused(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (int kind = 0; kind < 5; kind++) {
        op_case c = op_case_begin("");
        snprintf(c.label, sizeof c.label, "no pattern, kind %d", kind);
        int32_t x = op_case_floats(&c, &seed, OP_SHAPE(64, 3, 1, 1), 1);
        int32_t v = case_weight(&c, &seed, TDM_TYPE_F16, 64, 6, 1, TDM_USAGE_MATMUL), w = -1;
        if (kind < 3)
            w = case_weight(&c, &seed, kind == 0 ? TDM_TYPE_F32 : TDM_TYPE_F16, 64, 6, 1,
                            TDM_USAGE_MATMUL);
        int32_t gate = tdm_build_matmul(c.b, v, x), up = -1;
        switch (kind) {
        case 0: /* two types */
            up = tdm_build_matmul(c.b, w, x);
            op_case_output(&c, tdm_build_glu(c.b, gate, up, TDM_ACT_SILU));
            break;
        case 1: /* two sources */
            up = tdm_build_matmul(c.b, w, op_case_floats(&c, &seed, OP_SHAPE(64, 3, 1, 1), 1));
            op_case_output(&c, tdm_build_glu(c.b, gate, up, TDM_ACT_SILU));
            break;
        case 2: /* one of them is read by others */
            up = tdm_build_matmul(c.b, w, x);
            op_case_output(&c, tdm_build_glu(c.b, gate, up, TDM_ACT_SILU));
            op_case_output(&c, tdm_build_scale(c.b, up, 1, 0));
            break;
        case 3: /* an addend for each token */
            up = op_case_floats(&c, &seed, OP_SHAPE(1, 3, 1, 1), 9);
            op_case_output(&c, tdm_build_add(c.b, gate, up));
            break;
        default: /* an addend whose elements are strided */
            up = op_case_floats(&c, &seed, OP_SHAPE(3, 6, 1, 1), 9);
            op_case_output(&c, tdm_build_add(c.b, gate, tdm_build_permute(c.b, up, 1, 0, 2, 3)));
        }
        fusion_check(&c, 0, 1e-8);
    }
}

/* A matrix for each head, as in latent attention. */
static void matmul_heads_add(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    for (int64_t n_tok = 1; n_tok < 40; n_tok += 32) {
        op_case c = op_case_begin("");
        snprintf(c.label, sizeof c.label, "matmul of heads, add, %d tokens", (int)n_tok);
        int32_t w = case_weight(&c, &seed, TDM_TYPE_Q8_0, 64, 24, 3, TDM_USAGE_MATMUL);
        int32_t x = op_case_floats(&c, &seed, OP_SHAPE(64, 3, n_tok, 1), 1);
        int32_t other = op_case_floats(&c, &seed, OP_SHAPE(24, 3, n_tok, 1), 9);
        op_case_output(&c, tdm_build_add(c.b, other, tdm_build_matmul(c.b, w, x)));
        fusion_check(&c, 1, 1e-8);
    }
}

static void experts(void **state) {
    (void)state;
    uint64_t seed = OP_SEED;
    enum { N_EXPERT = 5, N_USED = 2 };
    for (size_t t = 0; t < OP_COUNT_OF(product_types); t += 2)
        for (int64_t n_tok = 2; n_tok < 30; n_tok += 19) {
            const int64_t n = 256, n_ff = 256;
            op_case c = op_case_begin("");
            snprintf(c.label, sizeof c.label, "experts of %s, %d tokens",
                     tdm_type_name(product_types[t]), (int)n_tok);
            int32_t w[3];
            for (int i = 0; i < 3; i++)
                w[i] = case_weight(&c, &seed, product_types[t], i < 2 ? n : n_ff, i < 2 ? n_ff : n,
                                   N_EXPERT, TDM_USAGE_EXPERT);
            int32_t *ids = op_memory((size_t)(N_USED * n_tok) * sizeof *ids);
            for (int64_t i = 0; i < N_USED * n_tok; i++)
                ids[i] = (int32_t)(op_random_next(&seed) % (N_EXPERT + 1)) - (i % 7 == 0);
            int32_t x = op_case_floats(&c, &seed, OP_SHAPE(n, n_tok, 1, 1), 0.2f);
            int32_t id = op_case_input(&c, TDM_TYPE_I32, OP_SHAPE(N_USED, n_tok, 1, 1), ids);
            int32_t weight = op_case_floats(&c, &seed, OP_SHAPE(N_USED, n_tok, 1, 1), 1);
            op_case_output(&c, tdm_build_moe_ffn(c.b, x, id, weight, w[0], w[1], w[2], TDM_ACT_SILU,
                                                 0, N_EXPERT + 1));
            fusion_check(&c, 2, 1e-8);
        }
}

/* Tokens without experts have a sum of nothing, with roles and biases too: one step writes it. */
static void no_experts(void **state) {
    enum { N = 64, N_FF = 96, N_EXPERT = 5 };
    (void)state;
    for (int64_t n_tok = 3; n_tok < 30; n_tok += 19) { /* by pairs, and sorted */
        const int64_t *wide = OP_SHAPE(N, N_FF, N_EXPERT, 1), *none = OP_SHAPE(0, n_tok, 1, 1);
        const tdm_moe_params params = {.act = TDM_ACT_SILU};
        tdm_builder *b = NULL;
        tdm_graph *graph = NULL;
        assert_int_equal(tdm_builder_create(&b, NULL), TDM_OK);
        int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, OP_SHAPE(N, n_tok, 1, 1));
        int32_t id = tdm_build_input(b, "id", TDM_TYPE_I32, none);
        int32_t weight = tdm_build_input(b, "weight", TDM_TYPE_F32, none);
        int32_t w[3], bias[3] = {-1, -1, -1};
        for (int i = 0; i < 3; i++)
            w[i] =
                tdm_build_weight(b, "w", TDM_TYPE_F32,
                                 i < 2 ? wide : OP_SHAPE(N_FF, N, N_EXPERT, 1), TDM_USAGE_EXPERT);
        bias[0] = tdm_build_input(b, "bias", TDM_TYPE_F32, OP_SHAPE(N_FF, N_EXPERT, 1, 1));
        tdm_build_set_role(b, tdm_build_input(b, "role", TDM_TYPE_I32, OP_SHAPE(n_tok, 1, 1, 1)));
        tdm_build_output(b, tdm_build_moe_ffn_biased(b, x, id, weight, w, bias, &params), "y");
        assert_int_equal(tdm_builder_finish(b, &graph, NULL), TDM_OK);
        assert_int_equal(fusion_n_step(graph, false), 1);
        assert_int_equal(fusion_n_step(graph, true), 1);
        tdm_graph_free(graph);
        tdm_builder_destroy(b);
    }
}

/* ---- x as bytes, by the step that makes x ---------------------------------------------------- */

/* Roles of tokens, both kinds in turn. */
static int32_t case_roles(op_case *c, int64_t n_tok) {
    int32_t *roles = op_memory((size_t)n_tok * sizeof *roles);
    for (int64_t i = 0; i < n_tok; i++)
        roles[i] = i % 3 == 1 ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED;
    return op_case_input(c, TDM_TYPE_I32, OP_SHAPE(n_tok, 1, 1, 1), roles);
}

/* A graph in which products read what a norm gives. */
static void norm_products_build(op_case *c, uint64_t *seed, int kind, int64_t k, int64_t n_tok) {
    const int64_t *one = OP_SHAPE(k, 1, 1, 1), *ne = OP_SHAPE(k, n_tok, 1, 1);
    float *data = op_random_floats(seed, (size_t)(k * n_tok), 3);
    if (n_tok > 2) data[k + 5] = INFINITY; /* a row of zeros and a NaN */
    int32_t x = op_case_input(c, TDM_TYPE_F32, ne, data), y = -1;
    int32_t w = case_weight(c, seed, TDM_TYPE_Q8_0, k, 10, 1, TDM_USAGE_MATMUL);
    if (kind != 0) tdm_build_set_role(c->b, case_roles(c, n_tok));
    switch (kind) {
    case 0: /* without roles */
    case 1: x = tdm_build_rms_norm(c->b, x, op_case_floats(c, seed, one, 2), 1e-5f); break;
    case 2: /* others read x too */
        y = op_case_floats(c, seed, one, 2);
        x = tdm_build_layer_norm(c->b, x, y, op_case_floats(c, seed, one, 1), 1e-5f);
        op_case_output(c, tdm_build_scale(c->b, x, 2, 0));
        break;
    case 3: /* another product has no roles, and bytes of its own */
        x = tdm_build_rms_norm(c->b, x, -1, 1e-5f);
        y = tdm_build_role(c->b);
        tdm_build_set_role(c->b, -1);
        op_case_output(c, tdm_build_matmul(c->b, w, x));
        tdm_build_set_role(c->b, y);
        break;
    case 4: /* another product multiplies f32 */
        x = tdm_build_rms_norm(c->b, x, -1, 1e-5f);
        y = case_weight(c, seed, TDM_TYPE_F32, k, 7, 1, TDM_USAGE_MATMUL);
        op_case_output(c, tdm_build_matmul(c->b, y, x));
        break;
    case 5: /* not: norms of parts of the product's rows */
        x = tdm_build_reshape(c->b, x, k / 2, 2, n_tok, 1);
        x = tdm_build_rms_norm(c->b, x, -1, 1e-5f);
        x = tdm_build_reshape(c->b, x, k, n_tok, 1, 1);
        break;
    case 8: /* after a sum, which others read */
    case 9: /* and two products have bytes of their own */
        x = tdm_build_add(c->b, x, op_case_floats(c, seed, ne, 2));
        y = kind == 8 ? x : -1;
        x = tdm_build_rms_norm(c->b, x, op_case_floats(c, seed, one, 2), 1e-5f);
        if (kind == 9) {
            int32_t role = tdm_build_role(c->b);
            tdm_build_set_role(c->b, -1);
            y = tdm_build_matmul(c->b, w, x);
            tdm_build_set_role(c->b, role);
        }
        op_case_output(c, y);
        break;
    case 10: /* not: roles come later than x */
        x = tdm_build_rms_norm(c->b, x, -1, 1e-5f);
        tdm_build_set_role(c->b, tdm_build_copy(c->b, tdm_build_role(c->b), TDM_TYPE_I32));
        break;
    case 6: /* not: a softmax */ x = tdm_build_softmax(c->b, x); break;
    default: /* not: x is a part of what the norm gives */
        x = tdm_build_rms_norm(c->b, x, -1, 1e-5f);
        x = tdm_build_slice(c->b, x, OP_SHAPE(0, 1, 0, 0), OP_SHAPE(k, n_tok - 1, 1, 1));
        tdm_build_set_role(c->b, -1);
    }
    op_case_output(c, tdm_build_matmul(c->b, w, x));
}

typedef enum bytes_device { CUDA, CUDA_MATRICES, VULKAN, VULKAN_OF_4 } bytes_device;

/* Steps that make bytes or merge records. */
static int32_t byte_steps(const tdm_graph *graph, bool is_unfused, bytes_device device) {
    gpu_target target = fusion_target(is_unfused);
    tdm_error err = {0};
    gpu_plan *plan = NULL;
    int32_t n = 0;
    target.has_dot8 = target.product.rows_quantize = true;
    if (device == VULKAN_OF_4) {
        target.subgroup_min = target.subgroup_max = 4;
    } else if (device != VULKAN) {
        target.subgroup_min = target.subgroup_max = 32;
        target.counts_groups = true;
        target.product.has_fixed_tiles = true;
        target.attention.has_matrices = device == CUDA_MATRICES;
        target.attention.matrix_least_tok = 1;
        target.shared_most = 200000;
        target.product.dot_one_k = 1;
        target.product.quantize_lanes = 8;
    }
    if (gpu_plan_create(&target, graph, &plan, &err) != TDM_OK) fail_msg("%s", err.message);
    for (int32_t i = 0; i < plan->n_step; i++)
        n += plan->steps[i].kernel == GPU_KERNEL_QUANTIZE ||
             plan->steps[i].kernel == GPU_KERNEL_ATTENTION_MERGE;
    gpu_plan_destroy(plan);
    return n;
}

static void saved_check(const char *label, const tdm_graph *graph, bytes_device device,
                        int32_t saved) {
    const int32_t fused = byte_steps(graph, false, device), n = byte_steps(graph, true, device);
    if (n - fused != saved)
        fail_msg("%s: %d steps, %d without fusion, device %d", label, (int)fused, (int)n, device);
}

static void bytes_run(const op_case *c, op_rig *rig, const tdm_graph *graph, void *out[2]) {
    for (int i = 0; i < c->n_out; i++) out[i] = op_memory(c->out_count[i] * sizeof(float));
    op_case_run(c, rig, graph, out);
}

/* Whether a rig gives the bits `want` in all outputs. */
static bool bits_agree(const op_case *c, op_rig *rig, const tdm_graph *graph, void *const want[2]) {
    void *got[2] = {NULL};
    bool agree = true;
    bytes_run(c, rig, graph, got);
    for (int i = 0; i < c->n_out; i++) {
        if (memcmp(want[i], got[i], c->out_count[i] * sizeof(float)) != 0) agree = false;
        free(got[i]);
    }
    return agree;
}

/* The step that makes x stores its bytes too: saved[0] steps less on CUDA, saved[1] on Vulkan. The
 * outputs keep their bits, in the first order of workgroups or, with in_others, in all other
 * orders. Where that step stores wrong bytes the outputs differ, so products read what it stores.
 * (These rigs have no trials, which would reject the wrong step.) */
static void bytes_check(op_case *c, const int32_t saved[2], bool in_others) {
    const bool is_vulkan = getenv("OP_CASE_DRIVER") == NULL;
    const int n_order = in_others && !is_vulkan ? FUSION_N_ORDER : 1;
    tdm_graph *graph = op_case_finish(c);
    void *want[2] = {NULL};
    saved_check(c->label, graph, CUDA, saved[0]);
    saved_check(c->label, graph, VULKAN, saved[1]);
    if (!is_vulkan || (fusion_rigs.fused_bytes != NULL && saved[1] > 0)) {
        bytes_run(c, fusion_rigs.single_bytes, graph, want);
        for (int order = n_order > 1 ? 1 : 0; order < n_order; order++) {
            fusion_order_set(order);
            if (!bits_agree(c, fusion_rigs.fused_bytes, graph, want))
                fail_msg("%s: an output differs in order %d", c->label, order);
        }
        if (is_vulkan && bits_agree(c, fusion_rigs.wrong_bytes, graph, want))
            fail_msg("%s: wrong bytes change nothing", c->label);
    }
    fusion_order_set(0);
    for (int i = 0; i < c->n_out; i++) free(want[i]);
    op_case_end(c, graph);
}

static void norm_bytes(void **state) {
    static const struct {
        int kind;
        int64_t k, n_tok;
        int32_t saved;
    } cases[] = {{0, 96, 1, 1},   {1, 96, 1, 1},  {1, 4128, 5, 1}, {1, 544, 67, 1},
                 {2, 544, 5, 1},  {3, 160, 3, 1}, {4, 160, 3, 1},  {5, 128, 3, 0},
                 {6, 96, 3, 0},   {7, 96, 3, 0},  {8, 96, 1, 1},   {8, 4128, 5, 1},
                 {9, 544, 67, 1}, {10, 96, 3, 0}, {1, 2080, 1, 1}, {2, 2048, 1, 1},
                 {8, 2080, 1, 1}};
    uint64_t seed = OP_SEED;
    (void)state;
    for (size_t i = 0; i < OP_COUNT_OF(cases); i++) {
        op_case c = op_case_begin("");
        snprintf(c.label, sizeof c.label, "norm and products of %d tokens, kind %d",
                 (int)cases[i].n_tok, cases[i].kind);
        norm_products_build(&c, &seed, cases[i].kind, cases[i].k, cases[i].n_tok);
        /* On Vulkan one short row is not multiplied as bytes. */
        const bool has_bytes = cases[i].n_tok > 1 || cases[i].k >= 2048;
        bytes_check(&c, (const int32_t[]){cases[i].saved, has_bytes ? cases[i].saved : 0}, false);
    }
}

/* Workgroups of four threads, which have less than a group, store no bytes. */
static void small_group_bytes(void **state) {
    uint64_t seed = OP_SEED;
    (void)state;
    op_case c = op_case_begin("norm of small workgroups");
    norm_products_build(&c, &seed, 1, 256, 67);
    tdm_graph *graph = op_case_finish(&c);
    saved_check(c.label, graph, VULKAN, 1);
    saved_check(c.label, graph, VULKAN_OF_4, 0);
    op_case_end(&c, graph);
}

/* A product that reads what products give, whose workgroups have parts of a group. */
static void product_products_build(op_case *c, uint64_t *seed, int kind, int64_t n_ff,
                                   int64_t n_tok) {
    const int64_t k = 64, *ne = OP_SHAPE(k, n_tok, 1, 1);
    float *data = op_random_floats(seed, (size_t)(k * n_tok), 3);
    if (n_tok > 2 && kind != 6) data[k + 5] = INFINITY; /* GLU by itself has NaNs of other signs */
    int32_t x = op_case_input(c, TDM_TYPE_F32, ne, data), y = -1, role = -1;
    int32_t gate = case_weight(c, seed, TDM_TYPE_Q4_0, k, n_ff, 1, TDM_USAGE_MATMUL);
    int32_t down = case_weight(c, seed, TDM_TYPE_Q8_0, n_ff, 10, 1, TDM_USAGE_MATMUL);
    if (kind != 0) role = case_roles(c, n_tok);
    if (kind != 4) tdm_build_set_role(c->b, role);
    gate = tdm_build_matmul(c->b, gate, x);
    switch (kind) {
    case 2: /* one product, which is done something with */
        y = tdm_build_add(c->b, gate, op_case_floats(c, seed, OP_SHAPE(n_ff, 1, 1, 1), 1));
        y = tdm_build_act(c->b, y, TDM_ACT_GELU);
        break;
    case 3: /* one product as it is, of which there are two readers */
        y = gate;
        op_case_output(c, tdm_build_scale(c->b, y, 2, 0));
        break;
    case 5: /* not: a factor has the operand */
        y = tdm_build_glu(c->b, gate, op_case_floats(c, seed, OP_SHAPE(n_ff, n_tok, 1, 1), 1),
                          TDM_ACT_SILU);
        break;
    default:
        y = case_weight(c, seed, TDM_TYPE_Q4_0, k, n_ff, 1, TDM_USAGE_MATMUL);
        y = tdm_build_glu(c->b, gate, tdm_build_matmul(c->b, y, x), TDM_ACT_SILU);
    }
    if (kind == 4) tdm_build_set_role(c->b, role); /* not: rows of x have other roles */
    if (kind == 6) op_case_output(c, y);           /* not: it is no temporary */
    op_case_output(c, tdm_build_matmul(c->b, down, y));
}

static void product_bytes(void **state) {
    static const struct {
        int kind;
        int64_t n_ff, n_tok;
        int32_t saved;
    } cases[] = {{0, 96, 1, 1},  {1, 2112, 1, 1}, {1, 96, 2, 1},  {1, 96, 3, 1},
                 {1, 160, 7, 1}, {2, 96, 1, 1},   {2, 160, 7, 1}, {3, 96, 3, 1},
                 {4, 96, 3, 0},  {5, 96, 3, 0},   {6, 96, 3, 0},  {1, 96, 35, 0}};
    uint64_t seed = OP_SEED;
    (void)state;
    for (size_t i = 0; i < OP_COUNT_OF(cases); i++) {
        op_case c = op_case_begin("");
        snprintf(c.label, sizeof c.label, "product of products of %d tokens, kind %d",
                 (int)cases[i].n_tok, cases[i].kind);
        product_products_build(&c, &seed, cases[i].kind, cases[i].n_ff, cases[i].n_tok);
        bytes_check(&c, (const int32_t[]){cases[i].saved, 0}, cases[i].saved > 0);
    }
}

/* ---- The same of attention ------------------------------------------------------------------- */

enum { ATTENTION_TOK = 4, ATTENTION_HEADS = 4, ATTENTION_OUT = 10, HISTORY = 300 };

typedef struct attention_graph {
    tdm_graph *graph;
    int32_t step, state, q, w, role, y;
} attention_graph;

static attention_graph attention_graph_make(const kv_scene *scene, bool has_ml) {
    const int32_t dim = scene->desc.head_dim_v;
    const tdm_step_caps caps = kv_scene_caps(scene, ATTENTION_TOK, 0);
    const tdm_attention_params attention = {
        .heads_per_kv = 2, .n_head_all = ATTENTION_HEADS, .is_causal = 1};
    const uint64_t page_size = op_rig_page_size(fusion_rigs.fused_bytes, &scene->desc);
    attention_graph g;
    tdm_error err = {0};
    tdm_builder *b = NULL;
    int32_t kv, ml = -1;
    if (tdm_builder_create(&b, &err) != TDM_OK) fail_msg("%s", err.message);
    g.step = tdm_build_step(b, &caps);
    g.state = tdm_build_state(b, "cache", &scene->desc, page_size, scene->n_page, &kv);
    g.q = tdm_build_input(b, "q", TDM_TYPE_F32, OP_SHAPE(dim, ATTENTION_HEADS, ATTENTION_TOK, 1));
    g.role = tdm_build_input(b, "role", TDM_TYPE_I32, OP_SHAPE(ATTENTION_TOK, 1, 1, 1));
    g.w = tdm_build_weight(b, "w", TDM_TYPE_Q8_0,
                           OP_SHAPE((int64_t)dim * ATTENTION_HEADS, ATTENTION_OUT, 1, 1),
                           TDM_USAGE_MATMUL);
    tdm_build_set_role(b, g.role);
    int32_t o = tdm_build_attention(b, g.q, g.step, g.state, -1, &attention, has_ml ? &ml : NULL);
    if (has_ml) tdm_build_output(b, ml, "ml");
    o = tdm_build_reshape(b, o, (int64_t)dim * ATTENTION_HEADS, ATTENTION_TOK, 1, 1);
    g.y = tdm_build_matmul(b, g.w, o);
    tdm_build_output(b, g.y, "y");
    if (tdm_builder_finish(b, &g.graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    return g;
}

/* The last tokens of the sequence; one is padding. */
static void attention_run(const kv_scene *scene, const attention_graph *g, op_rig *rig, void *q,
                          void *w, void *role, void *y) {
    op_state *state = kv_scene_write(scene, rig, 5);
    const tdm_step_caps caps = kv_scene_caps(scene, ATTENTION_TOK, 0);
    int32_t *step = kv_step_create(scene, &caps);
    for (int32_t t = 0; t < ATTENTION_TOK; t++)
        if (t != 2) kv_step_set_token(step, t, HISTORY - ATTENTION_TOK + t, 0, -1);
    const op_arg args[] = {{.value = g->step, .data = step}, {.value = g->state, .state = state},
                           {.value = g->q, .data = q},       {.value = g->w, .data = w},
                           {.value = g->role, .data = role}, {.value = g->y, .data = y}};
    op_rig_run(rig, g->graph, args, OP_COUNT_OF(args));
    op_state_destroy(state);
    free(step);
}

typedef struct attention_case {
    int32_t dim;
    tdm_type type;
    bool has_ml;
    int32_t saved;
} attention_case;

/* The merge stores bytes too, or the kernel of parts merges and stores bytes: `saved` steps less.
 * The orders of workgroups are those in which the last one to run is not always that of the last
 * part. */
static void attention_bytes_check(const attention_case *cases, size_t n_case, bytes_device device,
                                  op_rig *single, op_rig *fused) {
    const int n_order = getenv("OP_CASE_DRIVER") != NULL ? FUSION_N_ORDER : 2;
    uint64_t seed = OP_SEED;
    for (size_t i = 0; i < n_case && fused != NULL; i++) {
        const int32_t dim = cases[i].dim, len = HISTORY;
        const tdm_kv_desc desc = {.struct_size = sizeof desc,
                                  .type_k = cases[i].type,
                                  .type_v = cases[i].type,
                                  .head_dim_k = dim,
                                  .head_dim_v = dim,
                                  .n_head_kv = ATTENTION_HEADS / 2,
                                  .page_len = 16,
                                  .flags = TDM_KV_ROTATE_V};
        const int64_t k = (int64_t)dim * ATTENTION_HEADS;
        int32_t role[ATTENTION_TOK] = {TDM_ROLE_GENERATED, TDM_ROLE_PROMPT, TDM_ROLE_GENERATED,
                                       TDM_ROLE_PROMPT};
        float y[2][ATTENTION_TOK * ATTENTION_OUT];
        kv_scene scene;
        kv_scene_init(&scene, &desc, 1, &len, 0, &seed);
        float *q = op_random_floats(&seed, (size_t)k * ATTENTION_TOK, 1);
        uint8_t *w = made_weight_create(&seed, TDM_TYPE_Q8_0, MADE_RANDOM, k, ATTENTION_OUT);
        attention_graph g = attention_graph_make(&scene, cases[i].has_ml);
        saved_check("attention", g.graph, device, cases[i].saved);
        attention_run(&scene, &g, single, q, w, role, y[0]);
        for (int order = 1; order < (cases[i].saved > 0 ? n_order : 2); order++) {
            fusion_order_set(order);
            attention_run(&scene, &g, fused, q, w, role, y[1]);
            if (memcmp(y[0], y[1], sizeof y[0]) != 0)
                fail_msg("heads of %d: o differs in order %d", (int)dim, order);
        }
        fusion_order_set(0);
        if (fusion_rigs.wrong_bytes != NULL) {
            attention_run(&scene, &g, fusion_rigs.wrong_bytes, q, w, role, y[1]);
            if ((memcmp(y[0], y[1], sizeof y[0]) != 0) != (cases[i].saved > 0))
                fail_msg("heads of %d: wrong bytes change nothing, or what they should not",
                         (int)dim);
        }
        tdm_graph_free(g.graph);
        free(q);
        free(w);
        kv_scene_free(&scene);
    }
}

static void attention_bytes(void **state) {
    static const attention_case cases[] = {
        {64, TDM_TYPE_F32, false, 1},
        {288, TDM_TYPE_Q8_0, false, 1},
        {80, TDM_TYPE_F32, false, 0}, /* heads are not whole groups */
        {64, TDM_TYPE_F32, true, 0}};
    (void)state;
    attention_bytes_check(cases, OP_COUNT_OF(cases),
                          getenv("OP_CASE_DRIVER") != NULL ? CUDA : VULKAN,
                          fusion_rigs.single_bytes, fusion_rigs.fused_bytes);
}

/* With the kernels of matrix hardware. */
static void attention_bytes_matrix(void **state) {
    static const attention_case cases[] = {{64, TDM_TYPE_F16, false, 2},
                                           {128, TDM_TYPE_Q8_0, false, 2}};
    const char *plugin = getenv("OP_CASE_PLUGIN"), *driver = getenv("OP_CASE_DRIVER");
    (void)state;
    if (driver == NULL) return;
    const tdm_option options[] = {{"driver", driver}, {"fusion", "no"}};
    op_rig *fused = op_rig_open_plugin(plugin, options, 1);
    op_rig *single = op_rig_open_plugin(plugin, options, 2);
    attention_bytes_check(cases, OP_COUNT_OF(cases), CUDA_MATRICES, single, fused);
    op_rig_close(single);
    op_rig_close(fused);
}

/* With an argument only tests of that pattern. */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_heads_add),  cmocka_unit_test(experts),
        cmocka_unit_test(no_experts),        cmocka_unit_test(matmul_add),
        cmocka_unit_test(matmul_glu),        cmocka_unit_test(matmul_not_fused),
        cmocka_unit_test(matmul_ends),       cmocka_unit_test(norm_bytes),
        cmocka_unit_test(small_group_bytes), cmocka_unit_test(product_bytes),
        cmocka_unit_test(attention_bytes),   cmocka_unit_test(attention_bytes_matrix),
    };
    return cmocka_run_group_tests(tests, fusion_rigs_open, fusion_rigs_close);
}
