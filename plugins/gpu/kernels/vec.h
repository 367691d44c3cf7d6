/* SPDX-License-Identifier: MIT
 *
 * vec.h: small vectors of floats and integers for kernels, element by element. lang.h includes it.
 * In memory, vectors of two and four begin at multiples of their size: one instruction moves them.
 */
#ifndef TANDEM_GPU_VEC_H
#define TANDEM_GPU_VEC_H

struct alignas(8) vec2 {
    float x, y;
    vec2() = default;
    inline vec2(float both) : x(both), y(both) {}
    inline vec2(float x_, float y_) : x(x_), y(y_) {}
    inline float &operator[](int i) { return i == 0 ? x : y; }
    inline float operator[](int i) const { return i == 0 ? x : y; }
};

struct alignas(8) uvec2 {
    uint x, y;
    uvec2() = default;
    inline uvec2(uint both) : x(both), y(both) {}
    inline uvec2(uint x_, uint y_) : x(x_), y(y_) {}
};

struct alignas(8) ivec2 {
    int x, y;
    ivec2() = default;
    inline ivec2(int x_, int y_) : x(x_), y(y_) {}
};

struct ivec3 {
    int x, y, z;
    inline ivec3(int x_, int y_, int z_) : x(x_), y(y_), z(z_) {}
};

struct alignas(16) ivec4 {
    int x, y, z, w;
    ivec4() = default;
    inline ivec4(int x_, int y_, int z_, int w_) : x(x_), y(y_), z(z_), w(w_) {}
};

struct alignas(16) vec4 {
    float x, y, z, w;
    vec4() = default;
    inline vec4(float all) : x(all), y(all), z(all), w(all) {}
    inline vec4(float x_, float y_, float z_, float w_) : x(x_), y(y_), z(z_), w(w_) {}
    inline vec4(vec2 a, vec2 b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
    inline float &operator[](int i) { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
    inline float operator[](int i) const { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
};

struct alignas(16) uvec4 {
    uint x, y, z, w;
    uvec4() = default;
    inline uvec4(uint all) : x(all), y(all), z(all), w(all) {}
    inline uvec4(uint x_, uint y_, uint z_, uint w_) : x(x_), y(y_), z(z_), w(w_) {}
    inline uvec4(uvec2 a, uvec2 b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
    inline uint &operator[](int i) { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
    inline uint operator[](int i) const { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
};

#define VEC4_OPERATOR(OP)                                                                          \
    static inline vec4 operator OP(vec4 a, vec4 b) {                                               \
        return vec4(a.x OP b.x, a.y OP b.y, a.z OP b.z, a.w OP b.w);                               \
    }                                                                                              \
    static inline vec4 &operator OP##=(vec4 &a, vec4 b) {                                          \
        return a = a OP b;                                                                         \
    }
VEC4_OPERATOR(+)
VEC4_OPERATOR(-)
VEC4_OPERATOR(*)
#undef VEC4_OPERATOR

#define UVEC4_OPERATOR(OP)                                                                         \
    static inline uvec4 operator OP(uvec4 a, uvec4 b) {                                            \
        return uvec4(a.x OP b.x, a.y OP b.y, a.z OP b.z, a.w OP b.w);                              \
    }                                                                                              \
    static inline uvec4 &operator OP##=(uvec4 &a, uvec4 b) {                                       \
        return a = a OP b;                                                                         \
    }
UVEC4_OPERATOR(+)
UVEC4_OPERATOR(-)
UVEC4_OPERATOR(*)
UVEC4_OPERATOR(%)
UVEC4_OPERATOR(&)
UVEC4_OPERATOR(|)
UVEC4_OPERATOR(^)
UVEC4_OPERATOR(<<)
UVEC4_OPERATOR(>>)
#undef UVEC4_OPERATOR

static inline vec2 operator*(vec2 a, vec2 b) {
    return vec2(a.x * b.x, a.y * b.y);
}

static inline vec4 fma(vec4 a, vec4 b, vec4 c) {
    return vec4(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y), fma(a.z, b.z, c.z), fma(a.w, b.w, c.w));
}

/* The sum of the products, from x to w. */
static inline float dot(vec4 a, vec4 b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

static inline vec4 bits_to_float(uvec4 u) {
    return vec4(bits_to_float(u.x), bits_to_float(u.y), bits_to_float(u.z), bits_to_float(u.w));
}
static inline vec2 bits_to_float(uvec2 u) {
    return vec2(bits_to_float(u.x), bits_to_float(u.y));
}
static inline uvec4 float_to_bits(vec4 v) {
    return uvec4(float_to_bits(v.x), float_to_bits(v.y), float_to_bits(v.z), float_to_bits(v.w));
}
static inline uvec2 float_to_bits(vec2 v) {
    return uvec2(float_to_bits(v.x), float_to_bits(v.y));
}

/* Words of a 64-bit number, the low one first. */
static inline uvec2 unpack32(u64 u) {
    return uvec2(uint(u), uint(u >> 32));
}
static inline u64 pack64(uvec2 u) {
    return u64(u.x) | u64(u.y) << 32;
}

#endif
