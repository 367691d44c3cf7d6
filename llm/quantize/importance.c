/* SPDX-License-Identifier: MIT
 *
 * importance.c: see importance.h.
 */
#include "llm/quantize/importance.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SUMS   ".in_sum2"
#define COUNTS ".counts"

typedef struct entry {
    char *name;     /* of the matrix */
    char *file;     /* the first that has it, for messages */
    int64_t n;      /* inputs */
    int64_t n_part; /* experts; 1 for a plain matrix */
    double *sums;   /* [n_part][n] */
    double *counts; /* [n_part] */
    float *means;   /* [n_part][n], made when all files are read */
} entry;

struct llm_importance {
    entry *entries; /* in the order of names after reading */
    size_t n, room;
};

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for an importance matrix");
}

static void entry_clear(entry *e) {
    free(e->name);
    free(e->file);
    free(e->sums);
    free(e->counts);
    free(e->means);
}

void llm_importance_destroy(llm_importance *importance) {
    if (importance == NULL) return;
    for (size_t i = 0; i < importance->n; i++) entry_clear(&importance->entries[i]);
    free(importance->entries);
    free(importance);
}

size_t llm_importance_count(const llm_importance *importance) {
    return importance->n;
}

static int entry_compare(const void *a, const void *b) {
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

/* ---- Reading ---- */

static tdm_status bad_tensor(const llm_gguf *g, const char *name, const char *what,
                             tdm_error *err) {
    return tdm_fail(err, TDM_DATA_LOSS, "%s: tensor '%.80s' %s; make the importance matrix again",
                    llm_gguf_name(g), name, what);
}

static tdm_status values_check(const llm_gguf *g, const llm_gguf_tensor *tensor, tdm_error *err) {
    const float *values = tensor->data;
    const size_t n = tensor->size / sizeof *values;
    if (tensor->size == 0 || tensor->type != TDM_TYPE_F32)
        return bad_tensor(g, tensor->name, "is not of f32", err);
    for (size_t i = 0; i < n; i++)
        if (!(values[i] >= 0) || !isfinite(values[i]))
            return bad_tensor(g, tensor->name, "has a number that is negative or not finite", err);
    return TDM_OK;
}

/* The entry of that name: one of the first n_sorted entries, which are those of earlier files in
 * the order of names, or a new one with sums of 0. */
static tdm_status entry_get(llm_importance *m, size_t n_sorted, const llm_gguf *g, const char *name,
                            int64_t n, int64_t n_part, entry **out, tdm_error *err) {
    entry wanted = {.name = (char *)(uintptr_t)name};
    *out = n_sorted == 0
               ? NULL
               : bsearch(&wanted, m->entries, n_sorted, sizeof *m->entries, entry_compare);
    if (*out != NULL) return TDM_OK;
    if (m->n == m->room) {
        const size_t room = m->room == 0 ? 64 : 2 * m->room;
        entry *grown = realloc(m->entries, room * sizeof *grown);
        if (grown == NULL) return no_memory(err);
        m->entries = grown;
        m->room = room;
    }
    entry *e = &m->entries[m->n];
    *e = (entry){.name = strdup(name),
                 .file = strdup(llm_gguf_name(g)),
                 .n = n,
                 .n_part = n_part,
                 .sums = calloc((size_t)(n * n_part), sizeof *e->sums),
                 .counts = calloc((size_t)n_part, sizeof *e->counts)};
    m->n++;
    if (e->name == NULL || e->file == NULL || e->sums == NULL || e->counts == NULL)
        return no_memory(err);
    *out = e;
    return TDM_OK;
}

static tdm_status tensor_add(llm_importance *m, size_t n_sorted, const llm_gguf *g,
                             const llm_gguf_tensor *sums, tdm_error *err) {
    char name[256], count_name[256 + sizeof COUNTS];
    entry *e = NULL;
    const int len = (int)(strlen(sums->name) - strlen(SUMS));
    if ((size_t)len >= sizeof name)
        return bad_tensor(g, sums->name, "has a name that is too long", err);
    snprintf(name, sizeof name, "%.*s", len, sums->name);
    snprintf(count_name, sizeof count_name, "%s" COUNTS, name);
    const llm_gguf_tensor *counts = llm_gguf_tensor_find(g, count_name);
    if (counts == NULL) return bad_tensor(g, sums->name, "lacks its counts", err);
    tdm_status status = values_check(g, sums, err);
    if (status == TDM_OK) status = values_check(g, counts, err);
    if (status != TDM_OK) return status;
    const int64_t n = sums->ne[0], n_part = (int64_t)(counts->size / sizeof(float));
    const int64_t n_sum = (int64_t)(sums->size / sizeof(float));
    if (n < 1 || n_part < 1 || n_sum % n != 0 || n_sum / n != n_part)
        return bad_tensor(g, sums->name, "and its counts have different numbers of experts", err);
    status = entry_get(m, n_sorted, g, name, n, n_part, &e, err);
    if (status != TDM_OK) return status;
    if (e->n != n || e->n_part != n_part)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: tensor '%.80s' has %lld x %lld sums, %s has %lld x %lld; the files "
                        "are of different models",
                        llm_gguf_name(g), sums->name, (long long)n, (long long)n_part, e->file,
                        (long long)e->n, (long long)e->n_part);
    const float *sum = sums->data, *count = counts->data;
    for (int64_t i = 0; i < n * n_part; i++) e->sums[i] += (double)sum[i];
    for (int64_t i = 0; i < n_part; i++) e->counts[i] += (double)count[i];
    return TDM_OK;
}

static tdm_status file_add(llm_importance *m, const char *path, tdm_error *err) {
    llm_gguf *g = NULL;
    llm_gguf_str type = {"", 0};
    const size_t n_sorted = m->n;
    tdm_status status = llm_gguf_open(path, &g, err);
    if (status == TDM_OK)
        status = llm_gguf_get_str(g, "general.type", LLM_GGUF_OPTIONAL, &type, err);
    if (status == TDM_OK && !llm_gguf_str_equals(type, "imatrix"))
        status = tdm_fail(err, TDM_DATA_LOSS,
                          "%s: is no importance matrix: its general.type is '%.*s', not 'imatrix'",
                          path, type.len < 40 ? (int)type.len : 40, type.ptr);
    for (uint32_t i = 0; status == TDM_OK && i < llm_gguf_tensor_count(g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        const size_t len = strlen(tensor->name);
        if (len > strlen(SUMS) && strcmp(tensor->name + len - strlen(SUMS), SUMS) == 0)
            status = tensor_add(m, n_sorted, g, tensor, err);
    }
    llm_gguf_close(g);
    if (status == TDM_OK && m->n == 0)
        status = tdm_fail(err, TDM_DATA_LOSS, "%s: is an importance matrix without tensors", path);
    if (status == TDM_OK) qsort(m->entries, m->n, sizeof *m->entries, entry_compare);
    return status;
}

/* Makes means of the sums. The least mean is a millionth of the mean over all inputs, so that also
 * the weights of an input that was always 0 have an importance. An expert without tokens gets
 * ones. */
static tdm_status means_make(entry *e, tdm_error *err) {
    e->means = malloc((size_t)(e->n * e->n_part) * sizeof *e->means);
    if (e->means == NULL) return no_memory(err);
    for (int64_t p = 0; p < e->n_part; p++) {
        const double *sums = e->sums + p * e->n, count = e->counts[p];
        double total = 0;
        for (int64_t i = 0; i < e->n; i++) total += sums[i];
        const bool is_empty = !(count > 0) || !(total > 0);
        const double least = total / (double)e->n * 1e-6;
        for (int64_t i = 0; i < e->n; i++) {
            const double mean = is_empty ? 1 : (sums[i] > least ? sums[i] : least) / count;
            e->means[p * e->n + i] = mean < (double)FLT_MIN   ? FLT_MIN
                                     : mean > (double)FLT_MAX ? FLT_MAX
                                                              : (float)mean;
        }
    }
    return TDM_OK;
}

tdm_status llm_importance_read(const char *const *paths, size_t n, llm_importance **out,
                               tdm_error *err) {
    llm_importance *m = calloc(1, sizeof *m);
    tdm_status status = m == NULL ? no_memory(err) : TDM_OK;
    *out = NULL;
    for (size_t i = 0; i < n && status == TDM_OK; i++) status = file_add(m, paths[i], err);
    for (size_t i = 0; status == TDM_OK && i < m->n; i++) status = means_make(&m->entries[i], err);
    if (status == TDM_OK)
        *out = m;
    else
        llm_importance_destroy(m);
    return status;
}

tdm_status llm_importance_find(const llm_importance *m, const llm_gguf_tensor *tensor,
                               const float **values_out, tdm_error *err) {
    entry wanted = {.name = (char *)(uintptr_t)tensor->name};
    const entry *e = bsearch(&wanted, m->entries, m->n, sizeof *m->entries, entry_compare);
    *values_out = NULL;
    if (e == NULL) return TDM_OK;
    if (e->n != tensor->ne[0] || e->n_part != tensor->ne[2])
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: '%.80s' has %lld inputs and %lld experts, the model's tensor %lld and "
                        "%lld; use the importance matrix of this model",
                        e->file, e->name, (long long)e->n, (long long)e->n_part,
                        (long long)tensor->ne[0], (long long)tensor->ne[2]);
    *values_out = e->means;
    return TDM_OK;
}
