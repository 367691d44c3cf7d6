/* SPDX-License-Identifier: MIT
 *
 * plan.h: the memory that the configured model needs on a device or group, and the predicted speed,
 * without loading a weight. `tandem plan` prints it; `device = auto` and the fitting of contexts
 * use it.
 */
#ifndef TANDEM_RUNNER_PLAN_H
#define TANDEM_RUNNER_PLAN_H

#include "llm/report.h"
#include "runner/session.h"

/* A member of the plan, or the only device. */
typedef struct runner_plan_member {
    /* From the report of a step of n_ubatch tokens, with these differences: state_size is without
     * host_state_size; compute_size is the largest of all steps; sizes include the drafter's. */
    tdm_split_member at;
    double decode_seconds; /* predicted for its own nodes in a generating step; 0 = unknown */
    uint64_t decode_crossing_size; /* bytes, as at.crossing_size, in a generating step */
    uint64_t reserve;              /* bytes to leave free */
    uint64_t need;                 /* bytes: weights, cache, compute */
    /* Bytes that stay free once need is allocated. Members in the host's memory share it: theirs is
     * what stays free after the needs of all of them. Meaningless where at.memory_free is 0
     * (unknown). */
    int64_t after;
    bool fits; /* `after` is not below the reserve, or memory_free is unknown, or need is 0 */
    /* Predicted for this member alone, in tokens per second; 0 = unknown. */
    double alone_decode_rate;
    double alone_prefill_rate;
    bool alone_fits; /* it could hold the whole model; false without with_speed */
} runner_plan_member;

/* What a model or layer that drafts takes, on all members together. */
typedef struct runner_plan_draft {
    const llm_model *model;                         /* borrowed; NULL = no drafter, or n-grams */
    uint64_t weight_size, cache_size, compute_size; /* bytes */
} runner_plan_draft;

typedef struct runner_plan {
    bool is_group;
    int32_t n_ctx, n_ubatch, n_seq;
    tdm_type type_k, type_v;
    /* [n_layer] cache types of each layer, borrowed; NULL = all layers have type_k and type_v */
    const llm_layer_types *layers;
    runner_plan_draft draft; /* the sizes of members include it; predicted speeds leave it out */
    llm_window_report window;    /* the layers that keep the tokens of their window only */
    runner_plan_member *members; /* [n_member]; owned */
    int32_t n_member;
    int32_t n_extra; /* so many of the last entries of `members` are no members: devices that hold
                        only what override-tensor or kv-offload puts there, and an entry for the
                        host's memory if caches of members lie in it */
    tdm_split_report decode;  /* of a step that generates a token for each sequence; members NULL */
    tdm_split_report prefill; /* of a step of n_ubatch tokens; members NULL */
    bool fits;                /* all members fit */
    /* Predicted tokens per second; 0 = unknown. They include the work of devices that
     * override-tensor and kv-offload use, but not the host's work on members' caches:
     * excludes_host_cache. */
    double decode_rate, prefill_rate;
    double decode_layer_rate, prefill_layer_rate; /* if each member ran whole layers */
    bool excludes_host_cache; /* members' caches lie in the host's memory, where the CPU works on
                                 them: the predicted speeds leave that out */
    int32_t best; /* the fastest member alone among those that hold the whole model; -1 = none */
    char verdict[800]; /* one or two sentences: whether it fits, and whether the group is faster */
} runner_plan;

/* Plans the session's device (runner_session_pick) with the context of the wish (NULL = none) and
 * the configuration. `with_speed`: also predicts the speed, and that of each member alone, for
 * which the members are measured, which takes time. A model that does not fit is not a failure: see
 * plan->fits. Released with runner_plan_clear; on failure *plan is cleared. [setup] */
tdm_status runner_plan_make(runner_session *session, const runner_context_wish *wish,
                            bool with_speed, runner_plan *plan, tdm_error *err);

/* Tokens of the context that params->n_ctx asks for; 0 there means the model's own. [setup] */
int32_t runner_plan_context_size(const runner_session *session, const llm_context_params *params);

/* Fails with TDM_RESOURCE_EXHAUSTED if the plan does not fit. The message names the first member
 * that is too small, what it needs and has, and what to do. [setup] */
tdm_status runner_plan_check(const runner_plan *plan, tdm_error *err);

/* Frees and clears *plan; a cleared one is a no-op. [setup] */
void runner_plan_clear(runner_plan *plan);

/* Writes the plan to `out`, as tables or as JSON. [setup] */
void runner_plan_print(const runner_session *session, const runner_plan *plan, FILE *out);
void runner_plan_print_json(const runner_session *session, const runner_plan *plan, FILE *out);

#endif
