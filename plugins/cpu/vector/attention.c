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

/* Quantised types whose codes are unsigned. */
#define UNSIGNED_TYPE_LIST(TYPE) TYPE(Q5_1, q5_1) TYPE(Q5_0, q5_0) TYPE(Q4_1, q4_1) TYPE(Q4_0, q4_0)

/* Codes of 8 bits overflow 16-bit sums; the other kernels would be as many steps as 15 bits
 * take. */
#if CPU_IS_Q8 && DOT8_IS_NARROW
#define SCORED_TYPE_LIST UNSIGNED_TYPE_LIST
#else
#define SCORED_TYPE_LIST TDM_KV_BLOCK_TYPE_LIST
#endif

#define SCORE_KERNEL(ID, name)                                                                     \
    static void score_##name(const cpu_kv_span *k, int32_t n_row, const uint8_t *const *q,         \
                             float *const *score) {                                                \
        score_rows(k, n_row, q, score, TDM_TYPE_##ID);                                             \
    }
#define QUERY_KERNEL(ID, name)                                                                     \
    static void query_##name(const cpu_kv_side *side, const float *x, uint8_t *q) {                \
        query_codes(side, x, q, TDM_TYPE_##ID);                                                    \
    }
#define ADD_KERNEL(ID, name)                                                                       \
    static void add_##name(const cpu_kv_span *v, int32_t n_dim, const cpu_attention_rows *rows) {  \
        add_rows(v, n_dim, rows, TDM_TYPE_##ID);                                                   \
    }
#define LATENT_KERNEL(ID, name)                                                                    \
    static void latent_##name(const cpu_kv_span *v, int32_t n_dim,                                 \
                              const cpu_attention_rows *rows) {                                    \
        latent_rows(v, n_dim, rows, TDM_TYPE_##ID);                                                \
    }

SCORED_TYPE_LIST(SCORE_KERNEL)
SCORED_TYPE_LIST(QUERY_KERNEL)

#if CPU_IS_Q8
#define SCORE(ID, name)                                                                            \
    {LANES_ISA, TDM_TYPE_##ID, score_##name, query_##name, "score_q8_" #name "_" LANES_NAME},

const cpu_score_row LANES_FN(cpu_score_q8)[] = {SCORED_TYPE_LIST(SCORE)};
#else
TDM_KV_FLOAT_TYPE_LIST(SCORE_KERNEL)
TDM_KV_FLOAT_TYPE_LIST(ADD_KERNEL)
TDM_KV_BLOCK_TYPE_LIST(ADD_KERNEL)
TDM_KV_FLOAT_TYPE_LIST(LATENT_KERNEL)
TDM_KV_BLOCK_TYPE_LIST(LATENT_KERNEL)

#define SCORE_PLAIN(ID, name)                                                                      \
    {LANES_ISA, TDM_TYPE_##ID, score_##name, NULL, "score_" #name "_" LANES_NAME},
#define SCORE_QUANTIZED(ID, name)                                                                  \
    {LANES_ISA, TDM_TYPE_##ID, score_##name, query_##name, "score_" #name "_" LANES_NAME},
#define ADD(ID, name) {LANES_ISA, TDM_TYPE_##ID, false, add_##name, "add_" #name "_" LANES_NAME},
#define ADD_LATENT(ID, name)                                                                       \
    {LANES_ISA, TDM_TYPE_##ID, true, latent_##name, "add_key_" #name "_" LANES_NAME},

const cpu_score_row LANES_FN(cpu_score)[] = {TDM_KV_FLOAT_TYPE_LIST(SCORE_PLAIN)
                                                 TDM_KV_BLOCK_TYPE_LIST(SCORE_QUANTIZED)};
const cpu_add_row LANES_FN(cpu_add)[] = {TDM_KV_FLOAT_TYPE_LIST(ADD) TDM_KV_BLOCK_TYPE_LIST(ADD)
                                             TDM_KV_FLOAT_TYPE_LIST(ADD_LATENT)
                                                 TDM_KV_BLOCK_TYPE_LIST(ADD_LATENT)};

void LANES_FN(cpu_attention_softmax)(const cpu_softmax_rows *rows, int32_t begin, int32_t end,
                                     float softcap) {
    softmax_rows(rows, begin, end, softcap);
}
#endif
