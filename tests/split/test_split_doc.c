/* SPDX-License-Identifier: MIT
 *
 * test_split_doc.c: docs/split-states.md agrees with the code: its table of rules is the code's,
 * and its worked examples are computed here and must be printed there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/meta/rules/compile.h"

#define NAME_(ID, name, number, ...) [number] = #ID,
static const char *const op_names[TDM_OP_COUNT_] = {TDM_OP_LIST(NAME_)};

static char *page;

static int page_read(void **state) {
    (void)state;
    FILE *f = fopen(SPLIT_DOC, "rb");
    if (f == NULL) return -1;
    page = calloc(1, 1 << 20);
    size_t n = page != NULL ? fread(page, 1, (1 << 20) - 1, f) : 0;
    fclose(f);
    return n > 0 ? 0 : -1;
}

static int page_free(void **state) {
    (void)state;
    free(page);
    return 0;
}

static void stands(const char *text) {
    if (strstr(page, text) == NULL) fail_msg("docs/split-states.md does not have: %s", text);
}

static void test_rules(void **state) {
    (void)state;
    int n = 0, n_row = 0;
    for (int32_t op = TDM_OP_NONE + 1; op < TDM_OP_COUNT_; op++) {
        const meta_rule *rule = meta_rule_find(op);
        char row[512];
        if (op == TDM_OP_EXCHANGE) {
            assert_null(rule);
            continue;
        }
        assert_non_null(rule); /* the table is total */
        snprintf(row, sizeof row, "\n| %s | %s |\n", op_names[op], rule->text);
        stands(row);
        n++;
    }
    /* There is no row without an op. */
    for (const char *at = strstr(page, "| op |"); at != NULL && at[0] == '|'; n_row++) {
        at = strchr(at, '\n');
        if (at != NULL) at++;
    }
    assert_int_equal(n_row, n + 2);
}

/* Units of two query heads, a key and a value of 64, 8 of them at the shares 5 : 2 : 1. */
static void fused_cut(meta_cut *cut) {
    static const int64_t lo[3] = {0, 5, 7}, hi[3] = {5, 7, 8};
    memset(cut, 0, sizeof *cut);
    cut->axis = 0;
    cut->repeat = 1;
    cut->n_segment = 3;
    for (int s = 0; s < 3; s++) {
        int64_t unit = s == 0 ? 128 : 64;
        cut->segments[s].n_unit = 8 * unit;
        for (int d = 0; d < 3; d++) {
            cut->segments[s].lo[d] = lo[d] * unit;
            cut->segments[s].hi[d] = hi[d] * unit;
        }
    }
}

static void print_cut(const meta_cut *cut, const int64_t ne[TDM_MAX_DIMS], int32_t n_member) {
    char line[256], text[264];
    tdm_layout layout;
    meta_layout_from_cut(cut, ne, n_member, &layout);
    snprintf(text, sizeof text, "    %s\n", meta_layout_print(&layout, line, sizeof line));
    stands(text);
}

static void test_fused(void **state) {
    (void)state;
    const double share[3] = {5, 2, 1};
    double carry[3] = {0}, sum[3];
    int64_t lo[TDM_MAX_MEMBERS], hi[TDM_MAX_MEMBERS], local_off[TDM_MAX_MEMBERS];
    meta_cut cut, window;
    for (int d = 0; d < 3; d++) sum[d] = share[d] / 8;
    meta_apportion(8, 1, 3, sum, carry, lo, hi);
    fused_cut(&cut);
    for (int d = 0; d < 3; d++) {
        assert_int_equal(lo[d] * 128, cut.segments[0].lo[d]);
        assert_int_equal(hi[d] * 128, cut.segments[0].hi[d]);
    }
    const int64_t ne[TDM_MAX_DIMS] = {2048, 1, 1, 1}, k_ne[TDM_MAX_DIMS] = {512, 1, 1, 1};
    print_cut(&cut, ne, 3);
    assert_true(meta_cut_window(&cut, 1024, 512, 3, &window, local_off));
    assert_int_equal(window.n_segment, 1);
    assert_int_equal(local_off[0], 640);
    print_cut(&window, k_ne, 3);
}

static void test_flatten(void **state) {
    (void)state;
    static const int64_t shapes[3][TDM_MAX_DIMS] = {{512, 5, 1, 1}, {64, 8, 5, 1}, {64, 40, 1, 1}};
    static const struct {
        int32_t axis;
        int64_t repeat;
    } seen[3] = {{0, 1}, {1, 1}, {1, 5}};
    tdm_layout layout;
    meta_cut cut = {.axis = 0, .n_segment = 1, .repeat = 1}, back;
    cut.segments[0].n_unit = 512;
    cut.segments[0].hi[0] = cut.segments[0].lo[1] = 384;
    cut.segments[0].hi[1] = 512;
    meta_layout_from_cut(&cut, shapes[0], 2, &layout);
    print_cut(&cut, shapes[0], 2);
    for (int i = 0; i < 3; i++) {
        assert_true(meta_layout_get_cut(&layout, shapes[i], &back));
        assert_int_equal(back.axis, seen[i].axis);
        assert_int_equal(back.repeat, seen[i].repeat);
    }
}

static void test_superblock(void **state) {
    (void)state;
    const double share[2] = {0.6, 0.4};
    double carry[2] = {0};
    int64_t lo[TDM_MAX_MEMBERS], hi[TDM_MAX_MEMBERS];
    const int64_t ne[TDM_MAX_DIMS] = {512, 1, 1, 1};
    meta_cut cut = {.axis = 0, .n_segment = 1, .repeat = 1};
    cut.segments[0].n_unit = 512;
    meta_apportion(512, 32, 2, share, carry, lo, hi);
    for (int d = 0; d < 2; d++) {
        cut.segments[0].lo[d] = lo[d];
        cut.segments[0].hi[d] = hi[d];
    }
    assert_int_equal(hi[0], 320);
    print_cut(&cut, ne, 2);
}

static void test_pages(void **state) {
    (void)state;
    meta_page pages[9];
    int64_t n_local[TDM_MAX_MEMBERS];
    char text[128] = "    members", *at = text + strlen(text);
    meta_device *device = calloc(1, sizeof *device);
    assert_non_null(device);
    device->n_member = device->n_active = 2;
    device->members[0].share = 2.0 / 3;
    device->members[1].share = 1.0 / 3;
    meta_pages_assign(device, 9, pages, n_local);
    for (int i = 0; i < 9; i++) at += sprintf(at, " %d", (int)pages[i].owner);
    sprintf(at, "\n");
    free(device);
    assert_int_equal(n_local[0], 6);
    stands(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),   cmocka_unit_test(test_fused),
        cmocka_unit_test(test_flatten), cmocka_unit_test(test_superblock),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, page_read, page_free);
}
