/* SPDX-License-Identifier: MIT
 *
 * template_parser.c: the grammar of statements. Expressions: template_expression.c.
 */
#include "llm/template/template_parser.h"

#include "llm/template/template_grammar.h"

static bool parse_body(llm_tpl_grammar *g, const char *const *ends, llm_tpl_node **body_out);

static bool block_end(llm_tpl_grammar *g) {
    if (llm_tpl_peek(g)->kind != LLM_TPL_TOKEN_BLOCK_END) return llm_tpl_grammar_fail(g, "'%}'");
    g->at++;
    return true;
}

/* Reads `%}`, a body, and the word of the tag that ends it, but not that tag's `%}`. */
static bool body_until(llm_tpl_grammar *g, const char *end, llm_tpl_node **body_out) {
    const char *const ends[] = {end, NULL};
    if (!block_end(g) || !parse_body(g, ends, body_out)) return false;
    g->at++;
    return true;
}

/* Fails unless the target of an assignment is a name, or a tuple or list of such targets. */
static bool target_check(llm_tpl_grammar *g, const llm_tpl_node *target) {
    if (target->kind == LLM_TPL_NODE_NAME) return true;
    if (target->kind != LLM_TPL_NODE_TUPLE && target->kind != LLM_TPL_NODE_LIST)
        return llm_tpl_grammar_fail(g, "a name to assign to");
    for (const llm_tpl_node *item = target->list; item != NULL; item = item->next)
        if (!target_check(g, item)) return false;
    return true;
}

static llm_tpl_node *parse_target(llm_tpl_grammar *g) {
    llm_tpl_node *target = llm_tpl_parse_tuple(g, LLM_TPL_TUPLE_TARGET);
    return target != NULL && target_check(g, target) ? target : NULL;
}

/* Reads what follows `if` or `elif`. */
static bool parse_if(llm_tpl_grammar *g, llm_tpl_node *node) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        node->a = llm_tpl_parse_tuple(g, LLM_TPL_TUPLE_PLAIN);
        if (node->a == NULL || !block_end(g) || !parse_body(g, ends, &node->body)) return false;
        if (llm_tpl_skip_word(g, "endif")) return true;
        if (llm_tpl_skip_word(g, "else")) return body_until(g, "endif", &node->other);
        llm_tpl_node *inner = llm_tpl_node_make(g, LLM_TPL_NODE_IF);
        if (inner == NULL) return false;
        g->at++;
        node->other = inner;
        node = inner;
    }
}

static bool parse_for(llm_tpl_grammar *g, llm_tpl_node *node) {
    static const char *const ends[] = {"else", "endfor", NULL};
    node->a = parse_target(g);
    if (node->a == NULL) return false;
    if (!llm_tpl_skip_word(g, "in")) return llm_tpl_grammar_fail(g, "'in'");
    node->b = llm_tpl_parse_tuple(g, LLM_TPL_TUPLE_PLAIN);
    if (node->b == NULL) return false;
    if (llm_tpl_skip_word(g, "if") && (node->c = llm_tpl_parse_expression(g)) == NULL) return false;
    if (llm_tpl_at_word(g, "recursive"))
        return llm_tpl_grammar_fail(g, "'%}' (recursive loops are not supported)");
    g->n_loop++;
    bool ok = block_end(g) && parse_body(g, ends, &node->body);
    g->n_loop--;
    if (!ok) return false;
    if (llm_tpl_skip_word(g, "endfor")) return true;
    g->at++;
    return body_until(g, "endfor", &node->other);
}

static bool parse_set(llm_tpl_grammar *g, llm_tpl_node *node) {
    const llm_tpl_token *after = &g->tokens[g->at + 1];
    if (llm_tpl_peek(g)->kind == LLM_TPL_TOKEN_NAME && after->kind == LLM_TPL_TOKEN_OPERATOR &&
        llm_tpl_str_is(after->text, ".")) {
        node->a = llm_tpl_node_make(g, LLM_TPL_NODE_ATTR);
        llm_tpl_node *owner = llm_tpl_node_make(g, LLM_TPL_NODE_NAME);
        if (node->a == NULL || owner == NULL) return false;
        owner->text = llm_tpl_peek(g)->text;
        node->a->a = owner;
        g->at += 2;
        if (!llm_tpl_expect_name(g, &node->a->text)) return false;
    } else if ((node->a = parse_target(g)) == NULL) {
        return false;
    }
    if (llm_tpl_skip_operator(g, "=")) {
        node->b = llm_tpl_parse_tuple(g, LLM_TPL_TUPLE_FULL);
        return node->b != NULL;
    }
    node->kind = LLM_TPL_NODE_SET_BLOCK;
    while (llm_tpl_skip_operator(g, "|"))
        if (!llm_tpl_parse_filter(g, &node->b)) return false;
    return body_until(g, "endset", &node->body);
}

/* Reads "(a, b=1)" into node->list. */
static bool parse_params(llm_tpl_grammar *g, llm_tpl_node *node) {
    if (!llm_tpl_expect_operator(g, "(")) return false;
    for (llm_tpl_node **place = &node->list; !llm_tpl_at_operator(g, ")");) {
        if (node->list != NULL && !llm_tpl_expect_operator(g, ",")) return false;
        llm_tpl_node *param = llm_tpl_node_make(g, LLM_TPL_NODE_PARAM);
        if (param == NULL || !llm_tpl_expect_name(g, &param->text)) return false;
        if (llm_tpl_skip_operator(g, "=")) {
            if ((param->a = llm_tpl_parse_expression(g)) == NULL) return false;
        } else if (place != &node->list) {
            const llm_tpl_node *before = node->list;
            while (before->next != NULL) before = before->next;
            if (before->a != NULL) return llm_tpl_grammar_fail(g, "a default");
        }
        *place = param;
        place = &param->next;
    }
    g->at++;
    return true;
}

/* Reads the body of a macro or caller: `break` in it does not leave loops around it. */
static bool parse_macro_body(llm_tpl_grammar *g, llm_tpl_node *node, const char *end) {
    int n_loop = g->n_loop;
    g->n_loop = 0;
    bool ok = body_until(g, end, &node->body);
    g->n_loop = n_loop;
    return ok;
}

static bool parse_macro(llm_tpl_grammar *g, llm_tpl_node *node) {
    return llm_tpl_expect_name(g, &node->text) && parse_params(g, node) &&
           parse_macro_body(g, node, "endmacro");
}

static bool parse_call(llm_tpl_grammar *g, llm_tpl_node *node) {
    node->b = llm_tpl_node_make(g, LLM_TPL_NODE_MACRO);
    if (node->b == NULL) return false;
    node->b->text = llm_tpl_str_of("caller");
    if (llm_tpl_at_operator(g, "(") && !parse_params(g, node->b)) return false;
    node->a = llm_tpl_parse_expression(g);
    if (node->a == NULL) return false;
    if (node->a->kind != LLM_TPL_NODE_CALL) return llm_tpl_grammar_fail(g, "a call");
    return parse_macro_body(g, node->b, "endcall");
}

static bool parse_with(llm_tpl_grammar *g, llm_tpl_node *node) {
    for (llm_tpl_node **place = &node->list; llm_tpl_peek(g)->kind != LLM_TPL_TOKEN_BLOCK_END;) {
        if (node->list != NULL && !llm_tpl_expect_operator(g, ",")) return false;
        llm_tpl_node *pair = llm_tpl_node_make(g, LLM_TPL_NODE_PAIR), *name;
        if (pair == NULL || (name = llm_tpl_node_make(g, LLM_TPL_NODE_NAME)) == NULL ||
            !llm_tpl_expect_name(g, &name->text))
            return false;
        pair->a = name;
        if (!llm_tpl_expect_operator(g, "=") || (pair->b = llm_tpl_parse_expression(g)) == NULL)
            return false;
        *place = pair;
        place = &pair->next;
    }
    return body_until(g, "endwith", &node->body);
}

static bool parse_filter_block(llm_tpl_grammar *g, llm_tpl_node *node) {
    do
        if (!llm_tpl_parse_filter(g, &node->b)) return false;
    while (llm_tpl_skip_operator(g, "|"));
    return body_until(g, "endfilter", &node->body);
}

static bool parse_generation(llm_tpl_grammar *g, llm_tpl_node *node) {
    return body_until(g, "endgeneration", &node->body);
}

static bool parse_jump(llm_tpl_grammar *g, llm_tpl_node *node) {
    g->at -= g->n_loop == 0; /* the message is about the word itself */
    return g->n_loop > 0 || llm_tpl_grammar_fail(g, node->kind == LLM_TPL_NODE_BREAK
                                                        ? "no 'break' outside of a loop"
                                                        : "no 'continue' outside of a loop");
}

typedef struct statement {
    const char *word;
    llm_tpl_node_kind kind;
    bool (*parse)(llm_tpl_grammar *g, llm_tpl_node *node); /* reads what follows the word */
} statement;

static const statement statements[] = {
    {"if", LLM_TPL_NODE_IF, parse_if},
    {"for", LLM_TPL_NODE_FOR, parse_for},
    {"set", LLM_TPL_NODE_SET, parse_set},
    {"macro", LLM_TPL_NODE_MACRO, parse_macro},
    {"call", LLM_TPL_NODE_CALL_BLOCK, parse_call},
    {"filter", LLM_TPL_NODE_FILTER_BLOCK, parse_filter_block},
    {"with", LLM_TPL_NODE_WITH, parse_with},
    {"generation", LLM_TPL_NODE_WITH,
     parse_generation}, /* marks text for training; no effect here */
    {"break", LLM_TPL_NODE_BREAK, parse_jump},
    {"continue", LLM_TPL_NODE_CONTINUE, parse_jump},
};

static llm_tpl_node *parse_statement(llm_tpl_grammar *g) {
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        if (!llm_tpl_at_word(g, statements[i].word)) continue;
        llm_tpl_node *node = llm_tpl_node_make(g, statements[i].kind);
        g->at++;
        return node != NULL && statements[i].parse(g, node) && block_end(g) ? node : NULL;
    }
    llm_tpl_grammar_fail(g, "a supported statement");
    return NULL;
}

static bool at_end(const llm_tpl_grammar *g, const char *const *ends) {
    for (size_t i = 0; ends[i] != NULL; i++)
        if (llm_tpl_at_word(g, ends[i])) return true;
    return false;
}

static llm_tpl_node *parse_print(llm_tpl_grammar *g) {
    llm_tpl_node *node = llm_tpl_node_make(g, LLM_TPL_NODE_PRINT);
    g->at++;
    if (node == NULL || (node->a = llm_tpl_parse_tuple(g, LLM_TPL_TUPLE_FULL)) == NULL) return NULL;
    if (llm_tpl_peek(g)->kind != LLM_TPL_TOKEN_PRINT_END) {
        llm_tpl_grammar_fail(g, "'}}'");
        return NULL;
    }
    g->at++;
    return node;
}

/* Reads data, prints and statements up to a tag that begins with one of `ends`, and that tag's
 * `{%`; without `ends`, up to the end of the template. */
static bool parse_body(llm_tpl_grammar *g, const char *const *ends, llm_tpl_node **body_out) {
    static const char *const none[] = {NULL};
    if (g->depth >= LLM_TPL_NESTED_MAX)
        return llm_tpl_fail(g->job, TDM_OUT_OF_RANGE, "nested more than %d deep",
                            LLM_TPL_NESTED_MAX);
    g->depth++;
    for (llm_tpl_node *node, **place = body_out;; place = &node->next) {
        llm_tpl_token_kind kind = llm_tpl_peek(g)->kind;
        if (kind == LLM_TPL_TOKEN_END) {
            char expected[32] = "";
            if (ends == NULL) break;
            for (size_t i = 0; ends[i] != NULL; i++)
                snprintf(expected, sizeof expected, "'{%% %s %%}'", ends[i]);
            return llm_tpl_grammar_fail(g, expected);
        }
        if (kind == LLM_TPL_TOKEN_DATA) {
            node = llm_tpl_node_make(g, LLM_TPL_NODE_DATA);
            if (node != NULL) node->text = g->tokens[g->at++].text;
        } else if (kind == LLM_TPL_TOKEN_PRINT_BEGIN) {
            node = parse_print(g);
        } else {
            g->at++;
            if (at_end(g, ends != NULL ? ends : none)) break;
            node = parse_statement(g);
        }
        if (node == NULL) return false;
        *place = node;
    }
    g->depth--;
    return true;
}

bool llm_tpl_parse(llm_tpl_job *job, llm_tpl_str text, const llm_tpl_node **body_out) {
    llm_tpl_token *tokens = NULL;
    llm_tpl_node *body = NULL;
    if (!llm_tpl_lex(job, text, &tokens)) return false;
    llm_tpl_grammar g = {.job = job, .tokens = tokens};
    if (!parse_body(&g, NULL, &body)) return false;
    *body_out = body;
    return true;
}
