/* SPDX-License-Identifier: MIT
 *
 * partition.h: which member holds which units of a partition. Decided once for an id, in
 * split_prepare; weights, caches and graphs that name the id follow.
 *
 * Units are counted in parts: n_unit * n_sub of them (n_sub 0 is 1). Members hold runs of parts in
 * member order. How many: by the shares, where what a member was given too much or too little in one
 * layer is carried over to the next of its kind (as many units, parts and parts of a granule), so
 * that rounding does not accumulate: over any number of layers a member is less than a granule from
 * its due. Runs begin at multiples of the granule: the smallest count of parts at which every value
 * of the id can be cut on every active member (split_unit; 32 columns of a superblock of 256, which
 * superblock.h cuts). A zero share gets nothing.
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

/* Deals n_part parts out in runs of whole granules (but for the end): everybody the whole part of
 * share * n_part, the rest as meta_apportion_next does; carry[d] (in parts) receives what d is owed
 * or, below 0, has had too much, and is always less than a granule (two where n_part is not whole
 * granules). Sizes add up to n_part. Members of share 0 get nothing; where nobody has a share nobody
 * gets anything. Near ties go to the lower member. apportion.c. [any-thread] */
void meta_apportion(int64_t n_part, int64_t granule, int32_t n_member, const double *share,
                    double *carry, int64_t *lo_out, int64_t *hi_out);
/* Who gets the next of things that are assigned one by one for ever; carry[n_member], in things,
 * begins as 0 and stays above -1 and below 1. -1 where nobody has a share. [any-thread] */
int32_t meta_apportion_next(int32_t n_member, const double *share, double *carry);

tdm_status meta_partition_table_create(const tdm_host *host, struct meta_partition_table **out,
                                       tdm_error *err);
void meta_partition_table_destroy(struct meta_partition_table *table);
/* Deals out every partition of the graph whose id is new (split.h: split_prepare); all or, where it
 * fails, none. An id known with other numbers is TDM_INVALID_ARGUMENT. With options.split == LAYER
 * each layer's partitions go whole to one member, layers in runs according to the shares, and those
 * of no layer to the member with the last one. With attention == HEADS the partitions that a STATE
 * names are cut at whole units; all others at parts where there are fewer units than active
 * members. partition_assign.c. Under device->mutex. */
tdm_status meta_partition_prepare(meta_device *device, const tdm_graph *graph, tdm_error *err);
/* What was assigned for an id, valid while the table is; TDM_FAILED_PRECONDITION where
 * split_prepare has not seen it, TDM_INVALID_ARGUMENT where it has seen it with other numbers.
 * [any-thread], as all that follow, but not during meta_partition_prepare */
tdm_status meta_partition_find(const meta_device *device, const tdm_partition *partition,
                               const meta_assignment **out, tdm_error *err);

/* The cut of a value of shape ne along `axis` by its partition: segments of unit_len[s] elements a
 * unit, whole units where is_whole. TDM_FAILED_PRECONDITION for an unknown id. */
tdm_status meta_partition_cut(const meta_device *device, const tdm_partition *partition,
                              const int64_t ne[TDM_MAX_DIMS], int32_t axis, meta_cut *out,
                              tdm_error *err);
/* The units (KV heads of a cache) that each member holds a part of. */
tdm_status meta_partition_units(const meta_device *device, const tdm_partition *partition,
                                int64_t *lo_out, int64_t *hi_out, tdm_error *err);
/* The layout of a weight's description: by its partition, whole experts where the group is told so
 * (USAGE_EXPERT: the experts of axis 2 assigned by the shares, all weights of the id alike),
 * replicated and exact where it has none. */
tdm_status meta_partition_layout(const meta_device *device, const tdm_tensor_desc *desc,
                                 tdm_layout *out, tdm_error *err);

/* Which member holds page `page` of a cache cut by sequence, and as which of its own pages: assigned
 * out one by one by the shares, the same for every number of pages. page_table_out[n_page]. */
typedef struct meta_page {
    int32_t owner; /* member */
    int32_t local; /* its page */
} meta_page;
void meta_pages_assign(const meta_device *device, int64_t n_page, meta_page *page_table_out,
                       int64_t *n_local_out /* [n_member] */);

#endif
