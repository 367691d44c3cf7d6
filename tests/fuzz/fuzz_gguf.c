/* SPDX-License-Identifier: MIT
 *
 * fuzz_gguf.c: the input is a GGUF file. The target opens it, reads every key and tensor with
 * every function, makes a vocabulary and the parameters of a model from it, and then a model
 * without its weights. An input that begins with "PART" and a size (u32) holds the two files of a
 * split model.
 *
 * mmap (under glibc's name for files of any size) is answered with memory of exactly the file's
 * size, by the linker's --wrap, so that a read behind the file is seen even where the page goes on.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "llm/gguf/gguf.h"
#include "llm/arch/families.h"
#include "llm/model.h"
#include "llm/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static fuzz_file file, second;
static char folder[96], first_path[128], second_path[128]; /* names as of a split model */

/* ---- Mappings ---- */

void *__real_mmap64(void *addr, size_t size, int prot, int flags, int fd, off_t off);
int __real_munmap(void *addr, size_t size);
int __real_madvise(void *addr, size_t size, int advice);
void *__wrap_mmap64(void *addr, size_t size, int prot, int flags, int fd, off_t off);
int __wrap_munmap(void *addr, size_t size);
int __wrap_madvise(void *addr, size_t size, int advice);

static struct {
    uint8_t *base;
    size_t size;
} maps[4];
enum { N_MAP = sizeof maps / sizeof *maps };

void *__wrap_mmap64(void *addr, size_t size, int prot, int flags, int fd, off_t off) {
    if (addr != NULL || (flags & MAP_SHARED) == 0 || prot != PROT_READ || off != 0)
        return __real_mmap64(addr, size, prot, flags, fd, off);
    for (int i = 0; i < N_MAP; i++) {
        void *base = NULL;
        if (maps[i].base != NULL) continue;
        if (posix_memalign(&base, 4096, size) != 0) return MAP_FAILED;
        FUZZ_DEMAND(pread(fd, base, size, 0) == (ssize_t)size, "cannot read %zu bytes", size);
        maps[i].base = base;
        maps[i].size = size;
        return base;
    }
    FUZZ_DEMAND(false, "more than %d mappings at once", N_MAP);
    return MAP_FAILED;
}

int __wrap_munmap(void *addr, size_t size) {
    for (int i = 0; i < N_MAP; i++) {
        if (maps[i].base == NULL || maps[i].base != addr) continue;
        FUZZ_DEMAND(maps[i].size == size, "unmapped as %zu bytes", size);
        free(addr);
        maps[i].base = NULL;
        return 0;
    }
    return __real_munmap(addr, size);
}

/* Advice must stay inside the pages of a mapping. */
int __wrap_madvise(void *addr, size_t size, int advice) {
    const uintptr_t at = (uintptr_t)addr;
    for (int i = 0; i < N_MAP; i++) {
        const uintptr_t base = (uintptr_t)maps[i].base, pages = (maps[i].size + 4095) / 4096 * 4096;
        if (maps[i].base == NULL || at < base || at >= base + pages) continue;
        FUZZ_DEMAND(size <= pages - (at - base), "advice on %zu bytes", size);
        return 0;
    }
    return __real_madvise(addr, size, advice);
}

/* ---- One file ---- */

/* Reads every byte, which must be there. */
static void touch(const void *data, size_t size) {
    static volatile uint8_t sum;
    for (size_t i = 0; i < size; i++) sum = (uint8_t)(sum + ((const uint8_t *)data)[i]);
}

static void key_try(const llm_gguf *g, const llm_gguf_key *key) {
    static const size_t text_sizes[] = {1, 2, 7, 40, 300};
    FUZZ_DEMAND(llm_gguf_key_find(g, key->name) == key, "key '%s' is not found", key->name);
    for (size_t i = 0; i < sizeof text_sizes / sizeof *text_sizes; i++) {
        char *text = malloc(text_sizes[i]);
        FUZZ_DEMAND(text != NULL, "no memory");
        size_t n = llm_gguf_key_print(key, text, text_sizes[i]);
        FUZZ_DEMAND(n < text_sizes[i] && strlen(text) == n, "key '%s' prints %zu", key->name, n);
        FUZZ_DEMAND(strchr(text, '\n') == NULL, "key '%s' prints two lines", key->name);
        free(text);
    }
    uint32_t u32 = 0, each[3];
    int64_t i64 = 0;
    float f32 = 0;
    bool flag = false;
    llm_gguf_str str = {"", 0};
    tdm_error err;
    (void)llm_gguf_get_u32(g, key->name, LLM_GGUF_REQUIRED, &u32, &err);
    (void)llm_gguf_get_i64(g, key->name, LLM_GGUF_REQUIRED, &i64, &err);
    (void)llm_gguf_get_f32(g, key->name, LLM_GGUF_REQUIRED, &f32, &err);
    (void)llm_gguf_get_bool(g, key->name, LLM_GGUF_REQUIRED, &flag, &err);
    (void)llm_gguf_get_u32_each(g, key->name, LLM_GGUF_REQUIRED, 3, each, &err);
    if (llm_gguf_get_str(g, key->name, LLM_GGUF_REQUIRED, &str, &err) == TDM_OK) {
        touch(str.ptr, str.len);
        (void)llm_gguf_str_equals(str, "llama");
    }
    for (int t = 0; t < LLM_GGUF_TYPE_COUNT_; t++) {
        llm_gguf_array array = {0};
        if (llm_gguf_get_array(g, key->name, (llm_gguf_type)t, LLM_GGUF_REQUIRED, &array, &err) !=
            TDM_OK)
            continue;
        for (uint64_t i = 0; i < array.n; i++) {
            (void)llm_gguf_array_i64(&array, i);
            (void)llm_gguf_array_f32(&array, i);
            str = llm_gguf_array_str(&array, i);
            touch(str.ptr, str.len);
        }
    }
}

static void tensor_try(const llm_gguf *g, const llm_gguf_tensor *tensor) {
    tdm_error err;
    FUZZ_DEMAND(llm_gguf_tensor_find(g, tensor->name) == tensor, "'%s' is not found", tensor->name);
    (void)llm_gguf_tensor_type_name(tensor->type_raw);
    if (llm_gguf_tensor_check_type(g, tensor, &err) != TDM_OK) return;
    touch(tensor->data, tensor->size);
    llm_gguf_prefetch(g, tensor, 0, tensor->size);
    llm_gguf_prefetch(g, tensor, tensor->size / 2, SIZE_MAX);
    uint8_t piece[300];
    const size_t from = tensor->size / 3;
    const size_t n = tensor->size - from < sizeof piece ? tensor->size - from : sizeof piece;
    FUZZ_DEMAND(llm_gguf_read(g, tensor, from, n, piece, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(memcmp(piece, (const uint8_t *)tensor->data + from, n) == 0, "'%s': other bytes",
                tensor->name);
}

static void vocab_try(const llm_gguf *g) {
    static const char text[] = " Hello <s>a\xC3\xA9\xF0\x9F\x98\x80\xFF  123\n<|im_start|>'ll ab";
    llm_vocab *vocab;
    tdm_error err;
    if (llm_vocab_from_gguf(g, &vocab, &err) != TDM_OK) return;
    const int32_t n_token = llm_vocab_n_token(vocab);
    for (int32_t id = -1; id <= n_token; id++) {
        const llm_vocab_str bytes = llm_vocab_token_bytes(vocab, id);
        const llm_vocab_str shown = llm_vocab_token_text(vocab, id);
        touch(bytes.ptr, bytes.len);
        touch(shown.ptr, shown.len);
        (void)llm_vocab_token_type(vocab, id);
        (void)llm_vocab_ends_generation(vocab, id);
    }
    int32_t *ids;
    size_t n, len;
    char *back;
    if (llm_tokenize(vocab, text, sizeof text - 1,
                     LLM_TOKENIZE_ADD_SPECIAL | LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n,
                     &err) == TDM_OK) {
        for (size_t i = 0; i < n; i++) FUZZ_DEMAND(ids[i] >= 0 && ids[i] < n_token, "%d", ids[i]);
        FUZZ_DEMAND(llm_detokenize(vocab, ids, n, LLM_DETOKENIZE_SPECIAL, &back, &len, &err) ==
                        TDM_OK,
                    "%s", err.message);
        free(back);
        free(ids);
    }
    llm_vocab_destroy(vocab);
}

static void failure_check(const tdm_error *err, tdm_status status) {
    FUZZ_DEMAND(err->status == status, "status %d, in the error %d", status, err->status);
    FUZZ_DEMAND(err->message[0] != '\0' && strchr(err->message, '\n') == NULL,
                "a message must be one line: '%s'", err->message);
}

static void names_remove(void) {
    unlink(first_path);
    unlink(second_path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    const char *temp = getenv("TMPDIR");
    fuzz_file_create(&file);
    fuzz_file_create(&second);
    snprintf(folder, sizeof folder, "%s/tandem-fuzz-XXXXXX",
             temp != NULL && strlen(temp) < 60 ? temp : "/tmp");
    FUZZ_DEMAND(mkdtemp(folder) != NULL, "%s: cannot be made", folder);
    snprintf(first_path, sizeof first_path, "%s/m-00001-of-00002.gguf", folder);
    snprintf(second_path, sizeof second_path, "%s/m-00002-of-00002.gguf", folder);
    FUZZ_DEMAND(symlink(file.path, first_path) == 0 && symlink(second.path, second_path) == 0,
                "%s: cannot be written to", folder);
    atexit(names_remove);
    return 0;
}

/* Writes the one or two files; *size becomes the first one's. The path to open. */
static const char *files_write(const uint8_t *data, size_t *size) {
    uint32_t first_size;
    const size_t head = 4 + sizeof first_size;
    if (*size < head || memcmp(data, "PART", 4) != 0) {
        fuzz_file_write(&file, data, *size);
        return file.path;
    }
    memcpy(&first_size, data + 4, sizeof first_size);
    if (first_size > *size - head) first_size = (uint32_t)(*size - head);
    fuzz_file_write(&file, data + head, first_size);
    fuzz_file_write(&second, data + head + first_size, *size - head - first_size);
    *size = first_size;
    return first_path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tdm_error err = {0};
    llm_gguf *g;
    llm_hparams hparams;
    llm_model *model;
    const char *path = files_write(data, &size);
    tdm_status status = llm_gguf_open(path, &g, &err);
    if (status != TDM_OK) {
        FUZZ_DEMAND(g == NULL, "a failed open leaves a file");
        failure_check(&err, status);
        return 0;
    }
    FUZZ_DEMAND(maps[0].size == size && maps[0].base != NULL, "the reader maps by another way");
    for (uint32_t i = 0; i < llm_gguf_key_count(g); i++) key_try(g, llm_gguf_key_at(g, i));
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) tensor_try(g, llm_gguf_tensor_at(g, i));
    llm_gguf_release_all(g);
    vocab_try(g);
#define TRY(name) (void)llm_hparams_read(g, &llm_arch_##name, &hparams, &err);
    LLM_ARCH_LIST(TRY)
#undef TRY
    llm_gguf_close(g);

    status = llm_model_open(path, &model, &err);
    if (status == TDM_OK) {
        char text[80];
        llm_model_describe(model, text, sizeof text);
        llm_model_close(model);
    } else {
        failure_check(&err, status);
    }
    for (int i = 0; i < N_MAP; i++) FUZZ_DEMAND(maps[i].base == NULL, "a mapping is left");
    return 0;
}
