/* SPDX-License-Identifier: MIT
 *
 * links_measure.c: measures what a submission costs a member, and what an exchange between two or
 * all members costs, by short computations on queues of their own. They run a chain of exchanges
 * over an arena of their own, with flags and data where those of the group's exchanges are. What a
 * member that does not end may still use is kept until it ends.
 */
#include <stdio.h>
#include <string.h>

#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/exec/event.h"
#include "plugins/meta/exec/queue.h"
#include "plugins/meta/exec/stall_timer.h"
#include "plugins/meta/exec/stuck.h"
#include "plugins/meta/members.h"
#include "plugins/meta/share/links.h"

enum {
    CHAIN = 8,      /* exchanges of a computation; even, so that areas alternate */
    FEW = 64,       /* elements, where latency counts */
    MANY = 65536,   /* where bytes count */
    N_RUN = 6,      /* after a warm-up; the best counts */
    MAX_PAIRED = 8, /* up to so many active members, all pairs are measured, else those with the
                       group's owner */
    V_X = 0,
    V_ARENA,
    V_STEP,
    V_PEER,
    V_Y,
    N_VALUE = V_Y + CHAIN
};

#define ABORT_NS UINT64_C(1000000000)

typedef struct link_part {
    int32_t d;
    tdm_queue *queue;
    tdm_buffer *arena, *memory;
    tdm_plan *plan;
    tdm_semaphore *semaphore;
    uint64_t value; /* of the last submission */
    uint64_t step_off;
    tdm_value values[N_VALUE];
    tdm_node nodes[CHAIN];
    tdm_graph graph;
} link_part;

typedef struct link_test {
    meta_device *device;
    uint8_t *arena; /* NULL where a member is alone */
    uint64_t size;
    meta_peer peer; /* of flags and data; not open where they are in the arena */
    bool uses_peer;
    int64_t count; /* elements */
    uint32_t epoch;
    meta_pending_release later;
    int32_t n_part;
    link_part parts[]; /* [n_part] by rank */
} link_test;

/* The members of a test. */
typedef struct link_members {
    int32_t d[TDM_MAX_MEMBERS]; /* [n] */
    int32_t n;
    int32_t home; /* where flags and data are; -1 = in the arena */
} link_members;

/* ---- Making a test --------------------------------------------------------------------------- */

static tdm_value value_make(int32_t slot, int32_t kind, tdm_type type, int64_t n) {
    return (tdm_value){.kind = kind, .type = (int32_t)type, .slot = slot, .ne = {n, 1, 1, 1}};
}

static uint64_t data_at(const link_test *t) {
    return META_ARENA_FLAGS + 64 * (uint64_t)t->n_part * CHAIN;
}

static tdm_node exchange_make(const link_test *t, int32_t stage, int32_t member) {
    uint64_t stride = (uint64_t)t->count * sizeof(float), n = (uint64_t)t->n_part;
    tdm_node node = {.op = TDM_OP_EXCHANGE, .n_src = 6, .n_dst = 2};
    for (int32_t i = 0; i < TDM_MAX_SRC; i++) node.src[i] = -1;
    for (int32_t i = 0; i < TDM_MAX_DST; i++) node.dst[i] = -1;
    node.src[0] = V_X;
    node.src[1] = V_ARENA;
    node.src[2] = V_STEP;
    node.src[5] = t->uses_peer ? V_PEER : -1;
    node.dst[0] = V_Y + stage;
    node.params.exchange =
        (tdm_exchange_params){.stage = stage,
                              .member = member,
                              .n_member = t->n_part,
                              .wire_type = TDM_TYPE_F32,
                              .data_off = data_at(t),
                              .data_stride = stride,
                              .flag_off = META_ARENA_FLAGS + 64 * n * (uint64_t)stage,
                              .senders = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1,
                              .kind = TDM_EXCHANGE_SUM,
                              .area_stride = n * stride};
    return node;
}

/* A chain of exchanges, or one copy where the member is alone. */
static void graph_make(link_test *t, int32_t rank) {
    link_part *p = &t->parts[rank];
    bool is_alone = t->n_part == 1;
    int32_t n_node = is_alone ? 1 : CHAIN;
    p->values[V_X] = value_make(V_X, TDM_VALUE_INPUT, TDM_TYPE_F32, t->count);
    p->values[V_ARENA] = value_make(V_ARENA, is_alone ? TDM_VALUE_INPUT : TDM_VALUE_STATE,
                                    TDM_TYPE_I8, is_alone ? 1 : (int64_t)t->size);
    p->values[V_PEER] = value_make(V_PEER, t->uses_peer ? TDM_VALUE_STATE : TDM_VALUE_INPUT,
                                   TDM_TYPE_I8, t->uses_peer ? (int64_t)t->size : 1);
    p->values[V_STEP] = value_make(V_STEP, TDM_VALUE_INPUT, TDM_TYPE_I32,
                                   sizeof(tdm_step_header) / sizeof(int32_t));
    for (int32_t i = 0; i < n_node; i++) {
        p->values[V_Y + i] = value_make(V_Y + i, TDM_VALUE_OUTPUT, TDM_TYPE_F32, t->count);
        if (!is_alone) p->nodes[i] = exchange_make(t, i, rank);
    }
    if (is_alone) {
        p->nodes[0] = (tdm_node){.op = TDM_OP_COPY, .n_src = 1, .n_dst = 1};
        for (int32_t i = 0; i < TDM_MAX_SRC; i++) p->nodes[0].src[i] = i == 0 ? V_X : -1;
        for (int32_t i = 0; i < TDM_MAX_DST; i++) p->nodes[0].dst[i] = i == 0 ? V_Y : -1;
    }
    p->graph = (tdm_graph){.struct_size = sizeof p->graph,
                           .value_size = sizeof(tdm_value),
                           .node_size = sizeof(tdm_node),
                           .partition_size = sizeof(tdm_partition),
                           .kv_size = sizeof(tdm_kv_desc),
                           .values = p->values,
                           .nodes = p->nodes,
                           .names = "",
                           .names_size = 1,
                           .n_value = V_Y + n_node,
                           .n_node = n_node,
                           .n_slot = V_Y + n_node,
                           .step = -1};
}

static tdm_status part_open(link_test *t, int32_t rank, tdm_error *err) {
    link_part *p = &t->parts[rank];
    meta_member *member = &t->device->members[p->d];
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    const tdm_queue_ops *queue = member->acquired.plugin->queue;
    uint64_t array = meta_round_up((uint64_t)t->count * sizeof(float), member->align);
    tdm_plan_params plan_params = {.struct_size = sizeof plan_params};
    tdm_binding bindings[N_VALUE] = {{0}};
    graph_make(t, rank);
    p->step_off = 2 * array;
    uint64_t rest = meta_round_up(p->step_off + sizeof(tdm_step_header), member->align);
    tdm_buffer_params params = {.struct_size = sizeof params,
                                .size = rest + (uint64_t)p->graph.n_node * array,
                                .purpose = TDM_BUFFER_COMPUTE};
    tdm_status status = t->device->host->graph->verify(&p->graph, err);
    if (status == TDM_OK && t->n_part == 1)
        status = member->acquired.plugin->device->supports_op(member->acquired.device, &p->graph, 0,
                                                              err);
    if (status == TDM_OK && t->arena != NULL)
        status = ops->import_host(member->acquired.device, t->arena, t->size, NULL, &p->arena, err);
    if (status == TDM_OK) status = ops->alloc(member->acquired.device, &params, &p->memory, err);
    if (status == TDM_OK) status = ops->fill(p->memory, 0, params.size, 0, err);
    if (status == TDM_OK) status = queue->create(member->acquired.device, &p->queue, err);
    if (status == TDM_OK && queue == &meta_queue_ops) meta_queue_set_inner(p->queue);
    if (status == TDM_OK) status = t->device->host->semaphore->create(0, &p->semaphore, err);
    if (status == TDM_OK)
        status = queue->graph_prepare(p->queue, &p->graph, &plan_params, &p->plan, err);
    bindings[V_X] = (tdm_binding){p->memory, 0, (uint64_t)t->count * sizeof(float)};
    bindings[V_ARENA] =
        p->arena != NULL ? (tdm_binding){p->arena, 0, t->size} : (tdm_binding){p->memory, array, 1};
    bindings[V_PEER] = t->uses_peer ? (tdm_binding){t->peer.buffers[p->d], 0, t->size}
                                    : (tdm_binding){p->memory, array, 1};
    bindings[V_STEP] = (tdm_binding){p->memory, p->step_off, sizeof(tdm_step_header)};
    for (int32_t i = 0; i < p->graph.n_node; i++)
        bindings[V_Y + i] = (tdm_binding){p->memory, rest + (uint64_t)i * array,
                                          (uint64_t)t->count * sizeof(float)};
    if (status == TDM_OK) status = queue->plan_bind(p->plan, bindings, p->graph.n_slot, err);
    return status;
}

/* ---- Ending it ------------------------------------------------------------------------------- */

/* Whether what a part submitted has not ended. */
static bool is_busy(const link_test *t, int32_t rank) {
    const link_part *p = &t->parts[rank];
    uint64_t value = 0;
    return p->semaphore != NULL &&
           t->device->host->semaphore->query(p->semaphore, &value, NULL) == TDM_OK &&
           value < p->value;
}

static void part_close(link_test *t, int32_t rank) {
    link_part *p = &t->parts[rank];
    const meta_member *member = &t->device->members[p->d];
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    if (p->plan != NULL) member->acquired.plugin->queue->plan_destroy(p->plan);
    if (p->queue != NULL) member->acquired.plugin->queue->destroy(p->queue);
    if (p->memory != NULL) ops->free(p->memory);
    if (p->arena != NULL) ops->free(p->arena);
    t->device->host->semaphore->destroy(p->semaphore);
}

static size_t test_size(int32_t n_part) {
    return sizeof(link_test) + (size_t)n_part * sizeof(link_part);
}

/* Frees a test; later where a member may still use it. */
static void test_end(meta_device *device, int32_t d, void *what) {
    link_test *t = what;
    const tdm_host *host = device->host;
    (void)d;
    for (int32_t r = 0; r < t->n_part; r++) {
        if (!is_busy(t, r)) continue;
        meta_release_later(device, t->parts[r].d, t->parts[r].semaphore, t->parts[r].value,
                           test_end, t, &t->later);
        return;
    }
    for (int32_t r = 0; r < t->n_part; r++) part_close(t, r);
    meta_peer_close(device, &t->peer);
    if (t->arena != NULL) host->free(host->context, t->arena, (size_t)t->size);
    meta_free(host, t, test_size(t->n_part));
}

static uint64_t limit_ns(const link_test *t) {
    return (uint64_t)(t->device->options.timeout * 1e9);
}

/* ---- Running it ------------------------------------------------------------------------------ */

/* Waits for all parts. A part that fails ends the wait: another part may wait for it. */
static tdm_status parts_await(link_test *t, tdm_error *err) {
    const tdm_host_semaphore_ops *ops = t->device->host->semaphore;
    meta_stall_timer timer;
    meta_stall_timer_begin(&timer, meta_clock_ns());
    for (int32_t r = 0; r < t->n_part;) {
        uint64_t waited = meta_stall_timer_update(&timer, meta_clock_ns()), reached = 0;
        uint64_t left = waited < limit_ns(t) ? limit_ns(t) - waited : 0;
        tdm_error why = {0};
        tdm_status status = ops->wait(t->parts[r].semaphore, t->parts[r].value,
                                      left < META_POLL_NS ? left : META_POLL_NS, &why);
        if (status == TDM_OK) {
            r++;
            continue;
        }
        for (int32_t q = 0; q < t->n_part; q++) {
            tdm_status failed = ops->query(t->parts[q].semaphore, &reached, err);
            if (failed != TDM_OK) return failed;
        }
        if (status != TDM_DEADLINE_EXCEEDED) return tdm_fail(err, status, "%s", why.message);
        if (left == 0) return tdm_fail(err, status, "no answer in the time that `timeout` gives");
    }
    return TDM_OK;
}

/* Stops members that wait for each other. What does not end soon is freed later (test_end). */
static void test_abort(link_test *t) {
    tdm_error ignored = {0};
    uint64_t limit = limit_ns(t) < ABORT_NS ? limit_ns(t) : ABORT_NS;
    if (t->arena != NULL)
        atomic_store_explicit((_Atomic uint64_t *)(void *)t->arena, 1, memory_order_release);
    for (int32_t r = 0; r < t->n_part; r++)
        (void)t->device->host->semaphore->wait(t->parts[r].semaphore, t->parts[r].value, limit,
                                               &ignored);
}

static tdm_status test_run(link_test *t, double *seconds_out, tdm_error *err) {
    tdm_step_header header = {.version = TDM_STEP_VERSION,
                              .size = sizeof header / sizeof(int32_t),
                              .epoch = (int32_t)++t->epoch};
    tdm_status status = TDM_OK;
    for (int32_t r = 0; r < t->n_part && status == TDM_OK; r++)
        status =
            meta_member_buffers(&t->device->members[t->parts[r].d])
                ->upload(t->parts[r].memory, t->parts[r].step_off, &header, sizeof header, err);
    uint64_t begin = meta_clock_ns();
    for (int32_t r = 0; r < t->n_part && status == TDM_OK; r++) {
        link_part *p = &t->parts[r];
        const tdm_point done = {p->semaphore, p->value + 1};
        status = t->device->members[p->d].acquired.plugin->queue->graph_compute(
            p->queue, p->plan, NULL, 0, &done, 1, err);
        if (status == TDM_OK) p->value++;
    }
    if (status == TDM_OK) status = parts_await(t, err);
    if (status != TDM_OK) test_abort(t);
    *seconds_out = (double)(meta_clock_ns() - begin) * 1e-9;
    return status;
}

/* The best time of a computation on these members. */
static tdm_status test_time(meta_device *device, const link_members *members, int64_t count,
                            double *best_out, tdm_error *err) {
    const tdm_host *host = device->host;
    link_test *t = meta_alloc(host, test_size(members->n));
    if (t == NULL) return meta_no_memory("to measure members", err);
    tdm_status status = TDM_OK;
    t->device = device;
    t->count = count;
    t->n_part = members->n;
    t->uses_peer = members->home >= 0;
    for (int32_t r = 0; r < t->n_part; r++) t->parts[r].d = members->d[r];
    *best_out = 0;
    if (t->n_part > 1) {
        const uint64_t align = meta_arena_align(device);
        t->size = meta_round_up(
            data_at(t) + 2 * (uint64_t)t->n_part * (uint64_t)count * sizeof(float), align);
        t->arena = host->alloc(host->context, (size_t)t->size, (size_t)align);
        if (t->arena == NULL) status = meta_no_memory("to measure members", err);
        if (status == TDM_OK) memset(t->arena, 0, (size_t)t->size);
    }
    if (status == TDM_OK && t->uses_peer)
        status = meta_peer_open(device, members->home, t->size, &t->peer, err);
    for (int32_t r = 0; r < t->n_part && status == TDM_OK; r++) status = part_open(t, r, err);
    for (int i = 0; i <= N_RUN && status == TDM_OK; i++) {
        double seconds;
        status = test_run(t, &seconds, err);
        if (i > 0 && (*best_out == 0 || seconds < *best_out)) *best_out = seconds;
    }
    test_end(device, t->parts[0].d, t);
    return status;
}

/* ---- All members ----------------------------------------------------------------------------- */

/* Each member keeps the slowest of its pairs. */
static tdm_status pair_measure(meta_device *device, int32_t a, int32_t b, tdm_error *err) {
    meta_member *pair[2] = {&device->members[a], &device->members[b]};
    const link_members both = {
        {a, b}, 2, meta_uses_peer(device) ? (int32_t)(device->home - device->members) : -1};
    double few, many, submit = pair[0]->submit_seconds;
    if (pair[1]->submit_seconds > submit) submit = pair[1]->submit_seconds;
    tdm_status status = test_time(device, &both, FEW, &few, err);
    if (status == TDM_OK) status = test_time(device, &both, MANY, &many, err);
    if (status != TDM_OK) return status;
    double crossing = few > submit ? (few - submit) / CHAIN : few / CHAIN;
    /* In an exchange each of the two members writes its addend, reads both, and writes the sum. */
    double bytes = 4.0 * MANY * sizeof(float) * CHAIN;
    double rate = many > few ? bytes / (many - few) : 0;
    for (int i = 0; i < 2; i++) {
        if (crossing > pair[i]->crossing_seconds) pair[i]->crossing_seconds = crossing;
        if (rate > 0 && (pair[i]->link_rate == 0 || rate < pair[i]->link_rate))
            pair[i]->link_rate = rate;
    }
    return TDM_OK;
}

/* Logs that a default is used for the costs of members a and b (b < 0: of a alone), because
 * measuring failed. A lost device (TDM_UNAVAILABLE) is an error: nothing that follows would work on
 * it. */
static tdm_status failure_note(meta_device *device, int32_t a, int32_t b, tdm_status status,
                               const tdm_error *why, tdm_error *err) {
    const char *name = device->members[a].name;
    char both[160];
    if (b >= 0) {
        snprintf(both, sizeof both, "%.64s' and '%.64s", name, device->members[b].name);
        name = both;
    }
    const char *what = b < 0 ? "member" : "members", *cost = b < 0 ? "a submission" : "an exchange";
    if (status == TDM_UNAVAILABLE)
        return tdm_fail(err, status, "%s '%s': measuring %s: %.300s", what, name, cost,
                        why->message);
    device->host->log(device->host->context, TDM_LOG_WARN,
                      "%s '%s': measuring %s failed, predictions assume a usual cost: %.300s", what,
                      name, cost, why->message);
    return TDM_OK;
}

static bool is_pair_measured(const meta_device *device, int32_t a, int32_t b) {
    return (device->n_active <= MAX_PAIRED || a == device->owner) &&
           device->members[a].exchange == META_EXCHANGE_IN_PLAN &&
           device->members[b].exchange == META_EXCHANGE_IN_PLAN && meta_is_active(device, a) &&
           meta_is_active(device, b);
}

tdm_status meta_links_measure(meta_device *device, tdm_error *err) {
    tdm_status status = TDM_OK;
    bool is_late = false; /* a member gave no answer in time: no further one waits for it */
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        meta_member *member = &device->members[d];
        tdm_error why = {0};
        member->submit_seconds = member->crossing_seconds = member->link_rate = 0;
        if (!meta_is_active(device, d) || is_late) continue;
        status = test_time(device, &(const link_members){{d}, 1, -1}, FEW, &member->submit_seconds,
                           &why);
        if (status == TDM_OK) continue;
        member->submit_seconds = 0;
        is_late = status == TDM_DEADLINE_EXCEEDED;
        /* UNSUPPORTED: the device has no COPY, and a usual cost is as good. */
        status =
            status == TDM_UNSUPPORTED ? TDM_OK : failure_note(device, d, -1, status, &why, err);
    }
    for (int32_t b = 1; b < device->n_member && status == TDM_OK; b++)
        for (int32_t a = 0; a < b && status == TDM_OK && !is_late; a++) {
            tdm_error why = {0};
            if (!is_pair_measured(device, a, b)) continue;
            status = pair_measure(device, a, b, &why);
            is_late = status == TDM_DEADLINE_EXCEEDED;
            if (status != TDM_OK) status = failure_note(device, a, b, status, &why, err);
        }
    return status;
}

tdm_status meta_links_compare(meta_device *device, int32_t home, double *arena_out,
                              double *peer_out, tdm_error *err) {
    static const int64_t counts[] = {FEW, MANY};
    link_members all = {.n = 0};
    tdm_status status = TDM_OK;
    *arena_out = *peer_out = 0;
    for (int32_t d = 0; d < device->n_member; d++)
        if (meta_is_active(device, d)) all.d[all.n++] = d;
    for (int i = 0; i < 4 && status == TDM_OK; i++) {
        double seconds = 0;
        all.home = i % 2 == 0 ? -1 : home;
        status = test_time(device, &all, counts[i / 2], &seconds, err);
        *(i % 2 == 0 ? arena_out : peer_out) += seconds;
    }
    return status;
}
