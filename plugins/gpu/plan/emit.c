/* SPDX-License-Identifier: MIT
 *
 * emit.c: the functions that emitters call: refusals, checked steps, scratch, forms, words.
 */
#include <string.h>

#include "plugins/gpu/plan/maker.h"

/* ---- Refusals -------------------------------------------------------------------------------- */

static const char *op_name(int32_t op) {
    switch (op) {
#define OP_NAME(ID, name, ...)                                                                     \
    case TDM_OP_##ID: return #ID;
        TDM_OP_LIST(OP_NAME)
#undef OP_NAME
    default: return "?";
    }
}

tdm_status gpu_refuse(const gpu_emit *e, tdm_error *err, const char *format, ...) {
    char text[TDM_ERROR_MESSAGE_SIZE / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tdm_fail(err, TDM_UNSUPPORTED, "%s: %s (node %d): %s", e->target->name,
                    op_name(e->node->op), (int)e->index, text);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t writes;
} kernels[GPU_KERNEL_COUNT_] = {
#define KERNEL_ROW(NAME, name, n_operand, writes, rt) [GPU_KERNEL_##NAME] = {#name, writes},
    GPU_KERNEL_LIST(KERNEL_ROW)
#undef KERNEL_ROW
};

const char *gpu_kernel_name(int32_t kernel) {
    return kernels[kernel].name;
}

bool gpu_kernel_writes(int32_t kernel, int operand) {
    return (kernels[kernel].writes >> operand & 1) != 0;
}

gpu_step gpu_step_make(const gpu_emit *e, gpu_kernel kernel, int32_t group_size) {
    return (gpu_step){
        .kernel = kernel, .node = e->index, .group_size = group_size, .grid = {1, 1, 1}};
}

tdm_status gpu_step_grid(const gpu_emit *e, gpu_step *step, int64_t n, tdm_error *err) {
    int64_t max_x = e->target->max_grid[0], x = n < max_x ? n : max_x;
    int64_t y = x > 0 ? (n + x - 1) / x : 0;
    if (y > e->target->max_grid[1])
        return gpu_refuse(e, err, "%lld workgroups; the device launches up to %lld", (long long)n,
                          (long long)max_x * e->target->max_grid[1]);
    /* Equal rows, so that few workgroups have no work. */
    if (y > 1) x = (n + y - 1) / y;
    step->grid[0] = (uint32_t)x;
    step->grid[1] = (uint32_t)y;
    step->grid[2] = 1;
    return TDM_OK;
}

/* Every operand lies inside its memory. */
static tdm_status operands_check(const gpu_emit *e, const gpu_step *step, tdm_error *err) {
    for (int i = 0; i < GPU_MAX_OPERAND; i++) {
        const gpu_operand *o = &step->operand[i];
        uint64_t size;
        if (o->space == GPU_SPACE_NONE || o->index < 0) continue;
        size = o->space == GPU_SPACE_SLOT      ? e->maker->plan->slot_sizes[o->index]
               : o->space == GPU_SPACE_AREA    ? e->maker->areas[o->index].size
               : o->space == GPU_SPACE_COUNTER ? e->maker->plan->counters_size
                                               : e->maker->plan->constants_size;
        if (o->off > size || o->size > size - o->off)
            return tdm_fail(err, TDM_INTERNAL,
                            "%s: kernel %s (node %d): operand %d ends at byte %llu of %llu",
                            e->target->name, gpu_kernel_name(step->kernel), (int)e->index, i,
                            (unsigned long long)(o->off + o->size), (unsigned long long)size);
    }
    return TDM_OK;
}

tdm_status gpu_emit_step(gpu_emit *e, const gpu_step *step, tdm_error *err) {
    const gpu_target *t = e->target;
    if (t->has_kernel != NULL && !t->has_kernel[step->kernel])
        return gpu_refuse(e, err, "there is no kernel %s for this device yet",
                          gpu_kernel_name(step->kernel));
    if (step->group_size > t->max_group_size)
        return gpu_refuse(e, err, "kernel %s: workgroups of %d threads; the device has up to %d",
                          gpu_kernel_name(step->kernel), (int)step->group_size,
                          (int)t->max_group_size);
    for (int i = 0; i < 3; i++)
        if (step->grid[i] == 0 || step->grid[i] > t->max_grid[i])
            return gpu_refuse(e, err,
                              "kernel %s: %u workgroups along axis %d; the device has 1 to %u",
                              gpu_kernel_name(step->kernel), step->grid[i], i, t->max_grid[i]);
    for (int i = 0; i < GPU_MAX_OPERAND; i++)
        if (t->max_range != 0 && step->operand[i].size > t->max_range)
            return gpu_refuse(
                e, err, "kernel %s: an operand of %llu bytes; the device has up to %llu",
                gpu_kernel_name(step->kernel), (unsigned long long)step->operand[i].size,
                (unsigned long long)t->max_range);
    if (t->max_trips != 0 && step->trips > t->max_trips)
        return gpu_refuse(e, err,
                          "kernel %s: %lld loop iterations in an invocation; the device runs up to "
                          "%d",
                          gpu_kernel_name(step->kernel), (long long)step->trips, (int)t->max_trips);
    if (t->is_wrong != NULL && t->is_wrong(t->is_wrong_context, step))
        return gpu_refuse(e, err, "kernel %s gives wrong results with this driver",
                          gpu_kernel_name(step->kernel));
    if (e->maker == NULL) return TDM_OK;
    if (!e->maker->is_out_of_memory) {
        tdm_status status = operands_check(e, step, err);
        if (status != TDM_OK || gpu_maker_step(e->maker, step)) return status;
    }
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", t->name);
}

static bool writes(const gpu_step *step, const gpu_operand *o) {
    for (int k = 0; k < GPU_MAX_OPERAND; k++)
        if (gpu_kernel_writes(step->kernel, k) && gpu_operands_overlap(&step->operand[k], o))
            return true;
    return false;
}

gpu_step *gpu_emit_writer(gpu_emit *e, const gpu_operand *what, const gpu_operand *with) {
    if (e->maker == NULL) return NULL;
    for (int32_t i = e->maker->plan->n_step - 1; i >= 0; i--) {
        gpu_step *step = &e->maker->plan->steps[i];
        const gpu_operand *dst = &step->operand[0];
        if (writes(step, with)) return NULL;
        if (writes(step, what))
            return gpu_kernel_writes(step->kernel, 0) && gpu_operands_overlap(dst, what) &&
                           dst->off == what->off && dst->size == what->size + step->inner
                       ? step
                       : NULL;
    }
    return NULL;
}

/* ---- Scratch and forms ----------------------------------------------------------------------- */

gpu_operand gpu_emit_scratch(gpu_emit *e, uint64_t size) {
    gpu_operand operand = {.space = GPU_SPACE_AREA, .size = size};
    if (e->maker != NULL) operand.index = gpu_maker_area(e->maker, size);
    return operand;
}

gpu_operand gpu_emit_constant(gpu_emit *e, const void *bytes, uint64_t size) {
    gpu_operand operand = {.space = GPU_SPACE_CONSTANT, .size = size};
    if (e->maker != NULL) operand.off = gpu_maker_constant(e->maker, bytes, size);
    return operand;
}

gpu_operand gpu_emit_counters(gpu_emit *e, int64_t n) {
    gpu_operand operand = {.space = GPU_SPACE_COUNTER, .size = (uint64_t)n * sizeof(uint32_t)};
    if (e->maker == NULL) return operand;
    operand.off = e->maker->plan->counters_size;
    e->maker->plan->counters_size += operand.size;
    return operand;
}

/* The same elements at the same addresses, in the same order. */
static bool is_same_view(const gpu_value *a, const gpu_value *b) {
    if (!a->is_present || !b->is_present) return a->is_present == b->is_present;
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        if (a->ne[i] != b->ne[i] || (a->ne[i] != 1 && a->nb[i] != b->nb[i])) return false;
    return a->type == b->type && a->place.space == b->place.space &&
           a->place.index == b->place.index && a->place.off == b->place.off;
}

/* A form that a step has made stays valid for the rest of the run: a value is written by one node,
 * which comes before its readers, and an INPUT or a WEIGHT does not change during a run. The bytes
 * of a STATE do change, so that it has no forms. */
gpu_operand gpu_emit_form(gpu_emit *e, int src, int with, const gpu_form_key *key, uint64_t size,
                          bool *is_new_out) {
    gpu_maker *maker = e->maker;
    gpu_made_form form = {.key = *key, .of = e->src[src]};
    if (with >= 0) form.with = e->src[with];
    *is_new_out = true;
    if (maker == NULL) return gpu_emit_scratch(e, size);
    for (int32_t i = 0; i < maker->n_form; i++) {
        const gpu_made_form *made = &maker->forms[i];
        if (memcmp(&made->key, key, sizeof *key) == 0 && made->place.size == size &&
            is_same_view(&made->of, &form.of) && is_same_view(&made->with, &form.with)) {
            *is_new_out = false;
            return made->place;
        }
    }
    gpu_operand operand = gpu_emit_scratch(e, size);
    form.place = operand;
    if (operand.index >= 0) gpu_maker_form(maker, &form);
    return operand;
}

bool gpu_emit_form_is_with(const gpu_emit *e, const gpu_operand *place, const gpu_value *with) {
    const gpu_maker *maker = e->maker;
    for (int32_t i = 0; maker != NULL && i < maker->n_form; i++) {
        const gpu_made_form *made = &maker->forms[i];
        if (made->place.index == place->index && made->place.off == place->off)
            return is_same_view(&made->with, with);
    }
    return false;
}

bool gpu_emit_grow(gpu_emit *e, gpu_operand *operand, uint64_t size) {
    gpu_maker *maker = e->maker;
    if (maker == NULL || maker->is_out_of_memory || operand->space != GPU_SPACE_AREA ||
        operand->off != 0 || operand->size != maker->areas[operand->index].size)
        return false;
    operand->size += size;
    maker->areas[operand->index].size = operand->size;
    return true;
}

bool gpu_emit_form_behind(gpu_emit *e, gpu_step *step, gpu_operand *form) {
    gpu_maker *maker = e->maker;
    gpu_operand *dst = &step->operand[0];
    const uint64_t at = dst->size;
    if (!gpu_emit_grow(e, dst, form->size)) return false;
    for (int32_t i = 0; i < maker->n_form; i++) {
        gpu_operand *place = &maker->forms[i].place;
        if (place->index != form->index) continue;
        place->index = dst->index;
        place->off = at;
        *form = *place;
        return true;
    }
    return false;
}

/* ---- Words ----------------------------------------------------------------------------------- */

tdm_status gpu_word(const gpu_emit *e, int32_t *word, int64_t n, tdm_error *err) {
    if (n < INT32_MIN || n > INT32_MAX)
        return gpu_refuse(e, err, "%lld elements; kernels count up to 2^31 - 1", (long long)n);
    *word = (int32_t)n;
    return TDM_OK;
}

tdm_status gpu_words_shape(const gpu_emit *e, int32_t word[4], const int64_t ne[4],
                           tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int i = 0; i < TDM_MAX_DIMS && status == TDM_OK; i++)
        status = gpu_word(e, &word[i], ne[i], err);
    return status;
}

tdm_status gpu_words_strides(const gpu_emit *e, int32_t word[4], const gpu_value *v,
                             const int64_t ne[4], tdm_error *err) {
    int64_t size = tdm_type_get_info(v->type).block_size;
    tdm_status status = TDM_OK;
    for (int i = 0; i < TDM_MAX_DIMS && status == TDM_OK; i++) {
        status = gpu_word(e, &word[i], v->ne[i] == 1 || ne[i] == 1 ? 0 : v->nb[i] / size, err);
    }
    return status;
}

bool gpu_value_has_dense_rows(const gpu_value *v) {
    tdm_type_info info = tdm_type_get_info(v->type);
    return v->ne[0] <= info.block_len || v->nb[0] == info.block_size;
}

bool gpu_value_is_contiguous(const gpu_value *v) {
    tdm_type_info info = tdm_type_get_info(v->type);
    int64_t next = info.block_size;
    bool is_contiguous = true;
    for (int i = 0; i < TDM_MAX_DIMS; i++) {
        int64_t n = i == 0 ? v->ne[0] / info.block_len : v->ne[i];
        if (n == 0) return true;
        if (n != 1 && v->nb[i] != next) is_contiguous = false;
        next *= n;
    }
    return is_contiguous;
}
