// SPDX-License-Identifier: MIT
//
// page_rotate.glsl: a row of up to ROW_LEN elements in shared memory, and its Walsh-Hadamard
// rotation. The includer defines ROW_LEN and ROW_GROUP, the number of threads. Every function must
// be reached by all threads.

shared float row_x[ROW_LEN];

int row_thread() {
    return int(gl_LocalInvocationID.x);
}

// Multiplies each run of `block` elements by the normalised Walsh-Hadamard matrix: one rounded
// addition for each element and pass. Elements first .. first + n - 1; block divides n and first.
void row_rotate(int first, int n, int block) {
    if (block <= 1) return;
    for (int half_len = 1; half_len < block; half_len *= 2) {
        barrier();
        for (int p = row_thread(); p < n / 2; p += ROW_GROUP) {
            int i = first + p / half_len * 2 * half_len + p % half_len;
            precise float a = row_x[i], b = row_x[i + half_len];
            precise float sum = a + b, difference = a - b;
            row_x[i] = sum;
            row_x[i + half_len] = difference;
        }
    }
    // 1 / sqrt(block), both rounded to f32
    int log2_block = findMSB(block);
    float odd = (log2_block & 1) != 0 ? uintBitsToFloat(0x3f3504f3u) : 1.0;
    float norm = odd * uintBitsToFloat(uint(127 - log2_block / 2) << 23);
    barrier();
    for (int i = row_thread(); i < n; i += ROW_GROUP) row_x[first + i] *= norm;
    barrier();
}
