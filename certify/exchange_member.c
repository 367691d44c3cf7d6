/* SPDX-License-Identifier: MIT
 *
 * exchange_member.c: implements exchange.h: arena, graph, the members that the suite replaces, and
 * the sum as collective.h defines it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "certify/exchange.h"

enum {
    LINE = 64,
    PAGE = 4096,
    GUARD = 256, /* bytes between flags, data and the end */
    GUARD_BYTE = 0x6b,
    STEP_LEN = sizeof(tdm_step_header) / sizeof(int32_t)
};

typedef _Atomic uint64_t word;

static bool is_sum(const certify_exchange_case *how) {
    return how->kind != TDM_EXCHANGE_GATHER;
}

static bool is_sender(const certify_exchange_case *how, int32_t m) {
    return (how->senders >> m & 1) != 0;
}

static int64_t padded(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* Bytes of an addend on the wire; of the whole result of a GATHER. */
static uint64_t piece_size(const certify_exchange_case *how) {
    int64_t count = tdm_shape_count(how->ne);
    if (!is_sum(how)) return tdm_tensor_canonical_size(how->type, how->ne);
    return tdm_type_row_size(how->type, padded(count, tdm_type_get_info(how->type).block_len));
}

static uint64_t piece_stride(const certify_exchange_case *how) {
    const int64_t unit = how->is_crowded ? 4 : LINE;
    return is_sum(how) ? (uint64_t)padded((int64_t)piece_size(how) + 4, unit) : 0;
}

static uint64_t flag_off(void) {
    return LINE;
}

static uint64_t data_off(const certify_exchange_case *how) {
    return flag_off() + (uint64_t)how->n_member * LINE + GUARD;
}

static word *flag_of(const certify_exchange *e, int32_t m) {
    return (word *)(void *)(e->arena.data + e->params.flag_off + (uint64_t)m * LINE);
}

/* The shape of member m's part of the axis; the whole shape where the case has no parts. */
static void part_shape(const certify_exchange_case *how, int32_t m, int64_t ne_out[TDM_MAX_DIMS]) {
    memcpy(ne_out, how->ne, sizeof how->ne);
    if (how->kind != TDM_EXCHANGE_SUM) ne_out[how->axis] = how->cut[m + 1] - how->cut[m];
}

/* ---- The device ---- */

static certify_verdict claim_read(certify *c, bool *claims) {
    tdm_device_info info = {.struct_size = sizeof info};
    tdm_error err = {.struct_size = sizeof err};
    if (certify_device_info(c, &info, &err) != TDM_OK)
        return certify_fail(c, "get_info failed: %.300s", err.message);
    *claims = (info.flags & TDM_DEVICE_HAS_EXCHANGE) != 0;
    return CERTIFY_PASSED;
}

certify_verdict certify_exchange_open(certify *c) {
    bool claims = false;
    certify_verdict verdict = certify_open(c);
    if (verdict == CERTIFY_PASSED) verdict = claim_read(c, &claims);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!claims) return certify_skip(c, "no TDM_DEVICE_HAS_EXCHANGE");
    if (!TDM_HAS(c->plugin->buffer, import_host))
        return certify_fail(c, "claims TDM_DEVICE_HAS_EXCHANGE without a slot import_host");
    return CERTIFY_PASSED;
}

/* ---- The arena ---- */

certify_verdict certify_arena_create(certify *c, const certify_exchange_case *how,
                                     certify_arena *out) {
    uint64_t data = is_sum(how) ? (uint64_t)how->n_member * piece_stride(how) : piece_size(how);
    uint64_t align = certify_import_align(c);
    if (align < PAGE) align = PAGE;
    out->size = (uint64_t)padded((int64_t)(data_off(how) + data + GUARD), (int64_t)align);
    out->data = aligned_alloc(align, out->size);
    if (out->data == NULL) return certify_skip(c, "out of memory");
    memset(out->data, GUARD_BYTE, out->size);
    certify_arena_abort(out, 0);
    for (int32_t m = 0; m < how->n_member; m++) {
        uint64_t *flag = (uint64_t *)(void *)(out->data + flag_off() + (uint64_t)m * LINE);
        flag[0] = (uint64_t)(how->epoch - 1) << 32 | 1000;
        flag[1] = 0;
    }
    return CERTIFY_PASSED;
}

void certify_arena_destroy(certify_arena *arena) {
    free(arena->data);
    arena->data = NULL;
}

void certify_arena_abort(const certify_arena *arena, uint64_t value) {
    atomic_store((word *)(void *)arena->data, value);
}

/* ---- One member ---- */

/* An input of this shape, or a view of one that is wider in two axes. */
static int32_t source_build(tdm_builder *b, tdm_type type, const int64_t *ne, bool is_sliced,
                            int32_t *base_out) {
    int64_t wide[TDM_MAX_DIMS] = {ne[0], ne[1], ne[2], ne[3]};
    int64_t offset[TDM_MAX_DIMS] = {tdm_type_get_info(type).block_len, 1, 0, 0};
    if (is_sliced) wide[0] += 2 * offset[0], wide[1] += 2;
    *base_out = tdm_build_input(b, NULL, type, wide);
    return is_sliced ? tdm_build_slice(b, *base_out, offset, ne) : *base_out;
}

/* Copies canonical bytes to the place where the view of source_build reads them. */
static void source_put(certify_exchange *e, int32_t base, const int64_t *ne, const void *bytes) {
    const tdm_value *v = tdm_graph_value(e->rig.graph, base);
    tdm_type type = (tdm_type)v->type;
    size_t row = tdm_type_row_size(type, ne[0]), wide = tdm_type_row_size(type, v->ne[0]);
    size_t block = (size_t)tdm_type_get_info(type).block_size;
    uint8_t *to = e->rig.bytes[base] + (e->how.is_sliced ? wide + block : 0);
    for (int64_t r = 0; r < tdm_shape_rows(ne); r++)
        if (row > 0)
            memcpy(to + (size_t)(r / ne[1] * v->ne[1] + r % ne[1]) * wide,
                   (const uint8_t *)bytes + (size_t)r * row, row);
}

static float number(certify *c, bool with_extremes) {
    static const uint32_t bits[] = {0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0x00000001,
                                    0x80000001, 0x007fffff, 0x80800000, 0x80000000, 0x7f7fffff};
    if (with_extremes && certify_random_in(c, 0, 7) == 0)
        return tdm_f32_from_bits(bits[certify_random(c) % (sizeof bits / sizeof bits[0])]);
    return (float)((double)(certify_random(c) >> 11) * 0x1p-52 - 1.0);
}

certify_verdict certify_exchange_next(certify_exchange *e) {
    const certify_exchange_case *how = &e->how;
    tdm_step_header header = {
        .version = TDM_STEP_VERSION, .size = STEP_LEN, .epoch = (int32_t)how->epoch};
    int64_t part[TDM_MAX_DIMS], result[TDM_MAX_DIMS];
    part_shape(how, how->member, part);
    memcpy(result, how->kind == TDM_EXCHANGE_SUM_PART ? part : how->ne, sizeof result);
    memcpy(e->rig.bytes[e->step], &header, sizeof header);
    if (e->x >= 0 && is_sum(how)) {
        for (int64_t i = 0; i < e->count; i++) e->x_numbers[i] = number(e->c, how->has_extremes);
        source_put(e, e->x, how->ne, e->x_numbers);
    } else if (e->x >= 0) {
        certify_random_bytes(e->c, e->x_bytes, tdm_tensor_canonical_size(how->type, part));
        source_put(e, e->x, part, e->x_bytes);
    }
    if (e->residual >= 0) {
        for (int64_t i = 0; i < tdm_shape_count(result); i++)
            e->residual_numbers[i] = number(e->c, how->has_extremes);
        source_put(e, e->residual, result, e->residual_numbers);
    }
    return certify_rig_upload(&e->rig);
}

/* Builds the graph of the case. Sets e->params, and of x, step, residual and y those that the case
 * has. NULL without memory. */
static tdm_builder *graph_build(certify_exchange *e) {
    const certify_exchange_case *how = &e->how;
    bool sends = is_sender(how, how->member);
    int64_t part[TDM_MAX_DIMS], result[TDM_MAX_DIMS];
    int32_t x = -1, residual = -1;
    tdm_builder *b;
    if (tdm_builder_create(&b, NULL) != TDM_OK) return NULL;
    part_shape(how, how->member, part);
    memcpy(result, how->kind == TDM_EXCHANGE_SUM_PART ? part : how->ne, sizeof result);
    e->params = (tdm_exchange_params){.member = how->member,
                                      .n_member = how->n_member,
                                      .wire_type = is_sum(how) ? (int32_t)how->type : 0,
                                      .data_off = data_off(how),
                                      .data_stride = piece_stride(how),
                                      .flag_off = flag_off(),
                                      .senders = how->senders,
                                      .kind = how->kind};
    if (how->kind != TDM_EXCHANGE_SUM) {
        e->params.axis = how->axis;
        if (sends || is_sum(how)) e->params.first = how->cut[how->member];
    }
    if (how->kind == TDM_EXCHANGE_SUM_PART && !sends) e->params.whole = (int32_t)how->ne[how->axis];
    int32_t arena = tdm_build_bytes(b, "arena", e->arena.size);
    const int32_t peer = how->peer != NULL ? tdm_build_bytes(b, "peer", e->arena.size) : -1;
    e->step = tdm_build_input(b, "step", TDM_TYPE_I32, (const int64_t[]){STEP_LEN, 1, 1, 1});
    if (sends)
        x = source_build(b, is_sum(how) ? TDM_TYPE_F32 : how->type, is_sum(how) ? how->ne : part,
                         how->is_sliced, &e->x);
    if (how->has_residual)
        residual = source_build(b, TDM_TYPE_F32, result, how->is_sliced, &e->residual);
    e->y = tdm_build_exchange_peer(b, x, arena, peer, e->step, residual,
                                   is_sum(how) ? TDM_TYPE_F32 : how->type, result, &e->params);
    tdm_build_output(b, e->y, "y");
    return b;
}

certify_verdict certify_exchange_create(certify *c, const certify_exchange_case *how,
                                        const certify_arena *arena, certify_exchange *out) {
    certify_exchange *e = out;
    tdm_error err = {.struct_size = sizeof err};
    *e = (certify_exchange){.c = c, .how = *how, .arena = *arena, .x = -1, .residual = -1};
    e->count = tdm_shape_count(how->ne);
    e->x_numbers = calloc((size_t)e->count + 1, sizeof(float));
    e->residual_numbers = calloc((size_t)e->count + 1, sizeof(float));
    e->x_bytes = calloc(piece_size(how) + 1, 1);
    e->before = calloc(arena->size, 1);
    if (e->x_numbers == NULL || e->residual_numbers == NULL || e->x_bytes == NULL ||
        e->before == NULL)
        return certify_skip(c, "out of memory");
    tdm_status status =
        c->plugin->buffer->import_host(c->device, arena->data, arena->size, NULL, &e->buffer, &err);
    if (status != TDM_OK)
        return certify_fail(c, "claims TDM_DEVICE_HAS_EXCHANGE but imports no arena: %.300s",
                            err.message);
    tdm_builder *b = graph_build(e);
    if (b == NULL) return certify_skip(c, "out of memory");
    certify_verdict verdict = certify_rig_create(c, b, &e->rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_rig_bind(&e->rig, 0, e->buffer, 0, arena->size);
    if (how->peer != NULL) certify_rig_bind(&e->rig, 1, how->peer, 0, arena->size);
    if (!certify_rig_is_supported(&e->rig))
        return certify_fail(c, "claims TDM_DEVICE_HAS_EXCHANGE but refuses kind %d of %s: %.300s",
                            (int)how->kind, tdm_type_name(how->type), c->failure.message);
    return certify_exchange_next(e);
}

void certify_exchange_destroy(certify_exchange *e) {
    certify_rig_destroy(&e->rig);
    e->c->plugin->buffer->free(e->buffer);
    free(e->x_numbers);
    free(e->x_bytes);
    free(e->residual_numbers);
    free(e->before);
}

/* ---- Members played ---- */

/* Where byte `at` of member m's part lies in the whole of a GATHER. */
static uint64_t part_place(const certify_exchange_case *how, int32_t m, uint64_t at) {
    int64_t part[TDM_MAX_DIMS], one[TDM_MAX_DIMS];
    part_shape(how, m, part);
    memcpy(one, part, sizeof one);
    /* Bytes of the axis and those inside it: `run` of the member's part, `stride` of the whole.
     * Outer axes repeat them. */
    for (int i = how->axis + 1; i < TDM_MAX_DIMS; i++) one[i] = 1;
    uint64_t run = tdm_tensor_canonical_size(how->type, one);
    one[how->axis] = how->ne[how->axis];
    uint64_t stride = tdm_tensor_canonical_size(how->type, one);
    one[how->axis] = how->cut[m];
    return at / run * stride + tdm_tensor_canonical_size(how->type, one) + at % run;
}

static uint64_t part_size(const certify_exchange_case *how, int32_t m) {
    int64_t part[TDM_MAX_DIMS];
    part_shape(how, m, part);
    return tdm_tensor_canonical_size(how->type, part);
}

static int64_t chunk_count(const certify_exchange *e) {
    if (!is_sum(&e->how) || e->count == 0) return 1;
    return (e->count + TDM_EXCHANGE_CHUNK - 1) / TDM_EXCHANGE_CHUNK;
}

static uint64_t flag_end(const certify_exchange *e) {
    return ((uint64_t)e->how.epoch << 32) + (uint64_t)chunk_count(e);
}

certify_verdict certify_exchange_play(certify_exchange *e, int32_t m) {
    const certify_exchange_case *how = &e->how;
    uint8_t *data = e->arena.data + e->params.data_off;
    if (is_sender(how, m) && is_sum(how)) {
        int64_t len = padded(e->count, tdm_type_get_info(how->type).block_len);
        float *numbers = calloc((size_t)len + 1, sizeof *numbers);
        if (numbers == NULL) return certify_skip(e->c, "out of memory");
        for (int64_t i = 0; i < e->count; i++) numbers[i] = number(e->c, how->has_extremes);
        tdm_row_quantize(how->type, numbers, data + (uint64_t)m * e->params.data_stride, len, NULL);
        free(numbers);
    } else if (is_sender(how, m)) {
        for (uint64_t at = 0; at < part_size(how, m); at++)
            data[part_place(how, m, at)] = (uint8_t)certify_random(e->c);
    }
    atomic_store_explicit(flag_of(e, m), flag_end(e), memory_order_release);
    return CERTIFY_PASSED;
}

certify_verdict certify_exchange_play_all(certify_exchange *e) {
    certify_verdict verdict = CERTIFY_PASSED;
    for (int32_t m = 0; m < e->how.n_member && verdict == CERTIFY_PASSED; m++)
        if (m != e->how.member) verdict = certify_exchange_play(e, m);
    memcpy(e->before, e->arena.data, e->arena.size);
    return verdict;
}

/* ---- Judging ---- */

/* Compares what this member sent with its x: exactly for f32, within the rounding of other
 * types. */
static certify_verdict sent_judge(certify_exchange *e, const char *what, const float *crossed) {
    double bound = e->how.type == TDM_TYPE_F16    ? 3e-7
                   : e->how.type == TDM_TYPE_BF16 ? 2e-5
                                                  : 2e-4; /* q8_0 */
    size_t n = (size_t)e->count;
    if (e->how.type == TDM_TYPE_F32) {
        if (n > 0 && memcmp(crossed, e->x_numbers, n * sizeof(float)) != 0)
            return certify_fail(e->c, "%s: the addend in the arena is not x", what);
        return CERTIFY_PASSED;
    }
    double *got = certify_numbers(TDM_TYPE_F32, crossed, n);
    double *want = certify_numbers(TDM_TYPE_F32, e->x_numbers, n);
    char text[160];
    snprintf(text, sizeof text, "%.120s: the addend in the arena", what);
    certify_verdict verdict = got != NULL && want != NULL
                                  ? certify_numbers_judge(e->c, text, got, want, n, bound, 0)
                                  : certify_skip(e->c, "out of memory");
    free(got);
    free(want);
    return verdict;
}

/* Element i of member's result as an index into the addends. */
static int64_t result_place(const certify_exchange_case *how, int64_t i) {
    int64_t part[TDM_MAX_DIMS], at = 0, stride = 1;
    if (how->kind == TDM_EXCHANGE_SUM) return i;
    part_shape(how, how->member, part);
    for (int d = 0; d < TDM_MAX_DIMS; d++) {
        at += (i % part[d] + (d == how->axis ? how->cut[how->member] : 0)) * stride;
        i /= part[d];
        stride *= how->ne[d];
    }
    return at;
}

static uint32_t finished(float sum) {
    return isnan(sum) ? 0x7fc00000 : tdm_f32_to_bits(sum);
}

/* Denormal numbers and -0 count as +0. */
static float flushed(float x) {
    return fabsf(x) < 0x1p-126f ? 0 : x;
}

/* Compares with the sum of the data in the arena, one rounded addition after another. volatile
 * prevents the compiler from fusing the additions with other operations. */
static certify_verdict sum_judge(certify_exchange *e, const char *what, float *const *crossed) {
    const certify_exchange_case *how = &e->how;
    const tdm_value *y = tdm_graph_value(e->rig.graph, e->y);
    for (int64_t i = 0; i < tdm_shape_count(y->ne); i++) {
        int64_t at = result_place(how, i);
        volatile float sum = 0;
        uint32_t got;
        for (int32_t m = 0; m < how->n_member; m++) {
            if (!is_sender(how, m)) continue;
            sum = sum + flushed(crossed[m][at]); /* 0 + x is x: -0 was flushed */
            sum = flushed(sum);
        }
        if (how->has_residual) sum = sum + flushed(e->residual_numbers[i]);
        sum = flushed(sum);
        memcpy(&got, e->rig.bytes[e->y] + (size_t)i * sizeof got, sizeof got);
        if (got != finished(sum))
            return certify_fail(e->c, "%s: element %lld is %.9g (0x%08x), not %.9g (0x%08x)", what,
                                (long long)i, (double)tdm_f32_from_bits(got), got, (double)sum,
                                finished(sum));
    }
    return CERTIFY_PASSED;
}

static certify_verdict sums_judge(certify_exchange *e, const char *what) {
    const certify_exchange_case *how = &e->how;
    int64_t len = padded(e->count, tdm_type_get_info(how->type).block_len);
    float *crossed[CERTIFY_MAX_MEMBER] = {NULL};
    certify_verdict verdict = CERTIFY_PASSED;
    for (int32_t m = 0; m < how->n_member && verdict == CERTIFY_PASSED; m++) {
        crossed[m] = calloc((size_t)len + 1, sizeof(float));
        if (crossed[m] == NULL) verdict = certify_skip(e->c, "out of memory");
        if (crossed[m] != NULL && is_sender(how, m))
            tdm_row_dequantize(
                how->type, e->arena.data + e->params.data_off + (uint64_t)m * e->params.data_stride,
                crossed[m], len);
    }
    if (verdict == CERTIFY_PASSED && e->x >= 0) verdict = sent_judge(e, what, crossed[how->member]);
    if (verdict == CERTIFY_PASSED) verdict = sum_judge(e, what, crossed);
    for (int32_t m = 0; m < how->n_member; m++) free(crossed[m]);
    return verdict;
}

static certify_verdict gather_judge(certify_exchange *e, const char *what) {
    const uint8_t *data = e->arena.data + e->params.data_off;
    uint64_t size = e->x >= 0 ? part_size(&e->how, e->how.member) : 0;
    for (uint64_t at = 0; at < size; at++)
        if (data[part_place(&e->how, e->how.member, at)] != e->x_bytes[at])
            return certify_fail(e->c, "%s: byte %llu of its part is not in its place in the arena",
                                what, (unsigned long long)at);
    if (memcmp(e->rig.bytes[e->y], data, piece_size(&e->how)) != 0)
        return certify_fail(e->c, "%s: the result is not what the arena holds", what);
    return CERTIFY_PASSED;
}

/* Bytes that this member may have written: its flag's line as far as it is used, what it sent. */
static certify_verdict stray_judge(certify_exchange *e, const char *what) {
    const certify_exchange_case *how = &e->how;
    uint64_t flag = e->params.flag_off + (uint64_t)how->member * LINE;
    uint64_t addend = e->params.data_off + (uint64_t)how->member * e->params.data_stride;
    memcpy(e->before + flag, e->arena.data + flag, 16);
    if (e->x >= 0 && is_sum(how))
        memcpy(e->before + addend, e->arena.data + addend, piece_size(how));
    else if (e->x >= 0)
        for (uint64_t at = 0; at < part_size(how, how->member); at++) {
            uint64_t place = e->params.data_off + part_place(how, how->member, at);
            e->before[place] = e->arena.data[place];
        }
    for (uint64_t i = 0; i < e->arena.size; i++)
        if (e->before[i] != e->arena.data[i])
            return certify_fail(e->c, "%s: wrote byte %llu of the arena, which is not its own",
                                what, (unsigned long long)i);
    return CERTIFY_PASSED;
}

/* Copies the data in peer memory to the arena, where they are judged; the flag must be in both. */
static certify_verdict peer_fetch(certify_exchange *e, const char *what) {
    const tdm_buffer_ops *ops = e->c->plugin->buffer;
    const uint64_t first = e->params.data_off;
    tdm_error err = {.struct_size = sizeof err};
    uint64_t flag = 0;
    tdm_status status =
        ops->download(e->how.peer, first, e->arena.data + first, e->arena.size - first, &err);
    if (status == TDM_OK)
        status = ops->download(e->how.peer, e->params.flag_off + (uint64_t)e->how.member * LINE,
                               &flag, sizeof flag, &err);
    if (status != TDM_OK) return certify_fail(e->c, "%s: peer memory: %.300s", what, err.message);
    if (flag == flag_end(e)) return CERTIFY_PASSED;
    return certify_fail(e->c, "%s: its flag in peer memory is 0x%llx at the end, not 0x%llx", what,
                        (unsigned long long)flag, (unsigned long long)flag_end(e));
}

certify_verdict certify_exchange_judge(certify_exchange *e, const char *what, bool is_alone) {
    uint64_t flag = atomic_load(flag_of(e, e->how.member));
    certify_verdict verdict = certify_rig_download(&e->rig);
    if (verdict == CERTIFY_PASSED && e->how.peer != NULL) verdict = peer_fetch(e, what);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (flag != flag_end(e))
        return certify_fail(e->c, "%s: its flag is 0x%llx at the end, not 0x%llx", what,
                            (unsigned long long)flag, (unsigned long long)flag_end(e));
    verdict = is_sum(&e->how) ? sums_judge(e, what) : gather_judge(e, what);
    if (verdict == CERTIFY_PASSED && is_alone) verdict = stray_judge(e, what);
    return verdict;
}
