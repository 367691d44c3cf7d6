/* SPDX-License-Identifier: MIT
 *
 * angle.c: the table of the turns per position of all pairs.
 */
#include <math.h>
#include <string.h>

#include "plugins/gpu/ops/angle.h"

#define TWO_PI 6.28318530717958648

enum { MAX_PAIR = 4096 };

static double or_default(float value, double otherwise) {
    return value != 0.0f ? (double)value : otherwise;
}

/* d(beta) of op.h: the number of the pair that makes `beta` turns over the context of training. */
static double yarn_pair(const tdm_rope_params *p, double base, double beta) {
    return p->n_rot * log(p->n_ctx_orig / (beta * TWO_PI)) / (2.0 * log(base));
}

/* The turn modulo 1, times 2^64; a negative turn as the complement, so that it is subtracted. */
static uint64_t fraction_of(double turn) {
    double part = fabs(turn) - floor(fabs(turn));
    uint64_t fraction = (uint64_t)ldexp(part, 64);
    return turn < 0 ? 0 - fraction : fraction;
}

/* Fills turn_out[n_rot / 2]: turns per position times 2^64, modulo 2^64. The formulas are at
 * tdm_rope_params in op.h, with factor[i] = 1. True where each turn is below a whole one: only then
 * the kernels (shaders/angle.glsl, kernels/angle.h) can divide it by a factor, since no whole turns
 * are lost. */
static bool angle_turns(const tdm_rope_params *params, uint64_t *turn_out) {
    double base = or_default(params->freq_base, 10000.0);
    double scale = or_default(params->freq_scale, 1.0), ext = (double)params->ext_factor;
    double low = 0, width = 1;
    bool is_below_turn = true;
    if (ext != 0) {
        low = fmax(0.0, floor(yarn_pair(params, base, or_default(params->beta_fast, 32.0))));
        double high = fmin(params->n_rot - 1,
                           ceil(yarn_pair(params, base, or_default(params->beta_slow, 1.0))));
        width = fmax(0.001, high - low);
    }
    for (int32_t i = 0; i < params->n_rot / 2; i++) {
        double r = fmin(fmax((i - low) / width, 0.0), 1.0), ramp = ext != 0 ? (1.0 - r) * ext : 0;
        double turn = pow(base, -2.0 * i / params->n_rot) / TWO_PI;
        turn *= scale * (1.0 - ramp) + ramp;
        is_below_turn &= fabs(turn) < 1.0;
        turn_out[i] = isfinite(turn) ? fraction_of(turn) : 0;
    }
    return is_below_turn;
}

float gpu_angle_mscale(const tdm_rope_params *params) {
    double mscale = or_default(params->attn_factor, 1.0);
    if (params->ext_factor != 0)
        mscale *= 1.0 + 0.1 * log(1.0 / or_default(params->freq_scale, 1.0));
    return (float)mscale;
}

tdm_status gpu_angle_constant(gpu_emit *e, const tdm_rope_params *params, bool has_factor,
                              gpu_operand *table_out, tdm_error *err) {
    uint64_t turn[MAX_PAIR];
    int32_t n_pair = params->n_rot / 2;
    if (n_pair > MAX_PAIR)
        return gpu_refuse(e, err, "n_rot = %d; tables have up to %d", (int)params->n_rot,
                          2 * MAX_PAIR);
    if (!angle_turns(params, turn) && has_factor)
        return gpu_refuse(e, err, "a frequency above a turn by token, and factors");
    *table_out = gpu_emit_constant(e, turn, (uint64_t)n_pair * sizeof turn[0]);
    return TDM_OK;
}
