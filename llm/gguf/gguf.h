/* SPDX-License-Identifier: MIT
 *
 * gguf.h: a GGUF model file, opened for reading: its keys, and its tensors where they lie.
 *
 * The model in the head: a file is mapped read-only; opening it walks every byte of its header
 * once and believes none of it; afterwards keys and tensors are plain structs that point into the
 * mapping, all of them valid until llm_gguf_close. A model split into NAME-00001-of-0000N.gguf
 * parts is one llm_gguf: the keys are the first part's, the tensors are those of all parts.
 * The format is version 2 or 3, little-endian (ggml-org/ggml, docs/gguf.md).
 *
 * What the keys mean, which tensors a model needs and what shapes they have is the consumer's
 * business. A file that another process shortens while it is open ends a program that looks through
 * `data` (SIGBUS); llm_gguf_read says so instead, and of storage that fails as well.
 *
 * After opening nothing here changes, so every function but open and close is [any-thread].
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

/* A view of an array of `n` elements of one type. Numbers lie unaligned: read them through the
 * llm_gguf_array_ functions. An array of arrays can be printed and skipped, its elements not read. */
typedef struct llm_gguf_array {
    llm_gguf_type type; /* of an element */
    uint64_t n;         /* elements, may be 0 */
    const uint8_t *data;
    const uint64_t *string_off; /* strings only: n offsets from `data` to each length prefix */
} llm_gguf_array;

typedef struct llm_gguf_key {
    const char *name; /* NUL-terminated, no control characters, unique */
    llm_gguf_type type;
    const uint8_t *data;  /* a number's or a string's bytes as in the file, unaligned */
    llm_gguf_array array; /* type == LLM_GGUF_ARRAY only */
} llm_gguf_key;

typedef struct llm_gguf_tensor {
    const char *name;  /* NUL-terminated, no control characters, unique over all parts */
    tdm_type type;     /* meaningful only where size != 0 */
    uint32_t type_raw; /* the number in the file, also where this build does not know it */
    int32_t n_dims;    /* 1 to 4 */
    int64_t ne[4];     /* elements, innermost first; 1 beyond n_dims; the product fits an int64 */
    const void *data;  /* `size` contiguous bytes, aligned to the file's alignment (8 or more);
                        * NULL where the type is unknown */
    size_t size;       /* bytes; 0 where the type is unknown to this build */
    uint32_t part;     /* 0 for the first file */
} llm_gguf_tensor;

/* Whether a missing key is an error. A key that is there with the wrong type always is. */
typedef enum llm_gguf_need {
    LLM_GGUF_OPTIONAL = 0, /* missing: TDM_OK and the output keeps what the caller put there */
    LLM_GGUF_REQUIRED = 1, /* missing: TDM_NOT_FOUND, naming file and key */
} llm_gguf_need;

/* Maps `path` and, where it is the first part of a split model, every other part; checks
 * everything that can be checked without knowing what the model is. On failure *out is NULL and
 * the message names the file, the key or tensor, and the way out. TDM_NOT_FOUND (no such file or
 * part), TDM_IO, TDM_DATA_LOSS (not GGUF, truncated, corrupt), TDM_UNSUPPORTED (a version or byte
 * order that this build does not read), TDM_INVALID_ARGUMENT (a later part was named),
 * TDM_RESOURCE_EXHAUSTED. The caller owns *out. [setup] */
tdm_status llm_gguf_open(const char *path, llm_gguf **out, tdm_error *err);

/* Unmaps; every pointer that came from `g` dies. NULL is a no-op. [setup] */
void llm_gguf_close(llm_gguf *g);

/* The path as given to llm_gguf_open, shortened to `.../FILE` where it is very long: for messages.
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

/* Typed reads. An integer of any width is accepted where its value fits; f32 accepts f64 too; no
 * other type is converted. A wrong type is TDM_DATA_LOSS, a value that does not fit is
 * TDM_OUT_OF_RANGE; both name file, key and what was found. *value is written only on success of
 * a key that is there. [any-thread] */
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

/* An array whose elements are of kind `type`: exactly that type, except that any integer type is
 * accepted where `type` is an integer type and F64 where it is F32. [any-thread] */
tdm_status llm_gguf_get_array(const llm_gguf *g, const char *name, llm_gguf_type type,
                              llm_gguf_need need, llm_gguf_array *value, tdm_error *err);

/* A value that is either one number for all or an array of exactly `n` (per-layer counts are
 * written both ways): fills values[0..n). [any-thread] */
tdm_status llm_gguf_get_u32_each(const llm_gguf *g, const char *name, llm_gguf_need need,
                                 uint32_t n, uint32_t *values, tdm_error *err);

/* Element `i` < array->n. _i64 for integer and bool arrays (a u64 above INT64_MAX reads as
 * INT64_MAX), _f32 for float arrays, _str for string arrays in constant time. Another element type
 * gives 0, 0 and the empty string. [any-thread] */
int64_t llm_gguf_array_i64(const llm_gguf_array *array, uint64_t i);
float llm_gguf_array_f32(const llm_gguf_array *array, uint64_t i);
llm_gguf_str llm_gguf_array_str(const llm_gguf_array *array, uint64_t i);

/* True where `str` has exactly the bytes of the NUL-terminated `text`. [any-thread] */
bool llm_gguf_str_equals(llm_gguf_str str, const char *text);

/* Writes the key's value as one readable line into text[0..text_size), always NUL-terminated:
 * strings quoted with control characters escaped, arrays as `[n x type] first, second, ...` and
 * cut off with `...` where they do not fit. Returns the length written. [any-thread] */
size_t llm_gguf_key_print(const llm_gguf_key *key, char *text, size_t text_size);

/* "u32", "string", ...; "?" for a number that is no type. [any-thread] */
const char *llm_gguf_type_name(llm_gguf_type type);

/* ---- Tensors ---- */

/* Tensors in file order, first part first; `i` < count. [any-thread] */
uint32_t llm_gguf_tensor_count(const llm_gguf *g);
const llm_gguf_tensor *llm_gguf_tensor_at(const llm_gguf *g, uint32_t i);

/* The tensor of that name, or NULL. [any-thread] */
const llm_gguf_tensor *llm_gguf_tensor_find(const llm_gguf *g, const char *name);

/* TDM_UNSUPPORTED with a message that names file, tensor and type where this build does not know
 * the tensor's type, else TDM_OK. [any-thread] */
tdm_status llm_gguf_tensor_check_type(const llm_gguf *g, const llm_gguf_tensor *tensor,
                                      tdm_error *err);

/* The name that ggml gives to the number in tensor->type_raw ("q8_K"), also for types this
 * build does not know; "?" for a number without a name. [any-thread] */
const char *llm_gguf_tensor_type_name(uint32_t type_raw);

/* Copies bytes [from, from + size) of the tensor, which must lie inside it, to `dst`, by way of the
 * file and not of the mapping: the process's resident set does not grow. TDM_DATA_LOSS where the file
 * has become shorter, TDM_IO where storage fails; both name the file and the tensor. [any-thread] */
tdm_status llm_gguf_read(const llm_gguf *g, const llm_gguf_tensor *tensor, size_t from, size_t size,
                         void *dst, tdm_error *err);

/* Advises the kernel that bytes [from, to) of the tensor are read soon, few of many: what is read in
 * order it sees by itself, and brings with less work. Returns at once. Bounds are clipped to the
 * tensor. Advice only: cannot fail visibly. [any-thread] */
void llm_gguf_prefetch(const llm_gguf *g, const llm_gguf_tensor *tensor, size_t from, size_t to);

/* Takes the whole pages inside bytes [from, to) out of this process's resident set: for ranges that
 * were repacked and are not read again. Reading them again is legal and costs a page fault. Pages
 * shared with what lies outside the range stay, and a later fault beside the range may map up to
 * 64 KiB of it again, so that a loader working through a tensor best passes from = 0 each time.
 * Bounds are clipped to the tensor. [any-thread] */
void llm_gguf_release(const llm_gguf *g, const llm_gguf_tensor *tensor, size_t from, size_t to);

/* The same for everything that is mapped, of all parts: what faults brought along besides tensors
 * that have been worked through. Nothing becomes invalid. [any-thread] */
void llm_gguf_release_all(const llm_gguf *g);

#endif
