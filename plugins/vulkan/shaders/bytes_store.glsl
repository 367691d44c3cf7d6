// SPDX-License-Identifier: MIT
//
// bytes_store.glsl: stores x as bytes (the layout: bytes.glsl), for quantize.comp and for shaders
// that compute x. For each group of 32 elements:
//   x = scale * (128 * high + low)     scale = max |x| / 16256, high = -127 .. 127, low = -64 .. 63
// A row of a prompt has 8 bits for each element: low is 0. A group with a NaN or an infinity has
// the scale NaN. Include args.glsl first. The includer defines BYTES_ROOM, the words of shared
// memory: 2 * BYTES_THREADS where it calls bytes_store, else 1.

const int ROLE_PROMPT = 1;

layout(constant_id = 0) const uint BYTES_THREADS = 8; // of the workgroup: args.glsl

// test-limits wrong=bytes: the last elements of each group become 0.
layout(constant_id = 9) const bool BYTES_ARE_WRONG = false;

// Whether a row of x is one of a prompt. role: address of the roles. Words at and at + 1: stride of
// the roles, and how many neighbouring rows share one.
bool bytes_is_prompt(uint64_t role, uint row, int at) {
    return I32(role).at[row / uint(args.word[at + 1]) * uint(args.word[at])] == ROLE_PROMPT;
}

// The greatest magnitude of four elements, as the bits of an f32. A NaN has more than infinity, so
// that it is found too.
uint bytes_size(vec4 v) {
    uvec4 size = floatBitsToUint(v) & 0x7fffffffu;
    return max(max(size.x, size.y), max(size.z, size.w));
}

// The scale of a group, and the factor that its elements are multiplied by before they are rounded.
struct BytesScale {
    float scale, inverse;
};

// greatest: bytes_size of all elements of the group.
BytesScale bytes_scale(uint greatest, bool is_prompt) {
    if (greatest >= 0x7f800000u) return BytesScale(uintBitsToFloat(0x7fc00000u), 0.0);
    if (greatest < 0x06800000u) return BytesScale(0.0, 0.0); // 2^-114: the inverse would overflow
    return BytesScale(uintBitsToFloat(greatest) * (1.0 / 16256.0),
                      (is_prompt ? 127.0 : 16256.0) / uintBitsToFloat(greatest));
}

uint bytes_pack(ivec4 v) {
    uvec4 bytes = uvec4(v) & 255u;
    return bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
}

// `high` and `low` of four elements.
uvec2 bytes_code(vec4 v, float inverse, bool is_prompt) {
    // Converting a NaN or an infinity to an int is undefined. A group with one has the inverse 0.
    vec4 scaled = inverse == 0.0 ? vec4(0.0) : roundEven(v * inverse);
    ivec4 code = ivec4(clamp(scaled, -16256.0, 16256.0));
    ivec4 upper = is_prompt ? code : code + 64 >> 7;
    return uvec2(bytes_pack(upper), is_prompt ? 0u : bytes_pack(code - (upper << 7)));
}

// bytes_size of each invocation's elements, for this call of bytes_store and for the one before:
// two halves in turn, so that one barrier for each call is enough.
shared uint bytes_sizes[BYTES_ROOM];

// Stores group `number` of the n_group groups of x whose bytes are at `to`. Eight neighbouring
// invocations have its elements, four each (v). All invocations of the workgroup call it together,
// with trip = 0, 1, 2, ...; those without a group too, with is_group false. is_first: the group is
// the first of row `row`, whose word it stores too. Subgroup operations are not used: subgroups may
// be smaller than eight invocations, or not whole.
void bytes_store(uint64_t to, uint64_t n_group, uint number, vec4 v, bool is_prompt, bool is_group,
                 uint row, bool is_first, uint trip) {
    uint thread = gl_LocalInvocationID.x, part = thread % 8, greatest = 0;
    uint from = trip % 2 * BYTES_THREADS;
    bytes_sizes[from + thread] = bytes_size(v);
    barrier();
    if (!is_group) return;
    [[unroll]] for (uint i = 0; i < 8; i++)
        greatest = max(greatest, bytes_sizes[from + thread - part + i]);
    BytesScale by = bytes_scale(greatest, is_prompt);
    uvec2 code = bytes_code(v, by.inverse, is_prompt);
    if (BYTES_ARE_WRONG && part == 7) code = uvec2(0);
    U32(to + 32ul * number).at[part] = code.x;
    U32(to + 32 * (n_group + number)).at[part] = code.y;
    if (part != 0) return;
    F32(to + 64 * n_group + 4ul * number).at[0] = by.scale;
    if (is_first) U32(to + 68 * n_group).at[row] = is_prompt ? 0u : 1u;
}
