/* SPDX-License-Identifier: MIT
 *
 * relax.h: the instruction for the body of a polling loop. It leaves resources to the sibling
 * thread of the core, and makes leaving the loop faster.
 */
#ifndef TANDEM_BASE_RELAX_H
#define TANDEM_BASE_RELAX_H

static inline void tdm_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
