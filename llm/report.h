/* SPDX-License-Identifier: MIT
 *
 * report.h: what running a model would take of a device, told without loading a weight.
 */
#ifndef LLM_REPORT_H
#define LLM_REPORT_H

#include "llm/context.h"

/* Tells what a step of n_tok tokens, n_out of them with logits, takes of `dev` with a context as
 * `params` asks for (NULL: the defaults). n_tok 0 is the context's largest ubatch, and what one
 * larger than that is made into; n_out is at most n_tok, 0 = 1. `model` is open and need not be
 * loaded; nothing stays allocated.
 *
 * The caller sets struct_size, member_size, members and capacity of *report (tandem/split.h); the
 * rest is filled as tdm_split_ops.split_report says. A group answers for its members, and deals out
 * the model's cuts if it has not before, which loading the model later keeps. Of a device that is
 * no group this computes one member with share 1 and the name of the device: weights as it keeps
 * them, all pages of the cache, and as compute_size what a context would allocate for this step, or
 * more where it runs a part of it; nothing is exchanged, and times and speeds are 0. What such a
 * device refuses is not counted: that lives on whatever device helps it out.
 *
 * TDM_UNSUPPORTED where a group does not keep a weight or such a cache; the message names it.
 * [setup] */
tdm_status llm_model_report(const llm_model *model, tdm_open_device *dev,
                            const llm_context_params *params, int32_t n_tok, int32_t n_out,
                            tdm_split_report *report, tdm_error *err);

/* Several devices that take turns at a step: each runs what reads the weights and the cache that it
 * has. */
typedef struct llm_turns {
    tdm_runtime *rt;
    tdm_open_device *const *devs; /* [n_dev]; [0] runs all that need not be elsewhere */
    tdm_open_device *const
        *clocks;             /* [n_dev] groups that know how fast each is: it, or of it alone */
    const double *bandwidth; /* [n_dev] bytes per second, for what one hands the next */
    int32_t n_dev;           /* 2 .. TDM_MAX_SCHEDULE_DEVICES */
    const llm_placement *placement; /* of weights, as llm_model_place takes it */
} llm_turns;

/* Tells in *seconds_out how long such a step is expected to take: stages as the schedule cuts them,
 * each as long as its clock says, one after the other, and copies between them by way of the host.
 * n_tok and n_out as above. Each clock has reported on the whole model, and measured for it. 0 where
 * one of them does not know. Fails as llm_model_report does. [setup] */
tdm_status llm_model_turns_time(const llm_model *model, const llm_turns *turns,
                                const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                double *seconds_out, tdm_error *err);

#endif
