/* SPDX-License-Identifier: MIT
 *
 * test_group_buffer.c: groups opened through the runtime, and their buffers: weights of every cut
 * go in and come back as they were, caches have room, bytes are refused where there are none, and
 * what fails names the member and leaves nothing behind.
 *
 * TANDEM_PLUGIN_PATH says where the plugins are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "core/runtime.h"
#include "split_random.h"

enum { MAX_WEIGHT = 24, N_PAGE = 9, ALIGN = 64 };

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error ok_err = {0}, *err = &ok_err;                                                    \
        if ((call) != TDM_OK) fail_msg("%s", ok_err.message);                                      \
    } while (0)

#define FAILS(status_, text, call)                                                                 \
    do {                                                                                           \
        tdm_error fails_err = {0}, *err = &fails_err;                                              \
        const tdm_status fails_status = (call);                                                    \
        if (fails_status != (status_) || strstr(fails_err.message, text) == NULL)                  \
            fail_msg("expected %s with '%s', found %s: %s", tdm_status_text(status_), text,        \
                     tdm_status_text(fails_status), fails_err.message);                            \
    } while (0)

/* ---- Devices ---- */

static void cpu_declare(tdm_runtime *rt, const char *name, const char *path) {
    tdm_option options[] = {{"threads", "1"}, {"path", path}};
    tdm_device_spec spec = {.name = name, .plugin = "cpu", .options = options, .n_option = 2};
    OK(tdm_runtime_declare(rt, &spec, err));
}

/* Options are pairs up to NULL. */
static void group_declare(tdm_runtime *rt, const char *name, const char *const *pairs) {
    tdm_option options[8];
    tdm_device_spec spec = {.name = name, .plugin = "meta", .options = options};
    for (; pairs[2 * spec.n_option] != NULL; spec.n_option++)
        options[spec.n_option] =
            (tdm_option){pairs[2 * spec.n_option], pairs[2 * spec.n_option + 1]};
    OK(tdm_runtime_declare(rt, &spec, err));
}

static tdm_runtime *runtime_make(void) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    tdm_runtime *rt = NULL;
    tdm_runtime_params params = {.struct_size = sizeof params};
    OK(tdm_runtime_create(&params, &rt, err));
    for (int i = 0; i < 7; i++) cpu_declare(rt, names[i], i % 3 == 1 ? "reference" : "fast");
    return rt;
}

static tdm_open_device *group_open(tdm_runtime *rt, const char *const *pairs) {
    static int n;
    char name[16];
    tdm_open_device *dev = NULL;
    snprintf(name, sizeof name, "group%d", n++);
    group_declare(rt, name, pairs);
    OK(tdm_runtime_open(rt, name, &dev, err));
    return dev;
}

#define OPEN(rt, ...) group_open(rt, (const char *const[]){__VA_ARGS__, NULL})

/* ---- Memory that runs out: plugins get theirs from the core, which is in this program ---- */

void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);

static atomic_long n_left = -1; /* allocations that work; negative: all do */

void *__wrap_aligned_alloc(size_t align, size_t size) {
    long left = atomic_load(&n_left);
    while (left > 0 && !atomic_compare_exchange_weak(&n_left, &left, left - 1)) continue;
    return left == 0 ? NULL : __real_aligned_alloc(align, size);
}

/* ---- A small model ---- */

typedef struct model {
    int32_t n_weight;
    char names[MAX_WEIGHT][16];
    tdm_tensor_desc descs[MAX_WEIGHT];
    uint8_t *bytes[MAX_WEIGHT];
    tdm_kv_desc kv;
    tdm_partition kv_partition;
    tdm_graph *graph;
} model;

static void weight_add(model *m, const char *name, tdm_type type, uint32_t usage, int64_t ne0,
                       int64_t ne1, int64_t ne2, const tdm_partition *partition, int32_t axis) {
    tdm_tensor_desc *d = &m->descs[m->n_weight];
    assert_true(m->n_weight < MAX_WEIGHT);
    *d = (tdm_tensor_desc){.struct_size = sizeof *d,
                           .type = type,
                           .usage = usage,
                           .ne = {ne0, ne1, ne2, 1},
                           .axis = axis};
    if (partition != NULL) d->partition = *partition;
    const size_t size = tdm_tensor_canonical_size(type, d->ne);
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)random_word();
    m->bytes[m->n_weight] = bytes;
    snprintf(m->names[m->n_weight++], sizeof m->names[0], "%s", name);
}

/* Four KV heads of 64 with two query heads each, 512 columns of feed-forward, four experts. */
static void model_make(model *m) {
    enum { EMBD = 256, HEAD = 64, KV = 4, SUB = 2, FF = 512, VOCAB = 100, EXPERT = 4 };
    const tdm_partition q = {1, 0, KV, 1, {SUB * HEAD}, SUB, 0};
    const tdm_partition k = {1, 0, KV, 1, {HEAD}, SUB, 1};
    const tdm_partition qkv = {2, 1, KV, 3, {SUB * HEAD, HEAD, HEAD}, 0, 0};
    const tdm_partition o = {2, 1, KV, 1, {SUB * HEAD}, 0, 0};
    const tdm_partition ff = {3, 0, FF, 1, {1}, 0, 0};
    const tdm_partition gate_up = {3, 0, FF, 2, {1, 1}, 0, 0};
    const tdm_partition expert = {4, 1, FF, 1, {1}, 0, 0};
    const tdm_partition vocab = {5, -1, VOCAB, 1, {1}, 0, 0};
    const uint32_t mm = TDM_USAGE_MATMUL;
    tdm_builder *b = NULL;
    memset(m, 0, sizeof *m);
    weight_add(m, "embd", TDM_TYPE_Q6_K, mm | TDM_USAGE_ROWS, EMBD, VOCAB, 1, &vocab, 1);
    weight_add(m, "norm", TDM_TYPE_F32, 0, EMBD, 1, 1, NULL, 0);
    weight_add(m, "q", TDM_TYPE_Q4_K, mm, EMBD, KV * SUB * HEAD, 1, &q, 1);
    weight_add(m, "q_bias", TDM_TYPE_F32, 0, KV * SUB * HEAD, 1, 1, &q, 0);
    weight_add(m, "k", TDM_TYPE_Q8_0, mm, EMBD, KV * HEAD, 1, &k, 1);
    weight_add(m, "k_bias", TDM_TYPE_F32, 0, KV * HEAD, 1, 1, &k, 0);
    weight_add(m, "o", TDM_TYPE_Q5_K, mm, KV * SUB * HEAD, EMBD, 1, &q, 0);
    weight_add(m, "qkv", TDM_TYPE_F16, mm, EMBD, 2 * KV * SUB * HEAD, 1, &qkv, 1);
    weight_add(m, "qkv_bias", TDM_TYPE_F32, 0, 2 * KV * SUB * HEAD, 1, 1, &qkv, 0);
    weight_add(m, "o2", TDM_TYPE_Q3_K, mm, KV * SUB * HEAD, EMBD, 1, &o, 0);
    weight_add(m, "gate_up", TDM_TYPE_Q4_0, mm, EMBD, 2 * FF, 1, &gate_up, 1);
    weight_add(m, "down", TDM_TYPE_Q2_K, mm, FF, EMBD, 1, &ff, 0);
    weight_add(m, "down2", TDM_TYPE_IQ4_XS, mm, FF, EMBD, 1, &ff, 0);
    weight_add(m, "router", TDM_TYPE_F32, mm, EMBD, EXPERT, 1, NULL, 0);
    weight_add(m, "gate_exp", TDM_TYPE_Q8_0, TDM_USAGE_EXPERT, EMBD, FF, EXPERT, &expert, 1);
    weight_add(m, "down_exp", TDM_TYPE_Q6_K, TDM_USAGE_EXPERT, FF, EMBD, EXPERT, &expert, 0);
    weight_add(m, "nothing", TDM_TYPE_F32, 0, 0, 1, 1, NULL, 0);
    m->kv = (tdm_kv_desc){.struct_size = sizeof m->kv,
                          .type_k = TDM_TYPE_Q8_0,
                          .type_v = TDM_TYPE_F16,
                          .head_dim_k = HEAD,
                          .head_dim_v = HEAD,
                          .n_head_kv = KV,
                          .page_len = 32};
    m->kv_partition = k;
    OK(tdm_builder_create(&b, err));
    for (int32_t i = 0; i < m->n_weight; i++) {
        const tdm_tensor_desc *d = &m->descs[i];
        const int32_t v = tdm_build_weight(b, m->names[i], d->type, d->ne, d->usage);
        if (d->partition.id != 0)
            tdm_build_set_partition(b, v, tdm_build_partition(b, &d->partition), d->axis);
    }
    int32_t kv;
    const int32_t state = tdm_build_state(b, "cache", &m->kv, 1000, N_PAGE, &kv);
    tdm_build_set_partition(b, state, tdm_build_partition(b, &k), 0);
    const int64_t ne[TDM_MAX_DIMS] = {EMBD, 1, 1, 1};
    tdm_build_output(b, tdm_build_scale(b, tdm_build_input(b, "x", TDM_TYPE_F32, ne), 2.0f, 0.0f),
                     "y");
    OK(tdm_builder_finish(b, &m->graph, err));
    tdm_builder_destroy(b);
}

static void model_free(model *m) {
    for (int32_t i = 0; i < m->n_weight; i++) free(m->bytes[i]);
    tdm_graph_free(m->graph);
}

typedef struct load {
    tdm_mem mem;
    uint64_t offs[MAX_WEIGHT], sizes[MAX_WEIGHT];
    tdm_buffer_item items[MAX_WEIGHT];
} load;

static void load_plan(const model *m, tdm_open_device *dev, load *l, tdm_buffer_params *params) {
    memset(l, 0, sizeof *l);
    *params = (tdm_buffer_params){
        .struct_size = sizeof *params, .purpose = TDM_BUFFER_WEIGHT, .items = l->items};
    for (int32_t i = 0; i < m->n_weight; i++) {
        OK(tdm_open_device_tensor_size(dev, &m->descs[i], &l->sizes[i], err));
        l->offs[i] = params->size;
        params->size += (l->sizes[i] + ALIGN - 1) / ALIGN * ALIGN;
        l->items[params->n_item++] =
            (tdm_buffer_item){.off = l->offs[i], .size = l->sizes[i], .tensor = &m->descs[i]};
    }
}

static void weights_load(const model *m, tdm_open_device *dev, load *l) {
    tdm_buffer_params params;
    load_plan(m, dev, l, &params);
    OK(tdm_mem_alloc_items(dev, &params, &l->mem, err));
    for (int32_t i = 0; i < m->n_weight; i++) {
        const tdm_tensor_desc *d = &m->descs[i];
        const size_t row_size = tdm_type_row_size(d->type, d->ne[0]);
        const int64_t n_row = tdm_shape_rows(d->ne);
        /* In pieces, as a loader does. */
        for (int64_t row = 0, n; row < n_row; row += n) {
            n = 1 + random_below(n_row - row);
            OK(tdm_mem_tensor_upload(&l->mem, l->offs[i], d, m->bytes[i] + (size_t)row * row_size,
                                     row_size, row, n, 0, d->ne[0], err));
        }
    }
}

static void weights_check(const model *m, const load *l) {
    for (int32_t i = 0; i < m->n_weight; i++) {
        const tdm_tensor_desc *d = &m->descs[i];
        const size_t row_size = tdm_type_row_size(d->type, d->ne[0]);
        const size_t size = tdm_tensor_canonical_size(d->type, d->ne);
        uint8_t *back = malloc(size + 1);
        assert_non_null(back);
        memset(back, 0xa5, size + 1);
        OK(tdm_mem_tensor_download(&l->mem, l->offs[i], d, back, row_size, 0, tdm_shape_rows(d->ne),
                                   0, d->ne[0], err));
        if (memcmp(back, m->bytes[i], size) != 0)
            fail_msg("'%s' does not come back as it went in", m->names[i]);
        assert_int_equal(back[size], 0xa5);
        free(back);
    }
}

/* ---- Tests ---- */

static const char *const topologies[][8] = {
    {"members", "a"},
    {"members", "a,b", "share", "1,1"},
    {"members", "a,b", "share", "3,1"},
    {"members", "a,b,c", "share", "5,2,1", "attention", "replicate"},
    {"members", "a,b,c", "share", "0,1,1", "attention", "sequence"},
    {"members", "a,b,c", "share", "1,0,0", "experts", "whole"},
    {"members", "a,b,c,d,e,f,g", "share", "1,1,1,1,1,1,1", "attention", "replicate"},
    {"members", "a,b,c,d,e,f,g", "share", "0,3,0,1,2,0,1", "experts", "whole"},
    {"members", "a,b,c,d,e,f,g", "share", "1,2,3,4,5,6,7", "attention", "sequence"},
    {"members", "a,b,c", "share", "1,1,1", "split", "layer"},
};

static void cache_alloc(const model *m, tdm_open_device *dev, tdm_mem *mem) {
    uint64_t page_size = 0;
    OK(tdm_open_device_kv_page_size(dev, &m->kv, &page_size, err));
    tdm_buffer_item item = {
        .size = page_size * N_PAGE, .kv = &m->kv, .n_page = N_PAGE, .partition = m->kv_partition};
    tdm_buffer_params params = {.struct_size = sizeof params,
                                .size = item.size,
                                .purpose = TDM_BUFFER_STATE,
                                .n_item = 1,
                                .items = &item};
    OK(tdm_mem_alloc_items(dev, &params, mem, err));
}

static void test_round_trip(void **context) {
    (void)context;
    model m;
    model_make(&m);
    for (size_t t = 0; t < sizeof topologies / sizeof topologies[0]; t++) {
        tdm_runtime *rt = runtime_make();
        tdm_open_device *dev = group_open(rt, topologies[t]);
        load l;
        tdm_mem cache = {0};
        OK(tdm_open_device_split_prepare(dev, m.graph, err));
        weights_load(&m, dev, &l);
        weights_check(&m, &l);
        cache_alloc(&m, dev, &cache);
        OK(tdm_mem_fill(&cache, 0, cache.size, 0, err));
        FAILS(TDM_UNSUPPORTED, "fill all of it", tdm_mem_fill(&cache, 0, 1, 0, err));
        weights_check(&m, &l);
        tdm_mem_free(&cache);
        tdm_mem_free(&l.mem);
        tdm_runtime_destroy(rt);
    }
    model_free(&m);
}

/* A group as a member of a group: its slice lies on each of its members. */
static void test_nested(void **context) {
    (void)context;
    model m;
    load l;
    tdm_runtime *rt = runtime_make();
    model_make(&m);
    group_declare(rt, "inner", (const char *const[]){"members", "a,b", "share", "1,1", NULL});
    tdm_open_device *dev = OPEN(rt, "members", "inner,c", "share", "2,1");
    OK(tdm_open_device_split_prepare(dev, m.graph, err));
    weights_load(&m, dev, &l);
    weights_check(&m, &l);
    tdm_mem_free(&l.mem);
    tdm_runtime_destroy(rt);
    model_free(&m);
}

static void test_info(void **context) {
    (void)context;
    tdm_runtime *rt = runtime_make();
    tdm_open_device *dev = OPEN(rt, "members", "a,b,c", "share", "1,0,1");
    tdm_device_info info, one;
    tdm_open_device *a = NULL;
    OK(tdm_open_device_get_info(dev, &info, err));
    OK(tdm_runtime_open(rt, "a", &a, err));
    OK(tdm_open_device_get_info(a, &one, err));
    assert_string_equal(info.name, "a + b + c");
    assert_true((info.flags & TDM_DEVICE_IS_GROUP) != 0);
    assert_true((info.flags & TDM_DEVICE_HOLDS_TEMPS) != 0);
    assert_int_equal(info.flags & (TDM_DEVICE_HAS_EXCHANGE | TDM_DEVICE_IS_HOST), 0);
    assert_true(info.memory_total == 2 * one.memory_total);
    assert_int_equal(info.n_thread, 0);
    assert_true(tdm_open_device_is_group(dev));
    /* Kernels that round differently give other bits: a group must treat them as unlike. */
    tdm_open_device *b = NULL;
    OK(tdm_runtime_open(rt, "b", &b, err));
    OK(tdm_open_device_get_info(b, &info, err));
    assert_string_not_equal(info.description, one.description);
    /* Names that do not fit are counted, also those of a processor whose name is short. */
    enum { N_MANY = 24 };
    char names[N_MANY][8], members[N_MANY * 8] = "", shares[N_MANY * 2 + 1] = "";
    for (int i = 0; i < N_MANY; i++) {
        snprintf(names[i], sizeof names[i], "cpu%d", i);
        cpu_declare(rt, names[i], "fast");
        strcat(strcat(members, i > 0 ? "," : ""), names[i]);
        strcat(shares, i > 0 ? ",1" : "1");
    }
    dev = OPEN(rt, "members", members, "share", shares);
    OK(tdm_open_device_get_info(dev, &info, err));
    size_t length = strlen(info.description);
    assert_true(length > 7 && length < sizeof info.description);
    assert_string_equal(info.description + length - 5, " more");
    length = strlen(info.name);
    assert_true(length > 7 && length < sizeof info.name);
    assert_string_equal(info.name + length - 5, " more");
    tdm_runtime_destroy(rt);
}

/* What the plugin lists without any configuration: nothing, and why. */
static void test_enumerate(void **context) {
    (void)context;
    tdm_runtime *rt = runtime_make();
    int32_t n = 0;
    OK(tdm_runtime_load_all(rt, &n, err));
    for (int32_t i = 0; i < n; i++) {
        tdm_error reason = {0};
        tdm_device_info info;
        int32_t n_device = -1;
        if (strcmp(tdm_runtime_plugin(rt, i)->name, "meta") != 0) continue;
        assert_int_equal(tdm_runtime_device_count(rt, i, NULL, &n_device, &reason), TDM_OK);
        assert_int_equal(n_device, 0);
        assert_non_null(strstr(reason.message, "[group NAME]"));
        assert_int_equal(tdm_runtime_device_count(rt, i, NULL, &n_device, NULL), TDM_OK);
        FAILS(TDM_NOT_FOUND, "0", tdm_runtime_device_describe(rt, i, 0, NULL, &info, err));
        tdm_runtime_destroy(rt);
        return;
    }
    fail_msg("the plugin was not found");
}

static void open_fails(tdm_runtime *rt, const char *name, tdm_status status, const char *text,
                       const char *const *pairs) {
    tdm_open_device *dev = NULL;
    group_declare(rt, name, pairs);
    FAILS(status, text, tdm_runtime_open(rt, name, &dev, err));
    FAILS(status, text, tdm_runtime_open(rt, name, &dev, err)); /* nothing was left half open */
}

static void test_bad_open(void **context) {
    (void)context;
    tdm_runtime *rt = runtime_make();
    tdm_open_device *dev = NULL;
    open_fails(rt, "no_member", TDM_INVALID_ARGUMENT, "members",
               (const char *const[]){"share", "1", NULL});
    open_fails(rt, "unknown", TDM_NOT_FOUND, "'zebra'",
               (const char *const[]){"members", "a,zebra", NULL});
    open_fails(rt, "itself", TDM_FAILED_PRECONDITION, "member of itself",
               (const char *const[]){"members", "a,itself", NULL});
    group_declare(rt, "right", (const char *const[]){"members", "left", NULL});
    open_fails(rt, "left", TDM_FAILED_PRECONDITION, "member of itself",
               (const char *const[]){"members", "right", NULL});
    FAILS(TDM_FAILED_PRECONDITION, "member of itself", tdm_runtime_open(rt, "right", &dev, err));
    tdm_device_spec spec = {.name = "second", .plugin = "meta", .index = 1};
    OK(tdm_runtime_declare(rt, &spec, err));
    FAILS(TDM_NOT_FOUND, "number 0", tdm_runtime_open(rt, "second", &dev, err));
    (void)OPEN(rt, "members", "a,b"); /* the members are as good as before */
    tdm_runtime_destroy(rt);
}

/* Buffers without items are memory of the host. */
static void test_host_buffer(void **context) {
    (void)context;
    tdm_runtime *rt = runtime_make();
    tdm_open_device *dev = OPEN(rt, "members", "a,b");
    tdm_mem mem = {0}, other = {0}, empty = {0};
    uint8_t bytes[100], back[100];
    for (int i = 0; i < 100; i++) bytes[i] = (uint8_t)(i + 1);
    OK(tdm_mem_alloc(dev, 5000, TDM_BUFFER_COMPUTE, &mem, err));
    OK(tdm_mem_alloc(dev, 300, TDM_BUFFER_INPUT, &other, err));
    OK(tdm_mem_alloc(dev, 0, TDM_BUFFER_ANY, &empty, err));
    OK(tdm_mem_fill(&mem, 0, 5000, 7, err));
    OK(tdm_mem_upload(&mem, 4900, bytes, 100, err));
    OK(tdm_mem_copy(&other, 200, &mem, 4900, 100, err));
    OK(tdm_mem_download(&other, 200, back, 100, err));
    assert_memory_equal(bytes, back, 100);
    uint8_t *host = tdm_mem_host_pointer(&mem, TDM_ACCESS_READ | TDM_ACCESS_WRITE);
    assert_non_null(host);
    assert_int_equal((uintptr_t)host % 4096, 0);
    assert_int_equal(host[4899], 7);
    assert_memory_equal(host + 4900, bytes, 100);
    FAILS(TDM_OUT_OF_RANGE, "5000", tdm_mem_upload(&mem, 4901, bytes, 100, err));
    FAILS(TDM_OUT_OF_RANGE, "5000", tdm_mem_download(&mem, UINT64_MAX, back, 2, err));
    FAILS(TDM_OUT_OF_RANGE, "5000", tdm_mem_fill(&mem, 5000, 1, 0, err));
    FAILS(TDM_OUT_OF_RANGE, "300", tdm_mem_copy(&other, 201, &mem, 0, 100, err));
    FAILS(TDM_INVALID_ARGUMENT, "overlap", tdm_mem_copy(&mem, 50, &mem, 0, 51, err));
    OK(tdm_mem_upload(&empty, 0, bytes, 0, err));
    assert_memory_equal(host + 4900, bytes, 100);
    FAILS(TDM_RESOURCE_EXHAUSTED, "4611686018427387904",
          tdm_mem_alloc(dev, (uint64_t)1 << 62, TDM_BUFFER_ANY, &(tdm_mem){0}, err));
    tdm_tensor_desc desc = {.struct_size = sizeof desc, .type = TDM_TYPE_F32, .ne = {4, 1, 1, 1}};
    FAILS(TDM_UNSUPPORTED, "without items",
          tdm_mem_tensor_upload(&mem, 0, &desc, bytes, 16, 0, 1, 0, 4, err));
    tdm_mem_free(&mem);
    tdm_mem_free(&other);
    tdm_mem_free(&empty);
    tdm_runtime_destroy(rt);
}

/* Plain bytes in a sharded buffer lie on every member; weights beside them are no bytes. */
static void test_bytes_item(void **context) {
    (void)context;
    tdm_runtime *rt = runtime_make();
    tdm_open_device *dev = OPEN(rt, "members", "a,b,c", "share", "0,1,1");
    tdm_tensor_desc desc = {.struct_size = sizeof desc, .type = TDM_TYPE_F32, .ne = {16, 1, 1, 1}};
    tdm_buffer_item items[] = {{.off = 64, .size = 128, .tensor = &desc}, {.off = 192, .size = 40}};
    tdm_buffer_params params = {.struct_size = sizeof params,
                                .size = 256,
                                .purpose = TDM_BUFFER_WEIGHT,
                                .n_item = 2,
                                .items = items};
    tdm_mem mem = {0}, host = {0};
    uint8_t bytes[40], back[40];
    float zeros[16];
    OK(tdm_mem_alloc_items(dev, &params, &mem, err));
    OK(tdm_mem_alloc(dev, 64, TDM_BUFFER_ANY, &host, err));
    assert_null(tdm_mem_host_pointer(&mem, TDM_ACCESS_READ | TDM_ACCESS_WRITE));
    for (int i = 0; i < 40; i++) bytes[i] = (uint8_t)(3 * i);
    OK(tdm_mem_upload(&mem, 192, bytes, 40, err));
    OK(tdm_mem_download(&mem, 200, back, 30, err));
    assert_memory_equal(back, bytes + 8, 30);
    OK(tdm_mem_copy(&host, 3, &mem, 193, 39, err));
    OK(tdm_mem_download(&host, 3, back, 39, err));
    assert_memory_equal(back, bytes + 1, 39);
    OK(tdm_mem_copy(&mem, 212, &mem, 192, 20, err));
    OK(tdm_mem_download(&mem, 192, back, 40, err));
    assert_memory_equal(back + 20, bytes, 20);
    OK(tdm_mem_fill(&mem, 200, 56, 9, err));
    OK(tdm_mem_download(&mem, 192, back, 40, err));
    for (int i = 0; i < 40; i++) assert_int_equal(back[i], i < 8 ? bytes[i] : 9);
    OK(tdm_mem_fill(&mem, 0, 256, 0, err));
    OK(tdm_mem_tensor_download(&mem, 64, &desc, zeros, sizeof zeros, 0, 1, 0, 16, err));
    for (int i = 0; i < 16; i++) assert_true(zeros[i] == 0);
    FAILS(TDM_UNSUPPORTED, "tensors", tdm_mem_upload(&mem, 64, bytes, 4, err));
    FAILS(TDM_UNSUPPORTED, "tensors", tdm_mem_download(&mem, 180, back, 20, err));
    FAILS(TDM_UNSUPPORTED, "tensors", tdm_mem_upload(&mem, 0, bytes, 4, err));
    FAILS(TDM_UNSUPPORTED, "tensors", tdm_mem_upload(&mem, 220, bytes, 20, err));
    FAILS(TDM_UNSUPPORTED, "fill all of it", tdm_mem_fill(&mem, 100, 100, 0, err));
    FAILS(TDM_OUT_OF_RANGE, "256", tdm_mem_upload(&mem, 250, bytes, 7, err));
    tdm_mem_free(&mem);
    tdm_mem_free(&host);
    tdm_runtime_destroy(rt);
}

static void test_bad_tensor(void **context) {
    (void)context;
    model m;
    load l;
    tdm_buffer_params params;
    tdm_mem mem = {0};
    tdm_runtime *rt = runtime_make();
    tdm_open_device *dev = OPEN(rt, "members", "a,b", "share", "1,1");
    uint64_t size = 0;
    model_make(&m);
    FAILS(TDM_FAILED_PRECONDITION, "split_prepare",
          tdm_open_device_tensor_size(dev, &m.descs[2], &size, err));
    OK(tdm_open_device_split_prepare(dev, m.graph, err));
    weights_load(&m, dev, &l);
    const int q = 2;
    const tdm_tensor_desc *d = &m.descs[q];
    const size_t row_size = tdm_type_row_size(d->type, d->ne[0]);
    const int64_t n_row = d->ne[1], n_col = d->ne[0];
    tdm_tensor_desc other = *d;
    other.partition.id = 0;
    FAILS(TDM_INVALID_ARGUMENT, "item at offset",
          tdm_mem_tensor_upload(&l.mem, l.offs[q], &other, m.bytes[q], row_size, 0, 1, 0, n_col,
                                err));
    other = *d;
    other.type = TDM_TYPE_Q5_K;
    FAILS(TDM_INVALID_ARGUMENT, "q5_K",
          tdm_mem_tensor_upload(&l.mem, l.offs[q], &other, m.bytes[q], row_size, 0, 1, 0, n_col,
                                err));
    FAILS(TDM_INVALID_ARGUMENT, "item at offset",
          tdm_mem_tensor_upload(&l.mem, l.offs[q] + 64, d, m.bytes[q], row_size, 0, 1, 0, n_col,
                                err));
    FAILS(
        TDM_OUT_OF_RANGE, "rows",
        tdm_mem_tensor_upload(&l.mem, l.offs[q], d, m.bytes[q], row_size, n_row, 1, 0, n_col, err));
    FAILS(TDM_OUT_OF_RANGE, "columns",
          tdm_mem_tensor_upload(&l.mem, l.offs[q], d, m.bytes[q], row_size, 0, 1, n_col, 256, err));
    FAILS(TDM_INVALID_ARGUMENT, "whole blocks",
          tdm_mem_tensor_upload(&l.mem, l.offs[q], d, m.bytes[q], row_size, 0, 1, 0, 32, err));
    OK(tdm_mem_tensor_upload(&l.mem, l.offs[q], d, m.bytes[q], row_size, 0, 0, 0, n_col, err));
    weights_check(&m, &l);
    tdm_mem_free(&l.mem);

    /* Items out of order, outside the buffer, or of a type that there is not. */
    load_plan(&m, dev, &l, &params);
    l.items[3].off -= 1;
    FAILS(TDM_INVALID_ARGUMENT, "item 3", tdm_mem_alloc_items(dev, &params, &mem, err));
    load_plan(&m, dev, &l, &params);
    l.items[params.n_item - 2].size = params.size + 1;
    FAILS(TDM_INVALID_ARGUMENT, "not inside", tdm_mem_alloc_items(dev, &params, &mem, err));
    other = *d;
    other.type = (tdm_type)5;
    FAILS(TDM_UNSUPPORTED, "type 5", tdm_open_device_tensor_size(dev, &other, &size, err));
    other = *d;
    other.ne[0] = -256;
    FAILS(TDM_INVALID_ARGUMENT, "-256", tdm_open_device_tensor_size(dev, &other, &size, err));
    tdm_runtime_destroy(rt);
    model_free(&m);
}

/* The second member has no memory left: it is named, the first one's is given back. */
static void test_no_memory(void **context) {
    (void)context;
    model m;
    load l;
    tdm_buffer_params params;
    tdm_mem mem = {0};
    tdm_runtime *rt = runtime_make();
    tdm_open_device *dev =
        OPEN(rt, "members", "a,b", "share", "1,1", "reserve", "0,9223372036854775807");
    model_make(&m);
    OK(tdm_open_device_split_prepare(dev, m.graph, err));
    load_plan(&m, dev, &l, &params);
    FAILS(TDM_RESOURCE_EXHAUSTED, "member 'b'", tdm_mem_alloc_items(dev, &params, &mem, err));
    FAILS(TDM_RESOURCE_EXHAUSTED, "reserved", tdm_mem_alloc_items(dev, &params, &mem, err));

    /* More than any member has. */
    tdm_open_device *plain = OPEN(rt, "members", "c,d", "share", "1,1");
    tdm_tensor_desc large = {.struct_size = sizeof large,
                             .type = TDM_TYPE_F32,
                             .ne = {(int64_t)1 << 30, (int64_t)1 << 14, 1, 1}};
    tdm_buffer_item item = {.tensor = &large};
    OK(tdm_open_device_tensor_size(plain, &large, &item.size, err));
    assert_true(item.size == (uint64_t)1 << 47); /* on two members */
    params = (tdm_buffer_params){
        .struct_size = sizeof params, .size = item.size, .n_item = 1, .items = &item};
    FAILS(TDM_RESOURCE_EXHAUSTED, "member 'c', 70368744177664 bytes",
          tdm_mem_alloc_items(plain, &params, &mem, err));
    FAILS(TDM_RESOURCE_EXHAUSTED, "free", tdm_mem_alloc_items(plain, &params, &mem, err));

    /* The group is as good as before. */
    OK(tdm_open_device_split_prepare(plain, m.graph, err));
    weights_load(&m, plain, &l);
    weights_check(&m, &l);
    tdm_mem_free(&l.mem);
    tdm_runtime_destroy(rt);
    model_free(&m);
}

/* Opens, prepares, loads and reads back. A failure has the status and message of a failed
 * allocation. */
static tdm_status everything_try(const model *m, tdm_error *err) {
    tdm_runtime *rt = runtime_make();
    tdm_open_device *dev = NULL;
    load l = {0};
    tdm_buffer_params params = {.struct_size = sizeof params,
                                .purpose = TDM_BUFFER_WEIGHT,
                                .n_item = m->n_weight,
                                .items = l.items};
    const int last = 11; /* "down", which cuts superblocks */
    const tdm_tensor_desc *d = &m->descs[last];
    const size_t row_size = tdm_type_row_size(d->type, d->ne[0]);
    uint8_t *back = malloc(tdm_tensor_canonical_size(d->type, d->ne));
    assert_non_null(back);
    group_declare(rt, "few", (const char *const[]){"members", "a,b,c", "share", "3,1,2", NULL});
    tdm_status status = tdm_runtime_open(rt, "few", &dev, err);
    if (status == TDM_OK) status = tdm_open_device_split_prepare(dev, m->graph, err);
    for (int32_t i = 0; i < m->n_weight && status == TDM_OK; i++) {
        status = tdm_open_device_tensor_size(dev, &m->descs[i], &l.sizes[i], err);
        l.items[i] =
            (tdm_buffer_item){.off = params.size, .size = l.sizes[i], .tensor = &m->descs[i]};
        l.offs[i] = params.size;
        params.size += l.sizes[i];
    }
    if (status == TDM_OK) status = tdm_mem_alloc_items(dev, &params, &l.mem, err);
    if (status == TDM_OK)
        status = tdm_mem_tensor_upload(&l.mem, l.offs[last], d, m->bytes[last], row_size, 0,
                                       d->ne[1], 0, d->ne[0], err);
    if (status == TDM_OK)
        status = tdm_mem_tensor_download(&l.mem, l.offs[last], d, back, row_size, 0, d->ne[1], 0,
                                         d->ne[0], err);
    atomic_store(&n_left, -1);
    if (status == TDM_OK)
        assert_memory_equal(back, m->bytes[last], tdm_tensor_canonical_size(d->type, d->ne));
    free(back);
    tdm_mem_free(&l.mem);
    tdm_runtime_destroy(rt);
    return status;
}

static void test_no_host_memory(void **context) {
    (void)context;
    model m;
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    long n = 0;
    model_make(&m);
    for (; status != TDM_OK; n += 1 + n / 60) {
        tdm_error err = {0};
        atomic_store(&n_left, n);
        status = everything_try(&m, &err);
        if (status != TDM_OK && (status != TDM_RESOURCE_EXHAUSTED || err.message[0] == 0))
            fail_msg("allocation %ld: %s: %s", n, tdm_status_text(status), err.message);
        assert_true(n < 1000000);
    }
    print_message("about %ld allocations\n", n);
    assert_true(n > 20);
    model_free(&m);
}

int main(void) {
    random_begin("group_buffer");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_nested),
        cmocka_unit_test(test_info),       cmocka_unit_test(test_enumerate),
        cmocka_unit_test(test_bad_open),   cmocka_unit_test(test_host_buffer),
        cmocka_unit_test(test_bytes_item), cmocka_unit_test(test_bad_tensor),
        cmocka_unit_test(test_no_memory),  cmocka_unit_test(test_no_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
