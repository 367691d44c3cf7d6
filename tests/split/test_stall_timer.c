/* SPDX-License-Identifier: MIT
 *
 * test_stall_timer.c: plugins/meta/exec/stall_timer.c with given clocks and semaphores.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "plugins/meta/exec/stall_timer.h"

#define SECOND UINT64_C(1000000000)

static void test_updates_add_up(void **state) {
    (void)state;
    meta_stall_timer p;
    uint64_t now = 7 * SECOND;
    meta_stall_timer_begin(&p, now);
    for (int i = 0; i < 100; i++) now += META_POLL_NS, meta_stall_timer_update(&p, now);
    assert_int_equal(meta_stall_timer_update(&p, now), 100 * META_POLL_NS);
    meta_stall_timer_begin(&p, now);
    assert_int_equal(meta_stall_timer_update(&p, now + 5), 5);
}

/* The process was stopped for longer than any timeout, twice, and for the longest possible time. */
static void test_standing_still_is_not_waiting(void **state) {
    (void)state;
    meta_stall_timer p;
    uint64_t now = 0;
    meta_stall_timer_begin(&p, now);
    assert_int_equal(meta_stall_timer_update(&p, now += 150 * SECOND), META_GAP_NS);
    assert_int_equal(meta_stall_timer_update(&p, now += META_POLL_NS), META_GAP_NS + META_POLL_NS);
    assert_int_equal(meta_stall_timer_update(&p, UINT64_MAX), 2 * META_GAP_NS + META_POLL_NS);
}

/* ---- A semaphore whose n_wait-th wait returns `answer` ---- */

struct tdm_semaphore {
    int n_wait, n_called;
    uint64_t longest_ns;
    tdm_status answer, poison;
};

static tdm_status made_wait(tdm_semaphore *s, uint64_t value, uint64_t timeout_ns, tdm_error *err) {
    (void)value;
    s->n_called++;
    if (timeout_ns > s->longest_ns) s->longest_ns = timeout_ns;
    if (s->n_called < s->n_wait) return tdm_fail(err, TDM_DEADLINE_EXCEEDED, "not yet");
    return s->answer == TDM_OK ? TDM_OK : tdm_fail(err, s->answer, "the member's message");
}

static tdm_status made_query(tdm_semaphore *s, uint64_t *value_out, tdm_error *err) {
    *value_out = 0;
    return s->n_called < s->n_wait || s->poison == TDM_OK ? TDM_OK
                                                          : tdm_fail(err, s->poison, "poisoned");
}

static tdm_status ask(tdm_semaphore *s, uint64_t limit_ns, tdm_error *err) {
    const tdm_host_semaphore_ops ops = {
        .struct_size = sizeof ops, .query = made_query, .wait = made_wait};
    const tdm_host host = {.struct_size = sizeof host, .semaphore = &ops};
    meta_stall_timer p = {0}; /* last updated at clock 0: one gap of it counts */
    return meta_stall_timer_wait(&p, &host, s, 1, META_GAP_NS + limit_ns, err);
}

static void test_waits_in_slices(void **state) {
    (void)state;
    tdm_error err = {.message = "as it was"};
    tdm_semaphore s = {.n_wait = 4};
    assert_int_equal(ask(&s, 3600 * SECOND, &err), TDM_OK);
    assert_int_equal(s.n_called, 4);
    assert_int_equal(s.longest_ns, META_POLL_NS);
    assert_string_equal(err.message, "as it was");
}

static void test_ends(void **state) {
    (void)state;
    tdm_error err = {0};
    tdm_semaphore never = {.n_wait = INT32_MAX};
    assert_int_equal(ask(&never, 0, &err), TDM_DEADLINE_EXCEEDED);
    assert_int_equal(never.n_called, 1);
    /* a failure of the member ends the wait, also one with the status of a timeout */
    tdm_semaphore lost = {.n_wait = 2, .answer = TDM_DATA_LOSS, .poison = TDM_DATA_LOSS};
    assert_int_equal(ask(&lost, 3600 * SECOND, &err), TDM_DATA_LOSS);
    assert_string_equal(err.message, "the member's message");
    tdm_semaphore late = {
        .n_wait = 2, .answer = TDM_DEADLINE_EXCEEDED, .poison = TDM_DEADLINE_EXCEEDED};
    assert_int_equal(ask(&late, 3600 * SECOND, &err), TDM_DEADLINE_EXCEEDED);
    assert_int_equal(late.n_called, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates_add_up),
        cmocka_unit_test(test_standing_still_is_not_waiting),
        cmocka_unit_test(test_waits_in_slices),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
