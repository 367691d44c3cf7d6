/* SPDX-License-Identifier: MIT
 *
 * op_run.c: see op_run.h. Every slot of a graph gets a buffer of its own with a guard in front and
 * behind; under the address sanitizer the guards may not even be read.
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "tests/kernels/op_host.h"
#include "tests/kernels/op_run.h"
#include "tests/support/random.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(ptr, size)   __asan_poison_memory_region(ptr, size)
#define UNPOISON(ptr, size) __asan_unpoison_memory_region(ptr, size)
#else
#define POISON(ptr, size)   ((void)(ptr), (void)(size))
#define UNPOISON(ptr, size) ((void)(ptr), (void)(size))
#endif

enum { GUARD_SIZE = 256 }; /* keeps the alignment of buffers */
#define GUARD_BYTE 0x5a
#define FRESH_BYTE 0xff /* reads as NaN */

struct op_rig {
    void *object; /* of dlopen */
    op_host *host;
    const tdm_plugin *plugin;
    tdm_instance *instance;
    tdm_device *device;
    char label[64];
};

/* A guarded piece of device memory. */
typedef struct op_region {
    tdm_buffer *buffer;
    uint8_t *host; /* the buffer's first byte, the guard; or that of its copy */
    bool is_copy;  /* the device's memory has no host address: `host` is memory of the test */
    uint64_t size; /* between the guards */
} op_region;

struct op_state {
    op_rig *rig;
    op_region region;
};

static void check(const op_rig *rig, const char *what, tdm_status status, const tdm_error *err) {
    if (status != TDM_OK)
        fail_msg("%s: %s: %s: %s", rig->label, what, tdm_status_text(status), err->message);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Device 0 of the plugin DIR/NAME.so. dir_name: the environment variable that holds DIR. */
static op_rig *rig_open(const char *dir_name, const char *name, const char *label,
                        const tdm_option *options, int32_t n_option) {
    char file[4096];
    tdm_error err = {0};
    const char *dir = getenv(dir_name);
    op_rig *rig = calloc(1, sizeof *rig);
    if (rig == NULL) fail_msg("no memory");
    snprintf(rig->label, sizeof rig->label, "%s", label);
    snprintf(file, sizeof file, "%s/%s.so", dir != NULL ? dir : ".", name);
    rig->object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (rig->object == NULL) fail_msg("%s: %s", dir_name, dlerror());
    tdm_plugin_entry_fn entry;
    void *symbol = dlsym(rig->object, TDM_PLUGIN_ENTRY_NAME);
    if (symbol == NULL) fail_msg("%s: no entry", file);
    memcpy(&entry, &symbol, sizeof entry);
    rig->host = op_host_create();
    check(rig, "entry", entry(op_host_table(rig->host), &rig->plugin, &err), &err);
    check(rig, "init", rig->plugin->init(op_host_table(rig->host), &rig->instance, &err), &err);
    tdm_device_params params = {
        .struct_size = sizeof params, .n_option = n_option, .options = options};
    tdm_status status = rig->plugin->device->open(rig->instance, &params, &rig->device, &err);
    if (status == TDM_UNSUPPORTED || status == TDM_NOT_FOUND || status == TDM_UNAVAILABLE) {
        print_message("SKIPPED: %s: %s\n", rig->label, err.message);
        op_rig_close(rig);
        return NULL;
    }
    check(rig, "open", status, &err);
    return rig;
}

static op_rig *cpu_open(const char *isa, const char *path, const char *bits, int n_thread) {
    char threads[16], label[128];
    const tdm_option options[] = {
        {"isa", isa}, {"path", path}, {"threads", threads}, {"activation-bits", bits}};
    snprintf(threads, sizeof threads, "%d", n_thread);
    snprintf(label, sizeof label, "isa %s, path %s, %s-bit activations, %d threads", isa, path,
             bits, n_thread);
    return rig_open("TANDEM_PLUGIN_DIR", "cpu", label, options, 4);
}

op_rig *op_rig_open(const char *isa, const char *path, int n_thread) {
    return cpu_open(isa, path, "15", n_thread);
}

op_rig *op_rig_open_bits(const char *isa, const char *activation_bits, int n_thread) {
    return cpu_open(isa, "fast", activation_bits, n_thread);
}

op_rig *op_rig_open_plugin(const char *name, const tdm_option *options, int n_option) {
    const tdm_option driver = {"driver", getenv("OP_CASE_DRIVER")};
    if (driver.value == NULL) {
        op_rig *rig = rig_open("TANDEM_GPU_PLUGIN_DIR", name, name, options, n_option);
        /* Without its device a test has nothing to check: it must not pass. */
        if (rig == NULL) exit(77);
        return rig;
    }
    /* An emulated device is no CPU that would have to be allowed. */
    tdm_option all[4] = {driver};
    int n_all = 1;
    for (int i = 0; i < n_option && n_all < 4; i++)
        if (strcmp(options[i].key, "allow-cpu") != 0) all[n_all++] = options[i];
    op_rig *rig = rig_open("TANDEM_GPU_PLUGIN_DIR", name, name, all, n_all);
    /* An emulated driver has devices on every machine. */
    if (rig == NULL) fail_msg("%s: no device with driver %s", name, driver.value);
    return rig;
}

int op_n_case(int n_case, int n_gpu) {
    const char *cases = getenv("TANDEM_CASES");
    if (getenv("OP_CASE_PLUGIN") == NULL) return n_case;
    return cases != NULL && strcmp(cases, "all") == 0 ? n_case : n_gpu;
}

void op_rig_close(op_rig *rig) {
    if (rig == NULL) return;
    if (rig->device != NULL) rig->plugin->device->close(rig->device);
    rig->plugin->deinit(rig->instance);
    bool is_clean = op_host_destroy(rig->host);
    dlclose(rig->object);
    if (!is_clean) fail_msg("%s: the plugin kept memory or wrote past its end", rig->label);
    free(rig);
}

tdm_device *op_rig_device(const op_rig *rig) {
    return rig->device;
}

const tdm_plugin *op_rig_plugin(const op_rig *rig) {
    return rig->plugin;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static op_region region_create(op_rig *rig, uint64_t size) {
    const tdm_buffer_ops *ops = rig->plugin->buffer;
    tdm_buffer_params params = {.struct_size = sizeof params, .size = size + 2 * GUARD_SIZE};
    op_region region = {.size = size};
    tdm_error err = {0};
    check(rig, "alloc", ops->alloc(rig->device, &params, &region.buffer, &err), &err);
    if (TDM_HAS(ops, host_pointer))
        region.host = ops->host_pointer(region.buffer, TDM_ACCESS_READ | TDM_ACCESS_WRITE);
    region.is_copy = region.host == NULL;
    if (region.is_copy) region.host = malloc(params.size);
    if (region.host == NULL) fail_msg("no memory");
    memset(region.host, GUARD_BYTE, GUARD_SIZE);
    memset(region.host + GUARD_SIZE, FRESH_BYTE, size);
    memset(region.host + GUARD_SIZE + size, GUARD_BYTE, GUARD_SIZE);
    if (region.is_copy)
        check(rig, "upload", ops->upload(region.buffer, 0, region.host, params.size, &err), &err);
    return region;
}

/* Makes `host` what the device's memory holds. */
static void region_fetch(const op_rig *rig, const op_region *region) {
    tdm_error err = {0};
    if (!region->is_copy) return;
    UNPOISON(region->host, region->size + 2 * GUARD_SIZE);
    check(rig, "download",
          rig->plugin->buffer->download(region->buffer, 0, region->host,
                                        region->size + 2 * GUARD_SIZE, &err),
          &err);
}

static void region_poison(const op_region *region) {
    POISON(region->host, GUARD_SIZE);
    POISON(region->host + GUARD_SIZE + region->size, GUARD_SIZE);
}

static void region_check(const op_rig *rig, const op_region *region, const char *name) {
    UNPOISON(region->host, GUARD_SIZE);
    UNPOISON(region->host + GUARD_SIZE + region->size, GUARD_SIZE);
    for (int i = 0; i < GUARD_SIZE; i++) {
        if (region->host[i] != GUARD_BYTE)
            fail_msg("%s: '%s' was written to %d bytes before its start", rig->label, name,
                     GUARD_SIZE - i);
        if (region->host[GUARD_SIZE + region->size + (uint64_t)i] != GUARD_BYTE)
            fail_msg("%s: '%s' was written to %d bytes past its end", rig->label, name, i + 1);
    }
}

static void region_destroy(op_rig *rig, op_region *region) {
    rig->plugin->buffer->free(region->buffer);
    if (region->is_copy) free(region->host);
}

op_state *op_state_create(op_rig *rig, uint64_t size) {
    op_state *state = calloc(1, sizeof *state);
    if (state == NULL) fail_msg("no memory");
    state->rig = rig;
    state->region = region_create(rig, size);
    return state;
}

void op_state_destroy(op_state *state) {
    if (state == NULL) return;
    region_destroy(state->rig, &state->region);
    free(state);
}

void op_state_put(op_state *state, const void *bytes) {
    tdm_error err = {0};
    check(state->rig, "upload",
          state->rig->plugin->buffer->upload(state->region.buffer, GUARD_SIZE, bytes,
                                             state->region.size, &err),
          &err);
}

void op_state_get(op_state *state, void *bytes) {
    region_fetch(state->rig, &state->region);
    UNPOISON(state->region.host, state->region.size + 2 * GUARD_SIZE);
    memcpy(bytes, state->region.host + GUARD_SIZE, state->region.size);
}

uint64_t op_rig_page_size(const op_rig *rig, const tdm_kv_desc *desc) {
    uint64_t size = 0;
    tdm_error err = {0};
    check(rig, "kv_page_size", rig->plugin->buffer->kv_page_size(rig->device, desc, &size, &err),
          &err);
    return size;
}

/* ---- Running --------------------------------------------------------------------------------- */

/* The memory of one slot during a run. */
typedef struct op_slot {
    const tdm_value *value;
    const op_arg *arg; /* NULL: none */
    const char *name;
    op_region region;
    bool is_read_only;
    uint8_t *snapshot; /* of a read-only slot */
} op_slot;

static tdm_tensor_desc slot_desc(const op_slot *slot) {
    tdm_tensor_desc desc = {.struct_size = sizeof desc,
                            .type = (tdm_type)slot->value->type,
                            .usage = slot->value->usage};
    memcpy(desc.ne, slot->value->ne, sizeof desc.ne);
    return desc;
}

static uint64_t slot_size(const op_rig *rig, const op_slot *slot) {
    tdm_error err = {0};
    tdm_tensor_desc desc = slot_desc(slot);
    uint64_t size = tdm_tensor_canonical_size(desc.type, desc.ne);
    if (slot->value->kind == TDM_VALUE_WEIGHT && desc.usage != 0)
        check(rig, slot->name, rig->plugin->buffer->tensor_size(rig->device, &desc, &size, &err),
              &err);
    return size;
}

static void slot_fill(op_rig *rig, op_slot *slot) {
    tdm_error err = {0};
    tdm_tensor_desc desc = slot_desc(slot);
    const tdm_buffer_ops *ops = rig->plugin->buffer;
    tdm_status status;
    if (slot->arg == NULL) fail_msg("%s: no argument for '%s'", rig->label, slot->name);
    if (slot->value->kind == TDM_VALUE_WEIGHT)
        status = ops->tensor_upload(slot->region.buffer, GUARD_SIZE, &desc, slot->arg->data,
                                    tdm_type_row_size(desc.type, desc.ne[0]), 0,
                                    tdm_shape_rows(desc.ne), 0, desc.ne[0], &err);
    else
        status =
            ops->upload(slot->region.buffer, GUARD_SIZE, slot->arg->data, slot->region.size, &err);
    check(rig, slot->name, status, &err);
    region_fetch(rig, &slot->region);
    slot->snapshot = malloc(slot->region.size + 1);
    if (slot->snapshot == NULL) fail_msg("no memory");
    memcpy(slot->snapshot, slot->region.host + GUARD_SIZE, slot->region.size);
}

static op_slot *slots_create(op_rig *rig, const tdm_graph *graph, const op_arg *args, int n_arg,
                             tdm_binding *bindings) {
    tdm_error err = {0};
    check(rig, "verify", tdm_graph_verify(graph, &err), &err);
    op_slot *slots = calloc((size_t)graph->n_slot + 1, sizeof *slots);
    if (slots == NULL) fail_msg("no memory");
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->slot < 0) continue;
        op_slot *slot = &slots[v->slot];
        slot->value = v;
        slot->name = tdm_graph_value_name(graph, i);
        for (int k = 0; k < n_arg; k++)
            if (args[k].value == i) slot->arg = &args[k];
        if (v->kind == TDM_VALUE_STATE) {
            if (slot->arg == NULL || slot->arg->state == NULL)
                fail_msg("%s: no state for '%s'", rig->label, slot->name);
            slot->region = slot->arg->state->region;
        } else {
            slot->region = region_create(rig, slot_size(rig, slot));
        }
        slot->is_read_only = v->kind == TDM_VALUE_WEIGHT || v->kind == TDM_VALUE_INPUT;
        if (slot->is_read_only) slot_fill(rig, slot);
        region_poison(&slot->region);
        bindings[v->slot] = (tdm_binding){slot->region.buffer, GUARD_SIZE, slot->region.size};
    }
    return slots;
}

static void slots_destroy(op_rig *rig, const tdm_graph *graph, op_slot *slots) {
    for (int32_t i = 0; i < graph->n_slot; i++) {
        op_slot *slot = &slots[i];
        const uint8_t *bytes = slot->region.host + GUARD_SIZE;
        region_fetch(rig, &slot->region);
        region_check(rig, &slot->region, slot->name);
        if (slot->is_read_only && memcmp(slot->snapshot, bytes, slot->region.size) != 0)
            fail_msg("%s: '%s' is an input and was changed", rig->label, slot->name);
        if (!slot->is_read_only && slot->value->kind != TDM_VALUE_STATE && slot->arg != NULL)
            memcpy(slot->arg->data, bytes, slot->region.size);
        free(slot->snapshot);
        if (slot->value->kind != TDM_VALUE_STATE) region_destroy(rig, &slot->region);
    }
    free(slots);
}

static tdm_binding *bindings_create(const tdm_graph *graph) {
    tdm_binding *bindings = calloc((size_t)graph->n_slot + 1, sizeof *bindings);
    if (bindings == NULL) fail_msg("no memory");
    return bindings;
}

/* Runs the graph through a queue. */
static void queue_compute(op_rig *rig, const tdm_graph *graph, const tdm_binding *bindings) {
    const tdm_queue_ops *ops = rig->plugin->queue;
    const tdm_host_semaphore_ops *semaphores = op_host_table(rig->host)->semaphore;
    tdm_plan_params params = {.struct_size = sizeof params};
    tdm_queue *queue = NULL;
    tdm_plan *plan = NULL;
    tdm_point done = {.value = 1};
    tdm_error err = {0};
    check(rig, "queue", ops->create(rig->device, &queue, &err), &err);
    check(rig, "prepare", ops->graph_prepare(queue, graph, &params, &plan, &err), &err);
    check(rig, "bind", ops->plan_bind(plan, bindings, graph->n_slot, &err), &err);
    check(rig, "semaphore", semaphores->create(0, &done.semaphore, &err), &err);
    check(rig, "compute", ops->graph_compute(queue, plan, NULL, 0, &done, 1, &err), &err);
    check(rig, "wait", semaphores->wait(done.semaphore, done.value, TDM_WAIT_FOREVER, &err), &err);
    ops->plan_destroy(plan);
    ops->destroy(queue);
    semaphores->destroy(done.semaphore);
}

void op_rig_run(op_rig *rig, const tdm_graph *graph, const op_arg *args, int n_arg) {
    tdm_error err = {0};
    tdm_binding *bindings = bindings_create(graph);
    op_slot *slots = slots_create(rig, graph, args, n_arg, bindings);
    const tdm_device_ops *ops = rig->plugin->device;
    if (TDM_HAS(ops, graph_compute_sync))
        check(rig, "compute",
              ops->graph_compute_sync(rig->device, graph, bindings, graph->n_slot, &err), &err);
    else
        queue_compute(rig, graph, bindings);
    slots_destroy(rig, graph, slots);
    free(bindings);
}

tdm_status op_rig_supports(const op_rig *rig, const tdm_graph *graph, int32_t node,
                           tdm_error *err) {
    return rig->plugin->device->supports_op(rig->device, graph, node, err);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

uint64_t op_random_next(uint64_t *seed) {
    return random_u64(seed);
}

void op_random_fill(uint64_t *seed, float *x, size_t n, float scale) {
    for (size_t i = 0; i < n; i++)
        x[i] = ((float)(op_random_next(seed) >> 40) * 0x1p-23f - 1.0f) * scale;
}

/* True where NaN and infinities agree; *is_number is true when neither value is one of them. */
static bool special_agree(float got, float want, bool *is_number) {
    *is_number = isfinite(got) && isfinite(want);
    if (*is_number) return true;
    if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
    return got == want;
}

double op_nmse(const float *got, const float *want, size_t n) {
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_number;
        if (!special_agree(got[i], want[i], &is_number)) return INFINITY;
        if (!is_number) continue;
        double d = (double)got[i] - (double)want[i];
        error += d * d;
        power += (double)want[i] * (double)want[i];
    }
    return error == 0 ? 0 : error / power;
}

double op_max_abs(const float *got, const float *want, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_number;
        if (!special_agree(got[i], want[i], &is_number)) return INFINITY;
        if (is_number) worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    }
    return worst;
}
