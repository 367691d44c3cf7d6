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

static void expect(uint32_t isa, const char *suffix, int32_t n_lane) {
    tdm_device device = {.isa = isa, .n_thread = 1};
    for (int i = 0; i < MADE_TYPES; i++) {
        char name[64];
        const cpu_matmul_kernel *kernel = cpu_matmul_kernel_get(&device, made_types[i]);
        assert_non_null(kernel);
        snprintf(name, sizeof name, "matmul_%s_%s", tdm_type_name(made_types[i]), suffix);
        assert_string_equal(kernel->name, name);
        assert_int_equal(kernel->type, made_types[i]);
        assert_int_equal(kernel->isa & ~isa, 0);
        assert_int_equal(kernel->n_lane, n_lane);
        assert_int_equal(CPU_MATMUL_LANE % n_lane, 0);
        assert_int_equal(kernel->is_q15, tdm_type_get_info(made_types[i]).is_quantized);
    }
}

static void test_choice(void **state) {
    (void)state;
    expect(0, "plain", 1);
    expect(CPU_ISA_NEON, "plain", 1);
#if defined(__x86_64__)
    expect(CPU_ISA_AVX2, "avx2", 8);
    expect(CPU_ISA_AVX2 | CPU_ISA_AVX512, "avx512", 16);
#endif
}

static void test_reference(void **state) {
    (void)state;
    tdm_device device = {.isa = CPU_ISA_AVX2 | CPU_ISA_AVX512, .n_thread = 1, .is_reference = true};
    for (int i = 0; i < MADE_TYPES; i++) {
        assert_ptr_equal(cpu_matmul_kernel_get(&device, made_types[i]),
                         cpu_matmul_kernel_reference());
    }
    assert_int_equal(cpu_matmul_kernel_reference()->n_lane, 1);
    assert_false(cpu_matmul_kernel_reference()->is_q15);
}

static void test_no_number(void **state) {
    (void)state;
    tdm_device device = {.isa = CPU_ISA_AVX2, .n_thread = 1};
    assert_null(cpu_matmul_kernel_get(&device, TDM_TYPE_I32));
    assert_null(cpu_matmul_kernel_get(&device, TDM_TYPE_I8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_no_number),
    };
    return cmocka_run_group_tests_name("matmul_table", tests, NULL, NULL);
}
