/* SPDX-License-Identifier: MIT
 *
 * test_faults.c: faults of a member of a group, one at a time. Each gives an error that names the
 * member, nothing hangs or leaks, and the group works again when the member does.
 */
#include <stdatomic.h>

#include "tests/split/fault_scene.h"

enum { N_LAYER = 2, N_TOK = 4, N = N_EMBD * N_TOK };

#define FAILS(status_, text, call)                                                                 \
    do {                                                                                           \
        tdm_error fails_err = {0}, *err = &fails_err;                                              \
        tdm_status fails_status = (call);                                                          \
        if (fails_status != (status_) || strstr(fails_err.message, text) == NULL)                  \
            fail_msg("expected %s with '%s', found %s: %s", tdm_status_text(status_), text,        \
                     tdm_status_text(fails_status), fails_err.message);                            \
    } while (0)

static void scene_open(scene *s, const char *a, const char *b, const char *c, const char *options) {
    scene_make(s, (const char *const[]){a, b, c}, 3, N_LAYER, N_TOK, options);
}

/* ---- Memory that plugins take from the host -------------------------------------------------- */

static _Atomic int n_until_none; /* allocations from now on until one fails; 0 = none does */
static atomic_bool gives_none;   /* every allocation fails */

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size) {
    if (atomic_load(&gives_none)) return NULL;
    if (atomic_load(&n_until_none) > 0 && atomic_fetch_sub(&n_until_none, 1) == 1) return NULL;
    return __real_aligned_alloc(align, size);
}

/* ---- While running --------------------------------------------------------------------------- */

/* Every member in every way of exchanging: it fails, all others come back at once, the next run
 * works. */
static void test_fails_in_a_run(void **state) {
    static const char *const ways[][3] = {
        {NULL, NULL, NULL},
        {"exchange=no", "exchange=no", "exchange=no"},
        {NULL, "exchange=no", NULL},
    };
    (void)state;
    for (int w = 0; w < 3; w++) {
        scene s;
        scene_open(&s, ways[w][0], ways[w][1], ways[w][2], "share=2,1,1 timeout=100");
        works(&s);
        for (int m = 0; m < 3; m++) {
            char behind[4] = {'c', (char)('0' + m), 0}, name[8];
            float y[N];
            snprintf(name, sizeof name, "'m%d'", m);
            double begin = seconds();
            rig_set(s.rig, behind, "fail-in", 1);
            FAILS(TDM_UNAVAILABLE, name, net_run(s.run, N_TOK, 3, y, err));
            works(&s);
            rig_set(s.rig, behind, "refuse-in", 1);
            FAILS(TDM_INTERNAL, name, net_run(s.run, N_TOK, 3, y, err));
            works(&s);
            assert_true(seconds() - begin < 100); /* none waited for the timeout */
        }
        /* In the middle, where a member runs in stages. */
        if (w > 0) {
            float y[N];
            rig_set(s.rig, "c1", "fail-in", 2);
            FAILS(TDM_UNAVAILABLE, "'m1'", net_run(s.run, N_TOK, 3, y, err));
            works(&s);
        }
        scene_close(&s);
    }
}

/* A member that never signals: the watchdog names it and where, later runs fail at once, and when
 * it comes back all is well. */
static void silent(const char *a, const char *b, const char *c, const char *stage) {
    scene s;
    float y[N];
    scene_open(&s, a, b, c, "share=2,1,1 timeout=1");
    works(&s);
    rig_set(s.rig, "c1", "silent-in", 1);
    double begin = seconds();
    FAILS(TDM_DEADLINE_EXCEEDED, "'m1'", net_run(s.run, N_TOK, 3, y, err));
    assert_true(seconds() - begin >= 1);
    /* Later runs do not wait for another timeout. On a busy machine one of them may be slow. */
    double least = 1e9;
    for (int i = 0; i < 5; i++) {
        begin = seconds();
        FAILS(TDM_UNAVAILABLE, stage, net_run(s.run, N_TOK, 3, y, err));
        if (seconds() - begin < least) least = seconds() - begin;
    }
    assert_true(least < 1);
    tdm_schedule *other = NULL;
    FAILS(TDM_UNAVAILABLE, "'m1'", net_schedule(&s.group, N_TOK + 1, &other, err));
    rig_set(s.rig, "c1", "release", 0);
    works(&s);
    scene_close(&s);
}

static void test_never_signals(void **state) {
    (void)state;
    silent(NULL, NULL, NULL, "exchange 0");
    silent("exchange=no", "exchange=no", NULL, "exchange 0");
    silent(NULL, "exchange=no", "exchange=no", "exchange 0");
}

/* When a stuck member ends, while what it may still use is destroyed in its order: the plans, then
 * the queues, then the group. */
typedef enum end_time { BEFORE_QUEUES, BEFORE_GROUP } end_time;

static void closed_while_silent(end_time end, bool has_memory) {
    scene s;
    float y[N];
    scene_open(&s, NULL, NULL, NULL, "share=1,1,1 timeout=0.2");
    rig_set(s.rig, "c2", "silent-in", 1);
    FAILS(TDM_DEADLINE_EXCEEDED, "'m2'", net_run(s.run, N_TOK, 3, y, err));
    atomic_store(&gives_none, !has_memory);
    tdm_schedule_destroy(s.run);
    s.run = NULL;
    tdm_mem_free(&s.group.weights);
    if (end == BEFORE_QUEUES) rig_set(s.rig, "c2", "release", 0);
    tdm_scratch_destroy(s.rig->group_scratch);
    s.rig->group_scratch = NULL;
    atomic_store(&gives_none, false);
    if (end == BEFORE_GROUP) rig_set(s.rig, "c2", "release", 0);
    scene_close(&s);
}

/* No hang, nothing that the member may use is freed, and nothing is left in the end. */
static void test_closed_while_silent(void **state) {
    (void)state;
    closed_while_silent(BEFORE_GROUP, true);
}

/* The member ends between the release of its plans and of its queue: the plans were kept, so the
 * queue is kept, too, and destroyed after them. The plugin with faults ends a test that destroys it
 * before. */
static void test_ends_between_releases(void **state) {
    (void)state;
    closed_while_silent(BEFORE_QUEUES, true);
}

/* To keep what a stuck member may use takes no memory: what could not be kept would be lost to the
 * group, which destroys the queue of its plans, and closes while the member runs. */
static void test_no_memory_to_keep(void **state) {
    (void)state;
    closed_while_silent(BEFORE_GROUP, false);
    closed_while_silent(BEFORE_QUEUES, false);
}

typedef struct other_run {
    tdm_schedule *run;
    tdm_status status;
} other_run;

static void *other_run_main(void *arg) {
    other_run *other = arg;
    float y[N];
    other->status = net_run(other->run, N_TOK, 3, y, NULL);
    return NULL;
}

/* The same while another thread, whose run has found that the member has ended, destroys the kept
 * plans: they wait no longer, but are not gone. */
static void test_queue_ends_during_release(void **state) {
    scene s;
    float y[N];
    net second;
    tdm_scratch *scratch = NULL;
    other_run other = {.status = TDM_INTERNAL};
    pthread_t thread;
    (void)state;
    scene_open(&s, NULL, NULL, NULL, "share=1,1,1 timeout=0.2");
    OK(tdm_scratch_create(s.rig->rt, &s.rig->group, 1, &scratch, err));
    OK(net_load(&second, s.rig->group, scratch, N_LAYER, err));
    OK(net_schedule(&second, N_TOK, &other.run, err));
    OK(net_run(other.run, N_TOK, 3, y, err));
    rig_set(s.rig, "c2", "silent-in", 1);
    FAILS(TDM_DEADLINE_EXCEEDED, "'m2'", net_run(s.run, N_TOK, 3, y, err));
    tdm_schedule_destroy(s.run);
    s.run = NULL;
    rig_set(s.rig, "c2", "release", 0);
    rig_set(s.rig, "c2", "block-destroy-in", 1);
    assert_int_equal(pthread_create(&thread, NULL, other_run_main, &other), 0);
    rig_set(s.rig, "c2", "await", 0);
    tdm_scratch_destroy(s.rig->group_scratch);
    s.rig->group_scratch = NULL;
    rig_set(s.rig, "c2", "release", 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(other.status, TDM_OK);
    tdm_schedule_destroy(other.run);
    tdm_mem_free(&second.weights);
    tdm_scratch_destroy(scratch);
    scene_close(&s);
}

/* Two members that end one after the other, both after plan and queue were destroyed: the plan that
 * the second may still run keeps its place before its queue. */
static void test_two_end_in_turn(void **state) {
    (void)state;
    scene s;
    float y[N];
    net second;
    tdm_scratch *scratch = NULL;
    tdm_schedule *other = NULL;
    scene_open(&s, NULL, NULL, NULL, "share=1,1,1 timeout=0.2");
    OK(tdm_scratch_create(s.rig->rt, &s.rig->group, 1, &scratch, err));
    OK(net_load(&second, s.rig->group, scratch, N_LAYER, err));
    OK(net_schedule(&second, N_TOK, &other, err));
    rig_set(s.rig, "c1", "silent-in", 1);
    rig_set(s.rig, "c2", "silent-in", 1);
    FAILS(TDM_DEADLINE_EXCEEDED, "'m1', 'm2'", net_run(s.run, N_TOK, 3, y, err));
    tdm_schedule_destroy(s.run);
    s.run = NULL;
    tdm_scratch_destroy(s.rig->group_scratch);
    s.rig->group_scratch = NULL;
    rig_set(s.rig, "c2", "release", 0);
    FAILS(TDM_UNAVAILABLE, "'m1'", net_run(other, N_TOK, 3, y, err));
    rig_set(s.rig, "c1", "release", 0);
    OK(net_run(other, N_TOK, 3, y, err));
    tdm_schedule_destroy(other);
    tdm_mem_free(&second.weights);
    tdm_scratch_destroy(scratch);
    scene_close(&s);
}

/* A group that closes before its member ends: the member's device stays open and its plugin loaded,
 * so that the thread inside it comes back to what it left. */
static void test_ends_after_the_runtime(void **state) {
    static fault_rig
        *volatile kept; /* for leak checkers: nothing of it is freed; volatile keeps it */
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it reports that nothing joins the thread, which cannot be done here */
#endif
    scene s;
    float y[N];
    scene_open(&s, NULL, NULL, "exchange=no", "share=1,1,1 timeout=0.2");
    fault_rig *rig = kept = s.rig;
    rig_set(rig, "c2", "block-in", 1);
    FAILS(TDM_DEADLINE_EXCEEDED, "'m2'", net_run(s.run, N_TOK, 3, y, err));
    tdm_schedule_destroy(s.run);
    tdm_schedule_destroy(s.truth);
    tdm_mem_free(&s.group.weights);
    tdm_mem_free(&s.single.weights);
    tdm_scratch_destroy(rig->group_scratch);
    tdm_scratch_destroy(rig->single_scratch);
    tdm_runtime_destroy(rig->rt);
    assert_int_equal(rig_log_count(rig, "still computes for its group"), 1);
    rig_set(rig, "c2", "await", 0); /* its device is still there */
    rig_set(rig, "c2", "release", 0);
    rig_set(rig, "c2", "await-end", 0);
}

/* A slow member is not a stuck one: the timer starts again with every stage. The run takes longer
 * than the timeout, each stage of the slow member much less, without progress of its queue. */
static void test_slow_is_not_silent(void **state) {
    scene s;
    (void)state;
    scene_make(&s, (const char *const[]){NULL, "exchange=no", NULL}, 3, 16, N_TOK,
               "share=1,1,1 timeout=1");
    rig_set(s.rig, "c1", "mute", 1);
    rig_set(s.rig, "c1", "work-ms", 80);
    double begin = seconds();
    works(&s);
    assert_true(seconds() - begin > 1); /* of 16 stages at least */
    scene_close(&s);
}

/* ---- While preparing ------------------------------------------------------------------------- */

/* An op that a member refuses: the CPU runs it instead of the member, with one line in the log. */
static void test_refuses_an_op(void **state) {
    scene s;
    char option[32];
    (void)state;
    snprintf(option, sizeof option, "exchange=no refuse=%d", TDM_OP_GLU);
    scene_open(&s, NULL, option, NULL, "share=2,1,1");
    works(&s);
    works(&s);
    assert_true(rig_log_count(s.rig, "has the option to refuse op") == 1);
    scene_close(&s);
}

static void test_plan_fails(void **state) {
    scene s;
    tdm_schedule *other = NULL;
    (void)state;
    scene_open(&s, NULL, "exchange=no", NULL, "share=2,1,1");
    for (int n = 1; n <= 2; n++) {
        rig_set(s.rig, n == 1 ? "c0" : "c1", "prepare-in", n);
        FAILS(TDM_INTERNAL, n == 1 ? "'m0'" : "'m1'",
              net_schedule(&s.group, N_TOK + 1, &other, err));
        works(&s);
    }
    OK(net_schedule(&s.group, N_TOK + 1, &other, err));
    tdm_schedule_destroy(other);
    works(&s);
    scene_close(&s);
}

/* A member runs out of memory at each call in turn, from opening the group to the first run. */
static void test_no_memory_on_a_member(void **state) {
    (void)state;
    for (int way = 0; way < 2; way++) {
        bool is_done = false;
        int n_failed = 0;
        for (int n = 1; !is_done; n++) {
            char option[48];
            tdm_error why = {0};
            net loaded = {0};
            tdm_schedule *run = NULL;
            float y[N];
            snprintf(option, sizeof option, "fail-call=%d%s", n, way == 1 ? " exchange=no" : "");
            fault_rig *rig =
                rig_declare(2, (const char *const[]){NULL, option}, "share=1,1 timeout=20");
            tdm_status status = rig_open_group(rig, &why);
            if (status == TDM_OK)
                status = net_load(&loaded, rig->group, rig->group_scratch, N_LAYER, &why);
            if (status == TDM_OK) status = net_schedule(&loaded, N_TOK, &run, &why);
            if (status == TDM_OK) status = net_run(run, N_TOK, 3, y, &why);
            if (status != TDM_OK) {
                n_failed++;
                if (status != TDM_RESOURCE_EXHAUSTED || strstr(why.message, "'m1'") == NULL)
                    fail_msg("call %d: %s: %s", n, tdm_status_text(status), why.message);
                /* There was nothing wrong with the group: now it goes. */
                if (rig->group != NULL && rig->group_scratch == NULL)
                    OK(tdm_scratch_create(rig->rt, &rig->group, 1, &rig->group_scratch, err));
                if (rig->group != NULL && loaded.weights.dev == NULL)
                    OK(net_load(&loaded, rig->group, rig->group_scratch, N_LAYER, err));
                if (rig->group != NULL && run == NULL) OK(net_schedule(&loaded, N_TOK, &run, err));
                if (run != NULL) OK(net_run(run, N_TOK, 3, y, err));
            }
            /* Calls that the group can do without (an import) do not fail it: over only when far
             * more were allowed than there are. */
            is_done = status == TDM_OK && n > 40;
            tdm_schedule_destroy(run);
            tdm_mem_free(&loaded.weights);
            rig_close(rig);
        }
        assert_true(n_failed > 3);
    }
}

/* ---- No memory on the host ------------------------------------------------------------------- */

/* What plugins take from the host fails at each allocation in turn (under a sanitizer, at every
 * third); they get it all back. */
#ifdef TANDEM_SANITIZED
enum { NONE_STEP = 3 };
#else
enum { NONE_STEP = 1 };
#endif

static void test_no_memory_on_the_host(void **state) {
    int n_failed = 0;
    bool is_over = false;
    (void)state;
    for (int n = 1; !is_over; n += NONE_STEP) {
        tdm_error why = {0};
        net loaded = {0};
        tdm_schedule *run = NULL;
        float y[N];
        fault_rig *rig =
            rig_declare(2, (const char *const[]){NULL, "exchange=no"}, "share=1,1 timeout=20");
        atomic_store(&n_until_none, n);
        tdm_status status = rig_open_group(rig, &why);
        if (status == TDM_OK)
            status = net_load(&loaded, rig->group, rig->group_scratch, N_LAYER, &why);
        if (status == TDM_OK) status = net_schedule(&loaded, N_TOK, &run, &why);
        if (status == TDM_OK) status = net_run(run, N_TOK, 3, y, &why);
        is_over = atomic_exchange(&n_until_none, 0) > 0;
        if (status != TDM_OK) {
            n_failed++;
            if (status != TDM_RESOURCE_EXHAUSTED || why.message[0] == 0)
                fail_msg("allocation %d: %s: %s", n, tdm_status_text(status), why.message);
            if (run != NULL) OK(net_run(run, N_TOK, 3, y, err));
        }
        tdm_schedule_destroy(run);
        tdm_mem_free(&loaded.weights);
        rig_close(rig);
    }
    assert_true(n_failed > 20);
}

/* ---- While opening --------------------------------------------------------------------------- */

static void lies(const char *how, const char *why) {
    scene s;
    char option[32];
    snprintf(option, sizeof option, "exchange=%s", how);
    scene_open(&s, NULL, option, NULL, "share=2,1,1");
    if (rig_log_count(s.rig, why) != 1 || rig_log_count(s.rig, "'m1'") != 1)
        fail_msg("the log should say '%s' of 'm1' once:\n%s", why, s.rig->log);
    works(&s); /* through the host */
    works(&s);
    scene_close(&s);
}

static void test_lies_in_the_probe(void **state) {
    (void)state;
    lies("lie-bits", "differ from the host's");
    lies("lie-idle", "differ from the host's");
}

static void test_silent_in_the_probe(void **state) {
    (void)state;
    scene s;
    scene_open(&s, NULL, "exchange=lie-hang", NULL, "share=2,1,1");
    assert_int_equal(rig_log_count(s.rig, "did not end in time"), 1);
    works(&s);
    rig_set(s.rig, "c1", "release", 0);
    scene_close(&s);
}

#ifdef TANDEM_SANITIZED
#define MEASURE_TIMEOUT "10"
#else
#define MEASURE_TIMEOUT "2"
#endif

/* A member that does not come back from being measured keeps what it may still use. */
static void test_silent_when_measured(void **state) {
    (void)state;
    fault_rig *rig =
        rig_open(2, (const char *const[]){NULL, NULL}, "share=auto timeout=" MEASURE_TIMEOUT);
    tdm_graph *graph = net_graph(1, N_LAYER);
    rig_set(rig, "c1", "silent-in", 1);
    FAILS(TDM_DEADLINE_EXCEEDED, "'m1'", tdm_open_device_split_prepare(rig->group, graph, err));
    rig_set(rig, "c1", "release", 1);
    tdm_graph_free(graph);
    rig_close(rig);
}

/* Shares are found when the first model is prepared. A member without memory gets none: older
 * queues keep working, older plans fail as stale. */
static void test_left_out(void **state) {
    (void)state;
    const int64_t ne[4] = {N_EMBD, N_TOK, 1, 1};
    /* The shares follow from the memory. Measuring the members takes most of a sanitizer's time. */
    setenv("TANDEM_TEST_RATES", "4e10,4e11", 1);
    fault_rig *rig = rig_open(2, (const char *const[]){NULL, "memory=1"},
                              "share=auto timeout=20 reserve=0,1000");
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_schedule *early = NULL, *runs[2] = {NULL, NULL};
    net nets[2];
    float y[N], expected[N];
    OK(tdm_builder_create(&b, err));
    tdm_build_output(b, tdm_build_scale(b, tdm_build_input(b, "x", TDM_TYPE_F32, ne), 1, 0), "y");
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    tdm_slot_mem *none = calloc((size_t)graph->n_slot, sizeof *none);
    OK(tdm_schedule_create(rig->group_scratch, graph, none, &early, err));
    free(none);
    OK(net_run(early, N_TOK, 3, y, err));
    OK(net_load(&nets[0], rig->group, rig->group_scratch, N_LAYER, err));
    OK(net_load(&nets[1], rig->single, rig->single_scratch, N_LAYER, err));
    for (int i = 0; i < 2; i++) OK(net_schedule(&nets[i], N_TOK, &runs[i], err));
    OK(net_run(runs[0], N_TOK, 3, y, err));
    OK(net_run(runs[1], N_TOK, 3, expected, err));
    double error = nmse(y, expected, N);
    if (!(error < 1e-10)) fail_msg("nmse %g", error);
    rig_set(rig, "c1", "fail-in", 1); /* if it were asked */
    OK(net_run(runs[0], N_TOK, 3, y, err));
    rig_set(rig, "c1", "fail-in", 0);
    FAILS(TDM_FAILED_PRECONDITION, "shares", net_run(early, N_TOK, 3, y, err));
    OK(net_run(runs[0], N_TOK, 3, y, err));
    tdm_schedule_destroy(early);
    for (int i = 0; i < 2; i++) {
        tdm_schedule_destroy(runs[i]);
        tdm_mem_free(&nets[i].weights);
    }
    rig_close(rig);
    unsetenv("TANDEM_TEST_RATES");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_when_measured),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_fails_in_a_run),
        cmocka_unit_test(test_never_signals),
        cmocka_unit_test(test_closed_while_silent),
        cmocka_unit_test(test_ends_between_releases),
        cmocka_unit_test(test_no_memory_to_keep),
        cmocka_unit_test(test_queue_ends_during_release),
        cmocka_unit_test(test_two_end_in_turn),
        cmocka_unit_test(test_ends_after_the_runtime),
        cmocka_unit_test(test_slow_is_not_silent),
        cmocka_unit_test(test_refuses_an_op),
        cmocka_unit_test(test_plan_fails),
        cmocka_unit_test(test_no_memory_on_a_member),
        cmocka_unit_test(test_no_memory_on_the_host),
        cmocka_unit_test(test_lies_in_the_probe),
        cmocka_unit_test(test_silent_in_the_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
