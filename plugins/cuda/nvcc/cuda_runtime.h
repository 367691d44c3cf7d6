/* SPDX-License-Identifier: MIT
 *
 * cuda_runtime.h: what plugins/cuda/ptx.h needs from nvcc, under the names that clang has for it.
 * nvcc includes a header of this name before each source. The build's include path has this one
 * before the toolkit's, because the toolkit's defines functions with the names of
 * plugins/gpu/kernels/number.h.
 */
#ifndef TANDEM_CUDA_NVCC_RUNTIME_H
#define TANDEM_CUDA_NVCC_RUNTIME_H

#include <device_launch_parameters.h>

#define __nvvm_read_ptx_sreg_tid_x()    threadIdx.x
#define __nvvm_read_ptx_sreg_ntid_x()   blockDim.x
#define __nvvm_read_ptx_sreg_ctaid_x()  blockIdx.x
#define __nvvm_read_ptx_sreg_ctaid_y()  blockIdx.y
#define __nvvm_read_ptx_sreg_nctaid_x() gridDim.x

#endif
