/* SPDX-License-Identifier: MIT
 *
 * partition.c: keeps the assignments of the partitions, and derives from them how weights and
 * caches are cut. partition_assign.c makes the assignments.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/op_state.h"
#include "plugins/meta/layout/partition_table.h"

tdm_status meta_partition_table_create(const tdm_host *host, struct meta_partition_table **out,
                                       tdm_error *err) {
    struct meta_partition_table *table = meta_alloc(host, sizeof *table);
    if (table == NULL) return meta_no_memory("for its partitions", err);
    table->host = host;
    *out = table;
    return TDM_OK;
}

void meta_partition_table_destroy(struct meta_partition_table *table) {
    if (table == NULL) return;
    for (meta_batch *batch = table->batches, *next; batch != NULL; batch = next) {
        next = batch->next;
        meta_free(table->host, batch, batch->size);
    }
    meta_free(table->host, table->entries, (size_t)table->cap_entry * sizeof *table->entries);
    meta_free(table->host, table->kinds, (size_t)table->cap_kind * sizeof *table->kinds);
    meta_free(table->host, table, sizeof *table);
}

static int entry_compare(const void *key, const void *element) {
    int32_t id = *(const int32_t *)key;
    const meta_entry *entry = element;
    return (id > entry->id) - (id < entry->id);
}

const meta_entry *meta_partition_entry(const struct meta_partition_table *table, int32_t id) {
    if (table->n_entry == 0) return NULL;
    return bsearch(&id, table->entries, (size_t)table->n_entry, sizeof *table->entries,
                   entry_compare);
}

tdm_status meta_partition_agrees(const meta_assignment *assigned, const tdm_partition *partition,
                                 tdm_error *err) {
    if (assigned->layer == partition->layer && assigned->n_unit == partition->n_unit &&
        assigned->n_sub == meta_partition_subs(partition))
        return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "partition %d has %d units of %d parts in layer %d here, and %d of %d in layer "
                    "%d where it was assigned; an id means one thing in a process",
                    (int)partition->id, (int)partition->n_unit, (int)meta_partition_subs(partition),
                    (int)partition->layer, (int)assigned->n_unit, (int)assigned->n_sub,
                    (int)assigned->layer);
}

static tdm_status entry_find(const meta_device *device, const tdm_partition *partition,
                             const meta_entry **out, tdm_error *err) {
    const meta_entry *entry = meta_partition_entry(device->partitions, partition->id);
    if (entry == NULL)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "partition %d of layer %d has not been assigned: call split_prepare first, "
                        "with a graph that has all weights and caches",
                        (int)partition->id, (int)partition->layer);
    tdm_status status = meta_partition_agrees(entry->assigned, partition, err);
    if (status == TDM_OK) *out = entry;
    return status;
}

tdm_status meta_partition_find(const meta_device *device, const tdm_partition *partition,
                               const meta_assignment **out, tdm_error *err) {
    const meta_entry *entry = NULL;
    tdm_status status = entry_find(device, partition, &entry, err);
    if (status == TDM_OK) *out = entry->assigned;
    return status;
}

/* The units that contain the parts assigned to member d. */
static void units_of_parts(const meta_assignment *assigned, int32_t d, int64_t *lo_out,
                           int64_t *hi_out) {
    int64_t lo = assigned->lo[d], hi = assigned->hi[d];
    *lo_out = lo < hi ? lo / assigned->n_sub : 0;
    *hi_out = lo < hi ? (hi + assigned->n_sub - 1) / assigned->n_sub : 0;
}

tdm_status meta_partition_cut(const meta_device *device, const tdm_partition *partition,
                              const int64_t ne[TDM_MAX_DIMS], int32_t axis, meta_cut *out,
                              tdm_error *err) {
    const meta_assignment *assigned = NULL;
    meta_cut cut = {.axis = axis, .n_segment = partition->n_segment, .repeat = 1};
    int64_t length = 0;
    tdm_status status = meta_partition_find(device, partition, &assigned, err);
    if (status != TDM_OK) return status;
    if (axis < 0 || axis >= TDM_MAX_DIMS || partition->n_segment < 1 ||
        partition->n_segment > TDM_MAX_SEGMENTS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "partition %d: no %d segments along axis %d",
                        (int)partition->id, (int)partition->n_segment, (int)axis);
    for (int32_t s = 0; s < cut.n_segment; s++) {
        tdm_layout_segment *segment = &cut.segments[s];
        int64_t unit_len = partition->unit_len[s];
        segment->n_unit = partition->n_unit * unit_len;
        length += segment->n_unit;
        for (int32_t d = 0; d < device->n_member; d++) {
            int64_t lo, hi;
            if (assigned->lo[d] >= assigned->hi[d]) continue;
            if ((partition->whole_segments >> s & 1) != 0) {
                units_of_parts(assigned, d, &lo, &hi);
                segment->lo[d] = lo * unit_len;
                segment->hi[d] = hi * unit_len;
                continue;
            }
            lo = assigned->lo[d] * unit_len;
            hi = assigned->hi[d] * unit_len;
            if (lo % assigned->n_sub != 0 || hi % assigned->n_sub != 0)
                return tdm_fail(err, TDM_FAILED_PRECONDITION,
                                "partition %d: units of %lld elements cannot be cut in %d, and no "
                                "such value was in the graph that split_prepare saw",
                                (int)partition->id, (long long)unit_len, (int)assigned->n_sub);
            segment->lo[d] = lo / assigned->n_sub;
            segment->hi[d] = hi / assigned->n_sub;
        }
    }
    if (length != ne[axis])
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "partition %d: %d units make %lld elements; axis %d has %lld",
                        (int)partition->id, (int)partition->n_unit, (long long)length, (int)axis,
                        (long long)ne[axis]);
    *out = cut;
    return TDM_OK;
}

tdm_status meta_partition_units(const meta_device *device, const tdm_partition *partition,
                                int64_t *lo_out, int64_t *hi_out, tdm_error *err) {
    const meta_assignment *assigned = NULL;
    tdm_status status = meta_partition_find(device, partition, &assigned, err);
    if (status != TDM_OK) return status;
    for (int32_t d = 0; d < device->n_member; d++)
        units_of_parts(assigned, d, &lo_out[d], &hi_out[d]);
    return TDM_OK;
}

const tdm_kv_desc *meta_state_desc(const tdm_graph *graph, int32_t value) {
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        if (tdm_op_uses_kv(node->op) && tdm_op_state(node) == value)
            return tdm_graph_kv(graph, node->params.kv.kv);
    }
    return NULL;
}

bool meta_state_is_recurrent(const tdm_graph *graph, int32_t value) {
    const tdm_kv_desc *desc = meta_state_desc(graph, value);
    return desc != NULL && (desc->flags & TDM_KV_RECURRENT) != 0;
}

tdm_status meta_partition_heads(const meta_device *device, const tdm_partition *partition,
                                const tdm_kv_desc *desc, int64_t *lo_out, int64_t *hi_out,
                                tdm_error *err) {
    const meta_assignment *assigned = NULL;
    const bool is_recurrent = (desc->flags & TDM_KV_RECURRENT) != 0;
    int64_t heads = 0, n_sub = 1;
    tdm_status status = meta_partition_find(device, partition, &assigned, err);
    if (status == TDM_OK) status = meta_partition_units(device, partition, lo_out, hi_out, err);
    if (status != TDM_OK) return status;
    if (is_recurrent && (partition->whole_segments & 1) == 0) n_sub = assigned->n_sub;
    if (partition->n_unit > 0) heads = desc->n_head_kv / (partition->n_unit * n_sub);
    if (heads * partition->n_unit * n_sub != desc->n_head_kv)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "a cache of %d KV heads or units is not cut into %d units",
                        (int)desc->n_head_kv, (int)partition->n_unit);
    for (int32_t d = 0; d < device->n_member; d++) {
        if (n_sub > 1) lo_out[d] = assigned->lo[d], hi_out[d] = assigned->hi[d];
        lo_out[d] *= heads;
        hi_out[d] *= heads;
    }
    return TDM_OK;
}

/* A weight whose experts (axis 2) are assigned whole. */
static tdm_status experts_cut(const meta_device *device, const tdm_tensor_desc *desc, meta_cut *out,
                              tdm_error *err) {
    const meta_entry *entry = NULL;
    tdm_status status = entry_find(device, &desc->partition, &entry, err);
    if (status != TDM_OK) return status;
    if (entry->experts == NULL || entry->experts->n_unit != desc->ne[2])
        return tdm_fail(
            err, TDM_FAILED_PRECONDITION,
            "partition %d: split_prepare saw %d experts of it, not %lld", (int)desc->partition.id,
            entry->experts != NULL ? (int)entry->experts->n_unit : 0, (long long)desc->ne[2]);
    *out = (meta_cut){.axis = 2, .n_segment = 1, .repeat = 1};
    out->segments[0].n_unit = desc->ne[2];
    memcpy(out->segments[0].lo, entry->experts->lo, sizeof entry->experts->lo);
    memcpy(out->segments[0].hi, entry->experts->hi, sizeof entry->experts->hi);
    return TDM_OK;
}

tdm_status meta_partition_layout(const meta_device *device, const tdm_tensor_desc *desc,
                                 tdm_layout *out, tdm_error *err) {
    meta_cut cut;
    tdm_status status;
    if (desc->partition.id == 0) {
        meta_layout_replicated(device->n_member, TDM_REPLICA_EXACT, out);
        return TDM_OK;
    }
    status = meta_assigns_experts(device, desc->usage)
                 ? experts_cut(device, desc, &cut, err)
                 : meta_partition_cut(device, &desc->partition, desc->ne, desc->axis, &cut, err);
    if (status == TDM_OK) meta_layout_from_cut(&cut, desc->ne, device->n_member, out);
    return status;
}
