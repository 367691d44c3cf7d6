/* SPDX-License-Identifier: MIT
 *
 * relayout.c: converts a value from the layout of one variant to another. Where each member already
 * holds what it needs, the conversion takes slices and costs nothing; otherwise it takes an
 * exchange (a gather, a sum, or both parts of an attention). A conversion is emitted once: the new
 * variant joins the value's list, and later requests find it there.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

/* ---- The box of a cut: a contiguous value as [below the axis, one pattern, the rest] ---- */

static void box_shape(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int64_t length,
                      int64_t box[TDM_MAX_DIMS]) {
    box[0] = 1;
    box[1] = length;
    box[2] = cut->repeat;
    box[3] = 1;
    for (int32_t i = 0; i < cut->axis; i++) box[0] *= ne[i];
    for (int32_t i = cut->axis + 1; i < TDM_MAX_DIMS; i++) box[2] *= ne[i];
}

/* The cut is one segment along the axis itself, so its parts need no reshape to a box. */
static bool is_plain(const meta_cut *cut) {
    return cut->repeat == 1 && cut->n_segment == 1;
}

/* Ranges along the cut axis of a member's local value, in the order in which they are joined. */
typedef struct local_ranges {
    int32_t n;
    int64_t off[TDM_MAX_SEGMENTS * TDM_MAX_SEGMENTS], len[TDM_MAX_SEGMENTS * TDM_MAX_SEGMENTS];
} local_ranges;

/* Appends a range, or extends the last one where the two adjoin. */
static void ranges_add(local_ranges *ranges, int64_t off, int64_t len) {
    int32_t last = ranges->n - 1;
    if (len <= 0) return;
    if (last >= 0 && ranges->off[last] + ranges->len[last] == off) {
        ranges->len[last] += len;
        return;
    }
    ranges->off[ranges->n] = off;
    ranges->len[ranges->n++] = len;
}

/* Where elements lo .. hi-1 of one pattern lie in member d's part by `from`. The segments of `from`
 * may begin and end anywhere, so the search goes by element numbers, and one range of elements may
 * come from several segments. */
static void ranges_find(const meta_cut *from, int32_t d, int64_t lo, int64_t hi,
                        local_ranges *ranges) {
    int64_t first = 0, at = 0; /* of the segment: its first element, and where its part begins */
    for (int32_t s = 0; s < from->n_segment; s++) {
        const tdm_layout_segment *f = &from->segments[s];
        int64_t held_lo = first + f->lo[d], held_hi = first + f->hi[d];
        int64_t take_lo = lo > held_lo ? lo : held_lo, take_hi = hi < held_hi ? hi : held_hi;
        if (take_lo < take_hi) ranges_add(ranges, at + take_lo - held_lo, take_hi - take_lo);
        first += f->n_unit;
        at += f->hi[d] - f->lo[d];
    }
}

/* Takes the ranges out of v along `axis` and joins them; -1 without memory or ranges. */
static int32_t ranges_take(meta_part *part, int32_t v, int32_t axis, const local_ranges *ranges) {
    int32_t out = -1;
    for (int32_t i = 0; i < ranges->n; i++) {
        int32_t piece = meta_part_slice(part, v, axis, ranges->off[i], ranges->len[i]);
        if (piece < 0) return -1;
        out = out < 0 ? piece : meta_part_concat(part, out, piece, axis);
        if (out < 0) return -1;
    }
    return out;
}

/* Member d's part by `to`, from a local value that holds its part by `from` (NULL: everything).
 * `from` contains `to` and has the same axis and repeat. */
static int32_t part_take(meta_part *part, int32_t v, const int64_t ne[TDM_MAX_DIMS],
                         const meta_cut *from, const meta_cut *to, int32_t d) {
    local_ranges ranges = {0};
    int64_t first = 0;
    for (int32_t s = 0; s < to->n_segment; s++) {
        const tdm_layout_segment *t = &to->segments[s];
        int64_t lo = first + t->lo[d], hi = first + t->hi[d];
        if (from == NULL)
            ranges_add(&ranges, lo, hi - lo);
        else
            ranges_find(from, d, lo, hi, &ranges);
        first += t->n_unit;
    }
    if (to->repeat == 1) return ranges_take(part, v, to->axis, &ranges);
    int64_t box[TDM_MAX_DIMS], local_ne[TDM_MAX_DIMS];
    box_shape(to, ne, from == NULL ? first : meta_cut_local_length(from, d), box);
    v = ranges_take(part, meta_part_reshape(part, v, box), 1, &ranges);
    meta_cut_local_shape(to, ne, d, local_ne);
    return meta_part_reshape(part, v, local_ne);
}

/* ---- To a split ---- */

/* Slices of a variant of which every member holds what it needs: everything (`from` NULL), or
 * ranges that contain those of `to`. The new variant is not linked. */
static int32_t split_by_slices(meta_compiler *c, int32_t variant, const meta_cut *from,
                               const meta_cut *to, int32_t layout) {
    int32_t value = meta_variant_at(c, variant)->value;
    int32_t out = meta_variant_new(c, value, layout);
    for (int32_t d = 0; out >= 0 && d < c->n_member; d++) {
        int32_t local = meta_variant_at(c, variant)->local[d];
        if (!meta_is_active(c->device, d) || local < 0 || meta_cut_local_length(to, d) == 0)
            continue;
        int32_t v =
            part_take(&c->plan->members[d].part, local, meta_value(c, value)->ne, from, to, d);
        if (v < 0) meta_out_of_memory(c);
        meta_variant_at(c, out)->local[d] = v;
    }
    return c->status == TDM_OK ? out : -1;
}

/* ---- Gathering ---- */

/* Gathers segment s: joins what each member owns of it along `axis` of the boxes. held_off[d] is
 * where the segment begins in member d's box. */
static bool segment_gather(meta_compiler *c, const meta_cut *cut, int32_t s, int32_t axis,
                           const int32_t *boxes, const int64_t *held_off, const meta_result *whole,
                           int32_t *out) {
    int32_t x[TDM_MAX_MEMBERS];
    int64_t first[TDM_MAX_MEMBERS];
    meta_result results[TDM_MAX_MEMBERS];
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) x[d] = -1;
    for (int32_t d = 0; d < c->n_member; d++) {
        int64_t lo, hi;
        results[d] = *whole;
        first[d] = 0;
        if (boxes[d] < 0) continue;
        meta_cut_owned(cut, s, d, &lo, &hi);
        if (lo == hi) continue;
        first[d] = lo;
        x[d] = meta_part_slice(&c->plan->members[d].part, boxes[d], axis,
                               held_off[d] + lo - cut->segments[s].lo[d], hi - lo);
        if (x[d] < 0) return meta_out_of_memory(c);
    }
    return meta_emit_exchange(c, TDM_EXCHANGE_GATHER, axis, x, first, NULL, results, out);
}

/* Whether parts of a variant can be moved to other members. It fails for weights in a device's
 * private layout, of which no view can be taken, and for a cut inside quantised blocks, where no
 * view can begin. */
static bool is_movable(meta_compiler *c, int32_t variant) {
    const tdm_value *v = meta_value(c, meta_variant_at(c, variant)->value);
    const char *name = tdm_graph_value_name(c->graph, meta_variant_at(c, variant)->value);
    int64_t block_len = tdm_type_get_info((tdm_type)v->type).block_len;
    meta_cut cut;
    if (v->usage != 0)
        return meta_fail(c, TDM_UNSUPPORTED,
                         "the weight '%s' is kept in the members' own layouts and stays as it is "
                         "cut",
                         name);
    if (block_len == 1 || !meta_variant_cut(c, variant, meta_variant_at(c, variant)->value, &cut))
        return true;
    for (int32_t s = 0; s < cut.n_segment && cut.axis == 0; s++)
        for (int32_t d = 0; d < c->n_member; d++)
            if (cut.segments[s].lo[d] % block_len != 0 || cut.segments[s].hi[d] % block_len != 0)
                return meta_fail(c, TDM_UNSUPPORTED,
                                 "'%s' is cut inside its blocks of %s and stays so", name,
                                 tdm_type_name((tdm_type)v->type));
    return true;
}

static int32_t gather(meta_compiler *c, int32_t variant) {
    int32_t value = meta_variant_at(c, variant)->value;
    const tdm_value *v = meta_value(c, value);
    int32_t boxes[TDM_MAX_MEMBERS], joined[TDM_MAX_MEMBERS], out = -1;
    int64_t held_off[TDM_MAX_MEMBERS] = {0}, box[TDM_MAX_DIMS];
    meta_cut cut;
    if (!meta_variant_cut(c, variant, value, &cut)) {
        meta_fail(c, TDM_INTERNAL, "a layout that no axis describes");
        return -1;
    }
    if (!is_movable(c, variant)) return -1;
    bool plain = is_plain(&cut);
    int32_t axis = plain ? cut.axis : 1;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) boxes[d] = joined[d] = -1;
    for (int32_t d = 0; d < c->n_member; d++) {
        boxes[d] = meta_variant_at(c, variant)->local[d];
        if (boxes[d] < 0 || plain) continue;
        box_shape(&cut, v->ne, meta_cut_local_length(&cut, d), box);
        boxes[d] = meta_part_reshape(&c->plan->members[d].part, boxes[d], box);
        if (boxes[d] < 0) meta_out_of_memory(c);
    }
    for (int32_t s = 0; s < cut.n_segment && c->status == TDM_OK; s++) {
        int32_t piece[TDM_MAX_MEMBERS];
        meta_result whole = meta_result_like(v);
        if (!plain) box_shape(&cut, v->ne, cut.segments[s].n_unit, whole.ne);
        if (cut.segments[s].n_unit == 0) continue;
        if (!segment_gather(c, &cut, s, axis, boxes, held_off, &whole, piece)) break;
        for (int32_t d = 0; d < c->n_member; d++) {
            held_off[d] += cut.segments[s].hi[d] - cut.segments[s].lo[d];
            if (!meta_is_active(c->device, d)) continue;
            joined[d] = joined[d] < 0 ? piece[d]
                                      : meta_part_concat(&c->plan->members[d].part, joined[d],
                                                         piece[d], axis);
            if (joined[d] < 0) meta_out_of_memory(c);
        }
    }
    out = meta_variant_new(c, value, c->exact);
    for (int32_t d = 0; out >= 0 && d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        /* A value without elements was not exchanged. */
        int32_t local = joined[d] < 0
                            ? meta_emit_zeros(c, d, v->type, v->ne)
                            : meta_part_reshape(&c->plan->members[d].part, joined[d], v->ne);
        if (local < 0) meta_out_of_memory(c);
        meta_variant_at(c, out)->local[d] = local;
    }
    /* What a layer sends to the next member's layer is no re-layout. */
    if (c->holders == NULL) c->plan->facts.n_relayout++;
    return c->status == TDM_OK ? out : -1;
}

/* ---- Merging ---- */

static int32_t sum(meta_compiler *c, int32_t variant) {
    meta_variant f = *meta_variant_at(c, variant);
    const tdm_value *v = meta_value(c, f.value);
    meta_result results[TDM_MAX_MEMBERS];
    int32_t locals[TDM_MAX_MEMBERS];
    for (int32_t d = 0; d < c->n_member; d++) results[d] = meta_result_like(v);
    const int32_t *residual = f.residual >= 0 ? meta_variant_at(c, f.residual)->local : NULL;
    if (!meta_emit_exchange(c, TDM_EXCHANGE_SUM, 0, f.local, NULL, residual, results, locals))
        return -1;
    int32_t out = meta_variant_new(c, f.value, c->exact);
    if (out >= 0) memcpy(meta_variant_at(c, out)->local, locals, sizeof locals);
    return out;
}

/* Sums addends so that each member receives its part by `to` only. `to` has one segment and
 * repeat 1. The variant has no residual. */
static int32_t sum_part(meta_compiler *c, int32_t variant, const meta_cut *to, int32_t layout) {
    meta_variant f = *meta_variant_at(c, variant);
    const tdm_value *v = meta_value(c, f.value);
    meta_result results[TDM_MAX_MEMBERS];
    int32_t locals[TDM_MAX_MEMBERS];
    int64_t first[TDM_MAX_MEMBERS] = {0};
    for (int32_t d = 0; d < c->n_member; d++) {
        results[d] = (meta_result){v->type, v->name, {0, 0, 0, 0}};
        meta_cut_local_shape(to, v->ne, d, results[d].ne);
        first[d] = to->segments[0].lo[d];
    }
    if (!meta_emit_exchange(c, TDM_EXCHANGE_SUM_PART, to->axis, f.local, first, NULL, results,
                            locals))
        return -1;
    int32_t out = meta_variant_new(c, f.value, layout);
    for (int32_t d = 0; out >= 0 && d < c->n_member; d++)
        if (meta_cut_local_length(to, d) > 0) meta_variant_at(c, out)->local[d] = locals[d];
    return out;
}

/* Gathers the parts of an attention along axis 3: one part of each sender, or two where the sender
 * added the sink. */
static bool parts_gather(meta_compiler *c, int32_t variant, int32_t n_part, int32_t *out) {
    meta_variant f = *meta_variant_at(c, variant);
    const tdm_value *v = meta_value(c, f.value);
    meta_result results[TDM_MAX_MEMBERS];
    int64_t first[TDM_MAX_MEMBERS] = {0}, ne[TDM_MAX_DIMS] = {0};
    int64_t at = 0;
    /* The variant of (m, l) belongs to the value of the attention's output, but its parts have 2
     * elements per head. So the shape comes from the parts. */
    for (int32_t d = 0; d < c->n_member; d++) {
        if (f.local[d] >= 0)
            memcpy(ne, meta_part_value(&c->plan->members[d].part, f.local[d])->ne, sizeof ne);
        first[d] = at;
        if (f.local[d] >= 0) at += ne[3];
    }
    for (int32_t d = 0; d < c->n_member; d++)
        results[d] = (meta_result){v->type, v->name, {ne[0], ne[1], ne[2], n_part}};
    return meta_emit_exchange(c, TDM_EXCHANGE_GATHER, 3, f.local, first, NULL, results, out);
}

static int32_t lse_merge(meta_compiler *c, int32_t variant) {
    int32_t ml = meta_variant_at(c, variant)->residual, n_part = 0;
    int32_t o_all[TDM_MAX_MEMBERS], ml_all[TDM_MAX_MEMBERS];
    const tdm_value *v = meta_value(c, meta_variant_at(c, variant)->value);
    for (int32_t d = 0; d < c->n_member; d++) {
        int32_t local = meta_variant_at(c, variant)->local[d];
        if (local >= 0) n_part += (int32_t)meta_part_value(&c->plan->members[d].part, local)->ne[3];
    }
    if (n_part > 0 &&
        (!parts_gather(c, variant, n_part, o_all) || !parts_gather(c, ml, n_part, ml_all)))
        return -1;
    int32_t out = meta_variant_new(c, meta_variant_at(c, variant)->value, c->equivalent);
    for (int32_t d = 0; out >= 0 && d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        if (n_part == 0) { /* a cache without pages: attention over no tokens gives zeros */
            meta_variant_at(c, out)->local[d] = meta_emit_zeros(c, d, v->type, v->ne);
            continue;
        }
        int32_t src[2] = {o_all[d], ml_all[d]}, local = -1;
        meta_result dst = {v->type, v->name, {v->ne[0], v->ne[1], v->ne[2], 1}};
        if (!meta_emit_on(c, d, TDM_OP_LSE_MERGE, NULL, src, 2, &dst, 1, &local)) return -1;
        meta_variant_at(c, out)->local[d] = local;
    }
    return out;
}

/* Replaces what every member computed by the owner's bits. */
static int32_t broadcast(meta_compiler *c, int32_t variant) {
    int32_t value = meta_variant_at(c, variant)->value, x[TDM_MAX_MEMBERS], locals[TDM_MAX_MEMBERS];
    const tdm_value *v = meta_value(c, value);
    meta_result results[TDM_MAX_MEMBERS];
    int32_t axis = 3;
    while (axis > 0 && v->ne[axis] == 1) axis--;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
        x[d] = d == c->device->owner ? meta_variant_at(c, variant)->local[d] : -1;
        results[d] = meta_result_like(v);
    }
    static const int64_t first[TDM_MAX_MEMBERS];
    if (!meta_emit_exchange(c, TDM_EXCHANGE_GATHER, axis, x, first, NULL, results, locals))
        return -1;
    int32_t out = meta_variant_new(c, value, c->exact);
    if (out >= 0) memcpy(meta_variant_at(c, out)->local, locals, sizeof locals);
    return out;
}

/* ---- Requests ---- */

static int32_t variant_find(const meta_compiler *c, int32_t value, int32_t layout) {
    int32_t f = c->plan->value_variant[value];
    while (f >= 0 && meta_variant_at(c, f)->layout != layout) f = meta_variant_at(c, f)->next;
    return f;
}

static int32_t give(meta_compiler *c, int32_t variant) {
    meta_variant_link(c, variant);
    return variant;
}

int32_t meta_convert_replicated(meta_compiler *c, int32_t value) {
    int32_t best = meta_variant_best(c, value);
    if (best < 0) return -1;
    int32_t f = variant_find(c, value, c->exact);
    if (f < 0) f = variant_find(c, value, c->equivalent);
    if (f >= 0) return f;
    switch (meta_variant_kind(c, best)) {
    case TDM_LAYOUT_SPLIT: return give(c, gather(c, best));
    case TDM_LAYOUT_PARTIAL_SUM: return give(c, sum(c, best));
    case TDM_LAYOUT_PARTIAL_LSE: return give(c, lse_merge(c, best));
    default: meta_fail(c, TDM_INTERNAL, "a value without layout"); return -1;
    }
}

int32_t meta_convert_exact(meta_compiler *c, int32_t value) {
    int32_t f = meta_convert_replicated(c, value);
    /* Members of one kind of device compute equal bits from equal bits, so no exchange is
     * needed. */
    if (f < 0 || meta_variant_at(c, f)->layout == c->exact || c->device->is_uniform) return f;
    return give(c, broadcast(c, f));
}

static int32_t convert_to_split(meta_compiler *c, int32_t value, int32_t layout) {
    const int64_t *ne = meta_value(c, value)->ne;
    meta_cut to, from;
    int32_t best = meta_variant_best(c, value);
    if (best < 0 || !is_movable(c, best)) return -1;
    if (!meta_layout_get_cut(&c->plan->layouts.layouts[layout], ne, &to)) {
        char text[400];
        meta_fail(c, TDM_INTERNAL,
                  "'%.60s' of %lld x %lld x %lld x %lld needs a layout that no axis "
                  "describes: %s",
                  tdm_graph_value_name(c->graph, value), (long long)ne[0], (long long)ne[1],
                  (long long)ne[2], (long long)ne[3],
                  meta_layout_print(&c->plan->layouts.layouts[layout], text, sizeof text));
        return -1;
    }
    if (meta_variant_kind(c, best) == TDM_LAYOUT_SPLIT &&
        meta_layout_get_cut_along(meta_variant_layout(c, best), ne, to.axis, &from) &&
        from.repeat == to.repeat && meta_cut_contains(&from, &to, c->n_member))
        return give(c, split_by_slices(c, best, &from, &to, layout));
    if (meta_variant_kind(c, best) == TDM_LAYOUT_PARTIAL_SUM &&
        meta_variant_at(c, best)->residual < 0 && is_plain(&to))
        return give(c, sum_part(c, best, &to, layout));
    int32_t all = meta_convert_replicated(c, value);
    return all < 0 ? -1 : give(c, split_by_slices(c, all, NULL, &to, layout));
}

int32_t meta_convert(meta_compiler *c, int32_t value, int32_t layout) {
    if (meta_variant_best(c, value) < 0 || layout < 0) return -1;
    if (layout == c->exact) return meta_convert_exact(c, value);
    if (layout == c->equivalent) return meta_convert_replicated(c, value);
    int32_t f = variant_find(c, value, layout);
    return f >= 0 ? f : convert_to_split(c, value, layout);
}

int32_t meta_convert_cut(meta_compiler *c, int32_t value, const meta_cut *cut) {
    return meta_convert(c, value, meta_cut_id(c, value, cut));
}

int32_t meta_convert_cut_exact(meta_compiler *c, int32_t value, const meta_cut *cut) {
    if (c->device->is_uniform || meta_cut_is_disjoint(cut, c->n_member))
        return meta_convert_cut(c, value, cut);
    int32_t best = meta_variant_best(c, value), all = -1;
    /* A gather takes every element from the one member that owns it, so its result is exact. What
     * members have computed is not, and needs the owner's bits. */
    if (best >= 0 && meta_variant_kind(c, best) == TDM_LAYOUT_SPLIT)
        all = meta_convert_replicated(c, value);
    else
        all = meta_convert_exact(c, value);
    return all < 0 ? -1 : split_by_slices(c, all, NULL, cut, meta_cut_id(c, value, cut));
}
