/* SPDX-License-Identifier: MIT
 *
 * test_adapter.c: acquired devices are complete: a plugin with ten slots works through the whole
 * table, the CPU runs what it refuses inside the same plan, and a failed run can be repeated.
 */
#include "tests/unit/adapter_fixture.h"

#include "tests/unit/random_graph.h"
#include "tests/support/random.h"

/* ---- the table ------------------------------------------------------------------------------- */

static void test_table_has_no_gaps(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_with(NULL, NULL);
    acquired l = acquire(rt, "m");
    const tdm_plugin *p = l.got.plugin;
    assert_string_equal(p->name, "fake");
    assert_true(TDM_HAS(p->device, get_info) && TDM_HAS(p->device, supports_op) &&
                TDM_HAS(p->device, graph_supports));
    assert_true(TDM_HAS(p->buffer, alloc) && TDM_HAS(p->buffer, free) &&
                TDM_HAS(p->buffer, upload) && TDM_HAS(p->buffer, download) &&
                TDM_HAS(p->buffer, copy) && TDM_HAS(p->buffer, fill) &&
                TDM_HAS(p->buffer, host_pointer) && TDM_HAS(p->buffer, import_host) &&
                TDM_HAS(p->buffer, tensor_size) && TDM_HAS(p->buffer, tensor_upload) &&
                TDM_HAS(p->buffer, tensor_download) && TDM_HAS(p->buffer, kv_page_size));
    assert_true(TDM_HAS(p->queue, create) && TDM_HAS(p->queue, destroy) &&
                TDM_HAS(p->queue, graph_prepare) && TDM_HAS(p->queue, plan_destroy) &&
                TDM_HAS(p->queue, plan_get_info) && TDM_HAS(p->queue, graph_compute));
    assert_true(TDM_HAS(p->split, split_unit));
    assert_false(TDM_HAS(p->split, split_prepare));

    tdm_device_info info = {.struct_size = sizeof info};
    OK(p->device->get_info(l.got.device, &info, err));
    assert_int_equal(info.buffer_align, 128);
    info = (tdm_device_info){.struct_size = offsetof(tdm_device_info, vendor)};
    OK(p->device->get_info(l.got.device, &info, err));
    assert_int_equal(info.vendor[0], 0); /* only the fields within the caller's struct_size */

    p->buffer->free(NULL);
    p->queue->plan_destroy(NULL);
    p->queue->destroy(NULL);
    release(rt, &l);
    assert_null(l.got.plugin);
    tdm_adapter_release(rt, &l.got); /* once is enough */
    runtime_end(rt);
}

static void test_buffers(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_with(NULL, NULL);
    acquired l = acquire(rt, "m");
    const tdm_buffer_ops *ops = l.got.plugin->buffer;
    const tdm_buffer_params params = {.struct_size = sizeof params, .size = 3000000};
    tdm_buffer *a = NULL, *b = NULL;
    uint8_t bytes[64], read[64];
    OK(ops->alloc(l.got.device, &params, &a, err));
    OK(ops->alloc(l.got.device, &params, &b, err));
    for (int i = 0; i < 64; i++) bytes[i] = (uint8_t)(i + 1);
    OK(ops->fill(a, 0, 3000000, 7, err));
    OK(ops->upload(a, 2999936, bytes, 64, err));
    OK(ops->copy(b, 0, a, 1000000, 2000000, err));
    OK(ops->download(b, 1999936, read, 64, err));
    assert_memory_equal(read, bytes, 64);
    OK(ops->download(b, 100, read, 1, err));
    assert_int_equal(read[0], 7);
    FAILS(TDM_OUT_OF_RANGE,
          "m: upload: 64 bytes at offset 2999937 are not inside a buffer of 3000000",
          ops->upload(a, 2999937, bytes, 64, err));
    FAILS(TDM_OUT_OF_RANGE, "", ops->download(a, 3000001, read, 0, err));
    FAILS(TDM_OUT_OF_RANGE, "m: copy, destination: 2 bytes", ops->copy(b, 2999999, a, 0, 2, err));
    FAILS(TDM_OUT_OF_RANGE, "", ops->fill(b, UINT64_MAX, 2, 0, err));
    FAILS(TDM_UNSUPPORTED, "'m': imports no memory",
          ops->import_host(l.got.device, bytes, 64, NULL, &a, err));
    assert_null(ops->host_pointer(a, TDM_ACCESS_READ | TDM_ACCESS_WRITE));

    /* Columns of a tensor, canonical. */
    const tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = TDM_TYPE_F32, .ne = {4, 3, 1, 1}};
    uint64_t size = 0;
    float x[6] = {1, 2, 3, 4, 5, 6}, y[12] = {0};
    OK(ops->tensor_size(l.got.device, &desc, &size, err));
    assert_int_equal(size, 48);
    OK(ops->fill(a, 128, 48, 0, err));
    OK(ops->tensor_upload(a, 128, &desc, x, 8, 0, 3, 2, 2, err));
    OK(ops->tensor_download(a, 128, &desc, y, 16, 0, 3, 0, 4, err));
    assert_true(y[1] == 0 && y[2] == 1 && y[7] == 4 && y[11] == 6);
    FAILS(TDM_OUT_OF_RANGE, "", ops->tensor_upload(a, 128, &desc, x, 8, 2, 2, 2, 2, err));
    ops->free(a);
    ops->free(b);
    release(rt, &l);
    runtime_end(rt);
}

/* The CPU, and a complete device without a fallback, have no adapter. */
static void test_complete_device_has_no_adapter(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_runtime *rt = runtime_with(NULL, NULL);
    tdm_open_device *dev = NULL;
    acquired l = acquire(rt, "cpu");
    OK(tdm_runtime_open(rt, "cpu", &dev, err));
    assert_ptr_equal(l.got.plugin, tdm_open_device_plugin(dev));
    assert_ptr_equal(l.got.device, tdm_open_device_handle(dev));
    release(rt, &l);
    FAILS(TDM_NOT_FOUND, "'nobody': not declared", tdm_adapter_acquire(rt, "nobody", &l.got, err));
    tdm_runtime_destroy(rt);
}

/* ---- computing ------------------------------------------------------------------------------- */

/* y = w2 (w1 (x * scale) * gain) + x, over n_tok rows of 8. */
static tdm_graph *layer_graph(int64_t n_tok) {
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, n_tok);
    int32_t h = tdm_build_mul(b, x, weight(b, "scale", 8, 1, 0));
    h = tdm_build_matmul(b, weight(b, "w1", 8, 12, TDM_USAGE_MATMUL), h);
    h = tdm_build_mul(b, h, weight(b, "gain", 12, 1, 0));
    h = tdm_build_matmul(b, weight(b, "w2", 12, 8, TDM_USAGE_MATMUL), h);
    tdm_build_output(b, tdm_build_add(b, h, x), "y");
    return end(b);
}

/* Runs the layer three times on an acquired device, with x of x_fill. y: [n_tok, 8], n_tok <= 8. */
static void layer_run(acquired *l, float *y, int64_t n_tok) {
    tdm_graph *graph = layer_graph(n_tok);
    bound_plan n = bound_begin(l, graph);
    float x[64];
    x_fill(x, 8 * n_tok, 3);
    bound_put(&n, "x", x, (size_t)n_tok * 32);
    for (int i = 0; i < 3; i++) {
        OK(bound_run(&n, err));
        bound_take(&n, "y", y, (size_t)n_tok * 32);
    }
    bound_end(&n);
    tdm_graph_free(graph);
}

static void layer_check(const char *refuse, int n_line) {
    char option[128];
    float expected[24], y[24] = {0};
    tdm_runtime *rt = runtime_with(NULL, NULL);
    acquired l = acquire(rt, "m");
    layer_run(&l, expected, 3);
    release(rt, &l);
    runtime_end(rt);
    snprintf(option, sizeof option, "refuse=%s", refuse);
    rt = runtime_with(option, NULL);
    l = acquire(rt, "m");
    layer_run(&l, y, 3);
    assert_memory_equal(y, expected, sizeof y);
    layer_run(&l, y, 3); /* logged once */
    log_has("m does not run", n_line);
    release(rt, &l);
    runtime_end(rt);
}

static void test_refused_ops_run_on_the_cpu(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    layer_check("", 0);
    layer_check("matmul", 1);
    layer_check("add", 1);
    layer_check("mul", 1);
    layer_check("mul,add", 2);
    layer_check("mul,add,matmul", 3);
}

/* Weights that are of no use to the device take none of its memory. */
static void test_weights_live_where_they_are_read(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 64, 1);
    const int32_t h = tdm_build_matmul(b, weight(b, "w", 64, 64, TDM_USAGE_MATMUL), x);
    tdm_build_output(b, tdm_build_mul(b, h, weight(b, "gain", 64, 1, 0)), "y");
    tdm_graph *graph = end(b);
    tdm_runtime *rt = runtime_with("refuse=matmul", "memory=4096"); /* the matrix has 16384 */
    acquired l = acquire(rt, "m");
    bound_plan n = bound_begin(&l, graph);
    float row[64], y[64], m[64 * 64], gain[64];
    x_fill(row, 64, 1);
    bound_put(&n, "x", row, sizeof row);
    OK(bound_run(&n, err));
    bound_take(&n, "y", y, sizeof y);
    const tdm_binding *w = bound_binding(&n, "w");
    const tdm_tensor_desc desc = desc_of(tdm_graph_value(graph, value_named(graph, "w")));
    OK(l.got.plugin->buffer->tensor_download(w->buffer, w->off, &desc, m, 256, 0, 64, 0, 64, err));
    bound_take(&n, "gain", gain, sizeof gain);
    for (int j = 0; j < 64; j++) {
        float sum = 0;
        for (int i = 0; i < 64; i++) sum += m[64 * j + i] * row[i];
        assert_true(y[j] == sum * gain[j]);
    }
    /* Bytes that cross from one item to another, over a gap that holds nothing. */
    uint8_t *all = malloc(n.kept != NULL ? 32768 : 1);
    assert_non_null(all);
    OK(l.got.plugin->buffer->download(n.kept, 0, all, 16384 + 256, err));
    OK(l.got.plugin->buffer->upload(n.kept, 0, all, 16384 + 256, err));
    OK(bound_run(&n, err));
    bound_take(&n, "gain", y, sizeof y);
    assert_memory_equal(y, gain, sizeof y);
    free(all);
    assert_null(l.got.plugin->buffer->host_pointer(n.kept, TDM_ACCESS_READ | TDM_ACCESS_WRITE));
    bound_end(&n);

    /* Without items no bytes are known as the weight's, so the device needs memory for all. */
    FAILS(TDM_RESOURCE_EXHAUSTED, "bytes asked for", bound_try(&n, &l, graph, false, err));
    release(rt, &l);
    runtime_end(rt);
    tdm_graph_free(graph);
}

/* An empty weight begins where the next weight does, which lives on the other side. */
static void test_empty_weights(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    for (int k = 0; k < 2; k++) {
        tdm_builder *b = begin();
        const int32_t x = input(b, "x", 8, 3), none = weight(b, "none", 8, 0, TDM_USAGE_MATMUL);
        tdm_build_output(b, tdm_build_matmul(b, none, x), "z");
        tdm_build_output(b, tdm_build_mul(b, x, weight(b, "gain", 8, 1, 0)), "y");
        tdm_graph *graph = end(b);
        tdm_runtime *rt = runtime_with(k == 0 ? "refuse=matmul" : "refuse=mul", NULL);
        acquired l = acquire(rt, "m");
        bound_plan n = bound_begin(&l, graph);
        assert_int_equal(bound_binding(&n, "none")->off, bound_binding(&n, "gain")->off);
        float rows[24], gain[8], y[24];
        x_fill(rows, 24, 1);
        x_fill(gain, 8, 2);
        bound_put(&n, "x", rows, sizeof rows);
        bound_put(&n, "gain", gain, sizeof gain);
        OK(bound_run(&n, err));
        bound_take(&n, "y", y, sizeof y);
        for (int i = 0; i < 24; i++) assert_true(y[i] == rows[i] * gain[i % 8]);
        bound_end(&n);
        release(rt, &l);
        runtime_end(rt);
        tdm_graph_free(graph);
    }
}

/* A plain weight that both sides read is kept by the device; the CPU's copy follows it. */
static void test_copies_of_weights_follow(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, 1), w = weight(b, "w", 8, 1, 0);
    tdm_build_output(b, tdm_build_add(b, tdm_build_mul(b, x, w), w), "y");
    tdm_graph *graph = end(b);
    tdm_runtime *rt = runtime_with("refuse=add", NULL);
    acquired l = acquire(rt, "m");
    for (int with_items = 0; with_items < 2; with_items++) {
        bound_plan n;
        float row[8], gain[8], y[8];
        OK(bound_try(&n, &l, graph, with_items != 0, err));
        OK(bound_bind(&n, err));
        x_fill(row, 8, 1);
        bound_put(&n, "x", row, sizeof row);
        for (int k = 0; k < 3; k++) {
            x_fill(gain, 8, k / 2 + 5);
            bound_put(&n, "w", gain, sizeof gain);
            OK(bound_run(&n, err));
            bound_take(&n, "y", y, sizeof y);
            for (int i = 0; i < 8; i++) assert_true(y[i] == row[i] * gain[i] + gain[i]);
        }
        bound_end(&n);
    }
    release(rt, &l);
    runtime_end(rt);
    tdm_graph_free(graph);
}

/* A view of a weight that no other node reads, behind a node that the fallback runs. */
static void test_views_of_weights(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, 1);
    tdm_build_output(b, tdm_build_add(b, x, x), "y");
    tdm_build_reshape(b, weight(b, "w", 8, 1, 0), 4, 2, 1, 1);
    tdm_graph *graph = end(b);
    tdm_runtime *rt = runtime_with("refuse=add", NULL);
    acquired l = acquire(rt, "m");
    bound_plan n = bound_begin(&l, graph);
    float row[8], y[8];
    x_fill(row, 8, 1);
    bound_put(&n, "x", row, sizeof row);
    OK(bound_run(&n, err));
    bound_take(&n, "y", y, sizeof y);
    for (int i = 0; i < 8; i++) assert_true(y[i] == 2 * row[i]);
    bound_end(&n);
    release(rt, &l);
    runtime_end(rt);
    tdm_graph_free(graph);
}

/* A weight that no node reads lies on the fallback, and the device runs the graph; then the other
 * way round. */
static void test_unread_weights(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    for (int k = 0; k < 2; k++) {
        tdm_builder *b = begin();
        const int32_t x = input(b, "x", 8, 1);
        weight(b, "unread", 8, 8, k == 0 ? TDM_USAGE_MATMUL : 0);
        tdm_build_output(b, tdm_build_add(b, tdm_build_mul(b, x, weight(b, "w", 8, 1, 0)), x), "y");
        tdm_graph *graph = end(b);
        tdm_runtime *rt = runtime_with(k == 0 ? "refuse=matmul" : "refuse=add,mul", NULL);
        acquired l = acquire(rt, "m");
        bound_plan n = bound_begin(&l, graph);
        float row[8], gain[8], y[8];
        x_fill(row, 8, 1);
        x_fill(gain, 8, 2);
        bound_put(&n, "x", row, sizeof row);
        bound_put(&n, "w", gain, sizeof gain);
        OK(bound_run(&n, err));
        bound_take(&n, "y", y, sizeof y);
        for (int i = 0; i < 8; i++) assert_true(y[i] == row[i] * gain[i] + row[i]);
        FAILS(TDM_INVALID_ARGUMENT, "bindings for",
              l.got.plugin->queue->plan_bind(n.plan, n.bindings, graph->n_slot - 1, err));
        bound_end(&n);
        release(rt, &l);
        runtime_end(rt);
        tdm_graph_free(graph);
    }
}

static void test_private_weights_need_items(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_graph *graph = layer_graph(1);
    tdm_runtime *rt = runtime_with("refuse=matmul", NULL);
    acquired l = acquire(rt, "m");
    const tdm_tensor_desc desc = desc_of(tdm_graph_value(graph, value_named(graph, "w1")));
    bound_plan n;
    float row[8] = {0};
    OK(bound_try(&n, &l, graph, false, err));
    FAILS(TDM_FAILED_PRECONDITION, "must be allocated with items",
          l.got.plugin->buffer->tensor_upload(n.kept, 0, &desc, row, 32, 0, 1, 0, 8, err));
    FAILS(TDM_FAILED_PRECONDITION, "'w1' lies on m but is needed on the fallback",
          bound_bind(&n, err));
    FAILS(TDM_FAILED_PRECONDITION, "not bound", bound_run(&n, err));
    bound_end(&n);
    tdm_buffer_item items[2] = {{.off = 256, .size = 16}, {.off = 0, .size = 16}};
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = 512, .n_item = 2, .items = items};
    tdm_buffer *none = NULL;
    FAILS(TDM_INVALID_ARGUMENT, "item 1 at 0",
          l.got.plugin->buffer->alloc(l.got.device, &params, &none, err));
    items[1].off = 500;
    FAILS(TDM_INVALID_ARGUMENT, "item 1 at 500",
          l.got.plugin->buffer->alloc(l.got.device, &params, &none, err));
    release(rt, &l);
    runtime_end(rt);
    tdm_graph_free(graph);
}

/* Plans with stages on the CPU and plans of the device alone run in the order of submission, also
 * where the first of them was submitted before any plan had stages. */
static void test_order(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_builder *b = begin();
    int32_t x = input(b, "x", 8, 1);
    tdm_build_output(b, tdm_build_scale(b, x, 2, 1), "y");
    tdm_graph *direct = end(b);
    b = begin();
    x = input(b, "x", 8, 1);
    tdm_build_output(b, tdm_build_add(b, x, x), "y");
    tdm_graph *staged = end(b);
    tdm_runtime *rt = runtime_with("refuse=add", "delay-us=3000");
    acquired l = acquire(rt, "m");
    bound_plan first = bound_begin(&l, direct), third = bound_begin(&l, direct), second;
    /* y and x of both graphs change places from step to step. */
    float row[8], y[8];
    x_fill(row, 8, 4);
    bound_put(&first, "x", row, sizeof row);
    OK(bound_submit(&first, err)); /* straight to the device */
    second = bound_begin(&l, staged);
    const int32_t sx = tdm_graph_value(staged, value_named(staged, "x"))->slot;
    second.bindings[sx] = *bound_binding(&first, "y");
    OK(bound_bind(&second, err));
    const int32_t fx = tdm_graph_value(direct, value_named(direct, "x"))->slot;
    third.bindings[fx] = *bound_binding(&second, "y");
    third.bindings[tdm_graph_value(direct, value_named(direct, "y"))->slot] =
        *bound_binding(&first, "y");
    OK(bound_bind(&third, err));
    OK(bound_submit(&second, err)); /* 2 (2x + 1) */
    OK(bound_submit(&third, err));  /* 2 (4x + 2) + 1 */
    OK(bound_submit(&second, err)); /* 2 (8x + 5) */
    OK(bound_wait(&second, err));
    bound_take(&second, "y", y, sizeof y);
    for (int i = 0; i < 8; i++) assert_true(y[i] == 16 * row[i] + 10);
    bound_end(&first);
    bound_end(&third);
    bound_end(&second);
    release(rt, &l);
    runtime_end(rt);
    tdm_graph_free(direct);
    tdm_graph_free(staged);
}

/* A failure reaches the signals, later work is unhurt, and a wait that fails is passed on. */
static void test_failures(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_graph *graph = layer_graph(2);
    tdm_runtime *rt = runtime_with("refuse=add,matmul", "fail-at=2");
    acquired l = acquire(rt, "m");
    bound_plan n = bound_begin(&l, graph);
    float x[16];
    x_fill(x, 16, 1);
    bound_put(&n, "x", x, sizeof x);
    FAILS(TDM_UNAVAILABLE, "m fell off the bus", bound_run(&n, err));
    FAILS(TDM_UNAVAILABLE, "m fell off the bus", bound_run(&n, err)); /* the semaphore's poison */
    tdm_semaphore *poisoned = l.done;
    OK(tdm_semaphore_ops.create(l.value, &l.done, err));
    OK(bound_run(&n, err));
    const tdm_point wait = {poisoned, 1}, done = {l.done, ++l.value};
    OK(l.got.plugin->queue->graph_compute(l.queue, n.plan, &wait, 1, &done, 1, err));
    FAILS(TDM_UNAVAILABLE, "m fell off the bus", bound_wait(&n, err));
    tdm_semaphore_ops.destroy(poisoned);

    FAILS(TDM_INVALID_ARGUMENT, "bindings for",
          l.got.plugin->queue->plan_bind(n.plan, n.bindings, 1, err));
    FAILS(TDM_FAILED_PRECONDITION, "not bound",
          l.got.plugin->queue->graph_compute(l.queue, n.plan, NULL, 0, NULL, 0, err));
    tdm_plan_info info = {.struct_size = sizeof info};
    OK(l.got.plugin->queue->plan_get_info(n.plan, &info, err));
    assert_true(info.device_size > 0 && info.host_size > 0); /* borders on either side */
    bound_end(&n);
    release(rt, &l);
    runtime_end(rt);
    tdm_graph_free(graph);
}

/* The caller binds no temporaries of a device that holds them itself; those that cross have memory
 * of the plan. */
static void test_device_that_holds_temps(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    static const char *const refuse[3] = {"refuse=", "refuse=matmul", "refuse=mul"};
    float expected[24], y[24];
    for (int i = 0; i < 3; i++) {
        tdm_runtime *rt = runtime_make(both_path);
        declare(rt, "m", (const char *const[3]){refuse[0]});
        declare_of(rt, "fake_holds_temps", "t", (const char *const[3]){refuse[i]});
        acquired m = acquire(rt, "m"), t = acquire(rt, "t");
        layer_run(&m, expected, 3);
        tdm_graph *graph = layer_graph(3);
        bound_plan n = bound_begin(&t, graph);
        tdm_device_info info = {.struct_size = sizeof info};
        OK(t.got.plugin->device->get_info(t.got.device, &info, err));
        assert_true((info.flags & TDM_DEVICE_HOLDS_TEMPS) != 0);
        for (int32_t v = 0; v < graph->n_value; v++) {
            const tdm_value *value = tdm_graph_value(graph, v);
            if (value->slot >= 0 && value->kind == TDM_VALUE_TEMP)
                n.bindings[value->slot] = (tdm_binding){0};
        }
        OK(bound_bind(&n, err));
        float x[24];
        x_fill(x, 24, 3);
        bound_put(&n, "x", x, sizeof x);
        OK(bound_run(&n, err));
        bound_take(&n, "y", y, sizeof y);
        assert_memory_equal(y, expected, sizeof y);
        bound_end(&n);
        release(rt, &t);
        release(rt, &m);
        tdm_graph_free(graph);
        tdm_runtime_destroy(rt);
        log_has(", 0 bytes left", 2);
    }
}

static void test_supports(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 64, 2);
    int32_t h = tdm_build_rms_norm(b, x, weight(b, "norm", 64, 1, 0), 1e-5f);
    h = tdm_build_matmul(b, weight(b, "w", 64, 32, TDM_USAGE_MATMUL), h);
    tdm_build_output(b, tdm_build_scale(b, h, 2, 0), "y");
    tdm_graph *graph = end(b);
    tdm_runtime *rt = runtime_with("refuse=matmul", NULL);
    acquired l = acquire(rt, "m");
    uint8_t supported[8] = {0};
    OK(l.got.plugin->device->graph_supports(l.got.device, graph, supported, err));
    for (int32_t i = 0; i < graph->n_node; i++) {
        OK(l.got.plugin->device->supports_op(l.got.device, graph, i, err));
        assert_int_equal(supported[i], 1);
    }
    int64_t unit = 0;
    OK(l.got.plugin->split->split_unit(l.got.device, graph, value_named(graph, "w"), 0, &unit,
                                       err));
    assert_true(unit >= 1);
    release(rt, &l);
    runtime_end(rt);

    /* Alone, the device gives its own reason. */
    rt = runtime_make(FAKE_PLUGIN_DIR);
    declare(rt, "m", (const char *const[3]){"refuse=matmul"});
    l = acquire(rt, "m");
    FAILS(TDM_UNSUPPORTED, "is too hard; the fallback refuses it too: there is no plugin 'cpu'",
          l.got.plugin->device->supports_op(l.got.device, graph, 0, err));
    OK(l.got.plugin->device->graph_supports(l.got.device, graph, supported, err));
    assert_int_equal(supported[0] + supported[1], 0);
    assert_int_equal(supported[2], 1);
    tdm_plan *plan = NULL;
    FAILS(TDM_UNSUPPORTED, "device 'm': rms_norm: op ",
          l.got.plugin->queue->graph_prepare(l.queue, graph, NULL, &plan, err));
    release(rt, &l);
    runtime_end(rt);
    tdm_graph_free(graph);
}

/* ---- random graphs --------------------------------------------------------------------------- */

/* All outputs, one after the other. */
static size_t random_run(acquired *l, uint64_t seed, float *y) {
    int32_t n_output = 0;
    tdm_graph *graph = random_graph(seed, &n_output);
    bound_plan n = bound_begin(l, graph);
    float x[48], z[24];
    size_t at = 0;
    x_fill(x, 48, 1);
    x_fill(z, 24, 2);
    bound_put(&n, "x", x, sizeof x);
    bound_put(&n, "z", z, sizeof z);
    OK(bound_run(&n, err));
    OK(bound_run(&n, err)); /* nothing is used up */
    for (int32_t i = 0; i < n_output; i++) {
        char name[16];
        snprintf(name, sizeof name, "out%d", i);
        const size_t count =
            (size_t)tdm_shape_count(tdm_graph_value(graph, value_named(graph, name))->ne);
        bound_take(&n, name, y + at, count * sizeof *y);
        at += count;
    }
    bound_end(&n);
    tdm_graph_free(graph);
    return at;
}

/* Whatever the device refuses, the result is the same, bit for bit. */
static void test_random(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    enum { GRAPHS = 150 };
    static const char *const words[] = {"add", "mul", "scale", "matmul", "concat"};
    const uint64_t seed = test_seed("adapter", 815);
    static float expected[48 * 48], y[48 * 48];
    random_state = seed * 2 + 1;
    for (int32_t i = 0; i < GRAPHS; i++) {
        const uint64_t graph_seed = ((uint64_t)draw(1 << 30) << 8) + 1;
        char refuse[80] = "refuse=";
        for (size_t k = 0; k < sizeof words / sizeof *words; k++)
            if (draw(2)) {
                strcat(refuse, words[k]);
                strcat(refuse, ",");
            }
        tdm_runtime *rt = runtime_with(NULL, NULL);
        acquired l = acquire(rt, "m");
        const size_t n = random_run(&l, graph_seed, expected);
        release(rt, &l);
        runtime_end(rt);
        rt = runtime_with(refuse, NULL);
        l = acquire(rt, "m");
        memset(y, 0x55, sizeof y);
        assert_int_equal(random_run(&l, graph_seed, y), n);
        if (memcmp(y, expected, n * sizeof *y) != 0)
            fail_msg("graph %d of seed %llu, %s: another result", i, (unsigned long long)seed,
                     refuse);
        release(rt, &l);
        runtime_end(rt);
    }
}

/* ---- owners ---------------------------------------------------------------------------------- */

/* A device that is not released, and one that is acquired twice. */
static void test_release(void **state) {
    (void)state;
    tdm_runtime *rt = runtime_with(NULL, NULL);
    tdm_acquired_device a = {.struct_size = sizeof a}, b = a;
    OK(tdm_adapter_acquire(rt, "m", &a, err));
    OK(tdm_adapter_acquire(rt, "m", &b, err));
    assert_ptr_not_equal(a.device, b.device);
    log_has("open m", 1);
    tdm_adapter_release(rt, &a);
    tdm_buffer *buffer = NULL;
    const tdm_buffer_params params = {.struct_size = sizeof params, .size = 64};
    OK(b.plugin->buffer->alloc(b.device, &params, &buffer, err));
    b.plugin->buffer->free(buffer);
    runtime_end(rt);
}

int main(void) {
    both_path_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_has_no_gaps),
        cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_complete_device_has_no_adapter),
        cmocka_unit_test(test_refused_ops_run_on_the_cpu),
        cmocka_unit_test(test_weights_live_where_they_are_read),
        cmocka_unit_test(test_empty_weights),
        cmocka_unit_test(test_copies_of_weights_follow),
        cmocka_unit_test(test_views_of_weights),
        cmocka_unit_test(test_unread_weights),
        cmocka_unit_test(test_private_weights_need_items),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_device_that_holds_temps),
        cmocka_unit_test(test_supports),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_release),
    };
    return cmocka_run_group_tests_name("adapter", tests, NULL, NULL);
}
