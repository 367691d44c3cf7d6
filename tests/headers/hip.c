/* SPDX-License-Identifier: MIT
 *
 * hip.c: the numbers and functions that plugins/hip uses, against hip_runtime_api.h (header.h).
 */
#include <hip/hip_runtime_api.h>

#include "tests/headers/header.h"

#define STREAM(handle)   ((hipStream_t)(handle))
#define EVENT(handle)    ((hipEvent_t)(handle))
#define ADDRESS(address) ((hipDeviceptr_t)(uintptr_t)(address))

#define CALL_init          hipInit(flags)
#define CALL_version_get   hipDriverGetVersion(version_out)
#define CALL_device_count  hipGetDeviceCount(n_out)
#define CALL_device_get    hipDeviceGet(device_out, index)
#define CALL_device_name   hipDeviceGetName(name_out, size, device)
#define CALL_device_memory hipDeviceTotalMem(size_out, device)
#define CALL_device_attribute                                                                      \
    hipDeviceGetAttribute(value_out, (hipDeviceAttribute_t)attribute, device)
#define CALL_device_pci      hipDeviceGetPCIBusId(text_out, size, device)
#define CALL_device_uuid     hipDeviceGetUuid((hipUUID *)bytes_out, device)
#define CALL_context_retain  hipDevicePrimaryCtxRetain((hipCtx_t *)context_out, device)
#define CALL_context_release hipDevicePrimaryCtxRelease(device)
#define CALL_context_set     hipCtxSetCurrent((hipCtx_t)context)
#define CALL_memory_info     hipMemGetInfo(free_out, total_out)
#define CALL_memory_alloc    hipMalloc((void **)address_out, size)
#define CALL_memory_free     hipFree((void *)(uintptr_t)address)
#define CALL_host_alloc      hipHostMalloc(pointer_out, size, flags)
#define CALL_host_free       hipHostFree(pointer)
#define CALL_host_register   hipHostRegister(pointer, size, flags)
#define CALL_host_unregister hipHostUnregister(pointer)
#define CALL_host_address    hipHostGetDevicePointer((void **)address_out, pointer, flags)
/* Before HIP 6, src had no const. */
#define CALL_copy_in        hipMemcpyHtoDAsync(ADDRESS(dst), (void *)(uintptr_t)src, size, STREAM(stream))
#define CALL_copy_out       hipMemcpyDtoHAsync(dst, ADDRESS(src), size, STREAM(stream))
#define CALL_copy_inside    hipMemcpyDtoDAsync(ADDRESS(dst), ADDRESS(src), size, STREAM(stream))
#define CALL_fill           hipMemsetD8Async(ADDRESS(dst), byte, size, STREAM(stream))
#define CALL_stream_create  hipStreamCreateWithFlags((hipStream_t *)stream_out, flags)
#define CALL_stream_destroy hipStreamDestroy(STREAM(stream))
#define CALL_stream_sync    hipStreamSynchronize(STREAM(stream))
#define CALL_stream_wait    hipStreamWaitEvent(STREAM(stream), EVENT(event), flags)
#define CALL_event_create   hipEventCreateWithFlags((hipEvent_t *)event_out, flags)
#define CALL_event_destroy  hipEventDestroy(EVENT(event))
#define CALL_event_record   hipEventRecord(EVENT(event), STREAM(stream))
#define CALL_event_query    hipEventQuery(EVENT(event))
#define CALL_event_sync     hipEventSynchronize(EVENT(event))
#define CALL_module_load                                                                           \
    hipModuleLoadDataEx((hipModule_t *)module_out, image, n_option, (hipJitOption *)options, values)
#define CALL_module_unload hipModuleUnload((hipModule_t)module)
#define CALL_module_function                                                                       \
    hipModuleGetFunction((hipFunction_t *)function_out, (hipModule_t)module, name)
#define CALL_function_set hipFuncSetAttribute(function, (hipFuncAttribute)attribute, value)
#define CALL_launch                                                                                \
    hipModuleLaunchKernel((hipFunction_t)function, grid_x, grid_y, grid_z, block_x, block_y,       \
                          block_z, shared_size, STREAM(stream), params, extra)
#define CALL_capture_begin hipStreamBeginCapture(STREAM(stream), (hipStreamCaptureMode)mode)
#define CALL_capture_end   hipStreamEndCapture(STREAM(stream), (hipGraph_t *)graph_out)
#define CALL_graph_instantiate                                                                     \
    hipGraphInstantiateWithFlags((hipGraphExec_t *)exec_out, (hipGraph_t)graph, flags)
#define CALL_graph_destroy hipGraphDestroy((hipGraph_t)graph)
#define CALL_graph_launch  hipGraphLaunch((hipGraphExec_t)exec, STREAM(stream))
#define CALL_exec_destroy  hipGraphExecDestroy((hipGraphExec_t)exec)
#define CALL_peer_query    hipDeviceCanAccessPeer(can_out, device, peer)
/* Beside the list: driver.h. */
#define CALL_peer_by_device hipDeviceEnablePeerAccess(device, flags)
#define CALL_shared_alloc   hipExtMallocWithFlags((void **)address_out, size, flags)

RT_DRIVER_LIST(HEADER_CALL_)
HEADER_CALL_(peer_by_device, , , (int device, unsigned flags))
HEADER_CALL_(shared_alloc, , , (uint64_t * address_out, size_t size, unsigned flags))

SAME_NUMBER(RT_SUCCESS, hipSuccess);
SAME_NUMBER(RT_INVALID_VALUE, hipErrorInvalidValue);
SAME_NUMBER(RT_OUT_OF_MEMORY, hipErrorOutOfMemory);
SAME_NUMBER(RT_NO_DEVICE, hipErrorNoDevice);
SAME_NUMBER(RT_INVALID_DEVICE, hipErrorInvalidDevice);
SAME_NUMBER(RT_NO_BINARY, hipErrorNoBinaryForGpu);
SAME_NUMBER(RT_ECC, hipErrorECCNotCorrectable);
SAME_NUMBER(RT_NOT_FOUND, hipErrorNotFound);
SAME_NUMBER(RT_NOT_READY, hipErrorNotReady);
SAME_NUMBER(RT_ILLEGAL_ADDRESS, hipErrorIllegalAddress);
SAME_NUMBER(RT_LAUNCH_TIMEOUT, hipErrorLaunchTimeOut);
SAME_NUMBER(RT_FIRST_STICKY, hipErrorContextIsDestroyed);
SAME_NUMBER(RT_ALREADY_REGISTERED, hipErrorHostMemoryAlreadyRegistered);
SAME_NUMBER(RT_NOT_REGISTERED, hipErrorHostMemoryNotRegistered);
SAME_NUMBER(RT_PEER_IS_ENABLED, hipErrorPeerAccessAlreadyEnabled);
SAME_NUMBER(RT_LAUNCH_FAILED, hipErrorLaunchFailure);
SAME_NUMBER(RT_UNKNOWN, hipErrorUnknown);
SAME_NUMBER(RT_HOST_PORTABLE, hipHostMallocPortable);
SAME_NUMBER(RT_HOST_PORTABLE, hipHostRegisterPortable);
SAME_NUMBER(RT_HOST_MAPPED, hipHostMallocMapped);
SAME_NUMBER(RT_HOST_MAPPED, hipHostRegisterMapped);
SAME_NUMBER(RT_STREAM_NON_BLOCKING, hipStreamNonBlocking);
SAME_NUMBER(RT_EVENT_BLOCKING, hipEventBlockingSync);
SAME_NUMBER(RT_EVENT_NO_TIMING, hipEventDisableTiming);
SAME_NUMBER(RT_CAPTURE_THREAD_LOCAL, hipStreamCaptureModeThreadLocal);
SAME_NUMBER(RT_FUNCTION_SHARED_SIZE, hipFuncAttributeMaxDynamicSharedMemorySize);
SAME_NUMBER(sizeof(hipUUID), 16);
SAME_NUMBER(sizeof(hipDevice_t), sizeof(int));
SAME_NUMBER(sizeof(hipDeviceptr_t), sizeof(uint64_t));

#define CALL_ROW_(name, cuda, hip, params) {hip, HEADER_TEXT(CALL_##name)},
static const header_call calls[] = {RT_DRIVER_LIST(CALL_ROW_)};

static const header_attribute attributes[] = {
    {RT_GROUP_SIZE, hipDeviceAttributeMaxThreadsPerBlock},
    {RT_GRID_X, hipDeviceAttributeMaxGridDimX},
    {RT_GRID_Y, hipDeviceAttributeMaxGridDimY},
    {RT_SHARED_SIZE, hipDeviceAttributeMaxSharedMemoryPerBlock},
    {RT_WAVE_SIZE, hipDeviceAttributeWarpSize},
    {RT_UNITS, hipDeviceAttributeMultiprocessorCount},
    {RT_IS_INTEGRATED, hipDeviceAttributeIntegrated},
    {RT_MAPS_HOST, hipDeviceAttributeCanMapHostMemory},
    {RT_MAJOR, hipDeviceAttributeComputeCapabilityMajor},
    {RT_MINOR, hipDeviceAttributeComputeCapabilityMinor},
    {RT_KERNEL_TIMEOUT, hipDeviceAttributeKernelExecTimeout},
    /* hipDeviceAttributeWallClockRate, which 5.2 does not have, follows this one. */
    {RT_CLOCK_KHZ, hipDeviceAttributeFineGrainSupport + 1},
};

int main(void) {
    const int n_call = sizeof calls / sizeof calls[0];
    const header_call more[] = {
        {rt_vendor_this.peer_by_device, HEADER_TEXT(CALL_peer_by_device)},
        {rt_vendor_this.shared_alloc, HEADER_TEXT(CALL_shared_alloc)},
    };
    const int n_more = sizeof more / sizeof more[0];
    int n_bad = header_names_check(calls, n_call, NULL) + header_names_check(more, n_more, NULL);
    printf("hip_runtime_api.h of HIP %d.%d\n", HIP_VERSION_MAJOR, HIP_VERSION_MINOR);
    n_bad += header_attributes_check(attributes, sizeof attributes / sizeof attributes[0]);
    if (rt_vendor_this.host_flags != hipHostMallocCoherent) {
        printf("host_flags is not hipHostMallocCoherent\n");
        n_bad++;
    }
    if (rt_vendor_this.event_flags != hipEventReleaseToSystem) {
        printf("event_flags is not hipEventReleaseToSystem\n");
        n_bad++;
    }
    if (rt_vendor_this.shared_flags != hipDeviceMallocFinegrained) {
        printf("shared_flags is not hipDeviceMallocFinegrained\n");
        n_bad++;
    }
    const int version = HIP_VERSION_MAJOR * rt_vendor_this.version_major +
                        HIP_VERSION_MINOR * rt_vendor_this.version_minor;
    if (HIP_VERSION / rt_vendor_this.version_minor * rt_vendor_this.version_minor != version) {
        printf("HIP_VERSION is %d, not %d\n", (int)HIP_VERSION, version);
        n_bad++;
    }
    n_bad += header_symbols_check(calls, n_call, rt_vendor_this.error_text);
    n_bad += header_symbols_check(more, n_more, rt_vendor_this.error_text);
    return n_bad != 0;
}
