/* SPDX-License-Identifier: MIT
 *
 * chain.h: graphs for checks of how a graph is run: a chain of nodes of one simple op that the
 * device supports. What the op computes does not matter to these checks.
 */
#ifndef TANDEM_CERTIFY_CHAIN_H
#define TANDEM_CERTIFY_CHAIN_H

#include "certify/rig.h"

typedef struct certify_chain {
    certify_rig rig;
    int32_t x;   /* the INPUT */
    int32_t y;   /* the OUTPUT: x after n nodes */
    double nmse; /* bound on its error */
} certify_chain;

/* Opens the device and finds a simple op that it supports; a skip where there is none. The chain
 * has `n` nodes, whose values are f32 [n0, n1]. All inputs are filled with random numbers. */
certify_verdict certify_chain_open(certify *c, int n, int64_t n0, int64_t n1,
                                   certify_chain *chain_out);
/* The same, with a RESHAPE of the first node's result that no node reads. */
certify_verdict certify_chain_open_viewed(certify *c, int n, int64_t n0, int64_t n1,
                                          certify_chain *chain_out);
/* A further chain on the open device. */
certify_verdict certify_chain_create(certify *c, int n, int64_t n0, int64_t n1,
                                     certify_chain *chain_out);

#endif
