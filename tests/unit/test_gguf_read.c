/* SPDX-License-Identifier: MIT
 *
 * test_gguf_read.c: the contents of a valid GGUF file are read as they were written, typed reads
 * refuse other types, and each kind of malformed header is refused with a message that names it.
 */
#include "tests/unit/gguf_image.h"

#include <math.h>
#include <sys/stat.h>

static const uint64_t ne8[] = {8};

/* Every value type, plain and in arrays, and four tensors. */
static void build_all(image *im, uint32_t version) {
    image_head(im, version, 4, 18);
    image_key(im, "general.architecture", LLM_GGUF_STRING);
    image_str(im, "llama");
    image_key(im, "a.u8", LLM_GGUF_U8);
    image_u8(im, 200);
    image_key(im, "a.i8", LLM_GGUF_I8);
    image_u8(im, (uint8_t)-3);
    image_key(im, "a.u16", LLM_GGUF_U16);
    image_put(im, "\x34\x12", 2);
    image_key(im, "a.i16", LLM_GGUF_I16);
    image_put(im, "\xfe\xff", 2);
    image_key_u32(im, "a.u32", 4000000000u);
    image_key(im, "a.i32", LLM_GGUF_I32);
    image_u32(im, (uint32_t)-70000);
    image_key(im, "a.f32", LLM_GGUF_F32);
    image_put(im, &(float){1.5f}, 4);
    image_key(im, "a.bool", LLM_GGUF_BOOL);
    image_u8(im, 1);
    image_key(im, "a.u64", LLM_GGUF_U64);
    image_u64(im, UINT64_MAX);
    image_key(im, "a.i64", LLM_GGUF_I64);
    image_u64(im, (uint64_t)INT64_MIN);
    image_key(im, "a.f64", LLM_GGUF_F64);
    image_put(im, &(double){-1e300}, 8);
    image_key(im, "a.strings", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_STRING, 3);
    image_str(im, "one");
    image_str(im, "");
    image_str(im, "thr\"ee\n");
    image_key(im, "a.i16s", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_I16, 3);
    image_put(im, "\x01\x00\xff\xff\x00\x80", 6);
    image_key(im, "a.f32s", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_F32, 2);
    image_put(im, (float[]){0.25f, -2.0f}, 8);
    image_key(im, "a.bools", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_BOOL, 2);
    image_put(im, "\x00\x01", 2);
    image_key(im, "a.nested", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_ARRAY, 2);
    image_array(im, LLM_GGUF_U8, 1);
    image_u8(im, 7);
    image_array(im, LLM_GGUF_STRING, 1);
    image_str(im, "in");
    image_key(im, "a.empty", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_STRING, 0);

    image_tensor(im, "norm", TDM_TYPE_F32, 1, ne8, 0);                     /* 32 bytes */
    image_tensor(im, "matrix", TDM_TYPE_Q8_0, 2, (uint64_t[]){32, 2}, 32); /* 68 */
    image_tensor(im, "alien", 15, 2, (uint64_t[]){256, 1}, 128);           /* unknown size */
    image_tensor(im, "cube", TDM_TYPE_F16, 3, (uint64_t[]){2, 3, 4}, 160); /* 48 */
    image_align(im, 32);
    const size_t data = im->len;
    for (int i = 0; i < 8; ++i) image_put(im, &(float){(float)i}, 4);
    image_fill(im, data + 32 + 68, 0x11);
    image_fill(im, data + 160, 0x22);
    image_fill(im, data + 160 + 48, 0x33);
}

static void test_keys(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; ++version) {
        image im;
        llm_gguf *g = NULL;
        tdm_error err = {0};
        build_all(&im, version);
        if (image_open(&im, "all.gguf", &g, &err) != TDM_OK) fail_msg("%s", err.message);
        assert_int_equal(llm_gguf_version(g), version);
        assert_int_equal(llm_gguf_part_count(g), 1);
        assert_int_equal(llm_gguf_key_count(g), 18);
        assert_string_equal(llm_gguf_key_at(g, 1)->name, "a.u8");
        assert_ptr_equal(llm_gguf_key_find(g, "a.u8"), llm_gguf_key_at(g, 1));
        assert_null(llm_gguf_key_find(g, "a.u"));
        assert_null(llm_gguf_key_find(g, "a.u80"));

        llm_gguf_str text = {0};
        assert_int_equal(llm_gguf_get_str(g, "general.architecture", 1, &text, &err), TDM_OK);
        assert_true(llm_gguf_str_equals(text, "llama"));
        assert_false(llm_gguf_str_equals(text, "llam"));
        assert_false(llm_gguf_str_equals(text, "llama2"));
        bool flag = false;
        assert_int_equal(llm_gguf_get_bool(g, "a.bool", 1, &flag, &err), TDM_OK);
        assert_true(flag);
        float real = 0;
        assert_int_equal(llm_gguf_get_f32(g, "a.f32", 1, &real, &err), TDM_OK);
        assert_true(real == 1.5f);
        assert_int_equal(llm_gguf_get_f32(g, "a.f64", 1, &real, &err), TDM_OK);
        assert_true(real == -INFINITY);

        static const struct {
            const char *name;
            int64_t value;
        } integers[] = {
            {"a.u8", 200},         {"a.i8", -3},      {"a.u16", 0x1234},    {"a.i16", -2},
            {"a.u32", 4000000000}, {"a.i32", -70000}, {"a.u64", INT64_MAX}, {"a.i64", INT64_MIN},
        };
        for (size_t i = 0; i < sizeof integers / sizeof *integers; ++i) {
            int64_t wide = 1;
            uint32_t word = 1;
            const bool fits = integers[i].value >= 0 && integers[i].value <= UINT32_MAX;
            assert_int_equal(llm_gguf_get_i64(g, integers[i].name, 1, &wide, &err), TDM_OK);
            assert_true(wide == integers[i].value);
            assert_int_equal(llm_gguf_get_u32(g, integers[i].name, 1, &word, &err),
                             fits ? TDM_OK : TDM_OUT_OF_RANGE);
            assert_true(word == (fits ? (uint32_t)integers[i].value : 1));
        }
        llm_gguf_close(g);
    }
}

static void test_arrays(void **state) {
    (void)state;
    image im;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    build_all(&im, 3);
    assert_int_equal(image_open(&im, "all.gguf", &g, &err), TDM_OK);
    llm_gguf_array array;
    assert_int_equal(llm_gguf_get_array(g, "a.strings", LLM_GGUF_STRING, 1, &array, &err), TDM_OK);
    assert_int_equal(array.n, 3);
    assert_true(llm_gguf_str_equals(llm_gguf_array_str(&array, 2), "thr\"ee\n"));
    assert_true(llm_gguf_str_equals(llm_gguf_array_str(&array, 0), "one"));
    assert_int_equal(llm_gguf_array_str(&array, 1).len, 0);
    assert_int_equal(llm_gguf_array_i64(&array, 0), 0);
    assert_int_equal(llm_gguf_get_array(g, "a.i16s", LLM_GGUF_I32, 1, &array, &err), TDM_OK);
    assert_int_equal(llm_gguf_array_i64(&array, 1), -1);
    assert_int_equal(llm_gguf_array_i64(&array, 2), -32768);
    assert_int_equal(llm_gguf_array_str(&array, 2).len, 0);
    assert_int_equal(llm_gguf_get_array(g, "a.f32s", LLM_GGUF_F32, 1, &array, &err), TDM_OK);
    assert_true(llm_gguf_array_f32(&array, 1) == -2.0f);
    assert_int_equal(llm_gguf_get_array(g, "a.empty", LLM_GGUF_STRING, 1, &array, &err), TDM_OK);
    assert_int_equal(array.n, 0);

    /* One number for all, or one for each. */
    uint32_t each[4] = {9, 9, 9, 9};
    assert_int_equal(llm_gguf_get_u32_each(g, "a.u8", 1, 3, each, &err), TDM_OK);
    assert_int_equal(each[2], 200);
    assert_int_equal(each[3], 9);
    assert_int_equal(llm_gguf_get_u32_each(g, "a.i16s", 1, 3, each, &err), TDM_OUT_OF_RANGE);
    assert_int_equal(llm_gguf_get_u32_each(g, "a.i16s", 1, 4, each, &err), TDM_DATA_LOSS);
    assert_int_equal(each[0], 200);
    llm_gguf_close(g);
}

static void test_wrong_types(void **state) {
    (void)state;
    image im;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    build_all(&im, 3);
    assert_int_equal(image_open(&im, "all.gguf", &g, &err), TDM_OK);
    uint32_t word = 5;
    int64_t wide = 5;
    float real = 5;
    bool flag = true;
    llm_gguf_str text = {"x", 1};
    llm_gguf_array array;
#define REFUSED(call, wanted, part)                                                                \
    do {                                                                                           \
        assert_int_equal(call, wanted);                                                            \
        if (strstr(err.message, part) == NULL || strstr(err.message, "all.gguf") == NULL)          \
            fail_msg("message: %s", err.message);                                                  \
    } while (0)
    REFUSED(llm_gguf_get_u32(g, "a.f32", 1, &word, &err), TDM_DATA_LOSS, "'a.f32' is of type f32");
    REFUSED(llm_gguf_get_u32(g, "a.bool", 1, &word, &err), TDM_DATA_LOSS, "'a.bool'");
    REFUSED(llm_gguf_get_u32(g, "a.i8", 0, &word, &err), TDM_OUT_OF_RANGE, "'a.i8' is -3");
    REFUSED(llm_gguf_get_i64(g, "a.strings", 0, &wide, &err), TDM_DATA_LOSS, "'a.strings'");
    REFUSED(llm_gguf_get_f32(g, "a.u32", 0, &real, &err), TDM_DATA_LOSS, "'a.u32'");
    REFUSED(llm_gguf_get_bool(g, "a.u8", 0, &flag, &err), TDM_DATA_LOSS, "'a.u8'");
    REFUSED(llm_gguf_get_str(g, "a.u8", 0, &text, &err), TDM_DATA_LOSS, "'a.u8'");
    REFUSED(llm_gguf_get_array(g, "a.u8", LLM_GGUF_U8, 0, &array, &err), TDM_DATA_LOSS, "'a.u8'");
    REFUSED(llm_gguf_get_array(g, "a.f32s", LLM_GGUF_I32, 0, &array, &err), TDM_DATA_LOSS,
            "array of f32");
    REFUSED(llm_gguf_get_array(g, "a.nested", LLM_GGUF_I32, 0, &array, &err), TDM_DATA_LOSS,
            "array of array");
    REFUSED(llm_gguf_get_u32(g, "gone", 1, &word, &err), TDM_NOT_FOUND, "'gone' is missing");
    REFUSED(llm_gguf_get_str(g, "gone", 1, &text, &err), TDM_NOT_FOUND, "'gone' is missing");
#undef REFUSED
    /* What is missing and optional changes nothing; nor did any failure. */
    assert_int_equal(llm_gguf_get_u32(g, "gone", 0, &word, &err), TDM_OK);
    assert_int_equal(llm_gguf_get_f32(g, "gone", 0, &real, NULL), TDM_OK);
    assert_int_equal(word, 5);
    assert_int_equal(wide, 5);
    assert_true(real == 5 && flag && text.len == 1);
    llm_gguf_close(g);
}

static void test_print(void **state) {
    (void)state;
    image im;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    build_all(&im, 3);
    assert_int_equal(image_open(&im, "all.gguf", &g, &err), TDM_OK);
    static const struct {
        const char *name, *text;
    } cases[] = {
        {"general.architecture", "\"llama\""},
        {"a.i8", "-3"},
        {"a.u64", "18446744073709551615"},
        {"a.f32", "1.5"},
        {"a.bool", "true"},
        {"a.strings", "[3 x string] \"one\", \"\", \"thr\\\"ee\\n\""},
        {"a.i16s", "[3 x i16] 1, -1, -32768"},
        {"a.bools", "[2 x bool] false, true"},
        {"a.nested", "[2 x array]"},
        {"a.empty", "[0 x string]"},
    };
    char text[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        const llm_gguf_key *key = llm_gguf_key_find(g, cases[i].name);
        assert_non_null(key);
        assert_int_equal(llm_gguf_key_print(key, text, sizeof text), strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
        /* Every smaller space: terminated inside it, and nothing behind it is touched. */
        for (size_t size = 0; size < strlen(cases[i].text) + 4; ++size) {
            memset(text, '#', sizeof text);
            const size_t len = llm_gguf_key_print(key, text, size);
            if (size > 0) {
                assert_true(len < size);
                assert_int_equal(strlen(text), len);
            }
            for (size_t j = size; j < sizeof text; ++j) assert_int_equal(text[j], '#');
        }
    }
    assert_int_equal(llm_gguf_key_print(llm_gguf_key_find(g, "a.i16s"), text, 20), 18);
    assert_string_equal(text, "[3 x i16] 1, -1...");
    llm_gguf_close(g);
}

static void test_tensors(void **state) {
    (void)state;
    image im;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    build_all(&im, 3);
    assert_int_equal(image_open(&im, "all.gguf", &g, &err), TDM_OK);
    assert_int_equal(llm_gguf_tensor_count(g), 4);
    assert_null(llm_gguf_tensor_find(g, "nor"));
    const llm_gguf_tensor *norm = llm_gguf_tensor_find(g, "norm");
    assert_ptr_equal(norm, llm_gguf_tensor_at(g, 0));
    assert_int_equal(norm->size, 32);
    assert_int_equal((uintptr_t)norm->data % 32, 0);
    for (int i = 0; i < 8; ++i) assert_true(((const float *)norm->data)[i] == (float)i);
    const llm_gguf_tensor *matrix = llm_gguf_tensor_find(g, "matrix");
    assert_int_equal(matrix->type, TDM_TYPE_Q8_0);
    assert_int_equal(matrix->n_dims, 2);
    assert_int_equal(matrix->ne[1], 2);
    assert_int_equal(matrix->ne[2], 1);
    assert_int_equal(matrix->size, 68);
    for (int i = 0; i < 68; ++i) assert_int_equal(((const uint8_t *)matrix->data)[i], 0x11);
    assert_int_equal(llm_gguf_tensor_check_type(g, matrix, &err), TDM_OK);
    const llm_gguf_tensor *cube = llm_gguf_tensor_find(g, "cube");
    assert_int_equal(cube->size, 48);
    assert_int_equal(((const uint8_t *)cube->data)[47], 0x33);

    const llm_gguf_tensor *alien = llm_gguf_tensor_find(g, "alien");
    assert_int_equal(alien->size, 0);
    assert_null(alien->data);
    assert_int_equal(alien->type_raw, 15);
    assert_int_equal(llm_gguf_tensor_check_type(g, alien, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "all.gguf: tensor 'alien' has type q8_K (number 15)"));
    llm_gguf_prefetch(g, alien, 0, SIZE_MAX);
    llm_gguf_prefetch(g, cube, 0, SIZE_MAX);
    assert_true(((const float *)norm->data)[7] == 7.0f);
    llm_gguf_close(g);
    llm_gguf_close(NULL);
}

/* Whether the page at `address` is in this process's page table, as reported by the kernel;
 * counters of the resident set lag behind. -1 where this is not available. */
static int page_is_resident(uintptr_t address, size_t page) {
    uint64_t entry = 0;
    FILE *f = fopen("/proc/self/pagemap", "rb");
    if (f == NULL) return -1;
    const bool is_read = fseek(f, (long)(address / page * sizeof entry), SEEK_SET) == 0 &&
                         fread(&entry, sizeof entry, 1, f) == 1;
    fclose(f);
    return is_read ? (int)(entry >> 63) : -1;
}

/* Released pages leave the resident set, and the bytes can still be read. */
static void test_release(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n_page = 64;
    image im;
    image_head(&im, 3, 1, 0);
    image_tensor(&im, "big", TDM_TYPE_I8, 1, (uint64_t[]){n_page * page}, 0);
    image_align(&im, 32);
    const char *path = image_path("big.gguf");
    image_save(&im, im.len, "big.gguf");
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    for (size_t i = 0; i < n_page * page; ++i) fputc((int)(i % 251), f);
    assert_int_equal(fclose(f), 0);
    llm_gguf *g = NULL;
    tdm_error err = {0};
    if (llm_gguf_open(path, &g, &err) != TDM_OK) fail_msg("%s", err.message);
    const llm_gguf_tensor *big = llm_gguf_tensor_find(g, "big");
    const uint8_t *data = big->data;
    llm_gguf_prefetch(g, big, 0, big->size);
    for (size_t i = 0; i < big->size; ++i) assert_int_equal(data[i], i % 251);
    const uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    if (page_is_resident(first, page) < 0) {
        print_message("no /proc/self/pagemap here: residency is not measured\n");
        llm_gguf_close(g);
        skip();
    }
    for (size_t p = 0; p + 1 < n_page; ++p)
        assert_int_equal(page_is_resident(first + p * page, page), 1);
    llm_gguf_release_all(g);
    for (size_t p = 0; p + 1 < n_page; ++p)
        assert_int_equal(page_is_resident(first + p * page, page), 0);
    for (size_t i = 0; i < big->size; ++i) assert_int_equal(data[i], i % 251);
    llm_gguf_close(g);
}

/* ---- What must be refused ---- */

static void test_bad_files(void **state) {
    (void)state;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    assert_int_equal(llm_gguf_open(image_path("none.gguf"), &g, &err), TDM_NOT_FOUND);
    assert_non_null(strstr(err.message, "none.gguf: cannot open"));
    assert_int_equal(llm_gguf_open(image_folder, &g, &err), TDM_IO);
    assert_int_equal(llm_gguf_open("/dev/zero", &g, &err), TDM_IO);
    assert_int_equal(llm_gguf_open("", &g, &err), TDM_NOT_FOUND);
    assert_int_equal(mkfifo(image_path("pipe.gguf"), 0600), 0);
    assert_int_equal(llm_gguf_open(image_path("pipe.gguf"), &g, &err), TDM_IO);

    image im = {.len = 0};
    image_refused(&im, TDM_DATA_LOSS, "is empty");
    image_put(&im, "version https://git-lfs.github.com/spec/v1\n", 43);
    image_refused(&im, TDM_DATA_LOSS, "git lfs pull");
    im.len = 0;
    image_put(&im, "<!DOCTYPE html>", 15);
    image_refused(&im, TDM_DATA_LOSS, "web page");
    im.len = 0;
    image_put(&im, "tjgg\1\0\0\0", 8);
    image_refused(&im, TDM_DATA_LOSS, "older than GGUF");
    im.len = 0;
    image_put(&im, "GGU", 3);
    image_refused(&im, TDM_DATA_LOSS, "not a GGUF file");
    image_put(&im, "F\3\0\0\0", 5);
    image_refused(&im, TDM_DATA_LOSS, "truncated");

    const uint32_t versions[] = {0, 1, 4, UINT32_MAX};
    for (size_t i = 0; i < 4; ++i) {
        image_head(&im, versions[i], 0, 0);
        image_refused(&im, TDM_UNSUPPORTED, "GGUF version");
    }
    image_head(&im, 0x03000000, 0, 0);
    image_refused(&im, TDM_UNSUPPORTED, "big-endian");
    image_head(&im, 3, 0, 0);
    assert_int_equal(image_open(&im, "nothing.gguf", &g, &err), TDM_OK);
    assert_null(llm_gguf_key_find(g, "a"));
    assert_null(llm_gguf_tensor_find(g, "a"));
    llm_gguf_close(g);
}

static void test_absurd_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {1,          2,          100,        65537,     1u << 31,
                                      1ull << 32, 1ull << 60, 1ull << 63, UINT64_MAX};
    image im;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
        image_head(&im, 3, 0, counts[i]);
        image_refused(&im, TDM_DATA_LOSS, "keys do not fit");
        image_head(&im, 3, counts[i], 0);
        image_refused(&im, TDM_DATA_LOSS, "tensors");
        if (counts[i] < 3) continue;

        image_head(&im, 3, 0, 1);
        image_u64(&im, counts[i]); /* the length of the name */
        image_fill(&im, 80, 'x');
        image_refused(&im, TDM_DATA_LOSS, "key 0: a string of");

        image_head(&im, 3, 0, 1);
        image_key(&im, "text", LLM_GGUF_STRING);
        image_u64(&im, counts[i]);
        image_u8(&im, 'x');
        image_refused(&im, TDM_DATA_LOSS, "key 'text': a string of");

        for (uint32_t type = 0; type < LLM_GGUF_TYPE_COUNT_; ++type) {
            image_head(&im, 3, 0, 1);
            image_key(&im, "list", LLM_GGUF_ARRAY);
            image_array(&im, type, counts[i]);
            image_fill(&im, im.len + 7, 0);
            image_refused(&im, TDM_DATA_LOSS, "key 'list': an array of");
        }
    }
    /* Arrays in arrays: to the limit, beyond it, and wide at every level. */
    for (int depth = 1; depth <= 64; depth *= 2) {
        image_head(&im, 3, 0, 1);
        image_key(&im, "deep", LLM_GGUF_ARRAY);
        for (int d = 1; d < depth; ++d) image_array(&im, LLM_GGUF_ARRAY, 1);
        image_array(&im, LLM_GGUF_U8, 0);
        llm_gguf *g = NULL;
        if (depth <= 8) {
            assert_int_equal(image_open(&im, "deep.gguf", &g, NULL), TDM_OK);
            llm_gguf_close(g);
        } else {
            image_refused(&im, TDM_DATA_LOSS, "key 'deep': arrays nest too deep");
        }
    }
}

static void test_bad_keys(void **state) {
    (void)state;
    image im;
    image_head(&im, 3, 0, 1);
    image_key(&im, "", LLM_GGUF_U32);
    image_u32(&im, 1);
    image_refused(&im, TDM_DATA_LOSS, "key 0: its name is empty");

    image_head(&im, 3, 0, 1);
    image_key(&im, "two\nlines", LLM_GGUF_U32);
    image_u32(&im, 1);
    image_refused(&im, TDM_DATA_LOSS, "control character 0x0a");

    const uint32_t types[] = {13, 255, UINT32_MAX};
    for (size_t i = 0; i < 3; ++i) {
        image_head(&im, 3, 0, 1);
        image_key(&im, "odd", types[i]);
        image_u64(&im, 1);
        image_refused(&im, TDM_DATA_LOSS, "key 'odd': its type is the unknown number");
        image_head(&im, 3, 0, 1);
        image_key(&im, "odd", LLM_GGUF_ARRAY);
        image_array(&im, types[i], 0);
        image_refused(&im, TDM_DATA_LOSS, "key 'odd': its type is the unknown number");
    }

    image_head(&im, 3, 0, 1);
    image_key(&im, "flag", LLM_GGUF_BOOL);
    image_u8(&im, 2);
    image_refused(&im, TDM_DATA_LOSS, "key 'flag': a truth value");
    image_head(&im, 3, 0, 1);
    image_key(&im, "flags", LLM_GGUF_ARRAY);
    image_array(&im, LLM_GGUF_BOOL, 3);
    image_put(&im, "\0\1\xff", 3);
    image_refused(&im, TDM_DATA_LOSS, "key 'flags': a truth value");

    image_head(&im, 3, 0, 3);
    image_key_u32(&im, "twice", 1);
    image_key_u32(&im, "once", 1);
    image_key_u32(&im, "twice", 1);
    image_refused(&im, TDM_DATA_LOSS, "key 'twice' occurs twice");
}

static void test_bad_alignment(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 3, 4, 24, 33, 1u << 21, 1u << 31, UINT32_MAX};
    image im;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        image_head(&im, 3, 0, 1);
        image_key_u32(&im, "general.alignment", bad[i]);
        image_refused(&im, TDM_DATA_LOSS, "'general.alignment' is");
    }
    image_head(&im, 3, 0, 1);
    image_key(&im, "general.alignment", LLM_GGUF_STRING);
    image_str(&im, "32");
    image_refused(&im, TDM_DATA_LOSS, "'general.alignment' is of type string");

    /* A legal alignment moves the data, and offsets must be multiples of it. */
    for (uint64_t off = 0; off <= 64; off += 32) {
        image_head(&im, 3, 1, 1);
        image_key_u32(&im, "general.alignment", 64);
        image_tensor(&im, "t", TDM_TYPE_F32, 1, ne8, off);
        image_align(&im, 64);
        image_fill(&im, im.len + off, 0);
        image_fill(&im, im.len + 32, 0x42);
        if (off == 32) {
            image_refused(&im, TDM_DATA_LOSS, "tensor 't': its offset 32 is not a multiple");
            continue;
        }
        llm_gguf *g = NULL;
        tdm_error err = {0};
        if (image_open(&im, "aligned.gguf", &g, &err) != TDM_OK) fail_msg("%s", err.message);
        const llm_gguf_tensor *t = llm_gguf_tensor_find(g, "t");
        for (int b = 0; b < 32; ++b) assert_int_equal(((const uint8_t *)t->data)[b], 0x42);
        llm_gguf_close(g);
    }
}

/* One tensor of the given description, with room for 64 bytes of data behind the header. */
static void build_tensor(image *im, uint32_t type, uint32_t n_dims, const uint64_t *ne,
                         uint64_t off) {
    image_head(im, 3, 1, 0);
    image_tensor(im, "t", type, n_dims, ne, off);
    image_align(im, 32);
    image_fill(im, im->len + 64, 0);
}

static void test_bad_tensors(void **state) {
    (void)state;
    image im;
    const uint64_t big = 1ull << 33;
    build_tensor(&im, TDM_TYPE_F32, 0, NULL, 0);
    image_refused(&im, TDM_DATA_LOSS, "tensor 't': has 0 dimensions");
    build_tensor(&im, TDM_TYPE_F32, 5, (uint64_t[]){1, 1, 1, 1, 1}, 0);
    image_refused(&im, TDM_DATA_LOSS, "tensor 't': has 5 dimensions");
    build_tensor(&im, TDM_TYPE_F32, 2, (uint64_t[]){8, 0}, 0);
    image_refused(&im, TDM_DATA_LOSS, "tensor 't': dimension 1 is 0");
    build_tensor(&im, TDM_TYPE_F32, 1, (uint64_t[]){UINT64_MAX}, 0);
    image_refused(&im, TDM_DATA_LOSS, "impossible size");
    build_tensor(&im, TDM_TYPE_F32, 1, (uint64_t[]){1ull << 60}, 0);
    image_refused(&im, TDM_DATA_LOSS, "past the end");
    build_tensor(&im, TDM_TYPE_F32, 1, (uint64_t[]){INT64_MAX}, 0);
    image_refused(&im, TDM_DATA_LOSS, "impossible");
    build_tensor(&im, TDM_TYPE_F32, 4, (uint64_t[]){big, big, big, big}, 0);
    image_refused(&im, TDM_DATA_LOSS, "impossible size");
    build_tensor(&im, TDM_TYPE_F32, 4, (uint64_t[]){1ull << 32, 1ull << 32, 1, 1}, 0);
    image_refused(&im, TDM_DATA_LOSS, "impossible size");
    build_tensor(&im, TDM_TYPE_Q4_0, 2, (uint64_t[]){33, 1}, 0);
    image_refused(&im, TDM_DATA_LOSS, "whole blocks of 32 (type q4_0)");
    build_tensor(&im, TDM_TYPE_Q4_K, 2, (uint64_t[]){128, 2}, 0);
    image_refused(&im, TDM_DATA_LOSS, "whole blocks of 256 (type q4_K)");
    build_tensor(&im, TDM_TYPE_F32, 1, ne8, 8);
    image_refused(&im, TDM_DATA_LOSS, "tensor 't': its offset 8 is not a multiple");
    build_tensor(&im, TDM_TYPE_F32, 1, ne8, 64);
    image_refused(&im, TDM_DATA_LOSS, "tensor 't': ends 32 bytes past the end of the file");
    build_tensor(&im, TDM_TYPE_F32, 1, (uint64_t[]){17}, 0);
    image_refused(&im, TDM_DATA_LOSS, "tensor 't': ends 4 bytes past the end of the file");
    build_tensor(&im, TDM_TYPE_F32, 1, ne8, UINT64_MAX - 31);
    image_refused(&im, TDM_DATA_LOSS, "impossible offset");
    build_tensor(&im, TDM_TYPE_F32, 1, ne8, 1ull << 63);
    image_refused(&im, TDM_DATA_LOSS, "past the end");
    build_tensor(&im, 9999, 1, ne8, 64);
    image_refused(&im, TDM_DATA_LOSS, "tensor 't': ends 1 bytes past the end of the file");

    /* A type that is not known opens, whatever its number. */
    const uint32_t types[] = {4, 15, 63, 64, 9999, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
        llm_gguf *g = NULL;
        tdm_error err = {0};
        build_tensor(&im, types[i], 1, ne8, 32);
        if (image_open(&im, "alien.gguf", &g, &err) != TDM_OK) fail_msg("%s", err.message);
        const llm_gguf_tensor *t = llm_gguf_tensor_at(g, 0);
        assert_int_equal(t->type_raw, types[i]);
        assert_int_equal(t->size, 0);
        assert_int_equal(llm_gguf_tensor_check_type(g, t, &err), TDM_UNSUPPORTED);
        llm_gguf_close(g);
    }
}

/* Two tensors of 32 bytes at the two offsets, in a data region of 96. */
static void build_pair(image *im, const char *second, uint32_t second_type, uint64_t off_a,
                       uint64_t off_b) {
    image_head(im, 3, 2, 0);
    image_tensor(im, "first", TDM_TYPE_F32, 1, (uint64_t[]){16}, off_a);
    image_tensor(im, second, second_type, 1, ne8, off_b);
    image_align(im, 32);
    image_fill(im, im->len + 96, 0);
}

static void test_overlap_and_duplicates(void **state) {
    (void)state;
    image im;
    llm_gguf *g = NULL;
    build_pair(&im, "second", TDM_TYPE_F32, 0, 32);
    image_refused(&im, TDM_DATA_LOSS, "tensor 'second': shares bytes with tensor 'first'");
    build_pair(&im, "second", TDM_TYPE_F32, 0, 0);
    image_refused(&im, TDM_DATA_LOSS, "shares bytes with");
    build_pair(&im, "second", TDM_TYPE_F32, 32, 64);
    image_refused(&im, TDM_DATA_LOSS, "shares bytes with");
    build_pair(&im, "second", 15, 0, 32); /* of unknown size, but it begins inside */
    image_refused(&im, TDM_DATA_LOSS, "shares bytes with");
    build_pair(&im, "second", TDM_TYPE_F32, 32, 0); /* any order, and gaps, are legal */
    assert_int_equal(image_open(&im, "pair.gguf", &g, NULL), TDM_OK);
    llm_gguf_close(g);
    build_pair(&im, "second", TDM_TYPE_F32, 0, 64);
    assert_int_equal(image_open(&im, "pair.gguf", &g, NULL), TDM_OK);
    llm_gguf_close(g);
    build_pair(&im, "first", TDM_TYPE_F32, 0, 64);
    image_refused(&im, TDM_DATA_LOSS, "tensor 'first' occurs twice");
    build_pair(&im, "", TDM_TYPE_F32, 0, 64);
    image_refused(&im, TDM_DATA_LOSS, "tensor 1: its name is empty");
    char name[300];
    memset(name, 'n', sizeof name);
    name[255] = '\0';
    build_pair(&im, name, TDM_TYPE_F32, 0, 64);
    assert_int_equal(image_open(&im, "pair.gguf", &g, NULL), TDM_OK);
    assert_non_null(llm_gguf_tensor_find(g, name));
    llm_gguf_close(g);
    name[255] = 'n';
    name[256] = '\0';
    build_pair(&im, name, TDM_TYPE_F32, 0, 64);
    image_refused(&im, TDM_DATA_LOSS, "tensor 1: its name has 256 bytes");
}

/* The message stays useful where the path does not fit into it. */
static void test_long_path(void **state) {
    (void)state;
    char path[1200];
    int len = snprintf(path, sizeof path, "%s", image_path(""));
    while (len < 1000) len += snprintf(path + len, sizeof path - (size_t)len, "../%s", "./");
    snprintf(path + len, sizeof path - (size_t)len, "missing.gguf");
    llm_gguf *g = NULL;
    tdm_error err = {0};
    assert_int_equal(llm_gguf_open(path, &g, &err), TDM_NOT_FOUND);
    assert_non_null(strstr(err.message, ".../missing.gguf: cannot open"));
    assert_non_null(strstr(err.message, "check the path"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_wrong_types), cmocka_unit_test(test_print),
        cmocka_unit_test(test_tensors),     cmocka_unit_test(test_release),
        cmocka_unit_test(test_bad_files),   cmocka_unit_test(test_absurd_counts),
        cmocka_unit_test(test_bad_keys),    cmocka_unit_test(test_bad_alignment),
        cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_overlap_and_duplicates),
        cmocka_unit_test(test_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, image_folder_remove);
}
