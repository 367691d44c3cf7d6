/* SPDX-License-Identifier: MIT
 *
 * test_kv_cache.c: the page bookkeeping of the cache: each sentence of llm/cache/kv_cache.h on
 * small cases, then random operations against a model that records the contents of every cell.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/cache/kv_cache.h"
#include "tests/support/random.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error ok_err = {0}, *err = &ok_err;                                                    \
        if ((call) != TDM_OK) fail_msg("%s", ok_err.message);                                      \
    } while (0)

/* The call fails with this status and a message that has `text`. */
#define FAILS(status_, text, call)                                                                 \
    do {                                                                                           \
        tdm_error fails_err = {0}, *err = &fails_err;                                              \
        const tdm_status fails_status = (call);                                                    \
        if (fails_status != (status_) || strstr(fails_err.message, text) == NULL)                  \
            fail_msg("expected %s with '%s', found %s: %s", tdm_status_text(status_), text,        \
                     tdm_status_text(fails_status), fails_err.message);                            \
    } while (0)

/* llm_kv_shift with its jobs as single arguments. */
static tdm_status kv_shift(llm_kv *kv, int32_t seq, int32_t n_keep, int32_t n_discard,
                           tdm_page_job *copies, int32_t *n_copy, tdm_page_job *shifts,
                           int32_t *n_shift, int32_t max_job, tdm_error *err) {
    llm_kv_shift_jobs jobs = {copies, shifts, max_job, -1, -1};
    tdm_status status = llm_kv_shift(kv, seq, n_keep, n_discard, &jobs, err);
    *n_copy = jobs.n_copy;
    *n_shift = jobs.n_shift;
    return status;
}

/* The linker sends llm_kv_create's calls here (--wrap). */
static int calloc_count, calloc_fails_at;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) {
    return ++calloc_count == calloc_fails_at ? NULL : __real_calloc(n, size);
}

static int32_t page_len_made; /* of the cache that was made last */

static llm_kv *make(int32_t n_page, int32_t page_len, int32_t n_seq) {
    llm_kv *kv = NULL;
    OK(llm_kv_create(n_page, page_len, n_seq, &kv, err));
    page_len_made = page_len;
    return kv;
}

/* Pages that no sequence uses. What is left in a sequence's last page is less than a page. */
static int32_t free_pages(const llm_kv *kv) {
    return (int32_t)(llm_kv_room(kv, 0) / page_len_made);
}

static void entry_is(const llm_kv *kv, int32_t seq, int32_t i, int32_t page, int32_t first,
                     int32_t count, int32_t base_pos) {
    assert_true(i < llm_kv_entry_count(kv, seq));
    const tdm_page_entry e = llm_kv_entries(kv, seq)[i];
    if (e.page != page || e.first != first || e.count != count || e.base_pos != base_pos)
        fail_msg("entry %d of sequence %d: expected {%d, %d, %d, %d}, found {%d, %d, %d, %d}", i,
                 seq, page, first, count, base_pos, e.page, e.first, e.count, e.base_pos);
}

static void job_is(const tdm_page_job *job, int32_t page, int32_t first, int32_t count,
                   int32_t arg) {
    if (job->page != page || job->first != first || job->count != count || job->arg != arg)
        fail_msg("expected job {%d, %d, %d, %d}, found {%d, %d, %d, %d}", page, first, count, arg,
                 job->page, job->first, job->count, job->arg);
}

/* ---- single cases ---------------------------------------------------------------------------- */

static void test_create(void **state) {
    (void)state;
    llm_kv *kv = NULL;
    FAILS(TDM_INVALID_ARGUMENT, "0 pages", llm_kv_create(0, 16, 1, &kv, err));
    assert_null(kv);
    FAILS(TDM_INVALID_ARGUMENT, "-1 sequences", llm_kv_create(4, 16, -1, &kv, err));
    FAILS(TDM_INVALID_ARGUMENT, "power of two", llm_kv_create(4, 24, 1, &kv, err));
    FAILS(TDM_INVALID_ARGUMENT, "power of two", llm_kv_create(4, 0, 1, &kv, err));
    FAILS(TDM_OUT_OF_RANGE, "reduce ctx-size", llm_kv_create(1 << 26, 64, 1, &kv, err));
    /* Every allocation fails once, and nothing is left of the others. */
    for (calloc_fails_at = 1; calloc_fails_at <= 6; calloc_fails_at++) {
        calloc_count = 0;
        FAILS(TDM_RESOURCE_EXHAUSTED, "reduce ctx-size", llm_kv_create(5, 16, 2, &kv, err));
        assert_null(kv);
    }
    calloc_fails_at = 0;
    assert_int_equal(llm_kv_create(0, 16, 1, &kv, NULL), TDM_INVALID_ARGUMENT);
    llm_kv_destroy(NULL);
    kv = make(5, 16, 2);
    assert_int_equal(free_pages(kv), 5);
    assert_int_equal(llm_kv_length(kv, 0), 0);
    assert_int_equal(llm_kv_entry_count(kv, 1), 0);
    assert_int_equal(llm_kv_room(kv, 1), 80);
    llm_kv_destroy(kv);
}

static void test_bad_arguments(void **state) {
    (void)state;
    llm_kv *kv = make(4, 4, 2);
    int32_t cells[16], n_copy = 7, n_shift = 7;
    tdm_page_job copies[16], shifts[16];
    OK(llm_kv_append(kv, 0, 6, cells, err));
    for (int32_t seq = -1; seq <= 2; seq += 3) {
        FAILS(TDM_INVALID_ARGUMENT, "no sequence", llm_kv_append(kv, seq, 1, cells, err));
        FAILS(TDM_INVALID_ARGUMENT, "no sequence", llm_kv_truncate(kv, seq, 0, err));
        FAILS(TDM_INVALID_ARGUMENT, "no sequence", llm_kv_fork(kv, seq, 0, 0, err));
        FAILS(TDM_INVALID_ARGUMENT, "no sequence", llm_kv_fork(kv, 1, seq, 0, err));
        FAILS(TDM_INVALID_ARGUMENT, "no sequence",
              kv_shift(kv, seq, 0, 1, copies, &n_copy, shifts, &n_shift, 16, err));
        assert_int_equal(n_copy + n_shift, 0);
        assert_int_equal(llm_kv_length(kv, seq), 0);
        assert_int_equal(llm_kv_room(kv, seq), 0);
        assert_int_equal(llm_kv_entry_count(kv, seq), 0);
        assert_null(llm_kv_entries(kv, seq));
    }
    FAILS(TDM_INVALID_ARGUMENT, "-1 tokens", llm_kv_append(kv, 0, -1, cells, err));
    FAILS(TDM_INVALID_ARGUMENT, "-1 tokens", llm_kv_truncate(kv, 0, -1, err));
    FAILS(TDM_FAILED_PRECONDITION, "truncate it", llm_kv_fork(kv, 0, 1, 0, err));
    FAILS(TDM_FAILED_PRECONDITION, "truncate it", llm_kv_fork(kv, 0, 0, 1, err));
    FAILS(TDM_OUT_OF_RANGE, "it holds 6", llm_kv_fork(kv, 1, 0, 7, err));
    FAILS(TDM_OUT_OF_RANGE, "-1 tokens", llm_kv_fork(kv, 1, 0, -1, err));
    const int32_t wrong[][2] = {{-1, 2}, {0, -1}, {3, 4}, {7, 0}, {INT32_MAX, INT32_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FAILS(
            TDM_OUT_OF_RANGE, "of 6",
            kv_shift(kv, 0, wrong[i][0], wrong[i][1], copies, &n_copy, shifts, &n_shift, 16, err));
    FAILS(TDM_INVALID_ARGUMENT, "room for 1 jobs",
          kv_shift(kv, 0, 1, 1, copies, &n_copy, shifts, &n_shift, 1, err));
    assert_int_equal(n_copy + n_shift, 0);
    OK(llm_kv_append(kv, 0, 0, NULL, err));
    assert_int_equal(llm_kv_length(kv, 0), 6);
    assert_int_equal(free_pages(kv), 2);
    llm_kv_destroy(kv);
}

static void test_append(void **state) {
    (void)state;
    llm_kv *kv = make(4, 4, 2);
    int32_t cells[16];
    OK(llm_kv_append(kv, 0, 6, cells, err));
    for (int32_t i = 0; i < 6; i++) assert_int_equal(cells[i], i);
    OK(llm_kv_append(kv, 1, 1, cells, err));
    assert_int_equal(cells[0], 8);
    OK(llm_kv_append(kv, 0, 3, cells, err)); /* two behind the last, then a page */
    assert_int_equal(cells[0], 6);
    assert_int_equal(cells[1], 7);
    assert_int_equal(cells[2], 12);
    assert_int_equal(llm_kv_entry_count(kv, 0), 3);
    entry_is(kv, 0, 2, 3, 0, 1, 8);
    assert_int_equal(llm_kv_room(kv, 0), 3);
    FAILS(TDM_RESOURCE_EXHAUSTED, "need 2 pages more", llm_kv_append(kv, 0, 8, cells, err));
    FAILS(TDM_RESOURCE_EXHAUSTED, "larger ctx-size", llm_kv_append(kv, 0, 4, cells, err));
    assert_int_equal(llm_kv_length(kv, 0), 9);
    OK(llm_kv_append(kv, 0, 3, cells, err));
    assert_int_equal(llm_kv_room(kv, 0), 0);
    llm_kv_destroy(kv);
}

static void test_truncate(void **state) {
    (void)state;
    llm_kv *kv = make(4, 4, 2);
    int32_t cells[16];
    OK(llm_kv_append(kv, 0, 11, cells, err));
    OK(llm_kv_truncate(kv, 0, 12, err));
    assert_int_equal(llm_kv_length(kv, 0), 11);
    OK(llm_kv_truncate(kv, 0, 5, err));
    assert_int_equal(free_pages(kv), 2);
    entry_is(kv, 0, 1, 1, 0, 1, 4);
    OK(llm_kv_append(kv, 0, 1, cells, err)); /* behind what is left, in the same page */
    assert_int_equal(cells[0], 5);
    OK(llm_kv_truncate(kv, 0, 4, err));
    assert_int_equal(free_pages(kv), 3);
    OK(llm_kv_truncate(kv, 0, 0, err));
    assert_int_equal(free_pages(kv), 4);
    assert_int_equal(llm_kv_entry_count(kv, 0), 0);
    llm_kv_destroy(kv);
}

static void test_fork(void **state) {
    (void)state;
    llm_kv *kv = make(6, 4, 3);
    int32_t cells[16];
    OK(llm_kv_append(kv, 0, 6, cells, err));
    OK(llm_kv_fork(kv, 1, 0, 5, err));
    assert_int_equal(free_pages(kv), 4);
    entry_is(kv, 1, 1, 1, 0, 1, 4);
    assert_int_equal(llm_kv_room(kv, 1), 16); /* nothing in the shared page */
    assert_int_equal(llm_kv_room(kv, 0), 16);
    OK(llm_kv_append(kv, 1, 1, cells, err));
    assert_int_equal(cells[0], 8);
    OK(llm_kv_append(kv, 0, 1, cells, err));
    assert_int_equal(cells[0], 12);
    entry_is(kv, 0, 2, 3, 0, 1, 6);
    /* What others still use stays; a page is free only when no sequence uses it. */
    OK(llm_kv_truncate(kv, 0, 0, err));
    assert_int_equal(free_pages(kv), 3);
    /* Now it is the sequence's own, and what the other stored behind is gone. */
    OK(llm_kv_truncate(kv, 1, 5, err));
    OK(llm_kv_append(kv, 1, 1, cells, err));
    assert_int_equal(cells[0], 5);
    /* A fork at the end of a page shares no page that it does not need. */
    OK(llm_kv_fork(kv, 2, 1, 4, err));
    OK(llm_kv_append(kv, 1, 1, cells, err));
    assert_int_equal(cells[0], 6);
    OK(llm_kv_truncate(kv, 2, 0, err));
    OK(llm_kv_fork(kv, 2, 1, 0, err));
    assert_int_equal(llm_kv_entry_count(kv, 2), 0);
    llm_kv_destroy(kv);
}

/* A sequence that was forked inside a page goes on in a copy of it, the other one in the page. */
static void test_own_tail(void **state) {
    (void)state;
    llm_kv *kv = make(4, 4, 3);
    int32_t cells[16];
    tdm_page_job copies[16];
    assert_int_equal(llm_kv_own_tail(kv, 0, copies), 0); /* empty */
    assert_int_equal(llm_kv_own_tail(kv, -1, copies), 0);
    assert_int_equal(llm_kv_own_tail(kv, 3, copies), 0);
    OK(llm_kv_append(kv, 0, 7, cells, err));
    assert_int_equal(llm_kv_own_tail(kv, 0, copies), 0); /* it is its own */
    assert_int_equal(llm_kv_own_count(kv, 0), 2);
    OK(llm_kv_fork(kv, 1, 0, 6, err));
    assert_int_equal(llm_kv_own_count(kv, 0), 0);
    assert_int_equal(llm_kv_own_tail(kv, 1, copies), 1);
    assert_int_equal(llm_kv_own_count(kv, 0), 1);
    assert_int_equal(llm_kv_own_count(kv, 1), 1);
    assert_int_equal(llm_kv_own_count(kv, -1), 0);
    job_is(&copies[0], 2, 0, 2, 1);
    entry_is(kv, 1, 0, 0, 0, 4, 0);
    entry_is(kv, 1, 1, 2, 0, 2, 4);
    OK(llm_kv_append(kv, 1, 1, cells, err));
    assert_int_equal(cells[0], 10);
    OK(llm_kv_append(kv, 0, 1, cells, err));
    assert_int_equal(cells[0], 7);
    /* A whole page is shared. */
    OK(llm_kv_fork(kv, 2, 0, 8, err));
    assert_int_equal(llm_kv_own_tail(kv, 2, copies), 0);
    /* Without a free page nothing changes. */
    OK(llm_kv_truncate(kv, 2, 0, err));
    OK(llm_kv_fork(kv, 2, 1, 6, err));
    OK(llm_kv_append(kv, 0, 1, cells, err));
    assert_int_equal(free_pages(kv), 0);
    assert_int_equal(llm_kv_own_tail(kv, 2, copies), 0);
    entry_is(kv, 2, 1, 2, 0, 2, 4);
    llm_kv_destroy(kv);
}

static void test_shift_in_place(void **state) {
    (void)state;
    llm_kv *kv = make(4, 8, 1);
    int32_t cells[32], n_copy, n_shift;
    tdm_page_job copies[32], shifts[32];
    const int32_t max = llm_kv_max_jobs(kv);
    assert_true(max <= 32);
    OK(llm_kv_append(kv, 0, 20, cells, err));
    OK(kv_shift(kv, 0, 20, 0, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(n_copy + n_shift, 0);
    /* Both ends inside the first page: it is cut in two, and stays one page. */
    OK(kv_shift(kv, 0, 2, 3, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(n_copy, 0);
    assert_int_equal(n_shift, 3);
    job_is(&shifts[0], 0, 5, 3, -3);
    job_is(&shifts[1], 1, 0, 8, -3);
    job_is(&shifts[2], 2, 0, 4, -3);
    assert_int_equal(llm_kv_entry_count(kv, 0), 4);
    assert_int_equal(llm_kv_own_count(kv, 0), 3); /* pages, not pieces */
    entry_is(kv, 0, 0, 0, 0, 2, 0);
    entry_is(kv, 0, 1, 0, 5, 3, 2);
    entry_is(kv, 0, 2, 1, 0, 8, 5);
    entry_is(kv, 0, 3, 2, 0, 4, 13);
    assert_int_equal(llm_kv_length(kv, 0), 17);
    /* Cut back to the second piece of the page: the next token goes behind it, not into the
     * hole. */
    OK(llm_kv_truncate(kv, 0, 4, err));
    OK(llm_kv_append(kv, 0, 1, cells, err));
    assert_int_equal(cells[0], 7);
    /* And to the first: the slots behind are free again. */
    OK(llm_kv_truncate(kv, 0, 2, err));
    assert_int_equal(free_pages(kv), 3);
    OK(llm_kv_append(kv, 0, 18, cells, err));
    assert_int_equal(cells[0], 2);
    /* Whole pages leave and are free; the tail moves. */
    OK(kv_shift(kv, 0, 0, 16, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(n_shift, 1);
    assert_int_equal(shifts[0].arg, -16);
    assert_int_equal(free_pages(kv), 3);
    /* Everything behind n_keep discarded: nothing to move. */
    OK(kv_shift(kv, 0, 1, 3, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(n_copy + n_shift, 0);
    assert_int_equal(llm_kv_length(kv, 0), 1);
    OK(kv_shift(kv, 0, 0, 1, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(free_pages(kv), 4);
    llm_kv_destroy(kv);
}

static void test_shift_shared(void **state) {
    (void)state;
    llm_kv *kv = make(6, 8, 2);
    int32_t cells[48], n_copy, n_shift;
    tdm_page_job copies[32], shifts[32];
    const int32_t max = llm_kv_max_jobs(kv);
    assert_true(max <= 32);
    OK(llm_kv_append(kv, 0, 28, cells, err));
    OK(llm_kv_fork(kv, 1, 0, 26, err));
    /* Page 0 is kept whole and stays shared, so does page 1, of which the rest is discarded; page
     * 2 is the other's alone now; of page 3 only what moves is copied. */
    OK(kv_shift(kv, 1, 10, 14, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(n_copy, 1);
    job_is(&copies[0], 4, 0, 2, 3);
    assert_int_equal(n_shift, 1);
    job_is(&shifts[0], 4, 0, 2, -14);
    assert_int_equal(llm_kv_entry_count(kv, 1), 3);
    entry_is(kv, 1, 0, 0, 0, 8, 0);
    entry_is(kv, 1, 1, 1, 0, 2, 8);
    entry_is(kv, 1, 2, 4, 0, 2, 10);
    assert_int_equal(free_pages(kv), 1);
    /* Both pieces of page 0 go to one page, the hole does not; page 1 would need another. */
    FAILS(TDM_RESOURCE_EXHAUSTED, "copies 2 shared pages, 1 of 6 are free",
          kv_shift(kv, 1, 2, 3, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(n_copy + n_shift, 0);
    assert_int_equal(llm_kv_length(kv, 1), 12);
    entry_is(kv, 1, 0, 0, 0, 8, 0);
    OK(llm_kv_truncate(kv, 1, 8, err));
    OK(kv_shift(kv, 1, 2, 3, copies, &n_copy, shifts, &n_shift, max, err));
    assert_int_equal(n_copy, 2);
    const int32_t page = copies[0].page;
    job_is(&copies[0], page, 0, 2, 0);
    job_is(&copies[1], page, 5, 3, 0);
    assert_int_equal(n_shift, 1);
    job_is(&shifts[0], page, 5, 3, -3);
    entry_is(kv, 0, 0, 0, 0, 8, 0); /* the other sequence is as it was */
    assert_int_equal(llm_kv_length(kv, 0), 28);
    llm_kv_destroy(kv);
}

static void test_shift_into_freed(void **state) {
    (void)state;
    llm_kv *kv = make(4, 4, 2);
    int32_t cells[16], n_copy, n_shift;
    tdm_page_job copies[16], shifts[16];
    OK(llm_kv_append(kv, 0, 4, cells, err));
    OK(llm_kv_append(kv, 0, 8, cells, err));
    OK(llm_kv_fork(kv, 1, 0, 8, err));
    OK(llm_kv_append(kv, 1, 4, cells, err));
    assert_int_equal(free_pages(kv), 0);
    /* The page discarded is the other's too, so that its leaving frees nothing. */
    FAILS(TDM_RESOURCE_EXHAUSTED, "copies 1 shared pages, 0 of 4 are free",
          kv_shift(kv, 1, 0, 4, copies, &n_copy, shifts, &n_shift, 16, err));
    /* This one leaves a page of its own, and needs none. */
    OK(kv_shift(kv, 1, 8, 4, copies, &n_copy, shifts, &n_shift, 16, err));
    assert_int_equal(n_copy + n_shift, 0);
    assert_int_equal(free_pages(kv), 1);
    OK(llm_kv_truncate(kv, 1, 0, err));

    /* Own, shared: no page is free, but the shift frees the one it copies to. The tail of a shared
     * prefix is own after a shift of the front. */
    OK(llm_kv_truncate(kv, 0, 8, err));
    OK(llm_kv_fork(kv, 1, 0, 8, err));
    OK(kv_shift(kv, 1, 0, 1, copies, &n_copy, shifts, &n_shift, 16, err));
    assert_int_equal(n_copy, 2);
    OK(llm_kv_truncate(kv, 0, 0, err));
    assert_int_equal(free_pages(kv), 2);
    OK(llm_kv_append(kv, 1, 4, cells, err));
    OK(llm_kv_append(kv, 0, 4, cells, err));
    assert_int_equal(free_pages(kv), 0);
    OK(kv_shift(kv, 1, 0, 3, copies, &n_copy, shifts, &n_shift, 16, err));
    assert_int_equal(n_copy, 0);
    assert_int_equal(n_shift, 2);
    assert_int_equal(free_pages(kv), 1);
    llm_kv_destroy(kv);
}

/* ---- random operations against a model ------------------------------------------------------- */

enum { PAGES = 14, PAGE_LEN = 8, SEQS = 5, CELLS = PAGES * PAGE_LEN, OPERATIONS = 100000 };

typedef struct model {
    uint64_t random;
    llm_kv *kv;
    int32_t next_token;
    int32_t content[CELLS]; /* which token was written last into a cell, 0 = none */
    int32_t pos[CELLS];     /* the position that its rotation is for */
    int32_t n_tok[SEQS];
    int32_t tokens[SEQS][CELLS]; /* what each sequence should read */
    int64_t n_done[4], n_refused[4], n_copied, n_extra;
} model;

static int32_t draw(model *m, int32_t n) { /* 0 .. n-1 */
    return (int32_t)random_u32_below(&m->random, (uint32_t)n);
}

/* The sequences that refer to a page, a bit each, by their entries. */
static void users(const model *m, uint32_t users_out[PAGES]) {
    memset(users_out, 0, PAGES * sizeof *users_out);
    for (int32_t s = 0; s < SEQS; s++)
        for (int32_t i = 0; i < llm_kv_entry_count(m->kv, s); i++)
            users_out[llm_kv_entries(m->kv, s)[i].page] |= 1u << s;
}

static int32_t count_free(const uint32_t used_by[PAGES]) {
    int32_t n = 0;
    for (int32_t p = 0; p < PAGES; p++) n += used_by[p] == 0;
    return n;
}

/* Every sequence reads what it should, no page is lost, no entry is out of bounds. */
static void model_check(const model *m) {
    uint32_t used_by[PAGES];
    users(m, used_by);
    assert_int_equal(free_pages(m->kv), count_free(used_by));
    for (int32_t s = 0; s < SEQS; s++) {
        const tdm_page_entry *e = llm_kv_entries(m->kv, s);
        bool seen[CELLS] = {false};
        int32_t pos = 0;
        assert_int_equal(llm_kv_length(m->kv, s), m->n_tok[s]);
        for (int32_t i = 0; i < llm_kv_entry_count(m->kv, s); i++, e++) {
            assert_true(e->page >= 0 && e->page < PAGES && e->first >= 0 && e->count > 0 &&
                        e->first + e->count <= PAGE_LEN);
            assert_int_equal(e->base_pos, pos);
            for (int32_t k = 0; k < e->count; k++, pos++) {
                const int32_t cell = e->page * PAGE_LEN + e->first + k;
                assert_true(pos < m->n_tok[s]);
                assert_false(seen[cell]);
                seen[cell] = true;
                if (m->content[cell] != m->tokens[s][pos] || m->pos[cell] != pos)
                    fail_msg("sequence %d, position %d, cell %d: token %d turned for %d, expected "
                             "token %d",
                             s, pos, cell, m->content[cell], m->pos[cell], m->tokens[s][pos]);
            }
        }
        assert_int_equal(pos, m->n_tok[s]);
    }
}

static void model_append(model *m, int32_t s, int32_t n) {
    uint32_t used_by[PAGES];
    int32_t cells[CELLS + 1];
    users(m, used_by);
    const int32_t n_entry = llm_kv_entry_count(m->kv, s);
    int64_t room = (int64_t)count_free(used_by) * PAGE_LEN;
    if (n_entry > 0) {
        const tdm_page_entry last = llm_kv_entries(m->kv, s)[n_entry - 1];
        if (used_by[last.page] == 1u << s) room += PAGE_LEN - last.first - last.count;
    }
    assert_int_equal(llm_kv_room(m->kv, s), room);
    tdm_error err = {0};
    const tdm_status status = llm_kv_append(m->kv, s, n, cells, &err);
    assert_int_equal(status, n <= room ? TDM_OK : TDM_RESOURCE_EXHAUSTED);
    m->n_done[0]++;
    m->n_refused[0] += status != TDM_OK;
    if (status != TDM_OK) return;
    for (int32_t i = 0; i < n; i++) {
        assert_true(cells[i] >= 0 && cells[i] < CELLS);
        /* Only what is the sequence's alone may be written. */
        assert_int_equal(used_by[cells[i] / PAGE_LEN] & ~(1u << s), 0);
        m->content[cells[i]] = ++m->next_token;
        m->pos[cells[i]] = m->n_tok[s];
        m->tokens[s][m->n_tok[s]++] = m->next_token;
    }
}

/* Pages that must be copied less those that the shift frees itself. */
static int32_t pages_missing(const model *m, int32_t s, int32_t n_keep, int32_t n_discard,
                             const uint32_t used_by[PAGES]) {
    bool is_kept[PAGES] = {false}, is_moved[PAGES] = {false};
    const tdm_page_entry *e = llm_kv_entries(m->kv, s);
    for (int32_t i = 0; i < llm_kv_entry_count(m->kv, s); i++)
        for (int32_t pos = e[i].base_pos; pos < e[i].base_pos + e[i].count; pos++) {
            is_kept[e[i].page] |= pos < n_keep;
            is_moved[e[i].page] |= pos >= n_keep + n_discard;
        }
    int32_t n = -count_free(used_by);
    for (int32_t p = 0; p < PAGES; p++) {
        if (!(used_by[p] & (1u << s))) continue;
        const bool is_shared = used_by[p] != 1u << s;
        n += is_moved[p] && is_shared;
        n -= !is_moved[p] && !is_kept[p] && !is_shared;
    }
    return n;
}

/* A sequence, if there is a page for it, gets one of its own for its last tokens. */
static void model_own_tail(model *m, int32_t s) {
    uint32_t used_by[PAGES];
    tdm_page_job copies[CELLS];
    const bool has_free = free_pages(m->kv) > 0;
    users(m, used_by);
    const int32_t n = llm_kv_own_tail(m->kv, s, copies);
    assert_true(n == 0 || has_free);
    for (int32_t j = 0; j < n; j++) {
        assert_true(used_by[copies[j].arg] & (1u << s) && used_by[copies[j].arg] != 1u << s);
        assert_int_equal(used_by[copies[j].page], 0);
        for (int32_t k = copies[j].first; k < copies[j].first + copies[j].count; k++) {
            const int32_t to = copies[j].page * PAGE_LEN + k;
            m->content[to] = m->content[copies[j].arg * PAGE_LEN + k];
            m->pos[to] = m->pos[copies[j].arg * PAGE_LEN + k];
        }
    }
    /* Then, and where the last page was full or the sequence's own already, all slots behind its
     * last token are free for it. */
    if (has_free && m->n_tok[s] > 0) {
        const tdm_page_entry *last = llm_kv_entries(m->kv, s) + llm_kv_entry_count(m->kv, s) - 1;
        assert_int_equal(llm_kv_room(m->kv, s) - (int64_t)free_pages(m->kv) * PAGE_LEN,
                         PAGE_LEN - last->first - last->count);
    }
}

static void model_shift(model *m, int32_t s, int32_t n_keep, int32_t n_discard) {
    uint32_t used_by[PAGES];
    tdm_page_job copies[CELLS], shifts[CELLS];
    tdm_page_entry before[CELLS];
    int32_t n_copy = -1, n_shift = -1;
    const int32_t n_before = llm_kv_entry_count(m->kv, s);
    users(m, used_by);
    memcpy(before, llm_kv_entries(m->kv, s), (size_t)n_before * sizeof *before);
    const bool is_possible = n_discard == 0 || pages_missing(m, s, n_keep, n_discard, used_by) <= 0;
    const tdm_status status = kv_shift(m->kv, s, n_keep, n_discard, copies, &n_copy, shifts,
                                       &n_shift, llm_kv_max_jobs(m->kv), NULL);
    m->n_done[3]++;
    m->n_refused[3] += status != TDM_OK;
    if (!is_possible) assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
    if (status != TDM_OK) {
        /* What is possible is refused only where the sequence would have too many entries. */
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_true(!is_possible || n_before + 1 >= llm_kv_max_jobs(m->kv) - PAGES);
        assert_int_equal(n_copy + n_shift, 0);
        assert_int_equal(llm_kv_entry_count(m->kv, s), n_before);
        assert_memory_equal(llm_kv_entries(m->kv, s), before, (size_t)n_before * sizeof *before);
        return;
    }
    bool is_target[PAGES] = {false}, is_shifted[CELLS] = {false}, is_copied[CELLS] = {false};
    for (int32_t j = 0; j < n_copy; j++) {
        const tdm_page_job job = copies[j];
        assert_true(job.arg >= 0 && job.arg < PAGES && !is_target[job.arg]);
        assert_true(used_by[job.arg] & (1u << s) && used_by[job.arg] != 1u << s);
        assert_int_equal(used_by[job.page] & ~(1u << s), 0);
        is_target[job.page] = true;
        for (int32_t k = job.first; k < job.first + job.count; k++) {
            const int32_t to = job.page * PAGE_LEN + k;
            assert_true(k < PAGE_LEN);
            assert_false(is_copied[to]);
            is_copied[to] = true;
            m->content[to] = m->content[job.arg * PAGE_LEN + k];
            m->pos[to] = m->pos[job.arg * PAGE_LEN + k];
            m->n_copied++;
        }
    }
    for (int32_t j = 0; j < n_shift; j++) {
        const tdm_page_job job = shifts[j];
        assert_int_equal(job.arg, -n_discard);
        assert_int_equal(used_by[job.page] & ~(1u << s), 0); /* of no other sequence */
        for (int32_t k = job.first; k < job.first + job.count; k++) {
            const int32_t cell = job.page * PAGE_LEN + k;
            assert_true(k < PAGE_LEN);
            assert_false(is_shifted[cell]);
            is_shifted[cell] = true;
            m->pos[cell] += job.arg;
        }
    }
    const int32_t n_moved = m->n_tok[s] - n_keep - n_discard;
    memmove(m->tokens[s] + n_keep, m->tokens[s] + n_keep + n_discard,
            (size_t)n_moved * sizeof **m->tokens);
    m->n_tok[s] -= n_discard;
    /* Nothing that stayed at its place was copied for nothing: every copied slot is read. */
    const tdm_page_entry *e = llm_kv_entries(m->kv, s);
    for (int32_t i = 0; i < llm_kv_entry_count(m->kv, s); i++)
        for (int32_t k = 0; k < e[i].count; k++)
            is_copied[e[i].page * PAGE_LEN + e[i].first + k] = 0;
    for (int32_t c = 0; c < CELLS; c++) assert_false(is_copied[c]);
}

static void model_run(uint64_t seed, int64_t n_operation) {
    model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->random = seed * 2 + 1;
    m->kv = make(PAGES, PAGE_LEN, SEQS);
    assert_true(llm_kv_max_jobs(m->kv) <= CELLS);
    for (int64_t i = 0; i < n_operation; i++) {
        const int32_t s = draw(m, SEQS), kind = draw(m, 16);
        if (kind < 7) {
            model_append(m, s, draw(m, 4) ? draw(m, PAGE_LEN) : draw(m, CELLS / 2));
        } else if (kind < 9) {
            const int32_t n = draw(m, 3) ? draw(m, m->n_tok[s] + 3) : 0;
            OK(llm_kv_truncate(m->kv, s, n, err));
            if (n < m->n_tok[s]) m->n_tok[s] = n;
            m->n_done[1]++;
        } else if (kind < 12) {
            const int32_t from = draw(m, SEQS), n = draw(m, m->n_tok[from] + 2);
            if (from != s && draw(m, 4)) {
                OK(llm_kv_truncate(m->kv, s, 0, err));
                m->n_tok[s] = 0;
            }
            const bool is_legal = m->n_tok[s] == 0 && n <= m->n_tok[from];
            const tdm_status status = llm_kv_fork(m->kv, s, from, n, NULL);
            assert_int_equal(status == TDM_OK, is_legal);
            m->n_done[2]++;
            m->n_refused[2] += !is_legal;
            if (is_legal) {
                memcpy(m->tokens[s], m->tokens[from], (size_t)n * sizeof **m->tokens);
                m->n_tok[s] = n;
                if (draw(m, 2)) model_own_tail(m, s);
            }
        } else {
            const int32_t n_keep = draw(m, m->n_tok[s] + 1);
            const int32_t n_left = m->n_tok[s] - n_keep;
            model_shift(m, s, n_keep, draw(m, (draw(m, 2) && n_left > 2 ? 2 : n_left) + 1));
        }
        model_check(m);
        m->n_extra += llm_kv_entry_count(m->kv, s);
    }
    print_message("seed %llu: append %lld (%lld refused), truncate %lld, fork %lld (%lld), "
                  "shift %lld (%lld), %lld slots copied, %.1f entries each\n",
                  (unsigned long long)seed, (long long)m->n_done[0], (long long)m->n_refused[0],
                  (long long)m->n_done[1], (long long)m->n_done[2], (long long)m->n_refused[2],
                  (long long)m->n_done[3], (long long)m->n_refused[3], (long long)m->n_copied,
                  (double)m->n_extra / (double)n_operation);
    /* Each kind of operation was done and, where that is possible, refused. */
    for (int32_t k = 0; k < 4; k++) {
        assert_true(m->n_done[k] - m->n_refused[k] > 100);
        assert_true(k == 1 || m->n_refused[k] > 10);
    }
    assert_true(m->n_copied > 1000);
    for (int32_t s = 0; s < SEQS; s++) OK(llm_kv_truncate(m->kv, s, 0, err));
    assert_int_equal(free_pages(m->kv), PAGES);
    llm_kv_destroy(m->kv);
    free(m);
}

static void test_random(void **state) {
    (void)state;
    model_run(test_seed("kv_cache", 20261120), OPERATIONS);
}

/* A sequence cut into as many pieces as it may be: the next cut is refused, appends go on. */
static void test_shreds(void **state) {
    (void)state;
    enum { N_PAGE = 8, LEN = 64 };
    llm_kv *kv = make(N_PAGE, LEN, 1);
    static int32_t cells[N_PAGE * LEN];
    static tdm_page_job copies[N_PAGE * LEN], shifts[N_PAGE * LEN];
    int32_t n_copy, n_shift, keep = 1;
    OK(llm_kv_append(kv, 0, (N_PAGE - 1) * LEN, cells, err));
    tdm_status status = TDM_OK;
    tdm_error err = {0};
    for (; status == TDM_OK; keep++)
        status =
            kv_shift(kv, 0, keep, 1, copies, &n_copy, shifts, &n_shift, llm_kv_max_jobs(kv), &err);
    assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "pieces"));
    assert_true(llm_kv_entry_count(kv, 0) <= llm_kv_max_jobs(kv));
    assert_true(llm_kv_entry_count(kv, 0) > 2 * N_PAGE);
    OK(llm_kv_append(kv, 0, (int32_t)llm_kv_room(kv, 0), cells, err));
    assert_true(llm_kv_entry_count(kv, 0) <= llm_kv_max_jobs(kv));
    assert_int_equal(free_pages(kv), 0);
    /* Discarding in whole pages is still possible. */
    OK(kv_shift(kv, 0, 0, llm_kv_length(kv, 0) - LEN, copies, &n_copy, shifts, &n_shift,
                llm_kv_max_jobs(kv), err));
    assert_int_equal(llm_kv_length(kv, 0), LEN);
    llm_kv_destroy(kv);
}

/* Tables that lack tokens: pages go back whole, shared ones with their last user, and a sequence
 * grows behind what it lacks. */
static void test_gaps(void **state) {
    (void)state;
    int32_t cells[40];
    llm_kv *kv = make(10, 4, 2);
    OK(llm_kv_append(kv, 0, 18, cells, err));
    assert_int_equal(llm_kv_free_count(kv), 5);
    llm_kv_forget(kv, 0, 1, 4); /* a part of a page stays */
    assert_int_equal(llm_kv_free_count(kv), 5);
    llm_kv_forget(kv, 0, 4, 11);
    assert_int_equal(llm_kv_free_count(kv), 6);
    assert_int_equal(llm_kv_entry_count(kv, 0), 4);
    assert_int_equal(llm_kv_length(kv, 0), 18);
    assert_int_equal(llm_kv_first(kv, 0), 8);
    assert_true(llm_kv_holds(kv, 0, 8, 18) && llm_kv_holds(kv, 0, 0, 4));
    assert_false(llm_kv_holds(kv, 0, 7, 18) || llm_kv_holds(kv, 0, 3, 5));
    assert_false(llm_kv_holds(kv, 0, 17, 19));
    OK(llm_kv_fork(kv, 1, 0, 18, err));
    llm_kv_forget(kv, 0, 0, 12);
    assert_int_equal(llm_kv_free_count(kv), 6); /* sequence 1 has them */
    llm_kv_forget(kv, 1, 0, 12);
    assert_int_equal(llm_kv_free_count(kv), 8);
    OK(llm_kv_append(kv, 1, 1, cells, err)); /* behind a shared page */
    assert_int_equal(llm_kv_entries(kv, 1)[llm_kv_entry_count(kv, 1) - 1].base_pos, 18);
    OK(llm_kv_truncate(kv, 1, 10, err)); /* in the gap */
    assert_int_equal(llm_kv_entry_count(kv, 1), 0);
    assert_int_equal(llm_kv_first(kv, 1), 10);
    llm_kv_skip(kv, 1, 13);
    OK(llm_kv_append(kv, 1, 2, cells, err));
    assert_int_equal(llm_kv_length(kv, 1), 15);
    entry_is(kv, 1, 0, cells[0] / 4, 0, 2, 13);
    OK(llm_kv_truncate(kv, 0, 0, err));
    OK(llm_kv_truncate(kv, 1, 0, err));
    assert_int_equal(llm_kv_free_count(kv), 10);
    llm_kv_destroy(kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gaps),          cmocka_unit_test(test_create),
        cmocka_unit_test(test_bad_arguments), cmocka_unit_test(test_append),
        cmocka_unit_test(test_truncate),      cmocka_unit_test(test_fork),
        cmocka_unit_test(test_own_tail),      cmocka_unit_test(test_shift_in_place),
        cmocka_unit_test(test_shift_shared),  cmocka_unit_test(test_shift_into_freed),
        cmocka_unit_test(test_shreds),        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests_name("kv_cache", tests, NULL, NULL);
}
