/* SPDX-License-Identifier: MIT
 *
 * queue.h: the table of queues (queue.c).
 */
#ifndef TANDEM_CPU_QUEUE_H
#define TANDEM_CPU_QUEUE_H

#include "tandem/plugin.h"

extern const tdm_queue_ops cpu_queue_ops;

#endif
