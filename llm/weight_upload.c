/* SPDX-License-Identifier: MIT
 *
 * weight_upload.c: see weight_upload.h.
 */
#include "llm/weight_upload.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

/* Bytes read at a time, where the device states no other size (tdm_device_info.upload_piece). A
 * piece and its converted form fit a core's cache together. */
#define PIECE_SIZE ((size_t)512 << 10)
/* The largest piece, even if a device states a larger one. */
#define PIECE_MOST ((size_t)64 << 20)
/* Bytes that a thread takes at a time. Larger than a huge page (2 MiB), so that threads seldom
 * write to the same fresh page: both would clear it. */
#define RANGE_SIZE ((size_t)4 << 20)
/* A model gets at most one thread for each so many bytes. */
#define SIZE_PER_THREAD ((uint64_t)8 << 20)
#define THREADS_MAX     16
/* Threads if no device has threads on the host. They read and convert; the device copies. */
#define THREADS_CARD    8
#define PAGE_SIZE       ((size_t)4096)
/* Devices' layouts interleave at most this many rows. Pieces end between such groups of rows if
 * possible. */
#define GROUP_ROWS 64

/* Columns col .. col + n_col - 1 of rows row .. row + n_row - 1 of a weight: whole rows, or a part
 * of one row. */
typedef struct part {
    int32_t weight;
    int64_t row, n_row;
    int64_t col, n_col;
} part;

typedef struct uploader {
    const llm_model *model;
    int32_t *order;           /* [n_own] weights in file order */
    size_t piece_size;        /* bytes, a multiple of PAGE_SIZE */
    tdm_open_device *pinning; /* its host_alloc gives memory for pieces; NULL = ordinary memory */
    pthread_mutex_t lock;
    /* Guarded by `lock`: */
    int32_t next;     /* index into order: the next range is of this weight, */
    int64_t row, col; /* and begins here */
    uint64_t n_done;  /* bytes uploaded */
    tdm_error error;  /* the first failure; no range is taken after it */
} uploader;

typedef struct upload_thread {
    uploader *u;
    /* Of piece_size bytes each. A device that copies from pinned memory may still read one while
     * the other is filled. Only the first is there without pinning. */
    uint8_t *memory[2];
    int turn; /* index of the one that is filled next */
    pthread_t thread;
} upload_thread;

/* ---- Parts ---- */

static const llm_gguf_tensor *part_tensor(const uploader *u, const part *p) {
    return u->model->weights[p->weight].file;
}

static size_t part_size(const uploader *u, const part *p) {
    return (size_t)p->n_row * tdm_type_row_size(part_tensor(u, p)->type, p->n_col);
}

/* The part of `whole` that begins at `row` and `col` and has at most `size` bytes: whole rows, or,
 * where a row is longer, a part of one. `size` must be larger than a block of any type. */
static part part_cut(const uploader *u, const part *whole, int64_t row, int64_t col, size_t size) {
    const tdm_type type = part_tensor(u, whole)->type;
    const tdm_type_info info = tdm_type_get_info(type);
    const size_t row_size = tdm_type_row_size(type, whole->n_col);
    part p = {whole->weight, row, 1, col, whole->n_col};
    if (row_size > size) {
        int64_t most = (int64_t)(size / (size_t)info.block_size) * info.block_len;
        int64_t left = whole->col + whole->n_col - col;
        p.n_col = left < most ? left : most;
    } else {
        int64_t most = (int64_t)(size / row_size), left = whole->row + whole->n_row - row;
        for (int64_t group = GROUP_ROWS; group > 1; group /= 2) {
            if (most < group) continue;
            most = most / group * group;
            break;
        }
        p.n_row = left < most ? left : most;
    }
    return p;
}

/* Sets row and col to the end of part p of `whole`; false if that is the end of `whole`. */
static bool part_advance(const part *whole, const part *p, int64_t *row, int64_t *col) {
    *col = p->col + p->n_col;
    *row = p->row;
    if (*col < whole->col + whole->n_col) return true;
    *col = whole->col;
    *row += p->n_row;
    return *row < whole->row + whole->n_row;
}

static part weight_whole(const llm_model *m, int32_t weight) {
    const llm_gguf_tensor *t = m->weights[weight].file;
    return (part){weight, 0, t->size > 0 ? tdm_shape_rows(t->ne) : 0, 0, t->ne[0]};
}

/* ---- Ranges ---- */

/* Takes the next range; false if there is none or an upload has failed. */
static bool range_take(uploader *u, part *p_out) {
    bool is_there = false;
    pthread_mutex_lock(&u->lock);
    while (u->error.status == TDM_OK && u->next < u->model->n_own && !is_there) {
        part whole = weight_whole(u->model, u->order[u->next]);
        bool has_more = false;
        if (whole.n_row > 0) {
            *p_out = part_cut(u, &whole, u->row, u->col, RANGE_SIZE);
            is_there = true;
            has_more = part_advance(&whole, p_out, &u->row, &u->col);
        }
        if (!has_more) {
            u->next++;
            u->row = u->col = 0;
        }
    }
    pthread_mutex_unlock(&u->lock);
    return is_there;
}

static const tdm_buffer_ops *buffer_ops(const tdm_open_device *dev) {
    return tdm_open_device_plugin(dev)->buffer;
}

/* Waits until the device has read the piece of memory at `src`; NULL = until all uploads to it have
 * finished. */
static tdm_status upload_finish(const uploader *u, tdm_open_device *dev, const void *src,
                                tdm_error *err) {
    tdm_error inner = {0};
    if (!TDM_HAS(buffer_ops(dev), upload_finish)) return TDM_OK;
    tdm_status status = buffer_ops(dev)->upload_finish(tdm_open_device_handle(dev), src, &inner);
    if (status == TDM_OK) return TDM_OK;
    return tdm_fail(err, status, "%s: device '%s': %s", llm_gguf_name(u->model->gguf),
                    tdm_open_device_name(dev), inner.message);
}

/* Reads one piece from the file and uploads it. */
static tdm_status piece_upload(upload_thread *h, const part *p, tdm_error *err) {
    const uploader *u = h->u;
    const llm_weight *w = &u->model->weights[p->weight];
    const tdm_tensor_desc desc = llm_weight_desc(w);
    const size_t pitch = tdm_type_row_size(desc.type, desc.ne[0]);
    uint8_t *memory = h->memory[h->turn];
    tdm_status status = TDM_OK;
    if (u->pinning != NULL) {
        h->turn = 1 - h->turn;
        status = upload_finish(u, u->pinning, memory, err);
    }
    if (status == TDM_OK)
        status = llm_weight_read(u->model, w, p->row, p->n_row, p->col, p->n_col, memory, err);
    if (status != TDM_OK) return status;
    tdm_error inner = {0};
    status = tdm_mem_tensor_upload(&u->model->store.mems[w->mem], w->off, &desc, memory, pitch,
                                   p->row, p->n_row, p->col, p->n_col, &inner);
    if (status != TDM_OK)
        return tdm_fail(err, status, "%s: tensor '%s': %s",
                        llm_gguf_name(llm_weight_gguf(u->model, w)), w->file->name, inner.message);
    return TDM_OK;
}

static bool is_failed(uploader *u) {
    pthread_mutex_lock(&u->lock);
    bool is = u->error.status != TDM_OK;
    pthread_mutex_unlock(&u->lock);
    return is;
}

static void failure_keep(uploader *u, const tdm_error *err) {
    pthread_mutex_lock(&u->lock);
    if (u->error.status == TDM_OK) u->error = *err;
    pthread_mutex_unlock(&u->lock);
}

/* Reports progress; false if it cancels the upload. */
static bool progress_report(uploader *u, llm_progress_fn progress, void *context) {
    if (progress == NULL) return true;
    pthread_mutex_lock(&u->lock);
    uint64_t n_done = u->n_done;
    pthread_mutex_unlock(&u->lock);
    if (progress(context, n_done, u->model->file_size + u->model->adapter_size)) return true;
    tdm_error err = {0};
    tdm_fail(&err, TDM_CANCELLED, "%s: loading was cancelled", u->model->path);
    failure_keep(u, &err);
    return false;
}

/* Uploads ranges until none is left. The calling thread reports the progress of all threads. */
static void ranges_upload(upload_thread *h, llm_progress_fn progress, void *context) {
    uploader *u = h->u;
    part range;
    while (range_take(u, &range)) {
        int64_t row = range.row, col = range.col;
        for (bool goes_on = true; goes_on && !is_failed(u);) {
            part p = part_cut(u, &range, row, col, u->piece_size);
            tdm_error err = {0};
            tdm_status status = piece_upload(h, &p, &err);
            if (status != TDM_OK) {
                failure_keep(u, &err);
                return;
            }
            pthread_mutex_lock(&u->lock);
            u->n_done += part_size(u, &p);
            pthread_mutex_unlock(&u->lock);
            if (!progress_report(u, progress, context)) return;
            goes_on = part_advance(&range, &p, &row, &col);
        }
    }
}

static void *upload_main(void *arg) {
    ranges_upload(arg, NULL, NULL);
    return NULL;
}

/* ---- Threads ---- */

/* As many threads as the devices have on the host, at most one for each processor that this process
 * may use. A group does not report a number: it counts as THREADS_MAX. */
static int32_t threads_count(const llm_model *m) {
    int64_t n = 0;
    cpu_set_t cores;
    for (int32_t d = 0; d < m->n_dev; d++) {
        tdm_device_info info = {.struct_size = sizeof info};
        if (tdm_open_device_is_group(m->devs[d]))
            n += THREADS_MAX;
        else if (tdm_open_device_get_info(m->devs[d], &info, NULL) == TDM_OK)
            n += info.n_thread;
    }
    if (n == 0) n = THREADS_CARD;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0 && n > CPU_COUNT(&cores))
        n = CPU_COUNT(&cores);
    if (n > THREADS_MAX) n = THREADS_MAX;
    int64_t worth = (int64_t)(m->file_size / SIZE_PER_THREAD);
    if (n > worth) n = worth;
    return n > 1 ? (int32_t)n : 1;
}

/* Starts a thread with all signals blocked: the program's own threads receive them. */
static bool upload_thread_start(upload_thread *h) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&h->thread, NULL, upload_main, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0;
}

static void pieces_free(upload_thread *h) {
    const uploader *u = h->u;
    for (int i = 0; i < 2; i++) {
        if (u->pinning == NULL)
            free(h->memory[i]);
        else if (h->memory[i] != NULL)
            buffer_ops(u->pinning)
                ->host_free(tdm_open_device_handle(u->pinning), h->memory[i], u->piece_size);
        h->memory[i] = NULL;
    }
}

/* Allocates the memory of a thread's pieces; false without memory, then nothing is allocated. */
static bool pieces_allocate(upload_thread *h) {
    const uploader *u = h->u;
    bool is_whole = true;
    for (int i = 0; i < (u->pinning != NULL ? 2 : 1) && is_whole; i++) {
        void *memory = NULL;
        if (u->pinning == NULL)
            memory = aligned_alloc(PAGE_SIZE, u->piece_size);
        else if (buffer_ops(u->pinning)
                     ->host_alloc(tdm_open_device_handle(u->pinning), u->piece_size, &memory,
                                  NULL) != TDM_OK)
            memory = NULL;
        h->memory[i] = memory;
        is_whole = memory != NULL;
    }
    if (!is_whole) pieces_free(h);
    return is_whole;
}

/* Decides the size of pieces and whether they are in pinned memory: a model on one device uses what
 * the device states; on several devices pieces are in ordinary memory. `largest`: bytes of the
 * largest weight. */
static void device_ask(uploader *u, size_t largest) {
    const llm_model *m = u->model;
    tdm_device_info info;
    size_t most = PIECE_SIZE;
    if (m->n_dev == 1 && tdm_open_device_get_info(m->devs[0], &info, NULL) == TDM_OK) {
        if (info.upload_piece > PIECE_SIZE)
            most = info.upload_piece < PIECE_MOST ? (size_t)info.upload_piece : PIECE_MOST;
        if (TDM_HAS(buffer_ops(m->devs[0]), host_alloc) &&
            TDM_HAS(buffer_ops(m->devs[0]), host_free))
            u->pinning = m->devs[0];
    }
    u->piece_size = ((largest < most ? largest : most) + PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
}

static int order_compare(const void *a, const void *b, void *arg) {
    const llm_model *m = arg;
    const llm_gguf_tensor *x = m->weights[*(const int32_t *)a].file;
    const llm_gguf_tensor *y = m->weights[*(const int32_t *)b].file;
    const int32_t from[2] = {m->weights[*(const int32_t *)a].adapter,
                             m->weights[*(const int32_t *)b].adapter};
    if (from[0] != from[1]) return from[0] < from[1] ? -1 : 1;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    return ((uintptr_t)x->data > (uintptr_t)y->data) - ((uintptr_t)x->data < (uintptr_t)y->data);
}

static tdm_status order_make(uploader *u, tdm_error *err) {
    const llm_model *m = u->model;
    size_t largest = 1;
    u->order = malloc(((size_t)m->n_own + 1) * sizeof *u->order);
    if (u->order == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    for (int32_t i = 0; i < m->n_own; i++) {
        u->order[i] = i;
        if (m->weights[i].file->size > largest) largest = m->weights[i].file->size;
    }
    qsort_r(u->order, (size_t)m->n_own, sizeof *u->order, order_compare, (void *)(uintptr_t)m);
    device_ask(u, largest);
    return TDM_OK;
}

/* Starts as many threads as possible and uploads along with them. Failing to start one is no
 * error. */
static tdm_status threads_upload(uploader *u, llm_progress_fn progress, void *context,
                                 tdm_error *err) {
    upload_thread threads[THREADS_MAX] = {{.u = u}};
    int32_t n = 1, n_thread = threads_count(u->model);
    bool has_pieces = pieces_allocate(&threads[0]);
    if (!has_pieces && u->pinning != NULL) { /* ordinary memory is slower, but serves, too */
        u->pinning = NULL;
        has_pieces = pieces_allocate(&threads[0]);
    }
    if (!has_pieces)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", u->model->path);
    for (; n < n_thread; n++) {
        threads[n] = (upload_thread){.u = u};
        if (!pieces_allocate(&threads[n])) break;
        if (!upload_thread_start(&threads[n])) {
            pieces_free(&threads[n]);
            break;
        }
    }
    ranges_upload(&threads[0], progress, context);
    for (int32_t i = 1; i < n; i++) pthread_join(threads[i].thread, NULL);
    /* After a failure, too: a device may still read the pieces, which are freed next. */
    for (int32_t d = 0; d < u->model->n_dev; d++) {
        tdm_error own = {0};
        if (upload_finish(u, u->model->devs[d], NULL, &own) != TDM_OK) failure_keep(u, &own);
    }
    for (int32_t i = 0; i < n; i++) pieces_free(&threads[i]);
    if (u->error.status == TDM_OK && n > 1) (void)progress_report(u, progress, context);
    if (u->error.status == TDM_OK) return TDM_OK;
    return tdm_fail(err, u->error.status, "%s", u->error.message);
}

tdm_status llm_weights_upload(const llm_model *model, llm_progress_fn progress, void *context,
                              tdm_error *err) {
    uploader u = {.model = model};
    tdm_status status = order_make(&u, err);
    if (status == TDM_OK && pthread_mutex_init(&u.lock, NULL) != 0)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", model->path);
    if (status == TDM_OK) {
        status = threads_upload(&u, progress, context, err);
        pthread_mutex_destroy(&u.lock);
    }
    free(u.order);
    return status;
}
