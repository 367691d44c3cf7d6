/* SPDX-License-Identifier: MIT
 *
 * key_reader.h: reads the keys of an architecture one after the other. The first failure is kept,
 * and later reads do nothing. The keys themselves are named by hparams.c and the architectures.
 */
#ifndef LLM_KEY_READER_H
#define LLM_KEY_READER_H

#include "llm/gguf/gguf.h"

/* Larger than in any existing model, and small enough that a product of two of them fits 64
 * bits. */
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

/* An absent optional key leaves *value unchanged. A number outside min .. max is TDM_DATA_LOSS,
 * with file, key and number. */
void llm_key_int(llm_key_reader *r, const char *suffix, llm_gguf_need need, int32_t min,
                 int32_t max, int32_t *value);
void llm_key_float(llm_key_reader *r, const char *suffix, llm_gguf_need need, float min, float max,
                   float *value);
void llm_key_bool(llm_key_reader *r, const char *suffix, llm_gguf_need need, bool *value);
/* A count from 1 to max, which files write once for all layers or once per layer. Layers that
 * differ are TDM_UNSUPPORTED. The key is required if *value is 0 before the call. */
void llm_key_each(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                  int32_t *value);
/* The same where layers may have none, which is 0. *value is unchanged where all layers have
 * none. */
void llm_key_each_or_none(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                          int32_t *value);
/* The largest of counts that may differ between layers and be 0 in some. TDM_DATA_LOSS where it is
 * outside 1 .. max. */
void llm_key_each_most(llm_key_reader *r, const char *suffix, int32_t n_layer, int32_t max,
                       int32_t *value);

/* Whether the key is an array: a number for each layer. */
bool llm_key_is_each(const llm_key_reader *r, const char *suffix);

/* A number of one layer, from a key with one for all or an array; a missing key or element leaves
 * *value unchanged. False if the key has another type. */
bool llm_key_layer_float(const llm_key_reader *r, const char *suffix, int32_t layer, float *value);

#endif
