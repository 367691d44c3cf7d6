/* SPDX-License-Identifier: MIT
 *
 * tensor.c: checks of weights in a device's private layout: bytes that were uploaded in parts, in
 * any order, must be downloaded bit for bit, and bytes outside must not change.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "certify/trial.h"

enum { GUARD_BYTE = 0x6b };

/* One tensor on the device, between guards. */
typedef struct kept {
    certify *c;
    tdm_tensor_desc desc;
    tdm_buffer *buffer;
    uint64_t guard; /* bytes before and after the tensor */
    uint64_t size;  /* from tensor_size */
    uint8_t *bytes; /* canonical bytes to upload */
    uint8_t *back;  /* canonical bytes that were downloaded */
    size_t row_size;
    int64_t n_row;
    char label[96];
} kept;

static certify_verdict skip_unless_private(certify *c) {
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, tensor_upload) || !TDM_HAS(ops, tensor_download))
        return certify_skip(c, "no slots tensor_upload and tensor_download");
    return CERTIFY_PASSED;
}

static void kept_destroy(kept *k) {
    if (k->buffer != NULL) k->c->plugin->buffer->free(k->buffer);
    free(k->bytes);
    free(k->back);
}

/* Makes the canonical bytes of a tensor and a buffer of guard bytes for it; nothing is uploaded
 * yet. A skip where tensor_size returns TDM_UNSUPPORTED. */
static certify_verdict kept_create(certify *c, tdm_type type, uint32_t usage, const int64_t ne[4],
                                   kept *k) {
    const tdm_buffer_ops *ops = c->plugin->buffer;
    tdm_error err = {.struct_size = sizeof err};
    tdm_tensor_desc desc = {sizeof desc, type, usage, {ne[0], ne[1], ne[2], ne[3]}};
    *k = (kept){.c = c, .desc = desc};
    snprintf(k->label, sizeof k->label, "%s [%d, %d, %d], usage 0x%x", tdm_type_name(type),
             (int)ne[0], (int)ne[1], (int)ne[2], usage);
    k->row_size = tdm_type_row_size(type, ne[0]);
    k->n_row = tdm_shape_rows(ne);
    k->guard = c->align > 256 ? c->align : 256;
    k->size = tdm_tensor_canonical_size(type, ne);
    if (TDM_HAS(ops, tensor_size)) {
        tdm_status status = ops->tensor_size(c->device, &desc, &k->size, &err);
        if (status == TDM_UNSUPPORTED) return certify_skip(c, "%s: %.200s", k->label, err.message);
        if (status != TDM_OK)
            return certify_fail(c, "%s: tensor_size returned '%s': %.200s", k->label,
                                tdm_status_text(status), err.message);
    }
    k->bytes = calloc(k->row_size * (size_t)k->n_row + 1, 1);
    k->back = calloc(k->row_size * (size_t)k->n_row + 1, 1);
    uint8_t *raw = malloc(k->size + 2 * k->guard);
    /* The first half of the rows gets random bytes: no quantiser writes them, but a file may contain
     * them, and they are valid (block.h). Plain types get numbers instead, because a device may
     * store them in another type where that is lossless. */
    const int64_t n_random = tdm_type_get_info(type).is_quantized ? k->n_row / 2 : 0;
    const int64_t n_number = (k->n_row - n_random) * ne[0];
    float *numbers = malloc(((size_t)n_number + 1) * sizeof *numbers);
    if (k->bytes == NULL || k->back == NULL || raw == NULL || numbers == NULL)
        return certify_skip(c, "out of memory");
    for (int64_t i = 0; i < n_number; i++)
        numbers[i] = (float)((double)(certify_random(c) >> 11) * 0x1p-52 - 1.0);
    certify_quantize(type, numbers, k->bytes + (size_t)n_random * k->row_size, n_number);
    certify_random_bytes(c, k->bytes, k->row_size * (size_t)n_random);
    memset(raw, GUARD_BYTE, k->size + 2 * k->guard);
    certify_verdict verdict = certify_alloc(c, k->size + 2 * k->guard, &k->buffer);
    if (verdict == CERTIFY_PASSED &&
        ops->upload(k->buffer, 0, raw, k->size + 2 * k->guard, &err) != TDM_OK)
        verdict = certify_skip(c, "upload: %.300s", err.message);
    free(raw);
    free(numbers);
    return verdict;
}

/* Transfers a part of rows and columns between the host's bytes and the device, through a staging
 * area with another pitch. */
static certify_verdict part_move(kept *k, bool is_upload, int64_t row, int64_t n_row, int64_t col,
                                 int64_t n_col) {
    const tdm_buffer_ops *ops = k->c->plugin->buffer;
    tdm_error err = {.struct_size = sizeof err};
    size_t col_off = tdm_type_row_size(k->desc.type, col);
    size_t part = tdm_type_row_size(k->desc.type, n_col), pitch = part + 6;
    uint8_t *host = is_upload ? k->bytes : k->back, *staging = malloc(pitch * (size_t)n_row + 8);
    tdm_status status;
    if (staging == NULL) return certify_skip(k->c, "out of memory");
    memset(staging, 0x99, pitch * (size_t)n_row + 8);
    for (int64_t r = 0; is_upload && r < n_row; r++)
        memcpy(staging + (size_t)r * pitch, host + (size_t)(row + r) * k->row_size + col_off, part);
    if (is_upload)
        status = ops->tensor_upload(k->buffer, k->guard, &k->desc, staging, pitch, row, n_row, col,
                                    n_col, &err);
    else
        status = ops->tensor_download(k->buffer, k->guard, &k->desc, staging, pitch, row, n_row,
                                      col, n_col, &err);
    certify_verdict verdict = CERTIFY_PASSED;
    if (status != TDM_OK)
        verdict = certify_fail(k->c, "%s: rows %lld + %lld, columns %lld + %lld: %.200s", k->label,
                               (long long)row, (long long)n_row, (long long)col, (long long)n_col,
                               err.message);
    for (int64_t r = 0; verdict == CERTIFY_PASSED && !is_upload && r < n_row; r++) {
        memcpy(host + (size_t)(row + r) * k->row_size + col_off, staging + (size_t)r * pitch, part);
        for (size_t i = part; i < pitch; i++)
            if (staging[(size_t)r * pitch + i] != 0x99)
                verdict = certify_fail(k->c, "%s: download wrote between the rows", k->label);
    }
    free(staging);
    return verdict;
}

/* Cuts the tensor into a grid at random places and moves the cells in random order. */
static certify_verdict all_move(kept *k, bool is_upload) {
    enum { MAX_CUT = 5 };
    int64_t rows[MAX_CUT + 1], cols[MAX_CUT + 1];
    int64_t len = tdm_type_get_info(k->desc.type).block_len, n_block = k->desc.ne[0] / len;
    int order[MAX_CUT * MAX_CUT];
    for (int i = 0; i <= MAX_CUT; i++) {
        rows[i] = k->n_row * i / MAX_CUT;
        cols[i] = n_block * i / MAX_CUT * len;
        if (i > 0 && i < MAX_CUT) {
            rows[i] = certify_random_in(k->c, rows[i - 1], k->n_row);
            cols[i] = certify_random_in(k->c, cols[i - 1] / len, n_block) * len;
        }
    }
    for (int i = 0; i < MAX_CUT * MAX_CUT; i++) {
        int at = (int)certify_random_in(k->c, 0, i);
        order[i] = order[at];
        order[at] = i;
    }
    for (int i = 0; i < MAX_CUT * MAX_CUT; i++) {
        int r = order[i] / MAX_CUT, q = order[i] % MAX_CUT;
        certify_verdict verdict =
            part_move(k, is_upload, rows[r], rows[r + 1] - rows[r], cols[q], cols[q + 1] - cols[q]);
        if (verdict != CERTIFY_PASSED) return verdict;
    }
    return CERTIFY_PASSED;
}

static certify_verdict guards_judge(kept *k) {
    uint64_t total = k->size + 2 * k->guard;
    uint8_t *raw = malloc(total);
    if (raw == NULL) return certify_skip(k->c, "out of memory");
    certify_verdict verdict = CERTIFY_PASSED;
    if (k->c->plugin->buffer->download(k->buffer, 0, raw, total, NULL) != TDM_OK)
        verdict = certify_skip(k->c, "download failed");
    for (uint64_t i = 0; verdict == CERTIFY_PASSED && i < total; i++)
        if ((i < k->guard || i >= k->guard + k->size) && raw[i] != GUARD_BYTE)
            verdict = certify_fail(k->c, "%s: wrote outside its %llu bytes, at %lld", k->label,
                                   (unsigned long long)k->size, (long long)i - (long long)k->guard);
    free(raw);
    return verdict;
}

/* Small and odd shapes for a usage; len is the block length of the type. */
static void shape_make(uint32_t usage, int64_t len, int which, int64_t ne[4]) {
    static const int64_t rows[] = {1, 7, 33, 64};
    ne[0] = len == 1 ? (which == 0 ? 1 : 19 * which) : len * (1 + which);
    ne[1] = rows[which];
    ne[2] = usage == TDM_USAGE_EXPERT ? 3 : 1;
    ne[3] = 1;
}

static const uint32_t usages[] = {TDM_USAGE_MATMUL, TDM_USAGE_ROWS,
                                  TDM_USAGE_MATMUL | TDM_USAGE_ROWS, TDM_USAGE_EXPERT, 0};
enum { N_USAGE = sizeof usages / sizeof usages[0] };

typedef certify_verdict (*kept_fn)(kept *k);

/* Runs `judge` for every type, usage and shape that the open device supports. */
static certify_verdict all_judge(certify *c, kept_fn judge) {
    int n_kept = 0;
    certify_verdict verdict = skip_unless_private(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < n_certify_weight_types; i++)
        for (int u = 0; u < N_USAGE; u++)
            for (int which = 0; which < 4; which++) {
                kept k;
                int64_t ne[4];
                shape_make(usages[u], tdm_type_get_info(certify_weight_types[i]).block_len, which,
                           ne);
                verdict = kept_create(c, certify_weight_types[i], usages[u], ne, &k);
                if (verdict == CERTIFY_PASSED) n_kept++, verdict = judge(&k);
                kept_destroy(&k);
                if (verdict == CERTIFY_FAILED) return verdict;
            }
    return n_kept > 0 ? CERTIFY_PASSED : verdict;
}

static certify_verdict each(certify *c, kept_fn judge) {
    certify_verdict verdict = certify_open(c);
    return verdict == CERTIFY_PASSED ? all_judge(c, judge) : verdict;
}

static certify_verdict pieces_judge(kept *k) {
    certify_verdict verdict = all_move(k, true);
    if (verdict == CERTIFY_PASSED) verdict = all_move(k, false);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < k->row_size * (size_t)k->n_row; i++)
        if (k->back[i] != k->bytes[i])
            return certify_fail(k->c, "%s: byte %zu came back as %d, not %d", k->label, i,
                                k->back[i], k->bytes[i]);
    return CERTIFY_PASSED;
}

static certify_verdict pieces_check(certify *c) {
    return each(c, pieces_judge);
}

static certify_verdict bounds_judge(kept *k) {
    certify_verdict verdict = all_move(k, true);
    return verdict == CERTIFY_PASSED ? guards_judge(k) : verdict;
}

static certify_verdict bounds_check(certify *c) {
    return each(c, bounds_judge);
}

static certify_verdict size_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, tensor_size)) return certify_skip(c, "no slot tensor_size");
    tdm_tensor_desc desc = {sizeof desc, (tdm_type)63, TDM_USAGE_MATMUL, {64, 8, 1, 1}};
    uint64_t size = 12345, again = 0;
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = ops->tensor_size(c->device, &desc, &size, &err);
    if (status != TDM_UNSUPPORTED)
        return certify_fail(c, "type 63, which does not exist, returned '%s'",
                            tdm_status_text(status));
    if (err.message[0] == 0) return certify_fail(c, "refused type 63 without a reason");
    if (size != 12345) return certify_fail(c, "failed and wrote *size_out");
    for (size_t i = 0; i < n_certify_weight_types; i++)
        for (int u = 0; u < N_USAGE; u++) {
            desc = (tdm_tensor_desc){sizeof desc, certify_weight_types[i], usages[u], {0}};
            shape_make(usages[u], tdm_type_get_info(desc.type).block_len, 1, desc.ne);
            status = ops->tensor_size(c->device, &desc, &size, NULL);
            if (status == TDM_UNSUPPORTED) continue;
            if (status != TDM_OK || ops->tensor_size(c->device, &desc, &again, NULL) != TDM_OK)
                return certify_fail(c, "%s returned '%s'", tdm_type_name(desc.type),
                                    tdm_status_text(status));
            if (again != size)
                return certify_fail(c, "%s: %llu bytes, then %llu", tdm_type_name(desc.type),
                                    (unsigned long long)size, (unsigned long long)again);
            if (usages[u] == 0 && size != tdm_tensor_canonical_size(desc.type, desc.ne))
                return certify_fail(
                    c, "a plain %s tensor takes %llu bytes, not its canonical %llu",
                    tdm_type_name(desc.type), (unsigned long long)size,
                    (unsigned long long)tdm_tensor_canonical_size(desc.type, desc.ne));
        }
    return CERTIFY_PASSED;
}

typedef struct loader {
    kept *k;
    pthread_t thread;
    int64_t row, n_row;
    tdm_status status;
} loader;

static void *loader_main(void *arg) {
    loader *l = arg;
    kept *k = l->k;
    l->status = k->c->plugin->buffer->tensor_upload(
        k->buffer, k->guard, &k->desc, k->bytes + (size_t)l->row * k->row_size, k->row_size, l->row,
        l->n_row, 0, k->desc.ne[0], NULL);
    return NULL;
}

/* Four threads upload a quarter of the rows each, at the same time. */
static certify_verdict threads_judge(kept *k) {
    loader loaders[4];
    if (k->n_row < 8) return CERTIFY_PASSED;
    for (int i = 0; i < 4; i++) {
        int64_t first = k->n_row * i / 4, end = k->n_row * (i + 1) / 4;
        loaders[i] = (loader){.k = k, .row = first, .n_row = end - first};
        if (pthread_create(&loaders[i].thread, NULL, loader_main, &loaders[i]) != 0)
            return certify_skip(k->c, "cannot start threads");
    }
    for (int i = 0; i < 4; i++) pthread_join(loaders[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        if (loaders[i].status != TDM_OK)
            return certify_fail(k->c, "%s: tensor_upload from 4 threads failed", k->label);
    certify_verdict verdict = all_move(k, false);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (memcmp(k->back, k->bytes, k->row_size * (size_t)k->n_row) != 0)
        return certify_fail(k->c, "%s: loaded by 4 threads, other bytes came back", k->label);
    return CERTIFY_PASSED;
}

static certify_verdict threads_check(certify *c) {
    return each(c, threads_judge);
}

/* Uploads from the device's pinned memory, `rows` rows at a time, from two allocations in turn, as
 * the host does while it reads a file. An allocation is overwritten as soon as upload_finish has
 * returned for it. */
static certify_verdict pinned_upload(kept *k, uint8_t *const memory[2], int64_t rows) {
    const tdm_buffer_ops *ops = k->c->plugin->buffer;
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = TDM_OK;
    int i = 0;
    for (int64_t row = 0; row < k->n_row && status == TDM_OK; row += rows, i ^= 1) {
        int64_t n = rows < k->n_row - row ? rows : k->n_row - row;
        if (TDM_HAS(ops, upload_finish)) status = ops->upload_finish(k->c->device, memory[i], &err);
        if (status != TDM_OK) break;
        memset(memory[i], 0x99, (size_t)rows * k->row_size);
        memcpy(memory[i], k->bytes + (size_t)row * k->row_size, (size_t)n * k->row_size);
        status = ops->tensor_upload(k->buffer, k->guard, &k->desc, memory[i], k->row_size, row, n,
                                    0, k->desc.ne[0], &err);
    }
    if (status == TDM_OK && TDM_HAS(ops, upload_finish))
        status = ops->upload_finish(k->c->device, NULL, &err);
    for (i = 0; i < 2; i++) memset(memory[i], 0x99, (size_t)rows * k->row_size);
    if (status == TDM_OK) return CERTIFY_PASSED;
    return certify_fail(k->c, "%s: from pinned memory: %.300s", k->label, err.message);
}

static certify_verdict pinned_judge(kept *k) {
    const tdm_buffer_ops *ops = k->c->plugin->buffer;
    tdm_device_info info = {.struct_size = sizeof info};
    void *memory[2];
    (void)k->c->plugin->device->describe(k->c->instance, k->c->params->device,
                                         certify_options(k->c), &info, NULL);
    /* At least three pieces, also of a small tensor. */
    int64_t rows = k->row_size > 0 ? (int64_t)(info.upload_piece / k->row_size) : 1;
    if (rows > k->n_row / 3 || rows == 0) rows = k->n_row / 3 + 1;
    const uint64_t size = (uint64_t)rows * k->row_size + 1;
    for (int i = 0; i < 2; i++)
        if (ops->host_alloc(k->c->device, size, &memory[i], NULL) != TDM_OK)
            return certify_skip(k->c, "no pinned memory");
    certify_verdict verdict = pinned_upload(k, (uint8_t *const[2]){memory[0], memory[1]}, rows);
    for (int i = 0; i < 2; i++) ops->host_free(k->c->device, memory[i], size);
    if (verdict == CERTIFY_PASSED) verdict = all_move(k, false);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < k->row_size * (size_t)k->n_row; i++)
        if (k->back[i] != k->bytes[i])
            return certify_fail(k->c, "%s: from pinned memory: byte %zu came back as %d, not %d",
                                k->label, i, k->back[i], k->bytes[i]);
    return CERTIFY_PASSED;
}

static certify_verdict pinned_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (TDM_HAS(ops, upload_finish) && !TDM_HAS(ops, host_alloc))
        return certify_fail(c, "has upload_finish without host_alloc");
    if (!TDM_HAS(ops, host_alloc)) return certify_skip(c, "no slot host_alloc");
    return all_judge(c, pinned_judge);
}

static const certify_check checks[] = {
    {"tensor.size", 2,
     "buffer.h: tensor_size: \"A tensor whose type, shape or usage the device refuses gives "
     "TDM_UNSUPPORTED with the reason.\"; tensor.h: \"0 is a plain tensor: canonical bytes\"",
     size_check},
    {"tensor.pieces", 2,
     "buffer.h: tensor_upload: \"The parts may come in any order\"; tensor_download: \"gives back "
     "the canonical bytes that were uploaded\"",
     pieces_check},
    {"tensor.bounds", 2, "buffer.h: tensor_size: \"Bytes that a tensor takes on this device.\"",
     bounds_check},
    {"tensor.threads", 2,
     "buffer.h: tensor_upload: \"[any-thread], for parts that do not overlap\"", threads_check},
    {"tensor.pinned", 2,
     "buffer.h: upload_finish: \"This call waits until the device has read all that it was given "
     "from the allocation that `src` lies in; src NULL: until all parts of all tensors have "
     "arrived "
     "in their buffers.\"",
     pinned_check},
};
const certify_table certify_tensor_table = CERTIFY_SHARED_TABLE(checks);
