/* SPDX-License-Identifier: MIT
 *
 * plan_memory.c: the memory of a plan: scratch of its nodes, and the prepared sources that several
 * of them read. Each is an area that is used from one node to another. Areas that are not used at
 * the same time share bytes.
 *
 * An area is kept until the next area is no longer used. Otherwise a node could get the bytes that
 * the node before it has just read, and would need a barrier for that alone.
 */
#include "core/base/packing.h"
#include "plugins/cpu/exec/plan_internal.h"

static bool is_same_source(const plan_node *p, const plan_node *q, int32_t i) {
    const cpu_view *x = &p->node.src[i], *y = &q->node.src[i];
    return p->src[i].slot == q->src[i].slot && p->src[i].off == q->src[i].off &&
           x->type == y->type && memcmp(x->ne, y->ne, sizeof x->ne) == 0 &&
           memcmp(x->nb, y->nb, sizeof x->nb) == 0;
}

static bool is_same_prepared(const plan_node *p, const plan_node *q) {
    const cpu_prepared *f = &p->prepared, *g = &q->prepared;
    if (f->maker != g->maker || f->made_of != g->made_of || f->reads != g->reads ||
        f->size != g->size)
        return false;
    for (int32_t i = 0; i < TDM_MAX_SRC; i++)
        if (((f->made_of | f->reads) >> i & 1) != 0 && !is_same_source(p, q, i)) return false;
    return f->is_same == NULL || f->is_same(&p->node, &q->node);
}

/* The last node before `index` that prepares the same sources, -1 if there is none. */
static int32_t maker_find(const tdm_plan *plan, int32_t index) {
    for (int32_t i = index - 1; i >= 0; i--)
        if (plan->nodes[i].makes_prepared && is_same_prepared(&plan->nodes[i], &plan->nodes[index]))
            return i;
    return -1;
}

/* Lists the areas in the order of their first use; returns their number. */
static int32_t areas_list(tdm_plan *plan, tdm_packed *areas) {
    int32_t n = 0;
    for (int32_t i = 0; i < plan->n_node; i++) {
        plan_node *p = &plan->nodes[i];
        size_t size = p->makes_prepared ? p->prepared.size : p->scratch_size;
        int32_t before = p->makes_prepared ? maker_find(plan, i) : -1;
        p->prepared_before = before;
        p->scratch_area = p->prepared_area = -1;
        if (before >= 0) {
            p->prepared_area = plan->nodes[before].prepared_area;
        } else if (size > 0) {
            *(p->makes_prepared ? &p->prepared_area : &p->scratch_area) = n;
            areas[n] =
                (tdm_packed){.id = n, .first = i, .last = i, .size = (size + 63) & ~(size_t)63};
            n++;
        }
        if (!p->makes_prepared && p->prepared.size > 0) p->prepared_area = p[-1].prepared_area;
        if (p->prepared_area >= 0) areas[p->prepared_area].last = i;
    }
    for (int32_t i = 0; i + 1 < n; i++)
        if (areas[i].last < areas[i + 1].last) areas[i].last = areas[i + 1].last;
    return n;
}

tdm_status cpu_plan_memory_make(tdm_plan *plan, tdm_error *err) {
    const tdm_host *host = plan->device->host;
    size_t n_most = (size_t)plan->n_node + 1;
    size_t list_size = n_most * (sizeof(tdm_packed) + sizeof(uint64_t));
    tdm_packed *areas = host->alloc(host->context, list_size, 0);
    if (areas == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory to lay out a plan's scratch");
    uint64_t *offs = (void *)(areas + n_most), size = 0;
    int32_t n = areas_list(plan, areas);
    bool is_packed = tdm_pack(areas, n, &size) && size <= SIZE_MAX;
    for (int32_t i = 0; i < n; i++) offs[areas[i].id] = areas[i].off;
    for (int32_t i = 0; i < plan->n_node && is_packed; i++) {
        plan_node *p = &plan->nodes[i];
        if (p->scratch_area >= 0) p->scratch_off = (size_t)offs[p->scratch_area];
        if (p->prepared_area >= 0) p->prepared_off = (size_t)offs[p->prepared_area];
    }
    host->free(host->context, areas, list_size);
    if (!is_packed)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "cpu: a plan needs more scratch than there are addresses");
    plan->scratch_size = (size_t)size;
    return cpu_scratch_reserve(plan->scratch, plan->scratch_size, err);
}
