/* SPDX-License-Identifier: MIT
 *
 * x86/attention_q8_avx512.c: the scores of attention_avx512.c once more, for queries of 8 bits.
 */
#define QUERY_IS_Q8 1
#include "plugins/cpu/x86/attention_avx512.c"
