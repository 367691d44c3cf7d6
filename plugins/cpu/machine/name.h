/* SPDX-License-Identifier: MIT
 *
 * name.h: what Linux calls the processor and its maker.
 */
#ifndef TANDEM_CPU_NAME_H
#define TANDEM_CPU_NAME_H

#include <stddef.h>

/* The names in `text`, the beginning of /proc/cpuinfo; empty where it has none. On x86-64 it has
 * both. On AArch64 it has numbers (the fields of register MIDR_EL1), which stand for the name, and
 * for the maker where that is a known one. A name is cut to its size. [any-thread] */
void cpu_name_read(const char *text, char *name_out, size_t name_size, char *maker_out,
                   size_t maker_size);

#endif
