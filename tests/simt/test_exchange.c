/* SPDX-License-Identifier: MIT
 *
 * test_exchange.c: exchanges inside the plans of emulated CUDA and HIP devices: kernels that wait
 * for other members. A token is one submission for each member; the bits are those of exchanges in
 * phases; a lost member, and one that does not go on, end the waits of the others.
 *
 *     test_exchange CUDA_DRIVER HIP_DRIVER
 */
#include <dlfcn.h>

#include "core/runtime.h"
#include "llm/report.h"
#include "tests/model/preset.h"
#include "tests/simt/vendors.h"

enum { N_PROMPT = 19, N_TOKEN = 5, N_STEADY = 4, LAUNCH_FAILED = 719 };

/* What a library of the emulated driver offers beside the driver's functions. */
typedef struct emulated {
    uint64_t (*submissions)(void);
    void (*fail_call)(const char *name, long in, int result);
    void (*hold)(bool hold);
} emulated;
static emulated nvidia, amd;

static void *symbol_of(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) fail_msg("%s", dlerror());
    return symbol;
}

static emulated emulated_open(const char *path) {
    emulated e;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol;
    if (library == NULL) fail_msg("%s", dlerror());
    symbol = symbol_of(library, "tandem_simt_submissions");
    memcpy(&e.submissions, &symbol, sizeof symbol);
    symbol = symbol_of(library, "tandem_simt_fail");
    memcpy(&e.fail_call, &symbol, sizeof symbol);
    symbol = symbol_of(library, "tandem_simt_hold");
    memcpy(&e.hold, &symbol, sizeof symbol);
    return e;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static void device_declare(const char *name, const char *plugin, const char *driver,
                           const char *exchange) {
    const tdm_option options[] = {{"driver", driver}, {"exchange", exchange}};
    const tdm_device_spec spec = {name, plugin, 0, options, 2};
    tdm_runtime_declare(rig_runtime(), &spec, NULL); /* may be there already */
}

/* A group of CUDA, HIP and the CPU whose cards exchange in these ways. */
static tdm_open_device *group_open(const char *cuda, const char *hip, const tdm_option *extra) {
    char name[64], n[24], a[24], members[64];
    tdm_error err = {0};
    tdm_open_device *dev = NULL;
    snprintf(n, sizeof n, "n-%s", cuda);
    snprintf(a, sizeof a, "a-%s", hip);
    device_declare(n, "cuda", vendor_cuda_driver, cuda);
    device_declare(a, "hip", vendor_hip_driver, hip);
    vendor_device(VENDOR_CPU);
    snprintf(members, sizeof members, "%s, %s, cpu", n, a);
    snprintf(name, sizeof name, "%s %s %s", cuda, hip, extra->value);
    const tdm_option options[] = {{"members", members}, {"share", "2, 1, 1"}, *extra};
    const tdm_device_spec spec = {name, "meta", 0, options, 3};
    RIG_OK(tdm_runtime_declare(rig_runtime(), &spec, &err));
    RIG_OK(tdm_runtime_open(rig_runtime(), name, &dev, &err));
    return dev;
}

/* Logits of a prompt's tokens and of some more, one at a time. */
static float *logits_of(const char *path, tdm_open_device *dev, size_t *size_out) {
    tdm_error err = {0};
    llm_model *model = vendor_model(path, dev);
    llm_context *ctx = vendor_context(model);
    const size_t n_vocab = (size_t)model->hparams.n_vocab;
    int32_t tokens[N_PROMPT];
    bool wanted[N_PROMPT];
    float *logits = calloc((N_PROMPT + N_TOKEN) * n_vocab, sizeof *logits), *at = logits;
    assert_non_null(logits);
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = vendor_token(i, (int)n_vocab), wanted[i] = true;
    const llm_batch batch = {.tokens = tokens, .wanted = wanted, .n_tok = N_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    for (int i = 0; i < N_PROMPT; i++, at += n_vocab)
        memcpy(at, llm_context_logits(ctx, i), n_vocab * sizeof *at);
    for (int i = 0; i < N_TOKEN; i++, at += n_vocab) {
        RIG_OK(vendor_token_decode(ctx, N_PROMPT + i, &err));
        memcpy(at, llm_context_logits(ctx, 0), n_vocab * sizeof *at);
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
    *size_out = (N_PROMPT + N_TOKEN) * n_vocab * sizeof *logits;
    return logits;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void same_bits(const char *preset, tdm_type type, const tdm_option *extra) {
    static const char *const ways[][2] = {{"plan", "plan"}, {"plan", "phases"}, {"phases", "plan"}};
    random_model_spec spec = preset_find(preset);
    spec.type = type;
    const char *path = preset_file(preset, &spec);
    size_t size = 0, size_in_phases = 0;
    float *want = logits_of(path, group_open("phases", "phases", extra), &size_in_phases);
    for (size_t w = 0; w < (type == TDM_TYPE_Q8_0 ? 3 : 1); w++) {
        float *found = logits_of(path, group_open(ways[w][0], ways[w][1], extra), &size);
        assert_int_equal(size, size_in_phases);
        if (memcmp(found, want, size) != 0)
            fail_msg("%s, %s = %s, %s and %s: not the bits of phases", preset, extra->key,
                     extra->value, ways[w][0], ways[w][1]);
        free(found);
    }
    free(want);
}

/* Sums on the wire in f32, f16 and q8_0, gathers, routes of experts, partial attention. */
static void test_same_bits(void **state) {
    (void)state;
    same_bits("tiny-llama", TDM_TYPE_Q8_0, &(const tdm_option){"reduce-type", "f32"});
    same_bits("tiny-llama", TDM_TYPE_Q4_0, &(const tdm_option){"reduce-type", "q8_0"});
    same_bits("tiny-mixtral", TDM_TYPE_Q4_0, &(const tdm_option){"experts", "whole"});
    same_bits("tiny-deepseek2", TDM_TYPE_Q4_0, &(const tdm_option){"reduce-type", "f16"});
}

/* A token in steady state: one submission for a member that exchanges in its plan; in phases one
 * more for each exchange. */
static void test_submissions(void **state) {
    (void)state;
    static const struct {
        const char *cuda, *hip;
    } cases[] = {{"plan", "plan"}, {"phases", "plan"}, {"auto", "phases"}};
    const random_model_spec spec = preset_find("tiny-llama");
    const char *path = preset_file("tiny-llama", &spec);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        tdm_error err = {0};
        tdm_split_report report = {
            .struct_size = sizeof report, .member_size = sizeof(tdm_split_member), .is_brief = 1};
        tdm_open_device *group =
            group_open(cases[c].cuda, cases[c].hip, &(const tdm_option){"split", "tensor"});
        llm_model *model = vendor_model(path, group);
        const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
        RIG_OK(llm_model_report(model, group, &params, 1, 1, &report, &err));
        assert_true(report.n_exchange > 1);
        llm_context *ctx = vendor_context(model);
        for (int i = 0; i < 2; i++) RIG_OK(vendor_token_decode(ctx, i, &err));
        const uint64_t n = nvidia.submissions(), a = amd.submissions();
        for (int i = 0; i < N_STEADY; i++) RIG_OK(vendor_token_decode(ctx, 2 + i, &err));
        const bool n_is_cut = strcmp(cases[c].cuda, "phases") == 0;
        const bool a_is_cut = strcmp(cases[c].hip, "phases") == 0;
        const int cut = 1 + report.n_exchange;
        assert_int_equal(nvidia.submissions() - n, N_STEADY * (n_is_cut ? cut : 1));
        assert_int_equal(amd.submissions() - a, N_STEADY * (a_is_cut ? cut : 1));
        llm_context_destroy(ctx);
        llm_model_close(model);
    }
}

/* HIP's streams are held while CUDA's kernel waits for that member: the group fails after its
 * timeout and names the member, the kernel ends, and the next run is right. */
static void test_late(void **state) {
    (void)state;
    const random_model_spec spec = preset_find("tiny-llama");
    const char *path = preset_file("tiny-llama", &spec);
    tdm_error err = {0};
    llm_model *model =
        vendor_model(path, group_open("plan", "plan", &(const tdm_option){"timeout", "1"}));
    llm_context *ctx = vendor_context(model);
    RIG_OK(vendor_token_decode(ctx, 0, &err));
    amd.hold(true);
    assert_int_equal(vendor_token_decode(ctx, 1, &err), TDM_DEADLINE_EXCEEDED);
    amd.hold(false);
    if (strstr(err.message, "a-plan") == NULL) fail_msg("no member in '%s'", err.message);
    llm_context_destroy(ctx);
    vendor_wait_usable(model);
    llm_model_close(model);
}

/* HIP's device is lost by a submission, while CUDA's kernel waits for it. CUDA's device goes on. */
static void test_lost(void **state) {
    (void)state;
    const random_model_spec spec = preset_find("tiny-llama");
    const char *path = preset_file("tiny-llama", &spec);
    tdm_error err = {0};
    llm_model *model =
        vendor_model(path, group_open("plan", "auto", &(const tdm_option){"timeout", "20"}));
    llm_context *ctx = vendor_context(model);
    RIG_OK(vendor_token_decode(ctx, 0, &err));
    amd.fail_call("graph_launch", 1, LAUNCH_FAILED);
    assert_int_equal(vendor_token_decode(ctx, 1, &err), TDM_UNAVAILABLE);
    if (strstr(err.message, "a-auto") == NULL && strstr(err.message, "hip0") == NULL)
        fail_msg("no device in '%s'", err.message);
    llm_context_destroy(ctx);
    llm_model_close(model);
    tdm_open_device *alone = NULL;
    RIG_OK(tdm_runtime_open(rig_runtime(), "n-plan", &alone, &err));
    model = vendor_model(path, alone);
    ctx = vendor_context(model);
    RIG_OK(vendor_token_decode(ctx, 0, &err));
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* Two members that open one card are refused, unless allow-duplicate says that this is meant. */
static void test_duplicates(void **state) {
    (void)state;
    static const char *const names[] = {"twice", "twice-meant"};
    device_declare("n-plan", "cuda", vendor_cuda_driver, "plan");
    device_declare("n-phases", "cuda", vendor_cuda_driver, "phases");
    for (size_t i = 0; i < 2; i++) {
        tdm_error err = {0};
        tdm_open_device *dev = NULL;
        const tdm_option options[] = {{"members", "n-plan, n-phases"},
                                      {"share", "1, 1"},
                                      {"allow-duplicate", i == 0 ? "no" : "yes"}};
        const tdm_device_spec spec = {names[i], "meta", 0, options, 3};
        RIG_OK(tdm_runtime_declare(rig_runtime(), &spec, &err));
        const tdm_status status = tdm_runtime_open(rig_runtime(), names[i], &dev, &err);
        assert_int_equal(status, i == 0 ? TDM_INVALID_ARGUMENT : TDM_OK);
        if (i == 0 && strstr(err.message, "'n-plan' (cuda) and 'n-phases' (cuda) are the same card "
                                          "at 0000:c0:00.0; leave one of them out") == NULL)
            fail_msg("%s", err.message);
    }
}

static int exchange_begin(void **state) {
    nvidia = emulated_open(vendor_cuda_driver);
    amd = emulated_open(vendor_hip_driver);
    setenv("TANDEM_TEST_RATES", "4e11,4e12", 1);
    setenv("TANDEM_TEST_LINKS", "1e-6,1e-6", 1);
    return rig_begin(state);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_submissions),
        cmocka_unit_test(test_late),      cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_lost), /* last: the emulated HIP device stays lost */
    };
    if (argc != 3) return 2;
    vendor_cuda_driver = argv[1];
    vendor_hip_driver = argv[2];
    return cmocka_run_group_tests(tests, exchange_begin, rig_end);
}
