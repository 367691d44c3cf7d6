/* SPDX-License-Identifier: MIT
 *
 * forward_graph.c: the descriptions of the states of layers, and the forward graph of a model,
 * loaded or not, for placing its weights and for reports. The graphs of a context: context_plan.c.
 */
#include "llm/arch/forward_graph.h"

#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/arch/declare.h"

void llm_cache_desc_fill(const llm_model *m, tdm_kv_desc *desc) {
    *desc = (tdm_kv_desc){
        .struct_size = sizeof *desc,
        .type_k = TDM_TYPE_F16,
        .type_v = TDM_TYPE_F16,
        .head_dim_k = m->hparams.head_dim_k,
        .head_dim_v = m->hparams.head_dim_v,
        .n_head_kv = m->hparams.n_head_kv,
        .page_len = TDM_KV_PAGE_LEN_DEFAULT,
        .rope_offset = m->hparams.rope.rope_offset,
        .n_rot = m->hparams.rope.n_rot,
        .flags = m->arch->mixer == LLM_MIXER_LATENT || m->arch->mixer == LLM_MIXER_COMPRESSED
                     ? TDM_KV_V_FROM_K
                     : 0,
    };
    if (m->hparams.n_index_head > 0) desc->flags |= TDM_KV_SPARSE;
    if (m->hparams.n_distance_bucket > 0) desc->flags |= TDM_KV_BIASED;
}

tdm_status llm_cache_page_size(const llm_model *m, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err) {
    tdm_status status = TDM_INTERNAL;
    for (int32_t d = 0; d < m->n_dev && status != TDM_OK; d++)
        status = tdm_open_device_kv_page_size(m->devs[d], desc, size_out, err);
    return status;
}

int32_t llm_graph_weight(llm_graph_builder *g, int32_t weight) {
    if (weight < 0) return -1;
    if (g->weight_value[weight] < 0) {
        const llm_weight *w = &g->model->weights[weight];
        int32_t value = tdm_build_weight(g->b, w->file->name, w->file->type, w->file->ne, w->usage);
        if (w->partition.id != 0)
            tdm_build_set_partition(g->b, value, tdm_build_partition(g->b, &w->partition), w->axis);
        g->weight_value[weight] = value;
    }
    return g->weight_value[weight];
}

tdm_kv_desc llm_cache_layer_desc(const llm_model *m, const llm_cache_shape *cache, int32_t layer) {
    tdm_kv_desc own = cache->desc;
    if (cache->layers != NULL) llm_layer_types_apply(&cache->layers[layer], &own);
    own.n_rot = m->specs[layer].rope.n_rot;
    own.rope_offset = m->specs[layer].rope.rope_offset;
    own.n_head_kv = m->specs[layer].n_head_kv;
    own.head_dim_k = m->specs[layer].k_len;
    own.head_dim_v = m->specs[layer].v_len;
    /* The index of compressed attention selects rows of runs, not rows of the window. */
    if (m->specs[layer].mixer == LLM_MIXER_COMPRESSED) own.flags &= ~(uint32_t)TDM_KV_SPARSE;
    return own;
}

int32_t llm_cache_class(const llm_model *m, const llm_cache_shape *cache, int32_t layer) {
    const llm_layer_spec *s = &m->specs[layer];
    if (layer < m->hparams.n_layer_encoder) return LLM_CLASS_ENCODED;
    return cache->n_page_window > 0 && llm_layer_has_window(s) ? LLM_CLASS_WINDOW : LLM_CLASS_ALL;
}

int64_t llm_cache_page_count(const llm_model *m, const llm_cache_shape *cache, int32_t layer) {
    return llm_cache_class(m, cache, layer) == LLM_CLASS_WINDOW ? cache->n_page_window
                                                                : cache->n_page;
}

int32_t llm_cache_class_count(const llm_model *m, const llm_cache_shape *cache) {
    if (m->hparams.n_layer_encoder > 0) return LLM_CLASS_ENCODED + 1;
    return cache->n_page_window > 0 ? LLM_CLASS_WINDOW + 1 : 1;
}

int64_t llm_state_count(const llm_model *m, const llm_cache_shape *cache, llm_state_kind kind,
                        int32_t layer) {
    if (kind == LLM_STATE_ROWS) return llm_cache_page_count(m, cache, layer);
    return llm_state_has_rows(kind) ? cache->n_page : cache->n_slot;
}

tdm_partition llm_cache_partition(const llm_model *model, int32_t layer) {
    return llm_cache_rows_partition(model, layer);
}

int32_t llm_graph_state(llm_graph_builder *g, int32_t layer) {
    if (g->state_value[layer] < 0) {
        char name[32];
        tdm_kv_desc desc = llm_cache_layer_desc(g->model, g->cache, layer);
        desc.cls = llm_cache_class(g->model, g->cache, layer);
        snprintf(name, sizeof name, "blk.%d.kv", layer);
        g->state_value[layer] =
            tdm_build_state(g->b, name, &desc, g->cache->page_size[layer],
                            llm_cache_page_count(g->model, g->cache, layer), &g->state_kv[layer]);
        tdm_partition partition = llm_cache_partition(g->model, layer);
        if (partition.id != 0)
            tdm_build_set_partition(g->b, g->state_value[layer],
                                    tdm_build_partition(g->b, &partition), 0);
    }
    return g->state_value[layer];
}

/* recurrent_size for the sums of the run that is being pooled: for its row, or for the index. */
static bool pool_size(const llm_model *m, bool is_index, int32_t layer, int32_t *n_unit,
                      int64_t *len) {
    const llm_layer_spec *s = &m->specs[layer];
    *n_unit = 1;
    *len = 3 * (int64_t)llm_pool_parts(s) * (is_index ? m->hparams.index_len : s->k_len);
    return is_index ? s->index == LLM_INDEX_OWN && s->index_run > 0
                    : s->recurrent.kind == LLM_MIXER_COMPRESSED;
}

/* recurrent_size for the inputs of a mixer's convolution, or for its matrices. */
static bool mixer_state_size(const llm_model *m, bool is_conv, int32_t layer, int32_t *n_unit,
                             int64_t *len) {
    const llm_recurrent_spec *r = &m->specs[layer].recurrent;
    const int64_t n_matrix = (int64_t)r->n_head_v * r->k_len * r->v_len;
    int64_t n_ch = (int64_t)r->n_head_v * r->v_len;
    const tdm_partition p = llm_recurrent_partition(m, layer);
    *n_unit = p.id != 0 ? p.n_unit : 1;
    switch (r->kind) {
    case LLM_MIXER_SHORT_CONV:
        if (!is_conv) return false;
        n_ch = m->hparams.n_embd;
        break;
    case LLM_MIXER_LIGHTNING:
        if (is_conv) return false;
        break;
    case LLM_MIXER_RWKV:
    case LLM_MIXER_RWKV7:
        n_ch = m->hparams.n_embd;
        *n_unit = is_conv ? 1 : r->n_head_v;
        break;
    case LLM_MIXER_MAMBA:
    case LLM_MIXER_MAMBA_HEADS: break;
    case LLM_MIXER_MAMBA2:
        n_ch += 2 * (int64_t)r->n_head_k * r->k_len;
        if (!is_conv) *n_unit = r->n_head_v;
        break;
    default:
        n_ch += 2 * (int64_t)r->n_head_k * r->k_len;
        if (!is_conv) *n_unit = r->is_tiled ? r->n_head_k : r->n_head_v;
    }
    *len = (is_conv ? n_ch * (r->n_conv - 1) : n_matrix) / *n_unit;
    return true;
}

/* Units and floats of a unit of a recurrent state; false where the layer has none of the kind. */
static bool recurrent_size(const llm_model *m, llm_state_kind kind, int32_t layer, int32_t *n_unit,
                           int64_t *len) {
    const llm_recurrent_spec *r = &m->specs[layer].recurrent;
    const bool is_recurrent = r->kind != LLM_MIXER_ATTENTION && r->kind != LLM_MIXER_COMPRESSED;
    const bool is_shifted = is_recurrent && m->arch->ffn == LLM_FFN_SHIFTED;
    switch (kind) {
    case LLM_RECURRENT_NGRAM:
        *n_unit = m->hparams.n_stream;
        *len = (int64_t)(llm_ngram_span(&m->hparams.ngram) - 1) * m->hparams.n_embd;
        return m->specs[layer].has_ngram;
    case LLM_RECURRENT_POOL: return pool_size(m, false, layer, n_unit, len);
    case LLM_RECURRENT_INDEX_POOL: return pool_size(m, true, layer, n_unit, len);
    case LLM_RECURRENT_SHIFT:
        *n_unit = 1;
        *len = (int64_t)m->hparams.n_embd * (r->n_conv - 1);
        return is_shifted;
    case LLM_RECURRENT_DELAY:
        *n_unit = r->n_head_v;
        *len = 3 * (int64_t)r->k_len * (r->n_conv - 1);
        return is_shifted && r->kind == LLM_MIXER_RWKV;
    default:
        return is_recurrent &&
               mixer_state_size(m, kind == LLM_RECURRENT_CONV, layer, n_unit, len);
    }
}

tdm_rope_params llm_index_rope(const llm_model *m, int32_t layer) {
    tdm_rope_params rope = m->specs[layer].rope;
    rope.rope_offset = m->hparams.index_rope_offset;
    rope.mode = (int32_t)m->hparams.index_rope;
    return rope;
}

/* Every member of a group has the whole index. */
static bool index_desc(const llm_model *m, const llm_cache_shape *cache, int32_t layer,
                       tdm_kv_desc *desc_out, tdm_partition *partition_out) {
    if ((cache->desc.flags & TDM_KV_SPARSE) == 0 || m->specs[layer].index != LLM_INDEX_OWN)
        return false;
    *desc_out = cache->desc;
    if (cache->layers != NULL) llm_layer_types_apply(&cache->layers[layer], desc_out);
    desc_out->type_v = desc_out->type_k;
    desc_out->flags |= TDM_KV_V_FROM_K;
    desc_out->flags &= ~(uint32_t)TDM_KV_ROTATE_V;
    if ((desc_out->flags & TDM_KV_ROTATE_K) != 0) desc_out->flags |= TDM_KV_ROTATE_V;
    desc_out->head_dim_k = desc_out->head_dim_v = m->hparams.index_len;
    desc_out->n_head_kv = 1;
    desc_out->rope_offset = m->hparams.index_rope_offset;
    desc_out->n_rot = m->specs[layer].rope.n_rot;
    if (m->specs[layer].index_run > 0) {
        desc_out->flags |= TDM_KV_STRIDED;
        desc_out->stride = m->specs[layer].index_run;
    }
    *partition_out = (tdm_partition){0};
    return true;
}

/* Every member of a group has all rows of runs. */
static bool runs_desc(const llm_model *m, const llm_cache_shape *cache, int32_t layer,
                      tdm_kv_desc *desc_out, tdm_partition *partition_out) {
    const llm_layer_spec *s = &m->specs[layer];
    if (s->run_len == 0) return false;
    *desc_out = llm_cache_layer_desc(m, cache, layer);
    desc_out->flags |= TDM_KV_STRIDED;
    if (s->index == LLM_INDEX_OWN) desc_out->flags |= cache->desc.flags & TDM_KV_SPARSE;
    desc_out->stride = s->run_len;
    *partition_out = (tdm_partition){0};
    return true;
}

/* Attention over encoded tokens has no bias. Its heads are cut as those of the layer's own. */
static bool cross_desc(const llm_model *m, const llm_cache_shape *cache, int32_t layer,
                       tdm_kv_desc *desc_out, tdm_partition *partition_out) {
    if (m->hparams.n_layer_encoder == 0 || layer < m->hparams.n_layer_encoder) return false;
    *desc_out = llm_cache_layer_desc(m, cache, layer);
    desc_out->flags &= ~(uint32_t)TDM_KV_BIASED;
    desc_out->cls = LLM_CLASS_ENCODED;
    *partition_out = llm_cache_partition(m, layer);
    return true;
}

bool llm_state_desc(const llm_model *m, const llm_cache_shape *cache, llm_state_kind kind,
                    int32_t layer, tdm_kv_desc *desc_out, tdm_partition *partition_out) {
    int32_t n_unit = 0;
    int64_t len = 0;
    if (kind == LLM_STATE_ROWS) {
        if (!llm_layer_has_cache(&m->specs[layer])) return false;
        *desc_out = llm_cache_layer_desc(m, cache, layer);
        *partition_out = llm_cache_partition(m, layer);
        return true;
    }
    if (kind == LLM_STATE_INDEX) return index_desc(m, cache, layer, desc_out, partition_out);
    if (kind == LLM_STATE_RUNS) return runs_desc(m, cache, layer, desc_out, partition_out);
    if (kind == LLM_STATE_CROSS) return cross_desc(m, cache, layer, desc_out, partition_out);
    if (kind == LLM_RECURRENT_INDEX_POOL && (cache->desc.flags & TDM_KV_SPARSE) == 0) return false;
    if (!recurrent_size(m, kind, layer, &n_unit, &len)) return false;
    *desc_out = (tdm_kv_desc){
        .struct_size = sizeof *desc_out,
        .type_k = TDM_TYPE_F32,
        .type_v = TDM_TYPE_F32,
        .head_dim_k = (int32_t)(len < INT32_MAX ? len : INT32_MAX),
        .head_dim_v = (int32_t)(len < INT32_MAX ? len : INT32_MAX),
        .n_head_kv = n_unit,
        .page_len = 1,
        .rope_offset = kind == LLM_RECURRENT_MATRIX ? (int32_t)m->specs[layer].recurrent.k_len : 0,
        .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT,
    };
    *partition_out = llm_recurrent_partition(m, layer);
    const llm_mixer mixer = m->specs[layer].recurrent.kind;
    if (kind == LLM_RECURRENT_MATRIX && mixer == LLM_MIXER_RWKV7) desc_out->flags |= TDM_KV_ERASED;
    const bool is_pool = kind == LLM_RECURRENT_POOL || kind == LLM_RECURRENT_INDEX_POOL;
    if (is_pool) desc_out->flags |= TDM_KV_POOLED;
    /* Not cut: every member reads all of the token before, of the streams, and of pooled runs. */
    if (kind == LLM_RECURRENT_NGRAM || kind == LLM_RECURRENT_SHIFT || is_pool ||
        (kind == LLM_RECURRENT_CONV && (mixer == LLM_MIXER_RWKV || mixer == LLM_MIXER_RWKV7)))
        *partition_out = (tdm_partition){0};
    return true;
}

bool llm_model_is_recurrent(const llm_model *m) {
    for (int32_t l = 0; l < m->hparams.n_layer; l++)
        if (m->specs[l].recurrent.kind != LLM_MIXER_ATTENTION || m->specs[l].index_run > 0)
            return true;
    return false;
}

/* The state of a kind other than LLM_STATE_ROWS, created on first use. */
static int32_t other_state(llm_graph_builder *g, int32_t layer, llm_state_kind kind,
                           int32_t *kv_out) {
    static const char *const names[LLM_STATE_KINDS] = {"kv",    "index",  "runs",      "cross",
                                                       "conv",  "matrix", "ngram",     "shift",
                                                       "delay", "pool",   "index_pool"};
    const int32_t at = (int32_t)kind * g->model->hparams.n_layer + layer;
    tdm_kv_desc desc;
    tdm_partition partition;
    if (g->state_value[at] < 0 &&
        llm_state_desc(g->model, g->cache, kind, layer, &desc, &partition)) {
        char name[32];
        snprintf(name, sizeof name, "blk.%d.%s", layer, names[kind]);
        g->state_value[at] =
            tdm_build_state(g->b, name, &desc, g->cache->page_size[at],
                            llm_state_count(g->model, g->cache, kind, layer), &g->state_kv[at]);
        if (partition.id != 0)
            tdm_build_set_partition(g->b, g->state_value[at], tdm_build_partition(g->b, &partition),
                                    0);
    }
    *kv_out = g->state_kv[at];
    return g->state_value[at];
}

int32_t llm_graph_recurrent_state(llm_graph_builder *g, int32_t layer, llm_state_kind kind,
                                  int32_t *kv_out) {
    return other_state(g, layer, kind, kv_out);
}

int32_t llm_graph_runs_state(llm_graph_builder *g, int32_t layer, int32_t *kv_out) {
    return other_state(g, layer, LLM_STATE_RUNS, kv_out);
}

int32_t llm_graph_index_state(llm_graph_builder *g, int32_t layer, int32_t *kv_out) {
    return other_state(g, layer, LLM_STATE_INDEX, kv_out);
}

int32_t llm_graph_cross_state(llm_graph_builder *g, int32_t layer, int32_t *kv_out) {
    return other_state(g, layer, LLM_STATE_CROSS, kv_out);
}

/* Bytes of a page's rows in canonical form; pages of a device may have another size. */
static uint64_t canonical_page_size(const tdm_kv_desc *d) {
    uint64_t k = tdm_type_row_size(d->type_k, tdm_kv_padded(d->type_k, d->head_dim_k));
    uint64_t v = tdm_type_row_size(d->type_v, tdm_kv_padded(d->type_v, d->head_dim_v));
    if ((d->flags & TDM_KV_V_FROM_K) != 0) v = 0;
    return (k + v) * (uint64_t)d->n_head_kv * (uint64_t)d->page_len;
}

/* Bytes of a slot on the first device that keeps it. */
static uint64_t slot_size(const llm_cache_shape *cache, const tdm_kv_desc *desc) {
    uint64_t size = 0;
    for (int32_t d = 0; d < cache->n_dev; d++)
        if (tdm_open_device_kv_page_size(cache->devs[d], desc, &size, NULL) == TDM_OK) return size;
    return canonical_page_size(desc);
}

/* Bytes of a page of a layer's cache, where those of most layers have page_size; 0 = not known. */
static uint64_t rows_page_size(const llm_model *m, const llm_cache_shape *cache, uint64_t page_size,
                               int32_t layer) {
    if (!llm_layer_has_cache(&m->specs[layer])) return page_size;
    const tdm_kv_desc desc = llm_cache_layer_desc(m, cache, layer);
    if (page_size == 0) return canonical_page_size(&desc);
    return llm_cache_is_like(&desc, &cache->desc) ? page_size : slot_size(cache, &desc);
}

tdm_status llm_forward_graph(const llm_model *m, const llm_cache_shape *cache, uint64_t page_size,
                             const llm_step_shape *shape, int32_t *weight_value,
                             tdm_graph **graph_out, tdm_error *err) {
    size_t n_layer = (size_t)m->hparams.n_layer, n_weight = (size_t)m->n_weight;
    size_t n_state = LLM_STATE_KINDS * n_layer;
    uint64_t *sizes = calloc(n_state, sizeof *sizes);
    int32_t *maps = malloc((n_weight + n_state * 2) * sizeof *maps);
    tdm_builder *b = NULL;
    llm_cache_shape filled = *cache;
    filled.page_size = sizes;
    tdm_status status = sizes != NULL && maps != NULL
                            ? tdm_builder_create(&b, err)
                            : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    if (status == TDM_OK) {
        for (size_t i = 0; i < n_layer; i++)
            sizes[i] = rows_page_size(m, cache, page_size, (int32_t)i);
        for (size_t i = n_layer; i < n_state; i++) {
            tdm_kv_desc desc;
            tdm_partition partition;
            if (llm_state_desc(m, cache, (llm_state_kind)(i / n_layer), (int32_t)(i % n_layer),
                               &desc, &partition))
                sizes[i] = slot_size(cache, &desc);
        }
        if (filled.n_slot == 0) filled.n_slot = 1;
        memset(maps, 0xff, (n_weight + n_state * 2) * sizeof *maps);
        llm_graph_builder g = {
            .b = b,
            .model = m,
            .cache = &filled,
            .weight_value = maps,
            .state_value = maps + n_weight,
            .state_kv = maps + n_weight + n_state,
        };
        tdm_step_caps caps = {shape->n_tok,
                              shape->n_seq,
                              shape->n_out,
                              shape->n_entry,
                              0,
                              llm_cache_class_count(m, cache),
                              llm_model_is_recurrent(m)};
        llm_step_shape whole = *shape;
        whole.adapters = llm_adapters_all(m);
        g.step = tdm_build_step(b, &caps);
        llm_layers_maker.build(&g, &whole);
        for (int32_t i = 0; i < m->n_own && shape->has_all_weights; i++) llm_graph_weight(&g, i);
        status = tdm_builder_finish(b, graph_out, err);
        if (weight_value != NULL) memcpy(weight_value, maps, n_weight * sizeof *maps);
    }
    tdm_builder_destroy(b);
    free(sizes);
    free(maps);
    return status;
}
