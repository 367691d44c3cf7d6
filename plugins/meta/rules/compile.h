/* SPDX-License-Identifier: MIT
 *
 * compile.h: what the files that cut a graph share: compile.c walks the nodes, rules*.c know the
 * ops, variants.c keeps what is known of each value, relayout.c converts, emit.c adds nodes to parts.
 *
 * A rule asks for its sources in a variant (meta_want*), emits nodes on the members that hold
 * something, and gives the destination its first variant. After a failure every function returns
 * false or -1 and does nothing, the first error stands.
 */
#ifndef TANDEM_META_COMPILE_H
#define TANDEM_META_COMPILE_H

#include "plugins/meta/exec/plan.h"

/* A STATE of the graph on the members. */
typedef struct meta_state {
    bool is_known;
    bool is_cut; /* by heads or by sequence; else every member has all of it */
    bool is_by_page;
    int64_t head_lo[TDM_MAX_MEMBERS], head_hi[TDM_MAX_MEMBERS]; /* KV heads, where cut by heads */
    int64_t part_lo[TDM_MAX_MEMBERS], part_hi[TDM_MAX_MEMBERS]; /* parts of the partition */
    int64_t n_part;
    int32_t local[TDM_MAX_MEMBERS]; /* value in each part; -1 = none */
    int32_t kv[TDM_MAX_MEMBERS];    /* index of the description in each part */
} meta_state;

typedef struct meta_compiler {
    meta_device *device;
    const tdm_graph *graph;
    uint64_t hash; /* of the graph; 0 where nothing has been declared of any */
    meta_plan *plan;
    tdm_status status; /* TDM_OK until something failed */
    tdm_error *err;
    int32_t node; /* under way; -1 = none, for messages */
    int32_t n_member;
    int32_t exact, equivalent, partial; /* layout ids of what is not split */
    meta_state *states;                 /* [n_value] */
    uint8_t *is_by_page;                /* [n_value] rows exported from a cache cut by sequence */
    int32_t n_exchange;
    uint64_t data_size; /* largest need of one exchange */
} meta_compiler;

/* ---- Failing ---- */

/* Records the first failure, with the node's op and value before it; returns false. */
TDM_PRINTF(3, 4)
bool meta_fail(meta_compiler *c, tdm_status status, const char *format, ...);
bool meta_out_of_memory(meta_compiler *c);

/* ---- Values of the group's graph ---- */

static inline const tdm_value *meta_value(const meta_compiler *c, int32_t v) {
    return tdm_graph_value(c->graph, v);
}
/* A weight's description with its partition. */
tdm_tensor_desc meta_value_desc(const tdm_graph *graph, int32_t v);
/* The members' shares of a STATE; made on first use. NULL after a failure. */
const meta_state *meta_state_get(meta_compiler *c, int32_t v, int32_t kv);

/* ---- Forms (variants.c) ---- */

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
/* A variant that is in no value's list; no member holds anything so far. -1 after a failure. */
int32_t meta_variant_new(meta_compiler *c, int32_t value, int32_t layout);
/* Puts a variant behind those of its value: the first is how the value was computed. */
void meta_variant_link(meta_compiler *c, int32_t variant);
/* The variant that is best to go on with: how the value was computed, or its merged variant where that
 * was an addend and has been merged. Values that no node computes are brought in here. */
int32_t meta_variant_best(meta_compiler *c, int32_t value);
/* The id of a layout; -1 after a failure. */
int32_t meta_layout_id(meta_compiler *c, const tdm_layout *layout);
/* The id of the layout of `value` cut like that. */
int32_t meta_cut_id(meta_compiler *c, int32_t value, const meta_cut *cut);
/* The variant's cut in the shape of `value` (its own or that of a reshape of it); false where it is
 * not split or no axis cuts it so. */
bool meta_variant_cut(const meta_compiler *c, int32_t variant, int32_t value, meta_cut *out);

/* ---- Conversions (relayout.c): the variant of a value in a layout, made where there is none. ---- */

int32_t meta_want(meta_compiler *c, int32_t value, int32_t layout);
/* Every member has all of it, computed or sent. */
int32_t meta_want_replicated(meta_compiler *c, int32_t value);
/* Every member has all of it, equal by bits. */
int32_t meta_want_exact(meta_compiler *c, int32_t value);
int32_t meta_want_cut(meta_compiler *c, int32_t value, const meta_cut *cut);
/* The same for what is kept: where two members hold the same, both have the owner's bits. The variant
 * is in no list. */
int32_t meta_want_cut_exact(meta_compiler *c, int32_t value, const meta_cut *cut);

/* Makes what split_set declared for a value its first variant. compile.c. */
bool meta_override_apply(meta_compiler *c, int32_t value);

/* ---- Emitting (emit.c) ---- */

/* The shape of a value's part on member d in a layout; false where it is empty there. */
bool meta_local_shape(const meta_compiler *c, int32_t value, int32_t layout, int32_t d,
                      int64_t ne_out[TDM_MAX_DIMS]);
/* The node under way as the members execute it. */
typedef struct meta_emission {
    const int32_t *src;          /* [n_src] variants; -1 = absent */
    const int32_t *dst_layout;   /* [n_dst] layout ids; NULL where the node has no destination */
    const tdm_op_params *params; /* [n_member]; NULL: the node's on every member */
    /* For ops on a cache: the STATE as source state_src, whose src is not read. The parameter `kv`
     * becomes each member's own description. NULL: none. */
    const meta_state *state;
    int32_t state_src;
} meta_emission;

/* Emits the node under way on every active member that holds all sources that are present and
 * something of every destination. variant_out[n_dst] receives new variants that hold the results
 * (-1 = absent); they are not linked. */
bool meta_emit(meta_compiler *c, const meta_emission *e, int32_t *variant_out);
/* The same for member d alone, from local values; results as meta_part_add_node. */
bool meta_emit_on(meta_compiler *c, int32_t d, int32_t op, const tdm_op_params *params,
                  const int32_t *src, int32_t n_src, const meta_result *dst, int32_t n_dst,
                  int32_t *dst_out);
/* Zeros of f32 on member d; -1 after a failure. */
int32_t meta_emit_zeros(meta_compiler *c, int32_t d, int32_t type, const int64_t ne[TDM_MAX_DIMS]);
/* Emits and links: the usual end of a rule of one destination. */
bool meta_emit_give(meta_compiler *c, const int32_t *src, int32_t dst_layout,
                    const tdm_op_params *params);
/* One exchange over all active members. x[d]: what member d sends, -1 = nothing; first[d]: where its
 * part lies (GATHER) or the part it wants begins (SUM_PART); residual: NULL or [n_member];
 * results[d] on each member; out[d] receives the local values. */
bool meta_emit_exchange(meta_compiler *c, tdm_exchange_kind kind, int32_t axis, const int32_t *x,
                        const int64_t *first, const int32_t *residual, const meta_result *results,
                        int32_t *out);

/* ---- Rules (rules.c) ---- */

typedef bool (*meta_rule_fn)(meta_compiler *c, const tdm_node *node);
typedef struct meta_rule {
    meta_rule_fn apply;
    const char *text; /* what it does, for `docs/split-states.md`, which the tests compare */
} meta_rule;
/* An op's word, for messages ("matmul"). */
const char *meta_op_name(int32_t op);
/* The rule of an op; NULL for EXCHANGE and numbers that are no op. */
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
