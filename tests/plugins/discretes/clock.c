/* SPDX-License-Identifier: MIT
 *
 * clock.c: the virtual clock of a discrete device. A computation takes the time that its bytes,
 * multiply-adds, launches and submissions would take on a card with the given rates, whatever the
 * machine needs for it. Bytes of caches are left out.
 *
 * Members of a group tell each other their times in an exchange: behind a member's flag and the
 * time that collective.h puts there, its line holds the virtual time at which it published, and the
 * epoch of that time. A member continues `crossing-us` after the latest of those times. The host
 * has a clock too, for submissions: a run begins when the last result of the run before is there.
 * Only one group at a time can have clocks. A test switches the clock on once the group is open:
 * opening tests each member alone, and a member that does not take part publishes no time.
 */
#include <time.h>

#include "core/base/view.h"
#include "tests/plugins/discretes/queue.h"

/* A line of flags: the flag, the time spent, then these. */
typedef struct flag_line {
    _Atomic uint64_t flag, spent;
    _Atomic int64_t published_ns;
    _Atomic uint64_t epoch; /* + 1; 0 = none */
} flag_line;

enum { WAIT_MS = 3000 }; /* for a sender's time, after which it counts as one without a clock */

static struct {
    pthread_mutex_t mutex;
    uint64_t epoch;
    int64_t begin_ns, end_ns; /* of the run of this epoch; latest end of any computation so far */
} host = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- Costs ----------------------------------------------------------------------------------- */

static double value_size(const tdm_graph *graph, int32_t v) {
    const tdm_value *value = tdm_graph_value(graph, v);
    if (value->kind == TDM_VALUE_STATE) return 0;
    tdm_type_info info = tdm_type_get_info((tdm_type)value->type);
    return (double)tdm_shape_count(value->ne) / info.block_len * info.block_size;
}

static int64_t node_ns(const tdm_device *d, const tdm_graph *graph, const tdm_node *node) {
    double bytes = 0, n_mac = 0;
    if (tdm_op_is_view(node->op)) return 0;
    for (int32_t i = 0; i < node->n_src; i++)
        if (node->src[i] >= 0) bytes += value_size(graph, node->src[i]);
    for (int32_t i = 0; i < node->n_dst; i++)
        if (node->dst[i] >= 0) bytes += value_size(graph, node->dst[i]);
    if (node->op == TDM_OP_GET_ROWS) bytes = 2 * value_size(graph, node->dst[0]);
    if (node->op == TDM_OP_MATMUL)
        n_mac = (double)tdm_graph_value(graph, node->src[0])->ne[0] *
                (double)tdm_shape_count(tdm_graph_value(graph, node->dst[0])->ne);
    double by_bytes = bytes / d->bandwidth, by_mac = n_mac / d->arithmetic;
    return d->launch_ns + (int64_t)((by_bytes > by_mac ? by_bytes : by_mac) * 1e9);
}

/* ---- Exchanges ------------------------------------------------------------------------------- */

static uint8_t *bytes_of(const tdm_plan *plan, int32_t value) {
    const tdm_binding *b = &plan->bindings[tdm_graph_value(plan->graph, value)->slot];
    uint8_t *host_bytes = discrete_behind->buffer->host_pointer(b->buffer, TDM_ACCESS_READ);
    return host_bytes != NULL ? host_bytes + b->off : NULL;
}

static flag_line *line_of(const tdm_plan *plan, const tdm_node *node, int32_t member) {
    uint8_t *arena = bytes_of(plan, node->src[1]);
    if (arena == NULL) return NULL;
    return (flag_line *)(void *)(arena + node->params.exchange.flag_off + 64 * (uint64_t)member);
}

/* The epoch of a run, plus 1; 0 where the plan has no exchange. */
static uint64_t epoch_of(const tdm_plan *plan) {
    for (int32_t i = 0; i < plan->graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(plan->graph, i);
        const uint8_t *step = NULL;
        int32_t epoch;
        if (node->op != TDM_OP_EXCHANGE || (step = bytes_of(plan, node->src[2])) == NULL) continue;
        memcpy(&epoch, step + offsetof(tdm_step_header, epoch), sizeof epoch);
        return (uint64_t)(uint32_t)epoch + 1;
    }
    return 0;
}

static void time_publish(const tdm_plan *plan, const tdm_node *node, uint64_t epoch, int64_t now) {
    flag_line *line = line_of(plan, node, node->params.exchange.member);
    if (line == NULL) return;
    atomic_store(&line->published_ns, now);
    atomic_store(&line->epoch, epoch);
}

/* The latest time at which a sender published. Waits for members that compute their time only now.
 * A member without a clock has no time. */
static int64_t time_collect(const tdm_plan *plan, const tdm_node *node, uint64_t epoch,
                            int wait_ms) {
    int64_t latest = 0;
    for (int32_t m = 0; m < node->params.exchange.n_member; m++) {
        flag_line *line = line_of(plan, node, m);
        if (line == NULL || (node->params.exchange.senders >> m & 1) == 0) continue;
        for (int n = 0; atomic_load(&line->epoch) != epoch && n < wait_ms * 20; n++)
            nanosleep(&(struct timespec){0, 50000}, NULL);
        if (atomic_load(&line->epoch) != epoch) continue;
        int64_t at = atomic_load(&line->published_ns);
        if (at > latest) latest = at;
    }
    return latest;
}

/* ---- Computations ---------------------------------------------------------------------------- */

static const tdm_node *first_node(const tdm_graph *graph) {
    for (int32_t i = 0; i < graph->n_node; i++)
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op)) return tdm_graph_node(graph, i);
    return NULL;
}

/* When the host submitted the plan. */
static int64_t submission_time(const tdm_plan *plan, uint64_t epoch) {
    const tdm_node *first = first_node(plan->graph);
    if (first != NULL && first->op == TDM_OP_EXCHANGE &&
        first->params.exchange.phase == TDM_EXCHANGE_COLLECT)
        return time_collect(plan, first, epoch, 0);
    pthread_mutex_lock(&host.mutex);
    if (epoch == 0 || epoch != host.epoch) host.begin_ns = host.end_ns;
    if (epoch != 0) host.epoch = epoch;
    int64_t begin = host.begin_ns;
    pthread_mutex_unlock(&host.mutex);
    return begin;
}

void discrete_clock_run(tdm_plan *plan) {
    tdm_device *d = discrete_queue_device(plan->queue);
    if (!(d->bandwidth > 0) || !atomic_load(&d->is_clock_on)) return;
    uint64_t epoch = epoch_of(plan);
    int64_t now = atomic_load(&d->clock_ns), submitted = submission_time(plan, epoch);
    if (submitted > now) now = submitted;
    now += d->submission_ns;
    for (int32_t i = 0; i < plan->graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(plan->graph, i);
        now += node_ns(d, plan->graph, node);
        if (node->op != TDM_OP_EXCHANGE) continue;
        int32_t phase = node->params.exchange.phase;
        bool sends = (node->params.exchange.senders >> node->params.exchange.member & 1) != 0;
        if (phase != TDM_EXCHANGE_COLLECT && sends) time_publish(plan, node, epoch, now);
        if (phase == TDM_EXCHANGE_PUBLISH) continue;
        int64_t latest = time_collect(plan, node, epoch, phase == TDM_EXCHANGE_WHOLE ? WAIT_MS : 0);
        if (latest > now) now = latest;
        now += d->crossing_ns;
    }
    atomic_store(&d->clock_ns, now);
    pthread_mutex_lock(&host.mutex);
    if (now > host.end_ns) host.end_ns = now;
    pthread_mutex_unlock(&host.mutex);
}
