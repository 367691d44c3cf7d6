/* SPDX-License-Identifier: MIT
 *
 * test_module.c: which of the images of a kernel is loaded, and what is said where none is, on a
 * driver that is a few functions of this file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugins/gpu/rt/card.h"
#include "plugins/gpu/rt/rt.h"

/* ---- The vendor, its images and its driver --------------------------------------------------- */

enum { N_IMAGE = 2 };

static const char bytes[N_IMAGE];
const rt_image rt_images[] = {{"fetch", "old", &bytes[0], 1}, {"fetch", "new", &bytes[1], 1}, {0}};

static void target_print(const char *pci_address, int32_t major, int32_t minor, char text[16]) {
    (void)pci_address, (void)major, (void)minor;
    snprintf(text, 16, "own");
}

const rt_vendor rt_vendor_this = {
    .plugin = "test", .api = "TEST", .targets_option = "-Dtargets", .target_print = target_print};

static rt_result results[N_IMAGE]; /* of module_load, for each image */
static int n_load;                 /* calls of it */

static rt_result context_set(void *context) {
    (void)context;
    return RT_SUCCESS;
}

static rt_result module_load(void **module_out, const void *image, unsigned n_option, int *options,
                             void **values) {
    (void)n_option, (void)options, (void)values;
    n_load++;
    *module_out = &n_load;
    return results[(const char *)image - bytes];
}

static rt_result module_function(void **function_out, void *module, const char *name) {
    assert_string_equal(name, "fetch");
    *function_out = module;
    return RT_SUCCESS;
}

static rt_result module_unload(void *module) {
    (void)module;
    return RT_SUCCESS;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Opens and closes the modules of a device whose driver gives these results. *error_out: the
 * failure. */
static tdm_status check(rt_result old, rt_result new, bool *is_lost_out, tdm_error *error_out) {
    static const rt_facts facts = {.name = "card"};
    rt_source source = {.driver = {.context_set = context_set,
                                   .module_load = module_load,
                                   .module_function = module_function,
                                   .module_unload = module_unload}};
    rt_device device = {.source = &source, .fn = &source.driver, .facts = &facts, .name = "test0"};
    results[0] = old;
    results[1] = new;
    n_load = 0;
    assert_int_equal(rt_card_open(&device, NULL), TDM_OK);
    assert_int_equal(rt_modules_create(&device, NULL), TDM_OK);
    tdm_status status = rt_modules_check(&device, error_out);
    rt_modules_destroy(&device);
    rt_card_close(&device);
    *is_lost_out = atomic_load(&device.is_lost);
    return status;
}

static void first_that_loads(void **state) {
    bool is_lost;
    tdm_error err = {0};
    (void)state;
    assert_int_equal(check(RT_SUCCESS, RT_NO_BINARY, &is_lost, &err), TDM_OK);
    assert_int_equal(n_load, 1);
    assert_int_equal(check(RT_NO_BINARY, RT_SUCCESS, &is_lost, &err), TDM_OK);
    assert_int_equal(n_load, 2);
}

static void none_loads(void **state) {
    bool is_lost;
    tdm_error err = {0};
    (void)state;
    assert_int_equal(check(RT_NO_BINARY, RT_NO_BINARY, &is_lost, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "kernels for old new, and this device is own"));
    assert_false(is_lost);
}

/* The image of the device's own target does not fit the memory. That the driver does not take the
 * others does not hide it. */
static void no_memory(void **state) {
    bool is_lost;
    tdm_error err = {0};
    (void)state;
    assert_int_equal(check(RT_OUT_OF_MEMORY, RT_NO_BINARY, &is_lost, &err), TDM_RESOURCE_EXHAUSTED);
    if (strstr(err.message, "error 2") == NULL || strstr(err.message, "-Dtargets") != NULL)
        fail_msg("%s", err.message);
    assert_false(is_lost);
}

/* Results after which the process has to be started again. */
static void device_lost(void **state) {
    static const rt_result losses[] = {RT_ECC,           RT_CONTAINED,         RT_ILLEGAL_ADDRESS,
                                       RT_LAUNCH_FAILED, RT_CLIENT_TERMINATED, RT_UNKNOWN};
    bool is_lost;
    tdm_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        assert_int_equal(check(losses[i], RT_SUCCESS, &is_lost, &err), TDM_UNAVAILABLE);
        assert_int_equal(n_load, 1);
        assert_true(is_lost);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_that_loads),
                                       cmocka_unit_test(none_loads), cmocka_unit_test(no_memory),
                                       cmocka_unit_test(device_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
