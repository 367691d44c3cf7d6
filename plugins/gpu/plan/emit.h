/* SPDX-License-Identifier: MIT
 *
 * emit.h: what an op's emitter (plugins/gpu/ops) is given and what it may do: read the node's
 * values and the device's limits, take scratch, and append steps.
 *
 * An emitter answers two questions with the same code. supports_op calls it without a plan: the
 * steps are checked and dropped. graph_prepare calls it with one. So a device refuses exactly what
 * its planner cannot do, and says why.
 */
#ifndef TANDEM_GPU_EMIT_H
#define TANDEM_GPU_EMIT_H

#include "plugins/gpu/plan/step.h"
#include "plugins/gpu/plan/target.h"
#include "tandem/graph.h"

typedef struct gpu_maker gpu_maker; /* a plan that is being made: plan.c */

/* A value as kernels see it: views are resolved. */
typedef struct gpu_value {
    bool is_present;
    bool is_private; /* a weight in the layout of gpu_weight (layout/weight.h): ne is its shape */
    tdm_type type;
    uint32_t usage;
    int64_t ne[TDM_MAX_DIMS];
    int64_t nb[TDM_MAX_DIMS]; /* bytes from element to element; along the axis of a quantised type's
                                 blocks from block to block */
    gpu_operand place;        /* the bytes from its first element to the end of its last */
} gpu_value;

typedef struct gpu_emit {
    const gpu_target *target;
    const tdm_graph *graph;
    const tdm_node *node;
    int32_t index; /* of the node */
    gpu_value src[TDM_MAX_SRC];
    gpu_value dst[TDM_MAX_DST]; /* contiguous */
    gpu_maker *maker;           /* NULL: supports_op */
} gpu_emit;

typedef tdm_status (*gpu_emit_fn)(gpu_emit *e, tdm_error *err);

/* The emitter of an op; NULL where there is none. The table is in plugins/gpu/ops/ops.c: the
 * planner has no op. [any-thread] */
gpu_emit_fn gpu_op_emitter(int32_t op);

/* A step of the emitter's node with the given kernel and threads in a workgroup; all else is 0. */
gpu_step gpu_step_make(const gpu_emit *e, gpu_kernel kernel, int32_t group_size);

/* Sets the step's grid to at least n workgroups: along x alone where the device allows, else over
 * x and y, so that workgroup (x, y) has number x + y * grid[0]. A kernel compares its number with
 * what its words say, and ends where there is no work. Fails where the device has no such grid. */
tdm_status gpu_step_grid(const gpu_emit *e, gpu_step *step, int64_t n, tdm_error *err);

/* Appends a step. Fails where a limit of the device is exceeded: threads, grid, operand range, loop
 * iterations (step->trips). The message names the node. TDM_INTERNAL where an operand reaches past
 * its memory. */
tdm_status gpu_emit_step(gpu_emit *e, const gpu_step *step, tdm_error *err);

/* The step that wrote `what`, all of it as its operand 0 but for gpu_step.inner, for an emitter that lets the step write more. NULL
 * where there is no such step, where another has written bytes of it since, or where that step or a later one
 * writes bytes of `with`, which the step would read. Valid until a step is appended. */
gpu_step *gpu_emit_writer(gpu_emit *e, const gpu_operand *what, const gpu_operand *with);

/* Scratch of `size` bytes, 256-byte aligned, for steps of this node: bytes are undefined until a
 * step writes them. */
gpu_operand gpu_emit_scratch(gpu_emit *e, uint64_t size);

/* Bytes that steps of this plan read and that never change, such as a table of frequencies. They
 * are copied into the plan, 16-byte aligned; equal bytes are kept once. */
gpu_operand gpu_emit_constant(gpu_emit *e, const void *bytes, uint64_t size);

/* Makes an operand larger that is all of a temporary, and the temporary with it. False where it is not. */
bool gpu_emit_grow(gpu_emit *e, gpu_operand *operand, uint64_t size);

/* n counters of 32 bits for one step, by which the last of some workgroups finds out that it is the last
 * (kernels/last.h). They are 0 when the step begins, and its kernel must leave zeros. */
gpu_operand gpu_emit_counters(gpu_emit *e, int64_t n);

typedef enum gpu_form {
    GPU_FORM_Q8 = 1, /* rows as bytes: number = matrices that divide them (ops/quantize.c) */
    GPU_FORM_F16,    /* rows as f16: number likewise */
    GPU_FORM_ANGLE   /* cos and sin of RoPE's angles: number = table, mscale, and 2 * pos_add +
                       is_inverse (ops/rope.c) */
} gpu_form;

/* What a form is, beside the views that it is made of. */
typedef struct gpu_form_key {
    int32_t form;      /* gpu_form */
    int32_t number[3]; /* as the form defines them */
} gpu_form_key;

/* Scratch that holds the form `key` of source `src` and, unless `with` is -1, of source `with`, such
 * as its rows as bytes with scales. *is_new_out says whether this emitter must append the step that
 * makes it; otherwise an earlier node of the plan has done so for the same views and size. Not for
 * a STATE. */
gpu_operand gpu_emit_form(gpu_emit *e, int src, int with, const gpu_form_key *key, uint64_t size,
                          bool *is_new_out);

/* Whether a form of the plan lies at `place` and is made with the same view as `with`, or both with none. */
bool gpu_emit_form_is_with(const gpu_emit *e, const gpu_operand *place, const gpu_value *with);

/* Moves a new form, which no step names yet, behind operand 0 of a step that writes it too: the operand has
 * both from here on. False where it is not all of a temporary. */
bool gpu_emit_form_behind(gpu_emit *e, gpu_step *step, gpu_operand *form);

/* Copies ne[4], or the strides of v counted in elements (blocks of a quantised type), to four
 * words. Fails with a message where a number is above 2^31 - 1. `ne` is the shape over which the
 * kernel steps through v: an axis along which either has one element has stride 0, so v is repeated
 * there. */
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
