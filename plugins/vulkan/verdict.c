/* SPDX-License-Identifier: MIT
 *
 * verdict.c: see verdict.h. Owns the list of verdicts and its file. trial.c finds each verdict.
 */
#include "plugins/vulkan/verdict.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/vulkan/cache_file.h"
#include "plugins/vulkan/pipeline.h"

typedef struct verdict_row {
    uint64_t pipeline; /* vk_pipeline_hash */
    uint64_t code;     /* vk_shader_hash of its kernel */
    int32_t verdict;   /* vk_verdict */
    char kernel[28];
} verdict_row;

struct vk_verdicts {
    pthread_mutex_t mutex; /* over the rows */
    verdict_row *rows;
    int32_t n_row, row_room;
    _Atomic int32_t n_wrong;
    pthread_mutex_t round; /* one plan is checked at a time */
    vk_trial *trial;       /* under it */
    vk_cache_key key;
    char path[3400]; /* empty = none */
};

/* ---- The file -------------------------------------------------------------------------------- */

/* The rows of a file for this driver; the caller frees them. A kernel that test-limits makes wrong
 * (`spoilt`; empty = none) has a file of its own. */
static verdict_row *rows_read(const vk_facts *facts, const char *spoilt, vk_cache_key *key_out,
                              char *path, size_t path_size, int32_t *n_out) {
    size_t size = 0;
    *n_out = 0;
    vk_cache_key_get(facts, key_out);
    if (!vk_cache_path(key_out, path, path_size) ||
        strlen(path) + strlen(spoilt) + sizeof ".checked" >= path_size) {
        path[0] = '\0';
        return NULL;
    }
    strcat(strcat(path, ".checked"), spoilt);
    verdict_row *rows = vk_cache_read(path, key_out, &size);
    *n_out = rows != NULL && size % sizeof *rows == 0 ? (int32_t)(size / sizeof *rows) : 0;
    for (int32_t i = 0; i < *n_out; i++) rows[i].kernel[sizeof rows[i].kernel - 1] = '\0';
    return rows;
}

tdm_status vk_verdicts_create(vk_device *device, tdm_error *err) {
    struct vk_verdicts *v = calloc(1, sizeof *v);
    if (v == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    int32_t n = 0;
    pthread_mutex_init(&v->mutex, NULL);
    pthread_mutex_init(&v->round, NULL);
    v->rows = rows_read(device->facts, device->options.wrong, &v->key, v->path, sizeof v->path, &n);
    v->row_room = n;
    /* Verdicts of kernels whose code has changed since count for nothing. */
    for (int32_t i = 0; i < n; i++)
        if (vk_shader_hash_is_known(v->rows[i].code)) v->rows[v->n_row++] = v->rows[i];
    for (int32_t i = 0; i < v->n_row; i++)
        if (v->rows[i].verdict == VK_VERDICT_WRONG) v->n_wrong++;
    device->verdicts = v;
    return TDM_OK;
}

void vk_verdicts_destroy(vk_device *device) {
    struct vk_verdicts *v = device->verdicts;
    if (v == NULL) return;
    vk_trial_destroy(v->trial);
    pthread_mutex_destroy(&v->round);
    pthread_mutex_destroy(&v->mutex);
    free(v->rows);
    free(v);
    device->verdicts = NULL;
}

/* Whether a list with ", " between its names has this name. */
static bool has_name(const char *text, const char *name) {
    const size_t len = strlen(name);
    if (len == 0) return true;
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++)
        if ((at == text || at[-1] == ' ') && (at[len] == '\0' || at[len] == ',')) return true;
    return false;
}

int32_t vk_verdicts_wrong(const vk_facts *facts, const char *spoilt, char *text, size_t size) {
    vk_cache_key key;
    char path[3400];
    int32_t n, n_wrong = 0;
    size_t used = 0;
    verdict_row *rows = rows_read(facts, spoilt, &key, path, sizeof path, &n);
    text[0] = '\0';
    for (int32_t i = 0; i < n; i++) {
        if (rows[i].verdict != VK_VERDICT_WRONG || !vk_shader_hash_is_known(rows[i].code)) continue;
        n_wrong++;
        int k =
            has_name(text, rows[i].kernel) || used >= size
                ? 0
                : snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", rows[i].kernel);
        if (k > 0) used += (size_t)k;
    }
    free(rows);
    return n_wrong;
}

/* ---- The list -------------------------------------------------------------------------------- */

/* With the mutex held. */
static const verdict_row *row_find(const struct vk_verdicts *v, uint64_t pipeline) {
    for (int32_t i = 0; i < v->n_row; i++)
        if (v->rows[i].pipeline == pipeline) return &v->rows[i];
    return NULL;
}

static bool is_known(struct vk_verdicts *v, uint64_t pipeline) {
    pthread_mutex_lock(&v->mutex);
    bool found = row_find(v, pipeline) != NULL;
    pthread_mutex_unlock(&v->mutex);
    return found;
}

/* Makes room for n more rows. */
static bool rows_reserve(struct vk_verdicts *v, int32_t n) {
    pthread_mutex_lock(&v->mutex);
    if (v->row_room - v->n_row < n) {
        int32_t room = 2 * v->row_room + n + 64;
        verdict_row *grown = realloc(v->rows, (size_t)room * sizeof *grown);
        if (grown != NULL) {
            v->rows = grown;
            v->row_room = room;
        }
    }
    bool has_room = v->row_room - v->n_row >= n;
    pthread_mutex_unlock(&v->mutex);
    return has_room;
}

/* Room was made, and one round at a time adds rows. */
static void row_add(vk_device *device, const gpu_step *step, vk_verdict verdict) {
    struct vk_verdicts *v = device->verdicts;
    verdict_row row = {.pipeline = vk_pipeline_hash(device, step),
                       .code = vk_shader_hash(step),
                       .verdict = (int32_t)verdict};
    snprintf(row.kernel, sizeof row.kernel, "%s", gpu_kernel_name(step->kernel));
    pthread_mutex_lock(&v->mutex);
    v->rows[v->n_row++] = row;
    if (verdict == VK_VERDICT_WRONG) v->n_wrong++;
    pthread_mutex_unlock(&v->mutex);
}

/* gpu_target.is_wrong */
static bool step_is_wrong(void *context, const gpu_step *step) {
    const vk_device *device = context;
    struct vk_verdicts *v = device->verdicts;
    uint64_t hash = vk_pipeline_hash(device, step);
    pthread_mutex_lock(&v->mutex);
    const verdict_row *row = row_find(v, hash);
    bool is_wrong = row != NULL && row->verdict == VK_VERDICT_WRONG;
    pthread_mutex_unlock(&v->mutex);
    return is_wrong;
}

/* A refused fusion is planned as single nodes by itself. Products have several kernels: without
 * integer dot products, lanes and tiles, all are done by PRODUCT_ROW. */
void vk_verdicts_target(vk_device *device, gpu_target *target_out) {
    struct vk_verdicts *v = device->verdicts;
    *target_out = device->target;
    if (atomic_load(&v->n_wrong) == 0) return;
    target_out->is_wrong = step_is_wrong;
    target_out->is_wrong_context = device;
    pthread_mutex_lock(&v->mutex);
    for (int32_t i = 0; i < v->n_row; i++) {
        if (v->rows[i].verdict != VK_VERDICT_WRONG) continue;
        if (strcmp(v->rows[i].kernel, "product_lane") == 0)
            target_out->product.lane_max_subgroup = -1;
        if (strcmp(v->rows[i].kernel, "product_tile") == 0) target_out->product.has_no_tiles = true;
        if (strcmp(v->rows[i].kernel, "quantize") == 0 ||
            strcmp(v->rows[i].kernel, "product_row_dot") == 0 ||
            strcmp(v->rows[i].kernel, "product_tile_dot") == 0)
            target_out->has_dot8 = false;
    }
    pthread_mutex_unlock(&v->mutex);
}

/* ---- Checking a plan ------------------------------------------------------------------------- */

/* What a round of checks has found. */
typedef struct round_count {
    int32_t n_right, n_wrong, n_untried;
} round_count;

/* The trial ran several steps. A result that is right makes all of them right. One that is wrong is
 * the fault of the last one that is not known to be right. Without memory for the rows nothing was
 * found: a plan that is made again would use and try the same pipeline without end. */
static void verdicts_add(vk_device *device, const gpu_step *step, const gpu_plan *tried,
                         vk_verdict verdict, round_count *count) {
    const gpu_step *blamed = step;
    if (!rows_reserve(device->verdicts, 1 + (tried != NULL ? tried->n_step : 0))) return;
    for (int32_t i = 0; tried != NULL && i < tried->n_step; i++) {
        if (is_known(device->verdicts, vk_pipeline_hash(device, &tried->steps[i]))) continue;
        blamed = &tried->steps[i];
        if (verdict != VK_VERDICT_RIGHT) continue;
        row_add(device, blamed, verdict);
        count->n_right++;
    }
    if (verdict == VK_VERDICT_RIGHT) return;
    row_add(device, blamed, verdict);
    if (verdict == VK_VERDICT_UNTRIED) count->n_untried++;
    if (verdict != VK_VERDICT_WRONG) return;
    const tdm_host *host = device->instance->host;
    count->n_wrong++;
    host->log(host->context, TDM_LOG_WARN,
              "%s (%s, %s): kernel %s gives wrong results with this driver: it is not used. "
              "Where its op is refused, start again: the CPU then computes it",
              device->name, device->facts->properties.deviceName, device->facts->driver,
              gpu_kernel_name(blamed->kernel));
}

static void round_end(vk_device *device, const round_count *count, int64_t start_ms,
                      int64_t end_ms) {
    struct vk_verdicts *v = device->verdicts;
    const tdm_host *host = device->instance->host;
    if (count->n_right + count->n_wrong + count->n_untried == 0) return;
    host->log(host->context, TDM_LOG_DEBUG,
              "%s: pipelines checked against the CPU in %lld ms: %d right, %d wrong, %d without a "
              "check",
              device->name, (long long)(end_ms - start_ms), (int)count->n_right,
              (int)count->n_wrong, (int)count->n_untried);
    pthread_mutex_lock(&v->mutex);
    if (v->path[0] != '\0')
        vk_cache_write(v->path, &v->key, v->rows, (size_t)v->n_row * sizeof *v->rows);
    pthread_mutex_unlock(&v->mutex);
}

static int64_t clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool vk_verdicts_check(vk_device *device, const tdm_graph *graph, const gpu_plan *steps) {
    struct vk_verdicts *v = device->verdicts;
    round_count count = {0, 0, 0};
    if (!TDM_HAS(device->instance->host, graph)) return false;
    uint8_t *has_step = calloc((size_t)graph->n_node + 1, 1);
    if (has_step == NULL) return false;
    for (int32_t i = 0; i < steps->n_step; i++) has_step[steps->steps[i].node] = 1;
    pthread_mutex_lock(&v->round);
    int64_t start_ms = clock_ms();
    if (v->trial == NULL) v->trial = vk_trial_create(device);
    for (int32_t i = 0; i < steps->n_step && v->trial != NULL; i++) {
        const gpu_step *step = &steps->steps[i];
        gpu_plan *tried = NULL;
        if (is_known(v, vk_pipeline_hash(device, step))) continue;
        vk_verdict verdict = vk_trial_run(v->trial, graph, has_step, step, &tried);
        if (verdict != VK_VERDICT_NONE) verdicts_add(device, step, tried, verdict, &count);
        gpu_plan_destroy(tried);
        if (atomic_load(&device->is_lost)) break;
    }
    round_end(device, &count, start_ms, clock_ms());
    pthread_mutex_unlock(&v->round);
    free(has_step);
    return count.n_wrong > 0;
}
