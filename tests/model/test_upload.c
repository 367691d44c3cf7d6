/* SPDX-License-Identifier: MIT
 *
 * test_upload.c: weights arrive bit for bit, with one thread and with several, on a device and in
 * a group: rows longer than one read, rows that do not fill one, tensors of a few bytes. Also
 * faults of storage: short reads, interruption, failure, a file that became shorter. Linked with
 * --wrap for reads and allocations.
 */
#include "tests/model/rig.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/model/group_device.h"
#include "tests/model/preset.h"

/* What weight_upload.c reads at a time. */
#define PIECE_SIZE ((size_t)512 << 10)

/* ---- Storage, and memory, as they may be ---- */

typedef enum storage {
    SOUND,
    HESITANT, /* some reads are short, some are interrupted */
    FAILING   /* from some read on */
} storage;

static storage behaviour;
static _Atomic int n_read, n_piece_alloc;
static int failing_alloc; /* which piece's memory is not to be had, from 1; 0: none */

ssize_t __real_pread64(int fd, void *to, size_t size, off_t at);
ssize_t __wrap_pread64(int fd, void *to, size_t size, off_t at);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);

ssize_t __wrap_pread64(int fd, void *to, size_t size, off_t at) {
    int n = atomic_fetch_add(&n_read, 1);
    if (behaviour == HESITANT && n % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    if (behaviour == HESITANT && n % 3 == 1) size = size / 2 + 1;
    if (behaviour == FAILING && n > 20) {
        errno = EIO;
        return -1;
    }
    return __real_pread64(fd, to, size, at);
}

void *__wrap_aligned_alloc(size_t align, size_t size) {
    if (size == PIECE_SIZE && atomic_fetch_add(&n_piece_alloc, 1) + 1 == failing_alloc) return NULL;
    return __real_aligned_alloc(align, size);
}

/* ---- Models ---- */

static const char *wide_path, *tall_path, *short_path;

static void models_write(void) {
    tdm_error err = {0};
    random_model_spec spec = preset_find("tiny-llama");
    spec.n_layer = 1;
    spec.n_embd = 32;
    spec.n_head = spec.n_head_kv = 1;
    spec.head_dim = 32;
    spec.n_vocab = 301;
    /* Rows of ffn_down of more than a piece, and not a whole number of them. */
    spec.n_ff = 280032;
    spec.type = TDM_TYPE_F16;
    spec.n_thread = 2;
    wide_path = rig_file("wide.gguf");
    RIG_OK(random_model_write(&spec, wide_path, NULL, NULL, NULL, &err));
    spec.n_embd = 256;
    spec.n_ff = 288;
    spec.n_vocab = 60001;
    spec.type = TDM_TYPE_Q8_0;
    tall_path = rig_file("tall.gguf");
    RIG_OK(random_model_write(&spec, tall_path, NULL, NULL, NULL, &err));
    short_path = rig_file("short.gguf");
    RIG_OK(random_model_write(&spec, short_path, NULL, NULL, NULL, &err));
}

static int begin(void **state) {
    if (rig_begin(state) != 0) return -1;
    models_write();
    return 0;
}

/* What devices hold is what the file holds. */
static void weights_check(const llm_model *m) {
    for (int32_t i = 0; i < m->n_weight; i++) {
        const llm_weight *w = &m->weights[i];
        const tdm_tensor_desc desc = llm_weight_desc(w);
        tdm_error err = {0};
        uint8_t *kept = malloc(w->file->size);
        assert_non_null(kept);
        RIG_OK(tdm_mem_tensor_download(&m->store.mems[w->mem], w->off, &desc, kept,
                                       tdm_type_row_size(desc.type, desc.ne[0]), 0,
                                       tdm_shape_rows(desc.ne), 0, desc.ne[0], &err));
        if (memcmp(kept, w->file->data, w->file->size) != 0)
            fail_msg("%s: other bytes arrived", w->file->name);
        free(kept);
    }
}

typedef struct watch {
    uint64_t done, total;
    int n_call;
    const char *shortened; /* file that is cut in the middle at the first call; NULL: none */
} watch;

static bool watch_call(void *context, uint64_t done, uint64_t total) {
    watch *w = context;
    assert_true(done >= w->done && done <= total);
    w->done = done;
    w->total = total;
    if (w->n_call++ == 0 && w->shortened != NULL) {
        struct stat info;
        assert_int_equal(stat(w->shortened, &info), 0);
        assert_int_equal(truncate(w->shortened, info.st_size / 2), 0);
    }
    return true;
}

static tdm_status model_try(const char *path, tdm_open_device *dev, watch *w, tdm_error *err) {
    llm_model *model = NULL;
    *err = (tdm_error){0};
    atomic_store(&n_read, 0);
    if (llm_model_open(path, &model, err) != TDM_OK) fail_msg("%s", err->message);
    atomic_store(&n_read, 0);
    atomic_store(&n_piece_alloc, 0);
    tdm_status status =
        llm_model_load(model, rig_runtime(), &dev, 1, w != NULL ? watch_call : NULL, w, err);
    if (status == TDM_OK) weights_check(model);
    llm_model_close(model);
    return status;
}

static void test_bytes(void **state) {
    (void)state;
    static const group_config halves = {.n_member = 2, .shares = "3,1", .path = "fast"};
    tdm_open_device *devs[] = {rig_device(NULL, "fast", 1), rig_device(NULL, "fast", 3),
                               group_device(&halves)};
    const char *paths[] = {wide_path, tall_path};
    tdm_error err;
    for (int d = 0; d < 3; d++)
        for (int p = 0; p < 2; p++) {
            watch w = {0};
            behaviour = d == 1 ? HESITANT : SOUND;
            tdm_status status = model_try(paths[p], devs[d], &w, &err);
            behaviour = SOUND;
            if (status != TDM_OK) fail_msg("%s", err.message);
            /* The calling thread reports; beside other threads it may have uploaded nothing
             * itself. */
            assert_true(d == 0 ? w.n_call > 1 : w.n_call > 0);
            assert_int_equal(w.done, w.total);
        }
}

/* A file that is cut while it is read, and storage that fails: a message, and the device can be
 * used as before. */
static void test_storage(void **state) {
    (void)state;
    tdm_open_device *dev = rig_device(NULL, "fast", 3);
    tdm_error err;
    watch w = {.shortened = short_path};
    assert_int_equal(model_try(short_path, dev, &w, &err), TDM_DATA_LOSS);
    assert_non_null(strstr(err.message, "short.gguf: tensor '"));
    assert_non_null(strstr(err.message, "has become shorter"));
    behaviour = FAILING;
    assert_int_equal(model_try(tall_path, dev, NULL, &err), TDM_IO);
    behaviour = SOUND;
    assert_non_null(strstr(err.message, "tall.gguf: tensor '"));
    assert_non_null(strstr(err.message, "cannot read"));
    assert_int_equal(model_try(tall_path, dev, NULL, &err), TDM_OK);
}

/* Memory to read into: without the caller's nothing can be loaded, without a helper's all can. */
static void test_memory(void **state) {
    (void)state;
    tdm_open_device *dev = rig_device(NULL, "fast", 3);
    tdm_error err;
    failing_alloc = 1;
    assert_int_equal(model_try(tall_path, dev, NULL, &err), TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "tall.gguf"));
    failing_alloc = 2;
    assert_int_equal(model_try(tall_path, dev, NULL, &err), TDM_OK);
    failing_alloc = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_storage),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, begin, rig_end);
}
