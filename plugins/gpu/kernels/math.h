/* SPDX-License-Identifier: MIT
 *
 * math.h: functions of one f32, exact to a few units in the last place. They are written out in
 * arithmetic because kernels have no library, and because the devices' own instructions differ.
 * Tests for NaN and infinity read the bits, because compilers may assume that arithmetic gives
 * neither. Polynomials are minimax fits.
 */
#ifndef TANDEM_GPU_MATH_H
#define TANDEM_GPU_MATH_H
#include "number.h"

static inline float nan_make() {
    return bits_to_float(0x7fc00000u);
}

// exp(x) = 2^n exp(r), |r| <= ln 2 / 2; ln 2 in two parts, so that n times the first is exact.
static inline float exp_of(float x) {
    float at = clamp(x, -104.0f, 89.0f); // below: 0, above: infinity
    float n = round_even(at * 1.44269504f);
    float r = (at - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.392617612e-3f;
    p = p * r + 8.363173075e-3f;
    p = p * r + 4.166655466e-2f;
    p = p * r + 1.666657703e-1f;
    p = p * r + 0.5f;
    float e = 1.0f + (r + r * r * p);
    // 2^n in two factors, since n goes from -150 to 128.
    int k = int(n), half_k = k >> 1;
    float y = e * bits_to_float(uint(half_k + 127) << 23);
    y = y * bits_to_float(uint(k - half_k + 127) << 23);
    return is_nan(x) ? x : y;
}

// What x adds to the sum of a softmax: exp(x - greatest). Of a row of only -inf it is 0. A NaN
// stays one.
static inline float softmax_term(float x, float greatest) {
    bool is_nothing = float_to_bits(greatest) == 0xff800000u;
    return is_nothing && !is_nan(x) ? 0.0f : exp_of(x - greatest);
}

// log(1 + y) for y in 0 .. 1, as 2 artanh(y / (2 + y)).
static inline float log1p_of(float y) {
    float s = y / (2.0f + y), t = s * s;
    float p = 1.0f / 15.0f;
    p = p * t + 1.0f / 13.0f;
    p = p * t + 1.0f / 11.0f;
    p = p * t + 1.0f / 9.0f;
    p = p * t + 1.0f / 7.0f;
    p = p * t + 1.0f / 5.0f;
    p = p * t + 1.0f / 3.0f;
    return 2.0f * (s + s * t * p);
}

// log(n) for n >= 1: n = 2^k m with m in 1 .. 2.
static inline float log_of_number(uint n) {
    int k = 0;
    while (n >> k > 1u) k++;
    float m = float(n) * bits_to_float(uint(127 - k) << 23);
    return float(k) * 0.69314718f + log1p_of(m - 1.0f);
}

// 1 / (1 + exp(-x)), without infinities inside.
static inline float sigmoid_of(float x) {
    float e = exp_of(-abs(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

static inline float tanh_of(float x) {
    float a = abs(x), t = x * x;
    if (a < 0.625f) {
        float p = -6.045165091e-3f;
        p = p * t + 2.09613291e-2f;
        p = p * t - 5.384326317e-2f;
        p = p * t + 1.333271885e-1f;
        p = p * t - 3.333332843e-1f;
        return x + x * t * p;
    }
    float y = 1.0f - 2.0f / (exp_of(2.0f * a) + 1.0f);
    return is_nan(x) ? x : x < 0.0f ? -y : y;
}

// 1 - erf(z): from a polynomial of erf below 1, else t exp(-z^2) P(t), t = 1 / (1 + z / 2).
static inline float erfc_of(float z) {
    float a = abs(z), s = z * z;
    if (a < 1.0f) {
        float p = -9.667044567e-6f;
        p = p * s + 1.126595902e-4f;
        p = p * s - 8.484080405e-4f;
        p = p * s + 5.221031808e-3f;
        p = p * s - 2.686543073e-2f;
        p = p * s + 1.12837825e-1f;
        p = p * s - 3.761263847e-1f;
        p = p * s + 1.128379167f;
        return 1.0f - z * p;
    }
    float t = 1.0f / (1.0f + 0.5f * a);
    float p = -8.200200371e-2f;
    p = p * t + 2.64125678e-1f;
    p = p * t - 2.641218436e-1f;
    p = p * t + 3.654671441e-2f;
    p = p * t - 2.969870236e-2f;
    p = p * t + 8.796223244e-2f;
    p = p * t + 1.758971106e-1f;
    p = p * t + 2.468540863e-1f;
    p = p * t + 2.820943442e-1f;
    p = p * t + 2.820947938e-1f;
    float y = t * p * exp_of(-s);
    return z < 0.0f ? 2.0f - y : y;
}

static inline float softplus_of(float x) {
    return (x > 0.0f || is_nan(x) ? x : 0.0f) + log1p_of(exp_of(-abs(x)));
}

// a / b. A divisor above 2^126, whose reciprocal is a denormal, is scaled first.
static inline float div_of(float a, float b) {
    bool is_large = (float_to_bits(b) & 0x7fffffffu) >= 0x7e800000u;
    float scale = is_large ? 0.25f : 1.0f;
    float q = (a * scale) / (b * scale);
    return q;
}

// sqrt(x): x itself where it is 0 of either sign, infinity or NaN; NaN below 0.
static inline float sqrt_of(float x) {
    uint bits = float_to_bits(x);
    bool is_kept = (bits & 0x7fffffffu) == 0u || (bits & 0x7f800000u) == 0x7f800000u;
    float y = sqrt(x);
    if (is_kept) y = x;
    if (bits > 0x80000000u && !is_nan(x)) y = nan_make();
    return y;
}

// act(x) of op.h; `act` is a tdm_act.
static inline float act_of(int act, float x) {
    switch (act) {
    case 1: return x * sigmoid_of(x);
    // x (1 + tanh u) / 2 = x / (1 + exp(-2u)), which keeps its digits where tanh u nears -1.
    case 2: return x * sigmoid_of(1.59576912f * (x + 0.044715f * x * x * x));
    case 3: return 0.5f * x * erfc_of(-x * 0.707106781f);
    case 4: return x > 0.0f || is_nan(x) ? x : 0.0f;
    case 5: return sigmoid_of(x);
    case 6: return tanh_of(x);
    case 7: return softplus_of(x);
    default: return x;
    }
}

#endif
