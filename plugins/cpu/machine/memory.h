/* SPDX-License-Identifier: MIT
 *
 * memory.h: how much memory the machine has for this process.
 */
#ifndef TANDEM_CPU_MEMORY_H
#define TANDEM_CPU_MEMORY_H

#include <stdint.h>

/* Bytes in all, and bytes that could be allocated now without swapping, both within the limit of
 * the process's control group. 0 where the system does not say. [any-thread] */
void cpu_memory_query(uint64_t *total_out, uint64_t *free_out);

#endif
