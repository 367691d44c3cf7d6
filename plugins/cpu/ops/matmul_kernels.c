/* SPDX-License-Identifier: MIT
 *
 * matmul_kernels.c: the one ordered table of matmul kernels, and what a device chooses of it when it
 * is opened: for a type, the first row whose instruction sets it may use; the last rows need none.
 */
#include "plugins/cpu/ops/matmul.h"

/* Rows of an instruction set: for the integer kernels of one form of activations, and for floats. */
#define ROW_(TYPE, name, isa, ISA, n_lane, form, code_offset)                                      \
    {                                                                                              \
        "matmul_" #name "_" #isa, CPU_ISA_##ISA, TDM_TYPE_##TYPE, n_lane, form, code_offset,       \
            cpu_matmul_run_##name##_##isa                                                          \
    }
#define CODES_(isa, ISA, n_lane, form, signed_offset)                                              \
    ROW_(Q4_0, q4_0, isa, ISA, n_lane, form, 8), ROW_(Q4_1, q4_1, isa, ISA, n_lane, form, 0),      \
        ROW_(Q5_0, q5_0, isa, ISA, n_lane, form, 16), ROW_(Q5_1, q5_1, isa, ISA, n_lane, form, 0), \
        ROW_(Q8_0, q8_0, isa, ISA, n_lane, form, signed_offset),                                   \
        ROW_(Q2_K, q2_K, isa, ISA, n_lane, form, 0), ROW_(Q3_K, q3_K, isa, ISA, n_lane, form, 4),  \
        ROW_(Q4_K, q4_K, isa, ISA, n_lane, form, 0), ROW_(Q5_K, q5_K, isa, ISA, n_lane, form, 0),  \
        ROW_(Q6_K, q6_K, isa, ISA, n_lane, form, 32),                                              \
        ROW_(IQ4_NL, iq4_nl, isa, ISA, n_lane, form, signed_offset),                               \
        ROW_(IQ4_XS, iq4_xs, isa, ISA, n_lane, form, signed_offset),                               \
        ROW_(MXFP4, mxfp4, isa, ISA, n_lane, form, signed_offset),                                 \
        ROW_(IQ2_XXS, iq2_xxs, isa, ISA, n_lane, form, signed_offset),                             \
        ROW_(IQ2_XS, iq2_xs, isa, ISA, n_lane, form, signed_offset),                               \
        ROW_(IQ2_S, iq2_s, isa, ISA, n_lane, form, signed_offset),                                 \
        ROW_(IQ3_XXS, iq3_xxs, isa, ISA, n_lane, form, signed_offset),                             \
        ROW_(IQ3_S, iq3_s, isa, ISA, n_lane, form, signed_offset),                                 \
        ROW_(IQ1_S, iq1_s, isa, ISA, n_lane, form, 9),                                             \
        ROW_(IQ1_M, iq1_m, isa, ISA, n_lane, form, 9),                                             \
        ROW_(TQ1_0, tq1_0, isa, ISA, n_lane, form, 1),                                             \
        ROW_(TQ2_0, tq2_0, isa, ISA, n_lane, form, 1)
#define FLOATS_(isa, ISA, n_lane)                                                                  \
    ROW_(F32, f32, isa, ISA, n_lane, CPU_X_F32, 0),                                                \
        ROW_(F16, f16, isa, ISA, n_lane, CPU_X_F32, 0),                                            \
        ROW_(BF16, bf16, isa, ISA, n_lane, CPU_X_F32, 0)

#define PLAIN_(TYPE, name)                                                                         \
    {"matmul_" name "_plain", 0, TDM_TYPE_##TYPE, 1, CPU_X_Q15, 0, cpu_matmul_run_plain}, {        \
        "matmul_" name "_q8_plain", 0, TDM_TYPE_##TYPE, 1, CPU_X_Q8, 0, cpu_matmul_run_q8_plain    \
    }
#define FLOAT_(TYPE, name)                                                                         \
    { "matmul_" name "_plain", 0, TDM_TYPE_##TYPE, 1, CPU_X_F32, 0, cpu_matmul_run_reference }

/* clang-format off */
static const cpu_matmul_kernel kernels[] = {
#if defined(__x86_64__)
    CODES_(avx512, AVX512, 16, CPU_X_Q15_BYTES, 128),
    CODES_(q8_avx512, AVX512, 16, CPU_X_Q8, 128),
    FLOATS_(avx512, AVX512, 16),
    CODES_(avx2, AVX2, 8, CPU_X_Q15, 0),
    CODES_(q8_avx2, AVX2, 8, CPU_X_Q8, 0),
    FLOATS_(avx2, AVX2, 8),
#endif
    /* NEON's rows belong here. */
    PLAIN_(Q4_0, "q4_0"),     PLAIN_(Q4_1, "q4_1"),     PLAIN_(Q5_0, "q5_0"),
    PLAIN_(Q5_1, "q5_1"),     PLAIN_(Q8_0, "q8_0"),     PLAIN_(Q2_K, "q2_K"),
    PLAIN_(Q3_K, "q3_K"),     PLAIN_(Q4_K, "q4_K"),     PLAIN_(Q5_K, "q5_K"),
    PLAIN_(Q6_K, "q6_K"),     PLAIN_(IQ4_NL, "iq4_nl"), PLAIN_(IQ4_XS, "iq4_xs"),
    PLAIN_(MXFP4, "mxfp4"),   PLAIN_(TQ1_0, "tq1_0"),   PLAIN_(TQ2_0, "tq2_0"),
    PLAIN_(IQ2_XXS, "iq2_xxs"), PLAIN_(IQ2_XS, "iq2_xs"), PLAIN_(IQ2_S, "iq2_s"),
    PLAIN_(IQ3_XXS, "iq3_xxs"), PLAIN_(IQ3_S, "iq3_s"),
    PLAIN_(IQ1_S, "iq1_s"),   PLAIN_(IQ1_M, "iq1_m"),
    FLOAT_(F32, "f32"),       FLOAT_(F16, "f16"),       FLOAT_(BF16, "bf16"),
};
/* clang-format on */

enum { N_KERNEL = (int)(sizeof kernels / sizeof kernels[0]) };

static const cpu_matmul_kernel reference = {
    "matmul_reference", 0, TDM_TYPE_F32, 1, CPU_X_F32, 0, cpu_matmul_run_reference};

const cpu_matmul_kernel *cpu_matmul_kernel_reference(void) {
    return &reference;
}

void cpu_matmul_kernels_choose(cpu_device *device) {
    for (int role = 0; role < CPU_N_ROLE; role++)
        for (const cpu_matmul_kernel *k = kernels; k < kernels + N_KERNEL; k++) {
            const cpu_matmul_kernel **chosen = &device->matmul_kernels[role][k->type];
            if (*chosen != NULL || (k->isa & ~device->isa) != 0) continue;
            if (k->form != CPU_X_F32 && (k->form == CPU_X_Q8) != device->has_q8[role]) continue;
            *chosen = device->is_reference ? &reference : k;
        }
}
