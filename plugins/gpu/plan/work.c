/* SPDX-License-Identifier: MIT
 *
 * work.c: see work.h. The words of kernels are described in kernel.h.
 */
#include "plugins/gpu/plan/work.h"

enum { FEW = 8 /* tokens up to which memory decides, not arithmetic */ };

/* Rows times columns times k. Sorted tiles have up to spec 3 columns each. */
static double product_ops(const gpu_step *step) {
    double columns = step->word[2];
    if (step->spec[4] == GPU_PRODUCT_SORTED) columns *= step->spec[3];
    double matrices = step->spec[4] == GPU_PRODUCT_PLAIN && step->word[16] > 0 ? step->word[16] : 1;
    return (double)step->word[0] * step->word[1] * columns * matrices;
}

/* Each query head of each token meets every element of its KV head: about a byte each. */
static double attention_ops(const gpu_step *step) {
    double tokens = step->word[7], heads = step->word[8], kv_heads = step->word[19] & 0x1ffff;
    if (kv_heads < 1) kv_heads = 1;
    return tokens * heads / kv_heads * (double)step->operand[2].size;
}

/* Each sequence reads a slot and writes one. Each token multiplies each element of the matrices three
 * times. */
static gpu_work scan_work(const gpu_step *step, double bytes) {
    const double matrices = (double)step->word[2] * step->word[3] * step->spec[0];
    gpu_work work = {.bytes = bytes - (double)step->operand[5].size, .is_upper = true};
    work.bytes += 2.0 * step->word[1] * step->word[7];
    if (step->word[0] > FEW) work.ops = 3 * matrices * step->word[0];
    return work;
}

gpu_work gpu_step_work(const gpu_step *step) {
    gpu_work work = {0};
    for (int i = 0; i < GPU_MAX_OPERAND; i++) work.bytes += (double)step->operand[i].size;
    switch (step->kernel) {
    case GPU_KERNEL_PRODUCT_ROW:
    case GPU_KERNEL_PRODUCT_LANE:
    case GPU_KERNEL_PRODUCT_TILE:
    case GPU_KERNEL_PRODUCT_ROW_DOT:
    case GPU_KERNEL_PRODUCT_TILE_DOT:
    case GPU_KERNEL_PRODUCT_TILE_MATRIX:
    case GPU_KERNEL_PRODUCT_TILE_HALF:
    case GPU_KERNEL_PRODUCT_TILE_BLOCK:
        if (step->weight_size != 0)
            work.bytes += (double)step->weight_size - (double)step->operand[1].size;
        if (step->word[2] > FEW) work.ops = product_ops(step);
        break;
    case GPU_KERNEL_ATTENTION_PART:
    case GPU_KERNEL_ATTENTION_LANE:
    case GPU_KERNEL_ATTENTION_TILE:
    case GPU_KERNEL_ATTENTION_TILE_MATRIX:
    case GPU_KERNEL_ATTENTION_TILE_HALF:
    case GPU_KERNEL_ATTENTION_LATENT_MATRIX:
        if (step->word[7] > FEW) work.ops = attention_ops(step);
        work.is_upper = true;
        break;
    case GPU_KERNEL_SELECT_SCORE: /* its words are not those of the kernels above */
        if (step->word[10] > FEW)
            work.ops = (double)step->word[10] * step->word[8] * (double)step->operand[2].size;
        work.is_upper = true;
        break;
    case GPU_KERNEL_LINEAR_SCAN: return scan_work(step, work.bytes);
    case GPU_KERNEL_CONV1D:
    case GPU_KERNEL_BLOCK_POOL:
    case GPU_KERNEL_KV_WRITE:
    case GPU_KERNEL_KV_SHIFT:
    case GPU_KERNEL_KV_COPY:
    case GPU_KERNEL_KV_EXPORT:
    case GPU_KERNEL_KV_IMPORT:
    case GPU_KERNEL_SELECT_SLOTS:
    case GPU_KERNEL_SELECT_CHOOSE: work.is_upper = true; break;
    case GPU_KERNEL_GET_ROWS: work.bytes = 2.0 * (double)step->operand[0].size; break;
    default: break;
    }
    return work;
}
