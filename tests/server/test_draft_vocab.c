/* SPDX-License-Identifier: MIT
 *
 * test_draft_vocab.c: draft models that have a few tokens more or fewer than the large model: which
 * pairs are accepted, that answers are those without a draft, and what is proposed for tokens that
 * one of the two models lacks.
 */
#include "llm/draft.h"
#include "tests/model/preset.h"
#include "tests/server/draft_scene.h"
#include "tests/server/engine_scene.h"
#include "tests/support/random.h"

static llm_model *model; /* scene_model */

enum { N_NARROW = 384, N_WIDE = N_NARROW + 8 };

/* The model of scene_model with n_vocab tokens: the rows and texts of the tokens that both have are
 * equal. `text` replaces "\xe2\x96\x81b", which stays where it is NULL. */
static llm_model *sized_open(int64_t n_vocab, const char *text) {
    static const char old[12] = {4, 0, 0, 0, 0, 0, 0, 0, '\xe2', '\x96', '\x81', 'b'};
    random_model_spec spec = preset_find("tiny-llama");
    llm_model *m = NULL;
    tdm_error err = {0};
    char name[64];
    spec.type = TDM_TYPE_Q8_0;
    spec.n_ctx = 2048;
    spec.n_vocab = n_vocab;
    snprintf(name, sizeof name, "sized-%d%s.gguf", (int)n_vocab, text != NULL ? "-other" : "");
    const char *path = preset_file(name, &spec);
    if (text != NULL) {
        static char head[16384];
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fread(head, 1, sizeof head, file), sizeof head);
        char *at = memmem(head, sizeof head, old, sizeof old);
        assert_non_null(at);
        assert_int_equal(fseek(file, at - head + 8, SEEK_SET), 0);
        assert_int_equal(fwrite(text, 1, 4, file), 4);
        assert_int_equal(fclose(file), 0);
    }
    RIG_OK(llm_model_open(path, &m, &err));
    return m;
}

static llm_model *sized_load(int64_t n_vocab) {
    tdm_open_device *dev = rig_device(NULL, "fast", 2);
    llm_model *m = sized_open(n_vocab, NULL);
    tdm_error err = {0};
    RIG_OK(llm_model_load(m, rig_runtime(), &dev, 1, NULL, NULL, &err));
    return m;
}

static void test_sizes_check(void **state) {
    (void)state;
    static const struct {
        int64_t n_vocab;
        const char *text, *message; /* message NULL = it can draft */
    } cases[] = {{N_NARROW - LLM_MAX_DRAFT_VOCAB_GAP + 3, NULL, NULL},
                 {N_NARROW + LLM_MAX_DRAFT_VOCAB_GAP, NULL, NULL},
                 {N_NARROW + LLM_MAX_DRAFT_VOCAB_GAP + 1, NULL, "it has 513 tokens, not 384;"},
                 {N_NARROW + 200, NULL,
                  "it has 584 tokens, not 384; a draft model must have the "
                  "same vocabulary, with at most 128 tokens more or fewer"},
                 {N_WIDE, "\xe2\x96\x81?",
                  "is '\xe2\x96\x81?', not '\xe2\x96\x81"
                  "b';"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llm_model *m = sized_open(cases[i].n_vocab, cases[i].text);
        tdm_error err = {0};
        const tdm_status status = llm_draft_check(m, model, &err);
        if (cases[i].message == NULL && status != TDM_OK) fail_msg("%s", err.message);
        if (cases[i].message != NULL) assert_int_equal(status, TDM_INVALID_ARGUMENT);
        if (cases[i].message != NULL && strstr(err.message, cases[i].message) == NULL)
            fail_msg("%s", err.message);
        /* The large model may be the longer one, too. */
        assert_int_equal(llm_draft_check(model, m, &err), status);
        llm_model_close(m);
    }
}

/* An answer to a prompt with tokens that only the wide model has; `token`: a biased one, or -1. */
static void wide_run(server_engine *engine, int32_t token, rig_answer *a) {
    const llm_logit_bias bias = {token, 1000};
    int32_t prompt[N_PROMPT];
    uint64_t random = 51;
    scene_prompt(&random, prompt, N_PROMPT);
    prompt[3] = N_NARROW;
    prompt[N_PROMPT - 20] = N_WIDE - 1;
    prompt[N_PROMPT - 1] = N_WIDE - 2;
    rig_answer_init(a);
    server_request request = rig_request(a, prompt, N_PROMPT, N_ANSWER);
    request.ignores_end = true;
    request.wants_logprobs = true;
    request.bias = &bias;
    request.n_bias = token >= 0;
    rig_submit(engine, &request);
    rig_answer_wait(a);
}

static void test_sizes(void **state) {
    (void)state;
    static const kind kinds[] = {GREEDY, SEEDED, CHAIN, MIROSTAT, BIASED, PROBABLE};
    const llm_context_params params = scene_context(1024);
    llm_model *wide = sized_load(N_WIDE);
    for (int is_wide = 0; is_wide < 2; is_wide++) { /* the large model */
        llm_model *m = is_wide ? wide : model, *draft = is_wide ? model : wide;
        server_engine *plain = draft_scene_engine(m, NULL, &params, NULL);
        server_engine *engine = draft_scene_engine(m, draft, &params, NULL);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            rig_answer a[2], expected[2];
            int32_t n_draft = 0, n_accepted = 0;
            draft_scene_two(plain, kinds[k], expected);
            draft_scene_two(engine, kinds[k], a);
            for (int i = 0; i < 2; i++) {
                draft_scene_alike("vocabularies of different lengths", &a[i], &expected[i]);
                n_draft += a[i].usage.n_draft;
                n_accepted += a[i].usage.n_draft_accepted;
                rig_answer_free(&a[i]);
                rig_answer_free(&expected[i]);
            }
            print_message("%d tokens for %d, kind %d: %d of %d accepted\n",
                          (int)draft->hparams.n_vocab, (int)m->hparams.n_vocab, (int)kinds[k],
                          n_accepted, n_draft);
            assert_true(n_draft > 0);
            if (kinds[k] == GREEDY) assert_true(n_accepted * 100 >= n_draft * 80);
        }
        /* Tokens that the draft lacks, in the prompt and then in the answer. */
        for (int32_t token = -1; is_wide && token < N_WIDE; token += N_WIDE - 1) {
            rig_answer a, expected;
            wide_run(plain, token, &expected);
            wide_run(engine, token, &a);
            draft_scene_alike("tokens that the draft lacks", &a, &expected);
            print_message("bias of token %d: %d of %d accepted\n", token, a.usage.n_draft_accepted,
                          a.usage.n_draft);
            assert_true(a.usage.n_draft > 0 && (a.usage.n_draft_accepted > 0) == (token < 0));
            rig_answer_free(&a);
            rig_answer_free(&expected);
        }
        server_engine_destroy(engine);
        server_engine_destroy(plain);
    }
    llm_model_close(wide);
}

/* One proposal of a new draft for each token as the text; n_candidate 0 = from whole rows. Returns
 * how often the draft itself would take a token that the large model lacks. */
static int32_t proposals_of_all(llm_model *m, llm_model *small, int32_t n_candidate,
                                int32_t *tokens_out) {
    const llm_sampler_params greedy = {.struct_size = sizeof greedy};
    const llm_context_params params = scene_context(64);
    llm_context *target = rig_context(m, &params), *ctx = rig_context(small, &params);
    const int32_t n_vocab = m->hparams.n_vocab;
    const llm_draft_params p = {.ctx = ctx, .target = target, .n_max = N_DRAFT};
    llm_sampler *samplers[2] = {NULL, NULL};
    llm_draft *draft = NULL;
    int32_t n_extra = 0;
    tdm_error err = {0};
    RIG_OK(llm_context_set_candidates(ctx, n_candidate, &err));
    RIG_OK(llm_draft_create(&p, &draft, &err));
    assert_int_equal(llm_draft_n_extra(draft), N_WIDE - N_NARROW);
    for (int i = 0; i < 2; i++) RIG_OK(llm_sampler_create(&greedy, n_vocab, 0, &samplers[i], &err));
    for (int32_t token = 0; token < n_vocab; token++) {
        llm_draft_item item = {.sampler = samplers[0],
                               .model = samplers[1],
                               .history = &token,
                               .next = token,
                               .n = 1,
                               .tokens_out = &tokens_out[token]};
        RIG_OK(llm_draft_propose(draft, &item, 1, &err));
        assert_int_equal(item.n_out, 1);
        assert_in_range(tokens_out[token], 0, n_vocab - 1);
        const llm_row row = llm_context_row(ctx, 0);
        int32_t best = 0;
        for (int32_t i = 1; i < row.n; i++)
            if (row.logits[i] > row.logits[best]) best = i;
        n_extra += (row.tokens != NULL ? row.tokens[best] : best) >= n_vocab;
        RIG_OK(llm_draft_truncate(draft, 0, 0, &err));
    }
    for (int i = 0; i < 2; i++) llm_sampler_destroy(samplers[i]);
    llm_draft_destroy(draft);
    llm_context_destroy(ctx);
    llm_context_destroy(target);
    return n_extra;
}

/* Tokens that only the draft has are never proposed, from whole rows and from candidates. */
static void test_sizes_extra(void **state) {
    (void)state;
    int32_t whole[N_NARROW], few[N_NARROW];
    llm_model *wide = sized_load(N_WIDE);
    const int32_t n_extra = proposals_of_all(model, wide, 0, whole);
    print_message("%d rows with a best token that the large model lacks\n", n_extra);
    assert_true(n_extra > 0);
    assert_int_equal(proposals_of_all(model, wide, 1 + N_WIDE - N_NARROW, few), n_extra);
    assert_memory_equal(few, whole, sizeof few);
    llm_model_close(wide);
}

/* The place in a text, and for how many places only tokens that the draft lacks may follow: first
 * to last. After these places all tokens may. */
typedef struct lacking {
    int32_t n, n_most, first, last;
} lacking;

static tdm_status lacking_mask(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err) {
    const lacking *l = state;
    (void)err;
    *is_limited_out = l->n < l->n_most;
    if (!*is_limited_out) return TDM_OK;
    memset(words, 0, (N_WIDE + 63) / 64 * sizeof *words);
    for (int32_t t = l->first; t <= l->last; t++) words[t / 64] |= UINT64_C(1) << (t % 64);
    return TDM_OK;
}

static tdm_status lacking_accept(void *state, int32_t token, tdm_error *err) {
    (void)token, (void)err;
    ((lacking *)state)->n++;
    return TDM_OK;
}

/* A constraint that forces tokens that the draft lacks, and one that leaves a choice of them, for
 * which the draft has no logits. */
static void test_sizes_forced(void **state) {
    (void)state;
    const llm_sampler_params greedy = {.struct_size = sizeof greedy};
    const llm_context_params params = scene_context(64);
    llm_model *wide = sized_load(N_WIDE);
    llm_context *target = rig_context(wide, &params), *ctx = rig_context(model, &params);
    const llm_draft_params p = {.ctx = ctx, .target = target, .n_max = N_DRAFT};
    llm_sampler *samplers[2] = {NULL, NULL};
    llm_draft *draft = NULL;
    tdm_error err = {0};
    RIG_OK(llm_draft_create(&p, &draft, &err));
    assert_int_equal(llm_draft_n_extra(draft), 0);
    for (int i = 0; i < 2; i++) RIG_OK(llm_sampler_create(&greedy, N_WIDE, 0, &samplers[i], &err));
    for (int n_choice = 1; n_choice <= 2; n_choice++) {
        const int32_t history[2] = {9, N_WIDE - 1};
        lacking place = {0, 2, N_NARROW + 1, N_NARROW + n_choice};
        int32_t proposed[N_DRAFT];
        const llm_constraint constraint = {
            .state = &place, .mask = lacking_mask, .accept = lacking_accept};
        llm_draft_item item = {.sampler = samplers[0],
                               .model = samplers[1],
                               .history = history,
                               .n_history = 2,
                               .next = N_NARROW,
                               .n = N_DRAFT,
                               .constraint = &constraint,
                               .tokens_out = proposed};
        RIG_OK(llm_draft_propose(draft, &item, 1, &err));
        assert_int_equal(item.n_out, n_choice == 1 ? N_DRAFT : 0);
        for (int32_t i = 0; i < item.n_out; i++)
            assert_true(i < 2 ? proposed[i] == N_NARROW + 1 : proposed[i] < N_NARROW);
        RIG_OK(llm_draft_truncate(draft, 0, 0, &err));
    }
    for (int i = 0; i < 2; i++) llm_sampler_destroy(samplers[i]);
    llm_draft_destroy(draft);
    llm_context_destroy(ctx);
    llm_context_destroy(target);
    llm_model_close(wide);
}

static void test_load(void **state) {
    (void)state;
    model = scene_model();
}

static int all_end(void **state) {
    llm_model_close(model);
    return rig_end(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),         cmocka_unit_test(test_sizes_check),
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_sizes_extra),
        cmocka_unit_test(test_sizes_forced),
    };
    return cmocka_run_group_tests(tests, rig_begin, all_end);
}
