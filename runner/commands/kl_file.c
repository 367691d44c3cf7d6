/* SPDX-License-Identifier: MIT
 *
 * kl_file.c: see kl_file.h. Reads and writes through stdio, a row at a time.
 */
#include "runner/commands/kl_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/hash.h"
#include "runner/commands/text_chunks.h"
#include "runner/output_file.h"

#define VERSION   1
#define HEAD_SIZE 128
/* How far the sum of a row's probabilities may be from 1. A logarithm down to -16 is rounded to f32
 * by at most 2^-21, which is then the relative error of its probability; smaller probabilities
 * hardly count. So the sum of a row of any length has an error below a hundredth of this. */
#define SUM_ERROR 1e-3

static const char magic[8] = {'T', 'D', 'M', 'K', 'L', 'R', 'E', 'F'};

struct kl_file {
    char *path;
    FILE *stream;              /* of a file that is read; NULL = `output` is written */
    runner_output_file output; /* of a file that is written; else cleared */
    uint8_t *bytes;            /* a row, or the head, in the byte order of the file */
    int32_t n_vocab;
    uint64_t n_row; /* read so far */
};

int32_t kl_head_n_row(const kl_head *head) {
    return text_chunk_n_scored(head->n_ctx);
}

/* ---- Fingerprints ---- */

static void put_u32(uint8_t *bytes, uint32_t value) {
    for (int i = 0; i < 4; i++) bytes[i] = (uint8_t)(value >> 8 * i);
}

static void put_u64(uint8_t *bytes, uint64_t value) {
    put_u32(bytes, (uint32_t)value);
    put_u32(bytes + 4, (uint32_t)(value >> 32));
}

static uint32_t get_u32(const uint8_t *bytes) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

static uint64_t get_u64(const uint8_t *bytes) {
    return get_u32(bytes) | (uint64_t)get_u32(bytes + 4) << 32;
}

uint64_t kl_hash_vocabulary(const llm_vocab *vocab) {
    uint64_t hash = TDM_HASH_BEGIN;
    for (int32_t id = 0; id < llm_vocab_n_token(vocab); id++) {
        llm_vocab_str text = llm_vocab_token_text(vocab, id);
        uint8_t len[4];
        put_u32(len, (uint32_t)text.len);
        hash = tdm_hash_add(tdm_hash_add(hash, len, sizeof len), text.ptr, text.len);
    }
    return hash;
}

uint64_t kl_hash_tokens(uint64_t hash, const int32_t *tokens, int32_t n) {
    if (hash == 0) hash = TDM_HASH_BEGIN;
    for (int32_t i = 0; i < n; i++) {
        uint8_t bytes[4];
        put_u32(bytes, (uint32_t)tokens[i]);
        hash = tdm_hash_add(hash, bytes, sizeof bytes);
    }
    return hash;
}

/* ---- Opening ---- */

static void file_free(kl_file *file) {
    if (file->stream != NULL) fclose(file->stream);
    free(file->bytes);
    free(file->path);
    free(file);
}

static tdm_status file_new(const char *path, int32_t n_vocab, kl_file **file_out, tdm_error *err) {
    kl_file *file = calloc(1, sizeof *file);
    if (file != NULL) {
        file->n_vocab = n_vocab;
        file->path = strdup(path);
        file->bytes = malloc((size_t)n_vocab * sizeof(float) + HEAD_SIZE);
    }
    if (file == NULL || file->path == NULL || file->bytes == NULL) {
        if (file != NULL) file_free(file);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", path);
    }
    *file_out = file;
    return TDM_OK;
}

static void head_pack(const kl_head *head, uint8_t *bytes) {
    memset(bytes, 0, HEAD_SIZE);
    memcpy(bytes, magic, sizeof magic);
    put_u32(bytes + 8, VERSION);
    put_u32(bytes + 12, (uint32_t)head->n_vocab);
    put_u32(bytes + 16, (uint32_t)head->n_ctx);
    put_u32(bytes + 20, (uint32_t)head->n_chunk);
    put_u64(bytes + 24, head->vocabulary);
    put_u64(bytes + 32, head->text);
    put_u64(bytes + 40, head->model);
    memcpy(bytes + 48, head->name, sizeof head->name - 1);
}

tdm_status kl_file_create(const char *path, const kl_head *head, kl_file **file_out,
                          tdm_error *err) {
    kl_file *file = NULL;
    *file_out = NULL;
    tdm_status status = file_new(path, head->n_vocab, &file, err);
    if (status != TDM_OK) return status;
    status = runner_output_open(&file->output, path, err);
    if (status != TDM_OK) {
        file_free(file);
        return status;
    }
    head_pack(head, file->bytes);
    errno = 0;
    if (fwrite(file->bytes, 1, HEAD_SIZE, file->output.stream) != HEAD_SIZE)
        return kl_file_close(file, runner_output_fail(&file->output, err), err);
    *file_out = file;
    return TDM_OK;
}

/* TDM_DATA_LOSS unless the numbers are valid and match the length of the file. */
static tdm_status head_check(const char *path, const kl_head *head, FILE *stream, tdm_error *err) {
    struct stat info;
    bool is_sane = head->n_vocab > 0 && head->n_vocab < 1 << 28 && head->n_ctx >= 4 &&
                   head->n_ctx < 1 << 30 && head->n_chunk > 0;
    uint64_t size = 0;
    bool too_large =
        is_sane &&
        (__builtin_mul_overflow((uint64_t)head->n_vocab * 4,
                                (uint64_t)kl_head_n_row(head) * (uint64_t)head->n_chunk, &size) ||
         __builtin_add_overflow(size, HEAD_SIZE, &size));
    if (!is_sane || too_large)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: its head makes no sense; remove the file to write "
                        "it anew",
                        path);
    if (fstat(fileno(stream), &info) != 0 ||
        (S_ISREG(info.st_mode) && (uint64_t)info.st_size != size))
        return tdm_fail(
            err, TDM_DATA_LOSS,
            "%s: has not the %llu bytes that its head promises; remove the file to write "
            "it anew",
            path, (unsigned long long)size);
    return TDM_OK;
}

static tdm_status head_read(const char *path, FILE *stream, kl_head *head, tdm_error *err) {
    uint8_t bytes[HEAD_SIZE];
    if (fread(bytes, 1, sizeof bytes, stream) != sizeof bytes ||
        memcmp(bytes, magic, sizeof magic) != 0)
        return tdm_fail(
            err, TDM_DATA_LOSS,
            "%s: is not a file of reference logits that `tandem perplexity --kl-base` wrote", path);
    if (get_u32(bytes + 8) != VERSION)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: is of version %u, and this program reads version %d; write it anew",
                        path, get_u32(bytes + 8), VERSION);
    *head = (kl_head){
        .n_vocab = (int32_t)get_u32(bytes + 12),
        .n_ctx = (int32_t)get_u32(bytes + 16),
        .n_chunk = (int32_t)get_u32(bytes + 20),
        .vocabulary = get_u64(bytes + 24),
        .text = get_u64(bytes + 32),
        .model = get_u64(bytes + 40),
    };
    memcpy(head->name, bytes + 48, sizeof head->name - 1);
    for (char *at = head->name; *at != '\0'; at++) /* it is printed, perhaps on a terminal */
        if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    return head_check(path, head, stream, err);
}

tdm_status kl_file_open(const char *path, kl_head *head_out, kl_file **file_out, tdm_error *err) {
    kl_file *file = NULL;
    *file_out = NULL;
    FILE *stream = fopen(path, "rb");
    if (stream == NULL)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        path, strerror(errno));
    tdm_status status = head_read(path, stream, head_out, err);
    if (status == TDM_OK) status = file_new(path, head_out->n_vocab, &file, err);
    if (status != TDM_OK) {
        fclose(stream);
        return status;
    }
    file->stream = stream;
    *file_out = file;
    return TDM_OK;
}

/* ---- Rows ---- */

tdm_status kl_file_write(kl_file *file, const float *row, tdm_error *err) {
    for (int32_t i = 0; i < file->n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        put_u32(file->bytes + (size_t)i * 4, bits);
    }
    errno = 0;
    size_t size = (size_t)file->n_vocab * 4;
    return fwrite(file->bytes, 1, size, file->output.stream) == size
               ? TDM_OK
               : runner_output_fail(&file->output, err);
}

tdm_status kl_file_read(kl_file *file, float *row_out, tdm_error *err) {
    size_t size = (size_t)file->n_vocab * 4;
    errno = 0;
    if (fread(file->bytes, 1, size, file->stream) != size)
        return tdm_fail(err, TDM_IO, "%s: cannot be read: %s", file->path,
                        errno != 0 ? strerror(errno) : "it ends too early");
    double sum = 0;
    bool is_none = false; /* whether a value is not the logarithm of a probability */
    for (int32_t i = 0; i < file->n_vocab; i++) {
        uint32_t bits = get_u32(file->bytes + (size_t)i * 4);
        memcpy(&row_out[i], &bits, sizeof bits);
        if (!(row_out[i] <= 0)) is_none = true;
        sum += exp((double)row_out[i]);
    }
    file->n_row++;
    if (is_none || fabs(sum - 1) > SUM_ERROR)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: its row %llu holds no probabilities; remove the file to write it anew",
                        file->path, (unsigned long long)file->n_row);
    return TDM_OK;
}

tdm_status kl_file_close(kl_file *file, tdm_status status, tdm_error *err) {
    if (file == NULL) return status;
    status = runner_output_close(&file->output, status, err);
    file_free(file);
    return status;
}
