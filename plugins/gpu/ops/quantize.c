/* SPDX-License-Identifier: MIT
 *
 * quantize.c: see quantize.h. The layout of the bytes: shaders/bytes.glsl.
 */
#include "plugins/gpu/ops/quantize.h"

enum {
    GROUP_LEN = 32,  /* elements with one scale */
    GROUP_SIZE = 68, /* bytes of a group: high, low, scale */
    ROW_SIZE = 4,    /* bytes of a row besides its groups */
    THREADS = 64
};

int64_t gpu_quantize_rows(const gpu_product *p) {
    return p->mode == GPU_PRODUCT_PLAIN ? p->n_column * p->w->ne[2] : p->n_column / p->x_per_token;
}

static bool is_wide(const gpu_product *p) {
    bool is_whole = p->x_stride_matrix % 4 == 0;
    for (int i = 0; i < 3; i++) is_whole = is_whole && p->x_stride[i] % 4 == 0;
    return is_whole && p->x_stride_k == 1 && p->x.off % 16 == 0;
}

static tdm_status step_emit(gpu_emit *e, const gpu_product *p, gpu_operand bytes, tdm_error *err) {
    gpu_step step = gpu_step_make(e, GPU_KERNEL_QUANTIZE, THREADS);
    int64_t n_row = gpu_quantize_rows(p), n_group = p->w->ne[0] / GROUP_LEN;
    bool is_plain = p->mode == GPU_PRODUCT_PLAIN;
    const int64_t words[] = {p->w->ne[0],
                             n_row,
                             n_group,
                             is_plain ? p->column_ne[0] : n_row,
                             is_plain ? p->column_ne[1] : 1,
                             p->x_stride[0],
                             is_plain ? p->x_stride[1] : 0,
                             is_plain ? p->x_stride[2] : 0,
                             is_plain ? p->x_stride_matrix : 0,
                             is_plain ? p->n_column : n_row,
                             p->x_stride_k,
                             p->role_stride,
                             p->rows_per_role};
    tdm_status status = TDM_OK;
    for (size_t i = 0; i < sizeof words / sizeof words[0] && status == TDM_OK; i++)
        status = gpu_word(e, &step.word[i], words[i], err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step, (n_row * n_group + THREADS - 1) / THREADS, err);
    if (status != TDM_OK) return status;
    step.spec[0] = p->role.space != GPU_SPACE_NONE;
    step.spec[1] = is_wide(p);
    step.operand[0] = bytes;
    step.operand[1] = p->x;
    step.operand[2] = p->role;
    return gpu_emit_step(e, &step, err);
}

tdm_status gpu_quantize_emit(gpu_emit *e, const gpu_product *p, gpu_operand *bytes_out,
                             tdm_error *err) {
    int64_t n_row = gpu_quantize_rows(p), n_group = p->w->ne[0] / GROUP_LEN;
    uint64_t size = (uint64_t)n_row * (uint64_t)(n_group * GROUP_SIZE + ROW_SIZE);
    bool is_new = true;
    if (n_row * n_group > UINT32_MAX - THREADS)
        return gpu_refuse(e, err, "%lld groups of activations; the kernels count up to 2^32 - 64",
                          (long long)(n_row * n_group));
    if (p->bytes != NULL && p->bytes->space != GPU_SPACE_NONE) {
        *bytes_out = *p->bytes;
        return TDM_OK;
    }
    if (p->form_of != NULL)
        *bytes_out = gpu_emit_form(
            p->form_of, 1, p->role.space != GPU_SPACE_NONE ? 2 : -1,
            &(gpu_form_key){.form = GPU_FORM_Q8, .number = {(int32_t)p->w->ne[2]}}, size, &is_new);
    else
        *bytes_out = gpu_emit_scratch(e, size);
    if (p->bytes != NULL) *p->bytes = *bytes_out;
    return is_new ? step_emit(e, p, *bytes_out, err) : TDM_OK;
}
