/* SPDX-License-Identifier: MIT
 *
 * test_extents.c: products of more elements than kernels count are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "core/graph/builder_nodes.h"
#include "plugins/gpu/plan/plan.h"

static tdm_error error, *err = &error;

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, error.message);                            \
    } while (0)

/* Whether a device computes y = w x with w [k, n], x [k, n_tok], all of f32 or with w of q8_0. */
static tdm_status product_supports(tdm_type type, int64_t k, int64_t n, int64_t n_tok) {
    const gpu_target target = {.name = "card",
                               .subgroup_min = 32,
                               .subgroup_max = 32,
                               .max_group_size = 1024,
                               .max_grid = {INT32_MAX, 65535, 65535},
                               .shared_size = 49152,
                               .has_dot8 = true};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(tdm_builder_create(&b, err));
    int32_t w = tdm_build_weight(b, "w", type, (const int64_t[]){k, n, 1, 1}, TDM_USAGE_MATMUL);
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[]){k, n_tok, 1, 1});
    tdm_build_output(b, tdm_build_matmul(b, w, x), "y");
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < graph->n_node && status == TDM_OK; i++)
        status = gpu_plan_supports(&target, graph, i, err);
    tdm_graph_free(graph);
    return status;
}

static void refused(tdm_type type, int64_t k, int64_t n, int64_t n_tok, const char *count) {
    assert_int_equal(product_supports(type, k, n, n_tok), TDM_UNSUPPORTED);
    if (strstr(error.message, count) == NULL) fail_msg("%s", error.message);
}

/* Element numbers of x and y have 32 bits: the last is 2^32 - 1. */
static void products(void **state) {
    static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_Q8_0};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        OK(product_supports(types[i], 32, 65536, 65536));
        refused(types[i], 32, 65537, 65536, ": 4295032832 elements");
        OK(product_supports(types[i], 65536, 32, 65536));
        refused(types[i], 65568, 32, 65536, ": 4297064448 elements");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
