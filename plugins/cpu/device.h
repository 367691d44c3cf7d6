/* SPDX-License-Identifier: MIT
 *
 * device.h: the plugin's tables and what its frame shares: device.c, buffer.c, plan.c, queue.c.
 */
#ifndef TANDEM_CPU_DEVICE_H
#define TANDEM_CPU_DEVICE_H

#include <string.h>

#include "plugins/cpu/cpu.h"

enum {
    CPU_BUFFER_ALIGN = 64, /* of binding offsets and of every buffer */
    CPU_MAX_THREADS = 1024
};

struct tdm_instance {
    const tdm_host *host;
};

struct tdm_buffer {
    cpu_device *device;
    uint8_t *data;    /* NULL where size is 0 */
    uint64_t size;    /* bytes that callers may use */
    bool is_imported; /* the memory is the caller's */
};

extern const tdm_device_ops cpu_device_ops;
extern const tdm_buffer_ops cpu_buffer_ops;
extern const tdm_queue_ops cpu_queue_ops;
extern const tdm_split_ops cpu_split_ops;

/* The row of an op; NULL for views and for what this plugin does not run. [any-thread] */
const cpu_op_impl *cpu_op_find(int32_t op);

/* tdm_device_ops.supports_op (ops.c). [any-thread] */
tdm_status cpu_op_supports(const cpu_device *device, const tdm_graph *graph, int32_t node,
                           tdm_error *err);

/* Reads a parameter struct of the caller's, of whatever version, into ours: fields that it does not
 * have become 0. A struct_size of 0 means this version. */
static inline void cpu_struct_read(void *ours, size_t our_size, const void *theirs) {
    size_t n = 0;
    memset(ours, 0, our_size);
    if (theirs == NULL) return;
    memcpy(&n, theirs, sizeof n);
    memcpy(ours, theirs, n != 0 && n < our_size ? n : our_size);
}

/* Writes a result as far as the caller's struct goes, and leaves its struct_size alone. */
static inline void cpu_struct_write(void *theirs, const void *ours, size_t our_size) {
    size_t n = 0;
    memcpy(&n, theirs, sizeof n);
    if (n == 0 || n > our_size) n = our_size;
    if (n > sizeof n)
        memcpy((char *)theirs + sizeof n, (const char *)ours + sizeof n, n - sizeof n);
}

#endif
