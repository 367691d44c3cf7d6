/* SPDX-License-Identifier: MIT
 *
 * scene.h: scenes: a scene is a small cache with the formats of a node's cache, on which excerpts
 * (excerpt.h) run the kernels of the cache ops. Owns the shape of the cache and the contents of its
 * step blocks. The plugin runs the excerpts.
 *
 * A scene has two sequences of odd lengths on pages that are not full. Positions begin above 0,
 * have gaps between pages, and are chosen so that the node's window leaves out some tokens. Every
 * cell holds a row. For ops on recurrent states it has slots instead: one is read and two are
 * written.
 */
#ifndef TANDEM_GPU_SCENE_H
#define TANDEM_GPU_SCENE_H

#include "plugins/gpu/plan/excerpt.h"

enum { GPU_SCENE_SEQS = 2, GPU_SCENE_ENTRIES = 16 };

/* How many tokens an ATTENTION has: the number decides which kernels are used. */
typedef enum gpu_scene_size {
    GPU_SCENE_FEW = 0, /* as when tokens are generated */
    GPU_SCENE_MANY,    /* as in a prompt */
    GPU_SCENE_LONG,    /* as in a prompt, with room for so many pages that records of all parts
                          would take too much memory (records_most in ops/attention.c) */
    GPU_SCENE_SIZES_
} gpu_scene_size;

typedef struct gpu_scene {
    tdm_kv_desc desc; /* of the cache; its page_len and n_head_kv are those of the scene */
    int32_t page_len; /* tokens of a page */
    int32_t n_page;
    int32_t pitch;  /* rows of canonical K and V of a page: page_len; of a cache with a stride
                       rounded up to a multiple of the stride */
    int32_t n_cell; /* n_page * pitch */
    int32_t n_tok;  /* of nodes with tokens */
    int32_t n_head; /* query heads of an ATTENTION, from first_head on */
    int32_t first_head;
    int32_t room_entry; /* n_entry of the step block's capacities */
    int32_t window;     /* tokens; 0 = none, or one that leaves nothing out */
    bool is_chunked;
    int32_t len[GPU_SCENE_SEQS];  /* tokens of each sequence */
    int32_t base[GPU_SCENE_SEQS]; /* position of its first token */
    int32_t first_entry[GPU_SCENE_SEQS + 1];
    tdm_page_entry entries[GPU_SCENE_ENTRIES];
} gpu_scene;

/* Plans a scene for a node. False where the node works on no cache, and for a size other than FEW
 * where the node is no ATTENTION. [any-thread] */
bool gpu_scene_plan(const tdm_graph *graph, int32_t node, gpu_scene_size size, gpu_scene *out);

/* The node on the scene's cache, whose pages have page_size bytes. rope: the ROPE node that is
 * fused into the node and becomes part of the excerpt; -1 = none. product: the tdm_type of a
 * weight; the node is then an ATTENTION without `ml`, and a product with that weight reads its
 * result (gpu_excerpt_multiply); -1 = none. The STATE is value GPU_SCENE_STATE. NULL without
 * memory. Released with gpu_excerpt_free. [any-thread] */
gpu_excerpt *gpu_scene_node(const gpu_scene *scene, const tdm_graph *graph, int32_t node,
                            int32_t rope, int32_t product, uint64_t page_size);

/* KV_IMPORT into all cells, or KV_EXPORT of all cells. The cell of a page's slot is row page *
 * pitch + pitch - page_len + slot: so the last slot of each page is the last position of a run of a
 * cache with a stride. Rows are values GPU_SCENE_K and GPU_SCENE_V; the latter is absent where V is
 * part of K. NULL without memory. Released with gpu_excerpt_free. [any-thread] */
gpu_excerpt *gpu_scene_rows(const gpu_scene *scene, bool is_import, uint64_t page_size);

/* Values of the excerpts. */
enum { GPU_SCENE_STEP = 0, GPU_SCENE_STATE, GPU_SCENE_K, GPU_SCENE_V };

#endif
