/* SPDX-License-Identifier: MIT
 *
 * work.h: the least that computing a model takes, whatever computes it: how much has to be read, and
 * how much multiplied. With a machine's limits (tandem/device.h) it tells how fast a step can be.
 */
#ifndef LLM_WORK_H
#define LLM_WORK_H

#include "llm/context.h"

typedef struct llm_work {
    double
        read_size; /* bytes of the weights that are multiplied, as in the file, and of the cache's
                         rows, each read once */
    double n_op_int8; /* operations, two a multiply-add, with quantised weights */
    double n_op_f32;  /* with weights of float types */
} llm_work;

/* Of one step: n_tok tokens of one sequence, n_out of them with logits, behind n_past others. What
 * attention multiplies is left out: products with weights are nearly all of it until the context is
 * long. Of experts as many count as tokens can choose at most. [any-thread] */
tdm_status llm_context_work(const llm_context *ctx, int32_t n_tok, int32_t n_out, int32_t n_past,
                            llm_work *work_out, tdm_error *err);

#endif
