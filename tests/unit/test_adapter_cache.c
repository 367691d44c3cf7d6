/* SPDX-License-Identifier: MIT
 *
 * test_adapter_cache.c: caches of acquired devices that run no op on a cache: they lie with the
 * CPU, as a cache does that was asked for in host memory.
 */
#include "tests/unit/adapter_fixture.h"

/* Writes 3 tokens of 2 heads into a cache and attends to them; step in and out are the caller's. */
static tdm_graph *cache_graph(tdm_type type_k, tdm_type type_v, uint32_t flags,
                              uint64_t page_size) {
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = type_k,
                              .type_v = type_v,
                              .head_dim_k = 32,
                              .head_dim_v = 32,
                              .n_head_kv = 2,
                              .page_len = 16,
                              .flags = TDM_KV_ROTATE_K | TDM_KV_ROTATE_V | flags};
    const tdm_step_caps caps = {3, 1, 3, 1, 0, 1};
    const tdm_attention_params params = {.heads_per_kv = 2, .n_head_all = 4, .is_causal = 1};
    tdm_builder *b = begin();
    int32_t kv = 0;
    const int32_t step = tdm_build_step(b, &caps);
    const int32_t state = tdm_build_state(b, "cache", &desc, page_size, 2, &kv);
    const int32_t x = input(b, "x", 64, 3);
    const int32_t k = tdm_build_reshape(b, tdm_build_scale(b, x, 0.5f, 0), 32, 2, 3, 1);
    const int32_t v = tdm_build_reshape(b, tdm_build_scale(b, x, -1, 0), 32, 2, 3, 1);
    tdm_build_kv_write(b, k, v, step, state, kv);
    int32_t q = tdm_build_concat(b, x, tdm_build_scale(b, x, 0.25f, 0.125f), 0);
    q = tdm_build_reshape(b, q, 32, 4, 3, 1);
    int32_t o = tdm_build_attention(b, q, step, state, -1, &params, NULL);
    o = tdm_build_scale(b, tdm_build_reshape(b, o, 128, 3, 1, 1), 3, 0);
    tdm_build_output(b, o, "y");
    return end(b);
}

/* A cache that no node reads lies with the CPU, and the device runs the graph. */
static void test_unread_cache(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F32,
                              .type_v = TDM_TYPE_F32,
                              .head_dim_k = 32,
                              .head_dim_v = 32,
                              .n_head_kv = 2,
                              .page_len = 16};
    tdm_runtime *rt = runtime_with(NULL, NULL);
    acquired l = acquire(rt, "m");
    uint64_t page_size = 0;
    int32_t kv = 0;
    OK(l.got.plugin->buffer->kv_page_size(l.got.device, &desc, &page_size, err));
    tdm_builder *b = begin();
    const int32_t x = input(b, "x", 8, 1);
    tdm_build_state(b, "cache", &desc, page_size, 2, &kv);
    tdm_build_output(b, tdm_build_add(b, x, x), "y");
    tdm_graph *graph = end(b);
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

/* Returns the bytes that crossed. */
static uint64_t cache_run(acquired *l, tdm_type type_k, tdm_type type_v, uint32_t flags, float *y) {
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = type_k,
                        .type_v = type_v,
                        .head_dim_k = 32,
                        .head_dim_v = 32,
                        .n_head_kv = 2,
                        .page_len = 16,
                        .flags = TDM_KV_ROTATE_K | TDM_KV_ROTATE_V | flags};
    uint64_t page_size = 0;
    OK(l->got.plugin->buffer->kv_page_size(l->got.device, &desc, &page_size, err));
    tdm_graph *graph = cache_graph(type_k, type_v, flags, page_size);
    bound_plan n = bound_begin(l, graph);
    tdm_step_header h;
    int32_t step[256];
    OK(tdm_step_layout(&graph->step_caps, &h, err));
    assert_true(h.size <= 256);
    memset(step, 0xff, sizeof step);
    memcpy(step, &h, sizeof h);
    tdm_step_header *header = (tdm_step_header *)(void *)step;
    header->n_tok = 3;
    header->n_seq = 1;
    for (int32_t t = 0; t < 3; t++) {
        step[h.pos_off + t] = t;
        step[h.seq_off + t] = 0;
        step[h.cls[0].write_off + t] = 16 + t;
    }
    step[h.cls[0].first_entry_off] = 0;
    step[h.cls[0].first_entry_off + 1] = 1;
    memcpy(&step[h.cls[0].entry_off], &(tdm_page_entry){1, 0, 3, 0}, sizeof(tdm_page_entry));
    const tdm_binding *at = &n.bindings[tdm_graph_value(graph, graph->step)->slot];
    OK(l->got.plugin->buffer->upload(at->buffer, at->off, step, (uint64_t)h.size * 4, err));
    float x[192];
    x_fill(x, 192, 2);
    bound_put(&n, "x", x, sizeof x);
    OK(bound_run(&n, err));
    bound_take(&n, "y", y, 384 * sizeof *y);
    tdm_plan_info info = {.struct_size = sizeof info};
    OK(l->got.plugin->queue->plan_get_info(n.plan, &info, err));
    bound_end(&n);
    tdm_graph_free(graph);
    return info.crossing_size;
}

static void test_cache_lives_with_the_cpu(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    static const tdm_type types[][2] = {{TDM_TYPE_F32, TDM_TYPE_F32},
                                        {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0}};
    for (size_t i = 0; i < 2; i++) {
        float expected[384], y[384];
        tdm_runtime *rt = runtime_with(NULL, NULL);
        acquired cpu = acquire(rt, "cpu"), m = acquire(rt, "m");
        tdm_step_header h;
        const tdm_step_caps caps = {3, 1, 3, 1, 0, 1};
        OK(tdm_step_layout(&caps, &h, err));
        assert_int_equal(cache_run(&cpu, types[i][0], types[i][1], 0, expected), 0);
        /* k, v and q go, o comes back */
        assert_int_equal(cache_run(&m, types[i][0], types[i][1], 0, y),
                         (uint64_t)h.size * 4 + (64 + 64 + 128 + 128) * 3 * sizeof(float));
        for (int k = 0; k < 384; k++)
            if (!(y[k] - expected[k] < 1e-5f && expected[k] - y[k] < 1e-5f))
                fail_msg("element %d: %g, expected %g", k, (double)y[k], (double)expected[k]);
        log_has("m does not run kv_write", 1);
        log_has("m does not run attention", 1);
        release(rt, &m);
        release(rt, &cpu);
        runtime_end(rt);
    }
}

/* The place of a cache changes no result, and is not logged where it was requested. */
static void test_cache_in_host(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    float expected[384], y[384];
    tdm_runtime *rt = runtime_with(NULL, NULL);
    acquired cpu = acquire(rt, "cpu"), m = acquire(rt, "m");
    cache_run(&cpu, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 0, expected);
    assert_int_equal(cache_run(&cpu, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, TDM_KV_IN_HOST, y), 0);
    assert_memory_equal(y, expected, sizeof y);
    assert_true(cache_run(&m, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, TDM_KV_IN_HOST, y) > 0);
    for (int k = 0; k < 384; k++)
        assert_true(y[k] - expected[k] < 1e-5f && expected[k] - y[k] < 1e-5f);
    log_has("m does not run kv_write", 0);
    log_has("m does not run attention", 0);
    tdm_open_device *dev = NULL;
    OK(tdm_runtime_open(rt, "cpu", &dev, err));
    assert_true(tdm_open_device_has_host_kv(dev));
    OK(tdm_runtime_open(rt, "m", &dev, err));
    assert_false(tdm_open_device_has_host_kv(dev));
    release(rt, &m);
    release(rt, &cpu);
    runtime_end(rt);
    /* Without the CPU no device works there. */
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F16,
                              .type_v = TDM_TYPE_F16,
                              .head_dim_k = 32,
                              .head_dim_v = 32,
                              .n_head_kv = 1,
                              .flags = TDM_KV_IN_HOST};
    uint64_t size = 0;
    rt = runtime_make(FAKE_PLUGIN_DIR);
    declare(rt, "m", (const char *const[3]){NULL});
    m = acquire(rt, "m");
    FAILS(TDM_UNSUPPORTED, "there is no plugin 'cpu' to fall back on",
          m.got.plugin->buffer->kv_page_size(m.got.device, &desc, &size, err));
    release(rt, &m);
    runtime_end(rt);
}

/* The fallback is opened with the options that the host sets. */
static void test_fallback_has_options(void **state) {
    (void)state;
    if (!has_cpu()) skip();
    static const tdm_option wrong = {"threads", "many"}, right = {"threads", "1"};
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F16,
                              .type_v = TDM_TYPE_F16,
                              .head_dim_k = 32,
                              .head_dim_v = 32,
                              .n_head_kv = 1};
    uint64_t size = 0;
    for (int i = 0; i < 2; i++) {
        tdm_runtime *rt = runtime_with(NULL, NULL);
        OK(tdm_runtime_set_fallback(rt, i == 0 ? &right : &wrong, 1, err));
        OK(tdm_runtime_set_fallback(rt, i == 0 ? &wrong : &right, 1, err));
        acquired m = acquire(rt, "m");
        if (i == 0)
            FAILS(TDM_UNSUPPORTED, "threads = many",
                  m.got.plugin->buffer->kv_page_size(m.got.device, &desc, &size, err));
        else
            OK(m.got.plugin->buffer->kv_page_size(m.got.device, &desc, &size, err));
        FAILS(TDM_FAILED_PRECONDITION, "a device has been acquired already",
              tdm_runtime_set_fallback(rt, &right, 1, err));
        release(rt, &m);
        runtime_end(rt);
    }
    tdm_runtime *rt = runtime_with(NULL, NULL); /* of no use, and no leak */
    OK(tdm_runtime_set_fallback(rt, &right, 1, err));
    tdm_runtime_destroy(rt);
}

int main(void) {
    both_path_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unread_cache),
        cmocka_unit_test(test_cache_lives_with_the_cpu),
        cmocka_unit_test(test_cache_in_host),
        cmocka_unit_test(test_fallback_has_options),
    };
    return cmocka_run_group_tests_name("adapter_cache", tests, NULL, NULL);
}
