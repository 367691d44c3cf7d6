/* SPDX-License-Identifier: MIT
 *
 * state.h: a sequence as a file: its tokens and their cached rows, in canonical form, so that what
 * one device or group saved another continues.
 *
 * The file, little-endian: "TDMSTAT1"; the header below field by field; the token ids (i32); then
 * for every LLM_STATE_CHUNK tokens (the last chunk shorter), for each layer, the K rows and the V
 * rows of those tokens as stored: blocks of the cache's types, rotated if the header says so;
 * last, an FNV-1a hash of all before it (u64). Pages, devices and members leave no trace in it.
 */
#ifndef LLM_STATE_H
#define LLM_STATE_H

#include "llm/context.h"

/* Writes the tokens of a sequence to `path`; tokens[n_tok] are their ids, n_tok its length. Nothing
 * half-written is left on failure, and an older file of that name stays until the new one is
 * whole. TDM_IO names the path. */
tdm_status llm_state_save(llm_context *ctx, int32_t seq, const int32_t *tokens, int32_t n_tok,
                          const char *path, tdm_error *err);

/* Reads a file into the empty sequence `seq`. *tokens_out (freed by the caller with free()) and
 * *n_tok_out get the ids. A file of another model, cache type, rotation or RoPE is refused with
 * what differs; a truncated or changed one is TDM_DATA_LOSS. On failure the sequence is empty. */
tdm_status llm_state_load(llm_context *ctx, int32_t seq, const char *path, int32_t **tokens_out,
                          int32_t *n_tok_out, tdm_error *err);

#endif
