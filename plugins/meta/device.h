/* SPDX-License-Identifier: MIT
 *
 * device.h: the instance of the plugin, and its functions that open and describe groups.
 */
#ifndef TANDEM_META_DEVICE_H
#define TANDEM_META_DEVICE_H

#include "plugins/meta/meta.h"

struct tdm_instance {
    const tdm_host *host;
    meta_registry registry; /* of the devices that are members of groups */
};

extern const tdm_device_ops meta_device_ops;

#endif
