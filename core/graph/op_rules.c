/* SPDX-License-Identifier: MIT
 *
 * op_rules.c: the table of ops and the checks that are the same for all of them: counts, presence
 * and kinds of sources, zero bytes behind the parameters. The other op_*.c files infer types and
 * shapes.
 */
#include "core/graph/op_rules.h"

#include <math.h>

#include "core/base/op_state.h"
#include "core/graph/builder.h"
#include "core/graph/op_infer.h"

/* Bytes of the member `params` of tdm_op_params; 0 for `none`, which is no member: SIZE_none puts
 * a 0 before the size. */
#define SIZE_none               unused_, 0
#define SIZE_(params)           SIZE_PICK_(SIZE_##params, sizeof(((tdm_op_params *)NULL)->params), unused_)
#define SIZE_PICK_(...)         SIZE_SECOND_(__VA_ARGS__)
#define SIZE_SECOND_(a, b, ...) b

#define RULE_(ID, name_, number, kind, infer_, params, ...)                                        \
    [TDM_OP_##ID] = {                                                                              \
        .name = #name_, .params_size = SIZE_(params), .infer = tdm_infer_##infer_, __VA_ARGS__},
static const tdm_op_rule rules[TDM_OP_COUNT_] = {TDM_OP_LIST(RULE_)};

/* Numbers are dense: as many ops as the highest number. */
#define COUNT_(...) +1
_Static_assert(TDM_OP_COUNT_ == 1 TDM_OP_LIST(COUNT_), "the ops of TDM_OP_LIST are not in order");

const tdm_op_rule *tdm_op_rule_get(int32_t op) {
    return op > TDM_OP_NONE && op < TDM_OP_COUNT_ ? &rules[op] : NULL;
}

const char *tdm_op_name(int32_t op) {
    const tdm_op_rule *rule = tdm_op_rule_get(op);
    return rule != NULL ? rule->name : op == TDM_OP_NONE ? "none" : "?";
}

tdm_status tdm_op_fail(const tdm_op_args *a, tdm_error *err, const char *format, ...) {
    char text[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    if (err == NULL) return TDM_INVALID_ARGUMENT;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "node %d (%s): %s", (int)a->index,
                    tdm_op_name(a->node->op), text);
}

tdm_status tdm_op_need_type(const tdm_op_args *a, int i, const char *word, tdm_type type,
                            tdm_error *err) {
    char text[TDM_VALUE_TEXT_SIZE];
    if (a->src[i]->type == (int32_t)type) return TDM_OK;
    return tdm_op_fail(a, err, "%s must be %s, not %s", word, tdm_type_name(type),
                       tdm_value_text(a->graph, a->node->src[i], text));
}

tdm_status tdm_op_need_numbers(const tdm_op_args *a, int i, const char *word, tdm_error *err) {
    char text[TDM_VALUE_TEXT_SIZE];
    if (a->src[i]->type != TDM_TYPE_I8 && a->src[i]->type != TDM_TYPE_I32) return TDM_OK;
    return tdm_op_fail(a, err, "%s must be of a float or quantised type, not %s", word,
                       tdm_value_text(a->graph, a->node->src[i], text));
}

tdm_status tdm_op_need_shape(const tdm_op_args *a, int i, const char *word, int64_t n0, int64_t n1,
                             int64_t n2, int64_t n3, tdm_error *err) {
    const int64_t want[TDM_MAX_DIMS] = {n0, n1, n2, n3};
    char text[TDM_VALUE_TEXT_SIZE], shape[TDM_SHAPE_TEXT_SIZE];
    int d;
    for (d = 0; d < TDM_MAX_DIMS; d++)
        if (want[d] >= 0 && a->src[i]->ne[d] != want[d])
            return tdm_op_fail(a, err, "%s must have shape %s, not %s", word,
                               tdm_shape_text(want, shape),
                               tdm_value_text(a->graph, a->node->src[i], text));
    return TDM_OK;
}

tdm_status tdm_op_need_roles(const tdm_op_args *a, int i, int x, int first_axis, tdm_error *err) {
    char text[TDM_VALUE_TEXT_SIZE], other[TDM_VALUE_TEXT_SIZE];
    int64_t n = 1;
    int axis;
    tdm_status status;
    if (a->src[i] == NULL) return TDM_OK;
    status = tdm_op_need_type(a, i, "role", TDM_TYPE_I32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, i, "role", -1, 1, 1, 1, err);
    if (status != TDM_OK) return status;
    for (axis = TDM_MAX_DIMS; a->src[i]->ne[0] != n && axis > first_axis;)
        n *= a->src[x]->ne[--axis];
    if (a->src[i]->ne[0] == n) return TDM_OK;
    return tdm_op_fail(a, err, "role must have an element for each token of x: %s, %s",
                       tdm_value_text(a->graph, a->node->src[i], text),
                       tdm_value_text(a->graph, a->node->src[x], other));
}

tdm_status tdm_op_need_range(const tdm_op_args *a, const char *word, int64_t value, int64_t lo,
                             int64_t hi, tdm_error *err) {
    if (value >= lo && value <= hi) return TDM_OK;
    return tdm_op_fail(a, err, "%s = %lld is not in %lld .. %lld", word, (long long)value,
                       (long long)lo, (long long)hi);
}

tdm_status tdm_op_need_float(const tdm_op_args *a, const char *word, float value, float lo,
                             tdm_error *err) {
    if (isfinite(value) && value >= lo) return TDM_OK;
    return tdm_op_fail(a, err, "%s = %g is not a finite number of at least %g", word, (double)value,
                       (double)lo);
}

void tdm_op_give(tdm_op_result *dst, tdm_type type, int64_t n0, int64_t n1, int64_t n2,
                 int64_t n3) {
    dst->type = (int32_t)type;
    dst->ne[0] = n0;
    dst->ne[1] = n1;
    dst->ne[2] = n2;
    dst->ne[3] = n3;
}

/* Checks the kind of source i, whose index is valid, against the masks of the op. */
static tdm_status source_check(const tdm_op_args *a, const tdm_op_rule *rule, int i,
                               tdm_error *err) {
    const tdm_value *v = a->src[i];
    char text[TDM_VALUE_TEXT_SIZE];
    bool wants_state = (rule->state_src >> i & 1) != 0;
    bool wants_step = (rule->step_src >> i & 1) != 0;
    if (wants_state != (v->kind == TDM_VALUE_STATE))
        return tdm_op_fail(a, err, "source %d %s a STATE: %s", i,
                           wants_state ? "must be" : "must not be",
                           tdm_value_text(a->graph, a->node->src[i], text));
    if (wants_step && a->node->src[i] != a->graph->step)
        return tdm_op_fail(a, err, "source %d must be the step block, not %s", i,
                           tdm_value_text(a->graph, a->node->src[i], text));
    if (v->usage != 0 && ((rule->private_src >> i & 1) == 0 || (v->usage & rule->usage) == 0))
        return tdm_op_fail(a, err,
                           "source %d must not be in a private layout: %s has usage flags 0x%x; a "
                           "plain tensor has none",
                           i, tdm_value_text(a->graph, a->node->src[i], text), v->usage);
    return TDM_OK;
}

tdm_status tdm_op_infer(const tdm_graph *graph, const tdm_node *node, int32_t index,
                        const tdm_view_place *place, tdm_op_result dst[TDM_MAX_DST],
                        tdm_error *err) {
    const tdm_op_rule *rule = tdm_op_rule_get(node->op);
    tdm_op_args args = {0};
    tdm_status status;
    int i;
    args.graph = graph;
    args.node = node;
    args.index = index;
    if (rule == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "node %d: op number %d is not an op", (int)index,
                        (int)node->op);
    if (node->n_src != rule->n_src || node->n_dst != rule->n_dst)
        return tdm_op_fail(&args, err,
                           "has %d sources and %d destinations, the op has %d and %d (absent ones "
                           "are -1)",
                           (int)node->n_src, (int)node->n_dst, rule->n_src, rule->n_dst);
    if (node->reserved != 0)
        return tdm_op_fail(&args, err, "the reserved field is %d, not 0", (int)node->reserved);
    for (i = rule->params_size; i < (int)sizeof node->params.bytes; i++)
        if (node->params.bytes[i] != 0)
            return tdm_op_fail(&args, err, "unused parameter byte %d is 0x%x, not 0", i,
                               node->params.bytes[i]);
    for (i = 0; i < TDM_MAX_SRC; i++) {
        int32_t src = node->src[i];
        if (i >= rule->n_src || src == -1) {
            if (src != -1)
                return tdm_op_fail(&args, err, "source %d, past the last, is %d, not -1", i,
                                   (int)src);
            if (i < rule->n_src && (rule->optional_src >> i & 1) == 0)
                return tdm_op_fail(&args, err, "source %d is absent", i);
            continue;
        }
        if (src < 0 || src >= graph->n_value)
            return tdm_op_fail(&args, err, "source %d is value %d of %d", i, (int)src,
                               (int)graph->n_value);
        args.src[i] = tdm_graph_value(graph, src);
        status = source_check(&args, rule, i, err);
        if (status != TDM_OK) return status;
    }
    for (i = 0; i < TDM_MAX_DST; i++) {
        if (i >= rule->n_dst)
            dst[i].is_present = false;
        else if (!dst[i].is_present && (rule->optional_dst >> i & 1) == 0)
            return tdm_op_fail(&args, err, "destination %d is absent", i);
    }
    args.place = place;
    if (tdm_op_uses_kv(node->op)) {
        int32_t kv = node->params.kv.kv; /* the parameters of every cache op begin with it */
        status = tdm_op_need_range(&args, "kv", kv, 0, (int64_t)graph->n_kv - 1, err);
        if (status != TDM_OK) return status;
        args.kv = tdm_graph_kv(graph, kv);
        if (args.kv->cls >= graph->step_caps.n_class)
            return tdm_op_fail(&args, err,
                               "cache description %d is of class %d; the step block has %d",
                               (int)kv, (int)args.kv->cls, (int)graph->step_caps.n_class);
    }
    status = rule->infer(&args, dst, err);
    for (i = 0; i < rule->n_dst && status == TDM_OK; i++)
        if (dst[i].is_present) {
            char what[64];
            snprintf(what, sizeof what, "node %d (%s): the result", (int)index, rule->name);
            status = tdm_shape_check(what, dst[i].type, dst[i].ne, err);
        }
    return status;
}
