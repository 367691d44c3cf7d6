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
tdm_status llm_model_report(const llm_model *model, tdm_dev *dev, const llm_context_params *params,
                            int32_t n_tok, int32_t n_out, tdm_split_report *report, tdm_error *err);

#endif
