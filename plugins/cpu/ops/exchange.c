/* SPDX-License-Identifier: MIT
 *
 * exchange.c: EXCHANGE: members of a group exchange values inside their plans, through memory that
 * they share (tandem/collective.h). The arithmetic is in core/base/wire.h; the group decides where
 * in the arena each exchange lies.
 *
 * No barrier: each worker writes its share of this member's addend and counts itself, and the last
 * of them to do so releases the flag; every worker waits for the flags of all members by itself and
 * sums its share of the result. A small exchange is done by as few workers as it is worth; the
 * others go on to the barrier that follows every exchange (plan.c).
 */
#include <sched.h>
#include <time.h>

#include "plugins/cpu/ops/exchange.h"
#include "plugins/cpu/kv/kv_row.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

enum { SRC_X, SRC_ARENA, SRC_STEP, SRC_RESIDUAL, SRC_X2, SRC_PEER };
enum {
    UNIT_LEN = 64,      /* elements assigned together: whole blocks and cache lines of any type */
    WORTH_LEN = 2048,   /* elements for which it is worth another worker */
    TILE_LEN = 1024,    /* elements of a strided view made dense at a time */
    YIELD_NS = 2000000, /* how long a wait only yields before it sleeps */
    NAP_MIN_NS = 50000, /* a shorter sleep takes about as long, because of the timer's slack */
    NAP_MAX_NS = 500000,
    AHEAD_MOST = 512 * 1024, /* bytes that a worker prefetches: they fit a second-level cache */
    AHEAD_STEP = 1024        /* bytes that it prefetches between two polls of the flags */
};

typedef _Atomic uint64_t word;

/* An EXCHANGE as one worker sees it. The addend in canonical order is n_run times run_stride
 * elements, of which the result has run_len from run_first on; a SUM has one run of them all. */
typedef struct job {
    const cpu_node *n;
    const tdm_exchange_params *p;
    cpu_worker worker; /* of those that take part */
    uint64_t epoch;    /* as the flags have it */
    uint64_t area_off; /* of the area that this exchange uses, from area 0 */
    int64_t n_chunk;
    int64_t count; /* elements of the addend */
    int64_t run_first, run_len, run_stride;
    const uint8_t *ahead, *ahead_end; /* what is left to prefetch */
} job;

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static uint8_t *arena_at(const job *j, uint64_t off) {
    return j->n->src[SRC_ARENA].data + off;
}

/* Data of the area that this exchange uses. */
static uint8_t *data_at(const job *j, uint64_t off) {
    return arena_at(j, off + j->area_off);
}

/* The flag of a member; the word behind it counts time. */
static word *flag_of(const job *j, int32_t member) {
    return (word *)(void *)arena_at(j, j->p->flag_off + (uint64_t)member * 64);
}

/* ---- State and failure ----------------------------------------------------------------------- */

void cpu_exchanges_init(cpu_exchanges *all, uint64_t timeout_ns) {
    *all = (cpu_exchanges){.timeout_ns = timeout_ns};
    atomic_store_explicit(&all->spin_time, CPU_SPIN_START, memory_order_relaxed);
    atomic_store_explicit(&all->failed_at, CPU_NO_FAILURE, memory_order_relaxed);
}

void cpu_exchange_init(cpu_exchange *x, cpu_exchanges *all, int32_t place) {
    atomic_store_explicit(&x->n_published[0], 0, memory_order_relaxed);
    atomic_store_explicit(&x->n_published[1], 0, memory_order_relaxed);
    x->place = place;
    x->all = all;
}

tdm_status cpu_exchanges_status(const cpu_exchanges *all, tdm_error *err) {
    if (atomic_load_explicit(&all->failed_at, memory_order_relaxed) == CPU_NO_FAILURE)
        return TDM_OK;
    if (all->status == TDM_CANCELLED && all->member < 0)
        return tdm_fail(err, all->status, "exchange: stage %d was aborted", (int)all->stage);
    return tdm_fail(err, all->status,
                    "exchange: stage %d %s: the flag of member %d is missing (chunk %lld, after "
                    "%.3f ms)",
                    (int)all->stage,
                    all->status == TDM_CANCELLED ? "was aborted" : "ran out of time",
                    (int)all->member, (long long)all->chunk, all->waited_ms);
}

/* Records a failure of the plan, unless there is one already. */
static void fail(const job *j, tdm_status status, int64_t chunk, int32_t member, uint64_t ns) {
    cpu_exchanges *all = j->n->exchange->all;
    int32_t none = CPU_NO_FAILURE;
    if (!atomic_compare_exchange_strong(&all->failed_at, &none, j->n->exchange->place)) return;
    all->status = status;
    all->stage = j->p->stage;
    all->chunk = chunk;
    all->member = member;
    all->waited_ms = (double)ns * 1e-6;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Yields the processor to a thread that may need it to reach this exchange. */
static void give_way(uint64_t waited_ns, uint64_t *nap_ns) {
    if (waited_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    struct timespec t = {.tv_nsec = (long)*nap_ns};
    nanosleep(&t, NULL);
    *nap_ns = *nap_ns < NAP_MAX_NS / 2 ? *nap_ns * 2 : NAP_MAX_NS;
}

/* The weights of this worker's next product, or their beginning, in memory that is idle while it
 * waits: a token needs all weights once, so the time is not lost. */
static void ahead_find(job *j, const cpu_worker *w) {
    const cpu_exchange *x = j->n->exchange;
    if (x->ahead == NULL) return;
    size_t first = x->ahead_size / (size_t)w->nth * (size_t)w->ith;
    size_t size = x->ahead_size / (size_t)w->nth;
    j->ahead = x->ahead + first;
    j->ahead_end = j->ahead + (size < AHEAD_MOST ? size : AHEAD_MOST);
}

static bool prefetch_next(job *j) {
    const uint8_t *end =
        j->ahead_end - j->ahead > AHEAD_STEP ? j->ahead + AHEAD_STEP : j->ahead_end;
    if (j->ahead == end) return false;
    for (; j->ahead < end; j->ahead += 64) __builtin_prefetch(j->ahead, 0, 2);
    j->ahead = end;
    return true;
}

/* Waits until every member has published the chunk. False: the plan has failed. */
static bool flags_wait(job *j, int64_t chunk) {
    cpu_exchanges *all = j->n->exchange->all;
    const word *abort_word = (const word *)(const void *)arena_at(j, 0);
    const uint64_t want = j->epoch + (uint64_t)chunk + 1;
    cpu_spin spin = {0};
    uint64_t start = 0, nap_ns = NAP_MIN_NS, waited = 0;
    bool is_spinning = true;
    for (int32_t m = 0;;) {
        while (m < j->p->n_member &&
               (int64_t)(atomic_load_explicit(flag_of(j, m), memory_order_acquire) - want) >= 0)
            m++;
        if (atomic_load_explicit(abort_word, memory_order_relaxed) != 0) {
            fail(j, TDM_CANCELLED, chunk, m < j->p->n_member ? m : -1, waited);
            return false;
        }
        if (m == j->p->n_member) break;
        if (prefetch_next(j)) continue;
        if (is_spinning) {
            is_spinning = cpu_spin_continue(&spin, &all->spin_time, NULL, NULL);
            if (!is_spinning) start = clock_ns();
            continue;
        }
        /* Another worker has failed: the flag that is missing may wait for that worker's share. */
        if (atomic_load_explicit(&all->failed_at, memory_order_relaxed) != CPU_NO_FAILURE)
            return false;
        waited = clock_ns() - start;
        if (waited >= all->timeout_ns) {
            fail(j, TDM_DEADLINE_EXCEEDED, chunk, m, waited);
            return false;
        }
        give_way(waited, &nap_ns);
    }
    if (is_spinning) cpu_spin_succeeded(&spin, &all->spin_time);
    return true;
}

/* ---- Publishing ------------------------------------------------------------------------------ */

/* Elements first .. first+n-1 of a view of f32 in canonical order: where they lie, or in tile. */
static const float *floats_get(const cpu_view *v, int64_t first, int64_t n, float *tile) {
    if (cpu_view_is_dense(v)) return (const float *)(const void *)v->data + first;
    for (int64_t done = 0; done < n;) {
        int64_t column = (first + done) % v->ne[0], len = least(v->ne[0] - column, n - done);
        const uint8_t *row = cpu_view_row(v, (first + done) / v->ne[0]) + column * v->nb[0];
        for (int64_t i = 0; i < len; i++) tile[done + i] = cpu_f32_at(row, i, v->nb[0]);
        done += len;
    }
    return tile;
}

/* This worker's share of a chunk of the addend. */
static void addend_write(const job *j, int64_t chunk) {
    const cpu_view *x = &j->n->src[SRC_X];
    tdm_type type = (tdm_type)j->p->wire_type;
    tdm_row_quantize_fn quantize = cpu_kv_quantizer(j->n->device, type);
    uint8_t *wire = data_at(j, j->p->data_off + (uint64_t)j->p->member * j->p->data_stride);
    int64_t base = chunk * TDM_EXCHANGE_CHUNK, first, last;
    int64_t step = cpu_view_is_dense(x) ? TDM_EXCHANGE_CHUNK : TILE_LEN;
    float tile[TILE_LEN];
    cpu_worker_share(&j->worker, least(j->count - base, TDM_EXCHANGE_CHUNK), UNIT_LEN, &first,
                     &last);
    for (int64_t at = base + first; at < base + last; at += step) {
        int64_t n = least(base + last - at, step);
        tdm_wire_store_by(quantize, type, floats_get(x, at, n, tile),
                          wire + tdm_type_row_size(type, at), n);
    }
}

/* Bytes of `length` indices of an axis in canonical order; of axis 0 whole blocks. */
static int64_t axis_size(const cpu_view *v, int axis, int64_t length) {
    if (axis == 0) return (int64_t)tdm_type_row_size(v->type, length);
    int64_t size = (int64_t)tdm_type_row_size(v->type, v->ne[0]) * length;
    for (int i = 1; i < axis; i++) size *= v->ne[i];
    return size;
}

/* A payload of a GATHER. */
typedef struct payload {
    const cpu_view *x, *y; /* absent: data is NULL */
    int32_t axis, first;
    int64_t whole; /* elements of the result along axis */
    uint64_t off;
} payload;

static payload payload_of(const job *j, int i) {
    const tdm_exchange_params *p = j->p;
    payload l = {&j->n->src[SRC_X], &j->n->dst[0], p->axis, p->first, p->whole, p->data_off};
    if (i == 1)
        l = (payload){&j->n->src[SRC_X2], &j->n->dst[1], p->axis2,
                      p->first2,          p->whole2,     p->data_off2};
    if (p->phase != TDM_EXCHANGE_PUBLISH) l.whole = l.y->ne[l.axis];
    return l;
}

static int payload_count(const job *j) {
    return j->p->data_off2 != 0 ? 2 : 1;
}

/* This worker's share of x, at its place in the whole: run after run where x is dense. */
static void part_write(const job *j, const payload *l) {
    const cpu_view *x = l->x;
    int axis = l->axis;
    int64_t size = (int64_t)tdm_tensor_canonical_size(x->type, x->ne);
    int64_t run = axis_size(x, axis, x->ne[axis]), stride = axis_size(x, axis, l->whole);
    uint8_t *to = data_at(j, l->off) + axis_size(x, axis, l->first);
    int64_t first, last;
    if (size == 0) return;
    if (cpu_view_is_dense(x)) {
        cpu_worker_share(&j->worker, size, UNIT_LEN, &first, &last);
        for (int64_t at = first; at < last;) {
            int64_t n = least(last - at, run - at % run);
            memcpy(to + at / run * stride + at % run, x->data + at, (size_t)n);
            at += n;
        }
        return;
    }
    int64_t block = tdm_type_get_info(x->type).block_size, row = axis_size(x, 0, x->ne[0]);
    cpu_worker_share(&j->worker, tdm_shape_rows(x->ne), 1, &first, &last);
    for (int64_t r = first; r < last; r++) {
        /* Rows before this one, in bytes of x, fall into runs as above. */
        int64_t at = r * row;
        uint8_t *dst = to + at / run * stride + at % run;
        const uint8_t *src = cpu_view_row(x, r);
        if (cpu_view_has_dense_rows(x)) {
            memcpy(dst, src, (size_t)row);
            continue;
        }
        for (int64_t i = 0; i < row / block; i++)
            memcpy(dst + i * block, src + i * x->nb[0], (size_t)block);
    }
}

/* Step 1 of the protocol. */
static void data_write(const job *j, int64_t chunk) {
    if ((j->p->senders >> j->p->member & 1) == 0) return;
    if (j->p->kind != TDM_EXCHANGE_GATHER) {
        addend_write(j, chunk);
        return;
    }
    for (int i = 0; i < payload_count(j); i++) {
        payload l = payload_of(j, i);
        part_write(j, &l);
    }
}

static void publish(const job *j, int64_t chunk) {
    const uint64_t value = j->epoch + (uint64_t)chunk + 1;
    data_write(j, chunk);
    if (j->worker.nth > 1) {
        /* Reset before the flag is raised: this counter is used again for chunk + 2, which a worker
         * publishes only after it has seen the flag. */
        _Atomic int32_t *n_published = &j->n->exchange->n_published[chunk % 2];
        if (atomic_fetch_add_explicit(n_published, 1, memory_order_acq_rel) + 1 != j->worker.nth)
            return;
        atomic_store_explicit(n_published, 0, memory_order_relaxed);
    }
    atomic_store_explicit(flag_of(j, j->p->member), value, memory_order_release);
}

/* ---- The result ------------------------------------------------------------------------------ */

/* Elements of the result that lie before element `at` of the addend. */
static int64_t result_before(const job *j, int64_t at) {
    if (j->run_len == 0) return 0;
    int64_t in_run = at % j->run_stride - j->run_first;
    return at / j->run_stride * j->run_len + (in_run < 0 ? 0 : least(in_run, j->run_len));
}

static void chunk_sum(const job *j, int64_t chunk) {
    const cpu_view *residual = &j->n->src[SRC_RESIDUAL];
    tdm_type type = (tdm_type)j->p->wire_type;
    const void *addends[TDM_MAX_MEMBERS];
    float tile[TILE_LEN];
    float *y = (float *)(void *)j->n->dst[0].data;
    int32_t n_addend = 0;
    int64_t first, last, base = chunk * TDM_EXCHANGE_CHUNK;
    int64_t begin = result_before(j, base);
    int64_t end = result_before(j, least(base + TDM_EXCHANGE_CHUNK, j->count));
    for (int32_t m = 0; m < j->p->n_member; m++)
        if (j->p->senders >> m & 1)
            addends[n_addend++] = data_at(j, j->p->data_off + (uint64_t)m * j->p->data_stride);
    cpu_worker_share(&j->worker, end - begin, UNIT_LEN, &first, &last);
    for (int64_t at = begin + first; at < begin + last;) {
        int64_t in_run = at % j->run_len, n = least(begin + last - at, j->run_len - in_run);
        const float *add = NULL;
        if (residual->data != NULL) {
            if (!cpu_view_is_dense(residual)) n = least(n, TILE_LEN);
            add = floats_get(residual, at, n, tile);
        }
        int64_t from = at / j->run_len * j->run_stride + j->run_first + in_run;
#if defined(__x86_64__)
        if (j->n->device->isa & CPU_ISA_AVX2)
            cpu_wire_sum_avx2(type, addends, n_addend, from, n, add, y + at);
        else
#endif
            tdm_wire_sum(type, addends, n_addend, from, n, add, y + at);
        at += n;
    }
}

static void whole_copy(const job *j) {
    for (int i = 0; i < payload_count(j); i++) {
        payload l = payload_of(j, i);
        int64_t first, last;
        cpu_worker_share(&j->worker, (int64_t)tdm_tensor_canonical_size(l.y->type, l.y->ne),
                         UNIT_LEN, &first, &last);
        if (last > first)
            memcpy(l.y->data + first, data_at(j, l.off) + first, (size_t)(last - first));
    }
}

/* Step 4 of the protocol. */
static void result_write(const job *j, int64_t chunk) {
    if (j->p->kind == TDM_EXCHANGE_GATHER)
        whole_copy(j);
    else
        chunk_sum(j, chunk);
}

/* ---- The op ---------------------------------------------------------------------------------- */

/* The elements by which the number of workers is chosen: those of the result, or of what is
 * published. */
static int64_t work_of(const job *j) {
    int64_t size = 0;
    if (j->p->kind != TDM_EXCHANGE_GATHER) return least(j->count, TDM_EXCHANGE_CHUNK);
    for (int i = 0; i < payload_count(j); i++) {
        payload l = payload_of(j, i);
        const cpu_view *v = j->p->phase == TDM_EXCHANGE_PUBLISH ? l.x : l.y;
        size += (int64_t)tdm_tensor_canonical_size(v->type, v->ne);
    }
    return size / (int64_t)sizeof(float);
}

static job job_of(const cpu_node *n, const cpu_worker *w) {
    const tdm_exchange_params *p = &n->node->params.exchange;
    const cpu_view *y = p->phase == TDM_EXCHANGE_PUBLISH ? &n->src[SRC_X] : &n->dst[0];
    job j = {.n = n, .p = p, .worker = *w, .n_chunk = 1};
    const uint8_t *step = n->src[SRC_STEP].data;
    uint32_t epoch, base;
    memcpy(&epoch, step + offsetof(tdm_step_header, epoch), sizeof epoch);
    memcpy(&base, step + offsetof(tdm_step_header, exchange_base), sizeof base);
    j.epoch = (uint64_t)epoch << 32;
    j.area_off = ((base + (uint32_t)p->stage) & 1) * p->area_stride;
    j.count = j.run_len = j.run_stride = tdm_shape_count(y->ne);
    if (p->kind == TDM_EXCHANGE_SUM_PART && p->phase != TDM_EXCHANGE_PUBLISH) {
        int64_t inner = 1, outer = 1;
        int64_t whole =
            p->whole != 0 || n->src[SRC_X].data == NULL ? p->whole : n->src[SRC_X].ne[p->axis];
        for (int i = 0; i < TDM_MAX_DIMS; i++)
            if (i != p->axis) *(i < p->axis ? &inner : &outer) *= y->ne[i];
        j.run_first = p->first * inner;
        j.run_len = y->ne[p->axis] * inner;
        j.run_stride = whole * inner;
        j.count = j.run_stride * outer;
    }
    j.worker.nth = (int32_t)least(w->nth, work_of(&j) / WORTH_LEN + 1);
    if (p->kind != TDM_EXCHANGE_GATHER && j.count > 0)
        j.n_chunk = (j.count + TDM_EXCHANGE_CHUNK - 1) / TDM_EXCHANGE_CHUNK;
    return j;
}

/* One of the phases that do not wait. */
static void phase_run(const job *j) {
    for (int64_t chunk = 0; chunk < j->n_chunk; chunk++)
        if (j->p->phase == TDM_EXCHANGE_PUBLISH)
            data_write(j, chunk);
        else
            result_write(j, chunk);
}

static void run(const cpu_node *n, cpu_worker *w) {
    uint64_t start = w->ith == 0 ? clock_ns() : 0;
    job j = job_of(n, w);
    if (w->ith >= j.worker.nth) return;
    if (j.p->phase != TDM_EXCHANGE_WHOLE) {
        phase_run(&j);
        return;
    }
    ahead_find(&j, w);
    publish(&j, 0);
    for (int64_t chunk = 0; chunk < j.n_chunk; chunk++) {
        if (chunk + 1 < j.n_chunk) publish(&j, chunk + 1);
        if (!flags_wait(&j, chunk)) return;
        result_write(&j, chunk);
    }
    if (w->ith == 0)
        atomic_fetch_add_explicit(flag_of(&j, j.p->member) + 1, clock_ns() - start,
                                  memory_order_relaxed);
}

static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    (void)device;
    (void)graph;
    if (node->src[SRC_PEER] < 0) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED, "cpu: exchange: it reaches no memory of other devices");
}

const cpu_op_impl cpu_op_exchange = {.supports = supports, .run = run};
