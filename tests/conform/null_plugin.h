/* SPDX-License-Identifier: MIT
 *
 * null_plugin.h: handles of the null plugin, a correct backend in the host's memory that is built
 * again and again with one -DBREAK_… each, to prove that the conformance suite sees it.
 */
#ifndef TANDEM_TESTS_NULL_PLUGIN_H
#define TANDEM_TESTS_NULL_PLUGIN_H

#include "tandem/plugin.h"

struct tdm_instance {
    const tdm_host *host;
};
struct tdm_device {
    const tdm_host *host;
};
struct tdm_buffer {
    const tdm_host *host;
    uint8_t *data;
    uint64_t size;
};

extern const tdm_queue_ops null_queue_ops;

/* tdm_device_ops.supports_op. */
tdm_status null_supports_op(tdm_device *device, const tdm_graph *graph, int32_t node,
                            tdm_error *err);
/* tdm_device_ops.graph_compute_sync. */
tdm_status null_compute(tdm_device *device, const tdm_graph *graph, const tdm_binding *bindings,
                        int32_t n_binding, tdm_error *err);

#endif
