/* SPDX-License-Identifier: MIT
 *
 * oracle.c: see oracle.h.
 */
#include "plugins/vulkan/oracle.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The CPU plugin -------------------------------------------------------------------------- */

/* The CPU plugin is installed in the folder of this one. In the build folder each plugin has a
 * folder of its own. */
static void *library_open(void) {
    static const char *const places[] = {"cpu.so", "../cpu/cpu.so"};
    char path[4200];
    Dl_info info;
    void *library = NULL;
    if (dladdr(places, &info) == 0) return NULL;
    const char *end = strrchr(info.dli_fname, '/');
    if (end == NULL) return NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && library == NULL; i++) {
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)(end - info.dli_fname), info.dli_fname,
                         places[i]);
        if (n > 0 && (size_t)n < sizeof path) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

tdm_status vk_oracle_open(const tdm_host *host, vk_oracle *oracle, tdm_error *err) {
    const tdm_option options[] = {{.key = "path", .value = "reference"},
                                  {.key = "threads", .value = "1"}};
    const tdm_device_params params = {
        .struct_size = sizeof params, .n_option = 2, .options = options};
    tdm_plugin_entry_fn entry = NULL;
    *oracle = (vk_oracle){.library = library_open()};
    /* POSIX gives functions as void pointers. */
    if (oracle->library != NULL) *(void **)&entry = dlsym(oracle->library, TDM_PLUGIN_ENTRY_NAME);
    tdm_status status = entry != NULL
                            ? entry(host, &oracle->plugin, err)
                            : tdm_fail(err, TDM_NOT_FOUND, "vulkan: there is no CPU plugin");
    if (status == TDM_OK && oracle->plugin->init != NULL)
        status = oracle->plugin->init(host, &oracle->instance, err);
    bool has_instance = status == TDM_OK;
    if (status == TDM_OK)
        status = oracle->plugin->device->open(oracle->instance, &params, &oracle->device, err);
    if (status == TDM_OK) return TDM_OK;
    if (has_instance && oracle->plugin->deinit != NULL) oracle->plugin->deinit(oracle->instance);
    if (oracle->library != NULL) dlclose(oracle->library);
    *oracle = (vk_oracle){0};
    return status;
}

void vk_oracle_close(vk_oracle *oracle) {
    if (oracle->library == NULL) return;
    oracle->plugin->device->close(oracle->device);
    if (oracle->plugin->deinit != NULL) oracle->plugin->deinit(oracle->instance);
    dlclose(oracle->library);
    *oracle = (vk_oracle){0};
}

/* ---- Memory of a graph ----------------------------------------------------------------------- */

static tdm_tensor_desc desc_of(const tdm_value *v) {
    tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = (tdm_type)v->type, .usage = v->usage};
    memcpy(desc.ne, v->ne, sizeof desc.ne);
    return desc;
}

static tdm_status slot_upload(const tdm_buffer_ops *ops, tdm_buffer *buffer, const tdm_value *v,
                              const void *bytes, uint64_t size, tdm_error *err) {
    const tdm_tensor_desc desc = desc_of(v);
    if (bytes != NULL && v->usage != 0 && TDM_HAS(ops, tensor_upload))
        return ops->tensor_upload(buffer, 0, &desc, bytes, tdm_type_row_size(desc.type, v->ne[0]),
                                  0, tdm_shape_rows(v->ne), 0, v->ne[0], err);
    if (bytes != NULL)
        return ops->upload(buffer, 0, bytes, tdm_tensor_canonical_size(desc.type, v->ne), err);
    void *pattern = malloc((size_t)size + 1);
    if (pattern == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vulkan: no memory");
    memset(pattern, 0xff, (size_t)size);
    tdm_status status = ops->upload(buffer, 0, pattern, size, err);
    free(pattern);
    return status;
}

tdm_status vk_slots_make(const tdm_plugin *plugin, tdm_device *device, const gpu_excerpt *excerpt,
                         tdm_buffer *state, void *const *bytes, vk_slots *slots, tdm_error *err) {
    const tdm_buffer_ops *ops = plugin->buffer;
    tdm_status status = TDM_OK;
    *slots = (vk_slots){.plugin = plugin, .n_slot = excerpt->graph.n_slot, .state = state};
    slots->bindings = calloc((size_t)slots->n_slot + 1, sizeof *slots->bindings);
    if (slots->bindings == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vulkan: no memory");
    for (int32_t i = 0; i < excerpt->graph.n_value && status == TDM_OK; i++) {
        const tdm_value *v = &excerpt->values[i];
        if (v->slot < 0) continue;
        const tdm_tensor_desc desc = desc_of(v);
        tdm_binding *binding = &slots->bindings[v->slot];
        binding->size = tdm_tensor_canonical_size(desc.type, v->ne);
        if (v->kind == TDM_VALUE_STATE) {
            binding->buffer = state;
            continue;
        }
        if (v->usage != 0 && TDM_HAS(ops, tensor_size))
            status = ops->tensor_size(device, &desc, &binding->size, err);
        const tdm_buffer_params params = {
            .struct_size = sizeof params,
            .size = binding->size,
            .purpose = v->kind == TDM_VALUE_WEIGHT ? TDM_BUFFER_WEIGHT : TDM_BUFFER_COMPUTE};
        if (status == TDM_OK) status = ops->alloc(device, &params, &binding->buffer, err);
        if (status == TDM_OK)
            status = slot_upload(ops, binding->buffer, v, bytes[i], binding->size, err);
    }
    if (status == TDM_OK && TDM_HAS(ops, upload_finish))
        status = ops->upload_finish(device, NULL, err);
    return status;
}

void vk_slots_free(vk_slots *slots) {
    for (int32_t i = 0; slots->bindings != NULL && i < slots->n_slot; i++)
        if (slots->bindings[i].buffer != slots->state)
            slots->plugin->buffer->free(slots->bindings[i].buffer);
    free(slots->bindings);
    *slots = (vk_slots){0};
}

tdm_status vk_slots_read(const vk_slots *slots, const gpu_excerpt *excerpt, int32_t value,
                         void *bytes, tdm_error *err) {
    const tdm_value *v = &excerpt->values[value];
    return slots->plugin->buffer->download(slots->bindings[v->slot].buffer, 0, bytes,
                                           tdm_tensor_canonical_size((tdm_type)v->type, v->ne),
                                           err);
}
