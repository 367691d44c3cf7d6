/* SPDX-License-Identifier: MIT
 *
 * needle.h: needles in a haystack, for models that are made to recall them (tandem-make-model
 * --preset retrieval): pairs of a key and a value among fillers, and the keys again at the end. A
 * needle is recalled where its value is the most likely token behind its key. Computing the tokens
 * is the caller's.
 */
#ifndef LLM_NEEDLE_H
#define LLM_NEEDLE_H

#include "llm/model.h"

typedef struct llm_needle {
    int32_t at;    /* token of the haystack that is the key; the value follows it */
    int32_t key;   /* ids */
    int32_t value; /* of the right answer */
    int32_t depth; /* index into the depths */
} llm_needle;

/* n_hay tokens with needles in them, the first one a bos, then the n_needle keys in the order of
 * `needles`: the answer to needles[i] is the token behind token n_hay + i. */
typedef struct llm_haystack {
    int32_t *tokens; /* [n_hay + n_needle] */
    int32_t n_hay;
    llm_needle *needles; /* in random order */
    int32_t n_needle;
} llm_haystack;

/* Keys of such a model, as many as it has values and fillers; 0 = it is another model. TDM_DATA_LOSS
 * if its vocabulary is too small for them. [any-thread] */
tdm_status llm_needle_class_size(const llm_model *model, int32_t *size_out, tdm_error *err);

/* Makes n_tok tokens in all, with n_each needles near each depth (per cent of the haystack,
 * ascending, 0 to 100). Equal arguments give equal tokens on every machine. Keys differ; there are
 * at most class_size. TDM_OUT_OF_RANGE names the least n_tok, or the most needles. The caller calls
 * llm_haystack_clear. [any-thread] */
tdm_status llm_haystack_make(int32_t class_size, int32_t n_tok, const int32_t *depths,
                             int32_t n_depth, int32_t n_each, uint64_t seed,
                             llm_haystack *haystack_out, tdm_error *err);

/* A cleared haystack is a no-op. [any-thread] */
void llm_haystack_clear(llm_haystack *haystack);

/* The logit of `answer` less the largest of the others: above 0 where it is the most likely token;
 * NaN and infinite logits give -infinity. [any-thread] */
float llm_needle_margin(const float *logits, int32_t n_vocab, int32_t answer);

#endif
