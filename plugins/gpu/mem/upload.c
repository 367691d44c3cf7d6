/* SPDX-License-Identifier: MIT
 *
 * upload.c: see upload.h.
 */
#include "plugins/gpu/mem/upload.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/params.h"

enum { PIECE_SIZE = 1 << 20, PAGE = 4096 }; /* bytes */

/* Page-locked memory of the plugin. */
typedef struct memory {
    void *handle; /* the plugin's; NULL = none */
    uint8_t *base;
    bool is_cached; /* the host's reads are cached */
} memory;

/* An allocation of gpu_host_alloc in page-locked memory. */
typedef struct pinned {
    struct pinned *next;
    memory memory;
    uint8_t *ptr; /* the caller's, inside the memory */
    uint64_t size;
    uint64_t number; /* of the last copies from it; 0 = none */
} pinned;

/* A piece of the ring. Only the thread that has taken it uses its fields, is_taken aside. */
typedef struct piece {
    uint64_t number; /* of its last copies; 0 = none */
    bool is_taken;   /* under the mutex */
    int32_t n_copy;
    gpu_copy copies[GPU_MAX_COPY];
} piece;

struct gpu_uploads {
    tdm_device *device;
    const char *name;
    uint64_t align;
    const gpu_upload_calls *calls;
    pthread_mutex_t mutex; /* over the fields below, and over calls->copy; not held during a wait */
    pthread_cond_t given;  /* signalled when a piece is given back */
    pinned *pinned;
    memory ring; /* GPU_N_PIECE * PIECE_SIZE, allocated at first use */
    piece pieces[GPU_N_PIECE];
    int turn;        /* index of the piece at which the search for a free one begins */
    uint64_t number; /* of the last copies of all; 0 = none */
};

static tdm_status out_of_memory(const gpu_uploads *u, tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", u->name);
}

static tdm_status copies_wait(const gpu_uploads *u, uint64_t number, tdm_error *err) {
    return number == 0 ? TDM_OK : u->calls->wait(u->device, number, err);
}

tdm_status gpu_uploads_create(tdm_device *device, const char *name, uint64_t align,
                              const gpu_upload_calls *calls, gpu_uploads **uploads_out,
                              tdm_error *err) {
    gpu_uploads *u = calloc(1, sizeof *u);
    if (u == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", name);
    u->device = device;
    u->name = name;
    u->align = align > PAGE ? align : PAGE;
    u->calls = calls;
    pthread_mutex_init(&u->mutex, NULL);
    pthread_cond_init(&u->given, NULL);
    *uploads_out = u;
    return TDM_OK;
}

static tdm_status memory_alloc(const gpu_uploads *u, uint64_t size, memory *m, tdm_error *err) {
    return u->calls->alloc(u->device, size, &m->handle, &m->base, &m->is_cached, err);
}

static void memory_free(const gpu_uploads *u, memory *m) {
    if (m->handle != NULL) u->calls->free(u->device, m->handle);
    *m = (memory){0};
}

void gpu_uploads_destroy(gpu_uploads *u) {
    if (u == NULL) return;
    (void)copies_wait(u, u->number, NULL);
    memory_free(u, &u->ring);
    pthread_cond_destroy(&u->given);
    pthread_mutex_destroy(&u->mutex);
    free(u);
}

/* ---- Page-locked memory ---------------------------------------------------------------------- */

/* Allocates memory of the host that is not page-locked. */
static tdm_status plain_alloc(const gpu_uploads *u, uint64_t size, void **ptr_out, tdm_error *err) {
    const uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    void *ptr = size <= most ? aligned_alloc((size_t)u->align,
                                             (size_t)((size + u->align) / u->align * u->align))
                             : NULL;
    if (ptr == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%s: asked for %llu bytes of the host's memory; the machine has %llu",
                        u->name, (unsigned long long)size, (unsigned long long)most);
    *ptr_out = ptr;
    return TDM_OK;
}

static tdm_status pinned_alloc(gpu_uploads *u, uint64_t size, pinned *p, tdm_error *err) {
    if (size > UINT64_MAX - u->align) return out_of_memory(u, err);
    tdm_status status = memory_alloc(u, size + u->align, &p->memory, err);
    if (status != TDM_OK) return status;
    if (!p->memory.is_cached) {
        memory_free(u, &p->memory);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no cached memory", u->name);
    }
    p->ptr = p->memory.base + (u->align - (uintptr_t)p->memory.base % u->align) % u->align;
    p->size = size;
    return TDM_OK;
}

tdm_status gpu_host_alloc(gpu_uploads *u, uint64_t size, bool is_plain, void **ptr_out,
                          tdm_error *err) {
    if (is_plain) return plain_alloc(u, size, ptr_out, err);
    pinned *p = calloc(1, sizeof *p);
    if (p == NULL) return out_of_memory(u, err);
    tdm_status status = pinned_alloc(u, size, p, err);
    if (status != TDM_OK) {
        free(p);
        return status == TDM_RESOURCE_EXHAUSTED ? plain_alloc(u, size, ptr_out, err) : status;
    }
    pthread_mutex_lock(&u->mutex);
    p->next = u->pinned;
    u->pinned = p;
    pthread_mutex_unlock(&u->mutex);
    *ptr_out = p->ptr;
    return TDM_OK;
}

/* The link to the allocation that holds the bytes src .. src + size - 1, or the link at the list's
 * end, which is NULL. With the mutex held. */
static pinned **pinned_find(gpu_uploads *u, const void *src, uint64_t size) {
    pinned **at = &u->pinned;
    for (; *at != NULL; at = &(*at)->next) {
        const uint64_t off = (uint64_t)((uintptr_t)src - (uintptr_t)(*at)->ptr);
        if (off <= (*at)->size && size <= (*at)->size - off) break;
    }
    return at;
}

void gpu_host_free(gpu_uploads *u, void *ptr, uint64_t size) {
    if (ptr == NULL) return;
    pthread_mutex_lock(&u->mutex);
    pinned **at = pinned_find(u, ptr, size), *p = *at;
    if (p != NULL) *at = p->next;
    pthread_mutex_unlock(&u->mutex);
    if (p == NULL) {
        free(ptr);
        return;
    }
    (void)copies_wait(u, p->number, NULL);
    memory_free(u, &p->memory);
    free(p);
}

tdm_status gpu_upload_finish(gpu_uploads *u, const void *src, tdm_error *err) {
    pthread_mutex_lock(&u->mutex);
    const pinned *p = src != NULL ? *pinned_find(u, src, 1) : NULL;
    const uint64_t number = src == NULL ? u->number : p != NULL ? p->number : 0;
    pthread_mutex_unlock(&u->mutex);
    return copies_wait(u, number, err);
}

void gpu_upload_settle(gpu_uploads *u, const uint64_t *number) {
    pthread_mutex_lock(&u->mutex);
    const uint64_t last = *number;
    pthread_mutex_unlock(&u->mutex);
    (void)copies_wait(u, last, NULL);
}

/* ---- The ring -------------------------------------------------------------------------------- */

static tdm_status ring_get(gpu_uploads *u, tdm_error *err) {
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&u->mutex);
    if (u->ring.handle == NULL)
        status = memory_alloc(u, (uint64_t)GPU_N_PIECE * PIECE_SIZE, &u->ring, err);
    pthread_mutex_unlock(&u->mutex);
    return status;
}

static void piece_give(gpu_uploads *u, piece *p) {
    pthread_mutex_lock(&u->mutex);
    p->is_taken = false;
    pthread_cond_signal(&u->given);
    pthread_mutex_unlock(&u->mutex);
}

/* Takes a piece, and waits until its last copies have ended. A thread has at most one piece and
 * gives it back without waiting for another thread: so a thread that waits here gets one. */
static tdm_status piece_take(gpu_uploads *u, piece **piece_out, tdm_error *err) {
    piece *p = NULL;
    pthread_mutex_lock(&u->mutex);
    while (p == NULL) {
        for (int i = 0; i < GPU_N_PIECE && p == NULL; i++)
            if (!u->pieces[(u->turn + i) % GPU_N_PIECE].is_taken)
                p = &u->pieces[(u->turn + i) % GPU_N_PIECE];
        if (p == NULL) pthread_cond_wait(&u->given, &u->mutex);
    }
    p->is_taken = true;
    u->turn = (int)(p - u->pieces + 1) % GPU_N_PIECE;
    pthread_mutex_unlock(&u->mutex);
    tdm_status status = copies_wait(u, p->number, err);
    if (status != TDM_OK) {
        piece_give(u, p);
        return status;
    }
    p->n_copy = 0;
    *piece_out = p;
    return TDM_OK;
}

static uint64_t piece_off(const gpu_uploads *u, const piece *p) {
    return (uint64_t)(p - u->pieces) * PIECE_SIZE;
}

/* Adds a copy. Where it continues the last one, that one becomes longer. */
static void copy_add(piece *p, uint64_t src, uint64_t dst, uint64_t size) {
    gpu_copy *last = p->n_copy > 0 ? &p->copies[p->n_copy - 1] : NULL;
    if (last != NULL && last->src + last->size == src && last->dst + last->size == dst)
        last->size += size;
    else
        p->copies[p->n_copy++] = (gpu_copy){.src = src, .dst = dst, .size = size};
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* The destination of an upload. */
typedef struct target {
    tdm_buffer *buffer;
    uint64_t off;     /* of the tensor in the buffer */
    uint64_t *number; /* the buffer's */
    const gpu_weight_layout *layout;
} target;

/* Starts the copies of a piece, from the caller's memory `from` or, where that is NULL, from the
 * ring. Gives the piece back. */
static tdm_status piece_copy(gpu_uploads *u, piece *p, const target *to, pinned *from,
                             tdm_error *err) {
    pthread_mutex_lock(&u->mutex);
    tdm_status status = u->calls->copy(u->device, (int)(p - u->pieces), to->buffer,
                                       from != NULL ? from->memory.handle : u->ring.handle,
                                       p->copies, p->n_copy, &p->number, err);
    if (status == TDM_OK) {
        u->number = *to->number = p->number;
        if (from != NULL) from->number = p->number;
    }
    p->is_taken = false;
    pthread_cond_signal(&u->given);
    pthread_mutex_unlock(&u->mutex);
    return status;
}

/* Rows of a tensor of one plane: the device copies them from the caller's memory. */
static tdm_status rows_copy(gpu_uploads *u, const target *to, const gpu_weight_part *part,
                            pinned *from, const uint8_t *src, uint64_t row_pitch, tdm_error *err) {
    const gpu_weight_layout *layout = to->layout;
    const uint64_t unit = (uint64_t)layout->planes[0].unit,
                   row_size = (uint64_t)part->n_block * unit;
    const uint64_t first = (uint64_t)(src - from->memory.base);
    tdm_status status = u->calls->flush(u->device, from->memory.handle, first,
                                        (uint64_t)(part->n_row - 1) * row_pitch + row_size, err);
    for (int64_t r = 0; r < part->n_row && status == TDM_OK;) {
        piece *p;
        status = piece_take(u, &p, err);
        if (status != TDM_OK) break;
        for (; r < part->n_row && p->n_copy < GPU_MAX_COPY; r++) {
            const uint64_t block =
                (uint64_t)((part->row_first + r) * layout->n_block + part->block_first);
            copy_add(p, first + (uint64_t)r * row_pitch,
                     to->off + layout->planes[0].off + block * unit, row_size);
        }
        status = piece_copy(u, p, to, from, err);
    }
    return status;
}

/* Converts a part that fits a piece, and starts its copies. */
static tdm_status some_convert(gpu_uploads *u, const target *to, const gpu_weight_part *some,
                               const uint8_t *src, uint64_t row_pitch, tdm_error *err) {
    piece *p;
    uint64_t used = 0;
    tdm_status status = piece_take(u, &p, err);
    if (status != TDM_OK) return status;
    const uint64_t at = piece_off(u, p);
    for (int plane = 0; plane < to->layout->n_plane; plane++) {
        const gpu_weight_runs runs = gpu_weight_runs_get(to->layout, plane, some);
        gpu_weight_pack(to->layout, plane, some, src, row_pitch, u->ring.base + at + used);
        for (int64_t i = 0; i < runs.n_run; i++, used += runs.size)
            copy_add(p, at + used, to->off + runs.off + (uint64_t)i * runs.stride, runs.size);
    }
    status = u->calls->flush(u->device, u->ring.handle, at, used, err);
    if (status == TDM_OK) return piece_copy(u, p, to, NULL, err);
    piece_give(u, p);
    return status;
}

/* How many rows of a part, and how many blocks of each, fit a piece and its copies: whole rows of
 * the part or, where one is too large, some blocks of one row. The caller limits both to the
 * part. */
static void some_size(const gpu_weight_layout *layout, const gpu_weight_part *part,
                      int64_t *n_row_out, int64_t *n_block_out) {
    const int64_t n_fit = PIECE_SIZE / layout->block_size;
    int64_t n_row = n_fit / part->n_block;
    if (part->n_block < layout->n_block && n_row > GPU_MAX_COPY / layout->n_plane)
        n_row = GPU_MAX_COPY / layout->n_plane;
    *n_row_out = n_row > 0 ? n_row : 1;
    *n_block_out = n_row > 0 ? part->n_block : n_fit;
}

/* Converts rows to the device's layout in the ring, and starts their copies. */
static tdm_status rows_convert(gpu_uploads *u, const target *to, const gpu_weight_part *part,
                               const uint8_t *src, uint64_t row_pitch, tdm_error *err) {
    int64_t n_row, n_block;
    some_size(to->layout, part, &n_row, &n_block);
    tdm_status status = ring_get(u, err);
    for (int64_t r = 0; r < part->n_row; r += n_row)
        for (int64_t b = 0; b < part->n_block && status == TDM_OK; b += n_block) {
            const gpu_weight_part some = {
                .row_first = part->row_first + r,
                .n_row = n_row < part->n_row - r ? n_row : part->n_row - r,
                .block_first = part->block_first + b,
                .n_block = n_block < part->n_block - b ? n_block : part->n_block - b};
            status =
                some_convert(u, to, &some,
                             src + (uint64_t)r * row_pitch + (uint64_t)(b * to->layout->block_size),
                             row_pitch, err);
        }
    return status;
}

tdm_status gpu_upload(gpu_uploads *u, tdm_buffer *buffer, uint64_t off, uint64_t *number,
                      const gpu_weight_layout *layout, const gpu_weight_part *part, const void *src,
                      uint64_t row_pitch, tdm_error *err) {
    const target to = {.buffer = buffer, .off = off, .number = number, .layout = layout};
    if (part->n_row == 0) return TDM_OK;
    const uint64_t extent = (uint64_t)(part->n_row - 1) * row_pitch +
                            (uint64_t)part->n_block * (uint64_t)layout->block_size;
    pthread_mutex_lock(&u->mutex);
    pinned *from = *pinned_find(u, src, extent);
    pthread_mutex_unlock(&u->mutex);
    if (from != NULL && layout->n_plane == 1)
        return rows_copy(u, &to, part, from, src, row_pitch, err);
    tdm_status status = rows_convert(u, &to, part, src, row_pitch, err);
    if (from != NULL) return status;
    pthread_mutex_lock(&u->mutex);
    const uint64_t last = *number;
    pthread_mutex_unlock(&u->mutex);
    /* After a failure too: the caller may free src when this returns. */
    tdm_status waited = copies_wait(u, last, status == TDM_OK ? err : NULL);
    return status != TDM_OK ? status : waited;
}
