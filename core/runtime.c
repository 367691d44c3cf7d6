/* SPDX-License-Identifier: MIT
 *
 * runtime.c: see runtime.h. core/stages includes core/device and not the other way round; this file
 * passes the functions of core/stages to core/device.
 */
#include "core/runtime.h"

#include "core/device/runtime_internal.h"
#include "core/stages/adapter.h"

static const tdm_adapter_ops adapters = {
    .acquire = tdm_adapter_acquire,
    .release = tdm_adapter_release,
    .end = tdm_adapter_end,
};

tdm_status tdm_runtime_create(const tdm_runtime_params *params, tdm_runtime **runtime_out,
                              tdm_error *err) {
    return tdm_runtime_create_with(params, &adapters, runtime_out, err);
}
