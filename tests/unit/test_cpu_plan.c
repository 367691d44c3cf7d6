/* SPDX-License-Identifier: MIT
 *
 * test_cpu_plan.c: what the nodes of a CPU plan share: packed activations, made once for all
 * products that read the same bytes, and again after these have changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "tests/unit/cpu_loaded.h"

/* first = w x, z = a + a, second = w x, where x is a with its axes exchanged: no kernel reads that
 * in place, whatever the instruction set. Each slot has a page of memory. */
enum { K = 64, N_ROW = 96, N_TOK = 5, PAGE = 4096, MAX_SLOT = 6 };

typedef struct scene {
    loaded l;
    tdm_device *device;
    tdm_graph *graph;
    tdm_buffer *buffer;
    tdm_binding bindings[MAX_SLOT];
    int32_t w, a, z, first, second; /* slots */
} scene;

static int32_t slot_of(const scene *s, int32_t value) {
    return tdm_graph_value(s->graph, value)->slot;
}

static float *floats_of(const scene *s, int32_t slot) {
    return (void *)((uint8_t *)s->l.plugin->buffer->host_pointer(s->buffer, TDM_ACCESS_READ |
                                                                                TDM_ACCESS_WRITE) +
                    s->bindings[slot].off);
}

static scene scene_create(const char *n_thread, bool has_second) {
    scene s = {.l = load(), .second = -1};
    tdm_error err = {0};
    tdm_builder *b = NULL;
    s.device = open_threads(&s.l, n_thread);
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t w = tdm_build_input(b, "w", TDM_TYPE_F32, (const int64_t[4]){K, N_ROW, 1, 1});
    int32_t a = tdm_build_input(b, "a", TDM_TYPE_F32, (const int64_t[4]){N_TOK, K, 1, 1});
    int32_t x = tdm_build_permute(b, a, 1, 0, 2, 3), second = -1;
    int32_t first = tdm_build_matmul(b, w, x);
    int32_t z = tdm_build_add(b, a, a);
    tdm_build_output(b, first, "first");
    tdm_build_output(b, z, "z");
    if (has_second) {
        second = tdm_build_matmul(b, w, x);
        tdm_build_output(b, second, "second");
    }
    if (tdm_builder_finish(b, &s.graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    assert_true(s.graph->n_slot <= MAX_SLOT);
    s.buffer = alloc_bytes(&s.l, s.device, (uint64_t)MAX_SLOT * 8 * PAGE);
    for (int i = 0; i < s.graph->n_slot; i++)
        s.bindings[i] = (tdm_binding){s.buffer, (uint64_t)i * 8 * PAGE, 8 * PAGE};
    s.w = slot_of(&s, w), s.a = slot_of(&s, a), s.z = slot_of(&s, z);
    s.first = slot_of(&s, first);
    if (has_second) s.second = slot_of(&s, second);
    return s;
}

static void scene_destroy(scene *s) {
    s->l.plugin->buffer->free(s->buffer);
    s->l.plugin->device->close(s->device);
    tdm_graph_free(s->graph);
    unload(&s->l);
}

static void scene_run(const scene *s) {
    tdm_error err = {0};
    for (int i = 0; i < K * N_ROW; i++) floats_of(s, s->w)[i] = (float)(i % 13 - 6);
    for (int i = 0; i < K * N_TOK; i++) floats_of(s, s->a)[i] = (float)(i % 7 - 3);
    if (s->l.plugin->device->graph_compute_sync(s->device, s->graph, s->bindings, s->graph->n_slot,
                                                &err) != TDM_OK)
        fail_msg("%s", err.message);
}

/* Small whole numbers: sums are exact, and so is twice of them. */
static void second_is(const scene *s, float factor) {
    float largest = 0;
    for (int i = 0; i < N_ROW * N_TOK; i++) {
        float first = floats_of(s, s->first)[i];
        assert_true(floats_of(s, s->second)[i] == factor * first);
        if (first > largest) largest = first;
    }
    assert_true(largest > 0);
}

static void a_form_is_made_again_where_its_source_changed(void **state) {
    (void)state;
    static const char *const counts[] = {"1", "2", "3"};
    for (size_t t = 0; t < 3; t++) {
        scene s = scene_create(counts[t], true);
        scene_run(&s);
        second_is(&s, 1.0f);
        s.bindings[s.z].off = s.bindings[s.a].off; /* a is doubled where it lies */
        scene_run(&s);
        second_is(&s, 2.0f);
        scene_destroy(&s);
    }
}

static uint64_t scratch_size_of(bool has_second) {
    scene s = scene_create("2", has_second);
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_plan_info info = {.struct_size = sizeof info};
    tdm_plan *plan = NULL;
    tdm_error err = {0};
    const tdm_queue_ops *ops = s.l.plugin->queue;
    tdm_queue *queue = NULL;
    assert_int_equal(ops->create(s.device, &queue, &err), TDM_OK);
    assert_int_equal(ops->graph_prepare(queue, s.graph, &params, &plan, &err), TDM_OK);
    assert_int_equal(ops->plan_get_info(plan, &info, &err), TDM_OK);
    ops->plan_destroy(plan);
    ops->destroy(queue);
    scene_destroy(&s);
    assert_int_equal(info.device_size, 0);
    return info.scratch_size;
}

static void equal_forms_are_kept_once(void **state) {
    (void)state;
    uint64_t one = scratch_size_of(false);
    assert_true(one >= K * N_TOK * sizeof(float));
    assert_int_equal(scratch_size_of(true), one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_form_is_made_again_where_its_source_changed),
        cmocka_unit_test(equal_forms_are_kept_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
