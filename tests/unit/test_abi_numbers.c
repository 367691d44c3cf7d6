/* SPDX-License-Identifier: MIT
 *
 * test_abi_numbers.c: the golden table of the numbers behind the ABI's enums that travel in data.
 * A line here changes only together with the version in tdm_plugin_entry_vN. The numbers of ops and
 * activations after the ones here are in their rows of TDM_OP_LIST and TDM_ACT_LIST. The structs
 * are in test_abi_layout.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tandem/draft/collective.h"
#include "tandem/plugin.h"

typedef struct number_row {
    const char *name;
    long long value, golden;
} number_row;

#define NUMBER(name, golden)                                                                       \
    { #name, name, golden }

/* clang-format off */
static const number_row numbers[] = {
    NUMBER(TDM_OK, 0),
    NUMBER(TDM_CANCELLED, 1),
    NUMBER(TDM_INVALID_ARGUMENT, 2),
    NUMBER(TDM_NOT_FOUND, 3),
    NUMBER(TDM_UNSUPPORTED, 4),
    NUMBER(TDM_OUT_OF_RANGE, 5),
    NUMBER(TDM_RESOURCE_EXHAUSTED, 6),
    NUMBER(TDM_FAILED_PRECONDITION, 7),
    NUMBER(TDM_IO, 8),
    NUMBER(TDM_DATA_LOSS, 9),
    NUMBER(TDM_DEADLINE_EXCEEDED, 10),
    NUMBER(TDM_UNAVAILABLE, 11),
    NUMBER(TDM_INTERNAL, 12),
    NUMBER(TDM_STATUS_COUNT_, 13),
    NUMBER(TDM_OPTION_TEXT, 0),
    NUMBER(TDM_OPTION_INT, 1),
    NUMBER(TDM_OPTION_REAL, 2),
    NUMBER(TDM_OPTION_BOOL, 3),
    NUMBER(TDM_OPTION_SIZE, 4),
    NUMBER(TDM_OPTION_WORD, 5),
    NUMBER(TDM_OPTION_PATH, 6),
    NUMBER(TDM_OPTION_INTS, 7),
    NUMBER(TDM_OPTION_HAS_AUTO, 1),
    NUMBER(TDM_TYPE_F32, 0),
    NUMBER(TDM_TYPE_F16, 1),
    NUMBER(TDM_TYPE_Q4_0, 2),
    NUMBER(TDM_TYPE_Q4_1, 3),
    NUMBER(TDM_TYPE_Q5_0, 6),
    NUMBER(TDM_TYPE_Q5_1, 7),
    NUMBER(TDM_TYPE_Q8_0, 8),
    NUMBER(TDM_TYPE_Q2_K, 10),
    NUMBER(TDM_TYPE_Q3_K, 11),
    NUMBER(TDM_TYPE_Q4_K, 12),
    NUMBER(TDM_TYPE_Q5_K, 13),
    NUMBER(TDM_TYPE_Q6_K, 14),
    NUMBER(TDM_TYPE_IQ2_XXS, 16),
    NUMBER(TDM_TYPE_IQ2_XS, 17),
    NUMBER(TDM_TYPE_IQ3_XXS, 18),
    NUMBER(TDM_TYPE_IQ1_S, 19),
    NUMBER(TDM_TYPE_IQ4_NL, 20),
    NUMBER(TDM_TYPE_IQ3_S, 21),
    NUMBER(TDM_TYPE_IQ2_S, 22),
    NUMBER(TDM_TYPE_IQ4_XS, 23),
    NUMBER(TDM_TYPE_I8, 24),
    NUMBER(TDM_TYPE_I32, 26),
    NUMBER(TDM_TYPE_IQ1_M, 29),
    NUMBER(TDM_TYPE_BF16, 30),
    NUMBER(TDM_TYPE_TQ1_0, 34),
    NUMBER(TDM_TYPE_TQ2_0, 35),
    NUMBER(TDM_TYPE_MXFP4, 39),
    NUMBER(TDM_TYPE_LIMIT_, 64),
    NUMBER(TDM_USAGE_MATMUL, 1),
    NUMBER(TDM_USAGE_ROWS, 2),
    NUMBER(TDM_USAGE_EXPERT, 4),
    NUMBER(TDM_KV_ROTATE_K, 1),
    NUMBER(TDM_KV_ROTATE_V, 2),
    NUMBER(TDM_KV_V_FROM_K, 4),
    NUMBER(TDM_KV_IN_HOST, 8),
    NUMBER(TDM_KV_RECURRENT, 16),
    NUMBER(TDM_KV_SPARSE, 32),
    NUMBER(TDM_KV_BIASED, 64),
    NUMBER(TDM_KV_ERASED, 128),
    NUMBER(TDM_OP_NONE, 0),
    NUMBER(TDM_OP_RESHAPE, 1),
    NUMBER(TDM_OP_PERMUTE, 2),
    NUMBER(TDM_OP_SLICE, 3),
    NUMBER(TDM_OP_COPY, 4),
    NUMBER(TDM_OP_CONCAT, 5),
    NUMBER(TDM_OP_GET_ROWS, 6),
    NUMBER(TDM_OP_MATMUL, 7),
    NUMBER(TDM_OP_ADD, 8),
    NUMBER(TDM_OP_MUL, 9),
    NUMBER(TDM_OP_SCALE, 10),
    NUMBER(TDM_OP_ACT, 11),
    NUMBER(TDM_OP_GLU, 12),
    NUMBER(TDM_OP_SOFTMAX, 13),
    NUMBER(TDM_OP_RMS_NORM, 14),
    NUMBER(TDM_OP_SUM_SQ, 15),
    NUMBER(TDM_OP_RMS_APPLY, 16),
    NUMBER(TDM_OP_ROPE, 17),
    NUMBER(TDM_OP_TOP_K, 18),
    NUMBER(TDM_OP_MOE_ROUTE, 19),
    NUMBER(TDM_OP_MOE_FFN, 20),
    NUMBER(TDM_OP_KV_WRITE, 21),
    NUMBER(TDM_OP_ATTENTION, 22),
    NUMBER(TDM_OP_KV_SHIFT, 23),
    NUMBER(TDM_OP_KV_COPY, 24),
    NUMBER(TDM_OP_KV_EXPORT, 25),
    NUMBER(TDM_OP_KV_IMPORT, 26),
    NUMBER(TDM_OP_LSE_MERGE, 27),
    NUMBER(TDM_OP_EXCHANGE, 28),
    NUMBER(TDM_ACT_NONE, 0),
    NUMBER(TDM_ACT_SILU, 1),
    NUMBER(TDM_ACT_GELU, 2),
    NUMBER(TDM_ACT_GELU_ERF, 3),
    NUMBER(TDM_ACT_RELU, 4),
    NUMBER(TDM_ACT_SIGMOID, 5),
    NUMBER(TDM_ACT_TANH, 6),
    NUMBER(TDM_ROPE_ADJACENT, 0),
    NUMBER(TDM_ROPE_HALVES, 1),
    NUMBER(TDM_ROUTE_SOFTMAX, 0),
    NUMBER(TDM_ROUTE_SIGMOID, 1),
    NUMBER(TDM_ROUTE_TOP_SOFTMAX, 2),
    NUMBER(TDM_ROUTE_SQRT_SOFTPLUS, 3),
    NUMBER(TDM_WINDOW_SLIDING, 0),
    NUMBER(TDM_WINDOW_CHUNKED, 1),
    NUMBER(TDM_WINDOW_SYMMETRIC, 2),
    NUMBER(TDM_VALUE_TEMP, 0),
    NUMBER(TDM_VALUE_WEIGHT, 1),
    NUMBER(TDM_VALUE_STATE, 2),
    NUMBER(TDM_VALUE_INPUT, 3),
    NUMBER(TDM_VALUE_OUTPUT, 4),
    NUMBER(TDM_BUFFER_ANY, 0),
    NUMBER(TDM_BUFFER_WEIGHT, 1),
    NUMBER(TDM_BUFFER_STATE, 2),
    NUMBER(TDM_BUFFER_COMPUTE, 3),
    NUMBER(TDM_BUFFER_INPUT, 4),
    NUMBER(TDM_BUFFER_OUTPUT, 5),
    NUMBER(TDM_BUFFER_ARENA, 6),
    NUMBER(TDM_ACCESS_READ, 1),
    NUMBER(TDM_ACCESS_WRITE, 2),
    NUMBER(TDM_EXCHANGE_SUM, 0),
    NUMBER(TDM_EXCHANGE_SUM_PART, 1),
    NUMBER(TDM_EXCHANGE_GATHER, 2),
    NUMBER(TDM_EXCHANGE_CHUNK, 65536),
    NUMBER(TDM_EXCHANGE_ARENA_ALIGN, 64),
    NUMBER(TDM_DEVICE_IS_HOST, 1),
    NUMBER(TDM_DEVICE_IS_GROUP, 2),
    NUMBER(TDM_DEVICE_IS_INTEGRATED, 4),
    NUMBER(TDM_DEVICE_HAS_EXCHANGE, 8),
    NUMBER(TDM_DEVICE_WAITS_NATIVE, 16),
    NUMBER(TDM_DEVICE_HOLDS_TEMPS, 32),
    NUMBER(TDM_DEVICE_HAS_HOST_KV, 64),
    NUMBER(TDM_DEVICE_IS_REPRODUCIBLE, 128),
    NUMBER(TDM_EXCHANGE_WHOLE, 0),
    NUMBER(TDM_EXCHANGE_PUBLISH, 1),
    NUMBER(TDM_EXCHANGE_COLLECT, 2),
    NUMBER(TDM_LAYOUT_UNSET, 0),
    NUMBER(TDM_LAYOUT_REPLICATED, 1),
    NUMBER(TDM_LAYOUT_PARTIAL_SUM, 2),
    NUMBER(TDM_LAYOUT_PARTIAL_LSE, 3),
    NUMBER(TDM_LAYOUT_SPLIT, 4),
    NUMBER(TDM_REPLICA_EQUIVALENT, 0),
    NUMBER(TDM_REPLICA_EXACT, 1),
    NUMBER(TDM_LOG_ERROR, 0),
    NUMBER(TDM_LOG_WARN, 1),
    NUMBER(TDM_LOG_INFO, 2),
    NUMBER(TDM_LOG_DEBUG, 3),
};
/* clang-format on */

static void test_numbers(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].value != numbers[i].golden)
            fail_msg("%s is %lld; the table says %lld", numbers[i].name, numbers[i].value,
                     numbers[i].golden);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
