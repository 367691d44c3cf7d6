/* SPDX-License-Identifier: MIT
 *
 * job.h: a request inside the engine: checked, with copies of all that it points to. Only engine
 * files include it.
 */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H

#include "llm/draft_pace.h"
#include "llm/tokenizer/tokenizer.h"
#include "server/engine.h"

/* What requests are checked against. */
typedef struct server_job_bounds {
    const llm_vocab *vocab; /* NULL = the model has none: answers have no text */
    int32_t n_vocab;        /* of the model's logits */
    int32_t n_ctx;
    const llm_model *model;
    int32_t n_encode; /* tokens that the model's encoder reads at most; 0 = it has none */
    int32_t n_adapter;
    const float *scales; /* [n_adapter] of requests without any */
    bool has_draft;      /* the engine has drafts */
    bool is_draft_layer; /* the draft is a layer of the model. It then follows the sequences of
                            requests that take no drafts, too: others may fork these, and the hidden
                            states that the layer reads are there only after the step itself */
} server_job_bounds;

typedef struct server_job {
    server_request request; /* its pointers are to the copies below; the constraint to one of its
                               own */
    server_request_id id;
    int32_t *tokens; /* [n_room] the prompt, then the answer */
    int32_t n_tok;   /* known tokens */
    int32_t n_room;
    int32_t max_tokens;             /* at least 1, at most what the context has room for */
    float scales[LLM_MAX_ADAPTERS]; /* of the model's adapters; request.scope is mixed with them */
    llm_logit_bias *bias;
    int32_t *stop_tokens;
    llm_sampler *sampler; /* has accepted all known tokens once the request has begun */
    llm_detok *detok;     /* NULL without a vocabulary */
    int32_t entry;        /* of the scheduler; -1 = none */
    int32_t seq;          /* of the context; -1 = none */
    int32_t row;          /* of the step's logits: the one that the next token is drawn from; -1 =
                             the step has none for it */
    int32_t first;        /* index of its first token in the step's batch */
    int32_t n_drawn;      /* tokens drawn in the step */
    bool has_draft;       /* the draft follows its sequence; false: there is none, or it has
                             failed */
    int32_t n_draft;      /* drafts in the step, behind its last known token */
    llm_draft_pace draft_pace;
    int32_t *drafts;            /* [n_draft] in the engine's draft_tokens */
    llm_sampler *draft_sampler; /* of drafts; NULL = it takes none */
    llm_constraint draft_constraint; /* of drafts; mask NULL = they follow none */
    bool has_begun;                  /* it was admitted once */
    bool is_over; /* its end is decided: `status` and, with TDM_OK, `end` say how */
    server_end end;
    int32_t stop_token; /* as in server_result */
    tdm_status status;  /* not TDM_OK: it fails with the message of `error` */
    tdm_error error;
    bool is_cancelled, is_paused; /* guarded by the engine's lock */
    uint64_t submit_ns;           /* times of server_clock(); 0 = not yet */
    uint64_t begin_ns, first_ns;  /* when it was first admitted; when its first token was drawn */
    server_usage usage;
    server_request_info info; /* guarded by the engine's lock */
    struct server_job *next;  /* in the engine's list, oldest first; guarded by its lock */
} server_job;

/* Checks a request and copies it. Owns the constraint's state on success only. TDM_INVALID_ARGUMENT
 * names the field; TDM_OUT_OF_RANGE: the prompt is too long; TDM_RESOURCE_EXHAUSTED.
 * [any-thread] */
tdm_status server_job_create(const server_job_bounds *bounds, const server_request *request,
                             server_job **job_out, tdm_error *err);
/* Frees the job and the constraint's state. NULL is a no-op. */
void server_job_destroy(server_job *job);
/* Frees the job of a request that is refused; the constraint's state stays the caller's. NULL is a
 * no-op. */
void server_job_refuse(server_job *job);

/* Decides how the request ends, unless that is decided already. */
void server_job_end(server_job *job, server_end end);
void server_job_fail(server_job *job, tdm_status status, const tdm_error *error);
/* Whether a token ends the answer. */
bool server_job_ends(const server_job *job, const llm_vocab *vocab, int32_t token);
/* Appends a token of the answer. TDM_RESOURCE_EXHAUSTED. */
tdm_status server_job_append(server_job *job, int32_t token, tdm_error *err);

#endif
