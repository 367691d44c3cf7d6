/* SPDX-License-Identifier: MIT
 *
 * schedule_place.c: decides which device runs each node. It neither cuts the graph nor runs it.
 */
#include <stdlib.h>

#include "core/base/op_state.h"
#include "core/base/view.h"
#include "core/stages/refusal.h"
#include "core/stages/schedule_internal.h"

/* A placement under way. */
typedef struct placement {
    tdm_scratch *scratch;
    const tdm_graph *graph;
    int32_t *data_slot; /* [n_value] slot of the WEIGHT or STATE that the value lies in, or -1 */
    bool *is_plain;     /* [n_value] that is a WEIGHT without usage flags: canonical everywhere */
    int32_t *slot_dev;  /* [n_slot] device of a WEIGHT or STATE; -1 = none yet */
} placement;

static tdm_status placement_begin(placement *p, tdm_error *err) {
    const tdm_graph *graph = p->graph;
    size_t n = (size_t)graph->n_value + 1;
    tdm_view_place *places = malloc(n * sizeof *places);
    p->data_slot = malloc(n * sizeof *p->data_slot);
    p->is_plain = malloc(n * sizeof *p->is_plain);
    if (places == NULL || p->data_slot == NULL || p->is_plain == NULL) {
        free(places);
        free(p->data_slot);
        free(p->is_plain);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
    }
    tdm_view_resolve_all(graph, places);
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *base = tdm_graph_value(graph, places[i].base);
        bool is_data = base->kind == TDM_VALUE_WEIGHT || base->kind == TDM_VALUE_STATE;
        p->data_slot[i] = is_data ? base->slot : -1;
        p->is_plain[i] = base->kind == TDM_VALUE_WEIGHT && base->usage == 0;
    }
    free(places);
    return TDM_OK;
}

static int32_t src_slot(const placement *p, const tdm_node *node, int32_t i) {
    return node->src[i] < 0 ? -1 : p->data_slot[node->src[i]];
}

/* The device on which the WEIGHTs and STATEs that the node reads live, or -1. Sets *two where they
 * live on different devices. Plain weights of a node that works on a cache do not count: each run
 * copies them to the cache's device. They are small (the frequencies of a shift). */
static int32_t node_home(const placement *p, const tdm_node *node, bool *two) {
    int32_t home = -1;
    bool has_cache = tdm_op_uses_kv(node->op);
    for (int32_t i = 0; i < node->n_src; i++) {
        int32_t slot = src_slot(p, node, i);
        int32_t dev = slot < 0 ? -1 : p->slot_dev[slot];
        if (dev < 0 || (has_cache && p->is_plain[node->src[i]])) continue;
        if (home >= 0 && home != dev) *two = true;
        home = dev;
    }
    return home;
}

static void node_claim(placement *p, const tdm_node *node, int32_t dev) {
    for (int32_t i = 0; i < node->n_src; i++) {
        int32_t slot = src_slot(p, node, i);
        if (slot >= 0 && p->slot_dev[slot] < 0) p->slot_dev[slot] = dev;
    }
}

static bool node_reads(const placement *p, const tdm_node *node, int32_t slot) {
    for (int32_t i = 0; i < node->n_src; i++)
        if (src_slot(p, node, i) == slot) return true;
    return false;
}

/* Whether device d runs the node, and every later node that reads a weight or state which this node
 * would be the first to place on d. Otherwise a cache could be written on a device that cannot read
 * it, or a table placed on one that looks up its rows but cannot multiply by it. */
static tdm_status supports_with_siblings(const placement *p, int32_t index, int32_t d,
                                         tdm_error *why) {
    const tdm_graph *graph = p->graph;
    tdm_open_device *dev = p->scratch->devs[d].dev;
    const tdm_node *node = tdm_graph_node(graph, index);
    tdm_status status = tdm_open_device_supports_op(dev, graph, index, why);
    for (int32_t i = 0; i < node->n_src && status == TDM_OK; i++) {
        int32_t slot = src_slot(p, node, i);
        if (slot < 0 || p->slot_dev[slot] >= 0) continue;
        for (int32_t j = index + 1; j < graph->n_node && status == TDM_OK; j++) {
            const tdm_node *other = tdm_graph_node(graph, j);
            if (tdm_op_is_view(other->op) || !node_reads(p, other, slot)) continue;
            tdm_error inner = {0};
            status = tdm_open_device_supports_op(dev, graph, j, &inner);
            if (status != TDM_OK)
                tdm_fail(why, status, "shares its data with %s: %.200s", tdm_op_name(other->op),
                         inner.message);
        }
    }
    return status;
}

static const char *node_label(const tdm_graph *graph, const tdm_node *node) {
    for (int32_t i = 0; i < node->n_dst; i++)
        if (node->dst[i] >= 0) return tdm_graph_value_name(graph, node->dst[i]);
    for (int32_t i = node->n_src - 1; i >= 0; i--)
        if (node->src[i] >= 0) return tdm_graph_value_name(graph, node->src[i]);
    return "";
}

static tdm_status node_place(placement *p, int32_t index, int32_t *dev_out, tdm_error *err) {
    tdm_scratch *s = p->scratch;
    const tdm_graph *graph = p->graph;
    const tdm_node *node = tdm_graph_node(graph, index);
    char reasons[TDM_ERROR_MESSAGE_SIZE / 2] = "", first_reason[160] = "";
    size_t used = 0;
    bool two = false;
    int32_t home = node_home(p, node, &two);
    if (two)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s '%s': its weights or states live on different devices",
                        tdm_op_name(node->op), node_label(graph, node));
    for (int32_t d = 0; d < s->n_dev; d++) {
        tdm_error why = {0};
        if (home >= 0 && d != home) continue;
        tdm_status status = supports_with_siblings(p, index, d, &why);
        if (status == TDM_OK) {
            /* With home >= 0 the loop has skipped device 0, so its reason is not known yet. */
            if (d > 0 && (home < 0 || tdm_open_device_supports_op(s->devs[0].dev, graph, index,
                                                                  &why) != TDM_OK))
                tdm_refusal_report(s->devs[0].dev, s->devs[d].dev, graph, node,
                                   home < 0 ? first_reason : why.message);
            node_claim(p, node, d);
            *dev_out = d;
            return TDM_OK;
        }
        if (d == 0) snprintf(first_reason, sizeof first_reason, "%.150s", why.message);
        int n = snprintf(reasons + used, sizeof reasons - used, "%s%s%s: %s", used > 0 ? "; " : "",
                         tdm_open_device_name(s->devs[d].dev),
                         home >= 0 ? ", where its data is" : "", why.message);
        used += n > 0 ? (size_t)n : 0;
        if (used >= sizeof reasons) used = sizeof reasons - 1;
    }
    return tdm_fail(err, TDM_UNSUPPORTED, "%s '%s': no device runs it: %s", tdm_op_name(node->op),
                    node_label(graph, node), reasons);
}

tdm_status tdm_schedule_place_slots(tdm_scratch *s, const tdm_graph *graph, int32_t *slot_dev,
                                    int32_t *dev_out, tdm_error *err) {
    placement p = {.scratch = s, .graph = graph, .slot_dev = slot_dev};
    tdm_status status = placement_begin(&p, err);
    if (status != TDM_OK) return status;
    int32_t last = -1;
    for (int32_t i = 0; i < graph->n_node && status == TDM_OK; i++) {
        /* A view moves no bytes, so it never starts a stage. */
        if (!tdm_op_is_view(tdm_graph_node(graph, i)->op)) status = node_place(&p, i, &last, err);
        dev_out[i] = last;
    }
    free(p.data_slot);
    free(p.is_plain);
    if (status != TDM_OK) return status;
    for (int32_t i = graph->n_node - 1, next = last; i >= 0; i--) {
        if (dev_out[i] < 0) dev_out[i] = next < 0 ? 0 : next;
        next = dev_out[i];
    }
    return TDM_OK;
}

int32_t *tdm_schedule_slot_devs(const tdm_scratch *scratch, const tdm_graph *graph,
                                const tdm_slot_mem *fixed, tdm_error *err) {
    int32_t *slot_dev = malloc(((size_t)graph->n_slot + 1) * sizeof *slot_dev);
    if (slot_dev == NULL) tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
    for (int32_t i = 0; slot_dev != NULL && i < graph->n_slot; i++) {
        slot_dev[i] = -1;
        for (int32_t d = 0; fixed != NULL && d < scratch->n_dev; d++)
            if (fixed[i].mem.dev == scratch->devs[d].dev) slot_dev[i] = d;
    }
    return slot_dev;
}

/* The device of the first node that reads each weight or state, through views too. */
static tdm_status readers_find(const tdm_graph *graph, const int32_t *node_dev,
                               int32_t *slot_dev_out, tdm_error *err) {
    tdm_view_place *places = malloc(((size_t)graph->n_value + 1) * sizeof *places);
    if (places == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "schedule: out of memory");
    tdm_view_resolve_all(graph, places);
    for (int32_t i = 0; i < graph->n_slot; i++) slot_dev_out[i] = -1;
    for (int32_t n = graph->n_node - 1; n >= 0; n--) {
        const tdm_node *node = tdm_graph_node(graph, n);
        for (int32_t i = 0; i < node->n_src && !tdm_op_is_view(node->op); i++) {
            if (node->src[i] < 0) continue;
            const tdm_value *base = tdm_graph_value(graph, places[node->src[i]].base);
            if (base->kind == TDM_VALUE_WEIGHT || base->kind == TDM_VALUE_STATE)
                slot_dev_out[base->slot] = node_dev[n];
        }
    }
    free(places);
    return TDM_OK;
}

tdm_status tdm_schedule_place(tdm_scratch *scratch, const tdm_graph *graph,
                              const tdm_slot_mem *fixed, int32_t *dev_out, int32_t *slot_dev_out,
                              tdm_error *err) {
    int32_t *slot_dev = tdm_schedule_slot_devs(scratch, graph, fixed, err);
    if (slot_dev == NULL) return TDM_RESOURCE_EXHAUSTED;
    tdm_status status = tdm_schedule_place_slots(scratch, graph, slot_dev, dev_out, err);
    if (status == TDM_OK && slot_dev_out != NULL)
        status = readers_find(graph, dev_out, slot_dev_out, err);
    free(slot_dev);
    return status;
}
