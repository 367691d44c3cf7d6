/* SPDX-License-Identifier: MIT
 *
 * test_matmul_table.c: which matmul kernel a device gets: the best of its instruction sets for every
 * type, never one that it may not run; the reference path always the reference. And how a kernel asks
 * for weights ahead, which depends on the processor and changes no result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/cpu/machine/isa.h"
#include "plugins/cpu/ops/matmul.h"
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

enum { AHEAD_K = 1024 };

/* One group of any bytes times n_tok tokens, asked for in that way. */
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
    if (kernel->form != CPU_X_F32)
        cpu_quantize_row_get(isa, kernel->form)(x, AHEAD_K, kernel->code_offset, form);
    cpu_matmul_tile tile = {.type = kernel->type,
                            .n_row = kernel->n_lane,
                            .n_tok = n_tok,
                            .ahead = ahead,
                            .n_block = AHEAD_K / tdm_type_get_info(kernel->type).block_len,
                            .group = group};
    for (int32_t t = 0; t < n_tok; t++) {
        tile.x[t] = kernel->form == CPU_X_F32 ? (const void *)x : form;
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
        device.has_q8 = has_q8;
        cpu_matmul_kernels_choose(&device);
        for (int i = 0; i < MADE_TYPES; i++) {
            const cpu_matmul_kernel *kernel = cpu_matmul_kernel_get(&device, made_types[i]);
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
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_no_number),
        cmocka_unit_test(test_ahead),
    };
    return cmocka_run_group_tests_name("matmul_table", tests, NULL, NULL);
}
