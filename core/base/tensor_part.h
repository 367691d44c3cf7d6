/* SPDX-License-Identifier: MIT
 *
 * tensor_part.h: the checks of tensors and of their parts that every device makes before it
 * converts one (tensor_size, tensor_upload and tensor_download of tandem/buffer.h). The device
 * itself checks that the tensor lies inside its buffer: that depends on the device's layout.
 */
#ifndef TANDEM_BASE_TENSOR_PART_H
#define TANDEM_BASE_TENSOR_PART_H

#include "tandem/tensor.h"

/* Refuses a description that no layout could hold: TDM_UNSUPPORTED for an unknown type,
 * TDM_INVALID_ARGUMENT for a length that is negative, no whole blocks, or larger than any memory.
 * [any-thread] */
tdm_status tdm_tensor_desc_check(const tdm_tensor_desc *desc, tdm_error *err);

/* Rows row_first .. row_first+n_row-1 and columns col_first .. col_first+n_col-1 lie in a checked
 * description, the columns in whole blocks. TDM_OUT_OF_RANGE, TDM_INVALID_ARGUMENT. [any-thread] */
tdm_status tdm_tensor_part_check(const tdm_tensor_desc *desc, int64_t row_first, int64_t n_row,
                                 int64_t col_first, int64_t n_col, tdm_error *err);

#endif
