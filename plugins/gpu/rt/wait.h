/* SPDX-License-Identifier: MIT
 *
 * wait.h: kernels that wait for other members of a group: what they report to the host, and the
 * test that decides whether a device's kernels may wait. Kernels that wait are
 * those with kernels/flags.h.
 */
#ifndef TANDEM_GPU_RT_WAIT_H
#define TANDEM_GPU_RT_WAIT_H

#include "plugins/gpu/rt/plan.h"

enum { RT_WAIT_N_SLOT = 256 };

typedef enum rt_wait_code {
    RT_WAIT_REACHED = 0,
    RT_WAIT_ABORTED = 1, /* by the abort word */
    RT_WAIT_LATE = 2     /* the timeout ran out */
} rt_wait_code;

typedef struct rt_wait_slot {
    uint32_t run; /* the run that failed; another number: nothing failed */
    uint32_t code;
    uint32_t stage;      /* of the exchange that failed first in that run */
    uint32_t missing[2]; /* bit m: member m had not published */
    uint32_t reserved[3];
} rt_wait_slot;

/* In page-locked memory, one for each queue. Runs are the computations of plans that wait. The
 * kernels write a slot only where a wait fails. The host reads the slot when the computation has ended, and
 * before the failure of the run RT_WAIT_N_SLOT later. */
typedef struct rt_wait_report {
    uint32_t run; /* as of rt_wait_state */
    uint32_t reserved[15];
    rt_wait_slot slots[RT_WAIT_N_SLOT];
} rt_wait_report;

/* What the kernels of a queue remember, in memory of the device: they read it in every wait. A
 * stream executes runs in their order, so that the first waiting kernel of each counts them. */
typedef struct rt_wait_state {
    uint32_t run;        /* the present one, or the last; 0 = none yet */
    uint32_t failed_run; /* the last in which a wait failed; 0 = none */
    uint32_t code;       /* rt_wait_code of it */
    uint32_t unused;
    uint64_t report; /* address of the rt_wait_report */
} rt_wait_state;

/* Decides whether the device's kernels may wait (target.may_wait). Where `options` leaves it open,
 * tries with memory of the host that the kernel sees a word that the host writes while it runs,
 * that the host sees what the kernel writes, and that the kernel's timeout runs out. A device that
 * fails the test does not wait, with the reason in the log, or as an error where waiting is
 * demanded. Takes some tens of milliseconds. [setup] */
tdm_status rt_wait_decide(rt_device *device, const rt_options *options, tdm_error *err);

/* Fills in what kernels that wait need beside what the planner gives them; `state` is the address
 * of the queue's rt_wait_state. */
void rt_wait_args_set(const rt_device *device, const gpu_plan *steps, uint64_t state,
                      rt_args *args);

/* Whether a kernel (gpu_kernel) waits for other members; whether any of a plan does. */
bool rt_wait_is_in(int32_t kernel);
bool rt_wait_is_needed(const gpu_plan *steps);

/* The status of a run that has ended: TDM_CANCELLED after an abort, TDM_UNAVAILABLE after a timeout.
 * It is not the TDM_DEADLINE_EXCEEDED of collective.h, which a native wait returns for work that has
 * not ended (semaphore.h): such a run would never end. The message names the stage and the first
 * member that was missing. */
tdm_status rt_wait_status(const rt_device *device, const rt_wait_report *report, uint32_t run,
                          tdm_error *err);

#endif
