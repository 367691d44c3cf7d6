/* SPDX-License-Identifier: MIT
 *
 * test_random_plans.c: plans of random graphs: the checker accepts them, each barrier is needed,
 * and running them with any order between barriers gives what the steps give one after the other.
 * TANDEM_SEED and TANDEM_CASES (environment) choose the graphs.
 *
 * Compiled twice: with stub emitters (stub_ops.h), which take every op, and with those of the
 * plugins (TANDEM_REAL_OPS), where a graph has a plan exactly when each of its nodes is supported.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu/plan_check.h"
#include "tests/gpu/replay.h"
#ifndef TANDEM_REAL_OPS
#include "tests/gpu/stub_ops.h"
#endif
#include "plugins/gpu/layout/page.h"
#include "tests/split/random_graph.h"
#include "tests/support/graph_print.h"

static tdm_error error, *err = &error;

/* A sanitizer finds faults of memory in the first graphs already. */
#ifdef TANDEM_SANITIZED
enum { DEFAULT_CASES = 60 };
#else
enum { DEFAULT_CASES = 500 };
#endif

static const gpu_target target = {.name = "test",
                                  .subgroup_min = 8,
                                  .subgroup_max = 8,
                                  .max_group_size = 1024,
                                  .max_grid = {65535, 65535, 65535},
                                  .shared_size = 16384};

static tdm_status page_size(void *context, const tdm_kv_desc *desc, uint64_t *size_out,
                            tdm_error *e) {
    (void)context;
    return gpu_page_size(&target, desc, size_out, e);
}

#ifdef TANDEM_REAL_OPS
static bool is_refused(const tdm_graph *graph) {
    for (int32_t i = 0; i < graph->n_node; i++)
        if (gpu_plan_supports(&target, graph, i, err) != TDM_OK) return true;
    return false;
}

static void ops_choose(uint64_t seed) {
    (void)seed;
}
#else
static bool is_refused(const tdm_graph *graph) {
    (void)graph;
    return false;
}

static void ops_choose(uint64_t seed) {
    stub_seed = seed % 4 == 0 ? 0 : seed;
    stub_fusing = seed % 3 == 0 ? STUB_FUSE_NONE : seed % 3 == 1 ? STUB_FUSE_SOME : STUB_FUSE_ALL;
}
#endif

static void failed(uint64_t seed, const tdm_graph *graph, const char *what) {
    char *text = graph_print(graph);
    print_message("%s\n", text == NULL ? "" : text);
    free(text);
    fail_msg("graph of seed %llu: %s: %s", (unsigned long long)seed, what, error.message);
}

/* Totals, for the test's output and last checks. */
static struct { int n_plan, n_refused, n_step, n_barrier, n_reordered, n_shared; } seen;

static void barriers_remove(gpu_plan *plan, uint64_t seed, const tdm_graph *graph) {
    for (int32_t i = 0; i < plan->n_step; i++) {
        seen.n_reordered += plan->steps[i].order != i;
        if (!plan->steps[i].has_barrier) continue;
        seen.n_barrier++;
        plan->steps[i].has_barrier = false;
        tdm_status status = gpu_plan_check(plan, err);
        plan->steps[i].has_barrier = true;
        if (status == TDM_OK) {
            snprintf(error.message, sizeof error.message, "before step %d", (int)i);
            failed(seed, graph, "a barrier is not needed");
        }
    }
}

static void graph_check(const tdm_graph *graph, uint64_t seed) {
    gpu_plan *plan = NULL;
    uint64_t area_sum = 0;
    bool is_refusal_due = is_refused(graph);
    ops_choose(seed);
    memset(&error, 0, sizeof error);
    seen.n_refused += is_refusal_due;
    if (is_refusal_due) {
        if (gpu_plan_create(&target, graph, &plan, err) != TDM_UNSUPPORTED)
            failed(seed, graph, "a plan for a graph with an unsupported node");
        return;
    }
    if (gpu_plan_create(&target, graph, &plan, err) != TDM_OK) failed(seed, graph, "no plan");
    if (gpu_plan_check(plan, err) != TDM_OK) failed(seed, graph, "a wrong plan");
    uint64_t want = replay(plan, REPLAY_EMITTED, seed);
    for (uint64_t i = 1; i <= 3; i++)
        if (replay(plan, REPLAY_PLANNED, seed + i) != want)
            failed(seed, graph, "other results than the steps one after the other");
    barriers_remove(plan, seed, graph);
    for (int32_t i = 0; i < plan->n_step; i++)
        if (plan->steps[i].operand[0].space == GPU_SPACE_SCRATCH)
            area_sum += plan->steps[i].operand[0].size;
    seen.n_plan++;
    seen.n_step += plan->n_step;
    seen.n_shared += plan->scratch_size < area_sum;
    gpu_plan_destroy(plan);
}

static void test_random_plans(void **state) {
    const char *text = getenv("TANDEM_CASES");
    const uint64_t seed = test_seed("random plans", 1);
    const int n_case = text != NULL ? atoi(text) : DEFAULT_CASES;
    static choices c;
    (void)state;
    for (int i = 0; i < n_case; i++) {
        random_case facts;
        tdm_graph *graph = NULL;
        choices_begin(&c, seed + (uint64_t)i);
        if (random_graph_make(&c, 0, page_size, NULL, &facts, &graph, err) != TDM_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed + (unsigned)i, error.message);
        graph_check(graph, seed + (uint64_t)i);
        tdm_graph_free(graph);
        for (int kind = 0; kind < RANDOM_UPKEEP_COUNT_ && facts.n_state > 0; kind++) {
            if (random_upkeep_make(&facts, (random_upkeep)kind, 0, page_size, NULL, &graph, err) !=
                TDM_OK)
                fail_msg("seed %llu: %s", (unsigned long long)seed + (unsigned)i, error.message);
            graph_check(graph, seed + (uint64_t)i);
            tdm_graph_free(graph);
        }
    }
    printf(
        "%d plans, %d refused, %d steps, %d of them not in emission order, %d barriers, %d plans "
        "share scratch\n",
        seen.n_plan, seen.n_refused, seen.n_step, seen.n_reordered, seen.n_barrier, seen.n_shared);
    /* Random graphs hold nothing that the emitters refuse. */
    assert_int_equal(seen.n_refused, 0);
    assert_true(seen.n_reordered > 2 * n_case && seen.n_barrier > 2 * n_case);
    assert_true(seen.n_shared > n_case / 5);
}

/* Results of the replay differ where a barrier is missing: the comparison can fail. */
static void test_replay_can_fail(void **state) {
    static choices c;
    random_case facts;
    tdm_graph *graph = NULL;
    gpu_plan *plan = NULL;
    int n_wrong = 0, n_tried = 0;
    (void)state;
    for (uint64_t seed = 1; n_tried <= 100; seed++) {
        choices_begin(&c, seed);
        assert_int_equal(random_graph_make(&c, 0, page_size, NULL, &facts, &graph, err), TDM_OK);
        if (is_refused(graph)) {
            tdm_graph_free(graph);
            continue;
        }
        assert_int_equal(gpu_plan_create(&target, graph, &plan, err), TDM_OK);
        uint64_t want = replay(plan, REPLAY_EMITTED, seed);
        for (int32_t i = 0; i < plan->n_step; i++) {
            if (!plan->steps[i].has_barrier) continue;
            bool is_wrong = false;
            plan->steps[i].has_barrier = false;
            for (uint64_t k = 0; k < 8; k++)
                is_wrong |= replay(plan, REPLAY_PLANNED, seed + k) != want;
            plan->steps[i].has_barrier = true;
            n_tried++;
            n_wrong += is_wrong;
        }
        gpu_plan_destroy(plan);
        tdm_graph_free(graph);
    }
    /* Some steps lead to no output. */
    printf("%d of %d barriers show in the results when removed\n", n_wrong, n_tried);
    assert_true(n_wrong > n_tried / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans),
        cmocka_unit_test(test_replay_can_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
