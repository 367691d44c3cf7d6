/* SPDX-License-Identifier: MIT
 *
 * kv_page.h: how the CPU plugin arranges the bytes of a cache page, and how it reads the step
 * block. Private to the cache ops; only kv_page.c and the kernels of these ops depend on the
 * arrangement.
 *
 * Mental model. A page holds one region for each KV head, a head's K and V tokens in tiles of 16.
 * Quantised codes are kept apart from their scales, so that codes stay aligned to cache lines and
 * the scales of 16 tokens load as one vector. Two neighbouring tiles of K, or four of V, are
 * interleaved: block 0 of each, then block 1 of each, and so on. Kernels read them in that order,
 * and memory is fastest when it is read at rising addresses.
 *
 *   K, quantised: a tile is [block][word][token]: 32-bit words of a block's codes, transposed, so
 *     that a vector lane belongs to a token and a dot product needs no horizontal sum. The fifth
 *     bits of q5_0 and q5_1 are one more word, permuted (cpu_kv_fifth_k).
 *   V, quantised: a tile is [block][token quad][byte of the block][token]: a 32-bit word holds the
 *     same code byte of four tokens, in the order 0 2 1 3, so that its 16-bit halves are pairs of
 *     neighbouring tokens. Fifth bits: one word for each of 16 elements (cpu_kv_fifth_v). Nibbles
 *     of q4_0 are stored less 8, in two's complement, so that the kernel has no offset to subtract.
 *   K, plain: a tile is [element][token]. V, plain: [token][element], rows padded to 16 elements.
 *   Slots of recurrent states: the floats of a unit one after the other, padded to 16.
 *   Scales: a tile is [block][d, then m where the type has it][token], f16.
 *
 * No two slots share a byte, except in the fifth bits of V, where the tokens of a tile share words.
 * So an op that writes V must give all slots of a tile to one worker: two workers would overwrite
 * each other's bits.
 */
#ifndef TANDEM_CPU_KV_PAGE_H
#define TANDEM_CPU_KV_PAGE_H

#include "plugins/cpu/cpu.h"

enum { CPU_KV_TILE = 16, CPU_KV_BLOCK = 32 };

/* The K or the V of a head. */
typedef struct cpu_kv_side {
    tdm_type type;
    bool is_value;
    bool has_fifth;    /* q5_0, q5_1 */
    int32_t head_dim;  /* elements before padding */
    int32_t padded;    /* elements stored */
    int32_t n_block;   /* quantisation blocks of a row; 0 = plain type */
    int32_t code_size; /* bytes of codes in a block, fifth bits apart: 16 or 32 */
    uint8_t flip;      /* bits that a byte of codes is stored with inverted */
    int32_t n_scale;   /* f16 numbers in a block: 1 or 2 */
    int32_t rotation;  /* elements of a Walsh-Hadamard block; 1 = not rotated */
    int32_t stride;    /* plain V: elements from one token to the next */
    size_t row_size;   /* bytes of a canonical row */
    size_t block_size; /* bytes of a canonical block (plain: of an element) */
    size_t data_off;   /* of the first tile in a head's region */
    size_t data_size;  /* of a tile */
    size_t codes_size; /* of a block in a tile, fifth bits included */
    int32_t group;     /* tiles that are interleaved block by block; 1 = none */
    size_t scale_off;  /* of the first tile's scales in a head's region */
    size_t scale_size; /* of a tile's scales */
} cpu_kv_side;

typedef struct cpu_kv_layout {
    cpu_kv_side k;
    cpu_kv_side v; /* where v_from_k nothing is stored for it: a copy of k with V's head_dim */
    bool v_from_k;
    int32_t n_head_kv;
    int32_t page_len; /* tokens */
    int32_t stride;   /* of TDM_KV_STRIDED (kv.h), else 1 */
    int32_t n_slot;   /* rows of a page */
    int32_t n_tile;   /* of a page */
    size_t head_size; /* bytes of a head's region */
    size_t page_size;
} cpu_kv_layout;

/* The layout for a cache; TDM_UNSUPPORTED with the reason where there is none. [any-thread] */
tdm_status cpu_kv_layout_get(const tdm_kv_desc *desc, cpu_kv_layout *layout_out, tdm_error *err);

/* tdm_buffer_ops.kv_page_size. [any-thread] */
tdm_status cpu_kv_page_size(const cpu_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                            tdm_error *err);

/* Bytes from the first tile of the side (data_off) to the codes of block b of a tile. */
static inline size_t cpu_kv_codes_off(const cpu_kv_side *side, int32_t tile, int32_t b) {
    int32_t in_group = tile % side->group;
    return (size_t)(tile - in_group) * side->data_size +
           (size_t)(b * side->group + in_group) * side->codes_size;
}

/* Units of a row: its blocks, or of a plain type its elements. */
static inline int32_t cpu_kv_units(const cpu_kv_side *side) {
    return side->n_block > 0 ? side->n_block : side->padded;
}

/* Copy units first .. first+n-1 of a canonical row to the slot of a head's region, and back. `row`
 * points at unit `first`. */
void cpu_kv_store(const cpu_kv_side *side, uint8_t *head, int32_t slot, const uint8_t *row,
                  int32_t first, int32_t n);
void cpu_kv_load(const cpu_kv_side *side, const uint8_t *head, int32_t slot, uint8_t *row,
                 int32_t first, int32_t n);

/* The step block as the cache ops read it. Offsets follow from the graph's capacities, and counts
 * are limited to them, so that no content of a block leads outside it. */
typedef struct cpu_step {
    const int32_t *pos;            /* [n_tok] */
    const int32_t *seq;            /* [n_tok] */
    const int32_t *role;           /* [n_tok] */
    const int32_t *cell;           /* [n_tok] */
    const int32_t *first_entry;    /* [n_seq + 1] */
    const tdm_page_entry *entries; /* [n_entry] */
    const tdm_page_job *jobs;      /* [n_job] */
    int32_t n_tok, n_seq, n_entry, n_job;
} cpu_step;

/* Reads the block bound to `step` for class `cls`. */
cpu_step cpu_step_get(const tdm_graph *graph, const cpu_view *step, int32_t cls);

/* The last row of the cache that token t sees when attention is causal: its position; in a strided
 * cache, which has fewer rows, the number that tdm_kv_row_of gives. -1 = none. */
static inline int32_t cpu_step_row(const cpu_step *step, const cpu_kv_layout *layout, int32_t t) {
    return tdm_kv_row_of(layout->stride, step->pos[t]);
}

/* The entries of sequence `seq`; none where it or they are out of range. */
const tdm_page_entry *cpu_step_entries(const cpu_step *step, int32_t seq, int32_t *n_out);

/* A page entry cut to what the state holds, in rows: slots and positions of a strided cache count
 * its rows. False where nothing is left. */
bool cpu_kv_entry_clip(const cpu_kv_layout *layout, int64_t n_page, tdm_page_entry *entry);

/* Likewise a job; `n_row` limits arg + i to rows of a tensor (export, import), -1 does not. */
bool cpu_kv_job_clip(const cpu_kv_layout *layout, int64_t n_page, int64_t n_row, tdm_page_job *job);

/* What every cache op's `supports` begins with: a layout exists and the state has it. `kv` is the
 * index in params, `step` and `state` are the sources' places. */
tdm_status cpu_kv_supports(const tdm_graph *graph, const tdm_node *node, int32_t kv, int step,
                           int state, cpu_kv_layout *layout_out, tdm_error *err);

/* Copies row [ne0] of an f32 view (any strides) to floats. */
void cpu_kv_read_row(const cpu_view *view, int64_t i1, int64_t i2, float *out);

/* The region of a head in a page of the state. Neither is checked. */
static inline uint8_t *cpu_kv_head(const cpu_kv_layout *layout, uint8_t *state, int64_t page,
                                   int32_t head) {
    return state + (size_t)page * layout->page_size + (size_t)head * layout->head_size;
}

/* Rounds up to a multiple of 64 bytes, a cache line: for parts of a page, and of a worker's
 * scratch. */
static inline size_t cpu_kv_round(size_t size) {
    return (size + 63) / 64 * 64;
}

#endif
