/* SPDX-License-Identifier: MIT
 *
 * rows.c: the step of GET_ROWS.
 */
#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/product.h"

enum { ROWS_GROUP = 64, GROUP_LEN = 32 };

tdm_status gpu_op_get_rows(gpu_emit *e, tdm_error *err) {
    const gpu_value *table = &e->src[0], *id = &e->src[1], *y = &e->dst[0];
    int64_t first_row = e->node->params.rows.first_row;
    int64_t n = (y->ne[0] + GROUP_LEN - 1) / GROUP_LEN * y->ne[1];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_GET_ROWS, ROWS_GROUP);
    if (n == 0) return TDM_OK;
    int32_t weight[3];
    tdm_status status = gpu_weight_check(e, table, err);
    if (status == TDM_OK) status = gpu_weight_words(e, table, weight, &step.spec[1], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[0], y->ne[0], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], y->ne[1], err);
    if (status == TDM_OK)
        status = gpu_word(e, &step.word[2], id->nb[0] / (int64_t)sizeof(int32_t), err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[5], table->ne[1], err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, (n + ROWS_GROUP - 1) / ROWS_GROUP, err);
    if (status != TDM_OK) return status;
    step.word[3] = (int32_t)(uint32_t)(uint64_t)first_row;
    step.word[4] = (int32_t)(first_row >> 32);
    step.word[6] = weight[0];
    step.word[7] = weight[1];
    step.spec[0] = (int32_t)table->type;
    step.operand[0] = y->place;
    step.operand[1] = table->place;
    step.operand[2] = id->place;
    step.operand[5] = gpu_weight_grid(e, table->type);
    step.weight_size = (uint64_t)y->ne[1] * tdm_type_row_size(table->type, table->ne[0]);
    return gpu_emit_step(e, &step, err);
}
