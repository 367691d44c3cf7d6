/* SPDX-License-Identifier: MIT
 *
 * solve.c: share = auto. All members compute at the same time, so the group is fastest when all
 * finish at the same time: shares are proportional to the measured rates, limited by each member's
 * memory.
 */
#include "plugins/meta/share/solve.h"

#include <string.h>

#include "plugins/meta/buffer.h"
#include "plugins/meta/rules/compile.h"
#include "plugins/meta/device.h"
#include "plugins/meta/share/measure.h"

/* The weight of a prompt token against a generated one: prompts are longer than answers. */
#define PROMPT_WEIGHT 4.0
/* A member with a smaller share would cost more in exchanges than it contributes. */
#define LEAST_SHARE 0.02

tdm_status meta_load_weigh(const meta_device *device, const tdm_graph *graph, meta_load *out,
                           tdm_error *err) {
    uint64_t by_type[TDM_TYPE_LIMIT_] = {0};
    const meta_member *owner = &device->members[device->owner];
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != TDM_VALUE_WEIGHT) continue;
        uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        by_type[v->type] += size;
        if (v->partition == 0) {
            out->whole_size += size;
            continue;
        }
        out->cut_size += size;
        if ((v->usage & (TDM_USAGE_MATMUL | TDM_USAGE_EXPERT)) == 0) continue;
        out->read_size += size;
        out->n_mac += (double)tdm_shape_count(v->ne);
    }
    for (int32_t type = 1; type < TDM_TYPE_LIMIT_; type++)
        if (by_type[type] > by_type[out->type]) out->type = (tdm_type)type;
    /* A description counts once for each STATE that uses it. */
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        uint64_t page_size = 0;
        if (node->op != TDM_OP_KV_WRITE) continue;
        const tdm_kv_desc *desc = tdm_graph_kv(graph, node->params.kv.kv);
        tdm_status status = owner->acquired.plugin->buffer->kv_page_size(owner->acquired.device,
                                                                         desc, &page_size, err);
        if (status != TDM_OK) return status;
        page_size *= (uint64_t)tdm_graph_value(graph, node->src[3])->ne[1];
        out->state_size += page_size;
        if ((desc->flags & TDM_KV_IN_HOST) != 0) out->host_size += page_size;
    }
    return TDM_OK;
}

tdm_status meta_share_divide(int32_t n, const double *rate, const double *cap, double least,
                             double *share_out, tdm_error *err) {
    bool is_bound[TDM_MAX_MEMBERS] = {false}, is_out[TDM_MAX_MEMBERS] = {false};
    double room = 0;
    for (int32_t d = 0; d < n; d++) room += cap[d] < 0 ? 0 : cap[d];
    if (room < 1)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "the members have memory for %.0f %% of it together", room * 100);
    for (;;) {
        double left = 1, rates = 0;
        int32_t weakest = -1;
        bool has_changed = false;
        for (int32_t d = 0; d < n; d++) {
            if (is_bound[d])
                left -= cap[d];
            else if (!is_out[d])
                rates += rate[d];
        }
        for (int32_t d = 0; d < n; d++) {
            share_out[d] = is_out[d]     ? 0
                           : is_bound[d] ? cap[d]
                           : rates > 0   ? left * rate[d] / rates
                                         : 0;
            if (is_bound[d] || is_out[d]) continue;
            if (share_out[d] > cap[d]) {
                is_bound[d] = has_changed = true;
            } else if (share_out[d] < least && (weakest < 0 || share_out[d] < share_out[weakest])) {
                weakest = d;
            }
        }
        if (has_changed) continue;
        /* Members are dropped one at a time, because the others' shares then grow. One always
         * remains. */
        if (weakest < 0) break;
        double others = 0;
        for (int32_t d = 0; d < n; d++)
            if (d != weakest && !is_out[d]) others += cap[d];
        if (others < 1) break;
        is_out[weakest] = true;
    }
    /* Where memory limits all fast members, the rest goes to members with room. */
    double sum = 0;
    for (int32_t d = 0; d < n; d++) sum += share_out[d];
    for (int32_t d = 0; d < n && sum < 1; d++) {
        double more = cap[d] - share_out[d] < 1 - sum ? cap[d] - share_out[d] : 1 - sum;
        if (more <= 0) continue;
        share_out[d] += more;
        sum += more;
    }
    return TDM_OK;
}

/* The share of the divisible bytes for which a member has memory. */
static double member_cap(const meta_device *device, int32_t d, const meta_load *load) {
    tdm_device_info info = {.struct_size = sizeof info};
    const meta_member *member = &device->members[d];
    const tdm_kv_desc in_host = {.flags = TDM_KV_IN_HOST};
    bool is_host = (member->info.flags & TDM_DEVICE_IS_HOST) != 0;
    uint64_t divisible = load->cut_size + load->state_size;
    if (is_host || meta_is_cache_in_host(member, &in_host)) divisible -= load->host_size;
    if (!TDM_HAS(member->acquired.plugin->device, get_info) ||
        member->acquired.plugin->device->get_info(member->acquired.device, &info, NULL) != TDM_OK ||
        info.memory_free == 0 || divisible == 0)
        return 1;
    /* Members that compute on the host share one memory. The largest of their reserves is kept
     * free, once. */
    int32_t n_sharing = 1;
    uint64_t reserve = device->options.reserve[d];
    double memory = (double)info.memory_free;
    if (is_host) {
        memory -= (double)load->host_size; /* of all members */
        n_sharing = 0;
        for (int32_t i = 0; i < device->n_member; i++) {
            if ((device->members[i].info.flags & TDM_DEVICE_IS_HOST) == 0) continue;
            n_sharing++;
            if (device->options.reserve[i] > reserve) reserve = device->options.reserve[i];
        }
        if (n_sharing == 0) n_sharing = 1;
    }
    /* A twentieth of the rest stays for plans and temporaries. */
    double room = (memory - (double)reserve) * 0.95 / n_sharing - (double)load->whole_size;
    return room <= 0 ? 0 : room / (double)divisible;
}

tdm_status meta_share_solve(meta_device *device, const tdm_graph *graph, tdm_error *err) {
    double rate[TDM_MAX_MEMBERS], cap[TDM_MAX_MEMBERS], share[TDM_MAX_MEMBERS];
    meta_load load;
    if (!device->options.is_share_auto || device->is_share_solved) return TDM_OK;
    tdm_status status = meta_load_weigh(device, graph, &load, err);
    if (status != TDM_OK || load.read_size == 0) return status;
    if (device->n_active > 1) {
        status = meta_measure(device, load.type, err);
        if (status != TDM_OK) return status;
        for (int32_t d = 0; d < device->n_member; d++) {
            const meta_member *m = &device->members[d];
            double seconds = 0;
            rate[d] = 0;
            if (!(m->bandwidth > 0) || !(m->arithmetic > 0)) continue;
            seconds =
                (double)load.read_size / m->bandwidth + PROMPT_WEIGHT * load.n_mac / m->arithmetic;
            rate[d] = 1 / seconds;
        }
        for (int32_t d = 0; d < device->n_member; d++) cap[d] = member_cap(device, d, &load);
        status = meta_share_divide(device->n_member, rate, cap, LEAST_SHARE, share, err);
        if (status != TDM_OK)
            return tdm_fail(err, status,
                            "share = auto: %.300s; reserve less, or use a smaller "
                            "ctx-size or model",
                            err != NULL ? err->message : "");
        for (int32_t d = 0; d < device->n_member; d++) device->members[d].share = share[d];
        meta_roles_assign(device);
    }
    device->is_share_solved = true;
    return TDM_OK;
}
