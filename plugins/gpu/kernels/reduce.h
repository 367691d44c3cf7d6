/* SPDX-License-Identifier: MIT
 *
 * reduce.h: sums and maxima over a workgroup of up to 256 waves. Every thread calls the functions,
 * and all get the same bits.
 */
#ifndef TANDEM_GPU_REDUCE_H
#define TANDEM_GPU_REDUCE_H

#include "axes.h"

struct Reduce : Axes {
    inline explicit Reduce(const Args &args_) : Axes(args_) {}

    float *reduce_part = shared_take<float>(256);

    inline float group_sum(float x) {
        x = wave_sum(x);
        if (group_waves() == 1) return x;
        barrier(); // the parts of an earlier call have been read
        if (lane_id() == 0) reduce_part[wave_id()] = x;
        barrier();
        float sum = 0.0f;
        for (uint i = 0; i < group_waves(); i++) sum += reduce_part[i];
        return sum;
    }

    // x is not NaN.
    inline float group_max(float x) {
        x = wave_max(x);
        if (group_waves() == 1) return x;
        barrier();
        if (lane_id() == 0) reduce_part[wave_id()] = x;
        barrier();
        float greatest = reduce_part[0];
        for (uint i = 1; i < group_waves(); i++) greatest = max(greatest, reduce_part[i]);
        return greatest;
    }
};

#endif
