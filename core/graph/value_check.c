/* SPDX-License-Identifier: MIT
 *
 * value_check.c: checks of one value, cache description or partition, without the nodes that use
 * it; and the text of a value in messages. Any field may hold any number.
 */
#include "core/graph/op_rules.h"

#include "core/base/kv_check.h"

const char *tdm_shape_text(const int64_t ne[TDM_MAX_DIMS], char text[TDM_SHAPE_TEXT_SIZE]) {
    int n = TDM_MAX_DIMS, i, at = 0;
    while (n > 1 && ne[n - 1] == 1) n--;
    for (i = 0; i < n; i++) {
        const char *before = i == 0 ? "[" : ", ";
        if (ne[i] == -1) /* in a rule: any length */
            at += snprintf(text + at, (size_t)(TDM_SHAPE_TEXT_SIZE - at), "%s*", before);
        else
            at += snprintf(text + at, (size_t)(TDM_SHAPE_TEXT_SIZE - at), "%s%lld", before,
                           (long long)ne[i]);
    }
    snprintf(text + at, (size_t)(TDM_SHAPE_TEXT_SIZE - at), "]");
    return text;
}

const char *tdm_value_text(const tdm_graph *graph, int32_t index, char text[TDM_VALUE_TEXT_SIZE]) {
    const tdm_value *v = tdm_graph_value(graph, index);
    const char *name = tdm_graph_value_name(graph, index);
    char shape[TDM_SHAPE_TEXT_SIZE];
    tdm_shape_text(v->ne, shape);
    if (name[0] != '\0')
        snprintf(text, TDM_VALUE_TEXT_SIZE, "'%.64s' (value %d, %s %s)", name, (int)index,
                 tdm_type_name((tdm_type)v->type), shape);
    else
        snprintf(text, TDM_VALUE_TEXT_SIZE, "value %d (%s %s)", (int)index,
                 tdm_type_name((tdm_type)v->type), shape);
    return text;
}

tdm_status tdm_shape_check(const char *what, int32_t type, const int64_t ne[TDM_MAX_DIMS],
                           tdm_error *err) {
    tdm_type_info info = tdm_type_get_info((tdm_type)type);
    char text[TDM_SHAPE_TEXT_SIZE];
    int64_t count = 1;
    int i;
    if (info.name == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: type %d is not a type", what, (int)type);
    for (i = 0; i < TDM_MAX_DIMS; i++) {
        if (ne[i] < 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: axis %d has %lld elements", what, i,
                            (long long)ne[i]);
        if (__builtin_mul_overflow(count, ne[i] > 0 ? ne[i] : 1, &count) ||
            count >= TDM_MAX_ELEMENTS)
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "%s: shape %s has 2^48 elements or more (an axis of 0 counts as 1)",
                            what, tdm_shape_text(ne, text));
    }
    if (ne[0] % info.block_len != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: rows of %lld elements are not whole blocks of %s, which has %d", what,
                        (long long)ne[0], info.name, (int)info.block_len);
    return TDM_OK;
}

/* The number of axes of a private tensor follows from its usage flags. */
static tdm_status usage_check(const tdm_graph *graph, int32_t index, tdm_error *err) {
    const tdm_value *v = tdm_graph_value(graph, index);
    char text[TDM_VALUE_TEXT_SIZE];
    if (v->usage == 0) return TDM_OK;
    tdm_value_text(graph, index, text);
    if (v->kind != TDM_VALUE_WEIGHT)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s has usage flags 0x%x but is no WEIGHT", text,
                        v->usage);
    if (v->usage != TDM_USAGE_EXPERT &&
        (v->usage & ~(uint32_t)(TDM_USAGE_MATMUL | TDM_USAGE_ROWS)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s has usage flags 0x%x: MATMUL and ROWS, or EXPERT alone, are possible",
                        text, v->usage);
    if (v->type == TDM_TYPE_I8 || v->type == TDM_TYPE_I32)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s has usage flags but holds no numbers to "
                        "multiply",
                        text);
    if (v->ne[3] != 1 || ((v->usage & TDM_USAGE_ROWS) != 0 && v->ne[2] != 1))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s has more axes than its usage 0x%x takes",
                        text, v->usage);
    return TDM_OK;
}

tdm_status tdm_value_check(const tdm_graph *graph, int32_t index, tdm_error *err) {
    const tdm_value *v = tdm_graph_value(graph, index);
    const char *name = tdm_graph_value_name(graph, index);
    char what[96], text[TDM_VALUE_TEXT_SIZE];
    tdm_status status;
    snprintf(what, sizeof what, "value %d '%.64s'", (int)index, name);
    if (v->kind < 0 || v->kind > TDM_VALUE_OUTPUT)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: kind %d is not a kind", what, (int)v->kind);
    status = tdm_shape_check(what, v->type, v->ne, err);
    if (status != TDM_OK) return status;
    if (v->reserved != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: the reserved field is %d, not 0", what,
                        (int)v->reserved);
    if (v->kind == TDM_VALUE_STATE && (v->type != TDM_TYPE_I8 || v->ne[2] != 1 || v->ne[3] != 1))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s is a STATE: i8 [page_size, n_page]",
                        tdm_value_text(graph, index, text));
    return usage_check(graph, index, err);
}

tdm_status tdm_kv_desc_check(const tdm_kv_desc *desc, int32_t index, tdm_error *err) {
    const int64_t max_page_len = 1 << 20;
    const struct {
        const char *word;
        int64_t value, lo, hi;
    } ranges[] = {
        {"head_dim_k", desc->head_dim_k, 1, TDM_MAX_HEAD_DIM},
        {"head_dim_v", desc->head_dim_v, 1, TDM_MAX_HEAD_DIM},
        {"n_head_kv", desc->n_head_kv, 0, TDM_MAX_HEAD_DIM},
        {"page_len", desc->page_len, 0, max_page_len},
        {"n_rot", desc->n_rot, 0, desc->head_dim_k},
        {"rope_offset", desc->rope_offset, 0, (int64_t)desc->head_dim_k - desc->n_rot},
        {"cls", desc->cls, 0, TDM_STEP_MAX_CLASS - 1},
        {"flags", desc->flags, 0,
         (int64_t)(TDM_KV_ROTATE_K | TDM_KV_ROTATE_V | TDM_KV_V_FROM_K | TDM_KV_IN_HOST |
                   TDM_KV_RECURRENT | TDM_KV_SPARSE | TDM_KV_BIASED | TDM_KV_ERASED |
                   TDM_KV_STRIDED | TDM_KV_POOLED)},
        {"stride", desc->stride, 0, max_page_len},
        {"reserved", desc->reserved, 0, 0},
    };
    size_t i;
    if (desc->struct_size < sizeof *desc)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d: struct_size %zu is less than %zu", (int)index,
                        desc->struct_size, sizeof *desc);
    bool is_k = !tdm_kv_type_is_storable(desc->type_k);
    tdm_type type = is_k ? desc->type_k : desc->type_v;
    if (!tdm_kv_type_is_storable(type))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d: type_%s is %s (%d), not one of %s", (int)index,
                        is_k ? "k" : "v", tdm_type_name(type), (int)type, tdm_kv_type_names());
    for (i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].value < ranges[i].lo || ranges[i].value > ranges[i].hi)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "cache description %d: %s = %lld is not in %lld .. %lld", (int)index,
                            ranges[i].word, (long long)ranges[i].value, (long long)ranges[i].lo,
                            (long long)ranges[i].hi);
    if ((desc->page_len & (desc->page_len - 1)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d: page_len = %d is not a power of two", (int)index,
                        (int)desc->page_len);
    if (desc->n_rot % 2 != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "cache description %d: n_rot = %d is odd",
                        (int)index, (int)desc->n_rot);
    if ((desc->flags & TDM_KV_RECURRENT) != 0 &&
        ((desc->flags & TDM_KV_V_FROM_K) == 0 || desc->type_k != TDM_TYPE_F32 ||
         desc->page_len != 1 || desc->n_rot != 0 || desc->head_dim_v != desc->head_dim_k))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d has recurrent states: types are f32, page_len 1, "
                        "n_rot 0, V is K",
                        (int)index);
    if ((desc->flags & TDM_KV_RECURRENT) != 0 &&
        (desc->flags & (TDM_KV_SPARSE | TDM_KV_BIASED | TDM_KV_STRIDED)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d has recurrent states: it cannot be %s", (int)index,
                        (desc->flags & TDM_KV_SPARSE) != 0   ? "TDM_KV_SPARSE"
                        : (desc->flags & TDM_KV_BIASED) != 0 ? "TDM_KV_BIASED"
                                                             : "TDM_KV_STRIDED");
    if (((desc->flags & TDM_KV_STRIDED) != 0) != (desc->stride > 1) || desc->stride == 1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d: stride = %d, expected 2 or more with "
                        "TDM_KV_STRIDED, else 0",
                        (int)index, (int)desc->stride);
    if ((desc->flags & TDM_KV_STRIDED) != 0 && (desc->flags & TDM_KV_BIASED) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d is TDM_KV_STRIDED: it cannot be TDM_KV_BIASED",
                        (int)index);
    if ((desc->flags & (TDM_KV_ERASED | TDM_KV_POOLED)) != 0 &&
        (desc->flags & TDM_KV_RECURRENT) == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d is %s, but has no recurrent states", (int)index,
                        (desc->flags & TDM_KV_ERASED) != 0 ? "TDM_KV_ERASED" : "TDM_KV_POOLED");
    if ((desc->flags & TDM_KV_ERASED) != 0 && (desc->flags & TDM_KV_POOLED) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cache description %d: TDM_KV_ERASED and TDM_KV_POOLED exclude one another",
                        (int)index);
    if ((desc->flags & TDM_KV_V_FROM_K) != 0) {
        if (desc->type_v != desc->type_k)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "cache description %d takes V from K, so type_v cannot be %s where "
                            "type_k is %s",
                            (int)index, tdm_type_name(desc->type_v), tdm_type_name(desc->type_k));
        if (desc->head_dim_v > desc->head_dim_k)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "cache description %d takes V from K, so head_dim_v = %d cannot exceed "
                            "head_dim_k = %d",
                            (int)index, (int)desc->head_dim_v, (int)desc->head_dim_k);
        if (((desc->flags & TDM_KV_ROTATE_K) != 0) != ((desc->flags & TDM_KV_ROTATE_V) != 0))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "cache description %d takes V from K, so both or none are rotated",
                            (int)index);
    }
    return TDM_OK;
}

tdm_status tdm_partition_check(const tdm_partition *partition, int32_t index, tdm_error *err) {
    int i;
    if (partition->layer < -1 || partition->n_unit < 0 || partition->n_segment < 1 ||
        partition->n_segment > TDM_MAX_SEGMENTS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "partition %d: layer %d, %d units, %d segments: a layer is -1 or more, "
                        "there are 0 units or more and 1 .. %d segments",
                        (int)index, (int)partition->layer, (int)partition->n_unit,
                        (int)partition->n_segment, TDM_MAX_SEGMENTS);
    if (partition->n_sub < 0 || (uint32_t)partition->whole_segments >> partition->n_segment != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "partition %d: %d parts of a unit, whole_segments = 0x%x: parts are 0 or "
                        "more, and there are %d segments",
                        (int)index, (int)partition->n_sub, (unsigned)partition->whole_segments,
                        (int)partition->n_segment);
    for (i = 0; i < TDM_MAX_SEGMENTS; i++)
        if (partition->n_sub > 1 && i < partition->n_segment &&
            (partition->whole_segments >> i & 1) == 0 &&
            partition->unit_len[i] % partition->n_sub != 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "partition %d: a unit of %d elements does not have %d equal parts",
                            (int)index, (int)partition->unit_len[i], (int)partition->n_sub);
    for (i = 0; i < TDM_MAX_SEGMENTS; i++)
        if (i < partition->n_segment ? partition->unit_len[i] < 1 : partition->unit_len[i] != 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "partition %d: a unit takes %d elements in segment %d of %d",
                            (int)index, (int)partition->unit_len[i], i, (int)partition->n_segment);
    return TDM_OK;
}
