/* SPDX-License-Identifier: MIT
 *
 * report.c: predicts memory and time of a graph on a group. The graph is compiled and laid out as
 * for a run. Sizes come from the code that allocates, so they are what a run allocates. Times are
 * predict.c's.
 */
#include "plugins/meta/share/report.h"

#include <string.h>

#include "plugins/meta/exchange/peer.h"
#include "plugins/meta/layout/partition.h"
#include "plugins/meta/rules/compile.h"
#include "plugins/meta/share/measure.h"
#include "plugins/meta/share/predict.h"
#include "plugins/meta/share/solve.h"

/* ---- Bytes ----------------------------------------------------------------------------------- */

static tdm_status weights_weigh(const meta_device *device, const tdm_graph *graph, int32_t d,
                                tdm_split_member *out, tdm_error *err) {
    for (int32_t i = 0; i < graph->n_value; i++) {
        meta_slice slice;
        uint64_t size = 0;
        if (tdm_graph_value(graph, i)->kind != TDM_VALUE_WEIGHT) continue;
        tdm_tensor_desc desc = meta_value_desc(graph, i);
        tdm_status status = meta_slice_find(device, &desc, d, &slice, err);
        if (status == TDM_OK) status = meta_slice_size(device, d, &slice, &size, err);
        if (status != TDM_OK) return status;
        size = meta_round_up(size, device->members[d].align);
        out->weight_size += size;
        if (desc.partition.id == 0) out->replicated_size += size;
    }
    return TDM_OK;
}

static tdm_status states_weigh(const meta_device *device, const tdm_graph *graph, int32_t d,
                               tdm_split_member *out, tdm_error *err) {
    static const tdm_partition none;
    const meta_member *member = &device->members[d];
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        const tdm_kv_desc *desc = NULL;
        tdm_kv_desc local;
        int64_t n_page;
        uint64_t page_size = 0;
        bool is_held = false;
        if (v->kind != TDM_VALUE_STATE || (desc = meta_state_desc(graph, i)) == NULL) continue;
        const tdm_partition *partition =
            v->partition > 0 ? tdm_graph_partition(graph, v->partition) : &none;
        tdm_status status =
            meta_state_local(device, desc, v->ne[1], partition, d, &local, &n_page, &is_held, err);
        if (status != TDM_OK) return status;
        if (!is_held) continue;
        status = meta_member_buffers(member)->kv_page_size(member->acquired.device, &local,
                                                           &page_size, err);
        if (status != TDM_OK) return status;
        page_size = meta_round_up(page_size * (uint64_t)n_page, member->align);
        out->state_size += page_size;
        if (meta_is_cache_in_host(member, desc)) out->host_state_size += page_size;
    }
    return TDM_OK;
}

/* Adds the bytes that the member's plans hold, and those that cross between device and host in a
 * run. Makes the plans to find them. */
static tdm_status plans_weigh(const meta_plan *plan, int32_t d, uint64_t *size,
                              uint64_t *crossing_size, tdm_error *err) {
    const meta_member *member = &plan->device->members[d];
    const tdm_queue_ops *queue = member->acquired.plugin->queue;
    const meta_member_plan *m = &plan->members[d];
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_queue *on = NULL;
    uint64_t scratch = 0;
    tdm_status status = queue->create(member->acquired.device, &on, err);
    for (int32_t s = 0; s < m->n_stage && status == TDM_OK; s++) {
        tdm_plan *member_plan = NULL;
        tdm_plan_info info = {.struct_size = sizeof info};
        if (m->stages[s].graph == NULL) continue;
        status = queue->graph_prepare(on, m->stages[s].graph, &params, &member_plan, err);
        if (status == TDM_OK && TDM_HAS(queue, plan_get_info))
            status = queue->plan_get_info(member_plan, &info, err);
        if (member_plan != NULL) queue->plan_destroy(member_plan);
        *size += info.device_size + info.host_size;
        *crossing_size += info.crossing_size;
        if (info.scratch_size > scratch) scratch = info.scratch_size;
    }
    if (on != NULL) queue->destroy(on);
    *size += scratch;
    return status;
}

/* Bytes of the caches in a graph by their offsets (kv_page_size). */
static double states_size(const tdm_graph *graph) {
    double size = 0;
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind == TDM_VALUE_STATE && meta_state_desc(graph, i) != NULL)
            size += (double)v->ne[0] * (double)v->ne[1];
    }
    return size;
}

/* For a member that is itself a group: the bytes of caches that it holds, and how many of them in
 * host memory. Only that group's own report gives them, for the graphs that it runs. Without such a
 * report it counts as a device with its own memory. */
static tdm_status group_states_weigh(const meta_plan *plan, int32_t d, tdm_split_member *out,
                                     tdm_error *err) {
    const meta_member *member = &plan->device->members[d];
    const tdm_split_ops *split = member->acquired.plugin->split;
    const meta_member_plan *m = &plan->members[d];
    const tdm_host *host = plan->device->host;
    const size_t size = TDM_MAX_MEMBERS * sizeof(tdm_split_member);
    double numbered = 0, kept = 0, in_host = 0;
    if ((member->info.flags & TDM_DEVICE_IS_GROUP) == 0 ||
        !TDM_HAS(member->acquired.plugin, split) || !TDM_HAS(split, split_report))
        return TDM_OK;
    tdm_split_member *inner = meta_alloc(host, size);
    tdm_status status = inner != NULL ? TDM_OK : meta_no_memory("to report", err);
    for (int32_t s = 0; s < m->n_stage && status == TDM_OK; s++) {
        const tdm_graph *graph = m->stages[s].graph;
        tdm_split_report report = {.struct_size = sizeof report,
                                   .member_size = sizeof *inner,
                                   .members = inner,
                                   .capacity = TDM_MAX_MEMBERS,
                                   .is_brief = 1};
        if (graph == NULL || states_size(graph) == 0) continue;
        memset(inner, 0, size);
        status = split->split_report(member->acquired.device, graph, &report, err);
        for (int32_t i = 0; i < report.n_member && i < TDM_MAX_MEMBERS && status == TDM_OK; i++) {
            kept += (double)inner[i].state_size;
            in_host += (double)inner[i].host_state_size;
        }
        numbered += states_size(graph);
    }
    meta_free(host, inner, size);
    if (status == TDM_UNSUPPORTED) return TDM_OK;
    if (status != TDM_OK || !(numbered > 0)) return status;
    /* A cache that is written in one stage and read in the next was reported twice. */
    const double once = (double)out->state_size / numbered;
    out->state_size = (uint64_t)(kept * once + 0.5);
    out->host_state_size = (uint64_t)(in_host * once + 0.5);
    return TDM_OK;
}

/* ---- Bytes that do not depend on the share --------------------------------------------------- */

/* When a slot's memory is in use: nodes first .. last. first -1 = never, or the slot is not
 * counted. */
typedef struct whole_life {
    int32_t first, last;
    bool crosses; /* from one stage to another: such values have a region of their own */
} whole_life;

static int32_t base_slot(const meta_part *part, int32_t v) {
    return v < 0 ? -1 : part->graph.values[part->places[v].base].slot;
}

/* True where the members hold different parts of a value. */
static bool is_assigned(const tdm_layout *layout) {
    if (layout->kind != TDM_LAYOUT_SPLIT) return false;
    for (int32_t s = 0; s < layout->n_segment; s++) {
        int64_t n_unit = 0;
        for (int32_t d = 0; d < layout->n_member; d++)
            n_unit += layout->segments[s].hi[d] - layout->segments[s].lo[d];
        if (n_unit > layout->segments[s].n_unit) return false;
    }
    return true;
}

/* Memory that a run writes, without that of exchanges and zeros. */
static bool is_written(const meta_slot *slot) {
    return slot->source == META_SLOT_TEMP || slot->source == META_SLOT_OUTPUT ||
           slot->source == META_SLOT_INPUT || slot->source == META_SLOT_STEP ||
           slot->source == META_SLOT_EPOCH;
}

/* True where a slot contains only member d's part of a split variant. A part may also be a slice of
 * a whole value in the slot; then false. */
static bool is_part(const meta_plan *plan, const meta_variant *variant, int32_t d, int32_t slot) {
    const meta_part *part = &plan->members[d].part;
    const tdm_value *v = meta_part_value(part, variant->local[d]);
    return is_assigned(&plan->layouts.layouts[variant->layout]) &&
           tdm_tensor_canonical_size((tdm_type)v->type, v->ne) >= part->slots[slot].size;
}

/* Marks the slots whose size does not depend on the share: whole values, addends, and intermediate
 * results of conversions between layouts. */
static void whole_mark(const meta_plan *plan, int32_t d, whole_life *lives) {
    const meta_part *part = &plan->members[d].part;
    const whole_life never = {-1, -1, false}, counted = {part->graph.n_node, -1, false};
    for (int32_t i = 0; i < part->graph.n_slot; i++)
        lives[i] = is_written(&part->slots[i]) ? counted : never;
    for (int32_t f = 0; f < plan->n_variant; f++) {
        int32_t slot = base_slot(part, plan->variants[f].local[d]);
        if (slot >= 0 && is_part(plan, &plan->variants[f], d, slot)) lives[slot] = never;
    }
}

static void whole_lives_find(const meta_plan *plan, int32_t d, whole_life *lives) {
    const meta_part *part = &plan->members[d].part;
    bool is_cut = !plan->members[d].is_direct;
    int32_t exchange = part->graph.n_node; /* the next one */
    for (int32_t i = part->graph.n_node - 1; i >= 0; i--) {
        const tdm_node *node = tdm_graph_node(&part->graph, i);
        bool is_border = is_cut && node->op == TDM_OP_EXCHANGE &&
                         node->params.exchange.phase != TDM_EXCHANGE_PUBLISH;
        bool is_exchange = is_border && node->params.exchange.phase == TDM_EXCHANGE_WHOLE;
        if (is_exchange) exchange = i;
        for (int32_t s = 0; s < node->n_src + node->n_dst; s++) {
            int32_t v = s < node->n_src ? node->src[s] : node->dst[s - node->n_src];
            int32_t slot = base_slot(part, v);
            if (slot < 0 || lives[slot].first < 0) continue;
            if (lives[slot].last < 0) lives[slot].last = i;
            lives[slot].first = i;
            lives[slot].crosses |= is_exchange || lives[slot].last > exchange;
        }
        /* A COLLECT belongs to the stage behind the border. */
        if (is_border && !is_exchange) exchange = i - 1;
    }
}

/* The most bytes in use at the same time by the slots that cross stages, or by those that do
 * not. */
static uint64_t whole_peak(const meta_plan *plan, int32_t d, const whole_life *lives,
                           bool crosses) {
    const meta_part *part = &plan->members[d].part;
    uint64_t peak = 0;
    for (int32_t i = 0; i < part->graph.n_node; i++) {
        uint64_t sum = 0;
        for (int32_t slot = 0; slot < part->graph.n_slot; slot++)
            if (part->slots[slot].source == META_SLOT_TEMP && lives[slot].crosses == crosses &&
                lives[slot].first >= 0 && lives[slot].first <= i && i <= lives[slot].last)
                sum += meta_round_up(part->slots[slot].size, plan->device->members[d].align);
        if (sum > peak) peak = sum;
    }
    return peak;
}

/* The bytes of compute_size that a member would need even with the smallest share, without
 * plans. */
static tdm_status whole_weigh(const meta_plan *plan, int32_t d, uint64_t *size_out,
                              tdm_error *err) {
    const meta_member_plan *m = &plan->members[d];
    const tdm_host *host = plan->device->host;
    size_t size = ((size_t)m->part.graph.n_slot + 1) * sizeof(whole_life);
    whole_life *lives = meta_alloc(host, size);
    if (lives == NULL) return meta_no_memory("to report", err);
    whole_mark(plan, d, lives);
    whole_lives_find(plan, d, lives);
    *size_out = whole_peak(plan, d, lives, false) + whole_peak(plan, d, lives, true);
    for (int32_t i = 0; i < m->part.graph.n_slot; i++)
        if (m->part.slots[i].source != META_SLOT_TEMP && lives[i].first >= 0 &&
            m->temp_off[i] != META_NOWHERE)
            *size_out += meta_round_up(m->part.slots[i].size, plan->device->members[d].align);
    meta_free(host, lives, size);
    return TDM_OK;
}

/* ---- Filling --------------------------------------------------------------------------------- */

static void transport_print(const meta_device *device, int32_t d, char *text, size_t size) {
    static const char *const words[] = {[META_EXCHANGE_BY_HOST] = "copied by the host",
                                        [META_EXCHANGE_IN_PHASES] = "shared memory, plan cut",
                                        [META_EXCHANGE_IN_PLAN] = "shared memory, in its plan"};
    const meta_member *member = &device->members[d];
    if (meta_uses_peer(device) && device->n_active > 1 && meta_is_active(device, d))
        snprintf(text, size, "memory of '%.31s', in its plan", device->home->name);
    else if (!meta_is_active(device, d))
        snprintf(text, size, "none: no share");
    else if (device->n_active == 1)
        snprintf(text, size, "none: alone");
    else
        snprintf(text, size, "%s%s%s", words[member->exchange],
                 member->exchange_why != NULL ? ": " : "",
                 member->exchange_why != NULL ? member->exchange_why : "");
}

static tdm_status member_fill(const meta_plan *plan, int32_t d, tdm_split_member *out,
                              tdm_error *err) {
    const meta_device *device = plan->device;
    const meta_member *member = &device->members[d];
    tdm_device_info now = {.struct_size = sizeof now};
    tdm_status status = TDM_OK;
    /* Besides temporaries. The data of the arena is counted in equal parts for all members, peer
     * memory for its home. */
    uint64_t whole = plan->members[d].part.zeros_size + plan->members[d].staging_size;
    if (plan->peer_size == 0)
        whole += plan->data_size / (uint64_t)device->n_active;
    else if (member == device->home)
        whole += plan->peer_size;
    snprintf(out->name, sizeof out->name, "%.31s", member->name);
    snprintf(out->plugin, sizeof out->plugin, "%.31s", member->acquired.plugin->name);
    transport_print(device, d, out->transport, sizeof out->transport);
    out->share = member->share;
    out->bandwidth = member->bandwidth;
    out->arithmetic = member->arithmetic;
    out->run_ns = atomic_load(&member->run_ns);
    out->exchange_ns = atomic_load(&member->exchange_ns);
    if (TDM_HAS(member->acquired.plugin->device, get_info) &&
        member->acquired.plugin->device->get_info(member->acquired.device, &now, NULL) == TDM_OK) {
        out->memory_total = now.memory_total;
        out->memory_free = now.memory_free;
    }
    if (!meta_is_active(device, d)) return TDM_OK;
    status = weights_weigh(device, plan->graph, d, out, err);
    if (status == TDM_OK) status = states_weigh(device, plan->graph, d, out, err);
    if (status == TDM_OK) status = plans_weigh(plan, d, &whole, &out->crossing_size, err);
    if (status == TDM_OK) status = group_states_weigh(plan, d, out, err);
    const uint64_t *own = plan->members[d].memory_size;
    out->compute_size =
        whole + own[META_MEMORY_SCRATCH] + own[META_MEMORY_INPUT] + own[META_MEMORY_OUTPUT];
    if (status == TDM_OK) status = whole_weigh(plan, d, &out->whole_size, err);
    out->whole_size += whole;
    /* The plans of a device that holds temporaries itself have their bytes already. */
    if (out->whole_size > out->compute_size) out->whole_size = out->compute_size;
    return status;
}

tdm_status meta_report(meta_device *device, const tdm_graph *graph, tdm_split_report *report,
                       tdm_error *err) {
    tdm_split_report r;
    meta_load load;
    meta_plan *plan = NULL;
    double seconds[TDM_MAX_MEMBERS] = {0};
    tdm_struct_read(&r, sizeof r, report);
    tdm_split_report filled = {.struct_size = r.struct_size,
                               .member_size = r.member_size,
                               .members = r.members,
                               .capacity = r.capacity,
                               .n_member = device->n_member,
                               .n_run = atomic_load(&device->n_run)};
    tdm_status status = meta_load_weigh(device, graph, &load, err);
    if (status == TDM_OK && load.read_size > 0 && r.is_brief == 0)
        status = meta_measure(device, load.type, err);
    if (status == TDM_OK) status = meta_compile(device, graph, &plan, err);
    if (status == TDM_OK) status = meta_plan_lay_out(plan, err);
    if (status == TDM_OK) {
        filled.n_exchange = plan->facts.n_exchange;
        filled.n_relayout = plan->facts.n_relayout;
        filled.exchange_size = plan->facts.size;
        status = meta_predict(plan, &filled, seconds, err);
    }
    for (int32_t d = 0; d < device->n_member && d < r.capacity && r.members != NULL; d++) {
        tdm_split_member member = {0};
        size_t size = r.member_size != 0 ? r.member_size : sizeof member;
        if (status != TDM_OK) break;
        status = member_fill(plan, d, &member, err);
        member.seconds = seconds[d];
        memcpy((char *)r.members + (size_t)d * size, &member,
               size < sizeof member ? size : sizeof member);
    }
    meta_plan_destroy(plan);
    if (status == TDM_OK) tdm_struct_write(report, &filled, sizeof filled);
    return status;
}
