/* SPDX-License-Identifier: MIT
 *
 * fusion_case.c: see fusion_case.h.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vulkan/fusion_case.h"

struct fusion_rigs fusion_rigs;

static op_rig *rig_open(const char *limits) {
    const tdm_option options[] = {{"allow-cpu", "yes"}, {"test-limits", limits}};
    return op_rig_open_plugin("vulkan", options, 2);
}

int fusion_rigs_open(void **state) {
    (void)state;
    const char *plugin = getenv("OP_CASE_PLUGIN"), *driver = getenv("OP_CASE_DRIVER");
    fusion_rigs.reference = op_rig_open("plain", "reference", 1);
    if (driver != NULL) {
        const tdm_option options[] = {{"driver", driver}, {"matrix", "no"}, {"fusion", "no"}};
        fusion_rigs.fused = op_rig_open_plugin(plugin, options, 2);
        fusion_rigs.single = op_rig_open_plugin(plugin, options, 3);
        fusion_rigs.fused_bytes = fusion_rigs.fused;
        fusion_rigs.single_bytes = fusion_rigs.single;
        return fusion_rigs.reference == NULL || fusion_rigs.fused == NULL ||
               fusion_rigs.single == NULL;
    }
    fusion_rigs.fused = rig_open("");
    fusion_rigs.single = rig_open("fuse=no");
    fusion_rigs.fused_rows = rig_open("lanes=no");
    fusion_rigs.single_rows = rig_open("lanes=no fuse=no");
    fusion_rigs.fused_bytes = rig_open("dot=any");
    fusion_rigs.single_bytes = rig_open("dot=any fuse=no");
    fusion_rigs.wrong_bytes = rig_open("dot=any wrong=bytes");
    return fusion_rigs.reference == NULL;
}

int fusion_rigs_close(void **state) {
    (void)state;
    op_rig_close(fusion_rigs.wrong_bytes);
    if (fusion_rigs.single_bytes != fusion_rigs.single) op_rig_close(fusion_rigs.single_bytes);
    if (fusion_rigs.fused_bytes != fusion_rigs.fused) op_rig_close(fusion_rigs.fused_bytes);
    op_rig_close(fusion_rigs.single_rows);
    op_rig_close(fusion_rigs.fused_rows);
    op_rig_close(fusion_rigs.single);
    op_rig_close(fusion_rigs.fused);
    op_rig_close(fusion_rigs.reference);
    return 0;
}

void fusion_order_set(int order) {
    const char *path = getenv("OP_CASE_DRIVER");
    if (path == NULL) return;
    void *driver = dlopen(path, RTLD_NOW);
    void (*set)(int order) = NULL;
    void *symbol = driver != NULL ? dlsym(driver, "tandem_simt_order") : NULL;
    if (symbol == NULL) fail_msg("%s has no order: %s", path, dlerror());
    memcpy(&set, &symbol, sizeof set);
    set(order);
    dlclose(driver);
}

/* ---- What is fused --------------------------------------------------------------------------- */

gpu_target fusion_target(bool is_unfused) {
    return (gpu_target){.name = "test",
                        .subgroup_min = 8,
                        .subgroup_max = 8,
                        .max_group_size = 1024,
                        .max_grid = {65535, 65535, 65535},
                        .shared_size = 32768,
                        .is_unfused = is_unfused};
}

int32_t fusion_n_step(const tdm_graph *graph, bool is_unfused) {
    gpu_target target = fusion_target(is_unfused);
    tdm_error err = {0};
    gpu_plan *plan = NULL;
    if (gpu_plan_create(&target, graph, &plan, &err) != TDM_OK) fail_msg("%s", err.message);
    int32_t n = plan->n_step;
    gpu_plan_destroy(plan);
    return n;
}

void fusion_check_saved(const char *label, const tdm_graph *graph, int32_t n) {
    int32_t saved = fusion_n_step(graph, true) - fusion_n_step(graph, false);
    if (saved != n) fail_msg("%s: %d steps are saved, expected %d", label, (int)saved, (int)n);
}

void fusion_check_near(const char *label, const char *what, const float *got, const float *want,
                       size_t n, double bound) {
    double nmse = op_nmse(got, want, n);
    if (!(nmse <= bound)) fail_msg("%s: %s: NMSE %.3g, bound %.3g", label, what, nmse, bound);
}

/* Runs a case on the CPU, on `alone` and on `together`, and compares. */
static void case_run(const op_case *c, const tdm_graph *graph, op_rig *alone, op_rig *together,
                     double bound) {
    op_rig *rigs[] = {fusion_rigs.reference, alone, together};
    float *out[3][2] = {{NULL}};
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < c->n_out; i++) out[r][i] = op_memory(c->out_count[i] * sizeof(float));
        op_case_run(c, rigs[r], graph, (void **)out[r]);
    }
    for (int i = 0; i < c->n_out; i++) {
        fusion_check_near(c->label, "single nodes against the CPU", out[1][i], out[0][i],
                          c->out_count[i], bound);
        fusion_check_near(c->label, "fused against single nodes", out[2][i], out[1][i],
                          c->out_count[i], 1e-12);
    }
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 2; i++) free(out[r][i]);
}

void fusion_check(op_case *c, int32_t saved, double bound) {
    tdm_graph *graph = op_case_finish(c);
    fusion_check_saved(c->label, graph, saved);
    if (fusion_rigs.fused != NULL) {
        case_run(c, graph, fusion_rigs.single, fusion_rigs.fused, bound);
        if (fusion_rigs.fused_rows != NULL)
            case_run(c, graph, fusion_rigs.single_rows, fusion_rigs.fused_rows, bound);
    }
    op_case_end(c, graph);
}

void fusion_check_on(op_rig *rig, op_case *c, int32_t saved, double bound) {
    tdm_graph *graph = op_case_finish(c);
    fusion_check_saved(c->label, graph, saved);
    if (rig != NULL) {
        op_rig *rigs[] = {fusion_rigs.reference, rig};
        float *out[2][2] = {{NULL}};
        for (int r = 0; r < 2; r++) {
            for (int i = 0; i < c->n_out; i++)
                out[r][i] = op_memory(c->out_count[i] * sizeof(float));
            op_case_run(c, rigs[r], graph, (void **)out[r]);
        }
        for (int i = 0; i < c->n_out; i++)
            fusion_check_near(c->label, "fused against the CPU", out[1][i], out[0][i],
                              c->out_count[i], bound);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 2; i++) free(out[r][i]);
    }
    op_case_end(c, graph);
}

void fusion_check_fused(op_case *c, int32_t saved, double bound) {
    fusion_check_on(fusion_rigs.fused, c, saved, bound);
}
