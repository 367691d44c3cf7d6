/* SPDX-License-Identifier: MIT
 *
 * state.h: a sequence as a file: its tokens and their cached rows, in canonical form. A file that
 * one device or group saved is loaded by any other.
 *
 * The file does not depend on pages, devices or members. Its parts, little-endian:
 *
 *   "TDMSTAT" and a digit, the version
 *   the header of state.c, field by field
 *   version 3: types and rotation of each layer (state_layer of state.c)
 *   versions 2 and 3: the first token that layers with a window have rows of (i32); 0 = the first
 *   the token ids (i32)
 *   for every llm_context_chunk tokens (the last chunk shorter), for each layer: the K rows, then
 *     the V rows of these tokens as stored: blocks of the cache's types, rotated if the header
 *     says so
 *   the recurrent states behind the last token (f32), if the model has them
 *   an FNV-1a hash of all bytes before it (u64)
 *
 * A row that stands for a run of tokens is that of the run's last token; the others' are zeros.
 * Version 1 has the rows of all tokens. In version 2 a layer with a window has no rows in chunks
 * that lie wholly before its first token, and zeros before that token in the next chunk. Version 3
 * is for caches whose types differ between layers; windows are as in version 2.
 */
#ifndef LLM_STATE_H
#define LLM_STATE_H

#include "llm/context.h"

/* Writes a sequence to `path`; tokens[n_tok] are its token ids, n_tok its length. The bytes go to a
 * temporary file beside `path`, which takes its name once it is complete and on the disk. On
 * failure the temporary file is removed, and an older file at `path` stays as it was. If `path` is
 * a symbolic link, the file that it leads to is replaced. TDM_IO names the path. [setup] */
tdm_status llm_state_save(llm_context *ctx, int32_t seq, const int32_t *tokens, int32_t n_tok,
                          const char *path, tdm_error *err);

/* Reads a file into the empty sequence `seq`. *tokens_out (freed by the caller with free()) and
 * *n_tok_out get the ids. On failure the sequence is empty and both are unchanged:
 * TDM_NOT_FOUND           there is no such file
 * TDM_FAILED_PRECONDITION it is of another model, cache type (of a layer), rotation or RoPE; says
 *                         which
 * TDM_UNSUPPORTED         it is of another version of the format
 * TDM_OUT_OF_RANGE        it holds more tokens than the context has room for
 * TDM_DATA_LOSS           it is truncated, changed, or not a state file
 * [setup] */
tdm_status llm_state_load(llm_context *ctx, int32_t seq, const char *path, int32_t **tokens_out,
                          int32_t *n_tok_out, tdm_error *err);

/* Reads only the longest prefix that the file's tokens have in common with prompt[n_prompt];
 * *n_tok_out = its length, 0 included. With recurrent states it is all of the file's tokens or 0,
 * and with windows 0 where the file lacks what the prefix needs.
 * The whole file is checked. It may hold more tokens than the context has room for. Fails as
 * llm_state_load. [setup] */
tdm_status llm_state_load_prefix(llm_context *ctx, int32_t seq, const char *path,
                                 const int32_t *prompt, int32_t n_prompt, int32_t *n_tok_out,
                                 tdm_error *err);

#endif
