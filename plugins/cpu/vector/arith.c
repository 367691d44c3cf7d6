/* SPDX-License-Identifier: MIT
 *
 * vector/arith.c: the kernels of arith.h. Reference: cpu_act_reference.
 */
#include "plugins/cpu/ops/arith.h"
#include "plugins/cpu/vector/exp.h"

/* One loop for each op: pair_<name> of two sources, map_<name> of one. */
#define PAIR_LANES(name, of)                                                                       \
    static void pair_##name(const float *a, const float *b, float *y, int64_t n) {                 \
        int64_t i = 0;                                                                             \
        for (; i + N_LANE <= n; i += N_LANE)                                                       \
            lanes_store(y + i, of(lanes_load(a + i), lanes_load(b + i)));                          \
        n -= i;                                                                                    \
        lanes_store_part(y + i, of(lanes_load_part(a + i, n), lanes_load_part(b + i, n)), n);      \
    }
PAIR_LANES(add, lanes_add)
PAIR_LANES(mul, lanes_mul)
PAIR_LANES(div, lanes_div)

static void pair_lanes(int32_t op, const float *a, const float *b, float *y, int64_t n) {
    switch (op) {
    case TDM_OP_MUL: pair_mul(a, b, y, n); break;
    case TDM_OP_DIV: pair_div(a, b, y, n); break;
    default: pair_add(a, b, y, n); break;
    }
}

/* `of` of a vector and the two numbers that the op's parameters give. */
#define MAP_LANES(name, of)                                                                        \
    static void map_##name(const float *x, float *y, int64_t n, float first, float second) {       \
        lanes p = lanes_set(first), q = lanes_set(second);                                         \
        int64_t i = 0;                                                                             \
        for (; i + N_LANE <= n; i += N_LANE) lanes_store(y + i, of(lanes_load(x + i), p, q));      \
        n -= i;                                                                                    \
        lanes_store_part(y + i, of(lanes_load_part(x + i, n), p, q), n);                           \
    }
MAP_LANES(scale, lanes_fma)

/* The order keeps a NaN. */
static inline lanes clamp_of(lanes x, lanes min, lanes max) {
    return lanes_min(max, lanes_max(min, x));
}
MAP_LANES(clamp, clamp_of)

static inline lanes sqrt_of(lanes x, lanes unused_p, lanes unused_q) {
    (void)unused_p;
    (void)unused_q;
    return lanes_sqrt(x);
}
MAP_LANES(sqrt, sqrt_of)

static void map_lanes(const tdm_node *node, const float *x, float *y, int64_t n) {
    const tdm_op_params *p = &node->params;
    switch (node->op) {
    case TDM_OP_CLAMP: map_clamp(x, y, n, p->clamp.min, p->clamp.max); break;
    case TDM_OP_SQRT: map_sqrt(x, y, n, 0, 0); break;
    default: map_scale(x, y, n, p->scale.scale, p->scale.bias); break;
    }
}

/* ---- Activations ----------------------------------------------------------------------------- */

static inline lanes identity_of(lanes x) {
    return x;
}

/* 1 / (1 + e^-x) */
static inline lanes sigmoid_of(lanes x) {
    lanes e = lanes_exp(lanes_sub(lanes_set(0.0f), x));
    return lanes_div(lanes_set(1.0f), lanes_add(lanes_set(1.0f), e));
}

/* x / (1 + e^-x) */
static inline lanes silu_of(lanes x) {
    lanes e = lanes_exp(lanes_sub(lanes_set(0.0f), x));
    return lanes_div(x, lanes_add(lanes_set(1.0f), e));
}

/* x (1 + tanh u) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static inline lanes gelu_of(lanes x) {
    lanes cube = lanes_mul(lanes_mul(lanes_mul(x, x), x), lanes_set(0.044715f));
    lanes e = lanes_exp(lanes_mul(lanes_add(x, cube), lanes_set(-2.0f * 0.797884561f)));
    return lanes_div(x, lanes_add(lanes_set(1.0f), e));
}

static inline lanes relu_of(lanes x) {
    return lanes_max(lanes_set(0.0f), x);
}

/* 1 - 2 / (1 + e^2|x|) with the sign of x; near 0, where that loses digits, the odd polynomial of
 * Cephes (single/tanhf.c). */
static inline lanes tanh_of(lanes x) {
    lanes size = lanes_abs(x), z = lanes_mul(x, x);
    lanes e = lanes_exp(lanes_add(size, size));
    lanes far = lanes_div(lanes_set(2.0f), lanes_add(e, lanes_set(1.0f)));
    far = lanes_copysign(lanes_sub(lanes_set(1.0f), far), x);
    lanes p = lanes_set(-5.70498872745e-3f);
    p = lanes_fma(p, z, lanes_set(2.06390887954e-2f));
    p = lanes_fma(p, z, lanes_set(-5.37397155531e-2f));
    p = lanes_fma(p, z, lanes_set(1.33314422036e-1f));
    p = lanes_fma(p, z, lanes_set(-3.33332819422e-1f));
    lanes near = lanes_fma(lanes_mul(p, z), x, x);
    return lanes_select_less(size, lanes_set(0.625f), near, far);
}

/* max(x, 0) + ln(1 + t), t = e^-|x|: no exponential overflows. ln(1 + t) = 2 artanh(s),
 * s = t / (2 + t) <= 1 / 3, by its series, whose first term left out is s^17 / 17 < 5e-10. */
static inline lanes softplus_of(lanes x) {
    lanes t = lanes_exp(lanes_sub(lanes_set(0.0f), lanes_abs(x)));
    lanes s = lanes_div(t, lanes_add(lanes_set(2.0f), t)), z = lanes_mul(s, s);
    lanes p = lanes_set(1.0f / 15.0f);
    p = lanes_fma(p, z, lanes_set(1.0f / 13.0f));
    p = lanes_fma(p, z, lanes_set(1.0f / 11.0f));
    p = lanes_fma(p, z, lanes_set(1.0f / 9.0f));
    p = lanes_fma(p, z, lanes_set(1.0f / 7.0f));
    p = lanes_fma(p, z, lanes_set(1.0f / 5.0f));
    p = lanes_fma(p, z, lanes_set(1.0f / 3.0f));
    lanes log = lanes_fma(lanes_mul(p, z), s, s);
    return lanes_add(relu_of(x), lanes_add(log, log));
}

/* One loop for each activation, with and without the factor. */
#define GLU_LANES(act)                                                                             \
    static void act##_lanes(const float *x, const float *up, float *y, int64_t n) {                \
        int64_t i = 0;                                                                             \
        if (up == NULL) {                                                                          \
            for (; i + N_LANE <= n; i += N_LANE) lanes_store(y + i, act##_of(lanes_load(x + i)));  \
            lanes_store_part(y + i, act##_of(lanes_load_part(x + i, n - i)), n - i);               \
            return;                                                                                \
        }                                                                                          \
        for (; i + N_LANE <= n; i += N_LANE)                                                       \
            lanes_store(y + i, lanes_mul(act##_of(lanes_load(x + i)), lanes_load(up + i)));        \
        n -= i;                                                                                    \
        lanes part = act##_of(lanes_load_part(x + i, n));                                          \
        lanes_store_part(y + i, lanes_mul(part, lanes_load_part(up + i, n)), n);                   \
    }

GLU_LANES(identity)
GLU_LANES(silu)
GLU_LANES(gelu)
GLU_LANES(relu)
GLU_LANES(sigmoid)
GLU_LANES(tanh)
GLU_LANES(softplus)

static void glu_lanes(tdm_act act, const float *x, const float *up, float *y, int64_t n) {
    switch ((int)act) {
    case TDM_ACT_NONE: identity_lanes(x, up, y, n); break;
    case TDM_ACT_SILU: silu_lanes(x, up, y, n); break;
    case TDM_ACT_GELU: gelu_lanes(x, up, y, n); break;
    case TDM_ACT_RELU: relu_lanes(x, up, y, n); break;
    case TDM_ACT_SIGMOID: sigmoid_lanes(x, up, y, n); break;
    case TDM_ACT_TANH: tanh_lanes(x, up, y, n); break;
    case TDM_ACT_SOFTPLUS: softplus_lanes(x, up, y, n); break;
    default: /* GELU_ERF: no model spends much time in it */
        for (int64_t i = 0; i < n; i++) {
            float value = cpu_act_plain(act, x[i]);
            y[i] = up != NULL ? value * up[i] : value;
        }
    }
}

const cpu_arith_kernels LANES_FN(cpu_arith) = {LANES_ISA, LANES_NAME, pair_lanes, map_lanes,
                                               glu_lanes};
