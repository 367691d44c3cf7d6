/* SPDX-License-Identifier: MIT
 *
 * device.h: an instance of the plugin, and the tables of device.c: devices, and where a group may
 * cut their tensors.
 */
#ifndef TANDEM_CPU_DEVICE_H
#define TANDEM_CPU_DEVICE_H

#include "plugins/cpu/cpu.h"

enum { CPU_MAX_THREADS = 1024 };

struct tdm_instance {
    const tdm_host *host;
};

extern const tdm_device_ops cpu_device_ops;
extern const tdm_split_ops cpu_split_ops;

#endif
