/* SPDX-License-Identifier: MIT
 *
 * meta.h: the types that all files of the meta plugin share. Start reading here.
 *
 * Mental model. A tdm_device of this plugin is a group. It has members: devices of any plugin, each
 * with a share of the work. The core fills in every function that a member's plugin leaves out.
 * Three things are cut over the members:
 *   - the units of a partition (layout/partition.h): assigned once, in split_prepare;
 *   - bytes: each member holds a slice of a weight or cache (layout/slice.h, buffer.h);
 *   - a graph: the compiler (rules/compile.h) goes through its nodes in order. The rule of each op
 *     converts the sources to layouts that it can compute on, and emits nodes into each member's
 *     part (rules/part.h). The parts with their memory and member plans form a plan (exec/plan.h).
 * A queue (exec/queue.c) runs every member's part of a plan. Members exchange data through one
 * arena in host memory (exchange/arena.h), or with flags and data in memory of one of them
 * (exchange/peer.h): inside their own plans where the device supports it, in
 * plans that are cut at exchanges where its kernels may not wait, else by a thread of the queue.
 *
 * The plugin treats all kinds of devices alike: it reads only their tables and flags.
 */
#ifndef TANDEM_META_H
#define TANDEM_META_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/params.h"
#include "plugins/meta/exec/claims.h"
#include "plugins/meta/memory.h"

typedef enum meta_split { META_SPLIT_TENSOR, META_SPLIT_LAYER } meta_split;
typedef enum meta_attention {
    META_ATTENTION_HEADS,     /* KV-head groups are never cut: some members may get none */
    META_ATTENTION_REPLICATE, /* query heads are cut, a KV head is held by all that need it */
    META_ATTENTION_SEQUENCE,  /* pages of tokens belong to different members */
    META_ATTENTION_AUTO       /* one of these, chosen from the first model (share/solve.h) */
} meta_attention;
typedef enum meta_experts {
    META_EXPERTS_HIDDEN, /* every expert is cut along its hidden dimension */
    META_EXPERTS_WHOLE   /* experts are assigned whole */
} meta_experts;

/* Memory of a member that all plans share. */
typedef enum meta_memory {
    META_MEMORY_SCRATCH, /* values that the member makes and reads */
    META_MEMORY_INPUT,   /* what the host writes before a run */
    META_MEMORY_OUTPUT,  /* what the host reads after a run */
    META_MEMORY_ZEROS,   /* bytes of 0, for padding */
    META_N_MEMORY
} meta_memory;

/* Who performs a member's exchanges. */
typedef enum meta_exchange {
    META_EXCHANGE_BY_HOST,   /* the host, which copies sources and results */
    META_EXCHANGE_IN_PHASES, /* the member, without waiting: its plan is cut at each exchange.
                                PUBLISH ends a stage, COLLECT begins the next, and in between the
                                host raises the member's flag and waits for the others. The host
                                copies nothing */
    META_EXCHANGE_IN_PLAN    /* the member, which waits for the others inside its plan */
} meta_exchange;

/* Where flags and data of exchanges lie; the option exchange-memory. */
typedef enum meta_exchange_memory {
    META_EXCHANGE_MEMORY_AUTO, /* in peer memory where that works and is faster */
    META_EXCHANGE_MEMORY_HOST, /* in the arena, which is host memory */
    META_EXCHANGE_MEMORY_PEER  /* in memory of a member; an error where that does not work */
} meta_exchange_memory;

/* Of option timeout, in seconds. The default is a text, as the table of options has it. */
enum { META_MAX_TIMEOUT = 86400 };
#define META_DEFAULT_TIMEOUT "60"
/* Bytes: the default of tdm_device.scatter_min. An exchange takes 10 to 60 us, in which a bus of
 * 10 GB/s moves 100 to 600 kB. */
enum { META_SCATTER_MIN = 524288 };

/* The options of a group. What depends on the members is not checked yet. */
typedef struct meta_options {
    int32_t n_member; /* 1 .. TDM_MAX_MEMBERS */
    char names[TDM_MAX_MEMBERS][64];
    bool is_share_auto;
    /* As given, >= 0, not all 0, not normalised. Not read where is_share_auto. */
    double shares[TDM_MAX_MEMBERS];
    uint64_t reserve[TDM_MAX_MEMBERS]; /* bytes to leave free; 0 = none */
    meta_split split;
    meta_attention attention;
    meta_experts experts;
    tdm_type reduce_type; /* f32 f16 bf16 q8_0 */
    meta_exchange_memory exchange_memory;
    bool checks_replicas;
    bool allows_duplicate; /* one card may be two members */
    double timeout;        /* seconds until the watchdog gives up on a member */
} meta_options;

/* The words that options take; each list ends with NULL. A value of meta_attention, meta_experts or
 * meta_exchange_memory is the index of its word. options.c. */
extern const char *const meta_attention_words[];
extern const char *const meta_experts_words[];
extern const char *const meta_exchange_memory_words[];
extern const char *const meta_reduce_words[];
extern const char *const meta_check_words[];

/* Reads options (tdm_option of plugin.h). A failure names the unknown key or value and lists the
 * valid ones. options.c. [any-thread] */
tdm_status meta_options_read(const tdm_option *options, int32_t n_option, meta_options *out,
                             tdm_error *err);

typedef struct meta_member {
    const char *name; /* in the options */
    tdm_acquired_device acquired;
    tdm_device_info info; /* as it was when the group opened */
    double share;   /* of the work, 0 .. 1, all together 1; 0 = inactive: nothing runs there */
    int32_t rank;   /* number among the active members, 0 .. n_active-1; -1 = inactive */
    uint64_t align; /* of buffer offsets, a power of two, >= 64 */
    /* Its device is also inside a member that is a group. Then its plans do not wait for exchanges:
     * it would keep the device from the group that it waits for. */
    bool is_inside_another;
    /* Another member is the same card (allow-duplicate = yes). Then its plans do not wait for
     * exchanges: a kernel that waits can keep the card from the kernel that it waits for. */
    bool shares_card;
    meta_exchange exchange;            /* as the probe found; BY_HOST until then */
    const char *exchange_why;          /* the reason, for people; NULL = none */
    tdm_buffer *arena;                 /* this member's import of the group's arena; NULL = none */
    tdm_queue *probe_queue;            /* for probes and measurements, never for plans */
    /* By meta_memory. They grow, and are freed when the group has no plan. */
    tdm_buffer *memory[META_N_MEMORY];
    uint64_t memory_size[META_N_MEMORY];
    /* Measured rates for weights of measured_type, in canonical bytes and multiply-adds per second:
     * with all members at once, and for this one alone. 0 = not measured, or not supported. */
    double bandwidth, bandwidth_alone;
    double arithmetic, arithmetic_alone;
    /* Seconds of a submission, and of an exchange besides its bytes; 0 = not measured (links.h). */
    double submit_seconds, crossing_seconds;
    double link_rate; /* bytes per second of an exchange, read and written; 0 = not measured */
    _Atomic uint64_t run_ns, exchange_ns; /* since open */
    /* An abandoned run will signal this; NULL = none. Until then whatever the run uses must stay
     * allocated (meta_member_is_stuck). Under stuck_mutex. */
    tdm_semaphore *stuck;
    uint64_t stuck_value;
    /* Threads that were abandoned inside a call of this member's driver and have not left it yet
     * (exec/queue.c). While there are any, the same things must stay allocated. */
    _Atomic int32_t n_lost;
} meta_member;

/* A layout that split_set declared. The hash distinguishes the graph from a later one at the same
 * address. */
typedef struct meta_override {
    const tdm_graph *graph;
    uint64_t hash;
    int32_t value;
    tdm_layout layout; /* normal form */
} meta_override;

struct meta_partition_table;
struct meta_arena;
struct meta_pending_release;

struct tdm_device {
    const tdm_host *host;
    meta_options options;
    int32_t n_member;
    int32_t owner;    /* the first active member: it makes the decisions that all members share */
    int32_t n_active; /* members with a share */
    int32_t division; /* incremented when shares are given: a plan is valid for one division */
    bool is_uniform;  /* the active members are one plugin and one kind of device: they compute
                           equal bits from equal bits */
    meta_member members[TDM_MAX_MEMBERS];
    struct meta_partition_table *partitions;
    struct meta_arena *arena;
    /* The member whose memory has flags and data of exchanges while all members exchange in their
     * plans (exchange/peer.h); NULL: the arena has them. Set when the group opens. */
    const meta_member *home;
    meta_override *overrides;
    int32_t n_override, cap_override;
    bool is_measured; /* the members' rates were measured, for measured_type */
    tdm_type measured_type;
    meta_attention attention; /* options.attention, or what was chosen for auto */
    bool is_attention_solved; /* of attention = auto: `attention` was chosen, which happens once */
    bool is_share_solved; /* of share = auto: by measuring, when the first model was shown */
    meta_claims claims;   /* the devices of all members; a run claims them, then locks the mutex */
    /* Held by a run from start to end, and while scratch, zeros, arena or partitions change: a
     * group does one of these at a time. */
    pthread_mutex_t mutex;
    /* Incremented when scratch, zeros or arena move or a buffer is freed; bindings of plans are
     * then stale. */
    _Atomic uint32_t generation;
    uint32_t epoch; /* of the last run; counts runs */
    /* Exchanges of all runs before the current one, modulo 2^31: selects the arena's areas
     * (compile.c). */
    uint32_t exchange_base;
    uint64_t area_size;   /* bytes of an area, the largest of any plan so far */
    uint64_t scatter_min; /* bytes that a sum in two exchanges must save (rules/relayout.c) */
    _Atomic uint64_t n_run; /* since open, failed ones included */
    _Atomic int32_t n_plan; /* of all queues; it grows under `mutex` */
    bool is_broken; /* a member is stuck: until it has ended, every run fails with `broken` */
    tdm_error broken;
    /* Protects the members' stuck and stuck_value, and the two fields below. Taken last: while it
     * is held, semaphores are queried or destroyed, and no other mutex of the group is locked. */
    pthread_mutex_t stuck_mutex;
    struct meta_pending_release *pending_releases; /* what stuck members use (exec/stuck.h) */
    bool is_releasing; /* one was taken out of pending_releases, and is not released yet */
};
typedef tdm_device meta_device;

/* Whether a cache is in host memory instead of the member's own. False for a member that is a
 * group: that group's own report counts its caches. */
static inline bool meta_is_cache_in_host(const meta_member *member, const tdm_kv_desc *desc) {
    const uint32_t own = TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED | TDM_DEVICE_IS_GROUP;
    return (desc->flags & TDM_KV_IN_HOST) != 0 && (member->info.flags & own) == 0;
}

/* Whether the member reads inputs where the caller has them in host memory. Another device would
 * read them over its bus, in every layer that uses them. A group decides for its own members. */
static inline bool meta_reads_in_place(const meta_member *member) {
    return (member->info.flags &
            (TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED | TDM_DEVICE_IS_GROUP)) != 0 &&
           TDM_HAS(member->acquired.plugin->buffer, import_host);
}

static inline bool meta_is_active(const meta_device *device, int32_t member) {
    return device->members[member].share > 0;
}

static inline const tdm_buffer_ops *meta_member_buffers(const meta_member *member) {
    return member->acquired.plugin->buffer;
}

#endif
