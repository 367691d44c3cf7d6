// SPDX-License-Identifier: MIT
//
// x_rows.glsl: the rows of x that quantize.comp and halves.comp convert. Words 3 to 9 are those of
// QUANTIZE (kernel.h).

// x is dense and aligned to 16 bytes in every row, and k is a multiple of 32.
const bool X_IS_WIDE = SPEC1 != 0;

uint64_t x_row_address(uint row) {
    uint per_matrix = uint(args.word[9]), matrix = row / per_matrix;
    uint column = row - matrix * per_matrix, rest = column / uint(args.word[3]);
    uint c2 = rest / uint(args.word[4]);
    uint at = (column - rest * uint(args.word[3])) * uint(args.word[5]) +
              (rest - c2 * uint(args.word[4])) * uint(args.word[6]) + c2 * uint(args.word[7]) +
              matrix * uint(args.word[8]);
    return args.address[1] + 4 * uint64_t(at);
}
