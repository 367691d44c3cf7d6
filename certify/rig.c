/* SPDX-License-Identifier: MIT
 *
 * rig.c: memory, transfer, running and comparison for one graph.
 */
#include "certify/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "core/device/runtime.h"
#include "certify/reference.h"

/* Guards have at least GUARD_MIN bytes, all GUARD_BYTE. */
enum { GUARD_MIN = 64, GUARD_BYTE = 0x6b };

static bool value_has_bytes(const tdm_value *v) {
    return v->slot >= 0 && v->kind != TDM_VALUE_STATE;
}

static uint64_t guard_size(const certify_rig *rig) {
    return rig->c->align > GUARD_MIN ? rig->c->align : GUARD_MIN;
}

certify_verdict certify_rig_create(certify *c, tdm_builder *b, certify_rig *rig_out) {
    certify_rig rig = {.c = c};
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = tdm_builder_finish(b, &rig.graph, &err);
    tdm_builder_destroy(b);
    if (status != TDM_OK) return certify_fail(c, "the suite's own graph: %.400s", err.message);
    size_t n_value = (size_t)rig.graph->n_value + 1, n_slot = (size_t)rig.graph->n_slot + 1;
    rig.bytes = calloc(n_value, sizeof *rig.bytes);
    rig.sizes = calloc(n_value, sizeof *rig.sizes);
    rig.bindings = calloc(n_slot, sizeof *rig.bindings);
    rig.is_borrowed = calloc(n_slot, sizeof *rig.is_borrowed);
    rig.raw = calloc(n_slot, sizeof *rig.raw);
    rig.raw_size = calloc(n_slot, sizeof *rig.raw_size);
    bool is_whole = rig.bytes != NULL && rig.sizes != NULL && rig.bindings != NULL &&
                    rig.is_borrowed != NULL && rig.raw != NULL && rig.raw_size != NULL;
    for (int32_t i = 0; is_whole && i < rig.graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(rig.graph, i);
        if (!value_has_bytes(v)) continue;
        rig.sizes[i] = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        rig.bytes[i] = calloc(rig.sizes[i] + 1, 1);
        is_whole = rig.bytes[i] != NULL;
    }
    *rig_out = rig;
    if (is_whole) return CERTIFY_PASSED;
    certify_rig_destroy(rig_out);
    return certify_skip(c, "out of memory");
}

void certify_rig_destroy(certify_rig *rig) {
    if (rig->graph == NULL) return;
    if (rig->plan != NULL) rig->c->plugin->queue->plan_destroy(rig->plan);
    if (rig->queue != NULL) rig->c->plugin->queue->destroy(rig->queue);
    for (int32_t i = 0; i < rig->graph->n_slot; i++) {
        if (rig->bindings != NULL && !rig->is_borrowed[i] && rig->bindings[i].buffer != NULL)
            rig->c->plugin->buffer->free(rig->bindings[i].buffer);
        if (rig->raw != NULL) free(rig->raw[i]);
    }
    for (int32_t i = 0; i < rig->graph->n_value; i++) {
        if (rig->bytes != NULL) free(rig->bytes[i]);
        if (rig->want != NULL) free(rig->want[i]);
    }
    free(rig->bytes);
    free(rig->sizes);
    free(rig->want);
    free(rig->bindings);
    free(rig->is_borrowed);
    free(rig->raw);
    free(rig->raw_size);
    tdm_graph_free(rig->graph);
    memset(rig, 0, sizeof *rig);
}

/* ---- Data ---- */

void certify_quantize(tdm_type type, const float *numbers, uint8_t *out, int64_t n) {
    enum { N_SUPERBLOCK = 7 };
    const tdm_type_info info = tdm_type_get_info(type);
    const int64_t n_block = n / info.block_len;
    int64_t n_own = n_block;
    if (info.block_len >= 256 && n_own > N_SUPERBLOCK) n_own = N_SUPERBLOCK;
    if (n_own == 0) return;
    (void)tdm_row_quantize(type, numbers, out, n_own * info.block_len, NULL);
    for (int64_t b = n_own; b < n_block; b++)
        memcpy(out + b * info.block_size,
               out + (b + b / N_SUPERBLOCK * 3) % N_SUPERBLOCK * info.block_size, info.block_size);
}

void certify_rig_fill(certify_rig *rig, int32_t value, double scale) {
    const tdm_value *v = tdm_graph_value(rig->graph, value);
    int64_t n = tdm_shape_count(v->ne);
    float *row = malloc(((size_t)n + 1) * sizeof *row);
    if (row == NULL)
        return; /* the value stays 0: the comparison is then weaker, but still correct */
    for (int64_t i = 0; i < n; i++)
        row[i] = (float)(scale * ((double)(certify_random(rig->c) >> 11) * 0x1p-52 - 1.0));
    certify_quantize((tdm_type)v->type, row, rig->bytes[value], n);
    free(row);
}

void certify_rig_fill_ids(certify_rig *rig, int32_t value, int64_t lo, int64_t hi) {
    int32_t *ids = (int32_t *)(void *)rig->bytes[value];
    for (size_t i = 0; i < rig->sizes[value] / sizeof *ids; i++)
        ids[i] = (int32_t)certify_random_in(rig->c, lo, hi);
}

double *certify_numbers(int32_t type, const void *bytes, size_t n) {
    double *out = malloc((n + 1) * sizeof *out);
    float *row = malloc((n + 1) * sizeof *row);
    bool is_done = out != NULL && row != NULL;
    if (is_done && type == TDM_TYPE_I32) {
        for (size_t i = 0; i < n; i++) {
            int32_t id;
            memcpy(&id, (const uint8_t *)bytes + i * sizeof id, sizeof id);
            out[i] = id;
        }
    } else if (is_done) {
        is_done = tdm_row_dequantize((tdm_type)type, bytes, row, (int64_t)n) == TDM_OK;
        for (size_t i = 0; is_done && i < n; i++) out[i] = row[i];
    }
    free(row);
    if (is_done) return out;
    free(out);
    return NULL;
}

bool certify_rig_is_supported(certify_rig *rig) {
    for (int32_t i = 0; i < rig->graph->n_node; i++) {
        rig->c->failure = (tdm_error){.struct_size = sizeof(tdm_error)};
        if (rig->c->plugin->device->supports_op(rig->c->device, rig->graph, i, &rig->c->failure) !=
            TDM_OK)
            return false;
    }
    return true;
}

/* ---- Memory ---- */

void certify_rig_bind(certify_rig *rig, int32_t value, tdm_buffer *buffer, uint64_t off,
                      uint64_t size) {
    int32_t slot = tdm_graph_value(rig->graph, value)->slot;
    rig->bindings[slot] = (tdm_binding){buffer, off, size};
    rig->is_borrowed[slot] = true;
}

static bool value_is_private(const certify_rig *rig, const tdm_value *v) {
    return v->kind == TDM_VALUE_WEIGHT && v->usage != 0 &&
           TDM_HAS(rig->c->plugin->buffer, tensor_upload);
}

static tdm_tensor_desc value_desc(const tdm_value *v) {
    return (tdm_tensor_desc){sizeof(tdm_tensor_desc),
                             (tdm_type)v->type,
                             v->usage,
                             {v->ne[0], v->ne[1], v->ne[2], v->ne[3]}};
}

/* Uploads [guard | value | guard]; the value's bytes are those of rig->bytes, of a result all
 * CERTIFY_RESULT_BYTE. */
static certify_verdict value_upload(certify_rig *rig, int32_t index) {
    const tdm_buffer_ops *ops = rig->c->plugin->buffer;
    const tdm_value *v = tdm_graph_value(rig->graph, index);
    bool is_result = v->kind == TDM_VALUE_TEMP || v->kind == TDM_VALUE_OUTPUT;
    uint64_t size = rig->sizes[index], guard = guard_size(rig);
    tdm_tensor_desc desc = value_desc(v);
    tdm_error err = {.struct_size = sizeof err};
    tdm_buffer *buffer = NULL;
    if (value_is_private(rig, v) && TDM_HAS(ops, tensor_size) &&
        ops->tensor_size(rig->c->device, &desc, &size, &err) != TDM_OK)
        return certify_fail(rig->c, "tensor_size of a weight whose op is supported: %.200s",
                            err.message);
    uint64_t total = guard + size + guard;
    uint8_t *raw = realloc(rig->raw[v->slot], total);
    if (raw == NULL) return certify_skip(rig->c, "out of memory");
    rig->raw[v->slot] = raw;
    rig->raw_size[v->slot] = total;
    memset(raw, GUARD_BYTE, total);
    if (is_result)
        memset(raw + guard, CERTIFY_RESULT_BYTE, size);
    else if (!value_is_private(rig, v))
        memcpy(raw + guard, rig->bytes[index], size);
    buffer = rig->bindings[v->slot].buffer;
    if (buffer == NULL) {
        certify_verdict verdict = certify_alloc(rig->c, total, &buffer);
        if (verdict != CERTIFY_PASSED) return verdict;
    }
    rig->bindings[v->slot] = (tdm_binding){buffer, guard, size};
    tdm_status status = ops->upload(buffer, 0, raw, total, &err);
    if (status == TDM_OK && value_is_private(rig, v)) {
        status = ops->tensor_upload(buffer, guard, &desc, rig->bytes[index],
                                    tdm_type_row_size((tdm_type)v->type, v->ne[0]), 0,
                                    tdm_shape_rows(v->ne), 0, v->ne[0], &err);
        if (status == TDM_OK) status = ops->download(buffer, 0, raw, total, &err);
    }
    if (status != TDM_OK) return certify_fail(rig->c, "upload: %.400s", err.message);
    return CERTIFY_PASSED;
}

certify_verdict certify_rig_upload(certify_rig *rig) {
    certify_verdict verdict = CERTIFY_PASSED;
    for (int32_t i = 0; verdict == CERTIFY_PASSED && i < rig->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(rig->graph, i);
        if (value_has_bytes(v) && !rig->is_borrowed[v->slot]) verdict = value_upload(rig, i);
    }
    return verdict;
}

tdm_status certify_rig_prepare(certify_rig *rig, tdm_error *err) {
    const tdm_queue_ops *ops = rig->c->plugin->queue;
    tdm_plan_params params = {sizeof params, 0};
    tdm_status status = TDM_OK;
    if (TDM_HAS(rig->c->plugin->device, graph_compute_sync) || rig->plan != NULL) return TDM_OK;
    if (rig->queue == NULL) status = ops->create(rig->c->device, &rig->queue, err);
    if (status == TDM_OK)
        status = ops->graph_prepare(rig->queue, rig->graph, &params, &rig->plan, err);
    return status;
}

static tdm_status queue_run(certify_rig *rig, tdm_error *err) {
    const tdm_queue_ops *ops = rig->c->plugin->queue;
    tdm_point done = {NULL, 1};
    tdm_status status = tdm_semaphore_ops.create(0, &done.semaphore, err);
    if (status != TDM_OK) return status;
    status = certify_rig_prepare(rig, err);
    if (status == TDM_OK)
        status = ops->plan_bind(rig->plan, rig->bindings, rig->graph->n_slot, err);
    if (status == TDM_OK)
        status = ops->graph_compute(rig->queue, rig->plan, NULL, 0, &done, 1, err);
    if (status == TDM_OK) status = tdm_semaphore_ops.wait(done.semaphore, 1, TDM_WAIT_FOREVER, err);
    if (rig->plan != NULL) ops->plan_destroy(rig->plan);
    rig->plan = NULL;
    tdm_semaphore_ops.destroy(done.semaphore);
    return status;
}

tdm_status certify_rig_compute(certify_rig *rig, tdm_error *err) {
    const tdm_device_ops *ops = rig->c->plugin->device;
    if (!TDM_HAS(ops, graph_compute_sync)) return queue_run(rig, err);
    return ops->graph_compute_sync(rig->c->device, rig->graph, rig->bindings, rig->graph->n_slot,
                                   err);
}

/* The name of a kind for messages. */
static const char *kind_word(int32_t kind) {
    return kind == TDM_VALUE_WEIGHT  ? "a weight"
           : kind == TDM_VALUE_INPUT ? "an input"
           : kind == TDM_VALUE_TEMP  ? "a temporary"
                                     : "an output";
}

static certify_verdict value_download(certify_rig *rig, int32_t index) {
    const tdm_value *v = tdm_graph_value(rig->graph, index);
    const tdm_binding *at = &rig->bindings[v->slot];
    bool is_result = v->kind == TDM_VALUE_TEMP || v->kind == TDM_VALUE_OUTPUT;
    uint64_t total = rig->raw_size[v->slot];
    const uint8_t *before = rig->raw[v->slot];
    tdm_error err = {.struct_size = sizeof err};
    uint8_t *now = malloc(total);
    if (now == NULL) return certify_skip(rig->c, "out of memory");
    certify_verdict verdict = CERTIFY_PASSED;
    if (rig->c->plugin->buffer->download(at->buffer, 0, now, total, &err) != TDM_OK)
        verdict = certify_fail(rig->c, "download: %.400s", err.message);
    for (uint64_t i = 0; verdict == CERTIFY_PASSED && i < total; i++) {
        bool is_inside = i >= at->off && i < at->off + at->size;
        if (now[i] == before[i] || (is_inside && is_result)) continue;
        if (is_inside)
            verdict = certify_fail(rig->c, "changed %s, byte %llu of %llu", kind_word(v->kind),
                                   (unsigned long long)(i - at->off), (unsigned long long)at->size);
        else
            verdict = certify_fail(rig->c, "wrote outside %s of %llu bytes, at byte %lld",
                                   kind_word(v->kind), (unsigned long long)at->size,
                                   (long long)i - (long long)at->off);
    }
    if (verdict == CERTIFY_PASSED && is_result) memcpy(rig->bytes[index], now + at->off, at->size);
    free(now);
    return verdict;
}

certify_verdict certify_rig_download(certify_rig *rig) {
    certify_verdict verdict = CERTIFY_PASSED;
    for (int32_t i = 0; verdict == CERTIFY_PASSED && i < rig->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(rig->graph, i);
        if (value_has_bytes(v) && !rig->is_borrowed[v->slot]) verdict = value_download(rig, i);
    }
    return verdict;
}

certify_verdict certify_rig_run(certify_rig *rig) {
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_rig_upload(rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_status status = certify_rig_compute(rig, &err);
    if (status != TDM_OK)
        return certify_fail(rig->c, "supports_op returned TDM_OK, computing returned '%s': %.300s",
                            tdm_status_text(status), err.message);
    return certify_rig_download(rig);
}

/* ---- Comparison ---- */

certify_verdict certify_numbers_judge(certify *c, const char *what, const double *got,
                                      const double *want, size_t n, double nmse, double rms) {
    double square = 0, error = 0, worst = 0;
    size_t worst_at = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(want[i]) && isnan(got[i])) continue;
        if (isinf(want[i]) && got[i] == want[i]) continue;
        if (!isfinite(want[i]) || !isfinite(got[i]))
            return certify_fail(c, "%s: element %zu of %zu is %g, not %g", what, i, n, got[i],
                                want[i]);
        double diff = fabs(got[i] - want[i]);
        square += want[i] * want[i];
        error += diff * diff;
        if (diff > worst) worst = diff, worst_at = i;
    }
    /* Where the reference is almost 0, the error is measured against 1 per element. */
    double scale = square > 1e-20 * (double)n ? square : (double)n;
    if (scale < rms * rms * (double)n) scale = rms * rms * (double)n;
    if (error <= nmse * scale && worst <= 30 * sqrt(nmse * scale / (double)(n > 0 ? n : 1)))
        return CERTIFY_PASSED;
    return certify_fail(c,
                        "%s: NMSE %.3g, allowed %.3g; worst element %zu of %zu is %.9g, not %.9g",
                        what, error / scale, nmse, worst_at, n, got[worst_at], want[worst_at]);
}

static certify_verdict value_judge(certify_rig *rig, int32_t index, const char *what, double nmse) {
    const tdm_value *v = tdm_graph_value(rig->graph, index);
    size_t n = (size_t)tdm_shape_count(v->ne);
    double *got = certify_numbers(v->type, rig->bytes[index], n);
    if (got == NULL) return certify_skip(rig->c, "out of memory");
    certify_verdict verdict = CERTIFY_PASSED;
    if (v->type == TDM_TYPE_I32) {
        for (size_t i = 0; i < n && verdict == CERTIFY_PASSED; i++)
            if (got[i] != rig->want[index][i])
                verdict = certify_fail(rig->c, "%s: id %zu of %zu is %.0f, not %.0f", what, i, n,
                                       got[i], rig->want[index][i]);
    } else {
        verdict = certify_numbers_judge(rig->c, what, got, rig->want[index], n, nmse, rig->rms);
    }
    free(got);
    return verdict;
}

certify_verdict certify_rig_judge(certify_rig *rig, const char *what, double nmse) {
    if (rig->want == NULL) rig->want = calloc((size_t)rig->graph->n_value + 1, sizeof *rig->want);
    if (rig->want == NULL || !certify_reference_run(rig->graph, rig->bytes, rig->want))
        return certify_skip(rig->c, "out of memory");
    for (int32_t i = 0; i < rig->graph->n_value; i++) {
        if (tdm_graph_value(rig->graph, i)->kind != TDM_VALUE_OUTPUT) continue;
        certify_verdict verdict = value_judge(rig, i, what, nmse);
        if (verdict != CERTIFY_PASSED) return verdict;
    }
    return CERTIFY_PASSED;
}
