/* SPDX-License-Identifier: MIT
 *
 * text_chunks.h: cuts the text of --file into chunks of tokens, each of which is computed in an
 * empty context, and says which positions of a chunk are scored.
 */
#ifndef TANDEM_RUNNER_TEXT_CHUNKS_H
#define TANDEM_RUNNER_TEXT_CHUNKS_H

#include "runner/session.h"

/* Whether the token behind position `pos` of a chunk is scored: positions of the second half are,
 * which have at least half a context before them; the last one has no next token. [any-thread] */
static inline bool text_chunk_is_scored(int32_t n_ctx, int32_t pos) {
    return pos >= n_ctx / 2 && pos < n_ctx - 1;
}

/* Number of scored positions in a chunk of n_ctx tokens. [any-thread] */
static inline int32_t text_chunk_n_scored(int32_t n_ctx) {
    return n_ctx - n_ctx / 2 - 1;
}

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
