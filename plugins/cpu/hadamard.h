/* SPDX-License-Identifier: MIT
 *
 * hadamard.h: the rotation of cache rows (kv.h). Which rows are rotated, and in which blocks, is
 * decided in kv_page.c.
 */
#ifndef TANDEM_CPU_HADAMARD_H
#define TANDEM_CPU_HADAMARD_H

#include <stdint.h>

/* Multiplies each run of `block` elements (a power of two that divides n; 1 does nothing) by the
 * normalised Walsh-Hadamard matrix, in place. Its own inverse. The result does not depend on the
 * instruction set, so that caches written on any path agree byte for byte. [any-thread] */
void cpu_hadamard(float *x, int32_t n, int32_t block);

#endif
