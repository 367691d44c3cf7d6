/* SPDX-License-Identifier: MIT
 *
 * runtime.h: creates a runtime. It joins core/device, which loads plugins and opens devices, with
 * core/stages, which completes the devices that plugins acquire. What a runtime does is in
 * core/device/runtime.h.
 */
#ifndef TANDEM_CORE_RUNTIME_CREATE_H
#define TANDEM_CORE_RUNTIME_CREATE_H

#include "core/device/runtime.h"

/* Creates an empty runtime; loads nothing yet. Released with tdm_runtime_destroy. [setup] */
tdm_status tdm_runtime_create(const tdm_runtime_params *params, tdm_runtime **runtime_out,
                              tdm_error *err);

#endif
