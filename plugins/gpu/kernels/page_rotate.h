/* SPDX-License-Identifier: MIT
 *
 * page_rotate.h: a row in shared memory, its Walsh-Hadamard rotation and its ROPE. All threads of
 * the workgroup call row_rotate() and row_rope() together.
 */
#ifndef TANDEM_GPU_PAGE_ROTATE_H
#define TANDEM_GPU_PAGE_ROTATE_H

#include "page.h"

struct PageRotate : Page {
    inline PageRotate(const Args &args_, int row_len)
        : Page(args_), row_x(shared_take<float>(row_len)) {}

    float *row_x; // of row_len elements

    inline int row_thread() { return int(thread_id()); }
    inline int row_group() { return int(group_size()); }

    // Multiplies each run of `block` elements of first .. first + n - 1 by the normalised
    // Walsh-Hadamard matrix, with one rounded addition for each element and pass. block is a power
    // of two that divides n and first. It begins and ends with a barrier. block <= 1: does nothing,
    // and has no barrier.
    inline void row_rotate(int first, int n, int block) {
        if (block <= 1) return;
        for (int half_len = 1; half_len < block; half_len *= 2) {
            barrier();
            for (int p = row_thread(); p < n / 2; p += row_group()) {
                int i = first + p / half_len * 2 * half_len + p % half_len;
                float a = row_x[i], b = row_x[i + half_len];
                float sum = a + b, difference = a - b;
                row_x[i] = sum;
                row_x[i + half_len] = difference;
            }
        }
        // 1 / sqrt(block), both rounded to f32
        int log2_block = top_bit(uint(block));
        float odd = (log2_block & 1) != 0 ? bits_to_float(0x3f3504f3u) : 1.0f;
        float norm = odd * bits_to_float(uint(127 - log2_block / 2) << 23);
        barrier();
        for (int i = row_thread(); i < n; i += row_group()) row_x[first + i] *= norm;
        barrier();
    }

    // ROPE: turns the pairs of a token's row. It begins and ends with a barrier. Words from `word`
    // on: pairs (0 = none: no barrier either), first element, tdm_rope_mode, stride of pos. The row
    // of a token at position -1 stays as it is.
    inline void row_rope(int token, int word, u64 angles, u64 pos) {
        int n_pair = args.word[word], first = args.word[word + 1];
        bool is_adjacent = args.word[word + 2] == 0;
        if (n_pair == 0) return;
        barrier();
        if (I32(pos).at[token * args.word[word + 3]] != -1) {
            for (int i = row_thread(); i < n_pair; i += row_group()) {
                int a = first + (is_adjacent ? 2 * i : i), b = a + (is_adjacent ? 1 : n_pair);
                vec2 angle = F32x2(angles).at[token * n_pair + i];
                float x = row_x[a], y = row_x[b];
                row_x[a] = x * angle.x - y * angle.y;
                row_x[b] = x * angle.y + y * angle.x;
            }
        }
        barrier();
    }
};

#endif
