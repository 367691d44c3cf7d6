/* SPDX-License-Identifier: MIT
 *
 * queue.h: plans of the discrete device, for queue.c, which makes and runs them, and clock.c, which
 * gives them their virtual time.
 */
#ifndef TANDEM_TESTS_DISCRETE_QUEUE_H
#define TANDEM_TESTS_DISCRETE_QUEUE_H

#include "tests/plugins/discretes/discrete.h"

typedef struct discrete_chunk discrete_chunk;

struct tdm_plan {
    tdm_queue *queue;
    const tdm_graph *graph;
    tdm_plan *lent;
    uint64_t *temp_off; /* [n_slot] UINT64_MAX: not a temporary */
    uint64_t temp_size;
    tdm_binding *bindings; /* [n_slot] of the device behind */
    tdm_buffer **bound;    /* [n_bound] buffers to open, each once */
    int32_t n_bound;
    discrete_chunk *scratch; /* NULL: not bound, or without temporaries */
    bool is_bound;
};

tdm_device *discrete_queue_device(const tdm_queue *queue);

/* Advances the device's virtual clock by a computation of the plan, which has just ended. Does
 * nothing for a device without a clock. */
void discrete_clock_run(tdm_plan *plan);

#endif
