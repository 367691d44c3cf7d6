/* SPDX-License-Identifier: MIT
 *
 * cpu.h: the types that all files of the CPU plugin share: device, worker, view, node, row of the
 * op table.
 *
 * Mental model. A cpu_device is a set of options and a pool of threads. Preparing a graph resolves
 * each node to a cpu_node: an implementation from the op table and views whose strides are fixed.
 * Binding a plan adds the addresses to the views. Running it sends every worker of the pool through
 * the same list of nodes; a worker computes its share (ith of nth) of each. Ops state how they
 * divide their sources and destinations among the workers. Where one node writes a value and the
 * next reads it in the same shares, there is no barrier between them; barriers stand only where a
 * worker depends on another one (exec/plan_assign.c). Kernels are chosen per device through ordered
 * tables of {needed ISA, function}: the first row that the device may use wins.
 *
 * What lies where:
 *   plugin.c, device.c, buffer.c   the entry; a device and its options; memory
 *   ops/      one file for each family of ops, and the op table (ops.c); plain C, and the tables
 *             that choose kernels. weight.c: the private layout of weights
 *   kv/       pages of the KV cache: layout, reading, writing, shifting, copying
 *   exec/     running: plans, the queue, the pool of threads, barriers and waits
 *   machine/  facts of the machine: instruction sets, processors, memory, measured limits
 *   vector/   kernels in vector words (vector.h), compiled once for each instruction set
 *   x86/      those words for AVX2 and AVX-512, and kernels written with intrinsics for one of
 *             them or for AMX
 *   arm/      the same for NEON
 */
#ifndef TANDEM_CPU_H
#define TANDEM_CPU_H

#include <stdatomic.h>

#include "tandem/plugin.h"

/* Instruction sets as a set of flags: a kernel names what it needs, a device what it may use. */
enum {
    CPU_ISA_AVX2 = 1u << 0,   /* AVX2, FMA, F16C */
    CPU_ISA_AVX512 = 1u << 1, /* AVX-512 F, BW, DQ, VL and VNNI */
    CPU_ISA_NEON = 1u << 2,   /* AArch64 Advanced SIMD with dot products */
    CPU_ISA_AMX = 1u << 3     /* AMX tiles with products of bf16 and of bytes; AVX-512 BF16 */
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
    /* By role of a token (tandem/step.h): integer kernels round its activations to 8 bits (true) or
     * to 15. Option activation-bits: auto = 8 for prompts only, 8 for all tokens, 15 for none. */
    bool has_q8[CPU_N_ROLE];
    uint64_t exchange_timeout_ns; /* how long an exchange waits for another member */
    /* By role of a token and type of the weights, chosen when the device is opened; NULL for types
     * of integers. The kernels of a type take the same layout of weights, whatever the role. */
    const struct cpu_matmul_kernel *matmul_kernels[CPU_N_ROLE][TDM_TYPE_LIMIT_];
    /* Those of MATMUL for prompts where a matrix unit computes them (panel.h), by type; else NULL. */
    const struct cpu_matmul_kernel *panel_kernels[TDM_TYPE_LIMIT_];
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

/* Worker w's share of `n` items: items first .. last-1. The shares of all workers cover the items
 * and do not overlap. They begin at multiples of `unit` (>= 1). A share may be empty, also that of
 * worker 0. */
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
    uint8_t *scratch;  /* scratch_size bytes, 64-byte aligned, shared by the workers; undefined
                               when the node begins */
    uint8_t *prepared; /* prepared sources (cpu_prepared): of the op that reads them and of their
                               maker; else NULL */
    int64_t unit;      /* elements of the destination that its readers assign to one worker
                               together, a multiple of CPU_SHARE_UNIT or whole rows; 0 = any */
    const void *facts; /* of an op with facts (cpu_op_impl); else NULL */
    cpu_exchange *exchange; /* of an EXCHANGE; else NULL */
    cpu_claims *claims;     /* of an op that claims, on a device of several threads; else NULL */
} cpu_node;

/* Elements of a row are assigned in multiples of this, unless a reader needs another unit. It is a
 * whole number of vectors of every kernel, of blocks of activations, of groups of weights and of
 * cache lines of floats: no cache line is written by two workers. An element's value does not
 * depend on the worker that computes it. */
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
    /* How workers divide source `arg`, or destination `arg` - TDM_MAX_SRC. A result u > 0 is a
     * promise: the value is contiguous f32, and worker w touches nothing of it but its
     * cpu_worker_share of all elements, in units of u. The plan leaves out barriers because of this
     * promise (exec/plan_assign.c), so an op that breaks it has a data race. 0: no promise, any
     * worker may touch all. NULL: 0 for all. The result for the destination is n->unit where the op
     * can follow it. Called before addresses are bound. */
    int64_t (*share_unit)(const cpu_node *n, int32_t arg);
    /* True: workers claim pieces of each other's shares (n->claims, exec/claims.h). share_unit of
     * the result is then 0, which adds a barrier after the node: only for nodes that take much
     * longer than a barrier. NULL: false. */
    bool (*claims)(const cpu_node *n);
    /* Computes worker w's share; every worker calls it. May call cpu_worker_barrier between phases,
     * every worker equally often. The caller places a barrier before the node where it depends on
     * other workers' shares of earlier nodes. */
    void (*run)(const cpu_node *n, cpu_worker *w);
    /* The same on the reference path. NULL: `run` is plain C already. */
    void (*run_reference)(const cpu_node *n, cpu_worker *w);
} cpu_op_impl;

#endif
