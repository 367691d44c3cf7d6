/* SPDX-License-Identifier: MIT
 *
 * template_expression.c: the grammar of expressions, one function for each of Jinja's levels of
 * precedence: conditional, or, and, not, comparison, + -, ~, * / // %, **, sign, postfix, filter.
 */
#include <string.h>

#include "llm/template/template_grammar.h"

/* ---- Tokens ---- */

const llm_tpl_token *llm_tpl_peek(const llm_tpl_grammar *g) {
    return &g->tokens[g->at];
}

bool llm_tpl_grammar_fail(llm_tpl_grammar *g, const char *expected) {
    const llm_tpl_token *t = llm_tpl_peek(g);
    g->job->line = t->line;
    if (t->kind == LLM_TPL_TOKEN_END)
        return llm_tpl_fail(g->job, TDM_INVALID_ARGUMENT, "the template ends where %s is expected",
                            expected);
    const char *what = t->kind == LLM_TPL_TOKEN_PRINT_END     ? "}}"
                       : t->kind == LLM_TPL_TOKEN_BLOCK_END   ? "%}"
                       : t->kind == LLM_TPL_TOKEN_PRINT_BEGIN ? "{{"
                       : t->kind == LLM_TPL_TOKEN_BLOCK_BEGIN ? "{%"
                                                              : NULL;
    llm_tpl_str text = what != NULL ? llm_tpl_str_of(what) : t->text;
    return llm_tpl_fail(g->job, TDM_INVALID_ARGUMENT, "%s is expected, not '%.*s'", expected,
                        (int)(text.len < 40 ? text.len : 40), text.len > 0 ? text.ptr : "");
}

bool llm_tpl_at_word(const llm_tpl_grammar *g, const char *word) {
    return llm_tpl_peek(g)->kind == LLM_TPL_TOKEN_NAME &&
           llm_tpl_str_is(llm_tpl_peek(g)->text, word);
}

bool llm_tpl_at_operator(const llm_tpl_grammar *g, const char *text) {
    return llm_tpl_peek(g)->kind == LLM_TPL_TOKEN_OPERATOR &&
           llm_tpl_str_is(llm_tpl_peek(g)->text, text);
}

bool llm_tpl_skip_word(llm_tpl_grammar *g, const char *word) {
    bool is_there = llm_tpl_at_word(g, word);
    g->at += is_there;
    return is_there;
}

bool llm_tpl_skip_operator(llm_tpl_grammar *g, const char *text) {
    bool is_there = llm_tpl_at_operator(g, text);
    g->at += is_there;
    return is_there;
}

bool llm_tpl_expect_operator(llm_tpl_grammar *g, const char *text) {
    char expected[8];
    if (llm_tpl_skip_operator(g, text)) return true;
    snprintf(expected, sizeof expected, "'%s'", text);
    return llm_tpl_grammar_fail(g, expected);
}

bool llm_tpl_expect_name(llm_tpl_grammar *g, llm_tpl_str *name) {
    if (llm_tpl_peek(g)->kind != LLM_TPL_TOKEN_NAME) return llm_tpl_grammar_fail(g, "a name");
    *name = g->tokens[g->at++].text;
    return true;
}

llm_tpl_node *llm_tpl_node_make(llm_tpl_grammar *g, llm_tpl_node_kind kind) {
    llm_tpl_node *node = llm_tpl_alloc(g->job, 1, sizeof *node);
    if (node == NULL) return NULL;
    node->kind = kind;
    node->line = llm_tpl_peek(g)->line;
    return node;
}

/* ---- Levels ---- */

typedef llm_tpl_node *(*level_fn)(llm_tpl_grammar *g);

static llm_tpl_node *node_of(llm_tpl_grammar *g, llm_tpl_node_kind kind, llm_tpl_node *a,
                             llm_tpl_node *b) {
    llm_tpl_node *node = llm_tpl_node_make(g, kind);
    if (node == NULL || a == NULL) return NULL;
    node->a = a;
    node->b = b;
    node->line = a->line;
    return node;
}

static llm_tpl_node *parse_unary(llm_tpl_grammar *g, bool with_filter);
static llm_tpl_node *parse_or(llm_tpl_grammar *g);

/* Reads the operands of one level, associated from the left. `texts`: its operators,
 * NULL-terminated. */
static llm_tpl_node *parse_binary(llm_tpl_grammar *g, level_fn operand, const char *const *texts) {
    llm_tpl_node *left = operand(g);
    for (size_t i = 0; left != NULL && texts[i] != NULL;) {
        if (!llm_tpl_skip_operator(g, texts[i])) {
            i++;
            continue;
        }
        llm_tpl_node *right = operand(g);
        llm_tpl_node *node = right == NULL ? NULL : node_of(g, LLM_TPL_NODE_BINARY, left, right);
        if (node == NULL) return NULL;
        node->op = texts[i][0] + (texts[i][1] != '\0' ? LLM_TPL_OP_DOUBLE : 0);
        left = node;
        i = 0;
    }
    return left;
}

static llm_tpl_node *parse_signed(llm_tpl_grammar *g) {
    return parse_unary(g, true);
}

static llm_tpl_node *parse_power(llm_tpl_grammar *g) {
    static const char *const texts[] = {"**", NULL};
    return parse_binary(g, parse_signed, texts);
}

static llm_tpl_node *parse_product(llm_tpl_grammar *g) {
    static const char *const texts[] = {"*", "/", "//", "%", NULL};
    return parse_binary(g, parse_power, texts);
}

static llm_tpl_node *parse_concat(llm_tpl_grammar *g) {
    llm_tpl_node *first = parse_product(g);
    if (first == NULL || !llm_tpl_at_operator(g, "~")) return first;
    llm_tpl_node *node = llm_tpl_node_make(g, LLM_TPL_NODE_CONCAT);
    if (node == NULL) return NULL;
    node->list = first;
    for (llm_tpl_node *last = first; llm_tpl_skip_operator(g, "~"); last = last->next)
        if ((last->next = parse_product(g)) == NULL) return NULL;
    return node;
}

static llm_tpl_node *parse_sum(llm_tpl_grammar *g) {
    static const char *const texts[] = {"+", "-", NULL};
    return parse_binary(g, parse_concat, texts);
}

/* Reads a comparison operator; -1 = there is none. */
static int comparison_take(llm_tpl_grammar *g) {
    static const char *const texts[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int i = 0; i < 6; i++)
        if (llm_tpl_skip_operator(g, texts[i])) return i;
    if (llm_tpl_skip_word(g, "in")) return LLM_TPL_IN;
    if (!llm_tpl_at_word(g, "not") || g->tokens[g->at + 1].kind != LLM_TPL_TOKEN_NAME ||
        !llm_tpl_str_is(g->tokens[g->at + 1].text, "in"))
        return -1;
    g->at += 2;
    return LLM_TPL_NOT_IN;
}

static llm_tpl_node *parse_compare(llm_tpl_grammar *g) {
    llm_tpl_node *left = parse_sum(g), *node = NULL, **place = NULL;
    for (int op; left != NULL && (op = comparison_take(g)) >= 0;) {
        if (node == NULL) {
            node = node_of(g, LLM_TPL_NODE_COMPARE, left, NULL);
            if (node == NULL) return NULL;
            place = &node->list;
        }
        llm_tpl_node *operand = node_of(g, LLM_TPL_NODE_OPERAND, parse_sum(g), NULL);
        if (operand == NULL) return NULL;
        operand->op = op;
        *place = operand;
        place = &operand->next;
    }
    return node != NULL ? node : left;
}

/* Counts the depth of recursion. Every construct that can contain itself calls this or
 * parse_unary. */
static bool depth_enter(llm_tpl_grammar *g) {
    if (g->depth >= LLM_TPL_NESTED_MAX) {
        g->job->line = llm_tpl_peek(g)->line;
        return llm_tpl_fail(g->job, TDM_OUT_OF_RANGE, "nested more than %d deep",
                            LLM_TPL_NESTED_MAX);
    }
    g->depth++;
    return true;
}

static llm_tpl_node *parse_not(llm_tpl_grammar *g) {
    if (!llm_tpl_at_word(g, "not")) return parse_compare(g);
    if (!depth_enter(g)) return NULL;
    g->at++;
    llm_tpl_node *node = node_of(g, LLM_TPL_NODE_NOT, parse_not(g), NULL);
    g->depth--;
    return node;
}

static llm_tpl_node *parse_and(llm_tpl_grammar *g) {
    llm_tpl_node *left = parse_not(g);
    while (left != NULL && llm_tpl_skip_word(g, "and")) {
        llm_tpl_node *right = parse_not(g);
        left = right == NULL ? NULL : node_of(g, LLM_TPL_NODE_AND, left, right);
    }
    return left;
}

static llm_tpl_node *parse_or(llm_tpl_grammar *g) {
    llm_tpl_node *left = parse_and(g);
    while (left != NULL && llm_tpl_skip_word(g, "or")) {
        llm_tpl_node *right = parse_and(g);
        left = right == NULL ? NULL : node_of(g, LLM_TPL_NODE_OR, left, right);
    }
    return left;
}

llm_tpl_node *llm_tpl_parse_expression(llm_tpl_grammar *g) {
    if (!depth_enter(g)) return NULL;
    llm_tpl_node *node = parse_or(g);
    while (node != NULL && llm_tpl_skip_word(g, "if")) {
        llm_tpl_node *test = parse_or(g);
        llm_tpl_node *cond = test == NULL ? NULL : node_of(g, LLM_TPL_NODE_COND, test, node);
        if (cond != NULL && llm_tpl_skip_word(g, "else") &&
            (cond->c = llm_tpl_parse_expression(g)) == NULL)
            cond = NULL;
        node = cond;
    }
    g->depth--;
    return node;
}

/* ---- Primaries ---- */

static bool at_tuple_end(const llm_tpl_grammar *g, bool ends_at_in) {
    llm_tpl_token_kind kind = llm_tpl_peek(g)->kind;
    return kind == LLM_TPL_TOKEN_PRINT_END || kind == LLM_TPL_TOKEN_BLOCK_END ||
           llm_tpl_at_operator(g, ")") || (ends_at_in && llm_tpl_at_word(g, "in"));
}

static llm_tpl_node *parse_primary(llm_tpl_grammar *g);

llm_tpl_node *llm_tpl_parse_tuple(llm_tpl_grammar *g, llm_tpl_tuple_mode mode) {
    llm_tpl_node *tuple = llm_tpl_node_make(g, LLM_TPL_NODE_TUPLE);
    if (tuple == NULL) return NULL;
    bool is_tuple = false;
    for (llm_tpl_node **place = &tuple->list; !at_tuple_end(g, mode == LLM_TPL_TUPLE_TARGET);) {
        llm_tpl_node *item = mode == LLM_TPL_TUPLE_TARGET  ? parse_primary(g)
                             : mode == LLM_TPL_TUPLE_PLAIN ? parse_or(g)
                                                           : llm_tpl_parse_expression(g);
        if (item == NULL) return NULL;
        *place = item;
        place = &item->next;
        if (!llm_tpl_skip_operator(g, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && tuple->list != NULL) return tuple->list;
    if (!is_tuple && mode != LLM_TPL_TUPLE_IN_PARENTHESES) {
        llm_tpl_grammar_fail(g, "an expression");
        return NULL;
    }
    return tuple;
}

/* Reads items separated by commas until `end`. A last comma is allowed. */
static llm_tpl_node *parse_items(llm_tpl_grammar *g, llm_tpl_node_kind kind, const char *end) {
    llm_tpl_node *node = llm_tpl_node_make(g, kind);
    if (node == NULL) return NULL;
    llm_tpl_node **place = &node->list;
    g->at++;
    while (!llm_tpl_at_operator(g, end)) {
        if (node->list != NULL && !llm_tpl_expect_operator(g, ",")) return NULL;
        if (llm_tpl_at_operator(g, end)) break;
        llm_tpl_node *item = llm_tpl_parse_expression(g);
        if (item != NULL && kind == LLM_TPL_NODE_DICT) {
            item = node_of(g, LLM_TPL_NODE_PAIR, item, NULL);
            if (item == NULL || !llm_tpl_expect_operator(g, ":") ||
                (item->b = llm_tpl_parse_expression(g)) == NULL)
                return NULL;
        }
        if (item == NULL) return NULL;
        *place = item;
        place = &item->next;
    }
    g->at++;
    return node;
}

/* Adjacent strings are one string. */
static llm_tpl_node *parse_string(llm_tpl_grammar *g) {
    llm_tpl_buffer buffer = {0};
    llm_tpl_node *node = llm_tpl_node_make(g, LLM_TPL_NODE_CONST);
    if (node == NULL) return NULL;
    for (; llm_tpl_peek(g)->kind == LLM_TPL_TOKEN_STRING; g->at++)
        if (!llm_tpl_put(g->job, &buffer, llm_tpl_peek(g)->text)) return NULL;
    node->value = llm_tpl_string(llm_tpl_buffer_str(&buffer));
    return node;
}

static llm_tpl_node *parse_name(llm_tpl_grammar *g) {
    static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
    llm_tpl_node *node = llm_tpl_node_make(g, LLM_TPL_NODE_NAME);
    if (node == NULL) return NULL;
    node->text = g->tokens[g->at++].text;
    for (int i = 0; i < 6; i++)
        if (llm_tpl_str_is(node->text, words[i])) {
            node->kind = LLM_TPL_NODE_CONST;
            node->value = i < 4 ? llm_tpl_bool(i < 2) : llm_tpl_none();
        }
    return node;
}

static llm_tpl_node *parse_primary(llm_tpl_grammar *g) {
    const llm_tpl_token *token = llm_tpl_peek(g);
    llm_tpl_node *node = NULL;
    if (token->kind == LLM_TPL_TOKEN_NAME) return parse_name(g);
    if (token->kind == LLM_TPL_TOKEN_STRING) return parse_string(g);
    if (token->kind == LLM_TPL_TOKEN_INT || token->kind == LLM_TPL_TOKEN_FLOAT) {
        node = llm_tpl_node_make(g, LLM_TPL_NODE_CONST);
        if (node == NULL) return NULL;
        node->value = token->value;
        g->at++;
        return node;
    }
    if (!depth_enter(g)) return NULL;
    if (llm_tpl_skip_operator(g, "(")) {
        node = llm_tpl_parse_tuple(g, LLM_TPL_TUPLE_IN_PARENTHESES);
        if (node != NULL && !llm_tpl_expect_operator(g, ")")) node = NULL;
    } else if (llm_tpl_at_operator(g, "[")) {
        node = parse_items(g, LLM_TPL_NODE_LIST, "]");
    } else if (llm_tpl_at_operator(g, "{")) {
        node = parse_items(g, LLM_TPL_NODE_DICT, "}");
    } else {
        llm_tpl_grammar_fail(g, "an expression");
    }
    g->depth--;
    return node;
}

/* ---- Postfixes, filters, tests ---- */

bool llm_tpl_parse_arguments(llm_tpl_grammar *g, llm_tpl_node *node) {
    llm_tpl_node **place = &node->list;
    bool has_names = false;
    if (!llm_tpl_expect_operator(g, "(")) return false;
    for (bool is_first = true; !llm_tpl_at_operator(g, ")"); is_first = false) {
        if (!is_first && !llm_tpl_expect_operator(g, ",")) return false;
        if (llm_tpl_at_operator(g, ")")) break;
        if (llm_tpl_at_operator(g, "*") || llm_tpl_at_operator(g, "**"))
            return llm_tpl_grammar_fail(g, "an argument (*list and **dict are not supported)");
        llm_tpl_node *item;
        const llm_tpl_token *after = &g->tokens[g->at + 1]; /* there always is one: END is last */
        if (llm_tpl_peek(g)->kind == LLM_TPL_TOKEN_NAME && after->kind == LLM_TPL_TOKEN_OPERATOR &&
            llm_tpl_str_is(after->text, "=")) {
            item = llm_tpl_node_make(g, LLM_TPL_NODE_KEYWORD);
            if (item == NULL) return false;
            item->text = llm_tpl_peek(g)->text;
            g->at += 2;
            item->a = llm_tpl_parse_expression(g);
            if (item->a == NULL) return false;
            has_names = true;
        } else {
            if (has_names) return llm_tpl_grammar_fail(g, "a named argument");
            item = llm_tpl_parse_expression(g);
        }
        if (item == NULL) return false;
        *place = item;
        place = &item->next;
    }
    g->at++;
    return true;
}

/* Reads one part of a slice; *out stays NULL if it is missing. */
static bool slice_part(llm_tpl_grammar *g, llm_tpl_node **out) {
    if (llm_tpl_at_operator(g, ":") || llm_tpl_at_operator(g, "]")) return true;
    *out = llm_tpl_parse_expression(g);
    return *out != NULL;
}

static llm_tpl_node *parse_subscript(llm_tpl_grammar *g, llm_tpl_node *left) {
    llm_tpl_node *node = node_of(g, LLM_TPL_NODE_ITEM, left, NULL);
    llm_tpl_node *slice = llm_tpl_node_make(g, LLM_TPL_NODE_SLICE);
    if (node == NULL || slice == NULL) return NULL;
    g->at++;
    if (llm_tpl_at_operator(g, "]")) {
        llm_tpl_grammar_fail(g, "an index");
        return NULL;
    }
    if (!slice_part(g, &slice->a)) return NULL;
    node->b = slice->a;
    if (llm_tpl_skip_operator(g, ":")) {
        node->b = slice;
        if (!slice_part(g, &slice->b)) return NULL;
        if (llm_tpl_skip_operator(g, ":") && !slice_part(g, &slice->c)) return NULL;
    }
    return llm_tpl_expect_operator(g, "]") ? node : NULL;
}

static llm_tpl_node *parse_attribute(llm_tpl_grammar *g, llm_tpl_node *left) {
    llm_tpl_node *node = node_of(g, LLM_TPL_NODE_ATTR, left, NULL);
    if (node == NULL) return NULL;
    g->at++;
    if (llm_tpl_peek(g)->kind == LLM_TPL_TOKEN_INT) {
        node->kind = LLM_TPL_NODE_ITEM;
        node->b = parse_primary(g);
        return node->b != NULL ? node : NULL;
    }
    return llm_tpl_expect_name(g, &node->text) ? node : NULL;
}

static llm_tpl_node *parse_postfix(llm_tpl_grammar *g, llm_tpl_node *node) {
    while (node != NULL) {
        if (llm_tpl_at_operator(g, ".")) {
            node = parse_attribute(g, node);
        } else if (llm_tpl_at_operator(g, "[")) {
            node = parse_subscript(g, node);
        } else if (llm_tpl_at_operator(g, "(")) {
            node = node_of(g, LLM_TPL_NODE_CALL, node, NULL);
            if (node != NULL && !llm_tpl_parse_arguments(g, node)) node = NULL;
        } else {
            break;
        }
    }
    return node;
}

bool llm_tpl_parse_filter(llm_tpl_grammar *g, llm_tpl_node **node) {
    llm_tpl_node *filter = llm_tpl_node_make(g, LLM_TPL_NODE_FILTER);
    if (filter == NULL || !llm_tpl_expect_name(g, &filter->text)) return false;
    filter->a = *node;
    *node = filter;
    return !llm_tpl_at_operator(g, "(") || llm_tpl_parse_arguments(g, filter);
}

/* A single argument of a test needs no parentheses. */
static bool at_test_argument(const llm_tpl_grammar *g) {
    switch (llm_tpl_peek(g)->kind) {
    case LLM_TPL_TOKEN_STRING:
    case LLM_TPL_TOKEN_INT:
    case LLM_TPL_TOKEN_FLOAT: return true;
    case LLM_TPL_TOKEN_NAME:
        return !llm_tpl_at_word(g, "else") && !llm_tpl_at_word(g, "or") &&
               !llm_tpl_at_word(g, "and");
    default: return llm_tpl_at_operator(g, "[") || llm_tpl_at_operator(g, "{");
    }
}

static llm_tpl_node *parse_test(llm_tpl_grammar *g, llm_tpl_node *left) {
    llm_tpl_node *node = node_of(g, LLM_TPL_NODE_TEST, left, NULL);
    if (node == NULL) return NULL;
    g->at++;
    bool is_negated = llm_tpl_skip_word(g, "not");
    if (!llm_tpl_expect_name(g, &node->text)) return NULL;
    if (llm_tpl_at_operator(g, "(")) {
        if (!llm_tpl_parse_arguments(g, node)) return NULL;
    } else if (at_test_argument(g)) {
        if (llm_tpl_at_word(g, "is")) {
            llm_tpl_grammar_fail(g, "the end of the test");
            return NULL;
        }
        node->list = parse_postfix(g, parse_primary(g));
        if (node->list == NULL) return NULL;
    }
    return is_negated ? node_of(g, LLM_TPL_NODE_NOT, node, NULL) : node;
}

static llm_tpl_node *parse_unary(llm_tpl_grammar *g, bool with_filter) {
    llm_tpl_node *node;
    bool is_negative = llm_tpl_at_operator(g, "-");
    if (is_negative || llm_tpl_at_operator(g, "+")) {
        if (!depth_enter(g)) return NULL;
        g->at++;
        node = node_of(g, is_negative ? LLM_TPL_NODE_NEGATIVE : LLM_TPL_NODE_POSITIVE,
                       parse_unary(g, false), NULL);
        g->depth--;
    } else {
        node = parse_primary(g);
    }
    node = parse_postfix(g, node);
    while (node != NULL && with_filter) {
        if (llm_tpl_skip_operator(g, "|")) {
            if (!llm_tpl_parse_filter(g, &node)) return NULL;
        } else if (llm_tpl_at_word(g, "is")) {
            node = parse_test(g, node);
        } else if (llm_tpl_at_operator(g, "(")) {
            node = node_of(g, LLM_TPL_NODE_CALL, node, NULL);
            if (node != NULL && !llm_tpl_parse_arguments(g, node)) node = NULL;
        } else {
            break;
        }
    }
    return node;
}
