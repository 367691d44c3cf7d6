/* SPDX-License-Identifier: MIT
 *
 * verdict.c: see verdict.h. Owns the list of verdicts and what plans do with it. trial.c finds each
 * verdict, verdict_file.c stores them.
 */
#include "plugins/vulkan/verdict.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/gpu/ops/quantize.h"
#include "plugins/vulkan/pipeline.h"

/* Must be raised where trials find more errors than before, or where modules request more of
 * drivers (float_mode.h): verdicts of older versions are then ignored, and all pipelines are
 * tried again. */
enum { TRIAL_VERSION = 5 };

struct vk_verdicts {
    pthread_mutex_t mutex; /* over the list; held for short times: supports_op takes it */
    vk_verdict_list list;
    _Atomic int32_t n_wrong; /* rows of the list that are bad */
    pthread_mutex_t round;   /* held while a plan is checked; only its holder changes the list */
    vk_trial *trial;         /* under `round`; NULL until the first check */
    vk_cache_key key;
    char path[3400];         /* empty = none */
    vk_compile_marks *marks; /* NULL = none */
    atomic_bool has_warned;  /* of a pipeline that is compiled by itself */
};

/* ---- The file -------------------------------------------------------------------------------- */

/* The file for a driver; an empty path where there is none. A kernel that test-limits makes wrong
 * (`spoilt`; empty = none) has a file of its own. */
static void file_find(const vk_facts *facts, const char *spoilt, vk_cache_key *key_out, char *path,
                      size_t path_size) {
    vk_cache_key_get(facts, key_out);
    bool has_path = vk_cache_path(key_out, path, path_size) &&
                    strlen(path) + strlen(spoilt) + sizeof ".checked" < path_size;
    key_out->version = TRIAL_VERSION;
    if (has_path)
        strcat(strcat(path, ".checked"), spoilt);
    else
        path[0] = '\0';
}

/* With the mutex held, or before another thread can have the struct. */
static void wrong_count(struct vk_verdicts *v) {
    int32_t n = 0;
    for (int32_t i = 0; i < v->list.n; i++) n += vk_verdict_is_bad(v->list.rows[i].verdict);
    atomic_store(&v->n_wrong, n);
}

/* Says which rows of the list are fatal since the last start: n_fatal rows from `first` on. */
static void fatal_log(const vk_device *device, int32_t first, int32_t n_fatal) {
    const struct vk_verdicts *v = device->verdicts;
    const tdm_host *host = device->instance->host;
    for (int32_t i = first; i < first + n_fatal && TDM_HAS(host, log); i++)
        host->log(
            host->context, TDM_LOG_WARN,
            "%s (%s, %s): kernel %s: this driver ended the last two processes that compiled it or "
            "ran it first, so it is not used. To try it again, delete %s",
            device->name, device->facts->properties.deviceName, device->facts->driver,
            v->list.rows[i].kernel, v->path);
}

tdm_status vk_verdicts_create(vk_device *device, tdm_error *err) {
    struct vk_verdicts *v = calloc(1, sizeof *v);
    if (v == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_init(&v->mutex, NULL);
    pthread_mutex_init(&v->round, NULL);
    file_find(device->facts, device->options.wrong, &v->key, v->path, sizeof v->path);
    device->verdicts = v;
    /* Verdicts of kernels whose code has changed since count for nothing. */
    if (v->path[0] != '\0') {
        int32_t n_fatal = 0;
        vk_verdict_file_read(v->path, &v->key, vk_shader_hash_is_known, &v->list);
        const int32_t n_read = v->list.n;
        v->marks =
            vk_compile_marks_open(v->path, &v->key, vk_shader_hash_is_known, &v->list, &n_fatal);
        fatal_log(device, n_read, n_fatal);
    }
    wrong_count(v);
    return TDM_OK;
}

void vk_verdicts_destroy(vk_device *device) {
    struct vk_verdicts *v = device->verdicts;
    if (v == NULL) return;
    vk_trial_destroy(v->trial);
    vk_compile_marks_close(v->marks);
    pthread_mutex_destroy(&v->round);
    pthread_mutex_destroy(&v->mutex);
    free(v->list.rows);
    free(v);
    device->verdicts = NULL;
}

/* Whether a row before row i is of the same kernel and wrong. */
static bool is_named(const vk_verdict_list *list, int32_t i) {
    for (int32_t k = 0; k < i; k++)
        if (vk_verdict_is_bad(list->rows[k].verdict) &&
            strcmp(list->rows[k].kernel, list->rows[i].kernel) == 0)
            return true;
    return false;
}

/* Writes the names of the kernels with wrong pipelines: as many as fit whole, and how many others
 * there are. Returns the number of wrong pipelines. */
static int32_t names_format(const vk_verdict_list *list, char *text, size_t size) {
    int32_t n_wrong = 0, n_more = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < list->n; i++) {
        if (!vk_verdict_is_bad(list->rows[i].verdict)) continue;
        n_wrong++;
        if (is_named(list, i)) continue;
        const char *name = list->rows[i].kernel;
        if (n_more > 0 || used + strlen(", ") + strlen(name) + sizeof " and 999 more" > size)
            n_more++;
        else
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", name);
    }
    if (n_more > 0 && used == 0) snprintf(text, size, "%d kernels", (int)n_more);
    if (n_more > 0 && used > 0) snprintf(text + used, size - used, " and %d more", (int)n_more);
    return n_wrong;
}

int32_t vk_verdicts_wrong(const vk_facts *facts, const char *spoilt, char *text, size_t size) {
    vk_cache_key key;
    char path[3400];
    vk_verdict_list list = {.n = 0};
    file_find(facts, spoilt, &key, path, sizeof path);
    if (path[0] != '\0') {
        vk_verdict_file_read(path, &key, vk_shader_hash_is_known, &list);
        vk_compile_marks_read(path, &key, vk_shader_hash_is_known, &list);
    }
    int32_t n_wrong = names_format(&list, text, size);
    free(list.rows);
    return n_wrong;
}

/* ---- The list -------------------------------------------------------------------------------- */

/* The vk_verdict on a pipeline; VK_VERDICT_NONE where the list has none. */
static int32_t verdict_of(struct vk_verdicts *v, uint64_t pipeline) {
    pthread_mutex_lock(&v->mutex);
    const vk_verdict_row *row = vk_verdict_list_find(&v->list, pipeline);
    const int32_t verdict = row != NULL ? row->verdict : VK_VERDICT_NONE;
    pthread_mutex_unlock(&v->mutex);
    return verdict;
}

static bool is_known(struct vk_verdicts *v, uint64_t pipeline) {
    return verdict_of(v, pipeline) != VK_VERDICT_NONE;
}

/* Makes room for n more rows. */
static bool rows_reserve(struct vk_verdicts *v, int32_t n) {
    pthread_mutex_lock(&v->mutex);
    bool has_room = vk_verdict_list_reserve(&v->list, n);
    pthread_mutex_unlock(&v->mutex);
    return has_room;
}

static vk_verdict_row row_make(const vk_device *device, const gpu_step *step, vk_verdict verdict) {
    vk_verdict_row row = {.pipeline = vk_pipeline_hash(device, step),
                          .code = vk_shader_hash(step),
                          .verdict = (int32_t)verdict};
    snprintf(row.kernel, sizeof row.kernel, "%s", gpu_kernel_name(step->kernel));
    return row;
}

/* Room was made, and one round at a time adds rows. */
static void row_add(vk_device *device, const gpu_step *step, vk_verdict verdict) {
    struct vk_verdicts *v = device->verdicts;
    const vk_verdict_row row = row_make(device, step, verdict);
    pthread_mutex_lock(&v->mutex);
    vk_verdict_list_add(&v->list, &row);
    wrong_count(v);
    pthread_mutex_unlock(&v->mutex);
}

/* gpu_target.is_wrong */
static bool step_is_wrong(void *context, const gpu_step *step) {
    const vk_device *device = context;
    return vk_verdict_is_bad(verdict_of(device->verdicts, vk_pipeline_hash(device, step)));
}

/* The planner plans the nodes of a fusion singly where is_wrong refuses a step of it; nothing is
 * set here for that. A kernel with alternatives is switched off where one of its pipelines is
 * wrong: PRODUCT_ROW can compute all products. ATTENTION_PART and ATTENTION_TILE can replace the
 * other kernels of ATTENTION that walk over a cache, and mostly each other. */
int32_t vk_verdicts_target(vk_device *device, gpu_target *target_out) {
    struct vk_verdicts *v = device->verdicts;
    /* Before the list is read: what is added meanwhile counts as new. */
    const int32_t n_wrong = atomic_load(&v->n_wrong);
    *target_out = device->target;
    if (n_wrong == 0) return 0;
    target_out->is_wrong = step_is_wrong;
    target_out->is_wrong_context = device;
    pthread_mutex_lock(&v->mutex);
    for (int32_t i = 0; i < v->list.n; i++) {
        if (!vk_verdict_is_bad(v->list.rows[i].verdict)) continue;
        if (strcmp(v->list.rows[i].kernel, "product_lane") == 0)
            target_out->product.lane_max_subgroup = -1;
        if (strcmp(v->list.rows[i].kernel, "product_tile") == 0)
            target_out->product.has_no_tiles = true;
        if (strcmp(v->list.rows[i].kernel, "quantize") == 0 ||
            strcmp(v->list.rows[i].kernel, "product_row_dot") == 0 ||
            strcmp(v->list.rows[i].kernel, "product_tile_dot") == 0)
            target_out->has_dot8 = false;
        if (strcmp(v->list.rows[i].kernel, "halves") == 0 ||
            strcmp(v->list.rows[i].kernel, "product_tile_matrix") == 0 ||
            strcmp(v->list.rows[i].kernel, "product_tile_half") == 0)
            target_out->matrix_rows = 0;
        if (strcmp(v->list.rows[i].kernel, "attention_tile_matrix") == 0 ||
            strcmp(v->list.rows[i].kernel, "attention_tile_half") == 0)
            target_out->attention.has_no_matrices = true;
        if (strcmp(v->list.rows[i].kernel, "attention_latent_matrix") == 0 ||
            strcmp(v->list.rows[i].kernel, "attention_latent_half") == 0)
            target_out->attention.has_no_latent_matrices = true;
        if (strcmp(v->list.rows[i].kernel, "attention_lane") == 0)
            target_out->attention.has_no_lanes = true;
        if (strcmp(v->list.rows[i].kernel, "attention_part") == 0)
            target_out->attention.has_no_parts = true;
        if (strcmp(v->list.rows[i].kernel, "attention_tile") == 0)
            target_out->attention.has_no_tiles = true;
    }
    pthread_mutex_unlock(&v->mutex);
    return n_wrong;
}

/* ---- Compiling ------------------------------------------------------------------------------- */

tdm_status vk_verdicts_compile_begin(vk_device *device, const gpu_step *step,
                                     vk_compile_mark *mark_out, tdm_error *err) {
    struct vk_verdicts *v = device->verdicts;
    const tdm_host *host = device->instance->host;
    const vk_verdict_row row = row_make(device, step, VK_VERDICT_NONE);
    const int32_t verdict = verdict_of(v, row.pipeline);
    *mark_out = (vk_compile_mark){.slot = -1};
    if (verdict == VK_VERDICT_FATAL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: kernel %s is not compiled, since this driver ended the process twice "
                        "when it compiled it or ran it first. To try it again, delete %s",
                        device->name, row.kernel, v->path);
    if (verdict != VK_VERDICT_NONE) return TDM_OK; /* it was compiled before */
    *mark_out = vk_compile_mark_begin(v->marks, &row);
    if (mark_out->is_alone && !atomic_exchange(&v->has_warned, true) && TDM_HAS(host, log))
        host->log(host->context, TDM_LOG_WARN,
                  "%s (%s, %s): an earlier process ended while this driver compiled kernel %s or "
                  "others: each is now compiled by itself. If that ends this process too, the next "
                  "one does without the kernel",
                  device->name, device->facts->properties.deviceName, device->facts->driver,
                  row.kernel);
    return TDM_OK;
}

void vk_verdicts_compile_end(vk_device *device, const vk_compile_mark *mark) {
    vk_compile_mark_end(device->verdicts->marks, mark);
}

static bool has_row(const vk_verdict_row *rows, int32_t n, uint64_t pipeline) {
    for (int32_t i = 0; i < n; i++)
        if (rows[i].pipeline == pipeline) return true;
    return false;
}

vk_first_run vk_verdicts_run_begin(vk_device *device, const gpu_plan *steps) {
    struct vk_verdicts *v = device->verdicts;
    const tdm_host *host = device->instance->host;
    vk_verdict_row rows[VK_FIRST_RUN_MAX];
    int32_t n = 0;
    for (int32_t i = 0; i < steps->n_step && n < VK_FIRST_RUN_MAX; i++) {
        const uint64_t pipeline = vk_pipeline_hash(device, &steps->steps[i]);
        if (is_known(v, pipeline) || has_row(rows, n, pipeline)) continue;
        rows[n++] = row_make(device, &steps->steps[i], VK_VERDICT_NONE);
    }
    const vk_first_run run = vk_first_run_begin(v->marks, rows, n);
    if (run.is_alone && TDM_HAS(host, log))
        host->log(host->context, TDM_LOG_WARN,
                  "%s (%s, %s): an earlier process ended while this driver first ran kernel %s or "
                  "others with it: they now run by themselves. If that ends this process too, the "
                  "next one does without them",
                  device->name, device->facts->properties.deviceName, device->facts->driver,
                  rows[n - 1].kernel);
    return run;
}

void vk_verdicts_run_end(vk_device *device, const vk_first_run *run) {
    vk_first_run_end(device->verdicts->marks, run);
}

/* ---- Checking a plan ------------------------------------------------------------------------- */

/* What a round of checks has found. */
typedef struct round_count {
    int32_t n_right, n_wrong, n_untried;
} round_count;

static void wrong_log(const vk_device *device, const gpu_step *step) {
    const tdm_host *host = device->instance->host;
    const bool is_lost = atomic_load(&device->is_lost);
    if (!TDM_HAS(host, log)) return;
    host->log(host->context, TDM_LOG_WARN, "%s (%s, %s): kernel %s%s %s", device->name,
              device->facts->properties.deviceName, device->facts->driver,
              gpu_kernel_name(step->kernel), gpu_step_stores_bytes(step) ? " with bytes" : "",
              is_lost ? "was checked when the driver reset the device: it is not used from the "
                        "next start on"
                      : "gives wrong results with this driver: it is not used. Where its op is "
                        "refused, start again: the CPU then computes it");
}

/* Adds a verdict on a step; nothing where it has one. Room for the row was made. */
static void verdict_add(vk_device *device, const gpu_step *step, vk_verdict verdict,
                        round_count *count) {
    if (is_known(device->verdicts, vk_pipeline_hash(device, step))) return;
    row_add(device, step, verdict);
    if (verdict == VK_VERDICT_RIGHT) count->n_right++;
    if (verdict == VK_VERDICT_UNTRIED) count->n_untried++;
    if (verdict != VK_VERDICT_WRONG) return;
    count->n_wrong++;
    wrong_log(device, step);
}

/* Adds the verdicts of a trial that ran several steps. A right result makes all of them right. A
 * wrong one makes the last step without a verdict wrong, or all of them (result->blames_all).
 * Without memory for the rows, nothing is counted either: else steps_make (plan.c) would make the
 * plan again, with the same pipeline, without end. */
static void verdicts_add(vk_device *device, const gpu_step *step, const vk_trial_result *result,
                         round_count *count) {
    const gpu_plan *tried = result->tried;
    const gpu_step *blamed = step;
    int32_t n = tried != NULL ? tried->n_step : 0;
    if (!rows_reserve(device->verdicts, 1 + n)) return;
    for (int32_t i = 0; i < n; i++) {
        if (is_known(device->verdicts, vk_pipeline_hash(device, &tried->steps[i]))) continue;
        blamed = &tried->steps[i];
        if (result->verdict == VK_VERDICT_RIGHT || result->blames_all)
            verdict_add(device, blamed, result->verdict, count);
    }
    verdict_add(device, blamed, result->verdict, count);
}

/* Merges the list with the file. Under `round`: only its holder changes the list, so that it reads
 * the list without the mutex, and no row is lost while it merges a copy. The merge may wait some
 * seconds for another process: with the mutex held, supports_op would wait as long. Without memory
 * for the copy the rows are written by a later round. */
static void file_merge(struct vk_verdicts *v) {
    vk_verdict_list merged = {.n = 0}, old = v->list;
    if (v->path[0] == '\0' || !vk_verdict_list_reserve(&merged, old.n)) return;
    if (old.n > 0) memcpy(merged.rows, old.rows, (size_t)old.n * sizeof *old.rows);
    merged.n = old.n;
    vk_verdict_file_merge(v->path, &v->key, vk_shader_hash_is_known, &merged);
    pthread_mutex_lock(&v->mutex);
    v->list = merged;
    wrong_count(v);
    pthread_mutex_unlock(&v->mutex);
    free(old.rows);
}

bool vk_verdicts_uncompiled(vk_device *device, const gpu_plan *steps, tdm_status status) {
    const tdm_host *host = device->instance->host;
    bool is_new = false, is_replaced = false;
    if (status == TDM_RESOURCE_EXHAUSTED || atomic_load(&device->is_lost)) return false;
    pthread_mutex_lock(&device->verdicts->round);
    for (int32_t i = 0; i < steps->n_step; i++) {
        const gpu_step *step = &steps->steps[i];
        const bool has_matrices = step->kernel == GPU_KERNEL_PRODUCT_TILE_MATRIX ||
                                  step->kernel == GPU_KERNEL_ATTENTION_TILE_MATRIX ||
                                  step->kernel == GPU_KERNEL_ATTENTION_LATENT_MATRIX;
        if (!has_matrices || !vk_pipeline_is_refused(device, step)) continue;
        if (!step_is_wrong(device, step)) { /* else another plan has found it meanwhile */
            if (is_known(device->verdicts, vk_pipeline_hash(device, step)) ||
                !rows_reserve(device->verdicts, 1))
                continue;
            row_add(device, step, VK_VERDICT_WRONG);
            is_new = true;
        }
        is_replaced = true;
    }
    if (is_new) file_merge(device->verdicts);
    pthread_mutex_unlock(&device->verdicts->round);
    if (is_new && TDM_HAS(host, log))
        host->log(
            host->context, TDM_LOG_WARN,
            "%s (%s, %s): this driver cannot compile the kernel of matrix hardware: it is not "
            "used",
            device->name, device->facts->properties.deviceName, device->facts->driver);
    return is_replaced;
}

static void round_end(vk_device *device, const round_count *count, int64_t start_ms,
                      int64_t end_ms) {
    const tdm_host *host = device->instance->host;
    if (count->n_right + count->n_wrong + count->n_untried == 0) return;
    if (TDM_HAS(host, log))
        host->log(
            host->context, TDM_LOG_DEBUG,
            "%s: pipelines checked against the CPU in %lld ms: %d right, %d wrong, %d without a "
            "check",
            device->name, (long long)(end_ms - start_ms), (int)count->n_right, (int)count->n_wrong,
            (int)count->n_untried);
    file_merge(device->verdicts);
}

static int64_t clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool vk_verdicts_check(vk_device *device, const tdm_graph *graph, const gpu_plan *steps,
                       int32_t n_wrong) {
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
        if (atomic_load(&device->is_lost)) break;
        if (is_known(v, vk_pipeline_hash(device, step))) continue;
        vk_trial_result result = vk_trial_run(v->trial, graph, has_step, steps, step);
        if (strcmp(device->options.lost, gpu_kernel_name(step->kernel)) == 0) {
            (void)vk_fail(device, NULL, VK_ERROR_DEVICE_LOST, "test-limits");
            result.verdict = VK_VERDICT_NONE;
        }
        /* The device was lost in this trial: one of its pipelines counts as the cause. */
        if (atomic_load(&device->is_lost) && result.verdict == VK_VERDICT_NONE) {
            result.verdict = VK_VERDICT_WRONG;
            result.blames_all = true;
        }
        if (result.verdict != VK_VERDICT_NONE) verdicts_add(device, step, &result, &count);
        gpu_plan_destroy(result.tried);
    }
    round_end(device, &count, start_ms, clock_ms());
    pthread_mutex_unlock(&v->round);
    free(has_step);
    return !atomic_load(&device->is_lost) && atomic_load(&v->n_wrong) > n_wrong;
}
