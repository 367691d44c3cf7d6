/* SPDX-License-Identifier: MIT
 *
 * template_check.c: Jinja's tests, the words after `is`. They are those of "List of Builtin Tests"
 * in its documentation.
 */
#include <string.h>

#include "llm/template/template_render.h"

static bool give(llm_tpl_value *out, bool truth) {
    *out = llm_tpl_bool(truth);
    return true;
}

static bool test_defined(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind != LLM_TPL_UNDEFINED);
}

static bool test_undefined(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_UNDEFINED);
}

static bool test_none(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_NONE);
}

static bool test_boolean(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_BOOL);
}

static bool test_true(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_BOOL && c->self->as.truth);
}

static bool test_false(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_BOOL && !c->self->as.truth);
}

static bool test_integer(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_INT);
}

static bool test_float(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_FLOAT);
}

static bool test_number(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, llm_tpl_is_number(c->self));
}

static bool test_string(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_STRING);
}

static bool test_mapping(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_DICT);
}

static bool test_iterable(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_kind kind = c->self->kind;
    return give(out, kind == LLM_TPL_STRING || kind == LLM_TPL_LIST || kind == LLM_TPL_DICT ||
                         kind == LLM_TPL_UNDEFINED || kind == LLM_TPL_LOOP);
}

static bool test_sequence(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_kind kind = c->self->kind;
    return give(out, kind == LLM_TPL_STRING || kind == LLM_TPL_DICT || kind == LLM_TPL_UNDEFINED ||
                         (kind == LLM_TPL_LIST && c->self->as.list->flavor != LLM_TPL_LAZY));
}

/* An undefined value counts as callable, as in Jinja: calling it is what fails. */
static bool test_callable(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_kind kind = c->self->kind;
    return give(out, kind == LLM_TPL_MACRO || kind == LLM_TPL_FUNCTION || kind == LLM_TPL_METHOD ||
                         kind == LLM_TPL_UNDEFINED);
}

/* Whether the text has a letter, and does not change when converted to that case. */
static bool case_test(llm_tpl_call *c, llm_tpl_case how, llm_tpl_value *out) {
    llm_tpl_str text, same, other;
    if (!llm_tpl_to_text(c->job, c->self, &text) || !llm_tpl_text_case(c->job, text, how, &same) ||
        !llm_tpl_text_case(c->job, text,
                           how == LLM_TPL_CASE_UPPER ? LLM_TPL_CASE_LOWER : LLM_TPL_CASE_UPPER,
                           &other))
        return false;
    return give(out, llm_tpl_str_same(text, same) && !llm_tpl_str_same(text, other));
}

static bool test_lower(llm_tpl_call *c, llm_tpl_value *out) {
    return case_test(c, LLM_TPL_CASE_LOWER, out);
}

static bool test_upper(llm_tpl_call *c, llm_tpl_value *out) {
    return case_test(c, LLM_TPL_CASE_UPPER, out);
}

/* self % n == remainder, n the argument or 2 */
static bool remainder_is(llm_tpl_call *c, const llm_tpl_value *n, int64_t remainder,
                         llm_tpl_value *out) {
    llm_tpl_value rest, wanted = llm_tpl_int(remainder);
    if (!llm_tpl_operate(c->job, '%', c->self, n, &rest)) return false;
    return give(out, llm_tpl_equals(c->job, &rest, &wanted));
}

static bool test_odd(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_value two = llm_tpl_int(2);
    return remainder_is(c, &two, 1, out);
}

static bool test_even(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_value two = llm_tpl_int(2);
    return remainder_is(c, &two, 0, out);
}

static bool argument_need(llm_tpl_call *c) {
    return c->argv[0].kind != LLM_TPL_ABSENT ||
           llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "the test needs something to compare with");
}

static bool test_divisibleby(llm_tpl_call *c, llm_tpl_value *out) {
    return argument_need(c) && remainder_is(c, &c->argv[0], 0, out);
}

static bool test_eq(llm_tpl_call *c, llm_tpl_value *out) {
    return argument_need(c) && give(out, llm_tpl_equals(c->job, c->self, &c->argv[0]));
}

static bool test_ne(llm_tpl_call *c, llm_tpl_value *out) {
    return argument_need(c) && give(out, !llm_tpl_equals(c->job, c->self, &c->argv[0]));
}

static bool order_of(llm_tpl_call *c, int *order) {
    return argument_need(c) && llm_tpl_compare(c->job, c->self, &c->argv[0], order);
}

static bool test_lt(llm_tpl_call *c, llm_tpl_value *out) {
    int order = 0;
    return order_of(c, &order) && give(out, order < 0);
}

static bool test_le(llm_tpl_call *c, llm_tpl_value *out) {
    int order = 0;
    return order_of(c, &order) && give(out, order <= 0);
}

static bool test_gt(llm_tpl_call *c, llm_tpl_value *out) {
    int order = 0;
    return order_of(c, &order) && give(out, order > 0);
}

static bool test_ge(llm_tpl_call *c, llm_tpl_value *out) {
    int order = 0;
    return order_of(c, &order) && give(out, order >= 0);
}

static bool test_in(llm_tpl_call *c, llm_tpl_value *out) {
    bool is_in = false;
    return argument_need(c) && llm_tpl_contains(c->job, &c->argv[0], c->self, &is_in) &&
           give(out, is_in);
}

/* Python's `is`: compares texts and numbers by kind and value, other values by address. */
static bool test_sameas(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_value *a = c->self, *b = &c->argv[0];
    if (!argument_need(c)) return false;
    if (a->kind != b->kind) return give(out, false);
    if (a->kind == LLM_TPL_LIST) return give(out, a->as.list == b->as.list);
    if (a->kind == LLM_TPL_DICT) return give(out, a->as.dict == b->as.dict);
    return give(out, llm_tpl_equals(c->job, a, b));
}

static bool test_filter(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out,
                c->self->kind == LLM_TPL_STRING && llm_tpl_filter_find(c->self->as.text) != NULL);
}

static bool test_test(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out,
                c->self->kind == LLM_TPL_STRING && llm_tpl_test_find(c->self->as.text) != NULL);
}

static bool test_escaped(llm_tpl_call *c, llm_tpl_value *out) {
    return give(out, c->self->kind == LLM_TPL_STRING && c->self->is_markup);
}

static const llm_tpl_builtin tests[] = {
    {"!=", "other", test_ne},
    {"<", "other", test_lt},
    {"<=", "other", test_le},
    {"==", "other", test_eq},
    {">", "other", test_gt},
    {">=", "other", test_ge},
    {"boolean", "", test_boolean},
    {"callable", "", test_callable},
    {"defined", "", test_defined},
    {"divisibleby", "num", test_divisibleby},
    {"eq", "other", test_eq},
    {"equalto", "other", test_eq},
    {"escaped", "", test_escaped},
    {"even", "", test_even},
    {"false", "", test_false},
    {"filter", "", test_filter},
    {"float", "", test_float},
    {"ge", "other", test_ge},
    {"greaterthan", "other", test_gt},
    {"gt", "other", test_gt},
    {"in", "seq", test_in},
    {"integer", "", test_integer},
    {"iterable", "", test_iterable},
    {"le", "other", test_le},
    {"lessthan", "other", test_lt},
    {"lower", "", test_lower},
    {"lt", "other", test_lt},
    {"mapping", "", test_mapping},
    {"ne", "other", test_ne},
    {"none", "", test_none},
    {"number", "", test_number},
    {"odd", "", test_odd},
    {"sameas", "other", test_sameas},
    {"sequence", "", test_sequence},
    {"string", "", test_string},
    {"test", "", test_test},
    {"true", "", test_true},
    {"undefined", "", test_undefined},
    {"upper", "", test_upper},
};

const llm_tpl_builtin *llm_tpl_test_find(llm_tpl_str name) {
    return llm_tpl_builtin_find(tests, sizeof tests / sizeof tests[0], name);
}

bool llm_tpl_test_run(llm_tpl_job *job, llm_tpl_str name, const llm_tpl_value *self,
                      const llm_tpl_args *args, bool *out) {
    const llm_tpl_builtin *test = llm_tpl_test_find(name);
    llm_tpl_value value;
    if (test == NULL)
        return llm_tpl_fail(job, TDM_UNSUPPORTED, "there is no test '%.*s'",
                            (int)(name.len < 64 ? name.len : 64), name.ptr);
    if (!llm_tpl_builtin_run(job, test, self, args, &value)) return false;
    *out = value.as.truth;
    return true;
}
