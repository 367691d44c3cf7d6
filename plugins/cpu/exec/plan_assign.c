/* SPDX-License-Identifier: MIT
 *
 * plan_assign.c: which bytes each worker reads and writes, and hence where barriers stand.
 *
 * Ops divide contiguous values among the workers in units (cpu_op_impl.share_unit). If one node
 * writes a value and the next reads it in the same units, each worker reads only what it wrote
 * itself, and no barrier is needed between them. Many ops accept any unit. They take the unit of
 * the readers of their result: for example, a product computes whole heads in one worker where the
 * rotation after it needs whole heads. Products whose pieces are claimed (claims.h) take no unit: a
 * barrier follows them.
 *
 * Addresses decide the rest, since the caller may bind two temporaries to the same bytes. A node
 * needs a barrier before it if it reads or writes bytes that a node since the last barrier wrote,
 * or if it writes bytes that such a node read.
 */
#include "plugins/cpu/exec/plan_internal.h"

enum { N_ARG = TDM_MAX_SRC + TDM_MAX_DST, MAX_SPANS = 64 };

/* ---- Units ----------------------------------------------------------------------------------- */

static void units_get(plan_node *p) {
    for (int32_t i = 0; i < N_ARG; i++)
        p->units[i] = p->node.impl->share_unit != NULL && cpu_plan_place(p, i)->slot >= 0
                          ? p->node.impl->share_unit(&p->node, i)
                          : 0;
}

tdm_status cpu_plan_units_choose(tdm_plan *plan, tdm_error *err) {
    const tdm_host *host = plan->device->host;
    size_t size = (size_t)(plan->n_slot + 1) * sizeof(int64_t);
    /* [n_slot] the unit of the last reader that has one; 0 = none */
    int64_t *wanted = host->alloc(host->context, size, 0);
    if (wanted == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory to assign the work of a plan");
    memset(wanted, 0, size);
    for (int32_t i = plan->n_node - 1; i >= 0; i--) {
        plan_node *p = &plan->nodes[i];
        p->node.unit = p->dst[0].slot >= 0 ? wanted[p->dst[0].slot] : 0;
        units_get(p);
        for (int32_t k = 0; k < TDM_MAX_SRC; k++)
            if (p->units[k] != 0 && wanted[p->src[k].slot] == 0)
                wanted[p->src[k].slot] = p->units[k];
    }
    host->free(host->context, wanted, size);
    return TDM_OK;
}

/* ---- Barriers -------------------------------------------------------------------------------- */

typedef struct plan_span {
    const uint8_t *first, *end;
    int64_t unit; /* as assigned; 0 = any worker touches any of it */
    bool is_written;
} plan_span;

/* Bytes touched by the nodes since the last barrier. */
typedef struct plan_spans {
    plan_span spans[MAX_SPANS];
    int n;
} plan_spans;

static bool spans_meet(const plan_span *a, const plan_span *b) {
    return a->first < b->end && b->first < a->end;
}

/* True where a worker might touch what another writes. */
static bool spans_conflict(const plan_span *a, const plan_span *b) {
    if (!(a->is_written || b->is_written) || !spans_meet(a, b)) return false;
    return a->unit == 0 || a->unit != b->unit || a->first != b->first || a->end != b->end;
}

/* The bytes that a node reads and writes: of a value that is divided in units only the value; of
 * others the whole slot, which contains all views of it. An op with prepared sources does not read
 * the sources themselves. */
static int node_spans(const tdm_plan *plan, const plan_node *p, plan_span *out) {
    int n = 0;
    for (int32_t i = 0; i < N_ARG; i++) {
        const plan_place *place = cpu_plan_place(p, i);
        if (place->slot < 0 || plan->slot_sizes[place->slot] == 0) continue;
        if (p->prepared.size > 0 && !p->makes_prepared && (p->prepared.made_of >> i & 1) != 0)
            continue;
        plan_span *span = &out[n++];
        *span = (plan_span){.unit = p->units[i],
                            .is_written = i >= TDM_MAX_SRC || (place->is_state && p->writes_state)};
        if (span->unit != 0) {
            const cpu_view *v = cpu_plan_view(p, i);
            span->first = v->data;
            span->end = v->data + tdm_tensor_canonical_size(v->type, v->ne);
        } else {
            span->first = plan->bases[place->slot];
            span->end = span->first + plan->slot_sizes[place->slot];
        }
    }
    if (p->scratch_size > 0)
        out[n++] = (plan_span){
            .first = p->node.scratch, .end = p->node.scratch + p->scratch_size, .is_written = true};
    if (p->prepared.size > 0)
        out[n++] = (plan_span){.first = p->node.prepared,
                               .end = p->node.prepared + p->prepared.size,
                               .is_written = p->makes_prepared};
    return n;
}

/* True if an earlier node prepared the same sources and no node has written them since. */
static bool prepared_is_there(const tdm_plan *plan, const plan_node *p) {
    if (p->prepared_before < 0) return false;
    plan_span sources[N_ARG + 2], others[N_ARG + 2];
    int n_source = node_spans(plan, p, sources) - 1; /* the last is what it prepares */
    for (const plan_node *q = &plan->nodes[p->prepared_before]; q < p; q++) {
        int n = node_spans(plan, q, others);
        for (int i = 0; i < n * n_source; i++)
            if (others[i % n].is_written && spans_meet(&others[i % n], &sources[i / n]))
                return false;
    }
    return true;
}

void cpu_plan_barriers_place(tdm_plan *plan) {
    plan_spans since = {.n = 0};
    bool was_exchange = false;
    for (int32_t i = 0; i < plan->n_node; i++) {
        plan_node *p = &plan->nodes[i];
        plan_span spans[N_ARG + 2];
        p->needs_barrier = false;
        p->is_idle = p->makes_prepared && prepared_is_there(plan, p);
        if (p->is_idle) continue;
        int n = node_spans(plan, p, spans);
        p->needs_barrier = since.n + n > MAX_SPANS || was_exchange;
        for (int k = 0; k < n * since.n && !p->needs_barrier; k++)
            p->needs_barrier = spans_conflict(&spans[k % n], &since.spans[k / n]);
        if (p->needs_barrier) since.n = 0;
        memcpy(&since.spans[since.n], spans, (size_t)n * sizeof spans[0]);
        since.n += n;
        was_exchange = p->node.exchange != NULL;
    }
}
