/* SPDX-License-Identifier: MIT
 *
 * cache.h: what the emitters of the cache ops share: a node's cache as its kernels see it.
 */
#ifndef TANDEM_GPU_OPS_CACHE_H
#define TANDEM_GPU_OPS_CACHE_H

#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/plan/emit.h"
#include "tandem/step.h"

enum { GPU_PAGE_WORDS = 7 }; /* of every kernel that reads pages: shaders/page.glsl */

typedef struct gpu_cache {
    gpu_page page;
    tdm_step_header at; /* where the parts of the step block are; its counts are not used */
    int32_t n_tok;      /* capacity of the step block */
    int32_t cls;
    int64_t n_page;
    gpu_operand state;
    gpu_operand step;
} gpu_cache;

/* Reads the cache `kv` of the node's graph, whose step block and state are the sources `step` and
 * `state`, and checks that they agree. */
tdm_status gpu_cache_get(const gpu_emit *e, int32_t kv, int step, int state, gpu_cache *cache_out,
                         tdm_error *err);

/* Fills word[0 .. GPU_PAGE_WORDS - 1]. */
tdm_status gpu_cache_words(const gpu_emit *e, const gpu_cache *cache, int32_t *word,
                           tdm_error *err);

/* The stride as kernels of ATTENTION and KV_SELECT find it in spec number 5. */
static inline int32_t gpu_cache_stride(const gpu_cache *cache) {
    return cache->page.stride > 1 ? cache->page.stride << GPU_ATTENTION_STRIDE_SHIFT : 0;
}

/* Fills word[13 .. 17] with where a token's sequence and its entries are: seq_off, first_entry_off,
 * entry_off, capacities n_seq and n_entry. */
void gpu_cache_step_words(const gpu_emit *e, const gpu_cache *cache, int32_t *word);

#endif
