/* SPDX-License-Identifier: MIT
 *
 * weight.c: the layout of weights: canonical bytes, for now.
 */
#include "plugins/gpu/layout/weight.h"

tdm_status gpu_weight_size(tdm_type type, const int64_t ne[TDM_MAX_DIMS], uint32_t usage,
                           uint64_t *size_out, tdm_error *err) {
    (void)usage;
    (void)err;
    *size_out = tdm_tensor_canonical_size(type, ne);
    return TDM_OK;
}
