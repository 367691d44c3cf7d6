/* SPDX-License-Identifier: MIT
 *
 * on_device.h: makes all functions that follow run on the device too, for clang in CUDA or HIP
 * mode. The build includes it before everything else.
 */
#pragma clang force_cuda_host_device begin
