/* SPDX-License-Identifier: MIT
 *
 * pipe.h: a queue with a plan bound to its memory, and a semaphore, for checks of asynchronous
 * work. Nothing releases a pipe: it stays until the process of the check ends.
 */
#ifndef TANDEM_CERTIFY_PIPE_H
#define TANDEM_CERTIFY_PIPE_H

#include "certify/chain.h"

typedef struct certify_pipe {
    certify_chain chain;
    tdm_queue *queue;
    tdm_plan *plan;
    tdm_semaphore *done; /* signalled by each computation, with increasing values */
} certify_pipe;

/* Opens the device; a skip where it has no queues. */
certify_verdict certify_pipe_open(certify *c, certify_pipe *pipe_out);
/* Makes a further pipe on the open device. */
certify_verdict certify_pipe_create(certify *c, certify_pipe *pipe_out);
/* Submits the chain, which signals `value` of done; a failure where it is not accepted. */
certify_verdict certify_pipe_submit(certify_pipe *pipe, const tdm_point *waits, int32_t n_wait,
                                    uint64_t value);
/* Waits for done; a failure when it is poisoned or takes more than 30 seconds. */
certify_verdict certify_pipe_wait(certify_pipe *pipe, uint64_t value);
/* Downloads the results and compares them with the reference. */
certify_verdict certify_pipe_judge(certify_pipe *pipe, const char *what);
/* Checks that the output still has the bytes that certify_rig_upload wrote: nothing was
 * computed. */
certify_verdict certify_pipe_judge_untouched(certify_pipe *pipe, const char *what);

#endif
