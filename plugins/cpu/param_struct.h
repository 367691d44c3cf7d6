/* SPDX-License-Identifier: MIT
 *
 * param_struct.h: structs of the ABI that a caller of another version may have filled or will read.
 */
#ifndef TANDEM_CPU_PARAM_STRUCT_H
#define TANDEM_CPU_PARAM_STRUCT_H

#include <string.h>

/* Reads a parameter struct of the caller's, of whatever version, into ours: fields that it does not
 * have become 0. A struct_size of 0 means this version. */
static inline void cpu_struct_read(void *ours, size_t our_size, const void *theirs) {
    size_t n = 0;
    memset(ours, 0, our_size);
    if (theirs == NULL) return;
    memcpy(&n, theirs, sizeof n);
    memcpy(ours, theirs, n != 0 && n < our_size ? n : our_size);
}

/* Writes a result as far as the caller's struct goes, and leaves its struct_size alone. */
static inline void cpu_struct_write(void *theirs, const void *ours, size_t our_size) {
    size_t n = 0;
    memcpy(&n, theirs, sizeof n);
    if (n == 0 || n > our_size) n = our_size;
    if (n > sizeof n)
        memcpy((char *)theirs + sizeof n, (const char *)ours + sizeof n, n - sizeof n);
}

#endif
