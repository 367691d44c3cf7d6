/* SPDX-License-Identifier: MIT
 *
 * families.h: the architectures, and what their tables have in common. For arch.c and the files of
 * families only.
 */
#ifndef LLM_FAMILIES_H
#define LLM_FAMILIES_H

#include "llm/arch/arch.h"
#include "llm/arch/key_reader.h"

/* The norms that most architectures have. */
#define LLM_PRE_NORMS .norm_mixer = LLM_ROLE_ATTN_NORM, .norm_channel = LLM_ROLE_FFN_NORM

/* Every architecture, in the order of messages: llm_arch_NAME. */
#define LLM_ARCH_LIST(ARCH)                                                                        \
    ARCH(llama)                                                                                    \
    ARCH(deepseek2)

#define LLM_ARCH_DECLARE_(name) extern const llm_arch llm_arch_##name;
LLM_ARCH_LIST(LLM_ARCH_DECLARE_)
#undef LLM_ARCH_DECLARE_

#endif
