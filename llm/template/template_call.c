/* SPDX-License-Identifier: MIT
 *
 * template_call.c: scopes, arguments and calls.
 */
#include <string.h>

#include "llm/template/template_render.h"

/* ---- Scopes ---- */

bool llm_tpl_scope_open(llm_tpl_job *job, llm_tpl_scope *parent) {
    llm_tpl_scope *scope = llm_tpl_alloc(job, 1, sizeof *scope);
    if (scope == NULL) return false;
    scope->parent = parent;
    job->scope = scope;
    return true;
}

bool llm_tpl_assign(llm_tpl_job *job, llm_tpl_str name, llm_tpl_value value) {
    llm_tpl_scope *scope = job->scope;
    for (size_t i = 0; i < scope->n; i++)
        if (llm_tpl_str_same(scope->bindings[i].name, name)) {
            scope->bindings[i].value = value;
            return true;
        }
    if (scope->n == scope->capacity) {
        size_t capacity = scope->capacity == 0 ? 4 : scope->capacity * 2;
        struct llm_tpl_binding *bindings = llm_tpl_alloc(job, capacity, sizeof *bindings);
        if (bindings == NULL) return false;
        if (scope->n > 0) memcpy(bindings, scope->bindings, scope->n * sizeof *bindings);
        scope->bindings = bindings;
        scope->capacity = capacity;
    }
    scope->bindings[scope->n++] = (struct llm_tpl_binding){name, value};
    return llm_tpl_step(job, scope->n);
}

llm_tpl_value llm_tpl_lookup(llm_tpl_job *job, llm_tpl_str name) {
    for (const llm_tpl_scope *scope = job->scope; scope != NULL; scope = scope->parent) {
        llm_tpl_step(job, 1 + scope->n / 4);
        for (size_t i = 0; i < scope->n; i++)
            if (llm_tpl_str_same(scope->bindings[i].name, name)) return scope->bindings[i].value;
    }
    const llm_tpl_builtin *function = llm_tpl_function_find(name);
    if (function == NULL) return llm_tpl_undefined(name);
    return (llm_tpl_value){.kind = LLM_TPL_FUNCTION, .as.function = function};
}

/* ---- Arguments ---- */

bool llm_tpl_args_eval(llm_tpl_job *job, const llm_tpl_node *list, llm_tpl_args *args) {
    *args = (llm_tpl_args){0};
    for (const llm_tpl_node *node = list; node != NULL; node = node->next) {
        args->n++;
        args->n_named += node->kind == LLM_TPL_NODE_KEYWORD;
    }
    if (args->n == 0) return true;
    args->items = llm_tpl_alloc(job, args->n, sizeof *args->items);
    args->names = llm_tpl_alloc(job, args->n_named + 1, sizeof *args->names);
    if (args->items == NULL || args->names == NULL) return false;
    size_t i = 0, name = 0;
    for (const llm_tpl_node *node = list; node != NULL; node = node->next) {
        bool is_named = node->kind == LLM_TPL_NODE_KEYWORD;
        if (is_named) args->names[name++] = node->text;
        if (!llm_tpl_eval(job, is_named ? node->a : node, &args->items[i++])) return false;
    }
    return true;
}

llm_tpl_args llm_tpl_args_behind(const llm_tpl_args *args, size_t n) {
    llm_tpl_args rest = *args;
    size_t n_plain = args->n - args->n_named;
    if (n > n_plain) n = n_plain;
    if (n > 0) rest.items += n;
    rest.n -= n;
    return rest;
}

/* The index of `name` among the words of `params`; -1 = none. */
static int param_find(const char *params, llm_tpl_str name) {
    for (int i = 0; *params != '\0'; i++) {
        size_t n = strcspn(params, " ");
        if (llm_tpl_str_same((llm_tpl_str){params, n}, name)) return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static size_t params_count(const char *params) {
    size_t n = *params != '\0';
    for (; *params != '\0'; params++) n += *params == ' ';
    return n;
}

static bool args_bind(const llm_tpl_builtin *builtin, llm_tpl_call *call) {
    const llm_tpl_args *args = call->args;
    size_t n_plain = args->n - args->n_named;
    if (n_plain > params_count(builtin->params))
        return llm_tpl_fail(call->job, TDM_INVALID_ARGUMENT, "%s takes %zu arguments, not %zu",
                            builtin->name, params_count(builtin->params), n_plain);
    for (size_t i = 0; i < n_plain; i++) call->argv[i] = args->items[i];
    for (size_t i = 0; i < args->n_named; i++) {
        int at = param_find(builtin->params, args->names[i]);
        if (at < 0 || call->argv[at].kind != LLM_TPL_ABSENT)
            return llm_tpl_fail(call->job, TDM_INVALID_ARGUMENT, "%s takes no argument '%.*s'%s",
                                builtin->name,
                                (int)(args->names[i].len < 64 ? args->names[i].len : 64),
                                args->names[i].ptr, at < 0 ? "" : " twice");
        call->argv[at] = args->items[n_plain + i];
    }
    return true;
}

bool llm_tpl_builtin_run(llm_tpl_job *job, const llm_tpl_builtin *builtin,
                         const llm_tpl_value *self, const llm_tpl_args *args, llm_tpl_value *out) {
    llm_tpl_call call = {.job = job, .self = self, .args = args};
    if (!llm_tpl_step(job, 1)) return false;
    if (strcmp(builtin->params, "*") != 0 && !args_bind(builtin, &call)) return false;
    *out = llm_tpl_none();
    return builtin->run(&call, out);
}

const llm_tpl_builtin *llm_tpl_builtin_find(const llm_tpl_builtin *table, size_t n,
                                            llm_tpl_str name) {
    for (size_t i = 0; i < n; i++)
        if (llm_tpl_str_is(name, table[i].name)) return &table[i];
    return NULL;
}

bool llm_tpl_arg_int(llm_tpl_call *call, size_t i, int64_t fallback, int64_t *out) {
    const llm_tpl_value *value = &call->argv[i];
    *out = fallback;
    if (value->kind == LLM_TPL_ABSENT) return true;
    if (value->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(call->job, value);
    if (value->kind != LLM_TPL_INT && value->kind != LLM_TPL_BOOL)
        return llm_tpl_fail(call->job, TDM_INVALID_ARGUMENT, "argument %zu is a %s, not an int",
                            i + 1, llm_tpl_kind_name(value));
    *out = llm_tpl_as_int(value);
    return true;
}

bool llm_tpl_arg_text(llm_tpl_call *call, size_t i, llm_tpl_str fallback, llm_tpl_str *out) {
    const llm_tpl_value *value = &call->argv[i];
    *out = fallback;
    if (value->kind == LLM_TPL_ABSENT || value->kind == LLM_TPL_NONE) return true;
    if (value->kind == LLM_TPL_UNDEFINED) return llm_tpl_fail_undefined(call->job, value);
    if (value->kind != LLM_TPL_STRING)
        return llm_tpl_fail(call->job, TDM_INVALID_ARGUMENT, "argument %zu is a %s, not a str",
                            i + 1, llm_tpl_kind_name(value));
    *out = value->as.text;
    return true;
}

bool llm_tpl_arg_true(const llm_tpl_call *call, size_t i) {
    return llm_tpl_is_true(&call->argv[i]);
}

/* ---- Macros ---- */

/* Binds the arguments without a parameter: `caller`, `varargs` and `kwargs`. */
static bool extras_assign(llm_tpl_job *job, const llm_tpl_args *args, const bool *used) {
    llm_tpl_value varargs, kwargs, caller = llm_tpl_undefined(llm_tpl_str_of("caller"));
    size_t n_plain = args->n - args->n_named;
    if (!llm_tpl_list_make(job, LLM_TPL_TUPLE, &varargs) || !llm_tpl_dict_make(job, &kwargs))
        return false;
    for (size_t i = 0; i < args->n; i++) {
        bool ok = true;
        if (used[i]) continue;
        if (i < n_plain)
            ok = llm_tpl_list_push(job, varargs.as.list, args->items[i]);
        else if (llm_tpl_str_is(args->names[i - n_plain], "caller"))
            caller = args->items[i];
        else
            ok = llm_tpl_dict_set(job, kwargs.as.dict, llm_tpl_string(args->names[i - n_plain]),
                                  args->items[i]);
        if (!ok) return false;
    }
    return llm_tpl_assign(job, llm_tpl_str_of("varargs"), varargs) &&
           llm_tpl_assign(job, llm_tpl_str_of("kwargs"), kwargs) &&
           llm_tpl_assign(job, llm_tpl_str_of("caller"), caller);
}

static bool params_assign(llm_tpl_job *job, const llm_tpl_node *macro, const llm_tpl_args *args) {
    size_t n_plain = args->n - args->n_named, place = 0;
    bool *used = llm_tpl_alloc(job, args->n + 1, sizeof *used);
    if (used == NULL) return false;
    for (const llm_tpl_node *param = macro->list; param != NULL; param = param->next, place++) {
        llm_tpl_value value = llm_tpl_undefined(param->text);
        bool is_given = place < n_plain;
        if (is_given) {
            value = args->items[place];
            used[place] = true;
        }
        for (size_t i = 0; i < args->n_named && !is_given; i++) {
            if (!llm_tpl_str_same(args->names[i], param->text)) continue;
            value = args->items[n_plain + i];
            used[n_plain + i] = is_given = true;
        }
        if (!is_given && param->a != NULL && !llm_tpl_eval(job, param->a, &value)) return false;
        if (!llm_tpl_assign(job, param->text, value)) return false;
    }
    return extras_assign(job, args, used);
}

static bool macro_run(llm_tpl_job *job, const llm_tpl_macro *macro, const llm_tpl_args *args,
                      llm_tpl_value *out) {
    llm_tpl_scope *scope = job->scope;
    llm_tpl_str text = {NULL, 0};
    bool ok = llm_tpl_scope_open(job, macro->scope) && params_assign(job, macro->node, args) &&
              llm_tpl_exec_text(job, macro->node->body, &text);
    job->scope = scope;
    *out = llm_tpl_string(text);
    return ok;
}

bool llm_tpl_call_value(llm_tpl_job *job, const llm_tpl_value *callee, const llm_tpl_args *args,
                        llm_tpl_value *out) {
    switch (callee->kind) {
    case LLM_TPL_MACRO: return macro_run(job, callee->as.macro, args, out);
    case LLM_TPL_FUNCTION: return llm_tpl_builtin_run(job, callee->as.function, NULL, args, out);
    case LLM_TPL_METHOD: {
        const llm_tpl_value *self = &callee->as.method->self;
        return llm_tpl_builtin_run(job, llm_tpl_method_find(self, callee->as.method->name), self,
                                   args, out);
    }
    case LLM_TPL_UNDEFINED: return llm_tpl_fail_undefined(job, callee);
    default:
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "a %s cannot be called",
                            llm_tpl_kind_name(callee));
    }
}
