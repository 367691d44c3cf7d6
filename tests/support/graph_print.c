/* SPDX-License-Identifier: MIT
 *
 * graph_print.c: see graph_print.h. The line of a node has its results, sources and parameters.
 */
#include "tests/support/graph_print.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/builder.h"
#include "core/graph/op_rules.h"

/* Grows as it is written; `has_failed` once memory ran out. */
typedef struct page {
    char *text;
    size_t size; /* without the NUL */
    size_t capacity;
    bool has_failed;
} page;

TDM_PRINTF(2, 3)
static void page_add(page *p, const char *format, ...) {
    va_list args, again;
    int n;
    if (p->has_failed) return;
    va_start(args, format);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        p->has_failed = true;
    } else if (p->size + (size_t)n + 1 > p->capacity) {
        size_t capacity = 2 * p->capacity + (size_t)n + 1;
        char *text = realloc(p->text, capacity);
        if (text == NULL) {
            p->has_failed = true;
        } else {
            p->text = text;
            p->capacity = capacity;
        }
    }
    if (!p->has_failed) {
        vsnprintf(p->text + p->size, (size_t)n + 1, format, again);
        p->size += (size_t)n;
    }
    va_end(again);
}

static void rope_add(page *p, const tdm_rope_params *rope) {
    page_add(p, " n_rot=%d offset=%d %s base=%g scale=%g", (int)rope->n_rot, (int)rope->rope_offset,
             rope->mode == TDM_ROPE_HALVES ? "halves" : "adjacent", (double)rope->freq_base,
             (double)rope->freq_scale);
    if (rope->ext_factor != 0 || rope->attn_factor != 0)
        page_add(p, " ext=%g attn=%g fast=%g slow=%g ctx=%d", (double)rope->ext_factor,
                 (double)rope->attn_factor, (double)rope->beta_fast, (double)rope->beta_slow,
                 (int)rope->n_ctx_orig);
    if (rope->pos_add != 0) page_add(p, " pos_add=%d", (int)rope->pos_add);
    if (rope->is_inverse != 0) page_add(p, " inverse");
}

static const char *act_name(int32_t act) {
#define ACT_(ID, name, number) [number] = #name,
    static const char *const names[TDM_ACT_COUNT_] = {TDM_ACT_LIST(ACT_)};
#undef ACT_
    return act >= 0 && act < TDM_ACT_COUNT_ ? names[act] : "?";
}

/* ---- Parameters: params_<member of tdm_op_params> for each that an op of TDM_OP_LIST has. ---- */

static void params_none(page *p, const tdm_op_params *a) {
    (void)p;
    (void)a;
}

static void params_permute(page *p, const tdm_op_params *a) {
    page_add(p, " axes=%d,%d,%d,%d", (int)a->permute.axis[0], (int)a->permute.axis[1],
             (int)a->permute.axis[2], (int)a->permute.axis[3]);
}

static void params_slice(page *p, const tdm_op_params *a) {
    page_add(p, " from=%lld,%lld,%lld,%lld", (long long)a->slice.offset[0],
             (long long)a->slice.offset[1], (long long)a->slice.offset[2],
             (long long)a->slice.offset[3]);
}

static void params_concat(page *p, const tdm_op_params *a) {
    page_add(p, " axis=%d", (int)a->concat.axis);
}

static void params_rows(page *p, const tdm_op_params *a) {
    if (a->rows.first_row != 0) page_add(p, " first_row=%lld", (long long)a->rows.first_row);
}

static void params_scale(page *p, const tdm_op_params *a) {
    page_add(p, " scale=%g bias=%g", (double)a->scale.scale, (double)a->scale.bias);
}

static void params_clamp(page *p, const tdm_op_params *a) {
    page_add(p, " min=%g max=%g", (double)a->clamp.min, (double)a->clamp.max);
}

static void params_act(page *p, const tdm_op_params *a) {
    page_add(p, " %s", act_name(a->act.act));
}

static void params_norm(page *p, const tdm_op_params *a) {
    page_add(p, " eps=%g", (double)a->norm.eps);
    if (a->norm.n != 0) page_add(p, " n=%lld", (long long)a->norm.n);
}

static void params_rope(page *p, const tdm_op_params *a) {
    rope_add(p, &a->rope);
}

static void params_top_k(page *p, const tdm_op_params *a) {
    page_add(p, " k=%d index_base=%d", (int)a->top_k.k, (int)a->top_k.index_base);
}

static void params_route(page *p, const tdm_op_params *a) {
    page_add(p, " n_used=%d score=%d normalize=%d groups=%d/%d scale=%g", (int)a->route.n_used,
             (int)a->route.score, (int)a->route.normalize, (int)a->route.n_group_used,
             (int)a->route.n_group, (double)a->route.scale);
    if (a->route.id_divisor != 0) page_add(p, " id_divisor=%d", (int)a->route.id_divisor);
}

static void params_moe(page *p, const tdm_op_params *a) {
    page_add(p, " %s first_expert=%d of %d", act_name(a->moe.act), (int)a->moe.first_expert,
             (int)a->moe.n_expert_all);
    if (a->moe.is_weighted_first) page_add(p, " weighted first");
    if (a->moe.is_soft) page_add(p, " soft");
    if (a->moe.limit != 0 || a->moe.alpha != 0 || a->moe.up_offset != 0)
        page_add(p, " limit=%g alpha=%g up_offset=%g", (double)a->moe.limit, (double)a->moe.alpha,
                 (double)a->moe.up_offset);
}

static void params_attention(page *p, const tdm_op_params *a) {
    page_add(p, " kv=%d heads=%d of %d head_kv=%d heads_per_kv=%d%s window=%d",
             (int)a->attention.kv, (int)a->attention.first_head, (int)a->attention.n_head_all,
             (int)a->attention.first_head_kv, (int)a->attention.heads_per_kv,
             a->attention.is_causal ? " causal" : "", (int)a->attention.window);
    page_add(p, " scale=%g softcap=%g", (double)a->attention.scale, (double)a->attention.softcap);
    if (a->attention.window_kind != 0)
        page_add(p, " window_kind=%d", (int)a->attention.window_kind);
    if (a->attention.alibi_max_bias != 0)
        page_add(p, " alibi=%g", (double)a->attention.alibi_max_bias);
    if (a->attention.temperature_scale != 0)
        page_add(p, " temperature=%g/%d+%d", (double)a->attention.temperature_scale,
                 (int)a->attention.temperature_length, (int)a->attention.temperature_offset);
}

static void params_select(page *p, const tdm_op_params *a) {
    page_add(p, " kv %d top %d", (int)a->select.kv, (int)a->select.n_top);
    if (a->select.block_len > 1)
        page_add(p, " blocks of %d, %d local", (int)a->select.block_len, (int)a->select.n_local);
    if (a->select.is_of_tokens != 0) page_add(p, " tokens");
}

static void params_kv(page *p, const tdm_op_params *a) {
    page_add(p, " kv=%d", (int)a->kv.kv);
}

static void params_conv(page *p, const tdm_op_params *a) {
    page_add(p, " kv=%d unit=", (int)a->conv.kv);
    for (int32_t i = 0; i < a->conv.n_segment && i < TDM_MAX_SEGMENTS; i++)
        page_add(p, i > 0 ? "+%d" : "%d", (int)a->conv.unit_len[i]);
}

static void params_scan(page *p, const tdm_op_params *a) {
    page_add(p, " kv=%d %s heads_per_k=%d head=%d head_k=%d scale=%g", (int)a->scan.kv,
             a->scan.is_tiled ? "tiled" : "grouped", (int)a->scan.heads_per_k,
             (int)a->scan.first_head, (int)a->scan.first_head_k, (double)a->scan.scale);
}

static void params_sinkhorn(page *p, const tdm_op_params *a) {
    page_add(p, " n_iter=%d eps=%g", (int)a->sinkhorn.n_iter, (double)a->sinkhorn.eps);
}

static void params_pool(page *p, const tdm_op_params *a) {
    page_add(p, " kv=%d n_part=%d", (int)a->pool.kv, (int)a->pool.n_part);
}

static void params_shift(page *p, const tdm_op_params *a) {
    page_add(p, " kv=%d", (int)a->shift.kv);
    rope_add(p, &a->shift.rope);
}

static void params_exchange(page *p, const tdm_op_params *a) {
    static const char *const kinds[] = {"sum", "sum_part", "gather"};
    const tdm_exchange_params *x = &a->exchange;
    page_add(p, " %s stage=%d member=%d/%d senders=0x%llx",
             x->kind >= 0 && x->kind <= TDM_EXCHANGE_GATHER ? kinds[x->kind] : "?", (int)x->stage,
             (int)x->member, (int)x->n_member, (unsigned long long)x->senders);
    if (x->kind != TDM_EXCHANGE_SUM) page_add(p, " axis=%d first=%d", (int)x->axis, (int)x->first);
    if (x->whole != 0) page_add(p, " whole=%d", (int)x->whole);
    if (x->kind != TDM_EXCHANGE_GATHER)
        page_add(p, " wire=%s", tdm_type_name((tdm_type)x->wire_type));
    page_add(p, " data=%llu+%llu flags=%llu area=%llu", (unsigned long long)x->data_off,
             (unsigned long long)x->data_stride, (unsigned long long)x->flag_off,
             (unsigned long long)x->area_stride);
    if (x->phase != TDM_EXCHANGE_WHOLE) page_add(p, " phase=%d", (int)x->phase);
    if (x->data_off2 != 0)
        page_add(p, " axis2=%d first2=%d whole2=%d data2=%llu", (int)x->axis2, (int)x->first2,
                 (int)x->whole2, (unsigned long long)x->data_off2);
}

static void params_add(page *p, const tdm_node *node) {
    const tdm_op_params *a = &node->params;
#define PARAMS_(ID, name, number, kind, infer, params, ...)                                        \
    case number: params_##params(p, a); break;
    switch (node->op) {
        TDM_OP_LIST(PARAMS_)
    default: break;
    }
#undef PARAMS_
}

/* "%7 'blk.0.attn_q'". */
static void value_add(page *p, const tdm_graph *graph, int32_t i) {
    const char *name = tdm_graph_value_name(graph, i);
    if (name[0] != '\0')
        page_add(p, "%%%d '%s'", (int)i, name);
    else
        page_add(p, "%%%d", (int)i);
}

static void value_type_add(page *p, const tdm_graph *graph, int32_t i) {
    const tdm_value *v = tdm_graph_value(graph, i);
    char shape[TDM_SHAPE_TEXT_SIZE];
    page_add(p, " %s %s", tdm_type_name((tdm_type)v->type), tdm_shape_text(v->ne, shape));
    if (v->partition != 0) {
        const tdm_partition *part = tdm_graph_partition(graph, v->partition);
        page_add(p, " cut(axis=%d id=%d units=%d)", (int)v->axis, (int)part->id, (int)part->n_unit);
    }
}

static void sources_add(page *p, const tdm_graph *graph) {
    static const char *const kinds[] = {"temp", "weight", "state", "input", "output"};
    int32_t i;
    for (i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind == TDM_VALUE_TEMP || v->kind == TDM_VALUE_OUTPUT) continue;
        page_add(p, "%-6s ", kinds[v->kind]);
        value_add(p, graph, i);
        value_type_add(p, graph, i);
        if (v->usage != 0)
            page_add(p, " for%s%s%s", (v->usage & TDM_USAGE_MATMUL) != 0 ? " matmul" : "",
                     (v->usage & TDM_USAGE_ROWS) != 0 ? " rows" : "",
                     (v->usage & TDM_USAGE_EXPERT) != 0 ? " expert" : "");
        page_add(p, "\n");
    }
}

static void node_add(page *p, const tdm_graph *graph, int32_t i) {
    const tdm_node *node = tdm_graph_node(graph, i);
    int s;
    page_add(p, "%4d  %-9s ", (int)i, tdm_op_name(node->op));
    for (s = 0; s < node->n_dst; s++) {
        if (node->dst[s] < 0) continue;
        if (s > 0) page_add(p, ", ");
        value_add(p, graph, node->dst[s]);
        value_type_add(p, graph, node->dst[s]);
        if (tdm_graph_value(graph, node->dst[s])->kind == TDM_VALUE_OUTPUT) page_add(p, " output");
    }
    page_add(p, " <-");
    for (s = 0; s < node->n_src; s++) {
        page_add(p, s > 0 ? ", " : " ");
        if (node->src[s] < 0)
            page_add(p, "-");
        else
            value_add(p, graph, node->src[s]);
    }
    params_add(p, node);
    page_add(p, "\n");
}

char *graph_print(const tdm_graph *graph) {
    page p = {NULL, 0, 0, false};
    int32_t i;
    page_add(&p, "graph of %d nodes, %d values, %d slots", (int)graph->n_node, (int)graph->n_value,
             (int)graph->n_slot);
    if (graph->step >= 0)
        page_add(&p, "; step: %d tokens, %d sequences, %d outputs, %d entries, %d jobs",
                 (int)graph->step_caps.n_tok, (int)graph->step_caps.n_seq,
                 (int)graph->step_caps.n_out, (int)graph->step_caps.n_entry,
                 (int)graph->step_caps.n_job);
    page_add(&p, "\n");
    for (i = 0; i < graph->n_kv; i++) {
        const tdm_kv_desc *kv = tdm_graph_kv(graph, i);
        page_add(&p, "cache  %d: k %s [%d] v %s [%d], %d heads, pages of %d, class %d%s%s%s%s%s%s",
                 (int)i, tdm_type_name(kv->type_k), (int)kv->head_dim_k, tdm_type_name(kv->type_v),
                 (int)kv->head_dim_v, (int)kv->n_head_kv,
                 kv->page_len > 0 ? (int)kv->page_len : TDM_KV_PAGE_LEN_DEFAULT, (int)kv->cls,
                 (kv->flags & TDM_KV_ROTATE_K) != 0 ? " rotate_k" : "",
                 (kv->flags & TDM_KV_ROTATE_V) != 0 ? " rotate_v" : "",
                 (kv->flags & TDM_KV_V_FROM_K) != 0 ? " v_from_k" : "",
                 (kv->flags & TDM_KV_IN_HOST) != 0 ? " in_host" : "",
                 (kv->flags & TDM_KV_SPARSE) != 0 ? " sparse" : "",
                 (kv->flags & TDM_KV_POOLED) != 0 ? " pooled" : "");
        if (kv->stride != 0) page_add(&p, " stride %d", (int)kv->stride);
        page_add(&p, "\n");
    }
    sources_add(&p, graph);
    for (i = 0; i < graph->n_node; i++) node_add(&p, graph, i);
    if (p.has_failed) {
        free(p.text);
        return NULL;
    }
    return p.text;
}
