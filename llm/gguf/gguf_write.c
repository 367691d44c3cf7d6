/* SPDX-License-Identifier: MIT
 *
 * gguf_write.c: see gguf_write.h. gguf_part.c has the layout.
 */
#include "llm/gguf/gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llm/gguf/gguf_part.h"

#define ALIGNMENT   LLM_GGUF_ALIGNMENT_DEFAULT
#define BUFFER_SIZE ((size_t)1 << 20) /* few system calls, little memory */

/* A growing array of bytes. */
typedef struct bytes {
    uint8_t *data;
    size_t len, size;
} bytes;

struct llm_gguf_writer {
    char *path, *tmp_path;
    int fd;            /* -1 once closed */
    tdm_error error;   /* the first failure; status TDM_OK = none */
    bytes keys, infos; /* encoded keys and descriptions of tensors, until the first data */
    uint64_t n_keys;
    uint64_t *tensor_size; /* bytes of each tensor */
    uint64_t n_tensors, tensors_size;
    uint64_t data_off; /* of the next described tensor, from the start of the data */
    bool header_written;
    uint64_t tensor;     /* the one being written */
    uint64_t tensor_len; /* bytes of it written so far */
    bytes out;           /* bytes that are not written to the file yet */
};

/* Keeps the first failure; later ones are consequences. */
TDM_PRINTF(3, 4)
static void writer_fail(llm_gguf_writer *w, tdm_status status, const char *format, ...) {
    if (w->error.status != TDM_OK) return;
    va_list args;
    va_start(args, format);
    vsnprintf(w->error.message, sizeof w->error.message, format, args);
    va_end(args);
    w->error.status = status;
}

static tdm_status writer_report(const llm_gguf_writer *w, tdm_error *err) {
    if (w->error.status == TDM_OK) return TDM_OK;
    return tdm_fail(err, w->error.status, "%s", w->error.message);
}

static void writer_append(llm_gguf_writer *w, bytes *b, const void *data, size_t size) {
    if (w->error.status != TDM_OK || size == 0) return;
    size_t needed;
    if (__builtin_add_overflow(b->len, size, &needed) || needed > SIZE_MAX / 2) {
        writer_fail(w, TDM_RESOURCE_EXHAUSTED, "%s: its header is too large", w->path);
        return;
    }
    if (needed > b->size) {
        size_t grown_size = needed > 4096 ? needed * 2 : 4096;
        uint8_t *grown = realloc(b->data, grown_size);
        if (grown == NULL) {
            writer_fail(w, TDM_RESOURCE_EXHAUSTED, "%s: not enough memory to write it", w->path);
            return;
        }
        b->data = grown;
        b->size = grown_size;
    }
    memcpy(b->data + b->len, data, size);
    b->len = needed;
}

static void append_u32(llm_gguf_writer *w, bytes *b, uint32_t value) {
    writer_append(w, b, &value, sizeof value);
}

static void append_u64(llm_gguf_writer *w, bytes *b, uint64_t value) {
    writer_append(w, b, &value, sizeof value);
}

static void append_str(llm_gguf_writer *w, bytes *b, const char *text, size_t len) {
    append_u64(w, b, len);
    writer_append(w, b, text, len);
}

/* ---- The file ---- */

static tdm_status writer_create(const char *path, llm_gguf_writer **out, tdm_error *err) {
    const size_t path_size = strlen(path) + 1, tmp_path_size = path_size + 32;
    llm_gguf_writer *w = calloc(1, sizeof *w);
    if (w != NULL) {
        w->fd = -1;
        w->path = malloc(path_size);
        w->tmp_path = malloc(tmp_path_size);
    }
    if (w == NULL || w->path == NULL || w->tmp_path == NULL) {
        llm_gguf_writer_destroy(w);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: not enough memory to write it", path);
    }
    memcpy(w->path, path, path_size);
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        llm_gguf_writer_destroy(w);
        return tdm_fail(err, TDM_IO, "%s: exists and is not a regular file; choose another name",
                        path);
    }
    snprintf(w->tmp_path, tmp_path_size, "%s.%ld.tmp", path, (long)getpid());
    /* O_EXCL: no existing file is overwritten, for instance of another writer of the same model,
     * and no link at this path is followed. */
    w->fd = open(w->tmp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        tdm_status status = tdm_fail(err, TDM_IO,
                                     "%s: cannot create: %s; choose a folder that can be written "
                                     "to",
                                     path, strerror(errno));
        llm_gguf_writer_destroy(w);
        return status;
    }
    *out = w;
    return TDM_OK;
}

tdm_status llm_gguf_writer_create(const char *path, llm_gguf_writer **out, tdm_error *err) {
    *out = NULL;
    /* Replace the file that a link leads to, not the link. */
    char *real = NULL;
    struct stat info;
    const bool is_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    if (is_link && (real = realpath(path, NULL)) == NULL)
        return tdm_fail(err, TDM_IO, "%s: is a link that leads nowhere (%s); choose another name",
                        path, strerror(errno));
    if (is_link) path = real;
    tdm_status status = writer_create(path, out, err);
    free(real);
    return status;
}

void llm_gguf_writer_destroy(llm_gguf_writer *w) {
    if (w == NULL) return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->tmp_path);
    }
    free(w->path);
    free(w->tmp_path);
    free(w->keys.data);
    free(w->infos.data);
    free(w->tensor_size);
    free(w->out.data);
    free(w);
}

/* Writes the buffered bytes to the file. */
static void writer_flush(llm_gguf_writer *w) {
    size_t done = 0;
    while (w->error.status == TDM_OK && done < w->out.len) {
        ssize_t n = write(w->fd, w->out.data + done, w->out.len - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            writer_fail(w, TDM_IO, "%s: cannot write: %s; free some space or choose another folder",
                        w->path, n < 0 ? strerror(errno) : "nothing was taken");
            return;
        }
        done += (size_t)n;
    }
    w->out.len = 0;
}

static void writer_out(llm_gguf_writer *w, const void *data, size_t size) {
    const uint8_t *from = data;
    while (size > 0 && w->error.status == TDM_OK) {
        size_t n = BUFFER_SIZE - w->out.len;
        if (n > size) n = size;
        writer_append(w, &w->out, from, n);
        from += n;
        size -= n;
        if (w->out.len == BUFFER_SIZE) writer_flush(w);
    }
}

/* Zeros up to the next multiple of the alignment after `len` bytes. */
static void writer_pad(llm_gguf_writer *w, uint64_t len) {
    static const uint8_t zeros[ALIGNMENT];
    writer_out(w, zeros, (ALIGNMENT - len % ALIGNMENT) % ALIGNMENT);
}

static void writer_write_header(llm_gguf_writer *w) {
    bytes head = {0};
    append_u32(w, &head, LLM_GGUF_MAGIC);
    append_u32(w, &head, 3);
    append_u64(w, &head, w->n_tensors);
    append_u64(w, &head, w->n_keys);
    writer_out(w, head.data, head.len);
    writer_out(w, w->keys.data, w->keys.len);
    writer_out(w, w->infos.data, w->infos.len);
    /* A file without tensors ends here, without padding. */
    if (w->n_tensors > 0) writer_pad(w, (uint64_t)head.len + w->keys.len + w->infos.len);
    free(head.data);
    w->header_written = true;
}

tdm_status llm_gguf_writer_write(llm_gguf_writer *w, const void *data, size_t size,
                                 tdm_error *err) {
    if (w->error.status == TDM_OK && !w->header_written) writer_write_header(w);
    if (w->error.status == TDM_OK && size > 0) {
        if (w->tensor == w->n_tensors)
            writer_fail(w, TDM_FAILED_PRECONDITION,
                        "%s: more data than its %" PRIu64 " tensors hold", w->path, w->n_tensors);
        else if (size > w->tensor_size[w->tensor] - w->tensor_len)
            writer_fail(w, TDM_INVALID_ARGUMENT,
                        "%s: %zu bytes reach beyond the end of tensor number %" PRIu64, w->path,
                        size, w->tensor);
    }
    if (w->error.status == TDM_OK && size > 0) {
        writer_out(w, data, size);
        w->tensor_len += size;
        if (w->tensor_len == w->tensor_size[w->tensor]) {
            writer_pad(w, w->tensor_len);
            w->tensor += 1;
            w->tensor_len = 0;
        }
    }
    return writer_report(w, err);
}

/* Syncs the folder, so that the rename is durable. Some file systems do not support this; that is
 * not a failure. */
static void writer_sync_folder(const llm_gguf_writer *w) {
    char *folder = strdup(w->path);
    if (folder == NULL) return;
    char *slash = strrchr(folder, '/');
    if (slash != NULL) slash[slash == folder ? 1 : 0] = '\0';
    int fd = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

tdm_status llm_gguf_writer_finish(llm_gguf_writer *w, tdm_error *err) {
    if (w->error.status == TDM_OK && w->fd < 0)
        writer_fail(w, TDM_FAILED_PRECONDITION, "%s: is finished already", w->path);
    if (w->error.status == TDM_OK && !w->header_written) writer_write_header(w);
    if (w->error.status == TDM_OK && w->tensor != w->n_tensors)
        writer_fail(w, TDM_FAILED_PRECONDITION,
                    "%s: the data of %" PRIu64 " of its %" PRIu64 " tensors is missing", w->path,
                    w->n_tensors - w->tensor, w->n_tensors);
    writer_flush(w);
    if (w->error.status == TDM_OK && fsync(w->fd) != 0)
        writer_fail(w, TDM_IO, "%s: cannot write: %s; free some space or choose another folder",
                    w->path, strerror(errno));
    if (w->fd >= 0) {
        /* Network file systems may report a full disk only at this point. */
        if (close(w->fd) != 0)
            writer_fail(w, TDM_IO, "%s: cannot write: %s", w->path, strerror(errno));
        w->fd = -1;
        if (w->error.status == TDM_OK && rename(w->tmp_path, w->path) != 0)
            writer_fail(w, TDM_IO, "%s: cannot take the name of '%s': %s", w->path, w->tmp_path,
                        strerror(errno));
        if (w->error.status != TDM_OK)
            unlink(w->tmp_path);
        else
            writer_sync_folder(w);
    }
    return writer_report(w, err);
}

/* ---- Keys ---- */

/* Appends name and type; false if keys can no longer be added. */
static bool writer_begin_key(llm_gguf_writer *w, const char *name, llm_gguf_type type) {
    if (w->header_written)
        writer_fail(w, TDM_FAILED_PRECONDITION, "%s: key '%.80s' comes after tensor data", w->path,
                    name);
    if (w->error.status != TDM_OK) return false;
    append_str(w, &w->keys, name, strlen(name));
    append_u32(w, &w->keys, (uint32_t)type);
    w->n_keys += 1;
    return true;
}

void llm_gguf_writer_put_number(llm_gguf_writer *w, const char *name, llm_gguf_type type,
                                const void *value) {
    if (llm_gguf_type_size(type) == 0) {
        writer_fail(w, TDM_INVALID_ARGUMENT, "%s: key '%.80s': type %s is not a number's", w->path,
                    name, llm_gguf_type_name(type));
        return;
    }
    if (writer_begin_key(w, name, type))
        writer_append(w, &w->keys, value, llm_gguf_type_size(type));
}

void llm_gguf_writer_put_u32(llm_gguf_writer *w, const char *name, uint32_t value) {
    llm_gguf_writer_put_number(w, name, LLM_GGUF_U32, &value);
}

void llm_gguf_writer_put_f32(llm_gguf_writer *w, const char *name, float value) {
    llm_gguf_writer_put_number(w, name, LLM_GGUF_F32, &value);
}

void llm_gguf_writer_put_bool(llm_gguf_writer *w, const char *name, bool value) {
    const uint8_t byte = value ? 1 : 0;
    llm_gguf_writer_put_number(w, name, LLM_GGUF_BOOL, &byte);
}

void llm_gguf_writer_put_text(llm_gguf_writer *w, const char *name, const char *value) {
    if (writer_begin_key(w, name, LLM_GGUF_STRING)) append_str(w, &w->keys, value, strlen(value));
}

void llm_gguf_writer_put_array(llm_gguf_writer *w, const char *name, llm_gguf_type type,
                               const void *values, uint64_t n) {
    const size_t element_size = llm_gguf_type_size(type);
    size_t size = 0;
    if (element_size == 0 || __builtin_mul_overflow(n, element_size, &size)) {
        writer_fail(w, TDM_INVALID_ARGUMENT,
                    "%s: key '%.80s': %" PRIu64 " elements of type %s are not an array", w->path,
                    name, n, llm_gguf_type_name(type));
        return;
    }
    if (!writer_begin_key(w, name, LLM_GGUF_ARRAY)) return;
    append_u32(w, &w->keys, (uint32_t)type);
    append_u64(w, &w->keys, n);
    writer_append(w, &w->keys, values, size);
}

void llm_gguf_writer_put_strings(llm_gguf_writer *w, const char *name, const llm_gguf_str *values,
                                 uint64_t n) {
    if (!writer_begin_key(w, name, LLM_GGUF_ARRAY)) return;
    append_u32(w, &w->keys, LLM_GGUF_STRING);
    append_u64(w, &w->keys, n);
    for (uint64_t i = 0; i < n; ++i) append_str(w, &w->keys, values[i].ptr, values[i].len);
}

void llm_gguf_writer_put_key(llm_gguf_writer *w, const llm_gguf_key *key) {
    if (writer_begin_key(w, key->name, key->type)) writer_append(w, &w->keys, key->data, key->size);
}

/* ---- Tensors ---- */

void llm_gguf_writer_add_tensor(llm_gguf_writer *w, const char *name, tdm_type type, int32_t n_dims,
                                const int64_t *ne) {
    if (w->header_written)
        writer_fail(w, TDM_FAILED_PRECONDITION, "%s: tensor '%.80s' comes after tensor data",
                    w->path, name);
    if (w->error.status != TDM_OK) return;
    tdm_type_info info = tdm_type_get_info(type);
    bool is_valid = info.name != NULL && n_dims >= 1 && n_dims <= 4;
    int64_t n_elements = 1;
    uint64_t size = 0, next_off = 0;
    for (int32_t d = 0; is_valid && d < n_dims; ++d)
        is_valid = ne[d] > 0 && !__builtin_mul_overflow(n_elements, ne[d], &n_elements);
    is_valid = is_valid && ne[0] % info.block_len == 0 &&
               !__builtin_mul_overflow(n_elements / info.block_len, info.block_size, &size) &&
               !__builtin_add_overflow(w->data_off, size, &next_off) && next_off < INT64_MAX;
    if (!is_valid) {
        writer_fail(
            w, TDM_INVALID_ARGUMENT,
            "%s: tensor '%.80s': type %s cannot have this shape (rows must be whole blocks)",
            w->path, name, tdm_type_name(type));
        return;
    }
    if (w->n_tensors == w->tensors_size) {
        uint64_t grown_size = w->tensors_size == 0 ? 64 : w->tensors_size * 2;
        uint64_t *grown = realloc(w->tensor_size, grown_size * sizeof *grown);
        if (grown == NULL) {
            writer_fail(w, TDM_RESOURCE_EXHAUSTED, "%s: not enough memory to write it", w->path);
            return;
        }
        w->tensor_size = grown;
        w->tensors_size = grown_size;
    }
    append_str(w, &w->infos, name, strlen(name));
    append_u32(w, &w->infos, (uint32_t)n_dims);
    for (int32_t d = 0; d < n_dims; ++d) append_u64(w, &w->infos, (uint64_t)ne[d]);
    append_u32(w, &w->infos, (uint32_t)type);
    append_u64(w, &w->infos, w->data_off);
    w->tensor_size[w->n_tensors++] = size;
    w->data_off = (next_off + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}
