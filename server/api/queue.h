/* SPDX-License-Identifier: MIT
 *
 * queue.h: the events of the engine, which its thread puts into the queues of choices.
 */
#ifndef TANDEM_SERVER_QUEUE_H
#define TANDEM_SERVER_QUEUE_H

#include "server/api/answer.h"

/* Sets *sink to the receiver of a choice's events. */
void api_queue_sink(api_choice *c, server_sink *sink);

/* Appends n_more tokens to an array of *n, which has room for *size. False = no memory; nothing was
 * appended. */
bool api_tokens_append(api_token **tokens, int *n, int *size, const api_token *more, int n_more);

#endif
