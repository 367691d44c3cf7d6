/* SPDX-License-Identifier: MIT
 *
 * limits.c: measuring the machine's limits with a device's own threads, where they are. Each does
 * small pieces of work and notes when each was done. What is looked for is what all of them together
 * can do while nothing keeps them from it:
 *
 * - multiplications: the most in any millisecond or two, which is short enough to fit between
 *   interruptions; a core multiplies as fast all day.
 * - reading: what a long stream gets. For some milliseconds memory can be read up to twice as fast as
 *   for long, where others beside this machine pause, so a fifth of a second is averaged: of the time
 *   in which every thread had its processor, which the time spent by each of them tells.
 *
 * The loops in plain C are here as well.
 */
#include "plugins/cpu/limits.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "plugins/cpu/device.h"
#include "plugins/cpu/isa.h"
#include "plugins/cpu/memory.h"
#include "plugins/cpu/pool.h"
#include "plugins/cpu/sysfile.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum {
    LOG_LEN = 16384,
    N_PIECE_MIN = 80,  /* however long they take */
    WINDOW_PIECES = 40 /* of a thread, at least */
};
/* Of a measurement: the time for which threads work, and how long it may last where they do not get
 * their processors. */
typedef struct time_budget {
    uint64_t work_ns, max_ns;
} time_budget;
static const time_budget budget_multiply = {200000000, 600000000};
static const time_budget budget_read = {450000000, 900000000};
#define WINDOW_NS   UINT64_C(1500000)   /* of multiplications */
#define STRETCH_NS  UINT64_C(200000000) /* of reading, all threads at once */
#define STRETCH_MIN (STRETCH_NS / 4)    /* less is too little to tell anything from */
#define MEMORY_MIN  ((uint64_t)256 << 20)
#define PIECE_SIZE  ((uint64_t)1 << 20) /* bytes that a thread reads between looks at the clock */
#define PART_UNIT   ((uint64_t)4 << 20) /* two fronts, each of whole pieces, on huge pages */
#define HUGE_PAGE   ((size_t)2 << 20)
/* Of what is read in turn, a cache a quarter as large keeps next to nothing. */
#define CACHE_TIMES 4

/* ---- Plain C ---- */

static uint64_t limit_read_plain(const uint8_t *a, const uint8_t *b, size_t step, size_t n) {
    enum { N_WORD = CPU_LIMIT_GRAIN / 8 };
    uint64_t acc[N_WORD] = {0}, sum = 0;
    for (; n > 0; n--, a += step, b += step) {
        const uint64_t *x = (const uint64_t *)(const void *)a;
        const uint64_t *y = (const uint64_t *)(const void *)b;
        for (int i = 0; i < N_WORD; i++) acc[i] ^= x[i] ^ y[i];
    }
    for (int i = 0; i < N_WORD; i++) sum += acc[i];
    return sum;
}

/* Rows of codes that stay in the nearest cache, multiplied as a plain dot product does. */
static uint64_t limit_int8_plain(uint32_t seed, double *n_op_out) {
    enum { N = 2048, N_STEP = 100 };
    int8_t x[N], w[N];
    int32_t sum = 0;
    for (int i = 0; i < N; i++) {
        x[i] = (int8_t)(i % 7 + (int)seed);
        w[i] = (int8_t)(i % 5 - (int)seed);
    }
    for (int n = 0; n < N_STEP; n++) {
        int32_t dot = 0;
        x[n % N] ^= 1; /* another row each time: none is left out for being known */
        for (int i = 0; i < N; i++) dot += x[i] * w[i];
        sum ^= dot;
    }
    *n_op_out = 2.0 * N * N_STEP;
    return (uint64_t)(uint32_t)sum;
}

static uint64_t limit_f32_plain(uint32_t seed, double *n_op_out) {
    enum { N = 64, N_STEP = 10000 };
    const float half = 0.5f, one = (float)seed;
    float acc[N], sum = 0;
    for (int i = 0; i < N; i++) acc[i] = (float)i;
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < N; i++)
#ifdef __FP_FAST_FMAF
            acc[i] = __builtin_fmaf(acc[i], half, one);
#else
            acc[i] = acc[i] * half + one;
#endif
    for (int i = 0; i < N; i++) sum += acc[i];
    *n_op_out = 2.0 * N * N_STEP;
    return (uint64_t)sum;
}

static const cpu_limit_loops loops_plain = {"plain C", limit_read_plain, limit_int8_plain,
                                            limit_f32_plain};

static const cpu_limit_loops *loops_choose(const cpu_device *device) {
#if defined(__x86_64__)
    if (device->isa & CPU_ISA_AVX512) return &cpu_limit_loops_avx512;
#ifdef CPU_HAS_AVX_VNNI
    /* No kernel has been written for it, hence no flag; but a limit of the machine it is, where the
     * options do not forbid what the machine has. */
    uint32_t a = 0, b, c, d;
    if ((device->isa & CPU_ISA_AVX2) && device->isa == cpu_isa_detect() &&
        __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0) /* SDM volume 2, CPUID */
        return &cpu_limit_loops_avx_vnni;
#endif
    if (device->isa & CPU_ISA_AVX2) return &cpu_limit_loops_avx2;
#else
    (void)device;
#endif
    return &loops_plain;
}

/* ---- Logs ---- */

typedef enum limit_kind { LIMIT_READ, LIMIT_INT8, LIMIT_F32 } limit_kind;

typedef struct note {
    uint64_t at_ns;   /* when a piece was done */
    uint64_t work_ns; /* what the thread had worked by then; noted while reading */
} note;

typedef struct measurement {
    const cpu_limit_loops *loops;
    limit_kind kind;
    int n_front; /* places in its part that a thread reads by turns: 1 or 2 */
    uint8_t *memory;
    uint64_t part_size; /* of each thread, a multiple of PART_UNIT */
    note *logs;         /* [n_thread][LOG_LEN] the beginning, then each piece */
    int32_t *log_lens;  /* [n_thread] */
    double n_op;        /* operations or bytes of a piece */
    _Atomic uint64_t sink;
} measurement;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t piece_read(const measurement *m, const cpu_worker *w, int32_t piece) {
    const uint8_t *part = m->memory + (uint64_t)w->ith * m->part_size;
    const uint64_t front_size = PIECE_SIZE / (uint64_t)m->n_front;
    const uint64_t at = (uint64_t)piece * front_size % (m->part_size / (uint64_t)m->n_front);
    const size_t grain = CPU_LIMIT_GRAIN, n = PIECE_SIZE / (2 * grain);
    if (m->n_front == 1) return m->loops->read(part + at, part + at + grain, 2 * grain, n);
    return m->loops->read(part + at, part + m->part_size / 2 + at, grain, n);
}

static note note_take(const measurement *m) {
    note taken = {.at_ns = clock_ns(CLOCK_MONOTONIC)};
    if (m->kind == LIMIT_READ) taken.work_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return taken;
}

/* Enough is a time that the thread really had, so that a busy machine is looked at for longer. Asked
 * at every 16th piece only, since the system has to be called for it. */
static bool is_enough(const time_budget *budget, const note *log, int32_t n, uint64_t begin_ns) {
    if (n <= N_PIECE_MIN || n % 16 != 0) return false;
    return clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns >= budget->work_ns ||
           log[n - 1].at_ns - log[0].at_ns >= budget->max_ns;
}

/* Threads do not wait for each other on the way: on a busy machine that would make them take turns. */
static void pieces_run(void *arg, cpu_worker *w) {
    measurement *m = arg;
    note *log = m->logs + (size_t)w->ith * LOG_LEN;
    const time_budget *budget = m->kind == LIMIT_READ ? &budget_read : &budget_multiply;
    const uint32_t seed = 1 + (uint32_t)(m->part_size & 1);
    double n_op = (double)PIECE_SIZE;
    uint64_t sum = 0;
    int32_t n = 0;
    cpu_worker_barrier(w);
    const uint64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    log[n++] = note_take(m);
    while (n < LOG_LEN && !is_enough(budget, log, n, begin_ns)) {
        if (m->kind == LIMIT_READ)
            sum += piece_read(m, w, n);
        else
            sum += (m->kind == LIMIT_INT8 ? m->loops->int8 : m->loops->f32)(seed, &n_op);
        log[n++] = note_take(m);
    }
    m->log_lens[w->ith] = n;
    if (w->ith == 0) m->n_op = n_op;
    atomic_fetch_add_explicit(&m->sink, sum, memory_order_relaxed);
}

/* The most pieces that all threads together did in any window of time: those that began and ended in
 * it. Windows start where a piece of thread 0 does. `from` and `to` are places in each log. */
static int64_t pieces_in_best_window(const measurement *m, int32_t n_thread, uint64_t window_ns,
                                     int32_t *from, int32_t *to) {
    int64_t best = 0;
    memset(from, 0, (size_t)n_thread * sizeof *from);
    memset(to, 0, (size_t)n_thread * sizeof *to);
    for (int32_t i = 0; i < m->log_lens[0]; i++) {
        const uint64_t start = m->logs[i].at_ns, end = start + window_ns;
        int64_t n = 0;
        for (int32_t t = 0; t < n_thread; t++) {
            const note *log = m->logs + (size_t)t * LOG_LEN;
            while (from[t] < m->log_lens[t] && log[from[t]].at_ns < start) from[t]++;
            while (to[t] + 1 < m->log_lens[t] && log[to[t] + 1].at_ns <= end) to[t]++;
            if (to[t] > from[t]) n += to[t] - from[t];
        }
        if (n > best) best = n;
    }
    return best;
}

static uint64_t shortest_piece(const measurement *m) {
    uint64_t shortest = UINT64_MAX;
    for (int32_t i = 1; i < m->log_lens[0]; i++)
        if (m->logs[i].at_ns - m->logs[i - 1].at_ns < shortest)
            shortest = m->logs[i].at_ns - m->logs[i - 1].at_ns;
    return shortest;
}

/* Pieces a second in the best window of that length, or longer if it holds few pieces. */
static double window_rate(const measurement *m, int32_t n_thread, uint64_t window_ns, int32_t *from,
                          int32_t *to) {
    /* Long enough for the pieces that it cuts off to matter little. */
    const uint64_t least_ns = WINDOW_PIECES * shortest_piece(m);
    const uint64_t span_ns = m->logs[m->log_lens[0] - 1].at_ns - m->logs[0].at_ns;
    if (window_ns > span_ns) window_ns = span_ns; /* so fast that the log was full before */
    if (window_ns < least_ns) window_ns = least_ns;
    return (double)pieces_in_best_window(m, n_thread, window_ns, from, to) /
           ((double)window_ns * 1e-9);
}

/* Pieces a second in the best stretch of time in which every thread had its processor: a piece that
 * took the thread longer than it worked is left out, with what the others did meanwhile. 0 where
 * there is too little such time: on a busy machine, or with more threads than processors. `at` are
 * places in each log. */
static double stretch_rate(const measurement *m, int32_t n_thread, int32_t *at) {
    uint64_t now = 0, stretch_ns = 0;
    double n_piece = 0, best = 0;
    for (int32_t t = 0; t < n_thread; t++) {
        const note *log = m->logs + (size_t)t * LOG_LEN;
        at[t] = 1;
        if (log[0].at_ns > now) now = log[0].at_ns;
    }
    for (;;) {
        uint64_t next = UINT64_MAX;
        double rate = 0; /* pieces a nanosecond until then */
        bool is_whole = true;
        for (int32_t t = 0; t < n_thread; t++) {
            const note *log = m->logs + (size_t)t * LOG_LEN;
            while (at[t] < m->log_lens[t] && log[at[t]].at_ns <= now) at[t]++;
            if (at[t] >= m->log_lens[t]) { /* the first that is done */
                if (best == 0 && stretch_ns >= STRETCH_MIN) best = n_piece / (double)stretch_ns;
                return best * 1e9;
            }
            const note *done = &log[at[t]], *begun = done - 1;
            const uint64_t took_ns = done->at_ns - begun->at_ns;
            is_whole = is_whole && done->work_ns - begun->work_ns >= took_ns - took_ns / 8;
            if (done->at_ns < next) next = done->at_ns;
            rate += 1 / (double)took_ns;
        }
        if (is_whole) {
            n_piece += rate * (double)(next - now);
            stretch_ns += next - now;
        }
        now = next;
        if (stretch_ns >= STRETCH_NS) {
            if (n_piece / (double)stretch_ns > best) best = n_piece / (double)stretch_ns;
            n_piece = 0;
            stretch_ns = 0;
        }
    }
}

static double rate_measure(cpu_device *device, measurement *m, limit_kind kind) {
    const tdm_host *host = device->host;
    const size_t n = (size_t)device->n_thread, lens_size = 3 * n * sizeof *m->log_lens;
    const size_t size = lens_size + n * LOG_LEN * sizeof *m->logs;
    double rate = 0;
    m->logs = host->alloc(host->context, size, 64);
    if (m->logs == NULL) return 0;
    m->log_lens = (int32_t *)(void *)(m->logs + n * LOG_LEN);
    int32_t *from = m->log_lens + n, *to = from + n;
    m->kind = kind;
    cpu_pool_run(device->pool, pieces_run, m);
    if (kind == LIMIT_READ) rate = stretch_rate(m, device->n_thread, from);
    if (rate == 0)
        rate =
            window_rate(m, device->n_thread, kind == LIMIT_READ ? STRETCH_NS : WINDOW_NS, from, to);
    host->free(host->context, m->logs, size);
    return rate * m->n_op;
}

/* Each thread touches its own part first, so that it lies near it. */
static void memory_touch(void *arg, cpu_worker *w) {
    const measurement *m = arg;
    memset(m->memory + (uint64_t)w->ith * m->part_size, w->ith + 1, m->part_size);
}

/* ---- Memory that no cache holds ---- */

/* Bytes of the last caches of all processors together; 0 where the system does not say. */
static uint64_t last_caches_size(void) {
    uint64_t total = 0;
    long n = sysconf(_SC_NPROCESSORS_CONF);
    for (long i = 0; i < n; i++) {
        uint64_t size = 0;
        for (int level = 3; level >= 2 && size == 0; level--) {
            char path[96], text[64];
            unsigned long first = 0, kb = 0;
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cache/index%d/size", i,
                     level);
            if (!cpu_sysfile_read(path, text, sizeof text) || sscanf(text, "%luK", &kb) != 1)
                continue;
            snprintf(path, sizeof path,
                     "/sys/devices/system/cpu/cpu%ld/cache/index%d/shared_cpu_list", i, level);
            /* Counted with the first of those that share it. */
            if (cpu_sysfile_read(path, text, sizeof text) && sscanf(text, "%lu", &first) == 1 &&
                first != (unsigned long)i)
                break;
            size = (uint64_t)kb * 1024;
        }
        total += size;
    }
    return total;
}

/* Bytes that a thread reads in turn; 0 where there is too little memory to tell it from a cache. */
static uint64_t part_size_choose(int32_t n_thread) {
    uint64_t total, available;
    uint64_t caches = last_caches_size(), wish = caches * CACHE_TIMES;
    if (wish < MEMORY_MIN) wish = MEMORY_MIN;
    cpu_memory_query(&total, &available);
    if (available != 0 && wish > available / 4) wish = available / 4;
    uint64_t part = (wish / (uint64_t)n_thread + PART_UNIT - 1) / PART_UNIT * PART_UNIT;
    wish = part * (uint64_t)n_thread;
    if (wish < 2 * caches || (available != 0 && wish > available / 2)) return 0;
    return part;
}

static double read_bandwidth_measure(cpu_device *device, measurement *m) {
    const tdm_host *host = device->host;
    double rate = 0;
    m->part_size = part_size_choose(device->n_thread);
    if (m->part_size == 0) return 0;
    size_t size = (size_t)m->part_size * (size_t)device->n_thread;
    m->memory = host->alloc(host->context, size, HUGE_PAGE);
    if (m->memory == NULL) return 0;
    (void)madvise(m->memory, size, MADV_HUGEPAGE); /* whole ones: PART_UNIT is a multiple */
    cpu_pool_run(device->pool, memory_touch, m);
    /* Which one a machine is better at differs. About half a second each. */
    for (m->n_front = 1; m->n_front <= 2; m->n_front++) {
        double found = rate_measure(device, m, LIMIT_READ);
        if (found > rate) rate = found;
    }
    host->free(host->context, m->memory, size);
    return rate;
}

tdm_status cpu_limits_measure(cpu_device *device, tdm_device_limits *limits_out, tdm_error *err) {
    (void)err;
    tdm_device_limits limits = {.struct_size = sizeof limits};
    measurement m = {.loops = loops_choose(device)};
    snprintf(limits.arithmetic, sizeof limits.arithmetic, "%s", m.loops->name);
    limits.read_bandwidth = read_bandwidth_measure(device, &m);
    limits.int8_peak = rate_measure(device, &m, LIMIT_INT8);
    limits.f32_peak = rate_measure(device, &m, LIMIT_F32);
    cpu_struct_write(limits_out, &limits, sizeof limits);
    return TDM_OK;
}
