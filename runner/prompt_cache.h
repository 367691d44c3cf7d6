/* SPDX-License-Identifier: MIT
 *
 * prompt_cache.h: the file of --prompt-cache: the tokens of a run and their cached rows, so that
 * the next run computes only the part of its prompt that is new. The format is llm/cache/state.h's.
 */
#ifndef TANDEM_RUNNER_PROMPT_CACHE_H
#define TANDEM_RUNNER_PROMPT_CACHE_H

#include "runner/session.h"

/* Checks, before any long work, that a file can be written at `path`. Changes no file there.
 * [setup] */
tdm_status runner_prompt_cache_check(const char *path, tdm_error *err);

/* Loads into sequence 0, which is empty, the longest prefix that the file has in common with
 * prompt[n_prompt]. The prompt's last token is never loaded, because its logits must be computed. A
 * missing file counts as an empty one. Fails as llm_state_load_prefix. [setup] */
tdm_status runner_prompt_cache_load(runner_session *session, const char *path,
                                    const int32_t *prompt, int32_t n_prompt, tdm_error *err);

/* Saves sequence 0, whose tokens are tokens[n_tok], and prints a note. Fails as llm_state_save.
 * [setup] */
tdm_status runner_prompt_cache_save(runner_session *session, const char *path,
                                    const int32_t *tokens, int32_t n_tok, tdm_error *err);

#endif
