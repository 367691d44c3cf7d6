/* SPDX-License-Identifier: MIT
 *
 * exchange_host.c: one member's EXCHANGE, performed by the host for a device that cannot. It
 * follows the protocol of tandem/collective.h and uses the arithmetic of core/base/wire.h. So
 * members that exchange inside their plans and members that use the host take part in the same
 * exchange and get equal bits.
 *
 * A member publishes all chunks of a sum before it waits. Other members add the first chunks while
 * later ones are still being converted.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "core/base/relax.h"
#include "core/base/wire.h"
#include "plugins/meta/exchange/arena.h"
#include "plugins/meta/exec/event.h"

enum { FLAG_LINE = 64 }; /* bytes */

static bool is_sender(const tdm_exchange_params *p, int32_t rank) {
    return (p->senders >> rank & 1) != 0;
}

static _Atomic uint64_t *word_at(const meta_arena *arena, uint64_t off) {
    return (_Atomic uint64_t *)(void *)(arena->data + off);
}

static _Atomic uint64_t *flag_at(const meta_arena *arena, const tdm_exchange_params *p,
                                 int32_t rank) {
    return word_at(arena, p->flag_off + (uint64_t)rank * FLAG_LINE);
}

/* Shape of the addends of a sum. */
static void addend_shape(const meta_exchange_args *a, int64_t ne_out[TDM_MAX_DIMS]) {
    const tdm_exchange_params *p = a->params;
    memcpy(ne_out, a->first.ne, sizeof a->first.ne);
    if (p->kind == TDM_EXCHANGE_SUM_PART)
        ne_out[p->axis] = p->whole != 0 ? p->whole : a->first.x_ne[p->axis];
}

int64_t meta_exchange_chunks(const meta_exchange_args *a) {
    int64_t ne[TDM_MAX_DIMS];
    if (a->params->kind == TDM_EXCHANGE_GATHER) return 1;
    addend_shape(a, ne);
    int64_t n = (tdm_shape_count(ne) + TDM_EXCHANGE_CHUNK - 1) / TDM_EXCHANGE_CHUNK;
    return n > 0 ? n : 1;
}

/* ---- Publishing ------------------------------------------------------------------------------ */

static void flag_publish(meta_arena *arena, const meta_exchange_args *a, int64_t n_chunk) {
    uint64_t value = (uint64_t)a->epoch << 32 | (uint64_t)n_chunk;
    atomic_store_explicit(flag_at(arena, a->params, a->params->member), value,
                          memory_order_release);
}

/* Data of the area that the exchange uses. */
static uint8_t *data_at(const meta_arena *arena, const meta_exchange_args *a, uint64_t off) {
    uint64_t area = ((a->base + (uint32_t)a->params->stage) & 1) * a->params->area_stride;
    return arena->data + off + area;
}

/* A payload of a GATHER. */
typedef struct payload {
    const meta_payload *data;
    int32_t axis, first;
    uint64_t off;
} payload;

static payload payload_of(const meta_exchange_args *a, int i) {
    const tdm_exchange_params *p = a->params;
    if (i == 0) return (payload){&a->first, p->axis, p->first, p->data_off};
    return (payload){&a->second, p->axis2, p->first2, p->data_off2};
}

static int payload_count(const meta_exchange_args *a) {
    return a->params->data_off2 != 0 ? 2 : 1;
}

/* Copies a member's part of a payload: `run` bytes at every `pitch` bytes of the result. */
static void part_copy(const payload *l, uint8_t *whole) {
    const meta_payload *d = l->data;
    const tdm_type type = (tdm_type)d->type;
    size_t inner = 1, first, run, pitch;
    int64_t outer = 1;
    for (int32_t i = l->axis + 1; i < TDM_MAX_DIMS; i++) outer *= d->ne[i];
    if (l->axis == 0) {
        first = tdm_type_row_size(type, l->first);
        run = tdm_type_row_size(type, d->x_ne[0]);
        pitch = tdm_type_row_size(type, d->ne[0]);
    } else {
        inner = tdm_type_row_size(type, d->ne[0]);
        for (int32_t i = 1; i < l->axis; i++) inner *= (size_t)d->ne[i];
        first = (size_t)l->first * inner;
        run = (size_t)d->x_ne[l->axis] * inner;
        pitch = (size_t)d->ne[l->axis] * inner;
    }
    if (run == 0) return;
    for (int64_t o = 0; o < outer; o++)
        memcpy(whole + (size_t)o * pitch + first, (const uint8_t *)d->x + (size_t)o * run, run);
}

void meta_exchange_publish(meta_arena *arena, const meta_exchange_args *a) {
    const tdm_exchange_params *p = a->params;
    bool sends = is_sender(p, p->member);
    if (p->kind == TDM_EXCHANGE_GATHER) {
        for (int i = 0; i < payload_count(a) && sends; i++) {
            payload l = payload_of(a, i);
            part_copy(&l, data_at(arena, a, l.off));
        }
        flag_publish(arena, a, 1);
        return;
    }
    int64_t ne[TDM_MAX_DIMS], n_chunk = meta_exchange_chunks(a);
    addend_shape(a, ne);
    int64_t count = tdm_shape_count(ne);
    const tdm_type type = (tdm_type)p->wire_type;
    uint8_t *wire = data_at(arena, a, p->data_off) + (uint64_t)p->member * p->data_stride;
    for (int64_t c = 0; c < n_chunk; c++) {
        int64_t first = c * TDM_EXCHANGE_CHUNK;
        int64_t n = count - first < TDM_EXCHANGE_CHUNK ? count - first : TDM_EXCHANGE_CHUNK;
        if (sends)
            tdm_wire_store(type, (const float *)a->first.x + first,
                           wire + tdm_type_row_size(type, first), n);
        flag_publish(arena, a, c + 1);
    }
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Spins, then yields, then sleeps for longer and longer, because the awaited member may need this
 * processor. */
static void wait_pause(int32_t n_poll) {
    if (n_poll < 256) {
        tdm_relax();
    } else if (n_poll < 1024) {
        sched_yield();
    } else {
        struct timespec t = {0, n_poll < 4096 ? 20000 : 200000};
        nanosleep(&t, NULL);
    }
}

static tdm_status late(const meta_exchange_args *a, int32_t rank, tdm_error *err) {
    char number[24];
    const char *name = number;
    snprintf(number, sizeof number, "%d", (int)rank);
    if (a->names != NULL && a->names[rank] != NULL) name = a->names[rank];
    return tdm_fail(err, TDM_DEADLINE_EXCEEDED, "exchange %d: member '%s' has sent nothing",
                    (int)a->params->stage, name);
}

/* Waits until every member has published n_chunk chunks; members that send nothing publish too. */
static tdm_status flags_wait(const meta_arena *arena, const meta_exchange_args *a, int64_t n_chunk,
                             tdm_error *err) {
    const tdm_exchange_params *p = a->params;
    const _Atomic uint64_t *abort_word = word_at(arena, 0);
    uint64_t want = (uint64_t)a->epoch << 32 | (uint64_t)n_chunk, begin = 0;
    int32_t n_poll = 0;
    for (int32_t rank = 0; rank < p->n_member; rank++) {
        const _Atomic uint64_t *flag = flag_at(arena, p, rank);
        while ((int64_t)(atomic_load_explicit(flag, memory_order_acquire) - want) < 0) {
            if (atomic_load_explicit(abort_word, memory_order_acquire) != 0) break;
            wait_pause(n_poll++);
            if (n_poll % 256 != 0) continue;
            uint64_t now = meta_clock_ns();
            if (begin == 0) begin = now;
            if (now - begin > TDM_EXCHANGE_TIMEOUT_NS) return late(a, rank, err);
        }
    }
    if (atomic_load_explicit(abort_word, memory_order_acquire) != 0)
        return tdm_fail(err, TDM_CANCELLED, "exchange %d: another member failed", (int)p->stage);
    return TDM_OK;
}

/* ---- Summing --------------------------------------------------------------------------------- */

/* The addends of the senders, in member order. */
static int32_t addends_find(const meta_arena *arena, const meta_exchange_args *a,
                            const void **addends) {
    const tdm_exchange_params *p = a->params;
    int32_t n = 0;
    for (int32_t rank = 0; rank < p->n_member; rank++)
        if (is_sender(p, rank))
            addends[n++] = data_at(arena, a, p->data_off) + (uint64_t)rank * p->data_stride;
    return n;
}

/* Sums the elements of chunk c that belong to the result: all of them, or (SUM_PART) those in the
 * part of each row that the member receives. */
static void chunk_sum(const meta_arena *arena, const meta_exchange_args *a,
                      const int64_t ne[TDM_MAX_DIMS], int64_t c) {
    const tdm_exchange_params *p = a->params;
    int64_t count = tdm_shape_count(ne), begin = c * TDM_EXCHANGE_CHUNK;
    int64_t end = count - begin < TDM_EXCHANGE_CHUNK ? count : begin + TDM_EXCHANGE_CHUNK;
    int64_t inner = 1, run = count, pitch = count, first = 0;
    const void *addends[TDM_MAX_MEMBERS];
    const int32_t n_addend = addends_find(arena, a, addends);
    if (begin >= end) return;
    if (p->kind == TDM_EXCHANGE_SUM_PART) {
        for (int32_t i = 0; i < p->axis; i++) inner *= ne[i];
        pitch = ne[p->axis] * inner;
        run = a->first.ne[p->axis] * inner;
        first = p->first * inner;
    }
    for (int64_t o = begin / pitch; o * pitch < end; o++) {
        int64_t lo = o * pitch + first, hi = lo + run, at = lo;
        if (at < begin) at = begin;
        if (hi > end) hi = end;
        if (at >= hi) continue;
        int64_t to = o * run + (at - lo); /* in the result */
        tdm_wire_sum((tdm_type)p->wire_type, addends, n_addend, at, hi - at,
                     a->residual != NULL ? a->residual + to : NULL, (float *)a->first.result + to);
    }
}

tdm_status meta_exchange_collect(meta_arena *arena, const meta_exchange_args *a, tdm_error *err) {
    const tdm_exchange_params *p = a->params;
    int64_t ne[TDM_MAX_DIMS], n_chunk = meta_exchange_chunks(a);
    tdm_status status = TDM_OK;
    if (p->kind == TDM_EXCHANGE_GATHER) {
        status = flags_wait(arena, a, 1, err);
        for (int i = 0; i < payload_count(a) && status == TDM_OK; i++) {
            payload l = payload_of(a, i);
            size_t size = tdm_tensor_canonical_size((tdm_type)l.data->type, l.data->ne);
            if (size > 0) memcpy(l.data->result, data_at(arena, a, l.off), size);
        }
        return status;
    }
    addend_shape(a, ne);
    for (int64_t c = 0; c < n_chunk && status == TDM_OK; c++) {
        status = flags_wait(arena, a, c + 1, err);
        if (status == TDM_OK) chunk_sum(arena, a, ne, c);
    }
    return status;
}

/* Adds the time since `begin` to the word behind the member's flag, which only the host writes. */
static void time_add(const meta_arena *arena, const meta_exchange_args *a, uint64_t begin) {
    _Atomic uint64_t *spent =
        word_at(arena, a->params->flag_off + (uint64_t)a->params->member * FLAG_LINE + 8);
    atomic_store_explicit(
        spent, atomic_load_explicit(spent, memory_order_relaxed) + meta_clock_ns() - begin,
        memory_order_relaxed);
}

tdm_status meta_exchange_host(meta_arena *arena, const meta_exchange_args *a, tdm_error *err) {
    uint64_t begin = meta_clock_ns();
    meta_exchange_publish(arena, a);
    tdm_status status = meta_exchange_collect(arena, a, err);
    if (status == TDM_OK) time_add(arena, a, begin);
    return status;
}

void meta_exchange_raise(meta_arena *arena, const meta_exchange_args *a) {
    flag_publish(arena, a, meta_exchange_chunks(a));
}

tdm_status meta_exchange_pass(meta_arena *arena, const meta_exchange_args *a, tdm_error *err) {
    uint64_t begin = meta_clock_ns();
    meta_exchange_raise(arena, a);
    tdm_status status = flags_wait(arena, a, meta_exchange_chunks(a), err);
    if (status == TDM_OK) time_add(arena, a, begin);
    return status;
}
