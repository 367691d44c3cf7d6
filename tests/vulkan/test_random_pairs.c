/* SPDX-License-Identifier: MIT
 *
 * test_random_pairs.c: random graphs on a Vulkan device give what they give on the CPU's reference
 * path, and with fused nodes what they give without (option test-limits). Drivers that run on the
 * processor are taken too.
 *
 *     TANDEM_SEED=N    the first case's seed (each case has the next)
 *     TANDEM_CASES=N   how many of each pair. Few by default: drivers compile kernels for each graph
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/split/trial.h"

static const tdm_option cpu_options[] = {{"path", "reference"}, {"threads", "1"}};
static const tdm_option fused_options[] = {{"allow-cpu", "yes"}};
static const tdm_option unfused_options[] = {{"allow-cpu", "yes"}, {"test-limits", "fuse=no"}};

static const tdm_device_spec cpu = {"", "cpu", 0, cpu_options, 2};
static const tdm_device_spec fused = {"", "vulkan", 0, fused_options, 1};
static const tdm_device_spec unfused = {"", "vulkan", 0, unfused_options, 2};

/* Ops of groups have no place here. */
static const group_topology of_pairs = {.path = "reference",
                                        .split = "tensor",
                                        .attention = "heads",
                                        .experts = "hidden",
                                        .reduce_type = "f32",
                                        .check = "off"};

static choices graph;
static const group_topology *topology;

static bool fails(choices *c, void *context) {
    trial_result *result = context;
    trial_result now;
    group_rig *rig = NULL;
    tdm_error err = {0};
    if (group_rig_open(topology, &rig, &err) != TDM_OK) return false;
    trial_run(rig, topology, c, 0, &now);
    group_rig_close(rig);
    if (now.why[0] != '\0') *result = now;
    return now.why[0] != '\0';
}

/* Prints the smallest failing case. */
static void report(uint64_t seed, trial_result *result) {
    enum { SECONDS = 20 };
    printf("seed %llu: %s\n", (unsigned long long)seed, result->why);
    choices_shrink(&graph, fails, result, SECONDS);
    char *text = trial_print(&graph);
    printf("smallest failing case:\n%s  %s\n", text != NULL ? text : "", result->why);
    free(text);
}

static void pair_run(const char *what, const tdm_device_spec *one, const tdm_device_spec *other) {
    const char *text = getenv("TANDEM_CASES");
    const int n_case = text != NULL ? atoi(text) : 5;
    const uint64_t first = test_seed(what, 1);
    group_topology t = of_pairs;
    group_rig *rig = NULL;
    tdm_error err = {0};
    int n_ill_posed = 0, n_node = 0;
    t.one = one;
    t.other = other;
    topology = &t;
    if (group_rig_open(&t, &rig, &err) != TDM_OK) {
        if (err.status != TDM_NOT_FOUND) fail_msg("%s", err.message);
        print_message("no Vulkan device: %s\n", err.message);
        skip();
    }
    for (int i = 0; i < n_case; i++) {
        trial_result result;
        choices_begin(&graph, first + (uint64_t)i);
        trial_run(rig, &t, &graph, TRIAL_PARTITIONS * i, &result);
        n_ill_posed += result.is_ill_posed;
        n_node += result.n_node;
        if (result.why[0] == '\0') continue;
        group_rig_close(rig);
        report(first + (uint64_t)i, &result);
        fail_msg("%s differ", what);
    }
    group_rig_close(rig);
    printf("%s: %d graphs of %d nodes, %d of them ill-posed\n", what, n_case, n_node, n_ill_posed);
    assert_true(n_ill_posed * 5 <= n_case);
}

static void test_against_cpu(void **state) {
    (void)state;
    pair_run("CPU and Vulkan", &cpu, &unfused);
}

static void test_fused(void **state) {
    (void)state;
    pair_run("single and fused nodes", &unfused, &fused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_cpu),
        cmocka_unit_test(test_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
