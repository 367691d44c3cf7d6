/* SPDX-License-Identifier: MIT
 *
 * buffer.h: memory of a device: what buffer.c allocates and plans read and write.
 */
#ifndef TANDEM_CPU_BUFFER_H
#define TANDEM_CPU_BUFFER_H

#include "plugins/cpu/cpu.h"

enum { CPU_BUFFER_ALIGN = 64 /* of binding offsets and of every buffer */ };

struct tdm_buffer {
    cpu_device *device;
    uint8_t *data;    /* NULL where size is 0 */
    uint64_t size;    /* bytes that callers may use */
    bool is_imported; /* the memory is the caller's */
};

extern const tdm_buffer_ops cpu_buffer_ops;

#endif
