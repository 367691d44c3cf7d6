/* SPDX-License-Identifier: MIT
 *
 * gguf.h: reads a GGUF model file: its keys and its tensors.
 *
 * The file is mapped read-only. Opening checks every byte of its header. Keys and tensors are then
 * plain structs that point into the mapping, valid until llm_gguf_close. A model split into parts
 * NAME-00001-of-0000N.gguf is one llm_gguf, with the keys of the first part and the tensors of all
 * parts. The format is version 2 or 3, little-endian (ggml-org/ggml, docs/gguf.md).
 *
 * The meaning of keys, and the tensors and shapes that a model needs, are left to the caller. If
 * another process shortens the file while it is open, a read through `data` ends the program
 * (SIGBUS); llm_gguf_read fails instead, also if storage fails. For many small reads through `data`
 * see llm_gguf_check_length.
 *
 * Nothing changes after opening, so every function except open and close is [any-thread].
 */
#ifndef LLM_GGUF_H
#define LLM_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"
#include "tandem/type.h"

typedef struct llm_gguf llm_gguf;

/* The type of a key's value, numbered as in the file. */
typedef enum llm_gguf_type {
    LLM_GGUF_U8 = 0,
    LLM_GGUF_I8 = 1,
    LLM_GGUF_U16 = 2,
    LLM_GGUF_I16 = 3,
    LLM_GGUF_U32 = 4,
    LLM_GGUF_I32 = 5,
    LLM_GGUF_F32 = 6,
    LLM_GGUF_BOOL = 7,
    LLM_GGUF_STRING = 8,
    LLM_GGUF_ARRAY = 9,
    LLM_GGUF_U64 = 10,
    LLM_GGUF_I64 = 11,
    LLM_GGUF_F64 = 12,
    LLM_GGUF_TYPE_COUNT_
} llm_gguf_type;

/* Bytes inside the mapping; not NUL-terminated, may hold any byte, ptr is never NULL. */
typedef struct llm_gguf_str {
    const char *ptr;
    size_t len; /* bytes */
} llm_gguf_str;

/* A view of an array of `n` elements of one type. Numbers are unaligned: read them with the
 * llm_gguf_array_ functions. The elements of an array of arrays can be printed, not read. */
typedef struct llm_gguf_array {
    llm_gguf_type type; /* of an element */
    uint64_t n;         /* elements, may be 0 */
    const uint8_t *data;
    const uint64_t *string_off; /* strings only: n offsets from `data` to each length prefix */
} llm_gguf_array;

typedef struct llm_gguf_key {
    const char *name; /* NUL-terminated, no control characters, unique */
    llm_gguf_type type;
    /* The value as in the file, unaligned: of a string its length first, of an array its type and
     * count */
    const uint8_t *data;
    size_t size;          /* bytes of it */
    llm_gguf_array array; /* type == LLM_GGUF_ARRAY only */
} llm_gguf_key;

typedef struct llm_gguf_tensor {
    const char *name;  /* NUL-terminated, no control characters, unique over all parts */
    tdm_type type;     /* valid only if size != 0 */
    uint32_t type_raw; /* the number in the file, known to this build or not */
    int32_t n_dims;    /* 1 to 4 */
    int64_t ne[4];     /* elements, innermost first; 1 beyond n_dims; the product fits an int64 */
    const void *data;  /* `size` contiguous bytes, aligned to the file's alignment (8 or more);
                        * NULL if the type is unknown */
    size_t size;       /* bytes; 0 if the type is unknown to this build */
    uint32_t part;     /* 0 for the first file */
} llm_gguf_tensor;

/* Whether a missing key is an error. A key of the wrong type always is. */
typedef enum llm_gguf_need {
    LLM_GGUF_OPTIONAL = 0, /* missing: TDM_OK, and the output is unchanged */
    LLM_GGUF_REQUIRED = 1, /* missing: TDM_NOT_FOUND, with file and key */
} llm_gguf_need;

/* Maps `path` and, if it is the first part of a split model, all other parts, and checks all that
 * does not depend on the kind of model. The caller owns *out. On failure *out is NULL and the
 * message names the file, the key or tensor, and what to do: TDM_NOT_FOUND (no such file or part),
 * TDM_IO, TDM_DATA_LOSS (not GGUF, truncated, corrupt), TDM_UNSUPPORTED (a version or byte order
 * that this build does not read), TDM_INVALID_ARGUMENT (`path` is a later part),
 * TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status llm_gguf_open(const char *path, llm_gguf **out, tdm_error *err);

/* Unmaps; all pointers obtained from `g` become invalid. NULL is a no-op. [setup] */
void llm_gguf_close(llm_gguf *g);

/* The path given to llm_gguf_open, for messages; a very long one is shortened to `.../FILE`.
 * [any-thread] */
const char *llm_gguf_name(const llm_gguf *g);

/* The same for one part; the number of parts (1 for a file that is not split). [any-thread] */
const char *llm_gguf_part_name(const llm_gguf *g, uint32_t part);
uint32_t llm_gguf_part_count(const llm_gguf *g);

/* 2 or 3. [any-thread] */
uint32_t llm_gguf_version(const llm_gguf *g);

/* ---- Keys ---- */

/* Keys in the order of the (first) file; `i` < count. [any-thread] */
uint32_t llm_gguf_key_count(const llm_gguf *g);
const llm_gguf_key *llm_gguf_key_at(const llm_gguf *g, uint32_t i);

/* The key of that name, or NULL. [any-thread] */
const llm_gguf_key *llm_gguf_key_find(const llm_gguf *g, const char *name);

/* Typed reads. An integer of any width is accepted if its value fits, and f64 for f32; no other
 * type is converted. A wrong type is TDM_DATA_LOSS, a value that does not fit TDM_OUT_OF_RANGE;
 * both name the file, the key and what was found. A u64 above INT64_MAX counts as INT64_MAX, and an
 * f64 beyond f32 as an infinity. *value is written only if the key exists and is read.
 * [any-thread] */
tdm_status llm_gguf_get_u32(const llm_gguf *g, const char *name, llm_gguf_need need,
                            uint32_t *value, tdm_error *err);
tdm_status llm_gguf_get_i64(const llm_gguf *g, const char *name, llm_gguf_need need, int64_t *value,
                            tdm_error *err);
tdm_status llm_gguf_get_f32(const llm_gguf *g, const char *name, llm_gguf_need need, float *value,
                            tdm_error *err);
tdm_status llm_gguf_get_bool(const llm_gguf *g, const char *name, llm_gguf_need need, bool *value,
                             tdm_error *err);
tdm_status llm_gguf_get_str(const llm_gguf *g, const char *name, llm_gguf_need need,
                            llm_gguf_str *value, tdm_error *err);

/* An array with elements of `type`. For an integer type any integer type is accepted, for F32 also
 * F64. [any-thread] */
tdm_status llm_gguf_get_array(const llm_gguf *g, const char *name, llm_gguf_type type,
                              llm_gguf_need need, llm_gguf_array *value, tdm_error *err);

/* Fills values[0..n) from one number for all or from an array of exactly `n` (files write counts of
 * layers both ways). [any-thread] */
tdm_status llm_gguf_get_u32_each(const llm_gguf *g, const char *name, llm_gguf_need need,
                                 uint32_t n, uint32_t *values, tdm_error *err);

/* Element `i` < array->n. _i64 for integer and bool arrays (a u64 above INT64_MAX reads as
 * INT64_MAX), _f32 for float arrays, _str for string arrays (in constant time). Another element
 * type gives 0, 0 and the empty string. [any-thread] */
int64_t llm_gguf_array_i64(const llm_gguf_array *array, uint64_t i);
float llm_gguf_array_f32(const llm_gguf_array *array, uint64_t i);
llm_gguf_str llm_gguf_array_str(const llm_gguf_array *array, uint64_t i);

/* Whether `str` has exactly the bytes of the NUL-terminated `text`. [any-thread] */
bool llm_gguf_str_equals(llm_gguf_str str, const char *text);

/* Writes the key's value as one readable line into text[0..text_size), always NUL-terminated:
 * strings quoted with control characters escaped, arrays as `[n x type] first, second, ...`, cut
 * off with `...` if they do not fit. Returns the length written. [any-thread] */
size_t llm_gguf_key_print(const llm_gguf_key *key, char *text, size_t text_size);

/* "u32", "string", ...; "?" for an unknown number. [any-thread] */
const char *llm_gguf_type_name(llm_gguf_type type);

/* ---- Tensors ---- */

/* Tensors in file order, first part first; `i` < count. [any-thread] */
uint32_t llm_gguf_tensor_count(const llm_gguf *g);
const llm_gguf_tensor *llm_gguf_tensor_at(const llm_gguf *g, uint32_t i);

/* The tensor of that name, or NULL. [any-thread] */
const llm_gguf_tensor *llm_gguf_tensor_find(const llm_gguf *g, const char *name);

/* TDM_OK if this build knows the tensor's type, else TDM_UNSUPPORTED with file, tensor and type.
 * [any-thread] */
tdm_status llm_gguf_tensor_check_type(const llm_gguf *g, const llm_gguf_tensor *tensor,
                                      tdm_error *err);

/* ggml's name of the number in tensor->type_raw ("q8_K"), also for types that this build does not
 * know; "?" for a number without a name. [any-thread] */
const char *llm_gguf_tensor_type_name(uint32_t type_raw);

/* Copies bytes [from, from + size) of the tensor, which lie inside it, to `dst`. It reads the file,
 * not the mapping, so that the process's resident set does not grow. TDM_DATA_LOSS if the file has
 * become shorter, TDM_IO if storage fails; both name the file and the tensor. [any-thread] */
tdm_status llm_gguf_read(const llm_gguf *g, const llm_gguf_tensor *tensor, size_t from, size_t size,
                         void *dst, tdm_error *err);

/* Checks that the file still has all bytes of the tensor: TDM_DATA_LOSS as of llm_gguf_read if not,
 * TDM_IO if its length cannot be read. A caller that copies many small ranges through `data` calls
 * it first, since one llm_gguf_read for each would be a system call for each. A file that is
 * shortened between the check and the copies still ends the program. [any-thread] */
tdm_status llm_gguf_check_length(const llm_gguf *g, const llm_gguf_tensor *tensor, tdm_error *err);

/* Advises the kernel to prefetch bytes [from, to) of the tensor, clipped to the tensor. Returns at
 * once and reports no failure. For small ranges far apart: the kernel detects sequential reads by
 * itself, at a lower cost. [any-thread] */
void llm_gguf_prefetch(const llm_gguf *g, const llm_gguf_tensor *tensor, size_t from, size_t to);

/* Removes all mapped pages of all parts from this process's resident set, including those that the
 * kernel mapped around faults. All pointers stay valid; reading through them costs page faults.
 * [any-thread] */
void llm_gguf_release_all(const llm_gguf *g);

#endif
