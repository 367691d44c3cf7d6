/* SPDX-License-Identifier: MIT
 *
 * report.h: the memory and time that a model would take on a device, without loading a weight.
 */
#ifndef LLM_REPORT_H
#define LLM_REPORT_H

#include "llm/context.h"

/* Reports a step of n_tok tokens, n_out of them with logits, on `dev` with a context of `params`
 * (NULL = the defaults). n_tok 0, or more than the largest ubatch = the largest ubatch; n_out is at
 * most n_tok, 0 = 1. `model` is open, loaded or not; nothing stays allocated.
 *
 * The caller sets struct_size, member_size, members and capacity of *report (tandem/split.h); the
 * other fields are filled as for tdm_split_ops.split_report. A group reports its members. It
 * assigns the model's cuts to them if it has not done so yet; loading the model later keeps these
 * cuts. For any other device the report has one member with share 1 and the name of the device: its
 * weights in the device's layout, all pages of the cache, and as compute_size the memory that a
 * context would allocate for this step, or for the part of it that the device runs. Such a device
 * exchanges nothing, and times and speeds are 0. Nodes that it does not support, and their weights,
 * are not counted: they are on its fallback.
 *
 * TDM_UNSUPPORTED if a group does not keep a weight or such a cache; the message names it.
 * [setup] */
tdm_status llm_model_report(const llm_model *model, tdm_open_device *dev,
                            const llm_context_params *params, int32_t n_tok, int32_t n_out,
                            tdm_split_report *report, tdm_error *err);

/* What the layers with a window keep in a context of `params` (NULL = the defaults). */
typedef struct llm_window_report {
    int32_t n_layer; /* that keep fewer tokens than the others; 0 = there are none */
    int64_t n_tok;   /* tokens for which each has room, of all sequences together */
    uint64_t size;   /* bytes of their rows of so many tokens, in canonical form */
} llm_window_report;
/* Fails as llm_context_create where a parameter is out of range. [setup] */
tdm_status llm_model_window_report(const llm_model *model, const llm_context_params *params,
                                   llm_window_report *report_out, tdm_error *err);

/* Several devices that run the stages of a step in turn: each runs the nodes that read its weights
 * and cache. */
typedef struct llm_turns {
    tdm_runtime *rt;
    tdm_open_device *const *devs;       /* [n_dev]; [0] runs all other nodes */
    tdm_open_device *const *estimators; /* [n_dev] groups that estimate times: the device itself, or
                                           a group of it alone */
    const double *bandwidth;            /* [n_dev] bytes per second, for copies between stages */
    int32_t n_dev;                      /* 2 .. TDM_MAX_STAGE_DEVICES */
    const llm_placement *placement;     /* of weights, as for llm_model_place */
} llm_turns;

/* Estimates the time of such a step: the stages that the schedule cuts it into, one after the
 * other, each with the time of its estimator, and copies between them through the host. n_tok and
 * n_out as above. Each estimator has reported on the whole model before, and has measured for it.
 * *seconds_out is 0 if one of them has no estimate. Fails as llm_model_report. [setup] */
tdm_status llm_model_turns_time(const llm_model *model, const llm_turns *turns,
                                const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                double *seconds_out, tdm_error *err);

/* The bytes that a context holds on each device for such a step, as compute_size of
 * llm_model_report: values that cross between devices are in them. Estimators and bandwidth are not
 * read. No device is a group. sizes_out[turns->n_dev]. Fails as llm_model_report. [setup] */
tdm_status llm_model_turns_size(const llm_model *model, const llm_turns *turns,
                                const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                uint64_t *sizes_out, tdm_error *err);

#endif
