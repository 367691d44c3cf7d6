/* SPDX-License-Identifier: MIT
 *
 * peer.h: memory of one member, its home, that the other members have imported (import_peer of
 * buffer.h), and the decision whether a group's exchanges use it. tandem/collective.h defines what
 * lies there: flags and data. The abort word stays in the arena (arena.h).
 */
#ifndef TANDEM_META_PEER_H
#define TANDEM_META_PEER_H

#include "plugins/meta/meta.h"

typedef struct meta_peer {
    uint64_t size; /* bytes, zeroed when it is made */
    int32_t home;  /* the member whose memory it is */
    /* By member: the home's own buffer, and the imports of the others; NULL where a member has no
     * share. buffers[home] NULL = there is no such memory. */
    tdm_buffer *buffers[TDM_MAX_MEMBERS];
} meta_peer;

/* Allocates the memory on `home` and imports it into every other member with a share. A failure
 * names the member. On failure nothing is held. Released with meta_peer_close. */
tdm_status meta_peer_open(meta_device *device, int32_t home, uint64_t size, meta_peer *peer_out,
                          tdm_error *err);
/* Frees the imports, then the home's buffer. Does nothing on a zeroed struct. No computation may
 * use it any more. */
void meta_peer_close(meta_device *device, meta_peer *peer);

/* Whether exchanges have flags and data in the memory of device->home: it was chosen, and every
 * member with a share exchanges in its plan. */
bool meta_uses_peer(const meta_device *device);

/* Chooses where flags and data of exchanges lie, by the option exchange-memory, and sets
 * device->home. Peer memory is chosen where all members import it, the probe passes
 * (meta_probe_peer) and, unless the option demands it, exchanges are faster there than in the
 * arena. Logs the choice with its reason. Fails where the option demands peer memory that cannot be
 * used, or a device is lost. After meta_probe; part of opening the group. [setup]
 *
 * For tests: the environment variable TANDEM_TEST_EXCHANGE gives the times, HOST,PEER in seconds.
 * Where it is not set, but TANDEM_TEST_RATES or TANDEM_TEST_LINKS is, nothing is measured and the
 * arena is used, unless TANDEM_TEST_LINKS is "measure". */
tdm_status meta_home_choose(meta_device *device, tdm_error *err);

#endif
