/* SPDX-License-Identifier: MIT
 *
 * needle.c: see needle.h.
 */
#include "llm/needle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/random.h"

/* The key and the ids of bench/random_model.h and bench/retrieval.h: the keys are ids from
 * FIRST_KEY on, then come the values, then the fillers, class_size of each. GAP: least distance of
 * two needles in tokens, which is the length of one. */
#define CLASS_KEY "tandem.retrieval.class_size"
enum { FIRST_KEY = 3, BOS = 1, GAP = 2 };

tdm_status llm_needle_class_size(const llm_model *model, int32_t *size_out, tdm_error *err) {
    uint32_t size = 0;
    *size_out = 0;
    tdm_status status = llm_gguf_get_u32(model->gguf, CLASS_KEY, LLM_GGUF_OPTIONAL, &size, err);
    if (status != TDM_OK) return status;
    if ((int64_t)size > (model->hparams.n_vocab - FIRST_KEY) / 3)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: key '%s' is %u, more than a third of its %d tokens", model->path,
                        CLASS_KEY, size, model->hparams.n_vocab);
    *size_out = (int32_t)size;
    return TDM_OK;
}

static int32_t random_below(uint64_t *state, int32_t n) {
    return (int32_t)((llm_random_next(state) >> 32) % (uint64_t)n);
}

/* Sets the positions of the needles: near their depths, ascending, at least GAP apart, so that no
 * two overlap. llm_haystack_make has checked that there is room. */
static void needles_place(llm_haystack *h, const int32_t *depths, int32_t n_each) {
    const int32_t first = 2, last = h->n_hay - GAP;
    const int32_t step = 2 * GAP;
    for (int32_t i = 0; i < h->n_needle; i++) {
        llm_needle *n = &h->needles[i];
        n->depth = i / n_each;
        n->at = first + (int32_t)((int64_t)depths[n->depth] * (last - first) / 100) +
                step * (i % n_each - n_each / 2);
        const int32_t least = i == 0 ? first : h->needles[i - 1].at + GAP;
        if (n->at < least) n->at = least;
    }
    for (int32_t i = h->n_needle - 1, most = last; i >= 0; i--, most = h->needles[i + 1].at - GAP)
        if (h->needles[i].at > most) h->needles[i].at = most;
}

/* Draws the needles' keys and values and writes them into the tokens, then shuffles the needles and
 * appends their keys. keys[class_size]: scratch. */
static void needles_fill(llm_haystack *h, int32_t class_size, int32_t *keys, uint64_t *state) {
    for (int32_t i = 0; i < class_size; i++) keys[i] = FIRST_KEY + i;
    for (int32_t i = 0; i < h->n_needle; i++) {
        llm_needle *n = &h->needles[i];
        const int32_t other = i + random_below(state, class_size - i);
        n->key = keys[other];
        keys[other] = keys[i];
        n->value = FIRST_KEY + class_size + random_below(state, class_size);
        h->tokens[n->at] = n->key;
        h->tokens[n->at + 1] = n->value;
    }
    for (int32_t i = h->n_needle - 1; i > 0; i--) {
        const int32_t other = random_below(state, i + 1);
        const llm_needle n = h->needles[i];
        h->needles[i] = h->needles[other];
        h->needles[other] = n;
    }
    for (int32_t i = 0; i < h->n_needle; i++) h->tokens[h->n_hay + i] = h->needles[i].key;
}

tdm_status llm_haystack_make(int32_t class_size, int32_t n_tok, const int32_t *depths,
                             int32_t n_depth, int32_t n_each, uint64_t seed, llm_haystack *out,
                             tdm_error *err) {
    const int64_t n_needle = (int64_t)n_depth * n_each, n_least = (GAP + 1) * n_needle + GAP + 2;
    memset(out, 0, sizeof *out);
    if (n_needle < 1 || n_needle > class_size)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "%lld needles are not from 1 to the %d keys that the model has",
                        (long long)n_needle, class_size);
    if (n_tok < n_least)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "a context of %d tokens has no room for %lld needles; at least %lld are "
                        "needed",
                        n_tok, (long long)n_needle, (long long)n_least);
    int32_t *keys = malloc((size_t)class_size * sizeof *keys);
    out->n_needle = (int32_t)n_needle;
    out->n_hay = n_tok - out->n_needle;
    out->tokens = malloc((size_t)n_tok * sizeof *out->tokens);
    out->needles = calloc((size_t)n_needle, sizeof *out->needles);
    if (keys == NULL || out->tokens == NULL || out->needles == NULL) {
        free(keys);
        llm_haystack_clear(out);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a haystack of %d tokens",
                        n_tok);
    }
    out->tokens[0] = BOS;
    for (int32_t i = 1; i < out->n_hay; i++)
        out->tokens[i] = FIRST_KEY + 2 * class_size + random_below(&seed, class_size);
    needles_place(out, depths, n_each);
    needles_fill(out, class_size, keys, &seed);
    free(keys);
    return TDM_OK;
}

void llm_haystack_clear(llm_haystack *h) {
    free(h->tokens);
    free(h->needles);
    memset(h, 0, sizeof *h);
}

float llm_needle_margin(const float *logits, int32_t n_vocab, int32_t answer) {
    float best = -INFINITY;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (!isfinite(logits[i])) return -INFINITY;
        if (i != answer && logits[i] > best) best = logits[i];
    }
    return logits[answer] - best;
}
