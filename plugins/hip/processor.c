/* SPDX-License-Identifier: MIT
 *
 * processor.c: see processor.h.
 */
#include "plugins/hip/processor.h"

#include <stdio.h>

enum { MAX_NODE = 256 };

/* Of one processor. Lines that are missing are 0: older kernels have no domain, and a CPU has no
 * version. */
typedef struct node {
    unsigned domain, location, version;
} node;

static bool node_read(const char *nodes, int index, node *node_out) {
    char line[256];
    *node_out = (node){0};
    snprintf(line, sizeof line, "%.200s/%d/properties", nodes, index);
    FILE *file = fopen(line, "r");
    if (file == NULL) return false;
    while (fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "domain %u", &node_out->domain);
        (void)sscanf(line, "location_id %u", &node_out->location);
        (void)sscanf(line, "gfx_target_version %u", &node_out->version);
    }
    fclose(file);
    return true;
}

bool hip_processor_find(const char *nodes, const char *pci_address, char name_out[16]) {
    unsigned domain, bus, slot, function;
    node n;
    if (sscanf(pci_address, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return false;
    /* kfd_topology.c: location_id is pci_dev_id() of the device. */
    const unsigned location = bus << 8 | slot << 3 | function;
    for (int i = 0; i < MAX_NODE && node_read(nodes, i, &n); i++) {
        if (n.version < 10000 || n.domain != domain || n.location != location) continue;
        snprintf(name_out, 16, "gfx%u%x%x", n.version / 10000 % 1000, n.version / 100 % 100,
                 n.version % 100);
        return true;
    }
    return false;
}
