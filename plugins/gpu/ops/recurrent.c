/* SPDX-License-Identifier: MIT
 *
 * recurrent.c: CONV1D and LINEAR_SCAN. There are no kernels for them: the core runs them on the
 * CPU, which then keeps their states.
 */
#include "plugins/gpu/ops/ops.h"

tdm_status gpu_op_conv1d(gpu_emit *e, tdm_error *err) {
    return gpu_refuse(e, err, "there is no kernel for convolutions with a state");
}

tdm_status gpu_op_linear_scan(gpu_emit *e, tdm_error *err) {
    return gpu_refuse(e, err, "there is no kernel for recurrent scans");
}
