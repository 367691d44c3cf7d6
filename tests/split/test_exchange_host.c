/* SPDX-License-Identifier: MIT
 *
 * test_exchange_host.c: exchanges on the host (plugins/meta/exchange/exchange_host.c). Threads act
 * as members. Each result is compared bit for bit with the sum, part or gathering computed naively
 * here. Then the ways in which an exchange ends early.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "plugins/meta/exchange/arena.h"
#include "tests/support/random.h"

enum { MAX_RANK = 7, N_STAGE = 6, AREA = 1 << 22 };

typedef struct exchange {
    tdm_exchange_kind kind;
    tdm_type wire, type;
    int64_t ne[TDM_MAX_DIMS]; /* of the addends; of the result of a gather */
    int32_t axis;
    uint64_t senders;
    bool has_residual[MAX_RANK];
    int64_t first[MAX_RANK], len[MAX_RANK]; /* along axis */
    float *x[MAX_RANK], *residual[MAX_RANK];
    void *expected[MAX_RANK], *result[MAX_RANK];
} exchange;

typedef struct scene {
    int32_t n_rank;
    uint32_t epoch, base;
    meta_arena arena;
    exchange stages[N_STAGE];
    pthread_barrier_t start;
} scene;

static uint64_t seed;

static uint32_t draw(uint32_t below) {
    return random_u32_below(&seed, below);
}

static float draw_float(void) {
    switch (draw(40)) {
    case 0: return 0;
    case 1: return -0.0f;
    case 2: return 1e-39f; /* a denormal */
    case 3: return -1.2e-38f;
    case 4: return INFINITY;
    case 5: return draw(4) == 0 ? NAN : 3e38f;
    default: return ((float)draw(2000001) - 1e6f) / (float)(1u << draw(24));
    }
}

/* Denormal numbers and -0 count as +0. */
static float flushed(float x) {
    return fabsf(x) < 0x1p-126f ? 0 : x;
}

static float settled(float x) {
    return isnan(x) ? tdm_f32_from_bits(0x7fc00000) : flushed(x);
}

static int64_t index_of(const int64_t ne[4], const int64_t i[4]) {
    return ((i[3] * ne[2] + i[2]) * ne[1] + i[1]) * ne[0] + i[0];
}

/* The elements of a box of `whole`: along axis from first on, len of them; calls for each its place
 * in whole and in the box. */
typedef struct box {
    int64_t whole[4], ne[4], first[4], at[4];
    int64_t n, i;
} box;

static box box_begin(const int64_t whole[4], int32_t axis, int64_t first, int64_t len) {
    box b = {.n = 1};
    memcpy(b.whole, whole, sizeof b.whole);
    memcpy(b.ne, whole, sizeof b.ne);
    b.ne[axis] = len;
    b.first[axis] = first;
    for (int i = 0; i < 4; i++) b.n *= b.ne[i];
    return b;
}

static bool box_next(box *b, int64_t *in_whole, int64_t *in_box) {
    if (b->i >= b->n) return false;
    int64_t rest = b->i, at[4];
    for (int k = 0; k < 4; k++) {
        at[k] = rest % b->ne[k] + b->first[k];
        rest /= b->ne[k];
    }
    *in_whole = index_of(b->whole, at);
    *in_box = b->i++;
    return true;
}

static int64_t count_of(const int64_t ne[4]) {
    return ne[0] * ne[1] * ne[2] * ne[3];
}

/* ---- Making exchanges ------------------------------------------------------------------------ */

static void sum_expect(const scene *s, exchange *x) {
    int64_t n = count_of(x->ne), padded = (n + 31) / 32 * 32;
    float *sum = calloc((size_t)padded + 1, sizeof *sum);
    float *addend = calloc((size_t)padded + 1, sizeof *addend);
    uint8_t *wire = malloc((size_t)padded * 4 + 4);
    assert_true(sum != NULL && addend != NULL && wire != NULL);
    for (int32_t r = 0; r < s->n_rank; r++) {
        if ((x->senders >> r & 1) == 0) continue;
        memset(addend, 0, (size_t)padded * sizeof *addend);
        memcpy(addend, x->x[r], (size_t)n * sizeof *addend);
        assert_int_equal(tdm_row_quantize(x->wire, addend, wire, padded, NULL), TDM_OK);
        assert_int_equal(tdm_row_dequantize(x->wire, wire, addend, padded), TDM_OK);
        for (int64_t i = 0; i < n; i++) {
            volatile float both = sum[i] + flushed(addend[i]); /* from 0 */
            sum[i] = flushed(both);
        }
    }
    for (int32_t r = 0; r < s->n_rank; r++) {
        box b = box_begin(x->ne, x->axis, x->first[r], x->len[r]);
        float *expected = x->expected[r];
        for (int64_t i, j; box_next(&b, &i, &j);) {
            volatile float y = sum[i];
            if (x->has_residual[r]) y = y + flushed(x->residual[r][j]);
            expected[j] = settled(y);
        }
    }
    free(sum);
    free(addend);
    free(wire);
}

static void sum_make(const scene *s, exchange *x) {
    static const tdm_type wires[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16, TDM_TYPE_Q8_0};
    x->wire = wires[draw(4)];
    x->type = TDM_TYPE_F32;
    for (int i = 0; i < 4; i++) x->ne[i] = draw(3) == 0 ? 1 : 1 + draw(i == 0 ? 90 : 6);
    if (draw(3) == 0) { /* chunks */
        x->ne[0] = 1;
        x->ne[0] = (TDM_EXCHANGE_CHUNK + draw(TDM_EXCHANGE_CHUNK)) / count_of(x->ne);
    }
    if (draw(12) == 0) x->ne[draw(4)] = 0;
    if (x->kind == TDM_EXCHANGE_SUM_PART) x->axis = (int32_t)draw(4);
    x->senders = draw(5) == 0 ? draw(1u << s->n_rank) : (1u << s->n_rank) - 1;
    int64_t n = count_of(x->ne);
    for (int32_t r = 0; r < s->n_rank; r++) {
        int64_t whole = x->ne[x->axis];
        x->first[r] = x->kind == TDM_EXCHANGE_SUM ? 0 : draw((uint32_t)whole + 1);
        x->len[r] = x->kind == TDM_EXCHANGE_SUM ? whole : draw((uint32_t)(whole - x->first[r]) + 1);
        x->has_residual[r] = draw(2) == 0;
        x->x[r] = malloc((size_t)n * 4 + 4);
        x->residual[r] = malloc((size_t)n * 4 + 4);
        x->expected[r] = malloc((size_t)n * 4 + 4);
        x->result[r] = malloc((size_t)n * 4 + 4);
        for (int64_t i = 0; i < n; i++) x->x[r][i] = draw_float();
        for (int64_t i = 0; i < n; i++) x->residual[r][i] = draw_float();
    }
    sum_expect(s, x);
}

/* Parts side by side, some of them empty, the last one of a block type where along a row. */
static void gather_make(const scene *s, exchange *x) {
    static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_I32, TDM_TYPE_F16, TDM_TYPE_Q4_0,
                                     TDM_TYPE_I8};
    x->type = types[draw(5)];
    x->axis = (int32_t)draw(4);
    tdm_type_info info = tdm_type_get_info(x->type);
    for (int i = 0; i < 4; i++) x->ne[i] = 1 + draw(5);
    x->ne[0] *= info.block_len;
    int64_t unit = x->axis == 0 ? info.block_len : 1, at = 0;
    for (int32_t r = 0; r < s->n_rank; r++) {
        x->first[r] = at;
        x->len[r] = draw(4) * unit;
        if (draw(8) == 0) x->len[r] = 0;
        if (x->len[r] > 0) x->senders |= UINT64_C(1) << r;
        at += x->len[r];
    }
    x->ne[x->axis] = at;
    size_t size = tdm_tensor_canonical_size(x->type, x->ne);
    uint8_t *whole = malloc(size + 1);
    assert_non_null(whole);
    for (size_t i = 0; i < size; i++) whole[i] = (uint8_t)draw(256);
    int64_t blocks[4] = {x->ne[0] / info.block_len, x->ne[1], x->ne[2], x->ne[3]};
    for (int32_t r = 0; r < s->n_rank; r++) {
        box b = box_begin(blocks, x->axis, x->first[r] / unit, x->len[r] / unit);
        uint8_t *part = malloc((size_t)b.n * (size_t)info.block_size + 1);
        for (int64_t i, j; box_next(&b, &i, &j);)
            memcpy(part + j * info.block_size, whole + i * info.block_size,
                   (size_t)info.block_size);
        x->x[r] = (float *)(void *)part;
        x->expected[r] = malloc(size + 1);
        x->result[r] = malloc(size + 1);
        memcpy(x->expected[r], whole, size);
    }
    free(whole);
}

static void exchange_make(const scene *s, exchange *x) {
    memset(x, 0, sizeof *x);
    x->kind = (tdm_exchange_kind)draw(3);
    if (x->kind == TDM_EXCHANGE_GATHER)
        gather_make(s, x);
    else
        sum_make(s, x);
}

static void exchange_free(exchange *x) {
    for (int32_t r = 0; r < MAX_RANK; r++) {
        free(x->x[r]);
        free(x->residual[r]);
        free(x->expected[r]);
        free(x->result[r]);
    }
}

/* ---- Playing --------------------------------------------------------------------------------- */

static void args_fill(const scene *s, const exchange *x, int32_t stage, int32_t rank,
                      tdm_exchange_params *p, meta_exchange_args *a) {
    bool is_sum = x->kind != TDM_EXCHANGE_GATHER;
    *p = (tdm_exchange_params){
        .stage = stage,
        .member = rank,
        .n_member = s->n_rank,
        .wire_type = is_sum ? (int32_t)x->wire : 0,
        .data_off = 65536,
        .area_stride = AREA,
        .data_stride = is_sum ? AREA / MAX_RANK / 64 * 64 : 0,
        .flag_off = META_ARENA_FLAGS + (uint64_t)stage * 64 * (uint64_t)s->n_rank,
        .senders = x->senders,
        .kind = (int32_t)x->kind,
        .axis = x->kind == TDM_EXCHANGE_SUM ? 0 : x->axis,
        .first = (int32_t)x->first[rank],
        .whole = x->kind == TDM_EXCHANGE_SUM_PART ? (int32_t)x->ne[x->axis] : 0,
    };
    bool is_sender = (x->senders >> rank & 1) != 0;
    *a = (meta_exchange_args){.params = p,
                              .epoch = s->epoch,
                              .base = s->base,
                              .first = {.x = is_sender ? x->x[rank] : NULL,
                                        .result = x->result[rank],
                                        .type = (int32_t)x->type},
                              .residual = x->has_residual[rank] ? x->residual[rank] : NULL};
    memcpy(a->first.ne, x->ne, sizeof a->first.ne);
    memcpy(a->first.x_ne, x->ne, sizeof a->first.x_ne);
    if (is_sum)
        a->first.ne[x->axis] = x->len[rank];
    else
        a->first.x_ne[x->axis] = x->len[rank];
}

typedef struct player {
    scene *s;
    int32_t rank;
    uint64_t delays; /* state of a generator of its own */
    tdm_status status;
    tdm_error err;
} player;

static void *player_main(void *arg) {
    player *me = arg;
    scene *s = me->s;
    pthread_barrier_wait(&s->start);
    for (int32_t i = 0; i < N_STAGE; i++) {
        tdm_exchange_params p;
        meta_exchange_args a;
        const uint64_t word = random_u64(&me->delays);
        if (word >> 62 == 0) {
            struct timespec t = {0, (long)(word & 0x3ffff)};
            nanosleep(&t, NULL);
        }
        args_fill(s, &s->stages[i], i, me->rank, &p, &a);
        me->status = meta_exchange_host(&s->arena, &a, &me->err);
        if (me->status != TDM_OK) return NULL;
    }
    return NULL;
}

static void players_run(scene *s, player *players, const bool *is_absent) {
    pthread_t threads[MAX_RANK];
    int32_t n = 0;
    for (int32_t r = 0; r < s->n_rank; r++) n += !is_absent[r];
    pthread_barrier_init(&s->start, NULL, (unsigned)n);
    for (int32_t r = 0; r < s->n_rank; r++) {
        players[r] = (player){.s = s, .rank = r, .delays = draw(UINT32_MAX)};
        if (!is_absent[r])
            assert_int_equal(pthread_create(&threads[r], NULL, player_main, &players[r]), 0);
    }
    for (int32_t r = 0; r < s->n_rank; r++)
        if (!is_absent[r]) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&s->start);
}

static void scene_open(scene *s, int32_t n_rank, uint32_t epoch) {
    memset(s, 0, sizeof *s);
    s->n_rank = n_rank;
    s->epoch = epoch;
    s->arena.size = 65536 + 2 * AREA;
    s->arena.data = aligned_alloc(64, s->arena.size);
    assert_non_null(s->arena.data);
    memset(s->arena.data, 0, s->arena.size);
}

static size_t result_size(const exchange *x, int32_t r) {
    int64_t ne[4];
    memcpy(ne, x->ne, sizeof ne);
    if (x->kind != TDM_EXCHANGE_GATHER) ne[x->axis] = x->len[r];
    return tdm_tensor_canonical_size(x->type, ne);
}

static void test_everything_by_bits(void **state) {
    static const bool none_absent[MAX_RANK];
    (void)state;
    for (int32_t round = 0; round < 25; round++) {
        scene s;
        player players[MAX_RANK];
        scene_open(&s, 1 + (int32_t)draw(MAX_RANK), 1 + draw(1000));
        /* Several epochs over the same words; one crosses what 31 bits count. */
        for (int32_t run = 0; run < 3; run++, s.epoch++, s.base += N_STAGE) {
            uint64_t before = seed;
            for (int32_t i = 0; i < N_STAGE; i++) exchange_make(&s, &s.stages[i]);
            players_run(&s, players, none_absent);
            for (int32_t i = 0; i < N_STAGE; i++) {
                exchange *x = &s.stages[i];
                for (int32_t r = 0; r < s.n_rank; r++) {
                    assert_int_equal(players[r].status, TDM_OK);
                    if (memcmp(x->result[r], x->expected[r], result_size(x, r)) != 0)
                        fail_msg("seed %llu: stage %d of kind %d, wire %s, member %d of %d",
                                 (unsigned long long)before, i, (int)x->kind,
                                 tdm_type_name(x->wire), r, s.n_rank);
                }
                exchange_free(x);
            }
        }
        free(s.arena.data);
    }
}

static void test_time_is_told(void **state) {
    static const bool none_absent[MAX_RANK];
    scene s;
    player players[MAX_RANK];
    (void)state;
    scene_open(&s, 2, 1);
    for (int32_t i = 0; i < N_STAGE; i++) exchange_make(&s, &s.stages[i]);
    players_run(&s, players, none_absent);
    for (int32_t r = 0; r < 2; r++) {
        uint64_t word;
        memcpy(&word, s.arena.data + META_ARENA_FLAGS + (size_t)r * 64 + 8, sizeof word);
        assert_true(word > 0 && word < 10000000000u);
    }
    for (int32_t i = 0; i < N_STAGE; i++) exchange_free(&s.stages[i]);
    free(s.arena.data);
}

static void *abort_main(void *arg) {
    scene *s = arg;
    struct timespec t = {0, 5000000};
    nanosleep(&t, NULL);
    atomic_store((_Atomic uint64_t *)(void *)s->arena.data, 1);
    return NULL;
}

/* One member never arrives: the others return when the abort word is set. */
static void test_abort(void **state) {
    scene s;
    player players[MAX_RANK];
    bool is_absent[MAX_RANK] = {false, true};
    pthread_t aborter;
    (void)state;
    scene_open(&s, 3, 7);
    for (int32_t i = 0; i < N_STAGE; i++) exchange_make(&s, &s.stages[i]);
    pthread_create(&aborter, NULL, abort_main, &s);
    players_run(&s, players, is_absent);
    pthread_join(aborter, NULL);
    for (int32_t r = 0; r < 3; r += 2) {
        assert_int_equal(players[r].status, TDM_CANCELLED);
        assert_non_null(strstr(players[r].err.message, "exchange 0"));
    }
    /* Once the word is cleared, the next run works in the same memory. */
    atomic_store((_Atomic uint64_t *)(void *)s.arena.data, 0);
    s.epoch++;
    is_absent[1] = false;
    players_run(&s, players, is_absent);
    for (int32_t r = 0; r < 3; r++) assert_int_equal(players[r].status, TDM_OK);
    for (int32_t i = 0; i < N_STAGE; i++) exchange_free(&s.stages[i]);
    free(s.arena.data);
}

/* The pattern would show another order of addition: the test above can fail. */
static void test_order_matters(void **state) {
    volatile float big = 1e8f, small = 1;
    volatile float one_way = big + small, other_way = big - big;
    (void)state;
    one_way = one_way - big;
    other_way = other_way + small;
    assert_true(one_way != other_way);
}

int main(void) {
    seed = test_seed("exchange_host", (uint64_t)time(NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_by_bits),
        cmocka_unit_test(test_time_is_told),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_order_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
