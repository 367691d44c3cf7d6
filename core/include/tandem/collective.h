/* SPDX-License-Identifier: MIT
 *
 * collective.h: the protocol of an EXCHANGE (op.h) between the members of a group. A device that
 * follows it sets TDM_DEVICE_HAS_EXCHANGE; for the others the group does the same on the host.
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
 *      word, when it is not 0, fails the plan with TDM_CANCELLED, flags or not; a wait
 *      of more than TDM_EXCHANGE_TIMEOUT_NS fails it with TDM_DEADLINE_EXCEEDED and a
 *      message that names stage and member;
 *   4. sums the chunk as it crossed the wire, its own included, in member order, in f32, each
 *      addition rounded on its own, starting from the first sender's; adds the residual last. Every
 *      f32 operand, every partial sum and the result of a magnitude below 2^-126 (-0 too) counts as
 *      +0, so that devices without denormal numbers give the same bits; numbers on the wire that
 *      are denormal in f16 are normal in f32 and kept. NaNs of the result become 0x7fc00000. Of a
 *      GATHER it copies the whole result.
 * It may publish chunks ahead of those it sums. Without senders a sum is the residual (treated as
 * any result), or zeros. A member that failed publishes nothing more in that run. When done, a
 * device with a clock adds the nanoseconds that steps 1 to 4 took to the 64-bit word behind its own
 * flag (at flag_off + d * 64 + 8), which is for profiles; without a clock it leaves the word as it
 * is. No other member writes that word.
 *
 * Because every member passes every exchange, data of two exchanges ago may be overwritten, but not
 * that of the one before, of the same run or of the last: hence two areas.
 *
 * A GATHER may have a second payload: step 1 writes both parts, step 4 copies both results.
 *
 * In phase PUBLISH a node performs step 1 alone, for all chunks; in phase COLLECT step 4 alone, for
 * all chunks. The group raises this member's flag once the plan that publishes has ended, and
 * starts the plan that collects once every member's flag holds the number of chunks. Members of one
 * exchange may differ in phase. The time that the phases take is not added to the word behind the
 * flag.
 *
 * Peer memory. Where all members can reach the memory of one of them, its home, the group may place
 * flags and data there: a buffer of purpose ARENA of the home, which the others have imported
 * (import_peer in buffer.h). A node then has the source `peer`, and its offsets count in that
 * memory. The abort word stays in the arena: the host sets it while kernels wait, and must be able
 * to when the home does not respond. For the same reason a member also stores its flag to the same
 * offset of the arena, after it has released it in the peer memory; there the host reads it, for
 * its watchdog, and no member waits for it. The word behind the flag is in the arena, too. The bits
 * of the results are the same. Only nodes that perform the whole exchange have this source, and
 * only where every member has it. A device with import_peer takes it.
 *
 * Sources: [x], arena (i8), step, [residual], [x2], [peer (i8)]; destinations: the results, equal
 * on every member by bits.
 */
#ifndef TANDEM_COLLECTIVE_H
#define TANDEM_COLLECTIVE_H

#include <stdint.h>

#define TDM_EXCHANGE_CHUNK       65536 /* elements; a multiple of every wire type's block */
#define TDM_EXCHANGE_ARENA_ALIGN 64
/* Timeout of one wait, 25 hours: the watchdog of a group ends a run long before. */
#define TDM_EXCHANGE_TIMEOUT_NS UINT64_C(90000000000000)

#endif
