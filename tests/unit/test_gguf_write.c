/* SPDX-License-Identifier: MIT
 *
 * test_gguf_write.c: the reader reads what the writer wrote. After any failure there is no partial
 * file, an older file is unchanged, and the message names the file.
 */
#include "tests/unit/gguf_image.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llm/gguf/gguf_write.h"

static bool file_exists(const char *file) {
    struct stat info;
    return lstat(image_path(file), &info) == 0;
}

static void file_expect(const char *file, const char *text) {
    char found[16] = {0};
    FILE *f = fopen(image_path(file), "rb");
    assert_non_null(f);
    assert_true(fread(found, 1, sizeof found - 1, f) > 0);
    fclose(f);
    assert_string_equal(found, text);
}

static void file_put(const char *file, const char *text) {
    FILE *f = fopen(image_path(file), "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* What a writer of `file` in this process writes to. */
static const char *tmp_name(const char *file) {
    static char name[64];
    snprintf(name, sizeof name, "%s.%ld.tmp", file, (long)getpid());
    return name;
}

static llm_gguf_writer *writer_begin(const char *file) {
    llm_gguf_writer *w = NULL;
    tdm_error err = {0};
    if (llm_gguf_writer_create(image_path(file), &w, &err) != TDM_OK) fail_msg("%s", err.message);
    return w;
}

static void test_round_trip(void **state) {
    (void)state;
    tdm_error err = {0};
    file_put("out.gguf", "older");
    llm_gguf_writer *w = writer_begin("out.gguf");
    llm_gguf_writer_put_text(w, "general.architecture", "llama");
    llm_gguf_writer_put_u32(w, "n", 7);
    llm_gguf_writer_put_f32(w, "x", -0.5f);
    llm_gguf_writer_put_bool(w, "yes", true);
    llm_gguf_writer_put_number(w, "wide", LLM_GGUF_I64, &(int64_t){-5});
    llm_gguf_writer_put_array(w, "list", LLM_GGUF_I16, (int16_t[]){3, -4}, 2);
    llm_gguf_writer_put_array(w, "none", LLM_GGUF_F32, NULL, 0);
    llm_gguf_writer_put_strings(w, "words", (llm_gguf_str[]){{"a\0b", 3}, {"", 0}}, 2);
    llm_gguf_writer_add_tensor(w, "t.f32", TDM_TYPE_F32, 1, (int64_t[]){3});
    llm_gguf_writer_add_tensor(w, "t.q8_0", TDM_TYPE_Q8_0, 4, (int64_t[]){64, 3, 2, 1});
    llm_gguf_writer_add_tensor(w, "t.big", TDM_TYPE_I8, 2, (int64_t[]){1 << 20, 3});
    assert_int_equal(llm_gguf_writer_write(w, (float[]){1, 2, 3}, 12, &err), TDM_OK);
    uint8_t *big = malloc((size_t)3 << 20);
    assert_non_null(big);
    for (size_t i = 0; i < (size_t)3 << 20; ++i) big[i] = (uint8_t)(i % 253);
    /* In pieces that end at no boundary. */
    for (size_t done = 0; done < 12 * 34; done += 17)
        assert_int_equal(llm_gguf_writer_write(w, big + done, 17, &err), TDM_OK);
    for (size_t done = 0; done < (size_t)3 << 20;) {
        size_t n = 700001;
        if (n > ((size_t)3 << 20) - done) n = ((size_t)3 << 20) - done;
        assert_int_equal(llm_gguf_writer_write(w, big + done, n, &err), TDM_OK);
        done += n;
    }
    assert_true(file_exists(tmp_name("out.gguf")));
    file_expect("out.gguf", "older");
    if (llm_gguf_writer_finish(w, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer_destroy(w);
    assert_false(file_exists(tmp_name("out.gguf")));

    llm_gguf *g = NULL;
    if (llm_gguf_open(image_path("out.gguf"), &g, &err) != TDM_OK) fail_msg("%s", err.message);
    static const char *const printed[] = {"\"llama\"", "7",
                                          "-0.5",      "true",
                                          "-5",        "[2 x i16] 3, -4",
                                          "[0 x f32]", "[2 x string] \"a\\x00b\", \"\""};
    assert_int_equal(llm_gguf_key_count(g), 8);
    for (uint32_t i = 0; i < 8; ++i) {
        char text[64];
        llm_gguf_key_print(llm_gguf_key_at(g, i), text, sizeof text);
        assert_string_equal(text, printed[i]);
    }
    assert_int_equal(llm_gguf_key_at(g, 4)->type, LLM_GGUF_I64);
    assert_int_equal(llm_gguf_tensor_count(g), 3);
    const llm_gguf_tensor *t = llm_gguf_tensor_find(g, "t.q8_0");
    assert_int_equal(t->n_dims, 4);
    assert_int_equal(t->ne[2], 2);
    assert_int_equal(t->size, 12 * 34);
    assert_int_equal((uintptr_t)t->data % 32, 0);
    assert_memory_equal(t->data, big, t->size);
    t = llm_gguf_tensor_find(g, "t.big");
    assert_memory_equal(t->data, big, t->size);
    assert_memory_equal(llm_gguf_tensor_find(g, "t.f32")->data, ((float[]){1, 2, 3}), 12);

    /* Copying every key gives the same keys. */
    w = writer_begin("copy.gguf");
    for (uint32_t i = 0; i < 8; ++i) llm_gguf_writer_put_key(w, llm_gguf_key_at(g, i));
    assert_int_equal(llm_gguf_writer_finish(w, &err), TDM_OK);
    llm_gguf_writer_destroy(w);
    llm_gguf *copy = NULL;
    if (llm_gguf_open(image_path("copy.gguf"), &copy, &err) != TDM_OK) fail_msg("%s", err.message);
    for (uint32_t i = 0; i < 8; ++i) {
        char text[64];
        llm_gguf_key_print(llm_gguf_key_at(copy, i), text, sizeof text);
        assert_string_equal(text, printed[i]);
    }
    llm_gguf_close(copy);
    llm_gguf_close(g);
    free(big);
}

/* Arrays of arrays, of numbers, of strings and of nothing, are copied byte for byte. */
static void test_nested(void **state) {
    image im;
    llm_gguf *g = NULL, *copy = NULL;
    tdm_error err = {0};
    (void)state;
    image_head(&im, 3, 0, 2);
    image_key(&im, "nested", LLM_GGUF_ARRAY);
    image_array(&im, LLM_GGUF_ARRAY, 4);
    image_array(&im, LLM_GGUF_I16, 3);
    image_put(&im, (int16_t[]){7, -8, 9}, 6);
    image_array(&im, LLM_GGUF_STRING, 2);
    image_str(&im, "one");
    image_str(&im, "");
    image_array(&im, LLM_GGUF_ARRAY, 1);
    image_array(&im, LLM_GGUF_U8, 1);
    image_u8(&im, 200);
    image_array(&im, LLM_GGUF_ARRAY, 0);
    image_key_u32(&im, "behind", 5);
    if (image_open(&im, "nested.gguf", &g, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer *w = writer_begin("nested-copy.gguf");
    for (uint32_t i = 0; i < 2; ++i) llm_gguf_writer_put_key(w, llm_gguf_key_at(g, i));
    if (llm_gguf_writer_finish(w, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer_destroy(w);
    if (llm_gguf_open(image_path("nested-copy.gguf"), &copy, &err) != TDM_OK)
        fail_msg("%s", err.message);
    assert_int_equal(llm_gguf_key_count(copy), 2);
    for (uint32_t i = 0; i < 2; ++i) {
        const llm_gguf_key *a = llm_gguf_key_at(g, i), *b = llm_gguf_key_at(copy, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->size, b->size);
        assert_memory_equal(a->data, b->data, a->size);
    }
    assert_int_equal(llm_gguf_key_at(copy, 0)->size, 12 + 12 + 6 + 12 + 11 + 8 + 12 + 13 + 12);
    llm_gguf_close(copy);
    llm_gguf_close(g);
}

static void test_abandoned(void **state) {
    (void)state;
    tdm_error err = {0};
    file_put("kept.gguf", "older");
    llm_gguf_writer *w = writer_begin("kept.gguf");
    llm_gguf_writer_add_tensor(w, "t", TDM_TYPE_F32, 1, (int64_t[]){8});
    assert_int_equal(llm_gguf_writer_write(w, "12345678", 8, &err), TDM_OK);
    llm_gguf_writer_destroy(w);
    assert_false(file_exists(tmp_name("kept.gguf")));
    file_expect("kept.gguf", "older");
    llm_gguf_writer_destroy(NULL);
}

static void expect(tdm_status found, const tdm_error *err, tdm_status status, const char *text) {
    if (found != status || strstr(err->message, text) == NULL ||
        strstr(err->message, ".gguf") == NULL)
        fail_msg("expected %s with '%s', found %s: %s", tdm_status_text(status), text,
                 tdm_status_text(found), err->message);
}

/* After any misuse the file does not appear, and the first failure is the one reported. */
static void test_misuse(void **state) {
    (void)state;
    for (int kind = 0; kind < 8; ++kind) {
        tdm_error err = {0};
        llm_gguf_writer *w = writer_begin("never.gguf");
        llm_gguf_writer_add_tensor(w, "t", TDM_TYPE_F32, 1, (int64_t[]){2});
        tdm_status status = TDM_INVALID_ARGUMENT;
        const char *text = "cannot have this shape";
        if (kind == 0) {
            llm_gguf_writer_add_tensor(w, "bad", TDM_TYPE_Q4_K, 2, (int64_t[]){128, 2});
        } else if (kind == 1) {
            llm_gguf_writer_add_tensor(w, "bad", TDM_TYPE_F32, 0, NULL);
        } else if (kind == 2) {
            llm_gguf_writer_add_tensor(w, "bad", TDM_TYPE_F32, 2, (int64_t[]){INT64_MAX, 2});
        } else if (kind == 3) {
            llm_gguf_writer_add_tensor(w, "bad", TDM_TYPE_F32, 2, (int64_t[]){4, -4});
        } else if (kind == 4) {
            llm_gguf_writer_put_number(w, "bad", LLM_GGUF_STRING, "x");
            text = "type string is not a number's";
        } else if (kind == 5) {
            text = "9 bytes reach beyond the end";
            expect(llm_gguf_writer_write(w, "123456789", 9, &err), &err, status, text);
        } else if (kind == 6) {
            status = TDM_FAILED_PRECONDITION;
            assert_int_equal(llm_gguf_writer_write(w, "12345678", 8, &err), TDM_OK);
            text = "more data than its 1 tensors";
            expect(llm_gguf_writer_write(w, "1", 1, &err), &err, status, text);
        } else {
            status = TDM_FAILED_PRECONDITION;
            assert_int_equal(llm_gguf_writer_write(w, "1234", 4, &err), TDM_OK);
            llm_gguf_writer_put_u32(w, "late", 1);
            text = "key 'late' comes after tensor data";
        }
        llm_gguf_writer_put_number(w, "later", LLM_GGUF_ARRAY, "x");
        expect(llm_gguf_writer_write(w, "1234", 4, &err), &err, status, text);
        expect(llm_gguf_writer_finish(w, &err), &err, status, text);
        llm_gguf_writer_destroy(w);
        assert_false(file_exists(tmp_name("never.gguf")));
        assert_false(file_exists("never.gguf"));
    }
    tdm_error err = {0};
    llm_gguf_writer *w = writer_begin("never.gguf");
    llm_gguf_writer_add_tensor(w, "t", TDM_TYPE_F32, 1, (int64_t[]){2});
    expect(llm_gguf_writer_finish(w, &err), &err, TDM_FAILED_PRECONDITION,
           "the data of 1 of its 1 tensors is missing");
    llm_gguf_writer_destroy(w);
    assert_false(file_exists("never.gguf"));
}

static void test_unwritable(void **state) {
    (void)state;
    llm_gguf_writer *w = NULL;
    tdm_error err = {0};
    expect(llm_gguf_writer_create(image_path("no/such/folder.gguf"), &w, &err), &err, TDM_IO,
           "cannot create");
    assert_null(w);
    assert_int_equal(mkdir(image_path("folder.gguf"), 0700), 0);
    expect(llm_gguf_writer_create(image_path("folder.gguf"), &w, &err), &err, TDM_IO,
           "is not a regular file");
    /* The temporary file is always a new one: a link of its name is not followed, and another
     * writer's file is not written to. */
    file_put("precious", "precious");
    assert_int_equal(symlink(image_path("precious"), image_path(tmp_name("link.gguf"))), 0);
    expect(llm_gguf_writer_create(image_path("link.gguf"), &w, &err), &err, TDM_IO,
           "cannot create");
    file_expect("precious", "precious");
    assert_null(w);
    /* Where the path is a link, its target is written and the link stays; a link to nothing is
     * refused. */
    assert_int_equal(symlink(image_path("nowhere"), image_path("lost.gguf")), 0);
    expect(llm_gguf_writer_create(image_path("lost.gguf"), &w, &err), &err, TDM_IO,
           "leads nowhere");
    assert_null(w);
    file_put("far.gguf", "older");
    assert_int_equal(symlink(image_path("far.gguf"), image_path("near.gguf")), 0);
    llm_gguf_writer *linked = writer_begin("near.gguf");
    llm_gguf_writer_add_tensor(linked, "t", TDM_TYPE_F32, 1, (int64_t[]){1});
    assert_int_equal(llm_gguf_writer_write(linked, "1234", 4, &err), TDM_OK);
    if (llm_gguf_writer_finish(linked, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer_destroy(linked);
    struct stat info;
    assert_int_equal(lstat(image_path("near.gguf"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(image_path("far.gguf"), &info), 0);
    assert_true(info.st_size > 5);
    file_put("one.gguf.tmp", "somebody's");
    llm_gguf_writer *first = writer_begin("one.gguf");
    expect(llm_gguf_writer_create(image_path("one.gguf"), &w, &err), &err, TDM_IO,
           "one.gguf: cannot");
    assert_null(w);
    llm_gguf_writer_add_tensor(first, "t", TDM_TYPE_F32, 1, (int64_t[]){1});
    assert_int_equal(llm_gguf_writer_write(first, "1234", 4, &err), TDM_OK);
    if (llm_gguf_writer_finish(first, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer_destroy(first);
    assert_true(file_exists("one.gguf"));
    file_expect("one.gguf.tmp", "somebody's");
}

/* The limit on a file's size fails a write as a full disk does: in the middle. */
static void test_full_disk(void **state) {
    (void)state;
    static uint8_t data[4 << 20];
    struct rlimit old, low;
    tdm_error err = {0};
    file_put("full.gguf", "older");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = (3 << 20) - 5;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    llm_gguf_writer *w = writer_begin("full.gguf");
    llm_gguf_writer_add_tensor(w, "t", TDM_TYPE_I8, 1, (int64_t[]){sizeof data});
    const tdm_status status = llm_gguf_writer_write(w, data, sizeof data, &err);
    const tdm_error first = err;
    const tdm_status finish_status = llm_gguf_writer_finish(w, &err);
    llm_gguf_writer_destroy(w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    expect(status, &first, TDM_IO, "full.gguf: cannot write: ");
    assert_int_equal(finish_status, TDM_IO);
    assert_string_equal(err.message, first.message);
    assert_false(file_exists(tmp_name("full.gguf")));
    file_expect("full.gguf", "older");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_nested),
        cmocka_unit_test(test_abandoned),  cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_unwritable), cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, image_folder_remove);
}
