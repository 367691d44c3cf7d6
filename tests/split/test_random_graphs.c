/* SPDX-License-Identifier: MIT
 *
 * test_random_graphs.c: random graphs on random groups give what one device gives.
 *
 * Cases come in blocks that share a group, which so lives through graphs of every shape. A case
 * that fails is run alone, then made smaller until nothing can be left out, and printed with its
 * group.
 *
 *     TANDEM_SEED=N    the first case's seed (each case has the next); "random": by the clock
 *     TANDEM_CASES=N   how many; a block begins at every 25th, under a sanitizer at every 10th.
 *                      TANDEM_DEFAULT_CASES is what the build gives
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/split/trial.h"

enum { SHRINK_SECONDS = 40 };

/* A block of cases shares a group. Under a sanitizer a block has fewer cases, so that as many
 * groups run in less time. */
#ifdef TANDEM_SANITIZED
enum { BLOCK = 10, DEFAULT_CASES = 120 };
#else
enum { BLOCK = 25, DEFAULT_CASES = 10000 };
#endif

static uint64_t first_seed = 20261120;
static uint64_t n_case = DEFAULT_CASES;
static volatile uint64_t current_seed;

/* Prints where a crash happened. Uses only functions that a signal handler may call. */
static void on_crash(int signal_number) {
    char text[64] = "crashed in the case of seed ", digits[24];
    uint64_t seed = current_seed;
    int n = 0;
    size_t at = strlen(text);
    do digits[n++] = (char)('0' + seed % 10);
    while ((seed /= 10) != 0);
    while (n > 0) text[at++] = digits[--n];
    text[at++] = '\n';
    if (write(STDERR_FILENO, text, at) < 0) _exit(1);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* ---- A failure made small ---- */

typedef struct failure {
    uint64_t topology_seed;
    choices graph, topology;
    bool shrinks_topology;
    trial_result result;
} failure;

/* Runs a case alone, on a group of its own. */
static bool fails_alone(choices *graph, choices *topology, trial_result *out) {
    group_topology t;
    group_rig *rig = NULL;
    tdm_error err = {0};
    group_topology_draw(topology, &t);
    memset(out, 0, sizeof *out);
    if (group_rig_open(&t, &rig, &err) != TDM_OK) {
        snprintf(out->why, sizeof out->why, "opening the group: %.500s", err.message);
        return true;
    }
    trial_run(rig, &t, graph, 0, out);
    group_rig_close(rig);
    return out->why[0] != '\0';
}

static void replay(choices *c) {
    static uint32_t drawn[CHOICES_MAX];
    int n = c->n;
    memcpy(drawn, c->drawn, sizeof drawn);
    choices_replay(c, drawn, n);
}

static bool graph_fails(choices *c, void *context) {
    failure *f = context;
    trial_result result;
    replay(&f->topology);
    if (!fails_alone(c, &f->topology, &result)) return false;
    f->result = result;
    return true;
}

static bool topology_fails(choices *c, void *context) {
    failure *f = context;
    trial_result result;
    replay(&f->graph);
    if (!fails_alone(&f->graph, c, &result)) return false;
    f->result = result;
    return true;
}

/* Prints the smallest case that is found to fail. False where it does not fail alone. */
static bool failure_report(failure *f) {
    char words[1024];
    group_topology t;
    replay(&f->graph);
    replay(&f->topology);
    if (!fails_alone(&f->graph, &f->topology, &f->result)) return false;
    int n = choices_shrink(&f->topology, topology_fails, f, SHRINK_SECONDS / 4.0);
    n += choices_shrink(&f->graph, graph_fails, f, SHRINK_SECONDS);
    n += choices_shrink(&f->topology, topology_fails, f, SHRINK_SECONDS / 4.0);
    replay(&f->topology);
    group_topology_draw(&f->topology, &t);
    group_topology_print(&t, words, sizeof words);
    char *text = trial_print(&f->graph);
    printf("smallest failing case, after %d others:\n  %s\n%s  %s\n", n, words,
           text != NULL ? text : "", f->result.why);
    free(text);
    return true;
}

/* ---- Blocks ---- */

typedef struct totals {
    uint64_t n_node, n_output, n_ill_posed, n_refused;
    double worst;
} totals;

static void case_fail(choices *graph, uint64_t block_seed, uint64_t seed, const group_topology *t,
                      const trial_result *result) {
    char words[1024];
    static failure f;
    group_topology_print(t, words, sizeof words);
    printf("seed %" PRIu64 " fails: %s\n  %s\n", seed, result->why, words);
    fflush(stdout);
    f.graph = *graph;
    choices_begin(&f.topology, block_seed);
    group_topology_draw(&f.topology, &(group_topology){0});
    if (!failure_report(&f))
        printf("alone it does not fail, only after those before it in its block\n");
    fail_msg("again: TANDEM_SEED=%" PRIu64 " TANDEM_CASES=%" PRIu64, block_seed,
             seed - block_seed + 1);
}

static void block_run(uint64_t seed, uint64_t n, totals *sum) {
    static choices topology, graph;
    group_topology t;
    group_rig *rig = NULL;
    tdm_error err = {0};
    current_seed = seed;
    choices_begin(&topology, seed);
    group_topology_draw(&topology, &t);
    if (group_rig_open(&t, &rig, &err) != TDM_OK) {
        char words[1024];
        group_topology_print(&t, words, sizeof words);
        fail_msg("seed %" PRIu64 ": %s: %s", seed, words, err.message);
    }
    for (uint64_t i = 0; i < n; i++) {
        trial_result result;
        current_seed = seed + i;
        choices_begin(&graph, (seed + i) * 2654435761u + 1);
        trial_run(rig, &t, &graph, (int32_t)i * TRIAL_PARTITIONS, &result);
        if (result.why[0] != '\0') {
            group_rig_close(rig);
            case_fail(&graph, seed, seed + i, &t, &result);
        }
        sum->n_node += (uint64_t)result.n_node;
        sum->n_output += (uint64_t)result.n_output;
        sum->n_ill_posed += result.is_ill_posed;
        sum->n_refused += result.is_refused;
        if (result.worst > sum->worst && strcmp(t.reduce_type, "f32") == 0 && !result.is_ill_posed)
            sum->worst = result.worst;
    }
    group_rig_close(rig);
}

static void test_random(void **state) {
    (void)state;
    totals sum = {0};
    printf("%" PRIu64 " cases from seed %" PRIu64 "\n", n_case, first_seed);
    for (uint64_t i = 0; i < n_case; i += BLOCK)
        block_run(first_seed + i, n_case - i < BLOCK ? n_case - i : BLOCK, &sum);
    printf("%" PRIu64 " nodes, %" PRIu64 " outputs compared, worst NMSE %.1e; %" PRIu64
           " cases that noise moves as much, %" PRIu64 " refused\n",
           sum.n_node, sum.n_output, sum.worst, sum.n_ill_posed, sum.n_refused);
    assert_true(sum.n_output > 0);
    assert_true(sum.n_ill_posed * 50 <= n_case + 50);
    assert_true(sum.n_refused * 10 <= n_case + 100);
}

int main(void) {
    const char *seed = getenv("TANDEM_SEED"), *cases = getenv("TANDEM_CASES");
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (seed != NULL && strcmp(seed, "random") == 0) {
        first_seed = (uint64_t)time(NULL) * 100000;
    } else if (seed != NULL) {
        first_seed = strtoull(seed, NULL, 10);
    }
    if (cases == NULL) cases = getenv("TANDEM_DEFAULT_CASES");
    if (cases != NULL) n_case = strtoull(cases, NULL, 10);
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], on_crash);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
