/* SPDX-License-Identifier: MIT
 *
 * scene.h: a small cache with the formats of a node's cache, and excerpts (excerpt.h) that work on
 * it, so that a plugin can run the kernels of the cache ops on little data. Owns what the cache and
 * its step blocks are like; what runs the excerpts is the plugin's.
 *
 * A scene has two sequences of odd lengths on pages that are not full. Positions begin behind 0, with
 * gaps between pages, and lie so that the node's window leaves out some tokens. Every cell holds a
 * row. Ops on recurrent states have slots instead, of which one is read and two are written.
 */
#ifndef TANDEM_GPU_SCENE_H
#define TANDEM_GPU_SCENE_H

#include "plugins/gpu/plan/excerpt.h"

enum { GPU_SCENE_SEQS = 2, GPU_SCENE_ENTRIES = 16 };

/* How many tokens an ATTENTION has: they decide which kernels are used. */
typedef enum gpu_scene_size {
    GPU_SCENE_FEW = 0, /* as when tokens are generated */
    GPU_SCENE_MANY,    /* as in a prompt */
    GPU_SCENE_LONG,    /* as in a prompt, with room for so many pages that parts have no record */
    GPU_SCENE_SIZES_
} gpu_scene_size;

typedef struct gpu_scene {
    tdm_kv_desc desc;
    int32_t page_len;
    int32_t n_page;
    int32_t pitch; /* rows of K and V of a page: page_len, with a stride rounded up to whole runs */
    int32_t n_cell; /* n_page * pitch */
    int32_t n_tok;  /* of nodes with tokens */
    int32_t n_head; /* query heads of an ATTENTION, from first_head on */
    int32_t first_head;
    int32_t room_entry; /* capacity of the step block */
    int32_t window;     /* tokens; 0 = none that matters */
    bool is_chunked;
    int32_t len[GPU_SCENE_SEQS];  /* tokens of each sequence */
    int32_t base[GPU_SCENE_SEQS]; /* position of its first one */
    int32_t first_entry[GPU_SCENE_SEQS + 1];
    tdm_page_entry entries[GPU_SCENE_ENTRIES];
} gpu_scene;

/* Plans a scene for a node. False where the node works on no cache. [any-thread] */
bool gpu_scene_plan(const tdm_graph *graph, int32_t node, gpu_scene_size size, gpu_scene *out);

/* The node on the scene's cache, whose pages have page_size bytes. Where `rope` is not -1, it is the
 * ROPE node that is fused into the node, and is part of the excerpt. Where `product` is not -1, the node is
 * an ATTENTION without maxima and sums, and a product by a weight of that tdm_type multiplies what it
 * gives (gpu_excerpt_multiply). The STATE is value GPU_SCENE_STATE. NULL where there is no memory.
 * Released with gpu_excerpt_free. [any-thread] */
gpu_excerpt *gpu_scene_node(const gpu_scene *scene, const tdm_graph *graph, int32_t node,
                            int32_t rope, int32_t product, uint64_t page_size);

/* KV_IMPORT into all cells, or KV_EXPORT of all: row page * pitch + pitch - page_len + slot, so that
 * a run of positions ends with each page. Rows are values
 * GPU_SCENE_K and GPU_SCENE_V; the latter is absent where V is part of K. [any-thread] */
gpu_excerpt *gpu_scene_rows(const gpu_scene *scene, bool is_import, uint64_t page_size);

enum { GPU_SCENE_STEP = 0, GPU_SCENE_STATE, GPU_SCENE_K, GPU_SCENE_V };

#endif
