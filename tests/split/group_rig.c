/* SPDX-License-Identifier: MIT
 *
 * group_rig.c: see group_rig.h.
 */
#include "tests/split/group_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime.h"
#include "plugins/meta/meta.h"

/* ---- Topologies ---- */

static const char *const words_split[] = {"tensor", "layer"};
static const char *const words_attention[] = {"heads", "replicate", "sequence"};
static const char *const words_experts[] = {"hidden", "whole"};
static const char *const words_reduce[] = {"f32", "f16", "bf16", "q8_0"};
static const char *const words_path[] = {"reference", "fast"};
static const char *const words_check[] = {"off", "replicas"};

void group_topology_draw(choices *c, group_topology *t) {
    static const int32_t counts[] = {2, 2, 2, 3, 3, 1, 4, 5, 6, 7};
    int32_t sum = 0;
    memset(t, 0, sizeof *t);
    t->n_member = choice_rarely(c, 60) ? TDM_MAX_MEMBERS : counts[choice_below(c, 10)];
    uint32_t kind = choice_below(c, 4);
    for (int32_t i = 0; i < t->n_member; i++) {
        if (kind == 0) t->shares[i] = 1;
        if (kind == 1) t->shares[i] = 1 + (int32_t)choice_below(c, 5);
        if (kind == 2) t->shares[i] = (int32_t)choice_below(c, 3); /* zeros */
        if (kind == 3) t->shares[i] = i == (int32_t)t->n_member / 2 ? 30 : 1;
        sum += t->shares[i];
    }
    if (sum == 0) t->shares[t->n_member - 1] = 1;
    t->path = words_path[choice_below(c, 2)];
    t->split = words_split[choice_rarely(c, 10)];
    t->attention = words_attention[choice_below(c, 3)];
    t->experts = words_experts[choice_below(c, 2)];
    t->reduce_type = words_reduce[choice_rarely(c, 12) ? 1 + choice_below(c, 3) : 0];
    t->check = words_check[choice_below(c, 2)];
    t->is_nested = t->n_member >= 3 && choice_rarely(c, 12);
    t->is_scattered = t->n_member >= 3 && choice_rarely(c, 2);
}

static size_t append(char *text, size_t size, size_t at, const char *piece) {
    size_t n = strlen(piece);
    if (at + n + 1 > size) return at;
    memcpy(text + at, piece, n + 1);
    return at + n;
}

/* Members first .. with ", " in between, as names or shares. */
static void list_print(const group_topology *t, int32_t first, bool is_share, char *text,
                       size_t size) {
    size_t at = 0;
    char piece[16];
    text[0] = '\0';
    if (first == 0 && t->is_nested) {
        snprintf(piece, sizeof piece, "%d", (int)(t->shares[0] + t->shares[1]));
        at = append(text, size, at, is_share ? piece : "inner");
        first = 2;
    }
    for (int32_t i = first; i < t->n_member; i++) {
        snprintf(piece, sizeof piece, is_share ? "%s%d" : "%sm%d", at > 0 ? "," : "",
                 (int)(is_share ? t->shares[i] : i));
        at = append(text, size, at, piece);
    }
}

void group_topology_print(const group_topology *t, char *text, size_t size) {
    char shares[512];
    list_print(t, 0, true, shares, sizeof shares);
    snprintf(text, size,
             "%d members, share = %s, path = %s, split = %s, attention = %s, experts = %s, "
             "reduce-type = %s, check = %s%s%s",
             (int)t->n_member, shares, t->path, t->split, t->attention, t->experts, t->reduce_type,
             t->check, t->is_nested ? ", the first two a group of their own" : "",
             t->is_scattered ? ", sums in two exchanges" : "");
}

/* ---- Devices ---- */

struct group_rig {
    tdm_runtime *rt;
    tdm_open_device *single, *group;
    tdm_scratch *single_scratch, *group_scratch;
    int n_warning;
    char warning[512];
};

static void take_log(void *context, int32_t level, const char *line) {
    group_rig *rig = context;
    (void)level;
    rig->n_warning++;
    snprintf(rig->warning, sizeof rig->warning, "%s", line);
}

/* isa NULL: the machine's best. */
static tdm_status cpu_declare(group_rig *rig, const char *name, const char *path, const char *isa,
                              int32_t n_thread, tdm_error *err) {
    char threads[12];
    snprintf(threads, sizeof threads, "%d", (int)n_thread);
    const tdm_option options[] = {{"path", path}, {"threads", threads}, {"isa", isa}};
    const tdm_device_spec spec = {name, "cpu", 0, options, isa != NULL ? 3 : 2};
    return tdm_runtime_declare(rig->rt, &spec, err);
}

/* Value `index` of a list, from its beginning again where it has fewer: of "a,b" a, b, a. */
static void value_pick(const char *list, int32_t index, char *value, size_t size) {
    const char *at = list;
    for (int32_t i = 0; i < index; i++) {
        const char *comma = strchr(at, ',');
        at = comma != NULL ? comma + 1 : list;
    }
    snprintf(value, size, "%.*s", (int)strcspn(at, ","), at);
}

/* A member: a CPU device or, where TANDEM_MEMBER_FAULTS holds options of fault_plugin.c
 * ("exchange=no import=no"), one behind such a device: so that every test here runs over exchanges
 * of the host's, too. With the word "discrete" the device before it is one of discrete.h, with
 * "mixed" only every second member has one. The values of an option "exchange=phases,yes" go to the
 * members in turn. */
static tdm_status member_declare(group_rig *rig, const char *name, int32_t index, const char *path,
                                 const char *isa, int32_t n_thread, tdm_error *err) {
    const char *faults = getenv("TANDEM_MEMBER_FAULTS");
    char behind[16], text[128], values[8][32];
    tdm_option options[8] = {{"member", behind}};
    tdm_device_spec spec = {name, "fault", 0, options, 1};
    bool is_mixed = false;
    snprintf(behind, sizeof behind, "c%d", (int)index);
    snprintf(text, sizeof text, "%s", faults != NULL ? faults : "");
    for (char *rest = text, *at; (at = strtok_r(rest, " ", &rest)) != NULL && spec.n_option < 8;) {
        char *value = strchr(at, '=');
        if (strcmp(at, "mixed") == 0) {
            is_mixed = true;
        } else if (strcmp(at, "discrete") == 0) {
            spec.plugin = "discrete";
        } else if (value == NULL) {
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "TANDEM_MEMBER_FAULTS: '%s'", at);
        } else {
            int n = spec.n_option++;
            *value = 0;
            value_pick(value + 1, is_mixed ? index / 2 : index, values[n], sizeof values[n]);
            options[n] = (tdm_option){at, values[n]};
        }
    }
    if (faults == NULL || (is_mixed && index % 2 == 0))
        return cpu_declare(rig, name, path, isa, n_thread, err);
    tdm_status status = cpu_declare(rig, behind, path, isa, n_thread, err);
    return status == TDM_OK ? tdm_runtime_declare(rig->rt, &spec, err) : status;
}

static tdm_status group_declare(group_rig *rig, const group_topology *t, const char *name,
                                const char *members, const char *shares, tdm_error *err) {
    const tdm_option options[] = {
        {"members", members},        {"share", shares},       {"split", t->split},
        {"attention", t->attention}, {"experts", t->experts}, {"reduce-type", t->reduce_type},
        {"check", t->check},         {"timeout", "20"},
    };
    const tdm_device_spec spec = {name, "meta", 0, options, 8};
    return tdm_runtime_declare(rig->rt, &spec, err);
}

static tdm_status device_declare(group_rig *rig, const char *name, const tdm_device_spec *device,
                                 tdm_error *err) {
    tdm_device_spec spec = *device;
    spec.name = name;
    return tdm_runtime_declare(rig->rt, &spec, err);
}

static tdm_status devices_declare(group_rig *rig, const group_topology *t, tdm_error *err) {
    char name[16], members[512], shares[512];
    if (t->one != NULL) {
        tdm_status declared = device_declare(rig, "one", t->one, err);
        return declared == TDM_OK ? device_declare(rig, "group", t->other, err) : declared;
    }
    tdm_status status =
        cpu_declare(rig, "one", t->path, NULL, t->n_thread > 0 ? t->n_thread : 1, err);
    for (int32_t i = 0; i < t->n_member && status == TDM_OK; i++) {
        bool is_odd = i % 2 != 0;
        snprintf(name, sizeof name, "m%d", (int)i);
        status = member_declare(rig, name, i, is_odd && t->odd_path != NULL ? t->odd_path : t->path,
                                is_odd ? t->odd_isa : NULL,
                                is_odd && t->odd_threads > 0 ? t->odd_threads : 1, err);
    }
    if (status == TDM_OK && t->is_nested) {
        bool is_any = t->shares[0] + t->shares[1] > 0;
        snprintf(shares, sizeof shares, "%d,%d", is_any ? (int)t->shares[0] : 1, (int)t->shares[1]);
        status = group_declare(rig, t, "inner", "m0,m1", shares, err);
    }
    if (status != TDM_OK || t->n_member == 0) return status;
    list_print(t, 0, false, members, sizeof members);
    list_print(t, 0, true, shares, sizeof shares);
    return group_declare(rig, t, "group", members, shares, err);
}

tdm_status group_rig_open(const group_topology *t, group_rig **rig_out, tdm_error *err) {
    group_rig *rig = calloc(1, sizeof *rig);
    if (rig == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the rig");
    tdm_runtime_params params = {.struct_size = sizeof params,
                                 .log = take_log,
                                 .log_context = rig,
                                 .log_level = TDM_LOG_WARN};
    tdm_status status = tdm_runtime_create(&params, &rig->rt, err);
    if (status == TDM_OK) status = devices_declare(rig, t, err);
    if (status == TDM_OK) status = tdm_runtime_open(rig->rt, "one", &rig->single, err);
    if (status == TDM_OK)
        status = tdm_scratch_create(rig->rt, &rig->single, 1, &rig->single_scratch, err);
    if (status == TDM_OK && (t->n_member > 0 || t->other != NULL)) {
        status = tdm_runtime_open(rig->rt, "group", &rig->group, err);
        if (status == TDM_OK && t->is_scattered)
            tdm_open_device_handle(rig->group)->scatter_min = 0;
        if (status == TDM_OK)
            status = tdm_scratch_create(rig->rt, &rig->group, 1, &rig->group_scratch, err);
    }
    if (status != TDM_OK) {
        group_rig_close(rig);
        return status;
    }
    *rig_out = rig;
    return TDM_OK;
}

void group_rig_close(group_rig *rig) {
    if (rig == NULL) return;
    tdm_scratch_destroy(rig->group_scratch);
    tdm_scratch_destroy(rig->single_scratch);
    tdm_runtime_destroy(rig->rt);
    free(rig);
}

tdm_open_device *group_rig_single(const group_rig *rig) {
    return rig->single;
}

tdm_open_device *group_rig_group(const group_rig *rig) {
    return rig->group;
}

int group_rig_n_warning(const group_rig *rig) {
    return rig->n_warning;
}

const char *group_rig_warning(const group_rig *rig) {
    return rig->warning;
}

/* ---- Weights and caches ---- */

typedef struct load_item {
    char name[24];
    bool is_state;
    tdm_tensor_desc tensor;
    tdm_kv_desc kv;
    uint64_t off, size;
} load_item;

struct group_load {
    tdm_open_device *dev;
    tdm_scratch *scratch;
    load_item *items;
    int n_item;
    tdm_mem weights, states;
};

/* The description that a STATE of the graph is used with. */
static const tdm_kv_desc *state_desc(const tdm_graph *graph, int32_t value) {
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        for (int32_t s = 0; s < node->n_src; s++)
            if (node->src[s] == value) return tdm_graph_kv(graph, node->params.kv.kv);
    }
    return NULL;
}

tdm_status group_load_prepare(group_rig *rig, tdm_open_device *dev, const tdm_graph *graph,
                              tdm_error *err) {
    (void)rig;
    return tdm_open_device_split_prepare(dev, graph, err);
}

/* Lists the weights or the states in a buffer of their own. */
static tdm_status items_place(group_load *load, const tdm_graph *graph, bool is_state,
                              tdm_error *err) {
    tdm_buffer_item *items = calloc((size_t)graph->n_value + 1, sizeof *items);
    if (items == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for items");
    tdm_buffer_params params = {.struct_size = sizeof params,
                                .purpose = is_state ? TDM_BUFFER_STATE : TDM_BUFFER_WEIGHT,
                                .items = items};
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < graph->n_value && status == TDM_OK; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != (is_state ? TDM_VALUE_STATE : TDM_VALUE_WEIGHT)) continue;
        load_item *item = &load->items[load->n_item];
        tdm_partition partition = {0};
        if (v->partition != 0) partition = *tdm_graph_partition(graph, v->partition);
        snprintf(item->name, sizeof item->name, "%s", tdm_graph_value_name(graph, i));
        item->is_state = is_state;
        tdm_buffer_item *b = &items[params.n_item];
        if (is_state) {
            const tdm_kv_desc *desc = state_desc(graph, i);
            if (desc == NULL) continue; /* nothing reads it */
            item->kv = *desc;
            item->size = (uint64_t)v->ne[0] * (uint64_t)v->ne[1];
            *b = (tdm_buffer_item){.kv = &item->kv, .n_page = v->ne[1], .partition = partition};
        } else {
            item->tensor = (tdm_tensor_desc){.struct_size = sizeof item->tensor,
                                             .type = (tdm_type)v->type,
                                             .usage = v->usage,
                                             .partition = partition,
                                             .axis = v->axis};
            memcpy(item->tensor.ne, v->ne, sizeof v->ne);
            status = tdm_open_device_tensor_size(load->dev, &item->tensor, &item->size, err);
            *b = (tdm_buffer_item){.tensor = &item->tensor};
        }
        item->off = b->off = params.size;
        b->size = item->size;
        params.size += (item->size + 255) / 256 * 256;
        params.n_item++;
        load->n_item++;
    }
    if (status == TDM_OK)
        status =
            tdm_mem_alloc_items(load->dev, &params, is_state ? &load->states : &load->weights, err);
    free(items);
    return status;
}

static load_item *item_find(const group_load *load, const char *name) {
    for (int i = 0; i < load->n_item; i++)
        if (strcmp(load->items[i].name, name) == 0) return &load->items[i];
    return NULL;
}

/* In two pieces where there are rows enough, the later first: parts come in any order. */
static tdm_status weight_upload(group_load *load, const load_item *item, const void *data,
                                tdm_error *err) {
    const tdm_tensor_desc *d = &item->tensor;
    size_t pitch = tdm_type_row_size(d->type, d->ne[0]);
    int64_t n_row = tdm_shape_rows(d->ne), half = n_row >= 6 ? n_row / 3 : 0;
    tdm_status status = tdm_mem_tensor_upload(&load->weights, item->off, d,
                                              (const char *)data + (size_t)half * pitch, pitch,
                                              half, n_row - half, 0, d->ne[0], err);
    if (status == TDM_OK && half > 0)
        status = tdm_mem_tensor_upload(&load->weights, item->off, d, data, pitch, 0, half, 0,
                                       d->ne[0], err);
    return status;
}

tdm_status group_load_create(group_rig *rig, tdm_open_device *dev, const tdm_graph *graph,
                             group_weight_fn weight, void *context, group_load **load_out,
                             tdm_error *err) {
    group_load *load = calloc(1, sizeof *load);
    if (load == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory to load");
    load->dev = dev;
    load->scratch = dev == rig->single ? rig->single_scratch : rig->group_scratch;
    load->items = calloc((size_t)graph->n_value + 1, sizeof *load->items);
    tdm_status status =
        load->items != NULL ? TDM_OK : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory to load");
    if (status == TDM_OK) status = items_place(load, graph, false, err);
    if (status == TDM_OK) status = items_place(load, graph, true, err);
    for (int32_t i = 0; i < graph->n_value && status == TDM_OK; i++) {
        if (tdm_graph_value(graph, i)->kind != TDM_VALUE_WEIGHT) continue;
        void *data = weight(context, graph, i);
        status = data != NULL ? weight_upload(load, item_find(load, tdm_graph_value_name(graph, i)),
                                              data, err)
                              : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a weight");
        free(data);
    }
    if (status != TDM_OK) {
        group_load_destroy(load);
        return status;
    }
    *load_out = load;
    return TDM_OK;
}

void group_load_destroy(group_load *load) {
    if (load == NULL) return;
    tdm_mem_free(&load->weights);
    tdm_mem_free(&load->states);
    free(load->items);
    free(load);
}

tdm_status group_load_schedule(group_load *load, tdm_graph *graph, tdm_schedule **schedule_out,
                               tdm_error *err) {
    tdm_slot_mem *slots = calloc((size_t)graph->n_slot + 1, sizeof *slots);
    if (slots == NULL) {
        tdm_graph_free(graph);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for slots");
    }
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != TDM_VALUE_WEIGHT && v->kind != TDM_VALUE_STATE) continue;
        const load_item *item = item_find(load, tdm_graph_value_name(graph, i));
        if (item == NULL) continue;
        slots[v->slot] =
            (tdm_slot_mem){item->is_state ? load->states : load->weights, item->off, item->size};
    }
    tdm_status status = tdm_schedule_create(load->scratch, graph, slots, schedule_out, err);
    free(slots);
    return status;
}

tdm_status group_load_verify(group_load *load, const tdm_graph *graph, group_weight_fn weight,
                             void *context, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < graph->n_value && status == TDM_OK; i++) {
        if (tdm_graph_value(graph, i)->kind != TDM_VALUE_WEIGHT) continue;
        const load_item *item = item_find(load, tdm_graph_value_name(graph, i));
        const tdm_tensor_desc *d = &item->tensor;
        size_t pitch = tdm_type_row_size(d->type, d->ne[0]);
        int64_t n_row = tdm_shape_rows(d->ne);
        void *data = weight(context, graph, i), *back = malloc(pitch * (size_t)n_row + 1);
        if (data == NULL || back == NULL)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a weight");
        if (status == TDM_OK)
            status = tdm_mem_tensor_download(&load->weights, item->off, d, back, pitch, 0, n_row, 0,
                                             d->ne[0], err);
        if (status == TDM_OK && memcmp(data, back, pitch * (size_t)n_row) != 0)
            status = tdm_fail(err, TDM_DATA_LOSS, "weight '%s' comes back changed", item->name);
        free(data);
        free(back);
    }
    return status;
}
