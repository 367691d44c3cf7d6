/* SPDX-License-Identifier: MIT
 *
 * test_abi_layout.c: the golden table of the ABI: size of every public struct, offset and size of
 * every field, and the numbers behind the enums that travel in data. Plugins are built apart from
 * the host, so a line here changes only together with the version in tdm_plugin_entry_vN; a new
 * field is a new line at the end of its struct (and the struct's new size). For machines with
 * 64-bit pointers, which is all that Tandem runs on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tandem/block.h"
#include "tandem/plugin.h"

/* A field, or a whole struct where `field` is NULL. */
typedef struct layout_row {
    const char *type;
    const char *field;
    size_t off, golden_off;
    size_t size, golden_size;
} layout_row;

#define STRUCT(type, size)                                                                         \
    { #type, NULL, 0, 0, sizeof(type), size }
#define FIELD(type, field, off, size)                                                              \
    { #type, #field, offsetof(type, field), off, sizeof(((type *)NULL)->field), size }

/* clang-format off */
static const layout_row layout[] = {
    STRUCT(tdm_error, 528),
    FIELD(tdm_error, struct_size, 0, 8),
    FIELD(tdm_error, status, 8, 4),
    FIELD(tdm_error, message, 12, 512),
    STRUCT(tdm_type_info, 24),
    FIELD(tdm_type_info, name, 0, 8),
    FIELD(tdm_type_info, block_len, 8, 4),
    FIELD(tdm_type_info, block_size, 12, 4),
    FIELD(tdm_type_info, is_quantized, 16, 1),
    STRUCT(tdm_block_q4_0, 18),
    FIELD(tdm_block_q4_0, d, 0, 2),
    FIELD(tdm_block_q4_0, qs, 2, 16),
    STRUCT(tdm_block_q4_1, 20),
    FIELD(tdm_block_q4_1, d, 0, 2),
    FIELD(tdm_block_q4_1, m, 2, 2),
    FIELD(tdm_block_q4_1, qs, 4, 16),
    STRUCT(tdm_block_q5_0, 22),
    FIELD(tdm_block_q5_0, d, 0, 2),
    FIELD(tdm_block_q5_0, qh, 2, 4),
    FIELD(tdm_block_q5_0, qs, 6, 16),
    STRUCT(tdm_block_q5_1, 24),
    FIELD(tdm_block_q5_1, d, 0, 2),
    FIELD(tdm_block_q5_1, m, 2, 2),
    FIELD(tdm_block_q5_1, qh, 4, 4),
    FIELD(tdm_block_q5_1, qs, 8, 16),
    STRUCT(tdm_block_q8_0, 34),
    FIELD(tdm_block_q8_0, d, 0, 2),
    FIELD(tdm_block_q8_0, qs, 2, 32),
    STRUCT(tdm_block_iq4_nl, 18),
    FIELD(tdm_block_iq4_nl, d, 0, 2),
    FIELD(tdm_block_iq4_nl, qs, 2, 16),
    STRUCT(tdm_block_q2_K, 84),
    FIELD(tdm_block_q2_K, scales, 0, 16),
    FIELD(tdm_block_q2_K, qs, 16, 64),
    FIELD(tdm_block_q2_K, d, 80, 2),
    FIELD(tdm_block_q2_K, dmin, 82, 2),
    STRUCT(tdm_block_q3_K, 110),
    FIELD(tdm_block_q3_K, hmask, 0, 32),
    FIELD(tdm_block_q3_K, qs, 32, 64),
    FIELD(tdm_block_q3_K, scales, 96, 12),
    FIELD(tdm_block_q3_K, d, 108, 2),
    STRUCT(tdm_block_q4_K, 144),
    FIELD(tdm_block_q4_K, d, 0, 2),
    FIELD(tdm_block_q4_K, dmin, 2, 2),
    FIELD(tdm_block_q4_K, scales, 4, 12),
    FIELD(tdm_block_q4_K, qs, 16, 128),
    STRUCT(tdm_block_q5_K, 176),
    FIELD(tdm_block_q5_K, d, 0, 2),
    FIELD(tdm_block_q5_K, dmin, 2, 2),
    FIELD(tdm_block_q5_K, scales, 4, 12),
    FIELD(tdm_block_q5_K, qh, 16, 32),
    FIELD(tdm_block_q5_K, qs, 48, 128),
    STRUCT(tdm_block_q6_K, 210),
    FIELD(tdm_block_q6_K, ql, 0, 128),
    FIELD(tdm_block_q6_K, qh, 128, 64),
    FIELD(tdm_block_q6_K, scales, 192, 16),
    FIELD(tdm_block_q6_K, d, 208, 2),
    STRUCT(tdm_block_iq4_xs, 136),
    FIELD(tdm_block_iq4_xs, d, 0, 2),
    FIELD(tdm_block_iq4_xs, scales_h, 2, 2),
    FIELD(tdm_block_iq4_xs, scales_l, 4, 4),
    FIELD(tdm_block_iq4_xs, qs, 8, 128),
    STRUCT(tdm_tensor_desc, 48),
    FIELD(tdm_tensor_desc, struct_size, 0, 8),
    FIELD(tdm_tensor_desc, type, 8, 4),
    FIELD(tdm_tensor_desc, usage, 12, 4),
    FIELD(tdm_tensor_desc, ne, 16, 32),
    STRUCT(tdm_kv_desc, 48),
    FIELD(tdm_kv_desc, struct_size, 0, 8),
    FIELD(tdm_kv_desc, type_k, 8, 4),
    FIELD(tdm_kv_desc, type_v, 12, 4),
    FIELD(tdm_kv_desc, head_dim_k, 16, 4),
    FIELD(tdm_kv_desc, head_dim_v, 20, 4),
    FIELD(tdm_kv_desc, n_head_kv, 24, 4),
    FIELD(tdm_kv_desc, page_len, 28, 4),
    FIELD(tdm_kv_desc, rope_offset, 32, 4),
    FIELD(tdm_kv_desc, n_rot, 36, 4),
    FIELD(tdm_kv_desc, flags, 40, 4),
    FIELD(tdm_kv_desc, cls, 44, 4),
    STRUCT(tdm_step_caps, 24),
    FIELD(tdm_step_caps, n_tok, 0, 4),
    FIELD(tdm_step_caps, n_seq, 4, 4),
    FIELD(tdm_step_caps, n_out, 8, 4),
    FIELD(tdm_step_caps, n_entry, 12, 4),
    FIELD(tdm_step_caps, n_job, 16, 4),
    FIELD(tdm_step_caps, n_class, 20, 4),
    STRUCT(tdm_page_entry, 16),
    FIELD(tdm_page_entry, page, 0, 4),
    FIELD(tdm_page_entry, first, 4, 4),
    FIELD(tdm_page_entry, count, 8, 4),
    FIELD(tdm_page_entry, base_pos, 12, 4),
    STRUCT(tdm_page_job, 16),
    FIELD(tdm_page_job, page, 0, 4),
    FIELD(tdm_page_job, first, 4, 4),
    FIELD(tdm_page_job, count, 8, 4),
    FIELD(tdm_page_job, arg, 12, 4),
    STRUCT(tdm_step_class, 16),
    FIELD(tdm_step_class, write_off, 0, 4),
    FIELD(tdm_step_class, first_entry_off, 4, 4),
    FIELD(tdm_step_class, entry_off, 8, 4),
    FIELD(tdm_step_class, reserved, 12, 4),
    STRUCT(tdm_step_header, 128),
    FIELD(tdm_step_header, version, 0, 4),
    FIELD(tdm_step_header, size, 4, 4),
    FIELD(tdm_step_header, epoch, 8, 4),
    FIELD(tdm_step_header, n_tok, 12, 4),
    FIELD(tdm_step_header, n_seq, 16, 4),
    FIELD(tdm_step_header, n_out, 20, 4),
    FIELD(tdm_step_header, n_job, 24, 4),
    FIELD(tdm_step_header, n_class, 28, 4),
    FIELD(tdm_step_header, token_off, 32, 4),
    FIELD(tdm_step_header, pos_off, 36, 4),
    FIELD(tdm_step_header, seq_off, 40, 4),
    FIELD(tdm_step_header, out_row_off, 44, 4),
    FIELD(tdm_step_header, job_off, 48, 4),
    FIELD(tdm_step_header, reserved, 52, 12),
    FIELD(tdm_step_header, cls, 64, 64),
    STRUCT(tdm_rope_params, 40),
    FIELD(tdm_rope_params, n_rot, 0, 4),
    FIELD(tdm_rope_params, rope_offset, 4, 4),
    FIELD(tdm_rope_params, mode, 8, 4),
    FIELD(tdm_rope_params, n_ctx_orig, 12, 4),
    FIELD(tdm_rope_params, freq_base, 16, 4),
    FIELD(tdm_rope_params, freq_scale, 20, 4),
    FIELD(tdm_rope_params, ext_factor, 24, 4),
    FIELD(tdm_rope_params, attn_factor, 28, 4),
    FIELD(tdm_rope_params, beta_fast, 32, 4),
    FIELD(tdm_rope_params, beta_slow, 36, 4),
    STRUCT(tdm_route_params, 24),
    FIELD(tdm_route_params, n_used, 0, 4),
    FIELD(tdm_route_params, score, 4, 4),
    FIELD(tdm_route_params, normalize, 8, 4),
    FIELD(tdm_route_params, n_group, 12, 4),
    FIELD(tdm_route_params, n_group_used, 16, 4),
    FIELD(tdm_route_params, scale, 20, 4),
    STRUCT(tdm_attention_params, 36),
    FIELD(tdm_attention_params, kv, 0, 4),
    FIELD(tdm_attention_params, first_head, 4, 4),
    FIELD(tdm_attention_params, first_head_kv, 8, 4),
    FIELD(tdm_attention_params, heads_per_kv, 12, 4),
    FIELD(tdm_attention_params, n_head_all, 16, 4),
    FIELD(tdm_attention_params, is_causal, 20, 4),
    FIELD(tdm_attention_params, window, 24, 4),
    FIELD(tdm_attention_params, scale, 28, 4),
    FIELD(tdm_attention_params, softcap, 32, 4),
    STRUCT(tdm_exchange_params, 40),
    FIELD(tdm_exchange_params, stage, 0, 4),
    FIELD(tdm_exchange_params, member, 4, 4),
    FIELD(tdm_exchange_params, n_member, 8, 4),
    FIELD(tdm_exchange_params, wire_type, 12, 4),
    FIELD(tdm_exchange_params, data_off, 16, 8),
    FIELD(tdm_exchange_params, data_stride, 24, 8),
    FIELD(tdm_exchange_params, flag_off, 32, 8),
    STRUCT(tdm_op_params, 64),
    FIELD(tdm_op_params, permute.axis, 0, 16),
    FIELD(tdm_op_params, slice.offset, 0, 32),
    FIELD(tdm_op_params, concat.axis, 0, 4),
    FIELD(tdm_op_params, rows.first_row, 0, 8),
    FIELD(tdm_op_params, scale.scale, 0, 4),
    FIELD(tdm_op_params, scale.bias, 4, 4),
    FIELD(tdm_op_params, act.act, 0, 4),
    FIELD(tdm_op_params, norm.eps, 0, 4),
    FIELD(tdm_op_params, norm.reserved, 4, 4),
    FIELD(tdm_op_params, norm.n, 8, 8),
    FIELD(tdm_op_params, rope, 0, 40),
    FIELD(tdm_op_params, top_k.k, 0, 4),
    FIELD(tdm_op_params, top_k.index_base, 4, 4),
    FIELD(tdm_op_params, route, 0, 24),
    FIELD(tdm_op_params, moe.act, 0, 4),
    FIELD(tdm_op_params, moe.first_expert, 4, 4),
    FIELD(tdm_op_params, moe.n_expert_all, 8, 4),
    FIELD(tdm_op_params, attention, 0, 36),
    FIELD(tdm_op_params, kv.kv, 0, 4),
    FIELD(tdm_op_params, shift.kv, 0, 4),
    FIELD(tdm_op_params, shift.reserved, 4, 4),
    FIELD(tdm_op_params, shift.rope, 8, 40),
    FIELD(tdm_op_params, exchange, 0, 40),
    FIELD(tdm_op_params, bytes, 0, 64),
    STRUCT(tdm_value, 64),
    FIELD(tdm_value, kind, 0, 4),
    FIELD(tdm_value, type, 4, 4),
    FIELD(tdm_value, ne, 8, 32),
    FIELD(tdm_value, slot, 40, 4),
    FIELD(tdm_value, usage, 44, 4),
    FIELD(tdm_value, partition, 48, 4),
    FIELD(tdm_value, axis, 52, 4),
    FIELD(tdm_value, name, 56, 4),
    FIELD(tdm_value, reserved, 60, 4),
    STRUCT(tdm_node, 120),
    FIELD(tdm_node, op, 0, 4),
    FIELD(tdm_node, n_src, 4, 4),
    FIELD(tdm_node, n_dst, 8, 4),
    FIELD(tdm_node, reserved, 12, 4),
    FIELD(tdm_node, src, 16, 32),
    FIELD(tdm_node, dst, 48, 8),
    FIELD(tdm_node, params, 56, 64),
    STRUCT(tdm_partition, 32),
    FIELD(tdm_partition, id, 0, 4),
    FIELD(tdm_partition, layer, 4, 4),
    FIELD(tdm_partition, n_unit, 8, 4),
    FIELD(tdm_partition, n_segment, 12, 4),
    FIELD(tdm_partition, unit_len, 16, 16),
    STRUCT(tdm_graph, 144),
    FIELD(tdm_graph, struct_size, 0, 8),
    FIELD(tdm_graph, value_size, 8, 8),
    FIELD(tdm_graph, node_size, 16, 8),
    FIELD(tdm_graph, partition_size, 24, 8),
    FIELD(tdm_graph, kv_size, 32, 8),
    FIELD(tdm_graph, values, 40, 8),
    FIELD(tdm_graph, nodes, 48, 8),
    FIELD(tdm_graph, partitions, 56, 8),
    FIELD(tdm_graph, kv, 64, 8),
    FIELD(tdm_graph, names, 72, 8),
    FIELD(tdm_graph, n_value, 80, 4),
    FIELD(tdm_graph, n_node, 84, 4),
    FIELD(tdm_graph, n_partition, 88, 4),
    FIELD(tdm_graph, n_kv, 92, 4),
    FIELD(tdm_graph, n_slot, 96, 4),
    FIELD(tdm_graph, names_size, 100, 4),
    FIELD(tdm_graph, step_caps, 104, 24),
    FIELD(tdm_graph, step, 128, 4),
    FIELD(tdm_graph, reserved, 132, 4),
    FIELD(tdm_graph, hash, 136, 8),
    STRUCT(tdm_buffer_params, 24),
    FIELD(tdm_buffer_params, struct_size, 0, 8),
    FIELD(tdm_buffer_params, size, 8, 8),
    FIELD(tdm_buffer_params, purpose, 16, 4),
    STRUCT(tdm_import_info, 16),
    FIELD(tdm_import_info, struct_size, 0, 8),
    FIELD(tdm_import_info, is_coherent, 8, 1),
    FIELD(tdm_import_info, has_atomic32, 9, 1),
    FIELD(tdm_import_info, has_atomic64, 10, 1),
    FIELD(tdm_import_info, is_pollable, 11, 1),
    STRUCT(tdm_buffer_ops, 104),
    FIELD(tdm_buffer_ops, struct_size, 0, 8),
    FIELD(tdm_buffer_ops, alloc, 8, 8),
    FIELD(tdm_buffer_ops, free, 16, 8),
    FIELD(tdm_buffer_ops, upload, 24, 8),
    FIELD(tdm_buffer_ops, download, 32, 8),
    FIELD(tdm_buffer_ops, copy, 40, 8),
    FIELD(tdm_buffer_ops, fill, 48, 8),
    FIELD(tdm_buffer_ops, host_pointer, 56, 8),
    FIELD(tdm_buffer_ops, import_host, 64, 8),
    FIELD(tdm_buffer_ops, tensor_size, 72, 8),
    FIELD(tdm_buffer_ops, tensor_upload, 80, 8),
    FIELD(tdm_buffer_ops, tensor_download, 88, 8),
    FIELD(tdm_buffer_ops, kv_page_size, 96, 8),
    STRUCT(tdm_device_info, 264),
    FIELD(tdm_device_info, struct_size, 0, 8),
    FIELD(tdm_device_info, name, 8, 32),
    FIELD(tdm_device_info, description, 40, 128),
    FIELD(tdm_device_info, vendor, 168, 32),
    FIELD(tdm_device_info, pci_address, 200, 16),
    FIELD(tdm_device_info, memory_total, 216, 8),
    FIELD(tdm_device_info, memory_free, 224, 8),
    FIELD(tdm_device_info, bandwidth, 232, 8),
    FIELD(tdm_device_info, buffer_align, 240, 8),
    FIELD(tdm_device_info, max_buffer, 248, 8),
    FIELD(tdm_device_info, flags, 256, 4),
    FIELD(tdm_device_info, n_thread, 260, 4),
    STRUCT(tdm_option, 16),
    FIELD(tdm_option, key, 0, 8),
    FIELD(tdm_option, value, 8, 8),
    STRUCT(tdm_device_params, 24),
    FIELD(tdm_device_params, struct_size, 0, 8),
    FIELD(tdm_device_params, index, 8, 4),
    FIELD(tdm_device_params, n_option, 12, 4),
    FIELD(tdm_device_params, options, 16, 8),
    STRUCT(tdm_device_ops, 72),
    FIELD(tdm_device_ops, struct_size, 0, 8),
    FIELD(tdm_device_ops, count, 8, 8),
    FIELD(tdm_device_ops, describe, 16, 8),
    FIELD(tdm_device_ops, open, 24, 8),
    FIELD(tdm_device_ops, close, 32, 8),
    FIELD(tdm_device_ops, get_info, 40, 8),
    FIELD(tdm_device_ops, supports_op, 48, 8),
    FIELD(tdm_device_ops, graph_supports, 56, 8),
    FIELD(tdm_device_ops, graph_compute_sync, 64, 8),
    STRUCT(tdm_point, 16),
    FIELD(tdm_point, semaphore, 0, 8),
    FIELD(tdm_point, value, 8, 8),
    STRUCT(tdm_host_semaphore_ops, 56),
    FIELD(tdm_host_semaphore_ops, struct_size, 0, 8),
    FIELD(tdm_host_semaphore_ops, create, 8, 8),
    FIELD(tdm_host_semaphore_ops, destroy, 16, 8),
    FIELD(tdm_host_semaphore_ops, query, 24, 8),
    FIELD(tdm_host_semaphore_ops, wait, 32, 8),
    FIELD(tdm_host_semaphore_ops, signal, 40, 8),
    FIELD(tdm_host_semaphore_ops, fail, 48, 8),
    STRUCT(tdm_binding, 24),
    FIELD(tdm_binding, buffer, 0, 8),
    FIELD(tdm_binding, off, 8, 8),
    FIELD(tdm_binding, size, 16, 8),
    STRUCT(tdm_plan_params, 16),
    FIELD(tdm_plan_params, struct_size, 0, 8),
    FIELD(tdm_plan_params, flags, 8, 4),
    STRUCT(tdm_plan_info, 24),
    FIELD(tdm_plan_info, struct_size, 0, 8),
    FIELD(tdm_plan_info, device_size, 8, 8),
    FIELD(tdm_plan_info, host_size, 16, 8),
    STRUCT(tdm_queue_ops, 56),
    FIELD(tdm_queue_ops, struct_size, 0, 8),
    FIELD(tdm_queue_ops, create, 8, 8),
    FIELD(tdm_queue_ops, destroy, 16, 8),
    FIELD(tdm_queue_ops, graph_prepare, 24, 8),
    FIELD(tdm_queue_ops, plan_destroy, 32, 8),
    FIELD(tdm_queue_ops, plan_get_info, 40, 8),
    FIELD(tdm_queue_ops, graph_compute, 48, 8),
    STRUCT(tdm_layout_segment, 1032),
    FIELD(tdm_layout_segment, n_unit, 0, 8),
    FIELD(tdm_layout_segment, lo, 8, 512),
    FIELD(tdm_layout_segment, hi, 520, 512),
    STRUCT(tdm_layout, 4168),
    FIELD(tdm_layout, struct_size, 0, 8),
    FIELD(tdm_layout, kind, 8, 4),
    FIELD(tdm_layout, replica, 12, 4),
    FIELD(tdm_layout, n_member, 16, 4),
    FIELD(tdm_layout, n_segment, 20, 4),
    FIELD(tdm_layout, outer, 24, 8),
    FIELD(tdm_layout, inner, 32, 8),
    FIELD(tdm_layout, segments, 40, 4128),
    STRUCT(tdm_split_ops, 32),
    FIELD(tdm_split_ops, struct_size, 0, 8),
    FIELD(tdm_split_ops, split_unit, 8, 8),
    FIELD(tdm_split_ops, split_set, 16, 8),
    FIELD(tdm_split_ops, split_get, 24, 8),
    STRUCT(tdm_collective_ops, 64),
    FIELD(tdm_collective_ops, struct_size, 0, 8),
    FIELD(tdm_collective_ops, comm_create, 8, 8),
    FIELD(tdm_collective_ops, comm_destroy, 16, 8),
    FIELD(tdm_collective_ops, all_reduce, 24, 8),
    FIELD(tdm_collective_ops, all_gather, 32, 8),
    FIELD(tdm_collective_ops, peer_copy, 40, 8),
    FIELD(tdm_collective_ops, queue_write_value, 48, 8),
    FIELD(tdm_collective_ops, queue_wait_value, 56, 8),
    STRUCT(tdm_acquired_device, 24),
    FIELD(tdm_acquired_device, struct_size, 0, 8),
    FIELD(tdm_acquired_device, plugin, 8, 8),
    FIELD(tdm_acquired_device, device, 16, 8),
    STRUCT(tdm_host_graph_ops, 32),
    FIELD(tdm_host_graph_ops, struct_size, 0, 8),
    FIELD(tdm_host_graph_ops, verify, 8, 8),
    FIELD(tdm_host_graph_ops, hash, 16, 8),
    FIELD(tdm_host_graph_ops, plan_memory, 24, 8),
    STRUCT(tdm_host, 72),
    FIELD(tdm_host, struct_size, 0, 8),
    FIELD(tdm_host, context, 8, 8),
    FIELD(tdm_host, log, 16, 8),
    FIELD(tdm_host, alloc, 24, 8),
    FIELD(tdm_host, free, 32, 8),
    FIELD(tdm_host, semaphore, 40, 8),
    FIELD(tdm_host, graph, 48, 8),
    FIELD(tdm_host, device_acquire, 56, 8),
    FIELD(tdm_host, device_release, 64, 8),
    STRUCT(tdm_plugin, 88),
    FIELD(tdm_plugin, struct_size, 0, 8),
    FIELD(tdm_plugin, name, 8, 8),
    FIELD(tdm_plugin, version, 16, 8),
    FIELD(tdm_plugin, licence, 24, 8),
    FIELD(tdm_plugin, init, 32, 8),
    FIELD(tdm_plugin, deinit, 40, 8),
    FIELD(tdm_plugin, device, 48, 8),
    FIELD(tdm_plugin, buffer, 56, 8),
    FIELD(tdm_plugin, queue, 64, 8),
    FIELD(tdm_plugin, split, 72, 8),
    FIELD(tdm_plugin, collective, 80, 8),
};
/* clang-format on */

typedef struct number_row {
    const char *name;
    long long value, golden;
} number_row;

#define NUMBER(name, golden)                                                                       \
    { #name, name, golden }

/* clang-format off */
static const number_row numbers[] = {
    NUMBER(TDM_OK, 0),
    NUMBER(TDM_CANCELLED, 1),
    NUMBER(TDM_INVALID_ARGUMENT, 2),
    NUMBER(TDM_NOT_FOUND, 3),
    NUMBER(TDM_UNSUPPORTED, 4),
    NUMBER(TDM_OUT_OF_RANGE, 5),
    NUMBER(TDM_RESOURCE_EXHAUSTED, 6),
    NUMBER(TDM_FAILED_PRECONDITION, 7),
    NUMBER(TDM_IO, 8),
    NUMBER(TDM_DATA_LOSS, 9),
    NUMBER(TDM_DEADLINE_EXCEEDED, 10),
    NUMBER(TDM_UNAVAILABLE, 11),
    NUMBER(TDM_INTERNAL, 12),
    NUMBER(TDM_STATUS_COUNT_, 13),
    NUMBER(TDM_TYPE_F32, 0),
    NUMBER(TDM_TYPE_F16, 1),
    NUMBER(TDM_TYPE_Q4_0, 2),
    NUMBER(TDM_TYPE_Q4_1, 3),
    NUMBER(TDM_TYPE_Q5_0, 6),
    NUMBER(TDM_TYPE_Q5_1, 7),
    NUMBER(TDM_TYPE_Q8_0, 8),
    NUMBER(TDM_TYPE_Q2_K, 10),
    NUMBER(TDM_TYPE_Q3_K, 11),
    NUMBER(TDM_TYPE_Q4_K, 12),
    NUMBER(TDM_TYPE_Q5_K, 13),
    NUMBER(TDM_TYPE_Q6_K, 14),
    NUMBER(TDM_TYPE_IQ4_NL, 20),
    NUMBER(TDM_TYPE_IQ4_XS, 23),
    NUMBER(TDM_TYPE_I8, 24),
    NUMBER(TDM_TYPE_I32, 26),
    NUMBER(TDM_TYPE_BF16, 30),
    NUMBER(TDM_TYPE_LIMIT_, 64),
    NUMBER(TDM_USAGE_MATMUL, 1),
    NUMBER(TDM_USAGE_ROWS, 2),
    NUMBER(TDM_USAGE_EXPERT, 4),
    NUMBER(TDM_KV_ROTATE_K, 1),
    NUMBER(TDM_KV_ROTATE_V, 2),
    NUMBER(TDM_KV_V_FROM_K, 4),
    NUMBER(TDM_OP_NONE, 0),
    NUMBER(TDM_OP_RESHAPE, 1),
    NUMBER(TDM_OP_PERMUTE, 2),
    NUMBER(TDM_OP_SLICE, 3),
    NUMBER(TDM_OP_COPY, 4),
    NUMBER(TDM_OP_CONCAT, 5),
    NUMBER(TDM_OP_GET_ROWS, 6),
    NUMBER(TDM_OP_MATMUL, 7),
    NUMBER(TDM_OP_ADD, 8),
    NUMBER(TDM_OP_MUL, 9),
    NUMBER(TDM_OP_SCALE, 10),
    NUMBER(TDM_OP_ACT, 11),
    NUMBER(TDM_OP_GLU, 12),
    NUMBER(TDM_OP_SOFTMAX, 13),
    NUMBER(TDM_OP_RMS_NORM, 14),
    NUMBER(TDM_OP_SUM_SQ, 15),
    NUMBER(TDM_OP_RMS_APPLY, 16),
    NUMBER(TDM_OP_ROPE, 17),
    NUMBER(TDM_OP_TOP_K, 18),
    NUMBER(TDM_OP_MOE_ROUTE, 19),
    NUMBER(TDM_OP_MOE_FFN, 20),
    NUMBER(TDM_OP_KV_WRITE, 21),
    NUMBER(TDM_OP_ATTENTION, 22),
    NUMBER(TDM_OP_KV_SHIFT, 23),
    NUMBER(TDM_OP_KV_COPY, 24),
    NUMBER(TDM_OP_KV_EXPORT, 25),
    NUMBER(TDM_OP_KV_IMPORT, 26),
    NUMBER(TDM_OP_LSE_MERGE, 27),
    NUMBER(TDM_OP_EXCHANGE, 28),
    NUMBER(TDM_OP_COUNT_, 29),
    NUMBER(TDM_ACT_NONE, 0),
    NUMBER(TDM_ACT_SILU, 1),
    NUMBER(TDM_ACT_GELU, 2),
    NUMBER(TDM_ACT_GELU_ERF, 3),
    NUMBER(TDM_ACT_RELU, 4),
    NUMBER(TDM_ACT_SIGMOID, 5),
    NUMBER(TDM_ACT_TANH, 6),
    NUMBER(TDM_ROPE_ADJACENT, 0),
    NUMBER(TDM_ROPE_HALVES, 1),
    NUMBER(TDM_ROUTE_SOFTMAX, 0),
    NUMBER(TDM_ROUTE_SIGMOID, 1),
    NUMBER(TDM_ROUTE_TOP_SOFTMAX, 2),
    NUMBER(TDM_VALUE_TEMP, 0),
    NUMBER(TDM_VALUE_WEIGHT, 1),
    NUMBER(TDM_VALUE_STATE, 2),
    NUMBER(TDM_VALUE_INPUT, 3),
    NUMBER(TDM_VALUE_OUTPUT, 4),
    NUMBER(TDM_BUFFER_ANY, 0),
    NUMBER(TDM_BUFFER_WEIGHT, 1),
    NUMBER(TDM_BUFFER_STATE, 2),
    NUMBER(TDM_BUFFER_COMPUTE, 3),
    NUMBER(TDM_BUFFER_STAGING, 4),
    NUMBER(TDM_LAYOUT_UNSET, 0),
    NUMBER(TDM_LAYOUT_REPLICATED, 1),
    NUMBER(TDM_LAYOUT_PARTIAL_SUM, 2),
    NUMBER(TDM_LAYOUT_PARTIAL_LSE, 3),
    NUMBER(TDM_LAYOUT_SPLIT, 4),
    NUMBER(TDM_REPLICA_EQUIVALENT, 0),
    NUMBER(TDM_REPLICA_EXACT, 1),
    NUMBER(TDM_LOG_ERROR, 0),
    NUMBER(TDM_LOG_WARN, 1),
    NUMBER(TDM_LOG_INFO, 2),
    NUMBER(TDM_LOG_DEBUG, 3),
};
/* clang-format on */

static void test_layout(void **state) {
    size_t i, n_wrong = 0;
    (void)state;
    if (sizeof(void *) != 8) {
        printf("SKIPPED: pointers have %zu bytes, the table is for 8\n", sizeof(void *));
        skip();
    }
    for (i = 0; i < sizeof layout / sizeof layout[0]; i++) {
        const layout_row *row = &layout[i];
        if (row->off == row->golden_off && row->size == row->golden_size) continue;
        n_wrong++;
        printf("%s%s%s: offset %zu, size %zu; the table says %zu, %zu\n", row->type,
               row->field != NULL ? "." : "", row->field != NULL ? row->field : "", row->off,
               row->size, row->golden_off, row->golden_size);
    }
    assert_int_equal(n_wrong, 0);
}

/* The table leaves no field out: what follows a field begins where it ends, but for alignment. */
static void test_table_is_complete(void **state) {
    size_t i, end = 0, size = 0;
    const char *type = "";
    (void)state;
    for (i = 0; i < sizeof layout / sizeof layout[0]; i++) {
        const layout_row *row = &layout[i];
        if (row->field == NULL) {
            if (end + 8 <= size) fail_msg("%s: %zu bytes at its end", type, size - end);
            type = row->type, size = row->size, end = 0;
            continue;
        }
        assert_string_equal(row->type, type);
        if (row->off >= end + 8)
            fail_msg("%s: %zu bytes before %s", type, row->off - end, row->field);
        if (row->off + row->size > end) end = row->off + row->size; /* unions go back to 0 */
    }
}

static void test_numbers(void **state) {
    size_t i;
    (void)state;
    for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].value != numbers[i].golden)
            fail_msg("%s is %lld; the table says %lld", numbers[i].name, numbers[i].value,
                     numbers[i].golden);
}

/* Callers that know only the beginning of a table see only its beginning. */
static void test_has(void **state) {
    tdm_buffer_ops ops = {.struct_size = offsetof(tdm_buffer_ops, copy)};
    const tdm_buffer_ops *none = NULL;
    tdm_plan_params params = {.struct_size = sizeof(size_t)};
    (void)state;
    ops.upload =
        (tdm_status(*)(tdm_buffer *, uint64_t, const void *, uint64_t, tdm_error *))(uintptr_t)1;
    ops.copy = (tdm_status(*)(tdm_buffer *, uint64_t, tdm_buffer *, uint64_t, uint64_t,
                              tdm_error *))(uintptr_t)1;
    assert_true(TDM_HAS(&ops, upload));
    assert_false(TDM_HAS(&ops, download)); /* NULL */
    assert_false(TDM_HAS(&ops, copy));     /* beyond struct_size */
    assert_false(TDM_HAS(none, upload));
    assert_false(TDM_FIELD(&params, flags));
    params.struct_size = sizeof params;
    assert_true(TDM_FIELD(&params, flags));
    assert_string_equal(TDM_PLUGIN_ENTRY_NAME, "tdm_plugin_entry_v0");
    assert_int_equal(TDM_ABI_VERSION, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_table_is_complete),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
