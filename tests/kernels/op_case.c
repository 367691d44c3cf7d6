/* SPDX-License-Identifier: MIT
 *
 * op_case.c: see op_case.h.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/op_case.h"

const char *const op_isa_names[OP_N_ISA] = {"plain", "avx2", "avx512", "neon"};
const int op_thread_counts[OP_N_COUNT] = {1, 2, 3, 5};
const int64_t op_lengths[OP_N_LENGTH] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257};

const float op_extremes[OP_N_EXTREME] = {
    0.0f,  -0.0f,  1.0f,  -1.0f,  FLT_MAX,  -FLT_MAX,  FLT_MIN, -FLT_MIN, 1e-44f, -1e-44f,
    88.0f, -88.0f, 89.5f, -89.5f, -103.9f,  -104.5f,   1e-6f,   -1e-6f,   0.6f,   -0.6f,
    0.63f, -0.63f, 10.0f, -10.0f, INFINITY, -INFINITY, NAN,     20.0f,    -20.0f, 3e38f};

op_rig *op_reference;
op_rig *op_fast[OP_N_ISA][OP_N_COUNT];

int op_rigs_open(void **state) {
    (void)state;
    print_message("seed %u\n", OP_SEED);
    op_reference = op_rig_open("plain", "reference", 2);
    const char *plugin = getenv("OP_CASE_PLUGIN");
    if (plugin != NULL) {
        op_fast[0][0] = op_rig_open_plugin(plugin, &(const tdm_option){"allow-cpu", "yes"}, 1);
        return op_reference == NULL;
    }
    for (size_t i = 0; i < OP_COUNT_OF(op_isa_names); i++)
        for (size_t t = 0; t < OP_COUNT_OF(op_thread_counts); t++)
            op_fast[i][t] = op_rig_open(op_isa_names[i], "fast", op_thread_counts[t]);
    return op_reference == NULL;
}

int op_rigs_close(void **state) {
    (void)state;
    op_rig_close(op_reference);
    for (size_t i = 0; i < OP_COUNT_OF(op_isa_names); i++)
        for (size_t t = 0; t < OP_COUNT_OF(op_thread_counts); t++) op_rig_close(op_fast[i][t]);
    return 0;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

op_case op_case_begin(const char *label) {
    op_case c = {.n_arg = 0};
    tdm_error err = {0};
    if (tdm_builder_create(&c.b, &err) != TDM_OK) fail_msg("%s", err.message);
    snprintf(c.label, sizeof c.label, "%s", label);
    return c;
}

void *op_memory(size_t size) {
    void *p = calloc(1, size + 1);
    if (p == NULL) fail_msg("no memory");
    return p;
}

int32_t op_case_input(op_case *c, tdm_type type, const int64_t *ne, void *data) {
    int32_t v = tdm_build_input(c->b, "in", type, ne);
    c->args[c->n_arg++] = (op_arg){.value = v, .data = data};
    return v;
}

float *op_random_floats(uint64_t *seed, size_t n, float scale) {
    float *x = op_memory(n * sizeof *x);
    op_random_fill(seed, x, n, scale);
    return x;
}

int32_t op_case_floats(op_case *c, uint64_t *seed, const int64_t *ne, float scale) {
    return op_case_input(c, TDM_TYPE_F32, ne,
                         op_random_floats(seed, (size_t)tdm_shape_count(ne), scale));
}

void op_case_output(op_case *c, int32_t value) {
    const int64_t *ne = tdm_build_shape(c->b, value);
    c->out_count[c->n_out] = ne != NULL ? (size_t)tdm_shape_count(ne) : 0;
    c->out[c->n_out++] = value;
    tdm_build_output(c->b, value, "out");
}

void op_case_run(const op_case *c, op_rig *rig, const tdm_graph *graph, void **out) {
    op_arg args[OP_MAX_ARGS + 2];
    memcpy(args, c->args, sizeof c->args);
    for (int i = 0; i < c->n_out; i++)
        args[c->n_arg + i] = (op_arg){.value = c->out[i], .data = out[i]};
    op_rig_run(rig, graph, args, c->n_arg + c->n_out);
}

tdm_graph *op_case_finish(op_case *c) {
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    if (tdm_builder_finish(c->b, &graph, &err) != TDM_OK) fail_msg("%s: %s", c->label, err.message);
    return graph;
}

void op_case_end(op_case *c, tdm_graph *graph) {
    for (int i = 0; i < c->n_arg; i++) free(c->args[i].data);
    tdm_graph_free(graph);
    tdm_builder_destroy(c->b);
}

void op_case_check(op_case *c, double bound, const void *want) {
    tdm_graph *graph = op_case_finish(c);
    void *oracle[2] = {NULL}, *got[2] = {NULL}, *first[2] = {NULL};
    for (int i = 0; i < c->n_out; i++) {
        oracle[i] = op_memory(c->out_count[i] * 4);
        got[i] = op_memory(c->out_count[i] * 4);
        first[i] = op_memory(c->out_count[i] * 4);
    }
    op_case_run(c, op_reference, graph, oracle);
    if (want != NULL && memcmp(oracle[0], want, c->out_count[0] * 4) != 0)
        fail_msg("%s: the reference is not what it must be", c->label);
    for (size_t isa = 0; isa < OP_COUNT_OF(op_isa_names); isa++) {
        for (size_t t = 0; t < OP_COUNT_OF(op_thread_counts); t++) {
            if (op_fast[isa][t] == NULL) continue;
            op_case_run(c, op_fast[isa][t], graph, got);
            for (int i = 0; i < c->n_out; i++) {
                size_t size = c->out_count[i] * 4;
                double nmse = memcmp(got[i], oracle[i], size) == 0
                                  ? 0
                                  : op_nmse(got[i], oracle[i], c->out_count[i]);
                if (bound == 0 ? memcmp(got[i], oracle[i], size) != 0 : !(nmse <= bound))
                    fail_msg("%s: %s, %d threads, output %d: NMSE %g", c->label, op_isa_names[isa],
                             op_thread_counts[t], i, nmse);
                if (t == 0) memcpy(first[i], got[i], size);
                if (memcmp(got[i], first[i], size) != 0)
                    fail_msg("%s: %s, %d threads differ from 1", c->label, op_isa_names[isa],
                             op_thread_counts[t]);
            }
        }
    }
    for (int i = 0; i < c->n_out; i++) {
        free(oracle[i]);
        free(got[i]);
        free(first[i]);
    }
    op_case_end(c, graph);
}
