/* SPDX-License-Identifier: MIT
 *
 * fusion_case.h: cases of tests of fused nodes (plugins/gpu/ops/fusions.c). The devices are those
 * of Vulkan's plugin, or of OP_CASE_PLUGIN with the driver OP_CASE_DRIVER. A check that fails ends
 * the test.
 */
#ifndef TANDEM_TESTS_VULKAN_FUSION_CASE_H
#define TANDEM_TESTS_VULKAN_FUSION_CASE_H

#include "plugins/gpu/plan/plan.h"
#include "tests/kernels/op_case.h"

/* NULL = the machine has no such device. */
extern struct fusion_rigs {
    op_rig *reference;                /* the CPU's */
    op_rig *fused, *single;           /* nodes are fused; each node by itself */
    op_rig *fused_rows, *single_rows; /* with the kernels of devices with large subgroups */
    op_rig *fused_bytes, *single_bytes; /* with integer dot products */
    op_rig *wrong_bytes; /* kernels that store bytes of what they compute do it wrong */
} fusion_rigs;

/* Set-up and tear-down of a group of tests. */
int fusion_rigs_open(void **state);
int fusion_rigs_close(void **state);

/* A device on which plans are made, without running them. */
gpu_target fusion_target(bool is_unfused);
/* Steps of the graph's plan for it. */
int32_t fusion_n_step(const tdm_graph *graph, bool is_unfused);

/* Sets the order in which the emulated driver runs threads and workgroups: one of FUSION_N_ORDER.
 * Nothing with other drivers. */
enum { FUSION_N_ORDER = 3 };
void fusion_order_set(int order);

/* Fused nodes save exactly n steps. */
void fusion_check_saved(const char *label, const tdm_graph *graph, int32_t n);
void fusion_check_near(const char *label, const char *what, const float *got, const float *want,
                       size_t n, double bound);

/* Ends the case: fusing saves exactly `saved` steps; single nodes give what the CPU gives, and
 * fused ones the same as single ones. */
void fusion_check(op_case *c, int32_t saved, double bound);

/* As fusion_check, but for what one device gives, against the CPU. */
void fusion_check_on(op_rig *rig, op_case *c, int32_t saved, double bound);

/* fusion_check_on for fused nodes: of ops with one kernel, whose single nodes other tests compare
 * with the CPU. */
void fusion_check_fused(op_case *c, int32_t saved, double bound);

#endif
