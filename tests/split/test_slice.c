/* SPDX-License-Identifier: MIT
 *
 * test_slice.c: slices of tensors on real CPU devices, against lists of the elements that each
 * member must have. The cuts are random, also ones that no partition gives: this file replaces
 * partition.c and defines the layout of a tensor itself.
 *
 * TANDEM_PLUGIN_PATH says where the CPU plugin is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/runtime.h"
#include "plugins/meta/layout/slice.h"
#include "plugins/meta/layout/superblock.h"
#include "split_random.h"
#include "tandem/block.h"

enum { N_CASE = 1500, MAX_MEMBER = 7, SUPER = TDM_SUPERBLOCK_LEN, GUARD = 64, MAX_BLOCK = 256 };

/* ---- The group: two kinds of CPU device, each several members ---- */

static tdm_runtime *runtime;
static tdm_open_device *devices[2];
static meta_device group;
static tdm_layout current; /* how the tensor of the case is laid out */

tdm_status meta_partition_layout(const meta_device *device, const tdm_tensor_desc *desc,
                                 tdm_layout *out, tdm_error *err) {
    (void)device;
    (void)desc;
    (void)err;
    *out = current;
    return TDM_OK;
}

static void *host_alloc(void *context, size_t size, size_t align) {
    (void)context;
    align = align > 0 ? align : 64;
    return aligned_alloc(align, (size + align) / align * align);
}
static void host_free(void *context, void *ptr, size_t size) {
    (void)context;
    (void)size;
    free(ptr);
}
static const tdm_host host = {.struct_size = sizeof host, .alloc = host_alloc, .free = host_free};

static int devices_open(void **context) {
    static const char *const paths[] = {"fast", "reference"};
    tdm_runtime_params params = {.struct_size = sizeof params};
    tdm_error err = {0};
    (void)context;
    if (tdm_runtime_create(&params, &runtime, &err) != TDM_OK) fail_msg("%s", err.message);
    for (int i = 0; i < 2; i++) {
        tdm_option options[] = {{"threads", "1"}, {"path", paths[i]}};
        tdm_device_spec spec = {
            .name = paths[i], .plugin = "cpu", .options = options, .n_option = 2};
        if (tdm_runtime_declare(runtime, &spec, &err) != TDM_OK ||
            tdm_runtime_open(runtime, paths[i], &devices[i], &err) != TDM_OK)
            fail_msg("%s", err.message);
    }
    return 0;
}

static int devices_close(void **context) {
    (void)context;
    tdm_runtime_destroy(runtime);
    return 0;
}

static void group_make(int32_t n_member) {
    memset(&group, 0, sizeof group);
    group.host = &host;
    group.n_member = group.n_active = n_member;
    for (int32_t d = 0; d < n_member; d++) {
        tdm_open_device *dev = devices[random_below(2)];
        group.members[d].name = "some";
        group.members[d].share = 1.0 / n_member;
        group.members[d].acquired = (tdm_acquired_device){
            sizeof(tdm_acquired_device), tdm_open_device_plugin(dev), tdm_open_device_handle(dev)};
    }
}

static const tdm_buffer_ops *buffers_of(int32_t d) {
    return group.members[d].acquired.plugin->buffer;
}

/* ---- A case ---- */

typedef struct slice_case {
    tdm_tensor_desc desc;
    meta_cut cut; /* axis -1: replicated */
    int32_t n_member;
    uint8_t *whole; /* canonical bytes */
    size_t size, row_size, n_row;
    tdm_buffer *buffers[MAX_MEMBER];
    uint64_t offs[MAX_MEMBER];
    meta_slice slices[MAX_MEMBER];
} slice_case;

static const tdm_type all_types[] = {
    TDM_TYPE_F32,   TDM_TYPE_F16,    TDM_TYPE_BF16,   TDM_TYPE_Q4_0,  TDM_TYPE_Q5_1,
    TDM_TYPE_Q8_0,  TDM_TYPE_Q2_K,   TDM_TYPE_Q3_K,   TDM_TYPE_Q4_K,  TDM_TYPE_Q5_K,
    TDM_TYPE_Q6_K,  TDM_TYPE_IQ4_XS, TDM_TYPE_IQ4_NL, TDM_TYPE_MXFP4, TDM_TYPE_NVFP4,
    TDM_TYPE_IQ2_S, TDM_TYPE_IQ1_M,  TDM_TYPE_TQ1_0};

/* Elements of the axis that member d holds, in its order; returns their number. */
static int64_t held_list(const slice_case *c, int32_t d, int64_t *list) {
    int64_t n = 0, base = 0;
    for (int32_t s = 0; s < c->cut.n_segment; s++) {
        const tdm_layout_segment *g = &c->cut.segments[s];
        for (int64_t i = g->lo[d]; i < g->hi[d]; i++) list[n++] = base + i;
        base += g->n_unit;
    }
    return n;
}

static void cut_draw(slice_case *c, int32_t axis, int64_t unit, int64_t length_unit) {
    int64_t length;
    random_cut(1 + (int32_t)random_below(axis == 0 && length_unit == SUPER ? 2 : 4), 6, c->n_member,
               &c->cut);
    for (int32_t s = 0; s < c->cut.n_segment; s++) {
        tdm_layout_segment *g = &c->cut.segments[s];
        g->n_unit *= unit;
        for (int32_t d = 0; d < c->n_member; d++) g->lo[d] *= unit, g->hi[d] *= unit;
    }
    /* Members that hold the end of the last segment take the elements up to a whole block. */
    length = random_cut_length(&c->cut);
    tdm_layout_segment *last = &c->cut.segments[c->cut.n_segment - 1];
    const int64_t more = (length_unit - length % length_unit) % length_unit;
    for (int32_t d = c->n_member - 1; d >= 0 && more > 0; d--)
        if (last->hi[d] == last->n_unit) last->hi[d] += more;
    last->n_unit += more;
    c->cut.axis = axis;
    c->desc.ne[axis] = length + more;
}

static void case_draw(slice_case *c) {
    memset(c, 0, sizeof *c);
    c->n_member = 1 + (int32_t)random_below(MAX_MEMBER);
    c->desc.struct_size = sizeof c->desc;
    c->desc.type = all_types[random_below((int64_t)(sizeof all_types / sizeof all_types[0]))];
    const tdm_type_info type = tdm_type_get_info(c->desc.type);
    const int32_t n_dim = 1 + (int32_t)random_below(4);
    for (int i = 0; i < TDM_MAX_DIMS; i++) c->desc.ne[i] = i < n_dim ? 1 + random_below(4) : 1;
    c->desc.ne[0] *= type.block_len;
    const int32_t axis = (int32_t)random_below(n_dim + 1) - 1;
    c->cut.axis = -1;
    if (axis == 0) {
        const int64_t unit = meta_superblock_is_cuttable(c->desc.type) && random_below(4) > 0
                                 ? META_SUPERBLOCK_UNIT
                                 : type.block_len;
        cut_draw(c, 0, unit, type.block_len);
    } else if (axis > 0) {
        cut_draw(c, axis, 1 + random_below(3), 1);
    }
    c->desc.axis = axis > 0 ? axis : 0;
    static const uint32_t matrix[] = {0, TDM_USAGE_MATMUL, TDM_USAGE_ROWS,
                                      TDM_USAGE_MATMUL | TDM_USAGE_ROWS};
    if (c->desc.ne[2] * c->desc.ne[3] == 1)
        c->desc.usage = matrix[random_below(4)];
    else if (c->desc.ne[3] == 1 && random_below(2) == 0)
        c->desc.usage = TDM_USAGE_EXPERT;
    group_make(c->n_member);
    if (c->cut.axis < 0)
        meta_layout_replicated(c->n_member, TDM_REPLICA_EXACT, &current);
    else
        meta_layout_from_cut(&c->cut, c->desc.ne, c->n_member, &current);
    c->row_size = tdm_type_row_size(c->desc.type, c->desc.ne[0]);
    c->n_row = (size_t)tdm_shape_rows(c->desc.ne);
    c->size = c->row_size * c->n_row;
    c->whole = malloc(c->size + 1);
    assert_non_null(c->whole);
    for (size_t i = 0; i < c->size; i++) c->whole[i] = (uint8_t)random_word();
}

/* False where member d holds several runs of columns, one of which begins or ends inside a block:
 * it would need padding between its columns, and the cut is invalid. */
static bool case_is_cuttable(const slice_case *c, int32_t d) {
    int64_t list[4096];
    const int32_t len = tdm_type_get_info(c->desc.type).block_len;
    if (c->cut.axis != 0) return true;
    const int64_t n = held_list(c, d, list);
    int64_t n_run = 0;
    bool is_padded = false;
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || list[i] != list[i - 1] + 1) {
            n_run++;
            is_padded = is_padded || list[i] % len != 0;
        }
        if (i + 1 == n || list[i + 1] != list[i] + 1)
            is_padded = is_padded || (list[i] + 1) % len != 0;
    }
    return n_run <= 1 || !is_padded;
}

/* The member's canonical bytes as they must be; *size_out their number. */
static uint8_t *expected_make(const slice_case *c, int32_t d, size_t *size_out) {
    int64_t list[4096], ne[TDM_MAX_DIMS];
    const tdm_type type = c->desc.type;
    const int64_t len = tdm_type_get_info(type).block_len;
    const size_t block_size = (size_t)tdm_type_get_info(type).block_size;
    memcpy(ne, c->desc.ne, sizeof ne);
    int64_t n = c->cut.axis >= 0 ? held_list(c, d, list) : 0, lo = 0, hi = 0;
    if (c->cut.axis == 0 && n > 0) {
        lo = list[0];
        hi = list[n - 1] + 1;
        if (lo % len != 0 || hi % len != 0) { /* padded: one run */
            const int64_t first = lo / len * len, end = (hi + len - 1) / len * len;
            n = end - first;
            for (int64_t i = 0; i < n; i++) list[i] = first + i;
        }
    }
    if (c->cut.axis >= 0) ne[c->cut.axis] = n;
    const int64_t n_block = ne[0] / len;
    uint8_t *bytes = malloc((size_t)tdm_shape_count(ne) / (size_t)len * block_size + 1),
            *to = bytes;
    assert_non_null(bytes);
    for (int64_t i3 = 0; i3 < ne[3]; i3++)
        for (int64_t i2 = 0; i2 < ne[2]; i2++)
            for (int64_t i1 = 0; i1 < ne[1]; i1++)
                for (int64_t b = 0; b < n_block; b++, to += block_size) {
                    int64_t at[TDM_MAX_DIMS] = {b * len, i1, i2, i3};
                    if (c->cut.axis >= 0) at[c->cut.axis] = list[at[c->cut.axis]];
                    const int64_t row = at[1] + c->desc.ne[1] * (at[2] + c->desc.ne[2] * at[3]);
                    uint16_t block[MAX_BLOCK / 2];
                    memcpy(block,
                           c->whole + (size_t)row * c->row_size +
                               (size_t)(at[0] / len) * block_size,
                           block_size);
                    const int64_t from = lo > at[0] ? lo - at[0] : 0;
                    const int64_t till = hi < at[0] + len ? hi - at[0] : len;
                    if (c->cut.axis == 0 && (from > 0 || till < len))
                        meta_superblock_mask(type, block, (int)from, (int)till);
                    memcpy(to, block, block_size);
                }
    *size_out = (size_t)(to - bytes);
    return bytes;
}

/* ---- Moving, in parts ---- */

typedef struct part {
    int64_t row_first, n_row, col_first, n_col;
} part;

/* Rows and columns in up to three pieces each; every element is in one part. */
static int parts_draw(const slice_case *c, part parts[9]) {
    const int64_t len = tdm_type_get_info(c->desc.type).block_len;
    const int64_t n_row = (int64_t)c->n_row, n_block = c->desc.ne[0] / len;
    int64_t rows[4] = {0, random_below(n_row + 1), random_below(n_row + 1), n_row};
    int64_t cols[4] = {0, random_below(n_block + 1), random_below(n_block + 1), n_block};
    int n = 0;
    if (rows[1] > rows[2]) rows[1] = rows[2];
    if (cols[1] > cols[2]) cols[1] = cols[2];
    if (random_below(2) == 0) cols[1] = cols[2] = 0; /* whole rows, as a loader has them */
    for (int r = 0; r < 3; r++)
        for (int b = 0; b < 3; b++)
            parts[n++] = (part){rows[r], rows[r + 1] - rows[r], cols[b] * len,
                                (cols[b + 1] - cols[b]) * len};
    for (int i = n - 1; i > 0; i--) { /* in any order */
        const int k = (int)random_below(i + 1);
        const part swap = parts[i];
        parts[i] = parts[k];
        parts[k] = swap;
    }
    return n;
}

static void upload_all(slice_case *c) {
    part parts[9];
    tdm_error err = {0};
    const int n = parts_draw(c, parts);
    for (int i = 0; i < n; i++) {
        const part *p = &parts[i];
        const size_t pitch =
            tdm_type_row_size(c->desc.type, p->n_col) + 2 * (size_t)random_below(8);
        uint8_t *src = malloc((size_t)p->n_row * pitch + 1);
        assert_non_null(src);
        for (int64_t r = 0; r < p->n_row; r++)
            memcpy(src + (size_t)r * pitch,
                   c->whole + (size_t)(p->row_first + r) * c->row_size +
                       tdm_type_row_size(c->desc.type, p->col_first),
                   tdm_type_row_size(c->desc.type, p->n_col));
        for (int32_t d = 0; d < c->n_member; d++)
            if (meta_slice_move(&group, d, c->buffers[d], c->offs[d], &c->desc, &c->slices[d], src,
                                NULL, pitch, p->row_first, p->n_row, p->col_first, p->n_col,
                                &err) != TDM_OK)
                fail_msg("%s", err.message);
        free(src);
    }
}

static void download_all(const slice_case *c, uint8_t *dst) {
    part parts[9];
    tdm_error err = {0};
    const int n = parts_draw(c, parts);
    for (int i = 0; i < n; i++) {
        const part *p = &parts[i];
        uint8_t *to = dst + (size_t)p->row_first * c->row_size +
                      tdm_type_row_size(c->desc.type, p->col_first);
        /* In any order of the members: a download writes only what its member holds. */
        const int32_t first = (int32_t)random_below(c->n_member);
        for (int32_t k = 0; k < c->n_member; k++) {
            const int32_t d = (first + k) % c->n_member;
            if (meta_slice_move(&group, d, c->buffers[d], c->offs[d], &c->desc, &c->slices[d], NULL,
                                to, c->row_size, p->row_first, p->n_row, p->col_first, p->n_col,
                                &err) != TDM_OK)
                fail_msg("%s", err.message);
        }
    }
}

/* ---- Tests ---- */

static void member_check(const slice_case *c, int32_t d, int at) {
    size_t size = 0;
    uint8_t *expected = expected_make(c, d, &size);
    const meta_slice *slice = &c->slices[d];
    assert_int_equal(slice->is_empty, size == 0);
    if (!slice->is_empty) {
        tdm_error err = {0};
        const size_t row_size = tdm_type_row_size(c->desc.type, slice->desc.ne[0]);
        const int64_t n_row = tdm_shape_rows(slice->desc.ne);
        assert_int_equal(row_size * (size_t)n_row, size);
        assert_int_equal(slice->desc.partition.id, 0);
        uint8_t *found = calloc(1, size);
        assert_non_null(found);
        if (buffers_of(d)->tensor_download(c->buffers[d], c->offs[d], &slice->desc, found, row_size,
                                           0, n_row, 0, slice->desc.ne[0], &err) != TDM_OK)
            fail_msg("%s", err.message);
        if (memcmp(found, expected, size) != 0)
            fail_msg("case %d: member %d of %d does not have its slice (%s, axis %d)", at, (int)d,
                     (int)c->n_member, tdm_type_name(c->desc.type), (int)c->cut.axis);
        free(found);
    }
    free(expected);
}

static void buffer_make(slice_case *c, int32_t d) {
    tdm_error err = {0};
    uint64_t size = 0;
    if (meta_slice_size(&group, d, &c->slices[d], &size, &err) != TDM_OK)
        fail_msg("%s", err.message);
    c->offs[d] = 64 * (uint64_t)random_below(4);
    tdm_buffer_params params = {.struct_size = sizeof params, .size = c->offs[d] + size + GUARD};
    if (buffers_of(d)->alloc(group.members[d].acquired.device, &params, &c->buffers[d], &err) !=
            TDM_OK ||
        buffers_of(d)->fill(c->buffers[d], 0, params.size, 0x5a, &err) != TDM_OK)
        fail_msg("%s", err.message);
}

/* Nothing outside its place in a member's buffer was written. */
static void guard_check(const slice_case *c, int32_t d) {
    uint8_t before[256], after[GUARD];
    uint64_t size = 0;
    tdm_error err = {0};
    assert_int_equal(meta_slice_size(&group, d, &c->slices[d], &size, &err), TDM_OK);
    assert_int_equal(buffers_of(d)->download(c->buffers[d], 0, before, c->offs[d], &err), TDM_OK);
    assert_int_equal(buffers_of(d)->download(c->buffers[d], c->offs[d] + size, after, GUARD, &err),
                     TDM_OK);
    for (uint64_t i = 0; i < c->offs[d]; i++) assert_int_equal(before[i], 0x5a);
    for (int i = 0; i < GUARD; i++) assert_int_equal(after[i], 0x5a);
}

/* The parts of a tensor are uploaded, compared on each member, and downloaded. */
static void test_round_trip(void **context) {
    (void)context;
    int n_refused = 0, n_padded = 0;
    for (int at = 0; at < N_CASE; at++) {
        slice_case c;
        tdm_error err = {0};
        bool is_cuttable = true;
        case_draw(&c);
        for (int32_t d = 0; d < c.n_member; d++) {
            const tdm_status status = meta_slice_find(&group, &c.desc, d, &c.slices[d], &err);
            if (case_is_cuttable(&c, d)) {
                if (status != TDM_OK) fail_msg("case %d: %s", at, err.message);
            } else {
                assert_int_equal(status, TDM_UNSUPPORTED);
                assert_non_null(strstr(err.message, tdm_type_name(c.desc.type)));
                is_cuttable = false;
            }
            n_padded += c.slices[d].pad_lo + c.slices[d].pad_hi > 0;
        }
        n_refused += !is_cuttable;
        for (int32_t d = 0; d < c.n_member && is_cuttable; d++) buffer_make(&c, d);
        if (is_cuttable) {
            uint8_t *back = malloc(c.size + 2 * GUARD);
            assert_non_null(back);
            memset(back, 0xa5, c.size + 2 * GUARD);
            upload_all(&c);
            for (int32_t d = 0; d < c.n_member; d++) {
                member_check(&c, d, at);
                guard_check(&c, d);
            }
            download_all(&c, back + GUARD);
            if (memcmp(back + GUARD, c.whole, c.size) != 0)
                fail_msg("case %d: %d members do not give the tensor back (%s, axis %d)", at,
                         (int)c.n_member, tdm_type_name(c.desc.type), (int)c.cut.axis);
            for (int i = 0; i < GUARD; i++)
                assert_true(back[i] == 0xa5 && back[GUARD + c.size + (size_t)i] == 0xa5);
            free(back);
        }
        for (int32_t d = 0; d < c.n_member; d++)
            if (c.buffers[d] != NULL) buffers_of(d)->free(c.buffers[d]);
        free(c.whole);
    }
    print_message("%d cases, %d refused, %d padded slices\n", (int)N_CASE, n_refused, n_padded);
    assert_true(n_padded > 0 && n_refused > 0 && n_refused < N_CASE / 4);
}

/* Rows in the thousands go through staging memory in several chunks. */
static void test_many_rows(void **context) {
    (void)context;
    slice_case c = {.n_member = 2,
                    .desc = {.struct_size = sizeof c.desc,
                             .type = TDM_TYPE_Q6_K,
                             .usage = TDM_USAGE_MATMUL,
                             .ne = {SUPER, 12001, 1, 1}},
                    .cut = {.axis = 0, .n_segment = 1, .repeat = 1}};
    c.cut.segments[0] = (tdm_layout_segment){.n_unit = SUPER, .lo = {0, 96}, .hi = {96, SUPER}};
    group_make(2);
    meta_layout_from_cut(&c.cut, c.desc.ne, 2, &current);
    c.row_size = tdm_type_row_size(c.desc.type, SUPER);
    c.n_row = 12001;
    c.size = c.row_size * c.n_row;
    c.whole = malloc(c.size);
    uint8_t *back = malloc(c.size);
    assert_non_null(c.whole);
    assert_non_null(back);
    for (size_t i = 0; i < c.size; i++) c.whole[i] = (uint8_t)random_word();
    memset(back, 0xa5, c.size);
    for (int32_t d = 0; d < 2; d++) {
        tdm_error err = {0};
        if (meta_slice_find(&group, &c.desc, d, &c.slices[d], &err) != TDM_OK)
            fail_msg("%s", err.message);
        buffer_make(&c, d);
    }
    assert_int_equal(c.slices[0].pad_hi, SUPER - 96);
    assert_int_equal(c.slices[1].pad_lo, 96);
    upload_all(&c);
    for (int32_t d = 0; d < 2; d++) member_check(&c, d, 0);
    download_all(&c, back);
    assert_memory_equal(back, c.whole, c.size);
    for (int32_t d = 0; d < 2; d++) buffers_of(d)->free(c.buffers[d]);
    free(c.whole);
    free(back);
}

/* A member without a share has nothing of a replicated tensor either; the owner gives it back. */
static void test_zero_share(void **context) {
    (void)context;
    slice_case c = {
        .n_member = 3,
        .desc = {.struct_size = sizeof c.desc, .type = TDM_TYPE_F32, .ne = {7, 1, 1, 1}},
        .cut = {.axis = -1}};
    float values[7] = {1, 2, 3, 4, 5, 6, 7}, back[7] = {0};
    tdm_error err = {0};
    group_make(3);
    group.members[0].share = 0;
    group.owner = 1;
    group.n_active = 2;
    meta_layout_replicated(3, TDM_REPLICA_EXACT, &current);
    for (int32_t d = 0; d < 3; d++) {
        uint64_t size = 99;
        assert_int_equal(meta_slice_find(&group, &c.desc, d, &c.slices[d], &err), TDM_OK);
        assert_int_equal(c.slices[d].is_empty, d == 0);
        assert_int_equal(c.slices[d].cut.axis, -1);
        assert_int_equal(meta_slice_size(&group, d, &c.slices[d], &size, &err), TDM_OK);
        assert_int_equal(size, d == 0 ? 0 : sizeof values);
        buffer_make(&c, d);
        assert_int_equal(meta_slice_move(&group, d, c.buffers[d], c.offs[d], &c.desc, &c.slices[d],
                                         values, NULL, sizeof values, 0, 1, 0, 7, &err),
                         TDM_OK);
    }
    for (int32_t d = 0; d < 3; d++) {
        assert_true(back[0] == (d <= 1 ? 0 : 1));
        assert_int_equal(meta_slice_move(&group, d, c.buffers[d], c.offs[d], &c.desc, &c.slices[d],
                                         NULL, back, sizeof back, 0, 1, 0, 7, &err),
                         TDM_OK);
    }
    assert_memory_equal(values, back, sizeof back);
    for (int32_t d = 0; d < 3; d++) buffers_of(d)->free(c.buffers[d]);
}

/* A block of 32 elements cannot be cut inside; the message names the place. */
static void test_cut_in_block(void **context) {
    (void)context;
    slice_case c = {
        .n_member = 2,
        .desc = {.struct_size = sizeof c.desc, .type = TDM_TYPE_Q4_0, .ne = {64, 2, 1, 1}},
        .cut = {.axis = 0, .n_segment = 1, .repeat = 1}};
    tdm_error err = {0};
    meta_slice slice;
    c.cut.segments[0] = (tdm_layout_segment){.n_unit = 64, .lo = {0, 24}, .hi = {24, 64}};
    group_make(2);
    meta_layout_from_cut(&c.cut, c.desc.ne, 2, &current);
    assert_int_equal(meta_slice_find(&group, &c.desc, 0, &slice, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "q4_0"));
    assert_non_null(strstr(err.message, "24"));
    c.desc.type = TDM_TYPE_Q4_K;
    c.desc.ne[0] = SUPER;
    c.cut.segments[0] = (tdm_layout_segment){.n_unit = SUPER, .lo = {0, 48}, .hi = {48, SUPER}};
    meta_layout_from_cut(&c.cut, c.desc.ne, 2, &current);
    assert_int_equal(meta_slice_find(&group, &c.desc, 1, &slice, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "q4_K"));
}

int main(void) {
    random_begin("slice");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_many_rows),
        cmocka_unit_test(test_zero_share),
        cmocka_unit_test(test_cut_in_block),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
