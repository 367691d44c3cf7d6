/* SPDX-License-Identifier: MIT
 *
 * shim_pinned.h: host_alloc, host_free and upload_finish for a plugin without them. The memory is
 * ordinary host memory. Parts of tensors in it are uploaded only in upload_finish, the latest time
 * that buffer.h allows.
 */
#ifndef TANDEM_TESTS_SHIM_PINNED_H
#define TANDEM_TESTS_SHIM_PINNED_H

#include "tandem/plugin.h"

/* Replaces slots of `outer`, a copy of the target's table `inner`. `fault` (nullable) makes them
 * wrong:
 *   pinned-align   memory begins at a multiple of 64 only
 *   pinned-piece   upload_finish returns for a piece that is not uploaded yet
 *   pinned-all     upload_finish for everything forgets what is not uploaded yet */
void shim_pinned_apply(const tdm_buffer_ops *inner, tdm_buffer_ops *outer, const char *fault);

#endif
