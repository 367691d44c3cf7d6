/* SPDX-License-Identifier: MIT
 *
 * layout.c: the normal form of layouts, and cuts along an axis.
 *
 * All functions work on one representation: a pattern, which is a list of runs of elements with the
 * same holders (a bit for each member). Period, boundaries and segments of the normal form follow
 * from the runs alone and not from how the caller wrote the layout. So two descriptions of the same
 * holders become the same bytes.
 */
#include <string.h>

#include "plugins/meta/layout/layout.h"
#include "plugins/meta/meta.h"

/* A segment's boundaries are its two ends and two for each member. */
enum { POINTS_MAX = 2 * TDM_MAX_MEMBERS + 2, RUNS_MAX = TDM_MAX_SEGMENTS * (POINTS_MAX - 1) };

typedef struct run {
    int64_t end;      /* one past its last element; a run begins at the end of the run before */
    uint64_t holders; /* bit d: member d */
} run;

typedef struct pattern {
    int32_t n_run; /* neighbours have different holders */
    run runs[RUNS_MAX];
} pattern;

int64_t meta_gcd(int64_t a, int64_t b) {
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t pattern_length(const pattern *p) {
    return p->n_run > 0 ? p->runs[p->n_run - 1].end : 0;
}

/* False where there are too many runs. */
static bool pattern_append(pattern *p, int64_t len, uint64_t holders) {
    int64_t end = pattern_length(p) + len;
    if (len == 0) return true;
    if (p->n_run > 0 && p->runs[p->n_run - 1].holders == holders) {
        p->runs[p->n_run - 1].end = end;
        return true;
    }
    if (p->n_run == RUNS_MAX) return false;
    p->runs[p->n_run++] = (run){end, holders};
    return true;
}

/* Sorts the points and removes duplicates; returns their number. */
static int32_t points_sort(int64_t *points, int32_t n) {
    int32_t n_left = 0;
    for (int32_t i = 1; i < n; i++) {
        int64_t point = points[i];
        int32_t k = i;
        for (; k > 0 && points[k - 1] > point; k--) points[k] = points[k - 1];
        points[k] = point;
    }
    for (int32_t i = 0; i < n; i++)
        if (n_left == 0 || points[n_left - 1] != points[i]) points[n_left++] = points[i];
    return n_left;
}

/* Appends a segment whose units are `scale` elements. There is room for TDM_MAX_SEGMENTS. */
static void pattern_append_segment(pattern *p, const tdm_layout_segment *segment, int32_t n_member,
                                   int64_t scale) {
    int64_t points[POINTS_MAX];
    int32_t n_point = 0;
    points[n_point++] = 0;
    points[n_point++] = segment->n_unit;
    for (int32_t d = 0; d < n_member; d++) {
        if (segment->lo[d] >= segment->hi[d]) continue;
        points[n_point++] = segment->lo[d];
        points[n_point++] = segment->hi[d];
    }
    n_point = points_sort(points, n_point);
    for (int32_t i = 0; i + 1 < n_point; i++) {
        uint64_t holders = 0;
        for (int32_t d = 0; d < n_member; d++)
            if (segment->lo[d] <= points[i] && points[i] < segment->hi[d])
                holders |= UINT64_C(1) << d;
        pattern_append(p, (points[i + 1] - points[i]) * scale, holders);
    }
}

static void pattern_from_cut(const meta_cut *cut, int32_t n_member, pattern *p) {
    p->n_run = 0;
    for (int32_t s = 0; s < cut->n_segment; s++)
        pattern_append_segment(p, &cut->segments[s], n_member, 1);
}

/* The position of change i of the holders. `first` is the index of the run that begins with change
 * 0: 1 where the last run continues in the first run of the next repetition, else 0. */
static int64_t change_at(const pattern *p, int32_t first, int32_t i) {
    int32_t k = first + i;
    return k == 0 ? 0 : p->runs[k - 1].end;
}

/* Shortens the pattern to its smallest period. The holders change m times in a pattern (including
 * from the last run to the first). A pattern that repeats k times within it requires that k
 * divides m. */
static void pattern_shorten(pattern *p) {
    int64_t length = pattern_length(p);
    int32_t first = p->n_run > 0 && p->runs[0].holders == p->runs[p->n_run - 1].holders ? 1 : 0;
    int32_t n_change = p->n_run - first;
    if (p->n_run == 1) p->runs[0].end = 1;
    for (int32_t k = n_change; k > 1; k--) {
        if (n_change % k != 0 || length % k != 0) continue;
        int64_t period = length / k;
        int32_t ahead = n_change / k, i = 0;
        while (i + ahead < n_change &&
               change_at(p, first, i + ahead) == change_at(p, first, i) + period &&
               p->runs[first + i + ahead].holders == p->runs[first + i].holders)
            i++;
        if (i + ahead < n_change) continue;
        for (i = 0; p->runs[i].end < period;) i++;
        p->runs[i].end = period;
        p->n_run = i + 1;
        return;
    }
}

/* Writes the pattern as segments in elements. Each segment is as long as possible from where it
 * begins: it ends before a member would hold, or own, a second range. No other division has fewer
 * segments. -1 where more than TDM_MAX_SEGMENTS are needed. `segments` are zero on entry. */
static int32_t pattern_to_segments(const pattern *p, tdm_layout_segment *segments) {
    uint64_t seen = 0, owned = 0, before = 0, owner_before = 0;
    int64_t at = 0, begin = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_run; i++) {
        uint64_t holders = p->runs[i].holders, owner = holders & (~holders + 1);
        if (n == 0 || (holders & seen & ~before) != 0 || (owner & owned & ~owner_before) != 0) {
            if (n == TDM_MAX_SEGMENTS) return -1;
            n++;
            begin = at;
            seen = owned = 0;
        }
        tdm_layout_segment *segment = &segments[n - 1];
        for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
            if ((holders >> d & 1) == 0) continue;
            if ((seen >> d & 1) == 0) segment->lo[d] = at - begin;
            segment->hi[d] = p->runs[i].end - begin;
        }
        segment->n_unit = p->runs[i].end - begin;
        seen |= before = holders;
        owned |= owner_before = owner;
        at = p->runs[i].end;
    }
    return n;
}

static void layout_begin(int32_t n_member, tdm_layout_kind kind, tdm_layout *out) {
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->kind = kind;
    out->n_member = n_member;
}

void meta_layout_replicated(int32_t n_member, tdm_replica replica, tdm_layout *out) {
    layout_begin(n_member, TDM_LAYOUT_REPLICATED, out);
    out->replica = replica;
}

void meta_layout_partial(int32_t n_member, tdm_layout_kind kind, tdm_layout *out) {
    layout_begin(n_member, kind, out);
}

/* Fills a layout that layout_begin made. False where the pattern needs too many segments. */
static bool layout_from_pattern(pattern *p, int64_t outer, tdm_layout *out) {
    int64_t length = pattern_length(p), unit;
    out->inner = 1;
    out->n_segment = 1;
    if (length == 0) return true;
    pattern_shorten(p);
    out->outer = outer * (length / pattern_length(p));
    out->n_segment = pattern_to_segments(p, out->segments);
    if (out->n_segment < 0) return false;
    unit = pattern_length(p);
    for (int32_t i = 0; i < p->n_run; i++) unit = meta_gcd(unit, p->runs[i].end);
    out->inner = unit;
    for (int32_t s = 0; s < out->n_segment; s++) {
        tdm_layout_segment *segment = &out->segments[s];
        segment->n_unit /= unit;
        for (int32_t d = 0; d < out->n_member; d++) {
            segment->lo[d] /= unit;
            segment->hi[d] /= unit;
        }
    }
    return true;
}

/* Checks the fields of a split layout by themselves, without their holders. */
static tdm_status split_check(const tdm_layout *layout, tdm_error *err) {
    int64_t n_unit = 0, count;
    if (layout->n_segment < 1 || layout->n_segment > TDM_MAX_SEGMENTS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "layout: %d segments; there may be 1 to %d",
                        (int)layout->n_segment, TDM_MAX_SEGMENTS);
    if (layout->outer < 0 || layout->inner < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "layout: %lld repetitions of units of %lld elements; neither may be below "
                        "0",
                        (long long)layout->outer, (long long)layout->inner);
    for (int32_t s = 0; s < layout->n_segment; s++) {
        const tdm_layout_segment *segment = &layout->segments[s];
        if (segment->n_unit < 0 || __builtin_add_overflow(n_unit, segment->n_unit, &n_unit))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "layout: segment %d cannot have %lld units",
                            (int)s, (long long)segment->n_unit);
        for (int32_t d = 0; d < layout->n_member; d++)
            if (segment->lo[d] < 0 || segment->lo[d] > segment->hi[d] ||
                segment->hi[d] > segment->n_unit)
                return tdm_fail(err, TDM_INVALID_ARGUMENT,
                                "layout: member %d holds units %lld to %lld of segment %d, which "
                                "has %lld",
                                (int)d, (long long)segment->lo[d], (long long)segment->hi[d],
                                (int)s, (long long)segment->n_unit);
    }
    if (__builtin_mul_overflow(n_unit, layout->inner, &count) ||
        __builtin_mul_overflow(count, layout->outer, &count))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "layout: %lld times %lld units of %lld elements are more than can be "
                        "counted",
                        (long long)layout->outer, (long long)n_unit, (long long)layout->inner);
    return TDM_OK;
}

tdm_status meta_layout_normalize(tdm_layout *layout, tdm_error *err) {
    tdm_layout out;
    pattern p;
    tdm_status status;
    if (layout->n_member < 1 || layout->n_member > TDM_MAX_MEMBERS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "layout: %d members; there may be 1 to %d",
                        (int)layout->n_member, TDM_MAX_MEMBERS);
    layout_begin(layout->n_member, (tdm_layout_kind)layout->kind, &out);
    switch (layout->kind) {
    case TDM_LAYOUT_REPLICATED:
        if (layout->replica != TDM_REPLICA_EQUIVALENT && layout->replica != TDM_REPLICA_EXACT)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "layout: %d is no way of being replicated",
                            (int)layout->replica);
        out.replica = layout->replica;
        break;
    case TDM_LAYOUT_PARTIAL_SUM:
    case TDM_LAYOUT_PARTIAL_LSE: break;
    case TDM_LAYOUT_SPLIT:
        if ((status = split_check(layout, err)) != TDM_OK) return status;
        p.n_run = 0;
        for (int32_t s = 0; s < layout->n_segment; s++)
            pattern_append_segment(&p, &layout->segments[s], layout->n_member, layout->inner);
        for (int32_t i = 0; i < p.n_run; i++)
            if (p.runs[i].holders == 0)
                return tdm_fail(err, TDM_INVALID_ARGUMENT,
                                "layout: no member holds elements %lld to %lld of the pattern",
                                (long long)(i > 0 ? p.runs[i - 1].end : 0),
                                (long long)p.runs[i].end);
        if (!layout_from_pattern(&p, layout->outer, &out))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "layout: without what lower members hold, parts of members are no "
                            "longer one range; give members ranges in ascending order");
        break;
    default: return tdm_fail(err, TDM_INVALID_ARGUMENT, "layout: no kind %d", (int)layout->kind);
    }
    *layout = out;
    return TDM_OK;
}

/* Elements of one repetition. */
static int64_t layout_period(const tdm_layout *layout) {
    int64_t n_unit = 0;
    for (int32_t s = 0; s < layout->n_segment; s++) n_unit += layout->segments[s].n_unit;
    return n_unit * layout->inner;
}

int64_t meta_layout_count(const tdm_layout *layout) {
    return layout->outer * layout_period(layout);
}

void meta_layout_from_cut(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t n_member,
                          tdm_layout *out) {
    int64_t inner = 1, outer = cut->repeat;
    pattern p;
    for (int32_t k = 0; k < cut->axis; k++) inner *= ne[k];
    for (int32_t k = cut->axis + 1; k < TDM_MAX_DIMS; k++) outer *= ne[k];
    layout_begin(n_member, TDM_LAYOUT_SPLIT, out);
    p.n_run = 0;
    for (int32_t s = 0; s < cut->n_segment; s++)
        pattern_append_segment(&p, &cut->segments[s], n_member, inner);
    layout_from_pattern(&p, outer, out);
}

/* A value whose holders are the same everywhere counts as cut along any axis. Where the holders
 * change, the cut axis is the one whose stride divides every boundary and whose length is a whole
 * number of periods. There is at most one such axis. */
bool meta_layout_get_cut_along(const tdm_layout *layout, const int64_t ne[TDM_MAX_DIMS],
                               int32_t axis, meta_cut *out) {
    int64_t stride = 1, period, scale;
    if (layout->kind != TDM_LAYOUT_SPLIT || meta_layout_count(layout) != tdm_shape_count(ne))
        return false;
    for (int32_t k = 0; k < axis; k++) stride *= ne[k];
    period = layout_period(layout);
    if (ne[axis] != 0 && (period == 0 || stride == 0)) return false;
    if (ne[axis] != 0 && period != 1 &&
        (layout->inner % stride != 0 || stride * ne[axis] % period != 0))
        return false;
    memset(out, 0, sizeof *out);
    out->axis = axis;
    out->n_segment = ne[axis] != 0 ? layout->n_segment : 1;
    out->repeat = ne[axis] != 0 && period != 1 ? stride * ne[axis] / period : 1;
    if (ne[axis] == 0) return true;
    scale = period == 1 ? ne[axis] : layout->inner / stride;
    for (int32_t s = 0; s < out->n_segment; s++) {
        const tdm_layout_segment *from = &layout->segments[s];
        out->segments[s].n_unit = from->n_unit * scale;
        for (int32_t d = 0; d < layout->n_member; d++) {
            out->segments[s].lo[d] = from->lo[d] * scale;
            out->segments[s].hi[d] = from->hi[d] * scale;
        }
    }
    return true;
}

bool meta_layout_get_cut(const tdm_layout *layout, const int64_t ne[TDM_MAX_DIMS], meta_cut *out) {
    for (int32_t axis = 0; axis < TDM_MAX_DIMS; axis++)
        if (meta_layout_get_cut_along(layout, ne, axis, out)) return true;
    return false;
}

int64_t meta_cut_local_length(const meta_cut *cut, int32_t d) {
    int64_t length = 0;
    for (int32_t s = 0; s < cut->n_segment; s++)
        length += cut->segments[s].hi[d] - cut->segments[s].lo[d];
    return length;
}

void meta_cut_local_shape(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t d,
                          int64_t ne_out[TDM_MAX_DIMS]) {
    int64_t length = cut->repeat * meta_cut_local_length(cut, d);
    for (int32_t k = 0; k < TDM_MAX_DIMS; k++) ne_out[k] = k == cut->axis ? length : ne[k];
}

void meta_segment_owned(const tdm_layout_segment *segment, int32_t d, int64_t *lo_out,
                        int64_t *hi_out) {
    int64_t lo = segment->lo[d], hi = segment->hi[d];
    bool is_trimmed = true;
    while (is_trimmed && lo < hi) {
        is_trimmed = false;
        for (int32_t k = 0; k < d; k++) {
            int64_t from = segment->lo[k], to = segment->hi[k];
            if (from <= lo && lo < to) {
                lo = to;
                is_trimmed = true;
            } else if (from < hi && hi <= to) {
                hi = from;
                is_trimmed = true;
            }
        }
    }
    *lo_out = lo < hi ? lo : 0;
    *hi_out = lo < hi ? hi : 0;
}

void meta_cut_owned(const meta_cut *cut, int32_t s, int32_t d, int64_t *lo_out, int64_t *hi_out) {
    meta_segment_owned(&cut->segments[s], d, lo_out, hi_out);
}

bool meta_cut_is_disjoint(const meta_cut *cut, int32_t n_member) {
    pattern p;
    pattern_from_cut(cut, n_member, &p);
    for (int32_t i = 0; i < p.n_run; i++)
        if ((p.runs[i].holders & (p.runs[i].holders - 1)) != 0) return false;
    return true;
}

bool meta_cut_contains(const meta_cut *whole, const meta_cut *part, int32_t n_member) {
    pattern w, p;
    int32_t iw = 0, ip = 0;
    int64_t w_left, p_left, length;
    pattern_from_cut(whole, n_member, &w);
    pattern_from_cut(part, n_member, &p);
    length = part->repeat * pattern_length(&p);
    if (whole->axis != part->axis || whole->repeat * pattern_length(&w) != length) return false;
    if (length == 0) return true;
    w_left = w.runs[0].end;
    p_left = p.runs[0].end;
    do {
        int64_t step = w_left < p_left ? w_left : p_left;
        if ((p.runs[ip].holders & ~w.runs[iw].holders) != 0) return false;
        w_left -= step;
        p_left -= step;
        if (w_left == 0) {
            iw = (iw + 1) % w.n_run;
            w_left = w.runs[iw].end - (iw > 0 ? w.runs[iw - 1].end : 0);
        }
        if (p_left == 0) {
            ip = (ip + 1) % p.n_run;
            p_left = p.runs[ip].end - (ip > 0 ? p.runs[ip - 1].end : 0);
        }
        /* Both are at the start of a pattern: from here on everything repeats. */
    } while (iw != 0 || ip != 0 || w_left != w.runs[0].end || p_left != p.runs[0].end);
    return true;
}

/* How many of the first `end` elements of a pattern member d holds. */
static int64_t cut_held_before(const meta_cut *cut, int64_t end, int32_t d) {
    int64_t begin = 0, n = 0;
    for (int32_t s = 0; s < cut->n_segment; s++) {
        const tdm_layout_segment *segment = &cut->segments[s];
        int64_t lo = begin + segment->lo[d], hi = begin + segment->hi[d];
        if (hi > end) hi = end;
        if (lo < hi) n += hi - lo;
        begin += segment->n_unit;
    }
    return n;
}

bool meta_cut_window(const meta_cut *cut, int64_t off, int64_t len, int32_t n_member, meta_cut *out,
                     int64_t *local_off_out) {
    pattern p, window;
    int64_t length, at, left;
    meta_cut result = {.axis = cut->axis, .n_segment = 1, .repeat = 1};
    pattern_from_cut(cut, n_member, &p);
    length = pattern_length(&p);
    for (int32_t d = 0; d < n_member; d++)
        local_off_out[d] = length == 0 ? 0
                                       : off / length * meta_cut_local_length(cut, d) +
                                             cut_held_before(cut, off % length, d);
    if (len == 0) {
        *out = result;
        return true;
    }
    left = len;
    if (len > length && len % length == 0) {
        result.repeat = len / length;
        left = length;
    }
    window.n_run = 0;
    at = off % length;
    for (int32_t i = 0; left > 0; i = i + 1 < p.n_run ? i + 1 : 0) {
        int64_t step;
        if (i == 0 && at >= length) at -= length;
        if (p.runs[i].end <= at) continue;
        step = p.runs[i].end - at < left ? p.runs[i].end - at : left;
        if (!pattern_append(&window, step, p.runs[i].holders)) return false;
        at += step;
        left -= step;
    }
    result.n_segment = pattern_to_segments(&window, result.segments);
    if (result.n_segment < 0) return false;
    *out = result;
    return true;
}

bool meta_cut_join(const meta_cut *a, const meta_cut *b, int32_t n_member, meta_cut *out) {
    const meta_cut *both[2] = {a, b};
    meta_cut result = {.axis = a->axis, .n_segment = 1, .repeat = 1};
    pattern p, joined;
    joined.n_run = 0;
    for (int32_t k = 0; k < 2; k++) {
        pattern_from_cut(both[k], n_member, &p);
        for (int64_t r = 0; r < both[k]->repeat && p.n_run > 0; r++)
            for (int32_t i = 0; i < p.n_run; i++)
                if (!pattern_append(&joined, p.runs[i].end - (i > 0 ? p.runs[i - 1].end : 0),
                                    p.runs[i].holders))
                    return false;
    }
    if (joined.n_run > 0) {
        int64_t length = pattern_length(&joined);
        /* The same holders everywhere: one segment with repeat 1, as meta_layout_get_cut gives
         * it. */
        if (joined.n_run > 1) pattern_shorten(&joined);
        result.repeat = length / pattern_length(&joined);
        result.n_segment = pattern_to_segments(&joined, result.segments);
    }
    if (result.n_segment < 0) return false;
    *out = result;
    return true;
}

int32_t meta_layout_intern(const struct tdm_host *host, meta_layout_set *set,
                           const tdm_layout *layout) {
    for (int32_t i = 0; i < set->n_layout; i++)
        if (memcmp(&set->layouts[i], layout, sizeof *layout) == 0) return i;
    if (meta_grow(host, &set->layouts, &set->capacity, (int64_t)set->n_layout + 1, sizeof *layout,
                  NULL) != TDM_OK)
        return -1;
    set->layouts[set->n_layout] = *layout;
    return set->n_layout++;
}
