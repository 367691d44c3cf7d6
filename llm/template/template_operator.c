/* SPDX-License-Identifier: MIT
 *
 * template_operator.c: + - * / // % ** and `in`, as in Python. Integers have 64 bits; a result that
 * needs more is a failure.
 */
#include <math.h>
#include <string.h>

#include "llm/template/template_render.h"

static bool too_large(llm_tpl_job *job) {
    return llm_tpl_fail(job, TDM_OUT_OF_RANGE, "a whole number of more than 64 bits");
}

static bool power(llm_tpl_job *job, int64_t base, int64_t exponent, int64_t *out) {
    int64_t result = 1;
    for (; exponent > 0; exponent--) {
        if (base == 0 || base == 1) {
            result = base;
            break;
        }
        if (base == -1) {
            result = exponent % 2 == 0 ? result : -result;
            break;
        }
        if (__builtin_mul_overflow(result, base, &result)) return too_large(job);
    }
    *out = result;
    return true;
}

/* The remainder with the sign of b, b not 0. */
static double real_remainder(double a, double b) {
    const double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

/* The quotient rounded down. It is found from the remainder: a / b may be rounded up to a whole
 * number. */
static double real_quotient(double a, double b) {
    const double r = fmod(a, b), whole = (a - r) / b;
    const double quotient = r != 0 && (r < 0) != (b < 0) ? whole - 1 : whole;
    return quotient == 0 ? copysign(0, a / b) : nearbyint(quotient);
}

static bool real_power(llm_tpl_job *job, double a, double b, double *out) {
    *out = pow(a, b);
    return isfinite(*out) || !isfinite(a) || !isfinite(b) ||
           llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "%g ** %g is no number that a float can hold", a,
                        b);
}

static bool reals_operate(llm_tpl_job *job, int op, double a, double b, llm_tpl_value *out) {
    double r = 0;
    switch (op) {
    case '+': r = a + b; break;
    case '-': r = a - b; break;
    case '*': r = a * b; break;
    case '/': r = a / b; break;
    case '%': r = real_remainder(a, b); break;
    case '/' + LLM_TPL_OP_DOUBLE: r = real_quotient(a, b); break;
    default:
        if (!real_power(job, a, b, &r)) return false;
    }
    *out = llm_tpl_float(r);
    return true;
}

static bool ints_operate(llm_tpl_job *job, int op, int64_t a, int64_t b, llm_tpl_value *out) {
    int64_t r = 0;
    bool is_over = false;
    switch (op) {
    case '+': is_over = __builtin_add_overflow(a, b, &r); break;
    case '-': is_over = __builtin_sub_overflow(a, b, &r); break;
    case '*': is_over = __builtin_mul_overflow(a, b, &r); break;
    case '/': *out = llm_tpl_float((double)a / (double)b); return true;
    case '%':
    case '/' + LLM_TPL_OP_DOUBLE: /* the quotient rounded down, and its remainder */
        if (b == -1) {
            is_over = op != '%' && __builtin_sub_overflow(0, a, &r);
            break;
        }
        r = a % b;
        if (r != 0 && (r < 0) != (b < 0)) r += b;
        if (op != '%') r = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    default:
        if (b < 0) return reals_operate(job, op, (double)a, (double)b, out);
        if (!power(job, a, b, &r)) return false;
    }
    *out = llm_tpl_int(r);
    return !is_over || too_large(job);
}

/* A text or list repeated. */
static bool repeat(llm_tpl_job *job, const llm_tpl_value *what, int64_t n, llm_tpl_value *out) {
    if (what->kind == LLM_TPL_STRING) {
        llm_tpl_buffer buffer = {0};
        for (int64_t i = 0; i < n && what->as.text.len > 0; i++)
            if (!llm_tpl_put(job, &buffer, what->as.text)) return false;
        *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
        return true;
    }
    const llm_tpl_list *list = what->as.list;
    if (!llm_tpl_list_make(job, list->flavor, out)) return false;
    for (int64_t i = 0; i < n && list->n > 0; i++)
        for (size_t k = 0; k < list->n; k++)
            if (!llm_tpl_list_push(job, out->as.list, list->items[k])) return false;
    return true;
}

static bool lists_join(llm_tpl_job *job, const llm_tpl_list *a, const llm_tpl_list *b,
                       llm_tpl_value *out) {
    if (!llm_tpl_list_make(job, a->flavor, out)) return false;
    for (size_t i = 0; i < a->n + b->n; i++)
        if (!llm_tpl_list_push(job, out->as.list, i < a->n ? a->items[i] : b->items[i - a->n]))
            return false;
    return true;
}

/* Of a marked and an unmarked text the unmarked one is escaped, and the result is marked. */
static bool texts_join(llm_tpl_job *job, const llm_tpl_value *a, const llm_tpl_value *b,
                       llm_tpl_value *out) {
    llm_tpl_buffer buffer = {0};
    const bool is_markup = a->is_markup || b->is_markup;
    const llm_tpl_value *const parts[] = {a, b};
    for (size_t i = 0; i < 2; i++) {
        const bool is_escaped = is_markup && !parts[i]->is_markup;
        if (!(is_escaped ? llm_tpl_put_escaped(job, &buffer, parts[i]->as.text)
                         : llm_tpl_put(job, &buffer, parts[i]->as.text)))
            return false;
    }
    *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    out->is_markup = is_markup;
    return true;
}

static bool is_sequence(const llm_tpl_value *value) {
    return value->kind == LLM_TPL_STRING ||
           (value->kind == LLM_TPL_LIST && value->as.list->flavor != LLM_TPL_LAZY);
}

static bool format(llm_tpl_job *job, llm_tpl_str text, const llm_tpl_value *args,
                   llm_tpl_value *out) {
    bool is_tuple = args->kind == LLM_TPL_LIST && args->as.list->flavor == LLM_TPL_TUPLE;
    llm_tpl_str made;
    if (!llm_tpl_text_format(job, text, is_tuple ? args->as.list->items : args,
                             is_tuple ? args->as.list->n : 1, &made))
        return false;
    *out = llm_tpl_string(made);
    return true;
}

bool llm_tpl_operate(llm_tpl_job *job, int op, const llm_tpl_value *a, const llm_tpl_value *b,
                     llm_tpl_value *out) {
    if (llm_tpl_is_number(a) && llm_tpl_is_number(b)) {
        bool is_divided = op == '/' || op == '%' || op == '/' + LLM_TPL_OP_DOUBLE;
        if (is_divided && llm_tpl_as_real(b) == 0)
            return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a division by zero");
        if (a->kind == LLM_TPL_FLOAT || b->kind == LLM_TPL_FLOAT)
            return reals_operate(job, op, llm_tpl_as_real(a), llm_tpl_as_real(b), out);
        return ints_operate(job, op, llm_tpl_as_int(a), llm_tpl_as_int(b), out);
    }
    if (a->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(job, a);
    if (op == '%' && a->kind == LLM_TPL_STRING) return format(job, a->as.text, b, out);
    if (b->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(job, b);
    if (op == '+' && a->kind == LLM_TPL_STRING && b->kind == LLM_TPL_STRING)
        return texts_join(job, a, b, out);
    if (op == '+' && a->kind == LLM_TPL_LIST && b->kind == LLM_TPL_LIST &&
        a->as.list->flavor == b->as.list->flavor && a->as.list->flavor != LLM_TPL_LAZY)
        return lists_join(job, a->as.list, b->as.list, out);
    if (op == '*' && is_sequence(a) && llm_tpl_is_number(b) && b->kind != LLM_TPL_FLOAT)
        return repeat(job, a, llm_tpl_as_int(b), out);
    if (op == '*' && is_sequence(b) && llm_tpl_is_number(a) && a->kind != LLM_TPL_FLOAT)
        return repeat(job, b, llm_tpl_as_int(a), out);
    return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s and a %s cannot be joined by '%c%s'",
                        llm_tpl_kind_name(a), llm_tpl_kind_name(b), op & 127,
                        op >= LLM_TPL_OP_DOUBLE ? (op & 127) == '*' ? "*" : "/" : "");
}

bool llm_tpl_contains(llm_tpl_job *job, const llm_tpl_value *value, const llm_tpl_value *item,
                      bool *out) {
    llm_tpl_list *list = NULL;
    *out = false;
    if (value->kind == LLM_TPL_STRING) {
        if (item->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(job, item);
        if (item->kind != LLM_TPL_STRING)
            return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s cannot be in a str",
                                llm_tpl_kind_name(item));
        *out = llm_tpl_text_find(value->as.text, item->as.text, 0) != SIZE_MAX;
        return llm_tpl_step(job, 1 + value->as.text.len / 64);
    }
    if (value->kind == LLM_TPL_DICT) {
        *out = llm_tpl_dict_get(value->as.dict, item) != NULL;
        return true;
    }
    if (!llm_tpl_iterate(job, value, &list)) return false;
    for (size_t i = 0; i < list->n && !*out; i++) {
        if (!llm_tpl_step(job, 1)) return false;
        *out = llm_tpl_equals(job, &list->items[i], item);
    }
    return true;
}
