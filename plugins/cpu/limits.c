/* SPDX-License-Identifier: MIT
 *
 * limits.c: measuring the machine's limits with a device's own threads, where they are. Each
 * does small pieces of work and notes when each was done; a limit is the most that all of them
 * together did in any millisecond or two, because whatever else the machine does can only take from
 * it. The loops in plain C are here as well.
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
#define BUDGET_NS     UINT64_C(200000000) /* of each measurement */
#define BUDGET_MAX_NS UINT64_C(600000000)
#define WINDOW_NS     UINT64_C(1500000) /* short enough to fit between two interruptions */
#define MEMORY_MIN    ((uint64_t)256 << 20)
#define PIECE_SIZE    ((uint64_t)512 << 10) /* bytes that a thread reads between looks at the clock */
#define PART_UNIT     ((uint64_t)4 << 20)   /* two fronts, each of whole pieces, on huge pages */
#define HUGE_PAGE     ((size_t)2 << 20)
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

typedef struct measurement {
    const cpu_limit_loops *loops;
    limit_kind kind;
    int n_front; /* places in its part that a thread reads by turns: 1 or 2 */
    uint8_t *memory;
    uint64_t part_size; /* of each thread, a multiple of PART_UNIT */
    uint64_t *logs;     /* [n_thread][LOG_LEN] when a thread began, then when each piece was done */
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

/* Enough is a time that the thread really had, so that a busy machine is looked at for longer. Asked
 * at every 16th piece only, since the system has to be called for it. */
static bool is_enough(const uint64_t *log, int32_t n, uint64_t begin_ns) {
    if (n <= N_PIECE_MIN || n % 16 != 0) return false;
    return clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns >= BUDGET_NS ||
           log[n - 1] - log[0] >= BUDGET_MAX_NS;
}

/* Threads do not wait for each other on the way: on a busy machine that would make them take turns. */
static void pieces_run(void *arg, cpu_worker *w) {
    measurement *m = arg;
    uint64_t *log = m->logs + (size_t)w->ith * LOG_LEN;
    const uint32_t seed = 1 + (uint32_t)(m->part_size & 1);
    double n_op = (double)PIECE_SIZE;
    uint64_t sum = 0;
    int32_t n = 0;
    cpu_worker_barrier(w);
    const uint64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    log[n++] = clock_ns(CLOCK_MONOTONIC);
    while (n < LOG_LEN && !is_enough(log, n, begin_ns)) {
        if (m->kind == LIMIT_READ)
            sum += piece_read(m, w, n);
        else
            sum += (m->kind == LIMIT_INT8 ? m->loops->int8 : m->loops->f32)(seed, &n_op);
        log[n++] = clock_ns(CLOCK_MONOTONIC);
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
        const uint64_t start = m->logs[i], end = start + window_ns;
        int64_t n = 0;
        for (int32_t t = 0; t < n_thread; t++) {
            const uint64_t *log = m->logs + (size_t)t * LOG_LEN;
            while (from[t] < m->log_lens[t] && log[from[t]] < start) from[t]++;
            while (to[t] + 1 < m->log_lens[t] && log[to[t] + 1] <= end) to[t]++;
            if (to[t] > from[t]) n += to[t] - from[t];
        }
        if (n > best) best = n;
    }
    return best;
}

static uint64_t shortest_piece(const measurement *m) {
    uint64_t shortest = UINT64_MAX;
    for (int32_t i = 1; i < m->log_lens[0]; i++)
        if (m->logs[i] - m->logs[i - 1] < shortest) shortest = m->logs[i] - m->logs[i - 1];
    return shortest;
}

static double rate_measure(cpu_device *device, measurement *m, limit_kind kind) {
    const tdm_host *host = device->host;
    const size_t n = (size_t)device->n_thread, lens_size = 3 * n * sizeof *m->log_lens;
    const size_t size = lens_size + n * LOG_LEN * sizeof *m->logs;
    m->logs = host->alloc(host->context, size, 64);
    if (m->logs == NULL) return 0;
    m->log_lens = (int32_t *)(void *)(m->logs + n * LOG_LEN);
    m->kind = kind;
    cpu_pool_run(device->pool, pieces_run, m);
    /* Long enough for the pieces that it cuts off to matter little. */
    uint64_t window_ns = WINDOW_PIECES * shortest_piece(m);
    if (window_ns < WINDOW_NS) window_ns = WINDOW_NS;
    const int64_t n_piece =
        pieces_in_best_window(m, device->n_thread, window_ns, m->log_lens + n, m->log_lens + 2 * n);
    host->free(host->context, m->logs, size);
    return (double)n_piece * m->n_op / ((double)window_ns * 1e-9);
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
    /* Which one a machine is better at differs. */
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
