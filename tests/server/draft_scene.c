/* SPDX-License-Identifier: MIT
 *
 * draft_scene.c: see draft_scene.h.
 */
#include "tests/server/draft_scene.h"

#include <math.h>

#include "tests/server/engine_scene.h"

server_engine *draft_scene_engine(llm_model *m, llm_model *draft, const llm_context_params *context,
                                  const server_limits *limits) {
    server_engine_params params = {.struct_size = sizeof params,
                                   .context = *context,
                                   .draft = draft,
                                   .draft_context = *context,
                                   .n_draft = N_DRAFT};
    server_engine *engine = NULL;
    tdm_error err = {0};
    if (limits != NULL) params.limits = *limits;
    RIG_OK(server_engine_create(m, &params, &engine, &err));
    return engine;
}

/* ---- Constraints: every third token, or two of three forced ---- */

static tdm_status thirds_mask(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err) {
    (void)state, (void)err;
    *is_limited_out = true;
    memset(words, 0, 384 / 8);
    for (int t = 3; t < 384; t += 3) words[t / 64] |= UINT64_C(1) << (t % 64);
    return TDM_OK;
}

/* Only each third of these places leaves a choice. */
static tdm_status forced_mask(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err) {
    const int n = *(const int *)state;
    if (n % 3 == 2) return thirds_mask(state, words, is_limited_out, err);
    *is_limited_out = true;
    memset(words, 0, 384 / 8);
    words[(3 + 3 * n) / 64] = UINT64_C(1) << (3 + 3 * n) % 64;
    return TDM_OK;
}

static tdm_status thirds_accept(void *state, int32_t token, tdm_error *err) {
    ++*(int *)state;
    return token % 3 == 0 ? TDM_OK : tdm_fail(err, TDM_INTERNAL, "token %d", token);
}

static bool thirds_done(const void *state) {
    return *(const int *)state == N_ANSWER - 3;
}

tdm_status draft_scene_place_clone(const void *state, void **state_out, tdm_error *err) {
    int *n = malloc(sizeof *n);
    (void)err;
    assert_non_null(n);
    *n = *(const int *)state;
    *state_out = n;
    return TDM_OK;
}

void draft_scene_place_assign(void *state, const void *other) {
    *(int *)state = *(const int *)other;
}

/* The engine frees its state. */
static llm_constraint thirds_make(bool is_forced) {
    const llm_constraint thirds = {calloc(1, sizeof(int)),
                                   is_forced ? forced_mask : thirds_mask,
                                   thirds_accept,
                                   thirds_done,
                                   free,
                                   draft_scene_place_clone,
                                   draft_scene_place_assign};
    assert_non_null(thirds.state);
    return thirds;
}

/* ---- Answers ---- */

static void request_set(server_request *r, kind k, llm_constraint *constraint,
                        const llm_logit_bias *bias) {
    r->ignores_end = k != SEEDED;
    r->wants_logprobs = true;
    if (k == SEEDED || k == CHAIN || k == PROBABLE) {
        r->sampler.temp = 0.7f;
        r->sampler.seed = 7;
    }
    if (k == CHAIN) {
        r->sampler.top_k = 20;
        r->sampler.top_p = 0.95f;
        r->sampler.repeat_penalty = 1.2f;
        r->sampler.repeat_last_n = 30;
        r->sampler.dry_multiplier = 0.5f;
        r->sampler.xtc_probability = 0.3f;
        r->sampler.xtc_threshold = 0.05f;
    }
    if (k == MIROSTAT) {
        r->sampler.temp = 0.9f;
        r->sampler.mirostat = 2;
    }
    if (k == CONSTRAINED || k == FORCED) r->constraint = constraint;
    if (k == BIASED) {
        r->bias = bias;
        r->n_bias = 2;
    }
    if (k == PROBABLE) r->n_top = 4;
}

void draft_scene_two(server_engine *engine, kind k, rig_answer *answers) {
    static const llm_logit_bias bias[2] = {{17, 3}, {40, -INFINITY}};
    int32_t prompts[2][N_PROMPT];
    uint64_t random = 3 + (uint64_t)k;
    for (int i = 0; i < 2; i++) {
        llm_constraint constraint = {0};
        if (k == CONSTRAINED || k == FORCED) constraint = thirds_make(k == FORCED);
        const int32_t n = N_PROMPT - 30 * i;
        scene_prompt(&random, prompts[i], n);
        rig_answer_init(&answers[i]);
        server_request request = rig_request(&answers[i], prompts[i], n, N_ANSWER);
        request_set(&request, k, &constraint, bias);
        rig_submit(engine, &request);
    }
    for (int i = 0; i < 2; i++) rig_answer_wait(&answers[i]);
}

void draft_scene_alike(const char *what, const rig_answer *a, const rig_answer *expected) {
    scene_answer_is(what, a, expected->tokens, expected->n);
    assert_int_equal(a->end, expected->end);
    assert_int_equal(a->usage.n_generated, expected->usage.n_generated);
    assert_memory_equal(a->logprobs, expected->logprobs, (size_t)a->n * sizeof *a->logprobs);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a->top[i].token, expected->top[i].token);
        assert_true(a->top[i].logprob == expected->top[i].logprob);
    }
}
