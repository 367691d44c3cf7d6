/* SPDX-License-Identifier: MIT
 *
 * attention_rigs.h: the devices that tests of ATTENTION compare: the reference path, and the fast
 * path of each instruction set with one and several threads and with queries of 15 and 8 bits.
 */
#ifndef TANDEM_TESTS_ATTENTION_RIGS_H
#define TANDEM_TESTS_ATTENTION_RIGS_H

#include "tests/kernels/op_run.h"

enum { N_ATTENTION_RIG = 14 };

/* Options of the CPU's devices. The first is the reference; rows of one instruction set and one
 * number of bits follow each other. */
typedef struct attention_rig_row {
    const char *isa, *path, *bits;
    int n_thread;
} attention_rig_row;
extern const attention_rig_row attention_rig_rows[N_ATTENTION_RIG];

/* The open devices; NULL where the machine lacks the instruction set. */
extern op_rig *attention_rigs[N_ATTENTION_RIG];

/* Whether rig i computes that many tokens on matrices of f16: their results depend on what else is
 * in the step. */
bool attention_rig_is_matrix(int i, int32_t n_tok);

/* The same of ATTENTION over the tokens of a list where V is part of K. */
bool attention_rig_is_listed_matrix(int i, int32_t n_tok);

/* Whether a case of that many tokens has on rig i the kernels of rig 1 again: on a Vulkan device
 * with OP_CASE_MATRIX, where so few tokens use no matrices. */
bool attention_rig_repeats(int i, int32_t n_tok);

/* Whether the plugin's driver compiles each kernel when it is first used, as Vulkan's do: a case of
 * another size or type then takes a software driver up to four seconds. False with
 * TANDEM_CASES=all. */
bool attention_rigs_compile(void);

/* Setup and teardown of a group of cmocka. With OP_CASE_PLUGIN: the reference, and in place of a
 * CPU's plain kernels that plugin's device; an emulated one without matrices, then with them. With
 * OP_CASE_MATRIX, too, a device with those limits for tests. */
int attention_rigs_open(void **state);
int attention_rigs_close(void **state);

#endif
