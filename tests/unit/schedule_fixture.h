/* SPDX-License-Identifier: MIT
 *
 * schedule_fixture.h: fake devices (tests/plugins/fakes) with one scratch, a short notation for
 * graphs, and weights on the devices that their graphs need. For test_schedule*.c.
 */
#ifndef TANDEM_TEST_SCHEDULE_FIXTURE_H
#define TANDEM_TEST_SCHEDULE_FIXTURE_H

#include "core/stages/schedule.h"
#include "tests/unit/runtime_fixture.h"
#include "tests/support/random.h"

/* ---- weights --------------------------------------------------------------------------------- */

enum { MAX_SLOT = 256 };

/* Where the weights of a model live, by name, so that graphs of several shapes share them. */
typedef struct weights {
    char names[MAX_SLOT][32];
    tdm_slot_mem at[MAX_SLOT];
    int32_t n;
} weights;

static int32_t weight_find(const weights *w, const char *name) {
    for (int32_t i = 0; i < w->n; i++)
        if (strcmp(w->names[i], name) == 0) return i;
    return -1;
}

static inline void slots_of(const weights *w, const tdm_graph *graph,
                            tdm_slot_mem slots[MAX_SLOT]) {
    memset(slots, 0, MAX_SLOT * sizeof *slots);
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != TDM_VALUE_WEIGHT) continue;
        const int32_t at = weight_find(w, tdm_graph_value_name(graph, i));
        if (at >= 0) slots[v->slot] = w->at[at];
    }
}

/* What a weight holds follows from its name: multiples of 1/8 between -1 and 1, so that sums are
 * exact and come out the same in any order. */
static inline void weight_upload(const tdm_slot_mem *at, const tdm_tensor_desc *desc,
                                 const char *name) {
    const int64_t n = tdm_shape_count(desc->ne);
    float *x = malloc((size_t)n * sizeof *x);
    uint64_t random = 0;
    assert_non_null(x);
    for (const char *c = name; *c != 0; c++) random = random * 31 + (uint8_t)*c;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)((int32_t)(random_u64(&random) >> 60) - 8) / 8;
    }
    OK(tdm_mem_tensor_upload(&at->mem, at->off, desc, x, (uint64_t)desc->ne[0] * sizeof *x, 0,
                             tdm_shape_rows(desc->ne), 0, desc->ne[0], err));
    free(x);
}

/* Places a graph and gives each new weight memory where its first reader runs; node_dev_out is
 * NULL or [n_node]. */
static inline void weights_place(weights *w, tdm_scratch *scratch, tdm_open_device *const *devs,
                                 const tdm_graph *graph, int32_t *node_dev_out) {
    int32_t node_dev[MAX_SLOT];
    tdm_slot_mem slots[MAX_SLOT];
    assert_true(graph->n_node <= MAX_SLOT && graph->n_slot <= MAX_SLOT);
    slots_of(w, graph, slots);
    OK(tdm_schedule_place(scratch, graph, slots, node_dev, NULL, err));
    for (int32_t n = 0; n < graph->n_node; n++) {
        const tdm_node *node = tdm_graph_node(graph, n);
        for (int32_t i = 0; i < node->n_src; i++) {
            const tdm_value *v = node->src[i] < 0 ? NULL : tdm_graph_value(graph, node->src[i]);
            const char *name = v == NULL ? "" : tdm_graph_value_name(graph, node->src[i]);
            if (v == NULL || v->kind != TDM_VALUE_WEIGHT || weight_find(w, name) >= 0) continue;
            tdm_slot_mem *at = &w->at[w->n];
            const tdm_tensor_desc desc = {.struct_size = sizeof desc,
                                          .type = (tdm_type)v->type,
                                          .usage = v->usage,
                                          .ne = {v->ne[0], v->ne[1], v->ne[2], v->ne[3]}};
            snprintf(w->names[w->n++], sizeof *w->names, "%s", name);
            tdm_open_device *dev = devs[node_dev[n]];
            OK(tdm_open_device_tensor_size(dev, &desc, &at->size, err));
            OK(tdm_mem_alloc(dev, at->size, TDM_BUFFER_WEIGHT, &at->mem, err));
            weight_upload(at, &desc, name);
        }
    }
    if (node_dev_out != NULL)
        memcpy(node_dev_out, node_dev, (size_t)graph->n_node * sizeof *node_dev);
}

static inline void weights_free(weights *w) {
    for (int32_t i = 0; i < w->n; i++) tdm_mem_free(&w->at[i].mem);
    w->n = 0;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static inline int32_t weight(tdm_builder *b, const char *name, int64_t n0, int64_t n1,
                             uint32_t usage) {
    return tdm_build_weight(b, name, TDM_TYPE_F32, (const int64_t[4]){n0, n1, 1, 1}, usage);
}

static int32_t input(tdm_builder *b, const char *name, int64_t n0, int64_t n1) {
    return tdm_build_input(b, name, TDM_TYPE_F32, (const int64_t[4]){n0, n1, 1, 1});
}

static inline tdm_builder *begin(void) {
    tdm_builder *b = NULL;
    OK(tdm_builder_create(&b, err));
    return b;
}

static inline tdm_graph *end(tdm_builder *b) {
    tdm_graph *graph = NULL;
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    return graph;
}

static int32_t value_named(const tdm_graph *graph, const char *name) {
    for (int32_t i = 0; i < graph->n_value; i++)
        if (strcmp(tdm_graph_value_name(graph, i), name) == 0) return i;
    fail_msg("no value '%s'", name);
    return -1;
}

/* A scratch over up to three devices, and the weights of one model. */
typedef struct scene {
    tdm_runtime *rt;
    tdm_open_device *devs[3];
    int32_t n_dev;
    tdm_scratch *scratch;
    weights w;
} scene;

/* `refuse`: what main, help and more do not run; NULL: no such device. */
static inline scene *scene_make(const char *main_refuse, const char *help_refuse,
                                const char *more_refuse) {
    static const char *const names[3] = {"main", "help", "more"};
    const char *const refuse[3] = {main_refuse, help_refuse, more_refuse};
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->rt = runtime_make(FAKE_PLUGIN_DIR);
    for (; s->n_dev < 3 && refuse[s->n_dev] != NULL; s->n_dev++) {
        char option[160];
        snprintf(option, sizeof option, "refuse=%s", refuse[s->n_dev]);
        s->devs[s->n_dev] = open_fake(s->rt, names[s->n_dev], option, NULL);
    }
    OK(tdm_scratch_create(s->rt, s->devs, s->n_dev, &s->scratch, err));
    return s;
}

static inline void scene_free(scene *s) {
    tdm_scratch_destroy(s->scratch);
    weights_free(&s->w);
    tdm_runtime_destroy(s->rt);
    log_has(", 0 bytes left", s->n_dev);
    free(s);
}

static inline tdm_schedule *schedule_make(scene *s, tdm_graph *graph) {
    tdm_schedule *schedule = NULL;
    tdm_slot_mem slots[MAX_SLOT];
    weights_place(&s->w, s->scratch, s->devs, graph, NULL);
    slots_of(&s->w, graph, slots);
    OK(tdm_schedule_create(s->scratch, graph, slots, &schedule, err));
    return schedule;
}

static inline void x_fill(float *x, int64_t n, int32_t seed) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7 + seed * 3) % 17 - 8) / 4;
}

#endif
