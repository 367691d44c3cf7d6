/* SPDX-License-Identifier: MIT
 *
 * upload_case.h: weights that several threads upload to a device of a GPU plugin, without the core.
 */
#ifndef TANDEM_TEST_UPLOAD_CASE_H
#define TANDEM_TEST_UPLOAD_CASE_H

#include "tandem/plugin.h"

/* More threads than there are pieces of the ring upload parts of tensors, and what arrives is compared.
 * Of the threads with an odd number the memory is malloc's; of the others it is the plugin's. */
void upload_case_threads(const tdm_plugin *plugin, tdm_device *device);

/* A row of 3 MiB, whole and in parts, which does not fit a piece. */
void upload_case_long_row(const tdm_plugin *plugin, tdm_device *device);

/* Buffers and page-locked memory are freed while copies are under way. */
void upload_case_freed(const tdm_plugin *plugin, tdm_device *device);

#endif
