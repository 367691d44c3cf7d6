/* SPDX-License-Identifier: MIT
 *
 * maker.h: a plan that is being made. Only plan.c, emit.c, fuse.c, order.c and lay_out.c include
 * it.
 */
#ifndef TANDEM_GPU_MAKER_H
#define TANDEM_GPU_MAKER_H

#include "core/base/view.h"
#include "plugins/gpu/plan/plan.h"

/* A temporary of the plan: the memory of a TEMP value, of a form or of an emitter's scratch. It
 * lives from the first to the last round whose steps use it. A round is the steps between two
 * barriers. They run at the same time: areas that live in the same round never share bytes. */
typedef struct gpu_area {
    uint64_t size;
    uint64_t off; /* in the scratch, once laid out */
    int32_t first_round;
    int32_t last_round; /* -1 = no step uses it: it gets no place */
} gpu_area;

/* A form (gpu_emit_form) that a step of the plan makes. */
typedef struct gpu_made_form {
    gpu_form_key key;
    gpu_operand place; /* in an area */
    gpu_value of;      /* the view that it is made of */
    gpu_value with;    /* the second view; is_present is false where there is one view only */
} gpu_made_form;

/* The *_room fields count allocated elements (of constant_room: bytes). */
struct gpu_maker {
    gpu_plan *plan;
    gpu_area *areas;        /* n_area */
    gpu_made_form *forms;   /* n_form */
    int32_t *area_of_slot;  /* n_slot: the area of a TEMP value that a node has used; else -1 */
    tdm_view_place *places; /* n_value */
    int32_t n_area, area_room;
    int32_t n_form, form_room;
    int32_t step_room;
    uint64_t constant_room;
    bool is_out_of_memory; /* an append failed; plan.c reports it */
};

/* Append a step, an area, a constant, a form. Without memory they set is_out_of_memory; the step
 * gives false, the area -1, the constant 0. Otherwise they return true, the area's number, the
 * constant's offset in gpu_plan.constants. */
bool gpu_maker_step(gpu_maker *maker, const gpu_step *step);
int32_t gpu_maker_area(gpu_maker *maker, uint64_t size);
uint64_t gpu_maker_constant(gpu_maker *maker, const void *bytes, uint64_t size);
void gpu_maker_form(gpu_maker *maker, const gpu_made_form *form);

/* Sets e's sources and destinations from its node. places[n_value]: where the graph's values lie;
 * NULL = derived here. Fails where a weight has no layout (layout/weight.h). */
tdm_status gpu_node_fill(gpu_emit *e, const tdm_view_place *places, tdm_error *err);

/* Sorts the steps into rounds and sets barriers, after the last step was appended. round_of[n_step]
 * receives the round of each step in the new order. False without memory. */
bool gpu_maker_order(gpu_maker *maker, int32_t *round_of);

/* Gives every area that a step uses its place in the scratch, and turns operands in areas into
 * operands in the scratch. After gpu_maker_order. False without memory. */
bool gpu_maker_lay_out(gpu_maker *maker, const int32_t *round_of);

#endif
