/* SPDX-License-Identifier: MIT
 *
 * on_device.h: makes functions that are declared `inline` run on the device, for clang in CUDA and
 * HIP mode, nvcc and hipcc. The build includes it before everything else. All functions of kernels
 * are declared so, those of structs too: compilers refuse a call of any other.
 */
#define inline __attribute__((device)) inline
