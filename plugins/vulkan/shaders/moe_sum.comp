// SPDX-License-Identifier: MIT
//
// moe_sum.comp: y[i, t] = sum_u weight[u, t] * (x[i, pair] + bias), pair = u + n_used * t, in the
// order of u; pairs of foreign experts add nothing. An invocation per element. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"

void main() {
    uint n = uint(args.word[0]), n_used = uint(args.word[2]);
    uint number = invocation_number(), token = number / n, i = number - token * n;
    if (token >= uint(args.word[1])) return;
    float sum = 0;
    for (uint u = 0; u < n_used; u++) {
        int id = I32(args.address[2]).at[u * args.word[3] + token * args.word[4]];
        int64_t expert = int64_t(id) - args.word[7];
        if (expert < 0 || expert >= int64_t(args.word[8])) continue;
        float weight = 1.0, x = F32(args.address[1]).at[i + n * (u + n_used * token)];
        if (args.address[3] != 0ul)
            weight = F32(args.address[3]).at[u * args.word[5] + token * args.word[6]];
        if (args.address[4] != 0ul)
            x += F32(args.address[4]).at[i * args.word[9] + uint(expert) * args.word[10]];
        sum += weight * x;
    }
    F32(args.address[0]).at[number] = sum;
}
