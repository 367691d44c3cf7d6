/* SPDX-License-Identifier: MIT
 *
 * op_case.h: runs small graphs on the reference path and on every instruction set, with several
 * numbers of threads. A case is skipped, visibly, for an instruction set that the machine lacks.
 */
#ifndef TANDEM_TESTS_OP_CASE_H
#define TANDEM_TESTS_OP_CASE_H

#include "core/graph/builder.h"
#include "tests/kernels/op_run.h"

#define OP_SEED 20260u

enum { OP_N_ISA = 4, OP_N_COUNT = 4 };
extern const char *const op_isa_names[OP_N_ISA];
extern const int op_thread_counts[OP_N_COUNT];
/* Lengths around every vector's. */
enum { OP_N_LENGTH = 13 };
extern const int64_t op_lengths[OP_N_LENGTH];
/* Numbers that break kernels: the largest, the smallest, zeros of both signs, NaN. */
enum { OP_N_EXTREME = 30 };
extern const float op_extremes[OP_N_EXTREME];

/* Opened once for a group of tests: the reference, and one for each ISA and thread count (NULL: not
 * on this machine). The functions are cmocka's group set-up and tear-down. */
extern op_rig *op_reference;
extern op_rig *op_fast[OP_N_ISA][OP_N_COUNT];
int op_rigs_open(void **state);
int op_rigs_close(void **state);

/* One graph under test: its arguments, and up to two outputs of 4-byte elements. */
enum { OP_MAX_ARGS = 6 };
typedef struct op_case {
    tdm_builder *b;
    op_arg args[OP_MAX_ARGS];
    int n_arg;
    int32_t out[2];
    size_t out_count[2];
    int n_out;
    char label[128];
} op_case;

op_case op_case_begin(const char *label);
/* An input whose bytes (of malloc) the case owns from now on. */
int32_t op_case_input(op_case *c, tdm_type type, const int64_t *ne, void *data);
/* An input of random numbers in -scale .. scale. */
int32_t op_case_floats(op_case *c, uint64_t *seed, const int64_t *ne, float scale);
void op_case_output(op_case *c, int32_t value);

/* Finishes the graph, runs it on all rigs, frees the case. `want`: the expected bits of output 0 on
 * the reference path; NULL = not compared. bound: largest NMSE of a fast path against the
 * reference; 0 = equal bits. Results must have equal bits for all numbers of threads. */
void op_case_check(op_case *c, double bound, const void *want);

/* The steps of op_case_check, for tests that compare in their own way. */
tdm_graph *op_case_finish(op_case *c);
/* Outputs go to out[0 .. n_out). */
void op_case_run(const op_case *c, op_rig *rig, const tdm_graph *graph, void **out);
void op_case_end(op_case *c, tdm_graph *graph);

/* Zeroed memory of malloc; a test that has none ends. */
void *op_memory(size_t size);
float *op_random_floats(uint64_t *seed, size_t n, float scale);

#define OP_SHAPE(...)  ((const int64_t[TDM_MAX_DIMS]){__VA_ARGS__})
#define OP_COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

#endif
