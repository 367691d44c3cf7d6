/* SPDX-License-Identifier: MIT
 *
 * streams.h: fusions of parallel residual streams, x [n_embd, n_stream, n_tok] (llm/block/hyper.c):
 *   read    the sum of c[i] * x[i], and its norm
 *   write   x[i], or the sum over j of c[j, i] * x[j]; plus f[i] * y; and the norm of the result,
 *           of each stream with weights, or of all streams of a token as one row
 */
#ifndef TANDEM_GPU_STREAMS_H
#define TANDEM_GPU_STREAMS_H

#include "plugins/gpu/plan/fuse.h"

/* Rows of the table of fusions. With `norm` RMS_NORM of the result, with `mul` MUL of that by rows
 * of weights. */
bool gpu_streams_read_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_read_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_write_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_write_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_write_norm_mul_match(const gpu_uses *uses, int32_t node, gpu_fused *out);

tdm_status gpu_fused_streams_read(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_streams_write(gpu_emit *nodes, tdm_error *err);

#endif
