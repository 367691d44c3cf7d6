// SPDX-License-Identifier: MIT
//
// moe_form.comp: h[i, pair] = act(alpha * g) / alpha * (u + up_offset). g and u are the products of
// gate and up, times the pair's weight where weights come first, plus their biases, and limited,
// hard or softly (tdm_moe_params). Pairs of foreign experts are left out. An invocation for each
// element. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "math.glsl"

const int ACT = SPEC0;
const bool IS_SOFT = SPEC1 != 0;

void main() {
    uint n_ff = uint(args.word[0]), n_used = uint(args.word[2]);
    uint number = invocation_number(), pair = number / n_ff, i = number - pair * n_ff;
    if (pair >= uint(args.word[1])) return;
    uint token = pair / n_used, choice = pair - token * n_used;
    int id = I32(args.address[2]).at[choice * args.word[3] + token * args.word[4]];
    int64_t expert = int64_t(id) - args.word[7];
    if (expert < 0 || expert >= int64_t(args.word[8])) return;
    float limit = intBitsToFloat(args.word[13]), alpha = intBitsToFloat(args.word[14]);
    float g = F32(args.address[0]).at[number], u = F32(args.address[1]).at[number];
    if (args.address[5] != 0ul) {
        float weight = F32(args.address[5]).at[choice * args.word[5] + token * args.word[6]];
        g *= weight;
        u *= weight;
    }
    if (args.address[3] != 0ul)
        g += F32(args.address[3]).at[i * args.word[9] + uint(expert) * args.word[10]];
    if (args.address[4] != 0ul)
        u += F32(args.address[4]).at[i * args.word[11] + uint(expert) * args.word[12]];
    float bound = abs(limit);
    if (IS_SOFT) {
        g = act_of(ACT, g) * (tanh_of(alpha * g) / alpha);
        if (limit > 0.0) u = limit * tanh_of(u / limit);
    } else {
        if (limit > 0.0) g = g > bound ? bound : g;
        if (limit != 0.0) u = u > bound ? bound : u < -bound ? -bound : u;
        g = act_of(ACT, alpha * g) / alpha;
        if (limit < 0.0) g = g > bound ? bound : g;
    }
    F32(args.address[0]).at[number] = g * (u + intBitsToFloat(args.word[15]));
}
