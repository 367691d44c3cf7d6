/* SPDX-License-Identifier: MIT
 *
 * unroll.h: INLINE and UNROLL, with which the kernels that are written once and compiled for many
 * shapes get a copy of their loops for each shape. Under a sanitizer nothing is unrolled or forced
 * inline: every copy would carry its own checks and take minutes to compile.
 */
#ifndef TANDEM_CPU_VECTOR_UNROLL_H
#define TANDEM_CPU_VECTOR_UNROLL_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(undefined_behavior_sanitizer)
#define IS_CHECKED 1
#endif
#endif

#if defined(IS_CHECKED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INLINE static inline
#define UNROLL
#elif defined(__clang__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#endif

#endif
