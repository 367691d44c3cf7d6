/* SPDX-License-Identifier: MIT
 *
 * kernel.h: the one list of the kernels of GPU plugins, and the arguments that a kernel gets.
 *
 * KERNEL(NAME, name, n_operand, writes): `name` is the file of its source in each language
 * (plugins/vulkan/shaders/<name>.comp); n_operand is how many operands it has; bit i of `writes` is
 * set where it writes operand i. The comment before a row says what the operands, the words and the
 * specialisation numbers are. A kernel reads its place in the grid from its workgroup's number, and
 * nothing else: arguments and specialisation are all that it depends on.
 */
#ifndef TANDEM_GPU_KERNEL_H
#define TANDEM_GPU_KERNEL_H

#include <stdint.h>

/* Words used below. "ne[4]" and "stride[4]" are four words; strides count elements. A row number
 * r of a value of shape ne is i1 + ne[1] * (i2 + ne[2] * i3). */
#define GPU_KERNEL_LIST(KERNEL)                                                                      \
    /* dst = op(a, b), f32. Operands dst, a, b. Words: ne[4] of dst and a, stride[4] of a,         \
     * stride[4] of b (0 where b is repeated), elements of dst. Spec: 0 = gpu_pair_op. An          \
     * invocation per element. */ \
    KERNEL(PAIR, pair, 3, 0x1)

typedef enum gpu_kernel {
/* clang-format off */
#define GPU_KERNEL_ENUM_(NAME, ...) GPU_KERNEL_##NAME,
    GPU_KERNEL_LIST(GPU_KERNEL_ENUM_)
#undef GPU_KERNEL_ENUM_
    GPU_KERNEL_COUNT_
    /* clang-format on */
} gpu_kernel;

typedef enum gpu_pair_op { GPU_PAIR_ADD = 0, GPU_PAIR_MUL, GPU_PAIR_DIV } gpu_pair_op;

enum {
    GPU_MAX_OPERAND = 6,
    GPU_MAX_WORD = 20,
    GPU_MAX_SPEC = 8 /* specialisation numbers: constants when the kernel is compiled */
};

/* What every kernel is given: 128 bytes, the least that a Vulkan device offers for push constants.
 * Addresses are the device's; 0 where an operand is absent. */
typedef struct gpu_args {
    uint64_t address[GPU_MAX_OPERAND];
    int32_t word[GPU_MAX_WORD];
} gpu_args;

_Static_assert(sizeof(gpu_args) == 128, "arguments fit push constants");

#endif
