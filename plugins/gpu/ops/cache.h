/* SPDX-License-Identifier: MIT
 *
 * cache.h: a node's cache as its kernels see it, for the emitters of all cache ops.
 */
#ifndef TANDEM_GPU_OPS_CACHE_H
#define TANDEM_GPU_OPS_CACHE_H

#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/plan/emit.h"
#include "tandem/step.h"

/* The first words of all kernels of caches: shaders/page.glsl, kernels/page.h. */
enum { GPU_PAGE_WORDS = 7 };

typedef struct gpu_cache {
    gpu_page page;
    tdm_step_header at; /* offsets of the parts of the step block; its counts are 0 */
    int32_t n_tok;      /* capacity of the step block */
    int32_t cls;        /* class of the step block that has the cache's page table */
    int64_t n_page;     /* 0 = the state is empty: nothing is launched */
    gpu_operand state;
    gpu_operand step;
} gpu_cache;

/* Reads the cache `kv` of the node's graph, whose step block and state are the sources `step` and
 * `state`. TDM_UNSUPPORTED where the device cannot have the cache, or where description, step block
 * and state do not fit together. */
tdm_status gpu_cache_get(const gpu_emit *e, int32_t kv, int step, int state, gpu_cache *cache_out,
                         tdm_error *err);

/* Fills word[0 .. GPU_PAGE_WORDS - 1]. */
tdm_status gpu_cache_words(const gpu_emit *e, const gpu_cache *cache, int32_t *word,
                           tdm_error *err);

/* What is added to spec number 5 of kernels of ATTENTION and KV_SELECT for the cache's stride. */
static inline int32_t gpu_cache_stride(const gpu_cache *cache) {
    return cache->page.stride > 1 ? cache->page.stride << GPU_ATTENTION_STRIDE_SHIFT : 0;
}

/* Fills word[13 .. 17], by which kernels find a token's sequence and its entries: seq_off,
 * first_entry_off, entry_off, capacities n_seq and n_entry. */
void gpu_cache_step_words(const gpu_emit *e, const gpu_cache *cache, int32_t *word);

#endif
