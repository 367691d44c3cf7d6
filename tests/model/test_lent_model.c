/* SPDX-License-Identifier: MIT
 *
 * test_lent_model.c: whole models on groups whose members implement next to nothing (the ten-slot
 * plugin of the runtime's tests, and the example for authors). The core adds the missing functions,
 * the CPU runs the refused ops, and the logits are those of one device.
 */
#include "core/counters.h"
#include "llm/report.h"
#include "tests/model/preset.h"
#include "tests/model/rig.h"

static void declare(const char *name, const char *plugin, const char *key, const char *value,
                    const char *key2, const char *value2) {
    const tdm_option options[] = {{key, value}, {key2, value2}};
    const tdm_device_spec spec = {name, plugin, 0, options, key2 != NULL ? 2 : key != NULL};
    tdm_error err = {0};
    RIG_OK(tdm_runtime_declare(rig_runtime(), &spec, &err));
}

static int begin(void **state) {
    if (rig_begin(state) != 0) return -1;
    declare("host", "cpu", "threads", "1", NULL, NULL);
    declare("slow", "fake", NULL, NULL, NULL, NULL);
    declare("lazy", "fake", "refuse", "add,mul,concat", NULL, NULL);
    declare("holder", "fake_holds_temps", "refuse", "mul", NULL, NULL);
    declare("theirs", "example", NULL, NULL, NULL, NULL);
    declare("theirs+host", "meta", "members", "theirs,host", "share", "2,1");
    declare("host+slow", "meta", "members", "host,slow", "share", "2,1");
    declare("slow+lazy", "meta", "members", "slow,lazy", "share", "1,1");
    declare("holder+host+lazy", "meta", "members", "holder,host,lazy", "share", "1,1,1");
    declare("group+slow", "meta", "members", "slow+lazy,slow", "share", "2,1");
    declare("lazy alone", "meta", "members", "lazy", "share", "1");
    return 0;
}

static const char *const groups[] = {"theirs+host",      "host+slow",  "slow+lazy",
                                     "holder+host+lazy", "group+slow", "lazy alone"};

static tdm_open_device *device_open(const char *name) {
    tdm_error err = {0};
    tdm_open_device *dev = NULL;
    RIG_OK(tdm_runtime_open(rig_runtime(), name, &dev, &err));
    return dev;
}

static llm_context *context_make(llm_model *model, tdm_type type) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 100,
                                       .n_ubatch = 16,
                                       .page_len = 16,
                                       .type_k = &type,
                                       .type_v = &type};
    return rig_context(model, &params);
}

enum { N_TOK = 24, N_VOCAB_MAX = 512 };

static void logits_of(const char *path, tdm_open_device *dev, tdm_type type, float *logits) {
    int32_t tokens[N_TOK];
    for (int i = 0; i < N_TOK; i++) tokens[i] = (i * 7919 + 3) % 250;
    llm_model *model = rig_model(path, dev);
    assert_true(model->hparams.n_vocab <= N_VOCAB_MAX);
    llm_context *ctx = context_make(model, type);
    rig_decode(ctx, tokens, N_TOK - 4, 1, logits);
    for (int i = 0; i < 4; i++)
        rig_decode(ctx, tokens + N_TOK - 4 + i, 1, 1,
                   logits + (size_t)(i + 1) * (size_t)model->hparams.n_vocab);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static void test_logits(void **state) {
    static const char *const presets[] = {"tiny-llama", "tiny-mixtral", "tiny-deepseek2"};
    static const tdm_type types[][2] = {{TDM_TYPE_F32, TDM_TYPE_F32},
                                        {TDM_TYPE_Q8_0, TDM_TYPE_F16}};
    static float expected[5 * N_VOCAB_MAX], found[5 * N_VOCAB_MAX];
    (void)state;
    for (size_t p = 0; p < sizeof presets / sizeof *presets; p++)
        for (size_t t = 0; t < 2; t++) {
            tdm_error err = {0};
            random_model_spec spec = preset_find(presets[p]);
            spec.type = types[t][0];
            const char *path = rig_file("lent.gguf");
            RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
            logits_of(path, device_open("host"), types[t][1], expected);
            for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
                logits_of(path, device_open(groups[g]), types[t][1], found);
                double nmse = rig_nmse(expected, found, 5 * (size_t)spec.n_vocab);
                if (!(nmse < 1e-6))
                    fail_msg("%s %s on %s: NMSE %g", presets[p], tdm_type_name(types[t][0]),
                             groups[g], nmse);
            }
        }
}

/* What the fallback computes is planned once too. */
static void test_steady(void **state) {
    (void)state;
    tdm_error err = {0};
    random_model_spec spec = preset_find("tiny-llama");
    spec.type = TDM_TYPE_F32;
    const char *path = rig_file("steady.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    llm_model *model = rig_model(path, device_open("slow+lazy"));
    llm_context *ctx = context_make(model, TDM_TYPE_F16);
    float *logits = malloc((size_t)spec.n_vocab * sizeof *logits);
    int32_t tokens[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    uint64_t before[TDM_COUNTER_STEADY_COUNT_];
    assert_non_null(logits);
    rig_decode(ctx, tokens, 8, 1, logits);
    rig_decode(ctx, tokens, 1, 1, logits);
    for (int i = 0; i < TDM_COUNTER_STEADY_COUNT_; i++) before[i] = tdm_counter_get((tdm_counter)i);
    for (int i = 0; i < 40; i++) rig_decode(ctx, tokens + i % 8, 1, 1, logits);
    for (int i = 0; i < TDM_COUNTER_STEADY_COUNT_; i++)
        if (tdm_counter_get((tdm_counter)i) != before[i])
            fail_msg("%s: %llu more", tdm_counter_name((tdm_counter)i),
                     (unsigned long long)(tdm_counter_get((tdm_counter)i) - before[i]));
    free(logits);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* A device that keeps next to nothing of a model can be planned for. */
static void test_report(void **state) {
    (void)state;
    tdm_error err = {0};
    random_model_spec spec = preset_find("tiny-llama");
    spec.type = TDM_TYPE_Q8_0;
    const char *path = rig_file("partly.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    llm_model *model = NULL;
    RIG_OK(llm_model_open(path, &model, &err));
    tdm_split_member member = {0};
    tdm_split_report report = {.struct_size = sizeof report,
                               .member_size = sizeof member,
                               .members = &member,
                               .capacity = 1};
    RIG_OK(llm_model_report(model, device_open("slow"), NULL, 0, 1, &report, &err));
    assert_int_equal(member.state_size, 0);
    assert_int_equal(member.weight_size, 0); /* norms and products are refused alike */
    assert_true(member.compute_size > 0);
    RIG_OK(llm_model_report(model, device_open("host"), NULL, 0, 1, &report, &err));
    assert_true(member.state_size > 0 && member.weight_size > 0);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_report),
    };
    return cmocka_run_group_tests(tests, begin, rig_end);
}
