/* SPDX-License-Identifier: MIT
 *
 * test_exchange.c: EXCHANGE between CPU devices of one process (tandem/collective.h): every kind,
 * wire type and way for sources to lie, bit for bit against sums written down here; epochs that
 * wrap, arenas that are used again and again, members that are missing, and aborts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/runtime.h"
#include "quant/convert.h"
#include "tests/kernels/exchange_data.h"
#include "tests/support/random.h"

#define GUARD_BYTE 0x5a
enum { N_CASE = 60, LINE = 64, MAX_COUNT = 200000 };

/* ---- Groups ---------------------------------------------------------------------------------- */

static scene_params params_of(int32_t n_member, uint64_t arena_size) {
    return (scene_params){
        .plugin_path = getenv("TANDEM_PLUGIN_DIR"), .n_member = n_member, .arena_size = arena_size};
}

static scene *open_or_fail(const scene_params *params) {
    scene *s = NULL;
    tdm_error err = {0};
    exchange_must(scene_open(params, &s, &err), &err);
    return s;
}

static void prepare_or_fail(scene *s, const scene_node *nodes, int32_t n_node) {
    tdm_error err = {0};
    exchange_must(scene_prepare(s, nodes, n_node, &err), &err);
}

static uint64_t *flag_of(scene *s, const scene_node *n, int32_t rank) {
    return (uint64_t *)(void *)(scene_arena(s) + n->params.flag_off + (uint64_t)rank * LINE);
}

/* All flags as a run of the epoch before left them. */
static void flags_set(scene *s, const scene_node *nodes, int32_t n_node, int32_t n_rank,
                      uint32_t epoch) {
    for (int32_t i = 0; i < n_node; i++)
        for (int32_t k = 0; k < n_rank; k++) {
            uint64_t *flag = flag_of(s, &nodes[i], k);
            flag[0] = (uint64_t)(epoch - 1) << 32 | 1;
            flag[1] = 0;
        }
}

static void abort_word_set(scene *s, uint64_t value) {
    atomic_store((_Atomic uint64_t *)(void *)scene_arena(s), value);
}

static void all_start(scene *s, int32_t n_rank, uint32_t epoch) {
    tdm_error err = {0};
    for (int32_t k = 0; k < n_rank; k++) exchange_must(scene_start(s, k, epoch, &err), &err);
}

static void all_wait(scene *s, int32_t n_rank) {
    tdm_error err = {0};
    for (int32_t k = 0; k < n_rank; k++) exchange_must(scene_wait(s, k, &err), &err);
}

/* An exchange of plain sums at its place for `index`: flags behind the first line. */
static scene_node sum_of(int32_t index, int32_t n_rank, int64_t count, tdm_type wire,
                         uint64_t data_off) {
    scene_node n = {.type = TDM_TYPE_F32, .ne = {count, 1, 1, 1}};
    n.params = (tdm_exchange_params){.stage = 10 + index,
                                     .n_member = n_rank,
                                     .wire_type = (int32_t)wire,
                                     .data_off = data_off,
                                     .flag_off = (uint64_t)(1 + index * n_rank) * LINE,
                                     .senders = (UINT64_C(1) << n_rank) - 1};
    n.params.data_stride = (tdm_type_row_size(wire, (count + 31) / 32 * 32) + 3) / 4 * 4;
    return n;
}

/* ---- Random exchanges ------------------------------------------------------------------------ */

static int64_t length_random(void) {
    static const int64_t some[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257};
    return some[exchange_below((int64_t)(sizeof some / sizeof some[0]))];
}

/* Cuts 0 .. length at multiples of unit; parts may be empty. */
static void cut_random(int32_t *cut, int32_t n_rank, int64_t length, int64_t unit) {
    cut[0] = 0;
    cut[n_rank] = (int32_t)length;
    for (int32_t k = 1; k < n_rank; k++)
        cut[k] = (int32_t)(exchange_below(length / unit + 1) * unit);
    for (int32_t i = 1; i < n_rank; i++) /* in order */
        for (int32_t k = 1; k + 1 < n_rank; k++)
            if (cut[k] > cut[k + 1]) {
                int32_t other = cut[k];
                cut[k] = cut[k + 1];
                cut[k + 1] = other;
            }
}

/* A second payload for a GATHER: at most 100 numbers. */
static void second_random(scene_node *n, int32_t n_rank, uint64_t *end) {
    for (int d = 0; d < TDM_MAX_DIMS; d++) n->ne2[d] = 1 + exchange_below(d < 2 ? 5 : 2);
    n->params.axis2 = (int32_t)exchange_below(TDM_MAX_DIMS);
    cut_random(n->cut2, n_rank, n->ne2[n->params.axis2], 1);
    for (int32_t k = 0; k < n_rank; k++)
        if (n->cut2[k] < n->cut2[k + 1]) n->params.senders |= UINT64_C(1) << k;
    n->params.data_off2 = (*end + 3) / 4 * 4;
    *end = n->params.data_off2 + (uint64_t)tdm_shape_count(n->ne2) * sizeof(int32_t);
}

/* What an element of the second payload is. */
static int32_t second_number(uint32_t epoch, int32_t node, int64_t at) {
    return (int32_t)(epoch * 2654435761u + (uint32_t)node * 40503u + (uint32_t)at * 97u);
}

static void second_put(scene *s, const scene_node *n, int32_t node, int32_t rank, uint32_t epoch) {
    int64_t part[TDM_MAX_DIMS];
    int32_t x2[100];
    if (n->params.data_off2 == 0) return;
    memcpy(part, n->ne2, sizeof part);
    part[n->params.axis2] = n->cut2[rank + 1] - n->cut2[rank];
    for (int64_t i = 0; i < tdm_shape_count(part); i++)
        x2[i] = second_number(epoch, node,
                              exchange_place_of(part, n->ne2, n->params.axis2, n->cut2[rank], i));
    scene_put_x2(s, node, rank, x2);
}

static void second_check(scene *s, const scene_node *n, int32_t node, int32_t rank, uint32_t epoch,
                         const char *label) {
    const int32_t *got = scene_result2(s, node, rank);
    assert_int_equal(got != NULL, n->params.data_off2 != 0);
    for (int64_t i = 0; got != NULL && i < tdm_shape_count(n->ne2); i++)
        if (got[i] != second_number(epoch, node, i))
            fail_msg("%s: exchange %d, member %d: number %lld of the second payload is %d, not %d",
                     label, (int)node, (int)rank, (long long)i, (int)got[i],
                     (int)second_number(epoch, node, i));
}

/* With two areas: the second begins behind the data of the first. */
static void area_random(scene_node *n, uint64_t *end) {
    if (exchange_below(2) == 0) return;
    n->params.area_stride =
        (*end - n->params.data_off + 3) / 4 * 4 + (uint64_t)exchange_below(3) * 4;
    if (n->params.area_stride == 0) n->params.area_stride = 4;
    *end += n->params.area_stride;
}

static scene_node node_random(int32_t index, int32_t n_rank, uint64_t *end) {
    static const tdm_type wires[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16, TDM_TYPE_Q8_0};
    static const tdm_type gathered[] = {TDM_TYPE_F32,  TDM_TYPE_I32,  TDM_TYPE_F16, TDM_TYPE_I8,
                                        TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, TDM_TYPE_Q5_1};
    scene_node n = sum_of(index, n_rank, 1, TDM_TYPE_F32, 0);
    bool is_small = exchange_below(20) != 0;
    n.params.kind = (int32_t)exchange_below(3);
    n.params.senders = exchange_random() >> (64 - n_rank) |
                       (exchange_below(4) == 0 ? 0 : exchange_random() >> (64 - n_rank));
    n.lie = (scene_lie)exchange_below(3);
    for (int d = 0; d < TDM_MAX_DIMS; d++)
        n.ne[d] = d == 0  ? length_random() * (is_small ? 1 : 50)
                  : d < 2 ? 1 + exchange_below(9)
                          : 1 + exchange_below(3);
    if (exchange_below(20) == 0) n.ne[exchange_below(2)] = 0;
    if (n.params.kind == TDM_EXCHANGE_GATHER) {
        n.type = gathered[exchange_below((int64_t)(sizeof gathered / sizeof gathered[0]))];
        int64_t block = tdm_type_get_info(n.type).block_len;
        n.params.axis = (int32_t)exchange_below(TDM_MAX_DIMS);
        n.ne[0] *= block;
        if (block > 1 && n.lie == SCENE_TRANSPOSED) n.lie = SCENE_DENSE;
        cut_random(n.cut, n_rank, n.ne[n.params.axis], n.params.axis == 0 ? block : 1);
        /* What no member sends is missing, so parts cover the result. */
        for (int32_t k = 0; k < n_rank; k++)
            if (n.cut[k] < n.cut[k + 1]) n.params.senders |= UINT64_C(1) << k;
        n.in_chain = block == 1 && n.type != TDM_TYPE_I8 && exchange_below(2) == 0;
        n.params.data_stride = 0;
        n.params.wire_type = 0;
        n.params.data_off = (*end + 3) / 4 * 4;
        *end = n.params.data_off + tdm_tensor_canonical_size(n.type, n.ne);
        if (exchange_below(2) == 0) second_random(&n, n_rank, end);
        area_random(&n, end);
        return n;
    }
    if (n.params.kind == TDM_EXCHANGE_SUM_PART) {
        n.params.axis = (int32_t)exchange_below(TDM_MAX_DIMS);
        cut_random(n.cut, n_rank, n.ne[n.params.axis], 1);
    }
    tdm_type wire = wires[exchange_below(4)];
    int64_t count = tdm_shape_count(n.ne);
    n.has_residual = exchange_below(2) == 0;
    n.in_chain = exchange_below(2) == 0;
    n.params.wire_type = (int32_t)wire;
    n.params.data_stride = (tdm_type_row_size(wire, (count + 31) / 32 * 32) + 3) / 4 * 4 +
                           (uint64_t)exchange_below(3) * 4;
    n.params.data_off = (*end + 3) / 4 * 4;
    *end = n.params.data_off + (uint64_t)n_rank * n.params.data_stride;
    area_random(&n, end);
    return n;
}

/* Bytes of data of an exchange in one area, from data_off on. */
static uint64_t data_size(const scene_node *n, int32_t n_rank) {
    const tdm_exchange_params *p = &n->params;
    if (p->data_off2 != 0)
        return p->data_off2 - p->data_off + (uint64_t)tdm_shape_count(n->ne2) * sizeof(int32_t);
    return p->kind == TDM_EXCHANGE_GATHER ? tdm_tensor_canonical_size(n->type, n->ne)
                                          : (uint64_t)n_rank * p->data_stride;
}

/* The area that an exchange must not use in a run, where it has two. */
static uint8_t *other_area(scene *s, const scene_node *n, uint32_t base) {
    uint64_t other = (base + (uint32_t)n->params.stage + 1) % 2;
    return scene_arena(s) + n->params.data_off + other * n->params.area_stride;
}

static void other_areas_check(scene *s, const scene_node *nodes, int32_t n_node, int32_t n_rank,
                              uint32_t base, const char *label) {
    for (int32_t i = 0; i < n_node; i++)
        for (uint64_t at = 0; nodes[i].params.area_stride != 0 && at < data_size(&nodes[i], n_rank);
             at++)
            if (other_area(s, &nodes[i], base)[at] != GUARD_BYTE)
                fail_msg("%s: exchange %d wrote byte %llu of the other area", label, (int)i,
                         (unsigned long long)at);
}

/* Bytes that no exchange may touch keep the guard's pattern. */
static void arena_fill(scene *s, uint64_t size) {
    memset(scene_arena(s), GUARD_BYTE, size);
    abort_word_set(s, 0);
}

static void arena_check(scene *s, const scene_node *nodes, int32_t n_node, int32_t n_rank,
                        uint64_t size, const char *label) {
    const uint8_t *arena = scene_arena(s);
    uint8_t *may = exchange_memory(size);
    memset(may, 1, 8);
    for (int32_t i = 0; i < n_node; i++) {
        const tdm_exchange_params *p = &nodes[i].params;
        memset(may + p->data_off, 1, data_size(&nodes[i], n_rank));
        memset(may + p->data_off + p->area_stride, 1, data_size(&nodes[i], n_rank));
        for (int32_t k = 0; k < n_rank; k++) memset(may + p->flag_off + (uint64_t)k * LINE, 1, 16);
    }
    for (uint64_t at = 0; at < size; at++)
        if (!may[at] && arena[at] != GUARD_BYTE)
            fail_msg("%s: byte %llu of the arena belongs to no exchange and was written", label,
                     (unsigned long long)at);
    free(may);
}

static void flags_check(scene *s, const scene_node *nodes, int32_t n_node, int32_t n_rank,
                        uint32_t epoch, const char *label) {
    for (int32_t i = 0; i < n_node; i++)
        for (int32_t k = 0; k < n_rank; k++) {
            int64_t count = tdm_shape_count(nodes[i].ne), n_chunk = 1;
            if (nodes[i].params.kind != TDM_EXCHANGE_GATHER && count > 0)
                n_chunk = (count + TDM_EXCHANGE_CHUNK - 1) / TDM_EXCHANGE_CHUNK;
            uint64_t want = ((uint64_t)epoch << 32) + (uint64_t)n_chunk;
            if (*flag_of(s, &nodes[i], k) != want)
                fail_msg("%s: flag %d of exchange %d is 0x%llx, not 0x%llx", label, (int)k, (int)i,
                         (unsigned long long)*flag_of(s, &nodes[i], k), (unsigned long long)want);
        }
}

static void case_run(scene *s, int32_t n_rank, uint64_t arena_size, const char *label) {
    scene_node nodes[EXCHANGE_MAX_NODE];
    int32_t n_node = 1 + (int32_t)exchange_below(EXCHANGE_MAX_NODE);
    uint64_t end = (uint64_t)(1 + EXCHANGE_MAX_NODE * n_rank) * LINE;
    uint32_t epoch = exchange_below(2) == 0 ? UINT32_MAX - 1 : (uint32_t)exchange_random();
    for (int32_t i = 0; i < n_node; i++) {
        uint64_t before = end;
        do {
            end = before;
            nodes[i] = node_random(i, n_rank, &end);
        } while (end > arena_size || tdm_shape_count(nodes[i].ne) > MAX_COUNT);
    }
    arena_fill(s, arena_size);
    flags_set(s, nodes, n_node, n_rank, epoch);
    prepare_or_fail(s, nodes, n_node);
    for (int run = 0; run < 3; run++, epoch++) {
        exchange_data *data = exchange_data_make(s, nodes, n_node, n_rank);
        uint32_t base = (uint32_t)exchange_random() & INT32_MAX;
        scene_set_base(s, base);
        for (int32_t i = 0; i < n_node; i++) {
            if (nodes[i].params.area_stride != 0)
                memset(other_area(s, &nodes[i], base), GUARD_BYTE, data_size(&nodes[i], n_rank));
            for (int32_t k = 0; k < n_rank; k++) second_put(s, &nodes[i], i, k, epoch);
        }
        for (int32_t k = 0; k < n_rank; k++) exchange_data_put(s, n_node, k, data);
        all_start(s, n_rank, epoch);
        all_wait(s, n_rank);
        for (int32_t k = 0; k < n_rank; k++) exchange_data_check(s, nodes, n_node, k, data, label);
        for (int32_t i = 0; i < n_node; i++)
            for (int32_t k = 0; k < n_rank; k++) second_check(s, &nodes[i], i, k, epoch, label);
        other_areas_check(s, nodes, n_node, n_rank, base, label);
        flags_check(s, nodes, n_node, n_rank, epoch, label);
        exchange_data_free(data);
    }
    arena_check(s, nodes, n_node, n_rank, arena_size, label);
}

static bool has_isa(const char *isa) {
    scene_params p = params_of(1, LINE);
    scene *s = NULL;
    p.isa[0] = isa;
    bool has = scene_open(&p, &s, NULL) == TDM_OK;
    if (has) scene_close(s);
    return has;
}

/* Publishing and collecting in plans of their own give what a whole exchange gives, and touch no
 * flag. */
static void phases_run(scene *s, int32_t n_rank, uint64_t arena_size, const char *label) {
    scene_node node;
    uint64_t end;
    uint32_t epoch = 7, base = (uint32_t)exchange_below(2);
    do {
        end = (uint64_t)(1 + n_rank) * LINE;
        node = node_random(0, n_rank, &end);
    } while (end > arena_size || tdm_shape_count(node.ne) > MAX_COUNT);
    arena_fill(s, arena_size);
    flags_set(s, &node, 1, n_rank, epoch);
    scene_set_base(s, base);
    prepare_or_fail(s, &node, 1);
    exchange_data *data = exchange_data_make(s, &node, 1, n_rank);
    const tdm_exchange_phase phases[2] = {TDM_EXCHANGE_PUBLISH, TDM_EXCHANGE_COLLECT};
    for (int i = 0; i < 2; i++) {
        node.params.phase = (int32_t)phases[i];
        prepare_or_fail(s, &node, 1);
        for (int32_t k = 0; k < n_rank; k++) {
            exchange_data_put(s, 1, k, data);
            if ((node.params.senders >> k & 1) != 0) second_put(s, &node, 0, k, epoch);
        }
        all_start(s, n_rank, epoch);
        all_wait(s, n_rank);
        for (int32_t k = 0; k < n_rank; k++) {
            assert_true(flag_of(s, &node, k)[0] == ((uint64_t)(epoch - 1) << 32 | 1));
            assert_true(flag_of(s, &node, k)[1] == 0);
        }
    }
    for (int32_t k = 0; k < n_rank; k++) {
        exchange_data_check(s, &node, 1, k, data, label);
        second_check(s, &node, 0, k, epoch, label);
    }
    arena_check(s, &node, 1, n_rank, arena_size, label);
    other_areas_check(s, &node, 1, n_rank, base, label);
    exchange_data_free(data);
}

static void test_phases(void **state) {
    const uint64_t arena_size = 1 << 20;
    (void)state;
    for (int32_t n_rank = 1; n_rank <= EXCHANGE_MAX_RANK; n_rank++) {
        scene_params p = params_of(n_rank, arena_size);
        for (int32_t k = 0; k < n_rank; k++) p.threads[k] = 1 + k % 3;
        scene *s = open_or_fail(&p);
        for (int i = 0; i < N_CASE; i++) {
            char label[64];
            snprintf(label, sizeof label, "phases, %d members, seed 0x%llx", (int)n_rank,
                     (unsigned long long)exchange_seed);
            phases_run(s, n_rank, arena_size, label);
        }
        scene_close(s);
    }
}

static void test_random(void **state) {
    static const char *const isas[] = {NULL, "plain", "avx2", "avx512", "neon"};
    bool has[5] = {true, true, has_isa("avx2"), has_isa("avx512"), has_isa("neon")};
    (void)state;
    for (int32_t n_rank = 1; n_rank <= EXCHANGE_MAX_RANK; n_rank++)
        for (int mix = 0; mix < 2; mix++) {
            const uint64_t arena_size = 1 << 20;
            scene_params p = params_of(n_rank, arena_size);
            char label[64];
            for (int32_t k = 0; k < n_rank; k++) {
                int isa = (int)exchange_below(5);
                p.isa[k] = has[isa] ? isas[isa] : NULL;
                p.threads[k] = mix == 0 ? 1 : 1 + (int32_t)exchange_below(3);
            }
            scene *s = open_or_fail(&p);
            for (int i = 0; i < N_CASE; i++) {
                uint64_t before = exchange_seed;
                snprintf(label, sizeof label, "%d members, seed 0x%llx", (int)n_rank,
                         (unsigned long long)before);
                case_run(s, n_rank, arena_size, label);
            }
            scene_close(s);
        }
}

/* ---- Chunks ---------------------------------------------------------------------------------- */

static void test_chunks(void **state) {
    static const int64_t counts[] = {TDM_EXCHANGE_CHUNK - 1, TDM_EXCHANGE_CHUNK,
                                     TDM_EXCHANGE_CHUNK + 1, 2 * TDM_EXCHANGE_CHUNK + 33};
    static const tdm_type wires[] = {TDM_TYPE_F32, TDM_TYPE_Q8_0};
    const uint64_t arena_size = 4 << 20;
    scene_params p = params_of(3, arena_size);
    (void)state;
    p.threads[1] = 3;
    scene *s = open_or_fail(&p);
    for (int i = 0; i < 8; i++)
        for (int kind = TDM_EXCHANGE_SUM; kind <= TDM_EXCHANGE_SUM_PART; kind++) {
            scene_node n = sum_of(0, 3, counts[i / 2], wires[i % 2], 4096);
            n.params.kind = kind;
            n.has_residual = true;
            if (kind == TDM_EXCHANGE_SUM_PART) {
                /* Rows so short that chunks begin inside them, and parts inside blocks. */
                n.ne[0] = 100;
                n.ne[1] = counts[i / 2] / 100;
                n.cut[1] = 0, n.cut[2] = 33, n.cut[3] = 100;
            }
            arena_fill(s, arena_size);
            flags_set(s, &n, 1, 3, 1);
            prepare_or_fail(s, &n, 1);
            for (uint32_t epoch = 1; epoch <= 3; epoch++) {
                exchange_data *data = exchange_data_make(s, &n, 1, 3);
                for (int32_t k = 0; k < 3; k++) exchange_data_put(s, 1, k, data);
                all_start(s, 3, epoch);
                all_wait(s, 3);
                for (int32_t k = 0; k < 3; k++) exchange_data_check(s, &n, 1, k, data, "chunks");
                flags_check(s, &n, 1, 3, epoch, "chunks");
                exchange_data_free(data);
            }
            arena_check(s, &n, 1, 3, arena_size, "chunks");
        }
    scene_close(s);
}

/* ---- Run after run --------------------------------------------------------------------------- */

/* Two exchanges, over and over at the same places; each member begins its next run as soon as it is
 * through, while others are still in the one before. */
static void test_back_to_back(void **state) {
    enum { N_RANK = 3, N_RUN = 1000, COUNT = 700 };
    scene_params p = params_of(N_RANK, 64 << 10);
    scene_node nodes[2];
    exchange_data *before = NULL;
    tdm_error err = {0};
    (void)state;
    p.threads[2] = 2;
    scene *s = open_or_fail(&p);
    for (int i = 0; i < 2; i++) {
        nodes[i] = sum_of(i, N_RANK, COUNT, TDM_TYPE_F32, 4096 + (uint64_t)i * 16384);
        nodes[i].has_residual = i == 1;
    }
    prepare_or_fail(s, nodes, 2);
    for (uint32_t epoch = 1; epoch <= N_RUN; epoch++) {
        int32_t order = (int32_t)exchange_below(N_RANK);
        exchange_data *now = exchange_data_make(s, nodes, 2, N_RANK);
        for (int32_t i = 0; i < N_RANK; i++) {
            int32_t k = (i + order) % N_RANK;
            if (epoch > 1) {
                exchange_must(scene_wait(s, k, &err), &err);
                exchange_data_check(s, nodes, 2, k, before, "back to back");
            }
            exchange_data_put(s, 2, k, now);
            exchange_must(scene_start(s, k, epoch, &err), &err);
        }
        exchange_data_free(before);
        before = now;
    }
    for (int32_t k = 0; k < N_RANK; k++) {
        exchange_must(scene_wait(s, k, &err), &err);
        exchange_data_check(s, nodes, 2, k, before, "back to back");
    }
    exchange_data_free(before);
    scene_close(s);
}

/* ---- Failure --------------------------------------------------------------------------------- */

enum { FAIL_RANKS = 3, FAIL_COUNT = 5000 };

/* Two exchanges in a row; a run that succeeds shows that the plans are still good. */
static scene *failing_open(const char *timeout_ms, scene_node *nodes) {
    scene_params p = params_of(FAIL_RANKS, 256 << 10);
    p.timeout_ms = timeout_ms;
    p.threads[0] = 3;
    scene *s = open_or_fail(&p);
    for (int i = 0; i < 2; i++)
        nodes[i] =
            sum_of(i, FAIL_RANKS, FAIL_COUNT, TDM_TYPE_F32, 4096 + (uint64_t)i * (100 << 10));
    prepare_or_fail(s, nodes, 2);
    return s;
}

static void good_run(scene *s, const scene_node *nodes, uint32_t epoch) {
    abort_word_set(s, 0);
    exchange_data *data = exchange_data_make(s, nodes, 2, FAIL_RANKS);
    for (int32_t k = 0; k < FAIL_RANKS; k++) exchange_data_put(s, 2, k, data);
    all_start(s, FAIL_RANKS, epoch);
    all_wait(s, FAIL_RANKS);
    for (int32_t k = 0; k < FAIL_RANKS; k++)
        exchange_data_check(s, nodes, 2, k, data, "after a failure");
    exchange_data_free(data);
}

static void must_fail(scene *s, int32_t rank, tdm_status status, const char *text) {
    tdm_error err = {0};
    assert_int_equal(scene_wait(s, rank, &err), status);
    if (strstr(err.message, text) == NULL) fail_msg("'%s' does not say '%s'", err.message, text);
}

static void test_missing(void **state) {
    scene_node nodes[2];
    tdm_error err = {0};
    (void)state;
    scene *s = failing_open("300", nodes); /* more than good_run needs on a busy machine */
    for (uint32_t epoch = 1; epoch < 7; epoch += 2) {
        good_run(s, nodes, epoch);
        memset(scene_result(s, 1, 0), 0x77, 4);
        exchange_must(scene_start(s, 0, epoch + 1, &err), &err);
        exchange_must(scene_start(s, 2, epoch + 1, &err), &err);
        must_fail(s, 0, TDM_DEADLINE_EXCEEDED, "stage 10 ran out of time: the flag of member 1");
        must_fail(s, 2, TDM_DEADLINE_EXCEEDED, "member 1");
        /* What follows the exchange that failed was not run. */
        assert_int_equal(*(const uint32_t *)scene_result(s, 1, 0), 0x77777777);
        assert_int_equal(*flag_of(s, &nodes[1], 0) >> 32, epoch);
    }
    scene_close(s);
}

static void test_abort(void **state) {
    scene_node nodes[2];
    tdm_error err = {0};
    (void)state;
    scene *s = failing_open(NULL, nodes);
    for (uint32_t epoch = 1; epoch < 9; epoch += 2) {
        good_run(s, nodes, epoch);
        exchange_must(scene_start(s, 0, epoch + 1, &err), &err);
        exchange_must(scene_start(s, 1, epoch + 1, &err), &err);
        abort_word_set(s, 1);
        must_fail(s, 0, TDM_CANCELLED, "stage 10 was aborted");
        must_fail(s, 1, TDM_CANCELLED, "stage 10 was aborted");
        /* Who comes later finds the word set. */
        exchange_must(scene_start(s, 2, epoch + 1, &err), &err);
        must_fail(s, 2, TDM_CANCELLED, "stage 10 was aborted");
    }
    scene_close(s);
}

/* The capabilities of a device, and an invalid option. */
static void test_info(void **state) {
    scene_params p = params_of(1, LINE);
    tdm_runtime *rt = NULL;
    tdm_runtime_params runtime = {.struct_size = sizeof runtime, .plugin_path = p.plugin_path};
    tdm_device_spec spec = {.name = "m", .plugin = "cpu"};
    tdm_device_info info = {.struct_size = sizeof info};
    tdm_error err = {0};
    tdm_open_device *dev = NULL;
    (void)state;
    exchange_must(tdm_runtime_create(&runtime, &rt, &err), &err);
    exchange_must(tdm_runtime_declare(rt, &spec, &err), &err);
    exchange_must(tdm_runtime_open(rt, "m", &dev, &err), &err);
    exchange_must(tdm_open_device_get_info(dev, &info, &err), &err);
    assert_true((info.flags & TDM_DEVICE_HAS_EXCHANGE) != 0);
    tdm_runtime_destroy(rt);
    p.timeout_ms = "0";
    scene *s = NULL;
    assert_int_equal(scene_open(&p, &s, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "exchange-timeout = 0"));
}

/* Time is counted behind a member's own flag, and only there. */
static void test_time(void **state) {
    scene_params p = params_of(2, 64 << 10);
    scene_node n = sum_of(0, 2, 64, TDM_TYPE_F32, 4096);
    tdm_error err = {0};
    (void)state;
    scene *s = open_or_fail(&p);
    prepare_or_fail(s, &n, 1);
    uint64_t before = 0;
    for (uint32_t epoch = 1; epoch < 4; epoch++) {
        all_start(s, 1, epoch);
        exchange_must(scene_start(s, 1, epoch, &err), &err);
        all_wait(s, 2);
        assert_true(flag_of(s, &n, 0)[1] > before);
        before = flag_of(s, &n, 0)[1];
        assert_true(flag_of(s, &n, 1)[1] > 0);
    }
    assert_true(before < UINT64_C(60000000000));
    scene_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),  cmocka_unit_test(test_phases),
        cmocka_unit_test(test_chunks),  cmocka_unit_test(test_back_to_back),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_info),    cmocka_unit_test(test_time),
    };
    exchange_seed = test_seed("exchange", 20261121);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
