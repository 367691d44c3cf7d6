/* SPDX-License-Identifier: MIT
 *
 * test_matmul_table.c: which matmul kernel a device selects: the fastest of its instruction sets
 * for each type, and never one that it may not run. The reference path always selects the
 * reference. Also prefetching of weights, which depends on the processor and must not change
 * results.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/cpu/machine/isa.h"
#include "plugins/cpu/ops/matmul.h"
#include "tests/kernels/made_weight.h"

/* Tokens of a prompt and generated ones, each computed with 8 or 15 bits: every kernel is of the
 * wanted form, and all of a type take the same layout of weights. */
static void expect(uint32_t isa, bool prompt_q8, bool generated_q8, const char *suffix,
                   int32_t n_lane, cpu_x_format q15) {
    tdm_device device = {.isa = isa, .n_thread = 1};
    device.has_q8[TDM_ROLE_PROMPT] = prompt_q8;
    device.has_q8[TDM_ROLE_GENERATED] = generated_q8;
    cpu_matmul_kernels_choose(&device);
    for (int i = 0; i < MADE_TYPES * CPU_N_ROLE; i++) {
        char name[64];
        tdm_type type = made_types[i / CPU_N_ROLE];
        tdm_role role = (tdm_role)(i % CPU_N_ROLE);
        const cpu_matmul_kernel *kernel = cpu_matmul_kernel_get(&device, type, role);
        assert_non_null(kernel);
        bool is_codes = tdm_type_get_info(type).is_quantized;
        bool has_q8 = role == TDM_ROLE_PROMPT ? prompt_q8 : generated_q8;
        snprintf(name, sizeof name, "matmul_%s_%s%s", tdm_type_name(type),
                 has_q8 && is_codes ? "q8_" : "", suffix);
        assert_string_equal(kernel->name, name);
        assert_int_equal(kernel->type, type);
        assert_int_equal(kernel->isa & ~isa, 0);
        assert_int_equal(kernel->n_lane, n_lane);
        assert_int_equal(CPU_MATMUL_LANE % n_lane, 0);
        assert_int_equal(kernel->format, !is_codes ? CPU_X_F32 : has_q8 ? CPU_X_Q8 : q15);
    }
}

static void test_choice(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool p = i & 1, g = i >> 1;
        expect(0, p, g, "plain", 1, CPU_X_Q15);
#if defined(__x86_64__)
        expect(CPU_ISA_AVX2, p, g, "avx2", 8, CPU_X_Q15);
        expect(CPU_ISA_AVX2 | CPU_ISA_AVX512, p, g, "avx512", 16, CPU_X_Q15_BYTES);
        expect(CPU_ISA_AVX2 | CPU_ISA_AVX512 | CPU_ISA_AMX, p, g, "avx512", 16, CPU_X_Q15_BYTES);
#elif defined(__aarch64__)
        expect(CPU_ISA_NEON, p, g, "neon", 8, CPU_X_Q15_BYTES);
#endif
    }
}

/* Panels are for prompts of 8 bits, of every quantised type, in the layout of the other kernels. */
static void test_panels(void **state) {
    const uint32_t isa = CPU_ISA_AVX2 | CPU_ISA_AVX512 | CPU_ISA_AMX;
    (void)state;
    for (int i = 0; i < 8; i++) {
        tdm_device device = {.isa = i & 1 ? isa : isa & ~(uint32_t)CPU_ISA_AMX, .n_thread = 1};
        device.has_q8[TDM_ROLE_PROMPT] = (i & 2) != 0;
        device.is_reference = (i & 4) != 0;
        if (device.is_reference) device.isa = 0, device.has_q8[TDM_ROLE_PROMPT] = false;
        cpu_matmul_kernels_choose(&device);
        for (int t = 0; t < MADE_TYPES; t++) {
            const cpu_matmul_kernel *k = device.panel_kernels[made_types[t]];
            char name[64];
            bool is_wanted = i == 3 && tdm_type_get_info(made_types[t]).is_quantized;
#if !defined(__x86_64__)
            is_wanted = false;
#endif
            assert_int_equal(k != NULL, is_wanted);
            if (k == NULL) continue;
            snprintf(name, sizeof name, "matmul_%s_amx", tdm_type_name(made_types[t]));
            assert_string_equal(k->name, name);
            assert_int_equal(k->type, made_types[t]);
            assert_int_equal(k->format, CPU_X_BF16);
            assert_non_null(k->unpack);
            assert_int_equal(
                k->n_lane, cpu_matmul_kernel_get(&device, made_types[t], TDM_ROLE_PROMPT)->n_lane);
        }
    }
}

static void test_reference(void **state) {
    (void)state;
    tdm_device device = {.isa = CPU_ISA_AVX2 | CPU_ISA_AVX512, .n_thread = 1, .is_reference = true};
    cpu_matmul_kernels_choose(&device);
    for (int i = 0; i < MADE_TYPES; i++) {
        assert_ptr_equal(cpu_matmul_kernel_get(&device, made_types[i], TDM_ROLE_GENERATED),
                         cpu_matmul_kernel_reference());
    }
    assert_int_equal(cpu_matmul_kernel_reference()->n_lane, 1);
    assert_int_equal(cpu_matmul_kernel_reference()->format, CPU_X_F32);
}

static void test_no_number(void **state) {
    (void)state;
    tdm_device device = {.isa = CPU_ISA_AVX2, .n_thread = 1};
    cpu_matmul_kernels_choose(&device);
    assert_null(cpu_matmul_kernel_get(&device, TDM_TYPE_I32, TDM_ROLE_GENERATED));
    assert_null(cpu_matmul_kernel_get(&device, TDM_TYPE_I8, TDM_ROLE_GENERATED));
    assert_null(cpu_matmul_kernel_get(&device, (tdm_type)-1, TDM_ROLE_GENERATED));
    assert_null(cpu_matmul_kernel_get(&device, (tdm_type)TDM_TYPE_LIMIT_, TDM_ROLE_GENERATED));
}

enum { AHEAD_K = 1024 };

/* One group of random bytes times n_tok tokens, prefetched in that way. */
static void ahead_run(const cpu_matmul_kernel *kernel, uint32_t isa, cpu_ahead ahead, int32_t n_tok,
                      float y[CPU_MATMUL_TOK][CPU_MATMUL_LANE]) {
    static float x[AHEAD_K];
    size_t group_size = (size_t)kernel->n_lane * tdm_type_row_size(kernel->type, AHEAD_K);
    uint8_t *group = aligned_alloc(64, (group_size + 63) / 64 * 64);
    uint8_t *form = calloc(AHEAD_K / CPU_X_LEN, sizeof(cpu_q15_block));
    assert_non_null(group);
    assert_non_null(form);
    for (size_t i = 0; i < group_size; i++) group[i] = (uint8_t)(i * 2654435761u >> 13 & 0x3f);
    for (int i = 0; i < AHEAD_K; i++) x[i] = (float)(i % 19) - 9.0f;
    if (kernel->format != CPU_X_F32)
        cpu_quantize_row_get(isa, kernel->format)(x, AHEAD_K, kernel->code_offset, form);
    cpu_matmul_tile tile = {.type = kernel->type,
                            .n_row = kernel->n_lane,
                            .n_tok = n_tok,
                            .ahead = ahead,
                            .n_block = AHEAD_K / tdm_type_get_info(kernel->type).block_len,
                            .group = group};
    for (int32_t t = 0; t < n_tok; t++) {
        tile.x[t] = kernel->format == CPU_X_F32 ? (const void *)x : form;
        tile.y[t] = y[t];
    }
    kernel->run(&tile);
    free(group);
    free(form);
}

static void test_ahead(void **state) {
    (void)state;
    static const cpu_ahead others[] = {CPU_AHEAD_SOME, CPU_AHEAD_EACH};
    tdm_device device = {.isa = cpu_isa_detect(), .n_thread = 1};
    for (int has_q8 = 0; has_q8 < 2; has_q8++) {
        memset(device.matmul_kernels, 0, sizeof device.matmul_kernels);
        device.has_q8[0] = device.has_q8[1] = has_q8;
        cpu_matmul_kernels_choose(&device);
        for (int i = 0; i < MADE_TYPES; i++) {
            const cpu_matmul_kernel *kernel =
                cpu_matmul_kernel_get(&device, made_types[i], TDM_ROLE_GENERATED);
            for (int32_t n_tok = 1; n_tok <= CPU_MATMUL_TOK; n_tok++) {
                float y[CPU_MATMUL_TOK][CPU_MATMUL_LANE] = {{0}},
                      other[2][CPU_MATMUL_TOK][CPU_MATMUL_LANE] = {{{0}}};
                ahead_run(kernel, device.isa, CPU_AHEAD_NONE, n_tok, y);
                for (int a = 0; a < 2; a++) {
                    ahead_run(kernel, device.isa, others[a], n_tok, other[a]);
                    assert_memory_equal(other[a], y, sizeof y);
                }
            }
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),    cmocka_unit_test(test_panels),
        cmocka_unit_test(test_reference), cmocka_unit_test(test_no_number),
        cmocka_unit_test(test_ahead),
    };
    return cmocka_run_group_tests_name("matmul_table", tests, NULL, NULL);
}
