/* SPDX-License-Identifier: MIT
 *
 * device.c: describes the processor, parses the options of devices, opens and closes devices, and
 * says where a group may cut their tensors. One device is enumerated; a group may open it several
 * times, with different threads and cores, as its members.
 */
#include "plugins/cpu/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/params.h"
#include "plugins/cpu/buffer.h"
#include "plugins/cpu/exec/plan.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/machine/cores.h"
#include "plugins/cpu/machine/isa.h"
#include "plugins/cpu/machine/limits.h"
#include "plugins/cpu/machine/memory.h"
#include "plugins/cpu/machine/name.h"
#include "plugins/cpu/machine/sysfile.h"
#include "plugins/cpu/ops/matmul.h"
#include "plugins/cpu/ops/ops.h"

static tdm_status device_count(tdm_instance *instance, const tdm_device_params *params,
                               int32_t *n_out, tdm_error *err) {
    (void)instance;
    (void)params;
    (void)err;
    *n_out = 1;
    return TDM_OK;
}

static void info_fill(int32_t n_thread, tdm_device_info *info_out) {
    tdm_device_info info = {.struct_size = sizeof info};
    char text[4096]; /* the first processor's lines */
    snprintf(info.name, sizeof info.name, "cpu0");
    if (cpu_sysfile_read("/proc/cpuinfo", text, sizeof text))
        cpu_name_read(text, info.description, sizeof info.description, info.vendor,
                      sizeof info.vendor);
    cpu_memory_query(&info.memory_total, &info.memory_free);
    info.buffer_align = CPU_BUFFER_ALIGN;
    info.flags = TDM_DEVICE_IS_HOST | TDM_DEVICE_HAS_EXCHANGE | TDM_DEVICE_IS_REPRODUCIBLE;
    info.import_align = CPU_BUFFER_ALIGN;
    info.exchange_wait_max_ns = TDM_WAIT_FOREVER;
    info.n_thread = n_thread;
    tdm_struct_write(info_out, &info, sizeof info);
}

/* Options as parsed; n_thread 0 = not given. */
typedef struct device_options {
    int32_t n_thread;
    bool has_cores;
    cpu_set_t cores;
    uint32_t isa;
    bool is_reference;
    bool has_q8[CPU_N_ROLE];
    uint64_t exchange_timeout_ns;
} device_options;

/* Milliseconds, up to a day. */
static tdm_status exchange_timeout_parse(const char *value, uint64_t *ns_out, tdm_error *err) {
    const long max = 24L * 60 * 60 * 1000;
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != 0 || errno != 0 || n < 1 || n > max)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "exchange-timeout = %s: not a number of milliseconds from 1 to %ld", value,
                        max);
    *ns_out = (uint64_t)n * 1000000u;
    return TDM_OK;
}

static tdm_status option_parse(const tdm_option *option, device_options *o, tdm_error *err) {
    const char *value = option->value != NULL ? option->value : "";
    if (strcmp(option->key, "threads") == 0) {
        char *end;
        errno = 0;
        long n = strtol(value, &end, 10);
        if (value[0] < '0' || value[0] > '9' || *end != 0 || errno != 0 || n < 1 ||
            n > CPU_MAX_THREADS)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "threads = %s: not a number of threads from 1 to %d", value,
                            (int)CPU_MAX_THREADS);
        o->n_thread = (int32_t)n;
        return TDM_OK;
    }
    if (strcmp(option->key, "cores") == 0) {
        o->has_cores = true;
        return cpu_cores_parse(value, &o->cores, err);
    }
    if (strcmp(option->key, "isa") == 0) return cpu_isa_parse(value, &o->isa, err);
    if (strcmp(option->key, "path") == 0) {
        o->is_reference = strcmp(value, "reference") == 0;
        if (o->is_reference || strcmp(value, "fast") == 0) return TDM_OK;
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "path = %s: unknown; use fast or reference",
                        value);
    }
    if (strcmp(option->key, "activation-bits") == 0) {
        bool is_auto = strcmp(value, "auto") == 0, is_8 = strcmp(value, "8") == 0;
        o->has_q8[TDM_ROLE_GENERATED] = is_8;
        o->has_q8[TDM_ROLE_PROMPT] = is_8 || is_auto;
        if (is_8 || is_auto || strcmp(value, "15") == 0) return TDM_OK;
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "activation-bits = %s: unknown; use auto (8 for prompts, 15 for generated "
                        "tokens), 15 or 8",
                        value);
    }
    if (strcmp(option->key, "exchange-timeout") == 0)
        return exchange_timeout_parse(value, &o->exchange_timeout_ns, err);
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "%s: not an option of a cpu device; it has threads, cores, isa, path, "
                    "activation-bits and exchange-timeout",
                    option->key);
}

/* Options with the defaults of those that are not given. */
static tdm_status options_parse(int32_t index, const tdm_device_params *params, device_options *o,
                                tdm_error *err) {
    *o = (device_options){.isa = cpu_isa_detect(),
                          .exchange_timeout_ns = TDM_EXCHANGE_TIMEOUT_NS,
                          .has_q8[TDM_ROLE_PROMPT] = true};
    if (index != 0)
        return tdm_fail(err, TDM_NOT_FOUND, "cpu: no device %d; there is one, number 0",
                        (int)index);
    for (int32_t i = 0; i < params->n_option; i++) {
        tdm_status status = option_parse(&params->options[i], o, err);
        if (status != TDM_OK) return status;
    }
    if (o->n_thread == 0) o->n_thread = o->has_cores ? CPU_COUNT(&o->cores) : cpu_cores_default();
    return TDM_OK;
}

static tdm_status device_describe(tdm_instance *instance, int32_t index,
                                  const tdm_device_params *params, tdm_device_info *info_out,
                                  tdm_error *err) {
    tdm_device_params p = {.n_option = 0};
    device_options o;
    (void)instance;
    if (params != NULL) tdm_struct_read(&p, sizeof p, params);
    tdm_status status = options_parse(index, &p, &o, err);
    if (status == TDM_OK) info_fill(o.n_thread, info_out);
    return status;
}

/* Warns if there are far more threads than processors: threads that take turns on a processor are
 * waited for at every barrier. */
static void threads_check(const tdm_host *host, const device_options *o) {
    int32_t n_cpu = o->has_cores ? CPU_COUNT(&o->cores) : cpu_cores_available();
    char line[160];
    if (o->n_thread <= 4 * n_cpu || !TDM_HAS(host, log)) return;
    snprintf(line, sizeof line,
             "threads = %d: only %d processors are available; more threads than that are slower",
             (int)o->n_thread, (int)n_cpu);
    host->log(host->context, TDM_LOG_WARN, "%s", line);
}

static tdm_status device_open(tdm_instance *instance, const tdm_device_params *params,
                              tdm_device **device_out, tdm_error *err) {
    const tdm_host *host = instance->host;
    tdm_device_params p;
    device_options o;
    tdm_struct_read(&p, sizeof p, params);
    tdm_status status = options_parse(p.index, &p, &o, err);
    if (status != TDM_OK) return status;
    threads_check(host, &o);
    cpu_device *device = host->alloc(host->context, sizeof *device, 0);
    if (device == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory");
    *device = (cpu_device){
        .host = host,
        .n_thread = o.n_thread,
        .isa = o.is_reference ? 0 : o.isa,
        .prefetch_each = cpu_isa_prefetch_each(),
        .is_reference = o.is_reference,
        .has_q8 = {o.has_q8[0] && !o.is_reference, o.has_q8[1] && !o.is_reference},
        .exchange_timeout_ns = o.exchange_timeout_ns,
    };
    cpu_matmul_kernels_choose(device);
    status = cpu_pool_create(host, o.n_thread, o.has_cores ? &o.cores : NULL, &device->pool, err);
    if (status != TDM_OK) {
        host->free(host->context, device, sizeof *device);
        return status;
    }
    *device_out = device;
    return TDM_OK;
}

static void device_close(tdm_device *device) {
    if (device == NULL) return;
    const tdm_host *host = device->host;
    cpu_limits_release(device);
    cpu_pool_destroy(device->pool);
    host->free(host->context, device, sizeof *device);
}

static tdm_status device_get_info(tdm_device *device, tdm_device_info *info_out, tdm_error *err) {
    (void)err;
    tdm_device_info info = {.struct_size = sizeof info};
    size_t used;
    info_fill(device->n_thread, &info);
    /* A group compares descriptions to find members that compute equal bits
     * (TDM_DEVICE_IS_REPRODUCIBLE). So the description names every option that changes bits, where
     * it is not the default: kernels of another instruction set round in other places. */
    used = strlen(info.description);
    if (!device->is_reference && device->has_q8[0] == device->has_q8[1])
        used += (size_t)snprintf(info.description + used, sizeof info.description - used,
                                 "%s%d-bit activations", used > 0 ? ", " : "",
                                 device->has_q8[0] ? 8 : 15);
    if (used >= sizeof info.description) used = sizeof info.description - 1;
    if (device->is_reference)
        snprintf(info.description + used, sizeof info.description - used, "%sreference path",
                 used > 0 ? ", " : "");
    else if (device->isa != cpu_isa_detect())
        snprintf(info.description + used, sizeof info.description - used, "%s%s kernels",
                 used > 0 ? ", " : "", cpu_isa_name(device->isa));
    tdm_struct_write(info_out, &info, sizeof info);
    return TDM_OK;
}

static tdm_status device_supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                                     tdm_error *err) {
    return cpu_op_supports(device, graph, node, err);
}

static tdm_status device_graph_supports(tdm_device *device, const tdm_graph *graph,
                                        uint8_t *supported_out, tdm_error *err) {
    (void)err;
    for (int32_t i = 0; i < graph->n_node; i++)
        supported_out[i] = cpu_op_supports(device, graph, i, NULL) == TDM_OK;
    return TDM_OK;
}

static tdm_status device_compute_sync(tdm_device *device, const tdm_graph *graph,
                                      const tdm_binding *bindings, int32_t n_binding,
                                      tdm_error *err) {
    tdm_plan *plan = NULL;
    cpu_scratch scratch;
    _Atomic uint64_t progress = 0;
    tdm_status status = cpu_scratch_create(device->host, &scratch, err);
    if (status != TDM_OK) return status;
    status = cpu_plan_create(device, &scratch, graph, &plan, err);
    if (status == TDM_OK) status = cpu_plan_bind(plan, bindings, n_binding, err);
    if (status == TDM_OK) status = cpu_plan_run(plan, &progress, err);
    cpu_plan_destroy(plan);
    cpu_scratch_destroy(&scratch);
    return status;
}

static tdm_status device_split_unit(tdm_device *device, const tdm_graph *graph, int32_t value,
                                    int32_t axis, int64_t *unit_out, tdm_error *err) {
    (void)device;
    return tdm_split_unit_block("cpu", graph, value, axis, unit_out, err);
}

const tdm_device_ops cpu_device_ops = {
    .struct_size = sizeof(tdm_device_ops),
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .get_info = device_get_info,
    .supports_op = device_supports_op,
    .graph_supports = device_graph_supports,
    .graph_compute_sync = device_compute_sync,
    .measure_limits = cpu_limits_measure,
};

const tdm_split_ops cpu_split_ops = {
    .struct_size = sizeof(tdm_split_ops),
    .split_unit = device_split_unit,
};
