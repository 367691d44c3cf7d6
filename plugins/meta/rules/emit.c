/* SPDX-License-Identifier: MIT
 *
 * emit.c: adds nodes to the members' parts. An exchange is added to the parts of all active members
 * in one call, so that all members pass all exchanges in the same order. A member that passed them
 * in another order would wait for a flag that no member writes.
 */
#include <string.h>

#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/rules/compile.h"

/* The shape of a value's part on member d in a layout; false where it is empty there. */
static bool local_shape(const meta_compiler *c, int32_t value, int32_t layout, int32_t d,
                        int64_t ne_out[TDM_MAX_DIMS]) {
    const tdm_layout *l = &c->plan->layouts.layouts[layout];
    const int64_t *ne = meta_value(c, value)->ne;
    meta_cut cut;
    memcpy(ne_out, ne, sizeof(int64_t) * TDM_MAX_DIMS);
    if (l->kind != TDM_LAYOUT_SPLIT) return true;
    if (!meta_layout_get_cut(l, ne, &cut)) return false;
    meta_cut_local_shape(&cut, ne, d, ne_out);
    return meta_cut_local_length(&cut, d) > 0;
}

bool meta_emit_on(meta_compiler *c, int32_t d, int32_t op, const tdm_op_params *params,
                  const int32_t *src, int32_t n_src, const meta_result *dst, int32_t n_dst,
                  int32_t *dst_out) {
    if (c->status != TDM_OK) return false;
    if (!meta_part_add_node(&c->plan->members[d].part, op, params, src, n_src, dst, n_dst, dst_out))
        return meta_out_of_memory(c);
    return true;
}

/* Member d's local sources; false where it holds less than all of them. `state` takes the place of
 * source state_src. */
static bool sources_local(const meta_compiler *c, const tdm_node *node, const meta_emission *e,
                          int32_t d, int32_t *local) {
    for (int32_t i = 0; i < node->n_src; i++) {
        bool is_state = e->state != NULL && i == e->state_src;
        bool is_absent = !is_state && e->src[i] < 0;
        local[i] = is_state    ? e->state->local[d]
                   : is_absent ? -1
                               : meta_variant_at(c, e->src[i])->local[d];
        if (!is_absent && local[i] < 0 && (e->single_src >> i & 1) == 0) return false;
    }
    return true;
}

/* The types and shapes of member d's destinations; false where one of them is empty there. */
static bool results_local(const meta_compiler *c, const tdm_node *node, const int32_t *dst_layout,
                          int32_t d, meta_result *results) {
    for (int32_t i = 0; i < node->n_dst; i++) {
        results[i].type = -1;
        if (node->dst[i] < 0) continue;
        results[i] = meta_result_like(meta_value(c, node->dst[i]));
        if (!local_shape(c, node->dst[i], dst_layout[i], d, results[i].ne)) return false;
    }
    return true;
}

/* Emits the node on member d, which holds all its sources. */
static bool node_emit(meta_compiler *c, const tdm_node *node, const meta_emission *e, int32_t d,
                      const int32_t *local, const meta_result *results, int32_t *out) {
    tdm_op_params params = e->params != NULL ? e->params[d] : node->params;
    /* The parameters of every op on a cache begin with the index of its description. */
    if (e->state != NULL) params.kv.kv = e->state->kv[d];
    if (node->op != TDM_OP_RESHAPE)
        return meta_emit_on(c, d, node->op, &params, local, node->n_src, results, node->n_dst, out);
    out[0] = meta_part_reshape(&c->plan->members[d].part, local[0], results[0].ne);
    return out[0] >= 0 || meta_out_of_memory(c);
}

bool meta_emit(meta_compiler *c, const meta_emission *e, int32_t *variant_out) {
    if (c->status != TDM_OK) return false;
    const tdm_node *node = tdm_graph_node(c->graph, c->node);
    for (int32_t i = 0; i < node->n_dst; i++)
        variant_out[i] =
            node->dst[i] < 0 ? -1 : meta_variant_new(c, node->dst[i], e->dst_layout[i]);
    for (int32_t d = 0; d < c->n_member && c->status == TDM_OK; d++) {
        int32_t local[TDM_MAX_SRC], out[TDM_MAX_DST];
        meta_result results[TDM_MAX_DST];
        if (!meta_is_active(c->device, d) || !sources_local(c, node, e, d, local) ||
            !results_local(c, node, e->dst_layout, d, results))
            continue;
        if (!node_emit(c, node, e, d, local, results, out)) return false;
        for (int32_t i = 0; i < node->n_dst; i++)
            if (node->dst[i] >= 0) meta_variant_at(c, variant_out[i])->local[d] = out[i];
    }
    return c->status == TDM_OK;
}

bool meta_emit_give(meta_compiler *c, const int32_t *src, int32_t dst_layout,
                    const tdm_op_params *params) {
    int32_t variant[TDM_MAX_DST];
    const int32_t layouts[TDM_MAX_DST] = {dst_layout, dst_layout};
    const meta_emission e = {.src = src, .dst_layout = layouts, .params = params};
    if (!meta_emit(c, &e, variant)) return false;
    meta_variant_link(c, variant[0]);
    return c->status == TDM_OK;
}

int32_t meta_emit_zeros(meta_compiler *c, int32_t d, int32_t type, const int64_t ne[TDM_MAX_DIMS]) {
    const tdm_value zeros = {.kind = TDM_VALUE_INPUT, .type = type};
    meta_part *part = &c->plan->members[d].part;
    uint64_t size = tdm_tensor_canonical_size((tdm_type)type, ne);
    int32_t z = meta_part_add_value(part, &zeros, ne, META_SLOT_ZEROS, -1);
    if (size > part->zeros_size) part->zeros_size = size;
    if (z < 0) meta_out_of_memory(c);
    return z;
}

/* ---- Exchanges ---- */

/* Adds the values for the arena, the peer memory and the epoch to a part. Only exchanges read
 * them. */
static bool words_add(meta_compiler *c, meta_part *part) {
    static const tdm_value arena = {.kind = TDM_VALUE_STATE, .type = TDM_TYPE_I8};
    static const tdm_value epoch = {.kind = TDM_VALUE_INPUT, .type = TDM_TYPE_I32};
    const int64_t arena_ne[TDM_MAX_DIMS] = {1, 1, 1, 1}; /* arena_assign sets the size */
    const int64_t epoch_ne[TDM_MAX_DIMS] = {sizeof(tdm_step_header) / sizeof(int32_t), 1, 1, 1};
    if (part->arena < 0)
        part->arena = meta_part_add_value(part, &arena, arena_ne, META_SLOT_ARENA, -1);
    if (part->peer < 0 && meta_uses_peer(c->device))
        part->peer = meta_part_add_value(part, &arena, arena_ne, META_SLOT_PEER, -1);
    if (part->epoch < 0)
        part->epoch = meta_part_add_value(part, &epoch, epoch_ne, META_SLOT_EPOCH, -1);
    return (part->arena >= 0 && part->epoch >= 0 &&
            (part->peer >= 0 || !meta_uses_peer(c->device))) ||
           meta_out_of_memory(c);
}

/* The result of an exchange without communication: the group has one active member, or no member
 * sends anything. The result is the member's own value plus its residual; zeros where both are
 * absent. */
static bool stay_apart(meta_compiler *c, const meta_crossing *w, const int32_t *residual,
                       int32_t *out) {
    for (int32_t d = 0; d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        int32_t src[2] = {w->x[d], residual != NULL ? residual[d] : -1};
        if (src[0] >= 0 && src[1] >= 0) {
            if (!meta_emit_on(c, d, TDM_OP_ADD, NULL, src, 2, &w->results[d], 1, &out[d]))
                return false;
            continue;
        }
        out[d] = src[0] >= 0   ? src[0]
                 : src[1] >= 0 ? src[1]
                               : meta_emit_zeros(c, d, w->results[d].type, w->results[d].ne);
        if (out[d] < 0) return false;
    }
    return true;
}

/* The local value that member d sends or adds as a residual. A weight that the host would read is
 * copied into a temporary first: a member that is itself a group can hand out the bytes of
 * temporaries, but not those of a weight that it has cut. */
static int32_t source_make(meta_compiler *c, int32_t d, int32_t x, bool is_sum) {
    meta_part *part = &c->plan->members[d].part;
    const tdm_value *v = meta_part_value(part, x);
    bool is_weight = meta_part_value(part, part->places[x].base)->kind == TDM_VALUE_WEIGHT;
    meta_result dst = meta_result_like(v);
    if (is_weight && c->device->members[d].exchange == META_EXCHANGE_BY_HOST &&
        !tdm_type_get_info((tdm_type)v->type).is_quantized) {
        int32_t copy = -1;
        return meta_emit_on(c, d, TDM_OP_COPY, NULL, &x, 1, &dst, 1, &copy) ? copy : -1;
    }
    return is_sum ? meta_part_contiguous(part, x) : x;
}

/* The type in which addends are sent. A value with one number per token (a sum of squares) is sent
 * as f32: a smaller type would save nothing, and the number may exceed the range of f16, or be so
 * large that the other numbers of its block are rounded to 0. For the same reason a block may not
 * reach over the end of a row. */
static tdm_type wire_of(const meta_compiler *c, const int32_t *x) {
    tdm_type wire = c->device->options.reduce_type;
    for (int32_t d = 0; d < c->n_member; d++) {
        if (!meta_is_active(c->device, d) || x[d] < 0) continue;
        int64_t row = meta_part_value(&c->plan->members[d].part, x[d])->ne[0];
        if (row == 1 || row % tdm_type_get_info(wire).block_len != 0) return TDM_TYPE_F32;
    }
    return wire;
}

/* What the members send: who, and how much. */
typedef struct sending {
    tdm_exchange_kind kind;
    tdm_type wire;     /* of sums */
    uint64_t senders;  /* a bit for each rank */
    uint64_t stride;   /* bytes of arena for each member's addend */
    uint64_t need[2];  /* bytes of arena of each payload */
    uint64_t sent;     /* bytes, all together */
    int64_t long_axis; /* length of the addends along the axis, for members that send none */
} sending;

static void sending_find(const meta_compiler *c, tdm_exchange_kind kind, const meta_crossing *w,
                         int n, sending *out) {
    *out = (sending){.kind = kind, .wire = TDM_TYPE_F32};
    if (kind != TDM_EXCHANGE_GATHER) out->wire = wire_of(c, w->x);
    int64_t block_len = tdm_type_get_info(out->wire).block_len;
    for (int i = 0; i < n; i++)
        for (int32_t d = 0; d < c->n_member; d++) {
            if (!meta_is_active(c->device, d) || w[i].x[d] < 0) continue;
            const tdm_value *v = meta_part_value(&c->plan->members[d].part, w[i].x[d]);
            int64_t rounded = (tdm_shape_count(v->ne) + block_len - 1) / block_len * block_len;
            uint64_t size = kind == TDM_EXCHANGE_GATHER
                                ? tdm_tensor_canonical_size((tdm_type)v->type, v->ne)
                                : tdm_type_row_size(out->wire, rounded);
            out->senders |= UINT64_C(1) << c->device->members[d].rank;
            if (size > out->stride) out->stride = size;
            out->long_axis = v->ne[w[i].axis];
            out->sent += size;
        }
    out->stride = (out->stride + 63) / 64 * 64;
    for (int i = 0; i < n; i++) {
        const meta_result *whole = &w[i].results[c->device->owner];
        out->need[i] = kind == TDM_EXCHANGE_GATHER
                           ? tdm_tensor_canonical_size((tdm_type)whole->type, whole->ne)
                           : out->stride * (uint64_t)c->device->n_active;
        out->need[i] = (out->need[i] + 63) / 64 * 64;
    }
}

/* The parameters of member d's EXCHANGE. Offsets of data count from the beginning of an area;
 * arena_assign adds where that is. */
static tdm_exchange_params exchange_params(const meta_compiler *c, const sending *all,
                                           const meta_crossing *w, int n, int32_t d) {
    bool is_part = all->kind == TDM_EXCHANGE_SUM_PART;
    tdm_exchange_params p = {.stage = c->n_exchange,
                             .member = c->device->members[d].rank,
                             .n_member = c->device->n_active,
                             .senders = all->senders,
                             .kind = (int32_t)all->kind,
                             .axis = w[0].axis};
    if (all->kind != TDM_EXCHANGE_GATHER) {
        p.wire_type = (int32_t)all->wire;
        p.data_stride = all->stride;
    }
    if (w[0].first != NULL && (w[0].x[d] >= 0 || is_part)) p.first = (int32_t)w[0].first[d];
    if (is_part) p.whole = (int32_t)all->long_axis;
    if (n < 2) return p;
    p.axis2 = w[1].axis;
    if (w[1].first != NULL && w[1].x[d] >= 0) p.first2 = (int32_t)w[1].first[d];
    p.data_off2 = all->need[0];
    return p;
}

/* Emits member d's PUBLISH where it sends something. Changes parameters and sources into those of
 * the COLLECT that follows. */
static bool publish_emit(meta_compiler *c, int32_t d, tdm_op_params *params, int32_t *src,
                         const meta_result *results) {
    static const meta_result none[2] = {{.type = -1}, {.type = -1}};
    tdm_op_params publish = *params;
    tdm_exchange_params *p = &publish.exchange, *collect = &params->exchange;
    bool is_gather = p->kind == TDM_EXCHANGE_GATHER;
    const int32_t sent[6] = {src[0], src[1], src[2], -1, src[4], -1};
    int32_t out[2];
    p->phase = TDM_EXCHANGE_PUBLISH;
    if (is_gather) p->whole = (int32_t)results[0].ne[p->axis];
    if (is_gather && p->data_off2 != 0) p->whole2 = (int32_t)results[1].ne[p->axis2];
    if ((src[0] >= 0 || src[4] >= 0) &&
        !meta_emit_on(c, d, TDM_OP_EXCHANGE, &publish, sent, 6, none, 2, out))
        return false;
    collect->phase = TDM_EXCHANGE_COLLECT;
    if (is_gather) collect->first = collect->first2 = 0;
    src[0] = src[4] = -1;
    return true;
}

/* Member d's EXCHANGE; residual is a local value, -1 = none. */
static bool member_exchange(meta_compiler *c, int32_t d, const tdm_exchange_params *exchange,
                            const meta_crossing *w, int n, int32_t residual) {
    static const int places[2] = {0, 4}; /* of x and x2 among the sources */
    meta_part *part = &c->plan->members[d].part;
    tdm_op_params params = {{{0}}};
    int32_t src[6] = {-1, -1, -1, -1, -1, -1}, out[2] = {-1, -1};
    meta_result results[2] = {w[0].results[d], {.type = -1}};
    bool is_in_phases = c->device->members[d].exchange == META_EXCHANGE_IN_PHASES;
    params.exchange = *exchange;
    if (!words_add(c, part)) return false;
    for (int i = 0; i < n; i++) {
        results[i] = w[i].results[d];
        if (w[i].x[d] < 0) continue;
        src[places[i]] = source_make(c, d, w[i].x[d], exchange->kind != TDM_EXCHANGE_GATHER);
        if (src[places[i]] < 0) return meta_out_of_memory(c);
    }
    if (residual >= 0 && (src[3] = source_make(c, d, residual, true)) < 0)
        return meta_out_of_memory(c);
    src[1] = part->arena;
    src[2] = part->epoch;
    src[5] = part->peer;
    if (is_in_phases && !publish_emit(c, d, &params, src, results)) return false;
    if (!meta_emit_on(c, d, TDM_OP_EXCHANGE, &params, src, 6, results, 2, out)) return false;
    for (int i = 0; i < n; i++) w[i].out[d] = out[i];
    return true;
}

static bool exchange_emit(meta_compiler *c, tdm_exchange_kind kind, const meta_crossing *w, int n,
                          const int32_t *residual) {
    sending all;
    for (int i = 0; i < n; i++)
        for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) w[i].out[d] = -1;
    if (c->status != TDM_OK) return false;
    if (c->n_exchange == META_ARENA_MAX_EXCHANGES)
        return meta_fail(c, TDM_OUT_OF_RANGE, "more than %d exchanges in one graph",
                         META_ARENA_MAX_EXCHANGES);
    sending_find(c, kind, w, n, &all);
    if (c->device->n_active == 1 || all.senders == 0) {
        for (int i = 0; i < n; i++)
            if (!stay_apart(c, &w[i], residual, w[i].out)) return false;
        return true;
    }
    uint64_t need = all.need[0] + (n > 1 ? all.need[1] : 0);
    if (need > c->data_size) c->data_size = need;
    for (int32_t d = 0; d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        tdm_exchange_params params = exchange_params(c, &all, w, n, d);
        if (!member_exchange(c, d, &params, w, n, residual != NULL ? residual[d] : -1))
            return false;
    }
    c->n_exchange++;
    c->plan->facts.n_exchange++;
    c->plan->facts.size += all.sent;
    /* A member writes what it sends, reads what all send, or its part of that, and writes the
     * result: a sum, a part of one, or all that was sent. */
    const double active = c->device->n_active, sent = (double)all.sent, own = sent / active;
    c->plan->facts.moved += kind == TDM_EXCHANGE_GATHER     ? own + sent + sent
                            : kind == TDM_EXCHANGE_SUM_PART ? own + own + own / active
                                                            : own + sent + own;
    return true;
}

bool meta_emit_exchange(meta_compiler *c, tdm_exchange_kind kind, int32_t axis, const int32_t *x,
                        const int64_t *first, const int32_t *residual, const meta_result *results,
                        int32_t *out) {
    const meta_crossing what = {axis, x, first, results, out};
    return exchange_emit(c, kind, &what, 1, residual);
}

/* Whether a payload of 0 bytes crosses. It has nothing to send, and no place in the arena. */
static bool is_empty(const meta_compiler *c, const meta_crossing *w) {
    return tdm_shape_count(w->results[c->device->owner].ne) == 0;
}

bool meta_emit_gathers(meta_compiler *c, const meta_crossing *what, int n) {
    for (int i = 0; i < n; i += 2) {
        bool is_pair = i + 1 < n && !is_empty(c, &what[i]) && !is_empty(c, &what[i + 1]);
        for (int32_t d = 0; d < c->n_member && is_pair; d++)
            is_pair = (what[i].x[d] >= 0) == (what[i + 1].x[d] >= 0);
        if (!exchange_emit(c, TDM_EXCHANGE_GATHER, &what[i], is_pair ? 2 : 1, NULL)) return false;
        if (!is_pair && i + 1 < n && !exchange_emit(c, TDM_EXCHANGE_GATHER, &what[i + 1], 1, NULL))
            return false;
    }
    return true;
}
