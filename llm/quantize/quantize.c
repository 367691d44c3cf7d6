/* SPDX-License-Identifier: MIT
 *
 * quantize.c: converts the tensors of a file, a slab of rows at a time, and writes them in order.
 *
 * All threads, with the calling one, take rows from a slab until none is left. The calling thread
 * then waits for the others and writes the slab. Rows are converted independently, so the file does
 * not depend on the number of threads. Tensors are read with llm_gguf_read, not through the mapping:
 * a file that another process shortens, or storage that fails, gives an error.
 */
#include "llm/quantize/quantize.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "llm/gguf/gguf_write.h"

#define THREADS_MAX 1024
/* Converted bytes in a slab, per thread. */
#define SLAB_SIZE ((size_t)1 << 20)
/* Bytes of the file that a thread reads at a time, at least one row. They fit a core's cache. */
#define READ_SIZE ((size_t)256 << 10)

/* The rows being converted; changed only while no thread works. */
typedef struct slab {
    tdm_row_codec from, to;
    tdm_type type; /* of the rows after conversion */
    const llm_gguf *g;
    const llm_gguf_tensor *tensor; /* the rows are read from it */
    uint8_t *blocks;
    size_t source_size, size; /* bytes of a row, before and after */
    int64_t n;                /* elements of a row */
    int64_t n_row, grain;     /* rows are taken `grain` at a time */
    const float *importance;  /* [n_part][n]; NULL = equal */
    int64_t first;            /* row of the tensor that is the slab's first */
    int64_t n_each, n_part;   /* rows of an expert; experts */
} slab;

typedef struct pool {
    slab slab;
    atomic_llong next; /* the next row to take */
    atomic_bool has_failed; /* `error` is set; threads take no more rows */
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    tdm_error error; /* the first failure; guarded by lock, as turn, n_busy and is_over */
    uint64_t turn;   /* slabs begun */
    int32_t n_busy; /* started threads that still work on the slab */
    bool is_over;   /* threads end */
    int32_t n_thread;
    pthread_t *threads; /* [n_thread - 1]; the calling thread is the last one */
    float **rows;       /* [n_thread] a row of floats for each thread */
    uint8_t **sources;  /* [n_thread] rows of the file for each thread */
    size_t source_size; /* bytes of each */
    uint8_t *blocks;    /* the converted slab */
    size_t blocks_size; /* bytes */
} pool;

typedef struct pool_thread {
    pool *pool;
    int32_t index;
} pool_thread;

/* The bits of the largest magnitude; those of infinity or above where a number is not finite. */
static uint32_t row_peak(const float *row, int64_t n) {
    uint32_t peak = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = tdm_f32_to_bits(row[i]) & 0x7fffffff;
        peak = bits > peak ? bits : peak;
    }
    return peak;
}

/* Fails where a number is not finite, or would not be in the new type. Quantised types have no
 * infinity: a number beyond their range becomes their largest one. */
static tdm_status row_check(const slab *s, const float *row, tdm_error *err) {
    const uint32_t peak = row_peak(row, s->n), infinity = 0x7f800000;
    /* the least numbers that round to infinity: half way behind the largest finite one */
    const uint32_t limit = s->type == TDM_TYPE_F16    ? 0x477ff000
                           : s->type == TDM_TYPE_BF16 ? 0x7f7f8000
                                                      : infinity;
    if (peak < limit) return TDM_OK;
    if (peak < infinity)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "%s: tensor '%.80s' has the number %g, which %s cannot hold; choose %s",
                        llm_gguf_name(s->g), s->tensor->name, (double)tdm_f32_from_bits(peak),
                        tdm_type_get_info(s->type).name, s->type == TDM_TYPE_F16 ? "bf16" : "f32");
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: tensor '%.80s' has infinite numbers or NaN; convert the model again",
                    llm_gguf_name(s->g), s->tensor->name);
}

static void failure_keep(pool *c, const tdm_error *err) {
    pthread_mutex_lock(&c->lock);
    if (c->error.status == TDM_OK) c->error = *err;
    pthread_mutex_unlock(&c->lock);
    atomic_store(&c->has_failed, true);
}

/* Converts rows first .. end - 1 of the slab with the memory of thread `index`. */
static tdm_status rows_convert(const pool *c, int32_t index, int64_t first, int64_t end,
                               tdm_error *err) {
    const slab *s = &c->slab;
    const int64_t most = (int64_t)(c->source_size / s->source_size);
    uint8_t *source = c->sources[index];
    float *row = c->rows[index];
    for (int64_t r = first; r < end; r++) {
        const int64_t at = (r - first) % most, left = end - r;
        if (at == 0) {
            const int64_t n = left < most ? left : most;
            const tdm_status status =
                llm_gguf_read(s->g, s->tensor, (size_t)(s->first + r) * s->source_size,
                              (size_t)n * s->source_size, source, err);
            if (status != TDM_OK) return status;
        }
        s->from.dequantize(source + (size_t)at * s->source_size, row, s->n);
        const tdm_status status = row_check(s, row, err);
        if (status != TDM_OK) return status;
        int64_t part = (s->first + r) / s->n_each % s->n_part;
        s->to.quantize(row, s->blocks + (size_t)r * s->size, s->n,
                       s->importance == NULL ? NULL : s->importance + part * s->n);
    }
    return TDM_OK;
}

static void slab_work(pool *c, int32_t index) {
    const slab *s = &c->slab;
    while (!atomic_load(&c->has_failed)) {
        int64_t first = atomic_fetch_add(&c->next, s->grain), end = first + s->grain;
        tdm_error err = {0};
        if (first >= s->n_row) return;
        if (end > s->n_row) end = s->n_row;
        if (rows_convert(c, index, first, end, &err) != TDM_OK) failure_keep(c, &err);
    }
}

static void *pool_main(void *arg) {
    pool_thread h = *(pool_thread *)arg;
    pool *c = h.pool;
    uint64_t seen = 0;
    free(arg);
    for (;;) {
        pthread_mutex_lock(&c->lock);
        while (c->turn == seen && !c->is_over) pthread_cond_wait(&c->begun, &c->lock);
        bool is_over = c->is_over;
        seen = c->turn;
        pthread_mutex_unlock(&c->lock);
        if (is_over) return NULL;
        slab_work(c, h.index);
        pthread_mutex_lock(&c->lock);
        if (--c->n_busy == 0) pthread_cond_signal(&c->ended);
        pthread_mutex_unlock(&c->lock);
    }
}

/* Converts c->slab on all threads; returns when all rows are converted, or after a failure, when no
 * thread works any more. */
static tdm_status pool_run(pool *c, tdm_error *err) {
    atomic_store(&c->next, 0);
    pthread_mutex_lock(&c->lock);
    c->turn++;
    c->n_busy = c->n_thread - 1;
    pthread_cond_broadcast(&c->begun);
    pthread_mutex_unlock(&c->lock);
    slab_work(c, c->n_thread - 1);
    pthread_mutex_lock(&c->lock);
    while (c->n_busy > 0) pthread_cond_wait(&c->ended, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (c->error.status == TDM_OK) return TDM_OK;
    return tdm_fail(err, c->error.status, "%s", c->error.message);
}

static void pool_clear(pool *c, int32_t n_started) {
    pthread_mutex_lock(&c->lock);
    c->is_over = true;
    pthread_cond_broadcast(&c->begun);
    pthread_mutex_unlock(&c->lock);
    for (int32_t i = 0; i < n_started; i++) pthread_join(c->threads[i], NULL);
    for (int32_t i = 0; i < c->n_thread && c->rows != NULL; i++) free(c->rows[i]);
    for (int32_t i = 0; i < c->n_thread && c->sources != NULL; i++) free(c->sources[i]);
    free(c->rows);
    free(c->sources);
    free(c->threads);
    free(c->blocks);
    pthread_cond_destroy(&c->begun);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->lock);
}

static bool pool_thread_start(pool *c, int32_t index) {
    pool_thread *h = malloc(sizeof *h);
    if (h == NULL) return false;
    *h = (pool_thread){c, index};
    if (pthread_create(&c->threads[index], NULL, pool_main, h) == 0) return true;
    free(h);
    return false;
}

/* Of the longest rows: elements, bytes in the file, bytes after conversion. */
typedef struct row_limits {
    int64_t n;
    size_t source_size, size;
} row_limits;

/* Starting fewer threads than n_thread is not a failure. */
static tdm_status pool_begin(pool *c, int32_t n_thread, const row_limits *most, tdm_error *err) {
    memset(c, 0, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->begun, NULL);
    pthread_cond_init(&c->ended, NULL);
    c->n_thread = n_thread;
    c->blocks_size = SLAB_SIZE * (size_t)n_thread;
    if (c->blocks_size < most->size) c->blocks_size = most->size;
    c->source_size = most->source_size > READ_SIZE ? most->source_size : READ_SIZE;
    c->blocks = malloc(c->blocks_size);
    c->rows = calloc((size_t)n_thread, sizeof *c->rows);
    c->sources = calloc((size_t)n_thread, sizeof *c->sources);
    c->threads = calloc((size_t)n_thread, sizeof *c->threads);
    bool has_memory =
        c->blocks != NULL && c->rows != NULL && c->sources != NULL && c->threads != NULL;
    for (int32_t i = 0; i < n_thread && has_memory; i++)
        has_memory = (c->rows[i] = malloc((size_t)most->n * sizeof(float) + 1)) != NULL &&
                     (c->sources[i] = malloc(c->source_size)) != NULL;
    if (!has_memory) {
        pool_clear(c, 0);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory to quantise with %d threads",
                        n_thread);
    }
    int32_t n_started = 0;
    while (n_started < n_thread - 1 && pool_thread_start(c, n_started)) n_started++;
    if (n_started <
        n_thread - 1) { /* the calling thread uses the row after those of started threads */
        for (int32_t i = n_started + 1; i < n_thread; i++) {
            free(c->rows[i]);
            free(c->sources[i]);
        }
        c->n_thread = n_started + 1;
    }
    return TDM_OK;
}

/* ---- The file ---- */

typedef struct job {
    const llm_gguf *g;
    const llm_importance *importance; /* NULL = none */
    llm_gguf_writer *out;
    pool pool;
    llm_progress_fn progress;
    void *progress_context;
    uint64_t done, total; /* bytes read */
} job;

static tdm_status progress_tell(job *j, size_t size, tdm_error *err) {
    j->done += size;
    if (j->progress == NULL || j->progress(j->progress_context, j->done, j->total)) return TDM_OK;
    return tdm_fail(err, TDM_CANCELLED, "interrupted; nothing was written");
}

/* With the memory of a slab. */
static tdm_status tensor_copy(job *j, const llm_gguf_tensor *tensor, tdm_error *err) {
    const pool *c = &j->pool;
    tdm_status status = TDM_OK;
    for (size_t at = 0, n; at < tensor->size && status == TDM_OK; at += n) {
        n = tensor->size - at < c->blocks_size ? tensor->size - at : c->blocks_size;
        status = llm_gguf_read(j->g, tensor, at, n, c->blocks, err);
        if (status == TDM_OK) status = llm_gguf_writer_write(j->out, c->blocks, n, err);
        if (status == TDM_OK) status = progress_tell(j, n, err);
    }
    return status;
}

static tdm_status tensor_convert(job *j, const llm_gguf_tensor *tensor, tdm_type type,
                                 tdm_error *err) {
    tdm_status status = TDM_OK;
    pool *c = &j->pool;
    int64_t n = tensor->ne[0], n_row = tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
    size_t source_size = tdm_type_row_size(tensor->type, n), size = tdm_type_row_size(type, n);
    const float *importance = NULL;
    if (n == 0 || n_row == 0) return TDM_OK;
    if (j->importance != NULL)
        status = llm_importance_find(j->importance, tensor, &importance, err);
    int64_t slab_rows = (int64_t)(c->blocks_size / size);
    for (int64_t at = 0, rows; at < n_row && status == TDM_OK; at += rows) {
        rows = n_row - at < slab_rows ? n_row - at : slab_rows;
        c->slab = (slab){
            .from = tdm_row_codec_get(tensor->type),
            .to = tdm_row_codec_get(type),
            .type = type,
            .g = j->g,
            .tensor = tensor,
            .blocks = c->blocks,
            .source_size = source_size,
            .size = size,
            .n = n,
            .n_row = rows,
            .grain = 1 + rows / (16 * (int64_t)c->n_thread),
            .importance = importance,
            .first = at,
            .n_each = tensor->ne[1],
            .n_part = tensor->ne[2],
        };
        status = pool_run(c, err);
        if (status == TDM_OK)
            status = llm_gguf_writer_write(j->out, c->blocks, (size_t)rows * size, err);
        if (status == TDM_OK) status = progress_tell(j, (size_t)rows * source_size, err);
    }
    return status;
}

/* Keys that are not copied. The new file is not split, the writer sets the alignment, and head_put
 * writes the others. */
static bool key_is_dropped(const char *name) {
    return strncmp(name, "split.", 6) == 0 || strcmp(name, "general.alignment") == 0 ||
           strcmp(name, "general.file_type") == 0 ||
           strcmp(name, "general.quantization_version") == 0;
}

static void head_put(job *j, const llm_quantize_kind *kind, const llm_quantize_choice *choices) {
    for (uint32_t i = 0; i < llm_gguf_key_count(j->g); i++)
        if (!key_is_dropped(llm_gguf_key_at(j->g, i)->name))
            llm_gguf_writer_put_key(j->out, llm_gguf_key_at(j->g, i));
    llm_gguf_writer_put_u32(j->out, "general.file_type", kind->file_type);
    llm_gguf_writer_put_u32(j->out, "general.quantization_version", 2);
    for (uint32_t i = 0; i < llm_gguf_tensor_count(j->g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(j->g, i);
        llm_gguf_writer_add_tensor(j->out, tensor->name, choices[i].type, tensor->n_dims,
                                   tensor->ne);
    }
}

static tdm_status file_write(job *j, const llm_quantize_choice *choices, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(j->g) && status == TDM_OK; i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(j->g, i);
        status = choices[i].type == tensor->type ? tensor_copy(j, tensor, err)
                                                 : tensor_convert(j, tensor, choices[i].type, err);
    }
    return status == TDM_OK ? llm_gguf_writer_finish(j->out, err) : status;
}

tdm_status llm_quantize_write(const llm_gguf *g, const llm_quantize_kind *kind,
                              const llm_quantize_choice *choices, const llm_importance *importance,
                              const char *path, int32_t n_thread, llm_progress_fn progress,
                              void *progress_context, tdm_error *err) {
    job j = {.g = g,
             .importance = importance,
             .progress = progress,
             .progress_context = progress_context};
    row_limits most = {0};
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        j.total += tensor->size;
        if (choices[i].type == tensor->type) continue;
        const size_t source_size = tdm_type_row_size(tensor->type, tensor->ne[0]);
        const size_t size = tdm_type_row_size(choices[i].type, tensor->ne[0]);
        if (tensor->ne[0] > most.n) most.n = tensor->ne[0];
        if (source_size > most.source_size) most.source_size = source_size;
        if (size > most.size) most.size = size;
    }
    if (n_thread > THREADS_MAX) n_thread = THREADS_MAX;
    tdm_status status = llm_gguf_writer_create(path, &j.out, err);
    if (status == TDM_OK) status = pool_begin(&j.pool, n_thread > 0 ? n_thread : 1, &most, err);
    if (status == TDM_OK) {
        head_put(&j, kind, choices);
        status = file_write(&j, choices, err);
        pool_clear(&j.pool, j.pool.n_thread - 1);
    }
    llm_gguf_writer_destroy(j.out);
    return status;
}
