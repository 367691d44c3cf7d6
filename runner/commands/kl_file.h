/* SPDX-License-Identifier: MIT
 *
 * kl_file.h: a file with the log-probabilities of one model on a text, as a reference for other
 * models. It has a row for each scored position; the caller computes the rows, in the order of the
 * positions.
 *
 * The format, all numbers little-endian:
 *
 *     byte   0   "TDMKLREF"
 *            8   u32 version, 1
 *           12   u32 n_vocab
 *           16   u32 n_ctx      tokens in a chunk
 *           20   u32 n_chunk
 *           24   u64 vocabulary FNV-1a of the vocabulary's token texts, each after its u32 length
 *           32   u64 text       FNV-1a of the tokens as they were evaluated, each an i32
 *           40   u64 model      fingerprint of the model (llm/model.h)
 *           48   80 bytes       what it is called, NUL-terminated
 *          128   rows of n_vocab f32: natural logarithms of the next token's probabilities, for
 *                n_ctx - n_ctx / 2 - 1 positions of each chunk, from position n_ctx / 2 on
 */
#ifndef TANDEM_RUNNER_KL_FILE_H
#define TANDEM_RUNNER_KL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "llm/tokenizer/vocab.h"
#include "tandem/status.h"

typedef struct kl_file kl_file;

/* The head of the file, as above. */
typedef struct kl_head {
    int32_t n_vocab, n_ctx, n_chunk;
    uint64_t vocabulary, text, model; /* hashes */
    char name[80];                    /* description of the model */
} kl_head;

/* Scored positions of a chunk, which is rows of the file: n_ctx - n_ctx / 2 - 1. [any-thread] */
int32_t kl_head_n_row(const kl_head *head);

/* The fields `vocabulary` and `text` of the head. kl_hash_tokens continues `hash`; pass 0 for the
 * first tokens. [any-thread] */
uint64_t kl_hash_vocabulary(const llm_vocab *vocab);
uint64_t kl_hash_tokens(uint64_t hash, const int32_t *tokens, int32_t n);

/* Creates a file and writes its head. Rows go to a temporary file, which kl_file_close renames to
 * `path`. TDM_IO. The caller owns *file_out. [setup] */
tdm_status kl_file_create(const char *path, const kl_head *head, kl_file **file_out,
                          tdm_error *err);

/* Opens a file for reading and reads its head; control characters in the name are replaced by '?'.
 * TDM_DATA_LOSS if it is no such file or not as long as its head says, TDM_UNSUPPORTED if it has
 * another version, TDM_NOT_FOUND or TDM_IO if it cannot be opened. The caller owns *file_out.
 * [setup] */
tdm_status kl_file_open(const char *path, kl_head *head_out, kl_file **file_out, tdm_error *err);

/* Write and read the next row of n_vocab values. Reading fails with TDM_DATA_LOSS if they are not
 * the logarithms of probabilities (one is above 0 or NaN, or the probabilities do not sum to 1),
 * with TDM_IO behind the last row. [setup] */
tdm_status kl_file_write(kl_file *file, const float *row, tdm_error *err);
tdm_status kl_file_read(kl_file *file, float *row_out, tdm_error *err);

/* Closes and frees the file. A file that is being written becomes `path` if `status` is TDM_OK;
 * otherwise it is removed. Returns `status`, or the failure of closing. NULL only returns `status`.
 * [setup] */
tdm_status kl_file_close(kl_file *file, tdm_status status, tdm_error *err);

#endif
