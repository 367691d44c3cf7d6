/* SPDX-License-Identifier: MIT
 *
 * processor.h: what HIP does not say of an AMD processor: the name that compilers have for it, and
 * the UUID that Vulkan has for it. The name comes from the operating system's description of the
 * device, since HIP's attributes have the first two of its three numbers only.
 */
#ifndef TANDEM_HIP_PROCESSOR_H
#define TANDEM_HIP_PROCESSOR_H

#include <stdbool.h>
#include <stdint.h>

/* Where the kernel describes processors (amdgpu's KFD): a folder for each, named 0, 1 and so on. */
#define HIP_NODES "/sys/class/kfd/kfd/topology/nodes"

/* Writes the name ("gfx1151") of the device at that PCI address ("0000:c4:00.0"). False: `nodes`
 * describes no such device. [any-thread] */
bool hip_processor_find(const char *nodes, const char *pci_address, char name_out[16]);

/* Writes the UUID of the device at that PCI address, as Mesa and AMDVLK make it
 * (VkPhysicalDeviceIDProperties). That of hipDeviceGetUuid is another: it is made from the card's
 * serial number, and all cards without a serial number have the same. False: the text is no
 * address. [any-thread] */
bool hip_uuid_make(const char *pci_address, uint8_t uuid_out[16]);

#endif
