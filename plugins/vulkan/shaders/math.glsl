// SPDX-License-Identifier: MIT
//
// math.glsl: functions of one f32, to a few units in the last place on every driver. GLSL allows
// exp an error of 3 + 2|x| units and says nothing about NaN. Polynomials are minimax fits.
#include "number.glsl"

float nan_make() {
    return uintBitsToFloat(0x7fc00000u);
}

// exp(x) = 2^n exp(r), |r| <= ln 2 / 2; ln 2 in two parts, so that n times the first is exact.
// `precise` keeps drivers from adding up the two parts.
float exp_of(float x) {
    float at = clamp(x, -104.0, 89.0); // below: 0, above: infinity
    float n = roundEven(at * 1.44269504);
    precise float r = (at - n * 0.693359375) + n * 2.12194440e-4;
    float p = 1.392617612e-3;
    p = p * r + 8.363173075e-3;
    p = p * r + 4.166655466e-2;
    p = p * r + 1.666657703e-1;
    p = p * r + 0.5;
    float e = 1.0 + (r + r * r * p);
    // 2^n in two factors, since n goes from -150 to 128.
    int k = int(n), half_k = k >> 1;
    precise float y = e * uintBitsToFloat(uint(half_k + 127) << 23);
    y = y * uintBitsToFloat(uint(k - half_k + 127) << 23);
    return is_nan(x) ? x : y;
}

// What x adds to the sum of a softmax: exp(x - greatest). Of a row of only -inf it is 0. A NaN
// stays one.
float softmax_term(float x, float greatest) {
    bool is_nothing = floatBitsToUint(greatest) == 0xff800000u;
    return is_nothing && !is_nan(x) ? 0.0 : exp_of(x - greatest);
}

// log(1 + y) for y in 0 .. 1, as 2 artanh(y / (2 + y)).
float log1p_of(float y) {
    float s = y / (2.0 + y), t = s * s;
    float p = 1.0 / 15.0;
    p = p * t + 1.0 / 13.0;
    p = p * t + 1.0 / 11.0;
    p = p * t + 1.0 / 9.0;
    p = p * t + 1.0 / 7.0;
    p = p * t + 1.0 / 5.0;
    p = p * t + 1.0 / 3.0;
    return 2.0 * (s + s * t * p);
}

// log(n), n >= 1, as k log 2 + log m, n = 2^k m with m in 1 .. 2.
float log_of_number(uint n) {
    int k = findMSB(n);
    precise float m = float(n) * uintBitsToFloat(uint(127 - k) << 23);
    precise float y = float(k) * 0.69314718 + log1p_of(m - 1.0);
    return y;
}

// 1 / (1 + exp(-x)), without infinities inside.
float sigmoid_of(float x) {
    float e = exp_of(-abs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

float tanh_of(float x) {
    float a = abs(x), t = x * x;
    if (a < 0.625) {
        float p = -6.045165091e-3;
        p = p * t + 2.09613291e-2;
        p = p * t - 5.384326317e-2;
        p = p * t + 1.333271885e-1;
        p = p * t - 3.333332843e-1;
        return x + x * t * p;
    }
    float y = 1.0 - 2.0 / (exp_of(2.0 * a) + 1.0);
    return is_nan(x) ? x : x < 0.0 ? -y : y;
}

// 1 - erf(z): from a polynomial of erf below 1, else t exp(-z^2) P(t), t = 1 / (1 + z / 2).
float erfc_of(float z) {
    float a = abs(z), s = z * z;
    if (a < 1.0) {
        float p = -9.667044567e-6;
        p = p * s + 1.126595902e-4;
        p = p * s - 8.484080405e-4;
        p = p * s + 5.221031808e-3;
        p = p * s - 2.686543073e-2;
        p = p * s + 1.12837825e-1;
        p = p * s - 3.761263847e-1;
        p = p * s + 1.128379167;
        return 1.0 - z * p;
    }
    float t = 1.0 / (1.0 + 0.5 * a);
    float p = -8.200200371e-2;
    p = p * t + 2.64125678e-1;
    p = p * t - 2.641218436e-1;
    p = p * t + 3.654671441e-2;
    p = p * t - 2.969870236e-2;
    p = p * t + 8.796223244e-2;
    p = p * t + 1.758971106e-1;
    p = p * t + 2.468540863e-1;
    p = p * t + 2.820943442e-1;
    p = p * t + 2.820947938e-1;
    float y = t * p * exp_of(-s);
    return z < 0.0 ? 2.0 - y : y;
}

float softplus_of(float x) {
    return (x > 0.0 || is_nan(x) ? x : 0.0) + log1p_of(exp_of(-abs(x)));
}

// a / b. A divisor above 2^126, whose reciprocal is a denormal, is scaled first.
float div_of(float a, float b) {
    bool is_large = (floatBitsToUint(b) & 0x7fffffffu) >= 0x7e800000u;
    float scale = is_large ? 0.25 : 1.0;
    precise float q = (a * scale) / (b * scale);
    return q;
}

// sqrt(x): x itself where it is 0 of either sign, infinity or NaN; NaN below 0.
float sqrt_of(float x) {
    uint bits = floatBitsToUint(x);
    bool is_kept = (bits & 0x7fffffffu) == 0u || (bits & 0x7f800000u) == 0x7f800000u;
    float y = sqrt(x);
    if (is_kept) y = x;
    if (bits > 0x80000000u && !is_nan(x)) y = nan_make();
    return y;
}

// act(x) of op.h; `act` is a tdm_act.
float act_of(int act, float x) {
    switch (act) {
    case 1: return x * sigmoid_of(x);
    // x (1 + tanh u) / 2 = x / (1 + exp(-2u)), which keeps its digits where tanh u nears -1.
    case 2: return x * sigmoid_of(1.59576912 * (x + 0.044715 * x * x * x));
    case 3: return 0.5 * x * erfc_of(-x * 0.707106781);
    case 4: return x > 0.0 || is_nan(x) ? x : 0.0;
    case 5: return sigmoid_of(x);
    case 6: return tanh_of(x);
    case 7: return softplus_of(x);
    default: return x;
    }
}
