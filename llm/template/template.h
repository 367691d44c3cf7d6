/* SPDX-License-Identifier: MIT
 *
 * template.h: chat templates: renders the messages of a conversation as a text, by the template of
 * a model (`tokenizer.chat_template`).
 *
 * The language is the part of Jinja (https://jinja.palletsprojects.com/templates/) that chat
 * templates use, with their settings: trim_blocks and lstrip_blocks on, no HTML escapes, the
 * functions raise_exception and strftime_now, and values that cannot be changed, except namespaces
 * and, by append and pop, lists.
 * Not supported: inheritance, includes, recursive loops, extensions other than `break`, `continue`
 * and `generation`, arguments as *list, integers beyond 64 bits.
 *
 * Templates are untrusted input. Rendering ends after a bounded number of steps with bounded memory
 * (template_value.h), with a text or with an error that names the line.
 */
#ifndef LLM_TEMPLATE_H
#define LLM_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct llm_template llm_template;

/* Parses a template. Messages call it `name`; those of rendering, which a server sends to its
 * clients, leave out the folders of a path. Both strings are copied. On failure *out is NULL:
 * TDM_INVALID_ARGUMENT and TDM_UNSUPPORTED with the line, TDM_OUT_OF_RANGE (too long or nested too
 * deeply), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_template_create(const char *name, const char *text, size_t len, llm_template **out,
                               tdm_error *err);

/* NULL is a no-op. */
void llm_template_destroy(llm_template *tpl);

/* Renders a template. `context` is a JSON object whose members are the template's variables:
 * messages, add_generation_prompt, tools, bos_token, ... `now` is the time for strftime_now, in
 * seconds since 1970, shown as local time. The caller frees *text_out with free(); a NUL follows
 * its *len_out bytes; NULL on failure. Fails as llm_template_create, also when the template calls
 * raise_exception; TDM_DATA_LOSS if `context` is not a JSON object. [any-thread] */
tdm_status llm_template_render(const llm_template *tpl, const char *context, size_t context_len,
                               int64_t now, char **text_out, size_t *len_out, tdm_error *err);

#endif
