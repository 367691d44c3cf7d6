/* SPDX-License-Identifier: MIT
 *
 * each_type.h: includes WEIGHT_FILE once for each type of weights, each time in a namespace of its
 * own and with WEIGHT_TYPE the number of the tdm_type. A source that defines WEIGHT_TYPES before
 * gets the types of that value only; a build that defines WEIGHT_ONLY gets the type of that number
 * only (names.py reads the conditions below). Entries are named <kernel>_<type>, or
 * <kernel>_<type>_<columns> where there is one for each number of columns of a tile: symbol_print
 * of plugins/gpu/rt/module.c.
 */
#include "iq4.h"
#include "lang.h"
#include "math.h"

#define TYPE_F32     0
#define TYPE_F16     1
#define TYPE_Q4_0    2
#define TYPE_Q4_1    3
#define TYPE_Q5_0    6
#define TYPE_Q5_1    7
#define TYPE_Q8_0    8
#define TYPE_Q2_K    10
#define TYPE_Q3_K    11
#define TYPE_Q4_K    12
#define TYPE_Q5_K    13
#define TYPE_Q6_K    14
#define TYPE_IQ2_XXS 16
#define TYPE_IQ2_XS  17
#define TYPE_IQ3_XXS 18
#define TYPE_IQ1_S   19
#define TYPE_IQ4_NL  20
#define TYPE_IQ3_S   21
#define TYPE_IQ2_S   22
#define TYPE_IQ4_XS  23
#define TYPE_IQ1_M   29
#define TYPE_BF16    30
#define TYPE_TQ1_0   34
#define TYPE_TQ2_0   35
#define TYPE_MXFP4   39
#define TYPE_NVFP4   40

#define GPU_TYPED_NAME_(name, type) name##_##type
#define GPU_TYPED_NAME(name, type)  GPU_TYPED_NAME_(name, type)
/* As GPU_KERNEL, for the type WEIGHT_TYPE. */
#define GPU_TYPED_ENTRY_(name, type) GPU_KERNEL(name, type)
#define GPU_TYPED_KERNEL(name, type) GPU_TYPED_ENTRY_(GPU_TYPED_NAME(name, WEIGHT_TYPE), type)
/* As GPU_KERNEL_OF, for the type WEIGHT_TYPE and tiles of so many columns. The struct is the last
 * argument, since its name may have commas. */
#define GPU_SIZED_NAME_(name, type, columns) name##_##type##_##columns
#define GPU_SIZED_NAME(name, type, columns)  GPU_SIZED_NAME_(name, type, columns)
#define GPU_SIZED_ENTRY_(name, max_threads, registers, ...)                                        \
    GPU_KERNEL_OF(name, max_threads, registers, __VA_ARGS__)
#define GPU_SIZED_KERNEL(name, max_threads, registers, columns, ...)                               \
    GPU_SIZED_ENTRY_(GPU_SIZED_NAME(name, WEIGHT_TYPE, columns), max_threads, registers,           \
                     __VA_ARGS__)

/* Values of WEIGHT_TYPES. */
#define WEIGHT_TYPES_ALL    0
#define WEIGHT_TYPES_PLAIN  1
#define WEIGHT_TYPES_BLOCKS 2
#define WEIGHT_TYPES_HALVES 3 // f16 and those with blocks
#ifndef WEIGHT_TYPES
#define WEIGHT_TYPES WEIGHT_TYPES_ALL
#endif

#if WEIGHT_TYPES != WEIGHT_TYPES_BLOCKS
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 1
#define WEIGHT_TYPE 1
namespace type_1 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#endif // WEIGHT_TYPES
#if WEIGHT_TYPES != WEIGHT_TYPES_BLOCKS && WEIGHT_TYPES != WEIGHT_TYPES_HALVES
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 0
#define WEIGHT_TYPE 0
namespace type_0 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 30
#define WEIGHT_TYPE 30
namespace type_30 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#endif // WEIGHT_TYPES
#if WEIGHT_TYPES != WEIGHT_TYPES_PLAIN
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 2
#define WEIGHT_TYPE 2
namespace type_2 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 3
#define WEIGHT_TYPE 3
namespace type_3 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 6
#define WEIGHT_TYPE 6
namespace type_6 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 7
#define WEIGHT_TYPE 7
namespace type_7 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 8
#define WEIGHT_TYPE 8
namespace type_8 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 10
#define WEIGHT_TYPE 10
namespace type_10 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 11
#define WEIGHT_TYPE 11
namespace type_11 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 12
#define WEIGHT_TYPE 12
namespace type_12 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 13
#define WEIGHT_TYPE 13
namespace type_13 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 14
#define WEIGHT_TYPE 14
namespace type_14 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 16
#define WEIGHT_TYPE 16
namespace type_16 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 17
#define WEIGHT_TYPE 17
namespace type_17 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 18
#define WEIGHT_TYPE 18
namespace type_18 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 19
#define WEIGHT_TYPE 19
namespace type_19 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 20
#define WEIGHT_TYPE 20
namespace type_20 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 21
#define WEIGHT_TYPE 21
namespace type_21 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 22
#define WEIGHT_TYPE 22
namespace type_22 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 23
#define WEIGHT_TYPE 23
namespace type_23 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 29
#define WEIGHT_TYPE 29
namespace type_29 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 34
#define WEIGHT_TYPE 34
namespace type_34 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 35
#define WEIGHT_TYPE 35
namespace type_35 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 39
#define WEIGHT_TYPE 39
namespace type_39 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#if !defined(WEIGHT_ONLY) || WEIGHT_ONLY == 40
#define WEIGHT_TYPE 40
namespace type_40 {
#include WEIGHT_FILE
}
#undef WEIGHT_TYPE
#endif
#endif // WEIGHT_TYPES
