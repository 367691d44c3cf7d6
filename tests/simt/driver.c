/* SPDX-License-Identifier: MIT
 *
 * driver.c: an emulated driver for tests: the functions of plugins/gpu/rt/driver.h, under CUDA's
 * names or, with SIMT_HIP defined, under HIP's. Its kernels are those of this library (block.h);
 * any image that is loaded has all of them. README.md lists the settings in the environment, and
 * what the driver does not show.
 *
 * A stream is a thread that runs commands in order; it accepts up to MAX_COMMAND commands, then the
 * caller waits, as with real drivers. Copies and fills are executed by the stream, in its order.
 * After a kernel that breaks a rule, or an injected loss, every call on the device fails until its
 * context is released and made again. The failure is returned when no command of the device runs
 * any more, since the caller may free the memory of these commands then.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugins/gpu/rt/driver.h"
#include "tests/simt/block.h"
#include "tests/simt/capture.h"
#include "tests/simt/errors.h"
#include "tests/simt/peer.h"

#ifdef SIMT_HIP
#define DEVICE_NAME "AMD device of tests/simt"
enum { DEFAULT_WAVE = 64, VERSION = 60240000 /* 6.2 */ };
#else
#define DEVICE_NAME "NVIDIA device of tests/simt"
enum { DEFAULT_WAVE = 32, VERSION = 12040 /* 12.4 */ };
#endif
/* Compute capability, or the processor's generation: which matrices of f16 there are, or none. */
#ifndef SIMT_MAJOR
#ifdef SIMT_HIP
#define SIMT_MAJOR 8
#else
#define SIMT_MAJOR 9
#endif
#endif

/* The exported names of the functions below. */
#define SIMT_DECLARE_(name, cuda, hip, params)                                                     \
    EXPORT rt_result simt_##name params __asm__(SYMBOL(cuda, hip));
RT_DRIVER_LIST(SIMT_DECLARE_)

enum { MAX_COMMAND = 64, MAX_DEVICE = 4, MAX_GRID_Y = 65535, MAX_CAPTURE_STREAM = 8 };

EXPORT extern const int tandem_simt_version;
const int tandem_simt_version = 1;

/* ---- Settings -------------------------------------------------------------------------------- */

static struct {
    pthread_once_t once;
    int n_device;
    uint32_t wave_size;
    simt_order order;
    uint64_t memory;
    uint32_t grid_x;
    int ends_kernels;   /* what the driver says; it ends none */
    char fail_name[32]; /* "" = no failure */
    long fail_at;
    int fail_result;
} settings = {.once = PTHREAD_ONCE_INIT};

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

static void settings_read(void) {
    const char *order = getenv("TANDEM_SIMT_ORDER"), *fail = getenv("TANDEM_SIMT_FAIL");
    settings.n_device = (int)number_of("TANDEM_SIMT_DEVICES", 1);
    if (settings.n_device > MAX_DEVICE) settings.n_device = MAX_DEVICE;
    settings.wave_size = (uint32_t)number_of("TANDEM_SIMT_WAVE", DEFAULT_WAVE);
    settings.grid_x = (uint32_t)number_of("TANDEM_SIMT_GRID", 2147483647);
    settings.ends_kernels = (int)number_of("TANDEM_SIMT_KERNEL_TIMEOUT", 0);
    simt_peer_set(getenv("TANDEM_SIMT_PEER"));
    settings.memory = number_of("TANDEM_SIMT_MEMORY", (uint64_t)4 << 30);
    if (order != NULL && strcmp(order, "reverse") == 0) settings.order = SIMT_REVERSE;
    if (order != NULL && strcmp(order, "random") == 0) settings.order = SIMT_RANDOM;
    if (fail != NULL && sscanf(fail, "%31[a-z_]:%ld:%d", settings.fail_name, &settings.fail_at,
                               &settings.fail_result) != 3)
        settings.fail_name[0] = '\0';
}

/* ---- State, all under state_mutex ------------------------------------------------------------ */

static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t state_changed = PTHREAD_COND_INITIALIZER;

typedef struct context {
    int n_retain;
    rt_result sticky;   /* of a lost device */
    uint64_t n_pending; /* commands given to streams and not done */
} context;
static context contexts[MAX_DEVICE];
static int device_of(const context *c) {
    return (int)(c - contexts);
}
static uint64_t memory_used;
static long n_call; /* of settings.fail_name */
static __thread context *current;
/* Of this thread's captures (cuThreadExchangeStreamCaptureMode: a thread-local one). */
static __thread int n_capture;
static __thread bool is_capture_broken; /* by a call that is not allowed meanwhile */

/* Device memory. The size lies before it. */
enum { MEMORY_HEAD = 256 };

typedef enum command_kind {
    COMMAND_LAUNCH,
    COMMAND_GRAPH,
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_EVENT
} command_kind;

/* An executable graph: launches in the order in which they run. */
typedef struct exec {
    simt_work *launches;
    int n;
} exec;

struct stream;

/* What a stream captures, with all streams that have joined it. */
typedef struct capture {
    simt_graph *graph;
    struct stream *streams[MAX_CAPTURE_STREAM]; /* the first began it */
    int n_stream;
} capture;

typedef struct event {
    uint64_t n_recorded, n_done;
    capture *capture; /* that it was recorded in last; NULL = in none */
    simt_front front;
} event;

typedef struct command {
    command_kind kind;
    simt_work launch;
    exec *exec;
    void *dst;
    const void *src;
    size_t size;
    unsigned char byte;
    event *event;
    uint64_t event_number;
} command;

typedef struct stream {
    context *context;
    pthread_t thread;
    command commands[MAX_COMMAND];
    uint64_t n_given, n_done;
    bool is_ending;
    capture *capture; /* NULL = it does not capture */
    simt_front front;
} stream;

/* The failure of a lost device, when nothing runs on it any more; under state_mutex. */
static rt_result loss_of(const context *c) {
    while (c->sticky != RT_SUCCESS && c->n_pending > 0)
        pthread_cond_wait(&state_changed, &state_mutex);
    return c->sticky;
}

/* Every function begins with this: the injected failure, the lost device. */
static rt_result call_begin(const char *name, bool needs_context) {
    rt_result result = RT_SUCCESS;
    pthread_once(&settings.once, settings_read);
    pthread_mutex_lock(&state_mutex);
    bool counts = strcmp(settings.fail_name, name) == 0 || strcmp(settings.fail_name, "any") == 0;
    if (counts && ++n_call == settings.fail_at) {
        result = settings.fail_result;
        if (rt_result_is_loss(result) && current != NULL) current->sticky = result;
    }
    if (current != NULL && (needs_context || result != RT_SUCCESS)) {
        rt_result sticky = loss_of(current);
        if (result == RT_SUCCESS) result = sticky;
    }
    if (needs_context && current == NULL && result == RT_SUCCESS) result = INVALID_CONTEXT;
    pthread_mutex_unlock(&state_mutex);
    return result;
}

/* Call number `in` of the function from now on gives this result, as TANDEM_SIMT_FAIL says. */
EXPORT void tandem_simt_fail(const char *name, long in, int result);

void tandem_simt_fail(const char *name, long in, int result) {
    pthread_once(&settings.once, settings_read);
    pthread_mutex_lock(&state_mutex);
    snprintf(settings.fail_name, sizeof settings.fail_name, "%s", name);
    settings.fail_at = n_call + in;
    settings.fail_result = result;
    pthread_mutex_unlock(&state_mutex);
}

/* As CALL, for what the documentation calls potentially unsafe while this thread captures: it may
 * wait for what the device runs. */
#define CALL_UNSAFE(name)                                                                          \
    do {                                                                                           \
        CALL(name, true);                                                                          \
        if (n_capture == 0) break;                                                                 \
        is_capture_broken = true;                                                                  \
        return STREAM_CAPTURE_UNSUPPORTED;                                                         \
    } while (0)

/* Calls that release something work on a lost device too, but not without a context. */
#define RELEASE()                                                                                  \
    do {                                                                                           \
        if (current == NULL) return INVALID_CONTEXT;                                               \
        if (n_capture == 0) break;                                                                 \
        is_capture_broken = true;                                                                  \
        return STREAM_CAPTURE_UNSUPPORTED;                                                         \
    } while (0)

#define CALL(name, needs_context)                                                                  \
    do {                                                                                           \
        rt_result begun_ = call_begin(#name, needs_context);                                       \
        if (begun_ != RT_SUCCESS) return begun_;                                                   \
    } while (0)

/* ---- Streams --------------------------------------------------------------------------------- */

/* While is_held, streams accept commands and run none. For tests of calls that must not wait. */
EXPORT void tandem_simt_hold(bool hold);
EXPORT void tandem_simt_hold_device(int device, bool hold);
static bool is_held[MAX_DEVICE]; /* under state_mutex */

void tandem_simt_hold_device(int device, bool hold) {
    pthread_mutex_lock(&state_mutex);
    is_held[device] = hold;
    pthread_cond_broadcast(&state_changed);
    pthread_mutex_unlock(&state_mutex);
}

void tandem_simt_hold(bool hold) {
    for (int i = 0; i < MAX_DEVICE; i++) tandem_simt_hold_device(i, hold);
}

static void kernel_run(stream *s, const simt_work *launch) {
    char why[200];
    pthread_mutex_lock(&state_mutex);
    bool is_lost = s->context->sticky != RT_SUCCESS;
    pthread_mutex_unlock(&state_mutex);
    if (is_lost || simt_work_run(launch, why, sizeof why)) return;
    fprintf(stderr, "simt: kernel %s: %s\n", launch->kernel->name, why);
    pthread_mutex_lock(&state_mutex);
    s->context->sticky = RT_LAUNCH_FAILED;
    pthread_mutex_unlock(&state_mutex);
}

static void command_run(stream *s, const command *c) {
    switch (c->kind) {
    case COMMAND_LAUNCH: kernel_run(s, &c->launch); break;
    case COMMAND_GRAPH:
        for (int i = 0; i < c->exec->n; i++) kernel_run(s, &c->exec->launches[i]);
        break;
    case COMMAND_COPY: memmove(c->dst, c->src, c->size); break;
    case COMMAND_FILL: memset(c->dst, c->byte, c->size); break;
    case COMMAND_EVENT: break;
    }
}

static void *stream_main(void *arg) {
    stream *s = arg;
    pthread_mutex_lock(&state_mutex);
    for (;;) {
        while ((s->n_done == s->n_given || is_held[device_of(s->context)]) && !s->is_ending)
            pthread_cond_wait(&state_changed, &state_mutex);
        if (s->n_done == s->n_given) break;
        const command *c = &s->commands[s->n_done % MAX_COMMAND];
        pthread_mutex_unlock(&state_mutex);
        command_run(s, c);
        pthread_mutex_lock(&state_mutex);
        if (c->kind == COMMAND_EVENT && c->event->n_done < c->event_number)
            c->event->n_done = c->event_number;
        s->n_done++;
        s->context->n_pending--;
        pthread_cond_broadcast(&state_changed);
    }
    pthread_mutex_unlock(&state_mutex);
    simt_work_end();
    return NULL;
}

/* Submissions of kernels since the library was loaded: launches, and launches of graphs. */
EXPORT uint64_t tandem_simt_submissions(void);
static uint64_t n_submission; /* under state_mutex */

uint64_t tandem_simt_submissions(void) {
    pthread_mutex_lock(&state_mutex);
    uint64_t n = n_submission;
    pthread_mutex_unlock(&state_mutex);
    return n;
}

/* The addresses at the beginning of the arguments (struct Args of kernels/lang.h). */
static rt_result addresses_reach(const context *c, simt_work *launch, size_t size) {
    uint64_t at[6];
    if (size < sizeof at) return RT_SUCCESS;
    memcpy(at, launch->args, sizeof at);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (at[i] == 0) continue;
        at[i] = simt_peer_address(device_of(c), at[i], true);
        if (at[i] == 0) return RT_ILLEGAL_ADDRESS;
    }
    memcpy(launch->args, at, sizeof at);
    return RT_SUCCESS;
}

static rt_result command_give(stream *s, const command *c) {
    if (s == NULL) return INVALID_HANDLE;
    pthread_mutex_lock(&state_mutex);
    n_submission += c->kind == COMMAND_LAUNCH || c->kind == COMMAND_GRAPH;
    while (s->n_given - s->n_done == MAX_COMMAND) pthread_cond_wait(&state_changed, &state_mutex);
    s->commands[s->n_given++ % MAX_COMMAND] = *c;
    s->context->n_pending++;
    pthread_cond_broadcast(&state_changed);
    pthread_mutex_unlock(&state_mutex);
    return RT_SUCCESS;
}

rt_result simt_stream_create(void **stream_out, unsigned flags) {
    (void)flags;
    CALL_UNSAFE(stream_create);
    stream *s = calloc(1, sizeof *s);
    if (s == NULL) return RT_OUT_OF_MEMORY;
    s->context = current;
    if (pthread_create(&s->thread, NULL, stream_main, s) != 0) {
        free(s);
        return RT_OUT_OF_MEMORY;
    }
    *stream_out = s;
    return RT_SUCCESS;
}

/* Takes the stream, or where it began the capture all streams, out of it. */
static void capture_leave(stream *s) {
    capture *c = s->capture;
    if (c == NULL) return;
    if (c->streams[0] != s) {
        int i = 1;
        while (c->streams[i] != s) i++;
        c->streams[i] = c->streams[--c->n_stream];
        s->capture = NULL;
        return;
    }
    for (int i = 0; i < c->n_stream; i++) c->streams[i]->capture = NULL;
    free(c);
}

rt_result simt_stream_destroy(void *handle) {
    stream *s = handle;
    RELEASE();
    pthread_mutex_lock(&state_mutex);
    s->is_ending = true;
    pthread_cond_broadcast(&state_changed);
    pthread_mutex_unlock(&state_mutex);
    pthread_join(s->thread, NULL);
    if (s->capture != NULL && s->capture->streams[0] == s) simt_graph_free(s->capture->graph);
    capture_leave(s);
    free(s);
    return RT_SUCCESS;
}

rt_result simt_stream_sync(void *handle) {
    stream *s = handle;
    CALL_UNSAFE(stream_sync);
    pthread_mutex_lock(&state_mutex);
    uint64_t given = s->n_given;
    while (s->n_done < given) pthread_cond_wait(&state_changed, &state_mutex);
    rt_result result = loss_of(s->context);
    pthread_mutex_unlock(&state_mutex);
    return result;
}

/* ---- Events ---------------------------------------------------------------------------------- */

rt_result simt_event_create(void **event_out, unsigned flags) {
    CALL(event_create, true);
#ifdef SIMT_HIP
    /* hipEventReleaseToSystem: the plugin depends on it where the host waits. */
    if ((flags & RT_EVENT_BLOCKING) != 0 && (flags & 0x80000000) == 0) return RT_INVALID_VALUE;
    flags &= ~0x80000000u;
#endif
    if ((flags & ~(unsigned)(RT_EVENT_BLOCKING | RT_EVENT_NO_TIMING)) != 0) return RT_INVALID_VALUE;
    *event_out = calloc(1, sizeof(event));
    return *event_out != NULL ? RT_SUCCESS : RT_OUT_OF_MEMORY;
}

rt_result simt_event_destroy(void *handle) {
    RELEASE();
    free(handle);
    return RT_SUCCESS;
}

rt_result simt_event_record(void *handle, void *stream_handle) {
    event *e = handle;
    stream *s = stream_handle;
    CALL(event_record, true);
    e->capture = s != NULL ? s->capture : NULL;
    if (e->capture != NULL) {
        e->front = s->front;
        return RT_SUCCESS;
    }
    pthread_mutex_lock(&state_mutex);
    const command c = {.kind = COMMAND_EVENT, .event = e, .event_number = ++e->n_recorded};
    pthread_mutex_unlock(&state_mutex);
    return command_give(stream_handle, &c);
}

/* For events that were captured only: the stream joins their capture. */
rt_result simt_stream_wait(void *stream_handle, void *handle, unsigned flags) {
    stream *s = stream_handle;
    const event *e = handle;
    CALL(stream_wait, true);
    if (s == NULL || e == NULL) return INVALID_HANDLE;
    if (flags != 0) return RT_INVALID_VALUE;
    capture *c = e->capture;
    if (c == NULL || (s->capture != NULL && s->capture != c)) return NOT_SUPPORTED;
    if (s->capture == NULL) {
        if (c->n_stream == MAX_CAPTURE_STREAM) return RT_OUT_OF_MEMORY;
        c->streams[c->n_stream++] = s;
        s->capture = c;
        s->front.n = 0;
    }
    return simt_front_join(&s->front, &e->front) ? RT_SUCCESS : RT_OUT_OF_MEMORY;
}

static rt_result event_state(const event *e) {
    rt_result lost = loss_of(current);
    return lost != RT_SUCCESS ? lost : e->n_done >= e->n_recorded ? RT_SUCCESS : RT_NOT_READY;
}

rt_result simt_event_query(void *handle) {
    CALL_UNSAFE(event_query);
    pthread_mutex_lock(&state_mutex);
    rt_result result = event_state(handle);
    pthread_mutex_unlock(&state_mutex);
    return result;
}

rt_result simt_event_sync(void *handle) {
    const event *e = handle;
    CALL_UNSAFE(event_sync);
    pthread_mutex_lock(&state_mutex);
    uint64_t number = e->n_recorded;
    while (e->n_done < number && current->sticky == RT_SUCCESS)
        pthread_cond_wait(&state_changed, &state_mutex);
    rt_result result = loss_of(current);
    pthread_mutex_unlock(&state_mutex);
    return result;
}

/* ---- Devices --------------------------------------------------------------------------------- */

rt_result simt_init(unsigned flags) {
    CALL(init, false);
    return flags == 0 ? RT_SUCCESS : RT_INVALID_VALUE;
}

rt_result simt_version_get(int *version_out) {
    CALL(version_get, false);
    *version_out = VERSION;
    return RT_SUCCESS;
}

rt_result simt_device_count(int *n_out) {
    CALL(device_count, false);
    *n_out = settings.n_device;
    return settings.n_device > 0 ? RT_SUCCESS : RT_NO_DEVICE;
}

rt_result simt_device_get(int *device_out, int index) {
    CALL(device_get, false);
    if (index < 0 || index >= settings.n_device) return RT_INVALID_VALUE;
    *device_out = index;
    return RT_SUCCESS;
}

rt_result simt_device_name(char *name_out, int size, int device) {
    CALL(device_name, false);
    (void)device;
    snprintf(name_out, (size_t)size, "%s", DEVICE_NAME);
    return RT_SUCCESS;
}

rt_result simt_device_memory(size_t *size_out, int device) {
    CALL(device_memory, false);
    (void)device;
    *size_out = (size_t)settings.memory;
    return RT_SUCCESS;
}

/* The numbers of the vendors, written here a second time so that a wrong one in a plugin is
 * found. */
rt_result simt_device_attribute(int *value_out, int attribute, int device) {
    CALL(device_attribute, false);
    (void)device;
#ifdef SIMT_HIP
    enum {
        GROUP = 56,
        GRID_X = 29,
        GRID_Y = 30,
        SHARED = 74,
        MAX_SHARED = -1,
        WAVE = 87,
        UNITS = 63,
        HOST = 3,
        INTEGRATED = 16,
        MAJOR = 23,
        MINOR = 61,
        TIMEOUT = 18,
        CLOCK = 10017
    };
#else
    enum {
        GROUP = 1,
        GRID_X = 5,
        GRID_Y = 6,
        SHARED = 8,
        MAX_SHARED = 97,
        WAVE = 10,
        UNITS = 16,
        HOST = 19,
        INTEGRATED = 18,
        MAJOR = 75,
        MINOR = 76,
        TIMEOUT = 17,
        CLOCK = -1
    };
#endif
    switch (attribute) {
    case GROUP: *value_out = SIMT_MAX_THREAD; break;
    case GRID_X: *value_out = (int)settings.grid_x; break;
    case GRID_Y: *value_out = MAX_GRID_Y; break;
    case SHARED: *value_out = SIMT_MAX_SHARED; break;
    case MAX_SHARED: *value_out = SIMT_MORE_SHARED; break;
    case WAVE: *value_out = (int)settings.wave_size; break;
    case UNITS: *value_out = 4; break;
    case HOST: *value_out = 1; break;
    case INTEGRATED: *value_out = 0; break;
    case MAJOR: *value_out = SIMT_MAJOR; break;
    case MINOR: *value_out = 0; break;
    case TIMEOUT: *value_out = settings.ends_kernels; break;
    case CLOCK: *value_out = 1000000; break; /* kHz */
    default: return RT_INVALID_VALUE;
    }
    return RT_SUCCESS;
}

rt_result simt_device_pci(char *text_out, int size, int device) {
    CALL(device_pci, false);
    (void)text_out, (void)size, (void)device;
    return RT_INVALID_VALUE; /* it is in no slot */
}

rt_result simt_device_uuid(void *bytes_out, int device) {
    CALL(device_uuid, false);
    memset(bytes_out, 0x5a + device, 16);
    return RT_SUCCESS;
}

rt_result simt_context_retain(void **context_out, int device) {
    CALL(context_retain, false);
    pthread_mutex_lock(&state_mutex);
    if (contexts[device].n_retain++ == 0) contexts[device].sticky = RT_SUCCESS;
    pthread_mutex_unlock(&state_mutex);
    *context_out = &contexts[device];
    return RT_SUCCESS;
}

rt_result simt_context_release(int device) {
    pthread_mutex_lock(&state_mutex);
    bool has_ended = --contexts[device].n_retain == 0;
    if (has_ended) simt_peer_end(device);
    pthread_mutex_unlock(&state_mutex);
    return RT_SUCCESS;
}

rt_result simt_context_set(void *handle) {
    CALL(context_set, false);
    current = handle;
    return RT_SUCCESS;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

rt_result simt_memory_info(size_t *free_out, size_t *total_out) {
    CALL(memory_info, true);
    pthread_mutex_lock(&state_mutex);
    *total_out = (size_t)settings.memory;
    *free_out = (size_t)(settings.memory - memory_used);
    pthread_mutex_unlock(&state_mutex);
    return RT_SUCCESS;
}

/* Filled with a pattern: fresh memory of a device has any contents. */
static rt_result memory_take(uint64_t *address_out, size_t size, bool is_shared) {
    pthread_mutex_lock(&state_mutex);
    bool fits = size > 0 && size <= settings.memory - memory_used;
    if (fits) memory_used += size;
    pthread_mutex_unlock(&state_mutex);
    if (!fits) return RT_OUT_OF_MEMORY;
    size_t whole = (size + 2 * MEMORY_HEAD - 1) / MEMORY_HEAD * MEMORY_HEAD;
    char *block = aligned_alloc(MEMORY_HEAD, whole);
    if (block == NULL) return RT_OUT_OF_MEMORY;
    memcpy(block, &size, sizeof size);
    memset(block + MEMORY_HEAD, 0xcd, size);
    if (!simt_peer_note(device_of(current), block + MEMORY_HEAD, size, is_shared)) {
        free(block);
        return RT_OUT_OF_MEMORY;
    }
    *address_out = (uint64_t)(uintptr_t)(block + MEMORY_HEAD);
    return RT_SUCCESS;
}

#ifdef SIMT_HIP
EXPORT rt_result simt_shared_alloc(uint64_t *address_out, size_t size,
                                   unsigned flags) __asm__("hipExtMallocWithFlags");

rt_result simt_shared_alloc(uint64_t *address_out, size_t size, unsigned flags) {
    CALL_UNSAFE(shared_alloc);
    return flags == 1 ? memory_take(address_out, size, true) : RT_INVALID_VALUE;
}
enum { PLAIN_IS_SHARED = false };
#else
enum { PLAIN_IS_SHARED = true };
#endif

rt_result simt_memory_alloc(uint64_t *address_out, size_t size) {
    CALL_UNSAFE(memory_alloc);
    return memory_take(address_out, size, PLAIN_IS_SHARED);
}

rt_result simt_memory_free(uint64_t address) {
    RELEASE();
    char *block = (char *)(uintptr_t)address - MEMORY_HEAD;
    size_t size;
    simt_peer_forget(block + MEMORY_HEAD);
    memcpy(&size, block, sizeof size);
    pthread_mutex_lock(&state_mutex);
    memory_used -= size;
    pthread_mutex_unlock(&state_mutex);
    free(block);
    return RT_SUCCESS;
}

rt_result simt_host_alloc(void **pointer_out, size_t size, unsigned flags) {
    CALL_UNSAFE(host_alloc);
#ifdef SIMT_HIP
    /* hipHostMallocCoherent: the plugin depends on coherent memory. */
    if ((flags & 0x40000000) == 0) return RT_INVALID_VALUE;
    flags &= ~0x40000000u;
#endif
    if (flags != (RT_HOST_PORTABLE | RT_HOST_MAPPED)) return RT_INVALID_VALUE;
    /* Sanitizers end the program at such sizes. */
    if (size > (size_t)1 << 40) return RT_OUT_OF_MEMORY;
    *pointer_out = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return *pointer_out != NULL ? RT_SUCCESS : RT_OUT_OF_MEMORY;
}

rt_result simt_host_free(void *pointer) {
    RELEASE();
    free(pointer);
    return RT_SUCCESS;
}

/* Page-locked memory of the host, for all devices. */
typedef struct locked {
    struct locked *next;
    char *pointer;
    size_t size;
} locked;
static locked *all_locked; /* under state_mutex */

/* The same memory is locked once only, by any device. */
rt_result simt_host_register(void *pointer, size_t size, unsigned flags) {
    CALL_UNSAFE(host_register);
    if (pointer == NULL || size == 0 || (flags & RT_HOST_PORTABLE) == 0) return RT_INVALID_VALUE;
    locked *more = malloc(sizeof *more);
    if (more == NULL) return RT_OUT_OF_MEMORY;
    pthread_mutex_lock(&state_mutex);
    *more = (locked){.next = all_locked, .pointer = pointer, .size = size};
    const locked *other = all_locked;
    while (other != NULL && (other->pointer >= more->pointer + size ||
                             more->pointer >= other->pointer + other->size))
        other = other->next;
    if (other == NULL) all_locked = more;
    pthread_mutex_unlock(&state_mutex);
    if (other == NULL) return RT_SUCCESS;
    free(more);
    return RT_ALREADY_REGISTERED;
}

rt_result simt_host_unregister(void *pointer) {
    RELEASE();
    pthread_mutex_lock(&state_mutex);
    locked **at = &all_locked;
    while (*at != NULL && (*at)->pointer != pointer) at = &(*at)->next;
    locked *found = *at;
    if (found != NULL) *at = found->next;
    pthread_mutex_unlock(&state_mutex);
    free(found);
    return found != NULL ? RT_SUCCESS : RT_NOT_REGISTERED;
}

rt_result simt_host_address(uint64_t *address_out, void *pointer, unsigned flags) {
    CALL(host_address, true);
    (void)flags;
    *address_out = (uint64_t)(uintptr_t)pointer;
    return RT_SUCCESS;
}

/* ---- Peers ----------------------------------------------------------------------------------- */

EXPORT void tandem_simt_peer(const char *mode);

void tandem_simt_peer(const char *mode) {
    pthread_once(&settings.once, settings_read);
    simt_peer_set(mode);
}

rt_result simt_peer_query(int *can_out, int device, int peer) {
    CALL(peer_query, false);
    if (device < 0 || peer < 0 || device >= settings.n_device || peer >= settings.n_device)
        return RT_INVALID_VALUE;
    *can_out = simt_peer_can(device, peer);
    return RT_SUCCESS;
}

static rt_result peer_open(int peer, unsigned flags) {
    if (flags != 0 || peer < 0 || peer >= settings.n_device) return RT_INVALID_VALUE;
    if (!simt_peer_can(device_of(current), peer)) return PEER_UNSUPPORTED;
    return simt_peer_enable(device_of(current), peer) ? RT_SUCCESS : RT_PEER_IS_ENABLED;
}

#ifdef SIMT_HIP
EXPORT rt_result simt_peer_enable_device(int peer,
                                         unsigned flags) __asm__("hipDeviceEnablePeerAccess");

rt_result simt_peer_enable_device(int peer, unsigned flags) {
    CALL(peer_enable, true);
    return peer_open(peer, flags);
}
#else
EXPORT rt_result simt_peer_enable_context(void *peer,
                                          unsigned flags) __asm__("cuCtxEnablePeerAccess");

rt_result simt_peer_enable_context(void *peer, unsigned flags) {
    CALL(peer_enable, true);
    return peer != NULL ? peer_open(device_of(peer), flags) : INVALID_CONTEXT;
}
#endif

/* ---- Copies ---------------------------------------------------------------------------------- */

static void *reach(const stream *s, const void *at) {
    uint64_t address = (uint64_t)(uintptr_t)at;
    if (s != NULL) address = simt_peer_address(device_of(s->context), address, false);
    return (void *)(uintptr_t)address;
}

static rt_result copy_give(void *stream_handle, void *dst, const void *src, size_t size) {
    const command c = {.kind = COMMAND_COPY,
                       .dst = reach(stream_handle, dst),
                       .src = reach(stream_handle, src),
                       .size = size};
    if (c.dst == NULL || c.src == NULL) return RT_INVALID_VALUE;
    return command_give(stream_handle, &c);
}

rt_result simt_copy_in(uint64_t dst, const void *src, size_t size, void *stream_handle) {
    CALL(copy_in, true);
    return copy_give(stream_handle, (void *)(uintptr_t)dst, src, size);
}

rt_result simt_copy_out(void *dst, uint64_t src, size_t size, void *stream_handle) {
    CALL(copy_out, true);
    return copy_give(stream_handle, dst, (const void *)(uintptr_t)src, size);
}

rt_result simt_copy_inside(uint64_t dst, uint64_t src, size_t size, void *stream_handle) {
    CALL(copy_inside, true);
    return copy_give(stream_handle, (void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size);
}

rt_result simt_fill(uint64_t dst, unsigned char byte, size_t size, void *stream_handle) {
    CALL(fill, true);
    const command c = {.kind = COMMAND_FILL,
                       .dst = reach(stream_handle, (void *)(uintptr_t)dst),
                       .byte = byte,
                       .size = size};
    if (c.dst == NULL) return RT_INVALID_VALUE;
    return command_give(stream_handle, &c);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

rt_result simt_module_load(void **module_out, const void *image, unsigned n_option, int *options,
                           void **values) {
    for (unsigned i = 0; i < n_option; i++) /* read where the call fails */
        if (options[i] == RT_JIT_ERROR_LOG) strcpy(values[i], "emulated: nothing is compiled\n-");
    CALL_UNSAFE(module_load);
    if (image == NULL) return RT_INVALID_VALUE;
    *module_out = (void *)(uintptr_t)&tandem_simt_version;
    return RT_SUCCESS;
}

rt_result simt_module_unload(void *module) {
    (void)module;
    RELEASE();
    return RT_SUCCESS;
}

rt_result simt_module_function(void **function_out, void *module, const char *name) {
    CALL(module_function, true);
    (void)module;
    *function_out = simt_kernel_find(name);
    return *function_out != NULL ? RT_SUCCESS : RT_NOT_FOUND;
}

/* Only the size of shared memory can be set. */
rt_result simt_function_set(void *function, int attribute, int value) {
    simt_kernel *kernel = function;
    CALL(function_set, true);
    if (kernel == NULL) return INVALID_HANDLE;
    if (attribute != RT_FUNCTION_SHARED_SIZE || value < 0 || value > SIMT_MORE_SHARED)
        return RT_INVALID_VALUE;
    pthread_mutex_lock(&state_mutex);
    kernel->max_shared = (uint32_t)value;
    pthread_mutex_unlock(&state_mutex);
    return RT_SUCCESS;
}

rt_result simt_launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,
                      void *stream_handle, void **params, void **extra) {
    const simt_kernel *kernel = function;
    stream *s = stream_handle;
    CALL(launch, true);
    if (kernel == NULL || s == NULL) return INVALID_HANDLE;
    if (params == NULL || extra != NULL || block_y != 1 || block_z != 1 || grid_x == 0 ||
        grid_y == 0 || grid_z == 0 || kernel->args_size > SIMT_MAX_ARGS ||
        grid_x > settings.grid_x || grid_y > MAX_GRID_Y || block_x > kernel->max_threads ||
        (shared_size > SIMT_MAX_SHARED && shared_size > kernel->max_shared))
        return RT_INVALID_VALUE;
#ifdef SIMT_HIP
    /* hipModuleLaunchKernel: fewer than 2^32 threads along an axis. */
    if ((uint64_t)grid_x * block_x > UINT32_MAX) return RT_INVALID_VALUE;
#endif
    command c = {.kind = COMMAND_LAUNCH,
                 .launch = {.kernel = kernel,
                            .grid = {grid_x, grid_y, grid_z},
                            .n_thread = block_x,
                            .shared_size = shared_size,
                            .wave_size = settings.wave_size,
                            .order = settings.order}};
    memcpy(c.launch.args, params[0], kernel->args_size);
    if (addresses_reach(s->context, &c.launch, kernel->args_size) != RT_SUCCESS)
        return RT_ILLEGAL_ADDRESS;
    if (s->capture == NULL) return command_give(s, &c);
    return simt_graph_append(s->capture->graph, &s->front, &c.launch) ? RT_SUCCESS
                                                                      : RT_OUT_OF_MEMORY;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

rt_result simt_capture_begin(void *stream_handle, int mode) {
    stream *s = stream_handle;
    CALL(capture_begin, true);
    if (mode != RT_CAPTURE_THREAD_LOCAL || s->capture != NULL) return RT_INVALID_VALUE;
    capture *c = calloc(1, sizeof *c);
    simt_graph *graph = c != NULL ? simt_graph_create() : NULL;
    if (graph == NULL) {
        free(c);
        return RT_OUT_OF_MEMORY;
    }
    *c = (capture){.graph = graph, .streams = {s}, .n_stream = 1};
    s->capture = c;
    s->front.n = 0;
    if (n_capture++ == 0) is_capture_broken = false;
    return RT_SUCCESS;
}

rt_result simt_capture_end(void *stream_handle, void **graph_out) {
    stream *s = stream_handle;
    simt_graph *graph = NULL;
    rt_result result = call_begin("capture_end", true);
    if (s->capture == NULL || s->capture->streams[0] != s)
        return result != RT_SUCCESS ? result : STREAM_CAPTURE_INVALID;
    graph = s->capture->graph;
    capture_leave(s);
    n_capture--;
    if (result == RT_SUCCESS && is_capture_broken) result = STREAM_CAPTURE_INVALID;
    if (result == RT_SUCCESS && !simt_graph_is_joined(graph, &s->front))
        result = STREAM_CAPTURE_UNJOINED;
    if (result == RT_SUCCESS)
        *graph_out = graph;
    else
        simt_graph_free(graph);
    return result;
}

rt_result simt_graph_instantiate(void **exec_out, void *graph, unsigned long long flags) {
    CALL(graph_instantiate, true);
    exec *e = calloc(1, sizeof *e);
    if (e != NULL && flags == 0) e->launches = simt_graph_sort(graph, &e->n);
    if (e == NULL || e->launches == NULL) {
        free(e);
        return RT_OUT_OF_MEMORY;
    }
    *exec_out = e;
    return RT_SUCCESS;
}

rt_result simt_graph_destroy(void *graph) {
    simt_graph_free(graph);
    return RT_SUCCESS;
}

rt_result simt_graph_launch(void *handle, void *stream_handle) {
    CALL(graph_launch, true);
    const command c = {.kind = COMMAND_GRAPH, .exec = handle};
    return command_give(stream_handle, &c);
}

rt_result simt_exec_destroy(void *handle) {
    exec *e = handle;
    if (e != NULL) free(e->launches);
    free(e);
    return RT_SUCCESS;
}
