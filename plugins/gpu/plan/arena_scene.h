/* SPDX-License-Identifier: MIT
 *
 * arena_scene.h: an excerpt (excerpt.h) with one EXCHANGE on a small arena (collective.h), so that
 * a plugin can check the kernels of the phases on little data. Owns the contents of the arena. The
 * plugin runs the excerpt and compares results.
 */
#ifndef TANDEM_GPU_ARENA_SCENE_H
#define TANDEM_GPU_ARENA_SCENE_H

#include "plugins/gpu/plan/excerpt.h"
#include "plugins/gpu/plan/step.h"

/* An EXCHANGE like the node of `step`, whose kernel is one of GPU_KERNEL_LIST_WIRE, on odd shapes
 * that give the same kernel. The arena is the STATE, value GPU_ARENA_STATE. NULL where there is no
 * such shape, and without memory: only then *lacks_memory is set to true. Released with
 * gpu_excerpt_free. [any-thread] */
gpu_excerpt *gpu_arena_excerpt(const tdm_graph *graph, const gpu_step *step, bool *lacks_memory);

/* Fills the bytes of its arena: for a sum with addends of every member in both areas, in the type
 * that they have in the arena; for a GATHER with random bytes. False where the addends cannot be
 * converted. [any-thread] */
bool gpu_arena_fill(const gpu_excerpt *excerpt, uint8_t *arena);

/* Values of the excerpt: the step block, the arena. */
enum { GPU_ARENA_STEP = 0, GPU_ARENA_STATE };

#endif
