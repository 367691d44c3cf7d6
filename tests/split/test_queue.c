/* SPDX-License-Identifier: MIT
 *
 * test_queue.c: a group's queue (plugins/meta/exec/queue.c) over every kind of member: with
 * exchanges in its plan or on the host, with and without memory that the host can touch;
 * alternating shapes; no allocations in steady use; and a long run with delays, of
 * TANDEM_SOAK_STEPS steps (the full length: 100000).
 */
#include <malloc.h>
#include <time.h>

#include "core/counters.h"
#include "plugins/meta/meta.h"
#include "tests/split/fault_rig.h"

enum { N_LAYER = 3, SHORT = 1, LONG = 7 };

/* The group's results against the one device's. */
static void compare(tdm_schedule *group, tdm_schedule *single, int32_t n_tok, uint32_t seed) {
    float a[N_EMBD * LONG], b[N_EMBD * LONG];
    size_t n = (size_t)N_EMBD * (size_t)n_tok;
    memset(a, 0x7f, sizeof a);
    OK(net_run(group, n_tok, seed, a, err));
    OK(net_run(single, n_tok, seed, b, err));
    double error = nmse(a, b, n);
    if (!(error < 1e-10)) fail_msg("%d tokens, seed %u: nmse %g", n_tok, seed, error);
}

typedef struct pair {
    net group, single;
    tdm_schedule *groups[2], *singles[2]; /* SHORT, LONG */
} pair;

static void pair_open(fault_rig *rig, pair *p) {
    OK(net_load(&p->group, rig->group, rig->group_scratch, N_LAYER, err));
    OK(net_load(&p->single, rig->single, rig->single_scratch, N_LAYER, err));
    for (int i = 0; i < 2; i++) {
        OK(net_schedule(&p->group, i == 0 ? SHORT : LONG, &p->groups[i], err));
        OK(net_schedule(&p->single, i == 0 ? SHORT : LONG, &p->singles[i], err));
    }
}

static void pair_close(pair *p) {
    for (int i = 0; i < 2; i++) {
        tdm_schedule_destroy(p->groups[i]);
        tdm_schedule_destroy(p->singles[i]);
    }
    tdm_mem_free(&p->group.weights);
    tdm_mem_free(&p->single.weights);
}

static void check(int32_t n_member, const char *const *faults, const char *options, int n_warning) {
    fault_rig *rig = rig_open(n_member, faults, options);
    pair p;
    pair_open(rig, &p);
    for (uint32_t s = 0; s < 6; s++) {
        compare(p.groups[0], p.singles[0], SHORT, s);
        compare(p.groups[1], p.singles[1], LONG, s);
    }
    if (rig_log_count(rig, "\n") != n_warning)
        fail_msg("%d warnings expected:\n%s", n_warning, rig->log);
    pair_close(&p);
    rig_close(rig);
}

static void test_in_plan(void **state) {
    (void)state;
    check(2, (const char *const[]){NULL, NULL}, "share=1,1", 0);
    check(3, (const char *const[]){NULL, NULL, NULL}, "share=5,2,1", 0);
}

static void test_through_host(void **state) {
    (void)state;
    check(2, (const char *const[]){"exchange=no", "exchange=no"}, "share=3,1", 0);
    check(2, (const char *const[]){"exchange=no import=no", "exchange=no"}, "share=1,1", 0);
    check(2,
          (const char *const[]){"exchange=no host-pointer=no import=no", "exchange=no import=no"},
          "share=1,2", 0);
}

static void test_mixed(void **state) {
    (void)state;
    check(3, (const char *const[]){NULL, "exchange=no", NULL}, "share=1,2,1", 0);
    check(3, (const char *const[]){"exchange=no import=no", NULL, "host-pointer=no"}, "share=1,1,1",
          0);
    /* Reports that it exchanges, but cannot read the host's memory. */
    check(2, (const char *const[]){NULL, "import=no"}, "share=1,1", 1);
}

static void test_few(void **state) {
    (void)state;
    check(1, (const char *const[]){NULL}, "share=1", 0);
    check(1, (const char *const[]){"exchange=no import=no host-pointer=no"}, "share=1", 0);
    check(3, (const char *const[]){NULL, NULL, "exchange=no"}, "share=1,0,0", 0);
    check(3, (const char *const[]){NULL, NULL, "exchange=no"}, "share=0,1,3", 0);
}

static void test_wire_types(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        static const char *const options[] = {"share=1,1 reduce-type=f16",
                                              "share=1,1 reduce-type=bf16",
                                              "share=2,1 reduce-type=q8_0"};
        fault_rig *rig =
            rig_open(2, (const char *const[]){NULL, i == 1 ? "exchange=no" : NULL}, options[i]);
        pair p;
        float a[N_EMBD * LONG], b[N_EMBD * LONG];
        pair_open(rig, &p);
        OK(net_run(p.groups[1], LONG, 5, a, err));
        OK(net_run(p.singles[1], LONG, 5, b, err));
        double error = nmse(a, b, N_EMBD * LONG);
        assert_true(error > 0 && error < 1e-3);
        pair_close(&p);
        rig_close(rig);
    }
}

/* Neither plans nor memory in steady use, the two shapes taking turns. */
static void test_steady(void **state) {
    (void)state;
    fault_rig *rig = rig_open(2, (const char *const[]){NULL, "exchange=no"}, "share=1,1");
    pair p;
    pair_open(rig, &p);
    for (uint32_t s = 0; s < 4; s++)
        compare(p.groups[s % 2], p.singles[s % 2], s % 2 ? LONG : SHORT, s);
    uint64_t planned = tdm_counter_get(TDM_COUNTER_GRAPHS_PLANNED);
    uint64_t allocated = tdm_counter_get(TDM_COUNTER_ALLOCATIONS);
    for (uint32_t s = 0; s < 40; s++)
        compare(p.groups[s % 2], p.singles[s % 2], s % 2 ? LONG : SHORT, s);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_GRAPHS_PLANNED), planned);
    assert_int_equal(tdm_counter_get(TDM_COUNTER_ALLOCATIONS), allocated);
    pair_close(&p);
    rig_close(rig);
}

/* A device and a group that has it are both members. The plan of the device is cut at exchanges: a
 * part that waits in its plan would keep the device from the group that it waits for. */
static void test_device_inside_another(void **state) {
    static const tdm_option inner[] = {{"members", "c0,c1"}, {"share", "1,1"}, {"timeout", "20"}};
    static const tdm_option outer[] = {{"members", "ab,c0"}, {"share", "1,1"}, {"timeout", "20"}};
    const tdm_device_spec specs[2] = {{"ab", "meta", 0, inner, 3}, {"outer", "meta", 0, outer, 3}};
    fault_rig *rig = rig_declare(2, (const char *const[]){NULL, NULL}, "share=1,1");
    pair p;
    (void)state;
    for (int i = 0; i < 2; i++) OK(tdm_runtime_declare(rig->rt, &specs[i], err));
    OK(tdm_runtime_open(rig->rt, "outer", &rig->group, err));
    OK(tdm_scratch_create(rig->rt, &rig->group, 1, &rig->group_scratch, err));
    const meta_member *members = tdm_open_device_handle(rig->group)->members;
    assert_int_equal(members[0].exchange, META_EXCHANGE_BY_HOST);
    assert_int_not_equal(members[1].exchange, META_EXCHANGE_IN_PLAN);
    pair_open(rig, &p);
    for (uint32_t s = 0; s < 4; s++)
        compare(p.groups[s % 2], p.singles[s % 2], s % 2 ? LONG : SHORT, s);
    assert_string_equal(rig->log, "");
    pair_close(&p);
    rig_close(rig);
}

/* Two inner groups with the same devices could wait for each other: the outer group is refused, and
 * the message names both and a device. */
static void test_device_inside_two(void **state) {
    static const tdm_option inner[2][2] = {{{"members", "c0,c1"}, {"share", "1,1"}},
                                           {{"members", "c1,c0"}, {"share", "1,1"}}};
    static const tdm_option outer[] = {{"members", "ab,ba"}, {"share", "1,1"}};
    const tdm_device_spec specs[3] = {{"ab", "meta", 0, inner[0], 2},
                                      {"ba", "meta", 0, inner[1], 2},
                                      {"outer", "meta", 0, outer, 2}};
    fault_rig *rig = rig_declare(2, (const char *const[]){NULL, NULL}, "share=1,1");
    (void)state;
    for (int i = 0; i < 3; i++) OK(tdm_runtime_declare(rig->rt, &specs[i], err));
    tdm_error refusal = {0};
    assert_int_equal(tdm_runtime_open(rig->rt, "outer", &rig->group, &refusal), TDM_UNSUPPORTED);
    assert_non_null(
        strstr(refusal.message, "members 'ab' and 'ba' are groups that both contain device 'c"));
    rig_close(rig);
}

/* Delays at random in every member, shapes in no order: no stall, nothing wrong, nothing grows. */
static void test_soak(void **state) {
    const char *text = getenv("TANDEM_SOAK_STEPS");
    int64_t n_step = text != NULL ? atoll(text) : 1500;
    uint64_t random = test_seed("soak", (uint64_t)time(NULL));
    (void)state;
    print_message("%lld steps; TANDEM_SOAK_STEPS sets how many\n", (long long)n_step);
    fault_rig *rig =
        rig_open(3, (const char *const[]){NULL, "exchange=no", NULL}, "share=2,1,1 timeout=60");
    pair p;
    float expected[2][N_EMBD * LONG], y[N_EMBD * LONG];
    pair_open(rig, &p);
    OK(net_run(p.groups[0], SHORT, 1, expected[0], err));
    OK(net_run(p.groups[1], LONG, 1, expected[1], err));
    for (int i = 0; i < 3; i++)
        rig_set(rig, (const char *const[]){"c0", "c1", "c2"}[i], "delay-us", 800);
    uint64_t allocated = tdm_counter_get(TDM_COUNTER_ALLOCATIONS);
    size_t held = 0;
    for (int64_t i = 0; i < n_step; i++) {
        if (i == n_step / 4) held = mallinfo2().uordblks;
        int shape = random_u32_below(&random, 3) == 0;
        OK(net_run(p.groups[shape], shape ? LONG : SHORT, 1, y, err));
        if (memcmp(y, expected[shape], (size_t)N_EMBD * (shape ? LONG : SHORT) * sizeof *y) != 0)
            fail_msg("step %lld gave another result", (long long)i);
    }
    assert_int_equal(tdm_counter_get(TDM_COUNTER_ALLOCATIONS), allocated);
    /* The three quarters of the steps that followed left nothing behind, on whatever heap. */
    assert_true(mallinfo2().uordblks <= held + 4096);
    pair_close(&p);
    rig_close(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_plan),
        cmocka_unit_test(test_through_host),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_few),
        cmocka_unit_test(test_wire_types),
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_device_inside_another),
        cmocka_unit_test(test_device_inside_two),
        cmocka_unit_test(test_soak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
