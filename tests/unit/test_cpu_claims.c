/* SPDX-License-Identifier: MIT
 *
 * test_cpu_claims.c: every item of a walk is claimed once: by one thread, by a late thread, in the
 * next round, and by several threads at the same time (plugins/cpu/exec/claims.h).
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/cpu/exec/claims.h"

enum { N_THREAD = 4, N_MOST = 2000 };

/* Claims of one node, and how often each of its items was claimed. */
typedef struct scene {
    cpu_claim of[N_THREAD];
    uint32_t round;
    cpu_claims claims;
    _Atomic int32_t n_taken[N_MOST];
    _Atomic int32_t n_wrong; /* invalid pieces; any thread counts them, the first thread reports */
} scene;

static void scene_begin(scene *s) {
    memset(s, 0, sizeof *s);
    s->claims = (cpu_claims){.round = &s->round, .of = s->of};
    s->round = 1;
}

static void pieces_take(scene *s, cpu_claim_walk *walk, int64_t n_most) {
    int64_t first, last;
    for (int64_t i = 0; i < n_most && cpu_claims_next(walk, &first, &last); i++) {
        bool is_right = 0 <= first && first < last && last <= walk->n &&
                        last - first <= walk->piece && first % walk->unit == 0;
        if (!is_right) atomic_fetch_add(&s->n_wrong, 1);
        for (int64_t k = first; k < last; k++) atomic_fetch_add(&s->n_taken[k], 1);
    }
}

static void all_taken(const scene *s, int64_t n, int32_t n_time) {
    assert_int_equal(s->n_wrong, 0);
    for (int64_t i = 0; i < N_MOST; i++) assert_int_equal(s->n_taken[i], i < n ? n_time : 0);
}

static cpu_worker worker(int32_t ith, int32_t nth) {
    return (cpu_worker){.ith = ith, .nth = nth};
}

/* Sizes that units, pieces and workers divide, and that they do not. */
static const struct {
    int64_t n, unit, piece;
} sizes[] = {{0, 1, 1},     {1, 1, 1},   {7, 2, 2},    {64, 2, 4},      {65, 2, 4},
             {100, 32, 32}, {3, 32, 64}, {999, 1, 10}, {1999, 16, 1024}};
enum { N_SIZE = sizeof sizes / sizeof sizes[0] };

static void who_comes_alone_claims_all(void **state) {
    (void)state;
    static scene s;
    for (int k = 0; k < N_SIZE; k++) {
        scene_begin(&s);
        /* a round for each worker, with nothing reset between them */
        for (int32_t ith = 0; ith < N_THREAD; ith++) {
            cpu_worker w = worker(ith, N_THREAD);
            cpu_claim_walk walk =
                cpu_claims_walk(&s.claims, &w, sizes[k].n, sizes[k].unit, sizes[k].piece);
            pieces_take(&s, &walk, N_MOST);
            all_taken(&s, sizes[k].n, ith + 1);
            s.round++;
        }
    }
}

static void who_comes_late_finds_what_is_left(void **state) {
    (void)state;
    static scene s;
    scene_begin(&s);
    cpu_worker early = worker(2, N_THREAD), late = worker(1, N_THREAD);
    cpu_claim_walk walk = cpu_claims_walk(&s.claims, &early, 400, 4, 20);
    int64_t first, last;
    /* 18 pieces: 5 of worker 2's own share, 5 of worker 3's, 5 of worker 0's, 3 of the late one's
     * */
    pieces_take(&s, &walk, 18);
    cpu_claim_walk second = cpu_claims_walk(&s.claims, &late, 400, 4, 20);
    assert_true(cpu_claims_next(&second, &first, &last));
    assert_int_equal(first, 160);
    for (int64_t i = first; i < last; i++) atomic_fetch_add(&s.n_taken[i], 1);
    pieces_take(&s, &second, N_MOST);
    all_taken(&s, 400, 1);
    assert_false(cpu_claims_next(&walk, &first, &last));
    assert_false(cpu_claims_next(&second, &first, &last));
}

/* A round's number repeats after 2^32 rounds, and 0 is a valid number. */
static void rounds_wrap(void **state) {
    (void)state;
    static scene s;
    scene_begin(&s);
    s.round = UINT32_MAX - 1;
    for (int32_t i = 0; i < 4; i++, s.round++) {
        cpu_worker w = worker(i, N_THREAD);
        cpu_claim_walk walk = cpu_claims_walk(&s.claims, &w, 77, 1, 3);
        pieces_take(&s, &walk, N_MOST);
        all_taken(&s, 77, i + 1);
    }
}

static void without_claims_it_is_the_own_share(void **state) {
    (void)state;
    static scene s;
    int64_t first, last, begin, end;
    for (int k = 0; k < N_SIZE; k++)
        for (int32_t nth = 1; nth <= N_THREAD; nth++)
            for (int32_t ith = 0; ith < nth; ith++) {
                scene_begin(&s);
                cpu_worker w = worker(ith, nth);
                cpu_claim_walk walk = cpu_claims_walk(nth == 1 ? &s.claims : NULL, &w, sizes[k].n,
                                                      sizes[k].unit, sizes[k].piece);
                cpu_worker_share(&w, sizes[k].n, sizes[k].unit, &begin, &end);
                assert_int_equal(cpu_claims_next(&walk, &first, &last), begin < end);
                if (begin < end) assert_true(first == begin && last == end);
                assert_false(cpu_claims_next(&walk, &first, &last));
            }
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { N_ROUND = 300 };

typedef struct player {
    scene *s;
    pthread_barrier_t *meeting;
    cpu_worker worker;
} player;

static void *player_main(void *arg) {
    player *p = arg;
    for (int i = 0; i < N_ROUND; i++) {
        cpu_claim_walk walk = cpu_claims_walk(&p->s->claims, &p->worker, 500, 2, 2);
        pieces_take(p->s, &walk, N_MOST);
        if (pthread_barrier_wait(p->meeting) == PTHREAD_BARRIER_SERIAL_THREAD) p->s->round++;
        pthread_barrier_wait(p->meeting);
    }
    return NULL;
}

static void threads_claim_each_piece_once(void **state) {
    (void)state;
    static scene s;
    pthread_barrier_t meeting;
    pthread_t threads[N_THREAD];
    player players[N_THREAD];
    scene_begin(&s);
    assert_int_equal(pthread_barrier_init(&meeting, NULL, N_THREAD), 0);
    for (int32_t i = 0; i < N_THREAD; i++) {
        players[i] = (player){&s, &meeting, worker(i, N_THREAD)};
        assert_int_equal(pthread_create(&threads[i], NULL, player_main, &players[i]), 0);
    }
    for (int i = 0; i < N_THREAD; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&meeting);
    all_taken(&s, 500, N_ROUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_alone_claims_all),
        cmocka_unit_test(who_comes_late_finds_what_is_left),
        cmocka_unit_test(rounds_wrap),
        cmocka_unit_test(without_claims_it_is_the_own_share),
        cmocka_unit_test(threads_claim_each_piece_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
