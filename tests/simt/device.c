/* SPDX-License-Identifier: MIT
 *
 * device.c: the devices of the emulated driver, their contexts, and which of them reaches another's
 * memory.
 */
#include <stdio.h>
#include <string.h>

#include "tests/simt/driver.h"

#ifdef SIMT_HIP
#define DEVICE_NAME "AMD device of tests/simt"
enum { VERSION = 60240000 /* 6.2 */ };
#else
#define DEVICE_NAME "NVIDIA device of tests/simt"
enum { VERSION = 12040 /* 12.4 */ };
#endif
/* Compute capability, or the processor's generation. The plugins decide by it whether there is
 * matrix hardware (has_matrices); HIP's 8 has none. */
#ifndef SIMT_MAJOR
#ifdef SIMT_HIP
#define SIMT_MAJOR 8
#else
#define SIMT_MAJOR 9
#endif
#endif
#ifndef SIMT_MINOR
#define SIMT_MINOR 0
#endif

rt_result simt_init(unsigned flags) {
    CALL(init, false);
    return flags == 0 ? RT_SUCCESS : RT_INVALID_VALUE;
}

rt_result simt_version_get(int *version_out) {
    CALL(version_get, false);
    *version_out = VERSION;
    return RT_SUCCESS;
}

rt_result simt_device_count(int *n_out) {
    CALL(device_count, false);
    *n_out = simt_settings.n_device;
    return simt_settings.n_device > 0 ? RT_SUCCESS : RT_NO_DEVICE;
}

rt_result simt_device_get(int *device_out, int index) {
    CALL(device_get, false);
    if (index < 0 || index >= simt_settings.n_device) return RT_INVALID_VALUE;
    *device_out = index;
    return RT_SUCCESS;
}

rt_result simt_device_name(char *name_out, int size, int device) {
    CALL(device_name, false);
    (void)device;
    snprintf(name_out, (size_t)size, "%s", DEVICE_NAME);
    return RT_SUCCESS;
}

rt_result simt_device_memory(size_t *size_out, int device) {
    CALL(device_memory, false);
    (void)device;
    *size_out = (size_t)simt_settings.memory;
    return RT_SUCCESS;
}

/* The vendors' numbers of attributes, written here independently of the plugins, so that a wrong
 * one in a plugin is found. */
rt_result simt_device_attribute(int *value_out, int attribute, int device) {
    CALL(device_attribute, false);
    (void)device;
#ifdef SIMT_HIP
    enum {
        GROUP = 56,
        GRID_X = 29,
        GRID_Y = 30,
        SHARED = 74,
        MAX_SHARED = -1,
        WAVE = 87,
        UNITS = 63,
        HOST = 3,
        INTEGRATED = 16,
        MAJOR = 23,
        MINOR = 61,
        TIMEOUT = 18,
        CLOCK = 10017
    };
#else
    enum {
        GROUP = 1,
        GRID_X = 5,
        GRID_Y = 6,
        SHARED = 8,
        MAX_SHARED = 97,
        WAVE = 10,
        UNITS = 16,
        HOST = 19,
        INTEGRATED = 18,
        MAJOR = 75,
        MINOR = 76,
        TIMEOUT = 17,
        CLOCK = -1
    };
#endif
    switch (attribute) {
    case GROUP: *value_out = SIMT_MAX_THREAD; break;
    case GRID_X: *value_out = (int)simt_settings.grid_x; break;
    case GRID_Y: *value_out = MAX_GRID_Y; break;
    case SHARED: *value_out = SIMT_MAX_SHARED; break;
    case MAX_SHARED: *value_out = SIMT_MORE_SHARED; break;
    case WAVE: *value_out = (int)simt_settings.wave_size; break;
    case UNITS: *value_out = 4; break;
    case HOST: *value_out = 1; break;
    case INTEGRATED: *value_out = 0; break;
    case MAJOR: *value_out = SIMT_MAJOR; break;
    case MINOR: *value_out = SIMT_MINOR; break;
    case TIMEOUT: *value_out = simt_settings.ends_kernels; break;
    case CLOCK: *value_out = 1000000; break; /* kHz */
    default: return RT_INVALID_VALUE;
    }
    return RT_SUCCESS;
}

/* Each emulated device is a card of its own, with an address and a UUID that no other has. */
#ifdef SIMT_HIP
#define SIMT_BUS 0xa0
#else
#define SIMT_BUS 0xc0
#endif

rt_result simt_device_pci(char *text_out, int size, int device) {
    CALL(device_pci, false);
    snprintf(text_out, (size_t)size, "0000:%02x:00.0", SIMT_BUS + device);
    return RT_SUCCESS;
}

rt_result simt_device_uuid(void *bytes_out, int device) {
    CALL(device_uuid, false);
    memset(bytes_out, SIMT_BUS + device, 16);
    return RT_SUCCESS;
}

rt_result simt_context_retain(void **context_out, int device) {
    CALL(context_retain, false);
    pthread_mutex_lock(&simt_mutex);
    if (simt_contexts[device].n_retain++ == 0) simt_contexts[device].sticky = RT_SUCCESS;
    pthread_mutex_unlock(&simt_mutex);
    *context_out = &simt_contexts[device];
    simt_live_add(1);
    return RT_SUCCESS;
}

rt_result simt_context_release(int device) {
    pthread_mutex_lock(&simt_mutex);
    bool has_ended = --simt_contexts[device].n_retain == 0;
    if (has_ended) simt_peer_end(device);
    if (has_ended) simt_locked_end(&simt_contexts[device]);
    pthread_mutex_unlock(&simt_mutex);
    simt_live_add(-1);
    return RT_SUCCESS;
}

rt_result simt_context_set(void *handle) {
    CALL(context_set, false);
    simt_current = handle;
    return RT_SUCCESS;
}

/* ---- Peers ----------------------------------------------------------------------------------- */

EXPORT void tandem_simt_peer(const char *mode);

void tandem_simt_peer(const char *mode) {
    simt_settings_read();
    simt_peer_set(mode);
}

rt_result simt_peer_query(int *can_out, int device, int peer) {
    CALL(peer_query, false);
    if (device < 0 || peer < 0 || device >= simt_settings.n_device ||
        peer >= simt_settings.n_device)
        return RT_INVALID_VALUE;
    *can_out = simt_peer_can(device, peer);
    return RT_SUCCESS;
}

static rt_result peer_open(int peer, unsigned flags) {
    if (flags != 0 || peer < 0 || peer >= simt_settings.n_device) return RT_INVALID_VALUE;
    if (!simt_peer_can(simt_device_of(simt_current), peer)) return PEER_UNSUPPORTED;
    return simt_peer_enable(simt_device_of(simt_current), peer) ? RT_SUCCESS : RT_PEER_IS_ENABLED;
}

#ifdef SIMT_HIP
EXPORT rt_result simt_peer_enable_device(int peer,
                                         unsigned flags) __asm__("hipDeviceEnablePeerAccess");

rt_result simt_peer_enable_device(int peer, unsigned flags) {
    CALL(peer_enable, true);
    return peer_open(peer, flags);
}
#else
EXPORT rt_result simt_peer_enable_context(void *peer,
                                          unsigned flags) __asm__("cuCtxEnablePeerAccess");

rt_result simt_peer_enable_context(void *peer, unsigned flags) {
    CALL(peer_enable, true);
    return peer != NULL ? peer_open(simt_device_of(peer), flags) : INVALID_CONTEXT;
}
#endif
