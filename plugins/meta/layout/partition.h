/* SPDX-License-Identifier: MIT
 *
 * partition.h: which member holds which units of a partition. That is decided once per id, in
 * split_prepare, and holds for all weights, caches and graphs that name the id.
 *
 * A partition has n_unit * n_sub parts (n_sub 0 counts as 1). Each member holds a run of
 * consecutive parts, in member order. The lengths follow from the shares. What rounding gives a
 * member too much or too little in one layer is carried over to the next partition of the same kind
 * (equal n_unit, n_sub and granule). So rounding does not accumulate: over any number of layers a
 * member is less than a granule away from its due.
 *
 * Runs begin at multiples of the granule. It is the smallest number of parts at which every value
 * of the id can be cut on every active member (split_unit; superblocks of 256 are cut at multiples
 * of 32 columns, see superblock.h). A member with share 0 gets nothing.
 */
#ifndef TANDEM_META_PARTITION_H
#define TANDEM_META_PARTITION_H

#include "plugins/meta/layout/layout.h"
#include "plugins/meta/meta.h"

typedef struct meta_assignment {
    int32_t id, layer, n_unit, n_sub;                 /* as in tdm_partition; n_sub >= 1 */
    int64_t granule;                                  /* parts */
    int64_t lo[TDM_MAX_MEMBERS], hi[TDM_MAX_MEMBERS]; /* parts; empty = 0, 0 */
} meta_assignment;

/* Divides n_part parts into a run of whole granules for each member; the last run may end inside a
 * granule. Each member gets the integer part of share * n_part, and the rest is assigned as by
 * meta_apportion_next. carry[d], in and out, has the parts that member d is owed from earlier calls
 * (below 0: it had too many); it begins as 0. Its magnitude stays below one granule, or two where
 * n_part is not a multiple of the granule. The sizes add up to n_part. Members with share 0 get
 * nothing; if all shares are 0, nothing is assigned. Near ties go to the lower member. apportion.c.
 * [any-thread] */
void meta_apportion(int64_t n_part, int64_t granule, int32_t n_member, const double *share,
                    double *carry, int64_t *lo_out, int64_t *hi_out);
/* The member that gets the next item of an endless sequence. carry[n_member], in items, begins as 0
 * and stays above -1 and below 1. -1 where all shares are 0. [any-thread] */
int32_t meta_apportion_next(int32_t n_member, const double *share, double *carry);

tdm_status meta_partition_table_create(const tdm_host *host, struct meta_partition_table **out,
                                       tdm_error *err);
void meta_partition_table_destroy(struct meta_partition_table *table);
/* Assigns every partition of the graph whose id is new (split.h: split_prepare). After a failure
 * none is assigned. TDM_INVALID_ARGUMENT where an id is known with other numbers.
 *
 * With options.split == LAYER all partitions of a layer go to one member, in runs of layers
 * according to the shares; partitions without a layer go to the member with the last layer. With
 * attention == HEADS the partitions that a STATE names are cut between units only. All others are
 * cut between parts where they have fewer units than there are active members. partition_assign.c.
 * Under device->mutex. */
tdm_status meta_partition_prepare(meta_device *device, const tdm_graph *graph, tdm_error *err);
/* The assignment of an id, valid as long as the table. TDM_FAILED_PRECONDITION where the id was in
 * no graph of split_prepare, TDM_INVALID_ARGUMENT where it was assigned with other numbers.
 * [any-thread] like the functions below, but not during meta_partition_prepare */
tdm_status meta_partition_find(const meta_device *device, const tdm_partition *partition,
                               const meta_assignment **out, tdm_error *err);

/* The cut of a value of shape ne along `axis` by its partition, with unit_len[s] elements per unit
 * of segment s. Units stay whole where is_whole. TDM_FAILED_PRECONDITION for an unknown id. */
tdm_status meta_partition_cut(const meta_device *device, const tdm_partition *partition,
                              const int64_t ne[TDM_MAX_DIMS], int32_t axis, meta_cut *out,
                              tdm_error *err);
/* The units (KV heads of a cache) that each member holds a part of. */
tdm_status meta_partition_units(const meta_device *device, const tdm_partition *partition,
                                int64_t *lo_out, int64_t *hi_out, tdm_error *err);
/* The description of a STATE of the graph, a cache or recurrent states: every node that uses it has
 * the same. NULL where no cache op uses it, such as for the arena of an EXCHANGE. */
const tdm_kv_desc *meta_state_desc(const tdm_graph *graph, int32_t value);
/* Whether a STATE of the graph has slots of recurrent states. */
bool meta_state_is_recurrent(const tdm_graph *graph, int32_t value);
/* The KV heads of a cache, or the units of a recurrent state, that each member holds:
 * lo_out[n_member], hi_out[n_member]; 0, 0 = none. A unit of the partition is one or several of
 * them. A cache is cut between units of the partition: a member that has parts of a unit holds all
 * its heads. A recurrent state is cut between parts, unless bit 0 of whole_segments is set.
 * TDM_UNSUPPORTED where their number is not a multiple of the partition's. */
tdm_status meta_partition_heads(const meta_device *device, const tdm_partition *partition,
                                const tdm_kv_desc *desc, int64_t *lo_out, int64_t *hi_out,
                                tdm_error *err);
/* The layout of a weight. With a partition it is cut by that. With options.experts == WHOLE and
 * USAGE_EXPERT the experts (axis 2) are assigned by the shares, in the same way for all weights of
 * the id. Without a partition it is replicated and exact. */
tdm_status meta_partition_layout(const meta_device *device, const tdm_tensor_desc *desc,
                                 tdm_layout *out, tdm_error *err);

/* The holder of a page of a cache that is cut by sequence, and the page's number there. Pages are
 * assigned one at a time by the shares, so the holder of a page does not depend on n_page.
 * page_table_out[n_page]; n_local_out: the pages of each member. */
typedef struct meta_page {
    int32_t owner; /* member */
    int32_t local; /* number of the page on this member */
} meta_page;
void meta_pages_assign(const meta_device *device, int64_t n_page, meta_page *page_table_out,
                       int64_t *n_local_out /* [n_member] */);

#endif
