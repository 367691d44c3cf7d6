/* SPDX-License-Identifier: MIT
 *
 * exchange_phase.c: checks of an EXCHANGE with two payloads, in the second area of the arena, and
 * of its phases PUBLISH and COLLECT, each a graph of its own. The suite plays the other members:
 * their data are in the arena before the device begins. What exchanges in one piece compute is
 * checked in exchange.c.
 */
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "certify/exchange.h"

enum {
    N_MEMBER = 3,
    MEMBER = 1, /* the device under test */
    N_PAYLOAD = 2,
    N_ADDEND = 70, /* elements of a sum */
    STAGE = 3,
    BASE = 4, /* (BASE + STAGE) % 2 is area 1 */
    LINE = 64,
    FLAGS = LINE,
    DATA = FLAGS + N_MEMBER * LINE, /* of the first payload, in area 0 */
    DATA2 = DATA + 4096,
    AREA = 16384, /* from area to area */
    SIZE = 65536, /* of the arena, and its alignment */
    GUARD_BYTE = 0x6b,
    STEP_LEN = sizeof(tdm_step_header) / sizeof(int32_t)
};

typedef _Atomic uint64_t word;

/* Rows along axis 1, of which member m sends cut[m] .. cut[m + 1] - 1. */
static const struct {
    tdm_type type;
    int64_t ne[TDM_MAX_DIMS];
    int32_t cut[N_MEMBER + 1];
} payloads[N_PAYLOAD] = {
    {TDM_TYPE_F16, {33, 8, 1, 1}, {0, 2, 7, 8}},
    {TDM_TYPE_I32, {5, 11, 1, 1}, {0, 4, 6, 11}},
};

typedef struct scene {
    certify *c;
    uint8_t *arena, *before; /* [SIZE] the memory, and what it was */
    tdm_buffer *buffer;
    uint32_t epoch;
    uint8_t *whole[N_PAYLOAD]; /* of a gather: what all get */
    float addends[N_MEMBER][N_ADDEND], residual[N_ADDEND];
} scene;

static size_t row_size(int i) {
    return tdm_type_row_size(payloads[i].type, payloads[i].ne[0]);
}

static uint8_t *payload_at(const scene *s, int i) {
    return s->arena + AREA + (i == 0 ? DATA : DATA2);
}

static word *flag_of(const scene *s, int member) {
    return (word *)(void *)(s->arena + FLAGS + member * LINE);
}

static certify_verdict scene_create(certify *c, bool needs_flag, scene *s) {
    tdm_error err = {.struct_size = sizeof err};
    *s = (scene){.c = c, .epoch = 9};
    certify_verdict verdict = needs_flag ? certify_exchange_open(c) : certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!TDM_HAS(c->plugin->buffer, import_host)) return certify_skip(c, "no slot import_host");
    if (certify_import_align(c) > SIZE)
        return certify_skip(c, "import_align is above %d", (int)SIZE);
    s->arena = aligned_alloc(SIZE, SIZE);
    s->before = malloc(SIZE);
    for (int i = 0; i < N_PAYLOAD; i++)
        s->whole[i] = malloc(row_size(i) * (size_t)payloads[i].ne[1]);
    if (s->arena == NULL || s->before == NULL || s->whole[0] == NULL || s->whole[1] == NULL)
        return certify_skip(c, "out of memory");
    tdm_status status =
        c->plugin->buffer->import_host(c->device, s->arena, SIZE, NULL, &s->buffer, &err);
    if (status == TDM_UNSUPPORTED && !needs_flag) return certify_skip(c, "%.300s", err.message);
    if (status != TDM_OK) return certify_fail(c, "imports no arena: %.300s", err.message);
    return CERTIFY_PASSED;
}

static void scene_destroy(scene *s) {
    s->c->plugin->buffer->free(s->buffer);
    for (int i = 0; i < N_PAYLOAD; i++) free(s->whole[i]);
    free(s->arena);
    free(s->before);
}

/* Fills the arena with guard bytes and the data of the other members. Flags are those of the epoch
 * before, but with has_flags the other members' flags are of this epoch. Sums are of small whole
 * numbers, which no wire type and no order changes. */
static void arena_fill(scene *s, bool is_sum, bool has_flags) {
    memset(s->arena, GUARD_BYTE, SIZE);
    memset(s->arena, 0, LINE);
    for (int m = 0; m < N_MEMBER; m++)
        atomic_store(flag_of(s, m), (uint64_t)(s->epoch - (m == MEMBER || !has_flags)) << 32 | 1);
    for (int i = 0; i < N_PAYLOAD && !is_sum; i++) {
        certify_random_bytes(s->c, s->whole[i], row_size(i) * (size_t)payloads[i].ne[1]);
        for (int m = 0; m < N_MEMBER; m++) {
            size_t from = (size_t)payloads[i].cut[m] * row_size(i);
            size_t end = (size_t)payloads[i].cut[m + 1] * row_size(i);
            if (m != MEMBER) memcpy(payload_at(s, i) + from, s->whole[i] + from, end - from);
        }
    }
    for (int m = 0; m < N_MEMBER && is_sum; m++) {
        for (int k = 0; k < N_ADDEND; k++)
            s->addends[m][k] = (float)certify_random_in(s->c, -20, 20);
        if (m != MEMBER)
            (void)tdm_row_quantize(TDM_TYPE_F16, s->addends[m], payload_at(s, 0) + m * N_ADDEND * 2,
                                   N_ADDEND, NULL);
    }
    for (int k = 0; k < N_ADDEND; k++) s->residual[k] = (float)certify_random_in(s->c, -20, 20);
    memcpy(s->before, s->arena, SIZE);
}

/* ---- Graphs ---- */

static tdm_exchange_params params_make(bool is_sum, int32_t phase) {
    tdm_exchange_params p = {.stage = STAGE,
                             .member = MEMBER,
                             .n_member = N_MEMBER,
                             .data_off = DATA,
                             .flag_off = FLAGS,
                             .senders = (1u << N_MEMBER) - 1,
                             .area_stride = AREA,
                             .phase = phase};
    if (is_sum) {
        p.kind = TDM_EXCHANGE_SUM;
        p.wire_type = TDM_TYPE_F16;
        p.data_stride = N_ADDEND * 2;
        return p;
    }
    p.kind = TDM_EXCHANGE_GATHER;
    p.axis = p.axis2 = 1;
    p.data_off2 = DATA2;
    if (phase != TDM_EXCHANGE_COLLECT) {
        p.first = payloads[0].cut[MEMBER];
        p.first2 = payloads[1].cut[MEMBER];
    }
    if (phase == TDM_EXCHANGE_PUBLISH) {
        p.whole = (int32_t)payloads[0].ne[1];
        p.whole2 = (int32_t)payloads[1].ne[1];
    }
    return p;
}

/* One node; values that it does not have are -1. */
typedef struct node_rig {
    certify_rig rig;
    int32_t x[N_PAYLOAD], y[N_PAYLOAD], residual, step;
} node_rig;

static certify_verdict node_create(scene *s, bool is_sum, int32_t phase, node_rig *n) {
    const int64_t sum_ne[TDM_MAX_DIMS] = {N_ADDEND, 1, 1, 1};
    const bool has_x = phase != TDM_EXCHANGE_COLLECT, has_y = phase != TDM_EXCHANGE_PUBLISH;
    tdm_exchange_params p = params_make(is_sum, phase);
    tdm_type types[N_PAYLOAD];
    int64_t ne[N_PAYLOAD][TDM_MAX_DIMS];
    tdm_builder *b;
    if (tdm_builder_create(&b, NULL) != TDM_OK) return certify_skip(s->c, "out of memory");
    *n = (node_rig){.x = {-1, -1}, .y = {-1, -1}, .residual = -1};
    int32_t arena = tdm_build_bytes(b, "arena", SIZE);
    n->step = tdm_build_input(b, "step", TDM_TYPE_I32, (const int64_t[]){STEP_LEN, 1, 1, 1});
    for (int i = 0; i < N_PAYLOAD; i++) {
        int64_t part[TDM_MAX_DIMS];
        memcpy(ne[i], payloads[i].ne, sizeof ne[i]);
        memcpy(part, payloads[i].ne, sizeof part);
        part[1] = payloads[i].cut[MEMBER + 1] - payloads[i].cut[MEMBER];
        types[i] = payloads[i].type;
        if (has_x && !is_sum) n->x[i] = tdm_build_input(b, i == 0 ? "x" : "x2", types[i], part);
    }
    if (is_sum) {
        if (has_x) n->x[0] = tdm_build_input(b, "x", TDM_TYPE_F32, sum_ne);
        if (has_y) n->residual = tdm_build_input(b, "residual", TDM_TYPE_F32, sum_ne);
        n->y[0] =
            tdm_build_exchange(b, n->x[0], arena, n->step, n->residual, TDM_TYPE_F32, sum_ne, &p);
    } else {
        n->y[0] = tdm_build_exchange_pair(b, n->x[0], n->x[1], arena, n->step, types,
                                          (const int64_t(*)[TDM_MAX_DIMS])ne, &p, &n->y[1]);
    }
    for (int i = 0; i < N_PAYLOAD; i++) {
        if (!has_y || (is_sum && i > 0)) n->y[i] = -1;
        if (n->y[i] >= 0) tdm_build_output(b, n->y[i], i == 0 ? "y" : "y2");
    }
    certify_verdict verdict = certify_rig_create(s->c, b, &n->rig);
    if (verdict == CERTIFY_PASSED) certify_rig_bind(&n->rig, arena, s->buffer, 0, SIZE);
    return verdict;
}

static certify_verdict node_run(scene *s, node_rig *n, bool is_sum, const char *what) {
    tdm_step_header header = {.version = TDM_STEP_VERSION,
                              .size = STEP_LEN,
                              .epoch = (int32_t)s->epoch,
                              .exchange_base = BASE};
    tdm_error err = {.struct_size = sizeof err};
    memcpy(n->rig.bytes[n->step], &header, sizeof header);
    for (int i = 0; i < N_PAYLOAD; i++)
        if (n->x[i] >= 0 && !is_sum)
            memcpy(n->rig.bytes[n->x[i]],
                   s->whole[i] + (size_t)payloads[i].cut[MEMBER] * row_size(i),
                   n->rig.sizes[n->x[i]]);
    if (n->x[0] >= 0 && is_sum)
        memcpy(n->rig.bytes[n->x[0]], s->addends[MEMBER], sizeof s->addends[0]);
    if (n->residual >= 0) memcpy(n->rig.bytes[n->residual], s->residual, sizeof s->residual);
    certify_verdict verdict = certify_rig_upload(&n->rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (certify_rig_compute(&n->rig, &err) != TDM_OK)
        return certify_fail(s->c, "%s: '%.300s'", what, err.message);
    return certify_rig_download(&n->rig);
}

/* ---- Judging ---- */

/* This member's data as all members must find them in the arena. */
static void sent_expect(scene *s, bool is_sum, uint8_t *arena) {
    for (int i = 0; i < N_PAYLOAD && !is_sum; i++) {
        size_t from = (size_t)payloads[i].cut[MEMBER] * row_size(i);
        size_t end = (size_t)payloads[i].cut[MEMBER + 1] * row_size(i);
        memcpy(arena + AREA + (i == 0 ? DATA : DATA2) + from, s->whole[i] + from, end - from);
    }
    if (is_sum)
        (void)tdm_row_quantize(TDM_TYPE_F16, s->addends[MEMBER],
                               arena + AREA + DATA + MEMBER * N_ADDEND * 2, N_ADDEND, NULL);
}

/* Compares the arena with what it was, and what this member must have written. */
static certify_verdict arena_judge(const scene *s, const char *what) {
    for (size_t i = 0; i < SIZE; i++)
        if (s->arena[i] != s->before[i])
            return certify_fail(s->c, "%s: byte %zu of the arena is 0x%02x, not 0x%02x", what, i,
                                s->arena[i], s->before[i]);
    return CERTIFY_PASSED;
}

static certify_verdict results_judge(const scene *s, const node_rig *n, bool is_sum,
                                     const char *what) {
    for (int i = 0; i < N_PAYLOAD && !is_sum; i++)
        if (memcmp(n->rig.bytes[n->y[i]], s->whole[i], n->rig.sizes[n->y[i]]) != 0)
            return certify_fail(s->c, "%s: the result of payload %d is not what the members sent",
                                what, i + 1);
    for (int k = 0; k < N_ADDEND && is_sum; k++) {
        float want = s->residual[k], got;
        for (int m = 0; m < N_MEMBER; m++) want += s->addends[m][k];
        memcpy(&got, n->rig.bytes[n->y[0]] + (size_t)k * sizeof got, sizeof got);
        if (got != want)
            return certify_fail(s->c, "%s: element %d of the sum is %g, not %g", what, k,
                                (double)got, (double)want);
    }
    return CERTIFY_PASSED;
}

/* ---- Checks ---- */

static certify_verdict pair_check(certify *c) {
    static const char what[] = "two payloads in area 1";
    scene s;
    node_rig n;
    certify_verdict verdict = scene_create(c, true, &s);
    if (verdict == CERTIFY_PASSED) verdict = node_create(&s, false, TDM_EXCHANGE_WHOLE, &n);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!certify_rig_is_supported(&n.rig))
        return certify_fail(c, "claims TDM_DEVICE_HAS_EXCHANGE but refuses two payloads: %.300s",
                            c->failure.message);
    for (int run = 0; run < 2 && verdict == CERTIFY_PASSED; run++, s.epoch++) {
        arena_fill(&s, false, true);
        verdict = node_run(&s, &n, false, what);
        if (verdict == CERTIFY_PASSED) verdict = results_judge(&s, &n, false, what);
        uint64_t flag = atomic_load(flag_of(&s, MEMBER));
        if (verdict == CERTIFY_PASSED && flag != ((uint64_t)s.epoch << 32) + 1)
            verdict = certify_fail(c, "%s: its flag is 0x%llx at the end", what,
                                   (unsigned long long)flag);
        sent_expect(&s, false, s.before);
        memcpy(s.before + FLAGS + MEMBER * LINE, s.arena + FLAGS + MEMBER * LINE, 16);
        if (verdict == CERTIFY_PASSED) verdict = arena_judge(&s, what);
    }
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_rig_destroy(&n.rig);
    scene_destroy(&s);
    return CERTIFY_PASSED;
}

/* Publishes, then collects. All flags are of the epoch before, so a phase that waits for them
 * hangs: neither phase may wait. */
static certify_verdict phases_run(scene *s, bool is_sum) {
    const char *publish = is_sum ? "phase PUBLISH of a sum" : "phase PUBLISH of a gather";
    const char *collect = is_sum ? "phase COLLECT of a sum" : "phase COLLECT of a gather";
    node_rig first, second;
    certify_verdict verdict = node_create(s, is_sum, TDM_EXCHANGE_PUBLISH, &first);
    if (verdict == CERTIFY_PASSED) verdict = node_create(s, is_sum, TDM_EXCHANGE_COLLECT, &second);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!certify_rig_is_supported(&first.rig) || !certify_rig_is_supported(&second.rig))
        return certify_skip(s->c, "%.300s", s->c->failure.message);
    arena_fill(s, is_sum, false);
    verdict = node_run(s, &first, is_sum, publish);
    sent_expect(s, is_sum, s->before);
    if (verdict == CERTIFY_PASSED) verdict = arena_judge(s, publish);
    if (verdict == CERTIFY_PASSED) verdict = node_run(s, &second, is_sum, collect);
    if (verdict == CERTIFY_PASSED) verdict = results_judge(s, &second, is_sum, collect);
    if (verdict == CERTIFY_PASSED) verdict = arena_judge(s, collect);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_rig_destroy(&first.rig);
    certify_rig_destroy(&second.rig);
    return CERTIFY_PASSED;
}

static certify_verdict phases_check(certify *c) {
    scene s;
    certify_verdict verdict = scene_create(c, false, &s);
    if (verdict == CERTIFY_PASSED) verdict = phases_run(&s, true);
    if (verdict == CERTIFY_PASSED) verdict = phases_run(&s, false);
    if (verdict != CERTIFY_PASSED) return verdict;
    scene_destroy(&s);
    return CERTIFY_PASSED;
}

static const certify_check checks[] = {
    {"exchange.pair", 6,
     "collective.h: \"A GATHER may have a second payload: step 1 writes both parts, step 4 copies "
     "both results.\"; op.h: area_stride",
     pair_check},
    {"exchange.phases", 6,
     "collective.h: \"In phase PUBLISH a node performs step 1 alone, for all chunks; in phase "
     "COLLECT step 4 alone, for all chunks.\"",
     phases_check},
};
const certify_table certify_exchange_phase_table = CERTIFY_SHARED_TABLE(checks);
