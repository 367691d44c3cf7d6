/* SPDX-License-Identifier: MIT
 *
 * report.h: estimates the memory and the time that a model would need on a device or on several,
 * without loading a weight.
 */
#ifndef LLM_REPORT_H
#define LLM_REPORT_H

#include "llm/context.h"

/* Reports a step of n_tok tokens, n_out of them with logits, on `dev` with a context of `params`
 * (NULL = the defaults). n_tok: 0, or more than the context's ubatch, means the ubatch. n_out: 0
 * means 1, more than n_tok means n_tok; a context that gives embeddings has no logits, whatever it
 * is. TDM_INVALID_ARGUMENT if one is negative. `model` is open, loaded or not; nothing stays
 * allocated.
 *
 * The caller sets struct_size, member_size, members and capacity of *report (tandem/split.h); the
 * other fields are filled as for tdm_split_ops.split_report. A group reports its members. It
 * assigns the model's cuts to them if it has not done so yet; loading the model later keeps these
 * cuts. For any other device the report has one member with share 1 and the name of the device: its
 * weights in the device's layout, all pages of the cache, and as compute_size the memory that a
 * context would allocate for this step. Such a device exchanges nothing, and times and speeds are
 * 0. Nodes that it does not support, and their weights, are not counted: they are computed on
 * another device, its fallback.
 *
 * TDM_UNSUPPORTED if a group does not keep a weight or such a cache; the message names it.
 * [setup] */
tdm_status llm_model_report(const llm_model *model, tdm_open_device *dev,
                            const llm_context_params *params, int32_t n_tok, int32_t n_out,
                            tdm_split_report *report, tdm_error *err);

/* The cache of layers with a window. */
typedef struct llm_window_report {
    int32_t n_layer; /* layers that keep fewer tokens than the others; 0 = there are none, and the
                        other fields are 0 */
    int64_t n_tok;   /* tokens for which each of them has room, of all sequences together */
    uint64_t size;   /* bytes of the rows of n_tok tokens in all of them, in canonical form */
} llm_window_report;
/* Reports what the layers with a window keep in a context of `params` (NULL = the defaults). Fails
 * as llm_context_create if a parameter is out of range. [setup] */
tdm_status llm_model_window_report(const llm_model *model, const llm_context_params *params,
                                   llm_window_report *report_out, tdm_error *err);

/* Several devices that run the stages of a step in turn: each runs the nodes that read its weights
 * and cache. */
typedef struct llm_turns {
    tdm_runtime *rt;
    tdm_open_device *const *devs; /* [n_dev]; devs[0] runs the nodes that read neither */
    /* [n_dev] for each device a group that estimates times: the device itself if it is a group,
     * else a group of that device alone. */
    tdm_open_device *const *estimators;
    const double *bandwidth; /* [n_dev] of memory, bytes per second; 0 = copies cost nothing */
    int32_t n_dev;           /* 2 .. TDM_MAX_STAGE_DEVICES */
    const llm_placement *placement; /* of weights, as for llm_model_place */
} llm_turns;

/* Estimates the time of such a step: the sum over the stages into which the schedule cuts it, each
 * with the time that its estimator gives, and copies between them through the host. n_tok and n_out
 * as above. Each estimator must have reported on the whole model before (llm_model_report), since
 * it measures its members then. *seconds_out is 0 if one of them has no estimate. Fails as
 * llm_model_report. [setup] */
tdm_status llm_model_turns_time(const llm_model *model, const llm_turns *turns,
                                const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                double *seconds_out, tdm_error *err);

/* Bytes that a context would hold on each device for such a step: compute_size of llm_model_report,
 * with the buffers for values that cross between devices. Estimators and bandwidth are not read. No
 * device may be a group. sizes_out[turns->n_dev]. Fails as llm_model_report. [setup] */
tdm_status llm_model_turns_size(const llm_model *model, const llm_turns *turns,
                                const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                uint64_t *sizes_out, tdm_error *err);

#endif
