/* SPDX-License-Identifier: MIT
 *
 * test_engine_lora.c: requests of unlike scales of adapters in one engine: each answer is the one
 * that a context of its own gives with these scales; prefixes are shared among equal scales alone,
 * and kept through preemption and sequences that are used again. Drafts of the model without
 * adapters change no answer.
 */
#include <math.h>

#include "llm/adapter.h"
#include "llm/draft.h"
#include "tests/model/lora_file.h"
#include "tests/model/preset.h"
#include "tests/server/engine_scene.h"

enum { N_SET = 4, N_REQUEST = 16, N_PROMPT = 96, N_ANSWER = 12 };

static const float sets[N_SET][2] = {{0, 0}, {1, 0}, {-0.5f, 0.75f}, {0, 1}};
static llm_model *model;

static llm_model *model_make(void) {
    static const lora_spec specs[2] = {
        {.rank = 8, .alpha = 16, .strength = 0.8f, .type = TDM_TYPE_F16, .seed = 1},
        {.rank = 3, .alpha = 3, .strength = 0.8f, .type = TDM_TYPE_F32, .seed = 2, .only = "ffn"},
    };
    tdm_error err = {0};
    llm_model *m = NULL;
    random_model_spec spec = preset_find("tiny-llama");
    spec.type = TDM_TYPE_Q8_0;
    const char *base = preset_file("lora-engine.gguf", &spec);
    tdm_open_device *dev = rig_device(NULL, "fast", 2);
    RIG_OK(llm_model_open(base, &m, &err));
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "engine.%d.lora", i);
        const char *path = rig_file(name);
        lora_file_write(base, &specs[i], path);
        RIG_OK(llm_model_add_adapter(m, path, sets[1][i], &err));
    }
    RIG_OK(llm_model_load(m, rig_runtime(), &dev, 1, NULL, NULL, &err));
    return m;
}

typedef struct lora_request {
    int32_t prompt[N_PROMPT], n_prompt, expected[N_ANSWER], n_expected;
    const float *scales;
    rig_answer answer;
} lora_request;

/* Prompts that begin alike, for all scales; their answers differ. */
static void requests_make(lora_request *requests) {
    const llm_context_params params = scene_context(512);
    llm_context *ctx = rig_context(model, &params);
    tdm_error err = {0};
    uint64_t random = 5;
    int32_t begin[N_PROMPT];
    int n_unlike = 0;
    scene_prompt(&random, begin, N_PROMPT);
    for (int i = 0; i < N_REQUEST; i++) {
        lora_request *r = &requests[i];
        memset(r, 0, sizeof *r);
        rig_answer_init(&r->answer);
        r->scales = sets[i % N_SET];
        r->n_prompt = N_PROMPT - 4 * (i / N_SET);
        memcpy(r->prompt, begin, sizeof begin);
        RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
        RIG_OK(llm_context_set_scales(ctx, 0, r->scales, &err));
        r->n_expected = scene_plain(ctx, r->prompt, r->n_prompt, N_ANSWER, true, r->expected);
        for (int k = i - i % N_SET; k < i; k++)
            n_unlike += memcmp(r->expected, requests[k].expected, sizeof r->expected) != 0;
    }
    assert_true(n_unlike > N_REQUEST / 2); /* scales show */
    llm_context_destroy(ctx);
}

static server_request request_of(lora_request *r) {
    server_request request = rig_request(&r->answer, r->prompt, r->n_prompt, N_ANSWER);
    request.ignores_end = true;
    request.scales = r->scales;
    return request;
}

static void answers_check(lora_request *requests) {
    for (int i = 0; i < N_REQUEST; i++) {
        char what[32];
        snprintf(what, sizeof what, "request %d", i);
        rig_answer_wait(&requests[i].answer);
        scene_answer_is(what, &requests[i].answer, requests[i].expected, requests[i].n_expected);
        rig_answer_free(&requests[i].answer);
    }
}

static void test_mixed(void **state) {
    static lora_request requests[N_REQUEST];
    (void)state;
    /* With room for all; then with so little that requests are preempted and sequences used again. */
    for (int turn = 0; turn < 2; turn++) {
        const server_limits limits = {.n_running = turn == 0 ? 8 : 3, .n_held = turn == 0 ? 16 : 1};
        server_engine *engine = scene_engine(model, turn == 0 ? 2048 : 256, &limits);
        requests_make(requests);
        for (int i = 0; i < N_REQUEST; i++) {
            const server_request request = request_of(&requests[i]);
            rig_submit(engine, &request);
        }
        answers_check(requests);
        server_engine_destroy(engine);
    }
}

/* With drafts, two at a time, so that there are some. Those for the scales 0 are right. */
static void test_drafts(void **state) {
    static lora_request requests[N_REQUEST];
    const llm_context_params params = scene_context(1024);
    server_engine_params engine_params = {.struct_size = sizeof engine_params,
                                          .context = params,
                                          .limits = {.n_running = 2},
                                          .draft_context = params,
                                          .n_draft = 4};
    server_engine *engine = NULL;
    tdm_error err = {0};
    int32_t n_draft[2] = {0, 0}, n_accepted[2] = {0, 0}; /* with adapters, without */
    (void)state;
    engine_params.draft = rig_model(rig_file("lora-engine.gguf"), rig_device(NULL, "fast", 2));
    RIG_OK(llm_draft_check(engine_params.draft, model, &err));
    RIG_OK(server_engine_create(model, &engine_params, &engine, &err));
    requests_make(requests);
    for (int i = 0; i < N_REQUEST; i++) {
        const server_request request = request_of(&requests[i]);
        rig_submit(engine, &request);
    }
    for (int i = 0; i < N_REQUEST; i++) {
        rig_answer_wait(&requests[i].answer);
        n_draft[i % N_SET == 0] += requests[i].answer.usage.n_draft;
        n_accepted[i % N_SET == 0] += requests[i].answer.usage.n_draft_accepted;
    }
    print_message("%d of %d drafts accepted with adapters, %d of %d without\n", n_accepted[0],
                  n_draft[0], n_accepted[1], n_draft[1]);
    assert_true(n_draft[0] > 0 && n_draft[1] > 0);
    assert_true(n_accepted[0] < n_draft[0] && n_accepted[1] * 100 >= n_draft[1] * 85);
    answers_check(requests);
    server_engine_destroy(engine);
    llm_model_close(engine_params.draft);
}

/* One after the other, the same prompt finds its prefix where the scales are equal, and nowhere
 * else. */
static void test_prefixes(void **state) {
    static lora_request requests[N_REQUEST];
    (void)state;
    server_engine *engine = scene_engine(model, 2048, NULL);
    requests_make(requests);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < N_SET; i++) {
            lora_request *r = &requests[i];
            rig_answer answer;
            rig_answer_init(&answer);
            server_request request = rig_request(&answer, r->prompt, r->n_prompt, N_ANSWER);
            request.ignores_end = true;
            request.scales = r->scales;
            rig_submit(engine, &request);
            rig_answer_wait(&answer);
            scene_answer_is("one of several scales", &answer, r->expected, r->n_expected);
            assert_int_equal(answer.usage.n_cached, turn == 0 ? 0 : r->n_prompt - 1);
            rig_answer_free(&answer);
        }
    for (int i = 0; i < N_REQUEST; i++) rig_answer_free(&requests[i].answer);
    server_engine_destroy(engine);
}

/* The answer to a request without scales. */
static void default_is(server_engine *engine, const lora_request *r) {
    rig_answer answer;
    rig_answer_init(&answer);
    server_request request = rig_request(&answer, r->prompt, r->n_prompt, N_ANSWER);
    request.ignores_end = true;
    rig_submit(engine, &request);
    rig_answer_wait(&answer);
    scene_answer_is("the engine's scales", &answer, r->expected, r->n_expected);
    rig_answer_free(&answer);
}

static void vector_take(void *user, server_request_id id, tdm_status status, const char *message,
                        const float *vector, int32_t n) {
    rig_answer *answer = user;
    (void)id, (void)message;
    pthread_mutex_lock(&answer->lock);
    /* the thread of the test checks it: an assertion here would leave the engine's */
    answer->status = status == TDM_OK && n < RIG_MAX_ANSWER ? TDM_INTERNAL : status;
    answer->n_event = 1;
    if (answer->status == TDM_OK) memcpy(answer->logprobs, vector, sizeof answer->logprobs);
    pthread_cond_signal(&answer->changed);
    pthread_mutex_unlock(&answer->lock);
}

static void embed(server_engine *engine, const lora_request *r, float vector_out[RIG_MAX_ANSWER]) {
    rig_answer answer;
    tdm_error err = {0};
    server_request_id id;
    rig_answer_init(&answer);
    const server_embedding_request request = {.struct_size = sizeof request,
                                              .tokens = r->prompt,
                                              .n_tok = r->n_prompt,
                                              .pooling = LLM_POOLING_MEAN,
                                              .done = vector_take,
                                              .user = &answer};
    RIG_OK(server_engine_embed(engine, &request, &id, NULL, &err));
    rig_answer_wait(&answer);
    assert_int_equal(answer.status, TDM_OK);
    memcpy(vector_out, answer.logprobs, sizeof answer.logprobs);
    rig_answer_free(&answer);
}

static void test_defaults(void **state) {
    static lora_request requests[N_REQUEST];
    static const float bad[2] = {0, NAN};
    float scales[LLM_MAX_ADAPTERS], before[RIG_MAX_ANSWER], behind[RIG_MAX_ANSWER];
    tdm_error err = {0};
    server_request_id id;
    (void)state;
    server_engine *engine = scene_engine(model, 2048, NULL);
    requests_make(requests);
    server_engine_get_scales(engine, scales);
    assert_memory_equal(scales, sets[1], sizeof sets[1]);
    default_is(engine, &requests[1]);
    embed(engine, &requests[1], before);
    RIG_OK(server_engine_set_scales(engine, sets[2], &err));
    default_is(engine, &requests[2]);
    embed(engine, &requests[1], behind);
    assert_memory_not_equal(before, behind, sizeof before);
    assert_int_equal(server_engine_set_scales(engine, bad, &err), TDM_INVALID_ARGUMENT);
    server_engine_get_scales(engine, scales);
    assert_memory_equal(scales, sets[2], sizeof sets[2]);
    server_request request = request_of(&requests[0]);
    request.scales = bad;
    assert_int_equal(server_engine_submit(engine, &request, &id, NULL, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "adapter 1"));
    for (int i = 0; i < N_REQUEST; i++) rig_answer_free(&requests[i].answer);
    server_engine_destroy(engine);
}

static void test_load(void **state) {
    (void)state;
    model = model_make();
}

static int all_end(void **state) {
    llm_model_close(model);
    return rig_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests(tests, rig_begin, all_end);
}
