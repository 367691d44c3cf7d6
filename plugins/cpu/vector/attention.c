/* SPDX-License-Identifier: MIT
 *
 * vector/attention.c: the kernels of attention_kernel.h for every type of the cache. With CPU_IS_Q8
 * scores are compiled once more, for queries of 8 bits.
 */
#include "plugins/cpu/vector/attention_score.h"
#if !CPU_IS_Q8
#include "plugins/cpu/vector/attention_add.h"
#include "plugins/cpu/vector/attention_latent.h"
#include "plugins/cpu/vector/attention_softmax.h"
#endif

#define FOR_EACH_PLAIN(KERNEL)                                                                     \
    KERNEL(f32, TDM_TYPE_F32)                                                                      \
    KERNEL(f16, TDM_TYPE_F16)                                                                      \
    KERNEL(bf16, TDM_TYPE_BF16)
#define FOR_EACH_UNSIGNED(KERNEL)                                                                  \
    KERNEL(q5_1, TDM_TYPE_Q5_1)                                                                    \
    KERNEL(q5_0, TDM_TYPE_Q5_0)                                                                    \
    KERNEL(q4_1, TDM_TYPE_Q4_1)                                                                    \
    KERNEL(q4_0, TDM_TYPE_Q4_0)
#define FOR_EACH_QUANTIZED(KERNEL)                                                                 \
    KERNEL(q8_0, TDM_TYPE_Q8_0)                                                                    \
    FOR_EACH_UNSIGNED(KERNEL)                                                                      \
    KERNEL(iq4_nl, TDM_TYPE_IQ4_NL)

/* Codes of 8 bits overflow 16-bit sums; the other kernels would be as many steps as 15 bits take. */
#if CPU_IS_Q8 && DOT8_IS_NARROW
#define FOR_EACH_SCORED(KERNEL) FOR_EACH_UNSIGNED(KERNEL)
#else
#define FOR_EACH_SCORED(KERNEL) FOR_EACH_QUANTIZED(KERNEL)
#endif

#define SCORE_KERNEL(name, type)                                                                   \
    static void score_##name(const cpu_kv_span *k, int32_t n_row, const uint8_t *const *q,         \
                             float *const *score) {                                                \
        score_rows(k, n_row, q, score, type);                                                      \
    }
#define QUERY_KERNEL(name, type)                                                                   \
    static void query_##name(const cpu_kv_side *side, const float *x, uint8_t *q) {                \
        query_codes(side, x, q, type);                                                             \
    }
#define ADD_KERNEL(name, type)                                                                     \
    static void add_##name(const cpu_kv_span *v, int32_t n_dim, const cpu_attention_rows *rows) {  \
        add_rows(v, n_dim, rows, type);                                                            \
    }
#define LATENT_KERNEL(name, type)                                                                  \
    static void latent_##name(const cpu_kv_span *v, int32_t n_dim,                                 \
                              const cpu_attention_rows *rows) {                                    \
        latent_rows(v, n_dim, rows, type);                                                         \
    }

FOR_EACH_SCORED(SCORE_KERNEL)
FOR_EACH_SCORED(QUERY_KERNEL)

#if CPU_IS_Q8
#define SCORE(name, type)                                                                          \
    {LANES_ISA, type, score_##name, query_##name, "score_q8_" #name "_" LANES_NAME},

const cpu_score_row LANES_FN(cpu_score_q8)[] = {FOR_EACH_SCORED(SCORE)};
#else
FOR_EACH_PLAIN(SCORE_KERNEL)
FOR_EACH_PLAIN(ADD_KERNEL)
FOR_EACH_QUANTIZED(ADD_KERNEL)
FOR_EACH_PLAIN(LATENT_KERNEL)
FOR_EACH_QUANTIZED(LATENT_KERNEL)

#define SCORE_PLAIN(name, type)                                                                    \
    {LANES_ISA, type, score_##name, NULL, "score_" #name "_" LANES_NAME},
#define SCORE_QUANTIZED(name, type)                                                                \
    {LANES_ISA, type, score_##name, query_##name, "score_" #name "_" LANES_NAME},
#define ADD(name, type) {LANES_ISA, type, false, add_##name, "add_" #name "_" LANES_NAME},
#define ADD_LATENT(name, type)                                                                     \
    {LANES_ISA, type, true, latent_##name, "add_key_" #name "_" LANES_NAME},

const cpu_score_row LANES_FN(cpu_score)[] = {FOR_EACH_PLAIN(SCORE_PLAIN)
                                                 FOR_EACH_QUANTIZED(SCORE_QUANTIZED)};
const cpu_add_row LANES_FN(cpu_add)[] = {FOR_EACH_PLAIN(ADD) FOR_EACH_QUANTIZED(ADD)
                                             FOR_EACH_PLAIN(ADD_LATENT)
                                                 FOR_EACH_QUANTIZED(ADD_LATENT)};

void LANES_FN(cpu_attention_softmax)(const cpu_softmax_rows *rows, int32_t begin, int32_t end,
                                     float softcap) {
    softmax_rows(rows, begin, end, softcap);
}
#endif
