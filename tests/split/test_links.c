/* SPDX-License-Identifier: MIT
 *
 * test_links.c: what a group measures of submissions and exchanges. A measurement that fails leaves
 * a default cost and a warning that names the members. Two groups over the same devices, each with
 * them in another order, measure at the same time.
 */
#include "tests/split/fault_rig.h"

#include "plugins/meta/meta.h"

enum { N_LAYER = 2 };

static tdm_graph *graph;

static tdm_status report_get(tdm_open_device *group, tdm_split_report *report, tdm_error *err) {
    *report =
        (tdm_split_report){.struct_size = sizeof *report, .member_size = sizeof(tdm_split_member)};
    tdm_status status = tdm_open_device_split_prepare(group, graph, err);
    return status == TDM_OK ? tdm_open_device_split_report(group, graph, report, err) : status;
}

static const meta_member *member_of(const fault_rig *rig, int d) {
    return &tdm_open_device_handle(rig->group)->members[d];
}

/* All members answer: no warning, and no cost is 0. */
static void test_measured(void **state) {
    (void)state;
    fault_rig *rig = rig_open(3, (const char *const[]){NULL, NULL, NULL}, "share=1,1,1 timeout=20");
    tdm_split_report report;
    OK(report_get(rig->group, &report, err));
    for (int d = 0; d < 3; d++) {
        assert_true(member_of(rig, d)->submit_seconds > 0);
        assert_true(member_of(rig, d)->crossing_seconds > 0);
    }
    assert_string_equal(rig->log, "");
    assert_true(report.seconds > 0);
    rig_close(rig);
}

/* `key` fails in m1's n-th call. The group is described all the same, and works. */
static void measuring_fails(const char *key, int n, const char *names, int n_submit,
                            int n_crossing) {
    fault_rig *rig = rig_open(3, (const char *const[]){NULL, NULL, NULL}, "share=1,1,1 timeout=20");
    tdm_split_report report;
    rig_set(rig, "c1", key, n);
    OK(report_get(rig->group, &report, err));
    if (rig_log_count(rig, names) != 1 || rig_log_count(rig, "\n") != 1)
        fail_msg("%s: %s", key, rig->log);
    for (int d = 0; d < 3; d++) {
        n_submit -= member_of(rig, d)->submit_seconds > 0;
        n_crossing -= member_of(rig, d)->crossing_seconds > 0;
    }
    assert_int_equal(n_submit, 0);
    assert_int_equal(n_crossing, 0);
    assert_true(report.seconds > 0);
    net loaded;
    tdm_schedule *run = NULL;
    float y[N_EMBD];
    OK(net_load(&loaded, rig->group, rig->group_scratch, N_LAYER, err));
    OK(net_schedule(&loaded, 1, &run, err));
    OK(net_run(run, 1, 3, y, err));
    tdm_schedule_destroy(run);
    tdm_mem_free(&loaded.weights);
    rig_close(rig);
}

/* Each member prepares one plan for its submission, then two for each of its pairs. */
static void test_measuring_fails(void **state) {
    (void)state;
    measuring_fails("prepare-in", 1, "member 'm1': measuring a submission failed", 2, 3);
    measuring_fails("refuse-in", 1, "member 'm1': measuring a submission failed", 2, 3);
    measuring_fails("prepare-in", 2, "members 'm0' and 'm1': measuring an exchange failed", 3, 3);
    measuring_fails("prepare-in", 5, "members 'm1' and 'm2': measuring an exchange failed", 3, 3);
    measuring_fails("refuse-in", 8, "members 'm0' and 'm1': measuring an exchange failed", 3, 3);
}

/* A lost device is no matter of costs: the error names it. */
static void test_lost(void **state) {
    (void)state;
    static const struct {
        int n;
        const char *text;
    } cases[] = {{1, "member 'm1': measuring a submission: 'c1' fell off the bus"},
                 {8, "members 'm0' and 'm1': measuring an exchange: 'c1' fell off the bus"}};
    for (int i = 0; i < 2; i++) {
        fault_rig *rig = rig_open(2, (const char *const[]){NULL, NULL}, "share=1,1 timeout=20");
        tdm_split_report report;
        tdm_error err = {0};
        rig_set(rig, "c1", "fail-in", cases[i].n);
        assert_int_equal(report_get(rig->group, &report, &err), TDM_UNAVAILABLE);
        if (strstr(err.message, cases[i].text) == NULL) fail_msg("%s", err.message);
        rig_close(rig);
    }
}

#ifdef TANDEM_SANITIZED
#define SILENT_TIMEOUT "10"
#else
#define SILENT_TIMEOUT "2"
#endif

/* A member that does not answer is waited for once. */
static void test_silent(void **state) {
    (void)state;
    fault_rig *rig =
        rig_open(3, (const char *const[]){NULL, NULL, NULL}, "share=1,1,1 timeout=" SILENT_TIMEOUT);
    tdm_split_report report;
    rig_set(rig, "c1", "silent-in", 1);
    OK(report_get(rig->group, &report, err));
    if (rig_log_count(rig, "member 'm1': measuring a submission failed") != 1 ||
        rig_log_count(rig, "\n") != 1)
        fail_msg("%s", rig->log);
    assert_true(member_of(rig, 0)->submit_seconds > 0);
    assert_true(member_of(rig, 1)->submit_seconds == 0);
    assert_true(member_of(rig, 2)->submit_seconds == 0);
    assert_true(member_of(rig, 2)->crossing_seconds == 0);
    assert_true(report.seconds > 0);
    rig_set(rig, "c1", "release", 1);
    rig_close(rig);
}

/* ---- Two groups over the same devices ---- */

#ifdef TANDEM_SANITIZED
enum { N_REPORT = 3 };
#else
enum { N_REPORT = 12 };
#endif

typedef struct measurer {
    tdm_open_device *group;
    tdm_error err;
    int n_done;
} measurer;

static void *measurer_main(void *arg) {
    measurer *m = arg;
    tdm_split_report report;
    for (; m->n_done < N_REPORT; m->n_done++)
        if (report_get(m->group, &report, &m->err) != TDM_OK) break;
    return NULL;
}

static tdm_open_device *group_open(fault_rig *rig, const char *name, const char *members) {
    tdm_open_device *dev = NULL;
    const tdm_option options[] = {{"members", members}, {"share", "1,1"}, {"timeout", "20"}};
    const tdm_device_spec spec = {name, "meta", 0, options, 3};
    OK(tdm_runtime_declare(rig->rt, &spec, err));
    OK(tdm_runtime_open(rig->rt, name, &dev, err));
    return dev;
}

/* Each group is described many times, by a thread of its own. Nothing is late. */
static void crosswise_check(fault_rig *rig, const char *const members[2]) {
    measurer measurers[2];
    pthread_t threads[2];
    memset(measurers, 0, sizeof measurers);
    for (int g = 0; g < 2; g++)
        measurers[g].group = group_open(rig, g == 0 ? "a" : "b", members[g]);
    for (int g = 0; g < 2; g++)
        assert_int_equal(pthread_create(&threads[g], NULL, measurer_main, &measurers[g]), 0);
    for (int g = 0; g < 2; g++) pthread_join(threads[g], NULL);
    for (int g = 0; g < 2; g++)
        if (measurers[g].n_done != N_REPORT)
            fail_msg("group %d: %d reports, %s", g, measurers[g].n_done, measurers[g].err.message);
    assert_string_equal(rig->log, "");
}

/* "a": c0, c1; "b": c1, c0. A CPU device runs one plan at a time, and the plans of a pair wait for
 * each other. Without claims each group gets one of the devices. */
static void test_measured_crosswise(void **state) {
    (void)state;
    fault_rig *rig = rig_declare(2, (const char *const[]){NULL, NULL}, "share=1,1");
    crosswise_check(rig, (const char *const[]){"c0,c1", "c1,c0"});
    rig_close(rig);
}

/* Groups whose first members are groups. A group is never behind an adapter of the core, so that
 * the outer group knows and claims all devices. */
static void test_nested_claims(void **state) {
    (void)state;
    fault_rig *rig = rig_declare(3, (const char *const[]){NULL, NULL, NULL}, "share=1,1,1");
    group_open(rig, "ab", "c0,c1");
    group_open(rig, "cb", "c2,c1");
    crosswise_check(rig, (const char *const[]){"ab,c2", "cb,c0"});
    for (int g = 0; g < 2; g++) {
        tdm_open_device *outer = NULL;
        OK(tdm_runtime_open(rig->rt, g == 0 ? "a" : "b", &outer, err));
        const meta_claims *claims = &tdm_open_device_handle(outer)->claims;
        assert_false(claims->is_off);
        assert_int_equal(claims->n, 3);
    }
    rig_close(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured),
        cmocka_unit_test(test_measuring_fails),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_silent),
        cmocka_unit_test(test_measured_crosswise),
        cmocka_unit_test(test_nested_claims),
    };
    setenv("TANDEM_TEST_RATES", "1e9,1e9", 1);
    setenv("TANDEM_TEST_LINKS", "measure", 1);
    graph = net_graph(1, N_LAYER);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_graph_free(graph);
    return n_failed;
}
