/* SPDX-License-Identifier: MIT
 *
 * model_load.c: places weights on devices and allocates their buffers. Uploading: weight_upload.c.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/arch/forward_graph.h"
#include "llm/weight_upload.h"

/* The forward graph of one token over an f16 cache: it has every node that reads a weight.
 * page_size: bytes of a page; 0 = their canonical size, for a group that has not been prepared. */
static tdm_status placing_graph(const llm_model *m, uint64_t page_size, int32_t *weight_value,
                                tdm_graph **graph_out, tdm_error *err) {
    static const llm_step_shape shape = {1, 1, 1, 1};
    llm_cache_shape cache = {.n_page = 1};
    llm_cache_desc_fill(m, &cache.desc);
    cache.devs = m->devs;
    cache.n_dev = m->n_dev;
    return llm_forward_graph(m, &cache, page_size, &shape, weight_value, graph_out, err);
}

/* Prepares every group among the devices for the model. Sizes of weights and pages in a group are
 * known only after that. */
static tdm_status groups_prepare(const llm_model *m, int32_t *weight_value, tdm_error *err) {
    tdm_graph *graph = NULL;
    tdm_status status = TDM_OK;
    for (int32_t d = 0; d < m->n_dev && status == TDM_OK; d++) {
        if (!tdm_open_device_is_group(m->devs[d])) continue;
        if (graph == NULL) status = placing_graph(m, 0, weight_value, &graph, err);
        if (status == TDM_OK) status = tdm_open_device_split_prepare(m->devs[d], graph, err);
    }
    tdm_graph_free(graph);
    return status;
}

void llm_model_place(llm_model *m, const llm_placement *placement) {
    for (int32_t i = 0; i < m->n_weight; i++)
        m->weights[i].pinned_dev =
            placement->weight != NULL
                ? placement->weight(placement->user, llm_weight_base_name(m, &m->weights[i])) + 1
                : 0;
}

/* Copies the places of the lender's weights, and pins them: nodes that read them run there. */
static void lent_find(llm_model *m) {
    for (int32_t i = m->n_own; i < m->n_weight; i++) {
        llm_weight *w = &m->weights[i];
        const llm_weight *lent = &m->lender->weights[m->lender->global[w->role]];
        w->dev = lent->dev;
        w->mem = lent->mem;
        w->off = lent->off;
        w->size = lent->size;
        w->pinned_dev = lent->dev + 1;
    }
}

/* The graph's slots with the devices of pinned weights, for tdm_schedule_place. The caller frees
 * *slots_out with free(). */
static tdm_status pinned_slots_make(const llm_model *m, const tdm_graph *graph,
                                    const int32_t *weight_value, tdm_slot_mem **slots_out,
                                    tdm_error *err) {
    tdm_slot_mem *slots = calloc((size_t)graph->n_slot + 1, sizeof *slots);
    if (slots == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    for (int32_t w = 0; w < m->n_weight; w++) {
        int32_t dev = m->weights[w].pinned_dev;
        if (dev > 0 && dev <= m->n_dev && weight_value[w] >= 0)
            slots[tdm_graph_value(graph, weight_value[w])->slot].mem.dev = m->devs[dev - 1];
    }
    *slots_out = slots;
    return TDM_OK;
}

/* Sets `dev` of each own weight: the device of the first node that reads it. For a pinned weight
 * that is its device, since the schedule runs the nodes that read it there. A weight that no node
 * reads is on device 0. */
static tdm_status weights_place(llm_model *m, tdm_scratch *scratch, tdm_error *err) {
    tdm_graph *graph = NULL;
    int32_t *value = malloc(((size_t)m->n_weight + 1) * sizeof *value);
    int32_t *node_dev = NULL, *slot_dev = NULL;
    tdm_slot_mem *pinned = NULL;
    uint64_t page_size = 0;
    llm_cache_shape cache = {0};
    tdm_status status = value != NULL
                            ? groups_prepare(m, value, err)
                            : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    llm_cache_desc_fill(m, &cache.desc);
    if (status == TDM_OK) status = llm_cache_page_size(m, &cache.desc, &page_size, err);
    if (status == TDM_OK) status = placing_graph(m, page_size, value, &graph, err);
    if (status == TDM_OK) status = pinned_slots_make(m, graph, value, &pinned, err);
    if (status == TDM_OK) {
        node_dev = malloc(((size_t)graph->n_node + 1) * sizeof *node_dev);
        slot_dev = malloc(((size_t)graph->n_slot + 1) * sizeof *slot_dev);
        status = node_dev != NULL && slot_dev != NULL
                     ? tdm_schedule_place(scratch, graph, pinned, node_dev, slot_dev, err)
                     : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    }
    for (int32_t w = 0; w < m->n_own && status == TDM_OK; w++) {
        const int32_t dev = value[w] >= 0 ? slot_dev[tdm_graph_value(graph, value[w])->slot] : -1;
        m->weights[w].dev = dev > 0 ? dev : 0;
    }
    free(value);
    free(pinned);
    free(node_dev);
    free(slot_dev);
    tdm_graph_free(graph);
    return status;
}

tdm_tensor_desc llm_weight_desc(const llm_weight *w) {
    tdm_tensor_desc desc = {.struct_size = sizeof desc,
                            .type = w->file->type,
                            .usage = w->usage,
                            .partition = w->partition,
                            .axis = w->axis};
    memcpy(desc.ne, w->file->ne, sizeof desc.ne);
    return desc;
}

static tdm_status weights_allocate(llm_model *m, llm_store_item *items, tdm_tensor_desc *descs,
                                   tdm_error *err) {
    int32_t bad = -1;
    tdm_error inner = {0};
    for (int32_t i = 0; i < m->n_own; i++) {
        llm_weight *w = &m->weights[i];
        descs[i] = llm_weight_desc(w);
        tdm_status status =
            tdm_open_device_tensor_size(m->devs[w->dev], &descs[i], &w->size, &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "%s: tensor '%s': %s",
                            llm_gguf_name(llm_weight_gguf(m, w)), w->file->name, inner.message);
        items[i] = (llm_store_item){.dev = w->dev, .what = {.size = w->size, .tensor = &descs[i]}};
    }
    tdm_status status = llm_store_place(m->devs, m->n_dev, LLM_WEIGHT_ALIGN, items, m->n_own,
                                        &m->store, &bad, &inner);
    if (status != TDM_OK && bad >= 0)
        return tdm_fail(err, status, "%s: tensor '%s': %s",
                        llm_gguf_name(llm_weight_gguf(m, &m->weights[bad])),
                        m->weights[bad].file->name, inner.message);
    const uint64_t size = llm_store_size(&m->store);
    if (status == TDM_OK)
        status = llm_store_allocate(&m->store, TDM_BUFFER_WEIGHT, items, m->n_own, &inner);
    if (status != TDM_OK)
        return tdm_fail(err, status, "%s: no memory for %.1f MiB of weights: %s",
                        llm_gguf_name(m->gguf), (double)size / 1048576.0, inner.message);
    for (int32_t i = 0; i < m->n_own; i++) {
        m->weights[i].mem = items[i].mem;
        m->weights[i].off = items[i].what.off;
    }
    return TDM_OK;
}

static tdm_status buffers_allocate(llm_model *m, tdm_error *err) {
    llm_store_item *items = calloc((size_t)m->n_own + 1, sizeof *items);
    tdm_tensor_desc *descs = calloc((size_t)m->n_own + 1, sizeof *descs);
    tdm_status status =
        items != NULL && descs != NULL
            ? weights_allocate(m, items, descs, err)
            : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", llm_gguf_name(m->gguf));
    free(items);
    free(descs);
    return status;
}

tdm_status llm_model_load(llm_model *m, tdm_runtime *rt, tdm_open_device *const *devs,
                          int32_t n_dev, llm_progress_fn progress, void *progress_context,
                          tdm_error *err) {
    if (m->n_dev > 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: the model is loaded already", m->path);
    bool is_joined = m->lender == NULL || m->lender->n_dev == n_dev;
    for (int32_t d = 0; d < n_dev && m->lender != NULL && is_joined; d++)
        is_joined = m->lender->devs[d] == devs[d];
    if (!is_joined)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: the model is not loaded on the devices of its layer that drafts",
                        m->path);
    tdm_scratch *scratch = NULL;
    tdm_status status = tdm_scratch_create(rt, devs, n_dev, &scratch, err);
    if (status != TDM_OK) return status;
    if (m->lender != NULL) lent_find(m);
    m->rt = rt;
    m->n_dev = n_dev;
    for (int32_t d = 0; d < n_dev; d++) m->devs[d] = devs[d];
    status = weights_place(m, scratch, err);
    if (status == TDM_OK) status = buffers_allocate(m, err);
    if (status == TDM_OK) status = llm_weights_upload(m, progress, progress_context, err);
    tdm_scratch_destroy(scratch);
    if (status != TDM_OK) {
        llm_store_free(&m->store);
        m->n_dev = 0;
    }
    return status;
}
