/* SPDX-License-Identifier: MIT
 *
 * tensor.h: the words for shapes, and what a tensor that a device keeps is for.
 *
 * Shapes are `int64_t ne[4]`, innermost dimension first, unused dimensions 1; a comment writes a
 * shape in the same order: [head_dim, n_head, n_tok]. A "row" is ne[0] elements; the rows of a
 * tensor are numbered 0 .. ne[1]*ne[2]*ne[3]-1. No dimension is negative; 0 makes an empty tensor,
 * which is an ordinary thing.
 *
 * Glossary (the only abbreviations that names use):
 *   n_tok      tokens in one ubatch            n_embd     width of the residual stream
 *   n_head     query heads                     n_head_kv  key/value heads
 *   head_dim   elements of a head              n_rot      leading head elements that RoPE turns
 *   n_ff       width of the feed-forward       n_vocab    rows of the output head
 *   n_expert   experts in a layer              n_seq      sequences in a batch
 *   kv         key/value cache                 pos        position of a token in its sequence
 *   o, m, l    attention's output, row maximum and row sum (before normalisation)
 */
#ifndef TANDEM_TENSOR_H
#define TANDEM_TENSOR_H

#include "tandem/status.h"
#include "tandem/type.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TDM_MAX_DIMS 4

/* What a weight is used for: a set of flags, so that a device may keep it in a layout of its own.
 * 0 is a plain tensor: canonical bytes, usable by every op that reads it elementwise. */
enum {
    TDM_USAGE_MATMUL = 1u << 0, /* [k, n] or [k, n, n_head]: first source of MATMUL */
    TDM_USAGE_ROWS = 1u << 1,   /* [k, n]: table of GET_ROWS; with MATMUL: a tied embedding */
    TDM_USAGE_EXPERT = 1u << 2  /* [k, n, n_expert]: matrices of MOE_FFN and MOE_MATMUL */
};

#define TDM_MAX_SEGMENTS 8

/* Values that must be cut alike over a group name partitions of the same id: all of one attention
 * block (unit: a KV-head group), all of one feed-forward block (unit: a column), the vocabulary.
 * Devices that are not groups ignore it. The cut axis consists of n_segment segments, one after the
 * other (a fused QKV has three); segment s has n_unit * unit_len[s] elements. Partitions of one id
 * have the same n_unit, n_sub and layer and may differ in the rest. A STATE is cut by KV heads,
 * whatever its axis is.
 *
 * Rationale for n_sub: with fewer KV heads than members a group may cut inside a unit. The query
 * heads of a KV-head group can be on different members, in n_sub equal parts. Its key and value are
 * not cut: those segments are whole, and every member that holds a part of the unit holds all of
 * its key and value. In a fused QKV the segments of K and V are whole and that of Q is not.
 *
 * The struct lies inside others (tdm_tensor_desc, tdm_buffer_item), so its size is frozen: what it
 * may still need goes into `reserved`. */
typedef struct tdm_partition {
    int32_t id;        /* the units of an id are assigned once; unique in a process, the same in
                          every graph of a loaded model; 0 = none */
    int32_t layer;     /* which layer; -1 = none. What rounding gives a member too much or too
                          little in one layer, a group makes up for in the next */
    int32_t n_unit;    /* units to assign */
    int32_t n_segment; /* 1 .. TDM_MAX_SEGMENTS */
    int32_t unit_len[TDM_MAX_SEGMENTS]; /* elements of the cut axis that one unit takes in each */
    int32_t n_sub;          /* equal parts into which a unit may be cut; 0 and 1: it is not cut */
    int32_t whole_segments; /* bit s: units of segment s are never cut, only held by several
                               members; bits from n_segment on are 0 */
    int32_t reserved[4];    /* 0 */
} tdm_partition;

/* The description of a tensor that a device gets before any bytes. */
typedef struct tdm_tensor_desc {
    size_t struct_size;
    tdm_type type;
    uint32_t usage; /* TDM_USAGE_*; 0 = plain */
    int64_t ne[TDM_MAX_DIMS];
    tdm_partition partition; /* how a group cuts it; id 0 = every member holds all of it */
    int32_t axis;            /* which axis the partition cuts */
    int32_t reserved;        /* 0 */
} tdm_tensor_desc;

/* Elements of a shape; shapes are checked for overflow where they enter (the graph verifier and
 * the file readers), so the product is exact. [any-thread] */
static inline int64_t tdm_shape_count(const int64_t ne[TDM_MAX_DIMS]) {
    return ne[0] * ne[1] * ne[2] * ne[3];
}

/* Rows of a shape. [any-thread] */
static inline int64_t tdm_shape_rows(const int64_t ne[TDM_MAX_DIMS]) {
    return ne[1] * ne[2] * ne[3];
}

/* Bytes of the canonical (contiguous, GGUF-order) form of a tensor; 0 where a row is not whole
 * blocks. [any-thread] */
static inline size_t tdm_tensor_canonical_size(tdm_type type, const int64_t ne[TDM_MAX_DIMS]) {
    return tdm_type_row_size(type, ne[0]) * (size_t)tdm_shape_rows(ne);
}

#ifdef __cplusplus
}
#endif

#endif
