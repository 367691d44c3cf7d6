/* SPDX-License-Identifier: MIT
 *
 * matrix_plain.h: the words for products of small matrices (Mat of lang.h) for devices without
 * matrix hardware: a lane computes the sums of one column from shared memory. A words.h includes
 * it.
 */
#ifndef TANDEM_GPU_MATRIX_PLAIN_H
#define TANDEM_GPU_MATRIX_PLAIN_H

typedef const uvec4 *Mat;
static inline Mat mat_load(const uvec4 *rows) {
    return rows;
}
static inline uint mat_count() {
    return 256 / wave_size();
}
static inline uint mat_row(uint i) {
    return thread_id() % wave_size() / 16 + wave_size() / 16 * i;
}
static inline uint mat_column(uint i) {
    (void)i;
    return thread_id() % 16;
}
static inline void mat_mul(int *sum, Mat a, Mat b) {
    uvec4 column = b[mat_column(0)];
    for (uint i = 0; i < mat_count(); i++) {
        uvec4 row = a[mat_row(i)];
        sum[i] = dot_4(row.x, column.x, sum[i]);
        sum[i] = dot_4(row.y, column.y, sum[i]);
        sum[i] = dot_4(row.z, column.z, sum[i]);
        sum[i] = dot_4(row.w, column.w, sum[i]);
    }
}

#endif
