// SPDX-License-Identifier: MIT
//
// bytes.glsl: what products with integer dot products share: rows of x as quantize.comp writes
// them, and the product of a group of them with a group of a weight's codes. Include product.glsl
// first.
//
// Layout of n_row rows of n_group groups of 32 elements: first 32 bytes `high` of each group, then
// 32 bytes `low` of each group, then an f32 scale of each group, then for each row a word that is 0
// where all `low` of the row are 0.
#extension GL_EXT_spirv_intrinsics : require

// OpSDot of two words of four signed bytes. Capabilities DotProduct and
// DotProductInput4x8BitPacked; literal 0 = PackedVectorFormat4x8Bit.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018],
                  id = 4450)
int packed_dot(uint a, uint b, spirv_literal int format);

int dot_16(uvec4 a, uvec4 b) {
    return packed_dot(a.x, b.x, 0) + packed_dot(a.y, b.y, 0) + packed_dot(a.z, b.z, 0) +
           packed_dot(a.w, b.w, 0);
}

// The groups of all rows. A group's number is n_group * row + its number in the row.
uint64_t x_groups() {
    return uint64_t(uint(args.word[5])) * (uint(args.word[1]) / 32);
}

uvec4 x_high(uint64_t at, uint half_group) {
    return U32x4(args.address[2] + 32 * at).at[half_group];
}
uvec4 x_low(uint64_t at, uint half_group) {
    return U32x4(args.address[2] + 32 * (x_groups() + at)).at[half_group];
}
float x_scale(uint64_t at) {
    return F32(args.address[2] + 64 * x_groups() + 4 * at).at[0];
}
bool x_has_low(uint row) {
    return U32(args.address[2] + 68 * x_groups()).at[row] != 0u;
}

// The sum of half a group's elements, divided by the group's scale.
int half_sum(uvec4 high, uvec4 low) {
    const uvec4 ones = uvec4(0x01010101u);
    return (dot_16(high, ones) << 7) + dot_16(low, ones);
}

// The product of a group, divided by the scale of x. dots: of the two halves, up to 2^25;
// sums: half_sum of both.
float group_product(vec2 scale, vec2 offset, ivec2 dots, vec2 sums) {
    float y = WEIGHT_HAS_HALF_SCALES ? scale.x * float(dots.x) + scale.y * float(dots.y)
                                     : scale.x * float(dots.x + dots.y);
    if (WEIGHT_HAS_OFFSET)
        y += WEIGHT_HAS_HALF_SCALES ? offset.x * sums.x + offset.y * sums.y
                                    : offset.x * (sums.x + sums.y);
    return y;
}
