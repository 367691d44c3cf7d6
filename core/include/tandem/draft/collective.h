/* SPDX-License-Identifier: MIT
 *
 * draft/collective.h: reduces, gathers and peer copies that a plugin's own devices do among
 * themselves. A draft: no plugin provides the table and no group uses it. It may change or go in
 * any version, has no part in conformance, and is not counted in the version of the ABI. A plugin
 * may leave tdm_plugin.collective NULL.
 */
#ifndef TANDEM_DRAFT_COLLECTIVE_H
#define TANDEM_DRAFT_COLLECTIVE_H

#include "tandem/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tdm_comm tdm_comm; /* the plugin's: some of its own devices, in a fixed order */

struct tdm_collective_ops {
    size_t struct_size;

    /* Joins queues of `n` devices of this plugin; rank i is queues[i]. Released with
     * comm_destroy. [setup] */
    tdm_status (*comm_create)(tdm_queue *const *queues, int32_t n, tdm_comm **comm_out,
                              tdm_error *err);

    /* NULL is a no-op. [setup] */
    void (*comm_destroy)(tdm_comm *comm);

    /* Appends to every queue: out[i] = sum over ranks of in[i], `count` f32 elements, in and out
     * may be the same binding. [queue-serial] on every queue of the comm */
    tdm_status (*all_reduce)(tdm_comm *comm, const tdm_binding *in, const tdm_binding *out,
                             int64_t count, const tdm_point *waits, const tdm_point *signals,
                             tdm_error *err);

    /* Appends: out[i] holds the ranks' parts one after the other; sizes[i] is rank i's bytes, 0
     * allowed. [queue-serial] on every queue of the comm */
    tdm_status (*all_gather)(tdm_comm *comm, const tdm_binding *in, const tdm_binding *out,
                             const uint64_t *sizes, const tdm_point *waits,
                             const tdm_point *signals, tdm_error *err);

    /* Appends a copy from a buffer of one of the plugin's devices to one of another, without the
     * host. [queue-serial] */
    tdm_status (*peer_copy)(tdm_queue *queue, const tdm_binding *dst, const tdm_binding *src,
                            const tdm_point *waits, int32_t n_wait, const tdm_point *signals,
                            int32_t n_signal, tdm_error *err);

    /* Appends a release-store of `value` to a 64-bit word of an imported buffer. [queue-serial] */
    tdm_status (*queue_write_value)(tdm_queue *queue, tdm_buffer *buffer, uint64_t off,
                                    uint64_t value, tdm_error *err);

    /* Appends a wait until the word is >= value or the word at abort_off is not 0.
     * [queue-serial] */
    tdm_status (*queue_wait_value)(tdm_queue *queue, tdm_buffer *buffer, uint64_t off,
                                   uint64_t value, uint64_t abort_off, tdm_error *err);
};

#ifdef __cplusplus
}
#endif

#endif
