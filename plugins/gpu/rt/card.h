/* SPDX-License-Identifier: MIT
 *
 * card.h: a card, shared by all devices that the process has opened on it: which queues compute
 * there, and memory and kernels that are freed later.
 *
 * Rationale. The functions of CUDA and HIP that free memory wait until the whole card is idle. A
 * kernel that waits for another member of a group (wait.h) keeps the card busy until that member
 * goes on, and it might not go on before the memory is freed: a driver may hold its locks
 * meanwhile, and the thread that frees may be the one that the member waits for. So memory is given
 * to the driver only while nothing computes on the card, and kept until then.
 */
#ifndef TANDEM_GPU_RT_CARD_H
#define TANDEM_GPU_RT_CARD_H

#include "plugins/gpu/rt/rt.h"

/* A queue of the card. The queue owns this struct. */
typedef struct rt_card_queue {
    struct rt_card_queue *next;
    /* Whether a computation of the queue has not ended. Called while none is being launched, and
     * with the card's context current. */
    bool (*is_busy)(const tdm_queue *queue);
    const tdm_queue *queue;
} rt_card_queue;

/* Sets device->card. Released with rt_card_close, for which a device without a card is a no-op.
 * [setup] */
tdm_status rt_card_open(rt_device *device, tdm_error *err);
/* The last device of a card frees what is kept, and waits for the card. With its context current.
 * [setup] */
void rt_card_close(rt_device *device);

/* [any-thread] */
void rt_card_queue_add(rt_card *card, rt_card_queue *queue);
/* No computation of the queue runs. A queue that was not added is a no-op. [any-thread] */
void rt_card_queue_remove(rt_card *card, rt_card_queue *queue);

/* Around a launch, until is_busy of its queue counts it. In between nothing is freed. They do not
 * wait for execution. [any-thread] */
void rt_card_launch_begin(rt_card *card);
void rt_card_launch_end(rt_card *card);

/* Frees memory of memory_alloc or host_alloc, now or later. With the context current.
 * [any-thread] */
void rt_card_free(rt_device *device, const rt_memory *memory);

/* Unloads kernels of module_load likewise. */
void rt_card_unload(rt_device *device, void *module);

/* Frees what is kept where nothing computes on the card; with `waits` always, which may wait until
 * all computations have ended. Returns whether something was freed. With the context current.
 * [any-thread] */
bool rt_card_settle(rt_device *device, bool waits);

/* Other functions may wait for the card too: those that unlock memory of the host, and that load
 * kernels. They cannot be called later: the caller of a free may release the memory, and a plan
 * needs its kernels. So the thread waits itself, without any lock of the driver, for a moment
 * in which nothing computes. */
typedef struct rt_card_quiet {
    rt_card *card; /* NULL = there is no such moment, or no device on the card */
    bool is_own;
} rt_card_quiet;

/* Waits until nothing computes on the card of the driver's handle, at most a second. Then nothing
 * is launched there until rt_card_quiet_end, which must follow in the same thread. Launches are not
 * held up before. After a second without such a moment the call of the driver may wait. With the
 * card's context current. [any-thread] */
rt_card_quiet rt_card_quiet_begin(const rt_device *device, int handle);
void rt_card_quiet_end(const rt_card_quiet *quiet);

/* Bytes of device memory that are kept. [any-thread] */
uint64_t rt_card_kept(rt_card *card);

#endif
