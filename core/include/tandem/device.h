/* SPDX-License-Identifier: MIT
 *
 * device.h: finding devices, opening them, and what they can do.
 *
 * Enumeration is quiet and stable: it neither opens a device nor prints, and gives the same list in
 * the same order while the machine and the options do not change. It may load a driver, which may
 * start threads of its own and keep memory; it makes no context on a device. No driver or no device
 * means a count of zero and a readable reason, not a failure.
 *
 * A lost device (reset, unplugged, hung) gives TDM_UNAVAILABLE from every call that needs it, with
 * a message that names it, and fails the signals of all work it had accepted. Freeing, destroying
 * and closing still work and do not wait for the device. Opening it again may succeed.
 */
#ifndef TANDEM_DEVICE_H
#define TANDEM_DEVICE_H

#include "tandem/option.h"
#include "tandem/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tdm_instance tdm_instance; /* the plugin's, one for each host that loaded it */

enum {
    TDM_DEVICE_IS_HOST = 1u << 0,       /* its memory is the host's, its arithmetic the CPU's */
    TDM_DEVICE_IS_GROUP = 1u << 1,      /* made of other devices: the split hooks are present */
    TDM_DEVICE_IS_INTEGRATED = 1u << 2, /* shares the host's memory without being the CPU */
    TDM_DEVICE_HAS_EXCHANGE = 1u << 3,  /* EXCHANGE nodes run inside its plans */
    TDM_DEVICE_WAITS_NATIVE = 1u << 4,  /* waits on host semaphores without a host thread */
    TDM_DEVICE_HOLDS_TEMPS = 1u << 5,   /* temporaries lie in the scratch of its queues (queue.h):
                                           the slots of TEMP values need no memory and are not read.
                                           The usual way for a device with queues; one that fuses
                                           nodes across temporaries must have it */
    TDM_DEVICE_HAS_HOST_KV = 1u << 6,   /* keeps caches with TDM_KV_IN_HOST in the host's memory and
                                           works on them there: they take none of the device's
                                           memory. No effect where that is the host's */
    /* All devices of the plugin with this description and these flags compute equal bits from equal
     * bits: for a node of equal parameters, types and shapes, whatever graph it is in, in every
     * run. */
    TDM_DEVICE_IS_REPRODUCIBLE = 1u << 7
};

/* Texts are NUL-terminated, empty where unknown. */
typedef struct tdm_device_info {
    size_t struct_size;
    char name[32];         /* unique within the plugin and stable: "cpu0" */
    char description[128]; /* for people: "AMD EPYC 9355" */
    char vendor[32];
    char pci_address[16];  /* "0000:01:00.0" */
    uint64_t memory_total; /* bytes; 0 = unknown */
    uint64_t memory_free;  /* bytes at the time of the call; 0 = unknown */
    uint64_t bandwidth;    /* of its memory, bytes per second; 0 = unknown */
    uint64_t buffer_align; /* of binding offsets, a power of two; 0 = 1 */
    uint64_t max_buffer;   /* largest single buffer, bytes; 0 = no limit but memory */
    uint32_t flags;        /* TDM_DEVICE_* */
    int32_t n_thread;      /* of a host device: threads it would use by default; else 0 */
    uint64_t import_align; /* of address and size of what import_host takes, a power of two; 0 =
                              64 */
    uint64_t exchange_wait_max_ns; /* how long a kernel of an EXCHANGE may wait for other members:
                                      less than the time after which the driver resets the device; 0
                                      = not at all; TDM_WAIT_FOREVER = without limit */
    uint64_t upload_piece; /* bytes of a tensor_upload at which loading is fastest; 0 = any serve */
    uint8_t uuid[16];      /* of the physical device, the same in every plugin and process (as in
                              VkPhysicalDeviceIDProperties.deviceUUID); meaningful where has_uuid */
    int32_t has_uuid;      /* 0 or 1 */
    int32_t prompt_step;   /* tokens of a step in which long prompts are computed fastest; 0 =
                              unknown */
} tdm_device_info;

/* What a device can do at most, as measured on it: limits of the machine, not of the kernels, which
 * are compared with them. A multiply-add is two operations; 0 = unknown. Of a group: the sums of
 * its members, measured at the same time. */
typedef struct tdm_device_limits {
    size_t struct_size;
    double read_bandwidth; /* bytes per second, streaming from its memory what no cache holds */
    double int8_peak;      /* operations per second of 8-bit integers added up in wider ones, in the
                              fastest form that the device may use */
    double f32_peak;       /* operations per second of f32 */
    char arithmetic[32];   /* NUL-terminated name of that form: "AVX-512 VNNI"; empty = unknown */
} tdm_device_limits;

/* Which device, and the options of its section. The same options are given to count, describe and
 * open, since some of them decide which devices exist. */
typedef struct tdm_device_params {
    size_t struct_size;
    int32_t index; /* as enumerated with these options; of open: count and describe ignore it */
    int32_t n_option;
    const tdm_option *options; /* read during the call only */
} tdm_device_params;

typedef struct tdm_device_ops {
    size_t struct_size;

    /* Stores the number of devices that exist with the options of `params` (NULL = none); where it
     * is 0, *err (nullable) receives the reason while the call still returns TDM_OK. Options that
     * enumeration does not depend on are ignored, even invalid ones. Required. [any-thread] */
    tdm_status (*count)(tdm_instance *instance, const tdm_device_params *params, int32_t *n_out,
                        tdm_error *err);

    /* Describes device `index` without opening it, with options as in count; fills *info_out as far
     * as its struct_size goes. TDM_NOT_FOUND past the end. Required. [any-thread] */
    tdm_status (*describe)(tdm_instance *instance, int32_t index, const tdm_device_params *params,
                           tdm_device_info *info_out, tdm_error *err);

    /* Opens a device: the first call that may make a context on it. One device may be opened
     * several times, with different options; each is a device of its own. Released with close,
     * which leaves no thread and no memory of the plugin's behind; what the driver keeps for the
     * process does not grow from the second open on. Required. [setup] */
    tdm_status (*open)(tdm_instance *instance, const tdm_device_params *params,
                       tdm_device **device_out, tdm_error *err);

    /* Closes; NULL is a no-op. Its buffers, plans and queues have been released. Required.
     * [setup] */
    void (*close)(tdm_device *device);

    /* What an open device is; memory_free is current. Optional: describe's answer stands.
     * [any-thread] */
    tdm_status (*get_info)(tdm_device *device, tdm_device_info *info_out, tdm_error *err);

    /* TDM_OK if the device runs this node with these types and shapes, TDM_UNSUPPORTED with the
     * reason if not. Pure: reads the graph alone, allocates nothing. True means that
     * graph_prepare will not refuse it. Required. [any-thread] */
    tdm_status (*supports_op)(tdm_device *device, const tdm_graph *graph, int32_t node,
                              tdm_error *err);

    /* Answers for a whole graph at once: supported_out[n_node] gets 1 or 0. Optional.
     * [any-thread] */
    tdm_status (*graph_supports)(tdm_device *device, const tdm_graph *graph, uint8_t *supported_out,
                                 tdm_error *err);

    /* Runs a whole verified graph and returns when it is done. Required of a device without
     * tdm_queue_ops. One call at a time. [queue-serial] */
    tdm_status (*graph_compute_sync)(tdm_device *device, const tdm_graph *graph,
                                     const tdm_binding *bindings, int32_t n_binding,
                                     tdm_error *err);

    /* Measures the device's present limits, and fills *limits_out as far as its struct_size goes.
     * A call takes some tenths of a second, so that a benchmark can repeat it between its own runs;
     * the first call may take longer. Memory that it needs may be kept until close. It uses the
     * whole device and is right only if nothing else uses it: the host calls it only when the user
     * requests the numbers. A limit that cannot be measured (too little memory, or a machine so
     * busy that the whole device never works at once) is 0 and no failure. Optional: without it all
     * limits are unknown. [setup] */
    tdm_status (*measure_limits)(tdm_device *device, tdm_device_limits *limits_out, tdm_error *err);
} tdm_device_ops;

#ifdef __cplusplus
}
#endif

#endif
