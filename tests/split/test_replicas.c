/* SPDX-License-Identifier: MIT
 *
 * test_replicas.c: `check = replicas` (plugins/meta/exec/replicas.c) on a member that changes one
 * bit of a computed or received value. The check finds and names it, and the next run succeeds.
 * Without the check the run succeeds, which proves that the check finds it.
 */
#include "tests/split/fault_rig.h"

enum { N_LAYER = 2, N_TOK = 4, N = N_EMBD * N_TOK };

/* One of three members lies once, in bit `bit` of values of `size` numbers. */
typedef struct scene {
    const char *faults[3], *options;
    int64_t size, bit;
    tdm_status expected;
    const char *words[6]; /* that the message must have */
} scene;

static void scene_run(const scene *s) {
    fault_rig *rig = rig_open(3, s->faults, s->options);
    net group;
    tdm_schedule *run = NULL;
    float y[N];
    tdm_error lied = {0};
    OK(net_load(&group, rig->group, rig->group_scratch, N_LAYER, err));
    OK(net_schedule(&group, N_TOK, &run, err));
    for (uint32_t i = 0; i < 3; i++) OK(net_run(run, N_TOK, i, y, err));
    rig_set(rig, "c2", "lie-size", s->size);
    rig_set(rig, "c2", "lie-bit", s->bit);
    rig_set(rig, "c2", "lie-in", 1);
    tdm_status status = net_run(run, N_TOK, 3, y, &lied);
    if (status != s->expected) fail_msg("%s: %s", s->options, lied.message);
    for (int i = 0; i < 6 && s->words[i] != NULL; i++)
        if (strstr(lied.message, s->words[i]) == NULL)
            fail_msg("no \"%s\" in: %s", s->words[i], lied.message);
    for (uint32_t i = 0; i < 3; i++) OK(net_run(run, N_TOK, i, y, err));
    tdm_schedule_destroy(run);
    tdm_mem_free(&group.weights);
    rig_close(rig);
}

static void test_lie(void **state) {
    static const scene scenes[] = {
        /* Members of one kind: what they compute is equal by bits, and so is what they get. */
        {.words = {"check = replicas", "'m0'", "'m2'", "element 255 of 256", "equal by bits"}},
        /* One of another kind: norms may differ in a bit, sums not. */
        {.faults = {"exchange=no", NULL, NULL},
         .words = {"'add.", "'m0'", "'m2'", "element 255 of 256", "equal by bits"}},
        /* Through the host, memory that only downloads show: a norm that is not one. */
        {.faults = {NULL, NULL, "exchange=no host-pointer=no import=no"},
         .bit = 30,
         .words = {"'rms_norm", "'m0'", "'m2'", "element 255 of 256", "more than rounding"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        scene s = scenes[i];
        s.options = "share=2,1,1 check=replicas";
        s.size = N;
        s.expected = TDM_DATA_LOSS;
        scene_run(&s);
    }
}

static void test_unseen(void **state) {
    (void)state;
    scene_run(&(scene){.options = "share=2,1,1 check=off", .size = N});
    /* No value has so many numbers: nothing is changed. */
    scene_run(&(scene){.options = "share=2,1,1 check=replicas", .size = N - 1});
    /* The one that lies has no share, and so is not asked. */
    scene_run(&(scene){.options = "share=1,1,0 check=replicas", .size = N});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lie),
        cmocka_unit_test(test_unseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
