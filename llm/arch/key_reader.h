/* SPDX-License-Identifier: MIT
 *
 * key_reader.h: reads a model's numbers from the keys of its architecture, one after the other; the
 * first failure is kept and later reads do nothing. Which keys there are is hparams.c's and the
 * architectures' business.
 */
#ifndef LLM_KEY_READER_H
#define LLM_KEY_READER_H

#include "llm/gguf/gguf.h"

/* Limits beyond any model there is; they keep every product of two of them inside 64 bits. */
#define LLM_MAX_WIDTH    (1 << 20)
#define LLM_MAX_HEAD_DIM 65536
#define LLM_MAX_VOCAB    (1 << 24)

typedef struct llm_key_reader {
    const llm_gguf *gguf;
    const char *arch; /* keys are "ARCH.SUFFIX" */
    tdm_error *err;
    tdm_status status; /* the first failure */
} llm_key_reader;

/* "ARCH.SUFFIX", cut to fit. */
void llm_key_name(const llm_key_reader *r, const char *suffix, char name[96]);

/* Each leaves *value as it is where an optional key is absent. Out of min .. max is TDM_DATA_LOSS
 * with file, key and number. */
void llm_key_int(llm_key_reader *r, const char *suffix, llm_gguf_need need, int32_t min,
                 int32_t max, int32_t *value);
void llm_key_float(llm_key_reader *r, const char *suffix, llm_gguf_need need, float min, float max,
                   float *value);
void llm_key_bool(llm_key_reader *r, const char *suffix, llm_gguf_need need, bool *value);
/* A count of 1 to max that files write once for all layers or once per layer; layers that differ
 * are another architecture than those supported. *value 0 before: the key is required. */
void llm_key_each(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                  int32_t *value);

#endif
