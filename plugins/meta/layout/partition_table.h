/* SPDX-License-Identifier: MIT
 *
 * partition_table.h: the assignments by id. partition.c keeps and reads the table,
 * partition_assign.c fills it; other files use partition.h.
 */
#ifndef TANDEM_META_PARTITION_TABLE_H
#define TANDEM_META_PARTITION_TABLE_H

#include "plugins/meta/layout/partition.h"

typedef struct meta_entry {
    int32_t id;
    const meta_assignment *assigned;
    /* Of its expert weights where experts are assigned whole: a unit is an expert. NULL = none. */
    const meta_assignment *experts;
} meta_entry;

/* The kind of a partition. Rounding is carried over between partitions of one kind. */
typedef struct meta_kind {
    int32_t n_unit, n_sub;
    bool is_expert;
    int64_t granule;
    double carry[TDM_MAX_MEMBERS]; /* parts that a member is owed; below 0: it had too many */
} meta_kind;

/* The assignments of one call of meta_partition_prepare. They do not move while the table
 * exists. */
typedef struct meta_batch {
    struct meta_batch *next;
    size_t size; /* bytes */
    meta_assignment assigned[];
} meta_batch;

struct meta_partition_table {
    const tdm_host *host;
    meta_batch *batches;
    meta_entry *entries; /* by id, ascending */
    int32_t n_entry, cap_entry;
    meta_kind *kinds;
    int32_t n_kind, cap_kind;
};

/* The entry of an id; NULL where it has not been assigned. */
const meta_entry *meta_partition_entry(const struct meta_partition_table *table, int32_t id);
/* TDM_INVALID_ARGUMENT where an id is used with other numbers than those it was assigned with. */
tdm_status meta_partition_agrees(const meta_assignment *assigned, const tdm_partition *partition,
                                 tdm_error *err);

static inline int32_t meta_partition_subs(const tdm_partition *partition) {
    return partition->n_sub > 1 ? partition->n_sub : 1;
}

/* True for weights whose experts are assigned whole. */
static inline bool meta_assigns_experts(const meta_device *device, uint32_t usage) {
    return (usage & TDM_USAGE_EXPERT) != 0 && device->options.experts == META_EXPERTS_WHOLE &&
           device->options.split != META_SPLIT_LAYER;
}

#endif
