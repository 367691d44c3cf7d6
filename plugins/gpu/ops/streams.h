/* SPDX-License-Identifier: MIT
 *
 * streams.h: fusions of parallel residual streams, x [n_embd, n_stream, n_tok] (llm/block/hyper.c):
 *   read    sum over i of c[i] * x[i], and perhaps its norm
 *   write x[i] + f[i] * y, or the sum over j of c[j, i] * x[j] (a mix) + f[i] * y, and perhaps the
 *           norm of the result: of each stream, with or without weights, or of all streams of a
 *           token as one row
 */
#ifndef TANDEM_GPU_STREAMS_H
#define TANDEM_GPU_STREAMS_H

#include "plugins/gpu/plan/fuse.h"

/* Rows of the table of fusions. `norm`: followed by RMS_NORM of the result; `mul`: and by MUL of
 * the norm by rows of weights. */
bool gpu_streams_read_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_read_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_write_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_write_norm_match(const gpu_uses *uses, int32_t node, gpu_fused *out);
bool gpu_streams_write_norm_mul_match(const gpu_uses *uses, int32_t node, gpu_fused *out);

tdm_status gpu_fused_streams_read(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_streams_write(gpu_emit *nodes, tdm_error *err);

#endif
