/* SPDX-License-Identifier: MIT
 *
 * x86/attention_q8_avx2.c: the scores of attention_avx2.c once more, for queries of 8 bits.
 */
#define QUERY_IS_Q8 1
#include "plugins/cpu/x86/attention_avx2.c"
