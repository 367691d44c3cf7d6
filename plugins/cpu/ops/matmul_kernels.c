/* SPDX-License-Identifier: MIT
 *
 * matmul_kernels.c: the one ordered table of matmul kernels, and what a device chooses of it when
 * it is opened: for a type, the first row whose instruction sets it may use; the last rows need
 * none. Panels have a table of their own.
 */
#include "plugins/cpu/ops/matmul.h"
#include "plugins/cpu/ops/panel.h"

/* One kernel of an instruction set. */
#define ROW_(TYPE, name, isa, ISA, n_lane, format, code_offset)                                    \
    {                                                                                              \
        "matmul_" #name "_" #isa, CPU_ISA_##ISA, TDM_TYPE_##TYPE, n_lane, format, code_offset,     \
            cpu_matmul_run_##name##_##isa                                                          \
    }
/* By how much a kernel's codes of a type are too large (cpu_quantize_row_fn). Signed codes have the
 * offset signed_offset, which the instruction set decides. A type without an offset here does not
 * compile. */
#define CODE_Q4_0(signed_offset)    8
#define CODE_Q4_1(signed_offset)    0
#define CODE_Q5_0(signed_offset)    16
#define CODE_Q5_1(signed_offset)    0
#define CODE_Q8_0(signed_offset)    signed_offset
#define CODE_Q2_K(signed_offset)    0
#define CODE_Q3_K(signed_offset)    4
#define CODE_Q4_K(signed_offset)    0
#define CODE_Q5_K(signed_offset)    0
#define CODE_Q6_K(signed_offset)    32
#define CODE_IQ4_NL(signed_offset)  signed_offset
#define CODE_IQ4_XS(signed_offset)  signed_offset
#define CODE_MXFP4(signed_offset)   signed_offset
#define CODE_NVFP4(signed_offset)   signed_offset
#define CODE_IQ2_XXS(signed_offset) signed_offset
#define CODE_IQ2_XS(signed_offset)  signed_offset
#define CODE_IQ2_S(signed_offset)   signed_offset
#define CODE_IQ3_XXS(signed_offset) signed_offset
#define CODE_IQ3_S(signed_offset)   signed_offset
#define CODE_IQ1_S(signed_offset)   9
#define CODE_IQ1_M(signed_offset)   9
#define CODE_TQ1_0(signed_offset)   1
#define CODE_TQ2_0(signed_offset)   1

/* Rows of a type for each instruction set, by the type's kind; the comma is the row's. */
#define AVX512_BLOCK(ID, name)                                                                     \
    ROW_(ID, name, avx512, AVX512, 16, CPU_X_Q15_BYTES, CODE_##ID(128)),                           \
        ROW_(ID, name, q8_avx512, AVX512, 16, CPU_X_Q8, CODE_##ID(128)),
#define AVX512_FLOAT(ID, name) ROW_(ID, name, avx512, AVX512, 16, CPU_X_F32, 0),
#define AVX512_INTEGER(ID, name)
#define AVX512_(ID, name, number, kind, ...) AVX512_##kind(ID, name)
#define AVX2_BLOCK(ID, name)                                                                       \
    ROW_(ID, name, avx2, AVX2, 8, CPU_X_Q15, CODE_##ID(0)),                                        \
        ROW_(ID, name, q8_avx2, AVX2, 8, CPU_X_Q8, CODE_##ID(0)),
#define AVX2_FLOAT(ID, name) ROW_(ID, name, avx2, AVX2, 8, CPU_X_F32, 0),
#define AVX2_INTEGER(ID, name)
#define AVX2_(ID, name, number, kind, ...) AVX2_##kind(ID, name)
#define NEON_BLOCK(ID, name)                                                                       \
    ROW_(ID, name, neon, NEON, 8, CPU_X_Q15_BYTES, CODE_##ID(0)),                                  \
        ROW_(ID, name, q8_neon, NEON, 8, CPU_X_Q8, CODE_##ID(0)),
#define NEON_FLOAT(ID, name) ROW_(ID, name, neon, NEON, 8, CPU_X_F32, 0),
#define NEON_INTEGER(ID, name)
#define NEON_(ID, name, number, kind, ...) NEON_##kind(ID, name)
#define PLAIN_BLOCK(ID, name)                                                                      \
    {"matmul_" #name "_plain", 0, TDM_TYPE_##ID, 1, CPU_X_Q15, 0, cpu_matmul_run_plain},           \
        {"matmul_" #name "_q8_plain", 0, TDM_TYPE_##ID, 1, CPU_X_Q8, 0, cpu_matmul_run_q8_plain},
#define PLAIN_FLOAT(ID, name)                                                                      \
    {"matmul_" #name "_plain", 0, TDM_TYPE_##ID, 1, CPU_X_F32, 0, cpu_matmul_run_reference},
#define PLAIN_INTEGER(ID, name)
#define PLAIN_(ID, name, number, kind, ...) PLAIN_##kind(ID, name)

/* clang-format off */
static const cpu_matmul_kernel kernels[] = {
#if defined(__x86_64__)
    TDM_TYPE_LIST(AVX512_)
    TDM_TYPE_LIST(AVX2_)
#elif defined(__aarch64__)
    TDM_TYPE_LIST(NEON_)
#endif
    TDM_TYPE_LIST(PLAIN_)
};
/* clang-format on */

/* Panels. Signed codes stay signed. */
#define AMX_BLOCK(ID, word)                                                                        \
    {.name = "matmul_" #word "_amx",                                                               \
     .isa = CPU_ISA_AMX,                                                                           \
     .type = TDM_TYPE_##ID,                                                                        \
     .n_lane = CPU_MATMUL_LANE,                                                                    \
     .format = CPU_X_BF16,                                                                         \
     .code_offset = CODE_##ID(0),                                                                  \
     .unpack = cpu_matmul_unpack_##word##_amx,                                                     \
     .unit = &cpu_panel_unit_amx},
#define AMX_FLOAT(ID, name)
#define AMX_INTEGER(ID, name)
#define AMX_(ID, name, number, kind, ...) AMX_##kind(ID, name)

/* clang-format off */
static const cpu_matmul_kernel panel_kernels[] = { /* ends with a row without a name */
#if defined(__x86_64__)
    TDM_TYPE_LIST(AMX_)
#endif
    {.name = NULL}
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
            if (k->format != CPU_X_F32 && (k->format == CPU_X_Q8) != device->has_q8[role]) continue;
            *chosen = device->is_reference ? &reference : k;
        }
    for (const cpu_matmul_kernel *k = panel_kernels; k->name != NULL; k++)
        if ((k->isa & ~device->isa) == 0 && device->has_q8[TDM_ROLE_PROMPT])
            device->panel_kernels[k->type] = k;
}
