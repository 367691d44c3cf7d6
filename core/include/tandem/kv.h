/* SPDX-License-Identifier: MIT
 *
 * kv.h: what the pages of a key/value cache hold, and what a device may decide about them.
 *
 * The cache of one layer is one STATE value of the graph: n_page pages of kv_page_size(desc)
 * bytes each, one after the other. A page holds the K and V rows of page_len tokens. The bytes of
 * a page are private to the device: only KV_WRITE, ATTENTION, KV_SELECT, KV_SHIFT, KV_COPY,
 * KV_EXPORT and KV_IMPORT touch them, so a device keeps quantised blocks in the order that its
 * kernels read.
 * Fresh pages are never read before they are written: their contents need no initialising.
 *
 * Storage. Each head is padded with zeros to a whole number of quantisation blocks (tdm_kv_padded).
 * With TDM_KV_ROTATE_K and a quantised type_k, K heads (at KV_WRITE) and Q heads (at ATTENTION,
 * KV_SELECT) are multiplied by a normalised Walsh-Hadamard matrix, its rows in natural (Sylvester)
 * order, in blocks of tdm_kv_rotation_block elements, which leaves their dot products as they are
 * and spreads outliers over the block; with TDM_KV_ROTATE_V and a quantised type_v the same happens
 * to V, and ATTENTION undoes it on its output. The rotation is a property of the storage: other ops
 * do not depend on it.
 *
 * Place. With TDM_KV_IN_HOST the pages lie in the host's memory, whichever device runs the rest of
 * the graph. A device whose memory is the host's (TDM_DEVICE_IS_HOST, TDM_DEVICE_IS_INTEGRATED)
 * keeps such a cache as any other. A group passes the flag to its members, each with its part. Any
 * other device either reads such a cache itself and has the flag TDM_DEVICE_HAS_HOST_KV, or never
 * gets one: the core then keeps the pages with the CPU, which runs the ops that touch them.
 *
 * Recurrent states. With TDM_KV_RECURRENT the STATE keeps no rows of tokens but states: a page is a
 * slot, which holds the state of one sequence after one of its tokens. A slot has n_head_kv units
 * of head_dim_k floats. CONV1D and LINEAR_SCAN (op.h) define what they mean, and compute with the
 * slots that rs_read and rs_write of the step block name. KV_COPY, KV_EXPORT and KV_IMPORT take a
 * slot as a page with one token. KV_WRITE, ATTENTION and KV_SHIFT do not take such a STATE. A group
 * cuts it by units, never by sequence. rope_offset is the dk of LINEAR_SCAN (op.h), 0 for CONV1D.
 *
 * Sparse attention. With TDM_KV_SPARSE the cache is one of two: KV_SELECT reads it (an index: one
 * row for each token), or ATTENTION reads it with a list of positions. A device without these ops
 * refuses such a description, and the core keeps the pages with the CPU.
 *
 * Bias. With TDM_KV_BIASED, ATTENTION reads the cache with a bias for each distance. Again a device
 * without that refuses the description.
 *
 * Strides. With TDM_KV_STRIDED the cache has a row for each run of `stride` positions, not for each
 * token: row b is that of the token at position b * stride + stride - 1, the last of its run.
 * KV_WRITE skips all other tokens. ATTENTION and KV_SELECT compute as if the rows were tokens at
 * positions 0, 1, .., and a token at position p were at (p + 1) / stride - 1, rounded down; lists
 * hold numbers of rows, but for those of tokens (op.h: KV_SELECT). Page tables, cells and jobs
 * count tokens as ever: the row of slot i of a page is the page's row i / stride. KV_EXPORT and
 * KV_IMPORT take arg + i as a position: where it is not the last of its run, the row of the tensor
 * is zeros, or not read. KV_SHIFT does not take such a STATE, and a group never cuts it by
 * sequence. Again a device without that refuses the description.
 *
 * Erasing. With TDM_KV_ERASED, LINEAR_SCAN changes the state with vectors erase and write of each
 * token. With TDM_KV_POOLED the state is that of a BLOCK_POOL. Again a device without that refuses
 * the description.
 */
#ifndef TANDEM_KV_H
#define TANDEM_KV_H

#include "tandem/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TDM_KV_ROTATE_K = 1u << 0, /* rotate K where type_k is quantised; no effect otherwise */
    TDM_KV_ROTATE_V = 1u << 1, /* rotate V where type_v is quantised; no effect otherwise */
    TDM_KV_V_FROM_K = 1u << 2, /* latent cache: V is the first head_dim_v elements of K and is not
                                  stored; type_v must equal type_k, ROTATE_V must equal ROTATE_K */
    TDM_KV_IN_HOST = 1u << 3,  /* the pages lie in the host's memory; no effect on a device that has
                                  no other */
    TDM_KV_RECURRENT = 1u << 4, /* slots of recurrent states: both types are f32, page_len 1, n_rot
                                   0, V_FROM_K is set and head_dim_v is head_dim_k */
    TDM_KV_SPARSE = 1u << 5,    /* of KV_SELECT, or of ATTENTION with a list of positions; not
                                   together with TDM_KV_RECURRENT */
    TDM_KV_BIASED = 1u << 6,    /* of ATTENTION with a bias; not together with TDM_KV_RECURRENT */
    TDM_KV_ERASED = 1u << 7,    /* of LINEAR_SCAN with erase and write; only together with
                                   TDM_KV_RECURRENT */
    TDM_KV_STRIDED = 1u << 8,   /* has a stride; not together with TDM_KV_RECURRENT or
                                   TDM_KV_BIASED */
    TDM_KV_POOLED = 1u << 9     /* of BLOCK_POOL; only together with TDM_KV_RECURRENT, not with
                                   TDM_KV_ERASED */
};

#define TDM_KV_PAGE_LEN_DEFAULT 64

/* The one list of types in which a cache can keep K and V: TYPE(ID, name), floats, then quantised
 * types, the most exact first. All are rows of TDM_TYPE_LIST. Tables of cache types, here and
 * elsewhere, expand from it. */
#define TDM_KV_FLOAT_TYPE_LIST(TYPE) TYPE(F32, f32) TYPE(F16, f16) TYPE(BF16, bf16)
#define TDM_KV_BLOCK_TYPE_LIST(TYPE)                                                               \
    TYPE(Q8_0, q8_0)                                                                               \
    TYPE(Q5_1, q5_1)                                                                               \
    TYPE(Q5_0, q5_0)                                                                               \
    TYPE(Q4_1, q4_1)                                                                               \
    TYPE(Q4_0, q4_0)                                                                               \
    TYPE(IQ4_NL, iq4_nl)
#define TDM_KV_TYPE_LIST(TYPE) TDM_KV_FLOAT_TYPE_LIST(TYPE) TDM_KV_BLOCK_TYPE_LIST(TYPE)

#define TDM_KV_TYPE_COUNT_(ID, name) +1
enum {
    TDM_KV_FLOAT_TYPE_COUNT = TDM_KV_FLOAT_TYPE_LIST(TDM_KV_TYPE_COUNT_),
    TDM_KV_TYPE_COUNT = TDM_KV_TYPE_LIST(TDM_KV_TYPE_COUNT_)
};
#undef TDM_KV_TYPE_COUNT_

typedef struct tdm_kv_desc {
    size_t struct_size;
    tdm_type type_k;    /* of TDM_KV_TYPE_LIST */
    tdm_type type_v;    /* likewise, chosen apart from type_k */
    int32_t head_dim_k; /* elements, before padding */
    int32_t head_dim_v;
    int32_t n_head_kv;
    int32_t page_len;    /* tokens in a page, a power of two; 0 = TDM_KV_PAGE_LEN_DEFAULT */
    int32_t rope_offset; /* first element of a K head that RoPE turns */
    int32_t n_rot;       /* how many; 0 = K carries no positions and a shift leaves it alone */
    uint32_t flags;      /* TDM_KV_* */
    int32_t cls;         /* which class of the step block its page table is */
    int32_t stride;      /* positions that a row stands for, >= 2; 0 without TDM_KV_STRIDED */
    int32_t reserved;    /* 0 */
} tdm_kv_desc;

/* The last row of a strided cache that a token at position `pos` sees: the row of its own run where
 * `pos` is the last of that run, else the row before. -1 = none. Without a stride: `pos`.
 * [any-thread] */
static inline int32_t tdm_kv_row_of(int32_t stride, int32_t pos) {
    if (stride < 2 || pos < 0) return pos;
    return pos % stride == stride - 1 ? pos / stride : pos / stride - 1;
}

/* Whether a cache may keep K or V in `type`. [any-thread] */
static inline int tdm_kv_type_is_storable(tdm_type type) {
#define TDM_KV_TYPE_CASE_(ID, name) case TDM_TYPE_##ID:
    switch ((int)type) {
        TDM_KV_TYPE_LIST(TDM_KV_TYPE_CASE_) return 1;
    default: return 0;
    }
#undef TDM_KV_TYPE_CASE_
}

/* Elements of a head as stored in `type`: head_dim rounded up to whole blocks. [any-thread] */
static inline int32_t tdm_kv_padded(tdm_type type, int32_t head_dim) {
    int32_t len = tdm_type_get_info(type).block_len;
    return (head_dim + len - 1) / len * len;
}

/* The size of the Walsh-Hadamard blocks of a padded head: the largest power of two that divides
 * it and, where a boundary between turned and unturned elements lies on a multiple of 32, divides
 * that boundary too, so that no block crosses it. 1 means no rotation. [any-thread] */
static inline int32_t tdm_kv_rotation_block(int32_t padded, int32_t rope_offset, int32_t n_rot) {
    int32_t block = padded & -padded;
    int32_t end = rope_offset + n_rot;
    if (n_rot > 0 && rope_offset > 0 && rope_offset < padded && rope_offset % 32 == 0)
        while (rope_offset % block != 0) block /= 2;
    if (n_rot > 0 && end < padded && end % 32 == 0)
        while (end % block != 0) block /= 2;
    return block;
}

#ifdef __cplusplus
}
#endif

#endif
