/* SPDX-License-Identifier: MIT
 *
 * test_matmul_table.c: which matmul kernel a device gets: the best of its instruction sets for every
 * type, never one that it may not run; the reference path always the reference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/cpu/matmul.h"
#include "tests/kernels/made_weight.h"

static void expect(uint32_t isa, bool has_q8, const char *suffix, int32_t n_lane, cpu_x_form form) {
    tdm_device device = {.isa = isa, .n_thread = 1, .has_q8 = has_q8};
    cpu_matmul_kernels_choose(&device);
    for (int i = 0; i < MADE_TYPES; i++) {
        char name[64];
        const cpu_matmul_kernel *kernel = cpu_matmul_kernel_get(&device, made_types[i]);
        assert_non_null(kernel);
        bool is_codes = tdm_type_get_info(made_types[i]).is_quantized;
        snprintf(name, sizeof name, "matmul_%s_%s%s", tdm_type_name(made_types[i]),
                 has_q8 && is_codes ? "q8_" : "", suffix);
        assert_string_equal(kernel->name, name);
        assert_int_equal(kernel->type, made_types[i]);
        assert_int_equal(kernel->isa & ~isa, 0);
        assert_int_equal(kernel->n_lane, n_lane);
        assert_int_equal(CPU_MATMUL_LANE % n_lane, 0);
        assert_int_equal(kernel->form, is_codes ? form : CPU_X_F32);
    }
}

static void test_choice(void **state) {
    (void)state;
    for (int has_q8 = 0; has_q8 < 2; has_q8++) {
        cpu_x_form q15 = has_q8 ? CPU_X_Q8 : CPU_X_Q15;
        expect(0, has_q8, "plain", 1, q15);
        expect(CPU_ISA_NEON, has_q8, "plain", 1, q15);
#if defined(__x86_64__)
        expect(CPU_ISA_AVX2, has_q8, "avx2", 8, q15);
        expect(CPU_ISA_AVX2 | CPU_ISA_AVX512, has_q8, "avx512", 16,
               has_q8 ? CPU_X_Q8 : CPU_X_Q15_BYTES);
#endif
    }
}

static void test_reference(void **state) {
    (void)state;
    tdm_device device = {.isa = CPU_ISA_AVX2 | CPU_ISA_AVX512, .n_thread = 1, .is_reference = true};
    cpu_matmul_kernels_choose(&device);
    for (int i = 0; i < MADE_TYPES; i++) {
        assert_ptr_equal(cpu_matmul_kernel_get(&device, made_types[i]),
                         cpu_matmul_kernel_reference());
    }
    assert_int_equal(cpu_matmul_kernel_reference()->n_lane, 1);
    assert_int_equal(cpu_matmul_kernel_reference()->form, CPU_X_F32);
}

static void test_no_number(void **state) {
    (void)state;
    tdm_device device = {.isa = CPU_ISA_AVX2, .n_thread = 1};
    cpu_matmul_kernels_choose(&device);
    assert_null(cpu_matmul_kernel_get(&device, TDM_TYPE_I32));
    assert_null(cpu_matmul_kernel_get(&device, TDM_TYPE_I8));
    assert_null(cpu_matmul_kernel_get(&device, (tdm_type)-1));
    assert_null(cpu_matmul_kernel_get(&device, (tdm_type)TDM_TYPE_LIMIT_));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_no_number),
    };
    return cmocka_run_group_tests_name("matmul_table", tests, NULL, NULL);
}
