/* SPDX-License-Identifier: MIT
 *
 * gguf_write.h: writes a GGUF file of version 3 as a stream, so that a model may be larger than
 * memory: first the keys, then a description of every tensor, then the bytes of the tensors in that
 * order. The file gets its name only when it is complete.
 *
 * Keys and descriptions stay in memory until the first byte of data is written. The functions that
 * add them return no status: the first failure is kept, and the next call that returns a status
 * reports it. Duplicate keys are not detected here; the reader (gguf.h) refuses them. A writer
 * belongs to one thread at a time.
 */
#ifndef LLM_GGUF_WRITE_H
#define LLM_GGUF_WRITE_H

#include "llm/gguf/gguf.h"

typedef struct llm_gguf_writer llm_gguf_writer;

/* Creates a temporary file in the folder of `path`; it is renamed to `path` when all is written.
 * TDM_IO if the folder cannot be written to. The caller owns *out. [setup] */
tdm_status llm_gguf_writer_create(const char *path, llm_gguf_writer **out, tdm_error *err);

/* Frees the writer. Removes the temporary file unless llm_gguf_writer_finish has succeeded. NULL is
 * a no-op. [setup] */
void llm_gguf_writer_destroy(llm_gguf_writer *w);

/* Add keys, in file order; names and values are copied. [setup] */
void llm_gguf_writer_put_u32(llm_gguf_writer *w, const char *name, uint32_t value);
void llm_gguf_writer_put_f32(llm_gguf_writer *w, const char *name, float value);
void llm_gguf_writer_put_bool(llm_gguf_writer *w, const char *name, bool value);
void llm_gguf_writer_put_text(llm_gguf_writer *w, const char *name, const char *value);

/* A number (no string, no array) of any type from its little-endian bytes. [setup] */
void llm_gguf_writer_put_number(llm_gguf_writer *w, const char *name, llm_gguf_type type,
                                const void *value);

/* `n` numbers of any type, contiguous and little-endian; `n` strings. [setup] */
void llm_gguf_writer_put_array(llm_gguf_writer *w, const char *name, llm_gguf_type type,
                               const void *values, uint64_t n);
void llm_gguf_writer_put_strings(llm_gguf_writer *w, const char *name, const llm_gguf_str *values,
                                 uint64_t n);

/* Copies a key of a file that is read, byte for byte, for tools that rewrite files. So arrays of
 * arrays, which the format allows (docs/gguf.md: "Arrays can be nested"), are copied too. [setup] */
void llm_gguf_writer_put_key(llm_gguf_writer *w, const llm_gguf_key *key);

/* Describes the next tensor: `n_dims` 1 to 4, `ne` innermost first, rows of whole blocks.
 * [setup] */
void llm_gguf_writer_add_tensor(llm_gguf_writer *w, const char *name, tdm_type type, int32_t n_dims,
                                const int64_t *ne);

/* Appends bytes of the tensors, in the order of their descriptions; the writer adds the padding
 * between tensors. One call may not cross the end of a tensor. After the first call no keys and
 * descriptions can be added. TDM_IO (a full disk, for instance), TDM_FAILED_PRECONDITION if no
 * tensor is left. After a failure the file cannot be finished. [setup] */
tdm_status llm_gguf_writer_write(llm_gguf_writer *w, const void *data, size_t size, tdm_error *err);

/* Checks that every tensor is complete, syncs the file to the disk and renames it, replacing an
 * older file. On failure the temporary file is removed and an older file is unchanged. The caller
 * still destroys the writer. [setup] */
tdm_status llm_gguf_writer_finish(llm_gguf_writer *w, tdm_error *err);

#endif
