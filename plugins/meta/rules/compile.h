/* SPDX-License-Identifier: MIT
 *
 * compile.h: the interface between the files that cut a graph into parts. compile.c goes through
 * the nodes, rules_*.c contain a rule per op, variants.c records how each value is held, relayout.c
 * converts between layouts, emit.c adds nodes to the parts.
 *
 * A rule requests its sources in the layouts that it needs (meta_convert*), emits nodes on the
 * members that hold something, and links the first variant of each destination. After a failure
 * every function returns false or -1 and changes nothing; the first error is the one reported.
 */
#ifndef TANDEM_META_COMPILE_H
#define TANDEM_META_COMPILE_H

#include "plugins/meta/exec/plan.h"

/* How the members hold a STATE of the graph: by page, else cut by heads or units, else each member
 * holds all of it. */
typedef struct meta_state {
    bool is_known;   /* the fields below are set */
    bool is_cut;     /* it has a partition; decides only where is_by_page is false */
    bool is_by_page; /* a cache cut by sequence: each member holds all heads of some pages */
    /* By member, where is_cut: KV heads or units of recurrent states, and parts of the
     * partition. */
    int64_t head_lo[TDM_MAX_MEMBERS], head_hi[TDM_MAX_MEMBERS];
    int64_t part_lo[TDM_MAX_MEMBERS], part_hi[TDM_MAX_MEMBERS];
    int64_t n_part;
    int32_t local[TDM_MAX_MEMBERS]; /* value in each part; -1 = none */
    int32_t kv[TDM_MAX_MEMBERS];    /* index of the description in each part */
} meta_state;

typedef struct meta_compiler {
    meta_device *device;
    const tdm_graph *graph;
    uint64_t hash; /* of the graph; 0 where the group has no declared layouts */
    meta_plan *plan;
    tdm_status status; /* TDM_OK until something failed */
    tdm_error *err;
    int32_t node; /* being compiled, for messages; -1 = none */
    int32_t n_member;
    int32_t exact, equivalent, partial; /* ids of the layouts without a split */
    meta_state *states;                 /* [n_value] */
    uint8_t *is_by_page;                /* [n_value] rows exported from a cache cut by sequence */
    int32_t *holders;   /* [n_node] the member that computes a node alone; < 0 = the rules decide;
                         NULL = no node has one (holder.c) */
    int32_t n_exchange; /* emitted so far */
    uint64_t data_size; /* arena bytes of the largest exchange so far */
} meta_compiler;

/* Cuts a verified graph over the group: fills parts, variants, outputs, facts and arena_size. Makes
 * no plans and allocates nothing on any device. TDM_UNSUPPORTED with op, value and reason for a
 * node that the group cannot compute. Under device->mutex. */
tdm_status meta_compile(meta_device *device, const tdm_graph *graph, meta_plan **out,
                        tdm_error *err);

/* ---- Failures ---- */

/* Records the first failure, with the node's op and value in front of the message; returns
 * false. */
TDM_PRINTF(3, 4)
bool meta_fail(meta_compiler *c, tdm_status status, const char *format, ...);
bool meta_out_of_memory(meta_compiler *c);

/* ---- Values of the group's graph ---- */

static inline const tdm_value *meta_value(const meta_compiler *c, int32_t v) {
    return tdm_graph_value(c->graph, v);
}
/* A weight's description with its partition. */
tdm_tensor_desc meta_value_desc(const tdm_graph *graph, int32_t v);
/* How the members hold STATE v, which description kv of the graph describes. The first call adds it
 * to the parts. NULL after a failure. */
const meta_state *meta_state_get(meta_compiler *c, int32_t v, int32_t kv);

/* ---- Variants (variants.c) ----
 *
 * A value can be held in several ways at once: as it was computed, merged, sliced. Each is a
 * variant: a layout, and one local value on each member. A value's variants form a list. The first
 * is how the value was computed. */

static inline meta_variant *meta_variant_at(const meta_compiler *c, int32_t variant) {
    return &c->plan->variants[variant];
}
/* The layout of a variant. */
static inline const tdm_layout *meta_variant_layout(const meta_compiler *c, int32_t variant) {
    return &c->plan->layouts.layouts[meta_variant_at(c, variant)->layout];
}
static inline tdm_layout_kind meta_variant_kind(const meta_compiler *c, int32_t variant) {
    return (tdm_layout_kind)meta_variant_layout(c, variant)->kind;
}
/* A new variant, in no list, of which no member holds anything yet. -1 after a failure. */
int32_t meta_variant_new(meta_compiler *c, int32_t value, int32_t layout);
/* Appends a variant to its value's list. */
void meta_variant_link(meta_compiler *c, int32_t variant);
/* The cheapest variant to compute with: the first one, but the merged one where the first is an
 * addend that was merged already. The first call for a value that no node computes adds it to the
 * parts. -1 after a failure. */
int32_t meta_variant_best(meta_compiler *c, int32_t value);
/* The id of a layout; -1 after a failure. */
int32_t meta_layout_id(meta_compiler *c, const tdm_layout *layout);
/* The id of the layout that cuts `value` by `cut`. */
int32_t meta_cut_id(meta_compiler *c, int32_t value, const meta_cut *cut);
/* The variant's cut in the shape of `value` (the variant's own value, or a reshape of it). False
 * where the variant is not split, or where no axis describes the split in this shape. */
bool meta_variant_cut(const meta_compiler *c, int32_t variant, int32_t value, meta_cut *out);

/* ---- Conversions (relayout.c) ----
 *
 * Each returns a variant of the value in the given layout. Where the list has none, the conversion
 * is emitted and the new variant is linked. -1 after a failure. */

int32_t meta_convert(meta_compiler *c, int32_t value, int32_t layout);
/* Every member holds all of the value. Members may have computed it each for itself, so their bits
 * may differ by rounding. */
int32_t meta_convert_replicated(meta_compiler *c, int32_t value);
/* Every member holds all of the value with equal bits. */
int32_t meta_convert_exact(meta_compiler *c, int32_t value);
/* The same for two values, in one exchange where that is possible. An absent value (-1) gives
 * -1. */
bool meta_convert_exact_pair(meta_compiler *c, const int32_t values[2], int32_t out[2]);
int32_t meta_convert_cut(meta_compiler *c, int32_t value, const meta_cut *cut);
/* Like meta_convert_cut for two values, for rows that are stored: elements that several members
 * hold have the owner's bits on all of them. In one exchange where that is possible. The variants
 * may not be linked. An absent value (-1) gives -1. */
bool meta_convert_cuts_exact(meta_compiler *c, const int32_t values[2], const meta_cut cuts[2],
                             int32_t out[2]);

/* Converts a value to the layout that split_set declared for it and moves that variant to the front
 * of the list. Does nothing where no layout was declared. compile.c. */
bool meta_override_apply(meta_compiler *c, int32_t value);

/* ---- Emission (emit.c) ---- */

/* How the members execute the node that is being compiled. */
typedef struct meta_emission {
    const int32_t *src;          /* [n_src] variants; -1 = absent */
    const int32_t *dst_layout;   /* [n_dst] layout ids; NULL where the node has no destination */
    const tdm_op_params *params; /* [n_member]; NULL: the node's on every member */
    /* For ops on a cache: the STATE as source state_src, whose src is not read. The parameter `kv`
     * becomes each member's own description. NULL: none. */
    const meta_state *state;
    int32_t state_src;
    /* Bit i: although source i is present, some members may have no local value of it, and then
     * execute the node without it. */
    uint32_t single_src;
} meta_emission;

/* Emits the node on every active member that holds all sources that are present and something of
 * every destination. variant_out[n_dst] receives new variants that hold the results
 * (-1 = absent); they are not linked. */
bool meta_emit(meta_compiler *c, const meta_emission *e, int32_t *variant_out);
/* Emits one node on member d, from and to local values, like meta_part_add_node. */
bool meta_emit_on(meta_compiler *c, int32_t d, int32_t op, const tdm_op_params *params,
                  const int32_t *src, int32_t n_src, const meta_result *dst, int32_t n_dst,
                  int32_t *dst_out);
/* A value of zeros on member d; -1 after a failure. */
int32_t meta_emit_zeros(meta_compiler *c, int32_t d, int32_t type, const int64_t ne[TDM_MAX_DIMS]);
/* meta_emit for a node with one destination; links the new variant. */
bool meta_emit_give(meta_compiler *c, const int32_t *src, int32_t dst_layout,
                    const tdm_op_params *params);
/* Emits one exchange on all active members; all arrays are [n_member]. x[d]: the local value that
 * member d sends, -1 = none. first[d]: where its part begins in the result (GATHER), or where the
 * part that it receives begins in the sum (SUM_PART), in elements of `axis`; NULL for SUM.
 * residual[d]: local values to be added; NULL = none. results[d]: type and shape of the result on
 * member d. out[TDM_MAX_MEMBERS] receives the local results, -1 for inactive members. */
bool meta_emit_exchange(meta_compiler *c, tdm_exchange_kind kind, int32_t axis, const int32_t *x,
                        const int64_t *first, const int32_t *residual, const meta_result *results,
                        int32_t *out);

/* ---- Nodes that one member computes alone (holder.c) ---- */

/* Finds the holder of every node where split = layer; else does nothing. */
bool meta_holders_find(meta_compiler *c);
/* Emits the node on its holder. *is_emitted_out false: the rule must be applied, because the node
 * has no holder, or the holder does not hold all of a weight. False after a failure. */
bool meta_holder_emit(meta_compiler *c, const tdm_node *node, bool *is_emitted_out);

/* One value that crosses in a GATHER; arrays as in meta_emit_exchange. */
typedef struct meta_crossing {
    int32_t axis;
    const int32_t *x;
    const int64_t *first;
    const meta_result *results;
    int32_t *out;
} meta_crossing;
/* Gathers n values with as few exchanges as possible: two at a time where the same members send
 * both. */
bool meta_emit_gathers(meta_compiler *c, const meta_crossing *what, int n);

/* ---- Values that check = replicas compares (checks.c) ---- */

/* Selects the variants that several members hold and makes them outlive the run. To be called after
 * all nodes have been compiled. False after a failure. */
bool meta_checks_select(meta_compiler *c);

/* ---- Rules (rules.c) ---- */

typedef bool (*meta_rule_fn)(meta_compiler *c, const tdm_node *node);
typedef struct meta_rule {
    meta_rule_fn apply;
    const char *text; /* what it does; the tests compare it with docs/split-states.md */
} meta_rule;
/* An op's name for messages ("matmul"); "unknown op" for other numbers. */
const char *meta_op_name(int32_t op);
/* The rule of an op; NULL for EXCHANGE and for numbers without an op. */
const meta_rule *meta_rule_find(int32_t op);

/* meta_rule_<name> of each op of TDM_OP_LIST but EXCHANGE, defined in its family's rules_*.c. An op
 * without one does not link. */
#define META_RULE_VALUE_(name) extern const meta_rule meta_rule_##name;
#define META_RULE_VIEW_        META_RULE_VALUE_
#define META_RULE_CACHE_       META_RULE_VALUE_
#define META_RULE_GROUP_(name)
#define META_RULE_(ID, name, number, kind, ...) META_RULE_##kind##_(name)
TDM_OP_LIST(META_RULE_)
#undef META_RULE_
#undef META_RULE_GROUP_
#undef META_RULE_CACHE_
#undef META_RULE_VIEW_
#undef META_RULE_VALUE_

#endif
