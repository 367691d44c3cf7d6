/* SPDX-License-Identifier: MIT
 *
 * test_gguf_memory.c: every allocation of opening, writing and making a model fails once. Each
 * time the call returns a failure, leaves no file and (address sanitizer) leaks nothing. Linked
 * with --wrap, so that allocations of the code under test arrive here.
 */
#include "tests/unit/gguf_image.h"

#include "bench/random_model.h"
#include "llm/gguf/gguf_write.h"
#include "tests/model/preset.h"

static int fail_at; /* which allocation fails, from 1; 0: none */
static int n_calls; /* allocations so far */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size) {
    return ++n_calls == fail_at ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    return ++n_calls == fail_at ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size) {
    return ++n_calls == fail_at ? NULL : __real_realloc(old, size);
}

static char kept_path[2][256];

static tdm_status run_open(tdm_error *err) {
    llm_gguf *g = NULL;
    const tdm_status status = llm_gguf_open(kept_path[0], &g, err);
    llm_gguf_close(g);
    return status;
}

static tdm_status run_write(tdm_error *err) {
    llm_gguf_writer *w = NULL;
    tdm_status status = llm_gguf_writer_create(kept_path[1], &w, err);
    if (status != TDM_OK) return status;
    llm_gguf_writer_put_text(w, "key", "value");
    llm_gguf_writer_add_tensor(w, "t", TDM_TYPE_F32, 1, (int64_t[]){2});
    status = llm_gguf_writer_write(w, "12345678", 8, err);
    if (status == TDM_OK) status = llm_gguf_writer_finish(w, err);
    llm_gguf_writer_destroy(w);
    return status;
}

static tdm_status run_make(tdm_error *err) {
    random_model_spec spec = preset_find("tiny-llama");
    spec.n_layer = 10; /* enough tensors for the list to grow */
    spec.n_embd = 32;
    spec.n_ff = 32;
    spec.head_dim = 8;
    spec.n_thread = 1; /* a thread's own allocations are not this code's */
    return random_model_write(&spec, kept_path[1], NULL, NULL, NULL, err);
}

static void fail_each(tdm_status (*run)(tdm_error *), int n_least) {
    for (int n = 1;; ++n) {
        tdm_error err = {0};
        remove(kept_path[1]);
        n_calls = 0;
        fail_at = n;
        const tdm_status status = run(&err);
        fail_at = 0;
        if (status == TDM_OK) {
            assert_true(n_calls < n || n > n_least);
            print_message("%d allocations\n", n_calls);
            assert_true(n > n_least);
            return;
        }
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_int_equal(err.status, TDM_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(err.message, "not enough memory"));
        assert_int_not_equal(access(kept_path[1], F_OK), 0);
        assert_true(n < 1000);
    }
}

static void test_open(void **state) {
    (void)state;
    snprintf(kept_path[0], sizeof kept_path[0], "%s", image_path("m-00001-of-00002.gguf"));
    snprintf(kept_path[1], sizeof kept_path[1], "%s", image_path("out.gguf"));
    for (uint32_t p = 0; p < 2; ++p) {
        image im;
        image_head(&im, 3, 1, 3);
        image_key_u32(&im, "split.count", 2);
        image_key_u32(&im, "split.no", p);
        image_key(&im, "words", LLM_GGUF_ARRAY);
        image_array(&im, LLM_GGUF_STRING, 1);
        image_str(&im, "one");
        image_tensor(&im, p == 0 ? "a" : "b", TDM_TYPE_F32, 1, (uint64_t[]){8}, 0);
        image_align(&im, 32);
        image_fill(&im, im.len + 32, 0);
        image_save(&im, im.len, p == 0 ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf");
    }
    fail_each(run_open, 15);
}

static void test_write(void **state) {
    (void)state;
    fail_each(run_write, 6);
}

static void test_make(void **state) {
    (void)state;
    fail_each(run_make, 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_write),
        cmocka_unit_test(test_make),
    };
    return cmocka_run_group_tests(tests, NULL, image_folder_remove);
}
