/* SPDX-License-Identifier: MIT
 *
 * exchange_data.c: see exchange_data.h.
 */
#include "tests/kernels/exchange_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/support/random.h"

uint64_t exchange_seed;

uint64_t exchange_random(void) {
    return random_u64(&exchange_seed);
}

int64_t exchange_below(int64_t n) {
    return (int64_t)(exchange_random() >> 1) % n;
}

void exchange_must(tdm_status status, const tdm_error *err) {
    if (status != TDM_OK) fail_msg("%s: %s", tdm_status_text(status), err->message);
}

void *exchange_memory(size_t size) {
    void *p = calloc(1, size + 1);
    if (p == NULL) fail_msg("no memory");
    return p;
}

static float number_random(bool with_extremes) {
    static const uint32_t bits[] = {0x7fc00000, 0xffc00001, 0x7f800001, 0x7f800000, 0xff800000,
                                    0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000,
                                    0x80000000, 0x7f7fffff, 0xff7fffff, 0x80400000, 0x00400000};
    if (with_extremes && exchange_below(8) == 0)
        return tdm_f32_from_bits(bits[exchange_below((int64_t)(sizeof bits / sizeof bits[0]))]);
    float x = (float)(int64_t)(exchange_random() >> 40) * 0x1p-23f - 1.0f;
    return exchange_below(4) == 0 ? x * 0x1p-20f : x;
}

static bool is_sender(const scene_node *n, int32_t rank) {
    return (n->params.senders >> rank & 1) != 0;
}

static void crossed_make(const scene_node *n, rank_data *d, int64_t count) {
    tdm_type wire = (tdm_type)n->params.wire_type;
    int64_t len = (count + 31) / 32 * 32;
    float *padded = exchange_memory((size_t)len * sizeof(float));
    uint8_t *bytes = exchange_memory((size_t)len * sizeof(float));
    d->crossed = exchange_memory((size_t)len * sizeof(float));
    memcpy(padded, d->x, (size_t)count * sizeof(float));
    assert_int_equal(tdm_row_quantize(wire, padded, bytes, len, NULL), TDM_OK);
    assert_int_equal(tdm_row_dequantize(wire, bytes, d->crossed, len), TDM_OK);
    free(padded);
    free(bytes);
}

/* Denormal numbers and -0 count as +0. */
static float flushed(float x) {
    return fpclassify(x) == FP_SUBNORMAL || x == 0 ? 0 : x;
}

/* Element `at` of the addends, summed in order; volatile, so that nothing is contracted. */
static uint32_t sum_bits(const scene_node *n, const rank_data *ranks, int32_t n_rank, int64_t at,
                         const float *residual) {
    volatile float sum = 0;
    for (int32_t k = 0; k < n_rank; k++) {
        if (!is_sender(n, k)) continue;
        sum = sum + flushed(ranks[k].crossed[at]); /* from 0 */
        sum = flushed(sum);
    }
    if (residual != NULL) sum = sum + flushed(*residual);
    if (isnan(sum)) return 0x7fc00000;
    return tdm_f32_to_bits(flushed(sum));
}

int64_t exchange_place_of(const int64_t *part, const int64_t *whole, int axis, int64_t first,
                          int64_t i) {
    int64_t at = 0, stride = 1;
    for (int d = 0; d < TDM_MAX_DIMS; d++) {
        at += (i % part[d] + (d == axis ? first : 0)) * stride;
        i /= part[d];
        stride *= whole[d];
    }
    return at;
}

static void gather_want(const scene *s, int32_t node, const scene_node *n, rank_data *ranks,
                        int32_t n_rank) {
    tdm_type_info info = tdm_type_get_info(n->type);
    size_t size = tdm_tensor_canonical_size(n->type, n->ne), block = (size_t)info.block_size;
    uint8_t *all = exchange_memory(size);
    int64_t whole[TDM_MAX_DIMS];
    memcpy(whole, n->ne, sizeof whole);
    whole[0] /= info.block_len;
    for (int32_t k = 0; k < n_rank; k++) {
        int64_t part[TDM_MAX_DIMS], first = n->cut[k];
        if (!is_sender(n, k)) continue;
        scene_shape_x(s, node, k, part);
        part[0] /= info.block_len;
        if (n->params.axis == 0) first /= info.block_len;
        for (int64_t i = 0; i < tdm_shape_count(part); i++)
            memcpy(all + exchange_place_of(part, whole, n->params.axis, first, i) * (int64_t)block,
                   ranks[k].x + i * (int64_t)block, block);
    }
    for (int32_t k = 0; k < n_rank; k++) {
        ranks[k].want_size = size;
        ranks[k].want = exchange_memory(size);
        memcpy(ranks[k].want, all, size);
    }
    free(all);
}

static void node_data_make(const scene *s, int32_t node, const scene_node *n, rank_data *ranks,
                           int32_t n_rank) {
    bool with_extremes = exchange_below(2) == 0, is_gather = n->params.kind == TDM_EXCHANGE_GATHER;
    float *residual = NULL; /* of the whole: members have the same, or a part of it */
    int64_t count = tdm_shape_count(n->ne);
    if (n->has_residual) {
        residual = exchange_memory((size_t)count * sizeof(float));
        for (int64_t i = 0; i < count; i++) residual[i] = number_random(with_extremes);
    }
    for (int32_t k = 0; k < n_rank; k++) {
        int64_t ne[TDM_MAX_DIMS];
        rank_data *d = &ranks[k];
        if (!is_sender(n, k)) continue;
        scene_shape_x(s, node, k, ne);
        if (is_gather) {
            size_t size = tdm_tensor_canonical_size(n->type, ne);
            d->x = exchange_memory(size);
            for (size_t i = 0; i < size; i++) d->x[i] = (uint8_t)exchange_random();
            continue;
        }
        float *x = exchange_memory((size_t)count * sizeof(float));
        for (int64_t i = 0; i < count; i++) x[i] = number_random(with_extremes);
        d->x = (uint8_t *)x;
        crossed_make(n, d, count);
    }
    if (is_gather) {
        gather_want(s, node, n, ranks, n_rank);
        return;
    }
    for (int32_t k = 0; k < n_rank; k++) {
        int64_t ne[TDM_MAX_DIMS], first = n->params.kind == TDM_EXCHANGE_SUM ? 0 : n->cut[k];
        rank_data *d = &ranks[k];
        scene_shape_result(s, node, k, ne);
        int64_t n_out = tdm_shape_count(ne);
        d->want_size = (size_t)n_out * sizeof(float);
        d->want = exchange_memory(d->want_size);
        if (residual != NULL) d->residual = exchange_memory(d->want_size);
        for (int64_t i = 0; i < n_out; i++) {
            int64_t at = exchange_place_of(ne, n->ne, n->params.axis, first, i);
            if (residual != NULL) d->residual[i] = residual[at];
            uint32_t bits = sum_bits(n, ranks, n_rank, at, residual != NULL ? &residual[at] : NULL);
            memcpy(d->want + (size_t)i * sizeof bits, &bits, sizeof bits);
        }
    }
    free(residual);
}

exchange_data *exchange_data_make(const scene *s, const scene_node *nodes, int32_t n_node,
                                  int32_t n_rank) {
    exchange_data *run = exchange_memory(sizeof *run);
    for (int32_t i = 0; i < n_node; i++) node_data_make(s, i, &nodes[i], run->ranks[i], n_rank);
    return run;
}

void exchange_data_free(exchange_data *run) {
    for (int32_t i = 0; run != NULL && i < EXCHANGE_MAX_NODE; i++)
        for (int32_t k = 0; k < EXCHANGE_MAX_RANK; k++) {
            rank_data *d = &run->ranks[i][k];
            free(d->x);
            free(d->crossed);
            free(d->residual);
            free(d->want);
        }
    free(run);
}

void exchange_data_put(scene *s, int32_t n_node, int32_t rank, const exchange_data *run) {
    for (int32_t i = 0; i < n_node; i++) {
        const rank_data *d = &run->ranks[i][rank];
        if (d->x != NULL) scene_put_x(s, i, rank, d->x);
        if (d->residual != NULL) scene_put_residual(s, i, rank, d->residual);
    }
}

void exchange_data_check(scene *s, const scene_node *nodes, int32_t n_node, int32_t rank,
                         const exchange_data *run, const char *label) {
    for (int32_t i = 0; i < n_node; i++) {
        const rank_data *d = &run->ranks[i][rank];
        const uint8_t *got = scene_result(s, i, rank);
        for (size_t at = 0; at < d->want_size; at++)
            if (got[at] != d->want[at]) {
                size_t word = at / 4 * 4;
                fail_msg("%s: exchange %d (kind %d, wire %s, type %s), member %d: byte %zu of %zu "
                         "is 0x%02x, not 0x%02x (f32 %g, not %g)",
                         label, (int)i, (int)nodes[i].params.kind,
                         tdm_type_name((tdm_type)nodes[i].params.wire_type),
                         tdm_type_name(nodes[i].type), (int)rank, at, d->want_size, got[at],
                         d->want[at], (double)*(const float *)(const void *)(got + word),
                         (double)*(const float *)(const void *)(d->want + word));
            }
    }
}
