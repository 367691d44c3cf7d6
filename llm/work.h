/* SPDX-License-Identifier: MIT
 *
 * work.h: the least work that any device must do for a step: bytes to read and operations to
 * compute. Divided by a machine's bandwidth and speed (tandem/device.h), they give the shortest
 * possible time of the step.
 */
#ifndef LLM_WORK_H
#define LLM_WORK_H

#include "llm/context.h"

typedef struct llm_work {
    double read_size; /* bytes of the multiplied weights, as in the file, and of the cache's rows,
                         each read once */
    double n_op_int8; /* operations with quantised weights; a multiply-add is two */
    double n_op_f32;  /* operations with weights of float types */
} llm_work;

/* The work of one step: n_tok tokens of one sequence after n_past others, n_out of them with
 * logits. The products of attention are left out: unless the context is long, products with weights
 * are nearly all of the work. Experts count as if the tokens chose as many different ones as
 * possible. [any-thread] */
tdm_status llm_context_work(const llm_context *ctx, int32_t n_tok, int32_t n_out, int32_t n_past,
                            llm_work *work_out, tdm_error *err);

#endif
