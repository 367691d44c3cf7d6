/* SPDX-License-Identifier: MIT
 *
 * test_virtual_clock.c: a model of 100 M parameters on two cards with virtual clocks, so that the
 * time of a generated token does not depend on the machine. The plan's prediction is near that
 * time, and share = auto near the best fixed share. The group is given the rates of the cards; the
 * time also includes launches and waits, which the prediction leaves out.
 */
#include "tests/model/card_rig.h"

#include "core/runtime.h"
#include "llm/report.h"
#include "tests/model/preset.h"

enum { N_WARM = 1, N_TOKEN = 2 };

static const char *model_path;

/* The rates of the cards, and the rates that the group is given. */
typedef struct machine {
    const char *name, *exchange;
    const char *bandwidth, *arithmetic; /* of the cards */
    const char *rates;                  /* of TANDEM_TEST_RATES */
} machine;

static const machine machines[] = {
    {"equal cards", "yes", "20e9", "1e13", "20e9,1e13"},
    {"unequal cards", "yes", "30e9,10e9", "3e13,1e13", "30e9,3e13 10e9,1e13"},
    {"equal cards, plans cut", "phases", "20e9", "1e13", "20e9,1e13"},
    {"equal cards, one plan cut", "phases,yes", "20e9", "1e13", "20e9,1e13"},
    {"unequal cards, one plan cut", "yes,phases", "30e9,10e9", "3e13,1e13", "30e9,3e13 10e9,1e13"},
};

static int begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("100m");
    spec.type = TDM_TYPE_Q8_0;
    model_path = rig_file("100m.gguf");
    RIG_OK(random_model_write(&spec, model_path, NULL, NULL, NULL, &err));
    setenv("TANDEM_TEST_LINKS", "50e-6,20e-6", 1);
    return 0;
}

static int64_t clock_now(void) {
    int64_t a = card_get("c0", "clock"), b = card_get("c1", "clock");
    return a > b ? a : b;
}

typedef struct times {
    double predicted, measured; /* seconds of a generated token */
    double share;               /* of the first card */
} times;

static times token_time(const machine *m, const char *share) {
    tdm_error err = {0};
    tdm_runtime *rt = card_runtime((const tdm_option[]){{"exchange", m->exchange},
                                                        {"bandwidth", m->bandwidth},
                                                        {"arithmetic", m->arithmetic},
                                                        {"launch-ns", "2000"},
                                                        {"submission-us", "50"},
                                                        {"crossing-us", "20"},
                                                        {NULL, NULL}});
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
    tdm_split_member members[2];
    tdm_split_report report = {.struct_size = sizeof report,
                               .member_size = sizeof(tdm_split_member),
                               .members = members,
                               .capacity = 2};
    tdm_open_device *group = NULL;
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    int64_t start = 0;
    setenv("TANDEM_TEST_RATES", m->rates, 1);
    RIG_OK(card_group(rt, "d0,d1", share, NULL, &group, &err));
    card_set("c0", "clock", 1);
    card_set("c1", "clock", 1);
    RIG_OK(llm_model_open(model_path, &model, &err));
    RIG_OK(llm_model_report(model, group, &params, 1, 1, &report, &err));
    RIG_OK(llm_model_load(model, rt, &group, 1, NULL, NULL, &err));
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    for (int32_t i = 0; i < N_WARM + N_TOKEN; i++) {
        const llm_batch batch = {.tokens = &i, .n_tok = 1};
        if (i == N_WARM) start = clock_now();
        RIG_OK(llm_context_decode(ctx, &batch, &err));
    }
    times t = {report.seconds, (double)(clock_now() - start) * 1e-9 / N_TOKEN, members[0].share};
    llm_context_destroy(ctx);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
    return t;
}

static void prediction_check(const machine *m, const char *share, const times *t) {
    printf("%s, share %s (%.3f): predicted %.3f ms, measured %.3f ms\n", m->name, share, t->share,
           t->predicted * 1e3, t->measured * 1e3);
    if (!(t->predicted > 0.85 * t->measured && t->predicted < 1.15 * t->measured))
        fail_msg("%s, share %s: predicted %.3f ms, measured %.3f ms", m->name, share,
                 t->predicted * 1e3, t->measured * 1e3);
}

static void test_clock(void **state) {
    (void)state;
    static const char *const fixed[] = {"4,6", "5,5", "75,25", "8,2"};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const machine *m = &machines[i];
        double best = 0;
        for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++) {
            times t = token_time(m, fixed[k]);
            prediction_check(m, fixed[k], &t);
            if (best == 0 || t.measured < best) best = t.measured;
        }
        times t = token_time(m, "auto");
        prediction_check(m, "auto", &t);
        if (!(t.measured < 1.05 * best))
            fail_msg("%s: auto takes %.3f ms, the best share %.3f ms", m->name, t.measured * 1e3,
                     best * 1e3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clock)};
    return cmocka_run_group_tests(tests, begin, rig_end);
}
