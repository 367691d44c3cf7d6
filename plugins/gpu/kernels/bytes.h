/* SPDX-License-Identifier: MIT
 *
 * bytes.h: what products with integer dot products share: rows of x as bytes_store.h writes them,
 * and the product of a group of them with a group of a weight's codes. Included for each
 * WEIGHT_TYPE, after dequant.h.
 *
 * x has n_row rows of n_group groups of 32 elements. It lies in four arrays, one after the other:
 *   high      [n_group * n_row][32] bytes
 *   low       [n_group * n_row][32] bytes
 *   scale     [n_group * n_row] f32
 *   has_low   [n_row] words: 0 where all `low` of the row are 0
 * A group's number is n_group * row + its number in the row, below 2^32.
 */

static inline int dot_16(uvec4 a, uvec4 b, int sum) {
    return dot_4(a.x, b.x, dot_4(a.y, b.y, dot_4(a.z, b.z, dot_4(a.w, b.w, sum))));
}

struct Bytes {
    u64 high, low, scale, has_low; // addresses

    // The bytes of n_group groups in all.
    inline Bytes(u64 at, u64 n_group)
        : high(at), low(at + 32 * n_group), scale(at + 64 * n_group), has_low(at + 68 * n_group) {}
};

// A group in halves of 16 elements.
struct BytesGroup {
    uvec4 high[2], low[2];
    float scale;
};

// A group of x; `low` is 0 without with_low.
static inline BytesGroup bytes_group(const Bytes &x, uint number, bool with_low) {
    BytesGroup g;
    UNROLL for (int i = 0; i < 2; i++) {
        g.high[i] = load_16(x.high + u64(32) * number + 16 * i);
        g.low[i] = with_low ? load_16(x.low + u64(32) * number + 16 * i) : uvec4(0);
    }
    g.scale = F32(x.scale).at[number];
    return g;
}

// Sum of half a group's elements, divided by its scale.
static inline int bytes_sum(const BytesGroup &x, int half) {
    const uvec4 ones = uvec4(0x01010101u);
    return dot_16(x.high[half], ones, 0) * 128 + dot_16(x.low[half], ones, 0);
}

// The product of a group of a weight and one of x, divided by the scale of x. scale, offset: of the
// weight's two halves. dots: integer products of the two halves, below 2^25 in magnitude; sums:
// bytes_sum of both.
static inline float group_product(vec2 scale, vec2 offset, const int *dots, const int *sums) {
    float y = WEIGHT_HAS_HALF_SCALES ? scale.x * float(dots[0]) + scale.y * float(dots[1])
                                     : scale.x * float(dots[0] + dots[1]);
    if (WEIGHT_HAS_OFFSET)
        y += WEIGHT_HAS_HALF_SCALES ? offset.x * float(sums[0]) + offset.y * float(sums[1])
                                    : offset.x * float(sums[0] + sums[1]);
    return y;
}
