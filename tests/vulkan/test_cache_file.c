/* SPDX-License-Identifier: MIT
 *
 * test_cache_file.c: compiled pipelines on disk: only what was written is read back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugins/vulkan/cache_file.h"

enum { SIZE = 1000 };

static char folder[] = "/tmp/tandem-cache-XXXXXX";
static char path[4096];
static uint8_t data[SIZE];
static const vk_cache_key key = {.vendor_id = 0x1002,
                                 .device_id = 0x73bf,
                                 .driver_version = 7,
                                 .driver_uuid = {1, 2, 3},
                                 .cache_uuid = {4, 5, 6}};

static int folder_make(void **state) {
    (void)state;
    for (int i = 0; i < SIZE; i++) data[i] = (uint8_t)(i * 13 + 5);
    if (mkdtemp(folder) == NULL) return -1;
    char base[64];
    snprintf(base, sizeof base, "%s/new", folder); /* which does not exist */
    setenv("XDG_CACHE_HOME", base, 1);
    return vk_cache_path(&key, path, sizeof path) ? 0 : -1;
}

static int folder_remove(void **state) {
    char name[64];
    (void)state;
    unlink(path);
    snprintf(name, sizeof name, "%s/new/tandem", folder);
    int rc = rmdir(name); /* empty: nothing was left beside the file */
    snprintf(name, sizeof name, "%s/new", folder);
    return rc | rmdir(name) | rmdir(folder);
}

static void test_path(void **state) {
    char other[4096], small[8];
    vk_cache_key second = key;
    (void)state;
    second.cache_uuid[15] = 9;
    assert_true(vk_cache_path(&second, other, sizeof other));
    assert_string_not_equal(path, other);
    assert_non_null(strstr(path, "/new/tandem/vulkan-1002-73bf-00000007-"));
    assert_false(vk_cache_path(&key, small, sizeof small));
    const char *set = getenv("HOME");
    char *base = strdup(getenv("XDG_CACHE_HOME")), *home = set != NULL ? strdup(set) : NULL;
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    setenv("HOME", "/somewhere", 1);
    assert_true(vk_cache_path(&key, other, sizeof other));
    assert_int_equal(strncmp(other, "/somewhere/.cache/tandem/", 25), 0);
    unsetenv("HOME");
    assert_false(vk_cache_path(&key, other, sizeof other));
    if (home != NULL) setenv("HOME", home, 1);
    setenv("XDG_CACHE_HOME", base, 1);
    free(home);
    free(base);
}

static void test_round_trip(void **state) {
    size_t size = 0;
    struct stat info;
    (void)state;
    assert_null(vk_cache_read(path, &key, &size));
    assert_true(vk_cache_write(path, &key, data, SIZE));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    void *seen = vk_cache_read(path, &key, &size);
    assert_non_null(seen);
    assert_int_equal(size, SIZE);
    assert_memory_equal(seen, data, SIZE);
    free(seen);
    /* A second file takes the place of the first. */
    assert_true(vk_cache_write(path, &key, data + 1, SIZE - 1));
    seen = vk_cache_read(path, &key, &size);
    assert_non_null(seen);
    assert_int_equal(size, SIZE - 1);
    assert_memory_equal(seen, data + 1, SIZE - 1);
    free(seen);
    assert_false(vk_cache_write(path, &key, data, 0));
}

/* The file as it is on disk. */
static size_t file_read(uint8_t *bytes, size_t room) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, room, file);
    fclose(file);
    return n;
}

static void file_write(const uint8_t *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* No byte of the file may change, and none may be missing or too many. */
static void test_damage(void **state) {
    uint8_t bytes[2 * SIZE] = {0};
    size_t size = 0;
    (void)state;
    assert_true(vk_cache_write(path, &key, data, SIZE));
    size_t n = file_read(bytes, sizeof bytes);
    assert_true(n > SIZE);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x10;
        file_write(bytes, n);
        assert_null(vk_cache_read(path, &key, &size));
        bytes[i] ^= 0x10;
    }
    for (size_t part = 0; part < n; part += 37) {
        file_write(bytes, part);
        assert_null(vk_cache_read(path, &key, &size));
    }
    file_write(bytes, n + 1);
    assert_null(vk_cache_read(path, &key, &size));
    file_write(bytes, n);
    void *seen = vk_cache_read(path, &key, &size);
    assert_non_null(seen);
    free(seen);
}

static void test_other_driver(void **state) {
    size_t size = 0;
    vk_cache_key other;
    (void)state;
    assert_true(vk_cache_write(path, &key, data, SIZE));
    for (size_t i = 0; i < sizeof key; i++) {
        other = key;
        ((uint8_t *)&other)[i] ^= 1;
        assert_null(vk_cache_read(path, &other, &size));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_other_driver),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
