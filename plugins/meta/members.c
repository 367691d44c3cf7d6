/* SPDX-License-Identifier: MIT
 *
 * members.c: see members.h. device.c opens the members and reads their descriptions.
 */
#include "plugins/meta/members.h"

#include <strings.h>

static bool is_same_card(const tdm_device_info *a, const tdm_device_info *b) {
    if (a->pci_address[0] != 0 && strcasecmp(a->pci_address, b->pci_address) == 0) return true;
    return a->has_uuid != 0 && b->has_uuid != 0 && memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

tdm_status meta_duplicates_check(meta_device *device, tdm_error *err) {
    for (int32_t d = 1; d < device->n_member; d++)
        for (int32_t k = 0; k < d; k++) {
            meta_member *a = &device->members[k], *b = &device->members[d];
            if (!is_same_card(&a->info, &b->info)) continue;
            a->shares_card = b->shares_card = true;
            if (device->options.allows_duplicate) continue;
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "members '%s' (%s) and '%s' (%s) are the same card%s%s; leave one of "
                            "them out, or set allow-duplicate = yes",
                            a->name, a->acquired.plugin->name, b->name, b->acquired.plugin->name,
                            a->info.pci_address[0] != 0 ? " at " : "", a->info.pci_address);
        }
    return TDM_OK;
}

/* True when two members compute equal bits from equal bits, by their plugin's promise. */
static bool members_are_alike(const meta_member *a, const meta_member *b) {
    return (a->info.flags & TDM_DEVICE_IS_REPRODUCIBLE) != 0 &&
           strcmp(a->acquired.plugin->name, b->acquired.plugin->name) == 0 &&
           strcmp(a->info.description, b->info.description) == 0 &&
           a->info.flags == b->info.flags && (a->info.flags & TDM_DEVICE_IS_GROUP) == 0;
}

void meta_roles_assign(meta_device *device) {
    device->owner = -1;
    device->n_active = 0;
    device->division++;
    device->is_uniform = true;
    for (int32_t d = 0; d < device->n_member; d++) {
        device->members[d].rank = -1;
        if (!meta_is_active(device, d)) continue;
        if (device->owner < 0) device->owner = d;
        device->members[d].rank = device->n_active++;
        if (!members_are_alike(&device->members[device->owner], &device->members[d]))
            device->is_uniform = device->n_active == 1;
    }
}
