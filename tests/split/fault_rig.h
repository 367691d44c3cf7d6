/* SPDX-License-Identifier: MIT
 *
 * fault_rig.h: a group of devices with faults (tests/plugins/faults), and a small network of
 * feed-forward blocks to run on it and on one device.
 */
#ifndef TANDEM_TESTS_FAULT_RIG_H
#define TANDEM_TESTS_FAULT_RIG_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "core/runtime.h"
#include "core/graph/builder.h"
#include "core/stages/schedule_internal.h"
#include "tests/support/random.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error ok_err = {0}, *err = &ok_err;                                                    \
        if ((call) != TDM_OK) fail_msg("%s", ok_err.message);                                      \
    } while (0)

enum { RIG_MEMBERS = 4, N_EMBD = 64, N_FF = 96, MAX_LOG = 16384 };

typedef void (*fault_set_fn)(const char *member, const char *key, int64_t n);

typedef struct fault_rig {
    tdm_runtime *rt;
    tdm_open_device *single, *group;
    tdm_scratch *single_scratch, *group_scratch;
    fault_set_fn set;
    pthread_mutex_t mutex;
    char log[MAX_LOG];
} fault_rig;

static inline void rig_log(void *context, int32_t level, const char *line) {
    fault_rig *rig = context;
    (void)level;
    pthread_mutex_lock(&rig->mutex);
    size_t used = strlen(rig->log);
    snprintf(rig->log + used, sizeof rig->log - used, "%s\n", line);
    pthread_mutex_unlock(&rig->mutex);
}

static inline int rig_log_count(const fault_rig *rig, const char *text) {
    int n = 0;
    for (const char *at = rig->log; (at = strstr(at, text)) != NULL; at += strlen(text)) n++;
    return n;
}

/* Declares "one", members "m0".. with the options of faults[i] ("key=value key=value", NULL: a CPU
 * device as it is), and "group" with those options. Members' devices are "c0".. */
static inline fault_rig *rig_declare(int32_t n_member, const char *const *faults,
                                     const char *group_options) {
    fault_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    pthread_mutex_init(&rig->mutex, NULL);
    tdm_runtime_params params = {.struct_size = sizeof params,
                                 .plugin_path = getenv("FAULT_PLUGIN_PATH"),
                                 .log = rig_log,
                                 .log_context = rig,
                                 .log_level = TDM_LOG_WARN};
    OK(tdm_runtime_create(&params, &rig->rt, err));
    tdm_option cpu[] = {{"threads", "1"}, {"path", "reference"}};
    tdm_device_spec one = {"one", "cpu", 0, cpu, 2};
    char members[128] = "";
    OK(tdm_runtime_declare(rig->rt, &one, err));
    for (int32_t i = 0; i < n_member; i++) {
        char behind[16], name[16], text[128];
        tdm_option options[8] = {{"member", behind}};
        int32_t n_option = 1;
        snprintf(behind, sizeof behind, "c%d", (int)i);
        snprintf(name, sizeof name, "m%d", (int)i);
        snprintf(text, sizeof text, "%s", faults[i] != NULL ? faults[i] : "");
        for (char *at = strtok(text, " "); at != NULL; at = strtok(NULL, " ")) {
            char *value = strchr(at, '=');
            assert_non_null(value);
            *value = 0;
            options[n_option++] = (tdm_option){at, value + 1};
        }
        tdm_device_spec inner = {behind, "cpu", 0, cpu, 2};
        tdm_device_spec outer = {name, "fault", 0, options, n_option};
        OK(tdm_runtime_declare(rig->rt, &inner, err));
        OK(tdm_runtime_declare(rig->rt, &outer, err));
        size_t used = strlen(members);
        snprintf(members + used, sizeof members - used, "%s%s", used > 0 ? "," : "", name);
    }
    char text[128];
    tdm_option options[8] = {{"members", members}};
    int32_t n_option = 1;
    snprintf(text, sizeof text, "%s", group_options);
    for (char *at = strtok(text, " "); at != NULL; at = strtok(NULL, " ")) {
        char *value = strchr(at, '=');
        assert_non_null(value);
        *value = 0;
        options[n_option++] = (tdm_option){at, value + 1};
    }
    tdm_device_spec group = {"group", "meta", 0, options, n_option};
    OK(tdm_runtime_declare(rig->rt, &group, err));
    OK(tdm_runtime_open(rig->rt, "one", &rig->single, err));
    OK(tdm_scratch_create(rig->rt, &rig->single, 1, &rig->single_scratch, err));
    return rig;
}

static inline tdm_status rig_open_group(fault_rig *rig, tdm_error *err) {
    tdm_status status = tdm_runtime_open(rig->rt, "group", &rig->group, err);
    if (status == TDM_OK)
        status = tdm_scratch_create(rig->rt, &rig->group, 1, &rig->group_scratch, err);
    return status;
}

/* Calls fault_set, a function that the plugin exports for tests. The plugin must be loaded. */
static inline void rig_set(fault_rig *rig, const char *member, const char *key, int64_t n) {
    if (rig->set == NULL) {
        for (int32_t i = 0; i < tdm_runtime_plugin_count(rig->rt); i++) {
            if (strcmp(tdm_runtime_plugin(rig->rt, i)->name, "fault") != 0) continue;
            void *lib = dlopen(tdm_runtime_plugin_file(rig->rt, i), RTLD_NOW | RTLD_NOLOAD);
            assert_non_null(lib);
            void *symbol = dlsym(lib, "fault_set");
            memcpy(&rig->set, &symbol, sizeof symbol);
            dlclose(lib);
        }
        assert_non_null(rig->set);
    }
    rig->set(member, key, n);
}

static inline fault_rig *rig_open(int32_t n_member, const char *const *faults,
                                  const char *group_options) {
    fault_rig *rig = rig_declare(n_member, faults, group_options);
    OK(rig_open_group(rig, err));
    return rig;
}

static inline void rig_close(fault_rig *rig) {
    tdm_scratch_destroy(rig->group_scratch);
    tdm_scratch_destroy(rig->single_scratch);
    tdm_runtime_destroy(rig->rt);
    pthread_mutex_destroy(&rig->mutex);
    free(rig);
}

/* ---- The network ----------------------------------------------------------------------------- */

/* y = x + down(silu(gate x') * up x'), x' = norm(x), n_layer times; what an exchange sums is down's
 * addends, with x as the residual. */
static inline tdm_graph *net_graph(int32_t n_tok, int32_t n_layer) {
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    OK(tdm_builder_create(&b, err));
    int32_t x = tdm_build_input(b, "x", TDM_TYPE_F32, (const int64_t[4]){N_EMBD, n_tok, 1, 1});
    for (int32_t l = 0; l < n_layer; l++) {
        tdm_partition cut = {
            .id = 1000 + l, .layer = l, .n_unit = N_FF / 8, .n_segment = 1, .unit_len = {8}};
        int32_t p = tdm_build_partition(b, &cut);
        const int64_t in[4] = {N_EMBD, N_FF, 1, 1}, out[4] = {N_FF, N_EMBD, 1, 1};
        char names[3][16];
        snprintf(names[0], sizeof names[0], "gate%d", (int)l);
        snprintf(names[1], sizeof names[1], "up%d", (int)l);
        snprintf(names[2], sizeof names[2], "down%d", (int)l);
        int32_t gate = tdm_build_weight(b, names[0], TDM_TYPE_F32, in, TDM_USAGE_MATMUL);
        int32_t up = tdm_build_weight(b, names[1], TDM_TYPE_F32, in, TDM_USAGE_MATMUL);
        int32_t down = tdm_build_weight(b, names[2], TDM_TYPE_F32, out, TDM_USAGE_MATMUL);
        tdm_build_set_partition(b, gate, p, 1);
        tdm_build_set_partition(b, up, p, 1);
        tdm_build_set_partition(b, down, p, 0);
        int32_t h = tdm_build_rms_norm(b, x, -1, 1e-5f);
        int32_t g = tdm_build_matmul(b, gate, h), u = tdm_build_matmul(b, up, h);
        int32_t y = tdm_build_matmul(b, down, tdm_build_glu(b, g, u, TDM_ACT_SILU));
        tdm_build_name(b, y, "ffn_out", l);
        x = tdm_build_add(b, y, x);
    }
    tdm_build_output(b, tdm_build_scale(b, x, 1, 0), "y");
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    return graph;
}

/* Weights of a network on one device, in one buffer; slots by graph. */
typedef struct net {
    tdm_open_device *dev;
    tdm_scratch *scratch;
    int32_t n_layer;
    tdm_mem weights;
    uint64_t off[64], size[64]; /* by layer and kind */
} net;

static inline int32_t net_weight(const tdm_graph *graph, int32_t value) {
    const char *name = tdm_graph_value_name(graph, value);
    if (strncmp(name, "gate", 4) == 0) return 3 * atoi(name + 4);
    if (strncmp(name, "up", 2) == 0) return 3 * atoi(name + 2) + 1;
    if (strncmp(name, "down", 4) == 0) return 3 * atoi(name + 4) + 2;
    return -1;
}

/* -1 .. 1, in steps of 2^-15 */
static inline float net_number(uint64_t *random) {
    return (float)((int32_t)(random_u64(random) >> 48) - 32768) / 32768;
}

static inline tdm_tensor_desc net_desc(const tdm_graph *graph, int32_t value) {
    const tdm_value *v = tdm_graph_value(graph, value);
    tdm_tensor_desc desc = {.struct_size = sizeof desc,
                            .type = (tdm_type)v->type,
                            .usage = v->usage,
                            .partition = *tdm_graph_partition(graph, v->partition),
                            .axis = v->axis};
    memcpy(desc.ne, v->ne, sizeof desc.ne);
    return desc;
}

/* Loads a network whose partitions the device has assigned already. */
static inline tdm_status net_load_assigned(net *n, tdm_open_device *dev, tdm_scratch *scratch,
                                           int32_t n_layer, tdm_error *err) {
    tdm_graph *graph = net_graph(1, n_layer);
    tdm_status status = TDM_OK;
    tdm_tensor_desc descs[64];
    tdm_buffer_item items[64];
    tdm_buffer_params params = {.struct_size = sizeof params,
                                .purpose = TDM_BUFFER_WEIGHT,
                                .items = items,
                                .n_item = 3 * n_layer};
    memset(n, 0, sizeof *n);
    n->dev = dev;
    n->scratch = scratch;
    n->n_layer = n_layer;
    for (int32_t i = 0; i < graph->n_value && status == TDM_OK; i++) {
        int32_t w = net_weight(graph, i);
        if (w < 0) continue;
        descs[w] = net_desc(graph, i);
        status = tdm_open_device_tensor_size(dev, &descs[w], &n->size[w], err);
        n->off[w] = (uint64_t)w * 65536;
        items[w] = (tdm_buffer_item){.off = n->off[w], .size = n->size[w], .tensor = &descs[w]};
        params.size = (uint64_t)3 * (uint64_t)n_layer * 65536;
    }
    if (status == TDM_OK) status = tdm_mem_alloc_items(dev, &params, &n->weights, err);
    for (int32_t w = 0; w < 3 * n_layer && status == TDM_OK; w++) {
        float data[N_EMBD * N_FF];
        uint64_t random = 77u + (uint64_t)w;
        for (int i = 0; i < N_EMBD * N_FF; i++) data[i] = net_number(&random) / 8;
        status = tdm_mem_tensor_upload(&n->weights, n->off[w], &descs[w], data,
                                       (uint64_t)descs[w].ne[0] * sizeof *data, 0,
                                       tdm_shape_rows(descs[w].ne), 0, descs[w].ne[0], err);
    }
    tdm_graph_free(graph);
    if (status != TDM_OK) tdm_mem_free(&n->weights);
    return status;
}

static inline tdm_status net_load(net *n, tdm_open_device *dev, tdm_scratch *scratch,
                                  int32_t n_layer, tdm_error *err) {
    tdm_graph *graph = net_graph(1, n_layer);
    tdm_status status = tdm_open_device_split_prepare(dev, graph, err);
    tdm_graph_free(graph);
    memset(n, 0, sizeof *n);
    return status == TDM_OK ? net_load_assigned(n, dev, scratch, n_layer, err) : status;
}

static inline tdm_status net_schedule(const net *n, int32_t n_tok, tdm_schedule **out,
                                      tdm_error *err) {
    tdm_graph *graph = net_graph(n_tok, n->n_layer);
    tdm_slot_mem slots[256];
    memset(slots, 0, sizeof slots);
    assert_true(graph->n_slot <= 256);
    for (int32_t i = 0; i < graph->n_value; i++) {
        int32_t w = net_weight(graph, i);
        if (w >= 0)
            slots[tdm_graph_value(graph, i)->slot] =
                (tdm_slot_mem){n->weights, n->off[w], n->size[w]};
    }
    return tdm_schedule_create(n->scratch, graph, slots, out, err);
}

static inline int32_t net_value(const tdm_graph *graph, const char *name) {
    for (int32_t i = 0; i < graph->n_value; i++)
        if (strcmp(tdm_graph_value_name(graph, i), name) == 0) return i;
    fail_msg("no value '%s'", name);
    return -1;
}

/* Runs with inputs that follow from the seed; y is [N_EMBD * n_tok]. */
static inline tdm_status net_run(tdm_schedule *schedule, int32_t n_tok, uint64_t seed, float *y,
                                 tdm_error *err) {
    const tdm_graph *graph = schedule->graph;
    size_t n = (size_t)N_EMBD * (size_t)n_tok;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = net_number(&seed);
    tdm_io in = {net_value(graph, "x"), x, n * sizeof *x};
    tdm_io out = {net_value(graph, "y"), y, n * sizeof *y};
    tdm_status status = tdm_schedule_run(schedule, &in, 1, &out, 1, err);
    free(x);
    return status;
}

static inline double nmse(const float *a, const float *b, size_t n) {
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        power += (double)b[i] * b[i];
    }
    return power > 0 ? error / power : error;
}

#endif
