/* SPDX-License-Identifier: MIT
 *
 * text_chunks.h: the text of --file as chunks of tokens, each of which is computed from nothing.
 */
#ifndef TANDEM_RUNNER_TEXT_CHUNKS_H
#define TANDEM_RUNNER_TEXT_CHUNKS_H

#include "runner/session.h"

/* Checks the configuration, and that it gives a text and a number of chunks above 0. [setup] */
tdm_status text_chunks_check(runner_app *app, tdm_error *err);

/* Cuts the text's tokens (with a bos in front where the model requires one) into chunks of n_ctx, at
 * most n_max (negative: all); a remainder is dropped. Where the model requires a bos, it takes the
 * place of each chunk's first token. This is llama.cpp's convention. *tokens_out [*n_chunk_out *
 * n_ctx] is the caller's to free(). TDM_OUT_OF_RANGE for a text of less than two chunks. [setup] */
tdm_status text_chunks_read(const runner_session *session, int32_t n_ctx, int64_t n_max,
                            int32_t **tokens_out, int32_t *n_chunk_out, tdm_error *err);

#endif
