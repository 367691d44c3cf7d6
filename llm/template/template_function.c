/* SPDX-License-Identifier: MIT
 *
 * template_function.c: the global functions: Jinja's range, dict and namespace, and raise_exception
 * and strftime_now of chat templates.
 */
#include <time.h>

#include "llm/template/template_render.h"

static bool function_range(llm_tpl_call *c, llm_tpl_value *out) {
    int64_t from = 0, to, step;
    if (c->argv[0].kind == LLM_TPL_ABSENT)
        return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "range needs an end");
    if (!llm_tpl_arg_int(c, 0, 0, &to) || !llm_tpl_arg_int(c, 2, 1, &step)) return false;
    if (c->argv[1].kind != LLM_TPL_ABSENT) {
        from = to;
        if (!llm_tpl_arg_int(c, 1, 0, &to)) return false;
    }
    if (step == 0) return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "range: a step of 0");
    if (!llm_tpl_list_make(c->job, LLM_TPL_PLAIN, out)) return false;
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (out->as.list->n == LLM_TPL_RANGE_MAX)
            return llm_tpl_fail(c->job, TDM_OUT_OF_RANGE, "range: more than %d numbers",
                                LLM_TPL_RANGE_MAX);
        if (!llm_tpl_list_push(c->job, out->as.list, llm_tpl_int(i))) return false;
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return true;
}

/* Creates a dict from a dict, from pairs or from nothing, and from named arguments. */
static bool dict_fill(llm_tpl_call *c, llm_tpl_value *out) {
    const llm_tpl_args *args = c->args;
    size_t n_plain = args->n - args->n_named;
    if (!llm_tpl_dict_make(c->job, out)) return false;
    if (n_plain > 1) return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "takes one argument");
    if (n_plain == 1 && args->items[0].kind == LLM_TPL_DICT) {
        const llm_tpl_dict *from = args->items[0].as.dict;
        for (size_t i = 0; i < from->n; i++)
            if (!llm_tpl_dict_set(c->job, out->as.dict, from->pairs[i].key, from->pairs[i].value))
                return false;
    } else if (n_plain == 1) {
        llm_tpl_list *pairs;
        if (!llm_tpl_iterate(c->job, &args->items[0], &pairs)) return false;
        for (size_t i = 0; i < pairs->n; i++) {
            const llm_tpl_value *pair = &pairs->items[i];
            if (pair->kind != LLM_TPL_LIST || pair->as.list->n != 2)
                return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "dict needs pairs");
            if (!llm_tpl_dict_set(c->job, out->as.dict, pair->as.list->items[0],
                                  pair->as.list->items[1]))
                return false;
        }
    }
    for (size_t i = 0; i < args->n_named; i++)
        if (!llm_tpl_dict_set(c->job, out->as.dict, llm_tpl_string(args->names[i]),
                              args->items[n_plain + i]))
            return false;
    return true;
}

static bool function_dict(llm_tpl_call *c, llm_tpl_value *out) {
    return dict_fill(c, out);
}

static bool function_namespace(llm_tpl_call *c, llm_tpl_value *out) {
    if (!dict_fill(c, out)) return false;
    out->kind = LLM_TPL_NAMESPACE;
    return true;
}

static bool function_raise(llm_tpl_call *c, llm_tpl_value *out) {
    llm_tpl_str text;
    (void)out;
    if (!llm_tpl_to_text(c->job, &c->argv[0], &text)) return false;
    return llm_tpl_fail(c->job, TDM_INVALID_ARGUMENT, "%.*s",
                        (int)(text.len < 300 ? text.len : 300), text.len > 0 ? text.ptr : "");
}

static bool function_now(llm_tpl_call *c, llm_tpl_value *out) {
    char format[128], text[512];
    llm_tpl_str wanted;
    time_t now = (time_t)c->job->now;
    struct tm local;
    if (!llm_tpl_arg_text(c, 0, (llm_tpl_str){"", 0}, &wanted)) return false;
    if (wanted.len >= sizeof format)
        return llm_tpl_fail(c->job, TDM_OUT_OF_RANGE, "strftime_now: the format is too long");
    if (localtime_r(&now, &local) == NULL)
        return llm_tpl_fail(c->job, TDM_OUT_OF_RANGE, "strftime_now: the time has no date");
    snprintf(format, sizeof format, "%.*s", (int)wanted.len, wanted.len > 0 ? wanted.ptr : "");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, format, &local);
#pragma GCC diagnostic pop
    llm_tpl_buffer buffer = {0};
    if (!llm_tpl_put(c->job, &buffer, (llm_tpl_str){text, n})) return false;
    *out = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    return true;
}

static const llm_tpl_builtin functions[] = {
    {"dict", "*", function_dict},
    {"namespace", "*", function_namespace},
    {"raise_exception", "message", function_raise},
    {"range", "start stop step", function_range},
    {"strftime_now", "format", function_now},
};

const llm_tpl_builtin *llm_tpl_function_find(llm_tpl_str name) {
    return llm_tpl_builtin_find(functions, sizeof functions / sizeof functions[0], name);
}
