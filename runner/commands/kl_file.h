/* SPDX-License-Identifier: MIT
 *
 * kl_file.h: a file of reference log-probabilities of one model for a text, to compare another
 * model with. A row is a scored position; the caller chooses the positions.
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

typedef struct kl_head {
    int32_t n_vocab, n_ctx, n_chunk;
    uint64_t vocabulary, text, model;
    char name[80];
} kl_head;

/* Rows of a chunk that are scored. [any-thread] */
int32_t kl_head_n_row(const kl_head *head);

/* The two fingerprints above. `hash` continues an earlier one; 0 begins. [any-thread] */
uint64_t kl_hash_vocabulary(const llm_vocab *vocab);
uint64_t kl_hash_tokens(uint64_t hash, const int32_t *tokens, int32_t n);

/* Begins `path`, beside which the rows are gathered until kl_file_close keeps them. TDM_IO. The
 * caller owns *file_out. [setup] */
tdm_status kl_file_create(const char *path, const kl_head *head, kl_file **file_out,
                          tdm_error *err);

/* Opens one and reads its head; control characters of the name are replaced. TDM_DATA_LOSS where it
 * is no such file or not as long as its head says, TDM_UNSUPPORTED where of another version. The
 * caller owns *file_out. [setup] */
tdm_status kl_file_open(const char *path, kl_head *head_out, kl_file **file_out, tdm_error *err);

/* The next row of n_vocab values. Reading fails with TDM_DATA_LOSS where they are not logarithms of
 * probabilities (above 0, NaN, or together not 1), with TDM_IO after the last. [setup] */
tdm_status kl_file_write(kl_file *file, const float *row, tdm_error *err);
tdm_status kl_file_read(kl_file *file, float *row_out, tdm_error *err);

/* Closes and frees; with NULL it returns `status`. A file that is being written gets its name if
 * `status` is TDM_OK; otherwise it is removed. Returns `status`, or the failure of closing. [setup]
 * */
tdm_status kl_file_close(kl_file *file, tdm_status status, tdm_error *err);

#endif
