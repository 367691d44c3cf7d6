/* SPDX-License-Identifier: MIT
 *
 * lent_buffer.c: see lent_buffer.h.
 */
#include "tests/model/lent_buffer.h"

#include "core/stages/adapter_internal.h"

void lent_buffer_sizes(const tdm_buffer *buffer, uint64_t *own_out, uint64_t *help_out) {
    *own_out = buffer->mem[LEND_MAIN].size;
    *help_out = buffer->mem[LEND_HELP].size;
}
