/* SPDX-License-Identifier: MIT
 *
 * needle.h: a test of recall: pairs of a key and a value (needles) among filler tokens (the
 * haystack), and the keys once more at the end. For models made for it (tandem-make-model --preset
 * retrieval). A needle is recalled if its value is the most likely token after the second
 * occurrence of its key. The caller computes the tokens with the model.
 */
#ifndef LLM_NEEDLE_H
#define LLM_NEEDLE_H

#include "llm/model.h"

typedef struct llm_needle {
    int32_t at;    /* position of the key in the haystack; the value is at the next position */
    int32_t key;   /* token id */
    int32_t value; /* token id: the right answer */
    int32_t depth; /* index into the depths of llm_haystack_make */
} llm_needle;

/* n_hay tokens with needles in them, the first one a bos, then the n_needle keys in the order of
 * `needles`. The model's answer to needles[i] is the token that it predicts after token
 * n_hay + i. */
typedef struct llm_haystack {
    int32_t *tokens; /* [n_hay + n_needle] */
    int32_t n_hay;
    llm_needle *needles; /* [n_needle] in random order */
    int32_t n_needle;
} llm_haystack;

/* *size_out = number of keys of such a model; it has as many values and as many fillers. 0 = it is
 * another model. TDM_DATA_LOSS if its vocabulary is too small for them. [any-thread] */
tdm_status llm_needle_class_size(const llm_model *model, int32_t *size_out, tdm_error *err);

/* Makes n_tok tokens in all, with n_each needles near each depth (per cent of the haystack,
 * ascending, 0 to 100). All keys differ, so there are at most class_size needles. Equal arguments
 * give equal tokens on every machine. TDM_OUT_OF_RANGE if n_tok is too small or there are too many
 * needles; the message has the limit. The caller frees it with llm_haystack_clear. [any-thread] */
tdm_status llm_haystack_make(int32_t class_size, int32_t n_tok, const int32_t *depths,
                             int32_t n_depth, int32_t n_each, uint64_t seed,
                             llm_haystack *haystack_out, tdm_error *err);

/* Frees and clears it; a cleared haystack is a no-op. [any-thread] */
void llm_haystack_clear(llm_haystack *haystack);

/* The logit of `answer` less the largest of the others: above 0 where it is the most likely token;
 * NaN and infinite logits give -infinity. [any-thread] */
float llm_needle_margin(const float *logits, int32_t n_vocab, int32_t answer);

#endif
