/* SPDX-License-Identifier: MIT
 *
 * template_json.h: reads JSON (RFC 8259) into values of a template, and writes values as Python's
 * json.dumps does, which chat templates expect.
 */
#ifndef LLM_TEMPLATE_JSON_H
#define LLM_TEMPLATE_JSON_H

#include "llm/template/template_text.h"

/* Reads one value; only white space may follow it. Failures name the byte. Of equal keys the last
 * one counts. */
bool llm_tpl_json_read(llm_tpl_job *job, llm_tpl_str text, llm_tpl_value *out);

typedef struct llm_tpl_json_style {
    llm_tpl_str indent; /* of one level; ptr NULL = all on one line */
    llm_tpl_str item;   /* between items, such as ", " */
    llm_tpl_str key;    /* after a key, such as ": " */
    bool is_ascii;      /* characters beyond ASCII are written as \u escapes */
    bool is_sorted;     /* objects by key */
} llm_tpl_json_style;

/* Writes a value as JSON. Fails for values that have no form in JSON, such as undefined ones,
 * macros and lazy lists. */
bool llm_tpl_json_write(llm_tpl_job *job, const llm_tpl_json_style *style,
                        const llm_tpl_value *value, llm_tpl_str *out);

#endif
