// SPDX-License-Identifier: MIT
//
// page_rope.glsl: ROPE of the row that page_rotate.glsl keeps in shared memory, for kernels that
// turn a row before they use it.
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32x2 { vec2 at[]; };

// Turns the pairs of a token's row; barriers before and after. Words from `word` on: pairs (0 =
// none), first element, tdm_rope_mode, stride of pos. A token at position -1 stays as it is.
void row_rope(int token, int word, uint64_t angles, uint64_t pos) {
    int n_pair = args.word[word], first = args.word[word + 1];
    bool is_adjacent = args.word[word + 2] == 0;
    if (n_pair == 0) return;
    barrier();
    if (I32(pos).at[token * args.word[word + 3]] != -1) {
        for (int i = row_thread(); i < n_pair; i += ROW_GROUP) {
            int a = first + (is_adjacent ? 2 * i : i), b = a + (is_adjacent ? 1 : n_pair);
            vec2 angle = F32x2(angles).at[token * n_pair + i];
            float x = row_x[a], y = row_x[b];
            row_x[a] = x * angle.x - y * angle.y;
            row_x[b] = x * angle.y + y * angle.x;
        }
    }
    barrier();
}
