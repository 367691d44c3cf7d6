/* SPDX-License-Identifier: MIT
 *
 * test_partition.c: partitions of graphs made by hand, assigned to members that have only a share
 * and a result of split_unit.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plugins/meta/layout/partition.h"
#include "split_random.h"

enum { MAX_VALUE = 400, MAX_MEMBER = 8 };

/* ---- Members ---- */

static meta_device member_devices[MAX_MEMBER]; /* only their addresses count */
static int64_t member_units[MAX_MEMBER][TDM_MAX_DIMS];
static int32_t broken_member; /* refuses to answer; -1 = none */
static int n_asked;

static tdm_status fake_split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                                  int32_t axis, int64_t *unit_out, tdm_error *err) {
    int32_t d = (int32_t)(device - member_devices);
    n_asked++;
    if (d == broken_member) return tdm_fail(err, TDM_UNAVAILABLE, "gone");
    *unit_out = member_units[d][axis];
    if (axis == 0) {
        int32_t len = tdm_type_get_info((tdm_type)tdm_graph_value(graph, value)->type).block_len;
        if (*unit_out < len) *unit_out = len;
    }
    return TDM_OK;
}

static const tdm_split_ops fake_split = {.struct_size = sizeof fake_split,
                                         .split_unit = fake_split_unit};
static const tdm_plugin fake_plugin = {.struct_size = sizeof fake_plugin, .split = &fake_split};
static const tdm_plugin plain_plugin = {.struct_size = sizeof plain_plugin};

static int64_t n_host_byte;
static int n_alloc, failing_alloc; /* which allocation fails, from 1; 0 = none */

static void *host_alloc(void *context, size_t size, size_t align) {
    (void)context, (void)align;
    if (++n_alloc == failing_alloc) return NULL;
    n_host_byte += (int64_t)size;
    return malloc(size);
}

static void host_free(void *context, void *ptr, size_t size) {
    (void)context;
    n_host_byte -= (int64_t)size;
    free(ptr);
}

static const tdm_host host = {.struct_size = sizeof host, .alloc = host_alloc, .free = host_free};
static meta_device group;

static void group_open(int32_t n_member, const double *share) {
    double total = 0;
    memset(&group, 0, sizeof group);
    group.host = &host;
    group.n_member = n_member;
    group.owner = -1;
    broken_member = -1;
    for (int32_t d = 0; d < n_member; d++) total += share[d];
    for (int32_t d = 0; d < n_member; d++) {
        meta_member *m = &group.members[d];
        m->name = "fake";
        m->share = share[d] / total;
        m->acquired.plugin = &fake_plugin;
        m->acquired.device = &member_devices[d];
        for (int k = 0; k < TDM_MAX_DIMS; k++) member_units[d][k] = 1;
        if (!(m->share > 0)) continue;
        group.n_active++;
        if (group.owner < 0) group.owner = d;
    }
    assert_int_equal(meta_partition_table_create(&host, &group.partitions, NULL), TDM_OK);
}

static void group_close(void) {
    meta_partition_table_destroy(group.partitions);
    assert_int_equal(n_host_byte, 0);
}

/* ---- Graphs: values and partitions, no nodes ---- */

static tdm_value values[MAX_VALUE];
static tdm_partition partitions[MAX_VALUE + 1];
static const char names[] = "\0weight";
static tdm_graph graph;

static void graph_begin(void) {
    memset(values, 0, sizeof values);
    memset(partitions, 0, sizeof partitions);
    graph = (tdm_graph){.struct_size = sizeof graph,
                        .value_size = sizeof *values,
                        .node_size = sizeof(tdm_node),
                        .partition_size = sizeof *partitions,
                        .kv_size = sizeof(tdm_kv_desc),
                        .values = values,
                        .partitions = partitions,
                        .names = names,
                        .n_partition = 1,
                        .names_size = sizeof names};
}

/* A weight cut along one axis, 64 long along the other; returns its description. */
static tdm_tensor_desc add_weight(const tdm_partition *p, int32_t axis, tdm_type type) {
    int64_t length = 0;
    tdm_value *v = &values[graph.n_value++];
    for (int32_t s = 0; s < p->n_segment; s++) length += (int64_t)p->n_unit * p->unit_len[s];
    *v = (tdm_value){.kind = TDM_VALUE_WEIGHT,
                     .type = (int32_t)type,
                     .ne = {256, 64, 1, 1},
                     .usage = TDM_USAGE_MATMUL,
                     .partition = graph.n_partition,
                     .axis = axis,
                     .name = 1};
    v->ne[axis] = length;
    partitions[graph.n_partition++] = *p;
    tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = type, .usage = v->usage, .partition = *p, .axis = axis};
    memcpy(desc.ne, v->ne, sizeof desc.ne);
    return desc;
}

static void add_state(const tdm_partition *p) {
    tdm_tensor_desc desc = add_weight(p, 0, TDM_TYPE_I8);
    (void)desc;
    values[graph.n_value - 1].kind = TDM_VALUE_STATE;
    values[graph.n_value - 1].usage = 0;
}

static tdm_partition make(int32_t id, int32_t layer, int32_t n_unit, int32_t unit_len) {
    return (tdm_partition){
        .id = id, .layer = layer, .n_unit = n_unit, .n_segment = 1, .unit_len = {unit_len}};
}

/* One attention block: n_unit KV heads of 64, four query heads to each. */
typedef struct attention {
    tdm_partition q, k;
    tdm_tensor_desc q_desc, k_desc, o_desc;
} attention;

static attention add_attention(int32_t id, int32_t layer, int32_t n_unit, bool has_cache) {
    attention a = {.q = make(id, layer, n_unit, 4 * 64), .k = make(id, layer, n_unit, 64)};
    a.q.n_sub = a.k.n_sub = 4;
    a.k.whole_segments = 1;
    a.q_desc = add_weight(&a.q, 1, TDM_TYPE_Q8_0);
    a.k_desc = add_weight(&a.k, 1, TDM_TYPE_Q8_0);
    a.o_desc = add_weight(&a.q, 0, TDM_TYPE_Q8_0);
    if (has_cache) add_state(&a.k);
    return a;
}

static void prepare(void) {
    tdm_error err = {0};
    if (meta_partition_prepare(&group, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
}

static meta_assignment assigned_of(const tdm_partition *p) {
    const meta_assignment *assigned = NULL;
    tdm_error err = {0};
    if (meta_partition_find(&group, p, &assigned, &err) != TDM_OK) fail_msg("%s", err.message);
    return *assigned;
}

static void expect_cut(const tdm_tensor_desc *desc, int32_t s, const int64_t *lo,
                       const int64_t *hi) {
    meta_cut cut;
    tdm_error err = {0};
    if (meta_partition_cut(&group, &desc->partition, desc->ne, desc->axis, &cut, &err) != TDM_OK)
        fail_msg("%s", err.message);
    assert_int_equal(cut.axis, desc->axis);
    assert_int_equal(cut.repeat, 1);
    for (int32_t d = 0; d < group.n_member; d++) {
        assert_int_equal(cut.segments[s].lo[d], lo[d]);
        assert_int_equal(cut.segments[s].hi[d], hi[d]);
    }
}

#define EXPECT_CUT(desc, s, ...)                                                                   \
    do {                                                                                           \
        const int64_t bounds[][2] = {__VA_ARGS__};                                                 \
        int64_t lo[MAX_MEMBER], hi[MAX_MEMBER];                                                    \
        for (int32_t d = 0; d < group.n_member; d++) lo[d] = bounds[d][0], hi[d] = bounds[d][1];   \
        expect_cut(desc, s, lo, hi);                                                               \
    } while (0)

/* ---- Cases ---- */

static void attention_is_cut_at_heads(void **state) {
    (void)state;
    group_open(3, (const double[]){3, 0, 1});
    graph_begin();
    attention a = add_attention(7, 0, 8, true);
    prepare();
    assert_int_equal(assigned_of(&a.q).granule, 4);
    EXPECT_CUT(&a.q_desc, 0, {0, 1536}, {0, 0}, {1536, 2048});
    EXPECT_CUT(&a.k_desc, 0, {0, 384}, {0, 0}, {384, 512});
    EXPECT_CUT(&a.o_desc, 0, {0, 1536}, {0, 0}, {1536, 2048});
    int64_t lo[MAX_MEMBER], hi[MAX_MEMBER];
    assert_int_equal(meta_partition_units(&group, &a.k, lo, hi, NULL), TDM_OK);
    assert_int_equal(lo[2], 6);
    assert_int_equal(hi[2], 8);
    assert_int_equal(hi[1], 0);
    tdm_layout layout;
    assert_int_equal(meta_partition_layout(&group, &a.o_desc, &layout, NULL), TDM_OK);
    assert_int_equal(layout.kind, TDM_LAYOUT_SPLIT);
    assert_int_equal(layout.inner, 512);
    assert_int_equal(layout.outer, 64);
    group_close();
}

static void fewer_heads_than_members(void **state) {
    (void)state;
    const double even[4] = {1, 1, 1, 1};
    int64_t lo[MAX_MEMBER], hi[MAX_MEMBER];
    /* heads: two members get none. */
    group_open(4, even);
    group.attention = META_ATTENTION_HEADS;
    graph_begin();
    attention a = add_attention(7, 0, 2, true);
    prepare();
    EXPECT_CUT(&a.q_desc, 0, {0, 256}, {256, 512}, {0, 0}, {0, 0});
    EXPECT_CUT(&a.k_desc, 0, {0, 64}, {64, 128}, {0, 0}, {0, 0});
    group_close();
    /* replicate and sequence: two members hold each KV head. */
    for (int mode = META_ATTENTION_REPLICATE; mode <= META_ATTENTION_SEQUENCE; mode++) {
        group_open(4, even);
        group.attention = (meta_attention)mode;
        prepare();
        EXPECT_CUT(&a.q_desc, 0, {0, 128}, {128, 256}, {256, 384}, {384, 512});
        EXPECT_CUT(&a.o_desc, 0, {0, 128}, {128, 256}, {256, 384}, {384, 512});
        EXPECT_CUT(&a.k_desc, 0, {0, 64}, {0, 64}, {64, 128}, {64, 128});
        assert_int_equal(meta_partition_units(&group, &a.k, lo, hi, NULL), TDM_OK);
        assert_true(lo[0] == 0 && hi[1] == 1 && lo[2] == 1 && hi[3] == 2);
        group_close();
    }
    /* What a member wishes for the rows of a head that is only held whole does not make cuts of
     * query heads coarser. */
    group_open(4, even);
    group.attention = META_ATTENTION_REPLICATE;
    member_units[0][1] = 64;
    prepare();
    assert_int_equal(assigned_of(&a.q).granule, 1);
    group_close();
    /* A head that straddles: three members, two units of four. */
    group_open(3, even);
    group.attention = META_ATTENTION_REPLICATE;
    prepare();
    EXPECT_CUT(&a.q_desc, 0, {0, 192}, {192, 384}, {384, 512});
    EXPECT_CUT(&a.k_desc, 0, {0, 64}, {0, 128}, {64, 128});
    group_close();
    /* Enough heads: whole ones in every mode; without a cache there is nothing to keep whole. */
    group_open(2, even);
    group.attention = META_ATTENTION_REPLICATE;
    prepare();
    assert_int_equal(assigned_of(&a.q).granule, 4);
    group_close();
    graph_begin();
    a = add_attention(7, 0, 2, false);
    group_open(4, even);
    prepare();
    assert_int_equal(assigned_of(&a.q).granule, 1);
    group_close();
}

static void superblocks_are_cut_at_sub_blocks(void **state) {
    (void)state;
    group_open(2, (const double[]){2, 1});
    member_units[1][0] = 256;
    graph_begin();
    tdm_partition p = make(3, 0, 1024, 1);
    tdm_tensor_desc up = add_weight(&p, 1, TDM_TYPE_Q4_K), down = add_weight(&p, 0, TDM_TYPE_Q4_K);
    prepare();
    assert_int_equal(assigned_of(&p).granule, 32);
    EXPECT_CUT(&down, 0, {0, 672}, {672, 1024});
    EXPECT_CUT(&up, 0, {0, 672}, {672, 1024});
    group_close();
    /* Smaller blocks are not cut; rows are cut as split_unit of the device allows. */
    graph_begin();
    up = add_weight(&p, 1, TDM_TYPE_Q8_0);
    down = add_weight(&p, 0, TDM_TYPE_Q8_0);
    group_open(2, (const double[]){2, 1});
    member_units[0][1] = 48;
    prepare();
    assert_int_equal(assigned_of(&p).granule, 96);
    EXPECT_CUT(&down, 0, {0, 672}, {672, 1024});
    group_close();
    /* A member that is left out does not count, and a plugin without `split` has no unit. */
    group_open(3, (const double[]){2, 0, 1});
    member_units[1][1] = 512;
    group.members[0].acquired.plugin = &plain_plugin;
    group.members[2].acquired.plugin = &plain_plugin;
    prepare();
    assert_int_equal(assigned_of(&p).granule, 32);
    group_close();
    /* A unit that is more than all there is: one member has it all. */
    group_open(2, (const double[]){2, 1});
    member_units[0][1] = 4096;
    prepare();
    assert_int_equal(assigned_of(&p).granule, 1024);
    EXPECT_CUT(&down, 0, {0, 1024}, {0, 0});
    group_close();
}

static void fused_weights_have_segments(void **state) {
    (void)state;
    group_open(3, (const double[]){5, 2, 1});
    graph_begin();
    tdm_partition p = make(9, 2, 8, 0);
    p.n_segment = 3;
    p.unit_len[0] = 4 * 32;
    p.unit_len[1] = p.unit_len[2] = 32;
    tdm_tensor_desc qkv = add_weight(&p, 1, TDM_TYPE_F16);
    prepare();
    EXPECT_CUT(&qkv, 0, {0, 640}, {640, 896}, {896, 1024});
    EXPECT_CUT(&qkv, 1, {0, 160}, {160, 224}, {224, 256});
    EXPECT_CUT(&qkv, 2, {0, 160}, {160, 224}, {224, 256});
    tdm_layout layout;
    meta_cut cut;
    assert_int_equal(meta_partition_layout(&group, &qkv, &layout, NULL), TDM_OK);
    assert_true(meta_layout_get_cut(&layout, qkv.ne, &cut));
    assert_int_equal(cut.axis, 1);
    assert_int_equal(cut.n_segment, 3);
    group_close();
    /* A second segment that does not begin at a block cannot be cut at all. */
    graph_begin();
    p = make(9, 2, 3, 0);
    p.n_segment = 2;
    p.unit_len[0] = 16;
    p.unit_len[1] = 32;
    add_weight(&p, 0, TDM_TYPE_Q8_0);
    group_open(2, (const double[]){1, 1});
    prepare();
    assert_int_equal(assigned_of(&p).granule, 3);
    group_close();
}

static void rounding_rotates_over_layers(void **state) {
    (void)state;
    int64_t had[3] = {0};
    group_open(3, (const double[]){4, 3, 1});
    graph_begin();
    for (int32_t l = 0; l < 40; l++) {
        tdm_partition ffn = make(1000 - 2 * l, l, 320, 1);
        add_weight(&ffn, 0, TDM_TYPE_Q8_0);
        add_attention(1001 - 2 * l, l, 5, true);
    }
    prepare();
    for (int32_t l = 0; l < 40; l++) {
        tdm_partition ffn = make(1000 - 2 * l, l, 320, 1);
        meta_assignment assigned = assigned_of(&ffn);
        int64_t at = 0;
        for (int d = 0; d < 3; d++) {
            had[d] += assigned.hi[d] - assigned.lo[d];
            assert_int_equal(assigned.lo[d] % 32, 0);
            if (assigned.lo[d] < assigned.hi[d]) assert_int_equal(assigned.lo[d], at);
            if (assigned.lo[d] < assigned.hi[d]) at = assigned.hi[d];
            assert_true(fabs(group.members[d].share * 320 * (l + 1) - (double)had[d]) < 32);
        }
        assert_int_equal(at, 320);
    }
    group_close();
}

static void debts_are_paid_in_kind(void **state) {
    (void)state;
    group_open(2, (const double[]){1, 1});
    graph_begin();
    member_units[1][1] = 7;
    tdm_partition coarse = make(1, 0, 7, 1), fine = make(2, 1, 7, 1), next = make(3, 2, 7, 1);
    add_weight(&coarse, 1, TDM_TYPE_F32);
    add_weight(&fine, 0, TDM_TYPE_F32);
    add_weight(&next, 1, TDM_TYPE_F32);
    prepare();
    assert_int_equal(assigned_of(&coarse).hi[0], 7);
    assert_int_equal(assigned_of(&fine).hi[0], 4);
    assert_int_equal(assigned_of(&next).hi[0], 0);
    group_close();
}

static void layers_go_whole(void **state) {
    (void)state;
    group_open(4, (const double[]){3, 0, 2, 1});
    group.options.split = META_SPLIT_LAYER;
    group.options.experts = META_EXPERTS_WHOLE;
    graph_begin();
    tdm_partition vocab = make(500, -1, 1000, 1);
    tdm_tensor_desc head = add_weight(&vocab, 1, TDM_TYPE_Q8_0);
    attention layers[12];
    tdm_partition ffn[12];
    tdm_tensor_desc experts = {0};
    for (int32_t l = 11; l >= 0; l--) {
        layers[l] = add_attention(100 + l, 10 + l, 8, true);
        ffn[l] = make(200 + l, 10 + l, 64, 1);
        experts = add_weight(&ffn[l], 0, TDM_TYPE_Q8_0);
        experts.usage = values[graph.n_value - 1].usage = TDM_USAGE_EXPERT;
        experts.ne[2] = values[graph.n_value - 1].ne[2] = 4;
    }
    prepare();
    const int32_t owner[12] = {0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 3, 3};
    for (int32_t l = 0; l < 12; l++)
        for (int32_t d = 0; d < 4; d++) {
            assert_int_equal(assigned_of(&layers[l].q).hi[d], d == owner[l] ? 32 : 0);
            assert_int_equal(assigned_of(&ffn[l]).hi[d], d == owner[l] ? 64 : 0);
        }
    EXPECT_CUT(&head, 0, {0, 0}, {0, 0}, {0, 0}, {0, 1000});
    EXPECT_CUT(&experts, 0, {0, 64}, {0, 0}, {0, 0}, {0, 0});
    tdm_layout layout;
    assert_int_equal(meta_partition_layout(&group, &experts, &layout, NULL), TDM_OK);
    assert_int_equal(layout.segments[0].hi[0], 1);
    group_close();
    /* Nothing but a vocabulary: the last one. */
    graph_begin();
    add_weight(&vocab, 1, TDM_TYPE_Q8_0);
    group_open(3, (const double[]){3, 1, 0});
    group.options.split = META_SPLIT_LAYER;
    prepare();
    assert_int_equal(assigned_of(&vocab).hi[1], 1000);
    group_close();
}

static void experts_go_whole(void **state) {
    (void)state;
    group_open(3, (const double[]){2, 1, 1});
    group.options.experts = META_EXPERTS_WHOLE;
    graph_begin();
    tdm_tensor_desc descs[8][2];
    int64_t had[3] = {0};
    for (int32_t l = 0; l < 8; l++)
        for (int k = 0; k < 2; k++) {
            tdm_partition p = make(40 + l, l, 96, 1);
            descs[l][k] = add_weight(&p, k, TDM_TYPE_F32);
            descs[l][k].usage = values[graph.n_value - 1].usage =
                TDM_USAGE_EXPERT | TDM_USAGE_MATMUL;
            descs[l][k].ne[2] = values[graph.n_value - 1].ne[2] = 6;
        }
    prepare();
    for (int32_t l = 0; l < 8; l++) {
        meta_cut cuts[2];
        for (int k = 0; k < 2; k++) {
            tdm_layout layout;
            assert_int_equal(meta_partition_layout(&group, &descs[l][k], &layout, NULL), TDM_OK);
            assert_true(meta_layout_get_cut(&layout, descs[l][k].ne, &cuts[k]));
            assert_int_equal(cuts[k].axis, 2);
        }
        assert_memory_equal(&cuts[0], &cuts[1], sizeof cuts[0]);
        for (int32_t d = 0; d < 3; d++) {
            had[d] += meta_cut_local_length(&cuts[0], d);
            assert_true(fabs(group.members[d].share * 6 * (l + 1) - (double)had[d]) < 1);
        }
    }
    /* Another number of experts than was shown. */
    tdm_error err = {0};
    tdm_layout layout;
    descs[0][0].ne[2] = 7;
    assert_int_equal(meta_partition_layout(&group, &descs[0][0], &layout, &err),
                     TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "7"));
    group_close();
    /* Weights of one id that disagree. */
    group_open(2, (const double[]){1, 1});
    group.options.experts = META_EXPERTS_WHOLE;
    values[1].ne[2] = 5;
    assert_int_equal(meta_partition_prepare(&group, &graph, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "weight"));
    /* Cut along the hidden dimension they are as any. */
    group.options.experts = META_EXPERTS_HIDDEN;
    prepare();
    EXPECT_CUT(&descs[1][1], 0, {0, 48}, {48, 96});
    group_close();
}

static void ids_keep_what_they_have(void **state) {
    (void)state;
    tdm_error err = {0};
    const meta_assignment *assigned, *again;
    group_open(2, (const double[]){1, 1});
    graph_begin();
    tdm_partition a = make(1, 0, 7, 1), b = make(2, 1, 7, 1), bad;
    add_weight(&a, 1, TDM_TYPE_F32);
    prepare();
    assert_int_equal(meta_partition_find(&group, &a, &assigned, NULL), TDM_OK);
    assert_int_equal(assigned->hi[0], 4);
    tdm_tensor_desc unknown = add_weight(&b, 1, TDM_TYPE_F32);
    assert_int_equal(meta_partition_find(&group, &b, &again, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "partition 2"));
    tdm_layout layout;
    assert_int_equal(meta_partition_layout(&group, &unknown, &layout, NULL),
                     TDM_FAILED_PRECONDITION);
    unknown.partition = (tdm_partition){0};
    assert_int_equal(meta_partition_layout(&group, &unknown, &layout, NULL), TDM_OK);
    assert_int_equal(layout.kind, TDM_LAYOUT_REPLICATED);
    assert_int_equal(layout.replica, TDM_REPLICA_EXACT);
    prepare();
    assert_int_equal(meta_partition_find(&group, &a, &again, NULL), TDM_OK);
    assert_ptr_equal(assigned, again);
    assert_int_equal(assigned_of(&b).hi[0], 3); /* the carry outlives the call */
    /* Where no partition is new, split_unit of no member is called. */
    n_alloc = n_asked = 0;
    prepare();
    assert_int_equal(n_asked, 0);
    /* The same id with other numbers, known or twice new; and the whole call fails. */
    for (int k = 0; k < 6; k++) {
        tdm_partition fresh = make(50, 3, 8, 1);
        graph_begin();
        bad = k < 3 ? a : fresh;
        if (k >= 3) add_weight(&fresh, 1, TDM_TYPE_F32);
        if (k % 3 == 0) bad.n_unit++;
        if (k % 3 == 1) bad.layer++;
        if (k % 3 == 2) bad.n_sub = 2;
        add_weight(&bad, 1, TDM_TYPE_F32);
        fresh.id = 51;
        add_weight(&fresh, 1, TDM_TYPE_F32);
        assert_int_equal(meta_partition_prepare(&group, &graph, &err), TDM_INVALID_ARGUMENT);
        assert_int_equal(meta_partition_find(&group, &fresh, &again, NULL),
                         TDM_FAILED_PRECONDITION);
        if (k < 3)
            assert_int_equal(meta_partition_find(&group, &bad, &again, NULL), TDM_INVALID_ARGUMENT);
    }
    /* A description whose axis is not what the units make. */
    meta_cut cut;
    assert_int_equal(meta_partition_cut(&group, &a, (const int64_t[]){7, 8, 1, 1}, 1, &cut, &err),
                     TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "7 elements"));
    assert_int_equal(meta_partition_cut(&group, &a, (const int64_t[]){7, 7, 1, 1}, 4, &cut, &err),
                     TDM_INVALID_ARGUMENT);
    /* A partition of nothing. */
    graph_begin();
    bad = make(60, 0, 4, 1);
    add_weight(&bad, 1, TDM_TYPE_F32);
    partitions[1].n_unit = 0;
    assert_int_equal(meta_partition_prepare(&group, &graph, &err), TDM_INVALID_ARGUMENT);
    /* A member that does not answer is named. */
    partitions[1].n_unit = 4;
    broken_member = 1;
    assert_int_equal(meta_partition_prepare(&group, &graph, &err), TDM_UNAVAILABLE);
    assert_non_null(strstr(err.message, "'fake'"));
    assert_non_null(strstr(err.message, "gone"));
    assert_int_equal(meta_partition_prepare(&group, &graph, NULL), TDM_UNAVAILABLE);
    group_close();
}

/* For any units that members and values require, cuts keep to them, and every element has an
 * owner. */
static void random_partitions_keep_to_units(void **state) {
    (void)state;
    static tdm_tensor_desc descs[MAX_VALUE];
    const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_Q8_0, TDM_TYPE_Q4_K, TDM_TYPE_BF16};
    for (int i = 0; i < 300; i++) {
        int32_t n_member = 1 + (int32_t)random_below(MAX_MEMBER), n_desc = 0;
        double share[MAX_MEMBER] = {0};
        for (int32_t d = 0; d < n_member; d++) share[d] = (double)random_below(4);
        share[random_below(n_member)] += 1;
        group_open(n_member, share);
        group.attention = (meta_attention)random_below(3);
        for (int32_t d = 0; d < n_member; d++)
            for (int k = 0; k < TDM_MAX_DIMS; k++) member_units[d][k] = 1 + random_below(4);
        graph_begin();
        for (int32_t id = 1; id <= 6; id++) {
            tdm_partition p = make(id, (int32_t)random_below(4), 1 + (int32_t)random_below(40), 1);
            p.n_sub = (int32_t)random_below(4);
            for (int64_t n = 1 + random_below(3); n > 0; n--) {
                int32_t axis = (int32_t)random_below(2), n_sub = p.n_sub > 0 ? p.n_sub : 1;
                p.n_segment = 1 + (int32_t)random_below(3);
                p.whole_segments =
                    random_below(2) == 0 ? 0 : (int32_t)random_below(1u << p.n_segment);
                for (int s = 0; s < p.n_segment; s++)
                    p.unit_len[s] = n_sub * (1 + (int32_t)random_below(32)) * (axis == 0 ? 8 : 1);
                descs[n_desc++] = add_weight(&p, axis, types[random_below(4)]);
            }
            if (random_below(2) == 0) add_state(&p);
        }
        prepare();
        for (int32_t w = 0; w < n_desc; w++) {
            const tdm_tensor_desc *desc = &descs[w];
            const tdm_partition *p = &desc->partition;
            meta_assignment assigned = assigned_of(p);
            tdm_layout layout;
            meta_cut cut;
            int64_t begin = 0;
            bool is_whole_to_one = false;
            assert_int_equal(meta_partition_layout(&group, desc, &layout, NULL), TDM_OK);
            assert_int_equal(meta_layout_count(&layout), tdm_shape_count(desc->ne));
            assert_int_equal(meta_layout_normalize(&layout, NULL), TDM_OK);
            assert_int_equal(meta_partition_cut(&group, p, desc->ne, desc->axis, &cut, NULL),
                             TDM_OK);
            if (p->whole_segments == 0) assert_true(meta_cut_is_disjoint(&cut, n_member));
            for (int32_t d = 0; d < n_member; d++)
                is_whole_to_one |=
                    assigned.hi[d] - assigned.lo[d] == (int64_t)assigned.n_unit * assigned.n_sub;
            for (int32_t s = 0; s < p->n_segment; begin += cut.segments[s++].n_unit)
                for (int32_t d = 0; d < n_member; d++) {
                    int64_t lo = cut.segments[s].lo[d], hi = cut.segments[s].hi[d], unit = 1;
                    bool is_whole = (p->whole_segments >> s & 1) != 0;
                    if (lo == hi) continue;
                    assert_true(share[d] > 0);
                    if (is_whole_to_one || (is_whole && assigned.granule % assigned.n_sub != 0))
                        continue;
                    if (is_whole) assert_int_equal(lo % p->unit_len[s], 0);
                    if (is_whole && group.n_active > assigned.n_unit) continue;
                    if (desc->axis == 0 && desc->type == TDM_TYPE_Q8_0) unit = 32;
                    if (desc->axis == 0 && desc->type == TDM_TYPE_Q4_K) unit = 32;
                    assert_int_equal((begin + lo) % unit, 0);
                    for (int32_t k = 0; k < n_member; k++) {
                        int64_t u = member_units[k][desc->axis];
                        if (unit > 1 || share[k] == 0) continue;
                        assert_int_equal((begin + lo) % u, 0);
                        if (hi < cut.segments[s].n_unit) assert_int_equal((begin + hi) % u, 0);
                    }
                }
        }
        group_close();
    }
}

static void no_memory_changes_nothing(void **state) {
    (void)state;
    tdm_error err = {0};
    const meta_assignment *assigned;
    bool is_done = false;
    n_alloc = 0;
    failing_alloc = 1;
    assert_int_equal(meta_partition_table_create(&host, &group.partitions, &err),
                     TDM_RESOURCE_EXHAUSTED);
    failing_alloc = 0;
    group_open(2, (const double[]){1, 1});
    graph_begin();
    attention a = add_attention(5, 0, 7, true);
    for (int k = 1; !is_done; k++) {
        assert_true(k < 20);
        n_alloc = 0;
        failing_alloc = k;
        tdm_status status = meta_partition_prepare(&group, &graph, &err);
        failing_alloc = 0;
        is_done = status == TDM_OK;
        if (is_done) break;
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_int_equal(meta_partition_find(&group, &a.q, &assigned, NULL),
                         TDM_FAILED_PRECONDITION);
    }
    assert_int_equal(assigned_of(&a.q).hi[0], 16);
    meta_partition_table_destroy(NULL);
    group_close();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_cut_at_heads),
        cmocka_unit_test(fewer_heads_than_members),
        cmocka_unit_test(superblocks_are_cut_at_sub_blocks),
        cmocka_unit_test(fused_weights_have_segments),
        cmocka_unit_test(rounding_rotates_over_layers),
        cmocka_unit_test(debts_are_paid_in_kind),
        cmocka_unit_test(layers_go_whole),
        cmocka_unit_test(experts_go_whole),
        cmocka_unit_test(ids_keep_what_they_have),
        cmocka_unit_test(random_partitions_keep_to_units),
        cmocka_unit_test(no_memory_changes_nothing),
    };
    random_begin("partition");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
