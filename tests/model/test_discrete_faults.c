/* SPDX-License-Identifier: MIT
 *
 * test_discrete_faults.c: devices with memory that the host cannot touch, which are lost at each
 * call in turn, block a call, or never end a computation; and two groups that use the same devices
 * in opposite order. Each gives an error that names the member. Nothing hangs, and nothing leaks.
 */
#include "tests/model/card_rig.h"

#include <pthread.h>
#include <time.h>

#include "core/runtime.h"
#include "llm/report.h"

static const tdm_type cache = TDM_TYPE_Q4_0;

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Under a sanitizer a device is lost at every so many calls, not at each. */
#ifdef TANDEM_SANITIZED
enum { CALL_STEP = 3, LOSS_STEP = 5, PROBE_STEP = 5, MEASURE_TIMES = 8 };
#else
enum { CALL_STEP = 1, LOSS_STEP = 1, PROBE_STEP = 1, MEASURE_TIMES = 2 };
#endif

/* ---- Loss ---- */

/* A device that is lost at any call: an error that names it, no hang, and nothing left behind. */
static void test_lost_at_every_call(void **state) {
    (void)state;
    card_rows want, got;
    tdm_error err = {0};
    tdm_runtime *rt = card_runtime(NULL);
    RIG_OK(card_run(rt, card_device(rt, "c0"), &cache, want, &err));
    tdm_runtime_destroy(rt);
    int n_lost = 0;
    tdm_status status = TDM_UNAVAILABLE;
    for (int n = 1; status != TDM_OK; n += (n < 40 ? 1 : 7) * CALL_STEP) {
        rt = card_runtime(n % 2 == 0 ? NULL : (const tdm_option[]){{"attach", "no"}, {NULL, NULL}});
        tdm_open_device *dev = card_device(rt, "d0");
        card_set("c0", "lose-in", n);
        memset(&err, 0, sizeof err);
        status = card_run(rt, dev, &cache, got, &err);
        assert_int_equal(card_get("c0", "memory"), 0);
        if (status == TDM_OK) {
            assert_memory_equal(got, want, sizeof want);
        } else {
            n_lost++;
            assert_int_equal(status, TDM_UNAVAILABLE);
            assert_non_null(strstr(err.message, "c0"));
            assert_non_null(strstr(err.message, "lost"));
        }
        tdm_runtime_destroy(rt);
    }
    assert_true(n_lost * CALL_STEP >= 20);
}

/* A member is lost at each of the first calls in turn, then, where a run repeats its calls, at every
 * seventh: the run fails and names it, and closing the group works. */
static void member_lost(const char *exchange, const char *lost, const char *name, int step) {
    tdm_error err = {0};
    card_rows got;
    int n_lost = 0;
    tdm_status status = TDM_UNAVAILABLE;
    for (int n = 1; status != TDM_OK; n += (n < 40 ? 1 : 7) * step) {
        tdm_runtime *rt = card_runtime((const tdm_option[]){{"exchange", exchange}, {NULL, NULL}});
        tdm_open_device *group = NULL;
        memset(&err, 0, sizeof err);
        RIG_OK(card_group(rt, "d0,d1,c2", "1,1,1", NULL, &group, &err));
        card_set(lost, "lose-in", n);
        status = card_run(rt, group, &cache, got, &err);
        if (status != TDM_OK) {
            n_lost++;
            if (status != TDM_UNAVAILABLE || strstr(err.message, "lost") == NULL ||
                strstr(err.message, name) == NULL)
                fail_msg("exchange %s, %s lost at call %d: %s", exchange, lost, n, err.message);
        }
        tdm_runtime_destroy(rt);
        assert_int_equal(card_live(), 0);
    }
    assert_true(n_lost * step >= 40);
}

static void test_member_lost(void **state) {
    (void)state;
    member_lost("yes", "c1", "c1", LOSS_STEP);
    member_lost("phases", "c0", "c0", LOSS_STEP);
    member_lost("no", "c1", "c1", LOSS_STEP);
    member_lost("phases,yes", "c1", "c1", LOSS_STEP);
    member_lost("yes,phases", "c0", "c0", LOSS_STEP);
}

/* The same while the group opens, when the members are tested. */
static void test_lost_in_the_probe(void **state) {
    (void)state;
    static const char *const ways[] = {"yes", "phases"};
    for (int w = 0; w < 2; w++) {
        tdm_status status = TDM_UNAVAILABLE;
        int n = 1;
        for (; status != TDM_OK; n += PROBE_STEP) {
            tdm_error err = {0};
            tdm_open_device *group = NULL;
            tdm_runtime *rt =
                card_runtime((const tdm_option[]){{"exchange", ways[w]}, {NULL, NULL}});
            card_device(rt, "d1");
            card_set("c1", "lose-in", n);
            status = card_group(rt, "d0,d1", "1,1", NULL, &group, &err);
            if (status != TDM_OK) assert_non_null(strstr(err.message, "lost"));
            /* A probe that fails makes the member exchange through the host; it is lost still. */
            card_rows got;
            if (status == TDM_OK && card_get("c1", "lost") == 1)
                status = card_run(rt, group, &cache, got, &err);
            tdm_runtime_destroy(rt);
            assert_int_equal(card_live(), 0);
            assert_true(n < 10000);
        }
        assert_true(n > 20);
    }
}

/* The same while the group measures its members. */
static void test_lost_when_measured(void **state) {
    (void)state;
    tdm_status status = TDM_UNAVAILABLE;
    int n_lost = 0;
    for (int n = 1; status != TDM_OK; n = n * MEASURE_TIMES + 1) {
        tdm_error err = {0};
        tdm_runtime *rt = card_runtime((const tdm_option[]){{"exchange", "yes"}, {NULL, NULL}});
        tdm_open_device *group = NULL;
        llm_model *model = NULL;
        tdm_split_report report = {.struct_size = sizeof report,
                                   .member_size = sizeof(tdm_split_member)};
        RIG_OK(card_group(rt, "d0,d1", "1,1", NULL, &group, &err));
        RIG_OK(llm_model_open(card_model, &model, &err));
        card_set("c1", "lose-in", n);
        status = llm_model_report(model, group, NULL, 1, 1, &report, &err);
        if (status != TDM_OK) {
            n_lost++;
            assert_non_null(strstr(err.message, "lost"));
        }
        llm_model_close(model);
        tdm_runtime_destroy(rt);
        assert_int_equal(card_live(), 0);
    }
    assert_true(n_lost >= 3);
}

/* ---- Blocked drivers ---- */

/* Members that were abandoned share memory with the group in ways that a thread sanitizer cannot
 * follow. */
#if defined(__SANITIZE_THREAD__)
#define SKIP_WHERE_READS_ARE_WATCHED() skip()
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SKIP_WHERE_READS_ARE_WATCHED() skip()
#endif
#endif
#ifndef SKIP_WHERE_READS_ARE_WATCHED
#define SKIP_WHERE_READS_ARE_WATCHED() (void)0
#endif

/* `key` makes a call of c1 block, or its computation never end, until it is released. The group
 * gives up on the member by its timeout, refuses runs, and works again afterwards. */
static void member_blocks(const char *exchange, const char *key, int n) {
    tdm_error err = {0};
    tdm_runtime *rt = card_runtime((const tdm_option[]){{"exchange", exchange}, {NULL, NULL}});
    tdm_open_device *group = NULL;
    const tdm_option timeout = {"timeout", "0.5"};
    llm_model *model = NULL;
    llm_context *ctx = NULL;
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
    card_rows got, want;
    RIG_OK(card_group(rt, "d0,d1,c2", "1,1,1", &timeout, &group, &err));
    RIG_OK(llm_model_open(card_model, &model, &err));
    RIG_OK(llm_model_load(model, rt, &group, 1, NULL, NULL, &err));
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    RIG_OK(card_decode(ctx, want, &err));
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    card_set("c1", key, n);
    double begin = seconds();
    tdm_status status = card_decode(ctx, got, &err);
    if (status != TDM_DEADLINE_EXCEEDED || strstr(err.message, "'d1'") == NULL)
        fail_msg("exchange %s, %s: status %d: %s", exchange, key, (int)status, err.message);
    assert_true(seconds() - begin < 30);
    llm_context_destroy(ctx);
    ctx = NULL;
    card_set("c1", "release", 0);
    begin = seconds();
    do {
        llm_context_destroy(ctx);
        ctx = NULL;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        status = llm_context_create(model, &params, &ctx, &err);
        if (status == TDM_OK) status = card_decode(ctx, got, &err);
    } while (status != TDM_OK && seconds() - begin < 30);
    RIG_OK(status);
    assert_memory_equal(got, want, sizeof want);
    llm_context_destroy(ctx);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
    assert_int_equal(card_live(), 0);
}

static void test_blocked(void **state) {
    (void)state;
    SKIP_WHERE_READS_ARE_WATCHED();
    member_blocks("yes", "block-in", 1);
    member_blocks("phases", "block-in", 3);
    member_blocks("yes", "hang-in", 2);
    member_blocks("phases", "hang-in", 4);
    member_blocks("no", "hang-in", 4);
}

/* ---- Two groups over the same devices ---- */

typedef struct decoder {
    llm_context *ctx;
    card_rows want;
    tdm_error err;
    int n_done;
} decoder;

static void *decoder_main(void *arg) {
    decoder *d = arg;
    card_rows got;
    for (int i = 0; i < 12; i++) {
        if (llm_context_truncate(d->ctx, 0, 0, &d->err) != TDM_OK ||
            card_decode(d->ctx, got, &d->err) != TDM_OK || memcmp(got, d->want, sizeof got) != 0)
            break;
        d->n_done++;
    }
    return NULL;
}

/* "d0,d1" and "d1,d0", each from a thread of its own, with drivers that take one computation at a
 * time. */
static void test_groups_crosswise(void **state) {
    (void)state;
    static const char *const ways[] = {"yes", "phases", "phases,yes", "no"};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        static decoder decoders[2];
        static const char *const members[] = {"d0,d1", "d1,d0"};
        tdm_error err = {0};
        tdm_runtime *rt = card_runtime(
            (const tdm_option[]){{"exchange", ways[w]}, {"launch-bound", "1"}, {NULL, NULL}});
        llm_model *models[2];
        pthread_t threads[2];
        const llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64};
        for (int g = 0; g < 2; g++) {
            tdm_open_device *group = NULL;
            decoders[g].n_done = 0;
            RIG_OK(card_group(rt, members[g], "1,1", NULL, &group, &err));
            RIG_OK(llm_model_open(card_model, &models[g], &err));
            RIG_OK(llm_model_load(models[g], rt, &group, 1, NULL, NULL, &err));
            RIG_OK(llm_context_create(models[g], &params, &decoders[g].ctx, &err));
            RIG_OK(card_decode(decoders[g].ctx, decoders[g].want, &err));
        }
        for (int g = 0; g < 2; g++)
            assert_int_equal(pthread_create(&threads[g], NULL, decoder_main, &decoders[g]), 0);
        for (int g = 0; g < 2; g++) pthread_join(threads[g], NULL);
        for (int g = 0; g < 2; g++) {
            if (decoders[g].n_done != 12)
                fail_msg("exchange %s, group %d: %d runs, %s", ways[w], g, decoders[g].n_done,
                         decoders[g].err.message);
            llm_context_destroy(decoders[g].ctx);
            llm_model_close(models[g]);
        }
        tdm_runtime_destroy(rt);
        assert_int_equal(card_live(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_at_every_call),
        cmocka_unit_test(test_lost_in_the_probe),
        cmocka_unit_test(test_lost_when_measured),
        cmocka_unit_test(test_member_lost),
        cmocka_unit_test(test_blocked),
        cmocka_unit_test(test_groups_crosswise),
    };
    return cmocka_run_group_tests(tests, card_begin, rig_end);
}
