/* SPDX-License-Identifier: MIT
 *
 * engine_rig.c: see engine_rig.h.
 */
#include "tests/server/engine_rig.h"

#include <errno.h>
#include <math.h>
#include <time.h>

void rig_answer_init(rig_answer *a) {
    pthread_condattr_t attr;
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->changed, &attr);
    pthread_condattr_destroy(&attr);
}

void rig_answer_free(rig_answer *a) {
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
}

static bool token_note(void *user, server_request_id id, const server_token *token) {
    rig_answer *a = user;
    pthread_mutex_lock(&a->lock);
    if (token->index != a->n || a->n_event > 0) a->n_event += 100; /* out of order */
    if (a->n < RIG_MAX_ANSWER) {
        a->tokens[a->n] = token->token;
        a->logprobs[a->n] = token->logprob;
    }
    for (int32_t i = 0; i < token->n_top && i < 4; i++) a->top[i] = token->top[i];
    const int32_t n = ++a->n;
    const bool goes_on = n != a->stop_at;
    pthread_cond_broadcast(&a->changed);
    while (n == a->gate_at && !a->is_open) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
    if (n == a->cancel_at) server_engine_cancel(a->engine, id);
    return goes_on;
}

static void finished_note(void *user, server_request_id id, const server_result *result) {
    rig_answer *a = user;
    (void)id;
    pthread_mutex_lock(&a->lock);
    a->n_event++;
    a->end = result->end;
    a->usage = result->usage;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void failed_note(void *user, server_request_id id, tdm_status status, const char *message) {
    rig_answer *a = user;
    (void)id;
    pthread_mutex_lock(&a->lock);
    a->n_event++;
    a->status = status;
    snprintf(a->message, sizeof a->message, "%s", message);
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void prompt_note(void *user, server_request_id id, int32_t n_done, int32_t n_prompt) {
    rig_answer *a = user;
    (void)id;
    pthread_mutex_lock(&a->lock);
    if (n_done < 1 || n_done > n_prompt) a->n_event += 100;
    a->n_prompt_event++;
    pthread_mutex_unlock(&a->lock);
}

server_request rig_request(rig_answer *answer, const int32_t *prompt, int32_t n_prompt,
                           int32_t max_tokens) {
    return (server_request){.struct_size = sizeof(server_request),
                            .prompt = prompt,
                            .n_prompt = n_prompt,
                            .max_tokens = max_tokens,
                            .sampler = {.struct_size = sizeof(llm_sampler_params)},
                            .sink = {token_note, finished_note, failed_note, prompt_note, answer}};
}

server_request_id rig_submit(server_engine *engine, const server_request *request) {
    tdm_error err = {0};
    server_request_id id = 0;
    RIG_OK(server_engine_submit(engine, request, &id, NULL, &err));
    assert_true(id != 0);
    return id;
}

static void wait_for(rig_answer *a, int32_t n_token) {
    struct timespec until;
    int failed = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 120;
    pthread_mutex_lock(&a->lock);
    while (a->n_event == 0 && (n_token < 0 || a->n < n_token) && failed != ETIMEDOUT)
        failed = pthread_cond_timedwait(&a->changed, &a->lock, &until);
    const int32_t n_event = a->n_event, n = a->n;
    pthread_mutex_unlock(&a->lock);
    if (failed == ETIMEDOUT) fail_msg("no end within two minutes; %d tokens", n);
    if (n_event > 1) fail_msg("events out of order, or %d ends", n_event);
}

void rig_answer_open(rig_answer *a) {
    pthread_mutex_lock(&a->lock);
    a->is_open = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

void rig_answer_wait(rig_answer *a) {
    wait_for(a, -1);
}

void rig_answer_wait_tokens(rig_answer *a, int32_t n) {
    wait_for(a, n);
}
