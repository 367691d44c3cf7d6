/* SPDX-License-Identifier: MIT
 *
 * watchdog.c: progress is a change of a flag in the arena, of the number that a member's queue
 * gives (tdm_queue_ops.progress), or the end of a stage or of a part. The timer starts again with
 * every progress of any member. Where a plugin gives no such number, a long computation between two
 * exchanges cannot be told from one that has hung, and the timeout must exceed its time.
 */
#include "plugins/meta/exec/watchdog.h"

#include "plugins/meta/exec/event.h"

static uint64_t flag_load(const meta_arena *arena, uint64_t off) {
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)(arena->data + off),
                                memory_order_acquire);
}

static uint64_t progress_of(const meta_device *device, const meta_member_queue *member_queues,
                            int32_t n_member_queue) {
    uint64_t sum = 0;
    int64_t n_flag = (int64_t)device->arena->n_exchange * device->n_active;
    for (int64_t i = 0; device->arena->data != NULL && i < n_flag; i++)
        sum += flag_load(device->arena, META_ARENA_FLAGS + (uint64_t)i * 64);
    for (int32_t i = 0; i < n_member_queue; i++) {
        const meta_member *member = &device->members[member_queues[i].d];
        const tdm_queue_ops *ops = member->acquired.plugin->queue;
        sum += atomic_load(&member_queues[i].n_step) +
               (atomic_load(&member_queues[i].is_done) ? 1u : 0u);
        if (TDM_HAS(ops, progress) && member_queues[i].queue != NULL)
            sum += ops->progress(member_queues[i].queue);
    }
    return sum;
}

void meta_watchdog_begin(meta_watchdog *watchdog) {
    watchdog->progress = 0;
    meta_stall_timer_begin(&watchdog->stall_timer, meta_clock_ns());
}

bool meta_watchdog_is_late(meta_watchdog *watchdog, const meta_device *device,
                           const meta_member_queue *member_queues, int32_t n_member_queue) {
    uint64_t progress = progress_of(device, member_queues, n_member_queue), now = meta_clock_ns();
    if (progress != watchdog->progress) {
        watchdog->progress = progress;
        meta_stall_timer_begin(&watchdog->stall_timer, now);
    }
    return (double)meta_stall_timer_update(&watchdog->stall_timer, now) >
           device->options.timeout * 1e9;
}

/* The first exchange of which member d has not published all chunks; -1 = none. */
static int32_t exchange_missing(const meta_plan *plan, uint32_t epoch, int32_t d) {
    const meta_part *part = &plan->members[d].part;
    const meta_arena *arena = plan->device->arena;
    int32_t rank = plan->device->members[d].rank;
    for (int32_t i = 0; arena->data != NULL && i < part->graph.n_node; i++) {
        meta_exchange_args args;
        const tdm_node *node = tdm_graph_node(&part->graph, i);
        /* The flag of a member in phases is raised between PUBLISH and COLLECT. */
        if (node->op != TDM_OP_EXCHANGE || node->params.exchange.phase == TDM_EXCHANGE_PUBLISH)
            continue;
        meta_exchange_describe(part, i, epoch, &args);
        uint64_t want = (uint64_t)epoch << 32 | (uint64_t)meta_exchange_chunks(&args);
        uint64_t flag = flag_load(arena, args.params->flag_off + (uint64_t)rank * 64);
        if ((int64_t)(flag - want) < 0) return i;
    }
    return -1;
}

static const char *exchange_text(const meta_part *part, int32_t index, char *text,
                                 size_t text_size) {
    const tdm_node *node = tdm_graph_node(&part->graph, index);
    const char *name = tdm_graph_value_name(&part->graph, node->dst[0]);
    if (name[0] != 0)
        snprintf(text, text_size, "exchange %d ('%.64s')", (int)node->params.exchange.stage, name);
    else
        snprintf(text, text_size, "exchange %d", (int)node->params.exchange.stage);
    return text;
}

static bool has_exchange(const meta_part *part) {
    for (int32_t i = 0; i < part->graph.n_node; i++)
        if (tdm_graph_node(&part->graph, i)->op == TDM_OP_EXCHANGE) return true;
    return false;
}

const char *meta_watchdog_place(const meta_plan *plan, uint32_t epoch, int32_t d, char *text,
                                size_t text_size) {
    const meta_part *part = &plan->members[d].part;
    char exchange[96];
    int32_t missing = exchange_missing(plan, epoch, d);
    if (missing >= 0)
        snprintf(text, text_size, "before %s",
                 exchange_text(part, missing, exchange, sizeof exchange));
    else
        snprintf(text, text_size, "%s",
                 has_exchange(part) ? "behind its last exchange" : "in a part without exchanges");
    return text;
}

tdm_status meta_watchdog_report(const meta_plan *plan, uint32_t epoch,
                                const meta_member_queue *member_queues, int32_t n_member_queue,
                                tdm_error *err) {
    const meta_device *device = plan->device;
    char names[200] = "", place[160] = "";
    size_t used = 0;
    int32_t first = INT32_MAX;
    /* Members wait for those that miss the first exchange. The first pass finds its number, the
     * second names these members. */
    for (int32_t pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < n_member_queue; i++) {
            int32_t d = member_queues[i].d, node = exchange_missing(plan, epoch, d);
            if (atomic_load(&member_queues[i].is_done)) continue;
            int32_t exchange =
                node < 0
                    ? INT32_MAX
                    : tdm_graph_node(&plan->members[d].part.graph, node)->params.exchange.stage;
            if (pass == 0) {
                if (exchange < first) first = exchange;
            } else if (exchange == first) {
                int n = snprintf(names + used, sizeof names - used, "%s'%s'", used > 0 ? ", " : "",
                                 device->members[d].name);
                if (n > 0 && (size_t)n < sizeof names - used) used += (size_t)n;
                if (place[0] == 0) meta_watchdog_place(plan, epoch, d, place, sizeof place);
            }
        }
    }
    return tdm_fail(err, TDM_DEADLINE_EXCEEDED,
                    "member %s made no progress for %.3g s, %s; `timeout` of the group sets "
                    "the limit",
                    names, device->options.timeout, place);
}
