/* SPDX-License-Identifier: MIT
 *
 * template_render.h: the interpreter: scopes, calls, and the tables of builtins. template_eval.c
 * evaluates expressions, template_exec.c runs statements, template_call.c makes calls. Filters,
 * tests, methods and functions are a table each, in the file of that name.
 */
#ifndef LLM_TEMPLATE_RENDER_H
#define LLM_TEMPLATE_RENDER_H

#include "llm/template/template_parser.h"
#include "llm/template/template_text.h"

/* ---- Scopes ---- */

typedef struct llm_tpl_scope {
    struct llm_tpl_scope *parent; /* NULL = this is the outermost: the context */
    struct llm_tpl_binding {
        llm_tpl_str name;
        llm_tpl_value value;
    } * bindings; /* [n] */
    size_t n, capacity;
} llm_tpl_scope;

/* Opens a scope inside `parent` and makes it the job's. The caller sets job->scope back. */
bool llm_tpl_scope_open(llm_tpl_job *job, llm_tpl_scope *parent);
/* Sets a name in the innermost scope. */
bool llm_tpl_assign(llm_tpl_job *job, llm_tpl_str name, llm_tpl_value value);
/* The value of a name: in the innermost scope that has it, else a function, else undefined. */
llm_tpl_value llm_tpl_lookup(llm_tpl_job *job, llm_tpl_str name);

/* ---- Running ---- */

/* Evaluates an expression. */
bool llm_tpl_eval(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out);
/* Runs statements; their text goes to job->out. */
bool llm_tpl_exec(llm_tpl_job *job, const llm_tpl_node *body);
/* Reads items of the source until the loop has n that meet its condition, or the source ends. */
bool llm_tpl_loop_read(llm_tpl_job *job, llm_tpl_loop *loop, size_t n);
/* The value of loop.length. A loop with a condition, or over a lazy list, reads all items for
 * it. */
bool llm_tpl_loop_length(llm_tpl_job *job, llm_tpl_loop *loop, int64_t *n_out);
/* Runs statements in a new inner scope and returns their text. */
bool llm_tpl_exec_text(llm_tpl_job *job, const llm_tpl_node *body, llm_tpl_str *out);

/* value.name and value[key]. A missing one is undefined; one of an undefined value is a failure. */
bool llm_tpl_attribute(llm_tpl_job *job, const llm_tpl_value *value, llm_tpl_str name,
                       llm_tpl_value *out);
bool llm_tpl_item(llm_tpl_job *job, const llm_tpl_value *value, const llm_tpl_value *key,
                  llm_tpl_value *out);
/* Python's `in`. */
bool llm_tpl_contains(llm_tpl_job *job, const llm_tpl_value *value, const llm_tpl_value *item,
                      bool *out);
/* a op b; `op` as in LLM_TPL_NODE_BINARY. */
bool llm_tpl_operate(llm_tpl_job *job, int op, const llm_tpl_value *a, const llm_tpl_value *b,
                     llm_tpl_value *out);

/* ---- Calls ---- */

typedef struct llm_tpl_args {
    llm_tpl_value *items; /* [n] positional ones first */
    llm_tpl_str *names;   /* [n_named] names of the last ones */
    size_t n, n_named;
} llm_tpl_args;

/* Evaluates the arguments of a call: the list of a CALL, FILTER or TEST. */
bool llm_tpl_args_eval(llm_tpl_job *job, const llm_tpl_node *list, llm_tpl_args *args);
/* Calls a macro, function or method. */
bool llm_tpl_call_value(llm_tpl_job *job, const llm_tpl_value *callee, const llm_tpl_args *args,
                        llm_tpl_value *out);

#define LLM_TPL_PARAMS_MAX 6

/* A call of a builtin. */
typedef struct llm_tpl_call {
    llm_tpl_job *job;
    const llm_tpl_value *self;              /* the operand of a filter, test or method */
    llm_tpl_value argv[LLM_TPL_PARAMS_MAX]; /* in the order of the parameters; ABSENT = not given */
    const llm_tpl_args *args;               /* all, as given */
} llm_tpl_call;

typedef struct llm_tpl_builtin {
    const char *name;
    const char *params; /* names separated by blanks; "*" = any, read from `args` */
    bool (*run)(llm_tpl_call *call, llm_tpl_value *out);
} llm_tpl_builtin;

/* Puts the arguments into the order of the parameters and runs the builtin. Fails for too many
 * arguments, an unknown name, or one that is given twice. */
bool llm_tpl_builtin_run(llm_tpl_job *job, const llm_tpl_builtin *builtin,
                         const llm_tpl_value *self, const llm_tpl_args *args, llm_tpl_value *out);
/* The entry of that name among `n`, or NULL. */
const llm_tpl_builtin *llm_tpl_builtin_find(const llm_tpl_builtin *table, size_t n,
                                            llm_tpl_str name);
/* The arguments after the first `n` positional ones. */
llm_tpl_args llm_tpl_args_behind(const llm_tpl_args *args, size_t n);

/* Run a filter or test by name; fail if there is none. */
bool llm_tpl_filter_run(llm_tpl_job *job, llm_tpl_str name, const llm_tpl_value *self,
                        const llm_tpl_args *args, llm_tpl_value *out);
bool llm_tpl_test_run(llm_tpl_job *job, llm_tpl_str name, const llm_tpl_value *self,
                      const llm_tpl_args *args, bool *out);
/* NULL = there is none of that name. */
const llm_tpl_builtin *llm_tpl_method_find(const llm_tpl_value *self, llm_tpl_str name);
const llm_tpl_builtin *llm_tpl_function_find(llm_tpl_str name);
const llm_tpl_builtin *llm_tpl_filter_find(llm_tpl_str name);
const llm_tpl_builtin *llm_tpl_list_filter_find(llm_tpl_str name); /* of template_filter_list.c */
const llm_tpl_builtin *llm_tpl_test_find(llm_tpl_str name);

/* ---- Arguments ---- */

/* Argument i as an int or text; `fallback` if it was not given (for texts, also if it is none). A
 * failure, for a value of another kind, names the position of the parameter. */
bool llm_tpl_arg_int(llm_tpl_call *call, size_t i, int64_t fallback, int64_t *out);
bool llm_tpl_arg_text(llm_tpl_call *call, size_t i, llm_tpl_str fallback, llm_tpl_str *out);
bool llm_tpl_arg_true(const llm_tpl_call *call, size_t i); /* false if not given */
/* Adds the lines of a text to a list, without their ends. */
bool llm_tpl_split_lines(llm_tpl_job *job, llm_tpl_str text, llm_tpl_list *lines);

#endif
