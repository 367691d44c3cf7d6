/* SPDX-License-Identifier: MIT
 *
 * partition_assign.c: assigns the partitions of a graph. It first finds the granule of each new id
 * from the values that name it. Then it assigns layer after layer, so that each layer makes up for
 * the rounding of the one before. The table is changed only after the last step that can fail.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/meta/layout/partition_table.h"
#include "plugins/meta/layout/superblock.h"

/* An id that is not in the table yet. */
typedef struct draft {
    tdm_partition partition; /* the first of the graph with this id */
    int64_t n_part, granule;
    int64_t n_expert; /* 0 = experts are not assigned whole */
    bool is_cache;    /* the STATE of a cache names it */
    bool cuts_units;  /* members may get parts of a unit, else whole units only */
} draft;

/* All new ids of a call, sorted. */
typedef struct drafts {
    const tdm_host *host;
    draft *all;
    int32_t n, capacity;
} drafts;

/* The least common multiple, or `most` where that is less. */
static int64_t lcm_below(int64_t a, int64_t b, int64_t most) {
    int64_t product;
    if (__builtin_mul_overflow(a / meta_gcd(a, b), b, &product) || product > most) return most;
    return product;
}

static int draft_compare_id(const void *a, const void *b) {
    int32_t x = ((const draft *)a)->partition.id, y = ((const draft *)b)->partition.id;
    return (x > y) - (x < y);
}

static int draft_compare_layer(const void *a, const void *b) {
    int32_t x = ((const draft *)a)->partition.layer, y = ((const draft *)b)->partition.layer;
    return x != y ? (x > y) - (x < y) : draft_compare_id(a, b);
}

static draft *draft_find(const drafts *d, int32_t id) {
    draft key = {.partition.id = id};
    return d->n > 0 ? bsearch(&key, d->all, (size_t)d->n, sizeof key, draft_compare_id) : NULL;
}

static tdm_status partition_check(const tdm_partition *p, tdm_error *err) {
    bool is_sound =
        p->id > 0 && p->n_unit >= 1 && p->n_segment >= 1 && p->n_segment <= TDM_MAX_SEGMENTS;
    for (int32_t s = 0; is_sound && s < p->n_segment; s++) is_sound = p->unit_len[s] >= 1;
    if (is_sound) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "partition %d: %d units in %d segments cannot be assigned", (int)p->id,
                    (int)p->n_unit, (int)p->n_segment);
}

/* Collects every new id once, in ascending order. */
static tdm_status drafts_collect(const meta_device *device, const tdm_graph *graph, drafts *d,
                                 tdm_error *err) {
    int32_t n = 0;
    tdm_status status =
        meta_grow(d->host, &d->all, &d->capacity, graph->n_partition, sizeof *d->all, err);
    for (int32_t i = 1; status == TDM_OK && i < graph->n_partition; i++) {
        const tdm_partition *p = tdm_graph_partition(graph, i);
        const meta_entry *known = meta_partition_entry(device->partitions, p->id);
        status = partition_check(p, err);
        if (status == TDM_OK && known != NULL)
            status = meta_partition_agrees(known->assigned, p, err);
        if (known == NULL) d->all[d->n++] = (draft){.partition = *p};
    }
    if (status != TDM_OK || d->n == 0) return status;
    qsort(d->all, (size_t)d->n, sizeof *d->all, draft_compare_id);
    for (int32_t i = 0; i < d->n; i++) {
        const tdm_partition *p = &d->all[i].partition, *last = &d->all[n > 0 ? n - 1 : 0].partition;
        if (n > 0 && last->id == p->id) {
            const meta_assignment first = {.id = last->id,
                                           .layer = last->layer,
                                           .n_unit = last->n_unit,
                                           .n_sub = meta_partition_subs(last)};
            status = meta_partition_agrees(&first, p, err);
            if (status != TDM_OK) return status;
            continue;
        }
        d->all[n++] = d->all[i];
    }
    d->n = n;
    return TDM_OK;
}

/* The number of elements of which every cut of the value must be a multiple, for all members. */
static tdm_status unit_find(const meta_device *device, const tdm_graph *graph, int32_t index,
                            int64_t *unit_out, tdm_error *err) {
    const tdm_value *value = tdm_graph_value(graph, index);
    int32_t block_len = value->axis == 0 ? tdm_type_get_info((tdm_type)value->type).block_len : 1;
    /* Superblocks are cut between sub-blocks where the type allows it (superblock.h), whatever unit
     * the device's kernels need. Superblocks of experts are not: what they multiply is inside the
     * op and cannot be padded. */
    *unit_out = block_len;
    if (value->axis == 0 && meta_superblock_is_cuttable((tdm_type)value->type) &&
        (value->usage & TDM_USAGE_EXPERT) == 0) {
        *unit_out = META_SUPERBLOCK_UNIT;
        return TDM_OK;
    }
    for (int32_t d = 0; d < device->n_member; d++) {
        const tdm_acquired_device *acquired = &device->members[d].acquired;
        int64_t unit = 1;
        if (!meta_is_active(device, d) || !TDM_HAS(acquired->plugin->split, split_unit)) continue;
        tdm_status status = acquired->plugin->split->split_unit(acquired->device, graph, index,
                                                                value->axis, &unit, err);
        if (status != TDM_OK)
            return tdm_fail(err, status, "member '%s', '%s': %.300s", device->members[d].name,
                            tdm_graph_value_name(graph, index), err != NULL ? err->message : "");
        if (unit > 1) *unit_out = lcm_below(*unit_out, unit, INT64_MAX);
    }
    return TDM_OK;
}

/* Makes the granule coarse enough for one value. A cut after q parts is q * unit_len / n_sub
 * elements into a segment. A segment that keeps units whole is cut at the ends of the unit in which
 * the cut falls, so only these ends must be allowed in it. */
static tdm_status draft_add_value(const meta_device *device, const tdm_graph *graph, int32_t index,
                                  draft *d, tdm_error *err) {
    const tdm_value *value = tdm_graph_value(graph, index);
    const tdm_partition *p = tdm_graph_partition(graph, value->partition);
    int64_t begin = 0, unit, n_sub = meta_partition_subs(p), fine;
    tdm_status status;
    if (meta_assigns_experts(device, value->usage)) {
        if (value->ne[2] > INT32_MAX || (d->n_expert != 0 && d->n_expert != value->ne[2]))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "'%s' has %lld experts; the others of partition %d have %lld",
                            tdm_graph_value_name(graph, index), (long long)value->ne[2], (int)p->id,
                            (long long)d->n_expert);
        d->n_expert = value->ne[2];
        return TDM_OK;
    }
    status = unit_find(device, graph, index, &unit, err);
    if (status != TDM_OK) return status;
    /* A superblock is cut only where a member's columns are contiguous, that is, in a partition of
         * one segment. */
    if (p->n_segment > 1 && value->axis == 0)
        unit = lcm_below(unit, tdm_type_get_info((tdm_type)value->type).block_len, INT64_MAX);
    /* A cut must be a multiple of so many elements; times n_sub, to stay in whole numbers. */
    if (__builtin_mul_overflow(unit, n_sub, &fine)) fine = INT64_MAX;
    for (int32_t s = 0; s < p->n_segment; s++) {
        int64_t parts = fine / meta_gcd(fine, p->unit_len[s]);
        if ((p->whole_segments >> s & 1) != 0 && d->cuts_units)
            parts = p->unit_len[s] % unit == 0 ? 1 : unit / meta_gcd(unit, p->unit_len[s]) * n_sub;
        if (begin % unit != 0) parts = d->n_part;
        d->granule = lcm_below(d->granule, parts, d->n_part);
        begin += (int64_t)p->n_unit * p->unit_len[s];
    }
    return TDM_OK;
}

/* Finds the granules of all new ids. */
static tdm_status drafts_measure(const meta_device *device, const tdm_graph *graph, drafts *d,
                                 tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *value = tdm_graph_value(graph, i);
        if (value->partition == 0 || value->kind != TDM_VALUE_STATE) continue;
        draft *one = draft_find(d, tdm_graph_partition(graph, value->partition)->id);
        if (one != NULL && !meta_state_is_recurrent(graph, i)) one->is_cache = true;
    }
    for (int32_t i = 0; i < d->n; i++) {
        draft *one = &d->all[i];
        int32_t n_sub = meta_partition_subs(&one->partition);
        bool is_kept = device->attention == META_ATTENTION_HEADS && one->is_cache;
        one->cuts_units = n_sub > 1 && !is_kept && one->partition.n_unit < device->n_active;
        one->n_part = (int64_t)one->partition.n_unit * n_sub;
        one->granule = one->cuts_units ? 1 : n_sub;
    }
    for (int32_t i = 0; i < graph->n_value && status == TDM_OK; i++) {
        const tdm_value *value = tdm_graph_value(graph, i);
        if (value->partition == 0 || value->kind == TDM_VALUE_STATE) continue;
        draft *one = draft_find(d, tdm_graph_partition(graph, value->partition)->id);
        if (one != NULL) status = draft_add_value(device, graph, i, one, err);
    }
    return status;
}

/* The state of an assignment. */
typedef struct assign_state {
    const meta_device *device;
    struct meta_partition_table *table;
    double share[TDM_MAX_MEMBERS];
    int32_t *layers; /* split = layer: the layers of the graph, ascending, each once */
    int32_t n_layer;
    int64_t layer_lo[TDM_MAX_MEMBERS], layer_hi[TDM_MAX_MEMBERS]; /* indices into layers */
} assign_state;

static int layer_compare(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Collects the layers and assigns them to members. `layers` has room for n_partition. */
static void layers_assign(const tdm_graph *graph, assign_state *to) {
    double carry[TDM_MAX_MEMBERS] = {0};
    int32_t n = 0;
    for (int32_t i = 1; i < graph->n_partition; i++) {
        int32_t layer = tdm_graph_partition(graph, i)->layer;
        if (layer >= 0) to->layers[n++] = layer;
    }
    qsort(to->layers, (size_t)n, sizeof *to->layers, layer_compare);
    for (int32_t i = 0; i < n; i++)
        if (to->n_layer == 0 || to->layers[to->n_layer - 1] != to->layers[i])
            to->layers[to->n_layer++] = to->layers[i];
    meta_apportion(to->n_layer, 1, to->device->n_member, to->share, carry, to->layer_lo,
                   to->layer_hi);
}

/* The member of a layer. Partitions without a layer belong to the member of the last one. */
static int32_t layer_owner(const assign_state *to, int32_t layer) {
    int32_t last = to->device->owner;
    const int32_t *at = to->n_layer == 0 ? NULL
                                         : bsearch(&layer, to->layers, (size_t)to->n_layer,
                                                   sizeof *to->layers, layer_compare);
    for (int32_t d = 0; d < to->device->n_member; d++) {
        if (to->n_layer == 0 ? meta_is_active(to->device, d) : to->layer_lo[d] < to->layer_hi[d])
            last = d;
        if (at == NULL) continue;
        int64_t index = at - to->layers;
        if (to->layer_lo[d] <= index && index < to->layer_hi[d]) return d;
    }
    return last;
}

/* The entry of a kind; added if it is new. There is room for it. */
static meta_kind *kind_find(struct meta_partition_table *table, const meta_kind *like) {
    for (int32_t i = 0; i < table->n_kind; i++) {
        meta_kind *kind = &table->kinds[i];
        if (kind->n_unit == like->n_unit && kind->n_sub == like->n_sub &&
            kind->is_expert == like->is_expert && kind->granule == like->granule)
            return kind;
    }
    table->kinds[table->n_kind] = *like;
    return &table->kinds[table->n_kind++];
}

static void assign(assign_state *to, const draft *one, bool is_expert, meta_assignment *out) {
    const meta_device *device = to->device;
    meta_kind like = {.n_unit = is_expert ? (int32_t)one->n_expert : one->partition.n_unit,
                      .n_sub = is_expert ? 1 : meta_partition_subs(&one->partition),
                      .is_expert = is_expert,
                      .granule = is_expert ? 1 : one->granule};
    int64_t n_part = (int64_t)like.n_unit * like.n_sub;
    *out = (meta_assignment){.id = one->partition.id,
                             .layer = one->partition.layer,
                             .n_unit = like.n_unit,
                             .n_sub = like.n_sub,
                             .granule = like.granule};
    if (device->options.split == META_SPLIT_LAYER) {
        out->granule = n_part;
        out->hi[layer_owner(to, one->partition.layer)] = n_part;
        return;
    }
    meta_kind *kind = kind_find(to->table, &like);
    meta_apportion(n_part, like.granule, device->n_member, to->share, kind->carry, out->lo,
                   out->hi);
}

/* Allocates room for everything, so that the assignment cannot fail. */
static tdm_status room_make(struct meta_partition_table *table, const drafts *d,
                            meta_batch **batch_out, tdm_error *err) {
    int32_t n_assigned = d->n;
    size_t size;
    for (int32_t i = 0; i < d->n; i++)
        if (d->all[i].n_expert != 0) n_assigned++;
    tdm_status status = meta_grow(table->host, &table->entries, &table->cap_entry,
                                  (int64_t)table->n_entry + d->n, sizeof *table->entries, err);
    if (status == TDM_OK)
        status = meta_grow(table->host, &table->kinds, &table->cap_kind,
                           (int64_t)table->n_kind + n_assigned, sizeof *table->kinds, err);
    if (status != TDM_OK) return status;
    size = sizeof **batch_out + (size_t)n_assigned * sizeof(meta_assignment);
    *batch_out = meta_alloc(table->host, size);
    if (*batch_out == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no memory for %d partitions",
                        (int)d->n);
    (*batch_out)->size = size;
    return TDM_OK;
}

static int entry_compare(const void *a, const void *b) {
    int32_t x = ((const meta_entry *)a)->id, y = ((const meta_entry *)b)->id;
    return (x > y) - (x < y);
}

static tdm_status drafts_assign(meta_device *device, const tdm_graph *graph, drafts *d,
                                tdm_error *err) {
    struct meta_partition_table *table = device->partitions;
    assign_state to = {.device = device, .table = table};
    size_t layers_size = (size_t)graph->n_partition * sizeof *to.layers;
    meta_batch *batch = NULL;
    tdm_status status = room_make(table, d, &batch, err);
    if (status == TDM_OK && (to.layers = meta_alloc(device->host, layers_size)) == NULL)
        status = meta_no_memory("for a list of layers", err);
    if (status != TDM_OK) {
        if (batch != NULL) meta_free(device->host, batch, batch->size);
        return status;
    }
    for (int32_t k = 0; k < device->n_member; k++) to.share[k] = device->members[k].share;
    layers_assign(graph, &to);
    qsort(d->all, (size_t)d->n, sizeof *d->all, draft_compare_layer);
    meta_assignment *next = batch->assigned;
    for (int32_t i = 0; i < d->n; i++) {
        const draft *one = &d->all[i];
        meta_entry entry = {.id = one->partition.id, .assigned = next};
        assign(&to, one, false, next++);
        if (one->n_expert != 0) {
            entry.experts = next;
            assign(&to, one, true, next++);
        }
        table->entries[table->n_entry++] = entry;
    }
    qsort(table->entries, (size_t)table->n_entry, sizeof *table->entries, entry_compare);
    batch->next = table->batches;
    table->batches = batch;
    meta_free(device->host, to.layers, layers_size);
    return TDM_OK;
}

tdm_status meta_partition_prepare(meta_device *device, const tdm_graph *graph, tdm_error *err) {
    drafts d = {.host = device->host};
    tdm_status status = drafts_collect(device, graph, &d, err);
    if (status == TDM_OK && d.n > 0) status = drafts_measure(device, graph, &d, err);
    if (status == TDM_OK && d.n > 0) status = drafts_assign(device, graph, &d, err);
    meta_free(d.host, d.all, (size_t)d.capacity * sizeof *d.all);
    return status;
}
