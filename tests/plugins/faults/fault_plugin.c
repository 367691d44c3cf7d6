/* SPDX-License-Identifier: MIT
 *
 * fault_plugin.c: a device with faults, for the tests of groups. It acquires the device that its
 * option `member` names and passes every call on to it. A test chooses the faults by options when
 * the device is opened, or later through fault_set, which it finds with dlsym.
 *
 * The shim (tests/plugins/shims) wraps a plugin instead. This plugin wraps an open device of the
 * host, so that each member of a group has its own faults, which tests set while the group runs.
 *
 *   member = NAME         the device behind it; required
 *   exchange = no         refuses EXCHANGE, whole and in phases
 *            = lie-bits   exchanges, but adds its own x instead of the residual
 *            = lie-idle   signals at once and computes nothing
 *            = lie-hang   accepts an exchange and never signals it
 *   import = no           imports no host memory
 *   host-pointer = no     gives the host no addresses
 *   refuse = N            supports no op number N
 *   memory = N            reports memory of its own, of which N bytes are free
 *   host-kv = yes         reports TDM_DEVICE_HAS_HOST_KV
 *   fail-call = N         of the calls that allocate, the N-th fails, counted from 1
 * fault_set(NAME, key, n) changes every open device whose member is NAME; n of the keys that end in
 * "-in" counts from 1, from now on; 0 = never:
 *   "fail-in"             the n-th computation fails
 *   "silent-in"           the n-th computation is not run, and signals only at "release"
 *   "refuse-in"           graph_compute refuses the n-th computation
 *   "lie-in"              graph_compute runs the n-th computation to its end, then flips bit
 *                         "lie-bit" of the last element of each f32 OUTPUT of "lie-size" elements
 *   "block-in"            the n-th graph_compute does not return before "release"
 *   "block-upload-in"     the same for the n-th upload
 *   "block-destroy-in"    the same for the destruction of the n-th plan
 *   "await"               returns once a call is blocked
 *   "await-end"           returns once no call is blocked
 *   "release"             signals what is silent, and lets blocked calls return
 *   "bounded"             1 = graph_compute returns when the computation has ended, as where a
 *                         driver's launch queue is full
 *   "work-ms"             every computation without waits takes so much longer
 *   "mute"                1 = progress does not change meanwhile
 *   "delay-us"            longest delay of a computation; one of 16 is delayed, by a random time
 *   "prepare-in"          the n-th graph_prepare fails
 *   "fail-call"           as the option
 *
 * A queue that is destroyed before one of its plans (tandem/queue.h forbids it) ends the test.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tandem/plugin.h"
#include "tests/support/random.h"

enum { MAX_OPEN = 64, MAX_KEPT = 64 };

struct tdm_instance {
    const tdm_host *host;
};

struct tdm_device {
    const tdm_host *host;
    tdm_acquired_device lent;
    char member[64], exchange[16];
    bool imports, has_pointer, has_host_kv;
    uint64_t memory;                                                      /* 0 = as it is */
    int64_t refused_op;                                                   /* -1 = none */
    _Atomic int64_t fail_call, fail_in, silent_in, refuse_in, prepare_in; /* 0 = never */
    _Atomic int64_t delay_us, lie_in, lie_size, lie_bit;
    _Atomic int64_t block_in, block_upload_in, block_destroy_in, n_blocked, bounded, n_release,
        work_ms, mute;
    pthread_mutex_t mutex;
    tdm_point kept[MAX_KEPT]; /* signals that wait for a release */
    int32_t n_kept;
    uint64_t random;
};

struct tdm_queue {
    tdm_device *device;
    tdm_queue *lent;
    tdm_semaphore *worked; /* of computations that take longer; the thread below reaches it */
    uint64_t n_worked;
    pthread_t worker;
    bool has_worker;
    _Atomic uint64_t progress;
    _Atomic int n_plan; /* made on it and not destroyed */
};

struct tdm_plan {
    tdm_device *device;
    tdm_queue *queue;
    const tdm_graph *graph;
    tdm_plan *lent;
    tdm_binding *bindings; /* [graph->n_slot] */
};

static tdm_device *devices[MAX_OPEN];
static pthread_mutex_t devices_mutex = PTHREAD_MUTEX_INITIALIZER;
static const tdm_plugin *behind; /* the tables of the acquired devices, which are of one plugin */

/* Counts down; true for the call that brings the counter to 0. */
static bool is_due(_Atomic int64_t *counter) {
    return atomic_load(counter) > 0 && atomic_fetch_sub(counter, 1) == 1;
}

static tdm_status spend(tdm_device *d, tdm_error *err) {
    if (!is_due(&d->fail_call)) return TDM_OK;
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "'%s' has no memory left", d->member);
}

/* Returns after the next release. */
static void block(tdm_device *d) {
    int64_t seen = atomic_load(&d->n_release);
    atomic_fetch_add(&d->n_blocked, 1);
    while (atomic_load(&d->n_release) == seen) nanosleep(&(struct timespec){0, 1000000}, NULL);
    atomic_fetch_sub(&d->n_blocked, 1);
}

/* Returns once a call of the member is blocked, or none is. devices_mutex is released in between,
 * because a call may need it before it blocks. */
static void await_blocked(const char *member, bool wanted) {
    bool is_blocked = !wanted;
    while (is_blocked != wanted) {
        is_blocked = false;
        pthread_mutex_lock(&devices_mutex);
        for (int i = 0; i < MAX_OPEN; i++)
            if (devices[i] != NULL && strcmp(devices[i]->member, member) == 0)
                is_blocked = is_blocked || atomic_load(&devices[i]->n_blocked) > 0;
        pthread_mutex_unlock(&devices_mutex);
        if (is_blocked != wanted) nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

static void release(tdm_device *d) {
    pthread_mutex_lock(&d->mutex);
    for (int32_t i = 0; i < d->n_kept; i++)
        d->host->semaphore->signal(d->kept[i].semaphore, d->kept[i].value);
    d->n_kept = 0;
    pthread_mutex_unlock(&d->mutex);
}

TDM_EXPORT void fault_set(const char *member, const char *key, int64_t n);
TDM_EXPORT void fault_set(const char *member, const char *key, int64_t n) {
    if (strcmp(key, "await") == 0 || strcmp(key, "await-end") == 0) {
        await_blocked(member, strcmp(key, "await") == 0);
        return;
    }
    pthread_mutex_lock(&devices_mutex);
    for (int i = 0; i < MAX_OPEN; i++) {
        tdm_device *d = devices[i];
        if (d == NULL || strcmp(d->member, member) != 0) continue;
        if (strcmp(key, "fail-in") == 0) atomic_store(&d->fail_in, n);
        if (strcmp(key, "silent-in") == 0) atomic_store(&d->silent_in, n);
        if (strcmp(key, "refuse-in") == 0) atomic_store(&d->refuse_in, n);
        if (strcmp(key, "prepare-in") == 0) atomic_store(&d->prepare_in, n);
        if (strcmp(key, "lie-in") == 0) atomic_store(&d->lie_in, n);
        if (strcmp(key, "lie-size") == 0) atomic_store(&d->lie_size, n);
        if (strcmp(key, "lie-bit") == 0) atomic_store(&d->lie_bit, n);
        if (strcmp(key, "delay-us") == 0) atomic_store(&d->delay_us, n);
        if (strcmp(key, "fail-call") == 0) atomic_store(&d->fail_call, n);
        if (strcmp(key, "block-in") == 0) atomic_store(&d->block_in, n);
        if (strcmp(key, "block-upload-in") == 0) atomic_store(&d->block_upload_in, n);
        if (strcmp(key, "block-destroy-in") == 0) atomic_store(&d->block_destroy_in, n);
        if (strcmp(key, "work-ms") == 0) atomic_store(&d->work_ms, n);
        if (strcmp(key, "mute") == 0) atomic_store(&d->mute, n);
        if (strcmp(key, "bounded") == 0) atomic_store(&d->bounded, n);
        if (strcmp(key, "release") == 0) {
            atomic_fetch_add(&d->n_release, 1);
            release(d);
        }
    }
    pthread_mutex_unlock(&devices_mutex);
}

/* ---- Devices --------------------------------------------------------------------------------- */

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    (void)params;
    (void)instance;
    (void)err;
    *n_out = 1;
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    (void)params;
    (void)instance;
    if (index != 0) return tdm_fail(err, TDM_NOT_FOUND, "no fault device %d", (int)index);
    snprintf(info_out->name, sizeof info_out->name, "fault0");
    return TDM_OK;
}

static void option_read(tdm_device *d, const char *key, const char *value) {
    if (strcmp(key, "member") == 0) snprintf(d->member, sizeof d->member, "%s", value);
    if (strcmp(key, "exchange") == 0) snprintf(d->exchange, sizeof d->exchange, "%s", value);
    if (strcmp(key, "import") == 0) d->imports = strcmp(value, "no") != 0;
    if (strcmp(key, "host-pointer") == 0) d->has_pointer = strcmp(value, "no") != 0;
    if (strcmp(key, "host-kv") == 0) d->has_host_kv = strcmp(value, "yes") == 0;
    if (strcmp(key, "memory") == 0) d->memory = strtoull(value, NULL, 10);
    if (strcmp(key, "refuse") == 0) d->refused_op = atoll(value);
    if (strcmp(key, "fail-call") == 0) atomic_store(&d->fail_call, atoll(value));
}

static void device_note(tdm_device *was, tdm_device *is) {
    pthread_mutex_lock(&devices_mutex);
    for (int i = 0; i < MAX_OPEN; i++) {
        if (devices[i] != was) continue;
        devices[i] = is;
        break;
    }
    pthread_mutex_unlock(&devices_mutex);
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    tdm_device *d = calloc(1, sizeof *d);
    if (d == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    d->host = instance->host;
    d->imports = d->has_pointer = true;
    d->refused_op = -1;
    d->random = 1;
    d->lent.struct_size = sizeof d->lent;
    for (int32_t i = 0; i < params->n_option; i++)
        option_read(d, params->options[i].key, params->options[i].value);
    tdm_status status = d->host->device_acquire(d->host->context, d->member, &d->lent, err);
    if (status != TDM_OK) {
        free(d);
        return status;
    }
    behind = d->lent.plugin;
    pthread_mutex_init(&d->mutex, NULL);
    device_note(NULL, d);
    *device_out = d;
    return TDM_OK;
}

static void device_close(tdm_device *d) {
    if (d == NULL) return;
    device_note(d, NULL);
    d->host->device_release(d->host->context, &d->lent);
    pthread_mutex_destroy(&d->mutex);
    free(d);
}

static tdm_status device_get_info(tdm_device *d, tdm_device_info *info_out, tdm_error *err) {
    tdm_status status = behind->device->get_info(d->lent.device, info_out, err);
    if (strcmp(d->exchange, "no") == 0) info_out->flags &= ~(uint32_t)TDM_DEVICE_HAS_EXCHANGE;
    if (d->memory > 0) {
        info_out->flags &= ~(uint32_t)TDM_DEVICE_IS_HOST;
        info_out->memory_free = d->memory;
    }
    if (d->has_host_kv) info_out->flags |= TDM_DEVICE_HAS_HOST_KV;
    return status;
}

static tdm_status device_supports_op(tdm_device *d, const tdm_graph *graph, int32_t node,
                                     tdm_error *err) {
    const int32_t op = tdm_graph_node(graph, node)->op;
    if (op == d->refused_op)
        return tdm_fail(err, TDM_UNSUPPORTED, "'%s' has the option to refuse op %d", d->member,
                        (int)d->refused_op);
    if (tdm_graph_node(graph, node)->op == TDM_OP_EXCHANGE && strcmp(d->exchange, "no") == 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "'%s' has no EXCHANGE", d->member);
    return behind->device->supports_op(d->lent.device, graph, node, err);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* Buffers are those of the wrapped device; this gives the owner of one. */
enum { MAX_BUFFER = 1024 };
static struct {
    tdm_buffer *buffer;
    tdm_device *device;
} owners[MAX_BUFFER];

static void owner_note(tdm_buffer *was, tdm_buffer *is, tdm_device *d) {
    pthread_mutex_lock(&devices_mutex);
    for (int i = 0; i < MAX_BUFFER; i++) {
        if (owners[i].buffer != was) continue;
        owners[i].buffer = is;
        owners[i].device = d;
        break;
    }
    pthread_mutex_unlock(&devices_mutex);
}

static tdm_device *owner_of(const tdm_buffer *b) {
    tdm_device *d = NULL;
    pthread_mutex_lock(&devices_mutex);
    for (int i = 0; i < MAX_BUFFER && d == NULL; i++)
        if (owners[i].buffer == b) d = owners[i].device;
    pthread_mutex_unlock(&devices_mutex);
    return d;
}

static tdm_status buffer_alloc(tdm_device *d, const tdm_buffer_params *params, tdm_buffer **out,
                               tdm_error *err) {
    tdm_status status = spend(d, err);
    if (status == TDM_OK) status = behind->buffer->alloc(d->lent.device, params, out, err);
    if (status == TDM_OK) owner_note(NULL, *out, d);
    return status;
}

static void buffer_free(tdm_buffer *b) {
    if (b == NULL) return;
    owner_note(b, NULL, NULL);
    behind->buffer->free(b);
}

static tdm_status buffer_upload(tdm_buffer *b, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_device *d = owner_of(b);
    if (d != NULL && is_due(&d->block_upload_in)) block(d);
    return behind->buffer->upload(b, off, src, size, err);
}

static tdm_status buffer_download(tdm_buffer *b, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    return behind->buffer->download(b, off, dst, size, err);
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    return behind->buffer->copy(dst, dst_off, src, src_off, size, err);
}

static tdm_status buffer_fill(tdm_buffer *b, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    return behind->buffer->fill(b, off, size, byte, err);
}

/* A buffer does not name its device, so one device without pointers stands for all. */
static void *buffer_host_pointer(tdm_buffer *b, uint32_t access) {
    bool has_pointer = true;
    pthread_mutex_lock(&devices_mutex);
    for (int i = 0; i < MAX_OPEN; i++)
        if (devices[i] != NULL) has_pointer = has_pointer && devices[i]->has_pointer;
    pthread_mutex_unlock(&devices_mutex);
    return has_pointer ? behind->buffer->host_pointer(b, access) : NULL;
}

static tdm_status buffer_import_host(tdm_device *d, void *ptr, uint64_t size,
                                     tdm_import_info *info_out, tdm_buffer **out, tdm_error *err) {
    if (!d->imports) return tdm_fail(err, TDM_UNSUPPORTED, "'%s' imports nothing", d->member);
    tdm_status status = spend(d, err);
    if (status != TDM_OK) return status;
    return behind->buffer->import_host(d->lent.device, ptr, size, info_out, out, err);
}

static tdm_status tensor_size(tdm_device *d, const tdm_tensor_desc *desc, uint64_t *size_out,
                              tdm_error *err) {
    return behind->buffer->tensor_size(d->lent.device, desc, size_out, err);
}

static tdm_status tensor_upload(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                                const void *src, uint64_t row_pitch, int64_t row_first,
                                int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    return behind->buffer->tensor_upload(b, off, desc, src, row_pitch, row_first, n_row, col_first,
                                         n_col, err);
}

static tdm_status tensor_download(tdm_buffer *b, uint64_t off, const tdm_tensor_desc *desc,
                                  void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                  int64_t col_first, int64_t n_col, tdm_error *err) {
    return behind->buffer->tensor_download(b, off, desc, dst, row_pitch, row_first, n_row,
                                           col_first, n_col, err);
}

static tdm_status kv_page_size(tdm_device *d, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err) {
    return behind->buffer->kv_page_size(d->lent.device, desc, size_out, err);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static tdm_status queue_create(tdm_device *d, tdm_queue **queue_out, tdm_error *err) {
    tdm_status status = spend(d, err);
    if (status != TDM_OK) return status;
    tdm_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    q->device = d;
    status = behind->queue->create(d->lent.device, &q->lent, err);
    if (status != TDM_OK) {
        free(q);
        return status;
    }
    *queue_out = q;
    return TDM_OK;
}

static void queue_destroy(tdm_queue *q) {
    if (q == NULL) return;
    if (atomic_load(&q->n_plan) > 0) {
        fprintf(stderr, "'%s': a queue is destroyed before %d of its plans\n", q->device->member,
                atomic_load(&q->n_plan));
        abort();
    }
    behind->queue->destroy(q->lent);
    if (q->has_worker) pthread_join(q->worker, NULL);
    q->device->host->semaphore->destroy(q->worked);
    free(q);
}

static tdm_status graph_prepare(tdm_queue *q, const tdm_graph *graph, const tdm_plan_params *params,
                                tdm_plan **plan_out, tdm_error *err) {
    tdm_device *d = q->device;
    tdm_status status = spend(d, err);
    if (status == TDM_OK && is_due(&d->prepare_in))
        status = tdm_fail(err, TDM_INTERNAL, "'%s' cannot make this plan", d->member);
    if (status != TDM_OK) return status;
    tdm_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    plan->device = d;
    plan->queue = q;
    plan->graph = graph;
    plan->bindings = calloc((size_t)graph->n_slot + 1, sizeof *plan->bindings);
    status = plan->bindings != NULL
                 ? behind->queue->graph_prepare(q->lent, graph, params, &plan->lent, err)
                 : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    if (status != TDM_OK) {
        free(plan->bindings);
        free(plan);
        return status;
    }
    atomic_fetch_add(&q->n_plan, 1);
    *plan_out = plan;
    return TDM_OK;
}

static void plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    if (is_due(&plan->device->block_destroy_in)) block(plan->device);
    atomic_fetch_sub(&plan->queue->n_plan, 1);
    behind->queue->plan_destroy(plan->lent);
    free(plan->bindings);
    free(plan);
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    return behind->queue->plan_get_info(plan->lent, info_out, err);
}

static void keep(tdm_device *d, const tdm_point *signals, int32_t n) {
    pthread_mutex_lock(&d->mutex);
    for (int32_t i = 0; i < n && d->n_kept < MAX_KEPT; i++) d->kept[d->n_kept++] = signals[i];
    pthread_mutex_unlock(&d->mutex);
}

static int32_t exchange_find(const tdm_graph *graph) {
    for (int32_t i = 0; i < graph->n_node; i++)
        if (tdm_graph_node(graph, i)->op == TDM_OP_EXCHANGE) return i;
    return -1;
}

static void dawdle(tdm_device *d) {
    int64_t us = atomic_load(&d->delay_us);
    if (us <= 0) return;
    if (random_u32_below(&d->random, 16) != 0) return; /* now and then only */
    us = random_u32_below(&d->random, (uint32_t)us) + 1;
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* Flips a bit of the last element in OUTPUTs of `size` elements. */
static void outputs_change(const tdm_graph *graph, const tdm_binding *bindings, int64_t size,
                           int64_t bit) {
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        uint8_t byte = 0;
        if (v->kind != TDM_VALUE_OUTPUT || tdm_shape_count(v->ne) != size) continue;
        const tdm_binding *b = &bindings[v->slot];
        uint64_t at = b->off + (uint64_t)(size - 1) * sizeof(float) + (uint64_t)bit / 8;
        if (behind->buffer->download(b->buffer, at, &byte, 1, NULL) != TDM_OK) continue;
        byte ^= (uint8_t)(1u << bit % 8);
        (void)behind->buffer->upload(b->buffer, at, &byte, 1, NULL);
    }
}

static tdm_status plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                            tdm_error *err) {
    int32_t exchange = exchange_find(plan->graph);
    if (n_binding != plan->graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%d bindings for %d slots", (int)n_binding,
                        (int)plan->graph->n_slot);
    if (n_binding > 0) memcpy(plan->bindings, bindings, (size_t)n_binding * sizeof *bindings);
    if (exchange >= 0 && strcmp(plan->device->exchange, "lie-bits") == 0) {
        const tdm_node *node = tdm_graph_node(plan->graph, exchange);
        if (node->src[3] >= 0 && node->src[0] >= 0)
            plan->bindings[tdm_graph_value(plan->graph, node->src[3])->slot] =
                bindings[tdm_graph_value(plan->graph, node->src[0])->slot];
    }
    return behind->queue->plan_bind(plan->lent, plan->bindings, n_binding, err);
}

static tdm_status lie(tdm_queue *q, tdm_plan *plan, const tdm_point *waits, int32_t n_wait,
                      const tdm_point *signals, int32_t n_signal, tdm_error *err) {
    tdm_device *d = q->device;
    const tdm_host_semaphore_ops *ops = d->host->semaphore;
    tdm_point done = {NULL, 1};
    tdm_status status = ops->create(0, &done.semaphore, err);
    if (status != TDM_OK) return status;
    status = behind->queue->graph_compute(q->lent, plan->lent, waits, n_wait, &done, 1, err);
    if (status == TDM_OK) status = ops->wait(done.semaphore, 1, TDM_WAIT_FOREVER, err);
    if (status == TDM_OK)
        outputs_change(plan->graph, plan->bindings, atomic_load(&d->lie_size),
                       atomic_load(&d->lie_bit));
    ops->destroy(done.semaphore);
    for (int32_t i = 0; i < n_signal && status == TDM_OK; i++)
        ops->signal(signals[i].semaphore, signals[i].value);
    return status;
}

/* graph_compute that returns when the computation has ended. */
static tdm_status bounded(tdm_queue *q, tdm_plan *plan, const tdm_point *waits, int32_t n_wait,
                          const tdm_point *signals, int32_t n_signal, tdm_error *err) {
    const tdm_host_semaphore_ops *ops = q->device->host->semaphore;
    tdm_point points[MAX_KEPT];
    if (n_signal >= MAX_KEPT)
        return tdm_fail(err, TDM_UNSUPPORTED, "'%s': %d signals", q->device->member, (int)n_signal);
    tdm_status status = ops->create(0, &points[0].semaphore, err);
    if (status != TDM_OK) return status;
    points[0].value = 1;
    memcpy(points + 1, signals, (size_t)n_signal * sizeof *points);
    status =
        behind->queue->graph_compute(q->lent, plan->lent, waits, n_wait, points, n_signal + 1, err);
    /* A failure reaches the caller through its own signals. */
    if (status == TDM_OK) (void)ops->wait(points[0].semaphore, 1, TDM_WAIT_FOREVER, NULL);
    ops->destroy(points[0].semaphore);
    return status;
}

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Works for work_ms by the clock, no shorter, then lets the computation begin. */
static void *worker_main(void *arg) {
    tdm_queue *q = arg;
    const int64_t begin = clock_ns();
    while (clock_ns() - begin < atomic_load(&q->device->work_ms) * 1000000) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (atomic_load(&q->device->mute) == 0) atomic_fetch_add(&q->progress, 1);
    }
    q->device->host->semaphore->signal(q->worked, q->n_worked);
    return NULL;
}

/* One computation at a time. */
static tdm_status works_long(tdm_queue *q, tdm_plan *plan, const tdm_point *signals,
                             int32_t n_signal, tdm_error *err) {
    const tdm_host_semaphore_ops *ops = q->device->host->semaphore;
    tdm_status status = q->worked == NULL ? ops->create(0, &q->worked, err) : TDM_OK;
    if (status != TDM_OK) return status;
    if (q->has_worker) pthread_join(q->worker, NULL);
    const tdm_point wait = {q->worked, ++q->n_worked};
    q->has_worker = pthread_create(&q->worker, NULL, worker_main, q) == 0;
    return behind->queue->graph_compute(q->lent, plan->lent, &wait, 1, signals, n_signal, err);
}

static uint64_t progress(const tdm_queue *q) {
    uint64_t own = atomic_load(&q->progress);
    return TDM_HAS(behind->queue, progress) ? own + behind->queue->progress(q->lent) : own;
}

static tdm_status graph_compute(tdm_queue *q, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    tdm_device *d = q->device;
    int32_t exchange = exchange_find(plan->graph);
    tdm_error broken = {0};
    if (is_due(&d->refuse_in))
        return tdm_fail(err, TDM_INTERNAL, "'%s' does not take this computation", d->member);
    if (is_due(&d->fail_in)) {
        tdm_fail(&broken, TDM_UNAVAILABLE, "'%s' fell off the bus", d->member);
        for (int32_t i = 0; i < n_signal; i++)
            d->host->semaphore->fail(signals[i].semaphore, TDM_UNAVAILABLE, &broken);
        return TDM_OK;
    }
    if (is_due(&d->silent_in) || (exchange >= 0 && strcmp(d->exchange, "lie-hang") == 0)) {
        keep(d, signals, n_signal);
        return TDM_OK;
    }
    if (exchange >= 0 && strcmp(d->exchange, "lie-idle") == 0) {
        for (int32_t i = 0; i < n_signal; i++)
            d->host->semaphore->signal(signals[i].semaphore, signals[i].value);
        return TDM_OK;
    }
    dawdle(d);
    if (is_due(&d->block_in)) block(d);
    if (atomic_load(&d->work_ms) > 0 && n_wait == 0)
        return works_long(q, plan, signals, n_signal, err);
    if (atomic_load(&d->bounded) != 0)
        return bounded(q, plan, waits, n_wait, signals, n_signal, err);
    if (is_due(&d->lie_in)) return lie(q, plan, waits, n_wait, signals, n_signal, err);
    return behind->queue->graph_compute(q->lent, plan->lent, waits, n_wait, signals, n_signal, err);
}

static tdm_status split_unit(tdm_device *d, const tdm_graph *graph, int32_t value, int32_t axis,
                             int64_t *unit_out, tdm_error *err) {
    return behind->split->split_unit(d->lent.device, graph, value, axis, unit_out, err);
}

/* ---- The plugin ------------------------------------------------------------------------------ */

static tdm_status instance_init(const tdm_host *host, tdm_instance **instance_out, tdm_error *err) {
    tdm_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    instance->host = host;
    *instance_out = instance;
    return TDM_OK;
}

static void instance_deinit(tdm_instance *instance) {
    free(instance);
}

static const tdm_device_ops device_ops = {
    .struct_size = sizeof device_ops,
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .get_info = device_get_info,
    .supports_op = device_supports_op,
};

static const tdm_buffer_ops buffer_ops = {
    .struct_size = sizeof buffer_ops,
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
    .copy = buffer_copy,
    .fill = buffer_fill,
    .host_pointer = buffer_host_pointer,
    .import_host = buffer_import_host,
    .tensor_size = tensor_size,
    .tensor_upload = tensor_upload,
    .tensor_download = tensor_download,
    .kv_page_size = kv_page_size,
};

static const tdm_queue_ops queue_ops = {
    .struct_size = sizeof queue_ops,
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = graph_prepare,
    .plan_destroy = plan_destroy,
    .plan_get_info = plan_get_info,
    .plan_bind = plan_bind,
    .graph_compute = graph_compute,
    .progress = progress,
};

static const tdm_split_ops split_ops = {
    .struct_size = offsetof(tdm_split_ops, split_set),
    .split_unit = split_unit,
};

static const tdm_plugin plugin = {
    .struct_size = sizeof plugin,
    .name = "fault",
    .version = "1",
    .licence = "MIT",
    .init = instance_init,
    .deinit = instance_deinit,
    .device = &device_ops,
    .buffer = &buffer_ops,
    .queue = &queue_ops,
    .split = &split_ops,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    (void)host;
    (void)err;
    *plugin_out = &plugin;
    return TDM_OK;
}
