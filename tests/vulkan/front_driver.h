/* SPDX-License-Identifier: MIT
 *
 * front_driver.h: what the Vulkan loaders of these tests share that stand in front of the real one
 * (compile_driver.c, crash_driver.c, matrix_driver.c). The includer has a struct `real` with the
 * real functions, and a function my_NAME for each that it replaces.
 */
#ifndef TANDEM_TESTS_VULKAN_FRONT_DRIVER_H
#define TANDEM_TESTS_VULKAN_FRONT_DRIVER_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

#define EXPORT __attribute__((visibility("default")))

/* Opens the real loader, whose path is in the environment variable. NULL = there is none. */
static inline PFN_vkGetInstanceProcAddr front_open(const char *variable) {
    PFN_vkGetInstanceProcAddr get = NULL;
    const char *path = getenv(variable);
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library != NULL) *(void **)&get = dlsym(library, "vkGetInstanceProcAddr");
    return get;
}

/* In a function that finds functions by `name`, with the real one in `found`: keeps that, and
 * returns my_FN, where the name is FN's. */
#define FRONT_WRAP(fn)                                                                             \
    if (found != NULL && strcmp(name, "vk" #fn) == 0) {                                            \
        real.fn = (PFN_vk##fn)found;                                                               \
        return (PFN_vkVoidFunction)my_##fn;                                                        \
    }

#endif
