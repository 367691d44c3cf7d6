/* SPDX-License-Identifier: MIT
 *
 * work.c: see work.h. The words of kernels are described in kernel.h.
 */
#include "plugins/gpu/plan/work.h"

#include "tandem/type.h"

enum {
    FEW = 8, /* tokens up to which memory, not arithmetic, decides how long a product runs */
    /* Attention of more tokens reaches only a fraction of the rate of products, which may use
     * matrix hardware. The estimate must not be too low. */
    ATTENTION_COST = 4
};

static bool is_glu(const gpu_step *step) {
    return (step->spec[7] & GPU_PRODUCT_END_GLU) != 0;
}

/* Rows times columns times k. With GLU there are two matrices. Of sorted pairs word 2 counts tiles,
 * which have up to spec 3 columns each. */
static double product_ops(const gpu_step *step) {
    double columns = (is_glu(step) ? 2.0 : 1.0) * step->word[2];
    if (step->spec[4] == GPU_PRODUCT_SORTED) columns *= step->spec[3];
    double matrices = step->spec[4] == GPU_PRODUCT_PLAIN && step->word[16] > 0 ? step->word[16] : 1;
    return (double)step->word[0] * step->word[1] * columns * matrices;
}

/* Multiply-adds for a query head and all slots of its KV head, from the bytes of all KV heads. n_k,
 * n_v: elements of a row of K and of V. V may be part of K. */
static double cache_ops(uint64_t size, tdm_type k, int32_t n_k, tdm_type v, int32_t n_v,
                        bool v_from_k) {
    const uint64_t row = tdm_type_row_size(k, n_k) + (v_from_k ? 0 : tdm_type_row_size(v, n_v));
    return row > 0 ? (double)size / (double)row * (n_k + n_v) : 0;
}

static double attention_cost(double tokens, double ops) {
    return tokens * ops * (tokens > FEW ? ATTENTION_COST : 1);
}

/* Each query head of each token is multiplied with all rows of its KV head. */
static double attention_ops(const gpu_step *step) {
    const bool v_from_k = (step->spec[5] & GPU_ATTENTION_V_FROM_K) != 0;
    double heads = step->word[8], kv_heads = step->word[19] & 0x1ffff;
    if (kv_heads < 1) kv_heads = 1;
    return attention_cost(
        step->word[7], heads / kv_heads *
                           cache_ops(step->operand[2].size, (tdm_type)step->spec[0], step->spec[2],
                                     (tdm_type)step->spec[1], step->spec[3], v_from_k));
}

/* The same for the keys of KV_SELECT, which have one head and no V. */
static double score_ops(const gpu_step *step) {
    return attention_cost(step->word[10],
                          step->word[8] * cache_ops(step->operand[2].size, (tdm_type)step->spec[0],
                                                    step->spec[2], (tdm_type)0, 0, true));
}

/* Bytes of weights that the step does not read. With GLU operand 3 is a weight of the same size, of
 * which as much is read. */
static double weights_unread(const gpu_step *step) {
    double size = (double)step->operand[1].size - (double)step->weight_size;
    if (step->weight_size == 0) return 0;
    return is_glu(step) ? 2 * size : size;
}

/* Pairs of several tokens may share experts, so that fewer matrices are read than there are pairs. A
 * tile of SORTED products may have fewer columns than spec 3, or none. */
static bool shares_experts(const gpu_step *step) {
    return step->spec[4] == GPU_PRODUCT_SORTED ||
           (step->spec[4] == GPU_PRODUCT_PAIRS && step->word[2] > step->word[3]);
}

/* Each sequence reads one slot and writes one. Each token multiplies each element of the matrices
 * three times. */
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
        work.bytes -= weights_unread(step);
        work.is_upper = shares_experts(step);
        if (step->word[2] > FEW || step->spec[4] == GPU_PRODUCT_SORTED)
            work.ops = product_ops(step);
        break;
    case GPU_KERNEL_ATTENTION_PART:
    case GPU_KERNEL_ATTENTION_LANE:
    case GPU_KERNEL_ATTENTION_TILE:
    case GPU_KERNEL_ATTENTION_TILE_MATRIX:
    case GPU_KERNEL_ATTENTION_TILE_HALF:
    case GPU_KERNEL_ATTENTION_LATENT_MATRIX:
    case GPU_KERNEL_ATTENTION_LATENT_HALF:
        work.ops = attention_ops(step);
        work.is_upper = true;
        break;
    case GPU_KERNEL_SELECT_SCORE: /* its words differ from those of the kernels above */
        work.ops = score_ops(step);
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

void gpu_work_add(gpu_work_range *sum, const gpu_work *work) {
    sum->most.bytes += work->bytes;
    sum->most.ops += work->ops;
    if (work->is_upper) return;
    sum->least.bytes += work->bytes;
    sum->least.ops += work->ops;
}
