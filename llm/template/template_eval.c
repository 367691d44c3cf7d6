/* SPDX-License-Identifier: MIT
 *
 * template_eval.c: evaluates expressions. Operators: template_operator.c.
 */
#include <string.h>

#include "llm/template/template_render.h"

/* ---- Attributes and items ---- */

static bool method_make(llm_tpl_job *job, const llm_tpl_value *self, llm_tpl_str name,
                        llm_tpl_value *out) {
    llm_tpl_method *method = llm_tpl_alloc(job, 1, sizeof *method);
    if (method == NULL) return false;
    *method = (llm_tpl_method){*self, name};
    *out = (llm_tpl_value){.kind = LLM_TPL_METHOD, .as.method = method};
    return true;
}

/* The item before or behind the present one. */
static llm_tpl_value neighbour(const llm_tpl_loop *loop, bool is_there, size_t i,
                               llm_tpl_str name) {
    return is_there ? loop->items->items[i] : llm_tpl_undefined(name);
}

static bool loop_attribute(llm_tpl_job *job, llm_tpl_loop *loop, llm_tpl_str name,
                           llm_tpl_value *out) {
    const size_t i = loop->index;
    int64_t n = 0;
    if ((llm_tpl_str_is(name, "length") || llm_tpl_str_is(name, "revindex") ||
         llm_tpl_str_is(name, "revindex0")) &&
        !llm_tpl_loop_length(job, loop, &n))
        return false;
    if ((llm_tpl_str_is(name, "last") || llm_tpl_str_is(name, "nextitem")) &&
        !llm_tpl_loop_read(job, loop, i + 2))
        return false;
    const struct {
        const char *name;
        llm_tpl_value value;
    } rows[] = {
        {"index", llm_tpl_int((int64_t)i + 1)},
        {"index0", llm_tpl_int((int64_t)i)},
        {"revindex", llm_tpl_int(n - (int64_t)i)},
        {"revindex0", llm_tpl_int(n - (int64_t)i - 1)},
        {"first", llm_tpl_bool(i == 0)},
        {"last", llm_tpl_bool(i + 1 >= loop->items->n)},
        {"length", llm_tpl_int(n)},
        {"depth", llm_tpl_int(1)}, /* counts recursive loops only */
        {"depth0", llm_tpl_int(0)},
        {"previtem", neighbour(loop, i > 0, i - 1, name)},
        {"nextitem", neighbour(loop, i + 1 < loop->items->n, i + 1, name)},
    };
    *out = llm_tpl_undefined(name);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        if (llm_tpl_str_is(name, rows[r].name)) *out = rows[r].value;
    return true;
}

bool llm_tpl_attribute(llm_tpl_job *job, const llm_tpl_value *value, llm_tpl_str name,
                       llm_tpl_value *out) {
    *out = llm_tpl_undefined(name);
    if (value->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(job, value);
    if (llm_tpl_method_find(value, name) != NULL) return method_make(job, value, name, out);
    if (value->kind == LLM_TPL_LOOP) {
        return loop_attribute(job, value->as.loop, name, out);
    } else if (value->kind == LLM_TPL_DICT || value->kind == LLM_TPL_NAMESPACE) {
        const llm_tpl_value *found = llm_tpl_dict_get_str(value->as.dict, name);
        if (found != NULL) *out = *found;
    } else if (value->kind == LLM_TPL_MACRO && llm_tpl_str_is(name, "name")) {
        *out = llm_tpl_string(value->as.macro->name);
    }
    return true;
}

/* Converts an index, which may count from the end, to a position; false = out of range. */
static bool index_resolve(int64_t index, size_t n, size_t *out) {
    if (index < 0) index += (int64_t)n;
    if (index < 0 || index >= (int64_t)n) return false;
    *out = (size_t)index;
    return true;
}

bool llm_tpl_item(llm_tpl_job *job, const llm_tpl_value *value, const llm_tpl_value *key,
                  llm_tpl_value *out) {
    bool is_int = key->kind == LLM_TPL_INT || key->kind == LLM_TPL_BOOL;
    size_t at;
    *out = llm_tpl_undefined(key->kind == LLM_TPL_STRING ? key->as.text : llm_tpl_str_of("item"));
    if (value->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(job, value);
    if (value->kind == LLM_TPL_LIST && is_int && value->as.list->flavor != LLM_TPL_LAZY) {
        if (index_resolve(llm_tpl_as_int(key), value->as.list->n, &at))
            *out = value->as.list->items[at];
        return true;
    }
    if (value->kind == LLM_TPL_STRING && is_int) {
        llm_tpl_str text = value->as.text;
        if (!llm_tpl_step(job, 1 + text.len / 16)) return false;
        if (index_resolve(llm_tpl_as_int(key), llm_tpl_text_count(text), &at)) {
            size_t off = llm_tpl_text_offset(text, at);
            *out = llm_tpl_string((llm_tpl_str){text.ptr + off, llm_tpl_char_len(text, off)});
        }
        return true;
    }
    if (value->kind == LLM_TPL_DICT) {
        const llm_tpl_value *found = llm_tpl_dict_get(value->as.dict, key);
        if (found != NULL) {
            *out = *found;
            return true;
        }
    }
    return key->kind != LLM_TPL_STRING || llm_tpl_attribute(job, value, key->as.text, out);
}

/* ---- Slices ---- */

/* Evaluates one bound of a slice and clamps it. */
static bool bound_eval(llm_tpl_job *job, const llm_tpl_node *node, int64_t n, bool is_down,
                       int64_t fallback, int64_t *out) {
    llm_tpl_value value = llm_tpl_none();
    if (node != NULL && !llm_tpl_eval(job, node, &value)) return false;
    *out = fallback;
    if (value.kind == LLM_TPL_NONE) return true;
    if (value.kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(job, &value);
    if (value.kind != LLM_TPL_INT && value.kind != LLM_TPL_BOOL)
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a slice's bound is a %s, not an int",
                            llm_tpl_kind_name(&value));
    int64_t bound = llm_tpl_as_int(&value), low = is_down ? -1 : 0, high = is_down ? n - 1 : n;
    if (bound < 0) bound += n;
    *out = bound < low ? low : bound > high ? high : bound;
    return true;
}

static bool slice_eval(llm_tpl_job *job, const llm_tpl_value *value, const llm_tpl_node *node,
                       llm_tpl_value *out) {
    llm_tpl_value step = llm_tpl_int(1), made;
    llm_tpl_list *items = NULL;
    bool is_text = value->kind == LLM_TPL_STRING;
    if (value->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(job, value);
    if (!is_text && (value->kind != LLM_TPL_LIST || value->as.list->flavor == LLM_TPL_LAZY))
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s cannot be sliced",
                            llm_tpl_kind_name(value));
    if (node->c != NULL && !llm_tpl_eval(job, node->c, &step)) return false;
    if (step.kind == LLM_TPL_NONE) step = llm_tpl_int(1);
    if (step.kind != LLM_TPL_INT || step.as.number == 0)
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT,
                            "a slice's step must be an int other than 0");
    if (!llm_tpl_iterate(job, value, &items)) return false;
    int64_t n = (int64_t)items->n, by = step.as.number, from, to;
    if (!bound_eval(job, node->a, n, by < 0, by < 0 ? n - 1 : 0, &from) ||
        !bound_eval(job, node->b, n, by < 0, by < 0 ? -1 : n, &to))
        return false;
    if (by > n) by = n + 1; /* past the end equals the end; the sum below cannot overflow */
    if (by < -n) by = -n - 1;
    if (!llm_tpl_list_make(job, is_text ? LLM_TPL_PLAIN : value->as.list->flavor, &made))
        return false;
    llm_tpl_buffer buffer = {0};
    for (int64_t i = from; by > 0 ? i < to : i > to; i += by)
        if (!(is_text ? llm_tpl_put(job, &buffer, items->items[i].as.text)
                      : llm_tpl_list_push(job, made.as.list, items->items[i])))
            return false;
    *out = is_text ? llm_tpl_string(llm_tpl_buffer_str(&buffer)) : made;
    return true;
}

/* ---- Kinds of nodes ---- */

static bool list_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value item;
    bool is_tuple = node->kind == LLM_TPL_NODE_TUPLE;
    if (!llm_tpl_list_make(job, is_tuple ? LLM_TPL_TUPLE : LLM_TPL_PLAIN, out)) return false;
    for (const llm_tpl_node *at = node->list; at != NULL; at = at->next)
        if (!llm_tpl_eval(job, at, &item) || !llm_tpl_list_push(job, out->as.list, item))
            return false;
    return true;
}

static bool dict_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value key, value;
    if (!llm_tpl_dict_make(job, out)) return false;
    for (const llm_tpl_node *pair = node->list; pair != NULL; pair = pair->next)
        if (!llm_tpl_eval(job, pair->a, &key) || !llm_tpl_eval(job, pair->b, &value) ||
            !llm_tpl_dict_set(job, out->as.dict, key, value))
            return false;
    return true;
}

static bool concat_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_buffer buffer = {0};
    llm_tpl_value value;
    for (const llm_tpl_node *at = node->list; at != NULL; at = at->next)
        if (!llm_tpl_eval(job, at, &value) || !llm_tpl_put_value(job, &buffer, &value))
            return false;
    *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    return true;
}

static bool compare_one(llm_tpl_job *job, int op, const llm_tpl_value *a, const llm_tpl_value *b,
                        bool *out) {
    int order = 0;
    switch (op) {
    case LLM_TPL_EQ:
    case LLM_TPL_NE: *out = llm_tpl_equals(job, a, b) == (op == LLM_TPL_EQ); return true;
    case LLM_TPL_IN:
    case LLM_TPL_NOT_IN:
        if (!llm_tpl_contains(job, b, a, out)) return false;
        *out = *out == (op == LLM_TPL_IN);
        return true;
    default:
        if (!llm_tpl_compare(job, a, b, &order)) return false;
        *out = op == LLM_TPL_LT   ? order < 0
               : op == LLM_TPL_LE ? order <= 0
               : op == LLM_TPL_GT ? order > 0
                                  : order >= 0;
        return true;
    }
}

/* a < b < c is true if each pair of neighbours is. */
static bool compare_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value left, right;
    bool is_true = true;
    if (!llm_tpl_eval(job, node->a, &left)) return false;
    for (const llm_tpl_node *at = node->list; at != NULL && is_true; at = at->next) {
        if (!llm_tpl_eval(job, at->a, &right) || !compare_one(job, at->op, &left, &right, &is_true))
            return false;
        left = right;
    }
    *out = llm_tpl_bool(is_true);
    return true;
}

static bool call_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value callee;
    llm_tpl_args args;
    if (!llm_tpl_eval(job, node->a, &callee) || !llm_tpl_args_eval(job, node->list, &args))
        return false;
    job->line = node->line;
    return llm_tpl_call_value(job, &callee, &args, out);
}

static bool filter_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value self;
    llm_tpl_args args;
    if (!llm_tpl_eval(job, node->a, &self) || !llm_tpl_args_eval(job, node->list, &args))
        return false;
    return llm_tpl_filter_run(job, node->text, &self, &args, out);
}

static bool test_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value self;
    llm_tpl_args args;
    bool is_true = false;
    if (!llm_tpl_eval(job, node->a, &self) || !llm_tpl_args_eval(job, node->list, &args) ||
        !llm_tpl_test_run(job, node->text, &self, &args, &is_true))
        return false;
    *out = llm_tpl_bool(is_true);
    return true;
}

static bool logic_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    if (!llm_tpl_eval(job, node->a, out)) return false;
    if (llm_tpl_is_true(out) != (node->kind == LLM_TPL_NODE_AND)) return true;
    return llm_tpl_eval(job, node->b, out);
}

static bool cond_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value test;
    if (!llm_tpl_eval(job, node->a, &test)) return false;
    if (llm_tpl_is_true(&test)) return llm_tpl_eval(job, node->b, out);
    if (node->c != NULL) return llm_tpl_eval(job, node->c, out);
    *out = llm_tpl_undefined(llm_tpl_str_of("else"));
    return true;
}

static bool item_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value value, key;
    if (!llm_tpl_eval(job, node->a, &value)) return false;
    if (node->b->kind == LLM_TPL_NODE_SLICE) return slice_eval(job, &value, node->b, out);
    return llm_tpl_eval(job, node->b, &key) && llm_tpl_item(job, &value, &key, out);
}

static bool binary_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value a, b;
    return llm_tpl_eval(job, node->a, &a) && llm_tpl_eval(job, node->b, &b) &&
           llm_tpl_operate(job, node->op, &a, &b, out);
}

/* Evaluates -a and +a as 0 - a and 0 + a. */
static bool sign_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value value, zero = llm_tpl_int(0);
    if (!llm_tpl_eval(job, node->a, &value)) return false;
    if (value.kind == LLM_TPL_FLOAT) zero = llm_tpl_float(-0.0);
    if (value.kind == LLM_TPL_FLOAT && node->kind == LLM_TPL_NODE_NEGATIVE) {
        *out = llm_tpl_float(-value.as.real);
        return true;
    }
    return llm_tpl_operate(job, node->kind == LLM_TPL_NODE_NEGATIVE ? '-' : '+', &zero, &value,
                           out);
}

static bool node_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_value value;
    switch (node->kind) {
    case LLM_TPL_NODE_CONST: *out = node->value; return true;
    case LLM_TPL_NODE_NAME: *out = llm_tpl_lookup(job, node->text); return true;
    case LLM_TPL_NODE_LIST:
    case LLM_TPL_NODE_TUPLE: return list_eval(job, node, out);
    case LLM_TPL_NODE_DICT: return dict_eval(job, node, out);
    case LLM_TPL_NODE_ATTR:
        return llm_tpl_eval(job, node->a, &value) &&
               llm_tpl_attribute(job, &value, node->text, out);
    case LLM_TPL_NODE_ITEM: return item_eval(job, node, out);
    case LLM_TPL_NODE_CALL: return call_eval(job, node, out);
    case LLM_TPL_NODE_FILTER: return filter_eval(job, node, out);
    case LLM_TPL_NODE_TEST: return test_eval(job, node, out);
    case LLM_TPL_NODE_NOT:
        if (!llm_tpl_eval(job, node->a, &value)) return false;
        *out = llm_tpl_bool(!llm_tpl_is_true(&value));
        return true;
    case LLM_TPL_NODE_NEGATIVE:
    case LLM_TPL_NODE_POSITIVE: return sign_eval(job, node, out);
    case LLM_TPL_NODE_AND:
    case LLM_TPL_NODE_OR: return logic_eval(job, node, out);
    case LLM_TPL_NODE_BINARY: return binary_eval(job, node, out);
    case LLM_TPL_NODE_CONCAT: return concat_eval(job, node, out);
    case LLM_TPL_NODE_COMPARE: return compare_eval(job, node, out);
    case LLM_TPL_NODE_COND: return cond_eval(job, node, out);
    default: return llm_tpl_fail(job, TDM_INTERNAL, "a statement where a value is expected");
    }
}

bool llm_tpl_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    *out = llm_tpl_none();
    job->line = node->line;
    if (job->depth >= LLM_TPL_DEPTH_MAX)
        return llm_tpl_fail(job, TDM_OUT_OF_RANGE, "nested or recursing more than %d deep",
                            LLM_TPL_DEPTH_MAX);
    if (!llm_tpl_step(job, 1)) return false;
    job->depth++;
    bool ok = node_eval(job, node, out);
    job->depth--;
    return ok && job->status == TDM_OK;
}
