/* SPDX-License-Identifier: MIT
 *
 * test_quantize_memory.c: quantising a file with every allocation failing once. It returns a
 * failure or uses fewer threads, and leaves no partial file. Sanitizers find leaks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "llm/gguf/gguf_write.h"
#include "llm/quantize/quantize.h"

static atomic_long n_left; /* allocations that succeed; negative = all */

static bool is_failing(void) {
    return atomic_load(&n_left) >= 0 && atomic_fetch_sub(&n_left, 1) <= 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

/* After the first failure all allocations fail: the count stays at 0 until the test sets it. */
static bool fails_now(void) {
    if (!is_failing()) return false;
    atomic_store(&n_left, 0);
    return true;
}
void *__wrap_malloc(size_t size) {
    return fails_now() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size) {
    return fails_now() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *old, size_t size) {
    return fails_now() ? NULL : __real_realloc(old, size);
}

static char in_path[64], out_path[64];

static void model_write(void) {
    llm_gguf_writer *w = NULL;
    static float values[256 * 8];
    assert_int_equal(llm_gguf_writer_create(in_path, &w, NULL), TDM_OK);
    llm_gguf_writer_put_text(w, "general.architecture", "llama");
    llm_gguf_writer_add_tensor(w, "token_embd.weight", TDM_TYPE_F32, 2, (int64_t[]){256, 8});
    for (int i = 0; i < 256 * 8; i++) values[i] = (float)(i % 17) - 8;
    assert_int_equal(llm_gguf_writer_write(w, values, sizeof values, NULL), TDM_OK);
    assert_int_equal(llm_gguf_writer_finish(w, NULL), TDM_OK);
    llm_gguf_writer_destroy(w);
}

static void test_every_allocation(void **state) {
    (void)state;
    const llm_quantize_kind *kind = llm_quantize_kind_find("q4_K_M");
    llm_gguf *g = NULL;
    long n = 0;
    model_write();
    assert_int_equal(llm_gguf_open(in_path, &g, NULL), TDM_OK);
    for (tdm_status status = TDM_RESOURCE_EXHAUSTED; status != TDM_OK; n++) {
        llm_quantize_choice choice[1];
        tdm_error err = {0};
        assert_true(n < 1000);
        unlink(out_path);
        atomic_store(&n_left, n);
        status = llm_quantize_choose(g, kind, false, false, choice, &err);
        if (status == TDM_OK)
            status = llm_quantize_write(g, kind, choice, NULL, out_path, 3, NULL, NULL, &err);
        bool is_used_up = atomic_load(&n_left) == 0;
        atomic_store(&n_left, -1);
        if (status == TDM_OK && !is_used_up) break;
        if (status == TDM_OK) { /* with fewer threads */
            assert_int_equal(access(out_path, F_OK), 0);
            status = TDM_RESOURCE_EXHAUSTED;
            continue;
        }
        assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
        assert_string_not_equal(err.message, "");
        assert_int_equal(access(out_path, F_OK), -1);
    }
    printf("%ld allocations\n", n);
    assert_true(n > 5);
    llm_gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation)};
    atomic_store(&n_left, -1);
    snprintf(in_path, sizeof in_path, "test_quantize_memory.%ld.in", (long)getpid());
    snprintf(out_path, sizeof out_path, "test_quantize_memory.%ld.out", (long)getpid());
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(in_path);
    unlink(out_path);
    return n_failed;
}
