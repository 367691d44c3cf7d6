/* SPDX-License-Identifier: MIT
 *
 * kv_row.h: which function turns a row of floats into a cache type. All of them give the bytes of
 * tdm_row_quantize (quant/convert.h), so that caches agree whatever wrote them.
 */
#ifndef TANDEM_CPU_KV_ROW_H
#define TANDEM_CPU_KV_ROW_H

#include "quant/convert.h"
#include "plugins/cpu/cpu.h"

/* The first row of the table in kv_write.c that the device may use. Never NULL for a type that a
 * cache can have. [any-thread] */
tdm_row_quantize_fn cpu_kv_quantizer(const cpu_device *device, tdm_type type);

/* x86/kv_write_avx2.c; importance is not used. */
void cpu_quantize_f16_avx2(const float *src, void *blocks, int64_t n, const float *importance);
void cpu_quantize_q8_0_avx2(const float *src, void *blocks, int64_t n, const float *importance);
void cpu_quantize_q5_1_avx2(const float *src, void *blocks, int64_t n, const float *importance);
void cpu_quantize_q5_0_avx2(const float *src, void *blocks, int64_t n, const float *importance);
void cpu_quantize_q4_1_avx2(const float *src, void *blocks, int64_t n, const float *importance);
void cpu_quantize_q4_0_avx2(const float *src, void *blocks, int64_t n, const float *importance);
void cpu_quantize_iq4_nl_avx2(const float *src, void *blocks, int64_t n, const float *importance);
/* x86/kv_write_avx512.c */
void cpu_quantize_iq4_nl_avx512(const float *src, void *blocks, int64_t n, const float *importance);

#endif
