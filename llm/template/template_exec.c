/* SPDX-License-Identifier: MIT
 *
 * template_exec.c: runs statements. As in Jinja, a for, a macro and each block that captures text
 * have a scope of their own; an if has none.
 */
#include <string.h>

#include "llm/template/template_render.h"

/* How a body ended: at its end, by a jump, or by a failure. */
typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED } flow;

static flow body_run(llm_tpl_job *job, const llm_tpl_node *body);

static flow flow_of(bool ok) {
    return ok ? FLOW_NEXT : FLOW_FAILED;
}

/* ---- Assignments ---- */

static bool target_assign(llm_tpl_job *job, const llm_tpl_node *target,
                          const llm_tpl_value *value) {
    if (target->kind == LLM_TPL_NODE_NAME) return llm_tpl_assign(job, target->text, *value);
    llm_tpl_list *items = NULL;
    if (target->kind == LLM_TPL_NODE_ATTR) {
        llm_tpl_value owner = llm_tpl_lookup(job, target->a->text);
        if (owner.kind != LLM_TPL_NAMESPACE)
            return llm_tpl_fail(job, TDM_INVALID_ARGUMENT,
                                "only a namespace has attributes that can be set");
        return llm_tpl_dict_set(job, owner.as.dict, llm_tpl_string(target->text), *value);
    }
    size_t n = 0;
    for (const llm_tpl_node *item = target->list; item != NULL; item = item->next) n++;
    if (!llm_tpl_iterate(job, value, &items)) return false;
    if (items->n != n)
        return llm_tpl_fail(job, TDM_INVALID_ARGUMENT, "%zu values for %zu names", items->n, n);
    n = 0;
    for (const llm_tpl_node *item = target->list; item != NULL; item = item->next)
        if (!target_assign(job, item, &items->items[n++])) return false;
    return true;
}

static bool set_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value value;
    return llm_tpl_eval(job, node->b, &value) && target_assign(job, node->a, &value);
}

/* Applies the chain of filters of a block to *value, the text of the block: the innermost filter
 * first. */
static bool chain_run(llm_tpl_job *job, const llm_tpl_node *chain, llm_tpl_value *value) {
    llm_tpl_args args;
    llm_tpl_value self;
    if (chain == NULL) return true;
    if (!chain_run(job, chain->a, value) || !llm_tpl_args_eval(job, chain->list, &args))
        return false;
    self = *value;
    return llm_tpl_filter_run(job, chain->text, &self, &args, value);
}

static bool block_text(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_str text;
    if (!llm_tpl_exec_text(job, node->body, &text)) return false;
    *out = llm_tpl_string(text);
    return chain_run(job, node->b, out);
}

static bool set_block_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value value;
    return block_text(job, node, &value) && target_assign(job, node->a, &value);
}

static bool filter_block_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value value;
    return block_text(job, node, &value) && llm_tpl_put_value(job, job->out, &value);
}

/* ---- Loops ---- */

static bool condition_meet(llm_tpl_job *job, const llm_tpl_loop *loop, const llm_tpl_value *item,
                           bool *meets_out) {
    llm_tpl_scope *scope = job->scope;
    llm_tpl_value test = {.kind = LLM_TPL_BOOL, .as.truth = true};
    bool ok = loop->node->c == NULL ||
              (llm_tpl_scope_open(job, loop->scope) && target_assign(job, loop->node->a, item) &&
               llm_tpl_eval(job, loop->node->c, &test));
    job->scope = scope;
    *meets_out = ok && llm_tpl_is_true(&test);
    return ok;
}

bool llm_tpl_loop_read(llm_tpl_job *job, llm_tpl_loop *loop, size_t n) {
    while (loop->items->n < n && !loop->is_at_end) {
        bool meets;
        loop->is_at_end = loop->n_read >= loop->source->n;
        if (loop->is_at_end) break;
        const llm_tpl_value item = loop->source->items[loop->n_read++];
        if (!condition_meet(job, loop, &item, &meets) ||
            (meets && !llm_tpl_list_push(job, loop->items, item)))
            return false;
    }
    return true;
}

bool llm_tpl_loop_length(llm_tpl_job *job, llm_tpl_loop *loop, int64_t *n_out) {
    if (loop->length < 0) {
        bool is_counted = loop->node->c == NULL && loop->source->flavor != LLM_TPL_LAZY;
        if (!is_counted && !llm_tpl_loop_read(job, loop, SIZE_MAX)) return false;
        loop->length = (int64_t)(is_counted ? loop->source->n : loop->items->n);
    }
    *n_out = loop->length;
    return true;
}

static llm_tpl_loop *loop_make(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value value, items;
    llm_tpl_list *source;
    llm_tpl_loop *loop = llm_tpl_alloc(job, 1, sizeof *loop);
    if (loop == NULL || !llm_tpl_eval(job, node->b, &value) ||
        !llm_tpl_iterate(job, &value, &source) || !llm_tpl_list_make(job, LLM_TPL_PLAIN, &items))
        return NULL;
    loop->node = node;
    loop->scope = job->scope;
    loop->source = source;
    loop->items = items.as.list;
    loop->length = -1;
    return loop;
}

static flow for_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_scope *scope = job->scope;
    llm_tpl_loop *loop = loop_make(job, node);
    if (loop == NULL) return FLOW_FAILED;
    llm_tpl_value value = {.kind = LLM_TPL_LOOP, .as.loop = loop};
    for (;; loop->index++) {
        flow how = FLOW_FAILED;
        if (!llm_tpl_loop_read(job, loop, loop->index + 1)) return FLOW_FAILED;
        if (loop->index >= loop->items->n) break;
        if (llm_tpl_scope_open(job, scope) && llm_tpl_assign(job, llm_tpl_str_of("loop"), value) &&
            target_assign(job, node->a, &loop->items->items[loop->index]))
            how = body_run(job, node->body);
        job->scope = scope;
        if (how == FLOW_FAILED) return how;
        if (how == FLOW_BREAK) break;
    }
    if (loop->items->n > 0) return FLOW_NEXT;
    if (!llm_tpl_scope_open(job, scope)) return FLOW_FAILED;
    flow how = body_run(job, node->other);
    job->scope = scope;
    return how;
}

/* ---- Other statements ---- */

static flow if_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value test;
    for (;;) {
        if (!llm_tpl_eval(job, node->a, &test)) return FLOW_FAILED;
        if (llm_tpl_is_true(&test)) return body_run(job, node->body);
        /* a chain of elif needs no recursion */
        if (node->other == NULL || node->other->kind != LLM_TPL_NODE_IF ||
            node->other->next != NULL)
            return body_run(job, node->other);
        node = node->other;
    }
}

static flow with_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_scope *scope = job->scope, *made;
    llm_tpl_value value;
    if (!llm_tpl_scope_open(job, scope)) return FLOW_FAILED;
    made = job->scope;
    for (const llm_tpl_node *pair = node->list; pair != NULL; pair = pair->next) {
        job->scope = scope; /* values are evaluated outside the new scope */
        bool ok = llm_tpl_eval(job, pair->b, &value);
        job->scope = made;
        if (!ok || !target_assign(job, pair->a, &value)) {
            job->scope = scope;
            return FLOW_FAILED;
        }
    }
    flow how = body_run(job, node->body);
    job->scope = scope;
    return how;
}

static bool macro_make(llm_tpl_job *job, const llm_tpl_node *node, llm_tpl_value *out) {
    llm_tpl_macro *macro = llm_tpl_alloc(job, 1, sizeof *macro);
    if (macro == NULL) return false;
    *macro = (llm_tpl_macro){node->text, node, job->scope};
    *out = (llm_tpl_value){.kind = LLM_TPL_MACRO, .as.macro = macro};
    return true;
}

static bool macro_define(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value macro;
    return macro_make(job, node, &macro) && llm_tpl_assign(job, node->text, macro);
}

static bool call_block_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value callee, caller, result;
    llm_tpl_args args;
    if (!macro_make(job, node->b, &caller) || !llm_tpl_eval(job, node->a->a, &callee) ||
        !llm_tpl_args_eval(job, node->a->list, &args))
        return false;
    llm_tpl_args with = {.n = args.n + 1, .n_named = args.n_named + 1};
    with.items = llm_tpl_alloc(job, with.n, sizeof *with.items);
    with.names = llm_tpl_alloc(job, with.n_named, sizeof *with.names);
    if (with.items == NULL || with.names == NULL) return false;
    if (args.n > 0) memcpy(with.items, args.items, args.n * sizeof *args.items);
    if (args.n_named > 0) memcpy(with.names, args.names, args.n_named * sizeof *args.names);
    with.items[args.n] = caller;
    with.names[args.n_named] = llm_tpl_str_of("caller");
    return llm_tpl_call_value(job, &callee, &with, &result) &&
           llm_tpl_put_value(job, job->out, &result);
}

static bool print_run(llm_tpl_job *job, const llm_tpl_node *node) {
    llm_tpl_value value;
    return llm_tpl_eval(job, node->a, &value) && llm_tpl_put_value(job, job->out, &value);
}

static flow statement_run(llm_tpl_job *job, const llm_tpl_node *node) {
    switch (node->kind) {
    case LLM_TPL_NODE_DATA: return flow_of(llm_tpl_put(job, job->out, node->text));
    case LLM_TPL_NODE_PRINT: return flow_of(print_run(job, node));
    case LLM_TPL_NODE_IF: return if_run(job, node);
    case LLM_TPL_NODE_FOR: return for_run(job, node);
    case LLM_TPL_NODE_SET: return flow_of(set_run(job, node));
    case LLM_TPL_NODE_SET_BLOCK: return flow_of(set_block_run(job, node));
    case LLM_TPL_NODE_MACRO: return flow_of(macro_define(job, node));
    case LLM_TPL_NODE_CALL_BLOCK: return flow_of(call_block_run(job, node));
    case LLM_TPL_NODE_FILTER_BLOCK: return flow_of(filter_block_run(job, node));
    case LLM_TPL_NODE_WITH: return with_run(job, node);
    case LLM_TPL_NODE_BREAK: return FLOW_BREAK;
    case LLM_TPL_NODE_CONTINUE: return FLOW_CONTINUE;
    default:
        return flow_of(llm_tpl_fail(job, TDM_INTERNAL, "a value where a statement is expected"));
    }
}

static flow body_run(llm_tpl_job *job, const llm_tpl_node *body) {
    if (job->depth >= LLM_TPL_DEPTH_MAX)
        return flow_of(llm_tpl_fail(job, TDM_OUT_OF_RANGE, "nested or recursing more than %d deep",
                                    LLM_TPL_DEPTH_MAX));
    flow how = FLOW_NEXT;
    job->depth++;
    for (const llm_tpl_node *node = body; node != NULL && how == FLOW_NEXT; node = node->next) {
        job->line = node->line;
        how = llm_tpl_step(job, 1) ? statement_run(job, node) : FLOW_FAILED;
    }
    job->depth--;
    return how;
}

bool llm_tpl_exec(llm_tpl_job *job, const llm_tpl_node *body) {
    return body_run(job, body) != FLOW_FAILED && job->status == TDM_OK;
}

bool llm_tpl_exec_text(llm_tpl_job *job, const llm_tpl_node *body, llm_tpl_str *out) {
    llm_tpl_buffer buffer = {0}, *before = job->out;
    llm_tpl_scope *scope = job->scope;
    job->out = &buffer;
    bool ok = llm_tpl_scope_open(job, scope) && llm_tpl_exec(job, body);
    job->scope = scope;
    job->out = before;
    *out = llm_tpl_buffer_str(&buffer);
    return ok;
}
