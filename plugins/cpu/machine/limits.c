/* SPDX-License-Identifier: MIT
 *
 * limits.c: measures the machine's limits with a device's own threads on their processors. Each
 * thread does small pieces of work and notes when each piece was done. The result is the rate of
 * all threads together while they are not disturbed:
 *
 * - multiplications: the highest rate in any one or two milliseconds, which is short enough to fit
 *   between interruptions; a core's rate of multiplications does not change over time.
 * - reading: the rate of a long stream. For some milliseconds memory can be read up to twice as
 *   fast, while other virtual machines on the host pause. So a tenth of a second is averaged, of
 *   the time in which every thread had its processor. The processor time of each thread shows that.
 *
 * limit_log.c selects that time from the notes. One measurement takes a quarter of a second. The
 * speed of memory varies, so measure again close to each comparison. The loops in plain C are here
 * too.
 */
#include "plugins/cpu/machine/limits.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/base/params.h"
#include "plugins/cpu/machine/isa.h"
#include "plugins/cpu/machine/limit_log.h"
#include "plugins/cpu/machine/memory.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/machine/sysfile.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum {
    LOG_LEN = 16384,  /* notes of a thread */
    N_PIECE_MIN = 80, /* pieces that a thread does at least, however long they take */
    N_TRY = 4
};
/* How long a measurement lasts: until a thread has had work_ns of processor time, or until max_ns
 * have passed, where threads do not get their processors. */
typedef struct time_budget {
    uint64_t work_ns, max_ns;
} time_budget;
static const time_budget budget_multiply = {30000000, 80000000};
static const time_budget budget_read = {110000000, 200000000}; /* in each of two orders */
#define WINDOW_NS   UINT64_C(1500000)                          /* of multiplications */
#define STRETCH_NS  UINT64_C(100000000)                        /* of reading, all threads at once */
#define STRETCH_MIN (STRETCH_NS / 4)                           /* less is too short to measure */
#define MEMORY_MIN  ((uint64_t)256 << 20)
#define PIECE_SIZE  ((uint64_t)1 << 20) /* bytes that a thread reads in a piece */
#define PART_UNIT   ((uint64_t)4 << 20) /* two fronts, each of whole pieces, on huge pages */
#define HUGE_PAGE   ((size_t)2 << 20)
/* The memory that is read again and again is CACHE_TIMES as large as all caches together, so that
 * almost nothing of it is still in a cache. Caches of servers have hundreds of MiB, and each device
 * of a group has memory of its own: where that would be more than MEMORY_MAX, CACHE_TIMES_MIN is
 * enough. */
#define CACHE_TIMES     4
#define CACHE_TIMES_MIN 2
#define MEMORY_MAX      ((uint64_t)1 << 30)

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
        x[n % N] ^= 1; /* another row each time: the compiler cannot reuse a product */
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
    if (device->isa & CPU_ISA_AMX) return &cpu_limit_loops_amx;
    if (device->isa & CPU_ISA_AVX512) return &cpu_limit_loops_avx512;
#ifdef CPU_HAS_AVX_VNNI
    /* AVX-VNNI has no CPU_ISA flag, since no kernel uses it. It is a limit of the machine all the
     * same, unless the option isa leaves out something that the machine has. */
    uint32_t a = 0, b, c, d;
    if ((device->isa & CPU_ISA_AVX2) && device->isa == cpu_isa_detect() &&
        __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0) /* SDM volume 2, CPUID */
        return &cpu_limit_loops_avx_vnni;
#endif
    if (device->isa & CPU_ISA_AVX2) return &cpu_limit_loops_avx2;
#elif defined(__aarch64__)
    if (device->isa & CPU_ISA_NEON) return &cpu_limit_loops_neon;
#else
    (void)device;
#endif
    return &loops_plain;
}

/* ---- Pieces ---- */

typedef enum limit_kind { LIMIT_READ, LIMIT_INT8, LIMIT_F32 } limit_kind;

typedef struct measurement {
    const cpu_limit_loops *loops;
    limit_kind kind;
    int n_front; /* streams that a thread reads in its part, alternating: 1 or 2 */
    uint8_t *memory;
    uint64_t part_size;  /* of each thread, a multiple of PART_UNIT */
    cpu_limit_log *logs; /* [n_thread], each of at most LOG_LEN notes */
    bool has_core_each;  /* there are as many processors as threads */
    double n_op;         /* operations or bytes of a piece */
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

static cpu_limit_note note_take(const measurement *m) {
    cpu_limit_note taken = {.at_ns = clock_ns(CLOCK_MONOTONIC)};
    if (m->kind == LIMIT_READ) taken.work_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return taken;
}

/* True when the thread has worked long enough. Its processor time counts, so that a measurement
 * takes longer on a busy machine. Read at every 16th piece only, since it takes a system call. */
static bool is_enough(const time_budget *budget, const cpu_limit_note *log, int32_t n,
                      uint64_t begin_ns) {
    if (n <= N_PIECE_MIN || n % 16 != 0) return false;
    return clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns >= budget->work_ns ||
           log[n - 1].at_ns - log[0].at_ns >= budget->max_ns;
}

/* Threads do not wait for each other between pieces: on a busy machine that would make them take
 * turns. */
static void pieces_run(void *arg, cpu_worker *w) {
    measurement *m = arg;
    cpu_limit_note *log = m->logs[w->ith].notes;
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
    m->logs[w->ith].n = n;
    if (w->ith == 0) m->n_op = n_op;
    atomic_fetch_add_explicit(&m->sink, sum, memory_order_relaxed);
}

static double rate_find(const measurement *m, int32_t n_thread) {
    if (m->kind != LIMIT_READ)
        return cpu_limit_window_rate(m->logs, n_thread, WINDOW_NS, m->has_core_each);
    double rate = cpu_limit_stretch_rate(m->logs, n_thread, STRETCH_NS, STRETCH_MIN);
    /* Threads that share processors never all run at once: their rate with turns is the limit. */
    if (rate == 0 && !m->has_core_each)
        rate = cpu_limit_window_rate(m->logs, n_thread, STRETCH_NS, false);
    return rate;
}

static double rate_measure(cpu_device *device, measurement *m, limit_kind kind) {
    const tdm_host *host = device->host;
    const size_t n = (size_t)device->n_thread, notes_size = n * LOG_LEN * sizeof(cpu_limit_note);
    const size_t size = notes_size + n * sizeof *m->logs;
    cpu_limit_note *notes = host->alloc(host->context, size, 64);
    if (notes == NULL) return 0;
    m->logs = (cpu_limit_log *)(void *)(notes + n * LOG_LEN);
    for (size_t t = 0; t < n; t++) m->logs[t] = (cpu_limit_log){.notes = notes + t * LOG_LEN};
    m->kind = kind;
    cpu_pool_run(device->pool, pieces_run, m);
    double rate = rate_find(m, device->n_thread);
    host->free(host->context, notes, size);
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
            /* A shared cache is counted with the first processor that shares it. */
            if (cpu_sysfile_read(path, text, sizeof text) && sscanf(text, "%lu", &first) == 1 &&
                first != (unsigned long)i)
                break;
            size = (uint64_t)kb * 1024;
        }
        total += size;
    }
    return total;
}

/* Bytes that each thread reads again and again; 0 if there is too little memory to exceed the
 * caches. */
static uint64_t part_size_choose(int32_t n_thread) {
    uint64_t total, available;
    uint64_t caches = last_caches_size(), wanted = caches * CACHE_TIMES;
    if (wanted < MEMORY_MIN) wanted = MEMORY_MIN;
    if (wanted > MEMORY_MAX) wanted = MEMORY_MAX;
    if (wanted < caches * CACHE_TIMES_MIN) wanted = caches * CACHE_TIMES_MIN;
    cpu_memory_query(&total, &available);
    if (available != 0 && wanted > available / 4) wanted = available / 4;
    uint64_t part = (wanted / (uint64_t)n_thread + PART_UNIT - 1) / PART_UNIT * PART_UNIT;
    wanted = part * (uint64_t)n_thread;
    if (wanted < caches * CACHE_TIMES_MIN || (available != 0 && wanted > available / 2)) return 0;
    return part;
}

/* Sets m->memory and m->part_size; false without memory. The memory stays with the device: to
 * allocate and touch it again would take longer than to read it. */
static bool memory_get(cpu_device *device, measurement *m) {
    const tdm_host *host = device->host;
    const size_t n = (size_t)device->n_thread;
    if (device->limit_memory == NULL) {
        m->part_size = part_size_choose(device->n_thread);
        size_t size = (size_t)m->part_size * n;
        if (size == 0) return false;
        m->memory = host->alloc(host->context, size, HUGE_PAGE);
        if (m->memory == NULL) return false;
        (void)madvise(m->memory, size, MADV_HUGEPAGE); /* whole ones: PART_UNIT is a multiple */
        cpu_pool_run(device->pool, memory_touch, m);
        device->limit_memory = m->memory;
        device->limit_memory_size = size;
    }
    m->memory = device->limit_memory;
    m->part_size = device->limit_memory_size / n;
    return true;
}

void cpu_limits_release(cpu_device *device) {
    const tdm_host *host = device->host;
    if (device->limit_memory != NULL)
        host->free(host->context, device->limit_memory, device->limit_memory_size);
    device->limit_memory = NULL;
}

static double read_bandwidth_measure(cpu_device *device, measurement *m) {
    double rate = 0;
    if (!memory_get(device, m)) return 0;
    for (m->n_front = 1; m->n_front <= 2; m->n_front++) { /* the faster one differs by machine */
        double found = rate_measure(device, m, LIMIT_READ);
        if (found > rate) rate = found;
    }
    return rate;
}

/* Tries again if the threads never ran at the same time: what prevents that often lasts longer than
 * one try. */
static double peak_measure(cpu_device *device, measurement *m, limit_kind kind) {
    double rate = 0;
    for (int i = 0; i < N_TRY && rate == 0; i++) rate = rate_measure(device, m, kind);
    return rate;
}

tdm_status cpu_limits_measure(cpu_device *device, tdm_device_limits *limits_out, tdm_error *err) {
    (void)err;
    tdm_device_limits limits = {.struct_size = sizeof limits};
    measurement m = {.loops = loops_choose(device),
                     .has_core_each = cpu_pool_has_core_each(device->pool)};
    /* The caller is worker 0: left where it is, it may share the processor of another worker. */
    cpu_set_t before;
    bool is_moved = pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0;
    if (is_moved) cpu_pool_pin_caller(device->pool);
    snprintf(limits.arithmetic, sizeof limits.arithmetic, "%s", m.loops->name);
    limits.read_bandwidth = read_bandwidth_measure(device, &m);
    limits.int8_peak = peak_measure(device, &m, LIMIT_INT8);
    limits.f32_peak = peak_measure(device, &m, LIMIT_F32);
    if (is_moved) (void)pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    tdm_struct_write(limits_out, &limits, sizeof limits);
    return TDM_OK;
}
