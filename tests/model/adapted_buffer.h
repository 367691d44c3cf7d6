/* SPDX-License-Identifier: MIT
 *
 * adapted_buffer.h: on which side a buffer of an adapted device lies
 * (core/stages/adapter_internal.h, whose handles have the same name as a group's).
 */
#ifndef TANDEM_TESTS_ADAPTED_BUFFER_H
#define TANDEM_TESTS_ADAPTED_BUFFER_H

#include "tandem/buffer.h"

/* Bytes in the device's own memory and in that of the fallback. The buffer is of a device that has
 * an adapter. */
void adapted_buffer_sizes(const tdm_buffer *buffer, uint64_t *main_out, uint64_t *fallback_out);

#endif
