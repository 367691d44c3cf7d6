/* SPDX-License-Identifier: MIT
 *
 * test_queue_end.c: a wait that is called after its queue of a GPU plugin was destroyed returns the
 * status of its own computation, not of the last one. In the driver here, computations with odd
 * numbers fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/gpu/queue/queue.h"

enum { N_WORK = 4 };

static uint64_t n_submitted;
static int32_t n_wait_call;
static tdm_native_wait attached[N_WORK];
static int32_t n_attached;

static tdm_status submit(void *context, void *work, gpu_ticket *ticket_out, tdm_error *err) {
    (void)context, (void)work, (void)err;
    *ticket_out = (gpu_ticket){.value = ++n_submitted};
    return TDM_OK;
}

static tdm_status end_wait(void *context, const gpu_ticket *ticket, uint64_t timeout_ns,
                           tdm_error *err) {
    (void)context, (void)timeout_ns;
    n_wait_call++;
    if (ticket->value % 2 == 0) return TDM_OK;
    return tdm_fail(err, TDM_INTERNAL, "computation %d failed", (int)ticket->value);
}

static tdm_status attach(tdm_semaphore *semaphore, uint64_t value, const tdm_native_wait *wait,
                         tdm_error *err) {
    (void)semaphore, (void)value, (void)err;
    attached[n_attached++] = *wait;
    return TDM_OK;
}

static void test_own_status(void **state) {
    (void)state;
    static const gpu_queue_driver driver = {.submit = submit, .wait = end_wait};
    const tdm_host_semaphore_ops semaphore = {.struct_size = sizeof semaphore, .attach = attach};
    int word = 0;
    gpu_queue *queue = NULL;
    assert_int_equal(gpu_queue_create("card", &semaphore, &driver, NULL, &queue, NULL), TDM_OK);
    for (uint64_t i = 1; i <= N_WORK; i++) {
        const tdm_point point = {(tdm_semaphore *)(void *)&word, i};
        assert_int_equal(gpu_queue_compute(queue, &word, NULL, 0, &point, 1, NULL), TDM_OK);
    }
    assert_int_equal(n_attached, N_WORK);
    attached[1].release(attached[1].context); /* its semaphore releases it before it ends */
    gpu_queue_destroy(queue);
    const int32_t n_call = n_wait_call;
    for (int i = 0; i < N_WORK; i++) {
        if (i == 1) continue;
        tdm_error err = {.struct_size = sizeof err};
        char message[64];
        snprintf(message, sizeof message, "computation %d failed", i + 1);
        tdm_status status = attached[i].wait(attached[i].context, 0, &err);
        assert_int_equal(status, i % 2 == 0 ? TDM_INTERNAL : TDM_OK);
        if (i % 2 == 0) assert_string_equal(err.message, message);
        attached[i].release(attached[i].context);
    }
    assert_int_equal(n_wait_call, n_call); /* the driver may be gone */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_status)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
