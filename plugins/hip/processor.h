/* SPDX-License-Identifier: MIT
 *
 * processor.h: what HIP does not say of an AMD processor: the name that compilers have for it, by the
 * kernel's description of the device, of which HIP's attributes have the first two numbers only; and the
 * UUID that Vulkan has.
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

/* The UUID of the device at that PCI address, as Mesa and AMDVLK make it (VkPhysicalDeviceIDProperties).
 * hipDeviceGetUuid has another, of the card's serial number, and the same one for all cards without.
 * False: the address is not one. [any-thread] */
bool hip_uuid_make(const char *pci_address, uint8_t uuid_out[16]);

#endif
