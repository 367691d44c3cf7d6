/* SPDX-License-Identifier: MIT
 *
 * moe_form.cu: h[i, pair] = act(alpha * g) / alpha * (u + up_offset). g and u are the products of
 * gate and up, times the pair's weight where weights come first, plus their biases, and limited or
 * softly limited (tdm_moe_params). Pairs of experts that this device does not hold are left out. A
 * thread per element. See kernel.h.
 */
#include "lang.h"
#include "math.h"

struct MoeForm : Kernel {
    inline explicit MoeForm(const Args &args_) : Kernel(args_) {}

    const int ACT = SPEC0;
    const bool IS_SOFT = SPEC1 != 0;

    inline void run() {
        uint n_ff = uint(args.word[0]), n_used = uint(args.word[2]);
        uint number = invocation_number(), pair = number / n_ff, i = number - pair * n_ff;
        if (pair >= uint(args.word[1])) return;
        uint token = pair / n_used, choice = pair - token * n_used;
        int id = I32(args.address[2]).at[choice * args.word[3] + token * args.word[4]];
        i64 expert = i64(id) - args.word[7];
        if (expert < 0 || expert >= i64(args.word[8])) return;
        float limit = bits_to_float(args.word[13]), alpha = bits_to_float(args.word[14]);
        float g = F32(args.address[0]).at[number], u = F32(args.address[1]).at[number];
        if (args.address[5] != 0) {
            float weight = F32(args.address[5]).at[choice * args.word[5] + token * args.word[6]];
            g *= weight;
            u *= weight;
        }
        if (args.address[3] != 0)
            g += F32(args.address[3]).at[i * args.word[9] + uint(expert) * args.word[10]];
        if (args.address[4] != 0)
            u += F32(args.address[4]).at[i * args.word[11] + uint(expert) * args.word[12]];
        float bound = limit < 0.0f ? -limit : limit;
        if (IS_SOFT) {
            g = act_of(ACT, g) * (tanh_of(alpha * g) / alpha);
            if (limit > 0.0f) u = limit * tanh_of(u / limit);
        } else {
            if (limit > 0.0f) g = g > bound ? bound : g;
            if (limit != 0.0f) u = u > bound ? bound : u < -bound ? -bound : u;
            g = act_of(ACT, alpha * g) / alpha;
            if (limit < 0.0f) g = g > bound ? bound : g;
        }
        F32(args.address[0]).at[number] = g * (u + bits_to_float(args.word[15]));
    }
};

GPU_KERNEL(moe_form, MoeForm)
