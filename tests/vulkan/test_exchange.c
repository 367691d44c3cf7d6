/* SPDX-License-Identifier: MIT
 *
 * test_exchange.c: the phases PUBLISH and COLLECT of EXCHANGE on a GPU plugin: the arena and the
 * results that the CPU's give, byte by byte, for random bits: denormals, infinities and NaN too.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tandem/collective.h"
#include "tests/kernels/op_case.h"

enum { ARENA_SIZE = 1 << 18, AREA_STRIDE = 1 << 17, DATA_OFF = 4096, N_MEMBER = 5, ME = 2 };

static uint64_t seed = OP_SEED;

static uint64_t random_below(uint64_t n) {
    return op_random_next(&seed) % n;
}

/* Bits of f32 of all exponents, more often of small ones. */
static uint32_t random_bits(void) {
    uint32_t bits = (uint32_t)op_random_next(&seed);
    switch (random_below(4)) {
    case 0: return bits & 0x807fffffu;                                     /* denormals */
    case 1: return (bits & 0x807fffffu) | (uint32_t)random_below(5) << 23; /* about 2^-126 */
    case 2: return (bits & 0x807fffffu) | (uint32_t)(60 + random_below(12)) << 23;
    default: return bits;
    }
}

/* One node on both devices, from the same arena; what each leaves there and gives. */
typedef struct outcome {
    uint8_t *arena;
    uint8_t *y[2];
} outcome;

typedef struct exchange_case {
    tdm_exchange_params params;
    op_case c;
    int32_t arena_value;
    int32_t n_y;
    int32_t y[2];
    size_t y_size[2];
    uint8_t *arena;
    char label[128];
} exchange_case;

/* Arena and step; the step's header is as large as the graph needs. */
static exchange_case case_begin(const char *label, const tdm_exchange_params *p,
                                int32_t *step_out) {
    const int64_t n = sizeof(tdm_step_header) / sizeof(int32_t);
    exchange_case x = {.params = *p, .c = op_case_begin(label)};
    snprintf(x.label, sizeof x.label, "%s, kind %d, wire %s, axis %d, stage %d", label,
             (int)p->kind, tdm_type_name((tdm_type)p->wire_type), (int)p->axis, (int)p->stage);
    int32_t *header = op_memory(sizeof(tdm_step_header));
    header[offsetof(tdm_step_header, exchange_base) / sizeof(int32_t)] = (int32_t)random_below(9);
    x.arena_value = tdm_build_bytes(x.c.b, "arena", ARENA_SIZE);
    *step_out = op_case_input(&x.c, TDM_TYPE_I32, OP_SHAPE(n, 1, 1, 1), header);
    x.arena = op_memory(ARENA_SIZE);
    for (size_t i = 0; i < ARENA_SIZE / 4; i++) {
        uint32_t bits = random_bits();
        memcpy(x.arena + 4 * i, &bits, 4);
    }
    return x;
}

static void case_result(exchange_case *x, int32_t value, tdm_type type) {
    x->y_size[x->n_y] = tdm_tensor_canonical_size(type, tdm_build_shape(x->c.b, value));
    x->y[x->n_y++] = value;
    tdm_build_output(x->c.b, value, "y");
}

static outcome case_run(const exchange_case *x, op_rig *rig, const tdm_graph *graph) {
    outcome out = {.arena = op_memory(ARENA_SIZE)};
    op_arg args[OP_MAX_ARGS + 3];
    int n_arg = x->c.n_arg;
    op_state *state = op_state_create(rig, ARENA_SIZE);
    op_state_put(state, x->arena);
    memcpy(args, x->c.args, sizeof x->c.args);
    args[n_arg++] = (op_arg){.value = x->arena_value, .state = state};
    for (int i = 0; i < x->n_y; i++) {
        out.y[i] = op_memory(x->y_size[i]);
        args[n_arg++] = (op_arg){.value = x->y[i], .data = out.y[i]};
    }
    op_rig_run(rig, graph, args, n_arg);
    op_state_get(state, out.arena);
    op_state_destroy(state);
    return out;
}

static void outcome_free(outcome *out) {
    free(out->arena);
    free(out->y[0]);
    free(out->y[1]);
}

/* q8_0 of drivers whose division is not the nearest number: codes one apart. */
static bool byte_agrees(const exchange_case *x, size_t i, uint8_t got, uint8_t want) {
    if (got == want) return true;
    if (x->params.wire_type != TDM_TYPE_Q8_0) return false;
    return x->arena[i] != want && abs((int8_t)got - (int8_t)want) <= 1;
}

static void case_check(exchange_case *x) {
    tdm_graph *graph = op_case_finish(&x->c);
    outcome want = case_run(x, op_reference, graph);
    if (op_fast[0][0] != NULL) {
        outcome got = case_run(x, op_fast[0][0], graph);
        for (size_t i = 0; i < ARENA_SIZE; i++)
            if (!byte_agrees(x, i, got.arena[i], want.arena[i]))
                fail_msg("%s: byte %d of the arena is %d, not %d", x->label, (int)i, got.arena[i],
                         want.arena[i]);
        for (int k = 0; k < x->n_y; k++)
            for (size_t i = 0; i < x->y_size[k]; i++)
                if (got.y[k][i] != want.y[k][i])
                    fail_msg("%s: byte %d of %d of result %d is %d, not %d", x->label, (int)i,
                             (int)x->y_size[k], k, got.y[k][i], want.y[k][i]);
        outcome_free(&got);
    }
    outcome_free(&want);
    free(x->arena);
    op_case_end(&x->c, graph);
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static const tdm_type wires[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16, TDM_TYPE_Q8_0};

static tdm_exchange_params sum_params(tdm_type wire, int32_t phase) {
    return (tdm_exchange_params){.kind = TDM_EXCHANGE_SUM,
                                 .phase = phase,
                                 .member = ME,
                                 .n_member = N_MEMBER,
                                 .wire_type = (int32_t)wire,
                                 .data_off = DATA_OFF,
                                 .data_stride = 16384,
                                 .flag_off = 64,
                                 .senders = 0x1f,
                                 .stage = (int32_t)random_below(4),
                                 .area_stride = AREA_STRIDE};
}

static int32_t random_input(exchange_case *x, const int64_t ne[TDM_MAX_DIMS], bool is_any) {
    size_t n = (size_t)tdm_shape_count(ne);
    float *data = op_random_floats(&seed, n, 9);
    for (size_t i = 0; i < n && is_any; i++) {
        uint32_t bits = random_bits();
        memcpy(&data[i], &bits, sizeof bits);
    }
    return op_case_input(&x->c, TDM_TYPE_F32, ne, data);
}

static void sums_are_published(void **state) {
    (void)state;
    for (size_t w = 0; w < OP_COUNT_OF(wires); w++)
        for (int variant = 0; variant < 6; variant++) {
            tdm_exchange_params p = sum_params(wires[w], TDM_EXCHANGE_PUBLISH);
            int32_t step;
            exchange_case x = case_begin("publish", &p, &step);
            bool is_any = wires[w] != TDM_TYPE_Q8_0 && variant % 2 == 1;
            int32_t v = random_input(&x, OP_SHAPE(37 + variant, 7, 3, 1), is_any);
            if (variant >= 4) v = tdm_build_permute(x.c.b, v, 1, 0, 2, 3);
            (void)tdm_build_exchange(x.c.b, v, x.arena_value, step, -1, TDM_TYPE_F32, NULL, &p);
            case_check(&x);
        }
}

static void sums_are_collected(void **state) {
    (void)state;
    for (size_t w = 0; w < OP_COUNT_OF(wires); w++)
        for (int variant = 0; variant < 16; variant++) {
            tdm_exchange_params p = sum_params(wires[w], TDM_EXCHANGE_COLLECT);
            int64_t ne[4] = {33, 6, 5, 2};
            int32_t step, residual = -1;
            p.senders = variant == 15 ? 0 : 1 + random_below(31);
            if (variant % 4 != 0) {
                p.kind = TDM_EXCHANGE_SUM_PART;
                p.axis = variant % 4;
                p.first = 1;
                p.whole = (int32_t)ne[p.axis];
                ne[p.axis] = p.whole - 1 - (p.whole > 4);
                if (variant >= 8 && variant < 12) { /* along the rows, inside a block */
                    ne[p.axis] = p.whole, p.axis = 0, p.first = 5, p.whole = 33, ne[0] = 20;
                }
            }
            exchange_case x = case_begin("collect", &p, &step);
            if (variant >= 4) residual = random_input(&x, ne, variant % 2 == 0);
            if (variant >= 12) {
                int64_t turned[4] = {ne[1], ne[0], ne[2], ne[3]};
                residual = tdm_build_permute(x.c.b, random_input(&x, turned, true), 1, 0, 2, 3);
            }
            case_result(
                &x,
                tdm_build_exchange(x.c.b, -1, x.arena_value, step, residual, TDM_TYPE_F32, ne, &p),
                TDM_TYPE_F32);
            case_check(&x);
        }
}

/* ---- Gathers --------------------------------------------------------------------------------- */

/* Parts of both payloads into the arena, or both results out of it. */
static void gathers_of_two(void **state) {
    static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_I32, TDM_TYPE_Q8_0,
                                     TDM_TYPE_Q4_0};
    (void)state;
    for (size_t t = 0; t < OP_COUNT_OF(types); t++)
        for (int axis = 0; axis < 4; axis++)
            for (int phase = 1; phase <= 2; phase++)
                for (int turned = 0; turned < 2; turned++) {
                    int64_t len = tdm_type_get_info(types[t]).block_len, part[2][4], whole[2][4];
                    tdm_exchange_params p = {.kind = TDM_EXCHANGE_GATHER,
                                             .phase = phase,
                                             .member = ME,
                                             .n_member = N_MEMBER,
                                             .data_off = DATA_OFF,
                                             .data_off2 = 65536,
                                             .flag_off = 64,
                                             .senders = 0x1f,
                                             .axis = axis,
                                             .axis2 = 3 - axis,
                                             .stage = (int32_t)random_below(4),
                                             .area_stride = AREA_STRIDE};
                    int32_t step, source[2] = {-1, -1}, second = -1;
                    const tdm_type both[2] = {types[t], types[t]};
                    for (int i = 0; i < 2; i++) {
                        const int64_t ne[4] = {3 * len, 4, 3, 2 + i};
                        int at = i == 0 ? axis : 3 - axis;
                        int64_t unit = at == 0 ? len : 1;
                        memcpy(part[i], ne, sizeof part[i]);
                        memcpy(whole[i], ne, sizeof whole[i]);
                        whole[i][at] += 3 * unit;
                        if (phase == TDM_EXCHANGE_PUBLISH) {
                            *(i == 0 ? &p.first : &p.first2) = (int32_t)unit;
                            *(i == 0 ? &p.whole : &p.whole2) = (int32_t)whole[i][at];
                        }
                    }
                    exchange_case x = case_begin("gather", &p, &step);
                    for (int i = 0; i < 2 && phase == TDM_EXCHANGE_PUBLISH; i++) {
                        const int64_t *ne = part[i];
                        size_t size = tdm_tensor_canonical_size(types[t], ne);
                        uint8_t *bytes = op_memory(size);
                        for (size_t k = 0; k < size; k++) bytes[k] = (uint8_t)op_random_next(&seed);
                        source[i] = op_case_input(
                            &x.c, types[t], turned ? OP_SHAPE(ne[0], ne[2], ne[1], ne[3]) : ne,
                            bytes);
                        if (turned) source[i] = tdm_build_permute(x.c.b, source[i], 0, 2, 1, 3);
                    }
                    int32_t first =
                        tdm_build_exchange_pair(x.c.b, source[0], source[1], x.arena_value, step,
                                                both, (const int64_t(*)[4])whole, &p, &second);
                    if (phase == TDM_EXCHANGE_COLLECT) {
                        case_result(&x, first, types[t]);
                        case_result(&x, second, types[t]);
                    }
                    case_check(&x);
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_published),
        cmocka_unit_test(sums_are_collected),
        cmocka_unit_test(gathers_of_two),
    };
    return cmocka_run_group_tests(tests, op_rigs_open, op_rigs_close);
}
