/* SPDX-License-Identifier: MIT
 *
 * exchange.c: checks of EXCHANGE inside a plan (collective.h): results, waiting, aborting, and two
 * devices of the plugin with each other. The suite takes the place of the members that are not
 * under test.
 */
#include "certify/exchange.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LATE_NS = 30000000, N_TOGETHER = 40 };

static const char *kind_word(int32_t kind) {
    return kind == TDM_EXCHANGE_GATHER     ? "gather"
           : kind == TDM_EXCHANGE_SUM_PART ? "part of a sum"
                                           : "sum";
}

static void case_text(const certify_exchange_case *how, char *text, size_t size) {
    snprintf(text, size, "%s of [%lld, %lld, %lld], %s, member %d of %d, senders 0x%llx%s%s",
             kind_word(how->kind), (long long)how->ne[0], (long long)how->ne[1],
             (long long)how->ne[2], tdm_type_name(how->type), (int)how->member, (int)how->n_member,
             (unsigned long long)how->senders, how->has_residual ? ", residual" : "",
             how->is_sliced ? ", views" : "");
}

/* Runs a case in which all others have sent before the device begins. */
static certify_verdict case_run(certify *c, const certify_exchange_case *how) {
    certify_arena arena = {0};
    certify_exchange e;
    char text[160];
    tdm_error err = {.struct_size = sizeof err};
    case_text(how, text, sizeof text);
    certify_verdict verdict = certify_arena_create(c, how, &arena);
    if (verdict == CERTIFY_PASSED) verdict = certify_exchange_create(c, how, &arena, &e);
    if (verdict == CERTIFY_PASSED) verdict = certify_exchange_play_all(&e);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (certify_rig_compute(&e.rig, &err) != TDM_OK)
        return certify_fail(c, "%s: '%s'", text, err.message);
    verdict = certify_exchange_judge(&e, text, true);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_exchange_destroy(&e);
    certify_arena_destroy(&arena);
    return CERTIFY_PASSED;
}

static const tdm_type wires[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16, TDM_TYPE_Q8_0};
enum { N_WIRE = sizeof wires / sizeof wires[0] };

/* Sums of several lengths, senders and residuals, in every wire type. */
static certify_verdict sums_run(certify *c, certify_exchange_case how) {
    static const int64_t lengths[] = {1, 31, 32, 100, 1000};
    static const uint64_t senders[] = {7, 5, 2, 1, 0};
    certify_verdict verdict = CERTIFY_PASSED;
    for (int i = 0; i < N_WIRE; i++)
        for (int k = 0; k < 5 && verdict == CERTIFY_PASSED; k++) {
            how.type = wires[i];
            how.ne[0] = lengths[(i + k) % 5];
            how.senders = senders[k];
            how.has_residual = (i + k) % 2 == 0;
            how.is_sliced = k % 2 == 1;
            how.is_crowded = (i + k) % 3 == 2;
            how.has_extremes = i == 0 && k > 2;
            if (how.kind == TDM_EXCHANGE_SUM_PART && how.axis == 0) {
                how.cut[1] = (int32_t)(how.ne[0] / 3);
                how.cut[2] = how.cut[3] = (int32_t)how.ne[0];
            }
            verdict = case_run(c, &how);
        }
    return verdict;
}

static certify_verdict sum_check(certify *c) {
    certify_exchange_case how = {.n_member = 3, .member = 1, .ne = {1, 3, 2, 1}, .epoch = 7};
    certify_verdict verdict = certify_exchange_open(c);
    if (verdict == CERTIFY_PASSED) verdict = sums_run(c, how);
    how.n_member = 1, how.member = 0, how.senders = 1, how.type = TDM_TYPE_F32;
    how.has_extremes = true, how.ne[0] = 77;
    if (verdict == CERTIFY_PASSED) verdict = case_run(c, &how);
    how.ne[0] = 0;
    if (verdict == CERTIFY_PASSED) verdict = case_run(c, &how);
    return verdict;
}

static certify_verdict part_check(certify *c) {
    certify_exchange_case how = {
        .kind = TDM_EXCHANGE_SUM_PART, .n_member = 3, .member = 1, .ne = {1, 5, 2, 1}, .epoch = 7};
    certify_verdict verdict = certify_exchange_open(c);
    for (how.axis = 0; how.axis < 2 && verdict == CERTIFY_PASSED; how.axis++) {
        how.cut[1] = 2, how.cut[2] = 4, how.cut[3] = 5;
        verdict = sums_run(c, how);
    }
    return verdict;
}

static certify_verdict gather_check(certify *c) {
    static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_I32, TDM_TYPE_F16, TDM_TYPE_Q8_0};
    certify_exchange_case how = {
        .kind = TDM_EXCHANGE_GATHER, .n_member = 3, .member = 1, .epoch = 7};
    certify_verdict verdict = certify_exchange_open(c);
    for (int i = 0; i < 4 && verdict == CERTIFY_PASSED; i++)
        for (how.axis = 0; how.axis < 3 && verdict == CERTIFY_PASSED; how.axis++) {
            how.type = types[i];
            int32_t unit = how.axis == 0 ? tdm_type_get_info(how.type).block_len : 1;
            int64_t ne[TDM_MAX_DIMS] = {3 * tdm_type_get_info(how.type).block_len, 4, 3, 1};
            ne[how.axis] = 10 * unit;
            memcpy(how.ne, ne, sizeof ne);
            how.cut[1] = 3 * unit, how.cut[2] = 7 * unit, how.cut[3] = 10 * unit;
            how.senders = 7;
            how.is_sliced = how.axis == 1;
            verdict = case_run(c, &how);
            /* The first member holds everything; the device under test sends an empty part, or
             * nothing. */
            how.cut[1] = how.cut[2] = how.cut[3];
            if (verdict == CERTIFY_PASSED) verdict = case_run(c, &how);
            how.senders = 1;
            if (verdict == CERTIFY_PASSED) verdict = case_run(c, &how);
        }
    return verdict;
}

static certify_verdict chunks_check(certify *c) {
    static const int64_t counts[] = {TDM_EXCHANGE_CHUNK, 2 * TDM_EXCHANGE_CHUNK + 33};
    certify_verdict verdict = certify_exchange_open(c);
    for (int i = 0; i < 2 && verdict == CERTIFY_PASSED; i++) {
        certify_exchange_case how = {.n_member = 2,
                                     .senders = 3,
                                     .type = TDM_TYPE_Q8_0,
                                     .ne = {counts[i], 1, 1, 1},
                                     .has_residual = true,
                                     .epoch = 7};
        verdict = case_run(c, &how);
    }
    return verdict;
}

/* ---- Members that come late, or not at all ---- */

typedef struct late {
    certify_exchange *e;
    bool aborts;
} late;

static void *late_main(void *arg) {
    late *l = arg;
    nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
    if (l->aborts)
        certify_arena_abort(&l->e->arena, 1);
    else
        for (int32_t m = 0; m < l->e->how.n_member; m++)
            if (m != l->e->how.member) certify_exchange_play(l->e, m);
    return NULL;
}

static tdm_status late_run(late *l, tdm_error *err) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, late_main, l) != 0)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cannot start threads");
    tdm_status status = certify_rig_compute(&l->e->rig, err);
    pthread_join(thread, NULL);
    return status;
}

/* The others' flags still have all chunks of the epoch before. The device must not take these for
 * chunks of this epoch, also where the epoch wraps. */
static certify_verdict wait_check(certify *c) {
    static const uint32_t epochs[] = {7, 0, 0x80000000u};
    certify_verdict verdict = certify_exchange_open(c);
    for (int i = 0; i < 3 && verdict == CERTIFY_PASSED; i++) {
        certify_exchange_case how = {.n_member = 3,
                                     .member = 2,
                                     .senders = 7,
                                     .type = TDM_TYPE_F32,
                                     .ne = {500, 1, 1, 1},
                                     .epoch = epochs[i]};
        certify_arena arena = {0};
        certify_exchange e;
        tdm_error err = {.struct_size = sizeof err};
        verdict = certify_arena_create(c, &how, &arena);
        if (verdict == CERTIFY_PASSED) verdict = certify_exchange_create(c, &how, &arena, &e);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (late_run(&(late){&e, false}, &err) != TDM_OK)
            return certify_fail(c, "epoch %u, members 30 ms late: '%s'", epochs[i], err.message);
        verdict = certify_exchange_judge(&e, "members 30 ms late", false);
        if (verdict != CERTIFY_PASSED) return verdict;
        certify_exchange_destroy(&e);
        certify_arena_destroy(&arena);
    }
    return verdict;
}

static certify_verdict abort_check(certify *c) {
    certify_exchange_case how = {
        .n_member = 2, .senders = 3, .type = TDM_TYPE_F32, .ne = {500, 1, 1, 1}, .epoch = 7};
    certify_arena arena = {0};
    certify_exchange e;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_exchange_open(c);
    if (verdict == CERTIFY_PASSED) verdict = certify_arena_create(c, &how, &arena);
    if (verdict == CERTIFY_PASSED) verdict = certify_exchange_create(c, &how, &arena, &e);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_status status = late_run(&(late){&e, true}, &err);
    if (status != TDM_CANCELLED)
        return certify_fail(c, "aborted while waiting: '%s', not '%s'", tdm_status_text(status),
                            tdm_status_text(TDM_CANCELLED));
    verdict = certify_exchange_play_all(&e);
    if (verdict != CERTIFY_PASSED) return verdict;
    status = certify_rig_compute(&e.rig, &err);
    if (status != TDM_CANCELLED)
        return certify_fail(c, "with the abort word set and all flags there: '%s', not '%s'",
                            tdm_status_text(status), tdm_status_text(TDM_CANCELLED));
    /* The device must still work. */
    certify_arena_abort(&arena, 0);
    e.how.epoch++;
    verdict = certify_exchange_next(&e);
    if (verdict == CERTIFY_PASSED) verdict = certify_exchange_play_all(&e);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (certify_rig_compute(&e.rig, &err) != TDM_OK)
        return certify_fail(c, "in the run after an abort: '%s'", err.message);
    verdict = certify_exchange_judge(&e, "in the run after an abort", true);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_exchange_destroy(&e);
    certify_arena_destroy(&arena);
    return CERTIFY_PASSED;
}

/* ---- Two devices ---- */

typedef struct peer {
    certify_exchange *e;
    tdm_status status;
    tdm_error err;
} peer;

static void *peer_main(void *arg) {
    peer *p = arg;
    p->status = certify_rig_compute(&p->e->rig, &p->err);
    return NULL;
}

static certify_verdict pair_run(certify_exchange *e) {
    peer peers[2] = {{.e = &e[0]}, {.e = &e[1]}};
    pthread_t thread;
    char text[64];
    for (int i = 0; i < 2; i++) {
        tdm_error err = {.struct_size = sizeof err};
        if (certify_rig_prepare(&e[i].rig, &err) != TDM_OK)
            return certify_fail(e[0].c, "plan of member %d: '%.300s'", i, err.message);
    }
    if (pthread_create(&thread, NULL, peer_main, &peers[1]) != 0)
        return certify_skip(e[0].c, "cannot start threads");
    peer_main(&peers[0]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "run %u of two devices, member %d", e[i].how.epoch, i);
        if (peers[i].status != TDM_OK)
            return certify_fail(e[0].c, "%s: '%.300s'", text, peers[i].err.message);
        certify_verdict verdict = certify_exchange_judge(&e[i], text, false);
        if (verdict != CERTIFY_PASSED) return verdict;
    }
    return CERTIFY_PASSED;
}

/* A certify for the second device, which the caller opens. Its random numbers are others than those
 * of c: a device that adds its own addend twice must not pass. Freed with free(); NULL without
 * memory. */
static certify *twin_create(certify *c) {
    certify *twin = malloc(sizeof *twin);
    if (twin == NULL) return NULL;
    memcpy(twin, c, sizeof *twin);
    twin->random = certify_random(c) | 1; /* the generator's state is not 0 */
    return twin;
}

/* Returns the verdict after copying the message of the twin, where it has one, to c. */
static certify_verdict twin_report(certify *c, const certify *twin, certify_verdict verdict) {
    if (twin->message[0] != 0) memcpy(c->message, twin->message, sizeof c->message);
    return verdict;
}

/* Runs two members of one exchange, then the next epochs. */
static certify_verdict pair_runs(certify_exchange *e) {
    certify_verdict verdict = CERTIFY_PASSED;
    for (int i = 0; i < N_TOGETHER && verdict == CERTIFY_PASSED; i++) {
        verdict = pair_run(e);
        for (int m = 0; m < 2 && verdict == CERTIFY_PASSED; m++) {
            e[m].how.epoch++;
            verdict = certify_exchange_next(&e[m]);
        }
    }
    return verdict;
}

static certify_verdict together_check(certify *c) {
    certify_exchange_case how = {.n_member = 2,
                                 .senders = 3,
                                 .type = TDM_TYPE_F16,
                                 .ne = {3000, 1, 1, 1},
                                 .epoch = 0xfffffff0u};
    certify_arena arena = {0};
    certify_exchange e[2];
    certify_verdict verdict = certify_exchange_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify *twin = twin_create(c);
    if (twin == NULL) return certify_skip(c, "out of memory");
    verdict = certify_open_on(c, c->instance, &twin->device);
    if (verdict == CERTIFY_PASSED) verdict = certify_arena_create(c, &how, &arena);
    if (verdict == CERTIFY_PASSED) verdict = certify_exchange_create(c, &how, &arena, &e[0]);
    how.member = 1;
    if (verdict == CERTIFY_PASSED) verdict = certify_exchange_create(twin, &how, &arena, &e[1]);
    if (verdict == CERTIFY_PASSED) verdict = pair_runs(e);
    if (verdict != CERTIFY_PASSED) return twin_report(c, twin, verdict);
    certify_exchange_destroy(&e[0]);
    certify_exchange_destroy(&e[1]);
    certify_arena_destroy(&arena);
    c->plugin->device->close(twin->device);
    free(twin);
    return CERTIFY_PASSED;
}

/* Two devices with flags and data in memory of the first. */
static certify_verdict peer_memory_check(certify *c) {
    certify_exchange_case how = {
        .n_member = 2, .senders = 3, .type = TDM_TYPE_F32, .ne = {3000, 1, 1, 1}, .epoch = 5};
    certify_arena arena = {0};
    certify_exchange e[2];
    tdm_error err = {.struct_size = sizeof err};
    tdm_buffer *home = NULL, *import = NULL;
    certify_verdict verdict = certify_exchange_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, import_peer)) return certify_skip(c, "no slot import_peer");
    certify *twin = twin_create(c);
    if (twin == NULL) return certify_skip(c, "out of memory");
    verdict = certify_open_next(c, &twin->device);
    if (verdict == CERTIFY_PASSED) verdict = certify_arena_create(c, &how, &arena);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_params params = {sizeof params, arena.size, TDM_BUFFER_ARENA, 0, NULL};
    if (ops->alloc(c->device, &params, &home, &err) != TDM_OK)
        return certify_fail(c, "a buffer of purpose ARENA: %.300s", err.message);
    tdm_status status = ops->import_peer(twin->device, home, &import, &err);
    if (status == TDM_UNSUPPORTED) return certify_skip(c, "%.300s", err.message);
    /* The flags of earlier epochs, which the arena has, too. */
    if (status == TDM_OK) status = ops->upload(import, 0, arena.data, arena.size, &err);
    if (status != TDM_OK) return certify_fail(c, "%.300s", err.message);
    how.peer = home;
    verdict = certify_exchange_create(c, &how, &arena, &e[0]);
    how.member = 1;
    how.peer = import;
    if (verdict == CERTIFY_PASSED) verdict = certify_exchange_create(twin, &how, &arena, &e[1]);
    if (verdict == CERTIFY_PASSED) verdict = pair_runs(e);
    if (verdict != CERTIFY_PASSED) return twin_report(c, twin, verdict);
    certify_exchange_destroy(&e[0]);
    certify_exchange_destroy(&e[1]);
    ops->free(import);
    ops->free(home);
    certify_arena_destroy(&arena);
    c->plugin->device->close(twin->device);
    free(twin);
    return CERTIFY_PASSED;
}

static const certify_check checks[] = {
    {"exchange.sum", 6,
     "collective.h: \"sums the chunk as it crossed the wire, its own included, in member order, in "
     "f32, each addition rounded on its own, starting from the first sender's\"",
     sum_check},
    {"exchange.part", 6,
     "op.h: TDM_EXCHANGE_SUM_PART: \"a part of the sum: `axis` from `first` on\"", part_check},
    {"exchange.gather", 6,
     "op.h: TDM_EXCHANGE_GATHER: \"the senders' parts side by side along `axis`, any type, as "
     "bytes\"",
     gather_check},
    {"exchange.chunks", 6,
     "collective.h: \"A sum is done in chunks of TDM_EXCHANGE_CHUNK elements of the addend in "
     "canonical order\"",
     chunks_check},
    {"exchange.wait", 6,
     "collective.h: \"waits, with a bounded spin, until every flag of the n_member holds at least "
     "that\"",
     wait_check},
    {"exchange.abort", 6,
     "collective.h: \"the abort word, when it is not 0, fails the plan with TDM_CANCELLED, flags "
     "or "
     "not\"",
     abort_check},
    {"exchange.together", 6,
     "collective.h: \"destinations: the results, equal on every member by bits.\"", together_check},
    {"exchange.peer", 6,
     "collective.h: \"A node then has the source `peer`, and its offsets count in that memory.\"",
     peer_memory_check},
};
const certify_table certify_exchange_table = CERTIFY_SHARED_TABLE(checks);
