/* SPDX-License-Identifier: MIT
 *
 * plan.h: what running the configured model on a device or group would take and how fast it is
 * expected to be, found out without loading a weight. Shown by `tandem plan`; what decides for
 * `device = auto` and makes a context fit.
 */
#ifndef TANDEM_RUNNER_PLAN_H
#define TANDEM_RUNNER_PLAN_H

#include "llm/report.h"
#include "runner/session.h"

/* A member of the plan, or the only device. */
typedef struct runner_plan_member {
    tdm_split_member at;   /* as a step of the largest ubatch takes it; state_size without what
                              lies in the host's memory */
    double decode_seconds; /* expected for its own nodes in a step that generates; 0 = unknown */
    uint64_t decode_crossing_size; /* bytes, as at.crossing_size, in a step that generates */
    uint64_t reserve;              /* bytes to leave free */
    uint64_t need;                 /* bytes: weights, cache, compute */
    int64_t after; /* bytes free with all of it; of members in the host's memory, with what
                              all of those take. Meaningless where memory_free is 0 (unknown) */
    bool fits;     /* after is not below the reserve, or memory_free is unknown */
    /* If it worked alone on all of it; 0 = unknown. */
    double alone_decode_rate; /* tokens per second */
    double alone_prefill_rate;
    bool alone_fits;
} runner_plan_member;

typedef struct runner_plan {
    bool is_group;
    int32_t n_ctx, n_ubatch, n_seq;
    tdm_type type_k, type_v;
    runner_plan_member *members; /* [n_member]; owned */
    int32_t n_member;
    int32_t n_extra; /* of them, the last: devices that hold only what override-tensor or kv-offload
                        puts there, and the host's memory where members' caches lie in it */
    tdm_split_report decode;  /* of a step that generates a token for each sequence; no members */
    tdm_split_report prefill; /* of a step of n_ubatch tokens; no members */
    bool fits;                /* all members do */
    /* Tokens per second expected; 0 = unknown. With what override-tensor and kv-offload put on other
     * devices, but as if members worked on their caches themselves: excludes_host_cache. */
    double decode_rate, prefill_rate;
    double decode_layer_rate, prefill_layer_rate; /* if whole layers were dealt out */
    bool excludes_host_cache; /* members' caches lie in the host's memory, where the CPU works on
                                 them: no speed knows of that */
    int32_t best; /* the member that is fastest alone among those that hold it all; -1 = none */
    char verdict[800]; /* a sentence or two about whether it fits and pays */
} runner_plan;

/* Plans the session's device (runner_session_pick) with a context as the wish and the configuration
 * say. `with_speed`: also how fast it would be, and how fast each member alone, which takes time:
 * members are measured.
 * What does not fit is no failure: plan->fits. Released with runner_plan_clear. [setup] */
tdm_status runner_plan_make(runner_session *session, const runner_context_wish *wish,
                            bool with_speed, runner_plan *plan, tdm_error *err);

/* The tokens of a context that is asked for so: what 0 means for the session's model. [setup] */
int32_t runner_plan_context_size(const runner_session *session, const llm_context_params *params);

/* Fails with TDM_RESOURCE_EXHAUSTED where the plan does not fit: names the first member that is too
 * small, what it needs and has, and what to do. [setup] */
tdm_status runner_plan_check(const runner_plan *plan, tdm_error *err);

/* A cleared plan is a no-op. [setup] */
void runner_plan_clear(runner_plan *plan);

/* How a tensor or cache is laid out over a group, for people: "cut along axis 1: 4 units of 64". */
void runner_plan_layout_format(const tdm_partition *partition, int32_t axis, char *text,
                               size_t text_size);

/* The plan as tables for people, or as JSON, on `out`. [setup] */
void runner_plan_print(const runner_session *session, const runner_plan *plan, FILE *out);
void runner_plan_print_json(const runner_session *session, const runner_plan *plan, FILE *out);

#endif
