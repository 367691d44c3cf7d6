/* SPDX-License-Identifier: MIT
 *
 * x_rows.h: the addresses of the rows of x that quantize.cu and halves.cu convert. Words 3 to 9 are
 * those of QUANTIZE (kernel.h).
 */
#ifndef TANDEM_GPU_X_ROWS_H
#define TANDEM_GPU_X_ROWS_H

#include "lang.h"

static inline u64 x_row_address(const Args &args, uint row) {
    uint per_matrix = uint(args.word[9]), matrix = row / per_matrix;
    uint column = row - matrix * per_matrix, rest = column / uint(args.word[3]);
    uint c2 = rest / uint(args.word[4]);
    uint at = (column - rest * uint(args.word[3])) * uint(args.word[5]) +
              (rest - c2 * uint(args.word[4])) * uint(args.word[6]) + c2 * uint(args.word[7]) +
              matrix * uint(args.word[8]);
    return args.address[1] + 4 * u64(at);
}

#endif
