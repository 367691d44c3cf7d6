/* SPDX-License-Identifier: MIT
 *
 * gguf.c: the parts of a model as one set of keys and tensors, lookup by name, and advice to the
 * kernel about pages. The header of one file: gguf_part.c. Values: gguf_value.c.
 *
 * The files of a split model are NAME-00001-of-0000N.gguf. Each has the keys split.no (from 0),
 * split.count, and split.tensors.count, the number of tensors of all parts (llama.cpp,
 * tools/gguf-split).
 */
#include "llm/gguf/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llm/gguf/gguf_part.h"

/* A part's name has five digits. Parts are opened one by one, so a wrong number costs nothing. */
#define PARTS_MAX 99999

struct llm_gguf {
    llm_gguf_part *parts;
    uint32_t n_parts;
    llm_gguf_tensor *tensors; /* of all parts, in order */
    uint32_t n_tensors;
    const llm_gguf_tensor **tensor_index; /* the same, sorted by name */
};

static int tensor_compare(const void *a, const void *b) {
    return strcmp((*(const llm_gguf_tensor *const *)a)->name,
                  (*(const llm_gguf_tensor *const *)b)->name);
}

/* Moves the parts' tensors into one array and indexes them by name. */
static tdm_status gguf_gather(llm_gguf *g, tdm_error *err) {
    uint64_t n = 0;
    for (uint32_t p = 0; p < g->n_parts; ++p) n += g->parts[p].n_tensors;
    if (n > UINT32_MAX / 2)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: its parts hold too many tensors; download it again", llm_gguf_name(g));
    g->tensors = malloc((n > 0 ? n : 1) * sizeof *g->tensors);
    g->tensor_index = malloc((n > 0 ? n : 1) * sizeof *g->tensor_index);
    if (g->tensors == NULL || g->tensor_index == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%s: not enough memory for %" PRIu64 " tensor descriptions",
                        llm_gguf_name(g), n);
    for (uint32_t p = 0; p < g->n_parts; ++p) {
        llm_gguf_part *part = &g->parts[p];
        for (uint32_t i = 0; i < part->n_tensors; ++i)
            g->tensors[g->n_tensors++] = part->tensors[i];
        free(part->tensors);
        part->tensors = NULL;
        part->n_tensors = 0;
    }
    for (uint32_t i = 0; i < g->n_tensors; ++i) g->tensor_index[i] = &g->tensors[i];
    qsort(g->tensor_index, g->n_tensors, sizeof *g->tensor_index, tensor_compare);
    for (uint32_t i = 1; i < g->n_tensors; ++i)
        if (tensor_compare(&g->tensor_index[i - 1], &g->tensor_index[i]) == 0)
            return tdm_fail(err, TDM_DATA_LOSS,
                            "%s: tensor '%.80s' occurs twice; the file is corrupt, download it "
                            "again",
                            g->parts[g->tensor_index[i]->part].shown, g->tensor_index[i]->name);
    return TDM_OK;
}

/* Reads a part's number and the number of parts; *count is 0 if the model is not split. */
static tdm_status part_read_split(const llm_gguf_part *part, int64_t *number, int64_t *count,
                                  int64_t *n_tensors, tdm_error *err) {
    const struct {
        const char *name;
        int64_t missing, low, high;
        int64_t *value;
    } keys[] = {
        {"split.count", 0, 0, PARTS_MAX, count},
        {"split.no", -1, 0, PARTS_MAX - 1, number},
        {"split.tensors.count", -1, 0, INT32_MAX, n_tensors},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; ++i) {
        *keys[i].value = keys[i].missing;
        const llm_gguf_key *key = llm_gguf_part_key_find(part, keys[i].name);
        if (key == NULL) continue;
        tdm_status status =
            llm_gguf_key_integer(key, part->shown, keys[i].low, keys[i].high, keys[i].value, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

/* Opens parts 2 to `count` in the folder of the first, whose path is `path`, and checks that their
 * keys agree with their names. */
static tdm_status gguf_open_parts(llm_gguf *g, const char *path, int64_t count, int64_t n_tensors,
                                  tdm_error *err) {
    char suffix[64];
    snprintf(suffix, sizeof suffix, "-00001-of-%05" PRId64 ".gguf", count);
    const size_t path_len = strlen(path), suffix_len = strlen(suffix);
    const char *shown = g->parts[0].shown;
    if (path_len < suffix_len || strcmp(path + path_len - suffix_len, suffix) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s: is the first of %" PRId64 " parts, which are found by name; rename it "
                        "to end in '%s' and the others likewise",
                        shown, count, suffix);
    char *part_path = malloc(path_len + sizeof suffix);
    if (part_path == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: not enough memory for a path", shown);
    memcpy(part_path, path, path_len + 1);
    tdm_status status = TDM_OK;
    uint64_t n_found = g->parts[0].n_tensors;
    for (int64_t i = 1; i < count && status == TDM_OK; ++i) {
        llm_gguf_part *grown = realloc(g->parts, (size_t)(i + 1) * sizeof *grown);
        if (grown == NULL) {
            status =
                tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: not enough memory for %" PRId64 " parts",
                         g->parts[0].shown, count);
            break;
        }
        g->parts = grown;
        llm_gguf_part *part = &g->parts[i];
        memset(part, 0, sizeof *part);
        snprintf(part_path + path_len - suffix_len, sizeof suffix,
                 "-%05" PRId64 "-of-%05" PRId64 ".gguf", i + 1, count);
        status = llm_gguf_part_open(part, part_path, (uint32_t)i, err);
        if (status == TDM_NOT_FOUND)
            tdm_fail(err, TDM_NOT_FOUND,
                     "%s: part %" PRId64 " of %" PRId64 " is missing; download it into the same "
                     "folder",
                     part->shown, i + 1, count);
        if (status != TDM_OK) break;
        g->n_parts = (uint32_t)i + 1;
        n_found += part->n_tensors;
        int64_t part_number, part_count, part_n_tensors;
        status = part_read_split(part, &part_number, &part_count, &part_n_tensors, err);
        if (status != TDM_OK) break;
        if (part_number != i || part_count != count || part_n_tensors != n_tensors)
            status = tdm_fail(
                err, TDM_DATA_LOSS,
                "%s: does not belong to the model of '%s' (its split.no is %" PRId64
                ", split.count %" PRId64 ", split.tensors.count %" PRId64 "); download it again",
                part->shown, g->parts[0].shown, part_number, part_count, part_n_tensors);
    }
    free(part_path);
    if (status == TDM_OK && n_tensors >= 0 && n_found != (uint64_t)n_tensors)
        status = tdm_fail(err, TDM_DATA_LOSS,
                          "%s: the parts hold %" PRIu64 " tensors, but split.tensors.count is "
                          "%" PRId64 "; download all parts again",
                          g->parts[0].shown, n_found, n_tensors);
    return status;
}

tdm_status llm_gguf_open(const char *path, llm_gguf **out, tdm_error *err) {
    *out = NULL;
    llm_gguf *g = calloc(1, sizeof *g);
    if (g != NULL) g->parts = calloc(1, sizeof *g->parts);
    if (g == NULL || g->parts == NULL) {
        free(g);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "not enough memory to open a model");
    }
    int64_t number, count, n_tensors;
    tdm_status status = llm_gguf_part_open(&g->parts[0], path, 0, err);
    if (status == TDM_OK) {
        g->n_parts = 1;
        status = part_read_split(&g->parts[0], &number, &count, &n_tensors, err);
    }
    if (status == TDM_OK && number > 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "%s: is part %" PRId64 " of %" PRId64 " of a model; open the part whose "
                          "name ends in '-00001-of-%05" PRId64 ".gguf'",
                          g->parts[0].shown, number + 1, count, count);
    if (status == TDM_OK && count > 1) status = gguf_open_parts(g, path, count, n_tensors, err);
    if (status == TDM_OK) status = gguf_gather(g, err);
    if (status != TDM_OK) {
        llm_gguf_close(g);
        return status;
    }
    *out = g;
    return TDM_OK;
}

void llm_gguf_close(llm_gguf *g) {
    if (g == NULL) return;
    for (uint32_t p = 0; p < g->n_parts; ++p) llm_gguf_part_close(&g->parts[p]);
    free(g->parts);
    free(g->tensors);
    free(g->tensor_index);
    free(g);
}

const char *llm_gguf_name(const llm_gguf *g) {
    return g->parts[0].shown;
}
const char *llm_gguf_part_name(const llm_gguf *g, uint32_t part) {
    return g->parts[part].shown;
}
uint32_t llm_gguf_part_count(const llm_gguf *g) {
    return g->n_parts;
}
uint32_t llm_gguf_version(const llm_gguf *g) {
    return g->parts[0].version;
}
uint32_t llm_gguf_key_count(const llm_gguf *g) {
    return g->parts[0].n_keys;
}

const llm_gguf_key *llm_gguf_key_at(const llm_gguf *g, uint32_t i) {
    return &g->parts[0].keys[i];
}

const llm_gguf_key *llm_gguf_key_find(const llm_gguf *g, const char *name) {
    return llm_gguf_part_key_find(&g->parts[0], name);
}

uint32_t llm_gguf_tensor_count(const llm_gguf *g) {
    return g->n_tensors;
}

const llm_gguf_tensor *llm_gguf_tensor_at(const llm_gguf *g, uint32_t i) {
    return &g->tensors[i];
}

const llm_gguf_tensor *llm_gguf_tensor_find(const llm_gguf *g, const char *name) {
    const llm_gguf_tensor wanted = {.name = name};
    const llm_gguf_tensor *wanted_ptr = &wanted;
    const llm_gguf_tensor **found = g->n_tensors == 0
                                        ? NULL
                                        : bsearch(&wanted_ptr, g->tensor_index, g->n_tensors,
                                                  sizeof *g->tensor_index, tensor_compare);
    return found != NULL ? *found : NULL;
}

const char *llm_gguf_tensor_type_name(uint32_t type_raw) {
    /* `enum ggml_type` (ggml-org/ggml, include/ggml.h); the gaps are removed types. */
    static const char *const other[] = {
        [9] = "q8_1", [15] = "q8_K", [25] = "i16", [27] = "i64", [28] = "f64",
    };
    const char *name =
        type_raw < TDM_TYPE_LIMIT_ ? tdm_type_get_info((tdm_type)type_raw).name : NULL;
    if (name == NULL && type_raw < sizeof other / sizeof *other) name = other[type_raw];
    return name != NULL ? name : "?";
}

tdm_status llm_gguf_tensor_check_type(const llm_gguf *g, const llm_gguf_tensor *tensor,
                                      tdm_error *err) {
    if (tensor->size != 0) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: tensor '%.80s' has type %s (number %" PRIu32
                    "), which this build does not read; get the model in another quantisation",
                    g->parts[tensor->part].shown, tensor->name,
                    llm_gguf_tensor_type_name(tensor->type_raw), tensor->type_raw);
}

/* ---- Bytes of tensors ---- */

static off_t tensor_offset(const llm_gguf_part *part, const llm_gguf_tensor *tensor, size_t from) {
    return (off_t)((const uint8_t *)tensor->data - part->base) + (off_t)from;
}

static tdm_status fail_shorter(const llm_gguf_part *part, const llm_gguf_tensor *tensor,
                               tdm_error *err) {
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: tensor '%.80s': the file has become shorter since it was opened; wait "
                    "until it is whole and start again",
                    part->shown, tensor->name);
}

tdm_status llm_gguf_read(const llm_gguf *g, const llm_gguf_tensor *tensor, size_t from, size_t size,
                         void *dst, tdm_error *err) {
    const llm_gguf_part *part = &g->parts[tensor->part];
    const off_t at = tensor_offset(part, tensor, from);
    uint8_t *to = dst;
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(part->fd, to + done, size - done, at + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return tdm_fail(err, TDM_IO, "%s: tensor '%.80s': cannot read: %s", part->shown,
                            tensor->name, strerror(errno));
        if (n == 0) return fail_shorter(part, tensor, err);
        done += (size_t)n;
    }
    return TDM_OK;
}

tdm_status llm_gguf_check_length(const llm_gguf *g, const llm_gguf_tensor *tensor, tdm_error *err) {
    const llm_gguf_part *part = &g->parts[tensor->part];
    struct stat info;
    if (fstat(part->fd, &info) != 0)
        return tdm_fail(err, TDM_IO, "%s: tensor '%.80s': cannot read the file's length: %s",
                        part->shown, tensor->name, strerror(errno));
    return info.st_size < tensor_offset(part, tensor, tensor->size)
               ? fail_shorter(part, tensor, err)
               : TDM_OK;
}

void llm_gguf_prefetch(const llm_gguf *g, const llm_gguf_tensor *tensor, size_t from, size_t to) {
    const llm_gguf_part *part = &g->parts[tensor->part];
    if (to > tensor->size) to = tensor->size;
    if (tensor->data == NULL || from >= to) return;
    (void)posix_fadvise(part->fd, tensor_offset(part, tensor, from), (off_t)(to - from),
                        POSIX_FADV_WILLNEED);
}

void llm_gguf_release_all(const llm_gguf *g) {
    for (uint32_t i = 0; i < g->n_parts; ++i)
        (void)madvise((void *)(uintptr_t)g->parts[i].base, g->parts[i].size, MADV_DONTNEED);
}
