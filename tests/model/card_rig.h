/* SPDX-License-Identifier: MIT
 *
 * card_rig.h: a small model on devices whose memory the host cannot touch
 * (tests/plugins/discretes), alone and in groups. Each test makes runtimes of its own, since a
 * device that was lost stays so.
 */
#ifndef TANDEM_TESTS_MODEL_CARD_RIG_H
#define TANDEM_TESTS_MODEL_CARD_RIG_H

#include "tests/model/rig.h"

enum {
    CARD_VOCAB = 384,
    CARD_LAYER = 2,
    CARD_PROMPT = 21,
    CARD_STEP = 6,
    CARD_ROW = CARD_STEP + 1
};

typedef float card_rows[CARD_ROW * CARD_VOCAB];

/* The model's file: two layers of experts, q8_0. */
extern const char *card_model;
/* discrete_set, discrete_get and discrete_live of discrete.h. */
extern void (*card_set)(const char *member, const char *key, int64_t n);
extern int64_t (*card_get)(const char *member, const char *key);
extern int64_t (*card_live)(void);

/* Makes the model; the end is rig_end. */
int card_begin(void **state);

/* A runtime with CPU devices c0 to c2 and, in front of each, a discrete one d0 to d2, with the
 * options `more` (ends with a NULL key). A value "a,b,c" is a for the first, b for the second, c
 * for the third. */
tdm_runtime *card_runtime(const tdm_option *more);
/* The group of these members, one for each list, with one more option (nullable). */
tdm_status card_group(tdm_runtime *rt, const char *members, const char *share,
                      const tdm_option *extra, tdm_open_device **out, tdm_error *err);
tdm_open_device *card_device(tdm_runtime *rt, const char *name);

/* Decodes a prompt and CARD_STEP tokens; the logits of the prompt's last token and of each step. */
tdm_status card_decode(llm_context *ctx, float *out, tdm_error *err);
/* Loads the model with caches of type *cache, decodes and frees all. */
tdm_status card_run(tdm_runtime *rt, tdm_open_device *dev, const tdm_type *cache, float *out,
                    tdm_error *err);

#endif
