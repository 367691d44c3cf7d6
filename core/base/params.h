/* SPDX-License-Identifier: MIT
 *
 * params.h: how the core and our plugins read a caller's arguments: structs of other versions,
 * ranges of buffers, flags of plans. Also split_unit, for devices that cut between any two blocks.
 */
#ifndef TANDEM_BASE_PARAMS_H
#define TANDEM_BASE_PARAMS_H

#include "tandem/graph.h"
#include "tandem/queue.h"

/* Reads a struct of the caller's, of whatever version, into ours: fields that it does not have
 * become 0, and struct_size ours. A struct_size of 0 means this version. All is 0 where `theirs` is
 * NULL. [any-thread] */
void tdm_struct_read(void *ours, size_t our_size, const void *theirs);

/* Writes a result as far as the caller's struct goes, and leaves its struct_size alone.
 * [any-thread] */
void tdm_struct_write(void *theirs, const void *ours, size_t our_size);

/* TDM_OUT_OF_RANGE where [off, off + size) is not inside a buffer of buffer_size bytes. `name` is
 * the device's, `what` the call's. [any-thread] */
tdm_status tdm_range_check(const char *name, const char *what, uint64_t off, uint64_t size,
                           uint64_t buffer_size, tdm_error *err);

/* The checks of tdm_buffer_ops.copy: both ranges are inside their buffers, and do not overlap where
 * both are of one buffer (is_one). [any-thread] */
tdm_status tdm_copy_check(const char *name, bool is_one, uint64_t dst_off, uint64_t dst_size,
                          uint64_t src_off, uint64_t src_size, uint64_t size, tdm_error *err);

/* TDM_INVALID_ARGUMENT where params, which may be NULL, have a flag. There are none yet.
 * [any-thread] */
tdm_status tdm_plan_flags_check(const char *name, const tdm_plan_params *params, tdm_error *err);

/* tdm_split_ops.split_unit of a device that cuts between any two blocks of a row and between any
 * two rows. [any-thread] */
tdm_status tdm_split_unit_block(const char *name, const tdm_graph *graph, int32_t value,
                                int32_t axis, int64_t *unit_out, tdm_error *err);

#endif
