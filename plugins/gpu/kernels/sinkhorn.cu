/* SPDX-License-Identifier: MIT
 *
 * sinkhorn.cu: SINKHORN: a workgroup computes the matrices of several tokens. A thread has row
 * `line` of one matrix in the steps on rows, and column `line` in those on columns. See
 * GPU_KERNEL_SINKHORN.
 */
#include "lang.h"
#include "math.h"

struct Sinkhorn : Kernel {
    inline explicit Sinkhorn(const Args &args_) : Kernel(args_) {}

    const int N = SPEC0 > 0 ? SPEC0 : 1;      // rows of a matrix
    const int LINES = SPEC1 > 0 ? SPEC1 : 16; // threads of a matrix

    const bool IS_AFFINE = SPEC2 != 0;

    static constexpr int THREADS = 64, PITCH = 17; // rows of up to 16 begin in different banks
    float *y = shared_take<float>(THREADS * PITCH);

    int line; // of this thread
    float *matrix;
    float eps;

    inline float &at(int row, int column) { return matrix[row * PITCH + column]; }

    // The softmax of this thread's row, plus eps. A row of -inf alone gives zeros, a NaN a row of
    // NaN.
    inline void softmax(u64 x, int stride) {
        float greatest = NEGATIVE_INFINITY, sum = 0.0f;
        for (int i = 0; i < N; i++) {
            float v = F32(x).at[i * stride];
            if (IS_AFFINE)
                v = v * F32(args.address[2]).at[0] + F32(args.address[3]).at[line * N + i];
            at(line, i) = v;
            if (!is_nan(v)) greatest = max(greatest, v);
        }
        for (int i = 0; i < N; i++) {
            float v = softmax_term(at(line, i), greatest);
            sum += v;
            at(line, i) = v;
        }
        for (int i = 0; i < N; i++) {
            float v = at(line, i);
            at(line, i) = (sum != 0.0f ? v / sum : v) + eps;
        }
    }

    inline void row_divide() {
        float sum = eps;
        for (int i = 0; i < N; i++) sum += at(line, i);
        for (int i = 0; i < N; i++) at(line, i) = at(line, i) / sum;
    }

    inline void column_divide() {
        float sum = eps;
        for (int i = 0; i < N; i++) sum += at(i, line);
        for (int i = 0; i < N; i++) at(i, line) = at(i, line) / sum;
    }

    inline void run() {
        const int lid = int(thread_id()), of_group = lid / LINES, n_iter = args.word[4];
        const int token = int(group_number()) * (THREADS / LINES) + of_group;
        line = lid % LINES;
        matrix = y + of_group * LINES * PITCH;
        eps = bits_to_float(args.word[5]);
        const bool is_there = token < args.word[0] && line < N;
        if (is_there)
            softmax(args.address[1] +
                        u64(uint(line * args.word[2]) + uint(token) * uint(args.word[3])) * 4,
                    args.word[1]);
        barrier();
        DONT_UNROLL for (int iter = 0; iter < n_iter; iter++) {
            if (iter > 0) {
                if (is_there) row_divide();
                barrier();
            }
            if (is_there) column_divide();
            barrier();
        }
        if (!is_there) return;
        F32 to = F32(args.address[0] + u64(uint(token * N + line)) * u64(uint(N)) * 4);
        for (int i = 0; i < N; i++) to.at[i] = at(line, i);
    }
};

GPU_KERNEL_OF(sinkhorn, 64, 64, Sinkhorn)
