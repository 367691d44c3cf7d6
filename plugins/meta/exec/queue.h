/* SPDX-License-Identifier: MIT
 *
 * queue.h: the queues of a group. queue.c and member_queue.c include each other's header: a queue
 * drives its members' queues, and a member may be a group with such a queue itself.
 */
#ifndef TANDEM_META_QUEUE_H
#define TANDEM_META_QUEUE_H

#include "tandem/queue.h"

extern const tdm_queue_ops meta_queue_ops;

/* The queue is that of a group that is itself a member: the outer group's run claims its devices
 * (claims.h), so that its own runs claim none. [setup] */
void meta_queue_set_inner(tdm_queue *queue);

#endif
