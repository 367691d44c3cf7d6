/* SPDX-License-Identifier: MIT
 *
 * processor.c: see processor.h.
 */
#include "plugins/hip/processor.h"

#include <stdio.h>
#include <string.h>

enum { MAX_NODE = 256 };

/* Properties of one processor. A missing one is 0: older kernels state no domain, and a CPU has no
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

/* part_out: domain, bus, slot, function. False: the text is no address. */
static bool pci_parse(const char *pci_address, unsigned part_out[4]) {
    return sscanf(pci_address, "%x:%x:%x.%x", &part_out[0], &part_out[1], &part_out[2],
                  &part_out[3]) == 4;
}

bool hip_processor_find(const char *nodes, const char *pci_address, char name_out[16]) {
    unsigned pci[4];
    node n;
    if (!pci_parse(pci_address, pci)) return false;
    /* kfd_topology.c: location_id is pci_dev_id() of the device. */
    const unsigned location = pci[1] << 8 | pci[2] << 3 | pci[3];
    for (int i = 0; i < MAX_NODE && node_read(nodes, i, &n); i++) {
        if (n.version < 10000 || n.domain != pci[0] || n.location != location) continue;
        snprintf(name_out, 16, "gfx%u%x%x", n.version / 10000 % 1000, n.version / 100 % 100,
                 n.version % 100);
        return true;
    }
    return false;
}

bool hip_uuid_make(const char *pci_address, uint8_t uuid_out[16]) {
    unsigned pci[4];
    if (!pci_parse(pci_address, pci)) return false;
    /* Four words of 32 bits, as the processor stores them. */
    for (int i = 0; i < 4; i++) {
        const uint32_t word = pci[i];
        memcpy(uuid_out + 4 * i, &word, sizeof word);
    }
    return true;
}
