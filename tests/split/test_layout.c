/* SPDX-License-Identifier: MIT
 *
 * test_layout.c: layouts against a list of the owner of each element. A layout that is normalised,
 * cut along an axis, sliced, joined or compared must agree with the lists.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plugins/meta/meta.h"
#include "split_random.h"

enum { MAX_COUNT = 1 << 16, N_CASE = 4000 };

typedef struct holders {
    int64_t n;
    uint64_t of[MAX_COUNT]; /* bit d: member d holds the element */
} holders;

static void holders_add(holders *h, const tdm_layout_segment *segment, int32_t n_member,
                        int64_t inner) {
    for (int64_t u = 0; u < segment->n_unit; u++)
        for (int64_t i = 0; i < inner; i++) {
            assert_true(h->n < MAX_COUNT);
            h->of[h->n] = 0;
            for (int32_t d = 0; d < n_member; d++)
                if (segment->lo[d] <= u && u < segment->hi[d]) h->of[h->n] |= UINT64_C(1) << d;
            h->n++;
        }
}

static void holders_of_layout(const tdm_layout *layout, holders *h) {
    h->n = 0;
    for (int64_t o = 0; o < layout->outer; o++)
        for (int32_t s = 0; s < layout->n_segment; s++)
            holders_add(h, &layout->segments[s], layout->n_member, layout->inner);
}

/* Of the cut axis alone. */
static void holders_of_cut(const meta_cut *cut, int32_t n_member, holders *h) {
    h->n = 0;
    for (int64_t r = 0; r < cut->repeat; r++)
        for (int32_t s = 0; s < cut->n_segment; s++) holders_add(h, &cut->segments[s], n_member, 1);
}

static bool holders_equal(const holders *a, const holders *b) {
    return a->n == b->n && memcmp(a->of, b->of, (size_t)a->n * sizeof *a->of) == 0;
}

static holders map_a, map_b, map_c;

static void random_layout(int32_t n_member, tdm_layout *out) {
    meta_cut cut;
    random_cut(1 + (int32_t)random_below(TDM_MAX_SEGMENTS), 6, n_member, &cut);
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->kind = TDM_LAYOUT_SPLIT;
    out->n_member = n_member;
    out->n_segment = cut.n_segment;
    out->outer = 1 + random_below(6);
    out->inner = 1 + random_below(6);
    memcpy(out->segments, cut.segments, sizeof cut.segments);
}

static void segment_scale(tdm_layout_segment *segment, int64_t by) {
    segment->n_unit *= by;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
        segment->lo[d] *= by;
        segment->hi[d] *= by;
    }
}

/* The units [from, to) of a segment. */
static tdm_layout_segment segment_cut(const tdm_layout_segment *segment, int64_t from, int64_t to) {
    tdm_layout_segment part = {.n_unit = to - from};
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) {
        int64_t lo = segment->lo[d] > from ? segment->lo[d] : from;
        int64_t hi = segment->hi[d] < to ? segment->hi[d] : to;
        if (lo >= hi) continue;
        part.lo[d] = lo - from;
        part.hi[d] = hi - from;
    }
    return part;
}

/* Writes the same thing in another way. */
static void rewrite(tdm_layout *layout) {
    int32_t n = layout->n_segment, s = (int32_t)random_below(n);
    int64_t by = 1 + random_below(3);
    switch (random_below(4)) {
    case 0: /* smaller units */
        if (layout->inner % by != 0) break;
        layout->inner /= by;
        for (int32_t i = 0; i < n; i++) segment_scale(&layout->segments[i], by);
        break;
    case 1: /* several repetitions in one */
        if (layout->outer % by != 0 || n * by > TDM_MAX_SEGMENTS) break;
        layout->outer /= by;
        for (int32_t i = n; i < n * by; i++) layout->segments[i] = layout->segments[i - n];
        layout->n_segment = (int32_t)(n * by);
        break;
    case 2: /* a segment in two, one of them perhaps empty */
        if (n == TDM_MAX_SEGMENTS) break;
        int64_t at = random_below(layout->segments[s].n_unit + 1);
        tdm_layout_segment whole = layout->segments[s];
        for (int32_t i = n; i > s + 1; i--) layout->segments[i] = layout->segments[i - 1];
        layout->segments[s] = segment_cut(&whole, 0, at);
        layout->segments[s + 1] = segment_cut(&whole, at, whole.n_unit);
        layout->n_segment++;
        break;
    default: /* an empty range somewhere else than 0 */
        for (int32_t d = 0; d < layout->n_member; d++)
            if (layout->segments[s].lo[d] == layout->segments[s].hi[d])
                layout->segments[s].lo[d] = layout->segments[s].hi[d] =
                    random_below(layout->segments[s].n_unit + 1);
    }
}

static void normalize_keeps_holders(void **state) {
    (void)state;
    tdm_layout a, b;
    for (int i = 0; i < N_CASE; i++) {
        random_layout(1 + (int32_t)random_below(i % 16 == 0 ? TDM_MAX_MEMBERS : 5), &a);
        b = a;
        for (int64_t k = random_below(6); k > 0; k--) rewrite(&b);
        holders_of_layout(&a, &map_a);
        holders_of_layout(&b, &map_b);
        assert_true(holders_equal(&map_a, &map_b)); /* rewrite is right */
        assert_int_equal(meta_layout_normalize(&a, NULL), TDM_OK);
        assert_int_equal(meta_layout_normalize(&b, NULL), TDM_OK);
        holders_of_layout(&a, &map_b);
        assert_true(holders_equal(&map_a, &map_b));
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(meta_layout_count(&a), map_a.n);
        assert_int_equal(meta_layout_normalize(&b, NULL), TDM_OK);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

/* Small enough that the same holders come up from quite different descriptions. */
static void equal_bytes_are_equal_holders(void **state) {
    (void)state;
    static tdm_layout all[400];
    int n_equal = 0;
    for (int i = 0; i < 400; i++) {
        do {
            meta_cut cut;
            random_cut(1 + (int32_t)random_below(3), 3, 2, &cut);
            random_layout(2, &all[i]);
            all[i].outer = 1 + random_below(3);
            all[i].inner = 1 + random_below(2);
            all[i].n_segment = cut.n_segment;
            memcpy(all[i].segments, cut.segments, sizeof cut.segments);
        } while (meta_layout_count(&all[i]) > 8);
        assert_int_equal(meta_layout_normalize(&all[i], NULL), TDM_OK);
        for (int k = 0; k < i; k++) {
            holders_of_layout(&all[i], &map_a);
            holders_of_layout(&all[k], &map_b);
            bool is_equal = memcmp(&all[i], &all[k], sizeof all[i]) == 0;
            assert_int_equal(is_equal, holders_equal(&map_a, &map_b));
            n_equal += is_equal;
        }
    }
    assert_true(n_equal > 100);
}

static void strides_of(const int64_t ne[TDM_MAX_DIMS], int64_t stride[TDM_MAX_DIMS]) {
    stride[0] = 1;
    for (int k = 1; k < TDM_MAX_DIMS; k++) stride[k] = stride[k - 1] * ne[k - 1];
}

/* Whether who holds an element depends on its index along one axis alone. */
static bool is_cut_along(const holders *h, const int64_t ne[TDM_MAX_DIMS], int32_t axis) {
    int64_t stride[TDM_MAX_DIMS];
    strides_of(ne, stride);
    for (int64_t e = 0; e < h->n; e++)
        if (h->of[e] != h->of[e / stride[axis] % ne[axis] * stride[axis]]) return false;
    return true;
}

static void check_cut(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t n_member,
                      const holders *h) {
    int64_t stride[TDM_MAX_DIMS], n_local[TDM_MAX_MEMBERS] = {0};
    strides_of(ne, stride);
    holders_of_cut(cut, n_member, &map_c);
    assert_int_equal(map_c.n, ne[cut->axis]);
    for (int64_t e = 0; e < h->n; e++) {
        assert_int_equal(h->of[e], map_c.of[e / stride[cut->axis] % ne[cut->axis]]);
        for (int32_t d = 0; d < n_member; d++) n_local[d] += h->of[e] >> d & 1;
    }
    for (int32_t d = 0; d < n_member; d++) {
        int64_t local[TDM_MAX_DIMS];
        meta_cut_local_shape(cut, ne, d, local);
        assert_int_equal(tdm_shape_count(local), n_local[d]);
    }
}

static void random_shape(int64_t count, int64_t ne[TDM_MAX_DIMS]) {
    for (int k = 0; k < TDM_MAX_DIMS; k++) {
        int64_t divisor = k + 1 < TDM_MAX_DIMS ? 1 + random_below(count < 40 ? count : 40) : count;
        while (count % divisor != 0) divisor--;
        ne[k] = divisor;
        count /= divisor;
    }
}

static void get_cut_says_what_holders_say(void **state) {
    (void)state;
    int n_cut = 0, n_none = 0, n_repeat = 0;
    for (int i = 0; i < N_CASE; i++) {
        tdm_layout layout, back;
        meta_cut cut;
        int64_t ne[TDM_MAX_DIMS];
        int32_t n_axis = 0, lowest = -1;
        random_layout(1 + (int32_t)random_below(4), &layout);
        if (random_below(4) == 0) layout.inner *= 8;
        holders_of_layout(&layout, &map_a);
        assert_int_equal(meta_layout_normalize(&layout, NULL), TDM_OK);
        random_shape(map_a.n, ne);
        for (int32_t axis = 0; axis < TDM_MAX_DIMS; axis++) {
            bool is_cut = is_cut_along(&map_a, ne, axis);
            assert_int_equal(meta_layout_get_cut_along(&layout, ne, axis, &cut), is_cut);
            if (!is_cut) continue;
            assert_int_equal(cut.axis, axis);
            check_cut(&cut, ne, layout.n_member, &map_a);
            meta_layout_from_cut(&cut, ne, layout.n_member, &back);
            assert_memory_equal(&back, &layout, sizeof layout);
            if (n_axis++ == 0) lowest = axis;
            n_repeat += cut.repeat > 1;
        }
        assert_int_equal(meta_layout_get_cut(&layout, ne, &cut), n_axis > 0);
        if (n_axis > 0) assert_int_equal(cut.axis, lowest);
        if (n_axis > 1) assert_int_equal(cut.repeat, 1);
        n_cut += n_axis > 0;
        n_none += n_axis == 0;
        ne[0]++; /* another count */
        assert_false(meta_layout_get_cut(&layout, ne, &cut));
    }
    assert_true(n_cut > N_CASE / 20 && n_none > N_CASE / 20 && n_repeat > N_CASE / 100);
}

static void from_cut_survives_reshapes(void **state) {
    (void)state;
    for (int i = 0; i < N_CASE; i++) {
        meta_cut cut, seen;
        tdm_layout layout;
        int32_t n_member = 1 + (int32_t)random_below(5);
        int64_t ne[TDM_MAX_DIMS], before = 1;
        random_cut(1 + (int32_t)random_below(TDM_MAX_SEGMENTS), 5, n_member, &cut);
        cut.axis = (int32_t)random_below(TDM_MAX_DIMS);
        cut.repeat = 1 + random_below(3);
        for (int k = 0; k < TDM_MAX_DIMS; k++) ne[k] = 1 + random_below(4);
        ne[cut.axis] = cut.repeat * random_cut_length(&cut);
        meta_layout_from_cut(&cut, ne, n_member, &layout);
        holders_of_layout(&layout, &map_a);
        check_cut(&cut, ne, n_member, &map_a);
        assert_true(meta_layout_get_cut(&layout, ne, &seen));
        check_cut(&seen, ne, n_member, &map_a);
        /* All axes below the cut one in one, all above likewise: still cut. */
        for (int k = 0; k < cut.axis; k++) before *= ne[k];
        int64_t flat[TDM_MAX_DIMS] = {before, ne[cut.axis], 1, 1};
        flat[2] = tdm_shape_count(ne) / (flat[0] * flat[1]);
        assert_true(meta_layout_get_cut_along(&layout, flat, 1, &seen));
        check_cut(&seen, flat, n_member, &map_a);
    }
}

/* Shares 3 and 1 of eight heads of 64 elements, five tokens. */
static void heads_survive_flattening(void **state) {
    (void)state;
    meta_cut cut = {.axis = 1, .n_segment = 1, .repeat = 1};
    const int64_t ne[4] = {64, 8, 5, 1}, flat[4] = {64, 40, 1, 1}, rows[4] = {512, 5, 1, 1};
    const int64_t all[4] = {2560, 1, 1, 1}, bad[4] = {96, 8, 1, 1}, odd[4] = {160, 16, 1, 1};
    const int64_t parts[4] = {16, 4, 8, 5};
    tdm_layout layout;
    cut.segments[0] = (tdm_layout_segment){.n_unit = 8, .lo = {0, 6}, .hi = {6, 8}};
    meta_layout_from_cut(&cut, ne, 2, &layout);
    assert_int_equal(layout.outer, 5);
    assert_int_equal(layout.inner, 128); /* of two heads: 8 = 4 times 2, 6 = 3 times 2 */
    assert_int_equal(layout.n_segment, 1);
    assert_int_equal(layout.segments[0].n_unit, 4);
    assert_int_equal(layout.segments[0].hi[0], 3);

    assert_true(meta_layout_get_cut(&layout, ne, &cut));
    assert_int_equal(cut.axis, 1);
    assert_int_equal(cut.repeat, 1);
    assert_int_equal(cut.segments[0].lo[1], 6);
    assert_true(meta_layout_get_cut(&layout, flat, &cut));
    assert_int_equal(cut.axis, 1);
    assert_int_equal(cut.repeat, 5);
    assert_int_equal(cut.segments[0].n_unit, 8);
    assert_true(meta_layout_get_cut(&layout, rows, &cut));
    assert_int_equal(cut.axis, 0);
    assert_int_equal(cut.repeat, 1);
    assert_int_equal(cut.segments[0].hi[0], 384);
    assert_true(meta_layout_get_cut(&layout, all, &cut));
    assert_int_equal(cut.axis, 0);
    assert_int_equal(cut.repeat, 5);
    assert_true(meta_layout_get_cut(&layout, parts, &cut));
    assert_int_equal(cut.axis, 2);
    assert_false(meta_layout_get_cut(&layout, bad, &cut)); /* another count */
    assert_false(meta_layout_get_cut(&layout, odd, &cut)); /* 160 is no run of heads */
}

static void fused_parts_are_segments(void **state) {
    (void)state;
    /* Q twice as long as K and V; gate and up alike. */
    meta_cut qkv = {.axis = 1, .n_segment = 3, .repeat = 1}, gate_up, cut;
    const int64_t ne[4] = {32, 16, 1, 1};
    tdm_layout layout;
    int64_t off[TDM_MAX_MEMBERS];
    qkv.segments[0] = (tdm_layout_segment){.n_unit = 8, .lo = {0, 6}, .hi = {6, 8}};
    qkv.segments[1] = (tdm_layout_segment){.n_unit = 4, .lo = {0, 3}, .hi = {3, 4}};
    qkv.segments[2] = qkv.segments[1];
    meta_layout_from_cut(&qkv, ne, 2, &layout);
    assert_int_equal(layout.n_segment, 3);
    assert_int_equal(layout.outer, 1);
    assert_true(meta_layout_get_cut(&layout, ne, &cut));
    assert_memory_equal(&cut, &qkv, sizeof cut);
    /* K by itself, and the end of K with the beginning of V. */
    assert_true(meta_cut_window(&qkv, 8, 4, 2, &cut, off));
    assert_int_equal(cut.n_segment, 1);
    assert_int_equal(cut.repeat, 1);
    assert_int_equal(cut.segments[0].hi[0], 3);
    assert_int_equal(off[0], 6);
    assert_int_equal(off[1], 2);

    gate_up = qkv;
    gate_up.n_segment = 2;
    gate_up.segments[0] = gate_up.segments[1];
    meta_layout_from_cut(&gate_up, (const int64_t[4]){32, 8, 1, 1}, 2, &layout);
    assert_int_equal(layout.n_segment, 1);
    assert_int_equal(layout.outer, 2);
    assert_true(meta_layout_get_cut(&layout, (const int64_t[4]){32, 8, 1, 1}, &cut));
    assert_int_equal(cut.repeat, 2);
    assert_true(meta_cut_window(&cut, 4, 4, 2, &cut, off));
    assert_int_equal(cut.repeat, 1);
    assert_int_equal(off[0], 3);
    assert_int_equal(off[1], 1);
}

static void empty_values_are_ordinary(void **state) {
    (void)state;
    meta_cut cut = {.axis = 0, .n_segment = 1, .repeat = 1}, seen;
    tdm_layout layout, nothing;
    int64_t local[4], off[TDM_MAX_MEMBERS];
    const int64_t no_tok[4] = {8, 0, 1, 1}, no_unit[4] = {0, 8, 1, 1};
    cut.segments[0] = (tdm_layout_segment){.n_unit = 8, .lo = {0, 6}, .hi = {6, 8}};
    /* Columns of no tokens are still cut. */
    meta_layout_from_cut(&cut, no_tok, 2, &layout);
    assert_int_equal(meta_layout_count(&layout), 0);
    assert_true(meta_layout_get_cut(&layout, no_tok, &seen));
    assert_int_equal(seen.axis, 0);
    meta_cut_local_shape(&seen, no_tok, 1, local);
    assert_int_equal(local[0], 2);
    assert_int_equal(local[1], 0);
    nothing = layout;
    assert_int_equal(meta_layout_normalize(&nothing, NULL), TDM_OK);
    assert_memory_equal(&nothing, &layout, sizeof layout);
    /* A cut of nothing. */
    memset(&cut.segments[0], 0, sizeof cut.segments[0]);
    meta_layout_from_cut(&cut, no_unit, 2, &layout);
    assert_int_equal(meta_layout_count(&layout), 0);
    assert_true(meta_layout_get_cut(&layout, no_unit, &seen));
    assert_int_equal(seen.axis, 0);
    assert_int_equal(meta_cut_local_length(&seen, 0), 0);
    nothing = layout;
    nothing.outer = 7;
    assert_int_equal(meta_layout_normalize(&nothing, NULL), TDM_OK);
    assert_memory_equal(&nothing, &layout, sizeof layout);
    assert_false(meta_layout_get_cut(&layout, (const int64_t[4]){8, 1, 1, 1}, &seen));
    /* A window of nothing. */
    cut.segments[0] = (tdm_layout_segment){.n_unit = 8, .lo = {0, 6}, .hi = {6, 8}};
    assert_true(meta_cut_window(&cut, 8, 0, 2, &seen, off));
    assert_int_equal(seen.n_segment, 1);
    assert_int_equal(seen.segments[0].n_unit, 0);
    assert_int_equal(off[1], 2);
    assert_true(meta_cut_contains(&seen, &seen, 2));
    assert_true(meta_cut_is_disjoint(&seen, 2));
    /* A group of one, and a member with nothing. */
    cut.segments[0] = (tdm_layout_segment){.n_unit = 8, .lo = {0, 0}, .hi = {8, 0}};
    meta_layout_from_cut(&cut, (const int64_t[4]){8, 3, 1, 1}, 2, &layout);
    assert_true(meta_layout_get_cut_along(&layout, (const int64_t[4]){2, 12, 1, 1}, 1, &seen));
    assert_int_equal(seen.repeat, 1);
    assert_int_equal(seen.segments[0].hi[0], 12);
    assert_int_equal(meta_cut_local_length(&seen, 1), 0);
}

static void windows_are_windows(void **state) {
    (void)state;
    int n_refused = 0;
    for (int i = 0; i < N_CASE; i++) {
        meta_cut cut, window;
        int32_t n_member = 1 + (int32_t)random_below(5);
        int64_t local_off[TDM_MAX_MEMBERS], off, len;
        random_cut(1 + (int32_t)random_below(TDM_MAX_SEGMENTS), 5, n_member, &cut);
        cut.axis = (int32_t)random_below(TDM_MAX_DIMS);
        cut.repeat = random_below(2) == 0 ? 1 : 1 + random_below(4);
        holders_of_cut(&cut, n_member, &map_a);
        off = random_below(map_a.n + 1);
        len = random_below(map_a.n - off + 1);
        if (!meta_cut_window(&cut, off, len, n_member, &window, local_off)) {
            assert_true(cut.repeat > 1 &&
                        random_cut_length(&cut) < off % random_cut_length(&cut) + len);
            n_refused++;
            continue;
        }
        assert_int_equal(window.axis, cut.axis);
        if (len <= random_cut_length(&cut)) assert_int_equal(window.repeat, 1);
        holders_of_cut(&window, n_member, &map_b);
        assert_int_equal(map_b.n, len);
        assert_memory_equal(map_b.of, map_a.of + off, (size_t)len * sizeof *map_b.of);
        for (int32_t d = 0; d < n_member; d++) {
            int64_t n = 0;
            for (int64_t e = 0; e < off; e++) n += map_a.of[e] >> d & 1;
            assert_int_equal(local_off[d], n);
        }
    }
    assert_true(n_refused < N_CASE / 4);
}

static void joins_are_one_after_the_other(void **state) {
    (void)state;
    int n_joined = 0;
    for (int i = 0; i < N_CASE; i++) {
        meta_cut a, b, both;
        int32_t n_member = 1 + (int32_t)random_below(4);
        random_cut(1 + (int32_t)random_below(2), 5, n_member, &a);
        random_cut(1 + (int32_t)random_below(2), 5, n_member, &b);
        a.repeat = 1 + random_below(2);
        b.repeat = 1 + random_below(2);
        holders_of_cut(&a, n_member, &map_a);
        holders_of_cut(&b, n_member, &map_b);
        if (!meta_cut_join(&a, &b, n_member, &both)) {
            assert_true(a.repeat * a.n_segment + b.repeat * b.n_segment > TDM_MAX_SEGMENTS);
            continue;
        }
        n_joined++;
        holders_of_cut(&both, n_member, &map_c);
        assert_int_equal(map_c.n, map_a.n + map_b.n);
        assert_memory_equal(map_c.of, map_a.of, (size_t)map_a.n * sizeof *map_a.of);
        assert_memory_equal(map_c.of + map_a.n, map_b.of, (size_t)map_b.n * sizeof *map_b.of);
    }
    assert_true(n_joined > N_CASE / 2);
}

static void owners_are_the_lowest_holders(void **state) {
    (void)state;
    for (int i = 0; i < N_CASE; i++) {
        meta_cut cut;
        int32_t n_member = 1 + (int32_t)random_below(i % 16 == 0 ? TDM_MAX_MEMBERS : 6);
        int64_t at = 0;
        bool is_disjoint = true;
        random_cut(1 + (int32_t)random_below(TDM_MAX_SEGMENTS), 9, n_member, &cut);
        holders_of_cut(&cut, n_member, &map_a);
        for (int32_t s = 0; s < cut.n_segment; at += cut.segments[s++].n_unit)
            for (int32_t d = 0; d < n_member; d++) {
                int64_t lo, hi;
                meta_cut_owned(&cut, s, d, &lo, &hi);
                assert_true(lo <= hi && (lo < hi || lo == 0));
                for (int64_t u = 0; u < cut.segments[s].n_unit; u++) {
                    uint64_t who = map_a.of[at + u];
                    bool is_owner = (who & (~who + 1)) == UINT64_C(1) << d;
                    assert_int_equal(lo <= u && u < hi, is_owner);
                    if ((who & (who - 1)) != 0) is_disjoint = false;
                }
            }
        assert_int_equal(meta_cut_is_disjoint(&cut, n_member), is_disjoint);
    }
}

static void contains_goes_by_elements(void **state) {
    (void)state;
    int n_true = 0;
    for (int i = 0; i < N_CASE; i++) {
        meta_cut whole, part;
        int32_t n_member = 1 + (int32_t)random_below(3);
        bool is_inside = true;
        random_cut(1 + (int32_t)random_below(3), 3, n_member, &whole);
        whole.repeat = 1 + random_below(4);
        part = whole;
        switch (random_below(4)) {
        case 0: /* less of each, where somebody else holds it */
            for (int32_t s = 0; s < part.n_segment; s++)
                for (int32_t d = 0; d < n_member; d++)
                    meta_cut_owned(&whole, s, d, &part.segments[s].lo[d], &part.segments[s].hi[d]);
            break;
        case 1: /* the same in another way */
            if (part.repeat % 2 == 0 && part.n_segment * 2 <= TDM_MAX_SEGMENTS) {
                for (int32_t s = 0; s < part.n_segment; s++)
                    part.segments[part.n_segment + s] = part.segments[s];
                part.n_segment *= 2;
                part.repeat /= 2;
            }
            break;
        case 2: random_cut(1, random_cut_length(&whole), n_member, &part); break;
        default:
            for (int32_t s = 0; s < part.n_segment; s++)
                random_segment(part.segments[s].n_unit, n_member, &part.segments[s]);
        }
        holders_of_cut(&whole, n_member, &map_a);
        holders_of_cut(&part, n_member, &map_b);
        if (map_a.n != map_b.n) is_inside = false;
        for (int64_t e = 0; is_inside && e < map_a.n; e++)
            if ((map_b.of[e] & ~map_a.of[e]) != 0) is_inside = false;
        assert_int_equal(meta_cut_contains(&whole, &part, n_member), is_inside);
        n_true += is_inside;
        part = whole;
        part.axis++;
        assert_false(meta_cut_contains(&whole, &part, n_member));
    }
    assert_true(n_true > N_CASE / 10 && n_true < N_CASE);
}

static void expect_refusal(const tdm_layout *layout, const char *word) {
    tdm_layout copy = *layout;
    tdm_error err = {0};
    assert_int_equal(meta_layout_normalize(&copy, &err), TDM_INVALID_ARGUMENT);
    if (strstr(err.message, word) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, word);
    assert_memory_equal(&copy, layout, sizeof copy);
}

static void bad_layouts_are_refused(void **state) {
    (void)state;
    const tdm_layout good = {.struct_size = sizeof good,
                             .kind = TDM_LAYOUT_SPLIT,
                             .n_member = 2,
                             .n_segment = 1,
                             .outer = 3,
                             .inner = 4,
                             .segments = {{.n_unit = 4, .lo = {0, 3}, .hi = {3, 4}}}};
    tdm_layout bad = good;
    assert_int_equal(meta_layout_normalize(&bad, NULL), TDM_OK);
    bad = good, bad.kind = TDM_LAYOUT_UNSET, expect_refusal(&bad, "kind 0");
    bad = good, bad.kind = 99, expect_refusal(&bad, "kind 99");
    bad = good, bad.n_member = 0, expect_refusal(&bad, "0 members");
    bad = good, bad.n_member = 65, expect_refusal(&bad, "65 members");
    bad = good, bad.n_segment = 0, expect_refusal(&bad, "0 segments");
    assert_int_equal(TDM_MAX_SEGMENTS, 8);
    bad = good, bad.n_segment = 9, expect_refusal(&bad, "9 segments");
    bad = good, bad.outer = -1, expect_refusal(&bad, "below 0");
    bad = good, bad.inner = -4, expect_refusal(&bad, "below 0");
    bad = good, bad.segments[0].n_unit = -1, expect_refusal(&bad, "-1 units");
    bad = good, bad.segments[0].hi[1] = 5, expect_refusal(&bad, "member 1 holds");
    bad = good, bad.segments[0].lo[0] = -1, expect_refusal(&bad, "member 0 holds");
    bad = good, bad.segments[0].lo[1] = 4,
    expect_refusal(&bad, "no member holds elements 12 to 16");
    bad = good, bad.outer = INT64_MAX / 8, expect_refusal(&bad, "counted");
    bad = good, bad.inner = INT64_MAX / 2, expect_refusal(&bad, "counted");
    /* Member 1 alone has what comes before and after member 0's part of a segment, which takes two
     * segments or more. The lengths differ, so that the pattern does not repeat. */
    bad = good, bad.segments[0].lo[0] = 1, bad.segments[0].hi[0] = 2, bad.segments[0].lo[1] = 0;
    for (int32_t s = 1; s < TDM_MAX_SEGMENTS; s++) {
        bad.segments[s] = bad.segments[0];
        bad.segments[s].n_unit += s, bad.segments[s].hi[1] += s;
    }
    bad.n_segment = TDM_MAX_SEGMENTS, expect_refusal(&bad, "ascending");
    meta_layout_replicated(3, TDM_REPLICA_EXACT, &bad);
    bad.replica = 7, expect_refusal(&bad, "replicated");
}

static void plain_kinds_forget_the_rest(void **state) {
    (void)state;
    tdm_layout a, b;
    meta_layout_replicated(3, TDM_REPLICA_EXACT, &a);
    b = a;
    b.outer = 5;
    b.n_segment = 2;
    b.segments[1].hi[2] = 9;
    b.struct_size = 0;
    assert_int_equal(meta_layout_normalize(&b, NULL), TDM_OK);
    assert_memory_equal(&a, &b, sizeof a);
    meta_layout_partial(3, TDM_LAYOUT_PARTIAL_SUM, &a);
    b.kind = TDM_LAYOUT_PARTIAL_SUM;
    assert_int_equal(meta_layout_normalize(&b, NULL), TDM_OK);
    assert_memory_equal(&a, &b, sizeof a);
    meta_layout_partial(3, TDM_LAYOUT_PARTIAL_LSE, &b);
    assert_memory_not_equal(&a, &b, sizeof a);
}

static void text_fits(void **state) {
    (void)state;
    char text[64], small[9];
    meta_cut cut = {.axis = 1, .n_segment = 2, .repeat = 1};
    tdm_layout layout;
    cut.segments[0] = (tdm_layout_segment){.n_unit = 4, .lo = {0, 3}, .hi = {3, 4}};
    cut.segments[1] = (tdm_layout_segment){.n_unit = 2, .lo = {0}, .hi = {2}};
    meta_layout_from_cut(&cut, (const int64_t[4]){32, 6, 8, 1}, 2, &layout);
    assert_string_equal(meta_layout_print(&layout, text, sizeof text),
                        "split 8x[4|2]x32 0:0-3|0-2 1:3-4|-");
    assert_string_equal(meta_layout_print(&layout, small, sizeof small), "split 8x");
    assert_string_equal(meta_layout_print(&layout, small, 1), "");
    meta_layout_replicated(2, TDM_REPLICA_EXACT, &layout);
    assert_string_equal(meta_layout_print(&layout, text, sizeof text), "replicated exactly");
    meta_layout_replicated(2, TDM_REPLICA_EQUIVALENT, &layout);
    assert_string_equal(meta_layout_print(&layout, text, sizeof text), "replicated");
    meta_layout_partial(2, TDM_LAYOUT_PARTIAL_SUM, &layout);
    assert_string_equal(meta_layout_print(&layout, text, sizeof text), "partial sum");
}

static int64_t n_host_byte;
static bool host_is_empty;

static void *host_alloc(void *context, size_t size, size_t align) {
    (void)context, (void)align;
    if (host_is_empty) return NULL;
    n_host_byte += (int64_t)size;
    return malloc(size);
}

static void host_free(void *context, void *ptr, size_t size) {
    (void)context;
    n_host_byte -= (int64_t)size;
    free(ptr);
}

static void interned_layouts_are_ids(void **state) {
    (void)state;
    const tdm_host host = {.struct_size = sizeof host, .alloc = host_alloc, .free = host_free};
    meta_layout_set set = {0};
    tdm_layout layouts[40];
    host_is_empty = true;
    meta_layout_replicated(2, TDM_REPLICA_EXACT, &layouts[0]);
    assert_int_equal(meta_layout_intern(&host, &set, &layouts[0]), -1);
    host_is_empty = false;
    for (int32_t i = 0; i < 40; i++) {
        meta_layout_replicated(1 + i, TDM_REPLICA_EXACT, &layouts[i]);
        assert_int_equal(meta_layout_intern(&host, &set, &layouts[i]), i);
        for (int32_t k = 0; k <= i; k++)
            assert_int_equal(meta_layout_intern(&host, &set, &layouts[k]), k);
    }
    meta_free(&host, set.layouts, (size_t)set.capacity * sizeof *set.layouts);
    assert_int_equal(n_host_byte, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalize_keeps_holders),
        cmocka_unit_test(equal_bytes_are_equal_holders),
        cmocka_unit_test(get_cut_says_what_holders_say),
        cmocka_unit_test(from_cut_survives_reshapes),
        cmocka_unit_test(heads_survive_flattening),
        cmocka_unit_test(fused_parts_are_segments),
        cmocka_unit_test(empty_values_are_ordinary),
        cmocka_unit_test(windows_are_windows),
        cmocka_unit_test(joins_are_one_after_the_other),
        cmocka_unit_test(owners_are_the_lowest_holders),
        cmocka_unit_test(contains_goes_by_elements),
        cmocka_unit_test(bad_layouts_are_refused),
        cmocka_unit_test(plain_kinds_forget_the_rest),
        cmocka_unit_test(text_fits),
        cmocka_unit_test(interned_layouts_are_ids),
    };
    random_begin("layout");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
