/* SPDX-License-Identifier: MIT
 *
 * changed_model.h: copies of a model file in which one key differs, or that have one more tensor.
 */
#ifndef TANDEM_TESTS_MODEL_CHANGED_MODEL_H
#define TANDEM_TESTS_MODEL_CHANGED_MODEL_H

#include "llm/gguf/gguf.h"

/* The new value of a key: a whole number, a flag, a real number or a text. */
typedef struct changed_value {
    llm_gguf_type type; /* LLM_GGUF_U32, _BOOL, _F32 or _STRING */
    uint32_t number;    /* of a flag 0 or 1 */
    float real;
    const char *text;
    bool is_absent; /* instead: the copy lacks the key */
} changed_value;
#define CHANGED_NUMBER(value) ((changed_value){.type = LLM_GGUF_U32, .number = (value)})
#define CHANGED_REAL(value)   ((changed_value){.type = LLM_GGUF_F32, .real = (value)})
#define CHANGED_TEXT(value)   ((changed_value){.type = LLM_GGUF_STRING, .text = (value)})
#define CHANGED_ABSENT        ((changed_value){.is_absent = true})

/* Writes the file again to `path`, with key ARCHITECTURE.suffix, which the file may lack, set to
 * the value. Fails the running test on failure. */
void changed_model_write(const llm_gguf *g, const char *path, const char *suffix,
                         changed_value value);
/* The same with the file `from`. Returns the path of the copy, rig_file(name). */
const char *changed_model_copy(const char *from, const char *name, const char *suffix,
                               changed_value value);
/* Copies the file `from`, with one more tensor of f32, n numbers. Returns the path of the copy,
 * rig_file(name). */
const char *changed_model_add(const char *from, const char *name, const char *tensor,
                              const float *numbers, int64_t n);
/* Writes the file again with the key of that full name set to a list of i32. */
void changed_model_write_ids(const llm_gguf *g, const char *path, const char *name,
                             const int32_t *ids, size_t n);

#endif
