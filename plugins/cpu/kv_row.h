/* SPDX-License-Identifier: MIT
 *
 * kv_row.h: which function turns a row of floats into a cache type. All of them give the bytes of
 * tdm_row_quantize (core/base/convert.h), so that caches agree whatever wrote them.
 */
#ifndef TANDEM_CPU_KV_ROW_H
#define TANDEM_CPU_KV_ROW_H

#include "core/base/convert.h"
#include "plugins/cpu/cpu.h"

/* The first row of the table in kv_write.c that the device may use. Never NULL for a type that a
 * cache can have. [any-thread] */
tdm_row_quantize_fn cpu_kv_quantizer(const cpu_device *device, tdm_type type);

#endif
