// SPDX-License-Identifier: MIT
//
// sinkhorn.comp: SINKHORN: a workgroup computes the matrices of several tokens; an invocation has a
// row of one, and a column of it. See GPU_KERNEL_SINKHORN.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "math.glsl"

const int N = SPEC0 > 0 ? SPEC0 : 1;      // rows of a matrix
const int LINES = SPEC1 > 0 ? SPEC1 : 16; // invocations of a matrix
const bool IS_AFFINE = SPEC2 != 0;
const int PITCH = 17;                     // rows of up to 16 begin in different banks

shared float y[64 * 17];

int line; // of this invocation
int matrix;
float eps;

int place(int row, int column) {
    return matrix + row * PITCH + column;
}

// A row of only -inf gives zeros, a NaN a row of NaN.
void softmax(uint64_t x, int stride) {
    float greatest = NEGATIVE_INFINITY, sum = 0.0;
    for (int i = 0; i < N; i++) {
        float v = F32(x).at[i * stride];
        if (IS_AFFINE) v = v * F32(args.address[2]).at[0] + F32(args.address[3]).at[line * N + i];
        y[place(line, i)] = v;
        if (!is_nan(v)) greatest = max(greatest, v);
    }
    for (int i = 0; i < N; i++) {
        float v = softmax_term(y[place(line, i)], greatest);
        sum += v;
        y[place(line, i)] = v;
    }
    for (int i = 0; i < N; i++) {
        float v = y[place(line, i)];
        y[place(line, i)] = (sum != 0.0 ? v / sum : v) + eps;
    }
}

void row_divide() {
    float sum = eps;
    for (int i = 0; i < N; i++) sum += y[place(line, i)];
    for (int i = 0; i < N; i++) y[place(line, i)] = y[place(line, i)] / sum;
}

void column_divide() {
    float sum = eps;
    for (int i = 0; i < N; i++) sum += y[place(i, line)];
    for (int i = 0; i < N; i++) y[place(i, line)] = y[place(i, line)] / sum;
}

void main() {
    int lid = int(gl_LocalInvocationID.x), of_group = lid / LINES, n_iter = args.word[4];
    int token = int(group_number()) * int(gl_WorkGroupSize.x / uint(LINES)) + of_group;
    line = lid % LINES;
    matrix = of_group * LINES * PITCH;
    eps = intBitsToFloat(args.word[5]);
    bool is_there = token < args.word[0] && line < N;
    if (is_there)
        softmax(args.address[1] +
                    uint64_t(uint(line * args.word[2]) + uint(token) * uint(args.word[3])) * 4,
                args.word[1]);
    barrier();
    for (int iter = 0; iter < n_iter; iter++) {
        if (iter > 0) {
            if (is_there) row_divide();
            barrier();
        }
        if (is_there) column_divide();
        barrier();
    }
    if (!is_there) return;
    F32 to = F32(args.address[0] + uint64_t(uint(token * N + line)) * uint64_t(uint(N)) * 4);
    for (int i = 0; i < N; i++) to.at[i] = y[place(line, i)];
}
