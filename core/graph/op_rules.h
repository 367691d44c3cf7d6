/* SPDX-License-Identifier: MIT
 *
 * op_rules.h: the rules of ops, which builder and verifier share.
 *
 * A rule says how many sources and destinations an op has, which may be absent, which are the step
 * block, a STATE or a weight in private layout, and how many bytes of parameters it uses. Its
 * function infers type and shape of the destinations from the sources. Any field of a node or value
 * may hold any number: a violation gives a message that names node and value. graph_verify.c checks
 * the order of nodes and the slots.
 */
#ifndef TANDEM_CORE_OP_RULES_H
#define TANDEM_CORE_OP_RULES_H

#include "core/base/view.h"
#include "core/graph/builder.h"

/* Shapes have fewer elements than this (an axis of 0 counts as 1), so that no product of axes,
 * bytes included, overflows anywhere. */
#define TDM_MAX_ELEMENTS ((int64_t)1 << 48)
/* Heads of a cache are at most this long, so that padding and doubling stay within an int32. */
#define TDM_MAX_HEAD_DIM (1 << 20)

/* A node under examination. Sources were checked for index, presence, kind and shape. */
typedef struct tdm_op_args {
    const tdm_graph *graph;
    const tdm_node *node;
    int32_t index;                     /* of the node, for messages */
    const tdm_value *src[TDM_MAX_SRC]; /* NULL where absent */
    const tdm_view_place *place;       /* of the first source of a view op */
    const tdm_kv_desc *kv;             /* of a cache op, checked; else NULL */
} tdm_op_args;

typedef struct tdm_op_rule {
    const char *name;
    int8_t n_src; /* optional ones included; n_src and n_dst of a node are exactly these */
    int8_t n_dst;
    uint16_t optional_src; /* bit i: source i may be absent */
    uint8_t optional_dst;
    uint8_t step_src;    /* bit i: source i is the step block */
    uint8_t state_src;   /* bit i: source i is a STATE, which no other source may be */
    uint8_t private_src; /* bit i: source i may be a WEIGHT with the flag `usage` */
    uint8_t usage;
    uint8_t params_size; /* bytes used; the others are zero */
    tdm_status (*infer)(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err);
} tdm_op_rule;

/* The rule of an op; NULL for a number that is not an op. [any-thread] */
const tdm_op_rule *tdm_op_rule_get(int32_t op);

/* Checks node number `index` against the rule of its op and infers its destinations. Reads
 * graph->values, kv, names, step and step_caps, which were checked (tdm_value_check,
 * tdm_kv_desc_check); `place` is that of the first source, for view ops (else it may be NULL).
 * dst[] says on entry which destinations are present and, where the op leaves it open, their type
 * or shape. [any-thread] */
tdm_status tdm_op_infer(const tdm_graph *graph, const tdm_node *node, int32_t index,
                        const tdm_view_place *place, tdm_op_result dst[TDM_MAX_DST],
                        tdm_error *err);

/* Type known, axes in range, rows of whole blocks. `what` begins the message. [any-thread] */
tdm_status tdm_shape_check(const char *what, int32_t type, const int64_t ne[TDM_MAX_DIMS],
                           tdm_error *err);
/* Kind, shape, usage flags and reserved fields of value `index`. [any-thread] */
tdm_status tdm_value_check(const tdm_graph *graph, int32_t index, tdm_error *err);
/* A cache description; `index` is for the message. [any-thread] */
tdm_status tdm_kv_desc_check(const tdm_kv_desc *desc, int32_t index, tdm_error *err);
/* A partition other than number 0. [any-thread] */
tdm_status tdm_partition_check(const tdm_partition *partition, int32_t index, tdm_error *err);

/* "'blk.0.ffn_up.weight' (value 7, q8_0 [64, 256])" in `text`, which it returns. The value's name
 * offset is valid; the rest may be garbage. [any-thread] */
#define TDM_VALUE_TEXT_SIZE 192
const char *tdm_value_text(const tdm_graph *graph, int32_t index, char text[TDM_VALUE_TEXT_SIZE]);
/* "[64, 256]": axes behind the last that is not 1 are left out. Returns `text`. [any-thread] */
#define TDM_SHAPE_TEXT_SIZE 96
const char *tdm_shape_text(const int64_t ne[TDM_MAX_DIMS], char text[TDM_SHAPE_TEXT_SIZE]);

#endif
