/* SPDX-License-Identifier: MIT
 *
 * relax.h: what a processor is told that waits in a loop, to the benefit of its sibling and its own
 * exit from there.
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
