/* SPDX-License-Identifier: MIT
 *
 * cores.h: the processors that this process may run on, and lists of them in options.
 */
#ifndef TANDEM_CPU_CORES_H
#define TANDEM_CPU_CORES_H

#include <sched.h>

#include "tandem/status.h"

/* How many threads can run without sharing a core: the physical cores of the affinity mask, but no
 * more than the processor time that its control groups grant. At least 1. [any-thread] */
int32_t cpu_cores_default(void);

/* Logical processors of the affinity mask. At least 1. [any-thread] */
int32_t cpu_cores_available(void);

/* Parses "0-3,6" into *set_out. TDM_INVALID_ARGUMENT for anything else, an empty list, and
 * processors that the process may not use, which are named. [any-thread] */
tdm_status cpu_cores_parse(const char *text, cpu_set_t *set_out, tdm_error *err);

#endif
