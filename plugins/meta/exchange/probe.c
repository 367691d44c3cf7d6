/* SPDX-License-Identifier: MIT
 *
 * probe.c: tests a member's own EXCHANGE before the group uses it: each member alone, with the host
 * in the place of all others, then all members that passed together. The results must have the same
 * bits as the host's. One of the other members publishes after a pause, so that a device that does
 * not wait for flags reads wrong data.
 *
 * A member that may not wait is tested alone, with the phases PUBLISH and COLLECT: what it
 * publishes must be the host's bytes, and what it collects must have the bits that the host
 * collects from the same arena. A code of q8_0 may differ by one, since some devices round
 * quotients differently. That is harmless, because all members sum the bytes that crossed.
 *
 * Peer memory is tested by all members together, with flags and data there. Before that, patterns
 * are copied through it without kernels: where a member's import leads to other memory, the pattern
 * does not arrive, while kernels would wait for flags until the timeout.
 *
 * The probe has an arena of its own, because a member that does not end in time may write to it
 * later. In that case arena, graph, buffer and queue of the test are kept until the member ends,
 * and the group's own memory is not affected.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/exec/event.h"
#include "plugins/meta/exec/stall_timer.h"
#include "plugins/meta/exec/stuck.h"

enum {
    DATA_AT = META_ARENA_FLAGS + 64 * TDM_MAX_MEMBERS,
    MAX_COUNT = TDM_EXCHANGE_CHUNK + 4096, /* elements of the largest addend: two chunks */
    POISON = 0xa5,
    PAUSE_NS = 500000
};
#define CASE_NS UINT64_C(3000000000)

typedef struct probe_case {
    tdm_exchange_kind kind;
    tdm_type type; /* of the result */
    int64_t ne[TDM_MAX_DIMS];
    int32_t axis;
    bool has_residual, is_pausing;
    bool omits_first; /* rank 0 sends nothing */
} probe_case;

/* Shapes of the results. The parts of a GATHER and the addends of a SUM_PART follow from the number
 * of members. */
static const probe_case cases[] = {
    {TDM_EXCHANGE_SUM, TDM_TYPE_F32, {37, 3, 1, 1}, 0, true, true, false},
    {TDM_EXCHANGE_GATHER, TDM_TYPE_I32, {3, 0, 2, 1}, 1, false, true, false},
    {TDM_EXCHANGE_SUM, TDM_TYPE_F32, {TDM_EXCHANGE_CHUNK + 40, 1, 1, 1}, 0, true, false, false},
    {TDM_EXCHANGE_SUM, TDM_TYPE_F32, {64, 1, 1, 1}, 0, false, false, true},
    {TDM_EXCHANGE_SUM_PART, TDM_TYPE_F32, {16, 5, 1, 1}, 0, true, true, false},
    {TDM_EXCHANGE_GATHER, TDM_TYPE_F32, {0, 7, 1, 1}, 0, false, false, false},
};
enum { N_CASE = sizeof cases / sizeof *cases };

/* The arena of a probe. Members that do not end in time keep it. */
typedef struct probe_arena {
    uint8_t *data;
    size_t size;
    int32_t n_user; /* references: the probe, and members that keep it */
    meta_peer peer; /* of flags and data; not open where they are in the arena */
} probe_arena;

/* What a member under test uses, in one allocation, which a stuck member keeps. */
typedef struct probe_part {
    int32_t d, rank;
    tdm_queue *queue;
    tdm_semaphore *semaphore;
    uint64_t value;
    tdm_buffer *arena, *buffer;
    probe_arena *words;
    tdm_plan *plan;
    tdm_value values[6];
    tdm_node node;
    tdm_graph graph;
    uint64_t off[6]; /* in buffer; x, step, residual, y by the value's index */
    bool is_refused, is_stuck;
    bool has_ended;  /* in the current case: its semaphore was signalled or poisoned */
    bool is_skipped; /* another member aborted the case */
    tdm_error why;
    meta_pending_release later;
} probe_part;

enum { V_X, V_ARENA, V_STEP, V_RESIDUAL, V_Y, V_PEER, N_VALUE };

typedef struct probe {
    meta_device *device;
    meta_arena arena, truth; /* used by the members; used by the host for the expected results */
    uint64_t size;
    uint32_t epoch, seed;
    float *x[TDM_MAX_MEMBERS]; /* by rank; 4-byte elements of any type */
    float *residual, *expected, *result;
    bool is_aborted; /* the current case was aborted */
    bool uses_peer;  /* flags and data are in words->peer */
    probe_arena *words;
} probe;

/* ---- Test data ------------------------------------------------------------------------------- */

/* Numbers of many magnitudes and both signs, so that their sum depends on the order of addition. */
static void pattern_fill(probe *p, float *x, int64_t n, tdm_type type) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = p->seed = p->seed * 1664525u + 1013904223u;
        if (type == TDM_TYPE_F32)
            x[i] = (float)((int32_t)bits >> 8) / (float)(1 << (8 + (bits >> 4) % 16));
        else
            memcpy(&x[i], &bits, sizeof bits);
    }
}

/* The arguments of one rank: its shapes and its data. */
static void args_make(const probe *p, const probe_case *c, tdm_exchange_params *params,
                      int32_t rank, meta_exchange_args *a) {
    int64_t n = p->device->n_active;
    memset(a, 0, sizeof *a);
    memset(params, 0, sizeof *params);
    params->member = rank;
    params->n_member = (int32_t)n;
    params->kind = (int32_t)c->kind;
    params->axis = c->axis;
    params->data_off = DATA_AT;
    params->flag_off = META_ARENA_FLAGS;
    params->senders = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    if (c->omits_first) params->senders &= ~UINT64_C(1);
    memcpy(a->first.ne, c->ne, sizeof a->first.ne);
    memcpy(a->first.x_ne, c->ne, sizeof a->first.x_ne);
    if (c->kind == TDM_EXCHANGE_GATHER) { /* rank r sends r + 1 elements of the axis */
        a->first.ne[c->axis] = n * (n + 1) / 2;
        a->first.x_ne[c->axis] = rank + 1;
        params->first = rank * (rank + 1) / 2;
    } else {
        params->wire_type = (int32_t)p->device->options.reduce_type;
        params->data_stride = (p->size - DATA_AT) / (uint64_t)n / 64 * 64;
    }
    if (c->kind == TDM_EXCHANGE_SUM_PART) { /* rank r receives the part from 3 * r on */
        a->first.x_ne[c->axis] = 3 * n + c->ne[c->axis];
        params->whole = (int32_t)a->first.x_ne[c->axis];
        params->first = 3 * rank;
    }
    bool is_sender = (params->senders >> rank & 1) != 0;
    a->params = params;
    a->epoch = p->epoch;
    a->first.type = (int32_t)c->type;
    if (is_sender) a->first.x = p->x[rank];
    if (!is_sender) memset(a->first.x_ne, 0, sizeof a->first.x_ne);
    if (c->has_residual) a->residual = p->residual;
}

/* ---- A member under test --------------------------------------------------------------------- */

static void value_set(probe_part *t, int32_t v, int32_t kind, tdm_type type, const int64_t *ne) {
    t->values[v] = (tdm_value){.kind = kind, .type = (int32_t)type, .slot = v};
    memcpy(t->values[v].ne, ne, sizeof t->values[v].ne);
}

static void graph_make(const probe *p, probe_part *t, const meta_exchange_args *a) {
    const bool publishes = a->params->phase == TDM_EXCHANGE_PUBLISH;
    const int64_t arena_ne[TDM_MAX_DIMS] = {(int64_t)p->size, 1, 1, 1};
    const int64_t step_ne[TDM_MAX_DIMS] = {sizeof(tdm_step_header) / sizeof(int32_t), 1, 1, 1};
    const int64_t none[TDM_MAX_DIMS] = {1, 1, 1, 1};
    value_set(t, V_X, TDM_VALUE_INPUT, (tdm_type)a->first.type,
              a->first.x != NULL ? a->first.x_ne : none);
    value_set(t, V_ARENA, TDM_VALUE_STATE, TDM_TYPE_I8, arena_ne);
    value_set(t, V_STEP, TDM_VALUE_INPUT, TDM_TYPE_I32, step_ne);
    value_set(t, V_RESIDUAL, TDM_VALUE_INPUT, TDM_TYPE_F32,
              a->residual != NULL ? a->first.ne : none);
    value_set(t, V_PEER, TDM_VALUE_STATE, TDM_TYPE_I8, arena_ne);
    value_set(t, V_Y, publishes ? TDM_VALUE_INPUT : TDM_VALUE_OUTPUT, (tdm_type)a->first.type,
              a->first.ne);
    t->node = (tdm_node){.op = TDM_OP_EXCHANGE, .n_src = 6, .n_dst = 2};
    for (int32_t i = 0; i < TDM_MAX_SRC; i++) t->node.src[i] = -1;
    for (int32_t i = 0; i < TDM_MAX_DST; i++) t->node.dst[i] = -1;
    t->node.src[0] = a->first.x != NULL ? V_X : -1;
    t->node.src[1] = V_ARENA;
    t->node.src[2] = V_STEP;
    t->node.src[3] = a->residual != NULL && !publishes ? V_RESIDUAL : -1;
    t->node.src[5] = p->uses_peer ? V_PEER : -1;
    t->node.dst[0] = publishes ? -1 : V_Y;
    t->node.params.exchange = *a->params;
    t->graph = (tdm_graph){.struct_size = sizeof t->graph,
                           .value_size = sizeof(tdm_value),
                           .node_size = sizeof(tdm_node),
                           .partition_size = sizeof(tdm_partition),
                           .kv_size = sizeof(tdm_kv_desc),
                           .values = t->values,
                           .nodes = &t->node,
                           .names = "",
                           .names_size = 1,
                           .n_value = p->uses_peer ? N_VALUE : V_PEER,
                           .n_node = 1,
                           .n_slot = p->uses_peer ? N_VALUE : V_PEER,
                           .step = -1};
}

static meta_member *member_of(const probe *p, const probe_part *t) {
    return &p->device->members[t->d];
}

/* Makes the queue, the memory and the import of the arena that one member uses in all its cases. */
static tdm_status part_open(probe *p, probe_part *t, tdm_error *err) {
    meta_member *member = member_of(p, t);
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    uint64_t step = meta_round_up(sizeof(tdm_step_header), member->align);
    uint64_t array = meta_round_up(MAX_COUNT * sizeof(float), member->align);
    t->off[V_RESIDUAL] = step;
    t->off[V_X] = step + array;
    t->off[V_Y] = step + 2 * array;
    tdm_buffer_params params = {
        .struct_size = sizeof params, .size = step + 3 * array, .purpose = TDM_BUFFER_COMPUTE};
    if (!TDM_HAS(ops, import_host))
        return tdm_fail(err, TDM_UNSUPPORTED, "it imports no host memory");
    tdm_status status = ops->import_host(member->acquired.device, p->arena.data, p->arena.size,
                                         NULL, &t->arena, err);
    if (status == TDM_OK) status = ops->alloc(member->acquired.device, &params, &t->buffer, err);
    if (status == TDM_OK)
        status = member->acquired.plugin->queue->create(member->acquired.device, &t->queue, err);
    if (status == TDM_OK) status = p->device->host->semaphore->create(0, &t->semaphore, err);
    return status;
}

static void words_drop(meta_device *device, probe_arena *words) {
    if (words == NULL || --words->n_user > 0) return;
    meta_peer_close(device, &words->peer);
    if (words->data != NULL) device->host->free(device->host->context, words->data, words->size);
    meta_free(device->host, words, sizeof *words);
}

static void part_release(meta_device *device, int32_t d, void *part) {
    probe_part *t = part;
    const meta_member *member = &device->members[d];
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    if (t->plan != NULL) member->acquired.plugin->queue->plan_destroy(t->plan);
    if (t->queue != NULL) member->acquired.plugin->queue->destroy(t->queue);
    if (t->buffer != NULL) ops->free(t->buffer);
    if (t->arena != NULL) ops->free(t->arena);
    device->host->semaphore->destroy(t->semaphore);
    words_drop(device, t->words);
    meta_free(device->host, t, sizeof *t);
}

static void part_close(probe *p, probe_part *t) {
    if (t->is_stuck)
        meta_release_later(p->device, t->d, t->semaphore, t->value, part_release, t, &t->later);
    else
        part_release(p->device, t->d, t);
}

/* Makes the plan of a member's part of a case, and its inputs. */
static tdm_status part_prepare(probe *p, probe_part *t, const meta_exchange_args *a,
                               tdm_error *err) {
    const meta_member *member = member_of(p, t);
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    const tdm_queue_ops *queue = member->acquired.plugin->queue;
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_step_header header = {.version = TDM_STEP_VERSION,
                              .size = sizeof header / sizeof(int32_t),
                              .epoch = (int32_t)p->epoch};
    if (t->plan != NULL) queue->plan_destroy(t->plan);
    t->plan = NULL;
    graph_make(p, t, a);
    tdm_status status = p->device->host->graph->verify(&t->graph, err);
    if (status == TDM_OK)
        status = queue->graph_prepare(t->queue, &t->graph, &params, &t->plan, err);
    tdm_binding bindings[N_VALUE];
    for (int32_t v = 0; v < N_VALUE; v++)
        bindings[v] =
            (tdm_binding){t->buffer, t->off[v],
                          tdm_tensor_canonical_size((tdm_type)t->values[v].type, t->values[v].ne)};
    bindings[V_ARENA] = (tdm_binding){t->arena, 0, p->size};
    if (p->uses_peer) bindings[V_PEER] = (tdm_binding){p->words->peer.buffers[t->d], 0, p->size};
    uint64_t y_size = bindings[V_Y].size;
    memset(p->result, POISON, (size_t)y_size);
    if (status == TDM_OK)
        status = ops->upload(t->buffer, t->off[V_STEP], &header, sizeof header, err);
    if (status == TDM_OK && a->first.x != NULL)
        status = ops->upload(t->buffer, t->off[V_X], a->first.x, bindings[V_X].size, err);
    if (status == TDM_OK && a->residual != NULL)
        status =
            ops->upload(t->buffer, t->off[V_RESIDUAL], a->residual, bindings[V_RESIDUAL].size, err);
    if (status == TDM_OK) status = ops->upload(t->buffer, t->off[V_Y], p->result, y_size, err);
    return status == TDM_OK ? queue->plan_bind(t->plan, bindings, t->graph.n_slot, err) : status;
}

static tdm_status part_submit(probe *p, probe_part *t, tdm_error *err) {
    const tdm_queue_ops *queue = member_of(p, t)->acquired.plugin->queue;
    const tdm_point done = {t->semaphore, t->value + 1};
    tdm_status status = queue->graph_compute(t->queue, t->plan, NULL, 0, &done, 1, err);
    if (status == TDM_OK) t->value++;
    return status;
}

/* ---- A case ---------------------------------------------------------------------------------- */

static void abort_word_set(probe *p, uint64_t value) {
    atomic_store_explicit((_Atomic uint64_t *)(void *)p->arena.data, value, memory_order_release);
}

static void part_refuse(probe_part *t, tdm_status status, const char *why) {
    if (t->is_refused) return;
    t->is_refused = true;
    tdm_fail(&t->why, status, "%s", why);
}

static void case_abort(probe *p) {
    p->is_aborted = true;
    abort_word_set(p, 1);
}

/* Waits until a member has ended the case, or until stall_timer has reached limit_ns. A member that
 * left because the case was aborted is tested again, with a new semaphore. */
static void part_await(probe *p, probe_part *t, meta_stall_timer *stall_timer, uint64_t limit_ns) {
    const tdm_host_semaphore_ops *ops = p->device->host->semaphore;
    tdm_error err = {0};
    uint64_t value = 0;
    tdm_status status =
        meta_stall_timer_wait(stall_timer, p->device->host, t->semaphore, t->value, limit_ns, &err);
    if (status == TDM_DEADLINE_EXCEEDED && ops->query(t->semaphore, &value, &err) == TDM_OK &&
        value < t->value)
        return;
    t->has_ended = true;
    if (status == TDM_OK) return;
    t->is_skipped = true;
    if (status != TDM_CANCELLED || !p->is_aborted) {
        part_refuse(t, status, err.message);
        case_abort(p);
        return;
    }
    ops->destroy(t->semaphore);
    t->value = 0;
    status = ops->create(0, &t->semaphore, &err);
    if (status == TDM_OK) return;
    t->semaphore = NULL;
    part_refuse(t, status, err.message);
}

/* The case timed out. Refuses the members that have not published; where all have, those that have
 * not ended. Then aborts the case and waits again: a member that still has not ended is stuck. */
static void parts_time_out(probe *p, uint64_t flag, probe_part *const *parts, int32_t n_part) {
    bool is_anyone = false;
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < n_part; i++) {
            uint64_t off = META_ARENA_FLAGS + 64 * (uint64_t)parts[i]->rank;
            uint64_t own = atomic_load_explicit((_Atomic uint64_t *)(void *)(p->arena.data + off),
                                                memory_order_acquire);
            if (parts[i]->has_ended || (pass == 0 && (int64_t)(own - flag) >= 0)) continue;
            if (pass == 1 && is_anyone) continue;
            part_refuse(parts[i], TDM_DEADLINE_EXCEEDED, "it did not end in time");
        }
        for (int32_t i = 0; i < n_part; i++) is_anyone = is_anyone || parts[i]->is_refused;
    }
    case_abort(p);
    meta_stall_timer stall_timer;
    meta_stall_timer_begin(&stall_timer, meta_clock_ns());
    for (int32_t i = 0; i < n_part; i++) {
        if (parts[i]->has_ended) continue;
        part_await(p, parts[i], &stall_timer, CASE_NS / 4);
        parts[i]->is_skipped = true;
        if (parts[i]->has_ended) continue;
        parts[i]->is_stuck = true;
        part_refuse(parts[i], TDM_DEADLINE_EXCEEDED, "it did not end in time");
    }
}

static probe_part *part_of_rank(probe_part *const *parts, int32_t n_part, int32_t rank) {
    for (int32_t i = 0; i < n_part; i++)
        if (parts[i]->rank == rank) return parts[i];
    return NULL;
}

/* Compares a member's result with the host's result for the same addends, which are in `arena`. */
static void part_compare(probe *p, meta_arena *arena, probe_part *t, const probe_case *c) {
    const tdm_buffer_ops *ops = meta_member_buffers(member_of(p, t));
    tdm_exchange_params params;
    meta_exchange_args a;
    tdm_error err = {0};
    args_make(p, c, &params, t->rank, &a);
    size_t size = (size_t)tdm_shape_count(a.first.ne) * sizeof(float);
    a.first.result = p->expected;
    tdm_status status = meta_exchange_collect(arena, &a, &err);
    if (status == TDM_OK) status = ops->download(t->buffer, t->off[V_Y], p->result, size, &err);
    if (status != TDM_OK)
        part_refuse(t, status, err.message);
    else if (memcmp(p->result, p->expected, size) != 0)
        part_refuse(t, TDM_DATA_LOSS, "its results differ from the host's");
}

/* Fills the data in peer memory with POISON. */
static tdm_status peer_poison(const probe *p, tdm_error *err) {
    const meta_peer *peer = &p->words->peer;
    return meta_member_buffers(&p->device->members[peer->home])
        ->fill(peer->buffers[peer->home], DATA_AT, p->size - DATA_AT, POISON, err);
}

/* Copies the data in peer memory to p->arena, where the host reads them. */
static tdm_status peer_fetch(const probe *p, tdm_error *err) {
    const meta_peer *peer = &p->words->peer;
    return meta_member_buffers(&p->device->members[peer->home])
        ->download(peer->buffers[peer->home], DATA_AT, p->arena.data + DATA_AT, p->size - DATA_AT,
                   err);
}

/* Makes the data of a case, and publishes all of it in `truth`. */
static void case_begin(probe *p, const probe_case *c) {
    tdm_exchange_params params;
    meta_exchange_args a;
    p->epoch++;
    p->is_aborted = false;
    memset(p->arena.data + DATA_AT, POISON, (size_t)(p->size - DATA_AT));
    memset(p->truth.data + DATA_AT, POISON, (size_t)(p->size - DATA_AT));
    for (int32_t r = 0; r < p->device->n_active; r++) {
        args_make(p, c, &params, r, &a);
        if (a.first.x != NULL) pattern_fill(p, p->x[r], tdm_shape_count(a.first.x_ne), c->type);
        meta_exchange_publish(&p->truth, &a);
    }
    pattern_fill(p, p->residual, MAX_COUNT, TDM_TYPE_F32);
}

/* Whether all data in the arena are the bytes that the host publishes (`truth`). Bytes of q8_0 may
 * differ by one: codes that were rounded differently. */
static bool has_published(const probe *p, const tdm_exchange_params *params) {
    const bool is_q8_0 = params->wire_type == TDM_TYPE_Q8_0 && params->data_stride != 0;
    for (uint64_t i = DATA_AT; i < p->size; i++) {
        int got = (int8_t)p->arena.data[i], want = (int8_t)p->truth.data[i];
        if (got != want && (!is_q8_0 || abs(got - want) > 1)) return false;
    }
    return true;
}

/* A member cannot take part in the case: the others must not wait for it. */
static void part_fail(probe *p, probe_part *t, tdm_status status, const tdm_error *err) {
    part_refuse(t, status, err->message);
    t->has_ended = true;
    case_abort(p);
}

/* Submits the case to the members' devices. All plans are made before, since graph_prepare may wait
 * for what a device computes. */
static void parts_submit(probe *p, const probe_case *c, probe_part *const *parts, int32_t n_part) {
    for (int32_t i = 0; i < n_part; i++) parts[i]->has_ended = parts[i]->is_skipped = false;
    for (int32_t i = 0; i < n_part; i++) {
        tdm_exchange_params params;
        meta_exchange_args a;
        tdm_error err = {0};
        args_make(p, c, &params, parts[i]->rank, &a);
        tdm_status status = part_prepare(p, parts[i], &a, &err);
        if (status != TDM_OK) part_fail(p, parts[i], status, &err);
    }
    for (int32_t i = 0; i < n_part; i++) {
        tdm_error err = {0};
        if (parts[i]->has_ended) continue;
        tdm_status status = part_submit(p, parts[i], &err);
        if (status != TDM_OK) part_fail(p, parts[i], status, &err);
    }
}

/* Publishes in the place of all other members; for the last one after a pause where the case has
 * one. */
static void others_publish(probe *p, const probe_case *c, probe_part *const *parts,
                           int32_t n_part) {
    const struct timespec pause = {0, PAUSE_NS};
    int32_t last = -1;
    for (int32_t r = 0; r < p->device->n_active; r++)
        if (part_of_rank(parts, n_part, r) == NULL) last = r;
    for (int32_t r = 0; r <= last; r++) {
        tdm_exchange_params params;
        meta_exchange_args a;
        if (part_of_rank(parts, n_part, r) != NULL) continue;
        if (r == last && c->is_pausing) nanosleep(&pause, NULL);
        args_make(p, c, &params, r, &a);
        meta_exchange_publish(&p->arena, &a);
    }
}

/* Waits until all members have ended. Those that time out are refused. */
static void parts_await(probe *p, const probe_case *c, probe_part *const *parts, int32_t n_part) {
    meta_stall_timer stall_timer;
    tdm_exchange_params params;
    meta_exchange_args a;
    bool is_late = false;
    meta_stall_timer_begin(&stall_timer, meta_clock_ns());
    for (int32_t i = 0; i < n_part && !is_late; i++) {
        if (!parts[i]->has_ended) part_await(p, parts[i], &stall_timer, CASE_NS);
        is_late = !parts[i]->has_ended;
    }
    if (!is_late) return;
    args_make(p, c, &params, 0, &a);
    parts_time_out(p, (uint64_t)p->epoch << 32 | (uint64_t)meta_exchange_chunks(&a), parts, n_part);
}

/* Compares the results of the members that have ended. They are sums of the bytes that crossed,
 * where these are right; else of those that should have. */
static void parts_compare(probe *p, const probe_case *c, probe_part *const *parts, int32_t n_part) {
    tdm_exchange_params params;
    meta_exchange_args a;
    tdm_error err = {0};
    bool has_all = true;
    args_make(p, c, &params, 0, &a);
    if (p->uses_peer && peer_fetch(p, &err) != TDM_OK)
        part_refuse(parts[0], err.status, err.message);
    for (int32_t i = 0; i < n_part; i++)
        has_all = has_all && !parts[i]->is_refused && !parts[i]->is_skipped;
    meta_arena *addends = has_all && has_published(p, &params) ? &p->arena : &p->truth;
    for (int32_t i = 0; i < n_part; i++)
        if (!parts[i]->is_refused && !parts[i]->is_skipped) part_compare(p, addends, parts[i], c);
}

/* Runs one case: these members on their devices, the host in the place of all others. */
static void case_run(probe *p, const probe_case *c, probe_part *const *parts, int32_t n_part) {
    case_begin(p, c);
    parts_submit(p, c, parts, n_part);
    others_publish(p, c, parts, n_part);
    parts_await(p, c, parts, n_part);
    parts_compare(p, c, parts, n_part);
    abort_word_set(p, 0);
}

/* ---- Phases ---------------------------------------------------------------------------------- */

static void args_make_phase(const probe *p, const probe_case *c, tdm_exchange_params *params,
                            int32_t rank, tdm_exchange_phase phase, meta_exchange_args *a) {
    args_make(p, c, params, rank, a);
    params->phase = (int32_t)phase;
    if (phase == TDM_EXCHANGE_COLLECT) a->first.x = NULL;
    if (c->kind != TDM_EXCHANGE_GATHER) return;
    if (phase == TDM_EXCHANGE_COLLECT)
        params->first = 0;
    else
        params->whole = (int32_t)a->first.ne[c->axis];
}

/* Submits one phase and waits for it; false where it fails or does not end. */
static bool phase_run(probe *p, probe_part *t, const meta_exchange_args *a) {
    tdm_error err = {0};
    meta_stall_timer stall_timer;
    t->has_ended = t->is_skipped = false;
    tdm_status status = part_prepare(p, t, a, &err);
    if (status == TDM_OK) status = part_submit(p, t, &err);
    if (status != TDM_OK) {
        part_refuse(t, status, err.message);
        return false;
    }
    meta_stall_timer_begin(&stall_timer, meta_clock_ns());
    part_await(p, t, &stall_timer, CASE_NS);
    if (t->has_ended) return !t->is_refused;
    t->is_stuck = true;
    part_refuse(t, TDM_DEADLINE_EXCEEDED, "it did not end in time");
    return false;
}

static void phases_run(probe *p, const probe_case *c, probe_part *t) {
    tdm_exchange_params params;
    meta_exchange_args a;
    case_begin(p, c);
    for (int32_t r = 0; r < p->device->n_active; r++) {
        args_make(p, c, &params, r, &a);
        if (r != t->rank) meta_exchange_publish(&p->arena, &a);
    }
    args_make_phase(p, c, &params, t->rank, TDM_EXCHANGE_PUBLISH, &a);
    if (a.first.x != NULL && !phase_run(p, t, &a)) return;
    if (!has_published(p, &params)) {
        part_refuse(t, TDM_DATA_LOSS, "what it publishes differs from the host's");
        return;
    }
    meta_exchange_raise(&p->arena, &a);
    args_make_phase(p, c, &params, t->rank, TDM_EXCHANGE_COLLECT, &a);
    if (phase_run(p, t, &a)) part_compare(p, &p->arena, t, c);
}

/* Whether a member's device takes both phases. */
static bool has_phases(const probe *p, probe_part *t) {
    const meta_member *member = member_of(p, t);
    bool takes = TDM_HAS(meta_member_buffers(member), import_host);
    for (int i = 0; i < 2 && takes; i++) {
        tdm_exchange_params params;
        meta_exchange_args a;
        args_make_phase(p, &cases[0], &params, t->rank,
                        i == 0 ? TDM_EXCHANGE_PUBLISH : TDM_EXCHANGE_COLLECT, &a);
        graph_make(p, t, &a);
        takes = member->acquired.plugin->device->supports_op(member->acquired.device, &t->graph, 0,
                                                             NULL) == TDM_OK;
    }
    return takes;
}

/* ---- All members ----------------------------------------------------------------------------- */

static tdm_status probe_open(probe *p, tdm_error *err) {
    meta_device *device = p->device;
    const tdm_host *host = device->host;
    uint64_t n = (uint64_t)device->n_active;
    const uint64_t align = meta_arena_align(device);
    p->size = meta_round_up(DATA_AT + n * (MAX_COUNT * sizeof(float)), align);
    p->seed = 12345;
    p->words = meta_alloc(host, sizeof *p->words);
    if (p->words == NULL) return meta_no_memory("to test exchanges", err);
    p->words->n_user = 1;
    p->words->size = (size_t)p->size;
    p->words->data = p->arena.data = host->alloc(host->context, (size_t)p->size, (size_t)align);
    p->truth.data = host->alloc(host->context, (size_t)p->size, (size_t)align);
    p->residual = meta_alloc(host, MAX_COUNT * sizeof(float));
    p->expected = meta_alloc(host, MAX_COUNT * sizeof(float));
    p->result = meta_alloc(host, MAX_COUNT * sizeof(float));
    bool is_ok = p->arena.data != NULL && p->truth.data != NULL && p->residual != NULL &&
                 p->expected != NULL && p->result != NULL;
    for (uint64_t r = 0; r < n; r++) {
        p->x[r] = meta_alloc(host, MAX_COUNT * sizeof(float));
        is_ok = is_ok && p->x[r] != NULL;
    }
    if (!is_ok) return meta_no_memory("to test exchanges", err);
    p->arena.size = p->truth.size = p->size;
    memset(p->arena.data, 0, (size_t)p->size);
    memset(p->truth.data, 0, (size_t)p->size);
    return TDM_OK;
}

static void probe_close(probe *p) {
    const tdm_host *host = p->device->host;
    words_drop(p->device, p->words);
    if (p->truth.data != NULL) host->free(host->context, p->truth.data, (size_t)p->size);
    meta_free(host, p->residual, MAX_COUNT * sizeof(float));
    meta_free(host, p->expected, MAX_COUNT * sizeof(float));
    meta_free(host, p->result, MAX_COUNT * sizeof(float));
    for (int32_t r = 0; r < p->device->n_active; r++)
        meta_free(host, p->x[r], MAX_COUNT * sizeof(float));
}

/* A device whose kernels may not wait cannot perform a whole exchange. */
static bool may_wait(const meta_member *member) {
    return (member->info.flags & TDM_DEVICE_HAS_EXCHANGE) != 0 &&
           member->info.exchange_wait_max_ns != 0 && !member->is_inside_another &&
           !member->shares_card;
}

static const char *no_wait_why(const meta_member *member) {
    return member->is_inside_another ? "its device is inside another member, too"
           : member->shares_card     ? "its card is another member, too"
                                     : "its kernels may not wait";
}

/* Makes the parts of the members whose devices offer EXCHANGE: those that may wait first, n_wait of
 * n. */
static tdm_status parts_make(probe *p, probe_part **parts, int32_t *n_wait, int32_t *n,
                             tdm_error *err) {
    meta_device *device = p->device;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t d = 0; d < device->n_member; d++) {
            const meta_member *member = &device->members[d];
            if (!meta_is_active(device, d) || may_wait(member) != (pass == 0)) continue;
            probe_part *t = meta_alloc(device->host, sizeof *t);
            if (t == NULL) return meta_no_memory("to test exchanges", err);
            t->d = d;
            t->rank = member->rank;
            t->words = p->words;
            p->words->n_user++;
            if (pass == 1 && !has_phases(p, t)) {
                if (member->is_inside_another || member->shares_card)
                    device->members[d].exchange_why = no_wait_why(member);
                part_release(device, d, t);
                continue;
            }
            tdm_error why = {0};
            parts[(*n)++] = t;
            tdm_status status = part_open(p, t, &why);
            if (status != TDM_OK) part_refuse(t, status, why.message);
        }
        if (pass == 0) *n_wait = *n;
    }
    return TDM_OK;
}

static void parts_try(probe *p, probe_part *const *parts, int32_t n_part) {
    /* Each member alone: only the first cases, which show most defects. */
    for (int32_t i = 0; i < n_part; i++)
        for (int32_t c = 0; c < 2 && !parts[i]->is_refused; c++)
            case_run(p, &cases[c], &parts[i], 1);
    for (int32_t c = 0; c < N_CASE; c++) {
        probe_part *good[TDM_MAX_MEMBERS];
        int32_t n_good = 0;
        for (int32_t i = 0; i < n_part; i++)
            if (!parts[i]->is_refused) good[n_good++] = parts[i];
        if (n_good == 0) return;
        case_run(p, &cases[c], good, n_good);
        if (p->is_aborted)
            c--; /* again without the member that aborted it; each time there are fewer members */
    }
}

tdm_status meta_probe(meta_device *device, tdm_error *err) {
    probe p = {.device = device};
    probe_part *parts[TDM_MAX_MEMBERS];
    int32_t n_wait = 0, n_part = 0;
    for (int32_t d = 0; d < device->n_member; d++) {
        device->members[d].exchange = META_EXCHANGE_BY_HOST;
        device->members[d].exchange_why = "it has no EXCHANGE";
    }
    if (device->n_active < 2) return TDM_OK; /* a single member exchanges nothing */
    tdm_status status = probe_open(&p, err);
    if (status == TDM_OK) status = parts_make(&p, parts, &n_wait, &n_part, err);
    if (status == TDM_OK) parts_try(&p, parts, n_wait);
    for (int32_t i = n_wait; i < n_part && status == TDM_OK; i++)
        for (int32_t c = 0; c < N_CASE && !parts[i]->is_refused; c++)
            phases_run(&p, &cases[c], parts[i]);
    for (int32_t i = 0; i < n_part; i++) {
        meta_member *member = &device->members[parts[i]->d];
        member->exchange_why = "its test failed, see the log";
        if (status == TDM_OK && !parts[i]->is_refused) {
            member->exchange = i < n_wait ? META_EXCHANGE_IN_PLAN : META_EXCHANGE_IN_PHASES;
            member->exchange_why = i < n_wait ? NULL : no_wait_why(member);
        }
        if (status == TDM_OK && parts[i]->is_refused)
            device->host->log(device->host->context, TDM_LOG_WARN,
                              "member '%s' exchanges through the host: %s", member->name,
                              parts[i]->why.message);
        part_close(&p, parts[i]);
    }
    probe_close(&p);
    return status;
}

/* ---- Peer memory ----------------------------------------------------------------------------- */

/* Writes a pattern through one member's buffer and reads it through another's. *arrives_out is
 * false where what was read differs. */
static tdm_status pattern_pass(probe *p, int32_t from, int32_t to, bool *arrives_out,
                               tdm_error *err) {
    enum { LEN = MAX_COUNT * sizeof(float) };
    const meta_peer *peer = &p->words->peer;
    tdm_status status = TDM_OK;
    *arrives_out = true;
    for (uint64_t off = 0; off < p->size && status == TDM_OK && *arrives_out; off += LEN) {
        const uint64_t size = p->size - off < LEN ? p->size - off : LEN;
        pattern_fill(p, p->expected, MAX_COUNT, TDM_TYPE_I32);
        memset(p->result, POISON, LEN);
        status = meta_member_buffers(&p->device->members[from])
                     ->upload(peer->buffers[from], off, p->expected, size, err);
        if (status == TDM_OK)
            status = meta_member_buffers(&p->device->members[to])
                         ->download(peer->buffers[to], off, p->result, size, err);
        *arrives_out = memcmp(p->result, p->expected, (size_t)size) == 0;
    }
    return status;
}

/* Patterns from the home to each other member and back. The flags are 0 afterwards. */
static tdm_status patterns_try(probe *p, tdm_error *err) {
    const meta_peer *peer = &p->words->peer;
    const meta_member *home = &p->device->members[peer->home];
    for (int32_t d = 0; d < p->device->n_member; d++) {
        if (d == peer->home || !meta_is_active(p->device, d)) continue;
        for (int k = 0; k < 2; k++) {
            tdm_error inner = {0};
            bool arrives = true;
            tdm_status status =
                pattern_pass(p, k == 0 ? peer->home : d, k == 0 ? d : peer->home, &arrives, &inner);
            if (status != TDM_OK)
                return tdm_fail(err, status, "member '%s', memory of '%s': %.300s",
                                p->device->members[d].name, home->name, inner.message);
            if (!arrives)
                return tdm_fail(err, TDM_DATA_LOSS,
                                "member '%s' reaches other memory than that of '%s': what one "
                                "writes, the other does not read",
                                p->device->members[d].name, home->name);
        }
    }
    return meta_member_buffers(home)->fill(peer->buffers[peer->home], 0, p->size, 0, err);
}

/* All cases on all members. A member that is refused ends the test. */
static tdm_status cases_try(probe *p, probe_part *const *parts, int32_t n_part, tdm_error *err) {
    const meta_peer *peer = &p->words->peer;
    for (int32_t c = 0; c < N_CASE; c++) {
        tdm_status status = peer_poison(p, err);
        if (status != TDM_OK) return status;
        case_run(p, &cases[c], parts, n_part);
        /* Where several do not end, the home's own accesses are the least likely reason. */
        const probe_part *bad = NULL;
        for (int32_t i = 0; i < n_part; i++)
            if (parts[i]->is_refused && (bad == NULL || bad->d == peer->home)) bad = parts[i];
        if (bad != NULL)
            return tdm_fail(err, bad->why.status, "member '%s', in memory of '%s': %.300s",
                            member_of(p, bad)->name, p->device->members[peer->home].name,
                            bad->why.message);
    }
    return TDM_OK;
}

tdm_status meta_probe_peer(meta_device *device, int32_t home, tdm_error *err) {
    probe p = {.device = device};
    probe_part *parts[TDM_MAX_MEMBERS];
    int32_t n_wait = 0, n_part = 0;
    tdm_status status = probe_open(&p, err);
    if (status == TDM_OK) status = meta_peer_open(device, home, p.size, &p.words->peer, err);
    if (status == TDM_OK) status = patterns_try(&p, err);
    if (status == TDM_OK) {
        p.uses_peer = true;
        status = parts_make(&p, parts, &n_wait, &n_part, err);
    }
    if (status == TDM_OK && n_wait < device->n_active)
        status = tdm_fail(err, TDM_UNSUPPORTED, "the kernels of some members may not wait");
    for (int32_t i = 0; i < n_part && status == TDM_OK; i++)
        if (parts[i]->is_refused)
            status = tdm_fail(err, parts[i]->why.status, "member '%s': %.300s",
                              member_of(&p, parts[i])->name, parts[i]->why.message);
    if (status == TDM_OK) status = cases_try(&p, parts, n_part, err);
    for (int32_t i = 0; i < n_part; i++) {
        if (parts[i]->is_stuck) {
            device->members[parts[i]->d].exchange = META_EXCHANGE_BY_HOST;
            device->members[parts[i]->d].exchange_why = "its test in peer memory did not end";
        }
        part_close(&p, parts[i]);
    }
    probe_close(&p);
    return status;
}
