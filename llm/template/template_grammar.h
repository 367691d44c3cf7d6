/* SPDX-License-Identifier: MIT
 *
 * template_grammar.h: the state of the parser, a position in the list of tokens, and the functions
 * that its two files, template_expression.c and template_parser.c, share. No other file includes
 * it.
 *
 * Functions that return a node return NULL on failure, and functions that parse or expect something
 * return false; the job keeps the failure. at: tests the current token. skip: moves past it if it
 * is the given one, and returns whether it was. expect: the same, but another token is a failure.
 */
#ifndef LLM_TEMPLATE_GRAMMAR_H
#define LLM_TEMPLATE_GRAMMAR_H

#include "llm/template/template_lexer.h"
#include "llm/template/template_parser.h"

#define LLM_TPL_NESTED_MAX 200 /* expressions and statements inside one another */

typedef struct llm_tpl_grammar {
    llm_tpl_job *job;
    const llm_tpl_token *tokens; /* the last one is END */
    size_t at;                   /* the current token */
    int depth;                   /* at most LLM_TPL_NESTED_MAX: bounds the C stack */
    int n_loop; /* loops around the statement being read, inside its macro; 0 = no break here */
} llm_tpl_grammar;

/* The current token. */
const llm_tpl_token *llm_tpl_peek(const llm_tpl_grammar *g);
/* Fails with "X is expected, not 'Y'", Y the current token, at its line; returns false. */
bool llm_tpl_grammar_fail(llm_tpl_grammar *g, const char *expected);
bool llm_tpl_at_word(const llm_tpl_grammar *g, const char *word);
bool llm_tpl_at_operator(const llm_tpl_grammar *g, const char *text);
bool llm_tpl_skip_word(llm_tpl_grammar *g, const char *word);
bool llm_tpl_skip_operator(llm_tpl_grammar *g, const char *text);
bool llm_tpl_expect_operator(llm_tpl_grammar *g, const char *text);
bool llm_tpl_expect_name(llm_tpl_grammar *g, llm_tpl_str *name);
/* A node of the kind, with the line of the current token; all other fields are 0. */
llm_tpl_node *llm_tpl_node_make(llm_tpl_grammar *g, llm_tpl_node_kind kind);

/* One expression, which may be a conditional (`x if y else z`). */
llm_tpl_node *llm_tpl_parse_expression(llm_tpl_grammar *g);

typedef enum llm_tpl_tuple_mode {
    LLM_TPL_TUPLE_FULL,           /* expressions */
    LLM_TPL_TUPLE_PLAIN,          /* expressions that are not a conditional (`x if y`) */
    LLM_TPL_TUPLE_IN_PARENTHESES, /* expressions, or nothing */
    LLM_TPL_TUPLE_TARGET          /* names to assign to; ends before `in` */
} llm_tpl_tuple_mode;

/* One expression, or a TUPLE of several separated by commas. */
llm_tpl_node *llm_tpl_parse_tuple(llm_tpl_grammar *g, llm_tpl_tuple_mode mode);
/* Reads "(...)" into node->list. */
bool llm_tpl_parse_arguments(llm_tpl_grammar *g, llm_tpl_node *node);
/* Reads name and arguments of a filter, and applies it to *node. */
bool llm_tpl_parse_filter(llm_tpl_grammar *g, llm_tpl_node **node);

#endif
