/* SPDX-License-Identifier: MIT
 *
 * share.h: the shares with which a group opens.
 */
#ifndef TANDEM_META_SHARE_H
#define TANDEM_META_SHARE_H

#include "plugins/meta/meta.h"

/* Fills the members' shares, 0 .. 1 and together 1. They are those of the options. share = auto:
 * proportional to what the members report, without running anything: the bandwidth of their memory,
 * else their threads, else equal. [setup] */
void meta_share_fill(meta_device *device);

#endif
