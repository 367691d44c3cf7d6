/* SPDX-License-Identifier: MIT
 *
 * test_gguf_corrupt.c: a valid file, truncated at every byte, and with every byte of its header
 * changed in several ways, then in several places at once. Opening ends with a status and a
 * message, and a file that opens can be read to the last byte without a read outside of it. Also
 * run under the address and undefined-behaviour sanitizers.
 */
#include "tests/support/random.h"
#include "tests/unit/gguf_image.h"

#include <fcntl.h>
#include <inttypes.h>

#define FILE_SIZE 4096 /* a page: a read past the end of the file leaves the mapping too */
#define ROUNDS    6000
#define SEED      20261120u
#define N_KEYS    15
#define N_TENSORS 4

static image good;
static size_t header_size; /* of `good`: up to its first tensor's data */

static int good_build(void **state) {
    (void)state;
    image *im = &good;
    image_head(im, 3, N_TENSORS, N_KEYS);
    image_key(im, "general.architecture", LLM_GGUF_STRING);
    image_str(im, "llama");
    image_key_u32(im, "general.alignment", 32);
    image_key(im, "a.u8", LLM_GGUF_U8);
    image_u8(im, 1);
    image_key(im, "a.i16", LLM_GGUF_I16);
    image_put(im, "\1\0", 2);
    image_key_u32(im, "a.u32", 77);
    image_key(im, "a.f32", LLM_GGUF_F32);
    image_put(im, &(float){1}, 4);
    image_key(im, "a.f64", LLM_GGUF_F64);
    image_put(im, &(double){1}, 8);
    image_key(im, "a.bool", LLM_GGUF_BOOL);
    image_u8(im, 1);
    image_key(im, "a.u64", LLM_GGUF_U64);
    image_u64(im, 1);
    image_key(im, "a.strings", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_STRING, 3);
    image_str(im, "one");
    image_str(im, "");
    image_str(im, "three");
    image_key(im, "a.nested", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_ARRAY, 2);
    image_array(im, LLM_GGUF_U16, 1);
    image_put(im, "\1\0", 2);
    image_array(im, LLM_GGUF_STRING, 1);
    image_str(im, "in");
    image_key(im, "a.f32s", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_F32, 3);
    image_put(im, (float[]){1, 2, 3}, 12);
    image_key(im, "a.bools", LLM_GGUF_ARRAY);
    image_array(im, LLM_GGUF_BOOL, 2);
    image_put(im, "\1\0", 2);
    image_key_u32(im, "split.count", 1);
    image_key_u32(im, "split.no", 0);
    const size_t info = im->len;
    /* Written twice: the last tensor's size, which fills the page, follows from the header's. */
    uint64_t last = 8;
    for (int pass = 0; pass < 2; ++pass) {
        im->len = info;
        image_tensor(im, "norm", TDM_TYPE_F32, 1, (uint64_t[]){16}, 0);
        image_tensor(im, "matrix", TDM_TYPE_Q8_0, 2, (uint64_t[]){32, 2}, 64);
        image_tensor(im, "alien", 15, 2, (uint64_t[]){256, 1}, 160);
        image_tensor(im, "rest", TDM_TYPE_I8, 3, (uint64_t[]){2, last / 2, 1}, 192);
        image_align(im, 32);
        header_size = im->len;
        last = FILE_SIZE - header_size - 192;
        image_fill(im, FILE_SIZE, 0x5a);
    }
    return 0;
}

/* Reads everything there is. The sum is of no meaning; it keeps the reads. */
static uint64_t read_all(const llm_gguf *g) {
    uint64_t sum = 0;
    char text[256];
    for (uint32_t i = 0; i < llm_gguf_key_count(g); ++i) {
        const llm_gguf_key *key = llm_gguf_key_at(g, i);
        assert_ptr_equal(llm_gguf_key_find(g, key->name), key);
        const size_t len = llm_gguf_key_print(key, text, sizeof text);
        assert_int_equal(strlen(text), len);
        llm_gguf_str str = {"", 0};
        if (key->type == LLM_GGUF_STRING) {
            assert_int_equal(llm_gguf_get_str(g, key->name, 1, &str, NULL), TDM_OK);
            for (size_t c = 0; c < str.len; ++c) sum += (unsigned char)str.ptr[c];
        }
        for (uint64_t e = 0; key->type == LLM_GGUF_ARRAY && e < key->array.n; ++e) {
            sum += (uint64_t)llm_gguf_array_i64(&key->array, e);
            sum += llm_gguf_array_f32(&key->array, e) > 0;
            str = llm_gguf_array_str(&key->array, e);
            for (size_t c = 0; c < str.len; ++c) sum += (unsigned char)str.ptr[c];
        }
        uint32_t u32 = 0;
        int64_t i64 = 0;
        float f32 = 0;
        bool flag = false;
        (void)llm_gguf_get_u32(g, key->name, 1, &u32, NULL);
        (void)llm_gguf_get_i64(g, key->name, 1, &i64, NULL);
        (void)llm_gguf_get_f32(g, key->name, 1, &f32, NULL);
        (void)llm_gguf_get_bool(g, key->name, 1, &flag, NULL);
        sum += u32 + (uint64_t)i64 + (f32 > 0) + flag;
    }
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); ++i) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        assert_ptr_equal(llm_gguf_tensor_find(g, tensor->name), tensor);
        assert_true(tensor->n_dims >= 1 && tensor->n_dims <= 4);
        assert_true(tensor->size <= FILE_SIZE);
        assert_true((tensor->data == NULL) == (tensor->size == 0));
        for (size_t b = 0; b < tensor->size; ++b) sum += ((const uint8_t *)tensor->data)[b];
    }
    return sum;
}

/* Opens `len` bytes of `im`; TDM_OK only after everything was read. */
static tdm_status try_image(const image *im, size_t len, tdm_error *err) {
    /* One file for all: creating one each time would be most of the time. */
    static char path[256];
    static int fd = -1;
    if (fd < 0) {
        snprintf(path, sizeof path, "%s", image_path("victim.gguf"));
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
    }
    assert_int_equal(pwrite(fd, im->data, len, 0), len);
    assert_int_equal(ftruncate(fd, (off_t)len), 0);
    llm_gguf *g = NULL;
    *err = (tdm_error){0};
    const tdm_status status = llm_gguf_open(path, &g, err);
    if (status == TDM_OK) {
        assert_non_null(g);
        static volatile uint64_t sink;
        sink = read_all(g);
        (void)sink;
        llm_gguf_close(g);
        return TDM_OK;
    }
    assert_null(g);
    assert_int_equal(err->status, status);
    if (strstr(err->message, "victim.gguf: ") == NULL || strpbrk(err->message, "\n\r") != NULL)
        fail_msg("message: %s", err->message);
    return status;
}

static void test_good(void **state) {
    (void)state;
    tdm_error err;
    if (try_image(&good, good.len, &err) != TDM_OK) fail_msg("%s", err.message);
    print_message("header of %zu bytes in a file of %zu\n", header_size, good.len);
}

static void test_truncation(void **state) {
    (void)state;
    tdm_error err;
    for (size_t len = 0; len < good.len; ++len) {
        const tdm_status status = try_image(&good, len, &err);
        if (status != TDM_DATA_LOSS)
            fail_msg("%zu bytes: %s: %s", len, tdm_status_text(status), err.message);
        if (len >= 4 && strstr(err.message, "download it again") == NULL)
            fail_msg("%zu bytes: no way out in: %s", len, err.message);
    }
}

static void test_changed_bytes(void **state) {
    (void)state;
    tdm_error err;
    image bad;
    size_t n_refused = 0, n_opened = 0;
    for (size_t at = 0; at < header_size; ++at) {
        const uint8_t was = good.data[at];
        const uint8_t values[] = {0,    1,    2,       0x0a,    0x20,       0x7f,      0x80,
                                  0xfe, 0xff, was ^ 1, was ^ 2, was ^ 0x10, was ^ 0x80};
        for (size_t v = 0; v < sizeof values; ++v) {
            if (values[v] == was) continue;
            memcpy(&bad, &good, sizeof bad);
            bad.data[at] = values[v];
            if (try_image(&bad, bad.len, &err) == TDM_OK)
                n_opened += 1;
            else
                n_refused += 1;
        }
    }
    print_message("%zu changes refused, %zu harmless\n", n_refused, n_opened);
    assert_true(n_refused > 0 && n_opened > 0); /* values and letters of names may change */
}

/* Several changes at once: bytes, eight-byte counts, cuts of the tail. */
static void test_many_changes(void **state) {
    (void)state;
    tdm_error err;
    image bad;
    uint64_t random = test_seed("gguf_corrupt", SEED);
    size_t n_refused = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        memcpy(&bad, &good, sizeof bad);
        const uint32_t n = 1 + random_u32_below(&random, 4);
        for (uint32_t i = 0; i < n; ++i) {
            const size_t at = random_u64(&random) % (header_size - 8);
            if (random_u32_below(&random, 2) == 0) {
                bad.data[at] = (uint8_t)random_u64(&random);
            } else {
                const uint64_t count = UINT64_MAX >> random_u32_below(&random, 64);
                memcpy(bad.data + at, &count, sizeof count);
            }
        }
        const size_t len =
            random_u32_below(&random, 4) == 0 ? random_u64(&random) % bad.len : bad.len;
        n_refused += try_image(&bad, len, &err) != TDM_OK;
    }
    print_message("%zu of %d refused\n", n_refused, ROUNDS);
    assert_true(n_refused > ROUNDS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_changed_bytes),
        cmocka_unit_test(test_many_changes),
    };
    return cmocka_run_group_tests(tests, good_build, image_folder_remove);
}
