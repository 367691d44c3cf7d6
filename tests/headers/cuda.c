/* SPDX-License-Identifier: MIT
 *
 * cuda.c: the numbers and functions that plugins/cuda uses, against cuda.h (header.h).
 */
#include <cuda.h>

#include "tests/headers/header.h"

#define STREAM(handle) ((CUstream)(handle))
#define EVENT(handle)  ((CUevent)(handle))

#define CALL_init             cuInit(flags)
#define CALL_version_get      cuDriverGetVersion(version_out)
#define CALL_device_count     cuDeviceGetCount(n_out)
#define CALL_device_get       cuDeviceGet(device_out, index)
#define CALL_device_name      cuDeviceGetName(name_out, size, device)
#define CALL_device_memory    cuDeviceTotalMem(size_out, device)
#define CALL_device_attribute cuDeviceGetAttribute(value_out, (CUdevice_attribute)attribute, device)
#define CALL_device_pci       cuDeviceGetPCIBusId(text_out, size, device)
#define CALL_device_uuid      cuDeviceGetUuid((CUuuid *)bytes_out, device)
#define CALL_context_retain   cuDevicePrimaryCtxRetain((CUcontext *)context_out, device)
#define CALL_context_release  cuDevicePrimaryCtxRelease(device)
#define CALL_context_set      cuCtxSetCurrent((CUcontext)context)
#define CALL_memory_info      cuMemGetInfo(free_out, total_out)
#define CALL_memory_alloc     cuMemAlloc((CUdeviceptr *)address_out, size)
#define CALL_memory_free      cuMemFree(address)
#define CALL_host_alloc       cuMemHostAlloc(pointer_out, size, flags)
#define CALL_host_free        cuMemFreeHost(pointer)
#define CALL_host_register    cuMemHostRegister(pointer, size, flags)
#define CALL_host_unregister  cuMemHostUnregister(pointer)
#define CALL_host_address     cuMemHostGetDevicePointer((CUdeviceptr *)address_out, pointer, flags)
#define CALL_copy_in          cuMemcpyHtoDAsync(dst, src, size, STREAM(stream))
#define CALL_copy_out         cuMemcpyDtoHAsync(dst, src, size, STREAM(stream))
#define CALL_copy_inside      cuMemcpyDtoDAsync(dst, src, size, STREAM(stream))
#define CALL_fill             cuMemsetD8Async(dst, byte, size, STREAM(stream))
#define CALL_stream_create    cuStreamCreate((CUstream *)stream_out, flags)
#define CALL_stream_destroy   cuStreamDestroy(STREAM(stream))
#define CALL_stream_sync      cuStreamSynchronize(STREAM(stream))
#define CALL_stream_wait      cuStreamWaitEvent(STREAM(stream), EVENT(event), flags)
#define CALL_event_create     cuEventCreate((CUevent *)event_out, flags)
#define CALL_event_destroy    cuEventDestroy(EVENT(event))
#define CALL_event_record     cuEventRecord(EVENT(event), STREAM(stream))
#define CALL_event_query      cuEventQuery(EVENT(event))
#define CALL_event_sync       cuEventSynchronize(EVENT(event))
#define CALL_module_load                                                                           \
    cuModuleLoadDataEx((CUmodule *)module_out, image, n_option, (CUjit_option *)options, values)
#define CALL_module_unload   cuModuleUnload((CUmodule)module)
#define CALL_module_function cuModuleGetFunction((CUfunction *)function_out, (CUmodule)module, name)
#define CALL_function_set                                                                          \
    cuFuncSetAttribute((CUfunction)function, (CUfunction_attribute)attribute, value)
#define CALL_launch                                                                                \
    cuLaunchKernel((CUfunction)function, grid_x, grid_y, grid_z, block_x, block_y, block_z,        \
                   shared_size, STREAM(stream), params, extra)
#define CALL_capture_begin cuStreamBeginCapture(STREAM(stream), (CUstreamCaptureMode)mode)
#define CALL_capture_end   cuStreamEndCapture(STREAM(stream), (CUgraph *)graph_out)
#define CALL_graph_instantiate                                                                     \
    cuGraphInstantiateWithFlags((CUgraphExec *)exec_out, (CUgraph)graph, flags)
#define CALL_graph_destroy cuGraphDestroy((CUgraph)graph)
#define CALL_graph_launch  cuGraphLaunch((CUgraphExec)exec, STREAM(stream))
#define CALL_exec_destroy  cuGraphExecDestroy((CUgraphExec)exec)
#define CALL_peer_query    cuDeviceCanAccessPeer(can_out, device, peer)
/* Beside the list: driver.h. */
#define CALL_peer_by_context cuCtxEnablePeerAccess((CUcontext)context, flags)
#define CALL_launch_ex                                                                             \
    cuLaunchKernelEx((const CUlaunchConfig *)(const void *)config, (CUfunction)function, params,   \
                     extra)

RT_DRIVER_LIST(HEADER_CALL_)
HEADER_CALL_(peer_by_context, , , (void *context, unsigned flags))
HEADER_CALL_(launch_ex, , ,
             (const rt_launch_config *config, void *function, void **params, void **extra))

SAME_NUMBER(RT_SUCCESS, CUDA_SUCCESS);
SAME_NUMBER(RT_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(RT_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(RT_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME_NUMBER(RT_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME_NUMBER(RT_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_NUMBER(RT_ECC, CUDA_ERROR_ECC_UNCORRECTABLE);
#if CUDA_VERSION >= 13000
SAME_NUMBER(RT_CONTAINED, CUDA_ERROR_CONTAINED);
#endif
SAME_NUMBER(RT_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME_NUMBER(RT_NOT_READY, CUDA_ERROR_NOT_READY);
SAME_NUMBER(RT_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_NUMBER(RT_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_NUMBER(RT_FIRST_STICKY, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_NUMBER(RT_TOO_MANY_PEERS, CUDA_ERROR_TOO_MANY_PEERS);
SAME_NUMBER(RT_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME_NUMBER(RT_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME_NUMBER(RT_PEER_IS_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME_NUMBER(RT_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
#if CUDA_VERSION >= 12000
SAME_NUMBER(RT_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED);
#endif
SAME_NUMBER(RT_UNKNOWN, CUDA_ERROR_UNKNOWN);
SAME_NUMBER(RT_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME_NUMBER(RT_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME_NUMBER(RT_HOST_MAPPED, CU_MEMHOSTALLOC_DEVICEMAP);
SAME_NUMBER(RT_HOST_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME_NUMBER(RT_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(RT_EVENT_BLOCKING, CU_EVENT_BLOCKING_SYNC);
SAME_NUMBER(RT_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(RT_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_NUMBER(RT_FUNCTION_SHARED_SIZE, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(RT_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME_NUMBER(RT_JIT_ERROR_LOG_SIZE, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME_NUMBER(RT_LAUNCH_EARLY, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME_NUMBER(sizeof(rt_launch_config), sizeof(CUlaunchConfig));
SAME_NUMBER(sizeof(rt_launch_attribute), sizeof(CUlaunchAttribute));
#define SAME_PLACE(type, own, theirs_type, theirs)                                                 \
    SAME_NUMBER(offsetof(type, own), offsetof(theirs_type, theirs))
SAME_PLACE(rt_launch_config, grid_z, CUlaunchConfig, gridDimZ);
SAME_PLACE(rt_launch_config, block_x, CUlaunchConfig, blockDimX);
SAME_PLACE(rt_launch_config, block_z, CUlaunchConfig, blockDimZ);
SAME_PLACE(rt_launch_config, shared_size, CUlaunchConfig, sharedMemBytes);
SAME_PLACE(rt_launch_config, stream, CUlaunchConfig, hStream);
SAME_PLACE(rt_launch_config, attributes, CUlaunchConfig, attrs);
SAME_PLACE(rt_launch_config, n_attribute, CUlaunchConfig, numAttrs);
SAME_PLACE(rt_launch_attribute, id, CUlaunchAttribute, id);
SAME_PLACE(rt_launch_attribute, value.is_early, CUlaunchAttribute,
           value.programmaticStreamSerializationAllowed);
SAME_NUMBER(sizeof(CUuuid), 16);
SAME_NUMBER(sizeof(CUdevice), sizeof(int));
SAME_NUMBER(sizeof(CUdeviceptr), sizeof(uint64_t));

#define CALL_ROW_(name, cuda, hip, params) {cuda, HEADER_TEXT(CALL_##name)},
static const header_call calls[] = {RT_DRIVER_LIST(CALL_ROW_)};

static const header_attribute attributes[] = {
    {RT_GROUP_SIZE, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {RT_GRID_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X},
    {RT_GRID_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y},
    {RT_SHARED_SIZE, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {RT_MAX_SHARED_SIZE, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {RT_WAVE_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {RT_UNITS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {RT_IS_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {RT_MAPS_HOST, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY},
    {RT_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {RT_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {RT_KERNEL_TIMEOUT, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT},
};

int main(void) {
    const int n_call = sizeof calls / sizeof calls[0];
    /* CUDA 13's header has cuDeviceGetUuid_v2, which tells the parts of a divided device apart. */
    const header_call more[] = {{rt_vendor_this.peer_by_context, HEADER_TEXT(CALL_peer_by_context)},
                                {rt_vendor_this.launch_ex, HEADER_TEXT(CALL_launch_ex)}};
    int n_bad =
        header_names_check(calls, n_call, "cuDeviceGetUuid") + header_names_check(more, 2, NULL);
    printf("cuda.h of CUDA %d.%d\n", CUDA_VERSION / rt_vendor_this.version_major,
           CUDA_VERSION % rt_vendor_this.version_major / rt_vendor_this.version_minor);
    n_bad += header_attributes_check(attributes, sizeof attributes / sizeof attributes[0]);
    n_bad += header_symbols_check(calls, n_call, rt_vendor_this.error_name);
    n_bad += header_symbols_check(more, 2, rt_vendor_this.error_name);
    return n_bad != 0;
}
