/* SPDX-License-Identifier: MIT
 *
 * op_exchange.c: checks of EXCHANGE: its sources against its result, and that the bytes it uses lie
 * in the arena, or in the peer memory. The shape of its destination is given, not inferred: a
 * member that sends nothing has no x to infer it from.
 */
#include "core/graph/op_infer.h"

enum { X, ARENA, STEP, RESIDUAL, X2, PEER };

/* What one exchange carries between members. A GATHER may have two. */
typedef struct payload {
    const tdm_value *x; /* NULL where the member sends nothing */
    int32_t x_index;    /* its source */
    const char *word;
    tdm_op_result *dst;
    int64_t axis, first, whole; /* as in tdm_exchange_params */
    uint64_t data_off;
} payload;

static bool is_sum(const tdm_exchange_params *p) {
    return p->kind == TDM_EXCHANGE_SUM || p->kind == TDM_EXCHANGE_SUM_PART;
}

static payload payload_of(const tdm_op_args *a, tdm_op_result *dst, int i) {
    const tdm_exchange_params *p = &a->node->params.exchange;
    if (i == 0) return (payload){a->src[X], X, "x", dst, p->axis, p->first, p->whole, p->data_off};
    return (payload){a->src[X2], X2,        "x2",      dst == NULL ? NULL : dst + 1,
                     p->axis2,   p->first2, p->whole2, p->data_off2};
}

static tdm_status axis_check(const tdm_op_args *a, const tdm_exchange_params *p, const payload *l,
                             bool is_there, tdm_error *err) {
    bool has_axis = is_there && p->kind != TDM_EXCHANGE_SUM;
    bool has_whole = has_axis && (is_sum(p) || p->phase == TDM_EXCHANGE_PUBLISH);
    bool is_second = l->x_index == X2;
    tdm_status status = tdm_op_need_range(a, is_second ? "axis2" : "axis", l->axis, 0,
                                          has_axis ? TDM_MAX_DIMS - 1 : 0, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, is_second ? "first2" : "first", l->first, 0,
                                   has_axis ? INT32_MAX : 0, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, is_second ? "whole2" : "whole", l->whole, 0,
                                   has_whole ? INT32_MAX : 0, err);
    return status;
}

static tdm_status params_check(const tdm_op_args *a, const tdm_exchange_params *p, tdm_error *err) {
    tdm_status status = tdm_op_need_range(a, "stage", p->stage, 0, INT32_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_member", p->n_member, 1, 64, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "member", p->member, 0, p->n_member - 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "kind", p->kind, 0, TDM_EXCHANGE_GATHER, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "phase", p->phase, 0, TDM_EXCHANGE_COLLECT, err);
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        payload l = payload_of(a, NULL, i);
        status = axis_check(a, p, &l, i == 0 || p->data_off2 != 0, err);
    }
    if (status != TDM_OK) return status;
    if (p->n_member < 64 && p->senders >> p->n_member != 0)
        return tdm_op_fail(a, err, "senders = 0x%llx names more than %d members",
                           (unsigned long long)p->senders, (int)p->n_member);
    if (is_sum(p) && p->wire_type != TDM_TYPE_F32 && p->wire_type != TDM_TYPE_F16 &&
        p->wire_type != TDM_TYPE_BF16 && p->wire_type != TDM_TYPE_Q8_0)
        return tdm_op_fail(a, err, "wire_type = %d is none of f32, f16, bf16, q8_0",
                           (int)p->wire_type);
    if (is_sum(p) && p->data_off2 != 0)
        return tdm_op_fail(a, err, "a sum has one payload; data_off2 is %llu",
                           (unsigned long long)p->data_off2);
    if (!is_sum(p) && (p->wire_type != 0 || p->data_stride != 0))
        return tdm_op_fail(a, err, "a gather has no wire_type (%d) and no data_stride (%llu)",
                           (int)p->wire_type, (unsigned long long)p->data_stride);
    return TDM_OK;
}

/* The source and the result of a payload are present exactly where this member is a sender and the
 * phase has them. `is_there`: the exchange has this payload. */
static tdm_status presence_check(const tdm_op_args *a, const tdm_exchange_params *p,
                                 const payload *l, bool is_there, tdm_error *err) {
    bool is_sender = (p->senders >> p->member & 1) != 0;
    bool has_x = is_there && is_sender && p->phase != TDM_EXCHANGE_COLLECT;
    bool has_y = is_there && p->phase != TDM_EXCHANGE_PUBLISH;
    if (p->phase == TDM_EXCHANGE_PUBLISH && !is_sender)
        return tdm_op_fail(a, err, "member %d publishes but is none of senders = 0x%llx",
                           (int)p->member, (unsigned long long)p->senders);
    if (has_x != (l->x != NULL))
        return tdm_op_fail(
            a, err, "member %d is %s of senders = 0x%llx, phase %d, but its %s is %s",
            (int)p->member, is_sender ? "one" : "none", (unsigned long long)p->senders,
            (int)p->phase, l->word, has_x ? "absent" : "present");
    if (has_y != l->dst->is_present)
        return tdm_op_fail(a, err, "in phase %d the result of %s is %s", (int)p->phase, l->word,
                           has_y ? "absent" : "present");
    return TDM_OK;
}

static tdm_status peer_check(const tdm_op_args *a, const tdm_exchange_params *p, tdm_error *err) {
    if (p->phase != TDM_EXCHANGE_WHOLE)
        return tdm_op_fail(a, err, "phase %d has no peer memory", (int)p->phase);
    if (a->node->src[PEER] == a->node->src[ARENA])
        return tdm_op_fail(a, err, "the peer memory is the arena");
    return tdm_op_need_type(a, PEER, "peer", TDM_TYPE_I8, err);
}

static tdm_status sources_check(const tdm_op_args *a, const tdm_exchange_params *p,
                                const tdm_op_result *dst, tdm_error *err) {
    const int64_t step_least = sizeof(tdm_step_header) / sizeof(int32_t);
    const tdm_value *step = a->src[STEP];
    char text[TDM_VALUE_TEXT_SIZE];
    if (step->kind != TDM_VALUE_INPUT || step->type != TDM_TYPE_I32 || step->ne[0] < step_least)
        return tdm_op_fail(a, err,
                           "source 2 must be the step block, or an INPUT of i32 that begins with "
                           "its header of %d, not %s",
                           (int)step_least, tdm_value_text(a->graph, a->node->src[STEP], text));
    tdm_status status = tdm_op_need_type(a, ARENA, "arena", TDM_TYPE_I8, err);
    if (status == TDM_OK && a->src[PEER] != NULL) status = peer_check(a, p, err);
    if (status != TDM_OK || a->src[RESIDUAL] == NULL) return status;
    if (!is_sum(p)) return tdm_op_fail(a, err, "a gather has no residual");
    if (!dst->is_present) return tdm_op_fail(a, err, "phase 1 has no residual");
    status = tdm_op_need_type(a, RESIDUAL, "residual", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, RESIDUAL, "residual", dst->ne[0], dst->ne[1], dst->ne[2],
                                   dst->ne[3], err);
    return status;
}

/* Writes the shape of the addends to ne_out; x has this shape where it is present. */
static tdm_status addend_find(const tdm_op_args *a, const tdm_exchange_params *p,
                              const tdm_op_result *dst, int64_t ne_out[TDM_MAX_DIMS],
                              tdm_error *err) {
    int64_t whole = p->whole;
    int i;
    const int64_t *like = dst->is_present ? dst->ne : a->src[X]->ne;
    for (i = 0; i < TDM_MAX_DIMS; i++) ne_out[i] = like[i];
    if (p->kind == TDM_EXCHANGE_SUM_PART && dst->is_present) {
        if (whole == 0 && a->src[X] != NULL) whole = a->src[X]->ne[p->axis];
        if (dst->ne[p->axis] > whole - p->first)
            return tdm_op_fail(a, err, "%lld elements from %d on along axis %d are outside %lld%s",
                               (long long)dst->ne[p->axis], (int)p->first, (int)p->axis,
                               (long long)whole,
                               p->whole == 0 && a->src[X] == NULL
                                   ? ": without x, say in `whole` how long the addends are"
                                   : "");
        ne_out[p->axis] = whole;
    }
    if (a->src[X] == NULL) return tdm_shape_check("the addends", TDM_TYPE_F32, ne_out, err);
    return tdm_op_need_shape(a, X, "x", ne_out[0], ne_out[1], ne_out[2], ne_out[3], err);
}

/* x is a part of the whole, along axis from first on. Writes the shape and type of the whole. */
static tdm_status part_check(const tdm_op_args *a, const payload *l, int64_t ne_out[TDM_MAX_DIMS],
                             tdm_type *type_out, tdm_error *err) {
    const tdm_value *x = l->x;
    char shape[TDM_SHAPE_TEXT_SIZE], text[TDM_VALUE_TEXT_SIZE];
    int i;
    for (i = 0; i < TDM_MAX_DIMS; i++) ne_out[i] = l->dst->is_present ? l->dst->ne[i] : x->ne[i];
    *type_out = (tdm_type)(l->dst->is_present ? l->dst->type : x->type);
    if (!l->dst->is_present) ne_out[l->axis] = l->whole;
    if (x == NULL) return tdm_op_need_range(a, "first", l->first, 0, 0, err);
    tdm_status status = tdm_op_need_type(a, l->x_index, l->word, *type_out, err);
    if (status == TDM_OK)
        status = tdm_shape_check("the result of an exchange", (int32_t)*type_out, ne_out, err);
    if (status != TDM_OK) return status;
    for (i = 0; i < TDM_MAX_DIMS; i++)
        if (i == l->axis ? x->ne[i] > ne_out[i] - l->first : x->ne[i] != ne_out[i])
            return tdm_op_fail(a, err,
                               "%s is no part from %d on along axis %d of the result %s: %s",
                               l->word, (int)l->first, (int)l->axis, tdm_shape_text(ne_out, shape),
                               tdm_value_text(a->graph, a->node->src[l->x_index], text));
    int block_len = tdm_type_get_info(*type_out).block_len;
    if (l->axis == 0 && l->first % block_len != 0)
        return tdm_op_fail(a, err, "first = %d cuts a block of %d elements", (int)l->first,
                           block_len);
    return TDM_OK;
}

/* [off, off + n * stride) is after the abort word and inside a source: the arena or the peer
 * memory. */
static tdm_status inside_check(const tdm_op_args *a, int source, const char *word, uint64_t off,
                               uint64_t n, uint64_t stride, uint64_t align, tdm_error *err) {
    uint64_t size = (uint64_t)tdm_shape_count(a->src[source]->ne), bytes;
    char text[TDM_VALUE_TEXT_SIZE];
    if (off < 8 || off % align != 0 || (n > 1 && stride % align != 0) ||
        __builtin_mul_overflow(n, stride, &bytes) || off > size || bytes > size - off)
        return tdm_op_fail(a, err,
                           "%llu %s of %llu bytes at offset %llu (multiples of %llu, behind the "
                           "abort word) do not fit the %s %s",
                           (unsigned long long)n, word, (unsigned long long)stride,
                           (unsigned long long)off, (unsigned long long)align,
                           source == PEER ? "peer memory" : "arena",
                           tdm_value_text(a->graph, a->node->src[source], text));
    return TDM_OK;
}

/* Where flags and data are: the peer memory, or without it the arena. */
static tdm_status arena_check(const tdm_op_args *a, const char *word, uint64_t off, uint64_t n,
                              uint64_t stride, uint64_t align, tdm_error *err) {
    return inside_check(a, a->src[PEER] != NULL ? PEER : ARENA, word, off, n, stride, align, err);
}

/* Data of n pieces and the flags lie in the arena, in both areas and apart from each other. The
 * areas of one exchange do not overlap. */
static tdm_status places_check(const tdm_op_args *a, const tdm_exchange_params *p,
                               uint64_t data_off, const char *word, uint64_t n, uint64_t stride,
                               tdm_error *err) {
    uint64_t n_member = (uint64_t)p->n_member, data_end, flag_end, second;
    tdm_status status = arena_check(a, "flags", p->flag_off, n_member, 64, 8, err);
    if (status == TDM_OK && a->src[PEER] != NULL) /* they are in the arena, too */
        status = inside_check(a, ARENA, "flags", p->flag_off, n_member, 64, 8, err);
    if (status == TDM_OK) status = arena_check(a, word, data_off, n, stride, 4, err);
    if (status != TDM_OK) return status;
    if (p->area_stride != 0 && p->area_stride < n * stride)
        return tdm_op_fail(a, err, "area_stride = %llu is less than the %llu bytes of the %s",
                           (unsigned long long)p->area_stride, (unsigned long long)(n * stride),
                           word);
    if (__builtin_add_overflow(data_off, p->area_stride, &second)) second = UINT64_MAX;
    status = arena_check(a, word, second, n, stride, 4, err);
    if (status != TDM_OK) return status;
    data_end = second + n * stride;
    flag_end = p->flag_off + n_member * 64;
    if (data_off < flag_end && p->flag_off < data_end)
        return tdm_op_fail(a, err, "flags at %llu lie inside the %s at %llu .. %llu",
                           (unsigned long long)p->flag_off, word, (unsigned long long)data_off,
                           (unsigned long long)data_end);
    return TDM_OK;
}

static tdm_status gather_check(const tdm_op_args *a, const tdm_exchange_params *p,
                               tdm_op_result *dst, tdm_error *err) {
    uint64_t begin[2] = {0, 0}, end[2] = {0, 0};
    tdm_status status = TDM_OK;
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        payload l = payload_of(a, dst, i);
        int64_t ne[TDM_MAX_DIMS];
        tdm_type type;
        if (i == 1 && p->data_off2 == 0) return TDM_OK;
        status = part_check(a, &l, ne, &type, err);
        if (status != TDM_OK) return status;
        uint64_t size = tdm_tensor_canonical_size(type, ne);
        status = places_check(a, p, l.data_off, "gathered values", 1, size, err);
        begin[i] = l.data_off;
        end[i] = l.data_off + size;
    }
    if (status == TDM_OK && begin[0] < end[1] && begin[1] < end[0])
        status = tdm_op_fail(a, err, "the payloads at %llu and %llu overlap",
                             (unsigned long long)begin[0], (unsigned long long)begin[1]);
    if (status != TDM_OK || p->area_stride == 0) return status;
    /* Both payloads fit into an area: otherwise one of this exchange, in area 0, would overwrite
     * the other of the exchange before, in area 1. */
    uint64_t extent =
        (end[0] > end[1] ? end[0] : end[1]) - (begin[0] < begin[1] ? begin[0] : begin[1]);
    if (p->area_stride < extent)
        return tdm_op_fail(a, err,
                           "area_stride = %llu is less than the %llu bytes of both payloads",
                           (unsigned long long)p->area_stride, (unsigned long long)extent);
    return TDM_OK;
}

tdm_status tdm_infer_exchange(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_exchange_params *p = &a->node->params.exchange;
    int64_t ne[TDM_MAX_DIMS], count, block_len;
    uint64_t size;
    tdm_status status = params_check(a, p, err);
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        payload l = payload_of(a, dst, i);
        status = presence_check(a, p, &l, i == 0 || p->data_off2 != 0, err);
        if (status == TDM_OK && l.dst->is_present)
            status = tdm_shape_check("the result of an exchange", l.dst->type, l.dst->ne, err);
    }
    if (status == TDM_OK) status = sources_check(a, p, dst, err);
    if (status != TDM_OK) return status;
    if (!is_sum(p)) return gather_check(a, p, dst, err);
    if (a->src[X] != NULL) status = tdm_op_need_type(a, X, "x", TDM_TYPE_F32, err);
    if (status != TDM_OK) return status;
    dst->type = TDM_TYPE_F32;
    status = addend_find(a, p, dst, ne, err);
    if (status != TDM_OK) return status;
    count = tdm_shape_count(ne);
    block_len = tdm_type_get_info((tdm_type)p->wire_type).block_len;
    size =
        tdm_type_row_size((tdm_type)p->wire_type, (count + block_len - 1) / block_len * block_len);
    if (p->data_stride < size)
        return tdm_op_fail(a, err, "data_stride = %llu is less than the %llu bytes of an addend",
                           (unsigned long long)p->data_stride, (unsigned long long)size);
    return places_check(a, p, p->data_off, "addends", (uint64_t)p->n_member, p->data_stride, err);
}
