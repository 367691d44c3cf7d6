/* SPDX-License-Identifier: MIT
 *
 * watchdog.c: progress is what the flags in the arena say, and which stages the host saw end. A
 * member that computes for long between two exchanges and one that is gone look alike, so that the
 * time allowed has to cover the longest node; the clock starts anew with every sign of life.
 *
 * What a member that does not come back may still use stays allocated: its queue, the semaphore it
 * would signal, group plans with its plans and graphs, its memory, the arena. It is released when the
 * member is back; of one that never is, it is lost.
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
    for (int32_t i = 0; i < n_member_queue; i++)
        sum += atomic_load(&member_queues[i].n_step) +
               (atomic_load(&member_queues[i].is_done) ? 1u : 0u);
    return sum;
}

void meta_watchdog_begin(meta_watchdog *dog) {
    dog->progress = 0;
    meta_stall_timer_begin(&dog->stall_timer, meta_clock_ns());
}

bool meta_watchdog_is_late(meta_watchdog *dog, const meta_device *device,
                           const meta_member_queue *member_queues, int32_t n_member_queue) {
    uint64_t progress = progress_of(device, member_queues, n_member_queue), now = meta_clock_ns();
    if (progress != dog->progress) {
        dog->progress = progress;
        meta_stall_timer_begin(&dog->stall_timer, now);
    }
    return (double)meta_stall_timer_update(&dog->stall_timer, now) > device->options.timeout * 1e9;
}

/* The first exchange that member d has not published all of; -1 = it passed them all. */
static int32_t exchange_missing(const meta_plan *plan, uint32_t epoch, int32_t d) {
    const meta_part *part = &plan->members[d].part;
    const meta_arena *arena = plan->device->arena;
    int32_t rank = plan->device->members[d].rank;
    for (int32_t i = 0; arena->data != NULL && i < part->graph.n_node; i++) {
        meta_exchange_args args;
        if (tdm_graph_node(&part->graph, i)->op != TDM_OP_EXCHANGE) continue;
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

tdm_status meta_watchdog_blame(const meta_plan *plan, uint32_t epoch,
                               const meta_member_queue *member_queues, int32_t n_member_queue,
                               tdm_error *err) {
    const meta_device *device = plan->device;
    char names[200] = "", place[160] = "";
    size_t used = 0;
    int32_t first = INT32_MAX;
    /* Everybody behind the first exchange that somebody misses waits for that one. */
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
                    "member %s gave no sign of life for %.3g s, %s; `timeout` of the group says "
                    "how long to wait",
                    names, device->options.timeout, place);
}

/* ---- Members that never came back ------------------------------------------------------------ */

bool meta_member_is_stuck(const meta_device *device, int32_t d) {
    const meta_member *member = &device->members[d];
    uint64_t value = 0;
    if (member->stuck == NULL) return false;
    return device->host->semaphore->query(member->stuck, &value, NULL) == TDM_OK &&
           value < member->stuck_value;
}

typedef struct meta_left {
    struct meta_left *next;
    int32_t d;
    tdm_semaphore *semaphore; /* NULL: the member's */
    uint64_t value;
    meta_release_fn release;
    void *what;
} meta_left;

static void left_push(meta_device *device, meta_left *node) {
    node->next = atomic_load(&device->left);
    while (!atomic_compare_exchange_weak(&device->left, &node->next, node)) {
    }
}

void meta_leave(meta_device *device, int32_t d, tdm_semaphore *semaphore, uint64_t value,
                meta_release_fn release, void *what) {
    meta_left *node = meta_alloc(device->host, sizeof *node);
    if (node == NULL) return; /* lost, rather than taken from under the member */
    *node = (meta_left){
        .d = d, .semaphore = semaphore, .value = value, .release = release, .what = what};
    left_push(device, node);
}

static bool is_kept(const meta_device *device, const meta_left *node) {
    uint64_t value = 0;
    if (node->semaphore == NULL) return meta_member_is_stuck(device, node->d);
    return device->host->semaphore->query(node->semaphore, &value, NULL) == TDM_OK &&
           value < node->value;
}

bool meta_stuck_members_settle(meta_device *device) {
    bool is_all_back = true;
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *member = &device->members[d];
        if (member->stuck == NULL) continue;
        if (meta_member_is_stuck(device, d)) {
            is_all_back = false;
            continue;
        }
        device->host->semaphore->destroy(member->stuck);
        member->stuck = NULL;
    }
    for (meta_left *node = atomic_exchange(&device->left, NULL), *next; node != NULL; node = next) {
        next = node->next;
        if (is_kept(device, node)) {
            left_push(device, node);
            continue;
        }
        node->release(device, node->d, node->what);
        meta_free(device->host, node, sizeof *node);
    }
    return is_all_back;
}
