/* SPDX-License-Identifier: MIT
 *
 * kv_check.h: the check of a cache's description that every device makes before it arranges pages.
 * A device arranges pages itself, and refuses what else it cannot hold.
 */
#ifndef TANDEM_BASE_KV_CHECK_H
#define TANDEM_BASE_KV_CHECK_H

#include "tandem/kv.h"

/* Most KV heads of a cache, and most tokens of a page. */
enum { TDM_KV_MAX_HEADS = 1 << 16, TDM_KV_MAX_PAGE_LEN = 1024 };

/* The types in which a cache can keep K and V (TDM_KV_TYPE_LIST), for messages: "f32, f16, ...".
 * Static. [any-thread] */
const char *tdm_kv_type_names(void);

/* TDM_UNSUPPORTED, with what would work, for a description that contradicts tandem/kv.h or has
 * heads of more than max_head_dim elements. [any-thread] */
tdm_status tdm_kv_page_check(const tdm_kv_desc *desc, int32_t max_head_dim, tdm_error *err);

#endif
