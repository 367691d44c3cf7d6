// SPDX-License-Identifier: MIT
//
// attention_fold.glsl: the softmax of a chunk, step by step over the chunks of a part: m, the
// greatest score so far, and l, the sum of p = exp(score - m), of each query row of a workgroup.
// The includer defines ROWS, THREADS and SCORE(row, slot), a float in shared memory. Every function
// must be reached by all threads.

shared float eighth[ROWS * 8]; // of each 8 slots of a row: the maximum, then the sum of p
shared float row_m[ROWS];
shared float row_l[ROWS];
shared float row_keep[ROWS]; // factor for o of the chunks before: exp(m before - m)

void rows_clear() {
    for (int r = thread(); r < ROWS; r += THREADS) {
        row_m[r] = NEGATIVE_INFINITY;
        row_l[r] = 0.0;
    }
}

// The softmax of the present chunk: replaces each score by p and updates m, l and row_keep. Begins
// with a barrier, so that the caller needs none behind its scores. The caller needs one before
// another thread reads row_l.
void chunk_softmax() {
    barrier();
    for (int i = thread(); i < ROWS * 8; i += THREADS) {
        float m = SCORE(i / 8, i % 8 * 8);
        [[unroll]] for (int k = 1; k < 8; k++) m = max(m, SCORE(i / 8, i % 8 * 8 + k));
        eighth[i] = m;
    }
    barrier();
    for (int r = thread(); r < ROWS; r += THREADS) {
        float old = row_m[r], m = old;
        [[unroll]] for (int k = 0; k < 8; k++) m = max(m, eighth[r * 8 + k]);
        row_m[r] = m;
        row_keep[r] = keep_of(old, m);
    }
    barrier();
    for (int i = thread(); i < ROWS * 8; i += THREADS) {
        float m = row_m[i / 8];
        precise float sum = 0.0;
        [[unroll]] for (int k = 0; k < 8; k++) {
            float p = p_of(SCORE(i / 8, i % 8 * 8 + k), m);
            SCORE(i / 8, i % 8 * 8 + k) = p;
            sum = sum + p;
        }
        eighth[i] = sum;
    }
    barrier();
    for (int r = thread(); r < ROWS; r += THREADS) {
        precise float l = row_l[r] * row_keep[r];
        precise float sum = 0.0;
        [[unroll]] for (int k = 0; k < 8; k++) sum = sum + eighth[r * 8 + k];
        row_l[r] = l + sum;
    }
}
