/* SPDX-License-Identifier: MIT
 *
 * meta.h: what the files of the meta plugin know of each other. Start reading here.
 *
 * Mental model. A tdm_device of this plugin is a group: members (devices of any plugin, lent by the
 * core without gaps) with shares. Three things are cut over the members, each by a file of its own:
 *   - the units of a partition (partition.h): decided once, in split_prepare;
 *   - bytes: a weight or cache becomes a slice on each member (slice.h, buffer.h);
 *   - a graph: preparing it walks its nodes in order, asks each op's rule (rules.h) for the layouts
 *     of its sources, converts where they differ (relayout.h), and emits what each member has to
 *     do into that member's part (part.h). The parts, with memory and plans, are a plan.h.
 * A queue (queue.c) has a thread for each member, which runs that member's part of a plan; what
 * crosses between members goes through one arena in host memory (arena.h), inside the member's own
 * plan where its device can, on its thread where it cannot.
 *
 * Nothing here knows what kind of device a member is: only its tables and flags.
 */
#ifndef TANDEM_META_H
#define TANDEM_META_H

#include <pthread.h>
#include <stdatomic.h>

#include "tandem/plugin.h"

typedef enum meta_split { META_SPLIT_TENSOR, META_SPLIT_LAYER } meta_split;
typedef enum meta_attention {
    META_ATTENTION_HEADS,     /* KV-head groups are never cut: some members may get none */
    META_ATTENTION_REPLICATE, /* query heads are cut, a KV head is held by all that need it */
    META_ATTENTION_SEQUENCE   /* pages of tokens belong to different members */
} meta_attention;
typedef enum meta_experts {
    META_EXPERTS_HIDDEN, /* every expert is cut along its hidden dimension */
    META_EXPERTS_WHOLE   /* experts are assigned whole */
} meta_experts;

/* The options of a group, checked but for what only its members can tell. */
enum { META_MAX_TIMEOUT = 86400 }; /* seconds */

typedef struct meta_options {
    int32_t n_member; /* 1 .. TDM_MAX_MEMBERS */
    char names[TDM_MAX_MEMBERS][64];
    bool is_share_auto;
    double shares[TDM_MAX_MEMBERS];    /* as given, >= 0, not all 0; not yet normalised */
    uint64_t reserve[TDM_MAX_MEMBERS]; /* bytes to leave free; 0 = none */
    meta_split split;
    meta_attention attention;
    meta_experts experts;
    tdm_type reduce_type; /* f32 f16 bf16 q8_0 */
    bool checks_replicas;
    double timeout; /* seconds until the watchdog gives up on a member */
} meta_options;

/* Reads options (plugin.h's tdm_option); an unknown key or value names it and those there are.
 * options.c. [any-thread] */
tdm_status meta_options_read(const tdm_option *options, int32_t n_option, meta_options *out,
                             tdm_error *err);

typedef struct meta_member {
    const char *name; /* in the options */
    tdm_acquired_device acquired;
    tdm_device_info info; /* as it was when the group opened */
    double share;      /* of the work, 0 .. 1, all together 1; 0 = inactive: nothing runs there */
    int32_t rank;      /* number among the active members, 0 .. n_active-1; -1 = inactive */
    uint64_t align;    /* of buffer offsets, a power of two, >= 64 */
    bool has_exchange; /* EXCHANGE runs inside its plans: it says so and the probe agreed */
    tdm_buffer *arena; /* the group's arena as this member sees it; NULL: not imported */
    tdm_queue *probe_queue; /* for probes and measurements, never for plans */
    tdm_buffer *scratch;    /* memory of temporaries, shared by all plans; grows */
    uint64_t scratch_size;
    tdm_buffer *zeros; /* bytes of 0, for padding; grows */
    uint64_t zeros_size;
    /* As measured for weights of measured_type, canonical bytes and multiply-adds per second: all
     * members at once, and this one alone. 0 = not measured, or it cannot. */
    double bandwidth, bandwidth_alone;
    double arithmetic, arithmetic_alone;
    _Atomic uint64_t run_ns, exchange_ns; /* since open */
    tdm_semaphore
        *stuck; /* a run that never came back signals this; NULL: none. Until it does, what
                             the run uses must stay (meta_member_is_stuck) */
    uint64_t stuck_value;
} meta_member;

/* What split_set declared. The hash tells the graph from one that later has its address. */
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
    int32_t owner;    /* the first active member: what is decided once is decided there */
    int32_t n_active; /* members with a share */
    int32_t division; /* counts how often shares were given: a plan is good for one division */
    bool is_uniform;  /* the active members are one plugin and one kind of device: they compute
                           equal bits from equal bits */
    meta_member members[TDM_MAX_MEMBERS];
    struct meta_partition_table *partitions;
    struct meta_arena *arena;
    meta_override *overrides;
    int32_t n_override, cap_override;
    bool is_measured;
    tdm_type measured_type;
    bool is_share_solved;        /* of share = auto: by measuring, when the first model was shown */
    pthread_mutex_t mutex;       /* held by a run from start to end, and by whoever changes scratch,
                               zeros, arena or partitions: one thing happens in a group at a time */
    _Atomic uint32_t generation; /* grows when scratch, zeros or arena move or a buffer is freed:
                                    bindings are stale */
    uint32_t epoch;              /* of the last run; counts runs */
    _Atomic uint64_t n_run;
    bool is_broken; /* a member never came back: every later run fails with `broken` */
    tdm_error broken;
    _Atomic(struct meta_pending_release *)
        pending_releases; /* what stuck members still use (watchdog.c) */
};
typedef tdm_device meta_device;

extern const tdm_device_ops meta_device_ops; /* device.c */
extern const tdm_buffer_ops meta_buffer_ops; /* buffer.c */
extern const tdm_queue_ops meta_queue_ops;   /* queue.c */
extern const tdm_split_ops meta_split_ops;   /* split.c */

/* Memory from the host's counted allocator, zeroed; NULL without memory. meta_free takes the same
 * size; NULL is a no-op. memory.c. [any-thread] */
void *meta_alloc(const tdm_host *host, size_t size);
void meta_free(const tdm_host *host, void *ptr, size_t size);
/* Makes room for `need` elements in an array that grows by doubling: *array and *capacity are
 * changed together. The new part is zeroed. [any-thread] */
tdm_status meta_grow(const tdm_host *host, void *array, int32_t *capacity, int64_t need,
                     size_t element_size, tdm_error *err);

/* True while a run that was given up may still use the member's memory: queues, plans and memory of
 * that member are then left to it rather than freed. watchdog.c. [any-thread] */
bool meta_member_is_stuck(const meta_device *device, int32_t member);
/* Leaves `what` to a member: release(device, member, what) is called once `semaphore` has reached
 * `value` or failed (NULL: once the member is not stuck any more), at the latest when the group
 * closes; never, if it does not come back. The caller keeps nothing of it. watchdog.c. [any-thread] */
typedef void (*meta_release_fn)(meta_device *device, int32_t member, void *what);
void meta_release_later(meta_device *device, int32_t member, tdm_semaphore *semaphore,
                        uint64_t value, meta_release_fn release, void *what);

/* Whether a cache lies in the host's memory instead of the member's own. Not known of a member that is
 * a group, which is asked where it matters (report.c). */
static inline bool meta_is_cache_in_host(const meta_member *member, const tdm_kv_desc *desc) {
    const uint32_t own = TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED | TDM_DEVICE_IS_GROUP;
    return (desc->flags & TDM_KV_IN_HOST) != 0 && (member->info.flags & own) == 0;
}

static inline bool meta_is_active(const meta_device *device, int32_t member) {
    return device->members[member].share > 0;
}

#endif
