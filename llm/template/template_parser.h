/* SPDX-License-Identifier: MIT
 *
 * template_parser.h: tokens to a tree. template_eval.c evaluates its expressions, template_exec.c
 * runs its statements.
 */
#ifndef LLM_TEMPLATE_PARSER_H
#define LLM_TEMPLATE_PARSER_H

#include "llm/template/template_value.h"

/* The comment at each kind names the fields of llm_tpl_node that it uses. `list`, `body` and
 * `other` are the first of nodes linked by `next`. */
typedef enum llm_tpl_node_kind {
    LLM_TPL_NODE_CONST,    /* value */
    LLM_TPL_NODE_NAME,     /* text */
    LLM_TPL_NODE_LIST,     /* list */
    LLM_TPL_NODE_TUPLE,    /* list; a target too */
    LLM_TPL_NODE_DICT,     /* list of PAIR */
    LLM_TPL_NODE_PAIR,     /* a: b */
    LLM_TPL_NODE_ATTR,     /* a.text */
    LLM_TPL_NODE_ITEM,     /* a[b] */
    LLM_TPL_NODE_SLICE,    /* a:b:c, each may be NULL; as b of ITEM */
    LLM_TPL_NODE_CALL,     /* a(list); in the list KEYWORD for named ones, last */
    LLM_TPL_NODE_KEYWORD,  /* text=a */
    LLM_TPL_NODE_FILTER,   /* a|text(list); a NULL = the text of a block */
    LLM_TPL_NODE_TEST,     /* a is text(list) */
    LLM_TPL_NODE_NOT,      /* a */
    LLM_TPL_NODE_NEGATIVE, /* a */
    LLM_TPL_NODE_POSITIVE, /* a */
    LLM_TPL_NODE_AND,      /* a, b */
    LLM_TPL_NODE_OR,       /* a, b */
    LLM_TPL_NODE_BINARY,   /* a op b; op + - * / % and '/'+128 for //, '*'+128 for ** */
    LLM_TPL_NODE_CONCAT,   /* list */
    LLM_TPL_NODE_COMPARE,  /* a, list of OPERAND */
    LLM_TPL_NODE_OPERAND,  /* op a; llm_tpl_comparison */
    LLM_TPL_NODE_COND,     /* b if a else c; c may be NULL */

    LLM_TPL_NODE_DATA,         /* text */
    LLM_TPL_NODE_PRINT,        /* a */
    LLM_TPL_NODE_IF,           /* a, body, other */
    LLM_TPL_NODE_FOR,          /* a in b if c (may be NULL), body; other: without any item */
    LLM_TPL_NODE_SET,          /* a = b; a is NAME, TUPLE, or ATTR of a NAME */
    LLM_TPL_NODE_SET_BLOCK,    /* a = body through the filters b, which may be NULL */
    LLM_TPL_NODE_MACRO,        /* text, list of PARAM, body */
    LLM_TPL_NODE_PARAM,        /* text=a, a may be NULL */
    LLM_TPL_NODE_CALL_BLOCK,   /* a is a CALL; b is a MACRO, the caller */
    LLM_TPL_NODE_FILTER_BLOCK, /* b, body */
    LLM_TPL_NODE_WITH,         /* list of PAIR of target and value, body; generation: no list */
    LLM_TPL_NODE_BREAK,
    LLM_TPL_NODE_CONTINUE
} llm_tpl_node_kind;

typedef enum llm_tpl_comparison {
    LLM_TPL_EQ,
    LLM_TPL_NE,
    LLM_TPL_LT,
    LLM_TPL_LE,
    LLM_TPL_GT,
    LLM_TPL_GE,
    LLM_TPL_IN,
    LLM_TPL_NOT_IN
} llm_tpl_comparison;

#define LLM_TPL_OP_DOUBLE 128 /* the operator is its character twice */

typedef struct llm_tpl_node llm_tpl_node;
struct llm_tpl_node {
    llm_tpl_node_kind kind;
    int line;
    int op;
    llm_tpl_str text;
    llm_tpl_value value;
    llm_tpl_node *a, *b, *c;
    llm_tpl_node *list, *body, *other;
    llm_tpl_node *next;
};

/* The statements of the template, NULL for an empty one; valid until the job ends. `text` may be
 * freed before. */
bool llm_tpl_parse(llm_tpl_job *job, llm_tpl_str text, const llm_tpl_node **body_out);

#endif
