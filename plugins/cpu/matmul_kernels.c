/* SPDX-License-Identifier: MIT
 *
 * matmul_kernels.c: the one ordered table of matmul kernels. For a type, the first row whose
 * instruction sets the device may use wins; the last rows need none.
 */
#include "plugins/cpu/matmul.h"

#define PLAIN_(TYPE, name)                                                                         \
    { "matmul_" name "_plain", 0, TDM_TYPE_##TYPE, 1, true, 0, cpu_matmul_run_plain }
#define FLOAT_(TYPE, name)                                                                         \
    { "matmul_" name "_plain", 0, TDM_TYPE_##TYPE, 1, false, 0, cpu_matmul_run_reference }

static const cpu_matmul_kernel kernels[] = {
    PLAIN_(Q4_0, "q4_0"), PLAIN_(Q4_1, "q4_1"), PLAIN_(Q5_0, "q5_0"),     PLAIN_(Q5_1, "q5_1"),
    PLAIN_(Q8_0, "q8_0"), PLAIN_(Q2_K, "q2_K"), PLAIN_(Q3_K, "q3_K"),     PLAIN_(Q4_K, "q4_K"),
    PLAIN_(Q5_K, "q5_K"), PLAIN_(Q6_K, "q6_K"), PLAIN_(IQ4_NL, "iq4_nl"), PLAIN_(IQ4_XS, "iq4_xs"),
    FLOAT_(F32, "f32"),   FLOAT_(F16, "f16"),   FLOAT_(BF16, "bf16"),
};

enum { N_KERNEL = (int)(sizeof kernels / sizeof kernels[0]) };

static const cpu_matmul_kernel reference = {"matmul_reference",      0, TDM_TYPE_F32, 1, false, 0,
                                            cpu_matmul_run_reference};

const cpu_matmul_kernel *cpu_matmul_kernel_at(int32_t i) {
    return i >= 0 && i < N_KERNEL ? &kernels[i] : NULL;
}

const cpu_matmul_kernel *cpu_matmul_kernel_reference(void) {
    return &reference;
}

const cpu_matmul_kernel *cpu_matmul_kernel_get(const cpu_device *device, tdm_type type) {
    for (const cpu_matmul_kernel *k = kernels; k < kernels + N_KERNEL; k++) {
        if (k->type != type || (k->isa & ~device->isa) != 0) continue;
        return device->is_reference ? &reference : k;
    }
    return NULL;
}
