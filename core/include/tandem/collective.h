/* SPDX-License-Identifier: MIT
 *
 * collective.h: what a plugin may offer so that its devices exchange data quickly. All optional:
 * a group moves everything through the host where a member offers nothing.
 *
 * The shared arena is host memory that the group imported into every member (import_host). Its
 * first word (64 bits) is the abort word. Each exchange has n_member flag words, 64 bytes apart,
 * and data. A flag is epoch * 2^32 + the number of chunks published, and only grows; the epoch is
 * the `epoch` of the step header (step.h) that the node is given, as an unsigned 32-bit number, and
 * grows by one from run to run of the group. Values of a flag are compared by their signed
 * difference, so that the epoch may wrap; all flags are 0 before the first run, whose epoch is
 * therefore less than 2^31.
 *
 * A sum is done in chunks of TDM_EXCHANGE_CHUNK elements of the addend in canonical order: the last
 * one may be shorter, and a sum of nothing has one empty chunk. A GATHER is one chunk. For an
 * EXCHANGE, for chunk c = 0, 1, ..., member d
 *   1. where it is a sender: writes its addend's chunk, converted to wire_type, to its place in the
 *      arena (blocks of a quantised wire type are filled up with zeros); its part, for a GATHER;
 *   2. releases epoch * 2^32 + c + 1 into flag word d, sender or not;
 *   3. waits, with a bounded spin, until every flag of the n_member holds at least that; the abort
 *      word, when it is not 0, fails the plan with TDM_CANCELLED, flags or not; running out of
 *      patience (TDM_EXCHANGE_PATIENCE_NS for one wait) fails it with TDM_DEADLINE_EXCEEDED and a
 *      message that names stage and member;
 *   4. sums the chunk as it crossed the wire, its own included, in member order, in f32, each
 *      addition rounded on its own and denormal operands taken as they are, starting from the first
 *      sender's; adds the residual last; then results of a magnitude below 2^-126 (-0 too) become
 *      +0 and NaNs become 0x7fc00000. Of a GATHER it copies the whole result.
 * It may publish chunks ahead of those it sums. Without senders a sum is the residual (treated as
 * any result), or zeros. A member that failed publishes nothing more in that run. When done it adds
 * the nanoseconds that steps 1 to 4 took to the 64-bit word behind its own flag (at flag_off + d *
 * 64 + 8), which is there for profiles and is nobody else's to write.
 *
 * Because every member passes every exchange, data of two exchanges ago may be overwritten, but not
 * that of the one before, of the same run or of the last.
 *
 * Sources: x, arena (i8), step, [residual]; destination: the result, equal on every member by bits.
 */
#ifndef TANDEM_COLLECTIVE_H
#define TANDEM_COLLECTIVE_H

#include "tandem/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TDM_EXCHANGE_CHUNK       65536 /* elements; a multiple of every wire type's block */
#define TDM_EXCHANGE_ARENA_ALIGN 64
/* A last resort: the watchdog of any group is shorter. 25 hours. */
#define TDM_EXCHANGE_PATIENCE_NS UINT64_C(90000000000000)

typedef struct tdm_comm tdm_comm; /* the plugin's: some of its own devices, in a fixed order */

typedef struct tdm_collective_ops {
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
} tdm_collective_ops;

#ifdef __cplusplus
}
#endif

#endif
