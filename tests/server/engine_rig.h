/* SPDX-License-Identifier: MIT
 *
 * engine_rig.h: what the tests of engines share: requests whose answers are recorded.
 */
#ifndef TANDEM_TESTS_SERVER_ENGINE_RIG_H
#define TANDEM_TESTS_SERVER_ENGINE_RIG_H

#include <pthread.h>

#include "server/engine.h"
#include "tests/model/rig.h"

enum { RIG_MAX_ANSWER = 256 };

/* An answer that is recorded by the engine's thread and waited for by the test's. */
typedef struct rig_answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    server_engine *engine; /* for cancel_at */
    int32_t tokens[RIG_MAX_ANSWER];
    float logprobs[RIG_MAX_ANSWER];
    server_logprob top[4];  /* of the last token */
    int32_t n;              /* tokens */
    int32_t n_event;        /* calls of finished and failed: 1 once it has ended; 100 more for each
                             * event out of order */
    int32_t n_prompt_event; /* calls of `prompt` */
    int32_t stop_at;        /* the sink ends it after so many tokens; 0 = not */
    int32_t cancel_at;      /* likewise, by server_engine_cancel within the event of that token */
    int32_t gate_at;        /* the event of that token waits for rig_answer_open; 0 = none does */
    bool is_open;
    server_end end;
    server_usage usage;
    tdm_status status;
    char message[256];
    int n_destroyed; /* calls of the constraint's destroy */
} rig_answer;

void rig_answer_init(rig_answer *answer);
void rig_answer_free(rig_answer *answer);
/* A request that is greedy and records into `answer`. */
server_request rig_request(rig_answer *answer, const int32_t *prompt, int32_t n_prompt,
                           int32_t max_tokens);
/* Queues it; fails the test where it is refused. */
server_request_id rig_submit(server_engine *engine, const server_request *request);
/* Lets the event that waits return. */
void rig_answer_open(rig_answer *answer);
/* Wait for the end of the answer; for n tokens or the end. Both fail the test after two minutes,
 * and where events were out of order. */
void rig_answer_wait(rig_answer *answer);
void rig_answer_wait_tokens(rig_answer *answer, int32_t n);

#endif
