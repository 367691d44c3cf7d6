/* SPDX-License-Identifier: MIT
 *
 * hadamard.h: the rotation of cache rows (kv.h). Which rows are rotated, and in which blocks, is
 * decided in kv_page.c.
 */
#ifndef TANDEM_CPU_HADAMARD_H
#define TANDEM_CPU_HADAMARD_H

#include <stdint.h>

/* Multiplies each run of `block` elements (a power of two that divides n; 1 does nothing) by the
 * normalised Walsh-Hadamard matrix, in place. Its own inverse. All kernels give the same bits, so
 * that caches written on any path agree byte for byte. [any-thread] */
typedef void (*cpu_hadamard_fn)(float *x, int32_t n, int32_t block);

void cpu_hadamard_plain(float *x, int32_t n, int32_t block);
void cpu_hadamard_avx2(float *x, int32_t n, int32_t block);
void cpu_hadamard_avx512(float *x, int32_t n, int32_t block);
void cpu_hadamard_neon(float *x, int32_t n, int32_t block);

/* The first kernel that a device with these instruction sets may use. [any-thread] */
cpu_hadamard_fn cpu_hadamard_choose(uint32_t isa);

#endif
