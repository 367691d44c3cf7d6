/* SPDX-License-Identifier: MIT
 *
 * cpu.h: the types that all files of the CPU plugin share: device, worker, view, node, row of the
 * op table.
 *
 * Mental model. A cpu_device is a set of options and a pool of threads. Preparing a graph resolves
 * each node to a cpu_node: an implementation from the op table and views whose strides are fixed.
 * Running a plan adds the bound addresses to the views and sends every worker of the pool through
 * the same list of nodes; a worker does its share (ith of nth) of each. Workers meet at a barrier
 * where one needs what another wrote, and nowhere else: ops state how they divide what they touch
 * among the workers, and a worker goes from node to node without a barrier as long as the shares
 * are the same. Kernels are chosen per device through ordered tables of {needed ISA, function}: the
 * first row that the device may use wins.
 *
 * What lies where:
 *   plugin.c, device.c, buffer.c   the entry; a device and its options; memory
 *   ops/      one file for each family of ops, and the op table (ops.c); plain C and the tables that
 *             choose kernels. weight.c: the private layout of weights
 *   kv/       pages of the KV cache: layout, reading, writing, shifting, copying
 *   exec/     running: plans, the queue, the pool of threads, barriers and waits
 *   machine/  what the machine is: instruction sets, processors, memory, measured limits
 *   vector/   kernels in vector words (vector.h), compiled once for each instruction set
 *   x86/      those words for AVX2 and AVX-512, and kernels that are written for one of them.
 *             NEON's go to arm/
 */
#ifndef TANDEM_CPU_H
#define TANDEM_CPU_H

#include <stdatomic.h>

#include "tandem/plugin.h"

/* Instruction sets as a set of flags: a kernel names what it needs, a device what it may use. */
enum {
    CPU_ISA_AVX2 = 1u << 0,   /* AVX2, FMA, F16C */
    CPU_ISA_AVX512 = 1u << 1, /* AVX-512 F, BW, DQ, VL and VNNI */
    CPU_ISA_NEON = 1u << 2    /* AArch64 Advanced SIMD with dot products */
};

enum { CPU_N_ROLE = TDM_ROLE_PROMPT + 1 };

typedef struct cpu_pool cpu_pool;

struct tdm_device {
    const tdm_host *host;
    cpu_pool *pool;
    int32_t n_thread;
    uint32_t isa;       /* CPU_ISA_*: what this machine has and the options allow */
    bool is_reference;  /* path = reference: plain C, f32 activations, canonical weights */
    bool prefetch_each; /* cpu_isa_prefetch_each(): kernels prefetch each line of weights */
    /* By role of a token (tandem/step.h): its activations have 8 bits in integer kernels, else 15.
     * Option activation-bits: auto = those of prompts alone, 8 = all, 15 = none. */
    bool has_q8[CPU_N_ROLE];
    uint64_t exchange_timeout_ns; /* how long an exchange waits for another member */
    /* By role of a token and type of the weights, chosen when the device is opened; NULL for what
     * is no number. The kernels of a type take the same layout of weights. */
    const struct cpu_matmul_kernel *matmul_kernels[CPU_N_ROLE][TDM_TYPE_LIMIT_];
    /* Memory that limits.c reads, kept between measurements; NULL before the first one. */
    uint8_t *limit_memory;
    size_t limit_memory_size;
};
typedef tdm_device cpu_device;

/* One thread of a pool, inside a running plan. */
typedef struct cpu_worker {
    int32_t ith; /* 0 .. nth-1 */
    int32_t nth;
    cpu_pool *pool;
} cpu_worker;

/* The share of `n` items that worker w does: items first .. last-1, in multiples of `unit` (>= 1)
 * but for the end. Shares may be empty. */
static inline void cpu_worker_share(const cpu_worker *w, int64_t n, int64_t unit, int64_t *first,
                                    int64_t *last) {
    int64_t n_unit = (n + unit - 1) / unit;
    *first = n_unit * w->ith / w->nth * unit;
    *last = n_unit * (w->ith + 1) / w->nth * unit;
    if (*first > n) *first = n;
    if (*last > n) *last = n;
}

/* A value as kernels see it. */
typedef struct cpu_view {
    uint8_t *data; /* NULL: the optional source or destination is absent */
    tdm_type type;
    uint32_t usage; /* TDM_USAGE_*: not 0 = private layout (weight.h) */
    int64_t ne[TDM_MAX_DIMS];
    int64_t nb[TDM_MAX_DIMS]; /* bytes from one element (of ne[0]: one block) to the next */
} cpu_view;

struct cpu_op_impl;
typedef struct cpu_exchange cpu_exchange; /* exchange.h */
typedef struct cpu_claims cpu_claims;     /* claims.h */

typedef struct cpu_node {
    const cpu_device *device;
    const tdm_graph *graph;
    const tdm_node *node;
    const struct cpu_op_impl *impl;
    cpu_view src[TDM_MAX_SRC];
    cpu_view dst[TDM_MAX_DST];
    uint8_t *scratch;  /* scratch_size bytes, 64-byte aligned, shared by the workers; nothing
                               survives in it */
    uint8_t *prepared; /* of an op with prepared sources and of what prepares them; else NULL */
    int64_t unit;      /* elements of the destination that its readers assign to one worker
                               together, a multiple of CPU_SHARE_UNIT or whole rows; 0 = any */
    const void *facts; /* of an op with facts (cpu_op_impl); else NULL */
    cpu_exchange *exchange; /* of an EXCHANGE; else NULL */
    cpu_claims *claims;     /* of an op that claims, on a device of several threads; else NULL */
} cpu_node;

/* Elements of a row are assigned in multiples of this, unless a reader needs another unit: it holds
 * whole vectors of every kernel, blocks of activations and groups of weights, and no cache line is
 * shared by two workers. Every worker computes an element in the same way. */
enum { CPU_SHARE_UNIT = 32 };

/* Sources in the format that an op's kernels take, such as quantised activations. All ops of a plan
 * that take the same bytes in the same format share them: they are prepared before the first of
 * these ops, and again where the bytes have changed since. */
typedef struct cpu_prepared {
    const struct cpu_op_impl *maker; /* runs with the op's node; writes n->prepared */
    uint32_t made_of; /* bit i: the maker reads source i, and the op itself does not */
    uint32_t reads;   /* bit i: the maker reads source i, and the op may read it too */
    /* Of nodes with the same maker, sources and size: do they take the same format? NULL: yes. */
    bool (*is_same)(const cpu_node *a, const cpu_node *b);
    size_t size; /* bytes; 0 = sources are read as they are */
} cpu_prepared;

/* One row of the op table. */
typedef struct cpu_op_impl {
    /* TDM_OK, or TDM_UNSUPPORTED with the reason, for a verified node. NULL: always. */
    tdm_status (*supports)(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err);
    /* Bytes of scratch. NULL: none. */
    size_t (*scratch_size)(const cpu_device *device, const tdm_graph *graph, const tdm_node *node);
    /* What follows from the device and the graph alone, such as the kernels that the op calls. It
     * is computed once, when the plan is made, and the other functions from here on read it in
     * n->facts. facts_size: bytes; 0 = none. */
    size_t facts_size;
    void (*facts_make)(const cpu_node *n, void *facts_out);
    /* Which sources the op takes prepared, and how. NULL: none. */
    cpu_prepared (*prepared)(const cpu_node *n);
    /* How workers divide source `arg`, or destination `arg` - TDM_MAX_SRC: worker w touches nothing
     * but its cpu_worker_share of all elements, in units of the returned value. 0: no statement,
     * any worker may touch all. Not 0 only for contiguous f32. NULL: 0 throughout. Follows n->unit
     * where the op can; called before addresses are bound. */
    int64_t (*share_unit)(const cpu_node *n, int32_t arg);
    /* Shall workers claim pieces of each other's shares (n->claims)? Then share_unit is 0 of the
     * result, and there is a barrier more behind the node: for work that takes long beside one.
     * NULL: no. */
    bool (*claims)(const cpu_node *n);
    /* Does worker w's share; every worker calls it. Calls cpu_worker_barrier between phases (all
     * workers alike); the caller ensures that no worker starts before the others have finished. */
    void (*run)(const cpu_node *n, cpu_worker *w);
    /* The same on the reference path. NULL: `run` is plain C already. */
    void (*run_reference)(const cpu_node *n, cpu_worker *w);
} cpu_op_impl;

#endif
