/* SPDX-License-Identifier: MIT
 *
 * context_plan.c: the plans of a context: builds a graph once for each kind and shape and schedules
 * it on the devices. Also decides on which device the cache of each layer is.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/op_state.h"
#include "llm/arch/arch.h"
#include "llm/block/block.h"
#include "llm/context_internal.h"

/* Up to 8 tokens the number is exact, because one token more would cost time. Larger numbers are
 * rounded up to a multiple of 8, above 64 to a multiple of 32. */
int32_t llm_plan_bucket(int32_t n, int32_t max) {
    int32_t unit = n <= 8 ? 1 : n <= 64 ? 8 : 32;
    int32_t bucket = (n + unit - 1) / unit * unit;
    return bucket < max ? bucket : max;
}

/* Allocates the arrays of an llm_graph_builder in one block, *maps_out, which the caller frees. */
static tdm_status maps_create(const llm_context *ctx, llm_graph_builder *g, int32_t **maps_out,
                              tdm_error *err) {
    size_t n_weight = (size_t)ctx->model->n_weight, n_state = (size_t)ctx->n_state;
    int32_t *maps = malloc((n_weight + 2 * n_state) * sizeof *maps);
    if (maps == NULL) return llm_context_no_memory(err);
    memset(maps, 0xff, (n_weight + 2 * n_state) * sizeof *maps);
    g->weight_value = maps;
    g->state_value = maps + n_weight;
    g->state_kv = g->state_value + n_state;
    *maps_out = maps;
    return TDM_OK;
}

/* The nodes that export or import one slot of each recurrent state, as one row. */
static void build_slots(llm_graph_builder *g, llm_plan *plan) {
    const int32_t n_layer = g->model->hparams.n_layer;
    for (int32_t i = 0; i < LLM_SLOT_KINDS * n_layer; i++) {
        const llm_state_kind kind = (llm_state_kind)(LLM_RECURRENT_CONV + i % LLM_SLOT_KINDS);
        const int32_t layer = i / LLM_SLOT_KINDS;
        tdm_kv_desc desc;
        tdm_partition partition;
        int32_t kv;
        plan->rows[i] = -1;
        if (!llm_state_desc(g->model, g->cache, kind, layer, &desc, &partition)) continue;
        int32_t state = llm_graph_recurrent_state(g, layer, kind, &kv);
        if (plan->kind == LLM_PLAN_SLOT_EXPORT) {
            plan->rows[i] = tdm_build_kv_export(g->b, g->step, state, kv, 1, NULL);
            tdm_build_output(g->b, plan->rows[i], "export.slot");
        } else {
            const int64_t ne[] = {desc.head_dim_k, desc.n_head_kv, 1, 1};
            plan->rows[i] = tdm_build_input(g->b, "import.slot", TDM_TYPE_F32, ne);
            tdm_build_kv_import(g->b, plan->rows[i], -1, g->step, state, kv);
        }
    }
}

/* The node of a maintenance plan for one state. EXPORT and IMPORT move up to n_row rows and set
 * rows[0] and rows[1] to the values of K and V; other kinds do not use `rows`. */
static void build_rows(llm_graph_builder *g, llm_plan_kind kind, const tdm_kv_desc *d,
                       int32_t state, int32_t kv, const tdm_rope_params *rope, int32_t layer,
                       int32_t n_row, int32_t *rows) {
    if (kind == LLM_PLAN_SHIFT) {
        if (rope->n_rot > 0)
            tdm_build_kv_shift(g->b, g->step, state, llm_build_rope_factors(g, layer), kv, rope);
    } else if (kind == LLM_PLAN_COPY) {
        tdm_build_kv_copy(g->b, g->step, state, kv);
    } else if (kind == LLM_PLAN_EXPORT) {
        rows[0] = tdm_build_kv_export(g->b, g->step, state, kv, n_row, &rows[1]);
        tdm_build_output(g->b, rows[0], "export.k");
        if (rows[1] >= 0) tdm_build_output(g->b, rows[1], "export.v");
    } else {
        const int64_t k[] = {tdm_kv_padded(d->type_k, d->head_dim_k), d->n_head_kv, n_row, 1};
        const int64_t v[] = {tdm_kv_padded(d->type_v, d->head_dim_v), d->n_head_kv, n_row, 1};
        rows[0] = tdm_build_input(g->b, "import.k", d->type_k, k);
        rows[1] = (d->flags & TDM_KV_V_FROM_K) != 0
                      ? -1
                      : tdm_build_input(g->b, "import.v", d->type_v, v);
        tdm_build_kv_import(g->b, rows[0], rows[1], g->step, state, kv);
    }
}

/* The nodes of a plan that is not a step: for each state of the plan's class of caches. */
static void build_maintenance(llm_graph_builder *g, llm_plan *plan, int32_t n_row) {
    if (plan->kind >= LLM_PLAN_SLOT_EXPORT) {
        build_slots(g, plan);
        return;
    }
    for (int32_t l = 0; l < g->model->hparams.n_layer; l++) {
        int32_t *rows = plan->rows != NULL ? plan->rows + LLM_ROW_KINDS * l : NULL, kv;
        tdm_kv_desc desc;
        tdm_partition partition;
        for (int32_t i = 0; i < LLM_ROW_KINDS && rows != NULL; i++) rows[i] = -1;
        if (llm_state_desc(g->model, g->cache, LLM_STATE_ROWS, l, &desc, &partition) &&
            llm_cache_class(g->model, g->cache, l) == plan->shape.cls) {
            int32_t state = llm_graph_state(g, l);
            build_rows(g, plan->kind, &desc, state, g->state_kv[l], &g->model->specs[l].rope, l,
                       n_row, rows);
        }
        if (llm_state_desc(g->model, g->cache, LLM_STATE_INDEX, l, &desc, &partition) &&
            plan->shape.cls == LLM_CLASS_ALL) {
            const tdm_rope_params rope = llm_index_rope(g->model, l);
            int32_t state = llm_graph_index_state(g, l, &kv), keys[2] = {-1, -1};
            build_rows(g, plan->kind, &desc, state, kv, &rope, l, n_row, keys);
            if (rows != NULL) rows[LLM_ROW_INDEX] = keys[0];
        }
        if (llm_state_desc(g->model, g->cache, LLM_STATE_RUNS, l, &desc, &partition) &&
            plan->shape.cls == LLM_CLASS_ALL) {
            const tdm_rope_params none = {0}; /* models with such rows are not shifted */
            int32_t state = llm_graph_runs_state(g, l, &kv), keys[2] = {-1, -1};
            build_rows(g, plan->kind, &desc, state, kv, &none, l, n_row, keys);
            if (rows != NULL) rows[LLM_ROW_RUNS] = keys[0];
        }
        if (plan->kind == LLM_PLAN_COPY && plan->shape.cls == LLM_CLASS_ENCODED &&
            llm_state_desc(g->model, g->cache, LLM_STATE_CROSS, l, &desc, &partition)) {
            int32_t state = llm_graph_cross_state(g, l, &kv);
            tdm_build_kv_copy(g->b, g->step, state, kv);
        }
    }
}

static tdm_status graph_build(const llm_context *ctx, llm_graph_builder *g, llm_plan *plan,
                              tdm_graph **graph_out, tdm_error *err) {
    const llm_step_shape *s = &plan->shape;
    const int32_t n_class = llm_cache_class_count(ctx->model, &ctx->cache);
    const int32_t chunk = llm_context_chunk(ctx);
    tdm_step_caps caps = {
        s->n_tok, s->n_seq, s->n_out, s->n_entry, 0, n_class, ctx->cache.n_slot > 0};
    if (plan->kind != LLM_PLAN_FORWARD) caps = (tdm_step_caps){0, 0, 0, 0, chunk, n_class};
    tdm_status status = tdm_step_layout(&caps, &plan->header, err);
    if (status == TDM_OK) status = tdm_builder_create(&g->b, err);
    if (status != TDM_OK) return status;
    g->model = ctx->model;
    g->cache = &ctx->cache;
    g->has_single_experts = ctx->product != NULL;
    g->step = tdm_build_step(g->b, &caps);
    plan->step = g->step;
    plan->logits = -1;
    plan->candidates = plan->hidden = plan->hidden_in = plan->expert_ids = -1;
    plan->file_rows = plan->file_row_ids = plan->next_row = plan->has_next = -1;
    for (int32_t a = 0; a < LLM_MAX_ADAPTERS; a++) plan->lora[a] = -1;
    if (plan->kind == LLM_PLAN_FORWARD) {
        plan->logits = llm_layers_maker.build(g, s);
        plan->candidates = g->tokens;
        plan->hidden = g->hidden;
        plan->hidden_in = g->hidden_in;
        plan->file_rows = g->file_rows;
        plan->file_row_ids = g->file_row_ids;
        plan->expert_ids = g->expert_ids;
        plan->next_row = g->next_row;
        plan->has_next = g->has_next;
        memcpy(plan->lora, g->lora, sizeof plan->lora);
        status = llm_products_build(ctx, g, plan, err);
    } else {
        build_maintenance(g, plan, chunk);
    }
    if (status == TDM_OK) status = tdm_builder_finish(g->b, graph_out, err);
    tdm_builder_destroy(g->b);
    return status;
}

/* The memory of the weights and, with_cache, of the states, for each slot of the graph. The caller
 * frees *slots_out with free(). */
static tdm_status slots_bind(const llm_context *ctx, const llm_graph_builder *g,
                             const tdm_graph *graph, bool with_cache, tdm_slot_mem **slots_out,
                             tdm_error *err) {
    const llm_model *m = ctx->model;
    tdm_slot_mem *slots = calloc((size_t)graph->n_slot + 1, sizeof *slots);
    if (slots == NULL) return llm_context_no_memory(err);
    for (int32_t w = 0; w < m->n_weight; w++) {
        if (g->weight_value[w] < 0) continue;
        const llm_weight *weight = &m->weights[w];
        slots[tdm_graph_value(graph, g->weight_value[w])->slot] =
            (tdm_slot_mem){llm_model_weight_mem(m, weight), weight->off, weight->size};
    }
    for (int32_t i = 0; with_cache && i < ctx->n_state; i++) {
        if (g->state_value[i] < 0) continue;
        const int64_t n = llm_state_count(m, &ctx->cache, (llm_state_kind)(i / m->hparams.n_layer),
                                          i % m->hparams.n_layer);
        slots[tdm_graph_value(graph, g->state_value[i])->slot] = (tdm_slot_mem){
            ctx->store.mems[ctx->state_mem[i]], ctx->state_off[i], ctx->page_size[i] * (uint64_t)n};
    }
    *slots_out = slots;
    return TDM_OK;
}

static void plan_destroy(llm_plan *plan) {
    tdm_schedule_destroy(plan->schedule);
    free(plan->rows);
    llm_products_free(plan);
    memset(plan, 0, sizeof *plan);
}

static tdm_status plan_make(llm_context *ctx, llm_plan *plan, tdm_error *err) {
    llm_graph_builder g = {0};
    int32_t *maps = NULL;
    tdm_graph *graph = NULL;
    tdm_slot_mem *slots = NULL;
    tdm_status status = maps_create(ctx, &g, &maps, err);
    if (status == TDM_OK && plan->kind >= LLM_PLAN_EXPORT) {
        plan->rows = calloc((size_t)ctx->model->hparams.n_layer * LLM_IO_KINDS, sizeof *plan->rows);
        if (plan->rows == NULL) status = llm_context_no_memory(err);
    }
    if (status == TDM_OK) status = graph_build(ctx, &g, plan, &graph, err);
    if (status == TDM_OK) status = slots_bind(ctx, &g, graph, true, &slots, err);
    if (status == TDM_OK)
        status = tdm_schedule_create(ctx->scratch, graph, slots, &plan->schedule, err);
    else
        tdm_graph_free(graph);
    free(slots);
    free(maps);
    return status;
}

tdm_status llm_plan_get(llm_context *ctx, llm_plan_kind kind, const llm_step_shape *shape,
                        llm_plan **plan_out, tdm_error *err) {
    ctx->clock++;
    for (int32_t i = 0; i < ctx->n_plan; i++) {
        llm_plan *p = &ctx->plans[i];
        if (p->kind == kind && memcmp(&p->shape, shape, sizeof *shape) == 0) {
            p->last_used = ctx->clock;
            *plan_out = p;
            return TDM_OK;
        }
    }
    llm_plan fresh = {.kind = kind, .shape = *shape, .last_used = ctx->clock};
    tdm_status status = plan_make(ctx, &fresh, err);
    if (status != TDM_OK) {
        plan_destroy(&fresh);
        return status;
    }
    int32_t at = ctx->n_plan;
    if (at == LLM_MAX_PLANS) {
        at = 0;
        for (int32_t i = 1; i < LLM_MAX_PLANS; i++)
            if (ctx->plans[i].last_used < ctx->plans[at].last_used) at = i;
        plan_destroy(&ctx->plans[at]);
    } else {
        ctx->n_plan++;
    }
    ctx->plans[at] = fresh;
    *plan_out = &ctx->plans[at];
    return TDM_OK;
}

void llm_plan_clear(llm_context *ctx) {
    for (int32_t i = 0; i < ctx->n_plan; i++) plan_destroy(&ctx->plans[i]);
    ctx->n_plan = 0;
}

/* Fills in state_dev: a state is on the device that runs the nodes that write or read it.
 * node_dev[n_node]: the devices of nodes. */
static void states_find(llm_context *ctx, const llm_graph_builder *g, const tdm_graph *graph,
                        const int32_t *node_dev) {
    for (int32_t i = 0; i < graph->n_node; i++) {
        const int32_t state = tdm_op_state(tdm_graph_node(graph, i));
        for (int32_t l = 0; state >= 0 && l < ctx->n_state; l++)
            if (g->state_value[l] == state) ctx->state_dev[l] = node_dev[i];
    }
}

/* Fills in page_size: bytes of a page or slot of each state on its device, devs[n_state]. devs
 * NULL: on the first device that keeps such a state, before devices are chosen. */
static tdm_status page_sizes_find(llm_context *ctx, const int32_t *devs, tdm_error *err) {
    const llm_model *m = ctx->model;
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < ctx->n_state && status == TDM_OK; i++) {
        const llm_state_kind kind = (llm_state_kind)(i / m->hparams.n_layer);
        tdm_kv_desc desc;
        tdm_partition partition;
        if (!llm_state_desc(m, &ctx->cache, kind, i % m->hparams.n_layer, &desc, &partition))
            continue;
        status = devs == NULL ? llm_cache_page_size(m, &desc, &ctx->page_size[i], err)
                              : tdm_open_device_kv_page_size(m->devs[devs[i]], &desc,
                                                             &ctx->page_size[i], err);
    }
    return status;
}

tdm_status llm_plan_place_cache(llm_context *ctx, tdm_error *err) {
    llm_graph_builder g = {0};
    llm_plan plan = {
        .kind = LLM_PLAN_FORWARD,
        .shape = {1, 1, ctx->n_seq, ctx->n_entry, .adapters = llm_adapters_all(ctx->model)}};
    int32_t *maps = NULL, *node_dev = NULL;
    tdm_graph *graph = NULL;
    tdm_slot_mem *slots = NULL;
    tdm_status status = page_sizes_find(ctx, NULL, err);
    if (status == TDM_OK) status = maps_create(ctx, &g, &maps, err);
    if (status == TDM_OK) status = graph_build(ctx, &g, &plan, &graph, err);
    if (status == TDM_OK) status = slots_bind(ctx, &g, graph, false, &slots, err);
    if (status == TDM_OK) {
        node_dev = malloc(((size_t)graph->n_node + 1) * sizeof *node_dev);
        status = node_dev != NULL
                     ? tdm_schedule_place(ctx->scratch, graph, slots, node_dev, NULL, err)
                     : llm_context_no_memory(err);
    }
    if (status == TDM_OK) states_find(ctx, &g, graph, node_dev);
    if (status == TDM_OK) status = page_sizes_find(ctx, ctx->state_dev, err);
    free(slots);
    free(node_dev);
    free(maps);
    tdm_graph_free(graph);
    llm_products_free(&plan);
    return status;
}

tdm_status llm_step_begin(llm_context *ctx, const llm_plan *plan, tdm_error *err) {
    size_t size = (size_t)plan->header.size * sizeof(int32_t);
    if (size > ctx->step_size) {
        int32_t *grown = realloc(ctx->step, size);
        if (grown == NULL) return llm_context_no_memory(err);
        ctx->step = grown;
        ctx->step_size = size;
    }
    size_t head = sizeof plan->header;
    /* -1 in a field means that it is not used. Page entries need no such value: they are
     * counted. */
    size_t fixed = (size_t)plan->header.cls[0].entry_off * sizeof(int32_t);
    memset((char *)ctx->step + head, 0xff, fixed - head);
    memcpy(ctx->step, &plan->header, head);
    ((tdm_step_header *)(void *)ctx->step)->epoch = ++ctx->epoch;
    return TDM_OK;
}
