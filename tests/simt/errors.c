/* SPDX-License-Identifier: MIT
 *
 * errors.c: names of the emulated driver's errors, and which of them lose a device.
 */
#include "tests/simt/errors.h"

static const char *error_name(int error) {
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {RT_INVALID_VALUE, "SIMT_INVALID_VALUE"},  {RT_OUT_OF_MEMORY, "SIMT_OUT_OF_MEMORY"},
        {INVALID_CONTEXT, "SIMT_INVALID_CONTEXT"}, {INVALID_HANDLE, "SIMT_INVALID_HANDLE"},
        {RT_NOT_FOUND, "SIMT_NOT_FOUND"},          {RT_ILLEGAL_ADDRESS, "SIMT_ILLEGAL_ADDRESS"},
        {RT_LAUNCH_FAILED, "SIMT_LAUNCH_FAILED"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].number == error) return names[i].name;
    return NULL;
}

#ifdef SIMT_HIP
EXPORT const char *hipGetErrorName(int error);
const char *hipGetErrorName(int error) {
    return error_name(error);
}
#else
EXPORT rt_result cuGetErrorName(int error, const char **name_out);
rt_result cuGetErrorName(int error, const char **name_out) {
    *name_out = error_name(error);
    return *name_out != NULL ? RT_SUCCESS : RT_INVALID_VALUE;
}
#endif

/* As in plugins/gpu/rt/driver.c, which is not linked here. */
bool rt_result_is_loss(rt_result result) {
    return result == RT_ECC || result == RT_ILLEGAL_ADDRESS || result == RT_LAUNCH_TIMEOUT ||
           result == RT_LAUNCH_FAILED || result == RT_UNKNOWN;
}
