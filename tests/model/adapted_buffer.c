/* SPDX-License-Identifier: MIT
 *
 * adapted_buffer.c: see adapted_buffer.h.
 */
#include "tests/model/adapted_buffer.h"

#include "core/stages/adapter_internal.h"

void adapted_buffer_sizes(const tdm_buffer *buffer, uint64_t *main_out, uint64_t *fallback_out) {
    *main_out = buffer->mem[ADAPTER_MAIN].size;
    *fallback_out = buffer->mem[ADAPTER_FALLBACK].size;
}
