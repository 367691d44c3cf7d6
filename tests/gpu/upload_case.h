/* SPDX-License-Identifier: MIT
 *
 * upload_case.h: weights that several threads upload to a device of a GPU plugin, without the core.
 */
#ifndef TANDEM_TEST_UPLOAD_CASE_H
#define TANDEM_TEST_UPLOAD_CASE_H

#include "tandem/plugin.h"

/* Threads upload parts of tensors at the same time, more of them than the device's staging ring has
 * pieces; what arrives is compared. Threads with an odd number use memory of malloc, the others
 * memory of the plugin's host_alloc. */
void upload_case_threads(const tdm_plugin *plugin, tdm_device *device);

/* A row of 3 MiB, whole and in parts, which does not fit a piece. */
void upload_case_long_row(const tdm_plugin *plugin, tdm_device *device);

/* Buffers and page-locked memory are freed while copies are under way. */
void upload_case_freed(const tdm_plugin *plugin, tdm_device *device);

#endif
