/* SPDX-License-Identifier: MIT
 *
 * test_graph_verify.c: the verifier against graphs that no builder makes: one fault at a time with
 * its message, EXCHANGE (which only groups make), and random damage. A damaged graph that is
 * accepted must be usable by all code that relies on the verifier.
 */
#include "core/base/view.h"
#include "graph_copy.h"

/* A small graph with every kind of value; the indices of its parts. */
typedef struct sample {
    tdm_graph *graph;
    fixture f;
    int32_t view, rows, product, sum, exported, exported_v;
    int32_t node_view, node_rows, node_product, node_sum, node_write, node_attention, node_export;
} sample;

static sample sample_make(void) {
    sample s;
    tdm_partition p = {.id = 3, .layer = -1, .n_unit = 32, .n_segment = 1, .unit_len = {1}};
    tdm_attention_params attention;
    tdm_error err = {0};
    s.f = fixture_make();
    attention = fixture_attention(&s.f);
    tdm_build_set_partition(s.f.b, s.f.w, tdm_build_partition(s.f.b, &p), 1);
    s.node_view = 0;
    s.view = tdm_build_step_field(s.f.b, TDM_STEP_TOKEN);
    s.node_rows = 1;
    s.rows = tdm_build_get_rows(s.f.b, s.f.table, s.view, 0);
    s.node_product = 2;
    s.product = tdm_build_matmul(s.f.b, s.f.w, s.rows);
    s.node_sum = 3;
    s.sum = tdm_build_add(s.f.b, s.product, s.product);
    s.node_write = 4;
    tdm_build_kv_write(s.f.b, s.f.k, s.f.k, s.f.step, s.f.state, s.f.kv);
    s.node_attention = 5;
    tdm_build_attention(s.f.b, s.f.q, s.f.step, s.f.state, -1, &attention, NULL);
    s.node_export = 6;
    s.exported = tdm_build_kv_export(s.f.b, s.f.step, s.f.state, s.f.kv, 4, &s.exported_v);
    tdm_build_output(s.f.b, s.sum, "logits");
    if (tdm_builder_finish(s.f.b, &s.graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(s.f.b);
    return s;
}

static void must_refuse(const tdm_graph *graph, const char *text) {
    tdm_error err = {0};
    if (tdm_graph_verify(graph, &err) == TDM_OK) fail_msg("accepted; expected '%s'", text);
    if (strstr(err.message, text) == NULL) fail_msg("'%s' is not in: %s", text, err.message);
    /* and without an error to fill */
    assert_int_not_equal(tdm_graph_verify(graph, NULL), TDM_OK);
}

/* The statements change `c`, a copy of the sample `s`, which must then be refused with `text`. */
#define REFUSED(text, ...)                                                                         \
    do {                                                                                           \
        graph_copy c = graph_copy_make(s.graph);                                                   \
        __VA_ARGS__;                                                                               \
        must_refuse(&c.g, text);                                                                   \
        graph_copy_free(&c);                                                                       \
    } while (0)

static void test_header(void **state) {
    sample s = sample_make();
    (void)state;
    must_refuse(NULL, "absent");
    REFUSED("shorter", c.g.struct_size = 8);
    REFUSED("values have a stride of 8", c.g.value_size = 8);
    REFUSED("nodes have a stride of 18446744073709551615", c.g.node_size = SIZE_MAX);
    REFUSED("stride", c.g.kv_size = sizeof(tdm_kv_desc) + 1);
    REFUSED("stride", c.g.partition_size = 0);
    REFUSED("-1 nodes", c.g.n_node = -1);
    REFUSED("-2147483648 values", c.g.n_value = INT32_MIN);
    REFUSED("array of values is absent", c.g.values = NULL);
    REFUSED("array of nodes is not aligned",
            c.g.nodes = (const tdm_node *)(const void *)((const char *)c.nodes + 1));
    REFUSED("names", c.g.names = NULL);
    REFUSED("names", c.g.names_size = 0);
    REFUSED("names", c.names[c.g.names_size - 1] = 'x');
    REFUSED("names", c.names[0] = 'x');
    REFUSED("control character 0xa", c.names[1] = '\n');
    REFUSED("its name is at", c.values[s.f.x].name = c.g.names_size);
    REFUSED("its name is at -1", c.values[s.f.x].name = -1);
    REFUSED("reserved", c.g.reserved = 1);
    REFUSED("hash", c.g.hash = 1);
    { /* the correct hash is valid, and so is 0 */
        graph_copy c = graph_copy_make(s.graph);
        assert_int_equal(tdm_graph_verify(&c.g, NULL), TDM_OK);
        c.g.hash = tdm_graph_hash(&c.g);
        assert_int_equal(tdm_graph_verify(&c.g, NULL), TDM_OK);
        graph_copy_free(&c);
    }
    tdm_graph_free(s.graph);
}

static void test_values(void **state) {
    sample s = sample_make();
    (void)state;
    REFUSED("kind 9", c.values[s.f.x].kind = 9);
    REFUSED("kind -1", c.values[s.f.x].kind = -1);
    REFUSED("'x'", c.values[s.f.x].type = 77);
    REFUSED("axis 2 has -5", c.values[s.f.x].ne[2] = -5);
    REFUSED("2^48", c.values[s.f.x].ne[2] = INT64_MAX);
    REFUSED("reserved", c.values[s.f.x].reserved = 1);
    REFUSED("usage flags 0x1 but is no WEIGHT", c.values[s.f.x].usage = 1);
    REFUSED("is a STATE", c.values[s.f.state].type = TDM_TYPE_F32);
    REFUSED("is a STATE", c.values[s.f.state].ne[2] = 2);
    REFUSED("is produced by no node", c.values[s.f.latent].kind = TDM_VALUE_TEMP);
    REFUSED("is produced by no node", c.values[s.f.norm].kind = TDM_VALUE_OUTPUT);
    REFUSED("is of a kind that no node writes", c.values[s.product].kind = TDM_VALUE_INPUT);
    REFUSED("is of a kind that no node writes", c.values[s.product].kind = TDM_VALUE_WEIGHT);
    REFUSED("axis 4", c.values[s.f.w].axis = 4);
    REFUSED("axis 1", c.values[s.f.x].axis = 1);
    REFUSED("partition 2 of 2", c.values[s.f.x].partition = 2);
    REFUSED("partition -1", c.values[s.f.x].partition = -1);
    REFUSED("partition 1 has 32 units", c.values[s.f.w].axis = 0);
    REFUSED("units", c.partitions[1].n_unit = INT32_MAX, c.partitions[1].unit_len[0] = INT32_MAX);
    REFUSED("segments", c.partitions[1].n_segment = 0);
    REFUSED("segment 2 of 1", c.partitions[1].unit_len[2] = 1);
    REFUSED("segment 0 of 1", c.partitions[1].unit_len[0] = 0);
    REFUSED("slot 0 is another value's", c.values[s.f.x].slot = 0);
    REFUSED("slot -1", c.values[s.f.x].slot = -1);
    REFUSED("slot 2147483647", c.values[s.f.x].slot = INT32_MAX);
    REFUSED("is a view", c.values[s.view].slot = 0);
    REFUSED("is a view", c.values[s.view].kind = TDM_VALUE_OUTPUT);
    REFUSED("slots", c.g.n_slot++);
    REFUSED("slot", c.g.n_slot--);
    REFUSED("slots", c.g.n_slot = INT32_MAX);
    REFUSED("slots", c.g.n_slot = -1);
    REFUSED("struct_size", c.kv[0].struct_size = 3);
    REFUSED("page_len = 3", c.kv[1].page_len = 3);
    tdm_graph_free(s.graph);
}

static void test_step(void **state) {
    sample s = sample_make();
    (void)state;
    REFUSED("step block is value 999", c.g.step = 999);
    REFUSED("step block is value -2", c.g.step = -2);
    REFUSED("no step block", c.g.step = -1);
    REFUSED("must be the step block", c.g.step = -1;
            memset(&c.g.step_caps, 0, sizeof c.g.step_caps));
    REFUSED("must be an INPUT of type i32", c.g.step_caps.n_tok++);
    REFUSED("must be an INPUT of type i32", c.g.step = s.f.x);
    REFUSED("must be an INPUT of type i32", c.values[s.f.step].kind = TDM_VALUE_WEIGHT);
    REFUSED("capacity", c.g.step_caps.n_job = -1);
    REFUSED("capacity", c.g.step_caps.n_class = 5);
    REFUSED("2^31", c.g.step_caps.n_entry = INT32_MAX);
    tdm_graph_free(s.graph);
}

static void test_nodes(void **state) {
    sample s = sample_make();
    (void)state;
    REFUSED("op number 0", c.nodes[s.node_sum].op = TDM_OP_NONE);
    REFUSED("op number -7", c.nodes[s.node_sum].op = -7);
    REFUSED("op number 999", c.nodes[s.node_sum].op = 999);
    REFUSED("is not an op", c.nodes[s.node_sum].op = TDM_OP_COUNT_);
    REFUSED("has 3 sources", c.nodes[s.node_sum].n_src = 3);
    REFUSED("destination 0 of -1", c.nodes[s.node_sum].n_dst = -1);
    REFUSED("node 3 (add): source 1 is value 1000", c.nodes[s.node_sum].src[1] = 1000);
    REFUSED("source 1 is value -2", c.nodes[s.node_sum].src[1] = -2);
    REFUSED("source 1 is absent", c.nodes[s.node_sum].src[1] = -1);
    REFUSED("past the last", c.nodes[s.node_sum].src[5] = 0);
    REFUSED("not produced by an earlier node", c.nodes[s.node_sum].src[0] = s.sum);
    REFUSED("not produced by an earlier node", c.nodes[s.node_rows].src[0] = s.product);
    REFUSED("was written before", c.nodes[s.node_sum].dst[0] = s.product);
    REFUSED("no node writes", c.nodes[s.node_sum].dst[0] = s.f.x);
    REFUSED("destination 0 is absent", c.nodes[s.node_sum].dst[0] = -1);
    REFUSED("value 1000", c.nodes[s.node_sum].dst[0] = 1000);
    REFUSED("destination 1", c.nodes[s.node_sum].dst[1] = s.product);
    REFUSED("destination 1, ", c.nodes[s.node_export].dst[1] = s.exported);
    REFUSED("v is absent", c.nodes[s.node_export].dst[1] = -1);
    REFUSED("destination 0 must be f32 [32, 5]", c.values[s.sum].ne[1] = 4);
    REFUSED("destination 0 must be f32 [32, 5]", c.values[s.sum].type = TDM_TYPE_F16);
    REFUSED("reserved", c.nodes[s.node_sum].reserved = 1);
    REFUSED("unused parameter byte 63", c.nodes[s.node_sum].params.bytes[63] = 1);
    REFUSED("unused parameter byte 56", c.nodes[s.node_attention].params.bytes[56] = 1);
    REFUSED("unused parameter byte 4", c.nodes[s.node_write].params.bytes[4] = 1);
    REFUSED("outside", c.nodes[s.node_view].params.slice.offset[0] = INT64_MAX);
    REFUSED("must not be a STATE", c.nodes[s.node_sum].src[0] = s.f.state);
    REFUSED("must be a STATE", c.nodes[s.node_write].src[3] = s.f.x);
    tdm_graph_free(s.graph);
}

/* The header of a step block, in numbers of 32 bits. A message below contains it. */
enum { HEADER_SIZE = sizeof(tdm_step_header) / sizeof(int32_t) };
enum { X_ADDEND, X_ARENA, X_STEP, X_RESIDUAL, X_SECOND, X_SUM, X_SUM2, X_PEER, X_COUNT };

/* A graph of one EXCHANGE by hand: addend [32, 3], arena of 4096 bytes. */
typedef struct exchange_graph {
    tdm_graph g;
    tdm_value values[X_COUNT];
    tdm_node node;
} exchange_graph;

static void exchange_make(exchange_graph *x) {
    const tdm_step_caps caps = {3, 1, 1, 1, 1, 1};
    tdm_step_header header;
    tdm_exchange_params p = {.stage = 2,
                             .member = 1,
                             .n_member = 2,
                             .wire_type = TDM_TYPE_F16,
                             .data_off = 256,
                             .data_stride = 192,
                             .flag_off = 64,
                             .senders = 3};
    int i;
    memset(x, 0, sizeof *x);
    assert_int_equal(tdm_step_layout(&caps, &header, NULL), TDM_OK);
    for (i = 0; i < X_COUNT; i++) {
        tdm_value v = {.kind = TDM_VALUE_INPUT, .type = TDM_TYPE_F32, .ne = {32, 3, 1, 1}};
        v.slot = i;
        x->values[i] = v;
    }
    x->values[X_ARENA].kind = TDM_VALUE_STATE;
    x->values[X_ARENA].type = TDM_TYPE_I8;
    x->values[X_ARENA].ne[0] = 4096;
    x->values[X_ARENA].ne[1] = 1;
    x->values[X_PEER] = x->values[X_ARENA];
    x->values[X_PEER].slot = X_PEER;
    x->values[X_STEP].type = TDM_TYPE_I32;
    x->values[X_STEP].ne[0] = header.size;
    x->values[X_STEP].ne[1] = 1;
    x->node.op = TDM_OP_EXCHANGE;
    x->node.n_src = 6;
    x->node.n_dst = 2;
    for (i = 0; i < TDM_MAX_SRC; i++) x->node.src[i] = i < 4 ? i : -1;
    x->node.dst[0] = X_SUM;
    x->node.dst[1] = -1;
    x->node.params.exchange = p;
    x->g.struct_size = sizeof x->g;
    x->g.value_size = sizeof(tdm_value);
    x->g.node_size = sizeof(tdm_node);
    x->g.partition_size = sizeof(tdm_partition);
    x->g.kv_size = sizeof(tdm_kv_desc);
    x->g.values = x->values;
    x->g.nodes = &x->node;
    x->g.names = "";
    x->g.n_value = X_COUNT;
    x->g.n_node = 1;
    x->g.n_slot = X_COUNT;
    x->g.names_size = 1;
    x->g.step_caps = caps;
    x->g.step = X_STEP;
}

static void must_accept(const tdm_graph *graph) {
    tdm_error err = {0};
    if (tdm_graph_verify(graph, &err) != TDM_OK) fail_msg("refused: %s", err.message);
}

/* Makes each sum an output where the node writes it, else an input: a value that no node writes
 * must be one. */
static tdm_graph *settled(exchange_graph *x) {
    for (int i = X_SUM; i <= X_SUM2; i++)
        x->values[i].kind =
            x->node.dst[0] == i || x->node.dst[1] == i ? TDM_VALUE_OUTPUT : TDM_VALUE_INPUT;
    return &x->g;
}

#define EXCHANGE_BAD(text, ...)                                                                    \
    do {                                                                                           \
        tdm_exchange_params *p = &x.node.params.exchange;                                          \
        exchange_make(&x);                                                                         \
        __VA_ARGS__;                                                                               \
        (void)p;                                                                                   \
        must_refuse(settled(&x), text);                                                            \
    } while (0)

#define EXCHANGE_GOOD(...)                                                                         \
    do {                                                                                           \
        tdm_exchange_params *p = &x.node.params.exchange;                                          \
        exchange_make(&x);                                                                         \
        __VA_ARGS__;                                                                               \
        (void)p;                                                                                   \
        must_accept(settled(&x));                                                                  \
    } while (0)

static void test_exchange(void **state) {
    exchange_graph x;
    tdm_error err = {0};
    (void)state;
    exchange_make(&x);
    settled(&x);
    if (tdm_graph_verify(&x.g, &err) != TDM_OK) fail_msg("%s", err.message);
    x.node.src[3] = -1; /* without residual */
    assert_int_equal(tdm_graph_verify(&x.g, &err), TDM_OK);
    EXCHANGE_BAD("stage", p->stage = -1);
    EXCHANGE_BAD("n_member = 65", p->n_member = 65);
    EXCHANGE_BAD("member = 2", p->member = 2);
    EXCHANGE_BAD("kind = 3", p->kind = 3);
    EXCHANGE_BAD("axis = 1", p->axis = 1);
    EXCHANGE_BAD("first = 1", p->first = 1);
    EXCHANGE_BAD("whole = 3", p->whole = 3);
    EXCHANGE_BAD("senders = 0x7", p->senders = 7);
    EXCHANGE_BAD("its x is present", p->senders = 1);
    EXCHANGE_BAD("its x is absent", x.node.src[0] = -1);
    EXCHANGE_BAD("wire_type = 3", p->wire_type = TDM_TYPE_Q4_1);
    EXCHANGE_BAD("wire_type = -1", p->wire_type = -1);
    EXCHANGE_BAD("data_stride = 190", p->data_stride = 190);
    EXCHANGE_BAD("do not fit the arena", p->data_stride = UINT64_MAX / 4 * 4);
    EXCHANGE_BAD("do not fit the arena", p->data_off = UINT64_MAX / 4 * 4);
    EXCHANGE_BAD("do not fit the arena", p->data_off = 4096 - 380);
    EXCHANGE_BAD("abort word", p->data_off = 4);
    EXCHANGE_BAD("abort word", p->flag_off = 0);
    EXCHANGE_BAD("flags", p->flag_off = 4096 - 64);
    EXCHANGE_BAD("lie inside", p->flag_off = 200);
    EXCHANGE_BAD("x must be f32", x.values[X_ADDEND].type = TDM_TYPE_F16);
    EXCHANGE_BAD("x must have shape [32, 4]", x.values[X_SUM].ne[1] = 4, x.node.src[3] = -1,
                 p->data_stride = 256);
    EXCHANGE_BAD("residual must have shape", x.values[X_RESIDUAL].ne[0] = 31);
    EXCHANGE_BAD("residual must be f32", x.values[X_RESIDUAL].type = TDM_TYPE_BF16);
    EXCHANGE_BAD("phase = 3", p->phase = 3);
    EXCHANGE_BAD("axis2 = 1", p->axis2 = 1);
    EXCHANGE_BAD("a sum has one payload", p->data_off2 = 2048);
    EXCHANGE_BAD("its x2 is present", x.node.src[4] = X_SECOND);
    EXCHANGE_BAD("the result of x2 is present", x.node.dst[1] = X_SUM2);
    /* With two areas the same checks hold for both. */
    EXCHANGE_GOOD(p->area_stride = 384);
    EXCHANGE_BAD("area_stride = 380 is less than the 384", p->area_stride = 380);
    EXCHANGE_GOOD(p->area_stride = 4096 - 256 - 384);
    EXCHANGE_BAD("do not fit the arena", p->area_stride = 4096 - 256 - 380);
    EXCHANGE_BAD("do not fit the arena", p->area_stride = UINT64_MAX / 4 * 4);
    EXCHANGE_BAD("destination 0 must be f32", x.values[X_SUM].type = TDM_TYPE_BF16);
    EXCHANGE_BAD("must be a STATE", x.node.src[1] = X_ADDEND);
    EXCHANGE_BAD("step block", x.node.src[2] = X_ADDEND);
}

/* An EXCHANGE without the graph's own step block, and members that have nothing to send. */
static void test_exchange_silent(void **state) {
    exchange_graph x;
    (void)state;
    EXCHANGE_GOOD(x.g.step = -1, memset(&x.g.step_caps, 0, sizeof x.g.step_caps),
                  x.values[X_STEP].ne[0] = HEADER_SIZE);
    EXCHANGE_BAD("begins with its header of 36", x.g.step = -1,
                 memset(&x.g.step_caps, 0, sizeof x.g.step_caps),
                 x.values[X_STEP].ne[0] = HEADER_SIZE - 1);
    EXCHANGE_GOOD(p->senders = 1, x.node.src[0] = -1);
    EXCHANGE_GOOD(p->senders = 0, x.node.src[0] = -1);
    EXCHANGE_GOOD(p->senders = 0, x.node.src[0] = x.node.src[3] = -1);
    /* Addends of 99 elements: four blocks, the last of them filled up. */
#define NINETY_NINE                                                                                \
    x.values[X_ADDEND].ne[0] = x.values[X_SUM].ne[0] = x.values[X_RESIDUAL].ne[0] = 33
    EXCHANGE_GOOD(NINETY_NINE, p->wire_type = TDM_TYPE_Q8_0, p->data_stride = 136);
    EXCHANGE_BAD("data_stride = 132", NINETY_NINE, p->wire_type = TDM_TYPE_Q8_0,
                 p->data_stride = 132);
    /* 64 members: every bit of senders names one. */
    EXCHANGE_GOOD(p->n_member = 64, p->member = 63, p->senders = UINT64_MAX,
                  x.values[X_ARENA].ne[0] = 65536, p->data_off = 8192);
}

/* Rows 1 and 2 of three, or columns 8 .. 15 of 32. */
static void test_exchange_part(void **state) {
    exchange_graph x;
    (void)state;
#define PART_ROWS                                                                                  \
    p->kind = TDM_EXCHANGE_SUM_PART, p->axis = 1, p->first = 1,                                    \
    x.values[X_SUM].ne[1] = x.values[X_RESIDUAL].ne[1] = 2
#define PART_COLUMNS                                                                               \
    p->kind = TDM_EXCHANGE_SUM_PART, p->first = 8,                                                 \
    x.values[X_SUM].ne[0] = x.values[X_RESIDUAL].ne[0] = 8
    EXCHANGE_GOOD(PART_ROWS);
    EXCHANGE_GOOD(PART_ROWS, p->whole = 3);
    EXCHANGE_GOOD(PART_COLUMNS);
    EXCHANGE_GOOD(PART_COLUMNS, x.values[X_SUM].ne[0] = x.values[X_RESIDUAL].ne[0] = 0);
    EXCHANGE_GOOD(PART_COLUMNS, p->senders = 1, x.node.src[0] = -1, p->whole = 32);
    EXCHANGE_BAD("say in `whole`", PART_COLUMNS, p->senders = 1, x.node.src[0] = -1);
    EXCHANGE_BAD("data_stride = 192 is less than the 198", PART_COLUMNS, p->senders = 1,
                 x.node.src[0] = -1, p->whole = 33);
    EXCHANGE_BAD("2^48", PART_COLUMNS, p->senders = 1, x.node.src[0] = x.node.src[3] = -1,
                 p->whole = INT32_MAX, x.values[X_SUM].ne[1] = INT32_MAX);
    EXCHANGE_BAD("x must have shape [33, 3]", PART_COLUMNS, p->whole = 33, p->data_stride = 200);
    EXCHANGE_BAD("2 elements from 2 on along axis 1 are outside 3", PART_ROWS, p->first = 2);
    EXCHANGE_BAD("first = -1", PART_ROWS, p->first = -1);
    EXCHANGE_BAD("axis = 4", PART_ROWS, p->axis = 4);
    EXCHANGE_BAD("residual must have shape [32, 2]", PART_ROWS, x.values[X_RESIDUAL].ne[1] = 3);
    EXCHANGE_BAD("x must have shape", PART_ROWS, x.values[X_SUM].ne[0] = 31, x.node.src[3] = -1);
}

/* Rows 4 .. 6 of nine, of any type. */
static void test_exchange_gather(void **state) {
    exchange_graph x;
    (void)state;
#define GATHER_ROWS(type_)                                                                         \
    p->kind = TDM_EXCHANGE_GATHER, p->axis = 1, p->first = 4, p->wire_type = 0,                    \
    p->data_stride = 0, x.values[X_SUM].ne[1] = 9, x.node.src[3] = -1,                             \
    x.values[X_ADDEND].type = x.values[X_SUM].type = (type_)
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_F32));
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_I32));
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_Q8_0));
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_F32), x.values[X_ADDEND].ne[1] = 0);
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_F32), p->senders = 1, x.node.src[0] = -1, p->first = 0);
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_F32), p->data_off = 4096 - 9 * 128);
    EXCHANGE_BAD("do not fit", GATHER_ROWS(TDM_TYPE_F32), p->data_off = 4096 - 9 * 128 + 4);
    EXCHANGE_BAD("lie inside", GATHER_ROWS(TDM_TYPE_F32), p->flag_off = 1024);
    EXCHANGE_BAD("first = 4", GATHER_ROWS(TDM_TYPE_F32), p->senders = 1, x.node.src[0] = -1);
    EXCHANGE_BAD("x is no part from 7 on", GATHER_ROWS(TDM_TYPE_F32), p->first = 7);
    EXCHANGE_BAD("x is no part", GATHER_ROWS(TDM_TYPE_F32), x.values[X_SUM].ne[0] = 31);
    EXCHANGE_BAD("x must be i32", GATHER_ROWS(TDM_TYPE_F32), x.values[X_SUM].type = TDM_TYPE_I32);
    EXCHANGE_BAD("no residual", GATHER_ROWS(TDM_TYPE_F32), x.node.src[3] = X_RESIDUAL,
                 x.values[X_RESIDUAL].ne[1] = 9);
    EXCHANGE_BAD("no wire_type (1)", GATHER_ROWS(TDM_TYPE_F32), p->wire_type = TDM_TYPE_F16);
    EXCHANGE_BAD("no data_stride (64)", GATHER_ROWS(TDM_TYPE_F32), p->data_stride = 64);
    EXCHANGE_BAD("first = 4 cuts a block of 32", GATHER_ROWS(TDM_TYPE_Q8_0), p->axis = 0,
                 x.values[X_SUM].ne[0] = 64, x.values[X_SUM].ne[1] = 3);
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_Q8_0), p->axis = 0, p->first = 32,
                  x.values[X_SUM].ne[0] = 64, x.values[X_SUM].ne[1] = 3);
}

/* Rows 4 .. 6 of nine, and with them columns 8 .. 15 of 32 x 3 numbers. */
static void test_exchange_pair(void **state) {
    exchange_graph x;
    (void)state;
#define GATHER_PAIR                                                                                \
    GATHER_ROWS(TDM_TYPE_I32), p->axis2 = 0, p->first2 = 8, p->data_off2 = 2048,                   \
                               x.node.src[4] = X_SECOND, x.node.dst[1] = X_SUM2,                   \
                               x.values[X_SECOND].ne[0] = 8
    EXCHANGE_GOOD(GATHER_PAIR);
    EXCHANGE_GOOD(GATHER_PAIR, p->data_off2 = 256 + 9 * 128);
    EXCHANGE_BAD("payloads at 256 and 1404 overlap", GATHER_PAIR, p->data_off2 = 256 + 9 * 128 - 4);
    EXCHANGE_BAD("do not fit", GATHER_PAIR, p->data_off2 = 4096 - 380);
    /* An area has both payloads, however far apart they are. */
    EXCHANGE_BAD("area_stride = 1152 is less than the 2176 bytes of both payloads", GATHER_PAIR,
                 p->area_stride = 9 * 128);
    EXCHANGE_BAD("area_stride = 1532 is less than the 1536 bytes of both payloads", GATHER_PAIR,
                 p->data_off2 = 256 + 9 * 128, p->area_stride = 9 * 128 + 380);
    EXCHANGE_GOOD(GATHER_PAIR, p->data_off2 = 256 + 9 * 128, p->area_stride = 9 * 128 + 384);
    EXCHANGE_BAD("lie inside", GATHER_PAIR, p->flag_off = 2048);
    EXCHANGE_BAD("its x2 is absent", GATHER_PAIR, x.node.src[4] = -1);
    EXCHANGE_BAD("result of x2 is absent", GATHER_PAIR, x.node.dst[1] = -1);
    EXCHANGE_BAD("x2 is no part from 25 on", GATHER_PAIR, p->first2 = 25);
    EXCHANGE_BAD("x2 must be f32", GATHER_PAIR, x.values[X_SECOND].type = TDM_TYPE_F16);
    EXCHANGE_BAD("whole2 = 3", GATHER_PAIR, p->whole2 = 3);
    EXCHANGE_GOOD(GATHER_PAIR, p->senders = 1, x.node.src[0] = x.node.src[4] = -1,
                  p->first = p->first2 = 0);
    EXCHANGE_BAD("its x2 is present", GATHER_PAIR, p->senders = 1, x.node.src[0] = -1,
                 p->first = p->first2 = 0);
}

/* Flags and data in peer memory, the flags in the arena, too. */
static void test_exchange_peer(void **state) {
    exchange_graph x;
    (void)state;
#define PEER x.node.src[5] = X_PEER
    EXCHANGE_GOOD(PEER);
    EXCHANGE_GOOD(PEER, x.values[X_ARENA].ne[0] = 256); /* as far as the flags go */
    EXCHANGE_BAD("flags of 64 bytes at offset 64", PEER, x.values[X_ARENA].ne[0] = 128);
    EXCHANGE_BAD("do not fit the peer memory", PEER, x.values[X_PEER].ne[0] = 256);
    EXCHANGE_BAD("do not fit the peer memory", PEER, p->data_off = 4096 - 380);
    EXCHANGE_BAD("do not fit the peer memory", PEER, x.values[X_PEER].ne[0] = 128);
    EXCHANGE_BAD("lie inside", PEER, p->flag_off = 200);
    EXCHANGE_BAD("source 5 must be a STATE", x.node.src[5] = X_SECOND);
    EXCHANGE_BAD("the peer memory is the arena", x.node.src[5] = X_ARENA);
    EXCHANGE_BAD("phase 1 has no peer memory", PEER, p->phase = TDM_EXCHANGE_PUBLISH,
                 x.node.dst[0] = x.node.src[3] = -1);
    EXCHANGE_BAD("phase 2 has no peer memory", PEER, p->phase = TDM_EXCHANGE_COLLECT,
                 x.node.src[0] = -1);
}

/* Nodes that only publish, and nodes that only collect. */
static void test_exchange_phases(void **state) {
    exchange_graph x;
    (void)state;
#define PUBLISH_ONLY p->phase = TDM_EXCHANGE_PUBLISH, x.node.dst[0] = x.node.src[3] = -1
#define COLLECT_ONLY p->phase = TDM_EXCHANGE_COLLECT, x.node.src[0] = -1
    EXCHANGE_GOOD(PUBLISH_ONLY);
    EXCHANGE_BAD("member 1 publishes but is none", PUBLISH_ONLY, p->senders = 1);
    EXCHANGE_BAD("its x is absent", PUBLISH_ONLY, x.node.src[0] = -1);
    EXCHANGE_BAD("phase 1 has no residual", PUBLISH_ONLY, x.node.src[3] = X_RESIDUAL);
    EXCHANGE_BAD("the result of x is present", PUBLISH_ONLY, x.node.dst[0] = X_SUM);
    EXCHANGE_BAD("data_stride = 188", PUBLISH_ONLY, p->data_stride = 188);
    EXCHANGE_GOOD(PART_ROWS, PUBLISH_ONLY);
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_F32), PUBLISH_ONLY, p->whole = 9);
    EXCHANGE_BAD("x is no part from 4 on", GATHER_ROWS(TDM_TYPE_F32), PUBLISH_ONLY, p->whole = 6);
    EXCHANGE_BAD("do not fit", GATHER_ROWS(TDM_TYPE_F32), PUBLISH_ONLY, p->whole = 31);
    EXCHANGE_GOOD(GATHER_PAIR, PUBLISH_ONLY, p->whole = 9, p->whole2 = 32, x.node.dst[1] = -1);
    EXCHANGE_BAD("x2 is no part from 8 on", GATHER_PAIR, PUBLISH_ONLY, p->whole = 9, p->whole2 = 15,
                 x.node.dst[1] = -1);
    EXCHANGE_GOOD(COLLECT_ONLY);
    EXCHANGE_GOOD(COLLECT_ONLY, p->senders = 1);
    EXCHANGE_BAD("its x is present", COLLECT_ONLY, x.node.src[0] = X_ADDEND);
    EXCHANGE_BAD("the result of x is absent", COLLECT_ONLY, x.node.dst[0] = -1);
    EXCHANGE_GOOD(PART_ROWS, COLLECT_ONLY, p->whole = 3);
    EXCHANGE_BAD("say in `whole`", PART_ROWS, COLLECT_ONLY);
    EXCHANGE_GOOD(GATHER_ROWS(TDM_TYPE_F32), COLLECT_ONLY, p->first = 0);
    EXCHANGE_GOOD(GATHER_PAIR, COLLECT_ONLY, x.node.src[4] = -1, p->first = p->first2 = 0);
}

/* ---- Random damage ---- */

static int64_t odd_number(void) {
    static const int64_t numbers[] = {
        0,  -1, 1,       2,   INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN,        7,         31,
        32, 64, 1 << 20, 255, -2,        3,         4,         (int64_t)1 << 47, 0x7fc00000};
    int64_t n = numbers[random_below((int64_t)(sizeof numbers / sizeof numbers[0]))];
    return random_below(4) == 0 ? (int64_t)random_next() : n;
}

/* Overwrites some bytes, a 32-bit or a 64-bit word of an array. */
static void bytes_damage(void *array, size_t size) {
    int64_t number = odd_number();
    int32_t half = (int32_t)(uint32_t)(uint64_t)number;
    char *bytes = array;
    if (size < 8) return;
    switch (random_below(4)) {
    case 0: bytes[random_below((int64_t)size)] = (char)random_next(); break;
    case 1: bytes[random_below((int64_t)size)] ^= (char)(1 << random_below(8)); break;
    case 2: memcpy(bytes + random_below((int64_t)size / 4) * 4, &half, 4); break;
    default: memcpy(bytes + random_below((int64_t)size / 8) * 8, &number, 8);
    }
}

static void graph_damage(graph_copy *c) {
    switch (random_below(9)) {
    case 8: bytes_damage(c->partitions, (size_t)c->g.n_partition * sizeof(tdm_partition)); break;
    case 0:
    case 1: bytes_damage(c->values, (size_t)c->g.n_value * sizeof(tdm_value)); break;
    case 2:
    case 3: bytes_damage(c->nodes, (size_t)c->g.n_node * sizeof(tdm_node)); break;
    case 4: bytes_damage(c->kv, (size_t)c->g.n_kv * sizeof(tdm_kv_desc)); break;
    case 5: bytes_damage(c->names, (size_t)c->g.names_size); break;
    case 6: /* the counts may only shrink: the arrays are as long as they are */
        switch (random_below(7)) {
        case 6: c->g.n_partition = (int32_t)random_below(c->g.n_partition + 1); break;
        case 0: c->g.n_value = (int32_t)random_below(c->g.n_value + 1); break;
        case 1: c->g.n_node = (int32_t)random_below(c->g.n_node + 1); break;
        case 2: c->g.n_kv = (int32_t)random_below(c->g.n_kv + 1); break;
        case 3: c->g.names_size = (int32_t)random_below(c->g.names_size + 1); break;
        case 4: c->g.n_slot = (int32_t)odd_number(); break;
        default: c->g.step = (int32_t)odd_number();
        }
        break;
    default: /* one field of a value or node, so that a good share stays nearly valid */
        if (c->g.n_node > 0) {
            tdm_node *node = &c->nodes[random_below(c->g.n_node)];
            switch (random_below(4)) {
            case 0: node->src[random_below(3)] = (int32_t)random_below(c->g.n_value); break;
            case 1: node->op = 1 + (int32_t)random_below(TDM_OP_COUNT_); break;
            case 2: bytes_damage(&node->params, 40); break;
            default: bytes_damage(&c->g.step_caps, sizeof c->g.step_caps);
            }
        }
    }
}

/* Whatever was accepted is safe for everything behind the verifier. */
static void graph_use(const tdm_graph *graph) {
    tdm_view_place *places = malloc(((size_t)graph->n_value + 1) * sizeof *places);
    uint64_t *offsets = malloc(((size_t)graph->n_slot + 1) * sizeof *offsets);
    int32_t *slots = malloc(((size_t)graph->n_slot + 1) * sizeof *slots);
    int32_t first = (int32_t)random_below(graph->n_node + 1), i;
    uint64_t size;
    tdm_graph *part = NULL;
    tdm_error err = {0};
    tdm_view_resolve_all(graph, places);
    for (i = 0; i < graph->n_value; i++) {
        tdm_view_place place;
        int64_t base_size, last = places[i].off;
        const tdm_value *v = tdm_graph_value(graph, i);
        const tdm_value *base = tdm_graph_value(graph, places[i].base);
        int d;
        tdm_view_resolve(graph, i, &place);
        assert_int_equal(place.base, places[i].base);
        if (tdm_shape_count(v->ne) == 0) continue; /* strides and offset of nothing */
        assert_int_equal(place.off, places[i].off);
        assert_memory_equal(place.nb, places[i].nb, sizeof place.nb);
        /* the last element lies inside the base */
        base_size = (int64_t)tdm_tensor_canonical_size((tdm_type)base->type, base->ne);
        for (d = 0; d < TDM_MAX_DIMS; d++) {
            int64_t n = v->ne[d];
            if (d == 0) n /= tdm_type_get_info((tdm_type)v->type).block_len;
            last += (n - 1) * places[i].nb[d];
        }
        assert_true(places[i].off >= 0 &&
                    last + tdm_type_get_info((tdm_type)v->type).block_size <= base_size);
    }
    tdm_graph_plan_memory(graph, 64, offsets, &size, &err);
    if (tdm_graph_extract(graph, first, graph->n_node - first, &part, slots, &err) != TDM_OK)
        fail_msg("%s", err.message);
    if (tdm_graph_verify(part, &err) != TDM_OK) fail_msg("part: %s", err.message);
    tdm_graph_free(part);
    free(places);
    free(offsets);
    free(slots);
}

static void test_damage(void **state) {
    int round, n_accepted = 0, n = 0;
    (void)state;
    random_begin("graph_verify", 20261120);
    for (round = 0; round < 60; round++) {
        tdm_graph *graph = random_graph(40);
        int i;
        graph_use(graph);
        for (i = 0; i < 250; i++, n++) {
            graph_copy c = graph_copy_make(graph);
            tdm_error err = {0};
            int k = 1 + (int)random_below(3);
            while (k-- > 0) graph_damage(&c);
            if (tdm_graph_verify(&c.g, &err) == TDM_OK) {
                graph_use(&c.g);
                n_accepted++;
            } else {
                assert_true(err.message[0] != '\0' && strchr(err.message, '\n') == NULL);
            }
            graph_copy_free(&c);
        }
        tdm_graph_free(graph);
    }
    printf("graph_verify: %d of %d damaged graphs were still graphs\n", n_accepted, n);
    assert_true(n_accepted > 0 && n_accepted < n / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),        cmocka_unit_test(test_values),
        cmocka_unit_test(test_step),          cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_exchange),      cmocka_unit_test(test_exchange_silent),
        cmocka_unit_test(test_exchange_part), cmocka_unit_test(test_exchange_gather),
        cmocka_unit_test(test_exchange_pair), cmocka_unit_test(test_exchange_phases),
        cmocka_unit_test(test_exchange_peer), cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
