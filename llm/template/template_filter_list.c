/* SPDX-License-Identifier: MIT
 *
 * template_filter_list.c: filters on lists and dicts. Some of Jinja's filters return a generator,
 * which is always true and has no length; here these return a lazy list.
 */
#include <string.h>

#include "llm/template/template_render.h"

static bool self_items(llm_tpl_call *c, llm_tpl_list **items) {
    return llm_tpl_iterate(c->job, c->self, items);
}

/* The value in an item at `attribute`: "a.b", a number, or the item itself if not given. */
static bool attribute_get(llm_tpl_job *job, const llm_tpl_value *item,
                          const llm_tpl_value *attribute, llm_tpl_value *out) {
    *out = *item;
    if (attribute->kind == LLM_TPL_ABSENT || attribute->kind == LLM_TPL_NONE) return true;
    if (attribute->kind != LLM_TPL_STRING) return llm_tpl_item(job, item, attribute, out);
    llm_tpl_str path = attribute->as.text;
    for (;;) {
        const char *dot = path.len > 0 ? memchr(path.ptr, '.', path.len) : NULL;
        size_t n = dot != NULL ? (size_t)(dot - path.ptr) : path.len;
        llm_tpl_value key = llm_tpl_string((llm_tpl_str){path.ptr, n}), owner = *out;
        int64_t number = 0;
        bool is_number = n > 0 && n < 10;
        for (size_t i = 0; i < n && is_number; i++) {
            is_number = path.ptr[i] >= '0' && path.ptr[i] <= '9';
            number = number * 10 + (path.ptr[i] - '0');
        }
        if (is_number) key = llm_tpl_int(number);
        if (!llm_tpl_item(job, &owner, &key, out)) return false;
        if (dot == NULL) return true;
        path.ptr += n + 1;
        path.len -= n + 1;
    }
}

/* The value of attribute_get as a key for comparisons: in lower case unless has_case. */
static bool order_key(llm_tpl_job *job, const llm_tpl_value *item, const llm_tpl_value *attribute,
                      bool has_case, llm_tpl_value *out) {
    if (!attribute_get(job, item, attribute, out)) return false;
    if (has_case || out->kind != LLM_TPL_STRING) return true;
    llm_tpl_str text = out->as.text;
    if (!llm_tpl_text_case(job, text, LLM_TPL_CASE_LOWER, &text)) return false;
    *out = llm_tpl_string(text);
    return true;
}

/* ---- Order ---- */

typedef struct ranked {
    llm_tpl_value key, value;
} ranked;

/* Merges two sorted halves; stable. */
static bool merge(llm_tpl_job *job, ranked *rows, ranked *spare, size_t half, size_t n,
                  bool is_down) {
    size_t a = 0, b = half;
    for (size_t i = 0; i < n; i++) {
        int order = 0;
        /* equal values may be of a kind without an order */
        if (a < half && b < n && !llm_tpl_equals(job, &rows[b].key, &rows[a].key) &&
            !llm_tpl_compare(job, &rows[b].key, &rows[a].key, &order))
            return false;
        if (is_down) order = -order;
        bool takes_b = a == half || (b < n && order < 0);
        spare[i] = takes_b ? rows[b++] : rows[a++];
    }
    memcpy(rows, spare, n * sizeof *rows);
    return true;
}

static bool sort(llm_tpl_job *job, ranked *rows, ranked *spare, size_t n, bool is_down) {
    if (n < 2) return true;
    return sort(job, rows, spare, n / 2, is_down) &&
           sort(job, rows + n / 2, spare, n - n / 2, is_down) &&
           merge(job, rows, spare, n / 2, n, is_down);
}

static bool sort_items(llm_tpl_job *job, const llm_tpl_list *items, const llm_tpl_list *keys,
                       bool is_down, llm_tpl_value *out) {
    ranked *rows = llm_tpl_alloc(job, items->n * 2 + 1, sizeof *rows);
    if (rows == NULL || !llm_tpl_list_make(job, LLM_TPL_PLAIN, out)) return false;
    for (size_t i = 0; i < items->n; i++) rows[i] = (ranked){keys->items[i], items->items[i]};
    if (!sort(job, rows, rows + items->n, items->n, is_down)) return false;
    for (size_t i = 0; i < items->n; i++)
        if (!llm_tpl_list_push(job, out->as.list, rows[i].value)) return false;
    return true;
}

static bool filter_sort(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value keys, key;
    if (!self_items(c, &items) || !llm_tpl_list_make(c->job, LLM_TPL_PLAIN, &keys)) return false;
    for (size_t i = 0; i < items->n; i++)
        if (!order_key(c->job, &items->items[i], &c->argv[2], llm_tpl_arg_true(c, 1), &key) ||
            !llm_tpl_list_push(c->job, keys.as.list, key))
            return false;
    return sort_items(c->job, items, keys.as.list, llm_tpl_arg_true(c, 0), out);
}

static bool pair_push(llm_tpl_job *job, llm_tpl_list *list, llm_tpl_value a, llm_tpl_value b) {
    llm_tpl_value pair;
    return llm_tpl_list_make(job, LLM_TPL_TUPLE, &pair) &&
           llm_tpl_list_push(job, pair.as.list, a) && llm_tpl_list_push(job, pair.as.list, b) &&
           llm_tpl_list_push(job, list, pair);
}

static bool self_dict(llm_tpl_call *c, const char *name, const llm_tpl_dict **dict) {
    static const llm_tpl_dict empty = {0};
    *dict = &empty;
    if (c->self->kind == LLM_TPL_UNDEFINED) return true;
    if (c->self->kind != LLM_TPL_DICT)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "%s needs a dict, not a %s", name,
                            llm_tpl_kind_name(c->self));
    *dict = c->self->as.dict;
    return true;
}

static bool filter_dictsort(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_dict *dict;
    llm_tpl_value items, keys, key, none = {.kind = LLM_TPL_ABSENT};
    llm_tpl_str by;
    if (c->self->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(c->job, c->self);
    if (!self_dict(c, "dictsort", &dict) || !llm_tpl_list_make(c->job, LLM_TPL_PLAIN, &items) ||
        !llm_tpl_list_make(c->job, LLM_TPL_PLAIN, &keys) ||
        !llm_tpl_arg_text(c, 1, llm_tpl_str_of("key"), &by))
        return false;
    bool is_by_key = llm_tpl_str_is(by, "key");
    if (!is_by_key && !llm_tpl_str_is(by, "value"))
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "dictsort: by 'key' or 'value'");
    for (size_t i = 0; i < dict->n; i++) {
        const llm_tpl_pair *pair = &dict->pairs[i];
        if (!pair_push(c->job, items.as.list, pair->key, pair->value) ||
            !order_key(c->job, is_by_key ? &pair->key : &pair->value, &none, llm_tpl_arg_true(c, 0),
                       &key) ||
            !llm_tpl_list_push(c->job, keys.as.list, key))
            return false;
    }
    return sort_items(c->job, items.as.list, keys.as.list, llm_tpl_arg_true(c, 2), out);
}

static bool extreme(llm_tpl_call *c, int sign, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value best = llm_tpl_none(), key;
    if (!self_items(c, &items)) return false;
    *out = llm_tpl_undefined(llm_tpl_str_of("item"));
    for (size_t i = 0; i < items->n; i++) {
        int order = 0;
        if (!order_key(c->job, &items->items[i], &c->argv[1], llm_tpl_arg_true(c, 0), &key) ||
            (i > 0 && !llm_tpl_compare(c->job, &key, &best, &order)))
            return false;
        if (i > 0 && order * sign <= 0) continue;
        best = key;
        *out = items->items[i];
    }
    return true;
}

static bool filter_max(llm_tpl_call *c, llm_tpl_value *out) {
    return extreme(c, 1, out);
}

static bool filter_min(llm_tpl_call *c, llm_tpl_value *out) {
    return extreme(c, -1, out);
}

static bool filter_unique(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value seen, key;
    if (!self_items(c, &items) || !llm_tpl_list_make(c->job, LLM_TPL_LAZY, out) ||
        !llm_tpl_list_make(c->job, LLM_TPL_PLAIN, &seen))
        return false;
    for (size_t i = 0; i < items->n; i++) {
        bool is_there;
        if (!order_key(c->job, &items->items[i], &c->argv[1], llm_tpl_arg_true(c, 0), &key) ||
            !llm_tpl_contains(c->job, &seen, &key, &is_there))
            return false;
        if (!is_there && (!llm_tpl_list_push(c->job, seen.as.list, key) ||
                          !llm_tpl_list_push(c->job, out->as.list, items->items[i])))
            return false;
    }
    return true;
}

static bool filter_reverse(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_buffer buffer = {0};
    bool is_text = c->self->kind == LLM_TPL_STRING;
    if (!self_items(c, &items) || !llm_tpl_list_make(c->job, LLM_TPL_LAZY, out)) return false;
    for (size_t i = items->n; i > 0; i--)
        if (!(is_text ? llm_tpl_put(c->job, &buffer, items->items[i - 1].as.text)
                      : llm_tpl_list_push(c->job, out->as.list, items->items[i - 1])))
            return false;
    if (is_text) *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    return true;
}

/* ---- Selection ---- */

static bool filter_first(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    if (!self_items(c, &items)) return false;
    *out = items->n > 0 ? items->items[0] : llm_tpl_undefined(llm_tpl_str_of("first"));
    return true;
}

static bool filter_last(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    if (!self_items(c, &items)) return false;
    *out = items->n > 0 ? items->items[items->n - 1] : llm_tpl_undefined(llm_tpl_str_of("last"));
    return true;
}

static bool filter_list(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    if (!self_items(c, &items) || !llm_tpl_list_make(c->job, LLM_TPL_PLAIN, out)) return false;
    for (size_t i = 0; i < items->n; i++)
        if (!llm_tpl_list_push(c->job, out->as.list, items->items[i])) return false;
    return true;
}

static bool filter_items(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_dict *dict;
    if (!self_dict(c, "items", &dict) || !llm_tpl_list_make(c->job, LLM_TPL_LAZY, out))
        return false;
    for (size_t i = 0; i < dict->n; i++)
        if (!pair_push(c->job, out->as.list, dict->pairs[i].key, dict->pairs[i].value))
            return false;
    return true;
}

/* Applies the filter named by the first argument, with the further arguments, to every item; or
 * with attribute=, returns that attribute of every item. */
static bool map_one(llm_tpl_call *c, const llm_tpl_value *item, llm_tpl_value *out) {
    const llm_tpl_args *args = c->args;
    size_t n_plain = args->n - args->n_named;
    llm_tpl_value fallback = {.kind = LLM_TPL_ABSENT};
    const llm_tpl_value *attribute = NULL;
    if (n_plain > 0) {
        if (args->items[0].kind != LLM_TPL_STRING)
            return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "map: a filter's name is needed");
        llm_tpl_args rest = llm_tpl_args_behind(args, 1);
        return llm_tpl_filter_run(c->job, args->items[0].as.text, item, &rest, out);
    }
    for (size_t i = 0; i < args->n_named; i++) {
        if (llm_tpl_str_is(args->names[i], "attribute")) attribute = &args->items[i];
        if (llm_tpl_str_is(args->names[i], "default")) fallback = args->items[i];
    }
    if (attribute == NULL)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "map: a filter or attribute= is needed");
    if (!attribute_get(c->job, item, attribute, out)) return false;
    if (out->kind == LLM_TPL_UNDEFINED && fallback.kind != LLM_TPL_ABSENT) *out = fallback;
    return true;
}

static bool filter_map(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value value;
    if (!llm_tpl_list_make(c->job, LLM_TPL_LAZY, out)) return false;
    if (!llm_tpl_is_true(c->self)) return true; /* an empty or false operand gives no items */
    if (!self_items(c, &items)) return false;
    for (size_t i = 0; i < items->n; i++)
        if (!map_one(c, &items->items[i], &value) ||
            !llm_tpl_list_push(c->job, out->as.list, value))
            return false;
    return true;
}

/* Keeps the items for which a test, of the item or of an attribute, returns `wanted`. Without a
 * test, the truth of the value counts. */
static bool choose(llm_tpl_call *c, bool by_attribute, bool wanted, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value subject, attribute = {.kind = LLM_TPL_ABSENT};
    llm_tpl_args rest = *c->args;
    llm_tpl_str test = {NULL, 0};
    if (by_attribute) {
        if (rest.n - rest.n_named == 0)
            return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "an attribute's name is needed");
        attribute = rest.items[0];
        rest = llm_tpl_args_behind(&rest, 1);
    }
    if (rest.n - rest.n_named > 0) {
        if (rest.items[0].kind != LLM_TPL_STRING)
            return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "a test's name is needed");
        test = rest.items[0].as.text;
        rest = llm_tpl_args_behind(&rest, 1);
    }
    if (!llm_tpl_list_make(c->job, LLM_TPL_LAZY, out)) return false;
    if (!llm_tpl_is_true(c->self)) return true; /* as map does */
    if (!self_items(c, &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        bool is_true;
        if (!attribute_get(c->job, &items->items[i], &attribute, &subject)) return false;
        is_true = llm_tpl_is_true(&subject);
        if (test.ptr != NULL && !llm_tpl_test_run(c->job, test, &subject, &rest, &is_true))
            return false;
        if (is_true == wanted && !llm_tpl_list_push(c->job, out->as.list, items->items[i]))
            return false;
    }
    return true;
}

static bool filter_select(llm_tpl_call *c, llm_tpl_value *out) {
    return choose(c, false, true, out);
}

static bool filter_reject(llm_tpl_call *c, llm_tpl_value *out) {
    return choose(c, false, false, out);
}

static bool filter_selectattr(llm_tpl_call *c, llm_tpl_value *out) {
    return choose(c, true, true, out);
}

static bool filter_rejectattr(llm_tpl_call *c, llm_tpl_value *out) {
    return choose(c, true, false, out);
}

/* ---- Combination ---- */

static bool filter_join(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value item, none = llm_tpl_string((llm_tpl_str){NULL, 0});
    llm_tpl_buffer buffer = {0};
    const llm_tpl_value *between = c->argv[0].kind == LLM_TPL_ABSENT ? &none : &c->argv[0];
    if (!self_items(c, &items)) return false;
    for (size_t i = 0; i < items->n; i++)
        if ((i > 0 && !llm_tpl_put_value(c->job, &buffer, between)) ||
            !attribute_get(c->job, &items->items[i], &c->argv[1], &item) ||
            !llm_tpl_put_value(c->job, &buffer, &item))
            return false;
    *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    return true;
}

static bool filter_sum(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value item, total = c->argv[1].kind == LLM_TPL_ABSENT ? llm_tpl_int(0) : c->argv[1];
    if (!self_items(c, &items)) return false;
    for (size_t i = 0; i < items->n; i++) {
        llm_tpl_value before = total;
        if (!attribute_get(c->job, &items->items[i], &c->argv[0], &item) ||
            !llm_tpl_operate(c->job, '+', &before, &item, &total))
            return false;
    }
    *out = total;
    return true;
}

/* Rows of n items; the second argument, if given, fills up the last row. */
static bool filter_batch(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_list *items;
    llm_tpl_value row = llm_tpl_none();
    int64_t n;
    if (!llm_tpl_arg_int(c, 0, 0, &n) || !self_items(c, &items) ||
        !llm_tpl_list_make(c->job, LLM_TPL_LAZY, out))
        return false;
    if (n < 1) return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "batch: rows of at least 1");
    for (size_t i = 0; i < items->n; i++)
        if (((int64_t)i % n == 0 && (!llm_tpl_list_make(c->job, LLM_TPL_PLAIN, &row) ||
                                     !llm_tpl_list_push(c->job, out->as.list, row))) ||
            !llm_tpl_list_push(c->job, row.as.list, items->items[i]))
            return false;
    bool is_filled = c->argv[1].kind != LLM_TPL_ABSENT && c->argv[1].kind != LLM_TPL_NONE;
    while (is_filled && items->n > 0 && (int64_t)row.as.list->n < n)
        if (!llm_tpl_list_push(c->job, row.as.list, c->argv[1])) return false;
    return true;
}

static const llm_tpl_builtin filters[] = {
    {"batch", "linecount fill_with", filter_batch},
    {"dictsort", "case_sensitive by reverse", filter_dictsort},
    {"first", "", filter_first},
    {"items", "", filter_items},
    {"join", "d attribute", filter_join},
    {"last", "", filter_last},
    {"list", "", filter_list},
    {"map", "*", filter_map},
    {"max", "case_sensitive attribute", filter_max},
    {"min", "case_sensitive attribute", filter_min},
    {"reject", "*", filter_reject},
    {"rejectattr", "*", filter_rejectattr},
    {"reverse", "", filter_reverse},
    {"select", "*", filter_select},
    {"selectattr", "*", filter_selectattr},
    {"sort", "reverse case_sensitive attribute", filter_sort},
    {"sum", "attribute start", filter_sum},
    {"unique", "case_sensitive attribute", filter_unique},
};

const llm_tpl_builtin *llm_tpl_list_filter_find(llm_tpl_str name) {
    return llm_tpl_builtin_find(filters, sizeof filters / sizeof filters[0], name);
}
