/* SPDX-License-Identifier: MIT
 *
 * test_threads.c: drivers that do not return, and groups that have devices in common. A member
 * never delays the submission of another, a blocked driver is abandoned and not joined, and two
 * groups over the same devices do not deadlock.
 */
#include "tests/split/fault_scene.h"

#include <dlfcn.h>
#include <stdatomic.h>

enum { N_TOK = 3, N_LAYER = 3, N = N_EMBD * N_TOK };

/* A device with memory of its own, whose driver may do anything. */
#define AWAY "memory=1000000000"

/* The plugins find this function instead of the library's. */
static _Atomic int n_detached;
TDM_EXPORT int pthread_detach(pthread_t thread) {
    int (*detach)(pthread_t) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "pthread_detach");
    memcpy(&detach, &symbol, sizeof detach);
    atomic_fetch_add(&n_detached, 1);
    return detach(thread);
}

static void scene_open(scene *s, const char *a, const char *b, const char *options) {
    scene_make(s, (const char *const[]){a, b}, 2, N_LAYER, N_TOK, options);
}

static void fails(const scene *s, tdm_status status, const char *text) {
    float y[N];
    tdm_error err = {0};
    tdm_status got = net_run(s->run, N_TOK, 3, y, &err);
    if (got != status || strstr(err.message, text) == NULL)
        fail_msg("%s instead of %s: %s", tdm_status_text(got), tdm_status_text(status),
                 err.message);
}

/* A driver whose launch queue is full returns when the computation has ended. It waits for the
 * other member inside an exchange, so that member must be submitted meanwhile. */
static void test_bounded_queue(void **state) {
    static const char *const members[][2] = {{AWAY, AWAY}, {AWAY, NULL}, {NULL, AWAY}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        scene s;
        scene_open(&s, members[i][0], members[i][1], "share=1,1 timeout=20");
        works(&s);
        for (int m = 0; m < 2; m++)
            if (members[i][m] != NULL) rig_set(s.rig, m == 0 ? "c0" : "c1", "bounded", 1);
        double begin = seconds();
        for (int run = 0; run < 20; run++) works(&s);
        assert_true(seconds() - begin < 20); /* no run ended by the timeout */
        scene_close(&s);
    }
}

/* A driver that does not return: the watchdog names the member, the thread in it is not joined, and
 * once the driver returns the group works again. */
static void blocked(const char *key, const char *options_of_member) {
    scene s;
    scene_open(&s, NULL, options_of_member, "share=1,1 timeout=1");
    works(&s);
    for (int time = 0; time < 2; time++) {
        rig_set(s.rig, "c1", key, 1);
        double begin = seconds();
        fails(&s, TDM_DEADLINE_EXCEEDED, "'m1'");
        fails(&s, TDM_UNAVAILABLE, "'m1'");
        /* Timeout, grace period and the time to leave, and as much again for a busy machine. */
        assert_true(seconds() - begin < 2 * (1 + 1 + 1) + 10);
        rig_set(s.rig, "c1", "release", 0);
        /* The driver has returned; what it was given ends soon. */
        float y[N];
        tdm_error err = {0};
        begin = seconds();
        while (net_run(s.run, N_TOK, 3, y, &err) == TDM_UNAVAILABLE && seconds() - begin < 20)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        for (int run = 0; run < 5; run++) works(&s);
    }
    scene_close(&s);
    /* Else a thread could still run code of the plugin that is unloaded. */
    assert_int_equal(atomic_load(&n_detached), 0);
}

/* The thread of an abandoned member may still read the inputs of its run while the caller writes
 * those of the next one. Nothing uses what it has read, since its run has failed; but the thread
 * sanitizer reports the read, so that it has to do without the tests that abandon a member. */
#ifdef __SANITIZE_THREAD__
#define SKIP_WHERE_READS_ARE_WATCHED() skip()
#else
#define SKIP_WHERE_READS_ARE_WATCHED() ((void)0)
#endif

static void test_blocked_driver(void **state) {
    (void)state;
    SKIP_WHERE_READS_ARE_WATCHED();
    blocked("block-in", AWAY);
    blocked("block-in", "exchange=no");
    blocked("block-in", AWAY " exchange=no host-pointer=no");
}

static void test_blocked_upload(void **state) {
    (void)state;
    SKIP_WHERE_READS_ARE_WATCHED();
    blocked("block-upload-in", AWAY " host-pointer=no");
    blocked("block-upload-in", AWAY " exchange=no host-pointer=no import=no");
}

/* A plan without exchanges that takes longer than the timeout ends well where its queue shows
 * progress. Without progress it counts as hung. */
static void test_long_work(void **state) {
    (void)state;
    SKIP_WHERE_READS_ARE_WATCHED();
    for (int is_mute = 0; is_mute < 2; is_mute++) {
        scene s;
        scene_open(&s, NULL, NULL, "share=1,0 timeout=1");
        rig_set(s.rig, "c0", "mute", is_mute);
        rig_set(s.rig, "c0", "work-ms", 2500);
        double begin = seconds();
        if (is_mute == 0)
            works(&s);
        else
            fails(&s, TDM_DEADLINE_EXCEEDED, "'m0'");
        assert_true(seconds() - begin > (is_mute == 0 ? 2.5 : 1));
        rig_set(s.rig, "c0", "work-ms", 0);
        begin = seconds();
        float y[N];
        tdm_error err = {0};
        while (net_run(s.run, N_TOK, 3, y, &err) == TDM_UNAVAILABLE && seconds() - begin < 20)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
        works(&s);
        scene_close(&s);
    }
}

/* Everything is destroyed while the driver has not returned: no hang. It returns afterwards. */
static void test_closed_while_blocked(void **state) {
    (void)state;
    SKIP_WHERE_READS_ARE_WATCHED();
    scene s;
    scene_open(&s, NULL, AWAY, "share=1,1 timeout=0.2");
    rig_set(s.rig, "c1", "block-in", 1);
    fails(&s, TDM_DEADLINE_EXCEEDED, "'m1'");
    tdm_schedule_destroy(s.run);
    tdm_mem_free(&s.group.weights);
    tdm_scratch_destroy(s.rig->group_scratch);
    s.rig->group_scratch = NULL;
    s.run = NULL;
    rig_set(s.rig, "c1", "release", 0);
    /* The thread leaves before the plugins go. */
    nanosleep(&(struct timespec){0, 300000000}, NULL);
    scene_close(&s);
}

/* ---- Two groups over the same devices -------------------------------------------------------- */

typedef struct runner {
    tdm_schedule *run;
    const float *expected;
    int n_run;
    tdm_error err;
    _Atomic int n_done;
    double error;
} runner;

static void *runner_main(void *arg) {
    runner *r = arg;
    for (int i = 0; i < r->n_run && r->err.status == TDM_OK; i++) {
        float y[N];
        if (net_run(r->run, N_TOK, 3, y, &r->err) != TDM_OK) break;
        double error = nmse(y, r->expected, N);
        if (error > r->error) r->error = error;
        atomic_fetch_add(&r->n_done, 1);
    }
    return NULL;
}

/* "a": m0, m1; "b": m1, m0. Each thread runs one of them, many times at once. */
static void test_groups_crosswise(void **state) {
    (void)state;
    const char *const faults[] = {NULL, NULL};
    fault_rig *rig = rig_declare(2, faults, "share=1,1 timeout=20");
    net nets[2], single;
    tdm_scratch *scratches[2];
    tdm_schedule *runs[2], *truth;
    pthread_t threads[2];
    runner runners[2];
    float expected[N];
    OK(net_load(&single, rig->single, rig->single_scratch, N_LAYER, err));
    OK(net_schedule(&single, N_TOK, &truth, err));
    OK(net_run(truth, N_TOK, 3, expected, err));
    for (int g = 0; g < 2; g++) {
        const char *name = g == 0 ? "a" : "b";
        tdm_open_device *dev = NULL;
        const tdm_option options[] = {
            {"members", g == 0 ? "c0,c1" : "c1,c0"}, {"share", "1,1"}, {"timeout", "20"}};
        const tdm_device_spec spec = {name, "meta", 0, options, 3};
        OK(tdm_runtime_declare(rig->rt, &spec, err));
        OK(tdm_runtime_open(rig->rt, name, &dev, err));
        OK(tdm_scratch_create(rig->rt, &dev, 1, &scratches[g], err));
        OK(net_load(&nets[g], dev, scratches[g], N_LAYER, err));
        OK(net_schedule(&nets[g], N_TOK, &runs[g], err));
    }
    for (int g = 0; g < 2; g++) {
        runners[g] = (runner){.run = runs[g], .expected = expected, .n_run = 2000};
        assert_int_equal(pthread_create(&threads[g], NULL, runner_main, &runners[g]), 0);
    }
    for (int g = 0; g < 2; g++) pthread_join(threads[g], NULL);
    for (int g = 0; g < 2; g++) {
        if (runners[g].err.status != TDM_OK)
            fail_msg("group %d after %d runs: %s", g, runners[g].n_done, runners[g].err.message);
        assert_int_equal(runners[g].n_done, runners[g].n_run);
        assert_true(runners[g].error < 1e-10);
        tdm_schedule_destroy(runs[g]);
        tdm_mem_free(&nets[g].weights);
        tdm_scratch_destroy(scratches[g]);
    }
    tdm_schedule_destroy(truth);
    tdm_mem_free(&single.weights);
    rig_close(rig);
}

/* A thread that loads weights again and again. */
typedef struct loader {
    const scene *scene;
    atomic_bool is_ending;
    int n_loaded;
    tdm_status status;
    tdm_error err;
} loader;

static void *loader_main(void *arg) {
    loader *l = arg;
    const net *group = &l->scene->group;
    while (l->status == TDM_OK && (l->n_loaded < 5 || !atomic_load(&l->is_ending))) {
        net again;
        l->status = net_load_assigned(&again, group->dev, group->scratch, N_LAYER, &l->err);
        if (l->status == TDM_OK) tdm_mem_free(&again.weights);
        l->n_loaded++;
    }
    return NULL;
}

/* Buffers may be made, filled and freed by any thread while another one makes plans and runs them:
 * both read how the partitions are assigned, which split_prepare alone changes. */
static void test_load_beside_runs(void **state) {
    (void)state;
    scene s;
    float y[N];
    scene_open(&s, NULL, NULL, "share=2,1 timeout=100");
    loader l = {.scene = &s};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, loader_main, &l), 0);
    for (int n_tok = 1; n_tok <= N_TOK; n_tok++) {
        tdm_schedule *other = NULL;
        OK(net_schedule(&s.group, n_tok, &other, err));
        for (int i = 0; i < 5; i++) OK(net_run(other, n_tok, 3, y, err));
        tdm_schedule_destroy(other);
        works(&s);
    }
    atomic_store(&l.is_ending, true);
    pthread_join(thread, NULL);
    if (l.status != TDM_OK) fail_msg("load %d: %s", l.n_loaded, l.err.message);
    scene_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounded_queue),    cmocka_unit_test(test_blocked_driver),
        cmocka_unit_test(test_blocked_upload),   cmocka_unit_test(test_closed_while_blocked),
        cmocka_unit_test(test_groups_crosswise), cmocka_unit_test(test_long_work),
        cmocka_unit_test(test_load_beside_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
