/* SPDX-License-Identifier: MIT
 *
 * driver.c: opens the Vulkan loader and finds its functions.
 */
#include "plugins/vulkan/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#define LIBRARY "libvulkan.so.1"

static tdm_status globals_find(const vk_driver *driver, PFN_vkCreateInstance *create_out,
                               PFN_vkEnumerateInstanceVersion *version_out, tdm_error *err) {
    *create_out = (PFN_vkCreateInstance)driver->GetInstanceProcAddr(NULL, "vkCreateInstance");
    *version_out = (PFN_vkEnumerateInstanceVersion)driver->GetInstanceProcAddr(
        NULL, "vkEnumerateInstanceVersion");
    if (*create_out != NULL && *version_out != NULL) return TDM_OK;
    return tdm_fail(err, TDM_UNAVAILABLE, "vulkan: " LIBRARY " is older than Vulkan 1.1");
}

static tdm_status instance_functions_find(vk_driver *driver, tdm_error *err) {
    const char *missing = NULL;
#define FIND(name)                                                                                 \
    driver->fn.name = (PFN_vk##name)driver->GetInstanceProcAddr(driver->instance, "vk" #name);     \
    if (driver->fn.name == NULL) missing = "vk" #name;
    VK_INSTANCE_LIST(FIND)
#undef FIND
    if (missing == NULL) return TDM_OK;
    return tdm_fail(err, TDM_UNAVAILABLE, "vulkan: " LIBRARY " has no %s", missing);
}

static tdm_status instance_create(vk_driver *driver, tdm_error *err) {
    PFN_vkCreateInstance create;
    PFN_vkEnumerateInstanceVersion get_version;
    tdm_status status = globals_find(driver, &create, &get_version, err);
    if (status != TDM_OK) return status;
    if (get_version(&driver->api_version) != VK_SUCCESS || driver->api_version < VK_API_VERSION_1_2)
        return tdm_fail(err, TDM_UNAVAILABLE, "vulkan: " LIBRARY " is version %u.%u; 1.2 is needed",
                        VK_API_VERSION_MAJOR(driver->api_version),
                        VK_API_VERSION_MINOR(driver->api_version));
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .pApplicationName = "tandem",
                                           .pEngineName = "tandem",
                                           .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
    VkResult result = create(&info, NULL, &driver->instance);
    char text[32];
    if (result != VK_SUCCESS) driver->instance = NULL;
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
        return tdm_fail(err, TDM_UNAVAILABLE,
                        "no Vulkan driver is installed (Debian: mesa-vulkan-drivers, or the "
                        "driver of the card's maker)");
    if (result != VK_SUCCESS)
        return tdm_fail(err, TDM_UNAVAILABLE, "vulkan: vkCreateInstance failed: %s",
                        vk_result_name(result, text));
    return instance_functions_find(driver, err);
}

tdm_status vk_driver_open(vk_driver *driver, tdm_error *err) {
    memset(driver, 0, sizeof *driver);
    driver->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (driver->library == NULL)
        return tdm_fail(err, TDM_UNAVAILABLE,
                        "no Vulkan on this machine: " LIBRARY
                        " cannot be opened (Debian: libvulkan1)");
    /* POSIX gives functions as void pointers. */
    *(void **)&driver->GetInstanceProcAddr = dlsym(driver->library, "vkGetInstanceProcAddr");
    tdm_status status =
        driver->GetInstanceProcAddr != NULL
            ? instance_create(driver, err)
            : tdm_fail(err, TDM_UNAVAILABLE, "vulkan: " LIBRARY " has no vkGetInstanceProcAddr");
    if (status != TDM_OK) vk_driver_close(driver);
    return status;
}

/* ---- Under a sanitizer ----------------------------------------------------------------------- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VK_HAS_LEAK_CHECK 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define VK_HAS_LEAK_CHECK 1
#endif

#ifdef VK_HAS_LEAK_CHECK
enum { MAX_KEPT = 32, MAX_PATH_LEN = 256 };

typedef struct kept_list {
    char paths[MAX_KEPT][MAX_PATH_LEN];
    int n;
} kept_list;

static int path_collect(struct dl_phdr_info *info, size_t size, void *arg) {
    kept_list *list = arg;
    (void)size;
    if (list->n < MAX_KEPT && strstr(info->dlpi_name, "libvulkan") != NULL)
        snprintf(list->paths[list->n++], MAX_PATH_LEN, "%s", info->dlpi_name);
    return 0;
}

/* Keeps drivers loaded until the process ends. They have memory that only their own variables refer
 * to; once they are unloaded, a leak checker reports it, and cannot name the driver. */
static void drivers_keep(void) {
    static kept_list list;
    list.n = 0;
    dl_iterate_phdr(path_collect, &list);
    for (int i = 0; i < list.n; i++)
        (void)dlopen(list.paths[i], RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}
#else
static void drivers_keep(void) {}
#endif

void vk_driver_close(vk_driver *driver) {
    if (driver->instance != NULL) drivers_keep();
    if (driver->instance != NULL && driver->fn.DestroyInstance != NULL)
        driver->fn.DestroyInstance(driver->instance, NULL);
    if (driver->library != NULL) dlclose(driver->library);
    memset(driver, 0, sizeof *driver);
}

tdm_status vk_device_fn_load(const vk_driver *driver, VkDevice device, bool has_import,
                             vk_device_fn *fn_out, tdm_error *err) {
    const char *missing = NULL;
    memset(fn_out, 0, sizeof *fn_out);
#define FIND(name)                                                                                 \
    fn_out->name = (PFN_vk##name)driver->fn.GetDeviceProcAddr(device, "vk" #name);                 \
    if (fn_out->name == NULL) missing = "vk" #name;
    VK_DEVICE_LIST(FIND)
    if (has_import) {
        FIND(GetMemoryHostPointerPropertiesEXT)
    }
#undef FIND
    if (missing == NULL) return TDM_OK;
    return tdm_fail(err, TDM_UNAVAILABLE, "vulkan: the driver has no %s", missing);
}

const char *vk_result_name(VkResult result, char text[32]) {
    switch (result) {
#define NAME(name)                                                                                 \
    case name: return #name;
        NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
        NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        NAME(VK_ERROR_INITIALIZATION_FAILED)
        NAME(VK_ERROR_DEVICE_LOST)
        NAME(VK_ERROR_MEMORY_MAP_FAILED)
        NAME(VK_ERROR_LAYER_NOT_PRESENT)
        NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
        NAME(VK_ERROR_FEATURE_NOT_PRESENT)
        NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
        NAME(VK_ERROR_TOO_MANY_OBJECTS)
        NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE)
        NAME(VK_ERROR_UNKNOWN)
#undef NAME
    default: snprintf(text, 32, "VkResult %d", (int)result); return text;
    }
}

tdm_status vk_result_status(VkResult result) {
    switch (result) {
    case VK_SUCCESS: return TDM_OK;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_MEMORY_MAP_FAILED: return TDM_RESOURCE_EXHAUSTED;
    case VK_ERROR_DEVICE_LOST:
    case VK_ERROR_INITIALIZATION_FAILED: return TDM_UNAVAILABLE;
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_INVALID_EXTERNAL_HANDLE: return TDM_UNSUPPORTED;
    default: return TDM_INTERNAL;
    }
}
