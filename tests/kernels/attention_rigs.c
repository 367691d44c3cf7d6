/* SPDX-License-Identifier: MIT
 *
 * attention_rigs.c: see attention_rigs.h.
 */
#include "tests/kernels/attention_rigs.h"

#include <stdlib.h>
#include <string.h>

const attention_rig_row attention_rig_rows[N_ATTENTION_RIG] = {
    {"plain", "reference", "15", 2}, {"plain", "fast", "15", 1},  {"avx2", "fast", "15", 1},
    {"avx2", "fast", "15", 3},       {"avx512", "fast", "15", 1}, {"avx512", "fast", "15", 2},
    {"avx2", "fast", "8", 1},        {"avx2", "fast", "8", 3},    {"avx512", "fast", "8", 1},
    {"avx512", "fast", "8", 2},      {"neon", "fast", "15", 1},   {"neon", "fast", "15", 3},
    {"neon", "fast", "8", 1},        {"neon", "fast", "8", 2},
};

op_rig *attention_rigs[N_ATTENTION_RIG];

/* The emulated devices have matrices of f16. */
static bool has_matrices(void) {
    return getenv("OP_CASE_DRIVER") != NULL;
}

/* With this limit for tests Vulkan's devices have them too. */
static const char *matrix_limit(void) {
    return getenv("OP_CASE_MATRIX");
}

/* Other limits for tests of Vulkan's devices. NULL = none */
static const char *other_limit(void) {
    return getenv("OP_CASE_LIMITS");
}

static bool has_matrix_rig(int i) {
    return i == 2 && (has_matrices() || matrix_limit() != NULL);
}

bool attention_rig_is_matrix(int i, int32_t n_tok) {
    const bool is_copying = has_matrices() && strcmp(getenv("OP_CASE_PLUGIN"), "cuda") == 0;
    return has_matrix_rig(i) && n_tok >= (is_copying ? 1 : 9);
}

/* CUDA and HIP have no such kernel. */
bool attention_rig_is_listed_matrix(int i, int32_t n_tok) {
    return matrix_limit() != NULL && attention_rig_is_matrix(i, n_tok);
}

bool attention_rig_repeats(int i, int32_t n_tok) {
    return i == 2 && matrix_limit() != NULL && !attention_rig_is_matrix(i, n_tok);
}

bool attention_rigs_compile(void) {
    return getenv("OP_CASE_PLUGIN") != NULL && !has_matrices() && op_n_case(1, 0) == 0;
}

int attention_rigs_open(void **state) {
    (void)state;
    const char *plugin = getenv("OP_CASE_PLUGIN");
    for (int i = 0; i < N_ATTENTION_RIG; i++) {
        if (plugin != NULL && i > 0) {
            const tdm_option options[] = {{"allow-cpu", "yes"}, {"matrix", "no"}};
            const tdm_option limited[] = {{"allow-cpu", "yes"}, {"test-limits", matrix_limit()}};
            const tdm_option others[] = {{"allow-cpu", "yes"}, {"test-limits", other_limit()}};
            if (i == 1)
                attention_rigs[i] = other_limit() != NULL ? op_rig_open_plugin(plugin, others, 2)
                                                          : op_rig_open_plugin(plugin, options, 2);
            if (has_matrix_rig(i))
                attention_rigs[i] = matrix_limit() != NULL ? op_rig_open_plugin(plugin, limited, 2)
                                                           : op_rig_open_plugin(plugin, options, 1);
            continue;
        }
        const char *isa = attention_rig_rows[i].isa, *path = attention_rig_rows[i].path,
                   *bits = attention_rig_rows[i].bits;
        int n_thread = attention_rig_rows[i].n_thread;
        attention_rigs[i] = strcmp(path, "fast") == 0 ? op_rig_open_bits(isa, bits, n_thread)
                                                      : op_rig_open(isa, path, n_thread);
    }
    return 0;
}

int attention_rigs_close(void **state) {
    (void)state;
    for (int i = 0; i < N_ATTENTION_RIG; i++) op_rig_close(attention_rigs[i]);
    return 0;
}
