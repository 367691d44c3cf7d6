/* SPDX-License-Identifier: MIT
 *
 * template_lexer.h: the text of a template to tokens, without the white space around tags that
 * Jinja's trim_blocks and lstrip_blocks remove. Chat templates expect both.
 */
#ifndef LLM_TEMPLATE_LEXER_H
#define LLM_TEMPLATE_LEXER_H

#include "llm/template/template_text.h"

typedef enum llm_tpl_token_kind {
    LLM_TPL_TOKEN_END,         /* of the text */
    LLM_TPL_TOKEN_DATA,        /* text outside tags */
    LLM_TPL_TOKEN_PRINT_BEGIN, /* {{ */
    LLM_TPL_TOKEN_PRINT_END,
    LLM_TPL_TOKEN_BLOCK_BEGIN, /* {% */
    LLM_TPL_TOKEN_BLOCK_END,
    LLM_TPL_TOKEN_NAME,
    LLM_TPL_TOKEN_STRING, /* text: without quotes and escapes */
    LLM_TPL_TOKEN_INT,    /* value */
    LLM_TPL_TOKEN_FLOAT,
    LLM_TPL_TOKEN_OPERATOR /* text, one or two characters */
} llm_tpl_token_kind;

typedef struct llm_tpl_token {
    llm_tpl_token_kind kind;
    int line; /* from 1 */
    llm_tpl_str text;
    llm_tpl_value value; /* of INT and FLOAT the number */
} llm_tpl_token;

/* The tokens of the whole text; the last one is END. `text` is valid until the job ends. */
bool llm_tpl_lex(llm_tpl_job *job, llm_tpl_str text, llm_tpl_token **tokens_out);

#endif
