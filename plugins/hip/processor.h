/* SPDX-License-Identifier: MIT
 *
 * processor.h: the name that compilers have for an AMD processor, by the kernel's description of
 * the device. HIP's attributes have the first two numbers of it only.
 */
#ifndef TANDEM_HIP_PROCESSOR_H
#define TANDEM_HIP_PROCESSOR_H

#include <stdbool.h>

/* Where the kernel describes processors (amdgpu's KFD): a folder for each, named 0, 1 and so on. */
#define HIP_NODES "/sys/class/kfd/kfd/topology/nodes"

/* Writes the name ("gfx1151") of the device at that PCI address ("0000:c4:00.0"). False: `nodes`
 * describes no such device. [any-thread] */
bool hip_processor_find(const char *nodes, const char *pci_address, char name_out[16]);

#endif
