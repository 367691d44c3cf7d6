/* SPDX-License-Identifier: MIT
 *
 * test_engine_draw.c: what the engine gives for a row of logits: constraints, biases, probabilities,
 * candidates, seeds; and vectors of texts.
 */
#include <math.h>

#include "tests/model/changed_model.h"
#include "tests/server/engine_scene.h"
#include "tests/support/random.h"

/* ---- What is drawn ---- */

/* Allows every fifth token, then ends after four. */
typedef struct fifths {
    int32_t n;
    bool fails;
    int *n_destroyed;
} fifths;

static tdm_status fifths_mask(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err) {
    const fifths *f = state;
    if (f->fails) return tdm_fail(err, TDM_DATA_LOSS, "no token goes on");
    *is_limited_out = f->n != 1; /* the second may be any */
    if (f->n != 1) memset(words, 0, 384 / 8);
    for (int t = 5; f->n != 1 && t < 384; t += 5) words[t / 64] |= UINT64_C(1) << (t % 64);
    return TDM_OK;
}

static tdm_status fifths_accept(void *state, int32_t token, tdm_error *err) {
    fifths *f = state;
    if (f->n != 1 && token % 5 != 0)
        return tdm_fail(err, TDM_INTERNAL, "token %d was not allowed", token);
    f->n++;
    return TDM_OK;
}

static bool fifths_done(const void *state) {
    return ((const fifths *)state)->n == 4;
}

static void fifths_destroy(void *state) {
    ++*((fifths *)state)->n_destroyed;
}

static void test_constraint(void **state) {
    (void)state;
    llm_model *model = scene_model();
    server_engine *engine = scene_engine(model, 512, NULL);
    static const int32_t prompt[4] = {5, 6, 7, 8};
    int n_destroyed = 0;
    fifths good = {.n_destroyed = &n_destroyed}, bad = {.fails = true, .n_destroyed = &n_destroyed};
    llm_constraint constraint = {&good, fifths_mask, fifths_accept, fifths_done, fifths_destroy};
    rig_answer a, b;
    tdm_error err = {0};
    server_request_id id;
    rig_answer_init(&a);
    rig_answer_init(&b);
    server_request request = rig_request(&a, prompt, 4, 20);
    request.constraint = &constraint;
    request.n_prompt = 0; /* refused: the state is still ours */
    assert_int_equal(server_engine_submit(engine, &request, &id, NULL, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(n_destroyed, 0);
    request.n_prompt = 4;
    rig_submit(engine, &request);
    rig_answer_wait(&a);
    if (a.status != TDM_OK) fail_msg("%s", a.message);
    assert_int_equal(a.end, SERVER_END_CONSTRAINT);
    assert_int_equal(a.n, 4);
    constraint.state = &bad;
    request.sink.user = &b;
    rig_submit(engine, &request);
    rig_answer_wait(&b);
    assert_int_equal(b.status, TDM_DATA_LOSS);
    assert_string_equal(b.message, "no token goes on");
    assert_true(server_engine_wait_idle(engine, UINT64_C(60000000000)));
    assert_int_equal(n_destroyed, 2);
    rig_answer_free(&a);
    rig_answer_free(&b);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_bias_and_probabilities(void **state) {
    (void)state;
    llm_model *model = scene_model();
    server_engine *engine = scene_engine(model, 512, NULL);
    static const int32_t prompt[6] = {5, 6, 7, 8, 9, 10};
    const llm_context_params params = scene_context(512);
    llm_context *ctx = rig_context(model, &params);
    float logits[384];
    rig_answer a, b;
    rig_answer_init(&a);
    rig_answer_init(&b);
    static const uint8_t roles[6] = {TDM_ROLE_PROMPT, TDM_ROLE_PROMPT, TDM_ROLE_PROMPT,
                                     TDM_ROLE_PROMPT, TDM_ROLE_PROMPT, TDM_ROLE_PROMPT};
    rig_decode_as(ctx, prompt, roles, 6, 1, logits);
    llm_context_destroy(ctx);
    server_request request = rig_request(&a, prompt, 6, 1);
    request.wants_logprobs = true;
    request.n_top = 4;
    rig_submit(engine, &request);
    rig_answer_wait(&a);
    double sum = 0;
    int32_t best = 0, second = 1;
    for (int32_t t = 0; t < 384; t++) {
        sum += exp((double)logits[t]);
        if (logits[t] > logits[best]) best = t;
    }
    if (best == 1) second = 0;
    for (int32_t t = 0; t < 384; t++)
        if (t != best && logits[t] > logits[second]) second = t;
    assert_int_equal(a.tokens[0], best);
    assert_int_equal(a.top[0].token, best);
    assert_int_equal(a.top[1].token, second);
    assert_true(fabs((double)logits[best] - log(sum) - (double)a.logprobs[0]) < 1e-4);
    assert_true(fabs((double)logits[second] - log(sum) - (double)a.top[1].logprob) < 1e-4);
    /* The best is barred, another is lifted above the second; probabilities stay the model's. */
    const llm_logit_bias biases[2] = {{best, -INFINITY}, {300, 1000}};
    request.sink.user = &b;
    request.bias = biases;
    request.n_bias = 2;
    rig_submit(engine, &request);
    rig_answer_wait(&b);
    assert_int_equal(b.tokens[0], 300);
    assert_int_equal(b.top[0].token, best);
    assert_true(fabs((double)logits[300] - log(sum) - (double)b.logprobs[0]) < 1e-4);
    rig_answer_free(&a);
    rig_answer_free(&b);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* A device that sends the best tokens alone, beside requests that need whole rows. */
static void test_candidates(void **state) {
    (void)state;
    llm_model *model = scene_model();
    const llm_context_params params = scene_context(512);
    const server_engine_params engine_params = {.context = params, .gives_candidates = true};
    static const int32_t prompt[6] = {5, 6, 7, 8, 9, 10};
    int32_t expected[30];
    llm_context *ctx = rig_context(model, &params);
    const int32_t n = scene_plain(ctx, prompt, 6, 30, false, expected);
    llm_context_destroy(ctx);
    server_engine *engine = NULL;
    tdm_error err = {0};
    RIG_OK(server_engine_create(model, &engine_params, &engine, &err));
    rig_answer a[3];
    for (int i = 0; i < 3; i++) {
        rig_answer_init(&a[i]);
        server_request request = rig_request(&a[i], prompt, 6, i == 1 ? 10 : 30);
        request.wants_logprobs = i == 1; /* ends before the others */
        rig_submit(engine, &request);
    }
    for (int i = 0; i < 3; i++) rig_answer_wait(&a[i]);
    scene_answer_is("candidates", &a[0], expected, n);
    scene_answer_is("whole rows", &a[1], expected, n < 10 ? n : 10);
    scene_answer_is("candidates again", &a[2], expected, n);
    assert_true(a[1].logprobs[0] < 0);
    for (int i = 0; i < 3; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* Draws do not depend on what else is in a step: the same seed gives the same answer. */
/* Tokens that the file suppresses are never drawn: greedily the next best ones are. */
static void test_suppressed(void **state) {
    (void)state;
    enum { N = 20, N_PROMPT = 6 };
    int32_t prompt[N_PROMPT], ids[N], expected[N], n = 0;
    uint64_t random = 23;
    tdm_error err = {0};
    llm_model *model = scene_model();
    const llm_context_params params = scene_context(256);
    llm_context *ctx = rig_context(model, &params);
    scene_prompt(&random, prompt, N_PROMPT);
    const int32_t n_id = scene_plain(ctx, prompt, N_PROMPT, N, true, ids);
    changed_model_write_ids(model->gguf, rig_file("suppressed.gguf"),
                            "tokenizer.ggml.suppress_tokens", ids, (size_t)n_id);
    llm_batch batch = {.tokens = prompt, .n_tok = N_PROMPT, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    for (; n < N; n++) {
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        const float *logits = llm_context_logits(ctx, 0);
        int32_t best = -1;
        for (int32_t t = 0; t < model->hparams.n_vocab; t++) {
            bool is_barred = false;
            for (int32_t k = 0; k < n_id; k++) is_barred = is_barred || ids[k] == t;
            if (!is_barred && (best < 0 || logits[t] > logits[best])) best = t;
        }
        expected[n] = best;
        batch = (llm_batch){.tokens = &expected[n], .n_tok = 1, .role = TDM_ROLE_GENERATED};
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
    model = rig_model(rig_file("suppressed.gguf"), rig_device(NULL, "fast", 2));
    for (int gives_candidates = 0; gives_candidates < 2; gives_candidates++) {
        const server_engine_params engine_params = {.context = params,
                                                    .gives_candidates = gives_candidates != 0};
        server_engine *engine = NULL;
        RIG_OK(server_engine_create(model, &engine_params, &engine, &err));
        rig_answer a;
        rig_answer_init(&a);
        server_request request = rig_request(&a, prompt, N_PROMPT, N);
        rig_submit(engine, &request);
        rig_answer_wait(&a);
        assert_true(a.n > 0);
        for (int32_t i = 0; i < a.n; i++) assert_int_equal(a.tokens[i], expected[i]);
        rig_answer_free(&a);
        server_engine_destroy(engine);
    }
    llm_model_close(model);
}

static void test_seeds(void **state) {
    (void)state;
    llm_model *model = scene_model();
    server_engine *engine = scene_engine(model, 512, NULL);
    static const int32_t prompt[6] = {5, 6, 7, 8, 9, 10};
    rig_answer a[6];
    for (int i = 0; i < 6; i++) {
        rig_answer_init(&a[i]);
        server_request request = rig_request(&a[i], prompt, 6, 20);
        request.ignores_end = true;
        request.sampler.temp = 1;
        request.sampler.seed = (uint64_t)(i / 2);
        rig_submit(engine, &request);
    }
    for (int i = 0; i < 6; i++) rig_answer_wait(&a[i]);
    for (int i = 0; i < 6; i += 2)
        scene_answer_is("the same seed", &a[i], a[i + 1].tokens, a[i + 1].n);
    assert_memory_not_equal(a[0].tokens, a[2].tokens, 20 * sizeof(int32_t));
    for (int i = 0; i < 6; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* ---- Vectors ---- */

typedef struct vector_answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    tdm_status status;
    int32_t n;
    float vector[256];
} vector_answer;

static void vector_note(void *user, server_request_id id, tdm_status status, const char *message,
                        const float *vector, int32_t n) {
    vector_answer *a = user;
    (void)id;
    (void)message;
    pthread_mutex_lock(&a->lock);
    a->is_done = true;
    a->status = status;
    a->n = n;
    for (int32_t i = 0; i < n && i < 256; i++) a->vector[i] = vector[i];
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void vector_wait(vector_answer *a) {
    pthread_mutex_lock(&a->lock);
    while (!a->is_done) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

static void test_vectors(void **state) {
    (void)state;
    llm_model *model = scene_model();
    const server_limits limits = {.n_running = 2, .n_prompt_step = 16};
    server_engine *engine = scene_engine(model, 512, &limits);
    int32_t tokens[100], n_embd = model->hparams.n_embd;
    uint64_t random = 51;
    tdm_error err = {0};
    scene_prompt(&random, tokens, 100);
    vector_answer v = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    rig_answer a;
    rig_answer_init(&a);
    server_request request = rig_request(&a, tokens, 50, 100);
    request.ignores_end = true;
    rig_submit(engine, &request); /* meanwhile */
    server_embedding_request text = {.tokens = tokens,
                                     .n_tok = 100,
                                     .pooling = LLM_POOLING_MEAN,
                                     .normalize = 2,
                                     .done = vector_note,
                                     .user = &v};
    server_request_id id;
    RIG_OK(server_engine_embed(engine, &text, &id, NULL, &err));
    vector_wait(&v);
    assert_int_equal(v.status, TDM_OK);
    assert_int_equal(v.n, n_embd);
    llm_context_params params = scene_context(256);
    params.gives_embeddings = true;
    llm_context *ctx = NULL;
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    const llm_batch batch = {.tokens = tokens, .n_tok = 100, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    float expected[256];
    llm_pool(LLM_POOLING_MEAN, llm_context_hidden(ctx, 0), 100, n_embd, expected);
    llm_embedding_normalize(expected, n_embd, 2);
    assert_memory_equal(v.vector, expected, sizeof expected);
    llm_context_destroy(ctx);
    /* Refusals, and one that is late. */
    text.n_tok = 257;
    assert_int_equal(server_engine_embed(engine, &text, &id, NULL, &err), TDM_OUT_OF_RANGE);
    text.n_tok = 100;
    text.pooling = LLM_POOLING_NONE;
    assert_int_equal(server_engine_embed(engine, &text, &id, NULL, &err), TDM_INVALID_ARGUMENT);
    text.pooling = LLM_POOLING_LAST;
    text.total_limit = 1;
    v.is_done = false;
    RIG_OK(server_engine_embed(engine, &text, &id, NULL, &err));
    vector_wait(&v);
    assert_int_equal(v.status, TDM_DEADLINE_EXCEEDED);
    assert_int_equal(v.n, 0);
    rig_answer_wait(&a);
    assert_int_equal(a.n, 100);
    assert_int_equal(server_engine_n_ctx_embedding(engine), 256);
    /* The totals have each request that was submitted once among the ended ones. */
    const server_stats stats = scene_stats(engine);
    assert_int_equal(stats.n_submitted, 3);
    assert_int_equal(stats.n_refused, 2);
    assert_int_equal(stats.n_ended[SERVER_END_LENGTH], 1);
    assert_int_equal(stats.n_ended[SERVER_END_STOP], 1);
    assert_int_equal(stats.n_ended[SERVER_END_DEADLINE], 1);
    assert_int_equal(stats.n_failed, 0);
    rig_answer_free(&a);
    server_engine_destroy(engine);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constraint), cmocka_unit_test(test_bias_and_probabilities),
        cmocka_unit_test(test_seeds),      cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_vectors),    cmocka_unit_test(test_suppressed),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
