/* SPDX-License-Identifier: MIT
 *
 * arena_scene.h: a small arena of a group's exchanges (collective.h), and an excerpt (excerpt.h) with
 * one EXCHANGE on it, so that a plugin can run the kernels of the phases on little data. Owns what
 * the arena holds; what runs the excerpt is the plugin's.
 */
#ifndef TANDEM_GPU_ARENA_SCENE_H
#define TANDEM_GPU_ARENA_SCENE_H

#include "plugins/gpu/plan/excerpt.h"
#include "plugins/gpu/plan/step.h"

/* An EXCHANGE like that of `step`, whose kernel is one of GPU_KERNEL_LIST_WIRE, on odd shapes that
 * give the same kernel. The arena is the STATE, value GPU_ARENA_STATE. NULL where there is no
 * such shape. NULL without memory too: only then is *lacks_memory set. Released with
 * gpu_excerpt_free. [any-thread] */
gpu_excerpt *gpu_arena_excerpt(const tdm_graph *graph, const gpu_step *step, bool *lacks_memory);

/* Fills the bytes of its arena: addends of every member in both areas, of the type that crosses, or
 * bytes that mean nothing. False where there is no memory. [any-thread] */
bool gpu_arena_fill(const gpu_excerpt *excerpt, uint8_t *arena);

enum { GPU_ARENA_STEP = 0, GPU_ARENA_STATE };

#endif
