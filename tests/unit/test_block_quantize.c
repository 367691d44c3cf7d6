/* SPDX-License-Identifier: MIT
 *
 * test_block_quantize.c: the error of quantised rows. The stored errors of ggml's quantisers
 * without an importance matrix, on the same rows, are the measure: ours may be 1.02 times as
 * large. For q4_0, q4_1, q5_0, q5_1 and q8_0 the bytes must be the same.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/support/random.h"

enum { ROW_LEN = 1 << 14, N_TYPE = 12, N_KIND = 6, GUARD = 64 };

static const tdm_type types[N_TYPE] = {
    TDM_TYPE_Q4_0, TDM_TYPE_Q4_1, TDM_TYPE_Q5_0, TDM_TYPE_Q5_1, TDM_TYPE_Q8_0,   TDM_TYPE_Q2_K,
    TDM_TYPE_Q3_K, TDM_TYPE_Q4_K, TDM_TYPE_Q5_K, TDM_TYPE_Q6_K, TDM_TYPE_IQ4_NL, TDM_TYPE_IQ4_XS,
};

static float next_uniform(uint32_t *seed) {
    return (float)(random_xorshift32(seed) >> 8) * 0x1p-24f;
}

/* Nearly Gaussian, of variance 1, without the mathematics library: the same bits everywhere. */
static float next_gauss(uint32_t *seed) {
    float sum = -6;
    for (int i = 0; i < 12; i++) sum += next_uniform(seed);
    return sum;
}

static const char *const kind_names[N_KIND] = {"gaussian", "uniform", "outliers",
                                               "offset",   "sparse",  "ramp"};

static void make_row(int kind, float *x) {
    uint32_t seed = 2463534242u;
    for (int i = 0; i < ROW_LEN; i++) {
        float gauss = next_gauss(&seed), uniform = next_uniform(&seed);
        switch (kind) {
        case 0: x[i] = 0.02f * gauss; break;
        case 1: x[i] = uniform - 0.5f; break;
        case 2: x[i] = gauss * (uniform < 0.02f ? 20 : 1); break;
        case 3: x[i] = gauss + (float)(i / 64 % 9 - 4); break; /* means from -4 to 4 */
        case 4: x[i] = uniform < 0.9f ? 0 : gauss; break;
        default: x[i] = (float)(i % 96) * 0.125f - 4; break;
        }
    }
}

static double find_error(const float *x, const float *y, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    return sqrt(sum / n);
}

static uint64_t hash_bytes(const uint8_t *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

/* Root mean square errors of ggml_quantize_chunk, llama.cpp v0.5.0, rows of make_row. */
static const double ggml_error[N_KIND][N_TYPE] = {
    {
        0.0016949425,
        0.0015482469,
        0.00084248541,
        0.00075574609,
        0.00010587369,
        0.0059190242,
        0.0030128085,
        0.0014114577,
        0.00071563446,
        0.00034991721,
        0.0015143834,
        0.0015263683,
    },
    {
        0.01878867,
        0.017549949,
        0.0090179087,
        0.0085268219,
        0.0010905729,
        0.067922811,
        0.036006117,
        0.015790081,
        0.0080029095,
        0.0038377402,
        0.018677918,
        0.018815896,
    },
    {
        0.45924554,
        0.35097458,
        0.27423199,
        0.1681676,
        0.035074889,
        0.79966268,
        0.45857093,
        0.3153045,
        0.16508906,
        0.10306611,
        0.37899884,
        0.38363077,
    },
    {
        0.16099137,
        0.077417737,
        0.080127448,
        0.037806611,
        0.010248049,
        0.3361442,
        0.28109118,
        0.07813834,
        0.03995253,
        0.033859488,
        0.17027423,
        0.17219412,
    },
    {
        0.015977795,
        0.035415038,
        0.0076647447,
        0.016247001,
        0.00094914613,
        0.13661122,
        0.023085917,
        0.015642163,
        0.011455055,
        0.0025614705,
        0.017213644,
        0.01765341,
    },
    {
        0.20132766,
        0.07328368,
        0.10385336,
        0,
        0.012702079,
        0.37162776,
        0.32719316,
        0.10198314,
        0.03806427,
        0.035124508,
        0.2368945,
        0.23701319,
    },
};

/* Hashes of its bytes for the first five types. */
static const uint64_t ggml_hash[N_KIND][5] = {
    {
        0x75a99352eaa2b386,
        0x7618b68f57be6e16,
        0x65646d85eb6bffe0,
        0x2d99876165aaa472,
        0x22e8a6b6fda24e43,
    },
    {
        0x58e7d8de2340b5b6,
        0xe186ddb8f091239e,
        0xe2953663b925f202,
        0x368f001d69f76bc1,
        0x10676a9a5a33a060,
    },
    {
        0xe57eaadabfaa98d6,
        0x3d31a0cdf52289b6,
        0x52abb0b72412fdcc,
        0xce172df758afa408,
        0x7ccf3a9b4cb536ca,
    },
    {
        0xfd1046570ffc5ad4,
        0xfb7c1351ad61ad35,
        0x22c78c1a68533d6d,
        0x6535fb585ed39ce6,
        0x980d0e3551e25ef8,
    },
    {
        0x57a8cd53015b6048,
        0x3a7768fba3b4063a,
        0x2f78c4ab7f6b221b,
        0x73cc131521546129,
        0x43391c35739ba218,
    },
    {
        0x1c6bdbf2eb3ab8a0,
        0x94b7fef73c161d99,
        0x284243dd2f881b91,
        0xae906c57f598eea1,
        0xc18659abe2e681ec,
    },
};

typedef struct rows {
    float x[ROW_LEN], y[ROW_LEN], before[ROW_LEN];
    uint8_t bytes[ROW_LEN * 2 + GUARD];
} rows;

static int set_up(void **state) {
    *state = malloc(sizeof(rows));
    return *state == NULL;
}

static int tear_down(void **state) {
    free(*state);
    return 0;
}

/* Quantises x, checks that nothing else was touched, and dequantises to y. */
static size_t make_round_trip(rows *r, tdm_type type, int n, const float *importance) {
    size_t size = tdm_type_row_size(type, n);
    memcpy(r->before, r->x, (size_t)n * sizeof *r->x);
    memset(r->bytes, 0xa5, size + GUARD);
    assert_int_equal(tdm_row_quantize(type, r->x, r->bytes, n, importance), TDM_OK);
    for (size_t i = size; i < size + GUARD; i++) assert_int_equal(r->bytes[i], 0xa5);
    assert_memory_equal(r->before, r->x, (size_t)n * sizeof *r->x);
    assert_int_equal(tdm_row_dequantize(type, r->bytes, r->y, n), TDM_OK);
    return size;
}

static void test_errors_are_no_worse_than_ggml(void **state) {
    rows *r = *state;
    for (int kind = 0; kind < N_KIND; kind++) {
        make_row(kind, r->x);
        for (int t = 0; t < N_TYPE; t++) {
            size_t size = make_round_trip(r, types[t], ROW_LEN, NULL);
            double error = find_error(r->x, r->y, ROW_LEN);
            print_message("%-8s %-6s %.6f, ggml %.6f\n", kind_names[kind], tdm_type_name(types[t]),
                          error, ggml_error[kind][t]);
            assert_true(error <= 1.02 * ggml_error[kind][t]);
            if (t < 5) assert_true(hash_bytes(r->bytes, size) == ggml_hash[kind][t]);
        }
    }
}

static void test_zero_row(void **state) {
    rows *r = *state;
    for (int t = 0; t < N_TYPE; t++) {
        memset(r->x, 0, sizeof r->x);
        make_round_trip(r, types[t], 512, NULL);
        for (int i = 0; i < 512; i++) assert_true(r->y[i] == 0);
    }
}

/* A constant is representable but for the rounding of d to f16: with q3_K and the other signed
 * types only if the scale takes the sign that puts the constant on the far end of the codes. Much
 * smaller than these, d is a subnormal f16 and the rounding coarser. */
static void test_constant_rows(void **state) {
    rows *r = *state;
    static const float constants[] = {1, -1, 0.3f, -700, 60000, -60000};
    for (int t = 0; t < N_TYPE; t++) {
        for (size_t c = 0; c < sizeof constants / sizeof *constants; c++) {
            for (int i = 0; i < 512; i++) r->x[i] = constants[c];
            make_round_trip(r, types[t], 512, NULL);
            for (int i = 0; i < 512; i++) {
                if (fabsf(r->y[i] - constants[c]) <= 1e-3f * fabsf(constants[c])) continue;
                fail_msg("%s: %g became %g", tdm_type_name(types[t]), (double)constants[c],
                         (double)r->y[i]);
            }
        }
    }
}

/* One number among zeros: it is kept, and the zeros stay near zero. */
static void test_single_spike(void **state) {
    rows *r = *state;
    for (int t = 0; t < N_TYPE; t++) {
        for (int at = 0; at < 256; at += 17) {
            memset(r->x, 0, 256 * sizeof *r->x);
            r->x[at] = at % 2 ? -3.0f : 3.0f;
            make_round_trip(r, types[t], 256, NULL);
            for (int i = 0; i < 256; i++) assert_true(fabsf(r->y[i] - r->x[i]) <= 0.05f);
        }
    }
}

/* A value that cannot be represented is converted as convert.h specifies; the result is never
 * NaN. */
static void test_non_finite_and_extreme(void **state) {
    rows *r = *state;
    static const float odd[] = {NAN,     INFINITY,  -INFINITY,  FLT_MAX, -FLT_MAX,
                                FLT_MIN, 0x1p-149f, -0x1p-140f, 1e-38f,  1e-30f,
                                -1e-20f, 1e-7f,     65504,      -1e6f,   8e6f};
    uint32_t seed = 7;
    for (int t = 0; t < N_TYPE; t++) {
        for (int fill = 0; fill < 3; fill++) { /* all the same, one of it, a mixture */
            for (size_t o = 0; o < sizeof odd / sizeof *odd; o++) {
                for (int i = 0; i < 512; i++) {
                    r->x[i] = fill == 0 ? odd[o] : next_gauss(&seed);
                    if (fill == 2 && next_uniform(&seed) < 0.5f) {
                        r->x[i] = odd[random_xorshift32(&seed) % (sizeof odd / sizeof *odd)];
                    }
                }
                if (fill == 1) r->x[100] = odd[o];
                make_round_trip(r, types[t], 512, NULL);
                for (int i = 0; i < 512; i++) assert_true(isfinite(r->y[i]));
                make_round_trip(r, types[t], 512, r->x); /* nonsense for importance, too */
                for (int i = 0; i < 512; i++) assert_true(isfinite(r->y[i]));
            }
        }
        for (int i = 0; i < 256; i++) r->x[i] = i % 2 ? INFINITY : NAN;
        make_round_trip(r, types[t], 256, NULL);
        for (int i = 0; i < 256; i += 2) {
            assert_true(fabsf(r->y[i]) <= 0.02f * r->y[i + 1]);
            assert_true(r->y[i + 1] >= 65504 * 0.99f);
        }
    }
}

/* Elements that matter more come out better, and the sum that is minimised gets smaller. */
static void test_importance_is_heard(void **state) {
    rows *r = *state;
    float *importance = malloc(ROW_LEN * sizeof *importance);
    assert_non_null(importance);
    for (int i = 0; i < ROW_LEN; i++) importance[i] = i % 8 == 0 ? 100.0f : 1.0f;
    for (int t = 0; t < N_TYPE; t++) {
        if (types[t] == TDM_TYPE_Q8_0) continue; /* ignores it, see blocks_32.c */
        double error[2] = {0, 0};
        make_row(0, r->x);
        for (int pass = 0; pass < 2; pass++) {
            make_round_trip(r, types[t], ROW_LEN, pass ? importance : NULL);
            for (int i = 0; i < ROW_LEN; i += 8) {
                error[pass] += ((double)r->x[i] - r->y[i]) * ((double)r->x[i] - r->y[i]);
            }
        }
        print_message("%-6s error of the important: %.3f of before\n", tdm_type_name(types[t]),
                      sqrt(error[1] / error[0]));
        assert_true(error[1] < 0.9 * error[0]);
    }
    free(importance);
}

/* A row is its blocks: quantised at once or block by block, the bytes are the same. */
static void test_blocks_are_independent(void **state) {
    rows *r = *state;
    uint8_t *single = malloc(ROW_LEN * 2);
    assert_non_null(single);
    make_row(2, r->x);
    for (int t = 0; t < N_TYPE; t++) {
        tdm_type_info info = tdm_type_get_info(types[t]);
        size_t size = make_round_trip(r, types[t], 1024, NULL), at = 0;
        for (int i = 0; i < 1024; i += info.block_len, at += (size_t)info.block_size) {
            assert_int_equal(
                tdm_row_quantize(types[t], r->x + i, single + at, info.block_len, NULL), TDM_OK);
        }
        assert_int_equal(at, size);
        assert_memory_equal(single, r->bytes, size);
    }
    free(single);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_are_no_worse_than_ggml),
        cmocka_unit_test(test_zero_row),
        cmocka_unit_test(test_constant_rows),
        cmocka_unit_test(test_single_spike),
        cmocka_unit_test(test_non_finite_and_extreme),
        cmocka_unit_test(test_importance_is_heard),
        cmocka_unit_test(test_blocks_are_independent),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
