/* SPDX-License-Identifier: MIT
 *
 * template_text.h: text in a template job: a growing buffer, characters as code points, and values
 * as text, in the forms of Python's str() and repr(). JSON: template_json.h.
 *
 * Positions and lengths count code points, as in Python. A byte that is not part of a UTF-8
 * sequence counts as one.
 */
#ifndef LLM_TEMPLATE_TEXT_H
#define LLM_TEMPLATE_TEXT_H

#include "llm/template/template_value.h"

typedef struct llm_tpl_buffer {
    char *ptr; /* of the job's memory */
    size_t len, capacity;
} llm_tpl_buffer;

bool llm_tpl_put(llm_tpl_job *job, llm_tpl_buffer *buffer, llm_tpl_str text);
bool llm_tpl_put_chars(llm_tpl_job *job, llm_tpl_buffer *buffer, const char *text);
/* Appends a text with &, <, >, ' and " as HTML's entities, in the form of Python's markupsafe. */
bool llm_tpl_put_escaped(llm_tpl_job *job, llm_tpl_buffer *buffer, llm_tpl_str text);
/* Appends a code point as UTF-8; an invalid one, such as a lone surrogate, becomes U+FFFD. */
bool llm_tpl_put_code(llm_tpl_job *job, llm_tpl_buffer *buffer, uint32_t code);
llm_tpl_str llm_tpl_buffer_str(const llm_tpl_buffer *buffer);

/* Bytes of the character that begins at `at` < text.len. */
size_t llm_tpl_char_len(llm_tpl_str text, size_t at);
/* The same, and the code point; U+FFFD for a byte that is not part of a UTF-8 sequence. */
size_t llm_tpl_char_read(llm_tpl_str text, size_t at, uint32_t *code_out);
size_t llm_tpl_text_count(llm_tpl_str text); /* characters */
/* The offset of character `index`; text.len past the end. */
size_t llm_tpl_text_offset(llm_tpl_str text, size_t index);
bool llm_tpl_is_space(uint32_t code); /* Python's str.isspace */
/* Removes characters of `set` (NULL = white space) from the left and right end. */
llm_tpl_str llm_tpl_text_strip(llm_tpl_str text, llm_tpl_str set, bool left, bool right);
/* The offset of the first `part` at or after `from`; SIZE_MAX = none. An empty part is found at
 * `from`. */
size_t llm_tpl_text_find(llm_tpl_str text, llm_tpl_str part, size_t from);
bool llm_tpl_text_replace(llm_tpl_job *job, llm_tpl_str text, llm_tpl_str old, llm_tpl_str new,
                          int64_t limit, llm_tpl_str *out); /* limit -1 = all */

typedef enum llm_tpl_case {
    LLM_TPL_CASE_UPPER,
    LLM_TPL_CASE_LOWER,
    LLM_TPL_CASE_CAPITAL,    /* the first character upper, the rest lower */
    LLM_TPL_CASE_TITLE,      /* the same for each word; a word is letters (str.title) */
    LLM_TPL_CASE_TITLE_WORDS /* as the filter: words end at white space, - ( { [ < */
} llm_tpl_case;
bool llm_tpl_text_case(llm_tpl_job *job, llm_tpl_str text, llm_tpl_case how, llm_tpl_str *out);

/* Python's str() as a text, and appended: a string unchanged, other values as repr(); undefined is
 * empty. */
bool llm_tpl_to_text(llm_tpl_job *job, const llm_tpl_value *value, llm_tpl_str *out);
bool llm_tpl_put_value(llm_tpl_job *job, llm_tpl_buffer *buffer, const llm_tpl_value *value);
/* Python's repr() of a float: the shortest digits that read back as the same number. */
bool llm_tpl_put_float(llm_tpl_job *job, llm_tpl_buffer *buffer, double real);
/* Python's % on a string, with the conversions s r d i u x X o e E f F g G %; args[n_arg] are its
 * operands. Others, and mapping keys, are TDM_UNSUPPORTED. */
bool llm_tpl_text_format(llm_tpl_job *job, llm_tpl_str format, const llm_tpl_value *args,
                         size_t n_arg, llm_tpl_str *out);

#endif
