/* SPDX-License-Identifier: MIT
 *
 * driver.c: see driver.h.
 */
#include "plugins/gpu/rt/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *cuda, *hip;
} symbols[] = {
#define RT_FN_SYMBOL_(name, cuda, hip, params) {cuda, hip},
    RT_DRIVER_LIST(RT_FN_SYMBOL_)
#undef RT_FN_SYMBOL_
};

const char *rt_symbol(int fn) {
    return rt_vendor_this.is_hip ? symbols[fn].hip : symbols[fn].cuda;
}

/* The address of a symbol, NULL where there is none. ISO C does not convert a pointer to an object
 * to a pointer to a function: the bytes are copied. */
static void function_get(void *library, const char *symbol, void *function_out) {
    void *found = dlsym(library, symbol);
    memcpy(function_out, &found, sizeof found);
}

static void *library_open(const char *path, tdm_error *err) {
    const rt_vendor *vendor = &rt_vendor_this;
    void *library = NULL;
    if (path != NULL && path[0] != '\0') {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) {
            const char *why = dlerror();
            tdm_fail(err, TDM_UNAVAILABLE, "driver = %s cannot be opened: %s", path,
                     why != NULL ? why : "no reason given");
        }
        return library;
    }
    for (int i = 0; library == NULL && vendor->libraries[i] != NULL; i++)
        library = dlopen(vendor->libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        tdm_fail(err, TDM_UNAVAILABLE, "no %s driver (%s)", vendor->api, vendor->libraries[0]);
    return library;
}

/* Checks that the library is a driver of this vendor: the option `driver` may name any library. */
static tdm_status library_check(void *library, tdm_error *err) {
    const bool is_hip = rt_vendor_this.is_hip;
    const char *other = is_hip ? symbols[RT_FN_init].cuda : symbols[RT_FN_init].hip;
    if (dlsym(library, rt_symbol(RT_FN_init)) != NULL) return TDM_OK;
    if (dlsym(library, other) != NULL)
        return tdm_fail(err, TDM_UNAVAILABLE, "the library is a driver of %s, not of %s",
                        is_hip ? "CUDA" : "HIP", rt_vendor_this.api);
    return tdm_fail(err, TDM_UNAVAILABLE, "the library is not a driver of %s: it has no %s",
                    rt_vendor_this.api, rt_symbol(RT_FN_init));
}

static tdm_status functions_get(rt_driver *d, tdm_error *err) {
#define RT_FN_GET_(name, cuda, hip, params)                                                        \
    function_get(d->library, rt_symbol(RT_FN_##name), &d->name);                                   \
    if (d->name == NULL)                                                                           \
        return tdm_fail(err, TDM_UNAVAILABLE, "the %s driver has no %s: it is too old",            \
                        rt_vendor_this.api, rt_symbol(RT_FN_##name));
    RT_DRIVER_LIST(RT_FN_GET_)
#undef RT_FN_GET_
    const rt_vendor *vendor = &rt_vendor_this;
    if (vendor->error_name != NULL) function_get(d->library, vendor->error_name, &d->error_name);
    if (vendor->error_text != NULL) function_get(d->library, vendor->error_text, &d->error_text);
    if (vendor->peer_by_context != NULL)
        function_get(d->library, vendor->peer_by_context, &d->peer_by_context);
    if (vendor->peer_by_device != NULL)
        function_get(d->library, vendor->peer_by_device, &d->peer_by_device);
    if (vendor->shared_alloc != NULL)
        function_get(d->library, vendor->shared_alloc, &d->shared_alloc);
    if (vendor->function_load != NULL)
        function_get(d->library, vendor->function_load, &d->function_load);
    if (vendor->launch_ex != NULL) function_get(d->library, vendor->launch_ex, &d->launch_ex);
    return TDM_OK;
}

tdm_status rt_driver_open(const char *path, rt_driver *driver_out, tdm_error *err) {
    rt_driver d = {.library = library_open(path, err)};
    char text[32];
    if (d.library == NULL) return TDM_UNAVAILABLE;
    d.is_emulated = dlsym(d.library, "tandem_simt_version") != NULL; /* rt_driver_close reads it */
    tdm_status status = library_check(d.library, err);
    if (status == TDM_OK) status = functions_get(&d, err);
    if (status == TDM_OK) {
        /* HIP returns RT_INVALID_DEVICE where there is no device. */
        rt_result result = d.init(0);
        if (result == RT_NO_DEVICE || result == RT_INVALID_DEVICE)
            status = rt_driver_no_device(err);
        else if (result != RT_SUCCESS)
            status = tdm_fail(err, TDM_UNAVAILABLE, "%s failed: %s", rt_symbol(RT_FN_init),
                              rt_result_name(&d, result, text));
    }
    if (status != TDM_OK) {
        rt_driver_close(&d);
        return status;
    }
    if (d.version_get(&d.version) != RT_SUCCESS) d.version = 0;
    *driver_out = d;
    return TDM_OK;
}

void rt_driver_close(rt_driver *driver) {
    /* A vendor's library has threads and data of the process and cannot be unloaded safely. */
    if (driver->library != NULL && driver->is_emulated) dlclose(driver->library);
    driver->library = NULL;
}

tdm_status rt_driver_no_device(tdm_error *err) {
    return tdm_fail(err, TDM_UNAVAILABLE, "the %s driver found no device: %s", rt_vendor_this.api,
                    rt_vendor_this.no_device);
}

const char *rt_result_name(const rt_driver *driver, rt_result result, char text[32]) {
    const char *name = NULL;
    if (driver->error_name != NULL && driver->error_name(result, &name) == RT_SUCCESS &&
        name != NULL)
        return name;
    if (driver->error_text != NULL && (name = driver->error_text(result)) != NULL) return name;
    snprintf(text, 32, "error %d", result);
    return text;
}

bool rt_result_is_loss(rt_result result) {
    return result == RT_ECC || result == RT_CONTAINED || result == RT_ILLEGAL_ADDRESS ||
           result == RT_LAUNCH_TIMEOUT ||
           (result >= RT_FIRST_STICKY && result <= RT_LAUNCH_FAILED &&
            result != RT_TOO_MANY_PEERS && result != RT_ALREADY_REGISTERED &&
            result != RT_NOT_REGISTERED) ||
           result == RT_CLIENT_TERMINATED || result == RT_UNKNOWN;
}

tdm_status rt_result_status(rt_result result) {
    if (result == RT_OUT_OF_MEMORY) return TDM_RESOURCE_EXHAUSTED;
    if (rt_result_is_loss(result)) return TDM_UNAVAILABLE;
    return TDM_INTERNAL;
}
