/* SPDX-License-Identifier: MIT
 *
 * test_quantize_row.c: the activation quantisers. Plain C against its promise (half a step, sums of
 * the codes), and each instruction set against plain C, bit for bit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/cpu/quantize_row.h"
#include "tests/kernels/op_run.h"

enum { N_BLOCK = 9, LEN = N_BLOCK * CPU_Q15_LEN };

static const int32_t offsets[] = {0, 4, 8, 16, 32, 128};

/* Ordinary blocks, then zeros, subnormals, the largest numbers, ties, and what is no number. */
static void input_make(uint64_t *seed, float x[LEN]) {
    op_random_fill(seed, x, LEN, 2.5f);
    for (int i = 0; i < CPU_Q15_LEN; i++) {
        x[32 * 2 + i] = 0;
        x[32 * 3 + i] *= 0x1p-140f;
        x[32 * 4 + i] = i % 3 == 0 ? 3.402823466e38f : -3.402823466e38f;
        x[32 * 5 + i] = (float)(i - 15) * 0.5f; /* halves of a step once 16256 is there */
        x[32 * 8 + i] *= 0x1p-99f;
    }
    x[32 * 5] = CPU_Q15_MAX;
    x[32 * 6 + 31] = NAN;
    x[32 * 7 + 16] = -INFINITY;
}

static void test_promise(void **state) {
    (void)state;
    uint64_t seed = 51;
    float x[LEN];
    cpu_q15_block out[N_BLOCK];
    for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++) {
        input_make(&seed, x);
        cpu_quantize_row_plain(x, LEN, offsets[o], out);
        for (int b = 0; b < N_BLOCK; b++) {
            int32_t sum[2] = {0, 0};
            if (b == 6 || b == 7) {
                assert_true(isnan(out[b].d));
                continue;
            }
            for (int i = 0; i < CPU_Q15_LEN; i++) {
                int32_t code = 128 * out[b].hi[i] + out[b].lo[i];
                double off = fabs((double)x[32 * b + i] - (double)out[b].d * code);
                assert_true(out[b].hi[i] >= -127 && abs(out[b].lo[i]) <= 64);
                assert_true(b == 3 ? code == 0 : off <= (double)out[b].d * 0.50001);
                sum[i / 16] += code;
            }
            for (int h = 0; h < 2; h++) {
                if (offsets[o] != 0) assert_int_equal(out[b].half[h].bias, -offsets[o] * sum[h]);
                if (offsets[o] == 0) assert_true(out[b].half[h].sum == out[b].d * (float)sum[h]);
            }
            if (offsets[o] != 0) assert_int_equal(out[b].all.bias, -offsets[o] * (sum[0] + sum[1]));
            if (offsets[o] == 0) assert_true(out[b].all.sum == out[b].d * (float)(sum[0] + sum[1]));
        }
    }
}

/* NaN may have any payload: compared as NaN. */
static bool is_equal(const cpu_q15_block *a, const cpu_q15_block *b) {
    if (isnan(a->d) && isnan(b->d)) return memcmp(a->hi, b->hi, 64) == 0;
    return memcmp(a, b, sizeof *a) == 0;
}

static void isa_test(uint32_t isa, cpu_quantize_row_fn run, const char *name, bool has) {
    uint64_t seed = 52;
    float x[LEN];
    cpu_q15_block want[N_BLOCK], got[N_BLOCK + 1], guard;
    if (!has) {
        print_message("SKIPPED: this machine lacks %s\n", name);
        skip();
    }
    assert_true(cpu_quantize_row_get(isa) == run);
    for (int repeat = 0; repeat < 200; repeat++) {
        int32_t offset = offsets[repeat % 6];
        int64_t n = repeat % 2 == 0 ? LEN : 32;
        memset(got, 0x5a, sizeof got);
        guard = got[N_BLOCK];
        input_make(&seed, x);
        cpu_quantize_row_plain(x, n, offset, want);
        run(x, n, offset, got);
        for (int b = 0; b < n / 32; b++) assert_true(is_equal(&got[b], &want[b]));
        assert_memory_equal(&got[n / 32], &guard, sizeof guard);
    }
}

#if defined(__x86_64__)
static void test_avx2(void **state) {
    (void)state;
    bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    isa_test(CPU_ISA_AVX2, cpu_quantize_row_avx2, "avx2", has);
}

static void test_avx512(void **state) {
    (void)state;
    bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vnni");
    isa_test(CPU_ISA_AVX2 | CPU_ISA_AVX512, cpu_quantize_row_avx512, "avx512", has);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promise),
#if defined(__x86_64__)
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
#endif
    };
    return cmocka_run_group_tests_name("quantize_row", tests, NULL, NULL);
}
