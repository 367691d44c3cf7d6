/* SPDX-License-Identifier: MIT
 *
 * dequant.h: reads 32 consecutive elements of a row of a weight, in the planes of
 * plugins/gpu/layout/weight.h (WEIGHT_IS_PLANAR) or as canonical blocks. each_type.h
 * includes this once for each WEIGHT_TYPE, the number of a tdm_type, in a namespace of its own, so
 * that there is no include guard. Formulas and layouts: tandem/block.h.
 *
 * A group is 32 elements: a whole small block, or an eighth of a superblock. A block type gives
 *   x[i] = scale[i / 16] * code[i] + offset[i / 16]         code: int8
 * with the same roundings as block.h where the product is not contracted with the sum. f32, f16 and
 * bf16 have no codes: weight_quad reads their elements.
 * SPEC1 is gpu_product_flag. A kernel that reads planes only defines WEIGHT_ALWAYS_PLANAR before
 * it includes each_type.h.
 */
#undef WEIGHT_IS_PLAIN
#undef BLOCK_SIZE
#undef FIELDS

// ---- Fields: the table of layout/weight.c -------------------------------------------------------

// For each field f of a block: {its bytes, its offset in a canonical block}. A planar weight has a
// plane for each field, in the order of f.
#if WEIGHT_TYPE == TYPE_F32 || WEIGHT_TYPE == TYPE_F16 || WEIGHT_TYPE == TYPE_BF16
#define WEIGHT_IS_PLAIN 1
#define BLOCK_SIZE      (WEIGHT_TYPE == TYPE_F32 ? 4 : 2)
#define FIELDS                                                                                     \
    { uvec2(BLOCK_SIZE, 0), uvec2(0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q4_0 || WEIGHT_TYPE == TYPE_IQ4_NL
#define BLOCK_SIZE 18
#define FIELDS                                                                                     \
    { uvec2(16, 2), uvec2(2, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q4_1
#define BLOCK_SIZE 20
#define FIELDS                                                                                     \
    { uvec2(16, 4), uvec2(4, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q5_0
#define BLOCK_SIZE 22
#define FIELDS                                                                                     \
    { uvec2(16, 6), uvec2(4, 2), uvec2(2, 0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q5_1
#define BLOCK_SIZE 24
#define FIELDS                                                                                     \
    { uvec2(16, 8), uvec2(4, 4), uvec2(4, 0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q8_0
#define BLOCK_SIZE 34
#define FIELDS                                                                                     \
    { uvec2(32, 2), uvec2(2, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_MXFP4
#define BLOCK_SIZE 17
#define FIELDS                                                                                     \
    { uvec2(16, 1), uvec2(1, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_NVFP4
#define BLOCK_SIZE 36
#define FIELDS                                                                                     \
    { uvec2(32, 4), uvec2(4, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q2_K
#define BLOCK_SIZE 84
#define FIELDS                                                                                     \
    { uvec2(64, 16), uvec2(16, 0), uvec2(4, 80), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q3_K
#define BLOCK_SIZE 110
#define FIELDS                                                                                     \
    { uvec2(64, 32), uvec2(32, 0), uvec2(12, 96), uvec2(2, 108), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q4_K
#define BLOCK_SIZE 144
#define FIELDS                                                                                     \
    { uvec2(128, 16), uvec2(16, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q5_K
#define BLOCK_SIZE 176
#define FIELDS                                                                                     \
    { uvec2(128, 48), uvec2(32, 16), uvec2(16, 0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_Q6_K
#define BLOCK_SIZE 210
#define FIELDS                                                                                     \
    { uvec2(128, 0), uvec2(64, 128), uvec2(16, 192), uvec2(2, 208), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_IQ4_XS
#define BLOCK_SIZE 136
#define FIELDS                                                                                     \
    { uvec2(128, 8), uvec2(8, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_IQ2_XXS
#define BLOCK_SIZE 66
#define FIELDS                                                                                     \
    { uvec2(64, 2), uvec2(2, 0), uvec2(0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_IQ2_XS
#define BLOCK_SIZE 74
#define FIELDS                                                                                     \
    { uvec2(64, 2), uvec2(8, 66), uvec2(2, 0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_IQ2_S
#define BLOCK_SIZE 82
#define FIELDS                                                                                     \
    { uvec2(64, 2), uvec2(16, 66), uvec2(2, 0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_IQ3_XXS
#define BLOCK_SIZE 98
#define FIELDS                                                                                     \
    { uvec2(64, 2), uvec2(32, 66), uvec2(2, 0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_IQ3_S
#define BLOCK_SIZE 110
#define FIELDS                                                                                     \
    { uvec2(64, 2), uvec2(32, 74), uvec2(8, 66), uvec2(4, 106), uvec2(2, 0) }
#elif WEIGHT_TYPE == TYPE_IQ1_S
#define BLOCK_SIZE 50
#define FIELDS                                                                                     \
    { uvec2(32, 2), uvec2(16, 34), uvec2(2, 0), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_IQ1_M
#define BLOCK_SIZE 56
#define FIELDS                                                                                     \
    { uvec2(32, 0), uvec2(16, 32), uvec2(8, 48), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_TQ1_0
#define BLOCK_SIZE 54
#define FIELDS                                                                                     \
    { uvec2(48, 0), uvec2(4, 48), uvec2(2, 52), uvec2(0), uvec2(0) }
#elif WEIGHT_TYPE == TYPE_TQ2_0
#define BLOCK_SIZE 66
#define FIELDS                                                                                     \
    { uvec2(64, 0), uvec2(2, 64), uvec2(0), uvec2(0), uvec2(0) }
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
     WEIGHT_TYPE == TYPE_IQ2_XS || WEIGHT_TYPE == TYPE_IQ2_S || WEIGHT_TYPE == TYPE_IQ1_M ||       \
     WEIGHT_TYPE == TYPE_NVFP4)
// Codes of the other types are -64 .. 63.
#define WEIGHT_HAS_LARGE_CODES                                                                     \
    (WEIGHT_TYPE == TYPE_Q8_0 || WEIGHT_TYPE == TYPE_IQ4_NL || WEIGHT_TYPE == TYPE_IQ4_XS)
// How many neighbouring groups are decoded from what one weight_load() reads.
#define WEIGHT_RAW_GROUPS (WEIGHT_TYPE == TYPE_Q4_K || WEIGHT_TYPE == TYPE_Q5_K ? 2 : 1)
#define WEIGHT_HAS_SMALL_BLOCKS                                                                    \
    ((WEIGHT_TYPE >= TYPE_Q4_0 && WEIGHT_TYPE <= TYPE_Q8_0) || WEIGHT_TYPE == TYPE_IQ4_NL ||       \
     WEIGHT_TYPE == TYPE_MXFP4)
// Groups of a block that is not small.
#define WEIGHT_BLOCK_GROUPS (WEIGHT_TYPE == TYPE_NVFP4 ? 2 : 8)

struct Weight : Kernel {
    inline explicit Weight(const Args &args_) : Kernel(args_) {}

#ifdef WEIGHT_ALWAYS_PLANAR
    static constexpr bool WEIGHT_IS_PLANAR = true;
#else
    const bool WEIGHT_IS_PLANAR = (SPEC1 & 1) != 0;
#endif
    // Plain types: rows are dense, whole groups, and begin at multiples of 16 bytes.
    const bool WEIGHT_IS_WIDE = (SPEC1 & 2) != 0;

    // Addresses of the fields of a row's first block, and the bytes from block to block of a
    // canonical row.
    struct WeightRow {
        u64 at_0, at_1, at_2, at_3, at_4;
        uint step;
    };

    // The row whose first block is block number `block` of a tensor of n_block blocks at `base`. s0
    // is the distance of neighbouring blocks of a row, in blocks; planar weights have 1.
    inline WeightRow weight_row(u64 base, u64 n_block, u64 block, uint s0) {
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
        base += (n_block * fields[0].x + u64(15)) & ~u64(15);
        row.at_1 = base + block * fields[1].x;
        base += (n_block * fields[1].x + u64(15)) & ~u64(15);
        row.at_2 = base + block * fields[2].x;
        base += (n_block * fields[2].x + u64(15)) & ~u64(15);
        row.at_3 = base + block * fields[3].x;
        base += (n_block * fields[3].x + u64(15)) & ~u64(15);
        row.at_4 = base + block * fields[4].x;
        return row;
    }

    // ---- Prefetching ----------------------------------------------------------------------------

    // Prefetches line `line`, 128 bytes, of each field of a row of k elements, or of the row itself
    // where its blocks are canonical. Does nothing where there is no such line.
    inline void row_prefetch(WeightRow row, uint k, uint line) {
        const uvec2 fields[5] = FIELDS;
        const uint block_len = WEIGHT_IS_PLAIN           ? 1
                               : WEIGHT_HAS_SMALL_BLOCKS ? 32
                                                         : 32 * WEIGHT_BLOCK_GROUPS;
        const uint n_block = k / block_len, at = 128 * line;
        if (!WEIGHT_IS_PLANAR) {
            if (at < n_block * row.step) prefetch(row.at_0 - fields[0].y + at);
            return;
        }
        if (at < n_block * fields[0].x) prefetch(row.at_0 + at);
        if (at < n_block * fields[1].x) prefetch(row.at_1 + at);
        if (at < n_block * fields[2].x) prefetch(row.at_2 + at);
        if (at < n_block * fields[3].x) prefetch(row.at_3 + at);
        if (at < n_block * fields[4].x) prefetch(row.at_4 + at);
    }

    // ---- Loads ----------------------------------------------------------------------------------

    inline uint block_8(u64 at) {
        return uint(U8(at).at[0]);
    }

    inline uint block_16(u64 at) {
        return uint(U16(at).at[0]);
    }

    // A word of a field. In a plane it is aligned to 4 bytes. Canonical blocks begin at multiples
    // of 2, those of mxfp4 at any byte.
    inline uint block_32(u64 at) {
        if (WEIGHT_IS_PLANAR) return U32(at).at[0];
#if WEIGHT_TYPE == TYPE_MXFP4
        return block_8(at) | block_8(at + 1) << 8 | block_8(at + 2) << 16 | block_8(at + 3) << 24;
#else
        return block_16(at) | block_16(at + 2) << 16;
#endif
    }

    inline uvec2 block_64(u64 at) {
        if (WEIGHT_IS_PLANAR) return unpack32(U64(at).at[0]);
        return uvec2(block_32(at), block_32(at + 4));
    }

    inline uvec4 block_128(u64 at) {
        if (!WEIGHT_IS_PLANAR) return uvec4(block_64(at), block_64(at + 8));
        return load_16(at);
    }

    inline float half_float(uint bits) {
        return half_to_float(bits & 0xffffu);
    }

    // ---- Bytes in words -------------------------------------------------------------------------

    // Subtracts c from each byte, giving signed bytes; bytes and c are 0 .. 127.
    inline uvec4 bytes_minus(uvec4 bytes, uint c) {
        return ((bytes | 0x80808080u) - c * 0x01010101u) ^ 0x80808080u;
    }

    // Bits 0 to 3 as the lowest bits of four bytes.
    inline uvec4 bits_spread(uvec4 bits) {
        return ((bits & 15u) * 0x00204081u) & 0x01010101u;
    }

    // Bytes of 1 .. 127, negated where the bit is set.
    inline uvec4 bytes_sign(uvec4 bytes, uvec4 bits) {
        uvec4 ones = bits_spread(bits);
        return (bytes ^ ones * 255u) + ones;
    }

    // Eight sign bits from seven stored ones: the eighth makes the count of set bits even.
    inline uint signs_of_7(uint bits) {
        bits &= 127u;
        return bits | (uint(bit_count(bits)) & 1u) << 7;
    }

    inline uint byte_get(uint word, uint i) {
        return word >> 8u * i & 255u;
    }

    inline int signed_byte_get(uint word, uint i) {
        return int(word << (24u - 8u * i)) >> 24;
    }

    // Replaces each byte, an index 0 .. 15, by that byte of the codebook `book` of 16 bytes.
    inline uvec4 book_get(uvec4 indices, uvec4 book) {
        uvec4 entries;
        UNROLL for (int i = 0; i < 4; i++) {
            uint index = indices[i] & 0x07070707u, upper = (indices[i] >> 3 & 0x01010101u) * 255u;
            entries[i] = (bytes_pick(book.x, book.y, index) & ~upper) |
                         (bytes_pick(book.z, book.w, index) & upper);
        }
        return entries;
    }

    // Trit (digit of base 3) number n of each byte, as tdm_tq1_0_trit gives it.
    inline uvec4 trits_get(uvec4 bytes, uvec4 n) {
        uvec4 power;
        for (int i = 0; i < 4; i++)
            power[i] = n[i] == 0 ? 1 : n[i] == 1 ? 3 : n[i] == 2 ? 9 : n[i] == 3 ? 27 : 81;
        uvec4 even = (bytes & 0x00ff00ffu) * power & 0x00ff00ffu;
        uvec4 odd = (bytes >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu;
        return (even * 3 >> 8 & 0x00030003u) | (odd * 3 & 0x03000300u);
    }

    // ---- Groups ---------------------------------------------------------------------------------

    struct WeightGroup {
        uvec4 low;  // int8 of elements 0 .. 15, the first one lowest
        uvec4 high; // of elements 16 .. 31
        vec2 scale; // of elements 0 .. 15, of 16 .. 31
        vec2 offset;
    };

    // Point `index` of the iq type's grid: 8 coordinates of a byte each, or 4.
    inline uvec2 grid_8(uint index) {
        return unpack32(U64(args.address[5]).at[index]);
    }
    inline uint grid_4(uint index) {
        return U32(args.address[5]).at[index];
    }

    // Address of field f of block b of a row.
#define FIELD(f) (row.at_##f + (WEIGHT_IS_PLANAR ? b * fields[f].x : b * row.step))

#if !WEIGHT_IS_PLAIN
    // What WEIGHT_RAW_GROUPS groups are decoded from, as it lies in memory.
    struct WeightRaw {
        uvec4 part[5];
        uint word[6];
    };
#endif

#if WEIGHT_HAS_SMALL_BLOCKS
    inline WeightRaw weight_load(WeightRow row, uint b) {
        const uvec2 fields[5] = FIELDS;
        WeightRaw raw;
        raw.part[0] = block_128(FIELD(0));
#if WEIGHT_TYPE == TYPE_Q8_0
        raw.part[1] = block_128(FIELD(0) + 16);
#endif
#if WEIGHT_TYPE == TYPE_Q5_0 || WEIGHT_TYPE == TYPE_Q5_1
        raw.word[0] = block_32(FIELD(1));
#endif
#if WEIGHT_TYPE == TYPE_Q4_1
        raw.word[1] = block_32(FIELD(1));
#elif WEIGHT_TYPE == TYPE_Q5_1
        raw.word[1] = block_32(FIELD(2));
#elif WEIGHT_TYPE == TYPE_Q5_0
        raw.word[1] = block_16(FIELD(2));
#elif WEIGHT_TYPE == TYPE_MXFP4
        raw.word[1] = block_8(FIELD(1));
#else
        raw.word[1] = block_16(FIELD(1));
#endif
        return raw;
    }

    inline WeightGroup weight_decode(const WeightRaw &raw, uint b) {
        (void)b;
        WeightGroup g;
        uvec4 qs = raw.part[0];
        g.offset = vec2(0);
#if WEIGHT_TYPE == TYPE_Q8_0
        g.low = qs;
        g.high = raw.part[1];
#else
        // Low nibbles are elements 0 .. 15, high nibbles 16 .. 31.
        g.low = qs & 0x0f0f0f0fu;
        g.high = qs >> 4 & 0x0f0f0f0fu;
#endif
#if WEIGHT_TYPE == TYPE_Q5_0 || WEIGHT_TYPE == TYPE_Q5_1
        uint fifth = raw.word[0];
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
        const uvec4 book = iq4_book();
        g.low = book_get(g.low, book);
        g.high = book_get(g.high, book);
#elif WEIGHT_TYPE == TYPE_MXFP4
        const uvec4 book = uvec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
        g.low = book_get(g.low, book);
        g.high = book_get(g.high, book);
#endif
#if WEIGHT_TYPE == TYPE_Q4_1 || WEIGHT_TYPE == TYPE_Q5_1
        vec2 dm = unpack_half2(raw.word[1]);
        g.scale = vec2(dm.x);
        g.offset = vec2(dm.y);
#elif WEIGHT_TYPE == TYPE_MXFP4
        uint e = raw.word[1];
        g.scale = vec2(bits_to_float(e < 2 ? 0x00200000u << e : (e - 1) << 23));
#else
        g.scale = vec2(half_float(raw.word[1]));
#endif
        return g;
    }
#elif !WEIGHT_IS_PLAIN

    inline void bytes_load(u64 at, uvec4 *parts) {
        parts[0] = block_128(at);
        parts[1] = block_128(at + 16);
    }

    // Two-bit codes of q2_K, q3_K, tq2_0: of each of 32 bytes the bits 2 * (s % 4) and the next.
    inline void pairs_get(const WeightRaw &raw, uint s, WeightGroup &g) {
        g.low = raw.part[0] >> 2 * (s % 4) & 0x03030303u;
        g.high = raw.part[1] >> 2 * (s % 4) & 0x03030303u;
    }

    // Four-bit codes of q4_K, q5_K: of each of 32 bytes the low nibble, or, with odd s, the high
    // one.
    inline void nibbles_get(const WeightRaw &raw, uint s, WeightGroup &g) {
        g.low = raw.part[0] >> 4 * (s & 1u) & 0x0f0f0f0fu;
        g.high = raw.part[1] >> 4 * (s & 1u) & 0x0f0f0f0fu;
    }

    inline void group_minus(WeightGroup &g, uint c) {
        g.low = bytes_minus(g.low, c);
        g.high = bytes_minus(g.high, c);
    }

    // Scale and minimum of q4_K and q5_K; head: d, dmin, scales[12].
    inline void k_scales_set(uvec4 head, uint s, WeightGroup &g) {
        vec2 d = unpack_half2(head.x);
        uint t = s & 3u, a = byte_get(head.y, t), c = byte_get(head.z, t),
             both = byte_get(head.w, t);
        // No branch: it would wait for this row's head before the next row's head is loaded.
        uint late = 0u - (s >> 2);
        uint scale = (a & 63u & ~late) | (((both & 15u) | a >> 6 << 4) & late);
        uint low = (c & 63u & ~late) | ((both >> 4 | c >> 6 << 4) & late);
        g.scale = vec2(d.x * float(scale));
        g.offset = vec2(-(d.y * float(low)));
    }

    // Two points of 8 coordinates; a coordinate is negated where its sign bit is set.
    inline uvec4 points_sign(uvec2 a, uvec2 b, uint signs_a, uint signs_b) {
        return bytes_sign(uvec4(a, b), uvec4(signs_a, signs_a >> 4, signs_b, signs_b >> 4));
    }

    // iq1: 8 * (v + o) as signed bytes, of grid points that hold 8 * (1 + v); o is -1/8 where the
    // point is minus, else 1/8.
    inline uvec4 points_iq1(uvec2 a, uvec2 b, bool a_is_minus, bool b_is_minus) {
        uvec4 bytes = uvec4(a, b) | 0x80808080u;
        uint c = (a_is_minus ? 9 : 7) * 0x01010101u, d = (b_is_minus ? 9 : 7) * 0x01010101u;
        return (bytes - uvec4(c, c, d, d)) ^ 0x80808080u;
    }

    // Scales of iq2_xs and iq2_s: nibbles.
    inline vec2 iq2_scales(uint d_bits, uint nibbles) {
        float d = half_float(d_bits);
        return vec2(d * (0.5f + float(nibbles & 15u)) * 0.25f,
                    d * (0.5f + float(nibbles >> 4)) * 0.25f);
    }

    // A scale of nvfp4: tdm_nvfp4_scale, of a byte.
    inline float e4m3_half(uint e) {
        uint exponent = e >> 3 & 15u, mantissa = e & 7u;
        float small = float(mantissa) * 0.0009765625f;
        float number = bits_to_float((exponent + 119u) << 23 | mantissa << 20);
        return e == 127u ? 0.0f : exponent == 0u ? small : number;
    }

    inline WeightRaw weight_load(WeightRow row, uint index) {
        const uvec2 fields[5] = FIELDS;
        uint b = index / WEIGHT_BLOCK_GROUPS, s = index % WEIGHT_BLOCK_GROUPS;
        WeightRaw raw;
#if WEIGHT_TYPE == TYPE_NVFP4
        raw.part[0] = block_128(FIELD(0) + 16 * s);
        raw.word[0] = block_16(FIELD(1) + 2 * s);
#elif WEIGHT_TYPE == TYPE_Q2_K
        bytes_load(FIELD(0) + 32 * (s / 4), raw.part);
        raw.word[0] = block_16(FIELD(1) + 2 * s);
        raw.word[1] = block_32(FIELD(2));
#elif WEIGHT_TYPE == TYPE_Q3_K
        u64 scales = FIELD(2);
        bytes_load(FIELD(0) + 32 * (s / 4), raw.part);
        bytes_load(FIELD(1), raw.part + 2);
        raw.word[0] = block_32(scales + 4 * (s >> 1 & 1u));
        raw.word[1] = block_32(scales + 8);
        raw.word[2] = block_16(FIELD(3));
#elif WEIGHT_TYPE == TYPE_Q4_K
        bytes_load(FIELD(0) + 32 * (s / 2), raw.part);
        raw.part[2] = block_128(FIELD(1));
#elif WEIGHT_TYPE == TYPE_Q5_K
        bytes_load(FIELD(0) + 32 * (s / 2), raw.part);
        bytes_load(FIELD(1), raw.part + 2);
        raw.part[4] = block_128(FIELD(2));
#elif WEIGHT_TYPE == TYPE_Q6_K
        bytes_load(FIELD(0) + 64 * (s / 4) + 32 * (s & 1u), raw.part);
        bytes_load(FIELD(1) + 32 * (s / 4), raw.part + 2);
        raw.word[0] = block_16(FIELD(2) + 2 * s);
        raw.word[1] = block_16(FIELD(3));
#elif WEIGHT_TYPE == TYPE_IQ4_XS
        uvec2 head = block_64(FIELD(1));
        raw.part[0] = block_128(FIELD(0) + 16 * s);
        raw.word[0] = head.x;
        raw.word[1] = head.y;
#elif WEIGHT_TYPE == TYPE_IQ2_XXS || WEIGHT_TYPE == TYPE_IQ2_XS || WEIGHT_TYPE == TYPE_IQ3_XXS
        uvec2 qs = block_64(FIELD(0) + 8 * s);
        raw.word[0] = qs.x;
        raw.word[1] = qs.y;
#if WEIGHT_TYPE == TYPE_IQ2_XXS
        raw.word[2] = block_16(FIELD(1));
#elif WEIGHT_TYPE == TYPE_IQ2_XS
        raw.word[2] = block_16(FIELD(2));
        raw.word[3] = block_8(FIELD(1) + s);
#else
        raw.word[2] = block_16(FIELD(2));
        raw.word[3] = block_32(FIELD(1) + 4 * s);
#endif
#elif WEIGHT_TYPE == TYPE_IQ2_S
        u64 qs = FIELD(0), head = FIELD(1);
        raw.word[0] = block_32(qs + 4 * s);
        raw.word[1] = block_32(qs + 32 + 4 * s);
        raw.word[2] = block_8(head + s);
        raw.word[3] = block_8(head + 8 + s);
        raw.word[4] = block_16(FIELD(2));
#elif WEIGHT_TYPE == TYPE_IQ3_S
        uvec2 qs = block_64(FIELD(0) + 8 * s);
        raw.word[0] = qs.x;
        raw.word[1] = qs.y;
        raw.word[2] = block_32(FIELD(1) + 4 * s);
        raw.word[3] = block_8(FIELD(2) + s);
        raw.word[4] = block_8(FIELD(3) + s / 2);
        raw.word[5] = block_16(FIELD(4));
#elif WEIGHT_TYPE == TYPE_IQ1_S
        raw.word[0] = block_32(FIELD(0) + 4 * s);
        raw.word[1] = block_16(FIELD(1) + 2 * s);
        raw.word[2] = block_16(FIELD(2));
#elif WEIGHT_TYPE == TYPE_IQ1_M
        uvec2 scales = block_64(FIELD(2));
        raw.word[0] = block_32(FIELD(0) + 4 * s);
        raw.word[1] = block_16(FIELD(1) + 2 * s);
        raw.word[2] = scales.x;
        raw.word[3] = scales.y;
#elif WEIGHT_TYPE == TYPE_TQ1_0
        u64 qs = FIELD(0);
        raw.part[0] = block_128(qs + (s < 5 ? 0 : 32));
        raw.part[1] = block_128(qs + 16);
        raw.word[0] = block_32(FIELD(1));
        raw.word[1] = block_16(FIELD(2));
#elif WEIGHT_TYPE == TYPE_TQ2_0
        bytes_load(FIELD(0) + 32 * (s / 4), raw.part);
        raw.word[0] = block_16(FIELD(1));
#endif
        return raw;
    }

    inline WeightGroup weight_decode(const WeightRaw &raw, uint index) {
        uint s = index % WEIGHT_BLOCK_GROUPS;
        (void)s;
        WeightGroup g;
        g.offset = vec2(0);
#if WEIGHT_TYPE == TYPE_NVFP4
        // Of each 16 elements low nibbles are the first 8, high nibbles the others.
        const uvec4 book = uvec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
        const uvec4 first = raw.part[0] & 0x0f0f0f0fu, other = raw.part[0] >> 4 & 0x0f0f0f0fu;
        g.low = book_get(uvec4(first.x, first.y, other.x, other.y), book);
        g.high = book_get(uvec4(first.z, first.w, other.z, other.w), book);
        g.scale = vec2(e4m3_half(raw.word[0] & 255u), e4m3_half(raw.word[0] >> 8));
#elif WEIGHT_TYPE == TYPE_Q2_K
        pairs_get(raw, s, g);
        uint scales = raw.word[0];
        vec2 d = unpack_half2(raw.word[1]);
        g.scale = vec2(d.x * float(scales & 15u), d.x * float(scales >> 8 & 15u));
        g.offset = vec2(-(d.y * float(scales >> 4 & 15u)), -(d.y * float(scales >> 12)));
#elif WEIGHT_TYPE == TYPE_Q3_K
        pairs_get(raw, s, g);
        g.low |= (raw.part[2] >> s & 0x01010101u) << 2;
        g.high |= (raw.part[3] >> s & 0x01010101u) << 2;
        group_minus(g, 4);
        uint shift = 16 * (s & 1u);
        uint low = raw.word[0] >> shift + (s < 4 ? 0 : 4);
        uint high = raw.word[1] >> shift + 2 * (s >> 1);
        float d = half_float(raw.word[2]);
        g.scale.x = d * float(int((low & 15u) | (high & 3u) << 4) - 32);
        g.scale.y = d * float(int((low >> 8 & 15u) | (high >> 8 & 3u) << 4) - 32);
#elif WEIGHT_TYPE == TYPE_Q4_K
        nibbles_get(raw, s, g);
        k_scales_set(raw.part[2], s, g);
#elif WEIGHT_TYPE == TYPE_Q5_K
        nibbles_get(raw, s, g);
        g.low |= (raw.part[2] >> s & 0x01010101u) << 4;
        g.high |= (raw.part[3] >> s & 0x01010101u) << 4;
        k_scales_set(raw.part[4], s, g);
#elif WEIGHT_TYPE == TYPE_Q6_K
        uint part = s & 3u;
        g.low = (raw.part[0] >> 4 * (part >> 1) & 0x0f0f0f0fu) |
                (raw.part[2] >> 2 * part & 0x03030303u) << 4;
        g.high = (raw.part[1] >> 4 * (part >> 1) & 0x0f0f0f0fu) |
                 (raw.part[3] >> 2 * part & 0x03030303u) << 4;
        group_minus(g, 32);
        uint scales = raw.word[0];
        g.scale = half_float(raw.word[1]) *
                  vec2(float(signed_byte_get(scales, 0)), float(signed_byte_get(scales, 1)));
#elif WEIGHT_TYPE == TYPE_IQ4_XS
        const uvec4 book = iq4_book();
        uvec2 head = uvec2(raw.word[0], raw.word[1]);
        uvec4 qs = raw.part[0];
        g.low = book_get(qs & 0x0f0f0f0fu, book);
        g.high = book_get(qs >> 4 & 0x0f0f0f0fu, book);
        int scale = int((head.y >> 4 * s & 15u) | (head.x >> 16 + 2 * s & 3u) << 4) - 32;
        g.scale = vec2(half_float(head.x & 0xffffu) * float(scale));
#elif WEIGHT_TYPE == TYPE_IQ2_XXS
        uvec2 qs = uvec2(raw.word[0], raw.word[1]);
        g.low = points_sign(grid_8(byte_get(qs.x, 0)), grid_8(byte_get(qs.x, 1)), signs_of_7(qs.y),
                            signs_of_7(qs.y >> 7));
        g.high = points_sign(grid_8(byte_get(qs.x, 2)), grid_8(byte_get(qs.x, 3)),
                             signs_of_7(qs.y >> 14), signs_of_7(qs.y >> 21));
        g.scale = vec2(half_float(raw.word[2]) * (0.5f + float(qs.y >> 28)) * 0.25f);
#elif WEIGHT_TYPE == TYPE_IQ2_XS
        uvec2 qs = uvec2(raw.word[0], raw.word[1]);
        g.low = points_sign(grid_8(qs.x & 511u), grid_8(qs.x >> 16 & 511u), signs_of_7(qs.x >> 9),
                            signs_of_7(qs.x >> 25));
        g.high = points_sign(grid_8(qs.y & 511u), grid_8(qs.y >> 16 & 511u), signs_of_7(qs.y >> 9),
                             signs_of_7(qs.y >> 25));
        g.scale = iq2_scales(raw.word[2], raw.word[3]);
#elif WEIGHT_TYPE == TYPE_IQ2_S
        uint low = raw.word[0], signs = raw.word[1], high = raw.word[2];
        g.low = points_sign(grid_8(byte_get(low, 0) | (high & 3u) << 8),
                            grid_8(byte_get(low, 1) | (high >> 2 & 3u) << 8), signs, signs >> 8);
        g.high =
            points_sign(grid_8(byte_get(low, 2) | (high >> 4 & 3u) << 8),
                        grid_8(byte_get(low, 3) | (high >> 6 & 3u) << 8), signs >> 16, signs >> 24);
        g.scale = iq2_scales(raw.word[4], raw.word[3]);
#elif WEIGHT_TYPE == TYPE_IQ3_XXS
        uvec2 qs = uvec2(raw.word[0], raw.word[1]);
        uint word = raw.word[3];
        uvec4 signs = uvec4(signs_of_7(word), signs_of_7(word >> 7), signs_of_7(word >> 14),
                            signs_of_7(word >> 21));
        g.low = bytes_sign(uvec4(grid_4(byte_get(qs.x, 0)), grid_4(byte_get(qs.x, 1)),
                                 grid_4(byte_get(qs.x, 2)), grid_4(byte_get(qs.x, 3))),
                           uvec4(signs.x, signs.x >> 4, signs.y, signs.y >> 4));
        g.high = bytes_sign(uvec4(grid_4(byte_get(qs.y, 0)), grid_4(byte_get(qs.y, 1)),
                                  grid_4(byte_get(qs.y, 2)), grid_4(byte_get(qs.y, 3))),
                            uvec4(signs.z, signs.z >> 4, signs.w, signs.w >> 4));
        g.scale = vec2(half_float(raw.word[2]) * (0.5f + float(word >> 28)) * 0.5f);
#elif WEIGHT_TYPE == TYPE_IQ3_S
        uvec2 qs = uvec2(raw.word[0], raw.word[1]);
        uint signs = raw.word[2], high = raw.word[3] << 8;
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
        uint nibble = raw.word[4] >> 4 * (s & 1u) & 15u;
        g.scale = vec2(half_float(raw.word[5]) * float(1 + 2 * nibble));
#elif WEIGHT_TYPE == TYPE_IQ1_S
        uint low = raw.word[0], high = raw.word[1];
        bool is_minus = high >> 15 != 0;
        g.low = points_iq1(grid_8(byte_get(low, 0) | (high & 7u) << 8),
                           grid_8(byte_get(low, 1) | (high >> 3 & 7u) << 8), is_minus, is_minus);
        g.high = points_iq1(grid_8(byte_get(low, 2) | (high >> 6 & 7u) << 8),
                            grid_8(byte_get(low, 3) | (high >> 9 & 7u) << 8), is_minus, is_minus);
        g.scale = vec2(half_float(raw.word[2]) * float(2 * (high >> 12 & 7u) + 1) * 0.125f);
#elif WEIGHT_TYPE == TYPE_IQ1_M
        uint low = raw.word[0], high = raw.word[1];
        g.low = points_iq1(grid_8(byte_get(low, 0) | (high & 7u) << 8),
                           grid_8(byte_get(low, 1) | (high >> 4 & 7u) << 8), (high & 8u) != 0,
                           (high & 128u) != 0);
        g.high = points_iq1(grid_8(byte_get(low, 2) | (high >> 8 & 7u) << 8),
                            grid_8(byte_get(low, 3) | (high >> 12 & 7u) << 8), (high & 2048u) != 0,
                            (high & 32768u) != 0);
        uvec2 scales = uvec2(raw.word[2], raw.word[3]);
        float d = half_float((scales.x >> 12 & 15u) | (scales.x >> 28) << 4 |
                             (scales.y >> 12 & 15u) << 8 | (scales.y >> 28) << 12);
        uint word = (s < 4 ? scales.x : scales.y) >> 16 * (s / 2 & 1u) >> 6 * (s & 1u);
        g.scale = vec2(d * float(2 * (word & 7u) + 1) * 0.125f,
                       d * float(2 * (word >> 3 & 7u) + 1) * 0.125f);
#elif WEIGHT_TYPE == TYPE_TQ1_0
        // Elements 0 .. 159 are trits 0 to 4 of 32 bytes, 160 .. 239 trits 0 to 4 of 16 bytes, and
        // 240 .. 255 trits 0 to 3 of 4 bytes.
        uvec4 low = raw.part[0], high = raw.part[1];
        uint rest = raw.word[0];
        g.low = trits_get(low, uvec4(s < 5 ? s : 2 * (s - 5)));
        uvec4 n = s < 5 ? uvec4(s) : s < 7 ? uvec4(2 * (s - 5) + 1) : uvec4(0, 1, 2, 3);
        g.high = trits_get(s < 5 ? high : s < 7 ? low : uvec4(rest), n);
        group_minus(g, 1);
        g.scale = vec2(half_float(raw.word[1]));
#elif WEIGHT_TYPE == TYPE_TQ2_0
        pairs_get(raw, s, g);
        group_minus(g, 1);
        g.scale = vec2(half_float(raw.word[0]));
#endif
        return g;
    }
#endif

    // Codes and scales of group `index` of a row.
    inline WeightGroup weight_group(WeightRow row, uint index) {
#if WEIGHT_IS_PLAIN
        (void)row, (void)index;
        return {uvec4(0), uvec4(0), vec2(1), vec2(0)};
#else
        return weight_decode(weight_load(row, index), index);
#endif
    }

    // ---- Elements -------------------------------------------------------------------------------

    inline vec4 bytes_float(uint bytes) {
        return vec4(float(signed_byte_get(bytes, 0)), float(signed_byte_get(bytes, 1)),
                    float(signed_byte_get(bytes, 2)), float(signed_byte_get(bytes, 3)));
    }

#if WEIGHT_IS_PLAIN
    inline float plain_float(WeightRow row, uint i, uint k) {
        if (i >= k) return 0;
        u64 at = row.at_0 + u64(WEIGHT_IS_PLANAR ? i * BLOCK_SIZE : i * row.step);
#if WEIGHT_TYPE == TYPE_F32
        return F32(at).at[0];
#elif WEIGHT_TYPE == TYPE_F16
        return half_float(block_16(at));
#else
        return bits_to_float(block_16(at) << 16);
#endif
    }

    // Elements i .. i + 7 of a wide row, i a multiple of 8.
    inline void plain_eight(WeightRow row, uint i, vec4 &low, vec4 &high) {
        uvec4 words = load_16(row.at_0 + i * BLOCK_SIZE);
#if WEIGHT_TYPE == TYPE_F32
        low = bits_to_float(words);
        high = bits_to_float(load_16(row.at_0 + i * BLOCK_SIZE + 16));
#elif WEIGHT_TYPE == TYPE_F16
        low = vec4(unpack_half2(words.x), unpack_half2(words.y));
        high = vec4(unpack_half2(words.z), unpack_half2(words.w));
#else
        low = bits_to_float(
            uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
        high = bits_to_float(
            uvec4(words.z << 16, words.z & 0xffff0000u, words.w << 16, words.w & 0xffff0000u));
#endif
    }

    inline vec4 plain_quad_wide(WeightRow row, uint i) {
        uvec2 words = unpack32(U64(row.at_0 + i * BLOCK_SIZE).at[0]);
#if WEIGHT_TYPE == TYPE_F32
        uvec2 more = unpack32(U64(row.at_0 + i * BLOCK_SIZE).at[1]);
        return bits_to_float(uvec4(words, more));
#elif WEIGHT_TYPE == TYPE_F16
        return vec4(unpack_half2(words.x), unpack_half2(words.y));
#else
        return bits_to_float(
            uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
#endif
    }
#endif

    // Elements 4 * q .. 4 * q + 3 of group `index`: codes as floats, or a plain type's elements, 0
    // beyond the k elements of the row.
    inline vec4 weight_quad(WeightRow row, WeightGroup g, uint index, uint q, uint k) {
#if WEIGHT_IS_PLAIN
        (void)g;
        uint i = 32 * index + 4 * q;
        if (WEIGHT_IS_WIDE) return plain_quad_wide(row, i);
        return vec4(plain_float(row, i, k), plain_float(row, i + 1, k), plain_float(row, i + 2, k),
                    plain_float(row, i + 3, k));
#else
        (void)row, (void)index, (void)k;
        return bytes_float(q < 4 ? g.low[int(q & 3u)] : g.high[int(q & 3u)]);
#endif
    }
};
