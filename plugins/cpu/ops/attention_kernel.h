/* SPDX-License-Identifier: MIT
 *
 * attention_kernel.h: the inner loops of ATTENTION: what they take, and the tables that choose
 * them. attention.c walks the pages and calls these; it does not depend on types or instruction
 * sets.
 *
 * A chunk is up to 64 slots of one page: whole tiles of 16 (kv_page.h). Kernels take several query
 * rows at once (heads that share a KV head, tokens of a batch), so that what is loaded and widened
 * is used for all of them.
 */
#ifndef TANDEM_CPU_ATTENTION_KERNEL_H
#define TANDEM_CPU_ATTENTION_KERNEL_H

#include "plugins/cpu/kv/hadamard.h"
#include "plugins/cpu/kv/kv_page.h"

enum { CPU_CHUNK = 64 };

/* A query row, prepared once. For a plain K type, and for kernels that take floats: float[padded].
 * Otherwise cpu_query_codes_size bytes of codes, then one cpu_query_block for each block. Codes
 * have 16 bits, in the order in which kernels unpack pairs of K from a tile, or 8 bits, in the
 * order of the elements; those fill only half of the bytes. */
typedef struct cpu_query_block {
    float step;   /* the value of code 1 */
    float sum;    /* of the block's elements */
    int32_t bias; /* of the integer dot product: -offset of K's codes in it * sum of codes */
} cpu_query_block;

static inline size_t cpu_query_codes_size(const cpu_kv_side *side) {
    return cpu_kv_round((size_t)side->padded * 2);
}

/* Some tiles of one side of one head, from the chunk's first slot on. */
typedef struct cpu_kv_span {
    const cpu_kv_side *side;
    const uint8_t *data;
    const uint8_t *scale;
    int32_t first, last; /* slots that hold tokens: first .. last-1, counted from the chunk's */
    ptrdiff_t ahead;     /* bytes from these codes to those of the next chunk, which kernels
                            prefetch; 0 = nothing follows */
} cpu_kv_span;

/* score[r][slot] = dot(q[r], k[slot]) for the slots of the tiles that hold any of first .. last-1
 * (scores of other slots in these tiles are arbitrary). score rows have CPU_CHUNK floats. A score's
 * bits follow from its row and its slot alone. */
typedef void (*cpu_attention_score_fn)(const cpu_kv_span *k, int32_t n_row, const uint8_t *const *q,
                                       float *const *score);

/* Rows that add values of the same slots of a chunk, which are the span's. p[r][slot] is a row's
 * weight: in 0 .. 1 for these slots, 0 for the other slots of the span's tiles. */
typedef struct cpu_attention_rows {
    int32_t n;
    const float *const *p;
    float *const *o;
    const float *keep, *gain;
} cpu_attention_rows;

/* o[r][i] = keep[r] * o[r][i] + gain[r] * sum over the span's slots of p[r][slot] * v[slot][i] for
 * i < n_dim, a multiple of 32 (of 16 for plain types). What another slot holds, NaN and Inf
 * included, does not reach the row; nor does how many rows there are change a row's bits. */
typedef void (*cpu_attention_add_fn)(const cpu_kv_span *v, int32_t n_dim,
                                     const cpu_attention_rows *rows);

/* Rows of a chunk's scores, and what is kept of each row's running softmax. Row r counts the slots
 * first[r] .. last[r]-1. m, l, keep and gain have room for n rounded up to a multiple of four;
 * kernels change what lies behind the rows. */
typedef struct cpu_softmax_rows {
    int32_t n;
    float *const *score; /* rows of CPU_CHUNK floats */
    const int32_t *first, *last;
    float *m, *l;       /* maximum and sum of all chunks so far */
    float *keep, *gain; /* factors of the earlier chunks' sums, and of this chunk's */
} cpu_softmax_rows;

/* Softmax of a chunk, row by row, which is then added to the running one. In place over the slots
 * that the row counts: softcap (0 = none), m' = max, s = exp(s - m'), l' = sum. The other slots of
 * begin .. end-1 (whole tiles) become 0. Over -inf alone m' = -inf and l' = 0; a NaN is never the
 * maximum and makes l' NaN. Then M = max(m, m'), keep = exp(m - M), gain = exp(m' - M), l = keep l
 * + gain l', m = M. */
typedef void (*cpu_attention_softmax_fn)(const cpu_softmax_rows *rows, int32_t begin, int32_t end,
                                         float softcap);

/* Writes x [padded], rotated and scaled, as the codes or floats that the kernel reads. */
typedef void (*cpu_attention_query_fn)(const cpu_kv_side *side, const float *x, uint8_t *q);

typedef struct cpu_attention_kernels {
    cpu_attention_score_fn score;
    cpu_attention_query_fn query; /* NULL: floats as they are */
    cpu_attention_add_fn add;
    cpu_attention_softmax_fn softmax;
    cpu_hadamard_fn rotate;
} cpu_attention_kernels;

typedef struct cpu_score_row {
    uint32_t isa;
    int32_t type; /* tdm_type; -1 = any */
    cpu_attention_score_fn fn;
    cpu_attention_query_fn query;
    const char *name;
} cpu_score_row;

typedef struct cpu_add_row {
    uint32_t isa;
    int32_t type;
    bool from_key; /* reads V from K's arrangement */
    cpu_attention_add_fn fn;
    const char *name;
} cpu_add_row;

/* Each instruction set's own rows and softmax (vector/attention.c). n_q8: the types for which
 * scores of queries of 8 bits are faster. */
#define CPU_ATTENTION_ROWS_(isa, n_q8)                                                             \
    extern const cpu_score_row cpu_score_##isa[TDM_KV_TYPE_COUNT];                                 \
    extern const cpu_score_row cpu_score_q8_##isa[n_q8];                                           \
    extern const cpu_add_row cpu_add_##isa[2 * TDM_KV_TYPE_COUNT];                                 \
    void cpu_attention_softmax_##isa(const cpu_softmax_rows *rows, int32_t begin, int32_t end,     \
                                     float softcap);
CPU_ATTENTION_ROWS_(avx2, 4)
CPU_ATTENTION_ROWS_(avx512, TDM_KV_TYPE_COUNT - TDM_KV_FLOAT_TYPE_COUNT)
CPU_ATTENTION_ROWS_(neon, TDM_KV_TYPE_COUNT - TDM_KV_FLOAT_TYPE_COUNT)
#undef CPU_ATTENTION_ROWS_

/* attention_plain.c: any type, any machine. */
void cpu_score_plain(const cpu_kv_span *k, int32_t n_row, const uint8_t *const *q,
                     float *const *score);
void cpu_add_plain(const cpu_kv_span *v, int32_t n_dim, const cpu_attention_rows *rows);
void cpu_attention_softmax_plain(const cpu_softmax_rows *rows, int32_t begin, int32_t end,
                                 float softcap);

/* The kernels that a device uses for a cache: the first match in each table. With has_q8 queries
 * are rounded to 8 bits where there are kernels for it. */
cpu_attention_kernels cpu_attention_choose(uint32_t isa, bool has_q8, const cpu_kv_layout *layout);

/* attention_reference.c */
size_t cpu_attention_reference_scratch(const cpu_device *device, const tdm_graph *graph,
                                       const tdm_node *node);
void cpu_attention_reference(const cpu_node *n, cpu_worker *w);

#endif
