/* SPDX-License-Identifier: MIT
 *
 * device.c: opens and closes a group: acquires the members, checks their tables, gives them shares,
 * and makes the table of partitions, the arena and the probe. Also describes the group to the host
 * (name, memory, capabilities). Shares are computed in share/.
 */
#include "plugins/meta/device.h"

#include <stdlib.h>

#include "core/base/op_state.h"
#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/exec/queue.h"
#include "plugins/meta/exec/stuck.h"
#include "plugins/meta/layout/partition.h"
#include "plugins/meta/members.h"
#include "plugins/meta/share/limits.h"
#include "plugins/meta/share/share.h"

enum { GROUP_ALIGN = 64 }; /* bytes: the least alignment of buffer offsets */

/* ---- Enumeration: none, since groups are made by a configuration ---- */

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    (void)instance;
    (void)params;
    *n_out = 0;
    if (err != NULL) {
        err->status = TDM_OK;
        snprintf(err->message, sizeof err->message,
                 "makes groups of other devices; a [group NAME] section or --device a,b makes one");
    }
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    (void)instance;
    (void)params;
    (void)info_out;
    return tdm_fail(err, TDM_NOT_FOUND,
                    "meta: no device %d: groups are opened with members, not found", (int)index);
}

/* ---- Opening ---- */

/* The name of a function or table that a group needs and the member's plugin lacks; NULL = none.
 * The host fills in what a small plugin leaves out (tandem/host.h). That is checked here once, so
 * that the other files can call these functions without a check. */
static const char *missing_table(const tdm_acquired_device *acquired) {
    const tdm_plugin *p = acquired->plugin;
    if (p == NULL || !TDM_HAS(p, device) || !TDM_HAS(p, buffer)) return "tables";
    if (!TDM_HAS(p, queue)) return "queue";
    if (!TDM_HAS(p->buffer, tensor_size) || !TDM_HAS(p->buffer, tensor_upload) ||
        !TDM_HAS(p->buffer, tensor_download))
        return "tensor functions";
    if (!TDM_HAS(p->buffer, kv_page_size)) return "cache functions";
    if (!TDM_HAS(p->buffer, fill) || !TDM_HAS(p->buffer, copy)) return "fill or copy";
    return NULL;
}

static tdm_status member_info(const meta_member *member, tdm_device_info *info, tdm_error *err) {
    const tdm_device_ops *ops = member->acquired.plugin->device;
    memset(info, 0, sizeof *info);
    info->struct_size = sizeof *info;
    if (!TDM_HAS(ops, get_info)) return TDM_OK;
    tdm_status status = ops->get_info(member->acquired.device, info, err);
    info->name[sizeof info->name - 1] = 0;
    info->description[sizeof info->description - 1] = 0;
    info->vendor[sizeof info->vendor - 1] = 0;
    info->pci_address[sizeof info->pci_address - 1] = 0;
    return status;
}

static tdm_status member_open(meta_device *device, int32_t d, tdm_error *err) {
    const tdm_host *host = device->host;
    meta_member *member = &device->members[d];
    tdm_error inner = {0};
    tdm_acquired_device acquired = {.struct_size = sizeof acquired};
    member->name = device->options.names[d];
    tdm_status status = host->device_acquire(host->context, member->name, &acquired, &inner);
    if (status == TDM_OK) {
        member->acquired = acquired;
        const char *missing = missing_table(&acquired);
        if (missing != NULL)
            status = tdm_fail(&inner, TDM_UNSUPPORTED, "its plugin has no %s", missing);
    }
    if (status == TDM_OK) status = member_info(member, &member->info, &inner);
    if (status == TDM_OK)
        status = acquired.plugin->device == &meta_device_ops
                     ? meta_claims_add_group(&device->claims, &acquired.device->claims, &inner)
                     : meta_claims_add_device(&device->claims, member->name, &inner);
    if (acquired.plugin != NULL && acquired.plugin->device != &meta_device_ops &&
        (member->info.flags & TDM_DEVICE_IS_GROUP) != 0)
        device->claims.is_off = true;
    if (status != TDM_OK)
        return tdm_fail(err, status, "member %d of the group, '%s': %s", (int)d + 1, member->name,
                        inner.message);
    member->align =
        member->info.buffer_align > GROUP_ALIGN ? member->info.buffer_align : GROUP_ALIGN;
    if ((member->align & (member->align - 1)) != 0)
        return tdm_fail(err, TDM_INTERNAL, "member '%s': its alignment %llu is no power of two",
                        member->name, (unsigned long long)member->align);
    return TDM_OK;
}

/* Finds the members whose devices are also inside members that are groups. Two members that are
 * groups have no device in common: their runs claim nothing (claims.h), so that each could hold one
 * device and wait for another that the other holds. */
static tdm_status members_compare(meta_device *device, tdm_error *err) {
    for (int32_t e = 0; e < device->n_member; e++) {
        const tdm_acquired_device *group = &device->members[e].acquired;
        if (group->plugin->device != &meta_device_ops) continue;
        for (int32_t d = 0; d < device->n_member; d++) {
            const tdm_acquired_device *other = &device->members[d].acquired;
            if (d == e) continue;
            if (other->plugin->device != &meta_device_ops) {
                if (meta_claims_have(&group->device->claims, device->members[d].name))
                    device->members[d].is_inside_another = true;
                continue;
            }
            const char *common = meta_claims_common(&group->device->claims, &other->device->claims);
            if (common != NULL)
                return tdm_fail(err, TDM_UNSUPPORTED,
                                "members '%s' and '%s' are groups that both contain device '%s'; "
                                "leave it out of one of them",
                                device->members[e].name, device->members[d].name, common);
        }
    }
    return TDM_OK;
}

static tdm_status queues_create(meta_device *device, tdm_error *err) {
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *member = &device->members[d];
        tdm_error inner = {0};
        if (!meta_is_active(device, d)) continue;
        tdm_status status = member->acquired.plugin->queue->create(member->acquired.device,
                                                                   &member->probe_queue, &inner);
        if (status != TDM_OK) {
            member->probe_queue = NULL;
            return tdm_fail(err, status, "member '%s': %s", member->name, inner.message);
        }
        if (member->acquired.plugin->queue == &meta_queue_ops)
            meta_queue_set_inner(member->probe_queue);
    }
    return TDM_OK;
}

/* Where a member has not ended, the group is leaked with everything that the member may use:
 * nothing waits for it after this call. Its members are then not released, so that the host neither
 * closes their devices nor unloads their plugins. */
static void device_close(tdm_device *device) {
    if (device == NULL) return;
    const tdm_host *host = device->host;
    if (!meta_stuck_members_check(device) || meta_has_pending_releases(device)) return;
    /* Queues first: what they still run may use everything that is freed after them. */
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *member = &device->members[d];
        if (member->probe_queue != NULL)
            member->acquired.plugin->queue->destroy(member->probe_queue);
    }
    if (device->arena != NULL) {
        meta_arena_release(device);
        meta_free(host, device->arena, sizeof *device->arena);
    }
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *member = &device->members[d];
        for (int k = 0; k < META_N_MEMORY; k++)
            if (member->memory[k] != NULL) meta_member_buffers(member)->free(member->memory[k]);
    }
    meta_free(host, device->overrides, (size_t)device->cap_override * sizeof *device->overrides);
    meta_partition_table_destroy(device->partitions);
    meta_claims_clear(&device->claims);
    for (int32_t d = device->n_member - 1; d >= 0; d--)
        if (device->members[d].acquired.plugin != NULL)
            host->device_release(host->context, &device->members[d].acquired);
    pthread_mutex_destroy(&device->stuck_mutex);
    pthread_mutex_destroy(&device->mutex);
    meta_free(host, device, sizeof *device);
}

static tdm_status parts_make(meta_device *device, tdm_error *err) {
    tdm_status status = meta_partition_table_create(device->host, &device->partitions, err);
    if (status == TDM_OK) {
        device->arena = meta_alloc(device->host, sizeof *device->arena);
        if (device->arena == NULL) status = meta_no_memory("for a device", err);
    }
    if (status == TDM_OK) status = queues_create(device, err);
    if (status == TDM_OK) status = meta_arena_reserve(device, META_ARENA_FLAGS, err);
    if (status == TDM_OK) {
        meta_claims_lock(&device->claims);
        status = meta_probe(device, err);
        if (status == TDM_OK) status = meta_home_choose(device, err);
        meta_claims_unlock(&device->claims);
    }
    return status;
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    const tdm_host *host = instance->host;
    tdm_device_params p;
    tdm_struct_read(&p, sizeof p, params);
    if (p.index != 0)
        return tdm_fail(err, TDM_NOT_FOUND, "meta: no device %d; a group is opened as number 0",
                        (int)p.index);
    if (!TDM_HAS(host, device_acquire) || !TDM_HAS(host, device_release) || !TDM_HAS(host, graph) ||
        !TDM_HAS(host, semaphore))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "meta: the host provides no devices (device_acquire, graph, semaphore)");
    meta_device *device = meta_alloc(host, sizeof *device);
    if (device == NULL) return meta_no_memory("for a device", err);
    device->host = host;
    device->scatter_min = META_SCATTER_MIN;
    device->claims.registry = &instance->registry;
    if (pthread_mutex_init(&device->mutex, NULL) != 0) {
        meta_free(host, device, sizeof *device);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no mutex");
    }
    if (pthread_mutex_init(&device->stuck_mutex, NULL) != 0) {
        pthread_mutex_destroy(&device->mutex);
        meta_free(host, device, sizeof *device);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no mutex");
    }
    tdm_status status = meta_options_read(p.options, p.n_option, &device->options, err);
    device->attention = device->options.attention == META_ATTENTION_AUTO
                            ? META_ATTENTION_HEADS
                            : device->options.attention;
    for (int32_t d = 0; d < device->options.n_member && status == TDM_OK; d++) {
        device->n_member = d + 1;
        status = member_open(device, d, err);
    }
    if (status == TDM_OK) status = meta_duplicates_check(device, err);
    if (status == TDM_OK) status = members_compare(device, err);
    if (status == TDM_OK) {
        meta_share_fill(device);
        meta_roles_assign(device);
        if (device->n_active == 0)
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "share: no member is left with any");
    }
    if (status == TDM_OK) status = parts_make(device, err);
    if (status != TDM_OK) {
        device_close(device);
        return status;
    }
    *device_out = device;
    return TDM_OK;
}

/* ---- Description ---- */

/* "a + b", or "a + 2 more" where `size` has no room for all. The first name is cut off where even
 * it has none. */
static void names_join(const meta_device *device, bool is_description, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (int32_t d = 0; d < device->n_member; d++) {
        const meta_member *member = &device->members[d];
        const char *name = is_description && member->info.description[0] != 0
                               ? member->info.description
                               : member->name;
        const int32_t n_behind = device->n_member - d - 1;
        size_t needed = (d > 0 ? strlen(" + ") : 0) + strlen(name);
        if (n_behind > 0) needed += strlen(" + 99 more");
        if (used + needed >= size && d > 0) {
            snprintf(text + used, size - used, " + %d more", (int)n_behind + 1);
            return;
        }
        int n = snprintf(text + used, size - used, "%s%.*s", d > 0 ? " + " : "",
                         (int)(size - used - (n_behind > 0 ? sizeof " + 99 more" : 1)), name);
        if (n > 0) used += (size_t)n;
    }
}

static tdm_status device_get_info(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    tdm_device_info info = {.struct_size = sizeof info,
                            .buffer_align = GROUP_ALIGN,
                            .flags = TDM_DEVICE_IS_GROUP | TDM_DEVICE_HOLDS_TEMPS};
    bool is_total_known = true, is_free_known = true;
    names_join(device, false, info.name, sizeof info.name);
    names_join(device, true, info.description, sizeof info.description);
    for (int32_t d = 0; d < device->n_member; d++) {
        tdm_device_info now;
        if (!meta_is_active(device, d)) continue;
        tdm_status status = member_info(&device->members[d], &now, err);
        if (status != TDM_OK) return status;
        is_total_known = is_total_known && now.memory_total > 0;
        is_free_known = is_free_known && now.memory_free > 0;
        /* A slice is no larger than the whole, so that what fits in the smallest limit fits. */
        if (now.max_buffer != 0 && (info.max_buffer == 0 || now.max_buffer < info.max_buffer))
            info.max_buffer = now.max_buffer;
        info.memory_total += now.memory_total;
        info.memory_free += now.memory_free;
    }
    if (!is_total_known) info.memory_total = 0;
    if (!is_free_known) info.memory_free = 0;
    tdm_struct_write(info_out, &info, sizeof info);
    return TDM_OK;
}

/* Whether the member runs the node, in whose graph the pages of the caches have been given the
 * member's own size. The graph's values are copied for that. */
static tdm_status resized_supports(const meta_member *member, const tdm_graph *graph, int32_t node,
                                   uint64_t page_size, tdm_error *err) {
    const tdm_node *n = tdm_graph_node(graph, node);
    const size_t size = (size_t)graph->n_value * graph->value_size;
    tdm_graph own = *graph;
    char *values = malloc(size);
    if (values == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the description of a graph");
    memcpy(values, graph->values, size);
    for (int32_t s = 0; s < n->n_src; s++) {
        if (n->src[s] < 0) continue;
        tdm_value *value = (tdm_value *)(void *)(values + (size_t)n->src[s] * graph->value_size);
        if (value->kind == TDM_VALUE_STATE) value->ne[0] = (int64_t)page_size;
    }
    own.values = (const tdm_value *)(const void *)values;
    own.hash = 0;
    tdm_status status =
        member->acquired.plugin->device->supports_op(member->acquired.device, &own, node, err);
    free(values);
    return status;
}

/* A cache in the group's graph has pages of the owner's size (buffer_kv_page_size); the same pages
 * may have another size on another member. So may slots of recurrent states. */
static tdm_status member_supports(const meta_device *device, int32_t d, const tdm_graph *graph,
                                  int32_t node, tdm_error *err) {
    const meta_member *member = &device->members[d], *owner = &device->members[device->owner];
    const tdm_node *n = tdm_graph_node(graph, node);
    if (member != owner && tdm_op_uses_kv(n->op) && n->params.kv.kv >= 0 &&
        n->params.kv.kv < graph->n_kv) {
        tdm_kv_desc desc;
        uint64_t size = 0, owners = 0;
        tdm_struct_read(&desc, sizeof desc, tdm_graph_kv(graph, n->params.kv.kv));
        tdm_status status =
            meta_member_buffers(member)->kv_page_size(member->acquired.device, &desc, &size, err);
        if (status == TDM_OK)
            status = meta_member_buffers(owner)->kv_page_size(owner->acquired.device, &desc,
                                                              &owners, err);
        if (status != TDM_OK) return status;
        if (size != owners) return resized_supports(member, graph, node, size, err);
    }
    return member->acquired.plugin->device->supports_op(member->acquired.device, graph, node, err);
}

static tdm_status device_supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                                     tdm_error *err) {
    if (tdm_graph_node(graph, node)->op == TDM_OP_EXCHANGE)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "a group makes its own exchanges and takes none of its caller's");
    for (int32_t d = 0; d < device->n_member; d++) {
        tdm_error inner = {0};
        if (!meta_is_active(device, d)) continue;
        tdm_status status = member_supports(device, d, graph, node, &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "member '%s': %s", device->members[d].name, inner.message);
    }
    return TDM_OK;
}

/* With this slot the core puts no adapter before a group that is a member of another, so that the
 * outer group sees and claims its devices (claims.h). */
static tdm_status device_graph_supports(tdm_device *device, const tdm_graph *graph,
                                        uint8_t *supported_out, tdm_error *err) {
    (void)err;
    for (int32_t i = 0; i < graph->n_node; i++)
        supported_out[i] = device_supports_op(device, graph, i, NULL) == TDM_OK;
    return TDM_OK;
}

const tdm_device_ops meta_device_ops = {
    .struct_size = sizeof(tdm_device_ops),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .get_info = device_get_info,
    .supports_op = device_supports_op,
    .graph_supports = device_graph_supports,
    .measure_limits = meta_limits_measure,
};
