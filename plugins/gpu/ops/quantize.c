/* SPDX-License-Identifier: MIT
 *
 * quantize.c: see quantize.h. kernels/bytes.h and shaders/bytes.glsl describe the layout of the
 * bytes, kernels/halves.cu and shaders/product_matrix.glsl that of f16.
 */
#include "plugins/gpu/ops/quantize.h"

#include <string.h>

enum {
    GROUP_LEN = 32,    /* elements */
    GROUP_THREADS = 8, /* threads that share a group in norms and ATTENTION_MERGE */
    ROW_SIZE = 4,      /* bytes of a row besides its groups */
    HALVES_THREADS = 256,
    QUANTIZE_THREADS = 256 /* with several threads for each group (quantize_lanes) */
};

/* A form of x, and the kernel that makes it. */
typedef struct form {
    gpu_kernel kernel;
    int32_t form;       /* gpu_form */
    int64_t group_size; /* bytes of 32 elements */
    int32_t threads;    /* of a workgroup */
    bool has_roles;     /* the bytes depend on the roles of rows */
} form;

static const form bytes_form = {GPU_KERNEL_QUANTIZE, GPU_FORM_Q8, 68, 64, true};
static const form f16_form = {GPU_KERNEL_HALVES, GPU_FORM_F16, 64, HALVES_THREADS, false};

int64_t gpu_quantize_rows(const gpu_product *p) {
    return p->mode == GPU_PRODUCT_PLAIN ? p->n_column * p->w->ne[2] : p->n_column / p->x_per_token;
}

static bool is_wide(const gpu_product *p) {
    bool is_whole = p->x_stride_matrix % 4 == 0;
    for (int i = 0; i < 3; i++) is_whole = is_whole && p->x_stride[i] % 4 == 0;
    return is_whole && p->x_stride_k == 1 && p->x.off % 16 == 0;
}

static int64_t group_count(const gpu_product *p) {
    return (p->w->ne[0] + GROUP_LEN - 1) / GROUP_LEN;
}

/* Threads of a workgroup for a row of n_quad times four elements: a power of two. */
static int32_t row_threads(const gpu_emit *e, int64_t n_quad) {
    int32_t n = e->target->subgroup_max;
    while (n < n_quad && 2 * n <= HALVES_THREADS && 2 * n <= e->target->max_group_size) n *= 2;
    return n;
}

static tdm_status step_emit(gpu_emit *e, const gpu_product *p, const form *f, gpu_operand bytes,
                            tdm_error *err) {
    int64_t n_row = gpu_quantize_rows(p), n_group = group_count(p),
            n_quad = n_group * GROUP_LEN / 4;
    bool has_row = f->kernel == GPU_KERNEL_HALVES; /* a workgroup for each row */
    int32_t threads = has_row ? row_threads(e, n_quad) : f->threads;
    int32_t groups = threads; /* of a workgroup without a row of its own */
    if (!has_row && e->target->product.quantize_lanes > 1) {
        threads = QUANTIZE_THREADS;
        groups = QUANTIZE_THREADS / e->target->product.quantize_lanes;
    }
    gpu_step step = gpu_step_make(e, f->kernel, threads);
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
        status =
            gpu_step_grid(e, &step, has_row ? n_row : (n_row * n_group + groups - 1) / groups, err);
    if (status != TDM_OK) return status;
    if (has_row)
        step.trips = 2 * ((n_quad + step.group_size - 1) / step.group_size) + step.group_size;
    step.spec[0] = f->has_roles && p->role.space != GPU_SPACE_NONE;
    step.spec[1] = is_wide(p) && p->w->ne[0] % GROUP_LEN == 0;
    step.operand[0] = bytes;
    step.operand[1] = p->x;
    if (f->has_roles) step.operand[2] = p->role;
    return gpu_emit_step(e, &step, err);
}

/* ---- By the step that makes x
 * ------------------------------------------------------------------ */

/* True where the rows of x lie one after the other, in the order in which the product counts them:
 * then their bytes in memory order are the form. */
static bool is_in_order(const gpu_product *p) {
    const gpu_value *x = &p->form_of->src[p->form_x];
    return gpu_value_is_contiguous(x) && x->ne[0] == p->w->ne[0] && x->ne[0] % GROUP_LEN == 0 &&
           tdm_shape_rows(x->ne) == gpu_quantize_rows(p) &&
           (p->mode == GPU_PRODUCT_PLAIN ? p->w->ne[2] == 1
                                         : p->x_stride[0] == x->ne[0] || gpu_quantize_rows(p) == 1);
}

/* The specialisation number, and the bits in it, that make a kernel store bytes too. */
typedef struct flag {
    int spec;
    int32_t bits;
} flag;

/* False where the kernel cannot store bytes. */
static bool flag_get(int32_t kernel, flag *out) {
    switch ((int)kernel) {
    case GPU_KERNEL_ROW: *out = (flag){4, 2}; return true;
    case GPU_KERNEL_ATTENTION_MERGE: *out = (flag){4, 1}; return true;
    case GPU_KERNEL_ADD_NORM:
    case GPU_KERNEL_PRODUCT_ROW_DOT: *out = (flag){5, 1}; return true;
    case GPU_KERNEL_ATTENTION_TILE_MATRIX: *out = (flag){5, GPU_ATTENTION_BYTES}; return true;
    default: return false;
    }
}

bool gpu_step_stores_bytes(const gpu_step *step) {
    flag says;
    return flag_get((int32_t)step->kernel, &says) && (step->spec[says.spec] & says.bits) != 0;
}

/* Operands and words of a step that stores bytes: see its kernel in kernel.h. */
typedef struct places {
    /* bytes: operand of the bytes; 0 = they lie behind dst, which is operand 0.
     * role: operand of the roles; 0 = the kernel reads none */
    int bytes, role;
    int word;     /* word of the role's stride; the next word has the rows that share a role; 0 =
                     the kernel has no such words */
    int counters; /* operand of the counters; 0 = it needs none */
    int64_t n_counter;
} places;

static bool is_absent(const gpu_step *step, int operand) {
    return step->operand[operand].space == GPU_SPACE_NONE;
}

/* For a PRODUCT_ROW_DOT whose result has rows of k elements. Several workgroups compute a group of
 * 32 elements: hence a counter for each group and tile of columns (kernels/product_row_dot.cu). The
 * kernel finds the roles in the bytes of its own x, which therefore must be made with the same
 * roles. */
static bool product_places_get(const gpu_emit *e, const gpu_step *step, const gpu_product *p,
                               places *out) {
    const int64_t n_column = step->word[2], n_tile = (n_column + step->spec[3] - 1) / step->spec[3];
    const gpu_value *role = &p->form_of->src[p->form_role];
    *out = (places){.bytes = 0, .counters = 4, .n_counter = step->word[0] / GROUP_LEN * n_tile};
    return e->target->counts_groups && step->spec[4] == GPU_PRODUCT_PLAIN &&
           step->word[0] == p->w->ne[0] && step->word[10] == step->word[0] && step->word[16] == 1 &&
           n_column == gpu_quantize_rows(p) && is_absent(step, 4) &&
           gpu_emit_form_is_with(e, &step->operand[2], role);
}

/* True where the threads of a workgroup form whole teams of GROUP_THREADS. */
static bool has_whole_groups(const gpu_step *step) {
    return step->group_size % GROUP_THREADS == 0;
}

/* True where the step, which computes x, can store x as bytes, too: a product; a norm of rows of k
 * elements (with ROW: one row of weights); attention whose heads are whole groups, without `ml`.
 * The step must not store bytes already. */
static bool places_get(const gpu_emit *e, const gpu_step *step, const gpu_product *p, places *out) {
    const int64_t k = p->w->ne[0];
    switch ((int)step->kernel) {
    case GPU_KERNEL_PRODUCT_ROW_DOT: return product_places_get(e, step, p, out);
    case GPU_KERNEL_ROW:
        *out = (places){.bytes = 5, .role = 4, .word = 12};
        return has_whole_groups(step) &&
               (step->spec[0] == GPU_ROW_RMS_NORM || step->spec[0] == GPU_ROW_LAYER_NORM) &&
               step->word[0] == k && step->word[12] == 0 && step->word[13] == 0 &&
               step->word[14] == 0 && is_absent(step, 4) && is_absent(step, 5);
    case GPU_KERNEL_ADD_NORM:
        *out = (places){.bytes = 0, .role = 5, .word = 15};
        return has_whole_groups(step) && step->word[0] == k && !gpu_step_stores_bytes(step);
    case GPU_KERNEL_ATTENTION_MERGE:
        *out = (places){.bytes = 1, .role = 5, .word = 4};
        return has_whole_groups(step) && step->spec[1] % GROUP_LEN == 0 &&
               (int64_t)step->spec[1] * step->word[1] == k && is_absent(step, 1);
    case GPU_KERNEL_ATTENTION_TILE_MATRIX: /* a role for each token */
        *out = (places){.bytes = 0, .role = 4};
        return (step->spec[5] & GPU_ATTENTION_MERGES) != 0 && !gpu_step_stores_bytes(step) &&
               (int64_t)step->spec[3] * step->word[8] == k &&
               (step->word[7] == 1 || p->role.space == GPU_SPACE_NONE ||
                (p->role_stride == 1 && p->rows_per_role == 1));
    default: return false;
    }
}

/* True where a check has found that the device computes the step wrongly when it stores bytes. */
static bool is_wrong_with(const gpu_emit *e, const gpu_step *step, const flag *says) {
    gpu_step with = *step;
    with.spec[says->spec] |= says->bits;
    return e->target->is_wrong != NULL && e->target->is_wrong(e->target->is_wrong_context, &with);
}

/* Changes the step that computes x so that it stores the bytes, too, which saves a step and a
 * barrier. False, with nothing changed, where that is not possible. */
static bool writer_stores(gpu_emit *e, const gpu_product *p, const form *f, gpu_operand *bytes,
                          tdm_error *err) {
    places at;
    flag says;
    int32_t role[2];
    if (!e->target->product.rows_quantize || e->target->is_unfused || f != &bytes_form ||
        p->form_of == NULL || !is_in_order(p))
        return false;
    gpu_step *step = gpu_emit_writer(e, &p->x, &p->role);
    if (step == NULL || !places_get(e, step, p, &at) || !flag_get((int32_t)step->kernel, &says) ||
        is_wrong_with(e, step, &says) || gpu_word(e, &role[0], p->role_stride, err) != TDM_OK ||
        gpu_word(e, &role[1], p->rows_per_role, err) != TDM_OK ||
        (at.bytes == 0 && !gpu_emit_form_behind(e, step, bytes)))
        return false;
    step->spec[says.spec] |= says.bits;
    if (at.word > 0) memcpy(&step->word[at.word], role, sizeof role);
    if (at.role != 0) step->operand[at.role] = p->role;
    if (at.counters != 0) step->operand[at.counters] = gpu_emit_counters(e, at.n_counter);
    if (at.bytes != 0) step->operand[at.bytes] = *bytes;
    return true;
}

tdm_status gpu_quantize_emit(gpu_emit *e, const gpu_product *p, bool is_f16, gpu_operand *bytes_out,
                             tdm_error *err) {
    const form *f = is_f16 ? &f16_form : &bytes_form;
    int64_t n_row = gpu_quantize_rows(p), n_group = group_count(p);
    uint64_t size = (uint64_t)n_row * (uint64_t)(n_group * f->group_size + ROW_SIZE);
    bool is_new = true;
    if (n_row * n_group > UINT32_MAX - f->threads)
        return gpu_refuse(e, err, "%lld groups of activations; the kernels count up to 2^32 - %d",
                          (long long)(n_row * n_group), (int)f->threads);
    if (p->bytes != NULL && p->bytes->space != GPU_SPACE_NONE) {
        *bytes_out = *p->bytes;
        return TDM_OK;
    }
    if (p->form_of != NULL) {
        const bool is_plain = p->mode == GPU_PRODUCT_PLAIN; /* else rows have no order by matrix */
        const gpu_form_key key = {.form = f->form,
                                  .number = {is_plain ? (int32_t)p->w->ne[2] : 1}};
        const bool has_role = f->has_roles && p->role.space != GPU_SPACE_NONE;
        *bytes_out = gpu_emit_form(p->form_of, p->form_x, has_role ? p->form_role : -1, &key, size,
                                   &is_new);
    } else {
        *bytes_out = gpu_emit_scratch(e, size);
    }
    tdm_status status = TDM_OK;
    if (is_new && !writer_stores(e, p, f, bytes_out, err))
        status = step_emit(e, p, f, *bytes_out, err);
    if (p->bytes != NULL) *p->bytes = *bytes_out;
    return status;
}
