/* SPDX-License-Identifier: MIT
 *
 * isa.h: which instruction sets this processor and its operating system offer, and their names in
 * options. Which of them a device may use follows from its options (device.c).
 */
#ifndef TANDEM_CPU_ISA_H
#define TANDEM_CPU_ISA_H

#include "plugins/cpu/cpu.h"

/* CPU_ISA_* that the processor has and the operating system saves on a switch. Where there is AMX,
 * it asks the operating system to let this process use it. [any-thread] */
uint32_t cpu_isa_detect(void);

/* True for processors whose cores read weights fastest when kernels prefetch each cache line: those
 * that can wait for many lines at once. No flag of the processor says so; measurements do: AMD's
 * family 1Ah (Zen 5) is faster with it, 19h (Zen 4) is not. True for AMD from family 1Ah on, false
 * for all others, most of which were not measured. [any-thread] */
bool cpu_isa_prefetch_each(void);

/* The words of option `isa`; ends with NULL. */
extern const char *const cpu_isa_words[];

/* What a device with option `isa = text` may use: "auto" all that was detected, "plain" nothing,
 * "avx2", "avx512" (which includes AVX2), "amx" (which includes both) and "neon" that set.
 * TDM_INVALID_ARGUMENT for another word, TDM_UNSUPPORTED where this machine lacks the set.
 * [any-thread] */
tdm_status cpu_isa_parse(const char *text, uint32_t *isa_out, tdm_error *err);

/* The word of the best set in `isa` ("plain" for none). Never NULL or "auto". [any-thread] */
const char *cpu_isa_name(uint32_t isa);

#endif
