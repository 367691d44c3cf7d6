/* SPDX-License-Identifier: MIT
 *
 * wait.h: kernels that wait for other members of a group (those that include kernels/flags.h): what
 * they report to the host, and the test that decides whether a device's kernels may wait.
 */
#ifndef TANDEM_GPU_RT_WAIT_H
#define TANDEM_GPU_RT_WAIT_H

#include "plugins/gpu/rt/plan.h"

enum { RT_WAIT_N_SLOT = 256 }; /* more than the computations of a queue that run at once, 64 */

typedef enum rt_wait_code {
    RT_WAIT_REACHED = 0,
    RT_WAIT_ABORTED = 1, /* by the abort word */
    RT_WAIT_LATE = 2     /* the timeout ran out */
} rt_wait_code;

/* The first failure of a run. A run is a computation of a plan that waits; the runs of a queue have
 * the numbers 1, 2, ... */
typedef struct rt_wait_slot {
    uint32_t run;  /* the run that failed; any other number: the slot says nothing about a run */
    uint32_t code; /* rt_wait_code */
    uint32_t stage;      /* of the exchange that failed first in that run */
    uint32_t missing[2]; /* bit m: member m had not published */
    uint32_t reserved[3];
} rt_wait_slot;

/* Written by kernels in page-locked memory, one for each queue. Kernels write slot
 * run % RT_WAIT_N_SLOT, and only where a wait fails. The host reads the slot of a run when the
 * computation has ended; after a failure of run + RT_WAIT_N_SLOT it would find that one's. */
typedef struct rt_wait_report {
    uint32_t run; /* the present run or the last, as in rt_wait_state */
    uint32_t reserved[15];
    rt_wait_slot slots[RT_WAIT_N_SLOT];
} rt_wait_report;

/* The state that the waiting kernels of a queue keep, in device memory since they read it in every
 * wait. A stream executes runs in their order, so that the first waiting kernel of each run counts
 * it. */
typedef struct rt_wait_state {
    uint32_t run;        /* the present run or the last; 0 = none yet */
    uint32_t failed_run; /* the last run in which a wait failed; 0 = none */
    uint32_t code;       /* rt_wait_code of that failure */
    uint32_t unused;
    uint64_t report; /* device's address of the rt_wait_report */
} rt_wait_state;

/* Decides whether the device's kernels may wait (target.may_wait). With exchange = auto or plan it
 * tests, with memory of the host, that a running kernel reads what the host writes meanwhile, that
 * the host reads what the kernel writes, and that the kernel's timeout ends a wait. A device that
 * fails the test does not wait: with `auto` the log has the reason; with `plan` the call fails with
 * TDM_UNSUPPORTED. Takes some tens of milliseconds. [setup] */
tdm_status rt_wait_decide(rt_device *device, const rt_options *options, tdm_error *err);

/* Sets the words of waiting kernels that the planner leaves to the runtime ("wait[12]" in
 * plan/kernel.h). args[n_step]; `state` is the device's address of the queue's rt_wait_state. */
void rt_wait_args_set(const rt_device *device, const gpu_plan *steps, uint64_t state,
                      rt_args *args);

/* True where a kernel (gpu_kernel) waits for other members; where any kernel of a plan does. */
bool rt_wait_is_in(int32_t kernel);
bool rt_wait_is_needed(const gpu_plan *steps);

/* The status of a run that has ended: TDM_OK, TDM_CANCELLED after an abort, TDM_UNAVAILABLE after a
 * timeout. The message names the stage and the first member that was missing. A timeout does not
 * give the TDM_DEADLINE_EXCEEDED of collective.h: from a native wait that means that the work has
 * not ended (semaphore.h), so that the core would wait for ever. */
tdm_status rt_wait_status(const rt_device *device, const rt_wait_report *report, uint32_t run,
                          tdm_error *err);

#endif
