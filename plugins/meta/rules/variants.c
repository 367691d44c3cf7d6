/* SPDX-License-Identifier: MIT
 *
 * variants.c: what the members hold of each value. It owns the list of variants of every value, and
 * adds the values that no node computes (weights, inputs, caches) to the parts when a rule first
 * requests them. Conversions between variants are in relayout.c.
 */
#include <string.h>

#include "plugins/meta/layout/partition.h"
#include "plugins/meta/rules/compile.h"

bool meta_fail(meta_compiler *c, tdm_status status, const char *format, ...) {
    char text[TDM_ERROR_MESSAGE_SIZE];
    if (c->status != TDM_OK) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (c->node < 0) {
        c->status = tdm_fail(c->err, status, "group: %s", text);
        return false;
    }
    /* A node without a destination is named by the STATE that it changes. */
    const tdm_node *node = tdm_graph_node(c->graph, c->node);
    int32_t value = -1;
    for (int32_t i = 0; i < node->n_dst && value < 0; i++) value = node->dst[i];
    for (int32_t i = node->n_src - 1; i >= 0 && value < 0; i--)
        if (node->src[i] >= 0 && meta_value(c, node->src[i])->kind == TDM_VALUE_STATE)
            value = node->src[i];
    c->status = tdm_fail(c->err, status, "group: node %d (%s, '%s'): %s", (int)c->node,
                         meta_op_name(node->op),
                         value >= 0 ? tdm_graph_value_name(c->graph, value) : "", text);
    return false;
}

bool meta_out_of_memory(meta_compiler *c) {
    return meta_fail(c, TDM_RESOURCE_EXHAUSTED, "no memory to cut the graph");
}

tdm_tensor_desc meta_value_desc(const tdm_graph *graph, int32_t v) {
    const tdm_value *value = tdm_graph_value(graph, v);
    tdm_tensor_desc desc = {.struct_size = sizeof desc,
                            .type = (tdm_type)value->type,
                            .usage = value->usage,
                            .axis = value->axis};
    memcpy(desc.ne, value->ne, sizeof desc.ne);
    if (value->partition > 0) desc.partition = *tdm_graph_partition(graph, value->partition);
    return desc;
}

int32_t meta_layout_id(meta_compiler *c, const tdm_layout *layout) {
    if (c->status != TDM_OK) return -1;
    int32_t id = meta_layout_intern(c->device->host, &c->plan->layouts, layout);
    if (id < 0) meta_out_of_memory(c);
    return id;
}

int32_t meta_cut_id(meta_compiler *c, int32_t value, const meta_cut *cut) {
    tdm_layout layout;
    meta_layout_from_cut(cut, meta_value(c, value)->ne, c->n_member, &layout);
    return meta_layout_id(c, &layout);
}

bool meta_variant_cut(const meta_compiler *c, int32_t variant, int32_t value, meta_cut *out) {
    const tdm_layout *layout = meta_variant_layout(c, variant);
    return layout->kind == TDM_LAYOUT_SPLIT &&
           meta_layout_get_cut(layout, meta_value(c, value)->ne, out);
}

int32_t meta_variant_new(meta_compiler *c, int32_t value, int32_t layout) {
    meta_plan *p = c->plan;
    if (c->status != TDM_OK || layout < 0) return -1;
    if (meta_grow(c->device->host, &p->variants, &p->cap_variant, (int64_t)p->n_variant + 1,
                  sizeof *p->variants, NULL) != TDM_OK) {
        meta_out_of_memory(c);
        return -1;
    }
    meta_variant *f = &p->variants[p->n_variant];
    f->value = value;
    f->layout = layout;
    f->residual = f->next = -1;
    f->is_candidates = false;
    for (int32_t d = 0; d < TDM_MAX_MEMBERS; d++) f->local[d] = -1;
    return p->n_variant++;
}

void meta_variant_link(meta_compiler *c, int32_t variant) {
    if (c->status != TDM_OK || variant < 0) return;
    int32_t *at = &c->plan->value_variant[meta_variant_at(c, variant)->value];
    while (*at >= 0) at = &meta_variant_at(c, *at)->next;
    *at = variant;
}

/* ---- Values that no node computes ---- */

/* Every active member holds the whole value although its partition could cut it. That happens where
 * units stay whole and each member needs a part of every unit. */
static bool is_held_by_all(const meta_compiler *c, const tdm_layout *layout) {
    if (layout->kind != TDM_LAYOUT_SPLIT) return false;
    for (int32_t s = 0; s < layout->n_segment; s++)
        for (int32_t d = 0; d < c->n_member; d++)
            if (meta_is_active(c->device, d) &&
                (layout->segments[s].lo[d] != 0 ||
                 layout->segments[s].hi[d] != layout->segments[s].n_unit))
                return false;
    return true;
}

/* Adds a weight's slices to the parts. Each part sees the shape of its own slice. */
static int32_t weight_add(meta_compiler *c, int32_t value) {
    tdm_tensor_desc desc = meta_value_desc(c->graph, value);
    tdm_layout layout;
    tdm_error why = {0};
    if (meta_partition_layout(c->device, &desc, &layout, &why) != TDM_OK) {
        meta_fail(c, why.status, "%.400s", why.message);
        return -1;
    }
    int32_t variant = meta_variant_new(
        c, value, is_held_by_all(c, &layout) ? c->exact : meta_layout_id(c, &layout));
    for (int32_t d = 0; variant >= 0 && d < c->n_member; d++) {
        meta_slice slice;
        if (!meta_is_active(c->device, d)) continue;
        if (meta_slice_find(c->device, &desc, d, &slice, &why) != TDM_OK) {
            meta_fail(c, why.status, "%.400s", why.message);
            return -1;
        }
        /* A member with no element of the cut axis holds nothing. A weight that is empty as a whole
         * is different: every member holds all of it. */
        if (slice.cut.axis >= 0 && meta_cut_local_length(&slice.cut, d) == 0) continue;
        int32_t v = meta_part_add_value(&c->plan->members[d].part, meta_value(c, value),
                                        slice.desc.ne, META_SLOT_WEIGHT, value);
        if (v < 0) meta_out_of_memory(c);
        meta_variant_at(c, variant)->local[d] = v;
    }
    return variant;
}

static int32_t input_add(meta_compiler *c, int32_t value) {
    int32_t variant = meta_variant_new(c, value, c->exact);
    bool is_step = value == c->graph->step;
    for (int32_t d = 0; variant >= 0 && d < c->n_member; d++) {
        if (!meta_is_active(c->device, d)) continue;
        meta_part *part = &c->plan->members[d].part;
        int32_t v = meta_part_add_value(
            part, meta_value(c, value), meta_value(c, value)->ne,
            is_step && c->plan->rewrites_step ? META_SLOT_STEP : META_SLOT_INPUT, value);
        if (v < 0) meta_out_of_memory(c);
        meta_variant_at(c, variant)->local[d] = v;
        if (is_step) {
            part->graph.step = v;
            part->graph.step_caps = c->graph->step_caps;
        }
    }
    return variant;
}

int32_t meta_variant_best(meta_compiler *c, int32_t value) {
    if (c->status != TDM_OK) return -1;
    int32_t first = c->plan->value_variant[value];
    if (first < 0) {
        int32_t kind = meta_value(c, value)->kind;
        if (kind == TDM_VALUE_WEIGHT)
            first = weight_add(c, value);
        else if (kind == TDM_VALUE_INPUT)
            first = input_add(c, value);
        else
            meta_fail(c, TDM_INTERNAL, "value %d was not computed", (int)value);
        meta_variant_link(c, first);
        if (c->status != TDM_OK || !meta_override_apply(c, value)) return -1;
        return c->plan->value_variant[value];
    }
    tdm_layout_kind kind = meta_variant_kind(c, first);
    if (kind == TDM_LAYOUT_PARTIAL_SUM || kind == TDM_LAYOUT_PARTIAL_LSE)
        for (int32_t f = first; f >= 0; f = meta_variant_at(c, f)->next)
            if (meta_variant_kind(c, f) == TDM_LAYOUT_REPLICATED) return f;
    return first;
}

/* ---- Caches ---- */

static bool state_fill(meta_compiler *c, int32_t v, int32_t kv, meta_state *s) {
    const tdm_value *value = meta_value(c, v);
    const tdm_kv_desc *desc = tdm_graph_kv(c->graph, kv);
    tdm_partition none = {0};
    const tdm_partition *partition =
        value->partition > 0 ? tdm_graph_partition(c->graph, value->partition) : &none;
    tdm_error why = {0};
    tdm_status status = TDM_OK;
    s->is_cut = partition->id != 0;
    s->is_by_page = c->plan->rewrites_step && (desc->flags & TDM_KV_RECURRENT) == 0;
    if (s->is_by_page && (desc->flags & TDM_KV_STRIDED) != 0)
        status = tdm_fail(&why, TDM_UNSUPPORTED,
                          "a strided cache is not cut by sequence; use attention = heads or "
                          "replicate");
    if (s->is_cut && status == TDM_OK) {
        const meta_assignment *assigned = NULL;
        status = meta_partition_find(c->device, partition, &assigned, &why);
        if (status == TDM_OK)
            status = meta_partition_heads(c->device, partition, desc, s->head_lo, s->head_hi, &why);
        if (status == TDM_OK) {
            memcpy(s->part_lo, assigned->lo, sizeof s->part_lo);
            memcpy(s->part_hi, assigned->hi, sizeof s->part_hi);
            s->n_part = (int64_t)assigned->n_unit * assigned->n_sub;
        }
    }
    for (int32_t d = 0; d < c->n_member && status == TDM_OK; d++) {
        tdm_kv_desc local;
        int64_t n_page = 0;
        uint64_t page_size = 0;
        bool is_held = false;
        s->local[d] = s->kv[d] = -1;
        if (!meta_is_active(c->device, d)) continue;
        status = meta_state_local(c->device, desc, value->ne[1], partition, d, &local, &n_page,
                                  &is_held, &why);
        if (status != TDM_OK || !is_held) continue;
        const meta_member *m = &c->device->members[d];
        status =
            m->acquired.plugin->buffer->kv_page_size(m->acquired.device, &local, &page_size, &why);
        if (status != TDM_OK) {
            tdm_fail(&why, status, "member '%s': %.350s", m->name, why.message);
            break;
        }
        meta_part *part = &c->plan->members[d].part;
        const int64_t ne[TDM_MAX_DIMS] = {(int64_t)page_size, n_page, 1, 1};
        s->local[d] = meta_part_add_value(part, value, ne, META_SLOT_STATE, v);
        s->kv[d] = meta_part_add_kv(part, &local);
        if (s->local[d] < 0 || s->kv[d] < 0) return meta_out_of_memory(c);
    }
    if (status != TDM_OK) return meta_fail(c, status, "%.400s", why.message);
    s->is_known = true;
    return true;
}

const meta_state *meta_state_get(meta_compiler *c, int32_t v, int32_t kv) {
    meta_state *s = &c->states[v];
    if (c->status != TDM_OK) return NULL;
    if (!s->is_known && !state_fill(c, v, kv, s)) return NULL;
    return s;
}
