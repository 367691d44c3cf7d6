/* SPDX-License-Identifier: MIT
 *
 * null_plugin.h: handles of the null plugin, a small and correct backend in the host's memory. The
 * environment variable TANDEM_TEST_FAULT makes it wrong in one way: tests/conform/test_faults.c
 * lists the faults, each with the check of the conformance suite that must find it. Apart from the
 * fake plugin (tests/plugins/fakes), which must have no queues.
 */
#ifndef TANDEM_TESTS_NULL_PLUGIN_H
#define TANDEM_TESTS_NULL_PLUGIN_H

#include "tandem/plugin.h"

struct tdm_instance {
    const tdm_host *host;
};
struct tdm_device {
    const tdm_host *host;
    bool is_first; /* of the process; for the fault close-wipes */
};
struct tdm_buffer {
    const tdm_host *host;
    uint8_t *data;
    uint64_t size;
};

extern const tdm_queue_ops null_queue_ops;

/* True when TANDEM_TEST_FAULT names this fault. */
bool null_has_fault(const char *name);

/* Sleeps, so that a fault between threads shows at every run. */
void null_pause(long ns);

/* tdm_device_ops.supports_op. */
tdm_status null_supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                            tdm_error *err);
/* tdm_device_ops.graph_compute_sync, without the faults of that slot; what queues run. */
tdm_status null_compute(tdm_device *device, const tdm_graph *graph, const tdm_binding *bindings,
                        int32_t n_binding, tdm_error *err);

#endif
