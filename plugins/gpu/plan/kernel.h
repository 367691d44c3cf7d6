/* SPDX-License-Identifier: MIT
 *
 * kernel.h: the one list of the kernels of GPU plugins, and the arguments that a kernel gets.
 *
 * KERNEL(NAME, name, n_operand, writes, rt), a row for each kernel:
 *   name       file of its source: plugins/vulkan/shaders/NAME.comp, plugins/gpu/kernels/NAME.cu
 *   n_operand  number of its operands, at most GPU_MAX_OPERAND
 *   writes     bit i is set where it writes operand i. The planner orders steps by these bits:
 *              where one is missing, steps that need an order run at the same time
 *   rt         of CUDA and HIP: RT_SHARED(bytes of shared memory that the kernel takes, by the
 *              functions of plugins/gpu/rt/shared.c); RT_ONLY(the same) where Vulkan has no such
 *              kernel; RT_ABSENT where CUDA and HIP have none
 *
 * The comment before a row gives its operands, words and specialisation numbers ("Spec") in their
 * order. What a kernel computes depends on these and on its workgroup's number alone.
 */
#ifndef TANDEM_GPU_KERNEL_H
#define TANDEM_GPU_KERNEL_H

#include <stdint.h>

/* Terms of the comments below. "split": seven words (gpu_words_split) by which a kernel turns the
 * number of an element into coordinates. "ne[4]", "stride[4]": four words each; strides count
 * elements. The number of row (i1, i2, i3) of a value is i1 + ne[1] * (i2 + ne[2] * i3).
 * "Divisor": the two words of a gpu_divisor (ops/axes.h). An invocation is a thread. */
/* clang-format off */
#define GPU_KERNEL_LIST(KERNEL) \
    GPU_KERNEL_LIST_VALUES(KERNEL) \
    GPU_KERNEL_LIST_PRODUCTS(KERNEL) \
    GPU_KERNEL_LIST_CACHE(KERNEL) \
    GPU_KERNEL_LIST_RECURRENT(KERNEL) \
    GPU_KERNEL_LIST_WIRE(KERNEL) \
    GPU_KERNEL_LIST_INPUT(KERNEL) \
    GPU_KERNEL_LIST_LIMITS(KERNEL) \
    GPU_KERNEL_LIST_FUSED(KERNEL)

/* The cache ops: ops/{cache,attention}.c. "page[7]" are the words of gpu_cache_words (ops/cache.h).
 * In the kernels of ATTENTION and KV_SELECT, slots and positions of a cache with a stride count its
 * rows. */
#define GPU_KERNEL_LIST_CACHE(KERNEL) \
    /* Stores K and V rows in pages, rotated and quantised; a workgroup for each token, head and \
     * side (K or V). \
     * Operands: state, k, v, step, angles, pos. \
     * Words: page[7], tokens, heads, write_off of the step block, stride[3] of k, stride[3] of v, \
     *   rope[4] (ops/rope.h), by which K's rows are turned first; all 0: they are not. A cache \
     *   with a stride has no rope[4]; its words 17 = stride, 18 = tokens of a page, 19 = pos_off. \
     * Spec: 0, 1 = tdm_type of K and V, 2, 3 = head_dim, 4, 5 = rotation blocks, 6 = sides (1: V \
     *   is part of K) and GPU_WRITE_STRIDED, 7 = elements of the longer row. */ \
    KERNEL(KV_WRITE, kv_write, 6, 0x1, RT_SHARED(page_row_size(or_one(spec[7])))) \
    /* Turns stored K rows by the positions of a job; a workgroup for each job, head and slot. \
     * Operands: state, step, turns (ops/angle.h), factor. \
     * Words: page[7], heads, job_off, jobs, first element that is stored again, number of such \
     *   elements, stride of factor. \
     * Spec: 0 = tdm_type, 1 = head_dim, 2 = rotation block, 3 = 1 where it has factors, \
     *   4 = tdm_rope_mode, 5 = rope_offset, 6 = pairs, 7 = elements of a row. */ \
    KERNEL(KV_SHIFT, kv_shift, 4, 0x1, RT_SHARED(kv_shift_size(spec))) \
    /* Copies slots from page to page; an invocation for each 4-byte word of a page. \
     * Operands: state, step. \
     * Words: page[7], heads, job_off, jobs, tokens of a page. \
     * Spec: 0, 1 = tdm_type of K and V, 2, 3 = head_dim, 4 = 1 where V is part of K, 5 = stride \
     *   of the cache, 1 = none. */ \
    KERNEL(KV_COPY, kv_copy, 2, 0x1, RT_SHARED(0)) \
    /* Copy canonical rows out of pages (KV_EXPORT) and into pages (KV_IMPORT); an invocation for \
     * each job, slot, head and block (of a plain type: element). \
     * Operands: state, k, v, step. \
     * Words: page[7], rows, heads, job_off, jobs, stride[3] of k and of v in blocks, invocations, \
     *   tokens of a page. \
     * Spec: as of KV_COPY, but 4 = 1 where K alone is copied, 2 where V is too. */ \
    KERNEL(KV_EXPORT, kv_export, 4, 0x6, RT_SHARED(0)) \
    KERNEL(KV_IMPORT, kv_import, 4, 0x1, RT_SHARED(0)) \
    /* Prepares queries: turned, scaled, padded with zeros and rotated as K is: dst [elements, \
     * n_head, n_tok] f32. \
     * Operands: dst, q, angles, pos, positions in the step block where there is a temperature. \
     * Words: n_tok, n_head, stride[3] of q, scale as the bits of f32, rope[4] (ops/rope.h), \
     *   temperature_scale as the bits of f32, temperature_length, temperature_offset. \
     * Spec: 0 = head_dim, 1 = elements, 2 = rotation block. */ \
    KERNEL(ATTENTION_QUERY, attention_query, 5, 0x1, RT_SHARED(taken(or_one(spec[1]), 4))) \
    /* Attention over one part of a sequence. Writes a record {m, l, unused, unused, o} of f32 for \
     * each part, head and token: [n_part, n_head, n_tok]. Parts that begin behind the longest \
     * sequence of the step get no record: this kernel and ATTENTION_MERGE both derive their \
     * number from `longest` of the step block. \
     * Operands: records, query, state, step, slopes [n_head] (ALiBi) or bias [2 * n_far + 1, \
     *   n_head], lists as SELECT_SLOTS writes them. \
     * Words: page[7], n_tok, n_head, n_part, first KV head of the state that is read, \
     *   heads_per_kv, pos_off, seq_off, first_entry_off, entry_off, capacities n_seq and n_entry, \
     *   first query head of that KV head, counted from the node's first one (negative where the \
     *   node does not have it), KV heads that are read. \
     * Spec: 0, 1 = tdm_type of K and V, 2 = elements of a query, 3 = of o, 4 = query heads of a \
     *   workgroup, 5 = gpu_attention_flag, and from bit GPU_ATTENTION_STRIDE_SHIFT on the stride \
     *   of the cache, 0 = none, 6 = window, 7 = softcap as the bits of f32, or with a bias \
     *   n_far. */ \
    KERNEL(ATTENTION_PART, attention_part, 6, 0x1, RT_SHARED(attention_part_size(spec))) \
    /* The same on devices with subgroups of 8, where V is not part of K, pages are a multiple of \
     * 8 slots and queries a multiple of 8 elements; up to 4 query heads of a workgroup, without \
     * slopes, bias and lists. */ \
    KERNEL(ATTENTION_LANE, attention_lane, 4, 0x1, RT_ABSENT) \
    /* The same for tiles of 32 rows: a row is a token and one of `heads` query heads. Without \
     * GPU_ATTENTION_SPLIT all parts of a row are folded into one record; a step that computes \
     * only some of them leaves a record from which the next step continues. \
     * Operands and words: as of ATTENTION_PART, but word 9 = n_part and, from bit 16 on, the \
     *   first part; 19 = KV heads and, from bit 17 on, the number of parts. \
     * Spec: as of ATTENTION_PART, but 4 = heads. */ \
    KERNEL(ATTENTION_TILE, attention_tile, 6, 0x1, RT_SHARED(attention_tile_size(spec))) \
    /* The same on matrix hardware, for tiles of 32 or 64 rows. A workgroup writes one record for \
     * all parts that it computes: there are n_part / that number records, rounded up. K and V are \
     * f16 or types with blocks; there are no bias and no lists. ATTENTION_LATENT_MATRIX is for V \
     * that is part of K. On CUDA and HIP 4 threads share a row; in ATTENTION_LATENT_MATRIX, which \
     * has no slopes there, 8. \
     * With gpu_target.matrix_rows a tile has 32 rows and a workgroup four subgroups, in \
     *   ATTENTION_LATENT_MATRIX eight, and this kernel has lists, too; spec 4 has rows of a matrix \
     *   of sums from bit 8 on and columns from bit 16 on. ATTENTION_TILE_HALF and \
     *   ATTENTION_LATENT_HALF are this form without matrix hardware, for tests. \
     * With GPU_ATTENTION_MERGES (ATTENTION_TILE_MATRIX of CUDA and HIP only) the last workgroup \
     *   with parts of some rows does the work of ATTENTION_MERGE. Operand 0 is then o [elements, \
     *   n_head, n_tok], followed by the records and, with GPU_ATTENTION_BYTES, by o of each token \
     *   as bytes; operand 4 is the role of each token; operand 5 are counters (kernels/last.h), \
     *   one for each tile. Elements of o are head_dim. */ \
    KERNEL(ATTENTION_TILE_MATRIX, attention_tile_matrix, 5, 0x1, RT_SHARED(attention_matrix_size(step, 4))) \
    KERNEL(ATTENTION_LATENT_MATRIX, attention_latent_matrix, 6, 0x1, RT_SHARED(attention_matrix_size(step, 8))) \
    KERNEL(ATTENTION_TILE_HALF, attention_tile_half, 5, 0x1, RT_ABSENT) \
    KERNEL(ATTENTION_LATENT_HALF, attention_latent_half, 6, 0x1, RT_ABSENT) \
    /* Folds records, divides by l, and undoes V's rotation. \
     * Operands: o, ml, records, sink, step. \
     * Words: n_tok, n_head, records of a row, stride of sink. \
     * Spec: 0 = elements of o in a record, 1 = head_dim, 2 = rotation block, 3 = parts of a \
     *   record (0 = 1), 5 = stride as of ATTENTION_PART. \
     * With spec 4 = 1, operand 1 is not ml but o of each token as a row of bytes, as QUANTIZE \
     *   stores it; operand 5 is the role; words 4 and 5 are the role's stride and the tokens that \
     *   share one. */ \
    KERNEL(ATTENTION_MERGE, attention_merge, 6, 0x3, RT_SHARED(attention_merge_size(spec))) \
    /* Turns lists of positions into a bit for each slot of a token's pages: [words of an entry, \
     * n_entry, n_tok, n_list], from the first entry of the token's sequence on; an invocation for \
     * each word of 32 slots. \
     * Operands: dst, list, step. \
     * Words: page[7], n_tok, unused, stride[3] of list, words in all, seq_off, first_entry_off, \
     *   entry_off, capacities n_seq and n_entry. \
     * Spec: 0 = n_top, 5 = stride as of ATTENTION_PART. */ \
    KERNEL(SELECT_SLOTS, select_slots, 3, 0x1, RT_SHARED(0)) \
    /* Scores of KV_SELECT as keys (select.h): [slots of a page, n_entry, n_list, tokens of this \
     * step], from the first entry of the token's sequence on; a workgroup for each token, entry \
     * and 64 slots. \
     * Operands: keys, query, state, step, w. \
     * Words: page[7], unused, n_head, first token of this step, tokens of this step, workgroups \
     *   of an entry, pos_off, seq_off, first_entry_off, entry_off, capacities n_seq and n_entry, \
     *   stride[2] of w. \
     * Spec: 0 = tdm_type, 1 = 1 where there is w, 2 = elements of a query, 4 = heads at a time, \
     *   up to 8 for each 64 threads, 5 = stride as of ATTENTION_PART. */ \
    KERNEL(SELECT_SCORE, select_score, 5, 0x1, RT_SHARED(select_score_size(step))) \
    /* Chooses the lists of KV_SELECT; a workgroup of up to 256 threads for each token and list. \
     * Operands: dst, keys (changed), step. \
     * Words: as of SELECT_SCORE, but 7 = n_tok, 8 = n_list, and none of w. \
     * Spec: 0 = n_top, 1 = block_len, 2 = n_local, 3 = is_of_tokens, 5 = stride as of \
     *   ATTENTION_PART. */ \
    KERNEL(SELECT_CHOOSE, select_choose, 3, 0x3, RT_SHARED(select_choose_size()))

/* The ops on recurrent states: ops/recurrent.c. */
#define GPU_KERNEL_LIST_RECURRENT(KERNEL) \
    /* CONV1D; an invocation for each channel and token. \
     * Operands: dst (contiguous), x, w, bias, step, state. \
     * Words: channels, tokens, n_seq of the step block, slots, stride[2] of x, stride[2] of w, \
     *   stride of bias, first_tok_off, rs_read_off, rs_write_off, unit_len[8]. \
     * Spec: 0 = k, 1 = 1 where it has a bias, 2 = segments, 3 = tdm_act of the sum. */ \
    KERNEL(CONV1D, conv1d, 6, 0x21, RT_SHARED(0)) \
    /* Writes the table that LINEAR_SCAN reads for all rows of its matrices; an invocation for \
     * each number. For each sequence: its first token, the end of its tokens, the slot that it \
     * starts from. For each token: the slot that its state is stored in, and 1 where it belongs \
     * to a sequence. Then, from a multiple of 4 words on, f32: beta [n_v, n_tok] or erase and \
     * write [dk, 2, n_k, n_tok], rates [n_rate, n_v, n_rate_tok], factors [n_factor, n_v]. A slot \
     * is -1 where it is absent or a later token stores in it. \
     * Operands: table, g, a, beta or erase, step, write. \
     * Words: n_seq, n_tok, n_v, n_rate, n_factor, n_rate_tok, stride[3] of g, stride[2] of a, \
     *   strides of beta or erase over heads and tokens, slots, first_tok_off, rs_read_off, \
     *   rs_write_off, words before the f32, strides of write over heads and tokens. \
     * Spec: 0 = gpu_scan_decay, 1 = 1 where there is beta, 2 where there are erase and write, \
     *   2 = dk, 3 = n_k, 4, 5 = stride of an element of erase and of write. */ \
    KERNEL(LINEAR_SCAN_TABLE, linear_scan_table, 6, 0x1, RT_SHARED(0)) \
    /* LINEAR_SCAN. `lanes` threads share some rows of a matrix (spec 3): each has spec 2 times 4 \
     * of their dk elements. A workgroup for some rows of a sequence; after those of the last \
     * sequence come workgroups for the tokens that belong to no sequence. \
     * Operands: dst (contiguous), q, k, v, table, state. \
     * Words: n_tok, n_seq, n_v, dv, heads_per_k, first_head - first_head_k * heads_per_k, \
     *   matrices of a unit, page_size, bytes of a unit, words of the table before the f32, \
     *   stride[3] of q, of k and of v, n_k. \
     * Spec: 0 = dk, 1 = lanes, a power of two, 2 = steps of 4 elements, 3 = rows, \
     *   4 = gpu_scan_decay, 5 = gpu_scan_flag, 6 = scale as the bits of f32. */ \
    KERNEL(LINEAR_SCAN, linear_scan, 6, 0x21, RT_SHARED(0)) \
    /* BLOCK_POOL; an invocation for each channel and chunk of tokens. \
     * Operands: dst (contiguous), x, score, bias, step, state. \
     * Words: channels of dst, tokens, n_seq of the step block, slots, stride[2] of x, of score \
     *   and of bias, first_tok_off, rs_read_off, rs_write_off, pos_off, block_len, tokens of a \
     *   chunk, chunks, page_size. \
     * Spec: 0 = n_part. */ \
    KERNEL(BLOCK_POOL, block_pool, 6, 0x21, RT_SHARED(0))

/* Arithmetic, rows, movement and selection: ops/{arith,norm,rope,move,select,merge}.c */
#define GPU_KERNEL_LIST_VALUES(KERNEL) \
    /* Elementwise kernels: axes are joined where possible (ops/axes.h). An invocation computes \
     * `width` elements along axis 0, 1 or 4. n is the number of all elements. */ \
    /* dst = op(a, b), f32, dst contiguous. \
     * Operands: dst, a, b. \
     * Words: split, stride[4] of a and of b (0 where it is repeated), n. \
     * Spec: 0 = gpu_pair_op, 1 = axes, 2 = width, 3, 4 = gpu_lane of a and b, 5 = tdm_act of GLU \
     *   and MUL_ACT, 6 = gpu_lane of dst. */ \
    KERNEL(PAIR, pair, 3, 0x1, RT_SHARED(0)) \
    /* dst = op(x), f32, dst contiguous. \
     * Operands: dst, x; of AFFINE_ACT also a, b. \
     * Words: split, stride[4] of x, n, scale and bias or min and max as the bits of f32; of \
     *   SCALED_ACT and AFFINE_ACT the second scale and bias likewise; of AFFINE_ACT the strides \
     *   of a and of b along axes 0 and 1. \
     * Spec: 0 = gpu_unary_op, 1 = axes, 2 = width, 3 = gpu_lane of x, 4 = tdm_act, 5 = gpu_lane \
     *   of dst, 6, 7 = of a and b. */ \
    KERNEL(UNARY, unary, 4, 0x1, RT_SHARED(0)) \
    /* dst = x, converted. \
     * Operands: dst, x. \
     * Words: split of dst, stride[4] of x, stride[4] of dst, n, ne[4] of x where it repeats. \
     * Spec: 0 = gpu_copy_type of x, 1 = of dst, 2 = axes, 3 = width (4: both lie dense along axis \
     *   0), 4 = 1 where x repeats, 5, 6 = 1 where x, dst are aligned (GPU_LANE_ALIGNED). */ \
    KERNEL(COPY, copy, 2, 0x1, RT_SHARED(0)) \
    /* Reduces each row of x (ne[0] elements), f32, dst contiguous; a workgroup for each row. \
     * Operands: dst, x, weight, bias, sum. \
     * Words: ne[0], split of the rows (axes 1 to 3), stride[4] of x, stride[3] of sum along axes \
     *   1 to 3 (RMS_NORM: of weight), stride of weight, stride of bias (RMS_NORM: a factor of all \
     *   rows as the bits of f32), eps and 1 / (elements of the whole row) as the bits of f32, \
     *   rows. \
     * Spec: 0 = gpu_row_op, 1 = gpu_lane of x, 2, 3 = 1 where it has a weight, a bias, 4 = 1 \
     *   where ne[0] is no multiple of 4, 5, 6, 7 = gpu_lane of dst, weight, bias. \
     * With spec 4 = 2, RMS_NORM and LAYER_NORM store dst a second time, as QUANTIZE does, in \
     *   operand 5; operand 4 is the role; words 12 and 13 are the role's stride and the rows that \
     *   share one. */ \
    KERNEL(ROW, row, 6, 0x21, RT_SHARED(taken(256, 4))) \
    /* dst [2, n_pair, n_tok] f32: cos and sin of each pair's angle at each position, times \
     * mscale. \
     * Operands: dst, pos i32, turns (ops/angle.h), factor. \
     * Words: n_pair, stride of pos, stride of factor, mscale as the bits of f32, n_pair * n_tok, \
     *   number that is added to positions, 1 where angles turn back. \
     * Spec: 0 = 1 where it has factors. */ \
    KERNEL(ANGLE, angle, 4, 0x1, RT_SHARED(0)) \
    /* dst = x with pairs turned, f32, dst contiguous. \
     * Operands: dst, x, pos, angles (of ANGLE). \
     * Words: head_dim, n_head, n_tok, stride[3] of x, stride of pos, n_rot, rope_offset, \
     *   invocations, invocations of a head (each turns a pair or copies an element) and their \
     *   divisor, divisor of n_head (gpu_divisor: multiplier, shift). \
     * Spec: 0 = tdm_rope_mode, 1 = 1 where elements are copied. */ \
    KERNEL(ROPE, rope, 4, 0x1, RT_SHARED(0)) \
    /* SINKHORN of x, or of x * a + b, f32, dst contiguous; a workgroup of 64 threads for 64 / \
     * spec 1 tokens. \
     * Operands: dst, x, a (one number), b (a number for each element of a matrix). \
     * Words: tokens, stride[3] of x, n_iter, eps as the bits of f32. \
     * Spec: 0 = rows of a matrix, 1 = threads of a matrix, a power of two, 2 = 1 where there are \
     *   a and b. */ \
    KERNEL(SINKHORN, sinkhorn, 4, 0x1, RT_SHARED(taken(64 * 17, 4))) \
    /* The k best entries (shaders/rank.glsl: a value and its index) of each chunk of each row, \
     * best first; a workgroup of k threads or more, a power of two, for each chunk. \
     * Operands: dst (entries [k, n_chunk, n_row], or the values of the last step), id (last \
     *   step), source entries [n, n_row] (not in the first step), x. \
     * Words: n, n_row, stride[2] of x, k, entries of a chunk, n_chunk, index_base. k * entries of \
     *   a chunk / threads is at most 1024. \
     * Spec: 0 = 1 in the first step, 1 = 1 in the last. */ \
    KERNEL(TOP_K, top_k, 4, 0x3, RT_SHARED(top_k_size())) \
    /* A stage of sorting rows of entries. A workgroup for each 1024 entries; in EXCHANGE an \
     * invocation for each pair, in STORE for each result. \
     * Operands: entries [padded, n_row], value, id, x. \
     * Words: n, n_row, stride[2] of x, padded (a power of two, at least 1024), run, stride, k, \
     *   index_base. \
     * Spec: 0 = gpu_sort_stage. */ \
    KERNEL(SORT, sort, 4, 0x7, RT_SHARED(rank_size())) \
    /* MOE_ROUTE; a workgroup for each token. \
     * Operands: id, weight, logit, bias, given ids. \
     * Words: n_expert (up to 1024), n_tok, stride[2] of logit, stride of bias, n_used, \
     *   n_group_used, scale as the bits of f32, id_divisor (at least 1), stride[2] of given ids. \
     * Spec: 0 = tdm_route_score, 1 = 1 where it has a bias, 2 = 1 where weights are normalised, \
     *   3 = groups of experts (1 = none), 4 = 1 where ids are given: nothing is chosen. */ \
    KERNEL(ROUTE, route, 5, 0x3, RT_SHARED(route_size())) \
    /* LSE_MERGE; an invocation for each element. \
     * Operands: dst, o, ml. \
     * Words: head_dim, n_head, n_part, stride[4] of o, stride[4] of ml, elements of dst. */ \
    KERNEL(MERGE, merge, 3, 0x1, RT_SHARED(0))

/* EXCHANGE: ops/exchange.c. A 64-bit number takes two words, the low half first.
 *   "arena"     the operand begins in area 0 (kernels add the area), and lies in the peer memory
 *               where the node has that source
 *   "area[3]"   the exchange's stage, and area_stride (2)
 *   "verdict"   a word that WIRE_WAIT writes: 1 where every member has published. Otherwise kernels
 *               that read the arena write zeros instead. Nodes in phases have no verdict
 *   "wait[12]"  members, this member, flag_off (2), chunks; then what the runtime fills in
 *               (rt/wait.h): 1 where it is the first wait of its plan, timeout in ticks of the
 *               device's clock (2), most polls of a lane (0 = no limit), address of its
 *               rt_wait_state (2); then the stage */
#define GPU_KERNEL_LIST_WIRE(KERNEL) \
    /* Stores this member's addend in the arena, converted; an invocation for each element, or for \
     * 32 elements of q8_0. \
     * Operands: arena, x (f32, contiguous), step. \
     * Words: elements, invocations, area[3]. \
     * Spec: 0 = gpu_wire. */ \
    KERNEL(WIRE_STORE, wire_store, 3, 0x1, RT_SHARED(0)) \
    /* The sum of addends and residual, exact to the bit (collective.h, step 4). y may be a part \
     * of the sum: then it consists of runs of neighbouring elements of an addend, at a fixed \
     * distance. \
     * Operands: y (contiguous), arena, step, residual (contiguous), verdict. \
     * Words: elements of y, area[3]; elements of a run, and their divisor; elements of an addend \
     *   from run to run, and the first element of the first run; senders, and bytes from addend \
     *   to addend, as 64-bit numbers. \
     * Spec: 0 = gpu_wire, 1 = members, 2 = 1 where there is a residual, 3 = 1 where there is a \
     *   verdict. */ \
    KERNEL(WIRE_SUM, wire_sum, 5, 0x1, RT_SHARED(0)) \
    /* Copies bytes into the arena or out of it, in units. A part that is published consists of \
     * runs of neighbouring units of the whole result, at a fixed distance. \
     * Operands: dst, src, step, verdict. \
     * Words: units, area[3]; units of a run, and their divisor; units of the whole from run to \
     *   run, and the first unit of the first run. \
     * Spec: 0 = bytes of a unit, 1 = 1 where dst is the arena, 2 = 1 where there is a verdict. */ \
    KERNEL(WIRE_COPY, wire_copy, 4, 0x1, RT_SHARED(0)) \
    /* Steps 2 and 3 of the protocol (collective.h) for all chunks: raises this member's flag and \
     * waits for the flags of all members. One workgroup of 64 threads. \
     * Operands: arena (from its first byte on), verdict, step, peer memory (likewise; absent \
     *   where flags are in the arena alone). \
     * Words: wait[12]. */ \
    KERNEL(WIRE_WAIT, wire_wait, 4, 0xb, RT_ONLY(taken(4, 4))) \
    /* The whole exchange of a short sum: WIRE_STORE, WIRE_WAIT and WIRE_SUM in one. One workgroup \
     * of 64 threads or more. \
     * Operands: y, x, residual (all contiguous and at multiples of 16 bytes), arena, step, the \
     *   memory that has flags and data: arena or peer memory. \
     * Words: wait[12], area_stride (2), elements, a multiple of 4; senders (2), bytes from addend \
     *   to addend (2) and to the first one. \
     * Spec: 0 = gpu_wire, no q8_0, 1 = members, 2 = 1 where there is a residual. */ \
    KERNEL(WIRE_REDUCE, wire_reduce, 6, 0x29, RT_ONLY(taken(4, 4)))

/* Launched by the runtime before a plan's steps; no op uses it. */
#define GPU_KERNEL_LIST_INPUT(KERNEL) \
    /* Copies bytes that the host has written into memory of the device; an invocation for each 16 \
     * bytes. \
     * Operands: dst, src. \
     * Words: units of 16 bytes. */ \
    KERNEL(FETCH, fetch, 2, 0x1, RT_ONLY(0))

/* Kernels that measure a device; no op uses them. */
#define GPU_KERNEL_LIST_LIMITS(KERNEL) \
    /* Reads memory, or multiplies and adds. \
     * Operands: dst (not written), src. \
     * Words: invocations, trips. \
     * Spec: 0 = 0: each trip reads four times 16 bytes, the lanes of a subgroup side by side; \
     *   0 = 1: each trip does 64 multiply-adds of f32. */ \
    KERNEL(LIMIT, limit, 2, 0x1, RT_ABSENT) \
    /* Computes in registers. \
     * Operand: dst (not written). \
     * Words: trips. \
     * Spec: 0 = 0: each trip multiplies four times two matrices of 16 x 16 bytes in each wave; \
     *   0 = 1: each trip does 16 multiply-adds of f32 in each thread. */ \
    KERNEL(LIMIT_RATE, limit_rate, 1, 0x1, RT_ONLY(2 * taken(16, 16)))

/* Several nodes in one: ops/fusions.c */
#define GPU_KERNEL_LIST_FUSED(KERNEL) \
    /* sum = a + b, dst = RMS_NORM(sum), f32, all contiguous and of one shape; a workgroup for \
     * each row. \
     * Operands: dst, sum, a, b, weight. \
     * Words: elements of a row, rows, stride of weight, eps and 1 / (elements of a row) as the \
     *   bits of f32, split of the rows (axes 1 to 3), stride[3] of weight. \
     * Spec: 0 = 1 where it has a weight, 1 = 1 where a row is no multiple of 4 elements, \
     *   2 = gpu_lane of weight, 3 = of the others, 4 = 1 where the weight has several rows. \
     * With spec 5 = 1, dst is followed by its rows as bytes, as QUANTIZE stores them; operand 5 \
     *   is the role; words 15 and 16 are the role's stride and the rows that share one. */ \
    KERNEL(ADD_NORM, add_norm, 6, 0x3, RT_SHARED(taken(256, 4))) \
    /* dst = sum of values of one shape, from left to right, f32, rows dense; or dst = sum * scale \
     * + bias. \
     * Operands: dst (contiguous), a, b, c, d. \
     * Words: split, stride[2] of each value along axes 1 and 2, n, scale and bias as the bits of \
     *   f32. \
     * Spec: 0 = values, 2 to 4, 1 = axes, at most 3, 2 = width, 3 = gpu_lane of all, 4 = 1 where \
     *   the sum is scaled. */ \
    KERNEL(SUM, sum, 5, 0x1, RT_SHARED(0)) \
    /* sum[e, s, t] = sum over j of c[j, s, t] * x[e, j, t] + f[s, t] * y[e, t], or without c x[e, \
     * s, t] + f[s, t] * y[e, t]; dst = RMS_NORM(sum), or sum where there is no norm. f32; rows of \
     * x, y, weight are dense and aligned, dst and sum contiguous. \
     * Operands: dst, sum (where it is stored beside the norm), x, c or else weight, y or else \
     *   weight, f. \
     * Words: elements of a stream (a multiple of 4), streams of dst, tokens, strides of x over \
     *   streams and tokens, of c over j, s, t, of y over tokens, of f over s, t, eps and 1 / \
     *   (elements that are normed together) as the bits of f32, stride of weight over s, \
     *   workgroups, workgroups of a stream, and groups of four elements of a workgroup. \
     * Spec: 0 = streams of x that are added, 0 = no c, 1 = 1 where there is y, \
     *   2 = gpu_streams_norm, 3 = 1 where there is a weight, 4 = 1 where sum is stored beside the \
     *   norm. */ \
    KERNEL(STREAMS, streams, 6, 0x3, RT_SHARED(taken(256, 4)))

/* Kernels that read weights: ops/{product,matmul,moe,rows}.c. Spec: 0 = tdm_type of the weight,
 * 1 = gpu_product_flag. A matrix has rows of k elements. s0, s1, s2: distances, in blocks, of
 * neighbouring blocks of a row, of rows and of matrices. Operand 5 ("grid") is the codebook of an
 * iq type (tandem/grid.h), absent for other types. */
#define GPU_KERNEL_LIST_PRODUCTS(KERNEL) \
    /* Rows of a table as f32, zeros for a foreign id; an invocation for each 32 elements of each \
     * row of dst. \
     * Operands: dst, table, id (i32), unused, unused, grid. \
     * Words: k, ids, stride of id, first row (low word, high word), rows of the table, s0, s1. */ \
    KERNEL(GET_ROWS, get_rows, 6, 0x1, RT_SHARED(0)) \
    /* PRODUCT: y of a column = its matrix times x of the column (ops/product.h). A workgroup for \
     * each tile, tiles of rows first, then of columns, then matrices. \
     * Operands: dst, weight, x, value that a sum is combined with (gpu_product_end), ids or \
     *   sorted table (PLAIN: a factor), grid. \
     * Words: 0 rows n, 1 k, 2 columns of each matrix (PAIRS: pairs; SORTED: tiles), 3, 4 \
     *   column_ne (PAIRS: 3 = n_used; PAIRS, SORTED: 4 = pairs that share a row of x), 5 to 7 x \
     *   strides, 8 x stride from matrix to matrix, 9 y stride from matrix to matrix, 10 y stride \
     *   from column to column, 11 s0, 12 s1, 13 s2, 14 x stride along k, 15 first expert (PLAIN: \
     *   stride of operand 3), 16 matrices, 17, 18 id strides (PLAIN: `before` and `after` of \
     *   gpu_product_end), 19 workgroups that have work. \
     * Spec: 0, 1 as above, 2 = rows and 3 = columns of a tile, 4 = gpu_product_mode, \
     *   7 = gpu_product_end. \
     * PRODUCT_ROW is for up to 8 columns: the threads divide k. Spec 2 is the rows of the \
     *   workgroup. */ \
    KERNEL(PRODUCT_ROW, product_row, 6, 0x1, RT_SHARED(product_row_size(spec))) \
    /* PRODUCT for small subgroups: 8 rows of a thread. */ \
    KERNEL(PRODUCT_LANE, product_lane, 6, 0x1, RT_ABSENT) \
    /* PRODUCT in tiles of 64 rows and 32 columns: 128 threads, 12 KiB of shared memory. */ \
    KERNEL(PRODUCT_TILE, product_tile, 6, 0x1, RT_SHARED(taken(32 * 64, 4) + taken(32 * 32, 4))) \
    /* x of products as bytes (shaders/bytes.glsl); an invocation for each 32 elements. \
     * Operands: dst, x, role. \
     * Words: 0 k (a multiple of 32), 1 rows, 2 groups of 32 elements of a row, 3, 4 column_ne, 5 \
     *   to 7 x strides, 8 x stride from matrix to matrix, 9 rows of a matrix, 10 x stride along \
     *   k, 11 stride of role, 12 rows that share a role. \
     * Spec: 0 = 1 where there are roles, 1 = 1 where rows are dense and begin at multiples of 16 \
     *   bytes. */ \
    KERNEL(QUANTIZE, quantize, 3, 0x1, RT_SHARED(0)) \
    /* PRODUCT_ROW and PRODUCT_TILE with integer dot products: x is what QUANTIZE writes, word 5 \
     * its rows. The tile has 32 or 64 columns, with 11 or 15.5 KiB of shared memory. \
     * With spec 5 = 1 (CUDA and HIP only) PRODUCT_ROW_DOT stores dst, dense rows of one matrix, a \
     *   second time, behind its f32, as QUANTIZE does with the roles of x; operand 4 are then \
     *   counters (kernels/last.h), one for each 32 rows and tile of columns. */ \
    KERNEL(PRODUCT_ROW_DOT, product_row_dot, 6, 0x1, RT_SHARED(product_row_size(spec))) \
    KERNEL(PRODUCT_TILE_DOT, product_tile_dot, 6, 0x1, RT_SHARED(tile_dot_size(or_one(spec[3])))) \
    /* x of products as f16 (shaders/halves.comp); a workgroup for each row. \
     * Operands: dst, x. \
     * Words: as of QUANTIZE, without roles; k is any number. \
     * Spec: 1 = 1 where rows are dense, begin at multiples of 16 bytes and are whole groups of \
     *   32. */ \
    KERNEL(HALVES, halves, 2, 0x1, RT_SHARED(taken(256, 4))) \
    /* PRODUCT_TILE with matrix hardware, for f16 and types with blocks: x is what HALVES writes, \
     * word 5 its rows. \
     * Vulkan: four subgroups, tiles of 64 rows and 32 or 64 columns. Spec: 2 = rows of weights of \
     *   each of which an invocation loads half a group of 32 elements, 5, 6 = rows and columns of \
     *   a matrix of sums. PRODUCT_TILE_HALF is the same without the hardware, for tests. \
     * CUDA and HIP: 256 threads, tiles of 128 rows and 32, 64 or 128 columns; f16 in wide rows \
     *   only. */ \
    KERNEL(PRODUCT_TILE_MATRIX, product_tile_matrix, 6, 0x1, RT_SHARED(tile_matrix_size(or_one(spec[3])))) \
    KERNEL(PRODUCT_TILE_HALF, product_tile_half, 6, 0x1, RT_ABSENT) \
    /* The same on matrix hardware that four waves of 32 threads use together: 256 threads, tiles \
     * of 128 rows and 128 or 256 columns. */ \
    KERNEL(PRODUCT_TILE_BLOCK, product_tile_block, 6, 0x1, RT_ONLY(tile_block_size(or_one(spec[3])))) \
    /* Sorts pairs by expert; one workgroup. dst is n_tile tiles of three words (expert, first \
     * slot, pairs; 0 pairs: no work), then the pairs by slot. \
     * Operands: dst, ids. \
     * Words: pairs, n_tile, n_used, id strides (2), first expert. \
     * Spec: 0 = experts, 1 = pairs of a tile. */ \
    KERNEL(MOE_SORT, moe_sort, 2, 0x1, RT_SHARED(2 * taken(or_one(spec[0]), 4))) \
    /* h of tdm_moe_params, stored in place of g; an invocation for each element. \
     * Operands: h, u, ids, biases of gate and up, weights where is_weighted_first is set. \
     * Words: n_ff, pairs, n_used, id strides (2), weight strides (2), first expert, experts, \
     *   strides of the gate's bias (2) and of up's (2), limit, alpha and up_offset as the bits of \
     *   f32. \
     * Spec: 0 = tdm_act, 1 = is_soft. */ \
    KERNEL(MOE_FORM, moe_form, 6, 0x1, RT_SHARED(0)) \
    /* y[i, t] = sum over u of weight[u, t] * (x[i, u + n_used * t] + bias[i, e]), e = id[u, t] - \
     * first expert; an invocation for each element. \
     * Operands: dst, x, ids, weights (absent: 1), bias (absent: 0). \
     * Words: n, tokens, n_used, id strides (2), weight strides (2), first expert, experts, \
     *   strides of the bias (2). */ \
    KERNEL(MOE_SUM, moe_sum, 5, 0x1, RT_SHARED(0))
/* clang-format on */

typedef enum gpu_kernel {
/* clang-format off */
#define GPU_KERNEL_ENUM_(NAME, ...) GPU_KERNEL_##NAME,
    GPU_KERNEL_LIST(GPU_KERNEL_ENUM_)
#undef GPU_KERNEL_ENUM_
    GPU_KERNEL_COUNT_
    /* clang-format on */
} gpu_kernel;

typedef enum gpu_pair_op {
    GPU_PAIR_ADD = 0,
    GPU_PAIR_MUL,
    GPU_PAIR_DIV,
    GPU_PAIR_GLU,    /* act(a) * b */
    GPU_PAIR_MUL_ACT /* a * act(b) */
} gpu_pair_op;
typedef enum gpu_unary_op {
    GPU_UNARY_SCALE = 0,
    GPU_UNARY_CLAMP,
    GPU_UNARY_SQRT,
    GPU_UNARY_ACT,
    GPU_UNARY_SCALED_ACT, /* act(x * scale + bias) * second scale + second bias */
    GPU_UNARY_AFFINE_ACT  /* act(x * a + b) * second scale + second bias, a and b repeated */
} gpu_unary_op;
typedef enum gpu_copy_type {
    GPU_COPY_WORD = 0, /* f32 or i32 */
    GPU_COPY_F16,
    GPU_COPY_BF16
} gpu_copy_type;

typedef enum gpu_row_op {
    GPU_ROW_SOFTMAX = 0,
    GPU_ROW_RMS_NORM,
    GPU_ROW_LAYER_NORM,
    GPU_ROW_SUM_SQ,
    GPU_ROW_RMS_APPLY
} gpu_row_op;

/* Which elements of parallel residual streams are normed together. */
typedef enum gpu_streams_norm {
    GPU_STREAMS_NORM_NONE = 0,
    GPU_STREAMS_NORM_EACH, /* those of a stream */
    GPU_STREAMS_NORM_ALL   /* those of all streams of a token */
} gpu_streams_norm;

typedef enum gpu_sort_stage {
    GPU_SORT_LOAD = 0, /* entries of x, sorted in blocks of 1024 */
    GPU_SORT_EXCHANGE, /* one stride of at least 1024 */
    GPU_SORT_MERGE,    /* the strides below 1024 */
    GPU_SORT_STORE     /* the k first of each row */
} gpu_sort_stage;

/* How the matrices of a scan decay: by the rates and factors of its table. */
typedef enum gpu_scan_decay {
    GPU_SCAN_DECAY_ONE = 0, /* by one rate for each head and token */
    GPU_SCAN_DECAY_EACH,    /* by a rate for each of dk elements */
    GPU_SCAN_DECAY_FACTOR   /* by exp(rate * factor), a factor for each of dk elements */
} gpu_scan_decay;

/* Spec number 5 of LINEAR_SCAN. ALIGNED: each four elements of a row lie at a multiple of 16
 * bytes. */
typedef enum gpu_scan_flag {
    GPU_SCAN_BETA = 1,     /* there is beta */
    GPU_SCAN_TILED = 2,    /* is_tiled of tdm_scan_params */
    GPU_SCAN_CONSTANT = 4, /* rates do not depend on the token */
    GPU_SCAN_ALIGNED_STATE = 8,
    GPU_SCAN_ALIGNED_Q = 16,
    GPU_SCAN_ALIGNED_K = 32,
    GPU_SCAN_ERASE = 64 /* there are erase and write */
} gpu_scan_flag;

/* Spec number 5 of the kernels of ATTENTION that read the cache. Their sources contain the same
 * numbers. */
typedef enum gpu_attention_flag {
    GPU_ATTENTION_CAUSAL = 1,
    GPU_ATTENTION_V_FROM_K = 2,
    GPU_ATTENTION_SPLIT = 4,      /* a row has several records: one for each part or some parts */
    GPU_ATTENTION_CHUNKED = 8,    /* windows are chunks */
    GPU_ATTENTION_SLOPES = 16,    /* heads have slopes */
    GPU_ATTENTION_SYMMETRIC = 32, /* windows are symmetric */
    GPU_ATTENTION_BIAS = 64,      /* there is a bias for each distance */
    GPU_ATTENTION_LIST = 128,     /* there are lists */
    GPU_ATTENTION_LISTS = 256,    /* with LIST: each KV head has its own */
    GPU_ATTENTION_MERGES = 512,   /* the step merges its records itself: no ATTENTION_MERGE */
    GPU_ATTENTION_BYTES = 1024    /* with MERGES: o is stored as bytes too */
} gpu_attention_flag;

enum {
    GPU_ATTENTION_EXTRAS = GPU_ATTENTION_BIAS | GPU_ATTENTION_LIST, /* have entries of their own */
    GPU_ATTENTION_ROTATION_SHIFT = 11, /* with MERGES, logarithm of V's rotation block: 4 bits */
    GPU_ATTENTION_STRIDE_SHIFT = 16
};

/* Added to spec number 6 of KV_WRITE for a cache with a stride. */
enum { GPU_WRITE_STRIDED = 4 };

/* Type of the addends of an exchange in the arena. */
typedef enum gpu_wire { GPU_WIRE_F32 = 0, GPU_WIRE_F16, GPU_WIRE_BF16, GPU_WIRE_Q8_0 } gpu_wire;

/* How the elements of a value follow each other along axis 0. */
typedef enum gpu_lane {
    GPU_LANE_STRIDED = 0,
    GPU_LANE_DENSE,
    GPU_LANE_REPEATED, /* one element for all */
    GPU_LANE_ALIGNED   /* dense, and each four elements lie at a multiple of their size */
} gpu_lane;

/* Spec number 1 of kernels that read weights. */
typedef enum gpu_product_flag {
    GPU_PRODUCT_PLANAR = 1,      /* the weight has the planes of layout/weight.h; else canonical */
    GPU_PRODUCT_WIDE_WEIGHT = 2, /* plain type: dense rows of whole groups of 32, 16-byte aligned */
    GPU_PRODUCT_WIDE_X = 4       /* every column of x is dense, of whole groups of 32, 16-byte
                                    aligned */
} gpu_product_flag;

/* Spec number 7 of products: how y follows from the sum of products:
 *   y = act(sum * before) * other * after + addend
 *   y = sum * act(other) * after + addend           with GPU_PRODUCT_END_OTHER_ACT
 * `other` is a factor; a bias is added to the sum first. What is absent leaves its part of the
 * formula out. */
typedef enum gpu_product_end {
    GPU_PRODUCT_END_NONE = 0,
    GPU_PRODUCT_END_ADD,          /* addend: operand 3, which has the strides of y */
    GPU_PRODUCT_END_BIAS,         /* bias: operand 3, a value for each row; word 15 is its stride */
    GPU_PRODUCT_END_GLU = 4,      /* other: the sum of the matrices of operand 3 */
    GPU_PRODUCT_END_EACH = 8,     /* other: operand 4, which has the strides of y */
    GPU_PRODUCT_END_ROWS = 16,    /* other: operand 4, a value for each row */
    GPU_PRODUCT_END_COLUMNS = 24, /* other: operand 4, a value for each column of one matrix */
    GPU_PRODUCT_END_OTHER_ACT = 32,
    GPU_PRODUCT_END_SCALED = 64,  /* before, after: words 17 and 18 as the bits of f32; else 1 */
    GPU_PRODUCT_END_ACT_SHIFT = 8 /* tdm_act from this bit on */
} gpu_product_end;

typedef enum gpu_product_mode {
    GPU_PRODUCT_PLAIN = 0, /* columns of each matrix by number */
    GPU_PRODUCT_PAIRS,     /* a column is a pair of a token and one of its experts */
    GPU_PRODUCT_SORTED     /* pairs sorted by expert */
} gpu_product_mode;

enum {
    GPU_MAX_OPERAND = 6,
    GPU_MAX_WORD = 20,
    GPU_MAX_SPEC = 8 /* specialisation numbers: constants when the kernel is compiled */
};

/* The arguments of every kernel: 128 bytes, the least that a Vulkan device offers for push
 * constants. Addresses are the device's; 0 where an operand is absent. */
typedef struct gpu_args {
    uint64_t address[GPU_MAX_OPERAND];
    int32_t word[GPU_MAX_WORD];
} gpu_args;

_Static_assert(sizeof(gpu_args) == 128, "arguments fit push constants");

#endif
