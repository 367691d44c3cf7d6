/* SPDX-License-Identifier: MIT
 *
 * streams.cu: weighted sums of streams and their RMS norm:
 *   sum[e, s] = sum over j of c[j, s] * x[e, j] + f[s] * y[e]     c absent: x[e, s] + f[s] * y[e]
 * of a token. A workgroup computes the elements that are normed together, or without a norm a part
 * of a stream; a thread computes four neighbouring elements at a time. A thread reads of sum only
 * what it has stored itself. See GPU_KERNEL_STREAMS.
 */
#include "reduce.h"

struct Streams : Reduce {
    inline explicit Streams(const Args &args_) : Reduce(args_) {}

    const int N_IN = SPEC0, NORM = SPEC2; // NORM: gpu_streams_norm
    const bool HAS_Y = SPEC1 != 0, HAS_WEIGHT = SPEC3 != 0, HAS_SUM = SPEC4 != 0;
    enum { NORM_NONE = 0, NORM_EACH, NORM_ALL };

    inline vec4 load(u64 base, uint at) { return lanes_load(base, at, LANE_ALIGNED, 1); }

    // Elements e to e + 3 of stream s of a token.
    inline vec4 sum_of(uint e, uint s, uint token) {
        uint x_at = token * uint(args.word[4]) + e,
             c_at = s * uint(args.word[6]) + token * uint(args.word[7]);
        vec4 sum = vec4(0.0f);
        if (N_IN == 0) sum = load(args.address[2], x_at + s * uint(args.word[3]));
        for (uint j = 0; j < uint(N_IN); j++)
            sum += load(args.address[2], x_at + j * uint(args.word[3])) *
                   F32(args.address[3]).at[c_at + j * uint(args.word[5])];
        if (HAS_Y)
            sum += load(args.address[4], token * uint(args.word[8]) + e) *
                   F32(args.address[5]).at[s * uint(args.word[9]) + token * uint(args.word[10])];
        return sum;
    }

    inline void run() {
        uint number = group_number(), n = uint(args.word[0]), n_out = uint(args.word[1]);
        if (number >= uint(args.word[14])) return;
        uint token = number, s_first = 0, s_end = n_out, first = 0, end = n / 4;
        if (NORM != NORM_ALL) {
            uint n_part = uint(args.word[15]), row = number / n_part;
            token = row / n_out;
            s_first = row - token * n_out;
            s_end = s_first + 1;
            first = (number - row * n_part) * uint(args.word[16]);
            end = min(end, first + uint(args.word[16]));
        }
        u64 kept = HAS_SUM ? args.address[1] : args.address[0];
        float sum_sq = 0.0f;
        for (uint s = s_first; s < s_end; s++)
            for (uint u = first + thread_id(); u < end; u += group_size()) {
                vec4 v = sum_of(4 * u, s, token);
                lanes_store(kept, (token * n_out + s) * n + 4 * u, LANE_ALIGNED, v);
                sum_sq += dot(v, v);
            }
        if (NORM == NORM_NONE) return;
        float factor = 1.0f / sqrt(group_sum(sum_sq) * bits_to_float(args.word[12]) +
                                   bits_to_float(args.word[11]));
        for (uint s = s_first; s < s_end; s++)
            for (uint u = first + thread_id(); u < end; u += group_size()) {
                uint at = (token * n_out + s) * n + 4 * u;
                vec4 v = load(kept, at) * factor;
                if (HAS_WEIGHT)
                    v *= load(N_IN == 0 ? args.address[3] : args.address[4],
                              s * uint(args.word[13]) + 4 * u);
                lanes_store(args.address[0], at, LANE_ALIGNED, v);
            }
    }
};

GPU_KERNEL(streams, Streams)
