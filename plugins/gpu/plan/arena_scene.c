/* SPDX-License-Identifier: MIT
 *
 * arena_scene.c: see arena_scene.h.
 */
#include "plugins/gpu/plan/arena_scene.h"

#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "tandem/step.h"

enum { X, ARENA, STEP, RESIDUAL }; /* sources of an EXCHANGE */

enum {
    FLAG_OFF = 64,
    FLAG_SIZE = 64,
    WHOLE = 45,       /* elements of an addend along axis 0 */
    PART = 29,        /* elements of the result along axis 0 */
    FIRST = 8,        /* the addend's element along axis 0 at which the result begins */
    N_COLUMN = 7,     /* elements along axis 1 */
    ADDEND = 320,     /* WHOLE * N_COLUMN, rounded up to whole blocks of q8_0 */
    STRIDE = 1344,    /* bytes from addend to addend: ADDEND floats and 64 bytes more */
    GATHER_SIZE = 512 /* bytes of a gathered result, at most */
};

/* ---- Values and nodes ------------------------------------------------------------------------ */

static int32_t value_add(gpu_excerpt *x, int32_t kind, int32_t type, int64_t n0, int64_t n1) {
    int32_t index = x->graph.n_value++;
    x->values[index] =
        (tdm_value){.kind = kind, .type = type, .ne = {n0, n1, 1, 1}, .slot = x->graph.n_slot++};
    return index;
}

/* A GATHER along axis 0: elements of the part, where it begins in the result, and elements of the
 * result; n_column elements along axis 1. */
typedef struct gather_shape {
    int32_t type;
    int32_t part, first, whole, n_column;
} gather_shape;

/* A shape whose sizes in bytes are all multiples of `unit`, but not all of a larger unit (unit_of
 * in ops/exchange.c). Type -1: there is none. */
static gather_shape gather_choose(int32_t unit) {
    switch (unit) {
    case 16: return (gather_shape){TDM_TYPE_F32, 12, 8, 32, 4};
    case 4: return (gather_shape){TDM_TYPE_F32, 11, 5, 23, 3};
    case 2: return (gather_shape){TDM_TYPE_F16, 11, 5, 23, 3};
    default: return (gather_shape){.type = -1};
    }
}

/* Adds the arena, with two areas of data_size bytes behind the flags, and sets its offsets in
 * *p. */
static void arena_add(gpu_excerpt *x, tdm_exchange_params *p, uint64_t data_size) {
    p->flag_off = FLAG_OFF;
    p->data_off = FLAG_OFF + (uint64_t)p->n_member * FLAG_SIZE;
    p->area_stride = data_size;
    value_add(x, TDM_VALUE_STATE, TDM_TYPE_I8, (int64_t)(p->data_off + 2 * data_size), 1);
}

static void sum_add(gpu_excerpt *x, tdm_node *node, bool has_residual) {
    tdm_exchange_params *p = &node->params.exchange;
    p->kind = TDM_EXCHANGE_SUM_PART;
    p->axis = 0;
    p->first = FIRST;
    p->whole = WHOLE;
    p->data_stride = STRIDE;
    arena_add(x, p, (uint64_t)p->n_member * STRIDE);
    if (p->phase == TDM_EXCHANGE_PUBLISH) {
        node->src[X] = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32, WHOLE, N_COLUMN);
        return;
    }
    if (has_residual)
        node->src[RESIDUAL] = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_F32, PART, N_COLUMN);
    node->dst[0] = value_add(x, TDM_VALUE_OUTPUT, TDM_TYPE_F32, PART, N_COLUMN);
}

static void gather_add(gpu_excerpt *x, tdm_node *node, const gather_shape *shape) {
    tdm_exchange_params *p = &node->params.exchange;
    bool publishes = p->phase == TDM_EXCHANGE_PUBLISH;
    p->axis = 0;
    p->first = publishes ? shape->first : 0;
    p->whole = publishes ? shape->whole : 0;
    p->axis2 = p->first2 = p->whole2 = 0;
    p->data_off2 = 0;
    arena_add(x, p, GATHER_SIZE);
    if (publishes)
        node->src[X] = value_add(x, TDM_VALUE_INPUT, shape->type, shape->part, shape->n_column);
    else
        node->dst[0] = value_add(x, TDM_VALUE_OUTPUT, shape->type, shape->part, shape->n_column);
}

gpu_excerpt *gpu_arena_excerpt(const tdm_graph *graph, const gpu_step *step, bool *lacks_memory) {
    enum { STEP_SIZE = sizeof(tdm_step_header) / sizeof(int32_t) };
    const tdm_node *theirs = tdm_graph_node(graph, step->node);
    const gather_shape shape = gather_choose(step->spec[0]);
    const bool is_gather = step->kernel == GPU_KERNEL_WIRE_COPY;
    if (theirs->op != TDM_OP_EXCHANGE || (is_gather && shape.type < 0)) return NULL;
    gpu_excerpt *x = gpu_excerpt_alloc(4, 1);
    if (x != NULL) x->step = calloc(STEP_SIZE, sizeof *x->step);
    if (x == NULL || x->step == NULL) {
        *lacks_memory = true;
        gpu_excerpt_free(x);
        return NULL;
    }
    const tdm_step_header header = {
        .version = TDM_STEP_VERSION, .size = STEP_SIZE, .epoch = 1, .exchange_base = 1};
    memcpy(x->step, &header, sizeof header);
    x->graph.n_node = 1;
    x->step_value = value_add(x, TDM_VALUE_INPUT, TDM_TYPE_I32, STEP_SIZE, 1);
    tdm_node *node = x->nodes;
    *node = *theirs;
    for (int k = 0; k < TDM_MAX_SRC; k++) node->src[k] = -1;
    for (int k = 0; k < TDM_MAX_DST; k++) node->dst[k] = -1;
    node->src[ARENA] = GPU_ARENA_STATE;
    node->src[STEP] = GPU_ARENA_STEP;
    if (is_gather)
        gather_add(x, node, &shape);
    else
        sum_add(x, node, theirs->src[RESIDUAL] >= 0);
    return x;
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

static uint32_t random_next(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33);
}

bool gpu_arena_fill(const gpu_excerpt *excerpt, uint8_t *arena) {
    const tdm_exchange_params *p = &excerpt->nodes[0].params.exchange;
    const int64_t size = excerpt->values[GPU_ARENA_STATE].ne[0];
    uint64_t seed = UINT64_C(1181783497276652981);
    for (int64_t i = 0; i < size; i++) arena[i] = (uint8_t)(random_next(&seed) >> 7);
    if (p->kind == TDM_EXCHANGE_GATHER) return true;
    for (int32_t i = 0; i < 2 * p->n_member; i++) {
        float row[ADDEND];
        uint8_t *at = arena + p->data_off + (uint64_t)i * STRIDE;
        for (int32_t k = 0; k < ADDEND; k++)
            row[k] = (float)(random_next(&seed) & 0xffff) * (1.0f / 32768) - 1;
        if (tdm_row_quantize((tdm_type)p->wire_type, row, at, ADDEND, NULL) != TDM_OK) return false;
    }
    return true;
}
