/* SPDX-License-Identifier: MIT
 *
 * unary.cu: dst = f(x), element by element. See GPU_KERNEL_UNARY.
 */
#include "axes.h"
#include "math.h"

struct Unary : Axes {
    inline explicit Unary(const Args &args_) : Axes(args_) {}

    const int OP = SPEC0, N_AXIS = SPEC1, WIDTH = SPEC2, LANE = SPEC3, ACT = SPEC4;
    const int DST_LANE = SPEC5, A_LANE = SPEC6, B_LANE = SPEC7;

    // An int in the order of the f32s, with 0 and -0 equal. Compilers may turn comparisons of
    // floats into min and max instructions, which treat zeros and NaN differently on each device. x
    // is not NaN.
    inline int order_of(float x) {
        int bits = (int)float_to_bits(x);
        return uint(bits) == 0x80000000u ? 0 : bits ^ (bits >> 31 & 0x7fffffff);
    }

    inline float clamp_of(float x, float least, float greatest) {
        if (is_nan(x)) return x;
        if (order_of(x) < order_of(least)) return least;
        return order_of(x) > order_of(greatest) ? greatest : x;
    }

    inline float unary_of(float x) {
        float a = bits_to_float(args.word[12]), b = bits_to_float(args.word[13]);
        switch (OP) {
        case 0: return x * a + b;
        case 1: return clamp_of(x, a, b);
        case 2: return sqrt_of(x);
        case 3: return act_of(ACT, x);
        default: return affine_of(x, a, b);
        }
    }

    // act(x * a + b), scaled (words 14 and 15).
    inline float affine_of(float x, float a, float b) {
        return act_of(ACT, x * a + b) * bits_to_float(args.word[14]) + bits_to_float(args.word[15]);
    }

    // AFFINE_ACT: a and b are operands, with strides along axes 0 and 1.
    inline void affine_store(uint first, uint x_at, uvec4 at) {
        uint a_at = at.x * uint(args.word[16]) + at.y * uint(args.word[17]);
        uint b_at = at.x * uint(args.word[18]) + at.y * uint(args.word[19]);
        if (WIDTH == 1) {
            F32(args.address[0]).at[first] =
                affine_of(F32(args.address[1]).at[x_at], F32(args.address[2]).at[a_at],
                          F32(args.address[3]).at[b_at]);
            return;
        }
        vec4 x = lanes_load(args.address[1], x_at, LANE, uint(args.word[7]));
        vec4 a = lanes_load(args.address[2], a_at, A_LANE, uint(args.word[16]));
        vec4 b = lanes_load(args.address[3], b_at, B_LANE, uint(args.word[18]));
        lanes_store(args.address[0], first, DST_LANE,
                    vec4(affine_of(x.x, a.x, b.x), affine_of(x.y, a.y, b.y),
                         affine_of(x.z, a.z, b.z), affine_of(x.w, a.w, b.w)));
    }

    inline void run() {
        uint first = invocation_number() * WIDTH, n = uint(args.word[11]);
        if (first >= n) return;
        uvec4 axes = axes_split(first, 0, N_AXIS);
        uint x_at = axes_at(axes, 7);
        if (OP == 5) {
            affine_store(first, x_at, axes);
            return;
        }
        if (WIDTH == 1) {
            F32(args.address[0]).at[first] = unary_of(F32(args.address[1]).at[x_at]);
            return;
        }
        vec4 x = lanes_load(args.address[1], x_at, LANE, uint(args.word[7]));
        lanes_store(args.address[0], first, DST_LANE,
                    vec4(unary_of(x.x), unary_of(x.y), unary_of(x.z), unary_of(x.w)));
    }
};

GPU_KERNEL(unary, Unary)
