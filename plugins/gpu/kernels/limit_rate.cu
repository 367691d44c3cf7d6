/* SPDX-License-Identifier: MIT
 *
 * limit_rate.cu: measures a device's peak rate of products of byte matrices, or of multiply-adds of
 * f32, in registers. The results never have the value for which they are stored, which no compiler
 * can prove: so it does not remove the arithmetic. See GPU_KERNEL_LIMIT_RATE.
 */
#include "lang.h"

struct LimitRate : Kernel {
    inline explicit LimitRate(const Args &args_) : Kernel(args_) {}

    static constexpr uint N_SUM = 4; // products that do not wait for each other

    inline void bytes_run(uint trips) {
        uvec4 *rows = shared_take<uvec4>(16), *columns = shared_take<uvec4>(16);
        const uint thread = thread_id();
        if (thread < 16) {
            // Bytes of 0 and 1: sums stay below 2^31 for 2^27 trips.
            rows[thread] = uvec4(thread & 1, 0x00010001u, 1, 0x01000001u);
            columns[thread] = uvec4(1, thread & 1, 0x01010101u, 0x00000100u);
        }
        barrier();
        Mat a = mat_load(rows), b = mat_load(columns);
        int sum[N_SUM][8], all = 0;
        UNROLL for (uint s = 0; s < N_SUM; s++) UNROLL for (uint i = 0; i < 8; i++) sum[s][i] =
            int(s);
        DONT_UNROLL for (uint p = 0; p < trips; p++) UNROLL for (uint s = 0; s < N_SUM; s++)
            mat_mul(sum[s], a, b);
        UNROLL for (uint s = 0; s < N_SUM; s++) UNROLL for (uint i = 0; i < 8; i++) all ^=
            sum[s][i];
        if (all == 0x5eed1234) U32(args.address[0]).at[0] = thread;
    }

    inline void floats_run(uint trips) {
        const float times = 0.9990234375f, plus = 0.0009765625f;
        float x[16], all = 0;
        UNROLL for (uint i = 0; i < 16; i++) x[i] = float(thread_id() + i);
        DONT_UNROLL for (uint p = 0; p < trips; p++) UNROLL for (uint i = 0; i < 16; i++) x[i] =
            fma(x[i], times, plus);
        UNROLL for (uint i = 0; i < 16; i++) all += x[i];
        if (all == -1.0f) U32(args.address[0]).at[0] = thread_id();
    }

    inline void run() {
        if (SPEC0 == 0)
            bytes_run(uint(args.word[0]));
        else
            floats_run(uint(args.word[0]));
    }
};

GPU_KERNEL_OF(limit_rate, 256, 128, LimitRate)
