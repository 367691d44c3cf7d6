/* SPDX-License-Identifier: MIT
 *
 * model_load.c: places weights on devices and uploads them. Weights go up a few megabytes at a
 * time and the file's pages are dropped behind them, so that loading needs the weights as kept and
 * little more.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/arch.h"

/* Bytes of the file converted at a time. */
#define CHUNK_SIZE ((size_t)8 << 20)
/* Distance of weights in a buffer: a cache line, and what every device asks for at most so far. */
#define WEIGHT_ALIGN ((uint64_t)256)

/* The forward graph of one token over an f16 cache: every node that reads a weight is in it. */
static tdm_status placing_graph(const llm_model *m, tdm_graph **graph_out, int32_t *weight_value,
                                tdm_error *err) {
    size_t n_layer = (size_t)m->hparams.n_layer;
    uint64_t *page_size = calloc(n_layer, sizeof *page_size);
    int32_t *state = malloc(n_layer * 2 * sizeof *state);
    tdm_builder *b = NULL;
    llm_cache_shape cache = {.n_page = 1, .page_size = page_size};
    cache.desc = (tdm_kv_desc){
        .struct_size = sizeof cache.desc,
        .type_k = TDM_TYPE_F16,
        .type_v = TDM_TYPE_F16,
        .head_dim_k = m->hparams.head_dim_k,
        .head_dim_v = m->hparams.head_dim_v,
        .n_head_kv = m->hparams.n_head_kv,
        .page_len = TDM_KV_PAGE_LEN_DEFAULT,
        .n_rot = m->hparams.rope.n_rot,
    };
    tdm_status status =
        page_size != NULL && state != NULL
            ? llm_cache_page_size(m->devs, m->n_dev, &cache.desc, &page_size[0], err)
            : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    if (status == TDM_OK) status = tdm_builder_create(&b, err);
    if (status == TDM_OK) {
        for (size_t i = 1; i < n_layer; i++) page_size[i] = page_size[0];
        memset(state, 0xff, n_layer * 2 * sizeof *state);
        memset(weight_value, 0xff, (size_t)m->n_weight * sizeof *weight_value);
        llm_graph_builder g = {b, m, &cache, weight_value, state, state + n_layer, -1};
        llm_step_shape shape = {1, 1, 1, 1};
        tdm_step_caps caps = {1, 1, 1, 1, 0, 1};
        g.step = tdm_build_step(b, &caps);
        m->arch->build(&g, &shape);
        status = tdm_builder_finish(b, graph_out, err);
    }
    tdm_builder_destroy(b);
    free(page_size);
    free(state);
    return status;
}

/* Each weight goes where the first node that reads it runs. */
static tdm_status weights_place(llm_model *m, tdm_scratch *scratch, tdm_error *err) {
    tdm_graph *graph = NULL;
    int32_t *value = malloc(((size_t)m->n_weight + 1) * sizeof *value);
    int32_t *node_dev = NULL;
    tdm_status status = value != NULL
                            ? placing_graph(m, &graph, value, err)
                            : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    if (status == TDM_OK) {
        node_dev = malloc(((size_t)graph->n_node + 1) * sizeof *node_dev);
        status = node_dev != NULL
                     ? tdm_schedule_place(scratch, graph, NULL, node_dev, err)
                     : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    }
    for (int32_t w = 0; w < m->n_weight && status == TDM_OK; w++) {
        m->weights[w].dev = 0;
        for (int32_t i = graph->n_node - 1; i >= 0; i--) {
            const tdm_node *node = tdm_graph_node(graph, i);
            for (int32_t s = 0; s < node->n_src; s++)
                if (value[w] >= 0 && node->src[s] == value[w]) m->weights[w].dev = node_dev[i];
        }
    }
    free(value);
    free(node_dev);
    tdm_graph_free(graph);
    return status;
}

static tdm_tensor_desc weight_desc(const llm_weight *w) {
    tdm_tensor_desc desc = {sizeof desc, w->file->type, w->usage, {0}};
    memcpy(desc.ne, w->file->ne, sizeof desc.ne);
    return desc;
}

static tdm_status buffers_allocate(llm_model *m, tdm_error *err) {
    uint64_t size[TDM_MAX_SCHEDULE_DEVICES] = {0};
    for (int32_t i = 0; i < m->n_weight; i++) {
        llm_weight *w = &m->weights[i];
        tdm_tensor_desc desc = weight_desc(w);
        tdm_error inner = {0};
        tdm_status status = tdm_dev_tensor_size(m->devs[w->dev], &desc, &w->size, &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "%s: tensor '%s': %s", llm_gguf_name(m->gguf),
                            w->file->name, inner.message);
        w->off = size[w->dev];
        size[w->dev] += (w->size + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    }
    for (int32_t d = 0; d < m->n_dev; d++) {
        tdm_error inner = {0};
        tdm_status status = size[d] == 0 ? TDM_OK
                                         : tdm_mem_alloc(m->devs[d], size[d], TDM_BUFFER_WEIGHT,
                                                         &m->mem[d], &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "%s: no memory for %.1f MiB of weights: %s",
                            llm_gguf_name(m->gguf), (double)size[d] / 1048576.0, inner.message);
    }
    return TDM_OK;
}

typedef struct upload_progress {
    llm_progress_fn call;
    void *context;
    uint64_t done, total;
} upload_progress;

static tdm_status weight_upload(const llm_model *m, const llm_weight *w, upload_progress *progress,
                                tdm_error *err) {
    tdm_tensor_desc desc = weight_desc(w);
    const uint8_t *data = w->file->data;
    size_t pitch = tdm_type_row_size(desc.type, desc.ne[0]);
    int64_t n_row = tdm_shape_rows(desc.ne);
    int64_t step = pitch > 0 ? (int64_t)(CHUNK_SIZE / pitch) : n_row;
    /* Whole groups of rows, whatever a device interleaves; at least one. */
    step = step >= 64 ? step / 64 * 64 : 64;
    for (int64_t row = 0; row < n_row; row += step) {
        int64_t n = n_row - row < step ? n_row - row : step;
        size_t end = (size_t)(row + n) * pitch;
        llm_gguf_prefetch(m->gguf, w->file, end, end + CHUNK_SIZE);
        tdm_error inner = {0};
        tdm_status status =
            tdm_mem_tensor_upload(&m->mem[w->dev], w->off, &desc, data + (size_t)row * pitch, pitch,
                                  row, n, 0, desc.ne[0], &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "%s: tensor '%s': %s", llm_gguf_name(m->gguf),
                            w->file->name, inner.message);
        llm_gguf_release(m->gguf, w->file, 0, end);
        progress->done += (uint64_t)n * pitch;
        if (progress->call != NULL &&
            !progress->call(progress->context, progress->done, progress->total))
            return tdm_fail(err, TDM_CANCELLED, "%s: loading was cancelled", m->path);
    }
    /* The first fault of a tensor maps the end of its neighbour again. */
    llm_gguf_release_all(m->gguf);
    return TDM_OK;
}

tdm_status llm_model_load(llm_model *m, tdm_runtime *rt, tdm_dev *const *devs, int32_t n_dev,
                          llm_progress_fn progress, void *progress_context, tdm_error *err) {
    if (m->n_dev > 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: is loaded already", m->path);
    tdm_scratch *scratch = NULL;
    tdm_status status = tdm_scratch_create(rt, devs, n_dev, &scratch, err);
    if (status != TDM_OK) return status;
    m->rt = rt;
    m->n_dev = n_dev;
    for (int32_t d = 0; d < n_dev; d++) m->devs[d] = devs[d];
    status = weights_place(m, scratch, err);
    if (status == TDM_OK) status = buffers_allocate(m, err);
    upload_progress up = {progress, progress_context, 0, m->file_size};
    for (int32_t i = 0; i < m->n_weight && status == TDM_OK; i++)
        status = weight_upload(m, &m->weights[i], &up, err);
    tdm_scratch_destroy(scratch);
    if (status != TDM_OK) {
        for (int32_t d = 0; d < n_dev; d++) tdm_mem_free(&m->mem[d]);
        m->n_dev = 0;
    }
    return status;
}
