/* SPDX-License-Identifier: MIT
 *
 * gguf_write.h: writes a GGUF file of version 3 as a stream, so that a model larger than memory can
 * be made: first the keys, then a description of every tensor, then the tensors' bytes in that
 * order. The file appears under its name only when it is complete.
 *
 * Keys and descriptions are kept in memory until the first byte of data is written. Putting them
 * cannot be seen to fail: the first failure is kept and reported by the next call that returns a
 * status. What the keys should say is the caller's business; the reader (gguf.h) refuses
 * duplicates. A writer belongs to one thread at a time.
 */
#ifndef LLM_GGUF_WRITE_H
#define LLM_GGUF_WRITE_H

#include "llm/gguf/gguf.h"

typedef struct llm_gguf_writer llm_gguf_writer;

/* Begins a file of a name of its own in the same folder, which `path` names once all is written.
 * TDM_IO where the folder cannot be written to. The caller owns *out. [setup] */
tdm_status llm_gguf_writer_create(const char *path, llm_gguf_writer **out, tdm_error *err);

/* Frees the writer and removes the temporary file, if llm_gguf_writer_finish has not succeeded.
 * NULL is a no-op. [setup] */
void llm_gguf_writer_destroy(llm_gguf_writer *w);

/* Keys, in file order; everything given is copied. [setup] */
void llm_gguf_writer_put_u32(llm_gguf_writer *w, const char *name, uint32_t value);
void llm_gguf_writer_put_f32(llm_gguf_writer *w, const char *name, float value);
void llm_gguf_writer_put_bool(llm_gguf_writer *w, const char *name, bool value);
void llm_gguf_writer_put_str(llm_gguf_writer *w, const char *name, llm_gguf_str value);
void llm_gguf_writer_put_text(llm_gguf_writer *w, const char *name, const char *value);

/* A number (no string, no array) of any type from its little-endian bytes. [setup] */
void llm_gguf_writer_put_number(llm_gguf_writer *w, const char *name, llm_gguf_type type,
                                const void *value);

/* `n` numbers of any type, contiguous and little-endian; `n` strings. [setup] */
void llm_gguf_writer_put_array(llm_gguf_writer *w, const char *name, llm_gguf_type type,
                               const void *values, uint64_t n);
void llm_gguf_writer_put_strings(llm_gguf_writer *w, const char *name, const llm_gguf_str *values,
                                 uint64_t n);

/* Copies a key as it is, for tools that rewrite files. [setup] */
void llm_gguf_writer_put_key(llm_gguf_writer *w, const llm_gguf_key *key);

/* Describes the next tensor: `n_dims` 1 to 4, `ne` innermost first, rows of whole blocks. [setup] */
void llm_gguf_writer_add_tensor(llm_gguf_writer *w, const char *name, tdm_type type, int32_t n_dims,
                                const int64_t *ne);

/* Appends bytes of the tensors, in the order of their descriptions; the padding between tensors is
 * the writer's. One call may not reach beyond the end of a tensor. The first call ends the keys and
 * descriptions. TDM_IO (a full disk among it), TDM_FAILED_PRECONDITION where no tensor is left.
 * After a failure the file cannot be finished. [setup] */
tdm_status llm_gguf_writer_write(llm_gguf_writer *w, const void *data, size_t size, tdm_error *err);

/* Checks that every tensor is there in full, makes the file durable and gives it its name,
 * replacing what had it. On failure the temporary file is removed and an older file of that name
 * is untouched. The writer still has to be destroyed. [setup] */
tdm_status llm_gguf_writer_finish(llm_gguf_writer *w, tdm_error *err);

#endif
