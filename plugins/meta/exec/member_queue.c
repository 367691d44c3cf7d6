/* SPDX-License-Identifier: MIT
 *
 * member_queue.c: uploads, stages and exchanges of one member: those that the host performs, and
 * the flags of those that the member performs in phases. Data and flags of an exchange are
 * exchange_host.c's.
 */
#include "plugins/meta/exec/member_queue.h"

#include <string.h>

#include "plugins/meta/exec/queue.h"
#include "plugins/meta/exec/step_block.h"
#include "plugins/meta/exec/stuck.h"

enum { SLICE_NS = 20000000 }; /* between two polls of is_abandoned */

static meta_member *member_of(const meta_member_queue *member_queue) {
    return &member_queue->device->members[member_queue->d];
}

static const tdm_host_semaphore_ops *semaphores(const meta_member_queue *member_queue) {
    return member_queue->device->host->semaphore;
}

tdm_status meta_member_queue_create(meta_device *device, int32_t d, meta_member_queue *member_queue,
                                    tdm_error *err) {
    meta_member *member = &device->members[d];
    tdm_error inner = {0};
    member_queue->device = device;
    member_queue->d = d;
    tdm_status status = member->acquired.plugin->queue->create(member->acquired.device,
                                                               &member_queue->queue, &inner);
    if (status == TDM_OK && member->acquired.plugin->queue == &meta_queue_ops)
        meta_queue_set_inner(member_queue->queue);
    if (status == TDM_OK) return TDM_OK;
    member_queue->queue = NULL;
    return tdm_fail(err, status, "member '%s': %s", member->name, inner.message);
}

void meta_member_queue_destroy(meta_member_queue *member_queue) {
    if (member_queue->device == NULL) return;
    const meta_member *member = &member_queue->device->members[member_queue->d];
    if (member_queue->queue != NULL) member->acquired.plugin->queue->destroy(member_queue->queue);
    semaphores(member_queue)->destroy(member_queue->semaphore);
    member_queue->queue = NULL;
    member_queue->semaphore = NULL;
}

tdm_status meta_member_queue_begin(meta_member_queue *member_queue, tdm_error *err) {
    uint64_t value;
    member_queue->status = TDM_OK;
    atomic_store_explicit(&member_queue->is_done, false, memory_order_relaxed);
    atomic_store_explicit(&member_queue->is_submitted, false, memory_order_relaxed);
    atomic_store_explicit(&member_queue->is_abandoned, false, memory_order_relaxed);
    if (member_queue->semaphore != NULL &&
        semaphores(member_queue)->query(member_queue->semaphore, &value, NULL) != TDM_OK) {
        semaphores(member_queue)->destroy(member_queue->semaphore);
        member_queue->semaphore = NULL;
    }
    if (member_queue->semaphore != NULL) return TDM_OK;
    member_queue->value = 0;
    return semaphores(member_queue)->create(0, &member_queue->semaphore, err);
}

/* ---- Uploads --------------------------------------------------------------------------------- */

static uint8_t *host_address(const meta_member_queue *member_queue, tdm_buffer *buffer,
                             uint32_t access) {
    const tdm_buffer_ops *ops = meta_member_buffers(member_of(member_queue));
    return TDM_HAS(ops, host_pointer) ? ops->host_pointer(buffer, access) : NULL;
}

static tdm_status bytes_upload(const meta_member_queue *member_queue, const tdm_binding *to,
                               const void *src, uint64_t size, tdm_error *err) {
    uint8_t *host = host_address(member_queue, to->buffer, TDM_ACCESS_WRITE);
    if (host == NULL)
        return meta_member_buffers(member_of(member_queue))
            ->upload(to->buffer, to->off, src, size, err);
    memcpy(host + to->off, src, size);
    return TDM_OK;
}

static tdm_status step_upload(const meta_member_queue *member_queue, meta_plan *plan, int32_t slot,
                              tdm_error *err) {
    meta_member_plan *m = &plan->members[member_queue->d];
    const tdm_binding *to = &m->slot_bindings[slot];
    const tdm_graph *graph = plan->graph;
    const tdm_binding *b = &plan->bindings[tdm_graph_value(graph, graph->step)->slot];
    uint8_t *host = host_address(member_queue, to->buffer, TDM_ACCESS_WRITE);
    uint8_t *block = host != NULL ? host + to->off : m->staging;
    tdm_status status = meta_step_rewrite(graph, plan->pages, plan->n_page, member_queue->d,
                                          (const int32_t *)(const void *)(b->buffer->host + b->off),
                                          to->size, (int32_t *)(void *)block, err);
    if (status == TDM_OK && host == NULL)
        status = bytes_upload(member_queue, to, block, to->size, err);
    return status;
}

tdm_status meta_member_queue_upload(meta_member_queue *member_queue, meta_plan *plan,
                                    uint32_t epoch, tdm_error *err) {
    meta_member_plan *m = &plan->members[member_queue->d];
    for (int32_t i = 0; i < m->part.graph.n_slot; i++) {
        const meta_slot *slot = &m->part.slots[i];
        const tdm_binding *to = &m->slot_bindings[i];
        tdm_status status = TDM_OK;
        if (m->temp_off[i] == META_NOWHERE || slot->size == 0) continue;
        if (slot->source == META_SLOT_EPOCH) {
            tdm_step_header header = {.version = TDM_STEP_VERSION,
                                      .size = sizeof header / sizeof(int32_t),
                                      .epoch = (int32_t)epoch,
                                      .exchange_base =
                                          (int32_t)member_queue->device->exchange_base};
            status = bytes_upload(member_queue, to, &header, sizeof header, err);
        } else if (slot->source == META_SLOT_STEP) {
            status = step_upload(member_queue, plan, i, err);
        } else if (slot->source == META_SLOT_INPUT &&
                   to->buffer == member_of(member_queue)->memory[META_MEMORY_INPUT]) {
            const tdm_binding *b = &plan->bindings[tdm_graph_value(plan->graph, slot->value)->slot];
            status = bytes_upload(member_queue, to, b->buffer->host + b->off, to->size, err);
        }
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

tdm_status meta_member_queue_submit(meta_member_queue *member_queue, meta_plan *plan, int32_t stage,
                                    tdm_error *err) {
    const meta_stage *s = &plan->members[member_queue->d].stages[stage];
    if (s->plan == NULL) return TDM_OK;
    tdm_point done = {member_queue->semaphore, member_queue->value + 1};
    tdm_status status = member_of(member_queue)
                            ->acquired.plugin->queue->graph_compute(member_queue->queue, s->plan,
                                                                    NULL, 0, &done, 1, err);
    if (status == TDM_OK) member_queue->value++;
    return status;
}

bool meta_member_queue_wait(meta_member_queue *member_queue, uint64_t timeout_ns,
                            tdm_status *status_out, tdm_error *err) {
    tdm_status status = semaphores(member_queue)
                            ->wait(member_queue->semaphore, member_queue->value, timeout_ns, err);
    if (status == TDM_DEADLINE_EXCEEDED) {
        /* The status is that of the wait's timeout, or of a member that failed with it. */
        uint64_t value = 0;
        status = semaphores(member_queue)->query(member_queue->semaphore, &value, err);
        if (status == TDM_OK && value < member_queue->value) return false;
    }
    *status_out = status;
    return true;
}

static tdm_status stage_run(meta_member_queue *member_queue, meta_plan *plan, int32_t stage,
                            tdm_error *err) {
    tdm_status status = meta_member_queue_submit(member_queue, plan, stage, err);
    if (status != TDM_OK) return status;
    while (!meta_member_queue_wait(member_queue, SLICE_NS, &status, err))
        if (atomic_load(&member_queue->is_abandoned))
            return tdm_fail(err, TDM_CANCELLED, "abandoned while it was computing");
    atomic_fetch_add_explicit(&member_queue->n_step, 1, memory_order_relaxed);
    return status;
}

/* ---- Exchanges by the host ------------------------------------------------------------------- */

static void payload_describe(const meta_part *part, int32_t x, int32_t y, meta_payload *out) {
    if (y >= 0) {
        const tdm_value *v = meta_part_value(part, y);
        out->type = v->type;
        memcpy(out->ne, v->ne, sizeof out->ne);
    }
    if (x >= 0) memcpy(out->x_ne, meta_part_value(part, x)->ne, sizeof out->x_ne);
}

void meta_exchange_describe(const meta_part *part, int32_t index, uint32_t epoch,
                            meta_exchange_args *out) {
    const tdm_node *node = tdm_graph_node(&part->graph, index);
    memset(out, 0, sizeof *out);
    out->params = &node->params.exchange;
    out->epoch = epoch;
    payload_describe(part, node->src[0], node->dst[0], &out->first);
    payload_describe(part, node->src[4], node->dst[1], &out->second);
}

/* Copies the elements of a view to contiguous memory. */
static void view_pack(const tdm_value *v, const tdm_view_place *place, const uint8_t *src,
                      uint8_t *dst) {
    tdm_type_info info = tdm_type_get_info((tdm_type)v->type);
    size_t size = (size_t)info.block_size;
    for (int64_t i3 = 0; i3 < v->ne[3]; i3++)
        for (int64_t i2 = 0; i2 < v->ne[2]; i2++)
            for (int64_t i1 = 0; i1 < v->ne[1]; i1++) {
                const uint8_t *row =
                    src + i1 * place->nb[1] + i2 * place->nb[2] + i3 * place->nb[3];
                for (int64_t i0 = 0; i0 < v->ne[0] / info.block_len; i0++, dst += size)
                    memcpy(dst, row + i0 * place->nb[0], size);
            }
}

/* A source of an exchange as contiguous bytes in host memory: in place where it is that already,
 * else copied to *staging, which is advanced. */
static tdm_status source_fetch(const meta_member_queue *member_queue, const meta_plan *plan,
                               int32_t value, uint8_t **staging, const void **out, tdm_error *err) {
    const meta_member_plan *m = &plan->members[member_queue->d];
    const meta_part *part = &m->part;
    const tdm_value *v = meta_part_value(part, value);
    const tdm_view_place *place = &part->places[value];
    const tdm_binding *b = &m->slot_bindings[meta_part_value(part, place->base)->slot];
    uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    bool is_contiguous = tdm_view_is_contiguous(v, place);
    *out = *staging;
    if (size == 0) return TDM_OK; /* a value without bytes needs no place */
    const uint8_t *host = host_address(member_queue, b->buffer, TDM_ACCESS_READ);
    if (host != NULL && is_contiguous) {
        *out = host + b->off + place->off;
        return TDM_OK;
    }
    uint8_t *packed = *staging;
    *staging += (size + 63) / 64 * 64;
    *out = packed;
    if (host != NULL) {
        view_pack(v, place, host + b->off + place->off, packed);
        return TDM_OK;
    }
    const tdm_buffer_ops *ops = meta_member_buffers(member_of(member_queue));
    if (is_contiguous)
        return ops->download(b->buffer, b->off + (uint64_t)place->off, packed, size, err);
    uint64_t span = meta_part_span(&m->part, value);
    uint8_t *whole = *staging;
    *staging += (span + 63) / 64 * 64;
    tdm_status status = ops->download(b->buffer, b->off + (uint64_t)place->off, whole, span, err);
    if (status == TDM_OK) view_pack(v, place, whole, packed);
    return status;
}

/* The place of a result: in the member's memory where the host can write it, else *staging, which
 * is advanced. An absent value has none. */
static const tdm_binding *result_place(const meta_member_queue *member_queue,
                                       const meta_member_plan *m, int32_t value, uint8_t **staging,
                                       void **out) {
    if (value < 0) return NULL;
    int32_t slot = meta_part_value(&m->part, value)->slot;
    const tdm_binding *y = &m->slot_bindings[slot];
    *out = *staging;
    if (m->part.slots[slot].size == 0) return NULL; /* a value without bytes needs no place */
    uint8_t *host = host_address(member_queue, y->buffer, TDM_ACCESS_WRITE);
    if (host != NULL) {
        *out = host + y->off;
        return NULL;
    }
    *staging += (y->size + 63) / 64 * 64;
    return y;
}

/* The arguments of an exchange, without data. names[TDM_MAX_MEMBERS] receives the members' names by
 * rank. */
static void args_fill(const meta_member_queue *member_queue, const meta_plan *plan, int32_t index,
                      uint32_t epoch, const char **names, meta_exchange_args *out) {
    const meta_device *device = member_queue->device;
    meta_exchange_describe(&plan->members[member_queue->d].part, index, epoch, out);
    out->base = device->exchange_base;
    for (int32_t d = 0; d < device->n_member; d++)
        if (meta_is_active(device, d)) names[device->members[d].rank] = device->members[d].name;
    out->names = names;
}

static tdm_status exchange_run(meta_member_queue *member_queue, meta_plan *plan, int32_t index,
                               uint32_t epoch, tdm_error *err) {
    const meta_member_plan *m = &plan->members[member_queue->d];
    const tdm_node *node = tdm_graph_node(&m->part.graph, index);
    const char *names[TDM_MAX_MEMBERS];
    const void *residual = NULL;
    uint8_t *staging = m->staging;
    meta_exchange_args args;
    tdm_status status = TDM_OK;
    args_fill(member_queue, plan, index, epoch, names, &args);
    if (node->src[0] >= 0)
        status = source_fetch(member_queue, plan, node->src[0], &staging, &args.first.x, err);
    if (status == TDM_OK && node->src[4] >= 0)
        status = source_fetch(member_queue, plan, node->src[4], &staging, &args.second.x, err);
    if (status == TDM_OK && node->src[3] >= 0)
        status = source_fetch(member_queue, plan, node->src[3], &staging, &residual, err);
    if (status != TDM_OK) return status;
    args.residual = residual;
    /* NULL: the host writes the result in place. */
    const tdm_binding *uploads[2] = {
        result_place(member_queue, m, node->dst[0], &staging, &args.first.result),
        result_place(member_queue, m, node->dst[1], &staging, &args.second.result)};
    status = meta_exchange_host(member_queue->device->arena, &args, err);
    if (status == TDM_OK && uploads[0] != NULL)
        status = bytes_upload(member_queue, uploads[0], args.first.result, uploads[0]->size, err);
    if (status == TDM_OK && uploads[1] != NULL)
        status = bytes_upload(member_queue, uploads[1], args.second.result, uploads[1]->size, err);
    atomic_fetch_add_explicit(&member_queue->n_step, 1, memory_order_relaxed);
    return status;
}

/* Between the phases of a member's exchange. What it published is in the arena: its stage has
 * ended. */
static tdm_status exchange_pass(meta_member_queue *member_queue, const meta_plan *plan,
                                int32_t index, uint32_t epoch, tdm_error *err) {
    const char *names[TDM_MAX_MEMBERS];
    meta_exchange_args args;
    args_fill(member_queue, plan, index, epoch, names, &args);
    tdm_status status = meta_exchange_pass(member_queue->device->arena, &args, err);
    atomic_fetch_add_explicit(&member_queue->n_step, 1, memory_order_relaxed);
    return status;
}

tdm_status meta_member_queue_run(meta_member_queue *member_queue, meta_plan *plan, uint32_t epoch,
                                 tdm_error *err) {
    const meta_member_plan *m = &plan->members[member_queue->d];
    tdm_status status = meta_member_queue_upload(member_queue, plan, epoch, err);
    for (int32_t s = 0; s < m->n_stage && status == TDM_OK; s++) {
        if (m->stages[s].plan != NULL) status = stage_run(member_queue, plan, s, err);
        int32_t exchange = m->stages[s].exchange;
        if (status != TDM_OK || exchange < 0) continue;
        status = member_of(member_queue)->exchange == META_EXCHANGE_BY_HOST
                     ? exchange_run(member_queue, plan, exchange, epoch, err)
                     : exchange_pass(member_queue, plan, exchange, epoch, err);
    }
    return status;
}
