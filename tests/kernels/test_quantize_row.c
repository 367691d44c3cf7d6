/* SPDX-License-Identifier: MIT
 *
 * test_quantize_row.c: the activation quantisers, of every format. Plain C against its promise
 * (half a step, sums of the codes), and each instruction set against plain C, bit for bit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/cpu/machine/isa.h"
#include "plugins/cpu/ops/quantize_row.h"
#include "tests/kernels/op_run.h"

enum { N_BLOCK = 9, LEN = N_BLOCK * CPU_X_LEN };

static const int32_t offsets[] = {0, 4, 8, 16, 32, 128};
static const cpu_x_format formats[] = {CPU_X_Q15, CPU_X_Q15_BYTES, CPU_X_Q8};

/* Room for blocks of any format, and one more. */
typedef union row {
    cpu_q15_block q15[N_BLOCK + 1];
    cpu_q8_block q8[N_BLOCK + 1];
} row;

static int32_t code_get(cpu_x_format format, const row *r, int b, int i) {
    if (format == CPU_X_Q15) return r->q15[b].q[i];
    if (format == CPU_X_Q15_BYTES) return 128 * r->q15[b].hi[i] + r->q15[b].lo[i];
    return r->q8[b].q[i];
}

static const cpu_x_scale *scale_get(cpu_x_format format, const row *r, int b) {
    return format == CPU_X_Q8 ? &r->q8[b].s : &r->q15[b].s;
}

/* Ordinary blocks, then zeros, subnormals, the largest numbers, ties, and what is no number. */
static void input_make(uint64_t *seed, cpu_x_format format, float x[LEN]) {
    op_random_fill(seed, x, LEN, 2.5f);
    for (int i = 0; i < CPU_X_LEN; i++) {
        x[32 * 2 + i] = 0;
        x[32 * 3 + i] *= 0x1p-140f;
        x[32 * 4 + i] = i % 3 == 0 ? 3.402823466e38f : -3.402823466e38f;
        x[32 * 5 + i] =
            (float)(i - 15) * 0.5f; /* halves of a step once the largest code is there */
        x[32 * 8 + i] *= 0x1p-99f;
    }
    x[32 * 5] = format == CPU_X_Q8 ? CPU_Q8_MAX : CPU_Q15_MAX;
    x[32 * 6 + 31] = NAN;
    x[32 * 7 + 16] = -INFINITY;
}

static void promise_test(cpu_x_format format, int32_t offset, uint64_t *seed) {
    int32_t limit = format == CPU_X_Q8 ? CPU_Q8_MAX : CPU_Q15_MAX;
    float x[LEN];
    row out;
    input_make(seed, format, x);
    cpu_quantize_row_get(0, format)(x, LEN, offset, &out);
    for (int b = 0; b < N_BLOCK; b++) {
        const cpu_x_scale *s = scale_get(format, &out, b);
        int32_t sum[2] = {0, 0}, largest = 0;
        if (b == 6 || b == 7) {
            assert_true(isnan(s->d));
            assert_true(offset != 0 || isnan(s->all.sum));
            for (int i = 0; i < CPU_X_LEN; i++) assert_int_equal(code_get(format, &out, b, i), 0);
            continue;
        }
        for (int i = 0; i < CPU_X_LEN; i++) {
            int32_t code = code_get(format, &out, b, i);
            double off = fabs((double)x[32 * b + i] - (double)s->d * code);
            if (abs(code) > largest) largest = abs(code);
            assert_true(b == 3 ? code == 0 : off <= (double)s->d * 0.50001);
            if (format == CPU_X_Q15_BYTES)
                assert_true(out.q15[b].hi[i] >= -127 && abs(out.q15[b].lo[i]) <= 64);
            sum[i / 16] += code;
        }
        assert_int_equal(largest, b == 2 || b == 3 ? 0 : limit);
        for (int h = 0; h < 2; h++) {
            if (offset != 0) assert_int_equal(s->half[h].bias, -offset * sum[h]);
            if (offset == 0) assert_true(s->half[h].sum == s->d * (float)sum[h]);
        }
        if (offset != 0) assert_int_equal(s->all.bias, -offset * (sum[0] + sum[1]));
        if (offset == 0) assert_true(s->all.sum == s->d * (float)(sum[0] + sum[1]));
    }
}

static void test_promise(void **state) {
    (void)state;
    uint64_t seed = 51;
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
            promise_test(formats[f], offsets[o], &seed);
}

/* NaN may have any payload: compared as NaN. */
static bool is_equal(cpu_x_format format, const row *a, const row *b, int block) {
    const cpu_x_scale *sa = scale_get(format, a, block), *sb = scale_get(format, b, block);
    for (int i = 0; i < CPU_X_LEN; i++)
        if (code_get(format, a, block, i) != code_get(format, b, block, i)) return false;
    return (isnan(sa->d) && isnan(sb->d)) || memcmp(sa, sb, sizeof *sa) == 0;
}

/* `runs` has a function for each of `formats`, NULL where the set has none of its own. */
static void isa_test(uint32_t isa, const cpu_quantize_row_fn runs[3], const char *name) {
    uint64_t seed = 52;
    float x[LEN];
    row want, got;
    uint8_t guard[sizeof(cpu_q15_block)];
    if ((isa & ~cpu_isa_detect()) != 0) {
        print_message("SKIPPED: this machine lacks %s\n", name);
        skip();
    }
    memset(guard, 0x5a, sizeof guard);
    for (int f = 0; f < 3; f++) {
        size_t size = cpu_x_block_size(formats[f]);
        if (runs[f] == NULL) continue;
        assert_true(cpu_quantize_row_get(isa, formats[f]) == runs[f]);
        for (int repeat = 0; repeat < 200; repeat++) {
            int32_t offset = offsets[repeat % 6];
            int64_t n = repeat % 2 == 0 ? LEN : 32;
            memset(&got, 0x5a, sizeof got);
            input_make(&seed, formats[f], x);
            cpu_quantize_row_get(0, formats[f])(x, n, offset, &want);
            runs[f](x, n, offset, &got);
            for (int b = 0; b < n / 32; b++) assert_true(is_equal(formats[f], &got, &want, b));
            assert_memory_equal((uint8_t *)&got + (size_t)(n / 32) * size, guard, size);
        }
    }
}

#if defined(__x86_64__)
static void test_avx2(void **state) {
    (void)state;
    static const cpu_quantize_row_fn runs[] = {cpu_quantize_row_q15_avx2, NULL,
                                               cpu_quantize_row_q8_avx2};
    isa_test(CPU_ISA_AVX2, runs, "avx2");
}

static void test_avx512(void **state) {
    (void)state;
    static const cpu_quantize_row_fn runs[] = {NULL, cpu_quantize_row_q15_bytes_avx512,
                                               cpu_quantize_row_q8_avx512};
    isa_test(CPU_ISA_AVX2 | CPU_ISA_AVX512, runs, "avx512");
}

/* bf16 has no codes: the bits of both functions are the nearest number's. */
static void test_bf16(void **state) {
    static const struct {
        uint32_t bits, want;
    } known[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82},
                 {0x3f808001, 0x3f81}, {0xbf807fff, 0xbf80}, {0x7f7fffff, 0x7f80},
                 {0x00000001, 0x0000}, {0x807fffff, 0x8000}, {0x00800000, 0x0080},
                 {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0},
                 {0xffc12345, 0xffc1}};
    const cpu_quantize_row_fn amx = cpu_quantize_row_get(cpu_isa_detect(), CPU_X_BF16);
    uint64_t seed = 3;
    float x[LEN];
    cpu_bf16_block plain[N_BLOCK], fast[N_BLOCK];
    (void)state;
    assert_ptr_equal(cpu_quantize_row_get(0, CPU_X_BF16), cpu_round_row_bf16_plain);
    assert_int_equal(cpu_x_block_size(CPU_X_BF16), sizeof plain[0]);
    for (int round = 0; round < 100; round++) {
        input_make(&seed, CPU_X_Q15, x);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            memcpy(&x[i], &known[i].bits, sizeof x[i]);
        cpu_round_row_bf16_plain(x, LEN, 0, plain);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            assert_int_equal(plain[0].x[i], known[i].want);
        for (int i = CPU_X_LEN; i < LEN; i++) {
            const uint32_t bits = (uint32_t)plain[i / CPU_X_LEN].x[i % CPU_X_LEN] << 16;
            float y;
            memcpy(&y, &bits, sizeof y);
            if (isfinite(y)) assert_true(fabsf(y - x[i]) <= fabsf(x[i]) * 0x1p-8f + 0x1p-126f);
        }
        amx(x, LEN, 0, fast);
        assert_memory_equal(fast, plain, sizeof plain);
    }
    if (amx == cpu_round_row_bf16_plain)
        print_message("SKIPPED: isa amx: this machine does not have it\n");
}
#elif defined(__aarch64__)
static void test_neon(void **state) {
    (void)state;
    static const cpu_quantize_row_fn runs[] = {NULL, cpu_quantize_row_q15_bytes_neon,
                                               cpu_quantize_row_q8_neon};
    isa_test(CPU_ISA_NEON, runs, "neon");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promise),
#if defined(__x86_64__)
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_bf16),
#elif defined(__aarch64__)
        cmocka_unit_test(test_neon),
#endif
    };
    return cmocka_run_group_tests_name("quantize_row", tests, NULL, NULL);
}
