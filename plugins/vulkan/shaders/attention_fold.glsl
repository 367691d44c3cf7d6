// SPDX-License-Identifier: MIT
//
// attention_fold.glsl: m and l of the query rows of a workgroup, and how a chunk's scores become p. The
// includer defines ROWS, THREADS and SCORE(row, slot), a float in shared memory. Every function must be
// reached by all threads.

shared float eighth[ROWS * 8]; // a maximum, then a sum, of 8 slots
shared float row_m[ROWS];
shared float row_l[ROWS];
shared float row_keep[ROWS]; // what o of before the chunk is multiplied by

int thread() {
    return int(gl_LocalInvocationID.x);
}

void rows_clear() {
    for (int r = thread(); r < ROWS; r += THREADS) {
        row_m[r] = NEGATIVE_INFINITY;
        row_l[r] = 0.0;
    }
}

// Turns scores into p = exp(score - m) and updates m and l. Begins with a barrier; another one is needed
// before row_l is read.
void soften() {
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
        row_keep[r] = old == m ? 1.0 : exp_of_negative(old - m);
    }
    barrier();
    for (int i = thread(); i < ROWS * 8; i += THREADS) {
        float m = row_m[i / 8];
        precise float sum = 0.0;
        [[unroll]] for (int k = 0; k < 8; k++) {
            float s = SCORE(i / 8, i % 8 * 8 + k);
            float p = s == NEGATIVE_INFINITY ? 0.0 : exp_of_negative(s - m);
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
