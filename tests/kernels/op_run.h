/* SPDX-License-Identifier: MIT
 *
 * op_run.h: runs graphs on the CPU plugin for the tests of its kernels. Owns the loaded plugin, a
 * small host table, and memory laid out so that a write outside a value is seen. It judges nothing
 * about the numbers: the tests compare, with the functions at the end.
 *
 * How to use it. Build a graph with core/graph/builder.h, open one rig for the reference path and
 * one for each ISA and thread count, run the graph on both with the same arguments, compare the
 * outputs:
 *
 *     op_rig *rig = op_rig_open("avx2", "fast", 3);
 *     if (rig == NULL) skip();
 *     op_arg args[] = {{.value = w, .data = weight}, {.value = x, .data = in}, {.value = y, .data = out}};
 *     op_rig_run(rig, graph, args, 3);
 *     op_rig_close(rig);
 *
 * The plugin is TANDEM_PLUGIN_DIR/cpu.so, or another one of op_rig_open_plugin; meson sets the
 * variables. Memory without a host address is copied before and after a run. A failure of the
 * harness itself (no plugin, a refused graph, a damaged guard, a changed input, a leak at close)
 * fails the running cmocka test with a message.
 */
#ifndef TANDEM_TESTS_OP_RUN_H
#define TANDEM_TESTS_OP_RUN_H

#include "tandem/plugin.h"

typedef struct op_rig op_rig;
typedef struct op_state op_state;

/* Opens a device of the CPU plugin with options isa, path and threads. NULL, and a line saying so,
 * exactly where the machine lacks the ISA. Closed with op_rig_close. */
op_rig *op_rig_open(const char *isa, const char *path, int n_thread);
/* The same on the fast path with option activation-bits. */
op_rig *op_rig_open_bits(const char *isa, const char *activation_bits, int n_thread);
/* Opens device 0 of TANDEM_GPU_PLUGIN_DIR/NAME.so with these options. Where the machine has no such
 * device, a line says so and the test ends with exit status 77, which Meson counts as skipped. With
 * OP_CASE_DRIVER in the environment, a library, the option `driver` alone takes the place of the
 * options, and to have no device is a failure. */
op_rig *op_rig_open_plugin(const char *name, const tdm_option *options, int n_option);
/* How many of n_case cases a test runs: all, or n_gpu of them where OP_CASE_PLUGIN names the plugin
 * of a GPU. A software driver compiles new pipelines for nearly every case, which takes most of the
 * time. TANDEM_CASES=all in the environment runs all there too. */
int op_n_case(int n_case, int n_gpu);
/* Closes the device, unloads the plugin, and fails the test if the plugin kept memory. */
void op_rig_close(op_rig *rig);

/* The open device and the plugin's tables, for what this header does not offer. */
tdm_device *op_rig_device(const op_rig *rig);
const tdm_plugin *op_rig_plugin(const op_rig *rig);

/* One value of the graph and its bytes in the test's memory, in canonical form and size: WEIGHT and
 * INPUT are read, TEMP and OUTPUT written. A WEIGHT with usage flags goes through tensor_upload. A
 * STATE uses `state`, whose pages last from run to run. */
typedef struct op_arg {
    int32_t value;
    void *data;
    op_state *state;
} op_arg;

/* Runs the graph once, synchronously. Every WEIGHT and INPUT of the graph needs an argument; a
 * TEMP or OUTPUT without one is computed and dropped. Outputs are filled with a pattern that reads
 * as NaN before the run. Guard bytes around every slot and the bytes of weights and inputs are
 * checked after it. */
void op_rig_run(op_rig *rig, const tdm_graph *graph, const op_arg *args, int n_arg);

/* The result of supports_op for node `node`; the reason is in *err. */
tdm_status op_rig_supports(const op_rig *rig, const tdm_graph *graph, int32_t node, tdm_error *err);

/* Bytes of a cache page on this rig; fails the test where the device refuses the cache. */
uint64_t op_rig_page_size(const op_rig *rig, const tdm_kv_desc *desc);
/* State memory of `size` bytes, filled with a pattern that reads as NaN; belongs to this rig and
 * is destroyed before it. */
op_state *op_state_create(op_rig *rig, uint64_t size);
void op_state_destroy(op_state *state);
/* Its bytes, all `size` of op_state_create. */
void op_state_put(op_state *state, const void *bytes);
void op_state_get(op_state *state, void *bytes);

/* ---- Numbers. Seeds are the caller's to print; a generator is one uint64. ---- */
uint64_t op_random_next(uint64_t *seed);
/* Uniform in -scale .. scale. */
void op_random_fill(uint64_t *seed, float *x, size_t n, float scale);

/* sum (got - want)^2 / sum want^2; 0 for 0 / 0. Infinite unless NaN and infinities agree in place
 * and sign. */
double op_nmse(const float *got, const float *want, size_t n);
/* Largest |got - want|; infinite likewise. */
double op_max_abs(const float *got, const float *want, size_t n);

#endif
