/* SPDX-License-Identifier: MIT
 *
 * buffer.c: checks of the slots that every plugin has: alloc, free, upload, download. The optional
 * slots are checked in memory.c and tensor.c.
 */
#include "certify/suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 5000 }; /* of most test buffers: no power of two, more than a page */

static certify_verdict call_judge(certify *c, const char *what, tdm_status status,
                                  const tdm_error *err) {
    if (status == TDM_OK) return CERTIFY_PASSED;
    return certify_fail(c, "%s: %.400s", what, err->message);
}

/* Makes a buffer of SIZE random bytes and copies them to bytes[]. */
static certify_verdict filled(certify *c, uint8_t bytes[SIZE], tdm_buffer **buffer_out) {
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict == CERTIFY_PASSED) verdict = certify_alloc(c, SIZE, buffer_out);
    if (verdict != CERTIFY_PASSED) return verdict;
    certify_random_bytes(c, bytes, SIZE);
    return call_judge(c, "upload", c->plugin->buffer->upload(*buffer_out, 0, bytes, SIZE, &err),
                      &err);
}

static certify_verdict content_judge(certify *c, tdm_buffer *buffer, const uint8_t bytes[SIZE],
                                     const char *what) {
    uint8_t now[SIZE];
    tdm_error err = {.struct_size = sizeof err};
    memset(now, 0, sizeof now);
    certify_verdict verdict =
        call_judge(c, "download", c->plugin->buffer->download(buffer, 0, now, SIZE, &err), &err);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < SIZE; i++)
        if (now[i] != bytes[i]) return certify_fail(c, "%s: byte %zu is wrong", what, i);
    return CERTIFY_PASSED;
}

static certify_verdict transfer_check(certify *c) {
    uint8_t bytes[SIZE], part[SIZE + 2];
    tdm_buffer *buffer;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = filled(c, bytes, &buffer);
    if (verdict == CERTIFY_PASSED) verdict = content_judge(c, buffer, bytes, "all at once");
    for (int i = 0; verdict == CERTIFY_PASSED && i < 200; i++) { /* odd places and lengths */
        size_t off = (size_t)certify_random_in(c, 0, SIZE);
        size_t n = (size_t)certify_random_in(c, 0, i % 2 ? 40 : SIZE);
        if (n > SIZE - off) n = SIZE - off;
        certify_random_bytes(c, bytes + off, n);
        verdict = call_judge(c, "upload",
                             c->plugin->buffer->upload(buffer, off, bytes + off, n, &err), &err);
        if (verdict != CERTIFY_PASSED) return verdict;
        memset(part, 0x5a, sizeof part);
        off = (size_t)certify_random_in(c, 0, SIZE);
        n = (size_t)certify_random_in(c, 0, (int64_t)(SIZE - off));
        verdict = call_judge(c, "download",
                             c->plugin->buffer->download(buffer, off, part + 1, n, &err), &err);
        if (verdict == CERTIFY_PASSED &&
            (memcmp(part + 1, bytes + off, n) != 0 || part[0] != 0x5a || part[n + 1] != 0x5a))
            return certify_fail(c, "download of %zu bytes at %zu: wrong bytes", n, off);
    }
    if (verdict == CERTIFY_PASSED) verdict = content_judge(c, buffer, bytes, "piece by piece");
    if (verdict == CERTIFY_PASSED) c->plugin->buffer->free(buffer);
    return verdict;
}

/* Offsets and sizes that are not inside a buffer of SIZE, some only because a sum wraps. */
static const struct {
    uint64_t off, size;
} bad_ranges[] = {
    {0, SIZE + 1},
    {SIZE, 1},
    {SIZE - 1, 2},
    {1, UINT64_MAX},
    {UINT64_MAX, 1},
    {UINT64_MAX - 1, 4},
    {(uint64_t)1 << 63, (uint64_t)1 << 63},
};
enum { N_BAD = sizeof bad_ranges / sizeof bad_ranges[0] };

static certify_verdict upload_range_check(certify *c) {
    uint8_t bytes[SIZE], other[SIZE + 8];
    tdm_buffer *buffer;
    certify_verdict verdict = filled(c, bytes, &buffer);
    memset(other, 0x11, sizeof other);
    for (int i = 0; verdict == CERTIFY_PASSED && i < N_BAD; i++) {
        char what[96];
        snprintf(what, sizeof what, "upload of %llu bytes at %llu of %d",
                 (unsigned long long)bad_ranges[i].size, (unsigned long long)bad_ranges[i].off,
                 (int)SIZE);
        verdict = certify_expect(
            c, what,
            c->plugin->buffer->upload(buffer, bad_ranges[i].off, other, bad_ranges[i].size, NULL),
            TDM_OUT_OF_RANGE);
        if (verdict == CERTIFY_PASSED) verdict = content_judge(c, buffer, bytes, what);
    }
    return verdict;
}

static certify_verdict download_range_check(certify *c) {
    uint8_t bytes[SIZE], other[SIZE + 8];
    tdm_buffer *buffer;
    certify_verdict verdict = filled(c, bytes, &buffer);
    for (int i = 0; verdict == CERTIFY_PASSED && i < N_BAD; i++) {
        char what[96];
        snprintf(what, sizeof what, "download of %llu bytes at %llu of %d",
                 (unsigned long long)bad_ranges[i].size, (unsigned long long)bad_ranges[i].off,
                 (int)SIZE);
        memset(other, 0x11, sizeof other);
        verdict = certify_expect(
            c, what,
            c->plugin->buffer->download(buffer, bad_ranges[i].off, other, bad_ranges[i].size, NULL),
            TDM_OUT_OF_RANGE);
        for (size_t k = 0; verdict == CERTIFY_PASSED && k < sizeof other; k++)
            if (other[k] != 0x11) return certify_fail(c, "%s failed and wrote to dst", what);
    }
    return verdict;
}

static certify_verdict zero_check(certify *c) {
    const tdm_buffer_ops *ops;
    tdm_buffer *buffer = NULL;
    uint8_t byte = 7;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict == CERTIFY_PASSED) verdict = certify_alloc(c, 0, &buffer);
    if (verdict != CERTIFY_PASSED) return verdict;
    ops = c->plugin->buffer;
    verdict = call_judge(c, "upload of nothing", ops->upload(buffer, 0, &byte, 0, &err), &err);
    if (verdict == CERTIFY_PASSED)
        verdict =
            call_judge(c, "download of nothing", ops->download(buffer, 0, &byte, 0, &err), &err);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (ops->upload(buffer, 0, &byte, 1, NULL) == TDM_OK)
        return certify_fail(c, "a buffer of 0 bytes took one");
    ops->free(buffer);
    return CERTIFY_PASSED;
}

static certify_verdict oversize_check(certify *c) {
    tdm_device_info info = {.struct_size = sizeof info};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->plugin->device->describe(c->instance, c->params->device, certify_options(c), &info,
                                    NULL) != TDM_OK)
        info.memory_total = 0;
    const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 63, (uint64_t)1 << 63, (uint64_t)1 << 60,
                              info.memory_total < (uint64_t)1 << 50 ? info.memory_total * 8 : 0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        tdm_buffer_params params = {sizeof params, sizes[i], TDM_BUFFER_WEIGHT};
        tdm_buffer *const before = (tdm_buffer *)(void *)c, *buffer = before;
        tdm_error err = {.struct_size = sizeof err};
        char what[64];
        if (sizes[i] == 0) continue; /* the device does not report its memory */
        snprintf(what, sizeof what, "alloc of %llu bytes", (unsigned long long)sizes[i]);
        verdict =
            certify_expect(c, what, c->plugin->buffer->alloc(c->device, &params, &buffer, &err),
                           TDM_RESOURCE_EXHAUSTED);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (buffer != before) return certify_fail(c, "%s failed and wrote *buffer_out", what);
        if (strpbrk(err.message, "0123456789") == NULL)
            return certify_fail(c, "%s: the message has no sizes: \"%.200s\"", what, err.message);
        verdict = certify_alloc(c, SIZE, &buffer);
        if (verdict != CERTIFY_PASSED) return verdict;
        c->plugin->buffer->free(buffer);
    }
    return CERTIFY_PASSED;
}

static certify_verdict free_null_check(certify *c) {
    certify_verdict verdict = certify_load(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    c->plugin->buffer->free(NULL);
    return CERTIFY_PASSED;
}

/* The struct of an earlier caller ends before `purpose`; that of a later caller has more fields. */
static certify_verdict params_check(certify *c) {
    struct {
        tdm_buffer_params params;
        uint8_t more[32];
    } later;
    tdm_buffer *buffer = NULL;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_buffer_params earlier = {offsetof(tdm_buffer_params, purpose), SIZE, -77};
    if (c->plugin->buffer->alloc(c->device, &earlier, &buffer, &err) != TDM_OK)
        return certify_fail(c, "read `purpose` behind the struct_size: %.200s", err.message);
    c->plugin->buffer->free(buffer);
    memset(&later, 0xee, sizeof later);
    later.params = (tdm_buffer_params){sizeof later, SIZE, TDM_BUFFER_ANY};
    if (c->plugin->buffer->alloc(c->device, &later.params, &buffer, &err) != TDM_OK)
        return certify_fail(c, "refused a larger struct: %.200s", err.message);
    c->plugin->buffer->free(buffer);
    for (int32_t purpose = TDM_BUFFER_ANY; purpose <= TDM_BUFFER_ARENA; purpose++) {
        tdm_buffer_params params = {sizeof params, SIZE, purpose};
        if (c->plugin->buffer->alloc(c->device, &params, &buffer, &err) != TDM_OK)
            return certify_fail(c, "purpose %d: %.200s", (int)purpose, err.message);
        c->plugin->buffer->free(buffer);
    }
    return CERTIFY_PASSED;
}

static certify_verdict apart_check(certify *c) {
    enum { N = 20 };
    tdm_buffer *buffers[N];
    uint8_t bytes[SIZE];
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    for (int i = 0; verdict == CERTIFY_PASSED && i < N; i++) {
        verdict = certify_alloc(c, SIZE, &buffers[i]);
        memset(bytes, i + 1, SIZE);
        if (verdict == CERTIFY_PASSED)
            verdict = call_judge(c, "upload",
                                 c->plugin->buffer->upload(buffers[i], 0, bytes, SIZE, &err), &err);
    }
    for (int i = 0; verdict == CERTIFY_PASSED && i < N; i++) {
        memset(bytes, i + 1, SIZE);
        verdict = content_judge(c, buffers[i], bytes, "writing to another buffer");
        c->plugin->buffer->free(buffers[i]);
    }
    return verdict;
}

typedef struct worker {
    certify *c;
    pthread_t thread;
    uint8_t seed;
    const char *wrong; /* NULL = no failure */
} worker;

static void *worker_main(void *arg) {
    worker *w = arg;
    const tdm_buffer_ops *ops = w->c->plugin->buffer;
    uint8_t in[SIZE], out[SIZE];
    for (int i = 0; i < 50 && w->wrong == NULL; i++) {
        tdm_buffer_params params = {sizeof params, SIZE, TDM_BUFFER_ANY};
        tdm_buffer *buffer = NULL;
        memset(in, w->seed + i, sizeof in);
        memset(out, 0, sizeof out);
        if (ops->alloc(w->c->device, &params, &buffer, NULL) != TDM_OK)
            w->wrong = "alloc failed";
        else if (ops->upload(buffer, 0, in, SIZE, NULL) != TDM_OK ||
                 ops->download(buffer, 0, out, SIZE, NULL) != TDM_OK)
            w->wrong = "a transfer failed";
        else if (memcmp(in, out, SIZE) != 0)
            w->wrong = "bytes of another thread arrived";
        ops->free(buffer);
    }
    return NULL;
}

static certify_verdict threads_check(certify *c) {
    worker workers[4];
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.c = c, .seed = (uint8_t)(i * 60)};
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
            return certify_skip(c, "cannot start threads");
    }
    for (int i = 0; i < 4; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < 4; i++)
        if (workers[i].wrong != NULL)
            return certify_fail(c, "from 4 threads: %s", workers[i].wrong);
    return CERTIFY_PASSED;
}

static const certify_check checks[] = {
    {"buffer.transfer", 0,
     "buffer.h: \"Upload, download, copy and fill are synchronous: on return the bytes are "
     "there.\"",
     transfer_check},
    {"buffer.upload-range", 0,
     "buffer.h: upload: \"A range that is not inside the buffer gives TDM_OUT_OF_RANGE and changes "
     "nothing.\"",
     upload_range_check},
    {"buffer.download-range", 0,
     "buffer.h: download: \"Copies buffer[off .. off+size] to host memory; as upload.\"",
     download_range_check},
    {"buffer.zero", 0,
     "buffer.h: tdm_buffer_params: size: \"0 is allowed and gives a buffer that holds nothing\"",
     zero_check},
    {"buffer.oversize", 0,
     "buffer.h: alloc: \"Not enough memory gives TDM_RESOURCE_EXHAUSTED with the sizes requested "
     "and free, and leaves the device usable.\"",
     oversize_check},
    {"buffer.free-null", 0, "buffer.h: free: \"Frees; NULL is a no-op.\"", free_null_check},
    {"buffer.params-size", 0, "plugin.h: \"a reader uses no field beyond it [struct_size]\"",
     params_check},
    {"buffer.apart", 0, "buffer.h: \"A buffer is a range of bytes on one device.\"", apart_check},
    {"buffer.threads", 0,
     "plugin.h: \"[any-thread] at any time, from any thread, also at once\"; buffer.h: alloc, "
     "free, upload, download",
     threads_check},
};
const certify_table certify_buffer_table = CERTIFY_SHARED_TABLE(checks);
