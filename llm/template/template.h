/* SPDX-License-Identifier: MIT
 *
 * template.h: chat templates: the text of a conversation from its messages, as the template that a
 * model carries says (`tokenizer.chat_template`).
 *
 * The language is Jinja's (https://jinja.palletsprojects.com/templates/), the part of it that chat
 * templates use, set up as they expect: trim_blocks and lstrip_blocks on, no HTML escapes,
 * raise_exception and strftime_now there, values unchangeable except for namespaces. Not here:
 * inheritance, includes, recursive loops, extensions other than `break`, `continue` and
 * `generation`, arguments as *list, whole numbers beyond 64 bits.
 *
 * A template comes out of a file that somebody made: whatever it says, rendering ends after a bounded
 * number of steps with bounded memory (template_value.h), in a text or an error with a line.
 */
#ifndef LLM_TEMPLATE_H
#define LLM_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

typedef struct llm_template llm_template;

/* Reads a template, which is called `name` in messages; both are copied. On failure *out is NULL.
 * TDM_INVALID_ARGUMENT and TDM_UNSUPPORTED say where it is wrong, or what is not known here;
 * TDM_OUT_OF_RANGE (nested or long beyond all use), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_template_create(const char *name, const char *text, size_t len, llm_template **out,
                               tdm_error *err);

/* NULL is a no-op. */
void llm_template_destroy(llm_template *tpl);

/* Renders it. `context` is a JSON object whose members are the template's variables: messages,
 * add_generation_prompt, tools, bos_token, ... `now` is what strftime_now shows, in seconds since
 * 1970, in local time. The caller frees *text_out with free(); it is NUL-terminated beyond *len_out,
 * and NULL on failure. Failures as above, where the template itself objects (raise_exception) too;
 * TDM_DATA_LOSS where `context` is no JSON object. [any-thread] */
tdm_status llm_template_render(const llm_template *tpl, const char *context, size_t context_len,
                               int64_t now, char **text_out, size_t *len_out, tdm_error *err);

#endif
