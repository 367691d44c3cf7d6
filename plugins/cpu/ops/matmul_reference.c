/* SPDX-License-Identifier: MIT
 *
 * matmul_reference.c: the reference of every other matmul kernel. Canonical rows, f32 activations:
 *   y[t] = sum_i w[i] * x[t][i], w dequantised to f32 (block.h), products and sums in f64.
 * It also multiplies plain weights on every device.
 */
#include "quant/convert.h"
#include "plugins/cpu/ops/matmul.h"

#define UNCHECKED __attribute__((no_sanitize("address", "undefined")))

enum { PIECE = 256, N_SUM = 8 };

/* The sum of n products; N_SUM partial sums, in an order that does not depend on the machine. The
 * address sanitizer does not check each element, since that took four fifths of the time of the
 * tests of models. Instead the caller reads the last one, which the sanitizer checks. */
UNCHECKED static double dot(const float *w, const float *x, int64_t n) {
    double sum[N_SUM] = {0};
    int64_t i = 0;
    for (; i + N_SUM <= n; i += N_SUM) {
        for (int j = 0; j < N_SUM; j++) sum[j] += (double)w[i + j] * (double)x[i + j];
    }
    for (int j = 0; i < n; i++, j++) sum[j] += (double)w[i] * (double)x[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

void cpu_matmul_run_reference(const cpu_matmul_tile *tile) {
    tdm_type_info info = tdm_type_get_info(tile->type);
    tdm_row_dequantize_fn dequantize = tdm_row_codec_get(tile->type).dequantize;
    int64_t k = tile->n_block * info.block_len;
    double sum[CPU_MATMUL_TOK] = {0};
    for (int64_t i = 0; i < k; i += PIECE) {
        float w[PIECE];
        int64_t n = k - i < PIECE ? k - i : PIECE;
        dequantize(tile->group + tdm_type_row_size(tile->type, i), w, n);
        for (int32_t t = 0; t < tile->n_tok; t++) {
            const float *x = (const float *)tile->x[t] + i;
            (void)*(const volatile float *)&x[n - 1];
            sum[t] += dot(w, x, n);
        }
    }
    for (int32_t t = 0; t < tile->n_tok; t++) tile->y[t][0] = (float)sum[t];
}
