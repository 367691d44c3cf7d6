// SPDX-License-Identifier: MIT
//
// dequant.glsl: reads 32 consecutive elements of a row of a weight, in the planes of
// plugins/gpu/layout/weight.h (WEIGHT_IS_PLANAR) or as canonical blocks. The build compiles a
// shader that includes this once for each WEIGHT_TYPE, the number of a tdm_type: drivers would take
// a second to throw the other types away. Formulas and layouts: tandem/block.h.
//
// A group is 32 elements: a whole small block, or an eighth of a superblock. A block type gives
//   x[i] = scale[i / 16] * code[i] + offset[i / 16]         code: int8
// with the same roundings as block.h where the product is not contracted with the sum. f32, f16 and
// bf16 have no codes: weight_quad reads their elements. There are no loops, since some drivers do
// not unroll them.
//
// Include args.glsl first. SPEC1 is gpu_product_flag.

#ifndef WEIGHT_TYPE
#error "a shader that reads weights defines WEIGHT_MODULES: see kernels.py"
#endif

#define TYPE_F32 0
#define TYPE_F16 1
#define TYPE_Q4_0 2
#define TYPE_Q4_1 3
#define TYPE_Q5_0 6
#define TYPE_Q5_1 7
#define TYPE_Q8_0 8
#define TYPE_Q2_K 10
#define TYPE_Q3_K 11
#define TYPE_Q4_K 12
#define TYPE_Q5_K 13
#define TYPE_Q6_K 14
#define TYPE_IQ2_XXS 16
#define TYPE_IQ2_XS 17
#define TYPE_IQ3_XXS 18
#define TYPE_IQ1_S 19
#define TYPE_IQ4_NL 20
#define TYPE_IQ3_S 21
#define TYPE_IQ2_S 22
#define TYPE_IQ4_XS 23
#define TYPE_IQ1_M 29
#define TYPE_BF16 30
#define TYPE_TQ1_0 34
#define TYPE_TQ2_0 35
#define TYPE_MXFP4 39
#define TYPE_NVFP4 40

#if WEIGHT_TYPE == TYPE_IQ4_NL || WEIGHT_TYPE == TYPE_IQ4_XS
#include "iq4.glsl"
#endif

const bool WEIGHT_IS_PLANAR = (SPEC1 & 1) != 0;
// Plain types: rows are dense, whole groups, and begin at multiples of 16 bytes.
const bool WEIGHT_IS_WIDE = (SPEC1 & 2) != 0;

// ---- Fields: the table of layout/weight.c -------------------------------------------------------

// {bytes of field f of a block, where they are in it}; planes are in the order of f.
#if WEIGHT_TYPE == TYPE_F32 || WEIGHT_TYPE == TYPE_F16 || WEIGHT_TYPE == TYPE_BF16
#define WEIGHT_IS_PLAIN 1
#define BLOCK_SIZE (WEIGHT_TYPE == TYPE_F32 ? 4 : 2)
#define FIELDS uvec2[5](uvec2(BLOCK_SIZE, 0), uvec2(0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q4_0 || WEIGHT_TYPE == TYPE_IQ4_NL
#define BLOCK_SIZE 18
#define FIELDS uvec2[5](uvec2(16, 2), uvec2(2, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q4_1
#define BLOCK_SIZE 20
#define FIELDS uvec2[5](uvec2(16, 4), uvec2(4, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q5_0
#define BLOCK_SIZE 22
#define FIELDS uvec2[5](uvec2(16, 6), uvec2(4, 2), uvec2(2, 0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q5_1
#define BLOCK_SIZE 24
#define FIELDS uvec2[5](uvec2(16, 8), uvec2(4, 4), uvec2(4, 0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q8_0
#define BLOCK_SIZE 34
#define FIELDS uvec2[5](uvec2(32, 2), uvec2(2, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_MXFP4
#define BLOCK_SIZE 17
#define FIELDS uvec2[5](uvec2(16, 1), uvec2(1, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_NVFP4
#define BLOCK_SIZE 36
#define FIELDS uvec2[5](uvec2(32, 4), uvec2(4, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q2_K
#define BLOCK_SIZE 84
#define FIELDS uvec2[5](uvec2(64, 16), uvec2(16, 0), uvec2(4, 80), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q3_K
#define BLOCK_SIZE 110
#define FIELDS uvec2[5](uvec2(64, 32), uvec2(32, 0), uvec2(12, 96), uvec2(2, 108), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q4_K
#define BLOCK_SIZE 144
#define FIELDS uvec2[5](uvec2(128, 16), uvec2(16, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q5_K
#define BLOCK_SIZE 176
#define FIELDS uvec2[5](uvec2(128, 48), uvec2(32, 16), uvec2(16, 0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_Q6_K
#define BLOCK_SIZE 210
#define FIELDS uvec2[5](uvec2(128, 0), uvec2(64, 128), uvec2(16, 192), uvec2(2, 208), uvec2(0))
#elif WEIGHT_TYPE == TYPE_IQ4_XS
#define BLOCK_SIZE 136
#define FIELDS uvec2[5](uvec2(128, 8), uvec2(8, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_IQ2_XXS
#define BLOCK_SIZE 66
#define FIELDS uvec2[5](uvec2(64, 2), uvec2(2, 0), uvec2(0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_IQ2_XS
#define BLOCK_SIZE 74
#define FIELDS uvec2[5](uvec2(64, 2), uvec2(8, 66), uvec2(2, 0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_IQ2_S
#define BLOCK_SIZE 82
#define FIELDS uvec2[5](uvec2(64, 2), uvec2(16, 66), uvec2(2, 0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_IQ3_XXS
#define BLOCK_SIZE 98
#define FIELDS uvec2[5](uvec2(64, 2), uvec2(32, 66), uvec2(2, 0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_IQ3_S
#define BLOCK_SIZE 110
#define FIELDS uvec2[5](uvec2(64, 2), uvec2(32, 74), uvec2(8, 66), uvec2(4, 106), uvec2(2, 0))
#elif WEIGHT_TYPE == TYPE_IQ1_S
#define BLOCK_SIZE 50
#define FIELDS uvec2[5](uvec2(32, 2), uvec2(16, 34), uvec2(2, 0), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_IQ1_M
#define BLOCK_SIZE 56
#define FIELDS uvec2[5](uvec2(32, 0), uvec2(16, 32), uvec2(8, 48), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_TQ1_0
#define BLOCK_SIZE 54
#define FIELDS uvec2[5](uvec2(48, 0), uvec2(4, 48), uvec2(2, 52), uvec2(0), uvec2(0))
#elif WEIGHT_TYPE == TYPE_TQ2_0
#define BLOCK_SIZE 66
#define FIELDS uvec2[5](uvec2(64, 0), uvec2(2, 64), uvec2(0), uvec2(0), uvec2(0))
#endif
#ifndef WEIGHT_IS_PLAIN
#define WEIGHT_IS_PLAIN 0
#endif

// Other types have offsets of 0.
#define WEIGHT_HAS_OFFSET                                                                          \
    (WEIGHT_TYPE == TYPE_Q4_1 || WEIGHT_TYPE == TYPE_Q5_1 || WEIGHT_TYPE == TYPE_Q2_K ||           \
     WEIGHT_TYPE == TYPE_Q4_K || WEIGHT_TYPE == TYPE_Q5_K)
// Types with a scale for 16 elements each; others have one for 32.
#define WEIGHT_HAS_HALF_SCALES                                                                     \
    (WEIGHT_TYPE == TYPE_Q2_K || WEIGHT_TYPE == TYPE_Q3_K || WEIGHT_TYPE == TYPE_Q6_K ||           \
     WEIGHT_TYPE == TYPE_IQ2_XS || WEIGHT_TYPE == TYPE_IQ2_S || WEIGHT_TYPE == TYPE_IQ1_M ||      \
     WEIGHT_TYPE == TYPE_NVFP4)
#define WEIGHT_HAS_SMALL_BLOCKS                                                                    \
    ((WEIGHT_TYPE >= TYPE_Q4_0 && WEIGHT_TYPE <= TYPE_Q8_0) || WEIGHT_TYPE == TYPE_IQ4_NL ||       \
     WEIGHT_TYPE == TYPE_MXFP4)
// Groups of a block that is not small.
#define WEIGHT_BLOCK_GROUPS (WEIGHT_TYPE == TYPE_NVFP4 ? 2 : 8)

// Where the fields of a row's first block lie, and the bytes from block to block of a canonical
// row.
struct WeightRow {
    uint64_t at_0, at_1, at_2, at_3, at_4;
    uint step;
};

// The row whose first block has the number `block` in a tensor of n_block blocks at `base`. s0 is
// the distance of neighbouring blocks of a row, in blocks; planes have 1.
WeightRow weight_row(uint64_t base, uint64_t n_block, uint64_t block, uint s0) {
    const uvec2 fields[5] = FIELDS;
    WeightRow row;
    row.step = s0 * BLOCK_SIZE;
    if (!WEIGHT_IS_PLANAR) {
        base += block * BLOCK_SIZE;
        row.at_0 = base + fields[0].y;
        row.at_1 = base + fields[1].y;
        row.at_2 = base + fields[2].y;
        row.at_3 = base + fields[3].y;
        row.at_4 = base + fields[4].y;
        return row;
    }
    row.at_0 = base + block * fields[0].x;
    base += (n_block * fields[0].x + 15ul) & ~15ul;
    row.at_1 = base + block * fields[1].x;
    base += (n_block * fields[1].x + 15ul) & ~15ul;
    row.at_2 = base + block * fields[2].x;
    base += (n_block * fields[2].x + 15ul) & ~15ul;
    row.at_3 = base + block * fields[3].x;
    base += (n_block * fields[3].x + 15ul) & ~15ul;
    row.at_4 = base + block * fields[4].x;
    return row;
}

// ---- Loads -------------------------------------------------------------------------------------

uint load_8(uint64_t at) {
    return uint(U8(at).at[0]);
}

uint load_16(uint64_t at) {
    return uint(U16(at).at[0]);
}

// In a plane, `at` is a multiple of what is loaded. Canonical blocks begin at multiples of 2 bytes,
// those of mxfp4 at any byte.
uint load_32(uint64_t at) {
    if (WEIGHT_IS_PLANAR) return U32(at).at[0];
#if WEIGHT_TYPE == TYPE_MXFP4
    return load_8(at) | load_8(at + 1) << 8 | load_8(at + 2) << 16 | load_8(at + 3) << 24;
#else
    return load_16(at) | load_16(at + 2) << 16;
#endif
}

uvec2 load_64(uint64_t at) {
    if (WEIGHT_IS_PLANAR) return unpackUint2x32(U64(at).at[0]);
    return uvec2(load_32(at), load_32(at + 4));
}

uvec4 load_128(uint64_t at) {
    if (!WEIGHT_IS_PLANAR) return uvec4(load_64(at), load_64(at + 8));
    u64vec2 two = U64x2(at).at[0];
    return uvec4(unpackUint2x32(two.x), unpackUint2x32(two.y));
}

float half_float(uint bits) {
    return unpackHalf2x16(bits).x;
}

// ---- Bytes in words ----------------------------------------------------------------------------

// Each byte minus c; bytes and c are 0 .. 127.
uvec4 bytes_minus(uvec4 bytes, uint c) {
    return ((bytes | 0x80808080u) - c * 0x01010101u) ^ 0x80808080u;
}

// Bits 0 to 3 as the lowest bits of four bytes.
uvec4 bits_spread(uvec4 bits) {
    return ((bits & 15u) * 0x00204081u) & 0x01010101u;
}

// Bytes of 1 .. 127, negated where the bit is set.
uvec4 bytes_sign(uvec4 bytes, uvec4 bits) {
    uvec4 ones = bits_spread(bits);
    return (bytes ^ ones * 255u) + ones;
}

// Eight sign bits from seven: their number is even.
uint signs_of_7(uint bits) {
    bits &= 127u;
    return bits | (uint(bitCount(bits)) & 1u) << 7;
}

uint byte_get(uint word, uint i) {
    return word >> 8u * i & 255u;
}

int signed_byte_get(uint word, uint i) {
    return bitfieldExtract(int(word), int(8u * i), 8);
}

// The codebook entry of an index 0 .. 15; `book` is 16 bytes.
uvec4 book_one(uvec4 index, uvec4 book) {
    bvec4 second = notEqual(index & 4u, uvec4(0)), upper = notEqual(index & 8u, uvec4(0));
    uvec4 low = mix(book.xxxx, book.yyyy, second), high = mix(book.zzzz, book.wwww, second);
    return mix(low, high, upper) >> 8u * (index & 3u) & 255u;
}

// The entries of indices in bytes.
uvec4 book_get(uvec4 indices, uvec4 book) {
    return book_one(indices & 255u, book) | book_one(indices >> 8 & 255u, book) << 8 |
           book_one(indices >> 16 & 255u, book) << 16 | book_one(indices >> 24, book) << 24;
}

// Trit number n of each byte: tdm_tq1_0_trit.
uvec4 trits_get(uvec4 bytes, uvec4 n) {
    uvec4 power = mix(mix(uvec4(1), uvec4(3), equal(n, uvec4(1))),
                      mix(mix(uvec4(9), uvec4(27), equal(n, uvec4(3))), uvec4(81),
                          equal(n, uvec4(4))),
                      greaterThan(n, uvec4(1)));
    uvec4 even = (bytes & 0x00ff00ffu) * power & 0x00ff00ffu;
    uvec4 odd = (bytes >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
    return (even * 3 >> 8 & 0x00030003u) | (odd * 3 & 0x03000300u);
}

// ---- Groups ------------------------------------------------------------------------------------

struct WeightGroup {
    uvec4 low;  // int8 of elements 0 .. 15, the first one lowest
    uvec4 high; // of elements 16 .. 31
    vec2 scale; // of elements 0 .. 15, of 16 .. 31
    vec2 offset;
};

// Point `index` of the grid: 8 coordinates, or 4.
uvec2 grid_8(uint index) {
    return unpackUint2x32(U64(args.address[5]).at[index]);
}
uint grid_4(uint index) {
    return U32(args.address[5]).at[index];
}

// Address of field f of block b of a row.
#define FIELD(f) (row.at_##f + (WEIGHT_IS_PLANAR ? b * fields[f].x : b * row.step))

#if WEIGHT_HAS_SMALL_BLOCKS
WeightGroup weight_group(WeightRow row, uint b) {
    const uvec2 fields[5] = FIELDS;
    WeightGroup g;
    uvec4 qs = load_128(FIELD(0));
    g.offset = vec2(0);
#if WEIGHT_TYPE == TYPE_Q8_0
    g.low = qs;
    g.high = load_128(FIELD(0) + 16);
#else
    // Low nibbles are elements 0 .. 15, high nibbles 16 .. 31.
    g.low = qs & 0x0f0f0f0fu;
    g.high = qs >> 4 & 0x0f0f0f0fu;
#endif
#if WEIGHT_TYPE == TYPE_Q5_0 || WEIGHT_TYPE == TYPE_Q5_1
    uint fifth = load_32(FIELD(1));
    g.low |= bits_spread(uvec4(fifth, fifth >> 4, fifth >> 8, fifth >> 12)) << 4;
    g.high |= bits_spread(uvec4(fifth >> 16, fifth >> 20, fifth >> 24, fifth >> 28)) << 4;
#endif
#if WEIGHT_TYPE == TYPE_Q4_0
    g.low = bytes_minus(g.low, 8);
    g.high = bytes_minus(g.high, 8);
#elif WEIGHT_TYPE == TYPE_Q5_0
    g.low = bytes_minus(g.low, 16);
    g.high = bytes_minus(g.high, 16);
#elif WEIGHT_TYPE == TYPE_IQ4_NL
    g.low = book_get(g.low, IQ4_BOOK);
    g.high = book_get(g.high, IQ4_BOOK);
#elif WEIGHT_TYPE == TYPE_MXFP4
    const uvec4 book = uvec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
    g.low = book_get(g.low, book);
    g.high = book_get(g.high, book);
#endif
#if WEIGHT_TYPE == TYPE_Q4_1
    vec2 dm = unpackHalf2x16(load_32(FIELD(1)));
    g.scale = dm.xx;
    g.offset = dm.yy;
#elif WEIGHT_TYPE == TYPE_Q5_1
    vec2 dm = unpackHalf2x16(load_32(FIELD(2)));
    g.scale = dm.xx;
    g.offset = dm.yy;
#elif WEIGHT_TYPE == TYPE_Q5_0
    g.scale = vec2(half_float(load_16(FIELD(2))));
#elif WEIGHT_TYPE == TYPE_MXFP4
    uint e = load_8(FIELD(1));
    g.scale = vec2(uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23));
#else
    g.scale = vec2(half_float(load_16(FIELD(1))));
#endif
    return g;
}
#elif !WEIGHT_IS_PLAIN

// 32 bytes.
void bytes_load(uint64_t at, inout WeightGroup g) {
    g.low = load_128(at);
    g.high = load_128(at + 16);
}

// Two-bit codes of q2_K, q3_K, tq2_0: quarter s % 4 of half s / 4.
void pairs_load(uint64_t qs, uint s, inout WeightGroup g) {
    bytes_load(qs + 32 * (s / 4), g);
    g.low = g.low >> 2 * (s % 4) & 0x03030303u;
    g.high = g.high >> 2 * (s % 4) & 0x03030303u;
}

void group_minus(inout WeightGroup g, uint c) {
    g.low = bytes_minus(g.low, c);
    g.high = bytes_minus(g.high, c);
}

// Scale and minimum of q4_K and q5_K; head: d, dmin, scales[12].
void k_scales_set(uvec4 head, uint s, inout WeightGroup g) {
    vec2 d = unpackHalf2x16(head.x);
    uint t = s & 3u, a = byte_get(head.y, t), c = byte_get(head.z, t), both = byte_get(head.w, t);
    uint scale = s < 4 ? a & 63u : (both & 15u) | a >> 6 << 4;
    uint low = s < 4 ? c & 63u : both >> 4 | c >> 6 << 4;
    g.scale = vec2(d.x * float(scale));
    g.offset = vec2(-(d.y * float(low)));
}

// Two points of 8 coordinates, with signs.
uvec4 points_sign(uvec2 a, uvec2 b, uint signs_a, uint signs_b) {
    return bytes_sign(uvec4(a, b), uvec4(signs_a, signs_a >> 4, signs_b, signs_b >> 4));
}

// iq1: eight times (v + o), of points 8 * (1 + v); o is -1/8 where the bit is set.
uvec4 points_iq1(uvec2 a, uvec2 b, bool a_is_minus, bool b_is_minus) {
    uvec4 bytes = uvec4(a, b) | 0x80808080u;
    uvec2 c = uvec2(a_is_minus ? 9 : 7, b_is_minus ? 9 : 7) * 0x01010101u;
    return (bytes - c.xxyy) ^ 0x80808080u;
}

// Scales of iq2_xs and iq2_s: nibbles.
vec2 iq2_scales(uint d_bits, uint nibbles) {
    float d = half_float(d_bits);
    return vec2(d * (0.5 + float(nibbles & 15u)) * 0.25, d * (0.5 + float(nibbles >> 4)) * 0.25);
}

// A scale of nvfp4: tdm_nvfp4_scale, of a byte.
float e4m3_half(uint e) {
    uint exponent = e >> 3 & 15u, mantissa = e & 7u;
    float small = float(mantissa) * 0.0009765625;
    float number = uintBitsToFloat((exponent + 119u) << 23 | mantissa << 20);
    return e == 127u ? 0.0 : exponent == 0u ? small : number;
}

// Codes and scales of group `index` of a row.
WeightGroup weight_group(WeightRow row, uint index) {
    const uvec2 fields[5] = FIELDS;
    uint b = index / WEIGHT_BLOCK_GROUPS, s = index % WEIGHT_BLOCK_GROUPS;
    WeightGroup g;
    g.offset = vec2(0);
#if WEIGHT_TYPE == TYPE_NVFP4
    // Of each 16 elements low nibbles are the first 8, high nibbles the others.
    const uvec4 book = uvec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
    uvec4 qs = load_128(FIELD(0) + 16 * s), first = qs & 0x0f0f0f0fu, other = qs >> 4 & 0x0f0f0f0fu;
    g.low = book_get(uvec4(first.xy, other.xy), book);
    g.high = book_get(uvec4(first.zw, other.zw), book);
    uint scales = load_16(FIELD(1) + 2 * s);
    g.scale = vec2(e4m3_half(scales & 255u), e4m3_half(scales >> 8));
#elif WEIGHT_TYPE == TYPE_Q2_K
    pairs_load(FIELD(0), s, g);
    uint scales = load_16(FIELD(1) + 2 * s);
    vec2 d = unpackHalf2x16(load_32(FIELD(2)));
    g.scale = vec2(d.x * float(scales & 15u), d.x * float(scales >> 8 & 15u));
    g.offset = vec2(-(d.y * float(scales >> 4 & 15u)), -(d.y * float(scales >> 12)));
#elif WEIGHT_TYPE == TYPE_Q3_K
    pairs_load(FIELD(0), s, g);
    uint64_t masks = FIELD(1), scales = FIELD(2);
    g.low |= (load_128(masks) >> s & 0x01010101u) << 2;
    g.high |= (load_128(masks + 16) >> s & 0x01010101u) << 2;
    group_minus(g, 4);
    uint shift = 16 * (s & 1u);
    uint low = load_32(scales + 4 * (s >> 1 & 1u)) >> shift + (s < 4 ? 0 : 4);
    uint high = load_32(scales + 8) >> shift + 2 * (s >> 1);
    float d = half_float(load_16(FIELD(3)));
    g.scale.x = d * float(int((low & 15u) | (high & 3u) << 4) - 32);
    g.scale.y = d * float(int((low >> 8 & 15u) | (high >> 8 & 3u) << 4) - 32);
#elif WEIGHT_TYPE == TYPE_Q4_K
    bytes_load(FIELD(0) + 32 * (s / 2), g);
    g.low = g.low >> 4 * (s & 1u) & 0x0f0f0f0fu;
    g.high = g.high >> 4 * (s & 1u) & 0x0f0f0f0fu;
    k_scales_set(load_128(FIELD(1)), s, g);
#elif WEIGHT_TYPE == TYPE_Q5_K
    uint64_t fifth = FIELD(1);
    bytes_load(FIELD(0) + 32 * (s / 2), g);
    g.low = (g.low >> 4 * (s & 1u) & 0x0f0f0f0fu) | (load_128(fifth) >> s & 0x01010101u) << 4;
    g.high =
        (g.high >> 4 * (s & 1u) & 0x0f0f0f0fu) | (load_128(fifth + 16) >> s & 0x01010101u) << 4;
    k_scales_set(load_128(FIELD(2)), s, g);
#elif WEIGHT_TYPE == TYPE_Q6_K
    uint part = s & 3u;
    uint64_t high = FIELD(1) + 32 * (s / 4);
    bytes_load(FIELD(0) + 64 * (s / 4) + 32 * (part & 1u), g);
    g.low = (g.low >> 4 * (part >> 1) & 0x0f0f0f0fu) |
            (load_128(high) >> 2 * part & 0x03030303u) << 4;
    g.high = (g.high >> 4 * (part >> 1) & 0x0f0f0f0fu) |
             (load_128(high + 16) >> 2 * part & 0x03030303u) << 4;
    group_minus(g, 32);
    uint scales = load_16(FIELD(2) + 2 * s);
    g.scale = half_float(load_16(FIELD(3))) *
              vec2(float(signed_byte_get(scales, 0)), float(signed_byte_get(scales, 1)));
#elif WEIGHT_TYPE == TYPE_IQ4_XS
    uvec2 head = load_64(FIELD(1));
    uvec4 qs = load_128(FIELD(0) + 16 * s);
    g.low = book_get(qs & 0x0f0f0f0fu, IQ4_BOOK);
    g.high = book_get(qs >> 4 & 0x0f0f0f0fu, IQ4_BOOK);
    int scale = int((head.y >> 4 * s & 15u) | (head.x >> 16 + 2 * s & 3u) << 4) - 32;
    g.scale = vec2(half_float(head.x & 0xffffu) * float(scale));
#elif WEIGHT_TYPE == TYPE_IQ2_XXS
    uvec2 qs = load_64(FIELD(0) + 8 * s);
    g.low = points_sign(grid_8(byte_get(qs.x, 0)), grid_8(byte_get(qs.x, 1)), signs_of_7(qs.y),
                        signs_of_7(qs.y >> 7));
    g.high = points_sign(grid_8(byte_get(qs.x, 2)), grid_8(byte_get(qs.x, 3)),
                         signs_of_7(qs.y >> 14), signs_of_7(qs.y >> 21));
    g.scale = vec2(half_float(load_16(FIELD(1))) * (0.5 + float(qs.y >> 28)) * 0.25);
#elif WEIGHT_TYPE == TYPE_IQ2_XS
    uvec2 qs = load_64(FIELD(0) + 8 * s);
    g.low = points_sign(grid_8(qs.x & 511u), grid_8(qs.x >> 16 & 511u), signs_of_7(qs.x >> 9),
                        signs_of_7(qs.x >> 25));
    g.high = points_sign(grid_8(qs.y & 511u), grid_8(qs.y >> 16 & 511u), signs_of_7(qs.y >> 9),
                         signs_of_7(qs.y >> 25));
    g.scale = iq2_scales(load_16(FIELD(2)), load_8(FIELD(1) + s));
#elif WEIGHT_TYPE == TYPE_IQ2_S
    uint64_t qs = FIELD(0), head = FIELD(1);
    uint low = load_32(qs + 4 * s), signs = load_32(qs + 32 + 4 * s), high = load_8(head + s);
    g.low = points_sign(grid_8(byte_get(low, 0) | (high & 3u) << 8),
                        grid_8(byte_get(low, 1) | (high >> 2 & 3u) << 8), signs, signs >> 8);
    g.high =
        points_sign(grid_8(byte_get(low, 2) | (high >> 4 & 3u) << 8),
                    grid_8(byte_get(low, 3) | (high >> 6 & 3u) << 8), signs >> 16, signs >> 24);
    g.scale = iq2_scales(load_16(FIELD(2)), load_8(head + 8 + s));
#elif WEIGHT_TYPE == TYPE_IQ3_XXS
    uvec2 qs = load_64(FIELD(0) + 8 * s);
    uint word = load_32(FIELD(1) + 4 * s);
    uvec4 signs = uvec4(signs_of_7(word), signs_of_7(word >> 7), signs_of_7(word >> 14),
                        signs_of_7(word >> 21));
    g.low = bytes_sign(uvec4(grid_4(byte_get(qs.x, 0)), grid_4(byte_get(qs.x, 1)),
                             grid_4(byte_get(qs.x, 2)), grid_4(byte_get(qs.x, 3))),
                       uvec4(signs.x, signs.x >> 4, signs.y, signs.y >> 4));
    g.high = bytes_sign(uvec4(grid_4(byte_get(qs.y, 0)), grid_4(byte_get(qs.y, 1)),
                              grid_4(byte_get(qs.y, 2)), grid_4(byte_get(qs.y, 3))),
                        uvec4(signs.z, signs.z >> 4, signs.w, signs.w >> 4));
    g.scale = vec2(half_float(load_16(FIELD(2))) * (0.5 + float(word >> 28)) * 0.5);
#elif WEIGHT_TYPE == TYPE_IQ3_S
    uvec2 qs = load_64(FIELD(0) + 8 * s);
    uint signs = load_32(FIELD(1) + 4 * s), high = load_8(FIELD(2) + s) << 8;
    g.low = bytes_sign(uvec4(grid_4(byte_get(qs.x, 0) | (high & 256u)),
                             grid_4(byte_get(qs.x, 1) | (high >> 1 & 256u)),
                             grid_4(byte_get(qs.x, 2) | (high >> 2 & 256u)),
                             grid_4(byte_get(qs.x, 3) | (high >> 3 & 256u))),
                       uvec4(signs, signs >> 4, signs >> 8, signs >> 12));
    g.high = bytes_sign(uvec4(grid_4(byte_get(qs.y, 0) | (high >> 4 & 256u)),
                              grid_4(byte_get(qs.y, 1) | (high >> 5 & 256u)),
                              grid_4(byte_get(qs.y, 2) | (high >> 6 & 256u)),
                              grid_4(byte_get(qs.y, 3) | (high >> 7 & 256u))),
                        uvec4(signs >> 16, signs >> 20, signs >> 24, signs >> 28));
    uint nibble = load_8(FIELD(3) + s / 2) >> 4 * (s & 1u) & 15u;
    g.scale = vec2(half_float(load_16(FIELD(4))) * float(1 + 2 * nibble));
#elif WEIGHT_TYPE == TYPE_IQ1_S
    uint low = load_32(FIELD(0) + 4 * s), high = load_16(FIELD(1) + 2 * s);
    bool is_minus = high >> 15 != 0;
    g.low = points_iq1(grid_8(byte_get(low, 0) | (high & 7u) << 8),
                       grid_8(byte_get(low, 1) | (high >> 3 & 7u) << 8), is_minus, is_minus);
    g.high = points_iq1(grid_8(byte_get(low, 2) | (high >> 6 & 7u) << 8),
                        grid_8(byte_get(low, 3) | (high >> 9 & 7u) << 8), is_minus, is_minus);
    g.scale = vec2(half_float(load_16(FIELD(2))) * float(2 * (high >> 12 & 7u) + 1) * 0.125);
#elif WEIGHT_TYPE == TYPE_IQ1_M
    uint low = load_32(FIELD(0) + 4 * s), high = load_16(FIELD(1) + 2 * s);
    g.low = points_iq1(grid_8(byte_get(low, 0) | (high & 7u) << 8),
                       grid_8(byte_get(low, 1) | (high >> 4 & 7u) << 8), (high & 8u) != 0,
                       (high & 128u) != 0);
    g.high = points_iq1(grid_8(byte_get(low, 2) | (high >> 8 & 7u) << 8),
                        grid_8(byte_get(low, 3) | (high >> 12 & 7u) << 8), (high & 2048u) != 0,
                        (high & 32768u) != 0);
    uvec2 scales = load_64(FIELD(2));
    float d = half_float((scales.x >> 12 & 15u) | (scales.x >> 28) << 4 |
                         (scales.y >> 12 & 15u) << 8 | (scales.y >> 28) << 12);
    uint word = (s < 4 ? scales.x : scales.y) >> 16 * (s / 2 & 1u) >> 6 * (s & 1u);
    g.scale = vec2(d * float(2 * (word & 7u) + 1) * 0.125,
                   d * float(2 * (word >> 3 & 7u) + 1) * 0.125);
#elif WEIGHT_TYPE == TYPE_TQ1_0
    // Elements 0 .. 159 are trit s of 32 bytes; 160 .. 239 two trits of 16; 240 .. 255 four of 4.
    uint64_t qs = FIELD(0);
    uvec4 low = load_128(qs + (s < 5 ? 0 : 32)), high = load_128(qs + 16);
    uint rest = load_32(FIELD(1));
    g.low = trits_get(low, uvec4(s < 5 ? s : 2 * (s - 5)));
    uvec4 n = s < 5 ? uvec4(s) : s < 7 ? uvec4(2 * (s - 5) + 1) : uvec4(0, 1, 2, 3);
    g.high = trits_get(s < 5 ? high : s < 7 ? low : uvec4(rest), n);
    group_minus(g, 1);
    g.scale = vec2(half_float(load_16(FIELD(2))));
#elif WEIGHT_TYPE == TYPE_TQ2_0
    pairs_load(FIELD(0), s, g);
    group_minus(g, 1);
    g.scale = vec2(half_float(load_16(FIELD(1))));
#endif
    return g;
}
#else
WeightGroup weight_group(WeightRow row, uint index) {
    return WeightGroup(uvec4(0), uvec4(0), vec2(1), vec2(0));
}
#endif

// ---- Elements ----------------------------------------------------------------------------------

vec4 bytes_float(uint bytes) {
    return vec4(float(signed_byte_get(bytes, 0)), float(signed_byte_get(bytes, 1)),
                float(signed_byte_get(bytes, 2)), float(signed_byte_get(bytes, 3)));
}

#if WEIGHT_IS_PLAIN
float plain_float(WeightRow row, uint i, uint k) {
    if (i >= k) return 0;
    uint64_t at = row.at_0 + uint64_t(WEIGHT_IS_PLANAR ? i * BLOCK_SIZE : i * row.step);
#if WEIGHT_TYPE == TYPE_F32
    return F32(at).at[0];
#elif WEIGHT_TYPE == TYPE_F16
    return half_float(load_16(at));
#else
    return uintBitsToFloat(load_16(at) << 16);
#endif
}

vec4 plain_quad_wide(WeightRow row, uint i) {
    uvec2 words = unpackUint2x32(U64(row.at_0 + i * BLOCK_SIZE).at[0]);
#if WEIGHT_TYPE == TYPE_F32
    uvec2 more = unpackUint2x32(U64(row.at_0 + i * BLOCK_SIZE).at[1]);
    return uintBitsToFloat(uvec4(words, more));
#elif WEIGHT_TYPE == TYPE_F16
    return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
#else
    return uintBitsToFloat(
        uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
#endif
}

// Elements i .. i + 7 of a wide row, i a multiple of 8, by loads of 16 bytes.
void plain_eight(WeightRow row, uint i, out vec4 low, out vec4 high) {
    uvec4 words = U32x4(row.at_0 + i * BLOCK_SIZE).at[0];
#if WEIGHT_TYPE == TYPE_F32
    low = uintBitsToFloat(words);
    high = uintBitsToFloat(U32x4(row.at_0 + i * BLOCK_SIZE).at[1]);
#elif WEIGHT_TYPE == TYPE_F16
    low = vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
    high = vec4(unpackHalf2x16(words.z), unpackHalf2x16(words.w));
#else
    low = uintBitsToFloat(
        uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
    high = uintBitsToFloat(
        uvec4(words.z << 16, words.z & 0xffff0000u, words.w << 16, words.w & 0xffff0000u));
#endif
}
#endif

// Elements 4 * q .. 4 * q + 3 of group `index`: codes as floats, or a plain type's elements; beyond
// the k elements of the row 0.
vec4 weight_quad(WeightRow row, WeightGroup g, uint index, uint q, uint k) {
#if WEIGHT_IS_PLAIN
    uint i = 32 * index + 4 * q;
    if (WEIGHT_IS_WIDE) return plain_quad_wide(row, i);
    return vec4(plain_float(row, i, k), plain_float(row, i + 1, k), plain_float(row, i + 2, k),
                plain_float(row, i + 3, k));
#else
    return bytes_float(q < 4 ? g.low[q & 3u] : g.high[q & 3u]);
#endif
}
