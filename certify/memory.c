/* SPDX-License-Identifier: MIT
 *
 * memory.c: checks of the optional slots of buffers: copy, fill, host_pointer, import_host,
 * import_peer, host_alloc. Those for tensors are checked in tensor.c.
 */
#include <stdlib.h>
#include <string.h>

#include "certify/suite.h"

enum { SIZE = 4000 };

/* Two buffers of SIZE, filled with bytes[0] and bytes[1]. */
typedef struct two {
    tdm_buffer *buffers[2];
    uint8_t bytes[2][SIZE];
} two;

static certify_verdict two_open(certify *c, two *t) {
    certify_verdict verdict = CERTIFY_PASSED;
    for (int i = 0; verdict == CERTIFY_PASSED && i < 2; i++) {
        tdm_error err = {.struct_size = sizeof err};
        verdict = certify_alloc(c, SIZE, &t->buffers[i]);
        certify_random_bytes(c, t->bytes[i], SIZE);
        if (verdict == CERTIFY_PASSED &&
            c->plugin->buffer->upload(t->buffers[i], 0, t->bytes[i], SIZE, &err) != TDM_OK)
            verdict = certify_skip(c, "upload: %.300s", err.message);
    }
    return verdict;
}

static certify_verdict two_judge(certify *c, const two *t, const char *what) {
    uint8_t now[SIZE];
    for (int i = 0; i < 2; i++) {
        memset(now, 0, sizeof now);
        if (c->plugin->buffer->download(t->buffers[i], 0, now, SIZE, NULL) != TDM_OK)
            return certify_skip(c, "download failed");
        for (size_t k = 0; k < SIZE; k++)
            if (now[k] != t->bytes[i][k])
                return certify_fail(c, "%s: byte %zu of buffer %d is %d, not %d", what, k, i,
                                    now[k], t->bytes[i][k]);
    }
    return CERTIFY_PASSED;
}

static certify_verdict copy_check(certify *c) {
    two t;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, copy)) return certify_skip(c, "no slot copy");
    verdict = two_open(c, &t);
    for (int i = 0; verdict == CERTIFY_PASSED && i < 60; i++) {
        int64_t n = certify_random_in(c, 0, i % 2 ? SIZE : 30);
        int64_t from = certify_random_in(c, 0, SIZE - n), to = certify_random_in(c, 0, SIZE - n);
        int src = i % 2, dst = i / 2 % 2;
        if (src == dst && from < to + n && to < from + n) continue; /* must not overlap */
        if (ops->copy(t.buffers[dst], (uint64_t)to, t.buffers[src], (uint64_t)from, (uint64_t)n,
                      &err) != TDM_OK)
            return certify_fail(c, "%lld bytes: %.300s", (long long)n, err.message);
        memmove(t.bytes[dst] + to, t.bytes[src] + from, (size_t)n);
        verdict = two_judge(c, &t, "copy");
    }
    return verdict;
}

static certify_verdict copy_range_check(certify *c) {
    two t;
    static const uint64_t bad[][3] = {
        {0, 0, SIZE + 1}, {SIZE, 0, 1}, {0, SIZE, 1}, {8, UINT64_MAX, 8}, {UINT64_MAX, 8, 8}};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, copy)) return certify_skip(c, "no slot copy");
    verdict = two_open(c, &t);
    for (size_t i = 0; verdict == CERTIFY_PASSED && i < sizeof bad / sizeof bad[0]; i++) {
        if (ops->copy(t.buffers[0], bad[i][0], t.buffers[1], bad[i][1], bad[i][2], NULL) == TDM_OK)
            return certify_fail(c, "%llu bytes from %llu to %llu of %d were copied",
                                (unsigned long long)bad[i][2], (unsigned long long)bad[i][1],
                                (unsigned long long)bad[i][0], (int)SIZE);
        verdict = two_judge(c, &t, "a refused copy");
    }
    return verdict;
}

static certify_verdict fill_check(certify *c) {
    two t;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, fill)) return certify_skip(c, "no slot fill");
    verdict = two_open(c, &t);
    for (int i = 0; verdict == CERTIFY_PASSED && i < 60; i++) {
        int64_t n = certify_random_in(c, 0, i % 2 ? SIZE : 30);
        int64_t off = certify_random_in(c, 0, SIZE - n);
        uint8_t byte = (uint8_t)certify_random_in(c, 0, 255);
        if (ops->fill(t.buffers[0], (uint64_t)off, (uint64_t)n, byte, &err) != TDM_OK)
            return certify_fail(c, "%lld bytes at %lld: %.300s", (long long)n, (long long)off,
                                err.message);
        memset(t.bytes[0] + off, byte, (size_t)n);
        verdict = two_judge(c, &t, "fill");
    }
    if (verdict != CERTIFY_PASSED) return verdict;
    if (ops->fill(t.buffers[0], SIZE - 3, 4, 1, NULL) == TDM_OK ||
        ops->fill(t.buffers[0], UINT64_MAX, 4, 1, NULL) == TDM_OK)
        return certify_fail(c, "filled a range that is not inside the buffer");
    return two_judge(c, &t, "a refused fill");
}

/* Checks one kind of access to a buffer. Sets *has_address where the device gives an address. */
static certify_verdict access_check(certify *c, tdm_buffer *buffer, uint32_t access,
                                    const char *purpose, bool *has_address) {
    const tdm_buffer_ops *ops = c->plugin->buffer;
    uint8_t bytes[SIZE], got[SIZE];
    tdm_error err = {.struct_size = sizeof err};
    uint8_t *at = ops->host_pointer(buffer, access);
    if (at == NULL) return CERTIFY_PASSED;
    *has_address = true;
    certify_random_bytes(c, bytes, SIZE);
    if (ops->upload(buffer, 0, bytes, SIZE, &err) != TDM_OK)
        return certify_fail(c, "%s: %.300s", purpose, err.message);
    if ((access & TDM_ACCESS_READ) != 0 && memcmp(at, bytes, SIZE) != 0)
        return certify_fail(c, "%s: uploaded bytes are not at the address", purpose);
    if ((access & TDM_ACCESS_WRITE) != 0) {
        certify_random_bytes(c, bytes, SIZE);
        memcpy(at, bytes, SIZE);
        if (ops->download(buffer, 0, got, SIZE, &err) != TDM_OK)
            return certify_fail(c, "%s: %.300s", purpose, err.message);
        if (memcmp(got, bytes, SIZE) != 0)
            return certify_fail(c, "%s: bytes written at the address are not in the buffer",
                                purpose);
    }
    if (ops->host_pointer(buffer, access) != at)
        return certify_fail(c, "%s: returned two different addresses", purpose);
    return CERTIFY_PASSED;
}

static certify_verdict pointer_check(certify *c) {
    static const struct {
        int32_t purpose;
        const char *name;
    } kinds[] = {{TDM_BUFFER_ANY, "a buffer"},
                 {TDM_BUFFER_INPUT, "an input buffer"},
                 {TDM_BUFFER_OUTPUT, "an output buffer"}};
    bool has_address = false;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, host_pointer)) return certify_skip(c, "no slot host_pointer");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        tdm_buffer_params params = {sizeof params, SIZE, kinds[i].purpose, 0, NULL};
        tdm_error err = {.struct_size = sizeof err};
        tdm_buffer *buffer = NULL;
        if (ops->alloc(c->device, &params, &buffer, &err) != TDM_OK)
            return certify_fail(c, "%s: %.300s", kinds[i].name, err.message);
        for (uint32_t access = TDM_ACCESS_READ;
             access <= (TDM_ACCESS_READ | TDM_ACCESS_WRITE) && verdict == CERTIFY_PASSED; access++)
            verdict = access_check(c, buffer, access, kinds[i].name, &has_address);
        if (verdict != CERTIFY_PASSED) return verdict;
        ops->free(buffer);
    }
    return has_address ? CERTIFY_PASSED
                       : certify_skip(c, "the device's buffers have no host address");
}

/* Imports the middle of a range of page-aligned host memory. */
static certify_verdict import_check(certify *c) {
    enum { PAGE = 65536 };
    struct {
        tdm_import_info info;
        uint8_t more[32];
    } told;
    tdm_error err = {.struct_size = sizeof err};
    tdm_buffer *buffer = NULL;
    uint8_t bytes[PAGE];
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, import_host)) return certify_skip(c, "no slot import_host");
    if (certify_import_align(c) > PAGE)
        return certify_skip(c, "import_align is above %d", (int)PAGE);
    uint8_t *memory = aligned_alloc(PAGE, 3 * PAGE);
    if (memory == NULL) return certify_skip(c, "out of memory");
    memset(memory, 0x3c, 3 * PAGE);
    certify_random_bytes(c, memory + PAGE, PAGE);
    memset(&told, 0xee, sizeof told);
    told.info.struct_size = sizeof told;
    tdm_status status = ops->import_host(c->device, memory + PAGE, PAGE, &told.info, &buffer, &err);
    if (status == TDM_UNSUPPORTED) return certify_skip(c, "%.300s", err.message);
    if (status != TDM_OK) return certify_fail(c, "%s", err.message);
    for (size_t i = 0; i < sizeof told.more; i++)
        if (told.more[i] != 0xee) return certify_fail(c, "wrote behind its own tdm_import_info");
    if (ops->download(buffer, 0, bytes, PAGE, &err) != TDM_OK ||
        memcmp(bytes, memory + PAGE, PAGE) != 0)
        return certify_fail(c, "the device does not see what the host wrote: %.200s", err.message);
    certify_random_bytes(c, bytes, PAGE);
    if (ops->upload(buffer, 0, bytes, PAGE, &err) != TDM_OK)
        return certify_fail(c, "upload: %.300s", err.message);
    ops->free(buffer);
    if (memcmp(bytes, memory + PAGE, PAGE) != 0)
        return certify_fail(c, "the host does not see what was uploaded");
    for (size_t i = 0; i < PAGE; i++)
        if (memory[i] != 0x3c || memory[2 * PAGE + i] != 0x3c)
            return certify_fail(c, "wrote outside the imported range");
    free(memory); /* it still belongs to the caller: a double free would be detected */
    buffer = NULL;
    memory = aligned_alloc(PAGE, PAGE);
    if (memory == NULL) return certify_skip(c, "out of memory");
    if (ops->import_host(c->device, memory, PAGE, NULL, &buffer, &err) != TDM_OK)
        return certify_fail(c, "with info_out NULL: %.300s", err.message);
    ops->free(buffer);
    free(memory);
    return CERTIFY_PASSED;
}

/* import_align of the open device; a failure where it is no power of two. */
static certify_verdict import_align_get(certify *c, uint64_t *align_out) {
    tdm_device_info info = {.struct_size = sizeof info};
    tdm_error err = {.struct_size = sizeof err};
    if (certify_device_info(c, &info, &err) != TDM_OK)
        return certify_skip(c, "get_info: %.300s", err.message);
    const uint64_t align = certify_import_align(c);
    if ((align & (align - 1)) != 0)
        return certify_fail(c, "import_align is %llu, which is no power of two",
                            (unsigned long long)align);
    *align_out = align;
    return CERTIFY_PASSED;
}

/* Imports import_align bytes, the least that is allowed, at an odd multiple of import_align. */
static certify_verdict import_align_check(certify *c) {
    uint64_t align = 0;
    tdm_error err = {.struct_size = sizeof err};
    tdm_buffer *buffer = NULL;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, import_host)) return certify_skip(c, "no slot import_host");
    verdict = import_align_get(c, &align);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (align > (uint64_t)1 << 30) return certify_skip(c, "import_align is above a gigabyte");
    uint8_t *memory = aligned_alloc(2 * align, 4 * align);
    if (memory == NULL) return certify_skip(c, "out of memory");
    uint8_t *part = memory + align, *bytes = memory + 3 * align;
    memset(memory, 0x3c, 4 * align);
    certify_random_bytes(c, part, align);
    tdm_status status = ops->import_host(c->device, part, align, NULL, &buffer, &err);
    if (status == TDM_UNSUPPORTED) {
        uint8_t *coarse = aligned_alloc(65536, 65536);
        if (coarse == NULL) return certify_skip(c, "out of memory");
        if (ops->import_host(c->device, coarse, 65536, NULL, &buffer, NULL) == TDM_OK)
            return certify_fail(c, "imports 65536 bytes and not import_align = %llu: %.200s",
                                (unsigned long long)align, err.message);
        return certify_skip(c, "%.300s", err.message);
    }
    if (status != TDM_OK)
        return certify_fail(c, "%llu bytes at a multiple of import_align: %.300s",
                            (unsigned long long)align, err.message);
    if (ops->download(buffer, 0, bytes, align, &err) != TDM_OK || memcmp(bytes, part, align) != 0)
        return certify_fail(c, "the device does not see what the host wrote: %.200s", err.message);
    ops->free(buffer);
    free(memory);
    return CERTIFY_PASSED;
}

static certify_verdict host_alloc_check(certify *c) {
    enum { N = 5 };
    static const uint64_t sizes[N] = {1, 4096, 4097, 100000, (uint64_t)3 << 20};
    uint8_t *at[N];
    uint64_t align = 0;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (TDM_HAS(ops, host_alloc) != TDM_HAS(ops, host_free))
        return certify_fail(c, "has one of host_alloc and host_free");
    if (!TDM_HAS(ops, host_alloc)) return certify_skip(c, "no slot host_alloc");
    verdict = import_align_get(c, &align);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (align < 4096) align = 4096;
    for (int i = 0; i < N; i++) {
        void *ptr = NULL;
        if (ops->host_alloc(c->device, sizes[i], &ptr, &err) != TDM_OK)
            return certify_fail(c, "%llu bytes: %.300s", (unsigned long long)sizes[i], err.message);
        if (ptr == NULL || (uintptr_t)ptr % align != 0)
            return certify_fail(c, "%llu bytes at %p, which is no multiple of %llu",
                                (unsigned long long)sizes[i], ptr, (unsigned long long)align);
        at[i] = ptr;
        memset(at[i], i + 1, sizes[i]);
    }
    for (int i = 0; i < N; i++) {
        for (uint64_t k = 0; k < sizes[i]; k++)
            if (at[i][k] != i + 1)
                return certify_fail(c, "byte %llu of %llu changed when other memory was written",
                                    (unsigned long long)k, (unsigned long long)sizes[i]);
        ops->host_free(c->device, at[i], sizes[i]);
    }
    ops->host_free(c->device, NULL, 0);
    void *const before = c;
    void *none = before;
    verdict = certify_expect(c, "all the memory that an address can name",
                             ops->host_alloc(c->device, UINT64_MAX / 2, &none, &err),
                             TDM_RESOURCE_EXHAUSTED);
    if (verdict == CERTIFY_PASSED && none != before)
        return certify_fail(c, "failed and wrote *ptr_out");
    return verdict;
}

/* Uploads random bytes through one buffer; a download through the other must return them. */
static certify_verdict bytes_pass(certify *c, tdm_buffer *from, tdm_buffer *to, const char *what) {
    enum { LEN = 4096 };
    const tdm_buffer_ops *ops = c->plugin->buffer;
    uint8_t bytes[LEN], got[LEN];
    tdm_error err = {.struct_size = sizeof err};
    for (uint64_t off = 0; off + LEN <= 3 * LEN; off += LEN) {
        certify_random_bytes(c, bytes, LEN);
        if (ops->upload(from, off, bytes, LEN, &err) != TDM_OK ||
            ops->download(to, off, got, LEN, &err) != TDM_OK)
            return certify_fail(c, "%s: %.300s", what, err.message);
        if (memcmp(bytes, got, LEN) != 0)
            return certify_fail(c, "%s: bytes written through one buffer are not in the other",
                                what);
    }
    return certify_expect(c, "bytes past the end", ops->download(to, 3 * LEN - 1, got, 2, &err),
                          TDM_OUT_OF_RANGE);
}

static certify_verdict peer_check(certify *c) {
    const tdm_buffer_params params = {sizeof params, 3 * 4096, TDM_BUFFER_ARENA, 0, NULL};
    tdm_error err = {.struct_size = sizeof err};
    tdm_buffer *home = NULL, *import = NULL;
    tdm_device *other = NULL;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, import_peer)) return certify_skip(c, "no slot import_peer");
    verdict = certify_open_next(c, &other);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (ops->alloc(c->device, &params, &home, &err) != TDM_OK)
        return certify_fail(c, "a buffer of purpose ARENA: %.300s", err.message);
    tdm_status status = ops->import_peer(other, home, &import, &err);
    if (status == TDM_UNSUPPORTED) return certify_skip(c, "%.300s", err.message);
    if (status != TDM_OK) return certify_fail(c, "%.300s", err.message);
    verdict = bytes_pass(c, home, import, "from the home to the import");
    if (verdict == CERTIFY_PASSED) verdict = bytes_pass(c, import, home, "from the import");
    if (verdict != CERTIFY_PASSED) return verdict;
    ops->free(import);
    verdict = bytes_pass(c, home, home, "after the import was freed");
    ops->free(home);
    c->plugin->device->close(other);
    return verdict;
}

static const certify_check checks[] = {
    {"memory.copy", 2, "buffer.h: copy: \"Copies inside one device; the ranges must not overlap.\"",
     copy_check},
    {"memory.copy-range", 2,
     "status.h: TDM_OUT_OF_RANGE: \"past the end of something: a buffer, a context, a cache\"; "
     "buffer.h: copy",
     copy_range_check},
    {"memory.fill", 2, "buffer.h: fill: \"Sets every byte of a range.\"", fill_check},
    {"memory.host-pointer", 2,
     "buffer.h: host_pointer: \"The address at which the host may do `access` […] to the buffer "
     "while "
     "no queue uses it, valid until free.\"",
     pointer_check},
    {"memory.import", 2,
     "buffer.h: import_host: \"The memory stays the caller's and must outlive the buffer. "
     "*info_out (nullable) reports what was probed.\"",
     import_check},
    {"memory.import-align", 2,
     "device.h: import_align: \"of address and size of what import_host takes, a power of two\"",
     import_align_check},
    {"memory.host-alloc", 2,
     "buffer.h: host_alloc: \"The start is a multiple of 4096 and of import_align. […] *ptr_out is "
     "set on TDM_OK only; released with host_free.\"",
     host_alloc_check},
    {"memory.peer", 2,
     "buffer.h: import_peer: \"both then name the same bytes, without a copy between them. Uploads "
     "and "
     "downloads through either reach them\"",
     peer_check},
};
const certify_table certify_memory_table = CERTIFY_SHARED_TABLE(checks);
