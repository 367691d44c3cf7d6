/* SPDX-License-Identifier: MIT
 *
 * stub_ops.h: emitters for tests of the planner alone. Every op is planned as steps of the kernel
 * `pair` that read and write what the op does: chains through scratch where there are more than two
 * sources. The steps say where data flows; nothing runs them.
 */
#ifndef TANDEM_TESTS_GPU_STUB_OPS_H
#define TANDEM_TESTS_GPU_STUB_OPS_H

#include <stdint.h>

/* The seed from which the emitters draw which nodes also use scratch, forms and constants; 0 = none
 * does. */
extern uint64_t stub_seed;
/* Fuses a node with the producer of its first source, where the seed selects it. STUB_FUSE_ALL
 * fuses wherever it is allowed. STUB_FUSE_REFUSED matches everywhere with an emitter that
 * refuses. */
typedef enum stub_fuse {
    STUB_FUSE_NONE = 0,
    STUB_FUSE_SOME,
    STUB_FUSE_ALL,
    STUB_FUSE_REFUSED
} stub_fuse;
extern stub_fuse stub_fusing;
/* trips of every step: loop iterations of an invocation. */
extern int64_t stub_trips;

#endif
