/* SPDX-License-Identifier: MIT
 *
 * emit.h: the interface of emitters. An emitter (plugins/gpu/ops) appends the steps of an op's node
 * or of a fusion to a plan: it reads the node's values and the device's limits, and takes scratch.
 *
 * supports_op and graph_prepare call the same emitters. supports_op calls them without a plan
 * (gpu_emit.maker is NULL): steps are checked and dropped. So a device refuses exactly the nodes
 * that its planner cannot plan, with the reason. An emitter must not decide by gpu_emit.maker what
 * it refuses.
 *
 * Functions here may be called by any thread; one gpu_maker belongs to one thread at a time.
 */
#ifndef TANDEM_GPU_EMIT_H
#define TANDEM_GPU_EMIT_H

#include "plugins/gpu/plan/step.h"
#include "plugins/gpu/plan/target.h"
#include "tandem/graph.h"

typedef struct gpu_maker gpu_maker; /* a plan that is being made: maker.h */

/* A value as kernels see it: views are resolved. */
typedef struct gpu_value {
    bool is_present; /* false: an optional source or destination is absent, all else is 0 */
    bool is_private; /* a weight in the layout of layout/weight.h; nb is that of canonical bytes */
    tdm_type type;
    uint32_t usage; /* TDM_USAGE_*, of a weight; else 0 */
    int64_t ne[TDM_MAX_DIMS];
    int64_t nb[TDM_MAX_DIMS]; /* bytes from element to element; along the axis of a quantised type's
                                 blocks from block to block */
    gpu_operand place; /* the bytes from its first element to the end of its last; of a private
                          weight or a STATE all bytes */
} gpu_value;

typedef struct gpu_emit {
    const gpu_target *target;
    const tdm_graph *graph;
    const tdm_node *node;
    int32_t index; /* of the node */
    gpu_value src[TDM_MAX_SRC];
    gpu_value dst[TDM_MAX_DST]; /* contiguous */
    gpu_maker *maker;           /* NULL = there is no plan: steps are only checked */
} gpu_emit;

typedef tdm_status (*gpu_emit_fn)(gpu_emit *e, tdm_error *err);

/* The emitter of an op; NULL where there is none. The table is in plugins/gpu/ops/ops.c, so that
 * the planner does not depend on the ops. [any-thread] */
gpu_emit_fn gpu_op_emitter(int32_t op);

/* A step of the emitter's node with the given kernel and threads in a workgroup, on a grid of one
 * workgroup; all else is 0. */
gpu_step gpu_step_make(const gpu_emit *e, gpu_kernel kernel, int32_t group_size);

/* Sets the step's grid to at least n workgroups: along x alone where the device allows, else over
 * x and y, so that workgroup (x, y) has number x + y * grid[0]. The grid may have more than n: a
 * kernel compares its number with what its words say, and ends where there is no work. n = 0 gives
 * an empty grid, which gpu_emit_step refuses. TDM_UNSUPPORTED where the device has no such grid. */
tdm_status gpu_step_grid(const gpu_emit *e, gpu_step *step, int64_t n, tdm_error *err);

/* Appends a copy of a step. TDM_UNSUPPORTED, with a message that names the node, where the device
 * has no such kernel, computes the step wrongly (gpu_target.is_wrong), or a limit is exceeded:
 * threads, grid, operand range, loop iterations (step->trips). With a plan also TDM_INTERNAL where
 * an operand reaches past its memory, and TDM_RESOURCE_EXHAUSTED. */
tdm_status gpu_emit_step(gpu_emit *e, const gpu_step *step, tdm_error *err);

/* The step that wrote the bytes `what`, for an emitter that makes this step store more. `what` must
 * be all of the step's operand 0, gpu_step.inner aside. NULL where there is no such step, where a
 * later step has written bytes of `what`, or where that step or a later one writes bytes of `with`,
 * which the step would then read. NULL without a plan. Valid until a step is appended. */
gpu_step *gpu_emit_writer(gpu_emit *e, const gpu_operand *what, const gpu_operand *with);

/* Scratch of `size` bytes, 256-byte aligned, for steps of this node: bytes are undefined until a
 * step writes them. Without memory gpu_emit_step fails later. */
gpu_operand gpu_emit_scratch(gpu_emit *e, uint64_t size);

/* Bytes that steps of this plan read and that never change, such as a table of frequencies. size is
 * above 0. They are copied into the plan, 16-byte aligned; equal bytes are stored once. */
gpu_operand gpu_emit_constant(gpu_emit *e, const void *bytes, uint64_t size);

/* Adds `size` bytes to an operand that covers a whole temporary, and to the temporary. False, with
 * nothing changed, where it does not cover one, and without a plan. */
bool gpu_emit_grow(gpu_emit *e, gpu_operand *operand, uint64_t size);

/* n counters of 32 bits for one step, by which a kernel finds out which of some workgroups ends
 * last (kernels/last.h). They are 0 when the step begins, and its kernel must leave zeros. */
gpu_operand gpu_emit_counters(gpu_emit *e, int64_t n);

/* A form: a source converted to what kernels read, such as rows as bytes with scales. It is made by
 * one step and kept for all later nodes of the plan that need the same. */
typedef enum gpu_form {
    GPU_FORM_Q8 = 1, /* rows as bytes (ops/quantize.c). number[0] = matrices of the product, by
                        which the rows are ordered */
    GPU_FORM_F16,    /* rows as f16. number[0] likewise */
    GPU_FORM_ANGLE   /* cos and sin of RoPE's angles (ops/rope.c). number = the table of turns,
                        mscale as the bits of f32, and 2 * pos_add + is_inverse */
} gpu_form;

/* Which form, besides the views that it is made of. */
typedef struct gpu_form_key {
    int32_t form;      /* gpu_form */
    int32_t number[3]; /* as the form defines them */
} gpu_form_key;

/* Scratch that holds the form `key` of source `src` and, unless `with` is -1, of source `with`.
 * *is_new_out = true: this emitter must append the step that makes it. False: an earlier node of
 * the plan has done so for the same views and size. Not for a STATE, whose bytes change during a
 * run. */
gpu_operand gpu_emit_form(gpu_emit *e, int src, int with, const gpu_form_key *key, uint64_t size,
                          bool *is_new_out);

/* True where a form of the plan lies at `place` and its second view is the same as `with`, or both
 * are absent. */
bool gpu_emit_form_is_with(const gpu_emit *e, const gpu_operand *place, const gpu_value *with);

/* Moves a new form, which no step uses yet, behind operand 0 of a step that is to write it too:
 * from here on operand 0 covers both, and *form is the form's new place. False, with nothing
 * changed, where operand 0 does not cover a whole temporary. */
bool gpu_emit_form_behind(gpu_emit *e, gpu_step *step, gpu_operand *form);

/* Copy ne[4], or the strides of v counted in elements (blocks of a quantised type), to four words.
 * TDM_UNSUPPORTED with a message where a number is above 2^31 - 1. `ne` is the shape that the
 * kernel iterates over: along an axis where ne or v has one element the stride is 0, so that v is
 * repeated there. */
tdm_status gpu_words_shape(const gpu_emit *e, int32_t word[4], const int64_t ne[4], tdm_error *err);
tdm_status gpu_words_strides(const gpu_emit *e, int32_t word[4], const gpu_value *v,
                             const int64_t ne[4], tdm_error *err);
/* One number, which must fit an int32. */
tdm_status gpu_word(const gpu_emit *e, int32_t *word, int64_t n, tdm_error *err);

/* A refusal: TDM_UNSUPPORTED, "<device>: <OP> (node 7): <text>". */
TDM_PRINTF(3, 4)
tdm_status gpu_refuse(const gpu_emit *e, tdm_error *err, const char *format, ...);

/* All elements of a value lie one after the other in canonical order. */
bool gpu_value_is_contiguous(const gpu_value *v);
/* The elements (blocks) of each row lie one after the other. */
bool gpu_value_has_dense_rows(const gpu_value *v);

#endif
