/* SPDX-License-Identifier: MIT
 *
 * lent_buffer.h: on which side a buffer of a lent device lies (core/stages/adapter_internal.h, whose handles
 * have the same name as a group's).
 */
#ifndef TANDEM_TESTS_LENT_BUFFER_H
#define TANDEM_TESTS_LENT_BUFFER_H

#include "tandem/buffer.h"

/* Bytes in the device's own memory and with the CPU that helps it out. The buffer is of a device
 * that was not lent as it is. */
void lent_buffer_sizes(const tdm_buffer *buffer, uint64_t *own_out, uint64_t *help_out);

#endif
