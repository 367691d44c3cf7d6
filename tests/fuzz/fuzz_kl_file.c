/* SPDX-License-Identifier: MIT
 *
 * fuzz_kl_file.c: the input is a file of reference logits (`tandem perplexity --kl-base`). An
 * accepted file has the size that its header gives. Each row is refused or is a distribution, all
 * of whose distances are numbers. Written again, the file is the same. A refusal is one line.
 *
 * Most files would fail at the first number that must be right. So the input's first byte says what
 * is made right in the rest of it before it is opened: FIX_.
 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "runner/commands/kl_file.h"
#include "runner/commands/token_loss.h"
#include "tests/fuzz/fuzz.h"

enum {
    FIX_MAGIC = 1, /* magic and version are there */
    FIX_SHAPE = 2, /* the vocabulary and the context are small */
    FIX_SIZE = 4,  /* as many chunks as the bytes are enough for, and no byte more */
    FIX_ROWS = 8,  /* the numbers are taken for logits; their log-probabilities are in the file */
};

enum { HEAD_SIZE = 128, SIZE_LIMIT = 1 << 16 };

static char folder[96], path[128], again_path[128];

static void folder_remove(void) {
    unlink(path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    const char *temp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tandem-fuzz-XXXXXX",
             temp != NULL && strlen(temp) < 60 ? temp : "/tmp");
    FUZZ_DEMAND(mkdtemp(folder) != NULL, "%s: cannot be made", folder);
    snprintf(path, sizeof path, "%s/x.kl", folder);
    snprintf(again_path, sizeof again_path, "%s/y.kl", folder);
    atexit(folder_remove);
    return 0;
}

static uint32_t number_get(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void number_put(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* Corrects the fields that `fix` selects. Returns the size of the file. */
static size_t bytes_fix(uint8_t *bytes, size_t size, unsigned fix) {
    float row[64];
    if (size < HEAD_SIZE) return size;
    if ((fix & FIX_MAGIC) != 0) {
        memcpy(bytes, "TDMKLREF", 8);
        number_put(bytes + 8, 1);
    }
    if ((fix & FIX_SHAPE) != 0) {
        number_put(bytes + 12, 1 + number_get(bytes + 12) % 64);
        number_put(bytes + 16, 4 + number_get(bytes + 16) % 16);
    }
    uint32_t n_vocab = number_get(bytes + 12), n_ctx = number_get(bytes + 16);
    if (n_vocab == 0 || n_vocab > SIZE_LIMIT || n_ctx < 4 || n_ctx > SIZE_LIMIT) return size;
    const kl_head head = {.n_ctx = (int32_t)n_ctx};
    size_t row_size = n_vocab * sizeof(float), chunk_size = row_size * (size_t)kl_head_n_row(&head);
    if ((fix & FIX_SIZE) != 0) {
        size_t n_chunk = (size - HEAD_SIZE) / chunk_size;
        number_put(bytes + 20, (uint32_t)n_chunk);
        size = HEAD_SIZE + n_chunk * chunk_size;
    }
    if ((fix & FIX_ROWS) == 0 || n_vocab > sizeof row / sizeof row[0]) return size;
    for (size_t at = HEAD_SIZE; at + row_size <= size; at += row_size) {
        memcpy(row, bytes + at, row_size);
        token_loss_log_probs(row, (int32_t)n_vocab, row);
        memcpy(bytes + at, row, row_size);
    }
    return size;
}

/* A distribution that was read, against itself and against a uniform one. */
static void row_check(const float *row, float *other, int32_t n) {
    int32_t top = token_loss_top(row, n);
    FUZZ_DEMAND(top >= 0 && top < n && row[top] <= 0, "the largest of %d is number %d", n, top);
    for (int32_t i = 0; i < n; i++) {
        FUZZ_DEMAND(row[i] <= row[top], "number %d is larger than the largest", i);
        other[i] = (float)-log(n);
    }
    double own = token_loss_divergence(row, row, n), from = token_loss_divergence(row, other, n),
           to = token_loss_divergence(other, row, n);
    FUZZ_DEMAND(own == 0, "%g from itself", own);
    /* Both add up to 1 within a thousandth only. */
    FUZZ_DEMAND(from >= -1e-2 && from <= log(n) + 1e-2, "%g from %d equal ones", from, n);
    FUZZ_DEMAND(to >= -1e-2, "%g to %d equal ones", to, n);
}

/* Reads all rows and writes what was read; whether none was refused. */
static bool rows_copy(kl_file *from, kl_file *to, const kl_head *head) {
    tdm_error err = {0};
    size_t n_vocab = (size_t)head->n_vocab;
    float *row = malloc(n_vocab * sizeof *row), *other = malloc(n_vocab * sizeof *other);
    FUZZ_DEMAND(row != NULL && other != NULL, "no memory for %zu numbers", n_vocab);
    uint64_t n_row = (uint64_t)kl_head_n_row(head) * (uint64_t)head->n_chunk, i = 0;
    for (; i < n_row; i++) {
        tdm_status status = kl_file_read(from, row, &err);
        FUZZ_DEMAND(status == TDM_OK || status == TDM_DATA_LOSS, "row %llu: %s",
                    (unsigned long long)i, err.message);
        if (status != TDM_OK) break;
        row_check(row, other, head->n_vocab);
        FUZZ_DEMAND(kl_file_write(to, row, &err) == TDM_OK, "%s", err.message);
    }
    if (i == n_row)
        FUZZ_DEMAND(kl_file_read(from, row, &err) == TDM_IO, "there are more than %llu rows",
                    (unsigned long long)n_row);
    free(other);
    free(row);
    return i == n_row;
}

/* What was written from what was read is the file that was read, but for bytes of the name that
 * are not printed. */
static void file_compare(const uint8_t *bytes, size_t size) {
    static uint8_t again[SIZE_LIMIT + 1];
    FILE *f = fopen(again_path, "rb");
    FUZZ_DEMAND(f != NULL, "%s: cannot be read", again_path);
    size_t n = fread(again, 1, sizeof again, f);
    fclose(f);
    FUZZ_DEMAND(n == size, "%zu bytes are %zu when written again", size, n);
    FUZZ_DEMAND(memcmp(again, bytes, 48) == 0, "another head");
    FUZZ_DEMAND(memcmp(again + HEAD_SIZE, bytes + HEAD_SIZE, size - HEAD_SIZE) == 0, "other rows");
}

static void file_try(const uint8_t *bytes, size_t size) {
    kl_head head;
    kl_file *file = NULL, *again = NULL;
    tdm_error err = {0};
    tdm_status status = kl_file_open(path, &head, &file, &err);
    if (status != TDM_OK) {
        FUZZ_DEMAND(file == NULL && err.status == status && strchr(err.message, '\n') == NULL &&
                        strncmp(err.message, path, strlen(path)) == 0,
                    "a message must be one line about the file: '%s'", err.message);
        return;
    }
    uint64_t n_row = (uint64_t)kl_head_n_row(&head) * (uint64_t)head.n_chunk;
    FUZZ_DEMAND(n_row > 0 && size == HEAD_SIZE + n_row * (uint64_t)head.n_vocab * 4,
                "%zu bytes are taken for %llu rows of %d", size, (unsigned long long)n_row,
                head.n_vocab);
    FUZZ_DEMAND(memchr(head.name, '\0', sizeof head.name) != NULL, "the name does not end");
    for (const char *at = head.name; *at != '\0'; at++)
        FUZZ_DEMAND((unsigned char)*at >= ' ' && *at != 0x7f, "the name holds byte %d", *at);
    FUZZ_DEMAND(kl_file_create(again_path, &head, &again, &err) == TDM_OK, "%s", err.message);
    bool is_whole = rows_copy(file, again, &head);
    status = is_whole ? TDM_OK : TDM_CANCELLED;
    FUZZ_DEMAND(kl_file_close(again, status, &err) == status, "%s", err.message);
    FUZZ_DEMAND(kl_file_close(file, TDM_OK, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND((access(again_path, F_OK) == 0) == is_whole, "a part of a file is left");
    if (!is_whole) return;
    file_compare(bytes, size);
    unlink(again_path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[SIZE_LIMIT];
    unsigned fix = size > 0 ? data[0] : 0;
    if (size > 0) data++, size--;
    if (size > sizeof bytes) size = sizeof bytes;
    if (size > 0) memcpy(bytes, data, size);
    size = bytes_fix(bytes, size, fix);
    FILE *f = fopen(path, "wb");
    FUZZ_DEMAND(f != NULL && fwrite(bytes, 1, size, f) == size && fclose(f) == 0,
                "%s: cannot be written", path);
    file_try(bytes, size);
    return 0;
}
