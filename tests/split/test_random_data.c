/* SPDX-License-Identifier: MIT
 *
 * test_random_data.c: the noise in random weights has the requested size in every type. With less
 * noise, a choice that depends on rounding alone would count as a fault of the group.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/split/random_data.h"

enum { WIDTH = 256, ROWS = 64 };

static const tdm_type types[] = {
    TDM_TYPE_F32,   TDM_TYPE_F16,   TDM_TYPE_BF16,  TDM_TYPE_Q8_0,    TDM_TYPE_Q4_0,
    TDM_TYPE_Q4_1,  TDM_TYPE_Q5_0,  TDM_TYPE_Q5_1,  TDM_TYPE_IQ4_NL,  TDM_TYPE_Q4_K,
    TDM_TYPE_Q2_K,  TDM_TYPE_Q3_K,  TDM_TYPE_Q5_K,  TDM_TYPE_Q6_K,    TDM_TYPE_IQ4_XS,
    TDM_TYPE_IQ1_S, TDM_TYPE_TQ1_0, TDM_TYPE_IQ3_S, TDM_TYPE_IQ2_XXS,
};
enum { N_TYPE = sizeof types / sizeof *types };

/* The numbers of a weight of this type; the caller frees them. */
static float *numbers(tdm_type type, double noise) {
    tdm_error err = {0};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    const int64_t ne[TDM_MAX_DIMS] = {WIDTH, ROWS, 1, 1};
    const int64_t row[TDM_MAX_DIMS] = {WIDTH, 1, 1, 1};
    int32_t w = tdm_build_weight(b, "w0", type, ne, TDM_USAGE_MATMUL);
    int32_t y = tdm_build_matmul(b, w, tdm_build_input(b, "in0", TDM_TYPE_F32, row));
    tdm_build_output(b, y, "out0");
    assert_int_equal(tdm_builder_finish(b, &graph, &err), TDM_OK);
    tdm_builder_destroy(b);
    float *x = malloc(sizeof *x * WIDTH * ROWS);
    void *bytes = random_weight(graph, w, 7, noise);
    assert_non_null(x);
    assert_non_null(bytes);
    assert_int_equal(tdm_row_dequantize(type, bytes, x, WIDTH * ROWS), TDM_OK);
    free(bytes);
    tdm_graph_free(graph);
    return x;
}

/* How far noise moves numbers: the root of its mean square, relative to that of the numbers. */
static double moved(tdm_type type, double noise) {
    float *x = numbers(type, 0), *y = numbers(type, noise);
    double square = 0, change = 0;
    for (int i = 0; i < WIDTH * ROWS; i++) {
        double d = (double)y[i] - (double)x[i];
        square += (double)x[i] * (double)x[i];
        change += d * d;
    }
    free(x);
    free(y);
    return sqrt(change / square);
}

static void test_size(void **state) {
    (void)state;
    static const double noises[] = {2e-6, 2e-4, 2e-3, 2e-2, 8e-2};
    for (int i = 0; i < N_TYPE; i++) {
        const char *name = tdm_type_name(types[i]);
        double step = types[i] == TDM_TYPE_F32 ? 0 : types[i] == TDM_TYPE_BF16 ? 8e-3 : 1e-3;
        if (moved(types[i], 0) != 0) fail_msg("%s: moved without noise", name);
        for (size_t j = 0; j < sizeof noises / sizeof *noises; j++) {
            double noise = noises[j], by = moved(types[i], noise);
            /* Uniform noise has a root mean square of 0.58. What is less than a last bit moves few
             * numbers, by one; of blocks with a minimum, by more than themselves near 0. */
            bool is_right =
                noise > step ? by >= 0.4 * noise && by <= 0.8 * noise + step / 2 : by <= 3 * step;
            if (!is_right) fail_msg("%s: noise of %g moves numbers by %g", name, noise, by);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
