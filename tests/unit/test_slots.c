/* SPDX-License-Identifier: MIT
 *
 * test_slots.c: slots of recurrent states: what holds a slot, which snapshot is found, and which are
 * given up when slots run out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "llm/cache/slots.h"

enum { N_SLOT = 9 };

static llm_slots *make(void) {
    llm_slots *slots = NULL;
    tdm_error err = {0};
    assert_int_equal(llm_slots_create(N_SLOT, 2, &slots, &err), TDM_OK);
    return slots;
}

/* Takes a slot for a snapshot and leaves it to the snapshot. */
static int32_t keep(llm_slots *s, int32_t seq, int32_t n_tok, bool is_draft) {
    int32_t slot = llm_slots_take(s, is_draft);
    llm_slots_snapshot(s, seq, n_tok, slot, is_draft);
    llm_slots_release(s, slot);
    return slot;
}

static int32_t found(llm_slots *s, int32_t seq, int32_t n_tok) {
    int32_t slot;
    return llm_slots_find(s, seq, n_tok, &slot);
}

static void test_find(void **state) {
    llm_slots *s = make();
    int32_t slot = 7;
    (void)state;
    assert_int_equal(llm_slots_current(s, 0), -1);
    assert_int_equal(llm_slots_find(s, 0, 100, &slot), 0);
    assert_int_equal(slot, -1);
    int32_t at_5 = keep(s, 0, 5, false), at_9 = keep(s, 0, 9, false);
    keep(s, 1, 8, false);
    assert_int_equal(found(s, 0, 4), 0);
    assert_int_equal(llm_slots_find(s, 0, 8, &slot), 5);
    assert_int_equal(slot, at_5);
    assert_int_equal(llm_slots_find(s, 0, 9, &slot), 9);
    assert_int_equal(slot, at_9);
    llm_slots_snapshot(s, 0, 5, at_9, false); /* another slot for the same length */
    assert_int_equal(llm_slots_find(s, 0, 5, &slot), 5);
    assert_int_equal(slot, at_9);
    llm_slots_drop(s, 0, 4);
    assert_int_equal(found(s, 0, 100), 0);
    assert_int_equal(found(s, 1, 100), 8);
    llm_slots_destroy(s);
}

/* A slot is free again when nothing names it: neither a sequence nor a snapshot nor a hold. */
static void test_holds(void **state) {
    llm_slots *s = make();
    int32_t slots[N_SLOT];
    (void)state;
    for (int i = 0; i < N_SLOT; i++) slots[i] = llm_slots_take(s, false);
    assert_int_equal(llm_slots_take(s, false), -1);
    assert_int_equal(llm_slots_take(s, true), -1);
    llm_slots_set(s, 0, slots[3]);
    llm_slots_hold(s, slots[3]);
    llm_slots_set(s, 1, slots[3]); /* two sequences share it */
    llm_slots_set(s, 0, -1);
    assert_int_equal(llm_slots_take(s, false), -1);
    llm_slots_set(s, 1, -1);
    assert_int_equal(llm_slots_take(s, false), slots[3]);
    llm_slots_destroy(s);
}

/* The snapshot that was used the longest time ago goes first. */
static void test_oldest(void **state) {
    llm_slots *s = make();
    (void)state;
    for (int32_t i = 1; i <= N_SLOT; i++) keep(s, 0, i, false);
    assert_int_equal(found(s, 0, 1), 1); /* used now */
    assert_true(llm_slots_take(s, false) >= 0);
    assert_int_equal(found(s, 0, 1), 1);
    assert_int_equal(found(s, 0, 2), 1); /* that of 2 tokens is gone */
    llm_slots_destroy(s);
}

/* A step takes slots for all of its drafts. They give up snapshots of earlier drafts, and of others
 * all but a third of the slots. A prompt gives up drafts before anything else. */
static void test_drafts(void **state) {
    llm_slots *s = make();
    (void)state;
    for (int32_t i = 1; i <= N_SLOT; i++) keep(s, 0, i, false);
    for (int32_t step = 0; step < 20; step++) {
        int32_t slots[N_SLOT], n = 0;
        while (n < N_SLOT && (slots[n] = llm_slots_take(s, true)) >= 0) n++;
        assert_int_equal(n, N_SLOT - N_SLOT / 3);
        for (int32_t i = 0; i < n; i++) {
            llm_slots_snapshot(s, 0, 1000 + step * N_SLOT + i, slots[i], true);
            llm_slots_release(s, slots[i]);
        }
    }
    assert_int_equal(found(s, 0, 999), N_SLOT);
    assert_int_equal(found(s, 0, N_SLOT - 1), N_SLOT - 1);
    assert_int_equal(found(s, 0, N_SLOT - 2), N_SLOT - 2);
    assert_int_equal(found(s, 0, N_SLOT - 3), 0);
    for (int32_t i = 0; i < N_SLOT - 3; i++) keep(s, 1, 10 + i, false);
    assert_int_equal(found(s, 0, 2000), N_SLOT); /* no draft is left */
    assert_int_equal(found(s, 0, N_SLOT - 2), N_SLOT - 2);
    llm_slots_destroy(s);
}

/* Where all others are held, a draft gets no slot rather than a snapshot's; a sequence gets it. */
static void test_draft_without_slot(void **state) {
    llm_slots *s = make();
    (void)state;
    keep(s, 0, 4, false);
    for (int i = 1; i < N_SLOT; i++) assert_true(llm_slots_take(s, false) >= 0);
    assert_int_equal(llm_slots_take(s, true), -1);
    assert_int_equal(found(s, 0, 4), 4);
    assert_true(llm_slots_take(s, false) >= 0);
    assert_int_equal(found(s, 0, 4), 0);
    llm_slots_destroy(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_holds),
        cmocka_unit_test(test_oldest),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_draft_without_slot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
