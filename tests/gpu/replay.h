/* SPDX-License-Identifier: MIT
 *
 * replay.h: runs a plan without its kernels: each step writes a hash of its number and of all bytes
 * that it reads. So every byte of an output depends on every byte from which the plan computes it,
 * and on the order of the steps that lead to it.
 */
#ifndef TANDEM_TESTS_GPU_REPLAY_H
#define TANDEM_TESTS_GPU_REPLAY_H

#include "plugins/gpu/plan/plan.h"

typedef enum replay_way {
    REPLAY_EMITTED, /* one step after the other as emitted, every temporary in memory of its own */
    REPLAY_PLANNED  /* in the order of the plan; between barriers in one drawn from the seed */
} replay_way;

/* A hash of the bytes of all slots after a run. Slots begin with the same bytes every time, scratch
 * with garbage drawn from the seed. Aborts where there is no memory. */
uint64_t replay(const gpu_plan *plan, replay_way way, uint64_t seed);

#endif
