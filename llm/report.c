/* SPDX-License-Identifier: MIT
 *
 * report.c: see report.h. A group makes its own report. For other devices this file computes it,
 * with the same rules by which model_load.c, context.c and the schedule allocate.
 */
#include "llm/report.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/view.h"
#include "core/stages/queue_adapter.h"
#include "core/stages/schedule.h"
#include "core/stages/stages.h"
#include "llm/context_internal.h"

/* The values of a graph that the device keeps: all except those read by nodes that it does not
 * support. */
typedef struct kept {
    bool *is_kept;      /* [n_value] */
    int32_t *weight;    /* [n_weight] value of each weight in the graph; -1 = the graph lacks it */
    bool is_whole;      /* the device supports all nodes, and such a cache */
    bool is_cache_kept; /* the device keeps the states of all layers */
} kept;

static tdm_status kept_begin(kept *k, const llm_model *m, tdm_error *err) {
    k->weight = malloc(((size_t)m->n_weight + 1) * sizeof *k->weight);
    if (k->weight == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    return TDM_OK;
}

static void kept_end(kept *k) {
    free(k->is_kept);
    free(k->weight);
}

/* Fills in is_kept by the rule of the schedule: it places the sources of an unsupported node on
 * another device. The caller has set is_cache_kept: whether the device has such a cache. */
static tdm_status kept_find(kept *k, tdm_open_device *dev, const tdm_graph *graph, tdm_error *err) {
    k->is_kept = malloc((size_t)graph->n_value + 1);
    if (k->is_kept == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    memset(k->is_kept, true, (size_t)graph->n_value + 1);
    k->is_whole = k->is_cache_kept;
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        if (tdm_op_is_view(node->op) || tdm_open_device_supports_op(dev, graph, i, NULL) == TDM_OK)
            continue;
        k->is_whole = false;
        for (int32_t s = 0; s < node->n_src; s++) {
            if (node->src[s] < 0) continue;
            k->is_kept[node->src[s]] = false;
            if (tdm_graph_value(graph, node->src[s])->kind == TDM_VALUE_STATE)
                k->is_cache_kept = false;
        }
    }
    return TDM_OK;
}

/* Bytes of the weights that the device keeps, in its layout. */
static tdm_status weights_measure(const llm_model *m, tdm_open_device *dev, const kept *k,
                                  uint64_t *size_out, tdm_error *err) {
    uint64_t total = 0;
    for (int32_t i = 0; i < m->n_own; i++) {
        tdm_tensor_desc desc = llm_weight_desc(&m->weights[i]);
        uint64_t size;
        tdm_error inner = {0};
        if (k->weight[i] >= 0 && !k->is_kept[k->weight[i]]) continue;
        tdm_status status = tdm_open_device_tensor_size(dev, &desc, &size, &inner);
        if (status != TDM_OK)
            return tdm_fail(err, status, "%s: tensor '%s': %s",
                            llm_gguf_name(llm_weight_gguf(m, &m->weights[i])),
                            m->weights[i].file->name, inner.message);
        total += (size + LLM_WEIGHT_ALIGN - 1) / LLM_WEIGHT_ALIGN * LLM_WEIGHT_ALIGN;
    }
    *size_out = total;
    return TDM_OK;
}

/* The device and its fallback, which runs the rest of the graph. */
enum { PART_HERE, PART_FALLBACK, PART_DEVICES };

/* PART_HERE if the device supports the node and keeps the weights and states that it reads, else
 * PART_FALLBACK. */
static int32_t part_of(tdm_open_device *dev, const tdm_graph *graph, int32_t i, const kept *k) {
    const tdm_node *node = tdm_graph_node(graph, i);
    if (tdm_open_device_supports_op(dev, graph, i, NULL) != TDM_OK) return PART_FALLBACK;
    for (int32_t s = 0; s < node->n_src; s++) {
        if (node->src[s] < 0 || k->is_kept[node->src[s]]) continue;
        const int32_t kind = tdm_graph_value(graph, node->src[s])->kind;
        if (kind == TDM_VALUE_WEIGHT || kind == TDM_VALUE_STATE) return PART_FALLBACK;
    }
    return PART_HERE;
}

/* Bytes of the plans of the device's stages: the sum of what each holds, and the largest scratch,
 * which they share. If there is no memory for a plan, this one and the following ones are left out:
 * the report then shows from the other sizes that the model does not fit. */
static tdm_status plans_measure(tdm_open_device *dev, const tdm_cut *cut, uint64_t *size_out,
                                tdm_error *err) {
    tdm_queue_adapter *queue = NULL;
    uint64_t scratch = 0;
    *size_out = 0;
    tdm_status status = tdm_queue_adapter_create(dev, &queue, err);
    for (int32_t i = 0; i < cut->n_stage && status == TDM_OK; i++) {
        tdm_device_plan *plan = NULL;
        tdm_plan_info info;
        if (cut->stages[i].dev != PART_HERE) continue;
        status = tdm_device_plan_create(queue, cut->stages[i].graph, &plan, err);
        if (status == TDM_OK) status = tdm_device_plan_get_info(plan, &info, err);
        if (status == TDM_OK) {
            *size_out += info.device_size + info.host_size;
            if (info.scratch_size > scratch) scratch = info.scratch_size;
        }
        tdm_device_plan_destroy(plan);
    }
    *size_out += scratch;
    tdm_queue_adapter_destroy(queue);
    return status == TDM_RESOURCE_EXHAUSTED ? TDM_OK : status;
}

/* Sets compute_size and crossing_size: the memory that a schedule of the device's stages takes on
 * it. The fallback's stages are laid out, too, since values cross to them, but their memory is not
 * counted. */
static tdm_status compute_measure(tdm_open_device *dev, const tdm_graph *graph, const kept *k,
                                  const tdm_device_info *info, tdm_split_member *member,
                                  tdm_error *err) {
    tdm_stage_device devs[PART_DEVICES];
    tdm_stages stages = {0};
    uint64_t plan_size = 0;
    int32_t *node_dev = malloc(((size_t)graph->n_node + 1) * sizeof *node_dev);
    if (node_dev == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    for (int32_t d = 0; d < PART_DEVICES; d++) tdm_stage_device_init(&devs[d], dev, info);
    for (int32_t i = 0, last = PART_HERE; i < graph->n_node; i++) {
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op)) last = part_of(dev, graph, i, k);
        node_dev[i] = last;
    }
    const tdm_cut_params params = {
        .graph = graph, .node_dev = node_dev, .n_dev = PART_DEVICES, .caller_dev = -1};
    tdm_status status = tdm_stages_create(&params, devs, &stages, err);
    free(node_dev);
    if (status != TDM_OK) return status;
    status = plans_measure(dev, &stages.cut, &plan_size, err);
    /* When the model is loaded, the nodes of a refused plan run on the fallback, too. */
    if (status == TDM_UNSUPPORTED && !k->is_whole) status = TDM_OK;
    member->compute_size =
        stages.need[PART_HERE] + stages.need_in[PART_HERE] + stages.need_out[PART_HERE] + plan_size;
    member->crossing_size = stages.cut.copied_size;
    tdm_stages_free(&stages);
    return status;
}

/* Bytes of the caches and recurrent states that the device keeps; page_size 0 = it keeps no
 * caches. */
static tdm_status states_measure(const llm_model *m, tdm_open_device *dev, const llm_context *ctx,
                                 uint64_t page_size, uint64_t *size_out, tdm_error *err) {
    const int32_t n_layer = m->hparams.n_layer;
    uint64_t size;
    *size_out = 0;
    for (int32_t i = 0; i < LLM_STATE_KINDS * n_layer; i++) {
        const llm_state_kind kind = (llm_state_kind)(i / n_layer);
        tdm_kv_desc desc;
        tdm_partition partition;
        uint64_t each = page_size, n = (uint64_t)ctx->cache.n_slot;
        if (!llm_state_desc(m, &ctx->cache, kind, i % n_layer, &desc, &partition)) continue;
        if (llm_state_has_rows(kind))
            n = (uint64_t)llm_state_count(m, &ctx->cache, kind, i % n_layer);
        if (kind != LLM_STATE_ROWS ||
            (page_size > 0 && !llm_cache_is_like(&desc, &ctx->cache.desc))) {
            if (tdm_open_device_kv_page_size(dev, &desc, &each, NULL) != TDM_OK) each = 0;
        }
        if (__builtin_mul_overflow(each, n, &size) ||
            __builtin_add_overflow(size, LLM_STATE_ALIGN - 1, &size) ||
            __builtin_add_overflow(*size_out, size / LLM_STATE_ALIGN * LLM_STATE_ALIGN, size_out))
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "ctx-size %d: the cache is larger than 2^64 bytes", ctx->n_ctx);
    }
    return TDM_OK;
}

/* Fills the only member in the report of a device that is not a group. */
static tdm_status member_measure(const llm_model *m, tdm_open_device *dev, const llm_context *ctx,
                                 uint64_t page_size, const tdm_graph *graph, const kept *k,
                                 tdm_split_member *member, tdm_error *err) {
    tdm_device_info info;
    tdm_status status = tdm_open_device_get_info(dev, &info, err);
    if (status != TDM_OK) return status;
    snprintf(member->name, sizeof member->name, "%s", tdm_open_device_name(dev));
    snprintf(member->plugin, sizeof member->plugin, "%s", tdm_open_device_plugin(dev)->name);
    member->share = 1;
    member->memory_total = info.memory_total;
    member->memory_free = info.memory_free;
    status = weights_measure(m, dev, k, &member->weight_size, err);
    if (status == TDM_OK)
        status =
            states_measure(m, dev, ctx, k->is_cache_kept ? page_size : 0, &member->state_size, err);
    if ((ctx->cache.desc.flags & TDM_KV_IN_HOST) != 0 &&
        (info.flags & (TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED)) == 0)
        member->host_state_size = member->state_size;
    if (status == TDM_OK) status = compute_measure(dev, graph, k, &info, member, err);
    return status;
}

/* Copies the common prefix of two versions of a struct. */
static void prefix_copy(void *dst, size_t dst_size, const void *src, size_t src_size) {
    memcpy(dst, src, dst_size < src_size ? dst_size : src_size);
}

static void report_fill(tdm_split_report *report, const tdm_split_member *member) {
    tdm_split_report filled = {.n_member = 1};
    size_t known = report->struct_size < sizeof filled ? report->struct_size : sizeof filled;
    size_t first = offsetof(tdm_split_report, n_member);
    if (report->members != NULL && report->capacity > 0)
        prefix_copy(report->members, report->member_size, member, sizeof *member);
    if (known > first) memcpy((char *)report + first, (char *)&filled + first, known - first);
}

/* The forward graph of the step. *page_size_out: bytes of a page on the device; 0 = it keeps no
 * such cache. weight_value as in llm_forward_graph. A group measures and cuts the weights of this
 * graph. So for a group the graph also has the weights that the step does not read: those of the
 * index of sparse attention in a small context. */
static tdm_status step_graph(const llm_model *m, tdm_open_device *dev, const llm_context *ctx,
                             const llm_step_shape *shape, uint64_t *page_size_out,
                             int32_t *weight_value, tdm_graph **graph_out, tdm_error *err) {
    tdm_status status = TDM_OK;
    llm_step_shape step = *shape;
    step.has_all_weights = tdm_open_device_is_group(dev);
    if (tdm_open_device_is_group(dev)) { /* the size of its pages depends on the cuts */
        tdm_graph *whole = NULL;
        llm_step_shape all = step; /* with the output head, as the graph of model_load.c */
        if (all.n_out == 0) all.n_out = 1;
        status = llm_forward_graph(m, &ctx->cache, 0, &all, NULL, &whole, err);
        if (status == TDM_OK) status = tdm_open_device_split_prepare(dev, whole, err);
        tdm_graph_free(whole);
    }
    *page_size_out = 0;
    llm_cache_shape cache = ctx->cache;
    cache.devs = &dev;
    cache.n_dev = 1;
    if (status == TDM_OK)
        status = tdm_open_device_kv_page_size(dev, &ctx->cache.desc, page_size_out, err);
    if (status == TDM_OK || (status == TDM_UNSUPPORTED && !tdm_open_device_is_group(dev)))
        status = llm_forward_graph(m, &cache, *page_size_out, &step, weight_value, graph_out, err);
    return status;
}

/* The shape of a step; n_tok and n_out as in llm_model_report. A context that gives embeddings
 * plans no logits, which would add the output head. */
static llm_step_shape step_shape(const llm_context *ctx, int32_t n_tok, int32_t n_out) {
    if (n_tok == 0 || n_tok > ctx->n_ubatch) n_tok = ctx->n_ubatch;
    if (n_out == 0) n_out = 1;
    if (ctx->gives_embeddings) n_out = 0;
    return (llm_step_shape){n_tok, n_out < n_tok ? n_out : n_tok, ctx->n_seq, ctx->n_entry,
                            .has_hidden = llm_context_hidden_kind(ctx)};
}

tdm_status llm_model_report(const llm_model *m, tdm_open_device *dev,
                            const llm_context_params *params, int32_t n_tok, int32_t n_out,
                            tdm_split_report *report, tdm_error *err) {
    if (n_tok < 0 || n_out < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "report: a step of %d tokens, %d with logits",
                        n_tok, n_out);
    llm_context *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    tdm_split_member member = {0};
    tdm_graph *graph = NULL;
    kept k = {0};
    uint64_t page_size = 0;
    tdm_status status = llm_context_measure(ctx, m, params, err);
    if (status == TDM_OK) status = kept_begin(&k, m, err);
    if (status == TDM_OK) {
        const llm_step_shape shape = step_shape(ctx, n_tok, n_out);
        status = step_graph(m, dev, ctx, &shape, &page_size, k.weight, &graph, err);
        k.is_cache_kept = page_size > 0;
    }
    if (status == TDM_OK && tdm_open_device_is_group(dev)) {
        status = tdm_open_device_split_report(dev, graph, report, err);
    } else if (status == TDM_OK) {
        status = kept_find(&k, dev, graph, err);
        if (status == TDM_OK)
            status = member_measure(m, dev, ctx, page_size, graph, &k, &member, err);
        if (status == TDM_OK) report_fill(report, &member);
    }
    tdm_graph_free(graph);
    kept_end(&k);
    free(ctx);
    return status;
}

tdm_status llm_model_window_report(const llm_model *m, const llm_context_params *params,
                                   llm_window_report *report_out, tdm_error *err) {
    *report_out = (llm_window_report){0};
    llm_context *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    const tdm_status status = llm_context_measure(ctx, m, params, err);
    if (status == TDM_OK && ctx->cache.n_page_window > 0) {
        ctx->model = (llm_model *)(uintptr_t)m; /* only read */
        const size_t all = llm_context_rows_size_at(ctx, 0, 1, 0);
        report_out->n_tok = ctx->cache.n_page_window * ctx->cache.desc.page_len;
        report_out->size =
            (all - llm_context_rows_size_at(ctx, 0, 1, 1)) * (uint64_t)report_out->n_tok;
        for (int32_t l = 0; l < m->hparams.n_layer; l++)
            report_out->n_layer += llm_layer_has_window(&m->specs[l]);
    }
    free(ctx);
    return status;
}

/* ---- Devices in turn ---- */

/* Seconds of a stage besides its nodes and copies: submitting it, waking the thread that runs it,
 * waiting for its end. Measured with CPU devices. */
#define STAGE_SECONDS 2e-5

/* A step on devices in turn. */
typedef struct turns_step {
    const llm_turns *turns;
    llm_context *ctx;
    tdm_graph *graph;
    tdm_slot_mem *pinned; /* [n_slot] devices of pinned weights */
    tdm_scratch *scratch;
} turns_step;

/* Fills in s->pinned from the placement. */
static tdm_status pinned_find(turns_step *s, const llm_model *m, const int32_t *weight_value,
                              tdm_error *err) {
    const llm_placement *p = s->turns->placement;
    s->pinned = calloc((size_t)s->graph->n_slot + 1, sizeof *s->pinned);
    if (s->pinned == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    for (int32_t w = 0; w < m->n_weight && p->weight != NULL; w++) {
        int32_t dev = p->weight(p->user, llm_weight_base_name(m, &m->weights[w]));
        if (dev >= 0 && dev < s->turns->n_dev && weight_value[w] >= 0)
            s->pinned[tdm_graph_value(s->graph, weight_value[w])->slot].mem.dev =
                s->turns->devs[dev];
    }
    return TDM_OK;
}

/* Builds the step's graph. The caller calls turns_step_end, after a failure, too. */
static tdm_status turns_step_begin(turns_step *s, const llm_model *m, const llm_turns *turns,
                                   const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                   tdm_error *err) {
    int32_t *weight = malloc(((size_t)m->n_weight + 1) * sizeof *weight);
    uint64_t page_size = 0;
    *s = (turns_step){.turns = turns, .ctx = calloc(1, sizeof *s->ctx)};
    tdm_status status = s->ctx != NULL && weight != NULL
                            ? llm_context_measure(s->ctx, m, params, err)
                            : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    if (status == TDM_OK) {
        const llm_step_shape shape = step_shape(s->ctx, n_tok, n_out);
        status = step_graph(m, turns->devs[0], s->ctx, &shape, &page_size, weight, &s->graph, err);
    }
    if (status == TDM_OK) status = pinned_find(s, m, weight, err);
    if (status == TDM_OK)
        status = tdm_scratch_create(turns->rt, turns->devs, turns->n_dev, &s->scratch, err);
    free(weight);
    return status;
}

static void turns_step_end(turns_step *s) {
    tdm_scratch_destroy(s->scratch);
    tdm_graph_free(s->graph);
    free(s->pinned);
    free(s->ctx);
}

/* Adds the time of one stage; sets *is_known to false if its estimator has no estimate. */
static tdm_status stage_add(const llm_turns *turns, const tdm_cut *cut, const tdm_stage *stage,
                            double *seconds, bool *is_known, tdm_error *err) {
    tdm_split_report report = {.struct_size = sizeof report, .is_brief = 1};
    double copied = 0, bandwidth = turns->bandwidth[stage->dev];
    tdm_status status =
        tdm_open_device_split_report(turns->estimators[stage->dev], stage->graph, &report, err);
    for (int32_t i = 0; i < stage->n_before; i++)
        copied += (double)cut->slots[stage->copies[i].slot].size;
    /* A copy goes through the host: each byte is read and written twice, on the way to the host and
     * on the way from it. */
    if (copied > 0 && bandwidth > 0) *seconds += 4 * copied / bandwidth;
    *seconds += report.seconds + STAGE_SECONDS;
    *is_known = *is_known && report.seconds > 0;
    return status;
}

tdm_status llm_model_turns_time(const llm_model *m, const llm_turns *turns,
                                const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                double *seconds_out, tdm_error *err) {
    turns_step s;
    tdm_cut cut = {0};
    int32_t *node_dev = NULL;
    bool is_known = true;
    double seconds = 0;
    tdm_status status = turns_step_begin(&s, m, turns, params, n_tok, n_out, err);
    if (status == TDM_OK) {
        node_dev = malloc(((size_t)s.graph->n_node + 1) * sizeof *node_dev);
        status = node_dev != NULL
                     ? tdm_schedule_place(s.scratch, s.graph, s.pinned, node_dev, NULL, err)
                     : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "report: out of memory");
    }
    const tdm_cut_params cut_params = {
        .graph = s.graph, .node_dev = node_dev, .n_dev = turns->n_dev, .caller_dev = -1};
    if (status == TDM_OK) status = tdm_cut_make(&cut_params, &cut, err);
    for (int32_t i = 0; i < cut.n_stage && status == TDM_OK; i++)
        status = stage_add(turns, &cut, &cut.stages[i], &seconds, &is_known, err);
    *seconds_out = status == TDM_OK && is_known ? seconds : 0;
    tdm_cut_free(&cut);
    free(node_dev);
    turns_step_end(&s);
    return status;
}

tdm_status llm_model_turns_size(const llm_model *m, const llm_turns *turns,
                                const llm_context_params *params, int32_t n_tok, int32_t n_out,
                                uint64_t *sizes_out, tdm_error *err) {
    turns_step s;
    tdm_status status = turns_step_begin(&s, m, turns, params, n_tok, n_out, err);
    if (status == TDM_OK)
        status = tdm_schedule_measure(s.scratch, s.graph, s.pinned, sizes_out, err);
    turns_step_end(&s);
    return status;
}
