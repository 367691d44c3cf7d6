/* SPDX-License-Identifier: MIT
 *
 * prompt_cache.h: the file of --prompt-cache: the tokens of a run and their cached rows, so that
 * the next run computes only the part of its prompt that is new. The format is llm/cache/state.h's.
 */
#ifndef TANDEM_RUNNER_PROMPT_CACHE_H
#define TANDEM_RUNNER_PROMPT_CACHE_H

#include "runner/session.h"

/* Fails where a file cannot be made at `path`, before any long work. Changes nothing. [setup] */
tdm_status runner_prompt_cache_check(const char *path, tdm_error *err);

/* Loads into sequence 0, which is empty, the longest prefix that the file has in common with
 * prompt[n_prompt], but not the prompt's last token, whose logits are needed. A file that is not
 * there is an empty one. Fails as llm_state_load_prefix. [setup] */
tdm_status runner_prompt_cache_load(runner_session *session, const char *path,
                                    const int32_t *prompt, int32_t n_prompt, tdm_error *err);

/* Saves sequence 0, which holds tokens[n_tok], and prints a note. [setup] */
tdm_status runner_prompt_cache_save(runner_session *session, const char *path,
                                    const int32_t *tokens, int32_t n_tok, tdm_error *err);

#endif
