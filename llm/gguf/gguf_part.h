/* SPDX-License-Identifier: MIT
 *
 * gguf_part.h: one GGUF file, mapped and checked. A model is one part or several (gguf.c); what a
 * key's value means is gguf_value.c's. For these files and their tests only.
 */
#ifndef LLM_GGUF_PART_H
#define LLM_GGUF_PART_H

#include "llm/gguf/gguf.h"

#define LLM_GGUF_MAGIC             0x46554747u /* "GGUF" read as a little-endian word */
#define LLM_GGUF_ALIGNMENT_DEFAULT 32u         /* docs/gguf.md, general.alignment */

typedef struct llm_gguf_names llm_gguf_names; /* where the NUL-terminated names live */

typedef struct llm_gguf_part {
    char shown[168];     /* the path, shortened, for messages */
    const uint8_t *base; /* the mapping; NULL before opening */
    size_t size;         /* bytes of the file and of the mapping */
    int fd;              /* of the file; meaningful where base is */
    uint32_t version;    /* 2 or 3 */
    uint32_t alignment;  /* bytes, a power of two, 8 or more */
    llm_gguf_names *names;
    llm_gguf_key *keys;             /* in file order */
    const llm_gguf_key **key_index; /* the same, sorted by name */
    uint32_t n_keys;
    llm_gguf_tensor *tensors; /* in file order */
    uint32_t n_tensors;
} llm_gguf_part;

/* Maps and checks the file, whose tensors are marked as of part `number`. *part is all zero before;
 * on failure it is so again, except for `shown`. [setup] */
tdm_status llm_gguf_part_open(llm_gguf_part *part, const char *path, uint32_t number,
                              tdm_error *err);

/* Frees and zeroes. A part that was never opened is a no-op. [setup] */
void llm_gguf_part_close(llm_gguf_part *part);

/* [any-thread] */
const llm_gguf_key *llm_gguf_part_key_find(const llm_gguf_part *part, const char *name);

/* Bytes of one value of a number type; 0 for strings, arrays and what is no type. [any-thread] */
size_t llm_gguf_type_size(llm_gguf_type type);

/* An integer key's value, whatever its width; TDM_DATA_LOSS for another type, TDM_OUT_OF_RANGE
 * outside [low, high]. `shown` names the file. [any-thread] */
tdm_status llm_gguf_key_integer(const llm_gguf_key *key, const char *shown, int64_t low,
                                int64_t high, int64_t *value, tdm_error *err);

#endif
