/* SPDX-License-Identifier: MIT
 *
 * test_view.c: the places of views against the ops' definitions. A random chain of views is
 * applied element by element to numbers 0, 1, 2 ..., and each number must be at its place.
 */
#include "core/base/view.h"
#include "graph_fixture.h"

enum { MAX_COUNT = 4096 };

typedef struct grid {
    int64_t ne[4];
    int32_t at[MAX_COUNT]; /* which element of the base each one is, in canonical order */
} grid;

static int64_t linear(const int64_t ne[4], const int64_t i[4]) {
    return i[0] + ne[0] * (i[1] + ne[1] * (i[2] + ne[2] * i[3]));
}

/* The next index, innermost first; false behind the last. */
static bool step(const int64_t ne[4], int64_t i[4]) {
    int d;
    for (d = 0; d < 4; d++) {
        if (++i[d] < ne[d]) return true;
        i[d] = 0;
    }
    return false;
}

static void permuted(const grid *x, const int axes[4], grid *y) {
    int64_t i[4] = {0}, j[4];
    int d;
    for (d = 0; d < 4; d++) y->ne[axes[d]] = x->ne[d];
    do {
        for (d = 0; d < 4; d++) j[axes[d]] = i[d];
        y->at[linear(y->ne, j)] = x->at[linear(x->ne, i)];
    } while (step(x->ne, i));
}

static void sliced(const grid *x, const int64_t offset[4], grid *y) {
    int64_t i[4] = {0}, j[4];
    int d;
    do {
        for (d = 0; d < 4; d++) j[d] = i[d] + offset[d];
        y->at[linear(y->ne, i)] = x->at[linear(x->ne, j)];
    } while (step(y->ne, i));
}

static bool is_run(const grid *x) {
    int64_t i, count = tdm_shape_count(x->ne);
    for (i = 1; i < count; i++)
        if (x->at[i] != x->at[0] + i) return false;
    return true;
}

static void place_check(const tdm_graph *graph, int32_t value, int32_t base, const grid *y) {
    tdm_view_place place;
    int64_t i[4] = {0};
    tdm_view_resolve(graph, value, &place);
    assert_int_equal(place.base, base);
    do {
        int64_t at = place.off + i[0] * place.nb[0] + i[1] * place.nb[1] + i[2] * place.nb[2] +
                     i[3] * place.nb[3];
        assert_int_equal(at, 4 * (int64_t)y->at[linear(y->ne, i)]);
    } while (step(y->ne, i));
    if (tdm_view_is_contiguous(tdm_graph_value(graph, value), &place)) assert_true(is_run(y));
}

static void test_chain(void **state) {
    static grid grids[9];
    int round, n_reshape = 0;
    (void)state;
    random_begin("view", 2718);
    for (round = 0; round < 400; round++) {
        const int64_t ne[4] = {1 + random_below(8), 1 + random_below(8), 1 + random_below(8),
                               1 + random_below(8)};
        int32_t values[9], n = 1, i;
        tdm_builder *b = NULL;
        tdm_graph *graph = NULL;
        tdm_error err = {0};
        assert_int_equal(tdm_builder_create(&b, NULL), TDM_OK);
        values[0] = tdm_build_input(b, "base", TDM_TYPE_F32, ne);
        memcpy(grids[0].ne, ne, sizeof ne);
        for (i = 0; i < tdm_shape_count(ne); i++) grids[0].at[i] = i;
        for (; n < 9; n++) {
            const grid *x = &grids[n - 1];
            grid *y = &grids[n];
            int64_t offset[4];
            int axes[4] = {0, 1, 2, 3}, d;
            *y = *x;
            switch (random_below(3)) {
            case 0:
                for (d = 3; d > 0; d--) {
                    int j = (int)random_below(d + 1), t = axes[d];
                    axes[d] = axes[j], axes[j] = t;
                }
                permuted(x, axes, y);
                values[n] = tdm_build_permute(b, values[n - 1], axes[0], axes[1], axes[2], axes[3]);
                break;
            case 1:
                for (d = 0; d < 4; d++) {
                    offset[d] = random_below(3) == 0 ? random_below(x->ne[d]) : 0;
                    y->ne[d] = x->ne[d] - offset[d];
                    if (random_below(3) == 0) y->ne[d] = 1 + random_below(y->ne[d]);
                }
                sliced(x, offset, y);
                values[n] = tdm_build_slice(b, values[n - 1], offset, y->ne);
                break;
            default:
                /* what lies in one run may be reshaped, whatever led there */
                if (is_run(x)) {
                    int64_t count = tdm_shape_count(x->ne);
                    y->ne[0] = count % 2 == 0 ? count / 2 : count;
                    y->ne[1] = y->ne[3] = 1;
                    y->ne[2] = count % 2 == 0 ? 2 : 1;
                    values[n] = tdm_build_reshape(b, values[n - 1], y->ne[0], 1, y->ne[2], 1);
                    n_reshape++;
                } else {
                    values[n] = values[n - 1];
                }
            }
        }
        if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
        for (i = 0; i < n; i++) place_check(graph, values[i], values[0], &grids[i]);
        tdm_graph_free(graph);
        tdm_builder_destroy(b);
    }
    assert_true(n_reshape > 100);
}

/* Along axis 0 of a quantised type, strides and offsets count blocks. */
static void test_blocks(void **state) {
    fixture f = fixture_make();
    tdm_graph *graph = NULL;
    tdm_view_place place;
    int32_t view = tdm_build_permute(
        f.b, tdm_build_slice(f.b, f.plain, NE(32, 3, 0, 0), NE(32, 20, 1, 1)), 0, 2, 1, 3);
    (void)state;
    assert_int_equal(tdm_builder_finish(f.b, &graph, NULL), TDM_OK);
    tdm_view_resolve(graph, f.plain, &place); /* q8_0 [64, 32] */
    assert_int_equal(place.base, f.plain);
    assert_int_equal(place.off, 0);
    assert_int_equal(place.nb[0], 34);
    assert_int_equal(place.nb[1], 68);
    assert_int_equal(place.nb[2], 68 * 32);
    tdm_view_resolve(graph, view, &place);
    assert_int_equal(place.base, f.plain);
    assert_int_equal(place.off, 34 + 3 * 68);
    assert_int_equal(place.nb[0], 34);
    assert_int_equal(place.nb[2], 68);
    assert_false(tdm_view_is_contiguous(tdm_graph_value(graph, view), &place));
    tdm_graph_free(graph);
    tdm_builder_destroy(f.b);
}

/* A view counts as its base; nodes that only make views count nowhere. */
static void test_uses(void **state) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    tdm_view_place *places;
    int32_t *writer, *n_read;
    (void)state;
    assert_int_equal(tdm_builder_create(&b, NULL), TDM_OK);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, NE(6, 4, 1, 1));
    int32_t y = tdm_build_scale(b, x, 2, 0);
    int32_t half = tdm_build_slice(b, y, NE(3, 0, 0, 0), NE(3, 4, 1, 1));
    int32_t wide = tdm_build_reshape(b, y, 24, 1, 1, 1);
    int32_t z = tdm_build_scale(b, half, 3, 0);
    int32_t sum = tdm_build_add(b, wide, wide);
    tdm_build_output(b, z, "z");
    tdm_build_output(b, sum, "sum");
    assert_int_equal(tdm_builder_finish(b, &graph, NULL), TDM_OK);
    places = calloc((size_t)graph->n_value, sizeof *places);
    writer = calloc((size_t)graph->n_value, sizeof *writer);
    n_read = calloc((size_t)graph->n_value, sizeof *n_read);
    tdm_view_resolve_all(graph, places);
    assert_int_equal(places[half].base, y);
    assert_int_equal(places[half].off, 12);
    tdm_view_uses(graph, places, writer, n_read);
    const int32_t values[] = {x, y, half, wide, z, sum};
    const int32_t writers[] = {-1, 0, -1, -1, 3, 4}, reads[] = {1, 3, 0, 0, 0, 0};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(writer[values[i]], writers[i]);
        assert_int_equal(n_read[values[i]], reads[i]);
    }
    free(places);
    free(writer);
    free(n_read);
    tdm_graph_free(graph);
    tdm_builder_destroy(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uses),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
