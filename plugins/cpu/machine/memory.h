/* SPDX-License-Identifier: MIT
 *
 * memory.h: how much memory the machine has for this process, and allocating large pieces of it.
 */
#ifndef TANDEM_CPU_MEMORY_H
#define TANDEM_CPU_MEMORY_H

#include <stdint.h>

#include "tandem/plugin.h"

/* Bytes in all, and bytes that could be allocated now without swapping, both within the limit of
 * the process's control group. 0 where the system does not say. [any-thread] */
void cpu_memory_query(uint64_t *total_out, uint64_t *free_out);

/* Memory at an address that suits its size, large pieces in huge pages where the system has them.
 * NULL where there is none. [any-thread] */
uint8_t *cpu_pages_alloc(const tdm_host *host, size_t size);
/* `size` as allocated. NULL is a no-op. [any-thread] */
void cpu_pages_free(const tdm_host *host, uint8_t *data, size_t size);

#endif
