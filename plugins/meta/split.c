/* SPDX-License-Identifier: MIT
 *
 * split.c: the split hooks of a group (tandem/split.h): assign partitions, declare and show
 * layouts. share/report.c makes the report of split_report.
 */
#include <string.h>

#include "plugins/meta/split.h"

#include "plugins/meta/rules/compile.h"
#include "plugins/meta/share/report.h"
#include "plugins/meta/share/solve.h"

/* For a group that is a member of another: the smallest slice that all of its members can take. */
static tdm_status split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                             int32_t axis, int64_t *unit_out, tdm_error *err) {
    if (value < 0 || value >= graph->n_value || axis < 0 || axis >= TDM_MAX_DIMS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "split_unit: no axis %d of value %d", (int)axis,
                        (int)value);
    int64_t unit = 1;
    for (int32_t d = 0; d < device->n_member; d++) {
        const tdm_plugin *plugin = device->members[d].acquired.plugin;
        int64_t own =
            axis == 0 ? tdm_type_get_info((tdm_type)tdm_graph_value(graph, value)->type).block_len
                      : 1;
        if (!meta_is_active(device, d)) continue;
        if (TDM_HAS(plugin, split) && TDM_HAS(plugin->split, split_unit)) {
            tdm_status status = plugin->split->split_unit(device->members[d].acquired.device, graph,
                                                          value, axis, &own, err);
            if (status != TDM_OK) return status;
        }
        unit = unit / meta_gcd(unit, own) * own;
    }
    *unit_out = unit;
    return TDM_OK;
}

/* Whether members can take their parts of a value as slices. Quantised blocks are not copied, so a
 * part of them must be whole rows that are contiguous. */
static bool is_sliceable(const tdm_value *v, const meta_cut *cut) {
    int64_t above = 1;
    if (tdm_type_get_info((tdm_type)v->type).block_len == 1) return true;
    for (int32_t i = cut->axis + 1; i < TDM_MAX_DIMS; i++) above *= v->ne[i];
    return cut->axis > 0 && above == 1 && cut->repeat == 1 && cut->n_segment == 1;
}

/* Reads a caller's layout, whose struct may be of another version, and normalises it. */
static tdm_status layout_read(const tdm_device *device, const tdm_graph *graph, int32_t value,
                              const tdm_layout *theirs, tdm_layout *out, tdm_error *err) {
    if (value < 0 || value >= graph->n_value ||
        tdm_graph_value(graph, value)->kind == TDM_VALUE_STATE)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "split_set: value %d is none, or a STATE",
                        (int)value);
    const char *name = tdm_graph_value_name(graph, value);
    memset(out, 0, sizeof *out);
    size_t size = theirs->struct_size;
    memcpy(out, theirs, size > 0 && size < sizeof *out ? size : sizeof *out);
    out->struct_size = sizeof *out;
    if (out->kind == TDM_LAYOUT_REPLICATED) {
        if (out->replica != TDM_REPLICA_EQUIVALENT && out->replica != TDM_REPLICA_EXACT)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "split_set: '%s': %d is no way of being replicated", name,
                            (int)out->replica);
        meta_layout_replicated(device->n_member, (tdm_replica)out->replica, out);
        return TDM_OK;
    }
    if (out->kind != TDM_LAYOUT_SPLIT)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "split_set: '%s' can be declared split or replicated; addends arise by "
                        "themselves",
                        name);
    if (out->n_member != device->n_member)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "split_set: '%s': %d members; the group has %d",
                        name, (int)out->n_member, (int)device->n_member);
    tdm_status status = meta_layout_normalize(out, err);
    meta_cut cut;
    if (status != TDM_OK) return status;
    if (!meta_layout_get_cut(out, tdm_graph_value(graph, value)->ne, &cut))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "split_set: '%s': no axis of its shape is cut like that", name);
    if (!is_sliceable(tdm_graph_value(graph, value), &cut))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "split_set: '%s' is of blocks of %s and can be cut into runs of rows only",
                        name, tdm_type_name((tdm_type)tdm_graph_value(graph, value)->type));
    for (int32_t d = 0; d < device->n_member; d++)
        if (!meta_is_active(device, d) && meta_cut_local_length(&cut, d) > 0)
            return tdm_fail(err, TDM_UNSUPPORTED,
                            "split_set: '%s': member '%s' has no share and holds nothing", name,
                            device->members[d].name);
    return TDM_OK;
}

static tdm_status split_set(tdm_device *device, const tdm_graph *graph, int32_t value,
                            const tdm_layout *layout, tdm_error *err) {
    meta_override o = {.graph = graph, .value = value}, before = {0};
    tdm_status status = layout_read(device, graph, value, layout, &o.layout, err);
    if (status != TDM_OK) return status;
    o.hash = device->host->graph->hash(graph);
    pthread_mutex_lock(&device->mutex);
    /* Drops declarations for an earlier graph at this address. */
    for (int32_t i = device->n_override - 1; i >= 0; i--)
        if (device->overrides[i].graph == graph && device->overrides[i].hash != o.hash)
            device->overrides[i] = device->overrides[--device->n_override];
    int32_t at = 0;
    while (at < device->n_override &&
           (device->overrides[at].graph != graph || device->overrides[at].value != value))
        at++;
    status = meta_grow(device->host, &device->overrides, &device->cap_override, (int64_t)at + 1,
                       sizeof o, err);
    if (status == TDM_OK) {
        if (at < device->n_override) before = device->overrides[at];
        device->overrides[at] = o;
        if (at == device->n_override) device->n_override++;
        /* Compiles the graph once, so that a layout that a rule cannot take is refused here. */
        meta_plan *plan = NULL;
        status = meta_compile(device, graph, &plan, err);
        if (status == TDM_OK) status = meta_plan_lay_out(plan, err);
        meta_plan_destroy(plan);
        if (status != TDM_OK && before.graph != NULL)
            device->overrides[at] = before;
        else if (status != TDM_OK)
            device->n_override--;
    }
    pthread_mutex_unlock(&device->mutex);
    return status;
}

static tdm_status split_get(tdm_device *device, const tdm_plan *plan, int32_t value,
                            tdm_layout *layout_out, tdm_error *err) {
    if (plan->device != device || value < 0 || value >= plan->graph->n_value)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "split_get: no value %d of a plan of the group",
                        (int)value);
    int32_t variant = plan->value_variant[value];
    if (variant < 0)
        return tdm_fail(err, TDM_NOT_FOUND, "split_get: '%s' is not used by any node, or a cache",
                        tdm_graph_value_name(plan->graph, value));
    const tdm_layout *layout = &plan->layouts.layouts[plan->variants[variant].layout];
    size_t size = layout_out->struct_size;
    if (size == 0 || size > sizeof *layout) size = sizeof *layout;
    memcpy(layout_out, layout, size);
    layout_out->struct_size = size;
    return TDM_OK;
}

/* Claims the devices as a run does: members that are measured wait for each other, too. */
static tdm_status split_prepare(tdm_device *device, const tdm_graph *graph, tdm_error *err) {
    meta_claims_lock(&device->claims);
    pthread_mutex_lock(&device->mutex);
    tdm_status status = meta_share_solve(device, graph, err);
    if (status == TDM_OK) status = meta_attention_solve(device, graph, err);
    if (status == TDM_OK) status = meta_partition_prepare(device, graph, err);
    pthread_mutex_unlock(&device->mutex);
    meta_claims_unlock(&device->claims);
    return status;
}

static tdm_status split_report(tdm_device *device, const tdm_graph *graph, tdm_split_report *report,
                               tdm_error *err) {
    tdm_split_report given;
    tdm_struct_read(&given, sizeof given, report);
    /* A brief report measures nothing. An outer group that has the claims requests it. */
    const bool is_measuring = given.is_brief == 0;
    if (is_measuring) meta_claims_lock(&device->claims);
    pthread_mutex_lock(&device->mutex);
    tdm_status status = meta_report(device, graph, report, err);
    pthread_mutex_unlock(&device->mutex);
    if (is_measuring) meta_claims_unlock(&device->claims);
    return status;
}

const tdm_split_ops meta_split_ops = {
    .struct_size = sizeof(tdm_split_ops),
    .split_unit = split_unit,
    .split_set = split_set,
    .split_get = split_get,
    .split_prepare = split_prepare,
    .split_report = split_report,
};
