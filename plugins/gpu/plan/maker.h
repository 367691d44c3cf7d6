/* SPDX-License-Identifier: MIT
 *
 * maker.h: a plan that is being made, as plan.c, emit.c, order.c and lay_out.c see it.
 */
#ifndef TANDEM_GPU_MAKER_H
#define TANDEM_GPU_MAKER_H

#include "core/base/view.h"
#include "plugins/gpu/plan/plan.h"

/* A temporary of the plan: the memory of a TEMP value, of a form or of an emitter's scratch. It
 * lives from the first to the last round whose steps name it. A round is the steps between two
 * barriers: they run at the same time, so that areas of the same round never share bytes. */
typedef struct gpu_area {
    uint64_t size;
    uint64_t off; /* in the scratch, once laid out */
    int32_t first_round;
    int32_t last_round; /* -1: no step names it */
} gpu_area;

/* A form of a view (gpu_emit_form) that a step has made. */
typedef struct gpu_made_form {
    gpu_form_key key;
    gpu_operand place; /* in an area */
    gpu_value of;
    gpu_value with; /* not present where it is made of one view */
} gpu_made_form;

struct gpu_maker {
    gpu_plan *plan;
    gpu_area *areas;
    gpu_made_form *forms;
    int32_t *area_of_slot; /* n_slot; -1 = bound memory */
    tdm_view_place *places;
    int32_t n_area, area_room;
    int32_t n_form, form_room;
    int32_t step_room;
    uint64_t constant_room;
    bool is_out_of_memory; /* an append failed; plan.c reports it */
};

/* Appends; sets is_out_of_memory and returns false, or -1, or 0 for a constant, where there is no
 * memory. */
bool gpu_maker_step(gpu_maker *maker, const gpu_step *step);
int32_t gpu_maker_area(gpu_maker *maker, uint64_t size);
uint64_t gpu_maker_constant(gpu_maker *maker, const void *bytes, uint64_t size);
void gpu_maker_form(gpu_maker *maker, const gpu_made_form *form);

/* Sets e's sources and destinations from its node; `places` NULL = they are derived here. */
tdm_status gpu_node_fill(gpu_emit *e, const tdm_view_place *places, tdm_error *err);

/* Sorts the steps into rounds and sets barriers; all steps are known. round_of[n_step] receives the
 * round of each step in the new order. False where there is no memory. */
bool gpu_maker_order(gpu_maker *maker, int32_t *round_of);

/* Gives every area that a step names its place in the scratch, and turns operands in areas into
 * operands in the scratch. False where there is no memory. */
bool gpu_maker_lay_out(gpu_maker *maker, const int32_t *round_of);

#endif
