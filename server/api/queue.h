/* SPDX-License-Identifier: MIT
 *
 * queue.h: what the engine's thread does with its events: it puts them into the queues of answers.
 */
#ifndef TANDEM_SERVER_QUEUE_H
#define TANDEM_SERVER_QUEUE_H

#include "server/api/answer.h"

/* The receiver of a choice's events. */
void api_queue_sink(api_choice *c, server_sink *sink);

/* Appends tokens to an array that grows; false = no memory, nothing was appended. */
bool api_tokens_append(api_token **tokens, int *n, int *size, const api_token *more, int n_more);

#endif
