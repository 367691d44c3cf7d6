/* SPDX-License-Identifier: MIT
 *
 * device.h: what opening a group takes apart from its parts: the instance, shares, and the calls
 * to members that several files make.
 */
#ifndef TANDEM_META_DEVICE_H
#define TANDEM_META_DEVICE_H

#include <string.h>

#include "plugins/meta/meta.h"

struct tdm_instance {
    const tdm_host *host;
    meta_registry registry; /* of the devices that are members of groups */
};

/* The members' shares, 0 .. 1 and together 1: as the options say or, where they say auto, by what
 * is known of the members without running anything: the bandwidth of their memory, else their
 * threads, else all alike. share.c. [setup] */
void meta_share_fill(meta_device *device);

/* Owner, number of active members and whether they are alike, after shares were given. device.c.
 * [setup] */
void meta_roles_assign(meta_device *device);

/* Refuses a card that is two members: two plugins may see one card, and it would be promised twice the
 * memory it has. A card is known by PCI address or UUID; devices without either are exempt, and all
 * are where the option allow-duplicate says so. TDM_INVALID_ARGUMENT names both. device.c. [setup] */
tdm_status meta_duplicates_check(const meta_device *device, tdm_error *err);

/* Reads a struct that the caller may know in a smaller or larger version; 0 is this one's size. */
static inline void meta_struct_read(void *ours, size_t size, const void *theirs) {
    size_t given = 0;
    memset(ours, 0, size);
    if (theirs == NULL) return;
    memcpy(&given, theirs, sizeof given);
    memcpy(ours, theirs, given == 0 || given > size ? size : given);
    memcpy(ours, &size, sizeof size);
}

/* Writes as much of a struct as the caller has room for, whose struct_size stays. */
static inline void meta_struct_write(void *theirs, const void *ours, size_t size) {
    size_t given = 0;
    memcpy(&given, theirs, sizeof given);
    size_t n = given == 0 || given > size ? size : given;
    if (n > sizeof given)
        memcpy((char *)theirs + sizeof given, (const char *)ours + sizeof given, n - sizeof given);
}

static inline const tdm_buffer_ops *meta_member_buffers(const meta_member *member) {
    return member->acquired.plugin->buffer;
}

#endif
