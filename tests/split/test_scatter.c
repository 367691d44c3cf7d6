/* SPDX-License-Identifier: MIT
 *
 * test_scatter.c: large sums of three and more members cross in two exchanges: each member sums a
 * part of the tokens, then the parts are gathered. The bits are those of one exchange, and fewer
 * bytes move.
 */
#include "tests/split/fault_rig.h"

#include "plugins/meta/meta.h"

/* Bytes that a sum in two exchanges must save. Under a sanitizer each token takes long, and fewer
 * are enough. */
#ifdef TANDEM_SANITIZED
enum { LEAST = META_SCATTER_MIN / 16 };
#else
enum { LEAST = META_SCATTER_MIN };
#endif

/* It saves two thirds of the value's bytes with three members. */
enum { N_LAYER = 2, N_MEMBER = 3, N_LONG = LEAST * 3 / 2 / (N_EMBD * 4) };

static tdm_split_report report_get(fault_rig *rig, int32_t n_tok) {
    tdm_split_report report = {.struct_size = sizeof report,
                               .member_size = sizeof(tdm_split_member)};
    tdm_graph *graph = net_graph(n_tok, N_LAYER);
    OK(tdm_open_device_split_prepare(rig->group, graph, err));
    OK(tdm_open_device_split_report(rig->group, graph, &report, err));
    tdm_graph_free(graph);
    return report;
}

static void long_run(net *loaded, float *y) {
    tdm_schedule *run = NULL;
    OK(net_schedule(loaded, N_LONG, &run, err));
    OK(net_run(run, N_LONG, 3, y, err));
    tdm_schedule_destroy(run);
}

static void scatter_check(const char *const *faults, const char *options) {
    fault_rig *rig = rig_open(N_MEMBER, faults, options);
    meta_device *meta = tdm_open_device_handle(rig->group);
    assert_int_equal(meta->scatter_min, META_SCATTER_MIN);
    meta->scatter_min = LEAST;
    const size_t size = (size_t)N_EMBD * N_LONG * sizeof(float);
    float *two = malloc(size), *one = malloc(size), *single = malloc(size);
    net loaded, alone;
    assert_true(two != NULL && one != NULL && single != NULL);
    OK(net_load(&loaded, rig->group, rig->group_scratch, N_LAYER, err));
    OK(net_load(&alone, rig->single, rig->single_scratch, N_LAYER, err));

    /* Short prompts have one exchange for each sum. */
    assert_int_equal(report_get(rig, 1).n_exchange, N_LAYER);
    assert_int_equal(report_get(rig, N_LONG - 1).n_exchange, N_LAYER);
    const tdm_split_report in_two = report_get(rig, N_LONG);
    assert_int_equal(in_two.n_exchange, 2 * N_LAYER);
    assert_int_equal(in_two.n_relayout, 0);
    long_run(&loaded, two);

    meta->scatter_min = UINT64_MAX;
    const tdm_split_report in_one = report_get(rig, N_LONG);
    assert_int_equal(in_one.n_exchange, N_LAYER);
    long_run(&loaded, one);
    assert_memory_equal(two, one, size);
    long_run(&alone, single);
    double error = nmse(two, single, size / sizeof(float));
    if (!(error < 1e-10)) fail_msg("nmse %g", error);
    /* Reads and writes that predictions count: 5 times the value in one exchange, 2 1/3 + 2 1/3
     * times in two. */
    const double saved = 1e9 * (in_one.exchange_seconds - in_two.exchange_seconds +
                                N_LAYER * meta->members[0].crossing_seconds);
    const double third = N_LAYER * (double)size / 3;
    assert_true(saved > 0.99 * third && saved < 1.01 * third);

    tdm_mem_free(&loaded.weights);
    tdm_mem_free(&alone.weights);
    free(two);
    free(one);
    free(single);
    rig_close(rig);
}

static void test_scatter(void **state) {
    (void)state;
    scatter_check((const char *const[]){NULL, NULL, NULL}, "share=1,1,1 timeout=20");
    scatter_check((const char *const[]){"exchange=no", NULL, NULL}, "share=3,1,2 timeout=20");
}

/* Two members save nothing, and neither does a sum with one sender. */
static void test_not_scattered(void **state) {
    (void)state;
    fault_rig *rig = rig_open(2, (const char *const[]){NULL, NULL}, "share=1,1 timeout=20");
    ((meta_device *)tdm_open_device_handle(rig->group))->scatter_min = 0;
    assert_int_equal(report_get(rig, N_LONG).n_exchange, N_LAYER);
    rig_close(rig);
    rig = rig_open(3, (const char *const[]){NULL, NULL, NULL}, "share=1,0,0 timeout=20");
    ((meta_device *)tdm_open_device_handle(rig->group))->scatter_min = 0;
    assert_int_equal(report_get(rig, N_LONG).n_exchange, 0);
    rig_close(rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_not_scattered),
    };
    setenv("TANDEM_TEST_RATES", "1e9,1e12", 1);
    setenv("TANDEM_TEST_LINKS", "1e-5,1e-5", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
