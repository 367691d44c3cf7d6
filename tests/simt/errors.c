/* SPDX-License-Identifier: MIT
 *
 * errors.c: names of the emulated driver's errors, and which of them lose a device.
 */
#include "tests/simt/errors.h"

EXPORT rt_result simt_error_name(int error,
                                 const char **name_out) __asm__(SYMBOL("cuGetErrorName",
                                                                       "hipDrvGetErrorName"));

rt_result simt_error_name(int error, const char **name_out) {
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {RT_INVALID_VALUE, "SIMT_INVALID_VALUE"},  {RT_OUT_OF_MEMORY, "SIMT_OUT_OF_MEMORY"},
        {INVALID_CONTEXT, "SIMT_INVALID_CONTEXT"}, {INVALID_HANDLE, "SIMT_INVALID_HANDLE"},
        {RT_NOT_FOUND, "SIMT_NOT_FOUND"},          {RT_ILLEGAL_ADDRESS, "SIMT_ILLEGAL_ADDRESS"},
        {RT_LAUNCH_FAILED, "SIMT_LAUNCH_FAILED"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].number == error) {
            *name_out = names[i].name;
            return RT_SUCCESS;
        }
    return RT_INVALID_VALUE;
}

/* As in plugins/gpu/rt/driver.c, which is not linked here. */
bool rt_result_is_loss(rt_result result) {
    return result == RT_ECC || result == RT_ILLEGAL_ADDRESS || result == RT_LAUNCH_TIMEOUT ||
           result == RT_LAUNCH_FAILED || result == RT_UNKNOWN;
}
