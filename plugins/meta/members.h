/* SPDX-License-Identifier: MIT
 *
 * members.h: what a group derives from the descriptions and shares of its members.
 */
#ifndef TANDEM_META_MEMBERS_H
#define TANDEM_META_MEMBERS_H

#include "plugins/meta/meta.h"

/* Sets the owner, the number of active members and whether they are alike. To be called after
 * shares were given. [setup] */
void meta_roles_assign(meta_device *device);

/* Refuses a card that is two members, because twice its memory would be planned. Two plugins may
 * find the same card. Cards are compared by PCI address and UUID; devices without either are
 * accepted. The option allow-duplicate accepts all; shares_card is then set in the members of one
 * card. TDM_INVALID_ARGUMENT names both members. [setup] */
tdm_status meta_duplicates_check(meta_device *device, tdm_error *err);

#endif
