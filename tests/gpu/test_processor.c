/* SPDX-License-Identifier: MIT
 *
 * test_processor.c: the name of an AMD processor (plugins/hip/processor.h), in made folders of the
 * kernel's description: CPUs, equal cards, damaged files, none; and its UUID.
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

#include "plugins/hip/processor.h"

enum { MAX_NODE = 8 };

static char folder[] = "/tmp/test_processor_XXXXXX";
static int n_node;

static void path_print(char *path, size_t size, int node, const char *file) {
    snprintf(path, size, "%s/%d%s", folder, node, file);
}

static void node_make(const char *properties) {
    char path[64];
    path_print(path, sizeof path, n_node, "");
    assert_int_equal(mkdir(path, 0700), 0);
    path_print(path, sizeof path, n_node++, "/properties");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(properties, file);
    fclose(file);
}

static int nodes_begin(void **state) {
    (void)state;
    strcpy(folder, "/tmp/test_processor_XXXXXX");
    n_node = 0;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int nodes_end(void **state) {
    char path[64];
    (void)state;
    for (int i = 0; i < n_node; i++) {
        path_print(path, sizeof path, i, "/properties");
        unlink(path);
        path_print(path, sizeof path, i, "");
        rmdir(path);
    }
    return rmdir(folder);
}

static void is(const char *pci_address, const char *expected) {
    char name[16] = "unchanged";
    bool is_found = hip_processor_find(folder, pci_address, name);
    assert_string_equal(is_found ? name : "none", expected);
    if (!is_found) assert_string_equal(name, "unchanged");
}

/* c4:00.0 is 0xc400 = 50176, 03:00.0 is 768, 03:00.1 is 769. */
static void test_named(void **state) {
    (void)state;
    node_make("cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\nlocation_id 0\ndomain 0\n");
    node_make("cpu_cores_count 0\nsimd_count 80\ngfx_target_version 110501\nvendor_id 4098\n"
              "location_id 50176\ndomain 0\n");
    node_make("gfx_target_version 90010\nlocation_id 768\ndomain 1\n");
    node_make("gfx_target_version 100302\nlocation_id 768\n");
    node_make("gfx_target_version 100302\nlocation_id 769\n");
    is("0000:c4:00.0", "gfx1151");
    is("0001:03:00.0", "gfx90a");
    is("0000:03:00.0", "gfx1032"); /* an older kernel, which does not say the domain */
    is("0000:03:00.1", "gfx1032");
    is("0000:00:00.0", "none"); /* the CPU */
    is("0000:05:00.0", "none");
}

static void test_bad(void **state) {
    (void)state;
    is("0000:03:00.0", "none");
    node_make("");
    node_make("gfx_target_version big\nlocation_id 768\n");
    node_make("gfx_target_version 99\nlocation_id 768\n");
    is("0000:03:00.0", "none");
    node_make("gfx_target_version 4294967295\nlocation_id 768\n"); /* cut to what has room */
    is("0000:03:00.0", "gfx496485f");
    is("", "none");
    is("here", "none");
    assert_false(hip_processor_find("/nonexistent", "0000:03:00.0", (char[16]){0}));
}

/* As Mesa's ac_compute_device_uuid: words of domain, bus, slot and function. */
static void test_uuid(void **state) {
    const uint32_t expected[] = {1, 0xc4, 0x1f, 7};
    uint8_t uuid[16] = {0}, other[16] = {0};
    (void)state;
    assert_true(hip_uuid_make("0001:c4:1f.7", uuid));
    assert_memory_equal(uuid, expected, sizeof uuid);
    assert_true(hip_uuid_make("0001:c5:1f.7", other));
    assert_memory_not_equal(uuid, other, sizeof uuid);
    assert_false(hip_uuid_make("", other));
    assert_false(hip_uuid_make("0001:c4", other));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_named, nodes_begin, nodes_end),
        cmocka_unit_test_setup_teardown(test_bad, nodes_begin, nodes_end),
        cmocka_unit_test(test_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
