/* SPDX-License-Identifier: MIT
 *
 * params.c: see params.h.
 */
#include "core/base/params.h"

#include <string.h>

void tdm_struct_read(void *ours, size_t our_size, const void *theirs) {
    size_t given = 0;
    memset(ours, 0, our_size);
    if (theirs == NULL) return;
    memcpy(&given, theirs, sizeof given);
    memcpy(ours, theirs, given == 0 || given > our_size ? our_size : given);
    memcpy(ours, &our_size, sizeof our_size);
}

void tdm_struct_write(void *theirs, const void *ours, size_t our_size) {
    size_t given = 0;
    memcpy(&given, theirs, sizeof given);
    size_t n = given == 0 || given > our_size ? our_size : given;
    if (n > sizeof given)
        memcpy((char *)theirs + sizeof given, (const char *)ours + sizeof given, n - sizeof given);
}

tdm_status tdm_range_check(const char *name, const char *what, uint64_t off, uint64_t size,
                           uint64_t buffer_size, tdm_error *err) {
    if (off <= buffer_size && size <= buffer_size - off) return TDM_OK;
    return tdm_fail(err, TDM_OUT_OF_RANGE,
                    "%s: %s: %llu bytes at offset %llu are not inside a buffer of %llu", name, what,
                    (unsigned long long)size, (unsigned long long)off,
                    (unsigned long long)buffer_size);
}

tdm_status tdm_copy_check(const char *name, bool is_one, uint64_t dst_off, uint64_t dst_size,
                          uint64_t src_off, uint64_t src_size, uint64_t size, tdm_error *err) {
    tdm_status status = tdm_range_check(name, "copy, destination", dst_off, size, dst_size, err);
    if (status == TDM_OK)
        status = tdm_range_check(name, "copy, source", src_off, size, src_size, err);
    if (status == TDM_OK && is_one && size > 0 && src_off < dst_off + size &&
        dst_off < src_off + size)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: copy: the ranges overlap", name);
    return status;
}

tdm_status tdm_plan_flags_check(const char *name, const tdm_plan_params *params, tdm_error *err) {
    tdm_plan_params p;
    tdm_struct_read(&p, sizeof p, params);
    if (p.flags == 0) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: unknown plan flags 0x%x", name,
                    (unsigned)p.flags);
}

tdm_status tdm_split_unit_block(const char *name, const tdm_graph *graph, int32_t value,
                                int32_t axis, int64_t *unit_out, tdm_error *err) {
    if (value < 0 || value >= graph->n_value || axis < 0 || axis >= TDM_MAX_DIMS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: split_unit: no axis %d of value %d", name,
                        (int)axis, (int)value);
    const tdm_type type = (tdm_type)tdm_graph_value(graph, value)->type;
    *unit_out = axis == 0 ? tdm_type_get_info(type).block_len : 1;
    return TDM_OK;
}
