/* SPDX-License-Identifier: MIT
 *
 * test_block_half.c: f16 and bf16 conversions of quant/half.h, over every pattern of 16 bits
 * and around every rounding boundary. The reference is arithmetic in double.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "quant/convert.h"

/* The value of a finite f16, from the definition. */
static double f16_value(uint16_t half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -value : value;
}

static int is_f16_nan(uint16_t half) {
    return (half & 0x7fff) > 0x7c00;
}

static void test_every_f16_widens_exactly(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        float value = tdm_f16_to_f32(half);
        if (is_f16_nan(half)) {
            /* sign and payload survive, the quiet bit is set */
            uint32_t expected = (bits & 0x8000) << 16 | 0x7fc00000 | (bits & 0x3ff) << 13;
            assert_int_equal(tdm_f32_to_bits(value), expected);
        } else if ((half & 0x7fff) == 0x7c00) {
            assert_true(value == (half & 0x8000 ? -INFINITY : INFINITY));
        } else {
            assert_true((double)value == f16_value(half));
            assert_int_equal(signbit(value) != 0, half >> 15);
        }
    }
}

static void test_every_f16_comes_back(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t back = tdm_f32_to_f16(tdm_f16_to_f32((uint16_t)bits));
        assert_int_equal(back, is_f16_nan((uint16_t)bits) ? bits | 0x200 : bits);
    }
}

/* Between each f16 and the next: just below the middle, the middle (to even), just above. The one
 * beyond 65504 would be 65536, and is infinity. */
static void test_f16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (uint16_t half = 0; half < 0x7c00; half++) {
        double low = f16_value(half), high = half == 0x7bff ? 65536 : f16_value(half + 1);
        float middle = (float)((low + high) / 2);
        assert_true((double)middle == (low + high) / 2);
        uint16_t even = half & 1 ? half + 1 : half;
        assert_int_equal(tdm_f32_to_f16(nextafterf(middle, 0)), half);
        assert_int_equal(tdm_f32_to_f16(middle), even);
        assert_int_equal(tdm_f32_to_f16(nextafterf(middle, INFINITY)), half + 1);
        assert_int_equal(tdm_f32_to_f16(-middle), even | 0x8000);
    }
    assert_int_equal(tdm_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(tdm_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(tdm_f32_to_f16(1e-30f), 0);
    assert_int_equal(tdm_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(tdm_f32_to_f16(0x1p-149f), 0); /* a subnormal f32 */
}

static void test_f16_keeps_nan(void **state) {
    (void)state;
    assert_int_equal(tdm_f32_to_f16(tdm_f32_from_bits(0x7fc00000)), 0x7e00);
    assert_int_equal(tdm_f32_to_f16(tdm_f32_from_bits(0xff800001)), 0xfe00); /* payload lost */
    assert_int_equal(tdm_f32_to_f16(tdm_f32_from_bits(0x7fffe000)), 0x7fff);
}

static void test_bf16(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = tdm_bf16_to_f32((uint16_t)bits);
        assert_int_equal(tdm_f32_to_bits(value), bits << 16);
        int is_nan = (bits & 0x7fff) > 0x7f80;
        assert_int_equal(tdm_f32_to_bf16(value), is_nan ? bits | 0x40 : bits);
        if ((bits & 0x7fff) >= 0x7f80) continue; /* what follows adds to a finite number's bits */
        uint32_t even = bits & 1 ? bits + 1 : bits;
        assert_int_equal(tdm_f32_to_bf16(tdm_f32_from_bits(bits << 16 | 0x7fff)), bits);
        assert_int_equal(tdm_f32_to_bf16(tdm_f32_from_bits(bits << 16 | 0x8000)), even);
        assert_int_equal(tdm_f32_to_bf16(tdm_f32_from_bits(bits << 16 | 0x8001)), bits + 1);
    }
    assert_int_equal(tdm_f32_to_bf16(tdm_f32_from_bits(0x7f800001)), 0x7fc0);
}

static void test_rows_agree_with_single_numbers(void **state) {
    (void)state;
    static uint16_t halves[65536], back[65536];
    static float wide[65536];
    for (uint32_t bits = 0; bits < 65536; bits++) halves[bits] = (uint16_t)bits;
    assert_int_equal(tdm_row_dequantize(TDM_TYPE_F16, halves, wide, 65536), TDM_OK);
    assert_int_equal(tdm_row_quantize(TDM_TYPE_F16, wide, back, 65536, NULL), TDM_OK);
    for (uint32_t bits = 0; bits < 65536; bits++) {
        assert_int_equal(tdm_f32_to_bits(wide[bits]),
                         tdm_f32_to_bits(tdm_f16_to_f32(halves[bits])));
        assert_int_equal(back[bits], tdm_f32_to_f16(wide[bits]));
    }
    assert_int_equal(tdm_row_dequantize(TDM_TYPE_BF16, halves, wide, 65536), TDM_OK);
    assert_int_equal(tdm_row_quantize(TDM_TYPE_BF16, wide, back, 65536, NULL), TDM_OK);
    for (uint32_t bits = 0; bits < 65536; bits++) {
        assert_int_equal(tdm_f32_to_bits(wide[bits]), bits << 16);
        assert_int_equal(back[bits], tdm_f32_to_bf16(wide[bits]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_f16_widens_exactly),
        cmocka_unit_test(test_every_f16_comes_back),
        cmocka_unit_test(test_f16_rounds_to_nearest_even),
        cmocka_unit_test(test_f16_keeps_nan),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_rows_agree_with_single_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
