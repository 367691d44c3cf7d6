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

/* Whether parts of a variant can be moved to other members. It fails for weights in a device's
 * private layout, of which no view can be taken, and for quantised values that are cut inside a
 * block, where no view can begin, or into several segments, because CONCAT joins no blocks. */
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
    int32_t n_joined = 0;
    for (int32_t s = 0; s < cut.n_segment; s++) n_joined += cut.segments[s].n_unit > 0;
    if (n_joined > 1)
        return meta_fail(c, TDM_UNSUPPORTED,
                         "'%s' is cut into %d segments of blocks of %s, which cannot be joined, "
                         "and stays so",
                         name, (int)n_joined, tdm_type_name((tdm_type)v->type));
    for (int32_t s = 0; s < cut.n_segment && cut.axis == 0; s++)
        for (int32_t d = 0; d < c->n_member; d++)
            if (cut.segments[s].lo[d] % block_len != 0 || cut.segments[s].hi[d] % block_len != 0)
                return meta_fail(c, TDM_UNSUPPORTED,
                                 "'%s' is cut inside its blocks of %s and stays so", name,
                                 tdm_type_name((tdm_type)v->type));
    return true;
}

/* A value that is gathered: its parts as boxes, and what is joined of them so far. */
typedef struct gather_job {
    int32_t value, axis; /* that the parts are joined along */
    bool is_plain;
    meta_cut cut;
    int32_t next_segment;
    int32_t boxes[TDM_MAX_MEMBERS], joined[TDM_MAX_MEMBERS];
    int64_t held_off[TDM_MAX_MEMBERS]; /* where next_segment begins in each box */
} gather_job;

static bool gather_begin(meta_compiler *c, int32_t variant, gather_job *job) {
    int64_t box[TDM_MAX_DIMS];
    *job = (gather_job){.value = meta_variant_at(c, variant)->value};
    if (!meta_variant_cut(c, variant, job->value, &job->cut))
        return meta_fail(c, TDM_INTERNAL, "a layout that no axis describes");
    if (!is_movable(c, variant)) return false;
    job->is_plain = is_plain(&job->cut);
    job->axis = job->is_plain ? job->cut.axis : 1;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) job->boxes[d] = job->joined[d] = -1;
    for (int32_t d = 0; d < c->n_member; d++) {
        job->boxes[d] = meta_variant_at(c, variant)->local[d];
        if (job->boxes[d] < 0 || job->is_plain) continue;
        box_shape(&job->cut, meta_value(c, job->value)->ne, meta_cut_local_length(&job->cut, d),
                  box);
        job->boxes[d] = meta_part_reshape(&c->plan->members[d].part, job->boxes[d], box);
        if (job->boxes[d] < 0) return meta_out_of_memory(c);
    }
    /* A segment without elements is not sent. */
    while (job->next_segment < job->cut.n_segment &&
           job->cut.segments[job->next_segment].n_unit == 0)
        job->next_segment++;
    return true;
}

/* Arrays of one meta_crossing. */
typedef struct crossing_room {
    int32_t x[TDM_MAX_MEMBERS], out[TDM_MAX_MEMBERS];
    int64_t first[TDM_MAX_MEMBERS];
    meta_result results[TDM_MAX_MEMBERS];
} crossing_room;

/* The next segment as a value that crosses: each member sends what it owns of it. */
static bool segment_send(meta_compiler *c, const gather_job *job, crossing_room *room,
                         meta_crossing *what) {
    int32_t s = job->next_segment;
    const tdm_value *v = meta_value(c, job->value);
    meta_result whole = meta_result_like(v);
    if (!job->is_plain) box_shape(&job->cut, v->ne, job->cut.segments[s].n_unit, whole.ne);
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
        int64_t lo, hi;
        room->x[d] = -1;
        room->results[d] = whole;
        room->first[d] = 0;
        if (d >= c->n_member || job->boxes[d] < 0) continue;
        meta_cut_owned(&job->cut, s, d, &lo, &hi);
        if (lo == hi) continue;
        room->first[d] = lo;
        room->x[d] = meta_part_slice(&c->plan->members[d].part, job->boxes[d], job->axis,
                                     job->held_off[d] + lo - job->cut.segments[s].lo[d], hi - lo);
        if (room->x[d] < 0) return meta_out_of_memory(c);
    }
    *what = (meta_crossing){job->axis, room->x, room->first, room->results, room->out};
    return true;
}

/* Joins what arrived to what came before it, and moves on to the next segment. */
static bool segment_join(meta_compiler *c, gather_job *job, const crossing_room *room) {
    const tdm_layout_segment *segment = &job->cut.segments[job->next_segment];
    for (int32_t d = 0; d < c->n_member; d++) {
        job->held_off[d] += segment->hi[d] - segment->lo[d];
        if (!meta_is_active(c->device, d)) continue;
        int32_t *joined = &job->joined[d];
        *joined = *joined < 0 ? room->out[d]
                              : meta_part_concat(&c->plan->members[d].part, *joined, room->out[d],
                                                 job->axis);
        if (*joined < 0) return meta_out_of_memory(c);
    }
    do job->next_segment++;
    while (job->next_segment < job->cut.n_segment &&
           job->cut.segments[job->next_segment].n_unit == 0);
    return true;
}

/* Copies of the whole value on every member; the variant is not linked. */
static int32_t gather_end(meta_compiler *c, const gather_job *job) {
    const tdm_value *v = meta_value(c, job->value);
    int32_t out = meta_variant_new(c, job->value, c->exact);
    for (int32_t d = 0; out >= 0 && d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        /* A value without elements was not exchanged. */
        int32_t local = job->joined[d] < 0
                            ? meta_emit_zeros(c, d, v->type, v->ne)
                            : meta_part_reshape(&c->plan->members[d].part, job->joined[d], v->ne);
        if (local < 0) meta_out_of_memory(c);
        meta_variant_at(c, out)->local[d] = local;
    }
    /* What a layer sends to the next member's layer is no re-layout. */
    if (c->holders == NULL) c->plan->facts.n_relayout++;
    return c->status == TDM_OK ? out : -1;
}

/* Gathers up to MAX_TOGETHER split variants, with as few exchanges as possible. */
enum { MAX_TOGETHER = 2 };
static bool gather(meta_compiler *c, const int32_t *variants, int n, int32_t *out) {
    gather_job jobs[MAX_TOGETHER];
    crossing_room rooms[MAX_TOGETHER];
    meta_crossing what[MAX_TOGETHER] = {{0}};
    for (int i = 0; i < n; i++)
        if (!gather_begin(c, variants[i], &jobs[i])) return false;
    for (int n_sent = 1; n_sent > 0;) {
        int from[MAX_TOGETHER]; /* the job of each crossing */
        n_sent = 0;
        for (int i = 0; i < n; i++) {
            if (jobs[i].next_segment == jobs[i].cut.n_segment) continue;
            if (!segment_send(c, &jobs[i], &rooms[n_sent], &what[n_sent])) return false;
            from[n_sent++] = i;
        }
        if (!meta_emit_gathers(c, what, n_sent)) return false;
        for (int k = 0; k < n_sent; k++)
            if (!segment_join(c, &jobs[from[k]], &rooms[k])) return false;
    }
    for (int i = 0; i < n; i++) out[i] = gather_end(c, &jobs[i]);
    return c->status == TDM_OK;
}

/* ---- Merging ---- */

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

/* The tokens of a sum in equal parts, one for each active member. False where there are fewer
 * tokens than members. */
static bool scatter_cut(const meta_compiler *c, const tdm_value *v, meta_cut *out) {
    int32_t axis = TDM_MAX_DIMS - 1;
    const int64_t n = c->device->n_active;
    while (axis > 0 && v->ne[axis] == 1) axis--;
    if (axis == 0 || v->ne[axis] < n) return false;
    *out = (meta_cut){.axis = axis, .repeat = 1, .n_segment = 1};
    out->segments[0].n_unit = v->ne[axis];
    for (int32_t d = 0; d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        out->segments[0].lo[d] = v->ne[axis] * c->device->members[d].rank / n;
        out->segments[0].hi[d] = v->ne[axis] * (c->device->members[d].rank + 1) / n;
    }
    return true;
}

/* Whether a sum crosses in two exchanges: each member sums its part, then the parts are gathered.
 * In one exchange a member reads the addends of all senders; in two it reads a part of each, and
 * the parts of the sum. That is less from three members on. The second exchange costs time of its
 * own, so that the sum must be large: that of a long prompt. */
static bool is_scattered(const meta_compiler *c, int32_t variant) {
    const meta_variant *f = meta_variant_at(c, variant);
    const tdm_value *v = meta_value(c, f->value);
    const double n = c->device->n_active;
    int32_t n_sender = 0;
    meta_cut unused;
    for (int32_t d = 0; d < c->n_member; d++)
        n_sender += meta_is_active(c->device, d) && f->local[d] >= 0;
    if (n_sender < 2 || !scatter_cut(c, v, &unused)) return false;
    double wire = (double)tdm_type_row_size(c->device->options.reduce_type, v->ne[0]) *
                  (double)tdm_shape_rows(v->ne);
    double size = (double)tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    double saved = n_sender * wire * (1 - 1 / n) - size * (1 + 1 / n);
    return saved >= (double)c->device->scatter_min;
}

/* Adds each member's part of the residual to its part of a sum; false after a failure. */
static bool part_residual_add(meta_compiler *c, int32_t part, int32_t residual,
                              const meta_cut *cut) {
    for (int32_t d = 0; d < c->n_member; d++) {
        int32_t local = meta_variant_at(c, part)->local[d];
        const tdm_layout_segment *held = &cut->segments[0];
        if (local < 0) continue;
        meta_part *graph = &c->plan->members[d].part;
        int32_t src[2] = {local,
                          meta_part_slice(graph, meta_variant_at(c, residual)->local[d], cut->axis,
                                          held->lo[d], held->hi[d] - held->lo[d])};
        meta_result dst = meta_result_like(meta_part_value(graph, local));
        if (src[1] < 0) return meta_out_of_memory(c);
        if (!meta_emit_on(c, d, TDM_OP_ADD, NULL, src, 2, &dst, 1,
                          &meta_variant_at(c, part)->local[d]))
            return false;
    }
    return c->status == TDM_OK;
}

/* The sum in two exchanges. One member computes each element, with its residual, so that all have
 * equal bits. */
static int32_t sum_scattered(meta_compiler *c, int32_t variant) {
    const meta_variant f = *meta_variant_at(c, variant);
    meta_cut cut;
    int32_t out = -1;
    if (!scatter_cut(c, meta_value(c, f.value), &cut)) return -1;
    int32_t part = sum_part(c, variant, &cut, meta_cut_id(c, f.value, &cut));
    if (part < 0 || (f.residual >= 0 && !part_residual_add(c, part, f.residual, &cut))) return -1;
    if (!gather(c, &part, 1, &out)) return -1;
    if (c->holders == NULL) c->plan->facts.n_relayout--; /* this gather is a part of the sum */
    return out;
}

static int32_t sum(meta_compiler *c, int32_t variant) {
    meta_variant f = *meta_variant_at(c, variant);
    const tdm_value *v = meta_value(c, f.value);
    meta_result results[TDM_MAX_MEMBERS];
    int32_t locals[TDM_MAX_MEMBERS];
    if (is_scattered(c, variant)) return sum_scattered(c, variant);
    for (int32_t d = 0; d < c->n_member; d++) results[d] = meta_result_like(v);
    const int32_t *residual = f.residual >= 0 ? meta_variant_at(c, f.residual)->local : NULL;
    if (!meta_emit_exchange(c, TDM_EXCHANGE_SUM, 0, f.local, NULL, residual, results, locals))
        return -1;
    int32_t out = meta_variant_new(c, f.value, c->exact);
    if (out >= 0) memcpy(meta_variant_at(c, out)->local, locals, sizeof locals);
    return out;
}

/* The parts of an attention's o or (m, l), side by side along axis 3: one part of each sender, or
 * two where the sender added the sink. */
static meta_crossing parts_send(const meta_compiler *c, int32_t variant, int32_t n_part,
                                crossing_room *room) {
    const meta_variant *f = meta_variant_at(c, variant);
    const tdm_value *v = meta_value(c, f->value);
    int64_t ne[TDM_MAX_DIMS] = {0}, at = 0;
    memset(room, 0, sizeof *room);
    memcpy(room->x, f->local, sizeof room->x);
    /* The variant of (m, l) belongs to the value of the attention's output, but its parts have 2
     * elements per head. So the shape comes from the parts. */
    for (int32_t d = 0; d < c->n_member; d++) {
        room->first[d] = at;
        if (f->local[d] < 0) continue;
        memcpy(ne, meta_part_value(&c->plan->members[d].part, f->local[d])->ne, sizeof ne);
        at += ne[3];
    }
    for (int32_t d = 0; d < c->n_member; d++)
        room->results[d] = (meta_result){v->type, v->name, {ne[0], ne[1], ne[2], n_part}};
    return (meta_crossing){3, room->x, room->first, room->results, room->out};
}

static int32_t lse_merge(meta_compiler *c, int32_t variant) {
    int32_t ml = meta_variant_at(c, variant)->residual, n_part = 0;
    crossing_room rooms[2];
    const tdm_value *v = meta_value(c, meta_variant_at(c, variant)->value);
    for (int32_t d = 0; d < c->n_member; d++) {
        int32_t local = meta_variant_at(c, variant)->local[d];
        if (local >= 0) n_part += (int32_t)meta_part_value(&c->plan->members[d].part, local)->ne[3];
    }
    if (n_part > 0) {
        const meta_crossing what[2] = {parts_send(c, variant, n_part, &rooms[0]),
                                       parts_send(c, ml, n_part, &rooms[1])};
        if (!meta_emit_gathers(c, what, 2)) return -1;
    }
    int32_t out = meta_variant_new(c, meta_variant_at(c, variant)->value, c->equivalent);
    for (int32_t d = 0; out >= 0 && d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        if (n_part == 0) { /* a cache without pages: attention over no tokens gives zeros */
            meta_variant_at(c, out)->local[d] = meta_emit_zeros(c, d, v->type, v->ne);
            continue;
        }
        int32_t src[2] = {rooms[0].out[d], rooms[1].out[d]}, local = -1;
        meta_result dst = {v->type, v->name, {v->ne[0], v->ne[1], v->ne[2], 1}};
        if (!meta_emit_on(c, d, TDM_OP_LSE_MERGE, NULL, src, 2, &dst, 1, &local)) return -1;
        meta_variant_at(c, out)->local[d] = local;
    }
    return out;
}

/* Replaces what every member computed by the owner's bits. */
static bool broadcast(meta_compiler *c, const int32_t *variants, int n, int32_t *out) {
    crossing_room rooms[MAX_TOGETHER];
    meta_crossing what[MAX_TOGETHER] = {{0}};
    for (int i = 0; i < n; i++) {
        const meta_variant *f = meta_variant_at(c, variants[i]);
        const tdm_value *v = meta_value(c, f->value);
        int32_t axis = 3;
        while (axis > 0 && v->ne[axis] == 1) axis--;
        memset(&rooms[i], 0, sizeof rooms[i]);
        for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
            rooms[i].x[d] = d == c->device->owner ? f->local[d] : -1;
            rooms[i].results[d] = meta_result_like(v);
        }
        what[i] = (meta_crossing){axis, rooms[i].x, rooms[i].first, rooms[i].results, rooms[i].out};
    }
    if (!meta_emit_gathers(c, what, n)) return false;
    for (int i = 0; i < n; i++) {
        out[i] = meta_variant_new(c, meta_variant_at(c, variants[i])->value, c->exact);
        if (out[i] < 0) return false;
        memcpy(meta_variant_at(c, out[i])->local, rooms[i].out, sizeof rooms[i].out);
    }
    return true;
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

/* The replicated variant of a value, exact where there is one; -1 = none. */
static int32_t replicated_find(const meta_compiler *c, int32_t value) {
    int32_t f = variant_find(c, value, c->exact);
    return f >= 0 ? f : variant_find(c, value, c->equivalent);
}

int32_t meta_convert_replicated(meta_compiler *c, int32_t value) {
    int32_t best = meta_variant_best(c, value), out = -1;
    if (best < 0) return -1;
    int32_t f = replicated_find(c, value);
    if (f >= 0) return f;
    switch (meta_variant_kind(c, best)) {
    case TDM_LAYOUT_SPLIT: return gather(c, &best, 1, &out) ? give(c, out) : -1;
    case TDM_LAYOUT_PARTIAL_SUM: return give(c, sum(c, best));
    case TDM_LAYOUT_PARTIAL_LSE: return give(c, lse_merge(c, best));
    default: meta_fail(c, TDM_INTERNAL, "a value without layout"); return -1;
    }
}

/* Gathers those of the values that are split, together. */
static bool split_gather(meta_compiler *c, const int32_t *values, int n) {
    int32_t from[MAX_TOGETHER], to[MAX_TOGETHER];
    int n_split = 0;
    for (int i = 0; i < n; i++) {
        if (values[i] < 0) continue;
        int32_t best = meta_variant_best(c, values[i]);
        if (best < 0) return false;
        if (replicated_find(c, values[i]) < 0 && meta_variant_kind(c, best) == TDM_LAYOUT_SPLIT)
            from[n_split++] = best;
    }
    if (n_split > 0 && !gather(c, from, n_split, to)) return false;
    for (int k = 0; k < n_split; k++) give(c, to[k]);
    return c->status == TDM_OK;
}

bool meta_convert_exact_pair(meta_compiler *c, const int32_t values[2], int32_t out[2]) {
    int32_t from[2], to[2];
    int place[2], n_sent = 0;
    if (!split_gather(c, values, 2)) return false;
    for (int i = 0; i < 2; i++) {
        out[i] = -1;
        if (values[i] < 0) continue;
        out[i] = meta_convert_replicated(c, values[i]);
        if (out[i] < 0) return false;
        /* Members of one kind of device compute equal bits from equal bits, so no exchange is
         * needed. */
        if (meta_variant_at(c, out[i])->layout == c->exact || c->device->is_uniform) continue;
        place[n_sent] = i;
        from[n_sent++] = out[i];
    }
    if (n_sent > 0 && !broadcast(c, from, n_sent, to)) return false;
    for (int k = 0; k < n_sent; k++) out[place[k]] = give(c, to[k]);
    return c->status == TDM_OK;
}

int32_t meta_convert_exact(meta_compiler *c, int32_t value) {
    const int32_t values[2] = {value, -1};
    int32_t out[2];
    return meta_convert_exact_pair(c, values, out) ? out[0] : -1;
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

bool meta_convert_cuts_exact(meta_compiler *c, const int32_t values[2], const meta_cut cuts[2],
                             int32_t out[2]) {
    int32_t split[2] = {-1, -1}, computed[2] = {-1, -1}, unused[2];
    bool is_shared[2];
    for (int i = 0; i < 2; i++) {
        if (values[i] < 0) continue;
        is_shared[i] = !c->device->is_uniform && !meta_cut_is_disjoint(&cuts[i], c->n_member);
        int32_t best = meta_variant_best(c, values[i]);
        if (best < 0) return false;
        if (!is_shared[i]) continue;
        /* A gather takes every element from the one member that owns it, so its result is exact.
         * What members have computed is not, and needs the owner's bits. Where a declared layout
         * has split a replicated value, the replicated variant is used and nothing is gathered. */
        if (meta_variant_kind(c, best) == TDM_LAYOUT_SPLIT && replicated_find(c, values[i]) < 0)
            split[i] = values[i];
        else
            computed[i] = values[i];
    }
    if (!split_gather(c, split, 2) || !meta_convert_exact_pair(c, computed, unused)) return false;
    for (int i = 0; i < 2; i++) {
        out[i] = -1;
        if (values[i] < 0) continue;
        if (!is_shared[i])
            out[i] = meta_convert_cut(c, values[i], &cuts[i]);
        else
            out[i] = split_by_slices(c, replicated_find(c, values[i]), NULL, &cuts[i],
                                     meta_cut_id(c, values[i], &cuts[i]));
        if (out[i] < 0) return false;
    }
    return true;
}
