/* SPDX-License-Identifier: MIT
 *
 * upload.c: see upload.h.
 *
 * A tensor of one plane (f32, f16, bf16, and tensors without usage flags) has its canonical bytes
 * on the device, which copies them from the caller's memory itself. The others are arranged by the
 * calling thread into a ring of staging memory, which the device copies from. Both are copies on
 * the queue of computations, so that what is submitted later finds the bytes there.
 *
 * A queue family that only transfers is not used. It would let copies run beside computations, but
 * weights are loaded before the first of them. Mesa's software driver, on which the tests run, has
 * no such family.
 */
#include "plugins/vulkan/upload.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugins/vulkan/transfer.h"

enum {
    N_PIECE = 4,
    PIECE_SIZE = 1 << 20,
    MAX_REGION = 512, /* of one submission */
    PAGE = 4096
};

/* An allocation of vk_host_alloc that the device reads. */
typedef struct pinned {
    struct pinned *next;
    vk_memory memory;
    uint8_t *ptr; /* the caller's, inside the memory */
    uint64_t size;
    uint64_t value; /* of the last copy from it; 0 = none */
} pinned;

/* A piece of the ring. The thread that has taken it alone fills it. */
typedef struct piece {
    VkCommandBuffer commands;
    uint64_t value; /* of its last copies; 0 = none */
    bool is_taken;
    uint32_t n_region;
    VkBufferCopy regions[MAX_REGION];
} piece;

struct vk_uploads {
    pthread_mutex_t
        mutex; /* over all of it, and over recording; not held while a piece is awaited */
    pthread_cond_t given; /* a piece is not taken any more */
    pinned *pinned;
    VkCommandPool pool;
    vk_memory staging; /* N_PIECE * PIECE_SIZE, allocated at first use */
    piece pieces[N_PIECE];
    int turn;       /* index of the piece at which the search for a free one begins */
    uint64_t value; /* of the last copies of all; 0 = none */
};

/* ---- Creating -------------------------------------------------------------------------------- */

static tdm_status commands_create(vk_device *device, struct vk_uploads *u, tdm_error *err) {
    VkCommandBuffer commands[N_PIECE];
    tdm_status status = vk_commands_create(device, N_PIECE, &u->pool, commands, err);
    for (int i = 0; i < N_PIECE && status == TDM_OK; i++) u->pieces[i].commands = commands[i];
    return status;
}

tdm_status vk_uploads_create(vk_device *device, tdm_error *err) {
    struct vk_uploads *u = calloc(1, sizeof *u);
    if (u == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_init(&u->mutex, NULL);
    pthread_cond_init(&u->given, NULL);
    device->uploads = u;
    return commands_create(device, u, err);
}

void vk_uploads_destroy(vk_device *device) {
    struct vk_uploads *u = device->uploads;
    if (u == NULL) return;
    (void)vk_copies_wait(device, u->value, NULL);
    vk_memory_free(device, &u->staging);
    if (u->pool != VK_NULL_HANDLE) device->fn.DestroyCommandPool(device->device, u->pool, NULL);
    pthread_cond_destroy(&u->given);
    pthread_mutex_destroy(&u->mutex);
    free(u);
    device->uploads = NULL;
}

/* ---- Page-locked memory ---------------------------------------------------------------------- */

static uint64_t host_align(const vk_device *device) {
    return device->facts->import_align > PAGE ? device->facts->import_align : PAGE;
}

/* Memory of the host that the driver does not know. */
static tdm_status plain_alloc(const vk_device *device, uint64_t size, void **ptr_out,
                              tdm_error *err) {
    const uint64_t align = host_align(device);
    const uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    void *ptr = size <= most
                    ? aligned_alloc((size_t)align, (size_t)((size + align) / align * align))
                    : NULL;
    if (ptr == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%s: asked for %llu bytes of the host's memory; the machine has %llu",
                        device->name, (unsigned long long)size, (unsigned long long)most);
    *ptr_out = ptr;
    return TDM_OK;
}

/* Memory of the driver in which the host's reads are cached; the arrangement of weights reads it.
 * TDM_RESOURCE_EXHAUSTED where there is none. */
static tdm_status pinned_alloc(vk_device *device, uint64_t size, pinned *p, tdm_error *err) {
    const uint64_t align = host_align(device);
    if (size > UINT64_MAX - align)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    tdm_status status = vk_memory_alloc(device, size + align, VK_USE_STAGING, &p->memory, err);
    if (status == TDM_OK && !p->memory.is_cached) {
        vk_memory_free(device, &p->memory);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no cached memory", device->name);
    }
    if (status != TDM_OK) return status;
    p->ptr = p->memory.mapped + (align - (uintptr_t)p->memory.mapped % align) % align;
    p->size = size;
    return TDM_OK;
}

tdm_status vk_host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err) {
    struct vk_uploads *u = device->uploads;
    /* The host writes the memory of such a device itself. */
    if (device->target.is_host && device->options.has_map)
        return plain_alloc(device, size, ptr_out, err);
    pinned *p = calloc(1, sizeof *p);
    if (p == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    tdm_status status = pinned_alloc(device, size, p, err);
    if (status != TDM_OK) {
        free(p);
        return status == TDM_RESOURCE_EXHAUSTED ? plain_alloc(device, size, ptr_out, err) : status;
    }
    pthread_mutex_lock(&u->mutex);
    p->next = u->pinned;
    u->pinned = p;
    pthread_mutex_unlock(&u->mutex);
    *ptr_out = p->ptr;
    return TDM_OK;
}

/* The link to the allocation that holds bytes src .. src + size - 1; to the list's end where none
 * does. With the mutex held. */
static pinned **pinned_find(struct vk_uploads *u, const void *src, uint64_t size) {
    pinned **at = &u->pinned;
    for (; *at != NULL; at = &(*at)->next) {
        const uint64_t off = (uint64_t)((uintptr_t)src - (uintptr_t)(*at)->ptr);
        if (off <= (*at)->size && size <= (*at)->size - off) break;
    }
    return at;
}

void vk_host_free(tdm_device *device, void *ptr, uint64_t size) {
    struct vk_uploads *u = device->uploads;
    if (ptr == NULL) return;
    pthread_mutex_lock(&u->mutex);
    pinned **at = pinned_find(u, ptr, size), *p = *at;
    if (p != NULL) *at = p->next;
    pthread_mutex_unlock(&u->mutex);
    if (p == NULL) {
        free(ptr);
        return;
    }
    (void)vk_copies_wait(device, p->value, NULL);
    vk_memory_free(device, &p->memory);
    free(p);
}

tdm_status vk_upload_finish(tdm_device *device, const void *src, tdm_error *err) {
    struct vk_uploads *u = device->uploads;
    pthread_mutex_lock(&u->mutex);
    const pinned *p = src != NULL ? *pinned_find(u, src, 1) : NULL;
    const uint64_t value = src == NULL ? u->value : p != NULL ? p->value : 0;
    pthread_mutex_unlock(&u->mutex);
    return vk_copies_wait(device, value, err);
}

void vk_upload_settle(tdm_buffer *buffer) {
    vk_device *device = buffer->device;
    pthread_mutex_lock(&device->uploads->mutex);
    const uint64_t value = buffer->uploads;
    pthread_mutex_unlock(&device->uploads->mutex);
    (void)vk_copies_wait(device, value, NULL);
}

/* ---- The ring -------------------------------------------------------------------------------- */

static tdm_status staging_get(vk_device *device, tdm_error *err) {
    struct vk_uploads *u = device->uploads;
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&u->mutex);
    if (u->staging.block == NULL)
        status = vk_memory_alloc(device, N_PIECE * PIECE_SIZE, VK_USE_STAGING, &u->staging, err);
    pthread_mutex_unlock(&u->mutex);
    return status;
}

static void piece_give(struct vk_uploads *u, piece *p) {
    pthread_mutex_lock(&u->mutex);
    p->is_taken = false;
    pthread_cond_signal(&u->given);
    pthread_mutex_unlock(&u->mutex);
}

/* Takes a piece that the device is done with. A thread has at most one, so that each gets one. */
static tdm_status piece_take(vk_device *device, piece **piece_out, tdm_error *err) {
    struct vk_uploads *u = device->uploads;
    piece *p = NULL;
    pthread_mutex_lock(&u->mutex);
    while (p == NULL) {
        for (int i = 0; i < N_PIECE && p == NULL; i++)
            if (!u->pieces[(u->turn + i) % N_PIECE].is_taken)
                p = &u->pieces[(u->turn + i) % N_PIECE];
        if (p == NULL) pthread_cond_wait(&u->given, &u->mutex);
    }
    p->is_taken = true;
    u->turn = (int)(p - u->pieces + 1) % N_PIECE;
    pthread_mutex_unlock(&u->mutex);
    tdm_status status = vk_copies_wait(device, p->value, err);
    if (status != TDM_OK) {
        piece_give(u, p);
        return status;
    }
    p->n_region = 0;
    *piece_out = p;
    return TDM_OK;
}

/* Adds a copy; one that continues the last one makes it longer. */
static void region_add(piece *p, uint64_t from, uint64_t to, uint64_t size) {
    VkBufferCopy *last = p->n_region > 0 ? &p->regions[p->n_region - 1] : NULL;
    if (last != NULL && last->srcOffset + last->size == from && last->dstOffset + last->size == to)
        last->size += size;
    else
        p->regions[p->n_region++] =
            (VkBufferCopy){.srcOffset = from, .dstOffset = to, .size = size};
}

/* Submits the copies of a piece, which are from `from`: page-locked memory, or NULL for the piece's
 * own. Gives the piece back. */
static tdm_status piece_submit(tdm_buffer *buffer, piece *p, pinned *from, tdm_error *err) {
    vk_device *device = buffer->device;
    struct vk_uploads *u = device->uploads;
    pthread_mutex_lock(&u->mutex);
    tdm_status status = vk_copies_begin(device, p->commands, err);
    if (status == TDM_OK) {
        device->fn.CmdCopyBuffer(p->commands,
                                 from != NULL ? from->memory.buffer : u->staging.buffer,
                                 buffer->memory.buffer, p->n_region, p->regions);
        status = vk_copies_submit(device, p->commands, &p->value, err);
    }
    if (status == TDM_OK) {
        u->value = buffer->uploads = p->value;
        if (from != NULL) from->value = p->value;
    }
    p->is_taken = false;
    pthread_cond_signal(&u->given);
    pthread_mutex_unlock(&u->mutex);
    return status;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Rows of one plane, copied by the device from where they are. */
static tdm_status rows_copy(tdm_buffer *buffer, uint64_t off, const gpu_weight_layout *layout,
                            const gpu_weight_part *part, pinned *from, uint64_t src_off,
                            uint64_t row_pitch, tdm_error *err) {
    const uint64_t unit = (uint64_t)layout->planes[0].unit,
                   row_size = (uint64_t)part->n_block * unit;
    const uint64_t first = from->memory.off + (uint64_t)(from->ptr - from->memory.mapped) + src_off;
    const uint64_t extent = (uint64_t)(part->n_row - 1) * row_pitch + row_size;
    tdm_status status =
        vk_memory_flush(buffer->device, &from->memory, first - from->memory.off, extent, err);
    for (int64_t r = 0; r < part->n_row && status == TDM_OK;) {
        piece *p;
        status = piece_take(buffer->device, &p, err);
        if (status != TDM_OK) break;
        for (; r < part->n_row && p->n_region < MAX_REGION; r++) {
            const uint64_t block =
                (uint64_t)((part->row_first + r) * layout->n_block + part->block_first);
            region_add(p, first + (uint64_t)r * row_pitch,
                       buffer->memory.off + off + layout->planes[0].off + block * unit, row_size);
        }
        status = piece_submit(buffer, p, from, err);
    }
    return status;
}

/* Rows that fit a piece in all planes; 0 = not even one. */
static int64_t rows_each(const gpu_weight_layout *layout, const gpu_weight_part *part) {
    const int64_t row_size = part->n_block * layout->block_size;
    int64_t n = row_size > 0 ? PIECE_SIZE / row_size : 0;
    if (part->n_block < layout->n_block && n > MAX_REGION / layout->n_plane)
        n = MAX_REGION / layout->n_plane;
    return n;
}

/* Rows in the device's arrangement, through the ring. */
static tdm_status rows_arrange(tdm_buffer *buffer, uint64_t off, const gpu_weight_layout *layout,
                               const gpu_weight_part *part, const uint8_t *src, uint64_t row_pitch,
                               tdm_error *err) {
    vk_device *device = buffer->device;
    const vk_memory *staging = &device->uploads->staging;
    const int64_t n_each = rows_each(layout, part);
    tdm_status status = staging_get(device, err);
    for (int64_t r = 0; r < part->n_row && status == TDM_OK; r += n_each) {
        gpu_weight_part some = *part;
        piece *p;
        some.row_first += r;
        some.n_row = n_each < part->n_row - r ? n_each : part->n_row - r;
        status = piece_take(device, &p, err);
        if (status != TDM_OK) break;
        const uint64_t at = (uint64_t)(p - device->uploads->pieces) * PIECE_SIZE;
        uint64_t used = 0;
        for (int plane = 0; plane < layout->n_plane; plane++) {
            const gpu_weight_runs runs = gpu_weight_runs_get(layout, plane, &some);
            gpu_weight_pack(layout, plane, &some, src + (uint64_t)r * row_pitch, row_pitch,
                            staging->mapped + at + used);
            for (int64_t i = 0; i < runs.n_run; i++, used += runs.size)
                region_add(p, staging->off + at + used,
                           buffer->memory.off + off + runs.off + (uint64_t)i * runs.stride,
                           runs.size);
        }
        status = vk_memory_flush(device, staging, at, used, err);
        if (status == TDM_OK)
            status = piece_submit(buffer, p, NULL, err);
        else
            piece_give(device->uploads, p);
    }
    return status;
}

tdm_status vk_upload_begin(tdm_buffer *buffer, uint64_t off, const gpu_weight_layout *layout,
                           const gpu_weight_part *part, const void *src, uint64_t row_pitch,
                           bool *is_taken_out, tdm_error *err) {
    struct vk_uploads *u = buffer->device->uploads;
    const uint64_t extent = (uint64_t)(part->n_row - 1) * row_pitch +
                            (uint64_t)part->n_block * (uint64_t)layout->block_size;
    pthread_mutex_lock(&u->mutex);
    pinned *from = *pinned_find(u, src, extent);
    pthread_mutex_unlock(&u->mutex);
    *is_taken_out = from != NULL && (layout->n_plane == 1 || rows_each(layout, part) > 0);
    if (!*is_taken_out) return TDM_OK;
    if (layout->n_plane == 1)
        return rows_copy(buffer, off, layout, part, from,
                         (uint64_t)((uintptr_t)src - (uintptr_t)from->ptr), row_pitch, err);
    return rows_arrange(buffer, off, layout, part, src, row_pitch, err);
}
