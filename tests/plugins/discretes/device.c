/* SPDX-License-Identifier: MIT
 *
 * device.c: options, limits and loss of the discrete device, and its plugin table.
 */
#include "tests/plugins/discretes/discrete.h"

#include <time.h>

enum { MAX_OPEN = 64 };

struct tdm_instance {
    const tdm_host *host;
};

const tdm_plugin *discrete_behind;

static tdm_device *devices[MAX_OPEN];
static pthread_mutex_t devices_mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- Loss and counts ------------------------------------------------------------------------- */

static _Atomic int64_t n_live;

void discrete_count_live(int n) {
    atomic_fetch_add(&n_live, n);
}

TDM_EXPORT int64_t discrete_live(void);
TDM_EXPORT int64_t discrete_live(void) {
    return atomic_load(&n_live);
}

bool discrete_is_due(_Atomic int64_t *countdown) {
    return atomic_load(countdown) > 0 && atomic_fetch_sub(countdown, 1) == 1;
}

void discrete_await_release(tdm_device *d) {
    int64_t seen = atomic_load(&d->n_release);
    while (atomic_load(&d->n_release) == seen) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

tdm_status discrete_call(tdm_device *d, tdm_error *err) {
    if (discrete_is_due(&d->lose_in)) atomic_store(&d->is_lost, true);
    if (!atomic_load(&d->is_lost)) return TDM_OK;
    return tdm_fail(err, TDM_UNAVAILABLE, "'%s' is lost; close it and open it again", d->member);
}

static tdm_device *device_find(const char *member) {
    for (int i = 0; i < MAX_OPEN; i++)
        if (devices[i] != NULL && strcmp(devices[i]->member, member) == 0) return devices[i];
    return NULL;
}

TDM_EXPORT void discrete_set(const char *member, const char *key, int64_t n);
TDM_EXPORT void discrete_set(const char *member, const char *key, int64_t n) {
    pthread_mutex_lock(&devices_mutex);
    tdm_device *d = device_find(member);
    if (d != NULL && strcmp(key, "lose-in") == 0) atomic_store(&d->lose_in, n);
    if (d != NULL && strcmp(key, "latency-us") == 0) atomic_store(&d->latency_us, n);
    if (d != NULL && strcmp(key, "block-in") == 0) atomic_store(&d->block_in, n);
    if (d != NULL && strcmp(key, "hang-in") == 0) atomic_store(&d->hang_in, n);
    if (d != NULL && strcmp(key, "clock") == 0) atomic_store(&d->is_clock_on, n != 0);
    if (d != NULL && strcmp(key, "release") == 0) atomic_fetch_add(&d->n_release, 1);
    if (d != NULL && strcmp(key, "completion-us") == 0) atomic_store(&d->completion_us, n);
    pthread_mutex_unlock(&devices_mutex);
}

/* -1 where there is no such device or key. */
TDM_EXPORT int64_t discrete_get(const char *member, const char *key);
TDM_EXPORT int64_t discrete_get(const char *member, const char *key) {
    int64_t n = -1;
    pthread_mutex_lock(&devices_mutex);
    tdm_device *d = device_find(member);
    if (d != NULL && strcmp(key, "submissions") == 0) n = atomic_load(&d->counts.submissions);
    if (d != NULL && strcmp(key, "uploads") == 0) n = atomic_load(&d->counts.uploads);
    if (d != NULL && strcmp(key, "downloads") == 0) n = atomic_load(&d->counts.downloads);
    if (d != NULL && strcmp(key, "binds") == 0) n = atomic_load(&d->counts.binds);
    if (d != NULL && strcmp(key, "plans") == 0) n = atomic_load(&d->counts.plans);
    if (d != NULL && strcmp(key, "clock") == 0) n = atomic_load(&d->clock_ns);
    if (d != NULL && strcmp(key, "lost") == 0) n = atomic_load(&d->is_lost);
    if (d != NULL && (strcmp(key, "memory") == 0 || strcmp(key, "largest") == 0)) {
        pthread_mutex_lock(&d->mutex);
        n = (int64_t)(strcmp(key, "memory") == 0 ? d->used : d->largest);
        pthread_mutex_unlock(&d->mutex);
    }
    pthread_mutex_unlock(&devices_mutex);
    return n;
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

/* ---- Devices --------------------------------------------------------------------------------- */

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    (void)instance;
    (void)params;
    (void)err;
    *n_out = 1;
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    (void)instance;
    (void)params;
    if (index != 0) return tdm_fail(err, TDM_NOT_FOUND, "no discrete device %d", (int)index);
    snprintf(info_out->name, sizeof info_out->name, "discrete0");
    return TDM_OK;
}

static int32_t op_find(const char *name) {
#define OP_FIND(ID, word, number, ...)                                                             \
    if (strcmp(name, #word) == 0) return number;
    TDM_OP_LIST(OP_FIND)
#undef OP_FIND
    return TDM_OP_NONE;
}

static tdm_status option_read(tdm_device *d, const char *key, const char *value, tdm_error *err) {
    int64_t n = strtoll(value, NULL, 10);
    if (strcmp(key, "member") == 0)
        snprintf(d->member, sizeof d->member, "%s", value);
    else if (strcmp(key, "memory") == 0)
        d->memory = (uint64_t)n;
    else if (strcmp(key, "max-buffer") == 0)
        d->max_buffer = (uint64_t)n;
    else if (strcmp(key, "import-align") == 0)
        d->import_align = (uint64_t)n;
    else if (strcmp(key, "import") == 0)
        d->imports = strcmp(value, "no") != 0;
    else if (strcmp(key, "exchange") == 0)
        d->exchanges = strcmp(value, "yes") == 0, d->has_phases = strcmp(value, "phases") == 0;
    else if (strcmp(key, "latency-us") == 0)
        atomic_store(&d->latency_us, n);
    else if (strcmp(key, "completion-us") == 0)
        atomic_store(&d->completion_us, n);
    else if (strcmp(key, "launch-bound") == 0)
        d->launch_bound = n;
    else if (strcmp(key, "attach") == 0)
        d->attaches = strcmp(value, "no") != 0;
    else if (strcmp(key, "bandwidth") == 0)
        d->bandwidth = strtod(value, NULL);
    else if (strcmp(key, "arithmetic") == 0)
        d->arithmetic = strtod(value, NULL);
    else if (strcmp(key, "launch-ns") == 0)
        d->launch_ns = n;
    else if (strcmp(key, "submission-us") == 0)
        d->submission_ns = n * 1000;
    else if (strcmp(key, "crossing-us") == 0)
        d->crossing_ns = n * 1000;
    else if (strcmp(key, "idle") == 0)
        d->is_idle = strcmp(value, "yes") == 0;
    else if (strcmp(key, "refuse") == 0)
        d->refused_op = op_find(value);
    else if (strcmp(key, "uuid") == 0)
        d->has_uuid = true, d->uuid = (uint8_t)n;
    else
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: not an option of a discrete device", key);
    return TDM_OK;
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    tdm_device *d = calloc(1, sizeof *d);
    if (d == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    d->host = instance->host;
    d->imports = d->attaches = true;
    d->memory = (uint64_t)1 << 40;
    d->arithmetic = 1e15;
    d->import_align = 4096;
    d->lent.struct_size = sizeof d->lent;
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < params->n_option && status == TDM_OK; i++)
        status = option_read(d, params->options[i].key, params->options[i].value, err);
    if (status == TDM_OK)
        status = d->host->device_acquire(d->host->context, d->member, &d->lent, err);
    if (status != TDM_OK) {
        free(d);
        return status;
    }
    discrete_behind = d->lent.plugin;
    pthread_mutex_init(&d->mutex, NULL);
    device_note(NULL, d);
    discrete_count_live(1);
    *device_out = d;
    return TDM_OK;
}

static void device_close(tdm_device *d) {
    if (d == NULL) return;
    device_note(d, NULL);
    discrete_count_live(-1);
    d->host->device_release(d->host->context, &d->lent);
    pthread_mutex_destroy(&d->mutex);
    free(d);
}

static tdm_status device_get_info(tdm_device *d, tdm_device_info *info_out, tdm_error *err) {
    tdm_status status = discrete_behind->device->get_info(d->lent.device, info_out, err);
    if (status != TDM_OK) return status;
    uint32_t kept = TDM_DEVICE_IS_REPRODUCIBLE | (d->exchanges ? TDM_DEVICE_HAS_EXCHANGE : 0u);
    snprintf(info_out->name, sizeof info_out->name, "discrete0");
    info_out->flags = (info_out->flags & kept) | TDM_DEVICE_HOLDS_TEMPS;
    info_out->n_thread = 0;
    info_out->max_buffer = d->max_buffer;
    info_out->import_align = d->import_align;
    if (!d->exchanges) info_out->exchange_wait_max_ns = 0;
    info_out->has_uuid = d->has_uuid;
    memset(info_out->uuid, 0, sizeof info_out->uuid);
    info_out->uuid[15] = d->uuid;
    pthread_mutex_lock(&d->mutex);
    info_out->memory_total = d->memory;
    info_out->memory_free = d->memory - d->used;
    pthread_mutex_unlock(&d->mutex);
    return TDM_OK;
}

static tdm_status device_supports_op(tdm_device *d, const tdm_graph *graph, int32_t node,
                                     tdm_error *err) {
    const tdm_node *n = tdm_graph_node(graph, node);
    bool is_phase = n->params.exchange.phase != TDM_EXCHANGE_WHOLE;
    if (n->op == TDM_OP_EXCHANGE && !d->exchanges && !(d->has_phases && is_phase))
        return tdm_fail(err, TDM_UNSUPPORTED, "'%s' cannot wait in a kernel", d->member);
    if (n->op == d->refused_op && graph->n_node > 1)
        return tdm_fail(err, TDM_UNSUPPORTED, "'%s' refuses the op", d->member);
    return discrete_behind->device->supports_op(d->lent.device, graph, node, err);
}

static tdm_status split_unit(tdm_device *d, const tdm_graph *graph, int32_t value, int32_t axis,
                             int64_t *unit_out, tdm_error *err) {
    return discrete_behind->split->split_unit(d->lent.device, graph, value, axis, unit_out, err);
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

static const tdm_split_ops split_ops = {
    .struct_size = offsetof(tdm_split_ops, split_set),
    .split_unit = split_unit,
};

static const tdm_plugin plugin = {
    .struct_size = sizeof plugin,
    .name = "discrete",
    .version = "1",
    .licence = "MIT",
    .init = instance_init,
    .deinit = instance_deinit,
    .device = &device_ops,
    .buffer = &discrete_buffer_ops,
    .queue = &discrete_queue_ops,
    .split = &split_ops,
};

tdm_status tdm_plugin_entry_v0(const tdm_host *host, const tdm_plugin **plugin_out,
                               tdm_error *err) {
    (void)host;
    (void)err;
    *plugin_out = &plugin;
    return TDM_OK;
}
