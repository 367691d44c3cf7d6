/* SPDX-License-Identifier: MIT
 *
 * text_chunks.h: cuts the text of --file into chunks of tokens, each of which is computed in an
 * empty context.
 */
#ifndef TANDEM_RUNNER_TEXT_CHUNKS_H
#define TANDEM_RUNNER_TEXT_CHUNKS_H

#include "runner/session.h"

/* Checks the configuration: --file must be given, and --chunks not be 0. [setup] */
tdm_status text_chunks_check(runner_app *app, tdm_error *err);

/* Reads the text and cuts its tokens into chunks of n_ctx; a remainder is dropped. Gives the first
 * n_max chunks (negative = all). Where the model requires a bos, the text has one in front, and the
 * first token of each chunk is replaced by it. This is llama.cpp's convention. *tokens_out
 * [*n_chunk_out][n_ctx] is the caller's to free(), also on failure. TDM_OUT_OF_RANGE for a text of
 * less than two chunks, even if n_max is 1. [setup] */
tdm_status text_chunks_read(const runner_session *session, int32_t n_ctx, int64_t n_max,
                            int32_t **tokens_out, int32_t *n_chunk_out, tdm_error *err);

#endif
