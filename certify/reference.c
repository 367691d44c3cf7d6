/* SPDX-License-Identifier: MIT
 *
 * reference.c: runs a graph in double precision, node by node, with the functions of case_*.c.
 */
#include "certify/reference.h"

#include <stdlib.h>
#include <string.h>

#include "certify/trial.h"

static certify_array operand(const tdm_graph *graph, double **want, int32_t index) {
    certify_array a = {NULL, {0}};
    if (index < 0) return a;
    a.x = want[index];
    memcpy(a.ne, tdm_graph_value(graph, index)->ne, sizeof a.ne);
    return a;
}

bool certify_reference_run(const tdm_graph *graph, uint8_t *const *bytes, double **want) {
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        size_t n = (size_t)tdm_shape_count(v->ne);
        bool is_given = v->kind == TDM_VALUE_WEIGHT || v->kind == TDM_VALUE_INPUT;
        free(want[i]);
        want[i] = is_given && bytes[i] != NULL ? certify_numbers(v->type, bytes[i], n)
                                               : calloc(n + 1, sizeof(double));
        if (want[i] == NULL) return false;
    }
    for (int32_t i = 0; i < graph->n_node; i++) {
        certify_operands o = {.node = tdm_graph_node(graph, i)};
        for (int k = 0; k < o.node->n_src; k++) o.src[k] = operand(graph, want, o.node->src[k]);
        for (int k = 0; k < o.node->n_dst; k++) o.dst[k] = operand(graph, want, o.node->dst[k]);
        const certify_op *op = certify_op_find(o.node->op);
        if (op != NULL) op->reference(&o);
    }
    return true;
}
