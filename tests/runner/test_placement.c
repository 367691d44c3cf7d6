/* SPDX-License-Identifier: MIT
 *
 * test_placement.c: weights on other devices than the model's, and caches in the host's memory.
 * The model's device may be a group and may have its own memory. The logits are those of one
 * device, also after each operation that moves a cache.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/context_internal.h"
#include "core/runtime.h"
#include "llm/report.h"

#define N_TOK 24
#define N_CTX 128

static const char *model_path;
static tdm_runtime *rt;
static tdm_open_device *a, *b, *c, *group;
static tdm_open_device *away, *away_group; /* with memory of their own */
static tdm_error err;

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, err.message);                              \
    } while (0)

static tdm_open_device *device_open(const char *name, const char *plugin, const tdm_option *options,
                                    int32_t n_option) {
    tdm_device_spec spec = {name, plugin, 0, options, n_option};
    tdm_open_device *dev = NULL;
    OK(tdm_runtime_declare(rt, &spec, &err));
    OK(tdm_runtime_open(rt, name, &dev, &err));
    return dev;
}

static int devices_open(void **state) {
    (void)state;
    static const tdm_option one[] = {{"threads", "1"}};
    static const tdm_option two[] = {{"members", "a,b"}, {"share", "3,1"}};
    tdm_runtime_params params = {.struct_size = sizeof params};
    OK(tdm_runtime_create(&params, &rt, &err));
    a = device_open("a", "cpu", one, 1);
    b = device_open("b", "cpu", one, 1);
    c = device_open("c", "cpu", one, 1);
    group = device_open("group", "meta", two, 2);
    static const tdm_option far[][3] = {
        {{"member", "a"}, {"memory", "1000000000000"}, {"host-pointer", "no"}},
        {{"member", "b"}, {"memory", "1000000000000"}, {"host-pointer", "no"}}};
    static const tdm_option far_two[] = {{"members", "far a,far b"}, {"share", "3,1"}};
    away = device_open("far a", "fault", far[0], 3);
    device_open("far b", "fault", far[1], 3);
    away_group = device_open("far group", "meta", far_two, 2);
    return 0;
}

static int devices_close(void **state) {
    (void)state;
    tdm_runtime_destroy(rt);
    return 0;
}

/* A model at work, and its last row of logits after each step of the same scene. */
typedef struct scene {
    llm_model *model;
    llm_context *ctx;
    float *rows; /* [4][n_vocab] */
} scene;

static void row_keep(scene *s, int step) {
    size_t n = (size_t)s->model->hparams.n_vocab;
    const float *row = llm_context_logits(s->ctx, 0);
    assert_non_null(row);
    memcpy(s->rows + (size_t)step * n, row, n * sizeof *row);
}

static void decode(scene *s, const int32_t *tokens, int32_t n) {
    llm_batch batch = {tokens, NULL, NULL, n};
    OK(llm_context_decode(s->ctx, &batch, &err));
}

/* A prompt, a token, a shift and a token, and a token behind rows that were exported and
 * imported. */
static scene scene_play(tdm_open_device *const *devs, int32_t n_dev, const llm_placement *placement,
                        bool is_cache_in_host) {
    static const tdm_type type_k = TDM_TYPE_Q8_0, type_v = TDM_TYPE_Q4_0;
    llm_context_params params = {.struct_size = sizeof params,
                                 .n_ctx = N_CTX,
                                 .n_seq = 2,
                                 .page_len = 16,
                                 .type_k = &type_k,
                                 .type_v = &type_v,
                                 .is_cache_in_host = is_cache_in_host};
    scene s = {0};
    int32_t tokens[N_TOK], next = 5;
    for (int32_t i = 0; i < N_TOK; i++) tokens[i] = 3 + i * 7;
    OK(llm_model_open(model_path, &s.model, &err));
    if (placement != NULL) llm_model_place(s.model, placement);
    OK(llm_model_load(s.model, rt, devs, n_dev, NULL, NULL, &err));
    OK(llm_context_create(s.model, &params, &s.ctx, &err));
    s.rows = calloc(4 * (size_t)s.model->hparams.n_vocab, sizeof *s.rows);
    assert_non_null(s.rows);
    decode(&s, tokens, N_TOK);
    row_keep(&s, 0);
    decode(&s, &next, 1);
    row_keep(&s, 1);
    OK(llm_context_shift(s.ctx, 0, 4, 8, &err));
    decode(&s, &next, 1);
    row_keep(&s, 2);
    int32_t length = llm_context_length(s.ctx, 0);
    void *rows = malloc(llm_context_rows_size(s.ctx, length));
    assert_non_null(rows);
    OK(llm_context_export_rows(s.ctx, 0, 0, length, rows, &err));
    OK(llm_context_truncate(s.ctx, 0, 0, &err));
    OK(llm_context_import_rows(s.ctx, 0, length, rows, &err));
    free(rows);
    decode(&s, &next, 1);
    row_keep(&s, 3);
    return s;
}

static void scene_end(scene *s) {
    llm_context_destroy(s->ctx);
    llm_model_close(s->model);
    free(s->rows);
}

/* Sum of squared differences over the sum of squares. */
static double nmse(const float *expected, const float *found, size_t n) {
    double difference = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)found[i] - expected[i]) * ((double)found[i] - expected[i]);
        sum += (double)expected[i] * expected[i];
    }
    return difference / sum;
}

/* The scene on device a alone: what the others are compared with. */
static scene plain;

static int scene_setup(void **state) {
    (void)devices_open(state);
    plain = scene_play(&a, 1, NULL, false);
    return 0;
}

static int scene_teardown(void **state) {
    scene_end(&plain);
    return devices_close(state);
}

/* Device 1 for weights whose name contains `user`, or for each third weight if `user` is "every
 * third"; -1, the model's own device, for others. */
static int32_t weight_wish(void *user, const char *name) {
    static int32_t n;
    const char *word = user;
    if (strstr(name, word) != NULL) return 1;
    return strcmp(word, "every third") == 0 && n++ % 3 == 0 ? 1 : -1;
}

static void scenes_compare(tdm_open_device *main_dev, const char *word, bool is_cache_in_host) {
    tdm_open_device *devs[] = {main_dev, c};
    llm_placement placement = {word[0] != '\0' ? weight_wish : NULL, (void *)(uintptr_t)word};
    scene found = scene_play(devs, 2, &placement, is_cache_in_host);
    int32_t n_moved = 0, n_vocab = plain.model->hparams.n_vocab;
    for (int32_t i = 0; i < found.model->n_weight; i++) n_moved += found.model->weights[i].dev == 1;
    if (word[0] != '\0') assert_in_range(n_moved, 1, found.model->n_weight - 1);
    for (int step = 0; step < 4; step++) {
        double error = nmse(plain.rows + (size_t)step * (size_t)n_vocab,
                            found.rows + (size_t)step * (size_t)n_vocab, (size_t)n_vocab);
        if (!(error <= 1e-6))
            fail_msg("'%s'%s on %s: step %d: NMSE %g", word,
                     is_cache_in_host ? ", cache in the host's memory" : "",
                     tdm_open_device_name(main_dev), step, error);
    }
    scene_end(&found);
}

static void test_weights(void **state) {
    (void)state;
    static const char *const words[] = {"ffn_down", "attn_k", "attn_norm", "token_embd",
                                        "every third"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        scenes_compare(a, words[i], false);
        scenes_compare(group, words[i], false);
    }
}

static void test_cache(void **state) {
    (void)state;
    tdm_open_device *const devs[] = {a, group, away, away_group};
    for (size_t i = 0; i < sizeof devs / sizeof devs[0]; i++) {
        scenes_compare(devs[i], "", true);
        scenes_compare(devs[i], "ffn_up", true);
    }
}

/* A device that is no group leaves a cache in the host's memory to the CPU, if it has other memory;
 * a group keeps it among its members. */
static void test_cache_is_there(void **state) {
    (void)state;
    tdm_open_device *const mains[] = {a, group, away, away_group};
    for (int i = 0; i < 8; i++) {
        tdm_open_device *devs[] = {mains[i / 2], c};
        bool is_in_host = i % 2 == 1;
        scene s = scene_play(devs, 2, NULL, is_in_host);
        for (int32_t l = 0; l < s.model->hparams.n_layer; l++)
            assert_int_equal(s.ctx->state_dev[l], is_in_host && devs[0] == away);
        scene_end(&s);
    }
}

/* ---- How long it takes ---- */

static int32_t ffn_on_second(void *user, const char *name) {
    (void)user;
    return strstr(name, "ffn_gate") != NULL ? 1 : -1;
}

static tdm_open_device *clock_open(const char *name, const char *member) {
    const tdm_option options[] = {{"members", member}};
    return device_open(name, "meta", options, 1);
}

static double turns_time(const llm_model *model, tdm_open_device *const *clocks, double bandwidth,
                         bool is_placed, int32_t n_tok) {
    tdm_open_device *const devs[] = {a, b};
    const double bandwidths[] = {bandwidth, bandwidth};
    const llm_placement placement = {.weight = is_placed ? ffn_on_second : NULL};
    const llm_turns turns = {rt, devs, clocks, bandwidths, 2, &placement};
    double seconds = -1;
    OK(llm_model_turns_time(model, &turns, NULL, n_tok, n_tok, &seconds, &err));
    return seconds;
}

/* Devices that compute in turn take the time of one, plus stages and copies between them. */
static void test_turns_time(void **state) {
    (void)state;
    tdm_open_device *clock = clock_open("a alone", "a");
    tdm_open_device *const same[] = {clock, clock};
    tdm_open_device *const unasked[] = {clock, clock_open("c alone", "c")};
    tdm_split_report report = {.struct_size = sizeof report};
    llm_model *model = NULL;
    OK(llm_model_open(model_path, &model, &err));
    OK(llm_model_report(model, clock, NULL, 1, 1, &report, &err));
    assert_true(report.seconds > 0);
    double one = turns_time(model, same, 1e30, false, 1), stage = one - report.seconds;
    assert_true(stage > 0 && stage < 1e-3);
    /* the gate of every layer: there and back */
    double n_more = (turns_time(model, same, 1e30, true, 1) - one) / stage;
    assert_float_equal(n_more, 2 * model->hparams.n_layer, 1e-3);
    /* what is copied grows with the tokens: at least a row of the hidden state there and one
     * back */
    double copies[2];
    for (int32_t n = 1; n <= 2; n++)
        copies[n - 1] =
            turns_time(model, same, 1e6, true, n) - turns_time(model, same, 1e30, true, n);
    assert_float_equal(copies[1] / copies[0], 2, 1e-3);
    double row = (double)model->hparams.n_embd * sizeof(float) / 1e6;
    assert_true(copies[0] > 2 * row * model->hparams.n_layer);
    /* a group with a brief report alone has measured nothing, so the time is unknown */
    report.is_brief = 1;
    OK(llm_model_report(model, unasked[1], NULL, 1, 1, &report, &err));
    assert_true(turns_time(model, unasked, 1e30, true, 1) == 0);
    llm_model_close(model);
}

/* ---- How much memory it takes ---- */

/* The devices hold what the report says; one that runs no node holds nothing. */
static void test_turns_size(void **state) {
    (void)state;
    tdm_open_device *const devs[] = {a, b};
    const llm_placement here = {0}, there = {.weight = ffn_on_second};
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64, .n_ubatch = 17};
    const llm_turns undivided = {.rt = rt, .devs = devs, .n_dev = 2, .placement = &here},
                    turns = {.rt = rt, .devs = devs, .n_dev = 2, .placement = &there};
    uint64_t alone[2], sizes[2];
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    OK(llm_model_open(model_path, &model, &err));
    OK(llm_model_turns_size(model, &undivided, &params, 0, 1, alone, &err));
    OK(llm_model_turns_size(model, &turns, &params, 0, 1, sizes, &err));
    assert_true(alone[0] > 0 && sizes[0] > 0 && sizes[1] > 0);
    assert_int_equal(alone[1], 0);
    llm_model_place(model, &there);
    OK(llm_model_load(model, rt, devs, 2, NULL, NULL, &err));
    OK(llm_context_create(model, &params, &ctx, &err));
    assert_int_equal(llm_context_get_memory(ctx).compute, sizes[0] + sizes[1]);
    assert_true(tdm_scratch_size(ctx->scratch, 1) > 0);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_is_there), cmocka_unit_test(test_turns_time),
        cmocka_unit_test(test_turns_size),
    };
    if (argc != 2) return 2;
    model_path = argv[1];
    return cmocka_run_group_tests(tests, scene_setup, scene_teardown);
}
