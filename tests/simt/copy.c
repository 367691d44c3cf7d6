/* SPDX-License-Identifier: MIT
 *
 * copy.c: copies and fills, which streams execute.
 */
#include "tests/simt/stream.h"

/* What the stream's device reaches at an address; NULL = a fault (simt_peer_address). */
static void *reach(const simt_stream *s, const void *at) {
    uint64_t address = (uint64_t)(uintptr_t)at;
    if (s != NULL) address = simt_peer_address(simt_device_of(s->context), address, false);
    return (void *)(uintptr_t)address;
}

static rt_result copy_give(void *stream_handle, void *dst, const void *src, size_t size) {
    const simt_command c = {.kind = COMMAND_COPY,
                            .dst = reach(stream_handle, dst),
                            .src = reach(stream_handle, src),
                            .size = size};
    if (c.dst == NULL || c.src == NULL) return RT_INVALID_VALUE;
    return simt_command_give(stream_handle, &c);
}

rt_result simt_copy_in(uint64_t dst, const void *src, size_t size, void *stream_handle) {
    CALL(copy_in, true);
    return copy_give(stream_handle, (void *)(uintptr_t)dst, src, size);
}

rt_result simt_copy_out(void *dst, uint64_t src, size_t size, void *stream_handle) {
    CALL(copy_out, true);
    return copy_give(stream_handle, dst, (const void *)(uintptr_t)src, size);
}

rt_result simt_copy_inside(uint64_t dst, uint64_t src, size_t size, void *stream_handle) {
    CALL(copy_inside, true);
    return copy_give(stream_handle, (void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size);
}

rt_result simt_fill(uint64_t dst, unsigned char byte, size_t size, void *stream_handle) {
    CALL(fill, true);
    const simt_command c = {.kind = COMMAND_FILL,
                            .dst = reach(stream_handle, (void *)(uintptr_t)dst),
                            .byte = byte,
                            .size = size};
    if (c.dst == NULL) return RT_INVALID_VALUE;
    return simt_command_give(stream_handle, &c);
}
