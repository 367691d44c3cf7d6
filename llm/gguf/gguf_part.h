/* SPDX-License-Identifier: MIT
 *
 * gguf_part.h: one GGUF file, mapped and checked. A model has one part or several (gguf.c); values
 * of keys: gguf_value.c. For the files of this folder and their tests only.
 */
#ifndef LLM_GGUF_PART_H
#define LLM_GGUF_PART_H

#include "llm/gguf/gguf.h"

#define LLM_GGUF_MAGIC             0x46554747u /* "GGUF" read as a little-endian word */
#define LLM_GGUF_ALIGNMENT_DEFAULT 32u         /* docs/gguf.md, general.alignment */

typedef struct llm_gguf_names llm_gguf_names; /* the memory of the NUL-terminated names */

typedef struct llm_gguf_part {
    char shown[168];     /* the path, shortened, for messages */
    const uint8_t *base; /* the mapping; NULL before opening */
    size_t size;         /* bytes of the file and of the mapping */
    int fd;              /* of the file; valid if base is not NULL */
    uint32_t version;    /* 2 or 3 */
    uint32_t alignment;  /* bytes, a power of two, 8 or more */
    llm_gguf_names *names;
    llm_gguf_key *keys;             /* in file order */
    const llm_gguf_key **key_index; /* the same, sorted by name */
    uint32_t n_keys;
    llm_gguf_tensor *tensors; /* in file order */
    uint32_t n_tensors;
} llm_gguf_part;

/* Maps and checks the file, and marks its tensors as those of part `number`. *part is zeroed before
 * the call, and on failure after it too, except for `shown`. [setup] */
tdm_status llm_gguf_part_open(llm_gguf_part *part, const char *path, uint32_t number,
                              tdm_error *err);

/* Frees and zeroes the part. No-op for a part that was not opened. [setup] */
void llm_gguf_part_close(llm_gguf_part *part);

/* The key of that name, or NULL. [any-thread] */
const llm_gguf_key *llm_gguf_part_key_find(const llm_gguf_part *part, const char *name);

/* Bytes of one value of a number type; 0 for strings, arrays and unknown types. [any-thread] */
size_t llm_gguf_type_size(llm_gguf_type type);

/* An integer key's value, whatever its width; TDM_DATA_LOSS for another type, TDM_OUT_OF_RANGE
 * outside [low, high]. `shown` names the file. [any-thread] */
tdm_status llm_gguf_key_integer(const llm_gguf_key *key, const char *shown, int64_t low,
                                int64_t high, int64_t *value, tdm_error *err);

#endif
