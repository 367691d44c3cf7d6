// SPDX-License-Identifier: MIT
//
// matrix.glsl: products of small matrices that the invocations of a subgroup hold together: A of
// MATRIX_ROWS x 16, B of 16 x MATRIX_COLUMNS, both f16, and their sums in f32. In shared memory
// rows of A and columns of B lie side by side, in words of two f16.
//
// The compilers of Debian 12 have VK_KHR_cooperative_matrix's instructions under the names of
// GL_NV_cooperative_matrix alone. The build replaces them (cooperative.py), which needs A, B and
// the sums to be of three types: MATRIX_ROWS and MATRIX_COLUMNS are two constants, also where they
// are equal. The includer defines them.
//
// With MATRIX_IS_PLAIN an invocation computes the sums of some elements from shared memory. It is
// for tests of the kernels around it, on drivers without such matrices.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_basic : require

// A word of two f16, rounded to nearest where a module can request it (float_mode.h). packHalf2x16
// may round towards 0 even then, as Mesa's driver of AMD cards does: all elements would shrink a
// little. There this takes three instructions instead of one, or none where it becomes part of the
// addition before it (v_fma_mixlo_f16).
uint halves_pack(vec2 v) {
    return packFloat2x16(f16vec2(v));
}

#if MATRIX_IS_PLAIN
struct MatrixA {
    uint at, stride;
};
struct MatrixB {
    uint at, stride;
};
// Elements lane, lane + subgroup size, ... in the order of columns.
struct MatrixSum {
    float element[256 / 4];
};

#define MATRIX_A_LOAD(m, from, first, pitch)                                                       \
    {                                                                                              \
        m.at = first;                                                                              \
        m.stride = pitch;                                                                          \
    }
#define MATRIX_B_LOAD(m, from, first, pitch) MATRIX_A_LOAD(m, from, first, pitch)
#define MATRIX_ZERO(m)                                                                             \
    for (uint e_ = 0; e_ < 64; e_++) m.element[e_] = 0;
#define MATRIX_MULTIPLY_ADD(sum, a, a_from, b, b_from)                                             \
    [[dont_unroll]] for (uint e_ = gl_SubgroupInvocationID, n_ = 0;                                \
                         e_ < MATRIX_ROWS * MATRIX_COLUMNS; e_ += gl_SubgroupSize, n_++) {         \
        uint row_ = a.at + e_ % MATRIX_ROWS * a.stride;                                            \
        uint column_ = b.at + e_ / MATRIX_ROWS * b.stride;                                         \
        [[unroll]] for (uint k_ = 0; k_ < 8; k_++)                                                 \
            sum.element[n_] +=                                                                     \
                dot(unpackHalf2x16(a_from[row_ + k_]), unpackHalf2x16(b_from[column_ + k_]));      \
    }
#define MATRIX_STORE(m, to, first)                                                                 \
    for (uint e_ = gl_SubgroupInvocationID, n_ = 0; e_ < MATRIX_ROWS * MATRIX_COLUMNS;             \
         e_ += gl_SubgroupSize, n_++)                                                              \
        to[first + e_] = m.element[n_];
#define MATRIX_SUM_LOAD(m, from, first)                                                            \
    for (uint e_ = gl_SubgroupInvocationID, n_ = 0; e_ < MATRIX_ROWS * MATRIX_COLUMNS;             \
         e_ += gl_SubgroupSize, n_++)                                                              \
        m.element[n_] = from[first + e_];
#define MATRIX_SCALE(m, by)                                                                        \
    for (uint e_ = 0; e_ < MATRIX_ROWS * MATRIX_COLUMNS / gl_SubgroupSize; e_++)                   \
        m.element[e_] *= by.element[e_];
#else
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_NV_cooperative_matrix : require

#define MatrixA   fcoopmatNV<16, gl_ScopeSubgroup, MATRIX_ROWS, 16>
#define MatrixB   fcoopmatNV<16, gl_ScopeSubgroup, 16, MATRIX_COLUMNS>
#define MatrixSum fcoopmatNV<32, gl_ScopeSubgroup, MATRIX_ROWS, MATRIX_COLUMNS>

#define MATRIX_A_LOAD(m, from, first, pitch) coopMatLoadNV(m, from, first, pitch, false)
#define MATRIX_B_LOAD(m, from, first, pitch) coopMatLoadNV(m, from, first, pitch, true)
#define MATRIX_ZERO(m)                       m = MatrixSum(0.0)
#define MATRIX_MULTIPLY_ADD(sum, a, a_from, b, b_from) sum = coopMatMulAddNV(a, b, sum)
// Columns of MATRIX_ROWS elements, one after the other.
#define MATRIX_STORE(m, to, first)      coopMatStoreNV(m, to, first, MATRIX_ROWS, true)
#define MATRIX_SUM_LOAD(m, from, first) coopMatLoadNV(m, from, first, MATRIX_ROWS, true)
// Element by element. The build makes a product of this quotient (cooperative.py).
#define MATRIX_SCALE(m, by) m = m / by
#endif
